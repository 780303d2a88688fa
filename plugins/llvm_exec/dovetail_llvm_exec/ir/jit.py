"""From IR text to the address of a function: LLVM's code generator, and a cache of object files on disk.

An object is kept under the hash of its IR, the machine and LLVM's version, so a second process loads in a quarter of a millisecond what
the first compiled in ten.  A record names the object of a region, so that its IR need not be written again.  Each is written
to a file of its own, which is then renamed: a reader sees all of one or none.  Those that nobody has loaded for longest make room for new ones.

LLVM compiles a draft in 40 % of the time, without optimizing: its code computes the same, slower.  It is kept with its IR, from which `finished`
compiles it again.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import re
import sys
import threading
import weakref
import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding as llvm
import platformdirs

from dovetail import __version__ as version
from dovetail.extend.advanced import debug
from dovetail_llvm_exec.ir.target import Target, host

SUFFIX = ".o"
DRAFT = "d"  # behind the key of a module is the key of its draft
KEPT = 128  # objects and records, and some 16 more, in each of the 256 folders; an object has about 5 KB, a record 300 bytes
TIDYING = "0"  # how the key of a file ends after which old ones make room: one in sixteen
ESTIMATE = " arcp "  # the flag of a division that LLVM estimates where it optimizes: a draft would round otherwise
LONG = 150  # lines of a module, from which its loops are not reduced in strength
HEADER = b"dovetail object 2\n"  # then 32 bytes: the hash of the key and of what follows
SHOWS_IR, SHOWS_ASSEMBLY = 3, 4  # from which value of DOVETAIL_DEBUG on


class Kernel:
    """Compiled code.

    `address` is that of its function, and good as long as the kernel lives; `cached` says if it came from disk, `key` where it is there.
    `draft` is the compressed IR of code that is not optimized.
    """

    key, draft = "", b""
    table = 0  # what the function gets as its last argument

    def __init__(self, library: llvm.ResourceTracker, name: str, cached: bool):
        self._library = library
        self.name = name
        self.address: int = library[name]
        self.cached = cached

    def __repr__(self) -> str:
        return f"<kernel {self.name} at {self.address:#x}{', from the cache' if self.cached else ''}>"


class Compiler:
    """Compiles for one machine.  `folder` holds the objects; None keeps nothing."""

    def __init__(self, target: Target | None = None, folder: Path | None = None):
        self.target = target or host()
        self.folder = folder
        self._machine, self._drafting = self.target.machine(), self.target.machine(optimization=0)
        self._linker = llvm.create_lljit_compiler(self.target.machine(), suppress_errors=True)
        self._numbers = itertools.count()  # no two libraries of a linker have one name
        self._lock = threading.Lock()
        self._provided: dict[str, int] = {}
        self._shared: weakref.WeakValueDictionary[str, Kernel] = weakref.WeakValueDictionary()  # what is in use, by key
        self._salt = "\n".join([str(llvm.llvm_version_info), llvmlite.__version__, self.target.triple, self.target.cpu, self.target.features])

    def provide(self, name: str, address: int) -> None:
        """Let code that is linked from now on call what lies at `address` by name; everything in the process can be called anyway."""
        self._provided[name] = address

    def compile(self, text: str, name: str, *, draft: bool = False, verbosity: int | None = None) -> Kernel:
        """Return the function `name` of the module `text`; `draft`: one that is not optimized will do.

        `verbosity`, else DOVETAIL_DEBUG: 3 prints the IR on standard error, 4 the assembly, too.  IR that LLVM
        cannot read is a RuntimeError with LLVM's words; a call of what is nowhere defined is one that names it.
        """
        key, draft = self._key(text), draft and not shows_ir() and ESTIMATE not in text
        object_code, source = self._stored(key, draft=draft)
        cached = object_code is not None
        with self._lock:
            if (level := debug() if verbosity is None else verbosity) >= SHOWS_IR:
                self._show(text, name, level)
            if object_code is None:
                object_code, source = self._object(text, draft), zlib.compress(text.encode(), 1) if draft else b""
            kernel = self._link(object_code, name, text, cached)
        kernel.key, kernel.draft = key, source
        if not cached and draft:
            self._write(key + DRAFT, len(source).to_bytes(8) + source + object_code)
        elif not cached:
            self._write(key, object_code)
        return kernel

    def shared(self, text: str, name: str, about: str = "", *, draft: bool = False) -> Kernel:
        """Return the function `name` of the module `text`, the one that is in use where there is one; `about` is shown with the IR."""
        key = self._key(text)
        kernel = self._shared.get(key)
        if kernel is None or (kernel.draft and not draft):
            kernel = self._shared[key] = self.compile(text, name, draft=draft)
        elif about and (level := debug()) >= SHOWS_IR:
            self._show(text, name, level)
        if about and shows_ir():
            print(about, file=sys.stderr)
        return kernel

    def finished(self, draft: Kernel) -> Kernel:
        """Return the optimized function of a draft, the one that is in use where there is one."""
        kernel = self._shared.get(draft.key)
        if kernel is None or kernel.draft:
            kernel = self._shared[draft.key] = self.compile(zlib.decompress(draft.draft).decode(), draft.name)
            if (path := self._path(draft.key + DRAFT)) is not None:
                with contextlib.suppress(OSError):  # the folder may be read-only, or no folder at all
                    os.unlink(path)
        return kernel

    def known(self, key: str, name: str = "nest") -> Kernel | None:
        """Return a shared function by its key; None where it is neither in use nor on disk."""
        kernel = self._shared.get(key)
        if kernel is not None:
            return kernel
        object_code, source = self._stored(key, draft=True)
        if object_code is None:
            return None
        with self._lock:
            kernel = self._shared[key] = self._link(object_code, name, "", True)
            kernel.key, kernel.draft = key, source
        return kernel

    def recall(self, mark: str) -> dict[str, Any] | None:
        """Return the facts kept under `mark`; None where they are not on disk."""
        record = None if shows_ir() else self._read(self._key(f"{generator()}\n{mark}"))
        return json.loads(record) if record is not None else None

    def keep(self, mark: str, facts: dict[str, Any]) -> None:
        """Keep facts under `mark`, which determines them."""
        self._write(self._key(f"{generator()}\n{mark}"), json.dumps(facts).encode())

    def _key(self, text: str) -> str:
        return hashlib.sha256(f"{self._salt}\n{text}".encode()).hexdigest()

    def assembly(self, text: str) -> str:
        """Return the assembly of the module for the machine."""
        with _unreduced(text):
            return self._machine.emit_assembly(_parsed(text))

    def _object(self, text: str, draft: bool) -> bytes:
        with _unreduced(text):
            return (self._drafting if draft else self._machine).emit_object(_parsed(text))

    def _link(self, object_code: bytes, name: str, text: str, cached: bool) -> Kernel:
        builder = llvm.JITLibraryBuilder().add_object_img(object_code).add_current_process().export_symbol(name)
        for symbol, address in self._provided.items():
            builder.import_symbol(symbol, address)
        try:
            return Kernel(builder.link(self._linker, f"{name}.{next(self._numbers)}"), name, cached)
        except RuntimeError as error:
            declared = [symbol for symbol in re.findall(r"^declare .*?@([\w.$]+)", text, re.MULTILINE) if not symbol.startswith("llvm.")]
            missing = [symbol for symbol in declared if symbol not in self._provided and not llvm.address_of_symbol(symbol)]
            raise RuntimeError(f"{name} cannot be linked: {error}; not defined in the process: {', '.join(missing) or 'nothing'}") from error

    def _show(self, text: str, name: str, level: int) -> None:
        print(f"; {name}, as LLVM IR\n{text}", file=sys.stderr)
        if level >= SHOWS_ASSEMBLY:
            print(f"# {name}, for {self.target.cpu}\n{self.assembly(text)}", file=sys.stderr)

    def _path(self, key: str) -> str | None:
        return None if self.folder is None else f"{self.folder}/{key[:2]}/{key}{SUFFIX}"

    def _read(self, key: str) -> bytes | None:
        """Return the object from disk; None where there is none, or it is damaged or another key's."""
        path = self._path(key)
        if path is None:
            return None
        try:
            with open(path, "rb") as file:
                content = file.read()
        except OSError:
            return None
        start = len(HEADER) + 32
        object_code = content[start:]
        if content[:start] != HEADER + _seal(key, object_code):
            return None
        with contextlib.suppress(OSError):
            os.utime(path)  # it was of use
        return object_code

    def _stored(self, key: str, *, draft: bool) -> tuple[bytes | None, bytes]:
        """Return the object from disk, and its IR where it is a `draft`, which will do where there is no other; None where there is none."""
        object_code = self._read(key)
        if object_code is not None or not draft or (content := self._read(key + DRAFT)) is None:
            return object_code, b""
        start = 8 + int.from_bytes(content[:8])
        return content[start:], content[8:start]

    def _write(self, key: str, object_code: bytes) -> None:
        """Keep the object; a disk that is full or read-only is no error."""
        path = self._path(key)
        if path is None:
            return
        folder = os.path.dirname(path)
        with contextlib.suppress(OSError):
            if not os.path.isdir(folder):
                os.makedirs(folder, exist_ok=True)
            temporary = f"{folder}/.{key}.{os.getpid()}.{next(self._numbers)}{SUFFIX}"
            try:
                with open(temporary, "xb") as file:
                    file.write(HEADER + _seal(key, object_code) + object_code)
                os.replace(temporary, path)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
                raise
            if key.endswith(TIDYING):
                for old in sorted(Path(folder).glob("*" + SUFFIX), key=os.path.getmtime)[:-KEPT]:
                    old.unlink(missing_ok=True)


def _seal(key: str, object_code: bytes) -> bytes:
    """Return the hash that binds an object to its key, so that a file in the place of another is not run."""
    return hashlib.sha256(key.encode() + object_code).digest()


def _parsed(text: str) -> llvm.ModuleRef:
    module = llvm.parse_assembly(text)
    module.verify()
    return module


@contextlib.contextmanager
def _unreduced(text: str) -> Iterator[None]:
    """Leave the addresses in the loops of a long module as they are.

    LLVM's pass over them, loop strength reduction, takes as long as the rest of the code generator there, and its code is no faster.
    """
    if text.count("\n") <= LONG:
        yield
        return
    llvm.set_option("dovetail", "-disable-lsr=true")  # of the process: there is no such option of a target machine or a function
    try:
        yield
    finally:
        llvm.set_option("dovetail", "-disable-lsr=false")


def shows_ir() -> bool:
    """Return whether IR is printed as it is compiled; then all of it is, once, and optimized."""
    return debug() >= SHOWS_IR


@cache
def generator() -> str:
    """Return a hash of the code that writes IR: what another version of it has written is not recalled."""
    digest = hashlib.sha256(version.encode())
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def cache_folder() -> Path:
    """Return the default folder of compiled objects."""
    return Path(platformdirs.user_cache_dir("dovetail")) / "llvm"


@cache
def compiler() -> Compiler:
    """Return the process's compiler for the machine it runs on, with the cache on disk."""
    return Compiler(host(), cache_folder())


def compile(text: str, name: str, *, verbosity: int | None = None) -> Kernel:
    """Compile with the process's compiler; see `Compiler.compile`."""
    return compiler().compile(text, name, verbosity=verbosity)

"""Start programs in processes that have imported torch and parts of it that come late, and nothing of Dovetail: forks of one server."""

from __future__ import annotations

import atexit
import io
import multiprocessing
import os
import runpy
import shutil
import subprocess
import sys
import tempfile
import traceback
import types
from collections.abc import Mapping, Sequence
from pathlib import Path

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["torch", "torch._dynamo"])  # what optimizers and assert_close import
_STREAMS = ("out", "err")


def run(
    command: Sequence[str | Path], *, env: Mapping[str, str] | None = None, cwd: Path | None = None, isolated: bool = False
) -> subprocess.CompletedProcess[str]:
    """Return how a command ended, and what it printed; it is `["-c", PROGRAM]`, `["-m", MODULE, ...]`, `["dovetail", ...]`, or a file's path.

    The process sees `env` (this process's where it is None) and the folder `cwd`; with `isolated` its own folder is not on `sys.path`, as with
    `python -P`. Variables that torch or the dynamic linker read while they load have no effect, since the server has loaded them.
    """
    words = [str(word) for word in command]
    variables = dict(os.environ if env is None else env)
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, name) for name in _STREAMS]
        process = _CONTEXT.Process(target=_child, args=(words, variables, str(cwd or os.getcwd()), isolated, [str(path) for path in paths]))
        process.start()
        process.join()
        out, err = (path.read_text() if path.exists() else "" for path in paths)
    return subprocess.CompletedProcess(words, process.exitcode, out, err)


def _child(words: list[str], variables: dict[str, str], folder: str, isolated: bool, streams: list[str]) -> None:
    for number, path in enumerate(streams, 1):
        file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        os.dup2(file, number)
        os.close(file)
    sys.stdout, sys.stderr = (io.TextIOWrapper(os.fdopen(os.dup(number), "wb"), write_through=number == 2) for number in (1, 2))
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(folder)
    sys.path[:] = _search_path(variables) if isolated or words[0] not in ("-c", "-m") else ["", *_search_path(variables)]
    try:
        sys.exit(_execute(words))
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
        code = 1
    if isinstance(code, str):
        print(code, file=sys.stderr)
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code or 0)


def _search_path(variables: Mapping[str, str]) -> list[str]:
    """Return what a new interpreter looks for modules in: PYTHONPATH, the standard library and the installed distributions."""
    installed = [path for path in sys.path if path.startswith((sys.prefix, sys.base_prefix)) and "/tests" not in path]
    return [path for path in variables.get("PYTHONPATH", "").split(os.pathsep) if path] + installed


def _execute(words: list[str]) -> int | None:
    kind, *rest = words
    if kind == "-c":
        program, sys.argv = rest[0], ["-c", *rest[1:]]
        module = types.ModuleType("__main__")
        sys.modules["__main__"] = module
        exec(compile(program, "<string>", "exec"), module.__dict__)
    elif kind == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif kind == "dovetail":
        from dovetail.cli import main

        sys.argv = [shutil.which("dovetail", path=str(Path(sys.executable).parent)) or "dovetail", *rest]
        return main()
    else:
        sys.argv = words
        runpy.run_path(kind, run_name="__main__")
    return None

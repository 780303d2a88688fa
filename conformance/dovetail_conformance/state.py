"""Process-wide state that an executor must not change: read, compare and restore it."""

from __future__ import annotations

import atexit
import builtins
import ctypes
import decimal
import gc
import locale
import logging
import math
import multiprocessing
import operator
import os
import random
import signal
import socket
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

try:
    import resource
except ImportError:  # systems that have no such limits
    resource = None  # type: ignore[assignment]

SIGNALS = tuple(sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})) if hasattr(signal, "SIGKILL") else (signal.SIGINT, signal.SIGTERM)
DURING = {"SIGINT", "SIGTERM", "SIGCHLD", "SIGALRM", "SIGVTALRM", "SIGPROF"}  # signals that may come while a call is watched
HANDLERS = {number: signal.getsignal(number) for number in SIGNALS if getattr(number, "name", "") not in DURING}  # before an executor is imported
SCRAMBLED = 990_817_263
DENORMAL = torch.tensor([1e-310], dtype=torch.float64)
ROUNDED = torch.tensor([1.0, 2.0**-53 * 1.5], dtype=torch.float64)  # their sum is rounded up, or to the nearest, or down
PRINTED = torch.tensor([1 / 3, 1e-9])
ROOT = logging.getLogger()
ATTENTION = (
    (torch.backends.cuda.flash_sdp_enabled, torch.backends.cuda.enable_flash_sdp),
    (torch.backends.cuda.mem_efficient_sdp_enabled, torch.backends.cuda.enable_mem_efficient_sdp),
    (torch.backends.cuda.math_sdp_enabled, torch.backends.cuda.enable_math_sdp),
)


@dataclass(frozen=True)
class Setting:
    """One setting of the process: how to read it and, where possible, to restore it."""

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], Any] | None = None


def _flag(owner: Any, name: str, description: str) -> Setting:
    return Setting(description, partial(getattr, owner, name), partial(setattr, owner, name))


def _flushes() -> bool:
    return float(DENORMAL.mul(1.0)) == 0.0


def _rounding() -> tuple[float, ...]:
    """Return sums and products that differ in each mode of rounding."""
    return float(ROUNDED[0]) + float(ROUNDED[1]), -float(ROUNDED[0]) - float(ROUNDED[1])


def _round_to_nearest() -> None:
    getattr(ctypes.CDLL(None), "fesetround", lambda how: 0)(0)


def _hooks_saved() -> bool:
    """Return whether hooks of saved tensors are active."""
    try:
        with torch.autograd.graph.disable_saved_tensors_hooks("active"):
            return False
    except RuntimeError:
        return True


def _set_attention(enabled: tuple[bool, ...]) -> None:
    for (_, enable), value in zip(ATTENTION, enabled):
        enable(value)


def _set_logging(before: tuple) -> None:
    ROOT.setLevel(before[0])
    ROOT.handlers[:] = before[1]
    logging.disable(before[2])


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _affinity() -> tuple[int, ...]:
    return tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else ()


def _limits() -> tuple[Any, ...]:
    """Return the limits of memory, stack, files and time that the system holds the process to."""
    names = ("RLIMIT_AS", "RLIMIT_STACK", "RLIMIT_NOFILE", "RLIMIT_CORE", "RLIMIT_CPU")
    return tuple(resource.getrlimit(getattr(resource, name)) for name in names) if resource is not None else ()


def _set_imports(before: tuple) -> None:
    sys.meta_path[:], sys.path_hooks[:] = before


def _set_environment(values: dict[str, str]) -> None:
    for name in os.environ.keys() - values.keys():
        del os.environ[name]
    os.environ.update({name: value for name, value in values.items() if os.environ.get(name) != value})


def _set_filters(filters: list) -> None:
    warnings.filters[:] = filters


def _set_autocast(state: tuple) -> None:
    torch.set_autocast_enabled("cpu", state[0])
    torch.set_autocast_dtype("cpu", state[1])
    torch.set_autocast_cache_enabled(state[2])


def _set_signals(handlers: tuple) -> None:
    if threading.current_thread() is threading.main_thread():
        for number, handler in zip(SIGNALS, handlers):
            if signal.getsignal(number) is not handler and handler is not None:
                signal.signal(number, handler)


SETTINGS: tuple[Setting, ...] = (
    Setting("the default dtype", torch.get_default_dtype, torch.set_default_dtype),
    Setting("the default device", torch.get_default_device),
    Setting("grad mode", torch.is_grad_enabled, torch.set_grad_enabled),
    Setting("inference mode", torch.is_inference_mode_enabled),
    Setting(
        "autocast", lambda: (torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu"), torch.is_autocast_cache_enabled()), _set_autocast
    ),
    Setting("the number of threads", torch.get_num_threads, torch.set_num_threads),
    Setting("the number of threads between operations", torch.get_num_interop_threads),
    Setting("deterministic mode", torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
    Setting("the flushing of denormal numbers", _flushes, torch.set_flush_denormal),
    Setting("the precision of matrix products", torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    Setting("anomaly detection", torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
    Setting("oneDNN", lambda: torch.backends.mkldnn.enabled),
    Setting("hooks of saved tensors", _hooks_saved),
    Setting("the rounding of floating point", _rounding, lambda _: _round_to_nearest()),
    Setting("the fast path of attention", torch.backends.mha.get_fastpath_enabled, torch.backends.mha.set_fastpath_enabled),
    Setting("the kernels of attention", lambda: tuple(enabled() for enabled, _ in ATTENTION), _set_attention),
    Setting("warnings that always show", torch.is_warn_always_enabled, torch.set_warn_always),
    _flag(torch.utils.deterministic, "fill_uninitialized_memory", "the filling of new memory"),
    _flag(torch.backends.opt_einsum, "enabled", "the order of einsum"),
    _flag(torch.backends.cudnn, "enabled", "cuDNN"),
    _flag(torch.backends.cudnn, "benchmark", "cuDNN's benchmarks"),
    _flag(torch.backends.cudnn, "deterministic", "cuDNN's determinism"),
    _flag(torch.backends.cudnn, "allow_tf32", "TF32 in cuDNN"),
    _flag(torch.backends.cuda.matmul, "allow_tf32", "TF32 in matrix products"),
    Setting("Python's random state", random.getstate, random.setstate),
    Setting("the printing of tensors", lambda: repr(PRINTED)),
    Setting("NumPy's printing", lambda: repr(np.get_printoptions())),
    Setting("the decimal context", lambda: repr(decimal.getcontext())),
    Setting("logging", lambda: (ROOT.level, tuple(ROOT.handlers), logging.root.manager.disable), _set_logging),
    Setting("the mask of new files", _umask, os.umask),
    Setting("the processors of the process", _affinity, lambda cpus: os.sched_setaffinity(0, cpus)),
    Setting("the priority of the process", lambda: os.getpriority(os.PRIO_PROCESS, 0) if hasattr(os, "getpriority") else 0),
    Setting("the environment", lambda: dict(os.environ), _set_environment),
    Setting("the working directory", os.getcwd, os.chdir),
    Setting("the warning filters", lambda: list(warnings.filters), _set_filters),
    Setting("sys.path", lambda: list(sys.path), lambda path: sys.path.__setitem__(slice(None), path)),
    Setting("the recursion limit", sys.getrecursionlimit, sys.setrecursionlimit),
    Setting("the time slice of threads", sys.getswitchinterval, sys.setswitchinterval),
    Setting("the hooks of Python", lambda: (sys.excepthook, sys.displayhook, sys.gettrace(), sys.getprofile(), threading.gettrace())),
    Setting("the standard streams", lambda: (sys.stdout, sys.stderr, sys.stdin)),
    Setting("the garbage collector", lambda: (gc.isenabled(), gc.get_threshold(), tuple(gc.callbacks))),
    Setting("signal handlers", lambda: tuple(map(signal.getsignal, SIGNALS)), _set_signals),
    Setting("what runs at exit", atexit._ncallbacks),
    Setting("the import system", lambda: (tuple(sys.meta_path), tuple(sys.path_hooks)), _set_imports),
    Setting("the hooks of threads and of errors that nobody catches", lambda: (threading.excepthook, sys.unraisablehook)),
    Setting("the stack of new threads", threading.stack_size, threading.stack_size),
    Setting("the most digits of an integer", sys.get_int_max_str_digits, sys.set_int_max_str_digits),
    Setting("the timeout of sockets", socket.getdefaulttimeout, socket.setdefaulttimeout),
    Setting("how processes start", partial(multiprocessing.get_start_method, allow_none=True)),
    Setting("how processes share tensors", torch.multiprocessing.get_sharing_strategy, torch.multiprocessing.set_sharing_strategy),
    Setting("limits of resources", _limits),
    Setting("the folder of temporary files", lambda: tempfile.tempdir, partial(setattr, tempfile, "tempdir")),
    Setting("the locale", lambda: locale.setlocale(locale.LC_ALL)),
    Setting("NumPy's handling of errors", np.geterr, lambda how: np.seterr(**how)),
)
UNUSUAL = {  # values that no code sets: a call that sets the usual ones changes something then
    "the number of threads": 3,
    "the precision of matrix products": "high",
    "the recursion limit": sys.getrecursionlimit() + 97,
    "the time slice of threads": 0.0049,
    "the timeout of sockets": 97.0,
}
PLACES = {
    "torch": torch,
    "torch.Tensor": torch.Tensor,
    "torch.nn.functional": torch.nn.functional,
    "torch.autograd": torch.autograd,
    "torch.linalg": torch.linalg,
    "torch.special": torch.special,
    "torch.fft": torch.fft,
    "torch.nn.Module": torch.nn.Module,
    "numpy": np,
    "math": math,
    "builtins": builtins,
}


class Snapshot:
    """The settings of the process at one moment; with `whole`, also the attributes of torch's and NumPy's modules."""

    def __init__(self, *, whole: bool = True):
        self.values = {setting: setting.read() for setting in SETTINGS}
        self.numpy = np.random.get_state()
        self.names = {place: dict(vars(owner)) for place, owner in PLACES.items()} if whole else {}

    def changes(self) -> Iterator[str]:
        """Yield the names of settings that changed."""
        for setting, before in self.values.items():
            if not _same(setting.read(), before):
                yield setting.name
        if not all(map(_same, np.random.get_state(), self.numpy)):
            yield "NumPy's random state"
        for place, names in self.names.items():
            now = vars(PLACES[place])
            if len(now) == len(names) and all(map(operator.is_, now.values(), names.values())):
                continue
            for name in names.keys() & now.keys():
                if now[name] is not names[name] and _counts(name, names[name], now[name]):
                    yield f"{place}.{name}"
            if isinstance(PLACES[place], type):
                yield from (f"{place}.{name}" for name in now.keys() - names.keys() if not name.startswith("_"))

    def restore(self) -> None:
        """Restore settings that changed, where that is possible."""
        for setting, before in self.values.items():
            if setting.write is not None and not _same(setting.read(), before):
                setting.write(before)
        np.random.set_state(self.numpy)
        for place, names in self.names.items():
            if isinstance(owner := PLACES[place], type):
                for name in [name for name in vars(owner) if name not in names and not name.startswith("_")]:
                    delattr(owner, name)
            for name, was in names.items():
                if vars(PLACES[place]).get(name, was) is not was and _counts(name, was, vars(PLACES[place])[name]):
                    setattr(PLACES[place], name, was)


def _counts(name: str, before: Any, now: Any) -> bool:
    """Return whether an attribute of a module is one that libraries leave alone: a function, a class, or a public setting."""
    return callable(before) or callable(now) or (not name.startswith("_") and type(before) in (bool, int, float, str) and now != before)


LIBRARIES = (
    "the environment",
    "sys.path",
    "the warning filters",
    "Python's random state",
    "NumPy's random state",
    "signal handlers",
    "what runs at exit",
    "the import system",
)


def as_before(environment: dict[str, str]) -> None:
    """Undo changes that a call makes once only, and set random states that no code would choose."""
    _set_environment({**environment, **{name: value for name, value in os.environ.items() if name.startswith("PYTEST")}})
    _set_signals(tuple(HANDLERS.get(number) for number in SIGNALS))
    random.seed(SCRAMBLED)
    np.random.seed(SCRAMBLED)


@contextmanager
def unusual() -> Iterator[None]:
    """Give settings of the process unusual values while open."""
    before = {setting: setting.read() for setting in SETTINGS if setting.name in UNUSUAL}
    for setting in before:
        setting.write(UNUSUAL[setting.name])
    try:
        yield
    finally:
        for setting, value in before.items():
            setting.write(value)


@contextmanager
def watched(changed: list[str], *, whole: bool = False, but: tuple[str, ...] = ()) -> Iterator[None]:
    """Record changes of the process while open, but for those named, and put them back afterwards."""
    before = Snapshot(whole=whole)
    try:
        yield
    finally:
        if new := [name for name in before.changes() if name not in but]:
            changed += new
            before.restore()


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        return bool(np.array_equal(a, b))
    return a is b or a == b


class _RecordingEnvironment(dict):
    """An environment that records the names of the variables that are read."""

    def __init__(self, values: dict[str, str], reads: list[str]):
        super().__init__(values)
        self.reads = reads

    def __getitem__(self, name: str) -> str:
        self.reads.append(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.reads.append(name)
        return super().get(name, default)

    def __contains__(self, name: object) -> bool:
        self.reads.append(str(name))
        return super().__contains__(name)


@contextmanager
def recording_reads(reads: list[str]) -> Iterator[None]:
    """Record what is read from the environment while open, but for Dovetail's own options."""
    before, os.environ = os.environ, _RecordingEnvironment(dict(os.environ), noted := [])  # type: ignore[assignment]
    try:
        yield
    finally:
        os.environ = before  # noqa: B003
        reads += [name for name in noted if not name.startswith("DOVETAIL")]

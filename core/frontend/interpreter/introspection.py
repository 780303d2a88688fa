"""What a program sees when it looks at its own frames: the interpreted ones, and none of the interpreter's."""

from __future__ import annotations

import itertools
import sys
import warnings
from collections.abc import Callable, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any

from dovetail.frontend.interpreter import recursion
from dovetail.frontend.interpreter.drivers import driven
from dovetail.frontend.interpreter.engine import NOTHING, awaited, loop, throw_into
from dovetail.frontend.interpreter.frame import OPTIMIZED, Frame
from dovetail.frontend.interpreter.scopes import locals_of
from dovetail.frontend.interpreter.tracebacks import WritableLocals, is_own, line_of

if TYPE_CHECKING:
    from dovetail.frontend.interpreter.world import World


class FrameView:
    """Show an interpreted frame as a native one; `f_back` is the next that the program should see.

    `real` is the native frame of its generator, `running` that of the loop which executes it: the line moves on with it.
    """

    f_trace, f_trace_lines, f_trace_opcodes = None, True, False

    def __init__(
        self,
        frame: Frame,
        pc: int,
        callers: Callable[[], Iterator[Any]] = lambda: iter(()),
        real: FrameType | None = None,
        running: FrameType | None = None,
    ):
        self._frame, self._last, self._callers, self._real, self._running = frame, pc, callers, real, running
        self.f_code, self.f_globals, self.f_builtins = frame.code, frame.globals, frame.builtins

    __class__ = property(lambda self: FrameType)  # `inspect.isframe` believes it

    def __eq__(self, other: object) -> bool:
        return type(other) is FrameView and other._frame is self._frame

    def __hash__(self) -> int:
        return id(self._frame)

    @property
    def _pc(self) -> int:
        return self._last if self._running is None else self._running.f_locals.get("pc", self._last)

    @property
    def f_locals(self) -> Any:
        frame = self._frame
        written_through = sys.version_info >= (3, 13) and frame.names is None and frame.code.co_flags & OPTIMIZED
        return WritableLocals(frame) if written_through else locals_of(frame)

    @property
    def f_lasti(self) -> int:
        return self._frame.decoded.offsets[self._pc]

    @property
    def f_lineno(self) -> int:
        return line_of(self._frame, self._pc)

    @property
    def f_back(self) -> Any:
        return next(self._callers(), None)

    def clear(self) -> None:
        """Close the generator or coroutine that the frame belongs to."""
        if self._real is None:
            raise RuntimeError("cannot clear an executing frame")
        self._real.clear()


def frames(real: FrameType | None) -> Iterator[Any]:
    """Yield the frames that a program should see, from the innermost, where `real` is the native one to start with."""
    while real is not None:
        following = real.f_back
        if real.f_code is loop.__code__:
            state = real.f_locals
            yield FrameView(state["frame"], state["pc"], lambda start=following: frames(start), running=real)
        elif real.f_code is throw_into.__code__:
            frame = real.f_locals["frame"]
            yield FrameView(frame, frame.pc - 1, lambda start=following: frames(start))
        elif not is_own(real):
            yield real
        real = following


def introspected(owner: Any, name: str) -> Any:
    """Return an attribute of a generator, coroutine or async generator, which may run an interpreted frame."""
    what = name.partition("_")[2] if name[:3] in ("gi_", "cr_", "ag_") else ""
    if what in ("frame", "code", "yieldfrom", "await"):
        value, frame = getattr(owner, name), driven(owner)
        if frame is None:
            return value
        if what == "code":
            return frame.code
        if what == "frame":
            return FrameView(frame, max(frame.pc - 1, 0), real=value)
        inner = NOTHING if getattr(owner, name[:3] + "running") and name[:3] != "ag_" else awaited(frame)
        return None if inner is NOTHING else inner
    return getattr(owner, name)


def _getframe(world: World, function: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
    if frame is None or kwargs or len(args) > 1:
        return function(*args, **kwargs)
    view = next(itertools.islice(frames(sys._getframe()), args[0] if args else 0, None), None)
    if view is None:
        raise ValueError("call stack is not deep enough")
    return view


def _getframemodulename(world: World, function: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> str | None:
    depth = [*args, *kwargs.values(), 0][0]
    view = next(itertools.islice(frames(sys._getframe()), depth, None), None)
    if isinstance(view, FrameView) and type(view) is FrameView and view._frame.function is not None:
        return view._frame.function.__module__
    return None if view is None else view.f_globals.get("__name__")


def _warn(world: World, function: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
    """Call `warnings.warn` with the line of the program: `stacklevel` counts the frames that the program sees."""
    names = ("message", "category", "stacklevel", "source")
    arguments = {"category": None, "stacklevel": 1, "source": None, "skip_file_prefixes": ()} | dict(zip(names, args)) | kwargs
    category = type(arguments["message"]) if isinstance(arguments.get("message"), Warning) else arguments["category"] or UserWarning
    prefixes = arguments["skip_file_prefixes"]
    if "message" not in arguments or len(arguments) > 5 or not (isinstance(category, type) and issubclass(category, Warning)):
        return function(*args, **kwargs)
    if not isinstance(prefixes, tuple) or not all(isinstance(prefix, str) for prefix in prefixes):
        return function(*args, **kwargs)
    caller = _caller(arguments["stacklevel"], prefixes)
    if caller is None:
        scope, where, line = vars(sys), "sys", 1
    else:
        scope, where, line = caller.f_globals, caller.f_code.co_filename, caller.f_lineno
    registry = scope.setdefault("__warningregistry__", {})
    name = scope.get("__name__") or "<string>"
    return warnings.warn_explicit(arguments["message"], category, where, line, name, registry, None, arguments["source"])


def _caller(level: int, prefixes: tuple[str, ...]) -> Any:
    """Return the frame that a warning of this stack level is about."""
    if prefixes:
        level = max(level, 2)
    visible = frames(sys._getframe())
    first = caller = next(visible, None)
    for _ in range(level - 1):
        caller = next(visible, None)
        while caller is not None and not _is_internal(first) and (_is_internal(caller) or caller.f_code.co_filename.startswith(prefixes or "\0")):
            caller = next(visible, None)
    return caller


def _is_internal(frame: Any) -> bool:
    filename = frame.f_code.co_filename
    return "importlib" in filename and "_bootstrap" in filename


def _set_limit(world: World, function: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> None:
    if len(args) != 1 or kwargs or type(args[0]) is not int or args[0] < 1:
        return function(*args, **kwargs)
    if args[0] <= world.depth:
        raise RecursionError(f"cannot set the recursion limit to {args[0]} at the recursion depth {world.depth}: the limit is too low")
    world.limit = args[0]
    recursion.change(args[0])
    return None


def _get_limit(world: World, function: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> int:
    return function(*args, **kwargs) if args or kwargs else world.limit


LOOKASIDES = {
    sys._getframe: _getframe,
    warnings.warn: _warn,
    sys.setrecursionlimit: _set_limit,
    sys.getrecursionlimit: _get_limit,
}
if hasattr(sys, "_getframemodulename"):
    LOOKASIDES[sys._getframemodulename] = _getframemodulename

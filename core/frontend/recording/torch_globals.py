"""Global settings of torch in a tracked run: their values at the call are guarded, those that the program changes are set at every call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import BuiltinFunctionType
from typing import TYPE_CHECKING, Any

import torch

from dovetail.errors import EagerCall, Unsupported
from dovetail.frontend.autocast import autocast_state
from dovetail.langs.torch import world
from dovetail.torch_internals import ThreadModes, any_autocast, cudnn_setting, disable_hooks, hooks_disabled, sdp_settings, set_grad_enabled
from dovetail.trace import Proxy, TensorProxy, Trace, user_line
from dovetail.trace.aliases import root_of, view_bases

if TYPE_CHECKING:
    from dovetail.frontend.interpreter.tracking.tracker import Tracker

_SETTERS: dict[Callable[[], Any], Callable[[Any], Any]] = {
    torch.is_grad_enabled: set_grad_enabled,
    torch.get_default_dtype: torch.set_default_dtype,
    hooks_disabled: disable_hooks,
    **sdp_settings(),
}
_READ = {
    torch.get_default_device: "default_device",
    torch.get_default_dtype: "default_dtype",
    torch.is_inference_mode_enabled: "inference_mode",
    world: "process_group",
}
_FOLLOWED = ("_set_grad_enabled", "_set_default_dtype", "_set_fwd_grad_enabled", "set_autocast_", "_set_sdp_", "_set_conj", "_set_neg")
_OF_DYNAMO = ("set_eval_frame", "set_fullgraph_", "set_guard_", "set_skip_guard_", "set_code_exec_")  # what torch.compile does around calls


def changes_global_state(function: Any) -> bool:
    """Return whether a function sets something of torch that no part of the program stands for."""
    name = getattr(function, "__name__", "")
    return type(function) is BuiltinFunctionType and name.startswith(("set_", "_set_")) and not name.startswith((*_FOLLOWED, *_OF_DYNAMO))


def global_state(function: Any) -> EagerCall:
    """Return the error for a function that sets something which all of torch depends on."""
    return EagerCall(f"{function.__name__}() sets what all of torch depends on; call it outside the compiled function\n  called at {user_line()}")


class GlobalSettings:
    """The global settings of torch as they were when tracing began."""

    def __init__(self) -> None:
        self.before = {setting: setting() for setting in (*_SETTERS, *_READ)}
        self.autocast, self.casts = autocast_state(), any_autocast()
        self.modes = ThreadModes()
        self.entered: list[Any] = []  # the contexts of torch.inference_mode that are open
        self.cudnn: dict[tuple[Any, ...], tuple[Callable[[], Any], Callable[[Any], Any]]] = {}  # what reads and what sets each that is set
        self.switches: list[tuple[int, bool]] = []  # a number of lines of the program, and whether the next ones are in inference mode

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Restore the settings at the end, whatever happens inside."""
        try:
            yield
        finally:
            while self.entered:  # a refusal leaves contexts open
                self.entered.pop().__exit__(None, None, None)
            for setting, set_ in self._changed():
                set_(self.before[setting])
            self.modes.restore()

    @contextmanager
    def as_before(self) -> Iterator[None]:
        """Restore the settings while open, as they are around the program."""
        changed, modes = [(set_, setting(), self.before[setting]) for setting, set_ in self._changed()], ThreadModes()
        for set_, _, before in changed:
            set_(before)
        self.modes.restore()
        try:
            yield
        finally:
            modes.restore()
            for set_, inside, _ in changed:
                set_(inside)

    def _changed(self) -> list[tuple[Callable[[], Any], Callable[[Any], Any]]]:
        """Return what reads and what sets each setting that is not as it was when tracing began."""
        return [(setting, set_) for setting, set_ in (*_SETTERS.items(), *self.cudnn.values()) if setting() != self.before[setting]]

    def set_cudnn(self, tracker: Tracker, function: Callable, args: list[Any]) -> bool:
        """Guard a setting of cuDNN that the program is about to set, and restore it after tracing; return whether the function sets one."""
        accessors = cudnn_setting(function, args)
        if accessors is None:
            return False
        key = (function, *args[:-1])
        if key not in self.cudnn:
            self.cudnn[key] = accessors
            self.before[accessors[0]] = accessors[0]()
            tracker.guard("equal", tracker.sources.setting(accessors[0]), self.before[accessors[0]])
        return True

    def inference(self, args: list[Any], trace: Trace, *, entered: bool) -> None:
        """Enter or leave a context of torch.inference_mode."""
        context = args[0]
        if entered and not context.mode and self.before[torch.is_inference_mode_enabled]:
            raise EagerCall("it leaves the inference mode of its caller, in which the compiled program computes")
        if entered:
            context.__enter__()
            self.entered.append(context)
        else:
            self.entered.remove(context)
            context.__exit__(None, None, None)
        self.switches.append((len(trace.lines), torch.is_inference_mode_enabled()))

    def inference_builders(self, trace: Trace, results: Iterable[Proxy]) -> dict[Proxy, Callable[[Any], Any]]:
        """Return what makes inference tensors of the results that the program allocates in an inference mode of its own."""
        if not self.switches or self.before[torch.is_inference_mode_enabled]:  # of its caller's they are such anyway
            return {}
        allocated: set[Proxy] = set()
        bounds = [*[at for at, _ in self.switches[1:]], len(trace.lines)]
        for (start, inside), end in zip(self.switches, bounds, strict=True):
            allocated.update([p for line in trace.lines[start:end] if inside for p in line.writes])
        bases = view_bases(trace.lines)
        return {p: _inference_tensor for p in results if isinstance(p, TensorProxy) and root_of(p, bases) in allocated and not p.spec.requires_grad}

    def are_changed(self) -> bool:
        """Return whether the program has left a setting other than it was."""
        return bool(self._changed())

    def read(self, tracker: Tracker, function: Callable[[], Any], value: Any) -> None:
        """Guard a setting that the program reads, unless it has set it itself, with the value that it has around the program.

        The program may read another one, in a context of its own.
        """
        if any([function is setting for setting, _ in self._changed()]):
            return
        try:
            fixed = type(value) in tracker.atoms and function not in _UNGUARDED
        except TypeError:
            return
        if not fixed:
            return
        if function in self.before:
            value = self.before[function]
        else:
            with self.as_before():
                value = function()
        tracker.guard("equal", tracker.sources.setting(function), value)

    def finish(self, tracker: Tracker, read: set[str]) -> None:
        """Add guards on the settings that were read, and writes of those that are left changed."""
        for setting, set_ in self._changed():
            tracker.effects.call(set_, [setting()], {})
        if autocast_state() != self.autocast:
            raise Unsupported("the program leaves autocast in another state than at its start; use `with torch.autocast(...)` in it")
        self.guard(tracker, read)

    def guard(self, tracker: Tracker, read: set[str]) -> None:
        """Guard the settings that every program depends on, and those in `read`, as they were at the start."""
        guard = tracker.guard
        guard("equal", tracker.sources.setting(torch.is_grad_enabled), self.before[torch.is_grad_enabled])
        guard("equal", tracker.sources.setting(any_autocast), self.casts)
        if self.casts:
            guard("equal", tracker.sources.setting(autocast_state), self.autocast)
        for setting, name in _READ.items():
            if name in read:
                guard("equal", tracker.sources.setting(setting), self.before[setting])


def _inference_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """Return an inference tensor with the memory of another tensor."""
    with torch.inference_mode():
        return tensor.new_empty(0).set_(tensor)


_UNGUARDED = frozenset(
    {
        torch.is_grad_enabled,  # guarded in each program
        torch.initial_seed,
        torch.seed,
        torch.autocast_increment_nesting,  # a guard would call them, and they change the state of autocast
        torch.autocast_decrement_nesting,
        torch.clear_autocast_cache,
    }
)

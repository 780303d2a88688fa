"""torch's global state in a tracked run: what it was at the call is guarded, what the program leaves changed is changed at every call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from dovetail.errors import Unsupported
from dovetail.frontend.autocast import autocast_state
from dovetail.torch_internals import any_autocast, set_grad_enabled

if TYPE_CHECKING:
    from dovetail.frontend.interpreter.tracking.tracker import Tracker

_SETTERS: dict[Callable[[], Any], Callable[[Any], Any]] = {
    torch.is_grad_enabled: set_grad_enabled,
    torch.get_default_dtype: torch.set_default_dtype,
}
_READ = {
    torch.get_default_device: "default_device",
    torch.get_default_dtype: "default_dtype",
    torch.is_inference_mode_enabled: "inference_mode",
}


class Switches:
    """What torch's switches were when the program was called."""

    def __init__(self) -> None:
        self.before = {ask: ask() for ask in (*_SETTERS, *_READ)}
        self.autocast, self.casts = autocast_state(), any_autocast()
        self.entered: list[Any] = []  # the contexts of torch.inference_mode that are open

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Whatever happens inside, torch's switches are afterwards what they were."""
        try:
            yield
        finally:
            while self.entered:  # a refusal leaves no context by its end
                self.entered.pop().__exit__(None, None, None)
            for ask, set_ in _SETTERS.items():
                if ask() != self.before[ask]:
                    set_(self.before[ask])

    def inference(self, args: list[Any], *, entered: bool) -> None:
        """Enter or leave a context of torch.inference_mode."""
        context = args[0]
        if entered:
            context.__enter__()
            self.entered.append(context)
        else:
            self.entered.remove(context)
            context.__exit__(None, None, None)

    def asked(self, tracker: Tracker, function: Callable[[], Any], value: Any) -> None:
        """The program asks for something that is no matter of its arguments: what it was at the call is guarded."""
        if function in _SETTERS and function() != self.before[function]:
            return  # the program has set it itself
        try:
            fixed = type(value) in tracker.atoms and function not in _UNGUARDED
        except TypeError:
            return
        if fixed:
            tracker.guard("equal", tracker.sources.setting(function), value)

    def finish(self, tracker: Tracker, read: set[str]) -> None:
        """Guards on what was read, and writes of what is left changed."""
        for ask, set_ in _SETTERS.items():
            if ask() != self.before[ask]:
                tracker.effects.call(set_, [ask()], {})
        if autocast_state() != self.autocast:
            raise Unsupported("the program leaves autocast in another state than it found; use `with torch.autocast(...)` in it")
        guard = tracker.guard
        guard("equal", tracker.sources.setting(torch.is_grad_enabled), self.before[torch.is_grad_enabled])
        guard("equal", tracker.sources.setting(any_autocast), any_autocast())
        if any_autocast():
            guard("equal", tracker.sources.setting(autocast_state), self.autocast)
        for ask, name in _READ.items():
            if name in read:
                guard("equal", tracker.sources.setting(ask), self.before[ask])


_UNGUARDED = frozenset({torch.is_grad_enabled, torch.initial_seed, torch.seed})

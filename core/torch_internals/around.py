"""Modes that the caller of a function has switched on, under which torch's operations do more, or something else, than compute."""

from __future__ import annotations

from typing import Any

from torch.autograd import forward_ad

from dovetail.torch_internals.internal import Internal, resolve

_EAGER = "compiled calls under such a mode are not noticed, and ignore it"
FUNCTION_MODES = Internal(
    "torch._C._is_torch_function_mode_enabled",
    purpose="run a compiled function in eager mode under a TorchFunctionMode",
    fallback=_EAGER,
    probe=lambda enabled: type(enabled()) is bool,
)
DISPATCH_MODES = Internal(
    "torch._C._len_torch_dispatch_stack",
    purpose="run a compiled function in eager mode under a TorchDispatchMode, FakeTensorMode or make_fx",
    fallback=_EAGER,
    probe=lambda count: type(count()) is int,
)
FUNCTORCH_LEVEL = Internal(
    "torch._C._functorch.maybe_current_level",
    purpose="run a compiled function in eager mode inside a transform of torch.func",
    fallback=_EAGER,
    probe=lambda level: level() is None or type(level()) is int,
)
TRACING_STATE = Internal(
    "torch._C._get_tracing_state",
    purpose="run a compiled function in eager mode inside torch.jit.trace",
    fallback=_EAGER,
    probe=callable,
)
FORWARD_LEVEL = Internal(
    "torch.autograd.forward_ad._current_level",
    purpose="run a compiled function in eager mode inside torch.autograd.forward_ad.dual_level",
    fallback=_EAGER,
    probe=lambda level: type(level) is int,
)
PARSE_KEY = Internal(
    "torch._C._dispatch_key_parse",
    purpose="check in C that no transform and no torch.jit.trace is active",
    fallback="calls are checked in Python",
    probe=lambda parse: int(parse("CPU")) > 0,
)
PROFILER_ENABLED = Internal(
    "torch.autograd._profiler_enabled",
    purpose="run a function with torch.profiler.record_function inside in eager mode while a profiler records",
    fallback="its ranges are missing from profiles",
    probe=lambda enabled: type(enabled()) is bool,
)
SAVED_HOOKS = Internal(
    "torch._C._autograd._top_saved_tensors_default_hooks",
    purpose="run a compiled function in eager mode under torch.autograd.graph.saved_tensors_hooks that may change values",
    fallback="such hooks get what the compiled function saves, which is other tensors than in eager mode",
    probe=lambda top: top(True) is None or len(top(True)) == 2,
)
HOOKS_DISABLED = Internal(
    "torch._C._autograd._saved_tensors_hooks_get_disabled_error_message",
    purpose="set and restore what torch.autograd.graph.disable_saved_tensors_hooks sets in a program",
    fallback="a program that is refused inside of that context leaves hooks on saved tensors disabled",
    probe=lambda message: message() is None or type(message()) is str,
)
NO_LEVEL = -1  # what forward_ad calls it that no level is open
FORWARD_AD: dict[str, Any] = vars(forward_ad)
LEVEL = "_current_level"


def _no() -> bool:
    return False


def _nothing() -> None:
    return None


is_profiling = PROFILER_ENABLED.value or _no  # whether a profiler of torch's records what this thread does
_functions, _dispatches = FUNCTION_MODES.value or _no, DISPATCH_MODES.value or _no
transform_level: Any = FUNCTORCH_LEVEL.value or _nothing  # of the innermost transform of torch.func, None outside of all
_tracing = TRACING_STATE.value or _nothing
saved_hooks: Any = SAVED_HOOKS.value or (lambda ignores_tracing: None)  # the hooks on saved tensors that were set last
hooks_disabled = HOOKS_DISABLED.value or _nothing  # why hooks on saved tensors are disabled, None where they are not
_disable = resolve("torch._C._autograd._saved_tensors_hooks_disable")
_enable = resolve("torch._C._autograd._saved_tensors_hooks_enable")
_stack = resolve("torch.overrides._get_current_function_mode_stack")
DEVICES: Any = resolve("torch.utils._device.DeviceContext") or ()  # the mode of torch.set_default_device


def active_mode() -> str | None:
    """Return the name of a mode around the caller under which operations do not simply compute, None where there is none.

    The mode of torch.set_default_device is none: programs are guarded by the default device.
    """
    if not (_functions() or _dispatches() or FORWARD_AD.get(LEVEL, NO_LEVEL) != NO_LEVEL) and transform_level() is None and _tracing() is None:
        return None
    return _name_mode()


def _name_mode() -> str | None:
    if _dispatches():
        return "a TorchDispatchMode"
    if transform_level() is not None:
        return "a transform of torch.func"
    if _tracing() is not None:
        return "torch.jit.trace"
    if FORWARD_AD.get(LEVEL, NO_LEVEL) != NO_LEVEL:
        return "forward-mode differentiation"
    modes = _stack() if _stack is not None else [None]
    return "a TorchFunctionMode" if any([type(mode) is not DEVICES for mode in modes]) else None


def has_changing_hooks() -> bool:
    """Return whether the caller has hooks on saved tensors that may change their values: all but those of checkpoints and of torch.autograd.graph."""
    hooks = saved_hooks(True)
    return hooks is not None and getattr(hooks[0], "__module__", None) not in ("torch.utils.checkpoint", "torch.autograd.graph")


def disable_hooks(why: str | None) -> None:
    """Disable hooks on saved tensors with this message, or enable them where it is None."""
    if why is None:
        _enable()
    else:
        _disable(why)


def mode_keys() -> tuple[int, int] | None:
    """Return the numbers of the dispatch keys of torch.func's transforms and of torch.jit.trace, None where this torch does not say."""
    if PARSE_KEY.problem is not None:
        return None
    try:
        return tuple([int(PARSE_KEY.value(name)) for name in ("FuncTorchDynamicLayerFrontMode", "Tracer")])
    except RuntimeError:  # no key of that name
        return None

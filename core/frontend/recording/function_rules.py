"""What calls of single functions mean in a tracked run: `RULES` has those of torch and Python that are not interpreted, nor recorded as they are.

A rule is called with the tracker, the function, its arguments, and the frame that calls it.  It returns NULL where it does not apply: the call
then goes on as that of any other function.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.autograd import forward_ad

from dovetail.errors import EagerCall, Unsupported, require
from dovetail.frontend.autograd.custom_autograd import SEEN
from dovetail.frontend.autograd.functional_call import functional_call
from dovetail.frontend.autograd.functional_transforms import TRANSFORMS
from dovetail.frontend.autograd.traced_autograd import CALLS
from dovetail.frontend.class_lookup import NULL
from dovetail.frontend.classify_calls import OVERRIDE_CHECKS, is_tensor_class
from dovetail.frontend.interpreter.frame import Frame
from dovetail.frontend.recording import host_numbers
from dovetail.frontend.recording.array_hooks import is_traced_array
from dovetail.frontend.recording.attention_checks import CHECKS, can_use
from dovetail.frontend.recording.control_flow import CONTROL_FLOW
from dovetail.frontend.recording.data_writes import is_replaced
from dovetail.frontend.recording.generators import TRACED, guard_same
from dovetail.frontend.recording.metadata_writes import CHANGES, change_metadata
from dovetail.frontend.recording.storage_offsets import storage_offset
from dovetail.frontend.recording.torch_globals import global_state
from dovetail.frontend.subclasses import overriding, overriding_classes
from dovetail.langs.torch import LANGUAGE, TABLE, SymbolicInt
from dovetail.torch_internals import DETECT_IS_CAUSAL, FUNCTION_MODES, GET_STEP, SETS_DATA, asarray_keeps_gradients, is_profiling
from dovetail.trace import TensorProxy, is_proxy, leaves, user_line

Args, Kwargs = list[Any], dict[str, Any]
Rule = Callable[[Any, Any, Args, Kwargs, Frame | None], Any]

_MODULES = "/torch/nn/modules/"
_HINTS = {
    DETECT_IS_CAUSAL.value: lambda mask, is_causal=None, size=None: is_causal is True,  # ignore the caller's hint; inspect the mask
    GET_STEP.value: lambda x: x.double() if isinstance(x, TensorProxy) else x,  # Python computes with such a number in double precision
}
_OF_INPUTS = ("is_inference", "is_shared", "is_pinned")  # methods by which inputs say what they are


def untraced_transform() -> Unsupported:
    """Return the error for a part of torch.func that is not traced."""
    return Unsupported(
        "this part of torch.func is not traced; use torch.func.grad, vjp, jvp, vmap or what is made of these, or apply the transform outside "
        f"the compiled function\n  called at {user_line()}"
    )


def _by_autograd(tracker: Any, function: Any, args: Args, kwargs: Kwargs, frame: Frame | None) -> Any:
    """Call a function of autograd's, unless it gets no tensors."""
    if not any(map(is_tensor_class, map(type, leaves((args, kwargs))))):
        return NULL
    args, kwargs = list(map(tracker.plain, args)), {name: tracker.plain(x) for name, x in kwargs.items()}
    return CALLS[function](tracker.recorder.autograd, tracker, *args, **kwargs)


def _of_input(name: str) -> Rule:
    def rule(tracker: Any, function: Any, args: Args, kwargs: Kwargs, frame: Frame | None) -> Any:
        """Return what an input says of itself, guarded."""
        real = tracker.recorder.real.get(args[0]) if len(args) == 1 and not kwargs and is_proxy(args[0]) else None
        if real is None:
            return NULL
        state = getattr(real, name)()
        tracker.guard("equal", tracker.sources.call(tracker.sources.attr(tracker.source(args[0]), name)), state)
        return state

    return rule


def _sparse_coo_tensor(tracker: Any, function: Any, args: Args, kwargs: Kwargs, frame: Frame | None) -> Any:
    return tracker.recorder.of_wrappers().sparse.create(tracker, *args, **kwargs)


def _storage_offset(tracker: Any, function: Any, args: Args, kwargs: Kwargs, frame: Frame | None) -> Any:
    offset = storage_offset(tracker, args[0]) if is_proxy(args[0]) else None
    return NULL if offset is None else offset


def _change_metadata(tracker: Any, function: Any, args: Args, kwargs: Kwargs, frame: Frame | None) -> Any:
    return change_metadata(tracker.recorder, function, *args, **kwargs)


def _of_numbers(tracker: Any, function: Any, args: Args, kwargs: Kwargs, frame: Frame | None) -> Any:
    """Call a function of Python's with symbolic sizes as numbers of the program, where it computes with these."""
    environment = tracker.recorder.environment
    if not environment.computes or not any([type(x) is SymbolicInt for x in args]):
        return NULL
    return tracker.call(function, list(map(environment.number_of, args)), kwargs, frame)


def _divmod(tracker: Any, function: Any, args: Args, kwargs: Kwargs, frame: Frame | None) -> Any:
    if not any(map(is_traced_array, args)):
        return NULL
    parts = ((operator.floordiv, "floordiv"), (operator.mod, "mod"))
    return tuple([tracker.operator(op, *args, f"__{name}__", f"__r{name}__") for op, name in parts])


def _has_no_modes(tracker: Any, function: Any, args: Args, kwargs: Kwargs, frame: Frame | None) -> Any:
    """Return that no mode is on: a call under one runs in eager mode, and a backward is traced under one of ours."""
    return False


def _set_data(tracker: Any, function: Any, args: Args, kwargs: Kwargs, frame: Frame | None) -> Any:
    return False if is_replaced(tracker.recorder, *args) else NULL


def _has_overrides(tracker: Any, function: Any, args: Args, kwargs: Kwargs, frame: Frame | None) -> bool:
    """Return whether arguments override functions of torch: plain tensors do in modules alone, which then avoid paths without gradients."""
    for x in leaves(args):
        tracker.outside(x)  # guards its class
        tracker.guard_class(type(x), "__torch_function__")
    wrappers = tracker.recorder.wrappers
    if wrappers is not None and wrappers.overriding(args):
        return True
    return (frame is not None and _MODULES in frame.code.co_filename) or bool(overriding(args))


def _handle_overrides(tracker: Any, function: Any, args: Args, kwargs: Kwargs, frame: Frame | None) -> Any:
    if not (objects := overriding(args[1])):
        return NULL
    public, relevant, *args = args
    return tracker.recorder.call_overriding(tracker, public, objects, args, kwargs, frame, overriding_classes(relevant))


def _is_compiling(tracker: Any, function: Any, args: Args, kwargs: Kwargs, frame: Frame | None) -> bool:
    tracker.recorder.checks_compiling = True
    return tracker.recorder.is_compiling


def _functional_call(tracker: Any, function: Any, args: Args, kwargs: Kwargs, frame: Frame | None) -> Any:
    guard_same(tracker, function)
    return functional_call(tracker, *args, **kwargs)


def _functionalize(tracker: Any, function: Any, args: Args, kwargs: Kwargs, frame: Frame | None) -> Any:
    """Return the function as it is: any program is compiled without writes."""
    if kwargs.get("remove", "mutations") != "mutations":
        raise untraced_transform()
    guard_same(tracker, function)
    return args[0] if args else kwargs["func"]


def _control_flow(tracker: Any, function: Any, args: Args, kwargs: Kwargs, frame: Frame | None) -> Any:
    guard_same(tracker, function)
    return tracker.call_function(CONTROL_FLOW[function], args, kwargs)


def _inference_mode(tracker: Any, function: Any, args: Args, kwargs: Kwargs, frame: Frame | None, *, entered: bool) -> Any:
    recorder = tracker.recorder
    recorder.environment.read.add("inference_mode")
    recorder.environment.enters_inference = True
    return recorder.settings.inference(args, recorder.trace, entered=entered)


def _default_device(tracker: Any, function: Any, args: Args, kwargs: Kwargs, frame: Frame | None) -> torch.device:
    tracker.recorder.environment.read.add("default_device")
    return torch.get_default_device()


def _set_default_device(tracker: Any, function: Any, args: Args, kwargs: Kwargs, frame: Frame | None) -> None:
    raise global_state(function)


def _not_traced(tracker: Any, function: Any, args: Args, kwargs: Kwargs, frame: Frame | None) -> None:
    raise EagerCall(f"{function.__module__}.{function.__name__} is not traced; call it outside the compiled function\n  called at {user_line()}")


def _nested_tensor(tracker: Any, function: Any, args: Args, kwargs: Kwargs, frame: Frame | None) -> Any:
    return tracker.call_function(function, args, kwargs) if kwargs.get("layout") is torch.jagged else NULL


def _asarray(tracker: Any, function: Any, args: Args, kwargs: Kwargs, frame: Frame | None) -> Any:
    """Trace torch.asarray(x, requires_grad=...) of a tensor, which is set on x itself where this is the result; a copy keeps its history."""
    x, flag = args[0] if args else kwargs.get("obj"), kwargs.get("requires_grad")
    if not isinstance(x, TensorProxy) or is_traced_array(x) or type(flag) not in (bool, type(None)):
        return NULL
    autograd, copy = tracker.recorder.autograd, kwargs.get("copy")
    if flag is None:
        flag = asarray_keeps_gradients() and autograd.requires_grad(tracker, x)
    named = {name: kwargs[name] for name in ("dtype", "device") if kwargs.get(name) is not None}
    result = LANGUAGE["to"](x, **named) if named else x
    require(copy is not False or result is x, "can't alias tensor of another dtype or on another device", error=ValueError)
    result = LANGUAGE["clone"](x) if copy and result is x else result
    if flag == autograd.requires_grad(tracker, result):
        return result
    if result is x and (flag or autograd.is_leaf(tracker, x)):
        return tracker.call(torch.Tensor.requires_grad_, [x, flag], {}, frame)
    return autograd.create_leaf(result) if flag else LANGUAGE["detach"](result)


def _compile(tracker: Any, function: Any, args: Args, kwargs: Kwargs, frame: Frame | None) -> Any:
    """Return what torch.compile would compile, which is a part of this program; a decorator that does so where it gets none."""
    guard_same(tracker, function)
    model = args[0] if args else kwargs.get("model")
    return _unchanged if model is None else model


def _unchanged(model: Any) -> Any:
    """Return a model as it is, as the decorator that torch.compile(backend=...) returns."""
    return model


def _profiled_range(tracker: Any, function: Any, args: Args, kwargs: Kwargs, frame: Frame | None, *, entered: bool) -> Any:
    """Ignore a named range of a profile; while a profiler records, the call runs in eager mode."""
    if is_profiling():
        raise EagerCall("a profiler records the ranges of torch.profiler.record_function")
    tracker.guard("equal", tracker.sources.setting(is_profiling), False)
    return args[0] if entered else None


def _recorded_as(traced: Callable) -> Rule:
    """Return the rule that calls `traced`, of this package, in the place of a function."""

    def call(tracker: Any, function: Any, args: Args, kwargs: Kwargs, frame: Frame | None) -> Any:
        guard_same(tracker, function)
        return tracker.recorder.call_ours(tracker, traced, args, kwargs)

    return call


def _context(cls: type, rule: Callable) -> dict[Any, Rule]:
    """Return the rules for entering and leaving a context of a class in Python."""
    return {cls.__enter__: partial(rule, entered=True), cls.__exit__: partial(rule, entered=False)}


RULES: dict[Any, Rule] = {
    **dict.fromkeys(CALLS, _by_autograd),
    **dict.fromkeys(CHANGES, _change_metadata),
    **dict.fromkeys(CHECKS, can_use),
    **dict.fromkeys(CONTROL_FLOW, _control_flow),
    **dict.fromkeys(OVERRIDE_CHECKS, _has_overrides),
    **{function: _of_input(name) for name in _OF_INPUTS for function in (getattr(torch.Tensor, name), TABLE[getattr(torch.Tensor, name)])},
    torch.is_inference: _of_input("is_inference"),
    **dict.fromkeys(host_numbers.FUNCTIONS, _of_numbers),
    **{function: _recorded_as(traced) for function, traced in (TRANSFORMS | SEEN | _HINTS | TRACED).items()},
    **_context(torch.inference_mode, _inference_mode),
    **_context(torch.profiler.record_function, _profiled_range),
    FUNCTION_MODES.value: _has_no_modes,
    SETS_DATA.value: _set_data,
    divmod: _divmod,
    **dict.fromkeys((torch.seed, torch.initial_seed, torch.jit.fork, forward_ad.enter_dual_level, forward_ad.make_dual), _not_traced),
    torch.Tensor.storage_offset: _storage_offset,
    torch.asarray: _asarray,
    torch.compile: _compile,
    torch.compiler.is_compiling: _is_compiling,
    torch.func.functional_call: _functional_call,
    torch.func.functionalize: _functionalize,
    torch.get_default_device: _default_device,
    torch.nested.nested_tensor: _nested_tensor,
    torch.overrides.handle_torch_function: _handle_overrides,
    torch.set_default_device: _set_default_device,
    torch.sparse_coo_tensor: _sparse_coo_tensor,
}

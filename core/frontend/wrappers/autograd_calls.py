"""Autograd as a program uses it on wrappers while it is traced: backward(), hooks, requires_grad_(), and gradients that arrive at wrappers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from dovetail.errors import EagerCall, Unsupported, require
from dovetail.frontend.class_lookup import NULL
from dovetail.frontend.subclasses import is_wrapper
from dovetail.frontend.wrappers.histories import Histories, leaves_of
from dovetail.torch_internals import no_modes, torch_function
from dovetail.trace import is_proxy, user_line

if TYPE_CHECKING:
    from dovetail.frontend.interpreter.tracking.tracker import Tracker


def backward(
    histories: Histories,
    tracker: Tracker,
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: Any = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> None:
    """Trace torch.autograd.backward of wrappers, and of plain tensors beside them."""
    if create_graph or inputs is not None:
        raise Unsupported(
            "backward() of a tensor subclass with create_graph or inputs is not traced; leave them out, or call it outside\n"
            f"  called at {user_line()}"
        )
    roots = [tensors] if _is_tensor(tensors) else list(tensors)
    gs = [grad_tensors] if grad_tensors is None or _is_tensor(grad_tensors) else list(grad_tensors)
    plain: list[tuple[Any, Any]] = []
    wrappers, cotangents = [], []
    for x, g in zip(roots, gs * len(roots) if len(gs) == 1 else gs, strict=True):
        if is_proxy(x):
            plain.append((x, g))
            continue
        require(histories.wrappers.requires_grad(x), "element 0 of tensors does not require grad and does not have a grad_fn", error=RuntimeError)
        require(g is not None or x.numel() == 1, "grad can be implicitly created only for scalar outputs", error=RuntimeError)
        wrappers.append(histories.stand_ins.closed(x))
        cotangents.append(tracker.call(torch.ones_like, [x], {}, None) if g is None else g)
    leaves = leaves_of(wrappers)
    with torch.no_grad():
        for leaf, g in zip(leaves, histories.pulled(tracker, wrappers, leaves, cotangents), strict=True):
            if g is not None:
                _arrive(histories, tracker, histories.stand_ins.opened(leaf), g, plain)
    if plain:
        autograd = histories.recorder.autograd
        autograd.backward(tracker, [x for x, _ in plain], [g for _, g in plain], retain_graph)
    histories.recorder.autograd.used = True


def _is_tensor(x: Any) -> bool:
    return is_proxy(x) or isinstance(x, torch.Tensor)


def _arrive(histories: Histories, tracker: Tracker, value: Any, g: Any, plain: list[tuple[Any, Any]]) -> None:
    """Let a gradient arrive at a wrapper or a plain tensor, or go on behind the latter."""
    if is_proxy(value) and is_proxy(g):
        plain.append((value, g))
        return
    if is_proxy(value) and value not in histories.recorder.real:
        raise Unsupported(
            f"the gradient of a plain tensor that the function computes is a {type(g).__name__}, which would flow through plain operations; make a "
            f"{type(g).__name__} of the tensor first\n  called at {user_line()}"
        )
    accumulate(histories, tracker, value, g)


def accumulate(histories: Histories, tracker: Tracker, value: Any, g: Any) -> None:
    """Add a gradient to the `.grad` of an argument."""
    source = tracker.source(value)
    real = histories.recorder.real.get(value) if is_proxy(value) else value
    if source is not None:
        if not real.is_leaf:
            raise Unsupported(
                f"backward() inside a compiled function reaches a {type(real).__name__} that was computed outside of it, and would go on there; "
                f"detach it, or call backward() outside\n  called at {user_line()}"
            )
        tracker.guard("equal", tracker.sources.attr(source, "is_leaf"), True)
    known = tracker.load_attr(value, "grad")
    if known is None:
        set_grad(histories, tracker, value, g)
    else:
        with torch.no_grad():
            tracker.call(torch.Tensor.add_, [known, g], {}, None)


def set_grad(histories: Histories, tracker: Tracker, value: Any, g: Any) -> None:
    """Set the `.grad` of a tensor."""
    if is_proxy(value):
        histories.recorder.autograd.set_grad(tracker, value, g)
    elif tracker.source(value) is not None:
        tracker.effects.set(value, "grad", g)
    else:
        histories.grads[id(value)] = g


def collect(histories: Histories, tracker: Tracker) -> None:
    """Let the gradients of inputs that stand for parts of gradients, which a backward() has computed, arrive at their arguments."""
    grads = histories.recorder.autograd.grads
    for arrival, value, inputs in list(histories.arrivals.values()):
        parts = [grads.pop(p, None) for p in inputs]
        if any([g is not None for g in parts]):
            zeros = [torch.zeros(tuple(p.spec.shape), dtype=p.dtype, device=p.device) for p in inputs]
            computed = [z if g is None else g for z, g in zip(zeros, parts, strict=True)]
            accumulate(histories, tracker, value, arrival.build(value, computed, histories.wrappers.maker(tracker)))


def requires_grad_(histories: Histories, tracker: Tracker, wrapper: torch.Tensor, requires_grad: bool = True) -> torch.Tensor:
    """Trace wrapper.requires_grad_()."""
    stand_in = histories.stand_ins.closed(wrapper)
    if stand_in.requires_grad is requires_grad:
        return wrapper
    if tracker.source(wrapper) is not None:
        raise Unsupported(
            f"requires_grad_() of a {type(wrapper).__name__} from outside the compiled function is not traced; call it outside\n"
            f"  called at {user_line()}"
        )
    stand_in.requires_grad_(requires_grad)
    return wrapper


def register_hook(histories: Histories, tracker: Tracker, wrapper: torch.Tensor, hook: Any) -> Any:
    """Trace wrapper.register_hook(hook), for a wrapper of the program."""
    if tracker.source(wrapper) is not None:
        raise EagerCall(
            f"a hook is registered on a {type(wrapper).__name__} from outside the compiled function; register it outside\n  called at {user_line()}"
        )

    def run(g: Any) -> Any:
        with no_modes(), torch_function(), torch.no_grad():
            return histories.stand_ins.closed(tracker.call(hook, [histories.stand_ins.opened(g)], {}, None))

    return histories.stand_ins.closed(wrapper).register_hook(run)


def _untraced(name: str, histories: Histories, tracker: Tracker, *args: Any, **kwargs: Any) -> Any:
    """Leave what is not traced to eager mode."""
    kinds = [type(x).__name__ for x in args if is_wrapper(x)]
    raise EagerCall(f"{name} of a {kinds[0] if kinds else 'tensor subclass'} is called at {user_line()}, and it is not traced")


CALLS: dict[Any, Callable[..., Any]] = {
    torch.autograd.backward: backward,
    torch.Tensor.backward: backward,
    torch.Tensor.requires_grad_: requires_grad_,
    torch.Tensor.register_hook: register_hook,
    torch.autograd.grad: partial(_untraced, "torch.autograd.grad"),
    torch.Tensor.retain_grad: partial(_untraced, "retain_grad"),
    torch.Tensor.register_post_accumulate_grad_hook: partial(_untraced, "register_post_accumulate_grad_hook"),
}


def traced(histories: Histories, tracker: Tracker, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Call a function of autograd that gets wrappers; NULL for another function."""
    try:
        call = CALLS.get(function)
    except TypeError:  # it cannot be hashed
        return NULL
    return NULL if call is None else call(histories, tracker, *args, **kwargs)

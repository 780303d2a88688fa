"""Leaves of the autograd graph that a program creates, by `requires_grad_()` or as torch.nn.Parameter, what is computed from them, and hooks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from dovetail import prims
from dovetail.errors import EagerCall, Unsupported, require
from dovetail.langs.torch import LANGUAGE, symbol_for
from dovetail.prims import Symbol
from dovetail.torch_internals import unreached_leaf
from dovetail.trace import BoundSymbol, Proxy, TensorProxy, Trace, prims_of, proxies, requires_grad, substitute, user_line
from dovetail.trace.aliases import root_of, tracked_views, view_bases

if TYPE_CHECKING:
    from dovetail.frontend.autograd.traced_autograd import TracedAutograd

_SEVERAL_VIEWS = frozenset(  # those that PyTorch writes safely are not here
    map(symbol_for, ("torch.unbind", "torch.split", "torch.Tensor.split", "torch.split_with_sizes", "torch.chunk"))
)
_SEVERAL = (
    "This view is the output of a function that returns multiple views. Such functions do not allow the output views to be modified inplace. "
    "You should replace the inplace operation by an out-of-place one."
)
_ONE_OF_SEVERAL = f"a tensor is a view and is being modified inplace. {_SEVERAL}"
_STALE = f"an output of {{}} is a view and its base or another view of its base has been modified inplace. {_SEVERAL}"
_NO_HISTORY = "detach eq ne lt le gt ge isnan isfinite isinf"  # operations that may read a part after a write: no gradient flows to what they return
_WITHOUT_HISTORY = frozenset([symbol_for(f"torch.{name}") for name in _NO_HISTORY.split()])


def create_parameter(autograd: TracedAutograd, cls: type, data: Any, needs_grad: bool = False) -> TensorProxy:
    """Trace torch.nn.Parameter(data, needs_grad): a leaf that shares the memory of `data`."""
    if cls is not torch.nn.Parameter:
        raise Unsupported(f"a {cls.__name__} created inside a compiled function is not traced; create it outside\n  called at {user_line()}")
    parameter = LANGUAGE["detach"](data)
    inexact = parameter.spec.dtype.inexact
    require(inexact or not needs_grad, "Only Tensors of floating point and complex dtype can require gradients", error=RuntimeError)
    autograd.parameters[parameter] = None
    environment = autograd.recorder.environment
    environment.parted, environment.leaving = environment.parted | environment.leaving, set()
    return autograd.require_gradient(parameter) if needs_grad else parameter


def check_no_leaf(p: Proxy, is_leaf: Callable[[Proxy], bool], programs: Sequence[Sequence[BoundSymbol]]) -> None:
    """Raise where `p`, which is to be written, is a leaf that requires a gradient, or a view of one by a line of `programs`, or one of several."""
    root = p
    for line in (line for lines in reversed(programs) for line in reversed(lines)):
        if any([root is result for result in line.writes]):
            base = root_of(root, tracked_views([line]))
            if base is root:
                break
            require(line.symbol not in _SEVERAL_VIEWS or not requires_grad(base), _ONE_OF_SEVERAL, error=RuntimeError)
            root = base
    which = "a leaf" if root is p else "a view of a leaf"
    require(not is_leaf(root), "{} Variable that requires grad is being used in an in-place operation.", which, error=RuntimeError)


class Parts:
    """The results of functions that return several views, which may not be differentiated once their memory was written."""

    def __init__(self) -> None:
        self.exist = False
        self.stale: dict[Proxy, Symbol] = {}  # a part, or a view of it, in memory that was written since -> what returned the part

    def note_write(self, p: Proxy, programs: Sequence[Sequence[BoundSymbol]]) -> None:
        """Remember which parts are stale after a write into `p` by the last of `programs`."""
        lines = [line for program in programs for line in program]
        bases, functions = tracked_views(lines), {p: line.symbol for line in lines if line.symbol in _SEVERAL_VIEWS for p in line.writes}
        root = root_of(p, bases)
        for view in bases:
            if root_of(view, bases) is root:
                part = view
                while part in bases and part not in functions:
                    part = bases[part]
                if part in functions:
                    self.stale[view] = functions[part]

    def check_read(self, symbol: Symbol, arguments: Any) -> None:
        """Raise eager mode's error where an operation with a history reads a part that is stale."""
        self.exist = self.exist or symbol in _SEVERAL_VIEWS
        if self.stale and torch.is_grad_enabled() and symbol not in _WITHOUT_HISTORY:
            stale = next((p for p in proxies(arguments) if p in self.stale and requires_grad(p)), None)
            require(stale is None, _STALE, stale and self.stale[stale].name, error=RuntimeError)


def detach_earlier_reads(recorder: Any, p: Proxy) -> bool:
    """Let the lines recorded so far read `p` detached, so that no gradient comes through them; return whether that is possible.

    It is not after a write to `p`, whose gradient would be that of the value before, nor where the program holds a view of `p` with its
    history, which may become a result, nor where a segment of the program has run.
    """
    trace: Trace = recorder.trace
    first = next((i for i, line in enumerate(trace.lines) if any([read is p for read in line.reads])), None)
    if first is None:
        return True
    session = recorder.environment.session
    if session is not None and session.visited:
        return False
    bases, tracked = view_bases(trace.lines), tracked_views(trace.lines)
    written = any([root_of(inner.args[0], bases) is p for inner in prims_of(trace.lines) if inner.symbol is prims.copy_])
    viewed = any([root_of(view, tracked) is p for view in tracked])
    if written or viewed or trace.depth or trace.enclosing:
        return False
    count = len(trace.lines)
    earlier = LANGUAGE["detach"](p)
    before, detached = trace.lines[:count], trace.lines[count:]
    trace.lines[:] = [*before[:first], *detached, *[substitute(line, {p: earlier}) for line in before[first:]]]
    return True


def is_written(trace: Trace, p: Proxy) -> bool:
    """Return whether a program has written into the memory of a tensor that it has created."""
    if not any([line.mutates for line in trace.lines]):
        return False
    bases = view_bases(trace.lines)
    root = root_of(p, bases)
    created = any([root is result for line in trace.lines for result in line.writes])
    return created and _writes_into(trace.lines, root, bases)


def is_view_of_written(trace: Trace, p: Proxy) -> bool:
    """Return whether `p` is a view, and a program has written into its memory since it made it."""
    bases = view_bases(trace.lines)
    start = next((i for i, line in enumerate(trace.lines) if any([p is result for result in line.writes])), None)
    return p in bases and start is not None and _writes_into(trace.lines[start + 1 :], root_of(p, bases), bases)


def is_base_of_written(trace: Trace, p: Proxy) -> bool:
    """Return whether a program has written into the memory of `p`, and made views of it, by which it may have done so."""
    bases = view_bases(trace.lines)
    root = root_of(p, bases)
    viewed = any([q is not p and q in bases and root_of(q, bases) is root for line in trace.lines for q in line.writes])
    return viewed and _writes_into(trace.lines, root, bases)


def _writes_into(lines: Sequence[BoundSymbol], root: Proxy, bases: Mapping[Proxy, Proxy]) -> bool:
    return any([root_of(inner.args[0], bases) is root for inner in prims_of(lines) if inner.symbol is prims.copy_])


def computed_from(trace: Trace, leaves: Collection[Proxy], derived: Mapping[Proxy, Sequence[Proxy]]) -> set[Proxy]:
    """Return the values with a history that leads to one of `leaves`, these included; in doubt, one value more.

    `derived` has values that lines of the trace do not lead to, each with what it was computed from.
    """
    if not leaves:
        return set()
    bases, reached, count = tracked_views(trace.lines), set(leaves), 0
    while count < len(reached):
        count = len(reached)
        _follow(trace, bases, reached)
        reached.update([p for p, reads in derived.items() if not reached.isdisjoint(reads)] if derived else ())
    return reached


def _follow(trace: Trace, bases: dict[Proxy, Proxy], reached: set[Proxy]) -> None:
    """Add to values with a history what the lines of a trace compute from them."""
    for line in trace.lines:
        if reached.isdisjoint(line.reads):
            continue
        reached.update(filter(requires_grad, line.writes))
        if line.mutates:  # a write with grad mode off goes to a detached view
            roots = {root_of(inner.args[0], bases) for inner in prims_of([line]) if inner.symbol is prims.copy_}
            reached.update([p for p in {*bases, *roots} if requires_grad(p) and root_of(p, bases) in roots])


def untracked_views(trace: Trace, tensors: Iterable[Proxy]) -> set[Proxy]:
    """Return those tensors that are views, made with grad mode off, of one that requires a gradient: they say that they require one themselves."""
    candidates = [p for p in tensors if isinstance(p, TensorProxy) and p.spec.dtype.inexact and not requires_grad(p)]
    bases, untracked = tracked_views(trace.lines) if candidates else {}, set()
    for p in candidates:
        base = p
        while base in bases and not requires_grad(base):
            base = bases[base]
        if requires_grad(base):
            untracked.add(p)
    return untracked


def result_builders(trace: Trace, autograd: TracedAutograd, results: dict[Proxy, int]) -> dict[Proxy, Callable[[Any], Any]]:
    """Return what makes leaves and their dependents of those results of the computation that are such.

    Raises EagerCall where a leaf is a result beside what is computed from it: its gradient would not arrive.
    """
    freed = computed_from(trace, autograd.spent, autograd.derived)
    returned = [p for p in results if p in autograd.leaves]
    dependent = [p for p in results if p not in autograd.leaves and requires_grad(p) and p not in freed]
    if returned and not computed_from(trace, returned, autograd.derived).isdisjoint(dependent):
        raise EagerCall(
            "the function creates a parameter, or another leaf that requires a gradient, and returns it with what is computed from it: the gradient "
            "would not reach it; create it outside, return it alone, or return .detach() of the rest"
        )
    if any([autograd.grads.get(p) is not None for p in returned]):
        raise EagerCall("the function creates a parameter, computes its .grad and returns it, which would lose the .grad; return the .grad, too")
    reached = computed_from(trace, autograd.leaves, autograd.derived)
    builders: dict[Proxy, Callable[[Any], Any]] = {p: _attached for p in dependent if p in reached}
    for p in results:
        if p in autograd.leaves or p in autograd.parameters:
            builders[p] = _leaf(p in autograd.parameters, p in autograd.leaves and p not in autograd.frozen)
    return builders


def check_hooks_left(trace: Trace, autograd: TracedAutograd, results: Collection[Proxy]) -> None:
    """Raise EagerCall where a backward() outside would run hooks of the program, or keep the gradient of a value that is no leaf."""
    freed = computed_from(trace, autograd.spent, autograd.derived)
    followed = {p for p in results if requires_grad(p) and p not in freed}
    if not computed_from(trace, {*autograd.hooked(), *autograd.retained} - freed, autograd.derived).isdisjoint(followed):
        raise EagerCall(
            "the function registers a hook on the gradient of a value that it computes, or calls retain_grad() of it, which a backward() outside of "
            "the compiled function would follow; call backward() inside, or register it outside"
        )


def _leaf(is_parameter: bool, needs_grad: bool) -> Callable[[torch.Tensor], torch.Tensor]:
    if is_parameter:
        return lambda x: torch.nn.Parameter(x.detach(), needs_grad)
    return lambda x: x.detach().requires_grad_(needs_grad)


def _attached(x: torch.Tensor) -> torch.Tensor:
    return x if x.requires_grad else unreached_leaf(x)


def untracked_builders(trace: Trace, results: Iterable[Proxy]) -> dict[Proxy, Callable[[Any], Any]]:
    """Return what makes leaves of those results that are views made with grad mode off."""
    return dict.fromkeys(untracked_views(trace, results), _leaf(is_parameter=False, needs_grad=True))

"""What lines compute by definition: run by the reference, in twice the precision, and with other rounding.

The reference are the executors of last resort that run single operations.  `exact` runs the prims of lines on inputs of twice the
precision.  `rounded` does the same and puts an error behind each prim, as large as an executor may make there: a few units in the last
place of what the program would hold, and for sums what adding up in another order brings.  So a result that differs because an argmax, a
comparison or a `floor` lies on its edge is distinguished from a wrong one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from dovetail import prims
from dovetail.dtypes import DType
from dovetail.errors import DovetailError
from dovetail.executors.contract.declaration import is_claim
from dovetail.executors.contract.executor import Executor, FusionExecutor, OperatorExecutor
from dovetail.executors.discovery.plugin_errors import ask
from dovetail.executors.dispatching.check_contract import paired
from dovetail.executors.dispatching.dispatch import dispatch
from dovetail.executors.ordering.resolve_order import Priority
from dovetail.langs.torch import TO_TORCH
from dovetail.prims import Symbol, Tag
from dovetail.prims.sizes import Size, hint_of, relations_in
from dovetail.trace import BoundSymbol, NumberProxy, Proxy, TensorProxy, Trace, is_proxy, leaves, prims_of, release, sizes, to_callable, tree_map
from dovetail.trace.aliases import root_of, view_bases
from dovetail.trace.ir import draws as draws
from dovetail.trace.passes.dce import needed
from dovetail.trace.printing import is_region as is_region
from dovetail.trace.stepping import run_steps

WIDE = {torch.float16: torch.float64, torch.bfloat16: torch.float64, torch.float32: torch.float64, torch.complex64: torch.complex128}
BY_TORCH = {theirs: ours for ours, theirs in TO_TORCH.items()}
WIDER = {ours: BY_TORCH[WIDE[theirs]] for ours, theirs in TO_TORCH.items() if theirs in WIDE}
UNITS = 2.0  # of a value's last place, by which an executor may round it otherwise
SUMS = {  # linear in their inputs, and as inexact as their order of adding up makes them
    *(prims.sum, prims.cumsum, prims.matmul, prims.linear, prims.convolution, prims.convolution_input_grad),
    *(prims.convolution_weight_grad, prims.scatter_add, prims.index_add, prims.embedding_backward, prims.fold_add, prims.coo_mm),
}
BITWISE = {prims.bitcast, prims.nextafter, prims.frexp}  # mean something else in another precision
SAME = {Tag.VIEW, Tag.CREATION}  # compute nothing


def referees(executors: Iterable[Executor]) -> Priority:
    """Return the executors that are right by definition: those of last resort that run single operations."""
    return Priority([ex for ex in executors if ex.last_resort and not isinstance(ex, FusionExecutor)])


def parts(line: BoundSymbol) -> tuple[BoundSymbol, ...]:
    """Return the operations that a line stands for."""
    return line.body if is_region(line) else (line,)


def has_state(line: BoundSymbol) -> bool:
    """Return whether what runs `line` keeps something between calls."""
    return getattr(line.implementation, "stateful", None) is not None


def program(
    line: BoundSymbol, inputs: Sequence[Proxy], executors: Priority, constants: Mapping[Proxy, Any] | None = None
) -> Callable[..., list[Any]]:
    """Return a function of `inputs` that computes what `line` writes, by `executors`; it may read `constants` besides."""
    hidden = {p: x for p, x in (constants or {}).items() if p not in set(inputs)}
    alone = Trace("reference", inputs=list(inputs), outputs=tuple(line.writes), constants=hidden)
    written = [inner for part in parts(line) for inner in (part.body if is_unwritten(part) and part.body else (part,))]
    alone.lines = [part.replace(implementation=None) for part in written]
    alone.relations = relations_in([(inner.args, inner.kwargs) for part in written for inner in (part, *prims_of([part]))])
    placed = release(sizes(_placed(alone, executors) or dispatch(alone, executors)))
    run = interpreted(placed)
    return lambda *values: list(run(*values))


def _placed(trace: Trace, executors: Priority) -> Trace | None:
    """Return what `dispatch` returns, in less time, where each line is run by a function or by its decomposition; None elsewhere."""
    new = trace.derive("dispatch")
    waiting = list(reversed(trace.lines))
    while waiting:
        line = waiting.pop()
        ex = next((ex for ex in executors.for_symbol(line.symbol) if is_claim(ask(ex, line, ex.verdict, line.where))), None)
        if ex is None and line.body:
            waiting += reversed(line.body)
            continue
        implementation = ex.implementation(line.symbol) if isinstance(ex, OperatorExecutor) and line.symbol.python_rule is None else None
        if implementation is None or implementation.execution_transform is not None:
            return None
        new.lines.append(line.replace(implementation=ex.choose_variant(implementation, line)))
    return new


def interpreted(trace: Trace) -> Callable[..., Any]:
    """Return a function that runs the lines of a program one after the other, or the compiled program where one of them is more than a call.

    The programs of trials and references run a few times: printing and compiling their text takes longer than that.
    """
    calls = [line for line in trace.lines if line.symbol is not prims.delete]
    if trace.relations is not None or any([line.implementation is None or line.implementation.fn is None for line in calls]):
        return to_callable(trace)
    steps = [_step(line) for line in trace.lines]
    return lambda *values: run_steps(trace, steps, values)


def _step(line: BoundSymbol) -> Callable[[dict[Proxy, Any]], None]:
    """Return a function that runs one line on the values in `env`, and puts its results there."""
    if line.symbol is prims.delete:

        def delete(env: dict[Proxy, Any]) -> None:
            for p in line.args:
                del env[p]

        return delete
    fn, args, kwargs, out = line.implementation.fn, line.args, line.kwargs, line.out
    spots = [i for i, x in enumerate(args) if is_proxy(x)]
    flat = sum(map(is_proxy, leaves((args, kwargs)))) == len(spots)  # no value stands in a list, or behind a keyword

    def step(env: dict[Proxy, Any]) -> None:
        if flat:
            values, named = list(args), kwargs
            for i in spots:
                values[i] = env[args[i]]
        else:
            values, named = tree_map(lambda leaf: env[leaf] if is_proxy(leaf) else leaf, (args, kwargs))
        result = fn(*values, **named)
        if is_proxy(out):
            env[out] = result
        else:
            env.update([(p, x) for p, x in paired(out, result) if is_proxy(p)])

    return step


def exact(line: BoundSymbol, inputs: dict[Proxy, Any], executors: Priority, wanted: Collection[Proxy] | None = None) -> list[Any] | None:
    """Compute what `line` writes in twice the precision; None where there is no such thing, and for results that are not `wanted`."""
    return _wide(line, inputs, executors, None, wanted)


def rounded(
    line: BoundSymbol, inputs: dict[Proxy, Any], executors: Priority, samples: int, wanted: Collection[Proxy] | None = None
) -> Iterator[list[Any]]:
    """Compute `exact` up to so many times, each with other errors of rounding."""
    wide_results = (_wide(line, inputs, executors, torch.Generator().manual_seed(seed), wanted) for seed in range(samples))
    return (each for each in wide_results if each is not None)


def _wide(
    line: BoundSymbol, inputs: dict[Proxy, Any], executors: Priority, noise: torch.Generator | None, wanted: Collection[Proxy] | None
) -> list[Any] | None:
    env = {p: widened(x.detach()) if isinstance(x, Tensor) else x for p, x in inputs.items()}
    env |= sizes_of(inputs)
    lines = needed(list(prims_of(parts(line))), tuple(line.writes if wanted is None else wanted))
    try:
        with torch.no_grad():
            _Wide(env, executors, noise).run(lines)
        return [env.get(p) for p in line.writes]
    except Exception:  # an operation has no such form, or there is no memory for it
        return None


def sizes_of(inputs: Mapping[Proxy, Any]) -> dict[str, int]:
    """Return the values of the symbols that are sizes of tensors, by name."""
    shapes = [(p.spec.shape, x.shape) for p, x in inputs.items() if isinstance(x, Tensor) and isinstance(p, TensorProxy)]
    pairs = [(str(n), m) for shape, now in shapes if len(shape) == len(now) for n, m in zip(shape, now, strict=True) if type(n) is Size]
    return dict(pairs) | {p.name: x for p, x in inputs.items() if isinstance(p, NumberProxy)}


def widened(x: Any) -> Any:
    """Convert a tensor to twice the precision."""
    return x.to(WIDE[x.dtype]) if isinstance(x, Tensor) and x.dtype in WIDE else x


class _Wide:
    """Runs lines prim by prim on values of twice the precision; with `noise`, errors follow each prim."""

    def __init__(self, env: dict[Proxy, Any], executors: Priority, noise: torch.Generator | None):
        self.env, self.noise = env, noise
        self.executors = [ex for ex in executors if isinstance(ex, OperatorExecutor)]

    def run(self, lines: Iterable[BoundSymbol]) -> None:
        for line in lines:
            self._prim(line)

    def _prim(self, line: BoundSymbol) -> None:
        if line.symbol in BITWISE or line.symbol.effects:
            raise DovetailError(f"{line.symbol} has no form in twice the precision")
        fn = self._function(line.symbol)
        args, kwargs = tree_map(self._value, (line.args, line.kwargs))
        floats = any([isinstance(self.env.get(p), Tensor) and self.env[p].dtype in _WIDE_TYPES for p in line.reads])
        if floats:
            args, kwargs = tree_map(_wider, (args, kwargs))
        result = fn(*args, **kwargs)
        for p, x in paired(line.out, result):
            if is_proxy(p):
                self.env[p] = self._erring(line, fn, args, kwargs, p, widened(x))

    def _value(self, leaf: Any) -> Any:
        if type(leaf) is Size:
            return leaf.evaluate(self.env)
        return self.env[leaf] if is_proxy(leaf) else leaf

    def _function(self, symbol: Symbol) -> Callable[..., Any]:
        candidates = (ex.implementation(symbol) for ex in self.executors)
        implementation = next((each for each in candidates if each is not None and each.fn is not None), None)
        if implementation is None:
            raise DovetailError(f"the reference has no function for {symbol}")
        return implementation.fn

    def _erring(self, line: BoundSymbol, fn: Callable, args: tuple, kwargs: dict, p: Proxy, x: Any) -> Any:
        """`x`, the value of p, off by as much as an executor may be."""
        narrow = TO_TORCH.get(p.spec.dtype) if isinstance(p, TensorProxy) else None
        if self.noise is None or narrow is None or not isinstance(x, Tensor) or x.dtype not in _WIDE_TYPES or not SAME.isdisjoint(line.symbol.tags):
            return x
        epsilon = torch.finfo(narrow).eps
        unit = torch.rand(x.shape, generator=self.noise, dtype=torch.float64).mul_(2).sub_(1).to(x.device)
        error = x.abs().mul_(UNITS * epsilon)  # in place from here on: new memory takes longer than the arithmetic
        if narrow in WIDE:  # what the program holds as it is, it does not round
            error.masked_fill_(x.to(narrow) == x, 0.0)
        if line.symbol in SUMS and not _whole((args, kwargs)):
            epsilon = min(epsilon, torch.finfo(torch.float32).eps)
            sums = _partial_sums(fn, args, kwargs, x)
            if line.symbol is prims.sum:
                sums = torch.maximum(sums, _largest_on_the_way(args[0], kwargs["dims"]).view(x.shape))
            error += sums.mul_(epsilon * _growth(line))
        if line.symbol is prims.var_mean and p is line.out[1]:
            error += _error_of_mean(args[0], kwargs["dims"]).mul_(min(epsilon, torch.finfo(torch.float32).eps))
        finite = bool(torch.isfinite(x.sum()))  # where it is not, some of x may be
        erring = unit.mul_(error) + x if x.is_complex() else unit.mul_(error).add_(x)
        return erring if finite else torch.where(torch.isfinite(x), erring, x)


_WIDE_TYPES = set(WIDE.values())


def _wider(leaf: Any) -> Any:
    if isinstance(leaf, DType):
        return WIDER.get(leaf, leaf)
    return WIDE.get(leaf, leaf) if isinstance(leaf, torch.dtype) else leaf


def _growth(line: BoundSymbol) -> float:
    """How many units the error of a sum grows to, where it is added up in blocks."""
    read = [p.spec for p in line.reads if isinstance(p, TensorProxy)]
    terms = max(hint_of(spec.numel) for spec in read)
    if line.symbol in (prims.matmul, prims.linear):
        terms = hint_of(read[0].shape[-1])
    elif line.symbol is prims.sum:
        terms = terms / max(1, hint_of(line.out.spec.numel))
    return UNITS + max(1.0, float(terms)) ** 0.5 / 16


def _whole(values: Any) -> bool:
    """Whether tensors hold whole numbers: their sums and products are exact in any order."""
    return all([bool((x == x.round()).all()) for x in leaves(values) if isinstance(x, Tensor) and x.is_floating_point()])


def _partial_sums(fn: Callable, args: tuple, kwargs: dict, x: Tensor) -> Tensor:
    """How large the sums are that add up to x, on the way there: sqrt of the sum of the squares, where signs differ."""
    squares = tree_map(lambda leaf: leaf.abs().square() if isinstance(leaf, Tensor) and leaf.dtype in _WIDE_TYPES else leaf, (args, kwargs))
    total = fn(*squares[0], **squares[1])
    return total.abs().sqrt() + x.abs()


def _largest_on_the_way(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    """How large sums become, with signs as they are, where elements are added in the order of the tensor."""
    kept = [d for d in range(x.ndim) if d not in dims]
    rows = x.permute(*kept, *dims).flatten(len(kept)) if dims else x.unsqueeze(-1)
    return rows.cumsum(-1).abs().amax(-1) if rows.shape[-1] else x.new_zeros(rows.shape[:-1]).abs()


def _error_of_mean(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    """How many units the error of a mean grows to, times the size of the sums on the way there: it is a sum, divided by a number."""
    squares = x.square().mean(dims)
    count = x.numel() / max(1, squares.numel())
    return (UNITS + count**0.5 / 16) * (squares / max(1.0, count)).sqrt()


def own_copy(x: Any) -> Any:
    """Copy a tensor, laid out as it is, for private use."""
    if not isinstance(x, Tensor):
        return x
    x = x.detach()
    own = x.new_empty(0)
    return own.set_(x.untyped_storage().clone(), x.storage_offset(), x.size(), x.stride())


def generators() -> tuple[Tensor, list[Tensor]]:
    """Return the states of the generators of random numbers."""
    return torch.get_rng_state(), torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []


def restore(state: tuple[Tensor, list[Tensor]]) -> None:
    torch.set_rng_state(state[0])
    if state[1]:
        torch.cuda.set_rng_state_all(state[1])


def is_unwritten(line: BoundSymbol) -> bool:
    """Return whether the result of `line` is whatever the memory held."""
    return Tag.UNINITIALIZED in line.symbol.tags


def uninitialized(lines: Iterable[BoundSymbol]) -> set[Proxy]:
    """Return the values that nothing has written: uninitialized memory, and what is only a view of it.  They are not compared."""
    lines = list(lines)
    bases, unwritten, waiting = view_bases(lines), set[Proxy](), list(lines)
    while waiting:
        line = waiting.pop()
        if is_unwritten(line):
            unwritten.update(line.writes)
        else:
            waiting += line.body
    return unwritten.union([view for view in bases if root_of(view, bases) in unwritten])


def zeroed(trace: Trace) -> Trace:
    """Return `trace` with zeros for uninitialized memory, as decompositions have it, so that every run computes the same values."""
    lines = [_zeroed(line) if is_unwritten(line) and line.implementation is not None else line for line in trace.lines]
    if lines != list(trace.lines):
        trace.lines = lines
    return trace


def _zeroed(line: BoundSymbol) -> BoundSymbol:
    implementation = line.implementation

    def zeros(*args: Any, **kwargs: Any) -> Tensor:
        return implementation.fn(*args, **kwargs).zero_()

    return line.replace(implementation=replace(implementation, name=f"{implementation.name}_of_zeros", fn=zeros, path=None))

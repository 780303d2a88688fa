"""The program of one example as that of a batch of them: each line by the batching rule of its symbol."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from dovetail import prims
from dovetail.errors import Unsupported, require
from dovetail.frontend.autograd.custom_autograd import WITH_BACKWARD
from dovetail.frontend.autograd.inner_function import pure, record
from dovetail.langs.torch import OpaqueSymbol, runs_on_batches
from dovetail.prims import Tag, recorder
from dovetail.prims.batching import DRAWS, Batch, rule_of, spread
from dovetail.prims.shape import flat_reshape
from dovetail.trace import BoundSymbol, NumberProxy, Proxy, TensorProxy, Trace, leaves, renamed, requires_grad, substitute, tree_map, user_line
from dovetail.trace.ir import draws
from dovetail.trace.passes.functionalize import OVERWRITTEN, UNSEEN
from dovetail.trace.passes.grad import RULES as GRAD_RULES

LONGEST_LOOP = 256  # examples that an operation without a batching rule is computed for one by one
_EACH_ELEMENT = frozenset({UNSEEN, OVERWRITTEN})  # with a grad rule of their own
_RANDOM = (
    "vmap: called random operation while in randomness error mode. Please either use the 'same' or 'different' randomness flags on vmap or "
    "perform the randomness operation out of vmap"
)


class Batching:
    """Records the lines of a program for `size` examples in the program that is being recorded.

    Attributes:
        env: what stands for a value of the program of one example: a Batch, or a value that is the same for all.
        randomness: "error", "same" or "different".
    """

    def __init__(self, size: int, env: dict[Proxy, Any], randomness: str):
        self.size, self.env, self.randomness = size, env, randomness

    def run(self, lines: Iterable[BoundSymbol]) -> None:
        """Record the lines."""
        trace = recorder.get()
        with in_prims(trace), torch.inference_mode(False):  # grad mode is on then, too
            for line in lines:
                self.visit(line, trace)

    def value(self, x: Any) -> Any:
        """Return what stands for a value, or for those in a nest."""
        return tree_map(lambda p: self.env.get(p, p) if isinstance(p, Proxy) else p, x)

    def visit(self, line: BoundSymbol, trace: Trace) -> None:
        """Record one line."""
        differs = any([type(self.env.get(p)) is Batch for p in line.reads])
        is_random = draws(line)
        if is_random and not line.body:
            require(self.randomness != "error", _RANDOM, error=RuntimeError)
            if self.randomness == "same" and differs:
                raise Unsupported(
                    f'{line.symbol.path} draws with other parameters for each example of vmap, which randomness="same" leaves undefined; use '
                    f'randomness="different"\n  called at {line.where or user_line()}'
                )
            differs = self.randomness == "different"
        if not differs and not (is_random and line.body):
            trace.lines.append(substitute(line, self.env))
            return
        start = len(trace.lines)
        result = self.batch(line)
        if result is NotImplemented:
            for inner in line.body:
                self.visit(inner, trace)
            if not self.has_own_gradient(line):
                self.create(line, trace, start)
                return
            result = self.with_own_gradient(line)
        self.bind(line, result, {p for new in trace.lines[start:] for p in new.writes})

    def create(self, line: BoundSymbol, trace: Trace, start: int) -> None:
        """Give each example results of its own where a line of a batch creates equal ones, as x.new_zeros(2): a program may write into them."""
        computed = {p for new in trace.lines[start:] for p in new.writes}
        if not computed.issuperset([p for new in trace.lines[start:] for p in new.reads]):
            return
        names = {p: trace.tensor(p.spec) for p in line.writes if type(p) is not NumberProxy and p in computed and p not in self.env}
        trace.lines[start:] = [renamed(new, names) for new in trace.lines[start:]]
        self.env.update({p: Batch(prims.clone(spread(x, self.size))) for p, x in names.items()})

    def batch(self, line: BoundSymbol) -> Any:
        """Return the results of a line for all examples, NotImplemented where its decomposition computes them."""
        symbol, size = line.symbol, self.size
        args, kwargs = self.value(line.args), self.value(line.kwargs)
        if symbol.path.endswith("_like") and type(args[0]) is Batch and (self.randomness == "different" or not draws(line)):
            return symbol(args[0].value, *args[1:], **kwargs)  # in the order in which the batch lies in memory
        if symbol is WITH_BACKWARD:
            kwargs["backward"] = self.backward(kwargs["backward"])
        if symbol is WITH_BACKWARD or symbol in _EACH_ELEMENT:
            return symbol(*spread(args, size), **kwargs)
        if (rule := DRAWS.get(symbol) if Tag.RANDOM in symbol.tags else rule_of(symbol)) is not None:
            return rule(size, *args, **kwargs)
        if line.body and (draws(line) or symbol not in GRAD_RULES):
            return NotImplemented
        whole = spread(args, size), {name: spread(x, size) for name, x in kwargs.items()}
        if runs_on_batches(symbol, size, *whole, line.out):
            return symbol(*whole[0], **whole[1])
        return self.unrolled(line, args, kwargs)

    def has_own_gradient(self, line: BoundSymbol) -> bool:
        """Return whether a gradient may flow through a line by a rule of its own, and not by those of its decomposition."""
        return line.symbol.vjp_rule is not None and any(map(requires_grad, line.writes))

    def with_own_gradient(self, line: BoundSymbol) -> list[Any]:
        """Return the results of a line, which its decomposition has computed, differentiated by the line's own rule for each example."""
        read = [p for p in dict.fromkeys(line.reads) if isinstance(p, TensorProxy)]
        own = [p for p in line.writes if requires_grad(p)]

        def backward(gs: Sequence[Any], values: Sequence[Any]) -> list[Any]:
            env = dict(zip([*read, *line.writes], values, strict=True))
            args, kwargs, out = substitute((line.args, line.kwargs, line.out), env)
            by_result = dict(zip(own, gs, strict=True))
            g = tree_map(lambda p: by_result.get(p) if isinstance(p, Proxy) else None, line.out)
            cotangents: dict[Proxy, Any] = dict.fromkeys(read)
            for p, part in zip(leaves(line.args), leaves(line.symbol.vjp_rule(g, out, *args, **kwargs)), strict=True):
                if part is not None and isinstance(p, TensorProxy):
                    cotangents[p] = part if cotangents[p] is None else cotangents[p] + part
            return [*cotangents.values(), *[None] * len(line.writes)]

        results = [spread(self.value(p), self.size) for p in line.writes]
        values = [spread(self.value(p), self.size) for p in read]
        differentiable = [x for p, x in zip(line.writes, results, strict=True) if p in set(own)]
        anew = iter(WITH_BACKWARD(*differentiable, *values, *results, results=len(own), backward=self.backward(backward), shared=()))
        by_result = {p: next(anew) if p in set(own) else x for p, x in zip(line.writes, results, strict=True)}
        return [by_result.get(p) if isinstance(p, Proxy) else None for p in leaves(line.out)]

    def unrolled(self, line: BoundSymbol, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Compute a line for each example, and stack the results."""
        called = f"called at {line.where or user_line()}"
        if (line.effects and not draws(line)) or any([isinstance(p, NumberProxy) for p in line.writes]):
            raise Unsupported(
                f"{line.symbol.path} of a tensor that differs between the examples of vmap is not traced: it runs on the host, once for all of "
                f"them; compute with tensors, or call it outside of vmap\n  {called}"
            )
        count = int(self.size)
        if not 0 < count <= LONGEST_LOOP:
            raise Unsupported(
                f"{line.symbol.path} has no batching rule, and vmap over {count} examples computes it one by one; that is supported for 1 to "
                f"{LONGEST_LOOP} of them. Use chunk_size, or call it outside of vmap\n  {called}"
            )
        apart = isinstance(line.symbol, OpaqueSymbol)  # code of torch's may read strides and offsets
        results = [line.symbol(*_example(args, i, apart), **_example(kwargs, i, apart)) for i in range(count)]
        return [None if parts[0] is None else _stacked(parts) for parts in zip(*map(leaves, results), strict=True)]

    def bind(self, line: BoundSymbol, result: Any, computed: set[Proxy]) -> None:
        """Let `result` stand for that of `line`, differentiable where that of one example is."""
        for p, batch in zip(leaves(line.out), leaves(result), strict=True):
            if not isinstance(p, Proxy) or batch is None:
                continue
            if requires_grad(batch) != requires_grad(p):
                batch = batch if batch in computed else prims.detach(batch)
                batch.spec = batch.spec.like(requires_grad=p.spec.requires_grad)
            self.env[p] = Batch(batch)

    def backward(self, function: Callable[..., Sequence[Any]]) -> Callable[..., Sequence[Any]]:
        """Return the backward of a batch for the backward of one example."""

        def batched(gs: Sequence[Any], read: Sequence[Any]) -> list[Any]:
            values = [*gs, *read]
            at = [i for i, x in enumerate(values) if x is not None]

            def one(*examples: Any) -> Any:
                example = dict(zip(at, examples, strict=True))
                nest = [example.get(i) for i in range(len(values))]
                return tuple(function(nest[: len(gs)], nest[len(gs) :]))

            return over_examples(one, self.size, [Batch(values[i]) for i in at], self.randomness)

        return batched


def over_examples(function: Callable[..., Sequence[Any]], size: int, batches: Sequence[Batch], randomness: str) -> list[Any]:
    """Return the results of a function of one example for all of them, the examples first; None stays."""
    specs = [example_spec(x) for x in batches]
    program, _ = pure(record(function, specs, tuple, {}).trace)
    batching = Batching(size, dict(zip(program.inputs, batches, strict=True)), randomness)
    batching.run(program.lines)
    return [spread(x, size) for x in batching.value(program.outputs)]


def example_spec(x: Batch) -> Any:
    """Return the spec of one example of a batch."""
    spec = x.value.spec
    return spec.view(spec.shape[1:], spec.steps[1:]).like(requires_grad=spec.requires_grad)


@contextmanager
def in_prims(trace: Trace) -> Iterator[None]:
    """Record as the parts of an operation are recorded: operators are prims, and nothing is lifted or located."""
    before = trace.language, trace.depth
    trace.language, trace.depth = prims.OPERATORS, trace.depth + 1
    try:
        yield
    finally:
        trace.language, trace.depth = before


def _example(nest: Any, i: int, apart: bool) -> Any:
    """Return the arguments of one example; where `apart`, each in storage of its own, laid out as the example is."""

    def one(x: Any) -> Any:
        if type(x) is not Batch:
            return x
        shape = x.shape
        row = prims.strided_slice(x.value, starts=(i, *[0] * len(shape)), stops=(i + 1, *shape), steps=(1,) * (len(shape) + 1))
        row = prims.squeeze(row, dims=(0,))
        if not apart:
            return row
        return prims.stride_order(row, order=row.spec.order)

    return tree_map(one, nest)


def _stacked(parts: Sequence[Any]) -> Any:
    return prims.cat([flat_reshape(x, (1, *x.spec.shape)) for x in parts], dim=0)

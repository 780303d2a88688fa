"""Pure programs between decisions: what of them is needed, and which of them are the same."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from dovetail.executors.trials.trial import Trial
from dovetail.frontend.decisions.driver import GoEager
from dovetail.frontend.decisions.generators import is_check, seeds
from dovetail.frontend.decisions.state import Same, source_key
from dovetail.frontend.guards.guard import Guard
from dovetail.frontend.guards.overlap import memory_overlap
from dovetail.frontend.guards.source import Source
from dovetail.prims import Tag
from dovetail.prims.sizes import Size
from dovetail.trace import BoundSymbol, Proxy, TensorProxy, Trace, is_proxy, requires_grad
from dovetail.trace.ir import draws
from dovetail.trace.passes.dce import unread_but_raising
from dovetail.trace.raising import may_raise

_FACTS = frozenset({torch.dtype, torch.device, torch.Size, torch.layout, torch.memory_format})
_PLAIN = frozenset({int, float, complex, bool, str, bytes, type(None)})


@dataclass(eq=False)
class Segment:
    """A compiled pure program between two decisions, which several edges may run.

    Attributes:
        run: a function from its inputs to its outputs.
        steps: of its compilation, to the computation or the forward that runs.
        backward: the steps of its backward; none where it needs no gradient.
        trials: those of the computation, or of forward and backward.
        trial: the first of these; None where the computation or forward is not tried.
        run_beside: runs it beside the reference, for a call that is a trial.
    """

    run: Callable[..., tuple]
    steps: Sequence[Trace]
    backward: Sequence[Trace] = ()
    trials: Sequence[Trial] = ()
    trial: Trial | None = None
    run_beside: Callable[..., tuple] | None = None


class Inputs(dict[int, Any]):
    """The tensors of a call: slot -> tensor.  `~slot` stands for a view of the tensor, which is created where it is read first."""

    def __missing__(self, slot: int) -> Any:
        if slot >= 0:
            raise KeyError(slot)
        view = self[slot] = self[~slot].view_as(self[~slot])
        return view


def foreign(known: Iterable[tuple[Source, Proxy]], mine: Iterable[tuple[Source, Proxy]], names: Iterator[int]) -> Iterator[tuple[Source, Proxy]]:
    """Yield the tensors that another exploration has read, whose guards have sources of their own, under new names."""
    read = {source for source, _ in mine}
    for source, p in known:
        if source not in read and isinstance(p, TensorProxy):
            yield source, TensorProxy(f"v{next(names)}", p.spec)


def needed(lines: list[BoundSymbol], wanted: Iterable[Proxy]) -> list[BoundSymbol]:
    """Return the lines that compute the wanted values, draw random numbers or seed, as the generator moves in eager mode, or may raise an error."""
    kept, wanted = [], set(wanted)
    for line in reversed(lines):
        read, raises = any([p in wanted for p in line.writes]), may_raise(line.symbol, (line.args, line.kwargs))
        if raises and not read and line.writes and not line.effects:
            kept.append(unread_but_raising(line))
        if read or raises or is_check(line) or draws(line) or seeds(line):
            wanted.update(line.reads)
            kept.append(line)
    return kept[::-1]


def follow_gradients(lines: Iterable[BoundSymbol], constant: Collection[Proxy]) -> None:
    """Let values require grad where they are computed from values that do: a write may give a history to a tensor that was read without one."""
    for line in lines:
        if Tag.NO_GRAD not in line.symbol.tags and any(map(requires_grad, line.reads)):
            for p in line.writes:
                if isinstance(p, TensorProxy) and p.spec.dtype.inexact and not p.spec.requires_grad and p not in constant:
                    p.spec = p.spec.like(requires_grad=True)


def text_of(program: Trace, written: Collection[Proxy], cut_off: Collection[Proxy] = ()) -> Any:
    """Return a key that is equal for programs that do the same, whatever their values are called; no gradient flows through `cut_off`."""
    cut_off = set(cut_off)
    numbers: dict[Proxy, int] = {}

    def leaf(x: Any) -> Any:
        if not is_proxy(x):
            return (type(x), repr(x)) if type(x) in _PLAIN else _fixed(x)
        if x in numbers:
            return numbers[x]
        numbers[x] = len(numbers)
        constant = Same(program.constants[x]) if x in program.constants else None
        facts = (x.spec.requires_grad, x.spec.strides, x in cut_off) if isinstance(x, TensorProxy) else ()
        return numbers[x], repr(x.spec), facts, constant

    def line_key(line: BoundSymbol) -> Any:
        return Same(line.symbol), frozen(line.args), frozen(line.kwargs), frozen(line.out), tuple(map(line_key, line.body))

    def frozen(tree: Any) -> Any:
        kind = type(tree)  # isinstance would also ask a proxy which class it stands for
        if issubclass(kind, dict):
            return dict, tuple([(key, frozen(item)) for key, item in tree.items()])
        if issubclass(kind, (list, tuple)):
            return kind, tuple(map(frozen, tree))
        return leaf(tree)

    inputs = tuple([(leaf(p), p in written) for p in program.inputs])
    return inputs, tuple(map(line_key, program.lines)), frozen(program.outputs)


def result_form(value: Any, places: Mapping[Proxy, int]) -> Any:
    """Return a key for what a function returns, with traced values by their places; None where it is more than these in containers."""
    if is_proxy(value):
        return ("traced", places[value]) if value in places else None
    if type(value) in (tuple, list):
        forms = tuple([result_form(item, places) for item in value])
        return None if None in forms else (type(value), forms)
    if type(value) is dict and all([type(key) is str for key in value]):
        forms = tuple([(key, result_form(item, places)) for key, item in value.items()])
        return None if any([form is None for _, form in forms]) else (dict, forms)
    return (type(value), repr(value)) if type(value) in _PLAIN else None


def _fixed(x: Any) -> Any:
    """Return an argument that is no number or text as a key: by its value where it has one, else the object itself."""
    try:
        hash(x)
    except TypeError:
        return Same(x)
    return (type(x), x) if type(x).__module__.partition(".")[0] in ("dovetail", "torch", "builtins") else Same(x)


def refuse_overlap(inputs: dict[int, Any], written: Collection[int], buffers: tuple) -> None:
    """Go eager where an input that is written shares memory with another, or with a buffer: segments read a copy that lacks the write."""
    ours = set(written)
    if written and memory_overlap(
        tuple([inputs[slot] for slot in ours]), tuple([x for slot, x in inputs.items() if slot >= 0 and slot not in ours]), buffers
    ):
        raise GoEager("", lasting=False)


class GuardKey:
    """A key that is equal for equal guards of two runs; its hash is computed once, since each decision looks all guards up."""

    __slots__ = ("hash", "parts")

    def __init__(self, guard: Guard):
        self.parts = guard.kind, source_key(guard.source), _fact(guard.value)
        self.hash = hash(self.parts)

    def __eq__(self, other: object) -> bool:
        return type(other) is GuardKey and self.parts == other.parts

    def __hash__(self) -> int:
        return self.hash


def _fact(value: Any) -> Any:
    kind = type(value)
    if kind is Source:
        return source_key(value)
    if kind is Size:  # of an argument; a graph has one symbol for each
        return kind
    if kind in (list, tuple):
        return kind, tuple(map(_fact, value))
    if kind is dict:
        return tuple([(key, _fact(item)) for key, item in value.items()])
    return (kind, repr(value)) if kind in _PLAIN or kind in _FACTS else Same(value)

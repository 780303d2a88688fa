"""Gradients with a history: the joint trace as a program from inputs and cotangents to gradients, which can be differentiated again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from threading import RLock
from typing import Any

import torch

from dovetail import prims
from dovetail.errors import DovetailError
from dovetail.executors import dispatch, resolve_executors
from dovetail.executors.trials.reference import referees
from dovetail.langs.torch import TO_TORCH, torch_device
from dovetail.prims.sizes import Atom, Size, is_symbol, symbols_in
from dovetail.trace import BoundSymbol, JointTrace, Proxy, TensorProxy, Trace, prims_of, proxies, recording, substitute, symbols_of, to_callable
from dovetail.trace.passes.dce import needed
from dovetail.trace.passes.grad import nothing_flows, with_absent
from dovetail.trace.saved_writes import check_saved, refusals

Build = Callable[[Trace], Callable[..., tuple]]  # compiles a program to a function whose results have a history


class Pullback:
    """Gradients as a function of inputs and cotangents, compiled by the first backward that needs a history.

    Args:
        joint: results and gradients in one program.
        saved: the tensors that the forward saves.
        numbers: the numbers that it saves.
        written: the inputs that are overwritten after it.
        build: compiles the program.
        twice: returns the joint program in which every line has a gradient; None where `joint` is that.
        by_executors: the lines that are differentiated otherwise in `joint`.

    Attributes:
        extra: the positions of inputs that only this program needs, so that the forward has to save them, too.
        extra_numbers: the positions of such inputs that are numbers.
        problem: why there is no such program; None where there is one, or none was needed yet.
        overwritten: whether an input that the program needs is overwritten.
    """

    def __init__(
        self,
        joint: JointTrace,
        saved: Sequence[Proxy],
        numbers: Sequence[Proxy],
        written: Collection[Proxy],
        build: Build,
        twice: Callable[[], JointTrace] | None = None,
        by_executors: Iterable[BoundSymbol] = (),
    ):
        self.joint, self.saved, self.numbers, self.written, self.build, self.twice = joint, saved, numbers, frozenset(written), build, twice
        self.inputs = joint.inputs[: len(joint.inputs) - len(joint.cotangents)]
        # A rule reads no more than what its line reads and computes: what that depends on is saved.
        wanted = [*joint.outputs[1], *[p for line in by_executors for p in line.reads]]
        lines, needs = _lines_and_needs(joint, wanted)
        missing = set(needs).difference(saved, numbers, written)
        extra = [i for i, p in enumerate(self.inputs) if p in missing]
        extra += self._showing(symbols_of(lines, joint.cotangents), [*saved, *numbers, *[self.inputs[i] for i in extra]])
        self.extra = [i for i in extra if isinstance(self.inputs[i], TensorProxy)]
        self.extra_numbers = [i for i in extra if not isinstance(self.inputs[i], TensorProxy)]
        self.refusals = refusals(joint.lines)
        self.lines: list[BoundSymbol] = []
        self.needs: list[Proxy] = []
        self.sizes: list[Atom] = []  # the symbols that the program gets as numbers
        self.flows: list[set[Proxy]] | None = None  # for each gradient the cotangents that it depends on; None until the lines are known
        self.problem: str | None = None
        self.overwritten = False
        self.runs: dict[frozenset[Proxy], Callable[..., tuple]] = {}  # by the cotangents that are absent
        self.lock = RLock()

    def _showing(self, symbols: Iterable[Atom], held: Collection[Proxy]) -> list[int]:
        """Return the positions of inputs that show the symbols which nothing in `held` shows, or what these are computed of."""
        positions: dict[int, None] = {}
        for atom in symbols:
            meaning = self.joint.relations.value_of(atom) if atom.real is None else atom.real
            if not is_symbol(meaning, atom):
                positions |= dict.fromkeys(self._showing(symbols_in(meaning), held))
            elif not any([atom.name in _shown(p) for p in held]):
                positions |= dict.fromkeys([i for i, p in enumerate(self.inputs) if atom.name in _shown(p)][:1])
        return list(positions)

    def _know(self) -> None:
        """Find out of which lines the program consists, and whether all that it needs is there."""
        with self.lock:
            if self.flows is not None:
                return
            try:
                self.joint = self.twice() if self.twice is not None else self.joint
                self.refusals = refusals(self.joint.lines)
            except (DovetailError, RecursionError) as error:
                self.problem, self.flows = str(error), []
                return
            self.lines, self.needs = _lines_and_needs(self.joint, self.joint.outputs[1])
            self.sizes = list(symbols_of(self.lines, self.joint.cotangents))
            available = {*self.saved, *self.numbers, *[self.inputs[i] for i in (*self.extra, *self.extra_numbers)]}
            self.overwritten = not self.written.isdisjoint(self.needs)
            if self.overwritten:
                self.problem = "it writes into an argument that its gradient depends on"
            elif any([p not in available for p in self.needs]) or self._showing(self.sizes, list(available)):
                self.problem = "its gradient depends on a random number, or on what the host computed, that is not kept"
            self.flows = self._sources()

    def _sources(self) -> list[set[Proxy]]:
        sources: dict[Proxy, set[Proxy]] = {p: {p} for p in self.joint.cotangents}
        for line in self.lines:
            read = set().union(*[sources.get(p, ()) for p in line.reads])
            if read:
                sources.update(dict.fromkeys(line.writes, read))
        return [sources.get(p, set()) if p is not None else set() for p in self.joint.outputs[1]]

    def values(self, saved: Sequence[Any], numbers: Sequence[Any], extra: Sequence[Any]) -> list[Any]:
        """Return the inputs of the program among what a call saved; `extra` has the tensors first."""
        self._know()
        held = dict(zip(self.saved, saved, strict=True)) | dict(zip(self.numbers, numbers, strict=True))
        held |= dict(zip([self.inputs[i] for i in (*self.extra, *self.extra_numbers)], extra, strict=True))
        shown = {name: x if dim is None else x.shape[dim] for p, x in held.items() for name, dim in _shown(p).items()} if self.sizes else {}
        sizes = self.joint.relations.completed(shown) if self.sizes else {}
        return [held[p] for p in self.needs if p in held] + [sizes[atom.name] for atom in self.sizes if atom.name in sizes]

    def __call__(self, values: list[Any], cotangents: Sequence[Any]) -> list[Any] | None:
        """Return the gradients, None where nothing flows; None in all where they cannot have a history.  A cotangent may be None.

        `values` are those of `values()`.
        """
        absent = self._absent(cotangents)
        if absent not in self.runs and self.problem is None:
            with self.lock:
                self._compile(absent)
        if self.problem is not None:
            return None
        with torch.enable_grad():
            full = self._cotangents(values, cotangents)
            results = iter(self.runs[absent](*values, *full))
            gradients = [None if p is None else next(results) for p in self.joint.outputs[1]]
        return [None if sources <= absent else g for g, sources in zip(gradients, self.flows, strict=True)]

    def transformed(self, values: list[Any], cotangents: Sequence[Any]) -> list[Any]:
        """Return the gradients for cotangents of a transform, such as those of `is_grads_batched=True`: operations of torch compute them."""
        if self.problem is not None:
            raise RuntimeError(
                f"the backward of a compiled function runs under a transform, such as vmap, and {self.problem}; call it without compiling it"
            )
        program = self._program(self._absent(cotangents))
        with recording(program):
            run = to_callable(dispatch(program, referees(resolve_executors())))
        full = self._cotangents(values, cotangents)
        results = iter(run(*values, *full))
        return [None if p is None else next(results) for p in self.joint.outputs[1]]

    def _absent(self, cotangents: Sequence[Any]) -> frozenset[Proxy]:
        """Return the cotangents that are None; raise eager mode's error where another one needs what the program has overwritten."""
        absent = frozenset([p for p, g in zip(self.joint.cotangents, cotangents, strict=True) if g is None])
        check_saved(self.refusals, absent)
        return absent

    def _cotangents(self, values: Sequence[Any], cotangents: Sequence[Any]) -> list[torch.Tensor]:
        """Return the cotangents, with zeros in place of None."""
        sizes = {atom.name: n for atom, n in zip(self.sizes, values[len(values) - len(self.sizes) :], strict=True)}
        return [_zeros(p, sizes) if g is None else g for p, g in zip(self.joint.cotangents, cotangents, strict=True)]

    def _compile(self, absent: frozenset[Proxy]) -> None:
        try:
            if absent not in self.runs:
                self.runs[absent] = self.build(self._program(absent))
        except (DovetailError, RecursionError) as error:
            self.problem = str(error)

    def _program(self, absent: Iterable[Proxy]) -> Trace:
        """Return the program for cotangents of which some are absent: zeros, but for the operations that tell these from nothing."""
        joint = self.joint
        program = Trace("pullback", names=joint.names, relations=joint.relations, constants=dict(joint.constants), made_by="pullback")
        cotangents = {p: program.tensor(p.spec.like(requires_grad=True)) for p in joint.cotangents}
        program.inputs = [*self.needs, *[atom.proxy for atom in self.sizes], *cotangents.values()]
        lines = with_absent(self.lines, nothing_flows(self.lines, joint.cotangents, absent))
        program.lines = [substitute(line, cotangents) for line in lines]
        aliased = {*program.inputs, *program.constants}  # a result that is one of these, or another result, is a copy
        results: list[Proxy] = []
        with recording(program):
            for p in [cotangents.get(p, p) for p in joint.outputs[1] if p is not None]:
                results.append(prims.clone(p) if p in aliased else p)
                aliased.add(p)
        program.outputs = tuple(results)
        return program


def _lines_and_needs(joint: JointTrace, wanted: Iterable[Proxy | None]) -> tuple[list[BoundSymbol], list[Proxy]]:
    """Return the lines of a joint program, but for those with effects, that compute what is `wanted`, and the values that they need."""
    wanted = proxies(tuple(wanted))
    lines = needed([line for line in joint.lines if not line.effects or _is_item(line)], wanted)
    computed, present = {p for line in lines for p in line.writes}, {*joint.cotangents, *joint.constants}
    reads = dict.fromkeys([p for line in lines for p in line.reads] + wanted)
    return lines, [p for p in reads if p not in computed and p not in present]


def _is_item(line: BoundSymbol) -> bool:
    """Return whether all that a line does is to read a number, as a program does with one that changes between calls."""
    return {inner.symbol for inner in prims_of([line])} == {prims.item}


def _shown(p: Proxy) -> dict[str, int | None]:
    """Return the names of the symbols that a value shows, with the dimension that each is the size of; None where the value is that number."""
    if not isinstance(p, TensorProxy):
        return {p.name: None}
    sizes = [(dim, n) for dim, n in enumerate(p.spec.shape) if type(n) is Size]
    return {atom.name: dim for dim, n in sizes for atom in n.symbols() if is_symbol(n, atom)}


def _zeros(p: TensorProxy, sizes: Mapping[str, int]) -> torch.Tensor:
    """Return a cotangent that is zero, where symbols have these `sizes` by their names."""
    shape, steps = ([n.evaluate(sizes) if type(n) is Size else n for n in numbers] for numbers in (p.spec.shape, p.spec.steps))
    return torch.empty_strided(shape, steps, dtype=TO_TORCH[p.spec.dtype], device=torch_device(p.spec.device)).zero_()

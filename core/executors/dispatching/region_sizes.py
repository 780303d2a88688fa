"""Symbolic sizes of a region, for executors that compile a kernel for all of them.

A kernel may be shared by regions of several programs, of which each knows other things of its sizes.  So a region's sizes are over symbols of
its own, numbered as the region names them, of which a kernel knows no more than a lower bound.  Whatever else it asks becomes a question to the
program, which depends on the answer from then on, and is kept with the kernel: another program that is about to use the kernel is asked again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, NamedTuple, TypeVar

from dovetail.executors.contract.executor import CannotFuse
from dovetail.executors.dispatching.codegen import KernelCache
from dovetail.prims.sizes import Atom, Form, Relations, RelationsClosed, Size
from dovetail.prims.sizes.polynomials import Terms
from dovetail.trace import NumberProxy, Trace

T = TypeVar("T")
LEAST = 2  # a lower bound of symbols that tells sizes from those that broadcast


class Question(NamedTuple):
    """Whether a size lies between two bounds, of which one may be None, and the answer.

    `terms` is the size, independent of any Relations: pairs of a coefficient and factors, each the name of a symbol or a pair of such sizes,
    numerator and denominator.
    """

    terms: tuple
    low: int | None
    high: int | None
    answer: bool

    def of(self, symbols: dict[str, Any]) -> bool:
        """Return the answer for symbols of these values: ints, or sizes, whose program then depends on it."""
        size = _value(self.terms, symbols)
        if self.low is not None and self.low == self.high:
            return size == self.low
        return size >= self.low if self.high is None else size <= self.high


class RegionSizes(Relations):
    """The sizes of one region over symbols of its own.

    Attributes:
        program: what is known of the sizes of the region's program.
        of_program: by the name of a symbol of the region, that symbol of the program.
        questions: what was asked, and is neither a fact of arithmetic nor one of lower bounds.
    """

    def __init__(self, region: Trace):
        super().__init__()
        self.program: Relations = region.relations
        self.name = region.name
        self.of_program: dict[str, Any] = {}
        self.questions: list[Question] = []
        self._refusal: type[Exception] | None = None
        self._own: dict[Atom, Atom] = {}

    def own(self, value: Any) -> Any:
        """Return nested tuples, lists and dicts with the program's sizes as the region's; of a symbol that is an input, that."""
        if isinstance(value, NumberProxy):
            atom = next((atom for atom in self.program.symbols() if atom.proxy is value), None)
            if atom is None:
                raise CannotFuse(f"takes the number {value.name}, which is no size")
            return self.own(self.program.value_of(atom))
        if type(value) is Size:
            if value.relations is self:
                return self.size(value.terms)
            atoms = value.relations.atoms
            return sum([c * math.prod([self._own_atom(atoms[i]) for i in monomial]) for monomial, c in value.terms.items()])
        if isinstance(value, dict):
            return {name: self.own(item) for name, item in value.items()}
        return type(value)(map(self.own, value)) if type(value) in (tuple, list) else value

    def _own_atom(self, atom: Atom) -> Any:
        if atom.parts is not None:
            return self.own(atom.parts[0]) // self.own(atom.parts[1])
        if atom not in self._own:
            self.symbol(atom.hint, low=min(self.program.least(atom), LEAST), origin=atom.origin)
            own = self._own[atom] = self.atoms[-1]
            self.of_program[own.name] = self.program.value_of(atom)
        return self.value_of(self._own[atom])

    @property
    def bounds(self) -> tuple[int, ...]:
        """The lower bounds of the symbols, which a key of kernels has."""
        return tuple([self.least(atom) for atom in self.symbols()])

    def _record(self, form: Form, low: int | None, high: int | None) -> bool:
        """Answer by the program, which remembers that it depends on it."""
        question = Question(_plain(form.size.terms, self), low, high, True)
        answer = self._ask(question)
        self.questions.append(question._replace(answer=answer))
        return super()._record(form, low, high)

    def _ask(self, question: Question) -> bool:
        program = self.program
        before = program.locate, program.closed
        program.locate, program.closed = lambda: f"the kernel {self.name}", program.closed or self._refusal is not None
        try:
            return question.of(self.of_program)
        except RelationsClosed as closed:
            raise (self._refusal or CannotFuse)(f"would make the program depend on more of its sizes: {closed}") from closed
        finally:
            program.locate, program.closed = before

    @contextmanager
    def unassuming(self, refusal: type[Exception]) -> Iterator[None]:
        """Raise `refusal` while open, where the program would have to depend on more of its sizes than it does."""
        self._refusal = refusal
        try:
            yield
        finally:
            self._refusal = None

    def agree(self, questions: Iterable[Question]) -> bool:
        """Return whether the program answers questions as they were answered; it depends on the answers then, and on none of them otherwise."""
        hints = {atom.name: atom.hint for atom in self.symbols()}
        for each in questions:
            if each.of(hints) != each.answer:  # one by one: later ones may divide by what earlier ones bound
                return False
        return all([self._ask(each) == each.answer for each in questions])

    def pin(self, size: Size) -> int:
        """Refuse to compile a kernel for one value of a size."""
        raise CannotFuse(f"would compile a kernel for each value of {size}")

    def settled(self, compile: Callable[[], T]) -> T:
        """Return what `compile` returns, run again where it found sizes to be equal: then those that it computed with before have other terms."""
        while True:
            version = self.version
            try:
                compiled = compile()
            except Exception:
                if self.version == version:
                    raise
                continue
            if self.version == version:
                return compiled


class SizedKernels(Generic[T]):
    """Kernels by the key of a region and by the answers to what was asked when they were compiled.  Threads may share one."""

    def __init__(self, most: int = 512):
        self.cache = KernelCache[list[tuple[tuple[Question, ...], T]]](most)

    def get(self, key: Any, sizes: RegionSizes, compile: Callable[[], T]) -> T:
        """Return a kernel whose questions have the same answers in the region's program; else the one that `compile` returns."""
        variants = self.cache.get((key, sizes.bounds), list)
        for questions, kernel in tuple(variants):
            if sizes.agree(questions):
                return kernel
        kernel = sizes.settled(compile)
        variants.append((tuple(sizes.questions), kernel))
        return kernel


def _plain(terms: Terms, relations: Relations) -> tuple:
    """Return a polynomial as pairs, without Relations."""
    return tuple([(c, tuple([_factor(relations.atoms[i]) for i in monomial])) for monomial, c in terms.items()])


def _factor(atom: Atom) -> Any:
    if atom.parts is None:
        return atom.name
    return tuple([_plain(part.terms, part.relations) if type(part) is Size else ((part, ()),) for part in atom.parts])


def _value(terms: tuple, symbols: dict[str, Any]) -> Any:
    total: Any = 0
    for c, factors in terms:
        for factor in factors:
            c = c * (symbols[factor] if type(factor) is str else _value(factor[0], symbols) // _value(factor[1], symbols))
        total = total + c
    return total

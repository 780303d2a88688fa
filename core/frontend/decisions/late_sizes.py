"""Sizes that depend on values, as the length of `torch.where(mask)[0]`, where they differ from call to call: symbols that are bound between segments.

The values of the symbols arrive beside the tensors that have these sizes.  Assumptions of tracing about them, such as a lower bound of 4, are
checked at the start of the segment that depends on them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from dovetail.frontend.guards.source import Source
from dovetail.frontend.guards.symbolic_sizes import Place as ArgumentPlace
from dovetail.frontend.guards.symbolic_sizes import SizeHistory, SymbolicSizes
from dovetail.prims import NumberSpec
from dovetail.prims.sizes import Atom, Pin, Relations, Size, is_symbolic, symbols_in
from dovetail.prims.spec import strides_in_order
from dovetail.trace import BoundSymbol, NumberProxy, Proxy, TensorProxy

SMALLEST = 2  # sizes of 0 and 1 mean something of their own: nothing to compute, and broadcasting
Place = tuple[str, str]  # the user's line, and the name of the operation
Moving = Collection[tuple[int, int]]  # the number of a result, and a dimension of it
_SYMBOL = re.compile(r"\bs\d+\b")


class History:
    """What earlier calls saw of sizes that depend on values; it outlives the decisions of a graph.

    Attributes:
        seen: the first size of each dimension, for those above 1.
        moving: the dimensions that have had another size since.
        static: the operations whose sizes are needed as plain ints.
        active: whether sizes become symbols at all.
    """

    def __init__(self) -> None:
        self.seen: dict[tuple[Place, int, int], int] = {}
        self.moving: dict[Place, frozenset[tuple[int, int]]] = {}
        self.static: set[Place] = set()
        self.active = True

    def of(self, place: Place) -> frozenset[tuple[int, int]]:
        """Return the dimensions of the results of an operation that are symbols."""
        return self.moving.get(place, frozenset()) if self.active and place not in self.static else frozenset()

    def note(self, place: Place, shapes: Sequence[Sequence[Any]]) -> bool:
        """Remember the shapes of results; return whether a size differs from an earlier one for the first time."""
        sizes = [(i, d, n) for i, shape in enumerate(shapes) for d, n in enumerate(shape) if type(n) is int and n >= SMALLEST]
        new = {(i, d) for i, d, n in sizes if self.seen.setdefault((place, i, d), n) != n} - self.of(place)
        if not self.active or place in self.static or not new:
            return False
        self.moving[place] = self.of(place) | new
        return True


class ArgumentSizes(SymbolicSizes):
    """The symbols of sizes of tensors that are read before the first decision; ints are none.

    Args:
        hints: the symbols in the call that got there first.
        numbers: the places of numbers from outside that programs of the graph read, and whether they are inputs of these, or constants.
        start_over: forgets the programs, and returns what to raise, where a constant has become another one.
    """

    def __init__(
        self,
        history: SizeHistory,
        dynamic: bool | None,
        plain: bool,
        hints: Mapping[ArgumentPlace, int],
        numbers: dict[ArgumentPlace, bool],
        start_over: Callable[[], BaseException],
    ):
        super().__init__(history, dynamic, plain)
        self.hints, self.numbers, self.start_over = hints, numbers, start_over

    def symbol(self, place: ArgumentPlace, hint: int, low: int, high: int | None) -> Size:
        return super().symbol(place, self.hints.get(place, hint), low, high)

    def integer(self, value: int, source: Source) -> None:
        return None

    def moves(self, value: Any, source: Source) -> bool:
        place = repr(source), None
        known = self.numbers.get(place)
        if known:
            return self._is_alone(place[0], source)
        moves = super().moves(value, source)
        again = self.start_over() if moves and known is False else None
        self.numbers[place] = moves
        if again is not None:
            raise again
        return moves


def layout(shape: Sequence[int], strides: Sequence[int], dims: Collection[int], symbols: dict[int, str]) -> tuple[tuple, tuple]:
    """Return a shape with names for the sizes of `dims`, and the order of its dimensions in memory; both as they are where it is not dense.

    Equal sizes have equal names; `symbols` has the names, and gets those that are new.
    """
    if len(shape) == 1 and strides[0] == 1 and dims and shape[0] >= SMALLEST:  # as below, in less time
        return (symbols.setdefault(shape[0], f"n{len(symbols)}"),), (0,)
    order = tuple(sorted(range(len(shape)), key=lambda d: (-strides[d], d)))
    dense = strides_in_order(tuple(shape), order)
    large = [d for d in dims if d < len(shape) and shape[d] >= SMALLEST]  # another call of the same line may have more
    if not large or any([n > 1 and a != b for n, a, b in zip(shape, strides, dense, strict=True)]):
        return tuple(shape), tuple(strides)
    return tuple([symbols.setdefault(n, f"n{len(symbols)}") if d in large else n for d, n in enumerate(shape)]), order


class LateSizes:
    """The symbols of one exploration.

    Their hints are those of the call that took the known path first, so that it goes the same way again, and then those of this one.

    Attributes:
        relations: what is known of them.
        places: the operations that they come from; of sizes of arguments, the source and the dimension.
        known: the conditions that hold at the decision that was passed last.
    """

    def __init__(self, relations: Relations):
        self.relations = relations
        self.places: dict[Atom, Any] = {}
        self.known: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self.places)

    def symbol(self, place: Place, value: int) -> Size:
        """Return a new symbol, which is `value` in the call that is traced."""
        size = self.relations.symbol(value, low=SMALLEST, origin=f"a size of {place[1]} at {place[0]}")
        atom = self.relations.atoms[-1]
        atom.proxy = NumberProxy(atom.name, NumberSpec("int"))
        self.places[atom] = place
        self.known.add(f"{atom.name} >= {SMALLEST}")
        return size

    def number(self, atom: Atom) -> int:
        """Return which symbol of its path one is."""
        return list(self.places).index(atom)

    def move(self, values: Mapping[int, int]) -> None:
        """Go on with the sizes of another call; `values` has those of symbols by their numbers."""
        if values:
            names = [atom.name for atom in self.places]
            self.relations.move({names[number]: value for number, value in values.items()})

    def of_arguments(self, sizes: SymbolicSizes) -> None:
        """Add the symbols of arguments; their values arrive at the start."""
        self.places |= {atom: place for place, atom in sizes.places.items() if atom not in self.places}

    def start(self) -> dict[Proxy, int]:
        """Return where the values of the symbols are at the start, of those that equal no other."""
        return {atom.proxy: i for i, atom in enumerate([atom for atom in self.places if atom.number not in self.relations.equal])}

    def kept(self, names: Collection[str]) -> list[Proxy]:
        """Return the symbols that arrive at a decision: those in `names`, and all of arguments, which may be read again."""
        equal = self.relations.equal
        return [atom.proxy for atom, place in self.places.items() if atom.name in names or (is_of_argument(place) and atom.number not in equal)]

    def pinned(self) -> dict[Atom, Pin]:
        """Return the symbols that are needed as plain ints; a size that is computed of one, as a number of parts, leaves it a symbol."""
        pins = {atom: pin for pin in self.relations.pins for atom in pin.symbols if atom in self.places}
        return {atom: pin for atom, pin in pins.items() if type(self.relations.value_of(atom)) is int}

    def facts(self, names: Mapping[str, str]) -> tuple[str, ...]:
        """Return what is known of the symbols in `names`, by the names there."""
        return tuple(sorted([renamed(text, dict(names)) for text, (_, atoms) in self._rows().items() if _are_in(atoms, names)]))

    def arrive(self, names: Mapping[str, str] | None) -> None:
        """Note what is known at a decision: of the symbols in `names`, which all ways to it agree on; where there is one way, of all."""
        rows = self._rows() if self else {}
        self.known = {text for text, (equal, atoms) in rows.items() if names is None or equal or _are_in(atoms, names)}

    def conditions(self, places: Mapping[Proxy, int]) -> dict[str, str]:
        """Return what was assumed since the last decision: as text, and as an expression over the values that arrived there, at `places`."""
        if not self:
            return {}
        names = {atom.number: f"values[{places[atom.proxy]}]" for atom in self.places if atom.proxy in places}
        rows = zip(self._rows().items(), self._rows(names), strict=True)
        return {plain: text for (plain, (_, atoms)), text in rows if plain not in self.known and all([atom.number in names for atom in atoms])}

    def _rows(self, names: Mapping[int, str] | None = None) -> dict[str, tuple[bool, tuple[Atom, ...]]]:
        """Return what is known as expressions, of each whether it replaces a symbol by an equal size, and the symbols in it."""
        rows = {text: (False, tuple(symbols_in(form.size))) for form in self.relations.guards() if (text := form.text(names))}
        for atom in self.places:
            if atom.number in self.relations.equal:
                value = self.relations.value_of(atom)
                text = value.text(names) if type(value) is Size else str(value)
                rows[f"{(names or {}).get(atom.number, atom.name)} == {text}"] = True, (atom, *symbols_in(value))
        return rows

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Forget on leaving what was assumed while open: it concerns one segment, and no other way to what follows."""
        relations = self.relations
        forms = relations.facts().forms
        try:
            yield
        finally:
            relations.forms = forms
            relations.memo.clear()


def is_of_argument(place: Any) -> bool:
    """Return whether a symbol is the size of an argument."""
    return type(place[1]) is int


def _are_in(atoms: Collection[Atom], names: Mapping[str, str]) -> bool:
    return all([atom.name in names for atom in atoms])


def symbols_of(lines: Sequence[BoundSymbol], values: Sequence[Proxy]) -> dict[Atom, None]:
    """Return the symbols that lines, and the shapes of what they compute and read, are about."""
    return symbols_in(_sizes_of(lines, values))


def has_sizes(lines: Sequence[BoundSymbol], values: Sequence[Proxy]) -> bool:
    """Return whether lines, or the shapes of what they compute and read, are about sizes: symbols, or what was one and has become constant."""
    return is_symbolic(_sizes_of(lines, values))


def _sizes_of(lines: Sequence[BoundSymbol], values: Sequence[Proxy]) -> list[Any]:
    tensors = [p for p in (*values, *[p for line in lines for p in (*line.reads, *line.writes)]) if isinstance(p, TensorProxy)]
    return [*[(line.args, line.kwargs) for line in lines], *[(p.spec.shape, p.spec.strides) for p in tensors]]


def widths(values: Collection[Proxy], late: LateSizes) -> tuple:
    """Return what is known of values that arrive at a decision: their specs."""
    names: dict[str, str] = {}
    specs = [renamed(repr(p.spec), names) if late and is_symbolic(_sizes_of((), (p,))) else repr(p.spec) for p in values]
    return tuple([(spec, isinstance(p, TensorProxy) and p.spec.requires_grad) for spec, p in zip(specs, values, strict=True)])


def renamed(text: str, names: dict[str, str]) -> str:
    """Return a text with symbols called by the order in which they are met."""
    return _SYMBOL.sub(lambda match: names.setdefault(match[0], f"m{len(names)}"), text)

"""Which sizes of a call are symbols: what the user marked, what `jit(dynamic=...)` says, and what changed between compilations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import torch

from dovetail.errors import DovetailError
from dovetail.frontend.guards.source import Source
from dovetail.prims import NumberSpec, TensorSpec
from dovetail.prims.sizes import Atom, Pin, Relations, Size
from dovetail.prims.spec import strides_in_order
from dovetail.trace import NumberProxy, user_line, user_operation

_MARKS = "_dovetail_sizes"  # attribute of a marked tensor: dimension -> (least, most) of a symbol, or None for a plain int
_LARGEST = (1 << 31) - 1  # of an int that is a symbol: what is computed of it fits into the 64 bits that kernels have for numbers
SMALLEST = 2  # sizes of 0 and 1 mean something of their own: nothing to compute, and broadcasting


def mark_dynamic(tensor: torch.Tensor, dim: int | Sequence[int], *, min: int | None = None, max: int | None = None) -> None:
    """Compile functions that get `tensor` once for all sizes of its dimension `dim`, or of each of several.

    `min` and `max` bound the sizes that one program runs: it is told that they hold, and other sizes compile another.  Sizes of 0 and 1 are
    compiled by themselves.  The mark stays on this tensor object; it wins over `jit(dynamic=False)`.

    Raises:
        IndexError: the tensor has no such dimension.
        TypeError: `tensor` is none, or a dimension is no int.
        DovetailError: `min` is larger than `max`.
    """
    for bound in (min, max):
        if bound is not None and type(bound) is not int:
            raise TypeError(f"mark_dynamic expects bounds that are whole numbers, got {bound!r}")
    least, most = SMALLEST if min is None or min < SMALLEST else min, max
    if most is not None and least > most:
        raise DovetailError(f"mark_dynamic expects min <= max, and sizes of {SMALLEST} or more; got min={min}, max={max}")
    _mark(tensor, dim, (least, most))


def mark_static(tensor: torch.Tensor, dim: int | Sequence[int]) -> None:
    """Compile functions that get `tensor` for each size of its dimension `dim` anew, whatever `jit(dynamic=...)` says.

    Raises IndexError where the tensor has no such dimension, TypeError where `tensor` is none, or a dimension is no int.
    """
    _mark(tensor, dim, None)


def _mark(tensor: torch.Tensor, dims: int | Sequence[int], value: Any) -> None:
    setattr(tensor, _MARKS, getattr(tensor, _MARKS, {}) | dict.fromkeys(_dims(tensor, dims), value))


def _dims(tensor: torch.Tensor, dims: int | Sequence[int]) -> list[int]:
    """Return dimensions of a tensor, counted from the front."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"expected a tensor, whose dimension is marked, got {type(tensor).__name__}")
    several = dims if isinstance(dims, (tuple, list)) else (dims,)
    for dim in several:
        if type(dim) is not int:
            raise TypeError(f"expected the number of a dimension, or several of them, got {dims!r}")
        if not -tensor.ndim <= dim < tensor.ndim:
            raise IndexError(f"a tensor of {tensor.ndim} dimensions has no dimension {dim}")
    return [dim % tensor.ndim for dim in several]


def is_marked(tensor: torch.Tensor) -> bool:
    """Return whether `mark_dynamic` or `mark_static` was called for a tensor."""
    return hasattr(tensor, _MARKS)


def is_dynamic(x: object) -> bool:
    """Return whether `mark_dynamic` was called for a tensor."""
    return isinstance(x, torch.Tensor) and any([bounds is not None for bounds in getattr(x, _MARKS, {}).values()])


Place = tuple[str, int | None]  # a source as text, and a dimension; None for an int


class ContentGuards(Enum):
    """Whether compilations of one function have guarded arrays by their content."""

    UNUSED = "none has"
    USED = "one has, and arrays that change are inputs from then on"
    REQUIRED = "nothing else compiles the function"


@dataclass
class SizeHistory:
    """What earlier compilations of one function saw of the sizes in its calls.

    Attributes:
        seen: the last shape, number or random generator at each source.
        moving: where sizes or ints have changed.
        pinned: the sizes that a program needs as plain ints, and the user's line that needs them.
        computes: whether numbers that are computed of sizes are numbers of the program; not where tracing it so has failed.
        content_guards: whether arrays were guarded by their content, since Python needs their values.
    """

    seen: dict[str, Any] = field(default_factory=dict)
    moving: set[Place] = field(default_factory=set)
    pinned: dict[Place, str | None] = field(default_factory=dict)
    computes: bool = True
    content_guards: ContentGuards = ContentGuards.UNUSED

    @property
    def guards_contents(self) -> bool:
        """Return whether arrays may be guarded by their content: the first time, since most never change."""
        return self.content_guards is not ContentGuards.USED

    def guarded_contents(self) -> None:
        """Remember that a compilation has done so."""
        if self.content_guards is ContentGuards.UNUSED:
            self.content_guards = ContentGuards.USED

    def note(self, sizes: SymbolicSizes) -> list[str]:
        """Remember what a compilation saw; return a sentence for each symbol that it needed as a plain int for the first time."""
        self.seen |= sizes.seen
        sentences, relations = [], sizes.relations
        for place, atom in sizes.places.items():
            pin = next((pin for pin in relations.pins if atom in pin.symbols), None)
            if pin is None or place in self.pinned or type(relations.value_of(atom)) is not int:
                continue
            sentence = self.pin(place, atom, pin)
            if place[1] is not None or place in self.moving:
                sentences.append(sentence)
        return sentences

    def pin(self, place: Place, atom: Atom, pin: Pin) -> str:
        """Remember that a program needs a symbol as a plain int, and return that as a sentence."""
        self.pinned[place] = pin.where
        return f"{atom.origin} is compiled for each value, since {pin.where} needs it as a plain number"

    @contextmanager
    def pinning(self, sources: Iterable[str]) -> Iterator[None]:
        """Pin the numbers at sources, but where the block raises."""
        places = [(source, None) for source in sources]
        self.pinned |= dict.fromkeys(places)
        try:
            yield
        except BaseException:
            for place in places:
                self.pinned.pop(place, None)
            raise


class SymbolicSizes:
    """The symbols of one compilation.

    Args:
        history: of the function.
        dynamic: True makes a symbol of every size above 1, and every int above 1, in the arguments; False of those alone that are marked;
            None also of those that have changed since an earlier compilation, wherever they were read.
        plain: whether there are none since an executor takes no symbols: ints that have changed are inputs then, as floats are.
    """

    def __init__(self, history: SizeHistory, dynamic: bool | None, plain: bool = False):
        self.history, self.dynamic, self.plain = history, dynamic, plain
        self.restart()

    def restart(self) -> None:
        """Forget the symbols: the call is traced again."""
        self.relations = Relations(user_line, user_operation)
        self.seen: dict[str, Any] = {}
        self.places: dict[Place, Atom] = {}
        self.sources: dict[str, int] = {}  # places -> ids of their sources, which hold functions and are not held for that
        self.floats: dict[str, NumberProxy] = {}  # where the floats are that are inputs, and the numbers that the program has for them
        self.of_tensor: dict[Any, list[tuple[int, Atom]]] = {}  # a traced tensor -> its symbolic dimensions
        self.of_strides: dict[Any, list[Any]] = {}  # a traced tensor -> the guards that read its symbolic strides

    def __bool__(self) -> bool:
        return bool(self.places or self.floats)

    def moves(self, value: Any, source: Source) -> bool:
        """Return whether a number, or a random generator, has changed between compilations, so that it becomes an input."""
        place = repr(source), None
        before = self.history.seen.get(place[0])
        self.history.seen[place[0]] = value
        if type(before) is type(value) and before != value and (before == before or value == value):  # nan is nan
            self.history.moving.add(place)
        allowed = (self.dynamic is not False or self.plain) and place in self.history.moving and place not in self.history.pinned
        return allowed and self._is_alone(place[0], source)

    @contextmanager
    def without_floats(self, error: BaseException) -> Iterator[list[str]]:
        """Pin the float that `error` says is needed as a plain number, or all of them, but where the block raises; yield that as sentences."""
        needed = getattr(error, "proxy", None)
        places = [place for place, number in self.floats.items() if number is needed] or list(self.floats)
        with self.history.pinning(places):
            yield [f"{place} is compiled for each value, since it is needed as a plain number: {type(error).__name__}: {error}" for place in places]

    def spec(self, spec: TensorSpec, tensor: torch.Tensor, source: Source) -> tuple[TensorSpec, list[tuple[int, Atom]], tuple | None]:
        """Return the spec of an input with symbols, which dimensions have them, and the strides that the tensor itself has; None for row-major."""
        symbols = {dim: self.symbol((repr(source), dim), spec.shape[dim], *bounds) for dim, bounds in self._dynamic_dims(tensor, source)}
        if not symbols:
            return spec, [], spec.strides
        shape = tuple([symbols.get(dim, n) for dim, n in enumerate(spec.shape)])
        rows = [(dim, self.places[repr(source), dim]) for dim in symbols]
        if spec.strides is None:
            return spec.like(shape=shape), rows, None
        strides, actual = spec.strides, tuple(tensor.stride())  # they differ where a size is 1
        if spec.is_dense:
            order = tuple(sorted(range(len(shape)), key=lambda d: (-spec.steps[d], d)))
            strides, known = strides_in_order(shape, order), strides_in_order(spec.shape, order)
            actual = tuple([s if n == own else own for s, n, own in zip(strides, known, actual, strict=True)])
        return spec.like(shape=shape, strides=strides), rows, actual

    def is_moving(self, tensor: torch.Tensor, source: Source) -> bool:
        """Return whether a dimension of an input is a symbol."""
        return bool(self._dynamic_dims(tensor, source))

    def integer(self, value: int, source: Source) -> Size | None:
        """Return a symbol for an int that was read at `source`; None where it stays an int, which is guarded."""
        place = (repr(source), None)
        before = self.history.seen.get(place[0])
        self.seen[place[0]] = value
        if type(before) is int and before != value:
            self.history.moving.add(place)
        declared = self.dynamic is True and source.root.kind == "arg"
        dynamic = declared or (self.dynamic is None and place in self.history.moving)
        if not dynamic or not SMALLEST <= value <= _LARGEST or place in self.history.pinned:
            return None
        return self.symbol(place, value, 0, _LARGEST) if self._is_alone(place[0], source) else None

    def _is_alone(self, name: str, source: Source) -> bool:
        """Return whether no other object has that name: two enum members are both `colour`."""
        return self.sources.setdefault(name, id(source)) == id(source)

    def symbol(self, place: Place, hint: int, low: int, high: int | None) -> Size:
        """Return the symbol of a place, which is `hint` in this call, and is created when it is read first."""
        source, dim = place
        if place in self.places:
            return self.relations.value_of(self.places[place])
        size = self.relations.symbol(hint, low=low, high=high, origin=source if dim is None else f"{source}.shape[{dim}]")
        atom = self.relations.atoms[-1]
        atom.proxy = NumberProxy(atom.name, NumberSpec("int"))
        self.places[place] = atom
        return size

    def _dynamic_dims(self, tensor: torch.Tensor, source: Source) -> list[tuple[int, tuple[int, int | None]]]:
        """Return the dimensions of an input that are symbols, with their bounds."""
        text, shape = repr(source), tuple(tensor.shape)
        if not self._is_alone(text, source):
            return []
        before, self.seen[text] = self.history.seen.get(text), shape
        if type(before) is tuple and len(before) == len(shape):
            self.history.moving |= {(text, d) for d, (a, b) in enumerate(zip(before, shape, strict=True)) if a != b}
        marks = getattr(tensor, _MARKS, {})
        argument = source.root.kind == "arg" and not isinstance(tensor, torch.nn.Parameter)
        rows = []
        for dim, n in enumerate(shape):
            dynamic = (self.dynamic is True and argument) or (self.dynamic is None and (text, dim) in self.history.moving)
            bounds = marks.get(dim, (SMALLEST, None) if dynamic else None)
            if bounds is not None and n >= bounds[0] and (bounds[1] is None or n <= bounds[1]) and (text, dim) not in self.history.pinned:
                rows.append((dim, bounds))
        return rows

"""Indexing, `x[key]`: a view for slices, ints and None; gathered elements for integer tensors, lists and masks.

A key is resolved into a view and the positions to gather from it.  PyTorch and NumPy differ in one thing: beside integer arrays NumPy counts an int
as one of them, which decides where the picked dimensions go; `ints_pick` selects NumPy's rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from dovetail import dtypes, prims
from dovetail.errors import InputError, TracedValueError, require
from dovetail.langs.core.broadcasting import broadcast_shapes, convert, expand
from dovetail.langs.core.elementwise import where
from dovetail.prims import TensorSpec
from dovetail.prims.shape import replaced
from dovetail.prims.sizes import Size, index_of, same_shape
from dovetail.prims.spec import dense
from dovetail.trace import TensorProxy


class Pick(NamedTuple):
    """A dimension of a view, int64 positions in it that count from the front, and the spec of the original index."""

    dim: int
    index: TensorProxy
    index_spec: TensorSpec


@dataclass(frozen=True)
class Selection:
    """A key applied to a tensor, as far as it is a view: `picks` and `masks` are the dimensions of `view` that the rest of the key selects from.

    `marks` has a letter for each dimension of the key's result in order: "k" kept, "p" picked (with the other "p"s one block of dimensions).
    """

    view: TensorProxy
    picks: tuple[Pick, ...]
    masks: tuple[tuple[int, TensorProxy], ...]
    marks: str

    @property
    def block_at(self) -> int:
        """The position of the picked dimensions among the kept ones: theirs, or the front where kept ones separate them."""
        block = self.marks.strip("k")
        return self.marks.index("p") if block and "k" not in block else 0


def resolve_key(x: TensorProxy, key: Any, *, ints_pick: bool = False) -> Selection:
    """Split `key` into a view of x and the positions and masks to gather from it."""
    reader = _Reader(x, ints_pick)
    for item in complete_key(x, key):
        reader.take(item)
    return reader.selection()


def complete_key(x: TensorProxy, key: Any) -> list[Any]:
    """Return the items of `key` for each dimension of x in turn: ints, bools, slices, None, traced tensors, and nested tuples of Python numbers."""
    return _without_ellipsis(x, [_item(i, x) for i in (key if isinstance(key, tuple) else (key,))])


def _item(item: Any, x: TensorProxy) -> Any:
    """Return one item of a key: an int, bool, slice, None, Ellipsis, traced tensor, or a nest of Python numbers."""
    if item is None or item is Ellipsis or isinstance(item, (slice, TensorProxy, bool)):
        return item
    if hasattr(item, "tolist"):  # a NumPy array or number
        item = item.tolist()
    if isinstance(item, (list, tuple, range)):
        nest = _nest(item)
        return _joined(nest, x) if any([isinstance(leaf, TensorProxy) for leaf in _flat(nest)]) else nest
    try:
        return item if isinstance(item, bool) else index_of(item)
    except TracedValueError:
        raise
    except TypeError:
        message = "only integers, slices (`:`), ellipsis (`...`), None and integer or bool tensors are valid indices, got {}"
        require(False, message, type(item).__name__, error=IndexError)


def _nest(items: Sequence[Any]) -> tuple:
    return tuple([_nest(i) if isinstance(i, (list, tuple, range)) else i for i in items])


def _joined(nest: tuple, x: TensorProxy) -> TensorProxy:
    """Return a nest of ints and of tensors that hold one as a tensor."""
    leaves, shape = _flat(nest), _nest_shape(nest)
    for leaf in leaves:
        is_position = leaf.spec.dtype.kind == "int" and not leaf.spec.shape if isinstance(leaf, TensorProxy) else type(leaf) is int
        require(is_position, "expected a list of ints, or of tensors that hold one, as an index, got one with {}", leaf, error=IndexError)
    numbers = [n if isinstance(n, TensorProxy) else prims.full(shape=(), value=n, dtype=dtypes.int64, device=x.spec.device) for n in leaves]
    parts = prims.cat([prims.reshape(convert(n, dtypes.int64), shape=(1,)) for n in numbers], dim=0)
    return parts if shape == (len(leaves),) else prims.reshape(parts, shape=shape)


def _flat(nest: Any) -> list[Any]:
    return [leaf for item in nest for leaf in _flat(item)] if isinstance(nest, tuple) else [nest]


def _nest_shape(nest: Any) -> tuple[int, ...]:
    return (len(nest), *(_nest_shape(nest[0]) if nest else ())) if isinstance(nest, tuple) else ()


def _is_mask(item: Any) -> bool:
    """Return whether a key item is a mask: a bool tensor, or a uint8 one as in old programs."""
    return isinstance(item, TensorProxy) and item.spec.dtype in (dtypes.bool_, dtypes.uint8)


def consumed(item: Any) -> int:
    """Return the number of dimensions of the tensor that a key item indexes."""
    if item is None or item is Ellipsis or isinstance(item, bool):
        return 0
    if _is_mask(item):
        return len(item.spec.shape)
    if isinstance(item, tuple) and _all_bools(item):
        return len(_nest_shape(item))
    return 1


def _all_bools(nest: tuple) -> bool:
    leaves = _flat(nest)
    return bool(leaves) and all([isinstance(leaf, bool) for leaf in leaves])


def _without_ellipsis(x: TensorProxy, items: list[Any]) -> list[Any]:
    """Replace the ellipsis by full slices, or append them, so that each dimension of x has its item."""
    rank = len(x.spec.shape)
    spare = rank - sum(map(consumed, items))
    if not rank and spare < 0:
        require(False, "invalid index of a 0-dim tensor; use .item() to convert it to a number", error=IndexError)
    require(spare >= 0, "too many indices for tensor of dimension {}", rank, error=IndexError)
    at = next((i for i, item in enumerate(items) if item is Ellipsis), None)
    if at is None:
        return [*items, *[slice(None)] * spare]
    return [*items[:at], *[slice(None)] * spare, *[item for item in items[at + 1 :] if item is not Ellipsis]]


class _Reader:
    """Reads the items of a complete key one by one."""

    def __init__(self, x: TensorProxy, ints_pick: bool):
        self.x, self.ints_pick = x, ints_pick
        self.windows: list[tuple[int, int, int]] = []  # start, stop, step for each dimension of x
        self.dropped: list[int] = []  # dimensions of x
        self.added: list[int] = []  # dimensions of the view
        self.rank = 0  # of the view so far
        self.picks: list[tuple[int, Any]] = []
        self.masks: list[tuple[int, TensorProxy]] = []
        self.marks: list[str] = []

    @property
    def size(self) -> int:
        """The size of x's next dimension."""
        return self.x.spec.shape[len(self.windows)]

    def take(self, item: Any) -> None:
        """Process the next item of the key."""
        if isinstance(item, bool):
            self.add()
            self.pick((0,) if item else ())
        elif item is None:
            self.add()
            self.mark("k")
        elif isinstance(item, slice):
            self.windows.append(window(item, self.size))
            self.mark("k")
        elif isinstance(item, (int, Size)):
            self.integer(item)
        elif _is_mask(item):
            self.mask(item)
        elif isinstance(item, TensorProxy):
            require(item.spec.dtype.kind == "int", "tensors used as indices must be of an integer dtype or bool, got {}", item.spec, error=IndexError)
            self.keep()
            self.pick(item)
        else:
            self.constant(item)

    def mark(self, letter: str) -> None:
        self.marks.append(letter)
        self.rank += 1

    def add(self) -> None:
        self.added.append(self.rank)

    def keep(self) -> None:
        self.windows.append((0, self.size, 1))

    def pick(self, index: Any) -> None:
        self.picks.append((self.rank, index))
        scalar = isinstance(index, TensorProxy) and not index.spec.shape
        if scalar and not self.ints_pick:
            self.rank += 1
        else:
            self.mark("p")

    def integer(self, i: int) -> None:
        n = self.size
        if not -n <= i < n:
            message = "index {} is out of bounds for dimension {} with size {}"
            require(False, message, i, len(self.windows), n, error=IndexError)
        i = i + n if i < 0 else i
        self.dropped.append(len(self.windows))
        self.windows.append((i, i + 1, 1))
        if self.ints_pick:
            self.marks.append("p")

    def mask(self, mask: TensorProxy) -> None:
        shape, at = mask.spec.shape, len(self.windows)
        self.check_mask(shape)
        if not shape:
            self.add()
            self.masks.append((self.rank, mask))
            self.mark("p")
            return
        self.masks.append((self.rank, mask))
        self.windows += [(0, n, 1) for n in self.x.spec.shape[at : at + len(shape)]]
        self.marks.append("p")
        self.rank += len(shape)

    def check_mask(self, shape: tuple[int, ...]) -> None:
        at = len(self.windows)
        for d, n in enumerate(shape):
            message = "The shape of the mask {} at index {} does not match the shape of the indexed tensor {} at index {}"
            require(n == self.x.spec.shape[at + d], message, list(shape), d, list(self.x.spec.shape), at + d, error=IndexError)

    def constant(self, nest: tuple) -> None:
        """Take a list: positions, or a mask, converted to the positions of its true elements."""
        if not _all_bools(nest):
            n = self.size
            self.keep()
            self.pick(_positions(nest, n, len(self.windows) - 1))
            return
        shape = _nest_shape(nest)
        self.check_mask(shape)
        places = _true_places(nest)
        for d in range(len(shape)):
            self.keep()
            self.pick(tuple([place[d] for place in places]))

    def selection(self) -> Selection:
        view = self.basic()
        return Selection(view, tuple([_pick(view, d, index) for d, index in self.picks]), tuple(self.masks), "".join(self.marks))

    def basic(self) -> TensorProxy:
        """Return the view that the basic part of the key selects; x itself where the rest of the key indexes all of it."""
        view, shape = self.x, self.x.spec.shape
        full = all([start == 0 and stop == n and step == 1 for (start, stop, step), n in zip(self.windows, shape, strict=True)])
        if not full or not (self.dropped or self.added or self.picks or self.masks):
            starts, stops, steps = zip(*self.windows, strict=True) if self.windows else ((), (), ())
            view = prims.strided_slice(view, starts=starts, stops=stops, steps=steps)
        if self.dropped:
            view = prims.squeeze(view, dims=tuple(self.dropped))
        if self.added:
            added = set(self.added)
            positions = tuple([d for d in range(self.rank) if d not in added])
            sizes = iter(view.spec.shape)
            view = prims.broadcast_in_dim(view, shape=tuple([1 if d in added else next(sizes) for d in range(self.rank)]), dims=positions)
        return view


def sliced(x: TensorProxy, dim: int, start: int, stop: int, step: int = 1) -> TensorProxy:
    """Return the view x[start:stop:step] in dimension `dim`, counted from 0."""
    shape = x.spec.shape
    starts, steps = replaced((0,) * len(shape), dim, start), replaced((1,) * len(shape), dim, step)
    return prims.strided_slice(x, starts=starts, stops=replaced(shape, dim, stop), steps=steps)


def window(item: slice, n: int) -> tuple[int, int, int]:
    """Return start, stop and step of a slice of a dimension of size n, within bounds and in order."""
    step = 1 if item.step is None else index_of(item.step)
    require(step > 0, "step must be greater than zero, got {}; flip the tensor for the other direction", step, error=ValueError)
    start = 0 if item.start is None else index_of(item.start)
    stop = n if item.stop is None else index_of(item.stop)
    start, stop = min(max(start + n if start < 0 else start, 0), n), min(max(stop + n if stop < 0 else stop, 0), n)
    return start, max(start, stop), step


def _positions(nest: Any, n: int, dim: int) -> Any:
    """Return nested positions counted from the front."""
    if isinstance(nest, tuple):
        return tuple([_positions(item, n, dim) for item in nest])
    fits = isinstance(nest, int) and not isinstance(nest, TensorProxy)
    require(
        fits, "expected a list of ints or of bools as an index, got one with {}; stack traced numbers first", type(nest).__name__, error=IndexError
    )
    require(-n <= nest < n, "index {} is out of bounds for dimension {} with size {}", nest, dim, n, error=IndexError)
    return nest + n if nest < 0 else int(nest)


def _true_places(nest: Any) -> list[tuple[int, ...]]:
    """Return the positions of True in nested tuples of bools, in order."""
    if not isinstance(nest, tuple):
        return [()] if nest else []
    return [(i, *place) for i, item in enumerate(nest) for place in _true_places(item)]


def _pick(view: TensorProxy, dim: int, index: Any) -> Pick:
    device = view.spec.device
    if not isinstance(index, TensorProxy):
        constant = prims.tensor_from_sequence(values=index, dtype=dtypes.int64, device=device)
        return Pick(dim, constant, constant.spec)
    moved = index if index.spec.device is device else prims.device_put(index, device=device)
    return Pick(dim, from_front(moved, view.spec.shape[dim]), index.spec)


def from_front(index: TensorProxy, n: int) -> TensorProxy:
    """Convert `index` to int64 and negative positions to ones counted from the front of a dimension of size n."""
    index = convert(index, dtypes.int64)
    return prims.where(prims.lt(index, 0), prims.add(index, n), index)


def _together(shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    try:
        return broadcast_shapes(*shapes)
    except InputError:
        words = ", ".join([str(list(shape)) for shape in shapes])
        require(False, "shape mismatch: indexing tensors could not be broadcast together with shapes {}", words, error=IndexError)


class _Picked:
    """A selection with the picked dimensions moved to the front, and its indices broadcast to one shape."""

    def __init__(self, chosen: Selection):
        view = chosen.view
        picked_dims = {pick.dim for pick in chosen.picks}
        other_dims = [d for d in range(len(view.spec.shape)) if d not in picked_dims]
        self.chosen, self.other_dims = chosen, other_dims
        self.order = (*[pick.dim for pick in chosen.picks], *other_dims)
        self.block = _together([pick.index.spec.shape for pick in chosen.picks])
        self.at = chosen.block_at
        sizes = [view.spec.shape[d] for d in other_dims]
        self.shape = (*sizes[: self.at], *self.block, *sizes[self.at :])

    def indices(self) -> list[TensorProxy]:
        return [expand(pick.index, self.block) for pick in self.chosen.picks]

    def in_front(self, x: TensorProxy) -> TensorProxy:
        """Move the picked dimensions of x, shaped like the view, to the front."""
        return x if self.order == tuple(range(len(self.order))) else prims.transpose(x, order=self.order)

    def back(self, x: TensorProxy) -> TensorProxy:
        """Restore the view's order of dimensions: the inverse of `in_front`."""
        order = self.order
        return x if order == tuple(range(len(order))) else prims.transpose(x, order=tuple([order.index(d) for d in range(len(order))]))

    def block_back(self, x: TensorProxy) -> TensorProxy:
        """Move the block of picked dimensions from the front to its position."""
        if not self.at or not self.block:
            return x
        k, at = len(self.block), self.at
        return prims.transpose(x, order=(*range(k, k + at), *range(k), *range(k + at, len(self.shape))))

    def block_in_front(self, x: TensorProxy) -> TensorProxy:
        """Move the block to the front: the inverse of `block_back`."""
        if not self.at or not self.block:
            return x
        k, at = len(self.block), self.at
        return prims.transpose(x, order=(*range(at, at + k), *range(at), *range(at + k, len(self.shape))))

    def layout(self) -> TensorSpec:
        """Return PyTorch's layout of the result: that of an elementwise operation on the view, with stride 0 in the block, and the indices."""
        view, at, k = self.chosen.view.spec, self.at, len(self.block)
        steps = [view.steps[d] for d in self.other_dims]
        operands = [TensorSpec(self.shape, view.dtype, view.device).view(self.shape, (*steps[:at], *(0,) * k, *steps[at:]))]
        for pick in self.chosen.picks:
            lead = k - len(pick.index_spec.shape)
            sizes = zip(pick.index_spec.shape, pick.index_spec.steps, self.block[lead:], strict=True)
            own = [0 if n == 1 and wide != 1 else step for n, step, wide in sizes]
            strides = (*(0,) * (at + lead), *own, *(0,) * (len(self.shape) - at - k))
            operands.append(TensorSpec(self.shape, dtypes.int64, view.device).view(self.shape, strides))
        return dense(*operands)


def picked(chosen: Selection) -> TensorProxy:
    """Return the elements at the picked positions, in new storage."""
    place = _Picked(chosen)
    indices, view = place.indices(), chosen.view
    if len(indices) == 1 and len(place.block) == 1 and place.at == chosen.picks[0].dim:
        result = prims.take(view, indices[0], dim=chosen.picks[0].dim)
    else:
        result = place.block_back(prims.index(place.in_front(view), indices))
    return in_layout(result, place.layout())


def in_layout(x: TensorProxy, layout: TensorSpec) -> TensorProxy:
    """Return x with the strides of `layout`, a dense spec of its shape; x itself where it has them."""
    return x if x.spec.strides == layout.strides else copied(x, layout)


def copied(x: TensorProxy, layout: TensorSpec) -> TensorProxy:
    """Copy x to new storage with the strides of `layout`, a dense spec of its shape."""
    if layout.strides is None:
        return prims.clone(x)
    return prims.stride_order(x, order=layout.order)


def clone(x: TensorProxy) -> TensorProxy:
    """Copy x to new storage, keeping the memory order of its dimensions."""
    return copied(x, dense(x.spec, alike=False))


def with_picked(chosen: Selection, value: TensorProxy, *, accumulate: bool = False) -> TensorProxy:
    """Return the view with `value` broadcast and written to, or added to, the picked positions."""
    place = _Picked(chosen)
    value = place.block_in_front(fitting(value, place.shape))
    return place.back(prims.index_put(place.in_front(chosen.view), place.indices(), value, accumulate=accumulate))


def fitting(value: TensorProxy, shape: tuple[int, ...]) -> TensorProxy:
    """Broadcast `value` to `shape`, dropping extra leading dimensions of size 1."""
    own = value.spec.shape
    spare = len(own) - len(shape)
    if spare > 0 and all([n == 1 for n in own[:spare]]):
        value, own = prims.squeeze(value, dims=tuple(range(spare))), own[spare:]
    fits = len(own) <= len(shape) and all([n in (1, m) for n, m in zip(reversed(own), reversed(shape), strict=False)])
    require(fits, "shape mismatch: value tensor of shape {} cannot be broadcast to indexing result of shape {}", list(own), list(shape))
    return expand(value, shape)


def with_masked(chosen: Selection, value: Any, refuse: Callable[[], None], *, combine: Callable[[Any, Any], Any] | None = None) -> TensorProxy:
    """Return the view with `value`, or `combine(view, value)`, where the one mask holds.

    `value`, a number or a tensor of the view's dtype, may not vary along the dimension of the selected elements; where it does, `refuse` is called.
    """
    (at, mask), view = chosen.masks[0], chosen.view
    if mask.spec.dtype is not dtypes.bool_:
        mask = prims.ne(mask, 0)
    if mask.spec.device is not view.spec.device:
        mask = prims.device_put(mask, device=view.spec.device)
    rank = len(view.spec.shape)
    width = max(len(mask.spec.shape), 1)
    after = rank - at - width
    mask = prims.broadcast_in_dim(
        mask, shape=(*(1,) * at, *(mask.spec.shape or (1,)), *(1,) * after), dims=tuple(range(at, at + len(mask.spec.shape)))
    )
    if isinstance(value, TensorProxy):
        shape = value.spec.shape
        if len(shape) > after:
            if shape[-1 - after] != 1:
                refuse()
            split = len(shape) - after
            value = _reshaped(value, (*shape[: split - 1], *(1,) * width, *shape[split:]))
        value = fitting(value, view.spec.shape)
    return where(mask, value if combine is None else combine(view, value), view)


def _reshaped(value: TensorProxy, shape: tuple[int, ...]) -> TensorProxy:
    return value if same_shape(value.spec.shape, shape) else prims.reshape(value, shape=shape)

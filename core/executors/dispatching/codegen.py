"""What executors that generate code for regions share: what makes two regions equal, a cache by that, and a way to run without a kernel."""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from threading import Lock
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

from dovetail.errors import ExecutorError
from dovetail.executors.contract.declaration import is_claim
from dovetail.executors.contract.executor import OperatorExecutor
from dovetail.executors.discovery.registry import executors
from dovetail.trace import BoundSymbol, TensorProxy, Trace, brief, prims_of, sizes, to_callable

T = TypeVar("T")
_keys: WeakKeyDictionary[Trace, tuple] = WeakKeyDictionary()  # what regions are of, and their keys: executors and trials compute them of one region


def region_key(region: Trace, own: Callable[[Any], Any] | None = None) -> tuple[Hashable, ...]:
    """Return a region without its names: equal for regions that compute the same of tensors with the same shapes, dtypes, strides and devices.

    Which values an operation with a decomposition returns is a part of it, since an executor may round what lies between its prims otherwise.
    `own` gives symbolic sizes names of the region's own, as `RegionSizes.own`.
    """
    if own is not None:
        return _structure(region, own)
    is_of = (*region.inputs, *region.lines, *region.outputs)
    kept = _keys.get(region)
    if kept is None or not identical(kept[0], is_of):
        kept = _keys[region] = is_of, _structure(region, None)
    return kept[1]


def identical(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Return whether two sequences hold the same objects."""
    return len(a) == len(b) and all(map(operator.is_, a, b))


def _structure(region: Trace, own: Callable[[Any], Any] | None) -> tuple[Hashable, ...]:
    numbers: dict[Any, int] = {}

    def plain(value: Any) -> Hashable:
        if hasattr(value, "spec"):
            return ("t", numbers[value])
        if isinstance(value, (list, tuple)):
            return tuple(map(plain, value))
        return (type(value).__name__, repr(value if own is None else own(value)))

    def spec(proxy: Any) -> Hashable:
        numbers[proxy] = len(numbers)
        if not isinstance(proxy, TensorProxy):
            return str(proxy.spec) if own is None else str(own(proxy))
        shape, strides = proxy.spec.shape, proxy.spec.strides
        if own is not None:
            shape, strides = str(own(shape)), str(own(strides))
        return shape, proxy.spec.dtype.name, strides, str(proxy.spec.device)

    rows: list[Hashable] = [tuple(map(spec, region.inputs))]
    for line in region.lines:
        shown = set(line.writes)
        for part in prims_of([line]):
            call = (part.symbol.name, plain(part.args), tuple((name, plain(value)) for name, value in part.kwargs.items()))
            rows.append((*call, tuple(map(spec, part.writes)), tuple(p in shown for p in part.writes)))
    return (*rows, tuple(numbers[p] for p in region.outputs))


class KernelCache(Generic[T]):
    """Kernels by key, the last used last; the least recently used goes where there are more than `most`. Threads may share one."""

    def __init__(self, most: int = 512):
        self.most, self.kernels = most, OrderedDict[Hashable, T]()
        self.lock = Lock()

    def get(self, key: Hashable, compile: Callable[[], T]) -> T:
        """Return the kernel of a key; where there is none, the one that `compile` returns."""
        with self.lock:
            if key in self.kernels:
                self.kernels.move_to_end(key)
                return self.kernels[key]
        kernel = compile()  # outside the lock: other threads go on
        with self.lock:
            self.kernels[key] = kernel
            while len(self.kernels) > self.most:
                self.kernels.popitem(last=False)
        return kernel


def line_by_line(region: Trace, *, whole: bool = False) -> Callable[..., tuple]:
    """Return a region as a program of its prims, each run by an executor of last resort; with `whole`, of composites where one has those."""
    last = [ex for ex in executors() if ex.last_resort and isinstance(ex, OperatorExecutor)]
    plain = region.derive("dispatch")
    plain.lines = [placed for line in region.lines for placed in _run_by(line, last, whole)]
    return to_callable(sizes(plain))


def _run_by(line: BoundSymbol, last: Sequence[OperatorExecutor], whole: bool) -> Iterator[BoundSymbol]:
    """Yield a line with what runs it, or the lines of its decomposition with theirs."""
    if not line.body or whole:
        for ex in last:
            implementation = ex.implementation(line.symbol)
            if implementation is not None and (not line.body or (implementation.execution_transform is None and is_claim(ex.verdict(line)))):
                yield line.replace(implementation=ex.choose_variant(implementation, line))
                return
    if not line.body:
        raise ExecutorError(f"no executor of last resort runs {line.symbol}, a part of {brief(line.out)}; install dovetail-torch-exec")
    for inner in line.body:
        yield from _run_by(inner, last, whole)

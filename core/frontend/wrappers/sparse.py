"""Sparse matrices of coordinates: what a program does with them it does with their positions and values.

Those from outside are seen as they are; one that the program creates is seen as an empty one of its size.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from dovetail import prims
from dovetail.errors import Unsupported
from dovetail.frontend.class_lookup import NULL
from dovetail.frontend.classify_calls import is_torch
from dovetail.frontend.subclasses import is_sparse
from dovetail.langs.torch import SymbolicInt
from dovetail.trace import TensorProxy, leaves, user_line

if TYPE_CHECKING:
    from dovetail.frontend.interpreter.tracking.tracker import Tracker


class Matrix(NamedTuple):
    """The value values[i] stands at rows[i], columns[i], and is added to others there; `seen` is the tensor that the program sees.

    `in_order`: the positions are known to be in order, each once, which eager PyTorch calls coalesced.  `indices` has rows and columns in one
    tensor; None where the program sees none.
    """

    seen: torch.Tensor
    rows: TensorProxy
    columns: TensorProxy
    values: TensorProxy
    size: tuple[Any, Any]
    in_order: bool = False
    indices: TensorProxy | None = None


class SparseMatrices:
    """The sparse matrices of one run.  `created` maps the id of each that the program has created to it."""

    def __init__(self, created: dict[int, torch.Tensor]):
        self.created = created
        self.matrices: dict[int, Matrix] = {}

    def of(self, tracker: Tracker, x: torch.Tensor) -> Matrix:
        """Return what a sparse matrix consists of, read from outside where the program has not created it."""
        if id(x) not in self.matrices:
            self.matrices[id(x)] = _read(tracker, x)
        return self.matrices[id(x)]

    def call(self, tracker: Tracker, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Call a function of torch that gets a sparse matrix; NULL for other calls."""
        if not is_torch(function) or not any(map(is_sparse, leaves((args, kwargs)))):
            return NULL
        rule = _RULES.get(function)
        if rule is None or not kwargs.keys() <= {"beta", "alpha", "dim"}:
            raise _untraced(getattr(function, "__name__", str(function)))
        return rule(self, tracker, *args, **kwargs)

    def create(self, tracker: Tracker, indices: Any, values: Any, size: Any = None, **options: Any) -> torch.Tensor:
        """Return torch.sparse_coo_tensor(indices, values, size)."""
        in_order = options.pop("is_coalesced", None) is True
        same = {name: getattr(values, name, None) for name in ("dtype", "device")}
        options = {name: value for name, value in options.items() if value not in (None, False, same.get(name))}
        traced = isinstance(indices, TensorProxy) and isinstance(values, TensorProxy) and len(values.shape) == 1
        if not traced or size is None or len(size) != 2 or indices.dtype is not torch.int64 or options:
            raise Unsupported(
                "torch.sparse_coo_tensor is traced with two rows of int64 positions, a vector of values and a size, without other arguments; "
                f"create other tensors outside the compiled function\n  called at {user_line()}"
            )
        return self._new(torch.sparse_coo, indices[0], indices[1], values, tuple(size), in_order, indices)

    def _new(self, layout: torch.layout, *parts: Any) -> torch.Tensor:
        seen = torch.empty((1, 1), dtype=parts[2].dtype, layout=layout)
        self.created[id(seen)] = seen
        self.matrices[id(seen)] = Matrix(seen, *parts)
        return seen

    def property(self, tracker: Tracker, x: torch.Tensor, name: str) -> Any:
        """Return an attribute of a sparse matrix that is no method."""
        if name in ("T", "mT"):
            return self.transposed(tracker, x)
        if name in ("dtype", "layout", "ndim", "is_sparse", "is_sparse_csr"):
            return getattr(x, name)
        if name == "shape":
            return self.size(tracker, x)
        if name in ("device", "requires_grad", "is_cuda", "is_cpu"):
            return getattr(self.of(tracker, x).values, name)
        raise _untraced(f".{name}")

    def size(self, tracker: Tracker, x: torch.Tensor, dim: int | None = None) -> Any:
        size = torch.Size(self.of(tracker, x).size)
        return size if dim is None else size[dim]

    def transposed(self, tracker: Tracker, x: torch.Tensor, *dims: int) -> torch.Tensor:
        if dims and {d % 2 for d in dims} != {0, 1}:
            raise _untraced(f"transpose{dims}")
        m = self._coordinates(tracker, x, "a transpose")
        return self._new(torch.sparse_coo, m.columns, m.rows, m.values, m.size[::-1])

    def multiplied(self, tracker: Tracker, a: Any, b: Any, *others: Any, ranks: tuple[int, ...] = (1, 2)) -> TensorProxy:
        """Return the product of a sparse matrix and a dense matrix or vector."""
        fits = is_sparse(a) and isinstance(b, TensorProxy) and len(b.shape) in ranks and not others
        m = self.of(tracker, a) if fits else None
        if m is None or b.dtype is not m.values.dtype or not (b.is_floating_point() or b.is_complex()) or b.shape[0] != m.size[1]:
            raise _untraced("a product with other than a dense matrix or vector of its dtype,")
        if torch.is_autocast_enabled(b.device.type):
            raise _untraced("a product in autocast")
        x = b if len(b.shape) == 2 else b.unsqueeze(1)
        out = prims.coo_mm(m.rows, m.columns, m.values, x, num_rows=_size(m.size[0]))
        return out if x is b else out.squeeze(1)

    def added(self, tracker: Tracker, input: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> TensorProxy:
        """Return beta * input + alpha * (a @ b)."""
        if not isinstance(input, TensorProxy):
            raise _untraced("a sum with a sparse matrix")
        product = self.multiplied(tracker, a, b)
        product = product if alpha == 1 else product * alpha
        return (input if beta == 1 else input * beta) + product

    def dense(self, tracker: Tracker, x: torch.Tensor) -> TensorProxy:
        m = self.of(tracker, x)
        zeros = tracker.call(torch.zeros, [m.size], {"dtype": m.values.dtype, "device": m.values.device}, None)
        return zeros.index_put((m.rows, m.columns), m.values, accumulate=True)

    def itself(self, tracker: Tracker, x: torch.Tensor, *args: Any) -> torch.Tensor:
        """Return the matrix, where that is what a conversion returns: on the device or in the dtype that it has."""
        m = self.of(tracker, x)
        if not all([isinstance(each, (torch.dtype, torch.device)) and each in (m.values.dtype, m.values.device) for each in args]):
            raise _untraced("a conversion")
        return x

    def detached(self, tracker: Tracker, x: torch.Tensor) -> torch.Tensor:
        m = self.of(tracker, x)
        return self._new(x.layout, *m._replace(values=m.values.detach())[1:])

    def by_rows(self, tracker: Tracker, x: torch.Tensor) -> torch.Tensor:
        """Return the matrix as one of compressed rows."""
        m = self.of(tracker, x)
        return self._new(torch.sparse_csr, *m[1:])

    def _coordinates(self, tracker: Tracker, x: torch.Tensor, what: str, *, in_order: bool = False) -> Matrix:
        """Return what a matrix of coordinates consists of, `in_order` where it has to be, for what others do not have."""
        m = self.of(tracker, x)
        if x.layout is not torch.sparse_coo or (in_order and not m.in_order):
            raise _untraced(what)
        return m

    def coalesced(self, tracker: Tracker, x: torch.Tensor) -> torch.Tensor:
        """Return the matrix, of which positions have to be in order: how many there are once they are follows from their values."""
        self._coordinates(tracker, x, "coalesce() where positions are not known to be in order", in_order=True)
        return x

    def indices(self, tracker: Tracker, x: torch.Tensor, *, in_order: bool = True) -> TensorProxy:
        m = self._coordinates(tracker, x, "indices()", in_order=in_order)
        if m.indices is None:
            raise _untraced("indices()")
        return m.indices

    def values(self, tracker: Tracker, x: torch.Tensor, *, in_order: bool = True) -> TensorProxy:
        m = self._coordinates(tracker, x, "values()", in_order=in_order)
        return m.values if in_order else m.values.detach()

    def taken_apart(self, tracker: Tracker, x: torch.Tensor) -> tuple[list[Any], Callable[..., Any]]:
        """Return what a result consists of, and the function that builds it of these."""
        m = self.of(tracker, x)
        if x.layout is not torch.sparse_coo or m.in_order or m.values.requires_grad:
            raise _untraced("a result of compressed rows, or that requires a gradient,")

        def build(rows: Any, columns: Any, values: Any, *size: int) -> torch.Tensor:
            return torch.sparse_coo_tensor(torch.stack((rows, columns)), values, size, check_invariants=False)

        return [m.rows, m.columns, m.values, *m.size], build


def _read(tracker: Tracker, x: torch.Tensor) -> Matrix:
    """Return the parts of a matrix from outside."""
    sources, source = tracker.sources, tracker.source(x)

    def part(name: str) -> Any:
        return tracker.reach(getattr(x, name)(), sources.call(sources.attr(source, name)))

    size = tuple([tracker.reach(n, sources.item(sources.attr(source, "shape"), i)) for i, n in enumerate(x.shape)])
    if x.layout is not torch.sparse_coo:
        raise _untraced("a product of compressed rows from outside,")
    indices = part("_indices")
    return Matrix(x, indices[0], indices[1], part("_values"), size, x.is_coalesced(), indices)


def _size(n: Any) -> Any:
    return n.size if type(n) is SymbolicInt else n


def _untraced(what: str) -> Unsupported:
    return Unsupported(
        f"{what} of a sparse tensor is not traced, only products of a matrix with dense tensors, .t() and .to_dense() are; "
        f"call .to_dense() outside the compiled function\n  called at {user_line()}"
    )


_T = torch.Tensor
_RULES: dict[Any, Callable[..., Any]] = {
    **dict.fromkeys((torch.mm, torch.spmm, torch.sparse.mm, _T.mm), partial(SparseMatrices.multiplied, ranks=(2,))),
    **dict.fromkeys((torch.mv, _T.mv), partial(SparseMatrices.multiplied, ranks=(1,))),
    **dict.fromkeys((torch.matmul, _T.matmul, _T.__matmul__), SparseMatrices.multiplied),
    **dict.fromkeys((torch.addmm, torch.sparse.addmm, _T.addmm), SparseMatrices.added),
    **dict.fromkeys((torch.t, _T.t, torch.transpose, _T.transpose), SparseMatrices.transposed),
    _T.to: SparseMatrices.itself,
    **dict.fromkeys((torch.detach, _T.detach), SparseMatrices.detached),
    _T.to_dense: SparseMatrices.dense,
    _T.to_sparse_csr: SparseMatrices.by_rows,
    _T.coalesce: SparseMatrices.coalesced,
    _T.is_coalesced: lambda matrices, tracker, x: matrices._coordinates(tracker, x, "is_coalesced()").in_order,
    _T.indices: SparseMatrices.indices,
    _T.values: SparseMatrices.values,
    _T._indices: partial(SparseMatrices.indices, in_order=False),
    _T._values: partial(SparseMatrices.values, in_order=False),
    _T._nnz: lambda matrices, tracker, x: matrices._coordinates(tracker, x, "_nnz()").values.shape[0],
    _T.size: SparseMatrices.size,
    _T.dim: lambda matrices, tracker, x: 2,
}

"""Products of sparse matrices, of which only the elements that are not zero are there, with their positions."""

from __future__ import annotations

from dovetail.errors import require
from dovetail.prims.indexing import require_index, take
from dovetail.prims.op import Tag, prim
from dovetail.prims.reduction import sum
from dovetail.prims.spec import TensorSpec
from dovetail.prims.unary import INEXACT, conjugated, require_kind


@prim(tags={Tag.MATMUL})
def coo_mm(rows: TensorSpec, columns: TensorSpec, values: TensorSpec, x: TensorSpec, *, num_rows: int) -> TensorSpec:
    """The product [num_rows, k] of a sparse matrix and x [n, k]: row rows[i] gets values[i] * x[columns[i]]; a position may come twice."""
    require_kind(values, INEXACT)
    require_index(values, rows, columns)
    one_shape = values.rank == 1 and rows.shape == columns.shape == values.shape
    require(one_shape, "expected a row and a column for each value, got {}, {} and {}", rows, columns, values)
    require(x.rank == 2, "expected a matrix, got {}", x)
    require(x.dtype is values.dtype and x.device is values.device, "expected x of the dtype and device of the values, got {} and {}", x, values)
    return x.fresh((num_rows, x.shape[1]))


@coo_mm.vjp
def coo_mm_vjp(g, out, rows, columns, values, x, *, num_rows):
    of_values = sum(take(g, rows, dim=0) * conjugated(take(x, columns, dim=0)), dims=(1,))
    return None, None, of_values, coo_mm(columns, rows, conjugated(values), g, num_rows=x.spec.shape[0])

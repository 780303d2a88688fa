"""Products of matrices and vectors.  Factorizations and solvers run as torch's own kernels."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch

from dovetail import dtypes, prims
from dovetail.errors import require, require_dtype
from dovetail.langs import core
from dovetail.langs.torch.binding.opaque import opaque
from dovetail.langs.torch.binding.symbol import Number, Tensor, operators, torchsymbol
from dovetail.langs.torch.reduction import reduced, require_inexact
from dovetail.prims.linalg import transposed
from dovetail.prims.shape import flat_reshape
from dovetail.prims.spec import prod as product
from dovetail.prims.spec import view_strides


def require_rank(function: str, rank: int, **tensors: Tensor) -> None:
    """Raise unless each tensor has `rank` dimensions."""
    for name, x in tensors.items():
        require(len(x.spec.shape) == rank, "{}: expected {} with {} dimensions, got {}", function, name, rank, x.spec)


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """Return the sum of a * b over one dimension, without conjugation."""
    shapes = a.spec.shape == b.spec.shape
    require(shapes, "inconsistent tensor size, expected tensor {} and src {} to have the same number of elements", a.spec, b.spec)
    require(a.spec.dtype is b.spec.dtype, "dot : expected both vectors to have same dtype, but found {} and {}", a.spec, b.spec)
    require_dtype(a.spec.dtype is not dtypes.bool_, "dot is not implemented for bool; convert first")
    wide = core.wide(a.spec.dtype)
    products = core.mul(core.convert(a, wide), core.convert(b, wide))
    return core.convert(prims.sum(products, dims=(0,)), a.spec.dtype)


def _product(a: Tensor, b: Tensor) -> Tensor:
    """torch.matmul of any ranks from 1."""
    n, m = len(a.spec.shape), len(b.spec.shape)
    require(n > 0 and m > 0, "both arguments to matmul need to be at least 1D, but they are {}D and {}D", n, m)
    if n == m == 1:
        return _dot(a, b)
    if m == 1:
        return prims.linear(b, a) if n == 2 else prims.squeeze(prims.linear(a, core.unsqueezed(b, 0)), dims=(n - 1,))
    if n == 1:
        return prims.linear(a, transposed(b)) if m == 2 else prims.squeeze(prims.linear(transposed(b), core.unsqueezed(a, 0)), dims=(m - 1,))
    if n == m == 2:
        return prims.matmul(a, b)
    rows = product(a.spec.shape[:-1])
    if m == 2 and view_strides(a.spec, (rows, a.spec.shape[-1])) is not None:
        return prims.linear(a, transposed(b))  # all rows of a are multiplied by one matrix
    batch = core.broadcast_shapes(a.spec.shape[:-2], b.spec.shape[:-2])
    return prims.matmul(core.expand(a, (*batch, *a.spec.shape[-2:])), core.expand(b, (*batch, *b.spec.shape[-2:])))


@torchsymbol("torch.matmul", "torch.linalg.matmul", methods=("matmul",))
def matmul(input: Tensor, other: Tensor):
    """The matrix product of the last two dimensions, those before broadcast; a vector is a row on the left and a column on the right."""
    return _product(input, other)


@torchsymbol("torch.mm", methods=("mm",))
def mm(input: Tensor, mat2: Tensor):
    """The product of two matrices."""
    require_rank("mm", 2, input=input, mat2=mat2)
    return prims.matmul(input, mat2)


@torchsymbol("torch.bmm", methods=("bmm",))
def bmm(input: Tensor, mat2: Tensor):
    """The product of each two matrices of a batch."""
    require_rank("bmm", 3, input=input, mat2=mat2)
    return prims.matmul(input, mat2)


@torchsymbol("torch.mv", methods=("mv",))
def mv(input: Tensor, vec: Tensor):
    """A matrix times a vector."""
    require_rank("mv", 2, input=input)
    require_rank("mv", 1, vec=vec)
    return prims.linear(vec, input)


@torchsymbol("torch.dot", methods=("dot",))
def dot(input: Tensor, tensor: Tensor):
    """The sum of input * tensor, two vectors."""
    require_rank("dot", 1, input=input, tensor=tensor)
    return _dot(input, tensor)


@torchsymbol("torch.vdot", methods=("vdot",))
def vdot(input: Tensor, other: Tensor):
    """The sum of conj(input) * other, two vectors."""
    require_rank("vdot", 1, input=input, other=other)
    return _dot(conjugate(input), other)


def conjugate(x: Tensor) -> Tensor:
    """Return the conjugate of a complex tensor; a real tensor itself."""
    return prims.conj(x) if x.spec.dtype.kind == "complex" else x


@torchsymbol("torch.inner", methods=("inner",))
def inner(input: Tensor, other: Tensor):
    """The sum of products over the last dimension of both; a product where one has none."""
    a, b = input.spec.shape, other.spec.shape
    if not a or not b:
        return core.mul(input, other)
    require(a[-1] == b[-1], "inner() the last dimension must match on both input tensors but got shapes {} and {}", a, b)
    if len(a) == len(b) == 1:
        return _dot(input, other)
    rows = prims.linear(input, flat_reshape(other, (product(b[:-1]), b[-1])))
    return flat_reshape(rows, (*a[:-1], *b[:-1]))


@torchsymbol("torch.outer", "torch.ger", methods=("outer", "ger"))
def outer(input: Tensor, vec2: Tensor):
    """input[i] * vec2[j]."""
    require_rank("outer", 1, input=input, vec2=vec2)
    return core.mul(core.unsqueezed(input, 1), vec2)


def scaled_sum(input: Tensor, products: Tensor, beta: Number, alpha: Number, function: str) -> Tensor:
    """beta * input + alpha * products in the dtype of both, rounded once; with beta 0 the input is not read."""
    dtype, shape = products.spec.dtype, products.spec.shape
    require(input.spec.dtype is dtype, "{}: self and mat2 must have the same dtype, but got {} and {}", function, input.spec, products.spec)
    input = core.expand(input, shape)
    if dtype.kind == "int":
        beta, alpha = int(beta), int(alpha)
    wide = core.wide(dtype)
    products = core.convert(products, wide)
    if alpha != 1:
        products = core.mul(products, alpha)
    if beta == 0:
        return with_zero_gradient(core.convert(products, dtype), input)
    input = core.convert(input, wide)
    return core.convert(core.add(products, input if beta == 1 else core.mul(input, beta)), dtype)


def with_zero_gradient(value: Tensor, x: Tensor) -> Tensor:
    """Return `value`, with a gradient of zeros for x, whose elements do not matter."""
    if not x.spec.requires_grad:
        return value
    always = prims.full(shape=value.spec.shape, value=True, dtype=dtypes.bool_, device=value.spec.device)
    return core.where(always, value, core.convert(x, value.spec.dtype))


@torchsymbol("torch.addmm", methods=("addmm",), factors=("beta", "alpha"))
def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Number = 1, alpha: Number = 1):
    """beta * input + alpha * (mat1 @ mat2)."""
    require_rank("addmm", 2, mat1=mat1, mat2=mat2)
    return scaled_sum(input, prims.matmul(mat1, mat2), beta, alpha, "addmm")


@torchsymbol("torch.addmv", methods=("addmv",), factors=("beta", "alpha"))
def addmv(input: Tensor, mat: Tensor, vec: Tensor, *, beta: Number = 1, alpha: Number = 1):
    """beta * input + alpha * (mat @ vec)."""
    require_rank("addmv", 2, mat=mat)
    require_rank("addmv", 1, vec=vec)
    return scaled_sum(input, prims.linear(vec, mat), beta, alpha, "addmv")


@torchsymbol("torch.baddbmm", methods=("baddbmm",), factors=("beta", "alpha"))
def baddbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Number = 1, alpha: Number = 1):
    """beta * input + alpha * (batch1 @ batch2), for each two matrices of a batch."""
    require_rank("baddbmm", 3, batch1=batch1, batch2=batch2)
    return scaled_sum(input, prims.matmul(batch1, batch2), beta, alpha, "baddbmm")


@torchsymbol("torch.addbmm", methods=("addbmm",), factors=("beta", "alpha"))
def addbmm(input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Number = 1, alpha: Number = 1):
    """beta * input + alpha * the sum of batch1 @ batch2 over the batch."""
    require_rank("addbmm", 3, batch1=batch1, batch2=batch2)
    b, n, k = batch1.spec.shape
    fits = batch2.spec.shape[:2] == (b, k)
    require(fits, "addbmm: expected batches [b, n, k] and [b, k, m], got {} and {}", batch1.spec, batch2.spec)
    side_by_side = flat_reshape(prims.transpose(batch1, order=(1, 0, 2)), (n, b * k))  # so one product sums over the batch too
    products = prims.matmul(side_by_side, flat_reshape(batch2, (b * k, batch2.spec.shape[2])))
    return scaled_sum(input, products, beta, alpha, "addbmm")


@torchsymbol("torch.addr", methods=("addr",), factors=("beta", "alpha"))
def addr(input: Tensor, vec1: Tensor, vec2: Tensor, *, beta: Number = 1, alpha: Number = 1):
    """beta * input + alpha * vec1[i] * vec2[j]."""
    require_rank("addr", 1, vec1=vec1, vec2=vec2)
    dtype = core.promote(input, vec1, vec2)
    if dtype is dtypes.bool_:
        beta, alpha = bool(beta), bool(alpha)
    rows, columns = [core.convert(x, core.wide(dtype)) for x in (core.unsqueezed(vec1, 1), vec2)]
    products = core.mul(core.mul(rows, alpha) if alpha != 1 else rows, columns)
    target = core.expand(input, products.spec.shape)
    if beta == 0:
        return with_zero_gradient(core.convert(products, dtype), target)
    target = core.convert(target, core.wide(dtype))
    return core.convert(core.add(core.mul(target, beta) if beta != 1 else target, products), dtype)


@torchsymbol("torch.nn.functional.linear")
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None):
    """input @ weight.T + bias."""
    rank = len(weight.spec.shape)
    require(rank in (1, 2), "linear: expected a weight [out, in] or [in], got {}", weight.spec)
    require(len(input.spec.shape) > 0, "both arguments to linear need to be at least 1D, got {}", input.spec)
    if rank == 1:
        fits = bias is None or (not bias.spec.shape and len(input.spec.shape) != 2)
        require(fits, "linear: mat2 must be a matrix, got 1-D tensor; pass a weight [out, in] with a bias")
        out = _product(input, weight)
        return out if bias is None else core.add(out, bias)
    out = prims.linear(input, weight)
    if bias is None:
        return out
    require(bias.spec.dtype is out.spec.dtype, "linear: input and bias must have the same dtype, but got {} and {}", input.spec, bias.spec)
    fits = core.broadcast_shapes(bias.spec.shape, out.spec.shape) == out.spec.shape
    require(fits, "linear: expected a bias that expands to {}, got {}", out.spec.shape, bias.spec)
    return core.add(out, bias)


@torchsymbol("torch.kron", methods=("kron",))
def kron(input: Tensor, other: Tensor):
    """The Kronecker product: blocks of `other`, scaled by each element of `input`."""
    rank = max(len(input.spec.shape), len(other.spec.shape))
    a, b = [(1,) * (rank - len(x.spec.shape)) + x.spec.shape for x in (input, other)]
    shape = tuple([n for pair in zip(a, b, strict=True) for n in pair])
    lanes = [
        prims.broadcast_in_dim(x, shape=shape, dims=tuple(range(2 * (rank - len(x.spec.shape)) + side, 2 * rank, 2)))
        for side, x in enumerate((input, other))
    ]
    return flat_reshape(core.mul(*lanes), tuple([n * m for n, m in zip(a, b, strict=True)]))


@torchsymbol("torch.linalg.vecdot")
def vecdot(x: Tensor, y: Tensor, *, dim: int = -1):
    """The sum of conj(x) * y over `dim`, the others broadcast."""
    require_inexact(x, "linalg.vecdot")
    alike = x.spec.dtype is y.spec.dtype
    require(alike, "linalg.vecdot: Expected x and y to have the same dtype, but found x of {} and y of {} instead", x.spec, y.spec)
    wide = core.wide(x.spec.dtype)
    products = core.mul(conjugate(core.convert(x, wide)), core.convert(y, wide))
    return core.convert(reduced(prims.sum, products, dim, False), x.spec.dtype)


@torchsymbol("torch.linalg.cross")
def linalg_cross(input: Tensor, other: Tensor, *, dim: int = -1):
    """The cross product of vectors of length 3 along `dim`, the others broadcast."""
    a, b = input.spec.shape, other.spec.shape
    require(len(a) == len(b), "linalg.cross: inputs must have the same number of dimensions, got {} and {}", input.spec, other.spec)
    d = core.canonical_dim(dim, len(a))
    require(a and a[d] == b[d] == 3, "linalg.cross: inputs dimension {} must have length 3, got {} and {}", dim, input.spec, other.spec)
    require(input.spec.dtype is other.spec.dtype, "linalg.cross: expected inputs of one dtype, got {} and {}", input.spec, other.spec)
    shape = core.broadcast_shapes(a, b)
    x, y = [core.expand(vectors, shape) for vectors in (input, other)]
    index = [prims.tensor_from_sequence(values=order, dtype=dtypes.int64, device=x.spec.device) for order in ((1, 2, 0), (2, 0, 1))]
    after = [prims.take(vectors, index[0], dim=d) for vectors in (x, y)]
    before = [prims.take(vectors, index[1], dim=d) for vectors in (x, y)]
    return core.sub(core.mul(after[0], before[1]), core.mul(before[0], after[1]))


@torchsymbol("torch.cross", methods=("cross",))
def cross(input: Tensor, other: Tensor, dim: int | None = None):
    """The cross product along `dim`, or along the first dimension of size 3."""
    if dim is None:
        dim = next((d for d, n in enumerate(input.spec.shape) if n == 3), None)
        require(dim is not None, "no dimension of size 3 in input {}; name a dim", input.spec)
    return linalg_cross(input, other, dim=dim)


def _identity(x: Tensor) -> Tensor:
    """Return identity matrices of the shape of x."""
    n, spec = x.spec.shape[-1], x.spec
    places = prims.iota(length=n, start=0, step=1, dtype=dtypes.int64, device=spec.device)
    ones = core.convert(core.eq(core.unsqueezed(places, 1), places), spec.dtype)
    return with_zero_gradient(ones if len(spec.shape) == 2 else prims.clone(core.expand(ones, spec.shape)), x)


@torchsymbol("torch.linalg.matrix_power", "torch.matrix_power", methods=("matrix_power",))
def matrix_power(input: Tensor, n: int):
    """Square matrices multiplied n times; inverted first where n is negative."""
    shape = input.spec.shape
    require(len(shape) >= 2, "linalg.matrix_power: The input tensor must have at least 2 dimensions, got {}", input.spec)
    require(shape[-1] == shape[-2], "linalg.matrix_power: input must be batches of square matrices, but got {}", input.spec)
    if n == 0:
        return _identity(input)
    if n < 0:
        require_inexact(input, "linalg.matrix_power of a negative power")
        input, n = opaque(torch.linalg.inv, (input,), {}), -n
        if n == 1:
            return input
    if n == 1:
        return core.clone(input)
    result, square = None, input
    while n:
        if n & 1:
            result = square if result is None else prims.matmul(result, square)
        n >>= 1
        square = prims.matmul(square, square) if n else square
    return result


@torchsymbol("torch.linalg.diagonal")
def linalg_diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1):
    """The diagonals of matrices, as a view."""
    rank = len(A.spec.shape)
    return prims.diagonal(A, offset=offset, dim1=core.canonical_dim(dim1, rank), dim2=core.canonical_dim(dim2, rank))


@torchsymbol("torch.linalg.multi_dot")
def multi_dot(tensors: Any):
    """The product of several matrices, in the order that takes the fewest multiplications; the first and last may be vectors."""
    tensors = list(tensors)
    require(len(tensors) >= 2, "multi_dot(): expected at least 2 tensors but got {}", len(tensors))
    first, last = tensors[0], tensors[-1]
    for name, x in (("first", first), ("last", last)):
        require(len(x.spec.shape) in (1, 2), "multi_dot(): the {} tensor must be 1D or 2D but got {}", name, x.spec)
    for i, x in enumerate(tensors[1:-1], 1):
        require(len(x.spec.shape) == 2, "multi_dot(): tensor {} must be 2D but got {}", i, x.spec)
    row, column = len(first.spec.shape) == 1, len(last.spec.shape) == 1
    if len(tensors) == 2:
        return _product(first, last)
    matrices = [core.unsqueezed(first, 0) if row else first, *tensors[1:-1], core.unsqueezed(last, 1) if column else last]
    for a, b in pairwise(matrices):
        require(a.spec.shape[1] == b.spec.shape[0], "multi_dot(): tensors with shapes {} and {} cannot be multiplied", a.spec.shape, b.spec.shape)
    out = _chained(matrices)
    dims = tuple([d for d, is_vector in enumerate((row, column)) if is_vector])
    return prims.squeeze(out, dims=dims) if dims else out


def _chained(matrices: list[Tensor]) -> Tensor:
    """Return the product of `matrices`, split where it is cheapest: the textbook dynamic program over intervals."""
    sizes = [matrices[0].spec.shape[0], *[x.spec.shape[1] for x in matrices]]
    count = len(matrices)
    cost = {(i, i): 0 for i in range(count)}
    split: dict[tuple[int, int], int] = {}
    for length in range(1, count):
        for i in range(count - length):
            j = i + length
            choices = [(cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1], k) for k in range(i, j)]
            cost[i, j], split[i, j] = min(choices)

    def between(i: int, j: int) -> Tensor:
        return matrices[i] if i == j else prims.matmul(between(i, split[i, j]), between(split[i, j] + 1, j))

    return between(0, count - 1)


@torchsymbol("torch.chain_matmul", bind=lambda *matrices: (matrices, {}))
def chain_matmul(*matrices: Tensor):
    """`multi_dot` of separate matrices; a copy of a single one."""
    require_rank("chain_matmul", 2, **{f"matrix {i}": x for i, x in enumerate(matrices)})
    return core.clone(matrices[0]) if len(matrices) == 1 else multi_dot(list(matrices))


operators(matmul=matmul)

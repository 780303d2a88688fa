"""Which calls oneDNN can compute: each function returns the case of a call's arguments, or the reason of a refusal.

They read specs alone; `choices` decides whether a case is worth it, for a symbolic size by the one that was traced.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from dovetail import prims
from dovetail.dtypes import bfloat16
from dovetail.extend import TensorSpec
from dovetail.extend.advanced import Symbol, symbol_for
from dovetail.langs.torch import TO_TORCH
from dovetail.prims.sizes import hint_of
from dovetail.prims.spec import prod
from dovetail_onednn_exec import library
from dovetail_onednn_exec.cases import Case, Convolution, Product
from dovetail_onednn_exec.epilogues import EPILOGUES, linear_epilogue
from dovetail_onednn_exec.states import pair

BATCHES = "PyTorch exposes no oneDNN operation for batched products"
LARGEST = 2**31  # oneDNN counts the elements of a dimension in 32 bits


def linear(input: Any, weight: Any, bias: Any = None) -> Product | str:
    """Return the case of torch.nn.functional.linear, or why there is none."""
    x, w = input.spec, weight.spec
    if w.rank != 2:
        return f"expected a weight [m, k], got {w}"
    if bias is not None and (bias.spec.rank != 1 or bias.spec.shape != w.shape[:1] or bias.spec.strides is not None):
        return f"expected a bias of one number for each row of the weight {w}, got {bias.spec}"
    return _product(x, w, bias is not None)


def linear_prim(x: Any, weight: Any) -> Product | str:
    """Return the case of prims.linear."""
    return linear(x, weight)


def matmul_prim(a: Any, b: Any) -> Product | str:
    """Return the case of prims.matmul and torch.mm: two matrices."""
    if a.spec.rank != 2:
        return f"expected two matrices, got {a.spec} and {b.spec}: {BATCHES}"
    return _product(a.spec, _turned(b.spec), False)


def matmul(input: Any, other: Any) -> Product | str:
    """Return the case of torch.matmul: rows [..., k] by one matrix."""
    a, b = input.spec, other.spec
    if b.rank != 2:
        return f"expected rows [..., k] and one matrix [k, m], got {a} and {b}: {BATCHES}"
    return _product(a, _turned(b), False)


def mm(input: Any, mat2: Any) -> Product | str:
    """Return the case of torch.mm."""
    return matmul_prim(input, mat2)


def addmm(input: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Product | str:
    """Return the case of torch.addmm where the addend is a bias, or a matrix."""
    if type(beta) not in (int, float) or type(alpha) not in (int, float) or beta != 1 or alpha != 1:
        return f"expected beta and alpha to be 1, got {beta} and {alpha}"
    rows, columns = mat1.spec.shape[0], mat2.spec.shape[1]
    bias = input.spec.shape == (columns,)
    if not (bias or input.spec.shape == (rows, columns)) or input.spec.strides is not None:
        return f"adds a row for all of [{rows}, {columns}], or as many numbers, without gaps, got {input.spec}"
    product = _product(mat1.spec, _turned(mat2.spec), bias)
    return product if bias or isinstance(product, str) else _with_epilogue(product, "add")


def with_epilogue(input: Any, weight: Any, bias: Any = None, other: Any = None, *, epilogue: str) -> Product | str:
    """Return the case of onednn.linear_epilogue."""
    product = linear(input, weight, bias)
    if isinstance(product, str):
        return product
    if epilogue not in EPILOGUES or (epilogue == "add") is (other is None):
        return f"has no epilogue {epilogue!r} for such a call"
    if other is not None:
        shape = (*input.spec.shape[:-1], weight.spec.shape[0])
        if other.spec.shape != shape or other.spec.strides is not None or other.spec.dtype is not input.spec.dtype:
            return f"adds a tensor of shape {list(shape)} without gaps, got {other.spec}"
    return _with_epilogue(product, epilogue)


def _with_epilogue(product: Product, epilogue: str) -> Product | str:
    """Return the product with an epilogue; a refusal where this PyTorch lacks oneDNN's addition."""
    if epilogue == "add" and library.linear_with is None:
        return library.lacks("linear_with")
    return replace(product, epilogue=epilogue)


def conv2d(input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1) -> Convolution | str:
    """Return the case of torch.nn.functional.conv2d of a batch of images."""
    if isinstance(padding, str):
        return f"expected padding in numbers, got {padding!r}"
    if bias is not None and bias.spec.strides is not None:
        return f"expected a bias without gaps, got {bias.spec}"
    return _convolution(input.spec, weight.spec, bias is not None, pair(stride), pair(padding), pair(dilation), groups)


def convolution(
    x: Any, weight: Any, *, stride: tuple, padding: tuple, dilation: tuple, transposed: bool, output_padding: tuple, groups: int
) -> Convolution | str:
    """Return the case of prims.convolution of a batch of images."""
    if transposed or x.spec.rank != 4:
        return f"expected convolutions of images that are not transposed, got {x.spec}" + " to be transposed" * transposed
    return _convolution(x.spec, weight.spec, False, stride, padding, dilation, groups)


CASES: dict[Symbol, Callable[..., Case | str]] = {
    prims.linear: linear_prim,
    prims.matmul: matmul_prim,
    prims.convolution: convolution,
    symbol_for("torch.nn.functional.linear"): linear,
    symbol_for("torch.matmul"): matmul,
    symbol_for("torch.mm"): mm,
    symbol_for("torch.addmm"): addmm,
    symbol_for("torch.nn.functional.conv2d"): conv2d,
    linear_epilogue: with_epilogue,
}


def _product(x: TensorSpec, weight: TensorSpec, bias: bool) -> Product | str:
    """Return the case of x [..., k] times the transpose of weight [m, k]."""
    if (refusal := _unsupported(x, weight)) is not None:
        return refusal
    turned = _by_columns(x), _by_columns(weight)
    for one, by_columns in zip((x, weight), turned, strict=True):
        if one.strides is not None and not by_columns:
            return f"expected dense row-major or column-major matrices, got {one}"
    columns, inner = weight.shape
    if x.shape[-1:] != (inner,):
        return f"multiplies rows of as many elements, got {x} and {weight}"
    return Product(TO_TORCH[x.dtype], *map(hint_of, (prod(x.shape[:-1]), inner, columns)), *turned, bias)


def _convolution(x: TensorSpec, weight: TensorSpec, bias: bool, stride: tuple, padding: tuple, dilation: tuple, groups: int) -> Convolution | str:
    if library.convolution is None:
        return library.lacks("convolution")
    if x.rank != 4 or weight.rank != 4 or x.shape[1] != weight.shape[1] * groups:
        return f"expected images [batch, channels, height, width] with a weight for as many channels, got {x} and {weight}"
    if (refusal := _unsupported(x, weight)) is not None:
        return refusal
    layouts = []
    for one in (x, weight):
        last = one.strides is not None
        if last and not _channels_last(one):
            return f"expected images row-major or with channels innermost, without gaps, got {one}"
        layouts.append(last)
    shapes = [tuple(map(hint_of, one.shape)) for one in (x, weight)]
    return Convolution(TO_TORCH[x.dtype], *shapes, stride, padding, dilation, groups, *layouts, bias)


def _unsupported(x: TensorSpec, weight: TensorSpec) -> str | None:
    """Return why oneDNN cannot compute with these tensors in any operation; None where it can."""
    if x.numel == 0 or weight.numel == 0:
        return f"needs elements to sum, got {x} and {weight}"
    if x.numel >= LARGEST or weight.numel >= LARGEST:
        return f"counts elements in 32 bits, got {x} and {weight}"
    if x.dtype is bfloat16 and not library.computes_bfloat16():
        return "oneDNN has no kernels for bf16 on this CPU"
    return None


def _turned(b: TensorSpec) -> TensorSpec:
    """Return the spec of a transposed matrix."""
    return b.view(b.shape[::-1], b.steps[::-1])


def _by_columns(x: TensorSpec) -> bool:
    """Return whether a matrix is column-major (the transpose of a row-major one)."""
    return x.rank == 2 and x.strides is not None and x.steps == (1, x.shape[0])


def _channels_last(x: TensorSpec) -> bool:
    """Return whether a tensor is dense and channels last, with sizes that make this unambiguous."""
    _, channels, height, width = x.shape
    wanted = (channels * height * width, 1, channels * width, channels)
    return channels > 1 and height * width > 1 and all([step == want for step, want, n in zip(x.steps, wanted, x.shape, strict=True) if n != 1])

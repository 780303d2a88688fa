"""Sums of products with subscripts: einsum, tensordot, bilinear.

Dimensions carry labels: a letter, or a number for a dimension under an ellipsis, counted from the last.  Dimensions of size 1 repeat, so
they are removed from the operands and restored on the result.  Operands are contracted in pairs, by one matrix product each: from the left, or
in the order that opt_einsum chooses, where it is installed, as PyTorch does.
"""

from __future__ import annotations

import operator
import re
from collections import Counter
from typing import Any, NamedTuple

import torch

from dovetail import prims
from dovetail.errors import require
from dovetail.langs import core
from dovetail.langs.torch.binding.symbol import Tensor, torchsymbol, wrong_type
from dovetail.langs.torch.reduction import total, total_dtype
from dovetail.prims.shape import flat_reshape
from dovetail.prims.sizes import hint_of
from dovetail.prims.spec import prod as product
from dovetail.trace import TensorProxy

Label = str | int
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


class Labelled(NamedTuple):
    """A tensor and the label of each of its dimensions."""

    x: Tensor
    labels: tuple[Label, ...]

    def sizes(self) -> dict[Label, int]:
        return dict(zip(self.labels, self.x.spec.shape, strict=True))


def _einsum_arguments(*args: Any, **kwargs: Any) -> tuple[tuple, dict]:
    """Return (equation, *operands); also accepts operands alternating with lists of subscripts, and operands in one list."""
    require(len(args) >= 2 and not kwargs, "expected an equation and operands, or operands and lists of subscripts", error=ValueError)
    equation, *operands = args
    if isinstance(equation, (Tensor, torch.Tensor)):
        equation = ",".join(map(_subscripts, args[1::2]))
        operands = args[: len(args) // 2 * 2 : 2]
        if len(args) % 2:
            equation += f"->{_subscripts(args[-1])}"
    elif len(operands) == 1 and isinstance(operands[0], (tuple, list)):
        operands = operands[0]
    if not isinstance(equation, str):
        wrong_type("einsum", "equation", "str", equation)
    for x in operands:
        if not isinstance(x, (Tensor, torch.Tensor)):
            wrong_type("einsum", "operands", "Tensor", x)
    return (equation, *operands), {}


def _subscripts(numbers: Any) -> str:
    """Return a list of subscripts as letters: 0 is A, 26 is a."""
    for n in numbers:
        is_valid = n is Ellipsis or (isinstance(n, int) and 0 <= n < len(LETTERS))
        require(is_valid, "einsum(): expected subscripts from 0 to {}, got {}", len(LETTERS) - 1, n, error=ValueError)
    return "".join("..." if n is Ellipsis else LETTERS[n] for n in numbers)


@torchsymbol("torch.einsum", bind=_einsum_arguments)
def einsum(equation: str, *operands: Tensor):
    """Products of operands summed over the subscripts that the result lacks, as in einsum("ij,jk->ik", a, b)."""
    path = _path(equation, operands)
    terms, out, order = _parsed(equation, operands)
    sizes = _common_sizes(terms)
    parts = [_thin(term, sizes, order) for term in terms]
    while len(parts) > 1:
        i, j = sorted(path.pop(0)) if path else (0, 1)
        b, a = parts.pop(j), parts.pop(i)
        kept = {*out, *(label for part in parts for label in part.labels)}
        parts.insert(0 if path is None else len(parts), contract(a, b, kept, order))
    result = _summed(parts[0], set(out))
    at = tuple([i for i, label in enumerate(out) if sizes[label] != 1])
    shape = tuple([sizes[label] for label in out])
    x = result.x if len(at) == len(out) else prims.broadcast_in_dim(result.x, shape=shape, dims=at)
    if len(operands) == 1 and len(order) > len(out) and all([sizes[label] == 1 for label in order if label not in out]):
        total_of_one = core.convert(x, total_dtype(x, None))  # a sum is no view
        return prims.clone(x) if total_of_one is x else total_of_one
    return prims.transpose(x, order=tuple(range(len(out)))) if x is operands[0] else x


def _path(equation: str, operands: tuple[Tensor, ...]) -> list[tuple[int, int]] | None:
    """Return the pairs of operands that are contracted one after another, each result behind those that are left; None for from the left."""
    optimizer = torch.backends.opt_einsum
    if len(operands) < 3 or not optimizer.enabled or not optimizer.is_available():
        return None
    shapes = [tuple(map(hint_of, x.spec.shape)) for x in operands]
    path, _ = optimizer.get_opt_einsum().contract_path(equation, *shapes, shapes=True, optimize=optimizer.strategy)
    return list(path)


def _parsed(equation: str, operands: tuple[Tensor, ...]) -> tuple[list[Labelled], tuple[Label, ...], tuple[Label, ...]]:
    """Return (labelled operands, labels of the result, all labels in order, the result's first)."""
    inputs, arrow, output = equation.replace(" ", "").partition("->")
    words = inputs.split(",")
    require(len(words) <= len(operands), "einsum(): fewer operands were provided than specified in the equation {!r}", equation)
    require(len(words) == len(operands), "einsum(): more operands were provided than specified in the equation {!r}", equation)
    terms = [Labelled(x, _labels(word, len(x.spec.shape), i)) for i, (word, x) in enumerate(zip(words, operands, strict=True))]
    used = Counter(label for term in terms for label in term.labels)
    hidden = sorted([label for label in used if isinstance(label, int)])
    letters = sorted([label for label in used if isinstance(label, str)])
    if arrow:
        out = _letters(output, "the output")
        out = tuple([label for mark in out for label in (hidden if mark == "..." else (mark,))])
        for label in out:
            require(label in used, "einsum(): output subscript {} does not appear in the equation for any input operand", label)
            require(out.count(label) == 1, "einsum(): output subscript {} appears more than once in the output", label)
    else:
        out = (*hidden, *[letter for letter in letters if used[letter] == 1])
    return terms, out, (*out, *[label for label in (*hidden, *letters) if label not in out])


def _letters(word: str, operand_name: Any) -> tuple[str, ...]:
    """Return one operand's subscripts: letters, and "..." once."""
    marks = re.findall(r"\.\.\.|.", word)
    require("." not in marks and marks.count("...") <= 1, "einsum(): found '.' for {} that is not part of one ellipsis", operand_name)
    for mark in marks:
        is_valid = mark == "..." or mark in LETTERS
        require(is_valid, "einsum(): invalid subscript {!r} in the equation string, subscripts must be in [a-zA-Z]", mark)
    return tuple(marks)


def _labels(word: str, rank: int, operand: int) -> tuple[Label, ...]:
    """Return a label for each dimension of an operand: a letter, or for the dimensions of an ellipsis a number below 0, the last being -1."""
    marks = _letters(word, f"operand {operand}")
    hidden = rank - len(marks) + ("..." in marks)
    fits = hidden >= 0 if "..." in marks else hidden == 0
    require(fits, "einsum(): the subscripts {!r} do not match the number of dimensions ({}) for operand {}", word, rank, operand)
    return tuple([label for mark in marks for label in (range(-hidden, 0) if mark == "..." else (mark,))])


def _common_sizes(terms: list[Labelled]) -> dict[Label, int]:
    """Return the size of each label; a size of 1 broadcasts to any other."""
    sizes: dict[Label, int] = {}
    for i, term in enumerate(terms):
        own: dict[Label, int] = {}
        for label, n in zip(term.labels, term.x.spec.shape, strict=True):
            alike = own.setdefault(label, n) == n
            require(alike, "einsum(): subscript {} is repeated for operand {} but the sizes don't match, {} != {}", label, i, n, own[label])
            previous = sizes.get(label, 1)
            fits = n == previous or n == 1 or previous == 1
            clash = "einsum(): subscript {} has size {} for operand {} which does not broadcast with previously seen size {}"
            require(fits, clash, label, n, i, previous)
            sizes[label] = n if previous == 1 else previous
    return sizes


def _thin(term: Labelled, sizes: dict[Label, int], order: tuple[Label, ...]) -> Labelled:
    """Return an operand with each label once, in order, and without the dimensions of size 1."""
    x, labels = term
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            first = labels.index(label)
            second = labels.index(label, first + 1)
            x = prims.diagonal(x, offset=0, dim1=first, dim2=second)
            labels = (*[other for d, other in enumerate(labels) if d not in (first, second)], label)
    ones = tuple([d for d, n in enumerate(x.spec.shape) if n == 1])
    if ones:
        x, labels = prims.squeeze(x, dims=ones), tuple([label for d, label in enumerate(labels) if d not in ones])
    return arranged(Labelled(x, labels), order)


def arranged(term: Labelled, order: Any) -> Labelled:
    """Return the same term with its dimensions in the order of their labels."""
    labels = tuple([label for label in order if label in term.labels])
    if labels == term.labels:
        return term
    return Labelled(prims.transpose(term.x, order=tuple([term.labels.index(label) for label in labels])), labels)


def _summed(term: Labelled, kept: set[Label]) -> Labelled:
    """Sum over the labels not in `kept`."""
    dims = tuple([d for d, label in enumerate(term.labels) if label not in kept])
    x = total(prims.sum, term.x, dims, False, total_dtype(term.x, None)) if dims else term.x
    return Labelled(x, tuple([label for label in term.labels if label in kept]))


def contract(a: Labelled, b: Labelled, kept: set[Label], order: tuple[Label, ...]) -> Labelled:
    """a times b, summed over the labels not in `kept`: one matrix product, or a multiplication where nothing is summed.

    As in PyTorch the operand whose labels come first in the result is the left one, where they differ: it decides the strides.
    """
    a, b = _summed(a, kept | set(b.labels)), _summed(b, kept | set(a.labels))
    shared = [label for label in order if label in a.labels and label in b.labels]
    summed = [label for label in shared if label not in kept]
    sizes = a.sizes() | b.sizes()
    if not summed:
        labels = tuple([label for label in order if label in sizes])
        shape = tuple([sizes[label] for label in labels])
        return Labelled(core.mul(*[_spread(term, labels, shape) for term in (a, b)]), labels)
    batch = [label for label in shared if label in kept]
    a_positions = [i for i, label in enumerate(order) if label in a.labels and label not in b.labels]
    other_positions = [i for i, label in enumerate(order) if label not in a.labels]
    if a_positions and other_positions and other_positions[-1] < a_positions[0]:
        a, b = b, a
    rows, columns = [[label for label in term.labels if label not in shared] for term in (a, b)]
    x = prims.matmul(_folded(a, batch, rows, summed), _folded(b, batch, summed, columns))
    labels = (*batch, *rows, *columns)
    return arranged(Labelled(flat_reshape(x, tuple([sizes[label] for label in labels])), labels), order)


def _spread(term: Labelled, labels: tuple[Label, ...], shape: tuple[int, ...]) -> Tensor:
    """Broadcast the term along the labels it lacks."""
    if term.labels == labels:
        return term.x
    return prims.broadcast_in_dim(term.x, shape=shape, dims=tuple([labels.index(label) for label in term.labels]))


def _folded(term: Labelled, batch: list[Label], rows: list[Label], columns: list[Label]) -> Tensor:
    """Return the term as matrices: [batch, rows, columns], or [rows, columns] where there is no batch."""
    sizes = term.sizes()
    shape = tuple([product(sizes[label] for label in group) for group in ([batch] if batch else []) + [rows, columns]])
    return flat_reshape(arranged(term, (*batch, *rows, *columns)).x, shape)


@torchsymbol("torch.nn.functional.bilinear", "torch.bilinear")
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None):
    """input1[..., i] * weight[o, i, j] * input2[..., j], summed over i and j, plus bias[o]."""
    shape1, shape2, shape = input1.spec.shape, input2.spec.shape, weight.spec.shape
    require(len(shape1) == len(shape2), "bilinear(): input dimensions do not match: got {} and {}", len(shape1), len(shape2))
    require(shape1[:-1] == shape2[:-1], "bilinear(): input batch dimensions do not match, got {} and {}", shape1, shape2)
    require(len(shape) == 3 and shape1 and shape1[-1] == shape[1], "bilinear(): input1 size does not match weight size: got {} and {}", shape1, shape)
    require(shape2[-1] == shape[2], "bilinear(): input2 size does not match weight size: got {} and {}", shape2, shape)
    fits = bias is None or bias.spec.shape == shape[:1]
    require(fits, "bilinear(): expected a bias of {} elements, got {}", shape[0], bias if bias is None else bias.spec)
    out = einsum("...i,oij,...j->...o", input1, weight, input2)
    out = out if out.spec.strides is None else prims.clone(out)
    return out if bias is None else core.add(out, bias)


@torchsymbol("torch.tensordot")
def tensordot(a: Tensor, b: Tensor, dims: Any = 2):
    """The products of a and b summed over `dims`: a number of last and first dimensions, or (dims of a, dims of b)."""
    a_dims, b_dims = _paired_dims(a, b, dims)
    for d, e in zip(a_dims, b_dims, strict=True):
        n, m = a.spec.shape[d], b.spec.shape[e]
        alike = n == m or n == 1 or m == 1
        require(alike, "contracted dimensions need to match, but first has size {} in dim {} and second has size {} in dim {}", n, d, m, e)
        if n != m:  # a size of 1 stands for each of the other's: sum that one first
            a, b = (a, _summed_to_one(b, e)) if n == 1 else (_summed_to_one(a, d), b)
    rows = [d for d in range(len(a.spec.shape)) if d not in a_dims]
    columns = [d for d in range(len(b.spec.shape)) if d not in b_dims]
    left, right = prims.transpose(a, order=(*rows, *a_dims)), prims.transpose(b, order=(*b_dims, *columns))
    shape = (*[a.spec.shape[d] for d in rows], *[b.spec.shape[d] for d in columns])
    inner = product(a.spec.shape[d] for d in a_dims)
    n, m = product(a.spec.shape[d] for d in rows), product(b.spec.shape[d] for d in columns)
    return flat_reshape(prims.matmul(flat_reshape(left, (n, inner)), flat_reshape(right, (inner, m))), shape)


def _summed_to_one(x: Tensor, dim: int) -> Tensor:
    """Return the sum over `dim`, which stays as a size of 1, in x's own dtype."""
    return core.keep_dims(total(prims.sum, x, dim, False, x.spec.dtype), x.spec.shape, (dim,))


def _paired_dims(a: Tensor, b: Tensor, dims: Any) -> tuple[list[int], list[int]]:
    """Return tensordot's dims as two lists of equal length, counted from 0."""
    ranks = len(a.spec.shape), len(b.spec.shape)
    if isinstance(dims, TensorProxy) and not dims.spec.shape:
        dims = operator.index(dims)
    if isinstance(dims, int):
        require(0 <= dims <= min(ranks), "tensordot expects dims from 0 to the smaller rank, {}, got {}", min(ranks), dims)
        return list(range(ranks[0] - dims, ranks[0])), list(range(dims))
    require(isinstance(dims, (tuple, list)) and len(dims) == 2, "tensordot expects dims to be an int or two lists of ints, got {!r}", dims)
    listed = [dim_list if isinstance(dim_list, (tuple, list)) else (dim_list,) for dim_list in dims]
    pair = [[core.canonical_dim(d, rank) for d in dim_list] for dim_list, rank in zip(listed, ranks, strict=True)]
    require(len(pair[0]) == len(pair[1]), "both dimension lists should have same length, got {}", dims)
    distinct = all(len(set(dim_list)) == len(dim_list) for dim_list in pair)
    require(distinct, "tensordot expects each dimension once, got {}", dims)
    return pair[0], pair[1]

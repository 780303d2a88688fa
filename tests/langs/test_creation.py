"""Tensors made while tracing: dtypes, sizes and values as PyTorch's."""

from __future__ import annotations

import harness
import numpy as np
import pytest
import torch
from harness import agrees

import dovetail
from dovetail.errors import Unsupported

X = torch.arange(6.0).view(2, 3)


SCALARS = (np.float64(0.1), np.float32(0.1), np.float16(0.1), np.int64(3), np.int32(3), np.uint8(3), np.uint16(3), np.bool_(True), np.complex128(1j))
MADE = {
    "zeros": lambda x: (torch.zeros(2, 3), torch.zeros((2, 3)), torch.zeros(size=(2,)), torch.zeros(2, dtype=torch.bool), torch.zeros([])),
    "ones": lambda x: (torch.ones(2, dtype=torch.complex64), torch.ones(x.shape), torch.ones_like(x.t()), x.new_ones(2, 1)),
    "full": lambda x: (
        torch.full((2,), 3),
        torch.full((2,), 3.0),
        torch.full((2,), True),
        torch.full((2,), 1j),
        torch.full([2], 3, dtype=torch.bfloat16),
    ),
    "full_like": lambda x: (torch.full_like(x, 3), torch.full_like(x, 2.5, dtype=torch.int64), x.new_full((2,), 7), x.long().new_zeros(3)),
    "arange": lambda x: (torch.arange(5), torch.arange(1, 5), torch.arange(9, 1, -3), torch.arange(end=3), torch.arange(1, end=3)),
    "arange of keywords": lambda x: (torch.arange(start=1, end=9, step=2), torch.arange(1, 9, step=2), torch.arange(5, device="cpu")),
    "arange of floats": lambda x: (
        torch.arange(0, 1, 0.25),
        torch.arange(5.0),
        torch.arange(5, dtype=torch.float16),
        torch.arange(0.5, 4, dtype=torch.int64),
    ),
    "linspace": lambda x: (torch.linspace(0, 1, 5), torch.linspace(3, -3, 7, dtype=torch.float64), torch.linspace(0, 10, 4, dtype=torch.int64)),
    "logspace": lambda x: (torch.logspace(0, 2, 5), torch.logspace(0, 3, 4, base=2)),
    "integers between fractions": lambda x: (torch.linspace(-1.7, 5.9, 6, dtype=torch.int64), torch.logspace(1.7, 5.9, 5, 2.0, dtype=torch.int64)),
    "integers from a tensor": lambda x: (
        torch.linspace(x.sum() * 0 - 1.7, 5.9, 6, dtype=torch.int64),
        torch.logspace(x.sum() * 0 + 1.7, 4, 6, dtype=torch.int64),
    ),
    "eye": lambda x: (torch.eye(3), torch.eye(2, 3, dtype=torch.int32)),
    "indices of triangles": lambda x: (torch.tril_indices(3, 4), torch.triu_indices(3, 3, 1, dtype=torch.int32)),
    "tensor": lambda x: (
        torch.tensor([[1, 2], [3, 4.5]]),
        torch.tensor(True),
        torch.tensor([]),
        torch.tensor([1, True]),
        torch.tensor((1, 2), dtype=torch.half),
    ),
    "tensor of arrays": lambda x: (torch.tensor(np.arange(3)), torch.tensor([np.float32(1.5), 2.0]), torch.as_tensor(np.ones(2))),
    "tensor of numbers of NumPy's": lambda x: (
        *[torch.tensor(n) for n in SCALARS],
        *[torch.tensor([[n], [n]]) for n in SCALARS],
        *[torch.as_tensor((n, 1)) for n in SCALARS if type(n) not in (np.bool_, np.uint16)],  # which PyTorch refuses beside an int
        *(torch.tensor([1.0, np.float64(0.1)]), torch.tensor([np.float16(0.5), 1.0]), torch.tensor(data=[np.int32(3)])),
        *(torch.tensor([x[0, 1], np.float64(0.1)]), torch.tensor(np.float64(0.1), dtype=torch.float32), x.new_tensor(np.float64(0.1))),
        torch.tensor(np.array(0.1)),
    ),
    "tensor of traced values": lambda x: (
        torch.tensor([x[0, 1], 1.5]),
        torch.tensor([[x.argmax(), 1], [2, x.argmin()]]),
        torch.tensor((x.argmax(), 1.5), dtype=torch.float64),
        torch.tensor([x.double().sum(), 1]),
        torch.tensor([x[0, :1], 3]),
        x.new_tensor([x.argmax(), 1]),
        torch.as_tensor([x.sum() > 0, True]),
    ),
    "old constructors": lambda x: (
        *(torch.Tensor([1, 2.5]), torch.Tensor(list(x.shape)), torch.Tensor((2, 3)), torch.Tensor()),
        *(torch.LongTensor([1, 2]), torch.BoolTensor([True, False]), torch.DoubleTensor([[1], [2]]), torch.ByteTensor((1, 2))),
        *(x.new([1, 2]), x.new((2, 3)), x.long().new([3]), x.new()),
    ),
    "ranges": lambda x: (
        *(torch.tensor(range(3)), torch.tensor(data=range(x.shape[0])), torch.as_tensor([range(2), (3, 4)]), x.new_tensor(range(2))),
        *(torch.IntTensor(range(1, 4)), torch.Tensor(range(3)), x.new(range(2))),
    ),
    "as_tensor": lambda x: (torch.as_tensor([1, 2]), torch.as_tensor(x, dtype=torch.int64), x.new_tensor([1, 2]), torch.scalar_tensor(2)),
}


@pytest.mark.parametrize("name", MADE)
def test_made_as_in_eager(name):
    agrees(MADE[name], X)


EMPTY = {
    "empty": lambda x: torch.empty(2, 3),
    "empty_like": lambda x: torch.empty_like(x.t(), dtype=torch.int64),
    "new_empty": lambda x: x.new_empty((2, 0)),
    "empty_strided": lambda x: torch.empty_strided((2, 3), (1, 2)),
    "new_empty_strided": lambda x: x.new_empty_strided((2, 3), (3, 1)),
    "empty_permuted": lambda x: torch.empty_permuted((2, 3, 4), (2, 0, 1)),
    "new": lambda x: x.half().new(4, 1),
    "new of a size": lambda x: x.new(x.shape),
    "Tensor": lambda x: torch.Tensor(2, 3),
    "Tensor of a size": lambda x: torch.Tensor(x.shape),
    "IntTensor": lambda x: torch.IntTensor(3),
}


@pytest.mark.parametrize("name", EMPTY)
def test_empty_has_the_shape_dtype_and_strides_of_eager(name):
    want = EMPTY[name](X)
    for executors in harness.ways().values():
        got = harness.ours(EMPTY[name], (X,), {}, executors).leaves[0]
        assert (got.shape, got.dtype, got.stride()) == (want.shape, want.dtype, want.stride())


def test_the_default_dtype_is_asked_for_in_each_call():
    compiled = dovetail.jit(lambda x: torch.zeros(2) + torch.arange(0, 1, 0.5))
    assert compiled(X).dtype is torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert compiled(X).dtype is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_made_tensor_is_new_in_each_call():
    def count(x):
        made = [torch.zeros(2), torch.tensor([1.0, 2.0]), torch.tril_indices(2, 2)]
        for m in made:
            m.add_(1)
        return made

    compiled = dovetail.jit(count)
    compiled(X)
    for got, want in zip(compiled(X), count(X), strict=True):
        assert torch.equal(got, want)


@pytest.mark.parametrize(
    "bad",
    [
        lambda x: torch.zeros(-1),
        lambda x: torch.arange(3, 1),
        lambda x: torch.arange(0, 3, 0),
        lambda x: torch.linspace(0, 1, -1),
        lambda x: torch.eye(-1),
        lambda x: torch.tensor([[1, 2], [3]]),
        lambda x: torch.empty_permuted((2, 3), (0, 0)),
        lambda x: torch.empty_strided((2, 3), (1,)),
        lambda x: torch.tensor([[x.sum(), 1], [2]]),
        lambda x: torch.tensor([x, x]),
        lambda x: torch.Tensor("abc"),
        lambda x: torch.Tensor(2.5),
        lambda x: torch.FloatTensor(2, "a"),
    ],
)
def test_errors_are_of_eagers_type(bad):
    with pytest.raises(Exception) as want:
        bad(X)
    with pytest.raises(want.type):
        dovetail.jit(bad)(X)


@pytest.mark.parametrize(
    ("refused", "way_out"),
    [
        (lambda x: torch.tensor([x[0, 0]] * 300), r"torch\.stack"),
        (lambda x: torch.Tensor(x), "detach"),
        (lambda x: torch.Tensor(x.sum().long()), "detach"),
        (lambda x: x.new(x), "clone"),
        (lambda x: torch.empty_strided((2, 3), (9, 1)), "slices"),
    ],
)
def test_what_cannot_be_traced_names_a_way_out(refused, way_out):
    with pytest.raises(Unsupported, match=way_out):
        dovetail.jit(refused)(X)


INTO = {  # what is created with out=, which says what dtype the numbers are computed and drawn in
    "zeros": lambda out: torch.zeros(4, out=out),
    "full": lambda out: torch.full((4,), 2.5, out=out),
    "eye": lambda out: torch.eye(2, out=out.view(2, 2)),
    "arange": lambda out: torch.arange(1, 5, out=out),
    "linspace": lambda out: torch.linspace(0, 3, 4, out=out),
    "rand": lambda out: torch.rand(4, out=out) if out.is_floating_point() else torch.randint(0, 9, (4,), out=out),
    "randn": lambda out: torch.randn(4, out=out) if out.is_floating_point() else torch.randperm(4, out=out),
}


@pytest.mark.parametrize("name", INTO)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("inside", [False, True])
def test_what_is_created_into_out_has_its_dtype(name, dtype, inside):
    def fn(out):
        return INTO[name](torch.zeros(4, dtype=dtype) if inside else out) + 1

    compiled = dovetail.jit(fn)
    for _ in range(2):
        mine, theirs = torch.zeros(4, dtype=dtype), torch.zeros(4, dtype=dtype)
        torch.manual_seed(0)
        expected = fn(theirs)
        torch.manual_seed(0)
        torch.testing.assert_close((compiled(mine), mine), (expected, theirs), rtol=0, atol=0)


@pytest.mark.parametrize("count", [lambda out: torch.arange(4, out=out), lambda out: torch.linspace(0, 3, 4, out=out)], ids=["arange", "linspace"])
def test_what_counts_leaves_out_its_shape_where_the_numbers_fit(count):
    for fn in (count, lambda out: count(torch.zeros(2, 2)) * out, lambda out: count(torch.empty(0)) * out[0, 0]):
        mine, theirs = torch.ones(2, 2), torch.ones(2, 2)
        torch.testing.assert_close((dovetail.jit(fn)(mine), mine), (fn(theirs), theirs))

"""Copies, conversions, and writes into tensors."""

from __future__ import annotations

import math
import operator

import pytest
import torch
from harness import agrees, raises_as_eager

import dovetail
from dovetail.errors import Unsupported

X = torch.tensor([[1.5, -2.0, 3.0], [0.0, 4.25, -5.0]])


CONVERSIONS = {
    "to(dtype)": lambda x: x.to(torch.float64),
    "to(dtype, non_blocking, copy)": lambda x: x.to(torch.float32, False, True),
    "to(device)": lambda x: x.to("cpu").to(torch.device("cpu")) + 0,
    "to(device, dtype)": lambda x: x.to("cpu", torch.int64),
    "to of keywords": lambda x: x.to(device="cpu", dtype=torch.half, copy=True),
    "to(tensor)": lambda x: x.to(torch.zeros(1, dtype=torch.int8)),
    "to(copy) keeps the layout": lambda x: x.t().to(torch.float32, copy=True),
    "type": lambda x: x.type(torch.int32),
    "type of a name": lambda x: x.type("torch.DoubleTensor"),
    "type of a class": lambda x: x.type(torch.LongTensor),
    "type of a complex name": lambda x: x.type("torch.ComplexFloatTensor"),
    "type_as": lambda x: x.type_as(torch.zeros(1, dtype=torch.bool)),
    "methods": lambda x: (
        x.double(),
        x.half(),
        x.bfloat16(),
        x.int(),
        x.long(),
        x.short(),
        x.char(),
        x.bool(),
        x.abs().byte(),
        x.cfloat(),
        x.cdouble(),
    ),
    "clone": lambda x: (x.clone(), x.t().clone(), x.expand(2, 2, 3).clone()),
}


@pytest.mark.parametrize("name", CONVERSIONS)
def test_conversions(name):
    agrees(CONVERSIONS[name], X)


DTYPES = (torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.int8, torch.uint8, torch.uint16, torch.bool, torch.complex64, torch.complex128)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_name_of_the_type(dtype):
    x = torch.ones(2).to(dtype)
    assert dovetail.jit(lambda x: x.type())(x) == x.type()


def test_item_is_a_number_that_can_be_used():
    got = dovetail.jit(lambda x: (x.sum().item(), x * x[0, 0].item(), x.new_full((2,), x[1, 1].item())))(X)
    assert got[0] == X.sum().item()
    assert torch.equal(got[1], X * 1.5)
    assert torch.equal(got[2], torch.tensor([4.25, 4.25]))


WRITES = {
    "copy_ of a row": lambda x: x.copy_(torch.arange(3)),
    "copy_ of a number": lambda x: x[0].copy_(7),
    "copy_ of a column": lambda x: x.copy_(torch.ones(2, 1)),
    "copy_ to integers": lambda x: torch.zeros(2, 3, dtype=torch.int64).copy_(x),
    "fill_": lambda x: x.fill_(3),
    "fill_ of a tensor": lambda x: x[1].fill_(x[0, 0]),
    "zero_": lambda x: x.t()[1:].zero_(),
    "fill": lambda x: torch.fill(x.t(), 2.5),
    "data": lambda x: x.data.add_(1),
    "detach": lambda x: x.detach().mul_(2),
}


@pytest.mark.parametrize("name", WRITES)
def test_writes_reach_the_input(name):
    agrees(WRITES[name], X)


@pytest.mark.parametrize("number", [True, False])
def test_a_filled_tensor_requires_a_gradient_as_in_eager_mode(number):
    x, value = torch.ones(3, requires_grad=True), 2.5 if number else torch.tensor(2.5, requires_grad=True)
    got, want = dovetail.jit(torch.fill)(x, value), torch.fill(x, value)
    assert got.requires_grad
    sources = [x] if number else [x, value]
    assert torch.equal(got, want)
    torch.testing.assert_close(torch.autograd.grad(got.sum(), sources), torch.autograd.grad(want.sum(), sources))


def test_out_writes_and_returns_the_tensor():
    def write(x, out):
        made = torch.empty(4, 3)
        torch.cat([x, x], out=made)
        return torch.add(x, 1, out=out) is out, made

    agrees(write, X, torch.zeros(2, 3, dtype=torch.float64))


KEEPING_THEIR_DTYPE = {
    "sort": lambda x, d: torch.sort(x, out=(torch.empty(4, 4, dtype=d), torch.empty(4, 4, dtype=torch.int64))),
    "the indices of sort": lambda x, d: torch.sort(x, out=(torch.empty(4, 4), torch.empty(4, 4, dtype=d))),
    "topk": lambda x, d: torch.topk(x, 2, out=(torch.empty(4, 2, dtype=d), torch.empty(4, 2, dtype=torch.int64))),
    "max": lambda x, d: torch.max(x, 1, out=(torch.empty(4, dtype=d), torch.empty(4, dtype=torch.int64))),
    "matmul": lambda x, d: torch.matmul(x, x, out=torch.empty(4, 4, dtype=d)),
    "inv": lambda x, d: torch.linalg.inv(x, out=torch.empty(4, 4, dtype=d)),
    "norm": lambda x, d: torch.linalg.vector_norm(x, out=torch.empty((), dtype=d)),
    "amax": lambda x, d: torch.amax(x, 1, out=torch.empty(4, dtype=d)),
    "argmax": lambda x, d: torch.argmax(x, 1, out=torch.empty(4, dtype=d)),
    "any": lambda x, d: torch.any(x > 1, 1, out=torch.empty(4, dtype=d)),
    "where": lambda x, d: torch.where(x > 1, x, x, out=torch.empty(4, 4, dtype=d)),
    "gather": lambda x, d: torch.gather(x, 1, x.argsort(), out=torch.empty(4, 4, dtype=d)),
    "floor": lambda x, d: torch.floor(x, out=torch.empty(4, 4, dtype=d)),
}


@pytest.mark.parametrize("name", KEEPING_THEIR_DTYPE)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int32, torch.complex64], ids=str)
def test_out_of_another_dtype_than_the_result_is_refused_as_by_eager(name, dtype):
    raises_as_eager(lambda x: KEEPING_THEIR_DTYPE[name](x, dtype), torch.randn(4, 4))


def test_joined_tensors_raise_a_type_error_for_out_that_holds_no_fractions():
    for join in (torch.cat, torch.hstack):
        raises_as_eager(lambda x, join=join: join([x, x], out=torch.empty(4, dtype=torch.int64)), torch.ones(2))


def test_out_is_checked():
    with pytest.raises(RuntimeError, match="result type Float can't be cast to the desired output type Long"):
        dovetail.jit(lambda x: torch.add(x, 1, out=torch.empty(2, 3, dtype=torch.int64)))(X)
    with pytest.raises(Unsupported, match="pass one of that shape"):
        dovetail.jit(lambda x, out: torch.add(x, 1, out=out))(X, torch.empty(0))


@pytest.mark.parametrize(
    "bad",
    [
        lambda x: x.copy_(torch.ones(5)),
        lambda x: x[0].copy_(torch.ones(2, 3)),
        lambda x: x.fill_(torch.ones(2)),
        lambda x: x.fill_(1j),
        lambda x: x[0].fill_diagonal_(1),
        lambda x: x.expand(2, 2, 3).fill_diagonal_(1),
        lambda x: x.item(),
        lambda x: x.to("nowhere"),
        lambda x: x.to(1, 2, 3, 4, 5),
        lambda x: x.to(torch.float32, colour=1),
        lambda x: x.contiguous(memory_format=torch.channels_last),
        lambda x: x.type("torch.Nothing"),
    ],
)
def test_errors_are_of_eagers_type(bad):
    with pytest.raises(Exception) as want:
        bad(X.clone())
    with pytest.raises(want.type):
        dovetail.jit(bad)(X.clone())


@pytest.mark.parametrize(
    "refused",
    [lambda x: x.resize_(3), lambda x: x.set_(x)],
)
def test_what_cannot_be_traced_is_refused(refused):
    with pytest.raises(Unsupported):
        dovetail.jit(refused)(X.clone())


DIAGONALS = {
    "square": (3, 3),
    "wide": (2, 5),
    "tall": (7, 2),
    "of four dimensions": (2, 2, 2, 2),
    "empty": (0, 3),
}


@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize("name", DIAGONALS)
def test_filled_diagonals(name, wrap):
    x = torch.arange(math.prod(DIAGONALS[name]), dtype=torch.float32).reshape(DIAGONALS[name])
    agrees(lambda x: x.fill_diagonal_(-2.5, wrap), x)
    agrees(lambda x: x.mT.fill_diagonal_(7), x)
    agrees(lambda x: x.long().fill_diagonal_(x.new_tensor(2.75), wrap=wrap), x)


@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize("name", DIAGONALS)
def test_no_gradient_flows_to_what_was_on_a_filled_diagonal(name, wrap):
    def fn(x):
        return ((x * x).fill_diagonal_(3.0, wrap) * x).sum()

    x = torch.linspace(-1, 2, math.prod(DIAGONALS[name])).reshape(DIAGONALS[name]).requires_grad_()
    want = torch.autograd.grad(fn(x), x)
    torch.testing.assert_close(torch.autograd.grad(dovetail.jit(fn)(x), x), want)


FILLS_OF_EXPANDED = {
    "fill_": lambda x: x.expand(4, 2, 3).fill_(2.0),
    "zero_ of what is computed": lambda x: (y := x * 2, y.expand(4, 2, 3).zero_(), y + 1),
    "zero_ of a repeated column": lambda x: (x[:, :1].expand(2, 3).zero_(), x * 2),
    "one of the repetitions": lambda x: (y := x.expand(4, 2, 3), y[1].mul_(3.0), y + x),
    "a part of one of them": lambda x: (x.unsqueeze(1).expand(2, 5, 3)[1:, 2, ::2].add_(1.0), x * 2),
    "an item of one of them": lambda x: (y := x.expand(4, 2, 3)).__setitem__((0, 1), x[0] * 2) or (y, x - 1),
}


@pytest.mark.parametrize("name", FILLS_OF_EXPANDED)
def test_writes_that_say_once_what_lies_in_repeated_elements_are_eagers(name):
    agrees(FILLS_OF_EXPANDED[name], X)


WRITES_AT_PLACES = {
    "index_put_": lambda x: x.index_put_((torch.tensor([0, 1]),), torch.ones(4)),
    "index_put_ that adds": lambda x: x.index_put_((torch.tensor([0, 1]),), torch.ones(4), accumulate=True),
    "items": lambda x: x.__setitem__(torch.tensor([0, 2]), 5.0),
    "items of a mask": lambda x: x.__setitem__(x > 0, 5.0),
    "masked_fill_": lambda x: x.masked_fill_(x > 0, 3.0),
    "index_fill_": lambda x: x.index_fill_(0, torch.tensor([0, 1]), 3.0),
}
WRITES_TO_EXPANDED = WRITES_AT_PLACES | {
    "an item": lambda x: x.__setitem__((0, 1), 9.0),
    "fill_": lambda x: x.fill_(2.0),
    "fill_diagonal_": lambda x: x.fill_diagonal_(4.0),
}


@pytest.mark.parametrize("columns", [True, False])
@pytest.mark.filterwarnings("ignore:.*(on expanded tensors is deprecated|run in eager mode)")
def test_writes_to_expanded_tensors_that_pytorch_allows_are_eagers(columns):
    def expanded(x):
        return x[:, None].expand(3, 4) if columns else x[:1, None].expand(3, 4)

    for write in WRITES_TO_EXPANDED.values():
        expected, actual = torch.arange(3.0), torch.arange(3.0)
        write(expanded(expected))
        dovetail.jit(lambda x, write=write: write(x))(expanded(actual))
        torch.testing.assert_close(actual, expected)
    for write in WRITES_AT_PLACES.values():

        def of_computed(x, write=write):
            y = x * 2
            write(expanded(y))
            return y

        x = torch.arange(3.0)
        torch.testing.assert_close(dovetail.jit(of_computed)(x), of_computed(x))


@pytest.mark.parametrize(
    "fn", [lambda x: x.expand(4, 2, 3).add_(1), lambda x: x.expand(4, 2, 3).fill_(torch.tensor(2.0)), lambda x: x.expand(4, 2, 3)[:, 0].mul_(2)]
)
def test_other_writes_to_repeated_elements_are_refused_as_by_eager(fn):
    raises_as_eager(fn, X)


def test_gradients_flow_through_a_write_to_one_repetition():
    def fn(x):
        y = (x * x).expand(4, 2, 3)
        y[1, :, 1:].mul_(x[:, :2])
        return y * x

    grads = []
    for each in (fn, dovetail.jit(fn)):
        x = X.clone().requires_grad_()
        each(x).sum().backward()
        grads.append(x.grad)
    torch.testing.assert_close(*grads)


OVERLAPPING_WRITES = {
    "add_": lambda x: x[1:].add_(x[:-1]),
    "+=": lambda x: operator.iadd(x.view(-1)[1:], x.view(-1)[:-1]),
    "copy_": lambda x: x[1:].copy_(x[:-1]),
    "of a slice": lambda x: operator.setitem(x, slice(1, None), x[:-1]),
    "of a row that repeats": lambda x: x.add_(x[0]),
    "of the transposed": lambda x: x.mul_(x.t()),
    "of what is detached": lambda x: x[1:].sub_(x.detach()[:-1]),
    "of complex numbers": lambda x: torch.view_as_complex(x.view(-1, 2))[1:].add_(torch.view_as_complex(x.view(-1, 2))[:-1]),
    "addcmul_": lambda x: x[1:].addcmul_(x[1:], x[:-1]),
    "bernoulli_": lambda x: x.sigmoid_()[1:].bernoulli_(x[:-1]),
    "index_add_ of itself": lambda x: x.index_add_(0, torch.arange(4), x),
    "scatter_": lambda x: x.scatter_(0, torch.zeros(1, 4, dtype=torch.int64), x[1:2]),
    "at indices": lambda x: operator.setitem(x, torch.tensor([0, 1]), x[1:3]),
    "index_put_": lambda x: x.index_put_((torch.tensor([0, 1]),), x[1:3]),
    "of each of a list": lambda x: torch._foreach_maximum_([x[1:]], [x[:-1]]),
    "out=": lambda x: torch.add(x[1:], x[:-1], out=x[1:]),
    "out= of a part": lambda x: torch.cat([x[:1], x[2:]], out=x[:3]),
    "out= of gather": lambda x: torch.gather(x, 0, torch.zeros(1, 4, dtype=torch.int64), out=x[:1]),
    "out= of aminmax": lambda x: torch.aminmax(x, dim=0, out=(x[0], x[1])),
    "out= of max": lambda x: torch.max(x, 0, out=(x[0], torch.empty(4, dtype=torch.int64))),
    "out= of cumsum": lambda x: torch.cumsum(x, 0, out=x.t()),
    "out= of sort": lambda x: torch.sort(x, out=(x.t(), torch.empty(4, 4, dtype=torch.int64))),
    "index_reduce_": lambda x: x[:1].index_reduce_(0, torch.tensor([0, 0]), x[:2], "amax"),
    "index_reduce_ of itself": lambda x: x.index_reduce_(0, torch.arange(4), x, "prod"),
}


@pytest.mark.parametrize("name", OVERLAPPING_WRITES)
@pytest.mark.parametrize("is_input", [True, False])
def test_writes_to_memory_that_the_operation_reads_elsewhere_are_refused_as_by_eager(name, is_input):
    raises_as_eager(lambda x: OVERLAPPING_WRITES[name](x if is_input else x + 1), torch.arange(16.0).reshape(4, 4))


def test_the_error_of_an_overlapping_write_can_be_handled():
    def fn(x):
        y = x * 2
        try:
            y[1:].add_(y[:-1])
        except RuntimeError:
            y[1:].add_(y[:-1].clone())
        return y

    agrees(fn, X)


SEPARATE_WRITES = {
    "itself": lambda x: x.add_(x),
    "another view of all of it": lambda x: x.mul_(x.view(-1).view(4, 4)),
    "other rows": lambda x: x[2:].add_(x[:2]),
    "other columns": lambda x: x[:, ::2].add_(x[:, 1::2]),
    "a diagonal": lambda x: x.diagonal().add_(x.diagonal(1).sum()),
    "the other part of complex numbers": lambda x: torch.view_as_real(torch.complex(x, x * 2))[..., 1].add_(x),
    "a number in it": lambda x: x.masked_fill_(x > 3, x[0, 1]),
    "one element at several places": lambda x: (x.__setitem__((slice(1, 3),), x[0, 1]), x),
    "rows of a copy": lambda x: x[1:].add_(x.clone()[:-1]),
    "out= of the operand": lambda x: torch.exp(x, out=x),
}


@pytest.mark.parametrize("name", SEPARATE_WRITES)
def test_writes_beside_what_the_operation_reads_are_eagers(name):
    agrees(lambda x: (y := x + 1, SEPARATE_WRITES[name](y), y), torch.arange(16.0).reshape(4, 4) / 8)

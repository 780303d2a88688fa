"""Writes to the shape of a tensor itself: `unsqueeze_`, `t_` and their like, and `out=` of an empty tensor."""

from __future__ import annotations

import pytest
import torch

import dovetail
from dovetail.errors import Unsupported


def square():
    return torch.arange(6.0).view(2, 3)


def transposed(x):
    y = x * 2
    first = y[0]
    z = y.t_()
    y.mul_(3)
    return y, z is y, y.shape, y.stride(), first


def of_a_view(x):
    row = x[0]
    row.unsqueeze_(0)
    row.add_(1)
    return row, x + 0


def several(x):
    y = (x + 1).unsqueeze_(0).squeeze_(0).transpose_(0, 1).swapaxes_(0, 1)
    y.squeeze_(1)
    return y


def held(x):
    parts = {"y": x * 2}
    parts["y"].unsqueeze_(-1)
    return torch.cat([parts["y"], parts["y"]], -1).sum(0), parts["y"].dim()


def resized(x):
    out = torch.empty(0)
    result = torch.add(x, 1, out=out)
    return out * 2, result is out, out.shape


def resized_in_another_dtype(x):
    out = torch.empty(0, dtype=torch.float64)
    torch.sum(x, 0, out=out)
    return out


def resized_with_elements(x):
    out, values, places = torch.tensor(0.0), torch.ones(2), torch.zeros(7, dtype=torch.long)
    torch.sigmoid(x, out=out)
    torch.sort(x[:, 0] + 0, out=(values, places))
    return out * 2, out.numel(), values, places, values.stride()


PROGRAMS = (resized_with_elements, transposed, of_a_view, several, held, resized, resized_in_another_dtype)


@pytest.mark.parametrize("fn", PROGRAMS)
def test_the_tensor_itself_has_another_shape_from_there_on(fn):
    compiled = dovetail.jit(fn)
    for shift in (0, 1):
        ours, theirs = square() + shift, square() + shift
        torch.testing.assert_close(compiled(ours), fn(theirs))
        torch.testing.assert_close(ours, theirs)
    assert compiled.cache_info().programs == 1


def test_gradients_flow_through():
    def fn(x):
        y = x * 2
        y.t_()
        return (y * torch.arange(6.0).view(3, 2)).sum()

    grads = []
    for call in (dovetail.jit(fn), fn):
        x = square().requires_grad_()
        call(x).backward()
        grads.append(x.grad)
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize("fn", [lambda x: x.t_(), lambda x: torch.add(torch.ones(2), 1, out=x)])
def test_tensors_from_outside_are_refused(fn):
    with pytest.raises(Unsupported, match=r"shape of the tensor itself|cannot be resized"):
        dovetail.jit(fn)(torch.empty(0, 3))


def test_the_memory_of_a_view_is_not_resized():
    def fn(x):
        base = torch.zeros(6)
        out = base[:1]
        torch.add(x, 1, out=out)
        return base, out

    with pytest.raises(Unsupported, match="cannot be resized"):
        dovetail.jit(fn)(square()[0])

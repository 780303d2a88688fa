"""Strides of results: the rules of specs against what PyTorch does, over random layouts."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dovetail.prims.spec import dense, is_channels_last, normal_strides, view_strides
from dovetail_conformance.opinfo import spec_of


@st.composite
def arranged(draw: st.DrawFn, shape: tuple[int, ...]) -> Tensor:
    """A tensor of `shape`: permuted, with gaps, or with repeated dimensions."""
    order = draw(st.permutations(range(len(shape))))
    gaps = [draw(st.sampled_from((1, 1, 2))) for _ in shape]
    repeated = [draw(st.sampled_from((False, False, False, True))) for _ in shape]
    sizes = [1 if repeated[d] else shape[d] for d in order]
    base = torch.zeros([n * gaps[i] for i, n in enumerate(sizes)])[tuple(slice(None, None, g) for g in gaps)]
    back = sorted(range(len(order)), key=lambda i: order[i])
    return base.permute(back).expand(shape)


@st.composite
def operands(draw: st.DrawFn) -> list[Tensor]:
    shape = tuple(draw(st.lists(st.sampled_from((2, 3, 4)), min_size=0, max_size=4)))
    return [draw(arranged(shape)) for _ in range(draw(st.integers(1, 3)))]


@given(operands())
@settings(max_examples=120, deadline=None)
def test_elementwise_results_are_laid_out_as_by_tensor_iterator(tensors: list[Tensor]) -> None:
    if len(tensors) == 1:
        out = -tensors[0]
    elif len(tensors) == 2:
        out = tensors[0] + tensors[1]
    else:
        out = torch.addcmul(*tensors)

    assert dense(*map(spec_of, tensors)).strides == spec_of(out).strides


@given(operands(), st.data())
@settings(max_examples=100, deadline=None)
def test_view_strides_are_those_of_view(tensors: list[Tensor], data: st.DataObject) -> None:
    x = tensors[0]
    shape = tuple(data.draw(st.permutations((*x.shape, 1)))) if data.draw(st.booleans()) else (x.numel(),)
    try:
        expected = x.view(shape).stride()
    except RuntimeError:
        expected = None

    strides = view_strides(spec_of(x), shape)

    assert (strides is None) == (expected is None)
    if expected is not None:
        assert normal_strides(shape, strides) == normal_strides(shape, expected)


def test_channels_last_is_told_from_strides() -> None:
    x = torch.zeros(2, 3, 4, 5)

    assert is_channels_last(spec_of(x.to(memory_format=torch.channels_last)))
    assert is_channels_last(spec_of(x.to(memory_format=torch.channels_last)[:, :2, ::2]))
    assert not is_channels_last(spec_of(x))
    assert not is_channels_last(spec_of(x.transpose(2, 3)))
    assert not is_channels_last(spec_of(torch.zeros(2, 3, 1, 1)))

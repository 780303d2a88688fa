"""Any index expression: reads, writes and gradients of shape are eager's."""

from __future__ import annotations

import warnings

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import dovetail

SHAPE = (3, 4, 5)


@st.composite
def indices(draw):
    """A tuple of ints, slices, None, Ellipsis, integer tensors and lists that PyTorch may or may not accept."""
    made, dims, ellipsis = [], 0, False
    advanced_shape = draw(st.sampled_from([(2,), (1,), (2, 2), ()]))
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["int", "slice", "none", "ellipsis", "tensor", "list"]))
        if kind == "none":
            made.append(None)
        elif kind == "ellipsis" and not ellipsis:
            made.append(...)
            ellipsis = True
        elif dims < len(SHAPE):
            size = SHAPE[dims] if not ellipsis else min(SHAPE)
            if kind == "int":
                made.append(draw(st.integers(-size, size - 1)))
            elif kind == "slice":
                ends = st.none() | st.integers(-7, 7)
                made.append(slice(draw(ends), draw(ends), draw(st.none() | st.integers(1, 3))))
            elif kind == "tensor":
                count = max(1, torch.Size(advanced_shape).numel())
                values = draw(st.lists(st.integers(-3, 2), min_size=count, max_size=count))
                made.append(torch.tensor(values).reshape(advanced_shape))
            elif kind == "list":
                made.append(draw(st.lists(st.integers(-3, 2), min_size=2, max_size=2)))
            else:
                continue
            dims += 1
    return tuple(made)


def base() -> torch.Tensor:
    return torch.arange(60.0).view(SHAPE)


def outcome(fn, *args):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return fn(*args)
        except (IndexError, RuntimeError, TypeError, ValueError) as error:
            return type(error)


@settings(max_examples=120, deadline=None)
@given(indices())
def test_scenario_25_reading_by_any_index_is_eagers(index):
    fn = lambda x: x[index] * 1  # noqa: E731
    want, got = outcome(fn, base()), outcome(dovetail.jit(fn), base())
    if isinstance(want, type):
        assert isinstance(got, type) and issubclass(got, want), f"{index}: eager raises {want}, we give {got}"
    else:
        torch.testing.assert_close(got, want)


@settings(max_examples=100, deadline=None)
@given(indices(), st.sampled_from([7.0, "tensor"]))
def test_scenario_25_writing_by_any_index_is_eagers(index, value):
    def fn(x):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            shape = base()[index].shape
        x[index] = value if value != "tensor" else torch.full(tuple(shape[-1:]), 3.5)
        return x * 1

    mine, theirs = base(), base()
    want, got = outcome(fn, theirs), outcome(dovetail.jit(fn), mine)
    if isinstance(want, type):
        assert isinstance(got, type), f"{index}: eager raises {want}, we give {got}"
    else:
        torch.testing.assert_close((got, mine), (want, theirs))


def test_scenario_25_a_mask_reads_with_a_way_out_and_writes_as_eager():
    x = base()
    try:
        dovetail.jit(lambda x: x[x > 5], decisions="error")(x)
    except dovetail.errors.Unsupported as error:
        assert "torch.where" in str(error)
    else:
        raise AssertionError("a mask's result has a shape that depends on values, and was not refused")

    def write(x):
        x[x > 5] = 0.0
        x[:, torch.tensor([True, False, True, False])] = -1.0
        return x * 1

    torch.testing.assert_close(dovetail.jit(write)(base()), write(base()))

"""Padding: what PyTorch's own samples leave out."""

from __future__ import annotations

import harness
import pytest
import torch
import torch.nn.functional as F

import dovetail


def agrees(fn, *args, **tolerance) -> None:
    """`fn` gives what eager gives, strides and arguments afterwards included: whole, decomposed, and as printed text."""
    want = harness.eager(fn, args, {})
    assert want.error is None
    for way in harness.ways().values():
        assert not list(harness.differences(harness.ours(fn, args, {}, way), want, **tolerance))
    assert not list(harness.differences(harness.printed(fn, args, {}), want, **tolerance))


def raises_as_eager(fn, *args) -> None:
    want = harness.eager(fn, args, {}).error
    assert want is not None
    with pytest.raises(type(want)):
        dovetail.trace(fn)(*args)


def gradients_agree(fn, *args, **tolerance) -> None:
    """One backward pass gives each floating argument eager's gradient."""
    grads = []
    for run in (fn, dovetail.jit(fn)):
        given = [x.clone().requires_grad_() if x.is_floating_point() else x for x in args]
        torch.manual_seed(3)
        out = run(*given)
        (out * torch.linspace(0.5, 1.5, out.numel()).view_as(out)).sum().backward()
        grads.append([x.grad for x in given if x.is_floating_point()])
    for ours, eager in zip(*grads[::-1], strict=True):
        torch.testing.assert_close(ours, eager, **tolerance)


X = torch.randn(2, 3, 6, 5)
LAYOUTS = {
    "row-major": X,
    "channels last": X.to(memory_format=torch.channels_last),
    "transposed": X.transpose(2, 3),
    "permuted": X.permute(3, 0, 2, 1),
    "gapped": torch.randn(2, 3, 6, 10)[..., ::2],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("pad", [(1, 1, 2, 0), (-1, 1, 1, -2), (-1, 0, 0, -1), (0, 0, 0, 0)])
def test_modes_and_layouts(layout, mode, pad):
    agrees(lambda x: F.pad(x, pad, mode), LAYOUTS[layout])


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
def test_gradients(mode):
    gradients_agree(lambda x: F.pad(x, (1, 2, 3, -1), mode), X)


def test_values_of_every_kind():
    agrees(lambda x: F.pad(x, (1, 1), value=1.7), torch.arange(3))
    agrees(lambda x: F.pad(x, (1, 1), value=3), torch.tensor([True, False]))
    agrees(lambda x: torch.constant_pad_nd(x, (1, 2), 2.5), X)
    agrees(lambda x: F.pad(x, (1, -1), "constant", float("-inf")), X.bfloat16())


def test_padding_by_nothing_is_a_copy():
    def f(x):
        y = F.pad(x, (0, 0))
        y.add_(1)
        return y

    agrees(f, torch.arange(3.0))


BAD = {
    "odd": lambda x: F.pad(x, (1,)),
    "too many": lambda x: F.pad(x, (1,) * 10),
    "floats": lambda x: F.pad(x, (1.0, 1)),
    "an int": lambda x: F.pad(x, 1),
    "mode": lambda x: F.pad(x, (1, 1), "mirror"),
    "value of reflect": lambda x: F.pad(x, (1, 1, 1, 1), "reflect", 2),
    "dimensions": lambda x: F.pad(x, (1, 1), "reflect"),
    "reflecting too far": lambda x: F.pad(x, (5, 0, 0, 0), "reflect"),
    "around more than once": lambda x: F.pad(x, (6, 0, 0, 0), "circular"),
    "nothing left": lambda x: F.pad(x[0], (-5, 0), "replicate"),
    "less than nothing left": lambda x: F.pad(x, (-3, -3)),
    "complex value": lambda x: F.pad(x, (1, 1), value=1j),
    "reflected booleans": lambda x: F.pad(x > 0, (1, 1, 0, 0), "reflect"),
}


@pytest.mark.parametrize("bad", BAD)
def test_errors_are_eagers(bad):
    raises_as_eager(BAD[bad], X)

"""Padding: what PyTorch's own samples leave out."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from harness import agrees, gradients_agree, raises_as_eager

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

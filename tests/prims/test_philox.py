"""The counter-based draws: Philox's published answers, and numbers that are spread as they should be."""

from __future__ import annotations

import pytest
import torch

from dovetail import devices, dtypes, prims
from dovetail.dtypes import DType
from dovetail_torch_exec.philox import philox4x32, words
from dovetail_torch_exec.prims import PRIMS

# Counter, key, answer: the known-answer vectors of Random123 for philox4x32-10.
KNOWN = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def parsed(text: str) -> tuple[torch.Tensor, ...]:
    return tuple(torch.tensor(int(word, 16)) for word in text.split())


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN)
def test_known_answers(counter: str, key: str, answer: str) -> None:
    assert philox4x32(parsed(counter), parsed(key)) == parsed(answer)


def test_a_stream_is_the_blocks_in_order() -> None:
    seed, offset = torch.tensor((5 << 32) + 4), torch.tensor((7 << 32) + 6)

    stream = words(seed, offset, 6, torch.device("cpu"))

    first, second = (philox4x32(parsed(f"{block} 0 6 7"), parsed("4 5")) for block in (0, 1))
    assert stream.tolist() == [int(word) for word in (*first, *second[:2])]


def uniform(seed: int, offset: int, shape: tuple[int, ...], dtype: DType = dtypes.float32, low: float = 0.0, high: float = 1.0) -> torch.Tensor:
    state = (torch.tensor(seed), torch.tensor(offset))
    return PRIMS[prims.uniform_philox](*state, shape=shape, low=low, high=high, dtype=dtype, device=devices.cpu)


def normal(seed: int, shape: tuple[int, ...], dtype: DType = dtypes.float32, mean: float = 0.0, std: float = 1.0) -> torch.Tensor:
    state = (torch.tensor(seed), torch.tensor(0))
    return PRIMS[prims.normal_philox](*state, shape=shape, mean=mean, std=std, dtype=dtype, device=devices.cpu)


def test_seed_and_offset_decide() -> None:
    assert torch.equal(uniform(1, 2, (3, 5)), uniform(1, 2, (3, 5)))
    assert torch.equal(uniform(1, 2, (3, 5)).flatten(), uniform(1, 2, (15,)))
    assert not torch.equal(uniform(1, 2, (15,)), uniform(1, 3, (15,)))
    assert not torch.equal(uniform(1, 2, (15,)), uniform(2, 2, (15,)))


def test_the_first_number_is_the_top_bits_of_the_first_word() -> None:
    assert uniform(0, 0, (1,)).item() == (0x6627E8D5 >> 8) / 2**24
    assert uniform(0, 0, (1,), dtypes.float64).item() == (0xE169C58D6627E8D5 >> 11) / 2**53
    assert uniform(0, 0, (1,), dtypes.bfloat16).item() == (0x6627E8D5 >> 24) / 2**8


@pytest.mark.parametrize("dtype", [dtypes.float64, dtypes.float32, dtypes.float16, dtypes.bfloat16])
def test_uniform_numbers_fill_their_interval_evenly(dtype: DType) -> None:
    x = uniform(3, 4, (50_000,), dtype, -1.0, 3.0).double()

    assert x.min() >= -1 and x.max() < 3
    counts = torch.histc(x, bins=16, min=-1, max=3)
    assert ((counts - 3125) ** 2 / 3125).sum() < 37.7  # chi squared of 15 degrees of freedom exceeds it once in 1,000
    assert torch.corrcoef(torch.stack((x[:-1], x[1:])))[0, 1].abs() < 0.02


@pytest.mark.parametrize("dtype", [dtypes.float64, dtypes.float32, dtypes.bfloat16])
def test_normal_numbers_have_their_moments(dtype: DType) -> None:
    x = (normal(3, (50_001,), dtype, mean=2.0, std=0.5).double() - 2) / 0.5

    assert abs(x.mean()) < 0.02
    assert abs(x.var() - 1) < 0.03
    assert abs((x**3).mean()) < 0.05
    assert abs((x**4).mean() - 3) < 0.15
    assert x.isfinite().all()

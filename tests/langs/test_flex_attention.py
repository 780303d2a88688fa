"""torch.nn.attention.flex_attention inside compiled functions, traced as the matrix of scores that it is in eager mode."""

from __future__ import annotations

import pytest
import torch
from torch.nn.attention.flex_attention import create_block_mask, create_mask, flex_attention

import dovetail
from dovetail.errors import Unsupported

SLOPES, BIAS, DOCUMENTS = torch.tensor([0.5, -0.25]), torch.linspace(-1, 1, 256).view(16, 16), torch.tensor([0] * 5 + [1] * 11)


def causal(b, h, i, j):
    return i >= j


def masked(mask, batch=None):
    return create_block_mask(mask, batch, None, 16, 16, device="cpu", BLOCK_SIZE=16)


STRICT, OF_DOCUMENTS = masked(lambda b, h, i, j: i > j), masked(lambda b, h, i, j: (DOCUMENTS[i] == DOCUMENTS[j]) & (i >= j), 1)
PROGRAMS = {
    "plain": lambda q, k, v: flex_attention(q, k, v),
    "a scale": lambda q, k, v: flex_attention(q.double(), k.double(), v.double(), scale=0.5),
    "bfloat16": lambda q, k, v: flex_attention(q.bfloat16(), k.bfloat16(), v.bfloat16()),
    "scores that are changed": lambda q, k, v: flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: torch.where(i >= j, torch.tanh(s), s - 1)),
    "a bias": lambda q, k, v: flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + BIAS[i, j] + SLOPES[h] * (j - i)),
    "rows without keys": lambda q, k, v: flex_attention(q, k, v, block_mask=STRICT, return_lse=True),
    "documents": lambda q, k, v: flex_attention(q, k, v, block_mask=OF_DOCUMENTS),
    "a mask of the program": lambda q, k, v: flex_attention(q, k, v, block_mask=masked(causal)),
    "shared keys": lambda q, k, v: flex_attention(q, k[:, :1], v[:, :1], enable_gqa=True),
    "heads behind the tokens": lambda q, k, v: flex_attention(*(x.permute(0, 2, 1, 3).contiguous().permute(0, 2, 1, 3) for x in (q, k, v))),
    "other lengths": lambda q, k, v: flex_attention(q[:, :, :5], k, v[..., :4]),
    "the mask itself": lambda q, k, v: create_mask(causal, 1, 1, 16, 16, device="cpu") * q.sum(),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_it_computes_what_eager_mode_does(program):
    compiled = dovetail.jit(program)
    for _ in range(2):
        q, k, v = torch.randn(3, 1, 2, 16, 8)
        expected = program(q, k, v)  # first: it warns once in a process, and the program depends on whether it has
        torch.testing.assert_close(compiled(q, k, v), expected, rtol=2e-5, atol=2e-5, check_stride=True)

    assert compiled.cache_info().programs == 1


def test_a_nested_tensor_is_refused():
    with pytest.raises(Unsupported, match="a nested tensor is not traced, only strided ones"):
        dovetail.jit(lambda x: x * 2)(torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(3, 4)]))

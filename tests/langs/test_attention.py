"""Attention, and the modules that torch writes in Python around it."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from harness import agrees, gradients_agree, raises_as_eager
from torch import nn

import dovetail

Q, K, V = torch.randn(2, 3, 5, 8), torch.randn(2, 3, 7, 8), torch.randn(2, 3, 7, 8)
ATTEND = F.scaled_dot_product_attention
SOME = torch.arange(35).view(5, 7) % 3 != 0
TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}


@pytest.mark.parametrize("shape", [(5, 7), (1, 7), (5, 1), (1, 1), (2, 3, 5, 7), (2, 1, 1, 7), (3, 5, 7)])
@pytest.mark.parametrize("kind", ["bool", "float"])
def test_masks_of_every_shape_that_broadcasts(shape, kind):
    mask = torch.rand(shape) > 0.3 if kind == "bool" else torch.randn(shape)
    agrees(lambda q, k, v: ATTEND(q, k, v, attn_mask=mask), Q, K, V, **TOLERANCE)


def test_a_query_that_no_key_may_answer_gives_zeros_and_no_nan_in_gradients():
    mask = SOME.clone()
    mask[2] = False
    agrees(lambda q, k, v: ATTEND(q, k, v, attn_mask=mask), Q, K, V, **TOLERANCE)
    gradients_agree(lambda q, k, v: ATTEND(q, k, v, attn_mask=mask), Q, K, V, **TOLERANCE)


@pytest.mark.parametrize("rank", [2, 3, 4, 5])
def test_ranks(rank):
    q, k, v = (x[0, 0] if rank == 2 else x[0] if rank == 3 else x if rank == 4 else x[None].repeat(2, 1, 1, 1, 1) for x in (Q, K, V))
    agrees(lambda q, k, v: ATTEND(q, k, v, is_causal=True, scale=0.3), q, k, v, **TOLERANCE)


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (2, 0, 1), (1, 2, 0)])
def test_the_result_is_laid_out_as_eagers(order):
    q = Q.permute(*order, 3).contiguous().permute(*(order.index(d) for d in range(3)), 3)
    agrees(ATTEND, q, K, V, **TOLERANCE)
    agrees(lambda q, k, v: ATTEND(q, k, v[..., :6]), q, K, V, **TOLERANCE)


def test_heads_shared_by_groups_of_queries():
    q = torch.randn(2, 6, 5, 8)
    agrees(lambda q, k, v: ATTEND(q, k, v, enable_gqa=True), q, K, V, **TOLERANCE)
    gradients_agree(lambda q, k, v: ATTEND(q, k, v, enable_gqa=True), q, K, V, **TOLERANCE)
    raises_as_eager(lambda q, k, v: ATTEND(q[:, :4], k, v, enable_gqa=True), q, K, V)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_dtypes_are_computed_in_float32(dtype):
    agrees(lambda q, k, v: ATTEND(q, k, v, attn_mask=SOME), *(x.to(dtype) for x in (Q, K, V)), rtol=2e-2, atol=2e-2)


def test_a_seed_gives_eagers_dropout():
    gradients_agree(lambda q, k, v: ATTEND(q, k, v, dropout_p=0.3), Q, K, V, **TOLERANCE)


def test_errors_are_eagers():
    raises_as_eager(ATTEND, Q, K.double(), V)
    raises_as_eager(ATTEND, Q[0, 0, 0], K, V)
    raises_as_eager(lambda q, k, v: ATTEND(q, k, v, dropout_p=1.5), Q, K, V)
    raises_as_eager(lambda q, k, v: ATTEND(q, k, v, attn_mask=SOME.long()), Q, K, V)
    raises_as_eager(lambda q, k, v: ATTEND(q, k, v, attn_mask=SOME[:4]), Q, K, V)
    raises_as_eager(lambda q, k, v: ATTEND(q[0], k[0], v[0], attn_mask=SOME, is_causal=True), Q, K, V)


X = torch.randn(2, 5, 16)
PADDING = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
CAUSAL = nn.Transformer.generate_square_subsequent_mask(5)


def module_agrees(module: nn.Module, *args, **kwargs) -> None:
    """A forward and backward pass in training, and a forward pass after it, give what eager gives."""
    compiled = dovetail.jit(module)
    for training in (True, False):
        module.train(training)
        grads = []
        for run in (module, compiled):
            module.zero_grad()
            torch.manual_seed(5)
            out = run(*args, **kwargs)
            leaves = [x for x in (out if isinstance(out, tuple) else (out,)) if x is not None]
            leaves[0].cos().sum().backward()
            grads.append([*leaves, *(p.grad.clone() for p in module.parameters() if p.grad is not None)])
        for ours, eager in zip(*grads[::-1], strict=True):
            torch.testing.assert_close(ours, eager, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("masks", [{}, {"key_padding_mask": PADDING}, {"attn_mask": CAUSAL}, {"attn_mask": CAUSAL, "is_causal": True}])
def test_multi_head_attention(need_weights, masks):
    module_agrees(nn.MultiheadAttention(16, 4, dropout=0.1, batch_first=True), X, X, X, need_weights=need_weights, **masks)


def test_multi_head_attention_with_every_extra():
    module_agrees(
        nn.MultiheadAttention(16, 4, add_bias_kv=True, add_zero_attn=True, kdim=6, vdim=7), X, X[..., :6], X[..., :7], average_attn_weights=False
    )


@pytest.mark.parametrize("norm_first", [True, False])
def test_transformer_layers(norm_first):
    encoder = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, norm_first=norm_first)
    module_agrees(encoder, X, src_key_padding_mask=PADDING)
    module_agrees(nn.TransformerDecoderLayer(16, 4, 32, batch_first=True, norm_first=norm_first), X, X, tgt_mask=CAUSAL)


def test_an_encoder_takes_the_plain_path_whatever_the_padding():
    module_agrees(nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), 2), X, src_key_padding_mask=PADDING)

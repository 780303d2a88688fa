"""Embedding and one_hot: what PyTorch's own samples leave out."""

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


INDEX = torch.tensor([[1, 2], [0, 2]])


def test_rows_of_a_table_and_their_gradient():
    weight = torch.randn(4, 3)
    agrees(F.embedding, INDEX, weight)
    agrees(F.embedding, INDEX.int(), weight.bfloat16())
    agrees(torch.embedding, weight, INDEX)
    gradients_agree(lambda w: F.embedding(INDEX, w), weight)


@pytest.mark.parametrize("padding_idx", [2, -2, 0])
def test_rows_at_padding_idx_get_no_gradient(padding_idx):
    gradients_agree(lambda w: F.embedding(INDEX, w, padding_idx=padding_idx), torch.randn(4, 3))


def test_embedding_errors_are_eagers():
    weight = torch.randn(4, 3)
    raises_as_eager(lambda w: F.embedding(INDEX, w, padding_idx=4), weight)
    raises_as_eager(lambda w: F.embedding(INDEX, w, padding_idx=-5), weight)
    raises_as_eager(lambda w: F.embedding(INDEX, w[None]), weight)
    raises_as_eager(lambda w: F.embedding(INDEX.float(), w), weight)


@pytest.mark.parametrize("option", [{"max_norm": 1.0}, {"sparse": True}, {"scale_grad_by_freq": True}])
def test_options_that_change_the_weight_or_the_gradient_are_refused(option):
    with pytest.raises(dovetail.errors.Unsupported, match=next(iter(option))):
        dovetail.trace(lambda w: F.embedding(INDEX, w, **option))(torch.randn(4, 3))


def test_one_hot_wants_num_classes():
    agrees(lambda x: F.one_hot(x, 5), INDEX)
    agrees(lambda x: F.one_hot(x[:0], 5), INDEX)
    raises_as_eager(lambda x: F.one_hot(x, 0), INDEX)
    raises_as_eager(lambda x: F.one_hot(x.float(), 3), INDEX)
    with pytest.raises(dovetail.errors.Unsupported, match="pass num_classes"):
        dovetail.trace(F.one_hot)(INDEX)

"""Embedding and one_hot: what PyTorch's own samples leave out."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from harness import agrees, gradients_agree, raises_as_eager
from torch import nn

import dovetail

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


@pytest.mark.parametrize("options", [{"max_norm": 1.0}, {"max_norm": 0.5, "norm_type": 1.0, "padding_idx": 2}])
def test_a_norm_shortens_rows_of_the_weight_in_place(options):
    weight = torch.randn(4, 3)
    same = weight.clone()
    got = dovetail.jit(lambda w: F.embedding(INDEX, w, **options) * w[1])(weight)
    torch.testing.assert_close((got, weight), (F.embedding(INDEX, same, **options) * same[1], same))
    table = nn.Embedding(4, 3, **options)
    twin = copy.deepcopy(table)
    compiled = dovetail.jit(twin)
    for _ in range(3):
        for module, call in ((table, table), (twin, compiled)):
            module.zero_grad()
            call(INDEX).sin().sum().backward()
            with torch.no_grad():
                module.weight.sub_(module.weight.grad)
    torch.testing.assert_close(twin.state_dict(), table.state_dict())


OPTIONS_OF_THE_GRADIENT = [(F.embedding, "sparse"), (F.embedding, "scale_grad_by_freq"), (F.embedding_bag, "sparse")]


@pytest.mark.filterwarnings("ignore:.*run in eager mode")
@pytest.mark.parametrize("operation, option", OPTIONS_OF_THE_GRADIENT)
def test_options_of_the_gradient_run_in_eager_mode_where_one_is_needed(operation, option):
    weight = torch.randn(4, 3, requires_grad=True)

    def fn(w):
        return operation(INDEX, w, **{option: True}).sin().sum()

    compiled = dovetail.jit(fn)
    (actual,) = torch.autograd.grad(compiled(weight), weight)
    (expected,) = torch.autograd.grad(fn(weight), weight)
    assert actual.layout == expected.layout
    torch.testing.assert_close(actual.to_dense(), expected.to_dense())


@pytest.mark.filterwarnings("ignore:.*run in eager mode")
def test_a_sparse_adam_trains_a_sparse_table():
    tables = [nn.Embedding(10, 4, sparse=True) for _ in range(2)]
    tables[1].load_state_dict(tables[0].state_dict())
    for table, wrap in zip(tables, (lambda step: step, dovetail.jit), strict=True):
        optimizer = torch.optim.SparseAdam(table.parameters())

        def step(index, table=table, optimizer=optimizer):
            optimizer.zero_grad()
            table(index).square().sum().backward()
            optimizer.step()

        run = wrap(step)
        for _ in range(3):
            run(INDEX)
    torch.testing.assert_close(tables[1].weight, tables[0].weight)


@pytest.mark.parametrize("option", ["sparse", "scale_grad_by_freq"])
def test_options_of_the_gradient_change_nothing_without_one(option):
    weight = torch.randn(4, 3, requires_grad=True)
    agrees(lambda w: F.embedding(INDEX, w, **{option: True}), weight.detach())
    with torch.no_grad():
        agrees(lambda w: F.embedding(INDEX, w, **{option: True}), weight)


def test_one_hot_wants_num_classes():
    agrees(lambda x: F.one_hot(x, 5), INDEX)
    agrees(lambda x: F.one_hot(x[:0], 5), INDEX)
    raises_as_eager(lambda x: F.one_hot(x, 0), INDEX)
    raises_as_eager(lambda x: F.one_hot(x.float(), 3), INDEX)
    with pytest.raises(dovetail.errors.Unsupported, match="pass num_classes"):
        dovetail.make_trace(F.one_hot)(INDEX)

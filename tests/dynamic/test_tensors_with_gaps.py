"""Parts of larger tensors of several sizes: the strides that this changes are symbols, as `x[:, :-1]` has them."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_leaves

import dovetail

WEIGHT = torch.linspace(-1, 1, 12).view(4, 3)
PARTS = {  # a part of a tensor of a size, and what is computed of it
    "all but the last": (lambda n: torch.randn(5, n + 1)[:, :-1], lambda x: (x * 2, x.sum(1), x.softmax(-1))),
    "of a fixed size": (lambda n: torch.randn(5, n)[:, :2], lambda x: (x.exp(), x.sum(0))),
    "rows": (lambda n: torch.randn(3, n, 4)[:, 1:], lambda x: (x @ WEIGHT, F.layer_norm(x, (4,)), x.mean(1))),
    "viewed": (lambda n: torch.randn(3, n, 4)[:, 1:], lambda x: (x.transpose(1, 2), x[:, :1], x.contiguous(), x.reshape(-1, 4) * 2)),
    "both dimensions": (lambda n: torch.randn(n, n + 2)[1:, 1:-1], lambda x: x @ x.T),
    "a column": (lambda n: torch.randn(3, n)[:, 0], lambda x: x.exp()),
    "images": (lambda n: torch.randn(2, 3, 8, n)[..., 1:], lambda x: F.conv2d(x, torch.ones(4, 3, 3, 3), padding=1).relu()),
    "expanded": (lambda n: torch.randn(3, n)[:, None, 1:].expand(3, 2, n - 1), lambda x: x.sum(1)),
    "what it is": (lambda n: torch.randn(3, n)[:, 1:], lambda x: (x.stride(), x.is_contiguous(), x.shape)),
}


def part_of_size(create, n, grad):
    torch.manual_seed(n)
    return create(n).requires_grad_(grad)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", PARTS)
def test_one_program_runs_parts_of_tensors_of_all_sizes(name, grad, dynamic):
    create, function = PARTS[name]
    compiled = dovetail.jit(function, dynamic=dynamic)
    for n in (4, 5, 6, 9, 33, 5, 8):
        ours, theirs = (part_of_size(create, n, grad) for _ in range(2))
        results = tree_leaves(compiled(ours)), tree_leaves(function(theirs))
        torch.testing.assert_close(*results)
        for one, other in zip(*results, strict=True):
            assert not isinstance(other, torch.Tensor) or one.stride() == other.stride()
        if grad and isinstance(results[0][0], torch.Tensor):
            for leaves in results:
                sum([y.sin().sum() for y in leaves]).backward()
            torch.testing.assert_close(ours.grad, theirs.grad)
    assert compiled.cache_info().programs <= 2


def test_a_part_is_written_in_place():
    compiled = dovetail.jit(lambda x: x.mul_(2).sum(0))
    for n in (4, 5, 9, 17):
        whole = torch.ones(3, n)
        torch.testing.assert_close(compiled(whole[:, 1:]), torch.full((n - 1,), 6.0))
        assert whole.sum() == 3 * (2 * n - 1)
    assert compiled.cache_info().programs == 2


def test_what_is_no_part_compiles_another_program():
    compiled = dovetail.jit(lambda x: x * 2)
    for x in (torch.randn(3, 5)[:, 1:], torch.randn(3, 7)[:, 1:], torch.randn(3, 4), torch.randn(7, 3).T, torch.randn(3, 9)[:, ::2], 3, None):
        if x is None:
            with pytest.raises(TypeError):
                compiled(x)
        else:
            torch.testing.assert_close(compiled(x), x * 2)
    dovetail.verify(compiled, torch.randn(3, 8)[:, 1:])  # raises where a line disagrees


def test_a_tensor_without_strides_is_eagers_to_refuse():
    compiled = dovetail.jit(lambda x: x * 2)
    for n in (4, 5, 6):
        compiled(torch.randn(3, n)[:, 1:])
    sparse = torch.eye(4).to_sparse_csr()
    with pytest.raises(dovetail.errors.Unsupported, match="of a sparse tensor is not traced"):
        compiled(sparse)


def test_a_language_model_trains_on_lengths_that_differ():
    results = []
    for jit in (lambda model: model, dovetail.jit):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Embedding(20, 8), torch.nn.GELU(), torch.nn.Linear(8, 20))
        call, optimizer = jit(model), torch.optim.SGD(model.parameters(), lr=0.1)
        for length in (5, 6, 7, 8, 11, 6, 13, 9):
            tokens = torch.randint(20, (3, length))
            optimizer.zero_grad()
            F.cross_entropy(call(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()).backward()
            optimizer.step()
        results.append([p.detach() for p in model.parameters()])
    torch.testing.assert_close(results[1], results[0])
    assert call.cache_info().programs == 2

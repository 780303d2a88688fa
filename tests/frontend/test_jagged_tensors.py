"""Nested tensors of the jagged layout, as arguments and results of compiled functions and inside of them."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import dovetail
from dovetail.errors import Unsupported

JAGGED = {"layout": torch.jagged}


def ragged(*lengths, width=4, needs_grad=False):
    return torch.nested.nested_tensor([torch.randn(n, width) for n in lengths], **JAGGED).requires_grad_(needs_grad)


def plain(*shape):
    return torch.randn(*shape, requires_grad=True)


def jagged_of(values, offsets):
    return torch.nested.nested_tensor_from_jagged(values, offsets)


def copied(x):
    return x.detach().clone().requires_grad_(x.requires_grad)


def leaves(x):
    return [y for item in x for y in leaves(item)] if isinstance(x, (list, tuple)) else [x]


def assert_same(actual, expected):
    assert list(map(type, actual)) == list(map(type, expected))
    for ours, theirs in zip(actual, expected, strict=True):
        if isinstance(theirs, torch.Tensor) and theirs.is_nested:
            assert (ours.requires_grad, ours.is_leaf, ours._ragged_idx) == (theirs.requires_grad, theirs.is_leaf, theirs._ragged_idx)
            torch.testing.assert_close([ours.detach().values(), ours.offsets()], [theirs.detach().values(), theirs.offsets()])
        elif isinstance(theirs, torch.Tensor):
            assert (ours.requires_grad, ours.is_leaf) == (theirs.requires_grad, theirs.is_leaf)
            torch.testing.assert_close(ours, theirs)
        else:
            assert ours == theirs


def trained(function, args):
    """Return the results of a call, and the gradients of its arguments after a backward of what requires grad."""
    results = leaves(function(*args))
    losses = [(x.values() if x.is_nested else x).square().mean() for x in results if isinstance(x, torch.Tensor) and x.requires_grad]
    if losses:
        torch.stack(losses).sum().backward()
    return results, [x.grad for x in args]


OFFSETS = torch.tensor([0, 2, 5, 10])
FORWARD = {
    "arithmetic": (lambda x: (x * 2 + 1, x - x.sin(), F.gelu(x).relu()), lambda: [ragged(2, 3, 5)]),
    "linear": (lambda x, w, b: F.linear(x, w, b), lambda: [ragged(2, 3, 5), torch.randn(5, 4), torch.randn(5)]),
    "normalization": (lambda x: (F.layer_norm(x, (4,)), F.rms_norm(x, (4,)), x.softmax(-1), x.softmax(1)), lambda: [ragged(2, 3, 5)]),
    "reductions": (lambda x: (x.sum(), x.sum(1), x.sum(-1), x.mean(1), x.amax(1)), lambda: [ragged(2, 3, 5)]),
    "what it holds": (lambda x: (x.values() * 2, x.offsets() + 1, x.to_padded_tensor(0.0)), lambda: [ragged(2, 3, 5)]),
    "what it says of itself": (lambda x: (x.shape[0], x.dim(), x.is_nested, x.layout == torch.jagged), lambda: [ragged(2, 3)]),
    "shapes": (lambda x: (x.transpose(1, 2), x.unsqueeze(-1), x.unflatten(-1, [2, 2]), torch.cat([x, x], -1)), lambda: [ragged(2, 3, 5)]),
    "choices": (lambda x: (torch.where(x > 0, x, -x), x.masked_fill(x > 0, 0.0), torch.zeros_like(x)), lambda: [ragged(2, 3, 5)]),
    "copies": (lambda x: (x.clone().mul_(2), x.to(torch.float64), x.detach()), lambda: [ragged(2, 3, 5)]),
    "from values and offsets": (lambda v, o: jagged_of(v, o) * 2, lambda: [torch.randn(10, 4), OFFSETS.clone()]),
    "from tensors": (lambda a, b: (torch.nested.nested_tensor([a, b], **JAGGED) * 2).values(), lambda: [torch.randn(2, 4), torch.randn(3, 4)]),
    "one that comes back": (lambda x: (x, [x + 0]), lambda: [ragged(2, 3)]),
}
TRAINING = {
    "linear": (lambda x, w, b: F.linear(x, w, b).relu(), lambda: [ragged(2, 3, 5, needs_grad=True), plain(5, 4), plain(5)]),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (4,), w, b), lambda: [ragged(2, 3, needs_grad=True), plain(4), plain(4)]),
    "values": (lambda x: (x * 2).values().sin(), lambda: [ragged(2, 3, 5, needs_grad=True)]),
    "padded": (lambda x: (x * 2).to_padded_tensor(0.0), lambda: [ragged(2, 3, 5, needs_grad=True)]),
    "a plain factor": (lambda x, y: x * y, lambda: [ragged(2, 3, 5, needs_grad=True), plain(4)]),
    "softmax": (lambda x: x.softmax(-1) + x.mean(-1, keepdim=True), lambda: [ragged(2, 3, 5, needs_grad=True)]),
    "from tensors": (lambda a, b: torch.nested.as_nested_tensor([a, b], **JAGGED).sin(), lambda: [plain(2, 4), plain(3, 4)]),
    "from values": (lambda v: F.gelu(jagged_of(v, OFFSETS)).values(), lambda: [plain(10, 4)]),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("program", "arguments"), [*FORWARD.values(), *TRAINING.values()], ids=[*FORWARD, *[f"training {name}" for name in TRAINING]]
)
def test_results_and_gradients_are_those_of_eager_mode(program, arguments):
    compiled = dovetail.jit(program)
    for _ in range(2):
        args = arguments()
        (results, grads), (own_results, own_grads) = trained(program, [*map(copied, args)]), trained(compiled, [*map(copied, args)])
        assert_same(own_results, results)
        assert_same(own_grads, grads)


def test_other_lengths_compile_another_program():
    compiled = dovetail.jit(lambda x: F.gelu(x).sum(1))

    for lengths in ((2, 3, 5), (4, 1, 6), (2, 3, 5)):
        x = ragged(*lengths)
        torch.testing.assert_close(compiled(x), F.gelu(x).sum(1))
    assert compiled.cache_info().programs == 2


def test_a_result_has_the_ragged_size_of_its_argument():
    x = ragged(2, 3, 5, needs_grad=True)

    y = dovetail.jit(lambda x: x * 2)(x)
    (y + x).values().sum().backward()

    assert y.shape == x.shape
    torch.testing.assert_close(x.grad.values(), torch.full((10, 4), 3.0))


def test_which_offsets_are_shared_is_guarded():
    compiled, values, offsets = dovetail.jit(lambda x, y: x * y), torch.randn(10, 4), OFFSETS.clone()

    torch.testing.assert_close(compiled(jagged_of(values, offsets), jagged_of(values, offsets)).values(), values * values)
    with pytest.raises(RuntimeError, match="cannot call binary pointwise function mul"):
        compiled(jagged_of(values, offsets), jagged_of(values, offsets.clone()))


def test_a_comparison_of_ragged_sizes_is_guarded():
    program = lambda x, y: x + 1 if x.shape == y.shape else x - 1  # noqa: E731
    compiled, values, offsets = dovetail.jit(program), torch.randn(10, 4), OFFSETS.clone()

    for other in (offsets.clone(), offsets, offsets.clone()):
        x, y = jagged_of(values, offsets), jagged_of(values, other)
        torch.testing.assert_close(compiled(x, y).values(), program(x, y).values())


def test_a_ragged_size_that_is_returned_is_refused():
    for program in (lambda x: x.shape, lambda x: x.size(1)):
        with pytest.raises(Unsupported, match=r"the ragged size of a nested tensor is returned.*return x\.offsets\(\)"):
            dovetail.jit(program)(ragged(2, 3))


def test_a_network_trains():
    network = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.LayerNorm(8), torch.nn.GELU(), torch.nn.Linear(8, 4))
    compiled, x = dovetail.jit(network), ragged(2, 3, 5)

    grads = []
    for model in (network, compiled):
        network.zero_grad()
        model(x).values().square().mean().backward()
        grads.append([p.grad.clone() for p in network.parameters()])
    torch.testing.assert_close(*grads)

"""Full backward hooks of modules: traced with a backward() inside the compiled function, and run by eager mode with one outside of it."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn
from torch.nn.modules.module import register_module_full_backward_hook
from torch.utils._pytree import tree_flatten

import dovetail


def part(g):
    return None if g is None else g.detach().clone()


class Two(nn.Module):
    """Takes two tensors and returns two, and a number."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, 3))

    def forward(self, a, b):
        return a * self.weight, (b * b).sin(), 5


def chain(seen):
    """Hooks that look, that replace gradients, and that run before the backward."""
    m = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 2))
    m[0].register_full_backward_hook(lambda module, gi, go: seen.append(("first", part(gi[0]), part(go[0]))))
    m[1].register_full_backward_hook(lambda module, gi, go: (gi[0] * 2,))
    m[1].register_full_backward_hook(lambda module, gi, go: seen.append(("changed", part(gi[0]), part(go[0]))))
    m[2].register_full_backward_pre_hook(lambda module, go: (go[0] * 3,))
    m.register_full_backward_hook(lambda module, gi, go: seen.append(("all", part(gi[0]), len(go))))
    return m, lambda x: m(x).square().sum()


def of_several(seen):
    """Inputs and outputs of which some need no gradient, or get none."""
    m = Two()
    m.register_full_backward_hook(lambda module, gi, go: seen.append((*map(part, gi), *map(part, go))))
    return m, lambda x: m(x, x.detach())[0].sum() + m(x.detach(), x)[1].sum()


def everywhere(seen):
    m = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    handle = register_module_full_backward_hook(lambda module, gi, go: seen.append((type(module).__name__, part(gi[0]))))
    m.taken_away = handle
    return m, lambda x: m(x * 1.5).sum()


def by_the_program(seen):
    """A hook that comes and goes within each call."""
    m = nn.Linear(3, 2)

    def loss(x):
        handle = m.register_full_backward_hook(lambda module, gi, go: (gi[0] * 5,))
        y = m(x)
        handle.remove()
        return y.sum() + m(x).sum()

    return m, loss


@pytest.mark.parametrize("whole", [True, False], ids=["inside", "outside"])
@pytest.mark.parametrize("create", [chain, of_several, everywhere, by_the_program])
def test_full_backward_hooks_run_as_in_eager_mode(create, whole):
    outcomes = []
    for jit in (lambda f: f, dovetail.jit):
        torch.manual_seed(0)
        seen = []
        m, loss = create(seen)

        compiled = loss if whole else jit(loss)

        def step(x, loss=compiled):
            loss(x).backward()

        run = jit(step) if whole else step
        try:
            for i in range(3):
                x = torch.linspace(-1, i, 6).view(2, 3).requires_grad_()
                run(x)
                seen.append(x.grad)
        finally:
            if create is everywhere:
                m.taken_away.remove()
        outcomes.append((seen, [p.grad for p in m.parameters()]))
    (ours, form), (eager, expected) = map(tree_flatten, outcomes)
    assert form == expected
    for one, other in zip(ours, eager, strict=True):
        torch.testing.assert_close(one, other) if isinstance(one, torch.Tensor) else None
        assert isinstance(one, torch.Tensor) or one == other


def test_a_hook_of_a_module_whose_inputs_need_no_gradient_gets_none_for_them():
    m, seen = nn.Linear(3, 2), []
    m.register_full_backward_hook(lambda module, gi, go: seen.append((gi, part(go[0]))))

    def step(x):
        m(x).sum().backward()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch says so in a warning
        dovetail.jit(step)(torch.ones(4, 3))
    assert seen[0][0] == (None,)
    torch.testing.assert_close(seen[0][1], torch.ones(4, 2))


def test_a_hook_that_returns_too_many_gradients_is_an_error():
    m = nn.Tanh()
    m.register_full_backward_hook(lambda module, gi, go: (gi[0], gi[0]))
    with pytest.raises(RuntimeError, match="invalid number of grad_input"):
        dovetail.jit(lambda x: m(x).sum().backward())(torch.ones(3, requires_grad=True))


def test_a_function_that_reads_a_node_runs_eagerly():
    named = dovetail.jit(lambda x: type((x * 2).grad_fn).__name__)
    assert named(torch.ones(3, requires_grad=True)) == "MulBackward0"
    assert dovetail.jit(lambda x: x.grad_fn)(torch.ones(3, requires_grad=True)) is None


def test_whether_a_tensor_has_a_node_is_traced():
    def f(x):
        y = x * 2
        node = y.grad_fn
        with torch.no_grad():
            z = y + 1
        assert (node is None) == (not x.requires_grad) and y.grad_fn is node and z.grad_fn is None and y.detach().grad_fn is None
        return (y if node else z) + (x.grad_fn is None), y[:1].grad_fn is not None

    fast = dovetail.jit(f)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for grad in (True, False, True):
            x = torch.randn(3, requires_grad=grad)
            torch.testing.assert_close(fast(x), f(x))


NODES = {
    "name": lambda y: y.grad_fn.name(),
    "class": lambda y: type(y.grad_fn).__name__,
    "text": lambda y: f"{y.grad_fn}"[:13],
    "next": lambda y: len(y.grad_fn.next_functions),
    "instance": lambda y: isinstance(y.grad_fn, torch.autograd.graph.Node),
    "equal": lambda y: y.grad_fn == y.grad_fn,
    "attribute": lambda y: hasattr(y.grad_fn, "next_functions"),
    "written": lambda y: (y.grad_fn is y.add_(1).grad_fn, y.grad_fn is None),
}


@pytest.mark.filterwarnings("ignore:.*is read at")
@pytest.mark.parametrize("name", NODES)
def test_what_a_node_is_runs_eagerly(name):
    x, f = torch.ones(3, requires_grad=True), lambda x: NODES[name](x * 2)
    fast = dovetail.jit(f)
    assert [fast(x) for _ in range(3)] == [f(x)] * 3


class Marked(torch.autograd.Function):
    """The identity, whose results have a node that the program may register hooks on."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return g


KEPT = {
    "handle": lambda kept, seen, node: kept.append(node.register_hook(lambda inputs, outputs: seen.append(outputs[0].clone()))),
    "node": lambda kept, seen, node: kept.append(node),
}


@pytest.mark.parametrize("keep", KEPT.values(), ids=KEPT)
def test_a_function_runs_eagerly_whose_nodes_or_handles_of_hooks_stay_outside(keep):
    results = []
    for call in (dovetail.jit, lambda function: function):
        kept, seen, w = [], [], torch.ones(3, requires_grad=True)

        def program(x, kept=kept, seen=seen, w=w):
            y = Marked.apply(x * w)
            keep(kept, seen, y.grad_fn)
            return y.tanh()

        run = call(program)
        for value in (1.0, 2.0):
            run(torch.full((3,), value)).sum().backward()
        results.append(([type(x).__name__ for x in kept], seen, w.grad))
    assert results[0][0] == results[1][0]
    torch.testing.assert_close(results[0][1:], results[1][1:])

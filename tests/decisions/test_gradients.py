"""Gradients through decisions: each segment is differentiated by itself, and eager autograd chains them."""

from __future__ import annotations

import warnings

import pytest
import torch
from decisions.helpers import compiled, graph_of
from torch import nn

from dovetail.frontend.decisions.graph import Graph


class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        h = self.a(x).tanh()
        if x.mean() > 0:
            h = self.b(h)
        while h.abs().max() > 0.3:
            h = h * 0.5
        return (h * h).sum()


def test_12_training_with_a_branch_and_a_loop():
    torch.manual_seed(0)
    module = Branching()
    fn = compiled(module)
    for value in (1.0, -1.0, 2.0, -2.0):
        x = torch.full((2, 4), value)
        module.zero_grad()
        module(x).backward()
        expected = [None if p.grad is None else p.grad.clone() for p in module.parameters()]
        module.zero_grad(set_to_none=True)
        fn(x).backward()
        torch.testing.assert_close([p.grad for p in module.parameters()], expected)


class Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(out := torch.softmax(x, -1))
        return out

    @staticmethod
    def backward(ctx, g):
        return torch._softmax_backward_data(g, *ctx.saved_tensors, -1, g.dtype)


def test_a_backward_after_a_decision_may_call_c_code_of_torch():
    fn = compiled(lambda x: Softmax.apply(x * 2 if x.sum() > 0 else x).square().sum())
    warnings.filterwarnings("error", ".*calls run eagerly")
    for scale, sign in ((2, 1), (1, -1), (2, 3)):
        x, y = (torch.arange(3.0).mul(sign).requires_grad_() for _ in range(2))
        fn(x).backward()
        torch.softmax(y * scale, -1).square().sum().backward()
        torch.testing.assert_close(x.grad, y.grad)


def test_12_a_second_backward_is_refused_as_in_eager_mode():
    x = torch.ones(2, requires_grad=True)
    loss = compiled(lambda x: (x.sin() if x.sum() > 0 else x.cos()).sum())(x)
    loss.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        loss.backward()


def test_12_gradients_of_gradients():
    def cubed(x):
        y = x * x
        if y.sum() > 0:
            y = y * x
        return y.sum()

    x = torch.tensor([1.0, 2.0], requires_grad=True)
    (first,) = torch.autograd.grad(compiled(cubed)(x), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    torch.testing.assert_close(second, 6 * x.detach())


def test_31_an_input_that_one_segment_saves_and_another_writes_has_its_gradient():
    def written(x, w):
        y = x * w
        if y.sum() > 0:
            x.mul_(2)
        return y.sum()

    fn = compiled(written)
    for value in (1.0, -1.0, 1.0, 1.0):
        w, x = torch.full((3,), 2.0, requires_grad=True), torch.full((3,), value)
        fn(x, w).backward() if value < 0 else None
        if value > 0:
            loss = fn(x, w)
            assert x[0] == 2 * value
            try:
                loss.backward()
            except RuntimeError:  # the first such call runs in eager mode, which overwrites what it saved
                assert w.grad is None
                continue
        torch.testing.assert_close(w.grad, torch.full((3,), value))


def test_31_a_view_from_before_a_decision_of_an_input_that_is_written_behind_it():
    def written(x, y):
        v = x.view(4)
        while y.sum() > 2:
            y = y - 1
        v[1:].mul_(2)
        return v, v * y

    fn = compiled(written)
    for value in (0.0, 2.0, -1.0, 3.0):
        gradients = []
        for each in (written, fn):
            leaf = torch.linspace(-1, 2, 4).view(2, 2).requires_grad_()
            v, product = each(leaf * 1, torch.full((4,), value))
            (v.sum() + product.sin().sum()).backward()
            gradients.append((v, product, leaf.grad))
        torch.testing.assert_close(*gradients)
    assert graph_of(fn).eager_calls == 0


def test_12_gradients_of_gradients_through_a_number_from_before_a_branch():
    def scaled(x):
        n = (x > 0).sum().item()
        y = x * x
        if y.sum() > 0:
            y = y * x * (n + 1)
        return y.sum()

    x = torch.tensor([1.0, 2.0], requires_grad=True)
    fn = compiled(scaled)
    (first,) = torch.autograd.grad(fn(x), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    torch.testing.assert_close((first, second), (9 * x.detach() ** 2, 18 * x.detach()))
    assert graph_of(fn).eager_calls == 0


def masked(x):
    picked = x[x > 0]
    if picked.sum() > 3:
        picked = picked * 2
    return picked.sin().sum() + x.sum()


def test_8_gradients_through_a_mask():
    fn = compiled(masked)
    for start in (-1.0, -2.0, -9.0, -1.0):
        x, y = (torch.linspace(start, 2, 6).requires_grad_() for _ in range(2))
        masked(x).backward()
        fn(y).backward()
        torch.testing.assert_close(y.grad, x.grad)


@pytest.mark.parametrize("infinite", [False, True])
def test_18_the_step_of_a_grad_scaler(infinite):
    def step(parameter, grad, scale):
        found = torch.isinf(grad).any()
        if not found.item():
            parameter.sub_(grad / scale)
            scale.mul_(2)
        else:
            scale.mul_(0.5)
        return scale

    fn = compiled(step)
    for value in (1.0, float("inf"), 1.0, float("inf")) if infinite else (1.0, 2.0):
        theirs, ours = ([torch.ones(2), torch.tensor([value, 1.0]), torch.tensor(4.0)] for _ in range(2))
        with torch.no_grad():
            torch.testing.assert_close(fn(*ours), step(*theirs))
        torch.testing.assert_close(ours, theirs)


def test_18_clipping_by_a_norm_that_has_to_be_finite():
    def clipped(x, w):
        y = x * w
        norm = torch.linalg.vector_norm(y)
        if torch.logical_or(norm.isnan(), norm.isinf()):
            raise RuntimeError("the norm is not finite")
        return y * torch.clamp(1.0 / (norm + 1e-6), max=1.0)

    fn, w = compiled(clipped), torch.ones(3, requires_grad=True)
    for value in (0.1, 10.0):
        torch.testing.assert_close(fn(torch.full((3,), value), w), clipped(torch.full((3,), value), w))
    with pytest.raises(RuntimeError, match="the norm is not finite"):
        fn(torch.full((3,), float("inf")), w)


LEAVES = {
    "tensor": lambda: torch.tensor(0.5, requires_grad=True),
    "requires_grad_": lambda: torch.zeros(3).requires_grad_(),
    "parameter": lambda: nn.Parameter(torch.ones(3)),
}


@pytest.mark.parametrize("create", LEAVES.values(), ids=LEAVES)
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_leaf_that_is_created_without_grad_mode(create, mode):
    def program(x):
        leaf = create()
        return (x + leaf, leaf) if x.sum() > 0 else (x * leaf, leaf)

    fn = compiled(program)
    for value in (1.0, -1.0, 2.0):
        with mode():
            results, expected = (each(torch.full((3,), value)) for each in (fn, program))
        torch.testing.assert_close(results, expected)
        assert [each.requires_grad for each in results] == [each.requires_grad for each in expected]
    assert graph_of(fn).decisions


def gradient_of(leaf, x):
    (g,) = torch.autograd.grad((leaf**3 * x).sum(), leaf, create_graph=True)
    return g


OF_LEAVES = {
    "a mask": lambda x, leaf: leaf[x > 0] * 2,
    "a mask of a product": lambda x, leaf: (leaf * 2)[x > 0],
    "masked_select": lambda x, leaf: x * leaf.masked_select(x > 0).sum(),
    "a size": lambda x, leaf: leaf[: int((x > 0).sum()) + 1] * x.sum(),
    "a rate": lambda x, leaf: nn.functional.dropout(leaf * 2, float(x.max()) / 10),
    "a branch": lambda x, leaf: leaf * x if x.sum() > 0 else leaf + x,
    "a gradient": lambda x, leaf: x + gradient_of(leaf, x) if x.sum() > 0 else x * leaf,
    "a gradient before a branch": lambda x, leaf: (lambda g: g * 2 if x.sum() > 0 else g)(gradient_of(leaf, x)),
    "a gradient of a gradient": lambda x, leaf: torch.autograd.grad(gradient_of(leaf, x)[x > 0].sum(), leaf, create_graph=True)[0],
    "without gradients": lambda x, leaf: leaf.detach()[x > 0] * leaf.sum(),
}
LEFT = {"with the leaf": lambda y, leaf: (y, leaf), "alone": lambda y, leaf: (y,), "its gradient": lambda y, leaf: torch.autograd.grad(y.sum(), leaf)}


@pytest.mark.parametrize("left", LEFT)
@pytest.mark.parametrize("create", ["a leaf", "a parameter", "a layer"])
@pytest.mark.parametrize("use", OF_LEAVES)
def test_what_is_computed_from_a_created_leaf_after_a_decision_leads_to_it(use, create, left):
    def program(x):
        if create == "a leaf":
            leaf = torch.arange(4.0).requires_grad_()
        else:
            leaf = nn.Parameter(torch.arange(4.0)) if create == "a parameter" else nn.Linear(1, 4).bias
        return LEFT[left](OF_LEAVES[use](x, leaf), leaf)

    fn = compiled(program)
    for n in range(4):
        x, seen = torch.arange(4.0) - n * 0.5, []
        for call in (program, fn):
            torch.manual_seed(n)
            y, *leaf = call(x)
            seen.append([y, y.requires_grad, torch.autograd.grad(y.sum(), leaf, allow_unused=True) if y.requires_grad and leaf else None])
        torch.testing.assert_close(seen[1], seen[0])


class Updating(nn.Module):
    """A buffer that gradients depend on, read and written in an order: r reads it, w writes it, and | needs a value."""

    def __init__(self, order):
        super().__init__()
        self.order, self.weight = order, nn.Parameter(torch.ones(3))
        self.register_buffer("scale", torch.full((3,), 2.0))

    def forward(self, x):
        h = x * self.weight
        for step in self.order:
            if step == "r":
                h = h * self.scale.clone()
            elif step == "w":
                self.scale.mul_(x.mean() + 1.5)
            elif h.sum() > 0:
                h = h * 3
        return h.square().sum()


@pytest.mark.parametrize(("order", "restarts"), [("w|r|r", 0), ("rw|r", 0), ("wr|wr", 0), ("r|w", 1), ("r|w|r|w", 1), ("|rw|r", 0), ("rwr|r|", 0)])
def test_what_a_path_writes_is_known_before_the_segments_that_read_it_are_compiled(order, restarts, monkeypatch):
    started = []
    start_over = Graph.start_over
    monkeypatch.setattr(Graph, "start_over", lambda graph, **more: started.append(graph) or start_over(graph, **more))
    module, beside = Updating(order), Updating(order)
    fn = compiled(module)
    for sign in (1, -1, 1, -1, -1):
        x = torch.arange(1.0, 4.0) * sign
        for each, call in ((module, fn), (beside, beside)):
            each.zero_grad()
            call(x.clone()).backward()
        torch.testing.assert_close((module.weight.grad, module.scale), (beside.weight.grad, beside.scale))
    assert len(started) == restarts and graph_of(fn).eager_calls == 0


def pulls(x):
    out, pullback = torch.func.vjp(lambda t: {"sin": t.sin() * x, "sum": t.exp().sum()}, x)
    steps = 0
    while out["sin"].sum() > 1:
        out, steps = {name: 0.5 * value for name, value in out.items()}, steps + 1
    (g,) = pullback(out)
    return (pullback({"sin": g, "sum": g[0]}) if g.sum() > 0 else g), steps


def pushes(x):
    out, push = torch.func.linearize(lambda t: (t.sin() * x, t.exp().sum()), x)
    return push(out[0] if out[1] > 4 else x)


def pulls_inside(x):
    def loss(t):
        out, pullback = torch.func.vjp(torch.sin, t * x)
        return (pullback(out)[0] * t).sum()

    return torch.func.grad(loss)(x) if loss(x) > 0 else x * 2


@pytest.mark.parametrize("fn", [pulls, pushes, pulls_inside])
def test_a_pullback_is_called_behind_a_decision(fn):
    compiled_fn = compiled(fn)
    for value in (0.4, -0.4, 1.2, 2.0, 0.5):
        x = torch.tensor([value, 0.3, -0.2])
        torch.testing.assert_close(compiled_fn(x), fn(x))
    assert graph_of(compiled_fn).eager_calls == 0 and compiled_fn.cache_info().misses < 5


@pytest.mark.parametrize("late", [False, True])
def test_an_argument_may_be_made_to_require_a_gradient_before_or_after_a_decision(late):
    def attack(x, direction):
        if late and direction.sum() > 1:
            direction = direction / 2
        x.requires_grad_()
        loss = (x * x).sum()
        (grad,) = torch.autograd.grad(loss, x)
        step = 1.0
        while ((x + step * direction) ** 2).sum() > loss + step * (grad @ direction):
            step /= 2
            if step < 0.1:
                break
        return x.detach() + step * direction, step

    fn = compiled(attack)
    for start, sign in ((1.0, -1.0), (2.0, 1.0), (0.5, -1.0), (1.0, 2.0)):
        ours, theirs = torch.full((2,), start), torch.full((2,), start)
        direction = torch.tensor([sign, 0.0])
        torch.testing.assert_close(fn(ours, direction), attack(theirs, direction))
        assert ours.requires_grad and theirs.requires_grad


def detached(x, w):
    start = x.detach()
    copy = start.clone()
    x.requires_grad_()
    (grad,) = torch.autograd.grad((x * w).sum().tanh(), x)
    start.add_(1)
    return start, copy + grad, x


def viewed(x, w):
    first = x[:1]
    x.requires_grad_()
    (grad,) = torch.autograd.grad((x * w).sum().tanh(), x)
    return first, grad, x


def written(x, w):
    x.mul_(2)
    x.requires_grad = True
    (x * w).sum().tanh().backward()
    return x.grad, x


@pytest.mark.parametrize("program", [detached, viewed, written])
@pytest.mark.parametrize("branches", [False, True])
def test_an_argument_that_was_read_before_may_be_made_to_require_a_gradient(program, branches):
    def f(x, w):
        results = program(x, w)
        return (*results, w) if branches and w.sum() > 0 else results

    fn = compiled(f)
    for sign in (1.0, -1.0, 2.0):
        ours, theirs, w = torch.ones(2), torch.ones(2), torch.tensor([sign, 0.5])
        results, wanted = fn(ours, w), f(theirs, w)
        torch.testing.assert_close(results, wanted)
        assert [x.requires_grad for x in results] == [x.requires_grad for x in wanted]
        assert [x.data_ptr() == ours.data_ptr() for x in results] == [x.data_ptr() == theirs.data_ptr() for x in wanted]

"""Parameters, modules and other leaves that a compiled function creates: new at every call, drawn from the generator as in eager mode."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn

import dovetail
from dovetail.errors import Unsupported

X = torch.arange(4.0) + 1


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4) * 3)
        self.register_buffer("shift", torch.zeros(4))
        self.inner = nn.Linear(4, 4, bias=False)

    def forward(self, x):
        return self.inner(x * self.scale + self.shift)


def assigned(x):
    leaf = x.detach()[:, None]
    leaf.requires_grad = True
    return torch.autograd.grad((leaf**3).sum(), leaf)[0], leaf * 2


def switched_off(x):
    leaf = x.detach()
    leaf.requires_grad = False
    return leaf * 2


def one_step(x):
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(x).sum().backward()
    optimizer.step()
    return model.weight.detach(), model.bias.grad


PROGRAMS = {
    "a parameter": lambda x: nn.Parameter(x * 2) * x,
    "a constant parameter": lambda x: nn.Parameter(x * 2, requires_grad=False),
    "modules": lambda x: nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 1))(x),
    "a module with a buffer": lambda x: Scaled()(x),
    "an embedding": lambda x: nn.Embedding(8, 3)(x.long()),
    "a copy of a module": lambda x: copy.deepcopy(nn.Linear(4, 2))(x),
    "a training step": one_step,
    "a leaf": lambda x: x.detach().requires_grad_() * 2,
    "a leaf by assignment": assigned,
    "no leaf by assignment": switched_off,
    "a leaf of a computed tensor": lambda x: (x * 2).detach().requires_grad_().sum() * x,
}


def both(fn, *args):
    """Return the results of the compiled function, the second time, and of the function, with the state of the generator after each."""
    compiled, results = dovetail.jit(fn), []
    for seed, call in ((0, fn), (1, compiled), (0, compiled)):  # in eager mode first, since a class of optimizers is patched once
        torch.manual_seed(seed)
        results.append((call(*args), torch.get_rng_state()))
    assert compiled.cache_info().programs == 1
    return results[2], results[0]


def shared(x):
    whole, part = copy.deepcopy([x.detach(), x.detach()[:2]])
    whole.add_(1)
    return part


def trained(x):
    weight = copy.deepcopy(x)
    ((weight + x) * 3).sum().backward()
    return weight, weight.grad


COPIED = {
    "a result": lambda x: copy.deepcopy(x),
    "in an operation": lambda x: copy.deepcopy(x) * x,
    "its gradient": lambda x: copy.deepcopy(x).grad,
    "in containers": lambda x: (lambda copied: copied["a"] * copied["b"][0] * x)(copy.deepcopy({"a": x, "b": [x]})),
    "detached": lambda x: copy.deepcopy(x.detach()) * x,
    "several tensors": lambda x: (lambda copied: copied[0].add_(1) * copied[1]["a"] + copied[2])(
        copy.deepcopy([x.detach() * 2, {"a": x.detach() + 1}, x])
    ),
    "tensors of several shapes": lambda x: sum(copy.deepcopy([torch.ones(4), torch.zeros(2, 1), torch.ones(()), x.detach().sum()])) * x,
    "a copy of a copied module": lambda x: copy.deepcopy(copy.deepcopy(nn.BatchNorm1d(2)))(x.view(2, 2)).view(4),
    "without gradients": torch.no_grad()(lambda x: copy.deepcopy(x) * 2),
    "trained": trained,
    "a transposed tensor": lambda x: copy.deepcopy(x.detach().view(2, 2).t()),
    "two of one memory": shared,
    "a view with gaps": lambda x: copy.deepcopy(x.detach()[::2]),
    "an expanded view": lambda x: copy.deepcopy(x.detach()[None].expand(3, 4)),
    "a shallow copy": lambda x: copy.copy(x) * x,
    "pickled": lambda x: pickle.loads(pickle.dumps(x)) * x,
    "pickled in a dict": lambda x: pickle.loads(pickle.dumps({"a": x.detach() * 1}))["a"] * x,
}


def leaf_with_gradient(needs_grad):
    x = X.clone().requires_grad_(needs_grad)
    if needs_grad:
        x.grad = X * 10
    return x


@pytest.mark.filterwarnings("ignore:.*run in eager mode")
@pytest.mark.parametrize("needs_grad", [True, False])
@pytest.mark.parametrize("name", COPIED)
def test_copies_of_tensors_are_leaves_of_their_own(name, needs_grad):
    program = COPIED[name] if needs_grad or name != "trained" else COPIED["a result"]
    observed = []
    for call in (program, dovetail.jit(program)):
        x, rows = leaf_with_gradient(needs_grad), []
        for _ in range(3):
            results = call(x)
            for y in results if isinstance(results, tuple) else (results,):
                if y is not None and y.grad_fn is not None:
                    y.sum().backward()
                rows.append(None if y is None else (y.detach().clone(), y.stride(), y.requires_grad, y.is_leaf, y.grad if y.is_leaf else None))
        observed.append((rows, x.grad))
    torch.testing.assert_close(observed[1], observed[0])


def test_native_tracing_refuses_copies_with_a_gradient():
    with pytest.raises(Unsupported, match="deepcopy of a tensor that requires a gradient"):
        dovetail.jit(copy.deepcopy, interpretation="native")(X.clone().requires_grad_())


def test_a_copy_of_a_tensor_with_a_history_is_eagers_error():
    with pytest.raises(RuntimeError, match="Only Tensors created explicitly by the user"):
        dovetail.jit(lambda x: copy.deepcopy(x * 2))(X.clone().requires_grad_())


@pytest.mark.parametrize("name", PROGRAMS)
def test_created_leaves_are_as_in_eager_mode(name):
    (ours, state), (theirs, expected) = both(PROGRAMS[name], X)
    torch.testing.assert_close(ours, theirs)
    assert torch.equal(state, expected)
    for a, b in zip(*[x if isinstance(x, tuple) else (x,) for x in (ours, theirs)], strict=True):
        assert (type(a), a.requires_grad, a.is_leaf) == (type(b), b.requires_grad, b.is_leaf)


def test_a_created_module_is_returned():
    (ours, _), (theirs, _) = both(lambda x: (nn.Linear(4, 2), x + 1), X)
    assert list(ours[0].state_dict()) == ["weight", "bias"] and type(ours[0].weight) is nn.Parameter and ours[0].weight.requires_grad
    torch.testing.assert_close(ours[0](X), theirs[0](X))
    ours[0](X).sum().backward()
    torch.testing.assert_close(ours[0].bias.grad, torch.ones(2))


def test_gradients_flow_past_a_created_module_and_stop_at_a_leaf():
    def fn(x):
        return nn.Linear(4, 1)(x).sum() + (x * 3).detach().requires_grad_().sum()

    grads = []
    for call in (dovetail.jit(fn), fn):
        x = X.clone().requires_grad_()
        torch.manual_seed(0)
        call(x).backward()
        grads.append(x.grad)
    torch.testing.assert_close(*grads)


def test_nothing_flows_through_a_tensor_that_became_a_leaf():
    def fn(x):
        with torch.no_grad():
            y = x * 3
        return (y.requires_grad_() * 2).sum() + x.sum()

    x = X.clone().requires_grad_()
    dovetail.jit(fn)(x).backward()
    torch.testing.assert_close(x.grad, torch.ones(4))


def with_result(x):
    layer = nn.Linear(4, 2)
    return layer, layer(x)


def with_gradient(x):
    parameter = nn.Parameter(x * 1)
    (parameter * x).sum().backward()
    return parameter


def test_a_created_module_comes_with_what_is_computed_from_it():
    grads = []
    for call in (with_result, dovetail.jit(with_result)):
        torch.manual_seed(0)
        layer, out = call(X)
        out.sum().backward()
        grads.append((layer.weight.grad, layer.bias.grad))
    torch.testing.assert_close(*grads)


def test_a_created_parameter_keeps_its_gradient():
    torch.testing.assert_close(dovetail.jit(with_gradient)(X).grad, with_gradient(X).grad)


def second_derivative(x):
    x.requires_grad_()
    (first,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    return torch.autograd.grad(first.sum(), x, create_graph=True)[0] * x


def own_gradient(x):
    x.requires_grad = True
    (x * x).sum().backward()
    return x, x.grad * x, x.is_leaf


@pytest.mark.parametrize("fn", [second_derivative, own_gradient])
def test_an_argument_becomes_a_leaf_that_requires_grad(fn):
    fast = dovetail.jit(fn)
    for size, already in ((3, False), (3, False), (4, False), (4, True)):
        outcomes = []
        for run in (fn, fast):
            x = torch.rand(size, generator=torch.Generator().manual_seed(size)).requires_grad_(already)
            result = run(x)
            sum(part.sum() for part in (result if isinstance(result, tuple) else [result]) if isinstance(part, torch.Tensor)).backward()
            outcomes.append((result, x.grad, x.requires_grad))
        torch.testing.assert_close(*outcomes)
    assert fast.cache_info().hits == 1


def read_before(x):
    y = (x + 1).sigmoid() * x * 2
    return y, (x.requires_grad_() * y).sum()


def gradient_inside(x):
    y = torch.relu(x) + x.sum()
    x.requires_grad_()
    return torch.autograd.grad((x**3 * y).sum(), x, create_graph=True)[0] * y, y.requires_grad, x.requires_grad


@pytest.mark.parametrize("fn", [read_before, gradient_inside])
def test_what_an_argument_was_read_for_before_it_requires_grad_has_no_part_in_its_gradient(fn):
    fast = dovetail.jit(fn)
    for size, already in ((3, False), (3, False), (4, False), (4, True)):
        outcomes = []
        for run in (fn, fast):
            x = torch.rand(size, generator=torch.Generator().manual_seed(size)).requires_grad_(already)
            results = run(x)
            histories = [part for part in results if isinstance(part, torch.Tensor) and part.requires_grad]
            sum(part.sum() for part in histories).backward() if histories else None
            outcomes.append((results, len(histories), x.grad, x.requires_grad))
        torch.testing.assert_close(*outcomes)


def test_a_buffer_that_was_read_requires_grad_from_then_on():
    class Loss(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("zero", torch.tensor(0.0), persistent=False)

        def forward(self, x):
            scaled = x * (self.zero + 1)
            loss = self.zero
            if self.training:
                loss.requires_grad_()
            return loss + scaled.square().mean()

    modules = Loss(), Loss()
    fast = dovetail.jit(modules[1])
    for size in (3, 3, 4):
        outcomes = []
        for module, run in zip(modules, (modules[0], fast), strict=True):
            x = torch.linspace(0, 1, size).requires_grad_()
            run(x).backward()
            outcomes.append((x.grad, module.zero.grad, module.zero.requires_grad))
        torch.testing.assert_close(*outcomes)


@pytest.mark.parametrize("fn", [lambda x: x.mul_(2).requires_grad_(), lambda x: (x[1:], x.requires_grad_())], ids=["a write", "a view"])
def test_a_call_runs_eagerly_where_an_argument_becomes_a_leaf_that_was_written_to_or_viewed(fn):
    compiled, x, y = dovetail.jit(fn), X.clone(), X.clone()
    torch.testing.assert_close(compiled(x), fn(y))
    assert x.requires_grad and compiled.cache_info() == (0, 0, 0)


def made(x):
    return torch.ones(4, requires_grad=True).mul_(x)


def made_parameter(x):
    return nn.Parameter(x.clone()).add_(1)


def written_at_an_index(x):
    leaf = torch.zeros(4, requires_grad=True)
    leaf[0] = x[0]
    return leaf


def written_through_a_view(x):
    x.clone().requires_grad_().view(2, 2).add_(1)


def several_at_once(x):
    torch._foreach_add_([torch.zeros(4, requires_grad=True)], 1.0)


def result_of_another(x):
    leaf = torch.zeros(4, requires_grad=True)
    torch.add(leaf, 1, out=leaf)


@pytest.mark.parametrize("fn", [made, made_parameter, written_at_an_index, written_through_a_view, several_at_once, result_of_another])
def test_a_write_into_a_leaf_that_requires_grad_raises(fn):
    for function in (fn, dovetail.jit(fn)):
        with pytest.raises(RuntimeError, match=r"a leaf Variable that requires grad is being used in an in-place operation|out=.*automatic"):
            function(X)


def stepped(x):
    leaf = x.clone().requires_grad_()
    (leaf**2).sum().backward()
    with torch.no_grad():
        leaf.view(2, 2)[0].sub_(leaf.grad[:2])
    leaf.data.mul_(2)
    leaf.detach().add_(1)
    return leaf.detach()


def test_a_leaf_is_written_with_grad_mode_off():
    torch.testing.assert_close(dovetail.jit(stepped)(X), stepped(X))


def of_one_backward(x):
    leaf = torch.randn(4).mul_(10).requires_grad_()
    (leaf * leaf * x).sum().backward()
    return leaf.grad, leaf.detach()


def filled(x):
    leaf = torch.empty(4)
    leaf[0], leaf[1:] = x[0], 2.0
    leaf.requires_grad_()
    return torch.autograd.grad((leaf * x).exp().sum(), leaf)


def through_a_view(x):
    leaf = x * 1
    leaf[1:].mul_(3)
    leaf.requires_grad_()
    return torch.autograd.grad((leaf * leaf).sum(), leaf)


def a_view(x):
    base = x.clone()
    base.mul_(3)
    leaf = base[1:].requires_grad_()
    return *torch.autograd.grad((leaf * leaf).sum(), leaf), base


def its_base(x):
    base = x.clone().mul_(2)
    leaf = base.detach().requires_grad_()
    with torch.no_grad():
        base.mul_(2)
    return *torch.autograd.grad((leaf * leaf).sum(), leaf), base


def with_a_hook(x):
    leaf = x.clone().mul_(2).requires_grad_()
    leaf.register_hook(lambda g: g * 2)
    (leaf * leaf).sum().backward()
    return leaf.grad


def stepped_often(x):
    leaf = x.clone().mul_(2).requires_grad_()
    optimizer = torch.optim.SGD([leaf], lr=0.1, momentum=0.9)
    for _ in range(3):
        optimizer.zero_grad()
        loss = (leaf * leaf).sum()
        loss.backward()
        optimizer.step()
    return leaf.detach(), leaf.grad, loss.detach()


def of_two_graphs(x):
    model = nn.Linear(4, 4)
    one, other = model(x), nn.functional.linear(x, model.weight)
    return *torch.autograd.grad(one.sum(), list(model.parameters())), *torch.autograd.grad(other.square().sum(), model.weight)


def of_an_older_graph(x):
    model = nn.Linear(4, 4)
    one, other = model(x), nn.functional.linear(x, model.weight)
    one.sum().backward()
    with torch.no_grad():
        for p in model.parameters():
            p -= 0.1 * p.grad
    other.square().sum().backward()
    before = model.weight.grad.clone()
    model(x).exp().sum().backward()
    return before, model.weight.grad, model.bias.grad, model.weight.detach()


def after_a_branch(x):
    leaf = x.clone()
    leaf.mul_(2)
    if leaf.sum() > 3:
        leaf.add_(1)
    leaf.requires_grad_()
    return torch.autograd.grad((leaf * leaf).sum(), leaf)


WRITTEN = (of_one_backward, filled, through_a_view, a_view, its_base, with_a_hook, stepped_often, of_two_graphs, of_an_older_graph, after_a_branch)


@pytest.mark.parametrize("fn", WRITTEN)
def test_gradients_of_leaves_that_were_written(fn):
    compiled = dovetail.jit(fn)
    for x in (X, -X, X):
        results = []
        for function in (fn, compiled):
            torch.manual_seed(0)
            results.append(function(x))
        torch.testing.assert_close(results[1], results[0])


def twice(graph):
    """Return a program that calls backward() twice through `graph` of a leaf."""

    def program(x):
        leaf = x.clone().requires_grad_()
        y = graph(leaf)
        (y * y).sum().backward()
        y.exp().sum().backward()
        return leaf.grad

    return program


SHARED = {  # graphs of which a backward frees nothing, and graphs of which it does
    "views": lambda x: x.view(2, 2).t()[0],
    "a sum": lambda x: x + 1 - x.neg(),
    "a copy in another dtype": lambda x: torch.cat([x, x]).double(),
    "a write": lambda x: (x + 0).add_(x),
    "a product": lambda x: (x * x).view(2, 2),
    "a product that is written": lambda x: (x + 0).mul_(x),
}


@pytest.mark.parametrize("name", SHARED)
def test_a_second_backward_needs_the_tensors_that_a_graph_has_saved(name):
    program = twice(SHARED[name])
    compiled = dovetail.jit(program)
    for x in (X, -X):
        if "product" in name:
            for function in (program, compiled):
                with pytest.raises(RuntimeError, match="a second time"):
                    function(x)
        else:
            torch.testing.assert_close(compiled(x), program(x))


def test_results_of_a_graph_that_a_backward_has_not_freed_are_differentiable():
    def program(x, y):
        z = x + y
        z.sum().backward()
        return z, z.t().sum()

    outcomes = []
    for function in (program, dovetail.jit(program)):
        leaves = [X.view(2, 2).clone().requires_grad_() for _ in range(2)]
        for _ in range(2):
            z, total = function(*leaves)
            (z.square().sum() + total).backward()
        outcomes.append([leaf.grad for leaf in leaves])
    torch.testing.assert_close(outcomes[1], outcomes[0])


def test_retained_gradients_accumulate():
    def program(x):
        leaf = x.clone().requires_grad_()
        h = leaf * 3
        h.retain_grad()
        loss = (h * h).sum()
        loss.backward(retain_graph=True)
        first = h.grad.clone()
        loss.backward()
        return first, h.grad, leaf.grad

    torch.testing.assert_close(dovetail.jit(program)(X), program(X))


ASARRAY = {
    "itself": lambda x: torch.asarray(x, requires_grad=True),
    "a copy": lambda x: torch.asarray(x, copy=True, requires_grad=True),
    "another dtype": lambda x: torch.asarray(x, dtype=torch.float64, requires_grad=True),
    "of what is computed": lambda x: torch.asarray(x * 2, requires_grad=True),
    "without a gradient": lambda x: torch.asarray(x, requires_grad=False),
    "a copy without": lambda x: torch.asarray(x, copy=True, requires_grad=False),
    "of what is computed, without": lambda x: torch.asarray(x * 2, requires_grad=False),
    "as it is": torch.asarray,
}


@pytest.mark.parametrize("name", ASARRAY)
@pytest.mark.parametrize("needs_grad", [True, False])
def test_asarray_sets_requires_grad_where_eager_mode_does(name, needs_grad):
    def fn(x):
        y = ASARRAY[name](x)
        loss = (y * y).sum()
        if y.requires_grad:
            loss.backward()
        return y is x, y.requires_grad, y.is_leaf, loss.detach(), x.grad

    results = []
    for call in (fn, dovetail.jit(fn)):
        x = torch.tensor([1.0, 2.0, 3.0], requires_grad=needs_grad)
        results.append((call(x), x.requires_grad, x.grad))
    torch.testing.assert_close(*results)
    ours, eagers = (torch.tensor([1.0, 2.0, 3.0], requires_grad=needs_grad) for _ in range(2))
    got, want = dovetail.jit(ASARRAY[name])(ours), ASARRAY[name](eagers)
    assert (got is ours, got.requires_grad, got.is_leaf) == (want is eagers, want.requires_grad, want.is_leaf)

"""Training steps written as one function: forward, backward() and optimizer.step() become one program."""

from __future__ import annotations

import contextlib
import copy
import math
from collections import deque

import pytest
import torch
import torch.nn.functional as F
from packaging.version import Version
from torch import nn
from torch.utils._pytree import tree_leaves

import dovetail
from dovetail.errors import Unsupported

STEPS = 20


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))


OPTIMIZERS = {
    "sgd": lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9, weight_decay=1e-2, nesterov=True),
    "adam": lambda params: torch.optim.Adam(params, lr=0.01),
    "adamw-foreach": lambda params: torch.optim.AdamW(params, lr=0.01, foreach=True),
    "adamw-fused": lambda params: torch.optim.AdamW(params, lr=0.01, fused=True),
}
MORE = {
    "sgd-plain": lambda params: torch.optim.SGD(params, lr=0.1),
    "sgd-foreach": lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9, foreach=True),
    "sgd-fused": lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9, weight_decay=1e-2, nesterov=True, fused=True),
    "sgd-fused-dampened": lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9, dampening=0.1, maximize=True, fused=True),
    "adam-fused": lambda params: torch.optim.Adam(params, lr=torch.tensor(0.01), weight_decay=1e-2, fused=True),
    "adam-fused-amsgrad": lambda params: torch.optim.Adam(params, lr=0.01, amsgrad=True, maximize=True, fused=True),
    "adam-amsgrad": lambda params: torch.optim.Adam(params, lr=0.01, amsgrad=True, maximize=True),
    "adamw": lambda params: torch.optim.AdamW(params, lr=0.01),
    "rmsprop": lambda params: torch.optim.RMSprop(params, lr=0.01, momentum=0.5, centered=True),
    "adagrad": lambda params: torch.optim.Adagrad(params, lr=0.01),
    "nadam": lambda params: torch.optim.NAdam(params, lr=0.01),
    "adamax": lambda params: torch.optim.Adamax(params, lr=0.01),
}


def step_of(model, optimizer, *, batch=lambda model, x, y: F.cross_entropy(model(x), y), before=lambda model: None):
    def step(x, y):
        optimizer.zero_grad()
        loss = batch(model, x, y)
        loss.backward()
        before(model)
        optimizer.step()
        return loss

    return step


def trained(make_model, make_optimizer, jit, steps=STEPS, **kwargs):
    torch.manual_seed(1)
    model = make_model()
    optimizer = make_optimizer(model.parameters())
    step = jit(step_of(model, optimizer, **kwargs))
    batches = [(torch.randn(4, 6), torch.randint(0, 3, (4,))) for _ in range(steps)]
    losses = torch.stack([step(x, y).detach() for x, y in batches])
    grads = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    return step, losses, grads, copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state_dict())


def assert_trains_alike(*args, programs=2, **kwargs):
    _, *want = trained(*args, jit=lambda step: step, **kwargs)
    step, *got = trained(*args, jit=dovetail.jit, **kwargs)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    assert step.cache_info().programs == step.cache_info().misses == programs


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_step_trains_as_eager_does_in_two_programs(optimizer):
    assert_trains_alike(small, OPTIMIZERS[optimizer])


KINDS = ("SGD", "Adam", "AdamW")  # optimizers with a kernel for a whole step


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_of_one_kernel_is_fused_with_what_is_around_it(kind):
    step, *_ = trained(small, lambda params: getattr(torch.optim, kind)(params, lr=0.01, fused=True), jit=dovetail.jit, steps=3)
    assert "_fused_" not in str(dovetail.last_traces(step)[0])


def test_numbers_to_the_powers_in_a_list():
    x = [torch.tensor([1.0, -2.0]), torch.tensor(3.0)]
    torch.testing.assert_close(dovetail.jit(lambda x: torch._foreach_pow(2.0, x))(x), torch._foreach_pow(2.0, x))


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", MORE)
def test_more_optimizers_train_as_eager_does(optimizer):
    assert_trains_alike(small, MORE[optimizer])


SCHEDULED = {
    "adam": lambda params: torch.optim.Adam(params, lr=0.1, weight_decay=0.1),
    **{f"{kind}-fused": lambda params, kind=kind: getattr(torch.optim, kind)(params, lr=0.1, weight_decay=0.1, fused=True) for kind in KINDS},
    "adamw-foreach": lambda params: torch.optim.AdamW(params, lr=0.1, foreach=True),
    "nadam": lambda params: torch.optim.NAdam(params, lr=0.1, weight_decay=0.1, decoupled_weight_decay=True),
    "rmsprop": lambda params: torch.optim.RMSprop(params, lr=0.1, momentum=0.5),
}


@pytest.mark.parametrize("optimizer", SCHEDULED)
def test_a_schedule_of_the_learning_rate_does_not_compile_again(optimizer):
    weights, make = [], SCHEDULED[optimizer]
    for jit in (lambda step: step, dovetail.jit):
        torch.manual_seed(0)
        model = small()
        optimizer = make(model.parameters())
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
        step, x, y = jit(step_of(model, optimizer)), torch.randn(4, 6), torch.randint(0, 3, (4,))
        for _ in range(6):
            step(x, y)
            schedule.step()
        weights.append(model.state_dict())
    torch.testing.assert_close(weights[1], weights[0])
    assert step.cache_info().programs == 2


RATES = {  # what a step does with the learning rate of its optimizer
    "returned": lambda rate, x: rate,
    "computed": lambda rate, x: (-rate, rate * 0.5, 1 - rate, rate**2, rate / 2),
    "its class": lambda rate, x: (type(rate).__name__, isinstance(rate, torch.Tensor), isinstance(rate * 2, float)),
    "written": lambda rate, x: f"{rate:.4f} {rate}",
    "compared": lambda rate, x: "large" if rate > 0.05 else "small",
    "in a dict": lambda rate, x: {"lr": rate, "half": rate * 0.5},
    "functions of numbers": lambda rate, x: (math.sqrt(rate), max(rate, 0.05), round(rate, 2), float(rate)),
    "integers": lambda rate, x: (torch.arange(3) * rate, torch.full((2,), rate), torch.tensor(rate)),
    "float32": lambda rate, x: (x.sum() * rate, x * rate, x - rate * 0.1, rate / x.exp(), x.add(x, alpha=-rate)),
    "bfloat16": lambda rate, x: (x.bfloat16() * rate, x.bfloat16().sum() * rate),
}


def rates_of_steps(jit, use):
    """Train while the rate falls, by a schedule that steps outside, or inside and so stores the rate; return all results as a list."""
    p = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([p], lr=0.1, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)

    @jit
    def step(x, inside):
        optimizer.zero_grad()
        (x * p).sum().backward()
        optimizer.step()
        if inside:
            schedule.step()
        return RATES[use](optimizer.param_groups[0]["lr"], x)

    rows = []
    for inside in (False, False, True, True, False, True):
        rows.append((step(torch.arange(3.0), inside), optimizer.param_groups[0]["lr"]))
        if not inside:
            schedule.step()
    return [p.detach(), *tree_leaves(rows)]


@pytest.mark.parametrize("use", RATES)
def test_a_learning_rate_that_changes_is_a_float(use):
    for got, want in zip(rates_of_steps(dovetail.jit, use), rates_of_steps(lambda step: step, use), strict=True):
        assert type(got) is type(want)
        assert got == want if isinstance(got, str) else torch.allclose(torch.as_tensor(got), torch.as_tensor(want))
        assert not isinstance(got, torch.Tensor) or got.dtype == want.dtype


class InPlace(nn.Module):
    """Buffers, an in-place activation, a write through a view, a parameter that is not used and one that is frozen."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)
        self.unused, self.frozen = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(8), requires_grad=False)

    def forward(self, x):
        h = F.relu(self.norm(self.first(x)), inplace=True) + 1
        column = h[:, 1]
        column.mul_(2.0)
        h[:, 0] += column * self.frozen[0]
        return self.last(h * self.frozen)


def test_a_forward_that_writes_in_place_is_differentiated_as_eager_does():
    assert_trains_alike(InPlace, OPTIMIZERS["sgd"], steps=6)


def test_gradients_are_clipped_between_backward_and_step():
    assert_trains_alike(small, OPTIMIZERS["adam"], steps=4, before=lambda model: nn.utils.clip_grad_norm_(model.parameters(), 0.1))


def both(function, arguments, calls=3):
    """Call a function eagerly and compiled on equal arguments; return the results and the arguments afterwards."""
    results = []
    for run in (function, dovetail.jit(function)):
        torch.manual_seed(0)
        args = arguments()
        values = [run(*args) for _ in range(calls)]
        results.append(([v.detach() if isinstance(v, torch.Tensor) else v for v in values], [(x.detach(), x.grad) for x in args]))
    torch.testing.assert_close(results[1], results[0])


def leaves():
    return torch.randn(3, 4), torch.randn(3, 4, requires_grad=True), torch.randn(4, requires_grad=True)


def accumulated(x, w, b):
    for part in x:
        (w * part + b).sigmoid().sum().backward()
    return w.grad.sum()


def penalty(x, w, b):
    inputs = x.detach().requires_grad_()
    out = (inputs * w).tanh().sum() + (inputs[0] * b).sum()
    (g,) = torch.autograd.grad(out, inputs, create_graph=True)
    loss = out + (g.norm(2, dim=1) - 1).square().mean()
    loss.backward()
    return loss


def two_losses(x, w, b):
    h = (x * w).exp()
    h.sum().backward(retain_graph=True)
    (h * b).square().sum().backward()
    with torch.no_grad():
        w -= 0.1 * w.grad
        w.grad.zero_()
    (x * w).sin().sum().backward()
    return h


def hooked(x, w, b):
    seen = []
    h = x * w + b
    h.register_hook(lambda g: g * 2)
    h.register_hook(lambda g: seen.append(g.sum()))
    h.retain_grad()
    h.square().sum().backward()
    return h.grad.sum() + seen[0]


def selected(x, w, b):
    h = w * x
    loss = (h * b).sum()
    gh, gb = torch.autograd.grad(loss, [h, b], retain_graph=True)
    loss.backward(inputs=[b])
    return gh.sum() + gb.sum()


def written_after(x, w, b):
    h = x * w
    view = h[0]
    h.sin_()
    loss = h.sum() + (b * 2).sum()
    loss.backward()
    with torch.no_grad():
        h.add_(1)
        view.mul_(2)
        late = h.detach()[1]
        h += 1
    return h.sum() + late.sum() + view.sum()


@pytest.mark.parametrize("function", [accumulated, penalty, two_losses, hooked, selected, written_after])
def test_a_backward_inside_computes_what_eager_does(function):
    both(function, leaves)


CONTAINERS = {
    "list": list,
    "tuple": tuple,
    "deque": deque,
    "values of a dict": lambda tensors: dict(enumerate(tensors)).values(),
    "dict": lambda tensors: dict(enumerate(tensors)),
    "ParameterList": nn.ParameterList,
}
DIFFERENTIATED = {  # with weights in a container from outside, and cotangents in a list from there
    "grad of inputs": lambda w, g: torch.autograd.grad(losses(w), w, [torch.ones(3)] * 2),
    "grad of keywords": lambda w, g: torch.autograd.grad(outputs=losses(w), inputs=w, grad_outputs=tuple(g)),
    "grad of outputs": lambda w, g: torch.autograd.grad(items(w), tuple(items(w)), tuple(g)),
    "grad with cotangents": lambda w, g: torch.autograd.grad(losses(w), w, g),
    "backward with inputs": lambda w, g: losses(w)[0].sum().backward(inputs=items(w)),
    "backward of tensors": lambda w, g: torch.autograd.backward(items(w), tuple(g)),
    "backward with cotangents": lambda w, g: torch.autograd.backward(losses(w), g),
    "backward of keywords": lambda w, g: torch.autograd.backward(tensors=losses(w), grad_tensors=list(g), inputs=list(items(w))),
}


def items(weights):
    return weights.values() if isinstance(weights, dict) else weights


def losses(weights):
    first, second = items(weights)
    return [first * second.sin(), first.square()]


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("use", DIFFERENTIATED)
def test_tensors_in_containers_from_outside_are_differentiated(use, container):
    if container == "dict" and use.startswith("grad") and use != "grad of outputs" and Version(torch.__version__).release < (2, 11):
        pytest.skip("torch 2.10 takes no dict of inputs")
    results = []
    for jit in (lambda step: step, dovetail.jit):
        tensors, cotangents = [nn.Parameter(torch.ones(3)), nn.Parameter(torch.arange(3.0))], [torch.full((3,), 2.0), torch.arange(3.0)]
        step, weights = jit(DIFFERENTIATED[use]), CONTAINERS[container](tensors)
        rows = []
        for _ in range(3):
            rows.append(tree_leaves(step(weights, cotangents)))
            cotangents[0] = cotangents[0] * 2
        results.append((rows, [x.grad for x in tensors]))
    torch.testing.assert_close(results[1], results[0])


@pytest.mark.parametrize("create_graph", [False, True])
def test_gradients_of_unused_inputs_materialize_as_zeros(create_graph):
    def gradients(x, unused):
        return torch.autograd.grad((x * 2).pow(3).sum(), (x, unused), materialize_grads=True, create_graph=create_graph)

    compiled = dovetail.jit(gradients)
    for rows in (2, 3, 2):
        x, unused = torch.ones(rows, requires_grad=True), torch.ones(4, rows).t().requires_grad_()
        expected, got = gradients(x, unused), compiled(x, unused)
        torch.testing.assert_close(got, expected)
        assert [(g.stride(), g.requires_grad) for g in got] == [(g.stride(), g.requires_grad) for g in expected]


def descend(p):
    p.sub_(p.grad)


def test_hooks_registered_outside_run():
    def step(x, w):
        (x * w).sum().backward()

    outcomes = []
    for run in (step, dovetail.jit(step)):
        x, w = torch.ones(3), torch.ones(3, requires_grad=True)
        w.register_hook(lambda g: g * 3)
        w.register_post_accumulate_grad_hook(descend)
        for _ in range(2):
            run(x, w)
        outcomes.append((w.detach(), w.grad))
    torch.testing.assert_close(outcomes[1], outcomes[0])


MODELS_WITH_HOOKS = {
    "perceptron": lambda: (torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.LayerNorm(4), torch.nn.ReLU(), torch.nn.Linear(4, 2)), (5, 3)),
    "convolution": lambda: (torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2), torch.nn.Tanh()), (2, 1, 5, 5)),
    "transformer": lambda: (torch.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True, dropout=0.0), (2, 3, 4)),
}


@pytest.mark.parametrize("registering", ["register_hook", "register_post_accumulate_grad_hook"])
@pytest.mark.parametrize("name", MODELS_WITH_HOOKS)
def test_hooks_on_parameters_run_in_the_order_of_eager_mode(name, registering):
    orders = []
    for wrap in (lambda step: step, dovetail.jit):
        (model, shape), order = MODELS_WITH_HOOKS[name](), []
        for label, parameter in model.named_parameters():
            getattr(parameter, registering)(lambda _, label=label, order=order: order.append(label))

        def step(x, model=model):
            model(x).square().sum().backward()

        run = wrap(step)
        for _ in range(2):
            run(torch.ones(shape))
        orders.append(order)
    assert orders[0] == orders[1]


def test_a_hook_that_comes_or_goes_compiles_again():
    def step(x, w):
        w.grad = None
        (x * w).sum().backward()

    compiled, x, w = dovetail.jit(step), torch.ones(3), torch.ones(3, requires_grad=True)
    compiled(x, w)
    handle = w.register_hook(lambda g: g * 3)
    compiled(x, w)
    assert w.grad.tolist() == [3, 3, 3]
    handle.remove()
    compiled(x, w)
    assert w.grad.tolist() == [1, 1, 1]


def test_a_gradient_that_is_deleted_is_gone():
    def step(x, v, w):
        u = torch.ones(3, requires_grad=True)
        for loss in ((v * w * x * u).sum(), (v * v * u * u).sum()):
            loss.backward()
            g = w.grad, u.grad
            v.grad = u.grad = None
        del w.grad
        return *g, v.grad, w.grad, u.grad

    compiled = dovetail.jit(step)
    for scale in (1.0, 2.0):
        v, w = (torch.full((3,), scale * i, requires_grad=True) for i in (1, 2))
        torch.testing.assert_close(compiled(torch.ones(3), v, w)[:2], (torch.full((3,), scale), 2 * v.detach() ** 2))
        assert v.grad is w.grad is None
    assert compiled.cache_info() == (1, 1, 1)
    with pytest.raises(AttributeError, match="missing"):
        dovetail.jit(lambda w: delattr(w, "missing"))(w)


def test_one_tensor_passed_for_two_gets_the_sum_of_gradients():
    def step(v, w):
        (v * w).sum().backward()

    compiled = dovetail.jit(step)
    v, w = torch.ones(2, requires_grad=True), torch.full((2,), 2.0, requires_grad=True)
    compiled(v, w)
    assert (v.grad.tolist(), w.grad.tolist()) == ([2, 2], [1, 1])
    v.grad = w.grad = None
    compiled(w, w)
    assert w.grad.tolist() == [4, 4]


def test_a_graph_that_was_freed_raises():
    def step(x, w):
        loss = (x * w).sin().sum()
        loss.backward()
        return loss

    loss = dovetail.jit(step)(torch.ones(3), torch.ones(3, requires_grad=True))
    assert loss.requires_grad
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        loss.backward()

    def twice(x, w):
        step(x, w).backward()

    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        dovetail.jit(twice)(torch.ones(3), torch.ones(3, requires_grad=True))


PASSED_TWICE = {  # where both gradients flow: eager mode frees what an operation saved, and some save nothing
    "add": lambda x: x + 1,
    "add with a factor": lambda x: torch.add(x, x, alpha=2),
    "subtract": lambda x: 1 - x,
    "negate": lambda x: -x,
    "mean": lambda x: x.mean(0),
    "cat": lambda x: torch.cat([x, x]),
    "slice and transpose": lambda x: x[1:].t(),
    "repeat": lambda x: x.repeat(2, 1),
    "convert": lambda x: x.double(),
    "pad": lambda x: F.pad(x, (1, 1)),
    "in place": lambda x: x.clone().add_(1),
    "multiply": lambda x: x * 2,
    "relu": lambda x: (x + 1).relu(),
    "sine and add": lambda x: x.sin() + 1,
}


@pytest.mark.parametrize("name", PASSED_TWICE)
def test_gradients_flow_twice_through_what_saves_nothing(name):
    def step(x):
        leaf = x.detach().requires_grad_()
        shared = PASSED_TWICE[name](leaf)
        return [torch.autograd.grad((shared * k).tanh().sum(), leaf)[0] for k in (1.0, 2.0, 3.0)]

    results = []
    for call in (dovetail.jit(step), step):
        try:
            results.append(call(torch.ones(4, 3)))
        except RuntimeError as error:
            assert "a second time" in str(error)
            results.append(None)
    assert (results[0] is None) == (results[1] is None) == (name in ("multiply", "relu", "sine and add"))
    if results[1] is not None:
        torch.testing.assert_close(*results)


def test_a_graph_that_is_retained_or_not_reached_keeps_its_history():
    def step(x, w):
        kept, other = (x * w).sin().sum(), w.square().sum()
        kept.backward(retain_graph=True)
        return kept, other

    x, w, v = torch.ones(3), torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    (sum(dovetail.jit(step)(x, w))).backward()
    (sum(step(x, v))).backward()
    torch.testing.assert_close(w.grad, v.grad)


@pytest.mark.parametrize(
    ("function", "error", "words"),
    [
        (lambda x, w: (x * w).backward(), RuntimeError, "only for scalar outputs"),
        (lambda x, w: x.sum().backward(), RuntimeError, "does not require grad"),
        (lambda x, w: torch.autograd.grad(w.sum(), [w, w * 1]), RuntimeError, "not have been used"),
    ],
)
def test_what_a_backward_cannot_do_is_an_error(function, error, words):
    with pytest.raises(error, match=words):
        dovetail.jit(function)(torch.ones(3), torch.ones(3, requires_grad=True))


def test_a_backward_that_would_go_on_outside_is_refused():
    with pytest.raises(Unsupported, match="computed outside"):
        dovetail.jit(lambda x: x.sum().backward())(torch.ones(3, requires_grad=True) * 2)


def test_a_gradient_with_a_history_is_differentiated_outside():
    def force(x, w):
        x = x.detach().requires_grad_()
        return torch.autograd.grad((x * w).tanh().sum(), x, create_graph=True)[0]

    outcomes = []
    for run in (force, dovetail.jit(force)):
        x, w = torch.linspace(-1, 1, 4), torch.linspace(0, 2, 4, requires_grad=True)
        result = run(x, w)
        result.square().sum().backward()
        outcomes.append((result.detach(), w.grad))
    torch.testing.assert_close(outcomes[1], outcomes[0])


def test_two_steps_of_two_models_in_one_function_train_as_eager_does():
    weights = []
    for jit in (lambda step: step, dovetail.jit):
        torch.manual_seed(0)
        maker, critic = nn.Linear(6, 6), nn.Linear(6, 1)
        optimizers = [torch.optim.Adam(m.parameters(), 0.01) for m in (maker, critic)]

        def step(x, maker=maker, critic=critic, optimizers=optimizers):
            made = maker(x)
            for optimizer, loss in zip(optimizers[::-1], (lambda: critic(made.detach()).mean() - critic(x).mean(), lambda: -critic(made).mean())):
                optimizer.zero_grad()
                loss().backward()
                optimizer.step()

        run = jit(step)
        for _ in range(3):
            run(torch.randn(4, 6))
        weights.append([maker.state_dict(), critic.state_dict()])
    torch.testing.assert_close(weights[1], weights[0], rtol=1e-4, atol=1e-5)


def test_gradients_are_clipped_by_value_where_there_are_some():
    def program(x, weight, backward):
        if backward:
            (weight * x).sum().backward()
        nn.utils.clip_grad_value_([weight], 0.5)
        return weight.grad.clone()

    compiled, weight = dovetail.jit(program), torch.ones(3, requires_grad=True)
    for backward in (False, True, False, True):
        weight.grad = None
        if backward:
            assert torch.equal(compiled(torch.ones(3), weight, backward), torch.full((3,), 0.5))
        else:
            with pytest.raises(RuntimeError, match="empty"):  # as torch's C code
                compiled(torch.ones(3), weight, backward)


@pytest.mark.parametrize("around", [True, False])
def test_anomaly_detection_names_what_returns_nan(around):
    w = torch.nn.Parameter(torch.zeros(3))

    def gradient(x, detect):
        with torch.autograd.set_detect_anomaly(True) if detect else contextlib.nullcontext():
            return torch.autograd.grad((w * x).sqrt().sum() * 0, w)[0]

    compiled = dovetail.jit(gradient)
    for detect in (False, True, False, True):
        with torch.autograd.set_detect_anomaly(detect and around), pytest.warns() if detect else contextlib.nullcontext():
            if detect:
                with pytest.raises(RuntimeError, match=r"SqrtBackward0.* returned nan"):
                    compiled(torch.ones(3), not around)
            else:
                assert compiled(torch.ones(3), False).isnan().all()
    assert compiled.cache_info().programs == 1

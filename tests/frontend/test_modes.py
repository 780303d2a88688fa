"""Modes around a compiled call are honoured: the call runs in eager mode under them, at the first call and when it is warm."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.autograd import forward_ad
from torch.func import functional_call, functionalize, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import dovetail
from dovetail.frontend.guards import prologue as prologues

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")


def program(x, y):
    return torch.sin(x) * y + (x * 2).tanh()


def scalar(function):
    return lambda x, y: function(x, y).sum()


TRANSFORMS = {
    "grad": lambda f: grad(scalar(f)),
    "grad of both": lambda f: grad(scalar(f), (0, 1)),
    "grad of grad": lambda f: grad(lambda x, y: grad(scalar(f))(x, y).sum()),
    "vmap": vmap,
    "vmap of grad": lambda f: vmap(grad(scalar(f))),
    "jvp": lambda f: lambda x, y: jvp(f, (x, y), (y, x)),
    "vjp": lambda f: lambda x, y: vjp(f, x, y)[1](x),
    "hessian": lambda f: hessian(scalar(f)),
    "jacfwd": jacfwd,
    "jacrev": jacrev,
    "functionalize": functionalize,
    "make_fx": lambda f: lambda x, y: make_fx(f)(x, y)(x + 1, y),
    "jit.trace": lambda f: lambda x, y: torch.jit.trace(f, (x, y))(x + 1, y),
}


@pytest.fixture
def inputs():
    return torch.randn(2, 3), torch.randn(2, 3)


@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
@pytest.mark.parametrize("interpretation", ["bytecode", "native"])
def test_a_transform_runs_the_program(transform, interpretation, inputs):
    ours = dovetail.jit(program, interpretation=interpretation)
    expected = transform(program)(*inputs)
    torch.testing.assert_close(transform(ours)(*inputs), expected)
    torch.testing.assert_close(ours(*inputs), program(*inputs))
    torch.testing.assert_close(transform(ours)(*inputs), expected)


def test_a_model_runs_under_functional_call():
    model, x = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh()), torch.randn(4, 3)
    ours, state = dovetail.jit(model), {name: p.detach() + 1 for name, p in model.named_parameters()}

    def per_sample(called):
        loss = lambda state, x: functional_call(called, state, (x[None],)).sum()  # noqa: E731
        return vmap(grad(loss), in_dims=(None, 0))(state, x)

    ours(x)
    torch.testing.assert_close(per_sample(ours), per_sample(model))
    torch.testing.assert_close(functional_call(ours, state, (x,)), functional_call(model, state, (x,)))


class Functions(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.seen.append(function)
        return function(*args, **(kwargs or {}))


class Dispatches(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.seen.append(function)
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("mode", [Functions, Dispatches])
@pytest.mark.parametrize("cache", ["guards", "same input"])
def test_a_mode_sees_every_operation(mode, cache, inputs):
    ours = dovetail.jit(program, cache=cache)
    with mode() as eager:
        expected = program(*inputs)
    for _ in range(2):
        with mode() as seen:
            result = ours(*inputs)
        torch.testing.assert_close(result, expected)
        assert seen.seen == eager.seen
        ours(*inputs)
    assert ours.cache_info().misses == 1


def test_flops_are_counted():
    model, x = torch.nn.Linear(4, 4), torch.randn(2, 4)
    ours = dovetail.jit(model)
    ours(x)
    with FlopCounterMode(display=False) as counter:
        ours(x)
    assert counter.get_total_flops() == 2 * 2 * 4 * 4


def test_fake_tensors_stay_fake(inputs):
    ours = dovetail.jit(program)
    ours(*inputs)
    with FakeTensorMode() as mode:
        assert type(ours(*map(mode.from_tensor, inputs))) is FakeTensor


@pytest.mark.parametrize("warm", [False, True])
def test_tangents_are_carried_forward(warm, inputs):
    ours = dovetail.jit(program)
    if warm:
        ours(*inputs)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(*inputs)
        expected = forward_ad.unpack_dual(program(dual, inputs[1])).tangent
        torch.testing.assert_close(forward_ad.unpack_dual(ours(dual, inputs[1])).tangent, expected)


def test_outside_of_a_level_a_tensor_has_no_tangent(inputs):
    def doubled(x, y):
        primal, tangent = forward_ad.unpack_dual(x)
        return primal * 2 if tangent is None else primal * y

    ours = dovetail.jit(doubled)
    assert torch.equal(ours(*inputs), inputs[0] * 2)
    with forward_ad.dual_level():
        assert torch.equal(ours(forward_ad.make_dual(*inputs), inputs[1]), inputs[0] * inputs[1])


def test_the_default_device_is_no_such_mode(inputs):
    ours = dovetail.jit(lambda x: x + torch.ones(3))
    with torch.device("cpu"):
        ours(inputs[0])
    assert ours.cache_info().programs == 1


def test_gradients_of_dovetail_run_under_transforms():
    rows = torch.randn(4, 3)
    torch.testing.assert_close(vmap(dovetail.grad(lambda x: torch.sin(x).sum()))(rows), rows.cos())


def test_a_bug_in_a_guard_runs_the_call_in_eager_mode(monkeypatch, inputs):
    ours = dovetail.jit(program)
    monkeypatch.setattr("dovetail.frontend.guards.prologue.active_mode", lambda: "a guard that never holds")
    for _ in range(2):
        with pytest.warns(dovetail.GuardWarning, match="guard: a mode of torch is around the call") as warned:
            torch.testing.assert_close(ours(*inputs), program(*inputs))
        report = str(warned[0].message)
        assert "line: if " in report and "test_modes.py" in report and torch.__version__ in report
    assert ours.cache_info().programs == 0


def test_the_report_of_a_guard_has_the_value(monkeypatch, inputs):
    check = prologues.PrologueBuilder.tensor

    def broken(self, proxy, guard):
        check(self, proxy, guard._replace(value=guard.value | {"shape": (7, 7)}))

    monkeypatch.setattr(prologues.PrologueBuilder, "tensor", broken)
    with pytest.warns(
        dovetail.GuardWarning, match=r"(?s)guard: args\[0\] is no longer a tensor.*line: try: if not .*shape == \(7, 7\).*value: Tensor tensor\("
    ):
        dovetail.jit(program)(*inputs)

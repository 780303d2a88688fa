"""Training through `__torch_dispatch__`: gradients of tensor subclasses, and of plain tensors beside them, in and around compiled functions."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import dovetail
from dovetail.errors import Unsupported
from tests.frontend.two_tensors import Pair, Quantized


def pair(*shape, needs_grad=True):
    return Pair(torch.randn(*shape), torch.randn(*shape)).requires_grad_(needs_grad)


def plain(*shape):
    return torch.randn(*shape, requires_grad=True)


def quantized(*shape):
    return Quantized.of(torch.randn(*shape)).requires_grad_()


def copied(x):
    if isinstance(x, Pair):
        new = Pair(x.left.clone(), x.right.clone(), x.note)
    elif isinstance(x, Quantized):
        new = Quantized(x.weight.clone(), x.scale.clone())
    else:
        new = x.detach().clone()
    return torch.nn.Parameter(new, x.requires_grad) if isinstance(x, torch.nn.Parameter) else new.requires_grad_(x.requires_grad)


def leaves(x):
    return [y for item in x for y in leaves(item)] if isinstance(x, (list, tuple)) else [x]


def facts(x):
    """Return what a result, or a gradient, is compared by."""
    if not isinstance(x, torch.Tensor):
        return x
    return type(x), x.requires_grad, x.grad_fn is None, x.is_leaf


def tensors(x):
    return [x.left, x.right] if isinstance(x, Pair) else [x.dequantize()] if isinstance(x, Quantized) else [x]


def assert_same(actual, expected):
    assert list(map(facts, actual)) == list(map(facts, expected))
    for ours, theirs in zip(actual, expected, strict=True):
        if isinstance(theirs, torch.Tensor):
            torch.testing.assert_close(tensors(ours), tensors(theirs))


def trained(function, args):
    """Return the results of a call, and the gradients of its arguments after a backward of what requires grad."""
    results = leaves(function(*args))
    losses = [x.mean() ** 2 for x in results if isinstance(x, torch.Tensor) and x.requires_grad]
    if losses:
        torch.autograd.backward(losses, [torch.ones_like(x) for x in losses])
    return results, [x.grad for x in args]


def assert_trains(program, arguments):
    compiled = dovetail.jit(program)
    for seed in range(2):
        torch.manual_seed(seed)
        args = arguments()
        (results, grads), (own_results, own_grads) = trained(program, [*map(copied, args)]), trained(compiled, [*map(copied, args)])
        assert_same(own_results, results)
        assert_same(own_grads, grads)
    assert compiled.cache_info().programs == 1


class ToPair(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return Pair(x.detach(), x.detach() * 2)

    @staticmethod
    def backward(ctx, g):
        return g.left + g.right


class FromPair(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.left + x.right

    @staticmethod
    def backward(ctx, g):
        return Pair(g, g * 3)


class FakeQuantize(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return Quantized.of(x)

    @staticmethod
    def backward(ctx, g):
        return g


class MatMul(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x)
        ctx.weight = weight
        return x @ weight.dequantize().t()

    @staticmethod
    def backward(ctx, g):
        return g @ ctx.weight.dequantize(), g.t() @ ctx.saved_tensors[0]


PROGRAMS = {
    "arithmetic": (lambda x, y: (x * 2 + y, x.sin()), lambda: [pair(3), pair(3)]),
    "a loss": (lambda x: (x * 2).sum(), lambda: [pair(3)]),
    "one without a gradient": (lambda x, y: (x @ y).relu(), lambda: [pair(3, 4), pair(4, 5, needs_grad=False)]),
    "a plain argument, whose gradient is a pair": (lambda x, y: x * y, lambda: [pair(3), plain(3)]),
    "what it holds is a constant": (lambda x, y: (x * y.left).sum(), lambda: [pair(3), pair(3)]),
    "views": (lambda x: x.t().reshape(-1)[2:] * 3, lambda: [pair(3, 4)]),
    "writes": (lambda x: (x * 2).mul_(3).add_(x), lambda: [pair(3, 4)]),
    "several results": (lambda x, y: torch.cat([x, y]).split(2), lambda: [pair(3, 4), pair(3, 4)]),
    "functions in Python": (lambda x: F.layer_norm(x, (4,)) + F.gelu(x).log_softmax(-1), lambda: [pair(3, 4)]),
    "a parameter": (lambda x: F.linear(x, x).sigmoid(), lambda: [torch.nn.Parameter(pair(3, 4))]),
    "detached": (lambda x: (x.detach() * 2, (x * 2).detach(), x.data + 1), lambda: [pair(3)]),
    "grad mode off": (lambda x: torch.no_grad()(lambda: x * 2)(), lambda: [pair(3)]),
    "what autograd says of it": (lambda x: (x.requires_grad, (x * 2).is_leaf, (x * 2).requires_grad, x.is_leaf, x.grad), lambda: [pair(3)]),
    "a hook": (lambda x: [(y := x * 2).register_hook(lambda g: g * 2), y * 3][1], lambda: [pair(3)]),
    "checkpointed": (lambda x: checkpoint(lambda y: (y * 2).sin(), x, use_reentrant=False), lambda: [pair(3)]),
    "quantized": (lambda x, w: (x.relu() @ w.t()).square().sum(), lambda: [plain(3, 8), quantized(4, 8)]),
    "quantized, with a bias": (lambda x, w, b: torch.addmm(b, x, w.t()).relu(), lambda: [plain(3, 8), quantized(4, 8), plain(4)]),
    "quantized, twice": (lambda x, w: ((x @ w.t()).relu() @ w).tanh(), lambda: [plain(3, 8), quantized(4, 8)]),
    "quantized and frozen": (lambda x, w: (x @ w.t()).relu(), lambda: [plain(3, 8), quantized(4, 8).detach()]),
    "an autograd.Function to a wrapper": (lambda x: ToPair.apply(x * 3) * 2, lambda: [plain(3)]),
    "an autograd.Function from a wrapper": (lambda x: FromPair.apply(x * 2), lambda: [pair(3)]),
    "there and back": (lambda x: FromPair.apply(ToPair.apply(x) * 2), lambda: [plain(3)]),
    "quantization-aware": (lambda x, w: (x @ FakeQuantize.apply(w * 2).t()).square(), lambda: [plain(3, 8), plain(4, 8)]),
    "with a product of its own": (lambda x, w: MatMul.apply(x, FakeQuantize.apply(w)).square(), lambda: [plain(3, 8), plain(4, 8)]),
    "a weight with a product of its own": (lambda x, w: MatMul.apply(x, w).square(), lambda: [plain(3, 8), quantized(4, 8)]),
}


@pytest.mark.parametrize(("program", "arguments"), PROGRAMS.values(), ids=PROGRAMS)
def test_gradients_are_those_of_its_dispatch(program, arguments):
    assert_trains(program, arguments)


def plain_loss(x, w):
    loss = (x @ w.t()).square().sum()
    loss.backward()
    return loss.detach(), w.grad * 2


def twice(x):
    for _ in range(2):
        (x * x).sum().backward()
    with torch.no_grad():
        x.sub_(x.grad, alpha=0.1)
    x.grad = None
    return x.detach() * 1


def with_a_plain_leaf(x, y):
    (x * y).sum().backward()
    return y.grad, x.grad


def parameter(x):
    y = torch.nn.Parameter(x.detach())
    (y * 3).sum().backward()
    return y.grad


def hooked(x):
    y = x * 2
    y.register_hook(lambda g: g * 10)
    y.sum().backward()


def optimized(x, w, kind):
    optimizer = kind([w], lr=0.1)
    optimizer.zero_grad()
    (x @ w.t()).square().sum().backward()
    optimizer.step()
    return w.left * 1


STEPS = {
    "a plain loss": (plain_loss, lambda: [plain(3, 8), quantized(4, 8)]),
    "a loss that is a wrapper": (twice, lambda: [pair(3)]),
    "a plain leaf": (with_a_plain_leaf, lambda: [pair(3), plain(3)]),
    "a parameter of the program": (parameter, lambda: [pair(3, needs_grad=False)]),
    "a hook": (hooked, lambda: [pair(3)]),
    "SGD": (lambda x, w: optimized(x, w, torch.optim.SGD), lambda: [pair(3, 4, needs_grad=False), torch.nn.Parameter(pair(5, 4))]),
    "Adam": (lambda x, w: optimized(x, w, torch.optim.Adam), lambda: [pair(3, 4, needs_grad=False), torch.nn.Parameter(pair(5, 4))]),
}


@pytest.mark.parametrize(("step", "arguments"), STEPS.values(), ids=STEPS)
def test_training_steps_in_one_function(step, arguments):
    compiled = dovetail.jit(step)
    for seed in range(2):
        torch.manual_seed(seed)
        args = arguments()
        theirs, ours = [*map(copied, args)], [*map(copied, args)]
        expected, actual = leaves(step(*theirs)), leaves(compiled(*ours))
        assert_same(actual, expected)
        assert_same([x.grad for x in ours], [x.grad for x in theirs])
        assert_same([x.detach() for x in ours], [x.detach() for x in theirs])


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, 16), torch.nn.Linear(16, 4)
        self.first.weight = torch.nn.Parameter(quantized(16, 8).detach())

    def forward(self, x):
        return self.second(torch.addmm(self.first.bias, x, self.first.weight.t()).relu())


def test_a_network_with_a_subclass_among_its_parameters_trains():
    network, x = Network(), plain(3, 8)
    compiled = dovetail.jit(network)

    for _ in range(2):
        grads = []
        for model in (network, compiled):
            network.zero_grad()
            model(x).square().sum().backward()
            grads.append([p.grad.clone() for p in network.parameters()])
        assert_same(*grads)
    assert compiled.cache_info().programs == 1


def test_a_parameter_of_the_program_that_is_used_outside_runs_in_eager_mode():
    result = dovetail.jit(lambda x: torch.nn.Parameter(x) * 2)(pair(3, needs_grad=False))

    assert facts(result) == (Pair, True, False, False)


def test_a_branch_beside_a_gradient_that_arrives_at_a_wrapper_runs_in_eager_mode():
    program = lambda x, w: (x @ w.t()).relu() if x.sum() > 0 else x @ w.t() + w.t()  # noqa: E731
    x, w = torch.rand(8, 8), quantized(8, 8)

    with pytest.warns(UserWarning, match="it has a gradient that arrives at a tensor subclass, besides"):
        (result,), grads = trained(dovetail.jit(program), [x, w])

    (expected,), _ = trained(program, [x, v := copied(w)])
    torch.testing.assert_close(result, expected)
    torch.testing.assert_close(grads[1], v.grad)


def test_a_wrapper_computed_outside_passes_its_gradient_on():
    x, y = pair(3), pair(3)
    y.left.copy_(x.left), y.right.copy_(x.right)

    dovetail.jit(lambda x: x * 3)(x * 2).sum().backward(Pair(torch.ones(()), torch.ones(())))
    ((y * 2) * 3).sum().backward(Pair(torch.ones(()), torch.ones(())))

    assert_same([x.grad], [y.grad])


def test_the_gradient_of_a_result_has_to_look_like_it():
    result = dovetail.jit(lambda x: x * 2)(pair(3))

    with pytest.raises(RuntimeError, match="the gradient of a Pair that a compiled function has returned is a Tensor"):
        result.backward(torch.ones(3))


def test_a_gradient_that_would_flow_through_plain_operations_is_refused():
    with pytest.raises(Unsupported, match="the gradient of a plain tensor that the function computes is a Pair"):
        dovetail.jit(lambda x, y: x * (y * 2))(pair(3), plain(3))


def test_a_gradient_of_a_gradient_is_refused():
    x, w = plain(3, 8), quantized(4, 8)

    gradient = torch.autograd.grad(dovetail.jit(lambda x, w: (x @ w.t()).square().sum())(x, w), x, create_graph=True)[0]

    with pytest.raises(RuntimeError, match="differentiat"):
        gradient.sum().backward()


def test_a_backward_that_its_dispatch_does_not_know_raises_where_it_is_needed():
    class NoTranspose(Quantized):
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            if func is torch.ops.aten.detach.default or func is torch.ops.aten.t.default:
                raise NotImplementedError(f"{func} is not known")
            return super().__torch_dispatch__(func, types, args, kwargs)

    w = NoTranspose.of(torch.randn(8, 8))
    program = lambda x, w: x @ w  # noqa: E731

    torch.testing.assert_close(dovetail.jit(program)(torch.ones(3, 8), w), program(torch.ones(3, 8), w))
    with pytest.raises(NotImplementedError, match=r"aten\.t\.default is not known"):
        dovetail.jit(program)(plain(3, 8), w).sum().backward()


@pytest.mark.parametrize("through_a_view", [False, True])
def test_a_plain_tensor_that_is_saved_and_written_raises_as_in_eager_mode(through_a_view):
    def program(w, x):
        scaled = x.detach() * 2
        product = w * scaled
        (scaled[0] if through_a_view else scaled).add_(1)
        return FromPair.apply(product).sum()

    for function in (program, dovetail.jit(program)):
        with pytest.raises(RuntimeError, match="has been modified by an inplace operation"):
            function(pair(2, 2), plain(2, 2)).backward()


def test_a_plain_tensor_that_is_written_before_it_is_saved_trains():
    def program(w, x):
        scaled = x.detach() * 2
        scaled.add_(1)
        product = w * scaled
        return FromPair.apply(product).sum()

    assert_trains(program, lambda: [pair(2, 2), plain(2, 2)])


def multiplied(x, y):
    z = x * 2
    z *= y
    return z


def stored(x, y):
    z = x * 2
    z[1:] = y[1:]
    return z * x


WRITES = {
    "a method": lambda x, y: (x * 2).mul_(y).sum(),
    "a function": lambda x, y: torch.Tensor.add_(x * 2, y) * x,
    "an overload": lambda x, y: torch.ops.aten.mul_.Tensor(x * 2, y),
    "an operator": multiplied,
    "items": stored,
}


@pytest.mark.parametrize("of_plain", [True, False], ids=["plain", ""])
@pytest.mark.parametrize("of_pair", [True, False], ids=["pair", ""])
@pytest.mark.parametrize("program", WRITES.values(), ids=WRITES)
def test_a_plain_tensor_that_is_written_with_a_pair_keeps_its_gradients(program, of_pair, of_plain):
    compiled = dovetail.jit(program)
    x, y = torch.randn(3, requires_grad=of_plain), pair(3, needs_grad=of_pair)
    (expected, expected_grads), (actual, grads) = trained(program, [copied(x), copied(y)]), trained(compiled, [copied(x), copied(y)])

    assert_same(actual, expected)
    assert_same(grads, expected_grads)
    assert compiled.cache_info().programs == int(not of_pair and not of_plain)  # eager mode alone changes what a tensor's history is

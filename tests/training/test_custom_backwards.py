"""Scenario 8: a torch.autograd.Function inside a compiled function is differentiated by its own backward."""

from __future__ import annotations

import functools
import warnings

import pytest
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

import dovetail
from dovetail.errors import Unsupported
from dovetail.trace import check


class Square(torch.autograd.Function):
    """x * x whose backward is made up, so that nobody can mistake it for a derived one."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x, x.exp())
        return x * x

    @staticmethod
    def backward(ctx, g):
        x, grown = ctx.saved_tensors
        return g * grown * 100 + x


class SquareInTwoParts(torch.autograd.Function):
    """The same with a setup_context."""

    @staticmethod
    def forward(x):
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs, output)

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        x, out = ctx.saved_tensors
        return g * 100 + out - x


class Reverse(torch.autograd.Function):
    """Gradient reversal: gives what it is given."""

    @staticmethod
    def forward(ctx, x, strength):
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return -ctx.strength * g, None


class Straight(torch.autograd.Function):
    """Rounds, and passes the gradient on."""

    @staticmethod
    def forward(ctx, x):
        return torch.round(x)

    @staticmethod
    def backward(ctx, g):
        return g


class TopAndRest(torch.autograd.Function):
    """Several results, one of them not differentiable, and what needs a gradient asked for."""

    @staticmethod
    def forward(ctx, x, scale, weight):
        ctx.needs = ctx.needs_input_grad
        top, places = x.max(-1)
        ctx.mark_non_differentiable(places)
        ctx.places, ctx.shape = places, x.shape
        ctx.save_for_backward(weight)
        return top * scale, places, x * weight

    @staticmethod
    def backward(ctx, g_top, g_places, g_rest):
        assert ctx.needs == ctx.needs_input_grad
        (weight,) = ctx.saved_tensors
        gx = torch.zeros(ctx.shape, dtype=g_top.dtype).scatter(-1, ctx.places.unsqueeze(-1), 7 * g_top.unsqueeze(-1)) + g_rest * weight
        return gx, None, g_rest.sum(0) * 3 if ctx.needs_input_grad[2] else None


class Workspace(torch.autograd.Function):
    """Writes into a tensor of its own, and asks not to be given zeros."""

    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        out = torch.empty_like(x)
        out.copy_(x)
        out.mul_(3)
        out[0] = 1.0
        return out, x + 1

    @staticmethod
    def backward(ctx, g, other):
        return None if g is None else g * 11


square, straight = Square.apply, Straight.apply  # as people write it: taken from the class long before anything is traced
OUTSIDE = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)


class ReadsOutside(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * OUTSIDE

    @staticmethod
    def backward(ctx, g):
        return g * OUTSIDE * OUTSIDE


def top_and_rest(x: Tensor, weight: Tensor) -> Tensor:
    top, places, rest = TopAndRest.apply(x * 2, 0.5, weight)
    return top.sum() + (rest * places.unsqueeze(-1)).sum()


PROGRAMS: dict[str, tuple] = {
    "used": (lambda x: Square.apply(x * 2) * 3, (4,)),
    "taken before": (lambda x: square(x * 2) * 3, (4,)),
    "returned as it is": (lambda x: Square.apply(x), (4,)),
    "setup_context": (lambda x: SquareInTwoParts.apply(x * 2) * 3, (4,)),
    "twice": (lambda x: Square.apply(Square.apply(x) * 0.1) + x, (4,)),
    "gives its argument": (lambda x: Reverse.apply(x * 2, 0.3) + x, (4,)),
    "gives its argument, at once": (lambda x: Reverse.apply(x, 0.3), (4,)),
    "scenario 32, straight through": (lambda x: straight(x * 3) * x, (4,)),
    "several results": (top_and_rest, (3, 4), (4,)),
    "several results, a weight without gradient": (lambda x: top_and_rest(x, torch.ones(4, dtype=torch.float64)), (3, 4)),
    "writes inside": (lambda x: Workspace.apply(x)[0] * x, (4,)),
    "a result that nobody reads": (lambda x: Workspace.apply(x)[1] * x, (4,)),
    "reads a tensor from outside": (lambda x: ReadsOutside.apply(x * 2) * 2, (3,)),
    "one argument twice": (lambda x, y: torch.addcmul(x, Square.apply(y), Square.apply(y)), (4,), (4,)),
}


def leaves(shapes: tuple) -> list[Tensor]:
    made = torch.Generator().manual_seed(1)
    return [torch.randn(shape, dtype=torch.float64, generator=made).requires_grad_() for shape in shapes]


@pytest.mark.parametrize("recompute", ["none", "balanced", "all"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_scenario_8_a_custom_backward_is_used(name, recompute):
    fn, *shapes = PROGRAMS[name]
    compiled, found = dovetail.jit(fn, recompute=recompute), []
    for run in (compiled, fn):
        given = leaves(shapes)
        out = run(*given)
        found.append((out.detach(), torch.autograd.grad(out.sum(), given, allow_unused=True)))

    torch.testing.assert_close(*found)
    for trace in (*dovetail.last_traces(compiled)[:1], *dovetail.last_backward_traces(compiled)[:1]):
        check(trace)


def test_scenario_8_the_backward_that_was_written_is_what_runs():
    x = torch.ones(3, requires_grad=True)

    dovetail.jit(lambda x: Straight.apply(x * 0.4).sum())(x).backward()

    assert x.grad.tolist() == pytest.approx([0.4] * 3)  # a derived one would be 0


def test_scenario_8_without_gradients_only_the_forward_is_recorded():
    compiled = dovetail.jit(lambda x: Square.apply(x) + 1)
    x = torch.randn(3, requires_grad=True)

    with torch.no_grad():
        torch.testing.assert_close(compiled(x), x * x + 1)
    assert "with_backward" not in str(dovetail.last_traces(compiled)[0])


def test_scenario_8_inside_dovetail_grad():
    def fn(x):
        return (Square.apply(x) * 2).sum()

    (x,) = leaves((3,))
    got = dovetail.grad(fn)(x)
    (want,) = torch.autograd.grad(fn(x), x)

    torch.testing.assert_close(got, want)


def as_torch_has_it() -> tuple:
    """What tracing may replace for its time: `apply`, its code, and the making of contexts."""
    function = torch.autograd.Function
    code = getattr(getattr(function.apply, "__func__", None), "__code__", None)
    return vars(function)["apply"], code, "__init__" in vars(torch.autograd.function.BackwardCFunction)


def test_eager_calls_are_what_they_were():
    before = as_torch_has_it()
    dovetail.jit(lambda x: Square.apply(x))(torch.ones(2, requires_grad=True))
    dovetail.jit(lambda x: Square.apply(x), interpretation="native")(torch.ones(2, requires_grad=True))
    assert as_torch_has_it() == before

    (x,) = leaves((3,))
    (got,) = torch.autograd.grad(Square.apply(x).sum(), x)
    torch.testing.assert_close(got, x.exp() * 100 + x)


@pytest.mark.parametrize("interpretation", ["bytecode", "native"])
def test_an_error_in_the_forward_leaves_torch_as_it_was(interpretation):
    before = as_torch_has_it()

    with pytest.raises(ZeroDivisionError):
        dovetail.jit(lambda x: x / (1 // 0), interpretation=interpretation)(torch.ones(2))

    assert as_torch_has_it() == before


square = Square.apply


def test_a_name_bound_to_apply_is_traced_with_its_backward():
    (x,) = leaves((3,))
    (got,) = torch.autograd.grad(dovetail.jit(lambda x: square(x) * 2)(x).sum(), x)
    (want,) = torch.autograd.grad((square(x) * 2).sum(), x)

    torch.testing.assert_close(got, want)


def test_native_tracing_never_loses_the_backward_behind_a_name():
    (x,) = leaves((3,))
    (want,) = torch.autograd.grad(square(x).sum(), x)

    try:
        out = dovetail.jit(lambda x: square(x), interpretation="native")(x)
    except Unsupported as error:  # `apply` is written in C, where native tracing cannot look
        assert "write C.apply(...) at the call" in str(error)
    else:
        torch.testing.assert_close(torch.autograd.grad(out.sum(), x)[0], want)


class ByVjp(torch.autograd.Function):
    """Differentiated by `vjp`, which torch takes in the place of `backward`."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    def vjp(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x * 7


@functools.cache
def power(n):
    return n + 1


class Powers(torch.autograd.Function):
    """Calls a function behind a cache in its backward."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * power(1) * x


def test_a_backward_that_calls_a_function_behind_a_cache_is_refused_with_a_sentence():
    power.cache_clear()
    with pytest.raises(Unsupported, match=r"a backward reads power\(1\)"):
        dovetail.jit(Powers.apply, decisions="error")(torch.ones(3, requires_grad=True))


def test_a_vjp_stands_for_a_backward():
    (x,) = leaves((3,))
    (got,) = torch.autograd.grad(dovetail.jit(lambda x: ByVjp.apply(x))(x).sum(), x)

    torch.testing.assert_close(got, x.detach() * 7)


class Written(torch.autograd.Function):
    """Multiplies its first argument in place."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(y)
        ctx.mark_dirty(x)
        return x.mul_(y)

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * y * 10, g * 100


def test_a_function_that_writes_into_its_argument():
    def program(x, y):
        square, rows = x.square(), x * 1
        product = Written.apply(square, y)
        Written.apply(rows[0], y[0])
        return (square * 2 + product).sum() + rows.sum(), square is product

    results = []
    for fn in (program, dovetail.jit(program)):
        x, y = leaves(((2, 3), (2, 3)))
        out, same = fn(x, y)
        out.backward()
        results.append((out, same, x.grad, y.grad))

    torch.testing.assert_close(results[1], results[0])


def test_a_function_that_writes_what_is_no_argument_is_refused():
    class Elsewhere(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            copy = x.clone()
            ctx.mark_dirty(copy)
            return copy

        @staticmethod
        def backward(ctx, g):
            return g

    with pytest.raises(Unsupported, match=r"mark_dirty[\s\S]*called at .*test_custom_backwards\.py:\d+"):
        dovetail.jit(lambda x: Elsewhere.apply(x * 2))(torch.ones(2, requires_grad=True))


class Cast(torch.autograd.Function):
    """Computes in float32 in a region of autocast, and as its forward does in its backward."""

    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g @ w.t(), x.t() @ g


def test_a_function_that_casts_itself_under_autocast():
    results = []
    for fn in (Cast.apply, dovetail.jit(lambda x, w: Cast.apply(x, w))):
        x, w = (torch.linspace(0, 1, 4).view(2, 2).requires_grad_() for _ in range(2))
        with warnings.catch_warnings(), torch.autocast("cpu", torch.bfloat16):
            warnings.simplefilter("error")
            out = fn(x, w)
        out.sum().backward()
        results.append((out, x.grad, w.grad))

    torch.testing.assert_close(results[1], results[0])


class Routed(torch.autograd.Function):
    """Writes into what it computes, in place, and gives that."""

    @staticmethod
    def forward(ctx, x, index):
        ctx.save_for_backward(x, index)
        return x.gather(-1, index)

    @staticmethod
    def backward(ctx, g):
        x, index = ctx.saved_tensors
        spread = x.softmax(-1) * g.mul(-1)
        spread.scatter_add_(-1, index, g)
        spread[:, 0].mul_(3)
        return spread, None


class Clipped(torch.autograd.Function):
    """Writes into the gradient that it is given, and through a view of it."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 1

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        g[x > 0] = 0
        g.view(-1)[:2].add_(5)
        return g


def twice(function, x, *args):
    """Two results of `function`, and x itself, so that gradients meet; scaled, so that no two are alike."""
    w = torch.linspace(-1, 2, x.numel()).view(x.shape)
    first = function.apply(x * w, *args)
    return (first * first).sum() + (function.apply(x - w, *args) * 3).sum() + (x * w).sum()


@pytest.mark.parametrize("executors", [None, ["torch"]], ids=["default", "torch"])
@pytest.mark.parametrize(("function", "index"), [(Routed, True), (Clipped, False)])
def test_a_backward_that_writes_in_place(function, index, executors):
    torch.manual_seed(0)
    x, args = torch.randn(5, 3), (torch.randint(0, 3, (5, 1)),) if index else ()
    ours = dovetail.jit(lambda x: twice(function, x, *args), executors=executors)
    ours_of, eager_of = x.clone().requires_grad_(), x.clone().requires_grad_()
    ours(ours_of).backward()
    twice(function, eager_of, *args).backward()
    torch.testing.assert_close(ours_of.grad, eager_of.grad)


class Solved(torch.autograd.Function):
    """A solver that steps without a history, and differentiates each step again, as the adjoint method does."""

    @staticmethod
    def step(y, w):
        return y + torch.tanh(y @ w)

    @staticmethod
    def forward(ctx, y, w):
        states = [y]
        for _ in range(2):
            states.append(Solved.step(states[-1], w))
        ctx.save_for_backward(*states, w)
        return states[-1] * 1

    @staticmethod
    def backward(ctx, g):
        *states, w = ctx.saved_tensors
        total = torch.zeros_like(w)
        for state in reversed(states[:-1]):
            with torch.enable_grad():
                y, inner = state.detach().requires_grad_(), w.detach().requires_grad_()
                g, gw, none = torch.autograd.grad(Solved.step(y, inner), (y, inner, torch.ones(1, requires_grad=True)), g, allow_unused=True)
            total += gw
            assert none is None
        return g, total


def test_a_backward_differentiates_what_it_computes():
    fast = dovetail.jit(Solved.apply)
    for _ in range(2):
        results = []
        y, w = torch.randn(3, 4), torch.randn(4, 4)
        for run in (fast, Solved.apply):
            leaves = [x.clone().requires_grad_() for x in (y, w)]
            run(*leaves).square().sum().backward()
            results.append([x.grad for x in leaves])
        torch.testing.assert_close(*results)


class Checkpointed(torch.autograd.Function):
    """A function that runs again in the backward, which calls backward() there, as reentrant checkpoints do."""

    @staticmethod
    def forward(ctx, function, x):
        ctx.function = function
        ctx.save_for_backward(x)
        with torch.no_grad():
            return function(x)

    @staticmethod
    def backward(ctx, g):
        inner = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad():
            y = ctx.function(inner)
        y.backward(g)
        return None, inner.grad


def test_backward_inside_a_backward_sets_the_grad_of_tensors_created_there():
    def program(x):
        return Checkpointed.apply(lambda t: t.sin() * t, x * 2).sum()

    gradients = []
    for run in (dovetail.jit(program), program):
        x = torch.arange(1.0, 5.0, requires_grad=True)
        run(x).backward()
        gradients.append(x.grad)
    torch.testing.assert_close(*gradients)


def test_backward_inside_a_backward_that_reaches_parameters_is_left_to_autograd():
    linear, gradients = torch.nn.Linear(4, 4), []

    def program(x):
        return Checkpointed.apply(linear, x * 2).sum()

    for run in (program, dovetail.jit(program)):
        linear.zero_grad()
        x = torch.ones(4, requires_grad=True)
        run(x).backward()
        gradients.append((x.grad, linear.weight.grad, linear.bias.grad))
    torch.testing.assert_close(gradients[1], gradients[0])
    with pytest.raises(Unsupported, match=r"reaches tensors from outside, or hooks; use torch.autograd.grad there"):
        dovetail.jit(program, decisions="error")(x)


class SavesItsResult(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        c = a * b
        ctx.save_for_backward(a, c)
        return c, a + b

    @staticmethod
    def backward(ctx, g, h):
        a, c = ctx.saved_tensors
        return g * c + h, g * a


def test_a_saved_result_has_the_history_of_the_result():
    def penalty(x, w):
        y = SavesItsResult.apply(x, w)[0]
        (g,) = torch.autograd.grad((y * w).sum(), x, create_graph=True)
        return g.square().sum()

    x, w = torch.randn(3, 3, requires_grad=True), torch.randn(3, 3, requires_grad=True)
    expected, actual = penalty(x, w), dovetail.jit(penalty)(x, w)
    torch.testing.assert_close(actual, expected)
    torch.testing.assert_close(torch.autograd.grad(actual, (x, w)), torch.autograd.grad(expected, (x, w)))


def test_gradients_of_gradients_outside_are_refused_with_a_sentence():
    x, w = torch.randn(3, 3, requires_grad=True), torch.randn(3, 3, requires_grad=True)
    result = dovetail.jit(lambda x, w: SavesItsResult.apply(x, w)[0] * w)(x, w)
    (g,) = torch.autograd.grad(result.sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="backward of SavesItsResult is not traced a second time"):
        torch.autograd.grad(g.square().sum(), (x, w))


class Same(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, g):
        return g / 2


class Turned(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.t(), x * 2

    @staticmethod
    def backward(ctx, g, h):
        return g.t() * 3 + h


class WithPositions(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, positions):
        ctx.mark_non_differentiable(positions)
        return x * 2, positions

    @staticmethod
    def backward(ctx, g, _):
        return g * 3, None


def doubled_and_same(x):
    doubled = x * 2
    return doubled, Same.apply(doubled)


MEMORY = {
    "an argument": lambda x: Same.apply(x),
    "a view of an argument": lambda x: Turned.apply(x),
    "an argument that is a view": lambda x: Same.apply(x.t()),
    "an argument of two functions": lambda x: Same.apply(Same.apply(x).t()),
    "a part of an argument": lambda x: (Same.apply(x)[0], x[1]),
    "another result": doubled_and_same,
    "an argument that is not differentiable": lambda x: WithPositions.apply(x, x.new_ones(2, dtype=torch.int64)),
}


@pytest.mark.parametrize("grad", [True, False], ids=["grad", "no_grad"])
@pytest.mark.parametrize("name", MEMORY)
def test_a_result_in_the_memory_of_an_argument_stays_there(name, grad):
    """As a result that is a view does: what the caller writes into the argument later is in the result, too."""
    seen = []
    for run in (MEMORY[name], dovetail.jit(MEMORY[name])):
        x = torch.randn(2, 3, generator=torch.Generator().manual_seed(0)).requires_grad_(grad)
        results = run(x)
        results = results if isinstance(results, tuple) else (results,)
        of_results = [(y is x, y.requires_grad, y._is_view(), y.stride()) for y in results]
        gradient = torch.autograd.grad(sum((y * y).sum() for y in results if y.requires_grad), x)[0] if grad else None
        with torch.no_grad():
            x.add_(1)
            results[0].mul_(2)
        seen.append((of_results, gradient, x.detach(), [y.detach() for y in results]))
    assert seen[1][0] == seen[0][0]
    torch.testing.assert_close(seen[1][1:], seen[0][1:])


BACKWARDS = {  # what a backward gives for x * y, and the shapes of x and y
    "expanded": (lambda g, x, y: (g * y, g * x), (1, 1), (3, 4)),
    "expanded each": (lambda g, x, y: (g * y, g * x), (3, 1), (1, 4)),
    "of more dimensions": (lambda g, x, y: (g * y, (g * x)[None]), (4,), (3, 4)),
    "of another dtype": (lambda g, x, y: ((g * y).double(), (g * x).long()), (3, 4), (3, 4)),
    "with one None more": (lambda g, x, y: (g * y, g * x, None), (3, 4), (3, 4)),
    "of fewer elements": (lambda g, x, y: (g.sum(), g * x), (3, 4), (3, 4)),
    "of another shape": (lambda g, x, y: ((g * y).reshape(4, 3), g * x), (3, 4), (3, 4)),
    "complex": (lambda g, x, y: ((g * y).to(torch.complex64), g * x), (3, 4), (3, 4)),
    "one too many": (lambda g, x, y: (g * y, g * x, g), (3, 4), (3, 4)),
    "one too few": (lambda g, x, y: g * y, (3, 4), (3, 4)),
}


@pytest.mark.filterwarnings("ignore:.*run in eager mode")
@pytest.mark.parametrize("name", BACKWARDS)
def test_gradients_of_a_backward_are_made_to_fit_or_refused_as_autograd_does(name):
    gradients, *shapes = BACKWARDS[name]

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x, y)
            return x * y

        @staticmethod
        def backward(ctx, g):
            return gradients(g, *ctx.saved_tensors)

    def program(x, y):
        return Product.apply(x * 2, y * 3).sin()

    outcomes = []
    for run in (program, dovetail.jit(program)):
        torch.manual_seed(0)
        leaves = [torch.randn(shape, requires_grad=True) for shape in shapes]
        try:
            run(*leaves).sum().backward()
            outcomes.append([leaf.grad for leaf in leaves])
        except RuntimeError as error:
            outcomes.append(str(error))
    if isinstance(outcomes[0], str):
        assert outcomes[0] == outcomes[1]
    else:
        torch.testing.assert_close(*outcomes)

"""dovetail.grad, value_and_grad and vjp, against torch.func."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import dovetail
from dovetail.extend import OperatorExecutor, get_grad, put_grad

PARAMETERS = {"weight": torch.randn(5, 3, dtype=torch.float64), "more": [torch.randn(5, dtype=torch.float64)]}
X = torch.randn(4, 3, dtype=torch.float64)


def loss(p: dict[str, Any], x: Tensor) -> Tensor:
    return F.softmax(F.linear(x, p["weight"], p["more"][0]).tanh(), -1).square().sum()


def test_gradients_of_a_nest() -> None:
    torch.testing.assert_close(dovetail.grad(loss)(PARAMETERS, X), torch.func.grad(loss)(PARAMETERS, X))


def test_value_and_gradients_of_several_arguments() -> None:
    torch.testing.assert_close(dovetail.value_and_grad(loss, (0, 1))(PARAMETERS, X)[1], torch.func.grad(loss, (0, 1))(PARAMETERS, X))


def test_what_else_the_function_gives_comes_with_it() -> None:
    gradient, other = dovetail.grad(lambda x: (x.square().sum(), {"more": x + 1}), has_aux=True)(X)

    torch.testing.assert_close((gradient, other["more"]), (2 * X, X + 1))


def nth(grad: Callable, order: int, fn: Callable) -> Callable:
    return fn if order == 0 else grad(nth(grad, order - 1, fn))


@pytest.mark.parametrize("order", [1, 2, 3])
def test_higher_derivatives(order: int) -> None:
    def fn(x: Tensor) -> Tensor:
        return (x**3).sin() * torch.tanh(x)

    x = torch.tensor(0.7, dtype=torch.float64)

    torch.testing.assert_close(nth(dovetail.grad, order, fn)(x), nth(torch.func.grad, order, fn)(x))


def test_a_gradient_inside_a_compiled_function_can_be_differentiated() -> None:
    compiled = dovetail.jit(lambda x: dovetail.grad(lambda y: (y**3).sum())(x))
    x = X.clone().requires_grad_()

    compiled(x).sum().backward()

    torch.testing.assert_close(x.grad, 6 * X)


def test_no_grad_inside_stays_constant_in_higher_derivatives() -> None:
    def fn(x: Tensor) -> Tensor:
        with torch.no_grad():
            scale = x.exp()
        return scale * x * x

    x = torch.tensor(0.5, dtype=torch.float64)

    torch.testing.assert_close(dovetail.grad(dovetail.grad(fn))(x), 2 * x.exp())


def test_a_whole_update_compiles() -> None:
    @dovetail.jit
    def update(p: dict[str, Any], x: Tensor) -> tuple[Tensor, dict[str, Any]]:
        value, g = dovetail.value_and_grad(loss)(p, x)
        return value, {"weight": p["weight"] - 0.1 * g["weight"], "more": [p["more"][0] - 0.1 * g["more"][0]]}

    value, new = update(PARAMETERS, X)

    torch.testing.assert_close(value, loss(PARAMETERS, X))
    torch.testing.assert_close(new["weight"], PARAMETERS["weight"] - 0.1 * torch.func.grad(loss)(PARAMETERS, X)["weight"])


@pytest.mark.parametrize("wrap", [lambda fn: fn, dovetail.jit], ids=["outside", "inside a compiled function"])
def test_vjp(wrap: Callable) -> None:
    def pulled(a: Tensor, b: Tensor, g: Tensor) -> tuple[Tensor, Any]:
        out, pullback = dovetail.vjp(torch.matmul, a, b)
        return out, pullback(g)

    a, b, g = X, X.t() * 2, torch.ones(4, 4, dtype=torch.float64)

    out, (ga, gb) = wrap(pulled)(a, b, g)

    assert not out.requires_grad
    torch.testing.assert_close((out, ga, gb), (a @ b, g @ b.t(), a.t() @ g))


class Dropped:
    def __del__(self) -> None:
        pass


def aside(value: Any) -> Any:
    Dropped()  # calls that create one run in eager mode
    return value


@pytest.mark.parametrize("transform", [dovetail.grad, dovetail.value_and_grad])
@pytest.mark.parametrize("argnums", [0, (0, 1), -1])
@pytest.mark.filterwarnings("ignore:.*run in eager mode")
def test_gradients_of_functions_that_run_in_eager_mode(transform: Callable, argnums: Any) -> None:
    in_eager_mode, compiled = (transform(fn, argnums) for fn in (lambda p, x: aside(loss(p, x)), loss))

    for x in (X, X + 1):
        torch.testing.assert_close(in_eager_mode(PARAMETERS, x), compiled(PARAMETERS, x))


@pytest.mark.filterwarnings("ignore:.*run in eager mode")
def test_what_is_beside_the_value_and_constants_in_eager_mode() -> None:
    gradient, other = dovetail.grad(lambda x: aside((x.square().sum(), x + 1)), has_aux=True)(X)

    torch.testing.assert_close((gradient, other), (2 * X, X + 1))
    assert not other.requires_grad
    torch.testing.assert_close(dovetail.grad(lambda x: aside(torch.ones(())))(X), torch.zeros_like(X))
    with pytest.raises(TypeError, match="expected a function that returns a real number"):
        dovetail.grad(lambda x: aside(x))(X)


def test_a_result_with_dimensions_is_refused() -> None:
    with pytest.raises(TypeError, match=r"expected a function that returns a real number as a tensor without dimensions, got cpu f64\[4, 3\]"):
        dovetail.grad(lambda x: x * 2)(X)


def test_an_integer_argument_is_refused() -> None:
    with pytest.raises(TypeError, match="expected floating or complex tensors to differentiate by"):
        dovetail.grad(lambda x: (x * 2.0).sum())(torch.arange(3))


def test_a_write_into_an_argument_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="writes into its arguments"):
        dovetail.grad(lambda x: x.add_(1).sum())(X.clone())


def test_a_gradient_inside_a_compiled_function_uses_the_executors_of_that_function() -> None:
    other = OperatorExecutor("other")
    doubled = other.operation("doubled_sin", lambda x: 2 * torch.sin(x), meta=lambda x: x, replace=True)

    def rule(x):
        put_grad(x, get_grad(out := doubled(x)) * 100)
        return out

    other.implements(torch.sin, torch.sin, grad=rule)
    x = torch.rand(3)
    derivative = dovetail.grad(lambda x: torch.sin(x).sum())

    with dovetail.use([other]):
        got = dovetail.jit(lambda x: derivative(x), executors=["torch"])(x)

    torch.testing.assert_close(got, torch.cos(x))

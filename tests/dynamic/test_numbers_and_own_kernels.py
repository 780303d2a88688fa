"""Numbers from outside that change, in programs that an executor without support for symbolic sizes runs lines of."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F
from executors.stand_ins import Pointwise, of
from torch import nn

import dovetail


class Counter(nn.Module):
    """A model that counts steps, and adds its losses up."""

    def __init__(self):
        super().__init__()
        self.linear, self.steps, self.total = nn.Linear(4, 4), 0, 0.0

    def forward(self, x, temperature):
        self.steps += 1
        y = F.softmax(self.linear(x) / temperature, -1).square().mean() * (2 if self.steps % 5 == 0 else self.steps)
        self.total += y.item()
        return y


class CarefulCounter(Counter):
    """One that also looks at the loss."""

    def forward(self, x, temperature):
        y = super().forward(x, temperature)
        return y * 0 if y > 1e6 else y


@pytest.mark.parametrize("kind", [Counter, CarefulCounter])
@pytest.mark.parametrize("learns", [False, True])
def test_a_model_that_counts_is_compiled_few_times(kind, learns):
    calls, counted = [], []
    softmax = of("own", F.softmax, lambda *args, **kwargs: calls.append(0) or F.softmax(*args, **kwargs))
    for jit in (lambda module: module, lambda module: dovetail.jit(module, executors=[Pointwise() if learns else softmax])):
        torch.manual_seed(0)
        model = kind().requires_grad_(learns)
        call, optimizer = jit(model), torch.optim.SGD(model.parameters(), lr=0.1)
        for i in range(14):
            loss = call(torch.randn(3, 4), 1 + i / 10)
            if learns:
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
        counted.append((model.steps, model.total, [p.detach() for p in model.parameters()]))
    torch.testing.assert_close(counted[1], counted[0])
    assert call.cache_info().programs <= 4
    assert learns or len(calls) >= 14


def numbers_alone(input, other):
    return type(other) is float or "expected a float"


def test_an_executor_keeps_the_operations_that_it_would_lose():
    ex = of("own", torch.mul, torch.mul, checker=numbers_alone)
    compiled, x = dovetail.jit(lambda x, w: x.sin() * w, executors=[ex]), torch.randn(3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for w in (0.1, 0.2, 0.3, 0.4):
            torch.testing.assert_close(compiled(x, w), x.sin() * w)
            assert any(line.implementation is not None and line.implementation.executor == "own" for line in dovetail.last_traces(compiled)[-1].lines)
    (warning,) = caught
    assert "args[1] is compiled for each value, since own would run fewer operations for numbers that change" in str(warning.message)


def test_another_path_with_fewer_operations_of_an_executor_pins_nothing():
    ex = of("own", torch.mul, torch.mul, checker=numbers_alone)
    compiled, x = dovetail.jit(lambda x, w, flag: (x * 2.0 if flag else x) + w, executors=[ex]), torch.randn(3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for w, flag in ((0.1, True), (0.2, True), (0.3, False), (0.4, False), (0.5, True), (0.6, False)):
            torch.testing.assert_close(compiled(x, w, flag), (x * 2.0 if flag else x) + w)
    assert compiled.cache_info().programs == 3


def test_sizes_stay_plain():
    ex = of("own", F.softmax, F.softmax)
    compiled = dovetail.jit(lambda x, w, n: F.softmax(x * w, -1) * n, executors=[ex])
    for i, rows in enumerate((3, 4, 5, 3, 4, 5)):
        x = torch.randn(rows, 2)
        torch.testing.assert_close(compiled(x, 0.1 * i, i), F.softmax(x * (0.1 * i), -1) * i)
    assert compiled.cache_info().programs <= 5


def test_ints_of_any_size_and_sign():
    ex = of("own", F.softmax, F.softmax)

    def fn(x, n):
        return F.softmax(x, -1) * (n % 7) + n // 3 % 1000, n * n, -n if n > 0 else n + 1

    compiled, x = dovetail.jit(fn, executors=[ex]), torch.randn(3, dtype=torch.float64)
    for n in (3, 4, 0, 1, -5, 1 << 40, (1 << 62) + 1, -(1 << 62), 1 << 70, 8):
        got, want = compiled(x, n), fn(x, n)
        torch.testing.assert_close(got, want, rtol=1e-12, atol=0)
        assert got[1:] == want[1:]

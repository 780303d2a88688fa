"""What torch.compile and torch.jit have compiled, called inside a compiled function: traced as its Python, or left to eager mode."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

import dovetail


class Parts(nn.Module):
    """A module that compiles parts of itself in every way that users do."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), torch.compile(nn.Linear(3, 3), backend="eager")
        self.third = nn.Linear(3, 3)
        self.third.compile(backend="eager")
        self.later = None

    @torch.compile(backend="eager", fullgraph=True)
    def method(self, x):
        return self.first(x).relu()

    @torch.compiler.disable
    def kept_out(self, x):
        return x * 2

    def forward(self, x):
        if self.later is None:
            self.later = torch.compile(self.first, backend="eager")
        return self.method(x) + self.second(x) + self.third(x) + self.kept_out(x) + self.later(x)


def test_a_module_that_compiles_its_parts_trains_as_in_eager_mode():
    torch.manual_seed(0)
    module, x = Parts(), torch.randn(2, 3)
    outcomes = []
    for run in (module, dovetail.jit(module)):
        module.later = None
        for _ in range(2):
            module.zero_grad()
            result = run(x)
            result.square().sum().backward()
            outcomes.append((result.detach(), *[p.grad for p in module.parameters()]))
    for outcome in outcomes[1:]:
        torch.testing.assert_close(outcome, outcomes[0])


def repeat(x, n: int = 2):
    for _ in range(n):
        x = x * x + 1
    return x


with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # TorchScript is deprecated, and says what a recording loses
    repeated = torch.jit.script(repeat)
    RECORDED = torch.jit.trace(lambda x: x * 2 if x.sum() > 0 else x * 3, torch.ones(2), check_trace=False)
    SCRIPTED = torch.jit.script(nn.Linear(3, 3))


FACTOR = 2.0


@torch.compile(backend="eager")
def scaled(x):
    return x * FACTOR


PROGRAMS = {
    "script": lambda x: repeated(x, 3) + repeated(x),
    "decorated": lambda x: scaled(x) + 1,
    "compiled inside": lambda x: torch.compile(lambda y: y * 3, backend="eager")(x),
    "decorated inside": lambda x: torch.compile(backend="eager")(lambda y: y * 3)(x),
    "optimized": lambda x: torch._dynamo.optimize("eager")(lambda y: y * 7)(x),
    "recorded": lambda x: RECORDED(x) + 1,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_function_that_is_compiled_already_is_a_part_of_the_program(name):
    compiled = dovetail.jit(PROGRAMS[name])
    for x in (torch.ones(2), -torch.ones(2), torch.full((2,), 0.5, requires_grad=True)):
        torch.testing.assert_close(compiled(x), PROGRAMS[name](x))


def test_what_a_compiled_function_reads_is_guarded(monkeypatch):
    compiled, x = dovetail.jit(PROGRAMS["decorated"]), torch.ones(2)
    compiled(x)
    monkeypatch.setitem(globals(), "FACTOR", 5.0)
    torch.testing.assert_close(compiled(x), torch.full((2,), 6.0))


def test_a_scripted_module_is_left_to_eager_mode():
    module = nn.Sequential(SCRIPTED, nn.ReLU())
    torch.testing.assert_close(dovetail.jit(module)(torch.ones(2, 3)), module(torch.ones(2, 3)))

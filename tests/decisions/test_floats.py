"""Floats of the program that operations and functions of `math` take: no outcome for each value."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from decisions.helpers import agrees, compiled, graph_of

INPUTS = [torch.arange(4.0) + start for start in (0.5, 1.25, -4.0, 3.5, -1.75)]
PROGRAMS = {
    "clamp": lambda x, n: x.clamp(-n, max=n),
    "alpha": lambda x, n: x.add(x, alpha=n),
    "value": lambda x, n: torch.addcmul(x, x, x, value=n),
    "huber": lambda x, n: F.huber_loss(x, x + 1, delta=n),
    "an opaque operation": lambda x, n: torch.quantile(x, 1 / (1 + n)),
    "in place": lambda x, n: x.clone().clamp_(max=n) + x.mul_(n),
    "a factory whose length depends on it": lambda x, n: torch.arange(0, n, 0.5),
    "dropout": lambda x, n: F.dropout(x, n / 9) + torch.rand(4),
    "in place, of random numbers": lambda x, n: x.clone().exponential_(n) + torch.rand(4),
    "a root": lambda x, n: x * math.sqrt(n) + math.exp(-n) + n**0.5,
    "powers": lambda x, n: (x * 1.5**n, n**-2, (n - 9) ** 3.0),
    "functions of two numbers": lambda x, n: (math.atan2(n, 2.0), math.hypot(n, n), divmod(n, 2)),
    "closeness": lambda x, n: x * 2 if math.isclose(n, 2.0, rel_tol=0.9) else x,
    "truth": lambda x, n: x * 2 if n else x,
    "truth of an int": lambda x, n: x * 2 if (x > n).sum().item() else x,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_float_that_an_operation_takes_has_no_outcome_for_each_value(name):
    def program(x):
        n = x.mean().abs().item()
        if x.sum() > 3:
            x = x + 1
        return PROGRAMS[name](x, n)

    fn = compiled(program)
    for x in INPUTS:
        agrees(fn, program, x)
    explored = len(fn._cache.explored)
    agrees(fn, program, torch.arange(4.0) + 2.25)
    assert graph_of(fn).eager_calls == 0 and len(fn._cache.explored) - explored <= ("factory" in name)


def clipped(x, n):
    weights = [torch.nn.Parameter(x.clone()), torch.nn.Parameter(x[:2].clone())]
    sum([(w * w).sum() for w in weights]).backward()
    torch.nn.utils.clip_grad_value_(weights, n)
    return [w.grad for w in weights]


def in_lists(function):
    def program(x, n):
        lists = [x.clone(), x[:2].clone()]
        function(lists, n)
        return lists

    return program


LISTS = {
    "clip_grad_value_": clipped,
    "clamp_min_": in_lists(torch._foreach_clamp_min_),
    "clamp_max_": in_lists(torch._foreach_clamp_max_),
    "pow_": in_lists(torch._foreach_pow_),
    "mul_": in_lists(torch._foreach_mul_),
    "lerp_": in_lists(lambda lists, n: torch._foreach_lerp_(lists, [x * 2 for x in lists], n)),
    "clamp_min": lambda x, n: torch._foreach_clamp_min([x, x[:2]], n),
}


@pytest.mark.parametrize("name", LISTS)
def test_lists_of_tensors_and_a_float_that_the_program_computes(name):
    def program(x):
        return LISTS[name](x, x.abs().mean().item() if x.sum() > 0 else 0.5)

    fn = compiled(program)
    for x in INPUTS:
        agrees(fn, program, x)
    assert graph_of(fn).eager_calls == 0


FACTORS = {
    "a sum": lambda x, n: x.add(x, alpha=n),
    "a difference": lambda x, n: torch.sub(x, x, alpha=-n / 2),
    "in place": lambda x, n: x.clone().add_(x, alpha=n),
    "a sum of products": lambda x, n: torch.addcmul(x, x, x, value=n),
    "a sum of quotients": lambda x, n: x.clone().addcdiv_(x, x.abs() + 1, value=n),
    "lists": lambda x, n: torch._foreach_add([x, x[:2]], [x, x[:2]], alpha=n),
    "lists in place": lambda x, n: torch._foreach_sub_([x.clone(), x[:2].clone()], [x, x[:2]], alpha=n),
    "lists of products": lambda x, n: torch._foreach_addcmul([x], [x], [x], value=n),
}


@pytest.mark.parametrize("name", FACTORS)
def test_a_factor_that_the_program_computes_cuts_nothing(name):
    def program(x):
        return FACTORS[name](x, x.mean().abs().item())

    fn = compiled(program)
    for x in INPUTS:
        agrees(fn, program, x)
    assert fn.cache_info().programs == 1 and not fn._cache.explored


def test_gradients_through_an_operation_that_takes_a_float():
    def program(x):
        n = x.detach().mean().abs().item()
        y = x.sin() if x.sum() > 3 else x.cos()
        return (y.clamp(max=n) * x).sum()

    fn = compiled(program)
    for x in INPUTS:
        a, b = (x.clone().requires_grad_() for _ in range(2))
        program(a).backward()
        fn(b).backward()
        torch.testing.assert_close(b.grad, a.grad)
    assert graph_of(fn).eager_calls == 0


def test_errors_of_functions_of_floats_are_those_of_eager_mode():
    def program(x):
        return x * math.sqrt(x.sum().item()) if x[0] > -9 else x

    fn = compiled(program)
    agrees(fn, program, torch.ones(4))
    with pytest.raises(ValueError):
        fn(-torch.ones(4))
    agrees(fn, program, torch.ones(4))


def test_a_power_of_a_negative_number_is_complex_in_a_way_of_its_own():
    def program(x):
        return x.sum().item() ** 0.5 if x[1] > -9 else 0.0

    fn = compiled(program)
    for value in (1.0, 2.0, 3.0, -1.0, 4.0):
        assert fn(torch.full((4,), value)) == program(torch.full((4,), value))
    assert graph_of(fn).eager_calls == 0


def test_running_statistics_are_written_once():
    def program(x, mean, var):
        momentum = 1 / (1 + x.abs().sum().item())
        y = x * 2 if x.sum() > 0 else x
        return F.batch_norm(y.view(2, 2), mean, var, training=True, momentum=momentum)

    fn = compiled(program)
    for x in INPUTS[:2]:
        agrees(fn, program, x, torch.zeros(2), torch.ones(2))


def test_a_predicate_of_two_numbers_is_one_decision():
    def program(x, y):
        return x + 1 if math.isclose(x.sum().item(), y.sum().item()) else x - y

    fn = compiled(program)
    for a, b in ((1.0, 1.0), (1.0, 2.0), (2.0, 2.0), (3.0, 1.0)):
        agrees(fn, program, torch.full((3,), a), torch.full((3,), b))
    assert fn.cache_info().decisions == 1

"""Generators of random numbers that a compiled function is passed, or reads from outside: the same one at each call, or another one."""

import threading

import pytest
import torch

import dovetail


@dovetail.opaque
def noisy(x, generator):
    return x + torch.rand(x.shape, generator=generator)


def created(x, g):
    return x + torch.randn(x.shape, generator=g) + torch.rand(3, **{"generator": g})


def integers(x, g):
    return torch.randint(0, 9, (3,), generator=g) + torch.randperm(3, generator=g)


def written(x, g):
    for fill in ("normal_", "uniform_", "exponential_", "cauchy_", "log_normal_"):
        x = x + getattr(torch.empty(3), fill)(generator=g)
    return x + torch.empty(3).geometric_(0.3, generator=g) + torch.empty(3).bernoulli_(0.4, generator=g)


def of_tensors(x, g):
    return torch.normal(x, x.abs(), generator=g) + torch.bernoulli(x.sigmoid(), generator=g) + torch.multinomial(x.abs() + 1, 3, generator=g)


def initialized(x, g):
    return torch.nn.init.normal_(torch.empty(3), generator=g) + torch.nn.init.uniform_(torch.empty(3), generator=g)


def in_opaque_code(x, g):
    return noisy(x, g) * 2 + torch.rand(3, generator=g)


def of_aten(x, g):
    return x + torch.ops.aten.rand.generator([3], generator=g)


def set_back(x, g):
    state = g.get_state()
    first = torch.rand(3, generator=g)
    g.set_state(state)
    return first + torch.rand(3, generator=g)


def seeded(x, g):
    g.manual_seed(5)
    return x + torch.rand(3, generator=g)


def into_another(x, g):
    other = torch.Generator().set_state(g.get_state())
    return torch.rand(3, generator=g) - 2 * torch.rand(3, generator=other)


def behind_a_decision(x, g):
    if x.sum() > 0:
        return x * torch.rand(3, generator=g)
    noise = torch.rand(3, generator=g)
    return noise + torch.rand(3, generator=g) if noise.sum() > 1.5 else noise - x


DRAWS = [created, integers, written, of_tensors, initialized, in_opaque_code, of_aten, set_back, seeded, into_another, behind_a_decision]


def state(seed):
    return torch.Generator().manual_seed(seed)


def assert_equal_calls(function, compiled, *calls):
    """Call both on equal arguments, a list of them for each call, and compare results and the states that generators are left in."""
    for make in calls:
        theirs, ours = make(), make()
        torch.testing.assert_close(compiled(*ours), function(*theirs))
        for g, h in zip(theirs, ours):
            if isinstance(g, torch.Generator):
                assert torch.equal(g.get_state(), h.get_state())


@pytest.mark.parametrize("function", DRAWS)
def test_each_call_may_have_another_generator(function):
    compiled = dovetail.jit(function)
    xs = [torch.randn(3, generator=state(i)) for i in range(12)]
    assert_equal_calls(function, compiled, *[lambda i=i: (xs[i].clone(), state(i)) for i in range(12)])
    if function is not behind_a_decision:
        assert len(dovetail.cache_misses(compiled)) == 2


@pytest.mark.parametrize("function", DRAWS)
def test_one_generator_advances_from_call_to_call(function):
    compiled, theirs, ours = dovetail.jit(function), state(0), state(0)
    for i in range(6):
        x = torch.randn(3, generator=state(i))
        torch.testing.assert_close(compiled(x.clone(), ours), function(x.clone(), theirs))
        assert torch.equal(ours.get_state(), theirs.get_state())


def two(x, g, h):
    return x + torch.rand(3, generator=g) - torch.rand(3, generator=h) * torch.rand(3, generator=g)


def test_two_arguments_may_be_one_generator():
    compiled, x = dovetail.jit(two), torch.ones(3)

    def one(i):
        g = state(i)
        return x, g, g

    apart = [lambda i=i: (x, state(i), state(i + 20)) for i in range(4)]
    same = [lambda i=i: one(i) for i in range(4)]
    assert_equal_calls(two, compiled, *[call for pair in zip(apart, same) for call in pair])


def test_the_default_generator_is_passed():
    def both(x, g):
        return x + torch.rand(3, generator=g) * torch.rand(3)

    compiled, x = dovetail.jit(both), torch.ones(3)
    for i in range(8):
        results = []
        for function in (both, compiled):
            torch.manual_seed(i)
            results.append(function(x, torch.default_generator if i % 2 else state(i)))
        torch.testing.assert_close(*results)


class Sampler:
    def __init__(self):
        self.generator = state(0)

    def __call__(self, x):
        return x + torch.rand(3, generator=self.generator)


def test_an_object_gets_another_generator():
    sampler, x = Sampler(), torch.ones(3)
    compiled = dovetail.jit(sampler)
    for i in range(8):
        results = []
        for function in (sampler, compiled):
            sampler.generator = state(i)
            results += [function(x), sampler.generator.get_state()]
        assert torch.equal(results[0], results[2])
        assert torch.equal(results[1], results[3])
    assert len(dovetail.cache_misses(compiled)) == 2


def test_the_generator_is_returned():
    def drawn(x, g):
        return x + torch.rand(3, generator=g), g

    compiled = dovetail.jit(drawn)
    for i in range(4):
        g = state(i)
        assert compiled(torch.ones(3), g)[1] is g


def made_inside(x, seed):
    g = torch.Generator().manual_seed(seed)
    for _ in range(4):
        x = x + torch.randn(x.shape, generator=g)
    return x


def passed(x, g):
    for _ in range(4):
        x = x + torch.randn(x.shape, generator=g)
    return x


def passed_to_decisions(x, g):
    noise = torch.randn(x.shape, generator=g)
    return x + noise + torch.randn(x.shape, generator=g) if noise.sum() > 0 else x - torch.randn(x.shape, generator=g)


@pytest.mark.parametrize("function, argument", [(made_inside, int), (passed, state), (passed_to_decisions, state)])
def test_threads_draw_at_the_same_time(function, argument):
    compiled, x, count = dovetail.jit(function), torch.zeros(50_000), 16
    for i in range(6):
        compiled(x, argument(i))
    results = [None] * count

    def run(first):
        for i in range(first, count, 4):
            results[i] = compiled(x, argument(i))

    threads = [threading.Thread(target=run, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, result in enumerate(results):
        torch.testing.assert_close(result, function(x, argument(i)))

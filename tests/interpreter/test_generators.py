"""Generators that are seeded, saved and restored inside a compiled function, at every call and in order with the draws."""

from __future__ import annotations

import threading

import pytest
import torch

import dovetail

G = torch.Generator()


def seeded(x):
    G.manual_seed(3)
    a = torch.rand(2, generator=G)
    G.manual_seed(3)
    return a - torch.rand(2, generator=G) + x


def seeded_and_used(x):
    G.manual_seed(3)
    return torch.rand(2, generator=G) + x, torch.randn(2, generator=G)


def default_seeded(x):
    torch.manual_seed(7)
    return torch.rand(2) + x


def saved_and_restored(x):
    state = G.get_state()
    a = torch.rand(2, generator=G)
    G.set_state(state)
    return a + x, torch.rand(2, generator=G)


def default_saved_and_restored(x):
    state = torch.get_rng_state()
    a = torch.rand(2)
    torch.set_rng_state(state)
    return a + x, torch.rand(2), torch.nn.functional.dropout(x)


def forked(x):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        a = torch.rand(2)
    return a + x, torch.rand(2)


def state_read(x):
    return torch.get_rng_state(), torch.rand(2) + x, torch.get_rng_state()


def drawn_before(x):
    a = torch.rand(2)
    torch.manual_seed(1)
    b = torch.rand(2)
    torch.manual_seed(1)
    return a + x, b, torch.rand(2), torch.randn(2)


PROGRAMS = [seeded, seeded_and_used, default_seeded, saved_and_restored, default_saved_and_restored, forked, state_read, drawn_before]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.parametrize("executors", [None, ["torch"]], ids=["all", "torch"])
def test_numbers_and_states_are_eagers(program, executors):
    compiled, x = dovetail.jit(program, executors=executors), torch.zeros(2)

    def outcome(function):
        G.manual_seed(0)
        torch.manual_seed(0)
        return [function(x) for _ in range(3)], G.get_state(), torch.get_rng_state()

    ours, eager = outcome(compiled), outcome(program)
    torch.testing.assert_close(ours, eager)
    assert compiled.cache_info().misses == 1


def test_another_generator_is_another_program():
    compiled = dovetail.jit(lambda x, g: torch.rand(2, generator=g) + x)
    for _ in range(2):
        for seed in (1, 2):
            expected = torch.rand(2, generator=torch.Generator().manual_seed(seed))
            torch.testing.assert_close(compiled(torch.zeros(2), torch.Generator().manual_seed(seed)), expected)


def test_a_seed_is_read_at_every_call():
    def program(x, seed):
        torch.manual_seed(seed)
        return torch.rand(2) + x

    compiled = dovetail.jit(program)
    for seed in (3, 4, 3):
        torch.testing.assert_close(compiled(torch.zeros(2), seed), program(torch.zeros(2), seed))


def test_seeds_from_the_clock_are_drawn_and_read_in_eager_mode():
    def program(x):
        own = torch.Generator()
        return own.initial_seed(), torch.Generator().seed(), own.manual_seed(3).initial_seed(), torch.initial_seed(), torch.rand(2, generator=own) + x

    compiled = dovetail.jit(program)
    with pytest.warns(UserWarning, match="initial_seed is not traced"):
        results = [compiled(torch.zeros(2)) for _ in range(4)]
    assert len({seed for _, seed, *_ in results}) == 4
    assert [result[2:4] for result in results] == [program(torch.zeros(2))[2:4]] * 4
    torch.testing.assert_close([result[0:1] + result[4:] for result in results], [program(torch.zeros(2))[0:1] + program(torch.zeros(2))[4:]] * 4)


def test_draws_of_another_thread_refuse_nothing():
    done = threading.Event()

    def draw():
        while not done.is_set():
            torch.rand(4)

    thread = threading.Thread(target=draw)
    thread.start()
    try:
        for i in range(5):
            dovetail.jit(lambda x, i=i: x + i)(torch.zeros(2))
    finally:
        done.set()
        thread.join()

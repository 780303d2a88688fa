"""Random generators around decisions: what is drawn, and the states that are left, are eager mode's, also where a call ends there."""

from __future__ import annotations

import random
import warnings

import numpy as np
import pytest
import torch

import dovetail

OWN, ARRAYS, TENSORS = random.Random(), np.random.default_rng(), torch.Generator()


def flipped_sample(x):
    if random.random() < 0.5:
        x = x.flip(0)
    count = random.randint(1, len(x))
    return x[random.sample(range(len(x)), count)]


def sample_behind_a_file(x):
    if random.random() < 0.5:
        x = x.flip(0)
    count = random.randint(1, len(x))
    open("/dev/null").close()
    return x * count


def file_in_one_branch(x):
    y = x + torch.rand(1)
    if x.sum() > 0:
        drawn = np.random.rand()
        if y.sum() > 0:
            open("/dev/null").close()
        return y * drawn + random.randint(1, 100)
    return y


def each_branch_with_a_generator_of_its_own(x):
    if x.sum() > 0:
        return x * random.random()
    if x.sum() < -5:
        picked = random.sample(range(10), 3)
        open("/dev/null").close()
        return x * picked[0]
    return x * np.random.randn()


def generators_of_the_program(x):
    drawn = OWN.random()
    if x.sum() > 0:
        other = ARRAYS.random()
        open("/dev/null").close()
        return x * drawn * other
    return x + ARRAYS.integers(10)


def generator_of_tensors(x):
    if torch.rand(1, generator=TENSORS).item() < 0.5:
        x = x.flip(0)
    start = int(torch.randint(0, len(x), (1,), generator=TENSORS))
    y = x[start:] + torch.normal(0.0, 1.0, (1,), generator=TENSORS)
    if y.sum() > 0:
        drawn = torch.rand(1, generator=TENSORS)
        open("/dev/null").close()
        return y * drawn
    return y * torch.rand(1, generator=TENSORS) + torch.rand(1)


def as_many_choices(x):
    count = random.randint(1, 3)
    return x[random.choices(range(len(x)), k=count)] + len(random.randbytes(count))


def outcomes(jit, program):
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    OWN.seed(3)
    TENSORS.manual_seed(2)
    ARRAYS.bit_generator.state = np.random.default_rng(1).bit_generator.state
    compiled, results = jit(program), []
    for size, value in ((3, -1.0), (3, 1.0), (4, 1.0), (5, -1.0), (6, -1.0), (3, 1.0), (4, -2.0), (3, 1.0), (2, -1.0), (2, 1.0), (2, 1.0)):
        results.append(compiled(torch.full((size,), value)).tolist())
        results.append(TENSORS.get_state().tolist())
        results.append(
            (random.getstate(), np.random.get_state()[1].tolist(), OWN.getstate(), ARRAYS.bit_generator.state, torch.get_rng_state().tolist())
        )
    return results


@pytest.mark.parametrize(
    "program",
    [
        flipped_sample,
        sample_behind_a_file,
        file_in_one_branch,
        each_branch_with_a_generator_of_its_own,
        generators_of_the_program,
        generator_of_tensors,
        as_many_choices,
    ],
)
def test_draws_and_states_are_those_of_eager_mode(program):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert outcomes(dovetail.jit, program) == outcomes(lambda function: function, program)


class Sampler:
    """What keeps a generator between calls."""

    def __init__(self):
        self.own = None


def as_new(x, sampler):
    return x * torch.rand(3, generator=torch.Generator())


def seeded_by_an_argument(x, sampler):
    generator = torch.Generator().manual_seed(int(x.shape[0]))
    noise = torch.randn(3, generator=generator)
    if (x + noise).sum() > 0:
        return torch.rand(3, generator=generator) - noise
    while noise.sum() < 1:
        noise = noise + torch.rand(3, generator=generator)
    return noise


def several_at_once(x, sampler):
    generators = [torch.Generator().manual_seed(i) for i in range(3)]
    total = sum(torch.randn(3, generator=each) for each in generators)
    for each in generators:
        if total.sum() + x.sum() > 0:
            total = total - torch.rand(3, generator=each)
    return total


def one_on_each_way(x, sampler):
    generator = torch.Generator().manual_seed(1) if x.sum() > 0 else torch.Generator()
    other = torch.Generator().manual_seed(2)
    if x[0] > 0:
        return torch.rand(2, generator=generator), torch.rand(2, generator=other), generator
    return torch.rand(2, generator=other), generator


def state_put_back(x, sampler):
    generator = torch.Generator().manual_seed(5)
    state = generator.get_state()
    first = torch.rand(2, generator=generator)
    if x.sum() > 0:
        generator.set_state(state)
    return first, torch.rand(2, generator=generator), generator.get_state()


def kept_from_the_first_call_on(x, sampler):
    if sampler.own is None:
        sampler.own = torch.Generator().manual_seed(4)
    return x * torch.randn(3, generator=sampler.own)


def left_anew_by_each_call(x, sampler):
    generator = torch.Generator().manual_seed(1)
    noise = torch.randn(3, generator=generator)
    sampler.own = generator if (x + noise).sum() > 0 else torch.Generator()
    return noise


@pytest.mark.parametrize(
    "program",
    [as_new, seeded_by_an_argument, several_at_once, one_on_each_way, state_put_back, kept_from_the_first_call_on, left_anew_by_each_call],
)
def test_a_generator_that_the_program_creates_is_new_in_each_call(program):
    compiled, states = dovetail.jit(program), [Sampler(), Sampler()]
    drawn, returned = torch.Generator().manual_seed(0), []
    for _ in range(10):
        x = torch.randn(3, generator=drawn)
        results = [call(x, state) for call, state in zip((compiled, program), states)]
        torch.testing.assert_close(*[_with_states(result) for result in results], rtol=0, atol=1e-6)
        assert (states[0].own is None) == (states[1].own is None)
        if states[0].own is not None:
            assert torch.equal(*[state.own.get_state() for state in states])
        returned += [x for x in _parts(results[0]) if isinstance(x, torch.Generator)]
    assert len(set(map(id, returned))) == len(returned)
    assert compiled.cache_info().misses < 7


def _parts(result):
    return result if isinstance(result, tuple) else (result,)


def _with_states(result):
    return [x.get_state() if isinstance(x, torch.Generator) else x for x in _parts(result)]

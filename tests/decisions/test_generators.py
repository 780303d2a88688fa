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

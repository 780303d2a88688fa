"""Random numbers: PyTorch's own from one seed, in its shapes and dtypes, and again after each call."""

from __future__ import annotations

import harness
import pytest
import torch

import dovetail
from dovetail.errors import Unclaimed

X = torch.rand(4, 5)
DRAWS = {
    "rand": lambda x: torch.rand(2, 20),
    "rand of a complex dtype": lambda x: torch.rand(2, 3, dtype=torch.complex64),
    "rand of a keyword size": lambda x: torch.rand(size=(3,), dtype=torch.float64),
    "randn": lambda x: torch.randn((3, 7)),
    "randn of a complex dtype": lambda x: torch.randn(3, dtype=torch.complex64),
    "rand_like": lambda x: torch.rand_like(x),
    "randn_like": lambda x: torch.randn_like(x, dtype=torch.bfloat16),
    "randn_like of a transposed tensor": lambda x: torch.randn_like(x.t()),
    "randint": lambda x: torch.randint(10, (5,)),
    "randint from low": lambda x: torch.randint(3, 9, (5,), dtype=torch.int32),
    "randint of keywords": lambda x: torch.randint(low=3, high=9, size=(5,)),
    "randint of a keyword high": lambda x: torch.randint(high=9, size=(5,), dtype=torch.float32),
    "randint_like": lambda x: torch.randint_like(x, 3, 9),
    "randint_like up to high": lambda x: torch.randint_like(x, high=9),
    "randperm": lambda x: torch.randperm(9),
    "normal of numbers": lambda x: torch.normal(2.0, 3.0, (20,)),
    "normal of means": lambda x: torch.normal(x, 0.5),
    "normal of deviations": lambda x: torch.normal(1.0, x),
    "normal of both": lambda x: torch.normal(x, x[0]),
    "bernoulli": lambda x: torch.bernoulli(x),
    "bernoulli of a number": lambda x: x.bernoulli(0.3),
    "multinomial": lambda x: torch.multinomial(x, 3),
    "multinomial with replacement": lambda x: x.multinomial(num_samples=9, replacement=True),
    "uniform_": lambda x: torch.empty(30).uniform_(-1, 1),
    "uniform_ of a complex tensor": lambda x: torch.empty(3, dtype=torch.complex64).uniform_(),
    "normal_": lambda x: x.clone().normal_(std=2.0),
    "normal_ of a complex tensor": lambda x: torch.empty(3, dtype=torch.complex64).normal_(1.0),
    "exponential_": lambda x: x.clone().exponential_(2.0),
    "bernoulli_ of a number": lambda x: x.clone().bernoulli_(0.3),
    "bernoulli_ of a tensor": lambda x: x.clone().bernoulli_(x),
    "random_": lambda x: x.clone().random_(),
    "random_ up to": lambda x: torch.empty(5, dtype=torch.int64).random_(10),
    "random_ between": lambda x: torch.empty(5).random_(3, to=9),
    "random_ from": lambda x: torch.empty(5, dtype=torch.int16).random_(-20000, None),
    "random_ from, by name": lambda x: torch.empty(5).random_(**{"from": 3, "to": None}),
    "geometric_": lambda x: x.clone().geometric_(0.5),
    "cauchy_": lambda x: x.clone().cauchy_(),
    "log_normal_": lambda x: x.clone().log_normal_(),
}


@pytest.mark.parametrize("name", DRAWS)
def test_one_seed_gives_eager_numbers_in_every_call(name):
    draw, x = DRAWS[name], X.clone()
    compiled = dovetail.jit(draw)
    compiled(x)
    for seed in (0, 1):
        torch.manual_seed(seed)
        want = [draw(x), draw(x)]
        torch.manual_seed(seed)
        got = [compiled(x), compiled(x)]
        for a, b in zip(got, want, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=0)
            assert a.stride() == b.stride()


FILLED = {
    "uniform_": lambda x: x.uniform_(-1, 1),
    "normal_": lambda x: x.normal_(1.0, 2.0),
    "exponential_": lambda x: x.exponential_(2.0),
    "bernoulli_ of a number": lambda x: x.bernoulli_(0.3),
    "bernoulli_ of a tensor": lambda x: x.bernoulli_(torch.linspace(0, 1, x.numel()).view(x.shape)),
    "random_": lambda x: x.random_(),
    "random_ up to": lambda x: x.random_(10),
    "cauchy_": lambda x: x.cauchy_(),
    "a tensor like it": lambda x: torch.empty_like(x).normal_(),
    "a part of it": lambda x: x[1:].normal_(),
}
LAYOUTS = {
    "transposed": lambda: torch.zeros(5, 7).t(),
    "channels last": lambda: torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "one image": lambda: torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last)[1:],
    "turned": lambda: torch.zeros(3, 4, 5).permute(2, 0, 1),
    "a column": lambda: torch.zeros(20, 3)[:, 1],
    "steps": lambda: torch.zeros(4, 10)[:, ::2],
    "steps of columns": lambda: torch.zeros(10, 4)[::2].t(),
    "a part of rows": lambda: torch.zeros(5, 9)[:, 2:7],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", FILLED)
def test_a_tensor_is_filled_in_the_order_of_its_memory(name, layout):
    compiled = dovetail.jit(FILLED[name])
    for seed in (0, 1):
        results = []
        for fill in (FILLED[name], compiled):
            torch.manual_seed(seed)
            x = LAYOUTS[layout]()
            results.append((fill(x), x, torch.rand(3)))
        torch.testing.assert_close(results[1], results[0], rtol=0, atol=0)
        assert results[1][0].stride() == results[0][0].stride()


OPAQUE = ("geometric_", "cauchy_", "log_normal_", "random_", "random_ from", "random_ from, by name")


@pytest.mark.parametrize("name", [n for n in DRAWS if n not in OPAQUE])
def test_the_prims_draw_in_the_same_shape_and_dtype(name):
    got = harness.ours(DRAWS[name], (X.clone(),), {}, harness.ways()["decomposed"]).leaves[0]
    want = DRAWS[name](X.clone())
    assert (got.shape, got.dtype, got.stride()) == (want.shape, want.dtype, want.stride())


@pytest.mark.parametrize(("args", "kwargs"), [((), {"from": 2}), ((2,), {"from": 1}), ((None,), {}), ((2, 1), {}), ((3,), {})])
def test_random_raises_what_eager_mode_raises(args, kwargs):
    def draw(x):
        return x.random_(*args, **kwargs)

    with pytest.raises((TypeError, RuntimeError)) as raised:
        draw(torch.zeros(3, dtype=torch.bool))
    with pytest.raises(raised.type):
        dovetail.jit(draw)(torch.zeros(3, dtype=torch.bool))


GENERATED = {
    "rand": lambda x, g: torch.rand(4, generator=g),
    "randn": lambda x, g: torch.randn(4, generator=g, dtype=torch.float64),
    "randint": lambda x, g: torch.randint(3, 9, (4,), generator=g),
    "randperm": lambda x, g: torch.randperm(9, generator=g),
    "normal": lambda x, g: torch.normal(x, 2.0, generator=g),
    "bernoulli": lambda x, g: torch.bernoulli(x, generator=g),
    "multinomial": lambda x, g: torch.multinomial(x, 2, generator=g),
    "uniform_": lambda x, g: x.clone().uniform_(2, 3, generator=g),
    "normal_": lambda x, g: x.clone().normal_(generator=g),
    "bernoulli_ of a tensor": lambda x, g: torch.empty(3, 4, 5).bernoulli_(x, generator=g),
}


@pytest.mark.parametrize("name", GENERATED)
def test_a_generator_is_used_by_the_whole_operation(name):
    draw = GENERATED[name]
    generator = torch.Generator()
    compiled = dovetail.jit(lambda x: draw(x, generator))
    compiled(X)
    generator.manual_seed(3)
    got = [compiled(X), compiled(X)]
    generator.manual_seed(3)
    want = [draw(X, generator), draw(X, generator)]
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_a_generator_is_refused_by_the_decomposition():
    generator = torch.Generator()
    with pytest.raises(Unclaimed, match="no executor runs"):
        harness.ours(lambda x: torch.rand(3, generator=generator), (X,), {}, harness.ways()["decomposed"])


def test_two_draws_are_two_draws():
    a, b = dovetail.jit(lambda x: (torch.rand(3), torch.rand(3)))(X)
    assert not torch.equal(a, b)


def test_an_unread_draw_still_moves_the_generator():
    def draw(x):
        torch.rand(3)
        return torch.rand(3)

    torch.manual_seed(0)
    want = draw(X)
    torch.manual_seed(0)
    assert torch.equal(dovetail.jit(draw)(X), want)


def test_drawing_into_a_view_of_an_input_reaches_it():
    def draw(x):
        x.view(2, 10)[0].normal_()

    x, y = X.clone(), X.clone()
    torch.manual_seed(0)
    draw(x)
    torch.manual_seed(0)
    dovetail.jit(draw)(y)
    assert torch.equal(x, y)


@pytest.mark.parametrize(
    "bad",
    [
        lambda x: x.uniform_(3, 1),
        lambda x: x.normal_(0, -1),
        lambda x: x.bernoulli_(2.0),
        lambda x: x.exponential_(-1.0),
        lambda x: x.long().uniform_(),
        lambda x: torch.randint(3, 3, (2,)),
        lambda x: torch.multinomial(x, 9),
        lambda x: torch.randperm(-1),
        lambda x: torch.normal(x, -1.0),
    ],
)
def test_errors_are_of_eagers_type(bad):
    with pytest.raises(Exception) as want:
        bad(X.clone())
    with pytest.raises(want.type):
        dovetail.jit(bad)(X.clone())

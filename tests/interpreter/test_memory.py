"""A call keeps nothing alive: not the first one, which compiles, nor one that raises or is refused, also while the collector is off."""

from __future__ import annotations

import contextlib
import gc
import types
import weakref

import numpy as np
import pytest
import torch

import dovetail

SEEN: list[int] = []


def plain(x):
    return x * 2


def writing(x):
    SEEN.append(1)
    return x + 1


def raising(x):
    raise ValueError("no")


def refused(x):
    return x * 2 if x.sum() > 0 else x


def wrong(x):
    return x @ torch.ones(7, 7)


def catching(x):
    try:
        raise ValueError
    except ValueError:
        return x + 1


def writing_before_it_raises(x):
    SEEN.append(1)
    raise ValueError("no")


def raising_where_a_value_says_so(x):
    y = x * 2
    if x.sum() > 0:
        raise ValueError("no")
    return y


def raising_behind_a_conversion(x):
    if int(x.max()) is None:
        return x
    raise ValueError("no")


def of_an_array_by_value(a):
    return a * 2 if a[0] > 0 else a


def of_an_array_and_a_tensor(a):
    return torch.from_numpy(a) + torch.ones(3)


@pytest.fixture
def no_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("interpretation", ["bytecode", "native"])
@pytest.mark.parametrize("calls", [1, 2])
@pytest.mark.parametrize("program", [plain, writing, raising, refused, wrong, catching], ids=lambda program: program.__name__)
def test_an_argument_dies_with_its_last_name(program, calls, interpretation, no_collector):
    compiled = dovetail.jit(program, interpretation=interpretation)
    for _ in range(calls):
        x = torch.ones(3)
        alive = weakref.ref(x)
        with contextlib.suppress(ValueError, RuntimeError, TypeError):
            compiled(x)
        del x
        assert alive() is None


@pytest.mark.parametrize(
    "program, argument",
    [
        (writing_before_it_raises, torch.ones),
        (raising_where_a_value_says_so, torch.ones),
        (raising_behind_a_conversion, torch.ones),
        (plain, np.ones),
        (raising, np.ones),
        (of_an_array_by_value, np.ones),
        (of_an_array_and_a_tensor, np.ones),
    ],
    ids=lambda value: value.__name__,
)
def test_an_argument_and_a_result_die_where_python_chooses_or_raises(program, argument, no_collector):
    compiled = dovetail.jit(program)
    for _ in range(2):
        x, result = argument(3), None
        with contextlib.suppress(ValueError):
            result = compiled(x)
        alive = [weakref.ref(value) for value in (x, result) if value is not None]
        del x, result
        assert [value() for value in alive] == [None] * len(alive)


def test_a_compiled_function_that_is_dropped_takes_its_programs_along(no_collector):
    compiled = dovetail.jit(plain, executors=["torch"])
    compiled(torch.ones(3))
    alive = [weakref.ref(value) for value in (compiled, compiled._cache, compiled._cache.entries[0])]
    del compiled
    assert [value() for value in alive] == [None] * 3


def test_an_argument_dies_after_its_backward(no_collector):
    x = torch.ones(3, requires_grad=True)
    alive = weakref.ref(x)
    result = dovetail.jit(plain)(x)
    result.sum().backward()
    del x, result
    assert alive() is None


def test_a_refusal_inside_inference_mode_leaves_it():
    def program(x):
        with torch.inference_mode():
            return x * 2 if x.sum() > 0 else x

    with pytest.raises(dovetail.errors.TracedValueError):
        dovetail.jit(program, decisions="error")(torch.ones(2))
    assert not torch.is_inference_mode_enabled() and torch.is_grad_enabled()


def closes_over_an_object():
    held = types.SimpleNamespace(weight=torch.ones(3))
    return (lambda x: x * held.weight), held.weight


def closes_over_a_module():
    model = torch.nn.Linear(3, 3)
    return (lambda x: model(x)), model.weight


def closes_over_what_a_decision_needs():
    weight = torch.ones(3)
    return (lambda x: x * weight if x.sum() > 0 else x - weight), weight


def trains_a_module():
    model = torch.nn.Linear(3, 3)

    def step(x):
        model.zero_grad()
        loss = model(x).sum()
        loss.backward()
        return loss.detach()

    return step, model.weight


MAKERS = [closes_over_an_object, closes_over_a_module, closes_over_what_a_decision_needs, trains_a_module]


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
def test_what_a_dropped_compiled_function_was_compiled_from_dies(make, no_collector):
    function, weight = make()
    compiled = dovetail.jit(function, executors=["torch"])
    for rows in (2, 2, 4, 5):
        compiled(torch.ones(rows, 3))
    alive = [weakref.ref(function), weakref.ref(weight)]
    del compiled, function, weight
    assert [value() for value in alive] == [None, None]


def compiled_with_a_class():
    class Base:
        factor = 2.0

    class Scale(Base):
        def __call__(self, x):
            return x * self.factor if isinstance(self, Base) else x

    return dovetail.jit(Scale(), executors=["torch"]), weakref.ref(Scale)


def test_a_class_that_a_program_saw_is_collected():
    compiled, alive = compiled_with_a_class()
    compiled(torch.ones(3))
    del compiled
    gc.collect()
    assert alive() is None


def test_a_function_that_is_an_argument_is_not_kept(no_collector):
    compiled = dovetail.jit(lambda x, function: function(x), executors=["torch"])
    alive = []
    for _ in range(3):
        function = lambda x: x * 2  # noqa: E731
        alive.append(weakref.ref(function))
        compiled(torch.ones(3), function)
    del function
    assert [value() for value in alive] == [None] * 3
    assert len(compiled._cache.entries) == 1

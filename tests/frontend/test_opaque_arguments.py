"""What opaque functions get that is no tensor: objects, functions, containers; and the tensors that they read without being passed them."""

import dataclasses
import functools
import warnings
from types import SimpleNamespace

import pytest
import torch

import dovetail
from dovetail import dtypes, prims
from dovetail.extend import OperatorExecutor
from dovetail.langs.torch import spec_of


class Factor:
    def __init__(self, value):
        self.value, self.calls = value, 0

    def __len__(self):
        return int(self.value)

    def times(self, x):
        return x * self.value

    @dovetail.opaque
    def opaquely(self, x):
        return x * self.value


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value


@dovetail.opaque
def scaled(x, factor):
    return x * factor.value


@dovetail.opaque
def scaled_by_length(x, factor):
    return x * len(factor)


@dovetail.opaque
def scaled_by_first(x, factors):
    return x * factors[0].value


@dovetail.opaque
def applied(x, function):
    return function(x)


@dovetail.opaque
def counted(x, factor):
    factor.calls += 1
    return x * factor.calls


@dovetail.opaque
def appended(x, items):
    items.append(1)
    return x * len(items)


def plain(state, x):
    return scaled(x, state.factor) + 1


def by_length(state, x):
    return scaled_by_length(x, state.factor)


def in_a_list(state, x):
    return scaled_by_first(x, [state.factor])


def a_method(state, x):
    return state.factor.opaquely(x)


def a_function(state, x):
    return applied(x, state.function)


def a_bound_method(state, x):
    return applied(x, state.factor.times)


def a_function_of_its_own(state, x):
    return applied(x, lambda y: y * 3)


def a_partial(state, x):
    return applied(x, functools.partial(torch.mul, other=2.0))


def of_its_own(state, x):
    return scaled(x, Factor(2.0))


def holding_a_traced_value(state, x):
    return scaled(x, Factor(x.sum()))


def changed_between_two_calls(state, x):
    own = Factor(1.0)
    y = scaled(x, own)
    own.value = 3.0
    return y + scaled(x, own)


def counting(state, x):
    return counted(x, state.factor)


def counting_and_read(state, x):
    return counted(x, state.factor) * state.factor.calls


def counting_behind_a_write(state, x):
    state.factor.calls = 5
    return counted(x, state.factor)


def counting_one_of_its_own(state, x):
    own = Factor(1.0)
    return counted(x, own) * own.calls


def appending(state, x):
    return appended(x, state.items)


def appending_to_a_list_of_its_own(state, x):
    own = []
    return appended(x, own) * len(own)


PROGRAMS = [plain, by_length, in_a_list, a_method, a_function, a_bound_method, a_function_of_its_own, a_partial, of_its_own, holding_a_traced_value]
PROGRAMS += [changed_between_two_calls, counting, counting_and_read, counting_behind_a_write, counting_one_of_its_own]
PROGRAMS += [appending, appending_to_a_list_of_its_own]


def outcomes(compile, program):
    """What six calls return, with other objects at some of them, and with changes of them; and the state after each."""
    state = SimpleNamespace(factor=Factor(2.0), function=lambda x: x + 1, items=[])
    compiled, results = compile(program), []
    for i in range(6):
        if i in (2, 4):
            state.factor, state.function = Factor(float(i)), lambda x, i=i: x * i
        elif i == 3:
            state.factor.value = 7.0
        results += [compiled(state, torch.full((3,), i + 1.0)).tolist(), state.factor.calls, len(state.items)]
    return results


@pytest.mark.parametrize("program", PROGRAMS)
def test_opaque_functions_get_what_they_get_in_eager_mode(program):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert outcomes(dovetail.jit, program) == outcomes(lambda function: function, program)


def test_what_wraps_an_opaque_function_is_traced():
    @functools.wraps(scaled)
    def twice(x, factor):
        return scaled(x, factor) + scaled(x + 1, factor)

    compiled, factor = dovetail.jit(lambda x: twice(x, ONE)), ONE.value
    torch.testing.assert_close(compiled(torch.ones(3)), torch.ones(3) * 3 * factor)
    assert str(dovetail.last_traces(compiled)[0]).count("untraced.scaled") == 2


ONE = Factor(2.0)


@pytest.mark.parametrize("kind", [Factor, Slotted, lambda value: SimpleNamespace(value=value)])
def test_an_object_is_the_same_one_at_each_call_of_a_program(kind):
    compiled, x = dovetail.jit(lambda x, factor: scaled(x, factor)), torch.ones(3)
    one = kind(2.0)
    for factor in (one, one, kind(3.0), one):
        torch.testing.assert_close(compiled(x, factor), x * factor.value)
    one.value = 5.0
    torch.testing.assert_close(compiled(x, one), x * 5)
    assert len(dovetail.cache_misses(compiled)) == 2


EXECUTOR = OperatorExecutor("configured", version="0.1")
SCALED = EXECUTOR.operation("scaled", lambda x, factor: x * factor.value, meta=lambda x, factor: x.fresh())
SCALED_BY_KEYWORD = EXECUTOR.operation("scaled_by_keyword", lambda x, *, factor: x * factor.value, meta=lambda x, *, factor: x.fresh())
SCALED_BY_FIRST = EXECUTOR.operation("scaled_by_first", lambda x, factors: x * factors[0].value, meta=lambda x, factors: x.fresh())
APPLIED = EXECUTOR.operation("applied", lambda x, function: function(x), meta=lambda x, function: x.fresh())


@dataclasses.dataclass(frozen=True)
class Frozen:
    value: float


@pytest.mark.parametrize("kind", [Factor, Frozen, lambda value: SimpleNamespace(value=value)])
@pytest.mark.parametrize(
    "function",
    [
        lambda x, factor: SCALED(x, factor),
        lambda x, factor: SCALED_BY_KEYWORD(x, factor=factor),
        lambda x, factor: SCALED_BY_FIRST(x, [factor]),
        lambda x, factor: SCALED(x, Frozen(2.0)) * factor.value / 2,
    ],
)
def test_operations_of_executors_get_the_object_of_each_call(function, kind):
    compiled, x = dovetail.jit(function, executors=[EXECUTOR, "torch"]), torch.ones(3)
    for value in (2.0, 3.0, 4.0):
        torch.testing.assert_close(compiled(x, kind(value)), x * value)


def test_prims_get_devices_and_dtypes_that_the_program_looks_up():
    def draws(seed, offset):
        spec = spec_of(seed)
        floats = [dtype for dtype in (dtypes.float32, dtypes.float64) if dtype.kind == "float"]
        return [prims.uniform_philox(seed, offset, low=0.0, high=1.0, shape=(7, 5), dtype=dtype, device=spec.device) for dtype in floats]

    compiled = dovetail.jit(draws)
    results = compiled(torch.tensor(3), torch.tensor(5))
    assert [(x.shape, x.dtype) for x in results] == [((7, 5), torch.float32), ((7, 5), torch.float64)]
    assert compiled.cache_info().misses == 1


def test_operations_of_executors_get_functions_as_they_are():
    compiled, x = dovetail.jit(lambda x, function: APPLIED(x, function), executors=[EXECUTOR, "torch"]), torch.ones(3)
    for function in (lambda x: x * 2, lambda x: x * 3, torch.neg):
        torch.testing.assert_close(compiled(x, function), function(x))


WEIGHT = torch.full((3,), 2.0, requires_grad=True)


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((3,), 2.0))

    @dovetail.opaque
    def weighted(self, x):
        return x * self.weight

    @dovetail.opaque(meta=lambda self, x: torch.empty_like(x))
    def weighted_by_meta(self, x):
        return x * self.weight

    @dovetail.opaque
    def weighted_by_numbers(self, x):
        return x * self.weight.detach()


@dovetail.opaque
def weighted(x):
    return x * WEIGHT


@dovetail.opaque(meta=torch.empty_like)
def weighted_by_meta(x):
    return torch.from_numpy((x.detach() * 2).numpy()) * WEIGHT + x


@dovetail.opaque
def weighted_by_argument(x, weight):
    with torch.no_grad():
        twice = WEIGHT * 2
    return x * weight + twice


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("name", ["weighted", "weighted_by_meta", "weighted_by_numbers"])
def test_parameters_that_a_method_reads_get_their_gradients(name, requires_grad):
    layer = Layer()
    check_gradients(lambda x: getattr(layer, name)(x) + 1, layer.weight, requires_grad)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("function", [weighted, weighted_by_meta, lambda x: weighted_by_argument(x, WEIGHT)])
def test_tensors_that_a_function_reads_get_their_gradients(function, requires_grad):
    check_gradients(lambda x: function(x) * 2, WEIGHT, requires_grad)


def check_gradients(function, weight, requires_grad):
    compiled = dovetail.jit(function)
    for _ in range(3):
        expected, actual = [gradients(each, weight, requires_grad) for each in (function, compiled)]
        assert actual == expected


def gradients(function, weight, requires_grad):
    weight.grad, x = None, torch.arange(3.0, requires_grad=requires_grad)
    y = function(x)
    if y.requires_grad:
        y.square().sum().backward()
    return y.tolist(), y.requires_grad, [None if each.grad is None else each.grad.tolist() for each in (weight, x)]


def test_a_method_is_compiled_where_no_gradient_of_a_parameter_is_lost():
    layer, x = Layer(), torch.ones(3)
    compiled = dovetail.jit(lambda x: layer.weighted(x) + 1)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(compiled(x), x * 2 + 1)
    assert "untraced.weighted_without_grad" in str(dovetail.last_traces(compiled)[-1])

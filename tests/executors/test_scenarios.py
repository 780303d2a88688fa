"""What an executor and an extension can do, by the numbers of the acceptance scenarios."""

from __future__ import annotations

import threading

import pytest
import torch

import dovetail
from dovetail import prims
from dovetail.errors import InvalidTrace
from dovetail.extend import FusionExecutor, OperatorExecutor, Tag, get_grad, make_prim, put_grad, register_grad
from dovetail.extend.advanced import (
    ExecutorError,
    RegionLimit,
    Transform,
    get_executor,
    lookaside,
    make_symbol,
    require,
    symbol_for,
    to_callable,
    watch,
)

F = torch.nn.functional


def ran(trace) -> list[tuple[str, str]]:
    """Which operation was run by whom."""
    return [(line.symbol.name, line.implementation.executor) for line in trace.lines if line.implementation]


def sine(name: str, factor: float) -> OperatorExecutor:
    """An executor whose grad rule of sin gives `factor`, so that one can see whose it is."""

    def rule(input):
        out = torch.sin(input)
        put_grad(input, get_grad(out) * factor)
        return out

    ex = OperatorExecutor(name)
    ex.implements(torch.sin, torch.sin, grad=rule)
    return ex


def gradient(fn, x: torch.Tensor, executors) -> torch.Tensor:
    x = x.clone().requires_grad_()
    dovetail.jit(fn, executors=executors)(x).sum().backward()
    return x.grad


def test_scenario_33_an_executors_grad_rule_beats_the_default_and_the_first_executors_wins():
    seven, nine, x = sine("seven", 7.0), sine("nine", 9.0), torch.tensor([0.5, 1.0])

    torch.testing.assert_close(gradient(torch.sin, x, None), torch.cos(x))
    assert gradient(torch.sin, x, [seven]).tolist() == [7, 7]
    assert gradient(torch.sin, x, [seven, nine]).tolist() == [7, 7]
    assert gradient(torch.sin, x, [nine, seven]).tolist() == [9, 9]


def test_scenario_33_the_rule_of_an_executor_that_does_not_take_the_call_is_not_asked():
    picky, x = sine("picky", 7.0), torch.tensor([0.5, 1.0])
    rule = picky.implementation(symbol_for(torch.sin)).grad
    picky.implements(torch.sin, torch.sin, grad=rule, checker=lambda input: "expected a full moon")

    assert torch.equal(gradient(torch.sin, x, [picky]), torch.cos(x))
    assert gradient(torch.sin, x, [picky, sine("nine", 9.0)]).tolist() == [9, 9]


def test_scenario_33_an_executors_rule_beats_a_registered_one():
    register_grad(torch.sin, lambda input: _with_grad(torch.sin(input), input, 3.0))
    try:
        assert gradient(torch.sin, torch.ones(2), None).tolist() == [3, 3]
        assert gradient(torch.sin, torch.ones(2), [sine("seven", 7.0)]).tolist() == [7, 7]
    finally:
        register_grad(torch.sin, None)


def _with_grad(out, input, factor):
    put_grad(input, get_grad(out) * factor)
    return out


def test_scenario_38_what_the_first_does_not_take_is_filled_by_the_rest():
    ex = sine("mine", 1.0)
    jitted = dovetail.jit(lambda x: torch.cos(torch.sin(x)), executors=[ex])
    jitted(torch.ones(2))

    assert ran(dovetail.last_traces(jitted)[-1]) == [("sin", "mine"), ("cos", "torch")]


@pytest.mark.parametrize(
    ("wrong", "differs"),
    [(lambda input: torch.sin(input)[:1], "shape"), (lambda input: torch.sin(input).double(), "float64")],
    ids=["shape", "dtype"],
)
def test_scenario_41_a_result_that_is_not_what_the_operation_promises_is_caught_at_run_time(monkeypatch, wrong, differs):
    ex = OperatorExecutor("careless")
    ex.implements(torch.sin, wrong)
    monkeypatch.setenv("DOVETAIL_CHECK", "1")
    with pytest.raises(ExecutorError, match=f"(?s)careless.*torch.sin.*({differs})"):
        dovetail.jit(lambda x: torch.sin(x), executors=[ex])(torch.ones(2))


def raising() -> OperatorExecutor:
    def checker(input):
        raise ZeroDivisionError("the checker's own mistake")

    ex = OperatorExecutor("fragile")
    ex.implements(torch.sin, torch.sin, checker=checker)
    return ex


def test_scenario_42_a_checker_that_raises_is_reported_by_name_and_the_next_executor_runs_it():
    jitted = dovetail.jit(lambda x: torch.sin(x), executors=[raising()])
    with pytest.warns(UserWarning, match="(?s)fragile.*ZeroDivisionError: the checker's own mistake"):
        jitted(torch.ones(2))

    assert ran(dovetail.last_traces(jitted)[-1]) == [("sin", "torch")]


def test_scenario_42_where_it_is_strict_that_is_an_error():
    with dovetail.use(strict=["checker-error"]), pytest.raises(ExecutorError, match=r"(?s)fragile.*ZeroDivisionError"):
        dovetail.jit(lambda x: torch.sin(x), executors=[raising()])(torch.ones(2))


class Pointwise(FusionExecutor):
    """Fuses elementwise prims; a region is run by the reference executor."""

    def __init__(self, name: str = "pointwise", wrong: int | None = None):
        super().__init__(name)
        self.regions, self.wrong = [], wrong  # the region numbered `wrong` comes out wrong

    def can_fuse(self, line):
        return Tag.ELEMENTWISE in line.symbol.tags or f"does not fuse {line.symbol}"

    def fuse(self, region):
        self.regions.append([line.symbol.name for line in region.lines])
        run = to_callable(dovetail.executors.dispatch(region, dovetail.executors.Priority([get_executor("torch")])))
        return (lambda *args: tuple(x + 1 for x in run(*args))) if len(self.regions) - 1 == self.wrong else run


def three_regions(x: torch.Tensor) -> torch.Tensor:
    a = torch.sin(x) * 2
    b = torch.cos(a @ a) - 1
    return torch.exp(b @ b).neg()


def test_scenario_44_regions_are_maximal_over_the_data_flow():
    ex = Pointwise()

    def fn(x, y):
        a = torch.sin(x)
        b = y @ y  # stands between, and nothing of a goes through it
        return torch.cos(a) * 2, b

    jitted = dovetail.jit(fn, executors=[ex])
    jitted(torch.ones(2, 2), torch.ones(2, 2))
    assert ex.regions == [["sin", "cos", "mul"]]


def test_scenario_44_the_fusions_of_a_program_can_be_listed():
    jitted = dovetail.jit(three_regions, executors=[Pointwise()])
    jitted(torch.ones(2, 2))
    fusions = [line for line in dovetail.last_traces(jitted)[-1].lines if line.implementation and line.implementation.executor == "pointwise"]

    assert [[inner.symbol.name for inner in line.body] for line in fusions] == [["sin", "mul"], ["cos", "sub"], ["exp", "neg"]]


def test_scenario_44_fuel_finds_the_fusion_that_goes_wrong():
    x = torch.full((2, 2), 0.1)
    want = three_regions(x)

    def right(limit: int) -> bool:
        return torch.allclose(dovetail.jit(three_regions, executors=[RegionLimit(Pointwise(wrong=1), limit)])(x), want)

    assert [right(limit) for limit in range(4)] == [True, True, False, False]
    ex = RegionLimit(Pointwise(wrong=1), 2)
    dovetail.jit(three_regions, executors=[ex])(x)
    assert [line.symbol.name for line in ex.regions[-1].lines] == ["cos", "sub"]


def test_scenario_44_fuel_does_not_change_how_the_program_is_cut_up():
    texts = set()
    for limit in range(4):
        jitted = dovetail.jit(three_regions, executors=[RegionLimit(Pointwise(), limit)])
        jitted(torch.ones(2, 2))
        texts.add(dovetail.last_traces(jitted)[-1].python().partition("\n")[2])

    assert len(texts) == 1


# Scenario 46: a function that the user calls becomes an operation.


def library_norm(x, eps=1e-6, *, scale=1.0):
    """A function of some library, which no tracer could follow."""
    raise AssertionError(f"the library's own code ran on {type(x).__name__}")


def eager_norm(x, eps=1e-6, *, scale=1.0):
    """The same, and it works on real tensors."""
    if type(x) is not torch.Tensor:
        raise AssertionError("the library's own code was traced")
    return x / (x.abs().sum() + eps) * scale


def norm_meta(x, eps=1e-6, *, scale=1.0):
    """x over the sum of its absolute values."""
    require(x.dtype.kind == "float", "expected a float, got {}", x)
    return x.fresh()


@pytest.fixture
def norm():
    ex = OperatorExecutor("norms")
    ex.operation(
        "l1",
        lambda x, eps=1e-6, *, scale=1.0: x / (x.abs().sum() + eps) * scale,
        meta=norm_meta,
        vjp=lambda g, out, x, eps=1e-6, *, scale=1.0: (g * 5.0, *(() if eps == 1e-6 else (None,))),
        replaces=[library_norm, eager_norm],
        replace=True,
    )
    yield ex
    lookaside(library_norm, None)
    lookaside(eager_norm, None)


@pytest.mark.parametrize(
    "call", [lambda x: library_norm(x) * 2, lambda x: library_norm(x, scale=2.0), lambda x: library_norm(x, 1e-6) + library_norm(x)]
)
def test_scenario_46_replaces_swaps_a_function_that_the_user_calls(norm, call):
    x = torch.tensor([1.0, 3.0])
    jitted = dovetail.jit(call, executors=[norm])

    torch.testing.assert_close(jitted(x), torch.tensor([0.5, 1.5]))
    assert ("l1", "norms") in ran(dovetail.last_traces(jitted)[-1])
    assert "norms_exec.l1(" in str(dovetail.last_traces(jitted)[-1])


def test_scenario_46_under_any_name_and_with_its_own_gradient(norm):
    alias, held = eager_norm, {"norm": eager_norm}
    x = torch.tensor([1.0, 3.0], requires_grad=True)
    dovetail.jit(lambda x: alias(x) + held["norm"](x), executors=[norm])(x).sum().backward()

    assert x.grad.tolist() == [10, 10]


def test_scenario_46_eager_code_is_as_it_was(norm):
    x = torch.tensor([1.0, 3.0])

    torch.testing.assert_close(eager_norm(x, scale=4.0), torch.tensor([1.0, 3.0]))
    with pytest.raises(AssertionError, match="the library's own code ran on Tensor"):
        library_norm(x)


def test_scenario_46_other_threads_do_not_see_that_this_one_traces(norm):
    seen = []

    def fn(x):
        other = threading.Thread(target=lambda: seen.append(eager_norm(torch.tensor([1.0, 3.0]))))
        other.start()
        other.join()
        return eager_norm(x)

    dovetail.jit(fn, executors=[norm], interpretation="native")(torch.ones(2))
    torch.testing.assert_close(seen, [torch.tensor([0.25, 0.75])])


def test_scenario_46_it_can_be_taken_back(norm):
    lookaside(eager_norm, None)
    with pytest.raises(AssertionError, match="the library's own code was traced"):
        dovetail.jit(eager_norm, executors=[norm], interpretation="native")(torch.ones(2))


def test_scenario_46_a_function_with_a_closure_a_method_and_a_function_of_torch():
    offset = torch.tensor(1.0)

    def closure(x):
        return x + offset

    class Layer:
        def forward(self, x):
            return x + 100

    twice = make_prim("scenario46.twice", "twice", meta=lambda x: x.fresh(), replace=True)
    ex = OperatorExecutor("swapping")
    ex.implements(twice, lambda x: x + x)
    cases = [(closure, twice, closure), (Layer.forward, lambda self, x: twice(x), Layer().forward), (torch.erfinv, twice, torch.erfinv)]
    for function, operation, called in cases:
        lookaside(function, operation)
        try:
            assert dovetail.jit(lambda x, called=called: called(x), executors=[ex])(torch.ones(1)).tolist() == [2]
        finally:
            lookaside(function, None)
    assert float(closure(torch.ones(1))) == 2 and float(Layer().forward(torch.ones(1))) == 101
    assert float(dovetail.jit(torch.erfinv)(torch.zeros(1))) == 0


def test_scenario_46_a_function_whose_calls_cannot_be_seen_is_an_error():
    with pytest.raises(dovetail.DovetailError, match=r"calls of .* cannot be replaced"):
        lookaside(len, prims.sin)


# Operations of one's own.


def test_a_symbol_with_a_program_is_taken_whole_or_in_parts_and_differentiated_by_them():
    swish = make_symbol("scenarios.swish", program=lambda x, beta=1.0: x * torch.sigmoid(x * beta), replace=True)
    x = torch.tensor([0.5, -1.0])
    whole = OperatorExecutor("whole")
    whole.implements(swish, lambda x, beta=1.0: x * torch.sigmoid(x * beta))
    apart, taken = dovetail.jit(lambda x: swish(x, beta=2.0), executors=["torch"]), dovetail.jit(lambda x: swish(x, beta=2.0), executors=[whole])

    torch.testing.assert_close(apart(x), x * torch.sigmoid(x * 2))
    torch.testing.assert_close(taken(x), x * torch.sigmoid(x * 2))
    assert ran(dovetail.last_traces(taken)[-1]) == [("swish", "whole")]
    assert {name for name, _ in ran(dovetail.last_traces(apart)[-1])} == {"mul", "sigmoid"}
    want = torch.autograd.functional.jacobian(lambda x: (x * torch.sigmoid(x * 2)).sum(), x)
    torch.testing.assert_close(gradient(lambda x: swish(x, beta=2.0), x, None), want)


def test_an_operation_without_an_implementation_or_a_rule_says_so():
    lonely = make_prim("scenarios.lonely", "lonely", meta=lambda x: x.fresh(), replace=True)
    with pytest.raises(dovetail.errors.Unclaimed, match=r"no executor runs scenarios.lonely"):
        dovetail.jit(lambda x: lonely(x))(torch.ones(2))
    with pytest.raises(dovetail.errors.NoGradRule, match=r"scenarios.lonely has no gradient rule"):
        dovetail.jit(lambda x: lonely(x))(torch.ones(2, requires_grad=True))


# Scenario 57: a transform gets every program, in an order that is defined.


class Noting(Transform):
    """Notes what it is given, and changes nothing."""

    def __init__(self, name: str, seen: list):
        self.name, self.seen = name, seen

    def programs(self, prologue, computation, epilogue):
        self.seen.append((self.name, prologue.name, computation.made_by, epilogue.name))
        assert prologue.lines[-1].symbol is prims.call_program
        assert all(line.implementation is None for line in computation.lines)
        return prologue, computation, epilogue

    def executed(self, trace):
        self.seen.append((self.name, trace.name, trace.made_by))
        return trace.derive(self.name, lines=list(trace.lines))


def test_scenario_57_a_transform_gets_the_programs_and_then_what_is_executed_in_the_order_of_passes():
    seen: list = []
    jitted = dovetail.jit(lambda x: x.mul_(2).sin(), passes=[Noting("a", seen), Noting("b", seen)])
    x = torch.ones(2)
    jitted(x)

    assert seen == [
        ("a", "prologue", "functionalize", "epilogue"),
        ("b", "prologue", "functionalize", "epilogue"),
        ("a", "computation", "release"),
        ("b", "computation", "a"),
    ]
    assert x.tolist() == [2, 2] and dovetail.last_traces(jitted)[-1].made_by == "b"


def test_scenario_57_where_something_requires_grad_forward_and_backward_are_executed_each_in_that_order():
    seen: list = []
    x = torch.ones(2, requires_grad=True)
    dovetail.jit(lambda x: x.sin(), passes=[Noting("a", seen), Noting("b", seen)])(x).sum().backward()

    assert [name for name, *_ in seen] == ["a", "b"] * 3
    assert [program for _, program, *_ in seen[2:]] == ["forward"] * 2 + ["backward"] * 2
    torch.testing.assert_close(x.grad, torch.cos(x.detach()))


class Swapping(Transform):
    """The program calls cos where the user called sin."""

    def programs(self, prologue, computation, epilogue):
        lines = [line.replace(symbol=symbol_for(torch.cos), body=()) if line.symbol is symbol_for(torch.sin) else line for line in computation.lines]
        return prologue, computation.derive("swapping", lines=lines), epilogue


class Unguarded(Transform):
    """The guards go, the unpacking of inputs stays."""

    def programs(self, prologue, computation, epilogue):
        kept = [line for line in prologue.lines if not line.symbol.name.startswith("check_")]
        return prologue.derive("unguarded", lines=kept), computation, epilogue


def test_scenario_57_what_a_transform_gives_back_is_what_runs():
    x = torch.tensor([0.5, 1.0])
    jitted = dovetail.jit(lambda x: torch.sin(x) * 2, passes=[Swapping()])

    torch.testing.assert_close(jitted(x), torch.cos(x) * 2)
    assert "swapping" in [trace.made_by for trace in dovetail.last_traces(jitted)]


def test_scenario_57_a_transform_changes_the_prologue():
    jitted = dovetail.jit(lambda x: x + 1, executors=["torch"], passes=[Unguarded()])

    assert jitted(torch.ones(2)).tolist() == [2, 2]
    assert jitted(torch.ones(3)).tolist() == [2, 2, 2]
    assert dovetail.cache_misses(jitted) == ["the first call"]
    assert "check_" not in str(dovetail.last_prologue_traces(jitted)[-1]) and dovetail.last_prologue_traces(jitted)[-1].made_by == "unguarded"


def test_scenario_57_transforms_and_plain_passes_stand_in_one_list():
    seen: list = []
    names: list = []
    jitted = dovetail.jit(
        lambda x: x.sin(), executors=["torch"], passes=[Noting("a", seen), watch(after=lambda line, *_: names.append(line.symbol.name))]
    )
    jitted(torch.ones(2))

    assert names == ["sin"] and [name for name, *_ in seen] == ["a", "a"]


def test_scenario_57_a_prologue_that_does_not_run_the_computation_is_an_error():
    class Endless(Transform):
        def programs(self, prologue, computation, epilogue):
            return prologue.derive("endless", lines=prologue.lines[:-1]), computation, epilogue

    with pytest.raises(InvalidTrace, match=r"does not end in prims.call_program"):
        dovetail.jit(lambda x: x + 1, passes=[Endless()])(torch.ones(2))

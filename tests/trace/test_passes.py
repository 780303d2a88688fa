"""What passes keep, merge and drop."""

from __future__ import annotations

import sys

import programs
import pytest
import torch

import dovetail
from dovetail import dtypes, prims
from dovetail.errors import InvalidTrace
from dovetail.prims import TensorSpec
from dovetail.trace import Trace, check, cse, dce, recording, release


def names(trace: Trace) -> list[str]:
    return [line.symbol.name for line in trace.lines]


def test_scenario_17_an_unused_matmul_goes_and_equal_exps_are_computed_once():
    def fn(x):
        x @ x
        return torch.exp(x) + torch.exp(x)

    compiled = dovetail.jit(fn, executors=["torch"])
    x = torch.randn(3, 3)
    torch.testing.assert_close(compiled(x), fn(x))
    executed = dovetail.last_traces(compiled)[-1]
    assert names(executed) == ["exp", "add", "delete"]
    assert [p.name for p in executed.lines[-1].args] == [executed.lines[0].out.name]


def test_an_unused_call_that_may_raise_stays_and_an_unused_gather_of_a_gradient_goes():
    def fn(x, i):
        x[i]
        x[0]
        return torch.exp(x)

    compiled = dovetail.jit(fn, executors=["torch"])
    compiled(torch.randn(3), torch.tensor([0]))
    executed = dovetail.last_traces(compiled)[-1]
    assert names(executed) == ["getitem", "evaluate", "delete", "exp"]
    x = torch.randn(3, requires_grad=True)
    compiled(x, torch.tensor([0])).sum().backward()
    assert "evaluate" not in names(dovetail.last_backward_traces(compiled)[-1])


def test_scenario_17_and_28_random_lines_survive_and_are_never_merged():
    def program(x):
        shape = {"shape": (2, 3), "low": 0.0, "high": 1.0, "dtype": dtypes.float32, "device": x.spec.device}
        prims.uniform(**shape)
        return prims.add(prims.uniform(**shape), prims.uniform(**shape))

    trace = cse(dce(programs.record(program, programs.SPEC)))
    assert names(trace) == ["uniform", "uniform", "uniform", "add"]


def test_equal_results_that_both_leave_stay_two_tensors():
    a, b = dovetail.jit(lambda x: (x + 1, x + 1))(torch.zeros(2))
    assert a.data_ptr() != b.data_ptr()


def test_common_subexpressions_tell_numbers_of_different_types_apart():
    trace = programs.record(lambda x: prims.add(prims.mul(x, 1.0), prims.mul(x, -1.0)), programs.SPEC)
    assert names(cse(trace)) == ["mul", "mul", "add"]


def test_equal_lines_stay_two_where_a_gradient_flows_through_one_alone():
    trace = programs.record(lambda x: prims.mul(prims.sin(x), prims.sin(x)), programs.SPEC)
    first = trace.lines[0].out
    assert names(cse(trace)) == ["sin", "mul"] and names(cse(trace, constant={first})) == ["sin", "sin", "mul"]


def test_values_are_let_go_after_their_last_use():
    trace = release(programs.record(lambda x: prims.sin(prims.cos(prims.tan(x))), programs.SPEC))
    assert names(trace) == ["tan", "cos", "delete", "sin", "delete"]
    check(trace)


def test_scenario_18_watch_shows_every_operation_with_its_values():
    seen = []

    def before(line, args, kwargs):
        seen.append(("before", line.symbol.name, args[0].tolist()))

    def after(line, args, kwargs, result):
        seen.append(("after", line.symbol.name, result.tolist()))

    compiled = dovetail.jit(lambda x: (x + 1) * 2, executors=["torch"], passes=[dovetail.extend.advanced.watch(before=before, after=after)])
    compiled(torch.tensor([1.0]))
    assert seen == [("before", "add", [1.0]), ("after", "add", [2.0]), ("before", "mul", [2.0]), ("after", "mul", [4.0])]


def test_check_accepts_what_tracing_makes():
    assert check(dovetail.make_trace(torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.GELU()))(torch.ones(2, 3)))


def test_check_names_the_pass_and_the_line_of_a_value_read_before_it_is_made():
    trace = programs.record(lambda x: prims.sin(prims.cos(x)), programs.SPEC)
    trace.lines.reverse()
    trace.made_by = "shuffle"
    with pytest.raises(InvalidTrace, match=r"the trace of shuffle is invalid: t1 is read by prims.sin before it is computed"):
        check(trace)


def test_check_finds_a_result_that_its_meta_denies():
    trace = programs.record(prims.sin, programs.SPEC)
    trace.lines[0].out.spec = TensorSpec((7,), dtypes.float32)
    with pytest.raises(InvalidTrace, match=r"its meta says"):
        check(trace)


def test_check_finds_a_result_that_nothing_makes():
    trace = programs.record(prims.sin, programs.SPEC)
    trace.outputs = Trace().tensor(programs.SPEC)
    with pytest.raises(InvalidTrace, match="is returned but never computed"):
        check(trace)


def chain(length: int) -> Trace:
    trace = Trace()
    trace.inputs = [x] = [trace.tensor(programs.SPEC)]
    with recording(trace):
        for _ in range(length):
            x = prims.sin(x)
        trace.outputs = x
    return trace


def calls_made(step, trace: Trace) -> int:
    """How many functions, ours and built-in, `step` calls: a measure of work that no other process disturbs."""
    count = 0

    def profile(frame, event, arg):
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        step(trace)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("step", [str, check, dce, cse, release], ids=lambda step: step.__name__)
def test_ten_thousand_lines_are_ten_times_the_work_of_a_thousand(step):
    assert calls_made(step, chain(10_000)) < 10.5 * calls_made(step, chain(1_000))


def test_a_result_is_merged_with_an_equal_line_that_does_not_leave():
    trace = cse(programs.record(lambda x: (prims.cos(prims.sin(x)), prims.sin(x)), programs.SPEC))
    assert names(trace) == ["sin", "cos"]
    check(trace)

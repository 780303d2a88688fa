"""What prints is what runs, and reads back as the same trace."""

from __future__ import annotations

import math
import re
import traceback

import dill
import programs
import pytest
import torch

import dovetail
from dovetail import dtypes, prims
from dovetail.trace.printing import literal


def softmax_of_twice(x):
    return torch.nn.functional.softmax(x * 2, -1)


def mixed(x, y):
    a = torch.cat([x, y], dim=0).t()
    values, where = torch.topk(a, 2, dim=1)
    return {"values": values, "both": (where, a[1:, None])}


def test_the_printed_form_shows_types_and_decompositions():
    text = str(dovetail.make_trace(softmax_of_twice)(torch.ones(8, 64, dtype=torch.bfloat16)))
    lines = text.splitlines()
    assert any(row.startswith('    t1 = torch.mul(t0, 2)  # t1: "cpu bf16[8, 64]"') for row in lines)
    assert any("torch.nn.functional.softmax(t1, -1)" in row and '"cpu bf16[8, 64]"' in row for row in lines)
    assert any(row.strip().startswith("# ") and "prims.exp(" in row for row in lines)
    assert "prims." not in dovetail.make_trace(softmax_of_twice)(torch.ones(2, 3)).python(depth=0)


def run(trace):
    """The function that the trace's text defines."""
    scope: dict = {}
    exec(str(trace), scope)
    return scope[trace.name]


@pytest.mark.parametrize(
    ("fn", "inputs"), [(softmax_of_twice, (torch.randn(4, 5),)), (mixed, (torch.randn(2, 3), torch.randn(2, 3)))], ids=["softmax", "mixed"]
)
def test_scenario_13_the_first_and_last_traces_execute_to_the_same_result(fn, inputs):
    compiled = dovetail.jit(fn, executors=["torch"])  # regions of others run in the process that fused them alone
    want = compiled(*inputs)
    traces = dovetail.last_traces(compiled)
    torch.testing.assert_close(run(traces[0])(*inputs), want)
    result = run(traces[-1])(*inputs)
    for epilogue in dovetail.last_epilogue_traces(compiled)[-1:]:
        result = run(epilogue)(*inputs, *result)
    torch.testing.assert_close(result, want)
    assert traces[0].made_by == "tracing" and all(trace.took > 0 for trace in traces)


def test_scenario_14_traces_show_the_users_lines_and_prologues_print():
    compiled = dovetail.jit(softmax_of_twice)
    compiled(torch.ones(2, 3))
    shown = dovetail.last_traces(compiled)[0].python(where=True)
    assert f"{__file__}:{softmax_of_twice.__code__.co_firstlineno + 1}" in shown
    prologue = str(dovetail.last_prologue_traces(compiled)[0])
    assert "t0.shape == (2, 3)" in prologue and "def prologue(args, kwargs):" in prologue


def test_reading_the_text_gives_the_same_trace():
    def program(x, y):
        a = prims.sin(prims.add(x, y))
        return {"a": a, "b": [prims.sum(a, dims=(0,)), prims.transpose(a, order=(1, 0))]}

    trace = programs.record(program, programs.SPEC, programs.SPEC)
    again = programs.read(str(trace), programs.SPEC, programs.SPEC)
    assert str(again) == str(trace)


def test_scenario_15_a_saved_trace_is_edited_and_run(tmp_path, new_process):
    x = torch.randn(3, 4)
    trace = dovetail.make_trace(lambda x: torch.relu(x) + 1)(x)
    path = tmp_path / "program.py"
    trace.save(path)
    text, edits = re.subn(r"torch.add\((t\d+), 1\)", r"torch.add(\1, 5)", path.read_text())
    assert edits == 1
    path.write_text(text)
    code = "import sys, torch; sys.path.insert(0, sys.argv[1]); import program; print(program.computation(torch.tensor([-1.0, 2.0])).tolist())"
    done = new_process(["-c", code, str(tmp_path)])
    assert done.stdout.strip() == "[5.0, 7.0]"


def test_a_saved_trace_keeps_its_constants(tmp_path, new_process):
    weight = torch.tensor([1.0, 2.0])
    dovetail.make_trace(lambda x: x * weight)(torch.ones(2)).save(tmp_path / "scaled.py")
    code = "import sys, torch; sys.path.insert(0, sys.argv[1]); import scaled; print(scaled.computation(torch.ones(2)).tolist())"
    done = new_process(["-c", code, str(tmp_path)])
    assert done.stdout.strip() == "[1.0, 2.0]"


def test_an_executed_trace_saves_and_runs(tmp_path, new_process):
    compiled = dovetail.jit(lambda x: (x * 2).sum(0))
    want = compiled(torch.ones(3, 2))
    dovetail.last_traces(compiled)[-1].save(tmp_path / "executed.py")
    code = "import sys, torch; sys.path.insert(0, sys.argv[1]); import executed; print(executed.computation(torch.ones(3, 2)).tolist())"
    done = new_process(["-c", code, str(tmp_path)])
    assert done.stdout.strip() == str(want.tolist())


def test_scenario_16_traces_pickle_and_come_back_the_same():
    compiled = dovetail.jit(mixed)
    compiled(torch.ones(2, 3), torch.ones(2, 3))
    for trace in dovetail.last_traces(compiled):
        assert str(dill.loads(dill.dumps(trace))) == str(trace)


def test_tracebacks_show_the_programs_lines():
    def explode(line, args, kwargs):
        raise ZeroDivisionError

    compiled = dovetail.jit(softmax_of_twice, executors=["torch"], passes=[dovetail.extend.advanced.watch(before=explode)])
    with pytest.raises(ZeroDivisionError) as raised:
        compiled(torch.ones(2, 3))
    assert any("torch_exec.mul" in (frame.line or "") for frame in traceback.extract_tb(raised.value.__traceback__))


@pytest.mark.parametrize(
    "value", [1, True, None, "a\n'", 0.1, -0.0, math.inf, -math.inf, 1 + 2j, (1,), [1.5, (2, "x")], {"a": (1, None)}, slice(1, None, 2), ...]
)
def test_literals_read_back(value):
    assert repr(eval(literal(value))) == repr(value)


def test_literals_of_dtypes_and_nan_read_back():
    assert eval(literal(dtypes.bfloat16), {"dtypes": dtypes}) is dtypes.bfloat16
    assert math.isnan(eval(literal(math.nan)))
    assert eval(literal((torch.float16, torch.device("cpu"), torch.channels_last)), {"torch": torch}) == (
        torch.float16,
        torch.device("cpu"),
        torch.channels_last,
    )

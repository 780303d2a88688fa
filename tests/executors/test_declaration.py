"""What an executor declares: operations, element types, kinds of device, gradients, and whether this machine can run it."""

from __future__ import annotations

import json

import pytest
import torch

import dovetail
from dovetail import dtypes, prims
from dovetail.extend import FusionExecutor, OperatorExecutor, Tag, Trace, make_prim
from dovetail.extend.advanced import Executor, ExecutorError, Symbol, get_executor, recording, symbol_for, to_callable


def verdicts(ex, fn, *args):
    """What `ex` says to each line of `fn`."""
    return [ex.verdict(line) for line in dovetail.make_trace(fn)(*args).lines]


def doubling(**declared):
    ex = OperatorExecutor("doubling", **declared)
    ex.implements(torch.mul, torch.mul)
    return ex


def test_all_is_taken_that_nothing_is_declared_of():
    assert verdicts(doubling(), lambda x: x * 2, torch.ones(2, dtype=torch.float64)) == [True]


@pytest.mark.parametrize("name", [torch.float64, dtypes.float64, "float64", "f64"])
def test_element_types_are_named_as_torch_or_dovetail_names_them(name):
    ex = doubling(dtypes=[name])

    assert ex.dtypes == {dtypes.float64}
    assert verdicts(ex, lambda x: x * 2, torch.ones(2, dtype=torch.float64)) == [True]


def test_another_element_type_is_a_refusal_that_names_the_tensor():
    ex = doubling(dtypes=[torch.float32, torch.float16])

    assert verdicts(ex, lambda x: x * 2, torch.ones(2, dtype=torch.float64)) == ['expected tensors of f16 or f32, got t0: "cpu f64[2]"']


def test_another_device_is_a_refusal_that_names_the_tensor():
    ex = doubling(devices=["cuda", "xpu"])

    assert verdicts(ex, lambda x: x * 2, torch.ones(2)) == ['expected tensors on cuda or xpu, got t0: "cpu f32[2]"']


def test_an_operation_that_reads_no_tensor_is_judged_by_what_it_makes():
    ex = OperatorExecutor("making", dtypes=[torch.float32])
    ex.implements("torch.zeros", torch.zeros)

    assert verdicts(ex, lambda: torch.zeros(2, dtype=torch.int64)) == ['expected tensors of f32, got t0: "cpu i64[2]"']


def test_an_operation_that_reads_no_tensor_is_offered_in_a_trace_without_a_front_end():
    ex = OperatorExecutor("making", dtypes=[torch.float32])
    ex.implements("torch.arange", torch.arange)
    trace = Trace()
    with recording(trace):
        symbol_for("torch.arange")(0.5, 3)  # on the default device, in the default dtype

    assert [ex.verdict(line) for line in trace.lines] == [True]


def test_an_executor_without_gradients_refuses_where_one_flows():
    ex = doubling(grad=False)
    x = torch.ones(2, requires_grad=True)
    jitted = dovetail.jit(lambda x: x * 2, executors=[ex])

    (message,) = verdicts(ex, lambda x: x * 2, x)
    assert message.startswith("is for programs without gradients, and t1: ") and message.endswith("requires one")
    jitted(x).sum().backward()
    assert x.grad.tolist() == [2, 2] and "doubling_exec" not in str(dovetail.last_traces(jitted)[-1])
    with torch.no_grad():
        jitted(x)
    assert "doubling_exec.mul" in str(dovetail.last_traces(jitted)[-1])


def test_an_operation_declares_for_itself():
    ex = OperatorExecutor("mixed", dtypes=[torch.float32], devices=["cuda"], grad=False)
    ex.implements(torch.sin, torch.sin)
    ex.implements(torch.cos, torch.cos, dtypes=[torch.float64], devices=["cpu"], grad=True)
    x = torch.ones(2, dtype=torch.float64, requires_grad=True)

    assert [message is True for message in verdicts(ex, lambda x: (torch.sin(x), torch.cos(x)), x)] == [False, True]


def test_the_declaration_is_asked_before_the_checker():
    asked = []
    ex = OperatorExecutor("strict", dtypes=[torch.float32])
    ex.implements(torch.sin, torch.sin, checker=lambda input: asked.append(input) or True)

    verdicts(ex, torch.sin, torch.ones(2, dtype=torch.float64))
    assert not asked
    assert verdicts(ex, torch.sin, torch.ones(2)) == [True] and len(asked) == 1


@pytest.mark.parametrize(
    ("message", "verdict"), [(True, True), (False, "gave no reason"), (None, "gave no reason"), ("", "gave no reason"), ("no", "no")]
)
def test_what_a_checker_returns_is_true_or_a_sentence(message, verdict):
    ex = OperatorExecutor("saying")
    ex.implements(torch.sin, torch.sin, checker=lambda input: message)

    assert verdicts(ex, torch.sin, torch.ones(2)) == [verdict]


@pytest.mark.parametrize(
    ("declared", "sentence"),
    [
        ({"dtypes": ["float33"]}, "dtypes= names 'float33', which is not a known dtype; name one as torch does"),
        ({"dtypes": torch.float32}, r"dtypes= is a collection of element types, got torch.float32 alone; write dtypes=\[...\]"),
        ({"devices": ["cuda:0"]}, "devices= names 'cuda:0', which is not a kind of device; name one without its number"),
        ({"devices": ["gpu"]}, "devices= names 'gpu', which is not a kind of device that torch knows; 'cpu' and 'cuda' are"),
        ({"devices": "cuda"}, r"devices= is a collection of kinds of device, got 'cuda' alone; write devices=\['cuda'\]"),
    ],
)
def test_a_declaration_that_means_nothing_is_an_error(declared, sentence):
    with pytest.raises(ExecutorError, match=sentence):
        OperatorExecutor("wrong", **declared)


def test_an_operation_is_implemented_in_one_way():
    with pytest.raises(ExecutorError, match=r"torch.sin in one way: with a function, an execution_transform, or a stateful class"):
        OperatorExecutor("wrong").implements(torch.sin)
    with pytest.raises(ExecutorError, match="in one way"):
        OperatorExecutor("wrong").implements(torch.sin, torch.sin, stateful=object)


def test_the_declaration_is_plain_data():
    ex = OperatorExecutor("plain", version="1.2", dtypes=[torch.float32, torch.float16], devices=["cpu"])
    ex.implements(torch.sin, torch.sin, checker=lambda input: True, path="torch.sin")
    ex.implements(prims.exp, torch.exp, grad=False, dtypes=[torch.float64])
    ex.implements_family(lambda symbol: None)

    message = ex.declaration()
    assert json.loads(json.dumps(message)) == message
    assert message == {
        "name": "plain",
        "version": "1.2",
        "kind": "operator",
        "last_resort": False,
        "dtypes": ["float16", "float32"],
        "devices": ["cpu"],
        "grad": True,
        "symbolic": False,
        "family": True,
        "operations": {
            "prims.exp": {
                **{"name": "exp", "dtypes": ["float64"], "devices": ["cpu"], "grad": False, "path": None},
                **{"checker": False, "execution_transform": False, "grad_rule": False, "stateful": False},
            },
            "torch.sin": {
                **{"name": "sin", "dtypes": ["float16", "float32"], "devices": ["cpu"], "grad": True, "path": "torch.sin"},
                **{"checker": True, "execution_transform": False, "grad_rule": False, "stateful": False},
            },
        },
    }


def test_what_the_family_was_asked_for_is_no_part_of_the_declaration():
    ex = OperatorExecutor("family")
    ex.implements_family(lambda symbol: (torch.sin, "torch.sin") if symbol.id == "torch.sin" else None)
    before = ex.declaration()

    assert verdicts(ex, torch.sin, torch.ones(2)) == [True]
    assert ex.declaration() == before and before["operations"] == {}


class Elementwise(FusionExecutor):
    """Runs a region with the reference executor."""

    def fuse(self, region):
        return to_callable(dovetail.executors.dispatch(region, dovetail.executors.Priority([get_executor("torch")])))


def test_a_fusion_executor_declares_its_operations():
    ex = Elementwise("pointwise", operations=["prims.sin", prims.mul], dtypes=[torch.float32])
    jitted = dovetail.jit(lambda x: torch.exp(torch.sin(x) * 2), executors=[ex])
    x = torch.ones(3)

    torch.testing.assert_close(jitted(x), torch.exp(torch.sin(x) * 2))
    assert [line.implementation.executor for line in dovetail.last_traces(jitted)[-1].lines if line.implementation] == ["pointwise", "torch"]
    assert "pointwise refuses: does not fuse prims.exp" in str(dovetail.explain(jitted))
    jitted(x.double())
    assert 'expected tensors of f32, got t0: "cpu f64[3]"' in str(dovetail.explain(jitted))
    message = ex.declaration()
    assert json.loads(json.dumps(message)) == message
    assert message["kind"] == "fusion" and set(message["operations"]) == {"prims.sin", "prims.mul"}


def test_a_fusion_executor_that_declares_nothing_decides_line_by_line():
    class ByTag(Elementwise):
        def can_fuse(self, line):
            return Tag.ELEMENTWISE in line.symbol.tags

    assert ByTag("tagged").declaration()["operations"] is None
    with pytest.raises(NotImplementedError, match=r"executor bare declares no operations=, so it has to define can_fuse\(line\)"):
        verdicts(FusionExecutor("bare"), prims.sin, torch.ones(2))


def test_symbols_have_their_names_where_a_library_replaces_functions_of_torch(monkeypatch):
    select = symbol_for("torch.select")
    monkeypatch.setattr(torch, "select", lambda *args: args[0])
    assert select is not None and symbol_for("torch.select") is select and symbol_for("torch.no_such") is None


def test_an_operation_is_named_by_a_symbol_its_id_or_a_torch_function():
    twice = make_prim("declared.twice", "twice", meta=lambda x: x.fresh(), replace=True)
    ex = OperatorExecutor("naming")
    for operation in (twice, "prims.sin", torch.cos, "torch.nn.functional.gelu"):
        ex.implements(operation, print)

    assert set(ex.declaration()["operations"]) == {"declared.twice", "prims.sin", "torch.cos", "torch.nn.functional.gelu"}
    assert symbol_for("declared.twice") is twice and symbol_for("declared.thrice") is None and symbol_for("prims.sin") is prims.sin


def test_available_is_true_or_a_sentence():
    assert Executor("any").available() is True
    assert OperatorExecutor("far", available=lambda: "needs a CUDA device").available() == "needs a CUDA device"


def test_every_public_name_is_documented():
    tiers = vars(dovetail.extend) | vars(dovetail.extend.advanced)
    named = {name: value for name, value in tiers.items() if not name.startswith("_") and name != "Verdict"}  # an alias has none

    assert len(named) > 50
    assert not [name for name, value in named.items() if not (value.doc if isinstance(value, Symbol) else value.__doc__)]


def test_the_methods_of_executors_are_documented():
    for kind in (Executor, OperatorExecutor, FusionExecutor):
        assert not [name for name, value in vars(kind).items() if callable(value) and not name.startswith("_") and not value.__doc__]

"""Who runs what: priority, refusals, decomposition, rewriting, and regions."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import dovetail
from dovetail import prims
from dovetail.errors import ExecutorError
from dovetail.executors import Priority, dispatch, resolve_executors
from dovetail.executors.ordering.resolve_order import add_operator_executor
from dovetail.extend import FusionExecutor, OperatorExecutor, Tag, make_prim
from dovetail.extend.advanced import get_executor, to_callable
from dovetail.trace import check, cse, dce, functionalize

F = torch.nn.functional
SOFTMAX = ("exp", "sub", "div", "amax", "sum", "broadcast_in_dim", "detach")  # what softmax decomposes to


class Elementwise(FusionExecutor):
    """Fuses elementwise prims and runs a region with the torch executor's own implementations."""

    def __init__(self, name="elementwise", symbols=None):
        super().__init__(name)
        self.symbols, self.regions = symbols, []

    def can_fuse(self, line):
        known = Tag.ELEMENTWISE in line.symbol.tags if self.symbols is None else line.symbol.name in self.symbols
        return known or f"fuses no {line.symbol.name}"

    def fuse(self, region):
        self.regions.append(region)
        return to_callable(dispatch(region, Priority([get_executor("torch")])))


def executed(fn, *args, executors=None):
    jitted = dovetail.jit(fn, executors=executors)
    result = jitted(*args)
    return result, dovetail.last_traces(jitted)[-1], jitted


def runs(trace):
    return [(line.symbol.name, line.implementation.executor) for line in trace.lines if line.implementation]


def test_scenario_38_the_first_executor_that_takes_an_operation_runs_it():
    called = []
    first, second = OperatorExecutor("first"), OperatorExecutor("second")
    for ex in (first, second):
        ex.implements(torch.sin, lambda input, name=ex.name: called.append(name) or torch.sin(input))
    x = torch.randn(3)
    for order, name in ((("first", "second"), "first"), (("second", "first"), "second")):
        result, trace, _ = executed(lambda x: torch.sin(x) + 1, x, executors=[{"first": first, "second": second}[n] for n in order])
        torch.testing.assert_close(result, torch.sin(x) + 1)
        assert called.pop() == name and not called
        assert runs(trace) == [("sin", name), ("add", "torch")]
        assert f"{name}_exec.sin(t0)" in str(trace)


def test_scenario_39_a_refusal_is_a_sentence_and_is_explained():
    picky = OperatorExecutor("picky")
    picky.implements(
        F.softmax, F.softmax, checker=lambda input, dim=None, **_: input.spec.shape[-1] < 8 or f"expected rows under 8, got {input.spec.shape[-1]}"
    )
    picky.implements(torch.exp, torch.exp, checker=lambda input: False)
    _, trace, jitted = executed(lambda x: torch.exp(F.softmax(x, -1)), torch.ones(2, 9), executors=[picky])
    assert {ex for _, ex in runs(trace)} == {"torch"}
    message = str(dovetail.explain(jitted))
    assert "torch.nn.functional.softmax: picky -> torch" in message and "picky refuses: expected rows under 8, got 9" in message
    assert "picky refuses: gave no reason" in message and "torch runs 2" in message


def test_a_line_that_nobody_takes_is_replaced_by_its_decomposition():
    own = OperatorExecutor("own")
    for name in SOFTMAX:
        own.implements(getattr(prims, name), get_executor("torch").implementation(getattr(prims, name)).fn)
    acquired = dovetail.make_trace(lambda x: F.softmax(x, -1))(torch.ones(2, 3))
    trace = dispatch(dce(functionalize(acquired)[0]), Priority([own]))
    assert {name for name, _ in runs(trace)} == set(SOFTMAX)
    check(trace)


def test_scenario_36_an_operation_that_nobody_runs_is_an_error_with_every_refusal():
    acquired = dovetail.make_trace(torch.sin)(torch.ones(2, 3))
    picky = OperatorExecutor("picky")
    picky.implements(prims.sin, torch.sin, checker=lambda x: "expected a full moon")
    with pytest.raises(dovetail.errors.Unclaimed, match=r'no executor runs prims.sin\(t0: "cpu f32\[2, 3\]"\)') as raised:
        dispatch(acquired, Priority([picky, OperatorExecutor("empty")]))
    assert "picky: expected a full moon" in str(raised.value) and "empty: does not implement prims.sin" in str(raised.value)


def test_an_execution_transform_rewrites_the_call_into_the_executors_own_symbols():
    twice = make_prim("test_dispatch.twice", "twice", meta=lambda x: x.fresh(), replace=True)
    own = OperatorExecutor("own")
    own.implements(twice, lambda x: x + x)
    own.implements(torch.mul, None, checker=lambda input, other: other == 2, execution_transform=lambda input, other: twice(input))
    result, trace, _ = executed(lambda x: (x * 2, x * 3), torch.ones(2), executors=[own])
    assert [r.tolist() for r in result] == [[2, 2], [3, 3]]
    assert runs(trace) == [("twice", "own"), ("mul", "torch")]
    check(trace)


def test_seed_002_add_operator_executor_with_the_operations_own_signature():
    calls = []

    def fast_xentropy(input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean", label_smoothing=0.0):
        calls.append((type(input), reduction))
        return F.cross_entropy(input, target, reduction=reduction)

    def fast_xentropy_checker(input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean", label_smoothing=0.0):
        return reduction in ("sum", "mean") and input.spec.rank == 2

    add_operator_executor(
        "seed_xentropy", {"torch.nn.functional.cross_entropy": ("fast_xentropy", fast_xentropy_checker, fast_xentropy)}, replace=True
    )
    try:
        logits, target = torch.randn(4, 5), torch.tensor([1, 0, 3, 2])
        result, trace, _ = executed(lambda x, y: F.cross_entropy(x, y, reduction="sum"), logits, target)
        torch.testing.assert_close(result, F.cross_entropy(logits, target, reduction="sum"))
        assert calls == [(torch.Tensor, "sum")] and "seed_xentropy_exec.fast_xentropy(t0, t1" in str(trace)
        _, trace, _ = executed(lambda x, y: F.cross_entropy(x, y, reduction="none"), logits, target, executors=["seed_xentropy", "torch"])
        assert len(calls) == 1 and runs(trace) == [("cross_entropy", "torch")]
    finally:
        dovetail.executors.discovery.registry.REGISTRY.executors.pop("seed_xentropy")
        dovetail.executors.discovery.registry.REGISTRY.defaults.remove("seed_xentropy")


def test_a_name_can_be_taken_once():
    with pytest.raises(dovetail.DovetailError, match="an executor called torch exists already"):
        add_operator_executor("torch", {})
    with pytest.raises(dovetail.DovetailError, match="is not an operation"):
        OperatorExecutor("own").implements("torch.nn.functional.no_such_thing", print)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda ex: ex.implements("torch.snn", print), "own implements 'torch.snn', which is not an operation; did you mean .*torch.sin"),
        (lambda ex: ex.implements("torch.sin", 3), "own implements torch.sin with fn=3, which cannot be called"),
        (lambda ex: ex.implements("torch.sin", print, checker="no"), "with checker='no', which cannot be called"),
        (lambda ex: ex.implements("torch.sin", print, name="my sine"), "expected an identifier for torch.sin, got name='my sine'"),
        (lambda ex: ex.operation("my sine", print, meta=print), "expected an identifier, got 'my sine'"),
        (lambda ex: ex.implements("torch.sin", print, name="lambda"), "expected an identifier for torch.sin, got name='lambda'"),
        (lambda ex: ex.operation("class", print, meta=print), "expected an identifier, got 'class'"),
        (lambda ex: add_operator_executor("own", [("torch.sin", print)]), "expected a dict of torch operation: "),
        (lambda ex: add_operator_executor("own", {"torch.sin": print}), "the row of 'torch.sin' is <built-in function print>; expected"),
        (lambda ex: add_operator_executor("own", {"torch.sin": (print, None, print)}), "expected .the name that programs print, checker or None"),
    ],
)
def test_a_definition_that_cannot_work_is_refused_at_once(call, message):
    with pytest.raises(dovetail.DovetailError, match=message):
        call(OperatorExecutor("own"))


def test_a_family_returns_a_function_and_a_path():
    own = OperatorExecutor("own")
    own.implements_family(lambda symbol: torch.sin)

    with pytest.raises(dovetail.DovetailError, match=r"the family of own returned .* for torch.sin; return .function, path."):
        own.implementation(dovetail.prims.SYMBOLS["torch.sin"])


CELL = """
ex = OperatorExecutor("cell")
twice = ex.operation("twice", lambda x: {}, meta=lambda x: x)
add_operator_executor("cells", {{"torch.sin": ("sine", None, lambda x: {})}}, add_to_default_executors=False)
"""


def test_a_cell_of_a_notebook_that_runs_again_replaces_what_it_defined():
    names = {"OperatorExecutor": OperatorExecutor, "add_operator_executor": add_operator_executor}
    try:
        for count, (own, table) in enumerate((("x * 2", "x + 1"), ("x * 3", "x + 2"))):
            exec(compile(CELL.format(own, table), f"<cell {count}>", "exec"), names)
        x = torch.ones(2)

        assert dovetail.jit(names["twice"], executors=[names["ex"]])(x).tolist() == [3.0, 3.0]
        assert dovetail.jit(lambda x: torch.sin(x), executors=["cells"])(x).tolist() == [3.0, 3.0]
    finally:
        dovetail.executors.discovery.registry.REGISTRY.executors.pop("cells", None)
        dovetail.prims.SYMBOLS.pop("cell.twice", None)


def test_a_cell_replaces_nothing_that_a_file_defined():
    names = {"OperatorExecutor": OperatorExecutor, "add_operator_executor": add_operator_executor}
    own = OperatorExecutor("cell")
    own.operation("twice", lambda x: x, meta=lambda x: x)
    try:
        with pytest.raises(dovetail.DovetailError, match=r"cell\.twice is already registered"):
            exec(compile(CELL.format("x * 2", "x + 1"), "<cell 0>", "exec"), names)
        dovetail.prims.SYMBOLS.pop("cell.twice")
        add_operator_executor("cells", {"torch.sin": ("sine", None, torch.cos)}, add_to_default_executors=False)
        with pytest.raises(dovetail.DovetailError, match="an executor called cells exists already"):
            exec(compile(CELL.format("x * 2", "x + 1"), "<cell 1>", "exec"), names)
    finally:
        dovetail.executors.discovery.registry.REGISTRY.executors.pop("cells", None)
        dovetail.prims.SYMBOLS.pop("cell.twice", None)


def test_a_second_definition_in_a_file_is_an_error():
    own = OperatorExecutor("filed")
    own.operation("twice", lambda x: x, meta=lambda x: x)
    try:
        with pytest.raises(dovetail.DovetailError, match=r"filed\.twice is already registered"):
            own.operation("twice", lambda x: x, meta=lambda x: x)
    finally:
        dovetail.prims.SYMBOLS.pop("filed.twice")


def test_the_executor_of_last_resort_stands_behind_all_others():
    own = OperatorExecutor("own")
    assert [ex.name for ex in resolve_executors([own])] == ["own", "torch"]
    assert resolve_executors()[-1].name == "torch"


def test_the_torch_plugin_is_found_through_its_entry_point():
    row = next(plugin for plugin in dovetail.extend.advanced.plugins() if plugin.name == "torch")
    assert (row.distribution, row.status, row.executors) == ("dovetail-torch-exec", "ready", ("torch",))


def test_a_region_is_one_line_whose_subsymbols_it_holds():
    ex = Elementwise()
    x, y = torch.randn(3, 4), torch.randn(3, 4)

    def fn(x, y):
        a = torch.sin(x) * y + 1
        b = a @ y.t()
        return torch.exp(b) - 2, torch.tanh(a)

    result, trace, _ = executed(fn, x, y, executors=[ex])
    torch.testing.assert_close(result, fn(x, y))
    fused = [line for line in trace.lines if line.implementation and line.implementation.executor == "elementwise"]
    assert [[inner.symbol.name for inner in line.body] for line in fused] in (
        [["sin", "mul", "add", "tanh"], ["exp", "sub"]],
        [["sin", "mul", "add"], ["exp", "sub"], ["tanh"]],
    )
    assert len(ex.regions) == len(fused)
    check(trace)


def test_a_composite_is_fused_whole_when_all_of_it_can_be():
    ex = Elementwise(symbols=SOFTMAX)
    _, trace, _ = executed(lambda x: F.softmax(x, -1), torch.randn(2, 3), executors=[ex])
    assert [ex for _, ex in runs(trace)] == ["elementwise"]
    _, trace, jitted = executed(lambda x: F.softmax(x, -1), torch.randn(2, 3).bfloat16(), executors=[ex])
    assert [ex for _, ex in runs(trace)] == ["torch"] and "fuses no convert_element_type" in str(dovetail.explain(jitted))


def test_a_trace_with_regions_is_saved_line_by_line(tmp_path):
    x = torch.randn(3)
    want, trace, _ = executed(lambda x: torch.sin(x) * 2 + 1, x, executors=[Elementwise()])
    trace.save(tmp_path / "program.py")
    scope: dict = {"__file__": str(tmp_path / "program.py")}
    exec((tmp_path / "program.py").read_text(), scope)
    torch.testing.assert_close(scope["computation"](x), want)


UNARY = (torch.sin, torch.neg, torch.tanh, lambda x: x @ x, lambda x: x.t(), lambda x: F.softmax(x, -1), lambda x: torch.cumsum(x, 0))
BINARY = (torch.add, torch.mul, torch.maximum, torch.matmul)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(UNARY) + len(BINARY) - 1), st.integers(0, 99), st.integers(0, 99)), min_size=1, max_size=12), st.data())
def test_any_program_split_among_executors_is_still_that_program(steps, data):
    def fn(x):
        made = [x]
        for which, i, j in steps:
            a, b = made[i % len(made)], made[j % len(made)]
            made.append(UNARY[which](a) if which < len(UNARY) else BINARY[which - len(UNARY)](a, b))
        return made[-1], made[len(made) // 2]

    wanted = data.draw(st.sets(st.sampled_from(("sin", "neg", "tanh", "add", "mul", "maximum", "transpose"))))
    executors = Priority([Elementwise("one", wanted), Elementwise("two"), get_executor("torch")])
    x = torch.linspace(-1, 1, 9, dtype=torch.float64).view(3, 3)
    pure, epilogue = functionalize(dovetail.make_trace(fn)(x))
    trace = dispatch(cse(dce(pure)), executors)
    check(trace)
    values = to_callable(trace)(x)
    got = to_callable(dispatch(epilogue, executors))(x, *values)
    torch.testing.assert_close(got, fn(x), rtol=1e-8, atol=1e-8, equal_nan=True)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.booleans(), min_size=2, max_size=8))
def test_scenario_28_random_operations_keep_their_order_whoever_runs_what_is_between(fused):
    def fn(x):
        out = []
        for between in fused:
            x = torch.sin(x) if between else x @ x
            out.append(torch.rand(2) + x[0])
        return out

    x = torch.eye(2)
    torch.manual_seed(3)
    want = fn(x)
    compiled_fn = dovetail.jit(fn, executors=[Elementwise("one", {"sin"}), Elementwise("two", {"add"})])
    torch.manual_seed(3)
    torch.testing.assert_close(compiled_fn(x), want)


def test_who_has_no_grad_rule_leaves_the_operation_to_the_next_that_has_one():
    """The rule of the torch executor, and not the parts of the operation, differentiates what `plain` would run where no gradient is wanted."""
    plain = OperatorExecutor("plain")
    plain.implements("torch.nn.functional.layer_norm", torch.nn.functional.layer_norm)
    norm = dovetail.jit(lambda x: torch.nn.functional.layer_norm(x, (8,)), executors=[plain, "torch"])
    x = torch.randn(4, 8, requires_grad=True)

    norm(x).backward(torch.ones(4, 8).cumsum(1))

    ran = [line.symbol.name for line in dovetail.last_traces(norm)[-1].lines]
    assert "native_layer_norm" in ran and "plain" in str(dovetail.explain(norm))
    y = x.detach().requires_grad_()
    torch.nn.functional.layer_norm(y, (8,)).backward(torch.ones(4, 8).cumsum(1))
    torch.testing.assert_close(x.grad, y.grad)


@pytest.mark.parametrize("answer", [["not", "a", "verdict"], 1, ("yes",), {"reason": "no"}])
def test_a_checker_that_returns_no_verdict_is_an_error_that_names_its_plugin(answer) -> None:
    careless = OperatorExecutor("careless", version="1.2")
    careless.implements(torch.sin, torch.cos, checker=lambda input: answer)

    with pytest.raises(ExecutorError) as error:
        dovetail.jit(torch.sin, executors=[careless])(torch.ones(3))

    words = str(error.value)
    assert f"the checker of careless 1.2 (defined in this process) returned {answer!r}; return True, a Claim, or a refusal" in words
    assert "in torch.sin(" in words and "leave careless out of executors=[...]" in words

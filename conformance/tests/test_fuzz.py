"""Random programs at real sizes: the generator, the judge, what finds planted faults, and a share of programs for each executor."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from click.testing import CliRunner

from dovetail.extend import OperatorExecutor
from dovetail.extend.advanced import executors
from dovetail_conformance.fuzz.attempt import Outcome, Setup, tried
from dovetail_conformance.fuzz.campaign import Workers, campaign, job_of
from dovetail_conformance.fuzz.cli import fuzz
from dovetail_conformance.fuzz.draft import Draft, Input, Step, evaluate
from dovetail_conformance.fuzz.drawing import Drawing, Impossible, elements_of
from dovetail_conformance.fuzz.generator import draft_of
from dovetail_conformance.fuzz.hunt import crash
from dovetail_conformance.fuzz.judge import Reference, difference, run
from dovetail_conformance.fuzz.operations import step
from dovetail_conformance.fuzz.replay import replay
from dovetail_conformance.fuzz.shrink import Finding, shrunk
from dovetail_conformance.subject import Subject

SHARE = {"torch": 8, "llvm": 10}  # programs of an executor in `make test`
MORE = {"torch": 40, "llvm": 160, "onednn": 40}  # others, in `make test-all`
LARGE = 4096


def executor(name: str, operation: Callable, fn: Callable) -> OperatorExecutor:
    ex = OperatorExecutor(name)
    ex.implements(operation, fn)
    return ex


def wrong_when_large() -> OperatorExecutor:
    """Runs a few operations as eager does, but for the last element of results with more than 4,096."""
    ex = OperatorExecutor("wrong_when_large")

    def spoiled(operation):
        def fn(*args, **kwargs):
            got = operation(*args, **kwargs).contiguous()
            if got.numel() > LARGE and got.is_floating_point():
                got.view(-1)[-1] += 0.1
            return got

        return fn

    for operation in (torch.sin, torch.tanh, torch.exp, torch.add, torch.mul, torch.sub):
        ex.implements(operation, spoiled(operation))
    return ex


def draft(*steps: Step, shape: tuple[int, ...] = (100, 63), dtype: str = "float32", grad: bool = False, values: str = "normal") -> Draft:
    return Draft((Input("x0", shape, dtype, values, grad=grad),), steps, (steps[-1].result,), grad)


SINE = draft(Step("torch.sin({0})", ("x0",), "v0"))


def test_a_seed_and_a_number_are_one_program():
    first, again, other = draft_of(3, 7), draft_of(3, 7), draft_of(3, 8)

    assert first == again
    assert first != other


def test_programs_are_what_eager_runs():
    drafts = [draft_of(11, number) for number in range(40)]

    for each in drafts:
        assert Reference(each, 0).eager.results, each.source
    words = "\n".join(each.text for each in drafts)
    for word in ("sum(", ".mul_(", "torch.cat", "F.", "[x", "reshape"):
        assert word in words
    assert any(each.grad for each in drafts)
    assert {x.layout for each in drafts for x in each.inputs} > {"contiguous", "transposed", "misaligned"}


@pytest.mark.parametrize("layout", ["transposed", "misaligned", "every_second", "expanded", "padded_rows"])
def test_a_layout_keeps_shape_and_dtype(layout):
    x = Input("x0", (4, 6), "bfloat16", layout=layout).make(0)

    assert (tuple(x.shape), x.dtype) == ((4, 6), torch.bfloat16)
    assert not x.is_contiguous() or x.storage_offset() == 1


def judged(drawn: Draft, change: Callable[[torch.Tensor], torch.Tensor]) -> str | None:
    """What the judge says of eager's results after a change to the first."""
    reference = Reference(drawn, 0)
    got = run(drawn, drawn.function(), drawn.make_inputs(0), 0)
    got.results[0] = change(got.results[0])
    deviation = difference(reference, got)
    return deviation and deviation[2].message


def test_the_last_bits_of_a_result_are_free():
    assert judged(SINE, lambda x: x * (1 + 2e-7)) is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: x * (1 + 1e-5), "elements are wrong"),
        (lambda x: x.index_fill(0, torch.tensor(5), torch.nan), "nan in place of"),
        (lambda x: x.double(), r"float64\[100, 63\] in place of float32"),
        (lambda x: x[:1], r"float32\[1, 63\] in place of"),
    ],
    ids=["too far", "NaN", "dtype", "shape"],
)
def test_more_than_roundings_is_wrong(change, message):
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(judged(SINE, change))


def test_a_cancellation_may_lose_what_float32_loses():
    steps = (Step("{0} + 1000", ("x0",), "v0"), Step("{0} - 1000", ("v0",), "v1"))

    assert judged(draft(*steps), lambda x: x + 6e-5) is None
    assert judged(draft(*steps), lambda x: x + 6e-2) is not None


def test_softmax_of_a_long_row_of_float64_may_round_as_what_adds_one_by_one_does():
    drawn = draft(Step("torch.softmax({0}, -1)", ("x0",), "v0", accumulates=True), shape=(400_000,), dtype="float64")

    assert judged(drawn, lambda x: x * (1 + 6e-14)) is None
    assert judged(drawn, lambda x: x * (1 + 1e-10)) is not None


def test_gradients_of_softmax_may_round_as_those_of_the_largest_share_do():
    drawn = draft(Step("torch.softmax({0} * 30, -1)", ("x0",), "v0", accumulates=True), shape=(8,), dtype="float64", grad=True)
    reference, got = Reference(drawn, 0), run(drawn, drawn.function(), drawn.make_inputs(0), 0)
    shares, gradient = got.results[0], got.gradients[0]

    for size, right in ((1e-16, True), (1e-12, False)):
        got.gradients[0] = gradient + size * shares * 30
        assert (difference(reference, got) is None) == right


def test_integers_become_float64_beside_it():
    drawn = Draft(
        (Input("x0", (4, 5), "int16"), Input("x1", (5, 3), "float32")),
        (Step("{0} * 0.5", ("x0",), "v0"), Step("{0} @ {1}", ("v0", "x1"), "v1")),
        ("v1",),
    )

    assert Reference(drawn, 0).exact.results[0].dtype is torch.float64
    assert torch.get_default_dtype() is torch.float32


def test_programs_write_nothing_that_reads_the_same_memory():
    for number in range(150):
        drawn = draft_of(23, number)
        memory: dict[str, int] = {}

        def look(step, env, memory=memory):
            memory.update({name: x.untyped_storage().data_ptr() for name, x in env.items()})
            return {}

        evaluate(drawn, [x.detach() for x in drawn.make_inputs(0)], before=look)
        for each in drawn.steps:
            assert not each.writes or memory[each.operands[0]] not in [memory[name] for name in each.operands[1:]], drawn.source


def test_float64_may_round_as_what_adds_one_by_one_does():
    drawn = draft(Step("{0}.var([-1])", ("x0",), "v0", accumulates=True), shape=(20506,), dtype="float64")

    assert judged(drawn, lambda x: x * (1 + 4e-13)) is None
    assert judged(drawn, lambda x: x * (1 + 1e-10)) is not None


def test_a_gradient_added_up_over_what_was_written_may_round():
    inputs = (Input("x0", (16, 1024), "float32"), Input("x1", (), "float32", grad=True))
    steps = (
        *(Step("{0} * 2", ("x0",), "v0"), Step("{0}.unsqueeze(1)", ("v0",), "v1", exact=True)),
        Step("{0}.sub_({1})", ("v1", "x1"), "v2", writes=True),
    )
    drawn = Draft(inputs, steps, ("v0", "v2"), grad=True)  # the gradient of x1 adds up 32,768 cotangents

    def off_by(error: float) -> tuple | None:
        reference = Reference(drawn, seed := 14)  # with which eager happens to round little
        got = run(drawn, drawn.function(), drawn.make_inputs(seed), seed)
        got.gradients[0] = reference.exact.gradients[0].add(error).float()
        return difference(reference, got)

    assert off_by(2e-5) is None
    assert off_by(1e-2) is not None


def test_a_cast_is_no_view_in_float64():
    steps = (
        *(Step("{0} * 2", ("x0",), "v0"), Step("{0}.to(torch.bfloat16)", ("v0",), "v1"), Step("{0}.mul_(3)", ("v0",), "v2", writes=True)),
        Step("torch.asinh({0})", ("v1",), "v3"),
    )
    drawn = Draft(draft(*steps).inputs, steps, ("v3",))
    reference = Reference(drawn, 0)

    assert torch.allclose(reference.exact.results[0], reference.eager.results[0].double(), rtol=0.02)


def test_infinities_of_the_other_sign_are_wrong():
    special = draft(Step("{0} * 1", ("x0",), "v0"), values="special")

    assert judged(special, lambda x: x) is None
    assert judged(special, lambda x: torch.where(x.isinf(), -x, x)) is not None


def test_where_a_rounding_decides_nothing_is_said():
    steps = (Step("torch.sin({0})", ("x0",), "v0"), Step("{0} > 0.5", ("v0",), "v1", exact=True, kinks=("{0} - 0.5",)))
    close = draft(*steps, shape=(100_000,))  # some sine is as near to 0.5 as its rounding

    assert judged(close, lambda x: x ^ (torch.arange(len(x)) == 7)) is None
    assert judged(draft(*steps, shape=(7,)), lambda x: ~x) is not None


def hunt(ex: OperatorExecutor, drawn: Draft) -> Outcome:
    return tried(drawn, Setup((ex,)), 0)


def test_a_fault_above_a_size_is_found_and_shrunk():
    ex = wrong_when_large()
    steps = (Step("{0} / 2", ("x0",), "v0"), Step("torch.sin({0})", ("v0",), "v1"), Step("{0}.sum([0, 1])", ("v1",), "v2", accumulates=True))
    drawn = draft(*steps)
    outcome = hunt(ex, drawn)
    small = shrunk(drawn, Setup((ex,)), 0, outcome.fault, attempts=200)

    assert outcome.state == "wrong"
    assert [step.text for step in small.draft.steps] == ["{0} * 2"]
    assert LARGE < torch.Size(small.draft.inputs[0].shape).numel() <= 5000
    assert small.setup.threads == 1


@pytest.mark.slow
def test_a_campaign_finds_a_fault_above_a_size():
    done = campaign(job_of([wrong_when_large()], seed=4, shrinking=0), programs=60, fail_fast=True)

    assert len(done.findings) == 1
    assert "elements are wrong" in done.findings[0]["message"]
    assert not done.passed


def test_a_stale_result_is_found():
    kept: list[torch.Tensor] = []

    def sin(x):
        kept.append(torch.sin(x))
        return kept[0].clone()

    outcome = hunt(executor("stale", torch.sin, sin), SINE)

    assert (outcome.state, outcome.fault.call) == ("wrong", 1)


def test_a_result_that_is_wrong_at_times_is_found():
    calls = iter(range(100))
    outcome = hunt(executor("racing", torch.sin, lambda x: torch.sin(x) + (next(calls) == 3)), SINE)

    assert (outcome.state, outcome.fault.call) == ("wrong", 3)  # the third data again


def test_a_wrong_gradient_is_found():
    class Sine(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return torch.sin(x)

        @staticmethod
        def backward(ctx, g):
            return g

    drawn = draft(Step("torch.sin({0})", ("x0",), "v0"), grad=True)
    reference, inputs = Reference(drawn, 0), drawn.make_inputs(0)

    deviation = difference(reference, run(drawn, lambda x: [Sine.apply(x)], inputs, 0))

    assert deviation is not None and deviation[0] == "gradient"


def test_an_error_that_eager_does_not_raise_is_found():
    def sin(x):
        raise RuntimeError("no such kernel")

    outcome = hunt(executor("raising", torch.sin, sin), SINE)

    assert outcome.fault.kind == "error"
    assert "no such kernel" in outcome.fault.message


@pytest.mark.slow  # two processes
def test_a_script_ends_with_1_while_it_is_wrong(tmp_path):
    outcome = hunt(wrong_when_large(), SINE)
    script = replay(Finding(SINE, Setup(("torch",)), 0, outcome.fault), "title")
    wrong = script.replace("compiled = dovetail.jit(program", "compiled = dovetail.jit(lambda x: [program(x)[0] + 0.1]")

    status = {}
    for name, text in (("right", script), ("wrong", wrong)):
        path = tmp_path / f"{name}.py"
        path.write_text(text)
        status[name] = subprocess.run([sys.executable, str(path)], capture_output=True, timeout=300).returncode

    assert status == {"right": 0, "wrong": 1}


@pytest.mark.trials
def test_a_script_runs_without_trials():
    ex = wrong_when_large()
    outcome = hunt(ex, SINE)
    script = replay(Finding(SINE, Setup(("torch",)), 0, outcome.fault), "title").replace("['torch']", "[ex]")

    with pytest.raises(SystemExit) as ended:
        exec(script, {"ex": ex, "__name__": "__main__"})

    assert ended.value.code == 1


@pytest.mark.slow  # several processes
def test_a_process_that_ends_is_a_finding(tmp_path):
    plugin = tmp_path / "ending.py"
    plugin.write_text(
        "import os, torch\n"
        "from dovetail.extend import OperatorExecutor\n"
        "ex = OperatorExecutor('ending')\n"
        "ex.implements(torch.add, lambda x, y, alpha=1: os._exit(7))\n"
        "ex.implements(torch.mul, lambda x, y: os._exit(7))\n"
    )
    setup = {"executors": [f"{plugin}:ex"], "seed": 1}
    job = job_of(**setup)
    workers = Workers(setup)
    try:
        done = campaign(job, programs=2, first=3, source=workers)  # the first multiplies, the second does not
    finally:
        workers.close()

    assert done.counts.programs == 2
    assert [each["kind"] for each in done.findings] == ["crash"]
    assert "ended with code 7" in done.findings[0]["message"]
    assert "def program(" in done.findings[0]["script"]


def test_a_process_that_ends_while_it_draws_is_a_finding_without_a_program():
    assert crash(None, 7, "the process crashed with SIGKILL")["program"] == ""


def test_what_would_be_too_large_takes_no_memory():
    d = Drawing(random.Random(0), "float32", False, (1, 16384))
    row, index = d.new_input(d.shape, "float32"), d.new_input(d.shape, "int64", "index 16384")
    square = step(d, "{0}[0][{1}.expand(16384, 16384)]", row, index)

    assert elements_of(square, {"x0": row.tensor, "x1": index.tensor}) == 16384**2
    assert not d.add(square)
    with pytest.raises(Impossible):
        d.new_input((16384, 16384), "float32")


def test_an_executor_that_ran_nothing_does_not_pass():
    idle = executor("idle", torch.acosh, torch.acosh)

    done = campaign(job_of([idle], seed=1), programs=2)

    assert (done.counts.programs, done.counts.ran, done.passed) == (2, 0, False)


def test_the_command_reports_and_ends_with_its_status(tmp_path):
    args = ["torch", "--programs", "3", "--seed", "2", "--in-process", "--json", str(tmp_path / "summary.json"), "--save", str(tmp_path)]
    result = CliRunner().invoke(fuzz, args)

    assert result.exit_code == 0, result.output
    assert "seed 2" in result.output
    assert "3 programs" in result.output
    assert '"findings": []' in (tmp_path / "summary.json").read_text()


def test_the_command_names_an_unknown_executor():
    result = CliRunner().invoke(fuzz, ["no_such_executor", "--programs", "1"])

    assert result.exit_code == 2
    assert "no_such_executor" in result.output


AVAILABLE = [ex.name for ex in executors() if ex.available() is True]


@pytest.mark.parametrize(
    ("name", "seed", "programs"),
    [
        *[(name, 2026, count) for name, count in SHARE.items() if name in AVAILABLE],
        *[pytest.param(name, 2027, count, marks=pytest.mark.slow) for name, count in MORE.items() if name in AVAILABLE],
    ],
)
def test_a_share_of_the_programs(name, seed, programs):
    with Subject.of(name).configured():  # onednn would measure, and leave to PyTorch what is as fast there
        done = campaign(job_of([name], seed=seed), programs=programs)

    assert done.passed, "\n\n".join(f"{each['message']}\n{each['program']}" for each in done.findings)

"""The seed of a run: every random number depends on it, and a check that fails with some seeds alone is flaky."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from pytest import fixture, mark, raises
from torch import Tensor

import dovetail
import dovetail_conformance.torch  # noqa: F401
from dovetail import devices, dtypes
from dovetail_conformance import Maker, Report, check
from dovetail_conformance.axes.gradients import cotangent
from dovetail_conformance.axes.variants import Variants
from dovetail_conformance.broken import running
from dovetail_conformance.case import cotangents
from dovetail_conformance.draws import STRIDE, generator, seeded, start
from dovetail_conformance.opinfo import OPINFOS
from dovetail_conformance.program import seed_generators, widened
from dovetail_conformance.programs import PROGRAMS
from dovetail_conformance.report import Row
from dovetail_conformance.seeds import SharedPrograms, merged

SIN, CPU = ["torch.sin"], ["cpu"]


def after_seeding() -> Tensor:
    seed_generators(20)
    return torch.rand(3)


def sampled() -> list[Tensor]:
    info = next(info for info in OPINFOS if info.symbol.id == "torch.mul")
    return [x for sample in info.samples(dtypes.float32, devices.cpu) for x in sample.args if isinstance(x, Tensor)]


DRAWS: dict[str, Callable[[], Any]] = {
    "numbers of a sample": lambda: Maker(dtypes.float32, devices.cpu)(5),
    "complex numbers": lambda: Maker(dtypes.complex64, devices.cpu)(5),
    "integers": lambda: Maker(dtypes.int64, devices.cpu)(30),
    "positions": lambda: Maker(dtypes.float32, devices.cpu).distinct(40, 20),
    "samples of an operation": sampled,
    "a cotangent": lambda: cotangents([torch.zeros(4, requires_grad=True)]),
    "a cotangent of a variant": lambda: cotangent(torch.zeros(4), "dense"),
    "roundings": lambda: widened([torch.ones(4)], 3),
    "inputs of a program": PROGRAMS[0].inputs,
    "numbers that torch draws": after_seeding,
}


@fixture(autouse=True)
def restored() -> Iterator[None]:
    state = torch.get_rng_state()
    yield
    torch.set_rng_state(state)


def bits(value: Any) -> list[Any]:
    return [x.tolist() for x in ([value] if isinstance(value, Tensor) else value)]


@mark.parametrize("draw", DRAWS.values(), ids=DRAWS.keys())
def test_every_draw_depends_on_the_seed_and_on_nothing_else(draw: Callable[[], Any]) -> None:
    plain = bits(draw())
    with seeded(0):
        zero = bits(draw())
    with seeded(5):
        five, again = bits(draw()), bits(draw())

    assert zero == plain
    assert five == again != zero


def test_variants_depend_on_the_seed(sine) -> None:
    info = next(info for info in OPINFOS if info.symbol.id == "torch.sin")
    makers = [Variants(None, info, dtypes.float32, [], seed) for seed in (0, 0, 1)]

    zero, same, one = [torch.rand(4, generator=maker.generator).tolist() for maker in makers]

    assert zero == same != one


def test_purposes_have_numbers_of_their_own_with_every_seed() -> None:
    numbers = []
    for seed in range(3):
        with seeded(seed):
            numbers += [start(purpose) for purpose in (1, 20, 1000)]

    assert len(set(numbers)) == 9 and numbers[:3] == [1, 20, 1000]
    with seeded(2**70):
        assert generator(20).initial_seed() < 2**63


@fixture
def sine():
    return running(torch.sin)


def sine_wrong_with(*seeds: int):
    """An executor whose sine is wrong in runs with these seeds."""
    return running(lambda x: torch.sin(x) + (torch.initial_seed() // STRIDE in seeds))


def rows(report: Report, name: str) -> list[Row]:
    return [row for row in report if row.check == name]


def run(executor, **options: Any) -> Report:
    return check(executor, operations=SIN, devices=CPU, dtypes=["float32"], level="smoke", **options)


def test_a_check_that_fails_with_some_seeds_is_flaky() -> None:
    report = run(sine_wrong_with(2, 3), checks=["forward"], seeds=4)

    (row,) = rows(report, "forward")
    assert row.state == "flaky" and row.failed
    assert row.message.startswith("with seeds 2, 3 of 0 to 3 alone, fail: ")
    assert row.replay


def test_a_check_that_fails_with_every_seed_fails() -> None:
    report = run(sine_wrong_with(4, 5), checks=["forward"], seed=4, seeds=2)

    (row,) = rows(report, "forward")
    assert row.state == "fail"
    assert (report.seed, report.seeds) == (4, 2)


def test_a_right_executor_has_one_row_for_all_seeds(sine) -> None:
    one, several = run(sine), run(sine, seeds=3)

    assert {(row.key, row.state) for row in several} == {(row.key, row.state) for row in one}
    assert len({row.key for row in several}) == len(several.rows)
    assert not several.failures


def test_runs_with_several_seeds_share_what_they_compile(sine, monkeypatch) -> None:
    counts = {}
    for seeds in (1, 4):
        compiled, jit = [], dovetail.jit
        monkeypatch.setattr(dovetail, "jit", lambda *args, jit=jit, compiled=compiled, **how: compiled.append(1) or jit(*args, **how))
        run(sine, checks=["forward", "determinism", "backward"], seeds=seeds)
        monkeypatch.undo()
        counts[seeds] = len(compiled)

    assert counts[4] == counts[1] > 0


def test_within_a_run_no_two_functions_are_shared() -> None:
    programs = SharedPrograms()

    first, second = (programs.compiled("sin", object) for _ in range(2))
    programs.start_run()
    again, other, third = (programs.compiled("sin", object) for _ in range(3))

    assert first is again and second is other
    assert len({id(x) for x in (first, second, third)}) == 3


def test_a_row_that_only_one_run_has_is_kept() -> None:
    claims, forward = Row("torch.sin", "claims", "float32"), Row("torch.sin", "forward", "float32", state="fail", message="off by 1")

    (first, second) = merged([[claims], [claims, forward]], range(2))

    assert first.state == "pass"
    assert second.state == "flaky" and second.message == "with seed 1 of 0 to 1 alone, fail: off by 1"


@mark.parametrize("wrong", [{"seeds": 0}, {"seed": -1}])
def test_a_seed_that_is_none_is_refused(wrong) -> None:
    with raises(ValueError, match="expected a seed of 0 or more, and at least one"):
        run(running(torch.sin), **wrong)


def test_a_report_keeps_its_number_of_seeds(sine) -> None:
    report = run(sine, checks=["forward"], seeds=2)

    assert Report.of_json(report.to_json()).seeds == 2
    assert Report.of_json(report.to_json().replace('"seeds": 2', '"seeds": 1')).seeds == 1


def test_workers_take_several_seeds(tmp_path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "import torch\n"
        "from dovetail_conformance.broken import running\n"
        "def wrong():\n"
        f"    return running(lambda x: torch.sin(x) + (torch.initial_seed() // {STRIDE} == 1))\n"
    )

    report = run(f"{file}:wrong", checks=["forward"], seeds=2, processes=1)

    assert [row.state for row in rows(report, "forward")] == ["flaky"]


@mark.parametrize(("off", "state"), [(0.0, "pass"), (1.0, "fail")])
def test_a_sum_that_eager_rounds_in_16_bits_is_compared_with_eagers(off: float, state: str) -> None:
    """The mean of numbers around 100 that cancel is off by more than its tolerance in eager mode, with some seeds."""
    pooling = torch.nn.functional.adaptive_avg_pool3d
    ex = running(lambda x, size: pooling(x, size) + off, "torch.nn.functional.adaptive_avg_pool3d")

    report = check(ex, operations=["adaptive_avg_pool3d"], dtypes=["bfloat16"], devices=CPU, checks=["reference"], seed=1)

    assert [row.state for row in rows(report, "reference")] == [state], report.failures

"""A subject is checked against eager before it is timed: results, gradients, what it writes, and again on other numbers."""

from __future__ import annotations

import fakes
import pytest
import torch
from worker import Work, difference


@pytest.fixture(autouse=True)
def grad_mode():
    before = torch.is_grad_enabled()
    yield
    torch.set_grad_enabled(before)


@pytest.fixture
def work():
    return lambda workload, subject: Work(fakes.SUITE.workloads[workload], fakes.subject(subject))


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("double", "train-bf16")]


@pytest.mark.parametrize("workload", ["double-bf16", "train", "write", *SLOW])
def test_what_is_right_has_a_first_call_and_rounds(work, workload):
    mine = work(workload, "same")
    first = mine.first()

    assert first["wrong"] == "" and first["first"] > 0
    assert mine.warm(0.001)["call"] > 0
    assert mine.round(3)["call"] > 0


@pytest.mark.parametrize(
    ("workload", "subject", "message"),
    [
        ("double", "wrong", "result 0 is off by 1.0e+00"),
        ("double", "other dtype", "result 0 is torch.float64 [8], and eager's is torch.float32 [8]"),
        ("double", "nothing", "result 0 is missing"),
        ("double", "baked", "in the second call, on other numbers"),
        ("train", "no gradient", "gradient 0 is"),
        ("write", "writes nothing", "state 0 is off by 1.0e+00"),
    ],
)
def test_what_is_wrong_is_said(work, workload, subject, message):
    assert message in work(workload, subject).first()["wrong"]


def test_nan_is_wrong_and_a_little_rounding_is_not():
    want = {"result 0": torch.tensor([1.0, 1000.0])}

    assert "result 0 is off by nan" in difference({"result 0": torch.tensor([float("nan"), 1000.0])}, want, want, 1e-3)
    assert difference({"result 0": torch.tensor([1.0, 1000.5])}, want, want, 1e-3) == ""
    assert "5.0e+00" in difference({"result 0": torch.tensor([1.0, 1005.0])}, want, want, 1e-3)


def test_in_bfloat16_float32_says_what_is_right():
    """Who is nearer to that than eager is right, however far from eager."""
    exact, eagers = {"gradient 0": torch.tensor([100.0])}, {"gradient 0": torch.tensor([110.0], dtype=torch.bfloat16)}
    better, worse = ({"gradient 0": torch.tensor([each], dtype=torch.bfloat16)} for each in (96.0, 130.0))

    assert difference(better, eagers, exact, 1e-2) == ""
    assert difference(worse, eagers, exact, 1e-2) == "gradient 0 is off by 3.0e+01; 2.1e+01 is allowed"


@pytest.mark.parametrize(("name", "own", "wider"), [("double-bf16", torch.bfloat16, torch.float32), ("train", torch.float32, torch.float64)])
def test_the_exact_case_has_the_same_numbers_with_more_digits(name, own, wider):
    workload = fakes.SUITE.workloads[name]
    case, exact = workload.build(), workload.build(exact=True)

    assert case.args[0].dtype is own and exact.args[0].dtype is wider
    assert torch.equal(case.args[0].to(wider), exact.args[0])
    assert not exact.leaves or exact.leaves[0] is exact.args[0]


def test_who_is_nearer_to_what_is_right_than_eager_is_not_wrong(work):
    assert work("lossy", "careful").first()["wrong"] == ""
    assert "is off by" in work("lossy", "wrong").first()["wrong"]

"""`make ecosystem` tells rounding from faults, and its page the table from what was held back."""

from __future__ import annotations

import dataclasses
import json

import page
import pytest
import torch
import trial
from cases import Case
from torch import nn


class Kink(nn.Module):
    """A ReLU, one of whose inputs is zero but for rounding at the first seed."""

    def __init__(self, closest: float):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([closest, 1.0, -1.0]))

    def forward(self, x):
        return torch.relu(self.weight * x)


def build():
    return Kink(-1e-9 if torch.initial_seed() == 0 else 0.5), (torch.ones(3),), {}


CASE = Case("a library", "kink", build, modes=("train",), loss=lambda out: out.sum())


def nudged(module):
    """Return the module with a rounding error of float32 in what the ReLU gets."""

    def forward(x):
        return torch.relu(module.weight * x + (1e-8 if x.dtype is torch.float32 else 0.0))

    module.forward = forward
    return module


def scaled(dtypes, factor):
    """Return what makes the gradients wrong in these dtypes."""

    def compile(module):
        if module.weight.dtype in dtypes:
            module.weight.register_hook(lambda grad: grad * factor)
        return module

    return compile


class Cancelling(nn.Module):
    """A sum from which a parameter cancels: its gradient is zero."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x):
        return x + self.weight - self.weight


ZERO = Case("a library", "cancelling", lambda: (Cancelling(), (torch.ones(3),), {}), modes=("train",), loss=lambda out: out.sum())


def noisy(single, double):
    """Return what adds this much to the gradients in float32, and in float64."""

    def compile(module):
        module.weight.register_hook(lambda grad: grad + (single if grad.dtype is torch.float32 else double))
        return module

    return compile


def judge(compile, monkeypatch, case=CASE):
    monkeypatch.setattr(trial.dovetail, "jit", compile)
    return trial.compare(case, "train", trial.run(case, "train", compile), trial.run(case, "train", trial.eager))


def test_a_jump_that_rounding_decides_is_explained(monkeypatch):
    assert judge(nudged, monkeypatch).startswith("a jump: call 1: gradient of weight differs by 1 ")


def test_what_agrees_needs_no_explanation(monkeypatch):
    assert judge(trial.eager, monkeypatch) == ""


@pytest.mark.parametrize("dtypes", [{torch.float32}, {torch.float32, torch.float64}], ids=["float32", "both"])
def test_a_wrong_gradient_is_no_jump(dtypes, monkeypatch):
    with pytest.raises(trial.Different, match=r"call 1: gradient of weight differs by 0.01 where 0.0001\d* is allowed"):
        judge(scaled(dtypes, 1.01), monkeypatch)


def test_a_gradient_that_is_zero_but_for_rounding_is_explained(monkeypatch):
    assert judge(noisy(1e-4, 1e-13), monkeypatch, ZERO).startswith("a jump: call 1: gradient of weight differs by 0.0001 ")


@pytest.mark.parametrize(("single", "double"), [(1e-4, 0.0), (1e-2, 1e-14), (1e-4, 1e-4)])
def test_a_wrong_gradient_where_it_is_zero_is_no_rounding(single, double, monkeypatch):
    with pytest.raises(trial.Different, match="gradient of weight"):
        judge(noisy(single, double), monkeypatch, ZERO)


def test_a_wrong_gradient_beside_a_jump_is_wrong(monkeypatch):
    both = scaled({torch.float64}, 1.01)
    with pytest.raises(trial.Different, match="gradient of weight differs by 1 "):
        judge(lambda module: both(nudged(module)), monkeypatch)


class Steep(nn.Module):
    """A sum that rounding of the weight decides, and that does not run in float64."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x):
        if self.weight.dtype is torch.float64:
            raise RuntimeError("no float64")
        return (self.weight - 1) * x * 1e4


STEEP = Case("a library", "steep", lambda: (Steep(), (torch.ones(3),), {}), modes=("train",), loss=lambda out: out.sum())


@pytest.mark.parametrize(("error", "explained"), [(5e-4, True), (0.1, False)])
def test_what_eager_mode_does_with_weights_moved_in_their_last_place_is_rounding(error, explained, monkeypatch):
    def off(module):
        forward = module.forward
        module.forward = lambda x: forward(x) + error
        return module

    if explained:
        assert judge(off, monkeypatch, STEEP).startswith("rounding: call 1: output differs by 0.0005 ")
    else:
        with pytest.raises(trial.Different, match=r"output differs by 0\.1 "):
            judge(off, monkeypatch, STEEP)


def test_a_result_that_is_off_from_one_seed_alone_is_a_jump(monkeypatch):
    def off(module):
        forward, error = module.forward, 0.1 if torch.initial_seed() == 0 else 0.0
        module.forward = lambda x: forward(x) + error
        return module

    assert judge(off, monkeypatch, STEEP).startswith("rounding: call 1: output differs by 0.1 ")


class Asking(Kink):
    """A model that computes something else where it is compiled."""

    def forward(self, x):
        return self.weight * x * (2 if torch.compiler.is_compiling() else 1)


def doubled(module):
    forward = module.forward
    module.forward = lambda x: forward(x) * 2
    return module


def test_a_model_that_asks_whether_it_is_compiled_is_compared_with_what_it_computes_then(monkeypatch):
    asking = dataclasses.replace(CASE, build=lambda: (Asking(1.0), (torch.ones(3),), {}))
    assert "which the model asks for" in trial.compare(asking, "train", trial.run(asking, "train", doubled), trial.run(asking, "train", trial.eager))
    with pytest.raises(trial.Different):
        judge(doubled, monkeypatch)


def test_settled_calls_take_turns_with_those_of_eager_mode():
    actual, expected = (trial.run(CASE, "train", trial.eager, repeats=True) for _ in range(2))
    assert len(actual.times) == len(expected.times) == 4
    trial.settle(actual, expected)
    assert (len(actual.times), len(expected.times)) == (16, 15)
    assert len(actual.values) == 4


@pytest.mark.parametrize("batches", [(), (1, 2, 3)])
def test_no_call_is_settled_where_each_batch_has_another_size(batches, monkeypatch):
    by_size = dataclasses.replace(CASE, batches=batches, build=lambda: (Kink(0.5), lambda size: ((torch.ones(size, 3),), {}), None))
    monkeypatch.setattr(trial, "load", lambda family: {("torch", "kink"): by_size if batches else CASE})
    monkeypatch.setattr(trial.logging, "disable", lambda level: None)  # of the whole process
    outcome = trial.attempt("family", "torch", "kink", "train")
    assert outcome.verdict == "right"
    assert (outcome.settled is None) is bool(batches)


def row(name, verdict, at_first, **more):
    times = {"reason": "", "first": 1.0, "settled": 1.0, "eager": 2.0}
    return (
        {"library": "torch", "name": name, "mode": "train", "verdict": verdict, "at_first": at_first, "date": "2026-11-26", "commit": "abc"}
        | times
        | more
    )


def test_the_page_keeps_what_was_held_back_apart(tmp_path, monkeypatch):
    outcomes = [
        row("a", "right", "right", date="2026-11-23", commit=""),
        row("b", "right", "eager", processor="Fast CPU"),
        row("c, held back", "right", "wrong"),
    ]
    outcomes.append(row("d, held back", "wrong", "right", reason="differs"))
    about = {"date": "2026-11-26", "python": "3.12.1", "torch": "2.14.1"}
    (tmp_path / "result.json").write_text(json.dumps({"about": about, "outcomes": outcomes}))
    monkeypatch.setattr(page, "RESULT", tmp_path / "result.json")

    table, held_back = page.text().split("## Held back")

    assert "1 cases on 2026-11-23, 2 cases on 2026-11-26 at `abc`, 1 cases on 2026-11-26 at `abc` on Fast CPU" in table
    assert "| torch | 2.14.1 | 2 | 2 | 0 | 0 | 0 | 0 | 0 | 1.00 s | 0.50 |" in table
    assert "| torch | 2.14.1 | 2 | 1 | 1 | 0 | 0 | 1 | 0 | 0 | 1.00 s |" in held_back
    assert "| torch | d | train | wrong | differs |" in held_back and "| torch | d | train |" not in table

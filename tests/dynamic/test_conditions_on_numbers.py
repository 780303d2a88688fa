"""What a program asks of numbers from outside that change: one program for each answer."""

from __future__ import annotations

import math
import random
import warnings

import pytest
import torch

import dovetail

QUESTIONS = (
    *("w > {c}", "w < {c}", "w >= {c}", "w == {c}", "w != {c}", "{c} < w", "bool(w)", "not w", "w * {c} > {d}", "w + v > {c}", "w < v", "w - v == 0"),
    *("abs(w) < {c}", "-w > v", "1 / w > {c}", "w ** 2 > {c}", "w % {c} > {d}", "w // {c} == 1", "math.isnan(w)", "math.isfinite(w * {d})"),
    *("int(w * 10) > 3", "round(w, 1) == {c}", "min(w, v) > {c}", "max(w, {c}) == w", "math.sqrt(w) > {c}", "math.exp(w) > {c}", "{c} < w < {d}"),
    *("int(w) % 2", "w > {c} and v < {d}", "w != w", "round(w) == 1", "math.floor(w) == 0", "w ** 0.5 > {c}", "w in ({c}, {d})", "float(w) > {c}"),
    *("int(w > {c}) + int(v > {d}) == 1", "math.isclose(w, v)", "w.is_integer()", "(w > {c}) == (v > {c})", "bool(w > {c}) is True"),
    *("type(w) is float and w > {c}", "divmod(w, {c})[0] > 0", "w > 1", "w * 2 > 10**400", "w == 10**20", "w + v + rates.w > {c}"),
)
VALUES = (0.1, 0.2, 0.3, 0.25, 0.5, 0.7, 1.0, 1.5, 2.0, -0.3, -1.0, 0.0, -0.0, math.nan, math.inf, -math.inf, 1e300, 1e-320, 3.7)
ORDINARY = VALUES[:9]


class Rates:
    """What a program reads and writes from outside."""

    def __init__(self):
        self.w, self.calls = 0.3, 0


def program(seed):
    """Return a function that asks two or three questions of floats, which are arguments or attributes, and may compute others of them first."""
    draw = random.Random(seed)

    def question():
        return draw.choice(QUESTIONS).format(c=draw.choice((0.1, 0.3, 0.5, 1.0, 2.0)), d=draw.choice((0.2, 0.7, 1.0, 3.0)))

    outside = draw.random() < 0.4
    rows = ["w = rates.w"] * outside
    rows += draw.sample(("w = w * 0.5", "w = w + v", "x = x * w", "rates.calls += 1", *["rates.w = w * 0.9"] * outside), draw.randrange(2))
    rows += ["y = x * 2", f"if {question()}:", "    y = y + w", f"elif {question()}:", f"    y = y * {draw.choice('wv3')}", "else:", "    y = y - 1"]
    rows += ["rates.w = w * 0.5 + 0.1"] * (outside and draw.random() < 0.5)
    rows += [f"y = y + 1 if {question()} else y"] * (draw.random() < 0.5)
    text = "def fn(x, w, v, rates):\n    " + "\n    ".join(rows) + "\n    return y, w, rates.calls"
    names = {"math": math, "torch": torch}
    exec(text, names)
    return names["fn"]


def outcome(fn, *args):
    """Return what a call returns, or its error."""
    try:
        return fn(*args)
    except (ArithmeticError, TypeError, ValueError) as error:
        return type(error).__name__, str(error)


def as_text(result):
    """Return a result as text, which tells -0.0 from 0.0, and an int from a bool."""
    return repr([x.tolist() if isinstance(x, torch.Tensor) else x for x in result])


@pytest.mark.one_in(12)
@pytest.mark.parametrize("seed", range(360))
def test_answers_are_those_of_eager_mode(seed):
    draw, fn, here, there = random.Random(seed), program(seed), Rates(), Rates()
    compiled, x = dovetail.jit(fn), torch.tensor([1.0, -2.0, 3.0])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(24):
            w, v = draw.choice(VALUES), draw.choice(ORDINARY)
            if draw.random() < 0.5:
                here.w = there.w = draw.choice(VALUES)
            assert as_text(outcome(compiled, x, w, v, there)) == as_text(outcome(fn, x, w, v, here))
            assert (repr(there.w), there.calls) == (repr(here.w), here.calls)
    assert not [str(each.message) for each in caught if "bug" in str(each.message)]


@pytest.mark.parametrize(
    ("condition", "programs"),
    [
        *(
            ("w > 0.5", 3),
            ("w", 2),
            ("w > v", 3),
            ("math.isnan(w)", 2),
            ("w.is_integer()", 2),
            ("0.25 < w * 0.5 + v < 0.75", 4),
            ("w ** 0.5 > 0.5", 3),
        ),
        *(("1 / w > 2", 3), ("int(w * 4)", 5), ("math.isclose(w, v, rel_tol=0.1) or w > v", 12)),
    ],
)
def test_values_with_one_answer_share_a_program(condition, programs):
    fn = eval(f"lambda x, w, v: x * w if {condition} else x - v", {"math": math})
    compiled, x = dovetail.jit(fn), torch.tensor([1.0, -2.0])
    with warnings.catch_warnings():
        warnings.simplefilter("error" if programs <= 5 else "ignore")
        for i in range(1, 30):
            assert torch.equal(compiled(x, i / 31, (i * 7 % 31) / 31), fn(x, i / 31, (i * 7 % 31) / 31))
    assert compiled.cache_info().programs <= programs


def test_a_schedule_beside_a_gradient():
    layer = torch.nn.Linear(3, 3)

    def loss(x, step):
        rate = min(1.0, step / 8.0) if step < 12.0 else 1.0
        y = layer(x)
        return (y if rate < 0.5 else y.tanh()).square().mean() * rate

    compiled = dovetail.jit(loss)
    for step in range(1, 17):
        x = torch.randn(4, 3)
        grads = [torch.autograd.grad(call(x, float(step)), layer.weight)[0] for call in (compiled, loss)]
        torch.testing.assert_close(grads[0], grads[1])
    assert compiled.cache_info().programs <= 4


def test_the_reason_of_a_new_program_is_the_question():
    compiled = dovetail.jit(lambda x, w: x if w * 2 > 1 else -x)
    for w in (0.1, 0.2, 0.7):
        compiled(torch.ones(1), w)
    assert "not ((args[1] * 2) > 1) no longer holds" in dovetail.cache_misses(compiled)[-1]


def test_a_question_of_great_length_is_answered_for_each_value():
    def fn(x, w):
        for _ in range(100):
            w = w * 0.99 + 0.001
        return x if w > 0.2 else -x

    compiled, x = dovetail.jit(fn), torch.ones(1)
    with pytest.warns(UserWarning, match=r"args\[1\] is compiled for each value"):
        for w in (0.1, 0.3, 0.5, 0.9):
            assert torch.equal(compiled(x, w), fn(x, w))


def test_questions_are_checked_without_the_prologue_in_python():
    compiled, x = dovetail.jit(lambda x, w: x * w if w > 0.5 else x - w), torch.ones(4)
    for i in range(80):
        compiled(x, 0.6 + i / 1000)
    entries = compiled._cache.entries
    assert type(entries[0].call).__name__ == "builtin_function_or_method", entries[0].call
    assert torch.equal(compiled(x, 0.4), x - 0.4)
    assert torch.equal(compiled(x, 0.7), x * 0.7)

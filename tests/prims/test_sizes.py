"""Symbolic sizes compute as ints do, and what they decide holds wherever the recorded relations do."""

from __future__ import annotations

import math
import operator
import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.prims.sizes import Real, Relations, RelationsClosed, Size, hint_of, index_of, is_symbolic, same_shape, symbols_in


def symbols(*hints: int, **options: Any) -> tuple[Relations, list[Size]]:
    relations = Relations()
    return relations, [relations.symbol(hint, **options) for hint in hints]


def conditions(relations: Relations) -> list[str]:
    return [form.text() for form in relations.guards() if form.recorded]


# what sizes compute


def test_equal_polynomials_are_one_object():
    _, (a, b) = symbols(3, 7)
    assert a * b + a is a * (b + 1)
    assert (a + 1) * (a - 1) + 1 is a * a


def test_a_constant_result_is_an_int():
    _, (a, b) = symbols(3, 7)
    assert type(a - a) is int and a - a == 0
    assert type(a * b // a // b) is int and a * b // a // b == 1
    assert type((8 * a + 3) % 8) is int and (8 * a + 3) % 8 == 3


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (lambda a, b: a * b * 64 // (a * 8), "8*s1"),
        (lambda a, b: (a - 3) // 2 + 1, "(s0 + 1)//2 - 1"),
        (lambda a, b: -(-a // 8), "(s0 + 7)//8"),
        (lambda a, b: (8 * a + b) // 8, "s0 + s1//8"),
        (lambda a, b: a // 2 // 3, "s0//6"),
        (lambda a, b: 4 * a // 8, "s0//2"),
        (lambda a, b: (a * b + a) // (2 * a), "(s1 + 1)//2"),
        (lambda a, b: a % 4, "s0 - 4*(s0//4)"),
        (lambda a, b: 3 * (a // b) - 2 * a * b, "3*(s0//s1) - 2*s0*s1"),
        (lambda a, b: 1 - a, "1 - s0"),
        (lambda a, b: -a, "-s0"),
    ],
)
def test_text_is_python(size, text):
    _, (a, b) = symbols(12, 5)
    result = size(a, b)
    assert eval(str(result), {"s0": 12, "s1": 5}) == result.hint == eval(text, {"s0": 12, "s1": 5})
    assert str(result) == text


def test_division_by_zero_is_an_error():
    relations = Relations()
    a, b = relations.symbol(5), relations.symbol(0, low=0)
    for divide in (operator.floordiv, operator.mod, divmod):
        with pytest.raises(ZeroDivisionError):
            divide(a, b)
        with pytest.raises(ZeroDivisionError):
            divide(a, 0)


# what is decided without relations


def test_bounds_decide():
    relations, (a, b) = symbols(3, 7)
    assert a != 1 and a > 0 and a * b >= 4 and a != 0
    assert a * b - b >= a and a * b != 0 and a * b > 0 and a * b != b
    assert a // 2 <= a and a - a // 2 > 0 and -(-a // 8) >= 1
    assert a % 8 < 8 and a % 8 >= 0
    assert conditions(relations) == []


def test_given_bounds_decide():
    relations = Relations()
    a = relations.symbol(9, low=2, high=512)
    assert a <= 512 and a < 1000 and not a * 2 > 1024
    assert conditions(relations) == []


def test_the_remainder_of_a_division_decides():
    relations, (a,) = symbols(6)
    assert 4 * a != 6 and 2 * a != 7
    assert conditions(relations) == []


# what is recorded


def test_an_undecided_comparison_is_recorded_once():
    relations, (a,) = symbols(9)
    assert a > 8 and a >= 9 and not a <= 8
    assert conditions(relations) == ["s0 >= 9"]


def test_conditions_on_one_size_are_one_interval():
    relations, (a,) = symbols(39)
    assert a < 62 and a != 39 + 5 and a > 3 and a < 100
    assert conditions(relations) == ["4 <= s0 <= 61 and s0 != 44"]


def test_an_excluded_end_moves_the_interval():
    relations, (a,) = symbols(39)
    assert a != 2 and a != 4 and a != 3
    assert conditions(relations) == ["s0 >= 5"]


def test_an_equality_replaces_the_younger_symbol():
    relations, (a, b) = symbols(7, 7)
    assert a == b
    assert str(a * b) == "s0*s0" and str(b) == "s0" and relations.value_of(relations.atoms[1]) is a
    assert conditions(relations) == []  # the check of the younger tensor's shape says it


def test_what_was_assumed_of_a_replaced_symbol_is_kept():
    relations, (a, b) = symbols(7, 7)
    assert b <= 100 and b != 50
    assert a == b
    assert conditions(relations) == ["2 <= s0 <= 100 and s0 != 50"]


@pytest.mark.parametrize("excluded", [1, 7, -1])
def test_a_condition_that_all_values_satisfy_is_none(excluded):
    relations, (a, b, c) = symbols(5, 4, 2)
    assert a * c - b * c != excluded  # 2 * (a - b) is even, once c is 2
    assert c == 2
    assert "" not in [form.text() for form in relations.guards()] and conditions(relations) == []


def test_a_symbol_is_not_replaced_by_itself():
    relations, (a,) = symbols(20)
    assert a == 8 * ((a - 3) // 8) + 4
    assert not relations.equal
    assert relations.hold({"s0": 12}) and not relations.hold({"s0": 13})


def test_what_needs_an_int_pins():
    relations, (a,) = symbols(6)
    assert len(range(a)) == 6 and [0] * a == [0] * 6
    assert a == 6 and str(a) == "6" and a.known() == 6
    assert [pin[:2] for pin in relations.pins] == [("s0", 6)]
    assert not relations.hold({"s0": 7})


@pytest.mark.parametrize("use", [int, float, complex, math.sqrt, "x".__mul__, lambda n: n / 2, lambda n: 1 / n, lambda n: n**0.5, lambda n: 2**n])
def test_conversions_pin(use):
    relations, (a,) = symbols(6)
    use(a)
    assert relations.pins and not relations.hold({"s0": 7})


def test_closed_relations_decide_what_is_known_and_refuse_the_rest():
    relations, (a,) = symbols(9)
    assert a > 4
    relations.close()
    assert a > 3 and a > 4
    with pytest.raises(RelationsClosed, match=r"depends on more of the sizes.*s0 >= 9.*dynamic=False"):
        _ = a > 8
    with pytest.raises(RelationsClosed, match="the value of the size s0 is needed"):
        int(a)


@pytest.mark.parametrize("value", [8.0, 8.5, 9.0, 9.5, 1.5, -3.0, math.inf, -math.inf, math.nan])
def test_floats_are_compared_without_a_plain_int(value):
    for op in (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge):
        relations, (a,) = symbols(9)
        assert op(a, value) == op(9, value) and op(value, a) == op(value, 9)
        assert not relations.pins


def test_places_say_who_asked():
    lines = iter(["model.py:3", "model.py:3", "model.py:9"])
    relations = Relations(lambda: next(lines))
    a = relations.symbol(9)
    _ = a > 5, a < 40, a * a > 50
    assert [form.places for form in relations.guards()] == [["model.py:3"], ["model.py:9"]]


def test_a_quotient_of_a_pinned_size_is_an_int():
    relations, (a, b) = symbols(9, 5)
    half, part = a // 2, (a + 3) // b
    assert int(a) == 9
    assert half.known() == 4 and str(half + b) == "s1 + 4" and half == 4
    assert int(b) == 5 and part.known() == 2 and part * 2 == 4
    assert conditions(relations) == []


# helpers


def test_helpers():
    relations, (a, b) = symbols(3, 7)
    assert index_of(a) is a and index_of(True) == 1 and hint_of(a + 4) == 7 and hint_of(5) == 5
    assert is_symbolic((1, [2, {"x": a}])) and is_symbolic(slice(None, a)) and not is_symbolic((1, [2, {"x": 3}]))
    assert [atom.name for atom in symbols_in([(a // (b + 1), 2), {"d": slice(b)}])] == ["s0", "s1"]
    assert not same_shape((64,), (a, 64)) and conditions(relations) == []
    assert math.prod((a, b, 2)) is 2 * a * b and sum([a, b]) is a + b and max(a, 1) is a and min(a, 1) == 1


def test_sizes_are_pickled_with_their_relations():
    relations, (a, b) = symbols(3, 7)
    assert a < 20
    again, other = pickle.loads(pickle.dumps((a * b // 4, a)))
    assert str(again) == "(s0*s1)//4"
    assert again.relations is other.relations and other.relations.closed
    assert [form.text() for form in other.relations.guards()] == [form.text() for form in relations.guards()]


def test_hints_move_to_those_of_another_call():
    relations, (a, b, c) = symbols(8, 8, 5)
    sizes, other = [a // 3, a * c + 1, (a + 1) // c], a * b
    root, atom = relations.rounded(Real("floor", (Real("math.sqrt", (a,)),)))
    assert a == b and other is not a and c < 7
    relations.move({"s0": 20, "s2": 6})
    assert [hint_of(size) for size in (a, b, *sizes, root)] == [20, 20, 6, 121, 3, 4] and atom.hint == 4
    relations.move({"s2": 2})
    assert hint_of(c) == 2 and hint_of(sizes[1]) == 121  # what depends on a as well keeps its hint
    assert a > 15 and conditions(relations)[0] == "s0 >= 16"


# properties

OPERATORS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod}
COMPARISONS = {"==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
STEPS = st.lists(
    st.tuples(st.sampled_from([*OPERATORS, *COMPARISONS, "+", "*", "//"]), st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=20
)
LARGEST = 10**7


def grown(relations: Relations, hints: list[int], lows: list[int], steps: list, assume: bool) -> tuple[list, list]:
    """Return (size, text) of every value that the steps compute, and (text, answer) of every comparison."""
    names = [f"s{i}" for i in range(len(hints))]
    pool: list = [(relations.symbol(hint, low=low), name) for hint, low, name in zip(hints, lows, names, strict=True)]
    pool += [(k, str(k)) for k in (1, 2, 3, 8, 64, -5)]
    answers, scope = [], dict(zip(names, hints, strict=True))
    for sign, i, j in steps:
        (a, left), (b, right) = pool[i % len(pool)], pool[j % len(pool)]
        text = f"({left} {sign} {right})"
        if sign in COMPARISONS:
            if assume:
                answers.append((text, bool(COMPARISONS[sign](a, b))))
            continue
        if sign in ("//", "%") and eval(right, {}, scope) == 0:
            continue
        if abs(eval(text, {}, scope)) < LARGEST:
            pool.append((OPERATORS[sign](a, b), text))
    return pool, answers


def others(hints: list[int], lows: list[int], draw: Any) -> list[dict[str, int]]:
    near = st.integers(-2, 2)
    found = []
    for _ in range(12):
        moved = [max(low, hint + draw(near)) if draw(st.booleans()) else draw(st.integers(low, 60)) for hint, low in zip(hints, lows, strict=True)]
        found.append({f"s{i}": n for i, n in enumerate(moved)})
    return found


def valued(text: str, values: dict[str, int]) -> Any:
    try:
        return eval(text, {}, values)
    except ZeroDivisionError:
        return None


@given(st.data(), STEPS, st.lists(st.integers(2, 40), min_size=1, max_size=3))
@settings(max_examples=120, deadline=None)
def test_sizes_agree_with_ints_wherever_the_relations_hold(data, steps, hints):
    lows = [data.draw(st.sampled_from([0, 2, 2])) for _ in hints]
    relations = Relations()
    pool, answers = grown(relations, hints, lows, steps, assume=True)
    at_hint = {f"s{i}": n for i, n in enumerate(hints)}
    assert relations.hold(at_hint)
    for values in [at_hint, *others(hints, lows, data.draw)]:
        if not relations.hold(values):
            continue
        for size, text in pool:
            expected = valued(text, values)
            if expected is not None:
                got = size.evaluate(values) if type(size) is Size else size
                assert got == expected, (text, str(size), values)
                assert eval(str(size), {}, values) == expected
        for text, answer in answers:
            assert valued(text, values) in (answer, None), (text, answer, values)


@given(st.data(), STEPS, st.lists(st.integers(2, 40), min_size=1, max_size=3), st.sampled_from(sorted(COMPARISONS)))
@settings(max_examples=120, deadline=None)
def test_an_answer_without_a_relation_holds_within_the_bounds(data, steps, hints, sign):
    lows = [2] * len(hints)
    relations = Relations()
    pool, _ = grown(relations, hints, lows, [step for step in steps if step[0] in ("+", "-", "*")], assume=False)
    (a, left), (b, right) = pool[-1], pool[data.draw(st.integers(0, len(pool) - 1))]
    answer = bool(COMPARISONS[sign](a, b))
    if any([form.recorded for form in relations.guards()]) or relations.equal:
        return
    for values in others(hints, lows, data.draw):
        assert eval(f"{left} {sign} {right}", {}, values) == answer, (left, sign, right, values)

"""Programs that run statement by statement compute what their printed text computes."""

from __future__ import annotations

import math
from types import FunctionType, MethodType

import pytest

from dovetail import prims
from dovetail.trace import BoundSymbol, Proxy, Trace, to_callable
from dovetail.trace.stepping import FEW_RUNS, SteppedProgram


class Miss:
    """What a check returns where it fails."""

    def __init__(self, words: str):
        self.words = words

    def __repr__(self) -> str:
        return self.words


def reading(checks: list, table: dict) -> Trace:
    """A program that reads `x` from a table, and checks it: pairs of a symbol and its keyword arguments."""
    container, x = Proxy("container"), Proxy("x")
    trace = Trace("state", outputs=(x,), constants={container: table})
    trace.lines.append(BoundSymbol(prims.unpack_item, (container,), {"key": "x", "miss": Miss("nothing is there")}, x, [container]))
    for symbol, arguments in checks:
        trace.lines.append(BoundSymbol(symbol, (x,), {**arguments, "miss": Miss(symbol.name)}, None, [x]))
    return trace


VALUES = [
    0,
    1,
    -1,
    True,
    False,
    None,
    0.0,
    -0.0,
    1.0,
    math.nan,
    1j,
    "",
    "zeros",
    "nan",
    (),
    (1, 1),
    (True, 1),
    [],
    [1],
    {},
    {"a": 1},
    int,
    len,
    math.sin,
    "".join,
    Trace,
    [].append,
    MethodType(len, []),
    lambda: 0,
]
CHECKS = {
    **{
        f"equal to {v!r}": (prims.check_value, {"type": type(v), "value": v})
        for v in VALUES
        if type(v) in (int, bool, float, complex, str, type(None))
    },
    **{f"of {t.__name__}": (prims.check_type, {"type": t}) for t in (int, float, bool, str, tuple, list, dict, Miss, MethodType, FunctionType)},
    **{f"the very {v!r}": (prims.check_identity, {"value": v}) for v in (None, True, len, int)},
    "of two": (prims.check_count, {"length": 2}),
    "empty": (prims.check_count, {"length": 0}),
    "with a key": (prims.check_keys, {"keys": ("a",)}),
    "without keys": (prims.check_keys, {"keys": ()}),
    "true": (prims.check_truth, {"value": True}),
    "false": (prims.check_truth, {"value": False}),
}


def outcome(run) -> object:
    try:
        result = run()
    except TypeError as error:  # of a check that the value's class does not have
        return str(error)
    return (result.words,) if type(result) is Miss else result


@pytest.mark.parametrize("name", CHECKS)
def test_each_check_is_what_its_text_is(name):
    for value in VALUES:
        trace, expected = reading([CHECKS[name]], {"x": value}), reading([CHECKS[name]], {"x": value})
        stepped, printed = outcome(SteppedProgram(trace, Miss)), outcome(to_callable(expected))
        assert repr(stepped) == repr(printed), value


def test_what_is_missing_ends_the_program():
    assert outcome(SteppedProgram(reading([], {}), Miss)) == ("nothing is there",)


def test_the_first_check_that_fails_ends_it():
    checks = [(prims.check_type, {"type": int}), (prims.check_value, {"type": int, "value": 3}), (prims.check_truth, {"value": False})]
    assert outcome(SteppedProgram(reading(checks, {"x": 2}), Miss)) == ("check_value",)
    assert outcome(SteppedProgram(reading(checks, {"x": 3}), Miss)) == ("check_truth",)
    assert outcome(SteppedProgram(reading(checks[:2], {"x": 3}), Miss)) == (3,)


def test_it_reads_anew_at_each_run_and_is_compiled_after_a_few():
    table = {"x": 0}
    program = SteppedProgram(reading([(prims.check_type, {"type": int})], table), Miss)
    for i in range(2 * FEW_RUNS):
        table["x"] = i
        assert program() == (i,)
        assert (program.compiled is not None) == (i >= FEW_RUNS)
    table["x"] = "text"
    assert outcome(program) == ("check_type",)

"""Anyone's tests, compiled: `pytest --dovetail` runs each test function by dovetail.jit.

The tests themselves say whether what they compute is right.  Fixtures and helpers that pytest calls run as they stand; what the function calls
is compiled with it.  Coroutines and generators run as they stand, too.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from types import FunctionType, MethodType
from typing import Any

import pytest

PROPERTY = "dovetail"  # of a test report: "" where it was compiled, else the reason why it ran in eager mode
SHOWN = 10  # reasons in the summary; -v shows all of them
WARNINGS = r"[^\n]*calls (like this one )?run (in eager mode|eagerly)|[^\n]* is compiled for each value"  # which many projects make errors of


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("dovetail", "tests compiled by Dovetail")
    group.addoption("--dovetail", action="store_true", help="compile each test function with dovetail.jit, and say which ones ran in eager mode")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--dovetail"):
        config.pluginmanager.register(CompiledTests(), "dovetail compiled tests")


class CompiledTests:
    """Compiles the functions of tests, and counts what became of them."""

    def __init__(self) -> None:
        self.compiled = 0
        self.reasons: Counter[str] = Counter()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        function = getattr(item, "obj", None)
        if not isinstance(item, pytest.Function) or not is_compiled(function):
            return (yield)
        drawn = getattr(function, "hypothesis", None)  # of Hypothesis, which calls the test itself for each example
        if drawn is None:
            holder, name, plain = item, "obj", function
        else:
            holder, name, plain = drawn, "inner_test", drawn.inner_test
        setattr(holder, name, compiled(plain, item))
        try:
            return (yield)
        finally:
            setattr(holder, name, plain)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for name, reason in report.user_properties:
            if name == PROPERTY and report.when == "call":
                self.compiled += not reason
                self.reasons.update([reason] if reason else ())

    def pytest_terminal_summary(self, terminalreporter: Any, config: pytest.Config) -> None:
        write = terminalreporter.write_line
        write(f"dovetail: {self.compiled} test functions were compiled, {self.reasons.total()} ran in eager mode")
        for reason, count in self.reasons.most_common(None if config.get_verbosity() > 0 else SHOWN):
            write(f"  {count:4} {reason}")
        if config.get_verbosity() <= 0 and len(self.reasons) > SHOWN:
            write(f"       and {len(self.reasons) - SHOWN} other reasons; -v shows them")


def is_compiled(function: Any) -> bool:
    """Return whether a test function is one that dovetail.jit compiles."""
    plain = getattr(function, "__func__", function)
    return type(plain) is FunctionType and not (inspect.iscoroutinefunction(plain) or inspect.isgeneratorfunction(plain))


def compiled(function: Callable[..., Any], item: pytest.Item) -> Callable[..., Any]:
    """Return a test function, or method, that compiles each of its calls anew, and notes at `item` whether they ran in eager mode."""
    import dovetail  # lazily: it imports torch, and every pytest loads this plugin

    plain = getattr(function, "__func__", function)

    @functools.wraps(plain)
    def run(*args: Any, **kwargs: Any) -> Any:
        program = dovetail.jit(plain)
        warnings.filterwarnings("ignore", WARNINGS)  # until the test ends: pytest restores the filters
        result = program(*args, **kwargs)
        note(item, why_eager(program))
        return result

    return MethodType(run, function.__self__) if isinstance(function, MethodType) else run


def why_eager(program: Callable[..., Any]) -> str:
    """Return why the call of a compiled function ran in eager mode; "" where it did not."""
    from dovetail import DovetailError, last_traces

    try:
        last_traces(program)
    except DovetailError as error:
        return str(error).partition("since ")[2].partition("\n")[0]
    return ""


def note(item: pytest.Item, reason: str) -> None:
    """Note what became of a call of a test, which may call its function several times: one that ran in eager mode counts."""
    noted = [pair for pair in item.user_properties if pair[0] == PROPERTY]
    if not noted:
        item.user_properties.append((PROPERTY, reason))
    elif reason and not noted[0][1]:
        item.user_properties[item.user_properties.index(noted[0])] = (PROPERTY, reason)

"""What Python 3.12 brought, compiled: type aliases and type parameters.

The programs are text, since earlier Pythons cannot parse them.
"""

from __future__ import annotations

import sys
import textwrap

import pytest
import torch

import dovetail

if sys.version_info < (3, 12):
    pytest.skip("these programs are in the syntax of Python 3.12", allow_module_level=True)

DECLARED = """
    import typing
    type Pair[T] = tuple[T, T] | list[T]
    type Number = int | float
    class Box[T]:
        def __init__(self, value: T): self.value = value
    def same[T](x: T) -> T: return x
"""
EXPRESSIONS = {
    "an alias with arguments": "typing.cast(Pair[int], x) * 2",
    "the arguments of its value": "x * len(typing.get_args(Pair[int].__value__))",
    "its value": "x * len(typing.get_args(Number.__value__))",
    "a union with it": "x * len((Number | None).__args__)",
    "its text": "x * len(repr(Pair[int]))",
    "two that are equal": "x * 2 if Pair[int] == Pair[int] else x",
    "a generic class": "Box[int](x).value * 2",
    "a generic function": "same(x) * len(same.__type_params__)",
}


@pytest.mark.parametrize("expression", EXPRESSIONS.values(), ids=EXPRESSIONS)
def test_type_aliases_and_parameters(expression):
    namespace = {}
    exec(textwrap.dedent(DECLARED) + f"def run(x): return {expression}", namespace)
    x = torch.ones(2)

    assert torch.equal(dovetail.jit(namespace["run"])(x), namespace["run"](x))


def test_an_alias_that_is_bound_anew_is_noticed():
    namespace = {}
    exec(textwrap.dedent(DECLARED) + "def run(x): return x * len(typing.get_args(Number.__value__))", namespace)
    fast, x = dovetail.jit(namespace["run"]), torch.ones(2)

    assert fast(x)[0] == 2
    exec("type Number = int | float | complex", namespace)
    assert fast(x)[0] == 3

"""Sizes of regions: a kernel that programs share is one whose questions each of them answers in the same way."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from dovetail.executors import CannotFuse, RegionSizes, SizedKernels
from dovetail.prims.sizes import Relations


def region_of(*hints: int, low: int = 2):
    """Return a stand-in for a region, and symbols of its program with these hints."""
    relations = Relations()
    return SimpleNamespace(relations=relations, name="fusion"), [relations.symbol(hint, low=low) for hint in hints]


def recorded(region) -> list[str]:
    return [form.text() for form in region.relations.guards() if form.recorded]


def kernel_of(cache: SizedKernels, region, symbols, compile):
    """Return the kernel that a cache has for a region, compiled by a function of the region's sizes."""
    sizes = RegionSizes(region)
    own = sizes.own(tuple(symbols))
    return cache.get("region", sizes, lambda: compile(*sizes.own(own)))


def test_what_lower_bounds_decide_is_no_condition():
    region, symbols = region_of(7)
    assert kernel_of(SizedKernels(), region, symbols, lambda n: n > 1 and n * 2 > n) is True
    assert recorded(region) == []


def test_a_question_of_the_kernel_becomes_a_condition_of_each_program_that_shares_it():
    cache, compiled = SizedKernels(), []

    def compile(n):
        compiled.append(n.hint)
        return n >= 5

    for hint, kernel, condition in ((7, True, "s0 >= 5"), (9, True, "s0 >= 5"), (3, False, "2 <= s0 <= 4"), (4, False, "2 <= s0 <= 4")):
        region, symbols = region_of(hint)
        assert kernel_of(cache, region, symbols, compile) is kernel
        assert recorded(region) == [condition]
    assert compiled == [7, 3]


def test_a_program_knows_nothing_for_another():
    cache = SizedKernels()
    region, (n,) = region_of(7)
    assert n >= 6
    assert kernel_of(cache, region, [n], lambda n: n >= 5) is True  # follows from what the program knows
    other, (m,) = region_of(3)
    assert kernel_of(cache, other, [m], lambda n: n >= 5) is False


def test_quotients_are_asked_in_the_order_that_makes_them_valid():
    cache = SizedKernels()

    def compile(a, b):
        return (a // (b - 2)).hint if b > 2 and a // (b - 2) > 1 else "small"

    assert kernel_of(cache, *region_of(8, 4), compile) == 4
    assert kernel_of(cache, *region_of(8, 2), compile) == "small"  # whose denominator would be 0


def test_sizes_that_turn_out_to_be_equal_are_one_from_the_start():
    seen = []

    def compile(a, b):
        seen.append(a is b)
        return a == b

    region, symbols = region_of(6, 6)
    assert kernel_of(SizedKernels(), region, symbols, compile) is True
    assert seen[-1] is True
    assert region.relations.equal


def test_symbols_that_may_be_0_have_kernels_of_their_own():
    cache = SizedKernels()
    assert kernel_of(cache, *region_of(6), lambda n: "large") == "large"
    assert kernel_of(cache, *region_of(6, low=0), lambda n: "any") == "any"


def test_nothing_is_assumed_of_a_program_whose_guards_are_made():
    region, symbols = region_of(7)
    region.relations.close()
    with pytest.raises(CannotFuse, match="depend on more of its sizes"):
        kernel_of(SizedKernels(), region, symbols, lambda n: n >= 5)


def test_no_kernel_is_compiled_for_one_value():
    with pytest.raises(CannotFuse, match="for each value of s0"):
        kernel_of(SizedKernels(), *region_of(7), int)


def test_an_unassuming_compilation_raises_what_it_is_told():
    region, symbols = region_of(7)
    sizes = RegionSizes(region)
    (n,) = sizes.own(tuple(symbols))
    with sizes.unassuming(ValueError), pytest.raises(ValueError):
        assert n >= 5
    assert recorded(region) == []
    assert n >= 5
    assert recorded(region) == ["s0 >= 5"]

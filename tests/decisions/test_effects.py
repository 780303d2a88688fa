"""Writes, prints, exceptions, random numbers and guards around decisions: as in eager mode, in order and once."""

from __future__ import annotations

import contextlib
import gc
import weakref

import pytest
import torch
import torch.nn.functional as F
from decisions.helpers import agrees, compiled, graph_of

import dovetail
from dovetail.errors import TracedValueError


def test_13_writes_before_and_after_a_branch():
    def writes(x, y):
        fresh = torch.zeros(4)
        part = fresh[1:]
        part.add_(1)
        x[1:].add_(1)
        if x.sum() > 0:
            x.mul_(y)
            part.mul_(3)
            return fresh, x.sum()
        x[0] = 7.0
        return part, x * y

    fn = compiled(writes)
    for value in (1.0, -3.0, 2.0, -2.0):
        agrees(fn, writes, torch.full((4,), value), torch.arange(4.0))


def test_13_results_share_memory_as_in_eager_mode():
    def views(x):
        y = x * 2
        part = y[1:]
        if x.sum() > 0:
            part.add_(1)
        return y, part, x[0:1]

    fn = compiled(views)
    for x in (torch.ones(3), -torch.ones(3), torch.ones(3)):
        y, part, first = fn(x)
        assert part.data_ptr() == y.data_ptr() + 4 and first.data_ptr() == x.data_ptr()


def test_14_what_precedes_an_exception_happens_once(capsys):
    class Box:
        n = 0

    def failing(x, box):
        box.n += 1
        x.add_(1)
        print("before")
        if x.sum() > 0:
            raise ValueError("positive")
        return x

    fn = compiled(failing)
    for start in (-5.0, 1.0, 1.0, -5.0):
        x, box = torch.full((2,), start), Box()
        with pytest.raises(ValueError, match="positive") if start > 0 else contextlib.nullcontext():
            fn(x, box)
        assert box.n == 1 and x[0] == start + 1
        assert capsys.readouterr().out == "before\n"


class Dropping(torch.nn.Module):
    def forward(self, x):
        h = F.dropout(x, 0.5, training=True)
        if h.sum() > 20:
            h = F.dropout(h, 0.25, training=True)
        return h * 2


def test_15_random_numbers_before_and_after_a_branch():
    module = Dropping()
    fn = compiled(module)
    for size in (1.0, 10.0, 1.0, 10.0):
        agrees(fn, module, torch.full((8,), size))


def test_15_a_program_that_seeds_the_generator_itself():
    def seeded(x, seed):
        torch.manual_seed(seed)
        first = torch.rand(2)
        if first.sum() + x.sum() > 1:
            torch.manual_seed(seed + 1)
        state = torch.get_rng_state()
        second = torch.rand(2)
        if second.sum() > 1:
            torch.set_rng_state(state)
        return first, second, torch.rand(1)

    fn = compiled(seeded)
    for seed in (1, 2, 1):
        for start in (0.0, -2.0):
            agrees(fn, seeded, torch.full((1,), start), seed)
    assert graph_of(fn).eager_calls == 0


def test_15_a_call_that_falls_back_draws_the_numbers_of_eager_mode():
    def falling(x):
        x = x + torch.rand(4)
        if x.sum() > 0:
            x = x * torch.rand(4)
            if x.sum() > 1e6:
                x.set_(torch.zeros(4))  # not traced
        return x

    fn = compiled(falling)
    agrees(fn, falling, torch.ones(4))
    agrees(fn, falling, -torch.full((4,), 9.0))
    with pytest.warns(UserWarning, match="calls run eagerly after a condition at .*test_effects.py"):
        agrees(fn, falling, torch.full((4,), 1e9))
    agrees(fn, falling, torch.full((4,), 1e9))
    agrees(fn, falling, torch.ones(4))


def bare(x):
    try:
        y = x * 2 if x.sum() > 0 else x * 3
    except Exception:
        y = x * 100
    return y


def finally_(x):
    try:
        if x.sum() > 0:
            return x * 2
    finally:
        x = x + 1
    return x * 3


def type_error(x):
    try:
        return x * int(x.sum())
    except (TypeError, ValueError):
        return x * 100


class Swallows:
    def __enter__(self):
        return self

    def __exit__(self, *error):
        return True


def with_(x):
    with Swallows():
        if x.sum() > 0:
            return x * 2
    return x * 3


HANDLERS = [bare, finally_, type_error, with_]


@pytest.mark.parametrize("program", HANDLERS)
def test_19_handlers_around_a_branch(program):
    fn = compiled(program)
    for value in (1.0, -1.0, 2.0, -2.0):
        agrees(fn, program, torch.full((2,), value))


class Settings:
    def __init__(self):
        self.a, self.b = 2.0, 3.0


def test_21_branches_that_read_different_attributes_join_again():
    def reads(x, settings):
        y = x * settings.a if x.sum() > 0 else x + settings.b
        if y.max() > 1:
            y = y - 1
        return y

    fn, settings = compiled(reads), Settings()
    for value in (1.0, -1.0, 1.0):
        agrees(fn, reads, torch.full((2,), value), settings)
    settings.a = 5.0
    for value in (1.0, -1.0):
        agrees(fn, reads, torch.full((2,), value), settings)
    settings.b = 9.0
    for value in (1.0, -1.0, 2.0, -2.0):
        agrees(fn, reads, torch.full((2,), value), settings)


def test_22_an_attribute_that_is_read_behind_a_branch_makes_one_more_alternative():
    def late(x, settings):
        if x.sum() > 0:
            return x * settings.a
        return x

    fn, settings = compiled(late), Settings()
    for value in (1.0, -1.0):
        agrees(fn, late, torch.full((2,), value), settings)
    settings.a = 7.0
    agrees(fn, late, torch.ones(2), settings)
    (decision,) = graph_of(fn).decisions
    assert len(decision.edges[True]) == 2 and len(decision.edges[False]) == 1
    explored = len(fn._cache.explored)
    settings.a = 2.0
    agrees(fn, late, torch.ones(2), settings)
    agrees(fn, late, -torch.ones(2), settings)
    assert len(fn._cache.explored) == explored


def test_23_grad_mode_inside_and_around():
    def partly(x, w):
        with torch.no_grad():
            scale = 2.0 if (x * w).sum() > 0 else 3.0
        return x * w * scale

    fn, w = compiled(partly), torch.ones(2, requires_grad=True)
    for value in (1.0, -1.0, 1.0):
        for mode in (torch.enable_grad, torch.no_grad):
            with mode():
                result = fn(torch.full((2,), value), w)
                assert result.requires_grad == torch.is_grad_enabled()
                torch.testing.assert_close(result, partly(torch.full((2,), value), w))


def test_30_a_call_keeps_no_tensor_alive():
    def two(x):
        y = x.sin()
        if y.sum() > 0:
            return y * 2
        return y.cos()

    fn = compiled(two)
    for value in (1.0, -1.0, 1.0, -1.0):
        x = torch.full((3,), value)
        result = fn(x)
        gone = weakref.ref(x), weakref.ref(result)
        del x, result
        gc.collect()
        assert [ref() for ref in gone] == [None, None]


def test_31_inputs_that_overlap_are_computed_in_eager_mode():
    def overlapping(x, y):
        x.add_(1)
        if y.sum() > 0:
            return x + y
        return y

    fn = compiled(overlapping)
    agrees(fn, overlapping, torch.ones(4), torch.ones(4))
    for _ in range(2):
        theirs, ours = torch.ones(4), torch.ones(4)
        expected = overlapping(theirs[1:], theirs[:-1])
        torch.testing.assert_close(fn(ours[1:], ours[:-1]), expected)
        torch.testing.assert_close(ours, theirs)


@dovetail.opaque
def noted(x):
    return x + 1


def test_a_call_of_opaque_code_happens_once():
    def before(x):
        y = noted(x)
        return y * 2 if y.sum() > 0 else y

    def behind(x):
        return noted(x * 2) if x.sum() > 0 else x

    with pytest.raises(TracedValueError, match=r"it cannot be cut there: .*noted has an effect of its own"):
        compiled(before)(torch.ones(2))
    fn = compiled(behind)
    with pytest.warns(UserWarning, match="noted has an effect of its own"):
        agrees(fn, behind, torch.ones(2))
    agrees(fn, behind, -torch.ones(2))
    agrees(fn, behind, torch.ones(2))
    assert graph_of(fn).eager_calls == 2


def test_23_autocast_inside_and_around():
    def mixed(x, w):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ w
            if y.sum() > 0:
                y = y @ w
        return y @ w.to(y.dtype)

    def plain(x, w):
        return (x @ w) @ w if (x @ w).sum() > 0 else x @ w

    def off(x, w):
        with torch.autocast("cpu", enabled=False):
            y = x @ w
        if y.sum() > 0:
            with torch.autocast("cpu", enabled=False):
                y = torch.softmax(y @ w, -1)
        return y, y @ w

    for program in (mixed, plain, off):
        fn = compiled(program)
        for value in (1.0, -1.0, 1.0):
            for enabled in (False, True):
                with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
                    x, w = torch.full((2, 2), value), torch.ones(2, 2)
                    torch.testing.assert_close(fn(x, w), program(x, w))


def test_a_tensor_of_the_same_segment_gets_another_shape():
    def shaped(x):
        y = x * 2
        if x.sum() > 0:
            z = y + 1
            z.unsqueeze_(0)
            return (z + y).t_() if z.sum() > 10 else z
        return y

    fn = compiled(shaped)
    for seed in range(8):
        agrees(fn, shaped, torch.randn(4, generator=torch.Generator().manual_seed(seed)) * 3)
    assert graph_of(fn).eager_calls == 0


def test_a_tensor_of_an_earlier_segment_gets_another_shape_in_eager_mode():
    def shaped(x):
        y = x * 2
        if x.sum() > 0:
            y.unsqueeze_(0)
        return y + 1

    fn = compiled(shaped)
    with pytest.warns(UserWarning, match="unsqueeze_"):
        for start in (1.0, -1.0, 1.0):
            agrees(fn, shaped, torch.full((2,), start))

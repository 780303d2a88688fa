"""Which values share storage: views in decompositions, chains of views, and lines that are views as a whole."""

from __future__ import annotations

import torch

import dovetail
from dovetail.trace.aliases import is_view, root_of, storage_roots, view_bases, views_in


def test_views_are_seen_inside_composites_and_lead_to_the_value_that_owns_the_memory():
    trace = dovetail.make_trace(lambda x: torch.sin(x).t().unsqueeze(0) + 1)(torch.ones(2, 3))
    sine, transposed, unsqueezed, total = trace.lines
    bases = view_bases(trace.lines)

    assert root_of(unsqueezed.out, bases) is root_of(transposed.out, bases) is sine.out
    assert root_of(total.out, bases) is total.out
    assert [view.out for view in views_in(transposed)] == [transposed.out] and not list(views_in(sine))


def test_a_composite_that_computes_is_no_view_and_owns_its_result():
    trace = dovetail.make_trace(lambda x, w: torch.nn.functional.linear(x, w))(torch.ones(2, 3), torch.ones(4, 3))
    (linear,) = trace.lines

    assert not is_view(linear) and storage_roots(trace, trace.lines)[linear.out] is linear.out


def test_storage_roots_follow_views_to_an_input():
    trace = dovetail.make_trace(lambda x: x.t()[0])(torch.ones(2, 3))

    assert all(is_view(line) for line in trace.lines)
    assert storage_roots(trace, trace.lines)[trace.lines[-1].out] is trace.inputs[0]

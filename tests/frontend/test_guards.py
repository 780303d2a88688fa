"""Guards: a kind of guard is one row of a table, and the prim that the row names."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import dovetail
from dovetail.errors import Unsupported
from dovetail.frontend.guards.guard import KINDS, Guard, Kind, Miss
from dovetail.frontend.guards.overlap import memory_overlap
from dovetail.frontend.guards.prologue import prologue
from dovetail.frontend.guards.source import Sources
from dovetail.prims.guard import GUARD
from dovetail.prims.op import Tag, prim
from dovetail.trace import Trace, to_callable


@prim(tags=GUARD)
def check_even(x, *, miss):
    """Check that x is even."""


@check_even.python
def check_even_python(target, x, *, miss):
    return f"if {x} % 2: return {miss}"


def test_a_kind_of_guard_is_one_row_and_a_prim(monkeypatch):
    monkeypatch.setitem(KINDS, "even", Kind("even", "{s} is even", "{s} is no longer even", check_even, lambda value: {}))
    sources = Sources()
    guard = Guard("even", sources.item(sources.arg("args"), 0))
    guarded = to_callable(prologue([guard], [], [], Trace(), run=lambda: "the result"))
    assert str(guard) == "args[0] is even"
    assert guarded((4,), {}) == "the result"
    miss = guarded((5,), {})
    assert type(miss) is Miss and miss.reason == "args[0] is no longer even"


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_row_names_a_check_and_its_sentences(kind):
    assert Tag.GUARD in kind.prim.tags
    for sentence in (kind.fact, kind.broken):
        assert "{s}" in sentence or kind.name == "condition"  # the text of a condition names the sources
        assert sentence.format(s="the source", v="value", n="name", t="type") != sentence


def add_in_place(a, b):
    a += 1
    return a + b.sum()


DISJOINT = {
    "rows": lambda c: (c[:2], c[2:]),
    "columns, one between the other": lambda c: (c[:, 0], c[:, 1]),
    "every other row": lambda c: (c[::2], c[1::2]),
}


@pytest.mark.parametrize("parts", DISJOINT.values(), ids=DISJOINT)
def test_parts_of_one_buffer_that_share_no_element_are_written(parts):
    compiled, ours, theirs = dovetail.jit(add_in_place), torch.zeros(4, 2), torch.zeros(4, 2)
    for _ in range(3):
        torch.testing.assert_close(compiled(*parts(ours)), add_in_place(*parts(theirs)))

    assert torch.equal(ours, theirs) and compiled.cache_info().programs == 1


def test_parts_of_one_buffer_that_share_an_element_are_refused_in_every_call():
    compiled, c = dovetail.jit(add_in_place), torch.zeros(4, 2)
    compiled(c[:2], c[2:])

    with pytest.raises(dovetail.errors.Unsupported, match=r"writes into an argument .* that shares memory with another tensor"):
        compiled(c[:2], c[1:3])
    assert torch.equal(c, torch.tensor([[1.0, 1.0], [1.0, 1.0], [0.0, 0.0], [0.0, 0.0]]))


def test_many_slices_of_a_flat_buffer_are_compared_in_order():
    flat = torch.zeros(3000)
    parts = flat.split(3)

    assert not memory_overlap(parts[:400], parts[400:])
    assert memory_overlap(parts[:400], (*parts[400:], flat[1199:1201]))


@settings(max_examples=300)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 4), st.integers(1, 12), st.integers(1, 4), st.integers(1, 12)), min_size=2, max_size=4))
def test_overlap_is_whether_elements_have_one_place(rows):
    buffer = torch.arange(200)
    tensors = [buffer.as_strided((m, n), (s, t), offset) for offset, m, s, n, t in rows]
    places = [set(x.flatten().tolist()) for x in tensors]
    shared = any(places[0] & other for other in places[1:])

    assert memory_overlap((tensors[0],), tuple(tensors[1:])) == shared


def _layouts():
    dense = torch.eye(4)
    compressed = [dense.to_sparse_csr(), dense.to_sparse_csc(), dense.to_sparse_bsr((2, 2)), dense.to_sparse_bsc((2, 2))]
    return [*compressed, dense.to_sparse(), torch.nested.nested_tensor([dense, dense]), torch.quantize_per_tensor(dense, 0.1, 0, torch.qint8)]


@pytest.mark.filterwarnings("ignore:.*(Sparse|nested tensors|quantiz)")
@pytest.mark.parametrize("count", [1, 12])
def test_a_tensor_of_another_layout_after_a_dense_one_is_refused_as_at_first(count):
    compiled = dovetail.jit(lambda *xs: sum(x * 2 for x in xs))
    dense = [torch.randn(4, 4) for _ in range(count)]
    for x in _layouts():
        compiled(*dense)
        with pytest.raises(Unsupported, match="not traced"):
            compiled(*dense[1:], x)
    torch.testing.assert_close(compiled(*dense), sum(x * 2 for x in dense))

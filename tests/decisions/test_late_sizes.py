"""Sizes that depend on values and differ at every call: symbols, so that a bounded number of compilations runs them all."""

from __future__ import annotations

import random
import re
import warnings
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import torch
from decisions.helpers import agrees, compiled, graph_of
from decisions.random_programs import difference

import dovetail
from dovetail.compiler.decisions import SegmentCompiler
from dovetail.frontend.decisions.graph import Graph


def picked(x):
    m = x > 0
    return x[m] * 2 + 1, x[m].exp().sum(), torch.masked_select(x, ~m), m.sum()


def routed(x):
    y, best = torch.zeros_like(x), x.argmax(-1)
    for e in range(3):
        rows = torch.where(best == e)[0]
        y[rows] += torch.tanh(x[rows] @ x.T[:, rows].sum(1, keepdim=True)) * (e + 1)
    return y


def leaving(x):
    alive, out = torch.arange(x.shape[0]), torch.zeros_like(x)
    for _ in range(3):
        x = torch.tanh(x * 1.5)
        done = x.abs().max(-1).values > 0.9
        out[alive[done]] = x[done]
        x, alive = x[~done], alive[~done]
        if x.shape[0] == 0:
            break
    out[alive] = x
    return out


def counted(x):
    values, counts = torch.unique(x.round(), return_counts=True)
    places = torch.nonzero(x > 0)
    return values * counts, places, places.shape[0] * 2, torch.bincount(x.abs().long().flatten())


@pytest.mark.parametrize(("fn", "most"), [(picked, 2), (routed, 7), (leaving, 6), (counted, 3)])
@pytest.mark.parametrize("executors", [["torch"], None])
def test_8_sizes_that_differ_at_every_call_compile_a_few_times(fn, most, executors):
    jitted, generator = compiled(fn, executors=executors), torch.Generator().manual_seed(0)
    for rows in range(10):
        agrees(jitted, fn, torch.randn(8, 3, generator=generator) * (1 + rows % 3))
    graph = graph_of(jitted)
    assert graph.eager_calls == 0 and not graph.warned and jitted.cache_info().misses <= most


def test_8_gradients_through_sizes_that_differ():
    fn, misses = compiled(picked), []
    for seed in range(8):
        x = torch.randn(9, generator=torch.Generator().manual_seed(seed))
        grads = []
        for call in (picked, fn):
            leaf = x.clone().requires_grad_()
            sum([part.sum() for part in call(leaf)[:3]]).backward()
            grads.append(leaf.grad)
        torch.testing.assert_close(grads[1], grads[0])
        misses.append(fn.cache_info().misses)
    assert misses[-1] == misses[2] and graph_of(fn).eager_calls == 0


def test_results_of_one_line_may_have_other_dimensions():
    def fn(x, v, w):
        m = x > 0
        a, b, c = x[m], v[m], w[m]
        return a * b.sum(-1), c.T

    jitted = compiled(fn)
    for seed in range(8):
        x = torch.randn(3, generator=torch.Generator().manual_seed(seed))  # also none or one is left
        agrees(jitted, fn, x, x[:, None] + torch.arange(3), x[:, None] * torch.arange(2 + seed % 3))


def test_what_a_program_assumes_of_a_size_is_checked_where_it_is_known():
    def judged(x):
        y = x[x > 0]
        if y.shape[0] > 5:
            return y.sum()
        z = y * 2 if y.shape[0] + 3 == x.shape[0] else y - 1
        return z.numel(), z if x[0] > 5 else z + 1

    def ones(n):
        return torch.cat([torch.ones(n), -torch.ones(8 - n)])

    fn = compiled(judged)
    for n in (2, 3, 5, 6, 4, 0, 1):
        agrees(fn, judged, ones(n))
    misses = fn.cache_info().misses
    for n in (4, 7, 3, 8, 5, 2):
        agrees(fn, judged, ones(n))
    assert fn.cache_info().misses == misses and graph_of(fn).eager_calls == 0
    assert len([edge for d in graph_of(fn).decisions for edges in d.edges.values() for edge in edges if edge.conditions]) == 3


def test_what_follows_a_decision_is_traced_behind_the_path_that_was_known_whatever_the_sizes_of_the_call():
    def halves(x, t):
        m = x[x > 0]
        if m.shape[0] * 2 <= x.shape[0]:
            y = m.sum() * 2 if x[0] < 5 else m.sum() * 4
        else:
            y = m.sum() * 3
        del m
        return y + x[: x.shape[0] // 2] if t > 0 else y - x[1:]

    fn = compiled(halves, dynamic=True)
    warnings.filterwarnings("error", ".*does not do the same twice")
    for rows, positive, t in [(8, 2, 1), (8, 3, 1), (9, 3, 1), (4, 2, -1), (5, 4, 1), (9, 6, -1), (8, 3, -1), (4, 2, -1)]:
        agrees(fn, halves, torch.cat([torch.ones(positive), -torch.ones(rows - positive)]), torch.tensor(t))
    assert graph_of(fn).eager_calls == 0


def test_a_size_that_is_needed_as_an_int_has_an_outcome_for_each_value():
    def unrolled(x):
        total = torch.zeros(())
        for row in x[x > 0]:
            total = total + row
        return total, [float(n) for n in range(len(x[x > 1]))]

    fn = compiled(unrolled)
    for n in (2, 3, 2, 3):
        agrees(fn, unrolled, torch.cat([torch.full((n,), 1.5), torch.full((5 - n,), -1.0)]))
    graph = graph_of(fn)
    assert graph.eager_calls == 0 and graph.sizes.static and max([len(d.edges) for d in graph.decisions]) == 2


def test_a_number_that_is_a_size_is_a_symbol_once_it_differs():
    def cut(x, lengths):
        n = int(lengths.max())
        inside = torch.arange(n) < lengths[:, None]
        return (x[:, :n] * inside).sum(-1), x[0].topk(n).values, torch.zeros(n, 2), x[0, n - 1], n / 2, {n: n}.get(3)

    fn, generator = compiled(cut), torch.Generator().manual_seed(0)
    for _ in range(8):
        lengths = torch.randint(2, 9, (3,), generator=generator)
        agrees(fn, cut, torch.randn(3, 9, generator=generator), lengths)
    decisions = graph_of(fn).decisions
    assert graph_of(fn).eager_calls == 0 and sum([len(d.edges) for d in decisions if d.place is not None]) <= 2


WINDOWS = {
    "to a number": lambda x, n: x[:n] * 2,
    "from a number": lambda x, n: x[n:] * 2,
    "the last ones": lambda x, n: x[-n:] * 2,
    "all but the last ones": lambda x, n: x[:-n] * 2,
    "of columns": lambda x, n: x[:, n - 1] * 2 + x[0, : n + 1].sum(),
    "a few from a number": lambda x, n: x[..., n : n + 3] * 2,
    "written": lambda x, n: x.clone().fill_diagonal_(n)[:n].zero_() + n,
    "in a list": lambda x, n: x[[0, n]] + x[:, [n, 1]].sum(),
    "narrowed": lambda x, n: x.narrow(0, n, 2) * 2,
}


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("outside", [False, True])
def test_a_window_is_compiled_once_for_all_numbers_from_2_on(name, outside):
    def window(x, n):
        return WINDOWS[name](x, n if outside else n.item())

    fn, x = compiled(window), torch.randn(12, 12)
    for n in (7, 3, 9, 5, 2, 8, 4, 6):
        agrees(fn, window, x, n if outside else torch.tensor(n))
    assert fn.cache_info().misses <= 3


def test_a_random_window_is_compiled_for_few_places():
    def crop(x, size):
        top, left = random.randint(0, x.shape[0] - size), random.randint(0, x.shape[1] - size)
        return x[top : top + size, left : left + size] * 2

    fn, x = compiled(crop), torch.randn(24, 24)
    for seed in range(12):
        random.seed(seed)
        expected = crop(x, 8)
        random.seed(seed)
        torch.testing.assert_close(fn(x, 8), expected)
    assert fn.cache_info().misses <= 6 and graph_of(fn).eager_calls == 0


def test_a_number_in_a_shape_that_is_joined_is_a_symbol_once_it_differs():
    def pooled(x, groups):
        count = int(groups.max()) + 1
        return x.new_zeros(x.size()[:0] + (count,) + x.size()[1:]).index_add_(0, groups, x), (1, *x.shape) + (count,)

    fn, generator = compiled(pooled), torch.Generator().manual_seed(0)
    for count in (2, 3, 5, 4, 6):
        groups = torch.randint(0, count, (6,), generator=generator)
        groups[0] = count - 1
        agrees(fn, pooled, torch.randn(6, 4, generator=generator), groups)
    assert graph_of(fn).eager_calls == 0 and sum([len(d.edges) for d in graph_of(fn).decisions if d.place is not None]) <= 2


def scaled(x, y, flag):
    z = x + y
    if flag > 0:
        z = z * z.shape[0]
    return z[z > 0].sum(), torch.cat([x, y]), z.shape[0] * 2, y[:2] if z.shape[0] > 6 else y


@pytest.mark.parametrize(("dynamic", "programs"), [(True, 1), (None, 2), (False, 5)])
def test_sizes_of_arguments_are_symbols_where_they_change(dynamic, programs):
    fn = compiled(scaled, dynamic=dynamic)
    for n in (4, 5, 9, 7, 6):
        for sign in (1.0, -1.0):
            agrees(fn, scaled, torch.linspace(-1, 2, n), torch.ones(n), torch.tensor(sign))
    assert fn.cache_info().programs == programs


@pytest.mark.parametrize("dynamic", [True, None])
def test_an_argument_that_is_read_late_and_one_whose_size_is_needed_as_an_int(dynamic):
    def late(x, y):
        if x.sum() > 0:
            return y * 2, [float(i) for i in range(len(x))]
        return x

    fn = compiled(late, dynamic=dynamic)
    with pytest.warns(UserWarning) as caught:
        for n in (3, 4, 5, 6, 3):
            agrees(fn, late, torch.ones(n), torch.ones(n + 1))
            agrees(fn, late, -torch.ones(n), torch.ones(n + 1))
    (sentence,) = [str(each.message) for each in caught]
    assert re.search(r"args\[0\]\.shape\[0\] is compiled for each value, since .*test_late_sizes.py:\d+ needs it as a plain number", sentence)


def needs_rows_after_a_value(x):
    return x * 2 if x.sum() > 0 else sum([x[i] for i in range(x.shape[0])])


def needs_rows_before_a_value(x):
    rows = sum([x[i] for i in range(x.shape[0])])
    return rows if rows.sum() > 0 else x


def needs_rows(x):
    return sum([x[i] for i in range(x.shape[0])])


@pytest.mark.parametrize("function", [needs_rows, needs_rows_before_a_value, needs_rows_after_a_value])
def test_a_warning_of_sizes_is_at_the_line_of_the_call(function):
    fn = compiled(function, dynamic=True)

    def call(x):
        return fn(x)

    with pytest.warns(UserWarning, match="is compiled for each value") as caught:
        call(torch.ones(4, 3))
        call(-torch.ones(4, 3))
    places = {(each.filename, each.lineno) for each in caught if "is compiled for each value" in str(each.message)}
    assert places == {(__file__, call.__code__.co_firstlineno + 1)}


def test_a_number_of_parts_leaves_their_sizes_symbols():
    def halves(x, t):
        parts = []
        for part in x.chunk(2):
            parts.append(part * len(x) if part.sum() > t else part / len(part))
        return torch.cat(parts), [row.sum() for row in x[x > 0].chunk(3)]

    fn, generator = compiled(halves, dynamic=True), torch.Generator().manual_seed(0)
    warnings.filterwarnings("error", ".*is compiled for each value")
    for n in (16, 22, 18, 17, 30, 41):
        for t in (-1.0, 1.0):
            agrees(fn, halves, torch.randn(n, generator=generator), torch.tensor(t))
    assert fn.cache_info().programs == 1 and graph_of(fn).eager_calls == 0


def test_an_argument_of_another_size_that_is_not_read_behind_a_decision():
    def unread(x, y):
        y = y * 2
        total = y.sum()
        return x + 1 if total > 0 else x.view(-1)

    fn = compiled(unread)
    for n in (3, 4, 5, 6, 3):
        agrees(fn, unread, torch.ones(n), torch.ones(n + 1))
        agrees(fn, unread, torch.ones(n), -torch.ones(n + 1))
    assert graph_of(fn).eager_calls == 0


@pytest.mark.parametrize("program", [lambda x, t: x * t.mean(), lambda x, t: (x.softmax(0) * t).sum() / x.var()])
def test_a_size_that_has_become_an_int_behind_a_decision(program):
    def met(x, box):
        y = x * x.mean()
        if y.sum() > 0:
            y = y * 2
        return program(y, box.t)

    fn = compiled(met)
    for n in (3, 4, 5, 5, 4):
        x, box = torch.linspace(-1, 2, n), SimpleNamespace(t=torch.arange(float(n)))
        torch.testing.assert_close(fn(x, box), met(x, box))
    assert graph_of(fn).eager_calls == 0


@pytest.mark.parametrize("grad", [False, True])
def test_32_random_programs_with_late_sizes(grad):
    for seed in (*range(3), 119, 189, 191, 247):  # these read a tensor behind a decision, whose shape changes between calls
        assert (text := difference(seed, grad, sizes=True, shapes=bool(seed % 2))) is None, text


@pytest.mark.slow
@pytest.mark.parametrize("grad", [False, True])
def test_32_many_random_programs_with_late_sizes(grad):
    for seed in range(100, 250):
        assert (text := difference(seed, grad, sizes=True, shapes=bool(seed % 2))) is None, text


def test_8_an_operator_of_the_users_with_a_size_that_depends_on_values():
    @torch.library.custom_op("dovetail_tests::positive", mutates_args=())
    def positive(t: torch.Tensor) -> torch.Tensor:
        return t[t > 0].clone()

    positive.register_fake(lambda t: t.new_empty(torch.library.get_ctx().new_dynamic_size()))

    def fn(x):
        return positive(x * 2) + 1

    jitted = compiled(fn)
    for seed in range(6):
        agrees(jitted, fn, torch.randn(9, generator=torch.Generator().manual_seed(seed)))
    assert graph_of(jitted).eager_calls == 0 and jitted.cache_info().misses <= 2


def test_26_threads_with_different_sizes():
    fn, generator = compiled(leaving), torch.Generator().manual_seed(0)
    calls = [torch.randn(6 + i % 3, 3, generator=generator) for i in range(16)]
    with ThreadPoolExecutor(4) as pool, warnings.catch_warnings():
        warnings.simplefilter("error")
        for result, x in zip(pool.map(fn, calls), calls, strict=True):
            torch.testing.assert_close(result, leaving(x))


def test_8_results_with_names_keep_them():
    def solved(a, b):
        fit = torch.linalg.lstsq(a, b)
        return fit.solution * 2 if fit.solution.sum() > 0 else fit.residuals

    jitted = compiled(solved)
    for seed in range(4):
        generator = torch.Generator().manual_seed(seed)
        agrees(jitted, solved, torch.randn(4, 3, generator=generator), torch.randn(4, 2, generator=generator))
    assert graph_of(jitted).eager_calls == 0


@pytest.mark.parametrize("trial", ["off", "first"])
def test_code_for_a_segment_does_not_use_what_later_segments_assume(trial):
    """A tensor that is read behind the decision has a plain length, which the length of x then equals in this path, not in others."""

    class Box:
        pass

    def fn(x, box):
        c, d = x * x.mean(), x * 3
        if d.sum() > -1e9:
            c = c + box.t
        return c, (x * torch.ones_like(x)).sum()

    def call(f, n, seed):
        torch.manual_seed(seed)
        leaf, box = torch.randn(n, requires_grad=True), Box()
        box.t = torch.randn(n)
        c, total = f(leaf * 1, box)
        (c.sum() + total * 0).backward()
        return c, total, leaf.grad

    with dovetail.use(trial=trial):
        compiled = dovetail.jit(fn, decisions="graph", executors=["torch"])
        for seed, n in enumerate((4, 6, 8, 4, 6, 8, 8, 6, 4, 6)):
            torch.testing.assert_close(call(compiled, n, seed), call(fn, n, seed))


def test_the_first_call_does_not_start_over_for_each_size_that_differs_in_it(monkeypatch):
    def levels(x):
        total, rows = torch.zeros(()), []
        for i in range(4):
            kept = x[x > i / 4]
            order = kept[kept < 0.9].sort().values
            total = total + order.sum() * (i + 1)
            rows.append(kept * 2)
        return total, torch.cat(rows)

    began = []
    monkeypatch.setattr(Graph, "call", lambda graph, *args, call=Graph.call: began.append(graph) or call(graph, *args))
    fn, generator, begun = compiled(levels), torch.Generator().manual_seed(0), []
    for _ in range(8):
        agrees(fn, levels, torch.rand(24, generator=generator))
        begun.append(len(began))
    assert begun[0] == 1, "the first call went on with ints"
    assert begun[-1] == begun[-3] + 2 and graph_of(fn).eager_calls == 0, "later ones have symbols for all"


def test_segments_before_a_size_that_becomes_a_symbol_are_not_compiled_again(monkeypatch):
    def cut(x):
        y = torch.tanh(x) * 3
        return y[y > 0].exp()

    compiled_segments = []
    segment = SegmentCompiler.segment
    monkeypatch.setattr(SegmentCompiler, "segment", lambda self, trace, *more: compiled_segments.append(trace) or segment(self, trace, *more))
    fn = compiled(cut)
    for count in (3, 4, 5):
        agrees(fn, cut, torch.cat([torch.ones(count), -torch.ones(8 - count)]))
    names = [[line.symbol.name for line in trace.lines] for trace in compiled_segments]
    assert sum(["tanh" in each for each in names]) == 1 and sum(["exp" in each for each in names]) == 2


def test_a_size_that_a_segment_fixes_is_read_where_a_decision_keeps_it():
    """The backward of the slices that the loop takes fixes the size; the text is compared in the middle of an operation, which keeps all."""

    def chunks(x):
        y, sums = x * 1.0, []
        while 2 * len(sums) + 2 <= y.shape[0]:
            sums.append(y[2 * len(sums) : 2 * len(sums) + 2].sum())
        return sums if str(y.sum() > 0) == "tensor(True)" else [y]

    fn = compiled(chunks)
    for rows in (3, 5, 7, 5):
        x, y = (torch.linspace(-1, 2, 4 * rows).view(rows, 4).requires_grad_() for _ in range(2))
        seen, expected = fn(x), chunks(y)
        torch.testing.assert_close(seen, expected)
        sum(each.sum() for each in seen).backward()
        sum(each.sum() for each in expected).backward()
        torch.testing.assert_close(x.grad, y.grad)

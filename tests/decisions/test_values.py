"""Every way in which Python needs a value of a traced tensor: the result is eager's."""

from __future__ import annotations

import collections
import dataclasses
import json
import math
import sys
import warnings

import pytest
import torch
from decisions.helpers import agrees, compiled, graph_of
from decisions.random_programs import difference
from interpreter.test_values import ASKED, RIGHT, WRITTEN, X, function

from dovetail.errors import TracedValueError

REFUSED = {"round(r)"}
PROGRAMS = [program for program in (*ASKED, *RIGHT, *WRITTEN) if "empty" not in program]


@pytest.mark.parametrize("program", [program for program in PROGRAMS if program not in REFUSED])
def test_27_expressions_agree_with_eager_mode(program):
    eager = function(program)
    fn = compiled(eager)
    warnings.filterwarnings("error", "f: calls run eagerly")
    for n, r in ((3, 2.5), (2, 1.5), (3, 2.5)):
        args = X, torch.tensor(n), torch.tensor(r)
        torch.manual_seed(0)
        try:
            expected = eager(*args)
        except Exception as error:
            with pytest.raises(type(error)):
                fn(*args)
            continue
        torch.manual_seed(0)
        result = fn(*args)
        assert type(result) is type(expected)
        if isinstance(expected, torch.Tensor):
            torch.testing.assert_close(result, expected)
        else:
            assert repr(result) == repr(expected)


@pytest.mark.parametrize("program", sorted(REFUSED))
def test_27_what_cannot_be_cut_is_refused(program):
    with pytest.raises(TracedValueError, match=r"choose with torch\.where"):
        compiled(function(program))(X, torch.tensor(3), torch.tensor(2.5))


def test_lists_of_tensors_hold_numbers_of_the_program():
    def listed(x):
        (a, b), total = x[:2, None].expand(2, 2).tolist(), torch.linalg.lstsq(x.diag() + 1, x).solution.tolist()
        return torch.tensor([b[0], 1.0]) * a[0] + (total[0] if a[1] > 0 else total[-1]), x.repeat(30).tolist()[-1]

    fn = compiled(listed)
    warnings.filterwarnings("error", "listed: calls run eagerly")
    for start in (1.0, -2.0, 3.0):
        agrees(fn, listed, torch.linspace(start, start + 3, 3))


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
def test_packed_sequences(kind):
    torch.manual_seed(0)
    layer = kind(3, 2, num_layers=2, batch_first=True, bidirectional=True)

    def run(x, lengths):
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        out, state = layer(packed)
        return torch.nn.utils.rnn.pad_packed_sequence(out, batch_first=True), state

    fn = compiled(run)
    warnings.filterwarnings("error", "run: calls run eagerly")
    for lengths in ([4, 2, 3], [1, 4, 4], [4, 2, 3]):
        x, y = (torch.linspace(0, 1, 36).view(3, 4, 3).requires_grad_() for _ in range(2))
        (ours, mine), _ = fn(x, torch.tensor(lengths))
        (theirs, other), _ = run(y, torch.tensor(lengths))
        torch.testing.assert_close((ours, mine), (theirs, other))
        ours.square().sum().backward()
        theirs.square().sum().backward()
        torch.testing.assert_close(x.grad, y.grad)


def test_8_operations_with_results_of_unknown_shape():
    def shapes(x):
        picked, where = x[x > 0], torch.nonzero(x)
        (rows,) = torch.where(x > 1)
        kinds = torch.unique(x.round())
        return picked * 2, where + 1, rows, kinds, torch.masked_select(x, x < 0), picked.shape[0]

    fn = compiled(shapes)
    for start in (-1.0, -2.0, -1.0, 3.0, -9.0):
        agrees(fn, shapes, torch.linspace(start, start + 3, 6))


def test_28_a_number_as_key_size_bound_and_factor():
    def used(x, n):
        n = n.item()
        table = {n: x * 2}
        table[n + 1] = x
        parts = [x] * n
        return table[n], table.get(n + 1), parts[n - 1], x[:n], x.new_zeros(n), len(f"{n:03}"), n in {3, 5}

    fn = compiled(used)
    for n in (2, 3, 2):
        agrees(fn, used, torch.ones(4), torch.tensor(n))


def generated(x):
    def parts():
        for i in range(3):
            if x[i] > 0:
                yield x * i

    return list(parts())


def ordered(x):
    return sorted([x[0], x[1], x[2]], key=lambda t: float(t))[0]


class Holder:
    def choose(self, x):
        return x * 2 if x.sum() > 0 else x - 1


def method(x):
    return Holder().choose(x) + 1


def closure(x):
    def inner():
        nonlocal x
        if x.sum() > 0:
            x = x + 1
        return x

    return inner() * inner()


@pytest.mark.parametrize("program", [generated, ordered, method, closure])
def test_20_a_branch_in_a_generator_a_sort_a_method_and_a_closure(program):
    fn = compiled(program)
    for signs in ([1.0, 1, 1], [1, -1, 1], [-1, -2, -3], [3, 2, 1], [1, -1, 1]):
        agrees(fn, program, torch.tensor(signs))


@pytest.mark.parametrize("grad", [False, True])
def test_32_random_programs(grad):
    for seed in (*range(10), 515, 588):  # 515 writes what it viewed before a decision, 588 comes to one that read a tensor behind the one before
        assert (text := difference(seed, grad)) is None, text


@pytest.mark.parametrize("grad", [False, True])
def test_32_random_programs_in_contexts(grad):
    for seed in range(12):
        assert (text := difference(seed, grad, contexts=True)) is None, text


def test_32_random_programs_with_transforms():
    for seed in range(6):
        assert (text := difference(seed, True, transforms=True)) is None, text


@pytest.mark.slow
@pytest.mark.parametrize("grad", [False, True])
def test_32_many_random_programs_with_transforms(grad):
    for seed in range(100, 300):
        assert (text := difference(seed, grad, sizes=seed % 2 == 1, contexts=seed % 3 == 0, transforms=True)) is None, text


@pytest.mark.slow
@pytest.mark.parametrize("grad", [False, True])
def test_32_many_random_programs_in_contexts(grad):
    for seed in range(100, 400):
        assert (text := difference(seed, grad, sizes=seed % 2 == 1, contexts=True)) is None, text


@pytest.mark.slow
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("first", range(100, 1000, 100))
def test_32_many_random_programs(first, grad):
    for seed in range(first, first + 100):
        assert (text := difference(seed, grad)) is None, text


def text_of(x):
    s = f"{x.sum().item():.1f}"
    error = ValueError(s)
    parts = s.upper(), s[0], "1" in s, s == "6.0", {s: 1}, str(error), float(s), s * 2, f"%s|{s}" % s, list(s), hash(s) == 0, s.join(["a", "b"])
    return len(s), *parts, f"{s!r:>10}", str.upper(s), repr(s), repr([s]), f"{[s]}", sorted([s, "a"]), [s, s + "!"], str.join(s, ["a", s])


def listed(x):
    values = x.tolist()
    rows = {"signs": (x > 0).tolist(), 1: (values[0],), "none": []}
    print(values, f"{rows}")
    texts = str(values), repr(rows), f"{values!r:>20}", "{}".format(values), "%s" % values, str(values[:1]), f"{x.view(1, -1).tolist()}"  # noqa: UP031, UP032
    return sum(values) if values[0] > 0 else values, x.repeat(40).tolist()[:2], {0: 1}.get(x.long().tolist()[1], 2), texts


def test_28_lists_of_the_numbers_of_a_tensor(capsys):
    fn = compiled(listed)
    for values in ([1.5, -2.0], [-1.5, 3.0], [0.25, 0.5], [1.5, -2.0], [1.5, -2.0]):
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "listed: the function does not do the same twice")
            assert fn(torch.tensor(values)) == listed(torch.tensor(values))
        first, second = capsys.readouterr().out.splitlines()
        assert first == second


def test_28_numbers_that_a_percent_sign_writes():
    def written(x, n):
        r, k = x.item(), n.item()
        print("loss %.3f at %d%%" % (r, k))  # noqa: UP031
        return "%8.2f|%-8.1e|%+d|%05d|%s|% g|%s" % (r, r, k, k, r, k, "x"), "%s" % r, "%f" % k  # noqa: UP031

    fn = compiled(written)
    for k, r in enumerate((2.5, -1.25, 1e9, float("nan"))):
        assert fn(torch.tensor(r), torch.tensor(k)) == written(torch.tensor(r), torch.tensor(k))
    assert len(fn._cache.entries) == 1 and fn._cache.entries[0].graph is None


@dataclasses.dataclass
class Record:
    loss: float
    step: int


class Named:
    def __init__(self, value):
        self.value = value

    def __str__(self):
        return f"<{self.value:.2f}>"


Pair = collections.namedtuple("Pair", "a b")


def test_28_numbers_that_objects_and_json_write():
    def written(x):
        a, b = x.tolist()
        record, named, pair = Record(a, 1), Named(b), Pair(a, b)
        texts = str(record), f"{record!r}", f"{named}", "{}".format(named), "%s|%r" % (named, record), repr(pair), "%s" % (pair,)  # noqa: UP031, UP032
        return *texts, f"{pair}", "%s %.2f" % pair, float.__repr__(a), int.__repr__(int(b)), json.dumps({"a": [a, b], "b": int(a)})  # noqa: UP031

    fn = compiled(written)
    for values in ([1.5, -2.0], [-1.5, 3.0], [0.25, 1e30], [7.0, 8.5]):
        assert fn(torch.tensor(values)) == written(torch.tensor(values))
    assert graph_of(fn).eager_calls == 0 and fn.cache_info().decisions == 2  # whether each float is finite


def test_28_long_lists_of_numbers_are_outcomes():
    def chosen(x):
        ids = x.tolist()
        return x + 1 if sum(ids) > 50 else x, ids

    fn = compiled(chosen)
    for shift in (0, 1, 0, 1, 1):
        agrees(fn, chosen, torch.arange(100) % 2 * shift)
    assert graph_of(fn).eager_calls == 0 and graph_of(fn).decisions[0].problem is None


def test_28_sets_indices_and_joined_text_of_the_numbers_of_a_tensor():
    def used(x, n):
        values = x.tolist()
        grown = {values[0]}
        grown.update(values)
        k = n.item()
        text = " ".join(f"{name}={value:.1f}" for name, value in {"first": values[0], "k": k}.items())
        assert text == " ".join(["first=" + f"{values[0]:.1f}", "k=" + f"{k:.1f}"])
        return len(set(values)), len(frozenset(values)), 1.0 in set(values), len(grown), x[[k, 0]], x[:, None][[0, k], [0, 0]]

    fn = compiled(used)
    for n, values in enumerate(([1.0, 1.0, 2.0], [1.0, 2.0, 2.0], [2.0, 1.0, 2.0], [1.0, 1.0, 2.0])):
        agrees(fn, used, torch.tensor(values), torch.tensor(n % 3))


def test_28_text_with_a_number_in_it_may_be_read():
    fn = compiled(text_of)
    for value in (2.0, 3.0, 2.0):
        x = torch.full((3,), value)
        assert fn(x) == text_of(x)
    assert graph_of(fn).eager_calls == 0


def test_9_numbers_that_are_accumulated_and_printed_in_a_loop_are_no_decisions(capsys):
    def logged(x):
        total, n = 0.0, torch.tensor(0)
        while x.sum() < 6:
            total += x.sum().item()
            x, n = x + 1, n + 1
        print(f"{total:.2f} after {n} steps, {total / 2:.1f} each")
        return x, total

    fn = compiled(logged)
    for start in (0.0, 1.0, -2.0, 0.5):
        agrees(fn, logged, torch.full((2,), start))
        first, second = capsys.readouterr().out.splitlines()
        assert first == second
    assert len(fn._cache.explored) <= 3


def test_14_an_error_of_arithmetic_comes_where_it_does_in_eager_mode(capsys):
    def divided(x):
        x.add_(1)
        print("before")
        return 1 / x[0].item() if x.sum() > 0 else 0

    fn = compiled(divided)
    agrees(fn, divided, torch.ones(2))
    for _ in range(2):
        x = torch.tensor([-1.0, 3.0])
        capsys.readouterr()
        with pytest.raises(ZeroDivisionError):
            fn(x)
        assert x[0] == 0 and capsys.readouterr().out == "before\n"


def test_14_an_error_of_arithmetic_that_the_program_handles():
    def handled(x):
        parts = []
        for n in x.tolist():
            try:
                parts.append(12 // n)
            except ZeroDivisionError as error:
                parts.append(str(error))
        return parts

    fn = compiled(handled)
    for values in ([1, 0], [2, 3], [0, 0], [1, 0]):
        assert fn(torch.tensor(values)) == handled(torch.tensor(values))
    assert graph_of(fn).eager_calls == 0


def test_14_floats_whose_errors_the_program_handles():
    def handled(x):
        try:
            perplexity = math.exp(x.sum().item())
        except OverflowError:
            perplexity = float("inf")
        parts = [perplexity]
        for i in range(2):
            try:
                parts += [math.log(x[i].item()), *divmod(7, x[i].item()), int(x[i].item())]
            except (ValueError, ZeroDivisionError) as error:
                parts.append(type(error).__name__)
        return parts

    fn = compiled(handled)
    for values in ([1.5, 2.0], [2.5, 0.0], [-1.0, 3.0], [400.0, 400.0], [0.5, 0.25], [1.5, 7.0], [1.25, 9.0]):
        assert repr(fn(torch.tensor(values))) == repr(handled(torch.tensor(values)))
    assert graph_of(fn).eager_calls == 0


def test_14_a_handler_of_other_errors_needs_no_number():
    def guarded(x):
        try:
            return x * (12 // int(x.sum().item()))
        except (TypeError, KeyError):
            return x
        finally:
            x.shape  # noqa: B018

    fn = compiled(guarded)
    for value in (1.0, 2.0, 3.0):
        x = torch.full((3,), value)
        assert torch.equal(fn(x), guarded(x))
    assert graph_of(fn).eager_calls == 0 and fn.cache_info().decisions == 0
    with pytest.raises(ZeroDivisionError):
        fn(torch.zeros(3))


def test_the_recursion_limit_that_a_program_reads_is_its_own():
    def limited(x):
        return x + sys.getrecursionlimit() if x.sum() > 0 else x

    fn = compiled(limited)
    for start in (1.0, -1.0, 2.0):
        agrees(fn, limited, torch.full((2,), start))
    assert graph_of(fn).eager_calls == 0


def grouped(x):
    groups, named, seen = {}, collections.defaultdict(list), set()
    for i in range(3):
        groups.setdefault(int(x[i]), []).append(i)
        named[x[i].item() > 0].append(i)
        seen.add(int(x[i]))
    groups.update([(int(x[3]), []), (x[0].item() > 9, [1])])
    seen.discard(int(x[1]))
    return groups, dict(named), sorted(seen), groups.pop(int(x[3])), groups.get(int(x[1]), x.shape)


def test_28_numbers_are_keys_of_methods():
    fn = compiled(grouped)
    for values in ([1.0, 1, 2, 3], [2.0, 1, 1, 5], [1.0, 1, 2, 3], [-1.0, 0, -1, 0]):
        assert fn(torch.tensor(values)) == grouped(torch.tensor(values))


def conversions(x):
    total, share = x.sum(), (x > 0).float().mean()
    return (
        "%d%% %.2f %s" % (share * 100, x[0], x.shape),  # noqa: UP031
        "%d|%5.1f|%-6.2f|%+e|%i|%u" % (total, x[0], x[1], x[2], (x > 0).sum(), 3),  # noqa: UP031
        "%(loss).3f and %(share)d%% %(name)s" % {"loss": total, "share": share.item(), "name": "x"},  # noqa: UP031
        "%s %.1f" % (x.shape, total.item()),  # noqa: UP031
        "%G" % total,  # noqa: UP031
    )


def test_9_numbers_are_written_by_conversions():
    fn = compiled(conversions)
    for values in ([1.0, 1, 2, 3], [-2.5, 1, 1, 5], [1e10, 1, 2, 3]):
        assert fn(torch.tensor(values)) == conversions(torch.tensor(values))
    assert fn.cache_info().misses == 1 and fn.cache_info().decisions == 0


def nonzero_into(x, out):
    places = torch.nonzero(x, out=out)
    places.add_(1)
    return places, out * 2, places is out


def selected_into(x, out):
    torch.masked_select(x, x > 0, out=out)
    return out.mul_(2)


def selected_into_nothing(x, out):
    mine = torch.empty(0)
    chosen = torch.masked_select(x, x > 0, out=mine)
    chosen.neg_()
    return mine, mine.shape, chosen is mine


@pytest.mark.parametrize(
    ("program", "out"),
    [(nonzero_into, torch.zeros(3, 1, dtype=torch.int64)), (selected_into, torch.zeros(3)), (selected_into_nothing, torch.zeros(3))],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_what_an_operation_between_segments_writes_into_out_is_that_tensor(program, out):
    fn = compiled(program)
    for x in (torch.tensor([1.0, 0, 2, 3]), torch.tensor([2.0, 1, 0, 4])):
        assert agrees(fn, program, x, out) is not None
    assert graph_of(fn) is not None


def put_many(x, mask):
    x.index_put_((mask,), torch.arange(float(mask.sum())))
    return x * 2


def put_beside_indices(x, mask):
    return x.index_put((mask, torch.tensor([1])), torch.ones(1, dtype=x.dtype), accumulate=True)


CHOSEN = {
    "index_put_": put_many,
    "index_put_ accumulates": lambda x, mask: x.index_put_((mask,), torch.ones(int(mask.sum()), 3), accumulate=True),
    "index_put": lambda x, mask: torch.index_put(x, (mask,), torch.arange(3.0).expand(int(mask.sum()), 3)) + x,
    "index_put beside indices": put_beside_indices,
    "__getitem__": lambda x, mask: x.__getitem__(mask) + torch.Tensor.__getitem__(x, mask),
    "where": lambda x, mask: torch.where(condition=mask)[0] + 1,
    "repeat_interleave": lambda x, mask: torch.repeat_interleave(mask.long()) + torch.repeat_interleave(repeats=mask.long()),
    "nonzero": lambda x, mask: torch.nonzero(input=mask) * 2,
}


@pytest.mark.parametrize("name", CHOSEN)
@pytest.mark.parametrize("grad", [False, True])
def test_what_chooses_by_a_mask_in_another_form_runs_between_segments(name, grad):
    program = CHOSEN[name] if name != "index_put_" else lambda x, mask: put_many(x.flatten(), mask.repeat_interleave(3)).view(x.shape)
    fn = compiled(lambda x, mask: program(x * 1, mask))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*eager")
        for mask in ([True, False], [True, True], [False, False], [True, False]):
            mine, theirs = torch.arange(6.0).view(2, 3).requires_grad_(grad), torch.arange(6.0).view(2, 3).requires_grad_(grad)
            result, expected = fn(mine, torch.tensor(mask)), program(theirs * 1, torch.tensor(mask))
            torch.testing.assert_close(result, expected)
            if expected.requires_grad:
                for total in (result.sum(), expected.sum()):
                    total.backward()
                torch.testing.assert_close(mine.grad, theirs.grad)


@pytest.mark.parametrize("count", [torch.arange, lambda end: torch.arange(0, end, 0.5), lambda end: torch.arange(1 - end, end)])
def test_numbers_are_counted_to_what_a_tensor_of_floats_holds(count):
    fn = compiled(count)
    for end in (3.5, 2.0, 3.5, 4.25):
        agrees(fn, count, torch.tensor(end))

"""What dynamic shapes have to do, by number: `issue 19`'s acceptance scenarios."""

from __future__ import annotations

import importlib.util
import math
import subprocess
import sys
import threading
import warnings
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import dovetail
from dovetail.extend import OperatorExecutor

R = torch.randn


def conditions(fn: Any) -> list[str]:
    """What the current program assumes of its sizes beyond what they were created with."""
    relations = dovetail.last_traces(fn)[0].relations
    return [form.text() for form in relations.guards() if form.recorded]


def agrees(fn: Any, calls: Any, **options: Any) -> Any:
    """Compile `fn` with symbols, compare each call with eager, and return the compiled function."""
    compiled = dovetail.jit(fn, **{"dynamic": True} | options)
    for args in calls:
        torch.testing.assert_close(compiled(*args), fn(*args))
    return compiled


def chain(x, y):
    return torch.tanh(x * y + 1) * x.sigmoid()


def chain_calls(lengths):
    return [(R(n, 64), R(64)) for n in lengths]


# 1 to 5: how many programs there are


def test_01_a_chain_called_with_40_lengths_compiles_twice():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        compiled = agrees(chain, chain_calls(range(2, 42)), dynamic=None)
    assert compiled.cache_info() == (38, 2, 2)


def test_02_a_saved_program_runs_for_a_length_that_was_never_traced(tmp_path):
    def fn(x, w):
        b, t, c = x.shape
        y = (x @ w).view(b, t, 2, c // 2).transpose(1, 2)
        return y.softmax(-1).reshape(b * t, c) * 2, torch.ones(t, t).tril()

    compiled = agrees(fn, [(R(2, 5, 8), R(8, 8))])
    dovetail.last_traces(compiled)[-1].save(tmp_path / "program.py")
    spec = importlib.util.spec_from_file_location("program", tmp_path / "program.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for b, t in [(3, 7), (4, 2), (9, 31)]:
        args = R(b, t, 8), R(8, 8)
        torch.testing.assert_close(tuple(module.computation(*args)), fn(*args))
    assert "s0 = t0.shape[0]" in (tmp_path / "program.py").read_text()


def test_an_executor_that_takes_no_symbols_keeps_its_work():
    executor, shapes = OperatorExecutor("plain"), []

    def sinh(a):
        shapes.append(tuple(a.shape))
        return torch.sinh(a)

    executor.implements("torch.sinh", sinh)
    compiled = dovetail.jit(lambda x: torch.sinh(x) + 1, executors=[executor])
    for n in (3, 4, 5):
        compiled(R(n))
    assert shapes == [(3,), (4,), (5,)] and compiled.cache_info().programs == 3
    assert dovetail.jit(lambda x: torch.sinh(x) + 1, executors=[executor], dynamic=True)(R(7)).shape == (7,) and len(shapes) == 3


def test_03_the_first_program_stays_static_and_runs_its_length_again():
    compiled = agrees(chain, chain_calls([4, 7, 9, 4, 9]), dynamic=None)
    assert compiled.cache_info().programs == 2
    compiled(*chain_calls([4])[0])
    assert dovetail.last_traces(compiled)[0].relations is None
    compiled(*chain_calls([9])[0])
    assert dovetail.last_traces(compiled)[0].relations is not None
    assert compiled.cache_info().misses == 2


def test_03_calls_that_change_between_lengths_generate_no_code(monkeypatch):
    compiled = dovetail.jit(chain)
    lengths = (4, 7, 9, 4, 7, 4, 9)
    for n in lengths:
        compiled(R(n), R(n))
    monkeypatch.setattr(importlib.import_module("dovetail.trace.printing"), "compile", lambda *_: pytest.fail("code was generated"), raising=False)
    for n in lengths:
        x, y = R(n), R(n)
        torch.testing.assert_close(compiled(x, y), chain(x, y))
    assert compiled.cache_info()[1:] == (2, 2)


def test_04_dynamic_true_false_and_marks():
    assert agrees(chain, chain_calls(range(2, 42))).cache_info().misses == 1
    assert agrees(chain, chain_calls(range(2, 12)), dynamic=False).cache_info().misses == 10
    compiled = dovetail.jit(chain, dynamic=False)
    for n in (2, 512, 77, 513, 3):
        x, y = chain_calls([n])[0]
        dovetail.mark_dynamic(x, 0, min=2, max=512)
        torch.testing.assert_close(compiled(x, y), chain(x, y))
    assert compiled.cache_info().misses == 2
    assert "s0 <= 512" in str(dovetail.last_prologue_traces(compiled)[-1])


@pytest.mark.parametrize(
    ("tensor", "dim", "bounds", "error", "words"),
    [
        (R(4, 5), 2, {}, IndexError, "has no dimension 2"),
        (R(4, 5), "a", {}, TypeError, "expected the number of a dimension"),
        ([4], 0, {}, TypeError, "expected a tensor"),
        (R(4, 5), 0, {"min": 8, "max": 6}, dovetail.DovetailError, "expects min <= max"),
        (R(4, 5), [0, -3], {}, IndexError, "has no dimension -3"),
    ],
)
def test_04_marks_that_make_no_sense_are_refused(tensor, dim, bounds, error, words):
    with pytest.raises(error, match=words):
        dovetail.mark_dynamic(tensor, dim, **bounds)


def test_04_mark_static_wins_over_dynamic():
    compiled = dovetail.jit(chain, dynamic=True)
    for n in (3, 4, 5):
        x, y = chain_calls([n])[0]
        dovetail.mark_static(x, (0, 1))
        torch.testing.assert_close(compiled(x, y), chain(x, y))
    assert compiled.cache_info().misses == 3


@pytest.mark.parametrize("mode", ["automatic", "true"])
def test_05_sizes_0_and_1_compile_programs_of_their_own(mode):
    def fn(x, y):
        return (x + y).sum(0), x * 2

    compiled = dovetail.jit(fn, dynamic=None if mode == "automatic" else True)
    for n in (5, 6, 1, 7, 0, 8, 1, 0):
        args = R(n, 3), R(5 if n == 5 else n, 3)
        torch.testing.assert_close(compiled(*args), fn(*args))
    assert compiled.cache_info().misses == (4 if mode == "automatic" else 3)


# 6 to 8: relations


def test_06_a_branch_on_a_size_gives_two_programs_and_a_sentence():
    def fn(x):
        if x.shape[0] > 8:
            return x.sum()
        return x.mean()

    compiled = agrees(fn, [(R(9, 3),)])
    (miss,) = compiled.explain_miss(R(4, 3))
    assert "args[0].shape[0] >= 9 no longer holds, on which" in miss and f"{__file__}:" in miss
    for n in (20, 4, 3, 30):
        torch.testing.assert_close(compiled(x := R(n, 3)), fn(x))
    assert compiled.cache_info().misses == 2
    assert len(compiled.explain_miss(R(4, 3).double())) == 2
    (sentence, *_) = dovetail.cache_misses(compiled)[1:]
    assert "args[0].shape[0] >= 9 no longer holds, on which" in sentence and f"{__file__}:" in sentence


def test_07_inputs_that_are_added_share_a_symbol_and_unequal_lengths_raise_eagers_error():
    compiled = agrees(lambda x, y: x + y, [(R(n, 3), R(n, 3)) for n in (4, 5, 9)])
    assert compiled.cache_info().misses == 1
    assert 't1: "cpu f32[s0, s1]"' in str(dovetail.last_traces(compiled)[-1])
    with pytest.raises(RuntimeError, match="at dimension 0 the sizes 4 and 5 differ"):
        compiled(R(4, 3), R(5, 3))
    assert compiled.cache_info().misses == 1


def test_08_sizes_that_are_equal_by_accident_are_not_tied():
    compiled = agrees(lambda x: x.sum(0), [(R(8, 8),), (R(8, 9),), (R(3, 4),)])
    assert compiled.cache_info().misses == 1


# 9 to 11: operations

VIEWS = {
    "view(-1)": lambda x: x.view(-1),
    "view(b, t, h, -1)": lambda x: x.view(x.size(0), x.size(1), 2, -1),
    "flatten": lambda x: x.flatten(1) * 2,
    "split": lambda x: x.split(4, 2)[1],
    "chunk": lambda x: x.chunk(2, -1)[0] + 1,
    "slice of a buffer": lambda x: x + torch.zeros(64, 8)[: x.shape[1]],
    "x[:-1]": lambda x: x[:, :-1].sum(1),
    "x[1:]": lambda x: x[:, 1:] * x[:, :-1],
    "cat": lambda x: torch.cat([x, x * 2, x[:, :1]], 1),
    "pad": lambda x: F.pad(x, (0, 0, 1, 2)),
    "repeat": lambda x: x.repeat(1, 3, 1),
    "expand": lambda x: x[:, None].expand(-1, 3, -1, -1) * 1,
    "stack": lambda x: torch.stack([x, x]),
    "permute": lambda x: x.permute(2, 0, 1).contiguous(),
    "unbind": lambda x: x.unbind(-1)[0],
    "tril": lambda x: torch.tril(torch.ones(x.shape[1], x.shape[1])) @ x,
    "arange": lambda x: x + torch.arange(x.shape[1])[:, None],
}


@pytest.mark.parametrize("name", VIEWS)
def test_09_one_program_with_gradients(name):
    fn = VIEWS[name]
    compiled = dovetail.jit(fn, dynamic=True)
    for b, t in [(4, 7), (3, 9), (6, 12)]:
        x = R(b, t, 8, requires_grad=True)
        got, want = compiled(x), fn(x)
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(*(torch.autograd.grad(y.square().sum(), x) for y in (got, want)))
    assert compiled.cache_info().misses == 1, dovetail.cache_misses(compiled)


def test_10_a_transposed_input_keeps_symbolic_strides_and_a_window_has_symbols_of_its_own():
    def fn(x):
        return x.contiguous() * 2, x.stride()

    compiled = agrees(fn, [(R(n, 5, 3).transpose(0, 1),) for n in (4, 7, 9)])
    assert compiled.cache_info().misses == 1
    base = R(9, 16)
    compiled = dovetail.jit(lambda x: x + 1, dynamic=True)
    for x in (base[:, :5], base[:, :7], R(9, 32)[:, :7]):
        torch.testing.assert_close(compiled(x), x + 1)
        assert compiled(x).stride() == (x + 1).stride()
    assert compiled.cache_info().misses == 1


@pytest.mark.trials  # a call that is tried has its guards checked in Python
@pytest.mark.parametrize("window", [lambda x: x.permute(3, 2, 1, 0), lambda x: x[:, :, :, :1].expand(-1, -1, -1, 4)[:1], lambda x: x[:1, :, ::2]])
def test_10_a_batch_of_one_may_have_any_stride(window):
    compiled = dovetail.jit(lambda x: x * 2 + 1, dynamic=True)
    for _ in range(2):
        for n in (6, 8):
            x = window(R(n, 5, 6, 1))
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                torch.testing.assert_close(compiled(x), x * 2 + 1)
    assert compiled.cache_info().hits >= 2


REDUCTIONS = {
    "softmax": lambda x: x.softmax(-1),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "mean": lambda x: x.mean(-1),
    "var": lambda x: x.var(-1),
    "std": lambda x: x.std(-1, correction=0),
    "cross_entropy": lambda x: F.cross_entropy(x, torch.zeros(x.shape[0], dtype=torch.long)),
    "logsumexp": lambda x: x.logsumexp(-1),
    "cumsum": lambda x: x.cumsum(-1),
    "argmax": lambda x: x.argmax(-1),
    "norm": lambda x: x.norm(dim=-1),
}


@pytest.mark.parametrize("name", REDUCTIONS)
def test_11_reductions_over_a_symbolic_dimension_are_one_program(name):
    fn = REDUCTIONS[name]
    compiled = agrees(fn, [(R(b, n),) for b, n in ((3, 10), (4, 100), (9, 3001))])
    assert compiled.cache_info().misses == 1, dovetail.cache_misses(compiled)


# 12 to 14: models


class Block(nn.Module):
    """A layer of a GPT with a causal mask from a buffer."""

    def __init__(self, width=16, heads=2, longest=64):
        super().__init__()
        self.heads = heads
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.register_buffer("seen", torch.tril(torch.ones(longest, longest)).view(1, 1, longest, longest))

    def forward(self, x):
        b, t, c = x.size()
        q, k, v = [z.view(b, t, self.heads, c // self.heads).transpose(1, 2) for z in self.qkv(self.norm(x)).split(c, dim=2)]
        scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        y = scores.masked_fill(self.seen[:, :, :t, :t] == 0, float("-inf")).softmax(-1) @ v
        x = x + self.out(y.transpose(1, 2).contiguous().view(b, t, c))
        return x + self.mlp(x)


class GPT(nn.Module):
    """Two layers over learned positions, with its loss."""

    def __init__(self, words=17, width=16, longest=64):
        super().__init__()
        self.words, self.positions = nn.Embedding(words, width), nn.Embedding(longest, width)
        self.blocks, self.head = nn.Sequential(Block(width, longest=longest), Block(width, longest=longest)), nn.Linear(width, words, bias=False)

    def forward(self, tokens, targets=None):
        x = self.words(tokens) + self.positions(torch.arange(0, tokens.shape[1], device=tokens.device))
        logits = self.head(self.blocks(x))
        return logits if targets is None else F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


PAIRS = [(2, 8), (3, 9), (4, 10), (5, 33), (7, 60), (2, 5), (6, 8), (3, 3), (4, 31), (2, 63)]


def test_12_a_gpt_trains_on_ten_shapes_with_two_compilations():
    torch.manual_seed(0)
    model, other = GPT(), GPT()
    other.load_state_dict(model.state_dict())
    compiled = dovetail.jit(other)
    steps = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (model, other)]
    for b, t in PAIRS:
        tokens, targets = torch.randint(17, (b, t)), torch.randint(17, (b, t))
        losses = [m(tokens, targets) for m in (model, compiled)]
        torch.testing.assert_close(*losses, rtol=1e-4, atol=1e-5)
        for loss, step in zip(losses, steps, strict=True):
            step.zero_grad()
            loss.backward()
        for p, q in zip(model.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(q.grad, p.grad, rtol=1e-3, atol=1e-5)
        for step in steps:
            step.step()
    assert compiled.cache_info().misses == 2, dovetail.cache_misses(compiled)


def test_13_decoding_with_a_growing_cache_compiles_three_times_at_most():
    def step(x, k, v):
        k, v = torch.cat([k, x], 2), torch.cat([v, x], 2)
        return F.scaled_dot_product_attention(x, k, v), k, v

    compiled = dovetail.jit(step)
    state = expected = R(2, 4, 3, 8), R(2, 4, 3, 8)
    for _ in range(200):
        x = R(2, 4, 1, 8)
        (out, *state), (want, *expected) = compiled(x, *state), step(x, *expected)
        torch.testing.assert_close(out, want)
    assert compiled.cache_info().misses <= 3


@dataclass
class Position:
    at: int


def position_of(x):
    if isinstance(x, Position):
        return x.at
    return x["at"] if isinstance(x, dict) else x[0] if isinstance(x, tuple) else x


@pytest.mark.parametrize("wrap", [lambda n: n, lambda n: (n,), lambda n: {"at": n}, Position], ids=["int", "tuple", "dict", "dataclass"])
def test_14_decoding_at_a_position_compiles_four_times_at_most(wrap):
    def step(x, cache, position):
        at = position_of(position)
        cache = torch.cat([cache[:, :at], x, cache[:, at + 1 :]], 1)
        return cache[:, : at + 1].sum(1), cache

    compiled = dovetail.jit(step)
    for n in range(40):
        args = R(2, 1, 8), R(2, 64, 8), wrap(n)
        torch.testing.assert_close(compiled(*args), step(*args))
    assert compiled.cache_info().misses <= 4, dovetail.cache_misses(compiled)


# 15 to 19: what leaves the program, writes, backwards

PINS = {
    "range": lambda x: sum([x[i] for i in range(x.shape[0])]),
    "list": lambda x: x + len([0] * x.shape[0]),
    "f-string": lambda x: {"rows 3": x, "rows 4": x * 2}.get(f"rows {x.shape[0]}", x * 3),
    "dict key": lambda x: x * {3: 1, 4: 2}.get(x.shape[0], 3),
    "str": lambda x: x * len(str(x.shape)),
}
COMPUTED = {  # numbers that are computed of sizes are numbers of the program
    "mean": lambda x: x.sum(0) / x.shape[0] + torch.arange(x.shape[0])[:, None] / x.shape[0],
    "scale": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], scale=x.shape[0] ** -0.5) * (1 / math.sqrt(x.shape[0])),
    "full": lambda x: torch.full((x.shape[0],), 1 / x.shape[0]) @ x + torch.tensor(x.shape[0] / 2),
    "ratio": lambda x: (x[: int(x.shape[0] * 0.8)] * 2, round(x.shape[0] / 2), x[math.ceil(x.shape[0] / 4) :], math.log(x.shape[0])),
    "power": lambda x: F.pad(x, (0, 0, 0, 2 ** math.ceil(math.log2(x.shape[0])) - x.shape[0])),
    "square": lambda x: x[: int(math.sqrt(x.shape[0])) ** 2].reshape(int(math.sqrt(x.shape[0])), -1),
    "branch": lambda x: x if x.shape[0] / 2 > 1.5 and max(1.0, x.shape[0] / 100) < 2.5 else -x,
    "by value": lambda x: (x.clamp(max=x.shape[0] / 8), torch.add(x, x, alpha=1 / x.shape[0]), F.dropout(x, 1 / x.shape[0], training=False)),
}


@pytest.mark.parametrize("name", PINS)
def test_15_what_needs_a_plain_int_compiles_for_each_length_and_the_warning_names_the_line(name):
    fn = PINS[name]
    compiled = dovetail.jit(fn, dynamic=True)
    with pytest.warns(UserWarning, match=rf"args\[0\]\.shape\[0\] is compiled for each value, since {__file__}:\d+ needs it as a plain number"):
        compiled(R(3, 5))
    for n in (4, 5, 3):
        x = R(n, 5)
        torch.testing.assert_close(compiled(x), fn(x))
    assert compiled.cache_info().misses == 3


@pytest.mark.parametrize("name", COMPUTED)
def test_15_what_is_computed_of_a_size_pins_nothing(name):
    compiled = agrees(COMPUTED[name], [(R(n, 5),) for n in (12, 20, 10, 33, 6)])
    assert compiled.cache_info().misses <= 2, dovetail.cache_misses(compiled)


def test_15_autocast_casts_operations_on_symbolic_sizes():
    compiled = dovetail.jit(lambda x: (x @ x.T) * x.shape[0] ** -0.5 + F.linear(x, x), dynamic=True)
    for n in (4, 6):
        x = R(n, 3)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            expected = (x @ x.T) * n**-0.5 + F.linear(x, x)
            torch.testing.assert_close(compiled(x), expected, rtol=2e-2, atol=2e-2)
    assert compiled.cache_info().misses == 1


def test_15_text_with_sizes_in_it_pins_nothing():
    def written(x):
        n = x.shape[0]
        return f"{n} rows, {n / 2:.1f} pairs, {n!r}", "%d of %s" % (n, n), "{}".format(n), str(n), repr(-n), x + 1  # noqa: UP031, UP032

    compiled = dovetail.jit(written, dynamic=True)
    for n in (12, 20, 5):
        x = R(n, 2)
        assert compiled(x)[:-1] == written(x)[:-1]
    assert compiled.cache_info().misses == 1


def test_15_a_guard_of_what_is_computed_of_a_size_and_a_handled_division():
    def halves(x):
        try:
            x = x * (1 / (x.shape[0] / 2 - 5))
        except ZeroDivisionError:
            x = x * 3
        return x[: int(x.shape[0] * 0.75)] + x[: 3 * x.shape[0] // 4]

    compiled = agrees(halves, [(R(n, 5),) for n in (12, 20, 10, 33, 6)])
    leaf = R(10, 5).requires_grad_()
    torch.testing.assert_close(torch.autograd.grad(compiled(leaf).sum(), leaf), torch.autograd.grad(halves(leaf).sum(), leaf))


def test_15_numbers_from_one_size_to_another():
    def ticks(x):
        n = x.shape[0]
        return torch.arange(0, 1, 1 / n), torch.arange(n / 3, -n, -0.25, dtype=torch.float64), torch.arange(n**0.5, n)

    assert agrees(ticks, [(R(n, 5),) for n in (12, 20, 10, 49, 98, 103)]).cache_info().misses == 1  # 1 / (1 / 49) is more than 49
    with pytest.raises(RuntimeError, match="upper bound and lower bound inconsistent"):
        dovetail.jit(lambda x: torch.arange(0, -x.shape[0], 0.5), dynamic=True)(R(5))


def test_15_the_length_of_a_tensor_pins_nothing():
    assert agrees(lambda x: x / len(x), [(R(n, 5),) for n in (3, 4, 5)]).cache_info().misses == 1


def test_16_sizes_are_returned_as_ints_of_the_call():
    def fn(x):
        return x * 2, x.shape[0], x.shape, [x.size(1) * 2 + 1, {"n": x.numel() // 2}], x.stride()

    compiled = dovetail.jit(fn, dynamic=True)
    for shape in [(3, 4), (5, 9), (2, 2)]:
        x = R(*shape)
        (_, *got), (_, *want) = compiled(x), fn(x)
        assert got == want
        assert [type(n) for n in (got[0], *got[1], got[2][0])] == [int] * 4
        assert type(got[1]) is torch.Size
    assert compiled.cache_info().misses == 1


def test_16_sizes_are_written_to_objects():
    class Seen:
        n = 0

    seen = Seen()

    def fn(x):
        seen.n = x.shape[0] + 1
        return x + 1

    compiled = dovetail.jit(fn, dynamic=True)
    for n in (3, 5):
        compiled(R(n, 2))
        assert seen.n == n + 1 and type(seen.n) is int


def test_17_views_of_inputs_alias_and_writes_to_slices_are_seen():
    def fn(x, y):
        x[: y.shape[0]].mul_(2)
        y.add_(1)
        return x.view(-1)[1:], y.t(), x[1:]

    compiled = dovetail.jit(fn, dynamic=True)
    for n, m in [(5, 3), (9, 4), (7, 2)]:
        x, y = R(n, 6), R(m, 6)
        a, b = x.clone(), y.clone()
        got, want = compiled(x, y), fn(a, b)
        torch.testing.assert_close((x, y, *got), (a, b, *want))
        got[0].zero_()
        assert (x.view(-1)[1:] == 0).all()
        assert got[1].data_ptr() == y.data_ptr()
    assert compiled.cache_info().misses == 1, dovetail.cache_misses(compiled)


def two(x, w):
    h = torch.tanh(x @ w)
    return h.sum(1), (h * h).mean(0), x.shape[0]


@pytest.mark.parametrize("recompute", ["none", "balanced", "all"])
@pytest.mark.parametrize("absent", [None, 0, 1])
def test_18_backwards_for_absent_cotangents_under_recomputation_and_twice(recompute, absent):
    compiled = dovetail.jit(two, dynamic=True, recompute=recompute)
    for b, t in [(4, 7), (3, 9), (12, 5)]:
        x, w = R(b, t, requires_grad=True), R(t, 6, requires_grad=True)
        results = []
        for fn in (compiled, two):
            outs = [out for i, out in enumerate(fn(x, w)[:2]) if i != absent]
            loss = sum([out.square().sum() for out in outs])
            results.append((*torch.autograd.grad(loss, (x, w), retain_graph=True), *torch.autograd.grad(loss, (x, w))))
        torch.testing.assert_close(*results)
    assert compiled.cache_info().misses == 1


def test_18_gradients_of_gradients_are_right_or_refused():
    def fn(x):
        return (x * x * x).sum(0)

    compiled = dovetail.jit(fn, dynamic=True)
    for n in (4, 6, 9):
        x = R(n, 3, requires_grad=True)
        second = []
        for each in (compiled, fn):
            (g,) = torch.autograd.grad(each(x).sum(), x, create_graph=True)
            second.append(torch.autograd.grad(g.square().sum(), x)[0])
        torch.testing.assert_close(*second)


def test_19_bits_do_not_depend_on_the_length_that_was_traced():
    def fn(x):
        return x.softmax(-1).sum(0), F.layer_norm(x, x.shape[-1:]).mean(-1)

    x = R(33, 70)
    results = []
    for first in ((2, 3), (33, 70), (100, 200)):
        compiled = dovetail.jit(fn, dynamic=True)
        compiled(R(*first))
        results.append(compiled(x))
        assert compiled.cache_info().misses == 1
    assert all(torch.equal(a, b) for other in results[1:] for a, b in zip(results[0], other, strict=True))


# 22, 23: executors, opaque operations


def test_22_an_executor_that_is_not_symbolic_is_not_offered_symbolic_lines():
    asked = []

    def checker(*args):
        asked.append(args)
        return True

    plain, symbolic = OperatorExecutor("plain"), OperatorExecutor("takes_symbols", symbolic=True)
    for ex in (plain, symbolic):
        ex.implements("torch.tanh", torch.tanh, checker=checker)
    compiled = agrees(lambda x: torch.tanh(x), [(R(n, 3),) for n in (3, 4)], executors=[plain, "torch"])
    assert not asked
    assert "plain is not used: it takes no program with symbolic sizes" in str(dovetail.explain(compiled))
    compiled = agrees(lambda x: torch.tanh(x), [(R(n, 3),) for n in (3, 4)], executors=[symbolic, "torch"])
    assert len(asked) == 1 and dovetail.explain(compiled).rows[0].actual == "takes_symbols"
    assert compiled.cache_info().misses == 1


@pytest.mark.parametrize("fn", [torch.linalg.qr, lambda x: torch.sort(x)[0], lambda x: torch.cdist(x, x)], ids=["qr", "sort", "cdist"])
def test_23_torchs_own_rules_give_the_sizes_of_operations_without_a_decomposition(fn):
    compiled = agrees(fn, [(R(n, 4),) for n in (6, 9, 5)])
    assert compiled.cache_info().misses == 1


def test_23_an_operation_without_a_rule_for_sizes_is_right_and_pins():
    with pytest.warns(UserWarning, match="is compiled for each value, since"):
        agrees(lambda x: F.affine_grid(torch.ones(1, 2, 3), (1, 1, x.shape[0], 4), align_corners=False), [(R(n, 4),) for n in (6, 9, 5)])


# 24 to 27


def test_24_what_follows_a_selection_is_one_program_and_a_question_on_the_count_names_the_line():
    def selected(x):
        picked, places = torch.masked_select(x, x > 0), torch.nonzero(x > 1)
        both = torch.cat([picked * 2 + 1, picked.exp()])
        return both.sum() / picked.numel() if places.shape[0] < 9 else both, both, places + 1

    compiled, misses = dovetail.jit(selected), []
    for n in (6, 5, 4, 3, 7, 8, 2):
        x = torch.cat([torch.full((n,), 2.0), torch.full((9 - n,), -1.0)])
        torch.testing.assert_close(compiled(x), selected(x))
        misses.append(compiled.cache_info().misses)
    assert misses[-1] == misses[1], "the second count makes it a symbol"
    torch.testing.assert_close(compiled(-torch.ones(9)), selected(-torch.ones(9)), equal_nan=True)
    with pytest.raises(dovetail.DovetailError, match=rf"depends on values(.|\n)*{__file__}:\d+"):
        dovetail.jit(selected, decisions="error")(torch.ones(9))


@pytest.mark.slow
def test_25_neither_the_package_nor_a_symbolic_program_imports_sympy():
    program = (
        "import sys, torch, dovetail\n"
        "f = dovetail.jit(lambda x: (x.softmax(-1) @ x.t()).view(-1), dynamic=True)\n"
        "x = torch.randn(4, 5, requires_grad=True)\n"
        "f(x).sum().backward(); f(torch.randn(5, 6))\n"
        "print('sympy' in sys.modules, f.cache_info().misses)\n"
    )
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=True).stdout
    assert out.split() == ["False", "2"]  # the second call requires no grad


def test_26_each_relation_negated_misses():
    def fn(x, y):
        if x.shape[0] > 4 and x.shape[1] != 7 and x.shape[0] * x.shape[1] < 100:
            x = x * 2
        return x[: y.shape[0]] + y

    for x, y in [((4, 6), (4, 6)), ((5, 7), (5, 7)), ((20, 5), (20, 5)), ((5, 6), (5, 1)), ((5, 6), (1, 6))]:
        compiled = agrees(fn, [(R(5, 6), R(5, 6)), (R(9, 8), R(9, 8))])
        assert compiled.cache_info().misses == 1
        args = R(*x), R(*y)
        assert len(compiled.explain_miss(*args)) == 1
        torch.testing.assert_close(compiled(*args), fn(*args))


@pytest.mark.slow
@pytest.mark.alone
def test_27_threads_with_different_lengths_get_right_results():
    compiled = dovetail.jit(chain, dynamic=True)
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        try:
            for n in torch.randint(2, 40, (30,), generator=generator).tolist():
                x, y = torch.randn(n, 64, generator=generator), torch.randn(64, generator=generator)
                torch.testing.assert_close(compiled(x, y), chain(x, y))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    assert not failures
    assert compiled.cache_info().programs == 1


def test_programs_of_plain_sizes_are_tried_now_and_then():
    compiled, rows = dovetail.jit(lambda x: (x * 2).sum(0)), []
    for n in (4, *range(5, 80), 4, 4, *[n for i in range(40) for n in (4, 5 + i)]):
        x = torch.randn(n, 3)
        torch.testing.assert_close(compiled(x), (x * 2).sum(0))
        rows.append(compiled._cache.entries[0].symbolic)
    assert compiled.cache_info().programs == 2
    assert not all(rows[1:])  # the program for 4 rows ran again

"""Lines that are too large to be tried whole are tried on some of their rows, where each row depends on its own row alone."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from stand_ins import F, Pointwise, of

import dovetail
from dovetail.executors import Priority, get_executor
from dovetail.executors.dispatching.regions import RegionSymbol
from dovetail.executors.trials import judge, rows
from dovetail.executors.trials.reference import program
from dovetail.trace import BoundSymbol, proxies


@pytest.fixture(autouse=True)
def trials(tmp_path, monkeypatch):
    """Trials are on, and all but the smallest lines need too much memory for the reference."""
    monkeypatch.setenv("DOVETAIL_TRIAL_FOLDER", str(tmp_path / "trial"))
    monkeypatch.delenv("DOVETAIL_TRIAL", raising=False)
    monkeypatch.setattr(judge, "MOST_BYTES", 1 << 12)
    monkeypatch.setattr(rows, "MOST", 64)


def line_of(function: Callable, *inputs: Any) -> tuple[BoundSymbol, dict]:
    """`function` as one region, and the values of its inputs."""
    recorded = dovetail.make_trace(function)(*inputs)
    values = dict(zip(recorded.inputs, inputs, strict=True)) | recorded.constants
    reads, outputs = list(values), tuple(proxies(recorded.outputs))
    return BoundSymbol(RegionSymbol("test", "all"), tuple(reads), {}, outputs, reads, body=tuple(recorded.lines)), values


def heads(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    q, k, v = (part.transpose(1, 2) for part in F.linear(x, weight).view(x.shape[0], x.shape[1], 3, 4, -1).unbind(2))
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape)


X = torch.randn(24, 6, 8)
TABLE = torch.randn(9, 8)
INDEX = torch.randint(0, 8, (24, 6))
ROW_WISE: dict[str, tuple[Callable, tuple]] = {
    "pointwise": (lambda x: torch.sin(x) * 2 + x.abs(), (X,)),
    "softmax": (lambda x: F.softmax(x, -1), (X,)),
    "log_softmax beside a reduction": (lambda x: (F.log_softmax(x, 1), x.sum((1, 2))), (X,)),
    "layer_norm": (lambda x, w: F.layer_norm(x, (8,), w), (X, torch.randn(8))),
    "rms_norm": (lambda x: F.rms_norm(x, (6, 8)), (X,)),
    "linear": (lambda x, w, b: F.gelu(F.linear(x, w, b)), (X, torch.randn(5, 8), torch.randn(5))),
    "linear by the transpose": (lambda x, w: x @ w.t(), (X, torch.randn(5, 8))),
    "flattened": (lambda x, w: (x.reshape(-1, 8) @ w).view(24, 6, 5), (X, torch.randn(8, 5))),
    "batched matmul": (torch.bmm, (X, torch.randn(24, 8, 3))),
    "views": (lambda x: (x.transpose(1, 2)[:, 2:5].flip(1) * 2).flatten(1), (X,)),
    "a transposed input": (lambda x: (x.transpose(1, 2) * 2).reshape(24, 48), (X.transpose(1, 2).contiguous().transpose(1, 2),)),
    "broadcasts": (lambda x, y, z: x + y + z[:, None, :], (X, torch.randn(6, 1), torch.randn(24, 8))),
    "embedding": (F.embedding, (INDEX, TABLE)),
    "gather": (lambda x, i: torch.gather(x, 1, i), (X[..., 0].contiguous(), INDEX % 6)),
    "lookup by a computed index": (lambda x, t: t[x.argmax(-1)], (X, TABLE)),
    "cross_entropy by row": (lambda x, i: F.cross_entropy(x, i, reduction="none"), (X[:, 0].contiguous(), INDEX[:, 0].contiguous())),
    "sort": (lambda x: torch.sort(x, dim=1)[0], (X,)),
    "cumsum": (lambda x: x.cumsum(-1), (X,)),
    "pad and cat": (lambda x: torch.cat([F.pad(x, (1, 2)), x], 2), (X,)),
    "conv2d": (lambda x, w: F.relu(F.conv2d(x, w, padding=1)), (torch.randn(10, 3, 7, 7), torch.randn(4, 3, 3, 3))),
    "max_pool2d": (lambda x: F.max_pool2d(x, 2), (torch.randn(10, 3, 8, 8),)),
    "a mask of positions": (lambda x: x.masked_fill(torch.arange(8) > 5, 0.0), (X,)),
    "zeros": (lambda x: torch.zeros_like(x) + x[:, :1], (X,)),
    "attention": (heads, (X, torch.randn(24, 8))),
    "bfloat16": (lambda x: F.softmax(x.bfloat16(), -1), (X,)),
    "a flat vector": (lambda x: x * 2, (torch.randn(5000),)),
}
NOT_ROW_WISE: dict[str, tuple[Callable, tuple]] = {
    "a full sum": (lambda x: x.sum(), (X,)),
    "a sum over rows": (lambda x: x.sum(0), (X,)),
    "softmax over rows": (lambda x: F.softmax(x, 0), (X,)),
    "less the mean of the rows": (lambda x: x - x.mean(0), (X,)),
    "batch_norm": (lambda x: F.batch_norm(x, None, None, training=True), (X,)),
    "rows in reverse": (lambda x: x.flip(0) * 2, (X,)),
    "rows rolled": (lambda x: x.roll(1, 0) * 2, (X,)),
    "a running sum of rows": (lambda x: x.cumsum(0), (X,)),
    "a slice of rows": (lambda x: x[4:20] * 2, (X,)),
    "every other row": (lambda x: x[::2] + x[1::2], (X,)),
    "rows joined": (lambda x: torch.cat([x, x * 2], 0), (X,)),
    "transposed": (lambda x: x.transpose(0, 1) * 2, (X,)),
    "all pairs": (lambda x: x[:, 0] @ x[:, 0].t(), (X,)),
    "positions of rows": (lambda x: x[:, 0, 0] * torch.arange(24), (X,)),
    "rows sorted": (lambda x: torch.sort(x, dim=0)[0], (X,)),
    "a gradient of a weight": (lambda x, g: g.t() @ x, (X[:, 0].contiguous(), X[:, 1].contiguous())),
    "rows added by an index": (lambda x, i: torch.zeros(9, 8).index_add(0, i, x), (X[:, 0].contiguous(), INDEX[:, 0].contiguous())),
    "rows written by an index": (lambda x, i: x.index_put((i,), torch.ones(24, 6, 8)), (X, INDEX[:, 0].contiguous())),
    "dropout": (lambda x: F.dropout(x, 0.5), (X,)),
    "windows over rows": (lambda x: x.unfold(0, 2, 1).sum(-1), (X,)),
    "padded rows": (lambda x: F.pad(x, (0, 0, 0, 0, 1, 1)) * 2, (X,)),
    "one row": (lambda x: x[:1] * 2, (X,)),
    "a result without rows beside one with": (lambda x: (x * 2, x.amax()), (X,)),
    "rows that become columns": (lambda x: x.reshape(8, -1).sum(0), (X[:, :, 0].contiguous(),)),
}


@pytest.mark.parametrize("name", ROW_WISE)
@pytest.mark.parametrize("seed", range(2))
def test_the_rows_of_a_row_wise_program_are_those_of_the_whole(name: str, seed: int) -> None:
    line, values = line_of(*(lambda function, inputs: (function, *inputs))(*ROW_WISE[name]))
    found = rows.row_wise(line)
    assert found is not None
    sample = found.sample(1 << 12, rows.memory)
    assert 2 <= sample.count < sample.total == values[line.reads[0]].shape[0] or name in ("embedding", "lookup by a computed index")
    chosen = rows.choice(sample.total, sample.count, seed)
    torch_executor = Priority([get_executor("torch")])
    part = program(sample.line, sample.line.reads, torch_executor)(*sample.inputs(values, chosen).values())
    whole = program(line, list(values), torch_executor)(*values.values())
    for a, b in zip(part, whole, strict=True):
        torch.testing.assert_close(a, sample.select(b, chosen), rtol=2e-5, atol=2e-5)
    in_blocks = sample.whole(values, program(sample.line, sample.line.reads, torch_executor))
    torch.testing.assert_close(in_blocks, whole, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", NOT_ROW_WISE)
def test_what_is_not_row_wise_is_never_sampled(name: str) -> None:
    function, inputs = NOT_ROW_WISE[name]
    line, _ = line_of(function, *inputs)
    assert rows.row_wise(line) is None


@pytest.mark.parametrize(("total", "count"), [(4, 2), (5, 2), (1_000_000, 64), (1000, 32), (127, 56), (64, 64), (100, 96)])
def test_rows_are_distinct_with_the_first_and_the_last(total: int, count: int) -> None:
    choices = [rows.choice(total, count, seed) for seed in range(3)]
    for chosen in choices:
        assert len(chosen) == count == len(chosen.unique()) and chosen[0] == 0 and chosen[-1] == total - 1
        assert bool((chosen[1:] > chosen[:-1]).all())
    assert total < 1000 or not torch.equal(choices[0], choices[1])
    assert torch.equal(choices[0], rows.choice(total, count, 0))


def outcomes(fn: Callable) -> list[str]:
    return [each.message for each in dovetail.explain(fn).trials]


def disagreements(fn: Callable, inputs: list[tuple], expected: Callable) -> list[str]:
    """The messages of the warnings of calls, each of which gives what it should where it warns."""
    messages = []
    for args in inputs:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            got = fn(*args)
        found = [str(each.message) for each in caught if isinstance(each.message, dovetail.DisagreementWarning)]
        if found or messages:
            torch.testing.assert_close(got, expected(*args), rtol=1e-4, atol=1e-4)
        messages += found
    return messages


def wrong_in(first: int, last: int) -> Callable:
    """softmax, wrong in the rows from `first` to `last`."""

    def softmax(input, dim):
        out = F.softmax(input, dim)
        out[first:last, 3] += 0.25
        return out

    return softmax


@pytest.mark.parametrize(("first", "last", "calls"), [(0, 1, 1), (1999, 2000, 1), (1000, 2000, 1), (500, 560, 8), (0, 2000, 1)])
def test_a_fault_in_rows_is_caught_and_the_result_is_right(first: int, last: int, calls: int) -> None:
    fn = dovetail.jit(lambda x: F.softmax(x, -1), executors=[of("own", F.softmax, wrong_in(first, last))])
    inputs = [(torch.randn(2000, 16),) for _ in range(calls)]
    messages = disagreements(fn, inputs, lambda x: F.softmax(x, -1))
    assert len(messages) == 1 and "compared in 64 of 2,000 rows" in messages[0]
    row = int(messages[0].partition("most at [")[2].partition(",")[0])
    assert first <= row < last


def test_a_fault_in_rows_of_a_region_and_of_the_backward_is_caught() -> None:
    class Wrong(Pointwise):
        def fuse(self, region):
            run = super().fuse(region)
            wrong = "cos" in str([line.symbol for line in region.lines])

            def call(*inputs):
                results = run(*inputs)
                if wrong:
                    results[0][700:] = 3.0
                return results

            return call

    fn = dovetail.jit(lambda x: torch.sin(x) * 2, executors=[Wrong()])
    x = torch.randn(1500, 5, requires_grad=True)
    out = fn(x)
    with pytest.warns(dovetail.DisagreementWarning, match="of 1,500 rows"):
        out.sum().backward()
    torch.testing.assert_close(x.grad, 2 * torch.cos(x.detach()))
    fn(x).sum().backward()
    assert any("agreed on 64 of 1,500 rows" in each for each in outcomes(fn)), outcomes(fn)


def test_explain_says_how_many_rows_agreed() -> None:
    fn = dovetail.jit(lambda x: F.softmax(x, -1), executors=[of("own", F.softmax, lambda input, dim: F.softmax(input.double(), dim).float())])
    fn(torch.randn(1_000_000, 2))
    (outcome,) = outcomes(fn)
    assert outcome.startswith("agreed on 64 of 1,000,000 rows, largest error ") and "trials of computation" in str(dovetail.explain(fn))


def test_what_is_neither_small_nor_row_wise_is_not_tried() -> None:
    fn = dovetail.jit(lambda x: F.softmax(x, 0), executors=[of("own", F.softmax, wrong_in(0, 2000))])
    fn(torch.randn(2000, 16))
    assert outcomes(fn) == ["not tried: the reference would need too much memory"]


def test_a_line_that_was_tried_whole_keeps_saying_so(monkeypatch) -> None:
    fn = dovetail.jit(lambda x: F.softmax(x, -1), executors=[of("own", F.softmax, F.softmax)])
    monkeypatch.setattr(judge, "MOST_BYTES", 1 << 30)
    fn(torch.randn(2000, 16))
    monkeypatch.setattr(judge, "MOST_BYTES", 1 << 12)
    fn(torch.randn(2000, 16))
    assert outcomes(fn)[0].startswith("agreed, largest error ")


def test_over_the_time_budget_rows_are_sampled(monkeypatch) -> None:
    monkeypatch.setattr(judge, "MOST_BYTES", 1 << 30)
    with dovetail.use(trial_budget=0):
        executors = [of("own", torch.sin, torch.sin), of("other", torch.cos, torch.cos)]
        fn = dovetail.jit(lambda x: torch.cos(torch.sin(x)), executors=executors)
        fn(torch.randn(3000, 1000))
    messages = outcomes(fn)
    assert any("of 3,000 rows" in each for each in messages) and all(each.startswith("agreed") for each in messages), messages

"""What is saved between forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import dovetail
from dovetail.prims import Tag
from dovetail.trace import BackwardTrace, Trace, check, dce, drop_cotangents, functionalize, grad, split, take_saved


def leaf(*shape: int) -> Tensor:
    return torch.randn(*shape).requires_grad_()


def halves(fn: Callable, *args: Any, **options: Any) -> tuple[Trace, BackwardTrace]:
    pure, epilogue = functionalize(dovetail.make_trace(fn)(*args))
    written = [line.args[0] for line in epilogue.lines if line.mutates]
    forward, backward = split(dce(grad(pure)), written=written, **options)
    return check(forward), check(backward)


def names(trace: Trace) -> list[str]:
    return [line.symbol.name for line in trace.lines]


def test_a_cheap_chain_is_computed_again_from_its_input() -> None:
    forward, backward = halves(lambda x: torch.sin(torch.cos(torch.exp(x))).sum(), leaf(1000))

    assert [p in forward.inputs for p in backward.saved] == [True]
    assert backward.saved_bytes == 0
    assert names(backward).count("exp") == 1


def test_nothing_is_computed_again_when_everything_is_saved() -> None:
    _, backward = halves(lambda x: torch.sin(torch.cos(torch.exp(x))).sum(), leaf(1000), recompute="none")

    assert backward.saved_bytes == 2 * 4000
    assert "exp" not in names(backward)


def test_everything_is_computed_again_on_request() -> None:
    _, backward = halves(lambda x: (x @ x).exp().sum(), leaf(10, 10), recompute="all")

    assert backward.saved_bytes == 0
    assert names(backward).count("matmul") >= 1


def test_a_long_chain_is_not_run_again_from_its_start() -> None:
    def chain(x: Tensor) -> Tensor:
        for _ in range(100):
            x = torch.sin(x)
        return x.sum()

    _, backward = halves(chain, leaf(10))

    assert 5 <= len(backward.saved) < 12
    assert len(backward.lines) < 310


def test_the_small_end_of_a_funnel_is_saved() -> None:
    _, backward = halves(lambda x: torch.exp((x @ x).sum(0) * 2).sum(), leaf(64, 64))

    assert sorted(p.spec.numel for p in backward.saved) == [64, 64 * 64]
    assert backward.saved_bytes == 64 * 4


def test_results_of_whole_operations_are_kept_where_nobody_fuses() -> None:
    def fn(x: Tensor) -> Tensor:
        return torch.sin(torch.cos(x) + 1).sum()

    assert halves(fn, leaf(100), fused=True)[1].saved_bytes == 0
    assert halves(fn, leaf(100), fused=False)[1].saved_bytes == 400


def test_what_is_only_used_inside_runs_whole_again_in_the_forward() -> None:
    forward, _ = halves(lambda x, b: torch.nn.functional.linear(x, x, b).sum(), leaf(8, 8), leaf(8))

    assert names(forward) == ["linear", "sum"]


def test_random_draws_are_never_repeated() -> None:
    forward, backward = halves(lambda x: torch.nn.functional.dropout(x, 0.5).exp(), leaf(8), recompute="all")

    drawn = [line for line in backward.lines if Tag.RANDOM in line.symbol.tags]
    assert not drawn and any(line.effects for line in forward.lines)


def test_an_input_that_is_written_is_copied_only_when_the_backward_reads_it() -> None:
    def fn(x: Tensor, w: Tensor) -> Tensor:
        y = x * w
        x.add_(1)
        return y

    forward, backward = halves(fn, torch.ones(3), leaf(3))
    assert names(forward)[-1] == "clone"
    assert backward.saved_bytes == 12
    assert not set(backward.inputs) & {forward.inputs[0]}

    forward, _ = halves(lambda x, w: (x.add_(1), w * 2)[1], torch.ones(3), leaf(3))
    assert "clone" not in names(forward)


def test_what_is_computed_again_is_computed_right_before_it_is_read() -> None:
    def fn(x: Tensor, y: Tensor) -> Tensor:
        return (torch.exp(x) @ torch.exp(y)).sum()

    _, backward = halves(fn, leaf(4, 4), leaf(4, 4))

    order = names(backward)
    first, second = (i for i, name in enumerate(order) if name == "exp")
    assert "matmul" in order[first:second]


def test_a_missing_cotangent_takes_away_what_only_it_flows_into() -> None:
    _, backward = halves(lambda x, w: (x @ w, x.sin()), leaf(3, 3), leaf(3, 3))

    first = check(drop_cotangents(backward, backward.cotangents[1:]))
    second = check(drop_cotangents(backward, backward.cotangents[:1]))

    assert "cos" not in names(first) and names(first).count("matmul") == 2
    assert names(second) == ["cos", "mul"]
    assert second.outputs[1] is None and len(second.cotangents) == 1


ZEROS = {  # programs of three results, some of which reach an input by operations with a gradient of zeros alone
    "sign": lambda x, y: (x.abs() * y, x.sign(), y * 2),
    "round and floor": lambda x, y: (x.round() + y.sin(), x * y, y.floor()),
    "parts": lambda x, y: (x[:1].sign(), x[1:] * 2, y * x[0]),
    "where": lambda x, y: (torch.where(x > 0, x.ceil(), y), y * 1, x * 3),
    "trunc and frac": lambda x, y: (torch.trunc(x) * y, x.frac(), x.sign() + y.detach()),
}


@pytest.mark.parametrize("name", ZEROS)
def test_a_gradient_is_none_only_where_none_of_the_cotangents_flows_into_it(name: str) -> None:
    compiled = dovetail.jit(ZEROS[name])
    for used in ((0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)):
        gradients = []
        for function in (ZEROS[name], compiled):
            leaves = torch.tensor([0.5, -1.5, 2.0]).requires_grad_(), torch.tensor([1.0, 2.0, -3.0]).requires_grad_()
            results = function(*leaves)
            gradients.append(torch.autograd.grad([results[i].sum() for i in used], leaves, allow_unused=True))
        torch.testing.assert_close(gradients[1], gradients[0])


def test_a_backward_takes_what_is_saved_out_of_the_callers_hands() -> None:
    _, backward = halves(lambda x: x.sin(), leaf(3))

    text = str(take_saved(backward))

    assert "kept.clear()" in text and "# 1 values are saved" in text


def test_recompute_is_one_of_three_words() -> None:
    with pytest.raises(ValueError, match="recompute is one of"):
        halves(lambda x: x.sin(), leaf(3), recompute="some")

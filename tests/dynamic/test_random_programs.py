"""Random programs over sizes: one compiled program, called with several shapes, computes what eager computes, with gradients for a third.

Kernels compute some of their lines, and torch others, among them operations without a decomposition.
"""

from __future__ import annotations

import linecache
import random
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

import dovetail

PURE = (
    "{a} + {b}",
    "torch.tanh({a}) * 2",
    "{a}.transpose(0, -1)",
    "{a}.sum(-1, keepdim=True)",
    "{a}.mean(0, keepdim=True) - {a}",
    "{a}.reshape(-1, {a}.shape[-1])",
    "{a}.reshape({a}.shape[0], -1)",
    "torch.cat([{a}, {a}], 0)",
    "{a}[1:]",
    "{a}[..., :-1]",
    "{a}[::2]",
    "{a}[{a}.shape[0] - 1]",
    "{a} / {a}.shape[0]",
    "F.softmax({a}, -1)",
    "F.layer_norm({a}, {a}.shape[-1:])",
    "F.pad({a}, (1, {a}.shape[0] % 3))",
    "{a}.flip(0)",
    "{a} + torch.arange({a}.shape[-1])",
    "{a} * torch.ones({a}.shape)",
    "{a} @ {a}.transpose(-1, -2)",
    "{a}.unsqueeze(0).expand(3, *{a}.shape) * 1",
    "{a}.repeat(2, *([1] * ({a}.dim() - 1)))",
    "{a}.flatten() * 1",
    "{a}.cumsum(-1)",
    "torch.where({a} > 0, {a}, -{a})",
    "{a}.narrow(0, 0, {a}.shape[0] // 2 + 1)",
    "{a}.chunk(2, 0)[-1]",
    "torch.tril({a})",
    "{a} * (1 if {a}.shape[0] > 4 else 2)",
    "torch.stack([{a}, {a}], 0).flatten(0, 1)",
    "{a}.amax(-1, keepdim=True) - {a}",
    "torch.zeros({a}.shape[0], {b}.shape[0]) + 1",
    "torch.full(({a}.shape[0], 3), {a}.shape[0]) * 1.0",
    "torch.arange({a}.shape[0], {a}.shape[0] + 5, 2) * 0.5",
    "{a}.sum() / {a}.numel()",
    "{a} * min({a}.shape[0], 4) + max({a}.shape[0], 3)",
    "{a}.index_select(0, torch.arange({a}.shape[0] - 1, -1, -1))",
    "{a}.roll(1, 0)",
    "{a}.unfold(0, 2, 1).sum(-1)",
    "{a}.tile(2)",
    "torch.eye({a}.shape[0]) * 2",
    "{a}.sort(-1).values",
    "{a}.std(-1, correction=0)",
    "torch.linalg.qr({a} + 0.1).R",
    "torch.fft.rfft({a}).abs()",
    "torch.cdist({a}, {a} * 0.5)",
    "F.conv1d({a}.reshape(1, {a}.shape[0], -1), torch.ones(2, {a}.shape[0], 2))[0]",
    "{a}.cummax(-1).values",
    "F.max_pool1d({a}.reshape(1, 1, -1), 2)[0]",
)
WIDE = (15, 16, 17, 31, 33, 64, 65, 100)  # sizes around those of vectors

WRITES = (
    "{a}.mul_(0.5)",
    "{a}[: {a}.shape[0] // 2] = 1.0",
    "{a}.add_({a}.size(0) + {b}.size(-1))",
    "{a}[..., 1:].add_({a}[..., :-1].clone())",
)


def written(rng: random.Random) -> tuple[str, bool]:
    """Return the source of a function of two [b, t] matrices, and whether it writes to its arguments."""
    rows, names, writes = [], ["x", "y"], rng.random() < 0.25
    for i in range(rng.randint(2, 6)):
        a, b = rng.choice(names[-4:]), rng.choice(names)
        if writes and rng.random() < 0.3:
            rows.append(rng.choice(WRITES).format(a=rng.choice("xy"), b=b))
            continue
        rows.append(f"v{i} = {rng.choice(PURE).format(a=a, b=b)}")
        names.append(f"v{i}")
    results = ", ".join([*names[-2:], rng.choice(("x.shape[1]", "x.shape", "x.shape[0] * y.shape[1] + 1"))])
    return "\n    ".join(["def program(x, y):", *rows, f"return {results}"]) + "\n", writes


def function(text: str, file: str) -> Callable:
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    scope: dict[str, Any] = {"torch": torch, "F": torch.nn.functional}
    exec(compile(text, file, "exec"), scope)
    return scope["program"]


def shapes(rng: random.Random) -> list[tuple[int, int]]:
    drawn = [tuple([rng.choice((rng.randint(2, 9), rng.randint(2, 9), rng.choice(WIDE))) for _ in range(2)]) for _ in range(4)]
    return [*drawn, rng.choice([(1, 3), (3, 1), (5, 5), (2, 2)])]


def called(fn: Callable, args: list[torch.Tensor]) -> tuple | None:
    try:
        return fn(*args)
    except Exception:
        return None


def in_float64(fn: Callable, base: list[torch.Tensor]) -> tuple:
    torch.set_default_dtype(torch.float64)
    try:
        return fn(*(x.double() for x in base))
    finally:
        torch.set_default_dtype(torch.float32)


def check_results(got: tuple, want: tuple, exact: Callable[[], tuple]) -> None:
    """Compare with eager mode; where differences cancel, by its own error beside what it computes in float64."""
    for i, (a, b) in enumerate(zip(got, want, strict=True)):
        if not isinstance(b, torch.Tensor):
            assert type(a) is type(b) and a == b
            continue
        try:
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4, equal_nan=True)
        except AssertionError:
            judge = exact()[i]
            if a.shape != b.shape or a.dtype != b.dtype or not (a - judge).abs().max() <= 4 * (b - judge).abs().max():
                raise
        assert a.requires_grad == b.requires_grad
        if all(n > 1 for n in b.shape):
            assert a.stride() == b.stride()


def check_gradients(got: tuple, want: tuple, inputs: list[list[torch.Tensor]], pick: int) -> None:
    """Compare the gradients of one result: the cotangents of the others are absent."""
    tensors = [(a, b) for a, b in zip(got, want, strict=True) if isinstance(b, torch.Tensor) and b.requires_grad]
    if not tensors:
        return
    pair = tensors[pick % len(tensors)]
    grads = [torch.autograd.grad(out.square().sum(), args, allow_unused=True) for out, args in zip(pair, inputs, strict=True)]
    assert [g is None for g in grads[0]] == [g is None for g in grads[1]]
    for a, b in zip(*grads, strict=True):
        if a is not None:
            torch.testing.assert_close(a, b, rtol=2e-3, atol=2e-3, equal_nan=True)


def check(seed: int) -> None:
    rng = random.Random(seed)
    text, writes = written(rng)
    fn = function(text, f"<random program {seed}>")
    compiled = dovetail.jit(fn, dynamic=True, recompute=rng.choice(["none", "balanced", "all"]))
    grads, pick = seed % 3 == 0 and not writes, rng.randrange(2)
    for i, shape in enumerate(shapes(rng)):
        generator = torch.Generator().manual_seed(i)
        base = [torch.randn(shape, generator=generator) for _ in range(2)]
        ours, eagers = ([x.clone().requires_grad_(grads) for x in base] for _ in range(2))
        want = called(fn, eagers)
        if want is None:
            assert called(compiled, ours) is None, f"eager raises, the compiled function does not: {shape}\n{text}"
            continue
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=".*tracing it with symbolic sizes raised")
            got = compiled(*ours)
        try:
            check_results(got, want, partial(in_float64, fn, base))
            torch.testing.assert_close([x.detach() for x in ours], [x.detach() for x in eagers], equal_nan=True)
            if grads:
                check_gradients(got, want, [ours, eagers], pick)
        except AssertionError as error:
            raise AssertionError(f"{shape}: {error}\n{text}") from error


@pytest.mark.filterwarnings("ignore:.*is compiled for each value", "ignore:.*was compiled .* times", "ignore:.*degrees of freedom")
@pytest.mark.parametrize("seed", range(24))
def test_a_random_program_agrees_with_eager_at_five_shapes(seed):
    check(seed)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*is compiled for each value", "ignore:.*was compiled .* times", "ignore:.*degrees of freedom")
@pytest.mark.parametrize("share", range(30))
def test_many_random_programs_agree_with_eager_at_five_shapes(share):
    for seed in range(100 + 100 * share, 200 + 100 * share):
        check(seed)

"""Numbers from outside that change, in programs that an executor without support for symbolic sizes runs lines of."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
import torch.nn.functional as F
from executors.stand_ins import Pointwise, of
from torch import nn
from torch.utils._pytree import tree_flatten

import dovetail

LETTERS, DOUBLES = list("abcdefghij"), {i: i * 2 for i in range(12)}
USES = (  # of an int that changes
    *("x[n % 4]", "x[:n % 4 + 1].sum()", "x.sum() * n", "sum(x[i % 4].sum() for i in range(n))", "torch.zeros(n + 1).sum() + x.sum()"),
    *("x.reshape(4, -1)[n % 4]", "x.repeat(n % 3 + 1, 1).sum(0)", "LETTERS[n % 10]", "DOUBLES[n]", "DOUBLES.get(n, 3) * x", 'f"{n:03d}"'),
    *("x if n % 2 == 0 else -x", "x if n in (1, 2, 5) else -x", "torch.arange(n).sum() + x.sum()", "x ** n", "x.pow(n)", "2 ** n * x"),
    *("x + n / 3", "x // (n + 1)", "x * (n << 2)", "x * (n & 3)", "x * (n ^ 5)", "x * ~n", "divmod(n, 3)", "x * math.sqrt(n)"),
    *("x * math.factorial(n)", "x * math.gcd(n, 6)", "torch.full((2,), n)", "torch.full((n + 1,), 1.5).sum()", "torch.tensor(n)"),
    *("torch.tensor([n, 2 * n])", "x.topk(n % 3 + 1, 0).values", "x.roll(n, 0)", "torch.roll(x, n)", "F.pad(x, (n % 3, 1))"),
    *("F.one_hot(torch.tensor([0, 1]), n + 2)", "x.chunk(n % 4 + 1)[0]", "x.split(n % 4 + 1)[0]", "x.sum(n % 2)", "x.unsqueeze(n % 2)"),
    *("x.cumsum(n % 2)", "torch.stack([x] * (n % 3 + 1)).sum()", "[x] * (n % 3)", "[n] * 3", "list(range(n))", "(n, n + 1, -n, n * n)"),
    *('str(n) + "a"', "hash(n)", "isinstance(n, int)", "type(n)", "n.bit_length()", "int(str(n)) * x", "x.expand(n % 3 + 1, 4, 5).sum()"),
    *("torch.eye(n + 1)", "torch.linspace(0, 1, n + 2)", "F.interpolate(x[None, None], size=(n + 2, 3))"),
    *("F.interpolate(x[None, None], scale_factor=n % 3 + 1)", "F.avg_pool2d(x[None, None], n % 2 + 1)"),
    *("torch.randn(n + 1, generator=torch.Generator().manual_seed(n)).sum() + x.sum()", "x[torch.tensor(n % 4)]", "x[[n % 4, 0]]"),
    *("x.index_select(0, torch.tensor([n % 4]))", "x.masked_fill(x > n, n)", "torch.where(x > n, x, n)", "x.clamp(max=n)"),
    *("x.clamp(-n, n)", "(x > n).sum()", "x.eq(n)", "x.clone().fill_(n)", "x.new_full((2,), n)"),
    *("x.clone().add_(x, alpha=n)", "torch.add(x, x, alpha=n)", "min(n, 3) * x", "max(n, 3) * x", "abs(-n) * x", "round(n / 3) * x"),
    *("x * float(n)", "x * bool(n)", "x * (n > 3)", "x[:, :1] * n if n > 2 else x[:, 1:] * n", "x.view(-1)[n:n + 2]"),
    *("x.flatten()[-n - 1]", "x.narrow(0, n % 4, 1)", "x.select(0, n % 4)", "x.diagonal(n % 3)", "x.tril(n - 4)", "x.triu(-n)"),
    *("torch.ones(4, 5).tril(n - 2) * x", "x.unfold(1, n % 3 + 1, 1)", "{n: x}", '{"n": n, "x": x * n}', "[i * n for i in range(3)]"),
    *("enumerate([n]).__next__()", "sorted([n, 3, 1])", "[3, 1, n].index(n)", "n if n else x", "n or x", "not n", "n == 3", "n != 3"),
    *("n is None", "(n > 2) and (n < 5)", "x * (n if n < 3 else 3)", "x.mul(n).add(n).sub(n)", "torch.cat([x[:1]] * (n % 2 + 1))"),
    *("x.mean() * (1 - 0.9 ** (n + 1))", "x / (1 - 0.999 ** (n + 1))", "0.5 * (1 + math.cos(math.pi * n / 10)) * x"),
    *("x * 1e-3 * min((n + 1) ** -0.5, (n + 1) * 4 ** -1.5)", "x.to(torch.int64) % (n + 1)", "x.long() >> (n % 3)", "x.long() & n"),
    *('"%d-%s" % (n, n)', '"{}".format(n)', "bytes([n % 250])", "chr(97 + n)", "complex(n, 1)", "slice(n)", "x[slice(n % 4)]"),
    *("range(n)[-1] if n else 0", "len(range(n))", "n.__class__", "(lambda k=n: k * x)()", "dict(a=n)", "set([n, 1])", '"abc"[n % 3]'),
    *("(1, 2, 3)[n % 3] * x", 'n.to_bytes(2, "big")', "n.real", "n.numerator * x", "int(n) * x", "float(n).is_integer()"),
)


class Counter(nn.Module):
    """A model that counts steps, and adds its losses up."""

    def __init__(self):
        super().__init__()
        self.linear, self.steps, self.total = nn.Linear(4, 4), 0, 0.0

    def forward(self, x, temperature):
        self.steps += 1
        y = F.softmax(self.linear(x) / temperature, -1).square().mean() * (2 if self.steps % 5 == 0 else self.steps)
        self.total += y.item()
        return y


class CarefulCounter(Counter):
    """One that also looks at the loss."""

    def forward(self, x, temperature):
        y = super().forward(x, temperature)
        return y * 0 if y > 1e6 else y


@pytest.mark.parametrize("kind", [Counter, CarefulCounter])
@pytest.mark.parametrize("learns", [False, True])
def test_a_model_that_counts_is_compiled_few_times(kind, learns):
    calls, counted = [], []
    softmax = of("own", F.softmax, lambda *args, **kwargs: calls.append(0) or F.softmax(*args, **kwargs))
    for jit in (lambda module: module, lambda module: dovetail.jit(module, executors=[Pointwise() if learns else softmax])):
        torch.manual_seed(0)
        model = kind().requires_grad_(learns)
        call, optimizer = jit(model), torch.optim.SGD(model.parameters(), lr=0.1)
        for i in range(14):
            loss = call(torch.randn(3, 4), 1 + i / 10)
            if learns:
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
        counted.append((model.steps, model.total, [p.detach() for p in model.parameters()]))
    torch.testing.assert_close(counted[1], counted[0])
    assert call.cache_info().programs <= 4
    assert learns or len(calls) >= 14


class Box:
    """What a program reads and writes from outside."""

    n = 2


def outcome(fn, *args):
    """Return what a call returns, or the type of its error."""
    try:
        return fn(*args)
    except (ArithmeticError, IndexError, RuntimeError, TypeError, ValueError) as error:
        return type(error).__name__


@pytest.mark.one_in(8)
@pytest.mark.parametrize("outside", [False, True])
@pytest.mark.parametrize("use", USES)
def test_uses_of_an_int(use, outside):
    names = {"torch": torch, "F": F, "math": math, "LETTERS": LETTERS, "DOUBLES": DOUBLES}
    rows = ["n = box.n", "box.n += 1"] * outside
    text = "".join([f"    {row}\n" for row in (*rows, "s = F.softmax(x, -1)", f"return {use}, s")])
    exec(f"def fn(x, n, box):\n{text}", names)
    fn, here, there = names["fn"], Box(), Box()
    compiled = dovetail.jit(fn, executors=[of("own", F.softmax, F.softmax)])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for n in (3, 4, 5, 2, 7, 0, 1, 6, 9, 3):
            x = torch.randn(4, 5)
            got, want = outcome(compiled, x.clone(), n, there), outcome(fn, x.clone(), n, here)
            (ours, structure), (theirs, expected) = tree_flatten(got), tree_flatten(want)
            assert structure == expected
            for one, other in zip(ours, theirs, strict=True):
                if isinstance(other, torch.Tensor):
                    torch.testing.assert_close(one, other)
                else:
                    assert repr(one) == repr(other)
            assert there.n == here.n
    assert not [str(each.message) for each in caught if "bug" in str(each.message)]


def numbers_alone(input, other):
    return type(other) is float or "expected a float"


def test_an_executor_keeps_the_operations_that_it_would_lose():
    ex = of("own", torch.mul, torch.mul, checker=numbers_alone)
    compiled, x = dovetail.jit(lambda x, w: x.sin() * w, executors=[ex]), torch.randn(3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for w in (0.1, 0.2, 0.3, 0.4):
            torch.testing.assert_close(compiled(x, w), x.sin() * w)
            assert any(line.implementation is not None and line.implementation.executor == "own" for line in dovetail.last_traces(compiled)[-1].lines)
    (warning,) = caught
    assert "args[1] is compiled for each value, since own would run fewer operations for numbers that change" in str(warning.message)


def test_another_path_with_fewer_operations_of_an_executor_pins_nothing():
    ex = of("own", torch.mul, torch.mul, checker=numbers_alone)
    compiled, x = dovetail.jit(lambda x, w, flag: (x * 2.0 if flag else x) + w, executors=[ex]), torch.randn(3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for w, flag in ((0.1, True), (0.2, True), (0.3, False), (0.4, False), (0.5, True), (0.6, False)):
            torch.testing.assert_close(compiled(x, w, flag), (x * 2.0 if flag else x) + w)
    assert compiled.cache_info().programs == 3


def test_sizes_stay_plain():
    ex = of("own", F.softmax, F.softmax)
    compiled = dovetail.jit(lambda x, w, n: F.softmax(x * w, -1) * n, executors=[ex])
    for i, rows in enumerate((3, 4, 5, 3, 4, 5)):
        x = torch.randn(rows, 2)
        torch.testing.assert_close(compiled(x, 0.1 * i, i), F.softmax(x * (0.1 * i), -1) * i)
    assert compiled.cache_info().programs <= 5


def test_ints_of_any_size_and_sign():
    ex = of("own", F.softmax, F.softmax)

    def fn(x, n):
        return F.softmax(x, -1) * (n % 7) + n // 3 % 1000, n * n, -n if n > 0 else n + 1

    compiled, x = dovetail.jit(fn, executors=[ex]), torch.randn(3, dtype=torch.float64)
    for n in (3, 4, 0, 1, -5, 1 << 40, (1 << 62) + 1, -(1 << 62), 1 << 70, 8):
        got, want = compiled(x, n), fn(x, n)
        torch.testing.assert_close(got, want, rtol=1e-12, atol=0)
        assert got[1:] == want[1:]

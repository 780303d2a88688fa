"""Numbers from outside that change between calls: one program runs all of them, but where it needs their value."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._pytree import tree_leaves

import dovetail


def written(x, key, w):
    """Return a copy of x with a number written to some elements."""
    y = x.clone()
    y[key] = w
    return y


NUMBERS = (0.3, 0.45, 1 / 3, 0.0007, 123.4567, 0.0, -0.0, -2.5, math.inf, math.nan, 0.3)
OPERANDS = {  # what a program does with a number, as an operand alone
    **{
        text: eval(f"lambda x, w: {text}", {"torch": torch, "F": F, "written": written})
        for text in (
            *("x * w", "w * x", "x + w", "w + x", "x - w", "w - x", "x / w", "w / x", "x ** w", "w ** x", "x % w", "x // w", "x > w", "x == w"),
            *(
                "x.add(x, alpha=w)",
                "x.sub(x, alpha=w)",
                "torch.rsub(x, w)",
                "torch.addcmul(x, x, x, value=w)",
                "torch.addcdiv(x, x, x * x + 1, value=w)",
            ),
            *("x.clone().mul_(w)", "x.clone().add_(x, alpha=w)", "x.clone().fill_(w)", "x.clone().div_(w)", "torch.full((2,), w)"),
            *("torch.full_like(x, w)", "torch.tensor(w)", "torch.tensor([w, 1.0])", "x.masked_fill(x > 0, w)", "torch.where(x > 0, x, w)"),
            *("F.leaky_relu(x, w)", "F.threshold(x, 0.5, w)", "F.pad(x, (1, 1), value=w)", "torch.fmod(x, w)", "F.softmax(x * w, -1)", "x.sum() * w"),
            *("x.index_fill(0, torch.tensor([1]), w)", "x.new_full((2,), w)"),
            *("written(x, 0, w)", "written(x, slice(1, 3), w)", "written(x, [0, 2], w)", "written(x, torch.tensor([1]), w)"),
            *("torch._foreach_mul([x, x], w)", "torch._foreach_add([x, x], w)", "x * -w", "x * (w * 2)", "x * (1 - w) + w * x.mean()", "x * abs(w)"),
            *("w", "[w, x * w]", "{'w': w}", "(w * 2, -w, w + 1)", "isinstance(w, float)", "type(w).__name__", "float(w)", "str(w)"),
        )
    }
}
WIDE = (  # and for float32 and float64 alone
    *("torch.lerp(x, y, w)", "x.clone().lerp_(y, 1 - w)", "torch._foreach_lerp([x], [y], w)[0]", "torch.clamp(x, max=w)", "x.clamp(-w, w)"),
    *("x.clamp_min(w)", "torch.clip(x, 0, w)", "x.clone().clamp_(max=w)", "x * (w ** 2)", "x / (1 + w * w)", "x * math.exp(-abs(w))", "x * 2 ** -w"),
    *("x * (1 / w)", "x * int(w * 100)", "x * math.cos(w)", "torch.lerp(x, y, 0.1) * w + y"),
    "x.index_add(0, torch.tensor([1, 1]), y[:2], alpha=w)",
)
DRAWN = ("F.dropout(x, w)", "torch.normal(0.0, w, (7,))", "torch.normal(x, w)", "torch.empty(7).normal_(w, w)", "torch.empty(7).uniform_(-w, w)")
DRAWN += ("torch.bernoulli(x, w)", "torch.empty(7).bernoulli_(w)", "torch.empty(7).exponential_(w)", "F.alpha_dropout(x, w)")
DRAWN += ("F.scaled_dot_product_attention(*[x.reshape(1, 7, 1)] * 3, dropout_p=w)",)
INSIDE = (  # and by operations that compute with it, or ask it something
    *(
        "F.elu(x, w)",
        "F.celu(x, w)",
        "F.softplus(x, w)",
        "F.hardtanh(x, -w, w)",
        "F.hardshrink(x, w)",
        "F.softshrink(x, w)",
        "torch.logit(x.sigmoid(), w / 3)",
    ),
    *("F.huber_loss(x, y, delta=w)", "F.smooth_l1_loss(x, y, beta=w)", "F.margin_ranking_loss(x, y, x.sign(), margin=w)", "torch.linspace(0, w, 5)"),
    *(
        "F.cross_entropy(x[None], torch.tensor([2]), label_smoothing=w)",
        "torch.nan_to_num(x / 0, w)",
        "F.gumbel_softmax(x * 0, tau=w, hard=True) * x",
    ),
    *(
        "F.cosine_embedding_loss(x[None], y[None], torch.tensor([-1]), margin=w)",
        "F.triplet_margin_loss(x, y, x - y, margin=w)",
        "F.normalize(x, dim=0, eps=w)",
    ),
)
VALUES = {  # and where its value is needed
    **{
        text: eval(f"lambda x, w: {text}", {"torch": torch, "F": F, "math": math})
        for text in (
            *(
                "x if w > 0.4 else -x",
                "x * bool(w)",
                "x * (w == 0.3)",
                "{0.3: x, 0.45: -x}.get(w, x + 1)",
                "w in (0.3, 1.0)",
                "x * math.copysign(1.0, w)",
            ),
            *("F.hardtanh(x, -1.0, 3.0 if w > 0 else 2.0)", "x ** (w ** 0.5 if w >= 0 else 1)", "F.elu(x, w)", "hash(w)"),
            *("F.layer_norm(x, (5,), eps=abs(w))", "f'{w:.3f}'", "round(w * 100) if math.isfinite(w) else 0", "[x, -x][int(w > 0)]"),
        )
    }
}


EXACT = {torch.float64: {"rtol": 1e-13, "atol": 1e-13}}  # which a number that was rounded to float32 is not


def equal(got, want):
    """Compare nests of tensors and numbers; nan is nan, and -0.0 is not 0.0."""
    for one, other in zip(tree_leaves(got), tree_leaves(want), strict=True):
        assert type(one) is type(other)
        if isinstance(other, torch.Tensor):
            torch.testing.assert_close(one, other, equal_nan=True, **EXACT.get(other.dtype, {}))
        else:
            assert repr(one) == repr(other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.complex64], ids=str)
@pytest.mark.parametrize("text", OPERANDS)
def test_a_number_that_changes_is_an_operand_of_one_program(text, dtype):
    fn, x = OPERANDS[text], torch.tensor([1, -2, 3, -4, 5]).to(dtype)
    compiled, raised = dovetail.jit(fn), 0
    for w in NUMBERS if dtype is not torch.int64 else filter(math.isfinite, NUMBERS):  # what has no integer is not checked when it is filled in
        try:
            want = fn(x, w)
        except (RuntimeError, TypeError, ZeroDivisionError) as error:
            raised += 1
            with pytest.raises(type(error)):
                compiled(x, w)
        else:
            equal(compiled(x, w), want)
    assert raised or compiled.cache_info().programs <= 2 or (text.startswith("F.pad") and dtype is torch.int64)  # which needs an integer


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("text", WIDE)
def test_a_number_that_changes_and_gradients(text, dtype):
    fn = eval(f"lambda x, y, w: {text}", {"torch": torch, "math": math})
    compiled = dovetail.jit(fn)
    for w in (0.3, 0.45, 1 / 3, -0.0007, 2.5, 1.0):
        leaves = [(torch.arange(7) * step - 3).to(dtype).requires_grad_() for step in (1, 2)]
        results = [call(*leaves, w) for call in (compiled, fn)]
        grads = [torch.autograd.grad(result.square().sum(), leaves, allow_unused=True) for result in results]
        torch.testing.assert_close(results[0], results[1], **EXACT.get(dtype, {}))
        assert [g is None for g in grads[0]] == [g is None for g in grads[1]]
        for got, want in zip(*grads):
            if want is not None:
                torch.testing.assert_close(got, want, **EXACT.get(dtype, {}))
    assert compiled.cache_info().programs == 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("text", [*INSIDE, *DRAWN])
def test_a_number_that_changes_inside_an_operation(text, dtype):
    fn = eval(f"lambda x, y, w: {text}", {"torch": torch, "F": F})
    compiled = dovetail.jit(fn)
    for w in (0.3, 0.45, 1 / 3, 0.97, 0.62, 1.0, 0.0, 0.25, 7.5, 0.4):
        seen = []
        for call in (fn, compiled):
            leaves = [(torch.arange(7) * step / 4 - 0.7).to(dtype).requires_grad_() for step in (1, 2)]
            torch.manual_seed(5)
            with torch.set_grad_enabled("bernoulli" not in text):  # which has no derivative in eager mode
                try:
                    result = call(*leaves, w)
                except (RuntimeError, ValueError) as error:
                    seen.append(("raised", error))
                    continue
                grads = torch.autograd.grad(result.square().sum(), leaves, allow_unused=True) if result.requires_grad else ()
            seen.append((result, *[g for g in grads if g is not None], torch.rand(1)))
        if isinstance(seen[0][0], str):
            assert isinstance(seen[1][1], type(seen[0][1]))
        else:
            exact = {} if "celu" in text else EXACT.get(dtype, {})  # of which eager mode's gradient has the digits of float32
            torch.testing.assert_close(seen[1], seen[0], equal_nan=True, **exact)
    assert compiled.cache_info().programs <= 6


@pytest.mark.filterwarnings("ignore:.*compiled for each value", "ignore:.* was compiled")
@pytest.mark.parametrize("text", VALUES)
def test_a_number_whose_value_is_needed_is_compiled_for_each(text):
    fn, x = VALUES[text], torch.tensor([1.0, -2.0, 3.0, -4.0, 5.0])
    compiled = dovetail.jit(fn)
    for w in NUMBERS:
        equal(compiled(x, w), fn(x, w))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("text", [*OPERANDS, *VALUES])
def test_numbers_change_in_a_function_that_needs_values(text):
    inner = (OPERANDS | VALUES)[text]

    def fn(x, w):
        if x.sum() > 0:
            return inner(x, w)
        y = x.abs()
        return [inner(y, w), w] if y.max() > 2 else (y, w + 1)

    compiled = dovetail.jit(fn)
    for i, w in enumerate((*NUMBERS, *NUMBERS)):
        x = torch.tensor([1.0, -2.0, 3.0, -4.0, 5.0]) * (1, -1, 1, 0.4, -0.1)[i % 5]
        try:
            want = fn(x, w)
        except (RuntimeError, TypeError, ZeroDivisionError) as error:
            with pytest.raises(type(error)):
                compiled(x, w)
        else:
            equal(compiled(x, w), want)


def test_one_sentence_says_that_the_value_is_needed():
    compiled, x = dovetail.jit(torch.norm), torch.tensor([-1.0, 2.0])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for w in (0.1, 0.2, 0.3, 0.5, 0.6):
            torch.testing.assert_close(compiled(x, w), torch.norm(x, w))
    (warning,) = caught
    assert "args[1] is compiled for each value, since it is needed as a plain number" in str(warning.message)


def test_the_numbers_beside_one_that_is_needed_change_freely():
    compiled = dovetail.jit(lambda x, p, w: torch.norm(x, p) * w)
    x = torch.tensor([-1.0, 2.0])
    with pytest.warns(UserWarning, match=r"args\[1\] is compiled for each value"):
        for p, w in ((1.5, 0.1), (2.5, 0.2), (2.5, 0.3), (2.5, 0.4), (2.5, 0.5)):
            torch.testing.assert_close(compiled(x, p, w), torch.norm(x, p) * w)
    assert compiled.cache_info().programs == 2


def test_an_error_of_the_program_pins_no_number():
    compiled, x = dovetail.jit(lambda x, y, w: (x + y) * w), torch.ones(2)
    for w in (0.1, 0.2):
        compiled(x, x, w)
    for w in (0.3, 0.4):
        with pytest.raises(RuntimeError, match=r"broadcast|must match"):
            compiled(x, torch.ones(3), w)
        assert torch.equal(compiled(x, x, w), (x + x) * w)
    assert compiled.cache_info().programs == 2


def test_without_dynamic_sizes_each_value_is_compiled():
    compiled, x = dovetail.jit(lambda x, w: x * w, dynamic=False), torch.ones(2)
    for w in (0.1, 0.2, 0.3, 0.4):
        assert torch.equal(compiled(x, w), x * w)
    assert compiled.cache_info().programs == 4


class Meter(nn.Module):
    """A model that counts in Python as it learns."""

    scale = 1.0

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.total, self.average, self.temperature, self.history = 0.0, 0.0, 1.0, {"loss": 0.0, "rows": [0.0]}

    def forward(self, x, factor):
        y = (self.linear(x) * self.temperature / factor).square().mean() * self.scale
        self.total += y.item()
        self.average = 0.9 * self.average + 0.1 * float(y)
        self.temperature *= 0.99
        self.history["loss"] += y.item() * len(x)
        self.history["rows"][0] = self.total
        type(self).scale *= 1.01
        return y


class CarefulMeter(Meter):
    """One that also looks at the loss."""

    def forward(self, x, factor):
        y = super().forward(x, factor)
        if not torch.isfinite(y) or y > 1e6:
            self.total -= 1.0
            return y * 0
        self.average += 0.5
        return y * self.average


@pytest.mark.parametrize("kind", [Meter, CarefulMeter])
def test_a_model_that_counts_in_floats_is_compiled_few_times(kind):
    counted = []
    for jit in (lambda module: module, dovetail.jit):
        torch.manual_seed(0)
        kind.scale = 1.0
        meter = kind()
        call, optimizer = jit(meter), torch.optim.SGD(meter.parameters(), lr=0.1)
        for i in range(12):
            call(torch.randn(4, 3), 1 + i / 10).backward()
            optimizer.step()
            optimizer.zero_grad()
        numbers = [meter.total, meter.average, meter.temperature, meter.history["loss"], meter.history["rows"][0], kind.scale]
        assert all([type(n) is float for n in numbers])
        counted.append((numbers, [p.detach() for p in meter.parameters()]))
    torch.testing.assert_close(counted[1], counted[0])
    assert call.cache_info().programs <= 3


class Steps(nn.Module):
    """A model with a counter that it looks at, that needs a value."""

    def __init__(self):
        super().__init__()
        self.linear, self.step, self.kept, self.history = nn.Linear(3, 3), 0, [], {}

    def forward(self, x, k):
        self.step += 1
        y = self.linear(x)
        if y.abs().max() > 1e6:
            return y * 0
        if self.step % 3 == 0:
            self.kept.append(self.step)
            y = y / self.step
        self.history[k] = self.step * k
        return y * min(1.0, self.step / 5) + y.topk(k).values.sum()


def test_ints_change_in_a_function_that_needs_values():
    results = []
    for jit in (lambda module: module, dovetail.jit):
        torch.manual_seed(0)
        steps = Steps()
        call = jit(steps)
        rows = [call(torch.randn(2, 3), 1 + i % 3).detach() for i in range(20)]
        results.append((rows, steps.step, steps.kept, sorted(steps.history.items())))
    torch.testing.assert_close(results[1][0], results[0][0])
    assert results[1][1:] == results[0][1:]
    assert call.cache_info().programs <= 3


SCALARS = {  # what a program does with a number of NumPy's -> how many programs run all values
    "an operand": (lambda x, t: (x * t, t * x, t - x, x**t, x > t, x.clone().mul_(t).add_(x, alpha=1 - t), x * float(t)), 2),
    "arithmetic": (lambda x, t: (t * 2, 1 / t, t**2, -t, [t, float(t)], t == t, type(t).__name__), 2),
    "a schedule": (lambda x, t: x * (0.5 * (1 + np.cos(np.pi * t))), 2),
    "a condition": (lambda x, t: x * 2 if 0.2 <= t < 0.7 else x * min(t, 0.1), 4),
    "a branch on a tensor": (lambda x, t: x * t if x.sum() > 1 else x + t, 2),
}


@pytest.mark.parametrize("name", SCALARS)
@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_numbers_of_numpy_change(name, kind):
    function, programs = SCALARS[name]
    compiled, x = dovetail.jit(function), torch.linspace(0.1, 1.0, 7)
    for value in (0.9, 0.3, 0.45, 0.1, 0.75, 0.8, 0.6, 0.35, 0.5, 0.95):
        ours, theirs = compiled(x, kind(value)), function(x, kind(value))
        assert [type(a) for a in tree_leaves(ours)] == [type(a) for a in tree_leaves(theirs)]
        equal(ours, theirs)
    if name != "a condition" or kind is np.float64:  # float32 compares in its own dtype, and is compiled for each value there
        assert compiled.cache_info().programs <= programs


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_learning_rates_of_a_table_of_numpys_are_numbers(kind):
    rates, results = np.cos(np.linspace(0, 1.4, 12)) * 0.1, []
    for jit in (lambda step: step, dovetail.jit):
        torch.manual_seed(0)
        model = nn.Linear(3, 2)
        optimizer = kind(model.parameters(), lr=0.1)

        def step(x, model=model, optimizer=optimizer):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()

        call = jit(step)
        for rate in rates:
            optimizer.param_groups[0]["lr"] = rate
            call(torch.randn(4, 3))
        results.append([p.detach() for p in model.parameters()])
    torch.testing.assert_close(results[1], results[0])
    assert call.cache_info().programs <= 3


def test_arithmetic_of_ints_is_exact():
    def fn(x, n):
        return x * (n * n * n % 1_000_003) if x.sum() > 0 else x

    compiled = dovetail.jit(fn)
    for n in (3, 1 << 20, 1 << 30, (1 << 40) + 1, -(1 << 62), 1 << 70):
        x = torch.ones(2, dtype=torch.float64)
        torch.testing.assert_close(compiled(x, n), fn(x, n), rtol=0, atol=0)


def test_numbers_beside_another_default_device_or_dtype():
    def fn(x, w):
        return x * w, torch.ones(2, device="cpu") * w, w * 2

    compiled, x = dovetail.jit(fn), torch.ones(2)
    try:
        for device, dtype in (("cpu", torch.float32), ("meta", torch.float32), ("cpu", torch.float64)):
            torch.set_default_device(device)
            torch.set_default_dtype(dtype)
            for w in (0.1, 0.2, 0.3):
                equal(compiled(x, w), fn(x, w))
    finally:
        torch.set_default_device(None)
        torch.set_default_dtype(torch.float32)


RATE = 1.0


def test_globals_closures_and_objects_change_freely():
    class Settings:
        weight = 0.5

    settings, offset = Settings(), 0.0

    def fn(x, parts):
        return x * RATE + offset * settings.weight + parts["a"][0]

    compiled = dovetail.jit(fn)
    for i in range(8):
        globals()["RATE"], settings.weight, offset = 1.0 + i, 0.5 * i + 0.1, 0.1 * i
        parts = {"a": [0.25 * i]}
        torch.testing.assert_close(compiled(torch.ones(2), parts), fn(torch.ones(2), parts))
    assert compiled.cache_info().programs <= 2


TAKING = (  # an int that changes: whether the call raises does not depend on whether the int is a symbol
    *(
        "x.clone().__setitem__(0, k)",
        "x.clone().__setitem__(slice(0, k), k)",
        "x.clone().__setitem__(x > 0, k)",
        "y.__setitem__(torch.tensor([0]), k)",
    ),
    *("x.masked_fill(x > 0, k)", "torch.full((2,), k)", "x.index_fill(0, torch.tensor([0]), k)", "x.scatter(0, torch.tensor([0]), k)"),
    *("torch.tensor([k])", "torch.tensor(k)", "x.clone().fill_(k)", "torch.add(x, x, alpha=k)", "x.clamp(k)", "x.pow(k)", "F.pad(x, (k, 0))"),
    *("x.repeat(k)", "x.roll(k)", "torch.arange(k)", "torch.linspace(0, 1, k)", "x.new_full((k,), k)", "torch.where(x > 0, x, k)", "x.topk(k)"),
    *("x.narrow(0, 0, k)", "x.unfold(0, k, 1)", "torch.eye(k)", "x.view(k, -1)", "x.reshape(k, k)", "x.expand(k, 6)", "x[k]", "x[k:]", "x[:, k]"),
    *("x.sum(k)", "x.split(k)", "x.chunk(k)", "x.tril(k)", "torch.ones(k, 6) @ x", "x.view(2, 3)[k]", "x.unsqueeze(k)", "x.flip(k)", "x.long() << k"),
    *(
        "F.one_hot(torch.arange(2), k)",
        "torch.zeros(k).index_add(0, torch.tensor([0]), x[:1])",
        "x.select(0, k)",
        "torch.bincount(x.long(), minlength=k)",
    ),
)


@pytest.mark.parametrize("text", TAKING)
def test_a_handler_sees_the_errors_of_eager_mode(text):
    def f(x, k):
        y = x * 1
        try:
            taken = eval(code, {"x": x, "y": y, "k": k, "torch": torch, "F": F})
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            return [kind.__name__ for kind in (RuntimeError, TypeError, ValueError, IndexError) if isinstance(error, kind)], y
        return taken, y

    code = compile(text, "taking", "eval")
    fn = dovetail.jit(f)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for k in (2, 7, 3, 6, 1, 0):
            x = torch.arange(6.0)
            (taken, y), (expected, changed) = fn(x, k), f(x, k)
            assert torch.equal(y, changed)
            assert repr(taken) == repr(expected)


SLICED = (
    *("(x * 2)[0 : int(w) + 1].sum()", "x[int(w * 2) :] * 2", "(x * 2)[: round(w)]", "x[-int(w) - 1 :, : int(w) + 1] + 1", "x[:: int(w) + 1] * w"),
    *(
        "written(x, slice(0, int(w) + 1), w)",
        "written(x, (slice(None), slice(int(w), int(w) + 2)), 3)",
        "[x[i : i + int(w) + 1].sum() for i in range(4)]",
    ),
    *("x.narrow(0, int(w), 1) * 2", "x.split(int(w) + 1)[0] * 2", "x.view(-1)[int(w) : 6 - int(w)].cumsum(0)", "torch.zeros(int(w) + 1)"),
)


@pytest.mark.parametrize("executors", [["torch"], None])
@pytest.mark.parametrize("text", SLICED)
def test_slices_by_what_is_computed_of_a_float(text, executors):
    program = eval(f"lambda x, w: {text}", {"torch": torch, "written": written})
    fn, x = dovetail.jit(program, executors=executors), torch.arange(24.0).view(6, 4)
    for w in (0.3, 0.1, 0.2, 1.5, 0.7, 2.5, 1.2, 0.3):
        torch.testing.assert_close(fn(x, w), program(x, w))

"""Which operations run for all sizes as one program, and which need a size as a plain number: the lists of the docs, held by this test."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import dovetail

# of a matrix x of n rows
ONE_PROGRAM = (
    "x ** n",
    "torch.clamp(x, max=n)",
    "x.masked_fill(x > 0, n)",
    "torch.where(x > 0, x, n)",
    "x > n",
    "x // n",
    "x % n",
    "n - x",
    "n / (x.abs() + 1)",
    "torch.full_like(x, n)",
    "x.new_full((n, 2), 1.5)",
    "torch.add(x, n, alpha=2)",
    "x.addcmul(x, x, value=n)",
    "torch.lerp(x, x * 2, n)",
    "x.fill_(n) * 1",
    "x.topk(n - 1, 0).values",
    "torch.triu(x, n - 3)",
    "x.roll(n, 0)",
    "x[-n]",
    "x.select(0, n - 1)",
    "x.narrow(0, 1, n - 1)",
    "x.split([1, n - 1])[1]",
    "x.unfold(0, n - 1, 1)",
    "F.pad(x, (n, 0))",
    "x.repeat_interleave(n, 0)",
    "x.expand(n, n, 4)",
    "torch.arange(n, dtype=torch.float32)",
    "torch.eye(n, 3)",
    "F.avg_pool1d(x[None], 2)",
    "x.view(n, 2, 2).sum(0)",
    "x.unflatten(0, (n, 1))",
    "torch.meshgrid(torch.arange(n), torch.arange(n), indexing='ij')[0]",
    "torch.einsum('ij,kj->ik', x, x)",
    "torch.diag(x[:, 0])",
    "x.var(0, correction=1)",
    "x.logsumexp(0)",
    "x.argsort(0)",
    "torch.gather(x, 0, torch.zeros(n, 4, dtype=torch.long))",
    "torch.zeros(n, 4).index_add(0, torch.arange(n), x)",
    "x[torch.arange(n)]",
    "F.glu(x)",
    "F.cross_entropy(x, torch.zeros(n, dtype=torch.long))",
    "F.mse_loss(x, x * 2)",
    "F.binary_cross_entropy_with_logits(x, x.sigmoid())",
    "F.scaled_dot_product_attention(x[None], x[None], x[None])",
    "F.batch_norm(x, torch.zeros(4), torch.ones(4), training=True)",
    "F.conv1d(x.t()[None], torch.ones(2, 4, 2))",
    "F.normalize(x)",
    "x.norm()",
    "x.diff(dim=0)",
    "torch.rot90(x)",
    "F.interpolate(x[None, None], size=(n * 2, 4))",
    "torch.cdist(x, x)",
    "x.median(0).values",
    "x.kthvalue(2, 0).values",
    "torch.searchsorted(torch.arange(9) * 1.0, x)",
    "x[:, :3].svd().S",
    "torch.fft.rfft(x, dim=0)",
    "torch.trapz(x, dim=0)",
    "F.interpolate(x[None], scale_factor=1.5)",
    "F.interpolate(x[None], size=n + 3, mode='linear', align_corners=True)",
    "torch.linspace(0, n, 5)",
    "torch.linspace(0, 1, n)",
    "torch.linalg.qr(x[:, :3]).R.abs()",
    "torch.linalg.solve(x @ x.t() + 9 * torch.eye(n), x)",
    "F.grid_sample(x[None, None], torch.zeros(1, 2, 3, 2), align_corners=False)",
    "F.max_pool1d(x.t(), 3, 1, 1)",
    "x.quantile(0.5, dim=0)",
    "torch.tensor([[n, 1], [2, n + 1]])",
    "x * torch.tensor(n)",
    "torch.fft.irfft(torch.fft.rfft(x, dim=0), n=n, dim=0)",
    "torch.arange(0, 1, 1 / n)",
    "torch.arange(0, n, 0.5)",
    "F.pdist(x)",
    "torch.hann_window(n)",
    "torch.kaiser_window(n, True, 5.0, dtype=torch.float64)",
    "torch.fft.rfftfreq(n, 0.5)",
    "torch.combinations(x[:, 0], 3)",
    "torch.triu_indices(n, n, 1)",
    "torch.tril_indices(n, n - 2, -1)",
    "x.chunk(2)[-1]",
    "torch.zeros(n, n).fill_diagonal_(1.0)",
    "torch.trapezoid(x[:, 0], x[:, 1])",
    "torch.cumulative_trapezoid(x, x + 1, dim=0)",
    *[
        f"F.embedding_bag(torch.arange(2 * n) % 7, torch.ones(7, 4), torch.arange(n){', include_last_offset=True' * last}, mode='{mode}')"
        for mode in ("sum", "mean", "max")
        for last in (False, True)
    ],
    "F.embedding_bag(torch.arange(2 * n).view(n, 2) % 7, torch.ones(7, 4), per_sample_weights=x[:, :2], mode='sum')",
)
PINNING = (
    "x.chunk(n)[0]",
    "x * {4: 1, 5: 2}.get(n, 3)",
    "x * sum(torch.arange(n).tolist())",
    "x.unbind(0)[1]",
    "F.affine_grid(torch.ones(1, 2, 3), (1, 1, n, 4), align_corners=False)",
    "x.norm(p=n / 2)",
    "F.smooth_l1_loss(x, x + 1, beta=1 / n)",
    "torch.fft.ifft(torch.fft.fft(x, dim=0), dim=0).real",
    "torch.gradient(x, dim=0)[0]",
    "torch.histc(x, n)",
    "torch.histogram(x, 4, range=(-3.0, 3.0)).hist",
    "torch.trapezoid(x, dx=1 / n, dim=0)",
    "torch.vander(x[:, 0])",
)
CELL, LSTM = torch.nn.LSTMCell(4, 3), torch.nn.LSTM(4, 3, batch_first=True)
QUICK = 6  # one of so many is tested without -m ""


def programs(expression: str) -> int:
    """Return how many programs four numbers of rows need; each result agrees with eager's."""
    fn = eval(f"lambda x: (lambda n: {expression})(x.shape[0])", {"torch": torch, "F": F})
    compiled = dovetail.jit(fn)
    for n in (4, 6, 5, 8):
        x = torch.randn(n, 4)
        want = fn(x.clone())
        dovetail.mark_dynamic(x, 0)
        torch.testing.assert_close(compiled(x), want, rtol=1e-4, atol=1e-4)
    return compiled.cache_info().misses


def shares(expressions: tuple[str, ...]) -> list:
    return [pytest.param(each, marks=[] if i % QUICK == 0 else [pytest.mark.slow]) for i, each in enumerate(expressions)]


@pytest.mark.parametrize("expression", shares(ONE_PROGRAM))
def test_one_program_runs_every_size(expression):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert programs(expression) == 1


def test_the_docs_name_the_operations_that_pin():
    (published,) = re.findall(r"Operations known to pin.*?\.\n", (Path(__file__).parents[2] / "docs/dynamic_shapes.md").read_text(), re.DOTALL)
    named = set(re.findall(r"(\w+)(?=[(`])", published))
    assert named == {max(re.findall(r"\b(\w+)\(", each), key=sorted(named).__contains__) for each in PINNING if "{" not in each}


@pytest.mark.parametrize("expression", shares(PINNING))
def test_an_operation_that_pins_is_right_and_warns(expression):
    with pytest.warns(UserWarning, match="is compiled for each value, since"):
        assert programs(expression) == 4


@pytest.mark.parametrize(
    ("fn", "operation"),
    [
        (lambda x: x.unbind(0)[1], "torch.unbind"),
        (lambda x: F.affine_grid(torch.ones(1, 2, 3), (1, 1, len(x), 4)), "torch.affine_grid_generator"),
        (lambda x: F.smooth_l1_loss(x, x + 1, beta=1 / len(x)), "torch.nn.functional.smooth_l1_loss"),
    ],
)
def test_the_warning_names_the_operation_and_the_line(fn, operation):
    compiled = dovetail.jit(fn, dynamic=True)
    with pytest.warns(UserWarning, match=rf"since {re.escape(operation)} at {re.escape(__file__)}:\d+ needs it as a plain number"):
        compiled(torch.randn(5, 4))


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: F.layer_norm(x.t(), (x.shape[0],)),
        lambda x: F.group_norm(x.t()[None], 2),
        lambda x: F.batch_norm(x, None, None, training=True),
        lambda x: F.instance_norm(x.t()[None]),
        lambda x: (x - x.mean(0)) / x.std(0),
        lambda x: F.kl_div(x.log_softmax(0), x.detach().softmax(0), reduction="batchmean"),
        lambda x: F.cross_entropy(x, x.detach().softmax(1), label_smoothing=0.1),
        lambda x: F.adaptive_avg_pool2d(x[None, None], 1),
        lambda x: F.interpolate(x[None, None], size=(7, 9), mode="bilinear"),
        lambda x: torch.cdist(x, x + 1),
        lambda x: torch.linalg.solve(x @ x.t() + 9 * torch.eye(x.shape[0]), x),
        lambda x: torch.fft.rfft(x, dim=0).abs(),
        lambda x: F.max_pool1d(x.t(), 2),
        lambda x: CELL(x)[0],
        lambda x: LSTM(x[None])[0],
    ],
)
def test_one_program_has_gradients_for_every_size(fn):
    compiled = dovetail.jit(fn)
    for n in (4, 6, 10, 8):
        x, y = (torch.randn(n, 4, generator=torch.Generator().manual_seed(n), requires_grad=True) for _ in range(2))
        dovetail.mark_dynamic(x, 0)
        got, want = compiled(x), fn(y)
        torch.testing.assert_close(got, want)
        weights = torch.randn(want.shape)
        torch.testing.assert_close(
            torch.autograd.grad((got * weights).sum(), x), torch.autograd.grad((want * weights).sum(), y), rtol=1e-4, atol=1e-5
        )
    assert compiled.cache_info().misses == 1


def test_a_rule_that_is_wrong_for_symbols_is_not_used():
    @torch.library.custom_op("dovetail_tests::wrong_rule", mutates_args=())
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, x])

    @doubled.register_fake
    def shapes(x):
        rows = 2 * x.shape[0]
        return x.new_empty((rows if type(rows) is int else rows + 1, x.shape[1]))

    compiled = dovetail.jit(lambda x: doubled(x).sum(1) + 1)
    for n in (4, 6, 10):
        x = torch.randn(n, 3)
        dovetail.mark_dynamic(x, 0)
        torch.testing.assert_close(compiled(x), doubled(x).sum(1) + 1)


LAYOUTS = {
    "row-major": lambda x: x.contiguous(),
    "reversed": lambda x: x.permute(2, 1, 0).contiguous().permute(2, 1, 0),
    "transposed": lambda x: x.transpose(0, 1).contiguous().transpose(0, 1),
    "repeated": lambda x: x[:1].expand(x.shape),
    "gapped": lambda x: torch.stack([x, x], -1)[..., 0],
}
WITHOUT_DECOMPOSITION = {
    "fft": torch.fft.fft,
    "fft of rows": lambda x: torch.fft.fft(x, dim=0),
    "rfft": lambda x: torch.fft.rfft(x, dim=1),
    "irfft": lambda x: torch.fft.irfft(x + 0j),
    "fftn": torch.fft.fftn,
    "cdist": lambda x: torch.cdist(x, x),
    "sort": lambda x: x.sort(1).values,
    "cummax": lambda x: x.cummax(1).values,
    "adaptive_max_pool2d": lambda x: F.adaptive_max_pool2d(x, 2),
    "reflected": lambda x: F.pad(x, (1, 1), mode="reflect"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", WITHOUT_DECOMPOSITION)
def test_results_of_every_layout_are_read_as_they_lie_in_memory(name, layout):
    def fn(x):
        y = WITHOUT_DECOMPOSITION[name](x)
        return y, y * 2 + 1, y.reshape(-1)

    compiled = dovetail.jit(fn, dynamic=True)
    for sizes in ((4, 3, 6), (5, 4, 7), (5, 8, 9)):
        x = LAYOUTS[layout](torch.randn(sizes, generator=torch.Generator().manual_seed(1)))
        got, want = compiled(x), fn(x)
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
        assert [y.stride() for y in got] == [y.stride() for y in want]

"""16-bit floats on processors that multiply them slowly: products in float32, of every layout and at sizes that are divided into blocks."""

from __future__ import annotations

import json

import pytest
import torch
from torch.nn import functional

import dovetail
import dovetail_torch_exec.halves as halves
from dovetail_torch_exec import costs
from dovetail_torch_exec.costs import Kind
from dovetail_torch_exec.executor import torch_executor

HALVES = (torch.bfloat16, torch.float16)


@pytest.fixture(autouse=True)
def slow(monkeypatch):
    """A processor that multiplies neither."""
    monkeypatch.setattr(costs, "slow_dtypes", lambda: frozenset(HALVES))


def close(actual: torch.Tensor, exact: torch.Tensor, sums: int = 1) -> bool:
    """Whether results differ from those in float64 by their one rounding, and by that of sums in float32."""
    assert actual.shape == exact.shape
    unit, size = torch.finfo(actual.dtype).eps / 2, exact.abs()
    return bool(((actual.double() - exact).abs() <= 1.01 * unit * size + 1e-6 * sums * size.max() + 1e-7).all())


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("n", "k", "m"),
    [
        (1, 700, 1900),  # one row
        (3, 1100, 2100),  # the weight is the largest
        (2, 3000, 1),
        (5000, 300, 500),  # the results are, or what is multiplied
        (5000, 500, 30),
        (900, 7, 1300),
        (8, 8, 8),  # few multiplications
    ],
)
def test_products_of_matrices_of_each_layout_are_rounded_once(n, k, m, threads, dtype):
    torch.manual_seed(n + m)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        a, b, bias = torch.randn(n, k).to(dtype), torch.randn(k, m).to(dtype), torch.randn(m).to(dtype)
        exact = a.double() @ b.double()
        for x in (a, a.t().contiguous().t(), torch.stack([a, a], -1)[..., 0]):
            for y in (b, b.t().contiguous().t(), torch.stack([b, b], -1)[..., 0]):
                assert close(halves.matmul(x, y), exact)
                assert close(halves.linear(x, y.t(), bias), exact + bias.double())
                assert close(halves.addmm(bias, x, y), exact + bias.double())
                assert close(halves.addmm(bias, x, y, beta=2, alpha=0.5), 0.5 * exact + 2 * bias.double())
        assert close(halves.matmul(a.view(n, 1, k), b), exact.view(n, 1, m))
        assert close(halves.matmul(a[0], b), exact[0])
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize(
    "shapes", [((3, 5, 200, 300), (3, 5, 300, 100)), ((40, 1, 64), (40, 64, 512)), ((2, 1, 4, 8), (3, 8, 5)), ((8,), (8,)), ((4, 0), (0, 3))]
)
def test_batches_of_products(shapes, dtype):
    a, b = [torch.randn(shape).to(dtype) for shape in shapes]
    assert close(halves.matmul(a, b), a.double() @ b.double())
    if b.ndim > 1:
        turned = b.mT.contiguous().mT
        assert close(halves.matmul(a, turned), a.double() @ b.double())


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("size", [(8, 8), (300, 700), (700, 300)])
def test_products_with_a_vector(size, dtype):
    a, b = torch.randn(size).to(dtype), torch.randn(size[1]).to(dtype)
    for x in (a, a.t().contiguous().t(), torch.stack([a, a], -1)[..., 0]):
        for y in (b, torch.stack([b, b], -1)[:, 0]):
            assert close(halves.matmul(x, y), a.double() @ b.double())


@pytest.mark.parametrize("dtype", HALVES)
def test_a_product_with_a_vector_is_not_converted_where_each_element_is_a_dot_product(dtype, monkeypatch):
    monkeypatch.setattr(halves, "_whole", None)
    a, b = torch.randn(300, 700).to(dtype), torch.randn(700).to(dtype)
    assert close(halves.matmul(a, b), a.double() @ b.double())


@pytest.mark.parametrize("dtype", HALVES)
def test_a_model_and_its_gradients(dtype):
    """Linear layers, convolutions of both memory formats, and attention, forward and backward, beside the same model in float64."""

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.convolution = torch.nn.Conv2d(3, 16, 3, padding=1)
            self.mixed = torch.nn.Conv1d(16, 16, 3, padding=1)
            self.linear = torch.nn.Linear(16, 32)
            self.projection = torch.nn.Parameter(torch.randn(32, 8) / 6)

        def forward(self, x):
            x = self.mixed(torch.relu(self.convolution(x)).flatten(2)).transpose(1, 2)
            heads = self.linear(x).unflatten(-1, (2, 16)).transpose(1, 2)
            x = functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True).transpose(1, 2).flatten(2)
            return torch.addmm(torch.zeros(8, dtype=x.dtype), x.flatten(0, 1), self.projection)

    torch.manual_seed(0)
    model = Model().to(dtype)
    precise = Model().double()
    precise.load_state_dict(model.state_dict())
    compiled = dovetail.jit(model, executors=[torch_executor()])
    for x in (torch.randn(2, 3, 12, 12), torch.randn(2, 3, 12, 12).to(memory_format=torch.channels_last)):
        x = x.to(dtype)
        model.zero_grad()
        precise.zero_grad()
        compiled(x).float().square().mean().backward()
        precise(x.double()).square().mean().backward()
        for one, other in zip(model.parameters(), precise.parameters(), strict=True):
            assert one.grad.dtype is dtype
            assert (one.grad - other.grad).norm() <= 0.05 * other.grad.norm()
    text = dovetail.last_traces(compiled)[-1].python(depth=0)
    assert "in_float32_torch_nn_functional_linear(" in text and "in_float32_torch_addmm(" in text
    assert "torch_exec.in_float32_prims_matmul(" in dovetail.last_backward_traces(compiled)[-1].python(depth=0)


def test_other_lines_run_as_ever():
    """float32, what draws, what PyTorch does not take in 16 bits, and results of another dtype."""
    for fn, args in (
        (lambda x: x @ x, [torch.randn(4, 4)]),
        (lambda x: x * 2, [torch.randn(4, 4).bfloat16()]),
        (lambda x: functional.scaled_dot_product_attention(x, x, x, dropout_p=0.5), [torch.randn(1, 1, 4, 4).bfloat16()]),
    ):
        compiled = dovetail.jit(fn, executors=[torch_executor()])
        compiled(*args)
        assert "in_float32" not in dovetail.last_traces(compiled)[-1].python(depth=0)


@pytest.mark.parametrize("dtype", HALVES)
def test_operations_that_multiply_in_their_decomposition(dtype):
    a, b = torch.randn(40, 50).to(dtype), torch.randn(50, 60).to(dtype)
    image, weight = torch.randn(2, 8, 9, 9).to(dtype), torch.randn(8, 4, 3, 3).to(dtype)
    for fn, args in (
        (lambda a, b: torch.einsum("ij,jk->ki", a, b), (a, b)),
        (lambda a, b: torch.tensordot(a, b, 1), (a, b)),
        (lambda a, b: torch.mv(b.t(), a[0]), (a, b)),
        (lambda a, b: torch.baddbmm(b[:1], a[None], b[None], beta=0), (a, b)),
        (lambda x, w: functional.conv_transpose2d(x, w, stride=2), (image, weight)),
        (lambda x, w: functional.conv1d(x.flatten(2), w.flatten(2)[:, :, ::3].transpose(0, 1)), (image, weight)),
    ):
        compiled = dovetail.jit(fn, executors=[torch_executor()])
        out = compiled(*args)
        assert out.dtype is dtype and close(out, fn(*[x.double() for x in args]))
        assert out.stride() == fn(*args).stride()
        text = dovetail.last_traces(compiled)[-1].python(depth=0)
        assert "in_float32_" in text or "torch_exec.convolution(" in text


def test_programs_name_functions_that_can_be_looked_up():
    ex = torch_executor()
    assert ex.named("in_float32_prims_linear") is halves.linear
    x = torch.randn(2, 3, 8, 8).bfloat16()
    weight = torch.randn(4, 3, 3, 3).bfloat16()
    out = ex.named("in_float32_torch_nn_functional_conv2d")(x, weight)
    assert out.dtype is torch.bfloat16 and close(out, functional.conv2d(x.double(), weight.double()))


def programs(fn, *args: torch.Tensor) -> str:
    """The forward, and the backward where there is one, of a call of `fn` compiled, which gives what float64 does."""
    compiled, exact = dovetail.jit(fn, executors=[torch_executor()]), [x.detach().double().requires_grad_(x.requires_grad) for x in args]
    out, expected = compiled(*args), fn(*exact)
    assert out.dtype is args[0].dtype and (out.detach() - expected.detach()).norm() <= 0.01 * expected.detach().norm()
    text = dovetail.last_traces(compiled)[-1].python(depth=0)
    if out.requires_grad:
        weights = torch.randn(out.shape)
        out.backward(weights.to(out.dtype))
        expected.backward(weights.to(out.dtype).double())
        for one, other in zip(args, exact, strict=True):
            assert one.grad.dtype is one.dtype and (one.grad - other.grad).norm() <= 0.02 * other.grad.norm()
        text += dovetail.last_backward_traces(compiled)[-1].python(depth=0)
    return text


@pytest.fixture
def measured(monkeypatch):
    """A processor with instructions for both: each multiplication takes as many times as long as in float32."""
    factors = dict.fromkeys(Kind, 1.0)
    monkeypatch.setattr(costs, "slow_dtypes", frozenset)
    monkeypatch.setattr(costs, "cost", lambda dtype, kind: factors[kind])
    return factors


def test_a_processor_that_multiplies_them_well_is_left_to_pytorch(measured):
    assert "in_float32" not in programs(lambda x: x @ x, torch.randn(200, 200).bfloat16())


@pytest.mark.parametrize("dtype", HALVES)
def test_what_takes_longer_than_in_float32_and_its_conversions_runs_in_float32(measured, dtype):
    """Large products do; a few rows, depthwise convolutions, and kinds that are not slow run as ever."""

    def drawn(*shape: int, grad: bool = False) -> torch.Tensor:
        return (torch.randn(shape) / 4).to(dtype).requires_grad_(grad)

    measured |= {Kind.PRODUCT: 2.0, Kind.CONVOLUTION: 2.0}
    assert "in_float32_torch_nn_functional_linear" in programs(functional.linear, drawn(96, 128), drawn(128, 128))
    assert "in_float32" not in programs(functional.linear, drawn(8, 128), drawn(128, 128))
    assert "in_float32" not in programs(torch.bmm, drawn(4, 96, 128), drawn(4, 128, 128))
    assert "in_float32" in programs(lambda x, w: torch.einsum("nk,mk->mn", x, w), drawn(96, 128), drawn(128, 128))
    images = drawn(2, 64, 16, 16)
    assert "in_float32" in programs(functional.conv2d, images, drawn(32, 64, 3, 3))
    assert "in_float32" not in programs(lambda x, w: functional.conv2d(x, w, groups=64), images, drawn(64, 1, 3, 3))
    assert "in_float32" in programs(lambda x, w: functional.conv_transpose2d(x, w, stride=2), images, drawn(64, 32, 3, 3))
    measured |= {Kind.BATCHES: 2.0}
    assert "in_float32_torch_bmm" in programs(torch.bmm, drawn(4, 96, 128), drawn(4, 128, 128))


@pytest.mark.parametrize("dtype", HALVES)
def test_gradients_are_measured_apart(measured, dtype):
    torch.manual_seed(0)
    x, w = [(torch.randn(shape) / 4).to(dtype).requires_grad_() for shape in ((2, 64, 12, 12), (64, 64, 3, 3))]
    assert "in_float32" not in programs(functional.conv2d, x, w)
    measured[Kind.CONVOLUTION_BACKWARD] = 3.0
    x.grad = w.grad = None
    assert "in_float32_aten_convolution_backward" in programs(functional.conv2d, x, w)
    heads = [torch.randn(1, 2, 128, 32).to(dtype).requires_grad_() for _ in range(3)]
    assert "in_float32" not in programs(functional.scaled_dot_product_attention, *heads)
    measured[Kind.ATTENTION_BACKWARD] = 3.0
    for x in heads:
        x.grad = None
    text = programs(functional.scaled_dot_product_attention, *heads)
    assert "in_float32_aten_attention_backward" in text and "in_float32_aten_attention_forward" not in text
    measured[Kind.ATTENTION] = 3.0
    for x in heads:
        x.grad = None
    assert "in_float32_aten_attention_forward" in programs(functional.scaled_dot_product_attention, *heads)


@pytest.fixture
def file(monkeypatch, tmp_path):
    """The file of products in bfloat16, in a folder of its own."""
    monkeypatch.setattr(costs, "user_cache_path", lambda name: tmp_path)
    monkeypatch.setattr(costs, "seconds_waited", lambda: 0.0)
    costs.cost.cache_clear()
    yield lambda: next((tmp_path / "torch").glob("bfloat16-product-*.json"), None)
    costs.cost.cache_clear()


def test_a_cost_is_measured_once_for_a_machine(file, monkeypatch):
    first = costs.cost(torch.bfloat16, Kind.PRODUCT)
    assert first > 0 and json.loads(file().read_text())["cost"] == first
    monkeypatch.setattr(costs, "measure", lambda *_: pytest.fail("measured again"))
    costs.cost.cache_clear()
    assert costs.cost(torch.bfloat16, Kind.PRODUCT) == first
    monkeypatch.setattr(costs, "measure", lambda *_: 7.0)
    costs.cost.cache_clear()
    file().write_text("{")
    assert costs.cost(torch.bfloat16, Kind.PRODUCT) == 7.0
    assert json.loads(file().read_text())["cost"] == 7.0


def test_the_first_of_processes_that_measure_at_a_time_decides(file, monkeypatch):
    def measure(*_: object) -> float:
        monkeypatch.setattr(costs, "measure", lambda *_: 2.0)
        costs.cost.__wrapped__(torch.bfloat16, Kind.PRODUCT)  # as another process, meanwhile
        return 3.0

    monkeypatch.setattr(costs, "measure", measure)
    assert costs.cost(torch.bfloat16, Kind.PRODUCT) == 2.0


def test_a_busy_machine_is_not_measured(file, monkeypatch):
    waited = iter(range(10**6))
    monkeypatch.setattr(costs, "seconds_waited", lambda: next(waited))
    assert costs.cost(torch.bfloat16, Kind.PRODUCT) == 1.0 and file() is None


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("dtype", HALVES)
def test_each_kind_can_be_measured(kind, dtype, monkeypatch):
    monkeypatch.setattr(costs, "seconds_waited", lambda: 0.0)
    monkeypatch.setattr(costs, "PATIENCE", 10.0)
    assert costs.measure(dtype, costs.SAMPLES[kind]) > 0

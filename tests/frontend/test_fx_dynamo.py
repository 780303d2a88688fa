"""`torch.compile(..., backend="dovetail")`: programs with graph breaks, sizes that change and writes give eager's results, and a report."""

from __future__ import annotations

import copy
import tomllib
import warnings
from pathlib import Path

import pytest
import torch

import dovetail
from dovetail import dynamo

pytestmark = pytest.mark.xdist_group("dynamo")


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    dynamo.reset()  # Dynamo does so only after it has used the backend, and other tests have used other backends
    torch.manual_seed(0)
    yield
    torch.set_grad_enabled(True)
    torch._dynamo.reset()


def compiled(fn, **how):
    return torch.compile(fn, backend=dynamo.backend, **how)


def same_steps(model, inputs):
    """The compiled model and a twin give the same results, gradients and buffers for each of `inputs`."""
    twin, run = copy.deepcopy(model), compiled(model)
    for x in inputs:
        mine, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
        got, want = run(mine), twin(theirs)
        torch.testing.assert_close(got, want)
        got.square().sum().backward()
        want.square().sum().backward()
        torch.testing.assert_close(mine.grad, theirs.grad)
    for (name, p), q in zip(model.named_parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(p.grad, q.grad, msg=lambda message, name=name: f"{name}: {message}")
    for p, q in zip(model.buffers(), twin.buffers(), strict=True):
        assert torch.equal(p, q)


class Broken(torch.nn.Module):
    """A print and a branch on a value break it into three graphs; a buffer is written, and a batch of any size fits."""

    def __init__(self):
        super().__init__()
        self.inner, self.outer = torch.nn.Linear(4, 6), torch.nn.Linear(6, 3)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls.add_(1)
        y = torch.relu(self.inner(x))
        print("between", end="")
        y = y * x.shape[0]
        if y.sum() > 100:
            y = y / 2
        y += 1
        return self.outer(y)


def test_breaks_a_dynamic_batch_and_a_write_forward_and_backward(capsys):
    same_steps(Broken(), [torch.randn(n, 4) for n in (3, 3, 5, 9)])

    assert capsys.readouterr().out == "between" * 8


def test_the_report_names_every_break_and_its_line(capsys):
    run = compiled(Broken())
    run(torch.randn(3, 4))
    report = dynamo.report()
    here = Path(__file__).name

    assert [graph.id for graph in report] == ["0/0", "1/0", "2/0"]
    assert len(report.breaks) == 2
    assert f"{here}:" in report.breaks[0] and "print" in report.breaks[0]
    assert "branches on the value of a tensor" in report.breaks[1]
    assert report[2].ended is None
    assert all(here in graph.where for graph in report)
    assert str(report).startswith("3 graphs, 2 graph breaks, 0 opaque operations")


def test_a_break_before_any_operation_is_named_too(capsys):
    def fn(x):
        print("first", end="")
        return x + 1

    run = compiled(fn)
    run(torch.ones(2))

    assert any("print" in reason for reason in dynamo.report().breaks)


def test_operations_that_stayed_opaque_are_named_with_their_lines():
    run = compiled(lambda x: torch.linalg.qr(x * 2)[1].abs().sum())
    x, y = torch.randn(3, 3, requires_grad=True), None
    run(x).backward()
    (graph,) = dynamo.report()
    y = x.detach().clone().requires_grad_()
    torch.linalg.qr(y * 2)[1].abs().sum().backward()

    assert [each.name for each in graph.opaque] == ["torch.linalg.qr"]
    assert Path(__file__).name in graph.opaque[0].where
    assert "opaque: torch.linalg.qr" in str(dynamo.report())
    torch.testing.assert_close(x.grad, y.grad)


def test_a_graph_is_a_compiled_function_of_ours():
    run = compiled(lambda x: torch.softmax(x * 2, -1))
    run(torch.randn(2, 3))
    (graph,) = dynamo.report()

    assert [line.symbol.name for line in dovetail.last_traces(graph.function)[0].lines] == ["mul", "softmax"]
    assert Path(__file__).name in dovetail.last_traces(graph.function)[0].lines[0].where
    assert "softmax" in str(dovetail.explain(graph.function))


def test_sizes_that_are_numbers_in_the_graph():
    def fn(x, n):
        return x.view(x.shape[0] // 2, -1).sum(0) * n + x.shape[0], x.shape[0] * n

    run = compiled(fn, dynamic=True)
    for rows, n in ((2, 3), (4, 3), (6, 5), (4, 3)):
        x = torch.randn(rows, 3)
        got, want = run(x, n), fn(x, n)
        torch.testing.assert_close(got[0], want[0])
        assert got[1] == want[1]


def test_sizes_that_dynamo_keeps_symbolic_are_symbols():
    linear = torch.nn.Linear(8, 8)

    def fn(x):
        b, t, h = x.shape
        q = linear(x).view(b, t, 2, h // 2).transpose(1, 2)
        mask = torch.ones(t, t, dtype=torch.bool).tril()
        return (q @ q.mT).masked_fill(~mask, -1e9).softmax(-1) @ q / t, t * 2

    run = compiled(fn, dynamic=True)
    for batch, length in ((2, 5), (2, 7), (3, 9), (5, 5), (4, 4)):
        ours, theirs = (torch.ones(batch, length, 8).cumsum(1).requires_grad_() for _ in range(2))
        (got, size), (want, _) = run(ours), fn(theirs)
        torch.testing.assert_close(got, want)
        assert size == 2 * length
        inputs = [[x, *linear.parameters()] for x in (ours, theirs)]
        grads = [torch.autograd.grad(out.square().sum(), x) for out, x in zip((got, want), inputs, strict=True)]
        torch.testing.assert_close(*grads, rtol=1e-4, atol=1e-4)
    (graph,) = dynamo.report()
    assert (graph.function.cache_info().misses, graph.eager) == (1, None)


def test_numbers_of_modules_that_dynamo_keeps_symbolic():
    attention, words = torch.nn.MultiheadAttention(8, 2, batch_first=True), torch.nn.Embedding(11, 8)
    run = compiled(lambda x: attention(x, x, words((x[..., 0] > 0).long()), need_weights=False)[0], dynamic=True)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*PyTorch runs graph")  # of attention, which needs the value of its dropout
        for batch, length in ((2, 5), (3, 7)):
            x = torch.randn(batch, length, 8)
            torch.testing.assert_close(run(x), attention(x, x, words((x[..., 0] > 0).long()), need_weights=False)[0])


def test_a_size_that_a_graph_needs_as_a_number_is_compiled_for_each_value():
    run = compiled(lambda x: x.chunk(x.shape[0])[1] * torch.histc(x, x.shape[0]).sum(), dynamic=True)
    with pytest.warns(UserWarning, match="is compiled for each value, since torch.chunk at"):
        for rows in (2, 3, 4):
            x = torch.ones(rows, 3).cumsum(0)
            torch.testing.assert_close(run(x), x[1:2] * x.numel())


def test_floats_that_change_are_not_baked():
    run = compiled(lambda x, scale: (x * scale).sin())
    x = torch.randn(4)
    for scale in (0.5, 0.25, 3.0):
        torch.testing.assert_close(run(x, scale), (x * scale).sin())


def test_numbers_that_the_program_computed_are_not_baked():
    def fn(x):
        return x * (int(x.abs().sum().item()) % 3) + 1

    run = compiled(fn)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for scale in (1.0, 2.0, 3.0, 4.0):
            x = torch.full((4,), scale)
            torch.testing.assert_close(run(x), fn(x))


def test_padding_is_ours_though_dynamo_looks_into_it():
    run, x = compiled(lambda x: torch.nn.functional.pad(x, (1, 2), value=3.0)), torch.randn(2, 3)

    torch.testing.assert_close(run(x), torch.nn.functional.pad(x, (1, 2), value=3.0))
    assert dynamo.report()[0].opaque == []


def test_arguments_are_written_and_views_of_them_are_views():
    def fn(x, y):
        x.add_(y)
        y[0] = 5
        return x.view(-1), x + y

    run = compiled(fn)
    (x, y), (a, b) = ([torch.arange(4.0).reshape(2, 2), torch.ones(2, 2)] for _ in range(2))
    flat, total = run(x, y)
    want_flat, want_total = fn(a, b)

    for got, want in ((x, a), (y, b), (flat, want_flat), (total, want_total)):
        assert torch.equal(got, want)
    assert flat.data_ptr() == x.data_ptr()


def test_arguments_that_share_memory_are_left_to_pytorch():
    def fn(x, y):
        x.add_(1)
        return x * y

    base, twin = torch.arange(4.0), torch.arange(4.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        got, want = compiled(fn)(base[:3], base[1:]), fn(twin[:3], twin[1:])

    assert torch.equal(got, want) and torch.equal(base, twin)


def test_grad_mode_inside():
    def inside(x):
        y = x * 2
        with torch.no_grad():
            z = y * 3
        return y + z

    x, y = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    compiled(inside)(x).sum().backward()
    inside(y).sum().backward()
    assert torch.equal(x.grad, y.grad)


def test_grad_mode_left_behind():
    def behind(x):
        y = x * 2
        torch.set_grad_enabled(False)
        return y, y + 1

    y, z = compiled(behind)(torch.ones(3, requires_grad=True))

    assert not torch.is_grad_enabled()
    assert y.requires_grad and not z.requires_grad


def test_results_without_a_gradient_have_no_history():
    @torch.no_grad()
    def fn(x):
        return x * 2

    x = torch.ones(3, requires_grad=True)

    assert not dovetail.jit(fn)(x).requires_grad
    assert not compiled(lambda x: fn(x))(x).requires_grad


def test_what_cannot_be_traced_is_run_by_pytorch_and_said():
    def fn(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return x @ x

    run, x = compiled(fn), torch.randn(3, 3)
    with pytest.warns(UserWarning, match="PyTorch runs graph 0/0 .*: autocast is on"):
        got = run(x)
    (graph,) = dynamo.report()

    assert got.dtype is torch.bfloat16 and torch.equal(got, fn(x))
    assert torch.equal(run(x), got)
    assert "autocast" in graph.eager and "run by PyTorch" in str(graph)
    assert not torch.is_autocast_enabled("cpu")


def test_a_graph_with_parameters_of_its_own_keeps_their_gradients():
    class Own(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(3))

        def forward(self, x):
            return x * self.weight

    graph = torch.fx.symbolic_trace(own := Own())
    run = dynamo.backend(graph, [torch.ones(3)])
    run(torch.full((3,), 2.0)).sum().backward()

    assert torch.equal(graph.weight.grad, torch.full((3,), 2.0)) and own.weight is graph.weight
    assert "contains parameters" in dynamo.report()[0].eager


def test_a_checkpointed_block_is_inlined():
    layer = torch.nn.Linear(4, 4)

    def fn(x):
        return torch.utils.checkpoint.checkpoint(lambda y: torch.tanh(layer(y)), x, use_reentrant=False) * 2

    x, y = torch.randn(2, 4, requires_grad=True), None
    compiled(fn)(x).sum().backward()
    y = x.detach().clone().requires_grad_()
    fn(y).sum().backward()

    torch.testing.assert_close(x.grad, y.grad)
    assert [graph.eager for graph in dynamo.report()] == [None]


def test_the_error_of_a_bad_call_is_eagers():
    def fn(x, i):
        return x[i]

    run = compiled(fn)
    torch.testing.assert_close(run(torch.arange(3.0), torch.tensor([1])), torch.tensor([1.0]))
    with pytest.raises(IndexError):
        run(torch.arange(3.0), torch.tensor([7]))


def test_options_are_those_of_jit():
    run = compiled(lambda x: x.sin(), options={"executors": ["torch"], "recompute": "none"})
    torch.testing.assert_close(run(torch.ones(2)), torch.ones(2).sin())

    with pytest.raises(Exception, match="does not support the option 'tile'"):
        compiled(lambda x: x.sin(), options={"tile": 4})(torch.ones(2))
    with pytest.raises(Exception, match="does not support the mode 'max-autotune'"):
        compiled(lambda x: x.sin(), mode="max-autotune")(torch.ones(2))


def test_graphs_are_forgotten_when_dynamo_is_reset_or_lets_them_go():
    run = compiled(lambda x: x + 1)
    run(torch.ones(2))
    assert len(dynamo.report()) == 1

    torch._dynamo.reset()
    assert dynamo.report() == ()


def test_the_distribution_offers_the_backend(root):
    points = tomllib.loads((root / "pyproject.toml").read_text())["project"].get("entry-points", {}).get("torch_dynamo_backends")
    if points is None:
        pytest.skip("pyproject.toml has no entry point in torch_dynamo_backends yet")

    assert points == {"dovetail": "dovetail.dynamo:backend"}


@pytest.fixture
def root():
    return Path(__file__).parents[2]


def test_torch_compile_runs_what_jit_has_compiled_as_it_is():
    inner, net, x = dovetail.jit(lambda x: x.sin() * 2), dovetail.jit(torch.nn.Linear(4, 3)), torch.randn(2, 4, requires_grad=True)
    for fn in (inner, net, lambda x: net(inner(x + 1)) * 3):
        run = torch.compile(fn, backend="eager")
        torch.testing.assert_close(run(x), fn(x))
        torch.testing.assert_close(torch.autograd.grad(run(x).sum(), x), torch.autograd.grad(fn(x).sum(), x))
    with pytest.raises(torch._dynamo.exc.Unsupported, match=r"compiled by dovetail\.jit"):
        torch.compile(lambda x: inner(x) + 1, backend="eager", fullgraph=True)(x)
    assert inner.cache_info().programs == 1

"""Traces as torch.fx graphs and back: what a graph computes is what the trace computes, and what PyTorch does."""

from __future__ import annotations

import operator
import warnings

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import dovetail
import dovetail_conformance.prims  # noqa: F401
from dovetail import devices, dtypes, prims
from dovetail.errors import Unsupported
from dovetail.frontend.fx import from_fx, run_graph, to_fx
from dovetail.frontend.fx.rows import ROWS
from dovetail.langs.torch import spec_of
from dovetail.trace import Trace, leaves, prims_of
from dovetail_conformance import OPINFOS
from dovetail_torch_exec.prims import PRIMS

DTYPES = (dtypes.float32, dtypes.bfloat16, dtypes.int64, dtypes.bool_, dtypes.complex64)
DRAWN = {"uniform", "normal", "exponential", "randint", "randperm", "multinomial"}  # drawn in the same order from one seed
WHOLE = [info for info in OPINFOS if info.symbol in ROWS and info.symbol is not prims.copy_]


def graph_of(fn, *args):
    return to_fx(dovetail.make_trace(fn)(*args))


def called(graph):
    return [node for node in graph.graph.nodes if node.op == "call_function"]


def taken_apart(trace: Trace) -> Trace:
    """The trace with every line taken apart."""
    apart = trace.derive("flat")
    apart.lines = list(prims_of(trace.lines))
    return apart


@pytest.mark.one_in(2)
@pytest.mark.parametrize("every_dtype", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("info", WHOLE, ids=lambda info: info.name)
def test_a_row_computes_what_the_reference_does_laid_out_as_the_meta_says(info, every_dtype):
    count = 0
    accepted = [dtype for dtype in DTYPES if dtype in info.dtypes]
    for dtype in accepted if every_dtype else accepted[:1]:
        for sample in info.samples(dtype, devices.cpu):
            with torch.no_grad():
                trace = dovetail.make_trace(info.symbol)(*sample.args, **sample.kwargs)
                torch.manual_seed(0)
                want = PRIMS[info.symbol](*sample.args, **sample.kwargs)
                torch.manual_seed(0)
                graph = to_fx(trace)
                got = graph(*dict.fromkeys(x for x in leaves((sample.args, sample.kwargs)) if isinstance(x, torch.Tensor)))
            for a, b, p in zip(leaves(got), leaves(want), leaves(trace.outputs), strict=True):
                torch.testing.assert_close(a, b, equal_nan=True, check_stride=False)
                if isinstance(b, torch.Tensor):
                    assert spec_of(a).like(requires_grad=False) == p.spec.like(requires_grad=False)
            count += 1
    assert count


def test_a_torch_operation_is_one_node_with_the_name_and_the_line_of_the_users_value():
    x = torch.randn(2, 3)
    graph = graph_of(lambda x: torch.softmax(x, -1).t(), x)
    softmax, turned = called(graph)

    assert softmax.target is torch.softmax and softmax.args[1] == -1
    assert turned.name == graph.graph.output_node().args[0].name
    assert "test_fx.py" in softmax.meta["where"]
    assert graph.graph.find_nodes(op="placeholder")[0].meta["spec"] == spec_of(x)
    torch.testing.assert_close(graph(x), torch.softmax(x, -1).t())


def test_a_prim_that_makes_a_tensor_is_one_node():
    graph = to_fx(dovetail.make_trace(lambda: prims.full(shape=(2,), value=3.0, dtype=dtypes.float32, device=devices.cpu))())

    assert [node.target for node in called(graph)] == [torch.full]
    assert torch.equal(graph(), torch.full((2,), 3.0))


def test_a_graph_writes_where_the_trace_does_and_returns_the_same_nest():
    def step(x, *, scale):
        x.mul_(scale)
        x[0] = 7
        values, positions = x.topk(1)
        return {"values": values, "rest": (positions, x)}

    x, y = torch.arange(6.0).reshape(2, 3), torch.arange(6.0).reshape(2, 3)
    graph = graph_of(lambda x: step(x, scale=2.0), x.clone())
    got, want = graph(x), step(y, scale=2.0)

    assert torch.equal(x, y) and got["rest"][1] is x
    assert torch.equal(got["values"], want["values"]) and torch.equal(got["rest"][0], want["rest"][0])


def test_tensors_from_outside_are_attributes():
    table = torch.tensor([1.0, 2.0, 3.0])
    graph = graph_of(lambda x: x + table, torch.zeros(3))

    assert [node.op for node in graph.graph.nodes] == ["placeholder", "get_attr", "call_function", "output"]
    assert torch.equal(graph(torch.ones(3)), torch.tensor([2.0, 3.0, 4.0]))


def test_every_step_of_a_compilation_has_a_graph_that_gives_the_same():
    def fn(x, w):
        y = torch.nn.functional.gelu(torch.nn.functional.linear(x, w))
        return torch.linalg.qr(y)[1].abs(), torch.swapaxes(y, 0, 1)

    x, w = torch.randn(4, 5), torch.randn(3, 5)
    compiled = dovetail.jit(fn)
    results = torch.utils._pytree.tree_leaves(compiled(x, w))
    graphs = [to_fx(trace) for trace in dovetail.last_traces(compiled)]

    assert len(graphs) > 3
    for graph in graphs:
        torch.testing.assert_close(torch.utils._pytree.tree_leaves(graph(x, w))[0], results[0])


def test_a_line_that_only_an_executor_knows_is_that_executors_function():
    graph = graph_of(lambda x: torch.bernoulli(torch.full_like(x, 1.0)) * x, torch.ones(3))
    symbols = {node.target for node in called(graph)}
    apart = to_fx(taken_apart(dovetail.make_trace(lambda x: torch.bernoulli(torch.full_like(x, 1.0)) * x)(torch.ones(3))))

    assert torch.bernoulli in symbols
    assert torch.equal(apart(torch.full((3,), 5.0)), torch.full((3,), 5.0))


def test_a_prologue_has_no_graph():
    compiled = dovetail.jit(torch.sin)
    compiled(torch.ones(2))

    with pytest.raises(Unsupported, match="part of a prologue"):
        to_fx(dovetail.last_prologue_traces(compiled)[-1])


class Block(torch.nn.Module):
    """Most of what graphs hold: parameters, a buffer, layers, methods, views, an in-place call."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.GELU(), torch.nn.LayerNorm(6))
        self.register_buffer("offset", torch.ones(6))

    def forward(self, x, scale: float = 2.0):
        y = self.layers(x) * scale + self.offset
        y.clamp_(-1, 1)
        q, k, v = y.view(y.shape[0], 2, 3).unbind(1)[0].chunk(3, dim=-1)
        return torch.softmax(q + k, 0).expand(-1, 3), v.masked_fill(v > 0, 1.0)


def test_a_module_that_fx_traced_is_the_program_that_dovetail_traces():
    block, x = Block(), torch.randn(4, 6)
    came = from_fx(torch.fx.symbolic_trace(block), x)
    ours = dovetail.make_trace(block)(x)

    assert [line.symbol for line in came.lines] == [line.symbol for line in ours.lines]
    assert [p.spec for p in came.inputs] == [p.spec for p in ours.inputs]


def test_there_and_back_is_the_same_program():
    trace = dovetail.make_trace(Block())(torch.randn(4, 6))
    back = from_fx(to_fx(trace))

    assert [line.symbol for line in back.lines] == [line.symbol for line in trace.lines]
    assert [line.where for line in back.lines] == [line.where for line in trace.lines]


def test_graphs_of_aten_become_operations_of_torch():
    def fn(x, w, b, i):
        y = torch.nn.functional.layer_norm(torch.addmm(b, x, w), (6,))
        y = torch.cat([y[:, 1:4:2], y.narrow(1, 0, 2)], 1).permute(1, 0)
        z = torch.nn.functional.embedding(i, y) + torch.arange(0, 4)
        return (
            torch.log_softmax(z.float(), -1).sum((0, 1)).to(torch.float64),
            torch.where(z > 0, z, 0.0),
            w[i, i],
            torch.nn.functional.silu(z).var(-1),
        )

    args = (torch.randn(4, 6), torch.randn(6, 6), torch.randn(6), torch.tensor([[0, 1], [2, 3]]))
    graph = make_fx(fn, tracing_mode="fake")(*args)
    trace = from_fx(graph)

    assert all(isinstance(node.target, torch._ops.OpOverload) or node.target is operator.getitem for node in called(graph))
    assert not [line.symbol for line in trace.lines if line.symbol.id.startswith("opaque")]
    compiled = dovetail.jit(lambda *args: run_graph(graph, *args), interpretation="native")
    for got, want in zip(compiled(*args), fn(*args), strict=True):
        torch.testing.assert_close(got, want, rtol=2e-6, atol=1e-5)  # a sum in float32 that is returned as float64


def test_an_overload_that_no_operation_fits_stays_as_it_is():
    graph = make_fx(lambda x: torch.ops.aten.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5)[0])(torch.randn(3, 2))
    trace = from_fx(graph, torch.zeros(3, 2))

    assert [line.symbol.id for line in trace.lines] == ["opaque.torch.ops.aten.native_batch_norm.default"]


def test_gradients_flow_through_a_graph_of_aten():
    x = torch.randn(3, 4, requires_grad=True)
    graph = make_fx(lambda x: torch.nn.functional.gelu(x.t() @ x).tanh())(x.detach())
    dovetail.jit(lambda x: run_graph(graph, x), interpretation="native")(x).sum().backward()
    (want,) = torch.autograd.grad(torch.nn.functional.gelu(x.t() @ x).tanh().sum(), x)

    torch.testing.assert_close(x.grad, want)


def test_a_placeholder_of_which_nothing_is_known_asks_for_an_example():
    with pytest.raises(Unsupported, match="pass examples"):
        from_fx(torch.fx.symbolic_trace(lambda x: x + 1))


def test_symbolic_sizes_ask_for_an_example():
    graph = make_fx(lambda x: x + 1, tracing_mode="symbolic")(torch.ones(3, 4))

    with pytest.raises(Unsupported, match="has symbolic sizes"):
        from_fx(graph)
    assert from_fx(graph, torch.ones(5, 2)).inputs[0].spec.shape == (5, 2)


def test_what_would_change_the_process_while_it_is_traced_is_refused():
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    graph.call_function(torch.amp.autocast_mode._enter_autocast, ("cpu", torch.bfloat16, True, None))
    graph.output(x)

    with pytest.raises(Unsupported, match="autocast"):
        from_fx(torch.fx.GraphModule(torch.nn.Module(), graph), torch.ones(2))
    assert not torch.is_autocast_enabled("cpu")


@pytest.fixture(autouse=True)
def quiet():
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield

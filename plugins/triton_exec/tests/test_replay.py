"""Programs as CUDA graphs: which can be, and what is copied where, with a stand-in for the graph where there is no GPU."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest
import torch
from triton_helpers import Planner

import dovetail
from dovetail.extend.advanced import ExecutorWarning
from dovetail_triton_exec import replay


class Stream:
    """Where calls are launched; notes what it waited for."""

    def __init__(self):
        self.waited = []

    def wait_stream(self, other):
        self.waited.append(other)


class StandIn:
    """Records a program as the function that it is, which is run again on the same tensors into the same results."""

    def __init__(self):
        self.recorded, self.replayed, self.inputs = 0, 0, ()
        self.outer, self.current = False, Stream()

    def busy(self):
        return self.outer

    def stream(self, x):
        return self.current

    def record(self, fn, inputs):
        self.recorded, self.inputs = self.recorded + 1, inputs
        result = fn(*inputs)

        def again():
            self.replayed += 1
            with torch.inference_mode():  # as a graph, which writes without asking
                for old, new in zip(torch.utils._pytree.tree_leaves(result), torch.utils._pytree.tree_leaves(fn(*inputs)), strict=True):
                    old.copy_(new)

        return result, again


class Graphs(Planner):
    """Has graphs of the CPU."""

    def __init__(self):
        super().__init__()
        self.recorder = StandIn()

    def fast_call(self, prologue, computation, slow):
        return replay.entry(prologue, computation, self.recorder, devices=("cpu",))


def compiled(fn):
    ex = Graphs()
    return dovetail.jit(fn, executors=[ex, "torch"]), ex.recorder


def test_the_third_call_is_recorded_and_the_fourth_replayed():
    ours, seen = compiled(lambda x, y: (torch.tanh(x) * y, {"sum": x.sum()}))
    kept = []
    for step in range(5):
        x, y = torch.full((3,), float(step)), torch.full((3,), 2.0)
        kept.append((ours(x, y), torch.tanh(x) * y, x.sum()))
    assert (seen.recorded, seen.replayed) == (1, 2)
    for (product, rest), wanted, total in kept:  # results of earlier calls stay as they were
        assert torch.equal(product, wanted) and torch.equal(rest["sum"], total)


def test_parameters_are_read_where_they_lie_and_inputs_are_copied():
    model = torch.nn.Linear(4, 4)
    ours, seen = compiled(torch.nn.Sequential(model, torch.nn.GELU()))
    with torch.no_grad():
        xs = [torch.randn(2, 4) for _ in range(6)]
        for x in xs[:5]:
            ours(x)
        model.weight.mul_(2)  # in place: the graph sees it
        got, wanted = ours(xs[5]), torch.nn.functional.gelu(model(xs[5]))
    torch.testing.assert_close(got, wanted)
    assert seen.recorded == 1
    places = {t.data_ptr() for t in seen.inputs}
    assert model.weight.data_ptr() in places and xs[5].data_ptr() not in places


def test_an_input_that_moves_after_all_has_the_graph_recorded_anew_once():
    ours, seen = compiled(lambda x, w: x.exp() * w)
    w, xs = torch.randn(3), [torch.randn(3) for _ in range(9)]
    for x in xs[:4]:
        ours(x, w)
    assert seen.recorded == 1
    others = [torch.randn(3) for _ in range(5)]
    for x, other in zip(xs[4:], others, strict=True):
        torch.testing.assert_close(ours(x, other), x.exp() * other)
    assert seen.recorded == 2


def test_other_shapes_are_programs_of_their_own():
    ours, seen = compiled(lambda x: x.sin() + 1)
    for x in [torch.randn(n) for _ in range(4) for n in (3, 5)]:  # all at once: each is at a place of its own
        torch.testing.assert_close(ours(x), x.sin() + 1)
    assert seen.recorded == 2


def test_an_input_with_gaps_lies_as_it_did():
    ours, _ = compiled(lambda x: x.t() * 2)
    for _ in range(4):
        x = torch.randn(6, 8)[:, ::2]
        torch.testing.assert_close(ours(x), x.t() * 2)


def test_a_result_that_is_given_twice_is_one_tensor():
    ours, seen = compiled(lambda x: (lambda y: [y, {"again": y}])(x.exp() * 2))
    for _ in range(4):
        first, rest = ours(torch.randn(3))
        assert rest["again"] is first
    assert seen.recorded == 1


def test_a_call_on_another_stream_waits_for_the_one_before():
    """A graph has one memory, which the call before may still be using."""
    ours, seen = compiled(lambda x: x.exp() * 2)
    first = seen.current
    for _ in range(4):
        ours(torch.randn(3))
    assert first.waited == []
    seen.current = second = Stream()
    for _ in range(2):
        ours(torch.randn(3))
    assert second.waited == [first] and first.waited == []


def test_a_call_within_a_recording_of_the_callers_is_a_part_of_it():
    ours, seen = compiled(lambda x: x.exp() * 2)
    for outer in (False, False, False, True, True):
        seen.outer = outer
        x = torch.randn(3)
        torch.testing.assert_close(ours(x), x.exp() * 2)
    assert (seen.recorded, seen.replayed) == (1, 0)


def test_a_program_that_cannot_be_recorded_runs_as_it_is():
    ours, seen = compiled(lambda x: x.exp() * 2)
    calls = []

    def record(fn, inputs):
        calls.append(1)
        raise RuntimeError("operation not permitted when stream is capturing\nmore of it")

    seen.record = record
    x = torch.randn(3)
    for _ in range(2):
        ours(x)
    with pytest.warns(
        ExecutorWarning, match="recording the graph failed with RuntimeError: operation not permitted .* capturing; .* kernel by kernel"
    ):
        torch.testing.assert_close(ours(x), x.exp() * 2)
    torch.testing.assert_close(ours(x + 1), (x + 1).exp() * 2)
    assert len(calls) == 1


def test_inputs_may_be_copied_in_inference_mode_and_out_of_it():
    run = replay.Replay(lambda x: x * 2, StandIn())
    for inference in (True, True, True, False, True, False):
        with torch.inference_mode(inference):
            x = torch.randn(3)
            torch.testing.assert_close(run(x), x * 2)


class Cuda:
    """What is asked of torch.cuda, in order; recording fails where `fails` says so."""

    def __init__(self, fails=False):
        self.message, self.fails, self.here = [], fails, "caller's"
        self.CUDAGraph = lambda: SimpleNamespace(replay=lambda: self.message.append(f"replayed on {self.here}"))

    def Stream(self, device):
        return SimpleNamespace(device=device, wait_stream=lambda other: self.message.append(f"side waits for {other.name}"), name="side")

    def current_stream(self):
        return SimpleNamespace(wait_stream=lambda other: self.message.append(f"caller's waits for {other.name}"), name="caller's")

    @contextmanager
    def device(self, device):
        yield

    @contextmanager
    def stream(self, stream):
        before, self.here = self.here, stream.name
        try:
            yield
        finally:
            self.here = before

    @contextmanager
    def graph(self, graph, stream, capture_error_mode):
        self.message.append(f"recording on {stream.name}, {capture_error_mode}")
        before, self.here = self.here, stream.name
        yield
        if self.fails:
            self.fails = False
            raise RuntimeError("invalidated")  # and leaves the stream as it is, as torch.cuda.graph does
        self.here = before


@pytest.fixture
def cuda(monkeypatch):
    fake = Cuda()
    monkeypatch.setattr(torch, "cuda", fake)
    replay._side.cache_clear()
    yield fake
    replay._side.cache_clear()


def test_a_graph_is_recorded_beside_the_callers_stream_after_a_run_there(cuda):
    def program(x):
        cuda.message.append(f"run on {cuda.here}")
        return x * 2

    result, again = replay.CudaRecorder().record(program, [torch.ones(3)])
    assert cuda.message == [
        *("side waits for caller's", "run on side", "recording on side, thread_local", "run on side"),
        *("caller's waits for side", "replayed on caller's"),
    ]
    assert torch.equal(result, torch.full((3,), 2.0)) and callable(again)


def test_a_recording_that_fails_leaves_the_callers_stream_and_the_generator_as_they_were(cuda):
    cuda.fails = True
    with pytest.raises(RuntimeError, match="invalidated"):
        replay.CudaRecorder().record(lambda x: x * 2, [torch.ones(3)])
    assert cuda.here == "caller's"
    assert [row for row in cuda.message if "recording" in row] == ["recording on side, thread_local"] * 2  # the second ends what the first began


@dovetail.opaque
def looked_up(x):
    return x * 2


REFUSED = {
    "is on cpu": (lambda x: x * 2, {"devices": ("cuda",)}),
    "and torch.nn.functional.dropout draws": (lambda x: torch.nn.functional.dropout(x * 2), {}),
    "untraced.looked_up is a function that is not looked into": (lambda x: looked_up(x.exp()) + 1, {}),
    "x0 is an input": (lambda x: (x * 2, x), {}),
    "this one is more": (lambda x: x.mul_(2), {}),
    "has elements that lie on one another": (lambda x: x * 2, {"x": torch.ones(1).expand(3)}),
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_a_refusal_is_a_warning_that_says_why(sentence):
    fn, how = REFUSED[sentence]

    class Here(Graphs):
        def fast_call(self, prologue, computation, slow):
            return replay.entry(prologue, computation, self.recorder, how.get("devices", ("cpu",)))

    ours = dovetail.jit(fn, executors=[Here(), "torch"])
    with pytest.warns(ExecutorWarning, match=f"triton.cuda_graphs: .*{sentence.replace('x0', 't0')}.*kernel by kernel"):
        ours(how.get("x", torch.ones(3)))


def test_a_program_without_inputs_is_refused():
    assert "would compute the same" in replay.refusal(dovetail.make_trace(lambda: torch.ones(3) * 2)(), ("cpu",))


def test_training_is_refused():
    ours, _ = compiled(lambda x: x.exp() * 2)
    with pytest.warns(ExecutorWarning, match="without gradients"):
        ours(torch.randn(3, requires_grad=True)).sum().backward()

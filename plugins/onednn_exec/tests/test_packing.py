"""Packed weights: packed once, and never used when the weight is another one than it was."""

from __future__ import annotations

import gc
import pickle
import threading
import weakref

import pytest
import torch
import torch.nn.functional as F
from onednn_against_eager import ALWAYS, compiled, ran

import dovetail
from dovetail_onednn_exec import cases, library
from dovetail_onednn_exec.executor import onednn_executor
from dovetail_onednn_exec.states import MOST_CHANGES, Linear, Weight

pytestmark = pytest.mark.skipif(library.pack_linear is None, reason=library.lacks("pack_linear"))


@pytest.fixture
def packs(monkeypatch):
    """The weights that were packed, in order."""
    seen = []
    plain = cases.pack
    monkeypatch.setattr(cases, "pack", lambda weight, rows: seen.append(weight.clone()) or plain(weight, rows))
    return seen


def linear() -> Linear:
    return Linear({"choose": "always", "pack": True, "margin": 1.0, "folder": ""})


def parameter(*shape: int) -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.randn(*shape), requires_grad=False)


def test_a_weight_is_packed_once(packs):
    model, x = torch.nn.Linear(8, 4), torch.randn(3, 8)
    ours = compiled(model)
    with torch.no_grad():
        for _ in range(4):
            torch.testing.assert_close(ours(x), model(x))
    assert len(packs) == 1 and len(ran(ours)) == 1


def test_the_option_pack_turns_it_off(packs):
    model, x = torch.nn.Linear(8, 4), torch.randn(3, 8)
    ours = compiled(model, onednn_executor(choose="always", pack=False))
    with torch.no_grad():
        torch.testing.assert_close(ours(x), model(x))
    assert packs == [] and len(ran(ours)) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda w: w.mul_(2),
        lambda w: w.data.mul_(2),  # not counted by PyTorch
        lambda w: w.data.copy_(torch.ones(4, 8)),
        lambda w: w.set_(torch.ones(4, 8)),
        lambda w: w.numpy().fill(3.0),
    ],
    ids=["in place", "through data", "copied", "another storage", "through NumPy"],
)
def test_a_weight_that_was_written_is_packed_again(packs, change):
    run, x, w = linear(), torch.randn(3, 8), parameter(4, 8)
    run(x, w)
    change(w)
    torch.testing.assert_close(run(x, w), F.linear(x, w))
    assert len(packs) == 2


def test_another_weight_is_packed_again_even_in_the_same_memory(packs):
    run, x = linear(), torch.randn(3, 8)
    memory = torch.randn(4, 8)
    for w in (torch.nn.Parameter(memory, requires_grad=False), torch.nn.Parameter(memory, requires_grad=False)):
        torch.testing.assert_close(run(x, w), F.linear(x, w))
    assert len(packs) == 2


def test_a_tensor_that_is_no_parameter_is_not_packed(packs):
    run, x, w = linear(), torch.randn(3, 8), torch.randn(4, 8)
    torch.testing.assert_close(run(x, w), F.linear(x, w))
    assert packs == []


def test_a_weight_that_keeps_changing_is_packed_no_more(packs):
    run, x, w = linear(), torch.randn(3, 8), parameter(4, 8)
    for _ in range(MOST_CHANGES + 5):
        w.add_(1)
        torch.testing.assert_close(run(x, w), F.linear(x, w))
    assert len(packs) == MOST_CHANGES + 1
    assert run.weight.kept is None


def test_the_packed_weight_goes_when_the_weight_goes():
    run, w = linear(), parameter(4, 8)
    run(torch.randn(3, 8), w)
    packed = weakref.ref(run.weight.kept.packed)
    del w
    gc.collect()
    assert run.weight.kept is None and packed() is None


def test_writes_to_an_inference_tensor_are_not_counted_so_it_is_not_packed(packs):
    run, x = linear(), torch.randn(3, 8)
    with torch.inference_mode():
        w = parameter(4, 8)
        run(x, w)
        w[1, 3] = 100.0
        torch.testing.assert_close(run(x, w), F.linear(x, w))
    assert packs == []


def test_a_weight_by_columns_is_computed_as_it_is(packs):
    run, x = linear(), torch.randn(3, 8)
    w = torch.nn.Parameter(torch.randn(8, 4).t(), requires_grad=False)
    torch.testing.assert_close(run(x, w), F.linear(x, w))
    assert packs == []


def test_a_convolution_is_packed_where_channels_are_innermost():
    model = torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    x, ours = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last), compiled(model)
    with torch.no_grad():
        torch.testing.assert_close(ours(x), model(x))
        model.weight.mul_(2)
        torch.testing.assert_close(ours(x), model(x))
    state = next(line.implementation.fn for line in dovetail.last_traces(ours)[-1].lines)
    assert state.weight.changes == 2 and state.weight.kept.packed.is_mkldnn


def test_a_state_is_pickled_without_what_it_packed():
    run, x, w = linear(), torch.randn(3, 8), parameter(4, 8)
    run(x, w)
    again = pickle.loads(pickle.dumps(run))
    assert again.weight.kept is None and again.options == run.options
    torch.testing.assert_close(again(x, w), F.linear(x, w))


def test_places_share_nothing():
    implementation = next(implementation for symbol, implementation in ALWAYS.table.items() if symbol.id == "torch.nn.functional.linear")
    assert implementation.stateful() is not implementation.stateful()
    assert isinstance(implementation.stateful().weight, Weight)


def test_what_another_thread_keeps_meanwhile_is_not_returned():
    others = Weight()
    others.get(parameter(4, 8), lambda: torch.zeros(1))

    class Shared(Weight):
        kept = property(lambda self: others.kept, lambda self, value: None)  # another thread is always faster

    own = torch.ones(1)
    assert Shared().get(parameter(4, 8), lambda: own) is own


def test_threads_with_weights_of_their_own_share_a_place():
    run, x, wrong = linear(), torch.randn(3, 8), []

    def work(w: torch.nn.Parameter) -> None:
        want = F.linear(x, w)
        wrong.extend(1 for _ in range(300) if not torch.allclose(run(x, w), want, atol=1e-5))

    threads = [threading.Thread(target=work, args=(parameter(4, 8),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []

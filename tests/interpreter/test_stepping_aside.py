"""Programs that do what no compiled program repeats run in eager mode at every call: hooks that outlive the call, modes, global settings, __del__."""

from __future__ import annotations

import asyncio
import gc
import warnings
import weakref

import pytest
import torch
from agreement import agrees, same
from torch.autograd.graph import saved_tensors_hooks
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import dovetail
from dovetail.errors import DovetailError

FACTOR, SEEN = [3.0], []


def hooked(x):
    y = x * 2
    y.register_hook(lambda g: g * FACTOR[0])
    return y.sum()


def retained(x):
    y = x * 2
    y.retain_grad()
    SEEN[:] = [y]
    return y.sum()


def unhooked(x):
    y = x * 2
    y.register_hook(lambda g: g * FACTOR[0]).remove()
    return y.sum()


def followed_inside(x):
    leaf = x.detach().requires_grad_()
    y = leaf * 2
    y.register_hook(lambda g: g * FACTOR[0])
    return x.sum() * torch.autograd.grad(y.sum(), leaf)[0].sum()


def noted(x):
    w = torch.ones(3, requires_grad=True)
    w.register_post_accumulate_grad_hook(lambda p: SEEN.append(p.grad.clone()))
    return (w * x).sum()


def hooked_outside(x):
    x.register_hook(lambda g: g * FACTOR[0])
    return (x * x).sum()


def hooked_outside_for_a_while(x):
    handle = x.register_hook(lambda g: g * FACTOR[0])
    y = (x * x).sum()
    handle.remove()
    return y


def noted_outside(x):
    x.register_post_accumulate_grad_hook(lambda p: SEEN.append(p.grad.clone()))
    return (x * x).sum()


@pytest.mark.parametrize("program", [hooked, retained, unhooked, followed_inside, noted, hooked_outside, hooked_outside_for_a_while, noted_outside])
def test_hooks_that_a_program_registers_are_followed(program):
    def results(function):
        x = torch.ones(3, requires_grad=True)
        SEEN.clear()
        function(x).backward()
        return x.grad, [t if t.is_leaf else t.grad for t in SEEN]

    compiled = dovetail.jit(program)
    for factor in (3.0, 5.0, 5.0):
        FACTOR[0] = factor
        same(results(compiled), results(program))


@pytest.mark.parametrize("warm", [False, True], ids=["first call", "warm"])
def test_hooks_around_that_change_what_is_saved_get_what_eager_mode_saves(warm):
    def program(x):
        return torch.sin(x) * x

    def gradient(function):
        x = torch.ones(3, requires_grad=True)
        with saved_tensors_hooks(lambda t: t * 2, lambda t: t + 1):
            y = function(x)
        y.sum().backward()
        return x.grad

    compiled = dovetail.jit(program)
    if warm:
        compiled(torch.ones(3, requires_grad=True))
    same(gradient(compiled), gradient(program))


def test_checkpoints_run_the_compiled_program():
    compiled = dovetail.jit(lambda x: torch.sin(x) * x)
    x = torch.ones(3, requires_grad=True)
    for _ in range(2):
        torch.utils.checkpoint.checkpoint(compiled, x, use_reentrant=False).sum().backward()
    assert compiled.cache_info().hits >= 3


class Doubling(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        return result * 2 if function is torch.sin else result


class Counting(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        SEEN.append(str(function))
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("mode", [Doubling, Counting])
def test_modes_that_a_program_opens_are_honoured(mode):
    def program(x):
        with mode():
            return torch.sin(x)

    def results(function):
        SEEN.clear()
        return function(torch.ones(3)), list(SEEN)

    compiled = dovetail.jit(program)
    for _ in range(2):
        same(results(compiled), results(program))


@pytest.mark.parametrize("executors", [None, ["torch"]])
def test_a_mode_around_a_call_with_many_tensors(executors):
    compiled = dovetail.jit(lambda *tensors: sum(map(torch.sin, tensors)), executors=executors)
    tensors = [torch.ones(2) for _ in range(12)]
    compiled(*tensors)
    with Doubling():
        torch.testing.assert_close(compiled(*tensors), 24 * torch.ones(2).sin())


def with_default_dtype(x):
    torch.set_default_dtype(torch.float64)
    y, z = torch.ones(2), torch.hann_window(4)
    torch.set_default_dtype(torch.float32)
    return y, z, torch.ones(2) + x


def with_default_device(x):
    torch.set_default_device("meta")
    y = torch.ones(2).device.type
    torch.set_default_device(None)
    return y, torch.ones(2) + x


def with_deterministic_algorithms(x):
    torch.use_deterministic_algorithms(True)
    inside = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(False)
    return x + 1, inside, torch.are_deterministic_algorithms_enabled()


def with_cudnn_flags(x):
    with torch.backends.cudnn.flags(enabled=False, deterministic=True):
        inside = torch.backends.cudnn.enabled, torch.backends.cudnn.deterministic
        y = x + 1 if x.sum() > 0 and not inside[0] else x
    return y, inside, torch.backends.cudnn.enabled, torch.backends.cudnn.deterministic


@pytest.mark.parametrize("program", [with_default_dtype, with_default_device, with_deterministic_algorithms, with_cudnn_flags])
def test_global_settings_that_a_program_changes_and_restores(program):
    compiled = dovetail.jit(program)
    for _ in range(2):
        same(compiled(torch.ones(2)), program(torch.ones(2)))


@pytest.mark.filterwarnings("error")
@pytest.mark.skipif(torch.cuda.is_available(), reason="where cuDNN may compute, a program that sets it runs in eager mode")
def test_settings_of_cudnn_around_a_loss_that_needs_values_are_compiled():
    def program(scores, targets, lengths):
        with torch.backends.cudnn.flags(enabled=False):
            return F.ctc_loss(scores.log_softmax(-1), targets.masked_select(targets > 0), torch.tensor([12, 12]), lengths)

    compiled, scores = dovetail.jit(program), torch.randn(12, 2, 5, requires_grad=True)
    for targets, lengths in (([[1, 2, 3], [2, 4, 0]], [3, 2]), ([[1, 0, 0], [2, 4, 1]], [1, 3])):
        results = [call(scores, torch.tensor(targets), torch.tensor(lengths)) for call in (compiled, program)]
        torch.testing.assert_close(*results)
        torch.testing.assert_close(*[torch.autograd.grad(each, scores) for each in results])
    assert compiled.cache_info().segments == 2


@pytest.mark.parametrize("name", ["enabled", "benchmark", "deterministic", "fp32_precision"])
def test_a_setting_of_cudnn_that_a_program_leaves_changed_is_changed_at_every_call(name, monkeypatch):
    namespace = torch.backends.flags_frozen.__globals__
    monkeypatch.setitem(namespace, "__allow_nonbracketed_mutation_flag", True)  # torch's own test utilities forbid it once imported
    cudnn = torch.backends.cudnn
    values = ("none", "ieee") if name == "fp32_precision" else (False, True)

    def program(x):
        setattr(cudnn, name, values[1])
        return x * 2 if getattr(cudnn, name) == values[1] else x

    compiled, before = dovetail.jit(program), getattr(cudnn, name)
    try:
        for value in (*values, *values):
            setattr(cudnn, name, value)
            assert compiled(torch.ones(1)).item() == 2
            assert getattr(cudnn, name) == values[1]
    finally:
        setattr(cudnn, name, before)


def test_settings_of_cudnn_are_restored_where_a_program_is_refused():
    def program(x):
        with torch.backends.cudnn.flags(enabled=False):
            return torch.func.functionalize(torch.sin, remove="mutations_and_views")(x)

    with pytest.raises(DovetailError, match=r"torch\.func is not traced"):
        dovetail.jit(program)(torch.ones(1))
    assert torch.backends.cudnn.enabled


def test_a_setting_that_a_program_leaves_changed_is_changed_at_every_call():
    def program(x):
        torch.set_flush_denormal(False)
        torch.set_num_threads(1)
        return x + 1

    compiled, before = dovetail.jit(program), torch.get_num_threads()
    try:
        for _ in range(3):
            torch.set_num_threads(2)
            compiled(torch.ones(2))
            assert torch.get_num_threads() == 1
    finally:
        torch.set_num_threads(before)


def test_windows_follow_the_default_dtype():
    def program():
        return torch.hann_window(4), torch.fft.fftfreq(4), torch.linspace(0, 1, 3)

    compiled = dovetail.jit(program)
    try:
        for dtype in (torch.float32, torch.float64, torch.float32):
            torch.set_default_dtype(dtype)
            same(compiled(), program())
    finally:
        torch.set_default_dtype(torch.float32)


class Dropped:
    def __del__(self):
        SEEN.append("dropped")


def test_objects_are_dropped_at_every_call():
    def program(x):
        thing = Dropped()
        del thing
        return x + 1

    compiled = dovetail.jit(program)
    SEEN.clear()
    for calls in (1, 2, 3):
        compiled(torch.ones(2))
        assert ["dropped"] * calls == SEEN


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_no_part_of_an_event_loop_is_dropped_while_tracing():
    async def double(x):
        await asyncio.sleep(0)
        return x * 2

    def program(x):
        return asyncio.run(double(x))

    compiled = dovetail.jit(program)
    for _ in range(2):
        same(compiled(torch.ones(2)), torch.full((2,), 2.0))
    gc.collect()


class Thing:
    pass


def refers(thing, dropped):
    return weakref.ref(thing, lambda ref: dropped.append(thing_of(ref)))


def thing_of(ref):
    return "gone" if ref() is None else "there"


NAMES, SIZES = weakref.WeakSet(), weakref.WeakKeyDictionary()


@pytest.mark.parametrize(
    "watch",
    [
        refers,
        lambda thing, dropped: weakref.proxy(thing, lambda ref: dropped.append("proxy")),
        lambda thing, dropped: weakref.finalize(thing, dropped.append, "finalized") and None,
        lambda thing, dropped: weakref.WeakValueDictionary(key=thing),
        lambda thing, dropped: NAMES.add(thing),
        lambda thing, dropped: SIZES.setdefault(thing, 3),
    ],
    ids=["ref", "proxy", "finalize", "WeakValueDictionary", "WeakSet", "WeakKeyDictionary"],
)
def test_weak_references_notice_at_every_call_that_an_object_is_dropped(watch):
    def program(x, dropped):
        thing = Thing()
        held = watch(thing, dropped)
        count = len(NAMES) + len(SIZES)
        del thing
        dropped.append(len(NAMES) + len(SIZES))
        return x * (count + (held is None))

    compiled = dovetail.jit(program)
    for shift in range(3):
        x, actual, expected = torch.full((2,), float(shift)), [], []
        same(compiled(x, actual), program(x, expected))
        assert actual == expected


@pytest.mark.parametrize("program", [lambda x: (x.is_conj(), x * 2), lambda x: x.imag, torch.view_as_real])
def test_tensors_that_are_conjugated_lazily(program):
    compiled, x = dovetail.jit(program), torch.tensor([1 + 2j, 3 - 1j])
    for given in (x, x.conj(), x):
        if program is torch.view_as_real and given.is_conj():
            with pytest.raises(RuntimeError, match="unresolved conjugated"):
                compiled(given)
            continue
        same(compiled(given), program(given))
    negative = x.conj().imag
    assert dovetail.jit(lambda x: x.is_neg())(negative) == negative.is_neg()


def test_what_torch_compile_sets_around_calls_is_no_state_of_torch():
    double = torch.compiler.disable(lambda x: x * 2)  # steps of optimizers are such functions once Dynamo is imported
    compiled = dovetail.jit(lambda x: double(x) + 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.testing.assert_close(compiled(torch.ones(3)), torch.full((3,), 3.0))

    assert compiled.cache_info().programs == 1


def test_what_raises_only_where_it_knows_that_it_is_compiled_is_traced_as_in_eager_mode():
    def program(x, mask=None):
        if mask is None and not torch.compiler.is_compiling():
            mask = torch.ones_like(x)
        return x * mask.sum()  # AttributeError without a mask

    compiled = agrees(program, torch.ones(3))
    with pytest.raises(AttributeError, match="has no attribute 'sum'"):
        compiled(torch.ones(3), "mask")


@pytest.mark.parametrize("branches", [False, True], ids=["straight", "with a decision"])
def test_so_is_what_writes_before_it_raises_where_it_knows_that_it_is_compiled(branches):
    class Model(torch.nn.Module):
        def forward(self, x, mask=None):
            self.calls = getattr(self, "calls", 0) + 1
            if branches and x.sum() < 0:
                x = -x
            if mask is None and not torch.compiler.is_compiling():
                mask = torch.ones_like(x)
            return x * mask.sum() * self.calls

    model, beside = Model(), Model()
    compiled = dovetail.jit(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(3):
            torch.testing.assert_close(compiled(torch.ones(3)), beside(torch.ones(3)))
    assert model.calls == 3 and compiled.cache_info().programs

"""Programs that ended in an internal error: they agree with eager, or are refused in a sentence."""

from __future__ import annotations

import sys
import types
from contextlib import nullcontext

import pytest
import torch
from torch.autograd import forward_ad
from torch.nn import functional as F

import dovetail
from dovetail.errors import TracedValueError, Unsupported


def ranges(x):
    with torch.profiler.record_function("my range"):
        y = x + 1
    return y * 2


def test_a_range_of_a_profile_is_nothing_without_a_profiler():
    compiled, x = dovetail.jit(ranges), torch.ones(2)
    torch.testing.assert_close(compiled(x), ranges(x))
    torch.testing.assert_close(compiled(x), ranges(x))
    assert compiled.cache_info().misses == 1


@pytest.mark.parametrize("warm", [False, True])
def test_a_profile_has_the_ranges_inside(warm):
    compiled, x = dovetail.jit(ranges), torch.ones(2)
    if warm:
        compiled(x)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        torch.testing.assert_close(compiled(x), ranges(x.clone()))
    assert sum(event.name == "my range" for event in profile.events()) == 2
    torch.testing.assert_close(compiled(x), ranges(x))


def noted(x):
    x.note = 3
    return x * x.note


def test_an_attribute_that_is_set_on_an_input_is_seen_inside_and_outside():
    compiled = dovetail.jit(noted)
    for _ in range(2):
        x = torch.ones(2)
        torch.testing.assert_close(compiled(x), torch.full((2,), 3.0))
        assert x.note == 3


SIZES = {
    "topk": lambda x, n: torch.topk(x, n).values,
    "roll": lambda x, n: torch.roll(x, n),
    "narrow": lambda x, n: x.narrow(0, 0, n),
    "ones": lambda x, n: x.sum() + torch.ones(n),
    "zeros": lambda x, n: x.sum() + torch.zeros(n, n),
    "expand": lambda x, n: x[:1].expand(n),
    "repeat": lambda x, n: x.repeat(n),
    "index": lambda x, n: x[:n],
}


@pytest.mark.parametrize("program", SIZES.values(), ids=SIZES)
def test_a_tensor_as_a_size_is_right_or_refused(program):
    x, n = torch.arange(5.0), torch.tensor(2)
    try:
        result = dovetail.jit(program)(x, n)
    except (TracedValueError, Unsupported) as error:
        assert "value" in str(error)
    else:
        torch.testing.assert_close(result, program(x, n))


def test_zeros_without_memory_are_zeros():
    compiled = dovetail.jit(lambda x: x + 1)
    compiled(torch.ones(3))
    zeros = torch._efficientzerotensor((3,))
    torch.testing.assert_close(compiled(zeros), torch.ones(3))
    torch.testing.assert_close(dovetail.jit(lambda x, y: x - y)(torch.ones(3), zeros), torch.ones(3))


def test_replaced_properties_of_tensors_are_refused(monkeypatch):
    compiled, x = dovetail.jit(lambda x: x * x.shape[0]), torch.ones(2)
    compiled(x)
    monkeypatch.setattr(torch.Tensor, "shape", property(lambda self: (42,)), raising=False)
    with pytest.raises(Unsupported, match=r"torch\.Tensor\.shape has been replaced"):
        compiled(x)


def test_dual_numbers_inside_run_eagerly():
    def tangent(x):
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(forward_ad.make_dual(x, x).sin()).tangent

    compiled = dovetail.jit(tangent)
    with pytest.warns(UserWarning, match="enter_dual_level is not traced"):
        for x in (torch.ones(1), torch.zeros(1), torch.ones(2)):
            torch.testing.assert_close(compiled(x), x * x.cos())


def test_what_an_import_inside_replaces_is_read_again(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "holder_in_tests", holder := types.ModuleType("holder_in_tests"))
    (tmp_path / "replaces_in_tests.py").write_text("import holder_in_tests\nholder_in_tests.triple = lambda x: x * 3\n")
    holder.triple = lambda x: x * 3

    def program(x):
        y = holder.triple(x)
        __import__("replaces_in_tests")
        return y

    try:
        torch.testing.assert_close(dovetail.jit(program)(torch.ones(2)), torch.full((2,), 3.0))
    finally:
        sys.modules.pop("replaces_in_tests", None)


def test_fractional_pooling_takes_its_arguments_by_position():
    x, samples = torch.randn(1, 1, 8, 8), torch.rand(1, 1, 2)

    def program(x):
        return F.fractional_max_pool2d(x, 2, 3, None, True, _random_samples=samples)

    result = dovetail.jit(program)(x)
    assert type(result) is tuple
    torch.testing.assert_close(result, program(x))


def test_whether_a_tensor_is_an_inference_tensor_is_known_outside_inference_mode():
    compiled, x = dovetail.jit(lambda x: (x * 1).is_inference()), torch.ones(2)
    with torch.no_grad():
        assert compiled(x) is False
    with torch.inference_mode(), pytest.raises(Unsupported, match="depends on how the program runs"):
        compiled(x)

    def inside(x):
        with torch.inference_mode():
            y = x * 2
        return y.is_inference()

    with pytest.raises(Unsupported, match="depends on how the program runs"):
        dovetail.jit(inside)(x)


def without_overrides(x):
    with torch._C.DisableTorchFunctionSubclass():
        y = torch.add(x, 1.0)
    with torch._C.DisableTorchFunction():
        return torch.sin(y) * 2


@pytest.mark.parametrize("state", [torch._C.DisableTorchFunction, torch._C.DisableTorchFunctionSubclass])
def test_overrides_of_torch_functions_may_be_off_inside_and_around_a_call(state):
    x = torch.ones(2)
    with state():
        got = dovetail.jit(without_overrides)(x)
    torch.testing.assert_close(got, without_overrides(x))
    torch.testing.assert_close(dovetail.jit(without_overrides)(x), got)


class Overriding:
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return function.__name__, [kind.__name__ for kind in types], len(args), kwargs


def test_objects_that_override_torch_functions_are_called():
    x, program = torch.ones(2), lambda x, o: (torch.add(x, o), torch.cat([o, x], dim=0), torch.overrides.has_torch_function_unary(o))
    assert dovetail.jit(program)(x, Overriding()) == program(x, Overriding())


def test_a_subclass_of_tensor_is_not_made_inside():
    class Own(torch.Tensor):
        pass

    with pytest.raises(Unsupported, match=r"Own\(\.\.\.\) makes a tensor of a subclass"):
        dovetail.jit(lambda x: Own(x + 1))(torch.ones(2))


DISABLED = torch._C._autograd._saved_tensors_hooks_get_disabled_error_message
disabling = torch.autograd.graph.disable_saved_tensors_hooks


def nested(x):
    with disabling("outer"), disabling("inner"):
        y = x + (2 if DISABLED() == "inner" else 3)
    return y * 2


def read(x):
    return x * (2 if DISABLED() is None else 3)


def left(x):
    torch._C._autograd._saved_tensors_hooks_disable("left")
    return x + 1


@pytest.mark.parametrize("program", [nested, read, left])
@pytest.mark.parametrize("around", [None, "around"])
def test_hooks_on_saved_tensors_are_disabled_as_in_eager_mode(program, around):
    def outcome(function):
        with disabling(around) if around is not None else nullcontext():
            result = function(torch.ones(3))
            message = DISABLED()
        return result, message

    compiled = dovetail.jit(program)
    for _ in range(3):
        (got, message), (want, expected) = outcome(compiled), outcome(program)
        assert torch.equal(got, want)
        assert message == expected
    torch._C._autograd._saved_tensors_hooks_enable()
    assert compiled.cache_info().programs == 1


def test_a_refused_program_leaves_hooks_on_saved_tensors_as_they_were():
    def program(x):
        with disabling("inside"):
            return x.resize_(1)

    with pytest.raises(Unsupported):
        dovetail.jit(program)(torch.ones(3))
    assert DISABLED() is None


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("check", ["can_use_flash_attention", "can_use_efficient_attention"])
def test_kernels_of_cuda_do_not_compute_attention_of_other_devices(check, device):
    def program(q, k, mask):
        params = torch.backends.cuda.SDPAParams(q, k, k, mask, 0.0, False, False)
        if getattr(torch.backends.cuda, check)(params, False) or getattr(torch.backends.cuda, check)(params=params):
            return q
        return F.scaled_dot_product_attention(q, k, k, mask) + 1

    compiled = dovetail.jit(program)
    for length in (8, 8, 9, 10):
        q, k, mask = (torch.rand(shape, device=device) for shape in ((1, 2, 4, 16), (1, 2, length, 16), (4, length)))
        result = compiled(q, k, mask)
        assert result.shape == q.shape
        if device == "cpu":
            torch.testing.assert_close(result, program(q, k, mask))
    assert compiled.cache_info().programs == (2 if device == "cpu" else 3)

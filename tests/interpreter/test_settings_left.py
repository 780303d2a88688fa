"""Tracing that ends inside a `with` of the program leaves torch as it was: where a value is needed, a call is refused, or an error is raised."""

from __future__ import annotations

import sys
import warnings
from contextlib import nullcontext, redirect_stdout, suppress
from functools import cache

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import dovetail
from dovetail.errors import DovetailError

CONTEXTS = {
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "autocast without a cache": lambda: torch.autocast("cpu", torch.float16, cache_enabled=False),
    "autocast off": lambda: torch.autocast("cpu", enabled=False),
    "no_grad": torch.no_grad,
    "enable_grad": torch.enable_grad,
    "inference_mode": torch.inference_mode,
    "device": lambda: torch.device("meta"),
    "device of a library": lambda: torch.utils._device.DeviceContext(torch.device("meta")),
    "cudnn": lambda: torch.backends.cudnn.flags(enabled=False),
    "sdpa_kernel": lambda: sdpa_kernel(SDPBackend.MATH),
    "detect_anomaly": lambda: torch.autograd.set_detect_anomaly(True),
    "one thread": lambda: torch.autograd.set_multithreading_enabled(False),
    "saved_tensors_hooks": lambda: torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x),
    "disable_saved_tensors_hooks": lambda: torch.autograd.graph.disable_saved_tensors_hooks("no"),
    "no overrides": torch._C.DisableTorchFunctionSubclass,
    "fork_rng": torch.random.fork_rng,
    "warnings": warnings.catch_warnings,
    "errstate": lambda: np.errstate(all="raise"),
    "stdout": lambda: redirect_stdout(sys.stderr),
}


def plain(x, y):
    return y


def value(x, y):
    return y + 1 if x.sum() > 0 else y


def refused(x, y):
    return torch.Tensor.resize_(y, (1,))


def raised(x, y):
    raise ValueError("the program's own")


def wrong(x, y):
    return torch.cat([x, x[:, :1]])


ENDS = {each.__name__: each for each in (plain, value, refused, raised, wrong)}


def settings():
    """Return what a context may change: of torch, NumPy and Python."""
    depth = torch.autocast_increment_nesting() - 1
    torch.autocast_decrement_nesting()
    return {
        "autocast": [(torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)) for device in ("cpu", "cuda")],
        "contexts of autocast": depth,
        "cache of autocast": torch.is_autocast_cache_enabled(),
        "modes": (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch._C._is_torch_function_enabled()),
        "stacks of modes": (torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack()),
        "defaults": (torch.get_default_dtype(), torch.get_default_device()),
        "backends": (torch.backends.cudnn.enabled, torch.backends.mkldnn.enabled, torch.get_float32_matmul_precision()),
        "attention": (torch.backends.cuda.flash_sdp_enabled(), torch.backends.cuda.mem_efficient_sdp_enabled(), torch._C._get_sdp_priority_order()),
        "autograd": (torch.is_anomaly_enabled(), torch.autograd.is_multithreading_enabled(), torch._C._is_fwd_grad_enabled()),
        "hooks": (torch._C._autograd._saved_tensors_hooks_is_enabled(), torch._C._autograd._top_saved_tensors_default_hooks(True)),
        "Python": (np.geterr(), sys.stdout),
    }


@cache
def nests():
    """Return whether eager mode leaves the context of a library inside another one; torch 2.10 raises AssertionError there."""
    with suppress(AssertionError), torch.device("cpu"), CONTEXTS["device of a library"]():
        return True
    return False


@pytest.mark.filterwarnings("ignore", "error:.*Please report it as a bug")
@pytest.mark.parametrize("around", [None, "autocast", "device"])
@pytest.mark.parametrize("decisions", ["graph", "error", "eager"])
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("context", CONTEXTS)
def test_settings_are_left_as_they_were(context, end, decisions, around):
    def program(x):
        with CONTEXTS[context]():
            return ENDS[end](x, x @ x)

    if (context, around) == ("device of a library", "device") and not nests():
        pytest.skip("torch has no such context in another in eager mode, either")
    compiled = dovetail.jit(program, decisions=decisions)
    with {None: nullcontext(), "autocast": torch.autocast("cpu", torch.float16), "device": torch.device("cpu")}[around]:
        before = settings()
        for sign in (1, 1, -1):
            with suppress(DovetailError, RuntimeError, ValueError):
                compiled(torch.full((4, 4), float(sign)))
            assert settings() == before


def in_autocast(x):
    with torch.autocast("cpu", torch.bfloat16):
        y = x @ x
        y = y + 1 if y[0, 0] > 0 else y
    return y, y.float() @ x


def out_of_autocast(x):
    with torch.autocast("cpu", enabled=False):
        y = x @ x if x.sum() > 0 else x
    return y, y @ x


@pytest.mark.parametrize("around", [False, True])
@pytest.mark.parametrize("program", [in_autocast, out_of_autocast])
def test_a_value_inside_autocast_is_a_decision(program, around):
    compiled = dovetail.jit(program)
    for sign in (1, 1, -1, 1, -1):
        x = torch.eye(3) * sign
        with torch.autocast("cpu", torch.bfloat16, enabled=around):
            torch.testing.assert_close(compiled(x), program(x))
    assert compiled.cache_info().hits >= 3


def on_a_device(x):
    with torch.device("meta"):
        y, empty, listed = torch.ones(2), torch.empty(3), torch.tensor([1.0])
        with torch.device("cpu"):
            inner = torch.zeros(2)
        default = torch.get_default_device()
        last = torch.full((4,), 1.0) if x.sum() > 0 else torch.asarray([2.0])
    return y, empty, listed, inner, last, torch.arange(3), default


@pytest.mark.parametrize("around", [None, "cpu", "meta"])
def test_a_device_inside_is_that_of_what_the_program_creates(around):
    compiled, x = dovetail.jit(on_a_device), torch.ones(2)
    with nullcontext() if around is None else torch.device(around):
        for sign in (1, 1, -1, -1):
            *expected, device = on_a_device(x * sign)
            *tensors, default = compiled(x * sign)
            assert [(y.device, y.shape) for y in tensors] == [(y.device, y.shape) for y in expected]
            assert default == device
    assert compiled.cache_info().hits == 2


def test_a_device_around_is_guarded():
    compiled = dovetail.jit(lambda x: (x + 1, torch.ones(2)))
    for around in ("meta", "cpu", "meta"):
        with torch.device(around):
            assert compiled(torch.ones(2, device="cpu"))[1].device.type == around
    assert compiled.cache_info().misses == 2

"""Modes of torch: overrides, dispatch, fake tensors, autocast, grad mode and settings of cuDNN."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from typing import Any

import torch
from packaging.version import Version

from dovetail.torch_internals.internal import Internal, resolve
from dovetail.torch_internals.undisturbed import in_lasting_thread, in_new_thread

_modes = resolve("torch.overrides._get_current_function_mode_stack")
_AUTOCAST_DEVICES = ("cpu", "cuda")
# Without a GPU, fake tensors of torch 2.10 for CUDA use a guard of devices that lies in the memory of the first thread that has any: once that
# has ended, the next use of them crashes.  Torch 2.14 does not.
_GUARD_OF_FIRST_THREAD = torch.version.cuda is not None and Version(torch.__version__).release < (2, 14)


def _disables_overrides(guard: Any) -> bool:
    class Overriding(torch.Tensor):
        __torch_function__ = classmethod(lambda cls, *args, **kwargs: NotImplemented)

    with guard():
        return type(torch.neg(torch.ones(1).as_subclass(Overriding))) is torch.Tensor


def _fakes(mode: Any) -> bool:
    def fakes() -> bool:
        with mode():
            return tuple((torch.empty(2, 3) @ torch.empty(3, 4)).shape) == (2, 4)

    return in_lasting_thread(fakes) if _GUARD_OF_FIRST_THREAD else fakes()


ANY_AUTOCAST = Internal(
    "torch._C._is_any_autocast_enabled",
    purpose="ask once whether autocast is on for any device",
    fallback="torch.is_autocast_enabled is called for CPU and CUDA, and the call path in C is not used",
    probe=lambda ask: ask() is any(map(torch.is_autocast_enabled, _AUTOCAST_DEVICES)),
)
EXCLUDED_KEYS = Internal(
    "torch._C._dispatch_tls_local_exclude_set",
    purpose="check in C, at once for every kind of device, that autocast is off",
    fallback="calls are checked in Python",
    probe=lambda excluded: bool(_autocast_bits(excluded)),
)
FAKE_TENSOR_LOG = "torch._subclasses.fake_tensor"  # the logger to which fake tensors write every error of a bad call
SET_GRAD_ENABLED = Internal(
    "torch._C._set_grad_enabled",
    purpose="switch grad mode as graphs of Dynamo do",
    fallback="torch.set_grad_enabled is used",
    probe=lambda set_: set_(torch.is_grad_enabled()) is None,
)
DISABLE_TORCH_FUNCTION = Internal(
    "torch._C.DisableTorchFunction",
    purpose="compute with real and fake tensors while a program is traced",
    fallback="torch._C.DisableTorchFunctionSubclass is used; operations without a decomposition are refused",
    probe=_disables_overrides,
)
ENABLE_TORCH_FUNCTION = Internal(
    "torch._C._EnableTorchFunction",
    purpose="trace where overrides of torch functions are off: around a call, or where a program is cut inside of torch's own code",
    fallback="such programs run eagerly from there, and such calls end in an error of torch's",
    probe=lambda enable: hasattr(enable, "__enter__"),
)
FAKE_TENSOR_MODE = Internal(
    "torch._subclasses.fake_tensor.FakeTensorMode",
    purpose="infer shapes and dtypes of operations that have no decomposition",
    fallback="operations without a decomposition are refused",
    probe=_fakes,
)
DISPATCH_MODE = Internal(
    "torch.utils._python_dispatch.TorchDispatchMode",
    purpose="see which arguments an operation without a decomposition writes into",
    fallback="operations without a decomposition are refused",
    probe=lambda mode: callable(mode.__torch_dispatch__) and callable(mode.__enter__),
)
PYTHON_DISPATCHER = Internal(
    "torch._dispatch.python.enable_python_dispatcher",
    purpose="run torch's rules for shapes on sizes that are known when the program runs",
    fallback="operations without a decomposition are compiled for each size",
    probe=lambda enable: hasattr(enable(), "__enter__"),
)
PUSH_FUNCTION_MODE = Internal(
    "torch._C._push_on_torch_function_stack",
    purpose="take back a `with torch.device(...)` of a program that tracing leaves in the middle",
    fallback="such a device stays the default",
)
POP_FUNCTION_MODE = Internal(
    "torch._C._pop_torch_function_stack",
    purpose="take back a `with torch.device(...)` of a program that tracing leaves in the middle",
    fallback="such a device stays the default",
)
DISABLE_MODES = Internal(
    "torch.utils._python_dispatch._disable_current_modes",
    purpose="time operations undisturbed by the caller's modes",
    fallback="the caller's modes stay on",
    probe=lambda disable: hasattr(disable(), "__enter__"),
)


def any_autocast_by_device() -> bool:
    """Return whether autocast is on for the CPU or CUDA."""
    return any(map(torch.is_autocast_enabled, _AUTOCAST_DEVICES))


any_autocast = ANY_AUTOCAST.value or any_autocast_by_device
set_grad_enabled = SET_GRAD_ENABLED.value or torch.set_grad_enabled


def no_torch_function() -> AbstractContextManager[Any]:
    """Return a context in which no `__torch_function__` and no torch function mode is called."""
    guard = DISABLE_TORCH_FUNCTION.value or getattr(torch._C, "DisableTorchFunctionSubclass", nullcontext)
    return guard()


def torch_function() -> AbstractContextManager[Any]:
    """Return a context in which `__torch_function__` and torch function modes are called, also inside `no_torch_function`."""
    return (ENABLE_TORCH_FUNCTION.usable or nullcontext)()


def fake_tensor_mode(**options: Any) -> AbstractContextManager[Any]:
    """Return a mode in which tensors have no values; raises NotImplementedError where this torch has none."""
    if (why := FAKE_TENSOR_MODE.problem or DISPATCH_MODE.problem) is not None:
        raise NotImplementedError(f"{why}; install a torch that `dovetail doctor` finds no fault with")
    return FAKE_TENSOR_MODE.value(**options)


def shape_rules() -> AbstractContextManager[Any]:
    """Return a context in which tensors on the meta device follow torch's rules in Python; raises NotImplementedError where this torch has none."""
    if (why := PYTHON_DISPATCHER.problem or DISPATCH_MODE.problem) is not None:
        raise NotImplementedError(why)
    return PYTHON_DISPATCHER.value()


def no_modes() -> AbstractContextManager[Any]:
    """Return a context in which the caller's dispatch modes are off."""
    return (DISABLE_MODES.usable or nullcontext)()


class _NoDispatchMode:
    """Stands for TorchDispatchMode as a base class where this torch lacks it; no instance is ever entered."""


TorchDispatchMode: type = DISPATCH_MODE.value or _NoDispatchMode


@cache
def autocast_keys() -> int | None:
    """Return the bits of the dispatch keys that are excluded while autocast is off for every kind of device, None where this torch does not say."""
    if ANY_AUTOCAST.value is None or EXCLUDED_KEYS.problem is not None:
        return None
    return in_new_thread(lambda: _autocast_bits(EXCLUDED_KEYS.value))


def _autocast_bits(excluded: Any) -> int | None:
    """Return the bits that disappear from `excluded()` where autocast is switched on; None where it is not one for each kind of device."""
    bits, off = 0, excluded().raw_repr()
    for device in autocast_devices():
        torch.set_autocast_enabled(device, True)
        on = excluded().raw_repr()
        torch.set_autocast_enabled(device, False)
        if on & ~off or (off & ~on).bit_count() != 1:
            return None
        bits |= off & ~on
    return bits


@cache
def autocast_devices() -> tuple[str, ...]:
    """Return the kinds of device that have autocast."""
    kinds = resolve("torch._C._autograd.DeviceType")
    if kinds is None:
        return ()
    names = ["privateuseone" if name == "PrivateUse1" else name.lower() for name in dir(kinds) if isinstance(getattr(kinds, name), kinds)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tuple(filter(_has_autocast, names))


def _has_autocast(device: str) -> bool:
    try:
        return torch.amp.is_autocast_available(device)
    except RuntimeError:  # no device that a tensor can be on
        return False


class ThreadModes:
    """Autocast and the modes of torch functions in this thread, as they are when this is created."""

    def __init__(self) -> None:
        self.casts = _casts()
        self.cached, self.depth = torch.is_autocast_cache_enabled(), _autocast_depth()
        self.functions = _function_modes()

    def restore(self) -> None:
        """Set them again, whatever was entered or left since."""
        for (device, on, dtype), now in zip(self.casts, _casts(), strict=True):
            if now != (device, on, dtype):
                torch.set_autocast_dtype(device, dtype)
                torch.set_autocast_enabled(device, on)
        torch.set_autocast_cache_enabled(self.cached)
        deeper = self.depth - _autocast_depth()
        for _ in range(deeper):
            torch.autocast_increment_nesting()
        for _ in range(-deeper):
            if torch.autocast_decrement_nesting() == 0:
                torch.clear_autocast_cache()
        now = _function_modes()
        if len(now) != len(self.functions) or any([a is not b for a, b in zip(now, self.functions, strict=True)]):
            for _ in now:
                POP_FUNCTION_MODE.value()
            for mode in self.functions:
                PUSH_FUNCTION_MODE.value(mode)


def _casts() -> list[tuple[str, bool, torch.dtype]]:
    """Return whether autocast is on, and what it casts to, for each kind of device."""
    return [(device, torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)) for device in autocast_devices()]


def _autocast_depth() -> int:
    """Return how many contexts of autocast are open; its cache is cleared where the last one ends."""
    depth = torch.autocast_increment_nesting() - 1
    torch.autocast_decrement_nesting()
    return depth


def _function_modes() -> list[Any]:
    """Return the modes of torch functions, the outermost first; none where this torch does not say."""
    return list(_modes()) if restores_modes() else []


def restores_modes() -> bool:
    """Return whether ThreadModes restores the modes of torch functions."""
    return _modes is not None and POP_FUNCTION_MODE.usable is not None and PUSH_FUNCTION_MODE.usable is not None


_SDP_SETTINGS = {
    "_get_flash_sdp_enabled": "_set_sdp_use_flash",
    "_get_math_sdp_enabled": "_set_sdp_use_math",
    "_get_mem_efficient_sdp_enabled": "_set_sdp_use_mem_efficient",
    "_get_cudnn_sdp_enabled": "_set_sdp_use_cudnn",
    "_get_overrideable_sdp_enabled": "_set_sdp_use_overrideable",
    "_get_sdp_priority_order": "_set_sdp_priority_order",
}


def sdp_settings() -> dict[Callable[[], Any], Callable[[Any], Any]]:
    """Return what reads and what sets each setting of torch.nn.attention.sdpa_kernel that this torch has."""
    pairs = [(resolve(f"torch._C.{getter}"), resolve(f"torch._C.{setter}")) for getter, setter in _SDP_SETTINGS.items()]
    return {getter: setter for getter, setter in pairs if getter is not None and setter is not None}


def switches_torch_function(function: Any, args: Any) -> bool:
    """Return whether a call enters or leaves a context in which torch functions look for no overrides."""
    owner = getattr(function, "__self__", None)
    if owner is None:  # of the class
        owner = next(iter(args), None)
    return type(owner).__name__.startswith("DisableTorchFunction") and function.__name__ in ("__enter__", "__exit__")


def cudnn_setting(function: Any, args: Sequence[Any]) -> tuple[Callable[[], Any], Callable[[Any], Any]] | None:
    """Return what reads and what sets the setting of cuDNN that a function of torch's sets; None for any other function."""
    name = getattr(function, "__name__", "")
    if name == "_set_fp32_precision_setter" and args[:1] == ["cuda"]:
        getter = resolve("torch._C._get_fp32_precision_getter")
        return None if getter is None else (partial(getter, *args[:2]), partial(function, *args[:2]))
    getter = resolve(f"torch._C.{name.replace('_set_', '_get_', 1)}") if name.startswith("_set_cudnn_") else None
    return None if getter is None else (getter, function)

"""Tensors and storages: who refers to memory, what aliases what, which classes operators have."""

from __future__ import annotations

from typing import Any

import torch

from dovetail.torch_internals.internal import Internal, resolve
from dovetail.torch_internals.modes import no_torch_function


def _counts_references(count: Any) -> bool:
    storage = torch.UntypedStorage(64)
    alone = count(storage._cdata)
    view = torch.empty(0).set_(storage, 0, (4,), (1,))
    return count(storage._cdata) == alone + 1 and view.numel() == 4


def _tells_storage(has: Any) -> bool:
    seen: list[bool] = []
    torch.func.vmap(lambda x: (seen.append(has(x)), x)[1])(torch.ones(2, 1))
    return seen == [False] and has(torch.ones(2)) is True


STORAGE_USE_COUNT = Internal(
    "torch._C._storage_Use_Count",
    purpose="know when a large result has no references left, so that its memory is used again",
    fallback="each large result gets fresh memory",
    probe=_counts_references,
)
HAS_STORAGE = Internal(
    "torch._C._has_storage",
    purpose="notice gradients that a transform has batched, which no compiled backward takes",
    fallback="such a gradient raises in the executor",
    probe=_tells_storage,
)
OP_OVERLOAD = Internal(
    "torch._ops.OpOverload",
    purpose="recognize torch.ops.<namespace>.<name>.<overload>",
    fallback="the class of torch.ops.aten.add.Tensor is used",
    probe=lambda kind: isinstance(torch.ops.aten.add.Tensor, kind),
)
OP_OVERLOAD_PACKET = Internal(
    "torch._ops.OpOverloadPacket",
    purpose="recognize torch.ops.<namespace>.<name>",
    fallback="the class of torch.ops.aten.add is used",
    probe=lambda kind: isinstance(torch.ops.aten.add, kind),
)
HIGHER_ORDER_OPERATOR = Internal(
    "torch._ops.HigherOrderOperator",
    purpose="recognize higher-order operators in graphs of Dynamo",
    fallback="graphs with higher-order operators are run by PyTorch",
    probe=lambda kind: isinstance(kind, type),
)
NN_PAD = Internal(
    "torch._C._nn.pad",
    purpose="recognize torch.nn.functional.pad in graphs of Dynamo",
    fallback="such a call is an operation without a decomposition",
)
CORRECT_ALIASING = Internal(
    "torch.utils._python_dispatch.return_and_correct_aliasing",
    purpose="recognize how a tensor subclass returns the argument that an operation writes",
    fallback="a tensor subclass that calls it under another name is refused",
)
NO_DISPATCH = Internal(
    "torch.utils._mode_utils.no_dispatch",
    purpose="change the shape of a tensor without memory in place",
    fallback="operations of tensor subclasses that change shapes in place are refused",
    probe=lambda disable: hasattr(disable(), "__enter__"),
)
JAGGED_KEYS = Internal(
    "torch._C.DispatchKeySet",
    purpose="let tensors without memory be decomposed and differentiated as nested tensors",
    fallback="nested tensors are refused",
    probe=lambda keys: keys(torch._C.DispatchKey.NestedTensor).has(torch._C.DispatchKey.NestedTensor),
)
DTENSORS = "torch.distributed.tensor._api"  # the module that implements DTensors, once they are used
ONE_RANK = Internal(
    f"{DTENSORS}.redistribute_local_tensor",
    purpose="trace DTensors on a mesh of one rank",
    fallback="they are refused, as those of several ranks are",
    costly=True,
)
NESTED_TENSORS = "torch.nested._internal.nested_tensor"  # the module of the class NestedTensor, once nested tensors are used
TENSOR_BASE: type = torch.Tensor.__base__
OpOverload: type = OP_OVERLOAD.value or type(torch.ops.aten.add.Tensor)
OpOverloadPacket: type = OP_OVERLOAD_PACKET.value or type(torch.ops.aten.add)


class _NoOperator:
    """Stands for HigherOrderOperator where this torch lacks it; it has no instances."""


HigherOrderOperator: type = HIGHER_ORDER_OPERATOR.value or _NoOperator
# where torch keeps functions of C, beside its public modules
C_MODULE = "torch._C"
C_NN = "torch._C._nn"
IS_ZEROTENSOR = "torch._is_zerotensor"
_is_zero = resolve(IS_ZEROTENSOR)
NESTED_FROM_MASK = "torch._nested_tensor_from_mask_left_aligned"
C_NAMESPACES = ("torch._VF", C_NN, *(f"torch._C._{name}" for name in ("linalg", "fft", "special", "nested", "VariableFunctions")))
FUNCTORCH_MODULE = "torch._C._functorch"


def is_c_class(cls: type) -> bool:
    """Return whether a class is C code of torch's; pybind11 makes some that say they are of a public module."""
    return cls.__module__ == C_MODULE or (type(cls).__name__ == "pybind11_type" and cls.__module__.partition(".")[0] == "torch")


def counts_storage_uses() -> bool:
    """Return whether `storage_use_count` can be relied on."""
    return STORAGE_USE_COUNT.problem is None


def storage_use_count(storage: torch.UntypedStorage) -> int:
    """Return how many tensors and other objects of C++ refer to a storage; `counts_storage_uses` says whether it can."""
    return STORAGE_USE_COUNT.value(storage._cdata)


def _assumed(x: torch.Tensor) -> bool:
    return True


# Return whether a tensor has memory of its own, as those in a transform of torch.func have not.
has_storage = HAS_STORAGE.value or _assumed


def make_wrapper(cls: type, *args: Any, **kwargs: Any) -> torch.Tensor:
    """Return a tensor of a subclass without memory of its own, as `torch.Tensor._make_wrapper_subclass` creates it."""
    with no_torch_function():
        return TENSOR_BASE._make_wrapper_subclass(cls, *args, **kwargs)


def make_jagged(kind: type, like: Any, size: Any, strides: Any) -> torch.Tensor:
    """Return a tensor that C++ decomposes and differentiates as nested tensors: `__torch_dispatch__` returns its sizes."""
    if JAGGED_KEYS.problem is not None:
        raise NotImplementedError(JAGGED_KEYS.problem)
    keys = JAGGED_KEYS.value(torch._C.DispatchKey.NestedTensor).add(torch._C.DispatchKey.AutogradNestedTensor)
    options = (like.dtype, torch.jagged, like.device, False, False, "sizes", False, True, keys)
    return make_wrapper(kind, size, strides, 0, torch.contiguous_format, *options, storage_size=0)


def change_shape(func: Any, wrapper: torch.Tensor, *args: Any, **kwargs: Any) -> None:
    """Run an operation that changes the shape of a tensor without memory in place, as `squeeze_`, past its `__torch_dispatch__`."""
    if NO_DISPATCH.problem is not None:
        raise NotImplementedError(NO_DISPATCH.problem)
    with NO_DISPATCH.value(), no_torch_function(), torch.no_grad():
        func(wrapper, *args, **kwargs)


def is_zero_tensor(x: torch.Tensor) -> bool:
    """Return whether a tensor is zeros that take no memory, as autograd makes them."""
    return _is_zero is not None and _is_zero(x)


def storage_key(x: torch.Tensor) -> int:
    """Return what is equal for two tensors exactly when they share a storage; real and fake tensors have one."""
    storage = x.untyped_storage()
    return getattr(storage, "_cdata", None) or id(storage)

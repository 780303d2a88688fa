"""Torch operations for calls of ATen's operators; graphs of torch.export and AOTAutograd consist of calls of their overloads.

A call that no torch operation fits stays as it is, and becomes an opaque line.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch

from dovetail.langs.torch import TABLE, TorchSymbol
from dovetail.torch_internals import C_NN, OpOverload, OpOverloadPacket, resolve
from dovetail.trace import TensorProxy

_IGNORED = {"pin_memory": (False, None), "layout": (torch.strided, None), "memory_format": (None,), "implicit": (False,), "device": (None,)}
_PREFIXES = {"special_": torch.special, "linalg_": torch.linalg, "fft_": torch.fft}


def torch_call(op: OpOverload, otherwise: Callable | None = None) -> Callable:
    """Return a function of the arguments of `op` that calls a torch operation where one fits, else `otherwise`, which is `op` by default."""
    call = _call(op, op if otherwise is None else otherwise)
    container = _container(op)
    return call if container is None else lambda *args, **kwargs: container(call(*args, **kwargs))


def _container(op: OpOverload) -> type | None:
    """Return the type of several results of `op`, where operations of torch have another one: torch.return_types.sort, or a tuple of parts."""
    results = op._schema.returns
    return tuple if len(results) > 1 else list if results and str(results[0].type) == "List[Tensor]" else None


def _call(op: OpOverload, otherwise: Callable) -> Callable:
    if (row := ROWS.get(op.name().removesuffix(".default"))) is not None:
        return row
    symbol = _operation(op)
    if symbol is None:
        return otherwise
    signature = inspect.signature(symbol.meta).parameters
    if any([p.kind is p.VAR_POSITIONAL for p in signature.values()]):  # ATen has a list there
        return otherwise
    names, parameters = [a.name for a in op._schema.arguments if not a.kwarg_only], list(signature)
    required = {p.name for p in signature.values() if p.default is p.empty}

    def call(*args: Any, **kwargs: Any) -> Any:
        kwargs = {k: v for k, v in kwargs.items() if v not in _IGNORED.get(k, ())}
        fits = names[1 : len(args)] == parameters[1 : len(args)] and required <= {*parameters[: len(args)], *kwargs} <= set(parameters)
        return symbol(*args, **kwargs) if fits else otherwise(*args, **kwargs)

    return call


def overload_of(packet: OpOverloadPacket, args: tuple, kwargs: dict[str, Any]) -> OpOverload | None:
    """Return the first overload of an operator of ATen that takes tensors and these arguments; None where there is none."""
    if not packet._qualified_op_name.startswith("aten::"):
        return None
    overloads = [getattr(packet, name) for name in packet.overloads()]
    return next((op for op in overloads if _takes(op._schema.arguments, args, kwargs)), None)


def _takes(parameters: Sequence[Any], args: tuple, kwargs: dict[str, Any]) -> bool:
    types = {a.name: str(a.type) for a in parameters}
    positional = [a.name for a in parameters if not a.kwarg_only]
    passed = dict(zip(positional, args, strict=False)) | kwargs
    if len(passed) < len(args) + len(kwargs) or not kwargs.keys() <= types.keys() or not any(["Tensor" in kind for kind in types.values()]):
        return False
    return all([_fits(passed[a.name], types[a.name]) if a.name in passed else a.has_default_value() for a in parameters])


def _fits(value: Any, kind: str) -> bool:
    """Return whether `value` is of a type of a schema, such as "Optional[List[int]]", as far as overloads differ in it."""
    if kind.startswith("Optional["):
        kind = kind.removeprefix("Optional[")[:-1]
        if value is None:
            return True
    if isinstance(value, (TensorProxy, torch.Tensor)):
        return kind == "Tensor"
    if isinstance(value, (list, tuple)):
        return kind.startswith("List[")
    return value is not None and kind != "Tensor" and "Tensor]" not in kind and (kind != "str") == (type(value) is not str)


@functools.cache
def _operation(op: OpOverload) -> TorchSymbol | None:
    """Return the torch operation that bears the name of an overload."""
    space, _, name = op._schema.name.partition("::")
    if space != "aten" or op._overloadname.endswith("out"):
        return None
    places = [(torch, name), (torch.Tensor, name), (resolve(C_NN), name), (torch.nn.functional, name)]
    places += [(module, name.removeprefix(prefix)) for prefix, module in _PREFIXES.items() if name.startswith(prefix)]
    for place, word in places:
        function = getattr(place, word, None)
        if function is not None and isinstance(symbol := TABLE.get(function), TorchSymbol):
            return symbol
    return None


def _slice(x: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Any:
    return x[(slice(None),) * (dim % x.dim()) + (slice(start, end, step),)]


def _index(x: Any, indices: list) -> Any:
    return x[tuple([slice(None) if i is None else i for i in indices])]


def _to_copy(x: Any, *, dtype: Any = None, device: Any = None, memory_format: Any = None, **_: Any) -> Any:
    return x.to(device=device, dtype=dtype or x.dtype, copy=True, memory_format=memory_format or torch.preserve_format)


def _softmax(function: Callable) -> Callable:
    return lambda x, dim, half_to_float: function(x, dim, dtype=torch.float32 if half_to_float else None)


def _plain(function: Callable) -> Callable:
    """Return `function` without the keyword arguments that change nothing."""
    return lambda *args, **kwargs: function(*args, **{k: v for k, v in kwargs.items() if v not in _IGNORED.get(k, ())})


def _convolution(
    x: Any, weight: Any, bias: Any, stride: list, padding: list, dilation: list, transposed: bool, output_padding: list, groups: int
) -> Any:
    name = f"conv{'_transpose' * transposed}{x.dim() - 2}d"
    more = (output_padding, groups, dilation) if transposed else (dilation, groups)
    return getattr(torch.nn.functional, name)(x, weight, bias, stride, padding, *more)


def _layer_norm(input: Any, normalized_shape: list, weight: Any, bias: Any, eps: float) -> tuple:
    dims = tuple(range(input.dim() - len(normalized_shape), input.dim()))
    wide = input.float() if input.dtype in (torch.float16, torch.bfloat16) else input
    var, mean = torch.var_mean(wide, dims, correction=0, keepdim=True)
    return torch.nn.functional.layer_norm(input, tuple(normalized_shape), weight, bias, eps), mean, torch.rsqrt(var + eps)


def _embedding(weight: Any, index: Any, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False) -> Any:
    padding = padding_idx if padding_idx >= 0 else None
    return torch.nn.functional.embedding(index, weight, padding, None, 2.0, scale_grad_by_freq, sparse)


ROWS: dict[str, Callable] = {  # overload -> its torch operation, where names or signatures differ
    "aten::view": lambda x, size: x.view(size),
    "aten::_unsafe_view": lambda x, size: x.reshape(size),
    "aten::reshape": lambda x, shape: x.reshape(shape),
    "aten::expand": lambda x, size, *, implicit=False: x.expand(size),
    "aten::permute": lambda x, dims: x.permute(dims),
    "aten::repeat": lambda x, repeats: x.repeat(repeats),
    "aten::split.Tensor": lambda x, size, dim=0: x.split(size, dim),
    "aten::split_with_sizes": lambda x, sizes, dim=0: x.split(sizes, dim),
    "aten::alias": lambda x: x.expand(x.shape),
    "aten::lift_fresh": lambda x: x,
    "aten::lift_fresh_copy": lambda x: x.clone(),
    **dict.fromkeys(("aten::arange", "aten::arange.start", "aten::arange.start_step"), _plain(torch.arange)),
    "aten::where.self": lambda condition, a, b: torch.where(condition, a, b),
    "aten::convolution": _convolution,
    "aten::slice.Tensor": _slice,
    "aten::index.Tensor": _index,
    "aten::_to_copy": _to_copy,
    "aten::copy_": lambda x, source, non_blocking=False: x.copy_(source),
    "aten::copy": lambda x, source, non_blocking=False: source.expand(x.shape).to(x.dtype, copy=True),
    "aten::_softmax": _softmax(torch.softmax),
    "aten::_log_softmax": _softmax(torch.log_softmax),
    "aten::native_layer_norm": _layer_norm,
    "aten::embedding": _embedding,
    "prims::convert_element_type": lambda x, dtype: x.to(dtype, copy=True),
}

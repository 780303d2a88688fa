"""Copies, conversions of dtype and device, and writes into a tensor."""

from __future__ import annotations

from typing import Any

import torch

from dovetail import dtypes, prims
from dovetail.dtypes import DType
from dovetail.errors import Unsupported, require
from dovetail.langs import core
from dovetail.langs.core.indexing import fitting
from dovetail.langs.torch.binding.bridge import TO_TORCH, device_of, dtype_of
from dovetail.langs.torch.binding.opaque import opaque
from dovetail.langs.torch.binding.out_arguments import require_castable
from dovetail.langs.torch.binding.overlap import check_overlap
from dovetail.langs.torch.binding.symbol import LANGUAGE, Number, Tensor, torchquery, torchsymbol
from dovetail.langs.torch.indexing import as_number
from dovetail.prims import TensorSpec, recorder
from dovetail.prims.spec import channels_last_order, dense, fills_channels_last, is_channels_last, laid_out
from dovetail.trace import TensorProxy, value_of

_CHANNELS_LAST = {torch.channels_last: 4, torch.channels_last_3d: 5}


def formatted(spec: TensorSpec, memory_format: Any) -> TensorSpec:
    """Return a dense spec of the same shape in `memory_format`; None and preserve_format keep the order of the dimensions in memory."""
    if memory_format in (None, torch.preserve_format):
        return dense(spec, alike=False)
    if memory_format is torch.contiguous_format:
        return spec.fresh()
    rank = _CHANNELS_LAST.get(memory_format)
    require(rank is not None, "expected a torch.memory_format, got {!r}", memory_format, error=TypeError)
    require(len(spec.shape) == rank, "required rank {} tensor to use {} format, got {}", rank, memory_format, spec)
    return laid_out(spec.fresh(), channels_last_order(rank))


def in_format(x: Tensor, memory_format: Any) -> Tensor:
    """Return x with the strides of `memory_format`; x itself where it has them."""
    if memory_format in (None, torch.preserve_format):
        return x
    return core.in_layout(x, formatted(x.spec, memory_format))


@torchsymbol("torch.clone", methods=("clone",))
def clone(input: Tensor, *, memory_format: Any = torch.preserve_format):
    """A copy in new storage."""
    return core.copied(input, formatted(input.spec, memory_format))


@torchsymbol(methods=("contiguous",))
def contiguous(self: Tensor, *, memory_format: Any = torch.contiguous_format):
    """A copy in `memory_format`; the tensor itself where it has that format."""
    lies_so = memory_format is not torch.preserve_format or self.spec.strides is None
    require(lies_so, "preserve memory format is unsupported by the contiguous operator")
    lies_last = fills_channels_last(self.spec) and memory_format in _CHANNELS_LAST
    return self if lies_last and _CHANNELS_LAST[memory_format] == self.spec.rank else in_format(self, memory_format)


@torchsymbol("torch.detach", methods=("detach",), in_place=False)
def detach(input: Tensor):
    """A view that no gradient flows through."""
    return prims.detach(input)


LANGUAGE.properties["data"] = detach


@torchquery(methods=("requires_grad_",))
def requires_grad_(self: Tensor, requires_grad: bool = True) -> Any:
    """Return the tensor itself where the flag does not change."""
    if requires_grad == self.spec.requires_grad:
        return self
    if self.spec.dtype.inexact:
        raise Unsupported("requires_grad_() inside a traced function is not traced; set it on the arguments outside, or use detach() here")
    require(False, "only Tensors of floating point dtype can require gradients, got {}", self.spec)


# Conversions.


def converted(x: Tensor, dtype: DType | None, device: Any, copy: bool, memory_format: Any) -> Tensor:
    """Convert the dtype, the device or both; return x itself where nothing changes and `copy` is False."""
    spec = x.spec
    dtype, device = dtype or spec.dtype, device or spec.device
    moved = x if spec.device is device else prims.device_put(x, device=device)
    result = core.convert(moved, dtype)
    if result is not x:
        return result if memory_format in (None, torch.preserve_format) else in_format(result, memory_format)
    own = next((f for f, rank in _CHANNELS_LAST.items() if is_channels_last(spec) and rank == spec.rank), torch.contiguous_format)
    if not copy and memory_format in (None, torch.preserve_format, own):  # `to` treats any tensor that is not channels last as contiguous
        return x
    return core.copied(x, formatted(spec, memory_format))


def _to_arguments(self: Tensor, *args: Any, other: Any = None, **kwargs: Any) -> tuple[tuple, dict]:
    """Return the arguments of `to` as written, with `other` first, so that the call also runs on real tensors."""
    args = (other, *args) if other is not None else args
    return (self, *args), {k: v for k, v in kwargs.items() if v is not None and v is not False}


@torchsymbol(methods=("to",), bind=_to_arguments)
def to(self: Tensor, *args: Any, **kwargs: Any):
    """The tensor in another dtype or on another device: to(dtype), to(device), to(device, dtype) or to(other)."""
    args = (None, None, *args) if args and isinstance(args[0], bool) else args
    first = args[0] if args else None
    overload = _to_other if isinstance(first, TensorProxy) else _to_dtype if isinstance(first, (torch.dtype, type)) else _to_device
    try:
        dtype, device, non_blocking, copy, memory_format = overload(*args, **kwargs)
        is_valid = isinstance(non_blocking, bool) and isinstance(copy, bool)
    except TypeError:
        is_valid = False
    require(is_valid, "to() received an invalid combination of arguments: {} {}", args, sorted(kwargs), error=TypeError)
    return converted(self, _dtype(dtype), _device(device), copy, memory_format)


def _to_dtype(dtype: Any, non_blocking: Any = False, copy: Any = False, *, memory_format: Any = None) -> tuple:
    return dtype, None, non_blocking, copy, memory_format


def _to_device(device: Any = None, dtype: Any = None, non_blocking: Any = False, copy: Any = False, *, memory_format: Any = None) -> tuple:
    return dtype, device, non_blocking, copy, memory_format


def _to_other(other: TensorProxy, non_blocking: Any = False, copy: Any = False, *, memory_format: Any = None) -> tuple:
    return other.spec.dtype, other.spec.device, non_blocking, copy, memory_format


def _dtype(dtype: Any) -> DType | None:
    return dtype if dtype is None or isinstance(dtype, DType) else dtype_of(dtype)


def _device(device: Any) -> Any:
    is_resolved = device is None or not isinstance(device, (torch.device, str, int))
    return device if is_resolved else device_of(device)


@torchsymbol(methods=("type_as",))
def type_as(self: Tensor, other: Tensor):
    """The tensor in the dtype and on the device of `other`."""
    return converted(self, other.spec.dtype, other.spec.device, False, None)


_LEGACY = {
    f"torch.{name}": dtype
    for name, dtype in {
        **{"FloatTensor": dtypes.float32, "DoubleTensor": dtypes.float64, "HalfTensor": dtypes.float16, "BFloat16Tensor": dtypes.bfloat16},
        **{"LongTensor": dtypes.int64, "IntTensor": dtypes.int32, "ShortTensor": dtypes.int16, "CharTensor": dtypes.int8},
        **{"ByteTensor": dtypes.uint8, "BoolTensor": dtypes.bool_, "ComplexFloatTensor": dtypes.complex64, "ComplexDoubleTensor": dtypes.complex128},
    }.items()
}
_LEGACY_NAMES = {dtype: name.removeprefix("torch.") for name, dtype in _LEGACY.items()}


@torchsymbol(methods=("type",))
def type_to(self: Tensor, dtype: Any, non_blocking: bool = False):
    """The tensor in another dtype, which may be named like "torch.FloatTensor"."""
    name = dtype if isinstance(dtype, str) else getattr(dtype, "__module__", "") + "." + getattr(dtype, "__name__", "")
    cuda = name.startswith("torch.cuda.")
    legacy = _LEGACY.get(name.replace("torch.cuda.", "torch."))
    if legacy is not None:
        return converted(self, legacy, device_of("cuda" if cuda else "cpu"), False, None)
    require(not isinstance(dtype, (str, type)), "invalid type: {!r}", dtype, error=ValueError)
    return converted(self, dtype_of(dtype), None, False, None)


@torchquery(methods=("type",))
def type_(self: Tensor, dtype: Any = None, non_blocking: bool = False) -> Any:
    """Return the name of the tensor's old type, or the tensor in another dtype."""
    if dtype is not None:
        return type_to(self, dtype)
    plain = str(TO_TORCH[self.spec.dtype]).removeprefix("torch.").capitalize().replace("Uint", "UInt")
    name = _LEGACY_NAMES.get(self.spec.dtype) or f"{plain}Tensor"
    return f"torch.{name}" if self.spec.device.type == "cpu" else f"torch.{self.spec.device.type}.{name}"


def _method(name: str, dtype: DType) -> None:
    """Register a conversion method such as x.float()."""

    def meta(self: Tensor, *, memory_format: Any = torch.preserve_format):
        return converted(self, dtype, None, False, memory_format)

    meta.__name__, meta.__doc__ = name, f"The tensor as {dtype.name.rstrip('_')}; itself where it has that dtype."
    torchsymbol(methods=(name,))(meta)


for _name, _target in {
    **{"float": dtypes.float32, "double": dtypes.float64, "half": dtypes.float16, "bfloat16": dtypes.bfloat16},
    **{"long": dtypes.int64, "int": dtypes.int32, "short": dtypes.int16, "char": dtypes.int8, "byte": dtypes.uint8, "bool": dtypes.bool_},
    **{"cfloat": dtypes.complex64, "cdouble": dtypes.complex128},
}.items():
    _method(_name, _target)


@torchsymbol(methods=("cpu",))
def cpu(self: Tensor, *, memory_format: Any = torch.preserve_format):
    """The tensor in the memory of the host; itself where it is there."""
    return converted(self, None, device_of("cpu"), False, memory_format)


@torchsymbol(methods=("cuda",))
def cuda(self: Tensor, device: Any = None, non_blocking: bool = False, *, memory_format: Any = torch.preserve_format):
    """The tensor on a CUDA device, the current one by default; itself where it is there."""
    device = device_of("cuda" if device is None else torch.device("cuda", device) if isinstance(device, int) else device)
    require(device.type == "cuda", "Invalid device, must be cuda device, got {}", device)
    return converted(self, None, device, False, memory_format)


@torchsymbol(methods=("item",))
def item(self: Tensor):
    """The one element as a Python number."""
    require(self.spec.numel == 1, "a Tensor with {} elements cannot be converted to Scalar", self.spec.numel)
    return prims.item(self) if (value := value_of(self)) is None else value.item()


# Writes.


@torchsymbol(methods=("copy_",))
def copy_(self: Tensor, other: Tensor | Number, non_blocking: bool = False):
    """Write `other`, broadcast and converted, into the tensor."""
    spec = self.spec
    check_overlap("copy", self, (other,))
    if not isinstance(other, TensorProxy):
        other = prims.full(shape=(), value=as_number(other, spec.dtype), dtype=spec.dtype, device=spec.device)
    if other.spec.device is not spec.device:
        other = prims.device_put(other, device=spec.device)
    fits = len(other.spec.shape) <= len(spec.shape)
    message = "output with shape {} doesn't match the broadcast shape of {}; copy_ does not make the tensor larger"
    require(fits, message, list(spec.shape), list(other.spec.shape))
    prims.copy_(self, fitting(core.convert(other, spec.dtype), spec.shape))
    return self


@torchsymbol("torch.fill", in_place=False)
def fill(input: Tensor, value: Number | Tensor):
    """A tensor like the input, full of `value`; where the input requires a gradient, so does the result, and that gradient is 0."""
    return fill_(clone(input), value) if input.spec.requires_grad else filled(input, value)


@torchsymbol("torch.fill_", methods=("fill_",))
def fill_(input: Tensor, value: Number | Tensor):
    """Write `value`, a number or a tensor of no dimensions, everywhere."""
    target = input if isinstance(value, TensorProxy) else _unrepeated(input)
    prims.copy_(target, filled(target, value))
    return input


def _unrepeated(x: Tensor) -> Tensor:
    """View one of the repetitions of an expanded tensor: writing a number to all of them writes the same to one place."""
    repeated = [n > 1 and step == 0 for n, step in zip(x.spec.shape, x.spec.steps, strict=True)]
    if True not in repeated:
        return x
    zeros, ones = (0,) * len(repeated), (1,) * len(repeated)
    return prims.strided_slice(x, starts=zeros, stops=tuple([1 if once else n for once, n in zip(repeated, x.spec.shape)]), steps=ones)


@torchsymbol(methods=("fill_diagonal_",))
def fill_diagonal_(self: Tensor, fill_value: Number | Tensor, wrap: bool = False):
    """Write `fill_value` where all indices are equal; with `wrap`, on down a matrix with more rows than columns, one row left out each time."""
    shape, rank = self.spec.shape, len(self.spec.shape)
    require(rank > 1, "dimensions must larger than 1")
    require(rank == 2 or all([n == shape[0] for n in shape]), "all dimensions of input must be of equal length")
    is_number = not isinstance(fill_value, TensorProxy) or not fill_value.spec.requires_grad
    require(is_number, "argument 'fill_value' must be Number, not Tensor", error=TypeError)
    if rank == 2 and wrap and shape[0] > shape[1] + 1:
        if self.spec.strides is not None:
            return opaque(torch.Tensor.fill_diagonal_, (self, fill_value, True), {})
        count = self.spec.numel
        fill_(prims.strided_slice(prims.reshape(self, shape=(count,)), starts=(0,), stops=(count,), steps=(shape[1] + 1,)), fill_value)
        return self
    diagonal = self
    for n in range(rank, 1, -1):
        diagonal = prims.diagonal(diagonal, offset=0, dim1=n - 2, dim2=n - 1)
    fill_(diagonal, fill_value)
    return self


def filled(x: Tensor, value: Any, layout: TensorSpec | None = None) -> Tensor:
    """Return a tensor of x's shape, dtype and device full of `value`, laid out like x or like `layout`."""
    spec = x.spec
    if isinstance(value, TensorProxy):
        require(not value.spec.shape, "fill_ only supports 0-dimension value tensor but got tensor with {} dimensions.", len(value.spec.shape))
        value = value if value.spec.device is spec.device else prims.device_put(value, device=spec.device)
        wide = core.expand(core.convert(value, spec.dtype), spec.shape)
        return core.copied(wide, layout or dense(spec))
    number = as_number(value, spec.dtype, spec.device)
    if isinstance(number, TensorProxy):
        return filled(x, number, layout)
    return core.in_layout(prims.full(shape=spec.shape, value=number, dtype=spec.dtype, device=spec.device), layout or dense(spec))


@torchsymbol("torch.zero_", methods=("zero_",))
def zero_(input: Tensor):
    """Write zeros everywhere."""
    target = _unrepeated(input)
    prims.copy_(target, prims.full(shape=target.spec.shape, value=as_number(0, input.spec.dtype), dtype=input.spec.dtype, device=input.spec.device))
    return input


def _write_out(out: Any, value: Tensor) -> None:
    """Write a result into the tensor passed as `out=`, of the same shape and a dtype it can be cast to."""
    trace = recorder.get()
    (out,), _ = trace.environment.lift(((out,), {}), trace)
    if out.spec.shape != value.spec.shape:
        if trace.environment.resize_out(out, value):
            return
        raise Unsupported(
            f"out= of shape {list(out.spec.shape)} is not supported for a result of shape {list(value.spec.shape)}, "
            "since traced tensors cannot be resized; pass one of that shape, or use the result"
        )
    require_castable(value, out)
    alike = out.spec.device is value.spec.device
    require(alike, "Expected out tensor to have device {}, but got {} instead", value.spec.device, out.spec.device)
    LANGUAGE["copy_"](out, value)


LANGUAGE["_write_out"] = _write_out

"""Tensor creation: from numbers, uninitialized, or like another tensor."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import torch

from dovetail import dtypes, prims
from dovetail.devices import Device
from dovetail.dtypes import DType
from dovetail.errors import Unsupported, require
from dovetail.langs import core
from dovetail.langs.torch.binding.bridge import TO_TORCH, device_of, dtype_of, torch_device
from dovetail.langs.torch.binding.opaque import opaque
from dovetail.langs.torch.binding.symbol import Number, Tensor, factory, needs_number, torchsymbol
from dovetail.langs.torch.binding.symint import size_of
from dovetail.langs.torch.indexing import as_number
from dovetail.langs.torch.memory import converted, formatted
from dovetail.prims import Tag, TensorSpec, recorder
from dovetail.prims.sizes import Real, Size, index_of, is_symbolic
from dovetail.prims.spec import prod
from dovetail.torch_internals import no_torch_function
from dovetail.trace import NumberProxy, TensorProxy, is_proxy, leaves, tree_map
from dovetail.trace.proxies import no_value


def plain(layout: Any = None, requires_grad: bool = False, pin_memory: bool = False) -> None:
    """Raise Unsupported unless a new tensor is strided, in pageable memory, and does not require a gradient."""
    if layout not in (None, torch.strided):
        raise Unsupported(f"a tensor of layout {layout} is not traced; create it outside the compiled function")
    if requires_grad:
        raise Unsupported("a tensor created while tracing cannot require a gradient; create it outside and pass it as an argument")
    if pin_memory:
        raise Unsupported("a tensor created while tracing cannot be in pinned memory; create it outside and pass it as an argument")


def sizes(shape: Sequence[Any]) -> tuple[int, ...]:
    """Return sizes passed as ints or as one sequence of ints."""
    shape = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    shape = tuple([index_of(n) for n in shape])
    for n in shape:
        require(n >= 0, "Trying to create tensor with negative dimension {}: {}", n, list(shape))
    return shape


def full_of(value: Any, shape: Sequence[Any], dtype: DType, device: Device) -> Tensor:
    """Return a row-major tensor full of a Python number, a number that the program computes, or a 0-d tensor."""
    shape = sizes(shape)
    require(not isinstance(value, str), "full(): argument 'fill_value' must be a number, not {!r}", value, error=TypeError)
    value = value if isinstance(value, TensorProxy) else as_number(value, dtype, device)
    if isinstance(value, TensorProxy):
        require(
            not value.spec.shape,
            "full(): argument 'fill_value' must be a number, not a tensor of {} dimensions",
            len(value.spec.shape),
            error=TypeError,
        )
        return prims.clone(core.expand(core.convert(value, dtype), shape))
    return prims.full(shape=shape, value=value, dtype=dtype, device=device)


UNINITIALIZED = frozenset({Tag.UNINITIALIZED})


def _filled_with(number: int, *names: str) -> None:
    """Register torch.zeros, torch.ones or torch.empty, its method new_* and its *_like."""
    name = names[0]

    def make(size: Any, *, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False, memory_format=None):
        plain(layout, requires_grad, pin_memory)
        result = full_of(number, size, dtype_of(dtype), device_of(device))
        return core.in_layout(result, formatted(result.spec, memory_format))

    def like(input: Tensor, *, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False, memory_format=torch.preserve_format):
        plain(layout, requires_grad, pin_memory)
        return full_like_of(input, number, dtype, device, memory_format)

    def new(self: Tensor, size: Any, *, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False):
        plain(layout, requires_grad, pin_memory)
        return full_of(number, size, dtype_of(dtype, self.spec.dtype), self.spec.device if device is None else device_of(device))

    of = "whatever the memory held (here zeros)" if name == "empty" else name
    for meta, function_name, doc in ((make, name, f"A tensor of {of}."), (like, f"{name}_like", f"A tensor of {of} in the shape of the input.")):
        meta.__name__, meta.__doc__ = function_name, doc
    new.__name__, new.__doc__ = f"new_{name}", f"A tensor of {of}, of the dtype and on the device of this one."
    tags = UNINITIALIZED if name == "empty" else frozenset()
    factory(f"torch.{name}", variadic="size", in_place=False, tags=tags)(make)
    torchsymbol(f"torch.{name}_like", in_place=False, tags=tags)(like)
    torchsymbol(methods=(f"new_{name}",), variadic="size", tags=tags)(new)


def full_like_of(x: Tensor, value: Any, dtype: Any = None, device: Any = None, memory_format: Any = None) -> Tensor:
    """Return a tensor of x's shape full of `value`, laid out like x unless `memory_format` is set."""
    spec = TensorSpec(x.spec.shape, dtype_of(dtype, x.spec.dtype), x.spec.device if device is None else device_of(device), x.spec.strides)
    return _like(spec, value, formatted(x.spec, memory_format))


def _like(spec: TensorSpec, value: Any, layout: TensorSpec) -> Tensor:
    result = full_of(value, spec.shape, spec.dtype, spec.device)
    return core.in_layout(result, layout)


_filled_with(0, "zeros")
_filled_with(1, "ones")
_filled_with(0, "empty")


@factory("torch.full")
def full(size: Sequence[int], fill_value: Any, *, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False):
    """Return a tensor full of one number, in the number's dtype unless another is named."""
    plain(layout, requires_grad, pin_memory)
    if dtype is None and isinstance(fill_value, TensorProxy):
        own = fill_value.spec.dtype
    else:
        own = None if dtype is not None else core.number_dtype(fill_value)
    return full_of(fill_value, size, own or dtype_of(dtype), device_of(device))


@torchsymbol("torch.full_like")
def full_like(
    input: Tensor,
    fill_value: Any,
    *,
    dtype=None,
    layout=None,
    device=None,
    requires_grad=False,
    pin_memory=False,
    memory_format=torch.preserve_format,
):
    """A tensor of the input's shape full of one number."""
    plain(layout, requires_grad, pin_memory)
    return full_like_of(input, fill_value, dtype, device, memory_format)


@torchsymbol(methods=("new_full",))
def new_full(self: Tensor, size: Sequence[int], fill_value: Any, *, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False):
    """A tensor full of one number, of the dtype and on the device of this one."""
    plain(layout, requires_grad, pin_memory)
    return full_of(fill_value, size, dtype_of(dtype, self.spec.dtype), self.spec.device if device is None else device_of(device))


def strided(shape: Sequence[int], stride: Sequence[int], dtype: DType, device: Device) -> Tensor:
    """Return zeros with these strides, which leave no gaps."""
    shape, stride = sizes(shape), tuple(stride)
    message = "mismatch in length of strides and shape: {} and {}"
    require(len(shape) == len(stride), message, list(stride), list(shape))
    require(all([n >= 0 for n in stride]), "expected strides that are not negative, got sizes={} and strides={}", list(shape), list(stride))
    layout = TensorSpec(shape, dtype, device).view(shape, stride)
    if not layout.is_dense and 0 not in shape:
        raise Unsupported(
            f"empty_strided with gaps or overlaps, strides {list(stride)} of sizes {list(shape)}, is not traced; use expand or slices of torch.empty"
        )
    return core.in_layout(full_of(0, shape, dtype, device), layout)


@factory("torch.empty_strided", tags=UNINITIALIZED)
def empty_strided(size: Sequence[int], stride: Sequence[int], *, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False):
    """Return a tensor of whatever the memory held (here zeros), with these strides."""
    plain(layout, requires_grad, pin_memory)
    return strided(size, stride, dtype_of(dtype), device_of(device))


@torchsymbol(methods=("new_empty_strided",), tags=UNINITIALIZED)
def new_empty_strided(
    self: Tensor, size: Sequence[int], stride: Sequence[int], *, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False
):
    """`empty_strided` of the dtype and on the device of this one."""
    plain(layout, requires_grad, pin_memory)
    return strided(size, stride, dtype_of(dtype, self.spec.dtype), self.spec.device if device is None else device_of(device))


@factory("torch.empty_permuted", tags=UNINITIALIZED)
def empty_permuted(
    size: Sequence[int], physical_layout: Sequence[int], *, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False
):
    """Return a tensor of whatever the memory held (here zeros), whose dimensions lie in the order `physical_layout`, slowest first."""
    plain(layout, requires_grad, pin_memory)
    result = full_of(0, size, dtype_of(dtype), device_of(device))
    is_permutation = sorted(physical_layout) == list(range(len(result.spec.shape)))
    require(
        is_permutation,
        "Number of dimensions in size does not match the length of the physical_layout, or it is no permutation: {}",
        list(physical_layout),
    )
    plain_order = tuple(physical_layout) == tuple(range(len(physical_layout)))
    return result if plain_order else prims.stride_order(result, order=tuple(physical_layout))


# Sequences of numbers.


def _arange_arguments(*bounds: Any, start: Any = None, end: Any = None, step: Any = None, **kwargs: Any) -> tuple[tuple, dict]:
    if len(bounds) == 1 and end is not None:
        start, bounds = bounds[0], ()
    args = bounds or ((end,) if start is None and step is None else (0 if start is None else start, end))
    if step is not None:
        args = (0, *args, step) if len(args) == 1 else (*args, step)
    elif len(args) == 1 and start is not None:
        args = (start, *args)
    return args, {k: v for k, v in kwargs.items() if v is not None and v is not False}


@factory("torch.arange", bind=_arange_arguments)
def arange(*bounds: Any, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False):
    """start, start + step, ... before end; int64 when all three are ints, else the default float."""
    plain(layout, requires_grad, pin_memory)
    require(1 <= len(bounds) <= 3, "arange() takes an end, a start and an end, or these and a step, got {}", bounds, error=TypeError)
    start, end, step = (0, bounds[0], 1) if len(bounds) == 1 else (*bounds, 1)[:3]
    reals = tuple(map(recorder.get().environment.real_of, (start, end, step)))
    of_sizes = not {Size, Real}.isdisjoint(map(type, reals)) and not {float, Real}.isdisjoint(map(type, reals))
    if of_sizes and not any(map(is_proxy, reals)) and dtype_of(dtype).kind == "float":
        return _steps(start, step, reals, dtype_of(dtype), device_of(device))
    for x in (start, end, step):
        if isinstance(x, TensorProxy):
            needs_number(x)
        if is_proxy(x):
            raise no_value(x)
        require(not isinstance(x, complex), "value cannot be converted to type double without overflow, got {}", x)
    whole = all([isinstance(x, (int, Size)) for x in (start, end, step)])
    target = dtype_of(dtype, dtypes.int64) if whole else dtype_of(dtype)
    require(step != 0, "step must be nonzero")
    is_ordered = (start <= end) if step > 0 else (start >= end)
    require(is_ordered, "upper bound and lower bound inconsistent with step sign: {} to {} by {}", start, end, step)
    if whole or target is dtypes.int64:
        start, end, step = [x if type(x) is Size else int(x) for x in (start, end, step)]
        length = -((start - end) // step)
    else:
        length = math.ceil((float(end) - float(start)) / float(step))
    kind = int if target.kind == "int" else float
    start, step = [x if type(x) is Size else kind(x) for x in (start, step)]
    return prims.iota(length=length, start=start, step=step, dtype=target, device=device_of(device))


def _steps(start: Any, step: Any, reals: tuple, dtype: DType, device: Device) -> Tensor:
    """Return start, start + step, ... before the end; `reals` has all three as numbers that are computed of sizes."""
    first, end, by = reals
    require(by != 0, "step must be nonzero")
    length = recorder.get().environment.rounded(Real("ceil", (Real("truediv", (Real("sub", (end, first)), by)),)))
    require(length >= 0, "upper bound and lower bound inconsistent with step sign: {} to {} by {}", first, end, by)
    if not (is_proxy(start) or is_proxy(step)):
        return prims.iota(length=length, start=start, step=step, dtype=dtype, device=device)
    wide = dtypes.float64
    index = prims.iota(length=length, start=0.0, step=1.0, dtype=wide, device=device)
    start, step = [as_number(x, wide, device) for x in (start, step)]
    return core.convert(core.add(core.mul(index, step), start), dtype)


def ratio(a: Any, b: Any, dtype: DType, device: Device) -> Any:
    """Return a / b as a number, infinite where b is 0, or as a 0-d tensor where one of them is known when the program runs."""
    if Size in (type(a), type(b)):
        return core.div(full_of(a, (), dtype, device), b)
    return a / b if b else a * math.inf


def spaced(start: Any, end: Any, steps: int, dtype: DType, device: Device) -> Tensor:
    """`steps` numbers from start to end, computed from the nearer end, as in PyTorch; computed in float64 for integers."""
    require(steps >= 0, "number of steps must be non-negative")
    wide = dtype if dtype.inexact else dtypes.float64
    real = dtypes.real_of(wide)
    if steps == 1:
        return full_of(start, (1,), dtype, device)
    index = prims.iota(length=steps, start=0, step=1, dtype=dtypes.int64, device=device)
    back = core.sub(steps - 1, index)
    start, end = _scalar(start, wide, device), _scalar(end, wide, device)
    if isinstance(start, TensorProxy) or isinstance(end, TensorProxy):
        step = core.div(core.sub(end, start), max(steps - 1, 1))
    else:
        step = ratio(end - start, max(steps - 1, 1), wide, device)
    up = core.add(core.mul(core.convert(core.convert(index, real), wide), step), start)
    down = core.add(core.mul(core.convert(core.convert(back, real), wide), core.neg(step) if isinstance(step, TensorProxy) else -step), end)
    return core.convert(core.where(core.lt(index, steps // 2), up, down), dtype)


def _scalar(x: Any, dtype: DType, device: Device) -> Any:
    if type(x) is Size:
        return full_of(x, (), dtype, device)
    if isinstance(x, TensorProxy):
        require(not x.spec.shape, "linspace only supports 0-dimensional start and end tensors, but got {} dimension(s).", len(x.spec.shape))
        return core.convert(x, dtype)
    return core.fit(x, (), dtype)


def _end(x: Any, dtype: DType) -> Any:
    """Convert an end of a range to `dtype`, truncating it for integers; no gradient flows to it, as to all that a tensor is created from."""
    if isinstance(x, TensorProxy):
        require(not x.spec.shape, "the ends of a range are numbers or 0-dimensional tensors, got {}", x)
        x = prims.detach(x)
    if dtype.inexact:
        return x
    return core.convert(x, dtype) if isinstance(x, TensorProxy) else int(x)


def _spaced_dtype(dtype: Any, *ends: Any) -> DType:
    """Return `dtype`, or the default float dtype, complex where an end is."""
    complex_ = any([x.spec.dtype.kind == "complex" if isinstance(x, TensorProxy) else isinstance(x, complex) for x in ends])
    if dtype is None:
        return dtypes.COMPLEX_OF[core.default_float()] if complex_ else core.default_float()
    target = dtype_of(dtype)
    require(not complex_ or target.kind == "complex", "inferred dtype complex can't be safely cast to passed dtype {}", dtype)
    return target


@factory("torch.linspace")
def linspace(
    start: Number | Tensor, end: Number | Tensor, steps: int, *, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False
):
    """`steps` numbers at equal distances, from start to end."""
    plain(layout, requires_grad, pin_memory)
    dtype, device = _spaced_dtype(dtype, start, end), device_of(device)
    return spaced(_end(start, dtype), _end(end, dtype), steps, dtype, device)


@factory("torch.logspace")
def logspace(
    start: Number | Tensor,
    end: Number | Tensor,
    steps: int,
    base: float = 10.0,
    *,
    dtype=None,
    layout=None,
    device=None,
    requires_grad=False,
    pin_memory=False,
):
    """base to the powers of `steps` numbers at equal distances, from start to end."""
    plain(layout, requires_grad, pin_memory)
    dtype, device = _spaced_dtype(dtype, start, end), device_of(device)
    wide = dtype if dtype.inexact and dtype.bytes >= 4 else dtypes.float64
    power = spaced(_end(start, dtype), _end(end, dtype), steps, wide, device)
    if base == 10.0 and power.spec.dtype.kind != "complex":
        return core.convert(core.pow(10.0, power), dtype)
    return core.convert(core.pow(as_number(base, wide), power), dtype)


@factory("torch.eye")
def eye(n: int, m: int | None = None, *, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False):
    """Ones on the diagonal of an n by m matrix, zeros elsewhere."""
    plain(layout, requires_grad, pin_memory)
    for side, word in ((n, "n"), (m, "m")):
        require(side is None or side >= 0, "{} must be greater or equal to 0, got {}", word, side)
    target, shape, device = dtype_of(dtype), (n, n if m is None else m), device_of(device)
    row, column = (prims.iota(length=k, start=0, step=1, dtype=dtypes.int64, device=device) for k in shape)
    on = prims.eq(prims.broadcast_in_dim(row, shape=shape, dims=(0,)), prims.broadcast_in_dim(column, shape=shape, dims=(1,)))
    return core.convert(on, target)


def _triangle(row: int, col: int, offset: int, dtype: Any, device: Any, make: Any) -> Tensor:
    require(row >= 0 and col >= 0, "row and col must be non-negative, got {} and {}", row, col)
    if is_symbolic((row, col, offset)):
        return opaque(make, (row, col, offset), {"dtype": torch.int64 if dtype is None else dtype, "device": torch_device(device_of(device))})
    trace = recorder.get()
    with no_torch_function():
        indices = make(row, col, offset, dtype=torch.int64 if dtype is None else dtype)
    (constant,), _ = trace.environment.lift(((indices,), {}), trace)
    device = device_of(device)
    return prims.clone(constant) if constant.spec.device is device else prims.device_put(constant, device=device)


@factory("torch.tril_indices")
def tril_indices(row: int, col: int, offset: int = 0, *, dtype=None, layout=None, device=None, pin_memory=False):
    """Return the positions of the lower triangle of a matrix: a row of rows and a row of columns."""
    plain(layout, False, pin_memory)
    return _triangle(row, col, offset, dtype, device, torch.tril_indices)


@factory("torch.triu_indices")
def triu_indices(row: int, col: int, offset: int = 0, *, dtype=None, layout=None, device=None, pin_memory=False):
    """Return the positions of the upper triangle of a matrix: a row of rows and a row of columns."""
    plain(layout, False, pin_memory)
    return _triangle(row, col, offset, dtype, device, torch.triu_indices)


# Data.


def of_data(data: Any, dtype: Any, device: Any, like: TensorSpec | None = None) -> Tensor:
    """Return a new tensor of Python numbers, of the values of another tensor, or of NumPy's."""
    own = like.device if like is not None and device is None else None
    if isinstance(data, TensorProxy):
        target = dtype_of(dtype, like.dtype if like is not None else data.spec.dtype)
        place = own or (data.spec.device if device is None else device_of(device))
        return prims.detach(converted(data, target, place, True, torch.preserve_format))
    place = own or device_of(device)
    if isinstance(data, (NumberProxy, Size)):
        target = dtype_of(dtype, like.dtype if like is not None else core.number_dtype(data))
        return full_of(data, (), target, place)
    values = list(leaves(data))
    if any([type(x) is range for x in values]):
        return of_data(tree_map(lambda x: list(x) if type(x) is range else x, data), dtype, device, like)
    if any(is_proxy(x) or type(x) is Size for x in values):
        return _of_traced(data, values, dtype, place, like)
    if hasattr(data, "dtype") or any([hasattr(x, "dtype") for x in values]):
        return _of_numpy(data, dtype, place, like)
    target = dtype_of(dtype, like.dtype if like is not None else _data_dtype(values))
    return prims.tensor_from_sequence(values=_nested(data, target), dtype=target, device=place)


MOST_TRACED = 256  # values of a list with traced ones; each is a line


def _of_traced(data: Any, values: list[Any], dtype: Any, place: Device, like: TensorSpec | None) -> Tensor:
    """Return a tensor of nested lists with traced numbers, sizes and tensors of one element among their values."""
    single = all([prod(x.spec.shape) == 1 for x in values if isinstance(x, TensorProxy)])
    require(single, "only one element tensors can be converted to Python scalars; use torch.stack", error=ValueError)
    if len(values) > MOST_TRACED:
        raise Unsupported(f"torch.tensor of a list with traced values is traced up to {MOST_TRACED} values; use torch.stack on tensors")
    own = [x.spec.dtype if isinstance(x, TensorProxy) else core.number_dtype(x) for x in values]
    target = dtype_of(dtype, like.dtype if like is not None else functools.reduce(dtypes.wider, own))
    placed = [prims.detach(converted(x, target, place, False, None)) if isinstance(x, TensorProxy) else full_of(x, (), target, place) for x in values]
    row = prims.cat([prims.reshape(x, shape=(1,)) for x in placed], dim=0)
    return prims.reshape(row, shape=_shape_of(data))


def _shape_of(data: Any) -> tuple[int, ...]:
    """Return the sizes of nested lists.  Raises ValueError where they are ragged."""
    if not isinstance(data, (list, tuple, range)):
        return ()
    inner = [_shape_of(item) for item in data]
    require(all([shape == inner[0] for shape in inner]), "expected sequences of equal lengths, got {}", inner, error=ValueError)
    return (len(data), *(inner[0] if inner else ()))


def dtype_with_numpy(data: Any) -> torch.dtype | None:
    """Return the dtype of the tensor of nested numbers with numbers of NumPy's among them, which keep their own; None where there is none."""
    values = [size_of(x) for x in leaves(data)]
    if not any(map(is_numpy_number, values)):
        return None
    own = []
    for x in values:
        if is_numpy_number(x):
            with no_torch_function():
                own.append(torch.tensor(x).dtype)
        elif isinstance(x, (TensorProxy, NumberProxy, Size, bool, int, float, complex)):
            own.append(TO_TORCH[x.spec.dtype if isinstance(x, TensorProxy) else core.number_dtype(x)])
        else:
            return None  # creating the tensor raises
    return functools.reduce(torch.promote_types, own)


def is_numpy_number(x: Any) -> bool:
    """Return whether a value is a number of NumPy's, or an array without dimensions."""
    return type(x).__module__ == "numpy" and hasattr(x, "item") and getattr(x, "ndim", 1) == 0


def _of_numpy(data: Any, dtype: Any, place: Device, like: TensorSpec | None) -> Tensor:
    trace = recorder.get()
    with no_torch_function():
        tensor_value = torch.tensor(data, dtype=dtype)
    (constant,), _ = trace.environment.lift(((tensor_value,), {}), trace)
    return converted(constant, like.dtype if like is not None and dtype is None else None, place, True, None)


def _data_dtype(numbers: list[Any]) -> DType:
    candidates = [core.number_dtype(x) for x in numbers]
    if not candidates:
        return core.default_float()
    best = candidates[0]
    for candidate in candidates[1:]:
        best = dtypes.wider(best, candidate)
    return best


def _nested(data: Any, dtype: DType) -> Any:
    if isinstance(data, (tuple, list, range)):
        return tuple([_nested(x, dtype) for x in data])
    require(isinstance(data, (bool, int, float, complex)), "new(): invalid data type {!r}", type(data).__name__, error=TypeError)
    if dtype.kind == "bool":
        return bool(data)
    require(not isinstance(data, complex) or dtype.kind == "complex", "must be real number, not complex", error=TypeError)
    return float(data) if dtype.kind == "float" else as_number(data, dtype)  # beyond a floating dtype it is infinite


@factory("torch.tensor", in_place=False)
def tensor(data: Any, *, dtype=None, device=None, requires_grad=False, pin_memory=False):
    """Return a new tensor of these numbers."""
    plain(None, requires_grad, pin_memory)
    return of_data(data, dtype, device)


@torchsymbol(methods=("new_tensor",))
def new_tensor(self: Tensor, data: Any, *, dtype=None, device=None, requires_grad=False, layout=None, pin_memory=False):
    """A new tensor of these numbers, of the dtype and on the device of this one."""
    plain(layout, requires_grad, pin_memory)
    return of_data(data, dtype, device, self.spec)


@factory("torch.as_tensor", in_place=False)
def as_tensor(data: Any, *, dtype: Any = None, device: Any = None):
    """Return a tensor of these numbers; a tensor that already fits is returned as is."""
    if isinstance(data, TensorProxy):
        return converted(data, None if dtype is None else dtype_of(dtype), None if device is None else device_of(device), False, None)
    return of_data(data, dtype, device)


@factory("torch.scalar_tensor")
def scalar_tensor(s: Number, *, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False):
    """Return a number as a tensor of no dimensions, in the default float unless a dtype is named."""
    plain(layout, requires_grad, pin_memory)
    return full_of(s, (), dtype_of(dtype), device_of(device))

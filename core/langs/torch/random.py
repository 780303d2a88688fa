"""Random numbers.  With one seed they equal PyTorch's where PyTorch runs the operation; generator= is passed on to PyTorch's operation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from dovetail import dtypes, prims
from dovetail.devices import Device
from dovetail.dtypes import DType
from dovetail.errors import require, require_dtype
from dovetail.langs import core
from dovetail.langs.torch.binding.bridge import device_of, dtype_of, placed
from dovetail.langs.torch.binding.opaque import opaque
from dovetail.langs.torch.binding.overlap import check_overlap
from dovetail.langs.torch.binding.symbol import Number, Tensor, factory, needs_number, torchsymbol
from dovetail.langs.torch.creation import plain, sizes
from dovetail.langs.torch.memory import formatted
from dovetail.prims import TensorSpec
from dovetail.prims.creation import zeros_like
from dovetail.prims.sizes import index_of
from dovetail.trace import TensorProxy


def drawn(kind: str, shape: Sequence[int], dtype: DType, device: Device) -> Tensor:
    """Return uniform numbers in [0, 1) or normal ones; for complex dtypes as the parts, with a total variance of 1 for normal ones."""
    if dtype.kind == "complex":
        return _of_parts(kind, (*shape, 2), dtypes.real_of(dtype), device)
    if kind == "uniform":
        return prims.uniform(shape=tuple(shape), low=0.0, high=1.0, dtype=dtype, device=device)
    return prims.normal(shape=tuple(shape), mean=0.0, std=1.0, dtype=dtype, device=device)


def _of_parts(kind: str, shape: tuple[int, ...], dtype: DType, device: Device) -> Tensor:
    if kind == "uniform":
        return prims.view_as_complex(prims.uniform(shape=shape, low=0.0, high=1.0, dtype=dtype, device=device))
    return prims.view_as_complex(prims.normal(shape=shape, mean=0.0, std=1 / math.sqrt(2), dtype=dtype, device=device))


def _with_generator(fn: Callable, *args: Any, generator: Any, **kwargs: Any) -> Any:
    """Record torch's own `fn`, since only torch can use a generator."""
    return opaque(fn, args, {k: v for k, v in kwargs.items() if v is not None} | {"generator": generator})


def _numbers(name: str, kind: str) -> None:
    """Register torch.rand or torch.randn and its *_like."""

    def make(size: Any, *, generator=None, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False):
        plain(layout, requires_grad, pin_memory)
        shape, target, place = sizes(size), dtype_of(dtype), device_of(device)
        if generator is not None:
            return _with_generator(getattr(torch, name), shape, generator=generator, **placed(target, place))
        return drawn(kind, shape, target, place)

    def like(
        input: Tensor,
        *,
        generator=None,
        dtype=None,
        layout=None,
        device=None,
        requires_grad=False,
        pin_memory=False,
        memory_format=torch.preserve_format,
    ):
        plain(layout, requires_grad, pin_memory)
        spec = _like_spec(input, dtype, device)
        if generator is not None:
            return _with_generator(
                getattr(torch, f"{name}_like"), input, generator=generator, memory_format=memory_format, **placed(spec.dtype, spec.device)
            )
        return core.in_layout(drawn(kind, spec.shape, spec.dtype, spec.device), formatted(input.spec, memory_format))

    make.__name__, make.__doc__ = name, f"{kind.title()} random numbers."
    like.__name__, like.__doc__ = f"{name}_like", f"{kind.title()} random numbers in the shape of the input."
    factory(f"torch.{name}", variadic="size")(make)
    torchsymbol(f"torch.{name}_like")(like)


def _like_spec(x: Tensor, dtype: Any, device: Any) -> TensorSpec:
    return TensorSpec(x.spec.shape, dtype_of(dtype, x.spec.dtype), x.spec.device if device is None else device_of(device))


_numbers("rand", "uniform")
_numbers("randn", "normal")


# Integers.


def _bounds(args: tuple, kwargs: dict[str, Any], after: tuple[str, ...]) -> tuple:
    """Return the positional arguments `low, high, *after`, in which low may be omitted."""
    names = ("low", "high", *after)
    lacks_low = len(args) + len([k for k in kwargs if k in names]) < len(names)
    order = [k for k in names if k != "low" or "low" in kwargs or not lacks_low]
    rest = iter(args)
    return tuple([kwargs.pop(k) if k in kwargs else next(rest, None) for k in order])


def _drop_defaults(kwargs: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in kwargs.items() if v is not None and v is not False}


def _randint_arguments(*args: Any, **kwargs: Any) -> tuple[tuple, dict]:
    args = _bounds(args, kwargs, ("size",))
    return args, _drop_defaults(kwargs)


@factory("torch.randint", bind=_randint_arguments)
def randint(*bounds: Any, generator=None, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False):
    """Integers from low (0 when left out) to high - 1."""
    plain(layout, requires_grad, pin_memory)
    *ends, size = bounds
    low, high = _ends(*ends)
    shape, target, place = sizes(size), dtype_of(dtype, dtypes.int64), device_of(device)
    if generator is not None:
        return _with_generator(torch.randint, low, high, shape, generator=generator, **placed(target, place))
    return integers(shape, low, high, target, place)


def _ends(*ends: Any) -> tuple[int, int]:
    require(1 <= len(ends) <= 2, "randint(): expected high, or low and high, got {}", ends, error=TypeError)
    low, high = (0, *ends)[-2:]
    low, high = index_of(low), index_of(high)
    require(low < high, "random_ expects 'from' to be less than 'to', but got from={} >= to={}", low, high)
    return low, high


def integers(shape: tuple[int, ...], low: int, high: int, dtype: DType, device: Device) -> Tensor:
    """Draw integers from low to high - 1 in any dtype that is not complex, bool by conversion."""
    require_dtype(dtype.kind != "complex", "check_random_bounds handles only integral, floating-point and boolean types, got {}", dtype.short)
    if dtype is dtypes.bool_:
        require(low >= 0 and high <= 2, "from, or to - 1, is out of bounds for bool, which holds 0 and 1, got from={} and to={}", low, high)
        return core.convert(prims.randint(shape=shape, low=low, high=high, dtype=dtypes.uint8, device=device), dtype)
    return prims.randint(shape=shape, low=low, high=high, dtype=dtype, device=device)


def _randint_like_arguments(input: Any, *args: Any, **kwargs: Any) -> tuple[tuple, dict]:
    args = (input, *_bounds(args, kwargs, ()))
    return args, _drop_defaults(kwargs)


@torchsymbol("torch.randint_like", bind=_randint_like_arguments)
def randint_like(
    input: Tensor, *bounds: Any, dtype=None, layout=None, device=None, requires_grad=False, pin_memory=False, memory_format=None, generator=None
):
    """Integers from low (0 when left out) to high - 1, in the shape and dtype of the input."""
    plain(layout, requires_grad, pin_memory)
    low, high = _ends(*bounds)
    spec = _like_spec(input, dtype, device)
    if generator is not None:
        return _with_generator(
            torch.randint_like, input, low, high, generator=generator, memory_format=memory_format, **placed(spec.dtype, spec.device)
        )
    return core.in_layout(integers(spec.shape, low, high, spec.dtype, spec.device), formatted(input.spec, memory_format))


@factory("torch.randperm")
def randperm(n: int, *, generator=None, dtype=torch.int64, layout=None, device=None, requires_grad=False, pin_memory=False):
    """Return the integers from 0 to n - 1 in a random order."""
    plain(layout, requires_grad, pin_memory)
    require(n >= 0, "n must be non-negative, got {}", n)
    target, place = dtype_of(dtype), device_of(device)
    if generator is not None:
        return _with_generator(torch.randperm, n, generator=generator, **placed(target, place))
    return prims.randperm(length=n, dtype=target, device=place)


# Distributions.


def _normal_arguments(mean: Any, std: Any = 1.0, size: Any = None, **kwargs: Any) -> tuple[tuple, dict]:
    return (mean, std) if size is None else (mean, std, tuple(size)), _drop_defaults(kwargs)


@factory("torch.normal", bind=_normal_arguments, in_place=False)
def normal(
    mean: Number | Tensor,
    std: Number | Tensor,
    size: Sequence[int] | None = None,
    *,
    generator=None,
    dtype=None,
    layout=None,
    device=None,
    requires_grad=False,
    pin_memory=False,
):
    """Normal numbers with these means and standard deviations."""
    plain(layout, requires_grad, pin_memory)
    tensors = [x for x in (mean, std) if isinstance(x, TensorProxy)]
    if not tensors:
        require(size is not None, "normal(): expected a size where neither mean nor std is a tensor", error=TypeError)
        require(std >= 0, "normal expects std >= 0.0, but found std {}", std)
        target, place = dtype_of(dtype), device_of(device)
        if generator is not None:
            return _with_generator(torch.normal, mean, std, sizes(size), generator=generator, **placed(target, place))
        if target.kind == "complex":
            halves = {"mean": core.as_float(mean), "std": std / math.sqrt(2)}
            return prims.view_as_complex(prims.normal(shape=(*sizes(size), 2), **halves, dtype=dtypes.real_of(target), device=place))
        return prims.normal(shape=sizes(size), mean=core.as_float(mean), std=core.as_float(std), dtype=target, device=place)
    if generator is not None:
        return _with_generator(torch.normal, mean, std, generator=generator)
    require(isinstance(std, TensorProxy) or std >= 0, "normal expects std >= 0.0, but found std {}", std)
    shape = core.broadcast_shapes(*[x.spec.shape for x in tensors])
    base = drawn("normal", shape, tensors[0].spec.dtype, tensors[0].spec.device)
    return core.add(core.mul(base, std), mean)


@normal.vjp
def normal_vjp(g, out, *args, **_):
    return tuple([zeros_like(x) if isinstance(x, TensorProxy) and x.spec.dtype.inexact else None for x in args])  # as PyTorch has it


@torchsymbol("torch.bernoulli", methods=("bernoulli",), in_place=False)
def bernoulli(input: Tensor, p: Any = None, *, generator=None):
    """1 with the probability in the input, or with probability p, else 0."""
    if generator is not None:
        return _with_generator(torch.bernoulli, input, *(() if p is None else (p,)), generator=generator)
    if p is None:
        is_floating = input.spec.dtype.kind == "float"
        require_dtype(is_floating, "bernoulli is not implemented for {}: expected floating point probabilities", input.spec)
        return prims.bernoulli(input)
    return _chances(input, p)


def _chances(x: Tensor, p: Any) -> Tensor:
    spec = x.spec
    if isinstance(p, TensorProxy):
        return core.convert(prims.bernoulli(core.expand(p, spec.shape)), spec.dtype)
    require(0 <= p <= 1, "bernoulli_ expects p to be in [0, 1], but got p={}", p)
    chance = prims.full(shape=(), value=core.as_float(p), dtype=spec.dtype if spec.dtype.kind == "float" else dtypes.float32, device=spec.device)
    return core.convert(prims.bernoulli(chance, shape=spec.shape), spec.dtype)


@torchsymbol("torch.multinomial", methods=("multinomial",))
def multinomial(input: Tensor, num_samples: int, replacement: bool = False, *, generator=None):
    """Positions along the last dimension, drawn with chances in proportion to the weights in the input."""
    if generator is not None:
        return _with_generator(torch.multinomial, input, num_samples, replacement, generator=generator)
    require_dtype(input.spec.dtype.kind == "float", "multinomial only supports floating-point dtypes for input, got: {}", input.spec)
    return prims.multinomial(input, num_samples=num_samples, replacement=replacement)


# In-place random numbers.


def _write(x: Tensor, value: Tensor) -> Tensor:
    prims.copy_(x, core.convert(value, x.spec.dtype))
    return x


def _filled(x: Tensor, draw: Callable[[Tensor], Tensor]) -> Tensor:
    """Write what `draw` returns for x with its dimensions as they lie in memory: the order in which PyTorch draws numbers."""
    place = _in_memory_order(x, x.spec)
    _write(place, draw(place))
    return x


def _in_memory_order(x: Tensor, layout: TensorSpec) -> Tensor:
    """Return x, or the view of it with its dimensions in the order that those of `layout` have in memory."""
    return x if layout.strides is None else prims.transpose(x, order=layout.order)


def _place(name: str, x: Tensor) -> Tensor:
    """Return the view of x that floating numbers are drawn into: the parts of a complex tensor."""
    require_dtype(x.spec.dtype.inexact, '"{}" not implemented for {}: only floating dtypes are drawn', name, x.spec.dtype.short)
    return prims.view_as_real(x) if x.spec.dtype.kind == "complex" else x


@torchsymbol(methods=("uniform_",), bind=lambda self, *args, **kwargs: _ends_of("uniform_", self, args, kwargs, (0.0, 1.0), ("from", "to")))
def uniform_(self: Tensor, low: Number = 0.0, high: Number = 1.0, *, generator=None):
    """Write numbers uniformly distributed over [low, high)."""
    place = _place("uniform_", self)
    require(low <= high, "uniform_ expects to return a [from, to) range, but found from={} > to={}", low, high)
    if generator is not None:
        return opaque(torch.Tensor.uniform_, (self, low, high), {"generator": generator})
    low, high = core.as_float(low), core.as_float(high)
    _filled(place, lambda x: prims.uniform(shape=x.spec.shape, low=low, high=high, dtype=x.spec.dtype, device=x.spec.device))
    return self


def _ends_of(name: str, x: Any, args: tuple, kwargs: dict[str, Any], defaults: tuple, names: tuple[str, ...]) -> tuple[tuple, dict]:
    """Return by position the arguments whose names are Python keywords."""
    generator = kwargs.pop("generator", None)
    values = [args[i] if i < len(args) else kwargs.pop(n, default) for i, (n, default) in enumerate(zip(names, defaults, strict=True))]
    for tensor in [value for value in values if isinstance(value, TensorProxy)]:
        needs_number(tensor)
    require(len(args) <= len(names) and not kwargs, "{}() got arguments that it does not take: {} {}", name, args, kwargs, error=TypeError)
    while values and values[-1] == defaults[len(values) - 1]:
        values.pop()
    return (x, *values), {} if generator is None else {"generator": generator}


@torchsymbol(methods=("normal_",))
def normal_(self: Tensor, mean: Number = 0.0, std: Number = 1.0, *, generator=None):
    """Write normal numbers."""
    place = _place("normal_", self)
    require(std >= 0, "normal expects std >= 0.0, but found std {}", std)
    spec = place.spec
    if generator is not None or spec.strides is not None:  # PyTorch draws others one by one, in place of 16 at a time
        return opaque(torch.Tensor.normal_, (self, mean, std), {} if generator is None else {"generator": generator})
    std = std if place is self else std / math.sqrt(2)
    _write(place, prims.normal(shape=spec.shape, mean=core.as_float(mean), std=core.as_float(std), dtype=spec.dtype, device=spec.device))
    return self


@torchsymbol(methods=("bernoulli_",))
def bernoulli_(self: Tensor, p: Any = 0.5, *, generator=None):
    """Write 1 with probability p, else 0."""
    require_dtype(self.spec.dtype.kind != "complex", "bernoulli_ is not implemented for {}", self.spec)
    if generator is not None and isinstance(p, TensorProxy):  # torch has no fake-tensor rule for bernoulli_ of these
        return _write(self, bernoulli(core.expand(p, self.spec.shape), generator=generator))
    if generator is not None:
        return opaque(torch.Tensor.bernoulli_, (self, p), {"generator": generator})
    if not isinstance(p, TensorProxy):
        return _filled(self, lambda x: _chances(x, p))
    check_overlap("bernoulli", self, p)
    chances = core.expand(p, self.spec.shape)
    return _filled(self, lambda x: _chances(x, chances if x is self else prims.clone(_in_memory_order(chances, self.spec))))


@torchsymbol(methods=("exponential_",))
def exponential_(self: Tensor, lambd: Number = 1.0, *, generator=None):
    """Write numbers of the exponential distribution with rate lambd."""
    message = "Exponential distribution is a continuous probability distribution. dtype must be a floating point but you specified {}"
    require_dtype(self.spec.dtype.kind == "float", message, self.spec.dtype.short)
    require(lambd > 0, "exponential_ expects lambda > 0.0, but found lambda={}", lambd)
    if generator is not None:
        return opaque(torch.Tensor.exponential_, (self, lambd), {"generator": generator})
    rate = core.as_float(lambd)
    return _filled(self, lambda x: prims.exponential(shape=x.spec.shape, rate=rate, dtype=x.spec.dtype, device=x.spec.device))


@torchsymbol(methods=("random_",), bind=lambda self, *args, **kwargs: ((self, *_bounds_of(args, kwargs)), _drop_defaults(kwargs)))
def random_(self: Tensor, *bounds: int, generator=None):
    """Write integers from low (0 when left out) to high - 1; where high is None or left out, up to the largest that the dtype holds exactly."""
    if not bounds or None in bounds or generator is not None:
        return opaque(torch.Tensor.random_, (self, *bounds), {} if generator is None else {"generator": generator})
    low, high = _ends(*bounds)
    return _filled(self, lambda x: integers(x.spec.shape, low, high, x.spec.dtype, x.spec.device))


def _bounds_of(args: tuple, kwargs: dict[str, Any]) -> tuple:
    """Return what random_ got as to, or as from and to: (low, None), which goes up to the largest, is not (high,)."""
    is_complete = "from" not in kwargs or (not args and "to" in kwargs)
    require(is_complete, "random_() expects nothing, to, or from and to, got {} and {}", args, list(kwargs), error=TypeError)
    return (*args, *[kwargs.pop(name) for name in ("from", "to") if name in kwargs])

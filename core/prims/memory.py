"""Copies, device transfers and writes, and the two prims of an interleaved grad rule."""

from __future__ import annotations

from typing import Any

from dovetail.devices import Device
from dovetail.errors import require
from dovetail.prims.op import Tag, prim
from dovetail.prims.spec import TensorSpec, dense, laid_out


@prim
def clone(x: TensorSpec) -> TensorSpec:
    """x in storage of its own, row-major."""
    return x.fresh()


@clone.vjp
def clone_vjp(g, out, x):
    return (g,)


@prim
def stride_order(x: TensorSpec, *, order: tuple[int, ...]) -> TensorSpec:
    """x in storage of its own, dense, with dimension order[0] slowest and order[-1] fastest."""
    require(sorted(order) == list(range(x.rank)), "expected a permutation of the dims of {}, got {}", x, order)
    return laid_out(x, order)


@stride_order.vjp
def stride_order_vjp(g, out, x, *, order):
    return (g,)


@prim(tags={Tag.VIEW})
def with_history(x: TensorSpec, other: TensorSpec) -> TensorSpec:
    """A view of all of x with a gradient that flows to `other`, a tensor with the same values; only where a program creates its results."""
    require(x.agrees(other), "expected a tensor with the shape, dtype and device of {}, got {}", x, other)
    return x.like(requires_grad=other.requires_grad)


@with_history.vjp
def with_history_vjp(g, out, x, other):
    return None, g


@with_history.put
def with_history_put(base, value):
    return value


def in_layout_of(like: Any, x: Any) -> Any:
    """Return x with the dimensions in the order in which they lie in the memory of `like`, x itself where it has its strides."""
    return x if x.spec.strides == like.spec.strides else stride_order(x, order=like.spec.order)


@prim(tags={Tag.MEMORY, Tag.NO_GRAD})
def copy_(x: TensorSpec, value: TensorSpec) -> None:
    """Write `value` into x's storage."""
    require(x.agrees(value), "expected a value with the shape, dtype and device of {}, got {}", x, value)
    require(not x.repeats, "elements of {} share memory, so a write to it is ambiguous; clone it before writing", x)


@prim
def device_put(x: TensorSpec, *, device: Device) -> TensorSpec:
    """x on `device`, in storage of its own."""
    moved = dense(x, alike=False)
    return TensorSpec(moved.shape, moved.dtype, device, moved.strides)


@device_put.vjp
def device_put_vjp(g, out, x, *, device):
    return (device_put(g, device=x.spec.device),)


@prim(tags={Tag.NO_GRAD})
def get_grad(out: TensorSpec) -> TensorSpec:
    """The cotangent of a forward result; only inside an interleaved grad rule."""
    return out.fresh()


@prim(tags={Tag.MEMORY, Tag.NO_GRAD})
def put_grad(x: TensorSpec, gx: TensorSpec) -> None:
    """Add `gx` to the cotangent of a forward argument; only inside an interleaved grad rule."""
    require(isinstance(gx, TensorSpec) and x.agrees(gx), "expected a cotangent like {}, got {}", x, gx)

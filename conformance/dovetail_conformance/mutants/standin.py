"""A plugin to put faults into: some sixty operations, with grad rules where those fit on a line. Without a fault it is right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from dovetail.extend import OperatorExecutor, get_grad, put_grad

UNARY: dict[str, Callable[[Any, Any, Any], Any]] = {  # operation: its cotangent from (g, out, x)
    "sin": lambda g, out, x: g * torch.cos(x),
    "cos": lambda g, out, x: -g * torch.sin(x),
    "tanh": lambda g, out, x: g * (1 - out * out),
    "exp": lambda g, out, x: g * out,
    "log": lambda g, out, x: g / x,
    "sqrt": lambda g, out, x: g / (2 * out),
    "rsqrt": lambda g, out, x: -0.5 * g * out * out * out,
    "sigmoid": lambda g, out, x: g * out * (1 - out),
    "neg": lambda g, out, x: -g,
    "log1p": lambda g, out, x: g / (x + 1),
    "expm1": lambda g, out, x: g * (out + 1),
    "reciprocal": lambda g, out, x: -g * out * out,
    "atan": lambda g, out, x: g / (1 + x * x),
    "sinh": lambda g, out, x: g * torch.cosh(x),
}
# fmt: off
ALONE = (  # operations that Dovetail differentiates
    "torch.abs", "torch.floor", "torch.ceil", "torch.round", "torch.trunc", "torch.sign", "torch.erf", "torch.square", "torch.tan",
    "torch.asinh", "torch.maximum", "torch.minimum", "torch.pow", "torch.atan2", "torch.eq", "torch.lt", "torch.ge", "torch.logical_and",
    "torch.bitwise_xor", "torch.where", "torch.clamp", "torch.sum", "torch.mean", "torch.prod", "torch.amax", "torch.amin", "torch.argmax",
    "torch.cumsum", "torch.sort", "torch.cat", "torch.flip", "torch.var", "torch.bmm", "torch.addmm", "torch.outer", "torch.softmax",
    "torch.log_softmax", "torch.nn.functional.softmax", "torch.nn.functional.relu", "torch.nn.functional.silu", "torch.nn.functional.softplus",
    "torch.nn.functional.leaky_relu", "torch.nn.functional.elu", "torch.nn.functional.mse_loss", "torch.nn.functional.l1_loss",
    "torch.nn.functional.layer_norm", "torch.nn.functional.linear", "torch.nn.functional.embedding",
    "torch.nn.functional.scaled_dot_product_attention", "torch.nn.functional.pad",
)
# fmt: on


def torch_function(name: str) -> Any:
    """Look up a dotted name below torch."""
    thing: Any = torch
    for part in name.split(".")[1:]:
        thing = getattr(thing, part)
    return thing


def unary(name: str, rule: Callable[[Any, Any, Any], Any]) -> Callable[[Any], Any]:
    """Return the grad rule of an operation of one tensor."""

    def grad(x: Any) -> Any:
        out = getattr(torch, name)(x)
        put_grad(x, rule(get_grad(out), out, x))
        return out

    return grad


def reduced(g: Any, like: Any) -> Any:
    """Sum a cotangent over what was broadcast, in the dtype of its tensor."""
    return g.sum_to_size(like.shape).to(like.dtype) if tuple(g.shape) != tuple(like.shape) else g.to(like.dtype)


def mul_grad(input: Any, other: Any) -> Any:
    out = torch.mul(input, other)
    g = get_grad(out)
    for x, y in ((input, other), (other, input)):
        if isinstance(x, torch.Tensor):
            put_grad(x, reduced(g * y, x))
    return out


def gelu_grad(input: Any, approximate: str = "none") -> Any:
    out = F.gelu(input, approximate=approximate)
    g = get_grad(out)
    if approximate == "tanh":
        inner = 0.7978845608028654 * (input + 0.044715 * input * input * input)
        t = torch.tanh(inner)
        slope = 0.5 * (1 + t) + 0.5 * input * (1 - t * t) * 0.7978845608028654 * (1 + 3 * 0.044715 * input * input)
    else:
        slope = 0.5 * (1 + torch.erf(input * 0.7071067811865476)) + input * torch.exp(-0.5 * input * input) * 0.3989422804014327
    put_grad(input, g * slope)
    return out


def matmul_grad(input: Any, other: Any) -> Any:
    out = torch.matmul(input, other)
    g = get_grad(out)
    a = input.unsqueeze(0) if input.ndim == 1 else input
    b = other.unsqueeze(-1) if other.ndim == 1 else other
    h = g.unsqueeze(-2) if input.ndim == 1 and other.ndim > 1 else g
    h = h.unsqueeze(-1) if other.ndim == 1 and input.ndim > 1 else h.reshape(1, 1) if input.ndim == other.ndim == 1 else h
    put_grad(input, torch.matmul(h, b.mT).sum_to_size(a.shape).reshape(input.shape))
    put_grad(other, torch.matmul(a.mT, h).sum_to_size(b.shape).reshape(other.shape))
    return out


def standin() -> OperatorExecutor:
    """Make the executor for `dovetail conformance --mutants dovetail_conformance.mutants.standin:standin`."""
    ex = OperatorExecutor("standin")
    for name, rule in UNARY.items():
        ex.implements(f"torch.{name}", getattr(torch, name), grad=unary(name, rule), dtypes=["float16", "bfloat16", "float32", "float64"])
    for name in ALONE:
        ex.implements(name, torch_function(name))
    floats = ["float32", "float64"]
    ex.implements("torch.add", torch.add)
    ex.implements("torch.mul", torch.mul, grad=mul_grad, dtypes=floats)
    ex.implements("torch.matmul", torch.matmul, grad=matmul_grad, dtypes=floats)
    ex.implements("torch.nn.functional.gelu", F.gelu, grad=gelu_grad, dtypes=floats)
    return ex

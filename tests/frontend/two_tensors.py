"""Tensor subclasses that hold other tensors: a pair, and weights in int8."""

from __future__ import annotations

import torch
from torch.nn.functional import linear
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map

aten = torch.ops.aten


def side_of(args, side):
    """Return arguments with one side of the pairs among them."""
    return tree_map(lambda x: getattr(x, side) if isinstance(x, Pair) else x, args)


class Pair(torch.Tensor):
    """Two tensors to which every operation is done, and a note."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, left, right, note=""):
        return torch.Tensor._make_wrapper_subclass(cls, left.shape, strides=left.stride(), dtype=left.dtype, device=left.device)

    def __init__(self, left, right, note=""):
        self.left, self.right, self.note = left, right, note

    def __tensor_flatten__(self):
        return ["left", "right"], {"note": self.note}

    @staticmethod
    def __tensor_unflatten__(inner, context, size, stride):
        return Pair(inner["left"], inner["right"], **context)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        left, right = (func(*side_of(args, side), **(kwargs or {})) for side in ("left", "right"))
        note = next((x.note for x in tree_leaves(args) if isinstance(x, Pair)), "")
        result = tree_map(lambda x, y: Pair(x, y, note) if isinstance(x, torch.Tensor) else x, left, right)
        return return_and_correct_aliasing(func, args, kwargs or {}, result)


class Quantized(torch.Tensor):
    """Weights in int8, with a scale for each row: `linear` is its own, other operations compute with the weights themselves."""

    @staticmethod
    def __new__(cls, weight, scale):
        return torch.Tensor._make_wrapper_subclass(cls, weight.shape, dtype=scale.dtype, device=weight.device)

    def __init__(self, weight, scale):
        self.weight, self.scale = weight, scale

    def __tensor_flatten__(self):
        return ["weight", "scale"], None

    @classmethod
    def __tensor_unflatten__(cls, inner, context, size, stride):
        return cls(inner["weight"], inner["scale"])

    @classmethod
    def of(cls, weight):
        scale = weight.abs().amax(1, keepdim=True) / 127
        return cls((weight / scale).round().to(torch.int8), scale)

    def dequantize(self):
        return self.weight.to(self.scale.dtype) * self.scale

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is linear:
            x, weight, *bias = args
            out = (x @ weight.weight.t().to(x.dtype)) * weight.scale.squeeze(1)
            return out + bias[0] if bias and bias[0] is not None else out
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func is aten.detach.default:
            return return_and_correct_aliasing(func, args, kwargs or {}, cls(args[0].weight, args[0].scale))
        return func(*tree_map(lambda x: x.dequantize() if isinstance(x, Quantized) else x, args), **(kwargs or {}))

"""The state at one place of a compiled program: a product whose weight stays packed while it does not change."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Parameter

from dovetail_onednn_exec import cases, library
from dovetail_onednn_exec.cases import Case, Convolution, Product
from dovetail_onednn_exec.choices import CHOICES, faster
from dovetail_onednn_exec.epilogues import EPILOGUES
from dovetail_onednn_exec.measure import PACKED

MOST_CHANGES = 3  # a weight that changes more often is being trained and is no longer packed
WORDS = 16  # of a weight that each call compares, to detect writes that PyTorch does not count


class Packed(NamedTuple):
    """A packed weight, and what is compared to detect that the weight has changed."""

    of: weakref.ref
    version: int
    address: int
    places: memoryview  # read only while the weight is alive
    sample: bytes
    packed: Tensor

    def holds(self, weight: Tensor) -> bool:
        """Return whether `weight` is the packed weight, unchanged. Its memory is read last, once it is known to be alive."""
        same = self.of() is weight and self.version == weight._version and self.address == weight.data_ptr()
        return same and self.sample == self.places.tobytes()


class Weight:
    """Cache the packed form of a weight: pack again when it changes, give up when it keeps changing.

    Only parameters are packed: other tensors may be recomputed at each call, in the same memory and even as the same object.
    Inference tensors are not packed, since PyTorch does not count writes to them.
    PyTorch counts writes to a tensor except those through `.data` or another library; such a write is detected if it reaches one of
    WORDS places spread over the weight.
    """

    __slots__ = ("changes", "kept")

    def __init__(self) -> None:
        self.kept: Packed | None = None
        self.changes = 0

    def get(self, weight: Tensor, pack: Callable[[], Tensor]) -> Tensor | None:
        """Return the packed weight; None where packing does not pay."""
        kept = self.kept
        if kept is not None and kept.holds(weight):
            return kept.packed
        if self.changes > MOST_CHANGES or not isinstance(weight, Parameter) or weight.is_inference():
            self.kept = None
            return None
        self.changes += 1
        version, places = weight._version, _places(weight)
        sample = places.tobytes()
        kept = Packed(weakref.ref(weight, self._gone), version, weight.data_ptr(), places, sample, pack())
        self.kept = kept  # another thread may put its own there at once
        return kept.packed

    def _gone(self, reference: weakref.ref) -> None:
        kept = self.kept
        if kept is not None and kept.of is reference:
            self.kept = None


def _places(weight: Tensor) -> memoryview:
    """Return words spread evenly over the memory of a dense weight."""
    count = weight.numel() * weight.element_size() // 4
    if not count:
        return memoryview(b"")
    return memoryview((ctypes.c_uint32 * count).from_address(weight.data_ptr())).cast("B").cast("I")[:: max(1, count // WORDS)]


class State:
    """The base of products and convolutions: the first call looks up which way is fastest, without measuring."""

    __slots__ = ("options", "packs", "plain", "weight")

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options  # of the executor
        self.weight = Weight()
        self.packs: bool | None = None
        self.plain = True

    def __reduce__(self) -> tuple:
        return type(self), (self.options,)

    def decide(self, case: Case, may_pack: bool) -> None:
        """Decide whether to pack the weight, and whether oneDNN or PyTorch computes otherwise."""
        row = None if self.options["choose"] == "always" else CHOICES.known(case, self.options["folder"])
        allowed = may_pack and self.options["pack"]
        self.plain = row is None or faster(row, "onednn", self.options["margin"])
        better = row is None or (faster(row, PACKED, self.options["margin"]) and row.times[PACKED] <= row.times.get("onednn", float("inf")))
        self.packs = allowed and better


class Linear(State):
    """Compute torch.nn.functional.linear, with or without an epilogue."""

    __slots__ = ()

    def __call__(self, input: Tensor, weight: Tensor, bias: Tensor | None = None, other: Tensor | None = None, *, epilogue: str = "") -> Tensor:
        if records(input, weight, bias, other):
            return eager_linear(input, weight, bias, other, epilogue=epilogue)
        if self.packs is None:
            self.decide(product(input, weight, bias, epilogue), library.pack_linear is not None and weight.is_contiguous())
        packed = self.weight.get(weight, lambda: cases.pack(weight, input.numel() // weight.shape[1])) if self.packs else None
        if packed is not None:
            return cases.linear(input, packed, bias, other, epilogue=epilogue)
        if self.plain:
            return cases.linear(input, weight, bias, other, epilogue=epilogue)
        return eager_linear(input, weight, bias, other, epilogue=epilogue)


def records(*tensors: Tensor | None) -> bool:
    """Return whether autograd would record the call; then PyTorch computes, since oneDNN's operations have no gradient."""
    return torch.is_grad_enabled() and any([x is not None and x.requires_grad for x in tensors])


def eager_linear(input: Tensor, weight: Tensor, bias: Tensor | None, other: Tensor | None, *, epilogue: str) -> Tensor:
    """Compute the same with PyTorch."""
    out = torch.nn.functional.linear(input, weight, bias)
    return EPILOGUES[epilogue].eager(out) if other is None else out + other


def product(x: Tensor, weight: Tensor, bias: Tensor | None, epilogue: str) -> Product:
    """Return the case of real tensors."""
    columns, inner = weight.shape
    turned = [not each.is_contiguous() for each in (x, weight)]
    return Product(x.dtype, x.numel() // inner, inner, columns, *turned, bias is not None, epilogue)


class Conv2d(State):
    """Compute torch.nn.functional.conv2d of batches of images."""

    __slots__ = ()

    def __call__(
        self, input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
    ) -> Tensor:
        if records(input, weight, bias):
            return torch.conv2d(input, weight, bias, stride, padding, dilation, groups)
        stride, padding, dilation = map(pair, (stride, padding, dilation))
        if self.packs is None:
            layouts = [not each.is_contiguous() for each in (input, weight)]
            case = Convolution(input.dtype, tuple(input.shape), tuple(weight.shape), stride, padding, dilation, groups, *layouts, bias is not None)
            self.decide(case, library.pack_convolution is not None and any(layouts))
        window = (padding, stride, dilation, groups)
        packed = self.weight.get(weight, lambda: cases.pack_images(weight, input.shape, *window)) if self.packs else None
        if packed is not None:
            return cases.convolution(input, packed, bias, *window)
        if self.plain:
            return cases.convolution(input, weight, bias, *window)
        return torch.conv2d(input, weight, bias, stride, padding, dilation, groups)


def pair(value: Any) -> tuple[int, int]:
    """Expand an argument for two dimensions: one number, or a sequence of one or two."""
    if isinstance(value, int):
        return value, value
    return (value[0], value[0]) if len(value) == 1 else (value[0], value[1])


class Convolution2d(Conv2d):
    """Compute prims.convolution of batches of images."""

    __slots__ = ()

    def __call__(
        self, x: Tensor, weight: Tensor, *, stride: tuple, padding: tuple, dilation: tuple, transposed: bool, output_padding: tuple, groups: int
    ) -> Tensor:
        return super().__call__(x, weight, None, stride, padding, dilation, groups)

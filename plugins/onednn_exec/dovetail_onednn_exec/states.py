"""What runs at one place of a compiled program: a product whose weight is packed for as long as it stays as it is."""

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

MOST_CHANGES = 3  # a weight that changes more often is being trained, and is packed no more
WORDS = 16  # of a weight that are looked at in each call, to find writes that PyTorch does not count


class Packed(NamedTuple):
    """A packed weight, and what tells that the weight is still what was packed."""

    of: weakref.ref
    version: int
    address: int
    places: memoryview  # to be read only while the weight is there
    held: bytes
    packed: Tensor

    def holds(self, weight: Tensor) -> bool:
        """Whether this is that weight, unchanged.  Its memory is looked at last, when it is known to be there."""
        same = self.of() is weight and self.version == weight._version and self.address == weight.data_ptr()
        return same and self.held == self.places.tobytes()


class Weight:
    """The packed form of the weight that comes by, made again when it changes, and given up when it keeps changing.

    Only parameters are packed: other tensors may be computed anew at each call, in memory and even as an object that was there before.
    Nor are inference tensors, whose writes nobody counts.
    PyTorch counts the writes to a tensor, but for those through `.data` or another library; such a write is seen if it reaches one of
    WORDS places spread over the weight.
    """

    __slots__ = ("changes", "kept")

    def __init__(self) -> None:
        self.kept: Packed | None = None
        self.changes = 0

    def get(self, weight: Tensor, pack: Callable[[], Tensor]) -> Tensor | None:
        """The packed weight; None where it would not pay."""
        kept = self.kept
        if kept is not None and kept.holds(weight):
            return kept.packed
        if self.changes > MOST_CHANGES or not isinstance(weight, Parameter) or weight.is_inference():
            self.kept = None
            return None
        self.changes += 1
        version, places = weight._version, _places(weight)
        held = places.tobytes()
        made = self.kept = Packed(weakref.ref(weight, self._gone), version, weight.data_ptr(), places, held, pack())
        return made.packed

    def _gone(self, reference: weakref.ref) -> None:
        kept = self.kept
        if kept is not None and kept.of is reference:
            self.kept = None


def _places(weight: Tensor) -> memoryview:
    """Words that lie evenly in the memory of a weight without gaps."""
    count = weight.numel() * weight.element_size() // 4
    if not count:
        return memoryview(b"")
    return memoryview((ctypes.c_uint32 * count).from_address(weight.data_ptr())).cast("B").cast("I")[:: max(1, count // WORDS)]


class State:
    """The part that products and convolutions share: which way is right is looked up at the first call and never measured then."""

    __slots__ = ("how", "packs", "plain", "weight")

    def __init__(self, how: dict[str, Any]) -> None:
        self.how = how  # the executor's options
        self.weight = Weight()
        self.packs: bool | None = None
        self.plain = True

    def __reduce__(self) -> tuple:
        return type(self), (self.how,)

    def decide(self, case: Case, may_pack: bool) -> None:
        """Packed or not, and whether oneDNN or PyTorch computes where it is not."""
        row = None if self.how["choose"] == "always" else CHOICES.known(case, self.how["folder"])
        allowed = may_pack and self.how["pack"]
        self.plain = row is None or faster(row, "onednn", self.how["margin"])
        better = row is None or (faster(row, "packed", self.how["margin"]) and row.times["packed"] <= row.times.get("onednn", float("inf")))
        self.packs = allowed and better


class Linear(State):
    """torch.nn.functional.linear, an epilogue behind it or not."""

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
    """Whether autograd would record the call: then it has to be PyTorch's operation, since oneDNN's have no history."""
    return torch.is_grad_enabled() and any([x is not None and x.requires_grad for x in tensors])


def eager_linear(input: Tensor, weight: Tensor, bias: Tensor | None, other: Tensor | None, *, epilogue: str) -> Tensor:
    """The same by PyTorch."""
    out = torch.nn.functional.linear(input, weight, bias)
    return EPILOGUES[epilogue].eager(out) if other is None else out + other


def product(x: Tensor, weight: Tensor, bias: Tensor | None, epilogue: str) -> Product:
    """The case of real tensors."""
    columns, inner = weight.shape
    turned = [not each.is_contiguous() for each in (x, weight)]
    return Product(x.dtype, x.numel() // inner, inner, columns, *turned, bias is not None, epilogue)


class Conv2d(State):
    """torch.nn.functional.conv2d of batches of images."""

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
    """An argument for two dimensions: one number, or one or two of them in a sequence."""
    if isinstance(value, int):
        return value, value
    return (value[0], value[0]) if len(value) == 1 else (value[0], value[1])


class Convolution2d(Conv2d):
    """prims.convolution of batches of images."""

    __slots__ = ()

    def __call__(
        self, x: Tensor, weight: Tensor, *, stride: tuple, padding: tuple, dilation: tuple, transposed: bool, output_padding: tuple, groups: int
    ) -> Tensor:
        return super().__call__(x, weight, None, stride, padding, dilation, groups)

"""Cases: an operation and the shapes it is asked for, which name a class for measuring and can make tensors of that class.

Each has `ways` of being computed: "torch", as eager PyTorch does it; "onednn"; and "packed", oneDNN with the weight in its own layout.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from dovetail_onednn_exec import library
from dovetail_onednn_exec.epilogues import EPILOGUES
from dovetail_onednn_exec.measure import BESIDE

Ways = dict[str, Callable[[], Tensor]]
FEWEST = 64  # sizes are not cut below this


def bucket(n: int) -> int:
    """2 to the power of this is the least that holds n."""
    return (n - 1).bit_length()


def numbers(*shape: int, dtype: torch.dtype) -> Tensor:
    """A tensor of various numbers between -0.5 and 0.5, without touching a generator."""
    count = 1
    for n in shape:
        count *= n
    flat = torch.arange(count, dtype=torch.float32, device="cpu").mul_(0.6180339).frac_().sub_(0.5)
    return flat.reshape(shape).to(dtype)


@dataclass(frozen=True)
class Product:
    """x [rows, inner] times the transpose of weight [columns, inner], plus bias, then an epilogue.

    `x_turned` and `weight_turned` say which of them lie in memory by columns.
    """

    dtype: torch.dtype
    rows: int
    inner: int
    columns: int
    x_turned: bool = False
    weight_turned: bool = False
    bias: bool = False
    epilogue: str = ""

    @property
    def key(self) -> str:
        """The class that it is of."""
        layouts = "".join("t" if turned else "n" for turned in (self.x_turned, self.weight_turned))
        sizes = "x".join(str(bucket(n)) for n in (self.rows, self.inner, self.columns))
        return f"linear {_short(self.dtype)} 2^{sizes} {layouts}{' bias' * self.bias}{' ' * bool(self.epilogue)}{self.epilogue}"

    def __str__(self) -> str:
        more = " + bias" * self.bias + (f", {self.epilogue}" if self.epilogue else "")
        return f"{_short(self.dtype)} [{self.rows}, {self.inner}] @ [{self.inner}, {self.columns}]{more}"

    def smaller(self, most: float) -> Product:
        """The same with the largest sizes halved until no more than `most` products are summed up."""
        sizes = {"rows": self.rows, "inner": self.inner, "columns": self.columns}
        while sizes["rows"] * sizes["inner"] * sizes["columns"] > most:
            largest = max(sizes, key=sizes.get)
            if sizes[largest] < 2 * FEWEST:
                break
            sizes[largest] //= 2
        return replace(self, **sizes)

    def ways(self) -> Ways:
        """How it can be computed, on tensors of these sizes."""
        x = _turned(numbers(self.inner, self.rows, dtype=self.dtype)) if self.x_turned else numbers(self.rows, self.inner, dtype=self.dtype)
        weight = numbers(*((self.inner, self.columns) if self.weight_turned else (self.columns, self.inner)), dtype=self.dtype)
        weight = _turned(weight) if self.weight_turned else weight
        bias = numbers(self.columns, dtype=self.dtype) if self.bias else None
        other = (numbers(self.rows, self.columns, dtype=self.dtype),) if self.epilogue == "add" else ()
        eager = EPILOGUES[self.epilogue].eager
        found: Ways = {"torch": lambda: eager(torch.nn.functional.linear(x, weight, bias), *other)}
        found["onednn"] = partial(linear, x, weight, bias, *other, epilogue=self.epilogue)
        if library.pack_linear is not None:
            found["packed"] = partial(linear, x, pack(weight, self.rows), bias, *other, epilogue=self.epilogue)
        return found | (self._beside(x, weight, bias) if self.epilogue else {})

    def _beside(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Ways:
        """The least that it can take where a fusion executor runs the epilogue: a product, and unless the sum is a part of what follows, one
        pass over it, which costs no less than relu."""
        after = torch.relu if self.epilogue != "add" else lambda product: product
        return {
            f"{BESIDE} torch": lambda: after(torch.nn.functional.linear(x, weight, bias)),
            f"{BESIDE} onednn": lambda: after(linear(x, weight, bias)),
        }


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, other: Tensor | None = None, *, epilogue: str = "") -> Tensor:
    """The product by oneDNN; `weight` may be packed."""
    if other is not None:
        return library.linear_with(x, other, weight, bias, EPILOGUES[epilogue].name)
    how = EPILOGUES[epilogue]
    return library.linear(x, weight, bias, how.name, [], how.algorithm)


def pack(weight: Tensor, rows: int) -> Tensor:
    """A weight in the layout that oneDNN wants for so many rows."""
    return library.pack_linear(weight.detach(), rows)


@dataclass(frozen=True)
class Convolution:
    """Images [batch, channels, height, width] with weight [out, channels / groups, ...].

    `x_last` and `weight_last` say in which of them channels are innermost.
    """

    dtype: torch.dtype
    x: tuple[int, int, int, int]
    weight: tuple[int, int, int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    groups: int
    x_last: bool = False
    weight_last: bool = False
    bias: bool = False

    @property
    def key(self) -> str:
        """The class that it is of: sizes of images in powers of two, channels and windows as they are."""
        batch, channels, height, width = self.x
        images = f"2^{bucket(batch)}x{bucket(height)}x{bucket(width)}, {channels} channels"
        out, _, *kernel = self.weight
        windows = {"k": kernel, "s": self.stride, "p": self.padding, "d": self.dilation}
        window = " ".join(f"{name}{'x'.join(map(str, of))}" for name, of in windows.items())
        layouts = "".join("l" if last else "n" for last in (self.x_last, self.weight_last))
        return f"conv2d {_short(self.dtype)} {images} to {out} {window} g{self.groups} {layouts}{' bias' * self.bias}"

    def __str__(self) -> str:
        return f"conv2d of {_short(self.dtype)} {list(self.x)} by {list(self.weight)}{' + bias' * self.bias}"

    def smaller(self, most: float) -> Convolution:
        """The same with fewer and smaller images, until no more than `most` products are summed up."""
        batch, channels, height, width = self.x
        out, per_group, *kernel = self.weight
        least = [d * (k - 1) + 1 for d, k in zip(self.dilation, kernel, strict=True)]
        per_pixel = out * per_group * kernel[0] * kernel[1]
        while batch * height * width * per_pixel // (self.stride[0] * self.stride[1]) > most:
            if batch > 1:
                batch //= 2
            elif height > 2 * least[0] and width > 2 * least[1] and min(height, width) > 8:
                height, width = height // 2, width // 2
            else:
                break
        return replace(self, x=(batch, channels, height, width))

    def ways(self) -> Ways:
        """How it can be computed, on tensors of these sizes."""
        x, weight = numbers(*self.x, dtype=self.dtype), numbers(*self.weight, dtype=self.dtype)
        x = x.to(memory_format=torch.channels_last) if self.x_last else x
        weight = weight.to(memory_format=torch.channels_last) if self.weight_last else weight
        bias = numbers(self.weight[0], dtype=self.dtype) if self.bias else None
        window = (self.padding, self.stride, self.dilation, self.groups)
        eager = partial(torch.conv2d, x, weight, bias, self.stride, self.padding, self.dilation, self.groups)
        found: Ways = {"torch": eager, "onednn": partial(convolution, x, weight, bias, *window)}
        if library.pack_convolution is not None and (self.x_last or self.weight_last):
            found["packed"] = partial(convolution, x, pack_images(weight, x.shape, *window), bias, *window)
        return found


def convolution(x: Tensor, weight: Tensor, bias: Tensor | None, padding: tuple, stride: tuple, dilation: tuple, groups: int) -> Tensor:
    """The convolution by oneDNN; `weight` may be packed, and then channels are innermost in the result."""
    return library.convolution(x, weight, bias, padding, stride, dilation, groups, "none", [], "")


def pack_images(weight: Tensor, images: torch.Size, padding: tuple, stride: tuple, dilation: tuple, groups: int) -> Tensor:
    """A weight in the layout that oneDNN wants for images of this shape."""
    return library.pack_convolution(weight.detach().to_mkldnn(), padding, stride, dilation, groups, list(images))


Case = Product | Convolution


def _turned(x: Tensor) -> Tensor:
    return x.t()


def _short(dtype: torch.dtype) -> str:
    return {torch.float32: "f32", torch.bfloat16: "bf16"}[dtype]

"""Cases: an operation with shapes and layouts. Cases of similar sizes share a key, under which times are measured and stored.

Each case has several `ways` to compute it: "torch" (eager PyTorch), "onednn", "packed" (oneDNN with the weight in its own layout), and, of bfloat16,
"float32" (PyTorch in float32).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from dovetail_onednn_exec import library
from dovetail_onednn_exec.epilogues import EPILOGUES
from dovetail_onednn_exec.measure import BESIDE, FLOAT32, PACKED

Ways = dict[str, Callable[[], Tensor]]
FEWEST = 64  # sizes are not halved below this


def bucket(n: int) -> int:
    """Return the exponent of the smallest power of two that is at least n."""
    return (n - 1).bit_length()


def numbers(*shape: int, dtype: torch.dtype) -> Tensor:
    """Return a tensor of distinct values in [-0.5, 0.5) without drawing from a random generator."""
    count = 1
    for n in shape:
        count *= n
    flat = torch.arange(count, dtype=torch.float32, device="cpu").mul_(0.6180339).frac_().sub_(0.5)
    return flat.reshape(shape).to(dtype)


@dataclass(frozen=True)
class Product:
    """x [rows, inner] times the transpose of weight [columns, inner], plus bias, then an epilogue.

    `x_turned` and `weight_turned`: whether each is column-major.
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
        """The key that this case shares with cases of similar sizes: they are measured once."""
        layouts = "".join("t" if turned else "n" for turned in (self.x_turned, self.weight_turned))
        sizes = "x".join(str(bucket(n)) for n in (self.rows, self.inner, self.columns))
        return f"linear {_short(self.dtype)} 2^{sizes} {layouts}{' bias' * self.bias}{' ' * bool(self.epilogue)}{self.epilogue}"

    def __str__(self) -> str:
        more = " + bias" * self.bias + (f", {self.epilogue}" if self.epilogue else "")
        return f"{_short(self.dtype)} [{self.rows}, {self.inner}] @ [{self.inner}, {self.columns}]{more}"

    def smaller(self, most: float) -> Product:
        """Return this case with its largest sizes halved until it takes at most `most` multiplications."""
        sizes = {"rows": self.rows, "inner": self.inner, "columns": self.columns}
        while sizes["rows"] * sizes["inner"] * sizes["columns"] > most:
            largest = max(sizes, key=sizes.get)
            if sizes[largest] < 2 * FEWEST:
                break
            sizes[largest] //= 2
        return replace(self, **sizes)

    def ways(self, *, packs: bool = True) -> Ways:
        """Return the ways to compute this case, each a function without arguments that holds tensors of these sizes; "packed" where it `packs`."""
        x = _turned(numbers(self.inner, self.rows, dtype=self.dtype)) if self.x_turned else numbers(self.rows, self.inner, dtype=self.dtype)
        weight = numbers(*((self.inner, self.columns) if self.weight_turned else (self.columns, self.inner)), dtype=self.dtype)
        weight = _turned(weight) if self.weight_turned else weight
        bias = numbers(self.columns, dtype=self.dtype) if self.bias else None
        other = (numbers(self.rows, self.columns, dtype=self.dtype),) if self.epilogue == "add" else ()
        eager = EPILOGUES[self.epilogue].eager
        ways: Ways = {"torch": lambda: eager(torch.nn.functional.linear(x, weight, bias), *other)}
        ways["onednn"] = partial(linear, x, weight, bias, *other, epilogue=self.epilogue)
        if packs and library.pack_linear is not None:
            ways[PACKED] = partial(linear, x, pack(weight, self.rows), bias, *other, epilogue=self.epilogue)
        if self.dtype is torch.bfloat16:
            ways[FLOAT32] = lambda: eager(_in_float32(torch.nn.functional.linear, x, weight, bias), *other)
        return ways | (self._beside(x, weight, bias) if self.epilogue else {})

    def _beside(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Ways:
        """Return lower bounds for a fusion executor that runs the epilogue itself.

        It needs the product and, unless a later kernel absorbs the addition, one pass over it, which costs at least as much as relu.
        """
        after = torch.relu if self.epilogue != "add" else lambda product: product
        ways: Ways = {
            f"{BESIDE} torch": lambda: after(torch.nn.functional.linear(x, weight, bias)),
            f"{BESIDE} onednn": lambda: after(linear(x, weight, bias)),
        }
        if self.dtype is torch.bfloat16:
            ways[f"{BESIDE} {FLOAT32}"] = lambda: after(_in_float32(torch.nn.functional.linear, x, weight, bias))
        return ways


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, other: Tensor | None = None, *, epilogue: str = "") -> Tensor:
    """Compute the product with oneDNN; `weight` may be packed."""
    if other is not None:
        return library.linear_with(x, other, weight, bias, EPILOGUES[epilogue].name)
    how = EPILOGUES[epilogue]
    return library.linear(x, weight, bias, how.name, [], how.algorithm)


def pack(weight: Tensor, rows: int) -> Tensor:
    """Return the weight in the layout that oneDNN prefers for this number of rows."""
    return library.pack_linear(weight.detach(), rows)


@dataclass(frozen=True)
class Convolution:
    """Images [batch, channels, height, width] with weight [out, channels / groups, ...].

    `x_last` and `weight_last`: whether each has its channels innermost (channels last).
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
        """The key of cases that are measured together: image sizes rounded to powers of two, channels and windows exact."""
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
        """Return this case with fewer and smaller images, until it takes at most `most` multiplications."""
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

    def ways(self, *, packs: bool = True) -> Ways:
        """Return the ways to compute this case, each a function without arguments that holds tensors of these sizes; "packed" where it `packs`."""
        x, weight = numbers(*self.x, dtype=self.dtype), numbers(*self.weight, dtype=self.dtype)
        x = x.to(memory_format=torch.channels_last) if self.x_last else x
        weight = weight.to(memory_format=torch.channels_last) if self.weight_last else weight
        bias = numbers(self.weight[0], dtype=self.dtype) if self.bias else None
        window = (self.padding, self.stride, self.dilation, self.groups)
        eager = partial(torch.conv2d, x, weight, bias, self.stride, self.padding, self.dilation, self.groups)
        ways: Ways = {"torch": eager, "onednn": partial(convolution, x, weight, bias, *window)}
        if packs and library.pack_convolution is not None and (self.x_last or self.weight_last):
            ways[PACKED] = partial(convolution, x, pack_images(weight, x.shape, *window), bias, *window)
        if self.dtype is torch.bfloat16:
            ways[FLOAT32] = partial(_in_float32, torch.conv2d, x, weight, bias, self.stride, self.padding, self.dilation, self.groups)
        return ways


def convolution(x: Tensor, weight: Tensor, bias: Tensor | None, padding: tuple, stride: tuple, dilation: tuple, groups: int) -> Tensor:
    """Compute the convolution with oneDNN; `weight` may be packed, and then the result is channels last."""
    return library.convolution(x, weight, bias, padding, stride, dilation, groups, "none", [], "")


def pack_images(weight: Tensor, images: torch.Size, padding: tuple, stride: tuple, dilation: tuple, groups: int) -> Tensor:
    """Return the weight in the layout that oneDNN prefers for images of this shape."""
    return library.pack_convolution(weight.detach().to_mkldnn(), padding, stride, dilation, groups, list(images))


Case = Product | Convolution


def _in_float32(fn: Callable[..., Tensor], x: Tensor, weight: Tensor, bias: Tensor | None, *window: object) -> Tensor:
    """Compute `fn` in float32, and round the result."""
    return fn(x.float(), weight.float(), None if bias is None else bias.float(), *window).to(x.dtype)


def _turned(x: Tensor) -> Tensor:
    return x.t()


def _short(dtype: torch.dtype) -> str:
    return {torch.float32: "f32", torch.bfloat16: "bf16"}[dtype]

"""Elements, or whole channels, dropped at random."""

from __future__ import annotations

from collections.abc import Callable

from dovetail import prims
from dovetail.errors import require
from dovetail.langs import core
from dovetail.langs.torch.binding.symbol import Tensor, torchsymbol, write

MaskShape = Callable[[tuple[int, ...]], tuple[int, ...]]  # a tensor's shape -> the shape of its mask
_ALPHA = 1.7580993408473766  # scale * alpha of SELU: the negative saturation value (Klambauer et al., "Self-Normalizing Neural Networks", 2017)


@torchsymbol("torch.nn.functional.dropout")
def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False):
    """Each element zeroed with probability p, and the others divided by 1 - p; `input` itself when not training."""
    message = "dropout probability has to be between 0 and 1, but got {}"
    require(not (p < 0.0 or p > 1.0), message, p, error=ValueError)
    require(0.0 <= p <= 1.0, message, p)  # NaN, which PyTorch's Python lets through to its C code
    if inplace:
        return _into(input, dropout(input, p, training))
    return _dropped(input, p, training, _per_element)


@torchsymbol("torch.dropout")
def plain_dropout(input: Tensor, p: float, train: bool):
    """`torch.nn.functional.dropout`."""
    return _dropped(input, p, train, _per_element)


@torchsymbol("torch.feature_dropout")
def feature_dropout(input: Tensor, p: float, train: bool):
    """`torch.nn.functional.dropout` of whole channels: one draw for each item and channel."""
    return _dropped(input, p, train, _per_channel)


@torchsymbol("torch.alpha_dropout")
def alpha_dropout(input: Tensor, p: float, train: bool):
    """Each element set to SELU's negative limit with probability p, then all shifted and scaled so that mean and variance stay."""
    return _alpha_dropped(input, p, train, _per_element)


@torchsymbol("torch.feature_alpha_dropout")
def feature_alpha_dropout(input: Tensor, p: float, train: bool):
    """`torch.alpha_dropout` of whole channels."""
    return _alpha_dropped(input, p, train, _per_channel)


def _written(name: str, drop: Callable) -> None:
    """Register torch.<name>_, which writes the result of `drop` into its input."""

    def meta(input: Tensor, p: float, train: bool):
        return _into(input, drop(input, p, train))

    meta.__name__, meta.__doc__ = f"{name}_", f"`torch.{name}`, written into `input`."
    torchsymbol(f"torch.{name}_", in_place=False)(meta)


def _into(x: Tensor, result: Tensor) -> Tensor:
    if result is not x:
        write(x, result)
    return x


for _name, _drop in {
    "dropout": plain_dropout,
    "feature_dropout": feature_dropout,
    "alpha_dropout": alpha_dropout,
    "feature_alpha_dropout": feature_alpha_dropout,
}.items():
    _written(_name, _drop)


def _per_element(shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape


def _per_channel(shape: tuple[int, ...]) -> tuple[int, ...]:
    require(len(shape) >= 2, "Feature dropout requires at least 2 dimensions in the input, got {}", shape)
    return (*shape[:2], *(1 for _ in shape[2:]))


def _keep_mask(x: Tensor, p: float, mask_shape: MaskShape) -> Tensor:
    """Return ones with probability 1 - p, else zeros, in x's dtype; drawn in the wide dtype, since a narrow one would round p."""
    keep = prims.full(shape=(), value=1.0 - p, dtype=core.wide(x.spec.dtype), device=x.spec.device)
    return core.convert(prims.bernoulli(keep, shape=mask_shape(x.spec.shape)), x.spec.dtype)


def _unchanged(x: Tensor, p: float, train: bool) -> bool:
    """Return whether dropout leaves x unchanged.  Raises where p is not in [0, 1]."""
    require(0.0 <= p <= 1.0, "dropout probability has to be between 0 and 1, but got {}", p)
    return p == 0 or not train or x.spec.numel == 0


def _dropped(x: Tensor, p: float, train: bool, mask_shape: MaskShape) -> Tensor:
    if _unchanged(x, p, train):
        return x
    if p == 1:
        return core.mul(x, 0)
    mask = _keep_mask(x, p, mask_shape)
    return core.mul(x, core.div(mask, 1.0 - p))


def _alpha_dropped(x: Tensor, p: float, train: bool, mask_shape: MaskShape) -> Tensor:
    if _unchanged(x, p, train):
        return x
    if p == 1:
        return core.mul(x, 0)
    mask = _keep_mask(x, p, mask_shape)
    scale = ((_ALPHA**2 * p + 1) * (1 - p)) ** -0.5
    shift = core.add(core.mul(core.sub(mask, 1.0), _ALPHA * scale), _ALPHA * scale * p)
    return core.add(core.mul(x, core.mul(mask, scale)), shift)

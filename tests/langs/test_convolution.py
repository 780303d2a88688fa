"""Convolutions, unfold and fold: what PyTorch's own samples leave out."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from harness import agrees, gradients_agree, raises_as_eager

import dovetail
from dovetail.extend.advanced import checked

TOLERANCE = {"rtol": 1e-4, "atol": 1e-4}
CONV = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
FORMAT = {4: torch.channels_last, 5: torch.channels_last_3d}


def inputs(spatial: int):
    return torch.randn(2, 4, *[6] * spatial), torch.randn(6, 4, *[3] * spatial), torch.randn(6)


@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_arguments_as_ints_and_tuples(spatial):
    x, w, b = inputs(spatial)
    agrees(CONV[spatial], x, w, b, **TOLERANCE)
    agrees(lambda x, w, b: CONV[spatial](x, w, b, (2,) * spatial, [1], 2), x, w, b, **TOLERANCE)
    agrees(lambda x, w: CONV[spatial](x[0], w, padding="same"), x, w, **TOLERANCE)
    agrees(lambda x, w: CONV[spatial](x, w[:, :2], groups=2, padding="valid"), x, w, **TOLERANCE)
    agrees(lambda x, w, b: TRANSPOSED[spatial](x, w.transpose(0, 1), b, 2, 1, 1), x, w, b, **TOLERANCE)
    agrees(lambda x, w: TRANSPOSED[spatial](x[0], w[:4], groups=2, dilation=2), x, w, **TOLERANCE)


@pytest.mark.parametrize("which", ["input", "weight", "both"])
def test_sequences_lie_as_their_weight_does(which):
    x, w, b = inputs(1)
    x = x.mT.contiguous().mT if which != "weight" else x
    w = w.mT.contiguous().mT if which != "input" else w
    agrees(CONV[1], x, w, b, **TOLERANCE)
    agrees(lambda x, w: CONV[1](x, w[:, :, :1], None, 2, 1), x, w, **TOLERANCE)
    agrees(lambda x, w: TRANSPOSED[1](x, w[:4], None, 2), x, w, **TOLERANCE)
    gradients_agree(CONV[1], x, w, b, **TOLERANCE)


@pytest.mark.parametrize("spatial", [2, 3])
@pytest.mark.parametrize("which", ["input", "weight", "both"])
def test_channels_last_stays(spatial, which):
    x, w, b = inputs(spatial)
    x = x.to(memory_format=FORMAT[x.ndim]) if which != "weight" else x
    w = w.to(memory_format=FORMAT[w.ndim]) if which != "input" else w
    agrees(CONV[spatial], x, w, b, **TOLERANCE)
    some = x[:1] if spatial == 2 else x  # PyTorch decides by sizes and threads how one volume lies
    agrees(lambda x, w: CONV[spatial](x, w, None, 2, 1), some, w, **TOLERANCE)


@pytest.mark.parametrize("which", ["input", "weight", "both"])
@pytest.mark.parametrize("convolve", [CONV[2], CONV[3], TRANSPOSED[2], TRANSPOSED[3]], ids=lambda fn: fn.__name__)
def test_an_image_without_a_batch_lies_as_promised(convolve, which):
    x, w, _ = inputs(3 if convolve in (CONV[3], TRANSPOSED[3]) else 2)
    w, memory_format = w[:4], FORMAT[x.dim()]
    x = x.to(memory_format=memory_format) if which != "weight" else x
    w = w.to(memory_format=memory_format) if which != "input" else w
    x, w = x[0].requires_grad_(), w.requires_grad_()
    out = dovetail.jit(lambda x, w: convolve(x, w, stride=2), passes=[checked])(x, w)  # the pass compares strides with those of the meta
    torch.testing.assert_close(out, convolve(x, w, stride=2), **TOLERANCE)
    out.sum().backward()


def test_same_with_an_odd_total_pads_the_end():
    x, w, b = inputs(2)
    agrees(lambda x, w, b: F.conv2d(x, w[..., :2], b, padding="same"), x, w, b, **TOLERANCE)
    gradients_agree(lambda x, w, b: F.conv2d(x, w[..., :2], b, padding="same"), x, w, b, **TOLERANCE)


@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_gradients(spatial):
    x, w, b = inputs(spatial)
    gradients_agree(lambda x, w, b: CONV[spatial](x, w, b, 2, 1), x, w, b, **TOLERANCE)
    gradients_agree(lambda x, w, b: TRANSPOSED[spatial](x, w.transpose(0, 1), b, 2, 1, 1), x, w, b, **TOLERANCE)


def test_no_channels_make_no_channels():
    x, w = torch.randn(2, 0, 4), torch.randn(5, 0, 3)
    agrees(lambda x, w: F.conv1d(x, w, padding=1) * 2, x, w)
    agrees(lambda x, w, b: F.conv1d(x, w, b) * 2, x, w, torch.randn(5))
    gradients_agree(lambda x, w: F.conv1d(x, w), x, w)


def test_narrow_dtypes():
    agrees(F.conv2d, *(x.bfloat16() for x in inputs(2)), rtol=2e-2, atol=2e-2)


BAD = {
    "rank": lambda x, w, b: F.conv2d(x[0, 0], w),
    "channels": lambda x, w, b: F.conv2d(x[:, :3], w),
    "weight rank": lambda x, w, b: F.conv2d(x, w[0]),
    "too large a kernel": lambda x, w, b: F.conv2d(x[..., :2], w),
    "bias": lambda x, w, b: F.conv2d(x, w, b[:3]),
    "dtype": lambda x, w, b: F.conv2d(x, w.double()),
    "strided same": lambda x, w, b: F.conv2d(x, w, stride=2, padding="same"),
    "unknown padding": lambda x, w, b: F.conv2d(x, w, padding="full"),
    "negative padding": lambda x, w, b: F.conv2d(x, w, padding=-1),
    "zero stride": lambda x, w, b: F.conv2d(x, w, stride=0),
    "float stride": lambda x, w, b: F.conv2d(x, w, stride=1.0),
    "three strides": lambda x, w, b: F.conv2d(x, w, stride=(1, 1, 1)),
    "groups": lambda x, w, b: F.conv2d(x, w, groups=4),
    "output padding": lambda x, w, b: F.conv_transpose2d(x, w.transpose(0, 1), output_padding=1),
    "unfold": lambda x, w, b: F.unfold(x, 9),
    "fold": lambda x, w, b: F.fold(x.flatten(2), 9, 2),
}


@pytest.mark.parametrize("bad", BAD)
def test_errors_are_eagers(bad):
    raises_as_eager(BAD[bad], *inputs(2))


def test_windows_as_columns_and_back():
    x = torch.randn(2, 3, 6, 7)
    for kernel, dilation, padding, stride in ((2, 1, 0, 1), ((2, 3), 2, 1, 2), (1, 1, 0, 1)):
        agrees(lambda x: F.unfold(x, kernel, dilation, padding, stride), x)  # noqa: B023
        agrees(lambda x: F.fold(F.unfold(x, kernel, dilation, padding, stride), (6, 7), kernel, dilation, padding, stride), x)  # noqa: B023
    gradients_agree(lambda x: F.fold(F.unfold(x, 3, 2, 2, 2), (6, 7), 3, 2, 2, 2), x, **TOLERANCE)


def test_columns_never_share_the_images_storage():
    def f(x):
        columns = F.unfold(x, 1)
        columns.add_(1)
        return columns

    agrees(f, torch.randn(1, 3, 4, 4))


@pytest.mark.parametrize("convolve", [F.conv1d, F.conv_transpose1d])
@pytest.mark.parametrize("which", ["input", "weight", "both"])
def test_a_kernel_behind_a_convolution_of_sequences_reads_it_as_it_lies(convolve, which):
    x, w = torch.randn(3, 4, 7), torch.randn(4, 4, 3)
    x = x.mT.contiguous().mT if which != "weight" else x
    w = w.mT.contiguous().mT if which != "input" else w
    leaves = x.requires_grad_(), w.requires_grad_()

    def program(x, w):
        return torch.sin(convolve(x * 1, w, padding=1) * 0.2)

    want = program(*leaves)
    with dovetail.use(trial="off"):
        got = dovetail.jit(program)(*leaves)
        torch.testing.assert_close(got, want, **TOLERANCE)
        for a, b in zip(*(torch.autograd.grad(out.square().sum(), leaves) for out in (got, want)), strict=True):
            torch.testing.assert_close(a, b, **TOLERANCE)


@pytest.mark.parametrize(("shape", "kernel", "stride"), [((1, 3, 2), 2, 1), ((2, 3, 4, 4), 4, 1), ((1, 2, 5, 5), 2, 3), ((2, 1, 6, 1), (3, 1), 1)])
def test_columns_are_no_view_of_the_image(shape, kernel, stride):
    agrees(lambda x: F.unfold(x, kernel, stride=stride).fill_(7), torch.randn(shape))

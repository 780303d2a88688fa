"""Interpolation: what PyTorch's own samples leave out."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from harness import agrees, gradients_agree, raises_as_eager

import dovetail

X = torch.randn(2, 3, 6, 7)
TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}


@pytest.mark.parametrize("layout", ["row-major", "channels last", "transposed"])
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic", "area"])
@pytest.mark.parametrize(
    "to", [{"scale_factor": 2}, {"scale_factor": (0.7, 1.3)}, {"size": (9, 4)}, {"scale_factor": 1.3, "recompute_scale_factor": True}]
)
def test_modes_and_layouts(layout, mode, to):
    x = {"row-major": X, "channels last": X.to(memory_format=torch.channels_last), "transposed": X.transpose(2, 3)}[layout]
    agrees(lambda x: F.interpolate(x, mode=mode, **to), x, **TOLERANCE)


@pytest.mark.parametrize("mode", ["linear", "bilinear", "trilinear", "bicubic"])
def test_aligned_corners(mode):
    x = {"linear": X[0], "trilinear": X[None]}.get(mode, X)
    size = (5,) * (x.ndim - 2)
    agrees(lambda x: F.interpolate(x, size, mode=mode, align_corners=True), x, **TOLERANCE)
    agrees(lambda x: F.interpolate(x, (1,) * (x.ndim - 2), mode=mode, align_corners=True), x, **TOLERANCE)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
@pytest.mark.parametrize("sizes", [(7, 19), (100, 301), (301, 100), (640, 213)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_positions_are_rounded_as_in_eager(mode, sizes, dtype):
    agrees(lambda x: F.interpolate(x, sizes[1], mode=mode), torch.randn(1, 1, sizes[0]).to(dtype))


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic", "area"])
def test_gradients(mode):
    gradients_agree(lambda x: F.interpolate(x, scale_factor=1.5, mode=mode), X, **TOLERANCE)


def test_bytes():
    x = torch.randint(0, 255, (1, 3, 5, 5), dtype=torch.uint8)
    agrees(lambda x: F.interpolate(x, scale_factor=2), x)
    assert torch.equal(
        dovetail.jit(lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"))(x), F.interpolate(x, scale_factor=2, mode="bilinear")
    )


def test_what_has_no_decomposition_runs_by_torchs_kernel():
    grid = torch.linspace(-1, 1, 40).view(2, 2, 5, 2)
    gradients_agree(lambda x: F.grid_sample(x, grid, align_corners=True), X, **TOLERANCE)
    gradients_agree(lambda t: F.affine_grid(t, (2, 3, 4, 4), align_corners=False), torch.randn(2, 2, 3), **TOLERANCE)
    gradients_agree(lambda x: F.interpolate(x, (3, 4), mode="bilinear", antialias=True), X, **TOLERANCE)


RESIZED = [("nearest", 1), ("nearest-exact", 1), ("linear", 1), ("nearest", 2), ("nearest-exact", 2), ("bilinear", 2), ("bicubic", 2)]
RESIZED += [("nearest", 3), ("nearest-exact", 3), ("trilinear", 3)]


@pytest.mark.parametrize("how", [{"scale_factor": 1.7}, {"size": 7}, {"size": 3}], ids=str)
@pytest.mark.parametrize("mode, rank", RESIZED)
@pytest.mark.parametrize("last", [False, True])
def test_a_program_resizes_and_differentiates_by_torchs_kernels(mode, rank, how, last):
    x = torch.randn(2, 3, *[5] * rank)
    x = x.contiguous(memory_format=torch.channels_last) if last and rank == 2 else x
    corners = {"align_corners": True} if "linear" in mode or mode == "bicubic" else {}
    fn = dovetail.jit(lambda x: F.interpolate(x, mode=mode, **corners, **how))
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    fn(ours).square().sum().backward()
    F.interpolate(theirs, mode=mode, **corners, **how).square().sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad)
    assert ours.grad.stride() == theirs.grad.stride()
    names = [line.symbol.name for trace in dovetail.last_backward_traces(fn)[-1:] for line in trace.lines]
    assert any("upsample" in name for name in names) and "index_add" not in names


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("widths", [(1, 2), (2, 0), (1, -1)])
def test_a_program_pads_with_what_is_there_as_eager(mode, rank, widths):
    gradients_agree(lambda x: F.pad(x, widths * rank, mode=mode), torch.randn(2, 3, *[5] * rank), **TOLERANCE)


BAD = {
    "neither": lambda x: F.interpolate(x),
    "both": lambda x: F.interpolate(x, 2, 2),
    "sizes": lambda x: F.interpolate(x, (2, 2, 2)),
    "negative": lambda x: F.interpolate(x, -1),
    "mode of another rank": lambda x: F.interpolate(x, 2, mode="linear"),
    "integers": lambda x: F.interpolate(x.long(), 2),
    "no elements": lambda x: F.interpolate(x[:, :, :0], 2),
}


@pytest.mark.parametrize("bad", BAD)
def test_errors_are_eagers(bad):
    raises_as_eager(BAD[bad], X)

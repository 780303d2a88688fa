"""Linear layers whose rows do not lie evenly are copied first, once; results of images lie as their meta promises; all are eager's."""

from __future__ import annotations

import itertools
import runpy

import pytest
import torch

import dovetail

F = torch.nn.functional
W, B = torch.randn(7, 6), torch.randn(7)
UNEVEN = {
    "batches and rows swapped": torch.randn(5, 4, 6).transpose(0, 1),
    "columns and rows swapped": torch.randn(4, 6, 5).transpose(1, 2),
    "four dimensions": torch.randn(2, 3, 5, 6).transpose(1, 2),
    "rows left out": torch.randn(4, 6, 6)[:, :5],
    "repeated": torch.randn(4, 1, 6).expand(4, 5, 6),
}
EVEN = {
    "in rows": torch.randn(4, 5, 6),
    "columns left out": torch.randn(4, 5, 12)[..., :6],
    "every other row": torch.randn(4, 10, 6)[:, ::2],
    "a transposed matrix": torch.randn(6, 5).t(),
    "nothing": torch.randn(5, 0, 6).transpose(0, 1),
}


def executed(fn, *args):
    ours = dovetail.jit(fn, executors=["torch"])
    with torch.no_grad():
        got, want = ours(*args), fn(*args)
    assert (got.shape, got.stride()) == (want.shape, want.stride())
    torch.testing.assert_close(got, want)
    return [line.symbol.name for line in dovetail.last_traces(ours)[-1].lines if line.implementation]


@pytest.mark.parametrize("name", UNEVEN)
@pytest.mark.parametrize("fn", [lambda x: F.linear(x, W, B), lambda x: F.linear(x, W), lambda x: x @ W.t()], ids=["bias", "no bias", "matmul"])
def test_uneven_rows_are_copied(name, fn):
    ran = executed(lambda x: fn(x), UNEVEN[name])
    assert ran.index("clone") < min(ran.index(each) for each in ("linear", "matmul") if each in ran)


@pytest.mark.parametrize("name", EVEN)
def test_even_rows_are_not(name):
    assert executed(lambda x: F.linear(x, W, B), EVEN[name]) == ["linear"]


def test_other_products_stay_as_they_are():
    x = UNEVEN["batches and rows swapped"]
    assert executed(lambda x: x @ torch.ones(4, 6, 3), x).count("clone") == 0
    assert executed(lambda x: F.linear(x, W[0]), x).count("clone") == 0


def test_all_who_read_the_same_rows_share_one_copy():
    ran = executed(lambda x: F.linear(x, W) * F.linear(x, -W, B), UNEVEN["batches and rows swapped"])
    assert ran.count("clone") == 1


def test_a_backward_copies_cotangents_whose_rows_lie_unevenly():
    x, w = torch.randn(4, 5, 6, requires_grad=True), W.clone().requires_grad_()
    fn = lambda x, w: F.linear(x, w, B).transpose(0, 1).contiguous().sin()  # noqa: E731
    ours = dovetail.jit(fn, executors=["torch"])
    for each in (ours, fn):
        each(x, w).sum().backward()
        if each is ours:
            got, x.grad, w.grad = (x.grad, w.grad), None, None
    torch.testing.assert_close(got, (x.grad, w.grad))
    assert "prepare torch" in [trace.made_by for trace in dovetail.last_backward_traces(ours)]


IMAGES = {  # operations whose results are channels last where an input is
    "conv2d": lambda x: F.conv2d(x, torch.ones(3, x.shape[1], 1, 1)),
    "conv2d, channels last": lambda x: F.conv2d(x, torch.ones(3, x.shape[1], 1, 1).to(memory_format=torch.channels_last)),
    "bicubic": lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"),
    "pool": lambda x: F.avg_pool2d(x, 1, ceil_mode=True, divisor_override=3),
    "cat": lambda x: torch.cat([x, x], 1),
}
FORMATS = {
    "row-major": lambda x: x,
    "channels last": lambda x: x.to(memory_format=torch.channels_last).clone(memory_format=torch.channels_last),
    "channels in front": lambda x: x.movedim(1, 0).contiguous().movedim(0, 1),
    "column-major": lambda x: x.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0),
    "odd steps": lambda x: x.as_strided(x.shape, [7 if n == 1 else s for n, s in zip(x.shape, x.stride())]),
}


@pytest.mark.parametrize("shape", [(1, 2, 4, 1), (2, 2, 1, 4), (1, 1, 4, 4), (1, 2, 4, 3)], ids=str)
@pytest.mark.parametrize("name", IMAGES)
def test_results_lie_as_their_meta_promises_whatever_the_strides_of_sizes_of_one(name, shape):
    fn = IMAGES[name]
    compiled = dovetail.jit(lambda x: fn(torch.sin(x)), executors=["torch"], interpretation="native")
    with dovetail.use(trial="off", check=True):
        for laid_out in FORMATS.values():
            x, ours = (laid_out(torch.linspace(-1, 1, 96)[: torch.Size(shape).numel()].reshape(shape)).requires_grad_() for _ in range(2))
            want, got = fn(torch.sin(x)), compiled(ours)
            torch.testing.assert_close(got, want)
            torch.testing.assert_close(torch.autograd.grad(got.sum(), ours), torch.autograd.grad(want.sum(), x))
            with torch.no_grad():
                torch.testing.assert_close(dovetail.jit(fn, executors=["torch"])(x), fn(x))


SEQUENCES = {  # operations that PyTorch runs as those of images of one row
    "conv1d": (F.conv1d, (2, 1, 5), (3, 1, 2)),
    "conv1d, kernel of one": (F.conv1d, (2, 3, 5), (3, 3, 1)),
    "conv1d, unbatched": (F.conv1d, (1, 5), (3, 1, 2)),
    "conv_transpose1d": (lambda x, w: F.conv_transpose1d(x, w, groups=2), (1, 2, 5), (2, 1, 2)),
    "avg_pool1d": (lambda x: F.avg_pool1d(x, 2, 1, 1), (2, 3, 1)),
    "adaptive_avg_pool1d": (lambda x: F.adaptive_avg_pool1d(x, 3), (2, 3, 1)),
    "adaptive_max_pool1d": (lambda x: F.adaptive_max_pool1d(x, 3), (2, 3, 1)),
}


@pytest.mark.parametrize("name", SEQUENCES)
def test_results_of_sequences_lie_as_their_meta_promises_whatever_the_strides_of_sizes_of_one(name):
    fn, *shapes = SEQUENCES[name]
    compiled = dovetail.jit(fn, executors=["torch"])
    with dovetail.use(trial="off", check=True):
        for inputs in itertools.product(*[_strided(torch.randn(shape)) for shape in shapes]):
            torch.testing.assert_close(compiled(*inputs), fn(*inputs))


def _strided(x):
    """Return the tensor with other strides where its size is 1: those that have its channels innermost among them."""
    at = next((d for d, n in enumerate(x.shape) if n == 1), None)
    steps = () if at is None else (1, 3, 7)
    return [x, *(x.as_strided(x.shape, [step if d == at else s for d, s in enumerate(x.stride())]) for step in steps)]


def test_a_saved_program_asks_no_strides_of_sizes_of_one(tmp_path):
    compiled = dovetail.jit(lambda x: F.conv2d(x, torch.ones(3, 1, 1, 1)), executors=["torch"])
    x = FORMATS["channels last"](torch.randn(1, 1, 4, 2))
    want = compiled(x)
    dovetail.last_traces(compiled)[-1].save(tmp_path / "executed.py")
    module = runpy.run_path(str(tmp_path / "executed.py"))

    assert "torch_exec.restrided_0_1_torch_nn_functional_conv2d(t0" in (tmp_path / "executed.py").read_text()
    torch.testing.assert_close(module["computation"](x), want)


SEQUENCE, IMAGE = torch.randn(1, 24, 4), torch.randn(1, 4, 4, 6)
LOOK_ALIKES = {  # images whose sizes above 1 have their channels innermost; those of size 1 decide whether they are channels last to PyTorch
    "channels last": lambda: IMAGE.to(memory_format=torch.channels_last),
    "tokens": lambda: SEQUENCE.transpose(1, 2).reshape(1, 4, 4, 6),
    "one of a batch of sequences": lambda: torch.randn(24, 3, 4).permute(1, 2, 0)[:1].unflatten(2, (4, 6)),
    "one image": lambda: torch.randn(4, 6, 4).permute(2, 0, 1)[None],
    "a signal of columns": lambda: torch.randn(2, 24, 4).transpose(1, 2)[..., None],
    "a signal of rows": lambda: torch.randn(2, 24, 4).transpose(1, 2)[:, :, None],
    "row-major": lambda: IMAGE,
}
KERNEL = torch.randn(5, 4, 1, 1)
FOLLOWED = {  # what shows the memory format of a result, or hands it on
    "convolution": lambda x: F.conv2d(x, KERNEL),
    "shifted": lambda x: F.max_pool2d(x + 1, 1),
    "activated": lambda x: F.max_pool2d(F.relu(x), 1),
    "batch norm": lambda x: F.batch_norm(x, torch.zeros(4), torch.ones(4)),
    "copied": lambda x: F.interpolate(x.clone(), scale_factor=2),
    "dropout": lambda x: F.dropout(F.conv2d(x, KERNEL), 0.5),
}


@pytest.mark.parametrize("name", FOLLOWED)
def test_images_are_channels_last_by_all_their_strides(name):
    """One compiled function, so that no program runs on images of another memory format."""
    fn = FOLLOWED[name]
    compiled = dovetail.jit(fn, executors=["torch"])
    for make in (*LOOK_ALIKES.values(), *reversed(LOOK_ALIKES.values())):
        x = make()
        with torch.random.fork_rng():
            want = fn(x)
        with torch.random.fork_rng():
            got = compiled(x)
        torch.testing.assert_close(got, want)
        assert _decisive_strides(got) == _decisive_strides(want)


def _decisive_strides(x):
    return [step for step, n in zip(x.stride(), x.shape) if n != 1]

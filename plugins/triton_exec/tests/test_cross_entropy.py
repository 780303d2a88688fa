"""The whole operation against eager: reductions, ignored classes, smoothing, weights, large vocabularies, low precision."""

import pytest
import torch
import torch.nn.functional as F
from triton_helpers import DEVICE, assert_same, needs_kernels

import dovetail
from dovetail_triton_exec import entropy

EX = entropy.operations_executor(devices=[DEVICE])


def case(rows, classes, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    logits = (torch.randn(rows, classes, generator=generator) * 3).to(dtype).to(DEVICE).requires_grad_()
    target = torch.randint(0, classes, (rows,), generator=generator)
    target[rows // 2] = -100
    return logits, target.to(DEVICE), torch.rand(classes, generator=generator).to(DEVICE)


def claimed(fn):
    names = {line.implementation.executor for line in dovetail.last_traces(fn)[-1].lines if line.implementation}
    return entropy.NAME in names


def assert_like_eager(logits, target, scale=1.0, **how):
    def loss(x, t):
        return F.cross_entropy(x, t, **how)

    ours = dovetail.jit(loss, executors=[EX, "torch"])
    results = []
    for fn in (ours, loss):
        out = fn(logits, target)
        g = torch.linspace(0.5, 2, out.numel(), device=DEVICE).reshape(out.shape).to(out.dtype)
        results.append((out.detach(), *torch.autograd.grad(out, logits, g)))
    assert claimed(ours)
    assert_same(results[0], results[1], scale=scale)


@needs_kernels
@pytest.mark.parametrize("reduction", ("mean", "sum", "none"))
@pytest.mark.parametrize("smoothing", (0.0, 0.1))
@pytest.mark.parametrize("weighted", (False, True))
def test_every_way(reduction, smoothing, weighted):
    logits, target, weight = case(9, 50)
    assert_like_eager(logits, target, 3, reduction=reduction, label_smoothing=smoothing, weight=weight if weighted else None)


@needs_kernels
@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16), ids=str)
def test_low_precision(dtype):
    logits, target, _ = case(9, 300, dtype)
    assert_like_eager(logits, target)


@needs_kernels
def test_a_vocabulary_that_takes_several_blocks():
    logits, target, _ = case(3, 40001)
    assert_like_eager(logits, target, 10, label_smoothing=0.1)


@needs_kernels
def test_another_class_is_ignored_and_rows_may_have_gaps():
    logits, target, _ = case(8, 100)
    assert_like_eager(logits, target.clamp(min=0) % 7, 3, ignore_index=3)
    wide = logits.detach()[:, ::1][::2].requires_grad_()
    assert_like_eager(wide, target[::2].clamp(min=0), 3)


@needs_kernels
def test_rows_with_infinities():
    logits, target, _ = case(4, 20)
    with torch.no_grad():
        logits[0, :10] = float("-inf")
        target[0] = 15
    assert_like_eager(logits, target, 3)


@needs_kernels
def test_everything_ignored_is_nan_as_in_eager():
    logits, target, _ = case(3, 20)
    ours = dovetail.jit(lambda x, t: F.cross_entropy(x, t), executors=[EX, "torch"])
    assert torch.isnan(ours(logits, torch.full_like(target, -100)))


@needs_kernels
def test_a_class_out_of_bounds_is_an_error():
    if DEVICE == "cuda":
        pytest.skip("an index out of bounds stops the whole CUDA context")
    logits, target, _ = case(3, 20)
    ours = dovetail.jit(lambda x, t: F.cross_entropy(x, t), executors=[EX, "torch"])
    with pytest.raises(Exception, match="index 20 is out of bounds"):
        ours(logits, torch.full_like(target, 20))


REFUSED = {
    "expected tensors of": lambda x, t: F.cross_entropy(x.double(), t),
    "expected logits of shape": lambda x, t: F.cross_entropy(x[None].transpose(1, 2), t[None].expand(1, 9)[:, :9]),
    "expected int64 classes": lambda x, t: F.cross_entropy(x, torch.softmax(x, -1)),
    "expected reduction= in place": lambda x, t: F.cross_entropy(x, t, size_average=True),
}


@pytest.mark.filterwarnings("ignore:size_average")
@pytest.mark.parametrize("sentence", REFUSED)
def test_a_refusal_is_a_sentence(sentence):
    ex = entropy.operations_executor(devices=["cpu"])
    logits, target = torch.randn(9, 50), torch.randint(0, 50, (9,))
    fn = dovetail.jit(REFUSED[sentence], executors=[ex, "torch"])
    fn(logits, target)
    assert sentence in str(dovetail.explain(fn))

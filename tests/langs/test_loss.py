"""Losses: what PyTorch's own samples leave out."""

from __future__ import annotations

import itertools
import math

import harness
import pytest
import torch
import torch.nn.functional as F
from harness import agrees, raises_as_eager

import dovetail

torch.manual_seed(0)
X, Y = torch.randn(4, 5), torch.randn(4, 5)
LOGITS, CLASSES, WEIGHT = torch.randn(6, 5), torch.tensor([0, 4, -100, 2, 2, 1]), torch.rand(5)
IMAGES, LABELS = torch.randn(2, 5, 3, 4), torch.randint(0, 5, (2, 3, 4))
REDUCTIONS = ("none", "mean", "sum")


def gradients(fn, *args):
    args = [x.clone().requires_grad_(x.is_floating_point()) for x in args]
    fn(*args).sum().backward()
    return [x.grad for x in args if x.requires_grad]


def gradients_agree(fn, *args) -> None:
    got = gradients(dovetail.jit(fn, executors=[harness.prims_only()]), *args)
    torch.testing.assert_close(got, gradients(fn, *args), rtol=1e-5, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("smoothing", [0.0, 0.3, -0.5])
@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["even", "weighted"])
def test_cross_entropy_of_classes(reduction, smoothing, weight):
    def loss(x, target):
        return F.cross_entropy(x, target, weight, reduction=reduction, label_smoothing=smoothing)

    for x, target in ((LOGITS, CLASSES), (IMAGES, LABELS), (LOGITS[0], CLASSES[0])):
        agrees(loss, x, target)
    gradients_agree(loss, LOGITS, CLASSES)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("smoothing", [0.0, 0.3, -0.5])
def test_cross_entropy_of_probabilities(reduction, smoothing):
    def loss(x, target):
        return F.cross_entropy(x, target, WEIGHT, reduction=reduction, label_smoothing=smoothing)

    for x in (LOGITS, IMAGES, LOGITS[0]):
        agrees(loss, x, x.softmax(0))
    gradients_agree(loss, LOGITS, LOGITS.softmax(1))


@pytest.mark.parametrize("loss", [F.cross_entropy, F.nll_loss])
def test_an_ignored_class_counts_nowhere(loss):
    for ignored in (2, 0, -1, 7):
        target = torch.where(CLASSES < 0, torch.tensor(ignored), CLASSES)
        agrees(lambda x, t, ignored=ignored: [loss(x, t, WEIGHT, ignore_index=ignored, reduction=how) for how in REDUCTIONS], LOGITS, target)


@pytest.mark.parametrize("loss", [F.nll_loss, F.cross_entropy], ids=lambda loss: loss.__name__)
@pytest.mark.parametrize("shape", [(5, 1), (1, 5), (5, 1, 1)])
def test_weights_of_pixels_are_counted_whatever_their_shape(loss, shape):
    agrees(lambda x, t, w: loss(x, t, w), IMAGES, LABELS, torch.linspace(0.5, 1.5, 5).view(shape))
    agrees(lambda x, t, w: loss(x, t, w), IMAGES[:, :1], LABELS * 0, torch.tensor(0.7))


@pytest.mark.parametrize(
    "fn",
    [
        lambda w: F.cross_entropy(LOGITS, CLASSES, w),
        lambda w: F.cross_entropy(IMAGES, LABELS, w[:1]),
        lambda w: F.cross_entropy(IMAGES, IMAGES.softmax(1), w),
        lambda w: F.cross_entropy(IMAGES, LABELS, w, label_smoothing=0.3),
    ],
    ids=["rows", "another count", "probabilities", "smoothing"],
)
def test_weights_of_another_shape_are_refused_elsewhere(fn):
    raises_as_eager(fn, torch.ones(5, 1))


@pytest.mark.parametrize("loss", [F.cross_entropy, F.nll_loss])
@pytest.mark.parametrize("weight", [math.inf, -math.inf, math.nan])
def test_an_ignored_class_has_no_gradient_whatever_its_weight(loss, weight):
    for ignored, reduction in itertools.product((2, 0, -100), REDUCTIONS):
        for (x, target), at in itertools.product(((LOGITS, CLASSES), (IMAGES, LABELS), (IMAGES[..., 0], LABELS[..., 0])), (0, 2)):
            classes = torch.where(target < 0, torch.tensor(ignored), target)
            weights = WEIGHT.index_fill(0, torch.tensor(at), weight)
            gradients_agree(lambda x, w=weights, t=classes, i=ignored, r=reduction: loss(x, t, w, ignore_index=i, reduction=r), x)


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_the_losses_of_each_position_are_row_major(smoothing):
    target = LABELS[..., 0].t().contiguous().t()
    for x in (IMAGES[..., 0], IMAGES[..., 0].transpose(1, 2).contiguous().transpose(1, 2)):
        agrees(lambda x, t: F.cross_entropy(x, t, reduction="none", label_smoothing=smoothing), x, target)
        agrees(lambda x, t: F.cross_entropy(x, t, reduction="none", label_smoothing=smoothing), x.clone().requires_grad_(), target)


def test_nothing_but_ignored_classes_is_nan_and_an_empty_batch_too():
    agrees(F.cross_entropy, LOGITS, torch.full((6,), -100))
    agrees(F.nll_loss, LOGITS[:0], CLASSES[:0])
    agrees(lambda x, t: F.cross_entropy(x, t, reduction="sum"), LOGITS[:0], CLASSES[:0])


def test_classes_may_be_bytes():
    agrees(F.cross_entropy, LOGITS, CLASSES.clamp(0).byte())


def test_a_class_out_of_range_raises_when_it_runs():
    for way in harness.ways().values():
        with pytest.raises((IndexError, RuntimeError), match="out of bounds"):
            harness.ours(F.cross_entropy, (LOGITS, CLASSES + 3), {}, way)


def test_cross_entropy_of_bfloat16_is_rounded_once():
    x = IMAGES.bfloat16()
    got = harness.ours(F.cross_entropy, (x, LABELS), {}, harness.ways()["decomposed"]).leaves[0]
    torch.testing.assert_close(got, F.cross_entropy(x.float(), LABELS).bfloat16())


def test_large_logits_do_not_overflow():
    agrees(F.cross_entropy, LOGITS * 1e4, CLASSES)
    agrees(F.binary_cross_entropy_with_logits, X * 1e4, Y.sigmoid())


PAIRS = {
    "mse": F.mse_loss,
    "l1": F.l1_loss,
    "smooth_l1": lambda x, y, **how: F.smooth_l1_loss(x, y, beta=0.5, **how),
    "huber": lambda x, y, **how: F.huber_loss(x, y, delta=0.5, **how),
    "bce_with_logits": lambda x, y, **how: F.binary_cross_entropy_with_logits(x, y.sigmoid(), WEIGHT, pos_weight=WEIGHT * 2, **how),
    "bce": lambda x, y, **how: F.binary_cross_entropy(x.sigmoid(), y.sigmoid(), WEIGHT, **how),
    "kl": lambda x, y, **how: F.kl_div(x, y.softmax(1), **how),
    "kl_log": lambda x, y, **how: F.kl_div(x, y, log_target=True, **how),
    "poisson": F.poisson_nll_loss,
    "poisson_full": lambda x, y, **how: F.poisson_nll_loss(x.exp(), y.abs() * 3, log_input=False, full=True, **how),
    "gaussian": lambda x, y, **how: F.gaussian_nll_loss(x, y, (x * y).abs(), full=True, eps=0.1, **how),
    "soft_margin": lambda x, y, **how: F.soft_margin_loss(x, y.sign().detach(), **how),
    "hinge": lambda x, y, **how: F.hinge_embedding_loss(x, y.sign().detach(), **how),
    "margin": lambda x, y, **how: F.margin_ranking_loss(x, y, x.sign().detach(), 0.3, **how),
    "cosine": lambda x, y, **how: F.cosine_embedding_loss(x, y, x.sign()[:, 0].detach(), 0.1, **how),
    "triplet": lambda x, y, **how: F.triplet_margin_loss(x, y, x * y, swap=True, **how),
    "triplet_3": lambda x, y, **how: F.triplet_margin_loss(x, y, x * y, p=3, **how),
}


@pytest.mark.filterwarnings("ignore:reduction")
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("name", PAIRS)
def test_losses_and_their_gradients_are_eagers(name, reduction):
    def loss(x, y):
        return PAIRS[name](x, y, reduction=reduction)

    agrees(loss, X, Y, rtol=1e-5, atol=1e-6)
    gradients_agree(loss, X, Y)


@pytest.mark.filterwarnings("ignore:size_average")
@pytest.mark.parametrize("flags", [{"size_average": False}, {"size_average": True}, {"reduce": False}], ids=str)
def test_kl_div_divides_by_the_batch_whatever_the_deprecated_flags_are(flags):
    def loss(x, y):
        return F.kl_div(x, y.softmax(1), reduction="batchmean", **flags)

    agrees(loss, X, Y, rtol=1e-5, atol=1e-6)
    gradients_agree(loss, X, Y)


@pytest.mark.parametrize("loss", [F.mse_loss, F.huber_loss])  # l1_loss does not tell overrides about its weight
def test_weights_and_their_mean(loss):
    for how in REDUCTIONS:
        agrees(lambda x, y, w, how=how: loss(x, y, reduction=how, weight=w), X, Y, Y.abs())


def test_products_of_small_integers_wrap_around_in_a_cosine():
    x, y = (torch.tensor([[200, 3, n]], dtype=torch.uint8) for n in (100, 7))
    agrees(F.cosine_embedding_loss, x, y, torch.tensor([1]))


def test_logarithms_of_certain_probabilities_are_bounded():
    agrees(lambda x, y: F.binary_cross_entropy(x, y, reduction="none"), torch.tensor([0.0, 0.0, 1.0, 1.0]), torch.tensor([0.0, 1.0, 0.0, 1.0]))


def test_the_mean_of_no_losses_is_nan():
    assert math.isnan(dovetail.jit(F.mse_loss)(X[:0], Y[:0]))


def test_sizes_that_differ_warn_as_in_eager():
    with pytest.warns(UserWarning, match="different to the input size"):
        dovetail.make_trace(F.mse_loss)(X, Y[0])


@pytest.mark.filterwarnings("ignore:size_average")
def test_the_flags_before_reduction_still_count():
    agrees(lambda x, y: (F.l1_loss(x, y, size_average=False), F.mse_loss(x, y, reduce=False), F.kl_div(x, y, size_average=True)), X, Y.exp())


@pytest.mark.parametrize("var", [1.5, X.abs()[:, 0], X.abs()[:, :1]], ids=["number", "a row each", "kept dim"])
def test_the_variance_may_be_smaller_than_the_input(var):
    agrees(lambda x, y: F.gaussian_nll_loss(x, y, var), X, Y)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, t: F.cross_entropy(x, t[:3]),
        lambda x, t: F.cross_entropy(x, t[:, None]),
        lambda x, t: F.cross_entropy(x, t.int()),
        lambda x, t: F.cross_entropy(x, t, WEIGHT[:3]),
        lambda x, t: F.cross_entropy(x, t, WEIGHT.double()),
        lambda x, t: F.cross_entropy(x, t, label_smoothing=1.5),
        lambda x, t: F.cross_entropy(x, t, reduction="average"),
        lambda x, t: F.cross_entropy(x.long(), t),
        lambda x, t: F.cross_entropy(x, x.long()),
        lambda x, t: F.cross_entropy(x, x, ignore_index=1),
        lambda x, t: F.nll_loss(x[0, 0], t[0]),
        lambda x, t: F.mse_loss(x, x[:, :3]),
        lambda x, t: F.mse_loss(x, x, weight=WEIGHT),
        lambda x, t: F.mse_loss(t, t),
        lambda x, t: F.smooth_l1_loss(x, x, beta=-1.0),
        lambda x, t: F.huber_loss(x, x, delta=0.0),
        lambda x, t: F.binary_cross_entropy(x, x[0]),
        lambda x, t: F.binary_cross_entropy(x, x.double()),
        lambda x, t: F.binary_cross_entropy_with_logits(x, x[0]),
        lambda x, t: F.kl_div(t, t),
        lambda x, t: F.kl_div(x, x, reduction="batch"),
        lambda x, t: F.margin_ranking_loss(x, x, x[0]),
        lambda x, t: F.cosine_embedding_loss(x, x, x),
        lambda x, t: F.gaussian_nll_loss(x, x, x[:3]),
        lambda x, t: F.gaussian_nll_loss(x, x, -1.0),
        lambda x, t: F.triplet_margin_loss(x, x, x, margin=-1.0),
        lambda x, t: F.triplet_margin_loss(x, x, x[0]),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_bad_input_raises_as_in_eager(fn):
    raises_as_eager(fn, LOGITS, CLASSES)


def test_l1_loss_keeps_the_weight_that_torch_forgets_to_hand_over():
    x, y, w = torch.randn(3), torch.randn(3), torch.rand(3)
    fn = torch.nn.functional.l1_loss
    torch.testing.assert_close(dovetail.jit(lambda x, y, w: fn(x, y, weight=w))(x, y, w), fn(x, y, weight=w))
    torch.testing.assert_close(dovetail.jit(lambda x, y: fn(x, y, reduction="sum"))(x, y), fn(x, y, reduction="sum"))


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, t: F.kl_div(x, t, reduction="none"),
        lambda x, t: torch.xlogy(t, x),
        lambda x, t: torch.special.xlog1py(t, x),
    ],
)
def test_no_gradient_of_a_logarithm_comes_from_where_the_cotangent_is_zero(fn):
    weights = torch.tensor([0.0, 1.0, 0.0, 1.0])
    grads = []
    for f in (fn, dovetail.jit(fn)):
        x, t = (torch.tensor(values, requires_grad=True) for values in ([-2.0, 0.3, -0.5, 0.0], [-1.0, 0.5, 0.0, 2.0]))
        grads.append(torch.autograd.grad((f(x, t) * weights).sum(), (x, t)))
    for got, want in zip(*grads, strict=True):
        torch.testing.assert_close(got, want, equal_nan=True)


def test_products_of_integers_wrap_as_in_eager():
    x, target = torch.tensor([9, 100], dtype=torch.uint8), torch.tensor([107, 3], dtype=torch.uint8)
    program = dovetail.jit(lambda x, target: F.poisson_nll_loss(x, target, log_input=True, reduction="none"), executors=["llvm", "torch"])
    assert torch.equal(program(x, target), F.poisson_nll_loss(x, target, log_input=True, reduction="none"))


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_a_smoothed_cross_entropy_of_no_classes_is_that_of_eager_mode(reduction):
    def loss(x, target):
        return F.cross_entropy(x, target, reduction=reduction, label_smoothing=0.1)

    x, target = torch.zeros(0, 0), torch.zeros(0, dtype=torch.int64)
    torch.testing.assert_close(dovetail.jit(loss)(x, target), loss(x, target), equal_nan=True)

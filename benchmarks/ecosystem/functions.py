"""Functions that are called inside compiled code: metrics, augmentation, schedulers, distributions, einops."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import diffusers
import einops
import kornia
import torch
import torchmetrics
import torchmetrics.functional as metrics
from cases import Case, Collection
from torch import distributions

collection = Collection("torchmetrics")


def cases() -> list[Case]:
    return collection.cases


def rand(*shape: int) -> Callable[[], torch.Tensor]:
    return lambda: torch.rand(*shape)


def scores() -> torch.Tensor:
    return torch.randn(12, 4).softmax(1)


def labels() -> torch.Tensor:
    return torch.randint(0, 4, (12,))


def bits() -> torch.Tensor:
    return torch.randint(0, 2, (12,))


for each in ("accuracy", "f1_score", "precision", "recall", "specificity", "confusion_matrix", "cohen_kappa", "matthews_corrcoef", "jaccard_index"):
    collection.function(each, partial(getattr(metrics, each), task="multiclass", num_classes=4), scores, labels)
for each in ("auroc", "average_precision", "hamming_distance", "calibration_error"):
    collection.function(each, partial(getattr(metrics, each), task="binary"), rand(12), bits)
for each in (
    "mean_squared_error",
    "mean_absolute_error",
    "r2_score",
    "explained_variance",
    "pearson_corrcoef",
    "spearman_corrcoef",
    "kendall_rank_corrcoef",
):
    collection.function(each, getattr(metrics, each), rand(12), rand(12))
for each in ("mean_absolute_percentage_error", "mean_squared_log_error", "concordance_corrcoef", "log_cosh_error", "peak_signal_noise_ratio"):
    collection.function(each, getattr(metrics, each), rand(12), rand(12))
collection.function("cosine_similarity", metrics.cosine_similarity, rand(4, 3), rand(4, 3))
collection.function("kl_divergence", lambda p, q: metrics.kl_divergence(p.softmax(1), q.softmax(1)), rand(4, 3), rand(4, 3))
collection.function("structural_similarity", metrics.structural_similarity_index_measure, rand(1, 1, 16, 16), rand(1, 1, 16, 16))
collection.function("total_variation", metrics.total_variation, rand(1, 3, 8, 8))
collection.function("signal_noise_ratio", metrics.signal_noise_ratio, rand(2, 50), rand(2, 50))
collection.function("scale_invariant_signal_distortion_ratio", metrics.scale_invariant_signal_distortion_ratio, rand(2, 50), rand(2, 50))
collection.function("pairwise_cosine_similarity", metrics.pairwise_cosine_similarity, rand(4, 3), rand(5, 3))
collection.function("perplexity", metrics.text.perplexity, rand(2, 5, 7), lambda: torch.randint(0, 7, (2, 5)))
collection.function("retrieval_ndcg", metrics.retrieval_normalized_dcg, rand(8), lambda: torch.randint(0, 2, (8,)))


def counted(p, t):
    metric = torchmetrics.classification.MulticlassAccuracy(4)
    metric.update(p, t)
    return metric.compute()


collection.function("a metric created inside", counted, scores, labels)


def image() -> torch.Tensor:
    return torch.rand(2, 3, 16, 16)


for name, fn in {
    "rgb_to_hsv": kornia.color.rgb_to_hsv,
    "rgb_to_lab": kornia.color.rgb_to_lab,
    "rgb_to_ycbcr": kornia.color.rgb_to_ycbcr,
    "gaussian_blur2d": lambda x: kornia.filters.gaussian_blur2d(x, (3, 3), (1.0, 1.0)),
    "median_blur": lambda x: kornia.filters.median_blur(x, (3, 3)),
    "sobel": kornia.filters.sobel,
    "canny": kornia.filters.canny,
    "laplacian": lambda x: kornia.filters.laplacian(x, 3),
    "unsharp_mask": lambda x: kornia.filters.unsharp_mask(x, (3, 3), (1.0, 1.0)),
    "bilateral_blur": lambda x: kornia.filters.bilateral_blur(x, (3, 3), 0.1, (1.0, 1.0)),
    "dilation": lambda x: kornia.morphology.dilation(x, torch.ones(3, 3)),
    "rotate": lambda x: kornia.geometry.transform.rotate(x, torch.tensor([30.0, 10.0])),
    "warp_perspective": lambda x: kornia.geometry.transform.warp_perspective(x, torch.eye(3).expand(2, 3, 3), (16, 16)),
    "resize": lambda x: kornia.geometry.transform.resize(x, (8, 8)),
    "equalize": kornia.enhance.equalize,
    "adjust_gamma": lambda x: kornia.enhance.adjust_gamma(x, 0.8),
    "normalize_min_max": kornia.enhance.normalize_min_max,
    "harris_response": kornia.feature.harris_response,
    "ssim": lambda x: kornia.metrics.ssim(x, x.flip(-1), 5),
}.items():
    collection.function(name, fn, image, library="kornia")
collection.function("so3 from quaternions", kornia.geometry.conversions.quaternion_to_rotation_matrix, rand(3, 4), library="kornia")
collection.function(
    "focal_loss", lambda p, t: kornia.losses.focal_loss(p, t, 0.5, reduction="mean"), rand(6, 4), lambda: torch.randint(0, 4, (6,)), library="kornia"
)
collection.function("dice_loss", kornia.losses.dice_loss, rand(2, 3, 8, 8), lambda: torch.randint(0, 3, (2, 8, 8)), library="kornia")
collection.function("find_homography", kornia.geometry.find_homography_dlt, rand(1, 6, 2), rand(1, 6, 2), library="kornia")


SCHEDULERS = ("DDPMScheduler", "DDIMScheduler", "EulerDiscreteScheduler", "EulerAncestralDiscreteScheduler", "PNDMScheduler", "LMSDiscreteScheduler")
SCHEDULERS += ("HeunDiscreteScheduler", "DPMSolverMultistepScheduler", "UniPCMultistepScheduler", "FlowMatchEulerDiscreteScheduler")


def denoise(kind: str) -> Callable:
    """Return a loop over all steps of a scheduler created outside."""
    scheduler = getattr(diffusers, kind)()

    def loop(sample, noise):
        scheduler.set_timesteps(4)
        for step in scheduler.timesteps:
            sample = scheduler.step(noise * 0.1, step, sample).prev_sample
        return sample

    return loop


def one_step(kind: str) -> Callable:
    """Return a step of a scheduler created inside."""

    def step(sample, noise):
        scheduler = getattr(diffusers, kind)()
        scheduler.set_timesteps(4)
        return scheduler.step(noise, scheduler.timesteps[0], sample).prev_sample

    return step


for kind in SCHEDULERS:

    @collection.add(f"{kind}, all steps", library="diffusers", modes=("call",))
    def steps(kind=kind):
        return denoise(kind), (torch.randn(1, 3, 4, 4), torch.randn(1, 3, 4, 4)), {}

    collection.function(f"{kind} created inside", one_step(kind), rand(1, 3, 4, 4), rand(1, 3, 4, 4), library="diffusers")
collection.function(
    "add_noise", diffusers.DDPMScheduler().add_noise, rand(2, 3, 4, 4), rand(2, 3, 4, 4), lambda: torch.tensor([3, 500]), library="diffusers"
)


def density(kind: str) -> Callable:
    """Return a function that makes a distribution with its checks, draws from it and asks for densities."""

    def call(first, second):
        distribution = getattr(distributions, kind)(*(first, second)[: PARAMETERS[kind]])
        drawn = distribution.sample()
        return drawn, distribution.log_prob(drawn)

    return call


PARAMETERS = {
    "Normal": 2,
    "Gamma": 2,
    "Beta": 2,
    "Laplace": 2,
    "Gumbel": 2,
    "Exponential": 1,
    "Poisson": 1,
    "Bernoulli": 1,
    "Categorical": 1,
    "Dirichlet": 1,
}
PARAMETERS |= {"LogNormal": 2, "Cauchy": 2, "StudentT": 1, "Geometric": 1, "HalfNormal": 1, "Weibull": 2, "Kumaraswamy": 2, "VonMises": 2}
for kind in PARAMETERS:
    collection.function(kind, density(kind), lambda: torch.rand(4, 3) * 0.5 + 0.2, lambda: torch.rand(4, 3) + 0.2, library="torch")
collection.function(
    "kl of two normals",
    lambda a, b: distributions.kl_divergence(distributions.Normal(a, b), distributions.Normal(b, a)),
    lambda: torch.rand(3) + 0.1,
    lambda: torch.rand(3) + 0.1,
    library="torch",
)

for name, fn in {
    "rearrange": lambda x: einops.rearrange(x, "b (h p) (w q) -> b (h w) (p q)", p=2, q=3),
    "reduce": lambda x: einops.reduce(x, "b (h p) w -> b h w", "mean", p=2),
    "repeat": lambda x: einops.repeat(x, "b h w -> b h w c", c=3),
    "pack and unpack": lambda x: einops.unpack(*einops.pack([x, x * 2], "b * w"), "b * w"),
    "einsum": lambda x: einops.einsum(x, x, "b h w, b h v -> b w v"),
}.items():
    collection.function(name, fn, rand(2, 4, 6), library="einops")

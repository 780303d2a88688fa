"""Functions and networks of other libraries, held back: torchvision, torchmetrics, kornia, diffusers' schedulers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import diffusers
import kornia
import torch
import torchmetrics
import torchmetrics.functional as metrics
from cases import Case, Collection
from parts import hold_back
from torch import nn
from torchvision import ops, utils
from torchvision.models import feature_extraction, get_model
from torchvision.transforms.v2 import functional as images

collection = Collection("torchvision")
network = partial(hold_back, collection)


def cases() -> list[Case]:
    return collection.cases


def photo(batch: int) -> torch.Tensor:
    return torch.rand(batch, 3, 16, 16)


def pixels(batch: int) -> torch.Tensor:
    return torch.randint(0, 256, (3, 20, 10 + batch), dtype=torch.uint8)


def large(batch: int) -> torch.Tensor:
    return torch.randn(batch, 3, 64, 64)


def boxes(count: int) -> torch.Tensor:
    corners = torch.randint(0, 8, (count, 2)).float()
    return torch.cat([corners, corners + torch.randint(1, 9, (count, 2))], 1)


def add(library: str, name: str, fn: Callable, *makers: Callable[[int], Any]) -> None:
    """Add a call of `fn`, with arguments for batches of several sizes."""
    network(library, name, lambda: fn, *makers, modes=("call",))


add("torchvision", "functional.affine", lambda x: images.affine(x, 20.0, [2, -1], 1.2, [5.0, 3.0]), photo)
add("torchvision", "functional.rotate, expanded", lambda x: images.rotate(x, 35.0, expand=True), photo)
add("torchvision", "functional.adjust_hue", lambda x: images.adjust_hue(x, 0.2), photo)
add("torchvision", "functional.posterize and solarize", lambda x: images.solarize(images.posterize(x, 3), 100), pixels)
add("torchvision", "functional.autocontrast", lambda x: images.equalize(images.autocontrast(x)), pixels)
add("torchvision", "functional.gaussian_blur", lambda x: images.gaussian_blur(x, [3, 5], [0.5, 1.5]), pixels)
add("torchvision", "functional.resized_crop", lambda x: images.resized_crop(x, 2, 3, 10, 9, [8, 8], antialias=True), photo)
add("torchvision", "functional.to_dtype and normalize", lambda x: images.normalize(images.to_dtype(x, scale=True), [0.5] * 3, [0.2] * 3), pixels)
add("torchvision", "utils.make_grid", lambda x: utils.make_grid(x, nrow=2, normalize=True, scale_each=True), photo)
add("torchvision", "utils.draw_segmentation_masks", lambda x: utils.draw_segmentation_masks(x, x > 200, alpha=0.4, colors=["red"] * 3), pixels)
add("torchvision", "utils.flow_to_image", lambda x: utils.flow_to_image(x), lambda batch: torch.randn(batch, 2, 8, 8))
add("torchvision", "ops.nms of sorted scores", lambda b, s: b[ops.nms(b, s, 0.3)[:2]], lambda n: boxes(n + 6), lambda n: torch.rand(n + 6))
add("torchvision", "ops.roi_align, aligned", lambda f, b: ops.roi_align(f, [b, b + 1], 3, 0.5, 2, True), lambda _: photo(2), boxes)
network(
    "torchvision",
    "DropBlock3d and StochasticDepth",
    lambda: nn.Sequential(ops.Conv3dNormActivation(3, 4), ops.DropBlock3d(0.3, 3), ops.StochasticDepth(0.3, "row")),
    lambda n: torch.randn(n, 3, 4, 8, 8),
)
network("torchvision", "FrozenBatchNorm2d", lambda: nn.Sequential(nn.Conv2d(3, 4, 3), ops.FrozenBatchNorm2d(4), nn.ReLU()), photo)
network(
    "torchvision",
    "create_feature_extractor",
    lambda: feature_extraction.create_feature_extractor(get_model("resnet18", weights=None), {"layer1": "low", "layer3": "high"}),
    large,
)
network("torchvision", "resnet18 with group norm", lambda: get_model("resnet18", weights=None, norm_layer=partial(nn.GroupNorm, 4)), large)


def chances(batch: int) -> torch.Tensor:
    return torch.rand(batch + 5)


def positive(batch: int) -> torch.Tensor:
    return torch.rand(batch + 5) + 0.1


def several(batch: int) -> torch.Tensor:
    return torch.rand(batch + 5, 3)


def several_bits(batch: int) -> torch.Tensor:
    return torch.randint(0, 2, (batch + 5, 3))


def bits(batch: int) -> torch.Tensor:
    return torch.randint(0, 2, (batch + 5,))


def scores(batch: int) -> torch.Tensor:
    return torch.randn(batch + 5, 3)


def labels(batch: int) -> torch.Tensor:
    return torch.randint(0, 3, (batch + 5,))


for name, fn, *makers in (
    (
        "multilabel stat scores",
        partial(metrics.stat_scores, task="multilabel", num_labels=3),
        lambda n: torch.rand(n + 5, 3),
        lambda n: torch.randint(0, 2, (n + 5, 3)),
    ),
    ("hinge_loss", partial(metrics.hinge_loss, task="multiclass", num_classes=3), scores, labels),
    ("roc of thresholds", partial(metrics.roc, task="binary", thresholds=5), chances, bits),
    ("precision_recall_curve", partial(metrics.precision_recall_curve, task="binary"), chances, bits),
    ("tweedie_deviance_score", partial(metrics.tweedie_deviance_score, power=1.5), positive, positive),
    ("spectral_angle_mapper", metrics.spectral_angle_mapper, photo, photo),
    ("retrieval_reciprocal_rank", metrics.retrieval_reciprocal_rank, chances, bits),
    ("pairwise_euclidean_distance", metrics.pairwise_euclidean_distance, lambda n: torch.randn(n, 4)),
):
    add("torchmetrics", name, fn, *makers)


def collected(p: torch.Tensor, t: torch.Tensor) -> dict[str, torch.Tensor]:
    """Update a collection of metrics that is created inside."""
    group = torchmetrics.MetricCollection(
        {"accuracy": torchmetrics.Accuracy("multiclass", num_classes=3), "mean": torchmetrics.F1Score("multiclass", num_classes=3)}
    )
    group.update(p, t)
    return group.compute()


add("torchmetrics", "MetricCollection", collected, scores, labels)

for name, fn in {
    "rgb_to_hls": kornia.color.rgb_to_hls,
    "rgb_to_luv and back": lambda x: kornia.color.luv_to_rgb(kornia.color.rgb_to_luv(x)),
    "box_blur and spatial_gradient": lambda x: kornia.filters.spatial_gradient(kornia.filters.box_blur(x, (3, 3))),
    "motion_blur": lambda x: kornia.filters.motion_blur(x, 5, 35.0, 0.5),
    "closing": lambda x: kornia.morphology.closing(x, torch.ones(3, 3)),
    "pyrdown": kornia.geometry.transform.pyrdown,
    "spatial_soft_argmax2d": kornia.geometry.subpix.spatial_soft_argmax2d,
    "sharpness": lambda x: kornia.enhance.sharpness(x, 0.7),
    "equalize_clahe": lambda x: kornia.enhance.equalize_clahe(x, 4.0, (2, 2)),
    "RandomAffine": kornia.augmentation.RandomAffine(20.0, p=1.0),
    "ColorJiggle": kornia.augmentation.ColorJiggle(0.1, 0.1, 0.1, 0.1, p=1.0),
}.items():
    add("kornia", name, fn, photo)
add("kornia", "axis_angle_to_rotation_matrix", kornia.geometry.conversions.axis_angle_to_rotation_matrix, lambda n: torch.randn(n, 3))
add("kornia", "lovasz_softmax_loss", kornia.losses.lovasz_softmax_loss, lambda n: torch.randn(n, 3, 6, 6), lambda n: torch.randint(0, 3, (n, 6, 6)))


def schedule(kind: str, **options: Any) -> Callable:
    """Return a loop over all steps of a scheduler created inside."""

    def loop(sample: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        scheduler = getattr(diffusers, kind)(**options)
        scheduler.set_timesteps(3)
        for step in scheduler.timesteps:
            sample = scheduler.step(noise * 0.1, step, scheduler.scale_model_input(sample, step)).prev_sample
        return sample

    return loop


for kind, options in {
    "DDIMScheduler": {"beta_schedule": "squaredcos_cap_v2", "prediction_type": "v_prediction", "clip_sample": False},
    "DEISMultistepScheduler": {},
    "DPMSolverSinglestepScheduler": {},
    "KDPM2DiscreteScheduler": {},
    "LCMScheduler": {},
    "EulerDiscreteScheduler": {"use_karras_sigmas": True},
    "EDMEulerScheduler": {},
}.items():
    add("diffusers", f"{kind}, other options", schedule(kind, **options), lambda n: torch.randn(n, 3, 4, 4), lambda n: torch.randn(n, 3, 4, 4))

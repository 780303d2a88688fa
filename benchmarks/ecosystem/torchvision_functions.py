"""torchvision: operations on boxes and features, losses, layers, and transforms of version 2 on tensors."""

from __future__ import annotations

from collections.abc import Callable

import torch
from cases import Case, Collection
from torch import nn
from torchvision import ops
from torchvision.transforms import v2

collection = Collection("torchvision")


def cases() -> list[Case]:
    return collection.cases


def boxes(count: int) -> Callable[[], torch.Tensor]:
    def build() -> torch.Tensor:
        corners = torch.rand(count, 2) * 20
        return torch.cat([corners, corners + 1 + torch.rand(count, 2) * 20], 1)

    return build


def rand(*shape: int) -> Callable[[], torch.Tensor]:
    return lambda: torch.rand(*shape)


def value(each):
    return lambda: each


PAIRS = (ops.box_iou, ops.generalized_box_iou, ops.distance_box_iou, ops.complete_box_iou)
LOSSES = (ops.generalized_box_iou_loss, ops.distance_box_iou_loss, ops.complete_box_iou_loss)
for each in PAIRS:
    collection.function(f"ops.{each.__name__}", each, boxes(6), boxes(5))
for each in LOSSES:
    collection.function(f"ops.{each.__name__}", each, boxes(6), boxes(6))
collection.function("ops.sigmoid_focal_loss", ops.sigmoid_focal_loss, rand(5, 4), lambda: torch.rand(5, 4).round())
collection.function("ops.nms", ops.nms, boxes(8), rand(8), value(0.5))
collection.function("ops.batched_nms", ops.batched_nms, boxes(8), rand(8), lambda: torch.randint(0, 3, (8,)), value(0.5))
collection.function("ops.remove_small_boxes", ops.remove_small_boxes, boxes(8), value(5.0))
collection.function("ops.clip_boxes_to_image", ops.clip_boxes_to_image, boxes(8), value((16, 20)))
collection.function("ops.box_convert", ops.box_convert, boxes(8), value("xyxy"), value("cxcywh"))
collection.function("ops.box_area", ops.box_area, boxes(8))
collection.function("ops.masks_to_boxes", ops.masks_to_boxes, lambda: torch.rand(3, 8, 8) > 0.5)
collection.function("ops.roi_align", ops.roi_align, rand(2, 4, 32, 32), lambda: [boxes(3)(), boxes(2)()], value(5))
collection.function("ops.roi_pool", ops.roi_pool, rand(2, 4, 32, 32), lambda: [boxes(3)(), boxes(2)()], value(5))
collection.function("ops.ps_roi_align", ops.ps_roi_align, rand(2, 8, 32, 32), lambda: [boxes(3)(), boxes(2)()], value(2))
collection.function("ops.ps_roi_pool", ops.ps_roi_pool, rand(2, 8, 32, 32), lambda: [boxes(3)(), boxes(2)()], value(2))
collection.function("ops.drop_block2d", ops.drop_block2d, rand(2, 3, 16, 16), value(0.3), value(3))
collection.function("ops.stochastic_depth", ops.stochastic_depth, rand(4, 8), value(0.5), value("row"))
collection.function(
    "ops.deform_conv2d", ops.deform_conv2d, rand(1, 4, 8, 8), rand(1, 18, 8, 8), rand(6, 4, 3, 3), value(None), value((1, 1)), value((1, 1))
)


@collection.add("ops.FeaturePyramidNetwork")
def pyramid():
    return ops.FeaturePyramidNetwork([4, 8], 6), ({"a": torch.randn(1, 4, 16, 16), "b": torch.randn(1, 8, 8, 8)},), {}


@collection.add("ops.MultiScaleRoIAlign", modes=("eval",))
def pooler():
    features = {"a": torch.randn(1, 4, 16, 16), "b": torch.randn(1, 4, 8, 8)}
    return ops.MultiScaleRoIAlign(["a", "b"], 3, 2), (features, [boxes(4)()], [(64, 64)]), {}


@collection.add("ops.SqueezeExcitation")
def excitation():
    return ops.SqueezeExcitation(8, 4), (torch.randn(2, 8, 6, 6),), {}


@collection.add("ops.MLP")
def mlp():
    return ops.MLP(8, [16, 4], dropout=0.1), (torch.randn(3, 8),), {}


@collection.add("ops.Conv2dNormActivation")
def convolution():
    return nn.Sequential(ops.Conv2dNormActivation(3, 8), ops.FrozenBatchNorm2d(8)), (torch.randn(2, 3, 8, 8),), {}


MEAN, DEVIATION = [0.5] * 3, [0.2] * 3
TRANSFORMS = {
    "Normalize": v2.Normalize(MEAN, DEVIATION),
    "Resize": v2.Resize((24, 24), antialias=True),
    "CenterCrop": v2.CenterCrop(24),
    "RandomCrop": v2.RandomCrop(24),
    "RandomResizedCrop": v2.RandomResizedCrop(24),
    "RandomHorizontalFlip": v2.RandomHorizontalFlip(0.5),
    "RandomVerticalFlip": v2.RandomVerticalFlip(0.5),
    "Pad": v2.Pad(3),
    "RandomZoomOut": v2.RandomZoomOut(),
    "RandomRotation": v2.RandomRotation(20),
    "RandomAffine": v2.RandomAffine(10, (0.1, 0.1)),
    "RandomPerspective": v2.RandomPerspective(p=1.0),
    "ElasticTransform": v2.ElasticTransform(),
    "FiveCrop": v2.FiveCrop(16),
    "TenCrop": v2.TenCrop(16),
    "RandomErasing": v2.RandomErasing(p=1.0),
    "ColorJitter": v2.ColorJitter(0.2, 0.2, 0.2, 0.1),
    "RandomPhotometricDistort": v2.RandomPhotometricDistort(p=1.0),
    "RandomChannelPermutation": v2.RandomChannelPermutation(),
    "Grayscale": v2.Grayscale(3),
    "RandomGrayscale": v2.RandomGrayscale(0.5),
    "GaussianBlur": v2.GaussianBlur(3, 1.0),
    "GaussianNoise": v2.GaussianNoise(),
    "RandomInvert": v2.RandomInvert(0.5),
    "RandomPosterize": v2.RandomPosterize(4, 0.5),
    "RandomSolarize": v2.RandomSolarize(0.5, 0.5),
    "RandomAdjustSharpness": v2.RandomAdjustSharpness(1.5, 0.5),
    "RandomAutocontrast": v2.RandomAutocontrast(0.5),
    "RandomEqualize": v2.RandomEqualize(0.5),
    "ToDtype": v2.ToDtype(torch.float64, scale=True),
    "LinearTransformation": v2.LinearTransformation(torch.eye(3 * 1024), torch.zeros(3 * 1024)),
    "RandAugment": v2.RandAugment(),
    "TrivialAugmentWide": v2.TrivialAugmentWide(),
    "AugMix": v2.AugMix(),
}
WHOLE_NUMBERS = {"RandomPosterize", "RandAugment", "TrivialAugmentWide", "AugMix", "RandomEqualize", "ToDtype"}
for name, transform in TRANSFORMS.items():
    pixels = (lambda: torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8)) if name in WHOLE_NUMBERS else rand(2, 3, 32, 32)
    collection.function(f"v2.{name}", transform, pixels)
for name, mix in {"MixUp": v2.MixUp(num_classes=4), "CutMix": v2.CutMix(num_classes=4)}.items():
    collection.function(f"v2.{name}", mix, rand(2, 3, 16, 16), lambda: torch.randint(0, 4, (2,)))

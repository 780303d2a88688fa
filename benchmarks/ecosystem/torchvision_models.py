"""torchvision: the smallest model of each family, detectors with boxes to learn from, video and optical flow."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from cases import Case
from torchvision import models
from torchvision.models.video.mvit import MSBlockConfig, MViT

CLASSIFIERS = {  # each family's smallest, and the size of its images
    **dict.fromkeys(("alexnet", "squeezenet1_1", "vgg11", "resnet18", "resnext50_32x4d", "wide_resnet50_2"), 64),
    **dict.fromkeys(("densenet121", "efficientnet_b0", "efficientnet_v2_s", "convnext_tiny", "mnasnet0_5", "mobilenet_v2"), 64),
    **dict.fromkeys(("mobilenet_v3_small", "regnet_x_400mf", "regnet_y_400mf", "shufflenet_v2_x0_5", "swin_t", "swin_v2_t"), 64),
    **{"googlenet": 96, "inception_v3": 96, "vit_b_32": 64, "maxvit_t": 224},
}
OPTIONS = {  # inception_v3's auxiliary classifier takes images of 299 pixels
    "googlenet": {"init_weights": False},
    "inception_v3": {"init_weights": False, "aux_logits": False},
}
SEGMENTATION = ("deeplabv3_mobilenet_v3_large", "lraspp_mobilenet_v3_large", "fcn_resnet50")
VIDEO = {  # the frames of each family's smallest, and their size: s3d pools no less than these
    **dict.fromkeys(("r3d_18", "mc3_18", "r2plus1d_18", "swin3d_t"), (16, 32)),
    "s3d": (13, 209),
}
DETECTORS = {
    "retinanet_resnet50_fpn": {},
    "fcos_resnet50_fpn": {},
    "fasterrcnn_mobilenet_v3_large_320_fpn": {"box_detections_per_img": 5},
    "maskrcnn_resnet50_fpn": {"box_detections_per_img": 5, "box_batch_size_per_image": 8},
    "keypointrcnn_resnet50_fpn": {"box_detections_per_img": 5, "box_batch_size_per_image": 8},
    "ssd300_vgg16": {},
    "ssdlite320_mobilenet_v3_large": {},
}


def cases() -> Iterator[Case]:
    for name, size in CLASSIFIERS.items():
        yield Case("torchvision", name, partial(classifier, name, size), loss=total)
    for name in SEGMENTATION:
        yield Case("torchvision", name, partial(segmentation, name), loss=total)
    for name, (frames, size) in VIDEO.items():
        yield Case("torchvision", name, partial(video, name, frames, size))
    yield Case("torchvision", "mvit, as mvit_v1_b", mvit)
    yield Case("torchvision", "raft_small", raft, modes=("eval",))
    for name, options in DETECTORS.items():
        yield Case("torchvision", name, partial(detector, name, options, False), modes=("eval",))
        yield Case("torchvision", f"{name}, losses", partial(detector, name, options, True), modes=("train",), loss=total)


def total(out: Any) -> torch.Tensor:
    """Return the squares of everything that requires gradients, of a tensor, a tuple or a dict."""
    values = out.values() if isinstance(out, dict) else out if isinstance(out, tuple) else (out,)
    return sum(each.square().mean() for each in values if each is not None)


def classifier(name: str, size: int) -> tuple[torch.nn.Module, tuple, dict]:
    options = {"image_size": size} if name.startswith("vit") else OPTIONS.get(name, {})
    return models.get_model(name, weights=None, num_classes=10, **options), (torch.randn(2, 3, size, size),), {}


def segmentation(name: str) -> tuple[torch.nn.Module, tuple, dict]:
    return models.get_model(name, weights=None, weights_backbone=None, num_classes=4), (torch.randn(2, 3, 64, 64),), {}


def video(name: str, frames: int, size: int) -> tuple[torch.nn.Module, tuple, dict]:
    return models.get_model(name, weights=None, num_classes=5), (torch.randn(1, 3, frames, size, size),), {}


def mvit() -> tuple[torch.nn.Module, tuple, dict]:
    """Return the network of mvit_v1_b, which knows videos of 16 frames of 224 pixels alone, for 8 frames of 64 pixels."""
    heads = [1, 2, 2, *[4] * 11, 8, 8]
    blocks = [
        MSBlockConfig(
            num_heads=count,
            input_channels=96 * count,
            output_channels=96 * after,
            kernel_q=[3, 3, 3] if count > before else [],
            kernel_kv=[3, 3, 3],
            stride_q=[1, 2, 2] if count > before else [],
            stride_kv=[1, 8 // count, 8 // count],
        )
        for before, count, after in zip([1, *heads], heads, [*heads[1:], 8])
    ]
    choices = {"residual_pool": False, "residual_with_cls_embed": False, "rel_pos_embed": False, "proj_after_attn": False}
    model = MViT(spatial_size=(64, 64), temporal_size=8, block_setting=blocks, num_classes=5, **choices)
    return model, (torch.randn(1, 3, 8, 64, 64),), {}


def raft() -> tuple[torch.nn.Module, tuple, dict]:
    return models.get_model("raft_small", weights=None), (torch.randn(1, 3, 128, 128), torch.randn(1, 3, 128, 128), 2), {}


def detector(name: str, options: dict, learning: bool) -> tuple[torch.nn.Module, tuple, dict]:
    """Return a detector of few classes for two images of unequal sizes, with what it is to find in them where it learns."""
    sizes = {} if name.startswith("ssd") else {"min_size": 64, "max_size": 96}
    classes = {"num_keypoints": 3, "num_classes": 2} if name.startswith("keypoint") else {"num_classes": 4}
    model = models.get_model(name, weights=None, weights_backbone=None, **classes, **sizes, **options)
    images = [torch.rand(3, 64, 64), torch.rand(3, 56, 80)]
    return model, ((images, [targets(2), targets(1)]) if learning else (images,)), {}


def targets(count: int) -> dict[str, torch.Tensor]:
    corners = torch.rand(count, 2) * 20
    boxes = torch.cat([corners, corners + 10 + torch.rand(count, 2) * 20], 1)
    points = torch.cat([boxes[:, None, :2] + 3, torch.ones(count, 1, 1)], 2).expand(count, 3, 3).contiguous()
    masks = torch.zeros(count, 64, 64, dtype=torch.uint8)
    masks[:, 10:30, 10:30] = 1
    return {"boxes": boxes, "labels": torch.ones(count, dtype=torch.int64), "masks": masks, "keypoints": points}

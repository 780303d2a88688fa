"""timm, held back: other variants of its modules than those of the table, some with other options, on batches of several sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import timm
import torch
from cases import Case

BATCHES = (2, 3, 2)
OPTIONS = {"num_classes": 7}
MODELS: dict[str, tuple[int, dict[str, Any]]] = {  # size of the images and options of each
    "beitv2_base_patch16_224": (32, {"img_size": 32, "depth": 2}),
    "bat_resnext26ts": (256, {}),
    "eca_botnext26ts_256": (256, {}),
    "mobileone_s0": (64, {}),
    "coat_lite_tiny": (64, {"img_size": 64}),
    "convnextv2_atto": (64, {"drop_path_rate": 0.1}),
    "darknet17": (64, {}),
    "deit3_small_patch16_224": (32, {"img_size": 32, "depth": 3}),
    "densenetblur121d": (64, {"memory_efficient": True}),
    "dla46_c": (64, {}),
    "edgenext_x_small": (64, {}),
    "tf_efficientnetv2_b0": (64, {"drop_rate": 0.2}),
    "mnasnet_small": (64, {}),
    "tinynet_e": (64, {"global_pool": "max"}),
    "eva02_small_patch14_224": (28, {"img_size": 28, "depth": 2}),
    "fasternet_t1": (64, {}),
    "fastvit_t12": (64, {}),
    "focalnet_tiny_srf": (64, {}),
    "ghostnetv2_100": (64, {}),
    "hgnetv2_b0": (64, {}),
    "inception_next_tiny": (64, {}),
    "levit_conv_128": (224, {}),
    "mambaout_femto": (64, {}),
    "coatnet_pico_rw_224": (224, {}),
    "poolformer_s12": (64, {}),
    "mixer_s32_224": (64, {"img_size": 64}),
    "mobilenetv3_small_075": (64, {"drop_rate": 0.1}),
    "mobilenetv4_conv_small": (64, {}),
    "mobilevit_xxs": (64, {}),
    "nf_regnet_b0": (64, {}),
    "pvt_v2_b1": (64, {}),
    "regnety_002": (64, {}),
    "repvit_m1": (64, {}),
    "res2next50": (64, {}),
    "resnet18d": (64, {"aa_layer": timm.layers.BlurPool2d}),
    "ecaresnet26t": (64, {"block_args": None}),
    "resnetv2_18": (64, {}),
    "rexnet_100": (64, {}),
    "seresnext26d_32x4d": (64, {}),
    "starnet_s1": (64, {}),
    "swin_tiny_patch4_window7_224": (64, {"img_size": 64, "window_size": 4, "depths": (1, 1, 1, 1)}),
    "tnt_b_patch16_224": (32, {"img_size": 32, "depth": 2}),
    "vgg11_bn": (64, {}),
    "vit_tiny_patch16_224": (32, {"img_size": 32, "depth": 3, "global_pool": "avg", "class_token": False}),
    "vit_tiny_patch16_384": (32, {"img_size": 48, "depth": 2, "dynamic_img_size": True}),
    "vit_relpos_small_patch16_224": (32, {"img_size": 32, "depth": 2}),
    "ese_vovnet19b_slim": (64, {}),
    "xcit_nano_12_p16_224": (32, {"depth": 2}),
}


def cases() -> Iterator[Case]:
    for name, (size, options) in MODELS.items():
        yield Case("timm", f"{name}, held back", partial(build, name, size, options), batches=BATCHES)


def build(name: str, size: int, options: dict[str, Any]) -> tuple[torch.nn.Module, Callable, None]:
    """Return a model with random weights, and what makes a batch of images for it."""
    model = timm.create_model(name, **OPTIONS | options)
    return model, lambda batch: ((torch.randn(batch, 3, size, size),), {}), None

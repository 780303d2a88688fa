"""Networks, losses and solvers of libraries that nothing else here uses, held back, in both modes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import e3nn.nn
import geoopt
import gpytorch
import monai.losses
import monai.networks.nets as monai_nets
import neuralop.models
import normflows
import pytorch_metric_learning.losses as metric_losses
import pytorch_metric_learning.miners as metric_miners
import segmentation_models_pytorch as segmentation
import tensordict
import torch
import torchdiffeq
import ultralytics.nn.tasks
import vector_quantize_pytorch as quantize
from cases import Case, Collection
from e3nn import o3
from parts import Called, calling, hold_back, leaves
from parts import normal_rows as rows
from tensordict.nn import TensorDictModule, TensorDictSequential
from torch import nn
from vit_pytorch import cait, cct, deepvit, levit, max_vit, na_vit, rvt, simple_vit, twins_svt, vit, xcit

collection = Collection("monai")
network = partial(hold_back, collection)


def cases() -> list[Case]:
    return collection.cases


def images(size: int = 32, channels: int = 3) -> Callable[[int], torch.Tensor]:
    return lambda n: torch.rand(n, channels, size, size)


for name in ("Unet", "UnetPlusPlus", "MAnet", "Linknet", "FPN", "PSPNet", "DeepLabV3Plus", "UPerNet", "Segformer"):
    network(
        "segmentation-models-pytorch", name, lambda name=name: getattr(segmentation, name)("resnet18", encoder_weights=None, classes=3), images(64)
    )
for name in ("DiceLoss", "JaccardLoss", "FocalLoss", "TverskyLoss", "LovaszLoss"):
    network(
        "segmentation-models-pytorch",
        name,
        lambda name=name: getattr(segmentation.losses, name)("multilabel"),
        leaves(3, 16, 16),
        lambda n: torch.randint(0, 2, (n, 3, 16, 16)).float(),
    )

for name in ("yolov8n", "yolov8n-seg", "yolov9t", "yolov10n", "yolo11n", "yolo12n"):
    kind = "SegmentationModel" if "seg" in name else "DetectionModel"
    create = partial(getattr(ultralytics.nn.tasks, kind), f"{name}.yaml", ch=3, verbose=False)
    network("ultralytics", name, create, images(64))
network("ultralytics", "yolov8n-cls", lambda: ultralytics.nn.tasks.ClassificationModel("yolov8n-cls.yaml", ch=3, verbose=False), images(64))

NETWORKS = {
    "UNet": lambda: monai_nets.UNet(2, 1, 2, (8, 16, 32), (2, 2), num_res_units=1),
    "DynUNet": lambda: monai_nets.DynUNet(2, 1, 2, [3, 3, 3], [1, 2, 2], [2, 2], filters=[8, 16, 32], deep_supervision=True),
    "SegResNet": lambda: monai_nets.SegResNet(2, 8, 1, 2, blocks_down=(1, 1), blocks_up=(1,)),
    "UNETR": lambda: monai_nets.UNETR(1, 2, (32, 32), 8, 32, 64, 4, spatial_dims=2),
    "ViT": lambda: monai_nets.ViT(1, (32, 32), (8, 8), 32, 64, 2, 4, spatial_dims=2, classification=True),
    "VNet": lambda: monai_nets.VNet(spatial_dims=2),
    "AttentionUnet": lambda: monai_nets.AttentionUnet(2, 1, 2, (8, 16, 32), (2, 2)),
    "DenseNet": lambda: monai_nets.DenseNet(2, 1, 2, init_features=8, growth_rate=4, block_config=(2, 2)),
}
for name, create in NETWORKS.items():
    network("monai", name, create, images(32, 1))
LOSSES = {
    "DiceCELoss": lambda: monai.losses.DiceCELoss(softmax=True),
    "DiceFocalLoss": lambda: monai.losses.DiceFocalLoss(sigmoid=True),
    "GeneralizedDiceLoss": lambda: monai.losses.GeneralizedDiceLoss(sigmoid=True),
    "SSIMLoss": lambda: monai.losses.SSIMLoss(2),
    "SoftclDiceLoss": monai.losses.SoftclDiceLoss,
}
for name, create in LOSSES.items():
    network("monai", name, create, leaves(2, 16, 16), lambda n: torch.randint(0, 2, (n, 2, 16, 16)).float(), modes=("train",))

SIZED = {"image_size": 32, "patch_size": 8, "num_classes": 4, "dim": 32, "depth": 2, "heads": 2, "mlp_dim": 64}
TRANSFORMERS = {
    "ViT": lambda: vit.ViT(**SIZED),
    "SimpleViT": lambda: simple_vit.SimpleViT(**SIZED),
    "DeepViT": lambda: deepvit.DeepViT(**SIZED),
    "CaiT": lambda: cait.CaiT(cls_depth=1, **SIZED),
    "XCiT": lambda: xcit.XCiT(cls_depth=1, **SIZED),
    "RvT": lambda: rvt.RvT(**SIZED),
    "MaxViT": lambda: max_vit.MaxViT(num_classes=4, dim=16, depth=(1, 1), dim_head=8, window_size=4, dim_conv_stem=16),
    "CCT": lambda: cct.CCT(img_size=32, embedding_dim=32, n_conv_layers=1, num_layers=2, num_heads=2, mlp_ratio=2.0, num_classes=4),
    "LeViT": lambda: levit.LeViT(image_size=32, num_classes=4, stages=2, dim=(32, 48), depth=1, heads=(2, 2), mlp_mult=2),
    "TwinsSVT": lambda: twins_svt.TwinsSVT(
        num_classes=4, s1_emb_dim=16, s2_emb_dim=16, s3_emb_dim=16, s4_emb_dim=16, s3_depth=1, s1_local_patch_size=8, s2_local_patch_size=4,
        s3_local_patch_size=2, s4_patch_size=1, s4_local_patch_size=2, s1_global_k=8, s2_global_k=4, s3_global_k=2, s4_global_k=2,
    ),
}  # fmt: skip
for name, create in TRANSFORMERS.items():
    network("vit-pytorch", name, create, images())
network(
    "vit-pytorch",
    "NaViT",
    lambda: na_vit.NaViT(token_dropout_prob=0.1, **SIZED),
    lambda n: [[torch.rand(3, 32, 16), torch.rand(3, 16, 16)], [torch.rand(3, 8 * n, 32)]],
)

QUANTIZERS = {
    "VectorQuantize": lambda: quantize.VectorQuantize(dim=8, codebook_size=16, decay=0.8),
    "VectorQuantize of cosines": lambda: quantize.VectorQuantize(dim=8, codebook_size=16, use_cosine_sim=True),
    "ResidualVQ": lambda: quantize.ResidualVQ(dim=8, num_quantizers=3, codebook_size=16),
    "ResidualVQ with dropout": lambda: quantize.ResidualVQ(dim=8, num_quantizers=3, codebook_size=16, quantize_dropout=True),
    "GroupedResidualVQ": lambda: quantize.GroupedResidualVQ(dim=8, num_quantizers=2, groups=2, codebook_size=16),
    "FSQ": lambda: quantize.FSQ([8, 5, 5], dim=8),
    "LFQ": lambda: quantize.LFQ(codebook_size=16, dim=8),
    "SimVQ": lambda: quantize.SimVQ(dim=8, codebook_size=16),
}
for name, create in QUANTIZERS.items():
    network("vector-quantize-pytorch", name, create, rows(16, 8))


class Process(gpytorch.models.ExactGP):
    """A Gaussian process over twelve points."""

    def __init__(self, kernel: nn.Module):
        x = torch.linspace(0, 1, 12)[:, None]
        super().__init__(x, torch.sin(6 * x[:, 0]), gpytorch.likelihoods.GaussianLikelihood())
        self.mean, self.kernel = gpytorch.means.ConstantMean(), kernel

    def forward(self, x: torch.Tensor) -> Any:
        return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))


class Likelihood(nn.Module):
    """Minus the marginal log-likelihood of a process."""

    def __init__(self, kernel: nn.Module):
        super().__init__()
        self.process = Process(kernel)
        self.likelihood = gpytorch.mlls.ExactMarginalLogLikelihood(self.process.likelihood, self.process)

    def forward(self, noise: torch.Tensor) -> torch.Tensor:
        return -self.likelihood(self.process(*self.process.train_inputs), self.process.train_targets + noise.mean())


KERNELS = {
    "RBF": lambda: gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel()),
    "Matern": lambda: gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(2.5)),
    "periodic": lambda: gpytorch.kernels.ScaleKernel(gpytorch.kernels.PeriodicKernel()),
    "rational quadratic": gpytorch.kernels.RQKernel,
}
for name, create in KERNELS.items():
    network("gpytorch", f"likelihood, {name}", lambda create=create: Likelihood(create()), rows(1), modes=("train",))
    network("gpytorch", f"kernel, {name}", lambda create=create: Called(lambda kernel, x: kernel(x, x + 1).to_dense(), create()), rows(2))

for method in ("euler", "midpoint", "rk4", "heun3", "explicit_adams", "implicit_adams"):
    network(
        "torchdiffeq",
        method,
        lambda method=method: Called(
            lambda net, y: torchdiffeq.odeint(lambda t, y: net(y) * t.cos(), y, torch.linspace(0, 1, 4), method=method), nn.Linear(3, 3)
        ),
        rows(3),
    )
network(
    "torchdiffeq",
    "dopri5",
    lambda: Called(lambda net, y: torchdiffeq.odeint(lambda t, y: net(y).tanh(), y, torch.linspace(0, 1, 3), rtol=1e-3, atol=1e-3), nn.Linear(3, 3)),
    rows(3),
)

network("e3nn", "Linear", lambda: o3.Linear("4x0e+2x1o", "3x0e+1x1o"), rows(10))
network("e3nn", "FullyConnectedTensorProduct", lambda: o3.FullyConnectedTensorProduct("2x0e+1x1o", "1x0e+1x1o", "2x0e+1x1o"), rows(5), rows(4))
network("e3nn", "BatchNorm", lambda: e3nn.nn.BatchNorm("2x0e+1x1o"), rows(5))
network("e3nn", "FullyConnectedNet", lambda: e3nn.nn.FullyConnectedNet([3, 8, 2], torch.relu), rows(3))

METRICS = ("AngularLoss", "CircleLoss", "ContrastiveLoss", "MultiSimilarityLoss", "NTXentLoss", "NPairsLoss", "SupConLoss", "TripletMarginLoss")
for name in METRICS:
    network(
        "pytorch-metric-learning",
        name,
        lambda name=name: getattr(metric_losses, name)(),
        leaves(6),
        lambda n: torch.arange(n) % 2,
        modes=("train",),
    )
for name in ("ArcFaceLoss", "CosFaceLoss", "ProxyAnchorLoss", "SoftTripleLoss", "SubCenterArcFaceLoss"):
    network(
        "pytorch-metric-learning",
        name,
        lambda name=name: getattr(metric_losses, name)(num_classes=3, embedding_size=6),
        leaves(6),
        lambda n: torch.arange(n) % 3,
        modes=("train",),
    )
network(
    "pytorch-metric-learning",
    "a miner of hard triplets",
    lambda: Called(
        lambda loss, x, labels: loss(x, labels, metric_miners.BatchHardMiner()(x, labels)), metric_losses.TripletMarginLoss()
    ),
    leaves(6),
    lambda n: torch.arange(n) % 2,
    modes=("train",),
)  # fmt: skip

network(
    "neuraloperator", "FNO", lambda: neuralop.models.FNO(n_modes=(4, 4), in_channels=1, out_channels=1, hidden_channels=8, n_layers=2), images(16, 1)
)


def flow() -> nn.Module:
    blocks = [normflows.flows.AffineCouplingBlock(normflows.nets.MLP([1, 8, 2], init_zeros=True)), normflows.flows.Permute(2, mode="swap")]
    return normflows.NormalizingFlow(normflows.distributions.base.DiagGaussian(2), blocks)


network("normflows", "affine coupling", calling("forward_kld", flow), rows(2))
network(
    "normflows",
    "rational quadratic spline",
    calling(
        "log_prob",
        lambda: normflows.NormalizingFlow(
            normflows.distributions.base.DiagGaussian(2), [normflows.flows.AutoregressiveRationalQuadraticSpline(2, 1, 8)]
        ),
    ),
    rows(2),
)

network("geoopt", "distance in a ball", lambda: Called(lambda net, x: geoopt.PoincareBall().dist0(net(x) * 0.1), nn.Linear(3, 3)), rows(3))


def in_dict() -> nn.Module:
    net = TensorDictSequential(TensorDictModule(nn.Linear(8, 4), ["x"], ["h"]), TensorDictModule(nn.Linear(4, 2), ["h"], ["y"]))
    return Called(lambda net, x: net(tensordict.TensorDict({"x": x}, batch_size=[len(x)]))["y"], net)


network("tensordict", "a network over a TensorDict", in_dict, rows(8))

"""Networks, flows, optimizers and signal processing of a second set of libraries that nothing else here uses, held back."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import captum.attr
import conformer
import denoising_diffusion_pytorch as diffusion
import efficientnet_pytorch
import entmax
import g_mlp_pytorch
import julius
import lightly.loss
import lightly.models.modules as heads
import lion_pytorch
import local_attention
import mambapy.mamba
import mlp_mixer_pytorch
import nflows.distributions
import nflows.flows
import nflows.transforms
import norse.torch
import opacus.layers
import open_clip
import perceiver_pytorch
import piqa
import pyro.distributions.transforms
import pytorch_msssim
import pytorch_optimizer
import pytorch_tabnet.tab_network
import rotary_embedding_torch
import schedulefree
import siren_pytorch
import snntorch
import tab_transformer_pytorch
import tltorch
import torch
import torch_dct
import torch_optimizer
import torchcrf
import torchsde
import zuko
from cases import Case, Collection
from nnAudio import features
from parts import Called, calling, hold_back, ids, leaves
from parts import normal_rows as rows
from torch import nn

collection = Collection("captum")
network = partial(hold_back, collection)


def cases() -> list[Case]:
    return collection.cases


def images(size: int = 32, channels: int = 3) -> Callable[[int], torch.Tensor]:
    return lambda n: torch.rand(n, channels, size, size)


def mlp(inputs: int = 8, outputs: int = 3) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, 16), nn.ReLU(), nn.Linear(16, outputs))


# --- attention and mixing

network(
    "local-attention",
    "LocalAttention",
    lambda: local_attention.LocalAttention(dim=8, window_size=4, causal=True, autopad=True),
    *[leaves(2, 14, 8)] * 3,
)
network(
    "local-attention",
    "LocalTransformer",
    lambda: local_attention.LocalTransformer(
        num_tokens=32, dim=16, depth=2, max_seq_len=16, local_attn_window_size=4, causal=True, heads=2, dim_head=8
    ),
    ids(32, 16),
)
network("conformer", "Conformer", lambda: conformer.Conformer(dim=16, depth=2, dim_head=8, heads=2, conv_kernel_size=7, ff_dropout=0.1), rows(12, 16))
LATENTS = {"depth": 2, "num_latents": 8, "latent_dim": 16, "cross_heads": 1, "latent_heads": 2, "cross_dim_head": 8, "latent_dim_head": 8}
network(
    "perceiver-pytorch",
    "Perceiver",
    lambda: perceiver_pytorch.Perceiver(input_channels=3, input_axis=2, num_freq_bands=4, max_freq=8.0, num_classes=4, **LATENTS),
    lambda n: torch.rand(n, 8, 8, 3),
)
network("perceiver-pytorch", "PerceiverIO", lambda: perceiver_pytorch.PerceiverIO(dim=8, queries_dim=8, logits_dim=4, **LATENTS), rows(12, 8))
network(
    "mlp-mixer-pytorch",
    "MLPMixer",
    lambda: mlp_mixer_pytorch.MLPMixer(image_size=32, channels=3, patch_size=8, dim=32, depth=2, num_classes=4),
    images(),
)
network("g-mlp-pytorch", "gMLP", lambda: g_mlp_pytorch.gMLP(num_tokens=32, dim=16, depth=2, seq_len=12, causal=True, prob_survival=0.9), ids(32, 12))
network("g-mlp-pytorch", "gMLPVision", lambda: g_mlp_pytorch.gMLPVision(image_size=32, patch_size=8, num_classes=4, dim=16, depth=2), images())
network(
    "mambapy", "Mamba, by a parallel scan", lambda: mambapy.mamba.Mamba(mambapy.mamba.MambaConfig(d_model=8, n_layers=2, pscan=True)), rows(16, 8)
)
network("mambapy", "Mamba, step by step", lambda: mambapy.mamba.Mamba(mambapy.mamba.MambaConfig(d_model=8, n_layers=1, pscan=False)), rows(6, 8))
network(
    "rotary-embedding-torch",
    "queries and keys",
    lambda: Called(lambda rope, q, k: rope.rotate_queries_with_cached_keys(q, k), rotary_embedding_torch.RotaryEmbedding(dim=8, use_xpos=True)),
    *[leaves(2, 10, 8)] * 2,
)
network(
    "rotary-embedding-torch",
    "of two axes",
    lambda: Called(
        lambda rope, x: rotary_embedding_torch.apply_rotary_emb(rope.get_axial_freqs(4, 4), x),
        rotary_embedding_torch.RotaryEmbedding(dim=4, freqs_for="pixel", max_freq=8),
    ),
    leaves(2, 4, 4, 8),
)
for kind in ("text", "image"):
    clip = partial(
        open_clip.model.CLIP,
        16,
        {"image_size": 32, "layers": 2, "width": 32, "head_width": 16, "patch_size": 8},
        {"context_length": 8, "vocab_size": 50, "width": 32, "heads": 2, "layers": 2},
    )
    network("open-clip-torch", f"CLIP, {kind}", calling(f"encode_{kind}", clip), ids(50, 8) if kind == "text" else images(), modes=("eval",))
network("open-clip-torch", "CLIP", lambda: Called(lambda net, image, text: net(image, text)[:2], clip()), images(), ids(50, 8))
network("open-clip-torch", "ClipLoss", open_clip.ClipLoss, leaves(8), leaves(8), lambda n: torch.tensor(2.0), modes=("train",))

# --- images

network("efficientnet-pytorch", "efficientnet-b0", lambda: efficientnet_pytorch.EfficientNet.from_name("efficientnet-b0", num_classes=4), images(64))
network(
    "denoising-diffusion-pytorch",
    "Unet",
    lambda: diffusion.Unet(dim=8, dim_mults=(1, 2), flash_attn=False),
    images(16),
    lambda n: torch.randint(0, 100, (n,)),
)
network(
    "denoising-diffusion-pytorch",
    "GaussianDiffusion, loss",
    lambda: diffusion.GaussianDiffusion(diffusion.Unet(dim=8, dim_mults=(1, 2), flash_attn=False), image_size=16, timesteps=50),
    images(16),
    modes=("train",),
)
network("siren-pytorch", "SirenNet", lambda: siren_pytorch.SirenNet(dim_in=2, dim_hidden=16, dim_out=3, num_layers=3, dropout=0.1), rows(2))
network("piqa", "SSIM", piqa.SSIM, images(24), images(24), modes=("eval",))
network("piqa", "MDSI", piqa.MDSI, images(24), images(24), modes=("eval",))
network("piqa", "GMSD", piqa.GMSD, images(24), images(24), modes=("eval",))
network("pytorch-msssim", "SSIM", lambda: pytorch_msssim.SSIM(data_range=1.0), images(24), images(24), modes=("eval",))
network("pytorch-msssim", "MS_SSIM", lambda: pytorch_msssim.MS_SSIM(data_range=1.0, win_size=3), images(48), images(48), modes=("eval",))
network("lightly", "NTXentLoss", lambda: lightly.loss.NTXentLoss(memory_bank_size=(16, 8)), leaves(8), leaves(8), modes=("train",))
network("lightly", "BarlowTwinsLoss", lightly.loss.BarlowTwinsLoss, leaves(8), leaves(8), modes=("train",))
network("lightly", "VICRegLoss", lightly.loss.VICRegLoss, leaves(8), leaves(8), modes=("train",))
network("lightly", "NegativeCosineSimilarity", lightly.loss.NegativeCosineSimilarity, leaves(8), leaves(8), modes=("train",))
network("lightly", "SimCLRProjectionHead", lambda: heads.SimCLRProjectionHead(8, 16, 4), rows(8))
network("lightly", "SwaVPrototypes", lambda: heads.SwaVPrototypes(8, 6), rows(8))

# --- flows, processes and distributions

FLOWS = {
    "MAF": lambda: zuko.flows.MAF(3, 2, transforms=2, hidden_features=(16, 16)),
    "NSF": lambda: zuko.flows.NSF(3, 2, transforms=2, hidden_features=(16, 16), bins=4),
    "NICE": lambda: zuko.flows.NICE(4, 2, transforms=2, hidden_features=(16, 16)),
    "SOSPF": lambda: zuko.flows.SOSPF(3, 2, transforms=1, hidden_features=(8,)),
    "NAF": lambda: zuko.flows.NAF(3, 2, transforms=1, hidden_features=(8,)),
    "GMM": lambda: zuko.mixtures.GMM(3, 2, components=3, hidden_features=(8,)),
}
for name, create in FLOWS.items():
    width = 4 if name == "NICE" else 3
    network("zuko", f"{name}, density", lambda create=create: Called(lambda flow, x, c: flow(c).log_prob(x), create()), rows(width), rows(2))
network("zuko", "MAF, samples", lambda: Called(lambda flow, c: flow(c).rsample(), FLOWS["MAF"]()), rows(2))


def autoregressive(*, splines: bool) -> nn.Module:
    kind = (
        nflows.transforms.MaskedPiecewiseRationalQuadraticAutoregressiveTransform
        if splines
        else nflows.transforms.MaskedAffineAutoregressiveTransform
    )
    options = {"num_bins": 4, "tails": "linear", "tail_bound": 3.0} if splines else {}
    steps = [nflows.transforms.ReversePermutation(features=3), kind(features=3, hidden_features=8, **options)]
    return nflows.flows.Flow(nflows.transforms.CompositeTransform(steps), nflows.distributions.StandardNormal([3]))


network("nflows", "autoregressive, affine", calling("log_prob", lambda: autoregressive(splines=False)), rows(3))
network("nflows", "autoregressive, splines", calling("log_prob", lambda: autoregressive(splines=True)), rows(3))
for name, create in {
    "affine coupling": lambda: pyro.distributions.transforms.affine_coupling(4, [8]),
    "spline": lambda: pyro.distributions.transforms.Spline(4, count_bins=4),
    "planar": lambda: pyro.distributions.transforms.Planar(4),
    "radial": lambda: pyro.distributions.transforms.Radial(4),
    "Householder": lambda: pyro.distributions.transforms.Householder(4, 2),
    "Sylvester": lambda: pyro.distributions.transforms.Sylvester(4),
}.items():
    network("pyro-ppl", name, lambda create=create: Called(lambda t, x: (y := t(x), t.log_abs_det_jacobian(x, y)), create()), rows(4))


class Drift(nn.Module):
    """A stochastic differential equation with a diagonal noise."""

    noise_type, sde_type = "diagonal", "ito"

    def __init__(self) -> None:
        super().__init__()
        self.mu, self.sigma = nn.Linear(3, 3), nn.Linear(3, 3)

    def f(self, t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.mu(y).tanh()

    def g(self, t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.sigma(y).sigmoid()

    def forward(self, y: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        for step, t in enumerate(torch.linspace(0, 1, 5)):
            y = y + self.f(t, y) * 0.25 + self.g(t, y) * noise[:, step] * 0.5
        return y


network("torchsde", "an Euler scheme by hand", Drift, rows(3), rows(5, 3))
network(
    "torchsde",
    "sdeint",
    lambda: Called(
        lambda sde, y: torchsde.sdeint(
            sde, y, torch.linspace(0, 1, 3), dt=0.25, method="euler", bm=torchsde.BrownianInterval(0.0, 1.0, size=tuple(y.shape), entropy=3)
        ),
        Drift(),
    ),
    rows(3),
    modes=("eval",),
)

# --- tables, spikes and attributions


def spiking(first: nn.Module, leaky: nn.Module, last: nn.Module, integrate: nn.Module, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the spikes and the potentials of four steps."""
    one, two = leaky.init_leaky(), integrate.init_leaky()
    spikes, potentials = [], []
    for step in range(x.shape[1]):
        spike, one = leaky(first(x[:, step]), one)
        spike, two = integrate(last(spike), two)
        spikes.append(spike)
        potentials.append(two)
    return torch.stack(spikes), torch.stack(potentials)


def factorized() -> nn.Module:
    """Return a convolution of a low rank, which its library leaves without values."""
    layer = tltorch.FactorizedConv(3, 4, 3, order=2, rank="same", factorization="cp")
    layer.weight.normal_(0, 0.1)
    return layer


network(
    "tab-transformer-pytorch",
    "TabTransformer",
    lambda: tab_transformer_pytorch.TabTransformer(categories=(4, 5), num_continuous=3, dim=8, depth=1, heads=2, mlp_act=nn.ReLU()),
    ids(4, 2),
    rows(3),
)
network(
    "tab-transformer-pytorch",
    "FTTransformer",
    lambda: tab_transformer_pytorch.FTTransformer(categories=(4, 5), num_continuous=3, dim=8, depth=1, heads=2),
    ids(4, 2),
    rows(3),
)
network(
    "pytorch-tabnet",
    "TabNet",
    lambda: pytorch_tabnet.tab_network.TabNet(6, 3, n_d=4, n_a=4, n_steps=2, virtual_batch_size=8, group_attention_matrix=torch.eye(6)),
    rows(6),
)
network(
    "snntorch",
    "two leaky layers",
    lambda: Called(spiking, nn.Linear(6, 8), snntorch.Leaky(beta=0.9), nn.Linear(8, 3), snntorch.Leaky(beta=0.8, learn_beta=True)),
    rows(4, 6),
)
network(
    "norse", "LIF cells", lambda: norse.torch.SequentialState(nn.Linear(6, 8), norse.torch.LIFCell(), nn.Linear(8, 3), norse.torch.LICell()), rows(6)
)
network("captum", "Saliency", lambda: Called(lambda net, x: captum.attr.Saliency(net).attribute(x, target=1), mlp()), leaves(8), modes=("eval",))
network(
    "captum",
    "IntegratedGradients",
    lambda: Called(lambda net, x: captum.attr.IntegratedGradients(net).attribute(x, target=1, n_steps=6), mlp()),
    leaves(8),
    modes=("eval",),
)
network(
    "captum",
    "FeatureAblation",
    lambda: Called(lambda net, x: captum.attr.FeatureAblation(net).attribute(x, target=1), mlp()),
    rows(8),
    modes=("eval",),
)
network("opacus", "DPLSTM", lambda: opacus.layers.DPLSTM(4, 6, batch_first=True), rows(5, 4))
network(
    "opacus", "DPMultiheadAttention", lambda: Called(lambda attention, x: attention(x, x, x)[0], opacus.layers.DPMultiheadAttention(8, 2)), rows(5, 8)
)
network("tensorly-torch", "FactorizedLinear", lambda: tltorch.FactorizedLinear((2, 4), (2, 3), rank=2, factorization="tucker"), rows(8))
network("tensorly-torch", "FactorizedConv", factorized, images(8))

# --- sequences and signals

for name in ("sparsemax", "entmax15", "normmax_bisect", "entmax_bisect"):
    network("entmax", name, lambda name=name: getattr(entmax, name), leaves(6), modes=("call",))
network(
    "pytorch-crf",
    "likelihood",
    lambda: torchcrf.CRF(4, batch_first=True),
    rows(6, 4),
    ids(4, 6),
    lambda n: torch.arange(6) < torch.randint(1, 7, (n, 1)),
)
network("pytorch-crf", "decode", calling("decode", lambda: torchcrf.CRF(4, batch_first=True)), rows(6, 4), modes=("eval",))
for name in ("dct", "idct", "dct_2d", "dct_3d"):
    network("torch-dct", name, lambda name=name: getattr(torch_dct, name), leaves(4, 4, 8), modes=("call",))
network("nnAudio", "STFT", lambda: features.STFT(n_fft=64, hop_length=16, verbose=False, output_format="Magnitude"), leaves(256))
network("nnAudio", "MelSpectrogram", lambda: features.MelSpectrogram(sr=1000, n_fft=64, n_mels=8, hop_length=16, verbose=False), leaves(256))
network("nnAudio", "MFCC", lambda: features.MFCC(sr=1000, n_mfcc=4, n_fft=64, n_mels=8, hop_length=16, verbose=False), leaves(256))
network("julius", "LowPassFilter", lambda: julius.LowPassFilter(0.1, zeros=4), leaves(2, 128))
network("julius", "ResampleFrac", lambda: julius.ResampleFrac(4, 3), leaves(2, 64))
network("julius", "SplitBands", lambda: julius.SplitBands(1000, 4, zeros=2), leaves(128))


# --- optimizers


def fit(create: Callable[[Any], Any], whole: bool, compile: Callable) -> list[torch.Tensor]:
    """Train a small network for six steps, its forward or the whole step compiled; return its weights."""
    torch.manual_seed(3)
    net = mlp()
    optimizer = create(net.parameters())
    if hasattr(optimizer, "train"):
        optimizer.train()
    call = net if whole else compile(net)

    def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = nn.functional.cross_entropy(call(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    run = compile(step) if whole else step
    losses = [run(torch.randn(5, 8), torch.randint(0, 3, (5,))) for _ in range(6)]
    return [*losses, *[p.detach().clone() for p in net.parameters()]]


OPTIMIZERS = {
    "lion-pytorch Lion": lambda p: lion_pytorch.Lion(p, lr=1e-3, weight_decay=0.1),
    "schedulefree AdamWScheduleFree": lambda p: schedulefree.AdamWScheduleFree(p, lr=1e-2, foreach=False),
    "schedulefree SGDScheduleFree": lambda p: schedulefree.SGDScheduleFree(p, lr=1e-1),
    "torch-optimizer RAdam": lambda p: torch_optimizer.RAdam(p, lr=1e-2),
    "torch-optimizer Lamb": lambda p: torch_optimizer.Lamb(p, lr=1e-2),
    "torch-optimizer AdaBelief": lambda p: torch_optimizer.AdaBelief(p, lr=1e-2),
    "torch-optimizer Yogi": lambda p: torch_optimizer.Yogi(p, lr=1e-2),
    "torch-optimizer Lookahead": lambda p: torch_optimizer.Lookahead(torch.optim.SGD(p, lr=1e-1), k=2),
    "pytorch-optimizer AdamP": lambda p: pytorch_optimizer.AdamP(p, lr=1e-2),
    "pytorch-optimizer Adan": lambda p: pytorch_optimizer.Adan(p, lr=1e-2),
    "pytorch-optimizer Prodigy": lambda p: pytorch_optimizer.Prodigy(p),
    "pytorch-optimizer Tiger": lambda p: pytorch_optimizer.Tiger(p, lr=1e-3),
    "pytorch-optimizer CAME": lambda p: pytorch_optimizer.CAME(p, lr=1e-3),
}
for name, create in OPTIMIZERS.items():
    library, kind = name.split()
    for whole in (False, True):
        title = f"{kind}, {'the step' if whole else 'the forward'} compiled, held back"
        collection.cases.append(Case(library, title, partial(lambda *loop: (partial(fit, *loop), (), {}), create, whole), modes=("fit",)))

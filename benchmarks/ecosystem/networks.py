"""Networks of libraries that build on PyTorch: diffusers, x-transformers, torch_geometric, peft."""

from __future__ import annotations

from functools import partial

import diffusers
import peft
import torch
import torch_geometric.nn as graphs
import transformers
import x_transformers as x
from cases import Case, Collection
from torch import nn

collection = Collection("diffusers")


def cases() -> list[Case]:
    return collection.cases


def images(channels: int, size: int, batch: int = 2) -> torch.Tensor:
    return torch.randn(batch, channels, size, size)


BLOCKS = {"block_out_channels": (8, 16), "norm_num_groups": 4, "layers_per_block": 1}


@collection.add("UNet2DModel")
def unet():
    downs, ups = ("DownBlock2D", "AttnDownBlock2D"), ("AttnUpBlock2D", "UpBlock2D")
    model = diffusers.UNet2DModel(8, 3, 3, down_block_types=downs, up_block_types=ups, attention_head_dim=4, **BLOCKS)
    return model, (images(3, 8), torch.tensor([3, 7])), {}


@collection.add("UNet2DConditionModel")
def conditioned():
    downs, ups = ("DownBlock2D", "CrossAttnDownBlock2D"), ("CrossAttnUpBlock2D", "UpBlock2D")
    model = diffusers.UNet2DConditionModel(
        8, 4, 4, down_block_types=downs, up_block_types=ups, cross_attention_dim=16, attention_head_dim=4, **BLOCKS
    )
    return model, (images(4, 8), torch.tensor([3, 7]), torch.randn(2, 5, 16)), {}


@collection.add("AutoencoderKL")
def autoencoder():
    downs, ups = ("DownEncoderBlock2D",) * 2, ("UpDecoderBlock2D",) * 2
    return diffusers.AutoencoderKL(3, 3, downs, ups, latent_channels=2, **BLOCKS), (images(3, 16),), {}


@collection.add("VQModel")
def quantized():
    downs, ups = ("DownEncoderBlock2D",) * 2, ("UpDecoderBlock2D",) * 2
    return diffusers.VQModel(3, 3, downs, ups, latent_channels=2, num_vq_embeddings=8, **BLOCKS), (images(3, 16),), {}


@collection.add("AutoencoderTiny")
def tiny():
    widths = {"encoder_block_out_channels": (8, 8), "decoder_block_out_channels": (8, 8), "num_encoder_blocks": (1, 1), "num_decoder_blocks": (1, 1)}
    return diffusers.AutoencoderTiny(**widths), (torch.rand(2, 3, 16, 16),), {}


@collection.add("DiTTransformer2DModel")
def dit():
    model = diffusers.DiTTransformer2DModel(2, 8, 4, num_layers=2, norm_num_groups=4, sample_size=8, num_embeds_ada_norm=10)
    return model, (images(4, 8), torch.tensor([3, 7]), torch.tensor([1, 2])), {}


@collection.add("SD3Transformer2DModel")
def sd3():
    widths = {"joint_attention_dim": 16, "caption_projection_dim": 16, "pooled_projection_dim": 8}
    model = diffusers.SD3Transformer2DModel(8, 2, 4, num_layers=2, attention_head_dim=8, num_attention_heads=2, **widths)
    return model, (images(4, 8), torch.randn(2, 5, 16), torch.randn(2, 8), torch.tensor([3.0, 7.0])), {}


@collection.add("FluxTransformer2DModel")
def flux():
    model = diffusers.FluxTransformer2DModel(1, 8, None, 1, 1, 16, 2, joint_attention_dim=12, pooled_projection_dim=8, axes_dims_rope=(4, 4, 8))
    arguments = {"hidden_states": torch.randn(1, 16, 8), "encoder_hidden_states": torch.randn(1, 5, 12), "pooled_projections": torch.randn(1, 8)}
    return model, (), arguments | {"timestep": torch.tensor([0.5]), "img_ids": torch.rand(16, 3), "txt_ids": torch.zeros(5, 3)}


@collection.add("PixArtTransformer2DModel")
def pixart():
    model = diffusers.PixArtTransformer2DModel(
        2, 8, 4, 4, num_layers=2, norm_num_groups=4, cross_attention_dim=16, sample_size=8, caption_channels=12, use_additional_conditions=False
    )
    arguments = {"encoder_hidden_states": torch.randn(2, 5, 12), "timestep": torch.tensor([3, 7])}
    return model, (images(4, 8),), arguments | {"added_cond_kwargs": {"resolution": None, "aspect_ratio": None}}


def decoder(**options):
    options = {"dim": 16, "depth": 2, "heads": 2, "attn_dim_head": 8} | options
    model = x.TransformerWrapper(num_tokens=50, max_seq_len=32, attn_layers=x.Decoder(**options))
    return model, (torch.randint(0, 50, (2, 12)),), {}


for name, options in {
    "decoder": {},
    "rotary": {"rotary_pos_emb": True},
    "alibi": {"alibi_pos_bias": True, "alibi_num_heads": 1},
    "rms norm and GLU": {"use_rmsnorm": True, "ff_glu": True, "ff_swish": True},
    "relative positions": {"rel_pos_bias": True},
    "flash attention": {"attn_flash": True},
    "one key and value head": {"attn_one_kv_head": True},
    "query and key norms": {"attn_qk_norm": True},
    "memory of keys and values": {"attn_num_mem_kv": 2},
    "talking heads": {"attn_pre_talking_heads": True, "attn_post_talking_heads": True},
    "sandwich norm": {"sandwich_norm": True},
    "shifted tokens": {"shift_tokens": 1},
    "gated residuals": {"gate_residual": True},
    "dropout": {"attn_dropout": 0.1, "ff_dropout": 0.1},
}.items():
    collection.add(name, library="x-transformers")(partial(decoder, **options))


@collection.add("encoder and decoder", library="x-transformers")
def translator():
    sizes = {"num_tokens": 50, "depth": 1, "heads": 2, "max_seq_len": 16}
    sides = {f"{side}_{key}": value for side in ("enc", "dec") for key, value in sizes.items()}
    return x.XTransformer(dim=16, **sides), (torch.randint(0, 50, (2, 8)), torch.randint(0, 50, (2, 9))), {}


@collection.add("vision transformer", library="x-transformers")
def vision():
    layers = x.Encoder(dim=16, depth=2, heads=2, attn_dim_head=8)
    return x.ViTransformerWrapper(image_size=16, patch_size=8, num_classes=5, attn_layers=layers), (images(3, 16),), {}


EDGES = torch.tensor([[0, 1, 2, 3, 4, 5, 1, 3], [1, 2, 3, 4, 5, 0, 4, 0]])


def convolution(layer, *args, **kwargs):
    return layer(8, 6, *args, **kwargs), (torch.randn(6, 8), EDGES), {}


CONVOLUTIONS = ("GCNConv", "SAGEConv", "GATConv", "GATv2Conv", "TransformerConv", "GraphConv", "TAGConv", "SGConv", "LEConv")
CONVOLUTIONS += ("ClusterGCNConv", "FeaStConv", "MFConv", "ARMAConv", "SuperGATConv", "ChebConv", "SSGConv")
OPTIONS = {"ChebConv": {"K": 3}, "SSGConv": {"alpha": 0.1}}
for name in CONVOLUTIONS:
    collection.add(name, library="torch_geometric")(partial(convolution, getattr(graphs, name), **OPTIONS.get(name, {})))


@collection.add("GINConv", library="torch_geometric")
def isomorphism():
    return graphs.GINConv(nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 6))), (torch.randn(6, 8), EDGES), {}


@collection.add("EdgeConv", library="torch_geometric")
def edge():
    return graphs.EdgeConv(nn.Linear(16, 6)), (torch.randn(6, 8), EDGES), {}


@collection.add("GatedGraphConv", library="torch_geometric")
def gated():
    return graphs.GatedGraphConv(8, 2), (torch.randn(6, 8), EDGES), {}


@collection.add("global pools", library="torch_geometric")
def pools():
    class Pools(nn.Module):
        def forward(self, nodes, batch):
            return graphs.global_add_pool(nodes, batch), graphs.global_mean_pool(nodes, batch), graphs.global_max_pool(nodes, batch)

    return Pools(), (torch.randn(6, 8, requires_grad=True), torch.tensor([0, 0, 0, 1, 1, 1])), {}


for kind in ("GCN", "GraphSAGE", "GIN", "GAT"):
    collection.add(kind, library="torch_geometric")(lambda kind=kind: (getattr(graphs, kind)(8, 6, 2, 3), (torch.randn(6, 8), EDGES), {}))

GPT = {"n_layer": 2, "n_head": 2, "n_embd": 16, "vocab_size": 50, "n_positions": 32}


def adapted(config, merged: bool = False):
    model = peft.get_peft_model(transformers.GPT2LMHeadModel(transformers.GPT2Config(**GPT)), config())
    for name, each in model.named_parameters():
        if "lora_B" in name:  # zero at first, which would hide a wrong factor
            nn.init.normal_(each)
    tokens = torch.randint(0, 50, (2, 8))
    return (model.merge_and_unload() if merged else model), (), {"input_ids": tokens, "labels": tokens}


TARGET = {"target_modules": ["c_attn"], "fan_in_fan_out": True}
for name, config in {
    "LoRA": partial(peft.LoraConfig, r=2, **TARGET),
    "LoRA, rank-stabilised, dropout": partial(peft.LoraConfig, r=2, use_rslora=True, lora_dropout=0.1, **TARGET),
    "DoRA": partial(peft.LoraConfig, r=2, use_dora=True, **TARGET),
    "IA3": partial(peft.IA3Config, target_modules=["c_attn"], feedforward_modules=[], fan_in_fan_out=True),
    "prompt tuning": partial(peft.PromptTuningConfig, task_type="CAUSAL_LM", num_virtual_tokens=3),
    "prefix tuning": partial(peft.PrefixTuningConfig, task_type="CAUSAL_LM", num_virtual_tokens=3),
}.items():
    collection.add(name, library="peft", loss=lambda out: out.loss)(partial(adapted, config))
collection.add("LoRA, merged", library="peft", modes=("eval",))(partial(adapted, partial(peft.LoraConfig, r=2, **TARGET), True))

"""Networks of other libraries, held back: diffusers, x-transformers, torch_geometric, einops, peft, in both modes."""

from __future__ import annotations

from functools import partial
from typing import Any

import diffusers
import peft
import torch
import torch_geometric.nn as graphs
import transformers
import x_transformers as x
from cases import Case, Collection
from einops.layers import torch as einops_layers
from parts import hold_back
from torch import nn

collection = Collection("diffusers")
network = partial(hold_back, collection)


def cases() -> list[Case]:
    return collection.cases


def photo(batch: int) -> torch.Tensor:
    return torch.rand(batch, 3, 16, 16)


network(
    "diffusers",
    "PriorTransformer",
    lambda: diffusers.PriorTransformer(2, 4, 1, embedding_dim=8, num_embeddings=5, additional_embeddings=4),
    lambda n: torch.randn(n, 8),
    lambda n: torch.full((n,), 3),
    lambda n: torch.randn(n, 8),
    lambda n: torch.randn(n, 5, 8),
)
network(
    "diffusers",
    "Transformer2DModel",
    lambda: diffusers.Transformer2DModel(2, 4, in_channels=8, norm_num_groups=4, cross_attention_dim=6),
    lambda n: torch.randn(n, 8, 6, 6),
    lambda n: torch.randn(n, 3, 6),
)


def decoder(**options: Any) -> nn.Module:
    options = {"dim": 16, "depth": 2, "heads": 2, "attn_dim_head": 8} | options
    return x.TransformerWrapper(num_tokens=50, max_seq_len=32, num_memory_tokens=options.pop("memory", None), attn_layers=x.Decoder(**options))


def words(batch: int) -> torch.Tensor:
    return torch.randint(0, 50, (batch, 12))


for name, options in {
    "macaron, scale norm": {"macaron": True, "use_scalenorm": True},
    "sparse top k": {"attn_sparse_topk": 4},
    "residual attention, squared relu": {"residual_attn": True, "ff_relu_squared": True},
    "memory tokens": {"memory": 3},
    "xpos": {"rotary_xpos": True, "attn_value_dim_head": 4},
    "dynamic tanh": {"use_dynamic_tanh": True},
    "gated values": {"attn_gate_values": True, "use_simple_rmsnorm": True},
}.items():
    network("x-transformers", name, partial(decoder, **options), words)
network("x-transformers", "autoregressive wrapper", lambda: x.AutoregressiveWrapper(decoder()), words, loss=lambda out: out)


def continuous() -> nn.Module:
    return x.ContinuousTransformerWrapper(dim_in=6, dim_out=5, max_seq_len=12, attn_layers=x.Encoder(dim=16, depth=1, heads=2))


network("x-transformers", "continuous", continuous, lambda n: torch.randn(n, 12, 6))


def patches() -> nn.Module:
    layers = einops_layers.Rearrange("b c (h p) (w q) -> b (h w) (c p q)", p=4, q=4), nn.Linear(48, 6), einops_layers.Reduce("b t c -> b c", "max")
    return nn.Sequential(*layers)


def mixing() -> nn.Module:
    return einops_layers.EinMix("b t c -> b t d", weight_shape="c d", bias_shape="d", c=8, d=5)


def edges(nodes: int) -> torch.Tensor:
    return torch.stack([torch.arange(2 * nodes) % nodes, torch.randint(0, nodes, (2 * nodes,))])


def nodes(batch: int) -> torch.Tensor:
    return torch.randn(batch + 4, 8)


def graph(batch: int) -> torch.Tensor:
    return edges(batch + 4)


def features(batch: int) -> torch.Tensor:
    return torch.randn(2 * (batch + 4), 3)


def kinds(batch: int) -> torch.Tensor:
    return torch.randint(0, 2, (2 * (batch + 4),))


for name, create, *makers in (
    ("GATConv of edges", lambda: graphs.GATConv(8, 6, heads=2, edge_dim=3), nodes, graph, features),
    ("AGNNConv", graphs.AGNNConv, nodes, graph),
    ("RGCNConv", lambda: graphs.RGCNConv(8, 6, 2), nodes, graph, kinds),
    ("GENConv", lambda: graphs.GENConv(8, 6, aggr="softmax", learn_t=True), nodes, graph),
    ("NNConv", lambda: graphs.NNConv(8, 6, nn.Linear(3, 48)), nodes, graph, features),
    ("CGConv", lambda: graphs.CGConv(8, 3), nodes, graph, features),
    ("GINEConv", lambda: graphs.GINEConv(nn.Linear(8, 6), edge_dim=3), nodes, graph, features),
    ("ResGatedGraphConv", lambda: graphs.ResGatedGraphConv(8, 6), nodes, graph),
    ("PNAConv", lambda: graphs.PNAConv(8, 6, ["mean", "max", "std"], ["identity", "amplification"], torch.tensor([0, 2, 3, 1])), nodes, graph),
    ("TopKPooling", lambda: graphs.TopKPooling(8, 0.5), nodes, graph),
    ("GraphNorm", lambda: graphs.GraphNorm(8), nodes),
    ("Set2Set", lambda: graphs.Set2Set(8, 2), nodes, lambda n: torch.arange(n + 4) // 3),
    ("DenseGCNConv", lambda: graphs.DenseGCNConv(8, 6), lambda n: torch.randn(n, 5, 8), lambda n: torch.randint(0, 2, (n, 5, 5)).float()),
):
    network("torch_geometric", name, create, *makers)

network("einops", "Rearrange and Reduce", patches, photo)
network("einops", "EinMix", mixing, lambda n: torch.randn(n, 3, 8))


def adapted(config: Any) -> nn.Module:
    sizes = {"n_layer": 1, "n_head": 2, "n_embd": 16, "vocab_size": 50, "n_positions": 32}
    model = peft.get_peft_model(transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes)), config)
    for parameter in model.parameters():
        if parameter.requires_grad:
            nn.init.normal_(parameter, std=0.1)
    return model


for name, config in {
    "LoHa": peft.LoHaConfig(r=2, target_modules=["lm_head"]),
    "VeRA": peft.VeraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True),
    "P-tuning": peft.PromptEncoderConfig(task_type="CAUSAL_LM", num_virtual_tokens=3, encoder_hidden_size=8),
    "layer norms": peft.LNTuningConfig(target_modules=["ln_1", "ln_2"]),
    "AdaLoRA": peft.AdaLoraConfig(init_r=2, total_step=10, target_modules=["c_attn"], fan_in_fan_out=True),
}.items():
    network("peft", name, partial(adapted, config), words, loss=lambda out: out.logits.square().mean())

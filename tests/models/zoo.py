"""Models written with plain torch.nn, in the styles people use."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F


class CausalAttention(nn.Module):
    """Scores, mask, softmax and values written out."""

    def __init__(self, width: int, heads: int, context: int):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.drop = nn.Dropout(0.1)
        self.register_buffer("mask", torch.tril(torch.ones(context, context)).view(1, 1, context, context))

    def forward(self, x):
        batch, length, width = x.size()
        q, k, v = (part.view(batch, length, self.heads, width // self.heads).transpose(1, 2) for part in self.qkv(x).split(width, dim=2))
        scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        scores = scores.masked_fill(self.mask[:, :, :length, :length] == 0, float("-inf"))
        y = self.drop(F.softmax(scores, dim=-1)) @ v
        return self.out(y.transpose(1, 2).contiguous().view(batch, length, width))


class FusedCausalAttention(CausalAttention):
    """The same through scaled_dot_product_attention."""

    def forward(self, x):
        batch, length, width = x.size()
        q, k, v = (part.view(batch, length, self.heads, width // self.heads).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=0.1 if self.training else 0.0, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class GPTBlock(nn.Module):
    def __init__(self, attention: nn.Module, width: int):
        super().__init__()
        self.before, self.attention, self.between = nn.LayerNorm(width), attention, nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))

    def forward(self, x):
        x = x + self.attention(self.before(x))
        return x + self.mlp(self.between(x))


class GPT(nn.Module):
    def __init__(self, vocabulary: int = 101, width: int = 32, heads: int = 4, layers: int = 2, context: int = 16, fused: bool = False):
        super().__init__()
        attention = FusedCausalAttention if fused else CausalAttention
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.drop = nn.Dropout(0.1)
        self.blocks = nn.ModuleList(GPTBlock(attention(width, heads, context), width) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens, targets=None):
        positions = torch.arange(0, tokens.size(1), dtype=torch.long, device=tokens.device)
        x = self.drop(self.tokens(tokens) + self.positions(positions))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)


class RMSNorm(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).type_as(x) * self.weight


def rotate(x, frequencies):
    """Rotary positions: pairs of features as complex numbers, turned."""
    pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * frequencies[None, :, None, :]).flatten(3).type_as(x)


class LlamaBlock(nn.Module):
    """Grouped queries, rotary positions, SwiGLU."""

    def __init__(self, width: int, heads: int, groups: int):
        super().__init__()
        self.heads, self.groups, size = heads, groups, width // heads
        self.wq, self.wk, self.wv = (nn.Linear(width, n * size, bias=False) for n in (heads, groups, groups))
        self.wo = nn.Linear(width, width, bias=False)
        self.w1, self.w3 = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, 3 * width, bias=False)
        self.w2 = nn.Linear(3 * width, width, bias=False)
        self.attention_norm, self.ffn_norm = RMSNorm(width), RMSNorm(width)

    def attend(self, x, frequencies):
        batch, length, width = x.shape
        q = rotate(self.wq(x).view(batch, length, self.heads, -1), frequencies)
        k = rotate(self.wk(x).view(batch, length, self.groups, -1), frequencies)
        v = self.wv(x).view(batch, length, self.groups, -1)
        k, v = (t.repeat_interleave(self.heads // self.groups, dim=2) for t in (k, v))
        y = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True)
        return self.wo(y.transpose(1, 2).contiguous().view(batch, length, width))

    def forward(self, x, frequencies):
        x = x + self.attend(self.attention_norm(x), frequencies)
        h = self.ffn_norm(x)
        return x + self.w2(F.silu(self.w1(h)) * self.w3(h))


class Llama(nn.Module):
    def __init__(self, vocabulary: int = 97, width: int = 32, heads: int = 4, groups: int = 2, layers: int = 2, context: int = 16):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(LlamaBlock(width, heads, groups) for _ in range(layers))
        self.norm, self.head = RMSNorm(width), nn.Linear(width, vocabulary, bias=False)
        angles = torch.outer(torch.arange(context).float(), 1.0 / 10000 ** (torch.arange(0, width // heads, 2).float() / (width // heads)))
        self.register_buffer("frequencies", torch.polar(torch.ones_like(angles), angles), persistent=False)

    def forward(self, tokens):
        x = self.tokens(tokens)
        for layer in self.layers:
            x = layer(x, self.frequencies[: tokens.shape[1]])
        return self.head(self.norm(x))


class BERT(nn.Module):
    """nn.TransformerEncoder with padding, segments and a pooled head."""

    def __init__(self, vocabulary: int = 89, width: int = 32, layers: int = 2, context: int = 16):
        super().__init__()
        self.words, self.places, self.segments = nn.Embedding(vocabulary, width, padding_idx=0), nn.Embedding(context, width), nn.Embedding(2, width)
        self.norm, self.drop = nn.LayerNorm(width, eps=1e-12), nn.Dropout(0.1)
        layer = nn.TransformerEncoderLayer(width, 4, 64, dropout=0.1, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.pooler, self.classifier = nn.Linear(width, width), nn.Linear(width, 3)
        self.register_buffer("position_ids", torch.arange(context).expand((1, -1)))

    def forward(self, tokens, segments=None):
        padding = tokens.eq(0)
        segments = torch.zeros_like(tokens) if segments is None else segments
        x = self.words(tokens) + self.places(self.position_ids[:, : tokens.size(1)]) + self.segments(segments)
        x = self.encoder(self.drop(self.norm(x)), src_key_padding_mask=padding)
        pooled = torch.tanh(self.pooler(x[:, 0]))
        return {"hidden": x, "logits": self.classifier(pooled)}


class T5Attention(nn.Module):
    """Relative positions in buckets."""

    def __init__(self, width: int, heads: int, buckets: int = 8):
        super().__init__()
        self.heads, self.buckets = heads, buckets
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.bias = nn.Embedding(buckets, heads)

    def positions(self, length, device):
        context = torch.arange(length, dtype=torch.long, device=device)[:, None]
        distance = torch.arange(length, dtype=torch.long, device=device)[None, :] - context
        half = self.buckets // 2
        bucket = (distance > 0).to(torch.long) * half
        distance = torch.abs(distance)
        exact = half // 2
        far = exact + (torch.log(distance.float() / exact) / math.log(128 / exact) * (half - exact)).to(torch.long)
        far = torch.min(far, torch.full_like(far, half - 1))
        return self.bias(bucket + torch.where(distance < exact, distance, far)).permute(2, 0, 1).unsqueeze(0)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (f(x).view(batch, -1, self.heads, width // self.heads).transpose(1, 2) for f in (self.q, self.k, self.v))
        scores = torch.matmul(q, k.transpose(3, 2)) + self.positions(length, x.device)
        weights = F.softmax(scores.float(), dim=-1).type_as(scores)
        return self.o(torch.matmul(weights, v).transpose(1, 2).contiguous().view(batch, -1, width))


class T5(nn.Module):
    def __init__(self, vocabulary: int = 83, width: int = 32, layers: int = 2):
        super().__init__()
        self.shared = nn.Embedding(vocabulary, width)
        self.attention = nn.ModuleList(T5Attention(width, 4) for _ in range(layers))
        self.norms = nn.ModuleList(RMSNorm(width) for _ in range(2 * layers))
        self.wi = nn.ModuleList(nn.Linear(width, 64, bias=False) for _ in range(layers))
        self.wo = nn.ModuleList(nn.Linear(64, width, bias=False) for _ in range(layers))

    def forward(self, tokens):
        x = self.shared(tokens)
        for i, (attend, wi, wo) in enumerate(zip(self.attention, self.wi, self.wo, strict=True)):
            x = x + attend(self.norms[2 * i](x))
            h = wo(F.relu(wi(self.norms[2 * i + 1](x))))
            x = x + torch.clamp(h, min=-1000.0, max=1000.0)
        return F.linear(x * (x.shape[-1] ** -0.5), self.shared.weight)


class ViTBlock(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width, eps=1e-6), nn.LayerNorm(width, eps=1e-6)
        self.attention = nn.MultiheadAttention(width, 4, dropout=0.1, batch_first=True)
        self.fc1, self.fc2 = nn.Linear(width, 64), nn.Linear(64, width)

    def forward(self, x):
        h = self.norm1(x)
        h, _ = self.attention(h, h, h, need_weights=False)
        x = x + h
        return x + self.fc2(F.gelu(self.fc1(self.norm2(x)), approximate="tanh"))


class ViT(nn.Module):
    def __init__(self, size: int = 16, patch: int = 4, width: int = 32, layers: int = 2, classes: int = 10):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.cls = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, (size // patch) ** 2 + 1, width) * 0.02)
        self.blocks = nn.Sequential(*(ViTBlock(width) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2)
        x = torch.cat((self.cls.expand(x.shape[0], -1, -1), x), dim=1) + self.positions
        return self.head(self.norm(self.blocks(x))[:, 0])


class Residual(nn.Module):
    def __init__(self, inside: int, outside: int, stride: int):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False), nn.BatchNorm2d(outside)
        self.conv2, self.bn2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False), nn.BatchNorm2d(outside)
        self.relu = nn.ReLU(inplace=True)
        self.down = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)) if stride != 1 else None

    def forward(self, x):
        identity = x if self.down is None else self.down(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += identity
        return self.relu(out)


class ResNet(nn.Module):
    def __init__(self, classes: int = 10):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1))
        self.layer1, self.layer2 = nn.Sequential(Residual(8, 8, 1), Residual(8, 8, 1)), nn.Sequential(Residual(8, 16, 2), Residual(16, 16, 1))
        self.pool, self.fc = nn.AdaptiveAvgPool2d((1, 1)), nn.Linear(16, classes)

    def forward(self, x):
        x = self.layer2(self.layer1(self.stem(x)))
        return self.fc(torch.flatten(self.pool(x), 1))


class Mixture(nn.Module):
    """Mixtral's feed-forward: each token goes to two of the experts; every expert sees every token, weighted, so that shapes are static."""

    def __init__(self, width: int = 32, experts: int = 4):
        super().__init__()
        self.gate = nn.Linear(width, experts, bias=False)
        self.w1, self.w2, self.w3 = (nn.ParameterList(nn.Parameter(torch.randn(width, width) * 0.1) for _ in range(experts)) for _ in range(3))

    def forward(self, x):
        flat = x.view(-1, x.size(-1))
        weights, chosen = torch.topk(F.softmax(self.gate(flat), dim=1, dtype=torch.float), 2, dim=-1)
        weights = (weights / weights.sum(dim=-1, keepdim=True)).to(x.dtype)
        out = torch.zeros_like(flat)
        for i in range(len(self.w1)):
            share = (weights * (chosen == i)).sum(dim=-1, keepdim=True)
            out = out + share * ((F.silu(flat @ self.w1[i].T) * (flat @ self.w3[i].T)) @ self.w2[i].T)
        return out.view_as(x)


def tokens(vocabulary: int, batch: int = 2, length: int = 12) -> torch.Tensor:
    return torch.randint(1, vocabulary, (batch, length))


def cases() -> dict[str, tuple]:
    """name -> (model, its arguments)."""
    padded = tokens(89)
    padded[1, 8:] = 0
    return {
        "gpt": (GPT(), (tokens(101),)),
        "gpt with loss": (GPT(), (tokens(101), tokens(101))),
        "gpt fused": (GPT(fused=True), (tokens(101),)),
        "llama": (Llama(), (tokens(97),)),
        "bert": (BERT(), (padded,)),
        "t5": (T5(), (tokens(83),)),
        "vit": (ViT(), (torch.randn(2, 3, 16, 16),)),
        "resnet": (ResNet(), (torch.randn(2, 3, 32, 32),)),
        "mixtral": (Mixture(), (torch.randn(2, 5, 32),)),
    }

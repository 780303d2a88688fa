"""Habits of training code that change what was compiled, or reach for less common parts of PyTorch, held back."""

from __future__ import annotations

import random
import warnings
from collections import namedtuple

import torch
import torch.nn.functional as F
from cases import Case, Collection
from parts import network, rows, weights
from torch import nn
from torch.nn.utils import prune

collection = Collection("torch")
Pair = namedtuple("Pair", ["first", "second"])


def cases() -> list[Case]:
    return collection.cases


def learn(model: nn.Module, loss: torch.Tensor, lr: float = 0.1) -> torch.Tensor:
    """Take a step of plain gradient descent; return the loss."""
    loss.backward()
    with torch.no_grad():
        for p in model.parameters():
            if p.grad is not None:
                p -= lr * p.grad
                p.grad = None
    return loss.detach()


@collection.script("dropout rate and momentum changed midway, held back")
def rates(compile):
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8, momentum=None), nn.Dropout(0.1), nn.Linear(8, 3))
    net = compile(model)
    for epoch in range(3):
        model[2].p = 0.1 * (epoch + 1)
        if epoch == 2:
            model[1].momentum = 0.3
        for x, y in rows(8):
            learn(model, F.cross_entropy(net(x), y))
    return weights(model)


@collection.script("stochastic depth by Python's random, held back")
def depth(compile):
    class Deep(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

        def forward(self, x):
            for i, layer in enumerate(self.layers):
                if self.training and random.random() < 0.2 * i:
                    continue
                x = x + torch.relu(layer(x))
            return x

    model = Deep()
    net = compile(model)
    return [learn(model, net(torch.randn(3 + i % 2, 8)).square().mean()) for i in range(6)], weights(model)


@collection.script("buffers assigned anew and a cache in a dict, held back")
def caches(compile):
    class Memory(nn.Module):
        def __init__(self):
            super().__init__()
            self.key, self.kept = nn.Linear(8, 4), {}
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x, name):
            self.count = self.count + 1
            key = self.key(x)
            past = self.kept.get(name)
            keys = key if past is None else torch.cat([past, key])
            self.kept[name] = keys.detach()[-6:]
            return torch.softmax(key @ keys.T, -1) @ keys

    model = Memory()
    net = compile(model)
    losses = [learn(model, net(torch.randn(2, 8), name).square().mean()) for name in ("a", "b", "a", "a", "b")]
    return losses, weights(model), dict(model.kept)


@collection.script("parameters and layers replaced midway, held back")
def replaced(compile):
    model = network()
    net = compile(model)
    losses = [learn(model, net(torch.randn(4, 8)).square().mean())]
    model[0].weight = nn.Parameter(torch.randn(16, 8) * 0.1)
    losses.append(learn(model, net(torch.randn(4, 8)).square().mean()))
    model[3] = nn.Linear(16, 5)
    losses.append(learn(model, net(torch.randn(4, 8)).square().mean()))
    model.append(nn.Tanh())
    losses.append(learn(model, net(torch.randn(3, 8)).square().mean()))
    return losses, weights(model)


@collection.script("pruning, held back")
def pruned(compile):
    model = network()
    net = compile(model)
    prune.l1_unstructured(model[0], "weight", amount=0.3)
    losses = [learn(model, net(torch.randn(4, 8)).square().mean()) for _ in range(2)]
    prune.random_structured(model[3], "weight", amount=1, dim=1)
    losses.append(learn(model, net(torch.randn(4, 8)).square().mean()))
    prune.remove(model[0], "weight")
    return losses, weights(model), net(torch.ones(2, 8))


@collection.script("two backward passes through one graph, held back")
def twice(compile):
    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.first, self.second = nn.Linear(8, 6), nn.Linear(6, 3), nn.Linear(6, 1)

        def forward(self, x):
            hidden = torch.tanh(self.body(x))
            return Pair(self.first(hidden), self.second(hidden))

    model, norms = Heads(), []
    net = compile(model)
    for size in (4, 4, 3):
        out = net(torch.randn(size, 8))
        out.first.square().mean().backward(retain_graph=True)
        norms.append(model.body.weight.grad.norm().item())
        learn(model, out.second.abs().mean())
    return norms, weights(model)


@collection.script("teacher forcing in a loop of cells, held back")
def forcing(compile):
    class Writer(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.cell, self.head = nn.Embedding(10, 6), nn.GRUCell(6, 6), nn.Linear(6, 10)

        def forward(self, target, share):
            token, state, out = target[:, 0], torch.zeros(len(target), 6), []
            for step in range(1, target.shape[1]):
                state = self.cell(self.embed(token), state)
                out.append(self.head(state))
                token = target[:, step] if random.random() < share else out[-1].argmax(-1)
            return torch.stack(out, 1)

    model = Writer()
    net, losses = compile(model), []
    for length, share in ((4, 1.0), (4, 0.5), (5, 0.5), (4, 0.0)):
        target = torch.randint(0, 10, (3, length))
        losses.append(learn(model, F.cross_entropy(net(target, share).transpose(1, 2), target[:, 1:])))
    return losses, weights(model)


@collection.script("hard negatives, sorting and histograms, held back")
def mining(compile):
    @compile
    def loss_of(scores, labels):
        losses = F.binary_cross_entropy_with_logits(scores, labels, reduction="none")
        hard = losses[labels == 0].topk(max(1, len(scores) // 4)).values
        ranked, order = scores.sort(descending=True)
        gain = (labels[order] / torch.log2(torch.arange(len(scores)) + 2.0)).cumsum(0)
        bins = torch.zeros(4).scatter_add(0, (scores.sigmoid() * 4).long().clamp(max=3), losses)
        return losses[labels == 1].sum() + hard.mean() + bins.var() + (ranked.diff() * gain[1:]).mean()

    model = nn.Linear(6, 1)
    return [learn(model, loss_of(model(torch.randn(n, 6)).squeeze(1), (torch.arange(n) % 3 == 0).float())) for n in (9, 9, 12, 8)], weights(model)


@collection.script("spectra and complex layers, held back")
def spectra(compile):
    class Spectral(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.window = nn.Parameter(torch.randn(9, dtype=torch.cfloat)), None
            self.register_buffer("hann", torch.hann_window(16))

        def forward(self, x):
            spectrum = torch.stft(x, 16, 4, window=self.hann, return_complex=True)
            filtered = spectrum * self.weight[:, None]
            back = torch.istft(filtered, 16, 4, window=self.hann, length=x.shape[-1])
            return back, torch.log1p(filtered.abs()).mean(), torch.fft.rfft(back).angle().cos().mean()

    model, losses = Spectral(), []
    net = compile(model)
    for length in (64, 64, 80):
        out, level, phase = net(torch.randn(2, length))
        losses.append(learn(model, out.square().mean() + level + phase, 0.01))
    return losses, weights(model)


@collection.script("attention modules with masks, held back")
def attention(compile):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.own, self.cross = nn.MultiheadAttention(8, 2, batch_first=True), nn.MultiheadAttention(8, 2, kdim=6, vdim=6, batch_first=True)

        def forward(self, x, memory, padding):
            causal = torch.triu(torch.full((x.shape[1],) * 2, float("-inf")), 1)
            x, shares = self.own(x, x, x, attn_mask=causal, key_padding_mask=None, average_attn_weights=False)
            out, mean = self.cross(x, memory, memory, key_padding_mask=padding)
            return out, shares, mean

    model, losses = Block(), []
    net = compile(model)
    for batch, length in ((2, 4), (2, 4), (3, 5)):
        padding = torch.arange(3) > torch.randint(0, 3, (batch, 1))
        out, shares, mean = net(torch.randn(batch, length, 8), torch.randn(batch, 3, 6), padding)
        losses.append(learn(model, out.square().mean() + shares.std() + mean.square().mean()))
    model.eval()
    return losses, weights(model), net(torch.ones(1, 3, 8), torch.ones(1, 3, 6), None)


@collection.script("an encoder and a decoder, held back")
def translator(compile):
    model = nn.Transformer(8, 2, 1, 1, 16, dropout=0.1, batch_first=True, activation="gelu")
    net, losses = compile(model), []
    for source, target in ((4, 3), (4, 3), (5, 4)):
        mask = model.generate_square_subsequent_mask(target)
        losses.append(learn(model, net(torch.randn(2, source, 8), torch.randn(2, target, 8), tgt_mask=mask).square().mean()))
    return losses, weights(model)


@collection.script("less common losses, held back")
def losses(compile):
    class Losses(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.tail = nn.Linear(8, 6), nn.AdaptiveLogSoftmaxWithLoss(6, 10, [3, 6])
            self.triplet, self.gauss = nn.TripletMarginLoss(swap=True), nn.GaussianNLLLoss()

        def forward(self, x, y):
            a, b, c = (self.body(part) for part in x)
            total = self.triplet(a, b, c) + F.cosine_embedding_loss(a, b, torch.ones(len(a))) + self.tail(a, y).loss
            total = total + self.gauss(a, b.detach(), F.softplus(c)) + F.poisson_nll_loss(a, b.detach().abs().round())
            return total + F.multi_margin_loss(a, y % 6) + F.huber_loss(a, c, delta=0.3) + F.multilabel_soft_margin_loss(b, (c > 0).float())

    model = Losses()
    net = compile(model)
    return [learn(model, net(torch.randn(3, n, 8), torch.arange(n) * 3 % 10)) for n in (4, 4, 6)], weights(model)


@collection.script("a Gaussian process, held back")
def gaussian_process(compile):
    scale, noise = nn.Parameter(torch.tensor(0.5)), nn.Parameter(torch.tensor(-1.0))
    model = nn.ParameterList([scale, noise])

    @compile
    def negative_evidence(x, y):
        kernel = torch.exp(-torch.cdist(x, x).square() / (2 * scale.exp() ** 2)) + F.softplus(noise) * torch.eye(len(x))
        factor = torch.linalg.cholesky(kernel)
        solved = torch.cholesky_solve(y[:, None], factor).squeeze(1)
        return 0.5 * y @ solved + factor.diagonal().log().sum()

    outcomes = []
    for n in (5, 5, 7):
        x = torch.linspace(0, 1, n)[:, None]
        outcomes.append(learn(model, negative_evidence(x, x.squeeze(1).sin()), 0.01))
    return outcomes, weights(model)


@collection.script("conditions, messages and errors, held back")
def conditions(compile):
    class Careful(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(8, 8)

        def forward(self, x):
            assert not torch.isnan(x).any(), "the input has NaN"
            try:
                x = x.view(-1, 16).view(-1, 8)
            except RuntimeError:
                x = x * 0.5
            if x.abs().max() > 2.5:
                warnings.warn("large values are clipped", stacklevel=2)
                x = x.clamp(-2.5, 2.5)
            for _ in range(20):
                following = torch.tanh(self.body(x)) * 0.5
                if (following - x).norm() < 0.05:
                    break
                x = following
            return x

    model, outcomes = Careful(), []
    net = compile(model)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "large values")
        for size in (4, 3, 4, 4):
            outcomes.append(learn(model, net(torch.randn(size, 8) * size / 3).square().sum()))
    return outcomes, weights(model)


@collection.script("dtypes, grad modes and default dtypes, held back")
def modes(compile):
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.Linear(8, 8), nn.Linear(8, 3)

        def forward(self, x, frozen=False):
            with torch.set_grad_enabled(not frozen):
                hidden = self.body(x).relu()
            with torch.no_grad():
                scale = hidden.double().norm(dim=1, keepdim=True).float()
            return self.head(hidden / (scale + torch.finfo(x.dtype).eps)).to(torch.get_default_dtype())

    model, outcomes = Mixed(), []
    net = compile(model)
    for frozen in (False, True, False):
        outcomes.append(learn(model, net(torch.randn(4, 8), frozen).square().mean()))
    try:
        torch.set_default_dtype(torch.float64)
        outcomes.append(net(torch.ones(2, 8, dtype=torch.float32)))
    finally:
        torch.set_default_dtype(torch.float32)
    model.double()
    outcomes.append(learn(model, net(torch.randn(4, 8, dtype=torch.float64)).square().mean()))
    return outcomes, weights(model)


@collection.script("a whole step with its schedule compiled, held back")
def whole_step(compile):
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 3))

    @compile
    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach(), norm

    outcomes = []
    for x, y in rows(18):
        outcomes.append(step(x, y))
        scheduler.step()
    return outcomes, weights(model), optimizer.state_dict()["state"]


@collection.script("recurrent layers of every kind, held back")
def recurrent(compile):
    class Layers(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.LSTM(5, 6, proj_size=3, batch_first=True), nn.RNN(3, 4, 2, nonlinearity="relu", bias=False)
            self.cell, self.mix = nn.LSTMCell(4, 4), nn.Bilinear(4, 4, 2)

        def forward(self, x):
            out, (hidden, _) = self.first(x)
            out, _ = self.second(out.transpose(0, 1))
            state = None
            for each in out.unbind(0):
                state = self.cell(each, state)
            return self.mix(*state), hidden

    model, outcomes = Layers(), []
    net = compile(model)
    for length in (3, 3, 4):
        out, hidden = net(torch.randn(2, length, 5))
        outcomes.append(learn(model, out.square().mean() + hidden.abs().mean()))
    return outcomes, weights(model)


@collection.script("images taken apart and put together, held back")
def images(compile):
    class Patches(nn.Module):
        def __init__(self):
            super().__init__()
            self.mix, self.up = nn.Linear(12, 12), nn.Sequential(nn.Conv2d(3, 12, 3, padding="same", padding_mode="reflect"), nn.PixelShuffle(2))

        def forward(self, x):
            parts = F.unfold(x, 2, stride=2).transpose(1, 2)
            back = F.fold(self.mix(parts).transpose(1, 2), x.shape[2:], 2, stride=2)
            large = self.up(back)
            grid = F.affine_grid(torch.eye(2, 3).expand(len(x), 2, 3), list(large.shape), align_corners=False)
            return F.grid_sample(large, grid * 0.9, padding_mode="border", align_corners=False)

    model = Patches()
    net = compile(model)
    return [learn(model, net(torch.randn(2, 3, size, size)).square().mean()) for size in (8, 8, 10)], weights(model)


@collection.script("curvature by products with vectors, held back")
def curvature(compile):
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))

    @compile
    def product(x, vectors):
        parameters = list(model.parameters())
        gradients = torch.autograd.grad(model(x).square().mean(), parameters, create_graph=True)
        return torch.autograd.grad(sum((g * v).sum() for g, v in zip(gradients, vectors, strict=True)), parameters)

    outcomes = []
    for size in (3, 3, 5):
        outcomes += product(torch.randn(size, 4), [torch.randn_like(p) for p in model.parameters()])
    return outcomes


@collection.script("a model that another model holds and calls in parts, held back")
def parts(compile):
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = compile(network())
            self.gate = nn.Parameter(torch.ones(3))

        def forward(self, x):
            return {"out": self.inner(x) * self.gate, "all": [self.inner(x[i : i + 1]) for i in range(2)]}

    model = Outer()
    outcomes = []
    for size in (4, 4, 3):
        result = model(torch.randn(size, 8))
        outcomes.append(learn(model, result["out"].square().mean() + sum(part.abs().mean() for part in result["all"])))
    return outcomes, weights(model), sorted(name.replace("_orig_mod.", "") for name, _ in model.named_parameters())

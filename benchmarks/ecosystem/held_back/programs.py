"""Training scripts as users of PyTorch write them, held back: what is left of parameters, buffers and logged numbers is compared.

Each function gets what compiles a module or a function, and returns what it left behind.
"""

from __future__ import annotations

import copy
import io
import math

import numpy as np
import torch
import torch.nn.functional as F
from cases import Case, Collection
from parts import network, rows, weights
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn.utils import clip_grad_norm_, parametrizations, parametrize, rnn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, update_bn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

collection = Collection("torch")


def cases() -> list[Case]:
    return collection.cases


class ConvNet(nn.Module):
    def __init__(self, classes: int = 4):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.SiLU(inplace=True))
        self.block = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=4), nn.GroupNorm(2, 8), nn.GELU())
        self.head = nn.Linear(8, classes)

    def forward(self, x):
        x = self.stem(x)
        x = F.max_pool2d(x + self.block(x), 2)
        return self.head(x.mean((2, 3)))


@collection.script("mixup, warm-up and cosine schedule, held back")
def mixup(compile):
    model = ConvNet()
    net = compile(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=1e-3)
    warm = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=2)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 4)
    scheduler = torch.optim.lr_scheduler.SequentialLR(optimizer, [warm, cosine], [2])
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    for step in range(5):
        x, y = torch.randn(4 + step % 2, 3, 8, 8), torch.randint(0, 4, (4 + step % 2,))
        share, order = np.random.beta(0.4, 0.4), torch.randperm(len(x))
        out = net(share * x + (1 - share) * x[order])
        loss = share * criterion(out, y) + (1 - share) * criterion(out, y[order])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        scheduler.step()
    return weights(model), scheduler.get_last_lr()


@collection.script("averaged weights with batch norm, held back")
def averaged(compile):
    model = ConvNet()
    net, ema = compile(model), AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, amsgrad=True)
    images = [torch.randn(size, 3, 8, 8) for size in (4, 4, 3)]
    for x in images:
        F.cross_entropy(net(x), torch.arange(len(x)) % 4).backward()
        optimizer.step()
        optimizer.zero_grad()
        ema.update_parameters(model)
    update_bn(images, ema)
    ema.eval()
    with torch.no_grad():
        out = compile(ema)(images[0])
    return weights(model, ema), out


@collection.script("accumulated gradients, clipped, held back")
def accumulated(compile):
    model = network()
    net, optimizer = compile(model), torch.optim.RMSprop(model.parameters(), lr=1e-2)
    loader, norms = rows(22), []
    for index, (x, y) in enumerate(loader):
        loss = F.cross_entropy(net(x), y) / 3
        loss.backward()
        if (index + 1) % 3 == 0 or index + 1 == len(loader):
            norms.append(clip_grad_norm_(model.parameters(), 0.5).item())
            optimizer.step()
            optimizer.zero_grad()
    return weights(model), norms


@collection.script("transformer under autocast, bf16, held back")
def autocast(compile):
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True, norm_first=True)
    model = nn.ModuleDict(
        {"embed": nn.Embedding(20, 16), "body": nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), "head": nn.Linear(16, 20)}
    )

    @compile
    def forward(tokens):
        hidden = model["embed"](tokens)
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        return model["head"](model["body"](hidden, mask=mask, is_causal=True))

    decay = [p for p in model.parameters() if p.ndim > 1]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": [p for p in model.parameters() if p.ndim < 2]}], lr=1e-3)
    losses = []
    for length in (6, 6, 9):
        tokens = torch.randint(0, 20, (3, length))
        with torch.autocast("cpu", torch.bfloat16):
            out = forward(tokens[:, :-1])
            loss = F.cross_entropy(out.flatten(0, 1).float(), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


class TiedLM(nn.Module):
    def __init__(self, words: int = 20, width: int = 12):
        super().__init__()
        self.embed, self.rnn, self.decode = nn.Embedding(words, width), nn.LSTM(width, width, 2, dropout=0.1), nn.Linear(width, words)
        self.decode.weight = self.embed.weight

    def forward(self, tokens, state):
        out, state = self.rnn(self.embed(tokens), state)
        return self.decode(out), state


@collection.script("tied weights, state carried over, held back")
def tied(compile):
    model, text = TiedLM(), torch.randint(0, 20, (26, 3))
    net, optimizer, state = compile(model), torch.optim.SGD(model.parameters(), lr=1.0), None
    for start in range(0, 25, 7):
        chunk = text[start : start + 8]
        if state is None:
            state = (torch.zeros(2, 3, 12), torch.zeros(2, 3, 12))
        state = tuple(each.detach() for each in state)
        out, state = net(chunk[:-1], state)
        optimizer.zero_grad()
        F.cross_entropy(out.reshape(-1, 20), chunk[1:].reshape(-1)).backward()
        nn.utils.clip_grad_value_(model.parameters(), 0.1)
        optimizer.step()
    return weights(model), state


@collection.script("weight norm, spectral norm and a parametrization, held back")
def normed(compile):
    class Symmetric(nn.Module):
        def forward(self, x):
            return x.triu() + x.triu(1).T

    model = nn.Sequential(parametrizations.weight_norm(nn.Linear(8, 8)), nn.Tanh(), parametrizations.spectral_norm(nn.Linear(8, 8)), nn.Linear(8, 8))
    parametrize.register_parametrization(model[3], "weight", Symmetric())
    net, optimizer = compile(model), torch.optim.Adam(model.parameters(), lr=1e-2)
    for size in (4, 4, 5):
        net(torch.randn(size, 8)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    parametrize.remove_parametrizations(model[3], "weight")
    return weights(model), net(torch.ones(2, 8))


@collection.script("checkpointed blocks, held back")
def checkpointed(compile):
    class Deep(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList(network(8, 8) for _ in range(3))
            self.tail = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(4)))

        def forward(self, x):
            for block in self.blocks:
                x = x + checkpoint(block, x, use_reentrant=False)
            return checkpoint_sequential(self.tail, 2, x, use_reentrant=False)

    model = Deep()
    net, optimizer = compile(model), torch.optim.NAdam(model.parameters())
    for size in (4, 3, 4):
        net(torch.randn(size, 8)).pow(2).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return weights(model)


@collection.script("packed sequences, held back")
def packed(compile):
    class Tagger(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.head = nn.GRU(5, 6, batch_first=True, bidirectional=True), nn.Linear(12, 3)

        def forward(self, x, lengths):
            packed = rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            out, _ = rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True, total_length=x.shape[1])
            return self.head(out)

    model = Tagger()
    net, optimizer = compile(model), torch.optim.Adagrad(model.parameters(), lr=0.1)
    for lengths in ([3, 5, 2], [4, 4, 1], [6, 2, 3]):
        sequences = [torch.randn(length, 5) for length in lengths]
        x = rnn.pad_sequence(sequences, batch_first=True)
        out = net(x, torch.tensor(lengths))
        mask = torch.arange(x.shape[1]) < torch.tensor(lengths)[:, None]
        F.cross_entropy(out[mask], torch.zeros(sum(lengths), dtype=torch.long)).backward()
        optimizer.step()
        optimizer.zero_grad()
    return weights(model)


@collection.script("resumed from a file, held back")
def resumed(compile):
    def parts():
        model = ConvNet()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        return model, compile(model), optimizer, torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=8)

    def steps(net, optimizer, scheduler):
        for size in (4, 2):
            F.cross_entropy(net(torch.randn(size, 3, 8, 8)), torch.arange(size)).backward()
            optimizer.step()
            optimizer.zero_grad()
            scheduler.step()

    model, net, optimizer, scheduler = parts()
    steps(net, optimizer, scheduler)
    file = io.BytesIO()
    torch.save({"model": net.state_dict(), "optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}, file)
    file.seek(0)
    kept = torch.load(file)
    model, net, optimizer, scheduler = parts()
    net.load_state_dict(kept["model"])
    optimizer.load_state_dict(kept["optimizer"])
    scheduler.load_state_dict(kept["scheduler"])
    steps(net, optimizer, scheduler)
    return weights(model), list(kept["model"].values())


@collection.script("Q-learning with a target network, held back")
def q_learning(compile):
    online = network(4, 2)
    net = compile(online)
    target = copy.deepcopy(net).requires_grad_(False)
    optimizer = torch.optim.Adam(online.parameters(), lr=1e-2)
    for _ in range(4):
        state, action, reward, following = torch.randn(6, 4), torch.randint(0, 2, (6, 1)), torch.randn(6), torch.randn(6, 4)
        done = torch.rand(6) < 0.2
        with torch.no_grad():
            value = target(following).max(1).values.masked_fill(done, 0.0)
        F.smooth_l1_loss(net(state).gather(1, action).squeeze(1), reward + 0.99 * value).backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            for old, new in zip(target.parameters(), net.parameters(), strict=True):
                old.lerp_(new, 0.05)
    return weights(online), [each.clone() for each in target.parameters()]


@collection.script("hooks that keep activations and scale gradients, held back")
def hooked(compile):
    model, kept = network(), []
    net, optimizer = compile(model), torch.optim.SGD(model.parameters(), lr=0.1)
    handle = model[0].register_forward_hook(lambda module, args, out: kept.append(out.detach().mean()))
    model[3].register_forward_pre_hook(lambda module, args: (args[0] * 0.5,))
    model[3].weight.register_hook(lambda gradient: gradient * 2)
    norms = []
    for index, (x, y) in enumerate(rows(14)):
        if index == 2:
            handle.remove()
        F.cross_entropy(net(x), y).backward()
        norms.append(sum(p.grad.norm() for p in model.parameters()))
        optimizer.step()
        optimizer.zero_grad()
    return weights(model), kept, norms


@collection.script("gradients per sample, clipped, with noise, held back")
def private(compile):
    model = nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 3))

    def loss(parameters, x, y):
        return F.cross_entropy(functional_call(model, parameters, (x[None],)), y[None])

    @compile
    def gradients(parameters, x, y):
        each = vmap(grad(loss), in_dims=(None, 0, 0))(parameters, x, y)
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in each.values()]).norm(dim=0)
        factor = (1.0 / (norms + 1e-6)).clamp(max=1.0)
        return {name: torch.einsum("n,n...->...", factor, g) / len(x) for name, g in each.items()}

    parameters = {name: each.detach() for name, each in model.named_parameters()}
    for x, y in rows(14):
        noise = {name: 0.01 * torch.randn_like(each) for name, each in parameters.items()}
        parameters = {name: parameters[name] - 0.1 * (g + noise[name]) for name, g in gradients(parameters, x, y).items()}
    return parameters


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.scale = scale
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return -ctx.scale * gradient, None


class Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, levels):
        ctx.save_for_backward(x)
        return torch.round(x * levels) / levels

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * (x.abs() <= 1), None


@collection.script("domain adaptation with custom gradients, held back")
def adversarial(compile):
    class Adapting(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.label, self.domain = nn.Linear(8, 8), nn.Linear(8, 3), nn.Linear(8, 2)

        def forward(self, x, scale):
            hidden = Rounded.apply(torch.tanh(self.body(x)), 8)
            return self.label(hidden), self.domain(Reverse.apply(hidden, scale))

    model = Adapting()
    net, optimizer = compile(model), torch.optim.Adamax(model.parameters())
    for step, (x, y) in enumerate(rows(14)):
        label, domain = net(x, 2 / (1 + math.exp(-step)) - 1)
        (F.cross_entropy(label, y) + F.cross_entropy(domain, y % 2)).backward()
        optimizer.step()
        optimizer.zero_grad()
    return weights(model)


@collection.script("NumPy in a loss and in the loader, held back")
def numpy_inside(compile):
    model = network()
    counts = np.bincount(np.array([0, 1, 1, 2, 2, 2]), minlength=3)

    @compile
    def loss_of(x, y):
        weight = torch.from_numpy((counts.sum() / (3 * counts)).astype(np.float32))
        ranks = np.argsort(np.abs(x.detach().numpy()).mean(1))
        return (F.cross_entropy(model(x), y, weight, reduction="none") * torch.from_numpy(1.0 / (1 + ranks)).float()).mean()

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        x = np.random.default_rng(step).normal(size=(4 + step % 2, 8)).astype("float32")
        loss_of(torch.from_numpy(x), torch.as_tensor(np.arange(len(x)) % 3)).backward()
        optimizer.step()
        optimizer.zero_grad()
    return weights(model)


@collection.script("variational autoencoder, held back")
def variational(compile):
    class Autoencoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.encode, self.mean, self.variance, self.decode = nn.Linear(8, 8), nn.Linear(8, 2), nn.Linear(8, 2), network(2, 8)

        def forward(self, x):
            hidden = F.elu(self.encode(x))
            posterior = torch.distributions.Normal(self.mean(hidden), F.softplus(self.variance(hidden)))
            prior = torch.distributions.Normal(torch.zeros(2), torch.ones(2))
            return self.decode(posterior.rsample()), torch.distributions.kl_divergence(posterior, prior).sum(1).mean()

    model, losses = Autoencoder(), []
    net, optimizer = compile(model), torch.optim.RAdam(model.parameters(), lr=1e-2)
    for step in range(4):
        x = torch.rand(3 + step, 8)
        logits, divergence = net(x)
        loss = F.binary_cross_entropy_with_logits(logits, x, reduction="sum") / len(x) + min(1.0, step / 3) * divergence
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return weights(model), losses


@collection.script("adversarial networks with a gradient penalty, held back")
def gan(compile):
    maker, critic = network(2, 4), nn.Sequential(nn.Linear(4, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
    make, judge = compile(maker), compile(critic)
    first, second = (torch.optim.Adam(each.parameters(), lr=1e-3, betas=(0.0, 0.9)) for each in (maker, critic))
    for _ in range(3):
        real, fake = torch.randn(5, 4), make(torch.randn(5, 2)).detach()
        between = torch.lerp(real, fake, torch.rand(5, 1)).requires_grad_()
        (slope,) = torch.autograd.grad(judge(between).sum(), between, create_graph=True)
        second.zero_grad()
        (judge(fake).mean() - judge(real).mean() + 10 * (slope.norm(dim=1) - 1).square().mean()).backward()
        second.step()
        critic.requires_grad_(False)
        first.zero_grad()
        (-judge(make(torch.randn(5, 2))).mean()).backward()
        first.step()
        critic.requires_grad_(True)
    return weights(maker, critic)


@collection.script("meta-learning, held back")
def meta(compile):
    model = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))

    @compile
    def task_loss(parameters, x, y, query, target):
        for _ in range(2):
            loss = F.mse_loss(functional_call(model, parameters, (x,)), y)
            gradients = torch.autograd.grad(loss, list(parameters.values()), create_graph=True)
            parameters = {name: each - 0.1 * g for (name, each), g in zip(parameters.items(), gradients, strict=True)}
        return F.mse_loss(functional_call(model, parameters, (query,)), target)

    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(3):
        phase, x, query = torch.rand(1), torch.randn(5, 1), torch.randn(6, 1)
        task_loss(dict(model.named_parameters()), x, (x + phase).sin(), query, (query + phase).sin()).backward()
        optimizer.step()
        optimizer.zero_grad()
    return weights(model)


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.deep = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 8, 3, stride=2, padding=1)
        self.up, self.out = nn.ConvTranspose2d(8, 4, 2, stride=2), nn.Conv2d(8, 1, 1)

    def forward(self, x):
        first = F.relu(self.down(x))
        back = self.up(F.relu(self.deep(first)))
        if back.shape != first.shape:
            back = F.interpolate(back, first.shape[2:], mode="bilinear", align_corners=False)
        return self.out(torch.cat([first, back], 1))


@collection.script("segmentation of images of several sizes, held back")
def segmentation(compile):
    model, scores = UNet(), []
    net, optimizer = compile(model), torch.optim.Adam(model.parameters(), lr=1e-2)
    for height, width in ((8, 8), (8, 10), (9, 8), (12, 12)):
        x, mask = torch.randn(2, 1, height, width), (torch.rand(2, 1, height, width) > 0.5).float()
        logits = net(x)
        chance = logits.sigmoid()
        dice = 1 - (2 * (chance * mask).sum((1, 2, 3)) + 1) / (chance.sum((1, 2, 3)) + mask.sum((1, 2, 3)) + 1)
        (F.binary_cross_entropy_with_logits(logits, mask) + dice.mean()).backward()
        optimizer.step()
        optimizer.zero_grad()
        scores.append(dice.detach())
    return weights(model), scores

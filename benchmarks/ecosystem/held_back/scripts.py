"""More training scripts, held back; the first half is in programs.py."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from cases import Case, Collection
from parts import network, rows, weights
from torch import nn

collection = Collection("torch")


def cases() -> list[Case]:
    return collection.cases


@collection.script("policy gradient, held back")
def reinforce(compile):
    model = network(4, 3)
    net, optimizer = compile(model), torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(3):
        densities, rewards, state = [], [], torch.randn(4)
        for _ in range(4):
            policy = torch.distributions.Categorical(logits=net(state))
            action = policy.sample()
            densities.append(policy.log_prob(action))
            rewards.append(state[action.item()].item())
            state = state.roll(1) + action * 0.1
        returns, total = [], 0.0
        for reward in reversed(rewards):
            total = reward + 0.9 * total
            returns.insert(0, total)
        returns = torch.tensor(returns)
        returns = (returns - returns.mean()) / (returns.std() + 1e-8)
        optimizer.zero_grad()
        (-torch.stack(densities) * returns).sum().backward()
        optimizer.step()
    return weights(model)


@collection.script("contrastive loss with a learned temperature, held back")
def contrastive(compile):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.scale = network(8, 6), nn.Parameter(torch.tensor(2.0))

        def forward(self, first, second):
            both = F.normalize(torch.cat([self.body(first), self.body(second)]), dim=-1)
            count = len(first)
            scores = both @ both.T * self.scale.exp()
            scores = scores.masked_fill(torch.eye(2 * count, dtype=torch.bool), float("-inf"))
            return F.cross_entropy(scores, torch.arange(2 * count).roll(count))

    model = Model()
    net, optimizer = compile(model), torch.optim.AdamW(model.parameters(), lr=1e-2)
    for size in (4, 5, 4):
        x = torch.randn(size, 8)
        net(x + 0.1 * torch.randn_like(x), x).backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            model.scale.clamp_(0, 2.05)
    return weights(model)


@collection.script("plateau schedule and early stopping, held back")
def plateau(compile):
    model = network()
    net, optimizer = compile(model), torch.optim.SGD(model.parameters(), lr=0.5)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.5)
    loader, best, bad, history = rows(10), float("inf"), 0, []
    for _ in range(5):
        net.train()
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(net(x), y).backward()
            optimizer.step()
        net.eval()
        with torch.inference_mode():
            loss = sum(F.cross_entropy(net(x), y, reduction="sum").item() for x, y in loader) / 10
        history.append(loss)
        scheduler.step(loss)
        best, bad = (loss, 0) if loss < best else (best, bad + 1)
        if bad > 1:
            break
    return weights(model), history


@collection.script("gradient scaler, held back")
def scaled(compile):
    model = network()
    net, optimizer, scaler = (
        compile(model),
        torch.optim.SGD(model.parameters(), lr=0.1),
        torch.amp.GradScaler("cpu", init_scale=16.0, growth_interval=2),
    )
    for x, y in rows(14):
        scaler.scale(F.cross_entropy(net(x), y)).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    return weights(model), scaler.get_scale()


@collection.script("a module that counts and anneals, held back")
def annealed(compile):
    class Gate(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.steps = nn.Parameter(torch.randn(8, 4)), 0
            self.register_buffer("usage", torch.zeros(4))

        def forward(self, x):
            if self.training:
                self.steps += 1
            temperature = max(0.5, 0.9**self.steps)
            share = F.gumbel_softmax(x @ self.weight, tau=temperature, hard=self.steps > 2)
            if self.training:
                self.usage.mul_(0.9).add_(share.detach().mean(0), alpha=0.1)
            return share

    model = Gate()
    net, optimizer = compile(model), torch.optim.SGD(model.parameters(), lr=0.1)
    for size in (4, 4, 5, 4):
        (net(torch.randn(size, 8)) * torch.arange(4.0)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    return weights(model), model.steps, net(torch.ones(2, 8))


@collection.script("L-BFGS with a closure, held back")
def second_order(compile):
    model = nn.Linear(4, 1)
    net, x = compile(model), torch.randn(12, 4)
    y, optimizer = x.sin().sum(1, keepdim=True), torch.optim.LBFGS(model.parameters(), max_iter=4, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = F.mse_loss(net(x), y) + 1e-3 * sum(p.square().sum() for p in model.parameters())
        loss.backward()
        return loss

    return [optimizer.step(closure).item() for _ in range(2)], weights(model)


@collection.script("distillation, held back")
def distilled(compile):
    teacher, student = network().eval(), network()
    teach, learn = compile(teacher), compile(student)
    optimizer = torch.optim.Adam(student.parameters(), lr=1e-2, fused=False, foreach=True)
    for x, y in rows(14):
        with torch.no_grad():
            target = teach(x) / 2
        out = learn(x)
        (F.kl_div((out / 2).log_softmax(-1), target.log_softmax(-1), log_target=True, reduction="batchmean") * 4 + F.cross_entropy(out, y)).backward()
        optimizer.step()
        optimizer.zero_grad()
    return weights(student)


@collection.script("mixture of experts, held back")
def experts(compile):
    class Mixture(nn.Module):
        def __init__(self):
            super().__init__()
            self.route, self.experts = nn.Linear(8, 3, bias=False), nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

        def forward(self, x):
            flat = x.reshape(-1, 8)
            shares, chosen = self.route(flat).softmax(-1).topk(2, -1)
            shares, out = shares / shares.sum(-1, keepdim=True), torch.zeros_like(flat)
            for index, expert in enumerate(self.experts):
                row, place = torch.where(chosen == index)
                if row.numel() == 0:
                    continue
                out.index_add_(0, row, expert(flat[row]) * shares[row, place, None])
            load = F.one_hot(chosen, 3).float().mean((0, 1))
            return out.view_as(x), (load * load).sum()

    model = Mixture()
    net, optimizer = compile(model), torch.optim.SGD(model.parameters(), lr=0.1)
    for size in (2, 3, 2):
        out, load = net(torch.randn(size, 4, 8))
        (out.square().mean() + 0.01 * load).backward()
        optimizer.step()
        optimizer.zero_grad()
    return weights(model)


@collection.script("bags of words, held back")
def bags(compile):
    class Bags(nn.Module):
        def __init__(self):
            super().__init__()
            self.bag, self.head = nn.EmbeddingBag(30, 8, mode="sum", padding_idx=0), nn.Linear(8, 3)

        def forward(self, words, starts, shares):
            return self.head(self.bag(words, starts, per_sample_weights=shares))

    model = Bags()
    net, optimizer = compile(model), torch.optim.Adagrad(model.parameters(), lr=0.1)
    for lengths in ([3, 2, 4], [1, 5, 3], [4, 4, 4]):
        words = torch.randint(0, 30, (sum(lengths),))
        starts = torch.tensor([0, *lengths[:-1]]).cumsum(0)
        F.cross_entropy(net(words, starts, torch.rand(len(words))), torch.arange(3)).backward()
        optimizer.step()
        optimizer.zero_grad()
    return weights(model)


@collection.script("diffusion, held back")
def diffusion(compile):
    class Denoiser(nn.Module):
        def __init__(self):
            super().__init__()
            self.time, self.body = nn.Linear(8, 8), network(16, 8)

        def forward(self, x, step):
            rates = torch.exp(-torch.arange(4) * 2.0)
            angles = step[:, None].float() * rates
            return self.body(torch.cat([x, self.time(torch.cat([angles.sin(), angles.cos()], -1))], -1))

    model = Denoiser()
    net, table = compile(model), torch.cumprod(1 - torch.linspace(1e-4, 0.02, 50), 0)
    average = {name: each.detach().clone() for name, each in model.named_parameters()}
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for size in (4, 4, 6):
        x, step = torch.randn(size, 8), torch.randint(0, 50, (size,))
        noise, share = torch.randn_like(x), table[step][:, None]
        F.mse_loss(net(share.sqrt() * x + (1 - share).sqrt() * noise, step), noise).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        for running, each in zip(average.values(), model.parameters(), strict=True):
            running.lerp_(each.detach(), 0.1)
    return average, weights(model)


@collection.script("speech with CTC, held back")
def speech(compile):
    class Recognizer(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.rnn, self.head = nn.Conv1d(5, 8, 3, stride=2, padding=1), nn.GRU(8, 8, batch_first=True), nn.Linear(8, 6)

        def forward(self, x):
            hidden, _ = self.rnn(F.hardswish(self.conv(x)).transpose(1, 2))
            return self.head(hidden).log_softmax(-1).transpose(0, 1)

    model = Recognizer()
    net, optimizer = compile(model), torch.optim.Adam(model.parameters())
    for length in (20, 20, 24):
        out = net(torch.randn(2, 5, length))
        F.ctc_loss(out, torch.randint(1, 6, (2, 3)), torch.full((2,), out.shape[0]), torch.tensor([3, 2])).backward()
        optimizer.step()
        optimizer.zero_grad()
    return weights(model)


@collection.script("layers frozen and thawed, held back")
def frozen(compile):
    model = network()
    net, history = compile(model), []
    for name, parameter in model.named_parameters():
        parameter.requires_grad = name.startswith("3")
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    for epoch in range(2):
        if epoch == 1:
            model[0].requires_grad_(True)
            optimizer.add_param_group({"params": list(model[0].parameters()), "lr": 0.01})
        for x, y in rows(8):
            F.cross_entropy(net(x), y).backward()
            history.append(sum(p.grad is not None for p in model.parameters()))
            optimizer.step()
            optimizer.zero_grad()
    return weights(model), history


@collection.script("an ODE by Runge and Kutta, held back")
def ode(compile):
    model, y = network(2, 2).eval(), torch.randn(5, 2)

    @compile
    def integrate(y, end: float, steps: int):
        h = end / steps
        for _ in range(steps):
            a = model(y)
            b = model(y + h / 2 * a)
            c = model(y + h / 2 * b)
            y = y + h / 6 * (a + 2 * b + 2 * c + model(y + h * c))
        return y

    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for end, steps in ((1.0, 2), (1.0, 2), (0.7, 3)):
        (integrate(y, end, steps) - 1).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return weights(model)


@collection.script("sharpness-aware minimization, one compiled step, held back")
def sharpness(compile):
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    @compile
    def step(x, y):
        F.cross_entropy(model(x), y).backward()
        norm = torch.stack([p.grad.norm() for p in model.parameters()]).norm() + 1e-12
        with torch.no_grad():
            moves = [0.05 * p.grad / norm for p in model.parameters()]
            for p, move in zip(model.parameters(), moves, strict=True):
                p.add_(move)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        with torch.no_grad():
            for p, move in zip(model.parameters(), moves, strict=True):
                p.sub_(move)
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return [step(x, y) for x, y in rows(14)], weights(model)


@dataclass
class Output:
    """What a model returns."""

    logits: torch.Tensor
    loss: torch.Tensor | None = None
    hidden: tuple[torch.Tensor, ...] = ()


@collection.script("dataclass outputs and keyword arguments, held back")
def dataclass_outputs(compile):
    class Model(nn.Module):
        def __init__(self, **config):
            super().__init__()
            self.config = config
            self.layers = nn.ModuleDict({f"layer_{i}": nn.Linear(8, 8) for i in range(config["depth"])})
            self.head = nn.Linear(8, 3)

        def forward(self, x, *, labels=None, keep=False) -> Output:
            hidden = []
            for layer in self.layers.values():
                x = getattr(F, self.config.get("activation", "relu"))(layer(x)) + x
                hidden.append(x)
            logits = self.head(x)
            loss = None if labels is None else F.cross_entropy(logits, labels)
            return Output(logits, loss, tuple(hidden) if keep else ())

    model = Model(depth=2, activation="mish")
    net, optimizer, kept = compile(model), torch.optim.Adadelta(model.parameters()), []
    for step, (x, y) in enumerate(rows(14)):
        out = net(x, labels=y, keep=step % 2 == 1)
        out.loss.backward()
        kept += [each.detach() for each in out.hidden]
        optimizer.step()
        optimizer.zero_grad()
    with torch.no_grad():
        return weights(model), kept, net(torch.ones(2, 8)).logits

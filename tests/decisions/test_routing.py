"""Models that choose by values: routing to experts, greedy decoding, steps of training that look at their gradients."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from decisions.helpers import agrees, compiled, graph_of
from torch import nn
from torch.profiler import ProfilerActivity, profile


class Experts(nn.Module):
    def __init__(self, count=3, width=4):
        super().__init__()
        self.gate = nn.Linear(width, count)
        self.experts = nn.ModuleList([nn.Linear(width, width) for _ in range(count)])

    def forward(self, x):
        weights, chosen = self.gate(x).softmax(-1).topk(2, dim=-1)
        mask = F.one_hot(chosen, len(self.experts)).permute(2, 1, 0)
        out = torch.zeros_like(x)
        for e in mask.sum(dim=(-1, -2)).nonzero():
            k, rows = torch.where(mask[e].squeeze(0))
            out = out.index_add(0, rows, self.experts[int(e)](x[rows]) * weights[rows, k, None])
        return out


def test_11_routing_to_experts():
    torch.manual_seed(0)
    module = Experts()
    fn = compiled(module)
    with torch.no_grad():
        for seed in (1, 2, 3, 1):
            torch.manual_seed(seed)
            agrees(fn, module, torch.randn(4, 4))
    graph = graph_of(fn)
    counts = {str(outcome) for d in graph.decisions if "where" in d.what for outcome in d.edges}
    assert graph.eager_calls == 0 and len(graph.decisions) <= 1 + 3 * (2 + len(counts))


class Decoder(nn.Module):
    def __init__(self, vocabulary=8, width=4):
        super().__init__()
        self.embed, self.mix, self.head = nn.Embedding(vocabulary, width), nn.Linear(width, width), nn.Linear(width, vocabulary)

    def forward(self, token, limit):
        h = torch.zeros(token.shape[0], 4)
        done, steps = torch.zeros_like(token, dtype=torch.bool), torch.zeros((), dtype=torch.int64)
        while not done.all() and steps < limit:
            h = torch.tanh(self.mix(h) + self.embed(token))
            token = self.head(h).argmax(-1)
            done, steps = done | (token < 2), steps + 1
        return token, steps


def test_16_greedy_decoding_closes_its_loop():
    torch.manual_seed(1)
    module = Decoder()
    fn = compiled(module)
    with torch.no_grad():
        for start, limit in ((3, 6), (4, 6), (5, 6), (1, 6)):
            agrees(fn, module, torch.tensor([start, start + 1]), limit)
        explored = len(fn._cache.explored)
        agrees(fn, module, torch.tensor([6, 7]), 6)
    assert len(fn._cache.explored) == explored and len(graph_of(fn).decisions) <= 4


def test_33_values_are_read_at_decisions_alone():
    def program(x):
        y = x * 2 if x.sum() > 0 else x - 1
        total = y.sum()
        while y.max() < 8:
            y = y * 2
        return y, total

    fn = compiled(program)
    for value in (1.0, 5.0):
        agrees(fn, program, torch.full((2,), value))
    graph, taken = graph_of(fn), []
    for decision in graph.decisions:
        decision.step = lambda values, step=decision.step: (taken.append(1), step(values))[1]
    x = torch.full((2,), 1.0)
    with profile(activities=[ProfilerActivity.CPU]) as events:
        result = fn(x)
    reads = [event for event in events.events() if event.name == "aten::_local_scalar_dense"]  # each is a synchronisation of a GPU
    torch.testing.assert_close(result, program(x))
    assert len(taken) == len(reads) == 4


def test_pending_gradients_are_a_part_of_a_state():
    def step(model, x):
        if x[0] > 0:
            model.weight.grad = None
        if x[1] > 0:
            return x * 2
        return x

    fn = compiled(step)
    for signs in ([1.0, 1], [-1, 1], [1, -1], [-1, -1], [1, 1], [-1, -1]):
        model = nn.Linear(2, 2)
        model.weight.grad = torch.ones(2, 2)
        fn(model, torch.tensor(signs))
        assert (model.weight.grad is None) == (signs[0] > 0)


def test_18_a_grad_scaler_inside():
    def train(model, optimizer, scaler, x):
        optimizer.zero_grad()
        loss = model(x).square().sum()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    def state():
        torch.manual_seed(0)
        model = nn.Linear(2, 2)
        return model, torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=2)

    fn, ours, theirs = compiled(train), state(), state()
    for value in (1.0, 2.0, float("inf"), 1.0, 3.0, 1.0):
        x = torch.full((2, 2), value)
        torch.testing.assert_close(fn(*ours, x), train(*theirs, x), equal_nan=True)
        torch.testing.assert_close([*ours[0].parameters()], [*theirs[0].parameters()])
        assert ours[2].get_scale() == theirs[2].get_scale()


def test_18_clipping_that_refuses_a_norm_that_is_not_finite():
    def clip(model):
        return nn.utils.clip_grad_norm_(model.parameters(), 0.5, error_if_nonfinite=True)

    fn = compiled(clip)
    model = nn.Linear(2, 2)
    for value in (1.0, 0.01, 2.0):
        for p in model.parameters():
            p.grad = torch.full_like(p, value)
        other = copy.deepcopy(model)
        for p, q in zip(model.parameters(), other.parameters(), strict=True):
            q.grad = p.grad.clone()
        torch.testing.assert_close(fn(model), clip(other))
        torch.testing.assert_close([p.grad for p in model.parameters()], [p.grad for p in other.parameters()])
    model.weight.grad.fill_(float("nan"))
    with pytest.raises(RuntimeError, match="non-finite"):
        fn(model)

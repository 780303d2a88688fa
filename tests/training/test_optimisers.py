"""torch.optim on the parameters of compiled models, and AdamW as one compiled program over nests of tensors."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.optim import lr_scheduler
from twins import Twins, close, loss

import dovetail

STEPS = 20
OPTIMISERS: dict[str, Callable] = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01),
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=3e-3, betas=(0.9, 0.95), weight_decay=0.1),
    "AdamW, fused": lambda parameters: torch.optim.AdamW(parameters, lr=3e-3, fused=True),
    "AdamW, tensor by tensor, amsgrad": lambda parameters: torch.optim.AdamW(parameters, lr=3e-3, amsgrad=True, foreach=False),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("optimiser", OPTIMISERS)
@pytest.mark.parametrize("name", ["gpt with loss", "resnet"])
def test_twenty_steps_with_clipping_and_a_schedule_are_eagers(name, optimiser):
    twins = Twins.named(name, torch.float64)
    losses: list[list[float]] = []
    for call, model in twins.sides():
        steps = OPTIMISERS[optimiser](model.parameters())
        schedule = lr_scheduler.OneCycleLR(steps, max_lr=1e-2, total_steps=STEPS)
        losses.append([])
        for _ in range(STEPS):
            steps.zero_grad()
            found = loss(call())
            found.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            steps.step()
            schedule.step()
            losses[-1].append(found.item())

    assert losses[0] == pytest.approx(losses[1], rel=1e-9)
    assert losses[0][-1] < losses[0][0]
    twins.assert_alike(1e-8)
    assert dovetail.cache_misses(twins.compiled) == ["the first call"]


def test_gradients_of_several_batches_are_accumulated_before_a_step():
    twins = Twins.named("gpt with loss", torch.float64)
    for call, model in twins.sides():
        steps = torch.optim.AdamW(model.parameters(), lr=1e-2)
        for _ in range(3):
            for _ in range(2):
                (loss(call()) / 2).backward()
            steps.step()
            steps.zero_grad()

    twins.assert_alike(1e-9)


LR, BETAS, EPS, DECAY = 1e-2, (0.9, 0.95), 1e-8, 0.1


def fresh_state(parameters: dict[str, Tensor]) -> dict:
    return {
        "step": torch.zeros((), dtype=torch.float64),
        "first": {name: torch.zeros_like(p) for name, p in parameters.items()},
        "second": {name: torch.zeros_like(p) for name, p in parameters.items()},
    }


def new_values(p: Tensor, g: Tensor, m: Tensor, v: Tensor, step: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A parameter and its two moments after an AdamW step, as torch.optim.AdamW has it."""
    p = p * (1 - LR * DECAY)
    m = torch.lerp(m, g, 1 - BETAS[0])
    v = v * BETAS[1] + g * g * (1 - BETAS[1])
    spread = (v.sqrt() / (1 - BETAS[1] ** step).sqrt()).add(EPS)
    return p - LR / (1 - BETAS[0] ** step) * (m / spread), m, v


def functional_update(parameters: dict, grads: dict, state: dict) -> tuple[dict, dict]:
    """New parameters and a new state."""
    step = state["step"] + 1
    new = {name: new_values(p, grads[name], state["first"][name], state["second"][name], step) for name, p in parameters.items()}
    parameters, first, second = ({name: values[i] for name, values in new.items()} for i in range(3))
    return parameters, {"step": step, "first": first, "second": second}


def update_in_place(parameters: list[Tensor], grads: list[Tensor], state: dict[str, Tensor | list[Tensor]]) -> None:
    """The same, written into the tensors that are there."""
    with torch.no_grad():
        state["step"].add_(1)
        for p, g, m, v in zip(parameters, grads, state["first"], state["second"], strict=True):
            for old, new in zip((p, m, v), new_values(p, g, m, v, state["step"]), strict=True):
                old.copy_(new)


def update_like_torch(parameters: list[Tensor], grads: list[Tensor], state: dict[str, Tensor | list[Tensor]]) -> None:
    """The same in the in-place operations that torch.optim itself uses."""
    with torch.no_grad():
        step = state["step"].add_(1)
        for p, g, m, v in zip(parameters, grads, state["first"], state["second"], strict=True):
            p.mul_(1 - LR * DECAY)
            m.lerp_(g, 1 - BETAS[0])
            v.mul_(BETAS[1]).addcmul_(g, g, value=1 - BETAS[1])
            spread = (v.sqrt() / (1 - BETAS[1] ** step).sqrt()).add_(EPS)
            p.sub_(m / spread * (LR / (1 - BETAS[0] ** step)))


def weights() -> dict[str, Tensor]:
    return {
        "matrix": torch.randn(6, 4, dtype=torch.float64),
        "bias": torch.randn(4, dtype=torch.float64),
        "scale": torch.randn((), dtype=torch.float64),
    }


def gradients_at(step: int, like: dict[str, Tensor]) -> dict[str, Tensor]:
    made = torch.Generator().manual_seed(step)
    return {name: torch.randn(p.shape, dtype=p.dtype, generator=made) for name, p in like.items()}


def by_torch(start: dict[str, Tensor]) -> dict[str, Tensor]:
    """The parameters after STEPS steps of torch.optim.AdamW."""
    parameters = {name: nn.Parameter(p.clone()) for name, p in start.items()}
    steps = torch.optim.AdamW(parameters.values(), lr=LR, betas=BETAS, eps=EPS, weight_decay=DECAY)
    for i in range(STEPS):
        for name, g in gradients_at(i, start).items():
            parameters[name].grad = g
        steps.step()
    return {name: p.detach() for name, p in parameters.items()}


def assert_equal(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    for name, x in theirs.items():
        close(ours[name], x, 1e-12, name)


def test_adamw_as_one_compiled_function_over_dicts_is_torchs():
    start = weights()
    update = dovetail.jit(functional_update)
    parameters, state = start, fresh_state(start)

    for i in range(STEPS):
        parameters, state = update(parameters, gradients_at(i, start), state)

    assert_equal(parameters, by_torch(start))
    assert state["step"].item() == STEPS
    assert dovetail.cache_misses(update) == ["the first call"]


@pytest.mark.parametrize("written", [update_in_place, update_like_torch])
def test_adamw_in_place_as_one_compiled_function_over_lists_is_torchs(written):
    start = weights()
    update = dovetail.jit(written)
    parameters = {name: nn.Parameter(p.clone()) for name, p in start.items()}
    state = {key: list(x.values()) if isinstance(x, dict) else x for key, x in fresh_state(start).items()}
    places = [p.data_ptr() for p in parameters.values()]

    for i in range(STEPS):
        assert update(list(parameters.values()), list(gradients_at(i, start).values()), state) is None

    assert_equal({name: p.detach() for name, p in parameters.items()}, by_torch(start))
    assert [p.data_ptr() for p in parameters.values()] == places
    assert all(p.requires_grad and p.is_leaf for p in parameters.values())
    assert dovetail.cache_misses(update) == ["the first call"]


def test_a_whole_training_step_is_one_compiled_function():
    """Loss, gradients and update in one program, by dovetail.value_and_grad inside it."""
    start = weights()
    x, y = torch.randn(8, 6, dtype=torch.float64), torch.randn(8, 4, dtype=torch.float64)

    def error(parameters, x, y):
        return ((torch.tanh(x @ parameters["matrix"] + parameters["bias"]) * parameters["scale"] - y) ** 2).mean()

    @dovetail.jit
    def train(parameters, state, x, y):
        value, grads = dovetail.value_and_grad(error)(parameters, x, y)
        return value, *functional_update(parameters, grads, state)

    parameters, state, ours = start, fresh_state(start), []
    for _ in range(STEPS):
        value, parameters, state = train(parameters, state, x, y)
        ours.append(value.item())

    trained = {name: nn.Parameter(p.clone()) for name, p in start.items()}
    steps, theirs = torch.optim.AdamW(trained.values(), lr=LR, betas=BETAS, eps=EPS, weight_decay=DECAY), []
    for _ in range(STEPS):
        steps.zero_grad()
        value = error(trained, x, y)
        value.backward()
        steps.step()
        theirs.append(value.item())

    assert ours == pytest.approx(theirs, rel=1e-10)
    assert_equal(parameters, {name: p.detach() for name, p in trained.items()})

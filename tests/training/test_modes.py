"""Grad modes around calls of a compiled model in training mode, and inputs of unusual layouts."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from twins import Twins, close, loss

import dovetail

ROUNDS = [torch.enable_grad, torch.no_grad, torch.inference_mode, torch.enable_grad, torch.inference_mode, torch.no_grad]


def layers() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.GELU(), nn.Dropout(0.5), nn.Linear(8, 3))


def test_scenario_12_every_grad_mode_around_a_model_in_training_mode():
    twins = Twins.of(layers(), torch.randn(6, 4))
    for mode in ROUNDS:
        with mode():
            ours, theirs = (call() for call, _ in twins.sides())
        close(ours, theirs, 1e-5, mode.__name__)
        assert ours.requires_grad == theirs.requires_grad == (mode is torch.enable_grad)
        assert ours.is_inference() == theirs.is_inference()
        if ours.requires_grad:
            ours.sum().backward(), theirs.sum().backward()
    twins.assert_alike(1e-5)  # batch statistics too: they count in every mode

    assert len(dovetail.cache_misses(twins.compiled)) == 2  # with a history and without


def test_scenario_12_set_grad_enabled_inside_a_model_in_training_mode():
    class Frozen(nn.Module):
        def __init__(self):
            super().__init__()
            self.features, self.head = nn.Linear(4, 8), nn.Linear(8, 3)

        def forward(self, x):
            with torch.set_grad_enabled(False):
                seen = self.features(x).relu()
            return self.head(seen)

    twins = Twins.of(Frozen(), torch.randn(6, 4))
    twins.backward()

    twins.assert_alike(1e-5)
    assert twins.model.features.weight.grad is None and twins.model.head.weight.grad is not None


def test_an_inference_tensor_in_training_is_eagers_error():
    model = nn.Linear(4, 4)
    with torch.inference_mode():
        x = torch.randn(2, 4)

    for run in (dovetail.jit(model), model):
        with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
            run(x)


def test_a_graph_that_is_retained_runs_twice():
    twins = Twins.of(layers(), torch.randn(6, 4))
    for call, _ in twins.sides():
        found = loss(call())
        found.backward(retain_graph=True)
        found.backward()

    twins.assert_alike(1e-5)


LAYOUTS = {
    "expanded": lambda: torch.randn(1, 4, dtype=torch.float64).expand(6, 4),
    "expanded in the last dimension": lambda: torch.randn(6, 1, dtype=torch.float64).expand(6, 4),
    "transposed": lambda: torch.randn(4, 6, dtype=torch.float64).t(),
    "every second column": lambda: torch.randn(6, 8, dtype=torch.float64)[:, ::2],
    "flipped rows": lambda: torch.randn(6, 4, dtype=torch.float64).flip(0),
    "an offset": lambda: torch.randn(8, 4, dtype=torch.float64)[2:],
    "empty": lambda: torch.randn(0, 4, dtype=torch.float64),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradients_of_inputs_of_any_layout_are_eagers(layout):
    made = LAYOUTS[layout]()
    weight = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)

    def fn(x: Tensor, weight: Tensor) -> Tensor:
        return (torch.tanh(x) @ weight.t() + x.sum(1, keepdim=True)).square().sum()

    found = []
    for run in (dovetail.jit(fn), fn):
        x = made.detach().requires_grad_()  # a leaf of that very layout
        weight.grad = None
        run(x, weight).backward()
        found.append((x.grad, weight.grad))
    for ours, theirs in zip(*found, strict=True):
        close(ours, theirs, 1e-12, layout)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradients_flow_through_eager_views_into_a_compiled_function(layout):
    """What is compiled gets a view of a leaf, and eager autograd takes its gradient on from there."""
    shape = LAYOUTS[layout]().shape
    found = []
    for run in (dovetail.jit(lambda x: x.exp() * x), lambda x: x.exp() * x):
        torch.manual_seed(1)
        base = torch.randn(10, 10, dtype=torch.float64, requires_grad=True)
        view = {"expanded": base[:1, :4].expand(6, 4), "transposed": base[:4, :6].t()}.get(layout, base[: shape[0], : shape[1]])
        run(view).sum().backward()
        found.append(base.grad)

    torch.testing.assert_close(*found)


def test_channels_last_images_have_eagers_gradients_and_layout():
    twins = Twins.of(nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU()), torch.randn(2, 3, 6, 6))
    for side, args in (("args", twins.args), ("eager_args", twins.eager_args)):
        setattr(twins, side, tuple(x.detach().to(memory_format=torch.channels_last).requires_grad_() for x in args))

    twins.backward()

    twins.assert_alike(1e-5)

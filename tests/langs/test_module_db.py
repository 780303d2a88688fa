"""PyTorch's own samples for its modules: outputs, gradients and buffers in two calls, in training and in evaluation, beside eager mode."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.testing._internal.common_modules import module_db
from torch.testing._internal.common_utils import SEED, set_rng_seed

import dovetail

SAMPLES = 3  # of each module and mode
CLOSE = {"rtol": 1e-3, "atol": 1e-4, "equal_nan": True}


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors of nested containers."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from tensors(part)


def fresh(value: Any) -> Any:
    """Return nested arguments with leaves in the place of tensors, which may have a history; deepcopy refuses those."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad)
    if isinstance(value, dict):
        return {key: fresh(part) for key, part in value.items()}
    return type(value)(map(fresh, value)) if type(value) in (list, tuple) else copy.deepcopy(value)


def weighted(outputs: list[torch.Tensor]) -> torch.Tensor:
    """Return a sum in which each element has a weight of its own, so that no gradient of a normalisation is zero by its definition."""
    return sum((out * torch.linspace(1, 2, out.numel()).view(out.shape)).abs().sum() for out in outputs)


def outcome(info: Any, sample: Any, training: bool, compile: Callable[[Any], Any]) -> list[torch.Tensor]:
    """Return what two calls of a module leave behind: outputs, gradients of parameters and arguments, buffers."""
    set_rng_seed(SEED)
    constructor, forward = sample.constructor_input, sample.forward_input
    args, kwargs = fresh((tuple(forward.args), forward.kwargs))
    module = info.module_cls(*fresh(tuple(constructor.args)), **fresh(constructor.kwargs)).train(training)
    run, results = compile(module), []
    for _ in range(2):
        set_rng_seed(SEED)
        outputs = list(tensors(run(*args, **kwargs)))
        if histories := [out for out in outputs if out.requires_grad]:
            weighted(histories).backward()
        leaves = [*module.parameters(), *tensors((args, kwargs))]
        results += [x.detach().clone() for x in (*outputs, *module.buffers(), *[leaf.grad for leaf in leaves if leaf.grad is not None])]
    return results


@pytest.mark.one_in(10)
@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("info", module_db, ids=lambda info: info.name)
def test_a_module_is_as_in_eager_mode(info, training):
    compared = 0
    for dtype in (torch.float32, torch.float64):  # samples of a few modules are of float64 alone
        set_rng_seed(SEED)
        inputs = info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True, training=training)
        for sample in [] if compared else inputs[:SAMPLES]:
            try:
                expected = outcome(info, sample, training, lambda module: module)
            except Exception:  # a sample that eager mode refuses
                continue
            torch.testing.assert_close(outcome(info, sample, training, dovetail.jit), expected, **CLOSE)
            compared += 1
    assert compared

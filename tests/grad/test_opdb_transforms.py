"""PyTorch's own samples for its operations, in transforms: vmap computes each example, jvp the tangents of eager's forward mode."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

import dovetail
from dovetail.errors import TracedValueError, Unsupported
from dovetail.frontend import trees
from dovetail.langs.torch import TABLE, TorchSymbol

sys.path.insert(0, str(Path(__file__).parent.parent / "langs"))
import opdb

MOST = 2  # samples per operation
OTHER_TANGENTS = {"nn_functional_nll_loss"}  # eager leaves out the tangent of the weight, which it does not differentiate by
INFOS = {
    info.formatted_name: info
    for info in opdb.op_db
    if isinstance(TABLE.get(info.op), TorchSymbol) and torch.float64 in info.supported_dtypes("cpu") and "empty" not in info.name
}


def calls(info: Any) -> Iterator[tuple[Callable[..., Any], list[torch.Tensor]]]:
    """Yield functions of the tensors in a sample, and these."""
    torch.manual_seed(0)
    op = opdb.spelled(info.op)
    for sample in islice(info.sample_inputs("cpu", torch.float64, requires_grad=False), MOST):
        flat, tree = trees.flatten(((sample.input, *sample.args), sample.kwargs))
        at = [i for i, x in enumerate(flat) if isinstance(x, torch.Tensor) and x.is_floating_point()]

        def call(*tensors: torch.Tensor, flat: list[Any] = flat, tree: Any = tree, at: list[int] = at) -> list[torch.Tensor]:
            new = dict(zip(at, tensors, strict=True))
            args, kwargs = tree.build([new.get(i, x) for i, x in enumerate(flat)])
            return [y for y in trees.flatten(op(*args, **kwargs))[0] if isinstance(y, torch.Tensor)]

        if at:
            yield call, [flat[i] for i in at]


def assert_same(transformed: Callable[..., Any], want: Callable[[], Any], tensors: list[torch.Tensor]) -> None:
    """Compare with eager what Dovetail traces; what eager or Dovetail refuses is left to other tests."""
    try:
        torch.manual_seed(3)
        expected = want()
    except (RuntimeError, NotImplementedError, IndexError, TypeError):
        return
    try:
        torch.manual_seed(3)
        got = dovetail.jit(transformed, executors=["torch"])(*[x.clone() for x in tensors])
    except (Unsupported, TracedValueError):
        return
    torch.testing.assert_close(got, expected, equal_nan=True, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", INFOS)
def test_vmap_computes_each_example(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for call, tensors in calls(INFOS[name]):
            batches = [torch.stack([x, x.flip(tuple(range(x.dim())))]) for x in tensors]

            def each(call: Any = call, batches: Any = batches) -> list[torch.Tensor]:
                rows = [call(*[x[i].clone() for x in batches]) for i in range(2)]
                return [torch.stack(parts) for parts in zip(*rows, strict=True)]

            assert_same(lambda *batches, call=call: torch.func.vmap(call, randomness="same")(*batches), each, batches)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in INFOS if name not in OTHER_TANGENTS])
def test_tangents_are_those_of_forward_mode(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for call, tensors in calls(INFOS[name]):
            values = [*tensors, *[torch.randn(x.shape, dtype=x.dtype) for x in tensors]]

            def push(*values: torch.Tensor, call: Any = call, n: int = len(tensors)) -> Any:
                return torch.func.jvp(call, values[:n], values[n:])

            assert_same(push, lambda push=push, values=values: push(*[x.clone() for x in values]), values)

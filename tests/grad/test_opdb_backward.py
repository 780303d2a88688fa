"""PyTorch's own samples for its operations, differentiated: gradients in float64 are eager's, by torch's rules and by prims alone."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import dovetail

sys.path.insert(0, str(Path(__file__).parent.parent / "langs"))
import harness
import opdb

from dovetail.frontend import trees
from dovetail.langs.torch import TABLE, TorchSymbol

MOST = 8  # samples per operation
FEW = 1  # of them in tests that are not slow

REFUSED = (dovetail.errors.Unsupported, dovetail.errors.TracedValueError, dovetail.errors.Unclaimed)  # the forward tests know which and why

INFOS = {
    info.formatted_name: info
    for info in opdb.op_db
    if isinstance(TABLE.get(info.op), TorchSymbol) and info.supports_autograd and torch.float64 in info.supported_backward_dtypes("cpu")
}


def gradients(run: Any, args: tuple, kwargs: dict) -> list[Any] | None:
    """The gradient of each input for fixed random cotangents of the results; None where nothing can be differentiated."""
    args, kwargs = harness.fresh((args, kwargs))
    leaves = [x for x in trees.flatten((args, kwargs))[0] if isinstance(x, torch.Tensor) and x.requires_grad]
    torch.manual_seed(1)
    result = run([x * 1 if isinstance(x, torch.Tensor) and x.requires_grad else x for x in args], kwargs)
    results = [y for y in trees.flatten(result)[0] if isinstance(y, torch.Tensor) and y.requires_grad]
    if not results or not leaves:
        return None
    torch.manual_seed(2)
    return list(torch.autograd.grad(results, leaves, [torch.randn_like(y) for y in results], allow_unused=True, materialize_grads=True))


def failures(info: Any, most: int) -> Iterator[str]:
    """A sentence for each sample and way in which gradients differ from eager's."""
    op = opdb.spelled(info.op)
    for i, (args, kwargs) in enumerate(opdb.samples(info, torch.float64, most, requires_grad=True)):
        try:
            want = gradients(lambda args, kwargs: op(*args, **kwargs), args, kwargs)
        except Exception:
            continue
        for way, executors in harness.ways().items():
            try:
                got = gradients(lambda args, kwargs, executors=executors: harness.call(op, tuple(args), kwargs, executors), args, kwargs)
                if got is None and want is not None:  # a result that depends on no value of an input has no history here, and zeros in eager
                    got = [torch.zeros_like(g) for g in want]
                if want is not None:
                    torch.testing.assert_close(got, want, rtol=1e-6, atol=1e-6, equal_nan=True, check_stride=False)
            except REFUSED:
                continue
            except Exception as error:
                yield f"{info.formatted_name} sample {i} {way}: {type(error).__name__}: {error}"


@pytest.mark.parametrize("most", [FEW, pytest.param(MOST, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", opdb.dealt(INFOS))
def test_scenario_31_gradients_of_an_operation_are_eagers(name: str, most: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = list(failures(INFOS[name], most))
    assert not found, "\n".join(found)

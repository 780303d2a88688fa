"""PyTorch's own samples for its operations: what Dovetail decomposes gives what eager gives, whole, decomposed and as printed text."""

from __future__ import annotations

import warnings

import opdb
import pytest
import torch
from dovetail.langs.torch import TABLE, TorchSymbol

MOST = 8  # samples per operation and dtype; `python tests/langs/opdb.py NAME` runs more

DIFFERS: dict[str, str] = {  # formatted name -> why this operation is allowed to differ from eager
    "nn_functional_hinge_embedding_loss": "eager rounds to bfloat16 after each of its steps, Dovetail once, in the end",
}


def known(info) -> bool:
    """Whether Dovetail decomposes this operation."""
    return isinstance(TABLE.get(info.op), TorchSymbol)


INFOS = {info.formatted_name: info for info in opdb.op_db if known(info)}


def dtypes_of(info) -> list[torch.dtype]:
    wanted = (torch.float32, torch.int64, torch.bfloat16)
    return [dtype for dtype in wanted if dtype in info.supported_dtypes("cpu")]


@pytest.mark.parametrize("name", sorted(INFOS))
def test_scenario_23_an_operation_gives_what_eager_gives(name):
    info = INFOS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [said for dtype in dtypes_of(info) for said in opdb.failures(info, dtype, most=MOST)]
    if name in DIFFERS:
        assert found, f"{name} no longer differs from eager ({DIFFERS[name]}): take it off the list"
    else:
        assert not found, "\n".join(found[:6])


def test_at_least_three_hundred_operations_are_decomposed():
    assert len({id(symbol) for symbol in TABLE.values() if isinstance(symbol, TorchSymbol)}) >= 300

"""PyTorch's own samples for its operations: what Dovetail decomposes gives what eager gives, whole, decomposed and as printed text."""

from __future__ import annotations

import re
import warnings

import opdb
import pytest
import torch

import dovetail
from dovetail.langs.torch import TABLE, TorchSymbol
from dovetail_torch_exec import costs

MOST = 8  # samples per operation and dtype; `python tests/langs/opdb.py NAME` runs more
FEW = 1  # of them in tests that are not slow; with all but the first dtype only whole

ROUNDING = r"bfloat16 .*not close"
VALUES_DECIDE = "Unsupported|ValueDependent"

DIFFERS: dict[str, tuple[str, str]] = {  # formatted name -> (what the differences look like, why they are allowed)
    **dict.fromkeys(
        ("nn_functional_hinge_embedding_loss", "nn_functional_instance_norm", "addbmm", "addr"),
        (ROUNDING, "eager rounds to bfloat16 after each of its steps, Dovetail once, in the end"),
    ),
    **dict.fromkeys(
        ("as_strided", "as_strided_partial_views"), ("Unsupported: as_strided", "it looks at memory that no view of the input need cover")
    ),
    **dict.fromkeys(("empty", "empty_like", "empty_permuted"), ("not close|not equal", "the values of an empty tensor are whatever was there")),
    "narrow": ("TracedValueError", "a tensor's value decides where it starts"),
    "tensor_split": ("TracedValueError", "a tensor's values decide where it splits"),
    "repeat_interleave": (
        f"{VALUES_DECIDE}|decomposed: Unclaimed",
        "by a tensor its values decide the shape, unless output_size does; then torch runs it",
    ),
    "nn_functional_one_hot": (VALUES_DECIDE, "without num_classes the largest value decides the shape"),
    **dict.fromkeys(
        ("scatter", "scatter_reduce_prod", "scatter_reduce_amax", "scatter_reduce_amin", "linalg_matrix_norm", "linalg_matrix_power", "norm_nuc"),
        ("decomposed: Unclaimed", "one of its forms is an operation of torch's that has no decomposition; torch runs it"),
    ),
}


@pytest.fixture(autouse=True)
def as_eager(monkeypatch):
    """A processor that multiplies 16-bit floats well: without one, eager's products are less exact than Dovetail's."""
    monkeypatch.setattr(costs, "slow_dtypes", frozenset)
    monkeypatch.setattr(costs, "cost", lambda dtype, kind: 1.0)


def known(info) -> bool:
    """Whether Dovetail decomposes this operation."""
    return isinstance(TABLE.get(info.op), TorchSymbol)


INFOS = {info.formatted_name: info for info in opdb.op_db if known(info)}


def dtypes_of(info) -> list[torch.dtype]:
    wanted = (torch.float32, torch.int64, torch.bfloat16)
    return [dtype for dtype in wanted if dtype in info.supported_dtypes("cpu")]


@pytest.mark.parametrize("most", [FEW, pytest.param(MOST, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", opdb.dealt(INFOS))
def test_scenario_23_an_operation_gives_what_eager_gives(name, most):
    info = INFOS[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shares = [{"most": most}, {"most": most} if most == MOST else {"most": 1, "way_names": ("whole",)}]
        found = [message for i, dtype in enumerate(dtypes_of(info)) for message in opdb.failures(info, dtype, **shares[i > 0])]
    looks, why = DIFFERS.get(name, (None, ""))
    allowed = [message for message in found if looks and re.search(looks, message, re.DOTALL)]
    assert not looks or allowed or most < MOST, f"{name} no longer differs from eager ({why}): take it off the list"
    assert len(found) == len(allowed), "\n".join(message for message in found if message not in allowed)


def test_at_least_three_hundred_operations_are_decomposed():
    assert len({id(symbol) for symbol in TABLE.values() if isinstance(symbol, TorchSymbol)}) >= 300


ERRORS_DIFFER = {  # formatted name -> why bad input of it gets another error, or none
    **dict.fromkeys(("amax", "amin", "aminmax"), "eager's kernels end at 64 dimensions"),
    "complex": "eager's kernel writes to one dtype",
    "narrow_copy": "eager's error is of an assertion; here it is that of narrow",
    **dict.fromkeys(
        ("__radd__", "__rand__", "__rdiv__", "__rmul__", "__ror__", "__rsub__", "__rxor__"), "they are called with an int in place of a tensor"
    ),
}


def error_of(call, sample):
    try:
        call(sample.input, *sample.args, **sample.kwargs)
    except Exception as error:
        return error
    return None


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [info.formatted_name for info in opdb.op_db if info.error_inputs_func is not None and info.formatted_name not in ERRORS_DIFFER]
)
def test_bad_input_raises_an_error_of_eagers_type(name):
    info = next(info for info in opdb.op_db if info.formatted_name == name)
    for error_input in info.error_inputs("cpu"):
        sample = error_input.sample_input
        want, got = error_of(info.op, sample), error_of(dovetail.jit(lambda *args, **kwargs: info.op(*args, **kwargs)), sample)
        assert isinstance(got, type(want)), f"{name} of {sample}: eager raises {want!r}, Dovetail {got!r}"

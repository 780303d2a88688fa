"""What definitions know of their inputs is what nvFuser knows of such tensors, and every layout is one that it takes."""

from __future__ import annotations

import itertools

import pytest
import stand_in
import torch

import dovetail
from dovetail import prims
from dovetail.langs.torch import spec_of
from dovetail_nvfuser_exec.definitions import Definitions
from dovetail_nvfuser_exec.program import layout

ABSENT = "nvFuser is not installed; plugins/nvfuser_exec/lane.sh makes an environment that has it"
nv = pytest.importorskip("nvfuser_direct", reason=ABSENT, exc_type=ImportError)

BASES = [
    torch.zeros(3, 4, 5),
    torch.zeros(6, 8, 10)[::2, ::2, ::2],
    torch.zeros(3, 1, 5),
    torch.zeros(3, 4, 6)[:, :, :5],
    torch.zeros(1, 4, 5).expand(3, 4, 5),
]
TENSORS = [base.permute(order) for base in BASES for order in itertools.permutations(range(3))]


@pytest.mark.parametrize("x", TENSORS, ids=lambda x: f"{list(x.shape)}{list(x.stride())}")
def test_a_definition_takes_every_layout(x):
    region = Definitions().region(nv, dovetail.make_trace(lambda x: (prims.exp(x),))(x))
    text = str(region.definition)
    kind, shape, contiguity, order = layout(spec_of(x), nv.compute_tensor_descriptor, False)

    assert f"shape={list(shape)}, contiguity={list(contiguity)}, dtype=DataType.{kind}" in text
    assert (f"stride_order={list(order)}" in text) == (order != (2, 1, 0))


def test_the_stand_in_describes_dense_and_sliced_tensors_as_nvfuser_does():
    for x in TENSORS:
        if 0 in x.stride() or 1 in x.shape:
            continue
        described = list(x.shape), list(x.stride())
        assert tuple(map(list, stand_in.compute_tensor_descriptor(*described))) == tuple(map(list, nv.compute_tensor_descriptor(*described)))

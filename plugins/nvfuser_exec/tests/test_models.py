"""Whole models: every region of their forwards and backwards, run by the stand-in, and defined by nvFuser where it is installed."""

from __future__ import annotations

import importlib.util
import warnings

import pytest
import stand_in
import torch
import zoo

import dovetail
from dovetail_nvfuser_exec import availability
from dovetail_nvfuser_exec.executor import NvfuserExecutor
from dovetail_nvfuser_exec.translators import OPT_IN

ABSENT = "nvFuser is not installed; plugins/nvfuser_exec/lane.sh makes an environment that has it"
NAMES = list(zoo.cases())


class Defining(NvfuserExecutor):
    """On the CPU: nvFuser gets the definitions, and PyTorch runs the lines."""

    def fuse(self, region):
        self.fused = [*getattr(self, "fused", []), super().fuse(region)]
        return dovetail.extend.advanced.to_callable(region)


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    torch.manual_seed(0)
    monkeypatch.setattr(availability, "available", lambda: True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def trained(name, ex):
    """Results and gradients of a model, with the executor and without."""
    model, args = zoo.cases()[name]
    model = model.eval()
    wanted = [p for p in model.parameters() if p.requires_grad]
    both = []
    for run in (dovetail.jit(model, executors=[ex, "torch"], passes=[dovetail.extend.advanced.checked]), model):
        results = [x for x in torch.utils._pytree.tree_leaves(run(*args)) if isinstance(x, torch.Tensor) and x.is_floating_point()]
        both.append([*results, *torch.autograd.grad(sum(x.float().square().mean() for x in results), wanted)])
    return both


@pytest.mark.one_in(3)
@pytest.mark.parametrize("options", [(), OPT_IN], ids=["as it is", "with every option"])
@pytest.mark.parametrize("name", NAMES)
def test_forward_and_backward_equal_eager_by_the_stand_in(name, options, monkeypatch):
    monkeypatch.setattr(availability, "module", lambda: stand_in)
    definitions: list = []
    monkeypatch.setattr(stand_in.FusionDefinition, "instances", definitions)
    ex = NvfuserExecutor(devices=["cpu"], **dict.fromkeys(options, True))
    got, want = trained(name, ex)

    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3 * max(1.0, b.abs().max().item()))
    assert all(fd.calls for fd in definitions)
    assert options or sum(fd.calls for fd in definitions) > len(definitions), "layers that are alike share definitions"


@pytest.mark.skipif(importlib.util.find_spec("nvfuser_direct") is None, reason=ABSENT)
@pytest.mark.parametrize("name", NAMES)
def test_nvfuser_takes_every_definition(name):
    ex = Defining(devices=["cpu"])
    trained(name, ex)

    assert ex.fused and {region.definition.fd.validate_definition() for region in ex.fused} == {(True, None)}

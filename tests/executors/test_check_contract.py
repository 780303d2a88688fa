"""Row 34: with DOVETAIL_CHECK=1 an executor's results are held to the operation's meta as the program runs."""

from __future__ import annotations

import pytest
import torch
import zoo
from stand_ins import F, Pointwise, of

import dovetail
from dovetail.errors import ExecutorError
from dovetail.extend import make_prim


@pytest.fixture(autouse=True)
def on(monkeypatch):
    monkeypatch.setenv("DOVETAIL_CHECK", "1")


def run(fn, *args, executors=()):
    return dovetail.jit(fn, executors=list(executors))(*args)


def writes(input):
    return input.sin_()


BREACHES = {
    "dtype": (lambda input: torch.sin(input).double(), "t1 has dtype float32 by its meta, and float64 was returned"),
    "shape": (lambda input: torch.sin(input)[:1], r"t1 has shape \[2, 3\] by its meta, and \[1, 3\] was returned"),
    "strides": (lambda input: torch.sin(input).t().contiguous().t(), r"t1 has strides \[3, 1\] by its meta, and \[1, 2\] were returned"),
    "device": (lambda input: torch.sin(input).to("meta"), "t1 is on cpu by its meta, and on meta"),
    "alias": (lambda input: input, "t1 shares memory with its argument t0, and by its meta it is no view of that"),
    "write": (writes, "it wrote into its argument t0, and the operation leaves its arguments as they are"),
    "kind": (lambda input: 3.0, 't1 is "cpu f32\\[2, 3\\]" by its meta, and float was returned'),
    "nothing": (lambda input: None, "t1 .* by its meta, and NoneType was returned"),
}


@pytest.mark.parametrize("name", BREACHES)
def test_34_a_breach_names_the_executor_the_line_and_what_differs(name):
    fn, message = BREACHES[name]
    own = of("own", torch.sin, fn)
    with pytest.raises(ExecutorError, match=message) as raised:
        run(lambda x: torch.sin(x) * 2, torch.ones(2, 3), executors=[own])
    for words in (
        "own 1.2 (defined in this process",
        'in t1 = torch.sin(t0: "cpu f32[2, 3]")',
        f"called at {__file__}:",
        "leave own out of executors",
    ):
        assert words in str(raised.value)


def test_34_two_results_that_are_one_are_a_breach():
    two = make_prim("test_contract.two", "two", meta=lambda x: (x.fresh(), x.fresh()), replace=True)
    own = of("own", two, lambda x: (x + 1,) * 2)
    with pytest.raises(ExecutorError, match="t2 shares memory with the result t1, and by its meta they are two"):
        run(lambda x: two(x), torch.ones(3), executors=[own])
    with pytest.raises(ExecutorError, match="it returns a tuple of 2 results, and Tensor was returned"):
        run(lambda x: two(x), torch.ones(3), executors=[of("own", two, lambda x: x + 1)])


def test_34_a_fused_region_is_held_to_the_metas_of_what_it_returns():
    class Doubling(Pointwise):
        def fuse(self, region):
            run = super().fuse(region)
            return lambda *inputs: tuple(x.double() for x in run(*inputs))

    with pytest.raises(ExecutorError, match=r"pointwise 0 .* broke the contract of pointwise.fusion_t1: t2 has dtype float32"):
        run(lambda x: torch.sin(x) * 2, torch.ones(3), executors=[Doubling()])


def test_34_the_backward_is_held_to_it_too():
    own = of("own", dovetail.prims.cos, lambda x: torch.cos(x).double())
    y = run(lambda x: torch.sin(x).sum(), torch.ones(3, requires_grad=True), executors=[own])
    with pytest.raises(ExecutorError, match=r"own 1\.2 .* broke the contract of prims.cos"):
        y.backward()


def test_34_what_keeps_the_contract_runs_as_before():
    def bump(x):
        x.add_(1)
        return x.view(-1), torch.split(x, 1), torch.rand(3)

    x, y = torch.zeros(2, 3), torch.zeros(2, 3)
    torch.manual_seed(0)
    got = run(bump, x)
    torch.manual_seed(0)
    torch.testing.assert_close(got, bump(y))
    torch.testing.assert_close(x, y)
    nan = torch.tensor([float("nan"), 1.0])
    torch.testing.assert_close(run(lambda x: x * 2, nan), nan * 2, equal_nan=True)


@pytest.mark.parametrize("name", ["gpt with loss", "llama", "bert", "vit", "resnet", "mixtral"])
def test_34_the_reference_keeps_the_contract_in_models_and_their_backwards(name):
    torch.manual_seed(0)
    model, args = zoo.cases()[name]
    out = dovetail.jit(model)(*args)
    results = [x for x in torch.utils._pytree.tree_leaves(out) if isinstance(x, torch.Tensor) and x.requires_grad]
    sum(x.sum() for x in results).backward()


def test_34_it_is_off_by_default_and_a_changed_option_compiles_again(monkeypatch):
    own = of("own", torch.sin, lambda input: torch.sin(input).double())
    compiled = dovetail.jit(lambda x: torch.sin(x), executors=[own])
    monkeypatch.delenv("DOVETAIL_CHECK")
    assert compiled(torch.ones(3)).dtype is torch.float64
    assert dovetail.last_traces(compiled)[-1].made_by == "release"
    monkeypatch.setenv("DOVETAIL_CHECK", "1")
    with pytest.raises(ExecutorError, match="has dtype float32"):
        compiled(torch.ones(4))


def test_softmax_of_the_reference_is_checked_whole():
    torch.testing.assert_close(run(lambda x: F.softmax(x, -1), torch.ones(2, 3)), torch.full((2, 3), 1 / 3))

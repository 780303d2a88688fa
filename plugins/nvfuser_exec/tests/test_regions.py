"""Regions through jit, with a stand-in for nvFuser that runs definitions with PyTorch: values, layouts, memory, and what is shared."""

from __future__ import annotations

import gc

import pytest
import stand_in
import torch
from samples import samples
from translated import CASES, eager, example

import dovetail
from dovetail import prims
from dovetail.errors import ExecutorError
from dovetail.extend import options_of
from dovetail.langs.torch import spec_of
from dovetail_nvfuser_exec import availability
from dovetail_nvfuser_exec.attention import attention_executor
from dovetail_nvfuser_exec.definitions import Definitions
from dovetail_nvfuser_exec.executor import NvfuserExecutor


@pytest.fixture
def ex(monkeypatch):
    """The executor on the CPU, with the stand-in."""
    monkeypatch.setattr(availability, "module", lambda: stand_in)
    monkeypatch.setattr(availability, "available", lambda: True)
    monkeypatch.setattr(stand_in.FusionDefinition, "instances", [])
    return NvfuserExecutor(devices=["cpu"])


def opened(ex, **options):
    """The same with options."""
    ex.options = ex.options | options
    return ex


def compiled(fn, ex, *more):
    return dovetail.jit(fn, executors=[*more, ex, "torch"], passes=[dovetail.extend.advanced.checked])


def regions(run):
    """The regions of the last call's forward and backward, before `checked` put itself around what runs."""
    traces = [dovetail.last_traces(run)[-2], *dovetail.last_backward_traces(run)[-2:-1]]
    return [line for trace in traces for line in trace.lines if line.symbol.module == "nvfuser"]


def same(got, want, tolerance=1e-5):
    for a, b in zip(torch.utils._pytree.tree_leaves(got), torch.utils._pytree.tree_leaves(want), strict=True):
        low = a.dtype in (torch.bfloat16, torch.float16)
        torch.testing.assert_close(a, b, rtol=2e-2 if low else tolerance, atol=2e-2 if low else tolerance, equal_nan=True)
        assert a.stride() == b.stride()


@pytest.mark.parametrize(("name", "dtype"), CASES, ids=lambda each: getattr(each, "short", each))
def test_every_translator_computes_its_prim(name, dtype):
    trace, inputs = example(name, dtype)
    region = Definitions().region(stand_in, trace)

    same(region(*inputs), tuple(eager(trace, inputs)))


@pytest.mark.slow
def test_samples_of_the_conformance_suite():
    count = 0
    for name, dtype, trace, inputs in samples():
        for got, p, want in zip(Definitions().region(stand_in, trace)(*inputs), trace.outputs, eager(trace, inputs), strict=True):
            assert torch.allclose(got.double(), want.double(), rtol=2e-2, atol=2e-2, equal_nan=True), f"{name} of {dtype}: {got} and {want}"
            assert spec_of(got) == p.spec.like(requires_grad=False)
        count += 1

    assert count > 1000


def several(x, w):
    """A norm, a softmax, a half-precision part, views, copies, a reduction of booleans."""
    y = torch.nn.functional.layer_norm(x, (x.shape[-1],), w)
    return torch.softmax(y, -1) * 2, y.t(), y.clone(), y[1:, 2:], (x > 0).any(0), torch.nn.functional.gelu(x.bfloat16()), x.t() + 1


def test_a_region_equals_eager_in_values_and_layouts(ex):
    x, w = torch.randn(4, 8), torch.randn(8)
    run = compiled(several, ex)
    got = run(x, w)

    same(got, several(x, w))
    assert len(regions(run)) == 1
    assert got[1].data_ptr() == got[3].data_ptr() - 4 * (8 + 2) and got[2].data_ptr() != got[1].data_ptr()


def test_gradients_are_the_compiled_programs(ex):
    def fn(x, w):
        return torch.nn.functional.rms_norm(x, (8,), w).exp().sum()

    x, w = torch.randn(4, 8, requires_grad=True), torch.randn(8, requires_grad=True)
    run = compiled(fn, ex)
    same(torch.autograd.grad(run(x, w), [x, w]), torch.autograd.grad(fn(x, w), [x, w]), tolerance=1e-4)

    assert len(regions(run)) == 2


def layers(x, w):
    for _ in range(3):
        x = torch.tanh(x @ w) * 0.5 + 1
    return x


def test_regions_of_equal_structure_share_a_definition_for_as_long_as_a_program_holds_it(ex):
    x, w = torch.randn(4, 8), torch.randn(8, 8)
    run = compiled(layers, ex)
    same(run(x, w), layers(x, w))
    definitions = {id(line.implementation.fn.definition) for line in regions(run)}

    assert len(regions(run)) == 3 and len(definitions) == 1 and len(ex.definitions.by_key) == 1
    del run
    gc.collect()
    assert not ex.definitions.by_key


def test_sizes_are_shared_and_layouts_dtypes_and_sizes_of_one_are_not():
    cache = Definitions()
    examples = {
        "plain": torch.ones(4, 8),
        "other sizes": torch.ones(5, 9),
        "transposed": torch.ones(8, 4).t(),
        "a slice": torch.ones(4, 9)[:, :8],
        "a size of 1": torch.ones(1, 8),
        "repeated": torch.ones(8).expand(4, 8),
        "another dtype": torch.ones(4, 8, dtype=torch.float64),
    }
    by_name = {name: cache.region(stand_in, dovetail.make_trace(lambda x: (prims.exp(x),))(x)).definition for name, x in examples.items()}

    assert by_name["plain"] is by_name["other sizes"]
    assert len({id(definition) for definition in by_name.values()}) == len(examples) - 1


@pytest.mark.parametrize(
    "other",
    [lambda x: (prims.mul(x, 3.0),), lambda x: (prims.mul(x, -0.0),), lambda x: (prims.mul(x, 0.0), prims.exp(x)), lambda x: (prims.mul(0.0, x),)],
    ids=["another number", "the other zero", "more results", "another order"],
)
def test_what_is_computed_makes_another_definition(other):
    cache, x = Definitions(), torch.ones(2)
    first = cache.region(stand_in, dovetail.make_trace(lambda x: (prims.mul(x, 0.0),))(x))

    assert cache.region(stand_in, dovetail.make_trace(other)(x)).definition is not first.definition


def lines(fn, *args):
    """The definition of a program as the stand-in wrote it down, without what it is given."""
    text = str(Definitions().region(stand_in, dovetail.make_trace(fn)(*args)).definition)
    return [line.split(" = ")[-1] for line in text.splitlines() if "input(" not in line]


def test_low_dtypes_are_computed_wide_and_rounded_where_a_line_shows_them():
    x = torch.ones(2, 3, dtype=torch.bfloat16)
    rounded = ["cast(v0, dtype=Float) Float", "exp(v1) Float", "cast(v2, dtype=BFloat16) BFloat16"]

    assert lines(lambda x: (prims.exp(x),), x) == [*rounded, "out v3"]
    assert lines(lambda x: (prims.sum(x, dims=(1,)),), x)[1] == "sum(v1, [1]) Float"
    assert lines(lambda x: (prims.exp(prims.exp(x)),), x)[3:5] == ["cast(v3, dtype=Float) Float", "exp(v4) Float"]
    silu = lines(lambda x: (torch.nn.functional.silu(x),), x)
    assert [line for line in silu if line.startswith("cast")] == ["cast(v0, dtype=Float) Float", f"cast(v{len(silu) - 2}, dtype=BFloat16) BFloat16"]


def test_moving_elements_takes_no_casts():
    x = torch.ones(2, 3, dtype=torch.float16)

    assert lines(lambda x: (prims.cat([x, x], dim=0),), x) == ["cat([v0, v0], 0) Half", "out v1"]
    assert lines(lambda x: (prims.where(prims.isnan(x), x, x),), x)[-2:] == ["where(v2, v0, v0) Half", "out v3"]


def test_sums_of_int32_stay_int32_and_booleans_are_counted():
    i, c = torch.ones(2, 3, dtype=torch.int32), torch.ones(2, 3, dtype=torch.bool)

    assert lines(lambda i: (prims.sum(i, dims=(0,)),), i) == ["sum(v0, [0]) Int", "cast(v1, dtype=Int32) Int32", "out v2"]
    assert lines(lambda c: (prims.any(c, dims=(0,)),), c)[:3] == ["cast(v0, dtype=Int32) Int32", "max(v1, [0]) Int32", "cast(v2, dtype=Bool) Bool"]


def test_results_that_are_not_row_major_are_laid_out():
    assert lines(lambda x: (prims.exp(x),), torch.ones(2, 3).t())[-2:] == ["stride_order(v1, [0, 1]) Float", "out v2"]
    assert lines(lambda x: (prims.sum(x, dims=(0,)),), torch.ones(2, 3, 4).permute(0, 2, 1))[-2:] == ["stride_order(v1, [1, 0]) Float", "out v2"]


def test_inputs_that_nothing_reads_are_not_given():
    region = Definitions().region(
        stand_in, dovetail.make_trace(lambda x, y: (prims.exp(x), prims.transpose(y, order=(1, 0))))(torch.ones(2), torch.ones(2, 3))
    )
    y = torch.ones(2, 3)

    assert region.used == [0]
    assert region(torch.zeros(2), y)[1].data_ptr() == y.data_ptr()


def test_a_number_that_the_program_computes_is_an_input(ex):
    run = compiled(lambda x: torch.exp(x) * x.sum().item(), ex)

    for x in (torch.ones(2), torch.arange(3.0)):
        same(run(x), torch.exp(x) * x.sum())


def test_memory_that_is_anothers_is_copied(monkeypatch):
    """nvFuser may show an input again where a definition only copies."""
    trace, x = dovetail.make_trace(lambda x: (prims.clone(x), prims.clone(x), prims.exp(x)))(torch.ones(2, 3)), torch.ones(2, 3)
    a, b, c = Definitions().region(stand_in, trace)(x)

    assert len({t.data_ptr() for t in (a, b, c, x)}) == 4
    monkeypatch.setattr(stand_in.FusionDefinition, "execute", lambda self, inputs, **_: [x.t().contiguous().t() for x in inputs * 3])
    assert [t.stride() for t in Definitions().region(stand_in, trace)(x)] == [(3, 1)] * 3


def test_switches_of_nvfuser_are_passed_on(ex):
    switched = opened(ex, enable="fuse_matmul, fast_math", disable="magic_zero")
    compiled(lambda x: torch.exp(x) * 2, switched)(torch.ones(2))

    assert stand_in.FusionDefinition.instances[-1].switches == (["fuse_matmul", "fast_math"], ["magic_zero"])


def test_a_region_without_enough_to_compute_is_left_to_others(ex):
    run = compiled(lambda x: torch.exp(x), ex)
    run(torch.ones(2))

    assert not regions(run) and "at least 2 operations that compute" in str(dovetail.explain(run).rows)


def test_writes_go_through_aliased_outputs():
    def fn(p, g):
        prims.copy_(p, prims.mul(g, 2.0))
        return (prims.exp(g),)

    region = Definitions().region(stand_in, dovetail.make_trace(fn)(torch.ones(3), torch.ones(3)))
    p, g = torch.ones(3), torch.arange(3.0)
    (out,) = region(p, g)

    assert str(region.definition).endswith("into v0")
    same((p, out), (g * 2, torch.exp(g)))


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (lambda p: (prims.copy_(p, prims.exp(p)), prims.exp(p))[1:], "cannot read .* in the region that writes it"),
        (lambda p: (prims.copy_(prims.exp(p), p), prims.neg(p))[1:], "is computed inside it"),
    ],
)
def test_writes_that_a_definition_would_get_wrong_are_errors(fn, message):
    with pytest.raises(ExecutorError, match=message):
        Definitions().region(stand_in, dovetail.make_trace(fn)(torch.ones(3)))


def test_what_nvfuser_does_not_take_is_one_sentence(monkeypatch, capsys):
    def broken(self, name):
        raise RuntimeError("Expected something . It was not.\nframe #0")

    monkeypatch.setattr(stand_in.Operations, "__getattr__", broken)
    with pytest.raises(ExecutorError, match=r"nvFuser does not take the definition of computation: Expected something . It was not.$"):
        Definitions().region(stand_in, dovetail.make_trace(lambda x: (prims.exp(x),))(torch.ones(3)))
    assert capsys.readouterr() == ("", "")


def attend(q, k, v):
    return torch.nn.functional.scaled_dot_product_attention(q * 2, k, v, is_causal=True)


def test_attention_is_taken_whole_where_the_option_says_so(ex):
    whole = attention_executor(opened(ex, sdpa=True), devices=["cpu"], module=lambda: stand_in)
    q, k, v = (torch.randn(2, 3, 4, 8, dtype=torch.bfloat16).transpose(1, 2).contiguous().transpose(1, 2).requires_grad_() for _ in range(3))
    run = dovetail.jit(attend, executors=[whole, "torch"])
    got = run(q, k, v)
    for mine, theirs in zip(*[torch.autograd.grad(out.float().square().sum(), [q, k, v]) for out in (got, attend(q, k, v))], strict=True):
        torch.testing.assert_close(mine, theirs, rtol=5e-2, atol=5e-2)
    torch.testing.assert_close(got, attend(q, k, v), rtol=2e-2, atol=2e-2)
    text = dovetail.last_traces(run)[-1].python(depth=0) + dovetail.last_backward_traces(run)[-1].python(depth=0)
    assert "nvfuser_attention_exec.forward" in text and "nvfuser_attention_exec.backward" in text


def test_attention_is_left_to_pytorch_without_it(ex):
    whole = attention_executor(ex, devices=["cpu"], module=lambda: stand_in)
    run = dovetail.jit(attend, executors=[whole, "torch"])
    run(*(torch.randn(1, 1, 4, 8, dtype=torch.bfloat16) for _ in range(3)))

    assert options_of(ex)["sdpa"] is False
    assert "the option `sdpa` of nvfuser takes it" in str(dovetail.explain(run).rows)


def test_sums_of_products_are_options(ex):
    x, w = torch.randn(4, 8), torch.randn(8, 8)
    run = compiled(layers, opened(ex, matmul=True))
    same(run(x, w), layers(x, w))

    assert len(regions(run)) == 1 and "matmul(" in str(regions(run)[0].implementation.fn.definition)


def test_a_definition_and_its_values_go_together(monkeypatch):
    """Nothing but the Definition holds what nvFuser made, and no value is left when it is complete."""
    import weakref

    values = weakref.WeakSet()
    real = stand_in.TensorView.__init__
    monkeypatch.setattr(stand_in.TensorView, "__init__", lambda self, *args, **kwargs: (real(self, *args, **kwargs), values.add(self))[0])
    kept = []
    monkeypatch.setattr(stand_in.FusionDefinition, "instances", kept)
    region = Definitions().region(stand_in, dovetail.make_trace(lambda x: (prims.exp(prims.neg(x)),))(torch.ones(2)))
    fd = weakref.ref(region.definition.fd)
    kept.clear()
    assert fd() is not None
    region = None
    gc.collect()

    assert fd() is None and not values

"""Regions as graphs, which takes no C++ compiler: what is taken, what is refused, and that graphs compute what regions do."""

from __future__ import annotations

import gc
import warnings

import pytest
import torch
import zoo
from inductor_against_eager import compiled, leaves, regions, same_gradients, same_results

import dovetail
import dovetail_conformance.prims  # noqa: F401
from dovetail import devices, dtypes
from dovetail.errors import ExecutorError
from dovetail.langs.torch import spec_of
from dovetail_conformance import OPINFOS
from dovetail_inductor_exec.claims import OPERATIONS
from dovetail_inductor_exec.executor import inductor_executor
from dovetail_inductor_exec.graphs import apart, decomposed, structure

INFOS = [info for info in OPINFOS if info.symbol in set(OPERATIONS)]
DTYPES = (dtypes.float32, dtypes.bfloat16, dtypes.int64, dtypes.bool_)


@pytest.fixture(autouse=True)
def quiet():
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def graph(fn, *args):
    trace = dovetail.make_trace(fn)(*args)
    return dovetail.to_fx(trace), trace


@pytest.mark.parametrize("info", [pytest.param(info, id=info.name, marks=[pytest.mark.slow] * (i % 15 > 0)) for i, info in enumerate(INFOS)])
def test_what_inductor_is_given_computes_the_prim_in_its_layout(info):
    count = 0
    for dtype in (dtype for dtype in DTYPES if dtype in info.dtypes):
        for sample in info.samples(dtype, devices.cpu):
            if sample.kwargs.get("dtype") in (dtypes.complex64, dtypes.complex128):
                continue
            trace = dovetail.make_trace(lambda *args, kwargs=sample.kwargs: (info.symbol(*args, **kwargs),))(*sample.args)
            trace.outputs = tuple(leaves_of(trace.outputs))
            tensors = list(dict.fromkeys(leaves(sample.args)))
            gm = dovetail.to_fx(trace)
            atens, _ = decomposed(gm, trace)
            for got, want, p in zip(atens(*tensors), gm(*tensors), trace.outputs, strict=True):
                loose = {"rtol": 1e-2, "atol": 1e-2} if want.dtype is torch.bfloat16 else {}
                torch.testing.assert_close(got, want, equal_nan=True, check_stride=False, **loose)
                assert spec_of(got) == p.spec.like(requires_grad=False)
            count += 1
    assert count


def leaves_of(outputs):
    return [p for out in outputs for p in (out if isinstance(out, tuple) else (out,))]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", list(zoo.cases()))
@pytest.mark.parametrize("backend", ["torch", pytest.param("torchscript", marks=pytest.mark.slow)])
def test_models_forward_and_backward_equal_eager(name, backend):
    model, args = zoo.cases()[name]
    ex = inductor_executor(backend=backend)
    run = compiled(model.eval(), ex)
    with torch.no_grad():
        same_results(run, model, *args)
    same_gradients(run, model, [p for p in model.parameters() if p.requires_grad], *args, tolerance=1e-3)

    assert len({id(line.implementation.fn) for line in regions(run)}) < len(regions(run)), "equal layers share kernels"
    assert {kernel.by for kernel in ex.kernels.values()} == {backend}


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, y: torch.nn.functional.rrelu(x.t(), 0.1, 0.5) + 1,  # a call of PyTorch's, with a wrong rule for its strides
        lambda x, y: torch.nn.functional.l1_loss(x, y, weight=y.abs()),  # loses its weight under a function mode, as make_fx has one
        lambda x, y: torch.nn.functional.soft_margin_loss(x, y.double()),  # decomposes to a result of another dtype
    ],
    ids=["rrelu", "l1_loss", "soft_margin_loss"],
)
def test_operations_are_given_as_prims(fn):
    x, y = torch.randn(4, 3), torch.randn(4, 3)
    trace = apart(dovetail.make_trace(lambda x, y: (fn(x, y),))(x, y))
    atens, _ = decomposed(dovetail.to_fx(trace), trace)
    (got,), want = atens(x, y), fn(x, y)

    torch.testing.assert_close(got, want)
    assert got.dtype is want.dtype and got.stride() == want.stride()


def test_regions_that_differ_in_names_alone_share_a_kernel():
    def one(x, y):
        return torch.softmax(x + y, -1) * 2

    def other(first, second):
        unused = torch.zeros(3) + first.sum()
        third = first + second
        del unused
        return torch.softmax(third, dim=-1) * 2

    ex, x, y = inductor_executor(backend="torchscript"), torch.randn(2, 3), torch.randn(2, 3)
    runs = [compiled(one, ex), compiled(other, ex)]
    for run in runs:
        same_results(run, one, x, y)
    (mine,), (theirs,) = map(regions, runs)

    assert mine.symbol.name != theirs.symbol.name
    assert mine.implementation.fn is theirs.implementation.fn and list(ex.kernels.values()) == [mine.implementation.fn]


def test_a_kernel_goes_with_the_last_program_that_runs_it():
    ex = inductor_executor(backend="torchscript")
    run = compiled(lambda x: torch.softmax(x, -1) * 2, ex)
    run(torch.ones(2))
    assert len(ex.kernels) == 1

    del run
    gc.collect()
    assert not ex.kernels


@pytest.mark.parametrize(
    "other",
    [lambda x: x * 1.0 + 0.0, lambda x: x * 2 + 0.0, lambda x: x * 1 + -0.0, lambda x: (x * 1, x + 0.0)],
    ids=["a float for an int", "another number", "the other zero", "more results"],
)
def test_what_is_computed_does(other):
    x = torch.randn(2, 3)

    assert structure(*graph(lambda x: x * 1 + 0.0, x)) != structure(*graph(other, x))


def test_layouts_and_dtypes_do():
    structures = {
        structure(*graph(lambda x: x * 2 + 1, x))
        for x in (torch.ones(2, 2), torch.ones(2, 2).t(), torch.ones(2, 2).int(), torch.ones(2, 3), torch.ones(2, 2))
    }

    assert len(structures) == 4


def refusals(fn, *args, **options) -> str:
    run = dovetail.jit(fn, executors=[inductor_executor(backend="torch", **options), "torch"])
    run(*args)
    return " ".join(str(row) for row in dovetail.explain(run).rows)


@pytest.mark.parametrize(
    ("fn", "args", "message"),
    [
        (lambda x: x * x.sum().item(), (torch.ones(2),), "known only when the program runs"),
        (lambda i, w: torch.nn.functional.embedding(i, w), (torch.tensor([0]), torch.ones(2, 2)), "end the process"),
        (lambda a, b: a // b, (torch.ones(2, dtype=torch.int64), torch.ones(2, dtype=torch.int64)), "a 0 in it would have to be an error"),
        (lambda x: x // 0.1, (torch.ones(2),), "1.0 // 0.1 is 9, and Inductor's is 10"),
        (lambda x: x % 0.1, (torch.ones(2),), "would round on the way to a floor or a remainder"),
        (lambda x: torch.expm1(x) + 1, (torch.ones(2),), "would compute exp(x) - 1 on a CPU"),
        (lambda x: torch.atanh(x) + 1, (torch.ones(2),), "log((1 + x) / (1 - x)) / 2 on a CPU"),
        (lambda x: torch.acosh(x) + 1, (torch.ones(2),), "would overflow on a CPU"),
        (lambda x: torch.var_mean(x), (torch.ones(0),), "0 for the mean of no elements"),
        (lambda x: x + 1, (torch.ones(2, dtype=torch.complex64),), "c64"),
        (lambda x, y: x @ y, (torch.ones(2, 2), torch.ones(2, 2)), "its option `matmul` takes them in"),
        (lambda x: torch.sort(x)[0], (torch.ones(2),), "does not fuse prims.sort"),
        (lambda x: torch.sin(x).t()[1:], (torch.ones(2, 2),), "a region of at least 2 operations that compute"),
    ],
    ids=[
        "number",
        "index",
        "division",
        "floor",
        "remainder",
        "expm1",
        "atanh",
        "acosh",
        "no mean",
        "complex",
        "matmul",
        "sort",
        "one",
    ],
)
def test_a_refusal_is_a_sentence(fn, args, message):
    assert message in refusals(fn, *args)


def test_divisions_that_cannot_meet_a_zero_are_taken():
    ex = inductor_executor(backend="torch")
    i, x = torch.tensor([7, -7, 8]), torch.tensor([7.5, -7.5, 8.0])
    run = compiled(lambda i, x: (i // 2, i % 3 + 1, torch.fmod(x, x), torch.fmod(x, 2)), ex)
    same_results(run, lambda i, x: (i // 2, i % 3 + 1, torch.fmod(x, x), torch.fmod(x, 2)), i, x)

    assert [line.symbol.module for line in dovetail.last_traces(run)[-2].lines if line.symbol.name != "delete"] == ["inductor"] * 2


def test_how_much_a_kernel_has_to_compute_is_an_option():
    run = compiled(lambda x: torch.sin(x).t(), inductor_executor(backend="torch", least=1))
    same_results(run, lambda x: torch.sin(x).t(), torch.randn(2, 3))

    assert len(regions(run)) == 1


def test_sums_of_products_are_an_option():
    def fn(x, w):
        return torch.nn.functional.gelu(x @ w) @ w

    x, w = torch.randn(3, 3), torch.randn(3, 3)
    whole, parts = (compiled(fn, inductor_executor(backend="torch", matmul=option)) for option in (True, False))
    for run in (whole, parts):
        same_results(run, fn, x, w)

    assert len(regions(whole)) == 1
    assert "matmul" not in {line.symbol.name for line in dovetail.last_traces(whole)[-2].lines}
    assert "matmul" in {line.symbol.name for line in dovetail.last_traces(parts)[-2].lines}


def test_views_that_are_made_for_the_caller_keep_their_history():
    x = torch.randn(4, 3, requires_grad=True)
    run = compiled(lambda x: (torch.softmax(x, -1) * 2).view(2, 6)[:, 1:], inductor_executor(backend="torch"))
    run(x).sum().backward()

    assert run(x).grad_fn is not None
    torch.testing.assert_close(x.grad, torch.autograd.grad((torch.softmax(x, -1) * 2).view(2, 6)[:, 1:].sum(), x)[0])


def test_an_unknown_backend_is_an_error():
    run = dovetail.jit(lambda x: torch.softmax(x, -1), executors=[inductor_executor(backend="tvm"), "torch"])

    with pytest.raises(ExecutorError, match="inductor, torchscript, torch, not 'tvm'"):
        run(torch.ones(2))

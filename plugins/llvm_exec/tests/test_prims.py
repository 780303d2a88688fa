"""Every prim on the samples of its OpInfo: what the executor takes is what the torch executor gives; what it refuses, it refuses with a sentence."""

from __future__ import annotations

import pytest
import torch
from llvm_against_eager import EX, TOLERANCE, assert_same, flat

import dovetail
import dovetail_conformance.prims  # noqa: F401
from dovetail import devices, dtypes
from dovetail_conformance.opinfo import OPINFOS, OpInfo
from dovetail_llvm_exec.region.claims import CHECKS, PLAIN

DTYPES = [dtypes.float32, dtypes.float64, dtypes.bfloat16, dtypes.float16, dtypes.int64, dtypes.uint8, dtypes.bool_]
TAKEN = [info for info in OPINFOS if info.symbol.module == "prims" and (info.symbol.name in CHECKS or info.symbol.name in PLAIN)]


def cases():
    """Each prim with each dtype; all but the first of every third prim are slow, since the conformance suite has the prims in four dtypes too."""
    for at, info in enumerate(TAKEN):
        for i, dtype in enumerate([dtype for dtype in DTYPES if dtype in info.dtypes]):
            yield pytest.param(info, dtype, id=f"{info}-{dtype.short}", marks=[pytest.mark.slow] * (i > 0 or at % 3 > 0))


LOOSE = {"pow": 8.0, "prod": 50.0, "sum": 20.0, "var": 50.0, "var_mean": 50.0, "tan": 20.0, "erfc": 20.0, "scatter_add": 4.0}


def of_tensors(info: OpInfo, sample):
    """The prim as a function of its sample's tensors."""
    leaves, tree = torch.utils._pytree.tree_flatten(sample.args)
    where = [i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor)]

    def fn(*tensors):
        filled = list(leaves)
        for i, x in zip(where, tensors, strict=True):
            filled[i] = x
        return info.symbol(*torch.utils._pytree.tree_unflatten(filled, tree), **sample.kwargs)

    return fn, [leaves[i] for i in where]


@pytest.mark.one_in(2)
@pytest.mark.filterwarnings("ignore:.*degrees of freedom is <= 0")
@pytest.mark.parametrize(("info", "dtype"), cases())
def test_a_prim_is_what_the_torch_executor_makes_of_it(info, dtype):
    scale = LOOSE.get(info.symbol.name, 4.0)
    for sample in info.samples(dtype, devices.cpu):
        fn, tensors = of_tensors(info, sample)
        ours, theirs = (dovetail.jit(fn, executors=executors, interpretation="native") for executors in ([EX, "torch"], ["torch"]))
        want = theirs(*tensors)
        got = ours(*tensors)
        assert_same(got, want, scale=scale)
        (record,) = [trace.dispatch_record for trace in dovetail.last_traces(ours) if trace.dispatch_record is not None]
        refusals = [offer.verdict for offer in record.offers if offer.executor == "llvm" and not offer.claimed]
        assert all(words[0].islower() and len(words.split()) > 3 for words in refusals)


@pytest.mark.slow
def test_most_samples_are_taken():
    taken = total = 0
    for info in TAKEN:
        for sample in info.samples(dtypes.float32, devices.cpu) if dtypes.float32 in info.dtypes else ():
            fn, tensors = of_tensors(info, sample)
            ours = dovetail.jit(fn, executors=[EX, "torch"], interpretation="native")
            ours(*tensors)
            lines = dovetail.last_traces(ours)[-1].lines
            taken += any(line.implementation is not None and line.implementation.executor == "llvm" for line in lines)
            total += 1
    assert taken > 0.8 * total  # views of arguments alone are made without executors, scatters of many elements are left to torch


def test_tolerances_cover_every_float():
    assert set(TOLERANCE) == {torch.float16, torch.bfloat16, torch.float32, torch.float64} and flat([torch.ones(1)])


@pytest.mark.parametrize("divisor", [2.5, -2.5, 1e30, -1e30, 1e-40])
def test_a_zero_divided_by_one_number_for_all_keeps_its_sign(divisor):
    x = torch.tensor([0.0, -0.0, 1.0, -1.0] * 16).view(4, 16)
    quotient = dovetail.jit(lambda x, y: x / y, executors=[EX, "torch"])(x, torch.tensor([divisor]))
    assert torch.equal(torch.signbit(quotient), torch.signbit(x / divisor))

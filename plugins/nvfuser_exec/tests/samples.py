"""Small samples of the conformance suite which the executor takes, as programs of one prim."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

import dovetail
import dovetail_conformance.prims  # noqa: F401
from dovetail import devices
from dovetail.extend import Tag, TensorSpec, Trace
from dovetail.extend.advanced import prims_of
from dovetail.langs.torch import spec_of
from dovetail_conformance import OPINFOS
from dovetail_nvfuser_exec.claims import verdict
from dovetail_nvfuser_exec.executor import OPTIONS
from dovetail_nvfuser_exec.translators import DTYPES, OPT_IN, RULES

MOST = 64  # elements of all inputs and outputs
SAMPLES = 5  # of each prim and dtype
EVERYTHING = OPTIONS | dict.fromkeys(OPT_IN, True)


def samples(device: str = "cpu") -> Iterator[tuple[str, Any, Trace, tuple]]:
    """Small samples of the conformance suite which the executor takes, and which give memory of their own."""
    for info in OPINFOS:
        if info.symbol.module != "prims" or info.symbol.name not in RULES:
            continue
        for dtype in DTYPES:
            if dtype not in info.dtypes:
                continue
            count = 0
            for sample in info.samples(dtype, devices.device(device)):
                trace, inputs = traced(info.symbol, sample)
                if count < SAMPLES and trace is not None and small(trace) and takes(trace):
                    count += 1
                    yield info.symbol.name, dtype, trace, inputs


def traced(symbol: Any, sample: Any) -> tuple[Trace | None, tuple]:
    """A sample as a program, with a copy after a view, since a view of an input computes nothing."""
    tensors = list(dict.fromkeys(x for a in sample.args for x in (a if isinstance(a, (list, tuple)) else (a,)) if isinstance(x, torch.Tensor)))
    if any(spec_of(x).dtype not in DTYPES for x in tensors):
        return None, ()
    places = {id(x): i for i, x in enumerate(tensors)}

    def fn(*args: Any) -> tuple:
        def put(a: Any) -> Any:
            return type(a)(map(put, a)) if isinstance(a, (list, tuple)) else args[places[id(a)]] if id(a) in places else a

        outs = symbol(*map(put, sample.args), **sample.kwargs)
        outs = outs if isinstance(outs, tuple) else (outs,)
        return tuple(dovetail.prims.clone(x) for x in outs) if Tag.VIEW in symbol.tags else outs

    return dovetail.make_trace(fn)(*tensors), tuple(tensors)


def small(trace: Trace) -> bool:
    return sum(p.spec.numel for p in (*trace.inputs, *trace.outputs) if type(p.spec) is TensorSpec) <= MOST


def takes(trace: Trace) -> bool:
    return all(verdict(line, EVERYTHING) is True for line in prims_of(trace.lines))

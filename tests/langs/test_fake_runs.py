"""The first runs on real tensors tell what runs on fake ones tell, whose imports they save."""

from __future__ import annotations

import subprocess
import sys
import warnings

import opdb
import pytest
import torch

import dovetail
from dovetail.langs.torch.binding import fake_runs

INFOS = {
    info.formatted_name: info
    for info in opdb.op_db
    if info.name.startswith(("fft.", "linalg.", "special."))
    or info.name.rpartition(".")[2] in fake_runs.BY_SHAPE
    or info.name in ("nn.functional.grid_sample", "normal")
}


CASES = [
    pytest.param(info, dtype, requires_grad, id=f"{name}-{dtype}{'-grad' * requires_grad}")
    for name, info in INFOS.items()
    for dtype in (torch.float32, torch.complex64, torch.int64)
    for requires_grad in (False, True)
    if dtype in info.supported_dtypes("cpu") and (dtype.is_floating_point or not requires_grad)
]


@pytest.mark.one_in(8)
@pytest.mark.parametrize(("info", "dtype", "requires_grad"), CASES)
def test_a_run_on_real_tensors_tells_the_same(info, dtype, requires_grad, monkeypatch):
    is_by_shape, of_numbers, compared = fake_runs._is_by_shape, fake_runs._run_on_numbers, []

    def compare(run, func, args, kwargs):
        known = of_numbers(run, func, args, kwargs)
        if is_by_shape(func, args, kwargs) and (real := fake_runs._run_without_fakes(run, func, args, kwargs)) is not None:
            compared.append(func)
            facts = [(x.specs, x.written, x.random, x.aliased, x.lazy, x.new) for x in (real, known)]
            assert facts[0] == facts[1], (func, args, kwargs)
        return known

    monkeypatch.setattr(fake_runs, "_run_on_numbers", compare)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for args, kwargs in opdb.samples(info, dtype, 6, requires_grad=requires_grad):
            try:
                dovetail.make_trace(opdb.spelled(info.op))(*args, **kwargs)
            except AssertionError:
                raise
            except Exception:  # what is refused; values that decide
                continue


SAVED = """
import sys, torch, dovetail

calls = [
    lambda x: torch.searchsorted(x.sort().values, x), lambda x: torch.linalg.inv(x @ x.mT + torch.eye(4)), lambda x: torch.fft.rfft(x).abs(),
    lambda x: torch.empty(3).normal_() + x[0, :3], lambda x: torch.hann_window(4) * x, lambda x: torch.nn.functional.grid_sample(
        x.expand(1, 1, 4, 4), torch.zeros(1, 2, 2, 2), align_corners=False), torch.nn.LSTM(4, 3, 2, dropout=0.5),
]
for fn in calls:
    x = torch.randn(4, 4, requires_grad=True)
    compiled = dovetail.jit(fn)
    results, states = [], []
    for call in (fn, compiled):
        torch.manual_seed(0)
        result = call(x)
        result = result[0] if isinstance(result, tuple) else result
        if result.is_floating_point():
            result = result, torch.autograd.grad(result.sum(), x)[0]
        results.append(result)
        states.append(torch.get_rng_state())
    torch.testing.assert_close(results[1], results[0])
    assert torch.equal(*states)
assert "torch._dynamo" not in sys.modules
"""


def test_operations_without_a_decomposition_import_no_compiler():
    subprocess.run([sys.executable, "-c", SAVED], check=True)


def test_a_generator_is_not_advanced_by_tracing():
    generator = torch.Generator().manual_seed(0)
    state = generator.get_state()
    dovetail.make_trace(lambda x: x.clone().normal_(generator=generator))(torch.zeros(3))
    assert torch.equal(generator.get_state(), state)

"""Batching rules, run eagerly: what a rule computes for a batch is what the prim computes for each example."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest
import torch
from eager_prims import Value, bare, leaves, replaced, running
from torch import Tensor

from dovetail import devices, dtypes, prims
from dovetail.prims import SYMBOLS, Symbol, Tag
from dovetail.prims.batching import DRAWS, Batch, rule_of, spread
from dovetail_conformance.opinfo import OpInfo, specs_of
from dovetail_conformance.prims import OPINFOS
from dovetail_torch_exec.prims import PRIMS

SIZE = 2
RULES = [pytest.param(info, id=repr(info)) for info in OPINFOS if rule_of(info.symbol) is not None]
WITHOUT = {
    prims.item,
    prims.print_,
    prims.evaluate,
    prims.copy_,
    prims.get_grad,
    prims.put_grad,
    prims.size,
    prims.format_tensor,
    prims.with_history,
}  # which run on the host, or never in a batch
WITHOUT |= {prims.randperm, prims.uniform_philox, prims.normal_philox}


@pytest.mark.parametrize("symbol", [s for s in SYMBOLS.values() if s.is_prim and s.module == "prims" and Tag.GUARD not in s.tags], ids=repr)
def test_no_batching_rule_was_forgotten(symbol: Symbol) -> None:
    reads_tensors = Tag.CREATION not in symbol.tags and symbol.name not in ("integer", "arithmetic", "format_number", "join_text", "delete")
    has_rule = symbol in DRAWS if Tag.RANDOM in symbol.tags else rule_of(symbol) is not None

    assert has_rule or symbol in WITHOUT or not reads_tensors, f"{symbol} expects a row in dovetail.prims.batching"


def examples(x: Tensor) -> Tensor:
    """Return a batch of examples that are valid where x is: positions stay in their range, and distinct."""
    return torch.stack([x, x.flip(tuple(range(x.dim())))])


def subsets(args: tuple) -> Iterator[set[int]]:
    """Yield which of the tensors in the arguments differ between examples: each alone, then all."""
    tensors = [i for i, x in enumerate(leaves(args)) if isinstance(x, Tensor)]
    chosen = [{i} for i in tensors] + [set(tensors)]
    yield from (subset for n, subset in enumerate(chosen) if subset and subset not in chosen[:n])


@pytest.mark.filterwarnings("ignore:.*degrees of freedom is <= 0")
@pytest.mark.parametrize("info", RULES)
def test_a_rule_computes_every_example(info: OpInfo) -> None:
    symbol = info.symbol
    dtype = next(dtype for dtype in (dtypes.float32, dtypes.int64, dtypes.bool_, dtypes.complex64) if dtype in info.dtypes)
    for sample in info.samples(dtype, devices.cpu):
        flat = leaves(sample.args)
        for subset in subsets(sample.args):
            batches = {i: examples(flat[i]) for i in subset}
            traced = {i: Value(x) for i, x in enumerate(flat) if isinstance(x, Tensor)} | {i: Batch(Value(x)) for i, x in batches.items()}
            with running():
                got = leaves(bare(rule_of(symbol)(SIZE, *replaced(sample.args, traced, count()), **sample.kwargs)))

            rows = [
                leaves(PRIMS[symbol](*replaced(sample.args, {i: x[e] for i, x in batches.items()}, count()), **sample.kwargs)) for e in range(SIZE)
            ]
            where = f"{symbol} of {specs_of(sample.args)} {sample.kwargs}, where {subset} differ"
            for x, parts in zip(got, zip(*rows, strict=True), strict=True):
                torch.testing.assert_close(x, torch.stack(parts), equal_nan=True, msg=lambda m, where=where: f"{where}: {m}")


@pytest.mark.parametrize("symbol", [prims.uniform, prims.normal])
def test_each_example_draws_numbers_of_its_own(symbol: Symbol) -> None:
    names = {prims.uniform: {"low": 0.0, "high": 1.0}, prims.normal: {"mean": 0.0, "std": 1.0}}[symbol]
    with running():
        drawn = bare(DRAWS[symbol](SIZE, shape=(3,), dtype=dtypes.float32, device=devices.cpu, **names))

    assert drawn.shape == (SIZE, 3) and not torch.equal(drawn[0], drawn[1])


def test_draws_follow_the_parameters_of_their_example() -> None:
    p = Batch(Value(torch.tensor([[0.0, 0.0], [1.0, 1.0]])))
    weights = Batch(Value(torch.tensor([[0.0, 1.0], [1.0, 0.0]])))
    with running():
        assert bare(DRAWS[prims.bernoulli](SIZE, p)).tolist() == [[0.0, 0.0], [1.0, 1.0]]
        assert bare(DRAWS[prims.multinomial](SIZE, weights, num_samples=1, replacement=True)).tolist() == [[1], [0]]
        assert bare(spread(Value(torch.ones(2)), SIZE)).tolist() == [[1.0, 1.0]] * SIZE

"""A region as a torch.fx graph: of PyTorch's functions, and of the operations of ATen's that Inductor has code for."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx

from dovetail.extend import BoundSymbol, Tag, TensorSpec, Trace
from dovetail.extend.advanced import prims_of, symbol_for, torch_internals
from dovetail.langs.torch import TO_TORCH, torch_device


def structure(gm: fx.GraphModule, region: Trace) -> tuple:
    """Return a graph without its names: equal where the same is computed of tensors laid out the same."""
    numbers = {node: i for i, node in enumerate(gm.graph.nodes)}
    rows: list[tuple] = [(p.spec.shape, p.spec.dtype.name, str(p.spec.device), p.spec.steps) for p in region.inputs]
    for node in gm.graph.nodes:
        target = node.target if node.op.startswith("call_") else None
        rows.append((node.op, target, repr(fx.node.map_arg((node.args, dict(node.kwargs)), lambda n: _Number(numbers[n])))))
    return tuple(rows)


class _Number:
    """How a node is written in the structure of a graph."""

    def __init__(self, number: int):
        self.number = number

    def __repr__(self) -> str:
        return f"%{self.number}"


def computing(region: Trace) -> int:
    """Return how many of a region's prims compute, rather than arrange or make what is known."""
    return sum(line.symbol.tags.isdisjoint((Tag.VIEW, Tag.CREATION)) for line in prims_of(region.lines))


def example(spec: TensorSpec) -> torch.Tensor:
    """Return a tensor of this spec, with whatever is in its memory."""
    return torch.empty_strided(spec.shape, spec.steps, dtype=TO_TORCH[spec.dtype], device=torch_device(spec.device))


WHOLE = {symbol_for("torch.nn.functional.linear"), symbol_for("torch.nn.functional.scaled_dot_product_attention")}


def apart(region: Trace) -> Trace:
    """Return the region as prims, and the products that a library computes whole.

    What torch operations mean to a compiler is not always what they do: some of PyTorch's rules for them lose an argument or a dtype.
    """

    def lines(of: tuple[BoundSymbol, ...] | list[BoundSymbol]) -> list[BoundSymbol]:
        return [one for line in of for one in ([line] if line.symbol in WHOLE or not line.body else lines(line.body))]

    return region.derive("inductor", lines=lines(region.lines))


def decomposed(gm: fx.GraphModule, region: Trace, mode: Any = None) -> tuple[fx.GraphModule, list[torch.Tensor]]:
    """Return the graph in operations that Inductor has code for, and fake tensors like its inputs.

    Each output is laid out as the region promises.
    """
    with mode or torch_internals.fake_tensor_mode(), torch.no_grad():
        fakes = [example(p.spec) for p in region.inputs]
        return make_fx(_laid_out(gm, region), decomposition_table=torch_internals.select_decompositions())(*fakes), fakes


def _laid_out(gm: fx.GraphModule, region: Trace) -> Any:
    """Wrap `gm` so that results have the promised layouts, where decompositions for a compiler choose others."""

    def run(*inputs: torch.Tensor) -> tuple:
        return tuple([_as_promised(x, p.spec) for x, p in zip(gm(*inputs), region.outputs, strict=True)])

    return run


def _as_promised(x: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
    if not spec.is_dense or all(n == 1 or a == b for n, a, b in zip(x.shape, x.stride(), spec.steps, strict=True)) or x.numel() == 0:
        return x
    order = sorted(range(x.dim()), key=lambda d: (-spec.steps[d], spec.shape[d] == 1))
    return x.permute(order).clone(memory_format=torch.contiguous_format).permute([order.index(d) for d in range(x.dim())])

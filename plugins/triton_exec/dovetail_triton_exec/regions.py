"""A region as a Python function: the launches of its kernels, and views of their results and of the inputs for the rest."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch

from dovetail.dtypes import DType
from dovetail.extend import Trace
from dovetail.langs.torch import TO_TORCH
from dovetail_triton_exec import availability, emit, files, tune
from dovetail_triton_exec.exprs import Buffer
from dovetail_triton_exec.graph import Graph, Node
from dovetail_triton_exec.plan import Kernel, Plan
from dovetail_triton_exec.tiles import Tile, tile
from dovetail_triton_exec.verifier import verify

UNCHECKED = {"sanitize_overflow": False}  # kernels that check positions check nothing else

_HERE = nullcontext()
Maker = Callable[[tuple, list], torch.Tensor]  # (inputs, results) -> one output


class Memory(NamedTuple):
    """A tensor that a region allocates."""

    shape: tuple[int, ...]
    steps: tuple[int, ...]
    dtype: DType


class Launch(NamedTuple):
    """One kernel: its name in the file, how it is cut into programs, and what it is given."""

    name: str
    tile: Tile
    grid: int
    buffers: list[Buffer]
    kernel: Kernel
    options: dict[str, bool]


@dataclass
class Region:
    """What a region became.  `text` is its source, `path` where that lies; calling it runs the kernels, which are imported first."""

    text: str
    launches: list[Launch]
    outputs: list[Memory]
    temporaries: list[Memory]
    makers: list[Maker]
    device: str
    interpreted: bool
    tune: bool = False
    folder: str = ""
    path: Path | None = None
    _kernels: list[Any] | None = field(default=None, repr=False)
    _bound: dict[torch.device, list[tuple[Callable[..., Any], list[Buffer]]]] = field(default_factory=dict, repr=False)

    def __call__(self, *inputs: torch.Tensor) -> tuple:
        device = inputs[0].device if inputs else torch.device(self.device)
        outputs = [_empty(m, device) for m in self.outputs]
        if self.launches:
            temporaries = [_empty(m, device) for m in self.temporaries]
            with _on(device):
                self.run(inputs, outputs, temporaries, device)
        return tuple([make(inputs, outputs) for make in self.makers])

    def run(self, inputs: tuple, outputs: list, temporaries: list, device: torch.device) -> None:
        """Launch the kernels, in order."""
        held = {"in": inputs, "out": outputs, "tmp": temporaries}
        bound = self._bound.get(device)
        if bound is None:
            self._bound[device] = self._first(held, device)
            return
        for start, buffers in bound:
            start(*[held[kind][number] for kind, number, _ in buffers])

    def _first(self, held: dict[str, Any], device: torch.device) -> list[tuple[Callable[..., Any], list[Buffer]]]:
        """Launch the kernels on a device for the first time and return them with their constant arguments."""
        bound = []
        for launch, kernel in zip(self.launches, self.kernels(), strict=True):
            args = [held[kind][number] for kind, number, _ in launch.buffers]
            tile = launch.tile
            if self.tune and not self.interpreted:
                tile = tune.chosen(self, launch, device, functools.partial(_ready, kernel, launch, args))
            bound.append((_started(kernel, launch, tile), launch.buffers))
            bound[-1][0](*args)
        return bound

    def kernels(self) -> list[Any]:
        """Return the kernels, imported from their file."""
        if self._kernels is None:
            self.path = files.written(self.text, self.folder)
            module = files.module(self.path, self.text)
            self._kernels = [getattr(module, launch.name) for launch in self.launches]
        return self._kernels


def _started(kernel: Any, launch: Launch, tile: Tile) -> Callable[..., Any]:
    """Return one kernel with a tile, as a function of its memory."""
    sizes = {"XB": tile.x} | ({} if launch.kernel.r is None else {"RB": tile.r})
    return functools.partial(kernel[(launch.kernel.programs(tile.x),)], **sizes, num_warps=tile.warps, **launch.options)


def _ready(kernel: Any, launch: Launch, args: list[torch.Tensor], tile: Tile) -> Callable[[], Any]:
    """Return one kernel with a tile and its memory."""
    return functools.partial(_started(kernel, launch, tile), *args)


def _on(device: torch.device) -> Any:
    """Return where kernels are launched: on a device, or by one thread at a time in the interpreter."""
    if device.type != "cuda":
        return availability.INTERPRETER
    return _HERE if device.index == torch.cuda.current_device() else torch.cuda.device(device)


def _empty(memory: Memory, device: torch.device) -> torch.Tensor:
    return torch.empty_strided(memory.shape, memory.steps, dtype=TO_TORCH[memory.dtype], device=device)


def compiled(region: Trace, *, interpreted: bool | None = None, tiles: Callable[[Kernel], Tile] | None = None) -> Region:
    """Return the function of a region, from its lines; `tiles` stands in for the table, but where a program sweeps over rows."""
    interpreted = availability.interpreting() if interpreted is None else interpreted
    graph = Graph(region)
    stored = list(dict.fromkeys(o.base for o in graph.outputs if o.base.op != "input" and o.numel))
    makers = [_maker(graph, o, stored) for o in graph.outputs]
    plan = Plan(graph, stored)
    verify(plan)
    table = functools.partial(tile, interpreted=interpreted)
    choose = table if tiles is None else lambda kernel: table(kernel) if kernel.sweeps else tiles(kernel)
    launches = [_launch(i, kernel, choose(kernel)) for i, kernel in enumerate(plan.kernels)]
    text = emit.source([(launch.kernel, launch.name, launch.tile.looped) for launch in launches]) if launches else ""
    outputs = [Memory(n.shape, n.steps, n.dtype) for n in stored]
    temporaries = [Memory(n.shape, n.steps, n.kept) for n in plan.temporaries]
    device = str(next((p.spec.device for p in (*region.inputs, *region.outputs)), "cpu"))
    return Region(text, launches, outputs, temporaries, makers, device, interpreted)


def _launch(number: int, kernel: Kernel, chosen: Tile) -> Launch:
    options = UNCHECKED if emit.checks(kernel) else {}
    return Launch(f"{kind(kernel)}_{number}", chosen, kernel.programs(chosen.x), emit.buffers(kernel), kernel, options)


def kind(kernel: Kernel) -> str:
    """Return what a kernel's name begins with: pointwise, rows, columns, or the reductions that it does."""
    if kernel.r is None:
        return "pointwise"
    ops = [node.op for node in kernel.results] + [s.node.params["of"].op for s in kernel.stores if s.node.op == "part"]
    return "_".join(list(dict.fromkeys(ops))[:3]) or "rows"


def _maker(graph: Graph, node: Node, stored: list[Node]) -> Maker:
    """Return how an output is got: a result of the kernels, or a view of one or of an input."""
    base, shape, steps, offset = node.base, node.shape, node.steps, node.offset
    if base.op == "input":
        input_number = graph.inputs.index(base)
        return lambda inputs, results: inputs[input_number].as_strided(shape, steps, inputs[input_number].storage_offset() + offset)
    if node.numel == 0:
        dtype = TO_TORCH[node.dtype]
        return lambda inputs, results: torch.empty_strided(shape, steps, dtype=dtype, device=results[0].device if results else None)
    result_number = stored.index(base)
    if node is base:
        return lambda inputs, results: results[result_number]
    return lambda inputs, results: results[result_number].as_strided(shape, steps, offset)

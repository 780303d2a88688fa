"""DTensors on a mesh of one rank, as arguments, results and parameters of compiled functions, and inside of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import distributed, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_module, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module
from torch.nn import functional as F

import dovetail
from dovetail.errors import Unsupported

pytestmark = pytest.mark.filterwarnings("ignore:DTensor random operators")
MESH: list[DeviceMesh] = []
ROWS, COLUMNS, WHOLE = [Shard(0)], [Shard(1)], [Replicate()]


@pytest.fixture(autouse=True, scope="module")
def mesh() -> Iterator[DeviceMesh]:
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    MESH.append(init_device_mesh("cpu", (1,)))
    yield MESH[0]
    MESH.clear()
    distributed.destroy_process_group()


def rows(*shape: int, lies: Any = ROWS, needs_grad: bool = False) -> DTensor:
    return distribute_tensor(torch.randn(*shape), MESH[0], lies).requires_grad_(needs_grad)


def whole(*shape: int) -> DTensor:
    return rows(*shape, lies=WHOLE, needs_grad=True)


def trained(*shape: int) -> DTensor:
    return rows(*shape, needs_grad=True)


def indices() -> DTensor:
    return distribute_tensor(torch.tensor([0, 1, 2, 0]), MESH[0], WHOLE)


def of(local: torch.Tensor) -> DTensor:
    return DTensor.from_local(local, MESH[0], ROWS)


def assert_same(ours: Any, theirs: Any) -> None:
    assert type(ours) is type(theirs)
    if isinstance(theirs, (tuple, list)):
        assert len(ours) == len(theirs)
        for mine, other in zip(ours, theirs, strict=True):
            assert_same(mine, other)
    elif isinstance(theirs, DTensor):
        facts = [(x.placements, x.device_mesh, x.shape, x.stride(), x.requires_grad, x.is_leaf) for x in (ours, theirs)]
        assert facts[0] == facts[1]
        assert_same(ours.detach().to_local(), theirs.detach().to_local())
    elif isinstance(theirs, torch.Tensor):
        assert ours.requires_grad == theirs.requires_grad
        torch.testing.assert_close(ours, theirs)
    else:
        assert ours == theirs


def run(function: Any, args: list[torch.Tensor]) -> tuple[Any, list[Any]]:
    """Return the results, and the gradients of the arguments after a backward of what requires grad."""
    torch.manual_seed(1)
    results = function(*args)
    several = results if isinstance(results, (tuple, list)) else [results]
    losses = [x.full_tensor() if isinstance(x, DTensor) else x for x in several if isinstance(x, torch.Tensor) and x.requires_grad]
    if losses:
        torch.stack([x.square().mean() for x in losses]).sum().backward()
    return results, [x.grad for x in args]


PROGRAMS = {
    "arithmetic": (lambda x: (x * 2 + 1, x - x.sin(), 1 / x, x**2, x * torch.tensor(2.0)), lambda: [rows(4, 3)]),
    "products": (lambda x, w: (x @ w, F.linear(x, w), x @ w.t()), lambda: [rows(4, 3), whole(3, 3)]),
    "sums over ranks": (lambda x: (x.sum(0), x.sum(0).relu(), x.mean(), x.amax(1), x.var(0), x.max(1), x.norm()), lambda: [rows(4, 3)]),
    "shapes": (lambda x: (x.t(), x.view(12), x[1:], torch.cat([x, x]), x.unsqueeze(0), x.split(2), x.flatten()), lambda: [rows(4, 3)]),
    "choices": (lambda x: (torch.where(x > 0, x, -x), x.masked_fill(x > 0, 0.0), torch.zeros_like(x), x.clamp(0, 1)), lambda: [rows(4, 3)]),
    "what it says of itself": (lambda x: (x.shape, x.placements, x.device_mesh, x.dtype, isinstance(x, DTensor)), lambda: [rows(4, 3)]),
    "a branch on how it lies": (lambda x: x * 2 if x.placements[0].is_shard() else x * 3, lambda: [rows(4, 3, lies=WHOLE)]),
    "writes": (lambda x: (x.mul_(2), x[0], x), lambda: [rows(4, 3)]),
    "a write into what it holds": (lambda x: (x.to_local().add_(1), x * 2), lambda: [rows(4, 3)]),
    "dropout": (lambda x: F.dropout(x, 0.5), lambda: [rows(40, 3)]),
    "another dtype": (lambda x: x.to(torch.bfloat16) @ x.to(torch.bfloat16).t(), lambda: [rows(4, 3)]),
    "created inside": (lambda x: (of(x * 2), of(x).sum(0).full_tensor()), lambda: [torch.randn(4, 3)]),
    "results": (lambda x: (x * 2).sum(0), lambda: [trained(4, 3)]),
    "layers": (lambda x, w, v: F.layer_norm(F.gelu(x @ w) @ v, (3,)), lambda: [rows(4, 3, lies=WHOLE), rows(3, 8, lies=COLUMNS), trained(8, 3)]),
    "linear": (lambda x, w: F.linear(x, w).relu().sum(), lambda: [trained(4, 3), whole(3, 3)]),
    "parts": (lambda x: ((x * 2).to_local().sin(), (x * 2).to_local(grad_placements=WHOLE)), lambda: [trained(4, 3)]),
    "the whole": (lambda x: ((x * 2).full_tensor().sin(), x.sum(0).full_tensor().sin()), lambda: [trained(4, 3)]),
    "moved": (lambda x: (x * 2).redistribute(placements=WHOLE).sin(), lambda: [trained(4, 3)]),
    "from a part": (lambda x, w: (of(x) @ w).full_tensor(), lambda: [torch.randn(4, 3, requires_grad=True), whole(3, 3)]),
    "lookups": (lambda i, w: F.embedding(i, w).redistribute(placements=WHOLE), lambda: [indices(), trained(5, 3)]),
    "cross_entropy": (lambda x, i: F.cross_entropy(x, i), lambda: [whole(4, 3), indices()]),
    "a backward inside": (lambda x: (x.square().sum().backward(), x.grad)[1], lambda: [trained(4, 3)]),
}


@pytest.mark.parametrize("program, make", PROGRAMS.values(), ids=PROGRAMS)
def test_results_gradients_and_layouts_are_eagers(program, make):
    compiled = dovetail.jit(program)
    for seed in range(2):
        torch.manual_seed(seed)
        mine = make()
        torch.manual_seed(seed)
        theirs = make()
        assert_same(run(compiled, mine), run(program, theirs))
        assert_same(mine, theirs)

    assert compiled.cache_info().programs == 1


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down, self.norm = nn.Linear(6, 8), nn.Linear(8, 6), nn.LayerNorm(6)

    def forward(self, x):
        return self.norm(self.down(F.gelu(self.up(x))))


SEQUENCE = {"up": ColwiseParallel(input_layouts=Shard(1)), "down": RowwiseParallel(output_layouts=Shard(1)), "norm": SequenceParallel()}
WRAPPED = {
    "parallelize_module": lambda module: parallelize_module(module, MESH[0], {"up": ColwiseParallel(), "down": RowwiseParallel()}),
    "parallelize_module, sequence": lambda module: parallelize_module(module, MESH[0], SEQUENCE),
    "distribute_module": lambda module: distribute_module(module, MESH[0]),
}


@pytest.mark.parametrize("wrapped", WRAPPED)
def test_modules_that_torch_has_cut_train_as_in_eager_mode(wrapped):
    def train(compile):
        torch.manual_seed(0)
        module = WRAPPED[wrapped](Layers())
        step, optimizer = compile(module), torch.optim.SGD(module.parameters(), lr=0.1)
        for _ in range(3):
            x = torch.randn(2, 4, 6)
            y = step(distribute_tensor(x, MESH[0], WHOLE) if wrapped == "distribute_module" else x)
            (y.full_tensor() if isinstance(y, DTensor) else y).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        return step, [p.detach() for p in module.parameters()]

    compiled, mine = train(dovetail.jit)
    assert_same(mine, train(lambda module: module)[1])
    assert compiled.cache_info().programs == 1


def test_how_an_argument_lies_is_guarded():
    compiled = dovetail.jit(lambda x: x.sum(0))
    for lies in (ROWS, COLUMNS, WHOLE, ROWS):
        x = rows(4, 3, lies=lies)
        assert_same(compiled(x), x.sum(0))

    assert compiled.cache_info().programs == 3


def test_the_program_consists_of_operations_on_what_the_rank_holds():
    compiled = dovetail.jit(lambda x: x * 2 + 1)
    compiled(rows(4, 3))

    assert "DTensor" not in str(dovetail.last_traces(compiled)[-1])


def test_plain_tensors_are_not_mixed_in():
    with pytest.raises(RuntimeError, match=r"mixed torch\.Tensor and DTensor"):
        dovetail.jit(lambda x, y: x + y)(rows(4, 3), torch.randn(4, 3))


def test_a_shape_that_changes_in_place_is_left_to_eager_mode():
    compiled, x = dovetail.jit(lambda x: (x * 2).squeeze_(1)), rows(4, 1)

    assert_same(compiled(x), (x * 2).squeeze_(1))
    assert compiled.cache_info().programs == 0


@pytest.mark.parametrize("program", [lambda x: x.sum().item(), lambda x: float(x.sum()), lambda x: x if x.sum() > 0 else -x])
def test_its_value_is_refused_with_a_way_out(program):
    with pytest.raises(Unsupported, match="the value of a DTensor is needed, which is not traced; make a plain tensor of it"):
        dovetail.jit(program)(rows(4, 3))


def test_a_module_that_dovetail_cuts_is_no_such_tensor_to_its_program():
    plain, x = Layers(), torch.randn(2, 6)
    expected = plain(x)

    module = dovetail.distributed.fully_sharded(plain, MESH[0])
    result = module(x)
    result.sum().backward()

    torch.testing.assert_close(result, expected)
    assert all([type(p) is DTensor and type(p.grad) is DTensor for p in module.parameters()])

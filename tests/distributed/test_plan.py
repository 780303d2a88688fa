"""The planner against what ranks really hold and send, and the example."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from small_models import language_model, optimizer_of, tokens_of, train
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh

import dovetail
from dovetail_conformance.ranks import Ranks

pytestmark = pytest.mark.xdist_group("distributed")


def planned_and_measured() -> dict[str, list[tuple[int, int]]]:
    """Return for each way (planned, measured) bytes of parameters, gradients and optimizer, and those that are sent."""
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    mesh = init_device_mesh("cpu", (ranks,))
    plan = dovetail.distributed.plan(language_model("llama"), mesh, tokens_of(0, rank, ranks), states=1)
    pairs = {}
    for wrap in (dovetail.distributed.data_parallel, dovetail.distributed.fully_sharded):
        model = wrap(language_model("llama"), mesh)
        optimizer = optimizer_of(model.parameters())
        with dovetail.distributed.traffic() as moved:
            train(model, optimizer, [0], rank, ranks)
        way, params = plan[wrap.__name__], list(model.parameters())
        momenta = [state["momentum_buffer"] for state in optimizer.state.values()]
        planned = (way.parameters, way.gradients, way.optimizer, way.sent)
        pairs[way.name] = list(zip(planned, (held(params), held([p.grad for p in params]), held(momenta), moved.bytes), strict=True))
    return pairs


def held(tensors: list[torch.Tensor]) -> int:
    """Return the bytes of the tensors that lie on this rank."""
    local = [x.to_local() if hasattr(x, "to_local") else x for x in tensors]
    return sum(x.numel() * x.element_size() for x in local)


def test_a_plan_is_what_ranks_hold_and_send(two: Ranks) -> None:
    for pairs in two.run(planned_and_measured):
        for name, numbers in pairs.items():
            assert [planned for planned, _ in numbers] == [measured for _, measured in numbers], name


@pytest.mark.slow
def test_a_plan_is_what_four_ranks_hold_and_send(four: Ranks) -> None:
    for pairs in four.run(planned_and_measured):
        assert all([abs(planned - measured) <= planned // 20 for numbers in pairs.values() for planned, measured in numbers])  # rows are padded


def test_a_plan_needs_no_devices() -> None:
    with torch.device("meta"):
        module, batch = nn.Sequential(*[nn.Linear(1024, 1024, bias=False) for _ in range(4)]), torch.empty(2, 1024)

    plan = dovetail.distributed.plan(module, (64, 32), batch)

    size = 4 * 1024 * 1024 * 4
    assert plan["one process"].parameters == plan["data_parallel"].parameters == size
    assert plan["fully_sharded"].parameters == size // 1024  # 2,048 ranks share 1,024 rows
    assert plan["data_parallel"].sent == 2 * size * 2047 // 2048
    assert "fully_sharded" in str(plan)


@pytest.mark.slow
def test_the_example_runs_on_two_processes(request: pytest.FixtureRequest) -> None:
    command = ["-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", "2", "examples/distributed.py"]
    done = subprocess.run([sys.executable, *command, "--steps", "3"], cwd=request.config.rootpath, capture_output=True, text=True, timeout=300)

    assert done.returncode == 0, done.stderr
    assert "fully_sharded on 2 ranks" in done.stdout

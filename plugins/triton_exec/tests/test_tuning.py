"""Tuning: what is tried, that it is timed once for each kind of device, and that choices are kept; kernels and clock are stand-ins."""

import subprocess
import sys

import pytest
import torch
from triton_helpers import planned

from dovetail_triton_exec import tiles, tune
from dovetail_triton_exec.tiles import Tile

SECONDS = {64: 3.0, 128: 1.0, 256: 2.0}


class Kernel:
    """Notes the tiles that it is launched with; one of 512 elements is too large."""

    def __init__(self):
        self.launched = []

    def __getitem__(self, grid):
        def launch(*args, XB, num_warps, RB=1):
            if XB == 512:
                raise MemoryError("out of resource: shared memory")
            self.launched.append((grid[0], XB))

        return launch


class Clock:
    """Runs what it times; knows what a kernel of `Kernel` takes by its elements."""

    def __init__(self, kernel):
        self.kernel, self.timed = kernel, 0

    def __call__(self, run):
        run()
        self.timed += 1
        return SECONDS[self.kernel.launched[-1][1]]


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A region that doubles 1000 numbers with the folder for its choices, its kernel, and the clock; `device` is what devices are called."""

    class Machine:
        device = "NVIDIA H200"

        def __init__(self):
            self.kernel = Kernel()
            self.clock = Clock(self.kernel)

        def region(self):
            (planned_region,) = planned(lambda x: x * 2, torch.zeros(1000))
            planned_region.tune, planned_region.folder, planned_region._kernels = True, str(tmp_path), [self.kernel]
            return planned_region

    simulated = Machine()
    monkeypatch.setattr(tune, "seconds", simulated.clock)
    monkeypatch.setattr(tune, "kind", lambda device: simulated.device)
    monkeypatch.setattr(tune, "candidates", lambda kernel: [Tile(x, 1, 4, False) for x in (512, 64, 128, 256)])
    return simulated


def test_a_kernel_is_timed_once_and_launched_as_what_was_fastest(machine):
    region = machine.region()
    for _ in range(3):
        region(torch.zeros(1000))
    assert machine.clock.timed == 3
    assert machine.kernel.launched[3:] == [(8, 128)] * 3  # the first call launches too


def test_another_process_finds_the_choice(machine):
    machine.region()(torch.zeros(1000))
    machine.region()(torch.zeros(1000))
    assert machine.clock.timed == 3


def test_another_kind_of_device_has_choices_of_its_own(machine, tmp_path):
    machine.region()(torch.zeros(1000))
    machine.device = "NVIDIA A100-SXM4-80GB"
    machine.region()(torch.zeros(1000))
    assert machine.clock.timed == 6
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tiles-NVIDIA-A100-SXM4-80GB", "tiles-NVIDIA-H200"]


def test_without_the_option_the_table_decides(machine):
    region = machine.region()
    region.tune = False
    region(torch.zeros(1000))
    (launch,) = region.launches
    assert machine.kernel.launched == [(launch.grid, launch.tile.x)] and machine.clock.timed == 0


def test_the_fastest_that_runs_is_taken_the_first_of_equals():
    seconds = {1: 3.0, 2: 1.0, 3: 1.0}

    def timed(tile):
        if tile == 4:
            raise RuntimeError("out of resource: shared memory")
        return seconds[tile]

    assert tune.fastest([4, 1, 2, 3], timed) == 2
    assert tune.fastest([4], timed) == 4


def test_a_choice_that_another_process_was_first_with_holds(tmp_path):
    ours, theirs = (tune.Choices(tmp_path) for _ in range(2))
    assert theirs.put("a", Tile(64, 32, 4, True)) == Tile(64, 32, 4, True)
    assert ours.put("a", Tile(32, 32, 4, True)) == ours.get("a") == Tile(64, 32, 4, True)


@pytest.mark.parametrize("held", ("", "[1, 2", "[1]", "null"))
def test_a_choice_that_cannot_be_read_is_none(tmp_path, held):
    (tmp_path / "a.json").write_text(held)
    choices = tune.Choices(tmp_path)
    assert choices.get("a") is None
    assert choices.put("a", Tile(64, 1, 4, False)) == tune.Choices(tmp_path).get("a")


@pytest.mark.parametrize("damage", [b"", b'{"device": "NVIDIA H200", "kern', b"\xff\xfe"])
def test_a_damaged_choice_is_timed_again(machine, tmp_path, damage):
    machine.region()(torch.zeros(1000))
    (path,) = tmp_path.rglob("*.json")
    path.write_bytes(damage)
    machine.region()(torch.zeros(1000))
    assert machine.clock.timed == 6 and machine.kernel.launched[-1] == (8, 128)


def test_a_choice_that_is_no_candidate_is_timed_again(machine, tmp_path):
    machine.region()(torch.zeros(1000))
    (path,) = tmp_path.rglob("*.json")
    path.write_text(path.read_text().replace("128", "129"))
    machine.region()(torch.zeros(1000))
    assert machine.clock.timed == 6 and machine.kernel.launched[-1] == (8, 128)


@pytest.mark.slow
def test_several_processes_write_choices_and_none_is_lost(tmp_path):
    program = (
        "from dovetail_triton_exec import tune, tiles; choices = tune.Choices(__import__('pathlib').Path(sys.argv[1])); "
        "[choices.put(f'{sys.argv[2]}-{n}', tiles.Tile(n, 1, 4, False)) for n in range(50)]; "
        "[choices.put(f'both-{n}', tiles.Tile(n, 1, 4, False)) for n in range(50)]"
    )
    program = f"import sys; sys.path[:0] = {[p for p in sys.path if p]!r}; {program}"
    started = [subprocess.Popen([sys.executable, "-c", program, str(tmp_path), name]) for name in "ab"]
    assert [process.wait() for process in started] == [0, 0]
    assert len(list(tmp_path.iterdir())) == 150
    choices = tune.Choices(tmp_path)
    assert all(choices.get(f"{name}-{n}") == Tile(n, 1, 4, False) for name in ("a", "b", "both") for n in range(50))


def test_candidates_are_few_and_always_the_same():
    (region,) = planned(lambda x: torch.softmax(x, -1) + x.sum(0), torch.zeros(512, 300))
    for launch in region.launches:
        candidates = tiles.candidates(launch.kernel)
        assert candidates[0] == launch.tile
        assert candidates == tiles.candidates(launch.kernel) and 2 <= len(candidates) <= 5


def test_a_choice_in_the_place_of_another_is_not_believed(tmp_path):
    ours, theirs = tune.Choices(tmp_path / "tiles-H200"), tune.Choices(tmp_path / "tiles-T4")
    ours.put("a", Tile(64, 1, 4, False))
    ours.put("b", Tile(128, 1, 4, False))
    theirs.put("a", Tile(256, 1, 4, False))
    (ours.folder / "a.json").write_bytes((ours.folder / "b.json").read_bytes())
    (ours.folder / "b.json").write_bytes((theirs.folder / "a.json").read_bytes())
    assert ours.get("a") is None
    assert ours.get("b") is None
    assert ours.put("a", Tile(64, 1, 4, False)) == ours.get("a") == Tile(64, 1, 4, False)

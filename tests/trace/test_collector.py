"""When the garbage collector runs, and what it walks."""

import gc
import weakref

import pytest

from dovetail.trace import collector
from dovetail.trace.collector import without_collector


def test_the_collector_is_off_inside_and_as_it_was_outside():
    with without_collector():
        assert not gc.isenabled()
        with without_collector(keeps=True):
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


@pytest.fixture
def thawed(monkeypatch):
    """The tests freeze what they have imported."""
    monkeypatch.setattr(collector, "GENERATIONS", collector.Generations())
    frozen = gc.get_freeze_count()
    gc.unfreeze()
    yield
    if frozen:
        gc.freeze()


@pytest.mark.usefixtures("thawed")
def test_what_is_kept_is_not_walked_by_the_next_collection():
    with without_collector(keeps=True):
        kept = [[] for _ in range(1000)]
    young = {id(each) for generation in (0, 1) for each in gc.get_objects(generation)}
    assert young.isdisjoint(map(id, kept)) and gc.get_freeze_count() == 0


@pytest.mark.usefixtures("thawed")
def test_what_python_has_frozen_itself_does_not_count(monkeypatch):
    monkeypatch.setattr(gc, "get_freeze_count", lambda: 375)  # as in Python 3.12 at its start
    thawed = []
    monkeypatch.setattr(gc, "unfreeze", lambda unfreeze=gc.unfreeze: thawed.append(True) or unfreeze())
    with without_collector(keeps=True):
        pass
    assert thawed


@pytest.mark.usefixtures("thawed")
def test_what_the_user_has_frozen_stays_so_and_is_counted_once(monkeypatch):
    gc.freeze()
    counts = []
    monkeypatch.setattr(gc, "get_freeze_count", lambda count=gc.get_freeze_count: counts.append(count()) or counts[-1])
    for _ in range(3):
        with without_collector(keeps=True):
            pass
    assert len(counts) == 1
    assert gc.get_freeze_count() > collector.FEW
    gc.unfreeze()


class Node:
    def __init__(self):
        self.itself = self


@pytest.mark.usefixtures("thawed")
def test_what_many_compilations_leave_behind_is_collected(monkeypatch):
    monkeypatch.setattr(collector, "MANY", 5000)
    collector.GENERATIONS.limit = 5000
    nodes = []
    for _ in range(10):
        with without_collector(keeps=True):
            nodes += [weakref.ref(Node()) for _ in range(1000)]
    assert sum(node() is not None for node in nodes) < 5000
    assert collector.GENERATIONS.limit == collector.MANY


def test_collecting_in_vain_comes_later_each_time(monkeypatch):
    monkeypatch.setattr(collector, "MANY", 1000)
    monkeypatch.setattr(collector, "GENERATIONS", collector.Generations())
    limits, kept = [], []
    for _ in range(16):
        with without_collector(keeps=True):
            kept += [[] for _ in range(500)]
        limits.append(collector.GENERATIONS.limit)
    assert limits == sorted(limits) and limits[-1] >= 4000


def test_an_error_turns_the_collector_on_again():
    with pytest.raises(ValueError), without_collector(keeps=True):
        raise ValueError
    assert gc.isenabled()

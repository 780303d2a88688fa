"""Ranks of this machine are stopped between calls, and end with the process that started them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dovetail_conformance.ranks import end_shared_ranks, shared_ranks

STARTS = """
import json, os, signal
from dovetail_conformance.ranks import Ranks

def process():
    return os.getpid()

if __name__ == "__main__":
    ranks = Ranks(2)
    first = ranks.run(process)
    print("ranks", json.dumps(first), flush=True)
    input()
    assert ranks.run(process) == first
    print("again", flush=True)
    input()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def process() -> int:
    """Return the process id of the rank that this runs in."""
    return os.getpid()


def state(process: int) -> str:
    """Return the state of a process as the system shows it: T where it is stopped; nothing where it has ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0].replace("Z", "")
    except FileNotFoundError:
        return ""


def line_after(process: subprocess.Popen, word: str) -> str:
    """Return what stands behind a word that begins a line; gloo may print lines of its own before."""
    return next(line.removeprefix(word).strip() for line in process.stdout if line.startswith(word))


def becomes(true: Callable[[], bool]) -> bool:
    """Return whether something becomes true within a minute."""
    until = time.monotonic() + 60
    while not true() and time.monotonic() < until:
        time.sleep(0.01)
    return true()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads the state of processes from /proc")
def test_ranks_are_stopped_between_calls_and_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    (script := tmp_path / "starts_ranks.py").write_text(STARTS)
    starter = subprocess.Popen([sys.executable, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    ranks = json.loads(line_after(starter, "ranks"))
    stopped = becomes(lambda: list(map(state, ranks)) == ["T", "T"])
    starter.stdin.write("\n")
    starter.stdin.flush()
    went_on = line_after(starter, "again") == ""
    stopped_again = becomes(lambda: list(map(state, ranks)) == ["T", "T"])
    starter.communicate("\n")

    assert stopped and went_on and stopped_again
    assert becomes(lambda: list(map(state, ranks)) == ["", ""]), "they outlive a process that was killed"


def test_shared_ranks_start_again_after_one_has_ended() -> None:
    try:
        first = shared_ranks(2).run(process)
        os.kill(first[0], signal.SIGKILL)
        with pytest.raises(AssertionError, match="rank 0 of 2: the process ended"):
            shared_ranks(2).run(process, survivors=(0,))
        assert not set(shared_ranks(2).run(process)) & set(first)
    finally:
        end_shared_ranks()

"""Processes that answer, fail, die and hang; and one run with real ones, from the first call to the memory."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest
from measuring import Effort, Measurement
from processes import Gone, Started, Worker

ECHO = "import sys\nfor line in sys.stdin: print(line.strip(), flush=True)"
CACHES = """
import json, os
print(json.dumps({name: os.environ[name] for name in ("XDG_CACHE_HOME", "TORCHINDUCTOR_CACHE_DIR")}), flush=True)
input()
"""
PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=-1)
print('{"pid": %d}' % child.pid, flush=True)
input()
"""


@pytest.fixture
def worker():
    """worker(program) is a process that runs it."""
    made = []

    def start(program, timeout=300.0):
        made.append(Worker([sys.executable, "-S", "-c", program], timeout))
        return made[-1]

    yield start
    for each in made:
        each.close()


def test_requests_are_answered_in_their_order(worker):
    there = worker(ECHO)

    assert [there.ask(do="round", calls=i) for i in range(3)] == [{"do": "round", "calls": i} for i in range(3)]


def test_what_a_library_prints_is_no_answer(worker):
    assert worker("print('welcome'); print(7); print('{\"call\": 1}', flush=True); input()").answer() == {"call": 1}


@pytest.mark.parametrize(
    ("program", "state", "message"),
    [
        ("import os; os.abort()", "crash", "died of SIGABRT"),
        ("import sys; sys.exit('the library is missing')", "crash", "ended with exit status 1: the library is missing"),
        ('print(\'{"error": "TypeError: no"}\', flush=True); input()', "error", "TypeError: no"),
    ],
)
def test_an_end_is_told_with_its_reason(worker, program, state, message):
    with pytest.raises(Gone) as end:
        worker(program).answer()

    assert (end.value.state, str(end.value)) == (state, message)


def test_a_process_that_hangs_is_given_up_and_ended(worker):
    there = worker("import time; time.sleep(60)", timeout=0.1)

    with pytest.raises(Gone, match=r"no answer within 0\.1 s") as end:
        there.answer()
    there.close()

    assert end.value.state == "timeout" and there.process.returncode == -9


def test_closing_ends_what_the_process_started_and_removes_its_caches(worker):
    there = worker(PARENT)
    child = there.answer()["pid"]
    there.close()

    for _ in range(1200):
        try:
            state = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            state = "gone"
        if state in ("gone", "Z"):
            break
        time.sleep(0.05)
    assert state in ("gone", "Z")
    assert not os.path.exists(there.folder)


def test_every_process_has_caches_of_its_own(worker):
    one, two = (worker(CACHES).answer() for _ in range(2))

    assert not set(one.values()) & set(two.values())
    assert str(Path.home()) not in " ".join(one.values())


@pytest.mark.slow
def test_real_processes_from_the_first_call_to_the_memory(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    start = Started(threads=1, timeout=600, definitions="fakes")
    effort = Effort(rounds=2, a_round=0.001, warm=0.001, firsts=1)
    rows = Measurement("double", ["eager", "same", "wrong", "dies", "raises"], start, effort).run()

    states = {row.subject: row.state for row in rows}
    assert states == {"eager": "ok", "same": "ok", "wrong": "wrong", "dies": "crash", "raises": "error"}
    found = {row.subject: row for row in rows}
    assert found["dies"].message.startswith("died of SIGABRT")
    assert found["raises"].message == "RuntimeError: no such kernel"
    assert found["same"].peak == 32 and len(found["same"].speeds) == 2 and found["same"].first > 0

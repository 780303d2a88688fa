"""Worker processes: one that dies or hangs becomes a failing row and is replaced."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

from dovetail_conformance.plan import Task, as_words, collectives
from dovetail_conformance.report import Row, of_data

LATE = 600.0  # seconds for a process to start, besides the limit of a task
LONG = 10  # times the limit for checks of the whole executor, and for collectives, which start processes


@dataclass
class Done:
    """A task and its rows, and which operations the executor has run so far in that process."""

    task: Task
    rows: list[Row] = field(default_factory=list)
    ran: list[str] = field(default_factory=list)


class Pool:
    """`processes` workers for one executor at one level; `setup` is the first message to each."""

    def __init__(self, setup: dict[str, Any], processes: int, timeout: float):
        self.setup, self.processes, self.timeout = setup, processes, timeout

    def run(self, tasks: Iterable[Task]) -> Generator[Done]:
        """Yield the rows of the tasks as they are done, in any order."""
        todo: queue.SimpleQueue[Task] = queue.SimpleQueue()
        done: queue.SimpleQueue[Done | BaseException | None] = queue.SimpleQueue()
        for task in tasks:
            todo.put(task)
        workers = [threading.Thread(target=self._work, args=(todo, done), daemon=True) for _ in range(self.processes)]
        for worker in workers:
            worker.start()
        left = len(workers)
        try:
            while left:
                outcome = done.get()
                if outcome is None:
                    left -= 1
                elif isinstance(outcome, BaseException):
                    raise outcome
                else:
                    yield outcome
        finally:  # the other results are not needed: workers finish their task and end
            while not todo.empty():
                todo.get()
            for worker in workers:
                worker.join(timeout=self.timeout)

    def _work(self, todo: queue.SimpleQueue, done: queue.SimpleQueue) -> None:
        process: Process | None = None
        try:
            while True:
                try:
                    task = todo.get_nowait()
                except queue.Empty:
                    break
                process = process or Process(self.setup, self.timeout)
                outcome = process.do(task)
                done.put(outcome)
                if process.over:
                    process = None
        except BaseException as error:
            done.put(error)
        finally:
            if process is not None:
                process.close()
            done.put(None)


class CannotStart(RuntimeError):
    """A worker ended before it did anything."""


class Process:
    """One worker."""

    def __init__(self, setup: dict[str, Any], timeout: float, module: str = "dovetail_conformance.worker"):
        self.timeout, self.over = timeout, False
        command = [sys.executable, "-X", "faulthandler", "-P", "-m", module]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process = subprocess.Popen(command, **pipes, text=True, bufsize=1, process_group=0)
        self.printed: list[str] = []
        self.lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()
        self.drain = threading.Thread(target=self._drain, daemon=True)
        self.drain.start()
        self.say(setup)
        if self.hear(monotonic() + LATE) is None:
            self.close()
            raise CannotStart(f"a worker of the suite {self.ended()} before it began:\n{self.tail()}")

    def _read(self) -> None:
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def _drain(self) -> None:
        for line in self.process.stderr:
            self.printed.append(line)
            del self.printed[:-40]

    def say(self, what: Any) -> None:
        """Send it a line."""
        try:
            self.process.stdin.write(json.dumps(what) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # the exit code is read below

    def hear(self, until: float) -> dict[str, Any] | None:
        """Receive the next message of the process; None when it has ended, or `until` is over."""
        try:
            line = self.lines.get(timeout=max(0.0, until - monotonic()))
        except queue.Empty:
            return None
        return None if line is None else json.loads(line)

    def do(self, task: Task) -> Done:
        """Run a task; where the process dies or takes too long, the last row names the check that was running."""
        outcome, doing = Done(task), "claims"
        limit = self.timeout * (LONG if task.dtype is None or task.operation in collectives() else 1)
        until, began = monotonic() + limit, self.used()
        looked = began
        self.say(as_words(task))
        while True:
            message = self.hear(until)
            if message is None:
                used = self.used()
                if monotonic() < until or used - began >= limit or used - looked < limit / 100:
                    break
                until, looked = monotonic() + limit, used  # others keep the machine busy: it computes, and has not had its time
            elif "doing" in message:
                doing = message["doing"]
            elif "row" in message:
                outcome.rows.append(of_data(message["row"]))
            elif "end" in message:
                outcome.ran = message["end"]
                return outcome
        self.over = True
        late = monotonic() >= until
        self.close()
        state, words = ("timeout", f"it was stopped after {limit:g} seconds") if late else ("crash", f"the process {self.ended()}")
        name = task.operation if task.dtype is not None or task.operation.startswith("program.") else ""
        dtype = task.dtype.name if task.dtype is not None else ""
        outcome.rows.append(Row(name, doing, dtype, task.device, state, message=f"{words}\n{self.tail()}".strip()))
        return outcome

    def used(self) -> float:
        """Return the seconds of the processor that it has used; those that went by, where the system does not tell."""
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return monotonic()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def ended(self) -> str:
        """Return how it ended, in words."""
        code = self.process.wait()
        if code >= 0:
            return f"ended with code {code}"
        try:
            return f"crashed with {signal.Signals(-code).name}"
        except ValueError:
            return f"crashed with signal {-code}"

    def tail(self) -> str:
        """Return the last lines that it printed."""
        self.drain.join(timeout=1)
        return "".join(self.printed[-12:])

    def close(self) -> None:
        """End it."""
        if self.process.poll() is None:
            try:
                self.process.stdin.close()
                self.process.wait(timeout=2)
            except (subprocess.TimeoutExpired, BrokenPipeError, OSError):
                _kill(self.process)
                self.process.wait()


def _kill(process: subprocess.Popen) -> None:
    """Kill a worker, and the processes that its checks have started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)

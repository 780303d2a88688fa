"""Worker processes, one for each subject: requests, timeouts, clean-up."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
CACHES = ("XDG_CACHE_HOME", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")  # caches of compilers

PATIENCE = 10.0  # seconds that a process may take to end once it has closed its output


class Gone(Exception):
    """A process that no longer answers: `state` is "crash", "timeout" or "error", the text a sentence."""

    def __init__(self, state: str, message: str):
        super().__init__(message)
        self.state = state


@dataclass
class Worker:
    """A process that `command` starts, with empty caches.  Each request gets an answer within `timeout` seconds, or it is gone."""

    command: Sequence[str]
    timeout: float = 300.0
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder = tempfile.mkdtemp()
        caches = {name: str(Path(self.folder, name)) for name in CACHES}
        self.complaints = open(Path(self.folder, "stderr"), "w+b")  # noqa: SIM115, closed with the process
        self.process = subprocess.Popen(
            self.command,
            env=os.environ | caches | self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.complaints,
            start_new_session=True,
        )
        self.unread = b""

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send a request and return the answer."""
        try:
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            raise self.gone() from None
        return self.answer()

    def answer(self) -> dict[str, Any]:
        """Return the next answer.  Raises Gone where none comes in time, or the answer is an error."""
        end, message = time.monotonic() + self.timeout, None
        while not isinstance(message, dict):
            with suppress(ValueError):  # libraries may print to standard output
                message = json.loads(self.line(end))
        if "error" in message:
            raise Gone("error", message["error"])
        return message

    def line(self, end: float) -> bytes:
        """Return the next line.  Raises Gone where none comes before `end`."""
        while b"\n" not in self.unread:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                raise Gone("timeout", f"no answer within {self.timeout:g} s")
            read = os.read(self.process.stdout.fileno(), 1 << 16)
            if not read:
                raise self.gone()
            self.unread += read
        line, _, self.unread = self.unread.partition(b"\n")
        return line

    def gone(self) -> Gone:
        """Return a Gone that tells how the process ended, with its last line of stderr."""
        try:
            code = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            return Gone("crash", "stopped answering")
        how = f"died of {signal.Signals(-code).name}" if code < 0 else f"ended with exit status {code}"
        self.complaints.seek(0)
        last = [line.strip() for line in self.complaints.read().decode(errors="replace").splitlines() if line.strip()][-1:]
        return Gone("crash", ": ".join([how, *last])[:300])

    def close(self) -> None:
        """End the process and those that it started, and delete its files."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for file in (self.process.stdin, self.process.stdout, self.complaints):
            with suppress(OSError):
                file.close()
        shutil.rmtree(self.folder, ignore_errors=True)


@dataclass(frozen=True)
class Started:
    """Starts workers: with `threads` threads (0: as many as torch takes), Dovetail's `plugins` from their folders, and `definitions`."""

    threads: int = 0
    plugins: tuple[str, ...] = ()
    timeout: float = 300.0
    definitions: str = "workloads"

    @property
    def environment(self) -> dict[str, str]:
        """The environment variables of the processes."""
        threads = {"OMP_NUM_THREADS": str(self.threads)} if self.threads else {}
        paths = os.pathsep.join(str(Path(path).resolve()) for path in self.plugins)
        return threads | ({"DOVETAIL_PLUGINS": paths} if paths else {})

    def __call__(self, workload: str, subject: str) -> Worker:
        command = [sys.executable, str(HERE / "worker.py"), workload, subject, str(self.threads), self.definitions]
        worker = Worker(command, self.timeout, self.environment)
        try:
            worker.answer()
        except Gone:
            worker.close()
            raise
        return worker

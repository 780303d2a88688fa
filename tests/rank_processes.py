"""Processes that are the ranks of a gloo group on this machine: each runs what a test sends, and returns the result."""

from __future__ import annotations

import importlib.util
import os
import pickle
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

SECONDS = 1200  # a busy machine takes ten times as long
HERE = str(Path(__file__).resolve())


class Ranks:
    """Hold `count` processes with an initialized process group; `run` calls a function of a test module in each of them."""

    def __init__(self, count: int, timeout: float = 60.0):
        self.count, self.folder = count, tempfile.TemporaryDirectory(prefix="dovetail_ranks_")
        self.processes: list[subprocess.Popen] = []
        self.connections: list[Connection] = []
        env = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "TORCH_CPP_LOG_LEVEL": "FATAL", "PYTHONWARNINGS": "ignore"}
        for rank in range(count):
            ours, theirs = socket.socketpair()
            arguments = [sys.executable, HERE, str(rank), str(count), f"{self.folder.name}/store", str(theirs.fileno()), str(timeout)]
            self.processes.append(subprocess.Popen(arguments, pass_fds=[theirs.fileno()], env=env))
            theirs.close()
            self.connections.append(Connection(ours.detach()))

    def run(self, function: Callable, *args: Any, survivors: tuple[int, ...] | None = None) -> list[Any]:
        """Return what `function(*args)` returns in each rank, or in `survivors` alone; raise what it raises, with the rank."""
        for connection in self.connections:
            connection.send((function.__code__.co_filename, function.__name__, args))
        answers = [self._answer(rank) for rank in (range(self.count) if survivors is None else survivors)]
        for rank, (good, value) in enumerate(answers):
            if not good:
                raise AssertionError(f"rank {rank} of {self.count}: {value}")
        return [value for _, value in answers]

    def _answer(self, rank: int) -> tuple[bool, Any]:
        if not self.connections[rank].poll(SECONDS):
            self.close()
            raise AssertionError(f"rank {rank} of {self.count} gave no answer within {SECONDS} s")
        try:
            return self.connections[rank].recv()
        except EOFError:
            return False, "the process has ended"

    def close(self) -> None:
        """End the processes."""
        for process in self.processes:
            process.kill()
            process.wait()
        for connection in self.connections:
            connection.close()
        self.folder.cleanup()


def load(file: str, name: str) -> Callable:
    """Return the function `name` of a test module."""
    key = f"rank_module_{Path(file).stem}"
    if key not in sys.modules:
        spec = importlib.util.spec_from_file_location(key, file)
        sys.path[:0] = [folder] if (folder := str(Path(file).parent)) not in sys.path else []
        sys.modules[key] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return getattr(sys.modules[key], name)


def serve(rank: int, count: int, store: str, descriptor: int, timeout: float) -> None:
    """Answer calls until the connection closes."""
    import torch

    sys.path[:0] = [str(Path(HERE).parent), str(Path(HERE).parent / "models")]
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=count, timeout=timedelta(seconds=timeout))
    connection = Connection(descriptor)
    while True:
        try:
            file, name, args = connection.recv()
        except EOFError:
            os._exit(0)
        try:
            torch.manual_seed(0)
            answer = (True, load(file, name)(*args))
            pickle.dumps(answer)
        except Exception:
            answer = (False, traceback.format_exc())
        connection.send(answer)


if __name__ == "__main__":
    serve(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), float(sys.argv[5]))

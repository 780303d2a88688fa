"""Processes that are the ranks of a gloo group on this machine: each calls the functions that it is sent, and returns their results."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from time import monotonic
from types import FunctionType
from typing import Any, Literal

SECONDS = 1200.0  # to wait for an answer: a busy machine takes ten times as long
GRACE = 3.0  # seconds that the other ranks have to answer once one has failed, since they may wait for it
START = "from dovetail_conformance.ranks import launch; launch()"
QUIET = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "TORCH_CPP_LOG_LEVEL": "FATAL", "PYTHONWARNINGS": "ignore", "CUDA_VISIBLE_DEVICES": ""}


@dataclass(frozen=True)
class Answer:
    """The outcome of a call in one rank: its result, or the traceback of its error, or how the process ended.

    `error` is the error that was raised, where it can be pickled.
    """

    state: Literal["result", "error", "ended", "late"]
    value: Any = None
    error: Exception | None = None


class Ranks:
    """`count` processes with an initialized process group; a collective that others do not take part in fails after `timeout` seconds.

    One process imports torch and Dovetail, from where this one does, and forks the ranks before it starts a thread; they see no CUDA device, which
    does not survive a fork.  They end when this one does.  Between calls they are stopped: gloo has a few threads for each group, and each of them
    looks for messages a hundred times a second.
    """

    def __init__(self, count: int, timeout: float = 60.0):
        self.count, self.timeout, self.folder = count, timeout, tempfile.TemporaryDirectory(prefix="dovetail_ranks_")
        pairs = [socket.socketpair() for _ in range(count)]
        theirs = [end.fileno() for _, end in pairs]
        control, self._control = os.pipe()
        setup = {"store": f"{self.folder.name}/store", "timeout": timeout, "connections": theirs, "control": control}
        command = [sys.executable, "-P", "-c", f"import sys; sys.path[:] = {sys.path!r}; {START}", json.dumps(setup)]
        self.launcher = subprocess.Popen(command, pass_fds=[*theirs, control], env=os.environ | QUIET, start_new_session=True)
        os.close(control)
        self.connections = [Connection(ours.detach()) for ours, _ in pairs]
        self.failed = False  # whether a call once gave no result on some rank: the ranks may not be at one place since
        for _, end in pairs:
            end.close()
        self._end = weakref.finalize(self, _end, self.launcher, self.connections, self._control, self.folder)

    def run(self, function: FunctionType, *args: Any, survivors: tuple[int, ...] | None = None) -> list[Any]:
        """Return what `function(*args)` returns in each rank, or in `survivors` alone; raise AssertionError where it raises, with the rank."""
        answers = self.answers(function, *args, ranks=survivors, hurry=False)
        for rank, answer in answers.items():
            if answer.state != "result":
                raise AssertionError(f"rank {rank} of {self.count}: {answer.value}")
        return [answer.value for answer in answers.values()]

    def answers(
        self, function: FunctionType, *args: Any, ranks: Iterable[int] | None = None, seconds: float = SECONDS, hurry: bool = True
    ) -> dict[int, Answer]:
        """Call `function(*args)` in all ranks; return the answer of each of `ranks`, all of them where it is None.

        With `hurry`, ranks have `GRACE` seconds to answer once another has failed.  Once a process has ended, they have these and the timeout of a
        collective: gloo does not end every wait for a rank that is gone.
        """
        self._signal(signal.SIGCONT)
        for connection in self.connections:
            with contextlib.suppress(BrokenPipeError):  # of a rank that has ended, as its answer says
                connection.send((function.__module__, function.__code__.co_filename, function.__name__, args))
        answers: dict[int, Answer] = {}
        pending = {self.connections[rank]: rank for rank in (range(self.count) if ranks is None else ranks)}
        until = monotonic() + seconds
        while pending and (ready := wait(list(pending), timeout=max(0.0, until - monotonic()))):
            for connection in ready:
                rank = pending.pop(connection)
                answers[rank] = answer = self._answer(rank)
                if hurry and answer.state != "result":
                    until = min(until, monotonic() + GRACE)
                elif answer.state == "ended":
                    until = min(until, monotonic() + GRACE + self.timeout)
        answers |= {rank: Answer("late", "it gave no answer in time") for rank in pending.values()}
        self.failed |= any([answer.state != "result" for answer in answers.values()])
        if len(answers) == self.count and all([answer.state in ("result", "error") for answer in answers.values()]):
            self._signal(signal.SIGSTOP)
        return dict(sorted(answers.items()))

    def _signal(self, number: signal.Signals) -> None:
        """Send a signal to the ranks, by the process that forked them."""
        with contextlib.suppress(BrokenPipeError):  # it has ended, as the answers say
            os.write(self._control, bytes([number]))

    def _answer(self, rank: int) -> Answer:
        try:
            return self.connections[rank].recv()
        except (EOFError, ConnectionResetError):
            return Answer("ended", "the process ended")

    def close(self) -> None:
        """End the processes."""
        self._end()


GROUPS: dict[int, Ranks] = {}  # the registry: the ranks that run collectives for the checks of this process, by their number


def shared_ranks(count: int) -> Ranks:
    """Return `count` ranks that all checks of this process share; the first that needs them starts them, and so does the first after a failure."""
    if count in GROUPS and GROUPS[count].failed:
        GROUPS.pop(count).close()
    if count not in GROUPS:
        GROUPS[count] = Ranks(count)
    return GROUPS[count]


def end_shared_ranks() -> None:
    """End the shared ranks; others start when they are needed again."""
    while GROUPS:
        GROUPS.popitem()[1].close()


def _end(launcher: subprocess.Popen, connections: list[Connection], control: int, folder: tempfile.TemporaryDirectory) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(launcher.pid, signal.SIGKILL)
    launcher.wait()
    for connection in connections:
        connection.close()
    os.close(control)
    folder.cleanup()


def load(module: str, file: str, name: str) -> Callable:
    """Return the function `name` of a module of this package, or of the test module in `file`."""
    if module.partition(".")[0] == "dovetail_conformance":
        return getattr(importlib.import_module(module), name)
    key = f"rank_module_{Path(file).stem}"
    if key not in sys.modules:
        spec = importlib.util.spec_from_file_location(key, file)
        sys.path[:0] = [folder] if (folder := str(Path(file).parent)) not in sys.path else []
        sys.modules[key] = module_object = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module_object)
    return getattr(sys.modules[key], name)


def launch() -> None:
    """Fork the ranks, and send them the signals that arrive, until the pipe is closed."""
    import torch.distributed.tensor  # lazily, with Dovetail: the process that starts ranks may not need them

    import dovetail  # noqa: F401

    setup = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    ranks: list[int] = []
    for rank in range(len(setup["connections"])):
        if (process := os.fork()) == 0:
            for other, descriptor in enumerate(setup["connections"]):
                if other != rank:
                    os.close(descriptor)
            serve(rank, setup)
        ranks.append(process)
    for descriptor in setup["connections"]:
        os.close(descriptor)
    while number := os.read(setup["control"], 1):
        _send(number[0], ranks)
    _send(signal.SIGKILL, ranks)  # one that is stopped would not see that its connection is closed


def _send(number: int, ranks: list[int]) -> None:
    """Send a signal to ranks, which keep their process ids when they end: this process does not wait for them."""
    for rank in ranks:
        os.kill(rank, number)


def serve(rank: int, setup: dict[str, Any]) -> None:
    """Join the process group, and answer calls until the connection closes."""
    from torch import distributed, manual_seed

    store, limit = f"file://{setup['store']}", timedelta(seconds=setup["timeout"])
    distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=len(setup["connections"]), timeout=limit)
    connection = Connection(setup["connections"][rank])
    with contextlib.suppress(EOFError, OSError):
        while True:
            *where, args = connection.recv()
            try:
                manual_seed(0)
                answer = pickle.dumps(Answer("result", load(*where)(*args)))
            except Exception as error:
                answer = _failed(error)
            connection.send_bytes(answer)
    os._exit(0)


def _failed(error: Exception) -> bytes:
    """Pickle the answer of a call that raised."""
    try:
        return pickle.dumps(Answer("error", traceback.format_exc(), error))
    except Exception:
        return pickle.dumps(Answer("error", traceback.format_exc()))

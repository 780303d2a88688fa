"""The child process of `dovetail doctor` for one plugin: import it, run small programs with its executors, run its checks.

Each step is recorded before it starts, so that a crash can be attributed to it.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import dovetail
from dovetail.errors import Unclaimed
from dovetail.executors import Executor, Priority, dispatch
from dovetail.executors.discovery.loading import message
from dovetail.executors.discovery.plugin_filter import Selection
from dovetail.executors.discovery.registry import REGISTRY
from dovetail.trace import Trace, dce, functionalize, to_callable

F = torch.nn.functional
PROGRAMS: dict[str, Callable[..., Tensor]] = {  # of x and y, both [4, 8]
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "sin": lambda x, y: torch.sin(x),
    "exp": lambda x, y: torch.exp(x),
    "gelu": lambda x, y: F.gelu(x),
    "sum": lambda x, y: torch.sum(x, -1),
    "softmax": lambda x, y: F.softmax(x, -1),
    "layer_norm": lambda x, y: F.layer_norm(x, (8,)),
    "linear": lambda x, y: F.linear(x, y),
    "matmul": lambda x, y: x @ y.t(),
    "cross_entropy": lambda x, y: F.cross_entropy(x, y[:, 0].long().abs() % 8),
    "attention": lambda x, y: F.scaled_dot_product_attention(x[None, None], y[None, None], y[None, None]),
}
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


def answer(request: dict[str, Any]) -> None:
    """Run the checks in `request` and write a line of JSON for each step to its file."""
    with Path(request["file"]).open("a") as out:

        def write(**line: Any) -> None:
            out.write(json.dumps(line) + "\n")
            out.flush()

        write(doing="importing it")
        name, distribution = request["name"], request["distribution"]
        use = ((name, distribution),) if distribution else ()
        REGISTRY.load(Selection(allow=(name,), use=use, used_by="the doctor", plugins=tuple(request["plugins"])))
        rows = [row for row in REGISTRY.plugins or () if row.name == name and row.distribution == distribution]
        write(row=rows[0].row() if rows else None)
        for loaded in [item for item in REGISTRY.loaded.values() if item.candidate.name == name]:
            for ex in loaded.executors:
                if ex.name not in dict(loaded.lacking):
                    write(doing=f"running small programs with {ex.name}")
                    write(check=f"runs ({ex.name})", **smoke(ex))
            write(doing="running its checks")
            for line in own_checks(loaded.checks):
                write(**line)
        write(end=True)


def smoke(ex: Executor) -> dict[str, str]:
    """Run each small program that `ex` can run alone, and compare with eager PyTorch."""
    passed = []
    for name, fn in PROGRAMS.items():
        try:
            case = first_case(ex, fn)
            if case is None:
                continue
            trace, inputs = case
            (result,) = to_callable(trace)(*inputs)
            torch.testing.assert_close(result, fn(*inputs), rtol=2e-2, atol=2e-2)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            return {"result": "failed", "message": f"{name}: {message(error)}", "error": traceback.format_exc()}
        passed.append(name)
    if not passed:
        return {"result": "note", "message": f"takes none of the {len(PROGRAMS)} small programs, so nothing was run"}
    return {"result": "ok", "message": f"{', '.join(passed)}: as eager PyTorch"}


def first_case(ex: Executor, fn: Callable[..., Tensor]) -> tuple[Trace, list[Tensor]] | None:
    """Return the program of `fn` run by `ex` alone, and its inputs, for the first device and dtype that `ex` claims, or None."""
    for device in devices(ex):
        for dtype in DTYPES:
            generator = torch.Generator().manual_seed(0)
            inputs = [torch.randn(4, 8, generator=generator).to(device, dtype) for _ in range(2)]
            pure = dce(functionalize(dovetail.make_trace(fn)(*inputs))[0])
            try:
                return dispatch(pure, Priority([ex])), inputs
            except Unclaimed:
                continue
    return None


def devices(ex: Executor) -> list[str]:
    """Return the types of the available devices that the executor declares."""
    available = ["cpu"] + ([torch.accelerator.current_accelerator().type] if torch.accelerator.is_available() else [])
    return [kind for kind in available if ex.devices is None or kind in ex.devices]


def own_checks(checks: Callable[[], Any]) -> Iterator[dict[str, str]]:
    """Run the plugin's own checks; an exception is a failed check."""
    try:
        named_checks = list(checks())
    except Exception as error:
        yield {"check": "dovetail_doctor", "result": "failed", "message": message(error), "error": traceback.format_exc()}
        return
    for name, check in named_checks:
        try:
            verdict = check()
        except Exception as error:
            yield {"check": str(name), "result": "failed", "message": message(error), "error": traceback.format_exc()}
        else:
            passed = verdict is True
            yield {"check": str(name), "result": "ok" if passed else "failed", "message": "" if passed else str(verdict or "gave no reason")}

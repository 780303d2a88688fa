"""Making a wrong program small while it stays wrong: fewer results, steps, sizes, dtypes, layouts, threads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from dovetail_conformance.fuzz.attempt import Fault, Outcome, Setup, tried
from dovetail_conformance.fuzz.draft import Draft, Input, Step, evaluate
from dovetail_conformance.program import calm

PLAIN = ("{0} * 2", "{0} + {1}", "{0}.sum()")  # what a step may be replaced by


@dataclass(frozen=True)
class Finding:
    """A wrong program, how it was run, and what is wrong."""

    draft: Draft
    setup: Setup
    seed: int
    fault: Fault

    @property
    def structure(self) -> str:
        """What tells kinds of findings apart: the kind of fault, and the steps without names and numbers."""
        if self.fault.kind == "error":
            return re.sub(r"[\d.]+|<[^>]*>|'[^']*'|\[[^]]*\]", "", self.fault.message.partition("\n")[0])[:90]
        steps = sorted(re.sub(r"-?\b\d[\d.e-]*", "0", step.text) for step in self.draft.steps)
        integers = any(not x.inexact for x in self.draft.inputs)
        return f"{self.fault.kind}{' of integers' if integers else ''}: {'; '.join(steps)}"


def shrunk(draft: Draft, setup: Setup, seed: int, fault: Fault, attempts: int) -> Finding:
    """Return the smallest program with the same kind of fault, after so many attempts."""
    best = Finding(draft, setup, seed, fault)
    seen = {(draft, setup)}
    while attempts:
        left = (each for each in _candidates(best) if each not in seen)
        candidate = next(left, None)
        if candidate is None:
            break
        seen.add(candidate)
        attempts -= 1
        outcome = _outcome(*candidate, seed)
        if outcome.state == "wrong" and outcome.fault is not None and _same_kind(outcome.fault, fault):
            best = Finding(*candidate, seed, outcome.fault)
    return best


def _outcome(draft: Draft, setup: Setup, seed: int) -> Outcome:
    try:
        return tried(draft, setup, seed)
    except Exception:
        return Outcome("invalid")


def _same_kind(fault: Fault, wanted: Fault) -> bool:
    if "error" not in (fault.kind, wanted.kind):
        return True
    return fault.kind == wanted.kind and fault.message.partition(":")[0] == wanted.message.partition(":")[0]


def _candidates(finding: Finding) -> Iterator[tuple[Draft, Setup]]:
    """Yield smaller programs, those that take most away first."""
    draft, setup = finding.draft, finding.setup
    for candidate in _pruned(draft, finding.fault):
        yield candidate, setup
    for candidate in _without_steps(draft):
        yield candidate, setup
    if setup.threads > 1:
        yield draft, replace(setup, threads=1)
    for candidate in (*_resized(draft), *_plainer(draft)):
        yield candidate, setup


def _pruned(draft: Draft, fault: Fault) -> Iterator[Draft]:
    if draft.grad and fault.kind != "gradient":
        yield replace(draft, grad=False)
    if len(draft.results) > 1:
        if fault.kind == "result":
            yield replace(draft, results=(draft.results[fault.which],)).live()
        for i in range(len(draft.results)):
            yield replace(draft, results=(*draft.results[:i], *draft.results[i + 1 :])).live()
    leaves = [x for x in draft.inputs if x.grad]
    for x in leaves if draft.grad and len(leaves) > 1 else []:
        yield replace(draft, inputs=tuple(replace(each, grad=each.grad and each is not x) for each in draft.inputs))


def _without_steps(draft: Draft) -> Iterator[Draft]:
    """Yield drafts in which an operand, or a new input, stands for the result of a step."""
    env = _values(draft)
    for step in reversed(draft.steps):
        steps = tuple(each for each in draft.steps if each is not step)
        value = env.get(step.result)
        new = _as_input(draft, step.result, value) if isinstance(value, Tensor) and not step.writes else None
        if new is not None:
            changed = replace(draft, inputs=(*draft.inputs, new), steps=steps, results=tuple(n for n in draft.results if n != step.result))
            if changed.results:
                yield _renamed(changed.live(), step.result, new.name)
        for operand in dict.fromkeys(step.operands):
            yield _renamed(replace(draft, steps=steps), step.result, operand).live()


def _values(draft: Draft) -> dict[str, Any]:
    try:
        with calm(), torch.no_grad():
            return evaluate(draft, [x.detach() for x in draft.make_inputs(0)])
    except Exception:
        return {}


def _as_input(draft: Draft, name: str, value: Tensor) -> Input | None:
    dtype = str(value.dtype).removeprefix("torch.")
    kinds = {"bool": "bits", "uint8": "counts"}
    if not value.dtype.is_floating_point and value.dtype is not torch.bool and value.numel() and int(value.min()) >= 0:
        values = f"index {int(value.max()) + 1}"
    else:
        values = "normal" if value.dtype.is_floating_point or value.dtype.is_complex else kinds.get(dtype, "whole")
    number = 1 + max((int(x.name[1:]) for x in draft.inputs), default=-1)
    return Input(f"x{number}", tuple(value.shape), dtype, values, grad=draft.grad and (value.is_floating_point() or value.is_complex()))


def _renamed(draft: Draft, old: str, new: str) -> Draft:
    """Return the draft with `new` read wherever `old` was."""
    steps = tuple(replace(step, operands=tuple(new if name == old else name for name in step.operands)) for step in draft.steps)
    results = dict.fromkeys(new if name == old else name for name in draft.results)
    inputs = {x.name for x in draft.inputs}
    kept = tuple(name for name in results if name not in inputs) or tuple(results)
    return replace(draft, steps=steps, results=kept)


def _resized(draft: Draft) -> Iterator[Draft]:
    """Yield drafts in which a size, or a number that goes with it, is smaller everywhere; and with one dimension less."""
    sizes = sorted({n for x in draft.inputs for n in x.shape}, reverse=True)
    for size in sizes:
        for smaller in (1, 2, 3, size // 16, size // 4, size // 2, size * 7 // 8, size - 1):
            if 0 < smaller < size:
                yield _with_size(draft, size, smaller)
    for i, x in enumerate(draft.inputs):
        for dim in range(len(x.shape)):
            new = replace(x, shape=(*x.shape[:dim], *x.shape[dim + 1 :]), layout="contiguous")
            yield replace(draft, inputs=(*draft.inputs[:i], new, *draft.inputs[i + 1 :]))


def _with_size(draft: Draft, size: int, smaller: int) -> Draft:
    number = re.compile(rf"(?<![\w.]){size}(?![\w.])")
    inputs = tuple(
        replace(x, shape=tuple(smaller if n == size else n for n in x.shape), values=number.sub(str(smaller), x.values)) for x in draft.inputs
    )
    return replace(draft, inputs=inputs, steps=tuple(replace(step, text=number.sub(str(smaller), step.text)) for step in draft.steps))


def _plainer(draft: Draft) -> Iterator[Draft]:
    """Yield drafts with ordinary inputs, and with simpler steps."""
    for i, x in enumerate(draft.inputs):
        plain = [replace(x, layout="contiguous")] if x.layout != "contiguous" else []
        if x.inexact:
            plain += [replace(x, dtype="float32")] if x.dtype != "float32" else []
            plain += [replace(x, values="normal")] if x.values != "normal" else []
        for new in plain:
            yield replace(draft, inputs=(*draft.inputs[:i], new, *draft.inputs[i + 1 :]))
    for i, step in enumerate(draft.steps):
        if step.text in PLAIN or step.writes:
            continue
        for text in PLAIN:
            if "{1}" not in text or len(step.operands) > 1:
                yield replace(draft, steps=(*draft.steps[:i], _simple(step, text), *draft.steps[i + 1 :])).live()


def _simple(step: Step, text: str) -> Step:
    operands = step.operands[: 2 if "{1}" in text else 1]
    return replace(step, text=text, operands=operands, exact=False, accumulates="sum" in text, kinks=())

"""What an executor says, once and for all, that it supports: element types, kinds of device, and whether a gradient may flow through."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from dovetail.dtypes import ALL, DType
from dovetail.errors import ExecutorError
from dovetail.langs.torch import FROM_TORCH
from dovetail.prims import TensorSpec
from dovetail.trace import BoundSymbol, brief


@dataclass(frozen=True)
class Claim:
    """A checker's yes that says why: `Claim("takes 0.8 ms here, and 1.3 ms without")`.  `explain` shows the sentence; True is a yes without one."""

    why: str


Verdict = bool | str | Claim  # True or a Claim, or a refusal: a sentence saying why not

_BY_NAME = {word: dtype for dtype in ALL for word in (dtype.name, dtype.name.removesuffix("_"), dtype.short)}


class InvalidVerdict(ExecutorError):
    """A checker returned something that is no verdict."""


NO_REASON = "gave no reason"  # the refusal that a bare False or None stands for


def as_verdict(answer: Any) -> Verdict:
    """Return a checker's answer as True, a Claim, or a refusal; None and False are refusals without a reason.

    Raises InvalidVerdict for anything else, true or not.
    """
    if answer is True or isinstance(answer, Claim):
        return answer
    if isinstance(answer, str):
        return answer.strip() or NO_REASON
    if answer is None or answer is False:
        return NO_REASON
    raise InvalidVerdict(f"returned {answer!r}; return True, a Claim, or a refusal: a sentence that says why not")


def is_claim(verdict: Any) -> bool:
    """Return whether a verdict is a yes."""
    return verdict is True or isinstance(verdict, Claim)


def dtypes_of(wanted: Iterable[Any] | None) -> frozenset[DType] | None:
    """Convert element types, each Dovetail's, torch's, or the name of one, to a set of Dovetail's; None stands for all of them."""
    if wanted is None:
        return None
    if isinstance(wanted, (str, DType, torch.dtype)):
        raise ExecutorError(f"dtypes= is a collection of element types, got {wanted!r} alone; write dtypes=[...]")
    return frozenset(map(_dtype, wanted))


def _dtype(value: Any) -> DType:
    dtype = value if isinstance(value, DType) else _BY_NAME.get(value) if isinstance(value, str) else FROM_TORCH.get(value)
    if dtype is None:
        raise ExecutorError(f"dtypes= names {value!r}, which is not a known dtype; name one as torch does: torch.float32, or 'float32'")
    return dtype


def devices_of(wanted: Iterable[str] | None) -> frozenset[str] | None:
    """Convert kinds of device to a set; None stands for all of them."""
    if wanted is None:
        return None
    if isinstance(wanted, str):
        raise ExecutorError(f"devices= is a collection of kinds of device, got {wanted!r} alone; write devices=[{wanted!r}]")
    kinds = frozenset(wanted)
    for kind in kinds:
        if not (isinstance(kind, str) and kind.isidentifier()):
            raise ExecutorError(f"devices= names {kind!r}, which is not a kind of device; name one without its number: 'cuda'")
        try:
            torch.device(kind)
        except RuntimeError:
            raise ExecutorError(f"devices= names {kind!r}, which is not a kind of device that torch knows; 'cpu' and 'cuda' are") from None
    return kinds


def supports(line: BoundSymbol, dtypes: frozenset[DType] | None, devices: frozenset[str] | None, grad: bool) -> Verdict:
    """Return True if a declaration covers `line`, or the first thing that it leaves out.

    What counts are the tensors that the line reads, or those that it makes where it reads none.  A gradient flows through the line where
    one of its results requires one.
    """
    if dtypes is not None or devices is not None:
        tensors = [p for p in line.reads or line.writes if type(p.spec) is TensorSpec]
        for p in tensors or line.writes:
            if type(p.spec) is not TensorSpec:
                continue
            if devices is not None and p.spec.device.type not in devices:
                return f"expected tensors on {either(devices)}, got {brief(p)}"
            if dtypes is not None and p.spec.dtype not in dtypes:
                return f"expected tensors of {either(d.short for d in in_order(dtypes))}, got {brief(p)}"
    if not grad:
        for p in line.writes:
            if type(p.spec) is TensorSpec and p.spec.requires_grad:
                return f"is for programs without gradients, and {brief(p)} requires one"
    return True


def in_order(dtypes: Iterable[DType]) -> list[DType]:
    """Sort element types in the order in which `dovetail.dtypes` lists them."""
    return sorted(dtypes, key=ALL.index)


def either(words: Iterable[str]) -> str:
    """Join words: either(("a", "b", "c")) is "a, b or c"."""
    words = list(words) if not isinstance(words, frozenset) else sorted(words)
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words) or "nothing"


def words_of(dtypes: frozenset[DType] | None, devices: frozenset[str] | None) -> dict[str, Any]:
    """Return both sets as plain data: lists of names, or None for all."""
    return {
        "dtypes": None if dtypes is None else [d.name.removesuffix("_") for d in in_order(dtypes)],
        "devices": None if devices is None else sorted(devices),
    }

"""What happens before the first and behind the last segment of a path, as a driver that is saved has it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from dovetail.trace import Proxy, TensorProxy, Trace, is_proxy
from dovetail.trace.printing import literal

_PLAIN = frozenset({int, float, complex, bool, str, bytes, type(None)})


@dataclass(frozen=True)
class End:
    """What happens at the end of a path.

    Attributes:
        program: writes inputs and creates views; its inputs are the tensors in `slots`, then the values.
        slots: of the inputs.
        statements: what happens then, in terms of its `results`.
        result: the expression of the result.
        why: why that cannot be written; empty where it can.
    """

    program: Trace
    slots: Sequence[int]
    statements: Sequence[str] = ()
    result: str = ""
    why: str = ""

    @classmethod
    def of(cls, program: Trace, slots: Sequence[int], value: Any, log: Iterable[Any], places: Mapping[Proxy, int], why: str) -> End:
        """Return the end of a run that has returned `value` and written `log`, with traced values by their places among the results."""
        result, statements = _text(value, places), [_statement(write, places) for write in log]
        if why or result is None or None in statements:
            return cls(program, slots, why=why or ("it returns an object" if result is None else "it writes to an object"))
        return cls(program, slots, [statement for statement in statements if statement is not None], result)


def sizes_read(values: Iterable[Proxy], places: Mapping[Proxy, int]) -> list[tuple[int, int]]:
    """Return where the values at the start of a call are read: sizes of inputs, as the slot of one and a dimension."""
    known = {}
    for p, slot in places.items():
        for dim, size in enumerate(p.spec.shape if isinstance(p, TensorProxy) else ()):
            known.setdefault(str(size), (slot, dim))
    return [known[p.name] for p in values]


def _statement(write: Any, places: Mapping[Proxy, int]) -> str | None:
    """Return a write as a statement; None for one to an object that is no input."""
    if write.what == "attribute" and write.name == "grad" and is_proxy(write.owner) and write.owner in places:
        value = _text(write.value, places)
        return None if value is None else f"results[{places[write.owner]}].grad = {value}"
    if write.what != "call" or write.name is not print:
        return None
    args, kwargs = write.value
    words = [_text(x, places) for x in args]
    keywords = [(name, _text(x, places)) for name, x in kwargs.items()]
    if None in words or None in [text for _, text in keywords]:
        return None
    return f"print({', '.join([*map(str, words), *[f'{name}={text}' for name, text in keywords]])})"


def _text(value: Any, places: Mapping[Proxy, int]) -> str | None:
    """Return an expression of a value; None where it is more than traced values and constants in containers."""
    if is_proxy(value):
        return f"results[{places[value]}]" if value in places else None
    if type(value) in _PLAIN:
        return literal(value)
    if type(value) is torch.dtype:
        return repr(value)
    if type(value) is dict:
        items = [(_text(key, places), _text(item, places)) for key, item in value.items()]
        return None if any([None in item for item in items]) else f"{{{', '.join([f'{key}: {item}' for key, item in items])}}}"
    if type(value) not in (tuple, list):
        return None
    words = [_text(item, places) for item in value]
    if None in words:
        return None
    return f"[{', '.join(map(str, words))}]" if type(value) is list else f"({''.join([f'{word}, ' for word in words])})"

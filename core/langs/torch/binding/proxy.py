"""Traced tensors with the interface of torch.Tensor."""

from __future__ import annotations

import dis
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

from dovetail.errors import EagerCall, NotTracing, Unsupported, require
from dovetail.prims import recorder
from dovetail.trace import TensorProxy, requires_grad, user_line
from dovetail.trace.proxies import PRIMS_ALONE

FACTS: dict[str, Callable[[TensorProxy], Any]] = {}  # the registry: queries that also work outside of tracing, as in a checker; see queries.py


_OFFSETS: dict[tuple, frozenset[int]] = {}


def class_check_offsets(code: types.CodeType) -> frozenset[int]:
    """Return `_class_check_offsets`, kept by what that follows from: the hash of a code object reads all of it."""
    key = code.co_filename, code.co_firstlineno, code.co_names, code.co_linetable
    offsets = _OFFSETS.get(key)
    if offsets is None:
        offsets = _OFFSETS[key] = _class_check_offsets(code)
    return offsets


def _class_check_offsets(code: types.CodeType) -> frozenset[int]:
    """Return the offsets at which `code` checks a class: isinstance(...), `x.__class__`, `case torch.Tensor():`.

    Torch's C++ code makes the same check on arguments it reads as numbers or sizes, and would then read a proxy's memory as a tensor's.  So
    the class of a proxy is torch.Tensor only in Python code; torch recognizes tensor arguments by __torch_function__.
    """
    instructions = list(dis.get_instructions(code))
    starts = {_start(i) for i in instructions if i.opname.startswith("LOAD_") and i.argval == "isinstance"}
    offsets: set[int] = set()
    for i, after in zip(instructions, [*instructions[1:], None], strict=True):
        call = bool(starts) and i.opname.startswith(("CALL", "PRECALL")) and (None in _start(i) or _start(i) in starts)
        if call or i.opname == "MATCH_CLASS" or (i.opname == "LOAD_ATTR" and i.argval == "__class__"):
            offsets.update(range(i.offset, after.offset if after else i.offset + 2, 2))  # the instruction and its inline caches
    return frozenset(offsets)


def _start(instruction: dis.Instruction) -> tuple[int | None, int | None]:
    positions = instruction.positions
    return (positions.lineno, positions.col_offset) if positions else (None, None)


class TorchProxy(TensorProxy):
    """A traced tensor with the interface of torch.Tensor: `isinstance(x, torch.Tensor)` holds, and its attributes are torch's.

    For user code only; Dovetail's own code reads `.spec`.
    """

    __slots__ = ("__weakref__",)  # torch.nn.LSTM keeps weak references to its weights
    __hash__ = object.__hash__

    @property
    def __class__(self) -> type:
        frame = sys._getframe(1)
        return torch.Tensor if frame.f_lasti in class_check_offsets(frame.f_code) else TorchProxy

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        return _environment().call(func, args, kwargs or {})

    def __getattr__(self, name: str) -> Any:
        if name in FACTS and not hasattr(getattr(recorder.get(), "environment", None), "language"):
            return FACTS[name](self)
        environment = _environment()
        if (operation := environment.language.get(name)) is not None:
            return types.MethodType(operation, self)
        return environment.attribute(self, name)

    def __len__(self) -> int:
        require(bool(self.spec.shape), "len() of a 0-d tensor", error=TypeError)
        return self.spec.shape[0]

    def __iter__(self) -> Iterator[Any]:
        require(bool(self.spec.shape), "iteration over a 0-d tensor", error=TypeError)
        return iter(self.unbind(0))

    def __contains__(self, item: Any) -> Any:
        is_plain = isinstance(item, (str, bytes, list, tuple, dict, set, type(None)))
        require(not is_plain, "Tensor.__contains__ only supports Tensor or scalar, but you passed in a {}.", type(item), error=RuntimeError)
        return bool((self == item).any())

    def __format__(self, spec: str) -> str:
        return self.name

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if requires_grad(self):
            raise Unsupported("copy.deepcopy of a tensor that requires a gradient is not traced here; write x.detach().clone().requires_grad_()")
        return memo.setdefault(id(self), self.clone())

    def __reduce_ex__(self, protocol: Any) -> Any:
        if hasattr(recorder.get(), "environment"):
            raise EagerCall("a traced tensor is pickled, which takes its values")
        return super().__reduce_ex__(protocol)

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise Unsupported(
            "a traced tensor has no values, so C code of NumPy cannot make an array of it; convert it outside the compiled function\n"
            f"  called at {user_line()}"
        )


def _environment() -> Any:
    try:
        environment = recorder.get().environment
    except AttributeError:
        raise NotTracing(
            "a traced tensor was used after dovetail.make_trace or jit returned; return it from the function, and read only x.spec in a checker"
        ) from None
    if not hasattr(environment, "language"):
        raise NotTracing(PRIMS_ALONE)
    return environment

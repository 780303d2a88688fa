"""Opaque functions of the user: not traced; recorded as one line that calls the function on real tensors."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Sequence
from types import FunctionType, SimpleNamespace
from typing import Any
from weakref import WeakSet

import torch

from dovetail.errors import DovetailError, EagerCall, require_function
from dovetail.langs.torch.binding.fake_runs import tensors_in
from dovetail.langs.torch.binding.names import NAMED
from dovetail.langs.torch.binding.opaque import STAND_INS, opaque
from dovetail.langs.torch.binding.symbol import SPACES
from dovetail.prims import recorder
from dovetail.prims.op import no_recorder
from dovetail.torch_internals import no_torch_function
from dovetail.trace import printing, tree_map

FUNCTIONS = SimpleNamespace()  # the registry: name -> function, as printed programs call them
_OPAQUE: WeakSet[Callable] = WeakSet()  # the registry: what `opaque_function` has returned
SPACES["untraced"] = FUNCTIONS
printing.ROOTS["untraced"] = printing.Root("from dovetail.langs.torch.binding.opaque_user import FUNCTIONS as untraced", FUNCTIONS)


def opaque_function(fn: Callable | None = None, /, *, meta: Callable | None = None) -> Any:
    """Mark a function as opaque: a compiled program calls it on real tensors instead of tracing it.

    Tensor arguments may be nested; numbers and text are guarded by value, functions and objects by identity.  A call runs in eager mode where the
    function gets an object that the program creates or has written to, or changes one that it reads, or a list or dict that it gets.  The result
    is a tensor, a tuple of tensors, which must depend on the arguments alone, or None, where the function is called for its side effect.  The
    specs of the results come from a run on fake tensors, or from `meta`, a function of the same arguments that returns tensors like them, or
    None.  Gradients flow through it as in eager mode; a call runs there where the function reads a tensor that requires one and is no argument.
    """
    if fn is None:
        return functools.partial(opaque_function, meta=meta)
    if not callable(fn):
        raise DovetailError(f"opaque: expected a function, got {type(fn).__name__}")
    if meta is not None:
        require_function("meta= of opaque", meta)
    base_name = "".join([c if c.isalnum() else "_" for c in getattr(fn, "__name__", "function")])
    name, number = base_name, 0
    while hasattr(FUNCTIONS, name):
        number += 1
        name = f"{base_name}_{number}"

    def real(*args: Any, **kwargs: Any) -> Any:
        before = _content((args, kwargs))
        result = fn(*args, **kwargs)
        if _content((args, kwargs)) != before:
            raise EagerCall(f"{base_name}, which is marked as opaque, changes a container that it gets, which is a copy; return what it computes")
        return result

    def watched(*args: Any, **kwargs: Any) -> Any:
        passed = [x for x in tensors_in((args, kwargs), torch.Tensor) if x.requires_grad]
        if not torch.is_grad_enabled():  # gradients of what is passed are computed by a run of its own
            args, kwargs = tree_map(lambda x: x.detach() if isinstance(x, torch.Tensor) and x.requires_grad else x, (args, kwargs))
            passed = []
        with torch.enable_grad():
            result = real(*args, **kwargs)
        if not _requiring(result, passed) <= set(map(id, passed)):
            raise EagerCall(
                f"{base_name}, which is marked as opaque, reads a tensor that requires a gradient and is no argument of it; pass it as one"
            )
        return result

    for suffix, function in (("", watched), ("_without_grad", real)):
        setattr(FUNCTIONS, f"{name}{suffix}", function)
        NAMED[function] = f"untraced.{name}{suffix}"
        if meta is not None:
            STAND_INS[function] = meta

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        if recorder.get() is no_recorder:
            return fn(*args, **kwargs)
        with no_torch_function():
            return opaque(watched if recorder.get().environment.grad_enabled() else real, args, kwargs)

    _OPAQUE.add(call)
    return call


def _requiring(result: Any, passed: Sequence[torch.Tensor]) -> set[int]:
    """Return the ids of the leaves to which gradients of results flow, but through what was `passed`."""
    tensors = [x for x in tensors_in(result, torch.Tensor) if x.requires_grad]
    leaves = {id(x) for x in tensors if x.is_leaf}
    waiting, seen = [x.grad_fn for x in tensors if not x.is_leaf], {x.grad_fn for x in passed if not x.is_leaf}
    while waiting:
        node = waiting.pop()
        if node not in seen:
            seen.add(node)
            waiting += [following for following, _ in node.next_functions if following is not None]
            if type(node).__name__ == "AccumulateGrad":
                leaves.add(id(node.variable))
    return leaves


def _content(value: Any) -> Any:
    """Return what is equal while nested containers hold the same objects."""
    kind = type(value)
    if issubclass(kind, (list, tuple, deque)):
        return kind, [_content(item) for item in value]
    if issubclass(kind, dict):
        return kind, [(key, _content(item)) for key, item in value.items()]
    if issubclass(kind, (set, frozenset)):
        return kind, frozenset(map(id, value))
    return bytes(value) if kind is bytearray else id(value)


def is_opaque(function: Any) -> bool:
    """Return whether a function is one that `opaque_function` has returned."""
    return type(function) is FunctionType and function in _OPAQUE

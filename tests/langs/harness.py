"""Runs a function through Dovetail and through eager PyTorch, and compares everything that a caller can see."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
import torch

import dovetail
from dovetail.compiler.entry import compile_call
from dovetail.executors import Executor, OperatorExecutor, Priority, get_executor
from dovetail.frontend import trees
from dovetail.frontend.native import acquire
from dovetail.langs.torch import spec_of
from dovetail_torch_exec.prims import PRIMS


@cache
def prims_only() -> OperatorExecutor:
    """The torch executor without its whole operations: everything runs by its decomposition."""
    ex = OperatorExecutor("prims_only")
    for symbol, fn in PRIMS.items():
        ex.implements(symbol, fn)
    return ex


def ways() -> dict[str, tuple[Executor, ...]]:
    """Whole operations by torch itself, and decompositions by prims alone."""
    return {"whole": (get_executor("torch"),), "decomposed": (prims_only(),)}


@dataclass
class Outcome:
    """What a call gave: its result and its arguments afterwards, or its error."""

    leaves: list[Any]
    error: Exception | None = None


def fresh(nest: Any) -> Any:
    """The same nest with copies of its tensors, in the same layout; a tensor that appears twice is copied once."""
    made: dict[int, Any] = {}

    def copy(x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        if id(x) not in made:
            new = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device) if x.is_leaf else x.detach()
            made[id(x)] = new.copy_(x.detach()).requires_grad_(x.requires_grad)
        return made[id(x)]

    return trees.tree_map(copy, nest)


def eager(fn: Callable, args: tuple, kwargs: dict) -> Outcome:
    args, kwargs = fresh((args, kwargs))
    try:
        result = fn(*args, **kwargs)
    except Exception as error:
        return Outcome([], error)
    return Outcome(trees.flatten((result, args, kwargs))[0])


def ours(fn: Callable, args: tuple, kwargs: dict, executors: tuple[Executor, ...]) -> Outcome:
    args, kwargs = fresh((args, kwargs))
    result = call(fn, args, kwargs, executors)
    return Outcome(trees.flatten((result, args, kwargs))[0])


def call(fn: Callable, args: tuple, kwargs: dict, executors: tuple[Executor, ...]) -> Any:
    """What `fn`, compiled for these executors, gives for these very arguments."""
    return compile_call(fn, args, kwargs, Priority(executors)).call(args, kwargs)


def printed(fn: Callable, args: tuple, kwargs: dict) -> Outcome:
    """The acquired trace's own text, executed on real tensors."""
    args, kwargs = fresh((args, kwargs))
    acquired = acquire(fn, args, kwargs)
    scope = acquired.trace.python_globals()
    exec(str(acquired.trace), scope)
    result = scope["computation"](*acquired.tensors)
    return Outcome(trees.flatten((result, args, kwargs))[0])


def differences(got: Outcome, want: Outcome, *, rtol: float | None = None, atol: float | None = None, strides: bool = True) -> Iterator[str]:
    """Sentences about what differs: type, shape, dtype, strides, values, of results and of mutated arguments."""
    if len(got.leaves) != len(want.leaves):
        yield f"{len(got.leaves)} leaves instead of {len(want.leaves)}"
        return
    for i, (a, b) in enumerate(zip(got.leaves, want.leaves, strict=True)):
        if not isinstance(b, torch.Tensor):
            if not (type(a) is type(b) and (a == b or (a != a and b != b))):
                yield f"leaf {i}: {a!r} instead of {b!r}"
            continue
        try:
            torch.testing.assert_close(a, b, rtol=rtol, atol=atol, equal_nan=True, check_stride=False)
        except Exception as error:
            yield f"leaf {i}: {error}"
            continue
        if strides and spec_of(a.detach()).strides != spec_of(b.detach()).strides:
            yield f"leaf {i}: strides {a.stride()} instead of {b.stride()} for shape {tuple(b.shape)}"


def agrees(fn, *args, **tolerance) -> None:
    """`fn` gives what eager gives, strides and arguments afterwards included: whole, decomposed, and as printed text."""
    want = eager(fn, args, {})
    assert want.error is None, want.error
    for way in ways().values():
        assert not list(differences(ours(fn, args, {}, way), want, **tolerance))
    assert not list(differences(printed(fn, args, {}), want, **tolerance))


def raises_as_eager(fn, *args) -> None:
    want = eager(fn, args, {}).error
    assert want is not None
    with pytest.raises(type(want)):
        dovetail.make_trace(fn)(*args)


def gradients_agree(fn, *args, **tolerance) -> None:
    """One backward pass gives each floating argument eager's gradient."""
    grads = []
    for run in (fn, dovetail.jit(fn)):
        given = [x.clone().requires_grad_() if x.is_floating_point() else x for x in args]
        torch.manual_seed(3)
        out = run(*given)
        (out * torch.linspace(0.5, 1.5, out.numel()).view_as(out)).sum().backward()
        grads.append([x.grad for x in given if x.is_floating_point()])
    for ours, eager in zip(*grads[::-1], strict=True):
        torch.testing.assert_close(ours, eager, **tolerance)

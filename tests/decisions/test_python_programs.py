"""Programs in most of what Python has do what they do in eager mode: results, memory, gradients, prints, errors, and all that they leave outside."""

from __future__ import annotations

import contextlib
import gc
import io
import random
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from decisions import python_programs, python_world, torch_programs
from decisions.observed import Observer, differences, kind_of

import dovetail
from dovetail.errors import DovetailError, InputError

SEEDS, TORCH_SEEDS = 600, 140
OUTSIDE = (
    "cell lazy slot acc quiet both left pts table own items dd od cnt dq cm S names nested T V W tensors byname bits mode var block ops part rng G N "
    "H weak space fns pair notes bump collect keyed shift keys Cell Both Left Right Base Quiet Point Meta"
)


def loaded(text: str, outside: str) -> types.ModuleType:
    """Return a module with a program, and with the names of what is outside of it."""
    module = types.ModuleType("python_program")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of subscripts of ints
        exec(compile(text, "<program>", "exec", dont_inherit=True), vars(module))
    module.OUTSIDE = outside.split()
    return module


def calls(module: types.ModuleType, f: Callable) -> Iterator[Any]:
    """Yield what each call did: its result with those before, which it may have changed, and all that is outside."""
    kept: list[Any] = []
    torch.set_default_dtype(torch.float32)
    torch.set_grad_enabled(True)
    for i, arguments in enumerate(module.CALLS):
        printed, changed, grads = io.StringIO(), None, None
        torch.manual_seed(i)
        random.seed(i)
        with contextlib.redirect_stdout(printed):
            try:
                module.change(i)
            except Exception as error:
                changed = repr(error)
            args = arguments()
            try:
                result = f(*args)
            except Exception as error:
                if isinstance(error, DovetailError) and not isinstance(error, InputError):
                    return  # refused
                result = "raised", kind_of(error), error.args if kind_of(error) in ("Halt", "Deep") else ()
            else:
                grads = gradients(result, [args[0], module.W, module.block.w])
        gc.collect()  # weak references and generators
        kept.append((args, result))
        observer = Observer(module)
        outside = [(name, observer.of(getattr(module, name, "deleted"))) for name in module.OUTSIDE]
        outside.append(("settings", observer.of(module.settings() if hasattr(module, "settings") else None)))
        yield changed, printed.getvalue(), observer.of(kept), outside, grads


def gradients(result: Any, wanted: list[Any]) -> Any:
    """Return the gradients of all that is in a result; "none" where there are none, or PyTorch cannot compute them."""
    tensors = [x for x in torch.utils._pytree.tree_leaves(result) if isinstance(x, torch.Tensor) and x.requires_grad]
    wanted = [x for x in wanted if isinstance(x, torch.Tensor) and x.requires_grad]
    try:
        grads = torch.autograd.grad(sum(x.sum() for x in tensors), wanted, allow_unused=True, retain_graph=True)
    except (RuntimeError, AttributeError, TypeError):
        return "none"
    return [x if x is None else x.clone() for x in grads]


@pytest.fixture(autouse=True)
def settings() -> Iterator[None]:
    """Put back what programs change in torch."""
    yield
    torch.set_default_dtype(torch.float32)
    torch.set_grad_enabled(True)


def check(text: str, outside: str) -> None:
    """Check that a program does what it does in eager mode."""
    eager, compiled = loaded(text, outside), loaded(text, outside)
    program = text[text.index("def f(x, k") :]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        wanted = list(calls(eager, eager.f))
        for expected, seen in zip(wanted, calls(compiled, dovetail.jit(compiled.f, executors=["torch"])), strict=False):
            if "none" in (expected[-1], seen[-1]):  # a gradient that eager mode cannot compute, as of what is written, a program may
                expected, seen = expected[:-1], seen[:-1]
            assert not differences(expected, seen), program
    assert not [str(each.message) for each in caught if "report it as a bug" in str(each.message)], program


@pytest.mark.one_in(20)
@pytest.mark.parametrize("seed", range(SEEDS))
def test_programs_do_what_they_do_in_eager_mode(seed):
    check(python_world.TEXT + python_programs.program(seed), OUTSIDE)


@pytest.mark.one_in(20)
@pytest.mark.parametrize("seed", range(TORCH_SEEDS))
def test_programs_that_change_what_torch_keeps_do_what_they_do_in_eager_mode(seed):
    check(torch_programs.TEXT + torch_programs.program(seed), torch_programs.OUTSIDE)

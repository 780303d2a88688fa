"""Executors with one deliberate fault each, and the check that has to catch it: the suite is tested with them.

`python -m dovetail_conformance.broken` prints a table of them and the check that caught each.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dovetail.extend import BoundSymbol, FusionExecutor, OperatorExecutor, Tag, Trace, get_grad, put_grad
from dovetail.extend.advanced import Executor, executors, to_callable
from dovetail_conformance.subject import is_referee


@dataclass(frozen=True)
class Broken:
    """An executor with one fault, and the check of `operations` that finds it."""

    name: str
    make: Callable[[], Executor]
    check: str
    operations: tuple[str, ...]
    isolated: bool = False  # whether it ends the process


BROKEN: dict[str, Broken] = {}  # the registry, by name


def broken(check: str, *operations: str, isolated: bool = False) -> Callable:
    """Register the decorated function, which returns an executor that `check` has to catch in these operations; its name is the fault."""

    def wrap(make: Callable[[], Executor]) -> Callable[[], Executor]:
        BROKEN[make.__name__] = Broken(make.__name__, make, check, operations, isolated)
        return make

    return wrap


def running(fn: Callable | None = None, operation: str = "torch.sin", **how: Any) -> OperatorExecutor:
    """Return an executor that runs one operation with `fn`."""
    ex = OperatorExecutor("broken", **{key: how.pop(key) for key in ("dtypes", "devices") if key in how})
    ex.implements(operation, fn, **how)
    return ex


def instead(where: Callable[[Tensor], Any], wrong: Callable[[Tensor], Tensor] = lambda x: torch.sin(x) + 0.5) -> Callable[[Tensor], Tensor]:
    """Return a sine that is wrong for inputs of which `where` holds."""
    return lambda x: wrong(x) if where(x) else torch.sin(x)


# ---- results

FAULTS: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {  # of an executor that runs the sine: (what it does, the check that finds it)
    "wrong_for_scalars": (instead(lambda x: x.ndim == 0), "forward"),
    "wrong_for_transposed": (instead(lambda x: not x.is_contiguous()), "forward"),
    "wrong_for_expanded": (instead(lambda x: 0 in x.stride() and x.numel() > 1), "forward"),
    "wrong_for_float16": (instead(lambda x: x.dtype is torch.float16), "forward"),
    "wrong_for_nan": (lambda x: torch.sin(x).nan_to_num(0.0), "forward"),
    "wrong_for_large": (lambda x: torch.where(x.abs() > 1e3, torch.zeros_like(x), torch.sin(x)), "forward"),
    "raises_when_empty": (lambda x: torch.sin(x) + x.max() * 0, "forward"),
    "raises_for_one_dtype": (instead(lambda x: x.dtype is torch.float16, lambda x: _refuse(x)), "forward"),
    "imprecise": (lambda x: torch.sin(x) * (1 + 2e-3), "reference"),
    "other_dtype": (lambda x: torch.sin(x).to(torch.float64), "meta"),
    "other_shape": (lambda x: torch.sin(x).reshape(1, *x.shape), "meta"),
    "other_strides": (lambda x: torch.sin(x).t().contiguous().t() if x.ndim == 2 else torch.sin(x), "meta"),
    "returns_a_number": (lambda x: torch.sin(x).flatten()[0].item() if x.numel() == 1 else torch.sin(x), "meta"),
    "leaks_requires_grad": (lambda x: torch.sin(x.detach()).requires_grad_(x.is_floating_point()), "meta"),
    "writes_its_input": (lambda x: torch.sin(x, out=x) if x.is_floating_point() and not _overlaps(x) else torch.sin(x), "inputs"),
    "draws_a_number": (lambda x: (torch.rand(1), torch.sin(x))[1], "inputs"),
    "changes_threads": (lambda x: (torch.set_num_threads(2 if torch.get_num_threads() == 1 else 1), torch.sin(x))[1], "inputs"),
}


def _refuse(x: Tensor) -> Tensor:
    raise NotImplementedError(f"no kernel for {x.dtype}")


def _overlaps(x: Tensor) -> bool:
    return any(step == 0 and size > 1 for step, size in zip(x.stride(), x.shape))


for _name, (_fn, _check) in FAULTS.items():
    BROKEN[_name] = Broken(_name, lambda fn=_fn: running(fn), _check, ("torch.sin",))


@broken("meta", "torch.neg")
def aliases_its_input() -> Executor:
    """Returns its input where nothing has to be computed."""
    return running(lambda x: x if x.numel() == 1 else torch.neg(x), "torch.neg")


@broken("forward", "torch.nn.functional.gelu")
def ignores_an_argument() -> Executor:
    """Computes one form of gelu for both."""
    return running(lambda x, approximate="none": F.gelu(x), "torch.nn.functional.gelu")


@broken("forward", "torch.add")
def ignores_broadcasting() -> Executor:
    """Requires operands of one shape, and raises only when it runs."""

    def add(a: Any, b: Any, alpha: Any = 1) -> Tensor:
        if isinstance(a, Tensor) and isinstance(b, Tensor) and a.shape != b.shape:
            return (
                torch.add(a.flatten()[: a.numel()].view(a.shape), b.flatten()[0], alpha=alpha)
                .expand(torch.broadcast_shapes(a.shape, b.shape))
                .clone()
            )
        return torch.add(a, b, alpha=alpha)

    return running(add, "torch.add")


@broken("forward", "torch.sum")
def sums_integers_as_they_are() -> Executor:
    """Does not promote what it sums."""
    return running(
        lambda x, *args, **kwargs: torch.sum(x, *args, **{"dtype": x.dtype, **kwargs}) if len(args) < 3 else torch.sum(x, *args), "torch.sum"
    )


# ---- from call to call


@broken("determinism", "torch.sin")
def nondeterministic() -> Executor:
    """Is off by a rounding, now and then."""
    calls = iter(range(1 << 60))

    def sine(x: Tensor) -> Tensor:
        out = torch.sin(x)
        return out * (1 + 2.0**-23 * (next(calls) % 2)) if x.dtype is torch.float32 else out

    return running(sine)


@broken("determinism", "torch.rand_like")
def ignores_the_seed() -> Executor:
    """Draws from a generator of its own."""
    own = torch.Generator().manual_seed(1)
    return running(lambda x, **how: torch.rand_like(x, **how).copy_(torch.rand(x.shape, generator=own)), "torch.rand_like")


@broken("repeat", "torch.sin")
def stale_constants() -> Executor:
    """Keeps the result of the first call for inputs of one shape and layout."""
    kept: dict[Any, Tensor] = {}
    return running(lambda x: kept.setdefault((x.shape, x.stride(), x.dtype, x.device), torch.sin(x)).clone())


@broken("repeat", "torch.sin")
def reuses_its_buffer() -> Executor:
    """Writes every result of one shape to the same memory."""
    kept: dict[Any, Tensor] = {}

    def sine(x: Tensor) -> Tensor:
        out = torch.sin(x)
        return kept.setdefault((x.shape, x.stride(), x.dtype), torch.empty_like(out)).copy_(out)

    return running(sine)


@broken("forward", "torch.sin")
def keeps_the_first_shape() -> Executor:
    """Keeps one kernel for each number of dimensions and dtype, specialized to the shape of its first input."""
    kept: dict[tuple[int, torch.dtype], int] = {}

    def sine(x: Tensor) -> Tensor:
        out = torch.sin(x)
        n = kept.setdefault((x.ndim, x.dtype), max(x.numel(), 1))
        return out if x.numel() <= n else torch.cat([out.flatten()[:n], torch.zeros_like(out.flatten()[n:])]).view(x.shape)

    return running(sine)


@broken("threads", "torch.sin")
def shares_scratch_memory() -> Executor:
    """Computes in scratch memory that all threads share, and yields to other threads meanwhile."""
    scratch: dict[Any, Tensor] = {}
    turn = threading.Barrier(2)

    def sine(x: Tensor) -> Tensor:
        room = scratch.setdefault((x.shape, x.stride(), x.dtype), torch.empty_like(x))
        room.copy_(x)
        if threading.current_thread() is not threading.main_thread():
            try:
                turn.wait(timeout=0.2)  # the other threads may have ended
            except threading.BrokenBarrierError:
                turn.reset()
        return torch.sin(room) if x.is_contiguous() else torch.sin(x)

    return running(sine)


@broken("threads", "torch.sin")
def keeps_a_result_for_each_thread() -> Executor:
    """Computes once in each thread but the main one, and returns that result for every input of the same shape."""
    kept: dict[Any, Tensor] = {}

    def sine(x: Tensor) -> Tensor:
        if threading.current_thread() is threading.main_thread():
            return torch.sin(x)
        return kept.setdefault((threading.get_ident(), x.shape, x.stride(), x.dtype), torch.sin(x)).clone()

    return running(sine)


# ---- gradients


def differentiated(rule: Callable[[Tensor, Tensor], Any]) -> OperatorExecutor:
    """Return an executor that runs the sine and differentiates it by `rule`."""

    def grad(x: Any) -> Any:
        out = torch.sin(x)
        put_grad(x, rule(get_grad(out), x))
        return out

    return running(torch.sin, grad=grad)


@broken("backward", "torch.sin")
def wrong_gradient() -> Executor:
    """Forgets a factor."""
    return differentiated(lambda g, x: g * torch.cos(x) * 1.01)


@broken("backward", "torch.sin")
def gradient_without_its_sign() -> Executor:
    """Has the sign of its gradient wrong where that is negative."""
    return differentiated(lambda g, x: g * torch.cos(x).abs())


@broken("backward", "torch.mul")
def gradient_of_the_wrong_shape() -> Executor:
    """Does not sum over what was broadcast."""

    def grad(a: Any, b: Any) -> Any:
        out = torch.mul(a, b)
        g = get_grad(out)
        for x, other in ((a, b), (b, a)):
            if isinstance(x, torch.Tensor):
                put_grad(x, g * other)
        return out

    return running(torch.mul, "torch.mul", grad=grad)


@broken("backward", "torch.sin")
def no_gradient() -> Executor:
    """Differentiates to nothing."""
    return differentiated(lambda g, x: g * 0.0)


# ---- claims


@broken("claims", "torch.sin")
def declares_and_refuses() -> Executor:
    """Names a dtype that its checker never takes."""
    return running(torch.sin, dtypes=["float32"], checker=lambda x: "has no kernel built for this machine")


@broken("claims", "torch.sin")
def takes_what_it_does_not_declare() -> Executor:
    """Claims dtypes that its declaration leaves out."""

    class Greedy(OperatorExecutor):
        def verdict(self, line: BoundSymbol) -> bool | str:
            return True if self.implementation(line.symbol) is not None else "does not implement that"

    ex = Greedy("broken", dtypes=["float32"])
    ex.implements("torch.sin", torch.sin)
    return ex


@broken("refusals", "torch.sin")
def refuses_without_a_reason() -> Executor:
    """Says False where a sentence is wanted."""
    return running(torch.sin, checker=lambda x: len(x.spec.shape) == 2)


@broken("checkers", "torch.sin")
def checker_raises() -> Executor:
    """Expects at least one dimension in its checker."""
    return running(torch.sin, checker=lambda x: x.spec.shape[0] >= 0)


@broken("checkers", "torch.sin")
def checker_changes_its_mind() -> Executor:
    """Claims every other time."""
    count = iter(range(1 << 60))
    return running(torch.sin, checker=lambda x: True if next(count) % 2 else "takes every other offer")


@broken("checkers", "torch.sin")
def checker_looks_around() -> Executor:
    """Decides by the default dtype rather than by the line."""
    return running(torch.sin, checker=lambda x: True if torch.get_default_dtype() is torch.float32 else "expected the default dtype to be float32")


@broken("declaration", "declaration")
def availability_raises() -> Executor:
    """Raises where it should say what is lacking."""
    return OperatorExecutor("broken", available=_no_library)


@broken("declaration", "declaration")
def unavailable_without_a_reason() -> Executor:
    """Says False where a sentence is wanted."""
    return OperatorExecutor("broken", available=lambda: False)  # type: ignore[arg-type,return-value]


def _no_library() -> bool:
    raise OSError("libkernels.so: cannot open shared object file")


# ---- whole programs


class Replayed(FusionExecutor):
    """Fuses whatever the executors of last resort run line by line; `fault` changes the results of a region."""

    def __init__(self, fault: Callable[[list[Any], tuple], list[Any]] = lambda out, inputs: out):
        super().__init__("broken")
        self.behind = [ex for ex in executors() if is_referee(ex)]
        self.fault = fault

    def can_fuse(self, line: BoundSymbol) -> bool | str:
        if {Tag.MEMORY, Tag.RANDOM, Tag.HOST, Tag.VIEW} & set(line.symbol.tags) or not line.symbol.is_prim:
            return f"does not fuse {line.symbol}"
        return True if any(ex.verdict(line) is True for ex in self.behind) else "no executor runs it"

    def fuse(self, region: Trace) -> Callable[..., tuple]:
        new = region.derive("replay")
        for line in region.lines:
            runs = next(ex for ex in self.behind if ex.verdict(line) is True)
            new.lines.append(line.replace(implementation=runs.implementation(line.symbol)))
        run = to_callable(new)
        return lambda *inputs: tuple(self.fault(list(run(*inputs)), inputs))


def replayed() -> Executor:
    """Return the fusion executor without a fault, for comparison with the broken ones."""
    return Replayed()


@broken("programs", "program.diamond", "program.several_results")
def drops_an_output() -> Executor:
    """Returns the first result of a region in place of the last."""
    return Replayed(lambda out, inputs: [*out[:-1], torch.zeros_like(out[-1])] if len(out) > 1 else out)


@broken("programs", "program.diamond", "program.written_in_order", "program.several_results")
def swaps_outputs() -> Executor:
    """Returns two results of one shape and dtype in the wrong order."""

    def swapped(out: list[Any], inputs: tuple) -> list[Any]:
        same = [i for i, x in enumerate(out) if x.shape == out[0].shape and x.dtype == out[0].dtype]
        if len(same) > 1:
            out[same[0]], out[same[1]] = out[same[1]], out[same[0]]
        return out

    return Replayed(swapped)


@broken("programs", "program.input_written")
def forgets_to_write() -> Executor:
    """Leaves out the write of an input."""
    return running(lambda x, value: x, "prims.copy_")


@broken("programs", "program.input_written")
def writes_too_late() -> Executor:
    """Writes at the next call: what reads in between sees the old values."""
    late: list[Callable[[], Any]] = []

    def copy(x: Tensor, value: Tensor) -> Tensor:
        for write in late:
            write()
        late[:] = [lambda: x.copy_(value)]
        return x

    return running(copy, "prims.copy_")


@broken("random", "random")
def wrong_in_company() -> Executor:
    """Is right for single operations, and wrong where a region has more than one result and two inputs or more."""
    return Replayed(
        lambda out, inputs: [*out[:-1], out[-1] + 1] if len(out) > 1 and out[-1].is_floating_point() and out[0].shape == out[-1].shape else out
    )


@broken("forward", "torch.sin")
def transforms_to_something_else() -> Executor:
    """Rewrites the operation into one of another shape."""
    return running(operation="torch.sin", execution_transform=lambda x: torch.sin(x).sum())


# ---- ends of the process


@broken("crash", "torch.sin", isolated=True)
def crashes() -> Executor:
    """Ends the process."""
    return running(lambda x: os.kill(os.getpid(), signal.SIGSEGV) if x.ndim == 2 else torch.sin(x))


@broken("timeout", "torch.sin", isolated=True)
def hangs() -> Executor:
    """Never returns."""
    return running(lambda x: threading.Event().wait() if x.ndim == 2 else torch.sin(x))

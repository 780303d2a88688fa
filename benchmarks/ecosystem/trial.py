"""Try one case: eager and compiled from the same seeds, outputs, gradients and buffers side by side."""

from __future__ import annotations

import copy
import logging
import os
import random
import re
import shutil
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest import mock

import numpy
import torch
from cases import Case, load
from torch import nn

import dovetail
from dovetail.errors import DovetailError

PRECISE, MIXED = 1e-9, 1e-6  # of float64, as a share of the largest element; where a part is in float32 all the same, as a detector's loss is
SHARE_OF_NOISE = 1e-3  # by which a result differs in float64 that is zero but for rounding
NOISE = 16 * torch.finfo(torch.float32).eps / torch.finfo(torch.float64).eps  # what rounding in float32 may differ by, beside float64
SHARE_OF_LOSS = 16 * torch.finfo(torch.float64).eps / torch.finfo(torch.float32).eps  # of eager's error in float32, what float64 may lose
OTHER_SEEDS = range(1, 9)
MOVED_SEEDS = 2  # other seeds from which weights are moved, where a result lies further off than they carry it
MOVES = 16  # times that weights are moved, to see how far rounding carries
CALLS = 4  # the first compiles, the next two are trials beside the reference as well
SETTLING = 5  # calls that are not settled: the first, second, third and fifth are trials, and the fourth generates code
TIMED, QUICK = 4, 0.05  # settled calls that are timed; where they take fewer seconds there are more, since what depends on values settles later
MANY = 16  # calls of all there


@dataclass(frozen=True)
class Outcome:
    """How a case ended.

    `verdict` is "right", "eager" (right, but some of it ran without being compiled), "wrong", "refused" (an error with the way out),
    "crashed" (any other error), "stopped" (out of time, or the process died), or "unusable" where eager itself fails.  Times are
    seconds of processor time: `first` is the first call, `settled` one after those that are trials or generate code, and `eager` the same one
    in eager mode; a loop of training has but the first, and where each batch has another size no call is settled.
    """

    library: str
    name: str
    mode: str
    verdict: str
    reason: str = ""
    first: float | None = None
    settled: float | None = None
    eager: float | None = None


class Different(Exception):
    """A result is not eager's."""


def attempt(family: str, library: str, name: str, mode: str) -> Outcome:
    """Try one case in this process, compiled first: what eager mode leaves behind, such as a library's caches, would make that easier."""
    logging.disable(logging.WARNING)
    case = load(family)[library, name]
    actual, failure = None, None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            actual = run(case, mode, dovetail.jit, repeats=True)
        except Exception as error:
            failure = error
        try:
            expected = run(case, mode, eager, repeats=True)
        except Exception as error:
            return Outcome(library, name, mode, "unusable", sentence(error))
        try:
            if failure is not None:
                raise failure
            jump = compare(case, mode, actual, expected)
            if mode != "fit" and not case.batches:
                settle(actual, expected)
        except Different as error:
            return Outcome(library, name, mode, "wrong", str(error))
        except DovetailError as error:
            return Outcome(library, name, mode, "refused", sentence(error))
        except Exception as error:
            return Outcome(library, name, mode, "crashed", f"{type(error).__name__}: {sentence(error)}")
    aside = next((str(each.message) for each in caught if "eager" in str(each.message)), "")
    times = {"first": actual.times[0]} if mode == "fit" else {"first": actual.times[0], "eager": min(expected.times[len(expected.values) - 1 :])}
    if len(actual.times) > SETTLING:
        times["settled"] = min(actual.times[SETTLING:])
    return Outcome(library, name, mode, "eager" if aside else "right", sentence(aside.partition("\n")[0] or jump), **times)


def first_call(family: str, library: str, name: str, mode: str) -> float:
    """Return the processor time of the first call of a case, in seconds."""
    logging.disable(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return run(load(family)[library, name], mode, dovetail.jit, calls=1).times[0]


def in_folder(caches: str, function: Callable, *case: str) -> Any:
    """Call a function of a case with the caches of kernels in a folder of its own."""
    os.environ["XDG_CACHE_HOME"] = caches
    try:
        return function(*case)
    finally:
        shutil.rmtree(caches, ignore_errors=True)


@dataclass
class Run:
    """What the calls of one run left behind, flattened, the processor time of each, and what repeats the last one, if it is to be repeated."""

    values: list[list[tuple[str, torch.Tensor]]]
    times: list[float]
    again: Callable[[], object] | None


def settle(actual: Run, expected: Run) -> None:
    """Repeat the last call for its time alone, until it is settled and from then on in turn with eager mode's, since a shared machine is unsteady."""
    while len(actual.times) < (MANY if actual.times[-1] < QUICK else SETTLING + TIMED):
        actual.again()
        if len(actual.times) > SETTLING:
            expected.again()


def run(
    case: Case,
    mode: str,
    compile: Callable,
    dtype: torch.dtype | None = None,
    seed: int = 0,
    calls: int = CALLS,
    moved: int | None = None,
    repeats: bool = False,
) -> Run:
    """Build the case from a seed and call it, each time from another one; `dtype` converts it first, and `moved` is a seed to move weights from.

    What is built lives on where the run `repeats`.
    """
    seed_all(seed)
    fn, args, kwargs = case.build()
    module = fn if isinstance(fn, nn.Module) else None
    if module is not None:
        module.train(mode == "train").to(dtype)
        if moved is not None:
            move(module, moved)
    compiled = fn if mode == "fit" else compile(fn)
    args = (compile,) if mode == "fit" else args
    call = getattr(compiled, case.method) if case.method else compiled
    times: list[float] = []

    def once(index: int) -> list[tuple[str, torch.Tensor]]:
        seed_all(seed + index)
        inputs = args(case.batches[index]) if case.batches else copy.deepcopy((args, kwargs))
        inputs = inputs if dtype is None else convert(inputs, dtype)
        began = time.process_time()
        with torch.set_grad_enabled(mode != "eval"):
            out = call(*inputs[0], **inputs[1])
        if mode == "train":
            loss = case.loss(out) if case.loss else sum_of_squares(out)
            loss.backward()
        times.append(time.process_time() - began)
        seen = list(observe(out, module))
        if module is not None:
            module.zero_grad()
        return seen

    last = min(calls, len(case.batches) or CALLS)
    values = [once(index) for index in range(last)]
    return Run(values, times, partial(once, last - 1) if repeats else None)


def move(module: nn.Module, seed: int) -> None:
    """Move each weight by up to two units in its last place."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in module.parameters():
            if weight.is_floating_point():
                weight.mul_(1 + 4 * torch.finfo(weight.dtype).eps * (torch.rand(weight.shape, generator=generator) - 0.5))


def seed_all(seed: int) -> None:
    torch.manual_seed(seed)
    random.seed(seed)
    numpy.random.seed(seed)


def sum_of_squares(out: Any) -> torch.Tensor:
    tensors = [each for _, each in leaves("", out) if each.requires_grad]
    return sum(each.abs().square().mean() for each in tensors)


def observe(out: Any, module: nn.Module | None) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield copies of outputs, gradients and buffers, with their names."""
    for name, each in leaves("output", out):
        yield name, each.detach().clone()
    if module is not None:
        for name, each in module.named_parameters():
            if each.grad is not None:
                yield f"gradient of {name}", each.grad.clone()
        for name, each in module.named_buffers():
            yield f"buffer {name}", each.clone()


def leaves(name: str, value: Any, seen: frozenset[int] = frozenset()) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors of nested containers and of plain objects; numbers as tensors."""
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, bool | int | float | complex):
        yield name, torch.tensor(value)
    elif id(value) not in seen:
        seen |= {id(value)}
        if isinstance(value, dict):
            items = value.items()
        elif isinstance(value, list | tuple | set):
            items = enumerate(value)
        else:
            items = () if isinstance(value, type | str | nn.Module) else getattr(value, "__dict__", {}).items()
        for key, each in items:
            yield from leaves(f"{name}.{key}", each, seen)


def compare(case: Case, mode: str, actual: Run, expected: Run) -> str:
    """Return what explains a difference, "" where there is none.

    Raises:
        Different: a value is further from eager's than rounding explains; eager in float64 tells how far that is.
    """
    try:
        compare_at(actual, expected, None, case.relative)
        return ""
    except Different as error:
        first = error
    if mode != "fit" and asks(case, mode, actual):
        return "as eager mode where torch.compiler.is_compiling() is true, which the model asks for"
    try:
        exact = run(case, mode, eager, torch.float64)
    except Exception:  # not everything runs in float64
        if mode == "fit":
            raise first from None
        if is_right_by_torch(case, mode, expected):
            return f"a jump: {first}; it agrees by PyTorch's kernels alone, and eager mode does not run in float64"
        if is_moved(case, mode, actual, expected):
            return f"rounding: {first}; weights moved in their last place do that to eager mode, which does not run in float64"
        raise first from None
    try:
        compare_at(actual, expected, exact, case.relative)
        return ""
    except Different as error:
        if mode == "fit" or not is_jump(case, mode):
            raise
        return f"a jump: {error}; float64 agrees, and so do other weights and inputs"


def asks(case: Case, mode: str, actual: Run) -> bool:
    """Return whether the results are those of eager mode where torch.compiler.is_compiling() is true, as it is for compiled code."""
    with mock.patch.object(torch.compiler, "is_compiling", lambda: True):
        try:
            compare_at(actual, run(case, mode, eager), None, case.relative)
        except Exception:
            return False
    return True


def is_right_by_torch(case: Case, mode: str, expected: Run) -> bool:
    """Return whether the compiled program agrees where PyTorch's own kernels run all of it."""
    try:
        compare_at(run(case, mode, partial(dovetail.jit, executors=["torch"])), expected, None, case.relative)
    except Exception:
        return False
    return True


def is_jump(case: Case, mode: str) -> bool:
    """Return whether rounding alone explains a difference: it decides on which side of a jump a value lies, as that of a ReLU's gradient.

    The compiled program agrees with eager mode in float64 then, where rounding decides nothing, and each result agrees in float32 from
    one of the other seeds: in a large network some value lies at a jump from every seed.  Where they do not, moving the weights in their
    last place has to change eager's results as much.  A network that makes rounding grow loses as many digits in float64 as eager mode does
    in float32.  A result that is zero but for rounding, as the gradient of a bias before a normalization, may differ by what it differs by in
    float64, at the precision of float32.
    """
    once = partial(run, case, mode, calls=1)
    try:
        precise, single = (once(dovetail.jit, torch.float64), once(eager, torch.float64)), once(eager)
        share = MIXED if any(each.dtype is torch.float32 for _, each in precise[1].values[0]) else PRECISE
        losses = zip(single.values[0], precise[1].values[0], strict=True)
        lost = {name: SHARE_OF_LOSS * distance(one, other) for (name, one), (_, other) in losses}
        if next(differences(*precise, None, share, share, lost), None) is not None:
            return False
    except Exception:
        return False
    noise = {name: noise_of(ours, theirs) for (name, ours), (_, theirs) in zip(*(each.values[0] for each in precise), strict=True)}
    differing: set[str] | None = None
    for seed in OTHER_SEEDS:
        runs = once(dovetail.jit, seed=seed), once(eager, seed=seed), once(eager, torch.float64, seed=seed)
        try:
            names = {name for name, _ in differences(*runs, case.relative, noise=noise)}
        except Different:
            return False
        differing = names if differing is None else differing & names
        if not differing:
            return True
    return is_moved(case, mode, once(dovetail.jit), single)


def is_moved(case: Case, mode: str, actual: Run, expected: Run) -> bool:
    """Return whether each result is as near to eager's as that of eager mode with weights that are moved in their last place, from some seed.

    Where rounding decides a single jump, as at one ReLU of a large network, no moved run need have the same: from another seed it has not.
    """
    unlike = beyond_moved(case, mode, actual, expected)
    for seed in OTHER_SEEDS[:MOVED_SEEDS]:
        if not unlike:
            return True
        again = partial(run, case, mode, calls=len(expected.values), seed=seed)
        unlike &= beyond_moved(case, mode, again(dovetail.jit), again(eager), seed)
    return not unlike


def beyond_moved(case: Case, mode: str, actual: Run, expected: Run, seed: int = 0) -> set[str]:
    """Return the results that lie further from eager's than in all runs from a seed with moved weights; all where one has other results."""
    moved: dict[str, float] = Counter()
    everything = {name for values in expected.values for name, _ in values}
    for move in range(MOVES):
        other = run(case, mode, eager, calls=len(expected.values), seed=seed, moved=move)
        for theirs, values in zip(expected.values, other.values, strict=True):
            for (name, one), (_, another) in zip(theirs, values, strict=True):
                if one.shape != another.shape:
                    return everything
                moved[name] = max(moved[name], distance(one, another))
    try:
        return {name for name, _ in differences(actual, expected, None, case.relative, noise=moved)}
    except Different:
        return everything


def eager(fn: Callable) -> Callable:
    """Return a function as it is, in the place of one that compiles it."""
    return fn


def compare_at(actual: Run, expected: Run, exact: Run | None, relative: float, absolute: float = 1e-6) -> None:
    for _, error in differences(actual, expected, exact, relative, absolute):
        raise error


def differences(
    actual: Run, expected: Run, exact: Run | None, relative: float, absolute: float = 1e-6, noise: dict[str, float] | None = None
) -> Iterator[tuple[str, Different]]:
    """Yield the results that differ: the name of each, and how; `noise` is what each may differ by, beside what all may.

    Raises:
        Different: one of the two has other results.
    """
    for call, (ours, theirs) in enumerate(zip(actual.values, expected.values, strict=True), 1):
        if [name for name, _ in ours] != [name for name, _ in theirs]:
            names = sorted({name for name, _ in ours} ^ {name for name, _ in theirs})
            raise Different(f"call {call}: only one of the two has {', '.join(names[:4])}")
        judges = exact.values[call - 1] if exact else theirs
        for (name, one), (_, other), (_, judge) in zip(ours, theirs, judges, strict=True):
            try:
                difference(f"call {call}: {name}", one, other, judge, relative, absolute + (noise or {}).get(name, 0.0))
            except Different as error:
                yield name, error


def noise_of(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    """Return what a result that is zero but for rounding, in float64, may differ by in float32; 0 for any other result."""
    apart = distance(ours, theirs)
    return NOISE * apart if ours.numel() and theirs.abs().max() <= apart / SHARE_OF_NOISE else 0.0


def distance(one: torch.Tensor, other: torch.Tensor) -> float:
    """Return the largest difference of two elements."""
    return float((one.to(torch.complex128) - other.to(torch.complex128)).abs().max()) if one.numel() else 0.0


def difference(name: str, ours: torch.Tensor, theirs: torch.Tensor, judge: torch.Tensor, relative: float, absolute: float) -> None:
    if (ours.shape, ours.dtype) != (theirs.shape, theirs.dtype):
        raise Different(f"{name} is {ours.dtype} {tuple(ours.shape)}, and {theirs.dtype} {tuple(theirs.shape)} in eager mode")
    if not ours.numel() or torch.equal(ours, theirs):
        return
    if not (ours.is_floating_point() or ours.is_complex()):
        if ours.dtype == torch.uint8 and (ours.int() - theirs.int()).abs().max() <= 1 and (ours != theirs).float().mean() < 0.01:
            return  # pixels that were rounded to the other side
        raise Different(f"{name} differs in {int((ours != theirs).sum())} of {ours.numel()} elements")
    wide = torch.complex128 if ours.is_complex() else torch.float64
    ours, theirs, judge = (each.to(wide) for each in (ours, theirs, judge))
    if not torch.equal(ours.isfinite(), theirs.isfinite()):
        raise Different(f"{name} is finite in other places")
    ours, theirs, judge = (each[theirs.isfinite()] for each in (ours, theirs, judge))
    if ours.numel():
        scale, own = judge.abs().max(), (theirs - judge).abs().max()
        error, allowed = (ours - judge).abs().max(), relative * scale + absolute + 8 * own
        if error > allowed:
            raise Different(f"{name} differs by {float(error):.2g} where {float(allowed):.2g} is allowed, of values up to {float(scale):.2g}")


def convert(value: Any, dtype: torch.dtype) -> Any:
    """Return nested containers with their floating-point tensors in another dtype."""
    if isinstance(value, torch.Tensor):
        return value.to(dtype) if value.is_floating_point() else value
    if isinstance(value, dict):
        return {key: convert(each, dtype) for key, each in value.items()}
    return type(value)(convert(each, dtype) for each in value) if type(value) in (list, tuple) else value


def sentence(error: BaseException | str) -> str:
    """Return the beginning of a message on one line, with paths from the folder of packages, or of Python's library, on."""
    return re.sub(r"\S*/(site-packages|lib/python3\.\d+)/", "", " ".join(str(error).split()))[:300]

"""Whether a result is right: at most a small multiple of the error that eager's own roundings explain.

First each result is compared with eager in float64, allowing a few times the largest error that eager itself makes nearby.  What is beyond
that is compared with the spread of the float64 result when each step is disturbed by as much as a rounding in the program's own precision, and
with the errors that eager makes on inputs that differ in their last bits: so cancellations are allowed what they lose, and nothing else is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import log2, sqrt
from typing import Any

import torch
from torch import Tensor

from dovetail_conformance.fuzz.draft import Draft, Step, evaluate
from dovetail_conformance.fuzz.kinks import close_to_kink
from dovetail_conformance.layout import overlaps

ULPS, NO_WORSE, NEARBY = 8, 8, 64  # of the value; times eager's error; elements among which eager's largest error counts
FLOAT64 = torch.finfo(torch.float64).eps
SAMPLES, SPREAD = 12, 24  # disturbed runs; times their spread


@dataclass(frozen=True)
class Difference:
    """Where a result is wrong: by how much, and how much was allowed there."""

    message: str
    error: float = float("inf")
    allowed: float = 0.0
    at: int = 0  # the place in the flattened result


@dataclass
class Ran:
    """What one run gives: results, the inputs as it leaves them, gradients of the inputs that require one."""

    results: list[Any]
    left: list[Any]
    gradients: list[Any]

    def __iter__(self):
        yield from (("result", i, x) for i, x in enumerate(self.results))
        yield from (("input", i, x) for i, x in enumerate(self.left))
        yield from (("gradient", i, x) for i, x in enumerate(self.gradients))


def run(draft: Draft, function: Any, inputs: Sequence[Tensor], seed: int) -> Ran:
    """Call `function` on the inputs, and compute gradients if the draft asks for them."""
    leaves = [x for x, described in zip(inputs, draft.inputs) if described.grad]
    with torch.set_grad_enabled(draft.grad):
        results = function(*inputs)
        gradients = _gradients(results, leaves, seed) if draft.grad else []
    return Ran([_plain(x) for x in results], [_plain(x) for x in inputs], gradients)


def _plain(x: Any) -> Any:
    return x.detach().clone() if isinstance(x, Tensor) else x


def _gradients(results: Sequence[Any], leaves: Sequence[Tensor], seed: int) -> list[Any]:
    """Return the gradients of the leaves for cotangents that the seed decides."""
    ends = [(i, x) for i, x in enumerate(results) if isinstance(x, Tensor) and x.requires_grad]
    if not ends or not leaves:
        return [None] * len(leaves)
    return list(torch.autograd.grad([x for _, x in ends], leaves, [cotangent(x, seed, i) for i, x in ends], allow_unused=True))


def cotangent(x: Tensor, seed: int, i: int) -> Tensor:
    """Return what flows into the gradient of result `i`: values that bfloat16 can hold, so that they are the same in any precision."""
    g = torch.Generator().manual_seed(seed * 1009 + 500 + i)
    return torch.randn(x.shape, generator=g).to(torch.bfloat16).to(x.dtype)


@dataclass
class Reference:
    """What a draft has to give for one seed: eagerly, in float64, and in float64 with roundings."""

    draft: Draft
    seed: int
    precision: dict[str, float] = field(default_factory=dict)  # of each inexact value, as eager computes it
    samples: dict[int, Ran] = field(default_factory=dict)
    shifts: dict[int, tuple[Ran, Ran]] = field(default_factory=dict)

    @cached_property
    def eager(self) -> Ran:
        """The program as eager runs it."""
        return run(self.draft, self.draft.function(), self.draft.make_inputs(self.seed), self.seed)

    @cached_property
    def exact(self) -> Ran:
        """The program in float64."""
        return self._evaluated()

    def disturbed(self, i: int) -> Ran:
        """Return the program in float64 with a random error of one rounding after each step that rounds; sample `i`."""
        self._measure()
        if i not in self.samples:
            self.samples[i] = self._evaluated(Roundings(self.precision, self.seed * 100 + i))
        return self.samples[i]

    def shifted(self, i: int) -> tuple[Ran, Ran]:
        """Return the program eagerly and in float64, both on inputs that differ from the first in their last bits; sample `i`."""
        if i not in self.shifts:
            inputs, wide = self.draft.make_inputs(self.seed), self.draft.make_inputs(self.seed, wide=True)
            g = torch.Generator().manual_seed(self.seed * 100 + i)
            with torch.no_grad():
                for described, x, precise in zip(self.draft.inputs, inputs, wide):
                    if described.inexact and not described.discrete and not overlaps(x):
                        x.mul_(1 + 2 * torch.finfo(x.dtype).eps * torch.randn(x.shape, generator=g).to(x.dtype))
                        precise.copy_(x)
            eager = run(self.draft, self.draft.function(), inputs, self.seed)
            self.shifts[i] = eager, run(self.draft, self._function(), wide, self.seed)
        return self.shifts[i]

    @cached_property
    def delicate(self) -> bool:
        """Whether a rounding decides somewhere: a value that was rounded lies at a kink, a jump or a tie."""
        self._measure()
        rounded: set[str] = set()
        decides = False

        def look(step: Step, env: dict[str, Any]) -> dict[str, Any]:
            nonlocal decides
            uncertain = rounded.intersection(step.operands)
            if step.kinks and uncertain and close_to_kink(step, env, self.precision):
                decides = True
            if uncertain or not step.exact:
                rounded.add(step.result)
                if step.writes:  # every view of what was written is rounded, too
                    rounded.update(env)
            return {}

        with torch.no_grad():
            evaluate(self.draft, self.draft.make_inputs(self.seed, wide=True), wide=True, before=look)
        return decides

    def _measure(self) -> None:
        """Note the precision of each value of the program as eager runs it."""
        if not self.precision:
            with torch.no_grad():
                env = evaluate(self.draft, [x.detach() for x in self.draft.make_inputs(self.seed)])
            self.precision = {name: torch.finfo(x.dtype).eps for name, x in env.items() if x.is_floating_point() or x.is_complex()}

    def _evaluated(self, roundings: Roundings | None = None) -> Ran:
        return run(self.draft, self._function(roundings), self.draft.make_inputs(self.seed, wide=True), self.seed)

    def _function(self, roundings: Roundings | None = None) -> Callable[..., list[Any]]:
        """Return the program in float64, with roundings after its steps where given."""
        hooks = {"before": roundings.before, "after": roundings.after} if roundings else {}

        def function(*inputs: Tensor) -> list[Any]:
            env = evaluate(self.draft, inputs, wide=True, **hooks)
            return [env[name] for name in self.draft.results]

        return function


@dataclass
class Roundings:
    """Random errors of one rounding, put on values and on the gradients that flow back through them."""

    precision: dict[str, float]
    seed: int
    operands: dict[str, Tensor] = field(default_factory=dict)  # of the step that runs, disturbed

    def __post_init__(self) -> None:
        self.generator = torch.Generator().manual_seed(self.seed)

    def factor(self, x: Tensor, eps: float) -> Tensor:
        """Return 1 + eps times random numbers."""
        return 1 + eps * torch.randn(x.shape, generator=self.generator, dtype=torch.float64)

    def before(self, step: Step, env: dict[str, Any]) -> dict[str, Any]:
        """Disturb the operands of a step that accumulates."""
        if not step.accumulates or step.writes:
            return {}
        self.operands = {name: env[name] * self.factor(env[name], self.precision[name]) for name in step.operands if name in self.precision}
        return self.operands

    def after(self, step: Step, env: dict[str, Any]) -> None:
        """Disturb the result of a step that rounds."""
        eps, x = self.precision.get(step.result), env[step.result]
        if eps is None:
            return
        if step.exact:  # what flows back through it is added up with what flows back elsewhere
            if x.requires_grad and not step.writes:
                x.register_hook(lambda g: g * self.factor(g, eps))
            return
        if step.accumulates:  # the bound of a pairwise sum; what is exact for other dtypes is added up one by one, as in var, where it is float64
            terms = max(1, max(env[name].numel() for name in step.operands) / max(1, x.numel()))
            rows = max(size for name in step.operands for size in (1, *env[name].shape))  # of which softmax adds up each, and returns as many
            eps *= 1 + (sqrt(max(terms, rows)) if eps == FLOAT64 else log2(terms))
        if any([name in step.text for name in ("softmax(", "softmin(")]) and x.requires_grad:
            self._round_shares(self.operands[step.operands[0]], x, eps)
        if step.writes:
            x.data.mul_(self.factor(x, eps))
            values = _in_memory_of(x, env.values())
        else:
            x = env[step.result] = x * self.factor(x, eps)
            values = [x]
        for value in values:
            if value.requires_grad and value.grad_fn is not None:  # asked for first: torch crashes at a hook on a view whose base was written to
                value.register_hook(lambda g: g * self.factor(g, eps))

    def _round_shares(self, operand: Tensor, shares: Tensor, eps: float) -> None:
        """Put an error on the gradient of a softmax that no disturbed value gives: the largest share of a row gets what cancels."""
        largest: list[Tensor] = []
        shares.register_hook(lambda g: largest.append(g.abs().max()))
        operand.register_hook(lambda g: g + (self.factor(g, eps) - 1) * shares.detach() * largest[-1])


def _in_memory_of(x: Tensor, values: Iterable[Any]) -> list[Tensor]:
    """Return those values that share the memory of x."""
    memory = x.untyped_storage().data_ptr()
    return [value for value in values if isinstance(value, Tensor) and value.untyped_storage().data_ptr() == memory]


def difference(reference: Reference, got: Ran) -> tuple[str, int, Difference] | None:
    """Return the first result, input or gradient that is wrong and how; None if all are right or a rounding decides."""
    eager = list(reference.eager)
    if len(list(got)) != len(eager):
        return "result", 0, Difference(f"{len(got.results)} results in place of {len(reference.eager.results)}")
    for k, ((kind, i, ours), (_, _, theirs)) in enumerate(zip(got, eager)):
        deviation = _unlike(ours, theirs) or (None if _same(ours, theirs) else _beyond(reference, k, ours, theirs))
        if deviation is not None:
            return kind, i, deviation
    return None


def _unlike(ours: Any, theirs: Any) -> Difference | None:
    """Compare what has to be equal."""
    if ours is None or theirs is None:  # a gradient that is zero everywhere may be missing
        ours, theirs = (torch.zeros(()) if x is None else x for x in (ours, theirs))
        return None if not (ours.any() or theirs.any()) else Difference(f"{_kind(ours)} in place of {_kind(theirs)}")
    if not isinstance(ours, Tensor) or not isinstance(theirs, Tensor):
        return Difference(f"{_kind(ours)} in place of {_kind(theirs)}")
    if (ours.dtype, ours.shape) != (theirs.dtype, theirs.shape):
        return Difference(f"{_kind(ours)} in place of {_kind(theirs)}")
    return None


def _kind(x: Any) -> str:
    return f"{str(x.dtype).removeprefix('torch.')}{list(x.shape)}" if isinstance(x, Tensor) else repr(x)


def _same(ours: Any, theirs: Any) -> bool:
    """Return whether two values are equal but for the last bits, which any allowance covers."""
    if ours is None or theirs is None or torch.equal(ours, theirs):
        return True
    inexact = ours.is_floating_point() or ours.is_complex()
    return inexact and torch.allclose(ours, theirs, rtol=ULPS / 2 * torch.finfo(ours.dtype).eps, atol=0.0, equal_nan=True)


def _beyond(reference: Reference, k: int, ours: Tensor, theirs: Tensor) -> Difference | None:
    """Compare numbers: first with what eager's errors allow, then with what roundings do."""
    inexact = theirs.is_floating_point() or theirs.is_complex()
    eps, tiny = (torch.finfo(theirs.dtype).eps, torch.finfo(theirs.dtype).smallest_normal) if inexact else (0.0, 0.0)
    if theirs.dtype is torch.float16:
        tiny *= eps  # numbers below the normal ones are not set to zero where float16 is computed with as float32
    ours, theirs = _numbers(ours), _numbers(theirs)
    if not inexact:
        wrong = ours != theirs
        return _described(ours, theirs, wrong.double(), torch.zeros(())) if bool(wrong.any()) and not reference.delicate else None
    exact = _numbers(list(reference.exact)[k][2])
    error = _error(ours, exact, theirs)
    allowed = ULPS * eps * exact.abs().nan_to_num(posinf=0.0) + ULPS * tiny + NO_WORSE * _nearby(_error(theirs, exact, theirs))
    if bool((error <= allowed).all()):
        return None
    for i in range(SAMPLES):
        spread = _error(_numbers(list(reference.disturbed(i))[k][2]), exact, theirs)
        allowed = torch.maximum(allowed, SPREAD * torch.maximum(spread, _nearby(spread) / 4))
        if bool((error <= allowed).all()):
            return None
    for i in range(SAMPLES):
        shifted, precise = (_numbers(list(each)[k][2]) for each in reference.shifted(i))
        allowed = torch.maximum(allowed, NO_WORSE * _error(shifted, precise, theirs))
        if bool((error <= allowed).all()):
            return None
    return None if reference.delicate else _described(ours, exact, error, allowed)


def _numbers(x: Tensor) -> Tensor:
    """Return real numbers in float64; integers and booleans as they are."""
    x = torch.view_as_real(x.resolve_conj()) if x.is_complex() else x
    return x.to(torch.float64) if x.is_floating_point() else x


def _error(ours: Tensor, exact: Tensor, theirs: Tensor) -> Tensor:
    """Return how far each element is off: infinity for another NaN or infinity, nothing where float64 and eager disagree on them."""
    error = (ours - exact).abs()
    if bool(torch.isfinite(error.sum())) and bool(torch.isfinite(theirs.sum())):
        return error
    error = torch.where(_alike(ours, exact), error.nan_to_num(nan=0.0), torch.inf)
    return torch.where(_alike(theirs, exact), error, 0.0)


def _alike(a: Tensor, exact: Tensor) -> Tensor:
    """Return where two tensors are both finite, both NaN, or the same infinity."""
    return torch.where(torch.isfinite(exact), torch.isfinite(a), (a == exact) | (a.isnan() & exact.isnan()))


def _nearby(error: Tensor) -> Tensor:
    """Return for each element the largest finite error among those around it."""
    flat = torch.where(torch.isfinite(error), error, 0.0).flatten()
    if not len(flat):
        return error
    blocks = torch.nn.functional.pad(flat, (0, -len(flat) % NEARBY)).view(-1, NEARBY).amax(1)
    return blocks.repeat_interleave(NEARBY)[: len(flat)].view(error.shape)


def _described(ours: Tensor, exact: Tensor, error: Tensor, allowed: Tensor) -> Difference:
    wrong = error > allowed
    ratio = torch.where(wrong, error / (allowed + 1e-300), 0.0)
    at = int(ratio.argmax())
    place = [int(i) for i in torch.unravel_index(torch.tensor(at), ours.shape)]
    allowed = allowed.expand(error.shape).flatten()[at].item()
    got, wanted = ours.flatten()[at].item(), exact.flatten()[at].item()
    message = f"{int(wrong.sum())} of {wrong.numel()} elements are wrong, most at {place}: {got:.7g} in place of {wanted:.7g}"
    return Difference(f"{message}; roundings explain {allowed:.2g}", error.flatten()[at].item(), allowed, at)

"""One sample for one executor: the program, eager's results, and those of the executor under test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor

import dovetail
from dovetail import devices, prims
from dovetail.devices import Device
from dovetail.dtypes import DType
from dovetail.extend import BoundSymbol, Tag, Trace
from dovetail.extend.advanced import Symbol, recording
from dovetail.langs.torch import TorchProxy, spec_of
from dovetail_conformance.accuracy import DOUBLE, FEW_MOVES, LARGE, MOVES, Truth, inaccuracy
from dovetail_conformance.draws import generator
from dovetail_conformance.noise import Noise, recording_noise
from dovetail_conformance.opinfo import OpInfo, SampleInput
from dovetail_conformance.oracle import flat, identical
from dovetail_conformance.program import (
    ALIGNED,
    WIDE,
    Program,
    calm,
    extreme,
    fresh,
    inexact,
    message,
    nudged,
    perturbed,
    program_of,
    seed_generators,
    widened,
)
from dovetail_conformance.script import script
from dovetail_conformance.state import LIBRARIES, watched
from dovetail_conformance.subject import Subject, every
from dovetail_conformance.ties import settled

SIGNED = (  # operations of which it is determined whether they give 0.0 or -0.0
    " neg abs add sub mul div true_divide sqrt sin tan asin atan sinh tanh asinh atanh erf expm1 log1p trunc floor ceil round copysign sign positive "
)
NARROW = {torch.float64: torch.float32, torch.complex128: torch.complex64}
OWN = torch.finfo(torch.float64).eps / torch.finfo(torch.float32).eps  # errors in float64 beside those in float32
LOST = 0.25  # of an element: an error from which on no digit is right
ELSEWHERE = 2.0**-8  # how far other inputs are from those whose errors are looked for, relative to them
SMALLER = [0.93**k for k in range(1, 31)]  # what inputs are multiplied by, down to a ninth
SEED, MOST = 20, 400  # of the random generators; samples of an operation that are looked at


@dataclass
class Ran:
    """The outcome of a call: its result and its inputs afterwards, or its error; the lines of the executed traces; settings that it changed.

    `drew` tells that it drew from torch's generator; `noise` is what it printed and warned of.
    """

    result: Any = None
    inputs: Sequence[Tensor] = ()
    error: Exception | None = None
    lines: tuple[int, int] = (0, 0)
    changed: list[str] = field(default_factory=list)
    drew: bool = False
    noise: Noise = field(default_factory=Noise)


class Case:
    """One sample of an operation, compiled for the executor under test."""

    def __init__(self, subject: Subject, info: OpInfo, program: Program, label: str, sample: SampleInput | None = None):
        self.subject, self.info, self.program, self.label, self.sample = subject, info, program, label, sample

    def __str__(self) -> str:
        return self.label

    def compiled(self, **how: Any) -> Callable[..., Any]:
        """Compile the program for the executor under test with those of last resort behind it, by native tracing where that suffices."""
        return dovetail.jit(self.program.fn, executors=[self.subject.executor], **{"interpretation": "native", "unsupported": "error", **how})

    def compiled_once(self, purpose: str, **how: Any) -> Callable[..., Any]:
        """Compile the program for a purpose; with several seeds, the run with the first one compiles it for all."""
        if self.subject.programs is None:
            return self.compiled(**how)
        layouts = tuple((spec_of(x.detach()), x.storage_offset() % ALIGNED, x.is_conj(), x.is_neg()) for x in self.program.inputs)
        key = (purpose, self.subject.name, self.info.symbol.id, self.program.template, layouts, repr(how))
        return self.subject.programs.compiled(key, lambda: self.compiled(**how))

    @cached_property
    def function(self) -> Callable[..., Any]:
        return self.compiled_once("forward")

    @cached_property
    def differentiated(self) -> Callable[..., Any]:
        """The program for calls that record gradients, apart from `function`: its last program is what `executed` describes."""
        return self.compiled_once("backward")

    def call(self, function: Callable[..., Any], inputs: Sequence[Tensor], *, grad: bool = False, quiet: bool = True, seed: int = SEED) -> Ran:
        """Call a compiled function; the generator starts from the same seed each time.  With `quiet`, output and warnings are recorded."""
        seed_generators(seed)
        before = torch.default_generator.get_state()
        try:
            with recording_noise() if quiet else nullcontext(Noise()) as noise, torch.set_grad_enabled(grad):
                result = function(*inputs)
                changed = [] if torch.is_grad_enabled() == grad else ["grad mode"]
        except Exception as error:
            return Ran(inputs=inputs, error=error)
        return Ran(result, inputs, None, self.subject.lines(*executed(function)), changed, _has_moved(before), noise)

    @cached_property
    def ran(self) -> Ran:
        """The first call of the compiled function, and the settings that it changed: a change that happens once is seen in this call alone."""
        changed: list[str] = []
        inputs = fresh(self.program.inputs)
        unwatched = self.info.name not in self.subject.watched
        self.subject.watched.add(self.info.name)
        with watched(changed, whole=unwatched, but=LIBRARIES):
            ran = self.call(self.function, inputs)
        ran.changed += changed
        self.subject.effects.setdefault(self.info.name, []).extend(ran.changed)
        return ran

    @property
    def executed(self) -> Sequence[BoundSymbol]:
        """The lines of the programs that ran."""
        return [line for trace in executed(self.function) for line in trace.lines]

    @property
    def claimed(self) -> bool:
        """Whether the executor under test has lines in the executed trace; also where the call failed and eager's did not."""
        return self.ran.lines[0] > 0 or (self.ran.error is not None and (self.reference is None or self.expected.error is None))

    def eager(self, inputs: Sequence[Tensor], *, grad: bool = False, quiet: bool = True, seed: int = SEED, wide: bool = False) -> Ran:
        """Run eager PyTorch; for prims, the executors of last resort. Of inputs in twice the precision, the results have it, too, as with `wide`."""
        seed_generators(seed)
        before = torch.default_generator.get_state()
        try:
            with recording_noise() if quiet else nullcontext(Noise()) as noise, torch.set_grad_enabled(grad):
                wide = self.program.eager and (wide or any(WIDE.get(own.dtype) is x.dtype for own, x in zip(self.program.inputs, inputs)))
                result = (self.program.wide if wide else self.reference)(*inputs)
            return Ran(result, inputs, drew=_has_moved(before), noise=noise)
        except Exception as error:
            return Ran(inputs=inputs, error=error)

    @cached_property
    def reference(self) -> Callable[..., Any] | None:
        """The function whose result is expected; None for a prim of an executor of last resort, which has only its OpInfo's reference."""
        if self.program.eager:
            return self.program.fn
        return dovetail.jit(self.program.fn, executors=list(self.subject.others), interpretation="native") if self.subject.others else None

    @cached_property
    def expected(self) -> Ran:
        return self.eager(fresh(self.program.inputs))

    @property
    def draws(self) -> bool:
        """Whether eager draws random numbers in this call, which an argument such as `training` may decide."""
        return self.expected.drew

    @cached_property
    def differentiable(self) -> list[int]:
        """Which inputs get gradients: the inexact ones, but for those that eager takes no gradient of."""
        fixed = {id(x) for x in self.sample.fixed} if self.sample is not None else set()
        return [i for i, x in enumerate(self.program.inputs) if inexact(x) and id(x) not in fixed]

    def wrong(self, ran: Ran, expected: Ran, inputs: Sequence[Tensor]) -> str | None:
        """Describe how a call's result, or its inputs afterwards, differ from the expected ones; None where they do not."""
        eager = (expected.result, list(expected.inputs))
        got = (self.settled(ran.result, expected.result, inputs), list(ran.inputs))
        return None if identical(got, eager) else inaccuracy(got, self.truth(eager, inputs))

    def louder(self, function: Callable[..., Any], ran: Ran, expected: Ran, inputs: Sequence[Tensor]) -> str | None:
        """Describe what calls print or warn of, and eager's do not; a first call, which may load a library, does not count alone."""
        if ran.noise.beyond(expected.noise) is None:
            return None
        return self.call(function, fresh(inputs)).noise.beyond(self.eager(fresh(inputs)).noise)

    def settled(self, result: Any, expected: Any, inputs: Sequence[Tensor]) -> Any:
        """Return a result with eager's positions where both name equal elements of the first input."""
        return settled(self.info, self.sample, result, expected, inputs)

    def wrong_for(self, result: Any, expected: Ran, inputs: Sequence[Tensor]) -> str | None:
        """Describe how the leaves of a result differ from the expected ones; None where they do not."""
        if identical(result, expected.result):
            return None
        truth = self.truth((expected.result, []), inputs)
        exact = truth.exact[0] if truth.exact is not None else None

        def moved(k: int) -> Any:
            bounds = truth.moved(k)
            return None if bounds is None else bounds[0]

        def of_results(errors: Callable[[int], Any] | None, k: int) -> Any:
            each = None if errors is None else errors(k)
            return None if each is None else each[: len(flat(expected.result))]

        own, others = (partial(of_results, errors) for errors in (truth.own, truth.others))
        return inaccuracy(result, replace(truth, eager=expected.result, exact=exact, moved=moved, own=own, others=others))

    def truth(self, eager: Any, inputs: Sequence[Tensor]) -> Truth:
        """Return the expected results for these inputs, given eager's."""

        whole, usual = not any(map(inexact, inputs)), torch.get_default_dtype()
        coarsest = max((torch.finfo(x.dtype).eps for x in flat(eager[0]) if inexact(x)), default=None)

        def exact(moved: int | None = None) -> Any:
            torch.set_default_dtype(torch.float64 if whole else usual)  # what the roots and quotients of integers are computed in
            try:
                if not inputs and moved is not None:
                    case, wide = self._with_moved_numbers(moved, coarsest or 0.0), []
                    ran = case.eager([], wide=True)
                else:
                    ran = self.eager(wide := widened(fresh(inputs), moved, coarsest), wide=not inputs)
            finally:
                torch.set_default_dtype(usual)
            return None if ran.error is not None else (ran.result, wide)

        return replace(self.truth_of(eager, exact(), exact), own=partial(self._own, inputs), others=partial(self._others, inputs))

    def _with_moved_numbers(self, seed: int, eps: float) -> Case:
        """Return a call without tensors with numbers that are off by about a rounding: those among its arguments that need not be whole."""
        noise, sample = generator(seed), self.sample
        for key in self._rounded_numbers:
            sample = sample.with_argument(key, sample.arguments()[key] * (1 + eps * float(torch.randn((), generator=noise, dtype=torch.float64))))
        return Case(self.subject, self.info, program_of(self.info.symbol, sample), self.label, sample)

    @cached_property
    def _rounded_numbers(self) -> list[int | str]:
        """The arguments that are numbers and of which eager takes a fraction as well."""
        keys = []
        for key, value in self.sample.arguments().items() if self.sample is not None else ():
            if type(value) in (int, float):
                other = self.sample.with_argument(key, value * (1 + DOUBLE))
                case = Case(self.subject, self.info, program_of(self.info.symbol, other), self.label, other)
                keys += [key] if case.expected.error is None else []
        return keys

    def _own(self, inputs: Sequence[Tensor], moved: int) -> Any:
        """Return the errors of eager in float32 in the same values, or in others, scaled to float64: its own in float64 are much alike."""

        def both(narrow: Sequence[Tensor]) -> tuple[Any, Any] | None:
            rough, exact = self.narrow.eager(fresh(narrow)), self.eager(widened(fresh(narrow)))
            if rough.error is not None or exact.error is not None:
                return None
            return (rough.result, list(rough.inputs)), (exact.result, list(exact.inputs))

        return own_errors(self.narrowed(inputs), both, moved)

    def _others(self, inputs: Sequence[Tensor], moved: int) -> Any:
        """Return the errors of eager for inputs that are off by a rounding."""
        nearby = perturbed(inputs, moved)
        rough, exact = self.eager(fresh(nearby)), self.eager(widened(fresh(nearby)))
        if rough.error is not None or exact.error is not None:
            return None
        return errors_of(*((each.result, list(each.inputs)) for each in (rough, exact)))

    @cached_property
    def narrow(self) -> Case:
        """The same call that computes in float32 where an argument says float64."""
        sample = self.sample
        for key, value in sample.arguments().items() if sample is not None else ():
            if isinstance(value, torch.dtype) and value in NARROW:
                sample = sample.with_argument(key, NARROW[value])
        return self if sample is self.sample else Case(self.subject, self.info, program_of(self.info.symbol, sample), self.label, sample)

    def narrowed(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Return inputs in float32 where they are float64."""
        return [x.to(NARROW.get(x.dtype, x.dtype)) for x in fresh(inputs)]

    def truth_of(self, eager: Any, exact: Any, moved: Callable[[int], Any], *, zeros: bool = True, kinds: bool = True) -> Truth:
        """Return the same from the exact result, and what computes it for inputs moved by a rounding; `zeros` and `kinds` as in `Truth`."""
        rounded = any(map(inexact, self.program.inputs))
        signed = f" {self.info.name.rpartition('.')[2].rstrip('_')} " in SIGNED
        return Truth(
            eager,
            exact,
            moved,
            self.length,
            self.info.cancellation,
            rounded,
            zeros=zeros and signed and exact is not None,
            kinds=kinds,
            sharp=zeros and self.sharp,
            moves=FEW_MOVES if sum(x.numel() for x in self.program.inputs) > LARGE else MOVES,
        )

    def widened(self, moved: int | None = None) -> list[Tensor]:
        """Return its inputs in twice the precision."""
        return widened(fresh(self.program.inputs), moved)

    @cached_property
    def prims(self) -> list[Symbol]:
        """The prims that the operation decomposes to."""
        try:
            return [line.symbol for line in every(self.specs(devices.cpu).lines, whole=False) if line.symbol.is_prim]
        except Exception:
            return []  # it needs values

    @cached_property
    def pointwise(self) -> bool:
        """Whether each element of the result depends on one of each input."""
        return bool(self.prims) and all({Tag.ELEMENTWISE, Tag.VIEW, Tag.CREATION} & set(symbol.tags) for symbol in self.prims)

    @cached_property
    def sharp(self) -> bool:
        """Whether it computes one function of real numbers, element by element, which kernels round once."""
        computing = [symbol for symbol in self.prims if Tag.ELEMENTWISE in symbol.tags and symbol is not prims.convert_element_type]
        return self.pointwise and len(computing) == 1 and not any(x.is_complex() for x in self.program.inputs)

    @cached_property
    def length(self) -> int:
        """How many terms a sum of the operation may have: the longest dimension, or elements read for each that is written."""
        if self.pointwise:
            return 1
        tensors = self.program.inputs
        written = max((x.numel() for x in flat(self.expected.result) if isinstance(x, Tensor)), default=1)
        read = max((x.numel() for x in tensors), default=1)
        return max([1, read // max(1, written), *(n for x in tensors for n in x.shape)])

    def replay(self, check: str, *, grad: bool = False, inputs: Sequence[Tensor] | None = None) -> str:
        """Write a script that shows this sample without the suite."""
        title = f"{self.info.name}: {check}, {self.label}\nfound by dovetail-conformance"
        values = self.program.inputs if inputs is None else inputs
        return script(title, self.program.text, values, self.subject.name, grad=grad, eager=self.program.eager)

    def specs(self, device: Device, *, grad: bool = False) -> Trace:
        """Record the operation without data, for any device, present or not."""
        trace = Trace()
        if not self.info.symbol.is_prim and self.info.symbol.module != "numpy":
            trace.environment.proxy = TorchProxy  # with the attributes of tensors, as in a program that is traced: decompositions read these
        proxies = [trace.tensor(spec_of(x.detach()).like(device=device, requires_grad=grad and inexact(x))) for x in self.program.inputs]
        trace.inputs = list(proxies)
        with recording(trace), calm():
            trace.outputs = self.program.symbolic(*proxies)
        return trace


def _has_moved(before: Tensor) -> bool:
    """Return whether torch's generator has drawn since it had this state."""
    return not torch.equal(before, torch.default_generator.get_state())


def errors_of(rough: Any, exact: Any, scale: float = 1.0) -> list[Any] | None:
    """Return the errors of results relative to those in twice the precision, times `scale`; None where they do not correspond."""
    leaves = [flat(rough), flat(exact)]
    if len(leaves[0]) != len(leaves[1]):
        return None
    return [(a.to(b.dtype) - b) * scale if isinstance(b, Tensor) and inexact(b) and a.shape == b.shape else b for a, b in zip(*leaves)]


def own_errors(inputs: Sequence[Tensor], both: Callable[[Sequence[Tensor]], tuple[Any, Any] | None], moved: int = 0) -> list[Any] | None:
    """Return the errors of results in float32, relative to those in float64, as small as those of float64; None where they do not correspond.

    `both` returns the results of inputs in float32, rounded and exact. Of an element that float32 lost, as where log(1 + x) is 0, the error is no
    larger than the element, however large one might be and be lost: the largest element tells that is lost for these inputs or for smaller ones.
    With `moved`, a seed, they are those of other inputs, in elements that stay about as large: eager may be lucky where one rounding decides.
    """
    pair = both(inputs)
    errors = None if pair is None else errors_of(*pair, OWN)
    if errors is None:
        return None
    if moved:
        noise = generator(moved)
        other = both([nudged(x, ELSEWHERE, noise).to(x.dtype) if inexact(x) else x for x in inputs])
        errors = None if other is None else errors_of(*other, OWN)
        alike = errors is not None and len(errors) == len(flat(pair[1]))
        return [_where_alike(*each) for each in zip(errors, flat(other[1]), flat(pair[1]))] if alike else None
    lost = [_lost(*each) for each in zip(*map(flat, pair))]
    for factor in SMALLER if any(x is not None for x in lost) else ():
        smaller = both([x * factor if inexact(x) else x for x in inputs])
        if smaller is not None and len(flat(smaller[0])) == len(flat(smaller[1])) == len(errors):
            most = [None if x is None else _largest_lost(*each) for x, each in zip(lost, zip(*map(flat, smaller)))]
            errors = [x if m is None else torch.where(at, x.abs().clamp_min(OWN * m).to(x.dtype), x) for x, at, m in zip(errors, lost, most)]
    return errors


def _where_alike(error: Any, exact: Any, before: Any) -> Any:
    """Return the errors of the elements that are at most twice as large or as small as before, and zeros."""
    if not isinstance(exact, Tensor) or not inexact(exact) or exact.shape != before.shape:
        return error
    return torch.where((exact.abs() <= 2 * before.abs()) & (before.abs() <= 2 * exact.abs()), error, 0.0)


def _lost(rough: Any, exact: Any) -> Tensor | None:
    """Return which elements have no right digit; None where all have one."""
    if not isinstance(exact, Tensor) or not exact.is_floating_point() or rough.shape != exact.shape:
        return None
    lost = ((rough.to(exact.dtype) - exact).abs() > LOST * exact.abs()) & torch.isfinite(rough) & torch.isfinite(exact)
    return lost if bool(lost.any()) else None


def _largest_lost(rough: Any, exact: Any) -> float | None:
    """Return the largest element that has no right digit, as an absolute number; None where all have one."""
    lost = _lost(rough, exact)
    return None if lost is None else float(exact[lost].abs().max())


def executed(function: Callable[..., Any]) -> list[Trace]:
    """Return the traces of the last call: the computation, the views and writes after it, and the backward; none where it ran in eager mode."""
    if not function.cache_info().programs:
        return []
    groups = (dovetail.last_traces(function), dovetail.last_epilogue_traces(function), dovetail.last_backward_traces(function))
    return [traces[-1] for traces in groups if traces]


def cases(subject: Subject, info: OpInfo, dtype: DType, device: Device, choose: Callable[[list[Case]], list[Case]], extremes: bool) -> list[Case]:
    """Return the samples of an operation as cases: those that `choose` keeps, and those with extreme values."""
    all_cases = [
        Case(subject, info, program_of(info.symbol, sample), message(sample), sample) for sample in islice(info.samples(dtype, device), MOST)
    ]
    all_cases = choose(all_cases)
    return all_cases + (list(_extremes(subject, info, all_cases)) if extremes else [])


def chosen(candidates: list[Case], most: int) -> list[Case]:
    """Choose about `most` of the cases: one for each way of passing the other arguments, then others, evenly from first to last."""
    if len(candidates) <= most:
        return candidates
    first: dict[Any, int] = {}
    for i, case in enumerate(candidates):
        first.setdefault(case.program.template, i)
    kept = set(first.values())
    others = [i for i in range(len(candidates)) if i not in kept]
    n = max(0, most - len(kept))
    kept |= {others[i * (len(others) - 1) // max(1, n - 1)] for i in range(min(n, len(others)))}
    return [candidates[i] for i in sorted(kept)]


def _extremes(subject: Subject, info: OpInfo, known_cases: Sequence[Case]) -> Iterator[Case]:
    """Yield the first sample large enough with extreme values put in, for each kind that the OpInfo lists."""
    for kind in info.extremes:
        for case in known_cases:
            inputs = extreme(case.program.inputs, kind)
            if inputs is not None:
                yield Case(subject, info, replace(case.program, inputs=inputs), f"{case} with {kind} values")
                break


def cotangents(result: Any) -> list[Tensor]:
    """Return a cotangent for each result that requires grad, the same ones for the same shapes."""
    drawn = []
    for x in flat(result):
        if isinstance(x, Tensor) and x.requires_grad:
            drawn.append(torch.randn(x.shape, generator=generator(SEED), dtype=torch.float64).to(x.device, x.dtype))
    return drawn

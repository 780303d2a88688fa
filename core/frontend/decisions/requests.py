"""Requests for traced values: truth, a number, a comparison, or an operation with a result of a shape that depends on values."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from dovetail import prims
from dovetail.errors import TracedValueError, ValueDependent
from dovetail.frontend.class_lookup import NULL
from dovetail.frontend.decisions import steps
from dovetail.frontend.decisions.late_sizes import Moving, Place
from dovetail.frontend.decisions.outside import assigned, draws, frozen, is_in_place, mapped, on_copy, proxies_in, runnable, template_of
from dovetail.frontend.decisions.state import Machinery, Same
from dovetail.frontend.interpreter.engine import Abandon
from dovetail.frontend.recording.checkpoint import Checkpoint
from dovetail.frontend.recording.host_numbers import CONVERSIONS, ROUNDINGS, VALUE, meaning
from dovetail.frontend.recording.tracked_environment import TrackedEnvironment, drawn_value
from dovetail.langs.torch import SymbolicInt
from dovetail.prims import recorder
from dovetail.prims.sizes import Size
from dovetail.torch_internals import any_autocast
from dovetail.trace import NumberProxy, Proxy, TensorProxy, Trace, user_line
from dovetail.trace.proxies import no_value

_COMPARISONS: dict[str, Callable] = {f"__{name}__": getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")}
_SIGNS = {"__eq__": "==", "__ne__": "!=", "__lt__": "<", "__le__": "<=", "__gt__": ">", "__ge__": ">="}
FEW = 2  # outcomes of floats, text that one is written into and what the system draws, which rarely repeat


@dataclass(frozen=True)
class Request:
    """A value that the program needs.

    Attributes:
        what: a noun for messages.
        mark: equal for requests that ask the same of the values that they read; None where that cannot be told.
        reads: the traced values in question.
        step: returns the outcome for real values, and the values that come with it.
        most: how many outcomes there may be, None for the option `outcome_limit`.
        text: `step` as an expression, with a place for each value; None where it is more than an expression.
        place: where sizes come from that depend on values; None where there are none.
        inputs: inputs of the trace that are read as they were before the program wrote them, behind `reads`.
    """

    what: str
    mark: Any
    reads: Sequence[Proxy]
    step: Callable[..., tuple[Any, tuple]]
    most: int | None = None
    text: str | None = None
    place: Place | None = None
    inputs: Sequence[Proxy] = ()


class Requester(Machinery):
    """Answers requests for traced values by decisions.

    Attributes:
        numbers: numbers of the program whose values earlier decisions have fixed.
        sized: integers of the program that operations take, and which are symbols there.
        put_in: what stands in place of arguments in the calls that are attempted now.
        restarts: whether a call in which something raises starts again in eager mode.
        raises_late: whether a line may raise here in the place of Python: the program does not handle the error.
        reads_positions: whether x[i] with a tensor i has to know i.
        visited: how many lines of the trace belong to segments that are complete.
        calls_python: whether gradients go through code of the user's that runs between two segments.
    """

    restarts = False
    raises_late = False
    reads_positions = False
    visited = 0
    calls_python = False

    trace: Trace
    environment: TrackedEnvironment

    def __init__(self) -> None:
        self.numbers: dict[Proxy, Any] = {}
        self.sized: dict[Proxy, Size] = {}
        self.put_in: list[Any] = []
        self.cuts = 0

    def attach(self, trace: Trace, environment: TrackedEnvironment) -> None:
        """Answer the requests of a run from here on."""
        self.trace, self.environment = trace, environment
        environment.session = self

    def created(self, new: torch.Generator) -> torch.Generator:
        """Return the generator that the program creates here in every run that takes the same way, `new` in the first one."""
        return new

    def decide(self, request: Request) -> tuple[Any, dict[Proxy, int]]:
        """Return the outcome of a request, and where the values are that arrive at it, for those that come with it."""
        raise NotImplementedError

    @property
    def is_open(self) -> bool:
        """Whether the program is at a point where it can be cut: not inside an operation."""
        return recorder.get() is self.trace and not self.trace.depth

    def answer(self, proxy: Proxy, question: str, others: tuple) -> Any:
        """Return `proxy.question(*others)`; raises TracedValueError where that cannot be known."""
        if not self.is_open:
            raise no_value(proxy)
        if isinstance(proxy, TensorProxy):
            return self._of_tensor(proxy, question)
        if any([isinstance(x, TensorProxy) for x in others]):
            return NotImplemented
        if question == "__bool__" and proxy not in self.numbers and proxy.spec.kind in ("int", "float"):
            return self._comparison(proxy, "__ne__", operator.ne, 0)
        if (
            proxy not in self.numbers
            and (compare := _COMPARISONS.get(question)) is not None
            and type(others[0]) in (int, float, bool, str, NumberProxy)
        ):
            return self._comparison(proxy, question, compare, others[0])
        value = self.number(proxy)
        return meaning(question, value, tuple([self.number(x) if isinstance(x, NumberProxy) else x for x in others]))

    def number(self, number: Proxy) -> Any:
        """Return the value of a number of the program."""
        if number not in self.numbers:
            most = FEW if number.spec.kind in ("float", "complex", "str") else None
            outcome, _ = self.decide(Request("a number", VALUE, [number], steps.number, most))
            self.numbers[number] = outcome.value
        return self.numbers[number]

    def size(self, number: Proxy) -> Any:
        """Return the value of an integer that an operation takes: a symbol where it has differed from call to call."""
        if number in self.sized:
            return self.sized[number]
        if number in self.numbers:
            return self.numbers[number]
        if (opposite := self._opposite(number)) is not None:  # as in x[-n:]
            return -self.size(opposite)
        place = user_line(), "a number"
        moving = bool(self.moving(place))
        outcome, arriving = self.decide(Request("a number", ("size", moving), [number], steps.WholeNumber(moving), place=place))
        for size in self.symbols(place, outcome.sizes):
            arriving[next(size.atoms()).proxy] = len(arriving)
            self.sized[number] = size
            return size
        if isinstance(number, NumberProxy):
            self.numbers[number] = outcome.value
        return outcome.value

    def _opposite(self, number: Proxy) -> Proxy | None:
        """Return the number of which the program computes `number` as the negative; None for other numbers."""
        line = next((line for line in reversed(self.trace.lines) if line.out is number), None)
        return line.args[0] if line is not None and line.symbol is prims.arithmetic and line.kwargs["op"] == "neg" else None

    def _comparison(self, number: Proxy, question: str, compare: Callable, other: Any) -> bool:
        sign = _SIGNS[question]
        other = self.numbers.get(other, other) if isinstance(other, NumberProxy) else other
        if isinstance(other, NumberProxy):
            return self.decide(Request("a comparison", question, [number, other], lambda x, y: (compare(x, y), ()), None, f"{{}} {sign} {{}}"))[0]
        text = f"{{}} {sign} {other!r}" if type(other) in (int, bool) or (type(other) is float and math.isfinite(other)) else None
        mark = question, type(other), repr(other)
        return self.decide(Request("a comparison", mark, [number], lambda x: (compare(x, other), ()), None, text))[0]

    def _of_tensor(self, tensor: TensorProxy, question: str) -> Any:
        if tensor.spec.numel != 1:
            raise no_value(tensor)
        if question == "__bool__":
            return self.decide(Request("a condition", question, [tensor], steps.truth, None, "bool({})"))[0]
        if question in ROUNDINGS[1:]:  # as math.floor(t)
            if tensor.spec.dtype.kind == "complex":
                return getattr(self._of_tensor(tensor, "__float__"), question)()  # raises
            number = tensor.item()
            return getattr(number if number.spec.kind == "float" else prims.arithmetic(number, op="float"), question)()
        convert = CONVERSIONS.get(question)
        if convert is None or (question == "__index__" and tensor.spec.dtype.kind not in ("int", "bool")):
            raise no_value(tensor)
        most = None if tensor.spec.dtype.kind in ("int", "bool") or question == "__int__" else FEW
        return self.decide(Request("a number", question, [tensor], steps.Converted(convert), most))[0].value

    def attempt(self, call: Callable, args: Sequence[Any], kwargs: dict, *, sizes: bool = False) -> Any:
        """Return call(*args, **kwargs), called again with numbers in place of arguments that it needs the values of, or between two segments.

        `sizes` says that it takes symbols for integers.
        """
        if not self.is_open:
            return call(*args, **kwargs)
        with self.putting_in():
            return self._attempt(call, tuple(args), kwargs, sizes)

    @contextmanager
    def putting_in(self) -> Iterator[list[Any]]:
        """Yield the list of what stands in place of arguments, for a call that adds to it: a state differs where these do."""
        known = len(self.put_in)
        try:
            yield self.put_in
        finally:
            del self.put_in[known:]

    def _attempt(self, call: Callable, args: tuple, kwargs: dict, sizes: bool) -> Any:
        while True:
            before = Checkpoint(self.environment, self.trace)
            try:
                return call(*args, **kwargs)
            except ValueDependent as error:
                if error.call is None or not before.can_return():
                    raise
                numbers = [p for p in proxies_in(error.call[1:]) if isinstance(p, NumberProxy) and p not in self.numbers]
                if not numbers or (runnable(error.call[:1] + tuple(error.call[1]), error.call[2]) and self.is_plain()):
                    before.drop_lines()
                    return self.run_outside(*error.call)
                needed, question = next((p for p in proxies_in((args, kwargs)) if p is numbers[0]), None), ""
                if needed is None:
                    raise
            except TracedValueError as error:
                needed, question = self.needed(error, args, kwargs), error.question
                if needed is None or not before.can_return():
                    raise
            before.drop_lines()
            if self.is_unknown_float(needed) and (outside := runnable(args, kwargs)) is not None and self.is_plain():
                return self.run_outside(*outside, kwargs)
            if question == "tolist":
                value = self.environment.listed(needed)
            elif sizes and _is_whole(needed):
                value = self.size(needed)
            else:
                value = self.number(needed) if isinstance(needed, NumberProxy) else self._of_tensor(needed, question)
            self.put_in.append(value)
            args, kwargs = mapped(lambda x, old=needed, new=value: new if x is old else x, (args, kwargs))

    def needed(self, error: TracedValueError, args: Sequence[Any], kwargs: dict) -> Proxy | None:
        """Return which argument of an operation has to be known, after an error; None where the error does not concern its arguments."""
        among = proxies_in((args, kwargs))
        if error.proxy is None or any([error.proxy is p for p in among]):
            return error.proxy
        return next((p for p in among if isinstance(p, NumberProxy) and p not in self.numbers), None)  # it has computed with this one

    def is_unknown_float(self, x: Proxy) -> bool:
        """Return whether a value is a float of the program that no decision has fixed: it rarely repeats."""
        return isinstance(x, NumberProxy) and x.spec.kind == "float" and x not in self.numbers

    def is_plain(self) -> bool:
        """Return whether an operation computes the same between two segments as it would here."""
        return not any_autocast()

    def run_outside(self, function: Callable, args: Sequence[Any], kwargs: dict) -> Any:
        """Call an operation between two segments, since it takes the value of a float; what it would write is written by the program."""
        if draws(function):
            self.note_draw([kwargs.get("device"), *[p.spec.device for p in args if isinstance(p, TensorProxy)]])
        if not is_in_place(function):
            return self.call_outside(function, args, kwargs)
        written, results = args[0], self.call_outside(on_copy(function), args, kwargs)
        for p, result in [(written, results)] if isinstance(written, TensorProxy) else zip(written, results, strict=True):
            p.copy_(result)
        return written

    def note_draw(self, devices: Sequence[Any]) -> None:
        """Remember that a call between two segments draws from the generators of these devices; None is the default device."""

    def call_python(self, function: Callable, args: Sequence[Any], kwargs: dict) -> Any:
        """Call a function of the user's between two segments: gradients go through it, and it may draw from any generator."""
        self.calls_python = True
        self.note_any_draw()
        return self.call_outside(function, args, kwargs)

    def note_any_draw(self) -> None:
        """Remember that a call between two segments may draw from any generator."""

    def call_outside(self, function: Callable, args: Sequence[Any], kwargs: dict) -> Any:
        """Call an operation with a result whose shape depends on values, or that is no tensor: it runs by itself between two segments."""
        arguments = mapped(_as_number, (tuple(args), dict(kwargs)))
        reads, template = template_of(arguments)
        grad = torch.is_grad_enabled()
        name = getattr(function, "__name__", str(function)).strip("_")
        place = user_line(), name
        moving = self.moving(place)
        dims = {i: [d for j, d in moving if i == j] for i, _ in moving}
        step = steps.Operation(function, template, len(reads), grad, dims)
        mark = Same(function), grad, moving, frozen(template)
        most = FEW if function is torch.Tensor.tolist and args[0].spec.dtype.inexact else None
        outcome, arriving = self.decide(Request(f"the result of {name}", mark, reads, step, most, place=place))
        if outcome.many is None:
            return mapped(lambda x: x, outcome.value)  # the program may write to a list
        symbols = self.symbols(place, outcome.sizes)
        results = [self.trace.tensor(spec) for spec in outcome.specs(symbols)]
        numbers = [next(size.atoms()).proxy for size in symbols]
        count = len(arriving)
        arriving.update({p: count + i for i, p in enumerate([*results, *numbers])})
        if not outcome.many:
            return results[0]
        return outcome.many(*results) if hasattr(outcome.many, "_make") else outcome.many(results)

    def arithmetic(self, *numbers: Any, op: str) -> NumberProxy:
        """Return what Python computes of numbers where the program may handle the error that it raises: which error, or none, is the outcome."""
        reads, template = template_of(numbers)
        step = steps.Arithmetic.of(op, template, len(reads))
        what = f"the result of {op.removeprefix('math.')}"
        outcome, arriving = self.decide(Request(what, ("arithmetic", op, frozen(template)), reads, step))
        if outcome is not True:
            kind, args = outcome.value
            raise kind(*args)
        kinds = [x.spec if isinstance(x, NumberProxy) else x for x in numbers]
        number = NumberProxy(f"n{next(self.trace.names)}", prims.arithmetic.meta(*kinds, op=op))
        arriving[number] = len(arriving)
        return number

    def moving(self, place: Place) -> Moving:
        """Return which sizes of the results of an operation are symbols."""
        return frozenset()

    def symbols(self, place: Place, values: Sequence[int]) -> list[Size]:
        """Return new symbols for sizes that depend on values."""
        return []

    def draw(self, call: Callable[[], Any], kind: str, what: str, mark: Any, generator: Any) -> Any:
        """Return the result of a call that reads the world outside or a random state: it runs between two segments, whenever the program gets there.

        Args:
            call: the call.
            kind: a key of DRAWN for a number of the program, "array" for an array of NumPy's, "outcome" for a value each of which is an outcome,
                "unique" for one that hardly repeats, "effect" for None.
            what: a name for messages.
            mark: equal for equal calls.
            generator: what it draws from; None for another part of the world.
        """
        raise NotImplementedError

    def assign(self, operate: Callable, tensor: TensorProxy, key: Any, value: Any) -> None:
        """Do `tensor[key] = value` for a key with a mask; between two segments where the mask says which elements of `value` go where."""
        before = Checkpoint(self.environment, self.trace)
        try:
            self.attempt(operate, ("set_item", tensor, key, value), {})
        except ValueDependent:
            before.drop_lines()
            tensor.copy_(self.call_outside(assigned, (tensor, key, value), {}))

    def start_again_after(self, error: TracedValueError) -> None:
        """Let a call start again in eager mode where an operation raises an error that the program handles: a graph does."""

    def create_leaf(self, p: TensorProxy) -> None:
        """Note that the program makes a tensor a leaf that requires a gradient."""

    def holds(self, predicate: Callable, args: Sequence[Any], kwargs: dict) -> bool:
        """Return the result of a predicate of numbers, which is a decision."""
        arguments = mapped(lambda x: self.numbers.get(x, x) if isinstance(x, NumberProxy) else x, (tuple(args), kwargs))
        reads, template = template_of(arguments)
        step = steps.Predicate(predicate, template, len(reads))
        return self.decide(Request("a condition", (Same(predicate), frozen(template)), reads, step))[0] if reads else step.call()

    def counted(self, bounds: Sequence[Any]) -> Any:
        """Return the iterator of a `for` loop over range(*bounds), where its numbers need not be known; None where they have to be."""
        return None


def _is_whole(x: Proxy) -> bool:
    """Return whether a value is one integer."""
    if isinstance(x, NumberProxy):
        return x.spec.kind == "int"
    return x.spec.numel == 1 and x.spec.dtype.kind == "int"


def _as_number(x: Any) -> Any:
    """Return a size as a number that the program computes; anything else as it is."""
    size = x.size if type(x) is SymbolicInt else x
    return prims.integer(value=size) if type(size) is Size else x


@dataclass(frozen=True)
class Need:
    """The first value that a program needs: the user's line, the error where that is not allowed, and whether it is an error that is handled."""

    where: str
    error: TracedValueError
    handled: bool = False


class NeedsDecisions(Abandon):
    """The program needs a value: it is no straight line."""

    def __init__(self, need: Need):
        super().__init__(need.where)
        self.need = need


class Probe(Requester):
    """Abandons a run that needs a value."""

    def decide(self, request: Request) -> Any:
        raise NeedsDecisions(Need(user_line(), no_value(request.reads[0])))

    def start_again_after(self, error: TracedValueError) -> None:
        raise NeedsDecisions(Need(user_line(), error, handled=True))

    def draw(self, call: Callable[[], Any], kind: str, what: str, mark: Any, generator: Any) -> Any:
        if kind not in ("outcome", "unique"):
            return NULL  # it runs before the program, until Python branches on its result
        raise NeedsDecisions(Need(user_line(), drawn_value(what)))

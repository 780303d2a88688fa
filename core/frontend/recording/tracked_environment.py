"""What a tracked run tells the torch language about the world outside: where real tensors come from, and who answers what depends on values."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

import torch

from dovetail import prims
from dovetail.errors import EagerCall, TracedValueError, Unsupported
from dovetail.frontend.aten import overload_of, torch_call
from dovetail.frontend.autocast import cast, cast_results
from dovetail.frontend.autograd.created_leaves import Parts, check_no_leaf
from dovetail.frontend.environment import RecordingMode, TorchEnvironment, constant_copy, lift_leaf
from dovetail.frontend.guards.guard import Guard, Miss
from dovetail.frontend.guards.prologue import checks
from dovetail.frontend.interpreter.handlers import is_handled
from dovetail.frontend.interpreter.tracebacks import is_own_code
from dovetail.frontend.known_results import depends_on_values, known_result
from dovetail.frontend.recording import host_numbers
from dovetail.frontend.recording.metadata_writes import follow_view, resize_out
from dovetail.frontend.subclasses import is_wrapper
from dovetail.langs.torch import LANGUAGE, SymbolicInt, is_numpy_number, size_of, symint, write_out
from dovetail.prims import NumberSpec, Symbol, recorder
from dovetail.prims.arithmetic_table import COMPARISONS
from dovetail.prims.sizes import Real, Size, relations_in
from dovetail.torch_internals import OpOverload, OpOverloadPacket, any_autocast
from dovetail.trace import NumberProxy, Proxy, TensorProxy, Trace, is_proxy, requires_grad, to_callable, tree_map, user_line
from dovetail.trace.raising import ERRORS, may_raise

if TYPE_CHECKING:
    from dovetail.frontend.interpreter.tracking.tracker import Tracker


def _array_of(arrays: Any, tensor: Proxy, dtype: Any = None, copy: bool | None = None) -> Any:
    array = arrays.of_tensor(tensor)
    return array if dtype is None and not copy else arrays.converted(array, dtype, copy)


_TO_ARRAY = {
    torch.Tensor.numpy: lambda arrays, tensor, *, force=False: arrays.of_tensor(tensor, force=force),
    torch.Tensor.__array__: _array_of,
}
DRAWN = {"float": torch.float64, "int": torch.int64, "bool": torch.bool}  # dtypes of numbers that are drawn at every call
_LISTED = 64  # elements of a tensor that `tolist` returns one by one
WAYS_OUT = (
    "mark the function that calls it with @dovetail.opaque, which runs it as it is at every call, tell Dovetail how to trace it with "
    'dovetail.extend.advanced.lookaside, or compile with interpretation="native"'
)


def tensor_of(array: Any) -> torch.Tensor:
    """Return the tensor for an array, or a scalar of NumPy's, that a random generator has drawn."""
    return torch.from_numpy(sys.modules["numpy"].asarray(array))


def drawn_value(what: str) -> TracedValueError:
    """Return the error for a call that draws from a random state where the program needs the value."""
    return TracedValueError(f"the value that {what} draws is needed at {user_line()}; tracing knows no values; draw outside, and pass the result")


_INTO_EXPANDED = "setitem index_put_ masked_fill_ index_fill_ fill_diagonal_ fill_ zero_"  # operations that write into expanded tensors as well
_WRITES_REPEATS = frozenset(_INTO_EXPANDED.split())
_DATA = frozenset({"equal", "len", "keys", "truthy", "falsy", "has", "hasnot"})  # kinds of guards


_OF_FUNCTIONS = frozenset({"__closure__", "__defaults__", "__kwdefaults__"})


def _is_data(guard: Guard) -> bool:
    """Return whether a guard is on data, and not on code, or on what a call or a setting gives."""
    value, kind, source = guard.value, guard.kind, guard.source
    while source is not None:
        if source.kind in ("fresh", "setting"):
            return False
        source = source.parent
    return kind in _DATA or (kind == "is" and not callable(value) and type(value) is not ModuleType)


def _is_of_object(guard: Guard) -> bool:
    """Return whether a guard on data is on a part of an object; variables, and attributes of classes and modules, hardly change."""
    source, parent = guard.source, guard.source.parent
    if source.root.kind == "arg":
        return parent is not None and parent.parent is not None
    if parent is None or source.key == "cell_contents":
        return False
    if parent.kind != "const":
        return parent.key not in _OF_FUNCTIONS
    owner = parent.key
    return not isinstance(owner, (type, ModuleType, FunctionType, torch.nn.Module)) and not (type(owner) is dict and "__name__" in owner)


class TrackedEnvironment(TorchEnvironment):
    """Lends a tracked run what `TorchEnvironment` lends to a native one; a real tensor without a guard is refused."""

    def __init__(self, language: Any):
        super().__init__(language)
        self.tracker: Tracker | None = None
        self.session: Any = None  # answers what the program needs to know of values; None where that is refused
        self.arrays: Any = None  # what is done with NumPy arrays, once there is one
        self.array_inputs: dict[Proxy, Any] | None = None  # the arrays that are inputs, once the run has seen arrays
        self.parts = Parts()
        self.casting = self.parsing = False  # `parsing`: whether torch's own parser looks at arguments
        self.reals: dict[Proxy, Any] = {}  # numbers of the program that are computed of sizes -> the size or Real
        self.computes = True  # whether there are such
        self.read_later: dict[tuple, Guard] = {}  # what backwards of the user's depend on
        self.most_guards: int | None = None  # how many there may be, once the prologue is complete

    def freeze_guards(self) -> None:
        """Refuse further guards: the prologue is complete."""
        self.most_guards = len(self.tracker.guards)

    def forget(self) -> None:
        """Release everything that the run has seen: it lies in cycles, and would live until the garbage collector runs."""
        tracker, self.tracker, self.tensors, self.constants = self.tracker, None, [], {}
        self.arrays = None
        if tracker is not None:
            tracker.recorder.forget()
            held = dict(vars(tracker))  # it may be the last to hold generators, which are closed once the run is over
            vars(tracker).clear()
            tracker.is_over = True
            held.clear()

    def value_of(self, proxy: Proxy, trace: Trace) -> torch.Tensor | None:
        return None if self.restarts else super().value_of(proxy, trace)  # a state of the program has no place for it

    def value(self, proxy: Proxy, question: str, others: tuple) -> Any:
        if type(proxy) is NumberProxy and self.language is LANGUAGE:
            of_sizes, others = self.session is None and proxy in self.reals, tuple(map(self.number_of, others))
            number = None
            if of_sizes or not recorder.get().depth or self._changes(proxy):
                divides = question.strip("_").removeprefix("i") in host_numbers.DIVISIONS
                raising = self.raising((proxy, *others)) or (self.dividing(others[0]) if divides else None)
                number = host_numbers.computed(proxy, question, others, known=self.known_numbers, raising=raising)
            if number is not None:
                return self.noted(number)
            if of_sizes:
                if question.strip("_") in COMPARISONS and all([type(x) in (int, float) or x in self.reals for x in others]):
                    return bool(self.rounded(self._real(question.strip("_"), (proxy, *others))))
                return host_numbers.meaning(question, self._pinned(proxy), tuple(map(self._pinned, others)))
        if question == "__bool__" and isinstance(proxy, TensorProxy) and self.language is LANGUAGE and proxy.spec.numel != 1:
            values = "more than one value" if proxy.spec.numel else "no values"
            raise RuntimeError(f"Boolean value of Tensor with {values} is ambiguous")
        if self.session is None or self.parsing:
            answer = self._of_outside(proxy, question, others)
            return super().value(proxy, question, others) if answer is None else answer
        return self.session.answer(proxy, question, others)

    def _changes(self, number: NumberProxy) -> bool:
        """Return whether a number in a straight program is one from outside that changes, or computed of such alone."""
        return self.session is None and self.tracker is not None and self.tracker.recorder.changing.computes(number)

    def check_write(self, p: Proxy, trace: Trace) -> None:
        autograd = self.tracker.recorder.autograd
        if autograd.leaves or requires_grad(p):
            check_no_leaf(p, lambda root: autograd.refuses_writes(self.tracker, root), (*trace.enclosing, trace.lines))

    def note_write(self, p: Proxy, trace: Trace) -> None:
        self._check_repeats(p, trace)
        if self.parts.exist:
            self.parts.note_write(p, (*trace.enclosing, trace.lines))

    def _check_repeats(self, p: Proxy, trace: Trace) -> None:
        """Let a call run in eager mode that writes into memory with several elements in one place, where PyTorch does so."""
        if not isinstance(p, TensorProxy):
            return
        root = p
        while root in trace.views:
            root = trace.views[root].args[0]
        name = (trace.operation or "").rpartition(".")[2]
        repeats = p.spec.repeats
        if (repeats and name in _WRITES_REPEATS) or (not repeats and root.spec.repeats):  # PyTorch refuses the other ones
            raise EagerCall(f"the program writes into elements of an expanded tensor that share memory; clone() it before\n  called at {user_line()}")

    def _of_outside(self, proxy: Proxy, question: str, others: tuple) -> int | None:
        """Return what a method of a number from outside returns, and guard it; None where the proxy is no such number, or that takes its value."""
        if type(proxy) is not NumberProxy or self.language is not LANGUAGE or self.parsing:
            return None
        ask, form = host_numbers.as_function(question, others)
        return self.answer(ask, (proxy, *others), form)

    def answer(self, ask: Callable, operands: Sequence[Any], form: str) -> int | None:
        """Return what `ask` returns for numbers from outside that change, and guard it; None where it asks for more than that."""
        return None if self.tracker is None else self.tracker.recorder.changing.answer(self.tracker, ask, operands, form)

    @property
    def restarts(self) -> bool:
        """Whether a call in which a line of the program raises starts again in eager mode."""
        return self.session is not None and self.session.restarts

    def raising(self, operands: Sequence[Any]) -> Callable[..., NumberProxy] | None:
        """Return what records arithmetic that may raise: a line, or a decision where the program handles the error; None where neither can be."""
        if self.session is None:
            computes = self.tracker.recorder.changing.computes
            from_outside = all([type(x) is not NumberProxy or x in self.reals or computes(x) for x in operands])  # sizes, and numbers that change
            return prims.arithmetic if from_outside and not is_handled() else None
        if not self.session.is_open:
            return None
        return prims.arithmetic if self.session.raises_late else self.session.arithmetic

    def dividing(self, divisor: Any) -> Callable[..., NumberProxy] | None:
        """Return what records a division by a number that is computed of sizes and, as a guard checks, not zero; None for other divisors."""
        of_sizes = self.session is None and type(divisor) is NumberProxy and divisor in self.reals
        return prims.arithmetic if of_sizes and bool(self.rounded(self._real("ne", (divisor, 0)))) else None

    @property
    def known_numbers(self) -> Mapping[Proxy, Any]:
        """The numbers of the program whose values decisions have fixed."""
        return self.session.numbers if self.session is not None else {}

    # numbers that are computed of sizes

    def of_sizes(self, op: str, operands: tuple) -> Any:
        if not self.computes or recorder.get().depth or self.language is not LANGUAGE:
            return None
        return self.noted(prims.arithmetic(*[self.number_of(symint(x)) for x in operands], op=op))

    def number_of(self, x: Any) -> Any:
        """Return a size as a number of the program, anything else as it is."""
        if type(x) is not SymbolicInt or not self.computes:
            return x
        number = prims.integer(value=x.size)
        self.reals[number] = x.size
        return number

    def noted(self, number: Any) -> Any:
        """Return the result of the arithmetic that was recorded last: where it is a whole number that is computed of sizes, as a size."""
        if type(number) is tuple:
            return tuple(map(self.noted, number))
        lines = recorder.get().lines
        line = next((line for line in reversed(lines[-2:]) if line.out is number and line.symbol is prims.arithmetic), None)
        if line is None or not all([type(x) is not NumberProxy or x in self.reals for x in line.args]):
            return number
        if number.spec.kind != "int" or self.session is not None:
            self.reals[number] = self._real(line.kwargs["op"], line.args)
            return number
        size = self.rounded(self._real(line.kwargs["op"], line.args))
        return size if recorder.get().depth else symint(size)

    def _real(self, op: str, operands: Sequence[Any]) -> Real:
        return Real(op, tuple([self.reals[x] if type(x) is NumberProxy else x for x in operands]))

    def real_of(self, number: Any) -> Any:
        return self.reals.get(number, number) if type(number) is NumberProxy and self.session is None else number

    def rounded(self, real: Real) -> Any:
        size, atom = relations_in(real).rounded(real)
        if atom is not None:
            atom.proxy = NumberProxy(atom.name, NumberSpec("int"))
        return size

    def _pinned(self, x: Any) -> Any:
        """Return the value of a number that is computed of sizes, on which the program then depends."""
        value = self.reals.get(x, x) if type(x) is NumberProxy else x
        return value.pinned() if type(value) is Real else int(value) if type(value) is Size else value

    def resize_out(self, out: Any, value: Any) -> bool:
        """Return whether an empty tensor of the program has become the result that is written into it."""
        return self.tracker is not None and resize_out(self.tracker.recorder, out, value)

    def call(self, func: Callable, args: tuple, kwargs: dict) -> Any:
        if func in _TO_ARRAY and self.tracker is not None:
            return _TO_ARRAY[func](self.tracker.recorder.arrays, *args, **kwargs)
        if depends_on_values(func, args, kwargs):
            plain = {name: x for name, x in kwargs.items() if name != "out"}
            result = known_result(func, args, plain)
            if result is None and self.session is not None and self.session.is_open:
                result = (self.session.call_outside(func, args, plain),)
            if result is not None:
                return result[0] if kwargs.get("out") is None else write_out(kwargs["out"], result[0])
        overload = overload_of(func, args, kwargs) if type(func) is OpOverloadPacket else func
        if type(overload) is OpOverload and "out" not in kwargs:
            with RecordingMode():
                try:
                    return torch_call(overload, partial(self._as_it_is, func))(*args, **kwargs)
                except Unsupported as error:
                    if overload is func or isinstance(error, EagerCall):
                        raise
                return self._as_it_is(func, *args, **kwargs)
        return super().call(func, args, kwargs)

    def _as_it_is(self, func: Callable, *args: Any, **kwargs: Any) -> Any:
        """Record a call of an operator of ATen that no operation fits."""
        return super().call(func, args, kwargs)

    def listed(self, tensor: Proxy) -> Any:
        if tensor.spec.numel <= _LISTED:
            return [self.listed(tensor[i]) for i in range(tensor.spec.shape[0])] if tensor.spec.shape else tensor.item()
        if self.session is None or not self.session.is_open:
            return super().listed(tensor)
        return self.session.call_outside(torch.Tensor.tolist, (tensor,), {})

    @property
    def pending_writes(self) -> int:
        return len(self.tracker.effects.log)

    @contextmanager
    def differentiating(self) -> Iterator[None]:
        if not self.finished:  # it runs in this program
            yield
            return
        self.tracker.later = read = {}
        try:
            yield
        finally:
            self.tracker.later = None
        data = {key: guard for key, guard in read.items() if _is_data(guard)}
        if (part := next(filter(_is_of_object, data.values()), None)) is not None:
            raise Unsupported(f"a backward reads {part.source}, a part of an object, which may change before it runs")
        self.read_later |= data

    def check_backward(self) -> Callable[[], None] | None:
        if not self.read_later:
            return None
        check = to_callable(checks(list(self.read_later.values())))

        def unchanged() -> None:
            if type(miss := check((), {})) is Miss:
                raise RuntimeError(
                    f"{miss.reason}, as it was when the backward of an autograd.Function was compiled, which reads it; keep in ctx what the "
                    "backward needs"
                )

        return unchanged

    def requires_grad(self, x: Any) -> bool:
        return self.tracker.recorder.of_wrappers().requires_grad(x) if is_wrapper(x) else super().requires_grad(x)

    def with_backward(self, cls: type, context: Any, args: tuple, results: Any) -> Any:
        return self.tracker.recorder.of_wrappers().histories.applied(self.tracker, cls, context, args, results)

    def run(self, function: Callable, args: tuple, kwargs: dict) -> Any:
        """Return function(*args, **kwargs), for a function of the user's that this package calls."""
        tracker = self.tracker
        inner = function.__func__ if type(function) is MethodType else function
        if type(inner) is FunctionType and is_own_code(inner.__code__):
            return function(*args, **kwargs)
        tensors, writes = len(self.tensors), len(tracker.effects.log)
        if tracker.source(function) is None and not is_proxy(function):
            tracker.reach(function, tracker.sources.const(function))
        result = tracker.call(function, list(args), dict(kwargs), None)
        if self.most_guards is not None and len(tracker.guards) > self.most_guards:
            raise Unsupported("a backward reads what its forward did not, and a Transform has the guards already; read it in the forward")
        if self.finished and (len(self.tensors) > tensors or len(tracker.effects.log) > writes):
            raise Unsupported(
                "a backward reads a tensor that its forward did not save, or writes to something outside; save it with ctx.save_for_backward, "
                "and write in the forward"
            )
        return result

    def lift(self, tree: Any, trace: Trace, symbol: Symbol | None = None) -> Any:
        if self.language is not LANGUAGE:  # NumPy's, inside a function of tensors
            return tree_map(lambda x: constant_copy(x, trace) if type(x) is torch.Tensor else size_of(x), tree)
        if trace.depth:
            return tree_map(lambda x: lift_leaf(x, trace), tree)
        tree = tree_map(self._lifted, tree)
        tree = self.without_frozen(tree)
        if symbol is not None and self.session is None and self.tracker.recorder.changing.tensors:
            tree = self.tracker.recorder.changing.operands(symbol, tree)
        if symbol is not None:
            self.parts.check_read(symbol, tree)
        if symbol is not None and may_raise(symbol, tree) and is_handled(ERRORS):
            self.start_again_after(symbol)
        if symbol is None or self.casting or not any_autocast():
            return tree
        self.casting = True
        try:
            return cast(symbol, *tree)
        finally:
            self.casting = False

    def without_frozen(self, tree: Any) -> Any:
        """Return what an operation reads where its arguments are `tree`: detached tensors in the place of those that require no gradient now."""
        frozen = self.tracker.recorder.autograd.frozen
        return tree_map(lambda x: frozen.get(x, x) if is_proxy(x) else x, tree) if frozen else tree

    def start_again_after(self, symbol: Symbol) -> None:
        """Let a call in which this operation raises start again in eager mode, since the program may handle the error."""
        error = TracedValueError(
            f"whether {symbol.path} raises an error is needed at {user_line()}, since the program handles it; tracing knows no values; "
            "call it outside of the `try`"
        )
        if self.session is None:
            raise error
        self.session.start_again_after(error)

    def deliver(self, symbol: Symbol, out: Any) -> Any:
        return out if self.casting or not any_autocast() else cast_results(symbol, out)

    def _lifted(self, x: Any) -> Any:
        if type(x) is NumberProxy:
            return self.known_numbers.get(x, x)
        self.check_parted(x)
        if isinstance(x, TensorProxy) and x in recorder.get().views:
            follow_view(self.tracker.recorder, x)
        if not is_proxy(x) and isinstance(x, torch.Tensor):
            if (proxy := self.constants.get(id(x))) is not None:
                return proxy
            raise Unsupported(
                "a tensor of unknown origin: it was created during tracing by code that Dovetail cannot trace, so it would become a constant of the "
                f"program; {WAYS_OUT}\n  used at {user_line()}"
            )
        return x.item() if is_numpy_number(x) else size_of(x)

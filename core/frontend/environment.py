"""What a front end lends to a trace of torch programs: torch's functions, its global state, real tensors as constants."""

from __future__ import annotations

import threading
import types
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from dovetail.dtypes import DType, bfloat16
from dovetail.errors import EagerCall, Unsupported, require
from dovetail.executors import dispatch, resolve_executors
from dovetail.executors.trials.reference import referees
from dovetail.frontend.autocast import autocast_off
from dovetail.frontend.saved_tensors import overwrites_saved
from dovetail.frontend.subclasses import is_wrapper
from dovetail.langs.context import Language
from dovetail.langs.torch import (
    FACTORIES,
    LANGUAGE,
    REFUSED,
    TABLE,
    check_out,
    computation_into,
    dtype_of,
    dtype_with_numpy,
    is_numpy_number,
    not_traced,
    opaque,
    size_of,
    spec_of,
    traceable,
    write_out,
)
from dovetail.prims import Symbol, recorder
from dovetail.torch_internals import OpOverload, OpOverloadPacket, any_autocast, no_torch_function, torch_function
from dovetail.trace import (
    BoundSymbol,
    Environment,
    Proxy,
    Trace,
    constant_lines,
    copy_line,
    is_proxy,
    leaves,
    proxies,
    read_by,
    recording,
    renamed,
    requires_grad,
    to_callable,
    tree_map,
    user_line,
)
from dovetail.trace.aliases import root_of, tracked_views, view_bases
from dovetail.trace.saved_writes import LaterWrites

_PLAIN = {int, float, bool, str, type(None), complex}


def _cut_history(p: Proxy, lines: list[BoundSymbol], trace: Trace, views: Mapping[Proxy, Proxy]) -> None:
    """Let `p`, which requires grad from here on, be a copy of what `lines` computed while grad mode was off: no gradient flows into these."""
    at = next((i for i, line in enumerate(lines) if p in set(line.writes)), None)
    if at is None or not any(map(requires_grad, lines[at].reads)) or p in view_bases([lines[at]]):
        return
    if any([q is not p and root_of(q, views) is p for q in lines[at].writes]):
        raise Unsupported(f"{lines[at].symbol} has returned views of one tensor with grad mode off, which is written in place; clone it first")
    computed = trace.tensor(p.spec)
    lines[at : at + 1] = [renamed(lines[at], {p: computed}), copy_line(computed, p, lines[at].where)]


AUTOCAST = "autocast is on, and native tracing does not know its casts; leave interpretation as it is, or convert the model and its inputs"


class TorchEnvironment(Environment):
    """Lends a trace torch's grad mode and default dtype, real tensors as constants, and every torch function."""

    def __init__(self, language: Language):
        self.language, self.proxy = language, language.proxy
        self.constants: dict[int, Proxy] = {}  # id of a real tensor -> its proxy
        self.copies: dict[Proxy, torch.Tensor] = {}  # the constants that nothing outside of the program can write to
        self.tensors: list[torch.Tensor] = []  # those that the inputs of the trace stand for
        self.read: set[str] = set()  # the global settings that the program reads, so that the prologue guards them
        self.repeated: list[BoundSymbol] = []  # lines of which nothing is saved, since the backward runs them again
        self.finished = False  # whether the program is traced: what is traced now, as a backward, runs later
        self.enters_inference = False  # whether the program has entered or left inference mode
        self.float = torch.get_default_dtype()  # at the start
        self.device = torch.get_default_device()  # at the start
        self.examples: set[Proxy] = set()  # values of one example of a batch: outside of the function that vmap was applied to they do not exist
        self.parted: set[Proxy] = set()  # other names of memory that `p.data = value` has given away
        self.leaving: set[Proxy] = set()  # parameters that are parted once those in their place exist

    def check_escapes(self, values: Iterable[Proxy]) -> None:
        """Refuse a program that uses a value of one example of a batch outside of the function that vmap was applied to."""
        if self.examples and (escaped := next((p for p in values if p in self.examples), None)) is not None:
            raise Unsupported(
                f'{escaped.name}: "{escaped.spec}" is used outside of the function that torch.func.vmap was applied to: it is the value of one '
                f"example; return it from the function\n  called at {user_line()}"
            )

    def check_parted(self, value: Any) -> None:
        """Let a call run in eager mode whose program uses memory under another name after `p.data = value`."""
        if self.parted and is_proxy(value) and value in self.parted:
            raise EagerCall(
                f'{value.name}: "{value.spec}" shared memory with a tensor whose .data the program has set since, and is used again; use it, '
                f"or a clone made before\n  called at {user_line()}"
            )

    def grad_enabled(self) -> bool:
        if not torch.is_grad_enabled():
            return False
        self.read.add("inference_mode")  # which overrules grad mode: the program, or its caller, may have switched that on inside
        return not torch.is_inference_mode_enabled()

    def give_history(self, p: Proxy, trace: Trace) -> None:
        programs = (*trace.enclosing, trace.lines)
        views = tracked_views([line for lines in programs for line in lines])
        root = root_of(p, views)
        for lines in programs:
            _cut_history(root, lines, trace, views)
        for each in (root, *views):
            if root_of(each, views) is root:
                each.spec = each.spec.like(requires_grad=True)

    def default_float(self) -> DType:
        self.read.add("default_dtype")
        if torch.get_default_dtype() is not self.float:
            raise EagerCall("it sets the default dtype of torch, which operations of the compiled program read when they run")
        return dtype_of(torch.get_default_dtype())

    def complex_of(self, dtype: DType) -> DType | None:
        if dtype is bfloat16 and hasattr(torch, "bcomplex32"):  # from torch 2.14 on
            return None
        return super().complex_of(dtype)

    def overwrites_saved(self, writes: LaterWrites) -> str | None:
        return overwrites_saved(writes)

    def value_of(self, proxy: Proxy, trace: Trace) -> torch.Tensor | None:
        """Return the value of a tensor that the program computes from constants alone, None where tracing does not know it."""
        lines = constant_lines(trace, proxy, self.copies)
        if lines is None:
            return None
        read = set().union(*map(read_by, lines))
        copies = {p: x.clone() for p, x in self.copies.items() if p in read}
        program = Trace("constants", inputs=list(copies), lines=lines, outputs=(proxy,))
        with recording(program), no_torch_function(), torch.no_grad(), autocast_off():
            return to_callable(dispatch(program, referees(resolve_executors())))(*copies.values())[0]

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Record torch calls of the user's code while open."""
        with torch_function(), RecordingMode():
            yield

    @property
    def pending_writes(self) -> int:
        """How many writes to something outside wait for the end of the call."""
        return 0

    @contextmanager
    def differentiating(self) -> Iterator[None]:
        """Open around a backward of the user's while it is traced."""
        yield

    def check_backward(self) -> Callable[[], None] | None:
        """Return a function that raises where backwards of the user's would read other data than when they were traced; None where they read none."""
        return None

    def requires_grad(self, x: Any) -> bool:
        """Return whether a value of the program is a tensor that requires grad."""
        return requires_grad(x)

    def has_wrappers(self, tree: Any) -> bool:
        """Return whether tensors that wrap others are in a nest."""
        return any(map(is_wrapper, leaves(tree)))

    def with_backward(self, cls: type, context: Any, args: tuple, results: Any) -> Any:
        """Return the results of a torch.autograd.Function on wrappers, differentiated by its backward."""
        raise Unsupported(f"{cls.__name__} gets or returns a tensor subclass, which native tracing does not differentiate")

    def lift(self, tree: Any, trace: Trace, symbol: Symbol | None = None) -> Any:
        """Replace real tensors by constants of the trace, NumPy's numbers by Python's."""
        if any_autocast():
            raise Unsupported(f"{AUTOCAST}\n  called at {user_line()}")
        args, kwargs = tree
        if all([type(x) in _PLAIN or isinstance(x, Proxy) for x in args]) and not kwargs:
            return tree
        return tree_map(lambda x: lift_leaf(x, trace), tree)

    def call(self, func: Callable, args: tuple, kwargs: dict) -> Any:
        """Call a torch function on proxies: the operation in the table, else its own Python body, else an opaque symbol."""
        if func in _CREATING and kwargs.get("device") is None:
            self.read.add("default_device")
            device = torch.get_default_device()
            if device != self.device or device.type != "cpu":  # of a `with torch.device(...)` that may not be open when the line runs
                kwargs = {**kwargs, "device": device}
        if func in _OF_NUMBERS and kwargs.get("dtype") is None and len(args) < 2:
            dtype = dtype_with_numpy(args[0] if args else kwargs.get("data", kwargs.get("obj")))
            kwargs = kwargs if dtype is None else {**kwargs, "dtype": dtype}
        if "out" in kwargs and func not in REFUSED and not _is_custom(func):
            plain = func.overloadpacket if type(func) is OpOverload else func  # which finds the overload without results to write
            out, kwargs = kwargs["out"], {k: v for k, v in kwargs.items() if k != "out"}
            if out is None:
                return self.call(plain, args, kwargs)
            compute = computation_into(func, out, args)
            if compute is None and func in _IN_DTYPE_OF_OUT and kwargs.get("dtype") is None:
                kwargs["dtype"] = out.dtype  # what the numbers are rounded to, drawn in, and added up in
            floats = func in _MEANS and args and args[0].is_floating_point() and out.is_floating_point()
            if floats and (args[0].dtype.itemsize < out.dtype.itemsize or func is not torch.mean):
                args = (args[0].to(out.dtype), *args[1:])
            first = len(recorder.get().lines)
            with RecordingMode():
                result = self.call(plain, args, kwargs) if compute is None else compute(out, *args, **kwargs)
            check_out(plain, out, result, (args, kwargs), recorder.get().lines[first:])
            differentiable = torch.is_grad_enabled() and any(map(requires_grad, proxies((result, out))))
            require(not differentiable, _NO_GRADIENT, getattr(func, "__name__", func), error=RuntimeError)
            return write_out(out, result.reshape(out.shape) if func in _COUNTING and result.numel() == out.numel() else result)
        operation = TABLE.get(func)
        if operation is not None:
            return operation(*args, **kwargs)
        if func in REFUSED:
            raise not_traced(func, REFUSED[func])
        if isinstance(func, types.FunctionType):
            with RecordingMode():
                return inlined(func)(*args, **kwargs)
        return opaque(func, args, kwargs)

    def attribute(self, proxy: Proxy, name: str) -> Any:
        """Return `proxy.name`: a property of the language, else a method of torch that is recorded as opaque."""
        if (read := self.language.properties.get(name)) is not None:
            return read(proxy)
        method = getattr(torch.Tensor, name, None)
        if method is None or self.language is not LANGUAGE:
            raise AttributeError(f"a tensor of the {self.language.name} language has no attribute {name!r}")
        if not callable(method):
            known = isinstance(method, Hashable) and name != "__dict__"
            otherwise = "read it outside the compiled function and pass its value as an argument"
            why = REFUSED.get(method, otherwise) if known else otherwise
            raise Unsupported(f"torch.Tensor.{name} is not traced: {why}\n  called at {user_line()}")
        return lambda *args, **kwargs: self.call(method, (proxy, *args), kwargs)


_NO_GRADIENT = "{}(): functions with out=... arguments don't support automatic differentiation, but one of the arguments requires grad."


def _is_custom(func: Callable) -> bool:
    """Return whether a function is an operator of another library than torch's own, any parameter of which may be called `out`."""
    name = func.name() if type(func) is OpOverload else func._qualified_op_name if type(func) is OpOverloadPacket else "aten::"
    return not name.startswith(("aten::", "prims::"))


def lift_leaf(x: Any, trace: Trace) -> Any:
    """Return the proxy of a real tensor, the Python number of a NumPy scalar, a symbolic size as such, anything else unchanged."""
    if isinstance(x, Proxy):
        return x
    if isinstance(x, torch.Tensor):
        return constant(x, trace)
    return x.item() if is_numpy_number(x) else size_of(x)


def constant(tensor: torch.Tensor, trace: Trace) -> Proxy:
    """Return the proxy for a real tensor that the program reads from outside."""
    proxies = trace.environment.constants
    if id(tensor) not in proxies:
        proxies[id(tensor)] = proxy = trace.tensor(spec_of(traceable(tensor)))
        trace.constants[proxy] = tensor
    return proxies[id(tensor)]


def constant_copy(tensor: torch.Tensor, trace: Trace) -> Proxy:
    """Return the proxy for the values that a tensor has now."""
    copy = tensor.clone()
    proxy = constant(copy, trace)
    trace.environment.copies[proxy] = copy
    return proxy


_CREATING = frozenset({*FACTORIES, torch.asarray})  # what creates a tensor on the default device
_OF_NUMBERS = frozenset({torch.tensor, torch.as_tensor, torch.asarray})  # what numbers of NumPy's keep their dtype in
_IN_DTYPE_OF_OUT = frozenset({*FACTORIES, torch.sum, torch.prod, torch.cumsum, torch.cumprod})
_MEANS = frozenset({torch.mean, torch.nanmean, torch.nansum, torch.var, torch.std})  # which read and add up in the dtype of out=, of floats alone
_COUNTING = frozenset({torch.arange, torch.range, torch.linspace, torch.logspace})  # which leave the shape of out= as it is
SHARING = {torch.from_numpy, torch.frombuffer, torch.from_dlpack}  # their results share memory that exists already


@cache
def inlined(func: types.FunctionType) -> types.FunctionType:
    """Return torch's own Python for `func` without its check for overrides, so that it runs instead of calling the override again."""
    no_overrides = dict.fromkeys(("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic"), lambda *_: False)
    closure = tuple(types.CellType(_inlined_cell(cell.cell_contents, func)) for cell in func.__closure__ or ())
    copy = types.FunctionType(func.__code__, {**func.__globals__, **no_overrides}, func.__name__, func.__defaults__, closure)
    copy.__kwdefaults__ = func.__kwdefaults__
    return copy


def _inlined_cell(value: Any, outer: types.FunctionType) -> Any:
    """Return what stands in the closure of `outer`, inlined where it is torch's own Python: it would call the override of `outer` for ever."""
    ours = isinstance(value, types.FunctionType) and value is not outer and value not in TABLE and value.__module__.startswith("torch.")
    return inlined(value) if ours else value


class RecordingMode(TorchFunctionMode):
    """Records torch calls that take no proxy.

    Those that create tensors, and those that compute with real tensors read from outside, are recorded: run while tracing they would
    happen once, and their results would be constants.  Only queries about real tensors run at once.
    """

    def __torch_function__(self, func: Any, classes: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        environment = recorder.get().environment
        call, environment.parsing = environment.call, False
        arguments = list(leaves((args, kwargs)))
        if func in FACTORIES or func in REFUSED or any(map(is_proxy, arguments)):
            return call(func, args, kwargs)
        has_tensors = any([isinstance(x, torch.Tensor) for x in arguments])
        if has_tensors and (isinstance(func, types.FunctionType) or isinstance(TABLE.get(func), Symbol)):
            return call(func, args, kwargs)
        result = func(*args, **kwargs)
        created = isinstance(result, torch.Tensor) and not has_tensors and func not in SHARING
        if created and not result.dim() and arguments and all([isinstance(x, (int, float, str)) for x in arguments]):  # as torch.div(16, 4)
            return call(torch.full, ((), result.item()), {"dtype": result.dtype})
        return call(func, args, kwargs) if created else result


class Acquired:
    """A traced function: its program, and how a call is checked and its result put together.  Each front end has its own.

    Attributes:
        trace: the program.
        tensors: the real tensors that the inputs of the trace stand for.
        build: makes the result from the outputs of the trace and the objects that the prologue read; None where the outputs are the result.
        casts: whether autocast was on; then the trace contains its casts.
        spent: values whose graph a backward() of the program has freed: no gradient flows through them.
        leaves: values that require a gradient, which flows no further.
        differentiates: whether the program computes gradients itself.
        buffers: arrays and other buffers whose content is guarded.
        shows_contents: whether a result shares the memory of one of these, and is not that one itself.
        changes: whether the call changes objects from outside.
        calls: whether it draws numbers, or reads clocks, before the program runs.
        owns_generators: whether the program has random generators of its own, which calls at the same time would share.
    """

    build: Callable[[list, tuple], Any] | None = None
    casts = False
    spent: Collection[Proxy] = ()
    leaves: Collection[Proxy] = ()
    differentiates = False
    buffers: Collection[Any] = ()
    shows_contents = False
    changes = False
    calls = False
    owns_generators = False

    def __init__(self, trace: Trace, tensors: list[torch.Tensor]):
        self.trace, self.tensors = trace, tensors

    def prologue(self, *, written: list[Proxy], run: Callable) -> Trace:
        """Return the program that reads the inputs, checks that they fit, and calls `run`; `written` are the inputs that the program writes."""
        raise NotImplementedError

    def freeze_guards(self) -> None:
        """Refuse further guards: the prologue is complete, and what is traced from now on cannot add any."""

    def forget(self) -> None:
        """Release what tracing has seen: the program is compiled."""


def is_plain(result: Any) -> bool:
    """Return whether `result` consists of tuples, lists and dicts alone, so that a printed program can return it as it is."""
    if type(result) in (tuple, list):
        return all(map(is_plain, result))
    if type(result) is dict:
        return all([type(key) in _PLAIN for key in result]) and all(map(is_plain, result.values()))
    return is_proxy(result) or (isinstance(result, torch.Tensor) and not is_wrapper(result)) or type(result) in _PLAIN


def moves_generator(before: torch.Tensor, *, tracked: bool) -> bool:
    """Return whether a function that is traced has moved torch's generator since its state was `before`.

    Another thread may have moved it, too: where tracing sees what the function does to generators (`tracked`), the answer is no then.
    """
    alone = threading.active_count() == 1
    return (alone or not tracked) and not torch.equal(before, torch.default_generator.get_state())


@contextmanager
def refuse_seeding(*, tracked: bool = False) -> Iterator[None]:
    """Raise Unsupported for a function that moves torch's generator while it is traced: that would happen once, and not at each call."""
    before = torch.default_generator.get_state()
    yield
    if moves_generator(before, tracked=tracked):
        torch.default_generator.set_state(before)
        raise Unsupported("the function seeds or sets torch's generator, which would happen once, while tracing; do it before the call")

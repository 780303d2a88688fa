"""What a front end lends to a trace of torch programs: torch's functions, its global state, real tensors as constants."""

from __future__ import annotations

import gc
import threading
import types
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from dovetail.dtypes import DType
from dovetail.errors import Unsupported
from dovetail.langs.context import Language
from dovetail.langs.torch import (
    FACTORIES,
    LANGUAGE,
    REFUSED,
    TABLE,
    dtype_of,
    not_traced,
    opaque,
    spec_of,
    traceable,
    write_out,
)
from dovetail.prims import Symbol, recorder
from dovetail.torch_internals import any_autocast
from dovetail.trace import Environment, Proxy, Trace, is_proxy, leaves, tree_map, user_line

_PLAIN = {int, float, bool, str, type(None), complex}


AUTOCAST = "autocast is on, and native tracing does not know its casts; leave interpretation as it is, or convert the model and its inputs"


class TorchEnvironment(Environment):
    """Lends a trace torch's grad mode and default dtype, real tensors as constants, and every torch function."""

    def __init__(self, language: Language):
        self.language, self.proxy = language, language.proxy
        self.constants: dict[int, Proxy] = {}  # id of a real tensor -> its proxy
        self.tensors: list[torch.Tensor] = []  # those that the inputs of the trace stand for
        self.read: set[str] = set()  # what the program asked of torch's global state, so that the prologue guards it

    def grad_enabled(self) -> bool:
        return torch.is_grad_enabled()

    def default_float(self) -> DType:
        self.read.add("default_dtype")
        return dtype_of(torch.get_default_dtype())

    def watching(self) -> Factories:
        """While open, calls of torch that the user's code makes are seen."""
        return Factories()

    def run(self, function: Callable, args: tuple, kwargs: dict) -> Any:
        """function(*args, **kwargs), a function of the user's that code of ours calls."""
        return function(*args, **kwargs)

    def lift(self, tree: Any, trace: Trace, symbol: Symbol | None = None) -> Any:
        """Real tensors met on the way become constants, NumPy's numbers Python's."""
        if any_autocast():
            raise Unsupported(f"{AUTOCAST}\n  called at {user_line()}")
        args, kwargs = tree
        if all([type(x) in _PLAIN or isinstance(x, Proxy) for x in args]) and not kwargs:
            return tree
        return tree_map(lambda x: lifted(x, trace), tree)

    def call(self, func: Callable, args: tuple, kwargs: dict) -> Any:
        """A torch function on proxies: what the table says, else its own Python body, else an opaque symbol."""
        if "out" in kwargs and func not in REFUSED:
            result = self.call(func, args, {k: v for k, v in kwargs.items() if k != "out"})
            return result if kwargs["out"] is None else write_out(kwargs["out"], result)
        meaning = TABLE.get(func)
        if meaning is not None:
            return meaning(*args, **kwargs)
        if func in REFUSED:
            raise not_traced(func, REFUSED[func])
        if isinstance(func, types.FunctionType):
            with Factories():
                return inlined(func)(*args, **kwargs)
        return opaque(func, args, kwargs)

    def attribute(self, proxy: Proxy, name: str) -> Any:
        """What `proxy.name` is when the language does not say: an opaque method."""
        if (asked := self.language.properties.get(name)) is not None:
            return asked(proxy)
        method = getattr(torch.Tensor, name, None)
        if method is None or self.language is not LANGUAGE:
            raise AttributeError(f"a tensor of the {self.language.name} language has no attribute {name!r}")
        if not callable(method):
            known = isinstance(method, Hashable) and name != "__dict__"
            otherwise = "read it outside the compiled function and pass what it says as an argument"
            why = REFUSED.get(method, otherwise) if known else otherwise
            raise Unsupported(f"torch.Tensor.{name} is not traced: {why}\n  called at {user_line()}")
        return lambda *args, **kwargs: self.call(method, (proxy, *args), kwargs)


def lifted(x: Any, trace: Trace) -> Any:
    if isinstance(x, Proxy):
        return x
    if isinstance(x, torch.Tensor):
        return constant(x, trace)
    if type(x).__module__ == "numpy" and hasattr(x, "item") and getattr(x, "ndim", 1) == 0:
        return x.item()
    return x


def constant(tensor: torch.Tensor, trace: Trace) -> Proxy:
    """The proxy for a real tensor that the program reads from outside."""
    known = trace.environment.constants
    if id(tensor) not in known:
        known[id(tensor)] = proxy = trace.tensor(spec_of(traceable(tensor)))
        trace.constants[proxy] = tensor
    return known[id(tensor)]


SHARING = {torch.from_numpy, torch.frombuffer, torch.from_dlpack}  # what they make is memory that was there before


@cache
def inlined(func: types.FunctionType) -> types.FunctionType:
    """torch's own Python for `func`, deaf to overrides, so that it runs instead of handing the call back to us."""
    deaf = dict.fromkeys(("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic"), lambda *_: False)
    closure = tuple(types.CellType(_deaf_too(cell.cell_contents, func)) for cell in func.__closure__ or ())
    copy = types.FunctionType(func.__code__, {**func.__globals__, **deaf}, func.__name__, func.__defaults__, closure)
    copy.__kwdefaults__ = func.__kwdefaults__
    return copy


def _deaf_too(value: Any, outer: types.FunctionType) -> Any:
    """What `inlined` finds in the closure of `outer`: a function that hands the call back to `outer` would do so for ever."""
    ours = isinstance(value, types.FunctionType) and value is not outer and value not in TABLE and value.__module__.startswith("torch.")
    return inlined(value) if ours else value


class Factories(TorchFunctionMode):
    """Sees the torch calls that no proxy takes part in.

    Those that make tensors, and those that compute with real tensors read from outside, are recorded: run while tracing they would
    happen once, and what they gave would be a constant.  Only questions about real tensors are answered on the spot.
    """

    def __torch_function__(self, func: Any, classes: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        call = recorder.get().environment.call
        given = list(leaves((args, kwargs)))
        if func in FACTORIES or func in REFUSED or any(map(is_proxy, given)):
            return call(func, args, kwargs)
        tensors = any([isinstance(x, torch.Tensor) for x in given])
        if tensors and (isinstance(func, types.FunctionType) or isinstance(TABLE.get(func), Symbol)):
            return call(func, args, kwargs)
        made = func(*args, **kwargs)
        fresh = isinstance(made, torch.Tensor) and not tensors and func not in SHARING
        return call(func, args, kwargs) if fresh else made


@dataclass
class Acquired:
    """A program as it came in.

    `build(outputs, found)` makes the result of the trace's outputs and of the objects that the prologue found; None where the outputs are
    the result as it stands.  `prologue(written=..., run=...)` is the program that finds the inputs and checks that they fit.
    """

    trace: Trace
    tensors: list[torch.Tensor]  # the real tensors that the trace's inputs stand for
    build: Callable[[list, tuple], Any] | None
    prologue: Callable[..., Trace]
    casts: bool = False  # whether autocast was on, whose casts the trace has in it
    settle: Callable[[], None] = lambda: None  # the prologue is made: what is still to be traced may add no guard
    forget: Callable[[], None] = lambda: None  # the program is compiled: let go of what the run has seen


def is_plain(result: Any) -> bool:
    """Whether `result` is made of tuples, lists and dicts alone, so that a printed program can return it as it is."""
    if type(result) in (tuple, list):
        return all(map(is_plain, result))
    if type(result) is dict:
        return all(map(is_plain, result.values()))
    return is_proxy(result) or isinstance(result, torch.Tensor) or type(result) in _PLAIN


@contextmanager
def no_draws(*, seen: bool = False) -> Iterator[None]:
    """Refuse a function that moves torch's generator while it is traced: that would happen once, and not at each call.

    Another thread may have moved it, too: where tracing sees by itself what a function does to generators (`seen`), nothing is refused then.
    """
    before = torch.default_generator.get_state()
    yield
    alone = threading.active_count() == 1
    if (alone or not seen) and not torch.equal(before, torch.default_generator.get_state()):
        torch.default_generator.set_state(before)
        raise Unsupported("the function seeds or sets torch's generator, which would happen once, while tracing; do it before the call")


@contextmanager
def compiling() -> Iterator[None]:
    """Without the garbage collector, which would walk the growing trace again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()

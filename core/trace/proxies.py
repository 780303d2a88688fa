"""Traced values, and the nests of tuples, lists and dicts they come in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from dovetail.errors import EagerCall, InputDtypeError, InputTypeError, NotTracing, TracedValueError
from dovetail.prims import NumberSpec, TensorSpec, recorder
from dovetail.prims.sizes import is_symbolic
from dovetail.trace.source_location import user_line

PRIMS_ALONE = (
    "torch functions, methods and indices are not recorded in an execution transform or a pass; call dovetail.prims, or symbols of your own, "
    "as OperatorExecutor.operation defines them"
)


def current_language() -> dict[str, Callable]:
    """Return the operators of the language in force: that of the operation being recorded."""
    trace = recorder.get()
    try:
        return trace.language
    except AttributeError:
        raise NotTracing(
            "a proxy is valid only while its program is traced; this one was kept after make_trace or jit returned, or is an argument of a "
            "checker, which reads x.spec alone"
        ) from None


def _operator(name: str) -> Callable:
    def operator(self: Any, *others: Any) -> Any:
        meaning = current_language().get(name)
        if meaning is None:
            raise NotTracing(PRIMS_ALONE)
        return meaning(self, *others)

    return operator


def _binary(name: str) -> Callable:
    """`x + other`."""

    def operator(self: Any, other: Any) -> Any:
        return _applied(current_language().get(name), other, self, other)

    return operator


def _swapped(name: str) -> Callable:
    """`other - x`: the language's "rsub", else its "sub" the other way round."""

    def operator(self: Any, other: Any) -> Any:
        language = current_language()
        if (meaning := language.get(f"r{name}")) is not None:
            return _applied(meaning, other, self, other)
        return _applied(language.get(name), other, other, self)

    return operator


def _applied(meaning: Callable | None, other: Any, *operands: Any) -> Any:
    """Apply an operator; of an `other` that is no operand, Python asks that: `x == None` is False, `x + "a"` a TypeError."""
    if meaning is None:
        return NotImplemented
    if isinstance(other, (Proxy, int, float, complex)):
        return meaning(*operands)
    try:
        return meaning(*operands)
    except InputDtypeError:
        raise
    except InputTypeError:
        return NotImplemented


BINARY = {"add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor", "lshift", "rshift"}
COMPARISON = {"eq", "ne", "lt", "le", "gt", "ge"}
UNARY = {"neg", "abs", "invert", "pos", "getitem", "setitem"}


def _dunders() -> dict[str, Callable]:
    """`__add__`, `__radd__`, `__iadd__`, ...: each asks the language for "add", or for "iadd" in place."""
    methods = {f"__{name}__": _operator(name) for name in UNARY} | {f"__{name}__": _binary(name) for name in COMPARISON}
    for name in BINARY:
        plain = name.rstrip("_")
        methods[f"__{plain}__"] = _binary(name)
        methods[f"__r{plain}__"] = _swapped(name)
        methods[f"__i{plain}__"] = _binary(f"i{plain}")
    return methods


class Proxy:
    """A value that a trace computes, known by its name."""

    __slots__ = ("name", "spec")

    def __init__(self, name: str, spec: Any = None):
        self.name, self.spec = name, spec

    def __repr__(self) -> str:
        return self.name

    def __reduce_ex__(self, protocol: Any) -> tuple:
        return type(self), (self.name, self.spec)


class NumberProxy(Proxy):
    """A Python number that the program computes.  It may be returned, or be an operand of a tensor operation; tracing knows no more of it."""

    __slots__ = ()

    spec: NumberSpec

    def __copy__(self) -> NumberProxy:
        return self

    def __deepcopy__(self, memo: Any) -> NumberProxy:
        return self

    def __reduce_ex__(self, protocol: Any) -> tuple:
        if hasattr(recorder.get(), "environment"):
            raise EagerCall("a number of the program is pickled, which takes its value")
        return super().__reduce_ex__(protocol)


def _value_needed(question: str) -> Callable:
    """Return the method `question`, which depends on the value of a proxy: the environment of its trace answers it, or raises."""

    def method(self: Proxy, *others: Any) -> Any:
        if any([isinstance(x, TensorProxy) for x in others]):
            return NotImplemented  # the tensor has an operation for it
        environment = getattr(recorder.get(), "environment", None)
        if environment is None:
            raise no_value(self)
        if (value := environment.value_of(self, recorder.get())) is not None:
            return getattr(value, question)(*others)
        return environment.value(self, question, others)

    return method


def value_of(proxy: Proxy) -> Any:
    """Return the tensor or number that a proxy stands for where the program computes it from constants alone, None elsewhere."""
    trace = recorder.get()
    return trace.environment.value_of(proxy, trace) if hasattr(trace, "environment") else None


def no_value(proxy: Proxy, question: str = "__index__") -> TracedValueError:
    """Return the error for Python code that needs the value of a proxy, as the method `question` of it would return it."""
    return TracedValueError(
        f'the value of {proxy.name}: "{proxy.spec}" is needed at {user_line()}; tracing only knows shapes and dtypes; '
        "choose with torch.where, or compute the value outside and pass it as an argument",
        proxy,
        question,
    )


ASKING = ("__bool__", "__int__", "__float__", "__complex__", "__index__", "__round__", "__trunc__", "__floor__", "__ceil__")
for _name in (*ASKING, *_dunders()):
    if _name not in ("__getitem__", "__setitem__"):
        setattr(NumberProxy, _name, _value_needed(_name))
NumberProxy.__hash__ = object.__hash__


class TensorProxy(Proxy):
    """A traced tensor.  Operators mean what the language being spoken says; our own code reads `.spec` and nothing else.

    `==` is one of them, so look proxies up in sets and dicts (by identity), never in lists.
    """

    __slots__ = ()

    spec: TensorSpec


for _name, _dunder in _dunders().items():
    setattr(TensorProxy, _name, _dunder)
for _name in ASKING:
    setattr(TensorProxy, _name, _value_needed(_name))
TensorProxy.__hash__ = object.__hash__


def is_proxy(value: Any) -> bool:
    return isinstance(value, Proxy)


def leaves(tree: Any) -> Iterator[Any]:
    """List what is in nested tuples, lists and dicts, from left to right."""
    kind = type(tree)  # isinstance would also ask a proxy which class it stands for
    if not issubclass(kind, (tuple, list, dict)):
        yield tree
        return
    for item in tree.values() if issubclass(kind, dict) else tree:
        if issubclass(type(item), (tuple, list, dict)):
            yield from leaves(item)
        else:
            yield item


def proxies(tree: Any) -> list[Proxy]:
    """List the proxies in nested tuples, lists and dicts."""
    collected: list[Proxy] = []
    _collect(tree, collected)
    return collected


def _collect(tree: Any, collected: list[Proxy]) -> None:
    kind = type(tree)
    if issubclass(kind, Proxy):
        collected.append(tree)
    elif issubclass(kind, (tuple, list, dict)):
        for item in tree.values() if issubclass(kind, dict) else tree:
            inner = type(item)
            if issubclass(inner, Proxy):
                collected.append(item)
            elif issubclass(inner, (tuple, list, dict)):
                _collect(item, collected)


def tree_map(fn: Callable[[Any], Any], tree: Any) -> Any:
    """Apply `fn` to every leaf of nested tuples, lists and dicts."""
    kind = type(tree)
    if issubclass(kind, tuple):
        items = [tree_map(fn, item) for item in tree]
        if kind is tuple or hasattr(tree, "_fields"):
            return tuple(items) if kind is tuple else kind(*items)
        if is_symbolic(items):
            return tuple(items)
        try:
            return kind(items)
        except TypeError:  # a torch.Size holds integers alone
            return tuple(items)
    if issubclass(kind, list):
        return [tree_map(fn, item) for item in tree]
    if issubclass(kind, dict):
        return {key: tree_map(fn, item) for key, item in tree.items()}
    return fn(tree)

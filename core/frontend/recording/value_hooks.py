"""What a tracked run does with values of the program: operators, conversions, and text that is written of them."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable
from functools import partial
from types import MethodDescriptorType, WrapperDescriptorType
from typing import TYPE_CHECKING, Any

import torch

from dovetail import prims
from dovetail.errors import TracedValueError, require
from dovetail.frontend.class_lookup import NULL
from dovetail.frontend.environment import lift_leaf
from dovetail.frontend.interpreter.frame import Frame
from dovetail.frontend.known_results import picks_by_mask, with_known_masks, with_positions
from dovetail.frontend.recording import host_numbers
from dovetail.frontend.recording.array_hooks import ArrayHooks, has_arrays, is_traced_array
from dovetail.frontend.recording.tensor_methods import replaced_operator
from dovetail.frontend.recording.tracked_environment import TrackedEnvironment
from dovetail.frontend.subclasses import is_wrapper, overriding, untraced_value
from dovetail.frontend.wrappers.jagged import has_symbols
from dovetail.langs.torch import LANGUAGE, SymbolicInt, symint
from dovetail.trace import NumberProxy, Proxy, TensorProxy, Trace, is_proxy, leaves, tree_map, user_line
from dovetail.trace.proxies import no_value

if TYPE_CHECKING:
    from dovetail.frontend.interpreter.tracking.tracker import Tracker

_REFLECTED = {  # the method by which a tensor takes a number on its left
    getattr(operator, name): f"__r{name.rstrip('_')}__" for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")
}
_SPELLINGS = ("__repr__", "__str__")
_SYMBOLS = frozenset({SymbolicInt, torch.SymInt})  # the latter are ragged sizes
_PREDICATES = frozenset({math.isnan, math.isinf, math.isfinite, math.isclose})
_ROUNDING = {abs: torch.Tensor.abs, round: torch.Tensor.round}


def _print_options() -> str:
    """Return how NumPy writes out arrays."""
    return repr(sys.modules["numpy"].get_printoptions())


class ValueHooks(ArrayHooks):
    """The part of a recorder of tensors that is about their values, and about numbers that the program computes."""

    writes_text = False  # whether the program has written numbers into text
    environment: TrackedEnvironment
    trace: Trace
    floats: Any

    def operate(self, tracker: Tracker, op: Any, args: list[Any]) -> Any:
        if self.writes_text and op not in (operator.add, operator.iadd):
            args = [self.concrete(x) if self.is_text(x) else x for x in args]
        if self.returns_tensors and has_arrays(args):
            return self.arrays.operate(tracker, op, args)
        if self.returns_tensors and any([type(x).__module__ == "numpy" for x in args]):  # a number of NumPy's: the tensor computes with its value
            args = [lift_leaf(x, self.trace) for x in args]
        if has_symbols(args) and not isinstance(op, str):
            return op(*args)
        if any(map(is_wrapper, args)) or overriding(args):
            return self.of_wrappers().operate(tracker, op, args)
        operands = [(x, self.class_of(x) if isinstance(x, TensorProxy) else None) for x in args]
        if (result := replaced_operator(tracker, op, operands)) is not NULL:
            return result
        if op in ("get_item", "set_item") and picks_by_mask(args[1]):
            args = [args[0], with_known_masks(args[1]), *args[2:]]
        session = self.environment.session
        if op == "get_item" and isinstance(args[0], TensorProxy):
            args = [args[0], with_positions(args[1], reads=session is not None and session.reads_positions)]
        if session is None:
            return self._operate(op, *args)
        if op == "get_item" and session.is_open and picks_by_mask(args[1]):
            return session.call_outside(torch.Tensor.__getitem__, args, {})
        if op == "set_item" and session.is_open and picks_by_mask(args[1]):
            return session.assign(self._operate, *args)
        return session.attempt(self._operate, (op, *args), {}, sizes=isinstance(args[0], TensorProxy))

    def _operate(self, op: Any, *args: Any) -> Any:
        if op == "get_item":
            return args[0][self._key(args[1])]
        if op == "set_item":
            args[0][self._key(args[1])] = args[2]
            return None
        if op == "contains":
            return args[1] in args[0]
        if op == "len":
            shape = args[0].spec.shape if isinstance(args[0], TensorProxy) else ()
            return symint(shape[0]) if shape else len(args[0])
        if op == "iter":
            return list(args[0])
        if len(args) == 2 and self.is_number(args[0]) and isinstance(args[1], TensorProxy) and op in _REFLECTED:
            return getattr(args[1], _REFLECTED[op])(args[0])
        return op(*args)

    def _key(self, key: Any) -> Any:
        """Return an index with tensors for lists that have numbers of the program, or symbolic sizes, in them."""
        if type(key) is tuple:
            return tuple(map(self._key, key)) if any([type(item) is list for item in key]) else key
        if type(key) is not list:
            return key
        unknown = [self.is_number(item) or type(item) in _SYMBOLS for item in key]
        listed = any(unknown) and all([known is True or type(item) is int for item, known in zip(key, unknown, strict=True)])
        return self.environment.call(torch.tensor, (key,), {}) if listed else key

    def truth(self, tracker: Tracker, tensor: Any) -> bool:
        if is_wrapper(tensor):
            raise untraced_value(tensor)
        return bool(tensor)

    def is_symbolic(self, value: Any) -> bool:
        return type(value) in _SYMBOLS or (type(value) is torch.Size and any([type(n) in _SYMBOLS for n in value]))

    def words(self, tensor: Any) -> None:
        if is_wrapper(tensor):
            raise untraced_value(tensor)
        if not is_proxy(tensor):
            float(tensor)  # a symbolic size: it becomes a plain number
            return
        if isinstance(tensor, TensorProxy) and tensor.spec.requires_grad:
            raise TracedValueError(
                f'{tensor.name}: "{tensor.spec}" is written out at {user_line()}: as it requires a gradient, its text names the operation that '
                "computed it, which a compiled function does not have; write out x.detach()",
                tensor,
            )
        raise no_value(tensor)

    def with_values(self, call: Callable, function: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
        session = self.environment.session
        is_open = session is not None and session.is_open
        if type(function) in (WrapperDescriptorType, MethodDescriptorType) and self.is_number(args[0]):  # as float.__repr__(n)
            text = self.text(args[0], "") if function.__name__ in _SPELLINGS else NULL
            if text is NULL and session is None and (answer := self._answer(function, args, kwargs, "{}.")) is not None:
                return answer
            return text if text is not NULL else call(function, [self.concrete(args[0]), *args[1:]], kwargs, frame)
        if is_open and function in _PREDICATES and host_numbers.are_real((*args, *kwargs.values())):
            return session.holds(function, args, kwargs)
        if session is None and function in _PREDICATES and (answer := self._answer(function, args, kwargs, "math.")) is not None:
            return answer
        if (function is divmod or function in host_numbers.FUNCTIONS) and not kwargs:
            numbers = [self.converted(x, float) if is_open and isinstance(x, TensorProxy) else x for x in args]
            result = host_numbers.applied(function, numbers, known=self.environment.known_numbers, raising=self.environment.raising(numbers))
            if result is not None:
                return self.environment.noted(result)
        if session is None:
            return call(function, args, kwargs, frame)
        return session.attempt(lambda *args, **kwargs: call(function, list(args), kwargs, frame), args, kwargs)

    def _answer(self, function: Callable, args: list[Any], kwargs: dict[str, Any], of: str) -> int | None:
        """Return what a function of numbers from outside returns, and guard it where it is a bool or an int; `of` stands before its name."""
        words = ["{}"] * (len(args) - of.count("{}")) + [f"{name}={x!r}" for name, x in kwargs.items()]
        if any(map(is_proxy, kwargs.values())):
            return None
        return self.environment.answer(partial(function, **kwargs), args, f"{of}{function.__name__}({', '.join(words)})")

    def sized(self, operands: tuple) -> tuple:
        numbers = dict.fromkeys([x for x in leaves(operands) if self.is_number(x)])
        session = self.environment.session
        if not numbers:
            return operands
        if session is None or not session.is_open:
            values = {x: self.environment.answer(lambda n: n, (x,), "{}") for x in numbers}
            if (unknown := next((x for x, value in values.items() if value is None), None)) is not None:
                raise no_value(unknown)
        else:
            values = {x: symint(session.size(x)) if x.spec.kind == "int" else session.number(x) for x in numbers}
        return tree_map(lambda x: values[x] if self.is_number(x) else x, operands)

    def counted(self, bounds: list[Any]) -> Any:
        session = self.environment.session
        return None if session is None else session.counted(bounds)

    def as_it_is(self, tensor: Any) -> Any:
        return tensor.clone() if self.has_text(tensor) else tensor

    def has_text(self, value: Any) -> bool:
        """Return whether `value` prints as its values alone: one that requires a gradient also tells what computed it."""
        if not isinstance(value, TensorProxy) or value.spec.requires_grad or self.environment.language is not LANGUAGE or self.trace.depth:
            return False
        return self.class_of(value) is torch.Tensor

    def text_of(self, tensor: Any) -> Any:
        self.writes_text = True
        return prims.format_tensor(tensor)

    def formatted(self, tensor: Any) -> Any:
        if type(tensor) is SymbolicInt:
            return self.environment.number_of(tensor)
        lonely = isinstance(tensor, TensorProxy) and not tensor.spec.shape and self.class_of(tensor) is torch.Tensor
        return tensor.item() if lonely else tensor

    def is_text(self, value: Any) -> bool:
        return host_numbers.is_text(value)

    def text(self, number: Any, form: str) -> Any:
        if self.environment.language is not LANGUAGE:
            return NULL
        text = host_numbers.formatted(number, form, known=self.environment.known_numbers)
        self.writes_text = self.writes_text or text is not None
        return NULL if text is None else text

    def length_of_text(self, text: Any) -> Any:
        return prims.arithmetic(text, op="len")

    def joined(self, parts: list[Any]) -> Any:
        return host_numbers.joined(parts)

    def converted(self, value: Any, kind: type) -> Any:
        if is_wrapper(value):
            return self._converted_wrapper(value, kind)
        if kind is float and type(value) is SymbolicInt:
            value = self.environment.number_of(value)
        if not isinstance(value, Proxy) or self.environment.language is not LANGUAGE:
            return NULL
        if kind in (int, float, complex) and isinstance(value, TensorProxy) and self.class_of(value) is torch.Tensor:
            one = type(value.spec.numel) is not int or value.spec.numel == 1
            require(one, "only one element tensors can be converted to Python scalars, got {}", value.spec, error=ValueError)
        if kind not in (int, float):
            return NULL
        if isinstance(value, TensorProxy):
            rounds = kind is int and value.spec.dtype.kind == "float" and self.environment.raising((value,)) is None
            unlike = value.spec.numel != 1 or rounds
            is_array = is_traced_array(value) and not value.spec.shape
            if unlike or not (is_array or self.class_of(value) is torch.Tensor):
                return NULL
            value = self.arrays.number(value) if is_array else value.item()
            if not isinstance(value, Proxy):
                return kind(value)
        number = host_numbers.converted(value, kind, known=self.environment.known_numbers, raising=self.environment.raising((value,)))
        return NULL if number is None else self.environment.noted(number)

    def _converted_wrapper(self, value: Any, kind: Any) -> Any:
        """Return abs(value) or round(value), which are operations; refuse what needs its value."""
        method = _ROUNDING.get(kind)
        if method is None:
            raise untraced_value(value)
        return self.environment.tracker.call(method, [value], {}, None)

    def extremum(self, function: Any, x: Any, y: Any) -> Any:
        if not (self.is_number(x) or self.is_number(y)) or self.environment.language is not LANGUAGE:
            return NULL
        known, reals = self.environment.known_numbers, self.environment.reals
        number = host_numbers.applied(function, (x, y), known=known, raising=None) if x not in reals and y not in reals else None
        return NULL if number is None else number

    def concrete(self, number: Any) -> Any:
        return self.environment.value(number, "value", ())

    def printed(self, tracker: Tracker) -> None:
        tracker.guard("equal", tracker.sources.setting(_print_options), _print_options())

    def is_number(self, value: Any) -> bool:
        return type(value) is NumberProxy

    def may_be_size(self, value: Any) -> bool:
        return type(value) is NumberProxy and self.environment.session is not None

"""NumPy inside a function of tensors: `x.numpy()`, `torch.from_numpy(a)`, and what NumPy computes with arrays and tensors.

An array is a view of its tensor that speaks NumPy's language, so nothing is copied, and writes to one are seen in the other.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from dovetail import dtypes, prims
from dovetail.errors import DovetailError, InputError, Unsupported, require
from dovetail.frontend.arrays.conversion import is_traceable
from dovetail.frontend.arrays.floating_errors import guard_errors
from dovetail.frontend.arrays.inputs import ArrayInputs
from dovetail.frontend.arrays.outside import on_tensors, runs_outside
from dovetail.frontend.arrays.recorder import call_numpy, is_set_operation, meaning_of, python_of
from dovetail.frontend.class_lookup import NULL
from dovetail.frontend.classify_calls import is_torch
from dovetail.frontend.environment import constant_copy
from dovetail.frontend.recording.array_choices import ArrayNeeded
from dovetail.frontend.recording.checkpoint import Checkpoint
from dovetail.frontend.recording.generators import guard_same
from dovetail.frontend.recording.tracked_environment import tensor_of
from dovetail.langs.numpy import FUNCTIONS, LANGUAGE, NumpyProxy, numpy_dtype, records
from dovetail.langs.torch import LANGUAGE as TORCH
from dovetail.langs.torch import size_of
from dovetail.prims import Symbol
from dovetail.trace import NumberProxy, Proxy, TensorProxy, is_proxy, leaves, tree_map, user_line
from dovetail.trace.proxies import no_value

if TYPE_CHECKING:
    from dovetail.frontend.guards.source import Source
    from dovetail.frontend.interpreter.frame import Frame
    from dovetail.frontend.interpreter.tracking.tracker import Tracker
    from dovetail.frontend.recording.torch_recorder import TorchRecorder

_SCALARS = {"float": torch.float64, "int": torch.int64, "bool": torch.bool}
_REQUIRES_GRAD = "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead."
_WRAPPED = {  # operators of a tensor with an array on its right: NumPy computes, and makes a tensor of the result
    operator.add: np.add,
    operator.iadd: np.add,
    operator.sub: np.subtract,
    operator.isub: np.subtract,
    operator.mul: np.multiply,
    operator.imul: np.multiply,
    operator.truediv: np.true_divide,
    operator.itruediv: np.true_divide,
    operator.matmul: np.matmul,
}
_UFUNCS = {
    **{operator.add: np.add, operator.sub: np.subtract, operator.mul: np.multiply, operator.truediv: np.true_divide, operator.pow: np.power},
    **{operator.floordiv: np.floor_divide, operator.mod: np.remainder, operator.eq: np.equal, operator.ne: np.not_equal},
    **{operator.lt: np.less, operator.le: np.less_equal, operator.gt: np.greater, operator.ge: np.greater_equal},
}
_COMPARISONS = {
    **{operator.lt: "{} < {}", operator.le: "{} <= {}", operator.gt: "{} > {}", operator.ge: "{} >= {}"},
    **{operator.eq: "{} == {}", operator.ne: "{} != {}"},
}
_WRAPIT = getattr(sys.modules.get("numpy._core.fromnumeric") or sys.modules.get("numpy.core.fromnumeric"), "_wrapit", None)


class Arrays:
    """The arrays of one trace of a function of tensors."""

    def __init__(self, recorder: TorchRecorder):
        self.recorder, self.inputs = recorder, ArrayInputs(recorder)
        guard_errors(recorder.environment.tracker)
        self.outside_numbers: dict[Proxy, NumberProxy] = {}  # scalars from outside that change
        self.by_value: dict[Proxy, tuple[np.ndarray, bytes]] = {}  # tensors made of arrays that are constants, which share memory in eager mode

    @contextmanager
    def speaking(self, language: Any = LANGUAGE) -> Iterator[None]:
        """Record operations of NumPy's, whose results are arrays, while open."""
        trace, environment = self.recorder.trace, self.recorder.environment
        before = trace.language, environment.language, environment.proxy
        trace.language = environment.language = language
        environment.proxy = language.proxy
        try:
            yield
        finally:
            trace.language, environment.language, environment.proxy = before

    # between tensors and arrays

    def of_tensor(self, tensor: TensorProxy, *, force: bool = False) -> Any:
        """Return the array that shares the memory of a traced tensor, as `tensor.numpy()` does."""
        if isinstance(tensor, NumpyProxy):
            return tensor
        spec = tensor.spec
        if force and spec.device.type != "cpu":
            tensor = TORCH["cpu"](tensor)
        elif spec.device.type != "cpu":
            words = f"can't convert {spec.device} device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory first."
            require(False, words, error=TypeError)
        if spec.requires_grad and not force:
            raise RuntimeError(_REQUIRES_GRAD)
        numpy_dtype(spec.dtype)
        with self.speaking():
            return TORCH["detach"](tensor)

    def converted(self, array: Any, dtype: Any, copy: bool | None) -> Any:
        """Return an array in another dtype, or a copy of it."""
        with self.speaking():
            return FUNCTIONS[np.asarray](array, dtype, copy=copy)

    def to_tensor(self, tracker: Tracker, array: Any) -> Any:
        """Return the tensor that shares the memory of an array, as `torch.from_numpy` does."""
        if is_proxy(array):
            if array.scalar:
                kind = self.recorder.class_of(array)
                raise TypeError(f"expected np.ndarray (got {kind.__module__}.{kind.__name__})")
            with self.speaking(TORCH):
                return TORCH["detach"](array)
        if type(array) is not np.ndarray:
            raise TypeError(f"expected np.ndarray (got {type(array).__name__})")
        self.need(tracker, array)
        tensor = TORCH["clone"](constant_copy(torch.from_numpy(array), self.recorder.trace))
        self.by_value[tensor] = array, array.tobytes()
        return tensor

    def drawn(self, drawn: Any, sample: Any) -> Any:
        """Return the array, or scalar, like `sample` that is drawn at every call: `drawn` is where its tensor comes from, or the tensor."""
        tensor = drawn if is_proxy(drawn) else self.recorder.add_input(drawn, tensor_of(sample))
        with self.speaking():
            array = FUNCTIONS[np.array](tensor)  # the program may write to it
        array.scalar = isinstance(sample, np.generic)
        return array

    def need(self, tracker: Tracker, array: Any) -> None:
        """Trace the call again with an array from outside as an input, where it is none yet and can be; so for a view of it."""
        if type(array) is not np.ndarray:
            return
        for outside in [x for x in tracker.buffers.values() if is_traceable(x) and self.recorder.choices.may_be_input(x)]:
            if outside is array or np.may_share_memory(outside, array):
                raise ArrayNeeded(outside)

    def items(self, tracker: Tracker, array: np.ndarray, key: Any) -> Any:
        """Return array[key] for a traced key, of an array that has been a constant so far; NULL where no tensor can stand for it."""
        if not is_traceable(array):
            return NULL
        self.need(tracker, array)
        with self.speaking():
            array = FUNCTIONS[np.asarray](array)
        return self.operate(tracker, "get_item", [array, key])

    @staticmethod
    def can_be_input(array: Any) -> bool:
        """Return whether a tensor can stand for an array."""
        return is_traceable(array)

    def check_constants(self) -> None:
        """Refuse a program that writes to an array by value, or to the tensor made of it: in eager mode the other would change, too."""
        if not self.by_value:
            return
        if self.recorder.writes_into(list(self.by_value), 0) or any([array.tobytes() != before for array, before in self.by_value.values()]):
            raise Unsupported(
                "the program makes a tensor of an array that is computed while tracing, and writes to one of them; the other would not "
                "change: copy the array with torch.tensor, or make it with torch"
            )

    # calls

    def numbers(self, tree: Any) -> Any:
        """Replace traced scalars of NumPy's by numbers that the program computes."""
        return tree_map(lambda x: self.number(x) if type(x) is NumpyProxy and x.scalar else x, tree)

    def number(self, scalar: NumpyProxy) -> NumberProxy:
        """Return the number that an array without dimensions is; operations that scale a tensor may read its tensor instead."""
        if scalar in self.outside_numbers:
            return self.outside_numbers[scalar]
        number = prims.item(scalar)
        if self.outside_numbers and scalar.spec.dtype is dtypes.float64 and self.recorder.environment.session is None:
            with self.speaking(TORCH):
                self.recorder.changing.tensors[number] = TORCH["detach"](scalar)
        return number

    def scalar_of(self, tensor: TensorProxy, number: NumberProxy) -> NumpyProxy:
        """Return the scalar of NumPy's for a number from outside that changes; `tensor` is the input for it."""
        scalar = self.of_tensor(tensor)
        scalar.scalar = True
        self.outside_numbers[scalar] = number
        return scalar

    def on_torch(self, tracker: Tracker, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Call a function of torch's, or of the NumPy language, that gets arrays; NULL where they are constants to it."""
        if _uses_numpy(function, args):
            args, kwargs = tree_map(tracker.array_like, (list(args), kwargs))
            with self.speaking():
                return self.recorder._recorded(function, args, kwargs)
        if (convert := _CONVERSIONS.get(function)) is not None:
            return convert(self, tracker, *args, **kwargs)
        if not any([type(x) is NumpyProxy for x in leaves((args, kwargs))]):
            return NULL
        args, kwargs = self.numbers((tuple(args), kwargs))
        if any([type(x) is NumpyProxy for x in leaves((args, kwargs))]):
            name = getattr(function, "__name__", str(function))
            raise Unsupported(f"{name}() of torch gets an array of NumPy's; pass torch.from_numpy(x)\n  called at {user_line()}")
        if not is_torch(function):  # an operation of the torch language
            return self.recorder._recorded(function, args, kwargs)
        return self.recorder._recorded(self.recorder._by_table, [function, *args], kwargs)

    def on_numpy(self, tracker: Tracker, function: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
        """Call a function of NumPy's that gets traced values; NULL where it gets none, and runs as it is."""
        if function is _WRAPIT and isinstance(args[0], TensorProxy) and type(args[0]) is not NumpyProxy:
            return self._by_method(tracker, *args, **kwargs)
        if isinstance(function, type) and issubclass(function, np.generic) and len(args) == 1 and type(args[0]) is NumpyProxy:
            return self._of_class(function, args[0])
        meaning = meaning_of(function)
        if meaning is None:
            return NULL
        owner = getattr(function, "__self__", None)
        if not any(map(is_proxy, [owner, *leaves((args, kwargs))])) and not (self.recorder.choices.creates and records(function, args, kwargs)):
            return NULL
        guard_same(tracker, function)
        args, kwargs = tree_map(tracker.array_like, (args, kwargs))
        operands = [owner, *leaves((args, kwargs))]
        traced = list(filter(is_proxy, operands))
        if traced and all([type(x) is NumberProxy for x in traced]):
            straight = self.recorder.environment.session is None and all(map(self.recorder.changing.computes, traced))
            if straight or (meaning is NULL and python_of(function) is None):
                raise no_value(traced[0])  # NumPy runs as it is with numbers, as np.arange(n); its np.sqrt(w) rounds as PyTorch's need not
        tensors = any([isinstance(x, TensorProxy) and type(x) is not NumpyProxy for x in operands])
        if tensors and (python := python_of(function)) is not None:  # as NumPy, which calls the tensor's methods, or makes an array of it
            return tracker.call(tracker.reach(python, tracker.sources.const(python)), args, kwargs, frame)
        for x in operands:
            self.need(tracker, x)
        args, kwargs = tree_map(self._operand, (args, kwargs))
        if not any([_is_array(x) for x in leaves((args, kwargs))]):  # beside arrays, numbers of Python's take part in promotion in their own way
            args, kwargs = tree_map(self._of_number, (args, kwargs))
        wrap = tensors and isinstance(getattr(function, "__self__", function), np.ufunc)
        if wrap and (type(function) is not np.ufunc or "out" in kwargs):
            raise Unsupported(f"a ufunc's method or out= with a tensor is not traced; pass x.numpy()\n  called at {user_line()}")
        with self.speaking():
            result = call_numpy(tracker, function, meaning, args, kwargs, frame)
        return tree_map(lambda x: self._wrapped(tracker, x), result) if wrap else result

    def operands_of(self, function: Any, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """Return the arguments of a call of NumPy's, with arrays in the place of tensors where it makes them before anything else."""
        return tree_map(self._operand, (args, kwargs)) if is_set_operation(function) else (args, kwargs)

    def inside_only(self, tracker: Tracker, function: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
        """Call a function of NumPy's where nothing runs between segments; Unsupported for an error that NumPy may not raise."""
        try:
            return self.on_numpy(tracker, function, args, kwargs, frame)
        except InputError as error:
            if runs_outside(function, args, kwargs):
                raise Unsupported(str(error)) from error
            raise

    def outside(self, tracker: Tracker, function: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
        """Run a function of NumPy's between two segments where its language lacks it, or not in this form; NULL for other functions."""
        args, kwargs = tree_map(tracker.array_like, (args, kwargs))
        if not runs_outside(function, args, kwargs):
            return NULL
        environment, meaning = self.recorder.environment, meaning_of(function)
        if meaning is not None and meaning is not NULL:
            before = Checkpoint(environment, self.recorder.trace)
            try:
                return self.on_numpy(tracker, function, args, kwargs, frame)
            except DovetailError:
                if not before.can_return():
                    raise
                before.drop_lines()
        guard_same(tracker, function)
        for x in leaves((args, kwargs)):
            self.need(tracker, x)
        with self.speaking():
            args, kwargs = tree_map(lambda x: FUNCTIONS[np.asarray](x) if isinstance(x, (np.ndarray, np.generic)) else x, (tuple(args), kwargs))
        return self._of_results(environment.session.call_outside(on_tensors(function), args, kwargs))

    def _of_results(self, results: Any) -> Any:
        """Return arrays, or scalars where they have no dimensions, for tensors that a call between two segments returned."""
        if isinstance(results, (tuple, list)):
            parts = [self._of_results(x) for x in results]
            return type(results)(*parts) if hasattr(results, "_make") else type(results)(parts)
        if not isinstance(results, TensorProxy):
            return results
        array = self.of_tensor(results)
        array.scalar = not array.spec.shape
        return array

    def _by_method(self, tracker: Tracker, tensor: TensorProxy, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the array that a tensor is to NumPy, where the tensor's own takes other arguments, as in np.clip(x, 0, 1)."""
        array = self.of_tensor(tensor)
        with self.speaking():
            result = self.recorder._recorded(getattr(array, method), list(args), kwargs)
        return self._wrapped(tracker, result)

    def _of_class(self, kind: type, array: NumpyProxy) -> NumpyProxy:
        """Return kind(array), for a class of NumPy's scalars: a scalar where the array has no dimensions."""
        with self.speaking():
            result = LANGUAGE["astype"](array, kind)
        result.scalar = not result.spec.shape
        return result

    def _operand(self, x: Any) -> Any:
        return self.of_tensor(x) if isinstance(x, TensorProxy) else x

    def _of_number(self, x: Any) -> Any:
        """Return the scalar that NumPy makes of a number that the program computes; anything else as it is."""
        if type(x) is not NumberProxy or x.spec.kind not in _SCALARS:
            return x
        call = [torch.full, (), x]
        scalar = self.of_tensor(self.recorder._recorded(self.recorder._by_table, call, {"dtype": _SCALARS[x.spec.kind]}))
        scalar.scalar = True
        return scalar

    def _wrapped(self, tracker: Tracker, array: Any) -> Any:
        """Return a result of a ufunc of tensors as `torch.Tensor.__array_wrap__` does: as a tensor, of uint8 in the place of truth values."""
        with self.speaking():
            if array.spec.dtype.kind == "bool":
                array = LANGUAGE["astype"](array, np.uint8)
            array.scalar = False
        return self.to_tensor(tracker, array)

    def operate(self, tracker: Tracker, op: Any, args: list[Any]) -> Any:
        """Evaluate an operator on arrays, or on an array and a tensor; NULL where NumPy has no part in it."""
        scalars = [type(x) is NumpyProxy and x.scalar for x in args]
        tensors = [isinstance(x, TensorProxy) and type(x) is not NumpyProxy for x in args]
        if op in ("get_item", "set_item"):
            return self._item(tracker, op, args)
        args = [self.recorder.environment.number_of(x) for x in args]
        if any(tensors):
            if all([is_tensor or is_scalar or not _is_array(x) for x, is_tensor, is_scalar in zip(args, tensors, scalars, strict=True)]):
                return self.recorder._operate(op, *self.numbers(tuple(args)))
            if not tensors[0] or op not in _WRAPPED:
                raise Unsupported(f"an operator of an array and a tensor; pass torch.from_numpy(x) of the array\n  at {user_line()}")
            return self.on_numpy(tracker, _WRAPPED[op], args, {}, None)
        if op in _COMPARISONS and (answer := self._compared(op, args)) is not None:
            return answer
        args = tree_map(tracker.array_like, args)
        for x in args:
            self.need(tracker, x)
        if op in _UFUNCS and any([type(x) is NumberProxy for x in args]):  # of an array that is a constant, which does not look for such numbers
            return self.on_numpy(tracker, _UFUNCS[op], args, {}, None)
        with self.speaking():
            return self.recorder._operate(op, *args)

    def _compared(self, op: Any, args: list[Any]) -> Any:
        """Return how numbers from outside that change compare, and guard it; None where others than float64 and plain ones are among them."""
        if not self.outside_numbers or self.recorder.environment.session is not None:
            return None
        numbers = (bool, int, float, np.float64)
        if not all([type(x) in numbers or (type(x) is NumpyProxy and x in self.outside_numbers and x.spec.dtype is dtypes.float64) for x in args]):
            return None  # narrower ones are compared in their own dtype
        answer = self.recorder.environment.answer(op, [float(x) if type(x) is np.float64 else x for x in self.numbers(args)], _COMPARISONS[op])
        return None if answer is None else np.bool_(answer)

    def _item(self, tracker: Tracker, op: str, args: list[Any]) -> Any:
        owner, key, *value = args
        session = self.recorder.environment.session
        if type(owner) is NumpyProxy and op == "get_item" and session is not None and session.is_open and _picks_by_mask(key):
            return self.of_tensor(session.call_outside(torch.Tensor.__getitem__, (owner, key), {}))
        if type(owner) is NumpyProxy:
            for x in leaves((key, value)):
                self.need(tracker, x)
            if session is not None:
                return session.attempt(self._operate_item, (op, owner, key, *value), {}, sizes=True)
            return self._operate_item(op, owner, key, *value)
        if any([type(x) is NumpyProxy and not x.scalar for x in value]):
            raise TypeError("can't assign a numpy.ndarray to a tensor; assign torch.from_numpy(x)")
        convert = [self.to_tensor(tracker, x) if type(x) is NumpyProxy and not x.scalar else x for x in (key if type(key) is tuple else (key,))]
        convert = self.numbers(convert)
        return self.recorder._operate(op, owner, tuple(convert) if type(key) is tuple else convert[0], *self.numbers(value))

    def _operate_item(self, op: str, owner: Any, key: Any, *value: Any) -> Any:
        key = tree_map(lambda x: size_of(self._operand(x)), key)  # an element at a symbolic position is a scalar
        with self.speaking():
            return self.recorder._operate(op, owner, key, *tree_map(self._operand, value))

    # attributes and results

    def load_attr(self, array: Any, name: str) -> Any:
        """Return an attribute of a traced array."""
        with self.speaking():
            return getattr(array, name)

    @staticmethod
    def builders(results: Collection[Proxy]) -> dict[Proxy, Callable[[Any], Any]]:
        """Return what makes arrays and scalars of those results of a computation that are such."""
        return {p: _scalar if p.scalar else _array for p in results if type(p) is NumpyProxy}

    def reach(self, tracker: Tracker, array: np.ndarray, source: Source) -> Any:
        """Return the input that stands for an array from outside."""
        with self.speaking():
            return self.inputs.reach(tracker, array, source)


def _array(x: torch.Tensor) -> np.ndarray:
    return x.detach().resolve_conj().resolve_neg().numpy()


def _scalar(x: torch.Tensor) -> Any:
    return _array(x)[()]


def _is_array(x: Any) -> bool:
    return type(x) is NumpyProxy or type(x) is np.ndarray


def _picks_by_mask(key: Any) -> bool:
    """Return whether an index has a traced mask in it: the shape of what it picks depends on values."""
    return any([type(p) is NumpyProxy and p.spec.dtype.kind == "bool" for p in (key if type(key) is tuple else (key,))])


def _uses_numpy(function: Any, args: Sequence[Any]) -> bool:
    """Return whether a function belongs to the NumPy language, as methods and operators of traced arrays do."""
    if isinstance(function, Symbol):
        return function.language is LANGUAGE
    if type(function) is not FunctionType:
        return False
    of_array = bool(args) and type(args[0]) is NumpyProxy and function.__module__ == Proxy.__module__
    return of_array or (function.__module__ or "").startswith("dovetail.langs.numpy")


def _as_tensor(arrays: Arrays, tracker: Tracker, data: Any, dtype: Any = None, device: Any = None) -> Any:
    return _converted(_of_any(arrays, tracker, data), dtype, device)


def _of_any(arrays: Arrays, tracker: Tracker, data: Any) -> Any:
    """Return the tensor that shares the memory of an array, or a new one of a scalar of NumPy's."""
    return _tensor(arrays, tracker, data) if getattr(data, "scalar", False) else arrays.to_tensor(tracker, data)


def _asarray(
    arrays: Arrays, tracker: Tracker, obj: Any, *, dtype: Any = None, device: Any = None, copy: Any = None, requires_grad: bool = False
) -> Any:
    if requires_grad:
        raise Unsupported("torch.asarray with requires_grad=True is not traced; convert the array outside the compiled function")
    tensor = _converted(_of_any(arrays, tracker, obj), dtype, device)
    return TORCH["clone"](tensor) if copy else tensor


def _tensor(arrays: Arrays, tracker: Tracker, data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False, **_: Any) -> Any:
    """Return a copy, as `torch.tensor` does; of an array that is a constant by its own means."""
    if type(data) is not NumpyProxy or requires_grad:
        if any([type(x) is NumpyProxy for x in leaves(data)]) or requires_grad:
            raise Unsupported(f"torch.tensor of a list of arrays, or with requires_grad=True, is not traced; use torch.stack\n  at {user_line()}")
        return NULL
    with arrays.speaking(TORCH):
        copy = TORCH["clone"](data)
    return _converted(copy, dtype, device)


def _converted(tensor: Any, dtype: Any, device: Any) -> Any:
    named = {name: value for name, value in (("dtype", dtype), ("device", device)) if value is not None}
    return TORCH["to"](tensor, **named) if named else tensor


_CONVERSIONS: dict[Any, Callable] = {
    torch.from_numpy: Arrays.to_tensor,
    torch.as_tensor: _as_tensor,
    torch.asarray: _asarray,
    torch.tensor: _tensor,
}

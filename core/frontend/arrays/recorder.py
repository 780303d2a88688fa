"""What a tracked run does with NumPy arrays: they are proxies, and what is called on them is recorded in the language of NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType, MethodWrapperType, WrapperDescriptorType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from dovetail.errors import TracedValueError, Unsupported
from dovetail.frontend.arrays.conversion import is_traceable, to_array, to_scalar
from dovetail.frontend.arrays.floating_errors import check_region
from dovetail.frontend.arrays.inputs import ArrayInputs
from dovetail.frontend.autograd import nested_grad
from dovetail.frontend.class_lookup import NULL
from dovetail.frontend.classify_calls import is_module_class, is_tensor_class, is_torch
from dovetail.frontend.environment import TorchEnvironment, constant_copy
from dovetail.frontend.recording.generators import guard_same
from dovetail.frontend.recording.native_arguments import native_argument
from dovetail.frontend.recording.torch_recorder import TorchRecorder
from dovetail.frontend.recording.tracked_environment import TrackedEnvironment
from dovetail.langs.numpy import FUNCTIONS, NumpyProxy, call_ufunc, no_values, not_traced, numpy_dtype, records
from dovetail.prims import Symbol
from dovetail.trace import NumberProxy, Proxy, Trace, is_proxy, leaves, tree_map, user_line

if TYPE_CHECKING:
    from dovetail.frontend.guards.source import Source
    from dovetail.frontend.interpreter.frame import Frame
    from dovetail.frontend.interpreter.tracking import Captured
    from dovetail.frontend.interpreter.tracking.tracker import Tracker

_DISPATCHER = type(np.sum)  # of functions that arrays may override
_DESCRIPTORS = (MethodDescriptorType, WrapperDescriptorType)
_ERRSTATE = {np.errstate.__enter__, np.errstate.__exit__}


class MixedCall(Exception):
    """A function of arrays uses tensors, too."""


class ArrayEnvironment(TrackedEnvironment):
    """Lends a tracked run arrays as constants; it knows no autocast and no gradients."""

    def lift(self, tree: Any, trace: Trace, symbol: Symbol | None = None) -> Any:
        if symbol is not None and symbol.module not in ("prims", "numpy"):
            raise Unsupported(
                f"{symbol.path} is called with NumPy arrays, and takes tensors; pass tensors to the compiled function, or call it outside\n"
                f"  called at {user_line()}"
            )
        return tree_map(lambda x: constant_copy(x, trace) if type(x) is torch.Tensor else x, tree)

    def grad_enabled(self) -> bool:
        return False

    attribute = TorchEnvironment.attribute


class ArrayRecorder(TorchRecorder):
    """Arrays read from outside become inputs of `trace`, but for those in `by_value`, whose content is guarded."""

    returns_tensors = False

    def __init__(self, trace: Trace, environment: ArrayEnvironment, by_value: dict[int, np.ndarray]):
        super().__init__(trace, environment)
        self.by_value = by_value
        self.array_inputs = ArrayInputs(self)
        self.known_arrays = self.array_inputs.arrays

    def forget(self) -> None:
        super().forget()
        self.by_value, self.array_inputs = {}, ArrayInputs(self)
        self.known_arrays = self.array_inputs.arrays

    def refuses(self, error: BaseException) -> bool:
        return isinstance(error, MixedCall) or super().refuses(error)

    # inputs and results

    def is_input(self, value: Any) -> bool:
        if self.is_tensor(value) or is_module_class(type(value)):
            return True
        return is_traceable(value) and id(value) not in self.by_value

    def reach(self, tracker: Tracker, tensor: Any, source: Source) -> Any:
        if is_proxy(tensor):
            return tensor
        if type(tensor) is not np.ndarray:
            raise MixedCall
        return self.array_inputs.reach(tracker, tensor, source)

    def original(self, tracker: Tracker, tensor: Any) -> Source | None:
        """Return where the array lies that a result is: NumPy returns the object itself."""
        return tracker.source(tensor) if tensor in self.known_arrays else None

    def build(self, captured: Captured) -> Callable[[list, tuple], Any]:
        """Return how to build a result from those of the computation: arrays share the memory of its tensors."""
        convert = [to_scalar if getattr(p, "scalar", False) else to_array for p in self.results]
        finish = captured.finish
        if is_proxy(captured.value) and not captured.effects and not captured.sources:
            (only,) = convert
            return lambda outputs, objects: only(outputs[0])
        return lambda outputs, objects: finish([one(x) for one, x in zip(convert, outputs, strict=True)], objects)

    def check_written(self, written: list[Proxy]) -> None:
        """Decide which arrays have to be the very memory that the program uses, and refuse what cannot be."""
        self.array_inputs.check_written(written)

    def content(self, tracker: Tracker, value: Any, source: Source) -> None:
        if type(value) is np.ndarray and value.dtype.hasobject:
            raise Unsupported(f"the array at {source} holds Python objects, which may change unseen; pass an array of numbers, or a list")
        super().content(tracker, value, source)

    def number(self, tracker: Tracker, source: Source, kind: str) -> Any:
        number = super().number(tracker, source, kind)
        drawn_by = next((value for value, at in tracker.known.values() if at is source.parent), None)
        if kind == "int" and isinstance(drawn_by, np.random.Generator):  # its integers are no Python numbers, but of int64
            proxy = self.trace.inputs[-1]
            proxy.scalar = True
            return proxy
        return number

    # attributes of arrays

    def class_of(self, value: Any) -> type:
        if not isinstance(value, NumpyProxy) or type(value) is NumberProxy:
            return super().class_of(value)
        return numpy_dtype(value.spec.dtype).type if value.scalar else np.ndarray

    def is_instance(self, tensor: Any, kinds: Any) -> bool:
        return issubclass(self.class_of(tensor), kinds)

    def load_attr(self, tracker: Tracker, owner: Any, name: str) -> Any:
        kind = type(owner)
        if is_module_class(kind):
            raise MixedCall
        if not is_tensor_class(kind):
            return NULL
        if name == "__class__":
            return self.class_of(owner)
        if self.is_number(owner):
            return super().load_attr(tracker, owner, name)
        return getattr(owner, name)

    def store_attr(self, tracker: Tracker, owner: Any, name: str) -> None:
        raise Unsupported(f"the program sets .{name} of an array, which is not traced; use reshape or astype\n  called at {user_line()}")

    def operate(self, tracker: Tracker, op: Any, args: list[Any]) -> Any:
        try:
            return super().operate(tracker, op, args)
        except TracedValueError as error:
            error.proxy = next(filter(is_proxy, leaves(args)), None) if error.proxy is None else error.proxy
            raise

    def truth(self, tracker: Tracker, tensor: Any) -> bool:
        return bool(tensor)

    def words(self, tensor: Any) -> None:
        raise no_values(tensor)

    # calls

    def handles(self, function: Any) -> bool:
        return isinstance(function, (np.ufunc, _DISPATCHER)) or super().handles(function)

    def call(self, tracker: Tracker, function: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
        if type(function) is FunctionType and function in _ERRSTATE:
            check_region(args[0])
            return None  # compiled programs warn of nothing
        if type(function) is FunctionType and function.__module__ == nested_grad.__name__ and function is not nested_grad.is_tracing:
            raise Unsupported(f"functions of NumPy arrays are not differentiated; pass tensors, as torch.from_numpy(x)\n  called at {user_line()}")
        if is_torch(function) or is_module_class(type(function)):
            if not isinstance(getattr(function, "__self__", None), Proxy):
                raise MixedCall
        elif (meaning := meaning_of(function)) is not None:
            plain = [native_argument(tracker, x) for x in args], {name: native_argument(tracker, x) for name, x in kwargs.items()}
            if any(map(is_proxy, leaves(plain))) or records(function, *plain):
                guard_same(tracker, function)
                return call_numpy(tracker, function, meaning, *plain, frame)
            return NULL
        return super().call(tracker, function, args, kwargs, frame)

    def on_arrays(self, tracker: Tracker, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        return NULL

    def native(self, tracker: Tracker, function: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
        for value in leaves((args, kwargs)):
            if isinstance(value, torch.Tensor):
                raise MixedCall
        super().native(tracker, function, args, kwargs)


def call_numpy(tracker: Tracker, function: Any, meaning: Any, args: list, kwargs: dict, frame: Frame | None) -> Any:
    """Call a function of NumPy's on traced arrays: its meaning, else its own Python, interpreted."""
    if meaning is not NULL:
        return meaning(*args, **kwargs)
    if (python := python_of(function)) is not None:
        return tracker.call(tracker.reach(python, tracker.sources.const(python)), args, kwargs, frame)
    name = getattr(function, "__name__", str(function))
    raise not_traced(f"numpy.{name}", "the numpy language has no meaning for it; call it outside the compiled function, and pass its result")


def python_of(function: Any) -> FunctionType | None:
    """Return the Python behind a function of NumPy's that arrays may override; None where it is in C."""
    python = getattr(function, "__wrapped__", None)
    return python if type(function) is _DISPATCHER and type(python) is FunctionType else None


def is_set_operation(function: Any) -> bool:
    """Return whether a function of NumPy's is one of those on sets, as np.isin, whose first act is to make arrays of their arguments."""
    python = python_of(function)
    return python is not None and "arraysetops" in python.__code__.co_filename


def meaning_of(function: Any) -> Any:
    """Return what a callable of NumPy's means on traced arrays, NULL where the language has nothing; None for what is not NumPy's."""
    kind = type(function)
    if kind is np.ufunc:
        return lambda *args, **kwargs: call_ufunc(function, "__call__", args, kwargs)
    if kind in (_DISPATCHER, type):
        return FUNCTIONS.get(function, NULL) if kind is _DISPATCHER or function in FUNCTIONS else None
    if kind is FunctionType:
        return FUNCTIONS.get(function)
    owner = getattr(function, "__self__", None)
    if kind in (BuiltinFunctionType, MethodWrapperType):
        if type(owner) is np.ufunc:
            return lambda *args, **kwargs: call_ufunc(owner, function.__name__, args, kwargs)
        if type(owner) is np.ndarray and function.__name__ in _WRITING:
            return lambda *_, **__: _refuse_write(function.__name__)
        if type(owner) is np.ndarray:
            return lambda *args, **kwargs: getattr(_lifted(owner), function.__name__)(*args, **kwargs)
        module = function.__module__ or getattr(owner, "__name__", "") or ""
        return FUNCTIONS.get(function, NULL) if module.partition(".")[0] == "numpy" else None
    if kind in _DESCRIPTORS and issubclass(np.ndarray, function.__objclass__) and function.__objclass__ is not object:
        return lambda x, *args, **kwargs: getattr(x if is_proxy(x) else _lifted(x), function.__name__)(*args, **kwargs)
    return None


_WRITING = {"__setitem__", "fill", "sort", "partition", "put", "resize", "setfield", "itemset"}
_WRITING |= {f"__i{name}__" for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift")}


def _refuse_write(name: str) -> Any:
    raise Unsupported(
        f"numpy.ndarray.{name} writes a traced value into an array that was computed while tracing; make that array with np.zeros, np.ones, "
        f"np.empty or np.full, which are traced, or with np.array(x) of a traced array\n  called at {user_line()}"
    )


def _lifted(x: np.ndarray) -> Any:
    return FUNCTIONS[np.asarray](x)

"""What makes a Python function the meaning of a NumPy function."""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch

from dovetail import dtypes, prims
from dovetail.devices import cpu
from dovetail.dtypes import DType
from dovetail.errors import InputDimensionError, InputIndexError, InputRuntimeError, InputValueError, Unsupported, require, require_traced
from dovetail.langs import core
from dovetail.langs.context import Language
from dovetail.langs.numpy.proxy import NumpyProxy
from dovetail.langs.torch import symbol_for
from dovetail.prims import Symbol, copy_, recorder
from dovetail.prims.op import register
from dovetail.trace import TensorProxy, leaves, printing, tree_map, user_line

LANGUAGE = Language("numpy", NumpyProxy)
FUNCTIONS: dict[Any, Callable] = {}  # the registry: NumPy callable -> the symbol, or the plain function, that it means while tracing
TO_NUMPY: dict[DType, np.dtype] = {d: np.dtype(d.name.rstrip("_")) for d in dtypes.ALL if hasattr(np, d.name)}
FROM_NUMPY: dict[np.dtype, DType] = {n: d for d, n in TO_NUMPY.items()}

printing.ROOTS["numpy"] = printing.Root("import numpy", np)
printing.LITERALS[np.dtype] = lambda value: ("numpy", f"numpy.dtype({value.name!r})")


_DEFAULTS = {"order": ("C", "K", "A", None), "subok": (True, False), "where": (True,), "initial": (None,), "casting": ("same_kind",), "like": (None,)}
_DEFAULTS |= {
    "dtype": (None,),
    "device": (None, "cpu"),
    "returned": (False,),
    "kind": (None,),
    "stable": (None,),
    "overwrite_input": (False,),
    "optimize": (False, True),
}
_OPTIONS = {*_DEFAULTS, "kind", "stable", "mean", "correction", "mode", "method", "axis", "dtype", "keepdims", "copy", "prepend", "append"}


_POSITIONS = {"axis", "axes", "shape", "axis1", "axis2", "source", "destination", "shift", "indices_or_sections", "reps", "k", "offset", "decimals"}


_SIGNED_ALONE = {
    "max",
    "min",
    "argmax",
    "argmin",
    "ptp",
    "nanmax",
    "nanmin",
    "clip",
    "diff",
    "flip",
    "dot",
    "inner",
    "vdot",
    "take",
    "take_along_axis",
}
_SIGNED_ALONE |= {"tril", "triu", "roll", "pad", "median", "diag"}


def refuse_unsigned(name: str, tree: Any) -> None:
    """Refuse unsigned integers of more than 8 bits, where PyTorch has no kernel for them."""
    wide = next((x for x in leaves(tree) if isinstance(x, TensorProxy) and x.spec.dtype in (dtypes.uint16, dtypes.uint32, dtypes.uint64)), None)
    if wide is not None:
        raise not_traced(f"{name} of {wide.spec.dtype.name}", "PyTorch has no kernel for it; convert with astype(np.int64)")


class InputAxisError(InputIndexError, np.exceptions.AxisError):
    """An axis that the array does not have, which is a ValueError as well."""


class NumpySymbol(Symbol):
    """A NumPy operation: its arguments are bound by NumPy's names, and defaults are left out of the line.

    `scalar` says what a result without dimensions is: "always" a scalar of NumPy's, "never" one but an array, or "like" the first argument.
    Results are new arrays, but for those of a `view`.
    """

    __slots__ = ("scalar", "signature")

    def __init__(self, name: str, meta: Callable, *, id: str, path: str, scalar: str = "always", view: bool = False):
        super().__init__("numpy", name, meta if view else _renewed(meta), id=id, path=path, language=LANGUAGE)
        self.signature, self.scalar = inspect.signature(meta), scalar

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        out = kwargs.pop("out", None)
        casting = kwargs.pop("casting", "same_kind") if out is not None else "same_kind"
        args, kwargs = self.bind(*args, **kwargs)
        if self.name in _SIGNED_ALONE:
            refuse_unsigned(self.path, (args, kwargs))
        try:
            result = recorder.get().record(self, args, kwargs)
        except InputRuntimeError as error:  # of what all languages share; NumPy has ValueError for shapes that do not fit
            raise InputValueError(*error.args) from error.__cause__
        except InputDimensionError as error:
            raise InputAxisError(*error.args) from error.__cause__
        if out is not None:
            return write(out, result, casting=casting)
        if self.scalar == "always" or (self.scalar == "like" and args and getattr(args[0], "scalar", False)):
            mark_scalars(result)
        return result

    def bind(self, *args: Any, **kwargs: Any) -> tuple[tuple, dict]:
        """Bind required arguments by position, the rest by name where they are not the default; arrays and NumPy's numbers become constants."""
        try:
            arguments = self.signature.bind(*args, **{k: v for k, v in kwargs.items() if not _is_default(k, v)}).arguments
        except TypeError as error:
            if unknown := kwargs.keys() & (_OPTIONS - self.signature.parameters.keys()):
                raise not_traced(f"{self.path} with {', '.join(sorted(unknown))}=", "leave it out, or apply it to the result") from None
            require(False, "{}() {}", self.path, error, error=TypeError)
        required = {p.name for p in self.signature.parameters.values() if p.default is p.empty}
        starred = next((p.name for p in self.signature.parameters.values() if p.kind is p.VAR_POSITIONAL), None)
        if starred is not None:
            return operands((*[v for k, v in arguments.items() if k != starred], *arguments.get(starred, ()))), {}
        rest = {k: v for k, v in arguments.items() if k not in required and not _same(v, self.signature.parameters[k].default)}
        rest = {k: _plain(v) if k in _POSITIONS else v for k, v in rest.items()}
        return operands(tuple(_plain(v) if k in _POSITIONS else v for k, v in arguments.items() if k in required)), operands(rest)


def _plain(value: Any) -> Any:
    """Sizes and dimensions as Python's integers."""
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) and not isinstance(value, TensorProxy) else value


def _is_default(name: str, value: Any) -> bool:
    """Whether a keyword says what NumPy does without it."""
    return value is np._NoValue or (
        name in _DEFAULTS and any([value is default or (type(value) is str and value == default) for default in _DEFAULTS[name]])
    )


def _renewed(meta: Callable) -> Callable:
    """`meta`, with a copy in the place of a result that is an argument: NumPy returns a new array."""

    @functools.wraps(meta)
    def renewed(*args: Any, **kwargs: Any) -> Any:
        known = {x for x in leaves((args, kwargs)) if isinstance(x, TensorProxy)}
        return tree_map(lambda x: prims.clone(x) if isinstance(x, TensorProxy) and x in known else x, meta(*args, **kwargs))

    return renewed


def mark_scalars(tree: Any) -> Any:
    """Make the results without dimensions scalars of NumPy's, which no operation writes into."""
    for x in leaves(tree):
        if isinstance(x, NumpyProxy) and not x.spec.shape:
            x.scalar = True
    return tree


def _same(a: Any, b: Any) -> bool:
    return a is b or (type(a) is type(b) and isinstance(a, (str, int, float)) and a == b)


def numpysymbol(*names: str, methods: Iterable[str] = (), path: str | None = None, scalar: str = "always", view: bool = False) -> Callable:
    """Register the decorated function as the NumPy functions `names` and the array methods `methods`; names that NumPy lacks are left out."""

    def wrap(meta: Callable) -> NumpySymbol:
        first = names[0] if names else f"numpy.ndarray.{next(iter(methods))}"
        path_ = path or (names[0] if names else f".{next(iter(methods))}")
        symbol = register(NumpySymbol(meta.__name__, meta, id=first, path=path_, scalar=scalar, view=view))
        for name in names:
            if (fn := resolve(name)) is not None:
                FUNCTIONS[fn] = symbol
        LANGUAGE.update(dict.fromkeys(methods, symbol))
        return symbol

    return wrap


def numpyquery(*names: str) -> Callable:
    """Register the decorated function as the NumPy functions `names` while tracing; it leaves no line."""

    def wrap(answer: Callable) -> Callable:
        FUNCTIONS.update({fn: answer for name in names if (fn := resolve(name)) is not None})
        return answer

    return wrap


def resolve(name: str) -> Any:
    """Look up the dotted `name` in this NumPy, or return None."""
    value: Any = np
    for part in name.split(".")[1:]:
        value = getattr(value, part, None)
    return value


def operands(tree: Any) -> Any:
    """Turn arrays into constants of the trace and NumPy's numbers into arrays of one element, of their dtype; Python's numbers stay, and are weak."""
    trace = recorder.get()

    def known(x: Any) -> Any:
        if isinstance(x, TensorProxy) or not isinstance(x, (np.ndarray, np.generic)):
            return x
        if isinstance(x, np.generic):
            require_traced(x.dtype in FROM_NUMPY, "a number of {} is not traced; convert with astype first", x.dtype)
            return full((), x.item(), x.dtype)
        require_traced(type(x) is np.ndarray, "an array of the class {} is not traced; pass np.asarray(x)", type(x).__name__)
        return trace.environment.lift(((foreign(x),), {}), trace)[0][0]

    return tree_map(known, tree)


def foreign(x: Any) -> Any:
    """Convert a NumPy array to the torch tensor that shares its memory, copied where strides are negative; return anything else itself."""
    if type(x) is not np.ndarray:
        return x
    require_traced(x.dtype in FROM_NUMPY, "an array of {} is not traced; convert with astype first", x.dtype)
    fits = x.flags.writeable and x.flags.aligned and not any([step < 0 or step % x.itemsize for step in x.strides])
    return torch.from_numpy(x if fits else np.array(x, order="C"))


def dtype_of(dtype: Any) -> DType:
    """Convert a NumPy dtype, its name or its scalar type to Dovetail's."""
    converted = FROM_NUMPY.get(np.dtype(dtype))
    require_traced(converted is not None, "the dtype {} of NumPy is not traced; use another", dtype)
    return converted


def numpy_dtype(dtype: DType) -> np.dtype:
    """Convert Dovetail's dtype to NumPy's."""
    require(dtype in TO_NUMPY, "NumPy has no {}; convert the tensor to another dtype before", dtype.short, error=TypeError)
    return TO_NUMPY[dtype]


def weak(x: Any) -> Any:
    """Return what NumPy promotes for the operand x: a tensor's dtype, or the Python number itself, which is weak (NEP 50)."""
    return numpy_dtype(x.spec.dtype) if isinstance(x, TensorProxy) else x


def promote(*xs: Any) -> DType:
    """np.result_type of operands: float32 with int32 is float64, where PyTorch says float32."""
    return dtype_of(np.result_type(*map(weak, xs)))


def array(x: Any, dtype: DType | None = None) -> TensorProxy:
    """Convert an operand to a traced array: numbers and nested lists become constants, as np.asarray makes them."""
    if not isinstance(x, TensorProxy):
        traced = isinstance(x, (list, tuple)) and any(isinstance(part, TensorProxy) for part in leaves(x))
        x = FUNCTIONS[np.array](x) if traced else operands(np.asarray(tree_map(_known_size, x)))
    return x if dtype is None else core.convert(x, dtype)


def _known_size(x: Any) -> Any:
    """Return the value of a symbolic size: NumPy would make an array of objects of it."""
    return int(x) if isinstance(x, torch.SymInt) else x


@numpysymbol("numpy.copyto")
def copyto(dst: Any, src: Any, casting: str = "same_kind", where: Any = True):
    """Write `src` into `dst`, broadcast, under one of NumPy's casting rules, where `where` holds."""
    allowed = np.can_cast(weak(src) if isinstance(src, TensorProxy) else np.min_scalar_type(src), weak(dst), casting)
    require(allowed, "Cannot cast output from {} to {} with casting rule {!r}; convert with astype", weak(src), weak(dst), casting, error=TypeError)
    value = array(src, dst.spec.dtype)
    fits = value.spec.shape == dst.spec.shape or core.broadcast_shapes(value.spec.shape, dst.spec.shape) == dst.spec.shape
    require(fits, "output with shape {} doesn't match the broadcast shape {}", dst.spec.shape, value.spec.shape, error=ValueError)
    value = core.expand(value, dst.spec.shape)
    copy_(dst, value if where is True else core.where(array(where), value, dst))


def _copied_to(dst: Any, *args: Any, **kwargs: Any) -> None:
    """Call np.copyto while tracing."""
    return copyto(_target(dst), *args, **kwargs)


FUNCTIONS[np.copyto] = _copied_to


def _target(dst: Any) -> TensorProxy:
    """Return an array that traced values are written into; one that is no part of the program would be a constant of it, and stay as it is."""
    if not isinstance(dst, TensorProxy):
        why = "it is computed while tracing; make it with np.zeros, np.ones, np.empty or np.full, which are traced"
        raise not_traced(f"a write of a traced value into a {type(dst).__name__}", why)
    return dst


def write(x: Any, value: TensorProxy, *, casting: str = "same_kind") -> TensorProxy:
    """Write `value` into x, an array or the tuple of one that ufuncs take as out=; return x."""
    x = x[0] if isinstance(x, tuple) else x
    copyto(_target(x), value, casting=casting)
    return x


def torch_call(name: str, *args: Any, **kwargs: Any) -> Any:
    """Call a torch operation by name, inside a NumPy one."""
    return symbol_for(f"torch.{name}")(*args, **kwargs)


@numpysymbol("numpy.full", scalar="never")
def full(shape: Any, fill_value: Any, dtype: Any = None):
    """An array of `shape` filled with a number."""
    sizes = tuple(map(operator.index, shape)) if isinstance(shape, (tuple, list)) else (operator.index(shape),)
    if isinstance(fill_value, TensorProxy):
        return core.expand(array(fill_value, fill_value.spec.dtype if dtype is None else dtype_of(dtype)), sizes)
    kind = dtype_of(np.asarray(fill_value).dtype if dtype is None else dtype)
    return prims.full(shape=sizes, value=core.fit(fill_value, (), kind), dtype=kind, device=cpu)


def of_truth(operation: Callable) -> Callable:
    """Define sums of products of booleans: whether any product is true."""

    @functools.wraps(operation)
    def product(a: Any, b: Any) -> Any:
        if any((isinstance(x, TensorProxy) and x.spec.dtype is not dtypes.bool_) or not isinstance(x, TensorProxy) for x in (a, b)):
            return operation(a, b)
        return core.ne(operation(core.convert(a, dtypes.int64), core.convert(b, dtypes.int64)), 0)

    return product


def not_traced(name: str, why: str) -> Unsupported:
    """Return the error that says that a NumPy function has no meaning here, where, and the way out."""
    return Unsupported(f"{name} is not traced: {why}\n  called at {user_line()}")

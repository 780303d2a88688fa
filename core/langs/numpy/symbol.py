"""What makes a Python function the meaning of a NumPy function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch

from dovetail import dtypes
from dovetail.dtypes import DType
from dovetail.errors import Unsupported, require
from dovetail.langs import core
from dovetail.langs.context import Language
from dovetail.langs.numpy.proxy import NumpyProxy
from dovetail.langs.torch import symbol_for
from dovetail.prims import Symbol, copy_, recorder
from dovetail.prims.op import register
from dovetail.trace import TensorProxy, printing, tree_map, user_line

LANGUAGE = Language("numpy", NumpyProxy)
FUNCTIONS: dict[Any, Callable] = {}  # the registry: NumPy callable -> the symbol, or the plain function, that it means while tracing
TO_NUMPY: dict[DType, np.dtype] = {d: np.dtype(d.name.rstrip("_")) for d in dtypes.ALL if hasattr(np, d.name)}
FROM_NUMPY: dict[np.dtype, DType] = {n: d for d, n in TO_NUMPY.items()}

printing.ROOTS["numpy"] = printing.Root("import numpy", np)
printing.LITERALS[np.dtype] = lambda value: ("numpy", f"numpy.dtype({value.name!r})")


class NumpySymbol(Symbol):
    """A NumPy operation: its arguments are bound by NumPy's names, and defaults are left out of the line."""

    __slots__ = ("signature",)

    def __init__(self, name: str, meta: Callable, *, id: str, path: str):
        super().__init__("numpy", name, meta, id=id, path=path, language=LANGUAGE)
        self.signature = inspect.signature(meta)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        out = kwargs.pop("out", None)
        args, kwargs = self.bind(*args, **kwargs)
        result = recorder.get().record(self, args, kwargs)
        return result if out is None else write(out, result)

    def bind(self, *args: Any, **kwargs: Any) -> tuple[tuple, dict]:
        """Required arguments by position, the rest by name where they are not the default; arrays and NumPy's numbers as constants."""
        try:
            given = self.signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            require(False, "{}() {}", self.path, error, error=TypeError)
        required = {p.name for p in self.signature.parameters.values() if p.default is p.empty}
        rest = {k: v for k, v in given.items() if k not in required and not _same(v, self.signature.parameters[k].default)}
        return operands(tuple(v for k, v in given.items() if k in required)), operands(rest)


def _same(a: Any, b: Any) -> bool:
    return a is b or (type(a) is type(b) and isinstance(a, (str, int, float)) and a == b)


def numpysymbol(*names: str, methods: Iterable[str] = (), path: str | None = None) -> Callable:
    """The decorated function is what the NumPy functions `names` and the array methods `methods` mean; names that NumPy lacks are left out."""

    def wrap(meta: Callable) -> NumpySymbol:
        first = names[0] if names else f"numpy.ndarray.{next(iter(methods))}"
        symbol = register(NumpySymbol(meta.__name__, meta, id=first, path=path or (names[0] if names else f".{next(iter(methods))}")))
        for name in names:
            if (fn := resolve(name)) is not None:
                FUNCTIONS[fn] = symbol
        LANGUAGE.update(dict.fromkeys(methods, symbol))
        return symbol

    return wrap


def numpyquery(*names: str) -> Callable:
    """The decorated function answers the NumPy functions `names` while tracing, and leaves no line."""

    def wrap(answer: Callable) -> Callable:
        FUNCTIONS.update({fn: answer for name in names if (fn := resolve(name)) is not None})
        return answer

    return wrap


def resolve(name: str) -> Any:
    """What the dotted `name` stands for in this NumPy, or None."""
    value: Any = np
    for part in name.split(".")[1:]:
        value = getattr(value, part, None)
    return value


def operands(tree: Any) -> Any:
    """Arrays and NumPy's numbers become constants of the trace, which keep their dtype; Python's numbers stay, and are weak."""
    trace = recorder.get()

    def known(x: Any) -> Any:
        if isinstance(x, TensorProxy) or not isinstance(x, (np.ndarray, np.generic)):
            return x
        return trace.environment.lift(((foreign(np.asarray(x)),), {}), trace)[0][0]

    return tree_map(known, tree)


def foreign(x: Any) -> Any:
    """A NumPy array as the torch tensor that shares its memory; a copy where its strides are negative.  Anything else is itself."""
    if type(x) is not np.ndarray:
        return x
    require(x.dtype in FROM_NUMPY, "arrays of {} are not traced; convert with astype first", x.dtype, error=TypeError)
    return torch.from_numpy(x.copy() if min(x.strides, default=0) < 0 or not x.flags.writeable else x)


def dtype_of(dtype: Any) -> DType:
    """A NumPy dtype, its name or its scalar type as ours."""
    found = FROM_NUMPY.get(np.dtype(dtype))
    require(found is not None, "{} is a dtype that Dovetail does not know; use another", dtype, error=TypeError)
    return found


def numpy_dtype(dtype: DType) -> np.dtype:
    """Our dtype as NumPy's."""
    require(dtype in TO_NUMPY, "NumPy has no {}; convert the tensor to another dtype before", dtype.short, error=TypeError)
    return TO_NUMPY[dtype]


def weak(x: Any) -> Any:
    """What NumPy promotes for the operand x: a tensor's dtype, or the Python number itself, which is weak (NEP 50)."""
    return numpy_dtype(x.spec.dtype) if isinstance(x, TensorProxy) else x


def promote(*xs: Any) -> DType:
    """np.result_type of operands: float32 with int32 is float64, where PyTorch says float32."""
    return dtype_of(np.result_type(*map(weak, xs)))


def array(x: Any, dtype: DType | None = None) -> TensorProxy:
    """An operand as a traced array: numbers and nested lists become constants, as np.asarray makes them."""
    if not isinstance(x, TensorProxy):
        x = operands(np.asarray(x))
    return x if dtype is None else core.convert(x, dtype)


@numpysymbol("numpy.copyto")
def copyto(dst: Any, src: Any, casting: str = "same_kind"):
    """Write `src` into `dst`, broadcast, under one of NumPy's casting rules."""
    require(isinstance(dst, TensorProxy), "expected a traced array to write into, got {}", type(dst).__name__, error=TypeError)
    allowed = np.can_cast(weak(src) if isinstance(src, TensorProxy) else np.min_scalar_type(src), weak(dst), casting)
    require(allowed, "Cannot cast output from {} to {} with casting rule {!r}; convert with astype", weak(src), weak(dst), casting, error=TypeError)
    value = array(src, dst.spec.dtype)
    fits = value.spec.shape == dst.spec.shape or core.broadcast_shapes(value.spec.shape, dst.spec.shape) == dst.spec.shape
    require(fits, "output with shape {} doesn't match the broadcast shape {}", dst.spec.shape, value.spec.shape, error=ValueError)
    copy_(dst, core.expand(value, dst.spec.shape))


def write(x: Any, value: TensorProxy, *, casting: str = "same_kind") -> TensorProxy:
    """Write `value` into x, an array or the tuple of one that ufuncs are given as out=; gives x."""
    x = x[0] if isinstance(x, tuple) else x
    copyto(x, value, casting=casting)
    return x


def torch_call(name: str, *args: Any, **kwargs: Any) -> Any:
    """A torch operation by name, inside a NumPy one."""
    return symbol_for(f"torch.{name}")(*args, **kwargs)


def not_traced(name: str, why: str) -> Unsupported:
    """The error that says that a NumPy function has no meaning here, where, and the way out."""
    return Unsupported(f"{name} is not traced: {why}\n  called at {user_line()}")

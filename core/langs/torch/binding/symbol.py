"""Torch symbols: Python functions that define torch operations, with PyTorch's argument binding."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import torch

from dovetail import dtypes, prims
from dovetail.errors import Unsupported, require
from dovetail.langs import core
from dovetail.langs.context import Language
from dovetail.langs.torch.binding.overlap import check_overlap
from dovetail.langs.torch.binding.proxy import TorchProxy
from dovetail.langs.torch.binding.symint import SymbolicInt
from dovetail.prims import SYMBOLS, Symbol, Tag, recorder
from dovetail.prims.op import register
from dovetail.prims.sizes import Size, same_shape
from dovetail.trace import NumberProxy, TensorProxy
from dovetail.trace.proxies import no_value

Tensor = TensorProxy
Number = bool | int | float | complex

LANGUAGE = Language("torch", TorchProxy)
TABLE: dict[Any, Callable] = {}  # the registry: torch callable -> the symbol or plain function called in its place while tracing
_KINDS: dict[str, tuple[type, ...]] = {
    "Tensor": (TensorProxy, torch.Tensor),
    "Number": (bool, int, float, complex, NumberProxy, SymbolicInt, Size),
    "None": (type(None),),
    "bool": (bool,),
    "str": (str,),
}
_NUMPY_NAMES = {"axis": "dim", "keepdims": "keepdim", "a": "input", "x": "input", "x1": "input", "x2": "other"}
_RESIZES = {"addbmm"}  # in place, PyTorch makes their first argument as large as the result
_UNSEEN = {"logical_and", "logical_not", "logical_or", "logical_xor"}  # in place, they leave the history of their first argument as it is
WRITTEN: dict[str, Callable] = {}  # the registry: name -> what an operation writes in place of its result, for the result and the arguments
_CHANGES_METADATA = {"squeeze", "unsqueeze", "transpose", "t", "swapaxes", "swapdims", "resize", "resize_as", "set", "rename", "as_strided"}


class TorchSymbol(Symbol):
    """A torch operation: its arguments are bound by PyTorch's names and defaults and put into one canonical form.

    `callable` is torch's own function or method, None where this torch lacks it.
    """

    __slots__ = ("_bind", "callable", "factors", "variadic")

    def __init__(
        self,
        name: str,
        meta: Callable,
        *,
        id: str,
        path: str,
        callable: Callable | None,
        variadic: str | None = None,
        factors: tuple[str, ...] = (),
        tags: Iterable[Tag] = (),
    ):
        super().__init__("torch", name, meta, id=id, path=path, language=LANGUAGE, tags=tags)
        self.callable, self.variadic, self.factors, self._bind = callable, variadic, factors, None

    @property
    def bind(self) -> Callable[..., tuple[tuple, dict]]:
        """Return the canonical arguments: defaults dropped, the rest positional up to the first gap."""
        if self._bind is None:
            self._bind = _binder(self.name, self.meta, self.variadic)
            if self.factors:
                self._bind = _with_factors(self._bind, self.meta, self.factors)
        return self._bind

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if kwargs and not _NUMPY_NAMES.keys().isdisjoint(kwargs):
            kwargs = self._renamed(kwargs)
        args, kwargs = self.bind(*args, **kwargs)
        return recorder.get().record(self, args, kwargs)

    def _renamed(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return arguments with NumPy's names under PyTorch's own."""
        known = inspect.signature(self.meta).parameters
        names = {name: _NUMPY_NAMES[name] for name in kwargs if name in _NUMPY_NAMES and name not in known}
        return {names[name] if names.get(name) in known and names[name] not in kwargs else name: value for name, value in kwargs.items()}


def torchsymbol(
    *names: str,
    methods: Iterable[str] = (),
    variadic: str | None = None,
    in_place: bool = True,
    factors: tuple[str, ...] = (),
    tags: Iterable[Tag] = (),
    bind: Callable[..., tuple[tuple, dict]] | None = None,
) -> Callable:
    """Define the torch functions `names` and the tensor methods `methods` by the decorated function.

    Names are dotted ("torch.nn.functional.gelu"); names that this torch lacks are skipped.  Parameters have torch's names and
    defaults; those annotated Tensor, Number, int, ... are checked.  `variadic` is the parameter that also accepts its items
    as separate arguments (`x.view(2, 3)`).  A method `foo` also defines `foo_` where torch has it, unless `in_place` is False.
    `factors` are the keywords that PyTorch's old signatures have as numbers among the tensors (`x.add_(alpha, other)`).
    `bind` computes the canonical (args, kwargs) where parameters and defaults do not suffice (torch.einsum, torch.sort).
    """

    def wrap(meta: Callable) -> TorchSymbol:
        functions = {name: fn for name in names if (fn := resolve(name)) is not None}
        method_objects = {m: getattr(torch.Tensor, m) for m in methods if hasattr(torch.Tensor, m)}
        if functions:
            path, callable_ = next(iter(functions.items()))
        else:
            path, callable_ = next(((f".{m}", fn) for m, fn in method_objects.items()), (names[0] if names else f".{methods[0]}", None))
        id = names[0] if names else f"torch.Tensor.{next(iter(methods))}"
        symbol = register(TorchSymbol(meta.__name__, meta, id=id, path=path, callable=callable_, variadic=variadic, factors=factors, tags=tags))
        symbol._bind = bind
        TABLE.update(dict.fromkeys([*functions.values(), *method_objects.values()], symbol))
        LANGUAGE.update(dict.fromkeys(methods, symbol))
        if in_place:
            for name in dict.fromkeys([*methods, *(n.rpartition(".")[2] for n in names)]):
                if hasattr(torch.Tensor, f"{name}_") and name not in _CHANGES_METADATA and f"{name}_" not in LANGUAGE:
                    _in_place(symbol, name, names)
        return symbol

    return wrap


def torchquery(*names: str, methods: Iterable[str] = ()) -> Callable:
    """Answer the torch functions `names` and the methods `methods` by the decorated function while tracing, without recording a line."""

    def wrap(answer: Callable) -> Callable:
        callables = [fn for name in names if (fn := resolve(name)) is not None]
        callables += [getattr(torch.Tensor, m) for m in methods if hasattr(torch.Tensor, m)]
        TABLE.update(dict.fromkeys(callables, answer))
        LANGUAGE.update(dict.fromkeys(methods, answer))
        return answer

    return wrap


SPACES: dict[str, Any] = {"torch": torch}  # the registry: the first part of a dotted name -> its namespace


def resolve(name: str) -> Any:
    """Resolve a dotted name in this torch, or return None."""
    root, *parts = name.split(".")
    value: Any = SPACES.get(root, torch)
    for part in parts:
        value = getattr(value, part, None)
    return value


def operators(**symbols: Callable) -> None:
    """Give the torch language its operators: operators(add=add, iadd=...)."""
    LANGUAGE.update(symbols)
    for name, symbol in symbols.items():
        if (method := getattr(torch.Tensor, f"__{name.rstrip('_')}__", None)) is not None:
            TABLE.setdefault(method, symbol)


def _in_place(symbol: TorchSymbol, name: str, names: Iterable[str]) -> None:
    """Register `x.foo_(...)`, which writes the result of `foo` into x."""

    @functools.wraps(symbol.meta)
    def meta(self: Any, *args: Any, **kwargs: Any) -> Any:
        check_overlap(name, self, (args, kwargs))
        value = symbol(self, *args, **kwargs)
        if name in _RESIZES and not same_shape(value.spec.shape, self.spec.shape):
            raise Unsupported(
                f"{name}_ of a tensor of shape {list(self.spec.shape)} is not supported where the result has shape {list(value.spec.shape)}, "
                f"since traced tensors cannot be resized; use the result of {name}"
            )
        value = WRITTEN[name](value, self, *args) if name in WRITTEN else value
        write(prims.detach(self) if name in _UNSEEN else self, value)
        return self

    meta.__name__, meta.__doc__ = f"{name}_", f"`{name}`, written into the first argument."
    method = getattr(torch.Tensor, f"{name}_")
    how = {"callable": method, "variadic": symbol.variadic, "factors": symbol.factors}
    twin = TorchSymbol(f"{name}_", meta, id=f"torch.Tensor.{name}_", path=f".{name}_", **how)
    twin._bind = symbol._bind
    register(twin)
    functions = [fn for n in names if (fn := resolve(f"{n}_")) is not None]
    TABLE.update(dict.fromkeys([twin.callable, *functions], twin))
    LANGUAGE[f"{name}_"] = twin


def write(x: TensorProxy, value: TensorProxy) -> None:
    """Write `value` into the storage of x, in x's dtype.  Raises where eager does."""
    require(
        same_shape(value.spec.shape, x.spec.shape),
        "output with shape {} doesn't match the broadcast shape {}; use the operation that is not in place",
        list(x.spec.shape),
        list(value.spec.shape),
    )
    castable = dtypes.rank(value.spec.dtype.kind) <= dtypes.rank(x.spec.dtype.kind)
    require(castable, "result type {} can't be cast to the desired output type {}", value.spec.dtype.short, x.spec.dtype.short)
    prims.copy_(x, core.convert(value, x.spec.dtype))


def wrong_type(function: str, parameter: str, expected: str, value: Any) -> None:
    """Raise eager's TypeError for an argument of the wrong type; a tensor without dimensions stands for its number, which is needed then."""
    if expected == "Number" and isinstance(value, TensorProxy) and not value.spec.shape:
        needs_number(value)
    require(False, "{}(): argument '{}' must be {}, not {}", function, parameter, expected, type(value).__name__, error=TypeError)


def needs_number(tensor: TensorProxy) -> None:
    """Raise for an operation that takes the number in a tensor without dimensions."""
    error = no_value(tensor)
    error.question = "__float__" if tensor.spec.dtype.kind == "float" else "__index__"
    raise error


def numpy_number(function: str, parameter: str, expected: str, value: Any) -> Any:
    """Convert a NumPy number to Python's where a number is expected.  Raises TypeError for other values."""
    if "Number" in expected and type(value).__module__ == "numpy" and getattr(value, "ndim", 1) == 0:
        return value.item()
    return wrong_type(function, parameter, expected, value)


_missing = object()


def _binder(name: str, meta: Callable, variadic: str | None) -> Callable[..., tuple[tuple, dict]]:
    """Generate a function with `meta`'s parameters that returns canonical (args, kwargs); five times faster than inspect.Signature.bind."""
    parameters = list(inspect.signature(meta).parameters.values())
    scope: dict[str, Any] = {
        "_missing": _missing,
        "_numpy_number": numpy_number,
        "_Sequence": (tuple, list),
        "_Size": torch.Size,
    }
    head, body = [], []
    for p in parameters:
        if p.kind is p.KEYWORD_ONLY and "*" not in head and f"*_{variadic}" not in head:
            head.append("*")
        if p.default is not p.empty:
            scope[f"_default_{p.name}"] = p.default
        if p.name == variadic and p.default is not p.empty:  # x.squeeze(), x.squeeze(0), x.squeeze((0, 1)) and x.squeeze(0, 1)
            head += [f"*_{p.name}", f"{p.name}=_missing"]
            body.append(
                f"    if {p.name} is _missing: {p.name} = _{p.name} if len(_{p.name}) > 1 else _{p.name}[0] if _{p.name} else _default_{p.name}"
            )
        elif p.name == variadic:
            head += [f"*_{p.name}", f"{p.name}=_missing"]  # x.permute(1, 0), x.permute((1, 0)) and x.permute(dims=(1, 0))
            body.append(f"    {p.name} = _{p.name} if {p.name} is _missing else ({p.name},)")
            body.append(f"    if len({p.name}) == 1 and isinstance({p.name}[0], _Sequence): {p.name} = {p.name}[0]")
            body.append(f"    {p.name} = tuple({p.name})")
        else:
            head.append(p.name if p.default is p.empty else f"{p.name}=_default_{p.name}")
        body += _type_check(name, p, scope)
    body += _canonical(parameters)
    text = f"def {name}({', '.join(head)}):\n" + "\n".join(body) + "\n    return args, kwargs\n"
    exec(compile(text, f"<arguments of {name}>", "exec"), scope)
    return scope[name]


def _with_factors(bind: Callable[..., tuple[tuple, dict]], meta: Callable, factors: tuple[str, ...]) -> Callable[..., tuple[tuple, dict]]:
    """Bind PyTorch's old signatures as well: beta, input, alpha, mat1, mat2 or x.addcmul_(value, tensor1, tensor2)."""
    operands = sum([p.kind is p.POSITIONAL_OR_KEYWORD for p in inspect.signature(meta).parameters.values()])

    def bind_any(*args: Any, **kwargs: Any) -> tuple[tuple, dict]:
        if len(args) > operands:
            head, tail = args[: 1 - operands], args[1 - operands :]
            numbers = [x for x in head if isinstance(x, _KINDS["Number"])]
            tensors = [x for x in (*head, *tail) if isinstance(x, _KINDS["Tensor"])]
            if len(tensors) == operands and 0 < len(numbers) <= len(factors) and (head[0] is tensors[0] or "beta" in factors):
                return bind(*tensors, **kwargs, **dict(zip(factors, numbers)))
        return bind(*args, **kwargs)

    return bind_any


def _canonical(parameters: list[inspect.Parameter]) -> list[str]:
    """Return statements that collect `args` and `kwargs`, omitting defaults."""
    required = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD and p.default is p.empty]
    rows = [f"    args = ({', '.join(required)}{',' * (len(required) == 1)})", "    kwargs = {}"]
    at = len(required)
    for p in parameters:
        if p.name in required:
            continue
        is_set = _differs(p)
        if p.name == "dim" and any(q.name == "keepdim" for q in parameters):
            is_set = f"({is_set}) or keepdim is not False"  # torch has no overload torch.sum(x, keepdim=True), only torch.sum(x, None, True)
        if p.kind is p.POSITIONAL_OR_KEYWORD:
            rows += [f"    if {is_set}:", f"        if len(args) == {at}: args += ({p.name},)", f"        else: kwargs[{p.name!r}] = {p.name}"]
            at += 1
        else:
            rows.append(f"    kwargs[{p.name!r}] = {p.name}" if is_set is None else f"    if {is_set}: kwargs[{p.name!r}] = {p.name}")
    return rows


def _differs(p: inspect.Parameter) -> str | None:
    if p.default is p.empty:
        return None
    if p.default is None or isinstance(p.default, bool):
        return f"{p.name} is not {p.default}"
    return f"type({p.name}) is not type(_default_{p.name}) or {p.name} != _default_{p.name}"


def _type_check(function: str, p: inspect.Parameter, scope: dict[str, Any]) -> list[str]:
    """Return a statement that checks the annotated types, or makes a torch.Size a tuple; unknown annotations are not checked."""
    type_names = p.annotation.split(" | ") if isinstance(p.annotation, str) else []
    if "Sequence[int]" in type_names:  # a line has a plain tuple
        return [f"    if type({p.name}) is _Size: {p.name} = tuple({p.name})"]
    if not type_names or any(word not in _KINDS for word in type_names):
        return []
    scope[f"_types_{p.name}"] = tuple(kind for word in type_names for kind in _KINDS[word])
    expected = " or ".join(type_names)
    return [f"    if not isinstance({p.name}, _types_{p.name}): {p.name} = _numpy_number({function!r}, {p.name!r}, {expected!r}, {p.name})"]


def symbol_for(operation: Symbol | Callable | str) -> Any:
    """Return the symbol for a symbol, its id, a torch callable or the dotted name of one; None where torch or Dovetail lacks it."""
    if isinstance(operation, str) and not operation.startswith("torch."):
        return SYMBOLS.get(operation)
    if isinstance(operation, Symbol):
        return operation
    function = resolve(operation) if isinstance(operation, str) else operation
    entry = TABLE.get(function)
    if entry is None and function is not None and isinstance(operation, str):
        entry = SYMBOLS.get(operation)  # a library has put a function of its own in the place of torch's
    return entry if isinstance(entry, Symbol) else None


FACTORIES: set[Any] = set()  # the registry: torch callables that create tensors without tensor arguments, which only the function mode intercepts


def factory(*names: str, **options: Any) -> Callable:
    """Define a torch function that may be called without tensors, such as torch.zeros; see `torchsymbol`."""
    FACTORIES.update(fn for name in names if (fn := resolve(name)) is not None)
    return torchsymbol(*names, **options)


def write_out(out: Any, value: Any) -> Any:
    """Implement `out=`: write the results into the passed tensors and return these."""
    if isinstance(out, (tuple, list)):
        for x, new in zip(out, value, strict=True):
            write_out(x, new)
        return type(value)(out) if type(value) is not tuple and isinstance(value, tuple) else tuple(out)
    if not isinstance(out, (TensorProxy, torch.Tensor)):
        wrong_type("out", "out", "Tensor", out)
    LANGUAGE["_write_out"](out, value)
    return out

"""What makes a Python function the meaning of a torch operation."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import torch

from dovetail import dtypes, prims
from dovetail.errors import require
from dovetail.langs import core
from dovetail.langs.context import Language
from dovetail.langs.torch.binding.proxy import TorchProxy
from dovetail.prims import SYMBOLS, Symbol, Tag, recorder
from dovetail.prims.op import register
from dovetail.trace import NumberProxy, TensorProxy

Tensor = TensorProxy
Number = bool | int | float | complex

LANGUAGE = Language("torch", TorchProxy)
TABLE: dict[Any, Callable] = {}  # the registry: torch callable -> the symbol, or the plain function, that it means while tracing
_KINDS: dict[str, tuple[type, ...]] = {
    "Tensor": (TensorProxy, torch.Tensor),
    "Number": (bool, int, float, complex, NumberProxy),
    "None": (type(None),),
    "bool": (bool,),
    "str": (str,),
}
_CHANGES_METADATA = {"squeeze", "unsqueeze", "transpose", "t", "swapaxes", "swapdims", "resize", "resize_as", "set", "rename", "as_strided"}


class TorchSymbol(Symbol):
    """A torch operation: its arguments are bound by PyTorch's names and defaults and put into one canonical form.

    `callable` is torch's own function or method, None where this torch lacks it.
    """

    __slots__ = ("_bind", "callable", "variadic")

    def __init__(
        self, name: str, meta: Callable, *, id: str, path: str, callable: Callable | None, variadic: str | None = None, tags: Iterable[Tag] = ()
    ):
        super().__init__("torch", name, meta, id=id, path=path, language=LANGUAGE, tags=tags)
        self.callable, self.variadic, self._bind = callable, variadic, None

    @property
    def bind(self) -> Callable[..., tuple[tuple, dict]]:
        """Return the canonical arguments: defaults dropped, the rest positional up to the first gap."""
        if self._bind is None:
            self._bind = _binder(self.name, self.meta, self.variadic)
        return self._bind

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = self.bind(*args, **kwargs)
        return recorder.get().record(self, args, kwargs)


def torchsymbol(
    *names: str,
    methods: Iterable[str] = (),
    variadic: str | None = None,
    in_place: bool = True,
    tags: Iterable[Tag] = (),
    bind: Callable[..., tuple[tuple, dict]] | None = None,
) -> Callable:
    """Return the decorated function is what the torch functions `names` and the tensor methods `methods` mean.

    Names are dotted ("torch.nn.functional.gelu"); one that this torch lacks is left out, and no import fails.  Parameters are named and
    defaulted as torch's; those annotated Tensor, Number, int, ... are checked.  `variadic` is the parameter that also takes its items
    as separate arguments (`x.view(2, 3)`).  A method `foo` brings `foo_` with it where torch has one, unless `in_place` is False.
    `bind` makes the canonical (args, kwargs) of calls that parameters and defaults do not describe (torch.einsum, torch.sort).
    """

    def wrap(meta: Callable) -> TorchSymbol:
        found = {name: fn for name in names if (fn := resolve(name)) is not None}
        has = {m: getattr(torch.Tensor, m) for m in methods if hasattr(torch.Tensor, m)}
        if found:
            path, callable_ = next(iter(found.items()))
        else:
            path, callable_ = next(((f".{m}", fn) for m, fn in has.items()), (names[0] if names else f".{methods[0]}", None))
        id = names[0] if names else f"torch.Tensor.{next(iter(methods))}"
        symbol = register(TorchSymbol(meta.__name__, meta, id=id, path=path, callable=callable_, variadic=variadic, tags=tags))
        symbol._bind = bind
        TABLE.update(dict.fromkeys([*found.values(), *has.values()], symbol))
        LANGUAGE.update(dict.fromkeys(methods, symbol))
        if in_place:
            for name in dict.fromkeys([*methods, *(n.rpartition(".")[2] for n in names)]):
                if hasattr(torch.Tensor, f"{name}_") and name not in _CHANGES_METADATA and f"{name}_" not in LANGUAGE:
                    _in_place(symbol, name, names)
        return symbol

    return wrap


def torchquery(*names: str, methods: Iterable[str] = ()) -> Callable:
    """Return the decorated function answers the torch functions `names` and the methods `methods` while tracing, and leaves no line."""

    def wrap(answer: Callable) -> Callable:
        callables = [fn for name in names if (fn := resolve(name)) is not None]
        callables += [getattr(torch.Tensor, m) for m in methods if hasattr(torch.Tensor, m)]
        TABLE.update(dict.fromkeys(callables, answer))
        LANGUAGE.update(dict.fromkeys(methods, answer))
        return answer

    return wrap


SPACES: dict[str, Any] = {"torch": torch}  # the registry: what the first part of a dotted name stands for


def resolve(name: str) -> Any:
    """Return what the dotted `name` stands for in this torch, or None."""
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
    """`x.foo_(...)` writes what `foo` gives into x."""

    @functools.wraps(symbol.meta)
    def meta(self: Any, *args: Any, **kwargs: Any) -> Any:
        write(self, symbol(self, *args, **kwargs))
        return self

    meta.__name__, meta.__doc__ = f"{name}_", f"`{name}`, written into the first argument."
    twin = TorchSymbol(
        f"{name}_", meta, id=f"torch.Tensor.{name}_", path=f".{name}_", callable=getattr(torch.Tensor, f"{name}_"), variadic=symbol.variadic
    )
    twin._bind = symbol._bind
    register(twin)
    spelled = [fn for n in names if (fn := resolve(f"{n}_")) is not None]
    TABLE.update(dict.fromkeys([twin.callable, *spelled], twin))
    LANGUAGE[f"{name}_"] = twin


def write(x: TensorProxy, value: TensorProxy) -> None:
    """Write `value` into the storage of x, in x's dtype; refuses what eager refuses."""
    require(
        value.spec.shape == x.spec.shape,
        "output with shape {} doesn't match the broadcast shape {}; use the operation that is not in place",
        list(x.spec.shape),
        list(value.spec.shape),
    )
    castable = dtypes.rank(value.spec.dtype.kind) <= dtypes.rank(x.spec.dtype.kind)
    require(castable, "result type {} can't be cast to the desired output type {}", value.spec.dtype.short, x.spec.dtype.short)
    prims.copy_(x, core.convert(value, x.spec.dtype))


def wrong_type(function: str, parameter: str, wanted: str, got: Any) -> None:
    """What eager says of an argument of the wrong type."""
    require(False, "{}(): argument '{}' must be {}, not {}", function, parameter, wanted, type(got).__name__, error=TypeError)


def numpy_number(function: str, parameter: str, wanted: str, got: Any) -> Any:
    """Return a NumPy number, where a number will do, as Python's; anything else is of the wrong type."""
    if "Number" in wanted and type(got).__module__ == "numpy" and getattr(got, "ndim", 1) == 0:
        return got.item()
    return wrong_type(function, parameter, wanted, got)


def lacking(function: str, parameter: str) -> None:
    """What Python says of an argument that was not given."""
    require(False, "{}() missing 1 required positional argument: '{}'", function, parameter, error=TypeError)


_missing = object()
_NUMPY_NAMES = {"dim": "axis", "keepdim": "keepdims"}


def _binder(name: str, meta: Callable, variadic: str | None) -> Callable[..., tuple[tuple, dict]]:
    """Return a function with `meta`'s parameters that gives (args, kwargs); generated, since inspect.Signature.bind takes five times as long."""
    parameters = list(inspect.signature(meta).parameters.values())
    scope: dict[str, Any] = {"_missing": _missing, "_numpy_number": numpy_number, "_lacking": lacking, "_Sequence": (tuple, list)}
    head, body = [], []
    spare = _spare_names(parameters)
    soft = _may_come_later(parameters, spare, variadic)
    for p in parameters:
        if p.kind is p.KEYWORD_ONLY and "*" not in head and f"*_{variadic}" not in head:
            head.append("*")
        if p.default is not p.empty:
            scope[f"_default_{p.name}"] = p.default
        if p.name == variadic:
            head += [f"*_{p.name}", f"{p.name}=_missing"]  # x.permute(1, 0), x.permute((1, 0)) and x.permute(dims=(1, 0))
            body.append(f"    {p.name} = _{p.name} if {p.name} is _missing else ({p.name},)")
            body.append(f"    if len({p.name}) == 1 and isinstance({p.name}[0], _Sequence): {p.name} = {p.name}[0]")
            body.append(f"    {p.name} = tuple({p.name})")
        else:
            head.append(f"{p.name}=_missing" if p.name in soft else p.name if p.default is p.empty else f"{p.name}=_default_{p.name}")
        body += _type_check(name, p, scope)
    if spare:
        head += ([] if "*" in head or f"*_{variadic}" in head else ["*"]) + [f"{other}=_missing" for _, other in spare]
        given = [f"    if {other} is not _missing: {mine} = {other}" for mine, other in spare]
        body = [*given, *[f"    if {mine} is _missing: _lacking({name!r}, {mine!r})" for mine in soft], *body]
    body += _canonical(parameters, variadic)
    text = f"def {name}({', '.join(head)}):\n" + "\n".join(body) + "\n    return args, kwargs\n"
    exec(compile(text, f"<arguments of {name}>", "exec"), scope)
    return scope[name]


def _spare_names(parameters: list[inspect.Parameter]) -> list[tuple[str, str]]:
    """(parameter, NumPy's name for it)."""
    names = {p.name for p in parameters}
    return [(p.name, other) for p in parameters if (other := _NUMPY_NAMES.get(p.name)) and other not in names]


def _may_come_later(parameters: list[inspect.Parameter], spare: list[tuple[str, str]], variadic: str | None) -> list[str]:
    """Required parameters from the first that has a spare name on: the call may give them by name, so their defaults say that they lack."""
    required = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD and p.default is p.empty and p.name != variadic]
    first = next((i for i, name in enumerate(required) if name in dict(spare)), len(required))
    return required[first:]


def _canonical(parameters: list[inspect.Parameter], variadic: str | None) -> list[str]:
    """Statements that collect `args` and `kwargs`, leaving defaults out."""
    required = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD and (p.default is p.empty or p.name == variadic)]
    rows = [f"    args = ({', '.join(required)}{',' * (len(required) == 1)})", "    kwargs = {}"]
    at = len(required)
    for p in parameters:
        if p.name in required:
            continue
        given = _differs(p)
        if p.name == "dim" and any(q.name == "keepdim" for q in parameters):
            given = f"({given}) or keepdim is not False"  # torch.sum(x, keepdim=True) is no overload of torch's, torch.sum(x, None, True) is
        if p.kind is p.POSITIONAL_OR_KEYWORD:
            rows += [f"    if {given}:", f"        if len(args) == {at}: args += ({p.name},)", f"        else: kwargs[{p.name!r}] = {p.name}"]
            at += 1
        else:
            rows.append(f"    kwargs[{p.name!r}] = {p.name}" if given is None else f"    if {given}: kwargs[{p.name!r}] = {p.name}")
    return rows


def _differs(p: inspect.Parameter) -> str | None:
    if p.default is p.empty:
        return None
    if p.default is None or isinstance(p.default, bool):
        return f"{p.name} is not {p.default}"
    return f"type({p.name}) is not type(_default_{p.name}) or {p.name} != _default_{p.name}"


def _type_check(function: str, p: inspect.Parameter, scope: dict[str, Any]) -> list[str]:
    """Return a statement that refuses an argument outside the annotated types; annotations it does not know are not checked."""
    words = p.annotation.split(" | ") if isinstance(p.annotation, str) else []
    if not words or any(word not in _KINDS for word in words):
        return []
    scope[f"_types_{p.name}"] = tuple(kind for word in words for kind in _KINDS[word])
    wanted = " or ".join(words)
    return [f"    if not isinstance({p.name}, _types_{p.name}): {p.name} = _numpy_number({function!r}, {p.name!r}, {wanted!r}, {p.name})"]


def symbol_for(operation: Symbol | Callable | str) -> Any:
    """Return the symbol for a symbol, its id, a torch callable or the dotted name of one; None where torch or Dovetail lacks it."""
    if isinstance(operation, str) and not operation.startswith("torch."):
        return SYMBOLS.get(operation)
    if isinstance(operation, Symbol):
        return operation
    found = TABLE.get(resolve(operation) if isinstance(operation, str) else operation)
    return found if isinstance(found, Symbol) else None


FACTORIES: set[Any] = set()  # the registry: torch callables that make tensors of no tensor, and so are seen only by the function mode


def factory(*names: str, **options: Any) -> Callable:
    """Return a `torchsymbol` for a function that may be called without any tensor, such as torch.zeros."""
    FACTORIES.update(fn for name in names if (fn := resolve(name)) is not None)
    return torchsymbol(*names, **options)


def write_out(out: Any, value: Any) -> Any:
    """Return what `out=` means: write the results into the given tensors and return those."""
    if isinstance(out, (tuple, list)):
        for x, new in zip(out, value, strict=True):
            write_out(x, new)
        return type(value)(out) if type(value) is not tuple and isinstance(value, tuple) else tuple(out)
    if not isinstance(out, (TensorProxy, torch.Tensor)):
        wrong_type("out", "out", "Tensor", out)
    LANGUAGE["_write_out"](out, value)
    return out

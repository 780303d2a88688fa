"""Which tensor subclasses are wrappers that can be traced, what a program depends on of one, how it is built again; other overrides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache
from types import FunctionType, MethodDescriptorType, WrapperDescriptorType
from typing import Any

import torch

from dovetail.errors import Unsupported
from dovetail.frontend import dtensors
from dovetail.frontend.class_lookup import NULL, is_in_python, lookup, per_class
from dovetail.frontend.dtensors import is_dtensor, is_dtensor_class
from dovetail.torch_internals import no_modes, no_torch_function, torch_function
from dovetail.trace import NumberProxy, TensorProxy, is_proxy, leaves, user_line

_NOT_OVERRIDING = frozenset({TensorProxy, NumberProxy, int, float, bool, str, type(None), torch.dtype, torch.device, tuple, list, dict})
_METHODS = ("__torch_dispatch__", "__tensor_flatten__", "__tensor_unflatten__")
_SPARSE = frozenset({torch.sparse_coo, torch.sparse_csr})
_KNOWN = ("torch.testing.", "torch.nested.")  # torch's own subclasses, but for these, have meanings beyond what they hold


def is_wrapper(x: Any) -> bool:
    """Return whether x is a tensor that wraps others, of a class that can be traced, or a sparse matrix."""
    return (is_wrapper_class(type(x)) and (not is_dtensor(x) or dtensors.on_one_rank(x))) or is_sparse(x)


def is_sparse(x: Any) -> bool:
    """Return whether x is a sparse matrix, and no gradient is computed for it."""
    if type(x) is not torch.Tensor or x.layout not in _SPARSE or x.requires_grad:
        return False
    return x.dim() == 2 and x.dense_dim() == 0


@per_class
def is_wrapper_class(kind: type) -> bool:
    """Return whether a class of tensors runs operations in Python, and can be taken apart and built again; torch's own are not meant."""
    torchs = kind.__module__.startswith("torch.") and not kind.__module__.startswith(_KNOWN)
    return is_dtensor_class(kind) or (
        not torchs and any([base is torch.Tensor for base in kind.__mro__]) and all([is_in_python(lookup(kind, name)) for name in _METHODS])
    )


def wrappers_in(tree: Any) -> list[Any]:
    """Return the wrappers in a nest, one of each class, subclasses first."""
    return _subclasses_first(filter(is_wrapper, leaves(tree)), type)


def overriding(tree: Any) -> list[Any]:
    """Return one object of each class in Python with a `__torch_function__`, subclasses first; tensors are none."""
    return _subclasses_first(_overriding_in(tree), type)


def _overriding_in(tree: Any) -> Iterator[Any]:
    """Yield the objects with a `__torch_function__` in a nest; a tuple of such a class, as a NamedTuple may be, is one of them."""
    if _is_overriding(tree):
        yield tree
    elif issubclass(type(tree), (tuple, list, dict)):
        for item in tree.values() if issubclass(type(tree), dict) else tree:
            yield from _overriding_in(item)


def overriding_classes(values: Iterable[Any]) -> tuple[type, ...]:
    """Return the classes that torch's own Python tells a `__torch_function__` of: those that have one, Tensor among them, subclasses first."""
    kinds = [torch.Tensor if isinstance(x, TensorProxy) else type(x) for x in values if isinstance(x, TensorProxy) or _is_overriding(x)]
    return tuple(_subclasses_first(kinds, lambda kind: kind))


def _is_overriding(x: Any) -> bool:
    kind = type(x)
    if kind in _NOT_OVERRIDING or is_proxy(x) or isinstance(x, (type, torch.Tensor)):
        return False
    return isinstance(lookup(kind, "__torch_function__"), (classmethod, FunctionType, staticmethod))


def _subclasses_first(values: Iterable[Any], kind_of: Callable[[Any], type]) -> list[Any]:
    """Return one value of each class, subclasses before what they derive from: the order in which torch calls them."""
    chosen: dict[type, Any] = {}
    for x in values:
        chosen.setdefault(kind_of(x), x)
    kinds: list[type] = []
    for kind in chosen:
        kinds.insert(next((i for i, other in enumerate(kinds) if issubclass(kind, other)), len(kinds)), kind)
    return [chosen[kind] for kind in kinds]


class _Probe:
    """An object that returns the function that it overrides."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func


@cache
def overridden_as(method: MethodDescriptorType | WrapperDescriptorType) -> Any:
    """Return what the `__torch_function__` of an object gets for a method of a tensor: torch.Tensor.add for torch.Tensor.__add__."""
    if not method.__name__.startswith("__"):
        return method
    with suppress(TypeError), no_modes(), torch_function():
        return method(torch.ones(1), _Probe())
    return method


@per_class
def overrides_functions(kind: type) -> bool:
    """Return whether a wrapper has a `__torch_function__` in Python, other than torch's own."""
    raw = lookup(kind, "__torch_function__")
    return is_in_python(raw) and raw is not lookup(torch.Tensor, "__torch_function__")


@per_class
def converts_results(kind: type) -> bool:
    """Return whether torch makes instances of the class of all results: the class has left `__torch_function__` as it is."""
    return lookup(kind, "__torch_function__") is lookup(torch.Tensor, "__torch_function__")


def is_jagged(x: Any) -> bool:
    """Return whether x is a nested tensor of the jagged layout: one of its sizes is symbolic, and stands for its offsets."""
    return type(x).__name__ == "NestedTensor" and type(x).__module__.startswith("torch.nested.")


def facts_of(x: torch.Tensor) -> tuple[Any, ...]:
    """Return what a wrapper says of itself, beside what it holds; no `__torch_function__` of its class runs."""
    with no_torch_function():
        if is_sparse(x):  # its size is read where it is of use
            return x.dtype, x.device, x.layout, x.layout is torch.sparse_coo and x.is_coalesced()
        if is_jagged(x):  # its sizes are those of what it holds
            return x._ragged_idx, x._lengths is None, x.dtype, x.device, x.layout, x.requires_grad
        lies = (x._spec.mesh, x._spec.placements) if is_dtensor(x) else ()
        return tuple(x.shape), tuple(x.stride()), *lies, x.storage_offset(), x.dtype, x.device, x.layout, x.requires_grad


def has_facts(x: torch.Tensor, facts: tuple[Any, ...]) -> bool:
    """Return whether a wrapper still says the same of itself."""
    return facts_of(x) == facts


def taken_apart(x: torch.Tensor) -> tuple[list[Any], Callable[..., Any]]:
    """Return what a wrapper holds, its context last, and the function that builds one like it of these."""
    if is_dtensor(x):
        return dtensors.taken_apart(x)
    names, context = x.__tensor_flatten__()
    cls, (size, stride, *_) = type(x), ((), (), ()) if is_jagged(x) else facts_of(x)  # a nested tensor has its sizes of what it holds

    def build(*parts: Any, unflatten: Callable[..., Any] | None = None) -> Any:
        inner = dict(zip(names, parts[:-1], strict=True))
        return (unflatten or cls.__tensor_unflatten__)(inner, parts[-1], torch.Size(size), stride)

    return [*[x.__dict__[name] if name in x.__dict__ else getattr(x, name) for name in names], context], build


def torchs_own(kind: type, name: str) -> Any:
    """Return what torch's own classes have under a name, NULL where the class of a wrapper replaces it."""
    for base in kind.__mro__:
        if name in vars(base):
            return vars(base)[name] if base in (torch.Tensor, torch.Tensor.__base__) else NULL
    return NULL


def untraced_value(x: torch.Tensor) -> Unsupported:
    """Return the error for a wrapper whose values the program needs."""
    return Unsupported(f"the value of a {type(x).__name__} is needed, which is not traced; make a plain tensor of it\n  called at {user_line()}")

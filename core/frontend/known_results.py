"""Operations with results of shapes that depend on values: where the program computes these from constants alone, the results are known, too.

>>> def computation(t0):
...     t1 = prims.tensor_from_sequence(values=(3, 0, 5))  # and `nonzero` of it is
...     t2 = prims.tensor_from_sequence(values=(0, 2))
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from dovetail import dtypes, prims
from dovetail.errors import Unsupported
from dovetail.langs.torch import VALUE_DEPENDENT, SymbolicInt, is_position, spec_of
from dovetail.torch_internals import no_torch_function
from dovetail.trace import TensorProxy, is_proxy, proxies, tree_map, value_of

_LARGEST = 1 << 10  # elements of a result or of a mask, which are written into the program
_KINDS = ("bool", "int", "float")
_MASKS = frozenset({dtypes.bool_, dtypes.uint8})
_WHERE = frozenset({torch.where, torch.Tensor.where})
_REPEATS = frozenset({torch.repeat_interleave, torch.Tensor.repeat_interleave})


def depends_on_values(func: Callable, args: Sequence[Any], kwargs: dict) -> bool:
    """Return whether the shape, or the type, of the result of a torch function depends on the values of tensors."""
    if func in VALUE_DEPENDENT:
        return True
    if func in _REPEATS:
        repeats = kwargs.get("repeats", next(reversed(args[:2]), None))
        return kwargs.get("output_size") is None and is_proxy(repeats) and value_of(repeats) is None
    if func is torch.nn.functional.one_hot:
        classes = args[1] if len(args) > 1 else kwargs.get("num_classes", -1)
        return type(classes) is int and classes == -1
    return func in _WHERE and len(args) + len(kwargs) == 1


def known_result(func: Callable, args: Sequence[Any], kwargs: dict) -> tuple[Any] | None:
    """Return func(*args, **kwargs) in a tuple, with lines that create its tensors; None where it is large, or not all arguments are known."""
    arguments = tuple(args), kwargs
    tensors = proxies(arguments)
    if not all([isinstance(p, TensorProxy) and not p.spec.requires_grad for p in tensors]):
        return None
    values = {}
    for p in tensors:
        if (value := value_of(p)) is None:
            return None
        values[p] = value
    try:
        args, kwargs = tree_map(lambda x: _real(x, values), arguments)
        with no_torch_function(), torch.no_grad():
            result = func(*args, **kwargs)
        return (tree_map(_created, result),)
    except (Unsupported, RuntimeError, TypeError, ValueError, IndexError):
        return None  # an error of torch's comes again where the call runs


def _real(x: Any, values: dict) -> Any:
    if isinstance(x, TensorProxy):
        return values[x]
    if type(x) is SymbolicInt or isinstance(x, torch.Tensor):
        raise Unsupported("the call depends on a size, or on a tensor from outside")
    return x


def _created(x: Any) -> Any:
    """Return a tensor of the program with the elements and the strides of a real one; anything else as it is."""
    if not isinstance(x, torch.Tensor):
        return x
    spec = spec_of(x)
    if spec.numel > _LARGEST or not spec.is_dense or spec.dtype.kind not in _KINDS:
        raise Unsupported("the program would have too much of it in its text")
    order = sorted(range(x.ndim), key=lambda d: -x.stride(d))  # by the strides of torch's tensor, also those of dimensions of size 1
    ordered = x.permute(order)
    flat = prims.tensor_from_sequence(values=tuple(ordered.flatten().tolist()), dtype=spec.dtype, device=spec.device)
    if x.ndim == 1:
        return flat
    created = prims.reshape(flat, shape=tuple(ordered.shape))
    return created if order == sorted(order) else prims.transpose(created, order=tuple(map(order.index, range(x.ndim))))


def is_mask(item: Any) -> bool:
    """Return whether an item of an index is a mask: a tensor of bools, or of bytes as in old programs."""
    return isinstance(item, TensorProxy) and item.spec.dtype in _MASKS


def picks_by_mask(key: Any) -> bool:
    """Return whether an index has a mask in it: the shape of what it picks depends on values."""
    return any(map(is_mask, key if isinstance(key, tuple) else (key,)))


def with_known_masks(key: Any) -> tuple:
    """Return an index with lists of bools for masks that the program computes from constants alone."""
    return tuple([_listed(item) if is_mask(item) else item for item in (key if isinstance(key, tuple) else (key,))])


def with_positions(key: Any, *, reads: bool) -> Any:
    """Return an index with ints for tensors of one integer that the program computes from constants alone; where it `reads`, for others too."""
    items = key if isinstance(key, tuple) else (key,)
    if not any(map(is_position, items)):
        return key
    known = [_position(item, reads) if is_position(item) else item for item in items]
    return tuple(known) if isinstance(key, tuple) else known[0]


def _position(item: TensorProxy, reads: bool) -> Any:
    value = value_of(item)
    if value is not None:
        return int(value)
    return item.item() if reads else item


def _listed(mask: TensorProxy) -> Any:
    value = value_of(mask) if 0 < mask.spec.numel <= _LARGEST else None
    return mask if value is None else value.bool().tolist()

"""Queries about a tensor that need no values: answered while tracing, without recording a line."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.autograd import forward_ad

from dovetail.errors import require
from dovetail.langs import core
from dovetail.langs.torch.binding.bridge import TO_TORCH, torch_device
from dovetail.langs.torch.binding.names import not_traced
from dovetail.langs.torch.binding.proxy import FACTS
from dovetail.langs.torch.binding.refused import REFUSED as REFUSED
from dovetail.langs.torch.binding.symbol import LANGUAGE, Number, Tensor, torchquery
from dovetail.langs.torch.binding.symint import shape_of, symint
from dovetail.prims import recorder
from dovetail.prims.spec import prod
from dovetail.torch_internals import IS_ZEROTENSOR, no_torch_function
from dovetail.trace import value_of

_WHERE = "a computed tensor may be a view of an input, and lie where that lies; query the input, or query it outside the compiled function"


@torchquery(methods=("size",))
def size(self: Tensor, dim: int | None = None) -> Any:
    """Return the sizes, or the size at `dim`."""
    shape = self.spec.shape
    return shape_of(shape) if dim is None else symint(shape[core.canonical_dim(dim, len(shape))])


@torchquery(methods=("stride",))
def stride(self: Tensor, dim: int | None = None) -> Any:
    """Return the strides in elements, or the stride at `dim`."""
    steps = self.spec.steps
    return tuple(map(symint, steps)) if dim is None else symint(steps[core.canonical_dim(dim, len(steps))])


@torchquery("torch.numel", methods=("numel", "nelement"))
def numel(input: Tensor) -> int:
    """Return the number of elements."""
    return symint(prod(input.spec.shape))


@torchquery(methods=("dim", "ndimension"))
def dim(self: Tensor) -> int:
    """Return the number of dimensions."""
    return len(self.spec.shape)


@torchquery(methods=("element_size",))
def element_size(self: Tensor) -> int:
    """Return the bytes of one element."""
    return self.spec.dtype.bytes


@torchquery("torch.is_floating_point", methods=("is_floating_point",))
def is_floating_point(input: Tensor) -> bool:
    """Return whether the dtype is a real floating one."""
    return input.spec.dtype.kind == "float"


@torchquery("torch.is_complex", methods=("is_complex",))
def is_complex(input: Tensor) -> bool:
    """Return whether the dtype is complex."""
    return input.spec.dtype.kind == "complex"


@torchquery("torch.is_signed", methods=("is_signed",))
def is_signed(self: Tensor) -> bool:
    """Return whether the dtype has a sign."""
    return self.spec.dtype.signed


@torchquery("torch.is_inference", methods=("is_inference",))
def is_inference(input: Tensor) -> bool:
    """Whether it was created in inference mode: False where that was never on, undecided elsewhere."""
    environment = recorder.get().environment
    if torch.is_inference_mode_enabled() or environment.enters_inference:
        raise not_traced("torch.is_inference", "with inference mode it depends on how the program runs; query it outside the compiled function")
    environment.read.add("inference_mode")
    return False


@torchquery("torch.is_conj", "torch.is_neg", methods=("is_conj", "is_neg"))
def is_lazy(input: Tensor) -> bool:
    """Whether it is conjugated or negated where it is read: False, undecided where the program conjugates, which eager PyTorch does lazily."""
    if any([line.symbol.id in ("torch.conj", "torch.adjoint") for line in recorder.get().lines]):
        raise not_traced("torch.is_conj", "x.conj() is lazy in eager PyTorch and computed here; query it outside the compiled function")
    return False


@torchquery(methods=("is_shared",))
def is_shared(self: Tensor) -> bool:
    """Whether its memory is shared with other processes, which is known of inputs alone."""
    raise not_traced("torch.Tensor.is_shared", _WHERE)


@torchquery(methods=("is_pinned",))
def is_pinned(self: Tensor) -> bool:
    """Whether its memory is pinned, which is known of inputs alone."""
    raise not_traced("torch.Tensor.is_pinned", _WHERE)


def _query_meta(x: Tensor, query: Callable[[torch.Tensor], Any]) -> Any:
    """Run a query on a meta tensor of the same strides."""
    with no_torch_function():
        return query(torch.empty_strided(x.spec.shape, x.spec.steps, device="meta"))


@torchquery(methods=("is_contiguous",))
def is_contiguous(self: Tensor, memory_format: Any = torch.contiguous_format) -> bool:
    """Return whether the elements lie in the order of `memory_format`."""
    if memory_format is torch.contiguous_format:
        return self.spec.strides is None
    rank = {torch.channels_last: 4, torch.channels_last_3d: 5}.get(memory_format)
    require(rank is not None, "expected a memory format, got {!r}", memory_format)
    return len(self.spec.shape) == rank and _query_meta(self, lambda x: x.is_contiguous(memory_format=memory_format))


@torchquery("torch.get_device", methods=("get_device",))
def get_device(input: Tensor) -> int:
    """Return the index of the device, -1 for the CPU."""
    return -1 if input.spec.device.index is None else input.spec.device.index


@torchquery("torch.result_type")
def result_type(tensor: Tensor | Number, other: Tensor | Number) -> torch.dtype:
    """Return the dtype that an operation on both would compute in."""
    return TO_TORCH[core.promote(tensor, other)]


@torchquery("torch.autograd.forward_ad.unpack_dual")
def unpack_dual(tensor: Tensor, *, level: int | None = None) -> Any:
    """Return the tensor without a tangent: no level is open in a program, and a call inside of one runs in eager mode."""
    return forward_ad.UnpackedDualTensor(tensor, None)


@torchquery("torch.is_same_size", methods=("is_same_size",))
def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Return whether both have the same shape."""
    return tuple(input.shape) == tuple(other.shape)


@torchquery(methods=("is_set_to",))
def is_set_to(self: Tensor, tensor: Tensor) -> bool:
    """Return whether both are the same view of the same storage, undecided for two tensors of the same layout."""
    if self is not tensor and self.spec == tensor.spec:
        raise not_traced("torch.Tensor.is_set_to", "two tensors of the same layout may be views of one; query it outside the compiled function")
    return self is tensor


@torchquery(methods=("dim_order",))
def dim_order(self: Tensor, *, ambiguity_check: Any = False) -> tuple[int, ...]:
    """Return the dimensions from the slowest to the fastest."""
    return _query_meta(self, lambda x: x.dim_order(ambiguity_check=ambiguity_check))


@torchquery(methods=("has_names",))
def has_names(self: Tensor) -> bool:
    """Return whether a dimension is named: never, while tracing."""
    return False


@torchquery("torch.is_nonzero", methods=("is_nonzero", "__bool__"))
def is_nonzero(input: Tensor) -> bool:
    """Needs the value of the tensor: raises TracedValueError."""
    return bool(input)


@torchquery(methods=("tolist",))
def tolist(self: Tensor) -> Any:
    """Return the numbers of a tensor as nested lists: those that are computed from constants alone are known."""
    value = value_of(self)
    return recorder.get().environment.listed(self) if value is None else value.tolist()


@torchquery(methods=("__len__",))
def length(self: Tensor) -> int:
    """Return the size at dimension 0."""
    return len(self)


@torchquery(methods=("__repr__", "__str__"))
def words(self: Tensor, *, tensor_contents: Any = None) -> str:
    """Return a traced tensor prints as its name and type."""
    return f'{self.name}: "{self.spec}"'


@torchquery(methods=("__hash__",))
def hashed(self: Tensor) -> int:
    """The hash by identity, as for tensors."""
    return id(self)


@torchquery(methods=("__format__",))
def formatted(self: Tensor, format_spec: str = "") -> str:
    """Return a traced tensor has no value to format: its name."""
    return self.name


@torchquery(methods=("__dir__",))
def names_of(self: Tensor) -> list[str]:
    """The attributes of torch.Tensor."""
    return sorted(dir(torch.Tensor))


@torchquery(IS_ZEROTENSOR, methods=("_is_zerotensor",))
def ordinary(input: Tensor, *_: Any) -> bool:
    """Traced tensors are plain ones."""
    return False


PROPERTIES: dict[str, Callable[[Any], Any]] = {
    "shape": lambda x: shape_of(x.spec.shape),
    "dtype": lambda x: TO_TORCH[x.spec.dtype],
    "device": lambda x: torch_device(x.spec.device),
    "ndim": lambda x: len(x.spec.shape),
    "requires_grad": lambda x: x.spec.requires_grad,
    "is_leaf": lambda x: not x.spec.requires_grad,
    "layout": lambda x: torch.strided,
    "names": lambda x: (None,) * len(x.spec.shape),
    "itemsize": lambda x: x.spec.dtype.bytes,
    "nbytes": lambda x: symint(prod(x.spec.shape) * x.spec.dtype.bytes),
    "is_cpu": lambda x: x.spec.device.type == "cpu",
    "is_cuda": lambda x: x.spec.device.type == "cuda",
    "is_meta": lambda x: x.spec.device.type == "meta",
    "retains_grad": lambda x: False,
    "output_nr": lambda x: 0,
    "name": lambda x: None,
    "volatile": lambda x: False,
    "grad_dtype": lambda x: TO_TORCH[x.spec.dtype],
    "_has_grad_dtype_override": lambda x: False,
    **dict.fromkeys(("is_sparse", "is_sparse_csr", "is_quantized", "is_nested", "is_mkldnn"), lambda x: False),
    **dict.fromkeys(("is_xla", "is_xpu", "is_mps", "is_vulkan", "is_mtia", "is_maia", "is_ipu"), lambda x: False),
}
LANGUAGE.properties |= {name: answer for name, answer in PROPERTIES.items() if hasattr(torch.Tensor, name)}
METHODS = ("size", "stride", "numel", "nelement", "dim", "ndimension", "element_size", "is_floating_point", "is_complex", "is_contiguous")
FACTS.update(LANGUAGE.properties)
FACTS.update({name: partial(partial, LANGUAGE[name]) for name in METHODS})

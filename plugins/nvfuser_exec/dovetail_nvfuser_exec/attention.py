"""A second executor, for the whole operation `torch.nn.functional.scaled_dot_product_attention`, enabled by nvFuser's option `sdpa`.

nvFuser calls PyTorch's flash attention for it.  The forward keeps the logarithm of each row's sum of exponentials for the backward, and
the state of its generator, which is of unsigned integers there and of int64, bit for bit, here; without dropout it draws nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import torch

from dovetail import dtypes
from dovetail.extend import OperatorExecutor, TensorSpec, Verdict, get_grad, make_prim, options_of, put_grad
from dovetail.extend.advanced import Executor
from dovetail.langs.torch import spec_of
from dovetail_nvfuser_exec import __version__, availability
from dovetail_nvfuser_exec.definitions import Definition, input_like
from dovetail_nvfuser_exec.program import layout

NAME = "nvfuser_attention"
OPERATION = "torch.nn.functional.scaled_dot_product_attention"
DTYPES = (dtypes.float16, dtypes.bfloat16)
OPT_OUT = "leaves attention to PyTorch, which nvFuser would only call; the option `sdpa` of nvfuser takes it"
WIDEST = 256  # elements of a head that flash attention takes


def attention_executor(
    regions: Executor, devices: Iterable[str] = ("cuda",), module: Callable[[], ModuleType] = availability.module
) -> OperatorExecutor:
    """Return the executor; the options of `regions` enable it."""

    def available() -> Verdict:
        return regions.available() is True or f"needs what {regions.name} needs; see its entry"

    ex = OperatorExecutor(NAME, version=__version__, last_resort=True, available=available)
    ex.after = regions.after
    calls = Attention(module)
    of = {"devices": devices}

    def checker(*args: Any, **kwargs: Any) -> Verdict:
        return takes(*args, **kwargs) if options_of(regions)["sdpa"] else OPT_OUT

    ex.implements(OPERATION, checker=checker, execution_transform=transform, grad=rule, name=NAME, dtypes=DTYPES, **of)
    ex.implements(forward, calls.forward, **of)
    ex.implements(backward, calls.backward, **of)
    return ex


def takes(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Verdict:
    """Check whether flash attention computes this.  Devices and dtypes are declared, and were checked before."""
    q, k, v = query.spec, key.spec, value.spec
    if attn_mask is not None or type(dropout_p) not in (int, float) or dropout_p != 0:
        return "attends without a mask and without dropout"
    if scale is not None and type(scale) not in (int, float):
        return f"expected a scale that is known when the program is compiled, got {scale}"
    if not q.rank == k.rank == v.rank == 4 or q.shape[:2] != k.shape[:2] or k.shape[:3] != v.shape[:3] or q.shape[3] != v.shape[3]:
        return f"expected query, key and value of [batch, heads, length, width] with as many heads each, got {q}, {k} and {v}"
    if q.shape[3] % 8 or q.shape[3] > WIDEST or 0 in (q.numel, k.numel):
        return f"expected heads of a width that is a multiple of 8 up to {WIDEST}, got {q}"
    if is_causal and q.shape[2] != k.shape[2]:
        return f"expected as many queries as keys where the mask is causal, got {q} and {k}"
    return True


def _forward(query: TensorSpec, key: TensorSpec, value: TensorSpec, *, causal: bool, scale: float | None) -> tuple[TensorSpec, ...]:
    """Return the specs of attention [batch, heads, length, width], and for the backward of each row's log-sum-exp and the generator's state."""
    state = TensorSpec((2,), dtypes.int64, query.device), TensorSpec((), dtypes.int64, query.device)
    return query.fresh(), query.fresh(query.shape[:3], dtypes.float32), *state


def _backward(
    g: TensorSpec,
    query: TensorSpec,
    key: TensorSpec,
    value: TensorSpec,
    out: TensorSpec,
    sums: TensorSpec,
    seed: TensorSpec,
    offset: TensorSpec,
    *,
    causal: bool,
    scale: float | None,
) -> tuple[TensorSpec, ...]:
    """Return the specs of the cotangents of query, key and value."""
    return query.fresh(), key.fresh(), value.fresh()


forward = make_prim(f"{NAME}.forward", "forward", meta=_forward)
backward = make_prim(f"{NAME}.backward", "backward", meta=_backward)


def transform(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False, *, scale: Any = None, **_: Any
) -> Any:
    """Replace the operation by its forward alone."""
    return forward(query, key, value, causal=bool(is_causal), scale=scale)[0]


def rule(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False, *, scale: Any = None, **_: Any
) -> Any:
    """Differentiate the operation where the checker accepted it."""
    how = {"causal": bool(is_causal), "scale": scale}
    out, sums, seed, offset = forward(query, key, value, **how)
    grads = backward(get_grad(out), query, key, value, out, sums, seed, offset, **how)
    for x, g in zip((query, key, value), grads, strict=True):
        put_grad(x, g)
    return out


class Attention:
    """The two operations on real tensors, with a definition for each layout of their inputs."""

    def __init__(self, module: Callable[[], ModuleType]):
        self._module, self.definitions = module, dict[Any, Definition]()

    def forward(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, causal: bool, scale: float | None) -> tuple:
        """Compute flash attention, and the tensors that its backward needs."""
        out, sums, seed, offset = self._run("forward", (query, key, value), causal, scale)
        return out.contiguous(), sums.contiguous(), seed.view(torch.int64), offset.view(torch.int64)

    def backward(self, *operands: torch.Tensor, causal: bool, scale: float | None) -> tuple:
        """Compute the gradients of query, key and value from the operands of the prim `backward`."""
        return tuple([g.contiguous() for g in self._run("backward", operands, causal, scale)])

    def _run(self, name: str, tensors: tuple[torch.Tensor, ...], causal: bool, scale: float | None) -> list[torch.Tensor]:
        nv = self._module()
        layouts = tuple([layout(spec_of(x), nv.compute_tensor_descriptor, False) for x in tensors])
        key = (name, layouts, causal, scale)
        definition = self.definitions.get(key)
        if definition is None:
            definition = self.definitions[key] = Definition(DEFINE[name](nv, layouts, causal, scale))
        return definition([x.detach() for x in tensors[:6]] + [x.detach().view(torch.uint64) for x in tensors[6:]])


def _define_forward(nv: ModuleType, layouts: tuple, causal: bool, scale: float | None) -> Any:
    with nv.FusionDefinition() as fd:
        query, key, value = [input_like(fd, nv.DataType, *known) for known in layouts]
        for x in fd.ops.sdpfa_fwd(query, key, value, dropout_p=0.0, is_causal=causal, scale=scale):
            fd.add_output(x)
    return fd


def _define_backward(nv: ModuleType, layouts: tuple, causal: bool, scale: float | None) -> Any:
    with nv.FusionDefinition() as fd:
        g, query, key, value, out, sums = [input_like(fd, nv.DataType, *known) for known in layouts[:6]]
        seed, offset = [input_like(fd, nv.DataType, "UInt64", *known[1:]) for known in layouts[6:]]
        for x in fd.ops.sdpfa_bwd(g, query, key, value, out, sums, 0.0, causal, seed, offset, scale):
            fd.add_output(x)
    return fd


DEFINE = {"forward": _define_forward, "backward": _define_backward}

"""A module in the place of `nvfuser_direct`: it writes down the operations of a definition, and runs them with PyTorch, on any device.

It keeps nvFuser's rules for dtypes, as far as the plugin relies on them: low dtypes become Float in arithmetic, sums of Int32 become Int, a
number that is written as an operand widens nothing, tensors of one `cat` and the operands of `where` are of one dtype or become the wider.
"""

from __future__ import annotations

import enum
from typing import Any

import torch

DataType = enum.Enum("DataType", "Double Float Half BFloat16 Int Int32 Bool UInt64")
TORCH = dict(
    zip(DataType, (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.bool, torch.uint64), strict=True)
)
OF = {dtype: name for name, dtype in TORCH.items()}
LOW = (DataType.Half, DataType.BFloat16)
PREDICATES = frozenset(["eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "isfinite", "signbit"])
MOVING = frozenset(
    [
        "set",
        "permute",
        "squeeze",
        "reshape",
        "slice",
        "broadcast_in_dim",
        "index_select",
        "take_along_axis",
        "gather",
        "embedding_fwd",
        "matmul",
        "linear",
    ]
)
TORCH_NAME = {"abs": "abs", "mod": "fmod", "max": "amax", "min": "amin", "set": "clone"}


class Val:
    """A number that the program computes."""

    def __init__(self, line: int):
        self.line = line


class TensorView(Val):
    """A tensor, by the line that makes it."""

    def __init__(self, line: int, kind: DataType, ndim: int, part: int = 0):
        super().__init__(line)
        self.kind, self.ndim, self.part = kind, ndim, part

    def dtype(self) -> DataType:
        return self.kind


class FusionDefinition:
    """Lines of (operation, arguments, keyword arguments, dtype of the result), run one after the other."""

    instances: list[FusionDefinition] = []

    def __init__(self) -> None:
        self.lines: list[tuple] = []
        self.outputs: list[tuple[TensorView, TensorView | None]] = []
        self.ops = Operations(self)
        self.calls = 0
        FusionDefinition.instances.append(self)

    def __enter__(self) -> FusionDefinition:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def define_tensor(self, *, shape: list, contiguity: list, dtype: DataType, is_cpu: bool, stride_order: list) -> TensorView:
        assert len(contiguity) == len(shape) and all((c is None) or n != 1 for n, c in zip(sorted(shape), contiguity) if n == 1) is not None
        self.lines.append(("input", (tuple(shape), tuple(contiguity), tuple(stride_order)), {}, dtype))
        return TensorView(len(self.lines) - 1, dtype, len(shape))

    def define_scalar(self, value: Any, dtype: DataType) -> Any:
        if value is not None:
            return Constant(value, dtype)
        self.lines.append(("input", (), {}, dtype))
        return Val(len(self.lines) - 1)

    def add_output(self, x: TensorView, alias_input: TensorView | None = None) -> None:
        self.outputs.append((x, alias_input))

    def validate_definition(self) -> tuple[bool, str | None]:
        return (True, None) if self.outputs else (False, "Fusion is empty!")

    def __repr__(self) -> str:
        rows = [
            f"v{i} = {op}({', '.join([*map(text, args), *(f'{k}={text(v)}' for k, v in kwargs.items())])}) {kind.name}"
            for i, (op, args, kwargs, kind) in enumerate(self.lines)
        ]
        ends = [f"out {text(x)}" + ("" if into is None else f" into {text(into)}") for x, into in self.outputs]
        return "\n".join([*rows, *ends])

    def execute(self, inputs: list, *, device: Any = None, _enable_options: list, _disable_options: list) -> list[torch.Tensor]:
        self.calls += 1
        self.switches = (_enable_options, _disable_options)
        remaining, values = iter(inputs), []
        device = next((x.device for x in inputs if isinstance(x, torch.Tensor)), device)
        for op, args, kwargs, kind in self.lines:
            values.append(next(remaining) if op == "input" else run(op, real(args, values), real(kwargs, values), kind, device))
        results = []
        for x, into in self.outputs:
            if into is None:
                results.append(real(x, values))
            else:
                values[into.line].copy_(real(x, values))
        return results


class Constant(Val):
    def __init__(self, value: Any, dtype: DataType):
        self.value, self.kind = value, dtype


def text(x: Any) -> str:
    if isinstance(x, Constant):
        return f"{x.value!r}:{x.kind.name}"
    if isinstance(x, TensorView):
        return f"v{x.line}" + (f".{x.part}" if x.part else "")
    if isinstance(x, Val):
        return f"v{x.line}"
    if isinstance(x, (list, tuple)):
        return f"[{', '.join(map(text, x))}]"
    return x.name if isinstance(x, DataType) else repr(x)


def real(x: Any, values: list) -> Any:
    if isinstance(x, Constant):
        return x.value
    if isinstance(x, Val):
        result = values[x.line]
        return result[x.part] if isinstance(result, tuple) else result
    if isinstance(x, (list, tuple)):
        return type(x)(real(each, values) for each in x)
    return {k: real(v, values) for k, v in x.items()} if isinstance(x, dict) else x


class Operations:
    """`fd.ops`: every operation is a line."""

    def __init__(self, fd: FusionDefinition):
        self.fd = fd

    def __getattr__(self, op: str) -> Any:
        if op.startswith("_"):
            raise AttributeError(op)

        def call(*args: Any, **kwargs: Any) -> Any:
            tensors = [x for a in args for x in (a if isinstance(a, list) else [a]) if isinstance(x, TensorView)]
            kind = result_kind(op, args, kwargs, tensors)
            self.fd.lines.append((op, args, kwargs, kind))
            at, ndim = len(self.fd.lines) - 1, result_ndim(op, args, tensors)
            parts = PARTS.get(op)
            return tuple(TensorView(at, parts[part] or kind, ndim, part) for part in range(len(parts))) if parts else TensorView(at, kind, ndim)

        return call


PARTS = {"var_mean": (None, None), "sdpfa_fwd": (None, DataType.Float, DataType.UInt64, DataType.UInt64), "sdpfa_bwd": (None, None, None)}


def result_kind(op: str, args: tuple, kwargs: dict, tensors: list[TensorView]) -> DataType:
    if op in ("cast", "full", "iota"):
        return kwargs.get("dtype") or args[-1]
    kinds = [x.kind for x in tensors]
    if op in PREDICATES:
        return DataType.Bool
    if op in MOVING or op in ("stride_order", "pad", "scatter"):
        assert op != "embedding_fwd" or kinds[0] is DataType.Int
        return kinds[1] if op == "embedding_fwd" else kinds[0]
    if op in ("cat", "where"):
        kinds = kinds[op == "where" :]
        assert op == "where" or len(set(kinds)) == 1, "cat expects tensors of one dtype"
        return kinds[0] if len(set(kinds)) == 1 else DataType.Float
    if op in ("sum", "prod", "max", "min"):
        assert kinds[0] not in LOW, "a reduction in low precision"
        return DataType.Int if op in ("sum", "prod") and kinds[0] in (DataType.Int32, DataType.Bool) else kinds[0]
    if op in PARTS and op != "var_mean":
        return kinds[0]
    assert len(set(kinds)) == 1, f"{op} of {kinds}"
    return DataType.Float if kinds[0] in LOW else kinds[0]


def result_ndim(op: str, args: tuple, tensors: list[TensorView]) -> int:
    if op in ("sum", "prod", "max", "min", "var", "var_mean"):
        return tensors[0].ndim - len(args[1])
    if op in ("broadcast_in_dim", "reshape", "full"):
        return len(args[0] if op == "full" else args[1])
    if op == "squeeze":
        return tensors[0].ndim - len(args[1])
    return 1 if op == "iota" else tensors[0].ndim + (op == "embedding_fwd")


def run(op: str, args: Any, kwargs: dict, kind: DataType, device: Any) -> Any:
    if op in RUN:
        return RUN[op](kind, device, *args, **kwargs)
    args = [x.float() if isinstance(x, torch.Tensor) and OF[x.dtype] in LOW and op not in MOVING else x for x in args]
    tensor = next(x for x in args if isinstance(x, torch.Tensor))
    args = [x if isinstance(x, (torch.Tensor, list)) or op not in TWO else torch.full_like(tensor, x) for x in args]
    if op in PREDICATES and not isinstance(args[0], torch.Tensor):
        args[0] = torch.tensor(args[0])
    result = getattr(torch, TORCH_NAME.get(op, op))(*args, **kwargs)
    return result if op in PREDICATES else result.to(TORCH[kind])


TWO = frozenset(
    ["add", "sub", "mul", "div", "mod", "fmod", "remainder", "pow", "atan2", "maximum", "minimum", "nextafter", "bitwise_and", "bitwise_or"]
)


def _broadcast(kind: DataType, device: Any, x: torch.Tensor, shape: list, dims: list) -> torch.Tensor:
    sizes = [1] * len(shape)
    for d, n in zip(dims, x.shape, strict=True):
        sizes[d] = n
    return x.reshape(sizes).expand(shape)


def _reduced(fn: Any) -> Any:
    def reduce(kind: DataType, device: Any, x: torch.Tensor, dims: list) -> torch.Tensor:
        for d in sorted(dims, reverse=True):
            x = fn(x, d)
        return x.to(TORCH[kind])

    return reduce


def _stride_order(kind: DataType, device: Any, x: torch.Tensor, places: list) -> torch.Tensor:
    order = sorted(range(x.dim()), key=lambda d: -places[d])
    return x.permute(order).contiguous().permute([order.index(d) for d in range(x.dim())])


def _div(kind: DataType, device: Any, a: Any, b: Any) -> torch.Tensor:
    return torch.div(a, b) if kind in (DataType.Double, DataType.Float) else torch.div(a, b, rounding_mode="trunc")


def _attend(kind: DataType, device: Any, q: Any, k: Any, v: Any, *, dropout_p: float, is_causal: bool, scale: float | None) -> tuple:
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, None, dropout_p, is_causal, scale=scale)
    state = torch.zeros(2, dtype=torch.uint64), torch.zeros((), dtype=torch.uint64)
    return out.transpose(1, 2).contiguous().transpose(1, 2), torch.zeros(q.shape[:3]), *state  # laid out as flash attention does


def _attend_backward(
    kind: DataType,
    device: Any,
    g: Any,
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    sums: Any,
    dropout_p: float,
    is_causal: bool,
    seed: Any,
    offset: Any,
    scale: Any,
) -> tuple:
    assert (seed.dtype, seed.shape, offset.dtype, offset.shape) == (torch.uint64, (2,), torch.uint64, ())
    with torch.enable_grad():
        operands = [x.detach().requires_grad_() for x in (q, k, v)]
        again = torch.nn.functional.scaled_dot_product_attention(*operands, None, dropout_p, is_causal, scale=scale)
        return torch.autograd.grad(again, operands, g)


RUN = {
    "sdpfa_fwd": _attend,
    "sdpfa_bwd": _attend_backward,
    "cast": lambda kind, device, x, dtype: x.to(TORCH[dtype]),
    "set": lambda kind, device, x: x,
    "sum": _reduced(torch.sum),
    "prod": _reduced(torch.prod),
    "max": _reduced(torch.amax),
    "min": _reduced(torch.amin),
    "var": lambda kind, device, x, dims, correction: torch.var(x, dims, correction=correction),
    "var_mean": lambda kind, device, x, dims, correction: torch.var_mean(x, dims, correction=correction),
    "cumsum": lambda kind, device, x, dim: torch.cumsum(x, dim, dtype=TORCH[kind]),
    "cumprod": lambda kind, device, x, dim: torch.cumprod(x, dim, dtype=TORCH[kind]),
    "div": _div,
    "where": lambda kind, device, c, a, b: torch.where(c, a, b).to(TORCH[kind]),
    "broadcast_in_dim": _broadcast,
    "permute": lambda kind, device, x, order: x.permute(order),
    "squeeze": lambda kind, device, x, dims: x.squeeze(dims),
    "reshape": lambda kind, device, x, shape: x.reshape(shape),
    "slice": lambda kind, device, x, starts, stops, steps: x[tuple(slice(*each) for each in zip(starts, stops, steps, strict=True))],
    "pad": lambda kind, device, x, widths, value: torch.nn.functional.pad(x, widths, value=value),
    "cat": lambda kind, device, xs, dim: torch.cat(xs, dim),
    "full": lambda kind, device, shape, value, dtype: torch.full(shape, value, dtype=TORCH[dtype], device=device),
    "iota": lambda kind, device, n, start, step, dtype: (torch.arange(n, device=device) * step + start).to(TORCH[dtype]),
    "stride_order": _stride_order,
    "index_select": lambda kind, device, x, index, dim: x.index_select(dim, index),
    "take_along_axis": lambda kind, device, x, index, dim: torch.take_along_dim(x, index, dim),
    "gather": lambda kind, device, x, index, dim: torch.gather(x, dim, index),
    "scatter": lambda kind, device, x, index, value, dim: torch.scatter(x, dim, index, value),
    "embedding_fwd": lambda kind, device, index, weight: torch.nn.functional.embedding(index, weight),
    "linear": lambda kind, device, x, weight: torch.nn.functional.linear(x, weight),
}


def compute_tensor_descriptor(sizes: list[int], strides: list[int]) -> tuple[list[bool | None], list[int]]:
    """([contiguity, slowest dimension first], [place of each dimension, 0 the fastest]); None where a dimension repeats its elements."""
    order = sorted(range(len(sizes)), key=lambda d: -strides[d]) if all(strides) else list(range(len(sizes)))
    contiguity: list[bool | None] = []
    expected = 1
    for d in reversed(order):
        if sizes[d] == 1 or strides[d] == 0:
            contiguity.append(None)
            continue
        contiguity.append(strides[d] == expected)
        expected = strides[d] * sizes[d]
    places = [len(order) - 1 - order.index(d) for d in range(len(order))]
    return contiguity[::-1], places

"""The workloads that are timed, each one small definition.

A definition builds a `Case`: the function to compile, and how to call it.  It is built more than once in a process, from the
same seed: for the subject, for eager, and, where they differ, for eager on the same numbers in higher precision, which decides who is right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import models
import torch
from torch import Tensor, nn
from torch.nn import functional as F

WIDER = {torch.float32: torch.float64, torch.bfloat16: torch.float32}  # precision of the reference
SHORT = {torch.float32: "f32", torch.bfloat16: "bf16"}
TOLERANCE = {torch.float32: 1e-3, torch.bfloat16: 1e-2}  # of a result's largest magnitude


@dataclass
class Case:
    """`fn` is compiled and called with `args`.

    Where there are `leaves`, a call is a training step: their gradients are dropped, and computed again from the result, a loss, or from
    `cotangent` where the result is none.  `inputs` are what the second call of the check has other numbers in (None: the tensors among
    `args`), `state` what a call changes.  `eager` runs in place of `fn` where that is how eager is used.
    """

    fn: Callable[..., Any]
    args: tuple
    leaves: Sequence[Tensor] = ()
    cotangent: Tensor | None = None
    inputs: Sequence[Tensor] | None = None
    state: Sequence[Tensor] = ()
    eager: Callable[..., Any] | None = None

    def call(self, compiled: Callable[..., Any]) -> Callable[[], Any]:
        """Return a call with `compiled` in place of `fn`, which returns the result."""
        return partial(self.step, compiled) if self.leaves else partial(compiled, *self.args)

    def step(self, compiled: Callable[..., Any]) -> Tensor:
        for leaf in self.leaves:
            leaf.grad = None
        result = compiled(*self.args)
        result.backward(self.cotangent)
        return result

    def change(self) -> None:
        """Put other numbers into the inputs: their own, in reverse."""
        inputs = [x for x in self.args if isinstance(x, Tensor)] if self.inputs is None else self.inputs
        with torch.no_grad():
            for x in inputs:
                x.copy_(x.flatten().flip(0).view_as(x))

    def cast(self, dtype: torch.dtype) -> Case:
        """Convert the floating-point tensors of this case to `dtype`, in place."""
        modules = [self.fn] if isinstance(self.fn, nn.Module) else []
        held = [*self.args, *self.leaves, *self.state, self.cotangent, *(x for m in modules for x in (*m.parameters(), *m.buffers()))]
        for x in held:
            if isinstance(x, Tensor) and x.is_floating_point():
                x.data = x.data.to(dtype)
        return self

    def outcome(self, result: Any) -> dict[str, Tensor]:
        """Return everything that a call computes, by name: results, gradients, state."""
        results = list(_tensors(result))
        tensors = {f"result {i}": x for i, x in enumerate(results)}
        tensors |= {f"gradient {i}": x.grad for i, x in enumerate(self.leaves) if x.grad is not None}
        return {name: x.detach().clone() for name, x in (tensors | {f"state {i}": x for i, x in enumerate(self.state)}).items()}


def _tensors(nest: Any) -> Iterator[Tensor]:
    """Yield the tensors in nested tuples, lists and dicts, in order."""
    if isinstance(nest, Tensor):
        yield nest
    elif isinstance(nest, (tuple, list, dict)):
        for item in nest.values() if isinstance(nest, dict) else nest:
            yield from _tensors(item)


@dataclass(frozen=True)
class Workload:
    """`seconds` that an eager call takes and `compiling` by torch.compile, about, on two cores: what a run's length is estimated from."""

    name: str
    title: str
    define: Callable[[], Case]
    dtype: torch.dtype = torch.float32
    seconds: float = 1e-3
    compiling: float = 10.0
    training: bool = False
    quick: bool = False

    @property
    def tolerance(self) -> float:
        return TOLERANCE[self.dtype]

    def build(self, *, exact: bool = False) -> Case:
        """Return the case, always with the same numbers; with `exact`, in higher precision."""
        torch.manual_seed(0)
        case = self.define()
        if self.dtype is not torch.float32:
            case.cast(self.dtype)
        return case.cast(WIDER[self.dtype]) if exact else case


@dataclass
class Suite:
    """Workloads by name, in the order of their definitions."""

    workloads: dict[str, Workload] = field(default_factory=dict)

    def workload(self, name: str, title: str, *, dtypes: Iterable[torch.dtype] = (torch.float32,), **more: Any) -> Callable:
        """Return a decorator that adds a function from () to a Case in float32, once for each of `dtypes`; those after the first are not quick."""

        def add(define: Callable[[], Case]) -> Callable[[], Case]:
            for i, dtype in enumerate(dtypes):
                full = name if not i else f"{name}-{SHORT[dtype]}"
                full_title = title if not i else f"{title}, {SHORT[dtype]}"
                self.workloads[full] = Workload(full, full_title, define, dtype, **more | {"quick": more.get("quick", False) and not i})
            return define

        return add

    def chosen(self, patterns: Sequence[str], quick: bool) -> list[Workload]:
        """Return the workloads that match a pattern; without patterns all, or the quick ones.  Raises ValueError where one matches none."""
        for pattern in patterns:
            if not any(fnmatchcase(name, pattern) for name in self.workloads):
                raise ValueError(f"no workload matches {pattern}; expected one of {', '.join(self.workloads)}")
        if patterns:
            return [w for name, w in self.workloads.items() if any(fnmatchcase(name, pattern) for pattern in patterns)]
        return [w for w in self.workloads.values() if w.quick or not quick]


SUITE = Suite()
workload = SUITE.workload
BOTH = (torch.float32, torch.bfloat16)


# Operations.


@workload("add-4", "x + y, 4 elements", seconds=1e-6, compiling=9, quick=True)
def add() -> Case:
    return Case(lambda x, y: x + y, (torch.randn(4), torch.randn(4)))


def elementwise(x: Tensor, y: Tensor) -> Tensor:
    """sin, exp, sqrt, a division and tanh, and sums and products between them."""
    z = torch.sin((x + y) * 2 - x) * y
    return torch.tanh(torch.sqrt(torch.exp(-z * z) + 1) / (y * y + 1))


def chain(size: int) -> Case:
    return Case(elementwise, (torch.randn(size, size), torch.randn(size, size)))


@workload("chain-256", "elementwise chain, 256 x 256", seconds=6e-4, compiling=10)
def chain_256() -> Case:
    return chain(256)


@workload("chain-2048", "elementwise chain, 2048 x 2048", dtypes=BOTH, seconds=0.06, compiling=10, quick=True)
def chain_2048() -> Case:
    return chain(2048)


@workload("gelu-norm-softmax", "gelu, layer_norm, softmax, 4096 x 1024", dtypes=BOTH, seconds=0.03, compiling=10)
def gelu_norm_softmax() -> Case:
    return Case(lambda x: torch.softmax(F.layer_norm(F.gelu(x), (1024,)), -1), (torch.randn(4096, 1024),))


@workload("softmax", "softmax, 4096 x 1024", dtypes=BOTH, seconds=0.01, compiling=10)
def softmax() -> Case:
    return Case(lambda x: torch.softmax(x, -1), (torch.randn(4096, 1024),))


@workload("softmax-train", "softmax forward + backward, 4096 x 1024", dtypes=BOTH, seconds=0.02, compiling=14, training=True)
def softmax_train() -> Case:
    x, g = torch.randn(4096, 1024, requires_grad=True), torch.randn(4096, 1024)
    return Case(lambda x: torch.softmax(x, -1), (x,), leaves=[x], cotangent=g)


def norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.layer_norm(x, (1024,), weight, bias)


@workload("layer-norm", "layer_norm, 4096 x 1024", dtypes=BOTH, seconds=0.01, compiling=10)
def layer_norm() -> Case:
    return Case(norm, (torch.randn(4096, 1024), torch.randn(1024), torch.randn(1024)))


@workload("layer-norm-train", "layer_norm forward + backward, 4096 x 1024", dtypes=BOTH, seconds=0.02, compiling=14, training=True, quick=True)
def layer_norm_train() -> Case:
    args = tuple(torch.randn(shape, requires_grad=True) for shape in ((4096, 1024), (1024,), (1024,)))
    return Case(norm, args, leaves=args, cotangent=torch.randn(4096, 1024))


@workload("cross-entropy", "cross_entropy, 2048 x 32000", dtypes=BOTH, seconds=0.1, compiling=11)
def cross_entropy() -> Case:
    return Case(lambda x, wanted: F.cross_entropy(x, wanted), (torch.randn(2048, 32000), torch.randint(32000, (2048,))))


@workload("cross-entropy-train", "cross_entropy forward + backward, 2048 x 32000", dtypes=BOTH, seconds=0.5, compiling=14, training=True, quick=True)
def cross_entropy_train() -> Case:
    x = torch.randn(2048, 32000, requires_grad=True)
    return Case(lambda x, wanted: F.cross_entropy(x, wanted), (x, torch.randint(32000, (2048,))), leaves=[x])


# Shapes and values that kernels are easily slow on.


def saturated() -> Tensor:
    """Return numbers with exponentials that are mostly subnormal in float32."""
    return torch.randn(512, 512) * 40 - 60


@workload("silu-saturated", "silu of saturated values, 512 x 512", seconds=3e-4, compiling=9)
def silu_saturated() -> Case:
    return Case(lambda x: F.silu(x), (saturated(),))


@workload("gelu-saturated", "gelu of saturated values, 512 x 512", seconds=3e-4, compiling=9)
def gelu_saturated() -> Case:
    return Case(lambda x: F.gelu(x), (saturated() * 0.3,))


@workload("softplus-saturated", "softplus of saturated values, 512 x 512", seconds=0.05, compiling=9)
def softplus_saturated() -> Case:
    return Case(lambda x: F.softplus(x), (saturated(),))


@workload("logsumexp-short", "logsumexp of rows of 7, 32 x 128 x 7", seconds=5e-3, compiling=10)
def logsumexp_short() -> Case:
    return Case(lambda x: torch.logsumexp(x, 3), (torch.randn(32, 128, 7, 7),))


@workload("softmax-expanded", "softmax of an expanded column, 1024 x 1024", seconds=2e-3, compiling=10)
def softmax_expanded() -> Case:
    column = torch.randn(1024, 1)
    return Case(lambda x: torch.softmax(x, -1), (column.expand(1024, 1024),), inputs=[column])


@workload("sum-expanded", "sum of an expanded column, 1024 x 1024", seconds=6e-5, compiling=10)
def sum_expanded() -> Case:
    column = torch.randn(1024, 1)
    return Case(lambda x: x.sum(-1), (column.expand(1024, 1024),), inputs=[column])


@workload("sum-int64", "sum of int64 over (1, 2), 8 x 1 x 16384", seconds=2e-5, compiling=10)
def sum_int64() -> Case:
    return Case(lambda x: x.sum((1, 2)), (torch.randint(0, 9, (8, 1, 16384)),))


@workload("sum-all", "sum of 1000 x 1000 squares", seconds=3e-4, compiling=10)
def sum_all() -> Case:
    return Case(lambda x: (x * x).sum(), (torch.randn(1000, 1000),))


@workload("norm-strided", "vector_norm of every other column, 1024 x 512", seconds=1e-3, compiling=10)
def norm_strided() -> Case:
    return Case(lambda x: torch.linalg.vector_norm(x), (torch.randn(1024, 1024)[:, ::2],))


@workload("transposed-sum", "x.t() + y * 2, 1024 x 1024", seconds=5e-3, compiling=10)
def transposed_sum() -> Case:
    return Case(lambda x, y: x.t() + y * 2, (torch.randn(1024, 1024), torch.randn(1024, 1024)))


def sine_positions(places: Tensor) -> Tensor:
    """Compute the positions of image transformers: sines and cosines in turns, with a frequency for each channel."""
    channels = torch.arange(128, dtype=torch.float32)
    angles = places[..., None] / 10000 ** (2 * torch.div(channels, 2, rounding_mode="floor") / 128)
    return torch.stack((angles[..., 0::2].sin(), angles[..., 1::2].cos()), -1).flatten(-2)


@workload("sine-positions", "sine positions, 2 x 32 x 32 x 128", seconds=3e-3, compiling=11)
def sine_positions_of_an_image() -> Case:
    return Case(sine_positions, (torch.rand(2, 32, 32),))


@workload("view", "one view, 256 elements", seconds=1e-6, compiling=9)
def view() -> Case:
    return Case(lambda x: x.view(-1), (torch.randn(16, 16),))


# Models.


def inference(model: nn.Module, x: Tensor) -> Case:
    return Case(model.eval().requires_grad_(False), (x,))


def training(model: nn.Module, x: Tensor, wanted: Tensor) -> Case:
    """Return a step without an optimizer: forward, cross-entropy, backward; buffers that the model writes are its state."""
    loss = models.Loss(model.train())
    return Case(loss, (x, wanted), leaves=list(loss.parameters()), state=list(loss.buffers()))


@workload("mlp-1", "MLP, 4 layers, batch 1", seconds=4e-5, compiling=9, quick=True)
def mlp_1() -> Case:
    return inference(models.mlp(), torch.randn(1, 64))


@workload("mlp-256", "MLP, 4 layers, batch 256", dtypes=BOTH, seconds=1e-3, compiling=10)
def mlp_256() -> Case:
    return inference(models.mlp(), torch.randn(256, 64))


@workload("mlp-train", "MLP 784-128-10, training step, batch 32", seconds=5e-4, compiling=20, training=True)
def mlp_train() -> Case:
    return training(models.digits(), torch.randn(32, 784), torch.randint(10, (32,)))


@workload("mlp-step", "MLP 784-128-10, training step with Adam, batch 32", seconds=1e-3, compiling=40, quick=True)
def mlp_step() -> Case:
    """Return a step that is compiled whole: forward, backward() and optimizer.step()."""
    model, x, labels = models.digits(), torch.randn(32, 784), torch.randint(10, (32,))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step(x: Tensor, labels: Tensor) -> Tensor:
        with torch.enable_grad():  # calls that are no training steps to the harness run without
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), labels)
            loss.backward()
            optimizer.step()
        return loss

    return Case(step, (x, labels), inputs=[x], state=list(model.parameters()))


@workload("gpt", "GPT, inference", dtypes=BOTH, seconds=0.13, compiling=16, quick=True)
def gpt() -> Case:
    return inference(models.six_layers(), models.tokens())


@workload("gpt-train", "GPT, training step", dtypes=BOTH, seconds=0.4, compiling=32, training=True, quick=True)
def gpt_train() -> Case:
    return training(models.six_layers(), models.tokens(), models.tokens())


@workload("llama", "Llama-style, inference", dtypes=BOTH, seconds=0.15, compiling=16)
def llama() -> Case:
    return inference(models.llama(), models.tokens())


@workload("llama-train", "Llama-style, training step", dtypes=BOTH, seconds=0.4, compiling=32, training=True)
def llama_train() -> Case:
    return training(models.llama(), models.tokens(), models.tokens())


@workload("bert", "BERT-style, inference", dtypes=BOTH, seconds=0.15, compiling=16)
def bert() -> Case:
    return inference(models.Encoder(), models.tokens())


@workload("bert-train", "BERT-style, training step", seconds=0.4, compiling=32, training=True)
def bert_train() -> Case:
    return training(models.Encoder(), models.tokens(), models.tokens())


@workload("resnet", "ResNet-style, inference", seconds=0.05, compiling=20)
def resnet() -> Case:
    return inference(models.ResNet(), torch.randn(8, 3, 64, 64))


@workload("resnet-train", "ResNet-style, training step", seconds=0.2, compiling=40, training=True)
def resnet_train() -> Case:
    return training(models.ResNet(), torch.randn(8, 3, 64, 64), torch.randint(1000, (8,)))


@workload("vit", "ViT-style, inference", seconds=0.05, compiling=16)
def vit() -> Case:
    return inference(models.ViT(), torch.randn(8, 3, 64, 64))


@workload("vit-train", "ViT-style, training step", seconds=0.2, compiling=32, training=True)
def vit_train() -> Case:
    return training(models.ViT(), torch.randn(8, 3, 64, 64), torch.randint(1000, (8,)))


@workload("adamw", "AdamW step, 10.6 M parameters", seconds=0.03, compiling=40)
def adamw() -> Case:
    """Return an optimizer step: eager is torch.optim's fused one, the compiled one is written out."""
    parameters, gradients = ([torch.randn(shape) for shape in models.adamw_shapes()] for _ in range(2))
    means, squares = ([torch.zeros_like(p) for p in parameters] for _ in range(2))
    for p, g in zip(parameters, gradients):
        p.grad = g
    step = torch.optim.AdamW(parameters, lr=1e-3, weight_decay=1e-2, fused=True).step
    args = (parameters, gradients, means, squares, torch.zeros(()))
    return Case(models.adamw, args, inputs=gradients, state=parameters, eager=lambda *_: step())

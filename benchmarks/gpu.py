"""Kernels and models on a GPU, by eager PyTorch, torch.compile and Dovetail: seconds, and the share of the copy bandwidth that they reach.

    python benchmarks/gpu.py --out FOLDER --seconds 240

writes gpu.json and gpu.md.  A subject is left out, and the table says so, once the time is used up.  `--small` runs everything at a size
that a CPU does in seconds, to see that the program works.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

import dovetail

ROUNDS = 15
A_ROUND = 0.02  # seconds
FAR = 0.05  # least difference that the table shows


@dataclass(frozen=True)
class Row:
    """One subject of one case: seconds of a call, the bytes that it has to move, the difference of its results from eager's, or why it did not run.

    `difference` is the norm of the difference by that of eager's result, the largest of all results and gradients.
    """

    case: str
    subject: str
    seconds: float | None = None
    bytes: int = 0
    copy_fraction: float | None = None
    difference: float | None = None
    message: str = ""


@dataclass(frozen=True)
class Case:
    """A function of tensors; `bytes` are those that it has to read and write, 0 where memory does not bound it."""

    name: str
    fn: Callable[..., Any]
    args: tuple[torch.Tensor, ...]
    bytes: int = 0
    train: bool = False
    parameters: tuple[torch.Tensor, ...] = ()


class Clock:
    """Times calls on a device, within a limit."""

    def __init__(self, device: str, limit: float):
        self.device, self.end = device, time.monotonic() + limit

    @property
    def left(self) -> float:
        return self.end - time.monotonic()

    def wait(self) -> None:
        """Wait until everything that was launched is done."""
        if self.device == "cuda":
            torch.cuda.synchronize()

    def seconds(self, fn: Callable[[], Any], times: int) -> float:
        """Return the seconds of one call, over `times` calls."""
        self.wait()
        began = time.perf_counter()
        for _ in range(times):
            fn()
        self.wait()
        return (time.perf_counter() - began) / times

    def median(self, fn: Callable[[], Any]) -> float:
        """Return the median seconds of a call over rounds, after warming up."""
        for _ in range(3):
            fn()
        times = max(int(A_ROUND / max(self.seconds(fn, 1), 1e-7)), 1)
        return statistics.median(self.seconds(fn, times) for _ in range(ROUNDS))


def step(fn: Callable[..., Any], args: tuple, parameters: tuple) -> torch.Tensor:
    """Run forward and backward, with gradients reset."""
    for p in parameters:
        p.grad = None
    out = fn(*args)
    out.backward(torch.ones_like(out)) if out.dim() else out.backward()
    return out.detach()


def results(case: Case, fn: Callable[..., Any]) -> list[torch.Tensor]:
    """Return the results of a call, and the gradients."""
    if case.train:
        return [step(fn, case.args, case.parameters), *(p.grad for p in case.parameters)]
    with torch.no_grad():
        out = fn(*case.args)
    return list(out) if isinstance(out, tuple) else [out]


def difference(case: Case, fn: Callable[..., Any]) -> float:
    """Return how far the results of `fn` are from eager's."""
    pairs = zip(results(case, fn), results(case, case.fn), strict=True)
    return max(((a.float() - b.float()).norm() / b.float().norm().clamp(min=1e-12)).item() for a, b in pairs)


def layer_norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, (x.shape[-1],), w, b)


def rms_norm(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(x, (x.shape[-1],), w)


def swiglu(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.silu(x) * y


def gelu(x: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.gelu(x + b)


def adamw(p: torch.Tensor, g: torch.Tensor, m: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Compute one step of AdamW on one tensor."""
    m = m * 0.9 + g * 0.1
    v = v * 0.95 + g * g * 0.05
    return p * (1 - 1e-4) - 1e-3 * (m * 1.1) / ((v * 1.05).sqrt() + 1e-8), m, v


def kernels(device: str, small: bool) -> list[Case]:
    """Return memory-bound operations, and cross-entropy over a large vocabulary."""
    rows, width = (64, 256) if small else (8192, 8192)
    dtype = torch.float32 if small else torch.bfloat16
    x, y = (torch.randn(rows, width, device=device, dtype=dtype) for _ in range(2))
    w, b = (torch.randn(width, device=device, dtype=dtype) for _ in range(2))
    size = x.numel() * x.element_size()
    state = [torch.rand(rows * width, device=device) for _ in range(4)]
    cases = [
        Case("softmax", lambda x: torch.softmax(x, -1), (x,), 2 * size),
        Case("layer_norm", layer_norm, (x, w, b), 2 * size),
        Case("rms_norm", rms_norm, (x, w), 2 * size),
        Case("swiglu", swiglu, (x, y), 3 * size),
        Case("gelu with a bias", gelu, (x, b), 2 * size),
        Case("sum over rows", lambda x: x.sum(0), (x,), size),
        Case("AdamW", adamw, tuple(state), 7 * state[0].numel() * 4),
    ]
    trained = x.clone().requires_grad_(), w.clone().requires_grad_(), b.clone().requires_grad_()
    cases.append(Case("layer_norm, training", layer_norm, trained, 5 * size, True, trained))
    classes = 1000 if small else 128256
    logits = torch.randn(rows, classes, device=device, dtype=dtype).requires_grad_()
    target = torch.randint(classes, (rows,), device=device)
    loss_bytes = 3 * logits.numel() * logits.element_size()
    cases.append(Case(f"cross_entropy {rows}x{classes}, training", lambda x, t: F.cross_entropy(x, t), (logits, target), loss_bytes, True, (logits,)))
    return cases


class GPTLayer(torch.nn.Module):
    """LayerNorm, attention, GELU."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.before, self.between = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.before(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.between(x))))


class GPT(torch.nn.Module):
    """A small GPT."""

    def __init__(self, vocabulary: int, width: int, heads: int, layers: int, context: int):
        super().__init__()
        self.tokens, self.places = torch.nn.Embedding(vocabulary, width), torch.nn.Embedding(context, width)
        self.layers = torch.nn.Sequential(*(GPTLayer(width, heads) for _ in range(layers)))
        self.norm, self.head = torch.nn.LayerNorm(width), torch.nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.layers(self.tokens(tokens) + self.places.weight)))


class LlamaLayer(torch.nn.Module):
    """RMSNorm, attention with rotary positions, SwiGLU."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.before, self.between = torch.nn.Parameter(torch.ones(width)), torch.nn.Parameter(torch.ones(width))
        self.qkv, self.out = torch.nn.Linear(width, 3 * width, bias=False), torch.nn.Linear(width, width, bias=False)
        self.gate, self.up = torch.nn.Linear(width, 3 * width, bias=False), torch.nn.Linear(width, 3 * width, bias=False)
        self.down = torch.nn.Linear(3 * width, width, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(rms_norm(x, self.before)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(rotated(q, cos, sin), rotated(k, cos, sin), v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        y = rms_norm(x, self.between)
        return x + self.down(swiglu(self.gate(y), self.up(y)))


def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Apply rotary positions."""
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


class Llama(torch.nn.Module):
    """A small Llama, in real arithmetic."""

    def __init__(self, vocabulary: int, width: int, heads: int, layers: int, context: int):
        super().__init__()
        self.tokens, self.head = torch.nn.Embedding(vocabulary, width), torch.nn.Linear(width, vocabulary, bias=False)
        self.layers = torch.nn.ModuleList(LlamaLayer(width, heads) for _ in range(layers))
        self.norm = torch.nn.Parameter(torch.ones(width))
        half = width // heads // 2
        angles = torch.outer(torch.arange(context).float(), 10000.0 ** (-torch.arange(half) / half)).repeat(1, 2)
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.tokens(tokens)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return self.head(rms_norm(x, self.norm))


class Loss(torch.nn.Module):
    """The cross-entropy of a model's logits, classes in the last dimension."""

    def __init__(self, model: torch.nn.Module):
        super().__init__()
        self.model = model

    def forward(self, tokens: torch.Tensor, following: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.model(tokens).flatten(0, 1), following.flatten())


def models(device: str, small: bool) -> list[Case]:
    """Return GPT and Llama, for training and inference."""
    torch.manual_seed(0)
    dtype = torch.float32 if small else torch.bfloat16
    vocabulary, context, layers, heads, width, batch = (64, 16, 1, 2, 32, 2) if small else (8192, 1024, 6, 12, 768, 8)
    tokens, following = (torch.randint(vocabulary, (batch, context), device=device) for _ in range(2))
    cases = []
    for name, kind in {"GPT": GPT, "Llama": Llama}.items():
        loss = Loss(kind(vocabulary, width, heads, layers, context)).to(device=device, dtype=dtype)
        cases.append(Case(f"{name}, training", loss, (tokens, following), 0, True, tuple(loss.parameters())))
        cases.append(Case(f"{name}, inference", loss.model, (tokens,)))
    return cases


SUBJECTS: dict[str, Callable[[Callable], Callable]] = {
    "eager": lambda fn: fn,
    "dovetail": dovetail.jit,
    "torch.compile": torch.compile,
}
NEEDED = {"eager": 5, "dovetail": 15, "torch.compile": 25}  # seconds left that a subject needs to start


def measured(case: Case, subject: str, clock: Clock, copy: float) -> Row:
    """Measure one subject of one case."""
    if clock.left < NEEDED[subject]:
        return Row(case.name, subject, message="not measured: no time left")
    try:
        fn = SUBJECTS[subject](case.fn)
        apart = difference(case, fn)
        if case.train:
            took = clock.median(lambda: step(fn, case.args, case.parameters))
        else:
            with torch.no_grad():
                took = clock.median(lambda: fn(*case.args))
    except Exception as error:  # a subject that fails is a row of the table
        message = (str(error).splitlines() or [""])[0]
        return Row(case.name, subject, message=f"{type(error).__name__}: {message[:200]}")
    fraction = case.bytes / took / copy if case.bytes else None
    return Row(case.name, subject, took, case.bytes, fraction, apart)


def copy_bandwidth(clock: Clock, small: bool) -> float:
    """Return the bytes per second, read and written, of a copy of 1 GiB."""
    source = torch.empty(2**20 if small else 2**30, dtype=torch.uint8, device=clock.device)
    target = torch.empty_like(source)
    return 2 * source.numel() / clock.median(lambda: target.copy_(source))


def markdown(rows: list[Row], about: dict[str, Any]) -> str:
    """Format the table."""
    lines = [f"# {about['device']}", "", f"torch {about['torch']}, triton {about['triton']}; a copy moves {about['copy'] / 1e9:.0f} GB/s.", ""]
    lines += ["| case | " + " | ".join(SUBJECTS) + " |", "|---|" + "---|" * len(SUBJECTS)]
    for case in dict.fromkeys(row.case for row in rows):
        by_subject = {row.subject: row for row in rows if row.case == case}
        cells = [_cell(by_subject[subject]) if subject in by_subject else "" for subject in SUBJECTS]
        lines.append(f"| {case} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _cell(row: Row) -> str:
    if row.seconds is None:
        return row.message.replace("|", "/")
    part = f", {row.copy_fraction:.0%} of copy" if row.copy_fraction else ""
    wrong = f", results differ by {row.difference:.0%}" if not row.difference <= FAR else ""
    return f"{row.seconds * 1e6:,.0f} us{part}{wrong}"


def about(clock: Clock, copy: float) -> dict[str, Any]:
    """Return what the figures depend on: device, versions, date."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        triton = version("triton")
    except PackageNotFoundError:
        triton = "none"
    name = torch.cuda.get_device_name() if clock.device == "cuda" else "CPU"
    return {"device": name, "torch": torch.__version__, "triton": triton, "copy": copy, "date": time.strftime("%Y-%m-%d")}


def main() -> None:
    """Measure everything, and write the results after every subject, so that an interrupted run keeps its part."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    parser.add_argument("--seconds", type=float, default=240.0)
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and not options.small:
        parser.error("needs a CUDA device, and PyTorch sees none; --small runs on a CPU")
    clock, rows = Clock(device, options.seconds), []
    copy = copy_bandwidth(clock, options.small)
    facts = about(clock, copy)
    options.out.mkdir(parents=True, exist_ok=True)
    cases = kernels(device, options.small) + models(device, options.small)
    for subjects in (("eager", "dovetail"), ("torch.compile",)):  # the slowest to compile comes last
        for case in cases:
            for subject in subjects:
                rows.append(measured(case, subject, clock, copy))
                print(f"{options.seconds - clock.left:5.0f} s  {case.name}, {subject}: {_cell(rows[-1])}", flush=True)
                (options.out / "gpu.json").write_text(json.dumps({"about": facts, "rows": [asdict(row) for row in rows]}, indent=1) + "\n")
                (options.out / "gpu.md").write_text(markdown(rows, facts))
            torch.compiler.reset()
    print((options.out / "gpu.md").read_text(), end="")


if __name__ == "__main__":
    main()

"""A small GPT on Python's own source: trained compiled and eagerly from one seed, sampled from, shown as a program, timed.

python examples/gpt.py [--steps 500] [--no-compile] [--out out]
"""

from __future__ import annotations

import argparse
import copy
import math
import os
import statistics
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch
from matplotlib.figure import Figure
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn, track
from rich.syntax import Syntax
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional

import dovetail

console = Console(highlight=False)


@dataclass(frozen=True)
class Shape:
    """How large a GPT is."""

    vocabulary: int
    context: int  # tokens that it looks back over
    layers: int
    heads: int
    width: int


class Attention(nn.Module):
    """Each position gathers from the positions before it, in several heads."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.heads = shape.heads
        self.into = nn.Linear(shape.width, 3 * shape.width)
        self.out = nn.Linear(shape.width, shape.width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        query, key, value = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in self.into(x).chunk(3, dim=-1))
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Layer(nn.Module):
    """Attention and a two-layer network, each added to what came in."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.attention_norm, self.attention = nn.LayerNorm(shape.width), Attention(shape)
        self.network_norm = nn.LayerNorm(shape.width)
        self.network = nn.Sequential(nn.Linear(shape.width, 4 * shape.width), nn.GELU(), nn.Linear(4 * shape.width, shape.width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.network(self.network_norm(x))


class GPT(nn.Module):
    """Logits of the next token at each position."""

    def __init__(self, shape: Shape):
        super().__init__()
        self.tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.positions = nn.Embedding(shape.context, shape.width)
        self.layers = nn.Sequential(*(Layer(shape) for _ in range(shape.layers)))
        self.norm = nn.LayerNorm(shape.width)
        self.head = nn.Linear(shape.width, shape.vocabulary, bias=False)
        self.apply(start)

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return self.head(self.norm(self.layers(self.tokens(tokens) + self.positions(places))))


def start(module: nn.Module) -> None:
    """Initialize with small weights, so that all tokens start equally likely."""
    if isinstance(module, (nn.Linear, nn.Embedding)):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


class Characters:
    """Text to numbers and back, a number for each printable character."""

    known = "\n" + "".join(map(chr, range(32, 127)))

    def __init__(self) -> None:
        self.number = {c: i for i, c in enumerate(self.known)}

    def encode(self, text: str) -> list[int]:
        return [self.number[c] for c in text if c in self.number]

    def decode(self, numbers: Iterable[int]) -> str:
        return "".join(self.known[i] for i in numbers)


def corpus(most: int = 3_000_000) -> str:
    """Return the source of Python's standard library."""
    text, size = [], 0
    for file in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        text.append(file.read_text(encoding="utf-8", errors="ignore"))
        size += len(text[-1])
        if size > most:
            break
    return "\n".join(text)


def batches(data: Tensor, length: int, size: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Draw random pieces of `data`, and the same shifted by one token."""
    while True:
        starts = torch.randint(len(data) - length - 1, (size, 1))
        pieces = data[starts + torch.arange(length + 1)]
        yield pieces[:, :-1], pieces[:, 1:]


@dataclass
class Run:
    """A model in training: who calls it, whose parameters are updated, and the loss and the time of each step so far."""

    name: str
    call: Callable[[Tensor], Tensor]
    model: GPT
    losses: list[float] = field(default_factory=list)
    taken: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.0, betas=(0.9, 0.95), weight_decay=0.1)

    def step(self, tokens: Tensor, following: Tensor, rate: float) -> None:
        """Run forward, backward and update; torch.optim and the clipping stay eager."""
        began = time.perf_counter()
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        loss = functional.cross_entropy(self.call(tokens).flatten(0, 1), following.flatten())
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.losses.append(loss.item())
        self.taken.append(time.perf_counter() - began)


def train(runs: list[Run], data: Tensor, shape: Shape, steps: int) -> None:
    """Train all `runs` on the same batches, in turns."""
    told = TextColumn("step {task.completed}/{task.total}  loss {task.fields[loss]:.2f}")
    with Progress(TextColumn("training, compiled and eager"), BarColumn(), told, TimeElapsedColumn(), console=console) as progress:
        task = progress.add_task("", total=steps, loss=math.log(shape.vocabulary))
        for i, (tokens, following) in zip(range(steps), batches(data, shape.context, 16), strict=False):
            rate = 3e-3 * min(1, (i + 1) / 20) * (1 - 0.95 * i / steps)  # up over the first steps, then down to a twentieth
            for run in runs:
                run.step(tokens, following, rate)
            progress.update(task, advance=1, loss=runs[0].losses[-1])


def sample(model: Callable[[Tensor], Tensor], prompt: Tensor, count: int, temperature: float = 0.6) -> Tensor:
    """`count` tokens after `prompt`, drawn one at a time."""
    tokens, length = prompt, prompt.shape[1]
    for _ in track(range(count), description="sampling, compiled", console=console):
        logits = model(tokens[:, -length:])[:, -1]
        drawn = torch.multinomial(torch.softmax(logits / temperature, -1), 1)
        tokens = torch.cat([tokens, drawn], 1)
    return tokens[0, length:]


def show_training(ours: Run, eager: Run, shape: Shape, picture: Path) -> None:
    """Show the loss curves side by side, as a table and in `picture`."""
    steps = len(ours.losses)
    apart = [abs(a - b) / b for a, b in zip(ours.losses, eager.losses, strict=True)]
    table = Table(title=f"Loss in nats a character; guessing would be {math.log(shape.vocabulary):.2f}", title_justify="left")
    for heading in ("step", ours.name, eager.name, "relative difference"):
        table.add_column(heading, justify="right")
    table.add_column("")
    for i in sorted({round(part * (steps - 1) / 10) for part in range(11)}):
        bar = "█" * round(20 * ours.losses[i] / max(ours.losses))
        table.add_row(str(i + 1), f"{ours.losses[i]:.4f}", f"{eager.losses[i]:.4f}", difference(apart[i]), f"[green]{bar}[/green]")
    console.print(table)
    verdict = "[green]equal to eager's[/green]" if max(apart) < 1e-4 else "[red]NOT equal to eager's[/red]"
    console.print(f"[bold]Losses[/bold] of all {steps} steps {verdict}: at most {difference(max(apart))} apart, relatively")
    spent = [f"{run.name} {statistics.median(run.taken) * 1e3:.0f} ms" for run in (ours, eager)]
    console.print(f"A step, median: {', '.join(spent)}; the first compiled one took {ours.taken[0]:.2f} s")
    plot(ours, eager, picture)
    console.print(f"Loss curves: [bold]{picture}[/bold]\n", soft_wrap=True)


def difference(size: float) -> str:
    return f"{size:.1e}" if size else "0"


def plot(ours: Run, eager: Run, picture: Path) -> None:
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.add_subplot(xlabel="step", ylabel="loss, nats a character", title="A small GPT trained from one seed")
    axes.plot(eager.losses, label=eager.name, linewidth=4, alpha=0.35)
    axes.plot(ours.losses, label=ours.name, linewidth=1.2)
    axes.legend()
    axes.grid(alpha=0.3)
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, dpi=120)


def seconds(fn: Callable[[], object]) -> float:
    began = time.perf_counter()
    fn()
    return time.perf_counter() - began


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Show a moving bar while something of unknown duration runs."""
    columns = (SpinnerColumn(), TextColumn(what), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        progress.add_task("", total=None)
        yield


@contextmanager
def fresh_cache() -> Iterator[None]:
    """Give torch.compile an empty cache while open."""
    name = "TORCHINDUCTOR_CACHE_DIR"
    before = os.environ.get(name)
    with tempfile.TemporaryDirectory() as folder:
        os.environ[name] = folder
        try:
            yield
        finally:
            os.environ.pop(name) if before is None else os.environ.update({name: before})


def peer(model: GPT, tokens: Tensor) -> tuple[Callable | None, str]:
    """Return the model compiled by torch.compile and the time of its first call; or None and the reason."""
    compiled = torch.compile(model)
    try:
        with waiting("torch.compile, first call"), fresh_cache():
            return compiled, f"{seconds(lambda: compiled(tokens)):.2f} s"
    except Exception as error:  # whatever keeps it from working is what the table says
        return None, f"{type(error).__name__}: {next((line for line in str(error).splitlines() if line.strip()), '')}"


def timings(subjects: dict[str, Callable[[Tensor], Tensor]], tokens: Tensor, rounds: int = 25) -> dict[str, float]:
    """Return the median time of a call for each subject, taking turns."""
    taken: dict[str, list[float]] = {name: [] for name in subjects}
    for _ in track(range(rounds), description="timing calls", console=console):
        for name, fn in subjects.items():
            taken[name].append(seconds(lambda fn=fn: fn(tokens)))
    return {name: statistics.median(times) for name, times in taken.items()}


def excerpt(program: str, rows: int) -> str:
    """Return the first lines of a program, without its imports and the types of its inputs."""
    lines = program.splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith("def "))
    body = [line for line in lines[begin + 1 :] if not line.startswith("    # ")]
    return "\n".join([f"{lines[begin].partition('(')[0]}(...):", *body[:rows], f"    # ... {max(len(body) - rows, 0)} more lines"])


def decomposed(program: str, operation: str) -> str:
    """Return the first line of a program that calls `operation`, with its decomposition."""
    lines = program.splitlines()
    begin = next((i for i, line in enumerate(lines) if f"{operation}(" in line), 0)
    end = next((i for i in range(begin + 1, len(lines)) if not lines[i].startswith("        # ")), len(lines))
    return "\n".join(lines[begin:end])


def show_python(text: str) -> None:
    """Print Python in colour; the terminal wraps long lines, other outputs get them whole."""
    console.print(Syntax(text, "python", theme="ansi_dark", background_color="default").highlight(text), soft_wrap=True)


def show_text(prompt: str, written: str) -> None:
    console.print(f"\n[bold]What it writes[/bold] (given the grey part)\n[dim]{escape(prompt)}[/dim][green]{escape(written)}[/green]\n")


def show_difference(ours: Tensor, eager: Tensor) -> None:
    worst = (ours - eager).abs().max().item()
    within = torch.allclose(ours, eager, rtol=1e-5, atol=1e-5)
    verdict = "[green]equal to eager's[/green]" if within else "[red]NOT equal to eager's[/red]"
    console.print(f"[bold]Logits[/bold] {verdict}: at most {difference(worst)} apart, the largest is {eager.abs().max().item():.1f}\n")


def show_program(compiled: object) -> None:
    traces = dovetail.last_traces(compiled)
    steps = ", ".join(f"{trace.made_by} {trace.took * 1e3:.1f}" for trace in traces)
    console.print(f"[bold]The program that runs[/bold] (milliseconds to make it: {steps})")
    show_python(excerpt(traces[-1].python(depth=0), 14))
    console.print("[bold]What one of its operations is made of[/bold]")
    show_python(decomposed(traces[0].python(depth=1), "layer_norm"))


def show_timings(model: GPT, compiled: Callable, first: float, tokens: Tensor, with_peer: bool) -> None:
    other, message = peer(model, tokens) if with_peer else (None, "left out with --no-compile")
    subjects = {"eager": model, "dovetail.jit": compiled} | ({"torch.compile": other} if other is not None else {})
    medians = timings(subjects, tokens)
    table = Table(title=f"One forward, batch {tokens.shape[0]} x {tokens.shape[1]}", title_justify="left")
    for heading in ("", "first call", "a call, median", "beside eager"):
        table.add_column(heading, justify="left" if not heading else "right")
    for name, took in {"eager": "", "dovetail.jit": f"{first:.2f} s", "torch.compile": message}.items():
        if name in medians:
            table.add_row(name, took, f"{medians[name] * 1e3:.2f} ms", f"{medians[name] / medians['eager']:.2f}x")
        else:
            table.add_row(name, escape(took), "-", "-")
    console.print(table)


def main() -> None:
    wanted = argparse.ArgumentParser(description="A small GPT, trained compiled and eagerly, sampled from, shown as a program and timed.")
    wanted.add_argument("--steps", type=int, default=500, help="how long to train (default: 500)")
    wanted.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    wanted.add_argument("--out", type=Path, default=Path("out"), help="folder for the picture (default: out)")
    options = wanted.parse_args()
    torch.manual_seed(0)
    characters, text = Characters(), corpus()
    data = torch.tensor(characters.encode(text))
    shape = Shape(vocabulary=len(characters.known), context=64, layers=2, heads=4, width=128)
    model = GPT(shape)
    compiled = dovetail.jit(model)
    size = sum(p.numel() for p in model.parameters())
    console.print(f"[bold]A GPT[/bold] of {size:,} parameters on {len(data):,} characters of Python's standard library\n")
    twin = copy.deepcopy(model)
    ours, eager = Run("dovetail.jit", compiled, model), Run("eager", twin, twin)
    train([ours, eager], data, shape, options.steps)
    show_training(ours, eager, shape, options.out / "gpt_loss.png")

    model.eval().requires_grad_(False)
    prompt = torch.tensor([characters.encode(text[text.index("\nclass ") + 1 :][: 2 * shape.context])[: shape.context]])
    first = seconds(lambda: compiled(prompt))
    written = sample(compiled, prompt, 300)
    show_text(characters.decode(prompt[0].tolist()), characters.decode(written.tolist()))
    show_difference(compiled(prompt), model(prompt))
    show_program(compiled)
    show_timings(model, compiled, first, prompt, with_peer=not options.no_compile)


if __name__ == "__main__":
    main()

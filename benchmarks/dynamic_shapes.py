"""Sizes that change: training over lengths, decoding with caches, kernels and compile time with symbolic sizes."""

from __future__ import annotations

import os
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from tempfile import TemporaryDirectory
from typing import Any

import models
import torch
from costs import Costs, progress, script
from decoder import Decoder
from machine import span
from torch import Tensor

import dovetail
from dovetail.torch_internals import graph_count

LENGTHS, BATCH = 40, 2  # of training
TOKENS, PROMPT, BATCHES = 200, 8, (1, 8)  # of decoding
ROUNDS, CALLS = 60, 20_000  # of kernels; calls in a round of those that take a microsecond
PAIRS = 7  # of compilations
COMPILERS: dict[str, Callable[[Callable], Callable]] = {
    "dovetail": dovetail.jit,
    "dovetail, dynamic=True": lambda fn: dovetail.jit(fn, dynamic=True),
    "torch.compile": torch.compile,
    "torch.compile, dynamic=True": lambda fn: torch.compile(fn, dynamic=True),
}
KERNELS: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax": lambda x: torch.softmax(x, -1),
    "layer_norm": lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]),
    "gelu": torch.nn.functional.gelu,
    "x * 2 + 1": lambda x: x * 2 + 1,
}
SHAPES = ((8, 8), (1024, 1024), (4096, 1024))


def processor_time() -> float:
    """Return the seconds that this process and the compilers that it started have computed."""
    return time.process_time() + sum(os.times()[2:4])


class Counted:
    """A compiled function, or eager mode, and how many programs it has compiled."""

    def __init__(self, name: str, fn: Callable):
        torch.compiler.reset()
        self.before = graph_count()
        self.call = COMPILERS[name](fn) if name in COMPILERS else fn

    @property
    def compilations(self) -> int:
        return self.call.cache_info().misses if hasattr(self.call, "cache_info") else graph_count() - self.before


def training() -> Costs:
    """Train a GPT of six layers on batches of many lengths: the whole loop counts, compilations too."""
    lengths = [int(n) for n in torch.randperm(models.CONTEXT - 16, generator=torch.Generator().manual_seed(0))[:LENGTHS] + 16]
    torch.manual_seed(0)
    loss = models.Loss(models.six_layers())
    batches = [tuple([torch.randint(models.VOCABULARY, (BATCH, n)) for _ in range(2)]) for n in lengths]

    def steps(subject: Callable, title: str) -> list[float]:
        losses = []
        for batch in progress(batches, title):
            loss.zero_grad()
            value = subject(*batch)
            value.backward()
            losses.append(value.item())
        return losses

    steps(loss, "warming up")
    rows, figures, expected = [], {}, None
    for name in ("eager", *COMPILERS):
        subject, began = Counted(name, loss), (time.perf_counter(), processor_time())
        losses = steps(subject.call, name)
        seconds, processor = (now - start for now, start in zip((time.perf_counter(), processor_time()), began, strict=True))
        expected = expected or losses
        torch.testing.assert_close(losses, expected, rtol=1e-4, atol=1e-4)
        figures[name] = {"seconds": seconds, "processor": processor, "compilations": subject.compilations}
        ratio = processor / figures["eager"]["processor"]
        rows.append((name, str(subject.compilations), span(seconds), span(processor), f"{ratio:.2f}x"))
    how = (
        f"A GPT of six layers, forward and backward at {LENGTHS} lengths between 16 and {models.CONTEXT}, {BATCH} rows, on one thread. "
        "The whole loop with its compilations: its time, and the processor time, which other load does not change, beside eager mode's."
    )
    return Costs("lengths_training", "Training over lengths", how, ("", "compilations", "time", "processor time", "of eager's"), rows, figures)


def decoded(model: Decoder, subject: Callable, rows: int) -> tuple[Tensor, list[float]]:
    """Decode greedily: return the tokens, and the processor time of each."""
    token = torch.arange(rows * PROMPT).view(rows, PROMPT)
    cache, position, tokens, times = model.empty(rows, PROMPT + TOKENS), 0, [], []
    for _ in range(TOKENS):
        began = processor_time()
        new, cache = subject(token, cache, position)
        times.append(processor_time() - began)
        position += token.shape[1]
        tokens.append(token := new.clone())
    return torch.cat(tokens, 1), times


def decoding() -> Costs:
    """Decode with a Llama, with a cache that grows and with one of the final length."""
    rows, figures = [], {}
    for static in (False, True):
        torch.manual_seed(0)
        model = Decoder(static=static).eval()
        for batch in BATCHES:
            title = f"{'static' if static else 'growing'} cache, {batch} row{'s' if batch > 1 else ''}"
            figures[title], expected = {}, None
            for name in ("eager", *COMPILERS):
                subject = Counted(name, model)
                tokens, first = decoded(model, subject.call, batch)
                warm = min(sum(decoded(model, subject.call, batch)[1]) for _ in range(3))
                expected = tokens if expected is None else expected
                figure = {"first token": first[0], "first": sum(first), "warm": warm, "compilations": subject.compilations}
                figures[title][name] = figure | {"equal": torch.equal(tokens, expected)}
                rates = [f"{TOKENS * batch / seconds:.0f}" for seconds in (sum(first), warm)]
                rows.append((title, name, str(subject.compilations), span(first[0]), *rates, "yes" if torch.equal(tokens, expected) else "no"))
    how = (
        f"Greedy decoding of {TOKENS} tokens after {PROMPT} with a Llama of four layers, width 256, on one thread. Processor time of the first, "
        "and tokens in a second of it: for the first sequence, compilations included, and for the best of three more."
    )
    headings = ("", "", "compilations", "first token", "tokens/s, first", "tokens/s, warm", "eager's tokens")
    return Costs("lengths_decoding", "Decoding", how, headings, rows, figures)


def kernels() -> Costs:
    """Compare kernels with symbolic sizes with those of plain ones."""
    rows, figures = [], {}
    for title, fn in KERNELS.items():
        for shape in SHAPES:
            x, times = torch.randn(shape), CALLS if shape == SHAPES[0] else 1
            subjects = {"eager": fn, "plain": dovetail.jit(fn, dynamic=False), "symbolic": dovetail.jit(fn, dynamic=True)}
            for subject in list(subjects.values()) * 5:
                torch.testing.assert_close(subject(x), fn(x))
            rounds = [{name: spent(subject, x, times) for name, subject in subjects.items()} for _ in range(ROUNDS if times == 1 else ROUNDS // 4)]
            best = {name: min(row[name] for row in rounds) for name in subjects}
            ratio = statistics.median(row["symbolic"] / row["plain"] for row in rounds)
            label = f"{title}, {shape[0]} x {shape[1]}"
            figures[label] = {"seconds": best, "ratio": ratio}
            rows.append((label, *[span(best[name]) for name in subjects], f"{best['symbolic'] / best['plain']:.2f}x", f"{ratio:.2f}x"))
    how = "Processor time of a warm call on one thread: the least, the ratio of symbolic to plain sizes, and the median of that within a round."
    return Costs("lengths_kernels", "Kernels with symbolic sizes", how, ("", "eager", "plain sizes", "symbolic", "ratio", "median"), rows, figures)


def spent(fn: Callable, x: Tensor, times: int) -> float:
    """Return the processor time of one call."""
    began = time.process_time()
    for _ in range(times):
        fn(x)
    return (time.process_time() - began) / times


def compiling() -> Costs:
    """Compare the time to compile a training step with symbolic sizes and with plain ones."""
    torch.manual_seed(0)
    loss = models.Loss(models.six_layers())
    batch = [torch.randint(models.VOCABULARY, (BATCH, 32)) for _ in range(2)]

    def compiled(dynamic: bool) -> float:
        began = time.process_time()
        dovetail.jit(loss, dynamic=dynamic)(*batch).backward()
        return time.process_time() - began

    first = [compiled(dynamic) for dynamic in (False, True)]
    pairs = [tuple(sorted([(dynamic, compiled(dynamic)) for dynamic in order])) for order in [(False, True), (True, False)] * PAIRS]
    plain, symbolic = ([seconds for _, seconds in column] for column in zip(*pairs, strict=True))
    ratio = statistics.median(b / a for a, b in zip(plain, symbolic, strict=True))
    rows = [("GPT", span(min(plain)), span(min(symbolic)), f"{ratio:.2f}x")]
    how = f"Processor time of the first step of the GPT of six layers in a warm process: the least of {2 * PAIRS}, and the median ratio of pairs."
    figures: dict[str, Any] = {
        "first": first,
        "pairs": [dict(zip(("plain", "symbolic"), row, strict=True)) for row in zip(plain, symbolic, strict=True)],
    }
    return Costs("lengths_compiling", "Compiling training", how, ("", "plain sizes", "symbolic", "ratio"), rows, figures)


@script
def main() -> Iterator[Costs]:
    """Measure functions whose sizes change, beside eager mode and torch.compile."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", module="torch")
    with TemporaryDirectory() as empty:  # what other processes have compiled does not count
        os.environ |= {"XDG_CACHE_HOME": empty, "TORCHINDUCTOR_CACHE_DIR": empty}
        yield compiling()
        with torch.no_grad():
            yield kernels()
            yield decoding()
        yield training()


if __name__ == "__main__":
    main()

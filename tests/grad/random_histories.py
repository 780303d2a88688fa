"""Random programs of writes, views, grad modes and gradients inside; eager mode says which values, histories and gradients they have.

python tests/grad/random_histories.py SEED MINUTES searches with other seeds, and prints the programs that differ.
"""

from __future__ import annotations

import linecache
import random
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks

import dovetail

VIEWS = ("{a}[1]", "{a}[:, 1:]", "{a}.t()", "{a}.view(-1)[1:7:2]", "{a}.diagonal()", "{a}[..., 0]", "{a}", "{a}[0:2]")
NUMBERS = ("{b}.sum()", "{b}.detach().mean()", "torch.tanh({b})[0, 0]", "{b}[0, 1]", "(x * 0 + 2)[0, 0]")
COMPUTED = (
    *("{a} * {b}", "torch.tanh({a})", "{a} @ {b}", "{a} + {b}", "torch.where({a} > 0, {a}, {b})", "{a}.clone()", "{a} - {b}.mean()"),
    *("torch.cat([{a}[:1], {b}[1:]])", "{a}.t().contiguous()", "{a}.detach() * {b}", "torch.stack([{a}[0], {b}[1], {a}[2]])", "{a}.exp().sqrt()"),
    *("torch.empty_like({a}).copy_({b})", "{a}.new_zeros(3, 3).add_({b})", "{a}.detach().clone()", "{a}.where({b} < 0, {b})"),
)
SEEN_AS = (
    *("{a}.t()", "{a}.view(3, 3)", "{a}.transpose(0, 1)", "{a}[:]", "{a}.view_as({b})"),
    *("{a}.detach()", "{a}.data", "{a}.t().detach()", "{a}.view(torch.int64).view(torch.float64)"),
)
WRITES = ("{v}.mul_({n})", "{v}.add_({n})", "{v}.copy_({n})", "{v}.fill_(0.5)", "{v}.sigmoid_()", "{v}.zero_()", "{v}.sub_({n})", "{v}.clamp_(-1, 1)")
WHOLE_WRITES = (
    *("{a}[{b}.clone() > 0] = 1.0", "{a}.masked_fill_({b}.clone() > 0, 2.0)", "{a}.index_add_(0, torch.tensor([0, 0, 2]), {b}.clone())"),
    *("{a}.index_copy_(1, torch.tensor([2, 0]), {b}.clone()[:, :2])", "{a}[torch.tensor([0, 2])] = {b}.clone()[:2]"),
    *("{a}.addmm_({b}.clone(), {b}.clone())", "{a}.lerp_({b}.clone(), 0.3)"),
)
UNSEEN_WRITES = (
    "{v}[1] = {b}.clone()[0]",
    "{v}.mul_({b}.clone())",
    "{v}[:, 0].add_({b}.clone()[0, 0])",
    "{v}.view(-1)[2:5] = {b}.clone()[1]",
    "{v}.copy_({b}.clone())",
)
WITHOUT_GRAD = ("{a}[1] = {b}.clone()[0]", "{a}.mul_({b}.clone())", "{c} = {a} * {b}", "{c} = torch.tanh({a})", "{a}.diagonal().mul_({b}.clone()[0])")


def draw(seed: int) -> str:
    """Return the source of a program of two matrices, x and w."""
    rng, numbers = random.Random(seed), count(2)
    names, lines = ["x", "w", "p0", "p1"], ["p0 = x * 1.5", "p1 = torch.zeros(3, 3, dtype=x.dtype)"]
    for _ in range(rng.randint(4, 11)):
        a, b = rng.choice(names[-5:]), rng.choice(names)
        kind, c = (
            rng.choice(("compute", "compute", "view", "write", "write", "write whole", "unseen", "without grad", "gradient", "cut")),
            f"p{next(numbers)}",
        )
        if kind in ("compute", "view"):
            lines.append(f"{c} = " + rng.choice(COMPUTED if kind == "compute" else SEEN_AS).format(a=a, b=b))
            names.append(c)
        elif kind == "gradient":
            wanted, again = rng.choice("xw"), rng.choice((True, False))
            lines.append(f"{c} = torch.autograd.grad(({a} * {b}).sum() + (x * w).sum(), {wanted}, create_graph={again}, retain_graph=True)[0]")
            names.append(c)
        elif kind == "cut" and a in ("x", "w"):
            lines += [f"{a}.requires_grad_(False)", f"{c} = " + rng.choice(COMPUTED).format(a=a, b=b), f"{a}.requires_grad_(True)"]
            names.append(c)
        elif kind == "cut":
            lines.append(f"{a}.detach_()")
        elif a not in ("x", "w"):
            lines += written(rng, kind, a, b, c)
            names += [c] if lines[-1].startswith(f"    {c} =") else []
    results = dict.fromkeys(rng.choices(names[2:], k=3))
    loss = " + ".join(f"({p} * {i}.5).square().sum()" for i, p in enumerate(dict.fromkeys(rng.choices(names, k=4)), 1))
    return "\n".join(["def program(x, w):", *(f"    {line}" for line in lines), f"    return {loss}, {', '.join(results)}", ""])


def written(rng: random.Random, kind: str, a: str, b: str, c: str) -> list[str]:
    """Return lines that write into `a` what is computed of `b`; with grad mode off they may compute `c` instead."""
    if kind == "write":
        number = f"{rng.choice(NUMBERS).format(b=b)}.clone()"
        return [rng.choice(WRITES).format(v=rng.choice(VIEWS).format(a=a), n=number)]
    if kind == "write whole":
        return [rng.choice(WHOLE_WRITES).format(a=a, b=b)]
    if kind == "unseen":
        return [rng.choice(UNSEEN_WRITES).format(v=a + rng.choice((".data", ".detach()")), b=b)]
    return ["with torch.no_grad():", "    " + rng.choice(WITHOUT_GRAD).format(a=a, b=b, c=c)]


def build(source: str) -> Callable[..., Any]:
    """Return the function of a source, with lines that errors can show."""
    file, names = f"<history {hash(source)}>", {"torch": torch}
    linecache.cache[file] = len(source), None, source.splitlines(True), file
    exec(compile(source, file, "exec"), names)
    return names["program"]


def observed(program: Callable[..., Any], seed: int) -> list[Any]:
    """Return what a call leaves behind: results, whether they require grad, their gradients, and the arguments."""
    generator = torch.Generator().manual_seed(seed)
    arguments = [torch.randn(3, 3, generator=generator, dtype=torch.float64).requires_grad_() for _ in range(2)]
    results = program(*arguments)
    gradients = partial(torch.autograd.grad, inputs=arguments, allow_unused=True, retain_graph=True)
    return [[p.detach().clone(), p.requires_grad, gradients(p.sum()) if p.requires_grad else None] for p in results] + arguments


def keeping(program: Callable[..., Any]) -> Callable[..., Any]:
    """Return the program with copies of what its backward needs: eager mode sees writes behind autograd's back there."""

    def run(*arguments: torch.Tensor) -> Any:
        with saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
            return program(*arguments)

    return run


def leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for each in value:
            yield from leaves(each)
    else:
        yield value


def agrees(ours: list[Any], theirs: list[Any]) -> bool:
    """Return whether two observations are equal; no gradient is the same as one of zeros."""
    for one, other in zip(leaves(ours), leaves(theirs), strict=True):
        tensors = [each for each in (one, other) if isinstance(each, torch.Tensor)]
        if len(tensors) == 2 and not torch.allclose(one, other, rtol=1e-9, atol=1e-9, equal_nan=True):
            return False
        if len(tensors) < 2 and any([bool(each.count_nonzero()) for each in tensors] or [one != other]):
            return False
    return True


def check(source: str, executors: list[str] | None = None) -> str:
    """Return "agrees", "differs", or "refused" where eager mode or Dovetail runs no such program."""
    program = build(source)
    try:
        expected = [observed(program, seed) for seed in (1, 2)]
    except (RuntimeError, IndexError):
        return "refused"
    try:
        compiled = dovetail.jit(program, executors=executors)
        actual = [observed(compiled, seed) for seed in (1, 2)]
    except dovetail.errors.Unsupported:
        return "refused"
    if all(map(agrees, actual, expected)):
        return "agrees"
    kept = [observed(keeping(program), seed) for seed in (1, 2)]
    return "agrees" if all(map(agrees, actual, kept)) else "differs"


if __name__ == "__main__":
    first, until = int(sys.argv[1]), time.monotonic() + 60 * float(sys.argv[2])
    for seed in count(first * 1_000_000):
        if time.monotonic() > until:
            print(f"{seed - first * 1_000_000} programs")
            break
        if check(draw(seed), ["torch"]) == "differs":
            print(f"--- seed {seed}\n{draw(seed)}")

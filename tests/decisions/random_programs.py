"""Random programs with branches, loops, writes, views, lists, masks and random numbers, and how they compare with eager mode.

Run it for longer than the tests do: `python tests/decisions/random_programs.py SEED COUNT` and any of `grad`, `sizes`, `shapes`, `backward`,
`contexts` and `transforms`. With `sizes`, lengths depend on values, with `shapes` those of the arguments differ from call to call, with
`backward` programs differentiate, with `contexts` they change settings of torch for a while, with `transforms` they transform functions by
torch.func.
"""

from __future__ import annotations

import linecache
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

import dovetail

CONTEXTS = (
    "torch.autocast('cpu', torch.bfloat16)",
    "torch.autocast('cpu', enabled=False)",
    "torch.device('cpu')",
    "torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)",
    "torch.backends.cudnn.flags(enabled=False)",
    "entered(box)",
    "Entered(box)",
)
INPUTS = (1, 2, 3, 4, 5, 6, 2, 7, 1)  # seeds of the arguments, call by call


class Box:
    """An object from outside: the program counts in `n`, stores a tensor in `t`, and computes gradients of the parameter `w`."""

    def __init__(self, t: torch.Tensor):
        self.n, self.t, self.w = 0, t, torch.ones((), requires_grad=True)


@contextmanager
def entered(box: Box) -> Iterator[None]:
    """Count, with code of the program before and behind."""
    box.n += 1
    try:
        yield
    finally:
        box.n *= 2


class Entered:
    """The same as a class, which also sees errors."""

    def __init__(self, box: Box):
        self.box = box

    def __enter__(self) -> Entered:
        self.box.n += 3
        return self

    def __exit__(self, kind: type | None, *details: Any) -> bool:
        self.box.n -= 1 if kind is None else 5
        return kind is ZeroDivisionError


class Writer:
    """Writes one program."""

    def __init__(self, seed: int, sizes: bool, backward: bool = False, contexts: bool = False, transforms: bool = False):
        self.random, self.lines = random.Random(seed), ["def f(x, y, box):", "    a, b, c, items, k, n, words = x, y * 1, x + 0, [], 0, 0, ''"]
        self.sizes, self.backward, self.contexts, self.transforms = sizes, backward, contexts, transforms
        self.loops: list[int] = []  # how deep in the program the loops stand that are open
        if backward:
            self.lines.append("    b = y * box.w")
        if sizes:
            self.lines.append("    m = x[x > 0]")
        if transforms:
            self.lines.append("    pull = None")

    def statements(self, depth: int, count: int) -> None:
        """Append statements at a level of nesting."""
        for _ in range(count):
            self.statement(depth)

    def statement(self, depth: int) -> None:
        """Append one statement."""
        r, indent = self.random, "    " * (depth + 1)
        v, w, q = r.choice("abc"), r.choice("abc"), r.random()
        if self.sizes and r.random() < 0.35:
            self.lines.append(indent + self.sized(v, w))
            return
        if self.backward and r.random() < 0.35:
            self.lines += [indent + line for line in self.differentiated(v, w)]
            return
        if self.transforms and r.random() < 0.4:
            self.lines += [indent + line for line in self.transformed(v, w)]
            return
        if self.contexts and r.random() < 0.3:
            kind = r.random()
            if depth < 3 and kind < 0.5:
                self.lines.append(f"{indent}with {r.choice(CONTEXTS)}:")
                self.statements(depth + 1, r.randint(1, 3))
            elif depth < 3 and kind < 0.65:
                self.lines.append(f"{indent}try:")
                self.statements(depth + 1, r.randint(1, 2))
                self.lines += [f"{indent}    k += 1 // int({v}.sum() > {r.choice([-2, 0, 2])})", f"{indent}except ZeroDivisionError:"]
                self.statements(depth + 1, 1)
                self.lines += [f"{indent}finally:", f"{indent}    box.n += 1"]
            elif depth and kind < 0.75:
                leave = r.choice(["break", "continue"]) if self.loops and self.loops[-1] < depth else "return a, b, c, items, k, n, words"
                self.lines += [f"{indent}if {v}.sum() > {r.choice([-2, 0, 2])}:", f"{indent}    {leave}"]
            else:
                self.lines.append(indent + r.choice((f"{v} = ({w}[:, None] @ torch.ones(1, 2))[:, 0].float()", f"{v} = torch.ones(4) * {w}")))
            return
        simple = (
            (0.10, lambda: f"{v} = {w}"),
            (0.25, lambda: f"{v} = {w} * {r.choice(['0.5', '2', '-1', 'y', 'a'])}"),
            (0.33, lambda: f"{v} = {w}.add(1) if {v}.sum() > {r.choice([-1, 0, 1])} else {w}.sub(1)"),
            (0.41, lambda: f"{v}.add_({r.choice(['1', 'b * 0.5', '-1'])})"),
            (0.47, lambda: f"{v} = {w}.view(-1)"),
            (0.53, lambda: f"{v}[1:].mul_({r.choice(['2', '-1'])})"),
            (0.58, lambda: f"items.append({v})"),
            (0.62, lambda: f"{v} = items.pop() + 1 if items else {w} * 3"),
            (0.66, lambda: "k += 1"),
            (0.70, lambda: f"{v} = torch.rand(4) + {w}"),
            (0.73, lambda: "box.n += 1"),
            (0.76, lambda: f"box.t = {v}"),
            (0.79, lambda: f"{v} = {w} + box.t"),
            (0.82, lambda: f"{v} = {w} + {w}[{w} > 0].sum()"),
            (0.825, lambda: f"{v}[{w} > 0] = {w}[{w} > 0] * 0.5"),
            (0.83, lambda: f"{v} = {w} * ({v} > 0).sum().item()"),
            (0.85, lambda: f"n += ({v} > {r.choice([-1, 0, 1])}).sum().item() {r.choice(['- k', '* 2', '% 3'])}"),
            (0.86, lambda: r.choice(["words += f'{n},'", "words += str(n * 0.5)", f"{v} = {w} * (n + 1)", f"{v} = {w} + 1 if n > 2 else {w}"])),
        )
        for bound, line in simple:
            if q < bound:
                self.lines.append(indent + line())
                return
        if depth < 3 and q < 0.94:
            self.lines.append(f"{indent}if {v}.{r.choice(['sum', 'max', 'min'])}() > {r.choice([-2, 0, 1, 3])}:")
            self.statements(depth + 1, r.randint(1, 3))
            if r.random() < 0.7:
                self.lines.append(f"{indent}else:")
                self.statements(depth + 1, r.randint(1, 3))
        elif depth < 2:
            condition, j = r.choice([f"{v}.abs().max() > 1", f"{v}.sum() > 2"]), f"j{len(self.lines)}"
            if r.random() < 0.4:
                self.lines.append(f"{indent}for {j} in range({r.choice([f'({w} > 0).sum().item()', 'abs(int(n)) % 4', '3'])}):")
                self.loop(depth)
                self.lines.append(f"{indent}    {r.choice([f'{w} = {w} * 0.5 + {j}', f'n += {j}', f'k = {j}', 'pass'])}")
                return
            self.lines += [f"{indent}{j} = torch.zeros(())", f"{indent}while {condition} and {j} < 4:"]
            if self.contexts:  # before a `continue`
                self.lines.append(f"{indent}    {j} = {j} + 1")
            self.loop(depth)
            if not self.contexts:
                self.lines.append(f"{indent}    {j} = {j} + 1")
        else:
            self.lines.append(f"{indent}{v} = {w} + 1")

    def loop(self, depth: int) -> None:
        """Append the body of a loop."""
        self.loops.append(depth)
        self.statements(depth + 1, self.random.randint(1, 2))
        self.loops.pop()

    def sized(self, v: str, w: str) -> str:
        """Return a statement about `m`, whose length depends on values."""
        r = self.random
        return r.choice(
            (
                f"m = {w}[{w} > {r.choice([-1, 0, 1])}]",
                "m = m[m > 0]",
                "m = m * 2 + m.shape[0]",
                f"m = torch.cat([m[:3], {v}])",
                f"m = m.sin() if m.shape[0] > {r.choice([0, 1, 2, 3])} else m * 3",
                "m = m[:2]",
                f"m = torch.where({w} > 0)[0] * {v}.sum()",
                f"m = torch.nonzero({w}.view(2, -1) > 0).float().sum(1)",
                "items.append(m * 1)",
                "n += m.numel()",
                "n = len(m) - k",
                f"{v} = {v} + m.sum() * 0.1",
                f"{v} = {w} * m.shape[0]",
                f"{v} = {v}.index_add(0, torch.nonzero({w} > 0)[:, 0], {w}[{w} > 0])",
                f"{v}[torch.where({w} > 0)[0]] += 1",
                "words += f'{m.shape[0]},'",
                f"m = {w}[: ({v} > 0).sum().item()]",
                f"m = {w}.repeat(({v} > 0).sum().item())[:5]",
                f"{v} = {v} + {w}[({v} > 0).sum().item() - 1]",
                f"m = torch.arange(int(({v} > 0).sum())) * {w}.sum()",
                f"{v} = {v} + 1 if (m > 1).any() else {v}",
                f"m = {w}[torch.arange(len({w})) != 1] + m.numel()",
                f"{v}[torch.arange(len({v})) % 2 == 0] = {w}[torch.arange(len({w})) % 2 == 1]",
                f"n += torch.tensor([1, 0, {r.randint(0, 2)}]).nonzero().numel()",
                f"{v} = {v} * 2 if torch.equal(torch.arange(3), torch.tensor([0, 1, {r.choice([2, 3])}])) else {v} - 1",
                f"m = {w}.repeat_interleave(torch.arange(len({w})) % {r.randint(1, 3)}) * 0.5",
                "words += f'{len(words)},'",
            )
        )

    def differentiated(self, v: str, w: str) -> list[str]:
        """Return statements about the gradient of `box.w`."""
        r = self.random
        grad = f"torch.autograd.grad({v}.sin().sum(), [box.w], retain_graph={r.choice([True, False])}, allow_unused=True)"
        return r.choice(
            (
                [f"{v} = {w} * box.w"],
                [f"{v} = {w} + box.w"],
                [f"if {v}.requires_grad:", f"    ({v} * {v}).sum().backward(retain_graph={r.choice([True, True, False])})"],
                [f"if {v}.requires_grad:", f"    {w} = {w} + {grad}[0]"],
                ["if box.w.grad is not None and box.w.grad > 1:", "    with torch.no_grad():", "        box.w.sub_(0.01 * box.w.grad)"],
                ["box.w.grad = None"],
            )
        )

    def transformed(self, v: str, w: str) -> list[str]:
        """Return statements that define a function, which reads values around it, and transform it; or call what one has left."""
        r, name = self.random, f"inner{len(self.lines)}"
        if r.random() < 0.3:
            return ["if pull is not None:", f"    {v} = {v} + pull({w})[0] * 0.1"]
        steps = (
            [f"u = u * {w}"],
            [f"u = u + {w} * box.t"],
            [f"u[0] = {w}.sum()"],
            ["u[1:].mul_(2)", "u = u.view(-1, 2).t().reshape(-1)"],
            [f"u.add_({w})"],
            ["with torch.no_grad():", f"    scale = ({w} * u).sum().tanh()", f"u = u * scale + {w}"],
            [f"u = torch.where(u > 0, u, {w}.sin())"],
            ["u = u.softmax(-1)"],
            [f"u = u * {w}.logsumexp(0) + u.amax()"],
            ["u = torch.stack([u, u * 2]).sum(0)"],
            [f"u = u.detach() * {w}"],
        )
        body = [line for step in r.choices(steps, k=r.randint(1, 3)) for line in step]
        pair = f"torch.stack([{v}, {w}])"
        result = r.choice(
            (
                f"torch.func.vmap({name})({pair}).sum(0)",
                f"torch.func.grad(lambda u: {name}(u).sin().sum())({v})",
                f"torch.func.vmap(torch.func.grad(lambda u: {name}(u).sum()))({pair}).sum(0)",
                f"torch.func.jvp({name}, ({v},), ({w},))[1]",
                f"torch.func.vjp({name}, {v})[1]({w})[0]",
                f"torch.func.jacrev({name})({v}).sum(0)",
                f"torch.func.jacfwd({name})({v}).sum(0)",
            )
        )
        used = [f"{v}, pull = torch.func.vjp({name}, {v})"] if r.random() < 0.4 else [f"{v} = {result} * 0.1 + {v}"]
        return [f"def {name}(u):", "    u = u * 1", *["    " + line for line in body], "    return u", *used]


def program(seed: int, sizes: bool = False, backward: bool = False, contexts: bool = False, transforms: bool = False) -> tuple[Callable, str]:
    """Return the function of a seed, and its source."""
    writer = Writer(seed, sizes, backward, contexts, transforms)
    writer.statements(0, writer.random.randint(4, 9))
    writer.lines.append(f"    return a, b, c, items, k, n, words{', m' * sizes}")
    writer.lines = [
        line.replace("torch.rand(4)", "torch.rand(x.shape[0])").replace("torch.ones(4)", "torch.ones(x.shape[0])") for line in writer.lines
    ]
    source, name, namespace = "\n".join(writer.lines), f"<random program {seed}>", {"torch": torch}
    namespace |= {"entered": entered, "Entered": Entered}
    linecache.cache[name] = (len(source), None, [line + "\n" for line in writer.lines], name)
    exec(compile(source, name, "exec"), namespace)
    return namespace["f"], source


def observed(fn: Callable, seed: int, grad: bool, length: int) -> tuple[list[Any], list[Any]]:
    """Return what a call leaves behind: results, arguments, the generator's state, gradients; and which tensors share memory."""
    generator = torch.Generator().manual_seed(seed)
    leaves = [(torch.randn(length, generator=generator) * scale).requires_grad_(grad) for scale in (2, 1, 1)]
    x, y, t = [leaf * 1 if grad else leaf for leaf in leaves]
    box = Box(t)
    torch.manual_seed(seed)
    result = fn(x, y, box)
    tensors = list(flat((result, x, y, box.t)))
    seen = [*tensors, box.n, box.w, box.w.grad, torch.get_rng_state().sum(), *settings()]
    pointers = [p.untyped_storage().data_ptr() for p in tensors if isinstance(p, torch.Tensor)]
    shared = [[p == q for q in pointers] for p in pointers]
    if grad:
        differentiable = [p for p in tensors if isinstance(p, torch.Tensor) and p.requires_grad]
        seen.append(len(differentiable))
        try:
            sum((p * (i + 1)).sum() for i, p in enumerate(differentiable)).backward()
            seen += [leaf.grad for leaf in leaves]
        except RuntimeError as error:
            seen.append(error)
    return seen, shared


def settings() -> list[Any]:
    """Return settings of torch that a context sets."""
    depth = torch.autocast_increment_nesting() - 1
    torch.autocast_decrement_nesting()
    modes = [torch.is_autocast_enabled("cpu"), depth, torch.is_grad_enabled(), torch._C._len_torch_function_stack()]
    return [*modes, torch.backends.cuda.flash_sdp_enabled(), torch.backends.cudnn.enabled]


def flat(tree: Any) -> Iterator[Any]:
    """List the leaves of nested lists and tuples."""
    if isinstance(tree, (list, tuple)):
        for item in tree:
            yield from flat(item)
    else:
        yield tree


def same(a: Any, b: Any) -> bool:
    """Return whether two values are equal, up to rounding."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return a.shape == b.shape and a.requires_grad == b.requires_grad and torch.allclose(a, b, 1e-3, 1e-4, equal_nan=True)
    return type(a) is type(b) and a == b


def same_or_zero(a: Any, b: Any) -> bool:
    """Return whether two values are the same, where a gradient of zero may be absent: a transform tells less often that nothing flows."""
    absent = [isinstance(x, torch.Tensor) and not x.any() for x, other in ((a, b), (b, a)) if other is None]
    return any(absent) or same(a, b)


def difference(
    seed: int, grad: bool, sizes: bool = False, shapes: bool = False, backward: bool = False, contexts: bool = False, transforms: bool = False
) -> str | None:
    """Return how a program differs from eager mode, None where it does not; with `shapes`, its arguments have another length at each call."""
    fn, source = program(seed, sizes, backward, contexts, transforms)
    compiled = dovetail.jit(fn, decisions="graph", executors=["torch"] if seed % 4 else None)
    for number in INPUTS:
        length = 4 + 2 * (number % 3) * shapes
        try:
            expected, shared = observed(fn, number, grad, length)
        except RuntimeError as error:
            if backward or transforms:  # of what eager mode has overwritten there is no gradient, and vmap refuses some writes
                continue
            if not raises(compiled, number, grad, length, type(error)):
                return f"program {seed}, input {number} does not raise {error!r}:\n{source}"
            continue
        if any(isinstance(x, torch.Tensor) and x.isnan().any() for x in expected):
            continue
        with warnings.catch_warnings():
            warnings.filterwarnings("error", ".*(report it as a bug|does not do the same twice)")
            got, got_shared = observed(compiled, number, grad, length)
        if isinstance(expected[-1], RuntimeError):  # eager refuses a gradient that functionalization makes possible
            expected, got = expected[:-1], got[: len(expected) - 1]
        if len(expected) != len(got) or not all(map(same_or_zero if transforms else same, expected, got)):
            return f"program {seed}, input {number}:\n{source}\nexpected {expected}\ngot {got}"
        if shared != got_shared:
            return f"program {seed}, input {number}: other tensors share memory\n{source}"
    return None


def raises(fn: Callable, seed: int, grad: bool, length: int, kind: type[Exception]) -> bool:
    """Return whether a call raises an error of a kind."""
    try:
        observed(fn, seed, grad, length)
    except kind:
        return True
    return False


if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", ".*it needs more than")
    first, count = int(sys.argv[1]), int(sys.argv[2])
    kinds = [kind in sys.argv for kind in ("grad", "sizes", "shapes", "backward", "contexts", "transforms")]
    differences = [text for seed in range(first, first + count) if (text := difference(seed, *kinds)) is not None]
    print(*differences[:3], f"{len(differences)} of {count} programs differ", sep="\n\n")

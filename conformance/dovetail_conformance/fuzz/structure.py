"""Families of steps that move elements: views, writes through them, gathers, scatters, joins.  Importing it registers them."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from dovetail_conformance.fuzz.draft import Step
from dovetail_conformance.fuzz.drawing import Drawing, Impossible, Value
from dovetail_conformance.fuzz.operations import family, step
from dovetail_conformance.layout import overlaps


def factored(d: Drawing, value: Value) -> tuple[int, ...]:
    """Return another shape of as many elements: dimensions are merged and split."""
    sizes = list(value.shape)
    for _ in range(d.rng.randint(1, 3)):
        if len(sizes) > 1 and d.maybe(0.5):
            at = d.rng.randrange(len(sizes) - 1)
            sizes[at : at + 2] = [sizes[at] * sizes[at + 1]]
        elif sizes and len(sizes) < 5:
            at = d.rng.randrange(len(sizes))
            factors = [n for n in (2, 3, 4, 7, 8, 16) if sizes[at] and sizes[at] % n == 0]
            if factors:
                n = d.choice(factors)
                sizes[at : at + 1] = [n, sizes[at] // n] if d.maybe(0.5) else [sizes[at] // n, n]
    return tuple(sizes)


def part(d: Drawing, value: Value) -> str:
    """Return an index that takes a part of a value, as `[1:, ..., ::2]`."""
    if not value.dim:
        return "[...]"
    words, ellipsis = [], d.maybe(0.3)
    for size in value.shape:
        kinds = [":"] * 3 + ([f"{size // 3}:", f":{max(1, size - 1)}", "1:", "::2", "1::2", ":-1", f":{max(1, size // 2)}"] if size > 1 else [])
        kinds += [str(d.rng.randrange(size)), "-1"] if size and d.maybe(0.3) else []
        words.append(d.choice(kinds))
    if ellipsis and words[0] == ":" and len(words) > 1:
        words = ["...", *words[1:]]
    elif all(word == ":" for word in words[1:]) and len(words) > 1 and d.maybe(0.7):
        words = words[:1]
    return f"[{', '.join(words)}]"


def viewed(d: Drawing, value: Value) -> str:
    """Return the text of a view of a value, or of a copy that is one where strides allow it."""
    dims = value.dim
    kinds = ["reshape", "part", "part", "unsqueeze", "flatten"]
    kinds += ["permute", "transpose", "narrow", "chunk", "expand", "select"] if dims and min(value.shape) > 0 else []
    kinds += ["unbind"] if dims and 0 < min(value.shape) <= max(value.shape) <= 16 else []
    kinds += ["transpose", "transpose", "diagonal"] if dims > 1 else []
    kind = d.choice(kinds)
    dim = d.rng.randrange(dims) if dims else 0
    size = value.shape[dim] if dims else 1
    start = d.rng.randrange(max(1, size))
    order = d.rng.sample(range(dims), dims)
    return {
        "reshape": f"{{0}}.reshape({', '.join(map(str, factored(d, value)))})" if dims else "{0}.reshape(1)",
        "part": f"{{0}}{part(d, value)}",
        "unsqueeze": f"{{0}}.unsqueeze({d.rng.randint(0, dims)})",
        "flatten": "{0}.flatten()",
        "permute": f"{{0}}.permute({', '.join(map(str, order))})",
        "transpose": f"{{0}}.transpose({dim}, {order[0] if order else 0})",
        "narrow": f"{{0}}.narrow({dim}, {start}, {max(1, (size - start) // 2)})",
        "chunk": f"{{0}}.chunk(2, {dim})[0]",
        "expand": f"{{0}}.unsqueeze({dim}).expand({', '.join(map(str, (*value.shape[:dim], d.choice((2, 3)), *value.shape[dim:])))})",
        "select": f"{{0}}.select({dim}, {start})",
        "unbind": f"{{0}}.unbind({dim})[{d.choice((0, -1))}]",
        "diagonal": "{0}.diagonal()",
    }[kind]


@family
def view(d: Drawing) -> Step:
    """Draw a view."""
    value = d.pick(lambda value: True)
    return step(d, viewed(d, value), value, exact=True)


@family
def move(d: Drawing) -> Step:
    """Draw a copy with elements in other places."""
    value = d.pick(lambda value: value.dim > 0)
    dim = d.rng.randrange(value.dim)
    texts = [f"{{0}}.flip({dim})", f"torch.roll({{0}}, 1, {dim})", "{0}.clone()", "{0}.contiguous()", f"{{0}}.repeat_interleave(2, {dim})", "{0} * 1"]
    texts += [f"{{0}}.repeat({', '.join(['2'] + ['1'] * (value.dim - 1))})", f"torch.diff({{0}}, dim={dim})" if value.real else "{0}.clone()"]
    texts += ["torch.tril({0})", "torch.triu({0}, 1)"] if value.dim > 1 else []
    texts += ["F.pad({0}, (1, 2))", "F.pad({0}, (0, -1))"] if value.tensor.dtype.is_floating_point else []
    text = d.choice(texts)
    return step(d, text, value, exact="diff" not in text)


@family
def write(d: Drawing) -> Step:
    """Draw a write to a value or through a view of it."""
    value = d.pick(lambda value: value.real)
    if not value.tensor.numel():
        raise Impossible
    where = viewed(d, value) if d.maybe(0.5) else f"{{0}}{part(d, value)}" if d.maybe(0.6) else "{0}"
    target = eval(where.format("x"), {"x": value.tensor})
    if overlaps(target):
        raise Impossible
    if d.maybe(0.3) and "reshape" not in where and "flatten" not in where:
        text = d.choice(("mul_(0.5)", "add_(1)", "zero_()", "fill_(0.25)", "sigmoid_()", "neg_()", "tanh_()"))
        return step(d, f"{where}.{text}", value, exact=text in ("zero_()", "fill_(0.25)", "neg_()"), writes=True)
    other = d.other(Value("", target))
    if other.tensor.numel() > target.numel() or (other.shape != value.shape and not _fits(other.shape, tuple(target.shape))):
        raise Impossible
    if other.tensor.untyped_storage().data_ptr() == target.untyped_storage().data_ptr():  # eager reads there what it has written, or has not
        raise Impossible
    if where.endswith("]") and d.maybe(0.5):
        return replace(step(d, f"{where} = {{1}}", value, other, exact=True, writes=True), result=value.name)
    text = d.choice(("mul_({1})", "add_({1})", "copy_({1})", "sub_({1}, alpha=0.5)", "add_({1})"))
    return step(d, f"{where}.{text}", value, other, exact=text.startswith("copy"), writes=True)


def _fits(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    return len(shape) <= len(target) and all(a in (1, b) for a, b in zip(shape[::-1], target[::-1]))


@family
def gather(d: Drawing) -> Step:
    """Draw a lookup: of computed values, by indices that other lookups may use, too."""
    value = d.pick(lambda value: value.dim > 0 and min(value.shape) > 0)
    dim = 0 if d.maybe(0.6) else d.rng.randrange(value.dim)
    size = value.shape[dim]
    if d.maybe(0.25):
        wanted = list(value.shape)
        wanted[dim] = d.choice((1, 2, size))
        return step(d, f"{{0}}.gather({dim}, {{1}}.long())", value, d.index(size, wanted), exact=True)
    index = d.index(size)
    if value.dim == 2 and value.real and dim == 0 and d.maybe(0.2):
        return step(d, "F.embedding({1}.long(), {0})", value, index, exact=True)
    if len(index.shape) == 1 and d.maybe(0.25):
        return step(d, f"{{0}}.index_select({dim}, {{1}})", value, index, exact=True)
    return step(d, f"{{0}}[{':, ' * dim}{{1}}]", value, index, exact=True)


@family
def scatter(d: Drawing) -> Step:
    """Draw elements put or added at indices."""
    value = d.pick(lambda value: value.real and value.dim > 0 and min(value.shape) > 0)
    dtype = str(value.tensor.dtype).removeprefix("torch.")
    rows = value.shape[0]
    kind = d.choice(("index_add", "scatter_add", "index_put", "index_copy", "new", "scatter", "scatter_value"))
    if kind in ("index_add", "index_put", "new"):
        index = d.index(rows)
        shape = (*index.shape, *value.shape[1:])
        source = d.other(Value("", value.tensor.new_empty(()).expand(shape)))
        if source.shape != shape:
            source = d.new_input(shape, dtype)
        if kind == "index_add" and index.dim == 1:
            return step(d, "{0}.index_add(0, {1}, {2})", value, index, source, accumulates=True)
        base = "torch.zeros_like({0})" if kind == "new" else "{0}"
        return step(d, base + ".index_put(({1},), {2}, accumulate=True)", value, index, source, accumulates=True)
    if kind == "scatter_add":
        index = d.index(rows, value.shape)
        return step(d, "{0}.scatter_add(0, {1}.long(), {2})", value, index, d.new_input(value.shape, dtype), accumulates=True)
    few = max(1, rows // 2)
    index = d.new_input((few,), "int64", f"permutation {rows}", "contiguous")
    if kind == "scatter_value":
        return step(d, "{0}.index_fill(0, {1}, 0.5)", value, index, exact=True)
    source = d.new_input((few, *value.shape[1:]), dtype)
    text = "{0}.index_copy(0, {1}, {2})" if kind == "index_copy" else "{0}.index_put(({1},), {2})"
    return step(d, text, value, index, source, exact=True)


@family
def join(d: Drawing) -> Step:
    """Draw several values as one."""
    value = d.pick(lambda value: True)
    same = [new for new in d.values if new.shape == value.shape and new.tensor.dtype == value.tensor.dtype]
    other = d.choice(same) if len(same) > 1 and d.maybe(0.8) else d.other(value, lambda new: new in same)
    if other.shape != value.shape:
        raise Impossible
    dim = d.rng.randint(-value.dim, value.dim - 1) if value.dim else 0
    text = d.choice((f"torch.cat([{{0}}, {{1}}], {dim})", f"torch.stack([{{0}}, {{1}}], {dim})", f"torch.cat([{{0}}, {{1}}, {{0}}], {dim})"))
    return step(d, text if value.dim else "torch.stack([{0}, {1}])", value, other, exact=True)


@family
def constant(d: Drawing) -> Step:
    """Draw a value with a tensor that the program creates."""
    value = d.pick(lambda value: value.real and value.dim > 0)
    size = value.shape[-1]
    texts = [
        f"{{0}} + torch.arange({size}) * {1 / max(1, size):.3g}",
        "{0} * torch.ones_like({0})",
        f"{{0}} - torch.full(({size},), 0.5)",
        "torch.zeros_like({0}) + {0}",
    ]
    return step(d, d.choice(texts), value)


@family
def window(d: Drawing) -> Step:
    """Draw neighbours of elements: pooling, and a convolution."""
    value = d.pick(lambda value: value.real and value.dim in (3, 4) and value.tensor.numel() <= 300_000 and min(value.shape[2:]) > 2)
    n = value.dim - 2
    channels = value.shape[1]
    if d.maybe(0.4) and prod(value.shape[2:]) <= 4096 and channels <= 64:
        weight = d.new_input((d.choice((1, 4)), channels, *([3] * n)), str(value.tensor.dtype).removeprefix("torch."))
        return step(d, f"F.conv{n}d({{0}}, {{1}}, padding=1) * {(max(1, channels) * 9) ** -0.5:.3g}", value, weight, accumulates=True)
    return step(d, f"F.avg_pool{n}d({{0}}, 2)", value, accumulates=True)

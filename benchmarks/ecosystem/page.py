"""The page on other libraries, from what `make ecosystem` kept; `make docs` writes it."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

RESULT = Path(__file__).parents[1] / "results" / "ecosystem.json"
COLUMNS = ("right", "eager", "refused", "wrong", "crashed", "stopped")
INTRODUCTION = """Models and functions of other libraries, unchanged, compiled with `dovetail.jit` and run beside eager mode from the same seeds:
outputs, gradients of all parameters and buffers, in four calls. `make ecosystem` runs this table again, in an environment of its own
with the versions below; `make ecosystem ONLY="timm .* train"` tries a part of it. For your own model, `dovetail.verify(model, *args)`
compares line by line, and `dovetail.explain` says what runs where. `pytest --dovetail` runs
[your own tests compiled](conformance.md#your-own-tests-compiled).

A case is *right* where everything agrees (to 1e-4 of the largest value, 1e-2 under bf16, or eight times eager's own distance from
float64; where rounding decides on which side of a jump a value lies, as that of a ReLU's gradient, the case has to agree in float64,
and in float32 with other weights and inputs, where what is zero but for rounding may differ as rounding does, or be as near to eager mode
as that is with its weights moved in their last place, each result from one of three seeds, or agree by PyTorch's kernels alone where eager
mode does not run in float64; a model that asks `torch.compiler.is_compiling()` is compared with what it computes where that is true),
*eager* where it agrees and a part of it ran without
being compiled, *refused* where an error names the line and a way out. A loop of training (mode *fit*) builds and compiles its model
anew, so only its first call is timed. Models are the smallest of their family, with random weights.

Times are those of the processor, with one thread. A first call is that of a new user: in a process of its own that has run nothing before,
without kernels on disk; what it computes is a part of it. One above 5 s is timed twice more, with nothing beside it, and the quickest
counts, since machines are shared. The first, second, third and fifth call of a program run beside the reference, as
do ever fewer later ones, and the fourth generates code for calls that do not; a *settled* call is the quickest one from the
sixth on, of nine calls, or of sixteen where they take less than 0.05 s, since programs that depend on values settle later. Eager mode's calls
take turns with them, and count by the quickest one as well. Where that was not timed in all cases, the table says in how many."""
SLOW = 5.0  # seconds of a first call that is listed
HELD_BACK = """Models, options and training scripts that were written down before anybody tried them, to see how likely the next one is to work:
other variants of timm, heads, labels and options of transformers, ordinary training scripts, networks, losses and solvers of
libraries that are not in the table above. Their batches change in size and content from call to call. *At first* counts what was
right before anything was mended for them. What `benchmarks/ecosystem/held_back` lists beyond these cases was not run yet."""
MARK = ", held back"


def text() -> str:
    """Return the page."""
    kept = json.loads(RESULT.read_text())
    every = [each for each in kept["outcomes"] if each["verdict"] != "unusable"]
    outcomes = [each for each in every if not each["name"].endswith(MARK)]
    held_back = [each | {"name": each["name"].removesuffix(MARK)} for each in every if each["name"].endswith(MARK)]
    about = kept["about"]
    lines = ["# Does my model work?", "", INTRODUCTION, "", f"Python {about['python']}, torch {about['torch']}; {runs(every, about['date'])}.", ""]
    lines += [*table(outcomes, about), "", *faults(outcomes), *explained(outcomes), *slow(every), "## What was right", "", *rights(outcomes)]
    if held_back:
        lines += ["## Held back", "", HELD_BACK, "", *table(held_back, about, held_back=True), "", *faults(held_back, "### What was not, of these")]
        lines += [*explained(held_back, "### What differs and is right, of these"), "### What was right, of these", "", *rights(held_back)]
    return "\n".join(lines).rstrip() + "\n"


def runs(outcomes: list[dict], otherwise: str) -> str:
    """Return when how many cases were tried, and the commit and the processor where these are kept: a part can be renewed."""
    counts = Counter((each.get("date", otherwise), each.get("commit", ""), each.get("processor", "")) for each in outcomes)
    where = {key: (f" at `{key[1]}`" if key[1] else "") + (f" on {key[2]}" if key[2] else "") for key in counts}
    return ", ".join(f"{count} cases on {key[0]}{where[key]}" for key, count in sorted(counts.items()))


def table(outcomes: list[dict], about: dict, held_back: bool = False) -> Iterator[str]:
    """Yield the counts of each library; of what was held back those at first, and no settled calls: each has a batch of another size."""
    before, after = (["at first"], []) if held_back else ([], ["median settled call beside eager"])
    columns = ["library", "version", "cases", *before, *COLUMNS, "first call", *after]
    yield f"| {' | '.join(columns)} |"
    yield "|---|---|" + "---:|" * (len(columns) - 2)
    for library in sorted({each["library"] for each in outcomes}):
        yield row(library, about.get(library, ""), [each for each in outcomes if each["library"] == library], held_back)
    yield row("all", "", outcomes, held_back)


def rights(outcomes: list[dict]) -> Iterator[str]:
    """Yield the names of what was right, by library."""
    for library in sorted({each["library"] for each in outcomes}):
        right = dict.fromkeys(each["name"] for each in outcomes if each["library"] == library and each["verdict"] == "right")
        yield from (f"**{library}**: {', '.join(right)}.", "")


def row(library: str, version: str, outcomes: list[dict], held_back: bool) -> str:
    """Return the counts and times of some outcomes."""
    counts = Counter(each["verdict"] for each in outcomes)
    timed = [each for each in outcomes if each["first"] is not None]
    first = f"{statistics.median(each['first'] for each in timed):.2f} s" if timed else ""
    ratios = [each["settled"] / max(each["eager"], 1e-9) for each in timed if each.get("settled") is not None]
    settled = f"{statistics.median(ratios):.2f}" if ratios else ""
    settled += f" of {len(ratios)}" if 0 < len(ratios) < sum(each["mode"] != "fit" for each in timed) else ""
    at_first = str(sum(each.get("at_first") == "right" for each in outcomes))
    before, after = ([at_first], []) if held_back else ([], [settled])
    cells = [library, version, str(len(outcomes)), *before, *(str(counts[column]) for column in COLUMNS), first, *after]
    return f"| {' | '.join(cells)} |"


def explained(outcomes: list[dict], title: str = "## What differs and is right") -> Iterator[str]:
    """Yield a table of what differs from eager mode and is right all the same, with the reasons."""
    if rows := [each for each in outcomes if each["verdict"] == "right" and each["reason"]]:
        yield from (title, "", "| library | case | mode | reason |", "|---|---|---|---|")
        yield from (f"| {each['library']} | {each['name']} | {each['mode']} | {each['reason']} |" for each in rows)
        yield ""


def slow(outcomes: list[dict]) -> Iterator[str]:
    """Yield a table of the longest first calls, beside a call in eager mode."""
    rows = sorted([each for each in outcomes if (each["first"] or 0.0) > SLOW], key=lambda each: -each["first"])
    if not rows:
        return
    yield from (
        f"## First calls above {SLOW:g} s",
        "",
        "| library | case | mode | first call | settled call | eager call | processor |",
        "|---|---|---|---:|---:|---:|---|",
    )
    for each in rows:
        settled, eager = (f"{each[name]:.2f} s" if each.get(name) is not None else "" for name in ("settled", "eager"))
        yield f"| {each['library']} | {each['name']} | {each['mode']} | {each['first']:.1f} s | {settled} | {eager} | {each.get('processor', '')} |"
    yield ""


def faults(outcomes: list[dict], title: str = "## What was not") -> Iterator[str]:
    """Yield a table of what was not right, with the reasons."""
    rows = [each for each in outcomes if each["verdict"] != "right"]
    if not rows:
        return
    yield from (title, "", "| library | case | mode | verdict | reason |", "|---|---|---|---|---|")
    for each in rows:
        reason = each["reason"].replace("|", "\\|").replace("<", "&lt;")
        yield f"| {each['library']} | {each['name']} | {each['mode']} | {each['verdict']} | {reason} |"
    yield ""

"""Makes what repeats the code or results: docs/{options,api,ecosystem}.md, the summary and figures in README.md, the lanes in CONTRIBUTING.md.

`make docs` runs it, and a test says when it is due.

python docs/build.py [--check]
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import dovetail
from dovetail import extend, options, prims
from dovetail.prims import Symbol

HERE = Path(__file__).parent
README, RESULTS = HERE.parent / "README.md", HERE.parent / "benchmarks" / "results"
SUMMARY = ("<!-- summary: made by docs/build.py from benchmarks/results -->", "<!-- end of summary -->")
FIGURES = ("<!-- figures: made by docs/build.py from benchmarks/results -->", "<!-- end of figures -->")
CONTRIBUTING = HERE.parent / "CONTRIBUTING.md"
LANES = ("<!-- lanes: made by docs/build.py from release/results -->", "<!-- end of lanes -->")
SHOWN = (  # of benchmarks/workloads.py
    *("add-4", "chain-256", "chain-2048", "gelu-norm-softmax", "softmax", "layer-norm", "layer-norm-train", "cross-entropy-train", "mlp-1"),
    *("gpt", "gpt-bf16", "gpt-train", "gpt-train-bf16", "llama", "llama-bf16", "llama-train", "llama-train-bf16", "bert", "bert-bf16"),
    *("resnet", "resnet-train", "vit", "vit-train", "adamw"),
)
NOTE = "<!-- made by docs/build.py: change the code or that file, then run `make docs` -->"

VALUES = {  # what those values mean that have no docstring
    "OPERATORS": "What `+`, `*` and their like mean in passes and grad rules.",
    "recorder": "The context variable of the recorder: a trace, or `no_recorder`.",
    "SYMBOLS": "Every registered symbol by its id.",
    "NO_REASON": "The refusal that a bare False or None of a checker stands for.",
    "TOLERANCE": "The relative and the absolute tolerance of results, by torch dtype, as `torch.testing` has them.",
    "Verdict": "What a checker returns: True, or a refusal, a sentence saying why not.",
}


def public(module: ModuleType) -> list[str]:
    """Return the public names of `module`: its __all__, else its explicit re-exports (`from x import a as a`)."""
    if hasattr(module, "__all__"):
        return sorted(module.__all__, key=str.lower)
    return sorted(set(re.findall(r"^from \S+ import (\w+) as \1$", inspect.getsource(module), re.MULTILINE)), key=str.lower)


def api() -> str:
    """Format every public name with its signature and the first sentence of its docstring."""
    rows = ["# The public API", "", NOTE, "", "Whatever is not on this page may change without notice.", ""]
    rows += ["## `dovetail`", "", "For everyone.", "", *table((name, getattr(dovetail, name)) for name in public(dovetail))]
    rows += ["## `dovetail.extend`", "", "For authors of executors, operations and grad rules.", ""]
    rows += table((name, getattr(extend, name)) for name in public(extend))
    rows += ["## `dovetail.extend.advanced`", "", "For code generators, passes and test tools. Less stable: a minor version may change it.", ""]
    rows += table((name, getattr(extend.advanced, name)) for name in public(extend.advanced))
    rows += [
        "## `dovetail.prims`",
        "",
        "The operations that every program comes down to. They are strict: no broadcasting, no promotion, no casts.",
        "",
    ]
    named = {name: getattr(prims, name) for name in public(prims)}
    other = {name: value for name, value in named.items() if not isinstance(value, Symbol)}
    rows += table(other.items())
    families = sorted({family(value) for name, value in named.items() if name not in other})
    for each in families:
        rows += [f"### `{each}`", "", first_line(sys.modules[f"dovetail.prims.{each}"]), ""]
        rows += table((name, value) for name, value in named.items() if name not in other and family(value) == each)
    return "\n".join(rows)


def family(symbol: Symbol) -> str:
    """Return the file that defines a prim."""
    return symbol.meta.__module__.rpartition(".")[2]


def table(named: Iterable[tuple[str, Any]]) -> list[str]:
    rows = [f"| `{name}{signature(value)}` | {VALUES.get(name) or first_line(value)} |" for name, value in named]
    return ["| name | meaning |", "|---|---|", *rows, ""] if rows else []


def signature(value: Any) -> str:
    """Return the signature of `value` without annotations; empty where it has none."""
    fn: Callable = value.meta if isinstance(value, Symbol) else value
    if not inspect.isroutine(fn):
        return ""
    plain = [p.replace(annotation=p.empty) for p in inspect.signature(fn).parameters.values()]
    return str(inspect.Signature(plain)).replace("|", "\\|")


def first_line(value: Any) -> str:
    """Return the first paragraph of the docstring, on one line."""
    doc = value.doc if isinstance(value, Symbol) else inspect.getdoc(value) or ""
    return doc.strip().partition("\n\n")[0].replace("\n", " ").replace("|", "\\|")


def summary() -> str:
    """Format the geometric means of the last `make bench`, and the range of first calls."""
    kept = json.loads((RESULTS / "comparison.json").read_text())
    against = {beside["other"]: beside for beside in kept["summary"] if beside["subject"] == "dovetail"}
    eager, peer = against["eager"], against["torch.compile"]
    ours, theirs = ([row["first"] for row in kept["rows"] if row["subject"] == name and "first" in row] for name in ("dovetail", "torch.compile"))
    spans = f"{min(ours):.1f} to {max(ours):.1f} s instead of {min(theirs):.0f} to {max(theirs):.0f} s"
    where = f"On the {eager['rows']} workloads of our benchmark, on {kept['about']['cores']} CPU cores (geometric means, [all figures](#figures)):"
    warm = f"- **{eager['warm']:.1f}x** the speed of eager PyTorch once compiled, and {peer['warm']:.1f}x that of `torch.compile`;"
    return "\n".join([where, "", warm, f"- **{peer['first']:.2g}x** shorter first calls than `torch.compile`: {spans}."])


def figures() -> str:
    """Format the last results of `make bench` as one table."""
    kept = json.loads((RESULTS / "comparison.json").read_text())
    rows = {(row["workload"], row["subject"]): row for row in kept["rows"]}
    subjects = [name for name in kept["subjects"] if name not in kept["absent"]]
    headings = ["", *subjects, *(f"{name}, first call" for name in subjects[1:])]
    lines = [f"| {' | '.join(headings)} |", "|---|" + "---:|" * (len(headings) - 1)]
    for name in SHOWN:
        found = [rows.get((name, subject), {}) for subject in subjects]
        lines.append(f"| {' | '.join([kept['titles'][name], *map(warm, found), *map(first, found[1:])])} |")
    about, executors = kept["about"], ", ".join(f"`{name}`" for name in kept["about"]["executors"])
    where = f"{about['cores']} cores of an {about['cpu']}, torch {about['torch']}, commit {about['commit']}, {about['date']}"
    message = f"Medians on {where}; in parentheses the speed relative to eager in the same run. Dovetail's executors are {executors}."
    return "\n".join([*lines, "", message, "", *map(overall, kept["summary"])])


def overall(beside: dict) -> str:
    """Format geometric means over all rows, and the rows in which Dovetail is slower."""
    slower = ", ".join(f"`{name}`" for name in beside["slower"]) or "none"
    ratio = beside["first"]
    first_calls = f"first calls {ratio:.2g} times shorter" if ratio >= 1 else f"first calls {1 / ratio:.2g} times longer"
    means = f"{beside['warm']:.2f} times as fast once compiled, {first_calls}"
    return f"- Compared with {beside['other']}, geometric means over all {beside['rows']} rows: {means}; slower in {slower}."


def warm(row: dict) -> str:
    """Format a row's time and its speed relative to eager; its state where it was not timed."""
    if "median" not in row:
        return row.get("state", "-")
    speed = "" if row["subject"] == "eager" or "speed" not in row else f" ({row['speed']:.2f}x)"
    return span(row["median"]) + speed


def first(row: dict) -> str:
    return span(row["first"]) if "first" in row else "-"


def span(seconds: float) -> str:
    """Format a duration with two or three digits."""
    unit, size = next(((unit, size) for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)) if seconds >= size), ("ns", 1e-9))
    return f"{seconds / size:.3g} {unit}"


def between(page: str, marks: tuple[str, str], text: str) -> str:
    """Return the page with this text between its two marks."""
    before, begin, rest = page.partition(marks[0])
    _, end, after = rest.partition(marks[1])
    return f"{before}{begin}\n{text}\n{end}{after}"


def module_at(path: Path) -> ModuleType:
    """Import a module that is in no package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look it up
    spec.loader.exec_module(module)
    return module


def lanes() -> str:
    """Return what `make lane` kept, as a table."""
    return module_at(HERE.parent / "release" / "lane_results.py").table()


def ecosystem() -> str:
    """Return the page on other libraries, from what `make ecosystem` kept."""
    return module_at(HERE.parent / "benchmarks" / "ecosystem" / "page.py").text()


def pages() -> dict[Path, str]:
    """Return each generated page and its text."""
    head = [
        "# Options",
        "",
        NOTE,
        "",
        "[Configuration](configuration.md) says where each of them can be set. An invalid value is an error.",
        "",
        "",
    ]
    made = {HERE / "options.md": "\n".join(head) + options.table(), HERE / "api.md": api(), HERE / "ecosystem.md": ecosystem()}
    readme = between(between(README.read_text(), SUMMARY, summary()), FIGURES, figures())
    return made | {README: readme, CONTRIBUTING: between(CONTRIBUTING.read_text(), LANES, lanes())}


def main() -> int:
    late = [page.name for page, text in pages().items() if not page.exists() or page.read_text() != text]
    if "--check" in sys.argv[1:]:
        print(*(f"{name} is not what the code says; run `make docs`" for name in late), sep="\n")
        return bool(late)
    for page, text in pages().items():
        page.write_text(text)
    print("made:", ", ".join(late) or "nothing new")
    return 0


if __name__ == "__main__":
    sys.exit(main())

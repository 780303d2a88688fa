"""Public functions say in the imperative what they do, and names are nouns for what they hold."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from dovetail_conformance.checks import CHECKS

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.xdist_group("plain English")  # one process parses all the code
PACKAGES = [
    *(ROOT / name for name in ("core", "benchmarks", "release", "examples")),
    ROOT / "conformance" / "dovetail_conformance",
    *sorted(ROOT.glob("plugins/*/dovetail_*")),
]

OPENERS = set(  # first words of sentences that say what a function is
    re.findall(
        r"\w+",
        """A All An As Both Each Either Every False For How If It Its None Of One Other Our Several Some Something That The There These They This
        Those True Two What Whatever When Where Whether Which While Who Whoever Whose Why With Without""",
    )
)
MEANINGS = {  # decorators of functions whose docstrings say what an operation, a program, a fault or a check means
    *("torchsymbol", "torchquery", "factory", "prim", "numpysymbol", "numpyquery", "broken", "example", "property", "cached_property", "overload"),
}
RULES = ("vjp", "put", "python", "setter")
CHECKED = {check.run.__name__ for check in CHECKS}  # their docstrings are what reports say of a check
RIDDLES = frozenset(["asked", "found", "given", "knows", "lives", "made", "nobody", "said", "speaks", "wants", "whose"])
ALLOWED = frozenset(["made_by", "not_found", "found_inf"])  # the field of a trace with the name of its pass; names of CPython and of torch


@cache
def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def public_functions(tree: ast.AST) -> Iterator[ast.FunctionDef]:
    """Yield the public functions and methods of a module."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
            if isinstance(node, ast.FunctionDef):
                yield node
            else:
                yield from public_functions(node)


def is_meaning(function: ast.FunctionDef) -> bool:
    """Return whether a docstring is the meaning of something rather than what a call does."""
    names = [ast.unparse(d.func if isinstance(d, ast.Call) else d).split(".") for d in function.decorator_list]
    return function.name in CHECKED or any(name[-1] in MEANINGS or name[-1] in RULES for name in names)


@cache
def openers(package: Path) -> dict[str, str]:
    """Return the first word of each public docstring, by file, line and function; an equation has none."""
    words = {}
    for file in sorted(package.rglob("*.py")):
        for function in public_functions(parsed(file)):
            word = re.match(r"[A-Z][a-z]*\b", ast.get_docstring(function) or "")
            if word is not None and not is_meaning(function):
                words[f"{file.relative_to(ROOT)}:{function.lineno} {function.name}"] = word.group()
    return words


def names_bound(tree: ast.AST) -> Iterator[str]:
    """Yield the names that a module binds: of variables, attributes, parameters, functions and classes."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


@pytest.fixture(scope="session")
def imperatives() -> set[str]:
    return {word for package in PACKAGES for word in openers(package).values()} - OPENERS


def is_riddle(name: str) -> bool:
    """Return whether a word of a name says that something was done, and not what it holds."""
    name = name.lower().strip("_")
    return name not in ALLOWED and not RIDDLES.isdisjoint(name.split("_"))


def in_third_person(word: str, imperatives: set[str]) -> bool:
    return word.endswith("s") and not imperatives.isdisjoint((word[:-1], word[:-2]))


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_public_docstrings_start_with_an_imperative(package: Path, imperatives: set[str]):
    wrong = [f"{place}: {word}" for place, word in openers(package).items() if word in OPENERS or in_third_person(word, imperatives)]

    assert not wrong, "start with an imperative verb: `Return ...`, `Check that ...`"


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_names_are_nouns_for_what_they_hold(package: Path):
    wrong = {f"{file.relative_to(ROOT)}: {name}" for file in package.rglob("*.py") for name in names_bound(parsed(file)) if is_riddle(name)}

    assert not wrong, "name what it holds: `candidates`, `results`, `verdict`"


def test_the_check_notices_each_kind():
    tree = ast.parse("def f(given):\n  _MADE_OF = found.asked = made_by = 1")
    functions = public_functions(ast.parse("def _f(): ...\nclass A:\n  def g(self): ...\n@prim\ndef h(): ..."))

    assert sorted(name for name in names_bound(tree) if is_riddle(name)) == ["_MADE_OF", "asked", "given"]
    assert [(f.name, is_meaning(f)) for f in functions] == [("g", False), ("h", True)]
    assert in_third_person("Returns", {"Return"}) and in_third_person("Matches", {"Match"}) and not in_third_person("Pass", {"Return"})

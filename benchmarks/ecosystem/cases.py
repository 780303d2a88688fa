"""What is tried: a case builds something of a library and its arguments; the modules of FAMILIES list them by name."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

TABLE = ("functions", "torchvision_functions", "networks", "training", "torchvision_models", "timm_models", "huggingface_models")
_HELD_BACK = (
    "programs",
    "scripts",
    "habits",
    "functions",
    "networks",
    "libraries",
    "more_libraries",
    "further_libraries",
    "huggingface_models",
    "timm_models",
)
HELD_BACK = tuple(f"held_back.{name}" for name in _HELD_BACK)
FAMILIES = (*TABLE, *HELD_BACK)
CHOSEN = Path(__file__).with_name("chosen.json")


@dataclass(frozen=True)
class Case:
    """One thing that users do with a library.

    `build` returns a module or a function and its arguments; it is called with the generator of torch seeded, once for eager and once
    for the compiled run.  Where the case has `batches`, the sizes of the batches of its calls, it returns a function of the size in the
    place of the arguments: new ones for each call.

    A module is tried in each of `modes`: "eval" without gradients, "train" forward and backward.  A function's mode is "call"; that of
    a whole loop of training is "fit": its function takes what compiles a model.  `loss` gets a module's output; without it the squares
    of all outputs that require gradients are summed.  `method` is what is called of the compiled module, the module itself by default.
    """

    library: str
    name: str
    build: Callable[[], tuple[Callable, tuple | Callable[[int], tuple[tuple, dict]], dict[str, Any] | None]]
    modes: tuple[str, ...] = ("eval", "train")
    loss: Callable[[Any], Any] | None = None
    method: str = ""
    relative: float = 1e-4  # what results may differ by, as a share of the largest element; autocast to bf16 needs more
    batches: tuple[int, ...] = ()
    seconds: float = 1800.0  # a case that takes longer is stopped


@dataclass
class Collection:
    """The cases of one file, in order; `add` is a decorator of their builders."""

    library: str
    cases: list[Case] = field(default_factory=list)

    def add(self, name: str, **options: Any) -> Callable:
        def register(build: Callable) -> Callable:
            self.cases.append(Case(options.pop("library", self.library), name, build, **options))
            return build

        return register

    def loop(self, name: str, fit: Callable[[Callable], Any], library: str | None = None) -> None:
        """Add a loop of training: `fit` gets what compiles a model, and returns what the loop left behind."""
        relative = 1e-2 if "bf16" in name else Case.relative
        self.cases.append(Case(library or self.library, name, lambda: (fit, (), {}), modes=("fit",), relative=relative))

    def script(self, name: str) -> Callable:
        """Return a decorator that adds a loop of training under a name."""

        def register(fit: Callable[[Callable], Any]) -> Callable:
            self.loop(name, fit)
            return fit

        return register

    def function(self, name: str, fn: Callable, *arguments: Callable[[], Any], library: str | None = None) -> None:
        """Add a call of `fn`; each argument is built anew for each run."""
        self.cases.append(Case(library or self.library, name, lambda: (fn, tuple(each() for each in arguments), {}), modes=("call",)))


def chosen() -> dict[str, Any]:
    """Return what choose.py has written: models of timm by module, types of models of transformers."""
    return json.loads(CHOSEN.read_text())


@cache
def load(family: str) -> dict[tuple[str, str], Case]:
    """Return the cases of one file by library and name.

    Raises:
        ValueError: two cases have one name.
    """
    cases = {}
    for case in importlib.import_module(family).cases():
        key = (case.library, case.name)
        if key in cases:
            raise ValueError(f"two cases are called {case.library} {case.name}, in {family}.py")
        cases[key] = case
    return cases


def names(family: str) -> Iterator[tuple[str, str, str]]:
    """Yield library, name and mode of everything that a file lists."""
    for case in load(family).values():
        for mode in case.modes:
            yield case.library, case.name, mode

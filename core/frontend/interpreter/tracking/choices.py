"""random.choice, choices, sample and shuffle: which items they pick is drawn at every call, and the items are those of the program."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from dovetail.errors import Unsupported
from dovetail.frontend.interpreter.tracking.rules import NEW_GENERATOR

Draw = Callable[..., Any]  # of the name of a method and its arguments; returns what it draws


def picked(tracker: Any, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Return function(*args, **kwargs) for a method of random.Random in MODELS."""
    generator, *args = args
    source, name = tracker.source(generator), f"random.{function.__name__}()"
    seeded = generator in tracker.seeded
    if source is None and not seeded:
        raise Unsupported(NEW_GENERATOR.format(name))

    def draw(method: str, *arguments: Any, **named: Any) -> Any:
        def call() -> Any:
            if method != "shuffle":
                return getattr(generator, method)(*arguments, **named)
            order = list(*arguments)
            generator.shuffle(order)
            return order

        if seeded:
            return call()
        return tracker.recorder.draw(call, "outcome", name, (method, id(generator), repr((arguments, named))), generator)

    return MODELS[function](tracker, draw, *args, **kwargs)


def _choice(tracker: Any, draw: Draw, seq: Any) -> Any:
    length = tracker.len(seq)
    if not length:
        raise IndexError("Cannot choose from an empty sequence")
    return tracker.get_item(seq, draw("choice", range(length)))


def _choices(tracker: Any, draw: Draw, population: Any, weights: Any = None, *, cum_weights: Any = None, k: int = 1) -> list[Any]:
    named = {name: tracker.plain(x) for name, x in (("weights", weights), ("cum_weights", cum_weights)) if x is not None}
    places = draw("choices", range(tracker.len(population)), **named, k=tracker.spelled(k))
    return [tracker.get_item(population, i) for i in places]


def _sample(tracker: Any, draw: Draw, population: Any, k: int, *, counts: Any = None) -> list[Any]:
    if isinstance(population, (set, frozenset, dict)):
        raise TypeError("Population must be a sequence.  For dicts or sets, use sorted(d).")
    named = {} if counts is None else {"counts": tracker.plain(counts)}
    places = draw("sample", range(tracker.len(population)), tracker.spelled(k), **named)
    return [tracker.get_item(population, i) for i in places]


def _shuffle(tracker: Any, draw: Draw, x: Any) -> None:
    order = draw("shuffle", range(tracker.len(x)))
    for i, item in enumerate([tracker.get_item(x, j) for j in order]):
        tracker.set_item(x, i, item)


MODELS: dict[Any, Callable] = {
    random.Random.choice: _choice,
    random.Random.choices: _choices,
    random.Random.sample: _sample,
    random.Random.shuffle: _shuffle,
    random.Random.randbytes: lambda tracker, draw, n: draw("randbytes", tracker.spelled(n)),
}

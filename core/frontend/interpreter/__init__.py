"""A CPython bytecode interpreter in Python, for 3.11 to 3.14; a `World` defines what its values mean; no torch."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from dovetail.frontend.interpreter import recursion
from dovetail.frontend.interpreter.frame import Frame as Frame
from dovetail.frontend.interpreter.tracebacks import strip
from dovetail.frontend.interpreter.world import World as World


def interpret(fn: Callable, world: World | None = None) -> Callable:
    """Return `fn` run by this interpreter: the result of fn(*args, **kwargs), with its bytecode and that of the Python it calls interpreted.

    `world` defines what values mean; by default what they mean in CPython.  Errors carry the user's traceback.
    """

    @functools.wraps(fn)
    def interpreted(*args: Any, **kwargs: Any) -> Any:
        chosen = World() if world is None else world
        try:
            with recursion.raised() as chosen.limit:
                return chosen.call(fn, list(args), kwargs, None)
        except BaseException as error:
            error.__traceback__ = strip(error.__traceback__)
            raise

    return interpreted

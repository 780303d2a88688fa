"""The hooks that a plugin implements: the first is what makes it a plugin, the second is for those who have more to check."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pluggy

from dovetail.executors.contract.executor import Executor, Verdict

GROUP = "dovetail.executors"  # the entry-point group of plugins
KNOWN = "dovetail.known"  # the group in which a distribution names executors that others could bring
hookspec = pluggy.HookspecMarker("dovetail")
hookimpl = pluggy.HookimplMarker("dovetail")


@hookspec
def dovetail_executors() -> Iterable[Executor]:
    """Return the executors of this plugin, in order of preference; called once.  Import heavy dependencies here, not above."""


@hookspec
def dovetail_doctor() -> Iterable[tuple[str, Callable[[], Verdict]]]:
    """Return checks for `dovetail doctor`, each a name and a function that returns True or a sentence saying what is wrong."""

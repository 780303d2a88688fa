"""The one hook that a plugin implements."""

from __future__ import annotations

from collections.abc import Iterable

import pluggy

from dovetail.executors.executor import Executor

GROUP = "dovetail.executors"  # the entry-point group, and the project name of the hook markers
hookspec = pluggy.HookspecMarker("dovetail")
hookimpl = pluggy.HookimplMarker("dovetail")


@hookspec
def dovetail_executors() -> Iterable[Executor]:
    """The executors of this plugin, called once.  Import heavy dependencies here, not at the top of the module."""

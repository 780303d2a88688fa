"""Which branches of a plugin's own code run: by `sys.monitoring`, and on Python 3.11 by a trace function."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

from dovetail_conformance.guided.operands import difference, operands
from dovetail_conformance.guided.own import Own
from dovetail_conformance.guided.sites import LOOP, Site, sites_of

MONITORED = sys.version_info >= (3, 12)
TOOLS = (3, 4, 5, 2, 0, 1)  # numbers of tools for sys.monitoring, those first that no kind of tool is meant to have
EVALUATED = 4  # times in a call that the operands of one comparison are looked at


class Recorder:
    """Records the edges of a plugin's own code that calls take, between `open` and `close`, while `recording`."""

    def __init__(self, own: Own):
        self.own = own
        self.sites: list[Site] = []
        self.ran: set[CodeType] = set()
        self._by_code: dict[CodeType, Any] = {}
        self._operands: dict[int, Any] = {}
        self._edges: set[int] = set()
        self._sides: dict[int, tuple[float, float]] = {}
        self._counts: dict[int, int] = {}
        self._active = False

    @contextmanager
    def open(self) -> Iterator[None]:
        """Be able to record while open; nothing is recorded where no way is free."""
        yield

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record what runs while open, in this thread."""
        self._edges, self._sides, self._counts, self._active = set(), {}, {}, True
        try:
            yield
        finally:
            self._active = False

    @property
    def path(self) -> frozenset[int]:
        """The edges of the last recording."""
        return frozenset(self._edges)

    @property
    def sides(self) -> dict[int, tuple[float, float]]:
        """Both sides of the comparisons of the last recording that went one way so far, by the indices of their sites."""
        return self._sides

    @property
    def one_way(self) -> list[Site]:
        """The sites that went one way only so far, and whose other way computes something."""
        return [site for site in self.sites if site.one_way]

    def _sites(self, code: CodeType) -> Any:
        """Return the sites of a code object, which are numbered when it first runs."""
        sites = self._by_code.get(code)
        if sites is None:
            sites = self._by_code[code] = sites_of(code, len(self.sites))
            self.sites += dict.fromkeys(sites.values())
        return sites

    def _branch(self, site: Site, destination: int) -> None:
        edge = site.edge(destination)
        self._edges.add(edge)
        site.seen[edge % 2] = True

    def _compare(self, site: Site, frame: FrameType) -> None:
        """Look at the operands of a comparison that went one way so far."""
        if all(site.seen) or site.opname == LOOP or self._counts.get(site.index, 0) >= EVALUATED:
            return
        if site.index not in self._operands:
            self._operands[site.index] = operands(site.text)
        if (sides := self._operands[site.index]) is None:
            return
        self._counts[site.index] = self._counts.get(site.index, 0) + 1
        self._active = False  # what is computed here is not the plugin's
        try:
            both = difference(sides, frame.f_globals, frame.f_locals)
        finally:
            self._active = True
        before = self._sides.get(site.index)
        if both is not None and (before is None or abs(both[0] - both[1]) < abs(before[0] - before[1])):
            self._sides[site.index] = both


class Monitor(Recorder):
    """Records by events of `sys.monitoring`, beside other tools."""

    @contextmanager
    def open(self) -> Iterator[None]:
        """Register as a tool while open."""
        monitoring = sys.monitoring
        tool = next((n for n in TOOLS if monitoring.get_tool(n) is None), None)
        if tool is None:
            yield
            return
        events = monitoring.events
        ways = [events.BRANCH_LEFT, events.BRANCH_RIGHT] if hasattr(events, "BRANCH_LEFT") else [events.BRANCH]
        monitoring.use_tool_id(tool, "dovetail-conformance")

        def started(code: CodeType, offset: int) -> Any:
            if self.own.owns(code):
                self.ran.add(code)
                self._sites(code)
                monitoring.set_local_events(tool, code, sum(ways))
            return monitoring.DISABLE

        def branched(code: CodeType, offset: int, destination: int) -> Any:
            if self._active and (site := self._sites(code).get(offset)) is not None:
                self._compare(site, sys._getframe(1))
                self._branch(site, destination)

        for event in ways:
            monitoring.register_callback(tool, event, branched)
        monitoring.register_callback(tool, events.PY_START, started)
        monitoring.set_events(tool, events.PY_START)
        monitoring.restart_events()
        try:
            yield
        finally:
            monitoring.set_events(tool, 0)
            for code in self.ran:
                monitoring.set_local_events(tool, code, 0)
            for event in (events.PY_START, *ways):
                monitoring.register_callback(tool, event, None)
            monitoring.free_tool_id(tool)


class Tracer(Recorder):
    """Records by a trace function, which replaces one that is installed, such as a debugger's, during each recording."""

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record what runs while open, in this thread."""
        before = sys.gettrace()
        with super().recording():
            sys.settrace(self._called)
            try:
                yield
            finally:
                sys.settrace(before)

    def _called(self, frame: FrameType, event: str, argument: Any) -> Any:
        if not self._active or not self.own.owns(frame.f_code):
            return None
        self.ran.add(frame.f_code)
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._within(self._sites(frame.f_code))

    def _within(self, sites: Any) -> Callable[[FrameType, str, Any], Any]:
        """Return the trace function of one frame: an edge leads from a conditional jump to the instruction that runs next."""
        last: Site | None = None

        def trace(frame: FrameType, event: str, argument: Any) -> Any:
            nonlocal last
            if event == "opcode" and self._active:
                if last is not None:
                    self._branch(last, frame.f_lasti)
                last = sites.get(frame.f_lasti)
                if last is not None:
                    self._compare(last, frame)
            return trace

        return trace


def recorder(own: Own) -> Recorder:
    """Return a recorder for the running version of Python."""
    return Monitor(own) if MONITORED else Tracer(own)

"""The language of orders: a list of names, or edits of the list that there is; and the partial order that all layers make together.

["a", "b"]      these, in this order, and behind them the executors of last resort
"+a"            a in front of all others, also where it was left out
"-a"            a is not used
"a > b"         a comes before b, wherever they stand
["a", "..."]    a in front of the others;  ["...", "a"]  a behind them
"a?"            in any of these: nothing, where a is not ready
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from dovetail.errors import ExecutorError
from dovetail.options import EXECUTORS, LAYERS, Setting, Source, settings

REST = "..."
_NAME = re.compile(r"[^\W\d]\w*\??")
_FORMS = "write NAME, +NAME, -NAME, 'A > B' or ..., and NAME? for one that may be missing"

Lookup = Callable[[Any, Source, str, bool], Any]  # (name or executor, where it stands, the item, whether it may be missing) -> node


class Edit(NamedTuple):
    """One item of a list: `kind` is "name", "rest", "add", "remove" or "before"."""

    kind: str
    nodes: tuple[Any, ...]
    text: str


class Relation(NamedTuple):
    """`first` comes before `second`.  `rank` is that of its layer; a strong one was written as `a > b`."""

    first: Any
    second: Any
    rank: int
    strong: bool
    text: str
    source: Source


def parse(item: Any, source: Source, lookup: Lookup) -> Edit:
    """Parse one item of a list, and look its names up."""
    if not isinstance(item, str):
        return Edit("name", (lookup(item, source, str(item), False),), str(item))
    words = item.strip()
    if words == REST:
        return Edit("rest", (), words)
    kind, rest = {"+": ("add", words[1:]), "-": ("remove", words[1:])}.get(words[:1], ("before" if ">" in words else "name", words))
    names = [part.strip() for part in rest.split(">")] if kind == "before" else [rest.strip()]
    if not all([_NAME.fullmatch(name) for name in names]):
        raise ExecutorError(f"executors in {source} has {item!r}, which is not an edit; {_FORMS}")
    return Edit(kind, tuple([lookup(name.rstrip("?"), source, item, name.endswith("?")) for name in names]), words)


@dataclass
class Order:
    """An order that is changed layer by layer, from the lowest up."""

    sequence: list[Any]
    last: tuple[Any, ...] = ()  # executors of last resort
    relations: list[Relation] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)  # relations that gave way, as sentences
    requests: dict[Any, tuple[Setting, str]] = field(default_factory=dict)  # what was requested by name, and where
    removed: dict[Any, str] = field(default_factory=dict)  # which were removed, and by which setting
    restated: int = -1  # the rank of the layer that gave the whole list last
    by: dict[Any, Source] = field(default_factory=dict)  # who put it where it is

    def apply(self, setting: Setting, rank: int, lookup: Lookup, *, items: Iterable[Any] | None = None) -> None:
        """Change the order as `setting` says."""
        edits = [parse(item, setting.source, lookup) for item in (setting.value if items is None else items)]
        if all([edit.kind == "name" for edit in edits]):
            self._restate(edits, setting, rank)
        elif any([edit.kind in ("name", "rest") for edit in edits]):
            self._around(edits, setting, rank)
        for edit in edits:
            if edit.kind == "add":
                self._front(edit, setting, rank)
            elif edit.kind == "remove":
                self._take_out(edit, setting)
            elif edit.kind == "before":
                for first, second in pairwise(edit.nodes):
                    self.relations.append(Relation(first, second, rank, True, edit.text, setting.source))

    def _restate(self, edits: list[Edit], setting: Setting, rank: int) -> None:
        """The whole list; the executors of last resort stay behind it."""
        named = list(dict.fromkeys(node for edit in edits for node in edit.nodes))
        self.requests, self.removed = {}, {}
        self.sequence = [*named, *(node for node in self.last if node not in set(named))]
        self.restated = rank
        self._named(edits, setting)
        self._chain(named, setting, rank)
        for node in named:  # of those of last resort, too: who is named stands before who is not
            for final in self.last:
                if final not in set(named):
                    self._weak(node, final, setting, rank)

    def _around(self, edits: list[Edit], setting: Setting, rank: int) -> None:
        """Names before and behind the rest; names without a `...` beside edits are the whole list, which the edits then change."""
        positional = [edit for edit in edits if edit.kind in ("name", "rest")]
        rests = [edit for edit in positional if edit.kind == "rest"]
        if not rests:
            self._restate(positional, setting, rank)
            return
        if len(rests) > 1:
            raise ExecutorError(f"executors in {setting.source} has ... twice; the rest of the order stands in one place")
        at = positional.index(rests[0])
        front = list(dict.fromkeys(node for edit in positional[:at] for node in edit.nodes))
        back = [node for edit in positional[at:] for node in edit.nodes if node not in set(front)]
        middle = [node for node in self.sequence if node not in {*front, *back}]
        final = [node for node in middle if node in set(self.last)]
        middle = [node for node in middle if node not in set(final)]
        self.sequence = [*front, *middle, *back, *final]
        self._named(positional, setting)
        for first, second in [*((a, b) for a in front for b in middle), *((a, b) for a in middle for b in back)]:
            self._weak(first, second, setting, rank)
        self._chain(front, setting, rank)
        self._chain(back, setting, rank)

    def _front(self, edit: Edit, setting: Setting, rank: int) -> None:
        self._named([edit], setting)
        for node in edit.nodes:
            self.sequence = [node, *(other for other in self.sequence if other is not node)]
            for other in self.sequence[1:]:
                self._weak(node, other, setting, rank)

    def _take_out(self, edit: Edit, setting: Setting) -> None:
        for node in edit.nodes:
            self.sequence = [other for other in self.sequence if other is not node]
            self.requests.pop(node, None)
            self.removed[node] = f"{setting.source} says {edit.text!r}"

    def _named(self, edits: list[Edit], setting: Setting) -> None:
        for edit in edits:
            for node in edit.nodes:
                self.removed.pop(node, None)
                self.by[node] = setting.source
                if not edit.text.endswith("?"):
                    self.requests[node] = (setting, edit.text)

    def _chain(self, nodes: list[Any], setting: Setting, rank: int) -> None:
        for first, second in pairwise(nodes):
            self._weak(first, second, setting, rank)

    def _weak(self, first: Any, second: Any, setting: Setting, rank: int) -> None:
        self.relations.append(Relation(first, second, rank, False, "", setting.source))

    def hint(self, first: Any, second: Any, text: str, source: Source) -> None:
        """Add a relation that a plugin asks for: it gives way to every other one."""
        self.relations.append(Relation(first, second, -1, True, text, source))

    def sorted(self) -> list[Any]:
        """Sort the sequence as little as all relations require; raise for a circle within one layer."""
        graph = _Graph()
        position = {id(relation): i for i, relation in enumerate(self.relations)}
        usual = Source("default", "default")
        last = [Relation(node, final, -1, False, "", usual) for final in self.last for node in self.sequence if node not in set(self.last)]
        by_weight = sorted(self.relations, key=lambda r: (-r.rank, not r.strong, position[id(r)] if r.strong else -position[id(r)]))
        hints = [r for r in by_weight if r.rank < 0]
        for relation in [*(r for r in by_weight if r.rank >= 0), *last, *hints]:
            against = graph.add(relation)
            if against is None or not relation.strong:
                continue
            circle = [*against, relation]
            same = all([r.strong and r.rank == relation.rank for r in against])
            if same and relation.rank >= 0:
                raise ExecutorError(circle_error(circle))
            message = ", ".join(f"{r.text or _words(r)} ({r.source})" for r in against)
            remedy = f"; settle it with {fix(circle)}" if same else ""
            self.dropped.append(f'"{relation.text}" of {relation.source} gives way to {message}{remedy}')
        return graph.sorted(self.sequence)


class _Graph:
    """Relations that do not contradict one another."""

    def __init__(self) -> None:
        self.after: dict[Hashable, dict[Hashable, Relation]] = {}

    def add(self, relation: Relation) -> list[Relation] | None:
        """Take `relation` in, or give the way from its second to its first that is there already."""
        way = self._way(relation.second, relation.first)
        if way is None:
            self.after.setdefault(relation.first, {}).setdefault(relation.second, relation)
        return way

    def _way(self, start: Any, end: Any) -> list[Relation] | None:
        """The shortest way, so that a message shows the smallest circle."""
        if start is end:
            return []
        ways: dict[Any, list[Relation]] = {start: []}
        waiting = [start]
        for node in waiting:
            for following, relation in self.after.get(node, {}).items():
                if following not in ways:
                    ways[following] = [*ways[node], relation]
                    if following is end:
                        return ways[following]
                    waiting.append(following)
        return None

    def sorted(self, sequence: list[Any]) -> list[Any]:
        """`sequence` with each node behind those that have to come first, also through nodes that are not in it."""
        placed: dict[Any, None] = {}
        before: dict[Any, list[Any]] = {}
        for first, following in self.after.items():
            for second in following:
                before.setdefault(second, []).append(first)
        position = {node: i for i, node in enumerate(sequence)}

        def place(node: Any, seen: frozenset) -> None:
            if node in placed or node in seen:
                return
            for first in sorted(before.get(node, ()), key=lambda each: position.get(each, len(position))):
                place(first, seen | {node})
            if node in position:
                placed[node] = None

        for node in sequence:
            place(node, frozenset())
        return list(placed)


def _words(relation: Relation) -> str:
    return f"{name_of(relation.first)} > {name_of(relation.second)}"


def name_of(node: Any) -> str:
    return node if isinstance(node, str) else node.name


def fix(circle: list[Relation]) -> str:
    """Return the line that settles a circle, for the lowest layer above it: it turns the last relation round."""
    last = circle[-1]
    turned = f"{name_of(last.second)} > {name_of(last.first)}"
    layer = last.source.layer
    if LAYERS.index(layer) < LAYERS.index("file"):
        return f'executors = ["{turned}"] in a configuration file, or DOVETAIL_EXECUTORS="{turned}"'
    if layer == "file":
        there = [item for each in settings(EXECUTORS) if each.source.layer == "environment" for item in each.value]
        return f'{EXECUTORS.name}="{", ".join([*there, turned])}"'
    if layer in ("environment", "command line"):
        return f'with dovetail.use(executors=["{turned}"])'
    if layer == "use":
        return f'dovetail.jit(fn, executors=["{turned}"])'
    return f'executors= without "{last.text}"'


def circle_error(circle: list[Relation]) -> str:
    """Return the error for relations that contradict one another."""
    message = "\n".join(f"  {_words(r)}: {r.source}" + (f" says {r.text!r}" if r.text else "") for r in circle)
    return f"the order of executors has a cycle (a > b: a comes before b):\n{message}\nBreak it with {fix(circle)}"

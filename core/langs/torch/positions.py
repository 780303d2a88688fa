"""x[i] with a traced position i: a view in eager PyTorch, a copy here.  Refuse traces in which the difference would show."""

from __future__ import annotations

from typing import Any

from dovetail import prims
from dovetail.errors import Unsupported
from dovetail.langs.torch.indexing import getitem_at, setitem
from dovetail.prims import Tag
from dovetail.trace import BoundSymbol, Trace, printing, proxies
from dovetail.trace.aliases import root_of


def check_positions(trace: Trace) -> None:
    """Raise `Unsupported` where rows x[i] are read after a write to x, or are written to without the write-back of `x[i] += 1`."""
    if any([line.symbol is getitem_at for line in trace.lines]):
        walk = _Walk()
        for line in trace.lines:
            walk.visit(line)
        walk.read(proxies(trace.outputs))


class _Walk:
    """Tracks copies of rows and the storages they were read from.

    `rows` maps the storage of each copy to its source storage and key.  `stale` copies were read before a write to the source; `changed`
    ones were written to and not written back yet.
    """

    def __init__(self) -> None:
        self.bases: dict[Any, Any] = {}  # of views, up to the line that is visited
        self.rows: dict[Any, tuple[Any, str]] = {}
        self.stale: set[Any] = set()
        self.changed: set[Any] = set()
        self.written_back: Any = None

    def root(self, p: Any) -> Any:
        return root_of(p, self.bases)

    def visit(self, line: BoundSymbol) -> None:
        self.written_back = self.put_back(line)
        if self.written_back is None:
            self.step(line)
            return
        self.changed.discard(self.written_back)
        for inner in line.body:
            self.step(inner)
        self.written_back = None

    def put_back(self, line: BoundSymbol) -> Any:
        """Return the rows that `x[key] = rows` writes back to their source, or None."""
        if line.symbol is setitem:
            rows = self.root(line.args[2])
            if rows in self.changed and self.rows[rows] == self.source(line):
                return rows
        return None

    def source(self, line: BoundSymbol) -> tuple[Any, str]:
        return self.root(line.args[0]), printing.literal(line.args[1])

    def step(self, line: BoundSymbol) -> None:
        self.read(line.reads)
        if line.symbol is prims.copy_:
            self.write(self.root(line.args[0]))
        elif Tag.VIEW in line.symbol.tags:
            self.bases[line.out] = line.args[0]
        for inner in line.body:
            self.step(inner)
        if line.symbol is getitem_at:
            self.rows[self.root(line.out)] = self.source(line)

    def write(self, root: Any) -> None:
        if root in self.rows:
            self.changed.add(root)
        self.stale.update([rows for rows, (base, _) in self.rows.items() if base is root and rows is not self.written_back])

    def read(self, values: list[Any]) -> None:
        hidden = self.stale.union([self.rows[rows][0] for rows in self.changed])
        if hidden and any([self.root(p) in hidden for p in values]):
            raise Unsupported(
                "x[i] with a tensor i is a view of x in eager PyTorch and a copy here, so reading it after a write to x, "
                "or x after a write to it, is not supported; use x[i].clone() to read, and x[i] = value or x[i] += value to write"
            )

"""x[i] with a traced position i, x.conj() and x.adjoint(): views in eager PyTorch, copies here; refuse traces in which that would show."""

from __future__ import annotations

from typing import Any

from dovetail import prims
from dovetail.errors import Unsupported
from dovetail.langs.torch.elementwise import conj
from dovetail.langs.torch.indexing import getitem_at, is_position, setitem
from dovetail.langs.torch.shape import adjoint
from dovetail.prims import Symbol, Tag
from dovetail.prims.sizes import Size
from dovetail.trace import BoundSymbol, Trace, printing, proxies
from dovetail.trace.aliases import root_of


class CopiedRow(Unsupported):
    """A program in which it shows that x[i] with a traced position i is a copy: it has to know i."""


INSTEAD = {  # what is a view in eager PyTorch and a copy here: how it is written, and what to write in its place
    getitem_at: ("x[i] with a tensor i", "use x[i].clone() to read, and x[i] = value or x[i] += value to write"),
    conj: ("x.conj() of complex numbers", "use torch.conj_physical(x), which is a copy"),
    adjoint: ("x.adjoint() of complex numbers", "use torch.conj_physical(x).mT, which is a copy"),
}


def check_copied_views(trace: Trace) -> None:
    """Raise `Unsupported` where such a copy is read after a write to its source, or is written to without the write-back of `x[i] += 1`."""
    _walked(trace)


def check_returned_rows(trace: Trace) -> None:
    """Raise `CopiedRow` where a result is x[i] with a traced position i, and x is an input or shares its memory with another result."""
    if (walk := _walked(trace)) is None:
        return
    roots = list(dict.fromkeys(map(walk.root, dict.fromkeys(proxies(trace.outputs)))))
    returned = [walk.rows[root][0] for root in roots if walk.symbols.get(root) is getitem_at]
    if any([returned.count(base) > 1 or base in {*roots, *trace.inputs, *trace.constants} for base in returned]):
        raise CopiedRow("x[i] with a tensor i is a view of x in eager PyTorch and a copy here, so returning it is not supported; return x[i].clone()")


def _walked(trace: Trace) -> _Walk | None:
    """Return what the rows of a program are, None where it has none; raise where one is read that eager PyTorch would have changed."""
    if not any([copies_a_view(line) for line in trace.lines]):
        return None
    walk = _Walk()
    for line in trace.lines:
        walk.visit(line)
    walk.read([*proxies(trace.outputs), *trace.inputs, *trace.constants])
    return walk


def copies_a_view(line: BoundSymbol) -> bool:
    """Return whether `line`, or a line that it consists of, copies what eager PyTorch views."""
    if line.symbol in INSTEAD:
        return _views(line.args[1]) if line.symbol is getitem_at else line.args[0].spec.dtype.kind == "complex"
    return any([copies_a_view(inner) for inner in line.body])


def _views(key: Any) -> bool:
    """Return whether eager PyTorch views what a key selects: it has no lists, masks or tensors of positions in it."""
    items = key if isinstance(key, tuple) else (key,)
    return all([item is None or item is Ellipsis or isinstance(item, slice) or type(item) in (int, Size) or is_position(item) for item in items])


class _Walk:
    """Tracks such copies, called rows here, and the storages they were read from.

    `rows` maps the storage of each copy to its source storage and key, `symbols` to the operation that created it.  `stale` copies were read
    before a write to the source; `changed` ones were written to and not written back yet.
    """

    def __init__(self) -> None:
        self.bases: dict[Any, Any] = {}  # of views, up to the line that is visited
        self.rows: dict[Any, tuple[Any, str]] = {}
        self.symbols: dict[Any, Symbol] = {}
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
        return self.root(line.args[0]), ", ".join(map(printing.literal, line.args[1:2]))

    def step(self, line: BoundSymbol) -> None:
        self.read(line.reads)
        if line.symbol is prims.copy_:
            self.write(self.root(line.args[0]))
        elif Tag.VIEW in line.symbol.tags:
            self.bases[line.out] = line.args[0]
        for inner in line.body:
            self.step(inner)
        if line.symbol in INSTEAD and copies_a_view(line):
            copy = self.root(line.out)
            self.rows[copy], self.symbols[copy] = self.source(line), line.symbol

    def write(self, root: Any) -> None:
        if root in self.rows:
            self.changed.add(root)
        self.stale.update([rows for rows, (base, _) in self.rows.items() if base is root and rows is not self.written_back])

    def read(self, values: list[Any]) -> None:
        hidden = {rows: rows for rows in self.stale} | {self.rows[rows][0]: rows for rows in self.changed}
        for p in values if hidden else ():
            if (root := self.root(p)) in hidden:
                symbol = self.symbols[hidden[root]]
                what, instead = INSTEAD[symbol]
                raise (CopiedRow if symbol is getitem_at else Unsupported)(
                    f"{what} is a view of x in eager PyTorch and a copy here, so reading it after a write to x, "
                    f"or x after a write to it, is not supported; {instead}"
                )

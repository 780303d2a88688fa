"""Cells and globals of a tracked run."""

from __future__ import annotations

from types import CellType, CodeType, FunctionType
from typing import Any

from dovetail.frontend.class_lookup import NULL, address_of
from dovetail.frontend.interpreter.frame import Frame
from dovetail.frontend.interpreter.tracking.effects import DELETED


class Variables:
    """Reads are reached through the cell or the dictionary of globals, writes wait."""

    def load_cell(self, cell: CellType) -> Any:
        source = self.source(cell)
        if source is None:
            return cell.cell_contents
        now = self.effects.now(cell, "cell_contents")
        if now is DELETED:
            raise ValueError("Cell is empty")
        if now is not NULL:
            return now
        try:
            value = cell.cell_contents
        except ValueError:
            self.guard("unset", source, "cell_contents")
            raise
        return self.reach(value, self.sources.attr(source, "cell_contents"))

    def store_cell(self, cell: CellType, value: Any) -> None:
        if self.source(cell) is None:
            cell.cell_contents = value
        else:
            self.effects.set(cell, "cell_contents", value)

    def delete_cell(self, cell: CellType) -> None:
        self.load_cell(cell)
        if self.source(cell) is None:
            del cell.cell_contents
        else:
            self.effects.set(cell, "cell_contents", DELETED)

    def evaluate(self, code: CodeType, globals: dict[str, Any], names: Any, function: FunctionType | None = None) -> Frame:
        if function is None and id(globals) not in self.namespaces and self.source(globals) is None:
            self.fresh[address_of(globals)] = globals  # `exec` in a dict of the program's own
        return super().evaluate(code, globals, names, function)

    def load_global(self, frame: Frame, name: str) -> Any:
        if address_of(frame.globals) in self.fresh or self._looks_up_itself(frame):
            return super().load_global(frame, name)
        value = self.from_namespace(frame.globals, name)
        if value is not NULL:
            return value
        builtins = frame.builtins
        if name in builtins:
            return self.reach(builtins[name], self.sources.item(self.sources.const(builtins), name))
        raise NameError(f"name '{name}' is not defined", name=name)

    def _looks_up_itself(self, frame: Frame) -> bool:
        """Return whether globals have a lookup of their own, as those of the functions that annotationlib makes to evaluate annotations."""
        return hasattr(type(frame.globals), "__missing__") and self.source(frame.function) is None

    def from_namespace(self, namespace: dict[str, Any], name: str) -> Any:
        """Return a variable of a module, NULL where it has none of this name."""
        now = self.effects.now(namespace, name)
        if now is not NULL:
            return NULL if now is DELETED else now
        source = self.sources.const(namespace)
        if name in namespace:
            return self.reach(namespace[name], self.sources.item(source, name))
        self.guard("hasnot", source, name)
        return NULL

    def store_global(self, frame: Frame, name: str, value: Any) -> None:
        if address_of(frame.globals) in self.fresh:
            super().store_global(frame, name, value)
        else:
            self.effects.set(frame.globals, name, value, "item")

    def delete_global(self, frame: Frame, name: str) -> None:
        if address_of(frame.globals) in self.fresh:
            super().delete_global(frame, name)
            return
        if self.from_namespace(frame.globals, name) is NULL:
            raise NameError(f"name '{name}' is not defined", name=name)
        self.effects.set(frame.globals, name, DELETED, "item")

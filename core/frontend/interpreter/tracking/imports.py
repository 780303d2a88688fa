"""Imports in a tracked run: which modules `sys.modules` has under the names that the program imports."""

from __future__ import annotations

import builtins
import sys
from importlib.util import resolve_name
from types import ModuleType
from typing import Any

from dovetail.frontend.interpreter.frame import Frame


class Imports:
    """Imports run natively: once, as in eager mode."""

    def import_name(self, frame: Frame, name: str, names: Any, level: int) -> ModuleType:
        if frame.builtins.get("__import__") is not builtins.__import__:
            return super().import_name(frame, name, names, level)
        return self.imported(name, frame.globals, names, level)

    def imported(self, name: str, globals: dict[str, Any], names: Any = (), level: int = 0) -> ModuleType:
        """Return __import__(name, globals, None, names, level), and guard what `sys.modules` has for it."""
        modules = self.load_attr(sys, "modules")
        whole = name if not level else resolve_name("." * level + name, globals.get("__package__") or globals["__name__"])
        try:
            module = builtins.__import__(name, globals, None, names, level)
        except ImportError as error:
            for missing in dict.fromkeys((error.name or whole, whole)):
                if self.raw_contains(modules, missing):
                    self.raw_item(modules, missing)
            raise
        for imported in dict.fromkeys((whole, module.__name__ if isinstance(module, ModuleType) else whole)):
            if self.raw_contains(modules, imported):
                self.raw_item(modules, imported)
        return module

"""One OpInfo for each prim, one file for each family; importing this fills the registry, of which OPINFOS here is the prims' part."""

from __future__ import annotations

from dovetail_conformance import opinfo
from dovetail_conformance.prims import creation, elementwise, indexing, linalg, memory, reduction, shape

OPINFOS = [info for info in opinfo.OPINFOS if info.symbol.is_prim]
__all__ = ["OPINFOS", "creation", "elementwise", "indexing", "linalg", "memory", "reduction", "shape"]

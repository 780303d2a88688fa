"""One OpInfo for each prim, one file for each family; importing this fills OPINFOS."""

from __future__ import annotations

from dovetail_conformance.prims import creation, elementwise, indexing, linalg, memory, reduction, shape

__all__ = ["creation", "elementwise", "indexing", "linalg", "memory", "reduction", "shape"]

"""Hashes that have changed since an object became a key: a dict keeps the old one where no Python code can read it."""

from __future__ import annotations

from typing import Any

from dovetail.errors import EagerCall

_MANY = 1000  # keys that a copy gets besides
_ITERATED_IN_C = (dict.__iter__, set.__iter__, frozenset.__iter__)


def changed_hash(key: Any, container: Any) -> EagerCall:
    """Return the error for a key with another hash than when it was put into a container."""
    return EagerCall(f"the hash of a {type(key).__name__} has changed since it became a key of a {type(container).__name__}")


def with_many_keys(container: Any) -> Any:
    """Return a copy of a dict or set by the hashes that it has stored, with so many keys that a look-up by a changed hash meets none by chance.

    Classes that iterate in another way are not copied so: there the container itself is returned.
    """
    if type(container).__iter__ not in _ITERATED_IN_C:
        return container
    others = [object() for _ in range(_MANY)]
    return dict(container) | dict.fromkeys(others) if isinstance(container, dict) else set(container).union(others)

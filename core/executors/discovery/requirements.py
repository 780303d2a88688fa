"""Whether a plugin can work here, from its metadata alone: no plugin code runs."""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

import importlib_metadata
from packaging.requirements import Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion

HOST = "dovetail"
API = 1  # the executor API: the hooks, `dovetail.extend`, and what plugins are called with
_API_EXTRA = re.compile(r"api(\d+)")


class Problem(NamedTuple):
    """Why a plugin is not loaded: a status, the reason and a remedy."""

    status: str
    reason: str
    remedy: str


class Requires(NamedTuple):
    """What a distribution says that it needs; `extras` are those of the entry point."""

    distribution: str
    requires: tuple[str, ...] = ()
    python: str = ""
    extras: tuple[str, ...] = ()


def problem(needs: Requires) -> Problem | None:
    """Return the first thing that keeps a plugin from working here: its Python, the executor API, what it requires; None when nothing does."""
    return _python(needs) or _requirements(needs)


def host_version() -> str:
    """Return the version of Dovetail that runs."""
    return sys.modules[HOST].__version__


def _api(wanted: Iterable[Requirement], distribution: str) -> Problem | None:
    """Return the problem of a plugin for another executor API: `dovetail[api1]` requires API 1."""
    for requirement in wanted:
        for extra in requirement.extras if canonicalize_name(requirement.name) == HOST else ():
            api = _API_EXTRA.fullmatch(canonicalize_name(extra))
            if api and int(api[1]) != API:
                reason = f"requires executor API {api[1]}, and dovetail {host_version()} has API {API}"
                return Problem("incompatible", reason, _other_version(distribution))
    return None


def _python(needs: Requires) -> Problem | None:
    if not needs.python:
        return None
    try:
        fits = SpecifierSet(needs.python).contains(platform.python_version(), prereleases=True)
    except InvalidSpecifier:
        return Problem("invalid", f"its Requires-Python {needs.python!r} is no version range", _author(needs.distribution))
    if fits:
        return None
    reason = f"requires Python {needs.python}, and this is Python {platform.python_version()}"
    return Problem("incompatible", reason, _other_version(needs.distribution))


def _requirements(needs: Requires) -> Problem | None:
    """Requirements on Dovetail itself come first: where they are not met, the others were written for another world."""
    try:
        wanted = applicable(needs.requires, needs.extras)
    except Exception as error:  # no requirement, or a marker that cannot be evaluated
        return Problem("invalid", f"its metadata requires what cannot be read: {' '.join(str(error).split())}", _author(needs.distribution))
    if wrong := _api(wanted, needs.distribution):
        return wrong
    unmet = [(requirement, message) for requirement in wanted if (message := _unmet(requirement))]
    for requirement, _ in unmet:
        if canonicalize_name(requirement.name) == HOST:
            reason = f"requires {_plain(requirement)}, and this is dovetail {host_version()}"
            return Problem("incompatible", reason, _other_version(needs.distribution))
    if unmet:
        names = " ".join(f'"{_plain(requirement)}"' for requirement, _ in unmet)
        return Problem("unmet-requirement", "; ".join(message for _, message in unmet), f"pip install {names}")
    return None


def applicable(requires: Iterable[str], extras: Iterable[str]) -> list[Requirement]:
    """Return the requirements whose markers hold here, with those of the extras that they request of other distributions."""
    wanted: list[Requirement] = []
    queue = [(text, frozenset(extras)) for text in requires]
    seen = set()
    while queue:
        text, requested = queue.pop(0)
        requirement = Requirement(text)
        if requirement.marker and not any(requirement.marker.evaluate({"extra": extra}) for extra in requested or ("",)):
            continue
        key = (str(requirement), requested)
        if key in seen:
            continue
        seen.add(key)
        wanted.append(requirement)
        if requirement.extras:
            more = [text for text in _requires_of(requirement.name) if "extra" in text]
            queue += [(text, frozenset(requirement.extras)) for text in more]
    return wanted


def installed(name: str) -> str | None:
    """Return the installed version of a distribution, None where there is none."""
    if canonicalize_name(name) == HOST:
        return host_version()
    return _version(canonicalize_name(name))


@lru_cache(maxsize=1024)
def _version(name: str) -> str | None:
    try:
        return importlib_metadata.version(name)
    except Exception:  # not there, or with metadata that cannot be read
        return None


def forget() -> None:
    """Look again at what is installed."""
    _version.cache_clear()


def _unmet(requirement: Requirement) -> str:
    version = installed(requirement.name)
    if version is None:
        return f"requires {_plain(requirement)}, which is not installed"
    try:
        fits = requirement.specifier.contains(version, prereleases=True)
    except InvalidVersion:
        fits = False
    return "" if fits else f"requires {_plain(requirement)}, and {requirement.name} {version} is installed"


def _requires_of(name: str) -> list[str]:
    try:
        return list(importlib_metadata.requires(name) or ())
    except Exception:
        return []


def _plain(requirement: Requirement) -> str:
    """The requirement without its marker, which holds."""
    extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
    return f"{requirement.name}{extras}{requirement.specifier}" if not requirement.url else f"{requirement.name}{extras} @ {requirement.url}"


def _other_version(distribution: str) -> str:
    named = distribution or "the plugin"
    return f"install a version of {named} for this one: pip install --upgrade {named}"


def _author(distribution: str) -> str:
    return f"report it to the author of {distribution or 'the plugin'}"

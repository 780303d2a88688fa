"""Which plugins may be imported, as configuration has it; decided before any of them is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from packaging.utils import canonicalize_name

from dovetail import options
from dovetail.executors.discovery import configuration
from dovetail.executors.discovery.find_plugins import Candidate
from dovetail.executors.discovery.plugin_status import Plugin
from dovetail.options import Option, Setting


@dataclass(frozen=True)
class Selection:
    """The configuration of plugins: each part as names, with their sources.

    `disable` and `allow` hold names of plugins or of distributions, `use` the distribution that is meant by a plugin's name, `plugins` the
    paths of plugins in development.  `allow` is None where every plugin may be imported.
    """

    disable: tuple[str, ...] = ()
    disabled_by: str = ""
    allow: tuple[str, ...] | None = None
    allowed_by: str = ""
    use: tuple[tuple[str, str], ...] = ()
    used_by: str = ""
    plugins: tuple[str, ...] = ()


def configured() -> Selection:
    """Return the settings of files, the environment and the command line, the same for the whole process."""
    configuration.refresh()
    disable, disabled_by = _setting(options.DISABLE)
    allow, allowed_by = _setting(options.ALLOW)
    use, used_by = _setting(options.USE)
    return Selection(disable, disabled_by, allow, allowed_by, use, used_by, _setting(options.PLUGINS)[0])


def _setting(option: Option) -> tuple:
    """Return the value in the highest process-wide layer, and where it is set."""
    layers: list[Setting] = [each for each in options.settings(option) if each.source.layer not in ("use", "jit")]
    return (layers[-1].value, str(layers[-1].source)) if layers else (option.default, "")


def select(candidates: Iterable[Candidate], wanted: Selection) -> tuple[list[Candidate], list[Plugin]]:
    """Return the plugins that may be imported, and the rows of the others: blocked ones, and those of which two have one name."""
    chosen: list[Candidate] = []
    rows: list[Plugin] = []
    for candidate in candidates:
        blocked = _blocked(candidate, wanted)
        (rows if blocked else chosen).append(blocked or candidate)
    use = dict(wanted.use)
    for name in [name for name, times in Counter(c.name for c in chosen).items() if times > 1 or name in use]:
        sides = [c for c in chosen if c.name == name]
        kept, out = _one_of(sides, use.get(name, ""), wanted.used_by)
        chosen = [c for c in chosen if c.name != name or c in kept]
        rows += out
    return chosen, rows


def _blocked(candidate: Candidate, wanted: Selection) -> Plugin | None:
    def names(listed: Iterable[str]) -> bool:
        return candidate.name in listed or (bool(candidate.distribution) and _same(candidate.distribution, listed))

    if names(wanted.disable):
        return candidate.row("disabled", f"disabled by {wanted.disabled_by}", f"take it out of {_place('disable', wanted.disabled_by)}")
    if wanted.allow is not None and not names(wanted.allow):
        listed = ", ".join(wanted.allow) or "no plugin"
        reason = f"{wanted.allowed_by} allows only {listed}"
        return candidate.row("disabled", reason, f"add it to {_place('allow', wanted.allowed_by)}")
    return None


def _place(key: str, where: str) -> str:
    """What a user changes: a variable or a flag by its own name, a file by the key in it."""
    place = where.partition(" (")[0]
    return place if place.startswith(("DOVETAIL_", "--")) else f"`{key}` in {where}"


def _same(distribution: str, listed: Iterable[str]) -> bool:
    return canonicalize_name(distribution) in {canonicalize_name(each) for each in listed}


def _one_of(sides: list[Candidate], meant: str, where: str) -> tuple[list[Candidate], list[Plugin]]:
    """Of plugins of one name: the one in development, else the one that configuration means, else none."""
    own = [c for c in sides if c.file]
    if len(own) == 1:
        message, remedy = f"the plugin in development at {own[0].path} takes its place", "take that path out of DOVETAIL_PLUGINS"
        return own, [c.row("disabled", message, remedy) for c in sides if c is not own[0]]
    picked = [c for c in sides if meant and _same(c.distribution, [meant])]
    if len(picked) == 1:
        message = f"{where} says that {sides[0].name} is the one of {meant}"
        return picked, [c.row("disabled", message, f"change {_place('use', where)}") for c in sides if c is not picked[0]]
    if meant:
        message = f"{where} says that {sides[0].name} is the one of {meant}, which is another distribution"
        return [], [c.row("disabled", message, f"change {_place('use', where)}") for c in sides]
    return [], [conflict(c.row("conflict"), [other.row("conflict") for other in sides if other is not c], sides[0].name) for c in sides]


def conflict(mine: Plugin, others: list[Plugin], name: str) -> Plugin:
    """Return the row of one side of a conflict over the executor `name`; it names every side, and how to choose."""
    sides = " and ".join(each.side for each in (mine, *others))
    choice = " or ".join(f'use = {{ {name} = "{each.distribution}" }}' for each in (mine, *others) if each.distribution)
    remedy = f"choose one in [tool.dovetail]: {choice}" if choice else "leave only one of the paths in DOVETAIL_PLUGINS"
    return replace(mine, status="conflict", reason=f"{name} is provided by {sides}", remedy=remedy)

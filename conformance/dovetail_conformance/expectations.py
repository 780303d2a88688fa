"""Known failures of a plugin with their reasons, and the number of samples that it runs.

`conformance.toml`, written by hand, lies in the plugin's package or beside its tests:

    [[expect]]
    operation = "torch.softmax"            # or a pattern, "torch.*softmax"
    check = "backward"                     # left out: every check
    dtype = "float16"                      # left out: every dtype; also a list
    state = "xfail"                        # or "skip"; an xfail that passes fails the run
    class = "bug"                          # bug, unsupported, planned or upstream
    reason = "the sum is accumulated in half precision"
    url = "https://example.com/issues/12"  # may be left out
    until = "0.4"                          # the plugin's version from which it no longer holds; may be left out
    when = { torch = "<2.12" }             # torch, cuda, python, machine or executor; may be left out

    [options]                              # options of the executor under which it is tested; may be left out
    choose = "always"

`conformance.lock`, written by the suite, holds for each operation, dtype and check how many samples the executor ran: fewer is a failure.
"""

from __future__ import annotations

import fnmatch
import json
import platform
import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import Version

from dovetail.extend.advanced import Executor
from dovetail_conformance.environment import folder
from dovetail_conformance.report import Row

CLASSES = ("bug", "unsupported", "planned", "upstream")
KEYS = {"operation", "check", "dtype", "device", "state", "class", "reason", "url", "until", "when"}


class BadExpectations(ValueError):
    """The file of expectations has an invalid entry."""


@dataclass
class Expectation:
    """One entry, the `at`-th of its file; `used` is set when a row matched it."""

    operation: str
    reason: str
    kind: str
    state: str = "xfail"
    check: str = "*"
    dtypes: tuple[str, ...] = ()
    device: str = "*"
    url: str = ""
    until: str = ""
    when: dict[str, str] = field(default_factory=dict)
    at: int = 0
    used: bool = False

    def covers(self, row: Row) -> bool:
        """Return whether the entry is about this row."""
        named = fnmatch.fnmatchcase(row.operation, self.operation)
        return named and self.check in ("*", row.check) and self.device in ("*", row.device) and (not self.dtypes or row.dtype in self.dtypes)

    def __str__(self) -> str:
        return f"{self.state} of {self.operation}" + (f", {self.check}" if self.check != "*" else "")


def expectations_of(ex: Executor, named: str | Path | None) -> Path | None:
    """Return the file of an executor's expectations: the one that is named, else `conformance.toml` in its package, where there is one."""
    return Path(named) if named is not None else _beside(ex, "conformance.toml")


def applicable(path: Path | None, executor_version: str) -> list[Expectation]:
    """Return the expectations in a file that hold here and now."""
    if path is None:
        return []
    if not path.is_file():
        raise BadExpectations(f"there is no file {path} of expectations")
    return read(path, executor_version)


def lock_of(ex: Executor, named: str | Path | None) -> Path | None:
    """Return the lock file of an executor: the one that is named, else `conformance.lock` in its package, where there is one."""
    return Path(named) if named is not None else _beside(ex, "conformance.lock")


def _beside(ex: Executor, name: str) -> Path | None:
    where = folder(ex)
    return where / name if where is not None and (where / name).is_file() else None


def options_in(path: Path | None) -> dict[str, Any]:
    """Return the options under which an executor is tested: the table `[options]` of its file."""
    options = {} if path is None or not path.is_file() else _parsed(path).get("options", {})
    if not isinstance(options, dict):
        raise BadExpectations(f"{path} has options = {options!r}; write a table, [options]")
    return options


def _parsed(path: Path) -> dict[str, Any]:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadExpectations(f"{path} cannot be read: {error}") from None
    if extra := set(table) - {"expect", "options", "limits"}:
        raise BadExpectations(f"{path} has {', '.join(sorted(extra))}; it may hold [[expect]] entries and the tables [options] and [limits]")
    return table


def read(path: Path, executor_version: str) -> list[Expectation]:
    """Return the expectations of a file that hold here and now."""
    entries = _parsed(path).get("expect", [])
    expectations = [_expectation(path, i, entry, executor_version) for i, entry in enumerate(entries)]
    return [each for each in expectations if _holds(each, executor_version)]


def _expectation(path: Path, i: int, entry: dict[str, Any], executor_version: str) -> Expectation:
    where = f"{path}, entry {i + 1}"
    if extra := set(entry) - KEYS:
        raise BadExpectations(f"{where} has {', '.join(sorted(extra))}; it may have {', '.join(sorted(KEYS))}")
    for key in ("operation", "reason", "class"):
        if not str(entry.get(key, "")).strip():
            raise BadExpectations(f"{where} has no {key}; an expectation needs an operation, a reason and a class")
    if entry["class"] not in CLASSES:
        raise BadExpectations(f"{where} has the unknown class {entry['class']!r}; expected one of {', '.join(CLASSES)}")
    if entry.get("state", "xfail") not in ("xfail", "skip"):
        raise BadExpectations(f"{where} has the unknown state {entry['state']!r}; expected xfail or skip")
    until = str(entry.get("until", ""))
    if until and Version(executor_version) >= Version(until):
        raise BadExpectations(f"{where} holds until version {until}, and this is {executor_version}: {entry['reason']}; fix it, or raise `until`")
    dtypes = entry.get("dtype", ())
    return Expectation(
        entry["operation"],
        entry["reason"],
        entry["class"],
        entry.get("state", "xfail"),
        entry.get("check", "*"),
        (dtypes,) if isinstance(dtypes, str) else tuple(dtypes),
        entry.get("device", "*"),
        entry.get("url", ""),
        until,
        _conditions(where, entry.get("when", {})),
        i,
    )


def _conditions(where: str, when: dict[str, str]) -> dict[str, str]:
    for key, wanted in when.items():
        if key not in ("torch", "cuda", "python", "machine", "executor"):
            raise BadExpectations(f"{where} has the unknown condition {key}; `when` takes torch, cuda, python, machine and executor")
        if key != "machine":
            try:
                SpecifierSet(wanted)
            except InvalidSpecifier:
                raise BadExpectations(
                    f"{where} has {key} = {wanted!r}, which is not a range of versions; write one as pip does: '>=2.10,<2.12'"
                ) from None
    return when


def _holds(each: Expectation, executor_version: str) -> bool:
    versions = {"torch": torch.__version__, "cuda": torch.version.cuda, "python": platform.python_version(), "executor": executor_version}
    for key, wanted in each.when.items():
        if key == "machine":
            if platform.machine() != wanted:
                return False
        elif versions[key] is None or not SpecifierSet(wanted).contains(Version(versions[key]), prereleases=True):
            return False
    return True


def applied(rows: Iterable[Row], expected: list[Expectation]) -> Iterator[Row]:
    """Yield the rows with expectations applied: known failures, skips, and unexpected passes."""
    for row in rows:
        each = next((each for each in expected if each.covers(row)), None)
        if each is None or row.state == "not-run":
            yield row
            continue
        each.used = True
        if each.state == "skip":
            row.state, row.reason, row.replay = "waived", each.reason, ""
        elif row.failed:
            row.state, row.reason = "xfail", each.reason
        elif row.state in ("pass", "partly"):
            row.state, row.message = "xpass", f"it was expected to fail ({each.reason}) and passes; remove the entry"
        yield row


def accepted(rows: list[Row], path: Path, executor_version: str, *, whole: bool) -> tuple[list[Row], list[Expectation]]:
    """Add the failures in these rows to a file of expectations; after a `whole` run, also remove entries that no longer fail.

    Returns the rows with the new expectations applied, and those.  Comments and entries for other conditions stay as they are.
    """
    text = path.read_text(encoding="utf-8")
    known = read(path, executor_version)
    failing = [row for row in rows if row.failed and row.operation]
    gone = {each.at for each in known if each.state == "xfail" and not any(map(each.covers, failing))} if whole else set()
    grouped: dict[tuple[str, str, str], list[Row]] = {}
    for row in failing:
        if not any(each.covers(row) for each in known):
            grouped.setdefault((row.operation, row.check, row.device), []).append(row)
    path.write_text("\n".join([_without(text, gone), *(_entry(*key, group) for key, group in grouped.items())]), encoding="utf-8")
    known = read(path, executor_version)
    return list(applied(rows, known)), known


def _without(text: str, gone: set[int]) -> str:
    """Remove entries from the text of a file; the comments before an entry belong to the next one as well, and stay."""
    head, *entries = re.split(r"(?m)^(?=\[\[expect\]\])", text)
    kept = [re.search(r"(?:^\s*(?:#.*)?\n)*\Z", entry, re.MULTILINE).group().lstrip("\n") if i in gone else entry for i, entry in enumerate(entries)]
    return head + "".join(kept)


def _entry(operation: str, check: str, device: str, rows: list[Row]) -> str:
    """Format an entry for failing rows of one check; JSON strings are valid TOML."""
    dtypes = sorted({row.dtype for row in rows if row.dtype})
    entry = {"operation": operation, "check": check, "dtype": dtypes, "device": device, "class": "bug"}
    entry["reason"] = rows[0].message.partition("\n")[0][:200].strip() or rows[0].state
    return "\n".join(["[[expect]]", *(f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in entry.items() if value), ""])


def stale(expected: list[Expectation]) -> Iterator[Row]:
    """Yield a failing row for each entry that matched nothing."""
    for each in expected:
        if not each.used:
            yield Row("", f"expectation {each}", state="fail", message="it matches no row; remove the entry", reason=each.reason)


def locked(rows: Iterable[Row], path: Path, level: str, devices: tuple[str, ...] | None = None) -> Iterator[Row]:
    """Yield a failing row for each check of an operation that ran fewer samples than the lock file has for this level, on these devices."""
    if not path.is_file():
        raise BadExpectations(f"there is no lock file {path}; write it with --update-lock")
    try:
        lock = json.loads(path.read_text(encoding="utf-8"))
        ran_before: dict[str, dict[str, int]] = lock["ran"]
    except (ValueError, KeyError, TypeError):
        raise BadExpectations(f"{path} is not a lock file of the suite; write it again with --update-lock") from None
    if lock["level"] != level:
        return
    now = counts(rows)
    for key, checks in ran_before.items():
        operation, device = key.split()
        for check, n in checks.items() if devices is None or device in devices else ():
            if (ran := now.get(key, {}).get(check, 0)) < n:
                message = f"{ran} samples were run where {n} are locked; if that is meant, run the suite with --update-lock"
                yield Row(operation, f"lock of {check}", "", device, "fail", ran, n, message=message)


def counts(rows: Iterable[Row]) -> dict[str, dict[str, int]]:
    """Count the samples that the executor ran of each operation and device, by check, in all dtypes together."""
    checks_by_operation: dict[str, dict[str, int]] = {}
    for row in rows:
        if row.ran and row.operation and row.check not in ("speed", "memory", "composition"):
            checks = checks_by_operation.setdefault(f"{row.operation} {row.device}", {})
            checks[row.check] = checks.get(row.check, 0) + row.ran
    return checks_by_operation


def write_lock(rows: Iterable[Row], path: Path, suite_version: str, level: str) -> None:
    """Write what `locked` reads, a line for each operation."""
    lines = [f"  {json.dumps(key)}: {json.dumps(checks, sort_keys=True)}" for key, checks in sorted(counts(rows).items())]
    head = f'"suite": {json.dumps(suite_version)},\n "level": {json.dumps(level)}'
    path.write_text("{" + head + ',\n "ran": {\n' + ",\n".join(lines) + "\n }\n}\n", encoding="utf-8")

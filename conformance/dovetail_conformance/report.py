"""The results of a run of the suite: rows, and the environment they come from; as JSON and back.

The JSON follows `report.schema.json`, which is published with the package.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

FORMAT = 1  # of the JSON; other formats are refused

# state: (whether it fails the run, its meaning)
STATES: dict[str, tuple[bool, str]] = {
    "pass": (False, "the executor ran every sample that it claimed, and was right"),
    "partly": (False, "right, and other executors ran a part of it"),
    "fail": (True, "a result, a gradient, an error or a claim is wrong"),
    "error": (True, "the executor raised an error where a result is expected"),
    "crash": (True, "the process died"),
    "timeout": (True, "it exceeded the time limit"),
    "unsupported": (False, "the executor says that it does not support this"),
    "not-claimed": (False, "the executor took none of the samples"),
    "xfail": (False, "known to fail, with a reason, and it does"),
    "xpass": (True, "expected to fail, and it passes: the expectation is out of date"),
    "flaky": (True, "it failed, and passed when it was run again, or with another seed"),
    "waived": (False, "skipped on purpose, with a reason"),
    "not-run": (False, "the device is missing, or the executor is not available"),
}
COUNTED = ("pass", "partly", "fail", "error", "crash", "timeout", "xfail", "xpass", "flaky", "waived")  # what an executor's score is out of

WORST = ("crash", "timeout", "error", "fail", "flaky", "xpass", "xfail", "waived", "partly")  # one row of such a state decides for its cell


@dataclass
class Row:
    """One check of one operation with one dtype on one kind of device.

    `operation` is an operation's id ("torch.softmax", "prims.sin"), or the name of a program for checks of whole programs, or "" for those
    of the executor as a whole.  Of `samples` samples the executor under test ran `ran`, as the executed traces show; `lines` is how many of
    their lines were its, of how many.  `message` is a sentence; `replay` a script that shows the failure without the suite; `new` marks a case
    that came with this version of the suite and does not count yet.  `against` is what a call takes relative to eager's: time, in rows of
    `speed`, or memory, in rows of `memory`.  `one_way` has the conditions of the executor's own code that no call of `branches` met.
    """

    operation: str
    check: str
    dtype: str = ""
    device: str = "cpu"
    state: str = "pass"
    ran: int = 0
    samples: int = 0
    lines: tuple[int, int] = (0, 0)
    message: str = ""
    replay: str = ""
    reason: str = ""
    seconds: float = 0.0
    new: bool = False
    against: float | None = None
    one_way: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, str, str, str]:
        """The identity of the row within its report."""
        return self.operation, self.check, self.dtype, self.device

    @property
    def failed(self) -> bool:
        """Whether the row fails the run."""
        return STATES[self.state][0] and not self.new

    def __str__(self) -> str:
        return "-".join(part for part in (self.operation or "executor", self.dtype, self.device, self.check) if part)


@dataclass
class Report:
    """The rows of one executor at one level, and the environment they come from.

    `suite` has the version and the hash of the suite, `executor` the name, version, distribution and declaration of the executor,
    `environment` the versions and the machine, `source` the commit of the executor's repository and whether it was clean.  It ran with `seeds`
    seeds, from `seed` on.
    """

    executor: dict[str, Any]
    level: str
    suite: dict[str, Any]
    environment: dict[str, Any] = field(default_factory=dict)
    source: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    seconds: float = 0.0
    created: str = ""
    rows: list[Row] = field(default_factory=list)
    seeds: int = 1

    @property
    def name(self) -> str:
        return self.executor["name"]

    @property
    def failures(self) -> list[Row]:
        """The rows that fail the run."""
        return [row for row in self.rows if row.failed]

    @property
    def counts(self) -> dict[str, int]:
        """How many rows there are in each state, in the order of STATES."""
        by_state = Counter(row.state for row in self.rows)
        return {state: by_state[state] for state in STATES if by_state[state]}

    @property
    def score(self) -> tuple[int, int]:
        """How many rows passed, out of those that count: declared refusals count as neither."""
        counted = [row for row in self.rows if row.state in COUNTED and not row.new]
        return sum(row.state == "pass" for row in counted), len(counted)

    @property
    def one_way(self) -> dict[str, list[str]]:
        """The conditions of the executor's own code that went one way only in all calls of `branches`, by operation."""
        rows = [row for row in self.rows if row.check == "branches"]
        return {row.operation: list(row.one_way) for row in rows if row.one_way}

    @property
    def operations(self) -> dict[str, int]:
        """How many operations the executor ran, how many it refused with a reason, and how many it was never offered."""
        states: dict[str, set[str]] = {}
        for row in self.rows:
            if row.operation and row.dtype and row.check == "claims":
                states.setdefault(row.operation, set()).add("ran" if row.ran else row.state)
        ran, refused = ({id for id, seen in states.items() if word in seen} for word in ("ran", "unsupported"))
        return {"ran": len(ran), "refused": len(refused - ran), "never seen": len(states.keys() - ran - refused)}

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def to_json(self) -> str:
        """Write the report as `report.schema.json` describes it."""
        message = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "rows"}
        passed, counted = self.score
        summary = {"counts": self.counts, "passed": passed, "counted": counted, "failed": len(self.failures)}
        return json.dumps({"format": FORMAT, **message, "summary": summary, "rows": [as_data(row) for row in self.rows]}, indent=1)

    def save(self, path: str | Path) -> None:
        Path(path).write_text(self.to_json() + "\n", encoding="utf-8")

    @classmethod
    def of_json(cls, text: str) -> Report:
        """Return the report that `to_json` wrote.  Raises ValueError, with the reason, for another text."""
        try:
            message = json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(f"this is not a report: invalid JSON: {error}") from None
        if not isinstance(message, dict) or message.get("format") != FORMAT:
            raise ValueError(f"this is not a report of format {FORMAT}; write one with `dovetail conformance NAME --json FILE`")
        return cls.of_data(message)

    @classmethod
    def of_data(cls, message: dict[str, Any]) -> Report:
        """Return the report with this data.  Raises ValueError, with the reason, for other data."""
        try:
            rows = [of_data(row) for row in message["rows"]]
            values = {f.name: message[f.name] for f in fields(cls) if f.name not in ("rows", "seeds")}
            report = cls(**values, rows=rows, seeds=message.get("seeds", 1))
            unknown = {row.state for row in rows} - set(STATES)
            named = isinstance(report.name, str)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ValueError(f"this is not a report as report.schema.json describes it: {type(error).__name__}: {error}") from None
        if unknown or not named:
            raise ValueError(
                f"this is not a report: {f'it has rows of the unknown state {min(map(str, unknown))}' if unknown else 'its executor has no name'}"
            )
        return report

    @classmethod
    def load(cls, path: str | Path) -> Report:
        return cls.of_json(Path(path).read_text(encoding="utf-8"))


_DEFAULTS = asdict(Row("", ""))


def as_data(row: Row) -> dict[str, Any]:
    """Convert a row to data for JSON, without fields that have their default."""
    data = {**asdict(row), "lines": list(row.lines), "seconds": round(row.seconds, 6)}
    return {key: value for key, value in data.items() if key in ("operation", "check", "state") or value not in (_DEFAULTS[key], [0, 0])}


def of_data(data: dict[str, Any]) -> Row:
    return Row(**{**data, "lines": tuple(data.get("lines", (0, 0))), "one_way": tuple(data.get("one_way", ()))})


def together(rows: Iterable[Row]) -> str:
    """Return the state of several rows as one: the worst; "partly" where some passed and others were refused."""
    states = {row.state for row in rows}
    for state in WORST:
        if state in states:
            return state
    refused = states & {"not-claimed", "unsupported"}
    if "pass" in states:
        return "partly" if refused else "pass"
    return min(refused, default="not-run")


def matrix(rows: Iterable[Row]) -> dict[str, dict[str, list[Row]]]:
    """Group rows by operation and then by dtype."""
    cells: dict[str, dict[str, list[Row]]] = {}
    for row in rows:
        cells.setdefault(row.operation, {}).setdefault(row.dtype, []).append(row)
    return cells

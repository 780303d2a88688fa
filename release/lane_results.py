"""The results of lanes, and their table in CONTRIBUTING.md."""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from packaging.version import Version

HERE = Path(__file__).parent
RESULTS = HERE / "results"
LEVELS = ("smoke", "core", "all")


@dataclass(frozen=True)
class Result:
    """One run of a lane at one level: on what, and how its tests ended; `skipped` counts tests by reason."""

    python: str
    torch: str
    platform: str
    commit: str
    date: str
    seconds: int
    passed: int
    xfailed: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)

    def summary(self) -> str:
        """Return the counts that are not zero, as pytest words them."""
        counts = {"failed": len(self.failed), "passed": self.passed, "skipped": sum(self.skipped.values()), "xfailed": self.xfailed}
        return ", ".join(f"{count:,} {name}" for name, count in counts.items() if count or name == "passed")


def outcomes(junit: Path) -> dict:
    """Return how the tests of a run ended, from the file that pytest's `--junitxml` writes."""
    cases = list(ElementTree.parse(junit).iter("testcase"))
    skips = [skip for case in cases if (skip := case.find("skipped")) is not None]
    expected = [skip for skip in skips if skip.get("type") == "pytest.xfail"]
    reasons = Counter(without_folders(" ".join((skip.get("message") or "no reason").split())) for skip in skips if skip not in expected)
    bad = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    failed = sorted({f"{case.get('classname')}::{case.get('name')}" for case in bad})
    counts = {"passed": len(cases) - len(skips) - len(bad), "xfailed": len(expected)}
    return counts | {"skipped": dict(reasons.most_common()), "failed": failed}


def without_folders(text: str) -> str:
    """Return a text with the last part of each absolute path alone: the folders are those of one machine."""
    return re.sub(r"(?<![\w.:/-])/(?:[^\s/:]+/)+", "", text)


def write(pair: str, level: str, result: Result, folder: Path = RESULTS) -> Path:
    """Put a result beside those of the pair's other levels."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{pair}.json"
    levels = json.loads(file.read_text()) if file.exists() else {}
    levels[level] = asdict(result)
    file.write_text(json.dumps({name: levels[name] for name in LEVELS if name in levels}, indent=2) + "\n")
    return file


def read(pair: str) -> dict[str, Result]:
    """Return the committed results of a pair of Python and torch, by level."""
    file = RESULTS / f"{pair}.json"
    return {level: Result(**values) for level, values in json.loads(file.read_text()).items()} if file.exists() else {}


def lanes() -> list[dict]:
    """Return the pairs that are kept up, with what there is to say of them, from lanes.toml."""
    return tomllib.loads((HERE / "lanes.toml").read_text())["lane"]


def newest_torch() -> str:
    """Return the minor version of the newest torch of which a result is committed."""
    versions = [Version(result.torch) for file in RESULTS.glob("*.json") for result in read(file.stem).values() if result.passed]
    newest = max(versions)
    return f"{newest.major}.{newest.minor}"


def table() -> str:
    """Return the table in CONTRIBUTING.md: a row for each pair, a column for each level."""
    rows = [f"| Python | torch | {' | '.join(LEVELS)} | |", "|---" * (len(LEVELS) + 3) + "|"]
    for lane in lanes():
        results = read(f"{lane['python']}-{lane['torch']}")
        cells = [cell(results.get(level)) for level in LEVELS]
        rows.append(f"| {lane['python']} | {lane['torch']} | {' | '.join(cells)} | {lane.get('note', '')} |")
    return "\n".join(rows)


def cell(result: Result | None) -> str:
    return f"{result.summary()}; {result.date}, `{result.commit[:9]}`" if result else "not run"

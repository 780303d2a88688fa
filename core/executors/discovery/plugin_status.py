"""What became of each plugin: one row for everything that is installed, named or known of, whatever its state."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

STATUSES: dict[str, str] = {
    "ready": "its executors are available",
    "disabled": "configuration, or a development plugin of the same name, keeps it out; it was not imported",
    "unavailable": "it loads, and this machine lacks what it needs",
    "unmet-requirement": "a distribution that it requires is missing or of another version; it was not imported",
    "incompatible": "it is built for another executor API, or another Python; it was not imported",
    "conflict": "another plugin provides an executor of the same name, and no setting chooses one",
    "import-failed": "importing its module, or what its hook imports, failed",
    "invalid": "it breaks the contract: its metadata, its hook, or what the hook returned",
    "absent": "it is known of, and not installed",
}


@dataclass(frozen=True)
class Plugin:
    """One plugin and what became of it.

    `name` and `value` are those of its entry point.  `status` is a key of `STATUSES`; `reason` says why, in a sentence, and `remedy` what
    would help.  `executors` are those that it brings, of a ready one those that are available.  `error` is the whole traceback, as text.
    `seconds` went into importing it and calling its hook.  A plugin that was loaded from a path without packaging has no distribution,
    hence no version either.
    """

    name: str
    value: str = ""
    distribution: str = ""
    version: str | None = None
    path: str = ""
    status: str = "ready"
    reason: str = ""
    remedy: str = ""
    executors: tuple[str, ...] = ()
    error: str = ""
    seconds: float = 0.0
    manifest: str = ""  # the file in which it declares itself without being imported

    @property
    def source(self) -> str:
        """The distribution with its version, or the path of a plugin that has none."""
        if self.status == "absent":
            return self.distribution
        return f"{self.distribution} {self.version or '(no version)'}" if self.distribution else self.path or self.value

    @property
    def side(self) -> str:
        """The plugin in a message about two of one name: distribution, version and path."""
        return f"{self.source} in {self.path}" if self.distribution else self.source

    @property
    def state(self) -> str:
        """The status, why, and what would help."""
        return "; ".join(part for part in (self.status, self.reason, self.remedy) if part)

    def row(self) -> dict[str, Any]:
        """Return the record as a dictionary that JSON can hold; every field is there."""
        return {field.name: list(value) if isinstance(value := getattr(self, field.name), tuple) else value for field in fields(self)}

    def __str__(self) -> str:
        return f"{self.name} ({self.source}): {self.state}"

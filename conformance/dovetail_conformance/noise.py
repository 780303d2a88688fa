"""What calls print and warn of."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from io import StringIO

INTERNAL = "Triggered internally"  # part of warnings of torch's own kernels, which may differ from eager's


@dataclass
class Noise:
    """The output of a call, and its warnings."""

    printed: str = ""
    warned: list[str] = field(default_factory=list)

    def __add__(self, other: Noise) -> Noise:
        return Noise(self.printed + other.printed, [*self.warned, *other.warned])

    def beyond(self, other: Noise) -> str | None:
        """Describe output, or a warning, that a call has and eager's call does not; None where there is none."""
        if self.printed and not other.printed:
            return f"a call printed {self.printed[:80]!r}"
        new = [text for text in self.warned if text not in other.warned]
        return f"a call warned, and eager does not: {new[0]}" if new else None


def texts(caught: list[warnings.WarningMessage]) -> list[str]:
    """Return the warnings of a call as text, but for those of torch's own kernels and of objects that happen to be collected."""
    lines = [f"{each.category.__name__}: {each.message}" for each in caught if not issubclass(each.category, ResourceWarning)]
    return [text for text in lines if INTERNAL not in text]


@contextmanager
def recording_noise() -> Iterator[Noise]:
    """Keep what Python code prints, and its warnings, while open."""
    noise, text = Noise(), StringIO()
    try:
        with warnings.catch_warnings(record=True) as caught, redirect_stdout(text), redirect_stderr(text):
            warnings.simplefilter("always")
            yield noise
    finally:
        noise.printed, noise.warned = text.getvalue(), texts(caught)

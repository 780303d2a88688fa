"""Options are parsed strictly: an invalid value is an error, never a default."""

from __future__ import annotations

import re

import pytest

from dovetail import options
from dovetail.errors import DovetailError


@pytest.mark.parametrize(("words", "value"), [(None, 0), ("", 0), (" 2 ", 2), ("0", 0), ("4", 4)])
def test_debug(monkeypatch, words, value):
    monkeypatch.delenv("DOVETAIL_DEBUG", raising=False)
    if words is not None:
        monkeypatch.setenv("DOVETAIL_DEBUG", words)

    assert options.debug() == value


@pytest.mark.parametrize("words", ["5", "-1", "yes", "1.0", "\N{SUPERSCRIPT TWO}"])
def test_an_invalid_value_is_an_error_that_names_the_valid_ones(monkeypatch, words):
    monkeypatch.setenv("DOVETAIL_DEBUG", words)

    with pytest.raises(DovetailError, match=re.escape(f"invalid value {words!r} for DOVETAIL_DEBUG: expected a number from 0 to 4")):
        options.debug()


@pytest.mark.parametrize("option", options.OPTIONS, ids=lambda option: option.name)
def test_every_option_is_documented(root, option):
    assert option.name.startswith(options.PREFIX)
    assert f"## `{option.name}`" in (root / "docs" / "options.md").read_text()


def test_the_environment_is_read_in_one_file(root):
    readers = {file.name for file in (root / "core").rglob("*.py") if re.search(r"\bos\.environ\b|\bgetenv\b", file.read_text())}

    assert readers <= {"options.py"}

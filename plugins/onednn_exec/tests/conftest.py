"""The plugin is the installed one; nothing reads or writes the user's cache."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))


@pytest.fixture(autouse=True)
def measured_elsewhere(tmp_path, monkeypatch):
    """What a test measures is kept in a folder of its own."""
    from dovetail_onednn_exec import store

    monkeypatch.setattr(store, "user_cache_path", lambda name: tmp_path / name)

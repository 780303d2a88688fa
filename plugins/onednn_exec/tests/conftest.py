"""The plugin is imported from its folder, whether or not it is installed; nothing reads or writes the user's cache."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(folder) for folder in (HERE, HERE.parent) if str(folder) not in sys.path]


@pytest.fixture(autouse=True)
def measured_elsewhere(tmp_path, monkeypatch):
    """What a test measures is kept in a folder of its own."""
    from dovetail_onednn_exec import store

    monkeypatch.setattr(store, "user_cache_path", lambda name: tmp_path / name)

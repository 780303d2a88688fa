"""A pytest plugin for lanes: what is installed there must not be imported from the source.

It is copied into the lane's environment, and loaded with `-p wheels_only`.
"""

from __future__ import annotations

import importlib.metadata
import sys
import sysconfig
from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def wheels_only():
    """Fail at the end of a process that imported an installed package from elsewhere."""
    yield
    strangers = elsewhere(Path(sysconfig.get_paths()["purelib"]))
    assert not strangers, f"the installed wheels are to be tested, and this was imported from elsewhere: {strangers}"


def elsewhere(site: Path) -> list[str]:
    """Return the files of modules that belong to an installed distribution of Dovetail and were not imported from `site`."""
    brings = importlib.metadata.packages_distributions()
    ours = {package for package, names in brings.items() if any(name.startswith("dovetail") for name in names)}
    files = [getattr(module, "__file__", None) for name, module in list(sys.modules.items()) if name.partition(".")[0] in ours]
    return sorted(file for file in files if file and site not in Path(file).parents)

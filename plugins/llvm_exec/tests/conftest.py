"""The plugin is imported from its folder, whether or not it is installed."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(folder) for folder in (HERE, HERE.parent, HERE.parent / "fit", HERE.parents[2] / "tests" / "models")]

"""Tests here share helpers, the scripts that fit polynomials, and networks with those of models; the plugin is the installed one."""

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(folder) for folder in (HERE, HERE.parent / "fit", HERE.parents[2] / "tests" / "models")]

"""The plugin is imported from its folder, whether or not it is installed."""

import importlib.util
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parents[2] / "tests" / "models")]
if importlib.util.find_spec("dovetail_nvfuser_exec") is None:
    sys.path.insert(0, str(HERE.parent))

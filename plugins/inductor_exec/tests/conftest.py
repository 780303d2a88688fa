"""The plugin is imported from its folder, whether or not it is installed; Inductor compiles in this process, one kernel after the other."""

import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(folder) for folder in (HERE, HERE.parent, HERE.parents[2] / "tests" / "models") if str(folder) not in sys.path]
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

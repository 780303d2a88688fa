"""Without a CUDA device kernels run in Triton's interpreter, which has to be asked for before triton is first imported."""

import importlib.util
import os
import sys
from pathlib import Path

import torch

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
if importlib.util.find_spec("dovetail_triton_exec") is None:
    sys.path.insert(0, str(HERE.parent))
if importlib.util.find_spec("triton") is not None and "triton" not in sys.modules and not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"

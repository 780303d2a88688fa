import sys
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "models")]


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)

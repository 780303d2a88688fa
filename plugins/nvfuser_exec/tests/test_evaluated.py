"""What definitions compute, by nvFuser's own evaluator on the CPU, is what PyTorch computes; see evaluate.py."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
import torch

from dovetail_nvfuser_exec.translators import RULES

HERE = Path(__file__).parent
UNKNOWN = ("Unexpected operator type", "Result is dynamic but not convertible to result type")  # it has no such operation, on tensors
NOT_EVALUATED = frozenset(  # prims that are in the goldens alone, under the names of functions that kernels call
    "acos acosh asin asinh atan atan2 atanh cosh erfc erfinv exp2 expm1 fmod isinf isnan lgamma log log10 log1p log2 nextafter".split()  # noqa: SIM905
    + "remainder sinh sqrt maximum minimum bitwise_left_shift bitwise_right_shift full iota".split()  # noqa: SIM905
)
ABSENT = "nvFuser is not installed; plugins/nvfuser_exec/lane.sh makes an environment that has it"
REASONS = {
    ABSENT: importlib.util.find_spec("nvfuser_direct") is None,
    "there is a CUDA device, where definitions run": torch.cuda.is_available(),
    "there is no C compiler for no_device.c": shutil.which("cc") is None,
}
lacking = next((message for message, holds in REASONS.items() if holds), "")
pytestmark = pytest.mark.skipif(bool(lacking), reason=lacking)


@pytest.fixture(scope="session")
def evaluated(tmp_path_factory):
    library = tmp_path_factory.mktemp("shim") / "no_device.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(HERE / "no_device.c")], check=True)
    environment = os.environ | {"LD_PRELOAD": str(library), "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}

    def run(*args: str) -> list:
        command = [sys.executable, "-X", "faulthandler", str(HERE / "evaluate.py"), *args]
        return json.loads(subprocess.check_output(command, env=environment, text=True))

    return run


@pytest.fixture(scope="session")
def rows(evaluated):
    return evaluated()


def test_nothing_differs(rows):
    failures = [row for row in rows if row[3] is not None and not any(each in row[3] for each in UNKNOWN)]

    assert not failures
    assert sum(row[3] is None for row in rows) > 1500


def test_every_other_translator_was_evaluated_for_some_dtype(rows):
    evaluated = defaultdict(set)
    for name, dtype, _, message in rows:
        if message is None:
            evaluated[name].add(dtype)

    assert set(RULES) - set(evaluated) == NOT_EVALUATED
    assert {"f64", "f32", "f16", "bf16"} <= evaluated["var_mean"] and {"i64", "i32"} <= evaluated["sum"] and evaluated["any"] == {"b8"}


def test_a_wrong_translator_is_found(evaluated):
    assert [("max abs error" in message) for _, _, _, message in evaluated("sin=cos")] == [True] * 4

"""Every translator, for every dtype it declares, makes a definition that nvFuser takes, and whose mathematics is that of a golden."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from translated import CASES, declared, example

import dovetail
from dovetail import prims
from dovetail.langs.torch import spec_of
from dovetail_nvfuser_exec.attention import DEFINE
from dovetail_nvfuser_exec.definitions import Definitions
from dovetail_nvfuser_exec.program import layout
from dovetail_nvfuser_exec.translators import RULES

nv = pytest.importorskip(
    "nvfuser_direct", reason="nvFuser is not installed; plugins/nvfuser_exec/lane.sh makes an environment that has it", exc_type=ImportError
)

FOLDER = Path(__file__).parent / "goldens"
STATE = ((2, 4, 8), torch.float32), (2, torch.int64), ((), torch.int64)
REGENERATE = os.environ.get("REGENERATE") == "1"


def mathematics(name: str, dtype) -> str:
    """What nvFuser understood of a prim for one dtype."""
    trace, _ = example(name, dtype)
    definition = Definitions().region(nv, trace).definition
    assert definition.fd.validate_definition() == (True, None)
    return printed(definition.fd)


def printed(fd) -> str:
    lines = fd.fusion.print_math().strip().splitlines()
    return "\n".join(line.rstrip() for line in lines if line.strip())


@pytest.mark.parametrize("name", RULES)
def test_the_mathematics_is_as_it_was_read(name):
    text = "".join(f"=== {name} of {dtype.short}\n{mathematics(name, dtype)}\n\n" for dtype in declared(name))
    path = FOLDER / f"{name}.txt"
    if REGENERATE:
        path.write_text(text)

    assert text == path.read_text(), f"{path.name} differs; if that is meant, REGENERATE=1 plugins/nvfuser_exec/lane.sh"


@pytest.mark.parametrize("causal", [False, True])
def test_the_mathematics_of_attention_is(causal):
    """Of [2, 4, 8, 16], laid out as projections leave it; its backward is given the state of a generator."""
    whole, low = ((2, 4, 8, 16), (512, 16, 64, 1)), nv.DataType.BFloat16
    dense = [layout(spec_of(torch.empty_strided(*whole, dtype=torch.bfloat16)), nv.compute_tensor_descriptor, False)]
    sums, seed, offset = (layout(spec_of(torch.zeros(shape, dtype=dtype)), nv.compute_tensor_descriptor, False) for shape, dtype in STATE)
    definitions = {
        "forward": DEFINE["forward"](nv, dense * 3, causal, 0.25),
        "backward": DEFINE["backward"](nv, [*dense * 5, sums, seed, offset], causal, None),
    }
    text = "".join(f"=== {name}\n{printed(fd)}\n\n" for name, fd in definitions.items())
    path = FOLDER / f"attention_{'causal' if causal else 'full'}.txt"
    if REGENERATE:
        path.write_text(text)

    assert low.name in str(definitions["forward"]) and text == path.read_text()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_writes_are_outputs_that_alias_inputs(dtype):
    def fn(p, g):
        prims.copy_(p, prims.mul(g, 2.0))
        return (prims.exp(g),)

    p, g = torch.ones(2, 3, dtype=dtype), torch.ones(2, 3, dtype=dtype)
    text = str(Definitions().region(nv, dovetail.make_trace(fn)(p, g)).definition)

    *_, returned, written = [line.strip() for line in text.splitlines() if "add_output" in line]
    assert returned.count("tv") == 1 and written.endswith(", tv0)")


def test_there_is_a_golden_for_each_translator_and_no_other():
    assert {path.stem for path in FOLDER.glob("*.txt")} == {*RULES, "attention_causal", "attention_full"}
    assert {name for name, _ in CASES} == set(RULES)

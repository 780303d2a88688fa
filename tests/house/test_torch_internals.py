"""Private parts of torch are reached in one place, each behind a probe; a torch that lacks them still runs programs."""

from __future__ import annotations

import re
import sys
from dataclasses import replace

import pytest
import torch
from click.testing import CliRunner
from packaging.version import Version

from dovetail.cli import main
from dovetail.cli.doctor import internals
from dovetail.torch_internals import CLAMP_BY_NUMBERS, INTERNALS, SUBGRADIENTS, Internal, aten, locate, modes

PRIVATE = re.compile(r"\btorch(?:\.\w+)*\._[A-Za-z]\w*")
ROOMS = ("core", "plugins", "conformance/dovetail_conformance", "examples", "benchmarks")
OWN = "core/torch_internals/"
# torch needs these itself: without them it does not import, or runs nothing
NEEDED_BY_TORCH = (
    "torch._ops.",
    "torch.utils._pytree",
    "torch.nn.Module.",
    "torch.autograd.Function.apply",
    "torch._C._set_grad_enabled",
    "torch._C._is_torch_function_mode_enabled",  # torch.autocast, which onednn enters where it measures for the first time on a machine
    "torch._disable_dynamo",
    "torch._C._get_tracing_state",
    "torch._C.DispatchKeySet",  # nested tensors, which the first backward of torch 2.15 imports
    "torch._guards.",
    "torch._subclasses.",
)
# subjects of the benchmarks are imported by name, and tests of plugins look at torch's own compiler
NOT_OURS = ("benchmarks/subjects.py", "/tests/")


def test_private_torch_is_touched_in_one_place(root):
    files = {str(file.relative_to(root)): file for room in ROOMS for file in (root / room).rglob("*.py")}
    elsewhere = [name for name in files if not name.startswith(OWN) and not any(part in name for part in NOT_OURS)]
    touching = [name for name in elsewhere if PRIVATE.search(files[name].read_text())]

    assert not touching, f"reach torch's private parts through dovetail.torch_internals, with a probe and a fallback: {touching}"


@pytest.mark.parametrize("part", INTERNALS, ids=lambda part: part.path)
def test_each_part_works_in_the_versions_it_was_seen_in(part):
    oldest, newest = (Version(version).release for version in part.seen)
    if not oldest <= Version(torch.__version__).release[:2] <= newest:
        pytest.skip(f"seen in torch {part.seen[0]} to {part.seen[1]}")

    assert part.problem is None


@pytest.mark.parametrize("part", INTERNALS, ids=lambda part: part.path)
def test_each_part_works_whatever_its_first_user_does(part):
    if part.costly or part.problem is not None:
        pytest.skip("this torch lacks it, or it takes seconds to import")
    problems = []

    class Probing(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            problems.append(replace(part).problem)
            return g

    x, y = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    torch.autograd.grad((Probing.apply(x) * y).sum(), x)
    with torch.inference_mode(), torch.autocast("cpu"), torch.device("meta"):
        problems.append(replace(part).problem)

    assert problems == [None, None]


def test_each_part_says_what_it_is_for():
    assert len({part.path for part in INTERNALS}) == len(INTERNALS)
    assert all(part.purpose and part.fallback and part.path.startswith("torch.") for part in INTERNALS)


WITHOUT = """
import importlib, sys, torch
paths = sys.argv[1:]
for path in paths:
    owner, _, name = path.rpartition(".")
    value = torch
    for i, part in enumerate(owner.split(".")[1:], 2):
        value = getattr(value, part) if hasattr(value, part) else importlib.import_module(".".join(owner.split(".")[:i]))
    delattr(value, name)
import dovetail
from dovetail.torch_internals import INTERNALS
print(*(part.path for part in INTERNALS if not part.costly and part.value is None))

def check(fn, *inputs):
    assert torch.allclose(dovetail.jit(fn)(*inputs), fn(*inputs), atol=1e-5)

check(lambda x: torch.softmax(x * 2, -1), torch.randn(8, 64))
deep = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(12)))
check(deep, torch.randn(2, 4))
check(deep, torch.randn(2, 4))
x = torch.randn(1000, 3000, requires_grad=True)
def plain(x):
    return (torch.nn.functional.gelu(x) * 2).cumsum(0)
f = dovetail.jit(plain)
for _ in range(3):
    (got,), (want,) = (torch.autograd.grad(fn(x).sum(), x) for fn in (f, plain))
    assert torch.allclose(got, want, rtol=1e-4, atol=1e-2)
"""


def test_a_torch_without_private_parts_runs_programs(python):
    torch.ops.mkldnn._linear_pointwise  # noqa: B018  operators are found when they are first named, and cannot be taken away
    gone = [part.path for part in INTERNALS if not part.path.startswith((*NEEDED_BY_TORCH, "torch.ops.")) and not part.costly]

    printed = python(WITHOUT.replace("sys.argv[1:]", repr(gone))).splitlines()

    assert set(gone) <= set(printed[0].split())


def test_without_fake_tensors_an_operation_without_a_decomposition_is_refused(monkeypatch):
    gone = Internal("torch._subclasses.nothing", "infer shapes", "operations without a decomposition are refused")
    monkeypatch.setattr(modes, "FAKE_TENSOR_MODE", gone)

    with pytest.raises(NotImplementedError, match=r"has no torch\._subclasses\.nothing; install a torch"):
        modes.fake_tensor_mode()


def test_a_part_that_misbehaves_is_not_used():
    raising = Internal("torch.add", "add", "nothing is added", probe=lambda add: add("no", "tensors"))
    wrong = Internal("torch.add", "add", "nothing is added", probe=lambda add: add(1, 1) == 3)

    assert "torch.add of torch" in raising.problem and "raises" in raising.problem and raising.usable is None
    assert wrong.problem.endswith("does not behave as expected") and wrong.usable is None


def test_a_missing_part_says_why(monkeypatch):
    with pytest.raises(LookupError, match=r"has no torch\.nn\.nothing"):
        locate("torch.nn.nothing.more")
    with pytest.raises(LookupError, match=r"has no torch\._inductor\.nothing"):
        locate("torch._inductor.nothing")
    with pytest.raises(NotImplementedError, match=r"no torch\.ops\.aten\.nothing\.default, which Dovetail calls"):
        aten("nothing.default")()


def test_the_doctor_lists_them():
    listed = CliRunner().invoke(main, ["doctor", "--internals"], env={"COLUMNS": "500"})

    assert listed.exit_code == 0
    assert all(part.path in listed.output and part.purpose in listed.output for part in INTERNALS)
    assert all(subgradient.operation in listed.output and subgradient.convention in listed.output for subgradient in SUBGRADIENTS)


@pytest.mark.parametrize("subgradient", SUBGRADIENTS, ids=lambda subgradient: subgradient.operation)
def test_each_subgradient_is_known_in_the_versions_it_was_seen_in(subgradient):
    version = Version(torch.__version__).release[:2]
    expected = [c.name for c in subgradient.conventions if Version(c.seen[0]).release <= version <= Version(c.seen[1]).release]
    if not expected:
        pytest.skip(f"nothing is known of the gradient of {subgradient.operation} in torch {torch.__version__}")

    assert [subgradient.convention] == expected
    assert subgradient.problem is None


CONTEXTS = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "meta device": lambda: torch.device("meta"),
    "fake tensors": modes.fake_tensor_mode,
}


@pytest.mark.parametrize("mode", [*CONTEXTS, "vmap", "grad"])
def test_probing_a_subgradient_ignores_the_modes_around_it(mode):
    probed = []

    def probe(x):
        probed.extend(replace(subgradient).gradients for subgradient in SUBGRADIENTS)
        return x.sum()

    if mode in CONTEXTS:
        with CONTEXTS[mode]():
            probe(torch.ones(2))
    else:
        getattr(torch.func, mode)(probe)(torch.ones(2))

    assert probed == [subgradient.gradients for subgradient in SUBGRADIENTS]


def test_an_unknown_subgradient_is_reported(monkeypatch):
    unknown = replace(CLAMP_BY_NUMBERS, function=lambda x: x * 3)
    monkeypatch.setattr(sys.modules[internals.__module__], "SUBGRADIENTS", (unknown,))

    assert unknown.convention == CLAMP_BY_NUMBERS.conventions[-1].name
    assert "is ((3.0, 3.0),)" in unknown.problem
    assert any(f.check == "gradients" and f.result == "note" and unknown.problem in f.message for f in internals())

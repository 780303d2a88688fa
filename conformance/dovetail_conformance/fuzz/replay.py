"""A finding as a script that stands alone: it ends with 1 while the program is wrong, and with 0 when it is right."""

from __future__ import annotations

from math import inf

from dovetail_conformance.fuzz.attempt import CALLS
from dovetail_conformance.fuzz.draft import LAYOUTS, Draft, widened
from dovetail_conformance.fuzz.shrink import Finding

HEAD = """import sys

import dovetail
import torch
import torch.nn.functional as F

torch.set_num_threads({threads})
"""
COMPARE = """
def run(function, xs, seed):
    results = function(*xs)
    ends = [(i, x) for i, x in enumerate(results) if x.requires_grad]
    leaves = [x for x in xs if x.requires_grad]
    flows = [torch.randn(x.shape, generator=torch.Generator().manual_seed(seed * 1009 + 500 + i)).bfloat16().to(x.dtype) for i, x in ends]
    gradients = torch.autograd.grad([x for _, x in ends], leaves, flows, allow_unused=True) if ends and leaves else []
    return [*results, *xs, *gradients]


def worst(got, expected, exact):
    \"\"\"Return the largest error, infinity where a NaN or an infinity is missing or out of place.\"\"\"
    if got is None or expected is None:
        return 0.0 if got is expected else float("inf")
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return float("inf")
    if not (got.is_floating_point() or got.is_complex()):
        return 0.0 if torch.equal(got, expected) else float("inf")
    got, expected = (x.detach().to(exact.dtype) for x in (got, expected))
    got, expected, exact = (torch.view_as_real(x.detach().resolve_conj()) if x.is_complex() else x.detach() for x in (got, expected, exact))
    same = torch.isfinite(got) == torch.isfinite(exact)
    settled = torch.isfinite(expected) == torch.isfinite(exact)
    error = torch.where(same, (got - exact).abs().nan_to_num(0.0, 0.0), torch.inf)
    return float(torch.where(settled, error, 0.0).max()) if error.numel() else 0.0

"""
MAIN = """
if __name__ == "__main__":
    compiled = dovetail.jit(program, executors={executors})
    errors = []
    with dovetail.use(trial="off", drafts=False):  # or the reference would stand in for what is wrong
        for seed in range({seed}, {seed} + {calls}):
            expected, precise = run(program, inputs(seed), seed), run(exactly, inputs(seed, wide=True), seed)
            for _ in range({repeats}):
                got = run(compiled, inputs(seed), seed)
                errors += [worst(*each) for each in zip(got, expected, precise, strict=True)]
    print(f"largest error {{max(errors):.3g}}; roundings explain less than {limit:.3g}")
    sys.exit(max(errors) > {limit!r})
"""


def replay(finding: Finding, title: str) -> str:
    """Return the script."""
    draft = finding.draft
    rows = [*(f"# {line}" for line in title.splitlines()), HEAD.format(threads=finding.setup.threads), ""]
    rows += [draft.source, ""]
    wide = widened(draft.source)
    rows += [wide.replace("def program", "def exactly"), ""] if wide != draft.source else ["exactly = program", "", ""]
    rows += [_inputs(draft), COMPARE]
    repeats = 20 if finding.setup.threads > 1 else finding.setup.repeats + 1
    rows.append(MAIN.format(executors=finding.setup.names, seed=finding.seed, calls=CALLS, repeats=repeats, limit=limit(finding)))
    return "\n".join(rows)


def limit(finding: Finding) -> float:
    """Return an error between what roundings explain and that of the finding."""
    difference = finding.fault.difference
    if difference is None or difference.error == inf:
        return max(1.0, 10 * difference.allowed) if difference else 1e300
    return max((difference.error * max(difference.allowed, difference.error * 1e-6)) ** 0.5, difference.error * 0.02)


def _inputs(draft: Draft) -> str:
    rows = ["def inputs(seed, wide=False):", "    values = []"]
    for i, x in enumerate(draft.inputs):
        rows += [f"    g, shape = torch.Generator().manual_seed(seed * 1009 + {i}), torch.Size({list(x.shape)})"]
        rows += [f"    v = ({x.drawing}).to(torch.{x.dtype})"]
        rows += [f"    v = v.to({'torch.complex128' if 'complex' in x.dtype else 'torch.float64'}) if wide else v"] if x.inexact else []
        rows += [f"    values.append({LAYOUTS[x.layout]}{'.detach().requires_grad_()' if draft.grad and x.grad else ''})"]
    return "\n".join([*rows, "    return values", ""])

"""Whether two results are the same, as far as rounding lets one say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

TOLERANCE = {  # (relative, absolute) by dtype, as torch.testing.assert_close has them
    torch.float16: (1e-3, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
    torch.float32: (1.3e-6, 1e-5),
    torch.float64: (1e-7, 1e-7),
    torch.complex64: (1.3e-6, 1e-5),
    torch.complex128: (1e-7, 1e-7),
}
NO_WORSE = 2.0  # how many times as far from the exact result as eager's a result may be


def flat(result: Any) -> list[Any]:
    """The leaves of nested tuples, lists and dicts."""
    if isinstance(result, (tuple, list)):
        return [x for item in result for x in flat(item)]
    if isinstance(result, dict):
        return [x for item in result.values() for x in flat(item)]
    return [result]


def differs(got: Any, expected: Any, exact: Any = None, *, slack: float = 1.0) -> str | None:
    """How `got` differs from what eager PyTorch gives, in figures; None where it does not.

    First by the tolerances of torch.testing; what is beyond them is right all the same where it is no further from the `exact` result,
    computed in twice the precision, than eager's own is, give or take a factor of NO_WORSE.  `slack` times the tolerances are allowed.
    """
    ours, theirs = flat(got), flat(expected)
    if len(ours) != len(theirs):
        return f"{len(ours)} results in place of {len(theirs)}"
    exacts = flat(exact) if exact is not None else []
    for i, (a, b) in enumerate(zip(ours, theirs)):
        said = _differs(a, b, exacts[i] if len(exacts) == len(theirs) else None, slack)
        if said is not None:
            return said if len(theirs) == 1 else f"result {i}: {said}"
    return None


def _differs(got: Any, expected: Any, exact: Any, slack: float) -> str | None:
    if not isinstance(expected, Tensor) or not isinstance(got, Tensor):
        same = type(got) is type(expected) and (got == expected or (got != got and expected != expected))
        return None if same else f"{got!r} in place of {expected!r}"
    if (got.dtype, got.shape, got.device) != (expected.dtype, expected.shape, expected.device):
        a, b = (f"{str(x.dtype).removeprefix('torch.')}{list(x.shape)} on {x.device}" for x in (got, expected))
        return f"{a} in place of {b}"
    if got.numel() == 0 or torch.equal(got, expected):
        return None
    wide = torch.complex128 if got.is_complex() else torch.float64
    if expected.dtype in (torch.int64, torch.int32):
        wide = torch.int64
    a, b = got.detach().to(wide), expected.detach().to(wide)
    relative, absolute = (slack * n for n in TOLERANCE.get(got.dtype, (0.0, 0.0)))
    off = ~torch.isclose(a, b, rtol=relative, atol=absolute, equal_nan=True) if wide is not torch.int64 else a != b
    if not bool(off.any()):
        return None
    if isinstance(exact, Tensor) and exact.shape == got.shape and exact.dtype == wide and _no_worse(a, b, exact, off):
        return None
    return _figures(a, b, off, got, relative, absolute)


def _no_worse(a: Tensor, b: Tensor, exact: Tensor, off: Tensor) -> bool:
    """Whether the elements that differ are as near to the exact ones as eager's are, in the worst case of each."""
    ours = (a - exact).abs()[off]
    return bool(torch.isfinite(ours).all()) and float(ours.max()) <= NO_WORSE * float((b - exact).abs().nan_to_num().max())


def _figures(a: Tensor, b: Tensor, off: Tensor, got: Tensor, relative: float, absolute: float) -> str:
    gap = torch.where(off, (a - b).abs().to(torch.float64), 0.0).nan_to_num(nan=float("inf"))
    at = int(gap.argmax())
    place = [int(i) for i in torch.unravel_index(torch.tensor(at), got.shape)]
    ours, theirs = a.flatten()[at].item(), b.flatten()[at].item()
    allowed = f"; allowed are {absolute:.2g} + {relative:.2g} of the value" if relative else ""
    return f"{int(off.sum())} of {got.numel()} elements differ, most at {place}: {ours:.7g} in place of {theirs:.7g}{allowed}"


def same_bits(got: Any, expected: Any) -> bool:
    """Whether two results hold the same bits; NaN is NaN."""
    return all(_same(a, b) for a, b in zip(flat(got), flat(expected), strict=True))


def _same(a: Any, b: Any) -> bool:
    if not isinstance(a, Tensor) or not isinstance(b, Tensor):
        return type(a) is type(b) and (a == b or (a != a and b != b))
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if torch.equal(a, b):
        return True
    parts = [torch.view_as_real(x.resolve_conj()) if x.is_complex() else x for x in (a.detach(), b.detach())]
    if not parts[0].is_floating_point():
        return False
    parts = [x.to(torch.float64) for x in parts]  # eight bits are not asked whether they are NaN
    return bool(torch.equal(*(x.isnan() for x in parts)) and torch.equal(*(x.nan_to_num() for x in parts)))


def tensors(result: Any) -> Iterator[Tensor]:
    """The tensors of a result."""
    return (x for x in flat(result) if isinstance(x, Tensor))

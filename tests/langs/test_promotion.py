"""Type promotion is PyTorch's, for every pair of dtypes, for tensors, 0-d tensors and numbers."""

from __future__ import annotations

import operator

import pytest
import torch

import dovetail
from dovetail import dtypes
from dovetail.langs.torch import TO_TORCH

OPERATORS = {
    **{name: getattr(operator, name) for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")},
    **{name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
}
NUMBERS = (True, 2, 2.0, 2j)
DTYPES = [TO_TORCH[d] for d in dtypes.ALL if d in TO_TORCH and not d.storage_only]


def operand(kind: str, dtype: torch.dtype) -> torch.Tensor:
    return torch.ones((2,) if kind == "tensor" else (), dtype=dtype)


def dtype_or_error(fn, *args):
    try:
        out = fn(*args)
    except (RuntimeError, NotImplementedError, TypeError):
        return "an error"
    return out.dtype


def traced_dtype(fn, *args):
    try:
        return TO_TORCH[dovetail.make_trace(fn)(*args).outputs.spec.dtype]
    except (RuntimeError, NotImplementedError, TypeError):
        return "an error"


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("kinds", [("tensor", "tensor"), ("tensor", "scalar"), ("scalar", "tensor"), ("scalar", "scalar")], ids="-".join)
def test_scenario_24_pairs_of_tensors_promote_as_in_eager(name, kinds):
    wrong = []
    for a in DTYPES:
        for b in DTYPES:
            args = operand(kinds[0], a), operand(kinds[1], b)
            want = dtype_or_error(OPERATORS[name], *args)
            got = traced_dtype(OPERATORS[name], *args)
            if want != got and not refused_in_one_only(name, a, b):
                wrong.append(f"{a} {name} {b}: {got} instead of {want}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("kind", ["tensor", "scalar"])
def test_scenario_24_a_tensor_and_a_number_promote_as_in_eager(name, kind):
    wrong = []
    for dtype in DTYPES:
        for number in NUMBERS:
            for order in (lambda x, fn=OPERATORS[name], number=number: fn(x, number), lambda x, fn=OPERATORS[name], number=number: fn(number, x)):
                x = operand(kind, dtype)
                want, got = dtype_or_error(order, x), traced_dtype(order, x)
                if want != got and not refused_in_one_only(name, dtype, number):
                    wrong.append(f"{dtype} {name} {number}: {got} instead of {want}")
    assert not wrong, "\n".join(wrong)


def refused_in_one_only(name, a, b) -> bool:
    """Pairs of which one side raises for a reason of its own: kernels that this torch lacks, complex dtypes that Dovetail lacks."""
    narrow = {torch.float16, torch.bfloat16} if hasattr(torch, "bcomplex32") else {torch.float16}
    halves = not narrow.isdisjoint({a, b}) and (isinstance(b, complex) or any(isinstance(d, torch.dtype) and d.is_complex for d in (a, b)))
    kernels = any(d in (torch.uint16, torch.uint32, torch.uint64) for d in (a, b))
    return halves or kernels


class Unknown:
    """No operand of any tensor."""


REFLECTED = ["radd", "rsub", "rmul", "rtruediv", "rfloordiv", "rmod", "rpow", "rmatmul", "rlshift", "rrshift", "rand", "ror", "rxor"]


@pytest.mark.parametrize("name", [f"__{name}__" for name in ("add", "pow", *REFLECTED)])
def test_a_method_of_an_operator_declines_what_is_no_operand(name):
    def decline(x):
        return getattr(x, name)(Unknown())

    assert decline(torch.ones(2)) is NotImplemented
    assert dovetail.jit(decline)(torch.ones(2)) is NotImplemented


@pytest.mark.parametrize("operator", [lambda x: Unknown() + x, lambda x: None - x, lambda x: [1] @ x, lambda x: {} ** x, lambda x: x + "a"])
def test_an_operator_of_what_is_no_operand_raises_what_eager_mode_raises(operator):
    with pytest.raises(TypeError) as raised:
        operator(torch.ones(2))
    with pytest.raises(TypeError) as traced:
        dovetail.jit(operator)(torch.ones(2))
    assert str(traced.value) == str(raised.value)

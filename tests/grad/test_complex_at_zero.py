"""Gradients of complex functions at zero, where PyTorch defines them, for cotangents that are not finite."""

from __future__ import annotations

from math import inf, nan

import pytest
import torch

import dovetail

Z = [0j, 0j, 0j, complex(-0.0, 0.0), complex(0.0, -0.0), 1j, complex(inf, 0.0), complex(nan, 1.0)]
G = [complex(nan, 1.0), complex(inf, 0.0), 1j, complex(0.0, nan), complex(-inf, inf), complex(inf, 1.0), 1.0, 1.0]
FUNCTIONS = ("sgn", "angle", "abs", "sqrt", "rsqrt", "reciprocal", "log", "exp", "sin", "tanh", "square", "neg", "real", "conj_physical", "sigmoid")


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_gradient_is_eagers(name: str, dtype: torch.dtype):
    function, gradients = getattr(torch, name), []
    for fn in (function, dovetail.jit(function)):
        z = torch.tensor(Z, dtype=dtype, requires_grad=True)
        out = fn(z)
        g = torch.tensor(G, dtype=dtype)
        gradients.append(torch.autograd.grad(out, z, g if out.is_complex() else g.real.clone())[0])

    torch.testing.assert_close(gradients[1][:5], gradients[0][:5], equal_nan=True)

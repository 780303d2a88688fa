"""What becomes of a call with something that cannot be traced: it runs in eager mode, and says why, or is an error where that is wanted."""

from __future__ import annotations

import itertools
import threading
import warnings

import numpy as np
import pytest
import torch

import dovetail
from dovetail.errors import DovetailError, Unsupported
from dovetail.extend import Trace

ADJACENCY = torch.eye(3).to_sparse()


def doubled_sparse(x):
    return x.to_sparse().to_dense() * 2


def in_a_thread(x):
    results = []
    thread = threading.Thread(target=lambda: results.append(x + 1))
    thread.start()
    thread.join()
    return results[0]


def advanced(x, steps=itertools.count(1)):  # noqa: B008
    return x * next(steps)


def noted(x, notes=[]):  # noqa: B006
    notes.append(x.sum())
    return x.data_ptr() > 0, len(notes), x.to_mkldnn().to_dense() + sum(notes)


def quantized(x):
    return torch.quantize_per_tensor(x, 0.5, 0, torch.qint8).dequantize()


def trained(x):
    weight = torch.ones(3, requires_grad=True)
    (weight * x * torch.sparse.sum(ADJACENCY, 1).to_dense()).sum().backward()
    return weight.grad


PROGRAMS = [doubled_sparse, in_a_thread, advanced, noted, quantized, trained, lambda x: dovetail.grad(lambda x: doubled_sparse(x).sum())(x)]


@pytest.fixture(autouse=True)
def _default(monkeypatch):
    monkeypatch.delenv("DOVETAIL_UNSUPPORTED", raising=False)


def fresh(program):
    """Return a copy of a function with defaults of its own, as it was before any call."""
    kinds = {itertools.count: lambda: itertools.count(1), list: list}
    copied = type(program)(program.__code__, program.__globals__, program.__name__, None, program.__closure__)
    copied.__defaults__ = program.__defaults__ and tuple([kinds[type(default)]() for default in program.__defaults__])
    return copied


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.filterwarnings("ignore:.*run in eager mode", "ignore:Sparse")
def test_what_cannot_be_traced_runs_in_eager_mode(program):
    compiled, eager = dovetail.jit(fresh(program)), fresh(program)

    for shift in range(4):
        x = torch.arange(9.0).reshape(3, 3) + shift
        actual, expected = compiled(x.clone()), eager(x.clone())
        torch.testing.assert_close(actual, expected, rtol=0, atol=0)
    assert compiled.cache_info().programs == 0


def test_the_first_call_says_why_and_no_other_does():
    compiled = dovetail.jit(doubled_sparse)

    with pytest.warns(UserWarning, match=r"doubled_sparse: calls like this one run in eager mode, since torch.Tensor.to_sparse is not traced"):
        compiled(torch.ones(3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for size in (3, 3, 3, 4):
            compiled(torch.ones(size))
    with pytest.raises(DovetailError, match=r"nothing is compiled: calls run in eager mode, since torch.Tensor.to_sparse is not traced"):
        dovetail.last_traces(compiled)


@pytest.mark.filterwarnings("ignore:.*run in eager mode")
def test_calls_that_can_be_traced_are_compiled_beside_others():
    compiled = dovetail.jit(lambda x, sparse: doubled_sparse(x) if sparse else x * 2)

    for sparse in (True, False, True, False):
        torch.testing.assert_close(compiled(torch.ones(3), sparse), torch.full((3,), 2.0))
    assert compiled.cache_info().programs == 1


WITHOUT_A_DTYPE = {
    "creating": lambda x: torch.zeros(3, dtype=torch.complex32).dtype,
    "drawing": lambda x: torch.randn(3, dtype=torch.complex32).shape,
    "converting": lambda x: x.to(torch.complex32).to(torch.complex64),
    "viewing": lambda x: torch.stack([x, x], -1).half().view(torch.complex32).to(torch.complex64),
    "promotion": lambda x: (x.half() * 1j).to(torch.complex64),
    "promotion of a tensor": lambda x: (x.half() + torch.ones((), dtype=torch.complex64)).to(torch.complex64),
    "result_type": lambda x: torch.result_type(x.half(), 1j),
    "complex of halves": lambda x: torch.complex(x.half(), x.half()).to(torch.complex64),
    "complex view": lambda x: torch.view_as_complex(torch.stack([x, x], -1).half()).to(torch.complex64),
    "a number of NumPy": lambda x: (x.numpy() * np.longdouble(2)).dtype,
    "an array of NumPy": lambda x: (x.numpy() + np.ones(3, np.longdouble)).dtype,
    "a class of NumPy": lambda x: np.add(x.numpy(), np.ma.masked_less(np.arange(3.0), 1)).sum(),
    "a method of C code on a class of NumPy": lambda x: np.ma.masked_less(np.arange(3.0), 1).sum() + x.numpy().sum(),
    "strings": lambda x: x.numpy().astype(str).tolist(),
    "sorting complex numbers": lambda x: np.sort(x.numpy() * 1j),
    "the largest complex number": lambda x: np.max(x.numpy() + 1j),
    "where the largest is": lambda x: np.argmax(x.numpy() + 1j),
}


@pytest.mark.filterwarnings("ignore:.*run in eager mode", "ignore:ComplexHalf")
@pytest.mark.parametrize("program", WITHOUT_A_DTYPE.values(), ids=WITHOUT_A_DTYPE)
def test_what_only_pytorch_or_numpy_can_hold_or_order_runs_in_eager_mode(program):
    compiled, x = dovetail.jit(program), torch.tensor([2.0, -1.0, 3.0])

    for _ in range(2):
        assert np.all(np.asarray(compiled(x) == program(x)))


@pytest.mark.filterwarnings("ignore:.*run in eager mode")
def test_an_error_of_the_function_itself_is_the_one_of_eager_mode():
    def program(x):
        doubled_sparse(x)
        return x.reshape(5)

    with pytest.raises(RuntimeError, match=r"shape '\[5\]' is invalid for input of size 3"):
        dovetail.jit(program)(torch.ones(3))


@pytest.mark.filterwarnings("ignore:.*run in eager mode")
def test_a_module_runs_as_it_stands():
    class Graph(torch.nn.Linear):
        def forward(self, x):
            return torch.sparse.mm(x.to_sparse(), self.weight) + self.bias

    module = Graph(3, 3)
    compiled, x = dovetail.jit(module), torch.randn(3, 3)

    for _ in range(3):
        compiled(x).sum().backward()
        grads = [p.grad.clone() for p in module.parameters()]
        module.zero_grad()
        module(x).sum().backward()
        torch.testing.assert_close(grads, [p.grad for p in module.parameters()])
        module.zero_grad()


def same(trace: Trace) -> Trace:
    return trace


@pytest.mark.parametrize(
    "how",
    [{"unsupported": "error"}, {"decisions": "error"}, {"interpretation": "native"}, {"cache": "same input"}, {"passes": [same]}],
    ids=lambda how: next(iter(how)),
)
def test_where_the_program_has_to_be_one_it_is_an_error(how):
    compiled = dovetail.jit(doubled_sparse, **how)

    for _ in range(3):
        with pytest.raises(Unsupported, match="to_sparse is not traced: tensors that are not strided are not traced; convert outside"):
            compiled(torch.ones(3))


def test_the_option_decides_where_jit_does_not(monkeypatch):
    monkeypatch.setenv("DOVETAIL_UNSUPPORTED", "error")
    with pytest.raises(Unsupported):
        dovetail.jit(doubled_sparse)(torch.ones(3))
    with pytest.warns(UserWarning, match="run in eager mode"):
        dovetail.jit(doubled_sparse, unsupported="eager")(torch.ones(3))


def test_functions_of_programs_raise():
    with pytest.raises(Unsupported):
        dovetail.make_trace(doubled_sparse)(torch.ones(3))
    with pytest.raises(Unsupported):
        dovetail.verify(doubled_sparse, torch.ones(3))


def test_another_value_is_an_error():
    with pytest.raises(DovetailError, match="unsupported is 'eager' or 'error', not 'ignore'"):
        dovetail.jit(doubled_sparse, unsupported="ignore")

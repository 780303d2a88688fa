"""Sparse matrices in compiled functions: their products with dense tensors are traced, what is not runs in eager mode."""

from __future__ import annotations

import pytest
import torch

import dovetail
from dovetail.errors import Unsupported

SIZES = [(5, 4), (5, 4), (6, 4), (7, 5), (8, 9), (3, 2)]


def matrix(rows, columns, seed=0, dtype=torch.float32):
    generator = torch.Generator().manual_seed(seed)
    full = torch.randn(rows, columns, generator=generator, dtype=dtype)
    return full * (torch.rand(rows, columns, generator=generator) > 0.6)


def dense(rows, columns, seed=0, dtype=torch.float32):
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(100 + seed), dtype=dtype)


PROGRAMS = {
    "mm": torch.mm,
    "spmm": lambda a, x: torch.spmm(a, x) * 2,
    "sparse.mm": lambda a, x: torch.sparse.mm(a, x).relu(),
    "an operator": lambda a, x: a @ (x * 2),
    "transposed": lambda a, x: a.t() @ (a @ x),
    "in a loop": lambda a, x: [x := a.t() @ torch.sparse.mm(a, x) * 0.1 for _ in range(3)][-1],
    "a vector": lambda a, x: torch.mv(a, x[:, 0]) + a @ x[:, 1],
    "addmm": lambda a, x: torch.sparse.addmm(torch.ones(a.shape[0], x.shape[1]), a, x, beta=0.5, alpha=2),
    "dense": lambda a, x: a.to_dense() @ x,
    "what it is": lambda a, x: x * a.shape[0] + a.size(1) + len(a.shape) + isinstance(a, torch.Tensor) + (a.layout is torch.strided) + a.is_sparse,
    "compressed rows": lambda a, x: torch.sparse.mm(a.to_sparse_csr(), x),
    "its parts": lambda a, x: (a.coalesce() @ x) * a.is_coalesced() + a.values().sum() + a.indices().sum() + a._nnz(),
    "normed": lambda a, x: (a @ x) / (a @ x.new_ones(a.shape[1], 1) + 10),
    "detached": lambda a, x: a.detach().to(torch.float32) @ x,
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_products_are_those_of_eager_mode(program):
    fn = PROGRAMS[program]
    compiled = dovetail.jit(fn)
    for i, (rows, columns) in enumerate(SIZES):
        a = matrix(rows, columns, i).to_sparse()
        x, y = (dense(columns, 3, i).requires_grad_() for _ in range(2))
        actual, expected = compiled(a, x), fn(a, y)
        torch.testing.assert_close(actual, expected)
        actual.square().sum().backward()
        expected.square().sum().backward()
        torch.testing.assert_close(x.grad, y.grad)
    assert len(dovetail.cache_misses(compiled)) <= 5  # each size that changes becomes a symbol


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex64, torch.float16, torch.bfloat16])
def test_products_in_other_dtypes(dtype):
    a, x = matrix(6, 5, dtype=dtype), dense(5, 3, dtype=dtype)
    actual = dovetail.jit(torch.mm)(a.to_sparse(), x)
    assert actual.dtype is dtype
    tolerance = {"rtol": 2e-2, "atol": 2e-2} if dtype in (torch.float16, torch.bfloat16) else {}
    torch.testing.assert_close(actual, a @ x, **tolerance)


class Graph(torch.nn.Module):
    def __init__(self, adjacency):
        super().__init__()
        self.register_buffer("adjacency", adjacency)
        self.first, self.second = torch.nn.Linear(4, 8), torch.nn.Linear(8, 3)

    def forward(self, x):
        hidden = torch.spmm(self.adjacency, self.first(x)).relu()
        return self.adjacency @ self.second(hidden)


def test_a_graph_network_trains_as_in_eager_mode():
    models = []
    for compile in (lambda model: model, dovetail.jit):
        torch.manual_seed(0)
        model = compile(Graph(matrix(9, 9).to_sparse()))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(4):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(dense(9, 4, step)), torch.arange(9) % 3).backward()
            optimizer.step()
        models.append(model)
    for actual, expected in zip(models[1].parameters(), models[0].parameters(), strict=True):
        torch.testing.assert_close(actual, expected)
    assert dovetail.cache_misses(models[1]) == ["the first call"]


def histogram(a, b):
    return torch.sparse_coo_tensor(torch.stack((a, b)), torch.ones_like(a, dtype=torch.float32), (4, 5)).to_dense()


def weighted(edges, weight, x):
    return torch.sparse.mm(torch.sparse_coo_tensor(edges, weight.sigmoid(), (6, 6)), x).tanh().sum()


def test_a_matrix_that_the_program_creates():
    compiled = dovetail.jit(histogram)
    for count in (7, 7, 30, 0):
        a, b = torch.randint(0, 4, (count,)), torch.randint(0, 5, (count,))
        torch.testing.assert_close(compiled(a, b), histogram(a, b))


def test_the_gradient_reaches_the_values_of_a_matrix():
    edges = torch.randint(0, 6, (2, 12), generator=torch.Generator().manual_seed(1))
    inputs = [[dense(12, 1)[:, 0].requires_grad_(), dense(6, 3).requires_grad_()] for _ in range(2)]
    for run, (weight, x) in zip((weighted, dovetail.jit(weighted)), inputs, strict=True):
        run(edges, weight, x).backward()
    for expected, actual in zip(*inputs, strict=True):
        torch.testing.assert_close(actual.grad, expected.grad)


def test_a_detached_matrix_has_no_gradient():
    def program(edges, weight, x):
        created = torch.sparse_coo_tensor(edges, weight.sigmoid(), (6, 6))
        return (created @ x).sum() + (created.detach() @ x).square().sum()

    edges = torch.randint(0, 6, (2, 12), generator=torch.Generator().manual_seed(1))
    inputs = [[dense(12, 1)[:, 0].requires_grad_(), dense(6, 3).requires_grad_()] for _ in range(2)]
    for run, (weight, x) in zip((program, dovetail.jit(program)), inputs, strict=True):
        run(edges, weight, x).backward()
    for expected, actual in zip(*inputs, strict=True):
        torch.testing.assert_close(actual.grad, expected.grad)


def test_a_matrix_leaves_the_function():
    def program(a, edges, values):
        return a, torch.sparse_coo_tensor(edges, values * 2, (4, 4)), a @ values[:4]

    a, edges, values = matrix(3, 4).to_sparse(), torch.tensor([[0, 1, 3, 1], [2, 2, 0, 2]]), torch.arange(4.0)
    same, created, product = dovetail.jit(program)(a, edges, values)
    assert same is a
    torch.testing.assert_close(created.to_dense(), program(a, edges, values)[1].to_dense())
    torch.testing.assert_close(product, a @ values)


def test_calls_with_other_values_of_a_matrix_and_with_dense_ones():
    compiled = dovetail.jit(lambda a, x: a @ x)
    x, a = dense(4, 3), matrix(5, 4)
    for each in (a.to_sparse(), (a * 2).to_sparse(), a, a.to_sparse().to(torch.float64), a.to_sparse()):
        of_dtype = x.to(each.dtype)
        torch.testing.assert_close(compiled(each, of_dtype), each.to_dense() @ of_dtype)


REFUSED = {
    "a sum": lambda a, x: torch.sparse.sum(a) * x,
    "a dense matrix by a sparse one": lambda a, x: x.t() @ a.t(),
    "two sparse ones": lambda a, x: (a.t() @ a).to_dense() @ x,
    "another dtype": lambda a, x: a @ x.double(),
    "written": lambda a, x: a.mul_(2) @ x,
}


@pytest.mark.parametrize("program", REFUSED)
def test_other_operations_are_refused(program):
    with pytest.raises(Unsupported, match="sparse"):
        dovetail.jit(REFUSED[program])(matrix(5, 5).to_sparse(), dense(5, 3))


@pytest.mark.filterwarnings("ignore:.*run in eager mode")
@pytest.mark.parametrize("program", ["a sum", "a dense matrix by a sparse one", "two sparse ones"])
def test_what_is_refused_runs_in_eager_mode(program):
    a, x = matrix(5, 5).to_sparse(), dense(5, 3)
    compiled = dovetail.jit(REFUSED[program], unsupported="eager")
    for _ in range(2):
        torch.testing.assert_close(compiled(a, x), REFUSED[program](a, x))


def test_compressed_rows_from_outside_are_refused():
    with pytest.raises(Unsupported, match="compressed rows from outside"):
        dovetail.jit(torch.mm)(matrix(5, 4).to_sparse_csr(), dense(4, 3))


def test_a_matrix_that_requires_a_gradient_is_refused():
    with pytest.raises(Unsupported, match="sparse_coo tensor is not traced"):
        dovetail.jit(torch.mm)(matrix(5, 4).to_sparse().requires_grad_(), dense(4, 3))

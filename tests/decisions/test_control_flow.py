"""torch.cond, while_loop, scan, map and associative_scan inside compiled functions, beside the Python that they stand for, with gradients."""

from __future__ import annotations

import pytest
import torch
from decisions.helpers import compiled, graph_of
from packaging.version import Version
from torch import _higher_order_ops as operations

cond, while_loop = torch.cond, torch.while_loop


def plain_cond(pred, true_fn, false_fn, operands=()):
    return true_fn(*operands) if pred else false_fn(*operands)


def plain_while(test, body, carried):
    while test(*carried):
        carried = body(*carried)
    return carried


def looped(cond, while_loop, x):
    for _ in range(3):
        x = cond(x.sum() > 0, lambda x: x * 0.5 - 1, lambda x: x + 1.5, (x,))
    return x


def nested(cond, while_loop, x):
    return cond(x.sum() > 0, lambda x: cond(x.max() > 2, torch.sin, torch.cos, (x,)), lambda x: x - 1, (x,))


def closed(cond, while_loop, x):
    y = x * 2
    return cond(x.sum() > 0, lambda: y + 1, lambda: y - 1)


def trees(cond, while_loop, x):
    operands = ({"a": x, "b": [x * 2]},)
    return cond(x.sum() > 0, lambda d: {"o": d["a"] + d["b"][0]}, lambda d: {"o": d["a"] - d["b"][0]}, operands)["o"]


def halved(cond, while_loop, x):
    return while_loop(lambda n, x: x.abs().sum() > 1, lambda n, x: (n + 1, x * 0.5), (torch.tensor(0), x))[1]


def both(cond, while_loop, x):
    step = lambda x: (cond(x.sum() > 0, lambda x: x * 0.5, lambda x: x * -0.7, (x,)),)  # noqa: E731
    return while_loop(lambda x: x.abs().max() > 0.1, step, (x,))[0]


SCANS_NOTHING = Version(torch.__version__).release >= (2, 14)
INPUTS = [torch.linspace(-1, 1, 6).view(3, 2) * scale + 0.3 for scale in (1.0, 3.0, -2.0, 9.0)]


@pytest.mark.parametrize("program", [looped, nested, closed, trees, halved, both])
def test_branches_and_loops_are_those_of_python(program):
    fn = compiled(lambda x: program(cond, while_loop, x))
    for x in (*INPUTS, *[-x for x in INPUTS]):
        results = []
        for call in (fn, lambda x: program(plain_cond, plain_while, x)):
            leaf = x.clone().requires_grad_()
            result = call(leaf)
            results += [result, torch.autograd.grad(result.sin().sum(), leaf)]
        torch.testing.assert_close(results[:2], results[2:])
    assert graph_of(fn).eager_calls == 0 and len(graph_of(fn).decisions) <= 6


def scanned(x):
    return operations.scan(lambda c, y: (c + y, c * y), torch.zeros(2), x)


def scanned_back(x):
    def combine(c, y):
        return {"a": c["a"] * 0.5 + y["u"]}, [c["a"] - y["u"], y["v"].sum()]

    return operations.scan(combine, {"a": torch.zeros(3)}, {"u": x, "v": x * 2}, dim=1, reverse=True)


def mapped(x):
    return operations.map(lambda rows, y: (rows[0].sin() + y, rows[1].sum()), [x, x * 2], torch.ones(2))


def prefixes(x):
    def affine(a, b):
        return a[0] * b[0], a[1] * b[0] + b[1]

    return [operations.associative_scan(affine, (x.sigmoid(), x), 0, reverse=back, combine_mode="generic") for back in (False, True)]


def flat(tree):
    return torch.utils._pytree.tree_leaves(tree)


@pytest.mark.parametrize("program", [scanned, scanned_back, mapped, prefixes])
def test_scans_and_maps_agree_with_eager_mode(program):
    fn = compiled(program)
    for x in INPUTS:
        torch.testing.assert_close(fn(x), program(x))
    assert fn.cache_info().misses == 1 and graph_of(fn) is None


def test_gradients_through_a_scan_a_map_and_prefixes():
    x, y = (INPUTS[1].clone().requires_grad_() for _ in range(2))
    carry, out = compiled(scanned)(x)
    (carry.sum() + out.sin().sum() + sum(part.sum() for part in flat((compiled(mapped)(x), compiled(prefixes)(x))))).backward()
    total = torch.zeros(2)
    loss = sum((row.sin() + 1).sum() + 2 * row.sum() for row in y)
    for row in y:
        loss, total = loss + (total * row).sin().sum(), total + row
    for rows in (y, y.flip(0)):
        state = None
        for row in rows:
            scale = row.sigmoid()
            state = (scale, row) if state is None else (state[0] * scale, state[1] * scale + row)
            loss = loss + sum(part.sum() for part in state)
    (loss + total.sum()).backward()
    torch.testing.assert_close(x.grad, y.grad)


@pytest.mark.skipif(not SCANS_NOTHING, reason="eager scans nothing from torch 2.14 on")
@pytest.mark.parametrize("dim", [0, 1])
def test_a_scan_of_nothing_is_what_eager_mode_returns(dim):
    def program(x):
        carry, out = operations.scan(lambda c, y: (c + y, {"a": c * y, "b": y.sum()}), x.sum(dim), x, dim=dim)
        return carry, out, operations.associative_scan(lambda a, b: a + b, x, dim, combine_mode="generic")

    x = torch.ones((0, 3) if dim == 0 else (3, 0))
    torch.testing.assert_close(compiled(program)(x), program(x))


@pytest.mark.parametrize(
    ("program", "message"),
    [
        pytest.param(
            lambda x: operations.scan(lambda c, y: (c, y), x[0], x[:0]),
            "scan dimension > 0",
            marks=pytest.mark.skipif(SCANS_NOTHING, reason="eager scans nothing from torch 2.14 on"),
        ),
        (lambda x: operations.map(torch.sin, x[:0]), "cannot be 0"),
        (lambda x: operations.map(lambda rows: rows[0] + rows[1], [x, x[1:]]), "must be consistent"),
    ],
)
def test_a_length_that_does_not_fit_is_the_error_of_eager_mode(program, message):
    for call in (program, compiled(program)):
        with pytest.raises(RuntimeError, match=message):
            call(torch.ones(3, 2))

"""What requires grad, and which gradients are zero rather than absent, is as in eager: with grad mode switched inside, and after writes."""

from __future__ import annotations

import contextlib

import pytest
import torch

import dovetail


def zeroed(x):
    return (x * 2).zero_()


def filled_copy(x):
    y = x.clone()
    y.fill_(2.0)
    return y


def assigned(x):
    y = x * 2
    y[:] = 1
    return y


def zeroed_through_a_view(x):
    y = x * 2
    y.view(-1).zero_()
    return y


def overwritten(x, w):
    y = x * 2
    y.copy_(w)
    return y


def filled_after_a_product(x, w):
    y = x * 1
    y.mul_(w).fill_(3.0)
    return x * y


def zeroed_after_a_copy(x):
    y = torch.zeros(3)
    y.copy_(x)
    y.zero_()
    return y


def drawn(x):
    y = x * 2
    y.bernoulli_(0.5)
    return y * 0 + 1


def masked(x):
    y = x * 2
    y.masked_fill_(y > 2, 0.0)
    return y


def partly_zeroed(x):
    y = x * 2
    z = y[1:]
    z.zero_()
    return y, z


def viewed_and_zeroed(x):
    y = x * 2
    z = y.view(3, 1)
    y.zero_()
    return z


def on_inside(x):
    with torch.enable_grad():
        y = x * 2
    return y, x * 3


def set_inside(x):
    torch.set_grad_enabled(True)
    y = x * 2
    torch.set_grad_enabled(False)
    return y, x * 3, y * 2


def view_inside(x):
    with torch.enable_grad():
        y = (x * 2)[1:]
    return y


def off_and_on(x):
    with torch.no_grad():
        with torch.enable_grad():
            y = x * 2
        z = y * 3
    return y, z


def written_behind(x):
    with torch.enable_grad():
        y = x * 2
        with torch.no_grad():
            y.mul_(5)
        return y


def out_of_inference(x):
    with torch.inference_mode(False):
        return x * 2


@torch.enable_grad()
def decorated(x):
    return x * 2


def partly_in_inference(x):
    with torch.inference_mode():
        y, ones = x * 2, torch.ones(2)
        with torch.inference_mode(False):
            z = x * 4
    return y, y[1:], ones, z, x * 3


@torch.inference_mode()
def decorated_with_inference(x):
    return x * 2


PROGRAMS = [
    *(zeroed, filled_copy, assigned, zeroed_through_a_view, overwritten, filled_after_a_product, zeroed_after_a_copy, drawn, masked),
    *(partly_zeroed, viewed_and_zeroed, on_inside, set_inside, view_inside, off_and_on, written_behind, decorated),
]


def outcome(function, count, around):
    """Results, what of them requires grad, and the gradients."""
    torch.manual_seed(0)
    inputs = [torch.randn(3, requires_grad=True) for _ in range(count)]
    with around():
        results = function(*inputs)
    results = results if isinstance(results, tuple) else (results,)
    wanted = [x.sum() for x in results if x.requires_grad]
    if wanted:
        torch.autograd.backward(wanted)
    return [x.detach() for x in results], [x.requires_grad for x in results], [x.grad for x in inputs]


@pytest.mark.parametrize("around", [torch.enable_grad, torch.no_grad], ids=["on", "off"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_grad_mode_and_writes(program, around):
    count = 2 if program in (overwritten, filled_after_a_product) else 1
    ours, eager = (outcome(function, count, around) for function in (dovetail.jit(program), program))
    torch.testing.assert_close(ours[0], eager[0])
    assert ours[1] == eager[1]
    assert [g is None for g in ours[2]] == [g is None for g in eager[2]]
    torch.testing.assert_close([g for g in ours[2] if g is not None], [g for g in eager[2] if g is not None])


def test_no_gradient_flows_through_a_view_made_with_grad_mode_off():
    def program(x):
        with torch.no_grad():
            y = x[1:]
        return y, x * 3

    x = torch.randn(3, requires_grad=True)
    view, result = dovetail.jit(program)(x)
    (view.sum() + result.sum()).backward()
    torch.testing.assert_close(x.grad, torch.full_like(x, 3.0))


AROUND = {
    "plain": lambda: (),
    "off": lambda: (torch.no_grad(),),
    "inference": lambda: (torch.inference_mode(),),
    "on in inference": lambda: (torch.inference_mode(), torch.enable_grad()),
    "out of inference": lambda: (torch.inference_mode(), torch.inference_mode(False)),
}


PROGRAMS_WITH_MODES = [zeroed, decorated, set_inside, out_of_inference, partly_in_inference, decorated_with_inference]


@pytest.mark.parametrize("program", PROGRAMS_WITH_MODES, ids=lambda program: program.__name__)
def test_one_compiled_function_under_every_mode(program):
    compiled, x = dovetail.jit(program), torch.ones(2, requires_grad=True)
    for name in (*AROUND, *reversed(AROUND)):
        results = []
        for function in (program, compiled):
            with torch.enable_grad(), contextlib.ExitStack() as stack:  # which the program may leave switched off
                for context in AROUND[name]():
                    stack.enter_context(context)
                results.append(function(x))
        want, got = (result if isinstance(result, tuple) else (result,) for result in results)
        assert [(y.requires_grad, y.is_inference()) for y in got] == [(y.requires_grad, y.is_inference()) for y in want], name


def test_results_of_an_inference_mode_inside_share_memory_as_in_eager_mode():
    compiled, x = dovetail.jit(partly_in_inference), torch.arange(3.0)
    kept = [compiled(x + i)[:2] for i in range(4)]
    for i, (y, part) in enumerate(kept):
        assert y.tolist() == ((x + i) * 2).tolist()
        with torch.inference_mode():
            y.zero_()
        assert part.is_inference() and part.tolist() == [0, 0]


VIEWS = {
    "a row": lambda x: x[0],
    "a view": lambda x: x.view(-1),
    "transposed": lambda x: x.T,
    "a part of a part": lambda x: x.split(1)[0][0],
    "expanded": lambda x: x.expand(2, *x.shape),
    "detached": lambda x: x.detach(),
    "a row of what is detached": lambda x: x.detach()[0],
    "a copy": lambda x: x.clone(),
    "itself": lambda x: x.contiguous(),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_made_with_grad_mode_off_say_that_they_require_grad(name):
    view = VIEWS[name]

    def inside(x):
        y = x * 2
        with torch.no_grad():
            results = view(x), view(y)
        return *results, [(r.requires_grad, r.is_leaf) for r in results], view(y)

    around = torch.no_grad()(lambda x: (view(x), view(x * 2), view(x).requires_grad))
    x = torch.nn.Parameter(torch.arange(6.0).view(2, 3))
    for fn in (inside, around, torch.inference_mode()(lambda x: (view(x), view(x)))):
        got, want = dovetail.jit(fn)(x), fn(x)
        for mine, theirs in zip(got, want, strict=True):
            if isinstance(mine, torch.Tensor):
                assert (mine.requires_grad, mine.is_leaf, mine.is_inference()) == (theirs.requires_grad, theirs.is_leaf, theirs.is_inference())
                assert (mine.data_ptr() == x.data_ptr()) == (theirs.data_ptr() == x.data_ptr())
                torch.testing.assert_close(mine, theirs)
            else:
                assert mine == theirs


USES = {
    "computed": lambda p: p * 2,
    "a view of it": lambda p: p.view_as(p),
    "detached": lambda p: p.detach() * 2,
    "with grad mode off": torch.no_grad()(lambda p: p * 2),
}


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("use", USES)
def test_what_is_computed_from_views_made_with_grad_mode_off_requires_grad(name, use):
    def fn(x):
        y = x * 2
        with torch.no_grad():
            row, part = VIEWS[name](x), VIEWS[name](y)
        results = USES[use](row), USES[use](part)
        return *results, [(r.requires_grad, r.is_leaf) for r in (row, part, *results)], y.sum() + part.sum()

    results = []
    for run in (fn, dovetail.jit(fn)):
        x = torch.nn.Parameter(torch.arange(6.0).view(2, 3))
        *values, facts, loss = run(x)
        loss.backward()
        results.append((values, [(v.requires_grad, v.is_leaf) for v in values], facts, loss, x.grad))
    assert results[1][1:3] == results[0][1:3]
    torch.testing.assert_close(*results)

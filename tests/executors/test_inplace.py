"""Regions may write results into inputs that those results are only copied into."""

from __future__ import annotations

import pytest
import torch

import dovetail
from dovetail.extend import FusionExecutor
from dovetail.extend.advanced import executors, get_executor


class Writing(FusionExecutor):
    """Runs regions as they are, and remembers which results it might have written into which inputs."""

    def __init__(self):
        super().__init__("writing", operations=["prims.add", "prims.mul", "prims.sin", "prims.transpose"])
        self.offered: list[dict[str, str]] = []

    def fuse(self, region):
        (last,) = [ex for ex in executors() if ex.last_resort]
        plain = region.derive("dispatch")
        plain.lines = [line.replace(implementation=last.implementation(line.symbol)) for whole in region.lines for line in prims_of(whole)]
        return dovetail.extend.advanced.to_callable(plain)

    def fuse_in_place(self, region, into):
        self.offered.append({result.name: given.name for result, given in into.items()})
        run = self.fuse(region)
        given = {p: i for i, p in enumerate(region.inputs)}
        places = [given[into[p]] if p in into else None for p in region.outputs]

        def write(*inputs):
            return tuple([out if at is None else inputs[at].copy_(out) for out, at in zip(run(*inputs), places, strict=True)])

        return write


def prims_of(line):
    return [prim for inner in line.body for prim in prims_of(inner)] if line.body else [line]


def add(x, y):
    x.add_(y)


def both(x, y):
    x.add_(y)
    y.mul_(2)


def read_behind(x, y):
    z = x.t()
    x.add_(y)
    return torch.exp(z + 0)


def view_is_returned(x, y):
    x.add_(y)
    return x.t()


def result_too(x, y):
    z = x + y
    x.copy_(z)
    return z


def read_by_another(x, y):
    z = torch.exp(y)
    x.add_(z)
    return x @ y


def value_of_before(x, y):
    z = x @ y
    old = x.t() @ y
    x.add_(z)
    return old


@pytest.mark.parametrize(
    ("fn", "offers"),
    [(add, 1), (both, 2), (read_behind, 1), (view_is_returned, 1), (result_too, 1), (read_by_another, 1)],
    ids=lambda x: getattr(x, "__name__", None),
)
def test_what_is_offered_and_what_comes_out(fn, offers):
    ex = Writing()
    ours = dovetail.jit(fn, executors=[ex, "torch"])
    args = [torch.rand(4, 4), torch.rand(4, 4)]
    copies = [x.clone() for x in args]
    torch.testing.assert_close(ours(*args), fn(*copies))
    torch.testing.assert_close(args, copies)
    assert sum(map(len, ex.offered)) == offers


def test_a_line_that_reads_the_old_value_reads_it_first():
    ours = dovetail.jit(value_of_before, executors=[Writing(), "torch"])
    args = [torch.rand(4, 4), torch.rand(4, 4)]
    copies = [x.clone() for x in args]
    torch.testing.assert_close(ours(*args), value_of_before(*copies))
    torch.testing.assert_close(args, copies)


def test_inputs_that_autograd_follows_are_left_alone():
    ex = Writing()
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf"):
        dovetail.jit(lambda x: x.add_(1), executors=[ex, "torch"])(x)
    assert ex.offered == []
    assert torch.equal(x.detach(), torch.ones(3))


def test_a_layout_of_its_own_is_kept():
    ex = Writing()
    x = torch.zeros(1).expand(3)
    with pytest.raises(RuntimeError):
        dovetail.jit(lambda x, y: x.add_(y), executors=[ex, "torch"])(x, torch.ones(3))
    assert ex.offered == []


def test_the_write_shows_in_the_version_of_the_tensor():
    x = torch.zeros(3)
    dovetail.jit(lambda x: x.add_(1), executors=[Writing(), "torch"])(x)
    assert x.tolist() == [1, 1, 1]
    assert x._version > 0


@pytest.mark.parametrize("grad", [True, False])
def test_with_grad_mode_off_a_result_is_computed_in_the_input_too(grad):
    ex = Writing()
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    expected, version, address = x + y, x._version, x.data_ptr()
    with torch.set_grad_enabled(grad):
        dovetail.jit(add, executors=[ex])(x, y)
    torch.testing.assert_close(x, expected)
    assert len(ex.offered) == 1 and x.data_ptr() == address and x._version > version


def test_a_copy_into_itself_tells_of_the_write_and_one_of_the_negative_copies():
    ex, x = executors()[-1], torch.tensor([1.0, -2.0])
    copy_ = ex.implementation(dovetail.prims.copy_).fn
    with torch.no_grad():
        version = x._version
        copy_(x.detach(), x)
        assert x.tolist() == [1, -2] and x._version == version + 1
        copy_(x, x._neg_view())
    assert x.tolist() == [-1, 2]


def test_a_parameter_that_lies_where_its_value_was_computed_is_not_copied():
    copy_ = get_executor("torch").implementation(dovetail.prims.copy_).fn
    p = torch.nn.Parameter(torch.ones(3))
    hidden, before = p.detach(), p._version
    copy_(hidden, p)
    assert p._version == before + 1 and hidden.grad_fn is None  # Tensor.copy_ would give it a history


def test_a_value_that_begins_where_the_target_does_and_lies_otherwise_does_not_count_as_written():
    copy_ = get_executor("torch").implementation(dovetail.prims.copy_).fn
    target = torch.arange(6.0).view(3, 2)
    with pytest.raises(RuntimeError, match="single memory location"):  # eager mode's own error
        copy_(target, target.as_strided((3, 2), (1, 3)))


ROWS, PLACES = torch.randn(4, 8), torch.tensor([7, 3, 9, 1])
CHANGES = {
    "a row": lambda x, n: x.__setitem__(n, ROWS[0]),
    "rows": lambda x, n: x[n : n + 4].copy_(ROWS),
    "a column": lambda x, n: x[:, 3].fill_(n),
    "an element": lambda x, n: x.__setitem__((n, 2), 1.0),
    "a row, added to": lambda x, n: x[n].add_(ROWS[1]),
    "one after the other": lambda x, n: [x.__setitem__(n + i, row) for i, row in enumerate(ROWS)],
    "a diagonal": lambda x, n: x.view(256, 128).diagonal().fill_(n),
    "rows of blocks, replaced": lambda x, n: x.view(512, 8, 8).__setitem__((PLACES + n, PLACES % 8), ROWS),
    "a row of a row of blocks": lambda x, n: x.view(8, 512, 8)[n][n : n + 4].copy_(ROWS),
    "an element of a part": lambda x, n: x[n : n + 5][1][2:6][n % 3].fill_(n),
    "every other element of a part": lambda x, n: x[n : n + 5][1:4, ::2].fill_(n),
    "chosen rows": lambda x, n: x.__setitem__(PLACES + n, ROWS),
    "chosen rows, scaled": lambda x, n: x.__setitem__(PLACES + n, x[PLACES + n] * 0.5),
    "a row chosen twice": lambda x, n: x.index_put_((torch.tensor([n, n]),), ROWS[:2], accumulate=True),
    "index_copy": lambda x, n: x.index_copy_(0, PLACES + n, ROWS),
    "index_add": lambda x, n: x.index_add_(0, PLACES, ROWS, alpha=n),
    "index_fill": lambda x, n: x.index_fill_(0, PLACES + n, 2.0),
    "scatter": lambda x, n: x.scatter_(0, PLACES[:, None].expand(4, 8), ROWS),
    "scatter of one row": lambda x, n: x.scatter_(0, PLACES[:1, None].expand(1, 8), ROWS[:1]),
    "scatter_add": lambda x, n: x.scatter_add_(0, PLACES[:, None].expand(4, 8), ROWS * n),
    "scatter_reduce": lambda x, n: x.scatter_reduce_(0, PLACES[:, None].expand(4, 8), ROWS, "amax"),
}


def changed_in_place(fn):
    return [line.implementation.name for line in dovetail.last_traces(fn)[-1].lines if line.implementation and line.implementation.writes]


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("read", [False, True])
def test_few_places_of_a_large_input_are_written_where_they_lie(name, read):
    def change(x, n):
        CHANGES[name](x, n)
        return x[: n + 1].sum() + n if read else None

    ours, x = dovetail.jit(change), torch.randn(4096, 8)
    expected = x.clone()
    for n in range(2, 7):
        version = x._version
        torch.testing.assert_close(ours(x, n), change(expected, n))
        torch.testing.assert_close(x, expected, rtol=0, atol=0)
        assert x._version > version
    names = changed_in_place(ours)
    assert names and all([name.endswith("_in_place") for name in names])


SMALL_OR_SHARED = {
    "most of it": lambda x: x[:3000].zero_(),
    "all of it": lambda x: x.mul_(2),
    "all of it by a number": lambda x: x.fill_(2),
    "all of it by parts": lambda x: x.copy_(torch.cat([x[:2048] + 1, x[2048:]])),
    "a row of its own memory": lambda x: x[1].copy_(x[2]),
    "a row that another line reads as it was": lambda x: (x[1:3] @ ROWS.T, x[1].copy_(ROWS[0]), x[0] + 1)[::2],
    "a row of its transpose": lambda x: x.T[3].copy_(x.T[4]),
    "a copy": lambda x: x.clone().index_copy_(0, PLACES, ROWS),
    "a copy that is written back": lambda x: x.copy_(x.clone().index_copy_(0, PLACES, ROWS)),
}


@pytest.mark.parametrize("name", SMALL_OR_SHARED)
def test_what_else_is_written_is_eagers(name):
    change = SMALL_OR_SHARED[name]
    ours, x = dovetail.jit(lambda x: change(x)), torch.randn(4096, 8)
    expected = x.clone()
    for _ in range(3):
        torch.testing.assert_close(ours(x), change(expected))
        torch.testing.assert_close(x, expected)


def test_what_is_written_gives_the_input_no_history():
    weight, x = torch.ones(8, requires_grad=True), torch.zeros(4096, 8)
    ours = dovetail.jit(torch.no_grad()(lambda x, n: x.__setitem__(n, weight)))
    for n in range(4):
        ours(x, n)
    assert changed_in_place(ours) and not x.requires_grad and x[:5].sum() == 32


def _put(x, i):
    z = torch.zeros(50, 4)
    z[i] = x
    return z


def _put_twice(x, i):
    z = torch.zeros(50, 4).index_put((i,), x)
    return z.index_add(0, i, x)


def _base_is_returned(x, i):
    z = torch.full((50, 4), 2.0)
    return z.index_add(0, i, x), z


def _base_is_read_later(x, i):
    z = torch.full((50, 4), 2.0)
    y = z.index_add(0, i, x)
    return y * z


def _view_of_the_base_is_returned(x, i):
    z = torch.full((50, 4), 2.0)
    flat = z.view(-1)
    return z.index_add(0, i, x), flat


def _two_of_one_base(x, i):
    z = torch.full((50, 4), 2.0)
    return z.index_add(0, i, x), z.index_add(0, i + 1, x)


def _into_an_input(x, i):
    return x.index_add(0, i % 3, x * 2)


def _its_own_value(x, i):
    z = torch.full((50, 4), 2.0)
    return z.index_put((i,), z[: len(i)] + 1), torch.diagonal_scatter(z, z[0], 0)


TEMPORARIES = {_put: 1, _put_twice: 2, _base_is_returned: 0, _base_is_read_later: 0, _view_of_the_base_is_returned: 0, _two_of_one_base: 1}
TEMPORARIES |= {_into_an_input: 0, _its_own_value: None}


@pytest.mark.parametrize("executors", [None, ["torch"]])
@pytest.mark.parametrize("fn", TEMPORARIES, ids=lambda fn: fn.__name__)
def test_updates_write_into_tensors_that_the_program_needs_no_more(fn, executors):
    compiled = dovetail.jit(fn, executors=executors)
    for seed in range(3):
        torch.manual_seed(seed)
        x, i = torch.randn(5, 4), torch.randperm(49)[:5]
        torch.testing.assert_close(compiled(x, i), fn(x, i))
    text = dovetail.last_traces(compiled)[-1].python(depth=0)
    assert TEMPORARIES[fn] is None or text.count("_in_place(") == TEMPORARIES[fn]


GATHERS = {
    "rows": lambda x, i: x[i],
    "places": lambda x, i: x[i, i % 7] * 2,
    "take": lambda x, i: x.take(i),
    "gather": lambda x, i: x.gather(0, i[:, None].expand(-1, 7)),
    "select": lambda x, i: x.index_select(1, i % 7),
    "slice": lambda x, i: x[2:9:3, 1],
    "diagonal": lambda x, i: x.diagonal() * x.diagonal(1)[:6].sum(),
}


@pytest.mark.parametrize("name", GATHERS)
def test_backwards_put_gradients_into_zeros_of_their_own(name):
    fn = GATHERS[name]
    compiled = dovetail.jit(fn)
    for seed in range(4):
        torch.manual_seed(seed)
        x, i = torch.randn(20, 7, requires_grad=True), torch.randint(20, (9,))
        out, want = compiled(x, i), fn(x, i)
        g = torch.randn(want.shape)
        for _ in range(2):  # a second backward of one forward
            torch.testing.assert_close(torch.autograd.grad(out, x, g, retain_graph=True), torch.autograd.grad(want, x, g, retain_graph=True))
        again = [torch.autograd.grad(y.sin(), x, g, create_graph=True)[0].square().sum() for y in (out, want)]
        torch.testing.assert_close(*[torch.autograd.grad(y, x) for y in again])
    assert name == "slice" or "_in_place(" in dovetail.last_backward_traces(compiled)[-1].python(depth=0)


@pytest.mark.parametrize("fn", [_put_twice, _two_of_one_base], ids=lambda fn: fn.__name__)
def test_updates_under_a_transform(fn):
    compiled = dovetail.jit(fn)
    x, i = torch.randn(3, 5, 4), torch.arange(5)
    for _ in range(2):
        torch.testing.assert_close(torch.vmap(compiled, (0, None))(x, i), torch.vmap(fn, (0, None))(x, i))
        got, want = (torch.func.jvp(lambda x, f=f: f(x, i), (x[0],), (x[1],)) for f in (compiled, fn))
        torch.testing.assert_close(got, want)

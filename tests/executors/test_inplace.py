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

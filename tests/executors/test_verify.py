"""Row 33: each claimed operation beside the reference, and who brings a difference in."""

from __future__ import annotations

import pytest
import torch
import zoo
from stand_ins import F, Pointwise, of, small_softmax

import dovetail
from dovetail.executors import Priority, resolve_executors
from dovetail.executors.reports import verify
from dovetail.extend import OperatorExecutor, Tag, get_grad, make_prim, put_grad


def wide_linear(input, weight, bias=None):
    return F.linear(input.double(), weight.double(), None if bias is None else bias.double()).to(input.dtype)


def test_33_what_agrees_is_true_and_says_how_much_was_compared():
    linear = of("linear", F.linear, wide_linear)
    found = dovetail.verify(dovetail.jit(zoo.GPT().eval(), executors=[linear, Pointwise()]), zoo.tokens(101), zoo.tokens(101))
    assert found and found.compared > 20 and not found.skipped and set(found.executors) == {"linear", "pointwise"}
    assert str(found) == f"compared {found.compared} operations of linear, pointwise with the reference: none differ"


def test_33_the_first_operation_that_differs_is_reported_with_its_figures():
    def norm(input, *args, **kwargs):
        out = F.layer_norm(input, *args, **kwargs)
        out[0, 3] += 1
        return out

    def fn(x):
        return F.layer_norm(torch.sin(x), (8,)) * 2

    found = dovetail.verify(dovetail.jit(fn, executors=[of("right", torch.sin, torch.sin), of("norms", F.layer_norm, norm)]), torch.randn(2, 8))
    assert not found and found.compared == 2
    assert (found.first.executor, found.first.operation) == ("norms", "torch.nn.functional.layer_norm")
    assert (
        found.first.message.startswith("t") and "1 of 16 elements differ, most at [0, 3]:" in found.first.message and "by 1;" in found.first.message
    )
    assert found.first.where.startswith(__file__) and found.first.call.startswith('torch.nn.functional.layer_norm(t1: "cpu f32[2, 8]", (8,)')
    assert "the first: computation, t" in str(found) and found.end


def test_33_rounding_that_is_no_worse_than_the_references_does_not_differ():
    def blocked(input, other):
        return sum(input[:, i : i + 64] @ other[i : i + 64] for i in range(0, input.shape[1], 64))

    torch.manual_seed(0)
    x, y = torch.randn(8, 4096) * 100, torch.randn(4096, 8)
    assert not torch.allclose(blocked(x, y), x @ y, rtol=1.3e-6, atol=1e-5)
    assert dovetail.verify(dovetail.jit(lambda x, y: torch.matmul(x, y), executors=[of("blocked", torch.matmul, blocked)]), x, y)


def test_33_a_region_is_compared_and_the_line_inside_it_is_found():
    class Wrong(Pointwise):
        def fuse(self, region):
            run, names = super().fuse(region), [line.symbol.name for line in region.lines]
            return lambda *inputs: tuple(x + 1 if "exp" in names else x for x in run(*inputs))

    found = dovetail.verify(dovetail.jit(lambda x: torch.exp(torch.sin(x) * 2) - 3, executors=[Wrong()]), torch.randn(4))
    assert found.first.executor == "pointwise" and "in the region, torch.exp(" in found.first.message


def test_33_an_execution_transform_is_compared_with_the_operation_that_it_replaced():
    thrice = make_prim("test_verify.thrice", "thrice", meta=lambda x: x.fresh(), replace=True)
    own = OperatorExecutor("own")
    own.implements(thrice, lambda x: x + x + x)
    own.implements(torch.mul, None, execution_transform=lambda input, other: thrice(input))
    assert dovetail.verify(dovetail.jit(lambda x: x * 3, executors=[own]), torch.ones(3))
    found = dovetail.verify(dovetail.jit(lambda x: x * 4, executors=[own]), torch.ones(3))
    assert (found.first.operation, found.first.executor) == ("torch.mul", "own") and "3 in place of 4" in found.first.message


def test_33_the_backward_is_verified_with_its_forward():
    own = of("own", dovetail.prims.cos, lambda x: torch.cos(x) * 1.5)
    found = dovetail.verify(dovetail.jit(lambda x: torch.sin(x).sum(), executors=[own]), torch.ones(3, requires_grad=True))
    assert (found.first.program, found.first.operation, found.first.executor) == ("backward", "prims.cos", "own")


def test_33_an_implementation_that_writes_into_its_argument_is_found():
    own = of("own", torch.sin, lambda input: input.sin_())
    found = dovetail.verify(dovetail.jit(lambda x: (torch.sin(x + 0), x), executors=[own]), torch.ones(3))
    assert "it wrote into its argument t1" in found.first.message


def wrong_gradient(name="grads"):
    """An executor whose grad rule is wrong, on an operation of its own that nobody else can run."""
    backward = make_prim(f"test_verify.{name}", name, meta=lambda g, x: x.fresh(), replace=True)
    own = OperatorExecutor(name)
    own.implements(backward, lambda g, x: g * torch.cos(x) * 2)

    def rule(input):
        out = torch.sin(input)
        put_grad(input, backward(get_grad(out), input))
        return out

    own.implements(torch.sin, torch.sin, grad=rule)
    return own


def test_33_where_only_the_end_differs_executors_and_then_claims_are_bisected():
    wrong = wrong_gradient()
    right = of("right", torch.exp, torch.exp)
    compiled = dovetail.jit(lambda x: torch.sin(torch.exp(torch.cos(x))).sum(), executors=[right, wrong])
    found = dovetail.verify(compiled, torch.randn(5, requires_grad=True))
    assert not found and not found.differences
    assert "result 1: 5 of 5 elements differ" in found.end
    assert found.culprit.startswith("grads brings it in, with its claim ") and "torch.sin" in found.culprit
    assert any("no executor runs test_verify.grads" in message for message in found.skipped)


def test_33_an_implementation_that_is_wrong_now_and_then_is_found():
    calls = []

    def sometimes(x):
        calls.append(1)
        return torch.tanh(x) + (0.5 if len(calls) % 4 == 3 else 0.0)

    moody = of("moody", torch.tanh, sometimes)
    found = dovetail.verify(dovetail.jit(lambda x: torch.tanh(torch.tanh(torch.tanh(x))), executors=[moody]), torch.ones(3))
    assert found.first.results == ("t3",) and "by 0.5;" in found.first.message


def test_verify_changes_nothing_that_it_is_given():
    def bump(x):
        x.add_(1)
        return torch.softmax(x, -1) + torch.rand(3)

    x, state = torch.zeros(3), torch.get_rng_state()
    assert dovetail.verify(dovetail.jit(bump, executors=[small_softmax(), of("sums", torch.add, torch.add)]), x)
    assert x.tolist() == [0, 0, 0] and torch.equal(torch.get_rng_state(), state)


def test_verify_takes_functions_that_are_not_compiled():
    with dovetail.use(executors=["torch"]):
        found = dovetail.verify(lambda x, scale: torch.sin(x) * scale, torch.ones(3), scale=2.0)
    assert found and found.compared == 0
    assert str(found) == "compared 0 operations of no executor but the reference with the reference: none differ"


def test_random_numbers_of_another_generator_are_not_compared():
    own = of("own", torch.rand, lambda *size, **how: torch.rand(3) * 0)
    found = dovetail.verify(dovetail.jit(lambda x: x + torch.rand(3), executors=[own]), torch.ones(3))
    assert found and found.executors == ("own",)


def test_an_error_of_an_implementation_comes_out_with_its_name():
    def boom(input):
        raise ValueError("no")

    with pytest.raises(ValueError, match="no") as raised:
        dovetail.verify(dovetail.jit(lambda x: torch.sin(x), executors=[of("own", torch.sin, boom)]), torch.ones(3))
    assert "raised by own as dovetail.verify ran torch.sin(" in raised.value.__notes__[0]


def uninitialized(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Results that nothing has written, and one that something has."""
    out = torch.empty_like(x)
    rows = x.new_empty((3, *x.shape))
    apart = torch.empty_strided((4, 3), (1, 4))
    return out, out.t(), rows[1], torch.empty(5), apart.reshape(3, 4).t(), torch.exp(x)


class Garbage(Pointwise):
    """Fuses more than it should compute: what is not written holds 77, and exp is off by one where it is `wrong`."""

    wrong = False

    def can_fuse(self, line):
        return Tag.UNINITIALIZED in line.symbol.tags or super().can_fuse(line)

    def fuse(self, region):
        run, lines = super().fuse(region), region.lines
        unwritten = verify.uninitialized(lines)
        exp = {p for line in lines if line.symbol.name == "exp" for p in line.writes}

        def garbage(*inputs):
            results = zip(region.outputs, run(*inputs), strict=True)
            return tuple(torch.full_like(x, 77.0) if p in unwritten else x + self.wrong * (p in exp) for p, x in results)

        return garbage


@pytest.mark.parametrize("executors", [None, ["torch"]])
def test_what_nothing_has_written_is_not_compared(executors):
    options = {} if executors is None else {"executors": executors}
    memory = [torch.full((n,), float("nan")) for n in (4, 12, 16, 48, 5) for _ in range(8)]
    del memory  # the allocator gives it out again
    found = dovetail.verify(dovetail.jit(uninitialized, **options), torch.randn(4, 4))
    assert found, str(found)


def test_a_wrong_region_is_named_by_its_wrong_line_and_not_by_memory_that_nothing_wrote():
    class Wrong(Garbage):
        wrong = True

    def fn(x):
        out = torch.empty_like(x)
        return torch.exp(torch.sin(x)), out

    found = dovetail.verify(dovetail.jit(fn, executors=[Wrong()]), torch.randn(4))
    assert "in the region, torch.exp(" in found.first.message
    assert "empty" not in found.first.message


def test_limited_executors_keep_the_order_of_each_operation_and_count_their_claims():
    first, second = of("first", torch.sin, torch.sin), of("second", torch.sin, torch.sin)
    sin = dovetail.extend.advanced.symbol_for(torch.sin)
    line = dovetail.make_trace(lambda x: torch.sin(x))(torch.ones(2)).lines[0]
    with dovetail.use([first, second], operations={"torch.sin": "second > first"}):
        limited = verify.Limited(resolve_executors(), {"second": 1})

    assert isinstance(limited, Priority) and limited.key is None
    assert [ex.name for ex in limited][:2] == ["first", "second"]
    assert [ex.name for ex in limited.for_symbol(sin)][:2] == ["second", "first"]
    only = limited.for_symbol(sin)[0]
    assert only.verdict(line) is True and "as many lines as it may" in only.verdict(line)
    assert limited.counts == {"second": 1} and limited.last == {"second": line}


def test_a_fixed_order_is_the_same_for_every_operation():
    first = of("first", torch.sin, torch.sin)
    fixed = Priority([first])

    assert fixed.for_symbol(dovetail.prims.sin) == fixed == (first,) and fixed.key is None and fixed.notes == ()

"""Torch operations that nobody decomposed: as eager, one line each, with gradients."""

from __future__ import annotations

import pickle
import warnings
from typing import NamedTuple

import harness
import pytest
import torch

import dovetail
from dovetail.errors import DovetailError, NoGradRule, Unsupported
from dovetail.extend import Tag
from dovetail.langs.torch.binding.opaque import opaque, opaque_symbol
from dovetail.prims import recorder
from dovetail.trace import Trace, tree_map


def x(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(0))


def same(fn, *args, **kwargs) -> None:
    want = harness.eager(fn, args, kwargs)
    assert want.error is None, want.error
    assert list(harness.differences(harness.ours(fn, args, kwargs, harness.ways()["whole"]), want)) == []
    assert list(harness.differences(harness.printed(fn, args, kwargs), want)) == []


def through(func, *args, **kwargs):
    """The call by the opaque route, whoever has decomposed it; itself where nothing is traced."""
    return opaque(func, args, kwargs) if isinstance(recorder.get(), Trace) else func(*args, **kwargs)


def lines(fn, *args) -> list:
    return dovetail.make_trace(fn)(*args).lines


def test_a_call_prints_as_torchs_own() -> None:
    text = str(dovetail.make_trace(lambda a: torch.linalg.qr(a, mode="complete"))(x(4, 3)))

    assert "(t1, t2) = torch.linalg.qr(t0, mode='complete')" in text
    assert '"cpu f32[4, 4] strides [1, 4]"' in text


def test_a_method_prints_as_a_method() -> None:
    assert "t1 = t0.matrix_exp()" in str(dovetail.make_trace(lambda a: through(torch.Tensor.matrix_exp, a))(x(3, 3)))


def test_a_named_result_keeps_its_type() -> None:
    seen = []
    same(lambda a: seen.append(torch.linalg.slogdet(a)) or seen[-1].logabsdet, x(3, 3))

    assert {type(found) for found in seen} == {torch.return_types.linalg_slogdet}


def test_nested_results_and_lists_of_tensors() -> None:
    same(lambda a: torch.histogramdd(a, bins=[2, 3]), x(5, 2))
    same(lambda a, b: torch.ops.aten.block_diag([a, b]), x(2, 2), x(3, 1))


def test_results_that_are_no_tensors_leave_no_line() -> None:
    assert lines(lambda a: through(torch.is_floating_point, a) and None, x(2)) == []


def test_an_operation_in_place_writes() -> None:
    same(lambda a: through(torch.Tensor.renorm_, a, 2, 0, 1.0), x(3, 3))
    same(lambda a: (through(torch.Tensor.xlogy_, a[0], 2.0), a)[1], x(3, 3))


def test_aten_operators_that_write_are_run_on_copies() -> None:
    same(lambda a: (torch.ops.aten.add_.Tensor(a, 1), a * 1), x(3))
    same(lambda a: torch.ops.aten.addcmul_(a, a, tensor2=a), x(3))
    text = str(dovetail.make_trace(lambda a: torch.ops.aten.add_.Tensor(a, 1))(x(3)))
    assert "opaque_functional.torch.ops.aten.add_.Tensor((0,), (t0, 1))" in text


def test_a_view_of_an_argument_becomes_a_copy() -> None:
    same(lambda a: torch.ops.aten.slice(a, 0, 0, 2) + 1, x(3, 3))


@pytest.mark.parametrize("fn", [lambda a: torch.ops.aten.slice(a, 0, 0, 2), lambda a: (torch.ops.aten.slice(a, 0, 0, 2).add_(1), a * 1)])
def test_a_view_that_could_be_told_from_its_copy_is_refused(fn) -> None:
    with pytest.raises(Unsupported, match=r"torch.ops.aten.slice.*view of its argument.*clone it\n  called at .*test_opaque.py"):
        dovetail.make_trace(fn)(x(3, 3))


def test_results_conjugated_when_read_are_conjugated() -> None:
    trace = dovetail.make_trace(lambda a: torch.fft.ihfft(a))(x(8))

    assert "opaque_resolved.torch.fft.ihfft(t0)" in str(trace)
    same(lambda a: torch.fft.ihfft(a), x(8))


class Window(NamedTuple):
    start: torch.Tensor
    width: float


def test_subclasses_of_tuple_keep_their_type() -> None:
    @dovetail.opaque
    def kinds(a, size, window):
        assert type(window) is Window
        return a * (2 if type(size) is torch.Size else 1) + window.start * window.width

    same(lambda a: kinds(a, a.shape, Window(a, 3.0)), x(4, 3))
    same(lambda a: kinds(a, tuple(a.shape), Window(a, 3.0)), x(4, 3))


def test_random_operations_are_neither_merged_nor_dropped() -> None:
    def fn(p):
        return through(torch.poisson, p), through(torch.poisson, p)

    found = lines(fn, x(4).abs())
    assert all(Tag.RANDOM in line.symbol.tags for line in found)

    torch.manual_seed(1)
    want = fn_eager = (torch.poisson(p := x(100).abs() * 9), torch.poisson(p))
    torch.manual_seed(1)
    got = dovetail.jit(fn)(p)
    assert torch.equal(got[0], want[0]) and torch.equal(got[1], fn_eager[1]) and not torch.equal(*got)


def test_an_operation_is_random_only_where_it_draws() -> None:
    def drops(p: float):
        return lambda a: through(torch.ops.aten.native_dropout, a, p, True)[0]

    assert Tag.RANDOM in lines(drops(0.5), x(4))[0].symbol.tags
    assert Tag.RANDOM not in lines(lambda a: through(torch.dropout, a, 0.5, False) + 1, x(4))[-1].symbol.tags


def test_generators_and_other_objects_are_arguments() -> None:
    generator = torch.Generator()

    def draw(p):
        return through(torch.binomial, p * 10, p, generator)

    generator.manual_seed(3)
    want = torch.binomial(torch.full((5,), 5.0), torch.full((5,), 0.5), generator)
    generator.manual_seed(3)
    assert torch.equal(dovetail.jit(draw)(torch.full((5,), 0.5)), want)


def test_functions_of_no_tensor_make_a_new_one_at_each_call() -> None:
    def fn(a):
        return torch.kaiser_window(4).mul_(a)

    compiled = dovetail.jit(fn)
    assert torch.equal(compiled(x(4)), fn(x(4)))
    assert torch.equal(compiled(x(4)), fn(x(4)))


ERRORS = {
    "RuntimeError": (RuntimeError, lambda a: torch.linalg.cholesky(a.new_zeros(3))),
    "IndexError": (IndexError, lambda a: torch.linalg.cross(a, a, dim=7)),
    "TypeError": (TypeError, lambda a: a.matrix_exp(3)),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors_are_of_eagers_type_and_name_the_operation(case: str, capfd) -> None:
    error, fn = ERRORS[case]
    with pytest.raises(error):
        fn(x(3, 3))
    with pytest.raises(error, match=r"^torch\.(linalg|Tensor)\.\w+: (?s:.*)called at .*test_opaque.py") as caught:
        dovetail.make_trace(fn)(x(3, 3))
    assert isinstance(caught.value, DovetailError)
    assert capfd.readouterr().err == ""


VALUES_DECIDE = (lambda a: torch.linalg.lstsq(a[:, None], a[:, None]), lambda a: torch.ops.aten.nonzero(a), lambda a: torch.ops.aten.equal(a, a))


@pytest.mark.parametrize("fn", VALUES_DECIDE)
def test_scenario_11_what_depends_on_values_is_refused_by_name(fn) -> None:
    with pytest.raises(Unsupported, match=r"^torch\.\S+ is not traced: .*depends on the values of a tensor(?s:.*)called at .*test_opaque"):
        dovetail.make_trace(fn)(x(3))


def test_symbols_are_pickled_by_name() -> None:
    for kind, tags in (("opaque", []), ("opaque", [Tag.RANDOM]), ("opaque_vjp", [])):
        symbol = opaque_symbol(torch.poisson, kind, tags)
        assert pickle.loads(pickle.dumps(symbol)) is symbol


def test_symbols_are_found_in_a_process_that_never_called_them(new_process) -> None:
    data = pickle.dumps(opaque_symbol(torch.Tensor.matrix_exp))
    code = f"import pickle, dovetail, torch; s = pickle.loads({data!r}); print(s, s.path, s.callable is torch.Tensor.matrix_exp)"

    assert new_process(["-c", code]).stdout.split() == [
        "opaque.torch.Tensor.matrix_exp",
        ".matrix_exp",
        "True",
    ]


# Gradients: the rule, recorded behind the call, against torch.autograd.


def pulled(func, args: tuple, kwargs: dict):
    """Cotangents of the tensors in the call for cotangents of ones, as the vjp rule computes them, and as autograd does."""

    def program(args, kwargs):
        opaque(func, args, kwargs)
        line = recorder.get().lines[-1]
        g = tree_map(lambda p: None if p is None else torch.ones_like(p), line.out)
        return line.symbol.vjp_rule(g, line.out, *line.args, **line.kwargs)

    acquired = harness.acquire(program, (args, kwargs), {})
    scope = acquired.trace.python_globals()
    exec(str(acquired.trace), scope)
    return scope["computation"](*acquired.tensors)


def leaf(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return x(*shape, dtype=dtype).requires_grad_()


def test_gradients_of_a_function_with_two_results() -> None:
    a = leaf(4, 3)
    (got,) = pulled(torch.linalg.qr, (a,), {})
    (want,) = torch.autograd.grad([y.sum() for y in torch.linalg.qr(a)], a)
    torch.testing.assert_close(got, want)


def test_gradients_of_complex_tensors() -> None:
    a = leaf(3, 3, dtype=torch.complex128)
    (got,) = pulled(torch.linalg.inv, (a,), {})
    (want,) = torch.autograd.grad(torch.linalg.inv(a), a, torch.ones(3, 3, dtype=a.dtype))
    torch.testing.assert_close(got, want)


def test_gradients_of_a_list_of_tensors_and_none_for_integers() -> None:
    a, b = leaf(3, 2), leaf(2, 4)
    ((ga, gb),) = pulled(torch.linalg.multi_dot, ([a, b],), {})
    wants = torch.autograd.grad(torch.linalg.multi_dot([a, b]).sum(), [a, b])
    torch.testing.assert_close((ga, gb), wants)

    index = torch.tensor([1, 0])
    got, nothing, none = pulled(torch.take, (a, index), {}) + (None,)
    assert nothing is None and none is None
    torch.testing.assert_close(got, torch.autograd.grad(torch.take(a, index).sum(), a)[0])


def test_gradients_of_keyword_tensors_that_require_them() -> None:
    a, b = leaf(3, 3), leaf(3, 2)
    names, ga, gb = pulled(torch.linalg.solve, (a,), {"B": b})
    wants = torch.autograd.grad(torch.linalg.solve(a, B=b).sum(), [a, b])
    assert names == (None,)
    torch.testing.assert_close((ga, gb), wants)


def test_only_what_requires_a_gradient_gets_one() -> None:
    a, b = leaf(3, 3), x(3, 2, dtype=torch.float64)
    assert pulled(torch.linalg.solve, (a, b), {})[1] is None


def test_no_gradient_of_a_random_operation_that_would_draw_again() -> None:
    assert opaque_symbol(torch.poisson, "opaque", [Tag.RANDOM]).vjp_rule is None


def trained(fn, *args):
    """The gradients of sum(abs(fn(*args))), compiled and by eager."""
    found = []
    for run in (dovetail.jit(fn), fn):
        leaves = [a.detach().clone().requires_grad_(a.requires_grad) for a in args]
        run(*leaves).abs().sum().backward()
        found.append([a.grad for a in leaves])
    return found


@pytest.mark.parametrize(
    "fn",
    [
        lambda a, b: torch.linalg.solve(a, B=b),
        lambda a, b: torch.linalg.qr(a)[1] @ b,
        lambda a, b: torch.fft.fft(a)[:, :2] * b,
        lambda a, b: torch.linalg.multi_dot([a, a, b]),
        lambda a, b: torch.cummax(a, 0)[0] @ b,
    ],
)
def test_compiled_functions_train(fn) -> None:
    got, want = trained(fn, leaf(3, 3), leaf(3, 2))
    torch.testing.assert_close(got, want)


def test_a_backward_draws_the_numbers_of_its_forward_again() -> None:
    layer = torch.nn.LSTM(3, 4, 2, dropout=0.5)
    functions = [
        lambda a: layer(a)[0],
        lambda a: through(torch.ops.aten.native_dropout, a, 0.5, True)[0] * a,
        lambda a: torch._standard_gamma(a.exp()),
    ]
    for fn in functions:
        fast = dovetail.jit(fn)
        for length in (4, 5, 6):  # of which the last is a symbol
            results = []
            for run in (fast, fn):
                a = x(length, 2, 3).requires_grad_()
                torch.manual_seed(length)
                y = run(a)
                torch.rand(1)
                y.square().sum().backward()
                results.append((y, a.grad, torch.rand(1)))
            torch.testing.assert_close(*results)


def test_a_generator_that_is_an_argument_has_no_state_to_repeat() -> None:
    generator = torch.Generator()
    with pytest.raises(NoGradRule, match=r"torch\.poisson has no gradient rule"):
        dovetail.jit(lambda a: through(torch.poisson, a * a, generator=generator).sum())(leaf(3))


# Operators that someone else registered.


@pytest.fixture(scope="module")
def operators():
    @torch.library.custom_op("dovetail_tests::scaled", mutates_args=())
    def scaled(t: torch.Tensor, factor: float, bias: torch.Tensor | None = None) -> torch.Tensor:
        return t * factor if bias is None else t * factor + bias

    scaled.register_fake(lambda t, factor, bias=None: torch.empty_like(t))

    def backward(ctx, g):
        return g * ctx.factor, None, g

    scaled.register_autograd(backward, setup_context=lambda ctx, inputs, output: setattr(ctx, "factor", inputs[1]))

    @torch.library.custom_op("dovetail_tests::bump", mutates_args=("t",))
    def bump(t: torch.Tensor, by: int) -> None:
        t += by

    @torch.library.custom_op("dovetail_tests::shapeless", mutates_args=())
    def shapeless(t: torch.Tensor) -> torch.Tensor:
        return t.clone()

    calls = []

    @torch.library.custom_op("dovetail_tests::note", mutates_args=())
    def note(t: torch.Tensor) -> None:
        calls.append(t)

    bump.register_fake(lambda t, by: None)
    note.register_fake(lambda t: None)
    yield {"scaled": scaled, "bump": bump, "shapeless": shapeless, "note": note, "calls": calls}


def test_scenario_10_a_custom_operator_needs_no_registration(operators) -> None:
    scaled = operators["scaled"]
    same(lambda a, b: scaled(a, 2.0, bias=b), x(3), x(3))
    same(lambda a: torch.ops.dovetail_tests.scaled(a, 2.0), x(3))
    same(lambda a: torch.ops.dovetail_tests.scaled.default(a, 2.0), x(3))
    assert "torch.ops.dovetail_tests.scaled.default(t0, 2.0)" in str(dovetail.make_trace(lambda a: scaled(a, 2.0))(x(3)))


def test_scenario_10_a_custom_operator_trains_by_its_own_formula(operators) -> None:
    got, want = trained(lambda a, b: operators["scaled"](a, 2.0, b), leaf(3), leaf(3))
    torch.testing.assert_close(got, want)


def test_scenario_10_a_custom_operator_that_writes(operators) -> None:
    same(lambda a: operators["bump"](a, 3), x(3))
    same(lambda a: (operators["bump"](a[1:], 3), a * 2), x(3))


def test_scenario_10_a_custom_operator_that_returns_nothing_is_run(operators) -> None:
    compiled = dovetail.jit(lambda a: (operators["note"](a), a + 1)[1])
    compiled(x(3))
    compiled(x(3))
    assert len(operators["calls"]) == 2


def test_scenario_10_a_custom_operator_without_shapes_says_what_it_wants(operators) -> None:
    with pytest.raises(Unsupported, match=r"torch.ops.dovetail_tests.shapeless.default is not traced: .*register_fake"):
        dovetail.make_trace(lambda a: operators["shapeless"](a))(x(3))
    torch.testing.assert_close(dovetail.jit(lambda a: operators["shapeless"](a * 2) + 1)(x(3)), operators["shapeless"](x(3) * 2) + 1)


def test_an_operation_of_torchs_without_shapes_says_so() -> None:
    with pytest.raises(Unsupported, match="the shapes of its results are unknown"):  # its kernel gets the fake tensors, and reads their memory
        dovetail.jit(lambda: torch.quasirandom.SobolEngine(2, scramble=True, seed=1).draw(3))()


def test_no_gradient_flows_through_what_is_not_differentiable() -> None:
    programs = [torch.histc, torch.special.bessel_j0, torch.special.airy_ai, lambda t: torch.linspace(t[0], 1.0, 3)]
    for program in programs:  # Bessel functions are differentiable from torch 2.15 on
        t = x(3).requires_grad_()
        want, got = program(t), dovetail.jit(program)(t)
        assert got.requires_grad == want.requires_grad
        if not want.requires_grad:
            with pytest.raises(RuntimeError, match="does not require grad"):
                got.sum().backward()


def asserted(t):
    torch._assert_async(t.sum() > -10, "too small")
    return t * 2


def decided(t):
    torch._assert_async(t.sum() > -10, "too small")
    y = t * 2 if t.sum() > 0 else t * 3
    torch._assert_async(y.sum() < 100, "too large")
    return y if y.sum() < 50 else y + 1


@pytest.mark.parametrize("program", [asserted, decided])
def test_what_returns_nothing_is_called(program) -> None:
    compiled = dovetail.jit(program)
    for value in (1.0, -1.0, 9.0, -9.0, 2.0, 99.0, -9.0, 1.0):
        t = torch.full((3,), value)
        try:
            want = program(t)
        except RuntimeError as error:
            with pytest.raises(RuntimeError, match=str(error)):
                compiled(t)
        else:
            torch.testing.assert_close(compiled(t), want)


@pytest.mark.parametrize("elements", [torch.tensor([0.0, 1.0]), torch.arange(100.0), 1.0], ids=["few", "many", "number"])
def test_isin_of_any_layout_is_row_major(elements) -> None:
    same(lambda x: torch.isin(x.round(), elements) * 2, x(4, 3, 6).permute(2, 1, 0))
    same(lambda x: torch.isin(x.round(), elements), x(5, 8).t())


aten = torch.ops.aten
OPERATORS = {  # calls of operators of ATen without the name of an overload
    "view": lambda a: aten.view(a, [-1]),
    "slice": lambda a: aten.slice(a, 0, 1, 3),
    "select, written": lambda a: (b := a * 1, aten.fill_(aten.select(b, 0, 1), 0.0))[0],
    "split": lambda a: aten.split(a, 2),
    "permute": lambda a: aten.permute(a, [1, 0]),
    "mul_ by a number": lambda a: aten.mul_(a.clone(), 2),
    "add_": lambda a: aten.add_(a * 1, a, alpha=2),
    "index_put_": lambda a: aten.index_put_(a.clone(), [torch.tensor([0, 1])], a[:2] * 2),
    "index_put_ of a mask": lambda a: aten.index_put_(a.clone(), [torch.arange(a.numel()).reshape(a.shape) % 2 == 0], a.new_ones(-(-a.numel() // 2))),
    "masked_fill_": lambda a: aten.masked_fill_(a * 1, a > 0, 0.0),
    "bernoulli_": lambda a: aten.bernoulli_(a * 1, 0.5) + a,
    "unsqueeze_": lambda a: aten.unsqueeze_(a * 1, 0),
    "t_": lambda a: aten.t_(a * 1),
    "max of all": lambda a: aten.max(a),
    "max of rows": lambda a: aten.max(a, 1),
    "var": lambda a: aten.var(a, [1], correction=0),
    "where with a number": lambda a: aten.where(a > 0, a, 0.0),
    "index": lambda a: aten.index(a, [None, torch.tensor([0, 2])]),
    "list of tensors": lambda a: aten.block_diag([a, a * 2]),
    "sorted rows": lambda a: aten.sort(a),
    "parts of sizes": lambda a: aten.split_with_sizes(a, [1, 2], 1),
    "interpolated": lambda a: aten.upsample_bicubic2d(a[None, None], [8, 5], False),
    "lists of views": lambda a: aten.meshgrid([a[0] * 1, a[1] * 1]),
}


@pytest.mark.parametrize("gradient", [False, True])
@pytest.mark.parametrize("name", OPERATORS)
def test_operators_of_aten_are_traced_without_an_overload(name: str, gradient: bool) -> None:
    compiled = dovetail.jit(OPERATORS[name])
    for rows in (4, 5, 4):
        outcomes = []
        for function in (OPERATORS[name], compiled):
            torch.manual_seed(rows)
            a = torch.randn(rows, 3).requires_grad_(gradient)
            result = function(a)
            results = torch.utils._pytree.tree_leaves(result)
            differentiable = [y.sum() for y in results if y.requires_grad]
            gradients = torch.autograd.grad(differentiable, a) if differentiable else ()
            outcomes.append((results, gradients, type(result), [(y.stride(), y.requires_grad, y.data_ptr() == a.data_ptr()) for y in results]))
        torch.testing.assert_close(outcomes[1][:2], outcomes[0][:2])
        assert outcomes[1][2:] == outcomes[0][2:]


@torch.library.custom_op("dovetail_tests::add_into", mutates_args={"total"})
def add_into(a: torch.Tensor, total: torch.Tensor) -> None:
    total.add_(a)


def test_an_operator_that_writes_is_left_to_autograd_where_a_gradient_is_needed() -> None:
    def step(a, total):
        add_into(a.detach() * 2, total)
        return a * total

    def differentiable(a, total):
        add_into(a * 2, total)
        return total * 3

    for function in (step, differentiable):
        outcomes = []
        for called in (function, dovetail.jit(function)):
            a, total = torch.ones(3, requires_grad=True), torch.zeros(3)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                outcomes.append((called(a, total).detach(), total))
        torch.testing.assert_close(outcomes[1], outcomes[0])


@pytest.fixture(scope="module")
def operators_with_out():
    """Operators of an own library with a parameter `out`: one tensor that is written, several, and one that is read."""

    def write(outs, values):
        for out, value in zip(outs, values, strict=True):
            out.copy_(value)

    library = torch.library.Library("dovetail_tests_out", "DEF")
    library.define("add(Tensor x, Tensor y, *, Tensor(a!) out) -> ()")
    library.define("split(Tensor x, int[] sizes, *, Tensor(a!)[] out) -> ()")
    library.define("times(Tensor x, Tensor out) -> Tensor")
    library.impl("add", lambda x, y, *, out: write([out], [x + y]), "CPU")
    library.impl("split", lambda x, sizes, *, out: write(out, x.split(sizes)), "CPU")
    library.impl("times", lambda x, out: x * out, "CPU")
    for name in ("add", "split"):
        torch.library.register_fake(f"dovetail_tests_out::{name}", lambda *args, **kwargs: None, lib=library)
    torch.library.register_fake("dovetail_tests_out::times", lambda x, out: torch.empty_like(x), lib=library)
    yield torch.ops.dovetail_tests_out
    library._destroy()


def test_operators_of_own_libraries_may_have_a_parameter_out(operators_with_out):
    def f(a, total):
        operators_with_out.add(a, a, out=total)
        parts = [torch.zeros(1), torch.zeros(2)]
        operators_with_out.split.default(a, [1, 2], out=parts)
        return operators_with_out.times(a, out=a + 1), *parts, total * 2

    compiled, totals = dovetail.jit(f), (torch.zeros(3), torch.zeros(3))  # which is the first to look the operators up
    for a in (x(3), x(3) + 1):
        torch.testing.assert_close(compiled(a, totals[0]), f(a, totals[1]))
        torch.testing.assert_close(*totals)

"""`loss.backward()` through compiled functions gives what it gives through eager ones."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import dovetail
from dovetail import extend
from dovetail.errors import NoGradRule
from dovetail.trace import check


def leaf(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64).requires_grad_()


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def gradients(fn: Callable, leaves: tuple[Tensor, ...], cotangent: Callable[[Tensor], Tensor]) -> tuple[Tensor, tuple]:
    torch.manual_seed(3)
    out = fn(*leaves)
    return out, torch.autograd.grad(out, leaves, cotangent(out), allow_unused=True)


def assert_like_eager(fn: Callable, *leaves: Tensor, **options: Any) -> Callable:
    """The compiled function, after its result and gradients were compared with eager's, and its programs checked."""
    compiled = dovetail.jit(fn, **options)
    noise = torch.randn(fn(*leaves).shape, dtype=torch.float64)
    for cotangent in (lambda out: noise.to(out.dtype), lambda out: torch.ones((), dtype=out.dtype).expand(out.shape)):
        got, want = (gradients(f, leaves, cotangent) for f in (compiled, fn))
        torch.testing.assert_close(got, want)
    check(dovetail.last_backward_traces(compiled)[0])
    return compiled


def assign_rows(x: Tensor, v: Tensor) -> Tensor:
    y = x * 2
    y[1] = v
    y[:, 0] = 0.0
    return y * x


def fill_a_buffer(x: Tensor) -> Tensor:
    out = torch.zeros(3, 4, dtype=x.dtype)
    for i in range(3):
        out[i] = x[i] * i
    return out * 2


def write_through_a_view(x: Tensor) -> Tensor:
    y = x * 2
    y.t()[0].mul_(3).add_(x[:, 1])
    return y


def straight_through(x: Tensor) -> Tensor:
    return (x + (x.round() - x).detach()) * 3


def without_grad_inside(x: Tensor) -> Tensor:
    with torch.no_grad():
        scale = x.abs().max()
        again = x.sin()
    return x.sin() / scale + again


def same_value_with_and_without_grad(x: Tensor) -> Tensor:
    with torch.no_grad():
        a = x.exp()
    return a * x.exp()


PROGRAMS: dict[str, tuple] = {
    "broadcast": (lambda a, b: (a + b) * a - b / (a * a + 1), (3, 4), (4,)),
    "one input twice": (lambda a: a * a + a, (3,)),
    "reductions": (lambda a: torch.var_mean(a, 1)[0] + a.mean(1) + a.std(1), (3, 4)),
    "slices": (lambda a: a[:, :2] @ a[:, 2:].t() + a[1:2, 0], (3, 4)),
    "overlapping slices": (lambda a: a[:2] * a[1:], (3, 4)),
    "steps": (lambda a: a[::2, 1::2].exp(), (4, 6)),
    "split": (lambda a: torch.cat([x * i for i, x in enumerate(a.split(2, 1))], 0), (3, 6)),
    "views": (lambda a: a.t()[1:, ::2].reshape(-1).exp(), (4, 3)),
    "cat": (lambda a, b: torch.cat([a, b * 2, a], 1), (2, 3), (2, 1)),
    "topk and sort": (lambda a: a.topk(2, 1)[0] + a.sort(1)[0][:, :2], (3, 4)),
    "matmul": (lambda a, b: a @ b, (2, 3, 4), (4, 5)),
    "assigned rows": (assign_rows, (3, 4), (4,)),
    "filled buffer": (fill_a_buffer, (3, 4)),
    "written through a view": (write_through_a_view, (3, 4)),
    "in place relu": (lambda x: F.relu(x * 2, inplace=True) * x, (3, 4)),
    "dropout": (lambda x: F.dropout(x, 0.4) * x, (5, 6)),
    "two dropouts": (lambda x: F.dropout(F.dropout(x, 0.2) * x, 0.4), (5, 6)),
    "scenario 12, no_grad inside": (without_grad_inside, (5,)),
    "scenario 12, the same with and without grad": (same_value_with_and_without_grad, (5,)),
    "scenario 32, straight through": (straight_through, (7,)),
    "scenario 32, round and trunc": (lambda x: x.round() + x.trunc() * x, (7,)),
    "scenario 32, argmin": (lambda x: x[x.argmin()] * x, (7,)),
    "detach": (lambda x: x.detach() * x + x, (7,)),
    "scenario 31, index_put": (lambda x, v: torch.index_put(x * 1, (torch.tensor([0, 2]),), v), (4, 3), (2, 3)),
    "scenario 31, index_put accumulates": (lambda x, v: torch.index_put(x * 1, (torch.tensor([0, 0]),), v, accumulate=True), (4, 3), (2, 3)),
    "scenario 31, minimum": (lambda a, b: torch.minimum(a, b), (5,), (5,)),
    "scenario 31, flip": (lambda a: a.flip(0) * a, (5,)),
    "scenario 31, lerp": (lambda a, b: torch.lerp(a, b, 0.3), (5,), (5,)),
    "scenario 31, remainder": (lambda a, b: torch.remainder(a, b), (5,), (5,)),
    "scenario 31, index_add": (lambda a, b: torch.index_add(a, 0, torch.tensor([1, 1]), b), (4, 3), (2, 3)),
    "opaque": (lambda a: torch.linalg.svdvals(a) * 2, (3, 4)),
    "random": (lambda a: a * torch.rand(3, 4) + torch.randn(4), (3, 4)),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("recompute", ["none", "balanced", "all"])
def test_gradients_are_eagers(name: str, recompute: str) -> None:
    fn, *shapes = PROGRAMS[name]

    assert_like_eager(fn, *(leaf(*shape) for shape in shapes), recompute=recompute)


def test_gradients_at_ties_are_eagers() -> None:
    x = torch.tensor([[1.0, 2.0, 2.0], [3.0, 3.0, 3.0]], dtype=torch.float64, requires_grad=True)

    for fn in (lambda x: x.amax(1), lambda x: x.max(1)[0], lambda x: x.max(), lambda x: torch.minimum(x, x.flip(1)), lambda x: x.median(1)[0] * 2):
        assert_like_eager(fn, x)


def test_complex_gradients_are_eagers() -> None:
    x = torch.randn(3, 4, dtype=torch.complex128).requires_grad_()

    assert_like_eager(lambda x: (x * x.conj()).real + x.abs() + x.imag, x)
    assert_like_eager(lambda x: (x @ x.mH).exp().real, x)


class Block(nn.Module):
    def __init__(self, width: int = 16, heads: int = 4, p: float = 0.0):
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(p)

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in self.qkv(self.before(x)).split(c, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.drop(self.out(y.transpose(1, 2).reshape(b, t, c)))
        return x + self.drop(self.down(F.gelu(self.up(self.between(x)))))


class GPT(nn.Module):
    def __init__(self, vocabulary: int = 11, width: int = 16, layers: int = 2, length: int = 8, p: float = 0.0):
        super().__init__()
        self.token, self.position = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList([Block(width, p=p) for _ in range(layers)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.token.weight

    def forward(self, tokens: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        x = self.token(tokens) + self.position(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def parameter_gradients(run: Callable, model: nn.Module, *args: Tensor) -> dict[str, Tensor | None]:
    model.zero_grad()
    torch.manual_seed(7)
    result = run(*args)
    (result[1] if isinstance(result, tuple) else result.square().sum()).backward()
    return {name: p.grad if p.grad is None else p.grad.clone() for name, p in model.named_parameters()}


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], tuple[Tensor, ...]]]] = {
    "mlp": (lambda: nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3)), lambda: (torch.randn(5, 4),)),
    "block": (Block, lambda: (torch.randn(2, 6, 16),)),
    "block with dropout": (lambda: Block(p=0.3), lambda: (torch.randn(2, 6, 16),)),
    "encoder layer": (lambda: nn.TransformerEncoderLayer(16, 4, 32, batch_first=True), lambda: (torch.randn(2, 6, 16),)),
    "convolutions": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Conv2d(8, 4, 3), nn.AdaptiveAvgPool2d(1)
        ),
        lambda: (torch.randn(4, 3, 8, 8),),
    ),
    "gpt": (GPT, lambda: (torch.randint(0, 11, (2, 8)), torch.randint(0, 11, (2, 8)))),
    "gpt with dropout": (lambda: GPT(p=0.2), lambda: (torch.randint(0, 11, (2, 8)), torch.randint(0, 11, (2, 8)))),
}


@pytest.mark.parametrize("name", MODELS)
def test_parameter_gradients_are_eagers(name: str) -> None:
    make, inputs = MODELS[name]
    model, args = make(), inputs()
    eager = copy.deepcopy(model)
    compiled = dovetail.jit(model)

    for _ in range(2):
        got, want = parameter_gradients(compiled, model, *args), parameter_gradients(eager, eager, *args)

        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(dict(model.named_buffers()), dict(eager.named_buffers()))


def test_an_eager_optimiser_trains_a_compiled_model() -> None:
    model = GPT()
    eager = copy.deepcopy(model)
    tokens, targets = torch.randint(0, 11, (2, 8)), torch.randint(0, 11, (2, 8))

    def losses(model: nn.Module, run: Callable) -> list[float]:
        optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
        found = []
        for _ in range(5):
            optimiser.zero_grad()
            loss = run(tokens, targets)[1]
            loss.backward()
            optimiser.step()
            found.append(loss.item())
        return found

    assert losses(model, dovetail.jit(model)) == pytest.approx(losses(eager, eager), rel=1e-4)


def test_gradients_accumulate_and_hooks_fire() -> None:
    layer = nn.Linear(3, 2)
    compiled = dovetail.jit(layer)
    x, seen = torch.randn(4, 3), []
    layer.weight.register_hook(lambda g: seen.append(g.shape))

    for _ in range(2):
        compiled(x).sum().backward()

    assert seen == [layer.weight.shape] * 2
    torch.testing.assert_close(layer.weight.grad, 2 * x.sum(0).expand(2, 3))


WITHOUT_GRADIENT = {
    "size": lambda x, state: x * torch.ones_like(state),
    "detached": lambda x, state: x * state.detach(),
    "compared": lambda x, state: torch.where(state > 0, x, 2 * x),
    "position": lambda x, state: x[state.argmax()] * x,
    "under no_grad": lambda x, state: x + torch.no_grad()(torch.exp)(state),
}


@pytest.mark.parametrize("name", WITHOUT_GRADIENT)
def test_the_history_of_an_input_that_gets_no_gradient_is_left_alone(name: str) -> None:
    compiled = dovetail.jit(WITHOUT_GRADIENT[name])
    x, w, seen = leaf(4), leaf(4), []
    state = w.exp()
    state.sum().backward()  # frees its graph
    state.register_hook(lambda g: seen.append(g))
    w.register_hook(lambda g: seen.append(g))
    for arguments in ((x, state), (x, w)):
        compiled(*arguments).sum().backward()
    assert seen == [] and x.grad is not None


def test_leaves_of_any_layout_get_gradients_of_their_shape() -> None:
    base = leaf(4, 3)
    expanded = torch.randn(1, 3, dtype=torch.float64).expand(4, 3).requires_grad_()

    assert_like_eager(lambda a, b: a * b.exp(), base.detach().t().contiguous().t().requires_grad_(), expanded)
    assert_like_eager(lambda a: (a * 2).sum(0), expanded)


def test_a_result_that_is_not_used_costs_nothing() -> None:
    compiled = dovetail.jit(lambda a, b: (a.exp() @ a, b.sin()))
    a, b = leaf(3, 3), leaf(4)

    compiled(a, b)[1].sum().backward()

    assert a.grad is None
    torch.testing.assert_close(b.grad, b.detach().cos())


def mutate_without_grad(w: Tensor, x: Tensor) -> Tensor:
    with torch.no_grad():
        w.mul_(0.5)
    return w * x


def mutate_a_result_without_grad(w: Tensor, x: Tensor) -> Tensor:
    y = w * x
    with torch.no_grad():
        y[0] = 7.0
    return y * 3


def mutate_a_detached_view(w: Tensor, x: Tensor) -> Tensor:
    y = w * x
    y.detach().add_(1)
    return y * 2


@pytest.mark.parametrize("fn", [mutate_without_grad, mutate_a_result_without_grad, mutate_a_detached_view])
def test_scenario_12_writes_that_autograd_does_not_see_leave_the_history_alone(fn: Callable) -> None:
    found = []
    for run in (dovetail.jit(fn), fn):
        w, x = torch.ones(3, dtype=torch.float64, requires_grad=True), torch.full((3,), 2.0, dtype=torch.float64)
        out = run(w, x)
        out.sum().backward()
        found.append((out.detach(), w.grad, w.detach()))
    torch.testing.assert_close(*found)


def test_results_that_need_no_gradient_have_none() -> None:
    compiled = dovetail.jit(lambda a: (a * 2, a.detach() * 3, a.argmax(), (a > 0)))

    doubled, tripled, place, positive = compiled(leaf(5))

    assert [x.requires_grad for x in (doubled, tripled, place, positive)] == [True, False, False, False]


def test_results_that_alias_inputs_do_so_with_history() -> None:
    compiled = dovetail.jit(lambda a: (a, a.view(-1), a * 2))
    a = leaf(2, 3)

    same, viewed, doubled = compiled(a)
    (viewed.sum() + doubled.sum()).backward()

    assert same is a and viewed._base is a
    torch.testing.assert_close(a.grad, torch.full_like(a, 3))


def test_a_mutated_input_gets_a_history() -> None:
    def fn(x: Tensor, w: Tensor) -> Tensor:
        y = x.exp()
        x.mul_(w)
        return y

    for run in (dovetail.jit(fn), fn):
        x, w = torch.ones(3, dtype=torch.float64), torch.full((3,), 2.0, dtype=torch.float64, requires_grad=True)
        run(x, w)
        x.sum().backward()
        torch.testing.assert_close(w.grad, torch.ones_like(w))


@pytest.mark.parametrize("recompute", ["none", "balanced", "all"])
def test_an_input_that_is_mutated_after_it_was_read_is_saved_as_it_was(recompute: str) -> None:
    def fn(x: Tensor, w: Tensor) -> Tensor:
        y = x.sin() * w + x[0].square() * w * w
        x.add_(1)
        return y

    results = []
    for run in (dovetail.jit(fn, recompute=recompute), lambda x, w: x.sin() * w + x[0].square() * w * w):
        x, w = torch.ones(3, dtype=torch.float64), torch.full((3,), 2.0, dtype=torch.float64, requires_grad=True)
        run(x, w).sum().backward()
        results.append(w.grad)
    torch.testing.assert_close(*results)


def test_a_saved_input_that_the_user_mutates_is_eagers_error() -> None:
    x, w = leaf(3), torch.ones(3, dtype=torch.float64)
    out = dovetail.jit(lambda x, w: x * w)(x, w)

    w.add_(1)

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_scenario_12_grad_mode_is_respected_and_the_graph_can_be_retained() -> None:
    compiled = dovetail.jit(lambda x: x.sin() * 2)
    x = leaf(3)

    with torch.no_grad():
        assert not compiled(x).requires_grad
    with torch.inference_mode():
        assert compiled(x).is_inference()
    out = compiled(x).sum()
    out.backward(retain_graph=True)
    out.backward()
    torch.testing.assert_close(x.grad, 4 * x.detach().cos())
    with pytest.raises(RuntimeError, match="second time"):
        out.backward()


def test_scenario_34_double_backward_is_right_or_refused_with_the_way_out() -> None:
    x = leaf(3)
    (g,) = torch.autograd.grad(dovetail.jit(lambda x: x**3)(x).sum(), x, create_graph=True)
    torch.testing.assert_close(torch.autograd.grad(g.sum(), x)[0], 6 * x.detach())
    (g,) = torch.autograd.grad(dovetail.jit(lambda x: torch.dropout(x * x, 0.5, True))(x).sum(), x, create_graph=True)

    with pytest.raises(RuntimeError, match=r"dovetail.grad\(dovetail.grad\(fn\)\)"):
        g.sum().backward()


def test_scenario_35_a_transformer_block_saves_no_more_than_eager() -> None:
    block, x = Block(), torch.randn(2, 6, 16)
    own = {p.untyped_storage().data_ptr() for p in (*block.parameters(), x)}
    saved: dict[int, int] = {}

    def note(y: Tensor) -> Tensor:
        saved.setdefault(y.untyped_storage().data_ptr(), y.untyped_storage().nbytes())
        return y

    with torch.autograd.graph.saved_tensors_hooks(note, lambda y: y):
        out = block(x)
    compiled = dovetail.jit(block)
    compiled(x)

    eager = sum(size for at, size in saved.items() if at not in own | {out.untyped_storage().data_ptr()})
    assert 0 < dovetail.last_backward_traces(compiled)[0].saved_bytes <= eager


def test_saved_tensors_are_let_go_as_the_backward_runs() -> None:
    alive: list[weakref.ref] = []
    at_the_end: list[int] = []

    def chain(x: Tensor) -> Tensor:
        for _ in range(4):
            x = x.sin().matmul(x)
        return x

    def count(line: Any, args: tuple, kwargs: dict, result: Any = None) -> None:
        if torch.is_grad_enabled():
            return
        at_the_end.append(sum(ref() is not None for ref in alive))

    compiled = dovetail.jit(chain, passes=[extend.advanced.watch(after=count)], recompute="none")
    out = compiled(leaf(4, 4))
    alive += [weakref.ref(x) for x in out.grad_fn.saved_tensors]
    at_the_end.clear()
    gc.collect()

    out.sum().backward()

    assert len(alive) > 4
    assert at_the_end[-1] < len(alive) - 3


def test_scenario_36_a_missing_rule_names_the_operation_its_symbol_and_the_line() -> None:
    meta = extend.make_prim("lonely.halve", "halve", meta=lambda x: x.fresh(), replace=True)
    with pytest.raises(NoGradRule, match=r"lonely\.halve has no gradient rule \(symbol lonely\.halve, in .* called at .*test_jit_backward\.py:\d+\)"):
        dovetail.jit(lambda x: meta(x) * 2)(leaf(3))


def test_a_registered_rule_replaces_the_backward_of_an_operation() -> None:
    def rule(input: Any) -> Any:
        out = torch.sin(input)
        extend.put_grad(input, extend.get_grad(out) * 5)
        return out

    extend.register_grad(torch.sin, rule)
    try:
        x = leaf(3)
        dovetail.jit(lambda x: (x * 2).sin().sum())(x).backward()
        torch.testing.assert_close(x.grad, torch.full_like(x, 10))
    finally:
        extend.register_grad(torch.sin, None)


def test_a_registered_rule_computes_the_forward_too_and_may_decline() -> None:
    def rule(input: Any, other: Any) -> Any:
        if input.spec.shape == (2,):
            return NotImplemented
        out = torch.sub(input, other) * 3
        extend.put_grad(input, torch.cos(extend.get_grad(out)))
        return out

    extend.register_grad("torch.atan2", rule)
    try:
        a, b = leaf(3), leaf(3)
        out = dovetail.jit(torch.atan2)(a, b)
        torch.testing.assert_close(out, (a - b) * 3)
        assert torch.autograd.grad(out, [a, b], torch.zeros_like(out), allow_unused=True) == (pytest.approx(torch.ones(3)), None)
        assert_like_eager(torch.atan2, leaf(2), leaf(2))
    finally:
        extend.register_grad("torch.atan2", None)


def test_a_rule_sees_cotangents_in_their_own_layout() -> None:
    def rule(input: Any) -> Any:
        out = torch.tanh(input)
        g = extend.get_grad(out)
        extend.put_grad(input, (g.reshape(-1) * 2).reshape(input.shape))
        return out

    extend.register_grad(torch.tanh, rule)
    try:
        x = leaf(3, 4)
        compiled = dovetail.jit(lambda x: x.tanh().t() * torch.arange(12.0, dtype=torch.float64).reshape(4, 3))
        compiled(x).sum().backward()
        torch.testing.assert_close(x.grad, 2 * torch.arange(12.0, dtype=torch.float64).reshape(4, 3).t())
        check(dovetail.last_backward_traces(compiled)[0])
    finally:
        extend.register_grad(torch.tanh, None)


def toy(name: str, factor: float) -> extend.OperatorExecutor:
    """An executor that runs silu on small inputs, with a backward of its own."""

    def rule(input: Any, inplace: bool = False) -> Any:
        out = F.silu(input)
        extend.put_grad(input, extend.get_grad(out) * factor)
        return out

    ex = extend.OperatorExecutor(name)
    ex.implements(F.silu, F.silu, checker=lambda input, **_: input.spec.shape[0] < 8 or "expected fewer than 8 rows", grad=rule)
    return ex


def test_scenario_33_an_executors_rule_wins_where_it_claims_and_in_its_order() -> None:
    first, second = toy("first_toy", 5.0), toy("second_toy", 7.0)

    for executors, rows, expected in (([first, second], 3, 5.0), ([second, first], 3, 7.0)):
        x = leaf(rows)
        dovetail.jit(lambda x: F.silu(x).sum(), executors=executors)(x).backward()
        torch.testing.assert_close(x.grad, torch.full_like(x, expected))
    assert_like_eager(lambda x: F.silu(x), leaf(9), executors=[first, second])


def test_traces_of_every_step_are_kept() -> None:
    compiled = dovetail.jit(lambda x: (x.sin() * 2).sum())
    compiled(leaf(3))

    assert [t.name for t in dovetail.last_traces(compiled)].count("forward") >= 2
    last = dovetail.last_backward_traces(compiled)[-1]
    assert "bytes" in str(last).splitlines()[0]
    assert last.name == "backward"


def test_an_unknown_recompute_is_refused() -> None:
    with pytest.raises(ValueError, match="recompute is 'none' or 'balanced' or 'all', not 'some'"):
        dovetail.jit(lambda x: x * 2, recompute="some")


class Noisy(torch.autograd.Function):
    """Adds noise to its gradient; the noise does not depend on the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g + torch.randn(3)


def test_a_backward_draws_its_random_numbers_when_it_runs() -> None:
    def drawn(fn: Callable, runs: bool) -> list[Tensor]:
        x = torch.ones(3, requires_grad=True)
        torch.manual_seed(0)
        out = fn(x)
        between = torch.rand(2)
        if runs:
            out.backward()
        return [between, torch.rand(2), *([x.grad] if runs else [])]

    def noisy(x: Tensor) -> Tensor:
        return Noisy.apply(x).sum()

    for runs in (True, False):
        torch.testing.assert_close(drawn(dovetail.jit(noisy), runs), drawn(noisy, runs), rtol=0, atol=0)


def test_the_gradient_of_a_matrix_through_a_linear_layer_turns_no_weight():
    x, weight = leaf(4, 3), leaf(5, 3)
    compiled = assert_like_eager(lambda x, weight: F.linear(x, weight), x, weight)
    turned = [line.args[0].spec.shape for line in dovetail.last_backward_traces(compiled)[0].lines if line.symbol.name == "transpose"]
    assert turned == [(4, 5)]  # the cotangent alone


LAID_OUT = {
    "channels last": lambda x: torch.relu(x.contiguous(memory_format=torch.channels_last)),
    "permuted": lambda x: torch.sin(x).permute(0, 2, 3, 1) * 2,
    "two results": lambda x: (x.contiguous(memory_format=torch.channels_last) * 2, x.exp()),
}
COTANGENTS = {
    "as the result": torch.randn_like,
    "row-major": lambda out: torch.randn(out.shape),
    "of a sum": lambda out: torch.ones(()).expand(out.shape),
    "reversed": lambda out: torch.randn(*reversed(out.shape)).permute(*reversed(range(out.ndim))),
}


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("cotangent", COTANGENTS)
@pytest.mark.parametrize("program", LAID_OUT)
def test_cotangents_of_any_layout_give_eagers_gradients(program, cotangent, twice):
    fn, x = LAID_OUT[program], torch.randn(2, 3, 4, 5)

    def gradient(f: Callable, result: int) -> Tensor:
        leaf = x.clone().requires_grad_()
        out = f(leaf) if program != "two results" else f(leaf)[result]
        torch.manual_seed(5)
        (g,) = torch.autograd.grad(out, leaf, COTANGENTS[cotangent](out), create_graph=twice)
        curved = program == "permuted" or (program == "two results" and result == 1)
        return torch.autograd.grad(g.square().sum(), leaf)[0] if twice and curved else g

    compiled = dovetail.jit(fn)
    for result in (0, 1):
        torch.testing.assert_close(gradient(compiled, result), gradient(fn, result))


def test_a_backward_takes_cotangents_laid_out_as_results_are():
    compiled = dovetail.jit(LAID_OUT["channels last"])
    compiled(torch.randn(2, 3, 4, 5, requires_grad=True)).sum().backward()
    (cotangent,) = dovetail.last_backward_traces(compiled)[0].cotangents
    assert cotangent.spec.strides == (60, 1, 15, 3)


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128, torch.bfloat16])
@pytest.mark.parametrize("shape", [(5,), (1, 5), (1, 1, 5)])
def test_the_gradient_of_a_weight_by_one_row_is_an_outer_product(dtype, shape):
    x, weight = torch.randn(shape).to(dtype).requires_grad_(), torch.randn(7, 5).to(dtype).requires_grad_()
    ours = dovetail.jit(torch.nn.functional.linear)
    out = ours(x, weight)
    cotangent = torch.randn(out.shape).to(dtype)
    got, want = (torch.autograd.grad(each, (x, weight), cotangent) for each in (out, torch.nn.functional.linear(x, weight)))
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, other)
        assert one.stride() == other.stride()
    assert "matmul" not in {line.symbol.name for line in dovetail.last_backward_traces(ours)[0].lines if line.out.spec.shape == (7, 5)}


@pytest.mark.parametrize("program", [lambda a, x: a + x, lambda a, x: (a - x).sum(), lambda a, x: torch.cat([a, -x])[1:]])
def test_a_backward_that_reads_nothing_runs_a_second_time(program):
    fn, results = dovetail.jit(program), []
    for call in (fn, program):
        a, x = (torch.ones(2, requires_grad=True) for _ in range(2))
        y = call(a, x)
        y.sum().backward()
        y.sum().backward()
        results.append((a.grad, x.grad))
    torch.testing.assert_close(*results)


def test_a_sum_goes_on_from_call_to_call_with_its_history():
    def add(total, x):
        return total + x

    fn, results = dovetail.jit(add), []
    for call in (fn, add):
        total, xs = torch.zeros(2), [torch.full((2,), float(i), requires_grad=True) for i in range(4)]
        for x in xs:
            total = call(total, x)
            total.sum().backward()
        results.append([x.grad for x in xs])
    torch.testing.assert_close(*results)


def test_a_backward_that_reads_what_was_freed_raises():
    fn = dovetail.jit(lambda a, x: a * x)
    y = fn(*(torch.ones(2, requires_grad=True) for _ in range(2)))
    y.sum().backward()
    with pytest.raises(RuntimeError, match="a second time"):
        y.sum().backward()


UNDIFFERENTIATED = {
    "floor_divide": lambda x: torch.floor_divide(x, 2),
    "//": lambda x: x // 2 + x,
    "// of a number": lambda x: 7.0 // x,
    "heaviside": lambda x: torch.heaviside(x, torch.ones(3)),
    "zeta": lambda x: torch.special.zeta(x, torch.ones(3)),
}


@pytest.mark.parametrize("name", UNDIFFERENTIATED)
@pytest.mark.parametrize("inside", [True, False])
def test_what_eager_mode_has_no_derivative_for_raises_in_the_backward(name, inside):
    fn = UNDIFFERENTIATED[name]

    def step(x):
        return torch.autograd.grad(fn(x).sum(), x)

    x = torch.tensor([2.0, 3.0, 4.0], requires_grad=True)
    fast = dovetail.jit(fn)
    torch.testing.assert_close(fast(x), fn(x))
    with pytest.raises(RuntimeError) as eager:
        step(x)
    with pytest.raises(type(eager.value), match="derivative"):
        dovetail.jit(step)(x) if inside else torch.autograd.grad(fast(x).sum(), x)
    kept = dovetail.jit(lambda x: (fn(x).detach() * x).sum())(x)
    torch.testing.assert_close(*torch.autograd.grad(kept, x), fn(x).detach())

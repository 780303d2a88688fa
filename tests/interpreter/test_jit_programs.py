"""Programs that `jit` interprets: scenarios 2, 5, 8 to 10, 49, 50 and 53, state, opaque functions, autocast, errors."""

from __future__ import annotations

import array
import functools
import gc
import re
import traceback
import weakref
from contextlib import nullcontext

import pytest
import torch
import torch._dynamo.mutation_guard
import torch.nn.functional as F
from agreement import X, agrees, same
from torch import nn

import dovetail
from dovetail.errors import TracedValueError, Unsupported

SCALE = 2.0


class Callable:
    by = 2

    def __call__(self, x):
        return x * self.by

    def method(self, x):
        return x + self.by

    @classmethod
    def of_class(cls, x):
        return x - cls.by

    @staticmethod
    def static(x):
        return x * 5


def doubled(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        return fn(*args, **kwargs) * 2

    return wrapper


CALLABLES = {
    "a partial": functools.partial(lambda a, b, *, c: a * b + c, 2, c=3),
    "a callable object": Callable(),
    "a bound method": Callable().method,
    "a class method": Callable.of_class,
    "a static method": Callable.static,
    "a lambda": lambda x: x + 1,
    "a decorated function": doubled(lambda x: x + 1),
    "no_grad as a decorator": torch.no_grad()(lambda x: x * 2),
}


@pytest.mark.parametrize("name", CALLABLES)
def test_anything_that_can_be_called_can_be_compiled(name):
    agrees(CALLABLES[name], X)


def test_jit_is_a_decorator_with_and_without_arguments():
    @dovetail.jit
    def plain(x):
        return x + 1

    @dovetail.jit(recompute="none", interpretation="bytecode")
    def with_arguments(x):
        return plain(x) * 2  # what is compiled on its own is a part of the program here

    torch.testing.assert_close(with_arguments(X), (X + 1) * 2)
    assert [line.symbol.name for line in dovetail.last_traces(with_arguments)[0].lines] == ["add", "mul"]
    with pytest.raises(dovetail.DovetailError, match="interpretation is 'bytecode' or 'native', not 'bytes'"):
        dovetail.jit(interpretation="bytes")(lambda x: x)


# Scenario 2: modules.


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
        self.register_buffer("seen", torch.zeros(()))
        self.calls, self.kept = [], None

    def __call__(self, x, extra=1.0):
        return super().__call__(x) + extra

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu()
        self.seen += x.detach().sum()
        self.calls.append(x.shape)
        self.kept = x.mean()
        return x


def test_scenario_2_a_module_with_state_hooks_and_a_call_of_its_own():
    torch.manual_seed(0)
    ours, theirs = Block(), Block()
    theirs.load_state_dict(ours.state_dict())
    for model in (ours, theirs):
        model.layers[0].register_forward_hook(lambda module, args, out: out * 2)
        model.layers[1].register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    compiled = dovetail.jit(ours)
    for shift in range(3):
        torch.testing.assert_close(compiled(X + shift), theirs(X + shift))
        torch.testing.assert_close((ours.seen, ours.kept), (theirs.seen, theirs.kept))
        assert ours.calls == theirs.calls
    assert compiled.cache_info().programs == 1
    compiled(X).sum().backward()
    theirs(X).sum().backward()
    torch.testing.assert_close([p.grad for p in ours.parameters()], [p.grad for p in theirs.parameters()])
    with torch.no_grad():
        for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
            p.mul_(0.5), q.mul_(0.5)
    torch.testing.assert_close(compiled(X), theirs(X))
    assert compiled.cache_info().programs == 1, "parameters are read anew at each call"


PARAMETRIZED = {
    "weight_norm": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)),
    "orthogonal": lambda: nn.utils.parametrizations.orthogonal(nn.Linear(4, 4)),
    "spectral_norm": lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4)).eval(),
    "lstm": lambda: nn.LSTM(4, 3),
    "attention": lambda: nn.TransformerEncoderLayer(4, 2, dropout=0.0, batch_first=True),
}


@pytest.mark.parametrize("name", PARAMETRIZED)
def test_modules_that_torch_builds_of_python(name):
    torch.manual_seed(0)
    agrees(PARAMETRIZED[name](), torch.randn(2, 3, 4))


def test_a_counter_of_a_module_counts_and_each_value_is_a_program():
    class Counts(nn.Module):
        n = 0

        def forward(self, x):
            self.n += 1
            return x * self.n

    compiled = dovetail.jit(module := Counts())
    assert [compiled(torch.ones(1)).item() for _ in range(3)] == [1, 2, 3] and module.n == 3
    assert compiled.cache_info().programs == 3


# Scenario 5: values that nobody knows.


def branch(x):
    y = x * 2
    if y.sum() > 0:  # the line
        return y
    return -y


ASKED = {
    "if": branch,
    "int": lambda x: int(x.sum()),
    "complex": lambda x: complex(x.sum()),
    "an index": lambda x: [1, 2, 3][x.argmax()],
    "range": lambda x: list(range(x.sum())),
    "tolist of a large tensor": lambda x: x.repeat(9, 9).tolist(),
    "tolist": lambda x: 1 if x.sum(0).tolist()[0] > 0 else 2,
    "numpy": lambda x: [1, 2, 3][x.numpy().argmax()],
    "a quotient of items": lambda x: 1 / x.sum().item(),
    "a branch on item": lambda x: 1 if x.sum().item() > 0 else 2,
    "item in a list": lambda x: x.sum().item() in [1, 2],
    "item in a set": lambda x: x.sum().item() in {1, 2},
    "item as a key": lambda x: {x.sum().item(): 1},
    "text that is read": lambda x: f"{x.sum():.2f}"[0],
    "text of a tensor that is read": lambda x: "1" in str(x),
    "percent": lambda x: ("%s" % x).upper(),  # noqa: UP031
    "assert": lambda x: (_ for _ in ()).throw(AssertionError) if not x.isfinite().all() else x,
}
ASKED["while"] = lambda x: x if not (x > 3).any() else x - 1


@pytest.mark.parametrize("name", ASKED)
def test_scenario_5_a_value_is_never_baked_in(name):
    with pytest.raises((TracedValueError, Unsupported), match=r"test_jit_programs.py:\d+"):
        dovetail.jit(ASKED[name], decisions="error")(X)


def test_scenario_5_the_error_names_line_tensor_and_way_out_and_has_the_users_traceback():
    line = branch.__code__.co_firstlineno + 2
    with pytest.raises(TracedValueError, match=rf't\d+: "cpu b8\[\]" is needed at .*test_jit_programs.py:{line}.*torch.where') as caught:
        dovetail.jit(branch, decisions="error")(X)
    shown = "".join(traceback.format_exception(caught.value))
    assert f'test_jit_programs.py", line {line}, in branch' in shown and "if y.sum() > 0:  # the line" in shown
    assert "frontend/interpreter/" not in shown


def test_item_may_be_an_operand_and_a_result():
    def fn(x):
        return x / x.sum().item(), x.max().item()

    compiled = agrees(fn, X)
    assert compiled(torch.ones(2))[1] == 1.0


# Scenarios 8, 9 and 10.


class Tripled(torch.autograd.Function):
    """x * scale whose backward is made up, and reads a global."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * SCALE

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x * SCALE * 10


def test_scenario_8_a_custom_backward_is_used_and_what_it_reads_is_guarded(monkeypatch):
    compiled = dovetail.jit(lambda x: Tripled.apply(x).sum())
    for scale in (2.0, 3.0):
        monkeypatch.setitem(globals(), "SCALE", scale)
        ours, theirs = X.clone().requires_grad_(), X.clone().requires_grad_()
        torch.testing.assert_close(compiled(ours), Tripled.apply(theirs).sum())
        compiled(ours).backward()
        Tripled.apply(theirs).sum().backward()
        torch.testing.assert_close(ours.grad, theirs.grad)


def test_scenario_8_a_backward_that_reads_a_tensor_it_did_not_save_is_left_to_autograd():
    outside = torch.ones(4)

    class Reads(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * outside

    with pytest.raises(Unsupported, match=r"save it with ctx.save_for_backward"):
        dovetail.jit(lambda x: Reads.apply(x).sum(), decisions="error")(X.clone().requires_grad_())
    x = X.clone().requires_grad_()
    out = dovetail.jit(lambda x: Reads.apply(x).sum())(x)
    outside.fill_(5)
    out.backward()
    torch.testing.assert_close(x.grad, torch.full_like(x, 5))


def test_scenario_9_checkpoint_inside_a_program():
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4))

    def fn(x):
        return torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False) + torch.utils.checkpoint.checkpoint(
            lambda y: y.sin(), x, use_reentrant=False
        )

    ours, theirs = X.clone().requires_grad_(), X.clone().requires_grad_()
    dovetail.jit(fn)(ours).sum().backward()
    fn(theirs).sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad)


@torch.library.custom_op("dovetail_tests::interpreted_scaled", mutates_args=())
def scaled(x: torch.Tensor, by: float) -> torch.Tensor:
    return x * by


@scaled.register_fake
def _(x, by):
    return torch.empty_like(x)


def test_scenario_10_a_custom_operator_needs_no_registration():
    agrees(lambda x: scaled(x, 2.5) + 1, X)


# Scenarios 49, 50 and 53.


class Settings:
    mode, bias = "sum", None


SETTINGS, ITEMS = Settings(), [1.0, 2.0]


def reads_everything(x, k=2):
    total = x * k * SCALE + sum(ITEMS)
    if SETTINGS.mode == "sum":
        total = total + x.sum()
    return total if SETTINGS.bias is None else total + SETTINGS.bias


CHANGES = {
    "a number in the arguments": lambda patch: {"k": 3},
    "a global number": lambda patch: patch.setitem(globals(), "SCALE", 5.0),
    "a string in an attribute": lambda patch: patch.setattr(SETTINGS, "mode", "none", raising=False),
    "None becomes a number": lambda patch: patch.setattr(SETTINGS, "bias", 1.5, raising=False),
    "a global list grows": lambda patch: patch.setitem(globals(), "ITEMS", [*ITEMS, 3.0]),
    "a class attribute": lambda patch: patch.setattr(Settings, "mode", "other"),
    "the function is rebound": lambda patch: patch.setattr(reads_everything, "__code__", (lambda x, k=2: x - k).__code__),
    "a default argument": lambda patch: patch.setattr(reads_everything, "__defaults__", (7,)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_scenarios_49_and_50_a_change_outside_compiles_again(name, monkeypatch):
    compiled = dovetail.jit(reads_everything)
    torch.testing.assert_close(compiled(X), reads_everything(X))
    kwargs = CHANGES[name](monkeypatch) or {}
    torch.testing.assert_close(compiled(X + 1, **kwargs), reads_everything(X + 1, **kwargs))
    assert compiled.cache_info().programs == 2


def test_scenario_50_reading_one_attribute_depends_on_that_attribute_alone():
    compiled = agrees(lambda x: x * (2 if SETTINGS.mode == "sum" else 3), X)
    SETTINGS.unrelated = 5
    try:
        compiled(X)
    finally:
        del SETTINGS.unrelated
    assert compiled.cache_info().programs == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_scenario_53_autocast_on_and_off_compiles_again(dtype):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 4))
    compiled = dovetail.jit(model)
    for on in (False, True, False, True):
        with torch.autocast("cpu", dtype, enabled=on):
            got, want = compiled(X), model(X)
        assert got.dtype is want.dtype is (dtype if on else torch.float32)
        torch.testing.assert_close(got, want)
    assert compiled.cache_info().programs == 2
    ours, theirs = (torch.autograd.grad(out.float().sum(), list(model.parameters())) for out in (got, want))
    torch.testing.assert_close(ours, theirs, rtol=2e-2, atol=2e-2)


def regions(x, w):
    with torch.autocast("cpu", torch.bfloat16):
        y = x @ w
        made = y, y.softmax(-1) + x.sum(), F.mse_loss(y, y * 2), torch.cat([y, x]), torch.einsum("ij,jk->ik", x, w)
        with torch.autocast("cpu", enabled=False):
            return *made, x @ w, torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8])
def test_autocast_casts_a_loss_of_classes_of_each_dtype(dtype):
    loss, inputs = torch.nn.functional.nll_loss, (torch.randn(3, 5, dtype=torch.bfloat16), torch.tensor([1, 0, 4], dtype=dtype))
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(dovetail.jit(loss)(*inputs), loss(*inputs))


def test_scenario_53_autocast_regions_cast_what_eager_casts():
    compiled = dovetail.jit(regions)
    for shift in (0, 1):
        for got, want in zip(compiled(X + shift, X), regions(X + shift, X), strict=True):
            torch.testing.assert_close(got, want)
    assert compiled.cache_info().programs == 1 and not torch.is_autocast_enabled("cpu")
    guards = str(dovetail.last_prologue_traces(compiled)[-1])
    assert re.search(r"is_autocast_cache_enabled\w*\(\)", guards)
    assert not re.search(r"(autocast_\w+_nesting|clear_autocast_cache)\w*\(\)", guards)  # these guards would change the state of autocast


INSIDE = {
    "autocast": (lambda: torch.autocast("cpu", torch.float16, cache_enabled=False), torch.is_autocast_cache_enabled),
    "autocast's dtype": (lambda: torch.autocast("cpu", torch.float16), lambda: torch.get_autocast_dtype("cpu")),
    "no autocast": (lambda: torch.autocast("cpu", enabled=False), lambda: torch.is_autocast_enabled("cpu")),
    "inference_mode": (torch.inference_mode, torch.is_inference_mode_enabled),
    "no_grad": (torch.no_grad, torch.is_grad_enabled),
}
if hasattr(torch, "is_autocast_cpu_enabled"):  # a deprecated name, which takes no argument
    INSIDE["autocast on the CPU"] = (lambda: torch.autocast("cpu", torch.bfloat16), torch.is_autocast_cpu_enabled)


@pytest.mark.filterwarnings("ignore:torch.is_autocast_cpu_enabled:DeprecationWarning")
@pytest.mark.parametrize(("context", "question"), INSIDE.values(), ids=INSIDE)
def test_what_is_set_inside_is_read_there_and_guarded_as_it_is_outside(context, question):
    def read(x):
        with context():
            inside = question()
        return x + 1, inside, question()

    compiled = dovetail.jit(read)
    for surroundings in (nullcontext, context, nullcontext, context):
        with surroundings():
            got, want = compiled(X), read(X)
        assert got[1:] == want[1:] and torch.equal(got[0], want[0])
    assert compiled.cache_info().misses <= 2


@pytest.mark.parametrize("switch", ["dtype", "device", "grad"])
def test_scenario_53_defaults_compile_again(switch):
    def fn(x):
        return torch.ones(2), torch.zeros(1).device, torch.is_grad_enabled(), x + 1

    compiled = dovetail.jit(fn)
    compiled(X)
    try:
        {
            "dtype": lambda: torch.set_default_dtype(torch.float64),
            "device": lambda: torch.set_default_device("meta"),
            "grad": lambda: torch.set_grad_enabled(False),
        }[switch]()
        got, want = compiled(X), fn(X)
    finally:
        torch.set_default_dtype(torch.float32), torch.set_default_device(None), torch.set_grad_enabled(True)
    assert got[0].dtype is want[0].dtype and got[0].device == want[0].device and got[1:3] == want[1:3]


def test_no_grad_blocks_and_what_is_left_switched():
    def fn(x):
        with torch.no_grad():
            y = x * 2
        return x + y

    x = torch.ones(2, requires_grad=True)
    dovetail.jit(fn)(x).sum().backward()
    assert x.grad.tolist() == [1, 1]

    def leaves_it_off(x):
        torch.set_grad_enabled(False)
        return x * 2

    compiled = dovetail.jit(leaves_it_off)
    try:
        for _ in range(2):
            torch.set_grad_enabled(True)
            compiled(X)
            assert not torch.is_grad_enabled()
    finally:
        torch.set_grad_enabled(True)


# What cannot be looked into.


def test_an_opaque_function_runs_at_every_call_on_real_tensors():
    seen = []

    @dovetail.opaque(meta=lambda x, by=1: torch.empty_like(x))
    def through_numpy(x, by=1):
        seen.append(type(x))
        return torch.from_numpy(x.detach().numpy() * by)

    @dovetail.opaque
    def smooth(x, y):
        return (x * y).sin(), x + 1

    for interpretation in ("bytecode", "native"):
        compiled = dovetail.jit(lambda x: through_numpy(x, by=3) + sum(smooth(x, x * 2)), interpretation=interpretation)
        for shift in (0, 1):
            x = X + shift
            torch.testing.assert_close(compiled(x), x * 3 + (x * x * 2).sin() + x + 1)
    assert seen == [torch.Tensor] * 4
    x = X.clone().requires_grad_()
    dovetail.jit(lambda x: smooth(x, x)[0])(x).sum().backward()
    torch.testing.assert_close(x.grad, 2 * X * (X * X).cos())


def through_numpy(x):
    return torch.from_numpy(x.detach().numpy().cumsum())


class Host:
    def run(self, x):
        return through_numpy(x)


host = Host()


@pytest.mark.parametrize(
    "mark",
    [
        lambda: dovetail.opaque(through_numpy, meta=torch.empty_like),
        lambda: dovetail.opaque(through_numpy, meta=lambda x: x.new_empty(x.shape)),
        lambda: dovetail.opaque(meta=torch.empty_like)(through_numpy),
        lambda: dovetail.opaque(host.run, meta=torch.empty_like),
    ],
)
def test_a_function_that_the_program_marks_as_opaque_runs_at_every_call(mark):
    compiled = dovetail.jit(lambda x: mark()(x * 2) + 1)
    for shift in (0, 1, 2):
        torch.testing.assert_close(compiled(X[0] + shift), through_numpy((X[0] + shift) * 2) + 1)
    assert compiled.cache_info().misses == 1


def test_a_function_that_the_program_creates_and_marks_as_opaque_is_refused():
    def fn(x):
        @dovetail.opaque(meta=torch.empty_like)
        def shifted(y):
            return through_numpy(y) + x

        return shifted(x)

    with pytest.raises(Unsupported, match=r"creates the function .*shifted and marks it as opaque.*define it outside"):
        dovetail.jit(fn)(X[0])


def test_an_opaque_function_that_cannot_run_on_fake_tensors_is_told_to_have_a_meta():
    with pytest.raises(RuntimeError, match=r"pass dovetail\.opaque a meta= that needs none"):
        dovetail.jit(lambda x: dovetail.opaque(through_numpy)(x) + 1)(X[0])


def test_an_opaque_function_that_gives_no_tensor_is_refused():
    @dovetail.opaque(meta=lambda x: 1.0)
    def number(x):
        return float(x.sum())

    with pytest.raises(Unsupported, match="returns other values than tensors"):
        dovetail.jit(lambda x: x * number(x))(X)
    assert float(number(X)) == float(X.sum())


def test_an_array_from_outside_is_guarded_by_its_content():
    numpy = pytest.importorskip("numpy")
    held = numpy.arange(4.0, dtype=numpy.float32)

    def fn(x):
        return x * torch.tensor(held)

    compiled = agrees(fn, X)
    held[0] = 9
    torch.testing.assert_close(compiled(X), fn(X))


def test_a_buffer_that_is_computed_while_tracing_is_new_at_every_call():
    numpy = pytest.importorskip("numpy")
    compiled = dovetail.jit(lambda x: (x + 1, bytearray(b"ab"), numpy.arange(3), array.array("i", [1, 2])))
    for _ in range(2):
        _, *buffers = compiled(X)
        assert [list(buffer) for buffer in buffers] == [[97, 98], [0, 1, 2], [1, 2]]
        for buffer in buffers:
            buffer[0] = 5


def test_programs_that_read_large_arrays_run_in_eager_mode_where_their_values_count():
    numpy = pytest.importorskip("numpy")
    names, steps = numpy.full(1 << 14, "ab"), numpy.arange(20000.0)

    def counts(x):
        while x.sum() < steps[100]:
            x = x + 1
        return x

    def chosen(x):
        part = steps[10:20]
        return x + part.sum() if x.sum() > 0 else x * int(part[0])

    for fn in (lambda x: x * len(names[0]), counts, chosen):
        compiled = dovetail.jit(fn)
        with pytest.warns(UserWarning, match="run in eager mode"):
            for _ in range(3):
                torch.testing.assert_close(compiled(X), fn(X))
                names[0] += "c"
                steps[100] += 1
        steps[:] = numpy.arange(20000.0)


def test_an_iterator_that_leaves_the_program_is_refused():
    with pytest.raises(Unsupported, match="a zip leaves the program"):
        dovetail.jit(lambda x: zip([x], [x], strict=True))(X)


def test_an_error_of_the_program_is_the_programs_own():
    def inner(x):
        raise ValueError(f"not for {tuple(x.shape)}")

    def outer(x):
        return inner(x + 1)

    with pytest.raises(ValueError, match=r"not for \(4, 4\)") as caught:
        dovetail.jit(outer)(X)
    assert [entry.name for entry in caught.traceback][-2:] == ["outer", "inner"]


def test_a_program_keeps_no_arguments_alive():
    compiled = dovetail.jit(lambda x, box: (x * 2, box.append(x)))
    x, box = torch.ones(3, requires_grad=True), []
    compiled(x, box)
    gone = weakref.ref(x)
    del x, box
    gc.collect()
    assert gone() is None


def test_functions_that_are_not_looked_into_are_guarded_by_identity():
    def fn(x, act):
        return act(x)

    compiled = dovetail.jit(fn)
    for act in (
        F.relu,
        F.gelu,
        torch.sin,
        torch.cos,
        dovetail.jit(lambda x: x + 1),
        dovetail.jit(lambda x: x + 2),
        torch.ops.aten.sin,
        torch.ops.aten.cos,
    ):
        torch.testing.assert_close(compiled(X - 1, act), act(X - 1))


def test_attributes_of_a_tensor():
    def fn(x):
        return x * (2 if hasattr(x, "marked") else 3), isinstance(x.sum().item(), float)

    compiled, x = dovetail.jit(fn), X.clone()
    same(compiled(x), fn(x))
    x.marked = True
    same(compiled(x), fn(x))

    def sets_data(x):
        x.data = x[0]
        return x + 1

    ours, theirs = X.clone(), X.clone()
    same(dovetail.jit(sets_data)(ours), sets_data(theirs))
    same(ours, theirs)


def test_a_module_that_a_call_makes_is_the_same_program_after_dynamo_was_used():
    torch._dynamo.mutation_guard.install_generation_tagging_init()

    agrees(lambda x: nn.Softmax(-1)(x), X)


def test_no_guard_compares_a_value_with_itself():
    compiled = dovetail.jit(torch.nn.LSTM(3, 4))  # its forward compares its weights with what it remembers of them
    compiled(torch.ones(2, 1, 3))
    assert not re.search(r"\b(\w+) is (not )?\1\b", str(dovetail.last_prologue_traces(compiled)[-1]))

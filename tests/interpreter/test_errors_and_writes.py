"""Calls that raise leave what eager mode leaves: what the function has done before the error, in lists, objects, buffers, prints and generators."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import dovetail


class State:
    """What the programs write, from outside."""

    def __init__(self):
        self.log, self.count, self.buffer, self.table = [], 0, torch.zeros(3), {}
        self.large = torch.zeros(200, 200)  # of which programs write rows where they lie


def index(state, x, i):
    state.log.append("before")
    state.count += 1
    y = x[i]
    state.log.append("after")
    return y


def written_before(state, x, i):
    state.buffer.add_(x)
    y = state.buffer[i]
    state.buffer.mul_(2)
    return y


def drawn_before(state, x, i):
    noise = torch.rand(3)
    state.table[len(state.table)] = noise
    y = (x + noise)[i]
    state.buffer = torch.rand(3)
    return y


def printed_before(state, x, i):
    print("start", x.sum().item())
    state.log.append(x.shape)
    loss = F.cross_entropy(x[None].expand(len(i), 3), i)
    print("end")
    return loss.round(decimals=3)


def branches_before(state, x, i):
    state.log.append("start")
    if x.sum() > 0:
        state.log.append("positive")
    return x[i]


def in_finally(state, x, i):
    try:
        state.log.append("try")
        return x[i]
    finally:
        state.log.append("finally")
        state.count += 1


def embedded(state, x, i):
    state.count += 1
    return F.embedding(i, x[:, None])


def factored(state, x, i):
    state.table["last"] = x.sum()
    y = torch.linalg.cholesky(torch.eye(3) * (1 - i.max()))
    state.log.append("after")
    return y


def a_row_before(state, x, i):
    state.count += 1
    state.large[0] = x[0]
    y = x[i]
    state.count += 1
    return y


def a_row_of_it(state, x, i):
    state.log.append("before")
    state.large[1] = x[i].sum()
    return x * 2


def a_row_at_it(state, x, i):
    state.count += 1
    state.large[i * 30] = x[0]
    return x * 2


def all_rows_before(state, x, i):
    state.large.mul_(2).add_(1)
    return x[i] * 2


def rows_around(state, x, i):
    state.count += 1
    state.large[2].add_(1)
    loss = F.cross_entropy(x[None], i)
    state.large[3].add_(1)
    return loss.round(decimals=3)


VALUES = [0, 7, 2, 9, 1]


def outcomes(jit: Callable, program: Callable, capsys) -> list:
    """Return what each call returns or raises, and what it leaves."""
    torch.manual_seed(0)
    state, seen = State(), []
    compiled = jit(lambda x, i: program(state, x, i))
    for n, value in enumerate(VALUES):
        x = torch.arange(3.0) - n
        try:
            result = compiled(x, torch.tensor([value])).tolist()
        except (IndexError, RuntimeError) as error:
            result = "an IndexError" if isinstance(error, IndexError) else "a RuntimeError"
        kept = state.buffer.tolist(), state.large.sum(-1).tolist(), repr(state.table)
        seen.append((result, x.tolist(), state.log.copy(), state.count, kept, capsys.readouterr().out))
    return [*seen, torch.rand(1).item()]


RAISING = [index, written_before, drawn_before, printed_before, branches_before, in_finally, embedded, factored]
RAISING += [a_row_before, a_row_of_it, a_row_at_it, all_rows_before, rows_around]


@pytest.mark.parametrize("executors", [None, ["torch"]])
@pytest.mark.parametrize("program", RAISING)
def test_a_call_whose_program_raises_leaves_what_precedes_the_error(program, executors, capsys):
    with warnings.catch_warnings():
        warnings.filterwarnings("error", ".*report it as a bug")
        assert outcomes(lambda f: dovetail.jit(f, executors=executors), program, capsys) == outcomes(lambda f: f, program, capsys)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.drop, self.head, self.calls = torch.nn.BatchNorm1d(3), torch.nn.Dropout(0.5), torch.nn.Linear(3, 4), 0

    def forward(self, x, y):
        self.calls += 1
        return F.cross_entropy(self.head(self.drop(self.norm(x))), y)


def test_a_batch_with_a_label_out_of_range_counts_as_in_eager_mode():
    nets = [Net(), Net()]
    nets[1].load_state_dict(nets[0].state_dict())
    for net, call in ((nets[0], nets[0]), (nets[1], dovetail.jit(nets[1]))):
        torch.manual_seed(1)
        for labels in ([0, 1], [2, 9], [3, 0], [4, 4], [1, 2]):
            x = torch.randn(2, 3)
            if max(labels) < 4:
                call(x, torch.tensor(labels)).backward()
            else:
                with pytest.raises(IndexError):
                    call(x, torch.tensor(labels))
        net.last = torch.rand(1)
    torch.testing.assert_close(dict(nets[1].named_buffers()), dict(nets[0].named_buffers()))
    torch.testing.assert_close([p.grad for p in nets[1].parameters()], [p.grad for p in nets[0].parameters()])
    assert nets[0].calls == nets[1].calls == 5 and nets[0].last == nets[1].last


@pytest.mark.parametrize("mode", ["guards", "none", "same input"])
def test_it_does_so_with_any_cache(mode):
    log = []

    def f(x, i):
        log.append("f")
        return x[i]

    fn = dovetail.jit(f, cache=mode)
    for i in (0, 5, 1, 6):
        if i < 3:
            fn(torch.ones(3), torch.tensor([i]))
        else:
            with pytest.raises(IndexError):
                fn(torch.ones(3), torch.tensor([i]))
    assert log == ["f"] * 4


class Stopped(BaseException):
    pass


@pytest.mark.parametrize("error", [Stopped, SystemExit, GeneratorExit, asyncio.CancelledError, StopIteration, ArithmeticError])
@pytest.mark.parametrize("branches", [False, True])
def test_writes_before_any_exception_of_the_program_happen(error, branches):
    log = []

    def f(x, stops):
        x.add_(1)
        log.append("written")
        if stops if not branches else x.sum() > 4:
            raise error("stop")
        return x

    fn = dovetail.jit(f)
    for start in (0.0, 3.0, 0.0, 3.0):
        x = torch.full((2,), start)
        if start:
            with pytest.raises(error, match="stop"):
                fn(x, True)
        else:
            fn(x, False)
        assert x.tolist() == [start + 1] * 2
    assert len(log) == 4


class Carrier(Exception):
    def __init__(self, *payload):
        super().__init__("carrier", *payload)
        self.payload, self.note = payload, None


def with_its_payload(x):
    raise Carrier(x * 2, {"sum": x.sum().item()}, [int(x.max())])


def with_a_number(x):
    raise ValueError(x.sum().item())


def with_an_attribute(x):
    error = Carrier()
    error.note = x + 1
    raise error


def with_a_cause(x):
    raise RuntimeError("outer") from ValueError(x.mean().item(), x * 3)


def with_a_context(x):
    try:
        raise Carrier(x.max().item())
    except Carrier:
        raise KeyError("lost")  # noqa: B904


def with_notes(x):
    error = ValueError("noted")
    error.add_note(f"at {x.sum().item():.2f}")
    raise error


def behind_a_conversion(x):
    if int(x.max()) is None:
        return x
    raise LookupError("behind")


def of_a_name(x):
    int(x.max())
    return undefined  # noqa: F821


def of_a_key(x):
    return {}[f"{int(x.sum())}"]


def of_an_operation(x):
    total = int(x.sum())
    return torch.cat([x, torch.ones(2, 2)]), total


def shown(error):
    """Return what an error is and holds, with those that it is chained to."""
    if error is None:
        return None
    held = {name: repr(value) for name, value in vars(error).items()}
    text = "" if isinstance(error, RuntimeError) and not error.__cause__ else repr(error.args)  # torch words its errors in its own way
    return next(kind for kind in type(error).__mro__ if kind.__module__ in ("builtins", __name__)), text, held, shown(error.__cause__)


RAISING = (
    *(with_its_payload, with_a_number, with_an_attribute, with_a_cause, with_a_context, with_notes),
    *(behind_a_conversion, of_a_name, of_a_key, of_an_operation),
)


@pytest.mark.parametrize("program", RAISING, ids=lambda program: program.__name__)
def test_errors_hold_the_values_of_their_call(program):
    fn = dovetail.jit(program)
    for start in (1.0, 2.0, 2.0, 5.0):
        errors = []
        for call in (program, fn):
            with pytest.raises(Exception) as raised:
                call(torch.full((2,), start))
            errors.append(shown(raised.value))
        assert errors[0] == errors[1]


@pytest.mark.parametrize(
    "read", [lambda x, k, a: int(f"{a:.1f}"), lambda x, k, a: x.reshape(k, -1).no_such, lambda x, k, a: [0][k]], ids=["a", "k", "x"]
)
@pytest.mark.parametrize("keeps", [False, True])
def test_errors_of_the_first_trace_are_no_context_of_those_of_the_function(read, keeps):
    def f(x, k, a):
        try:
            return read(x, k, a)
        except Exception as error:
            if keeps:
                return [error]
            raise

    fn = dovetail.jit(f)
    for k, a in ((2, 0.5), (3, 1.5), (3, 1.5), (1, -2.5)):
        for call in (f, fn):
            try:
                error = call(torch.ones(k * 2), k, a)[0]
            except (ValueError, AttributeError, IndexError) as raised:
                error = raised
            assert isinstance(error, (ValueError, AttributeError, IndexError)) and error.__context__ is None


def _scaled(weight, optimizer):
    weight.grad.mul_(2)


LEFT = {  # what a program does to a parameter before the operation that raises
    "no gradient": lambda weight, optimizer: setattr(weight, "grad", None),
    "another gradient": lambda weight, optimizer: setattr(weight, "grad", torch.zeros(2)),
    "scaled": _scaled,
    "zero_grad": lambda weight, optimizer: optimizer.zero_grad(),
    "backward": lambda weight, optimizer: (weight * weight).sum().backward(),
    "step": lambda weight, optimizer: optimizer.step(),
    "frozen": lambda weight, optimizer: weight.requires_grad_(False),
    "hook": lambda weight, optimizer: weight.register_hook(lambda grad: grad * 2),
    "data": lambda weight, optimizer: setattr(weight, "data", torch.zeros(2)),
    "written": lambda weight, optimizer: weight.detach().add_(1),
    "seed": lambda weight, optimizer: torch.manual_seed(3),
    "draw": lambda weight, optimizer: torch.rand(2),
}


@pytest.mark.parametrize("handled", [False, True])
@pytest.mark.parametrize("name", LEFT)
def test_what_precedes_an_operation_that_refuses_its_arguments_is_left(name, handled):
    def left(compile_):
        weight = torch.ones(2, requires_grad=True)
        optimizer = torch.optim.SGD([weight], lr=0.1)

        def program(x):
            y = x * 1
            try:
                if handled:
                    y.retain_grad()
            finally:
                LEFT[name](weight, optimizer)
            y.retain_grad()

        run = compile_(program)
        for i in range(4):
            torch.manual_seed(0)
            weight.requires_grad_()
            weight.grad = torch.ones(2)
            with pytest.raises(RuntimeError, match="retain_grad"):
                run(torch.ones(2 + i))
            yield repr((weight.detach(), weight.grad, weight.requires_grad, torch.get_rng_state().sum(), len(weight._backward_hooks or ())))

    assert list(left(lambda program: dovetail.jit(program, executors=["torch"]))) == list(left(lambda program: program))


def popped(d, x):
    d["w"] = x
    d["v"] = d.pop("w")
    d["w"] = x * 3
    d.setdefault("z", 4)
    d["z"] = x.sum()


def deleted(d, x):
    d["w"], d["q"] = x, 1
    del d["w"]
    d["w"] = x * 2


def in_order(d, x):
    d["a"], d["b"] = x, 2
    d["a"] = x * 2


def equal_keys(d, x):
    d[1], d[True] = x, x * 2
    d[1] = x * 3


def printed_between(d, x):
    d["a"] = 1
    print(d)
    d["a"] = 2


def moved(items, x):
    items[0] = x
    items.append(3)
    items[0] = x * 2
    items.reverse()
    items[0] = x * 4
    items.insert(0, 1)
    items[-1], items[0] = x, 2


@pytest.mark.parametrize(
    ("create", "write"), [(dict, w) for w in (popped, deleted, in_order, equal_keys, printed_between)] + [(lambda: [0, 1], moved)]
)
def test_items_that_are_written_several_times(create, write, capsys):
    outcomes = []
    for wrap in (lambda function: function, dovetail.jit):
        held = create()
        compiled = wrap(lambda x, held=held: write(held, x))
        for k in range(3):
            compiled(torch.arange(3.0) + k)
        outcomes.append((str(held), capsys.readouterr().out))
    assert outcomes[1] == outcomes[0]

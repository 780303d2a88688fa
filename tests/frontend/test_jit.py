"""What `jit` accepts, caches and guards."""

from __future__ import annotations

import copy
import math
import pickle
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch

import dovetail


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass
class Batch:
    tokens: torch.Tensor
    scale: float
    extra: dict


@dataclass(frozen=True)
class Result:
    value: torch.Tensor
    note: str


def everything(batch, pair, *rest, mode="sum", nothing=None, **more):
    total = batch.tokens * batch.scale + pair.left
    for x in rest:
        total = total + x
    for x in more.values():
        total = total - x
    if mode == "sum" and nothing is None:
        total = total + pair.right["deep"][0]
    return {
        "result": Result(total, f"{mode}!"),
        "pair": Pair(total * 2, (None, 3, "text")),
        "list": [total, [total + 1]],
        "ordered": OrderedDict(a=total - 1),
        "flag": batch.extra["flag"],
    }


def arguments():
    torch.manual_seed(0)
    x = torch.randn(2, 3)
    batch = Batch(x, 2.5, {"flag": True, "unused": x + 1})
    return (batch, Pair(torch.randn(3), {"deep": [torch.randn(2, 1)]}), torch.randn(3), torch.randn(2, 3)), {"more": torch.randn(3)}


def test_scenario_1_any_nest_of_arguments_and_results():
    args, kwargs = arguments()
    compiled = dovetail.jit(everything)
    for _ in range(2):
        got, want = compiled(*args, **kwargs), everything(*args, **kwargs)
        assert type(got["result"]) is Result and got["result"].note == "sum!" and type(got["pair"]) is Pair
        assert got["pair"].right == (None, 3, "text") and got["flag"] is True and type(got["ordered"]) is OrderedDict
        torch.testing.assert_close(got["result"].value, want["result"].value)
        torch.testing.assert_close(got["list"], want["list"])
        torch.testing.assert_close(got["ordered"]["a"], want["ordered"]["a"])
    assert dovetail.cache_misses(compiled) == ["the first call"]


def test_a_function_without_tensors_and_one_that_returns_constants():
    assert dovetail.jit(lambda: (1, "a", None))() == (1, "a", None)
    x = torch.ones(2)
    assert dovetail.jit(lambda x: x)(x) is x


CHANGES = {
    "dtype": (lambda x: (x,), lambda x: (x.double(),), "args[0] is no longer a tensor"),
    "shape": (lambda x: (x,), lambda x: (x[:1],), "args[0] is no longer a tensor"),
    "strides": (lambda x: (x,), lambda x: (torch.ones(3, 3).t(),), "args[0] is no longer a tensor"),
    "requires_grad": (lambda x: (x,), lambda x: (x.clone().requires_grad_(),), "args[0] is no longer a tensor"),
    "number": (lambda x: (x, 2), lambda x: (x, 3), "args[1] is no longer 2"),
    "a bool for a number": (lambda x: (x, 1), lambda x: (x, True), "args[1] is no longer 1"),
    "a float for an int": (lambda x: (x, 1), lambda x: (x, 1.0), "args[1] is no longer 1"),
    "the other zero": (lambda x: (x, 0.0), lambda x: (x, -0.0), "args[1] is no longer 0.0"),
    "string": (lambda x: (x, "a"), lambda x: (x, "b"), "args[1] is no longer 'a'"),
    "none": (lambda x: (x, None), lambda x: (x, x), "args[1] is no longer None"),
    "list length": (lambda x: ([x, x + 1],), lambda x: ([x, x + 1, x],), "args[0] no longer has the length 2"),
    "tuple for list": (lambda x: ([x],), lambda x: ((x,),), "args[0] is no longer a list"),
    "dict keys": (lambda x: ({"a": x},), lambda x: ({"a": x, "b": x},), "args[0] no longer has the keys ['a']"),
    "dict order": (lambda x: ({"a": 1, "b": x},), lambda x: ({"b": x, "a": 1},), "args[0] no longer has the keys ['a', 'b']"),
    "the same tensor twice": (lambda x: (x, x), lambda x: (x, x.clone()), "args[1] is no longer the same object as args[0]"),
    "another function": (lambda x: (x, math.sin), lambda x: (x, math.cos), "args[1] is no longer the same"),
    "argument count": (lambda x: (x,), lambda x: (x, x), "the call no longer has 1 positional arguments"),
}


def description(*args):
    """Says what it was given, so that a wrong cache hit shows."""
    flat, tree = torch.utils._pytree.tree_flatten(args)
    message = [(tuple(x.shape), x.dtype, x.stride(), x.requires_grad) if isinstance(x, torch.Tensor) else repr(x) for x in flat]
    same = [a is b for a in flat for b in flat]
    first = next(x for x in flat if isinstance(x, torch.Tensor))
    return first * 1, repr((message, str(tree), same if len(flat) > 1 else None))


@pytest.mark.parametrize("change", CHANGES, ids=CHANGES)
def test_scenario_50_a_change_in_the_arguments_is_a_miss_with_a_reason(change):
    before, after, reason = CHANGES[change]
    x = torch.ones(3, 3)
    compiled = dovetail.jit(description)
    for make in (before, after, before):
        args = make(x)
        assert compiled(*args)[1] == description(*args)[1]
    misses = dovetail.cache_misses(compiled)
    assert misses[0] == "the first call" and reason in misses[1]
    assert len(misses) == 2, "the first program is still there and was used again"


def test_keyword_arguments_are_guarded():
    compiled = dovetail.jit(lambda x, *, scale=1.0: x * scale)
    x = torch.ones(2)
    assert compiled(x).tolist() == [1, 1] and compiled(x, scale=2.0).tolist() == [2, 2] and compiled(x, scale=3.0).tolist() == [3, 3]


@pytest.mark.parametrize("switch", ["dtype", "grad"])
def test_switches_of_torch_that_the_program_read_are_guarded(switch):
    def fn(x):
        return x / 2, torch.is_grad_enabled()

    compiled, x = dovetail.jit(fn), torch.tensor([1, 2])
    assert compiled(x)[0].dtype is torch.float32
    try:
        torch.set_default_dtype(torch.float64) if switch == "dtype" else torch.set_grad_enabled(False)
        got, want = compiled(x), fn(x)
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_grad_enabled(True)
    assert got[0].dtype is want[0].dtype and got[1] == want[1]


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(3, 3)
        self.drop = torch.nn.Dropout(0.5)
        self.scale = 2.0
        self.register_buffer("shift", torch.ones(3))

    def forward(self, x):
        return self.drop(self.inner(x)) * self.scale + self.shift


MODULE_CHANGES = {
    "a parameter in place": lambda m: m.inner.weight.data.mul_(2),
    "a new parameter": lambda m: setattr(m.inner, "weight", torch.nn.Parameter(torch.ones(3, 3))),
    "an attribute": lambda m: setattr(m, "scale", 7.0),
    "a buffer": lambda m: m.shift.fill_(9.0),
    "another submodule": lambda m: setattr(m, "inner", torch.nn.Linear(3, 3, bias=False)),
    "a hook": lambda m: m.inner.register_forward_hook(lambda module, args, out: out + 100),
    "train mode": lambda m: (m.train(), setattr(m.drop, "p", 0.0)),
    "dtype": lambda m: m.double(),
}


@pytest.mark.parametrize("change", MODULE_CHANGES, ids=MODULE_CHANGES)
def test_scenario_2_a_change_in_the_module_is_seen(change):
    torch.manual_seed(0)
    module = Scaled().eval()
    compiled = dovetail.jit(module)
    x = torch.randn(2, 3)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), module(x))
        MODULE_CHANGES[change](module)
        x = x.to(module.inner.weight.dtype)
        torch.testing.assert_close(compiled(x), module(x))


def test_scenario_2_a_compiled_module_is_its_module():
    module = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    compiled = dovetail.jit(module)
    assert isinstance(compiled, torch.nn.Module)
    assert list(compiled.state_dict()) == list(module.state_dict())
    assert [p is q for p, q in zip(compiled.parameters(), module.parameters(), strict=True)] == [True] * 4
    compiled.eval()
    assert not module.training and not module[1].training and not compiled.training
    other = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)).eval()
    compiled.load_state_dict(other.state_dict())
    x = torch.randn(3, 2)
    torch.testing.assert_close(compiled(x), other(x))
    compiled.scale = 3
    assert module.scale == 3 and len(compiled) == 2 and compiled[0] is module[0]
    compiled.double()
    assert module[0].weight.dtype is torch.float64


def test_shared_parameters_are_one_input():
    module = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
    module[1].weight = module[0].weight
    compiled, x = dovetail.jit(module), torch.randn(2, 3)
    torch.testing.assert_close(compiled(x), module(x))
    assert len(dovetail.last_traces(compiled)[0].inputs) == 4


def test_a_branch_on_a_tensors_value_names_the_users_line():
    def fn(x):
        if x.sum() > 0:  # this line
            return x
        return -x

    compiled = dovetail.jit(fn, decisions="error")
    with pytest.raises(TypeError, match=rf"test_jit.py:{fn.__code__.co_firstlineno + 1}.*torch.where") as raised:
        compiled(torch.ones(2))
    assert isinstance(raised.value, dovetail.errors.TracedValueError)


@pytest.mark.parametrize(
    "ask",
    [int, bool, lambda x: [1, 2][x], lambda x: complex(x.numpy())],
    ids=["int", "bool", "index", "numpy"],
)
def test_asking_for_a_value_is_refused(ask):
    with pytest.raises((dovetail.errors.TracedValueError, dovetail.errors.Unsupported, TypeError)):
        dovetail.jit(lambda x: ask(x.sum()), decisions="error")(torch.ones(2))


def test_a_number_of_the_program_may_leave_it():
    compiled = dovetail.jit(lambda x: float(x.sum()))
    assert [compiled(x) for x in (torch.ones(2), torch.full((2,), 3.0))] == [2.0, 6.0]
    assert type(compiled(torch.ones(2))) is float


def test_after_an_error_the_function_is_as_callable_as_before():
    def fn(x, y):
        return (x + 1) @ y

    compiled = dovetail.jit(fn)
    good = torch.ones(2, 3), torch.ones(3, 2)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="matmul"):
            compiled(torch.ones(2, 3), torch.ones(2, 2))
        torch.testing.assert_close(compiled(*good), fn(*good))
    assert dovetail.cache_misses(compiled) == ["the first call"]


BAD = {
    "shapes": (lambda x: x + torch.ones(3, 4), RuntimeError, r"torch.add: .*\(2, 3\).*\(3, 4\)"),
    "dim": (lambda x: x.sum(dim=5), IndexError, r"sum: .*\[-2, 1\], got 5"),
    "dtype": (lambda x: torch.nn.functional.embedding(x, x), RuntimeError, "embedding"),
    "count": (lambda x: torch.softmax(), TypeError, "softmax"),
    "unknown keyword": (lambda x: torch.sum(x, dimm=1), TypeError, "dimm"),
    "type": (lambda x: torch.matmul(x, "a"), TypeError, "matmul.*argument 'other'.* must be Tensor, not str"),
    "reshape": (lambda x: x.reshape(7), RuntimeError, "reshape"),
    "not implemented": (lambda x: torch.bitwise_and(x, x), (RuntimeError, NotImplementedError), "bitwise_and"),
}


@pytest.mark.parametrize("case", BAD, ids=BAD)
def test_scenario_27_bad_input_raises_what_eager_raises(case):
    fn, error, match = BAD[case]
    x = torch.ones(2, 3)
    with pytest.raises(error):
        fn(x)
    with pytest.raises(error, match=match):
        dovetail.jit(fn)(x)


def test_a_kept_proxy_says_so():
    kept = []
    dovetail.jit(lambda x: kept.append(x) or x * 2, interpretation="native")(torch.ones(2))
    with pytest.raises(dovetail.errors.NotTracing, match="kept after make_trace or jit returned"):
        kept[0] + 1
    with pytest.raises(dovetail.errors.NotTracing, match=r"used after dovetail\.make_trace or jit returned"):
        kept[0].sum()


def test_a_changed_list_argument_is_refused_by_native_tracing():
    def fn(xs):
        xs.append(xs[0] * 2)
        return xs[0]

    with pytest.raises(dovetail.errors.Unsupported, match="changes a list or dict"):
        dovetail.jit(fn, interpretation="native")([torch.ones(2)])


def test_a_tensor_kept_on_the_module_is_refused_by_native_tracing_and_nothing_leaks():
    class Keeps(torch.nn.Module):
        def forward(self, x):
            self.seen = x * 2
            return x

    module = Keeps()
    with pytest.raises(dovetail.errors.Unsupported, match=r"self.seen"):
        dovetail.jit(module, interpretation="native")(torch.ones(2))
    assert not hasattr(module, "seen")


def test_parameters_are_back_after_an_error_in_forward():
    class Fails(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(2))

        def forward(self, x):
            raise ValueError("no" if (self.weight * x).shape == (2,) else "")

    module = Fails()
    weight = module.weight
    with pytest.raises(ValueError, match="no"):
        dovetail.jit(module)(torch.ones(2))
    assert module.weight is weight


def test_an_argument_that_shares_memory_with_one_that_is_written_is_refused():
    def fn(x, y):
        x.add_(1)
        return x + y

    compiled = dovetail.jit(fn)
    a, b = torch.zeros(4), torch.zeros(4)
    torch.testing.assert_close(compiled(a, b), torch.ones(4))
    with pytest.raises(dovetail.errors.Unsupported, match="shares memory"):
        compiled(a, a[:])
    assert a.tolist() == [1, 1, 1, 1]


def test_methods_can_be_compiled_where_they_are_defined():
    class Shift:
        by = 3

        @dovetail.jit
        def apply(self, x):
            return x + self.by

    assert Shift().apply(torch.zeros(1)).tolist() == [3]


def test_jit_refuses_what_it_cannot_compile():
    with pytest.raises(TypeError, match=r"jit compiles a function or a torch.nn.Module, not int"):
        dovetail.jit(3)
    with pytest.raises(TypeError, match="compiled already"):
        dovetail.jit(dovetail.jit(torch.sin))
    with pytest.raises(TypeError, match=r"Linear is a class of them; compile an instance: dovetail\.jit\(Linear\(\.\.\.\)\)"):
        dovetail.jit(torch.nn.Linear)
    with pytest.raises(dovetail.DovetailError, match="no executor is called 'tritn'"):
        dovetail.jit(torch.sin, executors=["tritn"])
    with pytest.raises(dovetail.DovetailError, match="call the function first"):
        dovetail.last_traces(dovetail.jit(torch.sin))


def test_autocast_is_refused_by_native_tracing_rather_than_ignored():
    compiled = dovetail.jit(torch.nn.Linear(2, 2), interpretation="native")
    compiled(torch.ones(1, 2))
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(dovetail.errors.Unsupported, match="autocast"):
        compiled(torch.ones(1, 2))


def test_several_threads_share_one_function():
    compiled = dovetail.jit(lambda x, n: x * n)
    wrong = []

    def work(n):
        for _ in range(50):
            if compiled(torch.ones(3), n).tolist() != [n, n, n]:
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_item_gives_a_number_that_can_be_an_operand_and_a_result():
    compiled = dovetail.jit(lambda x: (x / x.sum().item(), x.max().item()))
    shares, largest = compiled(torch.tensor([1.0, 3.0]))
    assert shares.tolist() == [0.25, 0.75] and largest == 3.0
    assert compiled(torch.tensor([2.0, 2.0]))[1] == 2.0


def test_isinstance_holds_for_python_and_never_for_the_c_parsers():
    seen = []

    def fn(x):
        match x:
            case torch.Tensor():
                seen.append("match")
        seen.append((isinstance(x, torch.Tensor), isinstance(x, (int, torch.Tensor)), torch.is_tensor(x), x.__class__ is torch.Tensor))
        return all(isinstance(y, torch.Tensor) for y in (x, x + 1))

    assert dovetail.jit(fn)(torch.ones(2)) is True
    assert seen == ["match", (True, True, True, True)]
    assert dovetail.jit(lambda x: torch.full((2,), x))(torch.tensor(3.0)).tolist() == [3, 3]
    for wrong in (lambda x: torch.zeros(x), lambda x: torch.dropout(x, x, True)):
        with pytest.raises((TypeError, RuntimeError)):
            dovetail.jit(wrong)(torch.ones(()))


def test_scenario_28_seeding_inside_is_refused_and_undone_by_native_tracing():
    def fn(x):
        torch.manual_seed(7)
        return x + torch.rand(2)

    before = torch.default_generator.get_state()
    with pytest.raises(dovetail.errors.Unsupported, match=r"seeds or sets torch's generator"):
        dovetail.jit(fn, interpretation="native")(torch.ones(2))
    assert torch.equal(before, torch.default_generator.get_state())


def test_a_copy_of_a_compiled_module_is_compiled_on_its_own():
    for copied in (copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))):
        compiled = dovetail.jit(torch.nn.Linear(3, 3), executors=["torch"])
        x = torch.ones(2, 3)
        before = compiled(x)
        other = copied(compiled)
        with torch.no_grad():
            for p in other.parameters():
                p.mul_(2)
        torch.testing.assert_close(other(x), before * 2)
        torch.testing.assert_close(compiled(x), before)
        assert other.cache_info() == compiled.cache_info()._replace(hits=0)
        assert copied(torch.nn.Sequential(compiled))[0].cache_info().programs == 0


def test_a_library_may_wrap_the_forward_of_a_compiled_module():
    model, x = torch.nn.Linear(3, 2), torch.randn(4, 3)
    compiled = dovetail.jit(model)
    inner = compiled.forward
    compiled.forward = lambda x: inner(x) + 1
    for _ in range(2):
        torch.testing.assert_close(compiled(x), model(x) + 1)
    assert compiled.cache_info().programs == 1 and "forward" not in vars(model)
    del compiled.forward
    assert compiled.forward is inner
    torch.testing.assert_close(compiled(x), model(x))

"""No executor but the reference is believed before it agreed with the reference on the data of the call."""

from __future__ import annotations

import itertools
import sys
import threading
import warnings
from types import SimpleNamespace

import pytest
import torch
from stand_ins import F, Pointwise, of

import dovetail
from dovetail.executors.discovery.plugin_status import Plugin
from dovetail.executors.discovery.registry import REGISTRY
from dovetail.executors.dispatching.distrust import DISTRUST
from dovetail.executors.trials import budget, compare, judge, reference
from dovetail.extend import FusionExecutor, OperatorExecutor, get_grad, put_grad
from dovetail.extend.advanced import region_key

pytestmark = pytest.mark.usefixtures("folder")


def calls(fn, inputs, expected):
    """Whether each call gives what it should, and the disagreements that were warned of."""
    right, warned = [], []
    for args in inputs:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            got = fn(*args)
        right.append(torch.allclose(got, expected(*args), rtol=1e-4, atol=1e-4))
        warned += [each.message for each in caught if isinstance(each.message, dovetail.DisagreementWarning)]
    return right, warned


def message(fn):
    """What explain says of the trials, by executor."""
    return {(each.executor, each.operation): each.message for each in dovetail.explain(fn).trials}


def wrong_beyond(n):
    """sin, wrong from element n on."""

    def sin(input):
        out = torch.sin(input)
        out.flatten()[n:] = 0
        return out

    return sin


class Stale:
    """Computes once for each shape."""

    def __init__(self, fn):
        self.fn, self.kept = fn, {}

    def __call__(self, *inputs, **kwargs):
        return self.kept.setdefault([x.shape for x in inputs].__repr__(), self.fn(*inputs, **kwargs)).clone()


# What is planted is found, by the second call at the latest, and no call gives it.


def test_a_kernel_that_is_wrong_beyond_4096_elements_is_caught_on_the_first_call_that_shows_it():
    fn = dovetail.jit(lambda x: torch.sin(x) + 1, executors=[of("own", torch.sin, wrong_beyond(4096))])
    right, warned = calls(fn, [(torch.randn(5000),), (torch.randn(5000),)], lambda x: torch.sin(x) + 1)
    assert right == [True, True] and len(warned) == 1
    assert "own disagrees with the reference in torch.sin" in str(warned[0]) and "904 of 5000 elements differ" in str(warned[0])
    row = dovetail.explain(fn).rows[0]
    assert row.actual == "torch" and row.refusals[0].message.startswith("disagreed with the reference: t")


def test_a_region_that_is_wrong_is_run_by_the_reference_from_then_on():
    class Wrong(Pointwise):
        def fuse(self, region):
            run = super().fuse(region)
            return lambda *inputs: tuple(x * 1.001 for x in run(*inputs))

    fn = dovetail.jit(lambda x: torch.exp(torch.sin(x) * 2) - 3, executors=[Wrong()])
    right, warned = calls(fn, [(torch.randn(64),) for _ in range(4)], lambda x: torch.exp(torch.sin(x) * 2) - 3)
    assert all(right) and len(warned) == 1 and "the region" in str(warned[0])
    assert {row.actual for row in dovetail.explain(fn).rows} == {"torch"}


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_kernel_that_is_wrong_in_the_second_program_of_a_function_is_caught(dtype):
    fn = dovetail.jit(lambda x: torch.sin(x) + 1, executors=[of("own", torch.sin, wrong_beyond(4096))])
    right, warned = calls(fn, [(torch.rand(n, dtype=dtype) + 0.5,) for n in (64, 64, 5000, 5000)], lambda x: torch.sin(x) + 1)
    assert right == [True] * 4 and len(warned) == 1 and "904 of 5000 elements differ" in str(warned[0])


def multiplying(factor):
    """An executor of torch.mul with a grad rule of its own, which is wrong for the second argument unless `factor` is 1."""
    own = OperatorExecutor("own")
    backward = own.operation("times", lambda g, x: g * x * factor, meta=lambda g, x: g, replace=True)

    def rule(input, other):
        out = torch.mul(input, other)
        g = get_grad(out)
        put_grad(input, g * other)
        put_grad(other, backward(g, input))
        return out

    own.implements(torch.mul, torch.mul, grad=rule)
    return own


@pytest.mark.parametrize("factor", [1, 1.01])
def test_a_wrong_gradient_of_one_argument_is_caught(factor):
    fn = dovetail.jit(lambda a, b: torch.mul(a, b) + 1, executors=[multiplying(factor)])
    warned = []
    for _ in range(2):
        a, b = (torch.randn(16, requires_grad=True) for _ in range(2))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fn(a, b).sum().backward()
        warned += [each for each in caught if each.category is dovetail.DisagreementWarning]
        torch.testing.assert_close(a.grad, b.detach())
        torch.testing.assert_close(b.grad, a.detach())
    assert len(warned) == (factor != 1)
    assert factor != 1 or message(fn)["own", "the gradient of torch.mul"] == "agreed in its gradients"


def test_accumulation_in_bfloat16_is_caught():
    def matmul(input, other):
        out = torch.zeros(input.shape[0], other.shape[1], dtype=torch.bfloat16)
        for i in range(0, input.shape[1], 8):
            out += (input[:, i : i + 8].float() @ other[i : i + 8].float()).bfloat16()
        return out.to(input.dtype)

    for dtype in (torch.float32, torch.bfloat16):
        fn = dovetail.jit(lambda x, y: torch.matmul(x, y), executors=[of("own", torch.matmul, matmul)])
        x, y = torch.randn(32, 2048, dtype=dtype), torch.randn(2048, 16, dtype=dtype)
        with pytest.warns(dovetail.DisagreementWarning):
            assert torch.equal(fn(x, y), x @ y)


def test_a_stale_result_is_caught_by_the_second_call_with_other_data():
    fn = dovetail.jit(lambda x: torch.sin(x) * 2, executors=[of("own", torch.sin, Stale(torch.sin))])
    right, warned = calls(fn, [(torch.randn(16),) for _ in range(5)], lambda x: torch.sin(x) * 2)
    assert all(right) and len(warned) == 1


@pytest.mark.parametrize("seed", range(6))
def test_a_race_that_shows_in_a_third_of_the_calls_is_caught_within_64(seed):
    generator = torch.Generator().manual_seed(seed)

    def racing(input):
        out = torch.sin(input)
        if torch.rand((), generator=generator) < 1 / 3:
            out[7] += 1
        return out

    fn = dovetail.jit(lambda x: torch.sin(x) * 2, executors=[of("own", torch.sin, racing)])
    _, warned = calls(fn, [(torch.randn(64),) for _ in range(64)], lambda x: torch.sin(x) * 2)
    assert len(warned) == 1


@pytest.mark.parametrize("most", [0, judge.COPIED], ids=["where there is time", "small"])
def test_an_argument_that_is_overwritten_is_restored(most, monkeypatch):
    def writing(input):
        return input.sin_()

    monkeypatch.setattr(judge, "COPIED", most)
    fn = dovetail.jit(lambda x: torch.sin(x) * 2, executors=[of("own", torch.sin, writing)])
    x = torch.randn(4)
    before = x.clone()
    with pytest.warns(dovetail.DisagreementWarning, match="wrote into its argument"):
        result = fn(x)
    assert torch.equal(x, before) and torch.equal(result, torch.sin(before) * 2)


# What is right is believed.


def test_what_agrees_is_said_in_units_of_the_last_place():
    fn = dovetail.jit(lambda x: torch.sin(x) * 2, executors=[of("own", torch.sin, lambda input: torch.sin(input.double()).float())])
    fn(torch.randn(64))
    found = message(fn)
    assert list(found) == [("own", "torch.sin")] and found["own", "torch.sin"].startswith("agreed, largest error ")
    assert "trials of computation:" in str(dovetail.explain(fn))


def blocked_sum(input):
    return input.flatten().view(-1, 1000).sum(0).sum()


def sum_by_two(input, dim):
    return sum(input.unflatten(dim, (-1, 2)).unbind(dim)).sum(dim)


RIGHT = {
    "a sum of what is positive first and negative then": (
        *(torch.sum, sum_by_two),
        lambda: (torch.rand(64, 1024) * torch.cat([torch.ones(512), -torch.ones(512)]), 1),
    ),
    "a long sum in blocks": (torch.sum, blocked_sum, lambda: (torch.randn(1_000_000),)),
    "a long sum, one after the other": (torch.sum, lambda input: input.cumsum(0)[-1], lambda: (torch.randn(100_000),)),
    "a sum of bfloat16": (torch.sum, lambda input: input.float().sum().bfloat16(), lambda: (torch.randn(100_000).bfloat16(),)),
    "softmax of 32000 columns": (
        *(F.softmax, lambda input, dim: torch.exp(input - torch.logsumexp(input, dim, keepdim=True))),
        lambda: (torch.randn(8, 32000) * 4, -1),
    ),
    "gelu in bfloat16": (F.gelu, lambda input: F.gelu(input.float()).bfloat16(), lambda: (torch.randn(4096).bfloat16() * 3,)),
    "a product in blocks": (
        torch.matmul,
        lambda input, other: sum(input[:, i : i + 64] @ other[i : i + 64] for i in range(0, input.shape[1], 64)),
        lambda: (torch.randn(8, 4096) * 100, torch.randn(4096, 8)),
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_adding_up_in_another_order_is_no_disagreement(name):
    operation, own, make = RIGHT[name]
    for seed in range(5):
        torch.manual_seed(seed)
        fn = dovetail.jit(lambda *args: operation(*args), executors=[of("own", operation, own)])
        fn(*make())
        (found,) = message(fn).values()
        assert found.startswith("agreed")


@pytest.mark.parametrize(("error", "samples"), [(0, 0), (2**-22, 1), (2**-10, compare.SAMPLES)], ids=["none", "explained", "wrong"])
def test_samples_of_rounding_are_drawn_until_they_explain_a_difference(error, samples, monkeypatch):
    drawn = []

    def counting(*args):
        for each in rounded(*args):
            drawn.append(each)
            yield each

    def erring(input, other):
        return input @ other + error * (input.square() @ other.square()).sqrt()

    rounded = compare.rounded
    monkeypatch.setattr(compare, "rounded", counting)
    monkeypatch.setattr(compare, "FEW", 0)
    torch.manual_seed(0)
    a, b = (torch.randint(-64, 65, shape) / 8 for shape in ((8, 4096), (4096, 8)))  # no order of adding up rounds their product
    fn = dovetail.jit(torch.matmul, executors=[of("own", torch.matmul, erring)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dovetail.DisagreementWarning)
        fn(a, b)
    assert len(drawn) == samples


def test_what_has_to_be_explained_alone_is_computed_in_twice_the_precision(monkeypatch):
    ran, prim = [], reference._Wide._prim
    monkeypatch.setattr(reference._Wide, "_prim", lambda self, line: (ran.append(line.symbol.name), prim(self, line)))

    class Backwards(FusionExecutor):
        """Adds up a row from its end."""

        def can_fuse(self, line):
            return True

        def fuse(self, region):
            return lambda x: (torch.tanh(x), x.flip(0).sum(0))

    fn = dovetail.jit(lambda x: (torch.tanh(x), x.sum(0)), executors=[Backwards("backwards")])
    x = torch.randn(100_000, generator=torch.Generator().manual_seed(0))
    fn(torch.cat([x, -x.flip(0)]))  # the sum is what rounding leaves
    (agreed,) = message(fn).values()
    assert agreed.startswith("agreed") and set(ran) == {"sum"}


class Reassociating(Pointwise):
    """Runs regions in twice the precision, as a kernel does that rounds where it likes."""

    def fuse(self, region):
        run = super().fuse(region)
        dtypes = [p.spec.dtype for p in region.outputs]

        def call(*inputs):
            made = run(*[x.double() if x.is_floating_point() else x for x in inputs])
            return tuple(x.to(trial_dtype(d)) for x, d in zip(made, dtypes))

        return call


def trial_dtype(dtype):
    return dovetail.executors.trials.reference.TO_TORCH[dtype]


def kinks(x):
    y = x * 3.3 + 0.1
    return torch.floor(y * 10), torch.round(y), y > x * 3.2 + 0.15, torch.where(y > 1, y * 100, x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_kink_that_rounding_decides_is_no_disagreement(dtype):
    for seed in range(5):
        torch.manual_seed(seed)
        x = (torch.randn(50_000) * 4).to(dtype)
        fn = dovetail.jit(kinks, executors=[Reassociating()])
        fn(x)
        assert all(each.startswith("agreed") for each in message(fn).values())


# How it is done.


def test_calls_that_are_trials():
    found = list(itertools.accumulate(range(12), lambda n, _: budget.following(n), initial=0))[1:]
    assert found[:9] == [1, 2, 3, 5, 8, 13, 21, 34, 64] and found[9:11] == [512, 4096]


def counting(count):
    def sin(input):
        count.append(1)
        return torch.sin(input)

    return sin


def test_off_always_and_single_executors():
    for mode, expected in (("off", [1, 1, 1, 1]), ({"*": "off", "own": "always"}, [2, 5, 3, 3]), ({"own": "off"}, [1, 1, 1, 1])):
        count = []
        with dovetail.use(trial=mode):
            fn = dovetail.jit(lambda x: torch.sin(x), executors=[of("own", torch.sin, counting(count))])
            seen = []
            for _ in range(4):
                count.clear()
                fn(torch.randn(4))
                seen.append(len(count))
        assert seen == expected


def test_a_call_between_trials_runs_the_program_once():
    count = []
    fn = dovetail.jit(lambda x: torch.sin(x), executors=[of("own", torch.sin, counting(count))])
    seen = []
    for _ in range(10):
        count.clear()
        fn(torch.randn(4))
        seen.append(len(count) > 1)
    assert [i + 1 for i, tried in enumerate(seen) if tried] == [1, 2, 3, 5, 8]


class OneKernel(Pointwise):
    """Gives equal regions one function, which is wrong above `limit`."""

    def __init__(self, limit, runs):
        super().__init__("one_kernel")
        self.limit, self.runs, self.functions = limit, runs, {}

    def fuse(self, region):
        run = super().fuse(region)

        def fn(*inputs):
            self.runs.append(inputs)
            return tuple(torch.where(x > self.limit, 0.0, x) for x in run(*inputs))

        return self.functions.setdefault(region_key(region), fn)


def blocks(x, w, n=6):
    for _ in range(n):
        x = torch.tanh(x @ w) + 1
    return x


def test_a_kernel_of_many_lines_is_run_again_in_two_of_them():
    runs = []
    fn = dovetail.jit(blocks, executors=[OneKernel(1e30, runs)])
    x, w, seen = torch.rand(4, 4), torch.full((4, 4), 0.01), []
    for _ in range(4):
        runs.clear()
        torch.testing.assert_close(fn(x, w), blocks(x, w))
        seen.append(len(runs))
    assert seen[-1] == 6 and all(2 * 2 + 4 <= n <= 5 * 2 + 4 for n in seen[:3])
    assert {each.tries for each in dovetail.explain(fn).trials} == {3}


def test_a_kernel_that_is_wrong_on_the_values_of_a_later_line_is_caught_there():
    x, w = torch.zeros(4, 4), torch.full((4, 4), 0.2)
    largest = [blocks(x, w, n).max().item() for n in (5, 6)]
    fn = dovetail.jit(blocks, executors=[OneKernel(sum(largest) / 2, [])])
    right, warned = calls(fn, [(x, w), (x, w)], blocks)
    assert right == [True, True] and len(warned) == 1


def test_programs_that_take_turns_have_trials_of_their_own():
    count = []
    fn = dovetail.jit(lambda x: torch.sin(x), executors=[of("own", torch.sin, counting(count))])
    seen = {4: [], 5: []}
    for _ in range(6):
        for n in (4, 5):
            count.clear()
            fn(torch.randn(n))
            seen[n].append(len(count) > 1)
    assert seen == {4: [True, True, True, False, True, False], 5: [True, True, True, False, True, False]}


def test_over_budget_lines_are_said_to_be_and_take_turns(monkeypatch):
    monkeypatch.setattr(budget, "SMALL", -1)
    with dovetail.use(trial_budget=0):
        fn = dovetail.jit(lambda x: torch.cos(torch.sin(x)), executors=[of("own", torch.sin, torch.sin), of("other", torch.cos, torch.cos)])
        fn(torch.randn(4))
        first = message(fn)
        fn(torch.randn(4))
    assert sorted(each.partition(",")[0] for each in first.values()) == ["agreed", "not tried: over budget"]
    assert all(each.startswith("agreed") for each in message(fn).values())


def test_a_reference_that_raises_breaks_no_call():
    def odd(input):
        return torch.sin(input)

    own = OperatorExecutor("own")
    twice = own.operation("only_mine", odd, meta=lambda input: input, replaces=torch.special.sinc)
    fn = dovetail.jit(lambda x: torch.special.sinc(x) + 1, executors=[own])
    x = torch.randn(4)
    assert torch.equal(fn(x), torch.sin(x) + 1) and twice is not None
    assert message(fn)["own", "own.only_mine"].startswith("not tried: ")


def test_a_script_replays_the_case_alone(folder, tmp_path, new_process):
    (tmp_path / "mine.py").write_text(PLUGIN)
    program = "import torch, dovetail, warnings; dovetail.jit(torch.sin)(torch.randn(9))"
    env = {"DOVETAIL_PLUGINS": str(tmp_path / "mine.py"), "DOVETAIL_TRIAL_FOLDER": str(folder), "DOVETAIL_EXECUTORS": "mine,torch"}
    first = new_process(["-c", program], env=env)
    assert "DisagreementWarning: mine disagrees" in first.stderr
    (script,) = folder.glob("*.py")
    again = new_process([script], env=env)
    assert again.returncode == 1 and "mine runs torch.sin: " in again.stdout and "elements differ" in again.stdout, again.stderr
    (tmp_path / "mine.py").write_text(PLUGIN.replace("+ 1", ""))
    mended = new_process([script], env=env)
    assert mended.returncode == 0 and "it agrees" in mended.stdout


def test_a_script_has_symbolic_sizes_as_they_were(folder, tmp_path, new_process):
    plugin = PLUGIN.replace("torch.sin, lambda input: torch.sin(input) + 1", "torch.roll, lambda input, *args: torch.roll(input, *args) + 1")
    plugin = plugin.replace('version="1.0"', 'version="1.0", symbolic=True')
    (tmp_path / "mine.py").write_text(plugin)
    program = "import torch, dovetail; dovetail.jit(lambda x: torch.roll(x, x.shape[0] // 2, 0), dynamic=True)(torch.randn(9, 5))"
    env = {"DOVETAIL_PLUGINS": str(tmp_path / "mine.py"), "DOVETAIL_TRIAL_FOLDER": str(folder), "DOVETAIL_EXECUTORS": "mine,torch"}
    assert "DisagreementWarning: mine disagrees" in new_process(["-c", program], env=env).stderr
    (script,) = folder.glob("*.py")
    again = new_process([script], env=env)
    assert again.returncode == 1 and "elements differ" in again.stdout, again.stderr


PLUGIN = """
import torch
from dovetail.extend import OperatorExecutor, hookimpl

@hookimpl
def dovetail_executors():
    ex = OperatorExecutor("mine", version="1.0")
    ex.implements(torch.sin, lambda input: torch.sin(input) + 1)
    return [ex]
"""


def test_another_process_remembers_by_version(folder):
    ex = of("own", torch.sin, wrong_beyond(2))
    ex.distribution = ("dovetail-own", "1.0")
    with pytest.warns(dovetail.DisagreementWarning):
        dovetail.jit(lambda x: torch.sin(x), executors=[ex])(torch.randn(4))
    same, newer = of("own", torch.sin, torch.sin), of("own", torch.sin, torch.sin)
    same.distribution, newer.distribution = ("dovetail-own", "1.0"), ("dovetail-own", "1.1")
    DISTRUST.kept.clear()
    for other, runs in ((same, "torch"), (newer, "own")):
        fn = dovetail.jit(lambda x: torch.sin(x), executors=[other])
        fn(torch.randn(4))
        assert dovetail.explain(fn).rows[0].actual == runs
    (kept,) = folder.glob("*.json")
    kept.rename(kept.with_name("0" * 64 + ".json"))
    DISTRUST.kept.clear()
    assert list(DISTRUST.listed()) == []


def test_a_kernel_that_was_mended_is_tried_again(monkeypatch, tmp_path):
    package = tmp_path / "own_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "kernel.py").write_text("wrong")
    monkeypatch.setitem(sys.modules, "own_package", SimpleNamespace(__file__=str(package / "__init__.py")))
    monkeypatch.setattr(REGISTRY, "plugins", (Plugin("own", "own_package", executors=("own",)),))

    def runs(kernel):
        ex = of("own", torch.sin, kernel)
        ex.distribution = ("dovetail-own", "1.0")
        fn = dovetail.jit(lambda x: torch.sin(x), executors=[ex])
        fn(torch.randn(4))
        return dovetail.explain(fn).rows[0].actual

    with pytest.warns(dovetail.DisagreementWarning):
        runs(wrong_beyond(2))
    assert runs(wrong_beyond(2)) == "torch"
    (package / "kernel.py").write_text("right")
    assert runs(torch.sin) == "own"


def test_what_is_cleared_is_tried_again():
    ex = of("own", torch.sin, wrong_beyond(2))
    ex.distribution = ("dovetail-own", "1.0")
    with pytest.warns(dovetail.DisagreementWarning):
        dovetail.jit(lambda x: torch.sin(x), executors=[ex])(torch.randn(4))
    assert [each.executor for each in DISTRUST.clear()] == ["own"]
    with pytest.warns(dovetail.DisagreementWarning):
        dovetail.jit(lambda x: torch.sin(x), executors=[ex])(torch.randn(4))


def test_the_backward_is_tried_and_its_gradients_are_right():
    class Wrong(Pointwise):
        def fuse(self, region):
            run = super().fuse(region)
            wrong = "cos" in str([line.symbol for line in region.lines])
            return lambda *inputs: tuple(x + 1 if wrong else x for x in run(*inputs))

    fn = dovetail.jit(lambda x: torch.sin(x) * 2, executors=[Wrong()])
    for _ in range(3):
        x = torch.randn(8, requires_grad=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", dovetail.DisagreementWarning)
            fn(x).sum().backward()
        torch.testing.assert_close(x.grad, 2 * torch.cos(x.detach()))
    assert "disagreed with the reference" in dovetail.cache_misses(fn)[1]


def test_threads_try_at_once():
    fn = dovetail.jit(lambda x: torch.sin(x) * 2, executors=[of("own", torch.sin, torch.sin)])
    wrong = []

    def work():
        for _ in range(40):
            x = torch.randn(16)
            if not torch.allclose(fn(x), torch.sin(x) * 2):
                wrong.append(x)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong and all(each.startswith("agreed") for each in message(fn).values())


def test_the_numbers_drawn_are_those_of_a_call_without_a_trial():
    fn = dovetail.jit(lambda x: F.dropout(torch.sin(x)), executors=[of("own", torch.sin, torch.sin), of("other", F.dropout, F.dropout)])
    x = torch.ones(64)
    torch.manual_seed(0)
    got = [fn(x) for _ in range(3)]
    torch.manual_seed(0)
    assert all(torch.equal(a, F.dropout(torch.sin(x))) for a in got)


TRANSFORMS = {  # of torch.sub: how it computes, by a kernel of the executor and by dovetail.prims, and the factor of that kernel which is right
    "a kernel": (lambda kernel, a, b: kernel(a, b), 1.0),
    "two kernels": (lambda kernel, a, b: kernel(kernel(a, b), b), 0.5),
    "a kernel, then a prim": (lambda kernel, a, b: dovetail.prims.neg(kernel(b, a)), 1.0),
    "a prim, then a kernel": (lambda kernel, a, b: kernel(dovetail.prims.neg(b), dovetail.prims.neg(a)), 1.0),
    "a prim that another executor runs": (lambda kernel, a, b: dovetail.prims.sub(a, b), None),
    "another prim": (lambda kernel, a, b: dovetail.prims.add(a, b), None),
    "a kernel that gets one argument": (lambda kernel, a, b: kernel(a, a), None),
    "a kernel that gets them the other way round": (lambda kernel, a, b: kernel(b, a), -1.0),
}


@pytest.mark.parametrize("case", TRANSFORMS)
@pytest.mark.parametrize("factor", [1.0, 0.5, -1.0])
def test_an_execution_transform_is_compared_as_the_operation_it_stands_for(case, factor):
    transform, right_factor = TRANSFORMS[case]
    own = OperatorExecutor("own")
    kernel = own.operation("scaled", lambda a, b: (a - b) * factor, meta=lambda a, b: a.fresh(), replace=True)
    own.implements(torch.sub, execution_transform=lambda input, other, alpha=1: transform(kernel, input, other))
    fn = dovetail.jit(lambda a, b: torch.sub(a, b) + 1, executors=[own])
    inputs = [(torch.randn(8), torch.randn(8)) for _ in range(3)]
    right, warned = calls(fn, inputs, lambda a, b: torch.sub(a, b) + 1)
    agrees = case == "a prim that another executor runs" or (factor == right_factor and case != "two kernels")
    assert right == [True] * 3 and len(warned) == (not agrees)
    assert all("torch.sub" in str(each) for each in warned)
    assert not agrees or "agreed" in message(fn)["own", "torch.sub"]


@pytest.mark.parametrize("is_right", [True, False])
def test_an_execution_transform_that_returns_its_argument_is_compared(is_right):
    """The result of an operation has memory of its own, so it is a copy."""
    own = OperatorExecutor("own")
    own.implements(torch.relu, execution_transform=lambda input: input)
    fn = dovetail.jit(lambda x: torch.relu(x), executors=[own])
    inputs = [(torch.rand(8) - (0.0 if is_right else 1.0),) for _ in range(3)]
    right, warned = calls(fn, inputs, torch.relu)
    assert right == [True] * 3 and len(warned) == (not is_right)
    assert fn(*inputs[0]).data_ptr() != inputs[0][0].data_ptr()


def test_a_kernel_behind_an_execution_transform_may_not_write_into_its_argument():
    own = OperatorExecutor("own")
    kernel = own.operation("rectified", lambda a, floor: a.clamp_(min=floor), meta=lambda a, floor: a.fresh())
    own.implements(torch.relu, execution_transform=lambda input: kernel(input, 0.0))
    fn = dovetail.jit(lambda x: torch.relu(x) + x, executors=[own])
    right, warned = calls(fn, [(torch.randn(8),) for _ in range(2)], lambda x: torch.relu(x) + x)
    assert right == [True] * 2 and len(warned) == 1 and "it wrote into its argument" in str(warned[0])


@pytest.mark.parametrize("error", [0.0, 1.0])
def test_what_a_grad_rule_computes_forward_is_compared_too(error):
    own = OperatorExecutor("own")

    def rule(input):
        out = torch.relu(input) + error
        put_grad(input, get_grad(out) * (input > 0))
        return out

    own.implements(torch.relu, torch.relu, grad=rule)
    fn = dovetail.jit(lambda x: torch.relu(x) * 2, executors=[own])
    inputs = [(torch.randn(8, requires_grad=True),) for _ in range(2)]
    right, warned = calls(fn, inputs, lambda x: torch.relu(x) * 2)
    assert right == [True] * 2 and len(warned) == (error != 0)
    assert all("in its results, as its grad rule computes them" in str(each) for each in warned)

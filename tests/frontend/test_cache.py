"""Which calls run a program that is there, what is said of those that compile one, and what many threads see."""

from __future__ import annotations

import threading
import warnings

import pytest
import torch

import dovetail


def test_cache_info_counts_and_clear_cache_forgets():
    compiled = dovetail.jit(lambda x, n: x * n)
    x = torch.ones(2)
    for n in (1, 2, 1, 1):
        assert compiled(x, n).tolist() == [n, n]
    assert compiled.cache_info() == (2, 2, 2)
    compiled.clear_cache()
    assert compiled.cache_info() == (0, 0, 0)
    assert compiled(x, 2).tolist() == [2, 2]
    assert compiled.cache_info() == (0, 1, 1)


def test_a_call_that_cannot_be_compiled_is_neither_a_hit_nor_a_miss():
    compiled = dovetail.jit(lambda x, n: x * n if n else x if x.sum() > 0 else -x, decisions="error")
    for n in (0, 2, 0, 2):
        if n:
            compiled(torch.ones(2), n)
        else:
            with pytest.raises(TypeError, match="is needed at"):
                compiled(torch.ones(2), n)
    assert compiled.cache_info() == (1, 1, 1)


def test_the_program_used_last_is_tried_first():
    compiled = dovetail.jit(lambda x, n: x * n)
    x = torch.ones(2)
    for n in (1, 2, 1):
        compiled(x, n)
    assert dovetail.last_prologue_traces(compiled)[-1].lines[-1].symbol is dovetail.extend.advanced.symbols_of("prims").call_program
    first, second = compiled._cache.entries
    compiled(x, 2)
    assert compiled._cache.entries == (second, first)


def test_explain_miss_names_the_guard_of_each_program():
    compiled = dovetail.jit(lambda x, n: x * n, dynamic=False)
    assert compiled.explain_miss(torch.ones(2), 1) == ["nothing is compiled yet"]
    compiled(torch.ones(2), 1)
    compiled(torch.ones(3), 2)
    assert compiled.explain_miss(torch.ones(2), 1) == []
    assert compiled.explain_miss(torch.ones(2), 2) == ['args[0] is no longer a tensor "cpu f32[3]"', "args[1] is no longer 1"]
    assert compiled.cache_info().misses == 2, "asking compiles nothing"


def test_a_module_has_them_too():
    compiled = dovetail.jit(torch.nn.Linear(2, 2))
    compiled(torch.ones(1, 2))
    assert compiled.cache_info().programs == 1
    (why,) = compiled.explain_miss(torch.ones(2, 2))
    assert why == 'args[0] is no longer a tensor "cpu f32[1, 2]"'
    compiled.clear_cache()
    assert compiled.cache_info().programs == 0


def test_one_warning_names_the_guard_that_keeps_failing():
    compiled = dovetail.jit(lambda x, n: x * n, dynamic=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for n in range(12):
            assert compiled(torch.ones(1), n).tolist() == [n]
    (warning,) = caught
    assert r"was compiled 9 times, 8 times because of args[1] (args[1] is no longer 7)" in str(warning.message)
    assert warning.filename == __file__
    assert compiled.cache_info().programs == 12, "calls go on to be right"


def test_the_warning_of_many_programs_leaves_out_those_of_calls_with_other_arguments():
    def fn(x, name, y=None):
        return (x if y is None else x + y) * len(name)

    compiled, x = dovetail.jit(fn), torch.ones(2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for i in range(9):
            name = "n" * (i // 2 + 1)
            compiled(x, name) if i % 2 else compiled(x, name, x)
    (warning,) = [each for each in caught if "was compiled" in str(each.message)]
    assert "was compiled 9 times, 7 times because of args[1] (args[1] is no longer 'nnnn')" in str(warning.message)


def test_scenario_52_no_caching_compiles_at_each_call():
    compiled, x = dovetail.jit(lambda x: x + 1, cache="none"), torch.ones(2)
    for i in range(3):
        assert compiled(x + i).tolist() == [2 + i, 2 + i]
    assert compiled.cache_info() == (0, 3, 1)


def test_scenario_52_same_input_checks_nothing():
    compiled, x = dovetail.jit(lambda x, n: x * n, cache="same input"), torch.ones(2)
    assert compiled(x, 3).tolist() == [3, 3]
    assert compiled(x + 1, 3).tolist() == [6, 6], "tensors are read anew"
    assert compiled(x, 4).tolist() == [3, 3], "everything else is as it was"
    with pytest.raises(dovetail.DovetailError, match="cache is 'guards', 'same input' or 'none'"):
        dovetail.jit(lambda x: x, cache="symbolic")


def test_scenario_52_a_miss_is_a_value_and_no_exception():
    compiled = dovetail.jit(lambda x, n: x * n)
    for n in range(4):
        compiled(torch.ones(2), n)
    for entry in compiled._cache.entries[1:]:
        missed = entry.call((torch.ones(2), 3), {})
        assert type(missed).__name__ == "Miss" and "args[1] is no longer" in missed.reason
        assert entry.call((), {}).reason == "the call no longer has 2 positional arguments"


@pytest.mark.parametrize("dynamic", [None, False])
def test_eight_threads_call_one_function_with_four_shapes(dynamic):
    def fn(x, model):
        return model(x).sum(1) * x.shape[0]

    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    compiled, wrong = dovetail.jit(fn, dynamic=dynamic), []
    start = threading.Barrier(8)

    def work(i):
        start.wait()
        for k in range(20):
            x = torch.randn(1 + (i + k) % 4, 4)
            got, want = compiled(x, model), fn(x, model)
            if not torch.allclose(got, want):
                wrong.append((i, k))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and compiled.cache_info().programs in ([4] if dynamic is False else [2, 3])


def test_the_programs_that_ran_last_are_kept():
    layer = torch.nn.Linear(2, 2)
    compiled = dovetail.jit(lambda x, p: torch.nn.functional.elu(layer(x), p).sum(), dynamic=False)
    losses = []
    with warnings.catch_warnings(), dovetail.use(program_limit=4):
        warnings.simplefilter("ignore")
        for i in range(12):
            losses.append((compiled(torch.full((1, 2), 1.0 + i), 0.5 + i), i))
            assert compiled.cache_info().programs == min(i + 1, 4)
        for p, misses in ((11.5, 12), (8.5, 12), (0.5, 13), (10.5, 13), (9.5, 14)):  # 9.5 made room for 0.5
            compiled(torch.ones(1, 2), p)
            assert compiled.cache_info().misses == misses
        for loss, i in losses:  # the backward of a program that is no longer kept
            layer.zero_grad()
            loss.backward()
            got = layer.weight.grad.clone()
            layer.zero_grad()
            torch.nn.functional.elu(layer(torch.full((1, 2), 1.0 + i)), 0.5 + i).sum().backward()
            torch.testing.assert_close(got, layer.weight.grad)
    with dovetail.use(program_limit=1):
        for p in (1.0, 2.0, 1.0):
            compiled(torch.ones(1, 2), p)
        assert compiled.cache_info().programs == 1

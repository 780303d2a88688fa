"""Compiling and the cache of objects on disk."""

from __future__ import annotations

import ctypes
import functools
import gc
import os
import threading
import time

import pytest
import torch

import dovetail
from dovetail.executors.trials import judge
from dovetail_llvm_exec.call import kernel as regions
from dovetail_llvm_exec.ir import jit
from dovetail_llvm_exec.ir import module as ir
from dovetail_llvm_exec.ir.target import host, named
from dovetail_llvm_exec.loops.program import program as write


def adding(number: int) -> str:
    """The IR of `f(x) = x + number`."""
    module = ir.Module(host())
    b = module.function("f", "i64", [("x", "i64")])
    b.ret(b.add(b.params[0], number))
    return module.text()


def call(kernel: jit.Kernel, x: int) -> int:
    return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(kernel.address)(x)


def objects(folder) -> list:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_a_second_compiler_loads_what_the_first_compiled(tmp_path):
    first = jit.Compiler(folder=tmp_path).compile(adding(1), "f")
    second = jit.Compiler(folder=tmp_path).compile(adding(1), "f")
    assert (first.cached, second.cached) == (False, True)
    assert (call(first, 41), call(second, 41)) == (42, 42)
    assert len(objects(tmp_path)) == 1


def test_other_ir_is_another_object(tmp_path):
    compiler = jit.Compiler(folder=tmp_path)
    kernels = [compiler.compile(adding(n), "f") for n in (1, 2)]
    assert [call(kernel, 0) for kernel in kernels] == [1, 2]
    assert len(objects(tmp_path)) == 2


def test_objects_of_another_machine_are_not_loaded(tmp_path):
    jit.Compiler(folder=tmp_path).compile(adding(1), "f")
    other = jit.Compiler(named(host().triple, "x86-64" if host().triple.startswith("x86_64") else "generic"), tmp_path)
    assert not other.compile(adding(1), "f").cached


def flipped(place):
    return lambda content: content[:place] + bytes([content[place] ^ 1]) + content[place:][1:]


@pytest.mark.parametrize(
    "damage", [lambda content: content[:-1], lambda content: content[:20], lambda content: b"", *map(flipped, (0, 17, 20, 60, 300, -1))]
)
def test_a_damaged_object_is_compiled_again(tmp_path, damage):
    jit.Compiler(folder=tmp_path).compile(adding(1), "f")
    (path,) = objects(tmp_path)
    path.write_bytes(damage(path.read_bytes()))
    again = jit.Compiler(folder=tmp_path).compile(adding(1), "f")
    assert not again.cached
    assert call(again, 1) == 2
    assert jit.Compiler(folder=tmp_path).compile(adding(1), "f").cached


def test_an_object_in_the_place_of_another_is_compiled_again(tmp_path):
    compiler = jit.Compiler(folder=tmp_path)
    compiler.compile(adding(1), "f")
    (one,) = objects(tmp_path)
    compiler.compile(adding(2), "f")
    (two,) = [path for path in objects(tmp_path) if path != one]
    first, second = one.read_bytes(), two.read_bytes()
    one.write_bytes(second)
    two.write_bytes(first)
    kernels = [jit.Compiler(folder=tmp_path).compile(adding(n), "f") for n in (1, 2)]
    assert [(kernel.cached, call(kernel, 40)) for kernel in kernels] == [(False, 41), (False, 42)]
    assert jit.Compiler(folder=tmp_path).compile(adding(1), "f").cached


def test_a_program_with_swapped_objects_computes_what_it_should(tmp_path, monkeypatch):
    x = torch.linspace(0.1, 2.0, 1000)
    programs = [lambda x: x.sin() * 3 + x, lambda x: x.cos() * 3 - x]
    monkeypatch.setattr(jit, "compiler", functools.cache(lambda: jit.Compiler(folder=tmp_path)))
    for program in programs:
        dovetail.jit(program)(x)
    files = sorted(objects(tmp_path))
    contents = [path.read_bytes() for path in files]
    for path, content in zip(files, [*contents[1:], contents[0]], strict=True):
        path.write_bytes(content)
    monkeypatch.setattr(jit, "compiler", functools.cache(lambda: jit.Compiler(folder=tmp_path)))
    for program in programs:
        torch.testing.assert_close(dovetail.jit(program)(x), program(x))


def kernels_of(fn, folder, monkeypatch):
    """Compile and call a function as a process would that starts now; return its result, and how many regions were written as IR."""
    written = []
    monkeypatch.setattr(jit, "compiler", functools.cache(lambda: jit.Compiler(folder=folder)))
    monkeypatch.setattr(regions, "program", lambda *args, **kwargs: written.append(1) or write(*args, **kwargs))
    region = dovetail.make_trace(fn)(*INPUTS)
    return regions.Kernels().get(region)(*INPUTS), len(written)


INPUTS = torch.linspace(-1, 1, 30).view(5, 6), torch.linspace(1, 2, 6)


def test_a_second_process_writes_no_ir(tmp_path, monkeypatch, recalled):
    def fn(x, y):
        return torch.softmax(x * y, -1), (x + y).sum(0)

    assert [kernels_of(fn, tmp_path, monkeypatch)[1] for _ in range(2)] == [1, 0]
    torch.testing.assert_close(kernels_of(fn, tmp_path, monkeypatch)[0], fn(*INPUTS))
    assert kernels_of(lambda x, y: ((x - y).exp(),), tmp_path, monkeypatch)[1] == 1
    monkeypatch.setattr(jit, "generator", lambda: "another version")
    assert kernels_of(fn, tmp_path, monkeypatch)[1] == 1
    for path in objects(tmp_path):
        path.write_bytes(path.read_bytes()[:-1])
    result, count = kernels_of(fn, tmp_path, monkeypatch)
    assert count == 1
    torch.testing.assert_close(result, fn(*INPUTS))


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    kernel = jit.Compiler(folder=blocked).compile(adding(5), "f")
    assert call(kernel, 1) == 6


@pytest.mark.parametrize("kind", ["a file", "read-only"])
def test_a_draft_gives_way_where_its_object_cannot_be_removed(tmp_path, monkeypatch, kind):
    if kind == "a file":
        (tmp_path / "cache").touch()
    compiler = jit.Compiler(folder=tmp_path / "cache")
    draft = compiler.shared(adding(7), "f", draft=True)
    assert draft.draft

    def refuse(path, *args, **kwargs):
        raise PermissionError(13, "Permission denied", path)

    if kind == "read-only":
        monkeypatch.setattr(jit.os, "unlink", refuse)
    kernel = compiler.finished(draft)

    assert not kernel.draft
    assert call(kernel, 1) == 8


def test_no_temporary_file_stays(tmp_path):
    compiler = jit.Compiler(folder=tmp_path)
    threads = [threading.Thread(target=compiler.compile, args=(adding(n % 3), "f")) for n in range(9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(objects(tmp_path)) == 3
    assert all(path.suffix == jit.SUFFIX and not path.name.startswith(".") for path in objects(tmp_path))


def test_objects_that_nobody_loads_make_room(tmp_path, monkeypatch):
    monkeypatch.setattr(jit, "KEPT", 2)
    monkeypatch.setattr(jit, "TIDYING", "")
    compiler = jit.Compiler(folder=tmp_path)
    monkeypatch.setattr(compiler, "_path", lambda key: tmp_path / "all" / (key + jit.SUFFIX))
    for age, number in ((30, 1), (20, 2)):
        compiler.compile(adding(number), "f")
        newest = max(objects(tmp_path), key=lambda path: path.stat().st_mtime_ns)
        os.utime(newest, (time.time() - age,) * 2)
    assert compiler.compile(adding(1), "f").cached  # and now 2 is the oldest
    compiler.compile(adding(3), "f")
    assert [compiler.compile(adding(number), "f").cached for number in (1, 3, 2)] == [True, True, False]


def test_what_is_provided_can_be_called():
    seen = []
    callback = ctypes.CFUNCTYPE(None, ctypes.c_int64)(seen.append)
    compiler = jit.Compiler()
    compiler.provide("dovetail_test_callback", ctypes.cast(callback, ctypes.c_void_p).value)
    module = ir.Module(host())
    b = module.function("f", "void", [("x", "i64")])
    b.call("dovetail_test_callback", "void", b.params[0])
    b.ret()
    kernel = compiler.compile(module.text(), "f")
    ctypes.CFUNCTYPE(None, ctypes.c_int64)(kernel.address)(7)
    assert seen == [7]


def test_what_is_missing_is_named():
    module = ir.Module(host())
    b = module.function("f", "void", [])
    b.call("nobody_defines_this", "void")
    b.ret()
    with pytest.raises(RuntimeError, match="nobody_defines_this"):
        jit.Compiler().compile(module.text(), "f")


def test_bad_ir_is_an_error_with_llvms_words():
    with pytest.raises(RuntimeError, match="expected"):
        jit.Compiler().compile("define nonsense", "f")


@pytest.mark.parametrize(("level", "ir_shown", "assembly_shown"), [(2, False, False), (3, True, False), (4, True, True)])
def test_debug_prints_ir_and_assembly(tmp_path, capsys, level, ir_shown, assembly_shown):
    compiler = jit.Compiler(folder=tmp_path)
    for _ in range(2):  # also when the object comes from the cache
        with dovetail.use(debug=level):
            compiler.compile(adding(1), "f")
        message = capsys.readouterr().err
        assert ("define i64 @f" in message) == ir_shown
        assert (".globl" in message) == assembly_shown


def test_code_lives_as_long_as_its_kernel():
    compiler = jit.Compiler()
    kernels = [compiler.compile(adding(n), "f") for n in range(20)]
    del kernels[::2]
    assert [call(kernel, 100) for kernel in kernels] == [100 + n for n in range(1, 20, 2)]


def test_a_kernel_outlives_its_compiler():
    kernels = [jit.Compiler().compile(adding(n), "f") for n in range(5)]
    gc.collect()
    assert [call(kernel, 1) for kernel in kernels] == [1, 2, 3, 4, 5]


@pytest.mark.trials
def test_equal_regions_have_one_reference(monkeypatch):
    lines = []
    program = judge.program
    monkeypatch.setattr(judge, "program", lambda line, *rest: lines.append(line) or program(line, *rest))

    def fn(x):
        for _ in range(3):
            x = torch.mm(torch.softmax(x, -1) * 2, x)
        return torch.softmax(x * 2, -1)

    x = torch.randn(8, 8)
    torch.testing.assert_close(dovetail.jit(fn, executors=["llvm", "torch"])(x), fn(x))
    assert len(lines) == 2


def test_the_loops_of_a_long_module_are_not_reduced_in_strength(monkeypatch):
    chosen = []
    monkeypatch.setattr(jit.llvm, "set_option", lambda name, option: chosen.append(option))
    jit.Compiler().compile(adding(1), "f")
    assert chosen == []
    jit.Compiler().compile(adding(1) + ";\n" * jit.LONG, "f")
    assert chosen == ["-disable-lsr=true", "-disable-lsr=false"]


def test_an_error_leaves_llvm_s_options_as_they_were(monkeypatch):
    chosen = []
    monkeypatch.setattr(jit.llvm, "set_option", lambda name, option: chosen.append(option))
    with pytest.raises(RuntimeError):
        jit.Compiler().compile("no IR\n" + ";\n" * jit.LONG, "f")
    assert chosen[-1] == "-disable-lsr=false"

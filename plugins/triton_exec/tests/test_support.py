"""Files, availability and refusals: what is around the kernels; none of it needs triton."""

import os
import py_compile
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

import dovetail
from dovetail_triton_exec import availability, claims, files
from dovetail_triton_exec.executor import TritonExecutor, triton_executors


def test_a_file_is_named_by_what_it_holds(tmp_path):
    first, again = files.written("a = 1\n", str(tmp_path)), files.written("a = 1\n", str(tmp_path))
    assert first == again and first.read_text() == "a = 1\n"
    assert files.written("a = 2\n", str(tmp_path)) != first


DAMAGES = {
    "cut short": lambda content, other: content[:-2],
    "empty": lambda content, other: b"",
    "a flipped bit": lambda content, other: content.replace(b"1", b"3"),
    "no text": lambda content, other: content[:-1] + b"\xff",
    "another's": lambda content, other: other,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_is_written_again_and_never_run(tmp_path, damage):
    text, other = (f"# of {tmp_path.name}\nvalue = {n}\n" for n in (1, 2))
    path = files.written(text, str(tmp_path))
    path.write_bytes(damage(path.read_bytes(), other.encode()))
    assert files.written(text, str(tmp_path)) == path and path.read_bytes() == text.encode()
    path.write_bytes(damage(path.read_bytes(), other.encode()))  # between writing and importing
    assert files.module(path, text).value == 1


def test_bytecode_beside_a_file_is_not_run(tmp_path):
    text, other = (f"# of {tmp_path.name}\nvalue = {n}\n" for n in (1, 2))
    path = files.written(other, str(tmp_path))
    bytecode = Path(py_compile.compile(str(path)))
    ours = files.written(text, str(tmp_path))
    os.utime(ours, (path.stat().st_atime, path.stat().st_mtime))
    bytecode.parent.joinpath(bytecode.name.replace(path.stem, ours.stem)).write_bytes(bytecode.read_bytes())
    assert files.module(ours, text).value == 1


def test_files_of_another_version_are_others(tmp_path, monkeypatch):
    path = files.written("a = 1\n", str(tmp_path))
    monkeypatch.setattr(files, "__version__", "another")
    assert files.written("a = 1\n", str(tmp_path)) != path


def test_many_writers_leave_one_whole_file(tmp_path):
    text = "a = 1\n" * 20000
    with ThreadPoolExecutor(8) as pool:
        paths = set(pool.map(lambda _: files.written(text, str(tmp_path)), range(32)))
    (path,) = paths
    assert path.read_text() == text
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.slow
def test_several_processes_write_the_same_files(tmp_path):
    program = f"from dovetail_triton_exec import files; [files.written('a = %d' % (i % 5), {str(tmp_path)!r}) for i in range(200)]"
    path = [p for p in sys.path if p]
    started = [subprocess.Popen([sys.executable, "-c", f"import sys; sys.path[:0] = {path!r}; {program}"]) for _ in range(2)]
    assert [process.wait() for process in started] == [0, 0]
    assert len(list(tmp_path.rglob("*.py"))) == 5 and not list(tmp_path.rglob("*.tmp"))


def test_a_generated_file_is_imported_once(tmp_path):
    path = files.written("held = []\n", str(tmp_path))
    assert files.module(path, "held = []\n") is files.module(path, "held = []\n")


UNAVAILABLE = {
    "triton is not installed": {"version": lambda: None},
    "and 3.2.0 is installed": {"version": lambda: "3.2.0"},
    "needs a CUDA device": {"version": lambda: "3.6.0", "interpreting": lambda: False},
}


@pytest.mark.parametrize("sentence", UNAVAILABLE)
def test_what_a_machine_lacks_is_told_apart(sentence, monkeypatch):
    for name, value in UNAVAILABLE[sentence].items():
        monkeypatch.setattr(availability, name, value)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert sentence in availability.available()


@pytest.mark.parametrize("version", ("3.6.0", "3.7.1", "3.9.0+git1"))
def test_it_is_there_in_the_interpreter_with_a_triton_that_is_known(version, monkeypatch):
    monkeypatch.setattr(availability, "version", lambda: version)
    monkeypatch.setattr(availability, "interpreting", lambda: True)
    assert availability.available() is True
    assert availability.devices() == ("cpu",)


def test_whole_operations_are_asked_before_regions():
    assert [ex.name for ex in triton_executors()] == ["cross_entropy_triton", "triton"]


def with_gaps(x):
    y = x + 1
    y[::2] = x[::2] * 2
    return y


def rows(n):
    return torch.zeros(n, dtype=torch.int64)


REFUSALS = {
    "leaves matrix products to cuBLAS": lambda x: x @ x.t(),
    "leaves convolutions to cuDNN": lambda x: torch.nn.functional.conv1d(x[None], x[:, :, None]),
    "raises integers to powers from 0 to 64": lambda x: x.long() ** 100,
    "shifts by tensors, not by numbers": lambda x: x.long() << 2,
    "adds numbers, not booleans": lambda x: (x > 0).scatter_add(1, rows(4)[:, None], x[:, :1] > 0),
    "expected rows to pick from, got cpu f32[0, 4]": lambda x: x[:0].index_select(0, rows(0)) * 2,
    "writes slices without gaps": with_gaps,
    "expected numbers that are known when the program is compiled": lambda x: x * x.sum().item(),
    "draws by counters alone: normal_philox": lambda x: torch.randn(4) + x,
    "without atomics for sums at repeated positions": lambda x: x.index_add(0, torch.tensor([0, 1, 1]), x[:3]),
    "draws by counters alone": lambda x: torch.rand(3) + x[0, 0],
    "puts one element for each row": lambda x: torch.zeros(4, 4).scatter(1, torch.zeros(4, 2, dtype=torch.int64), x[:, :2]),
    "expected tensors of b8, u8": lambda x: torch.complex(x, x).abs(),
    "leaves floor division of bf16": lambda x: x.bfloat16() // 0.3,
    "has no kernel for prims.cumsum": lambda x: x.cumsum(0),
    "leaves views that no kernel of its own reads": lambda x: x.t() @ x,
}


@pytest.mark.parametrize("sentence", REFUSALS)
def test_a_refusal_is_a_sentence(sentence):
    fn = dovetail.jit(REFUSALS[sentence], executors=[Spoken(), "torch"])
    fn(torch.ones(4, 4))
    records = [trace.dispatch_record for trace in dovetail.last_traces(fn) if trace.dispatch_record is not None]
    verdicts = [str(offer.verdict) for record in records for offer in record.offers]
    assert any(sentence in verdict for verdict in verdicts), verdicts


class Spoken(TritonExecutor):
    """On the CPU without kernels: regions run as Python."""

    def __init__(self):
        super().__init__(devices=["cpu"])

    def fuse(self, region):
        return dovetail.extend.advanced.to_callable(region)


def test_every_dtype_that_is_declared_has_a_pointer():
    from dovetail_triton_exec.compiling import POINTERS

    assert {d.name for d in claims.STORED} == set(POINTERS)

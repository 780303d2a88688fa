"""Everything up to the kernel call against a stand-in, and the kernel itself where it imports."""

from __future__ import annotations

import ast
import itertools
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import dovetail
import dovetail_apex_xentropy
from dovetail.extend.advanced import ExecutorError, get_executor, plugins
from dovetail_apex_xentropy import executor, kernel

F = torch.nn.functional
TOLERANCE = {torch.float32: (1e-5, 1e-6), torch.float16: (2e-3, 2e-3), torch.bfloat16: (4e-2, 2e-2)}
DTYPES = [pytest.param(dtype, id=str(dtype).removeprefix("torch.")) for dtype in TOLERANCE]
HOW = [
    pytest.param({"reduction": reduction} | more, id=f"{reduction} {more or ''}")
    for reduction, more in itertools.product(
        ("mean", "sum", "none"), ({}, {"ignore_index": 3}, {"label_smoothing": 0.1}, {"ignore_index": 3, "label_smoothing": 1})
    )
]


@pytest.fixture
def ex(stand_in):
    """The executor, with the stand-in for a kernel and the CPU for its device."""
    return executor.apex_executor(devices=("cpu",))


def problem(dtype=torch.float32, rows=6, classes=40, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = (torch.randn(rows, classes, generator=generator) * 3).to(dtype)
    target = torch.randint(classes, (rows,), generator=generator)
    target[::3] = 3
    return logits, target


def ran(jitted) -> list[str]:
    """The lines of the forward and of the backward that apex_xentropy runs."""
    programs = [dovetail.last_traces(jitted)[-1], *dovetail.last_backward_traces(jitted)[-1:]]
    implementations = [line.implementation for program in programs for line in program.lines]
    return [implementation.name for implementation in implementations if implementation is not None and implementation.executor == "apex_xentropy"]


def close(got, want, dtype):
    rtol, atol = TOLERANCE[dtype]
    assert got.dtype is want.dtype
    torch.testing.assert_close(got.double(), want.double(), rtol=rtol, atol=atol, equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("how", HOW)
def test_the_loss_is_torchs(ex, stand_in, how, dtype):
    logits, target = problem(dtype)
    jitted = dovetail.jit(lambda x, y: F.cross_entropy(x, y, **how), executors=[ex])

    close(jitted(logits, target), F.cross_entropy(logits.float(), target, **how).to(dtype), dtype)
    assert ran(jitted) == ["apex_xentropy"] and stand_in.calls == ["forward"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("how", HOW)
def test_the_gradient_is_torchs_and_both_halves_are_the_kernels(ex, stand_in, how, dtype):
    logits, target = problem(dtype)
    g = torch.linspace(0.5, 2, 6).to(dtype) if how["reduction"] == "none" else torch.tensor(1.5, dtype=dtype)
    x, exact = logits.clone().requires_grad_(), logits.double().requires_grad_()
    jitted = dovetail.jit(lambda x, y: F.cross_entropy(x, y, **how), executors=[ex])
    loss = jitted(x, target)
    loss.backward(g)
    F.cross_entropy(exact, target, **how).backward(g.double())

    close(x.grad, exact.grad.to(dtype), dtype)
    assert ran(jitted) == ["forward", "backward"] and stand_in.calls == ["forward", "backward"]


def test_strides_are_no_matter(ex):
    logits, target = problem()
    wide, spread = logits.t().contiguous().t().requires_grad_(), torch.stack([target, target], 1)[:, 0]
    jitted = dovetail.jit(F.cross_entropy, executors=[ex])
    jitted(wide, spread).backward()
    plain = logits.clone().requires_grad_()
    F.cross_entropy(plain, target).backward()

    close(wide.grad, plain.grad, torch.float32)


def test_where_all_is_ignored_the_mean_is_nan_and_the_gradient_zero(ex):
    logits, target = problem()[0].requires_grad_(), torch.full((6,), -100)
    jitted = dovetail.jit(F.cross_entropy, executors=[ex])
    loss = jitted(logits, target)
    loss.backward()

    assert loss.isnan() and not logits.grad.any()


def test_a_target_out_of_bounds_raises(ex):
    logits, target = problem()
    with pytest.raises(RuntimeError, match="a target is out of bounds"):
        dovetail.jit(F.cross_entropy, executors=[ex])(logits, target + 40)


def test_in_a_model_the_rest_is_run_by_others(ex, stand_in):
    torch.manual_seed(0)
    model, x, target = torch.nn.Linear(8, 40), torch.randn(6, 8), problem()[1]
    want = torch.autograd.grad(F.cross_entropy(model(x), target), model.weight)[0]
    trained = dovetail.jit(Trained(model), executors=[ex])
    (got,) = torch.autograd.grad(trained(x, target), model.weight)

    torch.testing.assert_close(got, want)
    assert stand_in.calls == ["forward", "backward"]


class Trained(torch.nn.Module):
    """A model and its loss."""

    def __init__(self, model: torch.nn.Module):
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(self.model(x), target)


X, Y = problem()
REFUSED = {  # what is asked, and the refusal
    "dtype": ((X.double(), Y), {}, r"expected tensors of i64, bf16, f16 or f32, got t0: \"cpu f64"),
    "rank 1": ((X[0], Y[0]), {}, r"expected logits of shape \[N, C\], got cpu f32\[40\]; reshape them"),
    "rank 3": ((X.view(2, 40, 3), Y.view(2, 3)), {}, r"expected logits of shape \[N, C\], got cpu f32\[2, 40, 3\]"),
    "probabilities": ((X, X.softmax(1)), {}, "expected int64 classes"),
    "uint8": ((X, Y.to(torch.uint8)), {}, 'expected tensors of .*, got t1: "cpu u8'),
    "weight": ((X, Y, torch.ones(40)), {}, "the kernel has no class weights"),
    "legacy": ((X, Y), {"size_average": False}, "expected reduction= in place of size_average and reduce"),
    "no rows": ((X[:0], Y[:0]), {}, "expected at least one row and one class"),
    "few classes": ((X[:, :5].contiguous(), Y % 5), {}, "expected 32 classes or more, or rows of a multiple of 16 bytes, got cpu f32"),
    "few classes, half": ((X[:, :12].half(), Y % 12), {}, "expected 32 classes or more, or rows of a multiple of 16 bytes, got cpu f16"),
}


@pytest.mark.filterwarnings("ignore:size_average and reduce args")
@pytest.mark.parametrize("case", REFUSED)
def test_a_limit_is_a_refusal_and_the_next_executor_runs_it(ex, stand_in, case):
    args, how, sentence = REFUSED[case]
    jitted = dovetail.jit(lambda *args: F.cross_entropy(*args, **how), executors=[ex])

    torch.testing.assert_close(jitted(*args), F.cross_entropy(*args, **how), equal_nan=True)
    assert not stand_in.calls and not ran(jitted)
    (line,) = [line for line in dovetail.last_traces(jitted)[0].lines if line.symbol.name == "cross_entropy"]
    message = ex.verdict(line)
    assert isinstance(message, str) and re.search(sentence, message), message


def test_a_device_is_a_refusal(stand_in):
    jitted = dovetail.jit(F.cross_entropy, executors=[executor.apex_executor()])
    torch.testing.assert_close(jitted(X, Y), F.cross_entropy(X, Y))

    assert not stand_in.calls
    assert 'apex_xentropy refuses: expected tensors on cuda, got t0: "cpu f32[6, 40]"' in str(dovetail.explain(jitted))


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"reduction": "median"}, "expected the reduction 'none', 'mean' or 'sum', got 'median'"),
        ({"label_smoothing": object()}, "expected a label_smoothing that is known when the program is compiled"),
    ],
)
def test_limits_that_the_operation_has_itself_are_refusals_too(changed, sentence):
    program = dovetail.make_trace(lambda x, y: F.cross_entropy(x, y))(X, Y)

    assert sentence in executor.takes(*program.inputs, **changed)


def test_a_big_problem_is_a_refusal_without_being_made():
    big = dovetail.extend.TensorSpec((2**17, 2**15), dovetail.dtypes.float16)

    assert "counts elements in 32 bits" in executor._fits(big)
    assert executor._fits(big.fresh((2**17, 2**15 - 1))) is True


def test_few_classes_in_aligned_rows_are_taken(ex, stand_in):
    logits, target = X[:, :8].contiguous(), Y % 8
    torch.testing.assert_close(dovetail.jit(F.cross_entropy, executors=[ex])(logits, target), F.cross_entropy(logits, target))

    assert stand_in.calls == ["forward"]


def test_the_declaration_says_what_it_takes(ex):
    message = executor.apex_executor().declaration()
    row = message["operations"]["torch.nn.functional.cross_entropy"]

    assert row["devices"] == ["cuda"] and row["checker"] and row["grad_rule"] and row["grad"]
    assert set(row["dtypes"]) == {"float16", "bfloat16", "float32", "int64"}


# Whether the kernel is there.


@pytest.fixture
def no_apex(monkeypatch):
    """An environment without apex and without the kernel, whatever is installed."""
    monkeypatch.setitem(sys.modules, "xentropy_cuda", None)
    monkeypatch.setitem(sys.modules, "apex", None)


def install(monkeypatch, folder: Path, files: dict[str, str]) -> None:
    """Put files into a folder that Python looks into first."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    monkeypatch.syspath_prepend(folder)
    for name in ("apex", "xentropy_cuda"):
        if any(file.startswith(name) for file in files):
            monkeypatch.delitem(sys.modules, name, raising=False)


METADATA = "Metadata-Version: 2.1\nName: apex\nVersion: {}\nSummary: {}\n"
PYRAMID = METADATA.format("0.9.10.dev0", "Pyramid toolkit to add Velruse, Flash Messages, CSRF, ReCaptcha and Sessions")
NVIDIA = METADATA.format("0.1", "PyTorch Extensions written by NVIDIA")
UNDEFINED = "raise ImportError('xentropy_cuda.so: undefined symbol: _ZN3c104cuda9SetDeviceEi')"
STATES = {  # what is installed, and the sentence
    "absent": ({}, "xentropy_cuda is not installed, and neither is NVIDIA apex; build NVIDIA's"),
    "unrelated": (
        {"apex/__init__.py": "raise SystemExit", "apex-0.9.10.dev0.dist-info/METADATA": PYRAMID},
        "the apex here is the unrelated one from PyPI, for Pyramid; pip uninstall apex",
    ),
    "unrelated, by its folder": ({"apex/__init__.py": ""}, "the unrelated one from PyPI"),
    "without the extension": (
        {"apex/__init__.py": "", "apex/contrib/__init__.py": "", "apex-0.1.dist-info/METADATA": NVIDIA},
        "NVIDIA apex is installed and was built without xentropy_cuda; build NVIDIA's from source with APEX_CPP_EXT=1",
    ),
    "another torch": ({"xentropy_cuda.py": UNDEFINED}, f"built against another PyTorch than {torch.__version__} (xentropy_cuda.so: undefined symbol"),
    "a library is missing": ({"xentropy_cuda.py": "raise OSError('libcudart.so.11.0: cannot open')"}, "built against another PyTorch"),
    "a module is missing": ({"xentropy_cuda.py": "import no_such_module"}, "xentropy_cuda is there and needs no_such_module, which is not"),
    "another module": ({"xentropy_cuda.py": ""}, "the module xentropy_cuda has no forward and backward"),
    "no device": ({"xentropy_cuda.py": "forward = backward = print"}, "xentropy_cuda is there and needs a CUDA device"),
}


@pytest.mark.parametrize("state", STATES)
def test_available_says_what_is_missing(no_apex, monkeypatch, tmp_path, state):
    files, sentence = STATES[state]
    install(monkeypatch, tmp_path, files)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    message = executor.apex_executor().available()
    assert isinstance(message, str) and sentence in message


def test_it_is_available_with_a_kernel_and_a_device(stand_in, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)

    assert executor.apex_executor().available() is True


def test_the_plugin_is_found_and_says_whether_it_runs():
    program = (
        "from dovetail.extend.advanced import plugins; print(*[(p.distribution, p.status, p.reason) for p in plugins() if p.name == 'apex_xentropy'])"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    message = kernel.available()

    assert ast.literal_eval(printed) == ("dovetail-apex-xentropy", *(("ready", "") if message is True else ("unavailable", message)))


# By hand, as in a notebook.


@pytest.fixture
def registry():
    """What is registered in a test goes with it."""
    registered = dovetail.executors.discovery.registry.REGISTRY
    plugins()
    before, defaults = dict(registered.executors), list(registered.defaults)
    yield registered
    registered.executors.clear()
    registered.executors.update(before)
    registered.defaults[:] = defaults


@pytest.mark.parametrize("default", [True, False])
def test_seed_002_registered_by_hand_it_is_asked_first_or_where_it_is_named(registry, stand_in, monkeypatch, default):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    registered = dovetail_apex_xentropy.register_apex_xentropyex(add_to_default_executors=default)
    jitted = dovetail.jit(F.cross_entropy)
    jitted(X, Y)

    assert get_executor("apex_xentropy") is registered and registered.version == dovetail_apex_xentropy.__version__
    assert registered.implementation(dovetail.extend.advanced.symbol_for(F.cross_entropy)).grad is executor.rule
    assert ("apex_xentropy refuses: expected tensors on cuda" in str(dovetail.explain(jitted))) is default


def test_registered_by_hand_where_there_is_no_kernel_it_says_so(no_apex):
    with pytest.raises(ExecutorError, match="apex_xentropy cannot be registered: xentropy_cuda is not installed"):
        dovetail_apex_xentropy.register_apex_xentropyex()


def test_without_a_kernel_a_call_says_what_is_missing(no_apex):
    ex = executor.apex_executor(devices=("cpu",))
    with pytest.raises(ExecutorError, match="apex_xentropy cannot run: xentropy_cuda is not installed"):
        dovetail.jit(F.cross_entropy, executors=[ex])(X, Y)


# The kernel itself.

HERE = kernel.available()
with_kernel = pytest.mark.skipif(HERE is not True, reason=str(HERE))


@with_kernel
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("how", HOW)
def test_the_kernels_loss_and_gradient_are_torchs(how, dtype):
    logits, target = problem(dtype, rows=512, classes=1000)
    x, exact = logits.cuda().requires_grad_(), logits.double().cuda().requires_grad_()
    jitted = dovetail.jit(lambda x, y: F.cross_entropy(x, y, **how).sum(), executors=["apex_xentropy"])
    loss, want = jitted(x, target.cuda()), F.cross_entropy(exact, target.cuda(), **how).sum()
    loss.backward()
    want.backward()

    close(loss.detach(), want.detach().to(dtype), dtype)
    close(x.grad, exact.grad.to(dtype), dtype)
    assert ran(jitted) == ["forward", "backward"]


@with_kernel
@pytest.mark.parametrize("classes", [8, 16, 31, 32, 33, 1001])
def test_the_kernel_stays_within_short_rows(classes):
    logits, target = problem(torch.float32, rows=64, classes=classes)
    jitted = dovetail.jit(F.cross_entropy, executors=["apex_xentropy"])

    close(jitted(logits.cuda(), target.cuda()).cpu(), F.cross_entropy(logits, target), torch.float32)

"""What the executor declares, and a sentence for all that it does not take."""

from __future__ import annotations

import pytest
import torch

import dovetail
import dovetail_conformance.prims  # noqa: F401
from dovetail import devices, dtypes, prims
from dovetail.extend import Tag, TensorSpec
from dovetail_conformance import OPINFOS
from dovetail_nvfuser_exec.attention import takes
from dovetail_nvfuser_exec.claims import REASONS, WHY_OPTIONAL, verdict
from dovetail_nvfuser_exec.executor import OPTIONS, NvfuserExecutor
from dovetail_nvfuser_exec.translators import DTYPES, LOW, MOVES, OPT_IN, RESIZES, RULES, VIEWS


def message(fn, *args, **options):
    """What the executor says to the last line of a program."""
    lines = dovetail.make_trace(lambda *args: (fn(*args),))(*args).lines
    return verdict(lines[-1], OPTIONS | options)


X, INDEX = torch.ones(4, 4), torch.ones(4, 4, dtype=torch.int64)
ROW = torch.zeros(4, dtype=torch.int64)
REFUSALS = {
    "computes with f64, f32, f16, bf16, i64, i32, b8, and t0 is of i8": (lambda x: prims.neg(x), X.to(torch.int8)),
    "and t0 is of u8": (lambda x: prims.clone(x), X.to(torch.uint8)),
    "and t1 is of i16": (lambda x: prims.convert_element_type(x, dtype=dtypes.int16), X),
    "and t0 is of c64": (lambda x: prims.exp(x), X.to(torch.complex64)),
    "takes tensors of at most 8 dimensions, and t0 has 9": (lambda x: prims.exp(x), torch.ones((1,) * 9)),
    "takes tensors of at most 8 dimensions, and t1 has 9": (lambda x: prims.reshape(x, shape=(2,) * 4 + (1,) * 5), X),
    "expected at least one element, and t0 is cpu f32[0, 2]": (lambda x: prims.exp(x), torch.ones(0, 2)),
    "has no isnan of i64": (lambda i: prims.isnan(i), INDEX),
    "has no sign of b8": (lambda c: prims.sign(c), INDEX.bool()),
    "supports real numbers only here": (lambda x: prims.complex(x, x), X),
    "raises integers to powers that are known": (lambda i: prims.pow(i, i), INDEX),
    "shifts by numbers from 0 to 63": (lambda i: prims.bitwise_left_shift(i, 64), INDEX),
    "steps from one f32 or f64 to the next": (lambda x: prims.nextafter(x, x), X.half()),
    "divides integers by numbers other than 0": (lambda i: prims.remainder(i, 0), INDEX),
    "divides integers in one way in its kernels": (lambda i: prims.truncdiv(i, 2), INDEX),
    "has no floor division": (lambda x: prims.floordiv(x, 2.0), X),
    "got 0.5 for dims (1,)": (lambda x: prims.var(x, dims=(1,), correction=0.5), X),
    "got 5 for dims (1,)": (lambda x: prims.var(x, dims=(1,), correction=5), X),
    "got 0 for dims ()": (lambda x: prims.var(x, dims=(), correction=0), X),
    "slices without gaps": (lambda x: prims.strided_slice(x, starts=(0, 0), stops=(4, 4), steps=(2, 1)), X),
    "pads around a tensor": (lambda x: prims.pad(x, value=0.0, low=(0, 0), high=(0, 0), interior=(1, 0)), X),
    "crops at most the whole dimension": (lambda x: prims.pad(x, value=0.0, low=(-4, 0), high=(4, 0), interior=(0, 0)), X),
    "has no operation that returns positions": (lambda x: prims.argmax(x, dim=1), X),
    "leaves draws to the device's generator": (lambda x: prims.bernoulli(x), X),
    "counts the numbers that it draws by its own threads": (
        lambda s: prims.uniform_philox(s, s, shape=(2,), low=0.0, high=1.0, dtype=dtypes.float32, device=devices.cpu),
        torch.tensor(1),
    ),
    "adds up at repeated positions": (lambda x, i: prims.index_add(x, i, x, dim=0), X, ROW),
    "has no operation that permutes elements this way": (lambda x: prims.flip(x, dims=(0,)), X),
    "its option `matmul` takes them": (lambda x: prims.matmul(x, x), X),
    "its option `linear` takes them": (lambda x: prims.linear(x, x), X),
    "its option `embedding` takes them": (lambda x, i: prims.embedding(x, i), X, INDEX),
    "its option `indexing` takes them": (lambda x, i: prims.take(x, i, dim=0), X, ROW),
    "works on one device": (lambda x: prims.device_put(x, device=devices.cpu), X),
}


@pytest.mark.parametrize("sentence", REFUSALS)
def test_a_refusal_is_a_sentence(sentence):
    fn, *args = REFUSALS[sentence]

    assert sentence in message(fn, *args)


@pytest.mark.parametrize(
    ("option", "fn", "args"),
    [
        ("matmul", lambda x: prims.matmul(x, x), (X,)),
        ("linear", lambda x: prims.linear(x, x), (X,)),
        ("embedding", lambda x, i: prims.embedding(x, i), (X, INDEX)),
        ("indexing", lambda x, i: prims.take_along_axis(x, i, dim=0), (X, INDEX)),
    ],
)
def test_an_option_opens_what_it_names(option, fn, args):
    assert message(fn, *args) == WHY_OPTIONAL[option]
    assert message(fn, *args, **{option: True}) is True


def test_with_their_options_prims_have_their_limits():
    assert "expected an index as large as" in message(lambda x, i: prims.take_along_axis(x, i, dim=0), X, INDEX[:, :2], indexing=True)
    assert "at least one dimension" in message(lambda x, i: prims.embedding(x, i), X, torch.tensor(1), embedding=True)


def test_writes_are_an_option_and_want_row_major_tensors():
    def last(x, **options):
        trace = dovetail.make_trace(lambda x: (prims.copy_(x, prims.neg(x)), x)[1:])(x)
        return verdict(trace.lines[1], OPTIONS | options)

    assert last(X) == WHY_OPTIONAL["in_place"]
    assert last(X, in_place=True) is True
    assert "row-major" in last(torch.ones(3, 4).t(), in_place=True)


def test_numbers_that_the_program_computes_are_operands_and_nothing_else():
    x = torch.ones(2)
    assert message(lambda x: prims.mul(x, prims.item(prims.sum(x, dims=(0,)))), x) is True
    fill = message(lambda x: prims.full(shape=(2,), value=prims.item(prims.sum(x, dims=(0,))), dtype=dtypes.float32, device=devices.cpu), x)
    assert "expected the numbers that full is called with to be known when the program is compiled" in fill


def test_every_prim_is_translated_or_refused_in_words_of_its_own():
    names = {info.symbol.name for info in OPINFOS if info.symbol.module == "prims" and Tag.MEMORY not in info.symbol.tags}

    assert names >= set(RULES)
    of_the_host = {"arithmetic", "delete", "evaluate", "format_number", "format_tensor", "integer", "join_text", "print_", "size"}
    assert names - set(RULES) - set(REASONS) == of_the_host | {"digamma", "frexp", "ndtri", "polygamma", "zeta"}
    assert not set(RULES) & set(REASONS) and {name for rules in OPT_IN.values() for name in rules} <= set(RULES)
    assert VIEWS <= MOVES and set(RULES) >= VIEWS | RESIZES


def test_every_sample_of_the_conformance_suite_is_taken_or_refused_with_a_sentence():
    ex, refused, taken = NvfuserExecutor(devices=["cpu"]), set(), 0
    for info in OPINFOS:
        if info.symbol.module != "prims":
            continue
        for dtype in info.dtypes:
            for sample, _ in zip(info.samples(dtype, devices.cpu), range(4)):
                for line in dovetail.make_trace(lambda *args, kwargs=sample.kwargs, op=info.symbol: (op(*args, **kwargs),))(*sample.args).lines:
                    answer = ex.verdict(line)
                    assert answer is True or (isinstance(answer, str) and len(answer) > 12 and answer == answer.strip())
                    taken += answer is True
                    refused |= {answer} - {True}

    assert taken > 1000 and len(refused) > 30


def test_the_declaration():
    row = NvfuserExecutor().declaration()

    assert row["devices"] == ["cuda"] and row["last_resort"] and row["grad"]
    assert row["dtypes"] == ["bool", "int32", "int64", "bfloat16", "float16", "float32", "float64"]
    assert set(DTYPES) > LOW and set(OPTIONS) == {*OPT_IN, "sdpa", "in_place", "least", "enable", "disable"}


class Proxy:
    def __init__(self, *shape, dtype=dtypes.bfloat16):
        self.spec = TensorSpec(shape, dtype)


Q, K = Proxy(2, 4, 8, 64), Proxy(2, 4, 6, 64)


@pytest.mark.parametrize(
    ("message", "args", "kwargs"),
    [
        ("without a mask", (Q, Q, Q, Proxy(8, 8)), {}),
        ("without dropout", (Q, Q, Q, None, 0.1), {}),
        ("as many heads each", (Q, Proxy(2, 2, 8, 64), Proxy(2, 2, 8, 64)), {}),
        ("[batch, heads, length, width]", (Proxy(8, 64),) * 3, {}),
        ("multiple of 8", (Proxy(2, 4, 8, 12),) * 3, {}),
        ("as many queries as keys", (Q, K, K, None, 0.0, True), {}),
        ("a scale that is known", (Q, Q, Q), {"scale": Proxy()}),
    ],
)
def test_attention_that_flash_attention_does_not_compute(message, args, kwargs):
    assert message in takes(*args, **kwargs)


def test_attention_that_it_does():
    assert takes(Q, Q, Q, is_causal=True) is True and takes(Q, K, K, scale=0.5) is True

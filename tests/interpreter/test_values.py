"""What Python asks of a traced value is right, or an error that says which value, where, and what to do; it is never baked in."""

from __future__ import annotations

import collections
import json
import math
import operator

import pytest
import torch
import torch.nn.functional as F

import dovetail
from dovetail.errors import TracedValueError

X, TABLE = torch.arange(12.0).reshape(4, 3), {3: "three", (3, 1): "both"}
NAMES = {"torch": torch, "F": F, "math": math, "operator": operator, "collections": collections, "json": json, "TABLE": TABLE}

ASKED = [
    *("bool(n)", "complex(r)", "round(r)", "operator.index(n)", "n.item().bit_length()"),
    *("r.item().is_integer()", "hash(n.item())", "x * 2 if n > 2 else x", "x if n.item() == 3 else -x"),
    *("x if 1 < n.item() < 5 else -x", "x if not n else -x", "n and x", "n.is_nonzero()", "torch.zeros(n.item())"),
    *("torch.ones((2, n.item()))", "torch.empty(n.item())", "torch.eye(n.item())", "torch.Size([n.item()])"),
    *("torch.arange(n.item())", "torch.arange(0, r.item(), 0.5)"),
    *("x.reshape(n.item(), -1)", "x.expand(n.item(), 4, 3)", "x[n.item()]", "x[: n.item()]", "x.select(0, n.item())"),
    *("x.narrow(0, 0, n.item())", "x.split(n.item())", "x.chunk(n.item())", "x.topk(n.item())", "torch.topk(x, n.item())"),
    *("x.unfold(0, n.item(), 1)", "x.sum(n.item() - 3)", "x.softmax(n.item() - 2)", "torch.cat([x, x], n.item() - 3)"),
    *("x.roll(n.item())", "torch.tile(x, (n.item(),))", "x.repeat_interleave(n.item())", "F.pad(x, (n.item(), 0))"),
    *("F.one_hot(torch.tensor([0, 1]), n.item())", "F.max_pool1d(x[None], n.item())", "F.layer_norm(x, (n.item(),))"),
    *("F.dropout(x, r.item() - 2)", "F.conv1d(x[None], x[None], stride=n.item())", "[x][n - 3]", "[x, x, x, x][n.item()]"),
    *("[x, x][: n.item()]", "[x] * n.item()", "list(range(n))", "list(range(n.item()))", "'a' * n.item()", "1 << n.item()"),
    *("str(x)[0]", "'[' in f'{x}'", "[str(n)][n]", "int(f'{n}')"),
    *("TABLE[n.item()]", "TABLE.get(n.item())", "{3: x}.get(n.item())"),
    *("{3: x}[n.item()]", "n.item() in TABLE", "{n.item(): x}", "{n.item()}", "{(3, n.item()): x}", "set([n.item()])"),
    *("frozenset((n.item(),))", "dict([(n.item(), x)])", "dict.fromkeys([n.item()])", "collections.Counter([n.item()])"),
    *("TABLE.get((n.item(), 1))", "{3: 1}.setdefault(n.item(), 2)", "{1, 3} - {n.item()}", "n.item() in [3]"),
    *("max(n.item(), 2.5)", "min(r.item(), 1)", "sorted([n.item(), 2])"),
    *("[v for v in [1, 2] if v < n.item()]", "math.sqrt(r.item())", "math.floor(r)", "math.isclose(r.item(), 2.5)"),
    *("hex(n.item())", "chr(n.item())", "json.dumps([r.item()])"),
    *("x * 0.5 ** n.item()", "all((x > 0).flatten())", "any(x[0] > 0)", "max(x[0])", "3.0 in x"),
]
RIGHT = [
    *("len(str(x))", "len(f'{n}{r}')", "x * n.item()", "x ** r.item()", "torch.pow(x, r.item())", "x > r.item()", "torch.where(x > 2, r.item(), x)"),
    *("torch.full((2,), r.item())", "torch.full_like(x, n.item())", "x.masked_fill(x > 1, r.item())"),
    *("x.clone().fill_(r.item())", "F.leaky_relu(x, r.item())", "torch.tensor(n.item())", "(n.item(), {'r': r.item()})"),
    *("dict([('n', n.item())])", "[v.item() for v in x[0]]", "x[x[:, 0].argmax()]", "(lambda k=n.item(): x * k)()"),
    *("int(n)", "float(r)", "float(n.item())", "sum([n.item(), 1])", "2 - n.item()", "n.item() // 2 % 3", "round(r.item(), 1)"),
    *("x * (n.item() + 1)", "x * -n.item()", "x * abs(r.item())", "n.item() / 4 + r.item() * 2 - 1"),
    *(
        "divmod(n.item(), 2)",
        "max(n.item(), 2)",
        "min(r.item(), 1.0, -r.item())",
        "x / x.norm().item()",
        "x if isinstance(n.item(), int) else -x",
        "F.pad(x, (1, 0), value=r.item())",
    ),
]
WRITTEN = [
    *(
        "f'{n}'",
        "f'{r:.2f}'",
        "f'{n.item()!r:}'",
        "'{:.1f}'.format(r.item())",
        "str(r.item())",
        "str([n.item()])",
        "'%d' % n.item()",
        "'|'.join(['a', f'{n}'])",
        "json.dumps([n.item()])",
    ),
    *("f'{[x]}'", "str(n)", "repr(x)", "repr({'a': x})", "'%s' % ([x],)", "f'{x}{n!r}' + str((n, [r]))"),
    *("[f'{r:.1f}' + '!', {'n': f'{n:03}'}]", "isinstance(f'{n}', str)", "format(r, '.3f')", "f'{n.item() * 2}' + f'{r}'"),
]
SAID = r"the value of \w+: .* is needed at .*:\d+; .* choose with torch.where, or compute the value outside"


def function(program):
    names = dict(NAMES)
    exec(f"def f(x, n, r):\n    return {program}", names)
    return names["f"]


@pytest.mark.parametrize("program", ASKED)
def test_a_value_that_is_asked_for_is_an_error(program):
    compiled = dovetail.jit(function(program), interpretation="bytecode", decisions="error")
    with pytest.raises(TracedValueError, match=SAID):
        compiled(X, torch.tensor(3), torch.tensor(2.5))
    assert compiled.cache_info() == (0, 0, 0)


@pytest.mark.parametrize("program", RIGHT)
def test_a_number_that_the_program_computes_is_another_at_each_call(program):
    f = function(program)
    compiled = dovetail.jit(f, interpretation="bytecode")
    for i in range(3):
        given = X + i, torch.tensor(3 + i), torch.tensor(2.5 - i)
        found, wanted = compiled(*given), f(*given)
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)
        assert type(found) is type(wanted)
    assert compiled.cache_info().programs == 1


@pytest.mark.parametrize("program", WRITTEN)
def test_a_number_is_written_out_anew_at_each_call(program):
    f = function(program)
    compiled = dovetail.jit(f, interpretation="bytecode")
    for i in range(2):
        given = X, torch.tensor(3 + i), torch.tensor(2.5 - i)
        assert compiled(*given) == f(*given)
    assert compiled.cache_info().programs == 1


@pytest.mark.parametrize(
    "program", ["f'{n}'[0]", "f'{r:.2f}' == '2.50'", "{f'{n}': x}", "str(ValueError(f'{n}'))", "f'{n}'.zfill(3)", "'%s' % f'{n}'"]
)
def test_text_that_is_read_is_an_error(program):
    with pytest.raises(TracedValueError, match=SAID):
        dovetail.jit(function(program), interpretation="bytecode", decisions="error")(X, torch.tensor(3), torch.tensor(2.5))


def test_an_error_of_arithmetic_is_not_delayed():
    compiled = dovetail.jit(lambda n: 1 / n.item(), interpretation="bytecode", decisions="error")
    with pytest.raises(TracedValueError, match=SAID):  # it would be raised behind what the program does before it
        compiled(torch.tensor(0))


@pytest.mark.parametrize("kind", [int, float, complex])
@pytest.mark.parametrize("size", [0, 2])
def test_several_elements_are_no_number(kind, size):
    with pytest.raises(ValueError, match="only one element tensors can be converted to Python scalars"):
        dovetail.jit(lambda x: kind(x))(torch.ones(size))

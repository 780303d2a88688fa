"""What a program prints and warns of is as in eager mode, also where it reads that itself."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import io
import logging
import sys
import traceback
import types
import warnings

import pytest
import torch

import dovetail


class Counter:
    """A file that counts characters."""

    def __init__(self):
        self.count = 0

    def write(self, text):
        self.count += len(text)


OUTSIDE = Counter()


def into_text(x):
    file = io.StringIO()
    print("shape", x.shape, [1, 2.5], sep="|", end="!", file=file)
    print(file=file)
    return x + len(file.getvalue())


def into_an_object(x):
    file = Counter()
    print("abc", 1, file=file)
    return x + file.count


def into_an_object_outside(x):
    before = OUTSIDE.count
    print("abc", 1, file=OUTSIDE)
    return x + OUTSIDE.count - before


def recorded(x):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        warnings.warn("one", stacklevel=1)
    return x + len(seen)


def handled(x):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            warnings.warn("one", stacklevel=1)
        except UserWarning:
            return x + 1
    return x


def shown(x):
    seen, before = [], warnings.showwarning
    warnings.showwarning = lambda *args, **kwargs: seen.append(args)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("one", stacklevel=1)
    finally:
        warnings.showwarning = before
    return x + len(seen)


def ignored(x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.warn("one", stacklevel=1)
    return x + 1


def redirected(x):
    with contextlib.redirect_stdout(io.StringIO()) as file:
        print("abc")
        sys.stdout.write("de")
    return x + len(file.getvalue())


@pytest.mark.filterwarnings("ignore:.*eager mode")
@pytest.mark.parametrize("program", [into_text, into_an_object, into_an_object_outside, recorded, handled, shown, ignored, redirected])
def test_what_a_program_reads_of_its_own_output(program):
    compiled = dovetail.jit(program)
    for _ in range(3):
        torch.testing.assert_close(compiled(torch.ones(2)), program(torch.ones(2)))


def lists(x):
    items, names, nested = [1], {"a": 1}, [[x.sum()]]
    print(items, names, nested)
    items.append(2)
    names["b"] = 2
    nested[0].append(3)
    print(items, names, nested)
    return x + 1


class Log:
    def __init__(self):
        self.rows = []

    def __repr__(self):
        return f"Log({self.rows})"


def objects(x):
    log = Log()
    log.rows.append(x.shape[0])
    print(log, [log])
    log.rows.append(2)
    print(log)
    return x + 1


def written(x):
    view = x[:1]
    print(x, view, [x])
    x.add_(1)
    print(f"{x}|{view!r}|{[x, 1]}")
    x.mul_(2)
    return x + 1


@dataclasses.dataclass
class Pair:
    first: object
    second: object


class Total(Pair):
    def __str__(self):
        return f"{self.first.sum().item()} of {self.second}"


Point = collections.namedtuple("Point", "a b")
CHANGED = {
    "an ordered dict": (lambda x: collections.OrderedDict(a=x), lambda d, x: d.update(b=x + 1)),
    "a defaultdict": (lambda x: collections.defaultdict(list, {"a": [x]}), lambda d, x: d["b"].append(x)),
    "a deque": (lambda x: collections.deque([x], maxlen=2), lambda d, x: d.extend([1, 2])),
    "values of a dict": (lambda x: [d := {"a": x}, d.values(), d.items()], lambda d, x: d[0].update(b=1)),
    "a tuple with names": (lambda x: Point(x, [x]), lambda p, x: p.b.append(2)),
    "a tensor in a tuple": (lambda x: Point(x, 1), lambda p, x: x.add_(1)),
    "a list of its own class": (lambda x: Rows([x]), lambda rows, x: rows.append(1)),
    "a dict of its own class": (lambda x: Table(a=x), lambda table, x: table.clear()),
    "an object": (lambda x: Pair(x, 1), lambda pair, x: setattr(pair, "second", 2)),
    "an object with text of its own": (lambda x: Total(x, 1), lambda pair, x: setattr(pair, "first", x - 1)),
    "an object in a dict": (lambda x: {"a": Pair(1, x)}, lambda d, x: setattr(d["a"], "first", x)),
    "a namespace": (lambda x: types.SimpleNamespace(a=x), lambda space, x: setattr(space, "a", 2)),
    "an error": (lambda x: ValueError(x), lambda error, x: setattr(error, "args", (1,))),
}


def printed_twice(name):
    create, change = CHANGED[name]

    def program(x):
        y = x * 2
        value = create(y)
        print(value)
        print([value], 1)
        change(value, y)
        print(value)
        return x + 1

    return program


@pytest.mark.filterwarnings("ignore:.*it prints a SimpleNamespace")
@pytest.mark.parametrize("program", [lists, objects, written, *map(printed_twice, CHANGED)], ids=["lists", "objects", "written", *CHANGED])
def test_what_is_printed_is_as_it_was(program, capsys):
    compiled = dovetail.jit(program)
    for number in range(3):
        program(torch.tensor([number, 2.5]))
        expected = capsys.readouterr().out
        compiled(torch.tensor([number, 2.5]))
        assert capsys.readouterr().out == expected


def to_streams(x):
    print("before")
    count = sys.stdout.write(f"mean {x.mean().item():.3f}\n")
    sys.stderr.writelines(["a\n", f"{x.sum().item()}\n"])
    write = sys.stdout.write
    write("after\n")
    sys.stdout.flush()
    return x + count


def test_what_is_written_to_the_standard_streams_is_as_in_eager_mode(capsys):
    compiled = dovetail.jit(to_streams, decisions="error")
    for value in (1.0, 20.0, 300.0):  # one program, though the length of the text differs
        x = torch.full((2,), value)
        expected, shown = to_streams(x), capsys.readouterr()
        torch.testing.assert_close(compiled(x), expected)
        assert capsys.readouterr() == shown


class Terminal(io.StringIO):
    is_one = False

    def isatty(self):
        return self.is_one


def test_whether_a_stream_is_a_terminal_is_guarded(monkeypatch):
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    compiled = dovetail.jit(lambda x: x + 1 if sys.stdout.isatty() else x)
    for terminal.is_one in (False, True, False):
        assert compiled(torch.zeros(())) == terminal.is_one


def test_a_stream_is_written_text_alone():
    with pytest.raises(TypeError, match="must be str, not int"):
        dovetail.jit(lambda x: sys.stdout.write(x.shape[0]))(torch.ones(2))


def test_the_length_of_text_with_numbers_is_a_number_of_the_program():
    def program(x):
        text = f"{x.sum().item():.1f}!"
        return x * len(text), len(text), "-" * len(text)

    compiled = dovetail.jit(program)
    for value in (1.0, 20.0):
        (tensor, *rest), (expected, *others) = compiled(torch.full((2,), value)), program(torch.full((2,), value))
        torch.testing.assert_close(tensor, expected)
        assert rest == others


def texts(x):
    doubled = x * 2
    return f"{x}|{x.sum()}|{x!r}|{x.sum()!s}|{[x, (doubled,)]}", str(doubled), repr(x > 1), "{} {!r}".format(x, 1), "%s" % doubled, x + 1  # noqa: UP031, UP032


def test_tensors_are_written_out():
    compiled = dovetail.jit(texts)
    for number in range(3):
        x = torch.tensor([[number, 2.5]])
        assert compiled(x)[:-1] == texts(x)[:-1]
    assert compiled.cache_info().misses == 1


@pytest.mark.parametrize("program", [lambda x: f"{x}" + x, lambda x: x + str(x), lambda x: torch.full((2,), str(x))])
def test_text_is_no_number(program):
    with pytest.raises(TypeError):
        dovetail.jit(program)(torch.ones(2))


def test_an_error_has_the_values_of_a_tensor():
    def program(x):
        if x.sum() < 0:
            raise ValueError(f"negative: {x}")
        return x + 1

    compiled = dovetail.jit(program)
    for sign in (1.0, -1.0, -2.0, 1.0):
        x = torch.full((2,), sign)
        if sign > 0:
            torch.testing.assert_close(compiled(x), x + 1)
        else:
            with pytest.raises(ValueError, match=f"negative: tensor\\(\\[{sign:.0f}., {sign:.0f}.\\]\\)"):
                compiled(x)


def test_the_text_of_a_tensor_that_requires_a_gradient_is_refused():
    with pytest.raises(dovetail.errors.TracedValueError, match=r"write out x\.detach\(\)"):
        dovetail.jit(lambda x: f"{x}")(torch.ones(2, requires_grad=True))
    x = torch.ones(2, requires_grad=True)
    assert dovetail.jit(lambda x: f"{x.detach()}")(x) == "tensor([1., 1.])"


def logged(x):
    items = [1]
    logging.getLogger("tests.printing").warning("%s %s %d", x, items, x.shape[0])
    items.append(2)
    x.add_(1)
    logging.getLogger("tests.printing").warning(f"{x} {items}")
    return x * 2


def test_what_is_logged_is_as_it_was():
    written, logger = io.StringIO(), logging.getLogger("tests.printing")
    handler = logging.StreamHandler(written)
    logger.addHandler(handler)
    try:
        compiled = dovetail.jit(logged)
        for number in range(2):
            texts = []
            for run in (logged, compiled):
                written.seek(0)
                written.truncate()
                run(torch.tensor([number, 2.5]))
                texts.append(written.getvalue())
            assert texts[1] == texts[0]
    finally:
        logger.removeHandler(handler)


class Records(logging.Handler):
    def __init__(self):
        super().__init__()
        self.texts = []

    def emit(self, record):
        self.texts.append(record.getMessage())


COUNTED = []


class Counting(logging.Handler):
    def emit(self, record):
        COUNTED.append(record.msg)


def reads_its_handler(logger, handler):
    logger.addHandler(handler)
    return lambda: list(handler.texts)


def reads_a_filter(logger, handler):
    calls = []
    logger.addFilter(lambda record: calls.append(record.msg) or True)
    return lambda: len(calls)


def reads_a_global(logger, handler):
    logger.addHandler(Counting())
    start = len(COUNTED)
    return lambda: len(COUNTED) - start


@pytest.mark.parametrize("reader", [reads_its_handler, reads_a_filter, reads_a_global])
@pytest.mark.parametrize("above", [False, True])
def test_a_program_that_reads_what_a_handler_keeps_runs_in_eager_mode(reader, above):
    names = ("tests", "tests.kept") if above and reader is not reads_a_filter else ("tests.kept", "tests.kept")
    logger, owner = logging.getLogger("tests.kept"), logging.getLogger(names[0])
    before = owner.handlers[:], owner.filters[:]
    try:
        read = reader(owner, Records())

        def step(x):
            logger.warning("sum %.1f", x.sum().item())
            return read(), x * 2

        compiled = dovetail.jit(step)
        with pytest.warns(UserWarning, match="it logs or warns, and reads what then may change"):
            (first, _), (second, _) = compiled(torch.ones(2)), compiled(torch.ones(2))
        assert (first, second) in [(1, 2), (["sum 2.0"], ["sum 2.0", "sum 2.0"])]
    finally:
        owner.handlers[:], owner.filters[:] = before


@pytest.mark.parametrize("function", [False, True])
def test_a_program_that_reads_the_warnings_of_its_caller_runs_in_eager_mode(function, monkeypatch):
    with warnings.catch_warnings(record=True) as kept:
        warnings.simplefilter("always")
        texts = []
        if function:
            monkeypatch.setattr(warnings, "showwarning", lambda message, *rest: texts.append(message))
        read = texts if function else kept

        def step(x):
            start = len(read)
            warnings.warn("small", stacklevel=1)
            return len(read) - start, x * 2

        compiled = dovetail.jit(step)
        assert [compiled(torch.ones(2))[0] for _ in range(3)] == [1, 1, 1]


def test_a_program_that_logs_to_a_handler_of_its_own_is_compiled():
    logger, handler = logging.getLogger("tests.own"), Records()
    logger.addHandler(handler)
    try:

        @dovetail.jit
        def step(x):
            logger.warning("sum %.1f", x.sum().item())
            return x * 2

        for number in range(3):
            step(torch.full((2,), float(number)))
        assert handler.texts == ["sum 0.0", "sum 2.0", "sum 4.0"]
        assert dovetail.cache_misses(step) == ["the first call"]
    finally:
        logger.removeHandler(handler)


class Told(Exception):
    def __str__(self):
        return f"told {self.args[0]}"


class Kept(Exception):
    def __init__(self, number):
        super().__init__(number)
        self.number = number


TEXTS = {
    "str": lambda x, n: str(ValueError(n)),
    "repr": lambda x, n: repr(ValueError("loss", n)),
    "an f-string": lambda x, n: f"{ValueError(n)} {ValueError(n)!r} {Kept(n)}",
    "a percent sign": lambda x, n: "%s %r" % (ValueError(n), ValueError(n)),  # noqa: UP031
    "format": lambda x, n: "{} {}".format(ValueError(n), KeyError(n)),  # noqa: UP032
    "several": lambda x, n: str(ValueError("a", n, x)),
    "a key": lambda x, n: str(KeyError(n)) + str(KeyError(n, 1)) + str(KeyError(f"k{n}")),
    "a tensor": lambda x, n: str(ValueError(x)) + repr(Kept(x)),
    "text": lambda x, n: str(ValueError(f"loss {n:.2f}")),
    "a method": lambda x, n: f"{Told(n)}" + str(Told(n)),
    "inside": lambda x, n: str([ValueError(n), {"e": Kept(n)}]),
    "another": lambda x, n: str(ValueError(KeyError(n))),
    "joined": lambda x, n: ", ".join(map(str, [ValueError(n), n])),
    "a traceback": lambda x, n: "".join(traceback.format_exception_only(Kept(n))),
    "logged": lambda x, n: logging.Formatter().format(logging.LogRecord("a", 1, "b", 1, "%s", (ValueError(n),), None)),
}


def caught(x, n):
    try:
        raise ValueError("bad", n)
    except ValueError as error:
        return str(error), error.args, f"{error}"


@pytest.mark.parametrize("program", [*TEXTS.values(), caught], ids=[*TEXTS, "caught"])
@pytest.mark.parametrize("read", [lambda x: x.sum().item(), lambda x: int(x.sum()), lambda x: x.shape[0]], ids=["item", "int", "size"])
def test_exceptions_are_written_out_with_their_values(program, read):
    def f(x):
        return program(x, read(x))

    fn = dovetail.jit(f)
    for x in (torch.ones(2), torch.ones(3), torch.full((4,), 2.5)):
        assert fn(x) == f(x)


class Row(tuple):
    pass


class Rows(list):
    pass


class Table(dict):
    pass


HOLDING = {
    "results": lambda x: torch.max(x, 0),
    "results of several dimensions": lambda x: torch.sort(x.reshape(1, -1)),
    "results in a list": lambda x: [torch.topk(x, 1), 1],
    "a tuple": lambda x: Row((x,)),
    "a list": lambda x: Rows([x, Row((x.sum().item(), 2))]),
    "a dict": lambda x: Table(a=x, b=Rows()),
    "an ordered dict": lambda x: collections.OrderedDict(a=x, b=[x.sum().item()]),
    "a defaultdict": lambda x: collections.defaultdict(list, {1: [x]}),
    "a deque": lambda x: collections.deque([0, x, collections.deque([x])], maxlen=2),
    "values of a dict": lambda x: {"a": x}.values(),
    "items of a dict": lambda x: [{"a": x}.items()],
}


@pytest.mark.parametrize("write", [str, repr, "{}".format, lambda value: f"{value}|{value!r}", lambda value: "%s %r" % (value, [value])])  # noqa: UP031
@pytest.mark.parametrize("name", HOLDING)
def test_what_holds_tensors_is_written_out_with_their_values(name, write):
    def f(x):
        return write(HOLDING[name](x))

    fn = dovetail.jit(f)
    for x in (torch.ones(2), torch.arange(2.0), torch.arange(3.0)):
        assert fn(x) == f(x)
    with pytest.raises(TypeError, match="its text names the operation"):
        dovetail.jit(lambda x: str(HOLDING[name](x)))(torch.ones(2, requires_grad=True))

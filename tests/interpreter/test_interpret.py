"""`interpret(fn)(*args)` is `fn(*args)`: values, errors, tracebacks, frames, and what the process is left like."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import dis
import enum
import functools
import gc
import inspect
import itertools
import sys
import threading
import traceback
import types
import warnings
import weakref
from functools import partial

import forked
import pytest

from dovetail.errors import Unsupported
from dovetail.frontend.interpreter import World, interpret
from dovetail.frontend.interpreter.frame import decode
from dovetail.frontend.interpreter.tracebacks import _failing

WITHOUT_CODE = {"RESERVED", "INTERPRETER_EXIT", "ENTER_EXECUTOR", "EXIT_INIT_CHECK"}  # CPython's own, never in a code object


def outcome(fn, *args):
    try:
        return fn(*args)
    except Exception as error:
        return type(error), str(error), type(error.__context__), type(error.__cause__)


def functions(a, b=2, *c, d=4, **e):
    n = 0

    def add(z):
        nonlocal n
        n += z
        return lambda: n + a

    return add(1)(), [x * y for x in c for y in c if x != y], {**e, "d": d}, f"{a!r:>4}{b:.2f}", [*c, *e]


def classes():
    class Meta(type):
        def __prepare__(name, bases, **kwargs):
            return {"prepared": (name, *kwargs)}

        def __new__(cls, name, bases, namespace, **kwargs):
            return super().__new__(cls, name, bases, namespace)

        def __init__(cls, name, bases, namespace, **kwargs):
            super().__init__(name, bases, namespace)

    class A(metaclass=Meta, flag=1):
        def __init__(self, v):
            self.v = v

        @property
        def double(self):
            return self.v * 2

        @classmethod
        def make(cls):
            return cls(5)

        def __init_subclass__(cls, **kwargs):
            cls.message = sorted(kwargs)

    class B(A, extra=2):
        def __init__(self, v):
            super().__init__(v + 1)

    made = B.make()
    return made.v, made.double, B.message, B.prepared, B.__qualname__, B.__module__ == __name__, [k.__name__ for k in B.__mro__]


def class_methods_that_make():
    class A:
        @classmethod
        def __new__(*args):
            return args

    class B:
        @classmethod
        def __init__(*args):
            args[0].seen = args

    B(3)
    return len(A(1, 2)), A(1)[0] is A, B.seen[0] is B, B.seen[1:]


def generators():
    message = []

    def inner():
        try:
            message.append((yield 1))
            yield 2
        except KeyError as error:
            message.append(("inner", error.args, type(error.__context__)))
            yield 3
        finally:
            message.append("closed")
        return "result"

    def outer():
        message.append((yield from inner()))

    g = outer()
    message.append([next(g), g.send("sent"), g.throw(KeyError("thrown")), list(g)])
    early = inner()
    next(early)
    early.close()
    return message, sum(i for i in range(5)), list(itertools.takewhile(lambda v: v < 3, (v for v in range(9))))


def exceptions():
    message = []
    try:
        try:
            {}["a"]
        except KeyError:
            1 / 0  # noqa: B018
    except ZeroDivisionError as error:
        message.append((type(error.__context__), sys.exc_info()[0]))
    for value in (1, "x"):
        try:
            int(value) / (value == 1)
        except (ValueError, TypeError) as error:
            message.append(str(error))
        else:
            message.append("else")
        finally:
            message.append(sys.exc_info())
    try:
        raise ExceptionGroup("group", [ValueError(1), TypeError(2), KeyError(3)])
    except* ValueError as group:
        message.append(group.exceptions)
    except* (TypeError, KeyError) as group:
        message.append(len(group.exceptions))
    return repr(message)


def raising_from():
    try:
        raise ValueError("first")
    except ValueError as error:
        raise RuntimeError("second") from error


def managers():
    message = []

    @contextlib.contextmanager
    def manager(name):
        message.append("in " + name)
        try:
            yield name
        except KeyError:
            message.append("swallowed")
        finally:
            message.append("out " + name)

    with manager("a") as a, manager("b") as b:
        message.append(a + b)
        raise KeyError
    return message


def matching(value):
    match value:
        case {"k": [first, *rest], **others}:
            return "mapping", first, rest, others
        case [1, (2 | 3) as second]:
            return "sequence", second
        case complex(real=r, imag=i) if r > i:
            return "class", r, i
        case str():
            return "str"
        case None:
            return "none"
    return "nothing"


def libraries():
    @dataclasses.dataclass(order=True)
    class Point:
        x: int
        y: int = dataclasses.field(default=2)

    class Color(enum.Enum):
        RED = 1
        BLUE = 2

    @functools.lru_cache
    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    @functools.singledispatch
    def kind(v):
        return "object"

    @kind.register
    def _(v: int):
        return "int"

    return Point(1) < Point(2), repr(Point(3)), Color(2).name, [c.value for c in Color], fib(20), kind(1), kind(""), functools.reduce(max, [3, 9, 4])


def scopes():
    x = 3
    exec("made = x + 1")
    return eval("x * 2"), sorted(locals()), [eval("y", {"y": i}) for i in range(2)], "x" in vars(), globals() is sys.modules[__name__].__dict__


@pytest.mark.parametrize(
    "fn, args",
    [
        (functions, (1, 2, 3, 4)),
        (functions, ()),
        (classes, ()),
        (class_methods_that_make, ()),
        (generators, ()),
        (exceptions, ()),
        (raising_from, ()),
        (managers, ()),
        (libraries, ()),
        (scopes, ()),
        *[(matching, (v,)) for v in ({"k": [1, 2, 3], "z": 4}, [1, 3], 3 + 2j, "s", None, 2.5)],
    ],
)
def test_it_does_what_cpython_does(fn, args):
    assert outcome(interpret(fn), *args) == outcome(fn, *args)


def test_coroutines_and_async_generators_run_in_a_loop_of_asyncio():
    async def numbers(n):
        for i in range(n):
            await asyncio.sleep(0)
            yield i

    async def main():
        async with contextlib.aclosing(numbers(9)) as some:
            first = [await anext(some), await anext(some)]
        return first, [i async for i in numbers(3)], await asyncio.gather(asyncio.sleep(0, 1), asyncio.sleep(0, 2))

    assert asyncio.run(interpret(main)()) == asyncio.run(main())


def test_every_opcode_of_this_python_has_a_handler():
    codes = {name for name, number in dis.opmap.items() if number < 256 and not name.startswith("INSTRUMENTED")} - WITHOUT_CODE
    missing = sorted(name for name in codes if not hasattr(World.opcodes, name))
    assert not missing, f"no handler for {', '.join(missing)}"


def test_a_python_that_it_does_not_know_is_refused(monkeypatch):
    monkeypatch.setattr(World, "opcodes", None)
    version = ".".join(map(str, sys.version_info[:2]))
    with pytest.raises(Unsupported, match=f"supports Python 3.11 to 3.14, and this is Python {version}: use one of those, or trace with"):
        interpret(scopes)()


def test_slots_are_laid_out_as_cpython_lays_them_out():
    codes = [classes.__code__, generators.__code__, *(f.__code__ for f in vars(inspect).values() if isinstance(f, types.FunctionType))]
    nested = [c for code in codes for c in code.co_consts if isinstance(c, types.CodeType)]
    for code in codes + nested:
        names = decode(code, World.opcodes).slot_names
        assert [code._varname_from_oparg(i) for i in range(len(names))] == list(names)


def test_a_traceback_shows_the_users_lines_and_no_other():
    def bad(v):
        def inner():
            return (
                v / 0
            )  # fmt: skip

        return list(map(lambda _: inner(), [1]))  # noqa: C417 - calls it from C

    def lines(fn):
        with pytest.raises(ZeroDivisionError) as caught:
            fn(1)
        entries = traceback.extract_tb(caught.value.__traceback__)[1:]
        return [(e.filename, e.name, e.lineno, e.line, e.colno, e.end_colno) for e in entries]

    found = [line for line in lines(interpret(bad)) if line[1] != "interpreted"]
    assert found == lines(bad)
    assert len(found) == 3


def test_the_frame_of_a_traceback_knows_the_variables():
    def bad(secret):
        other = secret * 2
        raise ValueError(other)

    with pytest.raises(ValueError) as caught:
        interpret(bad)(4)
    last = list(traceback.walk_tb(caught.value.__traceback__))[-1][0]
    assert dict(last.f_locals) == {"secret": 4, "other": 8}
    assert last.f_globals is globals()
    assert last.f_lineno == bad.__code__.co_firstlineno + 2


def test_code_made_for_a_traceback_is_as_long_as_the_users():
    # CPython's tracing writes an array of the code's length from the line table: a shorter code lets it write past the end
    code, names = generators.__code__, decode(generators.__code__, World.opcodes).slot_names
    for offset in (0, 2, 20, len(code.co_code) - 2):
        assert len(_failing(code, names, offset).co_code) >= len(code.co_code)


def test_tracing_and_profiling_while_errors_are_raised_does_no_harm():
    events = []
    sys.setprofile(lambda frame, event, arg: events.append(event))
    sys.settrace(lambda frame, event, arg: lambda *_: None)
    try:
        got = outcome(interpret(managers))
    finally:
        sys.settrace(None)
        sys.setprofile(None)
    assert got == outcome(managers)
    assert events


def test_programs_see_their_own_frames():
    def who():
        frame = sys._getframe(1)
        return frame.f_code.co_name, frame.f_lineno - caller.__code__.co_firstlineno, [f.function for f in inspect.stack()[:2]], frame.f_locals["x"]

    def caller():
        x = 3

        return who(), x

    assert interpret(caller)() == caller() == (("caller", 3, ["who", "caller"], 3), 3)


def test_a_warning_names_the_line_of_the_caller():
    def helper():
        warnings.warn("careful", stacklevel=2)

    def caller():
        helper()

    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        interpret(caller)()
    assert [(w.filename, w.lineno) for w in found] == [(__file__, caller.__code__.co_firstlineno + 1)]


def test_generators_say_what_they_wait_for():
    def inner():
        yield 1

    def outer():
        yield from g

    g = interpret(inner)()
    o = interpret(outer)()
    next(o)
    assert interpret(lambda: (o.gi_yieldfrom is g, o.gi_code.co_name, o.gi_frame.f_lineno))() == (True, "outer", outer.__code__.co_firstlineno + 1)
    assert inspect.getgeneratorstate(o) == "GEN_SUSPENDED"
    assert (o.__name__, o.__qualname__) == ("outer", outer.__qualname__)


ENDLESS = """
import sys
from dovetail.frontend.interpreter import interpret

def deep(n):
    reached.append(n)
    return deep(n + 1)

reached, before = [], sys.getrecursionlimit()
try:
    interpret(deep)(0)
except RecursionError:
    print(before - len(reached), sys.getrecursionlimit() - before)
"""


def test_endless_recursion_is_a_recursion_error_at_the_users_limit():
    """In a process without Dynamo, whose hook makes every frame one of C, of which versions before 3.14 allow a fixed number."""
    done = forked.run(["-c", ENDLESS])
    missing, changed = map(int, done.stdout.split())
    assert 0 <= missing <= 20, done.stderr
    assert changed == 0


def test_the_recursion_limit_comes_back_when_several_threads_interpret():
    before, barrier = sys.getrecursionlimit(), threading.Barrier(4)

    def work(n):
        barrier.wait()
        return sum(i * i for i in range(n))

    results = {}
    threads = [threading.Thread(target=lambda n=n: results.update({n: interpret(work)(n)})) for n in (10, 100, 1000, 5000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {n: sum(i * i for i in range(n)) for n in (10, 100, 1000, 5000)}
    assert sys.getrecursionlimit() == before


def test_decoded_code_does_not_keep_code_alive():
    namespace = {}
    exec("def made(): return 3", namespace)
    made = namespace.pop("made")
    code = weakref.ref(made.__code__)
    assert interpret(made)() == 3
    del made, namespace
    gc.collect()
    assert code() is None


def test_an_error_does_not_keep_its_frames_alive():
    class Held:
        pass

    def bad():
        held = Held()
        refs.append(weakref.ref(held))
        raise ValueError(held)

    def catches():
        with contextlib.suppress(ValueError):
            bad()

    refs = []
    gc.disable()
    try:
        interpret(catches)()
        assert refs[0]() is None  # without the help of the collector
    finally:
        gc.enable()


def test_a_world_sees_what_a_program_reads_and_calls():
    class Watching(World):
        def __init__(self):
            super().__init__()
            self.seen = []

        def load_attr(self, owner, name):
            self.seen.append(("attribute", name))
            return super().load_attr(owner, name)

        def get_item(self, owner, key):
            self.seen.append(("item", key))
            return super().get_item(owner, key)

        def load_global(self, frame, name):
            self.seen.append(("global", name))
            return super().load_global(frame, name)

    class Box:
        def __init__(self):
            self.items = {"k": 3}

        def get(self):
            return self.items["k"] + len(WITHOUT_CODE)

    world = Watching()
    box = Box()
    assert interpret(lambda b: b.get(), world)(box) == 3 + len(WITHOUT_CODE)
    assert world.seen == [("attribute", "get"), ("attribute", "items"), ("item", "k"), ("global", "len"), ("global", "WITHOUT_CODE")]


def test_wrong_arguments_get_cpythons_own_words():
    def f(a, /, b, *, c=1):
        return a, b, c

    for call in (partial(f), partial(f, 1, 2, 3), partial(f, 1, a=2), partial(f, 1, b=2, d=3), partial(f, 1, 2, b=3)):
        assert outcome(interpret(call)) == outcome(call)

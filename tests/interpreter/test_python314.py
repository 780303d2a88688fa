"""What Python 3.14 brought, interpreted: template strings, deferred annotations, `with` by special methods, placeholders of functools.partial.

The programs are text, since earlier Pythons cannot parse them.
"""

from __future__ import annotations

import sys
import textwrap

import pytest

from dovetail.frontend.interpreter import interpret

if sys.version_info < (3, 14):
    pytest.skip("these programs are in the syntax of Python 3.14", allow_module_level=True)

PROGRAMS = {
    "template strings": """
        def run():
            width, value = 5, [1.5]
            template = t"a{value[0]!r:>{width}}b{value}" + t"{width}"
            parts = [(i.value, i.expression, i.conversion, i.format_spec) for i in template.interpolations]
            return template.strings, parts, template.values, repr(t""), f"{value[0]:{width}.2f}"
    """,
    "annotations are evaluated when they are read": """
        def run():
            read = []
            def named(name):
                read.append(name)
                return name
            def f(a: named("a"), *, b: named("b") = 3) -> named("return"): return b
            before = list(read)
            return before, f.__annotations__, f.__annotations__, read, f.__annotate__.__qualname__, f(1)
    """,
    "annotations see the scope of the function": """
        def run():
            kind = 3
            def f(a: kind): return kind
            kind = 4
            return f.__annotations__, f(0)
    """,
    "annotations of classes, some of them conditional": """
        def run():
            class A:
                x: int
                for i in range(3):
                    if i == 1:
                        y: missing_one
                    elif i > 3:
                        z: missing_two
            import annotationlib
            found = [annotationlib.get_annotations(A, format=f) for f in (annotationlib.Format.STRING, annotationlib.Format.FORWARDREF)]
            try:
                A.__annotations__
            except NameError as error:
                return str(error), str(found), A.__annotate__.__qualname__
    """,
    "type parameters": """
        def run():
            def f[T: int, *Ts, **P](x: T, *y: *Ts) -> list[T]: return x
            class A[T = bool]:
                x: T
            type Alias[T] = dict[T, A[T]]
            bound = f.__type_params__[0]
            default = A.__type_params__[0].__default__
            return f(1), str(f.__annotations__), bound.__bound__, default, str(A.__annotations__), str(Alias[int]), str(Alias.__value__)
    """,
    "the end of a with statement": """
        def run():
            seen = []
            class Manager:
                def __init__(self, swallows): self.swallows = swallows
                def __enter__(self): return seen.append("enter") or self
                def __exit__(self, kind, error, traceback): return seen.append((kind, str(error))) or self.swallows
            with Manager(False), Manager(True) as inner:
                raise KeyError(inner.swallows)
            try:
                with Manager(False):
                    1 / 0
            except ZeroDivisionError as error:
                return seen, str(error), error.__context__
    """,
    "what is no manager": """
        class Other:
            async def __aenter__(self): pass
            async def __aexit__(self, *error): pass
        class Half:
            def __enter__(self): pass
        def run():
            message = []
            for value in (3, Other(), Half()):
                try:
                    with value: pass
                except TypeError as error:
                    message.append(str(error))
            return message
    """,
    "unpacking": """
        def run():
            message = []
            for values in ([1, 2, 3], (1,), {1: 1, 2: 2, 3: 3}, iter([1, 2, 3]), 5):
                try:
                    a, b = values
                except (TypeError, ValueError) as error:
                    message.append(str(error))
            return message
    """,
    "calls": """
        def run():
            def f(*args, **kwargs): return args, kwargs
            args, kwargs = [1, 2], {"a": 3}
            return f(*args), f(*args, **kwargs), f(0, *args, b=4, **kwargs), f(a=1, b=2), max(*args), max(args, default=3)
    """,
    "any, all and tuple over a generator": """
        def run():
            ns = [0, 1, 2]
            return any(n > 1 for n in ns), all(n > 1 for n in ns), tuple(n * 2 for n in ns), [n for n in ns if n], sum(ns[1:]), ns[-1]
    """,
    "a partial with placeholders": """
        import functools
        def run():
            f = functools.partial(lambda *args, **kwargs: (args, kwargs), functools.Placeholder, 2, functools.Placeholder, 4, a=1)
            try:
                f(1)
            except TypeError as error:
                return f(1, 3), f(1, 3, 5, b=2), str(error)
    """,
    "the variables of a frame are written": """
        import sys
        def run():
            x, cell = 1, 2
            names = sys._getframe().f_locals
            names["x"], names["cell"], names["other"] = 3, 4, 5
            return x, (lambda: cell)(), "other" in sys._getframe().f_locals, sorted(locals())
    """,
}


def program(name):
    namespace = {"__name__": "program"}
    exec(compile(textwrap.dedent(PROGRAMS[name]), "<program>", "exec", dont_inherit=True), namespace)
    return namespace["run"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_does_what_cpython_does(name):
    assert interpret(program(name))() == program(name)()


def test_awaiting_what_cannot_be_awaited_gets_cpythons_own_words():
    async def waits():
        await 3

    message = []
    for fn in (waits, interpret(waits)):
        with pytest.raises(TypeError) as caught:
            fn().send(None)
        message.append(str(caught.value))
    assert message[0] == message[1]

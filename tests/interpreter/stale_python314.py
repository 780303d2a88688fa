"""Programs of `stale_programs` in what Python 3.14 brought: template strings, deferred annotations, placeholders of functools.partial."""

from __future__ import annotations

TEXT = """
== a value in a template string
mode = "sum"
def f(t):
    template = t"{mode}: {t}"
    return t.sum() if template.interpolations[0].value == "sum" else t.mean()
-- mode = "mean"
== a format in a template string
width = 2
def f(t): return t * len(t"{t:>{width}}".interpolations[0].format_spec) * int(t"{t:{width}}".interpolations[0].format_spec)
-- width = 3
== a template string is taken apart
from string.templatelib import Interpolation
scale = 2.0
def f(t):
    result = 0
    for part in t"a{t}b{scale!r}":
        match part:
            case Interpolation(value, "scale", "r"):
                result = result * value
            case Interpolation(value):
                result = result + value
            case str():
                result = result + len(part)
    return result
-- scale = 5.0
== the values of an outside template string
template = t"{2.0}x{3.0}"
def f(t): return t * sum(template.values) * len(template.strings)
-- template = t"{4.0}"
== the text of an outside template string
template = t"a{2.0}"
def f(t): return t * len("".join([part for part in template if isinstance(part, str)]))
-- template = t"abc{2.0}"
== an outside template string is added to
template = t"a{2.0}"
def f(t):
    both = template + t"b{3.0}"
    return t * both.interpolations[0].value * len(both.strings[0])
-- template = t"aaa{4.0}"
== a list in an outside template string
ns = [1.0, 2.0]
template = t"{ns}"
def f(t): return t * sum(template.interpolations[0].value)
-- ns.append(7.0)
== an outside interpolation
from string.templatelib import Interpolation
part = Interpolation(2.0, "x", None, "3")
def f(t): return t * part.value * int(part.format_spec)
-- part = Interpolation(2.0, "x", None, "4")
== an annotation of an inner function
scale = 2.0
def f(t):
    def inner(a: scale): pass
    return t * inner.__annotations__["a"]
-- scale = 5.0
== an annotation of a method
scale = 2.0
def f(t):
    class Inner:
        def method(self, a: scale): pass
    return t * Inner().method.__annotations__["a"]
-- scale = 5.0
== an annotation of an inner class
scale = 2.0
def f(t):
    class Inner:
        a: scale
    return t * Inner.__annotations__["a"]
-- scale = 5.0
== an annotation as annotationlib gets it
import annotationlib
scale = 2.0
def f(t):
    class Inner:
        a: scale
    def inner(a: scale): pass
    return t * annotationlib.get_annotations(Inner)["a"] + annotationlib.get_annotations(inner)["a"]
-- scale = 5.0
== an annotation that is called for
scale = 2.0
def f(t):
    def inner(a: scale): pass
    return t * inner.__annotate__(1)["a"]
-- scale = 5.0
== an annotation that names what is not there
import annotationlib
def f(t):
    def inner(a: missing): pass
    annotation = annotationlib.get_annotations(inner, format=annotationlib.Format.FORWARDREF)["a"]
    return t * (annotation if isinstance(annotation, float) else 3.0)
-- missing = 5.0
== the annotations of an outside function
def inner(a: 2.0): pass
inner.__annotations__
def f(t): return t * inner.__annotations__["a"]
-- inner.__annotations__["a"] = 5.0
== the annotations of an outside class
import annotationlib
class Inner:
    a: 2.0
Inner.__annotations__
def f(t): return t * annotationlib.get_annotations(Inner)["a"]
-- Inner.__annotations__["a"] = 5.0
== a conditional annotation
flag = True
def f(t):
    class Inner:
        if flag:
            a: 2.0
    return t * len(Inner.__annotations__)
-- flag = False
== a partial with a placeholder
first = functools.partial(lambda a, b, c: a - 2 * b + c, functools.Placeholder, 3.0)
def f(t): return first(t, t * 2)
-- first = functools.partial(lambda a, b, c: a - 2 * b + c, functools.Placeholder, 5.0)
== a partial with a placeholder that the program makes
offset = 3.0
def f(t): return functools.partial(lambda a, b: a - b, functools.Placeholder, offset)(t)
-- offset = 5.0
== the manager of a with statement
class Manager:
    def __enter__(self): return scale
    def __exit__(self, *error): return True
scale = 2.0
def f(t):
    with Manager() as factor:
        t = t * factor
        raise ValueError
    return t
-- scale = 5.0
"""

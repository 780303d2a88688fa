"""Programs of `stale_programs` about immutable values of classes in C, empty slots and cells, defaults, and tuples that C code reads."""

from __future__ import annotations

CLASSES = """
import datetime, decimal, re
class Text(str): pass
class Count(int): pass
class Share(float): pass
class Raw(bytes): pass
class Mode(str, enum.Enum): A = "a"; B = "b"
class Level(enum.IntEnum): ONE = 1; TWO = 2
class Colour(enum.Enum): RED = 1; BLUE = 2
class Bits(enum.Flag): X = 1; Y = 2
class Slots: __slots__ = ("a", "b")
T = torch.ones(3)
"""
TEXT = """
== a member of a string enumeration is compared with text
CLASSES
def f(t, k): return t * 2 if k == "a" else t * 3
def args(i): return T, (Mode.A, Mode.B)[i]
-- pass
== a member of an integer enumeration is a factor
CLASSES
def f(t, k): return t * k
def args(i): return T, (Level.ONE, Level.TWO)[i]
-- pass
== a member of an enumeration is a key
CLASSES
table = {Colour.RED: 2.0, Colour.BLUE: 3.0}
def f(t, k): return t * table[k]
def args(i): return T, (Colour.RED, Colour.BLUE)[i]
-- pass
== members of an enumeration are in a tuple that is a key
CLASSES
table = {(Colour.RED, 1): 2.0, (Colour.BLUE, 1): 3.0}
def f(t, k): return t * table[k, 1]
def args(i): return T, (Colour.RED, Colour.BLUE)[i]
-- pass
== a flag
CLASSES
def f(t, k): return t * 2 if k & Bits.X else t * 3
def args(i): return T, (Bits.X, Bits.Y)[i]
-- pass
== a path is normalized
import os
p = "a/../b"
def f(t): return t * len(os.path.normpath(p))
-- p = "a/../bcd"
== the handler of a signal
import signal
def f(t): return t * 2 if signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL else t
def reset(): signal.signal(signal.SIGUSR2, signal.SIG_DFL)
-- signal.signal(signal.SIGUSR2, signal.SIG_IGN)
== thresholds of the garbage collector
import gc
before = gc.get_threshold()
def f(t): return t * gc.get_threshold()[0]
def reset(): gc.set_threshold(*before)
-- gc.set_threshold(before[0] + 1)
== a global member of an enumeration
CLASSES
k = Mode.A
def f(t): return t * len(f"{k.value}") * (2 if k == "a" else 3)
-- k = Mode.B
== text of a subclass is compared
CLASSES
def f(t, k): return t * 2 if k == "a" else t * 3
def args(i): return T, Text("ab"[i])
-- pass
== text of a subclass is formatted by C code
CLASSES
def f(t, k): return t * len("%s" % k)
def args(i): return T, Text(("a", "bcd")[i])
-- pass
== text of a subclass is a key
CLASSES
table = {"a": 2.0, "b": 3.0}
def f(t, k): return t * table[k]
def args(i): return T, Text("ab"[i])
-- pass
== a number of a subclass
CLASSES
def f(t, k): return t * k
def args(i): return T, Count(i + 2)
-- pass
== a number of a subclass changes its sign at zero
CLASSES
def f(t, k): return t * math.copysign(1.0, k)
def args(i): return T, Share((0.0, -0.0)[i])
-- pass
== bytes of a subclass
CLASSES
def f(t, k): return t * len(k) * k[0]
def args(i): return T, Raw((b"a", b"bc")[i])
-- pass
== a decimal
CLASSES
def f(t, k): return t * float(k)
def args(i): return T, decimal.Decimal(("1.5", "2.5")[i])
-- pass
== the digits of a decimal
CLASSES
def f(t, k): return t * len(str(k))
def args(i): return T, decimal.Decimal(("1.5", "1.50")[i])
-- pass
== a time span
CLASSES
def f(t, k): return t * k.total_seconds()
def args(i): return T, datetime.timedelta(seconds=i + 1)
-- pass
== a date
CLASSES
def f(t, k): return t * (2 if k > datetime.date(2020, 6, 1) else 3)
def args(i): return T, datetime.date(2020, 1 + 6 * i, 1)
-- pass
== a moment
CLASSES
def f(t, k): return t * k.microsecond
def args(i): return T, datetime.datetime(2020, 1, 1, microsecond=i + 1)
-- pass
== the zone of a moment
CLASSES
zones = datetime.timezone.utc, datetime.timezone(datetime.timedelta(hours=1))
def f(t, k): return t * (1 + k.utcoffset().total_seconds())
def args(i): return T, datetime.datetime(2020, 1, 1, tzinfo=zones[i])
-- pass
== a compiled pattern
CLASSES
def f(t, k): return t * (2 if k.match("abc") else 3)
def args(i): return T, re.compile(("ab", "x")[i])
-- pass
== the flags of a compiled pattern
CLASSES
def f(t, k): return t * (2 if k.match("ABC") else 3)
def args(i): return T, re.compile("ab", (re.I, 0)[i])
-- pass
== an empty slot is set
CLASSES
o = Slots()
def f(t): return t + 1 if hasattr(o, "a") else t - 1
-- o.a = 1
== an empty slot is asked for with a default
CLASSES
o = Slots()
def f(t): return t * getattr(o, "b", 2.0)
-- o.b = 5.0
== an empty slot is read, and the error handled
CLASSES
o = Slots()
def f(t):
    try:
        return t * o.a
    except AttributeError:
        return t
-- o.a = 5.0
== a tuple is spread into arguments
ks = (2.0, 3.0)
def scaled(t, k, *more): return t * k * (1 + len(more))
def one(k, *more): return k * (1 + len(more))
def f(t): return t * one(*ks) + scaled(t, *ks)
-- ks = (5.0, 3.0, 4.0)
== a tuple is spread into arguments of a torch function
order = (0, 1)
def f(t): return t.permute(*order)
-- order = (1, 0)
== a tuple of exceptions
caught = (KeyError, ValueError)
def f(t):
    try: return t * {}["k"]
    except caught: return t * 2
    except Exception: return t * 3
-- caught = (IndexError,)
== a tuple of exceptions behind a star
caught = (KeyError,)
def f(t):
    with contextlib.suppress(*caught):
        t = t * 2
        with contextlib.suppress(Exception):
            with contextlib.suppress(*caught):
                t = t * {}["k"]
            t = t * 3
    return t
-- caught = (ValueError,)
== the names of a class pattern
class Point:
    __match_args__ = ("x", "y")
    x, y = 2.0, 3.0
point = Point()
def f(t):
    match point:
        case Point(a, b): return t * a + b
-- Point.__match_args__ = ("y", "x")
== an empty cell is filled
def made():
    k = 2.0
    def f(t):
        try: return t * k
        except NameError: return t
    def fill(value):
        nonlocal k
        k = value
    del k
    return f, fill
f, fill = made()
-- fill(5.0)
== code that eval runs
code = compile("k * 2", "<code>", "eval")
def f(t): return t * eval(code, {"k": 3.0})
-- code = compile("k * 5", "<code>", "eval")
== a keyword-only parameter gets a default
def scaled(t, *, k): return t * k
def f(t):
    try: return scaled(t)
    except TypeError: return t
-- scaled.__kwdefaults__ = {"k": 5.0}
== a parameter gets a default
def scaled(t, k): return t * k
def f(t):
    try: return scaled(t)
    except TypeError: return t
-- scaled.__defaults__ = (5.0,)
== a parameter loses its default
def scaled(t, k=2.0, *, n=3.0): return t * k * n
def f(t):
    try: return scaled(t)
    except TypeError: return t
-- scaled.__defaults__ = None
== a keyword-only parameter loses its default
def scaled(t, k=2.0, *, n=3.0): return t * k * n
def f(t):
    try: return scaled(t)
    except TypeError: return t
-- scaled.__kwdefaults__ = None
== an attribute whose name is text of a subclass
CLASSES
o = types.SimpleNamespace(a=2.0, b=3.0)
name = Text("a")
def f(t): return t * getattr(o, name) * (2 if hasattr(o, name) else 3)
-- o.a = 5.0
== the name of an attribute is a member of a string enumeration
CLASSES
o = types.SimpleNamespace(a=2.0, b=3.0)
m = Mode.A
def f(t): return t * getattr(o, m)
-- m = Mode.B
== text of a partial, of which an argument is written out by a partial method
class O:
    def __init__(self, n): self.n = n
    def spelled(self): return "r" * self.n
    __repr__ = functools.partialmethod(spelled)
p = functools.partial(abs, O(2))
def f(t): return t * len("%s" % p)
-- p.args[0].n = 7
== functions of one code object see globals of their own
code = compile("def g(t): return t * k", "<code>", "exec")
spaces = [{"k": 2.0}, {"k": 5.0}]
for space in spaces: exec(code, space)
n = 0
def f(t, g): return g(t)
def args(i): return torch.ones(3), spaces[n]["g"]
-- n = 1
"""

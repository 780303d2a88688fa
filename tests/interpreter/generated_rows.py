"""What `generated.py` makes programs of: values of each kind, what they may call, and the classes of the programs."""

from __future__ import annotations

import enum
import functools
import re
import types
from pathlib import Path

CLASSES = """
import array, bisect, cmath, collections, contextlib, contextvars, copy
import dataclasses, datetime, decimal, enum, fractions, functools, heapq, itertools, json, math
import operator, os, pathlib, pickle, random, re, statistics, string, struct, textwrap, types, typing, weakref
import numpy as np
import torch

class Pair(typing.NamedTuple):
    left: object
    right: object
@dataclasses.dataclass
class Holder:
    value: object
class Slots:
    __slots__ = ("value", "other")
    def __init__(self, value): self.value = value
class Items(list): pass
class Table(dict): pass
class Reading:
    def __get__(self, owner, cls): return owner.held
class Box:
    @property
    def of_property(self): return self.held
    of_descriptor = Reading()
    @functools.cached_property
    def of_cached(self): return self.held
    __match_args__ = ("a",)
class Meta(type):
    @property
    def a(cls): return cls.held
class Typed(metaclass=Meta): pass
box = Box()
weak = weakref.ref(box)
behind = {}
proxy = types.MappingProxyType(behind)
chain = collections.ChainMap({}, {})
variable = contextvars.ContextVar("variable")
def matched_first(o):
    match o:
        case Box(first): return first
def same(x): return x
def changed(held, now):
    if type(held) is type(now) and isinstance(now, (list, collections.deque)):
        held.clear()
        held.extend(now)
        return held
    if type(held) is type(now) and isinstance(now, dict):
        held.clear()
        held.update(now)
        return held
    if type(held) is type(now) and hasattr(now, "__dict__") and vars(now) and not isinstance(now, enum.Enum):
        vars(held).update(vars(now))
        return held
    return now
class N:
    def __init__(self, n): self.n = n
class Index(N):
    def __index__(self): return self.n
class Truth(N):
    def __bool__(self): return self.n > 3
class Sized(N):
    def __len__(self): return self.n
class Equal(N):
    def __eq__(self, other): return isinstance(other, Equal) and self.n == other.n
    def __hash__(self): return hash(self.n)
class Less(N):
    def __lt__(self, other): return self.n < other.n
@functools.total_ordering
class Ordered(Equal):
    def __lt__(self, other): return self.n < other.n
@dataclasses.dataclass(frozen=True, order=True)
class Frozen:
    n: int
    def __index__(self): return self.n
class Text(N):
    def __str__(self): return "s" * self.n
class Shown(N):
    def __repr__(self): return "r" * self.n
class Formatted(N):
    def __format__(self, spec): return spec + "f" * self.n
class Iterated(N):
    def __iter__(self): return iter(range(self.n))
class Stepped(N):
    def __iter__(self): return Steps(self.n)
class Steps(N):
    def __next__(self):
        if self.n <= 0: raise StopIteration
        self.n -= 1
        return self.n
    def __iter__(self): return self
class Indexed(N):
    def __getitem__(self, i):
        if i >= self.n: raise IndexError(i)
        return i * self.n
class Container(N):
    def __contains__(self, x): return x == self.n
class Called(N):
    def __call__(self, *x): return self.n
class Real(N):
    def __float__(self): return self.n + 0.5
class Whole(N):
    def __int__(self): return self.n
class Complex(N):
    def __complex__(self): return complex(self.n, 1)
class Rounded(N):
    def __round__(self, d=0): return self.n + (d or 0)
    def __floor__(self): return self.n
    def __ceil__(self): return self.n + 1
    def __trunc__(self): return self.n + 2
    def __abs__(self): return self.n + 3
    def __neg__(self): return -self.n
    def __pos__(self): return self.n
    def __invert__(self): return ~self.n
class Arithmetic(N):
    def __add__(self, o): return self.n + 1
    def __radd__(self, o): return self.n + o
    def __sub__(self, o): return self.n - 1
    def __rsub__(self, o): return self.n * 3
    def __mul__(self, o): return self.n * 2
    def __rmul__(self, o): return self.n * 5
    def __truediv__(self, o): return self.n / 2
    def __floordiv__(self, o): return self.n // 2
    def __mod__(self, o): return self.n % 2
    def __divmod__(self, o): return self.n, 1
    def __rdivmod__(self, o): return self.n, 2
    def __pow__(self, o, m=None): return self.n ** 2
    def __and__(self, o): return self.n & 1
    def __or__(self, o): return self.n | 8
    def __xor__(self, o): return self.n ^ 1
    def __lshift__(self, o): return self.n << 1
    def __rshift__(self, o): return self.n >> 1
    def __matmul__(self, o): return self.n
    def __iadd__(self, o): return self.n + 7
class Bytes(N):
    def __bytes__(self): return b"b" * self.n
class Path(N):
    def __fspath__(self): return "p" * self.n
class Hint(N):
    def __length_hint__(self): return self.n
    def __iter__(self): return iter([self.n])
class Backwards(N):
    def __reversed__(self): return iter([self.n])
class Mapped(N):
    def keys(self): return ["a", "b"]
    def __getitem__(self, k): return (k, self.n)
class Attr(N):
    def __getattr__(self, name):
        if name.startswith("_"): raise AttributeError(name)
        return (name, self.n)
class Managed(N):
    def __enter__(self): return self.n
    def __exit__(self, *e): return False
class Missing(dict):
    def __missing__(self, k): return k * len(self)
class Words(list):
    def __len__(self): return 7
    def __getitem__(self, i): return list.__getitem__(self, i)
class Doubles(dict):
    def __getitem__(self, k): return super().__getitem__(k) * 2
    def __contains__(self, k): return super().__contains__(k)
class Copied(N):
    def __copy__(self): return Copied(self.n + 1)
    def __deepcopy__(self, memo): return Copied(self.n + 2)
class Reduced(N):
    def __reduce__(self): return (Reduced, (self.n + 1,))
class Checked(N):
    def __hash__(self): return self.n
class Colour(enum.Enum): RED = 1; BLUE = 2
class Level(enum.IntEnum): ONE = 1; TWO = 2
class Mode(str, enum.Enum): A = "a"; B = "bb"
class Bits(enum.Flag): X = 1; Y = 2
class Str(str): pass
class Int(int): pass
class Float(float): pass
NUMBERS = {3: 1, 5: 2, 'ab': 3, (1, (2,)): 4, (1, (3,)): 5, Colour.RED: 6, Mode.A: 7, Level.ONE: 8}
def fn3(x): return 3
def fn5(x): return 5
def add(x, y): return x + y
def less(x, y): return x - y
DESCENDING = functools.cmp_to_key(lambda a, b: b - a)
def by(x): return -x if isinstance(x, (int, float)) else x
def key_n(o): return o.n
def stored(l, k, x):
    l[k] = x
    return l
def deleted(l, k):
    del l[k]
    return l
def added(l, k, x):
    l[k] += x
    return l
def parts(o):
    a, *b = o
    return a, b
def looped(o):
    n = 0
    for x in o: n += x
    else: n += 100
    return n
def entered(o):
    with o as n: return n
def matched(o):
    match o:
        case N(n=3): return 1
        case [a, *b]: return a
        case {"a": x}: return x
        case int() | float(): return 2
        case None: return 3
        case _: return 4
def while_true(o):
    while not o: return 1
    return 2
def asserted(o):
    try: assert o, "no"
    except AssertionError: return 1
    return 2
class ListOf(list):
    def __init__(self, *args): super().__init__(*args)
class DictOf(dict):
    def __init__(self, *args, **kwargs): super().__init__(*args, **kwargs)
class NewDict(dict):
    def __new__(cls, *args): return super().__new__(cls)
class TupleOf(tuple):
    def __new__(cls, *args): return super().__new__(cls, *args)
class Sets(set): pass
class Tuples(tuple): pass
@functools.lru_cache
def CACHED(x): return getattr(x, 'n', x)
@functools.singledispatch
def DISPATCHED(x): return 0
@DISPATCHED.register
def _(x: int): return 1
@DISPATCHED.register
def _(x: str): return len(x)
"""
WORLD = types.ModuleType("generated_world")
exec(compile(CLASSES, "<classes>", "exec", dont_inherit=True), vars(WORLD))


def wrapped(cls):
    """Return a class like `cls` with special methods that are no plain functions."""
    methods = {name: functools.partialmethod(method) for name, method in vars(cls).items() if isinstance(method, types.FunctionType)}
    return type(f"{cls.__name__}W", (cls,), {**methods, "__module__": WORLD.__name__})


vars(WORLD).update({f"{cls.__name__}W": wrapped(cls) for cls in list(vars(WORLD).values()) if isinstance(cls, type) and issubclass(cls, WORLD.N)})


def shown(value):
    """Return a value as text that tells any two apart; objects by their class and attributes, not by their address."""
    kind = type(value)
    if kind in (list, tuple) or isinstance(value, (list, tuple)):
        return (kind.__name__, [shown(item) for item in list.__iter__(value)] if isinstance(value, list) else [shown(item) for item in value])
    if isinstance(value, dict):
        return (kind.__name__, [(shown(key), shown(item)) for key, item in dict.items(value)])
    if isinstance(value, (set, frozenset)):
        return (kind.__name__, sorted([repr(shown(item)) for item in value]))
    if kind.__name__ == "ndarray" and value.dtype.kind == "f":  # kernels of torch and of NumPy round the last digit in ways of their own
        return (kind.__name__, str(value.dtype), value.shape, [format(x, ".14g") for x in value.ravel().tolist()])
    if hasattr(value, "dtype") and hasattr(value, "tolist"):
        return (kind.__name__, str(value.dtype), repr(value.tolist()))
    if isinstance(value, enum.Enum):
        return (kind.__name__, str(value))
    if (hasattr(value, "__dict__") and not isinstance(value, type) and not callable(value) and kind.__module__ == "generated_world") or kind in _OWN:
        return (kind.__name__, shown(getattr(value, "__dict__", {})))
    if hasattr(kind, "__slots__") and kind.__slots__ and kind.__module__ == "generated_world":
        return (kind.__name__, [shown(getattr(value, name, None)) for name in kind.__slots__])
    return (kind.__name__, re.sub("at 0x[0-9a-f]+", "", repr(value)))


_OWN = {cls for cls in vars(WORLD).values() if isinstance(cls, type) and issubclass(cls, WORLD.N)}


def _objects(names):
    pairs = (("(3)", "(5)"), ("(1)", "(0)"), ("(4)", "(3)"), ("W(3)", "W(5)"))
    return {name: [(f"{name}{one}", f"{name}{other}") for one, other in pairs] for name in names.split()}


VALUES = {
    "int": [("3", "5"), ("1", "0"), ("2", "-2"), ("1", "True")],
    "float": [("1.5", "2.5"), ("0.0", "-0.0"), ("1.0", "float('nan')"), ("0.25", "0.5")],
    "number": [("3", "3.0"), ("2", "7"), ("1.5", "0.5")],
    "str": [("'ab'", "'cd'"), ("'a'", "'A'"), ("''", "'x'"), ("'b b'", "'bb '")],
    "digits": [("'12'", "'21'"), ("'7'", "'0'")],
    "bytes": [("b'ab'", "b'cd'"), ("b'a'", "b'bc'")],
    "ints": [("[3, 1, 2]", "[3, 1, 0]"), ("[1]", "[1, 2]"), ("[0, 4]", "[4, 0]")],
    "floats": [("[3.0, 1.5]", "[3.0, 0.5]"), ("[1.0]", "[1.0, 2.0]")],
    "strs": [("['b', 'a']", "['b', 'c']"), ("['x']", "['x', 'y']")],
    "lists": [("[[1], [2]]", "[[1], [5]]"), ("[[2], [3]]", "[[2], [1]]"), ("[[], [1]]", "[[0], [1]]")],
    "tuple": [("(1, (2,))", "(1, (3,))"), ("(1, 2)", "(2, 1)"), ("(1, Frozen(2))", "(1, Frozen(3))")],
    "named": [("Pair(1, (2,))", "Pair(1, (3,))")],
    "dict": [("{'a': 1}", "{'a': 2}"), ("{'a': 1}", "{'a': 1, 'b': 2}"), ("{'a': [1]}", "{'a': [2]}"), ("{1: 2}", "{True: 2}")],
    "set": [("{1, 2}", "{1, 3}"), ("{'a'}", "{'b'}"), ("frozenset([1])", "frozenset([2])")],
    "none": [("Box()", "None"), ("None", "0"), ("[None]", "[Box()]")],
    "enum": [("Colour.RED", "Colour.BLUE"), ("Level.ONE", "Level.TWO"), ("Mode.A", "Mode.B")],
    "flag": [("Bits.X", "Bits.Y"), ("Bits.X", "Bits.X | Bits.Y")],
    "Str": [("Str('ab')", "Str('cd')"), ("Str('ab')", "'ab'")],
    "Int": [("Int(3)", "Int(5)"), ("Int(3)", "3"), ("Level.ONE", "Level.TWO")],
    "Float": [("Float(1.5)", "Float(2.5)")],
    "decimal": [("decimal.Decimal('1.5')", "decimal.Decimal('2.5')"), ("decimal.Decimal('1.0')", "decimal.Decimal('1.00')")],
    "fraction": [("fractions.Fraction(1, 2)", "fractions.Fraction(1, 3)")],
    "delta": [("datetime.timedelta(1)", "datetime.timedelta(2)")],
    "date": [("datetime.date(2020, 1, 2)", "datetime.date(2021, 2, 3)")],
    "moment": [("datetime.datetime(2020, 1, 2, 3)", "datetime.datetime(2020, 1, 2, 4)")],
    "pattern": [("re.compile('a+')", "re.compile('b+')"), ("re.compile('A')", "re.compile('A', re.I)")],
    "struct": [("struct.Struct('i')", "struct.Struct('h')")],
    "array": [("array.array('i', [1, 2])", "array.array('i', [1, 3])")],
    "bytearray": [("bytearray(b'ab')", "bytearray(b'cd')")],
    "view": [("memoryview(b'ab')", "memoryview(b'cd')")],
    "ndarray": [("np.array([1, 2])", "np.array([1, 3])"), ("np.array([1.0])", "np.array([1.0, 2.0])"), ("np.array([1])", "np.array([1.0])")],
    "scalar": [("np.float64(1.5)", "np.float64(2.5)"), ("np.int32(1)", "np.int64(1)"), ("np.str_('a')", "np.str_('b')")],
    "moment64": [("np.datetime64('2020-01-01')", "np.datetime64('2021-01-01')")],
    "dtype": [("torch.float32", "torch.float64"), ("np.dtype('i4')", "np.dtype('i8')")],
    "size": [("torch.Size([1, 2])", "torch.Size([2, 1])")],
    "device": [("torch.device('cpu')", "torch.device('meta')")],
    "function": [
        *[("fn3", "fn5"), ("len", "abs"), ("np.negative", "np.abs"), ("np.size", "np.ndim")],
        *[("functools.partial(add, 1)", "functools.partial(add, 2)"), ("Called(3)", "Called(5)")],
    ],
    "comparing": [("functools.cmp_to_key(less)", "DESCENDING"), ("functools.cmp_to_key(operator.sub)", "DESCENDING")],
    "objects": [("[{0}(3), {0}(4)]".format("Ordered"), "[{0}(5), {0}(4)]".format("Ordered")), ("[Frozen(1), Frozen(2)]", "[Frozen(2), Frozen(2)]")],
    "lesser": [("[Less(3), Less(4)]", "[Less(5), Less(4)]")],
    "truths": [("[Truth(9)]", "[Truth(1)]"), ("[Box()]", "[None]"), ("[Sized(1)]", "[Sized(0)]")],
    "indices": [("[Index(3), Index(4)]", "[Index(3), Index(1)]")],
    "missing": [("Missing(a=1)", "Missing(a=1, b=2)")],
    "words": [("Words([1, 2])", "Words([1, 3])")],
    "doubles": [("Doubles(a=1)", "Doubles(a=2)")],
    "slice": [("slice(0, 2)", "slice(1, 2)")],
    "range": [("range(3)", "range(4)")],
    **_objects(
        "Index Truth Sized Equal Less Ordered Frozen Text Shown Formatted Iterated Stepped Indexed Container Called Real Whole Complex Rounded "
        "Arithmetic Bytes Path Hint Backwards Mapped Attr Managed Copied Reduced Checked N"
    ),
}
WHOLE = {"repr", "str", "copy.deepcopy", "copy.copy", "json.dumps", "==", "in", "%s", "format", "bool", "len", "list", "list.__contains__"}
TEXT = Path(__file__).with_name("generated_calls.txt").read_text()  # callable | kinds of values | expression of a value `v` of such a kind

"""What `generated.py` makes programs of: values of each kind, what they may call, and the classes of the programs."""

from __future__ import annotations

import enum
import functools
import re
import types

CLASSES = """
import array, bisect, cmath, collections, copy, dataclasses, datetime, decimal, enum, fractions, functools, heapq, itertools, json, math, operator
import os, random, re, statistics, string, struct, typing
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
class Box: pass
box = Box()
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
def by(x): return -x if isinstance(x, (int, float)) else x
def key_n(o): return o.n
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
    "function": [("fn3", "fn5"), ("functools.partial(add, 1)", "functools.partial(add, 2)"), ("Called(3)", "Called(5)"), ("len", "abs")],
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
TEXT = """
# truth and size
bool | int,float,str,ints,dict,set,none,enum,flag,Truth,Sized,ndarray,truths,delta,decimal | bool(v)
not | none,Truth,Sized,Text,words,doubles,decimal,scalar | 1 if not v else 2
and | none,Truth,Sized | (v and 1) is None
any | ints,truths,lists,none,strs,Iterated,Indexed,Stepped | any(v) if v.__class__ is not WORLDBOX else 0
all | ints,truths,lists,strs,Iterated,Indexed,Stepped | all(v)
filter | ints,truths,lists | list(map(bool, filter(None, v)))
filter | ints,lists | list(filter(bool, v))
itertools.filterfalse | truths,ints | len(list(itertools.filterfalse(None, v)))
itertools.compress | truths,ints,lists | list(itertools.compress('abc', v))
len | str,ints,dict,set,Sized,words,doubles,ndarray,array,range,missing,view | len(v)
operator.length_hint | Hint,Sized,ints | operator.length_hint(v)
operator.truth | Truth,Sized,none | operator.truth(v)
operator.not_ | Truth,Sized,none | operator.not_(v)
# comparisons
== | int,float,str,ints,lists,tuple,named,dict,set,enum,Equal,Frozen,Ordered,objects,decimal,date,pattern | v == 3
== | none | v == None
== | ints | v == [3, 1, 2]
== | lists | v == [[1], [2]]
== | dict | v == {'a': 1}
== | objects | v == [Ordered(3), Ordered(4)]
== | Frozen | [v] == [Frozen(3)]
== | Frozen | {'k': (v,)} == {'k': (Frozen(3),)}
== | Str,enum | v == 'ab'
!= | Frozen,Equal,tuple,int | (v, 1) != (Frozen(3), 1)
< | Less,Ordered,Frozen | v < v.__class__(4)
< | Less,Ordered,Frozen | [v, 1] < [v.__class__(4), 1]
< | ints,tuple,float,lists | v < v
<= | Ordered | v <= Ordered(4)
in | int,str,Frozen,Equal | v in [3, 'ab', Frozen(3), Equal(3)]
in | Frozen,Equal,int,tuple,enum,named | v in {Frozen(3), Equal(3), 3, (1, (2,)), Colour.RED, Pair(1, (2,))}
in | Frozen,Equal,int,tuple,enum,named | v in {Frozen(3): 1, Equal(3): 1, 3: 2, (1, (2,)): 3, Colour.RED: 4}
in | ints,set,dict,str | 3 in v if not isinstance(v, str) else 'a' in v
in | objects | Ordered(3) in v
in | Container,Iterated,Indexed,Stepped | 3 in v
in | words,doubles | 2 in v
operator.eq | Frozen,Equal,int,tuple | operator.eq(v, Frozen(3))
operator.lt | Less,Ordered | operator.lt(v, v.__class__(4))
operator.contains | Container,ints,Iterated | operator.contains(v, 3)
operator.countOf | ints,objects,Iterated | operator.countOf(v, 1)
operator.indexOf | ints,Iterated | operator.indexOf(v, 1)
is | none,enum,function | v is None
isinstance | number,Int,Str,none,enum | isinstance(v, int)
type | number,Int,Str,none,enum,scalar | type(v).__name__
# hashing
hash | int,str,tuple,enum,Frozen,Equal,Checked,decimal,date,named,delta | hash(v) == hash(v)
hash | Checked,int,tuple | hash(v)
dict.__getitem__ | Frozen,Equal | {Frozen(3): 1.0, Frozen(5): 2.0, Equal(3): 3.0, Equal(5): 4.0}.get(v, 9)
dict.__getitem__ | int,str,tuple,named,enum,Int,Str | NUMBERS.get(v, 9)
dict.setdefault | Frozen,int,tuple | {Frozen(3): 1}.setdefault(v, 4)
dict.pop | Frozen,tuple,int | {Frozen(3): 1, 3: 3}.pop(v, 4)
dict.fromkeys | ints,str,objects | len(dict.fromkeys(v, 1))
dict | objects | len({o: 1 for o in v})
dict | dict,doubles,Mapped,missing | dict(v)
dict.update | dict,Mapped,doubles | (lambda d: (d.update(v), d)[1])({})
dict.items | dict,doubles,missing | list(v.items())
dict.values | dict,doubles | list(v.values())
dict.keys | dict,doubles,missing | list(v.keys())
dict.copy | dict,missing | v.copy()
dict.get | dict,doubles,missing | v.get('a', 3)
dict.__or__ | dict | v | {'z': 1}
dict.__missing__ | missing | v['zz']
dict.__getitem__ | dict,doubles,missing | v['a'] if 'a' in v else 0
set | objects,ints,str,Iterated | len(set(v))
set.add | Frozen,Equal,int | (lambda s: (s.add(v), len(s))[1])({Frozen(3), Equal(3), 3})
set.__and__ | set | v & {1, 'a'}
set.__or__ | set | v | {1}
set.__sub__ | set | {1, 2} - v
set.issubset | set | {1}.issubset(v)
set.union | ints,Iterated,set | {1}.union(v)
set.intersection | ints,objects | len({3, Ordered(3)}.intersection(v))
frozenset | ints,objects,Iterated | len(frozenset(v))
collections.Counter | str,ints,objects | sorted(collections.Counter(v).values())
# indices
range | int,Index,Frozen | list(range(v))
range | Index,int | list(range(0, 9, v)) if v else 0
list.__mul__ | int,Index,Frozen | [1] * v
str.__mul__ | int,Index | 'a' * v
tuple.__mul__ | int,Index | v * (1, 2) if isinstance(v, int) else (1, 2) * v
bytes.__mul__ | Index | b'a' * v
list.__getitem__ | int,Index,Frozen,slice | [9, 8, 7, 6, 5, 4][v]
list.__getitem__ | Index,Frozen | [9, 8, 7, 6, 5, 4][:v]
list.__getitem__ | Index | [9, 8, 7, 6, 5, 4][v::2]
tuple.__getitem__ | Index,slice | (9, 8, 7, 6, 5, 4)[v]
str.__getitem__ | Index,slice,int | 'abcdef'[v]
bytes.__getitem__ | Index | b'abcdef'[v:]
range.__getitem__ | Index,int | range(10)[v]
list.pop | Index,int | [9, 8, 7, 6, 5, 4].pop(v)
list.insert | Index,int | (lambda l: (l.insert(v, 0), l)[1])([1, 2, 3, 4, 5])
list.__setitem__ | Index,int | (lambda l: (l.__setitem__(v, 0), l)[1])([1, 2, 3, 4, 5, 6])
list.__delitem__ | Index | (lambda l: (l.__delitem__(v), l)[1])([1, 2, 3, 4, 5, 6])
collections.deque.rotate | Index,int | (lambda d: (d.rotate(v), list(d))[1])(collections.deque([1, 2, 3]))
collections.deque | ints,Iterated,int | list(collections.deque(v if not isinstance(v, int) else [1, 2, 3], 2))
operator.index | Index,int,Frozen | operator.index(v)
operator.getitem | Index,int | operator.getitem([9, 8, 7, 6, 5, 4], v)
operator.itemgetter | Index,int | operator.itemgetter(v)([9, 8, 7, 6, 5, 4])
operator.mul | Index,int | operator.mul([1], v)
operator.concat | ints,str | operator.concat(v, v)
operator.iadd | ints | operator.iadd([1], v)
hex | Index,int | hex(v)
bin | Index,int | bin(v)
oct | Index,int | oct(v)
chr | Index,int | chr(v) if not isinstance(v, int) else chr(v + 70)
bytes | Index,ints,Bytes,bytearray,array,view | bytes(v)
bytearray | Index,ints | bytearray(v)
int.to_bytes | Index | (5).to_bytes(v, 'big') if v.n else 0
itertools.islice | int,Index | list(itertools.islice('abcdef', v))
itertools.repeat | int,Index | list(itertools.repeat(1, v))
itertools.combinations | int,Index | list(itertools.combinations([1, 2, 3], v))
itertools.combinations | ints | list(itertools.combinations(v, 2))
itertools.product | ints,int | list(itertools.product(v, repeat=2)) if isinstance(v, list) else list(itertools.product([1, 2], repeat=v))
round | float,Rounded,int,fraction,decimal | round(v)
round | Index,int | round(123.456, v)
math.comb | Index,int | math.comb(6, v)
math.gcd | Index,int | math.gcd(v, 15)
math.factorial | Index,int | math.factorial(v)
math.isqrt | Index,int | math.isqrt(v)
math.perm | Index | math.perm(6, v)
str.center | Index,int | 'a'.center(v, '-')
str.zfill | Index,int | 'a'.zfill(v)
str.split | Index,int | 'a b c d'.split(' ', v)
str.replace | Index,int | 'aaaa'.replace('a', 'b', v)
str.find | str,Index | 'abcd'.find(v) if isinstance(v, str) else 'abcabc'.find('a', v)
struct.pack | Index,int | struct.pack('i', v)
struct.pack | Real,float | struct.pack('d', v)
struct.unpack | bytes | struct.unpack('b', v[:1])
struct.Struct.size | struct | v.size
struct.Struct.pack | struct | v.pack(3)
struct.calcsize | str | struct.calcsize('i' * len(v))
# numbers
int | float,digits,Whole,Index,Int,decimal,enum,bytes,Str | int(v)
float | int,digits,Real,Index,decimal,fraction,Float | float(v)
complex | int,Complex,Real,Index | complex(v)
abs | int,float,Rounded,decimal,delta,scalar,ndarray | abs(v)
divmod | int,Arithmetic,float | divmod(v, 2)
divmod | Arithmetic | divmod(17, v)
pow | int,Arithmetic,float | pow(v, 2)
pow | int,Index | pow(2, v, 7) if isinstance(v, int) else pow(2, operator.index(v), 7)
+ | int,Arithmetic,float,str,ints,decimal,delta,ndarray,scalar,fraction | v + v
+ | Arithmetic | 2 + v
- | int,Arithmetic,float,decimal,delta,set | v - v
- | Arithmetic | 2 - v
* | int,Arithmetic,float,decimal,delta,ndarray,str | v * 2
* | Arithmetic | 2 * v
/ | int,Arithmetic,float | v / 4
// | int,Arithmetic | v // 2
% | int,Arithmetic | v % 2
** | int,Arithmetic | v ** 2
& | int,Arithmetic,flag,set | v & v
^ | int,Arithmetic,flag | v ^ v
<< | int,Arithmetic | (v << 1) if not isinstance(v, int) or v >= 0 else 0
@ | Arithmetic,ndarray | v @ v
~ | int,Rounded,flag | ~v
+= | Arithmetic,int,str | operator.iadd(v, 1) if not isinstance(v, str) else operator.iadd(v, 'x')
-x | int,Rounded,float,decimal | -v
+x | int,Rounded | +v
operator.neg | int,Rounded | operator.neg(v)
operator.add | int,Arithmetic,str | operator.add(v, v)
operator.mod | int,Arithmetic | operator.mod(v, 2)
operator.attrgetter | N,date | operator.attrgetter('n' if hasattr(v, 'n') else 'year')(v)
operator.methodcaller | str | operator.methodcaller('upper')(v)
operator.call | function | v.__class__.__name__
math.floor | float,Rounded,Real | math.floor(v)
math.ceil | float,Rounded | math.ceil(v)
math.trunc | float,Rounded | math.trunc(v)
math.sqrt | number,Real,Index | math.sqrt(v)
math.fsum | floats,ints,Iterated | math.fsum(v)
math.prod | floats,ints,Iterated | math.prod(v)
math.copysign | float,Real | math.copysign(1.0, v)
math.hypot | float,Real | math.hypot(v, 2)
math.isnan | float,Real | math.isnan(v)
math.isclose | float,Real | math.isclose(v, 1.5)
math.dist | floats | math.dist(v, v)
math.log | number | math.log(v + 2, 2)
math.pow | number,Real | math.pow(v, 2)
cmath.sqrt | number,Complex | cmath.sqrt(v)
sum | ints,floats,Iterated,Indexed,Stepped | sum(v)
sum | lists | sum(map(sum, v))
sum | lists | sum(v, [])
sum | int | sum([1, v])
sum | Arithmetic | sum([1, v])
min | ints,objects,lists,lesser,Iterated,strs | min(v) if v.__class__ is not list or not hasattr(v[0], 'n') else min(v).n
max | ints,objects,lists,lesser,Iterated,strs | max(v) if v.__class__ is not list or not hasattr(v[0], 'n') else max(v).n
min | objects,lesser | min(v, key=key_n).n
max | int | max(v, 4)
sorted | ints,lists,strs,Iterated,floats | sorted(v)
sorted | objects,lesser | [o.n for o in sorted(v)]
sorted | objects,lesser | [o.n for o in sorted(v, key=key_n, reverse=True)]
sorted | lesser,objects | [a.n for a, b in sorted([(o, 1) for o in v])]
list.sort | ints,lists,objects | (lambda l: (l.sort(), [getattr(o, 'n', o) for o in l])[1])(list(v))
list.sort | lesser | (lambda l: (l.sort(reverse=True), [o.n for o in l])[1])(list(v))
list.index | int | [5, 3, 1, 0, 2, -2].index(v)
list.index | Frozen,Equal | [Equal(5), Frozen(5), Equal(3), Frozen(3), v].index(v)
list.count | int,Frozen,Equal | [3, Frozen(3), Equal(3)].count(v)
list.remove | Frozen,Equal,int | (lambda l: (l.remove(v), len(l))[1])([1, 0, 3, 5, 4, 2, -2, v])
list.extend | ints,Iterated,Indexed | (lambda l: (l.extend(v), l)[1])([0])
list.reverse | ints | (lambda l: (l.reverse(), l)[1])(list(v))
list | ints,Iterated,Indexed,Stepped,str,dict,range,words | list(v)
tuple | ints,Iterated,Indexed,Stepped,str,range,words | tuple(v)
list.__len__ | words,ints | len(v)
list.__iter__ | words,ints | [x for x in v]
reversed | ints,Backwards,str,range | list(reversed(v))
enumerate | ints,Iterated,int | list(enumerate(v, 1)) if not isinstance(v, int) else list(enumerate('ab', v))
zip | ints,Iterated,Indexed | list(zip(v, 'abc'))
map | ints,lists,strs | list(map(str, v))
map | objects,lesser,indices | list(map(key_n, v))
map | indices | list(map(operator.index, v))
map | lists | list(map(len, v))
map | function | list(map(v, [[1], [2]])) if v is len else list(map(v, [1, 2]))
iter | Iterated,Indexed,Stepped,ints | list(iter(v))
next | ints,Iterated | next(iter(v), None)
unpack | ints,Iterated,tuple | [*v]
unpack | Mapped,dict | {**v}
call | function | v([1]) if v is len else v(1)
callable | function,N,Called | callable(v)
getattr | N,Attr,date | getattr(v, 'n', getattr(v, 'year', 0))
getattr | Attr | v.anything
hasattr | none,N,Attr | hasattr(v, 'n')
with | Managed | (lambda: v.__enter__())()
slice | int,Index | [1, 2, 3, 4, 5, 6, 7][slice(v)]
slice.indices | slice | v.indices(5)
functools.reduce | ints,lists,Iterated | functools.reduce(add, v) if v else 0
functools.reduce | ints | functools.reduce(operator.add, v, 0)
functools.partial | int | functools.partial(add, v)(1)
functools.cmp_to_key | ints | sorted(v, key=functools.cmp_to_key(lambda a, b: b - a))
itertools.accumulate | ints,lists,Iterated | list(itertools.accumulate(v))
itertools.accumulate | ints | list(itertools.accumulate(v, max))
itertools.chain | ints,Iterated,Indexed | list(itertools.chain(v, [1]))
itertools.chain.from_iterable | lists | list(itertools.chain.from_iterable(v))
itertools.groupby | ints,strs,objects | [(len(list(g))) for k, g in itertools.groupby(v)]
itertools.groupby | objects | [(k, len(list(g))) for k, g in itertools.groupby(v, key=key_n)]
itertools.takewhile | ints | list(itertools.takewhile(bool, v))
itertools.dropwhile | ints | list(itertools.dropwhile(bool, v))
itertools.starmap | lists | list(itertools.starmap(len, [(x,) for x in v]))
itertools.zip_longest | ints,Iterated | list(itertools.zip_longest(v, 'abcd'))
itertools.permutations | ints | list(itertools.permutations(v))
itertools.pairwise | ints,Iterated | list(itertools.pairwise(v))
itertools.cycle | ints | list(itertools.islice(itertools.cycle(v), 5))
itertools.tee | ints | list(itertools.tee(v)[1])
itertools.count | int,float | list(itertools.islice(itertools.count(v), 2))
# text
str | int,float,Text,Shown,ints,lists,enum,decimal,date,Str,dict,pattern,Frozen | str(v)
str | objects | str([Shown(o.n) for o in v])
repr | int,float,Shown,ints,lists,enum,decimal,date,Str,dict,Frozen,delta,tuple,named,array | repr(v)
repr | Shown | repr([v, (v,)])
ascii | str,Shown | ascii(v)
format | int,float,Formatted,Text,str,enum,decimal,date | format(v)
format | Formatted,int,float | format(v, '>5')
f-string | int,Formatted,Text,Shown,Frozen,ints | f'{v}'
f-string | Text,Shown,Frozen,str | f'{v!r:>5}' if not hasattr(v, 'n') or type(v).__repr__ is not object.__repr__ else f'{v!s}'
f-string | Shown,Frozen | f'{[v]}'
%s | int,Text,Shown,Frozen,str,enum,decimal,Str | '%s' % (v,)
%s | Text,Shown,Frozen | '%s-%r' % (v, 1)
%s | Shown,Frozen,lists | '%s' % [v]
%s | Shown,Text | '%(a)s' % {'a': v}
%d | int,Index,Whole,float | '%d' % v
%x | Index,int | '%x' % v
%f | Real,float | '%.1f' % v
str.format | int,Formatted,Text,Shown,Frozen | '{}{}'.format(v, 1)
str.format | N | '{0.n}'.format(v)
str.format | ints,dict | '{0[0]}'.format(v) if isinstance(v, list) else '{a}'.format(a=v)
str.join | strs,Str | '-'.join(v)
str.upper | str,Str,enum | v.upper() if isinstance(v, str) else 0
str.encode | str | v.encode()
str.startswith | str | v.startswith('a')
str.startswith | strs | 'bcd'.startswith(tuple(v))
str.translate | str | v.translate({97: 'z'})
str.split | str,Str | v.split()
str.strip | str | ' ab '.strip(v)
str.__contains__ | str | v in 'abcd'
bytes.decode | bytes,bytearray | v.decode()
bytes.hex | bytes,bytearray,view | v.hex()
bytes.join | bytes | b'-'.join([v, v])
ord | str | ord(v[0]) if v else 0
string.Template | str,int | string.Template('$a').substitute(a=v)
print | int | len(repr(v))
re.match | str,Str | bool(re.match('a+', v))
re.Pattern.match | pattern | bool(v.match('aab'))
re.Pattern.findall | pattern | v.findall('aabbAA')
re.Pattern.sub | pattern,str | v.sub('x', 'aab') if not isinstance(v, str) else re.sub('a', v, 'aab')
re.sub | function | re.sub('a', lambda m: str(v.__class__.__name__), 'aab')
re.Match.group | str | (re.match('(.)', v) or re.match('', '')).group(0)
json.dumps | int,str,ints,dict,lists,float,enum | json.dumps(v) if not isinstance(v, Colour) else 0
json.dumps | N | json.dumps([v], default=key_n)
json.loads | digits | json.loads(v)
# copies
copy.copy | ints,dict,set,N,Copied,Reduced,tuple,words,doubles,missing | copy.copy(v)
copy.deepcopy | ints,dict,lists,N,Copied,Reduced,tuple,set,named,objects,words,doubles | copy.deepcopy(v)
dataclasses.asdict | Frozen | dataclasses.asdict(v)
dataclasses.replace | Frozen | dataclasses.replace(v, n=v.n + 1)
list.copy | ints,lists | v.copy()
# classes of the library
decimal.Decimal | int,digits,decimal,float | decimal.Decimal(v)
decimal.Decimal.quantize | decimal | v.quantize(decimal.Decimal('1'))
fractions.Fraction | int,fraction,digits | fractions.Fraction(v)
datetime.timedelta.total_seconds | delta | v.total_seconds()
datetime.timedelta | int | datetime.timedelta(days=v)
datetime.date.isoformat | date,moment | v.isoformat()
datetime.date.strftime | date,moment | v.strftime('%Y%H')
datetime.date.weekday | date,moment | v.weekday()
datetime.date.replace | date | v.replace(day=5)
datetime.datetime.timestamp | moment | v.replace(tzinfo=datetime.timezone.utc).timestamp()
datetime.date.__sub__ | date | (v - datetime.date(2020, 1, 1)).days
datetime.date.fromordinal | int | datetime.date.fromordinal(v + 700).isoformat()
array.array | ints,array | array.array('i', v).tolist()
array.array.tobytes | array | v.tobytes()
array.array.__getitem__ | array | v[1]
memoryview.tolist | view | v.tolist()
bytearray.__getitem__ | bytearray | v[0]
heapq.heappush | int,Less | (lambda h: (heapq.heappush(h, v), [getattr(x, 'n', x) for x in h])[1])([v.__class__(4)] if hasattr(v, 'n') else [4, 6])
heapq.nsmallest | ints,objects,lesser | [getattr(x, 'n', x) for x in heapq.nsmallest(1, v)]
heapq.heapify | ints,lists,lesser | (lambda h: (heapq.heapify(h), [getattr(x, 'n', x) for x in h])[1])(list(v))
heapq.merge | ints | list(heapq.merge(v, [1]))
bisect.bisect | int,float | bisect.bisect([1, 2, 4], v)
bisect.bisect | Less | bisect.bisect([Less(2), Less(4)], v)
bisect.insort | int | (lambda l: (bisect.insort(l, v), l)[1])([1, 4])
statistics.mean | ints,floats | statistics.mean(v)
random.Random | int | random.Random(v).random()
random.seed | int | random.Random(abs(v)).randint(0, 100)
os.fspath | str,Path | os.fspath(v)
os.path.join | str,Path | os.path.join('a', v)
collections.ChainMap | dict | dict(collections.ChainMap({}, v))
collections.OrderedDict | dict | list(collections.OrderedDict(v).items())
collections.deque.append | int,ints | list((lambda d: (d.append(v), d)[1])(collections.deque()))
collections.deque.index | int,Frozen | collections.deque([Frozen(5), Frozen(3), 3, 5, 1, 0, 2, -2]).index(v)
collections.namedtuple | named | v._asdict()
collections.UserDict | dict | dict(collections.UserDict(v))
# numpy and torch
numpy.array | ints,floats,lists,int,ndarray | np.array(v)
numpy.sum | ints,ndarray | np.sum(v)
numpy.mean | floats,ndarray | np.mean(v)
numpy.add | ndarray,scalar,int | np.add(v, 1) if not isinstance(v, str) else 0
numpy.ndarray.sum | ndarray | v.sum()
numpy.ndarray.tolist | ndarray | v.tolist()
numpy.ndarray.__getitem__ | ndarray | v[0]
numpy.ndarray.astype | ndarray | v.astype('f4')
numpy.ndarray.reshape | ndarray | v.reshape(-1, 1)
numpy.ndarray.dtype | ndarray,scalar | str(v.dtype)
numpy.ndarray.__add__ | ndarray | v + v
numpy.ndarray.max | ndarray | v.max()
numpy.concatenate | ndarray,ints | np.concatenate([v, v])
numpy.arange | int,Index | np.arange(v)
numpy.zeros | int,Index,ints | np.zeros(v).shape if not isinstance(v, int) or v >= 0 else 0
numpy.float64 | float,scalar | np.float64(v) if not isinstance(v, str) else 0
numpy.linalg.norm | ndarray | np.linalg.norm(v)
numpy.sqrt | number,ndarray | np.sqrt(v)
numpy.isnan | float,ndarray | np.isnan(v)
numpy.datetime64 | moment64 | str(v)
numpy.dtype | dtype | str(v)
torch.dtype | dtype | str(v)
torch.Size.numel | size | v.numel()
torch.Size | ints | torch.Size(v).numel()
torch.device | device | v.type
torch.device | str | torch.device('cpu').type + v
torch.finfo | dtype | torch.finfo(v).eps if isinstance(v, torch.dtype) else 0
torch.promote_types | dtype | str(torch.promote_types(v, torch.float16)) if isinstance(v, torch.dtype) else 0
torch.is_tensor | int,none | torch.is_tensor(v)
torch.broadcast_shapes | size | torch.broadcast_shapes(v, (2, 2))
"""
TEXT = TEXT.replace(" if v.__class__ is not WORLDBOX else 0", "")

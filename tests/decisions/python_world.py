"""What the programs of `python_programs` find outside: classes with most of the methods that Python knows, and objects that they read and write."""

from __future__ import annotations

TEXT = """
import abc, bisect, collections, contextlib, contextvars, copy, dataclasses, enum, functools, heapq, itertools, math
import operator, random, re, string, types, typing, weakref
import torch
from torch import nn

class Typed:
    def __set_name__(self, owner, name): self.name = "_" + name
    def __get__(self, held, owner=None): return self if held is None else held.__dict__.get(self.name, 0) + self.step
    def __set__(self, held, value): held.__dict__[self.name] = value - 1
    step = 1
class Cell:
    count = Typed()
    made = 0
    def __init__(self, v=1): self._v, self.log, self.count = v, [], 3; Cell.made += 1
    @property
    def v(self): return self._v
    @v.setter
    def v(self, new): self.log.append(self._v); self._v = new % 50
    @v.deleter
    def v(self): self._v = 0
    @functools.cached_property
    def doubled(self): return self._v * 2
    @classmethod
    def of(cls, n): cls.made += n; return cls(n)
    @staticmethod
    def twice(q): return q * 2
    def __lt__(self, other): return self._v < other._v
    def __repr__(self): return f"<Cell {self._v}>"
    def __deepcopy__(self, memo): new = Cell.__new__(type(self)); new._v, new.log, new.count = self._v + 1, list(self.log), 5; return new
class Lazy:
    def __init__(self): object.__setattr__(self, "data", {"n": 2, "t": torch.ones(3, dtype=torch.float64)})
    def __getattr__(self, name):
        if name.startswith("__"): raise AttributeError(name)
        try: return self.data[name]
        except KeyError: raise AttributeError(f"no {name}") from None
    def __setattr__(self, name, value): self.data[name] = value; self.data["writes"] = self.data.get("writes", 0) + 1
    def __delattr__(self, name): del self.data[name]
class Slot:
    __slots__ = ("n", "t", "__weakref__")
    def __init__(self, n, t): self.n, self.t = n, t
class Acc:
    def __init__(self, items): self.items, self.limit = list(items), 4
    def __call__(self, q, *, scale=1): self.items.append(scale); return q * scale
    def __len__(self): return len(self.items)
    def __bool__(self): return len(self.items) < self.limit
    def __iter__(self):
        for item in self.items: yield item + 1
    def __contains__(self, q): return q in self.items
    def __getitem__(self, i):
        if isinstance(i, slice): return Acc(self.items[i])
        return self.items[i]
    def __setitem__(self, i, q): self.items[i] = q
    def __delitem__(self, i): del self.items[i]
    def __iadd__(self, q): self.items.append(q); return self
    def __add__(self, q): return Acc([*self.items, q])
    def __radd__(self, q): return len(self) + q
    def __eq__(self, other): return isinstance(other, Acc) and self.items == other.items
    __hash__ = None
    def __reversed__(self): return iter(self.items[::-1])
    def __format__(self, spec): return f"acc{spec}{len(self)}"
    def __index__(self): return len(self.items) % 3
class Key:
    def __init__(self, n): self.n = n
    def __eq__(self, other): return isinstance(other, Key) and self.n % 3 == other.n % 3
    def __hash__(self): return self.n % 3
    def __repr__(self): return f"Key({self.n})"
class Quiet:
    swallow = (ValueError, KeyError)
    def __init__(self): self.seen = []
    def __enter__(self): self.seen.append("in"); return len(self.seen)
    def __exit__(self, kind, error, tb): self.seen.append(kind and kind.__name__); return kind is not None and issubclass(kind, self.swallow)
class Meta(type):
    registry = {}
    def __new__(m, name, bases, body, factor=1):
        made = super().__new__(m, name, bases, body); made.factor = factor; m.registry[name] = made
        return made
    def __init__(cls, name, bases, body, **kw): super().__init__(name, bases, body)
    def __call__(cls, *a, **k): made = super().__call__(*a, **k); made.tag = cls.__name__; return made
    def __iter__(cls): return iter(["f", cls.factor])
    def __contains__(cls, q): return q == cls.factor
    def __getitem__(cls, n): return cls.factor * n
    @property
    def size(cls): return cls.factor + 1
class Base(metaclass=Meta, factor=2):
    bias = 1
    def __init__(self, n): self.n = n
    def step(self, q): return q + self.bias
    def __init_subclass__(cls, **kw): super().__init_subclass__(); cls.depth = getattr(cls, "depth", 0) + 1
class Left(Base, factor=3):
    def step(self, q): return super().step(q * 2)
class Right(Base):
    def step(self, q): return super().step(q) - self.n
class Both(Left, Right, factor=5):
    calls = 0
    def step(self, q): type(self).calls += 1; return super().step(q)
@dataclasses.dataclass(order=True)
class Point:
    n: int = 0
    tags: list = dataclasses.field(default_factory=list)
    t: typing.Any = dataclasses.field(default=None, compare=False)
    def __post_init__(self): self.n += 1
@dataclasses.dataclass(frozen=True)
class Fixed:
    a: int
    b: float = 0.5
class Pair(typing.NamedTuple):
    t: typing.Any
    n: int = 3
    def scaled(self): return self.t * self.n
class Mode(enum.Enum):
    ADD = "add"; MUL = "mul"; NEG = "neg"
    def on(self, q): return q + 1 if self is Mode.ADD else q * 2 if self is Mode.MUL else -q
    @classmethod
    def _missing_(cls, v): return cls.NEG
class Bits(enum.IntFlag):
    A = 1; B = 2; C = 4
class Halt(Exception):
    def __init__(self, payload, code=1): super().__init__("halt", code); self.payload, self.code = payload, code
class Deep(Halt, ValueError): pass
class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self): ...
class Square(Shape):
    def __init__(self, n): self.n = n
    def area(self): return self.n * self.n
class Countdown:
    def __init__(self, n): self.n = n
    def __iter__(self): return self
    def __next__(self):
        if self.n <= 0: raise StopIteration
        self.n -= 1; return self.n
    def __length_hint__(self): return self.n
class Ops:
    def __init__(self, n): self.n = n
    def __mul__(self, q): return q * self.n
    def __rmul__(self, q): return q * (self.n + 1)
    def __neg__(self): return Ops(-self.n)
    def __matmul__(self, q): return self.n
    def __pow__(self, q, m=None): return self.n ** (q % 4)
    def __ge__(self, q): return self.n >= q
    def __int__(self): return self.n
    def __float__(self): return self.n / 2
    def __missing__(self, q): return q
    def __round__(self, q=None): return self.n
    def __and__(self, q): return NotImplemented
    def __rsub__(self, q): return NotImplemented
    def __invert__(self): return ~self.n
class Table(dict):
    def __missing__(self, key): self[key] = len(self); return self[key]
class Items(list):
    def append(self, q): super().append(q); self.total = getattr(self, "total", 0) + 1
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.tensor(0.5, dtype=torch.float64)); self.register_buffer("seen", torch.zeros((), dtype=torch.float64))
        self.calls, self.mode, self.memo = 0, "a", {}
    def forward(self, q):
        self.calls += 1
        with torch.no_grad(): self.seen += q.detach().sum()
        self.memo[q.shape[0]] = self.calls
        return q * self.w if self.mode == "a" else q + self.w
def counter():
    n = 0
    def bump(by=1):
        nonlocal n
        n = (n + by) % 40
        return n
    def peek(): return n
    return bump, peek
bump, peek = counter()
def collect(q, held=[]): held.append(q); del held[:-3]; return len(held)
def keyed(*a, z=[0], **k): z[0] += len(a); return z[0] + sum(k.values())
def stream(n):
    total = 0
    try:
        for i in range(n):
            got = yield i + total
            if got is not None: total += got
    except ValueError as error: yield -len(str(error))
    finally: notes.append("closed")
    return total
def outer(n):
    r = yield from stream(n)
    yield r
    return r
def fact(n): return 1 if n <= 1 else n * fact(n - 1)
def walk(node): return node if isinstance(node, int) else sum(walk(q) for q in node) if isinstance(node, (list, tuple)) else 0
@functools.lru_cache(maxsize=3)
def cached(n): notes.append(n); return n * 3
@functools.singledispatch
def kind(q): return 1
@kind.register
def _(q: int): return 2
@kind.register(list)
def _(q): return 3 + len(q)
@kind.register(torch.Tensor)
def _(q): return q.shape[0]
@contextlib.contextmanager
def scope(n):
    notes.append(("in", n))
    try: yield n * 2
    except KeyError: notes.append("key")
    finally: notes.append("out")
def logged(fn):
    @functools.wraps(fn)
    def inner(*a, **k): notes.append(fn.__name__); return fn(*a, **k)
    inner.plain = fn
    return inner
@logged
def shift(q, by=1): return q + by
notes = []
cell, lazy, slot, acc, quiet = Cell(2), Lazy(), Slot(1, torch.full((3,), 0.5, dtype=torch.float64)), Acc([1, 2]), Quiet()
both, left = Both(1), Left(2)
pts = [Point(2, ["b"]), Point(0, ["a"])]
table, own, items = {"a": 1, "b": 2, "c": 5}, Table(x=1), Items([1])
dd, od, cnt = collections.defaultdict(list, {"a": [1]}), collections.OrderedDict(p=1, q=2, r=3), collections.Counter("abca")
dq, cm = collections.deque([1, 2, 3], maxlen=4), collections.ChainMap({"a": 1}, {"b": 2, "a": 3})
S, names, nested = {1, 2, 3}, ["a", "bb", "c"], {"k": [1, (2, [3])], "m": {"n": 1}}
T = torch.arange(4, dtype=torch.float64)
V = T[1:]
W = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64, requires_grad=True)
tensors = [T, torch.ones(2, dtype=torch.float64), V]
byname = {"a": torch.ones(3, dtype=torch.float64), "b": T[:3]}
bits, mode = Bits.A | Bits.C, Mode.ADD
var = contextvars.ContextVar("var", default=2)
block = Block()
ops = Ops(2)
part = functools.partial(shift, by=2)
rng = random.Random(3)
G, N, H = 1.5, 1, None
weak = weakref.ref(slot)
space = types.SimpleNamespace(n=1, t=torch.ones(3, dtype=torch.float64), fn=lambda q: q + 1)
fns = {"a": lambda q: q + 1, "b": shift, "c": operator.neg}
live = itertools.count(5)
pair = Pair(T[:2], 2)
point_type = Point
"""

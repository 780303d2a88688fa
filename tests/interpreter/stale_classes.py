"""The programs of `stale_programs` about what classes lack, keys that hold objects, hashes that change, and abstract classes."""

from __future__ import annotations

TEXT = """
== a default for an attribute that the class gets
class O: pass
o = O()
def f(t): return t * getattr(o, "v", 7.)
-- O.v = 3.
== an attribute of the instance that the class makes a property
class O: v = 1.
o = O()
o.v = 2.
def f(t): return t * o.v
-- O.v = property(lambda s: 9.)
== the class that an object claims to have
class O:
    @property
    def __class__(self): return kind
kind, o = int, O()
def f(t): return t * (2. if isinstance(o, int) else 3.) * (1. if o.__class__ is int else 5.)
-- kind = float
== special methods that are static, class and partial methods
scale = 2.
class O:
    @staticmethod
    def __neg__(): return scale
    @classmethod
    def __add__(cls, o): return scale + o
    __len__ = staticmethod(functools.partial(lambda: int(scale)))  # from Python 3.14 on, a partial is bound as a function is
    __str__ = functools.partialmethod(lambda self, n: "s" * int(scale + n), 1)
o = O()
def f(t): return t * -o * (o + 1) * len(o) * len(f"{o}")
-- scale = 3.
== special methods that are callable objects and bound methods
class C:
    v = 2
    def __call__(self, *x): return self.v
c = C()
class O:
    __index__ = c
    __getitem__ = c.__call__
    @functools.lru_cache
    def behind_cache(self): return 5
    __call__ = behind_cache
o = O()
def f(t): return t * range(9)[o] * o[1] * o()
-- c.v = 3
== an `__init__` that is a partial method
scale = 2.
class O:
    def put(self, n): self.v = n * scale
    __init__ = functools.partialmethod(put, 4)
def f(t): return t * O().v
-- scale = 3.
== a class derived from that of partial functions
class Bound(functools.partial): pass
scale = [2.]
def times(n, t): return t * n * scale[0]
triple = Bound(times, 3.)
def f(t): return triple(t) + Bound(times, 5.)(t)
-- scale[0] = 7.
== another object of a class derived from that of partial functions, with a `func` of its own
class Bound(functools.partial):
    __slots__ = "func"
    def __init__(self, func): self.func = None
def times(n, t): return t * n
bound = Bound(functools.partial(times, 3.))
def f(t): return bound(t)
-- bound = Bound(functools.partial(times, 5.))
== a class derived from that of weak references
class Ref(weakref.ref): pass
class O: v = 2.
o = O()
seen = Ref(o)
def f(t): return t * seen().v
-- o.v = 3.
== a base gets an attribute
class P: pass
class O(P): pass
def f(t): return t * 2 if hasattr(O(), "v") else t * 3
-- P.v = 3.
== a class gets an attribute that is read from it
class O: pass
def f(t): return t * getattr(O, "v", 7.)
-- O.v = 3.
== a metaclass gets an attribute
class M(type): pass
class O(metaclass=M): pass
def f(t): return t * getattr(O, "v", 7.)
-- M.v = 3.
== the truth of an object of the program
class O: pass
def f(t): return t * 2 if O() else t * 3
-- O.__bool__ = lambda s: False
== equality of objects of the program
class O: pass
def f(t): return t * 2 if O() == O() else t * 3
-- O.__eq__ = lambda s, o: True
== an operator on the right
class O: pass
def f(t):
    try: return t * (1 + O())
    except TypeError: return t * 9
-- O.__radd__ = lambda s, o: 5.
== an operator in place
class O:
    def __add__(self, o): return 2.
def f(t):
    o = O()
    o += 1
    return t * o
-- O.__iadd__ = lambda s, o: 5.
== text of an object of the program
class O:
    def __repr__(self): return "ab"
def f(t): return t * len(f"{O()}")
-- O.__str__ = lambda s: "abcdef"
== text of an exception
class E(Exception): pass
def f(t):
    try: raise E("a")
    except Exception as e: return t * len(str(e))
-- E.__str__ = lambda s: "abcdef"
== the keys of an object of the program
class O: pass
def f(t): return t * len({O(): 1, O(): 2})
-- O.__hash__ = lambda s: 1; O.__eq__ = lambda s, o: True
== a missing key of a dict of the program
class O(dict): pass
def f(t):
    try: return t * O()["a"]
    except KeyError: return t * 9
-- O.__missing__ = lambda s, k: 4.
== a list of the program counts its items
class O(list): pass
def f(t): return t * len(O([1]))
-- O.__len__ = lambda s: 9
== setting an attribute
class O: pass
def f(t):
    o = O()
    o.v = 2.
    return t * o.v
-- O.__setattr__ = lambda s, n, v: object.__setattr__(s, n, v * 10)
== reading an attribute
class O: v = 2.
def f(t): return t * O().v
-- O.__getattribute__ = lambda s, n: 3.
== an object that becomes callable
class O: pass
def f(t): return t * 2 if callable(O()) else t * 3
-- O.__call__ = lambda s: 1
== super finds another
class A:
    def m(self): return 1.
class Z(A): pass
class B(Z):
    def m(self): return super().m() + 1
b = B()
def f(t): return t * b.m()
-- Z.m = lambda s: 10.
== super with other bases
class A:
    def m(self): return 1.
class C(A):
    def m(self): return 100.
class B(A):
    def m(self): return super().m() + 1
def f(t): return t * B().m()
-- B.__bases__ = (C,)
== a class of the program with a base outside
class B:
    k = 2.
    def m(self, t): return t * self.k
def f(t):
    class A(B):
        def m(self, t): return super().m(t) + 1
    return A().m(t)
-- B.k = 3.
== torch's own call of modules is replaced
m = nn.ReLU()
old = nn.Module.__call__
def f(t): return m(t - 1)
def reset(): nn.Module.__call__ = old
-- nn.Module.__call__ = lambda self, t: t * 3
== the hash of a key has changed
class K:
    def __init__(self, h): self.h = h
    def __hash__(self): return self.h
k = K(1)
c = collections.Counter({k: 4})
def f(t): return t * sum((c + c).values())
-- k.h = 7
== the hash of a key in a copy
class K:
    def __init__(self, h): self.h = h
    def __hash__(self): return self.h
k = K(1)
c = {k: 4}
def f(t):
    d = dict(c)
    d[k] = 1
    return t * len(d)
-- k.h = 7
== the hash of a key of an OrderedDict
class K:
    def __init__(self, h): self.h = h
    def __hash__(self): return self.h
k = K(1)
c = collections.OrderedDict({k: 2})
def f(t): return t * c.get(k, 7)
-- k.h = 7
== the hash of an item of a set
class K:
    def __init__(self, h): self.h = h
    def __hash__(self): return self.h
k = K(1)
c = frozenset([k])
def f(t): return t * len(set(c) | {k})
-- k.h = 7
== a bound method as key
class O:
    def m(self): pass
o, p = O(), O()
T = {o.m: 2., p.m: 3.}
def args(i): return torch.ones(2), [o, p][i]
def f(t, k): return t * T[k.m]
-- pass
== bound methods are compared
class O:
    def m(self): pass
o, p = O(), O()
def args(i): return torch.ones(2), [o, p][i]
def f(t, k): return t * 2 if k.m == o.m else t * 3
-- pass
== a weak key
class O: pass
o, p = O(), O()
T = weakref.WeakKeyDictionary({o: 2., p: 3.})
def args(i): return torch.ones(2), [o, p][i]
def f(t, k): return t * T[k]
-- pass
== a negative index into a deque
class D(collections.deque):
    def __len__(self): return N
N = 2
d = D([1., 2., 3.])
def f(t): return t * d[-1]
-- N = 1
== a negative index into a deque of the program
class D(collections.deque):
    def __len__(self): return N
N = 2
def f(t): return t * D([1., 2., 3.])[-1]
-- N = 3
== the hooks of an abstract class are asked again
import abc
class A(abc.ABC):
    @classmethod
    def __subclasshook__(cls, c): return FLAG
class B: pass
FLAG, b = True, B()
def f(t): return t * 2 if isinstance(b, A) else t * 3
-- FLAG = False; A._abc_caches_clear()
== a class is registered no longer
import abc
class A(abc.ABC): pass
class B: pass
A.register(B)
def f(t): return t * 2 if issubclass(B, A) else t * 3
-- A._abc_registry_clear(); A._abc_caches_clear()
== text of a dict with objects as keys
class P:
    def __init__(self, n): self.n = n
    def __repr__(self): return "P" * self.n
p = {P(1): 2}
def f(t): return t * len(str(p))
-- list(p)[0].n = 5
== the order of an OrderedDict counts
a, b = collections.OrderedDict(a=1., b=2.), collections.OrderedDict(a=1., b=2.)
class D(collections.OrderedDict): pass
c = D(a=1., b=2.)
def f(t): return t * (2 if a == b else 3) * (5 if c == a else 7)
-- b.move_to_end("a"); c.move_to_end("a")
== what C code looks up in a dict with __missing__
class D(dict):
    size = 2
    def __missing__(s, k): return "?" * s.size
d = D(a="b")
def f(t): return t * len("%(a)s%(q)s" % d) + len("{a}{q}".format_map(d)) + len("ab".translate(D({97: "b"})))
-- D.size = 5
== what C code looks up in a dict with __getitem__
class D(dict):
    size = 2
    def __getitem__(s, k): return super().__getitem__(k) * s.size
d = D(a="b")
def f(t): return t * len("%(a)s" % d) + len("{a}".format_map(d))
-- D.size = 5
== a base is replaced by one that has what was lacking
class A: pass
class B:
    def m(self): return 2.0
class C(A): pass
c = C()
def f(t): return t * (c.m() if hasattr(c, "m") else 7.0)
-- C.__bases__ = (B,)
== a base is replaced by one with a truth
class A: pass
class B:
    def __len__(self): return 0
class C(A): pass
c = C()
def f(t): return t * (1.0 if c else 7.0)
-- C.__bases__ = (B,)
== a base is replaced by one that compares
class A: pass
class B:
    def __eq__(self, other): return True
    __hash__ = object.__hash__
class C(A): pass
c, d = C(), C()
def f(t): return t * (1.0 if c == d else 7.0) + (1.0 if c in [d] else 3.0)
-- C.__bases__ = (B,)
== a base is replaced, and isinstance asks
class A: pass
class B: pass
class C(A): pass
c = C()
def f(t): return t * (1.0 if isinstance(c, A) else 7.0) * (1.0 if issubclass(C, A) else 3.0)
-- C.__bases__ = (B,)
== a base is replaced, and `except` asks
class A(Exception): pass
class B(Exception): pass
class C(A): pass
def f(t):
    try: raise C
    except A: return t
    except Exception: return t * 2
-- C.__bases__ = (B,)
== an attribute of a class becomes a descriptor
class D: k = 2.0
class C: p = D()
c = C()
def f(t): return t * c.p.k
-- D.__get__ = lambda self, owner, cls: torch.nn.Module if owner is None else types.SimpleNamespace(k=5.0)
== a descriptor comes before the instance
class D:
    def __get__(self, owner, cls): return 2.0
class C: p = D()
c = C()
c.__dict__["p"] = 5.0
def f(t): return t * c.p
-- D.__set__ = lambda self, owner, value: None
== an abstract class gets its methods
class A(abc.ABC):
    @abc.abstractmethod
    def m(self): ...
class B(A):
    def m(self): return 2.0
    @abc.abstractmethod
    def n(self): ...
def f(t):
    try: return t * B().m()
    except TypeError: return t
-- B.n = lambda self: 1; abc.update_abstractmethods(B)
== what a property of a derived class reads
class P(property): pass
k = [2.0]
class C:
    @P
    def p(self): return lambda: k[0]
c = C()
def f(t): return t * c.p()
-- k[0] = 5.0
== what class methods around other callables read
k = 2.0
class G:
    def __call__(self, cls, t): return t * k
class M(classmethod): pass
class S(staticmethod): pass
class C:
    a = classmethod(G())
    b = classmethod(functools.partial(lambda n, cls, t: t * n * k, 3.0))
    c = M(lambda cls, t: t * k)
    d = S(lambda t: t + k)
def f(t): return C.a(t) + C().a(t) + C.b(t) + C().b(t) + C.c(t) + C().c(t) + C.d(t) + C().d(t)
-- k = 5.0
== what a class reads that is called by an alias of it
class Box:
    k = 2.0
    __class_getitem__ = classmethod(types.GenericAlias)
    def __init__(self, v): self.v = v * self.k
alias = Box[int]
def f(t): return t * alias(3.0).v * Box[str](1.0).v * len(alias(1.0).__orig_class__.__args__)
-- Box.k = 5.0
== a metaclass finds attributes in Python
k = 2.0
class M(type):
    def __getattribute__(cls, name): return k if name == "q" else super().__getattribute__(name)
class C(metaclass=M):
    q, r = 100.0, 3.0
def f(t): return t * C.q * C.r
-- k = 5.0
"""

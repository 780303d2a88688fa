"""The programs of `stale_programs` about registries: abstract classes, attributes of classes, modules, settings of the process."""

from __future__ import annotations

TEXT = r"""
== an attribute of a threading.local by getattr
loc = threading.local(); loc.v = 1.0
def f(t): return t * getattr(loc, "v", 5.0)
-- 
loc.v = 3.0
== the attributes of classes through the descriptor of type
class A: pass
get = type.__dict__["__dict__"].__get__
def f(t): return t + sum([2 ** i for i, kind in enumerate((type, object, A)) if "__dict__" in get(kind)]) + ("v" in get(A))
-- 
A.v = 1
== an attribute that a threading.local lacks
loc = threading.local()
def f(t): return t * getattr(loc, "v", 5.0)
-- 
loc.v = 3.0
== hasattr of a threading.local
loc = threading.local()
def f(t): return t * 2 if hasattr(loc, "v") else t
-- 
loc.v = 3.0
== the dict of a threading.local
loc = threading.local()
def f(t): return t * loc.__dict__.get("v", 1.0)
-- 
loc.v = 3.0
== a subclass of threading.local
class L(threading.local):
    v = 1.0
loc = L()
def f(t): return t * loc.v
-- 
loc.v = 2.0
== a class is registered with an abstract one
import abc
class A(abc.ABC): pass
class B: pass
b = B()
def f(t): return t * 2 if isinstance(b, A) else t
-- 
A.register(B)
== issubclass of an abstract class
import abc
class A(abc.ABC): pass
class B: pass
def f(t): return t * 2 if issubclass(B, A) else t
-- 
A.register(B)
== a class becomes a sequence for match
import abc
class B:
    def __len__(self): return 2
    def __getitem__(self, i): return [1.0, 2.0][i]
b = B()
def f(t):
    match b:
        case [x, y]: return t * y
        case _: return t * 5
-- 
collections.abc.Sequence.register(B)
== an abstract class is registered with another
import abc
class A(abc.ABC): pass
class C(abc.ABC): pass
class B: pass
b = B()
def f(t): return t * 2 if isinstance(b, A) else t
-- 
A.register(C)
== a class gets what a __subclasshook__ wants
import abc
class A(abc.ABC):
    @classmethod
    def __subclasshook__(cls, C): return True if hasattr(C, "go") else NotImplemented
class B: pass
b = B()
def f(t): return t * 2 if isinstance(b, A) else t
-- 
B.go = 1; A._abc_caches_clear() if hasattr(A, "_abc_caches_clear") else None
A.register(int)
== an object gets what a protocol wants
import typing
@typing.runtime_checkable
class P(typing.Protocol):
    v: int
class B: pass
b = B()
def f(t): return t * 2 if isinstance(b, P) else t
-- 
b.v = 1
== a class gets what a protocol wants
import typing
@typing.runtime_checkable
class P(typing.Protocol):
    def go(self): ...
class B: pass
b = B()
def f(t): return t * 2 if isinstance(b, P) else t
-- 
B.go = lambda self: 1
== a protocol in a union
import typing
@typing.runtime_checkable
class P(typing.Protocol):
    v: int
class B: pass
b = B()
def f(t): return t * 2 if isinstance(b, str | P) else t
-- 
b.v = 1
== a class is registered with the abstract one of a dispatch
import abc
@functools.singledispatch
def g(x): return 1.0
class A(abc.ABC): pass
g.register(A, lambda x: 3.0)
class B: pass
b = B()
g(b)
def f(t): return t * g(b)
-- 
A.register(B)
== a __subclasscheck__ of a metaclass
class M(type):
    def __subclasscheck__(cls, x): return cls.on
class A(metaclass=M): on = False
class B: pass
def f(t): return t * 2 if issubclass(B, A) else t
-- 
A.on = True
== a method of tensors is replaced
def f(t): return t.relu()
def reset():
    if hasattr(torch.Tensor, "_old"): torch.Tensor.relu = torch.Tensor._old; del torch.Tensor._old
-- 
torch.Tensor._old = torch.Tensor.relu; torch.Tensor.relu = lambda self: self * 3
== a method of tensors in Python is replaced
def f(t): return t.split(2)[0]
old = torch.Tensor.split
def reset(): torch.Tensor.split = old
-- 
torch.Tensor.split = lambda self, n: (self * 3, self)
== an operator of tensors is replaced
def f(t): return t + 1
def reset():
    if "__add__" in vars(torch.Tensor): del torch.Tensor.__add__
-- 
torch.Tensor.__add__ = lambda self, o: self * 30
== tensors get a method
def f(t): return t.double_it() if hasattr(t, "double_it") else t
def reset():
    if hasattr(torch.Tensor, "double_it"): del torch.Tensor.double_it
-- 
torch.Tensor.double_it = lambda self: self * 2
== a patched method of tensors
torch.Tensor.double_it = lambda self: self * 2
def f(t): return t.double_it()
def reset():
    if hasattr(torch.Tensor, "double_it"): del torch.Tensor.double_it
-- 
torch.Tensor.double_it = lambda self: self * 4
== a patched property of tensors
torch.Tensor.twice = property(lambda self: self * 2)
def f(t): return t.twice
def reset():
    if hasattr(torch.Tensor, "twice"): del torch.Tensor.twice
-- 
torch.Tensor.twice = property(lambda self: self * 4)
== a patched number of tensors
torch.Tensor.kk = 2.0
def f(t): return t * t.kk
def reset():
    if hasattr(torch.Tensor, "kk"): del torch.Tensor.kk
-- 
torch.Tensor.kk = 4.0
== a method of tensors by getattr
def f(t): return getattr(t, "sig" + "moid")()
old = torch.Tensor.sigmoid
def reset():
    if torch.Tensor.sigmoid is not old: torch.Tensor.sigmoid = old
-- 
torch.Tensor.sigmoid = lambda self: self * 3
== import finds another module
import sys
sys.modules["fake_mod"] = types.ModuleType("fake_mod"); sys.modules["fake_mod"].k = 2.0
def f(t):
    import fake_mod
    return t * fake_mod.k
def reset(): sys.modules.pop("fake_mod", None)
-- 
sys.modules["fake_mod"] = types.ModuleType("fake_mod"); sys.modules["fake_mod"].k = 3.0
== from import finds another module
import sys
sys.modules["fake_mod"] = types.ModuleType("fake_mod"); sys.modules["fake_mod"].k = 2.0
def f(t):
    from fake_mod import k
    return t * k
def reset(): sys.modules.pop("fake_mod", None)
-- 
sys.modules["fake_mod"] = types.ModuleType("fake_mod"); sys.modules["fake_mod"].k = 3.0
== a module that could not be imported
import sys
def f(t):
    try:
        import fake_mod
        return t * 2
    except ImportError: return t
def reset(): sys.modules.pop("fake_mod", None)
-- 
sys.modules["fake_mod"] = types.ModuleType("fake_mod")
== a module that can no longer be imported
import sys
def f(t):
    try:
        import colorsys
        return t * 2
    except ImportError: return t
def reset(): sys.modules.pop("colorsys", None)
-- 
sys.modules["colorsys"] = None
== __import__ finds another module
import sys
sys.modules["fake_mod"] = types.ModuleType("fake_mod"); sys.modules["fake_mod"].k = 2.0
def f(t): return t * __import__("fake_mod").k
def reset(): sys.modules.pop("fake_mod", None)
-- 
sys.modules["fake_mod"] = types.ModuleType("fake_mod"); sys.modules["fake_mod"].k = 3.0
== another forward of an autograd.Function
class G(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x * 2
    @staticmethod
    def backward(ctx, g): return g * 2
def f(t): return G.apply(t)
-- 
G.forward = staticmethod(lambda ctx, x: x * 7)
== a slot by its descriptor
class S: __slots__ = ("a",)
s = S(); d = S.__dict__["a"]
def f(t):
    try: return t * d.__get__(s, S)
    except AttributeError: return t
-- 
s.a = 3.0
== the text of a SimpleNamespace
n = types.SimpleNamespace(a=1)
def f(t): return t * len(repr(n))
-- 
n.a = 200
== the names in the dict of a class
class A: k = 1
def f(t): return t * len([n for n in A.__dict__ if not n.startswith("_")]) * A.__dict__["k"]
-- 
A.b = 1
== vars of a class
class A: k = 1
def f(t): return t * len([n for n in vars(A) if not n.startswith("_")]) * vars(A)["k"]
-- 
A.k = 4
== dir of a module
m = types.ModuleType("mm"); m.a = 1
def f(t): return t * len([n for n in dir(m) if not n.startswith("_")])
-- 
m.b = 1
== dir of an object
class A: pass
a = A()
def f(t): return t * len([n for n in dir(a) if not n.startswith("_")])
-- 
a.b = 1
== dir of an object, whose class changes
class A: pass
a = A()
def f(t): return t * len([n for n in dir(a) if not n.startswith("_")])
-- 
A.b = 1
== the subclasses of a class
class A: pass
def f(t): return t * (1 + len(A.__subclasses__()))
-- 
class B(A): pass
== a setting of the interpreter
import sys
def f(t): return t * sys.get_int_max_str_digits()
def reset(): sys.set_int_max_str_digits(4300)
-- 
sys.set_int_max_str_digits(5000)
== a file that is not there
import os
import tempfile
D = tempfile.TemporaryDirectory()
P = os.path.join(D.name, "x")
def f(t): return t * (2 if os.path.exists(P) else 3)
def reset(): D.cleanup()
-- 
open(P, "w").close()
== the precision of decimal
import decimal
d = decimal.Decimal(1)
def f(t): return t * float(d / 3)
def reset(): decimal.getcontext().prec = 28
-- 
decimal.getcontext().prec = 3
== how NumPy handles errors
import numpy as np
a = np.array([1.0, 0.0])
def f(t): return t * np.geterr()["divide"].__len__()
def reset(): np.seterr(divide="warn")
-- 
np.seterr(divide="ignore")
== how NumPy prints
import numpy as np
a = np.array([1.123456789, 0.0])
def f(t): return t * len(str(a))
def reset(): np.set_printoptions(precision=8)
-- 
np.set_printoptions(precision=2)
== views of a dict from outside
d = {"a": 1}; v = d.values(); k = d.keys(); i = d.items()
def f(t): return t * sum(v) * len(k) * len(i)
-- 
d["b"] = 5
== what is in a view of a dict
d = {"a": 1}; v = d.values(); k = d.keys(); i = d.items()
def f(t): return t * (2 if "b" in k else 3) * (5 if 5 in v else 7) * (2 if ("b", 5) in i else 1)
-- 
d["b"] = 5
== a set operation of a view
d = {"a": 1}; k = d.keys()
def f(t): return t * len(k & {"a", "b"})
-- 
d["b"] = 5
== the key of an itemgetter from outside
import operator
get = operator.itemgetter(0)
def f(t): return t * get([5, 6])
-- 
get = operator.itemgetter(1)
== a generic alias as a key
kind, table = list[int], {list[int]: 2.0}
def f(t): return t * table.get(kind, 3.0)
-- 
kind = list[str]
== a union from outside
kinds = int | str
def f(t): return t * 2 if isinstance("a", kinds) else t
-- 
kinds = int | bytes
== the text of an exception
errors = [ValueError(1)]
def f(t): return t * int(str(errors[0]))
-- 
errors[0].args = (2,)
== a template that is filled by a method of C code
import string
class Box: n = 1
box = Box()
box.n = 2
string.Template.pattern  # Python 3.14 compiles it when it is first read
def f(t): return t * int(string.Template("$n").substitute(vars(box)))
-- 
box.n = 5
== the closure of a property
def made():
    k = 1
    def get(self): return k
    return get
class A: p = property(made())
a = A()
def f(t): return t * a.p
-- 
A.p.fget.__closure__[0].cell_contents = 4
== a class gets a __getattr__
class A: pass
a = A()
def f(t): return t * getattr(a, "missing", 2)
-- 
A.__getattr__ = lambda self, name: 5
== a class gets a __format__
class A:
    def __str__(self): return "a"
a = A()
def f(t): return t * len(f"{a}")
-- 
A.__format__ = lambda self, spec: "aaaa"
== a bound method as a key
class A:
    def m(self): pass
a, b = A(), A()
key, table = a.m, {a.m: 1.0, b.m: 3.0}
def f(t): return t * table[key]
-- 
key = b.m
== an int with an __index__ of its own
class I(int):
    def __index__(self): return 1
k = I(0)
def f(t): return t * [5, 6][k]
-- 
k = I(1)
"""

"""The programs of `stale_programs` about classes and instances."""

from __future__ import annotations

BOX = """
class Box:
    k = 2.0
    def __init__(self, v=1.0):
        self.v, self.items = v, [1.0]
    def m(self, t):
        return t * self.v * self.k
    @property
    def prop(self):
        return self.v * 3
    @staticmethod
    def st(t):
        return t * 2
    @classmethod
    def cm(cls, t):
        return t * cls.k
    def __mul__(self, t):
        return t * self.v
    def __call__(self, t):
        return t - self.v
    def __len__(self):
        return len(self.items)
    def __contains__(self, x):
        return x in self.items
    def __getitem__(self, i):
        return self.items[i] * self.v
    def __eq__(self, other):
        return self.v == other
    def __iter__(self):
        return iter(self.items)
    def __getattr__(self, name):
        if name == "dynamic":
            return self.v * 7
        raise AttributeError(name)
box = Box()
"""
ITEMS = """
class Items:
    def __getitem__(self, i):
        if i > 2:
            raise IndexError
        return K * i
    def __len__(self): return 3
class Count:
    def __init__(self): self.i = 0
    def __iter__(self): return self
    def __next__(self):
        self.i += 1
        if self.i > 3:
            raise StopIteration
        return K * self.i
K = 2.0
"""
OWN = """
K = 2
class Own(dict):
    def __contains__(self, key): return K == 5
    def __len__(self): return K
    def __iter__(self): return iter([K])
class OwnList(list):
    def __len__(self): return K
    def __iter__(self): return iter([K])
class OwnTuple(tuple):
    def __len__(self): return K
    def __iter__(self): return iter([K])
class OwnSet(set):
    def __len__(self): return K
    def __iter__(self): return iter([K])
"""
TEXT = """
== a class attribute
BOX
def f(t): return box.m(t)
-- Box.k = 7.0
== a class attribute read from the class
BOX
def f(t): return t * Box.k
-- Box.k = 7.0
== the closure of a class method that is called on the class
def made():
    k = [2.0]
    class C:
        @classmethod
        def m(cls): return k[0]
    return C, k
C, k = made()
def f(t): return t * C.m()
-- k[0] = 7.0
== the closure of a method that makes a class subscriptable
def made():
    k = [2.0]
    class C:
        def __class_getitem__(cls, i): return k[0] * i
    return C, k
C, k = made()
def f(t): return t * C[3]
-- k[0] = 7.0
== a descriptor that is read from the class
k = 2.0
class D:
    def __get__(self, owner, cls): return k
class C: p = D()
def f(t): return t * C.p
-- k = 7.0
== the closure of a constructor
def made():
    k = [2.0]
    class I(int):
        def __new__(cls, v): return super().__new__(cls, k[0] * v)
    return I, k
I, k = made()
def f(t): return t * I(2) * sum(map(I, [1, 2]))
-- k[0] = 7.0
== the default of a constructor
class A:
    def __new__(cls, k=[2.0]):
        self = super().__new__(cls)
        self.k = k[0]
        return self
def f(t): return t * A().k
-- A.__new__.__defaults__[0][0] = 7.0
== the constructor of an exception that is thrown into a generator
def made():
    k = [2.0]
    class Stop(Exception):
        def __init__(self): self.k = k[0]
    return Stop, k
Stop, k = made()
def g():
    try: yield 1
    except Stop as e: yield e.k
def f(t):
    steps = g()
    next(steps)
    return t * steps.throw(Stop)
-- k[0] = 7.0
== super() in a class method
k = 2.0
class D:
    def __get__(self, owner, cls): return k
class B:
    p = D()
    @classmethod
    def m(cls): return k
class C(B):
    @classmethod
    def m(cls): return super().m() * super().p
def f(t): return t * C.m()
-- k = 7.0
== C code reads what is in a container, whatever its class makes of it
OWN
d, l, p, s = Own(a=1), OwnList([1, 2]), OwnTuple((1, 2)), OwnSet({1, 2})
def f(t): return t * d["a"] * (2 if p == (1, 2) else 3) * (l.index(2) + l.count(1)) * len(s | {7}) * len(str(d == {"a": 1})) * sum(reversed(p))
-- K = 5
== containers of classes of their own
OWN
d, l, p, s = Own(a=1), OwnList([1, 2]), OwnTuple((1, 2)), OwnSet({1, 2})
def f(t): return t * sum([*l, *p, *s, *d]) * len(l) * len(d) * len(p) * (3 if 9 in d else 4)
-- K = 5
== a default factory below a __missing__ of the program's own
class Filled(collections.defaultdict):
    def __missing__(self, key): return super().__missing__(key) * 2
k = 2.0
def f(t): return t * Filled(lambda: k)["a"]
-- k = 7.0
== a class with __getitem__ alone is iterated
ITEMS
def f(t): return [t * v for v in Items()]
-- K = 70.0
== such a class is taken apart
ITEMS
def f(t): return (lambda a, b, c: [t * a, t * b * c])(*Items())
-- K = 70.0
== such a class is reversed
ITEMS
def f(t): return [t * i * v for i, v in enumerate(reversed(Items()))]
-- K = 70.0
== such a class becomes a tuple
ITEMS
def f(t): return [t * v for v in tuple(Items())]
-- K = 70.0
== an iterator of the program's own becomes a list
ITEMS
def f(t): return [t * v for v in list(Count())]
-- K = 70.0
== an iterator of the program's own is spread
ITEMS
def f(t): return [t * v for v in [*Count()]]
-- K = 70.0
== iterators of the program's own are chained
ITEMS
def f(t): return [t * v for v in itertools.chain(Items(), Count())]
-- K = 70.0
== an iterator of the program's own fills a deque
ITEMS
def f(t): return [t * v for v in collections.deque(Count())]
-- K = 70.0
== an iterator of the program's own is reduced
ITEMS
def f(t): return [t * functools.reduce(operator.add, Count())]
-- K = 70.0
== an iterator of the program's own is multiplied out
ITEMS
def f(t): return [t * math.prod(Count())]
-- K = 70.0
== an iterator of the program's own is joined
ITEMS
def f(t): return [t * len('-'.join(str(v) for v in Count()))]
-- K = 70.0
== an iterator of the program's own extends a list
ITEMS
def f(t): return (lambda out: (out.extend(t * v for v in Count()), out)[1])([])
-- K = 70.0
== a list is reversed
items = [1.0, 2.0]
def f(t): return [t * i * v for i, v in enumerate(reversed(items))]
-- items[0] = 7.0
== a dict is reversed
items = {"a": 1.0, "b": 2.0}
def f(t): return [t * i * items[k] for i, k in enumerate(reversed(items))]
-- items["c"] = 7.0
== an object gets another __dict__
BOX
def f(t): return box.m(t)
-- box.__dict__ = {"v": 7.0, "items": []}
== an object that is called gets another __dict__
BOX
f = box
-- f.__dict__ = {"v": 7.0, "items": []}
== an object that is called becomes one of another class
BOX
class Sub(Box):
    def __call__(self, t): return t * 3
f = box
-- f.__class__ = Sub
== a function gets another __dict__
def f(t): return t * f.k
f.k = 2.0
-- f.__dict__ = {"k": 7.0}
== an object without a name gets another __dict__
BOX
def f(t): return box.items[0].v * t
box.items[0] = Box()
-- box.items[0].__dict__ = {"v": 7.0}
== an inherited class attribute is overridden
BOX
class Sub(Box): pass
box = Sub()
def f(t): return t * box.k
-- Sub.k = 9.0
== an instance attribute
BOX
def f(t): return box.m(t)
-- box.v = 7.0
== an instance attribute hides that of the class
BOX
def f(t): return t * box.k
-- box.k = 11.0
== an instance attribute is deleted
BOX
box.k = 11.0
def f(t): return t * box.k
-- del box.k
== an attribute appears
BOX
def f(t): return t * 2 if hasattr(box, "late") else t
-- box.late = 1
== an attribute with a default appears
BOX
def f(t): return t * getattr(box, "late", 3.0)
-- box.late = 1.0
== the dict of an instance
BOX
def f(t): return t * box.__dict__["v"]
-- box.v = 4.0
== the vars of an instance
BOX
def f(t): return t * vars(box).get("w", 2.0)
-- box.w = 4.0
== a method of a class is replaced
BOX
def f(t): return box.m(t)
-- Box.m = lambda self, t: t - 1
== a method of an instance is replaced
BOX
def f(t): return box.m(t)
-- box.m = lambda t: t - 2
== what a property reads
BOX
def f(t): return t * box.prop
-- box.v = 5.0
== a property is replaced
BOX
def f(t): return t * box.prop
-- Box.prop = property(lambda self: 100.0)
== a static method is replaced
BOX
def f(t): return box.st(t)
-- Box.st = staticmethod(lambda t: t * 5)
== what a class method reads
BOX
def f(t): return box.cm(t)
-- Box.k = 6.0
== what __getattr__ reads
BOX
def f(t): return t * box.dynamic
-- box.v = 3.0
== an operator of a class
BOX
def f(t): return box * t
-- box.v = 6.0
== truth by length
BOX
def f(t): return t + 1 if box else t
-- box.items.clear()
== a callable object
BOX
def f(t): return box(t)
-- box.v = 8.0
== the items of an object
BOX
def f(t): return t * box[0]
-- box.v = 8.0
== the membership of an object
BOX
def f(t): return t + 1 if 5.0 in box else t
-- box.items.append(5.0)
== the equality of an object
BOX
def f(t): return t + 1 if box == 1.0 else t
-- box.v = 5.0
== the iteration of an object
BOX
def f(t): return t * sum(box)
-- box.items.append(5.0)
== a fresh instance reads its class
BOX
def f(t): return t * Box(2.0).k
-- Box.k = 70.0
== __init__ is replaced
BOX
def f(t): return t * Box(2.0).v
-- Box.__init__ = lambda self, v: setattr(self, "v", v * 10)
== super finds another method
BOX
class Sub(Box):
    def m(self, t): return super().m(t) + 1
box = Sub()
def f(t): return box.m(t)
-- Box.m = lambda self, t: t * 100
== isinstance
BOX
flag = Box()
def f(t): return t + 1 if isinstance(flag, Box) else t
-- flag = {}
== the type of an object
BOX
flag = {}
def f(t): return t + 1 if type(flag) is dict else t
-- flag = Box()
== two names for one list
BOX
a, b = Box(), Box()
b.items = a.items
def f(t): return t + 1 if a.items is b.items else t
-- b.items = [1.0]
== two names for one list, whose items are read
BOX
a, b = Box(), Box()
b.items = a.items
def f(t): return t * a.items[0] + b.items[0]
-- b.items = [5.0]
== a weak reference
BOX
r = weakref.ref(box)
def f(t): return t * r().v
-- box.v = 9.0
== itemgetter and attrgetter
BOX
d = {"k": 2.0}
def f(t): return t * operator.itemgetter("k")(d) * operator.attrgetter("v")(box) + operator.methodcaller("m", 1.0)(box)
-- d["k"], box.v = 4.0, 8.0
"""

"""Programs in which something outside the arguments changes between two calls: name, program, change.

Each runs in a fresh module with the libraries that the test names.  `f` is what is compiled, `args(i)` what it is called with before (0)
and after (1) the change; without it that is one tensor.
"""

from __future__ import annotations

import re

TEXT = """
== a global number
scale = 2.0
def f(t): return t * scale
-- scale = 5.0
== a global number changes its type
scale = 2
def f(t): return t.long() * scale
-- scale = 2.0
== one becomes True
flag = 1
def f(t): return t + 1 if flag is True else t
-- flag = True
== zero changes its sign
zero = 0.0
def f(t): return t * math.copysign(1.0, zero)
-- zero = -0.0
== a number becomes NaN and stays it
v = 1.0
def f(t): return t + (1 if v != v else 2)
-- v = float("nan")
== a string
mode = "sum"
def f(t): return t.sum() if mode == "sum" else t.mean()
-- mode = "mean"
== a list grows
ns = [1.0, 2.0]
def f(t): return sum([t * n for n in ns])
-- ns.append(7.0)
== a list is assigned to a slice of one made inside
ns = [1.0, 2.0]
def f(t):
    own = []
    own[:] = ns
    own[1:1] = ns
    return t * own[0] + own[1]
-- ns[0] = 5.0
== a list is assigned to a slice by a method
ns = [1.0, 2.0]
def f(t):
    own = [0.0]
    list.__setitem__(own, slice(None), ns)
    own.__iadd__(ns)
    return t * own[0] + own[2]
-- ns[0] = 5.0
== the items of lists made inside from one outside
ns = [1.0, 2.0]
class Own(list):
    def __init__(self, items): super().__init__(items)
def f(t): return t * collections.UserList(ns)[0] + Own(ns)[0] + collections.UserList(ns).data[1]
-- ns[:] = [5.0, 7.0]
== bytes are assigned to a slice
ns = [1, 2]
def f(t):
    own = bytearray(b"abc")
    own[:] = ns
    return t * own[0]
-- ns[0] = 5
== objects that are ints to C code are sizes and indices
class Count:
    n = 1
    def __index__(self): return self.n
count = Count()
def f(t):
    shape = torch.Size([count])
    return t[count], t[:, count:], t.narrow(0, count, 1), t.expand(count, 4, 4), torch.zeros(count), shape, slice(count).indices(4)
-- count.n = 2
== an item of a list
ns = [1.0, 2.0]
def f(t): return t * ns[0]
-- ns[0] = 9.0
== the last item of a list
ns = [1.0, 2.0]
def f(t): return t * ns[-1]
-- ns.append(5.0)
== a slice of a list
ns = [1.0, 2.0, 3.0]
def f(t): return t * sum(ns[1:])
-- ns[2] = 30.0
== a nested list
ns = [[1.0], [2.0, 3.0]]
def f(t): return t * ns[1][0]
-- ns[1][0] = 8.0
== the index of an item
ns = [1.0, 2.0, 3.0]
def f(t): return t * ns.index(3.0)
-- ns.insert(0, 0.0)
== a list is emptied
flag = [1]
def f(t): return t + 1 if flag else t
-- flag.clear()
== a list is sorted in the program
ns = [3.0, 1.0]
def f(t): return t * sorted(ns)[0]
-- ns.append(0.5)
== a list is compared
ns = [1, 2]
def f(t): return t + 1 if ns == [1, 2] else t
-- ns[1] = 3
== a tuple is replaced
ns = (1.0, 2.0)
def f(t):
    a, b = ns
    return t * a + b
-- ns = (1.0, 5.0)
== the ends of a list
ns = [1.0, 2.0, 3.0]
def f(t):
    first, *rest = ns
    return t * first * len(rest)
-- ns.append(4.0)
== a dict gains a key
opts = {"a": 1.0}
def f(t): return t + sum(opts.values())
-- opts["z"] = 4.0
== a missing key appears
opts = {"a": 1.0}
def f(t): return t + opts.get("new", 0.0)
-- opts["new"] = 3.0
== a key is looked for
opts = {"a": 1.0}
def f(t): return t + 1 if "kk" in opts else t - 1
-- opts["kk"] = 1
== a lookup stops failing
opts = {}
def f(t):
    try:
        return t * opts["late"]
    except KeyError:
        return t
-- opts["late"] = 4.0
== the order of a dict
opts = {"a": 1.0, "b": 2.0}
def f(t): return t * list(opts)[0].__len__() + opts[list(opts)[0]]
-- opts["a"] = opts.pop("a")
== a dict of keyword arguments
opts = {"k": 2.0}
def g(t, k): return t * k
def f(t): return g(t, **opts)
-- opts["k"] = 5.0
== items of a dict
opts = {"a": 1.0, "q": 2.0}
def f(t): return t * sum([v for k, v in opts.items() if k != "q"])
-- opts["a"] = 50.0
== an item of a set
some = {1, 2}
def f(t): return t + 1 if 3 in some else t
-- some.add(3)
== the sum of a set
some = {1, 2}
def f(t): return t * sum(some)
-- some.add(3)
== a deque turns
some = collections.deque([1.0, 2.0])
def f(t): return t * some[0]
-- some.rotate(1)
== an ordered dict
some = collections.OrderedDict(a=1.0)
def f(t): return t * some["a"]
-- some["a"] = 3.0
== a function is rebound
helper = lambda v: v * 2
def f(t): return helper(t)
-- helper = lambda v: v * 3
== the code of a function is replaced
def helper(v): return v * 2
def other(v): return v * 5
def f(t): return helper(t)
-- helper.__code__ = other.__code__
== a default is replaced
def helper(v, k=2.0): return v * k
def f(t): return helper(t)
-- helper.__defaults__ = (8.0,)
== a default is changed in place
def helper(v, k=[2.0]): return v * k[0]
def f(t): return helper(t)
-- helper.__defaults__[0][0] = 8.0
== a keyword-only default
def helper(v, *, k=2.0): return v * k
def f(t): return helper(t)
-- helper.__kwdefaults__.update(k=8.0)
== an attribute of a function
def helper(v): return v * helper.k
helper.k = 2.0
def f(t): return helper(t)
-- helper.k = 8.0
== a closure
def make():
    k = 2.0
    def f(t): return t * k
    def change():
        nonlocal k
        k = 3.0
    return f, change
f, change = make()
-- change()
== a list in the closure of a callee
k = [2.0]
def make():
    inside = k
    def inner(t): return t * inside[0]
    def f(t): return inner(t)
    return f
f = make()
-- k[0] = 4.0
== a slot
class S:
    __slots__ = ("v",)
s = S()
s.v = 2.0
def f(t): return t * s.v
-- s.v = 3.0
== a builtin is hidden
def f(t): return t * max(1, 2)
-- max = min
== a number through a fresh list
scale = 2.0
def f(t):
    a = [scale, 1.0]
    return t * a[0]
-- scale = 12.0
== a number through a generator
scale, ns = 2.0, [1.0, 2.0]
def f(t):
    def gen():
        for n in ns:
            yield n * scale
    return t * sum(gen())
-- scale = 13.0
== a number through an f-string
scale = 2.0
def f(t): return t * float(f"{scale:.1f}")
-- scale = 13.0
== enumerate and zip
ns = [1.0, 2.0]
def f(t): return sum([t * i * a for i, (a, b) in enumerate(zip(ns, ns))])
-- ns[1] = 33.0
== star arguments
ns = [1.0, 2.0]
def f(t): return torch.stack([t * a for a in (lambda *c: c)(*ns)])
-- ns.append(5.0)
== sorted with a key
ns, scale = [1.0, 2.0], 2.0
def f(t): return t * sorted(ns, key=lambda v: v * scale)[0]
-- scale = -1.0
== map, filter and reduce
ns, least = [1.0, 2.0, 3.0], 1.5
def f(t): return t * functools.reduce(lambda a, b: a * b, filter(lambda v: v > least, map(lambda v: v + 0, ns)))
-- least = 2.5
== max with a key
ns, sign = [1.0, 2.0], 1
def f(t): return t * max(ns, key=lambda v: v * sign)
-- sign = -1
== keywords of a partial
p = functools.partial(lambda t, k: t * k, k=2.0)
def f(t): return p(t)
-- p.keywords.update(k=5.0)
== None becomes an object
flag = None
def f(t): return t if flag is None else t + 1
-- flag = [1]
== an object becomes None
flag = [1]
def f(t): return t if flag is None else t + 1
-- flag = None
== match on what an object is
flag = {"k": 1}
def f(t):
    match flag:
        case {"k": v}: return t * v
        case _: return t - 1
-- flag["k"] = 6
== match on whether an object is a sequence
flag = [1.0]
def f(t):
    match flag:
        case [*_]: return t * 2
        case _: return t - 1
-- flag = {}
== a class in C is made of a container
ns = [1.0, 2.0]
def f(t): return t * collections.deque(ns)[-1] + len(collections.OrderedDict.fromkeys(ns)) + sum(itertools.chain(ns, dict(a=1.0).values()))
-- ns[1] = 6.0
== a field of a dataclass
@dataclasses.dataclass
class C:
    k: float = 2.0
c = C()
def f(t): return t * c.k
-- c.k = 4.0
== a named tuple is replaced
T = collections.namedtuple("T", "a b")
flag = T(1.0, 2.0)
def f(t): return t * flag.b
-- flag = T(1.0, 5.0)
== a member of an enum
class E(enum.Enum):
    A = 1.0
    B = 2.0
e = E.A
def f(t): return t * e.value
-- e = E.B
== a module variable
m = types.ModuleType("m")
m.k = 2.0
def f(t): return t * m.k
-- m.k = 3.0
== a context manager reads
scale = 2.0
@contextlib.contextmanager
def ctx():
    yield scale
def f(t):
    with ctx() as k:
        return t * k
-- scale = 21.0
== a decorated function
scale = 2.0
def twice(g):
    @functools.wraps(g)
    def inner(t): return g(g(t)) * scale
    return inner
@twice
def f(t): return t + 1
-- scale = 3.0
== a context variable
var = contextvars.ContextVar("var")
var.set(2.0)
def f(t): return t * var.get()
-- var.set(3.0)
== a thread's own variable
own = threading.local()
own.v = 2.0
def f(t): return t * own.v
-- own.v = 3.0
== behind functools.lru_cache
scale = 2.0
@functools.lru_cache
def behind_cache(): return scale
def f(t): return t * behind_cache()
-- behind_cache.cache_clear(); scale = 3.0
== an object behind staticmethod
class Scaled:
    k = 2.0
    def __call__(self, t): return t * self.k
scaled = Scaled()
class K: apply = staticmethod(scaled)
def f(t): return K.apply(t)
-- scaled.k = 3.0
== an order by functools.cmp_to_key of objects
class V:
    def __init__(self, v): self.v = v
vs = [V(3.0), V(1.0)]
def f(t): return t * min(vs, key=functools.cmp_to_key(lambda a, b: b.v - a.v)).v + sorted(vs, key=functools.cmp_to_key(lambda a, b: a.v - b.v))[0].v
-- vs[1].v = 8.0
== objects behind a property
class Scaled:
    k = 2.0
    def __call__(self, owner, *value):
        owner.value = value[0] * self.k if value else 0.0
        return self.k
scaled = Scaled()
class K: scale = property(scaled, scaled)
def f(t):
    k = K()
    k.scale = 3.0
    return t * k.value + k.scale
-- scaled.k = 3.0
== a partial behind staticmethod
ks = [2.0]
class K: apply = staticmethod(functools.partial(lambda ks, t: t * ks[0], ks))
def f(t): return K().apply(t)
-- ks[0] = 3.0
== conversions of an object
class Q:
    n = 2
    def __str__(self): return str(self.n)
    def __int__(self): return self.n
    def __abs__(self): return self.n
q = Q()
def f(t): return t * float(str(q)) * int(q) * abs(q)
-- q.n = 3
== a counter of collections
c = collections.Counter("aab")
c.most_common(1)  # imports heapq
def f(t): return t * c["a"] + c.most_common(1)[0][1]
-- c.update("aaa")
== two lists become one
a, b = [1.0, 2.0], [5.0, 6.0]
def f(t):
    a[:] = [1.0, 2.0, 3.0]
    r = t * len(b)
    a[:] = [1.0, 2.0]
    return r
-- b = a
== reversed
ns = [1.0, 2.0]
def f(t): return t * next(reversed(ns))
-- ns.append(3.0)
"""


def programs(text: str, **classes: str) -> list[tuple[str, str, str]]:
    """Name, program and change of each; a line that is the name of one of `classes` stands for it."""
    found = []
    for block in re.split(r"^== ", text, flags=re.MULTILINE)[1:]:
        name, _, rest = block.partition("\n")
        program, _, change = rest.partition("-- ")
        for mark, source in classes.items():
            program = re.sub(rf"^{mark}$", lambda _, source=source: source, program, flags=re.MULTILINE)
        found.append((name, program, change.strip()))
    return found

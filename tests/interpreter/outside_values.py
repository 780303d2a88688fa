"""Where a program may read a value outside, and kinds of values that change there again and again.

`PATHS`: what is outside at first, how the program reads the value, and how it is set to another one, `v`.
`KINDS`: the values, one for each call, and what the program does with one of them.
"""

import numpy as np
import torch


def doubled(x):
    return x * 2


def tripled(x):
    return x * 3 + 1


PATHS = {
    "class": ("class A: n=None", "A.n", "A.n=v"),
    "inherited": ("class B: n=None\nclass A(B): pass", "A.n", "B.n=v"),
    "instance of class": ("class B: n=None\nclass A(B): pass\na=A()", "a.n", "B.n=v"),
    "instance": ("class A: pass\na=A()", "a.n", "a.n=v"),
    "slot": ("class A: __slots__=('n',)\na=A()", "a.n", "a.n=v"),
    "type(self)": ("class A:\n    n=None\n    def g(self): return type(self).n\na=A()", "a.g()", "A.n=v"),
    "classmethod": ("class A:\n    n=None\n    @classmethod\n    def g(cls): return cls.n", "A.g()", "A.n=v"),
    "super": ("class B: n=None\nclass A(B):\n    n=7\n    def g(self): return super().n", "A().g()", "B.n=v"),
    "meta": ("class M(type): n=None\nclass A(metaclass=M): pass", "A.n", "M.n=v"),
    "property": ("class A:\n    k=None\n    @property\n    def n(s): return s.k\na=A()", "a.n", "A.k=v"),
    "cached_property": ("class A:\n    k=None\n    @functools.cached_property\n    def n(s): return s.k", "A().n", "A.k=v"),
    "staticmethod": ("class A:\n    k=None\n    @staticmethod\n    def n(): return A.k", "A.n()", "A.k=v"),
    "module": ("m=types.ModuleType('m')\nm.n=None", "m.n", "m.n=v"),
    "global": ("G=None", "G", "global G; G=v"),
    "globals()": ("G=None", "globals()['G']", "global G; G=v"),
    "closure": ("def make(c):\n    return lambda: c\nh=make(None)", "h()", "h.__closure__[0].cell_contents=v"),
    "default": ("def h(n=None): return n", "h()", "h.__defaults__=(v,)"),
    "kwdefault": ("def h(*,n=None): return n", "h()", "h.__kwdefaults__={'n':v}"),
    "function attr": ("def h(): pass\nh.n=None", "h.n", "h.n=v"),
    "partial arg": ("p=[None]\ndef mk(v): p[0]=functools.partial(lambda n: n, v)\nmk(None)", "p[0]()", "mk(v)"),
    "list": ("l=[None]", "l[0]", "l[0]=v"),
    "list iter": ("l=[None]", "[q for q in l][-1]", "l[0]=v"),
    "tuple": ("t=(None,)", "t[0]", "global t; t=(v,)"),
    "dict": ("d={'n':None}", "d['n']", "d['n']=v"),
    "dict get": ("d={'n':None}", "d.get('n')", "d['n']=v"),
    "dict values": ("d={'n':None}", "list(d.values())[0]", "d['n']=v"),
    "dict, a negative key": ("d={0:7,-1:None}", "d[-1]", "d[-1]=v"),
    "dict items, a negative key": ("d={0:7,-1:None}", "[q for _, q in d.items()][-1]", "d[-1]=v"),
    "defaultdict": ("d=collections.defaultdict(int)", "d['n']", "d['n']=v"),
    "ordered": ("d=collections.OrderedDict(n=None)", "d['n']", "d['n']=v"),
    "chainmap": ("d={'n':None}\nc=collections.ChainMap({},d)", "c['n']", "d['n']=v"),
    "deque": ("q=collections.deque([None])", "q[0]", "q[0]=v"),
    "namespace": ("s=types.SimpleNamespace(n=None)", "s.n", "s.n=v"),
    "namedtuple": ("P=collections.namedtuple('P','n')\nt=P(None)", "t.n", "global t; t=P(v)"),
    "dataclass": ("@dataclasses.dataclass\nclass C:\n    n:object=None\nc=C()", "c.n", "c.n=v"),
    "dataclass replace": ("@dataclasses.dataclass\nclass C:\n    n:object=None\nc=C()", "dataclasses.replace(c).n", "c.n=v"),
    "context": ("cv=contextvars.ContextVar('cv',default=None)", "cv.get()", "cv.set(v)"),
    "thread local": ("tl=threading.local()\ntl.n=None", "tl.n", "tl.n=v"),
    "getattr": ("class A: pass\na=A()", "getattr(a,'n')", "a.n=v"),
    "attrgetter": ("class A: pass\na=A()\ng=operator.attrgetter('n')", "g(a)", "a.n=v"),
    "itemgetter": ("d={'n':None}\ng=operator.itemgetter('n')", "g(d)", "d['n']=v"),
    "vars": ("class A: pass\na=A()", "vars(a)['n']", "a.n=v"),
    "__getattr__": ("class A:\n    def __getattr__(s,k): return D[k]\nD={'n':None}\na=A()", "a.n", "D['n']=v"),
    "__getitem__": ("class A:\n    def __getitem__(s,k): return s.k\na=A()", "a['n']", "a.k=v"),
    "descriptor": ("class D:\n    def __get__(s,o,t=None): return s.k\nd=D()\nclass A: n=d", "A().n", "d.k=v"),
    "weakref": ("class A: pass\na=A()\nr=weakref.ref(a)", "r().n", "a.n=v"),
    "variables of a module": (
        "class Mo(torch.nn.Module): pass\nm=Mo()",
        "m.n",
        "m.__dict__['n']=v",
    ),
    "bound method": ("class A:\n    def g(s): return s.k\na=A()\nb=a.g", "b()", "a.k=v"),
    "callable": ("class A:\n    def __call__(s): return s.k\na=A()", "a()", "a.k=v"),
    "generator": ("l=[None]\ndef g():\n    for q in l: yield q", "next(g())", "l[0]=v"),
    "map": ("l=[None]", "next(map(lambda q:q,l))", "l[0]=v"),
    "sorted key": ("l=[None]", "sorted(l,key=lambda q:0)[0]", "l[0]=v"),
    "exception": ("class E(Exception): pass\ne=E(None)", "e.args[0]", "e.args=(v,)"),
    "match": ("class A:\n    __match_args__=('n',)\na=A()\ndef mm(o):\n    match o:\n        case A(z): return z", "mm(a)", "a.n=v"),
    "star": ("l=[None]", "(lambda *q: q[0])(*l)", "l[0]=v"),
    "kwstar": ("d={'n':None}", "(lambda **q: q['n'])(**d)", "d['n']=v"),
    "unpack": ("l=[None,1]", "(lambda: [z for z,w in [l]][0])()", "l[0]=v"),
    "format": ("class A: pass\na=A()", "(a.n, f'{a!s:.1}')[0]", "a.n=v"),
    "userdict": ("d=collections.UserDict(n=None)", "d['n']", "d['n']=v"),
    "mappingproxy": ("d={'n':None}\nmp=types.MappingProxyType(d)", "mp['n']", "d['n']=v"),
    "enum dict": ("class E(enum.Enum): P=1\nd={E.P:None}", "d[E.P]", "d[E.P]=v"),
    "nested": ("d={'a':[{'b':types.SimpleNamespace(n=(None,))}]}", "d['a'][0]['b'].n[0]", "d['a'][0]['b'].n=(v,)"),
    "set": ("s=set()", "next(iter(s))", "s.clear(); s.add(v)"),
}
KINDS = {
    "int": ([1, 2, 5, 10, 3, 0, -4, 2], "x*v+(1 if v>3 else 2)"),
    "float": ([1.5, 2.5, float("inf"), 0.0, 2.5], "x*v if v==v else x"),
    "bool": ([True, False, True, False], "x if v else -x"),
    "str": (["a", "bb", "ccc", "a"], "x*len(v)+ord(v[0])"),
    "none": ([None, 1, None, 2.5, "s", None], "x if v is None else x*3 if isinstance(v,str) else x*v"),
    "tuple": ([(1, 2), (3,), (4, 5, 6), (1, 2), (7, 8)], "x*v[0]+len(v)"),
    "list": ([[1], [2, 3], [4], [9, 9, 9]], "x*sum(v)+len(v)"),
    "dict": ([{"a": 1}, {"a": 2}, {"b": 3}, {"a": 1, "b": 5}], "x*sum(v.values())+len(v)+('a' in v)"),
    "tensor": ([torch.ones(1), torch.full((1,), 2.0), torch.arange(3.0), torch.tensor(4), torch.ones(1, dtype=torch.float64)], "x*v"),
    "ndarray": ([np.ones(1), np.full(1, 2.0), np.arange(3.0), np.float32(4), np.int64(3), np.int64(5)], "x*torch.as_tensor(v)"),
    "function": ([doubled, tripled, lambda x: x - 1, torch.neg, doubled], "v(x)"),
    "dtype": ([torch.float32, torch.float64, torch.int32, torch.float32], "x.to(v)*2"),
    "class": ([int, float, complex, str], "x*len(v.__name__)"),
    "size": ([torch.Size([1]), torch.Size([2, 1]), torch.Size([3])], "x.expand(v)*len(v)"),
    "slice": ([slice(0, 1), slice(None), slice(0, 0), slice(None, None, 2)], "x[v]"),
    "range": ([range(1), range(3), range(1, 5)], "x*sum(v)+len(v)"),
    "complex": ([1j, 2 + 1j, 0j], "x*v"),
    "bigint": ([2**70, 5, 2**40, 2**63, 1], "x*(v%1000)"),
    "bytes": ([b"a", b"bc", b""], "x*len(v)"),
    "device": ([torch.device("cpu"), torch.device("cpu", 0)], "x.to(v)*(1 if v.index is None else 2)"),
}
HASHABLE = {"int", "float", "bool", "str", "tuple", "complex", "bigint", "bytes"}


def program(path, kind):
    """Return the text of a program that reads a value of a kind by a path."""
    setup, read, put = PATHS[path]
    return f"{setup}\ndef f(x):\n    v = {read}\n    return {KINDS[kind][1]}\ndef put(v):\n    {put}\n"

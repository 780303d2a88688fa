"""Programs that depend on a number outside which changes again and again: it is a constant at first, and a symbol from its first change on.

In each, `put(v)` sets the number, `f` is compiled, and `seen()` returns what the program has left outside.
"""

TEXT = r"""
== class attribute
class A: n=1
def f(x): return x*A.n
def put(v): A.n=v
== getattr
class A: n=1
def f(x): return x*getattr(A,"n",0)
def put(v): A.n=v
== inherited
class B: n=1
class A(B): pass
def f(x): return x*A.n
def put(v): B.n=v
== overridden later
class B: n=1
class A(B): pass
def f(x): return x*A.n
def put(v): A.n=v
== of the type of an object
class A: n=1
a=A()
def f(x): return x*type(a).n+a.__class__.n
def put(v): A.n=v
== classmethod
class A:
    n=1
    @classmethod
    def g(cls): return cls.n
def f(x): return x*A.g()+A().g()
def put(v): A.n=v
== super
class B: n=1
class A(B):
    n=7
    def g(self): return super().n
    @classmethod
    def h(cls): return super().n
def f(x): return x*A().g()+A.h()
def put(v): B.n=v
== fresh subclass
class B: n=1
def f(x):
    class A(B): pass
    return x*A.n+A().n
def put(v): B.n=v
== metaclass attribute
class M(type): n=1
class A(metaclass=M): pass
def f(x): return x*A.n
def put(v): M.n=v
== metaclass property
class M(type):
    k=1
    @property
    def n(cls): return cls.k
class A(metaclass=M): pass
def f(x): return x*A.n
def put(v): M.k=v
== attrgetter
class A: n=1
g=operator.attrgetter("n")
def f(x): return x*g(A)
def put(v): A.n=v
== vars of a class
class A: n=1
def f(x): return x*vars(A)["n"]+A.__dict__.get("n")
def put(v): A.n=v
== getattr_static
class A: n=1
def f(x): return x*inspect.getattr_static(A,"n")
def put(v): A.n=v
== nested class
class A:
    class B: n=1
def f(x): return x*A.B.n
def put(v): A.B.n=v
== module
m=types.ModuleType("m"); m.n=1
def f(x): return x*m.n
def put(v): m.n=v
== function attribute
def h(): pass
h.n=1
def f(x): return x*h.n
def put(v): h.n=v
== default
def h(n=1): return n
def f(x): return x*h()
def put(v): h.__defaults__=(v,)
== kw default
def h(*,n=1): return n
def f(x): return x*h()
def put(v): h.__kwdefaults__["n"]=v
== partial keyword
h=functools.partial(lambda n: n, n=1)
def f(x): return x*h()
def put(v): h.keywords["n"]=v
== closure
def make():
    n=1
    def f(x): return x*n
    def put(v):
        nonlocal n; n=v
    return f,put
f,put=make()
== slots
class A: __slots__=("n",)
a=A(); a.n=1
def f(x): return x*a.n
def put(v): a.n=v
== slot descriptor
class A: __slots__=("n",)
a=A(); a.n=1
def f(x): return x*A.n.__get__(a)
def put(v): a.n=v
== property
class A:
    k=1
    @property
    def n(self): return self.k
a=A()
def f(x): return x*a.n
def put(v): A.k=v
== descriptor's own
class D:
    k=1
    def __get__(s,o,t=None): return s.k
d=D()
class A: n=d
def f(x): return x*A.n+A().n
def put(v): d.k=v
== __getattr__
class A:
    def __getattr__(s,k): return s.__dict__["d"][k]
a=A(); a.__dict__["d"]={"n":1}
def f(x): return x*a.n
def put(v): a.d["n"]=v
== list
l=[1]
def f(x): return x*l[0]+l[-1]
def put(v): l[0]=v
== iterate
l=[1,2]
def f(x):
    for v in l: x=x*v
    return x*sum(l)+max(l)
def put(v): l[0]=v
== len
l=[1]
def f(x): return x*len(l)
def put(v): l[:]=[0]*v
== dict
d={"n":1}
def f(x): return x*d["n"]+d.get("n")+next(iter(d.values()))
def put(v): d["n"]=v
== tuple
t=(1,)
def f(x): return x*t[0]
def put(v):
    global t; t=(v,)
== namedtuple
P=collections.namedtuple("P","n")
t=P(1)
def f(x): return x*t.n
def put(v):
    global t; t=P(v)
== dataclass
@dataclasses.dataclass
class C: n:int=1
c=C()
def f(x): return x*c.n+C.n+dataclasses.asdict(c)["n"]
def put(v): c.n=v; C.n=v+1
== simple namespace
s=types.SimpleNamespace(n=1)
def f(x): return x*s.n
def put(v): s.n=v
== context variable
cv=contextvars.ContextVar("cv",default=1)
def f(x): return x*cv.get()
def put(v): cv.set(v)
== thread local
tl=threading.local(); tl.n=1
def f(x): return x*tl.n
def put(v): tl.n=v
== weakref
class A: n=1
a=A(); r=weakref.ref(a)
def f(x): return x*r().n
def put(v): a.n=v
== counter
c=collections.Counter(a=1)
def f(x): return x*c["a"]+c.total()
def put(v): c["a"]=v
== deque
q=collections.deque([1])
def f(x): return x*q[0]
def put(v): q[0]=v
== range
r=range(1)
def f(x): return x*len(r)+r.stop
def put(v):
    global r; r=range(v)
== slice
s=slice(0,1)
def f(x): return x*s.stop
def put(v):
    global s; s=slice(0,v)
== bool of int
class A: n=1
def f(x): return x*2 if A.n>4 else x*A.n
def put(v): A.n=v
== as a size
class A: n=1
def f(x): return x.expand(A.n).sum()+torch.zeros(A.n).numel()
def put(v): A.n=v
== in a string
class A: n=1
def f(x): return x*len("a"*A.n)+int(f"{A.n}")
def put(v): A.n=v
== as an index
class A: n=1
l=list(range(100))
def f(x): return x*l[A.n]
def put(v): A.n=v
== range over it
class A: n=1
def f(x):
    for i in range(A.n): x=x+i
    return x
def put(v): A.n=v
== key
class A: n=1
d={i:i*2 for i in range(100)}
def f(x): return x*d[A.n]
def put(v): A.n=v
== divmod and shifts
class A: n=1
def f(x): return x*(A.n//2)+A.n%3+(A.n<<1)+(A.n>>1)+(A.n&3)+(A.n|8)+(A.n^5)+-A.n+abs(-A.n)+A.n**2+A.n/2+~A.n
def put(v): A.n=v
== float and complex
class A: n=1
def f(x): return x*float(A.n)+complex(A.n).real+int(A.n)+round(A.n)+A.n.real+A.n.bit_length()+hash(A.n)
def put(v): A.n=v
== object in a class
class Q: n=1
class A: q=Q()
def f(x): return x*A.q.n
def put(v): A.q.n=v
== list in a class
class A: l=[1]
def f(x): return x*A.l[0]
def put(v): A.l[0]=v
== tuple in a class
class A: t=(1,2)
def f(x): return x*A.t[0]
def put(v): A.t=(v,2)
== nn module attribute
class Mo(torch.nn.Module):
    k=1
    def __init__(s): super().__init__(); s.n=1
    def forward(s,x): return x*s.n+s.k+type(s).k
f=Mo()
def put(v): f.n=v; Mo.k=v+1
== functools.reduce
class A: n=1
def f(x): return functools.reduce(lambda a,b:a*b,[x,A.n,A.n])
def put(v): A.n=v
== enum
class E(enum.IntEnum): P=1
class A: e=E.P; n=1
def f(x): return x*A.e+A.n
def put(v): A.n=v
== function of a class
class A:
    n=1
    def g(self): return A.n
    h=staticmethod(lambda: A.n)
def f(x): return x*A().g()+A.h()
def put(v): A.n=v
== global
n=1
def f(x): return x*n
def put(v):
    global n; n=v
== globals()
n=1
def f(x): return x*globals()["n"]
def put(v):
    global n; n=v
== compare
class A: n=1
def f(x): return x*(1 if A.n==5 else 2 if A.n in (1,2) else 3)+min(A.n,3)
def put(v): A.n=v
== a class attribute that the program counts
class A: n=1
def f(x):
    A.n+=1
    return x+1
def put(v): pass
def seen(): return A.n
== one that it counts twice, by a subclass
class B: n=1
class A(B): pass
def f(x):
    A.n+=1; B.n+=2; A.n+=1
    return x+1
def put(v): pass
def seen(): return A.n, B.n
== an attribute that it counts
class A: n=1
a=A()
def f(x):
    a.n+=1
    return x+1
def put(v): pass
def seen(): return a.n, A.n
== one that a generator counts
class A: n=1
def g():
    for v in range(3):
        yield v
        A.n+=1
def f(x):
    for v in g(): x=x+v
    return x
def put(v): pass
def seen(): return A.n
== an item that it counts
l, d=[1], {"n": 1}
def f(x):
    l[0]+=1; d["n"]+=2
    return x+1
def put(v): pass
def seen(): return l, d
== a global that it counts
n=1
def f(x):
    global n; n+=1
    return x+1
def put(v): pass
def seen(): return n
== a class attribute by setattr
class A: n=1
def f(x):
    setattr(A,"n",A.n*2 % 101); type.__setattr__(A,"m",A.n+1)
    return x+1
def put(v): pass
def seen(): return A.n, A.m
== a number that others are set to
class A: n=1; m=0
def f(x):
    A.m=A.n+1; A.k=[A.n, {"n": A.n}]
    return x+1
def put(v): A.n=v
def seen(): return A.m, A.k
"""

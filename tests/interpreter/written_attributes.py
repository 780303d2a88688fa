"""Programs that write what is outside, by all ways there are, and read it again in the same call.

`f` is compiled, and `seen()` returns what it has left outside.
"""

TEXT = r"""
== type.__setattr__
class A: n=1
def f(x): type.__setattr__(A,"n",A.n+1); return x*A.n
def seen(): return A.n
== type.__delattr__
class A: n=1
class B(A): n=5
def f(x):
    if "n" in vars(B): type.__delattr__(B,"n")
    return x*B.n
def seen(): return sorted(k for k in vars(B) if not k.startswith("__"))
== metaclass setattr
log=[]
class M(type):
    def __setattr__(cls,k,v):
        log.append((k,v)); super().__setattr__(k,v*2)
    def __delattr__(cls,k):
        log.append(k); super().__delattr__(k)
class A(metaclass=M): n=1
def f(x): A.n=A.n+1; A.k=3; del A.k; return x*A.n
def seen(): return A.n, log
== metaclass setattr of a fresh class
log=[]
class M(type):
    def __setattr__(cls,k,v): log.append(k); super().__setattr__(k,v*2)
def f(x):
    class A(metaclass=M): n=1
    A.n=4; return x*A.n
def seen(): return log
== delattr in Python
log=[]
class A:
    def __delattr__(s,k): log.append(k); object.__delattr__(s,k)
    def __setattr__(s,k,v): log.append((k,v)); object.__setattr__(s,k,v)
a=A()
def f(x): a.n=3; a.m=4; del a.n; return x*a.m
def seen(): return vars(a), log
== slot __set__
class A: __slots__=("n",)
a=A(); a.n=1
def f(x): A.n.__set__(a,a.n+1); return x*a.n
def seen(): return a.n
== slot __delete__
class A: __slots__=("n","m")
a=A(); a.m=1
def f(x): a.n=2; A.n.__delete__(a); return x*hasattr(a,"n")+a.m
def seen(): return hasattr(a,"n")
== property __set__
class A:
    def g(s): return s.k
    def h(s,v): s.k=v*2
    n=property(g,h)
a=A(); a.k=1
def f(x): A.n.__set__(a,a.n+1); A.n.fset(a,A.n.fget(a)); return x*a.n
def seen(): return a.k
== threading.local
class L(threading.local):
    def __setattr__(s,k,v): super().__setattr__(k,v+1)
    def __getattribute__(s,k): return super().__getattribute__(k)
l=L(); l.n=1
def f(x): l.n=l.n*2; threading.local.__setattr__(l,"m",l.n); return x*l.n
def seen(): return l.n, l.m
== partial attributes
p=functools.partial(max,1); p.n=1
def f(x): p.n+=1; object.__setattr__(p,"m",p.n); return x*p.n
def seen(): return vars(p)
== partial setstate
p=functools.partial(max,1)
def f(x): p.__setstate__((min,(2,),{},None)); return x*p(5)
def seen(): return p.func.__name__, p.args
== exception notes
e=ValueError("a")
def f(x): e.add_note("n"); e.args=(1,2); e.k=3; return x*len(e.__notes__)
def seen(): return e.args, e.__notes__, vars(e)
== exception setstate
e=ValueError("a")
def f(x): e.__setstate__({"k":2}); return x*e.k
def seen(): return vars(e)
== function attributes
def h(a,b=2): return a
def f(x): h.n=getattr(h,"n",0)+1; h.__defaults__=(h.n,); h.__dict__["q"]=1; object.__setattr__(h,"z",5); return x*h.n
def seen(): return vars(h), h.__defaults__
== function name
def h(): pass
def f(x): h.__name__="k"; h.__doc__="d"; return x*len(h.__name__)
def seen(): return h.__name__, h.__doc__
== class name and doc
class A: "d"
def f(x): A.__name__="Bcd"; A.__doc__="e"; return x*len(A.__name__)
def seen(): return A.__name__, A.__doc__, A.__qualname__
== class of an object
class A: n=1
class B: n=2
a=A()
def f(x): a.__class__=B if type(a) is A else A; return x*a.n
def seen(): return type(a).__name__
== dict of an object
class A: pass
a=A(); a.n=1
def f(x): a.__dict__={"n":a.n+1,"m":2}; return x*a.n
def seen(): return vars(a)
== dict update of an object
class A: pass
a=A(); a.n=1
def f(x): a.__dict__.update(n=a.n+1); vars(a)["z"]=3; vars(a).pop("n2",None); a.__dict__|={"w":1}; return x*a.n
def seen(): return vars(a)
== cell contents
def make():
    n=1
    return lambda: n
g=make(); c=g.__closure__[0]
def f(x): c.cell_contents=c.cell_contents+1; return x*g()
def seen(): return g()
== bases
class P: n=1
class Q: n=2
class A(P): pass
def f(x): A.__bases__=(Q,) if A.__bases__==(P,) else (P,); return x*A.n
def seen(): return A.__bases__[0].__name__
== module variable
m=types.ModuleType("m"); m.n=1
def f(x): m.n+=1; object.__setattr__(m,"k",m.n); m.__dict__["z"]=1; vars(m).update(y=2); return x*m.n
def seen(): return m.n,m.k,m.z,m.y
== simple namespace
s=types.SimpleNamespace(n=1)
def f(x): s.n+=1; s.__dict__["k"]=s.n; object.__setattr__(s,"z",1); return x*s.n
def seen(): return vars(s)
== method attribute
class A:
    def g(s): return 1
a=A(); mm=a.g
def f(x): a.g.__func__.n=2; A.g.k=3; return x*a.g.n
def seen(): return vars(A.g)
== weak proxy
class A: n=1
a=A(); a.n=1; p=weakref.proxy(a)
def f(x): p.n+=1; return x*p.n
def seen(): return a.n
== list by base methods
class Li(list): pass
l=Li([3,1,2])
def f(x): list.append(l,4); list.sort(l); list.__setitem__(l,0,9); list.__iadd__(l,[1]); list.__delitem__(l,1); return x*len(l)
def seen(): return list(l)
== dict by base methods
class D(dict): pass
d=D(a=1)
def f(x): dict.__setitem__(d,"b",d["a"]); dict.update(d,a=d["a"]+1); dict.__ior__(d,{"c":1}); dict.pop(d,"c"); return x*len(d)
def seen(): return dict(d)
== set by base methods
s={1}
def f(x): set.add(s,len(s)+1); set.__ior__(s,{100}); set.discard(s,100); set.update(s,[50]); return x*len(s)
def seen(): return sorted(s)
== ordered dict
o=collections.OrderedDict(a=1,b=2)
def f(x): o.move_to_end(next(iter(o))); collections.OrderedDict.__setitem__(o,"c",len(o)); return x*len(o)
def seen(): return list(o.items())
== defaultdict factory
d=collections.defaultdict(int)
def f(x): d.default_factory=list; d["k"].append(1); return x*len(d["k"])
def seen(): return dict(d)
== copy and replace
class A:
    def __init__(s): s.l=[1]
a=A()
def f(x): b=copy.copy(a); b.l.append(2); b.m=1; c=copy.deepcopy(a); c.l.append(3); return x*len(a.l)
def seen(): return vars(a)
== init again
class A:
    def __init__(s,n=0): s.n=n
a=A(1); l=[1,2]; d={"a":1}; st={1}
def f(x): a.__init__(a.n+1); list.__init__(l,[7]); d.__init__(b=2); set.__init__(st,[4]); return x*a.n+len(l)
def seen(): return a.n,l,d,st
== setitem of memory
b=bytearray(3)
def f(x): y=bytearray(b); y[0]=4; y.extend(b"ab"); return x*len(y)
def seen(): return bytes(b)
== code of a function
def h(): return 1
def h2(): return 2
def f(x): h.__code__=h2.__code__; return x*h()
def seen(): return h()
== staticmethod attribute
class A:
    @staticmethod
    def g(): return 1
def f(x): A.g=staticmethod(lambda: 5); return x*A.g()
def seen(): return A.g()
== enum member attribute
class E(enum.Enum): P=1
def f(x): E.P.note=getattr(E.P,"note",0)+1; return x*E.P.note
def seen(): return E.P.note
== dataclass replace frozen
@dataclasses.dataclass(frozen=True)
class C: n:int=1
c=C()
def f(x):
    try: c.n=2
    except dataclasses.FrozenInstanceError: pass
    object.__setattr__(c,"n",c.n+1); return x*c.n
def seen(): return c.n
== tensor attribute
t=torch.ones(2)
def f(x): t.note=getattr(t,"note",0)+1; torch.Tensor.__setattr__(t,"k",t.note); return x*t.note
def seen(): return t.note,t.k
== module by base
class Mo(torch.nn.Module):
    def __setattr__(s,k,v): super().__setattr__(k,v); s.__dict__["log"]=s.__dict__.get("log",0)+1
m=Mo()
def f(x): m.n=3; torch.nn.Module.__setattr__(m,"k",2); object.__setattr__(m,"z",1); return x*m.n
def seen(): return m.n,m.k,m.z,m.log
== a new class attribute, read by an object
class A: pass
class B(A): pass
a=A(); b=B()
def f(x): A.m=getattr(A,"m",1)+1; return x*a.m+b.m+B.m+B().m
def seen(): return A.m
== a method set on a class
class A:
    def g(s): return 1
a=A()
def f(x): A.g=lambda s: 5; A.h=lambda s: 6; return x*a.g()+a.h()
def seen(): return a.g(), a.h()
== a property set on a class
class A: k=2
a=A()
def f(x): A.p=property(lambda s: s.k*3); return x*a.p
def seen(): return a.p
== a base is written, a subclass has its own
class B: n=1
class A(B): n=7
def f(x): B.n=B.n+5; return x*A.n+A().n
def seen(): return B.n, A.n
== a class attribute deleted, the base shows
class B: n=1
class A(B): n=7
a=A()
def f(x):
    if "n" in vars(A): del A.n
    y=x*A.n+a.n
    A.n=9
    return y+A.n+a.n
def seen(): return B.n, A.n
== a class attribute deleted, then missing
class A: n=7
a=A()
def f(x):
    if hasattr(A,"n"): del A.n
    return x*(3 if hasattr(a,"n") else 4)+getattr(A,"n",2)
def seen(): return hasattr(A,"n")
== special method set on a class
class A:
    def __call__(s,x): return x
    def __len__(s): return 1
    def __add__(s,o): return 3
a=A()
def f(x): A.__call__=lambda s,x: x*9; A.__len__=lambda s: 4; A.__getitem__=lambda s,i: i+1; A.__add__=lambda s,o: 5; return a(x)+len(a)+a[3]+(a+1)
def seen(): return len(a), a[1], a+2
== init set on a class
class A:
    def __init__(s): s.n=1
def f(x): A.__init__=lambda s: setattr(s,"n",4); return x*A().n
def seen(): return A().n
== __getattr__ set on a class
class A: pass
a=A()
def f(x): A.__getattr__=lambda s,k: 8; return x*a.q
def seen(): return a.z
== contextvar and token
v=contextvars.ContextVar("v",default=1)
def f(x): t=v.set(v.get()+1); y=x*v.get(); v.set(v.get()*2); return y
def seen(): return v.get()
== a tensor of a base, hidden from the second call on
class B: t=torch.zeros(1)
class A(B): pass
a=A()
def f(x): B.t=a.t+x; A.t=A.t*2; return a.t*1+B.t
def seen(): return A.t, B.t
== a tensor of a metaclass
class M(type): t=torch.zeros(1)
class A(metaclass=M): pass
def f(x): M.t=A.t+x; return A.t*3
def seen(): return M.t
== a tensor of a class, through a property
class A:
    _t=torch.ones(1)
    @property
    def t(self): return self._t*2
    @t.setter
    def t(self,v): type(self)._t=v
a=A()
def f(x): a.t=a.t+x; return a.t
def seen(): return A._t
== objects that share their attributes
class B:
    shared={}
    def __init__(self): self.__dict__=B.shared
def f(x): b=B(); b.n=getattr(b,"n",0)+1; return x*b.n
def seen(): return B.shared
== a singleton
class S:
    inst=None
    def __new__(cls):
        if cls.inst is None: cls.inst=super().__new__(cls); cls.inst.n=0
        return cls.inst
def f(x): s=S(); s.n+=1; return x*s.n
def seen(): return S().n
== objects from a pool
class K:
    pool={}
    def __new__(cls,k):
        if k not in cls.pool: o=super().__new__(cls); o.k=k; o.hits=0; cls.pool[k]=o
        o=cls.pool[k]; o.hits+=1; return o
def f(x): return x*K("a").hits+K("b").hits
def seen(): return {k:v.hits for k,v in K.pool.items()}
== objects numbered by their class
class N:
    _c=0
    def __init__(self,*kids): N._c+=1; self.id=N._c; self.kids=kids
    def walk(self):
        yield self
        for k in self.kids: yield from k.walk()
def f(x): t=N(N(),N(N())); return x*sum(n.id for n in t.walk())
def seen(): return N._c
== a count on an enum
class E(enum.Enum):
    A=1;B=2
    def bump(self): self.__class__.count=getattr(self.__class__,"count",0)+1; return self.__class__.count
def f(x): return x*E.A.bump()+E.B.bump()
def seen(): return E.count
== a list that grows while it is iterated
l=[1,2,3]
def f(x):
    o=[]
    for v in l:
        o.append(v)
        if v<3 and len(l)<9: l.append(v+5)
    return x*sum(o)
def seen(): return l
== a list that shrinks while it is iterated
l=[1,2,3]
def f(x):
    o=[]
    for v in l:
        o.append(v)
        if len(l)>2: l.pop()
    return x*sum(o)
def seen(): return l
== a list that loses what it gave while it is iterated
l=[1,2,3]
def f(x):
    o=[]
    for v in l:
        o.append(v)
        if len(l)>1: l.remove(v)
    return x*sum(o)
def seen(): return l
== a list that grows in front while it is iterated
l=[1,2,3]
def f(x):
    o=[]
    for v in l:
        o.append(v)
        if len(o)<6: l.insert(0,9)
        else: break
    return x*sum(o)
def seen(): return l
== a list that changes ahead while it is iterated
l=[1,2,3]
def f(x):
    o=[]
    for i,v in enumerate(l):
        l[i]=v+1
        if i+1<len(l): l[i+1]+=1
        o.append(v)
    return x*sum(o)
def seen(): return l
== a list that grows between items while it is iterated
l=[1,2,3]
def f(x):
    it=iter(l); jt=iter(l)
    a=next(it)
    l.append(7)
    l[1]=5
    b=next(jt)
    return x*(a+b)+sum(it)*sum(jt)
def seen(): return l
== a list that is cleared while it is iterated
l=[1,2,3]
def f(x):
    for v in l:
        l.clear()
    return x+len(l)
def seen(): return l
== a list that grows in a comprehension while it is iterated
l=[1,2,3]
def f(x):
    o=[v for v in l if (l.append(v) if len(l)<6 else 1) or 1]
    return x*sum(o)
def seen(): return l
== a list that grows in a loop within while it is iterated
l=[1,2,3]
def f(x):
    for v in l:
        for w in l:
            if len(l)<7: l.append(w)
            x=x+w
    return x
def seen(): return l
== a list that grows in zip and map while it is iterated
l=[1,2,3]
def f(x):
    for a,b in zip(l,l):
        if len(l)<6: l.append(a)
        x=x+a*b
    m=map(lambda v:(l.append(v) if len(l)<9 else None,v)[1],l)
    return x*sum(m)
def seen(): return l
== a list that grows behind a value while it is iterated
l=[1,2,3]
def f(x):
    for v in l:
        if x.sum()>0 and len(l)<8: l.append(v+1)
        x=x+v
    return x
def seen(): return l
== the dict of an object from elsewhere is written
class A: pass
a=A(); a.n=1; v=vars(a)
def f(x): v["n"]+=2; return x*a.n
def seen(): return v
== the dict of an object from elsewhere is read
class A: pass
a=A(); a.n=1; v=vars(a)
def f(x): a.n+=1; return x*v["n"]
def seen(): return v
== keys of a dict that grows
d={"a":1}
def f(x):
    k=d.keys(); n=len(k); d["z"]=1; d.pop("a",0)
    return x*n+len(k), list(k), "z" in k, k-{"q"}, list(reversed(k))
def seen(): return d
== pairs and values of a dict that changes
d={"a":1,"b":2}
def f(x):
    i,v=d.items(),d.values(); d["a"]=9; d["q"]=3; d.pop("b",None)
    return x*sum(v), sorted(i), len(i)
def seen(): return d
== values that a loop changes ahead of itself
d={"a":1,"b":2,"c":3}
def f(x):
    o=[]
    for k,v in d.items():
        o.append(v)
        for j in d: d[j]+=v
    for v in d.values():
        o.append(v); d["c"]=7
    return x*sum(o)
def seen(): return d
== values that a generator reads when they have changed
d={"a":1,"b":2}
def f(x):
    g=((k,v) for k,v in d.items())
    for k in d: d[k]=d[k]+5
    return x, list(g)
def seen(): return d
== a dict that grows while it is iterated
d={"a":1,"b":2}
def f(x):
    try:
        for k in d: d[k+"x"]=1
    except RuntimeError as e: return x, str(e)
def seen(): return d
== a dict that loses keys while its pairs are iterated
d={"a":1,"b":2,"c":3}
def f(x):
    try:
        for k,v in d.items(): d.pop(k)
    except RuntimeError as e: return x, str(e)
    return x, len(d)
def seen(): return d
== a dict that grows in a comprehension over it
d={"a":1}
def f(x):
    try: return x, {k:d.setdefault(k+"y",1) for k in d}
    except RuntimeError as e: return x, str(e)
def seen(): return d
== a dict that grows between the items of an iterator
d={"a":1,"b":2}
def f(x):
    it=iter(d); a=next(it); d["a"]=5; b=next(it); d["c"]=6
    try: return x, a, b, next(it)
    except RuntimeError as e: return x, a, b, str(e)
def seen(): return d
== values of a dict that is cleared and filled again
d={"a":1,"b":2}
def f(x):
    v,k=d.values(),d.keys(); d.clear(); d.update(n=4); d.__ior__({"m":x.shape[0]})
    return x*sum(v), list(k)
def seen(): return d
== pairs of an ordered dict that moves
import collections
d=collections.OrderedDict(a=1,b=2)
def f(x):
    k,i=d.keys(),d.items(); d.move_to_end("a"); d["b"]=7
    return x, list(k), list(i), [v for v in d.values()]
def seen(): return list(d.items())
== pairs of a counter and of a dict with a factory
import collections
c,d=collections.Counter("aab"),collections.defaultdict(list,k=[1])
def f(x):
    i,j=c.items(),d.items(); c.update("bz"); d["new"].append(2); d["k"].append(3)
    return x*len(i)+len(j), sorted(i), list(j)
def seen(): return c,d
== a dict in reverse that changes
d,l={"a":1,"b":2},[1,2]
def f(x):
    r,s=reversed(d),reversed(l); d["b"]=5; l[0]=8; l.append(9)
    o=[d[k] for k in r],list(s)
    t=reversed(d); d["c"+str(len(d))]=1
    try: return x, o, list(t)
    except RuntimeError as e: return x, o, str(e)
def seen(): return d,l
== a relaxation that reads what it has written
d={"s":0.0,"a":9.0,"b":9.0}
e={"s":{"a":1.0,"b":5.0},"a":{"b":1.0},"b":{}}
def f(x):
    for u,du in d.items():
        for v,w in e[u].items():
            if du+w+x.sum()*0<d[v]: d[v]=du+w
    return x, [d[k] for k in "sab"]
def seen(): return d
== a deque that changes ahead of its iterator
import collections
q=collections.deque([1,2,3],maxlen=4)
def f(x):
    o=[]
    for i,v in enumerate(q):
        o.append(v); q[i]=v*2
        if i+1<len(q): q[i+1]+=10
    r=reversed(q); q[0]=5
    return x*sum(o), list(r)
def seen(): return q
== a deque that grows while it is iterated
import collections
q=collections.deque([1,2,3])
def f(x):
    o=[]
    try:
        for v in q: o.append(v); q.append(v)
    except RuntimeError as e: return x*sum(o), str(e)
def seen(): return q
== a set that grows while it is iterated
s={1,2,3}
def f(x):
    try:
        for v in s: s.add(v+100)
    except RuntimeError as e: return x, str(e)
    return x, sorted(s)
def seen(): return sorted(s)
== a set that loses items while it is iterated
s={1,2,3}
def f(x):
    try:
        for v in s: s.discard(v)
    except RuntimeError as e: return x, str(e)
    return x, len(s)
def seen(): return sorted(s)
== iterators of C over a list that changes
l=[1,2,3]
def f(x):
    i=[itertools.chain(l,l), itertools.islice(l,2), itertools.cycle(l), itertools.accumulate(l), itertools.takewhile(lambda v: v<60,l)]
    l.append(len(l)); l[0]=50
    return x, [list(itertools.islice(j,5)) for j in i]
def seen(): return l
== iterators of C over a dict that changes
d,e={"a":1},{"b":2}
def f(x):
    c=itertools.chain(d,e); a=next(c); e["n"+str(len(e))]=3
    return x, a, list(c)
def seen(): return e
== attributes in vars() that change
class O: pass
o=O(); o.a=1; o.b=2
def f(x):
    d=vars(o); k,i=d.keys(),d.items(); o.new=4; o.a=9; r=[]
    for n,v in d.items():
        r.append(v); o.b=v+10
    return x*sum(r), list(k), sorted(i), len(d), "new" in k
def seen(): return vars(o)
== attributes that come while vars() is iterated
class O: pass
o=O(); o.a=1; o.b=2
def f(x):
    try:
        for k in vars(o): setattr(o,k+"x",1)
    except RuntimeError as e: return x, str(e)
def seen(): return vars(o)
== attributes that are deleted behind a view
class O: pass
o=O(); o.a=1
def f(x):
    d=o.__dict__; d["q"]=1; k=d.keys(); v=d.values(); del o.q; d.update(w=2); o.a+=1
    return x*sum(v), list(k), [n for n in reversed(d)]
def seen(): return vars(o)
== globals that a view shows
n=1
def f(x):
    g=globals(); k=g.keys(); c=len(k); g["z"+str(c)]=3
    return x, len(k)-c, "z"+str(c) in k, g["z"+str(c)]
def seen(): return n
== deleting what only the class has
class A:
    k=1
    def m(s): return 1
class B(A): pass
o=B(); o.v=1; seen_errors=[]
import types
mod=types.ModuleType("mod")
def tried(fn):
    try: fn(); return "no error"
    except AttributeError as e: return str(e)
def f(x):
    r=[tried(lambda: delattr(o,"m")), tried(lambda: delattr(o,"k")), tried(lambda: delattr(B,"m")), tried(lambda: delattr(mod,"q"))]
    o.m=3; mod.q=1
    r+=[tried(lambda: delattr(o,"m")), tried(lambda: delattr(o,"m")), tried(lambda: delattr(mod,"q")), tried(lambda: delattr(mod,"q"))]
    try: del o.k
    except AttributeError as e: r.append(e.name)
    return x*o.m(), r
def seen(): return vars(o), B.m is A.m, hasattr(mod,"q")
"""

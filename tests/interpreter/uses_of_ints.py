"""What programs do with an int that changes from call to call: expressions of `n`, and the classes and tables that they use."""

import collections
import dataclasses
import enum


class E(enum.IntEnum):
    A = 1
    B = 2
    C = 3
    D = 4
    F = 5
    G = 6
    H = 7
    K = 8
    J = 9


@dataclasses.dataclass(order=True, frozen=True)
class C:
    n: int
    m: int = 3


P = collections.namedtuple("P", "a b")


class Ix:
    def __init__(s, n):
        s.n = n

    def __index__(s):
        return s.n

    def __int__(s):
        return s.n * 2

    def __float__(s):
        return s.n / 2

    def __eq__(s, o):
        return s.n == o

    def __hash__(s):
        return hash(s.n)

    def __lt__(s, o):
        return s.n < o.n

    def __mul__(s, o):
        return s.n * o

    def __rmul__(s, o):
        return o * s.n

    def __len__(s):
        return s.n

    def __bool__(s):
        return s.n > 3

    def __contains__(s, k):
        return k < s.n

    def __iter__(s):
        return iter(range(s.n))

    def __getitem__(s, i):
        return s.n + i

    def __format__(s, f):
        return f"{s.n:{f}}"

    def __round__(s, k=0):
        return s.n

    def __divmod__(s, o):
        return divmod(s.n, o)

    def __pow__(s, o, m=None):
        return pow(s.n, o, m) if m else s.n**o


D = {i: i * i for i in range(64)}
L = list(range(64))
S = {2, 3, 5}

TEXT = r"""
f"{n:05d}{n!r:>6}"
"a"*n+str(n)+repr(n)
[0]*n
(1,2)*n
bytes(n)
list(range(n))[::-1]
range(n)[1:]
len(range(1,n,2))
n in (1,2,3)
n in S
n in range(0,100,3)
D[n]
L[n]
L[:n]
L[-n:]
L[n:2*n]
L[::n]
L.index(n)
D.get(n,-1)
{n:1}
{n,n+1}
{i:i*n for i in range(n)}
sorted([n,3,1])
min(n,4),max(n,4),min([n,5],key=lambda q:-q)
sum(range(n))
sum([n]*3,n)
math.gcd(n,12),math.lcm(n,4),math.isqrt(n),math.comb(n+5,2),math.factorial(n),math.prod([n,2])
math.sqrt(n),math.log2(n),math.log(n,3),math.sin(n),math.exp(n/10),math.hypot(n,3),math.atan2(n,2),math.pow(n,2)
math.floor(n/2),math.ceil(n/2),math.trunc(n/3),round(n/3),round(n/3,2),round(n,-1)
divmod(n,3),divmod(-n,3),divmod(100,n),n//3,-n//3,n%3,-n%3,100%n
n/2,n/3.0,2/n,n**2,n**-1,n**.5,2**n,pow(n,3,7),(-2)**n
n<<2,n>>1,n&3,n|8,n^5,~n,-n,+n,abs(-n)
n==3,n!=3,n<4,n>=4,2<n<6,not n,bool(n),n and 5,n or 7
n is None,type(n) is int,isinstance(n,int),type(n).__name__,isinstance(n,(float,str)),issubclass(type(n),int)
int(n),float(n),complex(n),int(str(n)),int(f"{n}0"),float(f"{n}.5")
hex(n),bin(n),oct(n),chr(n+65),format(n,"x"),"%d %s %x"%(n,n,n),"{:>4}".format(n),"{0}{0}".format(n)
n.bit_length(),n.real,n.imag,n.numerator,n.denominator,n.conjugate(),n.to_bytes(2,"big"),n.bit_count(),n.as_integer_ratio()
n.__add__(1),int.__mul__(n,2),n.__index__(),n.__hash__(),n.__eq__(3),n.__floordiv__(2),n.__rsub__(10),n.__bool__(),n.__divmod__(2)
hash(n),hash((n,1)),(n,)==(n,)
operator.index(n),operator.add(n,1),operator.mul(n,2),operator.floordiv(n,2),operator.neg(n),operator.contains([1,2],n),operator.lt(n,4)
functools.reduce(operator.mul,range(1,n+1),1),functools.partial(pow,n)(2)
list(itertools.islice(itertools.count(n),3)),list(itertools.repeat(n,n)),list(itertools.combinations(range(n),2))[:3]
list(itertools.product(range(2),repeat=2))[:n]
list(itertools.accumulate(range(n))),list(itertools.chain([n],range(n))),list(itertools.takewhile(lambda q:q<n,range(9)))
list(zip(range(n),"abcdefghij")),list(enumerate("abc",n))
list(itertools.batched(range(9),n)) if hasattr(itertools,"batched") else 0
collections.Counter([n,n,1]),collections.deque(range(9),n),collections.deque([1,2,3]).rotate(n)
json.dumps({"n":n,"l":[n]}),json.loads(f"[{n}]"),struct.pack("i",n),struct.unpack("i",struct.pack("i",n))
decimal.Decimal(n)/3,fractions.Fraction(n,6),fractions.Fraction(n)+1,decimal.Decimal(n).sqrt()
copy.copy(n),copy.deepcopy([n]),pickle.loads(pickle.dumps((n,)))
E(n),E(n).name,C(n),C(n)<C(4),dataclasses.replace(C(1),n=n),dataclasses.asdict(C(n)),dataclasses.astuple(C(n)),P(n,1)
P(1,2)._replace(a=n),P(n,1)._asdict()
statistics.mean([n,1,2]),statistics.median([n,1,7])
np.zeros(n),np.arange(n).sum(),np.full((2,n),n).shape,np.int64(n)+1,np.float32(n),np.array([n,1]).max(),np.linspace(0,1,n),np.eye(n).trace()
slice(n).indices(10),slice(1,n,2),L[slice(n,None,3)]
string.ascii_letters[n],"abcdefghij"[:n],"a,b,c,d".split(",",n),"abc".ljust(n,"."),"abc".center(n+3),"x".join("ab"*n)
"abcabc".find("c",n),"z".zfill(n),"aaaa".replace("a","b",n)
bisect.bisect(L,n),heapq.nsmallest(n,[5,1,4]),heapq.nlargest(2,[n,1,9]),textwrap.shorten("a b c d e f g",n+6)
re.sub("a","b","aaaa",count=n),re.match(r"a{%d}"%n,"a"*9) is not None,re.split(",","a,b,c,d",maxsplit=n)
datetime.timedelta(days=n),datetime.date(2020,1,n),datetime.datetime(2020,1,1)+datetime.timedelta(hours=n)
hashlib.md5(str(n).encode()).hexdigest()
array.array("i",[n]*3).tolist(),bytearray(n)[0:1],memoryview(bytes(n)).nbytes
Ix(n)*2,2*Ix(n),int(Ix(n)),float(Ix(n)),len(Ix(n)),bool(Ix(n)),3 in Ix(n),list(Ix(n)),Ix(n)[2],f"{Ix(n):03d}",round(Ix(n))
divmod(Ix(n),2),Ix(n)**2,pow(Ix(n),2,5),L[Ix(n)],operator.index(Ix(n)),range(Ix(n)),Ix(n)==3,Ix(n) in {3}
sorted([Ix(n),Ix(4)])[0].n
"odd" if n%2 else "even",[q for q in range(n) if q%2],any(q==n for q in L),all(q<n for q in range(n))
next((q for q in L if q>n),None),sum(1 for q in L if q<n)
(lambda a,*b,k=n,**c:(a,b,k,c))(n,*range(n),z=n),(lambda *a:len(a))(*[1]*n)
torch.Size((n,2)),torch.Size([n]).numel(),torch.zeros(n,2).shape,torch.zeros(2,n).size(1),torch.arange(n).sum().item()
torch.full((n,),n).tolist(),torch.ones(n).numel()
torch.tensor(n),torch.tensor([n,1.5]),torch.scalar_tensor(n),torch.arange(9)[n],torch.arange(12).split(n),torch.arange(12).chunk(n)
torch.arange(12)[:n],torch.eye(n),torch.linspace(0,1,n),torch.tril(torch.ones(4,4),n-2),torch.roll(torch.arange(5),n)
torch.repeat_interleave(torch.arange(3),n),torch.ones(3).expand(n,3).shape,torch.ones(4)*n+n/2-n//2,torch.full((2,),1)**n
torch.nn.functional.pad(torch.ones(2),(n,1)),torch.ones(2,3).repeat(n,1).shape,torch.ones(n,3).reshape(-1).shape
torch.ones(n*2).view(2,n).shape,torch.ones(n,4).flatten().numel(),torch.ones(n).unfold(0,1,1).shape
torch.nn.functional.one_hot(torch.tensor(1),n+1),torch.randperm(n).sum(),torch.randint(n,(3,)).max()<n,torch.ones(n)[-1]
torch.cumsum(torch.ones(n),0)[-1]
"""

"""Random programs in what programs keep in torch: gradients, hooks, optimizers, modules that change, modes, settings, generators, and keys.

    python tests/decisions/torch_programs.py 17      shows the program of a seed

They are written as those of `python_programs`, of other tables, and find what is in `TEXT` besides the world of those.
"""

from __future__ import annotations

import re
import sys

from decisions import python_programs
from decisions.python_world import TEXT as WORLD

EXPRESSIONS = {
    "int": """
i  j  k  len(L)  N  {int} + {int}  {int} * 3 % 17  y.shape[0]  y.numel()  int(y.sum())  int(y.argmax())  int((y > 1).any())  len(hooked)
net.calls  len(list(net.parameters()))  len(net.ps)  len(net.md)  len(net.pd)  L[{int} % len(L)]  net.md['b'].calls  int(net.training)
len(net.state_dict())  int(I8[{int} % 3])  int(I8.sum())  U8[0].item() + 255  len([p for p in net.parameters() if p.grad is not None])
torch.randint(0, 3, (1,)).item()  len([q for q in tensors if q.requires_grad])  sum(1 for q in (W, P) if q.grad is not None)  len(opt.state)
int(BM.sum())  len(ids)  len(held | {y, T})  M.shape[{int} % 2]  MT.stride()[0]  y.dim()  int(net.seen)  len(plist)  len(held)
""",
    "float": """
u  a  G  {float} * 0.5  y.sum().item()  float(y.max())  W.sum().item()  net.seen.item()  opt.param_groups[0]['lr']  torch.rand(()).item()
float(W.grad.sum()) if W.grad is not None else 0.0  float('inf')  -0.0  y.mean().item()  max(y.tolist(), default=0.0)  random.random()
""",
    "str": "s  r  'a'  'b'  'c'  str(y.dtype)[-2:]  ids.get(T, 'q')  ids.get(W, 'r')  next(iter(net.pd.keys()), 'a')  list(net.md)[0]",
    "bool": """
{int} > {int}  y.sum() > 0  (y > 0).any()  y[0] < y[-1]  flag  not flag  torch.rand(()) > 0.5  torch.rand(3).sum() > 1.5  y.requires_grad
W.requires_grad  y.is_leaf  W.grad is None  P.grad is not None  torch.is_grad_enabled()  torch.is_inference_mode_enabled()  net.training
T in ids  y in ids  W in ids  y in held  held == {T}  any(q is y for q in tensors)  any(q is T for q in ids)  y is z  T is tensors[0]  hooked
W.grad is not None and W.grad.sum() > 0  torch.isnan(y).any()  torch.isfinite(y).all()  net.seen > 2  random.random() < 0.5
torch.get_default_dtype() is torch.float32  torch.equal(y, z)  y.grad is None  isinstance(net.md['a'], nn.Tanh)  (y == y).all()  {float} > 0
""",
    "tensor": """
y  z  x  y + z  y * {number}  {number} - y  y.abs()  y.detach()  y.clone()  y.flip(0)  y * W[0]  W + y.sum()  T  V  W  P.sum() * y  net(y)
net.w * y.sum()  net.ps[0] * {number}  net.md['b'](y)  block(y)  Scale.apply(y, {number})  Two.apply(y)[0]  Two.apply(y)[1] * y
Dirty.apply(y * 1)  Later.apply(y, W)[0]  sum(Later.apply(y, P))  y + torch.rand(y.shape)  torch.nn.functional.dropout(y, 0.5)  frozen(y)
put(y)  get() * 1.0 if get() is not None else y  W.grad * 2 if W.grad is not None else y  M.sum(0)  MT[:, 0]  ME + 1  M.t().reshape(-1)[:3]
y.max() + z  y.clamp({float}, 2)  y.sort()[0]  y / 0.0  (y > 0) * y  y.cumsum(0)  torch.zeros(0, dtype=torch.float64)  y[y > 99]  I8 * {int}
I8 + 127  U8 - 1  U8 // 2  I8 / 2  BM * 2  BM & (I8 > 0)  torch.tensor({int}) * y  torch.tensor({float}) + y  torch.ones(3) * y.sum()
torch.tensor(1.5) * I8  torch.cat([p.reshape(-1) for p in net.ps])  (y * 1).requires_grad_()  torch.full((3,), {number})  plist[-1] * y
""",
    "list": "L  [{int}, {int}]  L[::-1]  [q + 1 for q in L]  [p.numel() for p in net.parameters()]  torch.randperm(3).tolist()",
    "number": "{int}  {float}  k  a  2  0.5  i",
}
LINES = """
y = {tensor}  z = {tensor}  y = {tensor}  z = {tensor}  y = y * {number}  y += {number}  i += {int}  i %= 31  L.append({int})  out.append({any})
out.append({tensor})  out.append({bool} is True)  H = y  N = {int} % 9  D[y] = {int}; out.append(D[y])  y = y.detach().requires_grad_()  y.detach_()
W.requires_grad_({bool} is True)  y.sum().backward()  (y * W.sum()).sum().backward()  (W * W).sum().backward()  net(y).sum().backward()
W.grad = None  W.grad = W.detach() * {number}  W.grad = torch.ones_like(W)  W.grad.mul_(0.5)  W.grad.zero_()  W.grad += 1  out.append(W.grad)
P.grad = P.detach().clone()  net.zero_grad()  opt.zero_grad()  opt.step()  opt.zero_grad(set_to_none=False)  opt.param_groups[0]['lr'] *= 0.5
opt.zero_grad(); (W * y.sum()).sum().backward(); opt.step()  torch.nn.utils.clip_grad_norm_([W, P], 0.5)  torch.nn.utils.clip_grad_value_(W, 0.2)
y.register_hook(lambda grad: grad * 2)  net.w = nn.Parameter(net.w.detach() * 2)  net.w.data.mul_(2)  net.w.requires_grad_(False)
net.ps.append(nn.Parameter(torch.ones(2, dtype=torch.float64)))  net.ps[0] = nn.Parameter(y.detach().clone())  net.md['c'] = nn.Sigmoid()
net.md['a'] = nn.ReLU()  net.md.pop('c')  plist.append(nn.Parameter(y.detach().sum()))  plist[-1] = nn.Parameter(y.detach().sum())
net.register_buffer('seen', y.detach().sum())  net.seen = net.seen * 2  net.seen.zero_()  net.train({bool} is True)  net.extra = {int}
net.forward = lambda q: q * 3  vars(net).pop('forward', None)  with torch.no_grad(): W.mul_(0.5)  with torch.no_grad(): W[0] = {number}
with torch.no_grad(): W.copy_(W.flip(0))  torch.manual_seed({int})  out.append(torch.rand(2))  y = y + torch.rand(())  out.append(torch.randperm(4))
state_ = torch.get_rng_state(); out.append(torch.rand(1)); torch.set_rng_state(state_)  y.uniform_()  T.add_(1)  V.mul_(0.5)  M.add_(1)
MT[0] = {number}  M[:, 1].mul_(2)  M.t()[1:].zero_()  M.view(-1)[::2].add_(1)  q_ = y[1:]; q_.add_(1); out.append(q_)  y[y > 1] = 0.5
q_ = y[:2]; w_ = y[1:]; q_.add_(1); w_.mul_(2)  x.add_(1)  I8.add_(1)  I8.mul_(2)  U8.sub_(1)  U8.add_({int} % 300)  BM.logical_not_()  I8 *= 0.5
BM |= I8 > 0  U8.copy_(I8)  tensors.append({tensor})  tensors[0] = {tensor}  ids[y] = {str}  ids[T] = {int}  ids[W] = {str}  del ids[T]
ids.pop(W, None)
ids.update({y: 1, T: 2})  held.add(y)  held.add(T)  held.discard(T)  held -= {T}  held |= {W, y}  out.append(ids.get(y))  out.append(len({y, z, y}))
for q in items: items.append({int}) if len(items) < 4 else None  for q in tensors: tensors.append(q * 2) if len(tensors) < 5 else None
for q in list(table): table[q] += {int} % 3  for q in L: L.remove(q)  for q in ids: out.append(q is T)  for q in table: table[q] = {int} % 7
for n_, p in net.named_parameters(): out.append(n_)  for p in net.parameters(): y = y + p.detach().sum()  y = frozen(y)  put(y); out.append(get())
torch.set_default_dtype(torch.float64)  torch.set_default_dtype(torch.float32)  out.append(torch.ones(2))  out.append(torch.tensor(1.5))
torch.set_grad_enabled({bool} is True)  torch.set_grad_enabled(True)  out.append(torch.is_grad_enabled())  out.append(x.grad)  print(y.detach())
print(net.seen.item())  out.append(net.state_dict()['w'])  out.append(y.max(0))  out.append((y.dtype, y.is_leaf, y.requires_grad))
y = Dirty.apply(y * 1)
z, q_ = Two.apply(y); out.append(q_)  w_, z = Later.apply(y, W)  assert {bool}  return y, z, out  raise Halt(y, 1)  z = y  z = y[:2]  y = z.view(-1)
"""
CHANGES = """
N = {digit}  G = -0.5  T = torch.arange(3, dtype=torch.float64); V = T[1:]  W = torch.ones(3, dtype=torch.float64, requires_grad=True)
W = torch.ones(3, dtype=torch.float64)  W.requires_grad_(False)  W.requires_grad_()  W.grad = None  W.grad = torch.ones(3, dtype=torch.float64)
net = Net()  net.w = nn.Parameter(torch.ones(3, dtype=torch.float64))  net.ps.append(nn.Parameter(torch.ones(1, dtype=torch.float64)))
net.md['a'] = nn.Sigmoid()  net.md = nn.ModuleDict({'b': Block(), 'a': nn.ReLU()})  net.seen = torch.ones((), dtype=torch.float64)  net.eval()
net.train()
net.none = torch.ones((), dtype=torch.float64)  net.requires_grad_(False)  W.register_hook(hooked.append)  W.register_hook(lambda grad: grad * 3)
net.register_forward_hook(lambda m, a_, o: o + 1)  opt = torch.optim.SGD([W, P], lr=0.2)  opt.param_groups[0]['lr'] = 0.01  opt.state.clear()
torch.set_default_dtype(torch.float64)  torch.set_default_dtype(torch.float32)  torch.manual_seed({digit})  ME = torch.ones(3, dtype=torch.float64)
M = torch.ones(3, 2, dtype=torch.float64).t()  I8 = torch.tensor([100, 100, -128], dtype=torch.int8)  I8 = I8.to(torch.int32)  BM = U8 > 0  ids = {}
ids[W] = 'new'  ids = {T: 't2'}  held.add(W)  held = {V}  put(torch.ones(3))  put, get = rebinder()  torch.set_grad_enabled(False)
torch.set_grad_enabled(True)  tensors[:] = [V, T]  Two.forward = staticmethod(lambda ctx, q: (q * 3, q > 1))  hooked.clear()  items.append(2)
"""
TEXT = (
    WORLD
    + """
class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, s):
        ctx.save_for_backward(q); ctx.s = s
        return q * s
    @staticmethod
    def backward(ctx, grad):
        (q,) = ctx.saved_tensors
        return grad * ctx.s + q.sign() * 0.5, None
class Two(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q):
        positive = q > 0; ctx.mark_non_differentiable(positive); ctx.save_for_backward(positive)
        return q * 2, positive
    @staticmethod
    def backward(ctx, grad, _): return torch.where(ctx.saved_tensors[0], grad * 2, grad * 3)
class Dirty(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q): ctx.mark_dirty(q); q.mul_(3); return q
    @staticmethod
    def backward(ctx, grad): return grad * 3
class Later(torch.autograd.Function):
    @staticmethod
    def forward(q, w): return q * w.sum(), q + 1
    @staticmethod
    def setup_context(ctx, inputs, output): ctx.save_for_backward(*inputs); ctx.set_materialize_grads(False)
    @staticmethod
    def backward(ctx, a, b):
        q, w = ctx.saved_tensors
        return None if a is None else a * w.sum(), None if a is None else (a * q).sum().expand(w.shape)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.tensor([1.0, -1.0, 0.5], dtype=torch.float64))
        self.ps = nn.ParameterList([nn.Parameter(torch.full((3,), 0.5, dtype=torch.float64)), nn.Parameter(torch.ones((), dtype=torch.float64))])
        self.pd = nn.ParameterDict({"a": nn.Parameter(torch.tensor(2.0, dtype=torch.float64))})
        self.md = nn.ModuleDict({"a": nn.Tanh(), "b": Block()})
        self.register_buffer("seen", torch.zeros((), dtype=torch.float64)); self.register_buffer("none", None)
        self.calls, self.mode, self.memo = 0, "a", {}
    def forward(self, q):
        self.calls += 1
        q = q * self.w.sum()
        for p in self.ps: q = q + p.sum()
        for key, p in self.pd.items(): q = q * p
        for name, m in self.md.items(): q = m(q)
        if self.training: self.seen += q.detach().sum().clamp(-9, 9)
        return q if self.none is None else q + self.none
net = Net()
P = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
opt = torch.optim.SGD([W, P], lr=0.1, momentum=0.5)
hooked, ids, held, plist = [], {T: "t", W: "w"}, {T}, nn.ParameterList([torch.ones((), dtype=torch.float64)])
M = torch.arange(6, dtype=torch.float64).view(2, 3); MT = M.t(); ME = torch.ones(1, dtype=torch.float64).expand(3)
I8, U8 = torch.tensor([1, -2, 127], dtype=torch.int8), torch.tensor([1, 0, 255], dtype=torch.uint8)
BM = torch.tensor([True, False, True])
@torch.no_grad()
def frozen(q): W.add_(0.25); return q * W.sum()
def rebinder():
    n_, t_ = 0, None
    def put(q):
        nonlocal n_, t_
        n_ += 1; t_ = q * n_
        return t_
    return put, lambda: t_
put, get = rebinder()
def settings(): return [opt.state_dict(), torch.get_rng_state().sum().item(), str(torch.get_default_dtype()), torch.is_grad_enabled(), len(held)]
"""
)
OUTSIDE = "cell L T V W tensors block H G N notes ids put get net P M MT ME I8 U8 BM hooked quiet items table names plist"


class Writer(python_programs.Writer):
    """Writes one program of these tables."""

    expressions, lines, changes = EXPRESSIONS, LINES, CHANGES
    simple = python_programs.SIMPLE | {"bool": "flag  k > 1  y.sum() > 0  i % 2  L  u > 1  y.requires_grad", "tensor": "y  z  x  T  W  P.sum() * y"}
    simple |= {"int": "i  j  k  2  1  0  len(L)  N", "digit": "0  1  2  3"}
    globals = "N, G, H, T, V, W, P, I8, U8, BM, held, cell, mode, pair"
    changed = f"{globals}, net, opt, M, MT, ME, ids, put, get, block"


def program(seed: int) -> str:
    """Return the program of a seed."""
    return re.sub(r"r = str\((v\d+)\)", r"r = type(\1).__name__", python_programs.program(seed, Writer))  # of a parameter there is no text


if __name__ == "__main__":
    print(program(int(sys.argv[1])))

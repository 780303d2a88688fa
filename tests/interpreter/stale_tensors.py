"""The programs of `stale_programs` about tensors, modules and arguments."""

from __future__ import annotations

NET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l, self.ls, self.s = nn.Linear(4, 4), nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)]), 1.0
        self.register_buffer("buf", torch.ones(4))
        self.opt = None
    def forward(self, t):
        t = self.l(t) * self.s + self.buf
        for l in self.ls:
            t = torch.relu(l(t))
        if self.training:
            t = t * 2
        return t if self.opt is None else t + self.opt["bias"]
n = f = Net()
"""
TEXT = """
== the value of an outside tensor
w = torch.ones(4)
def f(t): return t * w
-- w.mul_(3)
== an outside tensor is rebound
w = torch.ones(4)
def f(t): return t * w
-- w = torch.full((4,), 9.0)
== an outside tensor gets another shape
w = torch.ones(4)
def f(t): return t * w.shape[0]
-- w = torch.ones(2, 4)
== an outside tensor gets another dtype
w = torch.ones(4)
def f(t): return t * 2 if w.dtype is torch.float32 else t
-- w = w.double()
== a list of tensors grows
ws = [torch.ones(4), torch.ones(4)]
def f(t): return torch.cat([t] + ws[:0]) + torch.stack(ws).sum()
-- ws.append(torch.ones(4))
== other strides
w = torch.randn(4, 3)
def f(t): return t * 2 if w.is_contiguous() else t
-- w = torch.randn(3, 4).t()
== requires_grad
w = torch.ones(4)
def f(t): return t * w if w.requires_grad else t - w
-- w.requires_grad_()
== grad mode
def f(t): return t + 1 if torch.is_grad_enabled() else t
-- torch.set_grad_enabled(False)
== default dtype
def f(t): return torch.ones(3)
-- torch.set_default_dtype(torch.float64)
== the identity of an outside tensor
w, v = torch.ones(4), torch.ones(4)
table, key = {id(w): 2.0, id(v): 3.0}, w
def f(t): return t * table.get(id(key), 5.0)
-- key = v
== a method of parameters
w = nn.Parameter(torch.ones(4))
def f(t): return t * w.sum()
def reset(): del nn.Parameter.sum
-- nn.Parameter.sum = lambda self: 7.0
== a class of modules gets a call of its own
class N(nn.Module):
    def forward(self, t): return t * 2
n = N()
def f(t): return n(t)
-- N.__call__ = lambda self, t: t * 5
== a module attribute
NET
-- n.s = 5.0
== a submodule is swapped
NET
-- n.l = nn.Linear(4, 4, bias=False)
== a submodule of another type
NET
-- n.l = nn.Identity()
== a module list grows
NET
-- n.ls.append(nn.Linear(4, 4))
== a module becomes one of another class
NET
class Other(Net):
    def forward(self, t): return super().forward(t) + 5
-- n.__class__ = Other
== a submodule becomes one of another class
NET
class Louder(nn.Linear):
    def forward(self, t): return super().forward(t) * 3
-- n.ls[1].__class__ = Louder
== a module gets another __dict__
NET
-- n.__dict__ = {**n.__dict__, "s": 5.0}
== a submodule gets another __dict__
NET
-- n.ls[0].__dict__ = nn.Linear(4, 4).__dict__
== the only module gets another __dict__
f = nn.Linear(4, 4)
-- f.__dict__ = nn.Linear(4, 4).__dict__
== the only module becomes one of another class
class Louder(nn.Linear):
    def forward(self, t): return super().forward(t) * 3
f = nn.Linear(4, 4)
-- f.__class__ = Louder
== the hooks of a submodule are replaced
NET
-- n.l._forward_hooks = collections.OrderedDict({0: lambda module, args, result: result + 1})
== the parameters of a submodule are replaced
NET
-- n.l._parameters = dict(nn.Linear(4, 4)._parameters)
== two submodules change places
NET
-- n.ls._modules = {"0": n.ls[1], "1": n.ls[0]}
== an attribute hides a parameter
NET
-- n.l.__dict__["weight"] = torch.ones(4, 4)
== an attribute hides a submodule
NET
-- n.__dict__["l"] = nn.Linear(4, 4)
== eval mode
NET
-- n.eval()
== eval mode of a child
class D(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)
    def forward(self, t): return self.inner(t) if self.inner.training else t
f = D()
-- f.inner.eval()
== a parameter is updated
NET
-- with torch.no_grad(): n.l.weight.mul_(2)
== a parameter is replaced
NET
-- n.l.weight = nn.Parameter(torch.ones(4, 4))
== a bias is removed
NET
-- n.l.bias = None
== parameters are tied
NET
-- n.ls[1].weight = n.l.weight
== a buffer is replaced
NET
-- n.buf = torch.full((4,), 7.0)
== a forward hook is added
NET
-- n.l.register_forward_hook(lambda m, i, o: o * 2)
== a forward pre-hook is added
NET
-- n.l.register_forward_pre_hook(lambda m, i: (i[0] + 1,))
== an attribute that was None
NET
-- n.opt = {"bias": 3.0}
== forward of an instance is replaced
NET
-- n.l.forward = lambda t: t * 0
== forward of a class is replaced
NET
-- Net.forward = lambda self, t: t * 3
== a torch function is replaced
def f(t): return F.silu(t)
-- F.silu = lambda t: t * 100
== a function as an argument
def f(t, g): return g(t)
def args(i): return torch.ones(4), (lambda t: t * 2, lambda t: t * 3)[i]
-- pass
== a nested argument
def f(c): return c["a"][0] * c["k"]
def args(i): return ({"a": [torch.ones(4)], "k": (2.0, 3.0)[i]},)
-- pass
== an argument of another type
def f(t, k): return t * k
def args(i): return torch.ones(4).long(), (2, 2.0)[i]
-- pass
== a set of tensors that become one
def f(t, u): return t * len({t, u})
def args(i): t, u = torch.ones(4), torch.ones(4); return ((t, u), (t, t))[i]
-- pass
== a set of tensors that were one
def f(t, u): return t * len({t, u})
def args(i): t, u = torch.ones(4), torch.ones(4); return ((t, t), (t, u))[i]
-- pass
== keys of a dict that become one
def f(ts): return ts[0] * sum({t: k for k, t in enumerate(ts)}.values())
def args(i): t, u = torch.ones(4), torch.ones(4); return ([t, u, t], [t, t, u])[i],
-- pass
== a tensor in a set with an outside one
w = torch.ones(4)
def f(t): return t * len({t, w}) + (t in {w})
def args(i): return (torch.ones(4), w)[i],
-- pass
== a pair with a tensor as a key
def f(t, u): return t * len({(t, 1), (u, 1)})
def args(i): t, u = torch.ones(4), torch.ones(4); return ((t, u), (t, t))[i]
-- pass
== an argument that overrides torch functions
class Overriding:
    def __torch_function__(self, *args): return None
def f(t, x): return t * (2 if torch.overrides.has_torch_function_unary(x) else 3)
def args(i): return torch.ones(4), (Overriding(), object())[i]
-- pass
== an argument that does not override torch functions
class Overriding:
    def __torch_function__(self, *args): return None
def f(t, x): return t * (2 if torch.overrides.has_torch_function((x, 1)) else 3)
def args(i): return torch.ones(4), (object(), Overriding())[i]
-- pass
== a class begins to override torch functions
class Plain:
    pass
def f(t, x): return t * (2 if torch.overrides.has_torch_function_variadic(x, t) else 3)
p = Plain()
def args(i): return torch.ones(4), p
-- Plain.__torch_function__ = classmethod(lambda cls, *args: None)
== an argument becomes an inference tensor
def f(t): return t * (2 if t.is_inference() else 3)
def args(i):
    with torch.inference_mode(i == 1): return (torch.ones(4),)
-- pass
"""

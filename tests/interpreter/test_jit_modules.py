"""Modules as people write them, compiled beside eager: results, gradients and buffers over calls between which something changes."""

from __future__ import annotations

import collections
import copy
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import dovetail
from dovetail.errors import Unsupported

X, SEQUENCE = torch.linspace(-1, 2, 24).reshape(4, 6), torch.linspace(-2, 2, 60).reshape(2, 5, 6)


class Containers(nn.Module):
    def __init__(self):
        super().__init__()
        self.named = nn.ModuleDict({"a": nn.Linear(6, 6), "b": nn.ReLU()})
        self.listed = nn.ModuleList([nn.Linear(6, 6) for _ in range(3)])
        self.weights = nn.ParameterList([torch.ones(6), torch.arange(6.0)])
        self.keyed = nn.ParameterDict({"z": torch.arange(6.0)})
        self.chain = nn.Sequential(collections.OrderedDict(first=nn.Linear(6, 6), second=nn.Tanh()))

    def forward(self, x):
        for name, module in self.named.items():
            x = module(x) + len(name)
        for module in self.listed[1:]:
            x = module(x)
        for i, weight in enumerate(self.weights):
            x = x * weight + i
        for key in self.keyed:
            x = x + self.keyed[key]
        for module in reversed(self.chain):
            x = module(x)
        return self.chain(x) + sum(p.sum() for name, p in self.named_parameters() if name.endswith("bias"))


class Calling(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 6)

    def __call__(self, x, k=2):
        return self.forward(x) * k + super().__call__(x)

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.inner, name)

    def forward(self, x):
        return F.linear(x, self.weight, self.bias) + self.in_features


class Averages(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(6))
        self.register_buffer("calls", torch.tensor(0))
        self.register_buffer("apart", torch.zeros(2), persistent=False)

    def forward(self, x):
        with torch.no_grad():
            self.mean.mul_(0.9).add_(x.mean(0), alpha=0.1)
            self.calls += 1
        self.apart = self.apart + 1
        return x - self.mean / self.calls + self.apart.sum()


class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def block(self, x, k=1):
        return torch.tanh(self.linear(x)) * k

    def forward(self, x):
        return checkpoint(self.block, x, 2, use_reentrant=True) + checkpoint(lambda y: self.block(y) * 3, x, use_reentrant=False)


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.transformer = nn.Transformer(6, 2, 1, 1, 12, 0.0, batch_first=True)

    def forward(self, x):
        return self.transformer(x, x, tgt_mask=nn.Transformer.generate_square_subsequent_mask(5))


class Attending(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = nn.MultiheadAttention(6, 2, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=True)


def hooked():
    module = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6))
    module[0].register_forward_hook(lambda module, args, result: result * 2)
    module[1].register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    module.register_forward_hook(lambda module, args, kwargs, result: result + args[0], with_kwargs=True)
    return module


def linears(n=6):
    return nn.Sequential(*[nn.Linear(6, 6) for _ in range(n)])


def halved(module, i):
    module.load_state_dict({name: value * 0.5 for name, value in module.state_dict().items()}, assign=bool(i % 2))
    module.zero_grad()


def frozen(module, i):
    for p in module.parameters():
        p.requires_grad_(bool(i % 2))
        p.grad = None


def replaced(module, i):
    module[1].weight = nn.Parameter(module[1].weight.detach() * 2, requires_grad=bool(i % 2))


def in_turn(module, i):
    module.train(i % 2 == 0)


MODULES = {
    "containers": (Containers, X, None),
    "calls and attributes of its own": (Calling, X, None),
    "buffers": (Averages, X, None),
    "checkpoints": (Checkpointed, X, None),
    "a mask made inside": (Masked, SEQUENCE, None),
    "attention with weights": (Attending, SEQUENCE, None),
    "an encoder": (lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(6, 2, 12, 0.0, batch_first=True), 2), SEQUENCE, in_turn),
    "LSTM": (lambda: nn.LSTM(6, 4, 2, batch_first=True), SEQUENCE, None),
    "hooks": (hooked, X, None),
    "weight norm": (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(6, 6)), X, None),
    "spectral norm": (lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(6, 6)), X, None),
    "training in turn": (lambda: nn.Sequential(linears(2), nn.BatchNorm1d(6), nn.Dropout(0.0), linears(2)), X, in_turn),
    "state is loaded": (linears, X, halved),
    "parameters are frozen in turn": (linears, X, frozen),
    "parameters are replaced": (linears, X, replaced),
}


def tensors(nest):
    return [x for x in torch.utils._pytree.tree_leaves(nest) if isinstance(x, torch.Tensor)]


def step(module, x):
    """Results, and the gradients of the input and of the parameters."""
    x = x.clone().requires_grad_()
    results = tensors(module(x))
    sum([(r * r).sum() + r.sum() for r in results if r.requires_grad]).backward()
    return [*results, x.grad, *[p.grad for p in module.parameters()], *module.buffers()]


@pytest.mark.parametrize("name", MODULES)
def test_a_module_is_what_it_is_in_eager(name):
    make, x, change = MODULES[name]
    torch.manual_seed(0)
    eager = make()
    plain = copy.deepcopy(eager)
    compiled = dovetail.jit(plain, interpretation="bytecode")
    for i in range(6):
        if change is not None and i:
            change(eager, i)
            change(plain, i)
        for found, wanted in zip(step(compiled, x + i / 10), step(eager, x + i / 10), strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=5e-5)  # gradients of norms cancel, and have the errors of their parts


def test_a_module_is_converted_between_calls():
    module = linears()
    compiled = dovetail.jit(module, interpretation="bytecode")
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float32) * 2:
        module.to(dtype)
        for _ in range(3):
            torch.testing.assert_close(compiled(X.to(dtype)), module(X.to(dtype)))
    assert compiled.cache_info().programs == 3


def test_functionalize_without_views_is_refused_with_a_way_out():
    with pytest.raises(Unsupported, match=r"this part of torch\.func is not traced; use torch.func.grad, vjp, jvp, vmap"):
        dovetail.jit(lambda x: torch.func.functionalize(torch.sin, remove="mutations_and_views")(x), interpretation="bytecode")(X)
    assert torch.equal(torch.func.vmap(torch.sin)(X), torch.sin(X)), "nothing is left behind"


class Frozen(torch.nn.Module):
    """A norm that training does not change, and a state dict of its own."""

    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(4)

    def train(self, mode=True):
        super().train(mode)
        self.norm.eval()
        return self

    def state_dict(self, *args, **kwargs):
        return {"own": super().state_dict(*args, **kwargs)}

    def forward(self, x):
        return self.norm(x)


def test_methods_that_a_module_overrides_are_its_own():
    model = Frozen()
    compiled = dovetail.jit(model)
    assert compiled.train() is compiled and model.training and not model.norm.training
    assert list(compiled.state_dict()) == ["own"]
    compiled(torch.randn(3, 4))
    assert model.norm.num_batches_tracked == 0


class Returning(torch.nn.Linear):
    __slots__ = ("extra",)

    def itself(self):
        return self


def test_what_a_method_has_as_self_is_copied_and_pickled_as_the_module():
    module = Returning(2, 2)
    inside = dovetail.jit(module).itself()
    assert isinstance(inside, Returning) and inside.weight is module.weight
    for copied in (copy.copy(inside), copy.deepcopy(inside), pickle.loads(pickle.dumps(inside))):
        assert type(copied) is Returning and torch.equal(copied.weight, module.weight)


class Doubled(torch.nn.Module):
    def forward(self, weight):
        return weight * 2


def test_a_compiled_module_passes_for_one_of_the_class_of_its_original():
    module = Returning(2, 2)
    compiled, x = dovetail.jit(module), torch.randn(3, 2)
    assert isinstance(compiled, Returning) and isinstance(compiled, torch.nn.Module) and compiled.__class__ is Returning
    assert isinstance(compiled, compiled.itself().__class__), "as a method of the module may ask of another"
    assert not isinstance(compiled, Frozen)
    inside = dovetail.jit(lambda module, x: module(x) + (1 if isinstance(module, Returning) and module.__class__ is Returning else 0))
    torch.testing.assert_close(inside(compiled, x), module(x) + 1)
    assert inside(compiled, x) is not None and inside.cache_info().hits == 1


def test_a_class_that_a_library_derives_is_that_of_the_original():
    module, x = torch.nn.Linear(2, 2), torch.randn(3, 2)
    compiled = dovetail.jit(module)
    compiled(x)
    torch.nn.utils.parametrize.register_parametrization(compiled, "weight", Doubled())
    assert torch.nn.utils.parametrize.is_parametrized(module)
    torch.testing.assert_close(compiled(x), module(x))


class Weighing(nn.Module):
    """Has buffers of class nn.Buffer, one of them not kept in its state."""

    def __init__(self, n):
        super().__init__()
        weights = torch.ones(n)
        weights[-1] = 0.5
        self.weights, self.offset = nn.Buffer(weights), nn.Buffer(torch.zeros(n), persistent=False)

    def forward(self, x):
        return x * self.weights + self.offset


def test_buffers_of_class_buffer_may_be_created_inside():
    def fn(x):
        module = Weighing(x.shape[-1])
        return module(x), [name for name, _ in module.named_buffers()], list(module.state_dict())

    x = torch.randn(3, 4)
    result, expected = dovetail.jit(fn)(x), fn(x)
    torch.testing.assert_close(result[0], expected[0])
    assert result[1:] == expected[1:] == (["weights", "offset"], ["weights"])


def test_a_buffer_of_a_module_is_an_instance_of_buffer():
    class Asking(Weighing):
        def forward(self, x):
            return isinstance(self.weights, nn.Buffer), isinstance(self.weights, nn.Parameter), isinstance(x, nn.Buffer), x * self.weights

    module = Asking(4)
    assert dovetail.jit(module)(torch.randn(2, 4))[:3] == (True, False, False)


def test_attributes_of_a_tensor_that_the_program_computes_are_set_on_the_result():
    def fn(x):
        y, z = x * 2, x + 1
        y.label, y.partner, z.label = "doubled", z, "other"
        del z.label
        return y, hasattr(z, "label"), getattr(y.view(-1), "label", None), len(y.label)

    x = torch.randn(3, 4)
    compiled = dovetail.jit(fn)
    for _ in range(2):
        y, *rest = compiled(x)
        assert (y.label, rest) == ("doubled", [False, None, 7])
        torch.testing.assert_close(y.partner, x + 1)


def test_lazy_modules_are_compiled_once_their_parameters_have_shapes():
    def make() -> nn.Module:
        return nn.Sequential(nn.LazyConv1d(3, 2), nn.LazyBatchNorm1d(), nn.Flatten(), nn.LazyLinear(2))

    torch.manual_seed(0)
    model, x = make(), torch.randn(2, 1, 5)
    twin = make()
    compiled = dovetail.jit(twin)
    for _ in range(3):
        for parameters, module in ((model.parameters(), model), (twin.parameters(), compiled)):
            torch.manual_seed(1)
            module(x).square().sum().backward()
            with torch.no_grad():
                [p.sub_(0.1 * p.grad) for p in parameters]
    for want, got in zip(model.state_dict().values(), twin.state_dict().values(), strict=True):
        torch.testing.assert_close(got, want)
    assert compiled.cache_info().misses == 1
    assert type(twin[0]) is nn.Conv1d

"""A small network, and every way in which what it holds may change between two calls."""

from __future__ import annotations

import collections
import copy

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.drop, self.scale = nn.Linear(3, 3), nn.Dropout(1.0), 1.5

    def forward(self, x):
        return self.drop(F.gelu(self.linear(x)) + 1) * self.scale


class Twice(Block):
    def forward(self, x):
        return super().forward(x) * 2


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(4)])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


class Cubed(Net):
    def forward(self, x):
        return super().forward(x) ** 3


def hooked(module, args, result):
    return result - 4


CHANGES = {
    "a parameter": lambda net: setattr(net.blocks[1].linear, "weight", nn.Parameter(torch.ones(3, 3))),
    "a parameter in its table": lambda net: net.blocks[2].linear._parameters.update(bias=nn.Parameter(torch.ones(3))),
    "the data of a parameter": lambda net: setattr(net.blocks[1].linear.weight, "data", torch.ones(3, 3)),
    "elements of a parameter": lambda net: net.blocks[1].linear.weight.data.zero_(),
    "a parameter that needs no gradient": lambda net: net.blocks[3].linear.bias.requires_grad_(False),
    "no parameter": lambda net: setattr(net.blocks[3].linear, "bias", None),
    "a table of parameters": lambda net: setattr(net.blocks[1].linear, "_parameters", dict(nn.Linear(3, 3)._parameters)),
    "a tensor of another shape": lambda net: setattr(net.blocks[0].linear.bias, "data", torch.ones(1, 3)),
    "another dtype": lambda net: net.double(),
    "a submodule": lambda net: setattr(net.blocks[0], "linear", nn.Linear(3, 3, dtype=net.blocks[1].linear.weight.dtype)),
    "a submodule of another class": lambda net: setattr(net.blocks[0], "drop", nn.Tanh()),
    "the order": lambda net: net.blocks._modules.update({"0": net.blocks[1], "1": net.blocks[0]}),
    "one block less": lambda net: net.blocks._modules.pop("3"),
    "an attribute": lambda net: setattr(net.blocks[2], "scale", 7.0),
    "an attribute in its dictionary": lambda net: vars(net.blocks[1]).update(scale=3.0),
    "a forward of its own": lambda net: setattr(net.blocks[2], "forward", lambda x: x * 5),
    "a hook": lambda net: net.blocks[0].register_forward_hook(hooked),
    "hooks": lambda net: setattr(net.blocks[0], "_forward_hooks", collections.OrderedDict({0: hooked})),
    "a class": lambda net: setattr(net.blocks[1], "__class__", Twice),
    "a class of the whole": lambda net: setattr(net, "__class__", Cubed),
    "a __dict__": lambda net: setattr(net.blocks[1], "__dict__", {**vars(net.blocks[1]), "scale": 9.0}),
    "train": lambda net: net.train(),
    "eval": lambda net: net.eval(),
    "copies": lambda net: setattr(net, "blocks", copy.deepcopy(net.blocks)),
}

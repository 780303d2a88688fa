"""What cases share: small networks and data of training scripts, what such a script leaves behind, arguments by the size of a batch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from cases import Case, Collection
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SIZES = (2, 3, 2, 4)  # of the batches of what is held back


def weights(*modules: nn.Module) -> list[dict[str, torch.Tensor]]:
    return [{name: each.detach().clone() for name, each in module.state_dict().items() if isinstance(each, torch.Tensor)} for module in modules]


def rows(count: int, inputs: int = 8, outputs: int = 3, batch: int = 4) -> DataLoader:
    """Return a loader of labelled rows, whose last batch is smaller where `batch` does not divide `count`."""
    return DataLoader(TensorDataset(torch.randn(count, inputs), torch.randint(0, outputs, (count,))), batch_size=batch, shuffle=True)


def network(inputs: int = 8, outputs: int = 3) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, outputs))


class Called(nn.Module):
    """A module that calls a function with its parts."""

    def __init__(self, function: Callable, *parts: nn.Module):
        super().__init__()
        self.function, self.parts = function, nn.ModuleList(parts)

    def forward(self, *args: Any) -> Any:
        return self.function(*self.parts, *args)


def calling(method: str, create: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    """Return what creates a module that calls a method of what `create` returns: jit compiles the forward alone."""
    return lambda: Called(lambda part, *args: getattr(part, method)(*args), create())


def together(create: Callable[[], Callable], makers: tuple[Callable[[int], Any], ...]) -> tuple[Callable, Callable, None]:
    """Return what is compiled, and what makes its arguments for a batch."""
    return create(), lambda batch: (tuple(maker(batch) for maker in makers), {}), None


def hold_back(collection: Collection, library: str, name: str, create: Callable[[], Callable], *makers: Callable[[int], Any], **options: Any) -> None:
    """Add what `create` returns to the cases that are held back, with arguments for batches of several sizes."""
    build = partial(together, create, makers)
    collection.cases.append(Case(library, f"{name}, held back", build, batches=SIZES, **options))


def normal_rows(*shape: int) -> Callable[[int], torch.Tensor]:
    """Return what makes normal numbers for a batch."""
    return lambda n: torch.randn(n, *shape)


def leaves(*shape: int) -> Callable[[int], torch.Tensor]:
    """Return what makes normal numbers that require a gradient for a batch."""
    return lambda n: torch.randn(n, *shape, requires_grad=True)


def ids(high: int, *shape: int) -> Callable[[int], torch.Tensor]:
    """Return what makes integers below `high` for a batch."""
    return lambda n: torch.randint(0, high, (n, *shape))

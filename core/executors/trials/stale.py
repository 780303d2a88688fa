"""Find results that an executor keeps by the identity or the address of its inputs.

Two trials seldom see one object or one address with other values, and the calls in between are not compared.  So a line is run on copies of an
earlier trial's inputs, and once more when those of this trial lie in the same memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from dovetail.executors.trials.budget import Account
from dovetail.executors.trials.reference import own_copy
from dovetail.trace import Proxy

OF_A_LINE = 1 << 20  # bytes of inputs of a line that are copied
OF_ALL = 1 << 24  # and of all lines of a program


def kept(inputs: Mapping[Proxy, Any], account: Account) -> dict[Proxy, torch.Tensor] | None:
    """Return copies of the tensors among `inputs` for the next trial; None where they are too large, or there are none."""
    tensors = {p: x for p, x in inputs.items() if isinstance(x, torch.Tensor)}
    if not tensors or any([type(x) not in (torch.Tensor, torch.nn.Parameter) or x.layout is not torch.strided for x in tensors.values()]):
        return None
    size = sum(x.untyped_storage().nbytes() for x in tensors.values())
    if size > OF_A_LINE or account.kept + size > OF_ALL:
        return None
    account.kept += size
    return {p: own_copy(x) for p, x in tensors.items()}


def on_new_values(copies: Mapping[Proxy, torch.Tensor], inputs: Mapping[Proxy, Any], run: Callable[[dict[int, Any]], Any]) -> Any:
    """Return what `run` computes of `inputs` in the memory of `copies`, of which it computed before; None where they do not fit there.

    `run` takes what stands for each tensor of the call, by its identity.
    """
    if any([_layout(copy) != _layout(inputs[p]) for p, copy in copies.items()]):
        return None
    instead = {id(inputs[p]): copy for p, copy in copies.items()}
    run(instead)
    for p, copy in copies.items():
        copy.untyped_storage().copy_(inputs[p].untyped_storage())
    return run(instead)


def _layout(x: torch.Tensor) -> tuple:
    return x.dtype, x.device, x.shape, x.stride(), x.storage_offset(), x.untyped_storage().nbytes(), x.is_conj(), x.is_neg()

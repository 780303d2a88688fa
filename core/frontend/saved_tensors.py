"""Whether eager mode raises in a backward since the program has written into what an operation saves: its own autograd is run without data."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import torch
from torch.autograd.graph import increment_version

from dovetail.frontend.autocast import autocast_off
from dovetail.langs.torch import TO_TORCH
from dovetail.prims.sizes import Size, hint_of, is_symbolic
from dovetail.torch_internals import no_torch_function
from dovetail.trace import BoundSymbol, NumberProxy, Proxy, TensorProxy, leaves, tree_map
from dovetail.trace.saved_writes import OVERWRITTEN_MESSAGE, LaterWrites

_OVERWRITTEN = "modified by an inplace operation"
_NUMBERS = {"bool": True, "int": 1, "float": 1.0, "complex": 1j}
_MOST = 4096  # answers that are remembered
_ANSWERS: dict[Hashable, bool] = {}  # whether a line of a kind saves one of its tensors, which PyTorch decides by dtypes and flags, not by sizes


def overwrites_saved(writes: LaterWrites) -> str | None:
    """Return the message of the error, None where the backward of eager mode raises none."""
    for p, writers in writes.writers.items():
        counted = next((line for line, at in writers if _is_counted(line, at)), None)
        if counted is not None and _saves(writes.line, p):
            line = writes.line
            return OVERWRITTEN_MESSAGE.format(_described(line), _described(counted))
    return None


def _described(line: BoundSymbol) -> str:
    return f"{line.symbol.name} ({line.where})" if line.where else line.symbol.name


def _is_counted(line: BoundSymbol, at: Proxy) -> bool:
    """Return whether a line counts up the version of what it writes: that of a batch norm, which writes its statistics, does not."""
    with torch.no_grad():
        return at in _Run(line).written


def _saves(line: BoundSymbol, p: Proxy) -> bool:
    """Return whether the backward of a line raises where `p`, which the line reads or computes, is written after it."""
    kind = _kind_of(line, p)
    if kind not in _ANSWERS:
        if len(_ANSWERS) >= _MOST:
            _ANSWERS.clear()
        with torch.enable_grad():
            run = _Run(line)
            _ANSWERS[kind] = p in run.tensors and run.raises_after_write(p)
    return _ANSWERS[kind]


def _kind_of(line: BoundSymbol, p: Proxy) -> Hashable:
    """Return what is equal for lines of which PyTorch saves the same: the operation, its other arguments, and its tensors but for their sizes."""
    tensors: dict[Proxy, str] = {}

    def name(x: Any) -> Any:
        if not isinstance(x, TensorProxy):
            return x
        if x not in tensors:
            sizes = "".join(["n" if is_symbolic(n) or n > 1 else str(n) for n in x.spec.shape])
            tensors[x] = f"{len(tensors)} {x.spec.dtype} {sizes} {x.spec.requires_grad} {x.spec.is_dense}"
        return tensors[x]

    return line.symbol, repr(tree_map(name, (line.args, line.kwargs, line.out))), tensors.get(p)


class _Run:
    """The operation of a line on tensors without memory.

    Attributes:
        leaves: those that require grad, of which `tensors` has copies.
        tensors: what stands for the tensors of the line, its results among them where it has run.
        result: what it returned, None where it cannot run so.
        written: the tensors that it has written.
    """

    def __init__(self, line: BoundSymbol):
        self.leaves: list[torch.Tensor] = []
        self.tensors: dict[Proxy, torch.Tensor] = {}
        self.result, self.written = None, set[Proxy]()
        function = getattr(line.symbol, "callable", None)
        if function is None:
            return
        with no_torch_function(), autocast_off():
            args, kwargs = tree_map(self._stand_in, (line.args, line.kwargs))
            before = {p: x._version for p, x in self.tensors.items()}
            try:
                self.result = function(*args, **kwargs)
            except Exception:  # it reads values, or has no rule without them
                return
        self.written = {p for p, version in before.items() if self.tensors[p]._version != version}
        results = zip(leaves(line.out), leaves(self.result), strict=False)
        self.tensors |= {p: x for p, x in results if isinstance(p, TensorProxy) and isinstance(x, torch.Tensor) and p not in self.tensors}

    def _stand_in(self, x: Any) -> Any:
        if isinstance(x, NumberProxy):
            return _NUMBERS[x.spec.kind]
        if isinstance(x, Size):
            return hint_of(x)
        if isinstance(x, torch.device):
            return torch.device("meta")
        if not isinstance(x, TensorProxy):
            return x
        if x not in self.tensors:
            sizes, steps = [[hint_of(n) for n in of] for of in (x.spec.shape, x.spec.steps)]
            new = torch.empty_strided(sizes, steps, dtype=TO_TORCH[x.spec.dtype], device="meta")
            if x.spec.requires_grad and torch.is_grad_enabled():
                self.leaves.append(new.requires_grad_())
                new = new.clone()  # a leaf could not be written
            self.tensors[x] = new
        return self.tensors[x]

    def raises_after_write(self, p: Proxy) -> bool:
        """Return whether the backward raises after a write to `p`; False where it cannot run without memory."""
        roots = list({id(x): x for x in leaves(self.result) if isinstance(x, torch.Tensor) and x.grad_fn is not None}.values())
        if not roots:  # what returns nothing has written its first argument
            roots = [self.tensors[q] for q in self.written if self.tensors[q].grad_fn is not None]
        increment_version(self.tensors[p])
        try:
            torch.autograd.grad(roots, self.leaves, [torch.empty_like(x) for x in roots], allow_unused=True)
        except Exception as error:
            return _OVERWRITTEN in str(error)
        return False

"""Tensors that `copy.deepcopy` copies while a program is traced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dovetail.errors import EagerCall, require
from dovetail.langs.torch import LANGUAGE
from dovetail.prims import recorder as current_recorder
from dovetail.trace import Proxy, user_line
from dovetail.trace.aliases import storage_roots

if TYPE_CHECKING:
    from dovetail.frontend.autograd.traced_autograd import TracedAutograd
    from dovetail.frontend.interpreter.tracking.tracker import Tracker

_NO_COPY = "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment; use x.detach() or x.clone()"


class DeepCopies:
    """The tensors copied so far, as pairs of a memo and the address of the memory that was copied, or of what stands for it.

    PyTorch copies the memory of a tensor: two views of one memory share memory again, and a view keeps its strides.  Here each gets its own.
    """

    def __init__(self, autograd: TracedAutograd):
        self.autograd = autograd
        self.copied: list[tuple[Any, int]] = []

    def copy(self, tracker: Tracker, p: Proxy, memo: Any) -> Proxy:
        """Return copy.deepcopy(p, memo): of a leaf that requires grad another one, with a copy of its gradient."""
        self._check_memory(p, memo)
        autograd, trace = self.autograd, self.autograd.recorder.trace
        if not autograd.requires_grad(tracker, p) or current_recorder.get() is not trace:
            return LANGUAGE["clone"](p)
        require(autograd.is_leaf(tracker, p), _NO_COPY, error=RuntimeError)
        copied = autograd.create_leaf(LANGUAGE["clone"](LANGUAGE["detach"](p)))
        if (grad := autograd.grad_of(tracker, p)) is not None:
            autograd.grads[copied] = LANGUAGE["clone"](LANGUAGE["detach"](grad))
        return copied

    def _check_memory(self, p: Proxy, memo: Any) -> None:
        """Raise EagerCall where the copy would have memory, or strides, that PyTorch's has not."""
        recorder = self.autograd.recorder
        root = storage_roots(recorder.trace, recorder.trace.lines).get(p, p)
        real = recorder.real.get(root)
        memory = 0 if real is None else real.untyped_storage().data_ptr()
        memory = memory or id(root)  # of what is computed, or empty
        if not p.spec.is_dense or any([other is memo and copied == memory for other, copied in self.copied]):
            raise EagerCall(f"copy.deepcopy of views at {user_line()}, whose copies share memory or have gaps, is not traced; use x.clone()")
        self.copied.append((memo, memory))

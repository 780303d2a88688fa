"""Results that other results of the same call are computed from: who looks at their gradients gets all of it, or an error."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import dovetail


def layers(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    hidden = (x * 2).sin()
    return hidden, (hidden * hidden).sum(), x.cos(), hidden.detach().exp().sum() + x.sum()


def gradient(backward: Callable[..., torch.Tensor | None], fn: Callable) -> list[torch.Tensor | None]:
    x = torch.arange(3.0).requires_grad_()
    return [backward(*fn(x)), x.grad]


def retained(of: torch.Tensor, loss: torch.Tensor) -> torch.Tensor | None:
    of.retain_grad()
    loss.backward()
    return of.grad


def hooked(of: torch.Tensor, loss: torch.Tensor) -> torch.Tensor:
    seen = []
    of.register_hook(seen.append)
    loss.backward()
    return seen[0]


WHOLE = {
    "a hidden layer that only the caller uses": lambda look, h, y, z, w: look(h, h.sum()),
    "the last result": lambda look, h, y, z, w: look(y, y * 3 + h.sum()),
    "a result that none is computed from": lambda look, h, y, z, w: look(z, y + z.sum()),
    "a hidden layer that a result has detached": lambda look, h, y, z, w: look(h, h.sum() + w),
}
PART = {
    "a loss alone": lambda look, h, y, z, w: look(h, y),
    "a loss and more outside": lambda look, h, y, z, w: look(h, y + h.sum()),
}


@pytest.mark.parametrize("look", [retained, hooked])
@pytest.mark.parametrize("use", WHOLE)
def test_a_gradient_that_is_whole_is_eagers(use, look) -> None:
    fn = dovetail.jit(layers)
    for _ in range(3):
        got, want = (gradient(lambda *results: WHOLE[use](look, *results), f) for f in (fn, layers))
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("look", [retained, hooked])
@pytest.mark.parametrize("use", PART)
def test_a_part_of_a_gradient_is_refused(use, look) -> None:
    fn = dovetail.jit(layers)
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"result 0 .* result 1, which the same call computed from it"):
            gradient(lambda *results: PART[use](look, *results), fn)


def test_results_are_not_kept_alive_for_it() -> None:
    fn = dovetail.jit(layers)
    x = torch.arange(3.0).requires_grad_()
    hidden, loss, *_ = fn(x)
    hidden.retain_grad()
    del hidden
    loss.backward()
    torch.testing.assert_close(x.grad, gradient(lambda h, y, z, w: y.backward(), layers)[1])


def test_hooks_that_wait_for_a_backward_alone_are_no_reason(monkeypatch) -> None:
    arrived = []

    def hook(g: torch.Tensor | None) -> None:
        arrived.append(g)

    monkeypatch.setattr(hook, "__module__", "torch.distributed.fsdp")
    fn, x = dovetail.jit(layers), torch.arange(3.0).requires_grad_()
    hidden, loss, *_ = fn(x)
    hidden.register_hook(hook)
    (loss + hidden.sum()).backward()
    assert len(arrived) == 1
    torch.testing.assert_close(x.grad, gradient(lambda h, y, z, w: (y + h.sum()).backward(), layers)[1])

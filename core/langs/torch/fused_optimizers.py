"""Optimizers that PyTorch computes in one kernel, written out: what is computed before can then be fused with them, and nothing is copied."""

from __future__ import annotations

from typing import Any

import torch

from dovetail import dtypes
from dovetail.langs.torch.binding.opaque import opaque
from dovetail.langs.torch.binding.symbol import LANGUAGE, resolve, torchquery
from dovetail.prims import recorder
from dovetail.torch_internals import FUSED

_WIDE = (dtypes.float32, dtypes.float64)  # what is smaller is computed in float32, and rounded once


def _is_written_out(lists: tuple, grad_scale: Any, found_inf: Any) -> bool:
    """Return whether the tensors are of one wide dtype in the host's memory, without the factor of a GradScaler."""
    specs = [x.spec for tensors in lists for x in tensors]
    alike = all([spec.dtype in _WIDE and spec.dtype is specs[0].dtype and spec.device.type == "cpu" for spec in specs])
    return alike and grad_scale is None and found_inf is None and not recorder.get().environment.grad_enabled()


def _decayed(p: Any, g: Any, weight_decay: float, maximize: bool) -> Any:
    """Return the gradient to follow, with that of weight_decay * p**2 / 2."""
    g = -g if maximize else g
    return g if weight_decay == 0 else g + p * weight_decay


@torchquery(f"{FUSED}sgd_")
def sgd_(self: Any, grads: Any, momentum_buffer_list: Any, *, grad_scale: Any = None, found_inf: Any = None, **options: Any) -> None:
    """Do a step of stochastic gradient descent with momentum on each parameter of the list `self`.

    With g the gradient, m the momentum and d the dampening: b = m * b + (1 - d) * g, or g at first; then p -= lr * b, with Nesterov's momentum
    p -= lr * (g + m * b).
    """
    lists = (self, grads, momentum_buffer_list)
    if not _is_written_out(lists, grad_scale, found_inf):
        opaque(resolve(f"{FUSED}sgd_"), lists, {**options, "grad_scale": grad_scale, "found_inf": found_inf})
        return
    momentum, dampening = options["momentum"], options["dampening"]
    write = LANGUAGE["copy_"]
    for i, (p, g) in enumerate(zip(self, grads, strict=True)):
        g = _decayed(p, g, options["weight_decay"], options["maximize"])
        if momentum != 0:
            now = g if options["is_first_step"] else momentum_buffer_list[i] * momentum + g * (1 - dampening)
            write(momentum_buffer_list[i], now)
            g = g + now * momentum if options["nesterov"] else now
        write(p, p - g * options["lr"])


def _adam_(decoupled: bool, name: str) -> None:
    """Register Adam; with `decoupled`, the decay of the weights is not part of the gradient."""

    def step_(
        self: Any,
        grads: Any,
        exp_avgs: Any,
        exp_avg_sqs: Any,
        max_exp_avg_sqs: Any,
        state_steps: Any,
        *,
        grad_scale: Any = None,
        found_inf: Any = None,
        **options: Any,
    ) -> None:
        lists = (self, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs)
        if not _is_written_out(lists, grad_scale, found_inf):
            opaque(resolve(f"{FUSED}{name}"), (*lists, state_steps), {**options, "grad_scale": grad_scale, "found_inf": found_inf})
            return
        for i, (p, g, mean, square, step) in enumerate(zip(self, grads, exp_avgs, exp_avg_sqs, state_steps, strict=True)):
            _adam_step(p, g, mean, square, max_exp_avg_sqs[i] if options["amsgrad"] else None, step, decoupled, options)

    step_.__doc__ = f"Do a step of {'AdamW' if decoupled else 'Adam'} on each parameter of the list `self`; state_steps counts from 1."
    torchquery(f"{FUSED}{name}")(step_)


def _adam_step(p: Any, g: Any, mean: Any, square: Any, largest: Any, step: Any, decoupled: bool, options: dict[str, Any]) -> None:
    """Write one parameter, the averages of its gradient and of the square of it, and with AMSGrad the largest such square."""
    write, beta1, beta2, lr, decay = LANGUAGE["copy_"], options["beta1"], options["beta2"], options["lr"], options["weight_decay"]
    count = LANGUAGE["to"](step, torch.float64)  # 1 - beta ** step loses digits in float32
    bias1, bias2 = (1 - beta**count for beta in (beta1, beta2))
    old = p * (1 - lr * decay) if decoupled and decay != 0 else p
    g = _decayed(p, g, 0 if decoupled else decay, options["maximize"])
    mean_now = mean + (g - mean) * (1 - beta1)
    square_now = square * beta2 + g * g * (1 - beta2)
    bound = square_now if largest is None else LANGUAGE["maximum"](largest, square_now)
    denominator = LANGUAGE["sqrt"](bound) / LANGUAGE["sqrt"](bias2) + options["eps"]
    write(p, old - (lr / bias1) * mean_now / denominator)
    write(mean, mean_now)
    write(square, square_now)
    if largest is not None:
        write(largest, bound)


_adam_(False, "adam_")
_adam_(True, "adamw_")

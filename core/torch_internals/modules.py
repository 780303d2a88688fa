"""How torch.nn.Module keeps what it holds, and how it is called."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.modules import module as module_file

from dovetail.torch_internals.internal import Internal

MODULE_TABLES = ("_parameters", "_buffers", "_modules")
MODULE_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
GLOBAL_HOOKS = tuple(f"_global{hooks}" for hooks in MODULE_HOOKS)
EVERY_MODULE = vars(module_file)  # where the hooks of all modules are


def _calls_forward(call: Any) -> bool:
    class Twice(torch.nn.Module):
        def forward(self, x: int) -> int:
            return 2 * x

    return call(Twice(), 3) == 6


def _holds_tables(init: Any) -> bool:
    new = vars(torch.nn.Linear(1, 1))
    return all(isinstance(new[name], dict) for name in (*MODULE_TABLES, *MODULE_HOOKS)) and all(name in EVERY_MODULE for name in GLOBAL_HOOKS)


CALL_IMPL = Internal(
    "torch.nn.Module._call_impl",
    purpose="call a module that has hooks",
    fallback="modules with hooks are refused inside compiled functions",
    probe=_calls_forward,
)
TABLES = Internal(
    "torch.nn.Module.__init__",
    purpose="read parameters, buffers, submodules and hooks from a module's dictionaries",
    fallback="none: compiled modules are refused",
    probe=_holds_tables,
)
DETECT_IS_CAUSAL = Internal(
    "torch.nn.modules.transformer._detect_is_causal_mask",
    purpose="take the caller's hint of a causal mask, since the mask has no values while a program is traced",
    fallback="layers of torch.nn.Transformer with a mask are refused",
)

"""A symbol called on real tensors, outside any trace, runs: prims can be tried at the prompt, and printed programs executed."""

from __future__ import annotations

from typing import Any

import torch

from dovetail.errors import NotTracing
from dovetail.executors import dispatch, resolve_executors
from dovetail.frontend.environment import TorchEnvironment
from dovetail.langs.torch import LANGUAGE, spec_of
from dovetail.prims import Symbol
from dovetail.prims.op import no_recorder
from dovetail.trace import Trace, leaves, recording, to_callable, tree_map


def run(symbol: Symbol, args: tuple, kwargs: dict) -> Any:
    """Run `symbol` on real tensors, by the executors in their default order.  Slow: each call compiles a program."""
    tensors = {id(x): x for x in leaves((args, kwargs)) if isinstance(x, torch.Tensor)}
    if not tensors and not any(tag.name in ("CREATION", "RANDOM") for tag in symbol.tags):
        raise NotTracing(f"{symbol}: expected a tensor among its arguments, or to be called inside dovetail.make_trace(fn)")
    new = Trace("operation")
    if symbol.language is LANGUAGE:  # its decomposition may call functions of torch
        new.environment = TorchEnvironment(LANGUAGE)
    inputs = {key: new.tensor(spec_of(x)) for key, x in tensors.items()}
    new.inputs = list(inputs.values())
    args, kwargs = (tree_map(lambda x: inputs.get(id(x), x), nest) for nest in (args, kwargs))
    with recording(new):
        new.outputs = new.record(symbol, args, kwargs)
    return to_callable(dispatch(new, resolve_executors()))(*tensors.values())


no_recorder.run = run

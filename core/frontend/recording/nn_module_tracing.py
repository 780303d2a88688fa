"""torch.nn.Module in a tracked run: attributes without its `__getattr__`, calls without its `__call__` where no hook is set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from dovetail.errors import Unsupported
from dovetail.frontend.class_lookup import NULL, address_of, lookup
from dovetail.frontend.interpreter.frame import Frame
from dovetail.frontend.modules.wrapped_modules import is_sharding
from dovetail.frontend.shards import WAYS
from dovetail.torch_internals import CALL_IMPL, EVERY_MODULE, GLOBAL_HOOKS, MODULE_HOOKS, MODULE_TABLES

if TYPE_CHECKING:
    from dovetail.frontend.interpreter.tracking.tracker import Tracker


_GETATTR = torch.nn.Module.__getattr__  # torch's own, whatever replaces them later
_CALL = {"__call__": torch.nn.Module.__call__, "_call_impl": CALL_IMPL.value}


def load_attr(tracker: Tracker, module: torch.nn.Module, name: str) -> Any:
    """Return a parameter, buffer or submodule; NULL for anything else."""
    kind = type(module)
    if lookup(kind, "__getattr__") is not _GETATTR:
        return NULL
    namespace = object.__getattribute__(module, "__dict__")
    if lookup(kind, name) is not NULL or name in namespace or tracker.effects.now(module, name) is not NULL:
        return NULL
    source = tracker.outside(module)
    tracker.from_class(torch.nn.Module, "__getattr__")
    for table in MODULE_TABLES:
        members = namespace.get(table, {})
        if source is None and tracker.source(members) is not None:  # of a shallow copy, which shares it
            if tracker.raw_contains(members, name):
                return tracker.get_item(members, name)
            continue
        now = tracker.effects.shadow(members)
        if name in now:
            if source is None:
                return members[name]
            tracker.guard("hasnot", tracker.sources.attr(source, "__dict__"), name)
            path = tracker.sources.field(source, table)
            tracker.known.setdefault(address_of(members), (members, path))
            return tracker.reach(members[name], tracker.sources.item(path, name)) if now is members else tracker.get_item(members, name)
    return NULL


def call(tracker: Tracker, module: torch.nn.Module, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
    """Return module(*args, **kwargs), which without hooks is its forward; NULL where its class has a call of its own."""
    if any([own is not None and lookup(type(module), name) is not own for name, own in _CALL.items()]):
        return NULL
    source, namespace = tracker.outside(module), object.__getattribute__(module, "__dict__")
    tracker.from_class(type(module), "__call__")
    tracker.from_class(torch.nn.Module, "_call_impl")
    shadow = tracker.effects.shadow
    hooked = any(shadow(namespace.get(hooks)) for hooks in MODULE_HOOKS) or any(shadow(EVERY_MODULE[hooks]) for hooks in GLOBAL_HOOKS)
    if hooked:
        if is_sharding(type(module)):
            raise Unsupported(f"a module that torch's fully_shard has sharded is not traced: {WAYS}")
        if CALL_IMPL.value is None:
            raise Unsupported(f"modules with hooks are not traced: {CALL_IMPL.problem}; remove the hooks, or install a torch that has it")
        return tracker.call(CALL_IMPL.value, [module, *args], kwargs, frame)
    everywhere = tracker.sources.const(EVERY_MODULE)
    for hooks in GLOBAL_HOOKS:
        tracker.guard("falsy", tracker.sources.item(everywhere, hooks))
    for hooks in MODULE_HOOKS:
        place = tracker.source(namespace.get(hooks)) if source is None else tracker.sources.field(source, hooks)
        if place is not None:
            tracker.guard("falsy", place)
    return tracker.call(tracker.load_attr(module, "forward"), args, kwargs, frame)

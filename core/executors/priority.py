"""Who is asked first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from dovetail.executors.discovery import REGISTRY, executors, get_executor
from dovetail.executors.executor import Executor, OperatorExecutor, Verdict


def resolve_executors(wanted: Iterable[Executor | str] | None = None) -> tuple[Executor, ...]:
    """`wanted` in its order, names looked up, and behind them the executors of last resort; None is the default order.

    By default those added with add_operator_executor come first, the newest before the others, then installed plugins by name.
    """
    known = executors()
    last = [ex for ex in known if ex.last_resort]
    if wanted is None:
        added = [get_executor(name) for name in REGISTRY.defaults]
        local = {*REGISTRY.defaults, *_NOT_DEFAULT}
        chosen = added + sorted((ex for ex in known if not ex.last_resort and ex.name not in local), key=lambda ex: ex.name)
    else:
        chosen = [ex if isinstance(ex, Executor) else get_executor(ex) for ex in wanted]
    return tuple(dict.fromkeys([*chosen, *last]))


_NOT_DEFAULT: set[str] = set()  # the registry: added with add_to_default_executors=False


def add_operator_executor(
    name: str,
    implementations: Mapping[str, tuple[str, Callable[..., Verdict] | None, Callable]],
    *,
    add_to_default_executors: bool = True,
    replace: bool = False,
) -> OperatorExecutor:
    """An executor from a table of torch operation -> (implementation's name, checker, implementation).

    Implementations get real tensors and the operation's own signature, checkers get proxies and the same.  It takes effect for functions
    compiled afterwards: at the head of the default order, or only where it is named when `add_to_default_executors` is False.
    """
    REGISTRY.load()
    ex = OperatorExecutor(name)
    for operation, (implementation_name, checker, fn) in implementations.items():
        ex.implements(operation, fn, checker=checker, name=implementation_name)
    REGISTRY.add(ex, replace=replace)
    if add_to_default_executors:
        REGISTRY.defaults[:] = [name, *(other for other in REGISTRY.defaults if other != name)]
        _NOT_DEFAULT.discard(name)
    else:
        _NOT_DEFAULT.add(name)
    return ex

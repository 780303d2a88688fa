"""Cross-entropy by the fused kernel of NVIDIA apex, for Dovetail."""

from __future__ import annotations

from dovetail.extend import OperatorExecutor, hookimpl

__version__ = "0.1.0"
__all__ = ["dovetail_executors", "register_apex_xentropyex"]


@hookimpl
def dovetail_executors() -> list[OperatorExecutor]:
    from dovetail_apex_xentropy.executor import apex_executor

    return [apex_executor()]


def register_apex_xentropyex(*, add_to_default_executors: bool = True) -> OperatorExecutor:
    """Add the executor to this process by hand, or put the one that was found in its place.

    It takes effect for functions compiled afterwards: first in the default order, or only where it is named when `add_to_default_executors` is
    False.  An ExecutorError says why where the kernel is not there.
    """
    from dovetail_apex_xentropy.executor import register

    return register(add_to_default_executors=add_to_default_executors)

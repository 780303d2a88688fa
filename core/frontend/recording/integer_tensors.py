"""Tensors of one integer that stand for a size, a shift or a dimension: torch takes their values, which a traced one does not have yet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from dovetail.errors import InputError, InputTypeError, TracedValueError
from dovetail.frontend.recording.array_hooks import is_traced_array
from dovetail.frontend.recording.checkpoint import Checkpoint
from dovetail.frontend.recording.tracked_environment import TrackedEnvironment
from dovetail.trace import TensorProxy, Trace, leaves, tree_map
from dovetail.trace.proxies import no_value

_OF_TYPES = (TypeError, TracedValueError, InputTypeError)


def recorded(environment: TrackedEnvironment, trace: Trace, called: Callable, function: Callable, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Return called(function, *args, **kwargs), where need be with numbers in the place of values of the program."""
    session = environment.session

    def call(*args: Any, **kwargs: Any) -> Any:
        return called(function, *args, **kwargs) if session is None else session.attempt(called, (function, *args), kwargs, sizes=True)

    return with_integers(environment, trace, call, args, kwargs)


def with_integers(environment: TrackedEnvironment, trace: Trace, call: Callable, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Return call(*args, **kwargs), where need be with integers in the place of tensors that hold one: each is a decision.

    Raises TracedValueError where their values cannot be known.
    """
    session, before = environment.session, Checkpoint(environment, trace)
    try:
        return call(*args, **kwargs)
    except (TypeError, InputError) as error:
        lonely, is_open = _lonely(args, kwargs), session is not None and session.is_open
        if not lonely or not (type(error) in _OF_TYPES or is_open):
            raise
        if not is_open:
            raise no_value(lonely[0]) from error
        if not before.can_return():
            raise
    before.drop_lines()
    with session.putting_in() as put_in:
        for x in lonely:
            put_in.append(session.answer(x, "__index__", ()))
        numbers = dict(zip(lonely, put_in[-len(lonely) :], strict=True))
        return call(*[_replaced(x, numbers) for x in args], **{name: _replaced(x, numbers) for name, x in kwargs.items()})


def _lonely(args: Sequence[Any], kwargs: dict[str, Any]) -> list[TensorProxy]:
    """Return the tensors of one integer among arguments: those without dimensions, and in a list of sizes those with one, too."""
    lists = [x for x in (*args, *kwargs.values()) if isinstance(x, (list, tuple))]
    return [*filter(_is_integer, leaves((args, kwargs))), *filter(partial(_is_integer, shape=(1,)), leaves(lists))]


def _is_integer(x: Any, shape: tuple[int, ...] = ()) -> bool:
    return isinstance(x, TensorProxy) and not is_traced_array(x) and x.spec.dtype.kind == "int" and x.spec.shape == shape


def _replaced(tree: Any, numbers: dict[TensorProxy, int]) -> Any:
    return tree_map(lambda x: numbers.get(x, x) if isinstance(x, TensorProxy) else x, tree)

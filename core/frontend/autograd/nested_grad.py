"""Gradients inside a traced function: the lines that `dovetail.grad(fn)` records where it is called.

The derivative is computed by lines of the program around it, so it can be differentiated again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch

from dovetail import prims
from dovetail.errors import Unsupported, require
from dovetail.executors import GradRules, Priority, resolve_executors
from dovetail.executors.ordering.symbolic import SymbolicOrder
from dovetail.frontend import trees
from dovetail.frontend.autograd.inner_function import RecordsLater, copied, facts_of, flag, is_inside, pure, record
from dovetail.prims import recorder
from dovetail.prims.creation import zeros_like
from dovetail.prims.op import no_recorder
from dovetail.trace import (
    BoundSymbol,
    JointTrace,
    Proxy,
    TensorProxy,
    Trace,
    constants_of,
    grad,
    is_proxy,
    requires_grad,
    substitute,
)
from dovetail.trace.passes.grad import registered


def is_tracing() -> bool:
    """Return whether a program is being traced."""
    return recorder.get() is not no_recorder


def recorded_vjp(fn: Callable, args: tuple, kwargs: dict, argnums: tuple[int, ...], again: bool = True) -> tuple[Any, Callable[[Any], Any]]:
    """Record fn(*args, **kwargs); return the result, and a function from its cotangents that records the gradients of `argnums`.

    That function may be transformed as well, but for `again` False, which permits grad rules of executors.
    """
    outer: Trace = recorder.get()
    inputs, tree = trees.flatten([args[i] for i in argnums])
    for x in inputs:
        require(
            isinstance(x, TensorProxy) and x.spec.dtype.inexact,
            "expected floating or complex tensors to differentiate by, got {}",
            getattr(x, "spec", x),
            error=TypeError,
        )

    def arguments(stand_ins: list[Any]) -> tuple:
        nests = dict(zip(argnums, tree.build(stand_ins), strict=True))
        return tuple([nests.get(n, x) for n, x in enumerate(args)])

    with torch.inference_mode(False):  # which switches grad mode on, too: as in eager mode, neither outside is that of the function
        function = record(fn, [x.spec.like(requires_grad=True) for x in inputs], arguments, kwargs)
    inner = function.trace
    joint = _joint(inner, again or is_inside() or any(map(requires_grad, (*inputs, *_outside(inner)))))
    replay = _Replay(outer, joint, dict(zip(inner.inputs, inputs, strict=True)), constants_of(inner))
    return function.tree.build(list(replay.results())), lambda cotangents: tree.build(replay.gradients(trees.flatten(cotangents)[0]))


def _outside(inner: Trace) -> set[Proxy]:
    """Return the values that a recorded function reads from around it, as parameters of a module."""
    own = {*inner.inputs, *[p for line in inner.lines for p in line.writes]}
    return {p for line in inner.lines for p in line.reads} - own


def differentiated(lines: Sequence[BoundSymbol], inputs: list[Proxy], results: list[Proxy], values: list[Any], cotangents: list[Any]) -> list[Any]:
    """Record the gradients of `lines`, which compute `results` from `inputs`, at `values`; return one or None for each of these."""
    outer: Trace = recorder.get()
    inner = outer.derive("tracing", language=outer.language, environment=outer.environment, constants=outer.constants, inputs=[])
    env: dict[Proxy, Any] = {p: inner.tensor(p.spec) if isinstance(p, TensorProxy) else x for p, x in zip(inputs, values, strict=True)}
    stand_ins = {env[p]: x for p, x in zip(inputs, values, strict=True) if isinstance(p, TensorProxy)}
    inner.inputs, inner.lines = list(stand_ins), [copied(line, env, inner) for line in lines]
    flowing = [(env[p], g) for p, g in zip(results, cotangents, strict=True) if g is not None]
    inner.outputs = tuple([p for p, _ in flowing])
    replay = _Replay(outer, _joint(inner, again=False), stand_ins, constants_of(inner))
    gradients = dict(zip(inner.inputs, replay.gradients([g for _, g in flowing]), strict=True))
    return [gradients[env[p]] if requires_grad(p) else None for p in inputs]


_executors: ContextVar[Priority | None] = ContextVar("executors", default=None)  # of the program that is being compiled


@contextmanager
def compiling_with(executors: Priority) -> Iterator[None]:
    """Differentiate inside the program by the grad rules of these executors while open."""
    token = _executors.set(executors)
    try:
        yield
    finally:
        _executors.reset(token)


def _joint(inner: Trace, again: bool) -> JointTrace:
    """Return the joint trace of a recorded function; `again` uses only rules that can be differentiated themselves."""
    program, written = pure(inner)
    if written:
        raise Unsupported("a function that is differentiated inside a compiled one writes into its arguments; return the new values instead")
    with torch.no_grad():
        return grad(program, rules_for(program, again), constant=constants_of(inner), environment=inner.environment)


def rules_for(trace: Trace, again: bool) -> Callable[[BoundSymbol], Iterable[Callable]]:
    """Return the grad rules of the program that is being compiled; `again` uses only those that can be differentiated themselves."""
    if again:
        return registered
    executors = resolve_executors() if (current := _executors.get()) is None else current
    return GradRules(trace, executors if trace.relations is None else SymbolicOrder(executors))


class _Replay(RecordsLater):
    """Records the lines of a joint trace: the forward in the program `outer` at once, the backward where its cotangents are."""

    def __init__(self, outer: Trace, joint: JointTrace, env: dict[Proxy, Proxy], constant: set[Proxy]):
        self.joint, self.env, self.constant = joint, env, constant
        after = set(joint.cotangents)
        self.late: list[BoundSymbol] = []
        for line in joint.lines:
            if any([p in after for p in line.reads]):
                after.update(line.writes)
                self.late.append(line)
            else:
                self._add(outer, line, self.env, self.env)
        self.pulls = 0

    def _add(self, trace: Trace, line: BoundSymbol, env: dict[Proxy, Proxy] | None, names: dict[Proxy, Proxy]) -> None:
        """Record a line; where `env` is None, with new results, which are added to `names`: the first pull has used the line's own."""
        line = substitute(line, env) if env is not None else copied(line, names, trace)
        flag(line, trace.environment.grad_enabled(), self.constant)
        trace.lines.append(line)

    def facts(self) -> list[Any]:
        joint, computed = self.joint, [p for line in self.late for p in line.writes]
        constant = [p in self.constant for p in computed]
        ends = joint.cotangents, joint.pulled, joint.outputs, joint.inputs, constant, self.pulls > 0
        return facts_of(self.late, self.env, [*joint.cotangents, *computed], *ends)

    def results(self) -> tuple[Any, ...]:
        return substitute(self.joint.outputs[0], self.env)

    def gradients(self, cotangents: list[Any]) -> list[Any]:
        """Return the gradients for cotangents of all results; zeros where nothing flows."""
        require(
            len(cotangents) == len(self.joint.outputs[0]),
            "expected one cotangent for each of {} results, got {}",
            len(self.joint.outputs[0]),
            len(cotangents),
        )
        self.pulls += 1
        env, trace = dict(self.env), recorder.get()
        stand_ins = dict(zip(self.joint.pulled, self.joint.cotangents, strict=True))
        for p, g in zip(self.joint.outputs[0], cotangents, strict=True):
            if (stand_in := stand_ins.get(p) if is_proxy(p) else None) is None:
                continue
            require(is_proxy(g) and g.spec.shape == p.spec.shape, "expected a cotangent like the result {}, got {}", p.spec, getattr(g, "spec", g))
            g = in_dtype_of(p, g)
            g = g if g.spec.strides is None else prims.clone(g)
            env[stand_in] = prims.add(env[stand_in], g) if stand_in in env else g  # a function may return one tensor several times
        for line in self.late:
            self._add(trace, line, env if self.pulls == 1 else None, env)
        pairs = zip(self.joint.outputs[1], self.joint.inputs, strict=False)
        return [zeros_like(substitute(x, env)) if g is None else substitute(g, env) for g, x in pairs]


def in_dtype_of(p: Proxy, g: Proxy) -> Proxy:
    """Return a cotangent in the dtype of what it is for, to which autograd casts real ones."""
    if g.spec.dtype is p.spec.dtype:
        return g
    message = "For complex Tensors, both grad_output and output are required to have the same dtype, got {} for {}"
    require("complex" not in (g.spec.dtype.kind, p.spec.dtype.kind), message, g.spec, p.spec, error=RuntimeError)
    return prims.convert_element_type(g, dtype=p.spec.dtype)


def no_cotangents(nest: Any) -> Any:
    """Return cotangents of zero for auxiliary data."""
    return trees.tree_map(lambda x: zeros_like(x) if isinstance(x, TensorProxy) and x.spec.dtype.inexact else None, nest)


def recorded_value_and_grad(fn: Callable, argnums: int | tuple[int, ...], has_aux: bool) -> Callable[..., Any]:
    """Return a function, for use while tracing, that returns (fn's value, its gradients with respect to the arguments `argnums`)."""
    which = (argnums,) if isinstance(argnums, int) else tuple(argnums)

    def value_and_gradient(*args: Any, **kwargs: Any) -> Any:
        for n in which:
            require(
                -len(args) <= n < len(args),
                "grad: argnums has the position {} of a call with {} positional arguments; pass them by position",
                n,
                len(args),
            )
        result, pullback = recorded_vjp(fn, args, kwargs, tuple(n % len(args) for n in which), again=False)
        checked_value(result, has_aux, lambda value: is_proxy(value) and value.spec.shape == () and value.spec.dtype.kind == "float")
        ones = [_one(x, n == 0) if isinstance(x, TensorProxy) else None for n, x in enumerate(trees.flatten(result)[0])]
        grads = pullback(ones)
        return result, grads[0] if isinstance(argnums, int) else tuple(grads)

    return value_and_gradient


def checked_value(result: Any, has_aux: bool, is_number: Callable[[Any], bool]) -> Any:
    """Return what is differentiated of the result of a function; an error where it is no real number."""
    pair = isinstance(result, tuple) and len(result) == 2
    require(
        pair or not has_aux,
        "grad: with has_aux=True, expected a function that returns a tuple of the number and what is beside it",
    )
    value = result[0] if has_aux else result
    require(
        is_number(value),
        "grad: expected a function that returns a real number as a tensor without dimensions, got {}",
        getattr(value, "spec", value),
        error=TypeError,
    )
    return value


def _one(x: TensorProxy, here: bool) -> Any:
    """Return the cotangent 1 of the value, 0 of anything else."""
    return prims.full(shape=x.spec.shape, value=1.0 if here else 0.0, dtype=x.spec.dtype, device=x.spec.device) if x.spec.dtype.inexact else None

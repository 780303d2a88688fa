"""Forward mode inside a traced function: the tangents of a program, recorded where the tangents of its inputs are known."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import torch

from dovetail.errors import NoGradRule, Unsupported, require
from dovetail.frontend import trees
from dovetail.frontend.autograd.batching import in_prims
from dovetail.frontend.autograd.custom_autograd import OwnBackward
from dovetail.frontend.autograd.inner_function import RecordsLater, copied, facts_of, flag, pure, record
from dovetail.langs.torch import tangents_of_opaque
from dovetail.prims import Tag, recorder
from dovetail.prims.creation import ones_like, zeros_like
from dovetail.prims.tangents import RULES
from dovetail.trace import (
    BoundSymbol,
    JointTrace,
    Proxy,
    TensorProxy,
    Trace,
    constants_of,
    grad,
    leaves,
    requires_grad,
    substitute,
    tree_map,
    user_line,
)
from dovetail.trace.ir import draws
from dovetail.trace.passes.dce import needed
from dovetail.trace.passes.grad import RULES as GRAD_RULES

JVP = "jvp(f, primals, tangents)"


def recorded_linearization(fn: Callable, args: tuple, argnums: tuple[int, ...]) -> tuple[Any, Callable[[Sequence[Any]], list[Any]]]:
    """Record fn(*args); return the result, and what maps tangents of the leaves of `argnums` to those of the leaves of the result.

    The tangent of what does not depend on these leaves is None.
    """
    outer: Trace = recorder.get()
    inputs, tree = trees.flatten([args[i] for i in argnums])
    require(bool(inputs), f"{JVP}: Expected primals to contain at least one Tensor.", error=RuntimeError)
    for x in inputs:
        require(isinstance(x, TensorProxy), f"{JVP}: Expected primals to only contain Tensors, got {{}}", type(x), error=RuntimeError)

    def arguments(stand_ins: list[Any]) -> tuple:
        nests = dict(zip(argnums, tree.build(stand_ins), strict=True))
        return tuple([nests.get(n, x) for n, x in enumerate(args)])

    function = record(fn, [x.spec.like(requires_grad=x.spec.dtype.inexact) for x in inputs], arguments, {})
    constant = constants_of(function.trace)
    program, writes = pure(function.trace)
    if writes:
        raise Unsupported(
            "a function whose tangents are computed inside a compiled one writes into its arguments; return the new values\n"
            f"  called at {user_line()}"
        )
    env = dict(zip(program.inputs, inputs, strict=True))
    lines = list(_with_rules(program.lines, {p for p in program.inputs if p.spec.dtype.inexact}))
    untracked = {p for line in lines for p in line.writes if not requires_grad(p)}
    for line in lines:
        here = substitute(line, env)
        flag(here, outer.environment.grad_enabled(), constant)
        outer.lines.append(here)

    return function.tree.build(list(substitute(program.outputs, env))), _Push(program, lines, env, untracked)


class _Push(RecordsLater):
    """Records the tangents of the outputs of a program for those of its inputs; `lines` are its lines with rules, which are recorded already."""

    def __init__(self, program: Trace, lines: list[BoundSymbol], env: dict[Proxy, Any], untracked: set[Proxy]):
        self.program, self.lines, self.env, self.untracked = program, lines, env, untracked

    def __call__(self, tangents: Sequence[Any]) -> list[Any]:
        forward = ForwardMode(self.env, dict(zip(self.program.inputs, tangents, strict=True)), self.untracked)
        forward.run(self.lines)
        return [forward.tangents.get(x) if isinstance(x, Proxy) else None for x in self.program.outputs]

    def facts(self) -> list[Any]:
        return facts_of(
            self.lines, self.env, (), self.program.inputs, self.program.outputs, [p in self.untracked for line in self.lines for p in line.writes]
        )


def tangents_like(primals: Any, tangents: Any) -> list[Any]:
    """Return the leaves of tangents, each of which is like its primal."""
    (values, tree), (leaves, other) = trees.flatten(primals), trees.flatten(tangents)
    message = f"{JVP}: Expected primals and tangents to have the same python structure, got {{}} and {{}}"
    require(tree == other, message, tree, other, error=RuntimeError)
    for x, t in zip(values, leaves, strict=True):
        require(isinstance(t, TensorProxy), f"{JVP}: Expected tangents to only contain Tensors, got {{}}", type(t), error=RuntimeError)
        require(x.spec.agrees(t.spec), f"{JVP}: Expected a tangent like its primal, {{}}, got {{}}", x.spec, t.spec, error=RuntimeError)
    return leaves


def tangents_of(value: Any, tangents: Sequence[Any], strict: bool = False) -> Any:
    """Return tangents as a nest like the result `value`, zeros where nothing flows; more tangents than it has leaves are left out."""
    leaves, tree = trees.flatten(value)
    require(bool(leaves), f"{JVP}: Expected f to be a function that has non-empty output", error=RuntimeError)
    flat = []
    for x, t in zip(leaves, tangents, strict=False):
        require(
            isinstance(x, TensorProxy), f"{JVP}: expected f(*args) to return only tensors, got unsupported type {{}}", type(x), error=RuntimeError
        )
        require(not strict or t is not None, f"{JVP}: The output of f is independent of the inputs.", error=RuntimeError)
        flat.append(zeros_like(x) if t is None else t)
    return tree.build(flat)


def _with_rules(lines: Iterable[BoundSymbol], active: set[Proxy]) -> Iterator[BoundSymbol]:
    """Yield the lines, where those that read `active` values, which have tangents, are taken apart to lines with rules."""
    for line in lines:
        if not _flows(line, active):
            yield line
        elif line.body and line.symbol.vjp_rule is None and line.symbol not in GRAD_RULES:
            yield from _with_rules(line.body, active)
        else:
            active.update([p for p in line.writes if isinstance(p, TensorProxy) and p.spec.dtype.inexact])
            yield line


def _flows(line: BoundSymbol, active: Iterable[Proxy]) -> bool:
    """Return whether a result of `line` has a tangent where the values in `active` have one."""
    if Tag.NO_GRAD in line.symbol.tags or not any([p in active for p in line.reads]):
        return False
    return any([isinstance(p, TensorProxy) and p.spec.dtype.inexact for p in line.writes])


class ForwardMode:
    """Records the tangents of the results of lines.

    Attributes:
        env: what stands for the inputs of the program in the one that is being recorded; other values stand for themselves.
        tangents: the tangent of each value that has one.
        untracked: values that were computed with grad mode off; so are their tangents.
    """

    def __init__(self, env: dict[Proxy, Any], tangents: dict[Proxy, Any], untracked: set[Proxy]):
        self.env, self.tangents, self.untracked = env, {p: t for p, t in tangents.items() if p.spec.dtype.inexact}, untracked

    def run(self, lines: Iterable[BoundSymbol]) -> None:
        """Record the tangents of the results of `lines`, whose values are recorded already."""
        trace = recorder.get()
        with in_prims(trace):
            for line in lines:
                if not _flows(line, self.tangents):
                    continue
                with torch.no_grad() if self.untracked.issuperset(line.writes) else nullcontext():
                    tangents = self.of_results(line, trace)
                for p, tangent in zip(leaves(line.out), leaves(tangents), strict=True):
                    if tangent is not None and isinstance(p, TensorProxy):
                        self.tangents[p] = tangent

    def of_results(self, line: BoundSymbol, trace: Trace) -> Any:
        """Return the tangents of the results of a line."""
        tangents = tree_map(lambda p: self.tangents.get(p) if isinstance(p, Proxy) else None, line.args)
        args, kwargs = substitute((line.args, line.kwargs), self.env)
        if (rule := RULES.get(line.symbol)) is not None:
            return rule(tangents, line.out, *args, **kwargs)
        if _is_real_elementwise(line):
            return self.elementwise(line, tangents, args, kwargs)
        if (opaque := tangents_of_opaque(line, tangents, args, kwargs)) is not None:
            return opaque
        return self.transposed(line, trace)

    def elementwise(self, line: BoundSymbol, tangents: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Return the sum of what the grad rule makes of the tangent of each argument: each element depends on its own alone."""
        total = None
        for i, tangent in enumerate(tangents):
            if tangent is not None:
                part = line.symbol.vjp_rule(tangent, line.out, *args, **kwargs)[i]
                total = part if total is None else total + part
        return total

    def transposed(self, line: BoundSymbol, trace: Trace) -> list[Any]:
        """Return the tangents of the results by the grad rule: the cotangents that it computes are linear in those of the results.

        The tangents are the gradient of <cotangents of the arguments, tangents> with respect to the cotangents of the results.
        """
        _check_transposable(line)
        reads = [p for p in dict.fromkeys(line.reads) if isinstance(p, TensorProxy)]
        names: dict[Proxy, Any] = {p: trace.tensor(p.spec.like(requires_grad=p in self.tangents)) for p in reads}
        single = _program(trace, [names[p] for p in reads])
        single.lines, single.outputs = [copied(line, names, single)], tuple([names[p] for p in line.writes])
        try:
            with torch.no_grad():
                joint = grad(single, environment=trace.environment)
                gradients = {p: g for p, g in zip(reads, joint.outputs[1], strict=True) if g is not None and p in self.tangents}
                twice = grad(_pullback(trace, joint, gradients.values()), environment=trace.environment)
        except NoGradRule as error:
            raise _untraced(line) from error
        seeds: dict[Proxy, Any] = {}
        for p, g in gradients.items():
            seeds[g] = self.tangents[p] if g not in seeds else seeds[g] + self.tangents[p]
        env = {names[p]: self.env.get(p, p) for p in reads}
        env |= {stand_in: seeds[g] for g, stand_in in zip(twice.pulled, twice.cotangents, strict=True)}
        env |= {new: p for new, p in zip(joint.outputs[0], line.writes, strict=True) if new is names[p]}
        env |= {u: ones_like(u) for u in joint.cotangents}  # any point will do, but for 0, where rules leave out what is not finite
        return self._results(line, joint, twice, env, trace)

    def _results(self, line: BoundSymbol, joint: JointTrace, twice: JointTrace, env: dict[Proxy, Any], trace: Trace) -> list[Any]:
        """Record the lines of a pullback that was differentiated by its cotangents; return one tangent or None for each result of `line`."""
        by_cotangent = dict(zip(twice.inputs, twice.outputs[1], strict=False))
        by_result = {p: by_cotangent[u] for p, u in zip(joint.pulled, joint.cotangents, strict=True)}
        tangents = [by_result.get(p) for p in joint.outputs[0]]
        lines = [new for new in twice.lines if not new.writes or any([p not in env for p in new.writes])]
        if any(map(draws, lines)):
            raise _untraced(line)
        for new in needed(lines, [t for t in tangents if t is not None], env):
            here = substitute(new, env)
            flag(here, trace.environment.grad_enabled(), set())
            trace.lines.append(here)
        return [env.get(t, t) for t in tangents]


def _program(trace: Trace, inputs: Sequence[Proxy]) -> Trace:
    """Return an empty program whose names differ from those of `trace`."""
    return Trace("tangents", list(inputs), names=trace.names, relations=trace.relations)


def _pullback(trace: Trace, joint: JointTrace, gradients: Iterable[Proxy]) -> Trace:
    """Return a joint program as one of the gradients alone, to be differentiated by the cotangents."""
    cotangents = set(joint.cotangents)
    for p in joint.inputs:
        p.spec = p.spec.like(requires_grad=p in cotangents)
    back = _program(trace, joint.inputs)
    back.lines, back.outputs = list(joint.lines), tuple(dict.fromkeys(gradients))
    return back


def _is_real_elementwise(line: BoundSymbol) -> bool:
    """Return whether the Jacobian of a line is a real diagonal matrix for each argument."""
    if Tag.ELEMENTWISE not in line.symbol.tags or line.symbol.vjp_rule is None or not isinstance(line.out, TensorProxy):
        return False
    dtype = line.out.spec.dtype
    return dtype.kind == "float" and all([p.spec.dtype is dtype or not p.spec.dtype.inexact for p in line.reads if isinstance(p, TensorProxy)])


def _check_transposable(line: BoundSymbol) -> None:
    """Refuse a line whose tangents do not follow from its grad rule."""
    backward = line.kwargs.get("backward")
    if isinstance(backward, OwnBackward) and backward.function.jvp is not torch.autograd.Function.jvp:
        raise _untraced(line, f"{backward.function.__name__}, which defines jvp,")
    if line.effects and not draws(line):
        raise _untraced(line)


def _untraced(line: BoundSymbol, what: str = "") -> Unsupported:
    """Return the error for a line without a forward rule."""
    return Unsupported(
        f"forward-mode differentiation of {what or line.symbol.path} is not traced; use reverse mode, as torch.func.vjp or jacrev, or call it "
        f"outside the compiled function\n  called at {line.where or user_line()}"
    )

"""Calls that bring their own backward: torch.autograd.Function, and torch.utils.checkpoint, whose backward is to run the forward again.

The forward is recorded as it stands.  A line behind it, `with_backward(*results, *read)`, gives the results anew; its grad rule is the
call's own backward, which may read any of `read`.  Nobody else reads the first results, so no gradient flows into the forward.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any

import torch
from torch.utils import checkpoint as checkpointing

from dovetail import prims
from dovetail.errors import EagerCall, Unsupported, require
from dovetail.frontend import trees
from dovetail.frontend.autograd.hooks import Node
from dovetail.frontend.autograd.nested_grad import differentiated
from dovetail.frontend.autograd.recorded_backward import BACKWARD
from dovetail.frontend.autograd.untraced_backwards import call_left, is_left, leave_to_autograd
from dovetail.langs.core.indexing import copied
from dovetail.langs.torch import LANGUAGE, lookaside
from dovetail.prims import Symbol, Tag, recorder
from dovetail.prims.op import no_recorder, register
from dovetail.torch_internals import apply_function, backward_of, detour_apply, once_differentiable_body
from dovetail.trace import (
    BoundSymbol,
    Environment,
    Proxy,
    TensorProxy,
    Trace,
    functionalize,
    is_proxy,
    proxies,
    recording,
    requires_grad,
    substitute,
    user_line,
)
from dovetail.trace.aliases import root_of, view_bases
from dovetail.trace.ir import draws, prims_of


def _results_anew(*tensors: Any, results: int, backward: Callable[..., Sequence[Any]], shared: tuple[int, ...] = ()) -> tuple:
    """Copies of the first `results` tensors; `backward(gs, read)` gives the cotangents of the tensors behind them.

    Those of `shared` are arguments of the call, or views of them: eager mode has no copies there.
    """
    return tuple([copied(x, x.spec) for x in tensors[:results]])


WITH_BACKWARD = register(Symbol("prims", "with_backward", _results_anew, tags={Tag.HISTORY}))


@WITH_BACKWARD.vjp
def _with_backward_vjp(g: Any, out: Any, *tensors: Any, results: int, backward: Callable[..., Sequence[Any]], shared: tuple[int, ...] = ()) -> tuple:
    renewed = {x: y for i, (x, y) in enumerate(zip(tensors[:results], out, strict=False)) if i not in shared}
    return (*(None,) * results, *backward(g, [renewed.get(x, x) for x in tensors[results:]]))


def with_backward(
    nest: Any,
    read: Sequence[Proxy],
    backward: Callable[..., Sequence[Any]],
    constant: Sequence[Proxy] = (),
    shared: Collection[Proxy] = frozenset(),
) -> Any:
    """Replace the floating and complex tensors of `nest` by ones differentiated by `backward`; those in `constant` are left as they are.

    Those of `shared`, a set, share memory with arguments.
    """
    own = _differentiable(nest, constant)
    if not own:
        return nest
    anew = WITH_BACKWARD(*own, *read, results=len(own), backward=backward, shared=tuple([i for i, p in enumerate(own) if p in shared]))
    for p in anew:
        p.spec = p.spec.like(requires_grad=True)
    renamed = dict(zip(own, anew, strict=True))
    flat, tree = trees.flatten(nest)
    return tree.build([renamed.get(x, x) if is_proxy(x) else x for x in flat])


def _differentiable(nest: Any, constant: Sequence[Proxy]) -> list[Proxy]:
    """The floating and complex tensors of a nest, each once, but for those in `constant`."""
    fixed = set(constant)
    return [p for p in dict.fromkeys(proxies(nest)) if isinstance(p, TensorProxy) and p.spec.dtype.inexact and p not in fixed]


class Context:
    """`ctx`, as the forward and the backward of a torch.autograd.Function know it."""

    def __init__(self, needs: tuple[bool, ...]):
        self.needs_input_grad = needs
        self.saved_tensors: tuple = ()
        self.materialized = True
        self._materialize_non_diff_grads = True  # torch's own name, which functions set
        self.constant: tuple = ()
        self.written: tuple = ()

    def save_for_backward(self, *tensors: Any) -> None:
        self.saved_tensors = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        """Ignore what forward-mode differentiation would read: there is none here."""

    def mark_non_differentiable(self, *tensors: Any) -> None:
        self.constant = tensors

    def set_materialize_grads(self, value: bool) -> None:
        self.materialized = value

    def mark_dirty(self, *tensors: Any) -> None:
        self.written = tensors

    def replaced(self, values: dict[Proxy, Any]) -> Context:
        """Return a copy that holds values[p] in the place of p."""
        new = copy.copy(self)
        vars(new).update({name: substitute(held, values) for name, held in vars(self).items() if not values.keys().isdisjoint(proxies(held))})
        return new


@dataclass(eq=False)
class OwnBackward:
    """The backward of one call of a torch.autograd.Function: `inputs` are its tensors, `held` the values that its context holds."""

    function: type[torch.autograd.Function]
    context: Context
    arguments: tuple
    inputs: list[Proxy]
    held: list[Proxy]
    results: list[Any]  # what the forward returned, and where among the results with a cotangent each one is
    node: Node
    writes: bool  # whether the forward writes to something outside

    def __call__(self, gs: Sequence[Any], read: Sequence[Any]) -> list[Any]:
        """The cotangents of inputs and held values.

        Raises LeftToAutograd where the backward of a program cannot be traced: later compilations leave such calls to autograd.
        """
        environment = recorder.get().environment
        if type(environment) is Environment:
            raise Unsupported(
                f"the backward of {self.function.__name__} is not traced a second time for gradients of the gradients of a compiled function; "
                "compute both inside one compiled function, or call it without compiling it"
            )
        try:
            with environment.differentiating():
                return self._traced(gs, read)
        except Exception as error:
            if not environment.finished or isinstance(error, EagerCall):
                raise
            leave_to_autograd(self.function, error, writes=self.writes)

    def _traced(self, gs: Sequence[Any], read: Sequence[Any]) -> list[Any]:
        context = self.context.replaced(dict(zip([*self.inputs, *self.held], read, strict=True)))
        trace = recorder.get()
        inner = Trace(BACKWARD, language=LANGUAGE, environment=trace.environment, constants=trace.constants, names=trace.names, made_by=BACKWARD)
        inner.inputs, inner.relations = list(dict.fromkeys([*trace.inputs, *proxies(read), *proxies(gs)])), trace.relations
        with recording(inner), trace.environment.watching():
            run = trace.environment.run
            last = {at: i for i, (_, at) in enumerate(self.results)}  # of a tensor that is returned several times, the last result has the gradient
            flowing = tuple([None if at is None or last[at] != i else gs[at] for i, (_, at) in enumerate(self.results)])
            for hook in self.node.before.values():
                flowing = _replaced(flowing, run(hook, (flowing,), {}))
            grads = self._run(context, flowing)
            self._check_number(grads)
            if self.node.after:
                grads = self._hooked(grads, flowing, run)
            cotangents = dict.fromkeys(self.inputs)
            for p, g in zip(self.arguments, grads, strict=False):
                if g is not None and is_proxy(p):
                    g = self._fitting(g, p)
                    cotangents[p] = g if cotangents[p] is None else cotangents[p] + g
        if torch.is_grad_enabled():
            inner.lines, cotangents = _without_history(inner, cotangents)
        start = len(trace.lines)
        trace.lines += inner.lines
        functional_cotangents = functional(trace, start, list(cotangents.values()), gs)
        if trace.environment.finished and any([line.mutates for line in trace.lines[start:]]):
            raise Unsupported(f"the backward of {self.function.__name__} writes into a tensor from outside, which happens when it runs in eager mode")
        return [*functional_cotangents, *(None for _ in self.held)]

    def _run(self, context: Context, flowing: tuple) -> tuple:
        """Return what the user's backward does."""
        run, backward = recorder.get().environment.run, backward_of(self.function)
        arguments, body = (context, *self._arguments(flowing, context)), once_differentiable_body(backward)
        if body is None:
            grads = run(backward, arguments, {})
            return grads if isinstance(grads, tuple) else (grads,)
        with torch.no_grad():
            grads = run(body, arguments, {})
        grads = tuple([LANGUAGE["detach"](g) if isinstance(g, TensorProxy) else g for g in (grads if isinstance(grads, tuple) else (grads,))])
        followed = [g for g in dict.fromkeys(proxies(flowing)) if requires_grad(g)]
        return with_backward(grads, followed, self._refuse_twice) if followed and torch.is_grad_enabled() else grads

    def _refuse_twice(self, gs: Sequence[Any], read: Sequence[Any]) -> list[Any]:
        """Leave the second gradient of a function that is once differentiable to autograd, which raises where it runs all that was recorded.

        Raises EagerCall, and where that gradient may never be computed LeftToAutograd.
        """
        why = f"{self.function.__name__} is differentiated twice, and its backward is marked with @once_differentiable"
        if recorder.get().environment.finished:
            leave_to_autograd(self.function, Unsupported(why), writes=self.writes)
        raise EagerCall(why)

    def _check_number(self, grads: tuple) -> None:
        expected, got = len(self.arguments), len(grads)
        if got < expected or any([g is not None for g in grads[expected:]]):
            raise RuntimeError(
                f"function {self.function.__name__}Backward returned an incorrect number of gradients (expected {expected}, got {got})"
            )

    def _fitting(self, g: Any, p: TensorProxy) -> Any:
        """Return a gradient with the dtype and the shape of its argument: one of a larger shape is summed, as autograd does."""
        if g.dtype.is_complex and not p.dtype.is_complex:
            raise RuntimeError(f"{self.function.__name__}.backward returns a complex gradient of a real argument")
        return (g if g.spec.shape == p.spec.shape else g.sum_to_size(p.shape)).to(p.dtype)

    def _hooked(self, grads: tuple, flowing: tuple, run: Callable[..., Any]) -> tuple:
        """Return what hooks make of the cotangents of the arguments, of which they see those of tensors."""
        places = [i for i, p in enumerate(self.arguments) if isinstance(p, TensorProxy)]
        of_inputs = tuple([grads[i] for i in places])
        for hook in self.node.after.values():
            of_inputs = _replaced(of_inputs, run(hook, (of_inputs, flowing), {}))
        now = dict(zip(places, of_inputs, strict=True))
        return tuple([now.get(i, g) for i, g in enumerate(grads)])

    def _arguments(self, flowing: tuple, context: Context) -> list[Any]:
        """Return the cotangents as the backward takes them: as a list of its own where the function says so."""
        cotangents = self._cotangents(flowing, context)
        return [cotangents] if getattr(self.function, "boxed_grads_call", False) else cotangents

    def _cotangents(self, flowing: tuple, context: Context) -> list[Any]:
        """One for each result, zeros where nothing flows in and the function did not ask for None."""
        cotangents = []
        for (result, _), g in zip(self.results, flowing, strict=True):
            wanted = g is None and context.materialized and isinstance(result, TensorProxy) and result.spec.dtype.inexact
            wanted = wanted and (context._materialize_non_diff_grads or result not in set(self.context.constant))
            cotangents.append(torch.zeros(result.spec.shape, dtype=result.dtype, device=result.device) if wanted else g)
        return cotangents


def _without_history(inner: Trace, cotangents: dict[Proxy, Any]) -> tuple[list[BoundSymbol], dict[Proxy, Any]]:
    """Return the lines of a backward and its cotangents so that no gradient flows through what it computes with grad mode off."""
    lines, detached = [], dict[Proxy, Proxy]()
    for line in inner.lines:
        untracked = not line.mutates and Tag.NO_GRAD not in line.symbol.tags and any(map(requires_grad, line.reads))
        lines.append(substitute(line, detached))
        for p in line.writes if untracked else ():
            if isinstance(p, TensorProxy) and p.spec.dtype.inexact and not requires_grad(p):
                detached[p] = view = inner.tensor(p.spec)
                lines.append(BoundSymbol(prims.detach, (p,), {}, view, [p]))
    return lines, substitute(cotangents, detached) if detached else cotangents


def _replaced(cotangents: tuple, result: Any) -> tuple:
    """Return what a hook makes of cotangents by its result."""
    if result is None:
        return cotangents
    several = result if isinstance(result, tuple) else (result,)
    require(len(several) == len(cotangents), "hook has returned an incorrect number of values", error=RuntimeError)
    return several


def functional(trace: Trace, start: int, cotangents: list[Any], gs: Sequence[Any]) -> list[Any]:
    """Rewrite the lines of a backward, those from `start` on, into functional ones, as those of the forward are.

    Writes into tensors from outside the backward stay, behind everything else, but for those into the cotangents `gs`: these are values.
    """
    lines = trace.lines[start:]
    if not any(line.mutates for line in lines):
        return cotangents
    computed = {p for line in lines for p in line.writes}
    read = [p for p in dict.fromkeys((*(p for line in lines for p in line.reads), *proxies(cotangents))) if p not in computed]
    inner = trace.derive("tracing", language=trace.language, environment=trace.environment, constants={}, inputs=read)
    inner.lines, inner.outputs = lines, cotangents
    pure, epilogue = functionalize(inner, history=torch.is_grad_enabled())
    of = {line.out: line.args[0] for line in epilogue.lines if line.symbol is prims.detach}
    written = {of.get(p, p): (line, line.args[1]) for line in epilogue.lines if line.mutates for p in line.args[:1]}
    values = {g: written[g] for g in filter(is_proxy, gs) if g in written}
    left_out, now = {id(line) for line, _ in values.values()}, {g: value for g, (_, value) in values.items()}
    trace.lines[start:] = pure.lines + [substitute(line, now) for line in epilogue.lines if id(line) not in left_out]
    return list(substitute(epilogue.outputs, now))


def apply_traced(cls: type[torch.autograd.Function], *args: Any, **kwargs: Any) -> Any:
    """Trace `cls.apply`: its forward, differentiated by its backward."""
    environment, originals = recorder.get().environment, args
    needs = tuple([torch.is_grad_enabled() and environment.requires_grad(x) for x in args])
    if cls is checkpointing.CheckpointFunction:
        return checkpointed(args[0], *args[2:])
    if any(needs) and is_left(cls):
        return call_left(cls, args, kwargs)
    context, run, before = Context(needs), environment.run, environment.pending_writes
    start = len(recorder.get().lines)
    with torch.no_grad():
        if any(needs) and _writes(cls):  # the gradients are those of what was there before
            args = tuple([x.clone() if isinstance(x, TensorProxy) else x for x in args])
        if cls.setup_context is torch.autograd.Function.setup_context:
            results = run(cls.forward, (context, *args), kwargs)
        else:
            args, kwargs = _with_defaults(cls.forward, args, kwargs)
            results = run(cls.forward, args, kwargs)
            run(cls.setup_context, (context, args, results), {})
    if not any(needs):
        return _not_arguments(results, args, context.written)
    if environment.has_wrappers((args, results)):
        return environment.with_backward(cls, context, args, results)
    copies = {c: x for c, x in zip(args, originals, strict=False) if c is not x}
    if any([x not in copies for x in context.written]):
        raise Unsupported(f"ctx.mark_dirty is traced for arguments, and where forward or setup_context itself calls it\n  called at {user_line()}")
    args, written, context.written = (*originals[: len(args)], *args[len(originals) :]) if copies else args, context.written, ()
    inputs = [x for x in dict.fromkeys(filter(is_proxy, args)) if isinstance(x, TensorProxy)]
    held = [p for p in dict.fromkeys(p for value in vars(context).values() for p in proxies(value)) if p not in set(inputs)]
    several = results if isinstance(results, tuple) else (results,)
    own = {p: i for i, p in enumerate(_differentiable(several, context.constant))}
    placed = [(x, own.get(x) if is_proxy(x) else None) for x in several]
    writes = environment.pending_writes > before
    own_backward = OwnBackward(cls, context, args, inputs, held, placed, Node(cls), writes)
    shared = _shared(recorder.get().lines[start:], own, inputs)
    nest = _not_arguments(with_backward(results, [*inputs, *held], own_backward, context.constant, shared), inputs, written)
    return _written_back(results, nest, {x: copies[x] for x in written}) if written else nest


def _not_arguments(results: Any, args: Sequence[Any], written: Sequence[Any]) -> Any:
    """Return results with views in the place of those that are arguments, but for arguments that were `written`."""
    same = {x for x in args if isinstance(x, TensorProxy)} - {*written}
    with torch.no_grad():
        if isinstance(results, tuple):
            return tuple([x.view_as(x) if isinstance(x, TensorProxy) and x in same else x for x in results])
        return results.view_as(results) if isinstance(results, TensorProxy) and results in same else results


def _shared(lines: Sequence[BoundSymbol], results: Iterable[Proxy], inputs: Iterable[Proxy]) -> set[Proxy]:
    """Return the results of `lines` that are inputs, or views of them."""
    bases, own = view_bases(lines), set(inputs)
    return {p for p in results if root_of(p, bases) in own}


def _writes(cls: type[torch.autograd.Function]) -> bool:
    """Return whether a function says that it writes into arguments."""
    return any(["mark_dirty" in getattr(function, "__code__", _writes.__code__).co_names for function in (cls.forward, cls.setup_context)])


def _written_back(results: Any, nest: Any, written: dict[Any, Any]) -> Any:
    """Write results into the arguments that they were copies of; return the results with those arguments in them."""
    (before, tree), (now, _) = trees.flatten(results), trees.flatten(nest)
    final = {x: value for x, value in zip(before, now, strict=True) if is_proxy(x) and x in written}
    for x, original in written.items():
        original.copy_(final.get(x, x))
    return tree.build([written[x] if is_proxy(x) and x in written else value for x, value in zip(before, now, strict=True)])


def _with_defaults(forward: Callable, args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
    """Return the arguments of a forward with its defaults, as `setup_context` gets them."""
    bound = inspect.signature(forward).bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.args, bound.kwargs


@dataclass(eq=False)
class Again:
    """The backward of a checkpointed call: `lines` are run again on `read`, and differentiated."""

    lines: list[BoundSymbol]
    read: list[Proxy]
    results: list[Proxy]

    def __call__(self, gs: Sequence[Any], read: Sequence[Any]) -> list[Any]:
        """The cotangents of `read`."""
        return differentiated(self.lines, self.read, self.results, list(read), list(gs))


def checkpointed(function: Callable, *args: Any, **kwargs: Any) -> Any:
    """Trace torch.utils.checkpoint.checkpoint: the call, computed again in the backward but for its random draws.

    A call that writes into its own tensors is differentiated as if it were not checkpointed.  Raises EagerCall, with a warning, where it writes
    into others, or draws numbers that are not to be the same again: eager mode does so once more when it runs the call again.
    """
    preserves = kwargs.pop("preserve_rng_state", kwargs.pop("preserve", True))
    for name in ("use_reentrant", "determinism_check", "debug", "early_stop"):
        kwargs.pop(name, None)
    if kwargs.pop("context_fn", checkpointing.noop_context_fn) is not checkpointing.noop_context_fn:
        raise Unsupported(f"torch.utils.checkpoint with a context_fn is not traced; leave it out\n  called at {user_line()}")
    trace: Trace = recorder.get()
    start = len(trace.lines)
    result = trace.environment.run(function, args, kwargs)
    lines = _draws_apart(trace.lines[start:])
    again = [line for line in lines if not draws(line)]
    computed = {p for line in again for p in line.writes}
    free = list(dict.fromkeys(p for line in again for p in line.reads if p not in computed))
    own = [p for p in dict.fromkeys(proxies(result)) if p in computed and requires_grad(p)]
    if own and _writes_outside(lines):
        raise EagerCall(
            "a block of torch.utils.checkpoint writes into a tensor from outside, and does so again when the backward runs it again\n"
            f"  called at {user_line()}"
        )
    if own and not preserves and any(map(draws, lines)):
        raise EagerCall(
            "a block of torch.utils.checkpoint draws random numbers, and with preserve_rng_state=False others when the backward runs it again; "
            f"leave preserve_rng_state out\n  called at {user_line()}"
        )
    if not own or any([line.mutates for line in lines]):
        trace.environment.repeated += trace.lines[start:]
        return result
    trace.lines[start:] = lines
    return with_backward(result, free, Again(again, free, own), [p for p in proxies(result) if p not in set(own)])


def _writes_outside(lines: Sequence[BoundSymbol]) -> bool:
    """Return whether lines write into a tensor that they have not created."""
    created, bases = {p for line in lines for p in line.writes}, view_bases(lines)
    return any([root_of(line.args[0], bases) not in created for line in prims_of(lines) if line.mutates])


def _draws_apart(lines: Sequence[BoundSymbol]) -> list[BoundSymbol]:
    """`lines` with those taken apart in which a random number is drawn: the draw is kept, the rest is computed again."""
    return [inner for line in lines for inner in (_draws_apart(line.body) if line.body and draws(line) else [line])]


_LOCK = Lock()
SEEN = {checkpointing.checkpoint: checkpointed} | ({} if (apply := apply_function()) is None else {apply: apply_traced})
_programs: list[int] = []  # one item for each program that is being traced


def _apply_detour(cls: type[torch.autograd.Function], apply: Callable, *args: Any, **kwargs: Any) -> Any:
    """Call `cls.apply`: traced in a thread that traces, else by `apply`, torch's own."""
    return apply(*args, **kwargs) if recorder.get() is no_recorder else apply_traced(cls, *args, **kwargs)


def _refuse_alias() -> None:
    """Refuse a call of torch's own `apply` in a thread that traces: its backward would be lost."""
    if recorder.get() is not no_recorder:
        raise Unsupported(
            "a name bound to the `apply` of a torch.autograd.Function before tracing began is not seen by native tracing; write C.apply(...) "
            f'at the call, or leave out interpretation="native"\n  called at {user_line()}'
        )


@contextmanager
def custom_backwards() -> Iterator[None]:
    """Trace calls that define their own backward while open, however their functions were imported."""
    with _LOCK:
        if not _programs:
            for function, meaning in SEEN.items():
                lookaside(function, meaning)
            if apply_function() is None:
                detour_apply(_apply_detour, _refuse_alias)
        _programs.append(0)
    try:
        yield
    finally:
        with _LOCK:
            _programs.pop()
            if not _programs:
                for function in SEEN:
                    lookaside(function, None)
                if apply_function() is None:
                    detour_apply(None)

"""Torch operations without a decomposition: torch's fake tensors compute the meta, torch's autograd the gradient.

A line is torch's own call, `torch.linalg.qr(t0)`.  Where that call is not pure, it goes through a namespace that names the mode, followed
by torch's name: `opaque_copy.torch.Tensor.swapaxes(t0, 0, 1)`.

    opaque_copy(*args, **kwargs)                  results that would alias an argument are copies
    opaque_resolved(*args, **kwargs)              results with a lazy conjugate or negative bit are materialized
    opaque_functional(written, args, **kwargs)    the arguments written into (numbers of tensors) are copied, and returned first
    opaque_named(names, *args, **kwargs)          the last positional arguments are the keywords `names`, since gradients flow by position
    opaque_vjp(wrt, gs, args, **kwargs)           the cotangents of the tensors numbered `wrt`, from those of the results
    opaque_random(*args, **kwargs)                the state of the random generator before the call is the first result
    opaque_random_vjp(wrt, gs, args, **kwargs)    as opaque_vjp, where args begin with that state: the call draws the same numbers again
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from contextvars import ContextVar
from typing import Any

import torch

from dovetail import prims
from dovetail.errors import DovetailError, EagerCall, InputError, ValueDependent
from dovetail.langs.torch.binding.bridge import Order, in_order, spec_of, torch_device
from dovetail.langs.torch.binding.fake_runs import FakeRun, run_on_fakes, run_on_hints, tensors_in
from dovetail.langs.torch.binding.names import NAMED, dotted, not_traced, unsupported_gradient
from dovetail.langs.torch.binding.overlap import WHOLE_TOO, check_overlap
from dovetail.langs.torch.binding.stand_ins import STAND_INS
from dovetail.langs.torch.binding.symbol import FACTORIES, resolve, write
from dovetail.prims import NumberSpec, Symbol, Tag, TensorSpec, recorder
from dovetail.prims.op import SYMBOLS, register
from dovetail.prims.sizes import Size, hint_of, is_symbolic
from dovetail.torch_internals import OpOverload, OpOverloadPacket, gradients, has_storage, storage_key, transform_level
from dovetail.trace import Trace, leaves, printing, proxies, tree_map, user_line


class OpaqueSymbol(Symbol):
    """A torch callable as a symbol.  `kind` is the mode, `callable` the implementation; unpickled by its id."""

    __slots__ = ("callable", "func", "kind")

    def __init__(self, kind: str, func: Callable, *, id: str, tags: Iterable[Tag] = ()):
        name = dotted(func)
        path = f".{func.__name__}" if kind == "opaque" and name.startswith("torch.Tensor.") else name if kind == "opaque" else f"{kind}.{name}"
        own, absent = set(tags), {Tag.ABSENT} if kind.endswith("_vjp") else set()
        super().__init__(kind, name.rpartition(".")[2], self._specs, tags=own | absent, is_prim=True, id=id, path=path)
        self.kind, self.func, self.doc = kind, func, getattr(func, "__doc__", None) or ""
        self.callable = func if kind == "opaque" else functools.partial(_RUN[kind], func)
        if kind in _RANDOM or (kind not in _WITHOUT_GRADIENT and not own):
            self.vjp(functools.partial(_RULES.get(kind, _rule), self))

    def __reduce__(self) -> tuple:
        return _load_symbol, (self.id,)

    def _specs(self, *args: Any, **kwargs: Any) -> Any:
        if self.kind in _META:
            return _META[self.kind](self, *args, **kwargs)
        return (_current_run.get() or _run_on_fakes(self.func, args, kwargs, self.kind)).specs


def cotangent_specs(symbol: OpaqueSymbol, wrt: tuple[int, ...], gs: tuple, args: tuple, **kwargs: Any) -> tuple:
    tensors = tensors_in((args, kwargs), TensorSpec)
    return tuple(tensors[i].fresh() for i in wrt)


def _random_specs(symbol: OpaqueSymbol, *args: Any, **kwargs: Any) -> tuple:
    run = _current_run.get() or _run_on_fakes(symbol.func, args, kwargs)
    state = _generator_of(torch_device(tensors_in((args, kwargs), TensorSpec)[0].device)).get_state()
    return (spec_of(state), *leaves(run.specs))


def _random_cotangent_specs(symbol: OpaqueSymbol, wrt: tuple[int, ...], gs: tuple, args: tuple, **kwargs: Any) -> tuple:
    return cotangent_specs(symbol, wrt, gs, args[1:], **kwargs)


_META: dict[str, Callable] = {  # the registry: kind -> what computes its specs without a run on fake tensors
    "opaque_vjp": cotangent_specs,
    "opaque_random": _random_specs,
    "opaque_random_vjp": _random_cotangent_specs,
}
_RANDOM = {"opaque_random", "opaque_random_graph"}  # kinds that are differentiated although they draw
_WITHOUT_GRADIENT = {"opaque_functional", "opaque_vjp", "opaque_random_vjp"}  # the registry: kinds that are not differentiated


_RULES: dict[str, Callable] = {}  # the registry: kind -> its vjp, where it is another than `_rule`


def opaque_symbol(func: Callable, kind: str = "opaque", tags: Iterable[Tag] = ()) -> OpaqueSymbol:
    """Return the symbol of `func`, created on first use; an operator that was defined anew under its name has another."""
    id = ":".join([f"{kind}.{dotted(func)}", *sorted(tag.name for tag in tags)])
    known = SYMBOLS.get(id)
    return known if known is not None and known.func == func else register(OpaqueSymbol(kind, func, id=id, tags=tags), replace=True)


def _load_symbol(id: str) -> OpaqueSymbol:
    path, *tags = id.split(":")
    kind, _, name = path.partition(".")
    func = resolve(name)
    if func is None:
        raise DovetailError(f"{name} does not exist in this torch, and the program calls it; import the package that defines it")
    return opaque_symbol(func, kind, [Tag[tag] for tag in tags])


# Recording a call.


def opaque(func: Callable, args: tuple, kwargs: dict) -> Any:
    """Record a call of `func` as one line.  Return its result, with traced tensors in the place of tensors."""
    trace = recorder.get()
    args, kwargs = trace.environment.lift((args, kwargs), trace)
    if func not in NAMED and (twin := _out_of_place(func)) is not None:
        if (name := twin.__name__) in WHOLE_TOO:
            check_overlap(name, args[0], (args[1:], kwargs))
        write(args[0], trace.environment.call(twin, args, kwargs))
        return args[0]
    inputs = proxies((args, kwargs))
    if not inputs:
        kwargs = _with_device(trace.environment, kwargs)
    specs = tree_map(lambda x: getattr(x, "spec", x), (args, kwargs))
    operation, trace.operation = trace.operation, trace.operation or dotted(func)
    try:
        run = _run_on_fakes(func, *specs)
    except InputError:
        return opaque_symbol(func)(*args, **kwargs)  # raises again, with the source location
    except ValueDependent as error:
        raise ValueDependent(str(error), (func, args, kwargs)) from error
    finally:
        trace.operation = operation
    if trace.relations is not None:  # the run may have pinned sizes
        args, kwargs = tree_map(lambda x: x if type(x) is not Size or x.known() is None else int(x), (args, kwargs))
    inexact = [any([x.dtype.inexact for x in tensors_in(tree, TensorSpec)]) for tree in (run.specs, specs)]
    if inexact == [True, False]:
        trace.environment.default_float()  # the dtype of the result may depend on it
    is_tensors = run.result is None or isinstance(run.result, (torch.Tensor, tuple, list))
    if func in NAMED and (not is_tensors or any([x is not None and not isinstance(x, torch.Tensor) for x in leaves(run.result)])):
        raise not_traced(func, "it is opaque and returns other values than tensors, which would become constants; return tensors")
    if run.written:
        outputs = _functional(run, func, args, kwargs, inputs)
    elif run.new or run.random or run.result is None or isinstance(func, _OPERATORS) or func in NAMED:  # which may raise, or have an effect
        outputs = proxies(_record_line(run, func, args, kwargs))
    else:
        outputs = []
    return _rebuild_result(run, outputs, inputs)


def host_line(func: Callable, args: tuple, *, like: torch.Tensor | None = None) -> Any:
    """Record a call with a side effect, in order with random draws; the result is a tensor like `like`, or None."""
    trace = recorder.get()
    args, _ = trace.environment.lift((args, {}), trace)
    token = _current_run.set(FakeRun(like, {}, [], False, (), False, False))
    try:
        return opaque_symbol(func, "opaque", [Tag.HOST, Tag.NO_GRAD])(*args)
    finally:
        _current_run.reset(token)


_NEW = (
    *("bartlett_window", "blackman_window", "hamming_window", "hann_window", "kaiser_window", "tril_indices", "triu_indices", "logspace", "range"),
    *("normal", "fft.fftfreq", "fft.rfftfreq"),
)
FACTORIES.update(fn for name in _NEW if (fn := resolve(f"torch.{name}")) is not None)


def _with_device(environment: Any, kwargs: dict) -> dict:
    """Record that a call without tensors depends on the default dtype and device; return its kwargs with the device."""
    if (read := getattr(environment, "read", None)) is not None:
        read |= {"default_dtype", "default_device"}
    default = torch.get_default_device()
    return kwargs if default.type == "cpu" or kwargs.get("device") is not None else {**kwargs, "device": default}


_OPERATORS = (OpOverload, OpOverloadPacket)


def _record_line(run: FakeRun, func: Callable, args: tuple, kwargs: dict) -> Any:
    tags = [Tag.RANDOM] if run.random else [] if run.specs is not None else [Tag.HOST]
    if run.result is None and not isinstance(func, _OPERATORS) and func not in NAMED:
        CHECKS.add(opaque_symbol(func, "opaque", tags))
    flows = _flows(func, args, kwargs) if not tags and recorder.get().environment.grad_enabled() else None
    if flows is not None and not any(flows):
        tags = [Tag.NO_GRAD]
    names = tuple(k for k, v in kwargs.items() if any(x.spec.requires_grad for x in proxies(v)))
    if names and not tags and recorder.get().environment.grad_enabled():
        rest = {k: v for k, v in kwargs.items() if k not in names}
        return opaque_symbol(func, "opaque_named")(names, *args, *(kwargs[name] for name in names), **rest)
    if run.aliased or run.lazy:
        return opaque_symbol(func, "opaque_copy" if run.aliased else "opaque_resolved", tags)(*args, **kwargs)
    repeats = run.random and not names and kwargs.get("generator") is None and any(x.spec.requires_grad for x in proxies(args))
    token = _current_run.set(run)
    try:
        if repeats and recorder.get().environment.grad_enabled():
            return opaque_symbol(func, "opaque_random", tags)(*args, **kwargs)[1:]
        out = opaque_symbol(func, "opaque", tags)(*args, **kwargs)
    finally:
        _current_run.reset(token)
    if flows is None or tags:
        return out
    reached = iter(flows)
    return tree_map(lambda x: x if x is None or next(reached) else prims.detach(x), out)


_FLOWING: set[Callable] = set()  # callables with a gradient to all results; of others, arguments may decide it


def _flows(func: Callable, args: tuple, kwargs: dict) -> tuple[bool, ...] | None:
    """Return for each tensor of the result whether a gradient flows to it in eager mode: to none of torch.histc's, not to P of torch.linalg.lu's.

    None where it flows to all that are not integers.  Custom operators say themselves; their autograd is code of the user's, which does not run
    while tracing.
    """
    if func in _FLOWING or isinstance(func, _OPERATORS) or func in NAMED or not any([p.spec.requires_grad for p in proxies((args, kwargs))]):
        return None

    def results(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = tree_map(lambda x: x.detach().requires_grad_() if isinstance(x, torch.Tensor) and _is_inexact(x) else x, (args, kwargs))
        with torch.enable_grad():
            return func(*args, **kwargs)

    try:
        specs = tree_map(lambda x: getattr(x, "spec", x), (args, kwargs))
        outputs = tensors_in(run_on_hints(results, func, *specs).result, torch.Tensor)
    except Exception:  # as a rule that cannot run with autograd: the gradient is computed, or refused, when it is needed
        return None
    if all([x.requires_grad or not _is_inexact(x) for x in outputs]):
        _FLOWING.add(func)
        return None
    return tuple([x.requires_grad or not _is_inexact(x) for x in outputs])


def _is_inexact(x: torch.Tensor) -> bool:
    return x.is_floating_point() or x.is_complex()


def _functional(run: FakeRun, func: Callable, args: tuple, kwargs: dict, inputs: list[Any]) -> list[Any]:
    """Record the call on copies of the arguments it writes, and write these back.  Return the new results."""
    if recorder.get().environment.grad_enabled() and any([p.spec.requires_grad for p in inputs]):
        raise EagerCall(f"{dotted(func)} writes into its arguments, and autograd would see that\n  called at {user_line()}")
    out = opaque_symbol(func, "opaque_functional", [Tag.RANDOM] if run.random else [])(run.written, args, **kwargs)
    for i, new in zip(run.written, out, strict=False):
        write(inputs[i], new)
    return list(out[len(run.written) :])


def _rebuild_result(run: FakeRun, outputs: list[Any], inputs: list[Any]) -> Any:
    """Return the result of the call; a result that is an argument becomes that argument."""
    fresh = iter(outputs)
    skips = not run.written  # a functional line returns new results alone, any other line every tensor

    def real(x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        at = run.arguments.get(id(x))
        if at is None or skips:
            p = next(fresh, None)
        return p if at is None else inputs[at]

    return tree_map(real, run.result)


def _out_of_place(func: Callable) -> Callable | None:
    """Return `foo` for `foo_`, or None where torch lacks it."""
    name = dotted(func)
    if not name.endswith("_") or name.endswith("__") or isinstance(func, _OPERATORS):
        return None
    twin = resolve(name[:-1])
    return twin if callable(twin) else None


CHECKS: set[Symbol] = set()  # the registry: symbols of torch's own functions that return nothing and write nothing: they may raise
COPIES: set[Symbol] = set()  # the registry: symbols of other languages that copy where the language documents a view


def check_copies(trace: Trace) -> None:
    """Refuse a trace in which a copy replaces a view and the difference would show: a write follows, or the view is returned."""
    for i, line in enumerate(trace.lines):
        opaque_view = type(line.symbol) is OpaqueSymbol and line.symbol.kind == "opaque_copy"
        if not opaque_view and line.symbol not in COPIES:
            continue
        returned = opaque_view and not set(proxies(trace.outputs)).isdisjoint(line.writes)
        if returned or any(later.mutates for later in trace.lines[i + 1 :]):
            reason = "it returns a view of its argument, which is not supported where the view is returned or a write follows; clone it"
            raise not_traced(line.symbol.func if opaque_view else line.symbol.path, reason, line.where)


_current_run: ContextVar[FakeRun | None] = ContextVar("current_run", default=None)  # the run by `opaque`, which the meta reuses


def _run_on_fakes(func: Callable, args: tuple, kwargs: dict, kind: str = "opaque") -> FakeRun:
    """Run `func` on fake tensors with the specs in its arguments."""
    run = STAND_INS.get(func, func)
    return run_on_fakes(run if kind == "opaque" else functools.partial(_RUN[kind], run), func, args, kwargs)


_SAMPLES: dict[str, Any] = {"bool": True, "int": 1, "float": 1.0}  # of numbers that the program computes, by kind


def dtypes_of_results(func: Callable, args: tuple, kwargs: dict) -> tuple[torch.dtype, ...] | None:
    """Return the dtypes of the tensors that `func` returns in torch's current modes, or None where it raises."""
    try:
        run = _run_on_fakes(func, *tree_map(_plain, (args, kwargs)))
    except Exception:  # reported when the call is recorded
        return None
    return tuple([x.dtype for x in tensors_in(run.result, torch.Tensor)])


def _plain(x: Any) -> Any:
    """Return an argument that results have the same dtypes for: sizes as they are in this call, and a number for one of the program."""
    x = hint_of(getattr(x, "spec", x))
    if isinstance(x, NumberSpec):
        return _SAMPLES.get(x.kind, x)
    if isinstance(x, TensorSpec) and is_symbolic((x.shape, x.strides or ())):
        return x.like(shape=tuple(map(hint_of, x.shape)), strides=x.strides and tuple(map(hint_of, x.strides)))
    return x


# Running a call on real tensors, or on fake ones.


def _in_own_storage(result: Any, inputs: Any) -> Any:
    """`result` with each tensor in storage of its own, and not conjugated only when read."""
    storages = {storage_key(x) for x in tensors_in(inputs, torch.Tensor) if has_storage(x)}
    return tree_map(lambda x: _own_storage(x, storages) if isinstance(x, torch.Tensor) else x, result)


def _own_storage(x: torch.Tensor, storages: set[int]) -> torch.Tensor:
    """Return `x` in a storage that is none of `storages`, and add it to them."""
    x = x.resolve_conj().resolve_neg()
    if not has_storage(x):  # under a transform
        return x.clone()
    x = x.clone() if storage_key(x) in storages else x
    storages.add(storage_key(x))
    return x


def _copied(func: Callable, *args: Any, **kwargs: Any) -> Any:
    return _in_own_storage(func(*args, **kwargs), (args, kwargs))


def _with_keywords(func: Callable, names: tuple[str, ...], *args: Any, **kwargs: Any) -> Any:
    at = len(args) - len(names)
    return _in_own_storage(func(*args[:at], **dict(zip(names, args[at:], strict=True)), **kwargs), (args, kwargs))


def _on_copies(func: Callable, written: tuple[int, ...], args: tuple, **kwargs: Any) -> tuple:
    inputs = tensors_in((args, kwargs), torch.Tensor)
    numbers = iter(range(len(inputs)))

    def copied(x: Any) -> Any:
        return _with_gaps(x.clone(), x) if isinstance(x, torch.Tensor) and next(numbers) in written else x

    args, kwargs = tree_map(copied, (args, kwargs))
    copies = tensors_in((args, kwargs), torch.Tensor)
    result = func(*args, **kwargs)
    copy_ids = {id(x) for x in copies}
    new = [x for x in tensors_in(result, torch.Tensor) if id(x) not in copy_ids]
    filled = [x if x.is_contiguous() else x.clone() for x in [copies[i] for i in written]]  # without gaps
    return _in_own_storage((*filled, *new), inputs)


def _with_gaps(copy: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Return a copy with gaps between its elements where `x` has some: PyTorch draws other normal numbers where a tensor is not contiguous."""
    if x.is_contiguous() or not copy.is_contiguous():
        return copy
    return torch.stack([copy, copy], -1)[..., 0]


def vjp_by_autograd(func: Callable, wrt: tuple[int, ...], gs: tuple, args: tuple, **kwargs: Any) -> tuple:
    """Run the call once more under autograd, and return the cotangents of the tensors numbered `wrt`."""
    if transform_level() is not None:  # where no tensor may start to require a gradient
        return vjp_by_transform(func, wrt, gs, args, kwargs)
    with torch.enable_grad():
        args, kwargs, inputs = watched(wrt, args, kwargs)
        results = list(leaves(func(*args, **kwargs)))
    return cotangents(results, inputs, gs)


def vjp_by_transform(func: Callable, wrt: Sequence[int], gs: Sequence[Any], args: tuple, kwargs: dict[str, Any]) -> tuple:
    """Do the same by torch.func.vjp."""
    tensors = tensors_in((args, kwargs), torch.Tensor)

    def call(*moving: torch.Tensor) -> tuple:
        new, numbers = dict(zip(wrt, moving, strict=True)), iter(range(len(tensors)))
        placed, named = tree_map(lambda x: new.get(next(numbers), x) if isinstance(x, torch.Tensor) else x, (args, kwargs))
        results = leaves(func(*placed, **named))
        return tuple([y for y, g in zip(results, gs, strict=True) if g is not None])

    return torch.func.vjp(call, *[tensors[i] for i in wrt])[1](tuple([g for g in gs if g is not None]))


def watched(wrt: tuple[int, ...], args: tuple, kwargs: dict) -> tuple[tuple, dict, list[torch.Tensor]]:
    """Return the arguments detached, and of their tensors those numbered `wrt`, which require a gradient."""
    numbers, inputs = itertools.count(), []

    def own(x: Any) -> Any:
        if isinstance(x, torch.Tensor):
            x = x.detach()
            if next(numbers) in wrt:
                inputs.append(x.requires_grad_())
            return x
        return tree_map(own, x) if isinstance(x, (tuple, list, dict)) else x

    args = tuple([own(x) for x in args])  # most are no containers, and each call of tree_map costs as much as one of `own`
    return args, own(kwargs), inputs


def cotangents(results: list[Any], inputs: list[torch.Tensor], gs: tuple, orders: Sequence[Order] | None = None, *, again: bool = False) -> tuple:
    """Return the cotangents of inputs from those of results, by autograd's graph, each dense and row-major but where there are other `orders`.

    `again` keeps the history of the cotangents.
    """
    orders = (None,) * len(inputs) if orders is None else orders
    pairs = [(y, g) for y, g in zip(results, gs, strict=True) if g is not None and y.requires_grad]
    ys, gs = zip(*pairs, strict=True) if pairs else ((), ())
    if not pairs:
        grads = [None] * len(inputs)
    elif again:
        grads = torch.autograd.grad(ys, inputs, gs, create_graph=True, allow_unused=True)
    else:
        grads = gradients(ys, inputs, gs)
    grads = [torch.zeros_like(x, memory_format=torch.contiguous_format) if g is None else g for x, g in zip(inputs, grads, strict=True)]
    storages = {storage_key(g) for g in gs if has_storage(g)}
    return tuple([_own_storage(in_order(g, order), storages) for g, order in zip(grads, orders, strict=True)])


def _generator_of(device: torch.device) -> torch.Generator:
    """Return torch's generator of a device."""
    if device.type == "cpu":
        return torch.default_generator
    module = torch.get_device_module(device)
    return module.default_generators[module.current_device() if device.index is None else device.index]


def _device_of_first(args: Any) -> torch.device:
    return tensors_in(args, torch.Tensor)[0].device


def generator_state(args: Any) -> torch.Tensor:
    """Return the state of the generator that a call with these arguments draws from."""
    return _generator_of(_device_of_first(args)).get_state()


def _with_generator_state(func: Callable, *args: Any, **kwargs: Any) -> tuple:
    return (generator_state((args, kwargs)), *leaves(_copied(func, *args, **kwargs)))


def vjp_of_same_numbers(func: Callable, wrt: tuple[int, ...], gs: tuple, args: tuple, **kwargs: Any) -> tuple:
    """Return the cotangents of a call that draws what it drew before."""
    state, *args = args
    generator = _generator_of(_device_of_first((args, kwargs)))
    after = generator.get_state()
    generator.set_state(state)
    try:
        return vjp_by_autograd(func, wrt, gs, tuple(args), **kwargs)
    finally:
        generator.set_state(after)


def differentiated_by_autograd(symbol: OpaqueSymbol) -> bool:
    """Return whether a gradient of the symbol is autograd's."""
    return isinstance(rule := symbol.vjp_rule, functools.partial) and rule.func is _rule


_SPARSE = 5  # the position of `sparse` among the arguments of torch.embedding_bag


def check_is_dense(symbol: OpaqueSymbol, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """Refuse to differentiate a call of a symbol with a sparse gradient."""
    if symbol.func is torch.embedding_bag and (kwargs.get("sparse") or tuple(args[_SPARSE : _SPARSE + 1]) == (True,)):
        raise unsupported_gradient("embedding_bag", "sparse")


def _rule(symbol: OpaqueSymbol, g: Any, out: Any, *args: Any, **kwargs: Any) -> tuple:
    """Return the vjp of any opaque line: one line that runs the call again under autograd."""
    names, positional, state = (), args, ()
    if symbol.kind == "opaque_random":
        state, out, g = out[:1], out[1:], g[1:]
    if symbol.kind == "opaque_named":
        names, *positional = args
        at = len(positional) - len(names)
        kwargs = kwargs | dict(zip(names, positional[at:], strict=True))
        positional = tuple(positional[:at])
    tensors = proxies((positional, kwargs))
    inexact = [i for i, x in enumerate(tensors) if x.spec.dtype.inexact]
    wrt = tuple([i for i in inexact if tensors[i].spec.requires_grad] or inexact)
    gs = tuple(x if getattr(y, "spec", None) is not None and y.spec.dtype.inexact else None for x, y in zip(leaves(g), leaves(out), strict=True))
    if not wrt or not proxies(gs):
        return tree_map(lambda _: None, args)
    check_is_dense(symbol, positional, kwargs)
    backward = opaque_symbol(symbol.func, "opaque_random_vjp" if state else "opaque_vjp")
    cotangents = dict(zip(wrt, backward(wrt, gs, (*state, *positional), **kwargs), strict=True))
    numbers = iter(range(len(tensors)))
    positional_cotangents, keyword_cotangents = tree_map(
        lambda x: cotangents.get(next(numbers)) if hasattr(x, "spec") else None, (positional, kwargs)
    )
    return ((None,) * len(names), *positional_cotangents, *(keyword_cotangents[name] for name in names)) if names else positional_cotangents


def differentiate_by_autograd(symbol: Any) -> None:
    """Let autograd compute, or refuse, the gradient of an operation that has a decomposition."""
    if symbol.callable is not None:
        symbol.vjp(lambda g, out, *args, **kwargs: opaque_symbol(symbol.callable).vjp_rule(g, out, *args, **kwargs))


_RUN = {
    "opaque_copy": _copied,
    "opaque_resolved": _copied,
    "opaque_functional": _on_copies,
    "opaque_named": _with_keywords,
    "opaque_vjp": vjp_by_autograd,
    "opaque_random": _with_generator_state,
    "opaque_random_vjp": vjp_of_same_numbers,
}


class _OpaqueNamespace:
    """A namespace of a printed program: `opaque_vjp.torch.linalg.qr` runs torch.linalg.qr that way."""

    def __init__(self, kind: str, name: str = ""):
        self._kind, self._name = kind, name

    def __getattr__(self, part: str) -> Any:
        if part.startswith("__") and part.endswith("__") and not hasattr(torch.Tensor, part):
            raise AttributeError(part)
        namespace = _OpaqueNamespace(self._kind, f"{self._name}.{part}" if self._name else part)
        setattr(self, part, namespace)
        return namespace

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _RUN[self._kind](resolve(self._name), *args, **kwargs)


def register_kind(kind: str, run: Callable, specs: Callable, vjp: Callable | None = None) -> None:
    """Register a kind of call: `run(func, ...)` runs it, `specs(symbol, ...)` returns the specs of its results, and `vjp(symbol, g, out, ...)`
    the cotangents of its arguments, if it has any.
    """
    _RUN[kind], _META[kind] = run, specs
    _WITHOUT_GRADIENT.add(kind)
    if vjp is not None:
        register_vjp(kind, vjp)
    _name(kind)


def register_vjp(kind: str, vjp: Callable) -> None:
    """Register what differentiates a kind of call, `vjp(symbol, g, out, ...)`."""
    _WITHOUT_GRADIENT.discard(kind)
    _RULES[kind] = vjp


def _name(kind: str) -> None:
    """Let printed programs call the operations of a kind by a name of this module."""
    globals()[kind] = namespace = _OpaqueNamespace(kind)
    printing.ROOTS[kind] = printing.Root(f"from dovetail.langs.torch.binding.opaque import {kind}", namespace)


for _kind in _RUN:
    _name(_kind)

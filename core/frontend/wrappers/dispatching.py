"""Operations on wrappers: torch's own C++ finds what a call consists of, and asks `__torch_dispatch__`, which is interpreted.

    F.linear(x, wrapper)  ->  aten.t(wrapper), aten.addmm(bias, x, wrapper)  ->  wrapper.__torch_dispatch__  ->  operations on what it holds

A wrapper is a real object of its class, from outside or created by the program; what it holds are traced tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from operator import attrgetter
from types import (
    BuiltinFunctionType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    WrapperDescriptorType,
)
from typing import TYPE_CHECKING, Any

import torch

from dovetail.errors import EagerCall, Unsupported
from dovetail.frontend.class_lookup import NULL, address_of, is_in_python, lookup
from dovetail.frontend.classify_calls import is_torch
from dovetail.frontend.dtensors import is_dtensor_class
from dovetail.frontend.guards.source import Source
from dovetail.frontend.interpreter.protocols import REFLECTED_COMPARISONS, dunder
from dovetail.frontend.interpreter.tracking.effects import DELETED
from dovetail.frontend.subclasses import (
    converts_results,
    facts_of,
    has_facts,
    is_jagged,
    is_sparse,
    is_wrapper,
    overrides_functions,
    taken_apart,
    torchs_own,
    wrappers_in,
)
from dovetail.frontend.wrappers.autograd_calls import collect, traced
from dovetail.frontend.wrappers.dtensors import OneRank
from dovetail.frontend.wrappers.forms import leave
from dovetail.frontend.wrappers.histories import Histories
from dovetail.frontend.wrappers.jagged import RaggedSizes, metadata
from dovetail.frontend.wrappers.sparse import SparseMatrices
from dovetail.frontend.wrappers.stand_ins import StandIns
from dovetail.torch_internals import (
    CORRECT_ALIASING,
    OpOverload,
    TorchDispatchMode,
    aten,
    change_shape,
    make_wrapper,
    no_torch_function,
    torch_function,
)
from dovetail.trace import TensorProxy, is_proxy, leaves, tree_map, user_line

if TYPE_CHECKING:
    from dovetail.frontend.interpreter.tracking.tracker import Tracker

_VIEWS = frozenset({"T", "H", "mT", "mH", "data", "real", "imag"})  # properties that are operations
_HISTORY = frozenset({"requires_grad", "is_leaf", "grad", "grad_fn", "retains_grad"})
_PROTOCOLS = {"get_item": "__getitem__", "set_item": "__setitem__", "contains": "__contains__"}
_METHODS = (MethodDescriptorType, WrapperDescriptorType, FunctionType)


class Wrappers:
    """What a run does with wrappers.  `recorder` is its TorchRecorder."""

    def __init__(self, recorder: Any):
        self.recorder = recorder
        self.stand_ins = StandIns()
        self.created: dict[int, torch.Tensor] = {}
        self.histories, self.ragged = Histories(self), RaggedSizes(recorder, self.created)
        self.one_rank = OneRank(self.created)
        self.sparse = SparseMatrices(self.created)
        self.sources: set[Source] = set()  # where those from outside are read
        self.off = 0  # contexts in which no `__torch_function__` is called

    def reach(self, tracker: Tracker, wrapper: torch.Tensor, source: Source) -> Any:
        """Guard a wrapper that was read from outside: its class and what it says of itself; what it holds is guarded where it is read."""
        if id(wrapper) in self.created:
            return wrapper
        known = tracker.known.get(address_of(wrapper))
        if known is None:
            tracker.guard("type", source, type(wrapper))
            tracker.guard("wrapper", source, (has_facts, *facts_of(wrapper)))
            tracker.known[address_of(wrapper)] = wrapper, source
            if not is_sparse(wrapper):
                self.sources.add(source)
            if is_jagged(wrapper):
                self.ragged.reach(tracker, wrapper, source)
        elif known[1] is not source:
            tracker.guard("same", source, known[1])
        return wrapper

    def hold(self, source: Source | None) -> bool:
        """Return whether what is read at a source lies in a wrapper from outside: its sizes stay ints, as those of the wrapper are."""
        while source is not None and source not in self.sources:
            source = source.parent
        return source is not None

    def construct(self, tracker: Tracker, cls: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Return cls(*args, **kwargs), for the class of a wrapper."""
        if (new := self.one_rank.call(tracker, cls, args, kwargs)) is not NULL:
            return new
        if (new := self.ragged.call(tracker, cls, args, kwargs)) is not NULL:
            return new
        new = tracker.call(tracker.load_attr(cls, "__new__"), [cls, *args], kwargs, None)
        if issubclass(type(new), cls) and is_in_python(lookup(type(new), "__init__")):
            tracker.call(MethodType(tracker.from_class(type(new), "__init__"), new), args, kwargs, None)
        return new

    def create(self, cls: Any, *args: Any, requires_grad: bool = False, **kwargs: Any) -> torch.Tensor:
        """Return a new wrapper of a class, which holds nothing yet."""
        if requires_grad and torch.is_grad_enabled():
            raise _untrained(cls)
        args, kwargs = tree_map(lambda x: int(x) if isinstance(x, torch.SymInt) else x, (args, kwargs))
        new = make_wrapper(cls, *args, **kwargs)
        self.created[id(new)] = new
        return new

    # calls

    def call(self, tracker: Tracker, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Call a function of torch that gets wrappers; NULL for other calls."""
        if (result := self.one_rank.call(tracker, function, args, kwargs)) is not NULL:
            return result
        if type(function) is FunctionType and (result := self.ragged.call(tracker, function, args, kwargs)) is not NULL:
            return result
        if (result := self.sparse.call(tracker, function, args, kwargs)) is not NULL:
            return result
        if function is CORRECT_ALIASING.value:
            return self._corrected(*args, **kwargs)
        if function is torch.overrides.handle_torch_function and (objects := self.overriding(args[1])):
            public, _, *args = args
            return self._overridden(tracker, public, objects, args, kwargs)
        if not is_torch(function) or not (wrappers := wrappers_in((args, kwargs))):
            return NULL
        if type(function) is BuiltinFunctionType and is_wrapper(function.__self__):
            function, args = getattr(torch.Tensor, function.__name__), [function.__self__, *args]
        if objects := self.overriding(wrappers):
            return self._overridden(tracker, function, objects, args, kwargs)
        if (result := traced(self.histories, tracker, function, args, kwargs)) is not NULL:
            return result
        self._check_write(function, args)
        result = self.dispatch(tracker, function, args, kwargs)
        if not self.off and any([converts_results(type(x)) for x in wrappers]) and any(map(is_proxy, leaves(result))):
            name = type(wrappers[0]).__name__
            raise Unsupported(
                f"{name} has torch's own __torch_function__, which makes a {name} of each result, and its __torch_dispatch__ returns a plain tensor; "
                f"disable its __torch_function__, or return a {name}\n  called at {user_line()}"
            )
        return result

    def _check_write(self, function: Any, args: list[Any]) -> None:
        """Raise EagerCall where a plain tensor is written in place with a wrapper and gets a history by it, which only eager mode can change."""
        name = getattr(function, "__name__", "").partition(".")[0]
        in_place = name.startswith("__i") or name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))
        if not in_place or not torch.is_grad_enabled() or not any(map(is_proxy, leaves(args[:1]))):
            return
        if any([x.spec.requires_grad if isinstance(x, TensorProxy) else is_wrapper(x) and self.requires_grad(x) for x in leaves(args)]):
            kind = type(wrappers_in(args)[0]).__name__
            raise EagerCall(
                f"{name} writes a plain tensor with a {kind} at {user_line()}, and a gradient is computed: write x = x.{name.strip('_')}(...)"
            )

    def overriding(self, tree: Any) -> list[Any]:
        """Return the wrappers in a nest whose `__torch_function__` is to be called."""
        return [] if self.off else [x for x in wrappers_in(tree) if overrides_functions(type(x))]

    def _overridden(self, tracker: Tracker, function: Any, objects: list[Any], args: Any, kwargs: dict[str, Any]) -> Any:
        return self.recorder.call_overriding(tracker, function, objects, list(args), kwargs, None)

    def dispatch(self, tracker: Tracker, function: Callable, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run a function of torch on wrappers and stand-ins, so that its operations come to `__torch_dispatch__`."""
        args, kwargs = tree_map(self.stand_ins.closed, (tuple(args), kwargs))
        with self.dispatching(tracker):
            result = function(*args, **kwargs)
        return tree_map(partial(self.histories.opened, tracker), result)

    @contextmanager
    def dispatching(self, tracker: Tracker) -> Iterator[None]:
        """Send the operations of torch's own C++ to `__torch_dispatch__` while open."""
        with no_torch_function(), _Dispatching(self, tracker):
            yield

    def maker(self, tracker: Tracker) -> Callable[[type], Any]:
        """Return what gives the `__tensor_unflatten__` of a class, interpreted."""

        def maker(cls: Any) -> Any:
            if is_dtensor_class(cls):
                return self.one_rank.create
            return lambda *args: tracker.call(tracker.load_attr(cls, "__tensor_unflatten__"), list(args), {}, None)

        return maker

    def dispatched(self, tracker: Tracker, func: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Run one operation of ATen as the wrappers among its arguments define it; record it where there are none."""
        objects = wrappers_in((args, kwargs))
        if not objects:
            return tracker.call(func, list(args), kwargs, None)
        if (result := self.ragged.dispatched(tracker, func, args, kwargs)) is not NULL:
            return result
        kinds = tuple([type(x) for x in objects])
        for kind in kinds:
            if is_dtensor_class(kind):
                return self.one_rank.dispatched(tracker, func, args, kwargs)
            result = tracker.call(tracker.load_attr(kind, "__torch_dispatch__"), [func, kinds, args, kwargs], {}, None)
            if result is not NotImplemented:
                return result
        names = ", ".join([kind.__name__ for kind in kinds])
        raise TypeError(f"no implementation found for {func}: __torch_dispatch__ of {names} returned NotImplemented")

    def _corrected(self, func: Any, args: Any, kwargs: Any, out: Any) -> Any:
        """Return what torch's return_and_correct_aliasing returns: for an operation in place, the argument that it writes."""
        if torch.Tag.inplace_view in func.tags:
            if id(args[0]) not in self.created:
                raise Unsupported(f"{func} changes the shape of a {type(args[0]).__name__} from outside in place\n  called at {user_line()}")
            change_shape(func, *args, **kwargs)
        arguments = func._schema.arguments
        names = {a.name: x for a, x in zip(arguments, args, strict=False)} | dict(kwargs or {})
        written = [next((names.get(a.name) for a in arguments if _writes(a, result)), NULL) for result in func._schema.returns]
        if all([x is NULL for x in written]):
            return out
        return written[0] if len(written) == 1 else type(out)([o if x is NULL else x for o, x in zip(out, written, strict=True)])

    def taken_apart(self, wrapper: torch.Tensor) -> tuple[list[Any], Callable[..., Any]]:
        """Return what a result that is a wrapper holds, and the function that builds one like it of these, with a history if it has one."""
        if is_sparse(wrapper):
            return self.sparse.taken_apart(self.recorder.environment.tracker, wrapper)
        if (leaving := self.histories.leaving(self.recorder.environment.tracker, wrapper)) is None:
            return taken_apart(wrapper)
        parts, anew = leaving
        others = [x for i, x in enumerate(parts.tensors) if i not in set(parts.floating)]
        return [*anew, *others], partial(leave, parts.of_floating, len(anew))

    # operators and attributes

    def operate(self, tracker: Tracker, op: Any, args: list[Any]) -> Any:
        """Evaluate an operator, or an item, where one of the operands is a wrapper."""
        if op == "len":
            return self.load_attr(tracker, args[0], "shape")[0]
        if op == "iter":
            return list(tracker.call(torch.Tensor.unbind, [args[0]], {}, None))
        name = _PROTOCOLS.get(op) if isinstance(op, str) else dunder(op)
        result = self._special(tracker, name, args)
        if result is NotImplemented and len(args) == 2:
            reflected = REFLECTED_COMPARISONS.get(name) or f"__r{name[2:]}"
            result = self._special(tracker, reflected, args[::-1])
        if result is NotImplemented:
            raise TypeError(f"unsupported operand types for {name}: {', '.join([type(x).__name__ for x in args])}")
        return result

    def _special(self, tracker: Tracker, name: str, args: list[Any]) -> Any:
        """Return the result of a special method of the first operand, NotImplemented where it has none."""
        if not (is_wrapper(args[0]) or is_proxy(args[0])) or (raw := lookup(self.recorder.class_of(args[0]), name)) is NULL:
            return NotImplemented
        return tracker.call(
            tracker.from_class(type(args[0]), name) if is_wrapper(args[0]) else getattr(torch.Tensor, name, raw), list(args), {}, None
        )

    def load_attr(self, tracker: Tracker, owner: torch.Tensor, name: str) -> Any:
        """Return an attribute that torch's own classes define; NULL for one of the wrapper or of its class."""
        if name == "__class__":
            return type(owner)
        if (now := tracker.effects.now(owner, name)) is not NULL:
            if now is DELETED:
                raise AttributeError(name)
            return now
        if is_jagged(owner) and (value := metadata(owner, name)) is not NULL:
            return value
        raw = torchs_own(type(owner), name)
        if isinstance(raw, _METHODS):
            return NULL if name in owner.__dict__ else MethodType(raw, owner)
        if type(raw) is not GetSetDescriptorType or name.startswith("__"):
            return NULL
        if is_sparse(owner):
            return self.sparse.property(tracker, owner, name)
        if objects := self.overriding(owner):
            return self._overridden(tracker, raw.__get__, objects, [owner], {})
        return self.property(tracker, owner, name)

    def entered(self) -> list[TensorProxy]:
        """Return the inputs that stand for parts of gradients."""
        return [p for _, _, inputs in self.histories.arrivals.values() for p in inputs]

    def collect(self, tracker: Tracker) -> None:
        """Let the gradients that a backward() has computed of these inputs arrive at wrappers."""
        collect(self.histories, tracker)

    def requires_grad(self, wrapper: torch.Tensor) -> bool:
        """Return whether a wrapper requires grad, in the program."""
        stand_in = self.stand_ins.of_wrappers.get(id(wrapper))
        return facts_of(wrapper)[-1] if stand_in is None else stand_in.requires_grad

    def property(self, tracker: Tracker, owner: torch.Tensor, name: str) -> Any:
        """Return a property of torch's."""
        if name in _VIEWS:
            return self.dispatch(tracker, attrgetter(name), (owner,), {})
        if name in _HISTORY:
            return self.histories.property(tracker, owner, name)
        with no_torch_function():
            value = getattr(owner, name)
        if value is None and (source := tracker.source(owner)) is not None:
            tracker.guard("equal", tracker.sources.attr(source, name), None)
        if value is None or type(value) in tracker.atoms:
            return value
        raise Unsupported(f".{name} of a {type(owner).__name__} is not traced; read it outside the compiled function\n  called at {user_line()}")

    def store_attr(self, owner: torch.Tensor, name: str, value: Any) -> bool:
        """Set or delete an attribute of a wrapper that the program has created; return whether that is done, and need not wait."""
        if torchs_own(type(owner), name) is not NULL:
            if name == "grad" and id(owner) not in self.created:
                return False
            if name == "grad":
                self.histories.grads[id(owner)] = None if value is DELETED else value
                return True
            if name == "requires_grad" and (value is False or not torch.is_grad_enabled()):
                return True
            raise Unsupported(f"the program sets .{name} of a {type(owner).__name__}, which is not traced; do it outside\n  called at {user_line()}")
        if id(owner) not in self.created:
            return False
        if type(slot := lookup(type(owner), name)) is MemberDescriptorType:
            slot.__delete__(owner) if value is DELETED else slot.__set__(owner, value)
        elif value is DELETED:
            del owner.__dict__[name]
        else:
            owner.__dict__[name] = value
        return True


class _Dispatching(TorchDispatchMode):
    """Sends the operations of a call to `__torch_dispatch__`."""

    def __init__(self, wrappers: Wrappers, tracker: Tracker):
        super().__init__()
        self.wrappers, self.tracker = wrappers, tracker

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        """Run one operation."""
        stand_ins = self.wrappers.stand_ins
        inside = tree_map(self.opened, (args, kwargs or {}))
        if torch.Tag.inplace_view in func.tags and is_proxy(inside[0][0]):
            return self._reshaped(func, inside[0][0], args, kwargs or {})
        with torch_function(), torch.no_grad():
            result = self.wrappers.dispatched(self.tracker, func, *inside)
        arguments = zip(leaves(inside), leaves((args, kwargs)), strict=True) if func._schema.is_mutable else ()
        written = {id(p): x for p, x in arguments}
        return tree_map(lambda x: written[id(x)] if id(x) in written else stand_ins.closed(x), result)

    def opened(self, x: Any) -> Any:
        """Return what an argument is in the program: a number that C++ has made a tensor becomes one there, too."""
        if type(x) is torch.Tensor and not x.dim():
            with torch_function():
                return self.wrappers.recorder.environment.call(torch.full, ((), x.item()), {"dtype": x.dtype, "device": x.device})
        return self.wrappers.stand_ins.opened(x)

    def _reshaped(self, func: OpOverload, traced: TensorProxy, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Let a stand-in stand for a view of what it stood for, which has its new shape."""
        name = func._schema.name.removeprefix("aten::").removesuffix("_")
        with torch_function():
            view = self.tracker.call(aten(f"{name}.{func._overloadname}"), [traced, *args[1:]], kwargs, None)
        change_shape(func, *args, **kwargs)
        self.wrappers.stand_ins.known[id(args[0])] = args[0], view
        return args[0]


def _untrained(cls: type, func: Any = None) -> Unsupported:
    """Return the error for a gradient through a wrapper."""
    where = "" if func is None else f" through {func}"
    return Unsupported(
        f"a gradient{where} of a {cls.__name__} is not traced: torch differentiates the operation, and not what its __torch_dispatch__ does; call "
        "the compiled function under torch.no_grad(), or leave it in eager mode"
    )


def _writes(argument: Any, result: Any) -> bool:
    """Return whether a result of an operation is the argument that it writes."""
    ours, theirs = argument.alias_info, result.alias_info
    return ours is not None and theirs is not None and ours.is_write and theirs.is_write and bool(set(ours.before_set) & set(theirs.before_set))

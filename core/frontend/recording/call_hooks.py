"""Calls of a tracked run that are not interpreted: of torch, of this package, and of C code of others."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType, MethodWrapperType, WrapperDescriptorType
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

from dovetail.errors import EagerCall, TracedValueError, Unsupported
from dovetail.frontend import dtensors
from dovetail.frontend.autograd.created_leaves import create_parameter
from dovetail.frontend.autograd.custom_autograd import apply_traced
from dovetail.frontend.autograd.functional_transforms import transformed_outside
from dovetail.frontend.class_lookup import NULL
from dovetail.frontend.classify_calls import (
    is_foreign,
    is_module_class,
    is_ours,
    is_symbol_class,
    is_tensor_class,
    is_torch,
    package_of,
)
from dovetail.frontend.environment import SHARING, RecordingMode
from dovetail.frontend.interpreter.frame import Frame
from dovetail.frontend.interpreter.tracebacks import is_own_code
from dovetail.frontend.interpreter.tracking.rules import name_of
from dovetail.frontend.known_results import depends_on_values
from dovetail.frontend.modules.compiled_module import CompiledModule
from dovetail.frontend.recording import nn_module_tracing
from dovetail.frontend.recording.attention_checks import PARAMS as ATTENTION_PARAMS
from dovetail.frontend.recording.attention_checks import AttentionParams
from dovetail.frontend.recording.control_flow import program_of
from dovetail.frontend.recording.function_rules import RULES, untraced_transform
from dovetail.frontend.recording.generators import generator_method, guard_same
from dovetail.frontend.recording.integer_tensors import recorded, with_integers
from dovetail.frontend.recording.metadata_writes import change_metadata, method_changing
from dovetail.frontend.recording.native_arguments import held, native_arguments
from dovetail.frontend.recording.torch_globals import changes_global_state, global_state
from dovetail.frontend.recording.tracked_environment import WAYS_OUT
from dovetail.frontend.recording.value_hooks import ValueHooks
from dovetail.frontend.subclasses import is_wrapper_class, overridden_as, overriding, wrappers_in
from dovetail.frontend.wrappers.dispatching import Wrappers
from dovetail.langs.torch import FACTORIES, LANGUAGE, REFUSED, SymbolicInt, is_opaque, not_traced, opaque_function
from dovetail.langs.torch.foreach import LISTS_IN_PLACE
from dovetail.prims import Symbol, recorder
from dovetail.torch_internals import (
    DEVICES,
    FUNCTORCH_MODULE,
    GROUP_TENSORS,
    OpOverload,
    OpOverloadPacket,
    TorchDispatchMode,
    compiled_by_dynamo,
    function_applied,
    is_c_class,
    notes_module,
    scripted,
    switches_torch_function,
    undisabled,
)
from dovetail.trace import NumberProxy, TensorProxy, is_proxy, leaves, tree_map, user_line
from dovetail.trace.proxies import no_value

if TYPE_CHECKING:
    from dovetail.frontend.interpreter.tracking.tracker import Tracker

KNOWN = frozenset({"torch", "dovetail"})  # packages with C code that reads nothing but what it gets
_TENSOR_CLASS = type(torch.Tensor)
_OPERATORS = {method: name for name, method in vars(TensorProxy).items() if type(method) is FunctionType and hasattr(torch.Tensor, name)}
_UNPARSED = frozenset({NumberProxy, SymbolicInt})  # what torch's parser does not take everywhere where it takes an int
_FUNCTIONS = (FunctionType, MethodDescriptorType, BuiltinFunctionType)
_METHOD_KINDS = (MethodDescriptorType, WrapperDescriptorType)
_FUNCTION_PARTS = ("forward", "setup_context", "backward", "vjp")  # of a torch.autograd.Function
_MODES = (torch.autograd.graph.saved_tensors_hooks, TorchFunctionMode, TorchDispatchMode)
_INDEXING = "TransformGetItemToIndex"  # a mode in which a tensor is an index of one element, as it is in every traced vmap
_LIMITS = frozenset({"finfo", "iinfo"})  # constants of dtypes, which a class of NumPy's in Python looks up and keeps
_SCRIPTS = frozenset({torch.jit.ScriptFunction, torch.ScriptMethod})
STORAGES = (torch.UntypedStorage, torch.TypedStorage)


def _script(tracker: Tracker, function: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
    """Trace the Python of a function that torch.jit.script compiled."""
    plain = scripted(function) if type(function) is torch.jit.ScriptFunction else None
    if plain is None:
        raise EagerCall(f"{function.name} is TorchScript without its Python, and not traced; call the Python behind it\n  called at {user_line()}")
    guard_same(tracker, function)
    return tracker.call(plain, args, kwargs, frame)


class CallHooks(ValueHooks):
    """The part of a recorder of tensors that is about calls.

    Attributes:
        is_compiling: what torch.compiler.is_compiling() returns.
        checks_compiling: whether the program has called that.
    """

    is_compiling = True  # libraries then leave out what reads values
    checks_compiling = False
    wrappers: Wrappers | None = None

    def call(self, tracker: Tracker, function: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
        kind = type(function)
        if self.wrappers is not None and (result := self.wrappers.call(tracker, function, args, kwargs)) is not NULL:
            return result
        rule = RULES.get(function) if kind in _FUNCTIONS else None
        if rule is not None and (result := rule(tracker, function, args, kwargs, frame)) is not NULL:
            return result
        if kind is FunctionType:
            return self._python(tracker, function, args, kwargs, frame)
        if kind in _FUNCTIONS:
            result = self._c_function(tracker, function, args, kwargs)
        elif issubclass(kind, type):
            result = self._class(tracker, function, args, kwargs)
        else:
            result = self._object(tracker, function, args, kwargs, frame)
        if result is not NULL:
            return result
        if is_torch(function):
            if objects := overriding((args, kwargs)):
                return self.call_overriding(tracker, function, objects, args, kwargs, frame)
            result = self._torch(tracker, function, args, kwargs)
            return args[0] if args and function in LISTS_IN_PLACE else result  # the list itself, which operations get a copy of
        return self.call_numpy(tracker, function, args, kwargs, frame)

    def _python(self, tracker: Tracker, function: FunctionType, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
        """Call a function in Python that has no rule, where it is not interpreted; NULL elsewhere."""
        if is_torch(function) and overriding((args, kwargs)):
            guard_same(tracker, function)
            return tracker.call_function(function, args, kwargs)  # its own Python finds out who overrides it
        if (transform := transformed_outside(function)) is not None:
            return self.call_ours(tracker, transform, args, kwargs)
        if args and function.__name__ in ("__enter__", "__exit__") and (result := self._context(tracker, function, args, frame)) is not NULL:
            return result
        if dtensors.makes_one_rank(function, args, kwargs):
            self.of_wrappers()
            return tracker.call_function(function, args, kwargs)
        if notes_module(function):  # once Dynamo was used, it notes each module that is created
            return None
        if is_torch(function):
            return self._torch(tracker, function, args, kwargs)
        if (plain := undisabled(function) or compiled_by_dynamo(function)) is not None:
            guard_same(tracker, function)
            return tracker.call(plain, args, kwargs, frame)
        if "_cache" in function.__dict__ and hasattr(function, "__wrapped__"):  # compiled on its own: here it is a part of this program
            guard_same(tracker, function)
            return tracker.call(function.__wrapped__, args, kwargs, frame)
        if function.__name__ == "_wrapit" or function.__module__ == "numpy":  # as np.full, which is in Python
            result = self.call_numpy(tracker, function, args, kwargs, frame)
            if result is not NULL:
                return result
        code = function.__code__
        if is_own_code(code) or not is_ours(code):
            return NULL
        if (name := _OPERATORS.get(function)) is not None and overriding(args):  # x.__add__(y) in so many words
            return self.call(tracker, getattr(torch.Tensor, name), args, kwargs, frame)
        return self.call_ours(tracker, function, args, kwargs)

    def _context(self, tracker: Tracker, function: FunctionType, args: list[Any], frame: Frame | None) -> Any:
        """Enter or leave a context of torch that means something else in a traced run; NULL for any other."""
        context, *how = args
        entered = function.__name__ == "__enter__"
        if type(context).__name__ == _INDEXING:
            return context if entered else None
        if isinstance(context, DEVICES):  # what torch.device makes of itself
            return tracker.call(getattr(context.device, function.__name__), how, {}, frame)
        if entered and isinstance(context, _MODES):
            raise EagerCall(
                f"a {type(context).__name__} inside a compiled function is not traced: it changes what the operations do, or what they save; open it "
                f"around the call\n  called at {user_line()}"
            )
        return NULL

    def _c_function(self, tracker: Tracker, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Call a function or method in C by what it belongs to; NULL where that says nothing."""
        if switches_torch_function(function, args):  # plain tensors have no overrides
            return self._switched(function, args)
        if (name := generator_method(function)) is not None:
            return self.generators.call_method(tracker, function, name, args, kwargs)
        if type(function) is not BuiltinFunctionType:
            return NULL
        if function.__self__ is recorder:
            return function(*args)
        if function.__name__ == "_make_wrapper_subclass" and args and is_wrapper_class(args[0]):
            return self.of_wrappers().create(*args, **kwargs)
        if function.__name__ == "_make_subclass" and is_torch(function):  # what creates a parameter
            return create_parameter(self.autograd, *args, **kwargs)
        if (cls := function_applied(function)) is not None:
            return self._applied(tracker, function, cls, args, kwargs)
        return NULL

    def _class(self, tracker: Tracker, cls: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Call a class with another meaning than its code; NULL for any other."""
        if cls is torch.Generator:
            return self.generators.create(*native_arguments(tracker, cls, args, kwargs))
        if cls is torch.profiler.record_function:  # its range is ignored, and so is its name
            return object.__new__(cls)
        if cls is int and len(args) == 1 and type(args[0]) is SymbolicInt:
            return args[0]
        if cls.__module__ == "numpy" and cls.__name__ in _LIMITS and not any(map(is_proxy, leaves((args, kwargs)))):
            guard_same(tracker, cls)
            return cls(*args, **kwargs)
        if is_wrapper_class(cls):
            return self.of_wrappers().construct(tracker, cls, args, kwargs)
        if cls is ATTENTION_PARAMS and not kwargs and any(map(is_proxy, args)):
            return AttentionParams(*args)
        if is_c_class(cls) and any(map(is_proxy, args)):  # some read the memory of what they get as a tensor's, without a check
            raise Unsupported(f"{name_of(cls)} is C code of PyTorch's about tensors with memory; call it outside\n  called at {user_line()}")
        if type(cls) is _TENSOR_CLASS and any(map(is_proxy, args)) and not is_torch(cls):
            raise Unsupported(
                f"{cls.__qualname__}(...) makes a tensor of a subclass, which is not traced; make it outside\n  called at {user_line()}"
            )
        return NULL

    def _object(self, tracker: Tracker, function: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
        """Call an operator, a module, or an operation that a trace records; NULL for any other object."""
        kind = type(function)
        if kind in (OpOverload, OpOverloadPacket) and (method := method_changing(function)) is not None:
            return change_metadata(self, method, *args, **kwargs)
        if (program := program_of(kind)) is not None:
            guard_same(tracker, function)
            return tracker.call_function(program, args, kwargs)
        if kind in _SCRIPTS:
            return _script(tracker, function, args, kwargs, frame)
        if is_module_class(kind):
            if CompiledModule in kind.__mro__:  # on its own; here it is a part of this program
                return tracker.call(tracker.load_attr(function, "_module"), args, kwargs, frame)
            return nn_module_tracing.call(tracker, function, args, kwargs, frame)
        if is_symbol_class(kind):
            method = self._method(function, args, kwargs)
            return self._as_passed(tracker, function, args, kwargs) if method is NULL else self.call(tracker, method, args, kwargs, frame)
        return NULL

    def _method(self, symbol: Symbol, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Return the method of torch.Tensor that a symbol stands for, where an argument has its own idea of operations; NULL elsewhere."""
        if not overriding(args := (args, kwargs)) and (self.wrappers is None or not wrappers_in(args)):
            return NULL
        names = [symbol.name, *(name for name, known in LANGUAGE.items() if known is symbol)]
        return next((getattr(torch.Tensor, name) for name in names if LANGUAGE.get(name) is symbol and hasattr(torch.Tensor, name)), NULL)

    def of_wrappers(self) -> Wrappers:
        """Return what is done with tensors that wrap others, from the first such tensor on."""
        if self.wrappers is None:
            self.wrappers = Wrappers(self)
        return self.wrappers

    def _switched(self, function: Any, args: list[Any]) -> None:
        """Enter or leave a context in which no `__torch_function__` is called: plain tensors have none."""
        entered = function.__name__ == "__enter__"
        if self.wrappers is not None:
            self.wrappers.off += 1 if entered else -1

    def _applied(self, tracker: Tracker, function: Any, cls: type, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Trace `cls.apply(...)` of a torch.autograd.Function with an `apply` in C."""
        source = tracker.source(function)
        if source is not None and source.kind != "const":
            tracker.guard("equal", source, function)  # bound anew at each access
            tracker.reach(cls, tracker.sources.attr(source, "__self__"))
        return self.call_ours(tracker, apply_traced, [cls, *args], kwargs)

    def call_ours(self, tracker: Tracker, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Call a function of this package, with arguments that native code may read."""
        guard_same(tracker, function)
        if function is opaque_function:
            return _marked_opaque(tracker, args, kwargs)
        if is_opaque(function):
            return self._as_passed(tracker, function, args, kwargs)
        if function is apply_traced:  # the program's own forward gets the arguments as they are
            for name in _FUNCTION_PARTS:
                tracker.from_class(args[0], name)
            args = [args[0], *self.environment.without_frozen(args[1:])]
        else:
            args, kwargs = native_arguments(tracker, function, args, kwargs)
        result = self.on_arrays(tracker, function, args, kwargs)
        return self._recorded(function, args, kwargs) if result is NULL else result

    def _as_passed(self, tracker: Tracker, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Call an operation that the program names, or a function that is marked as opaque: it gets objects and functions as they are."""
        guard_same(tracker, function)
        args, kwargs = tree_map(partial(held, tracker), tracker.plain((tuple(args), kwargs)))
        if (result := self.on_arrays(tracker, function, args, kwargs)) is not NULL:
            return result
        with self.lending.lent(tracker, getattr(function, "__name__", str(function)), (args, kwargs)):
            return self._recorded(function, args, kwargs)

    def _recorded(self, function: Callable, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Call what records operations, where need be with numbers in the place of values of the program."""
        return recorded(self.environment, self.trace, self._called, function, args, kwargs)

    def _called(self, function: Callable, /, *args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except (TypeError, AttributeError) as error:
            self.refused(error, args, kwargs)
            raise

    def refused(self, error: Exception, *arguments: Any) -> None:
        """Raise TracedValueError for native code that cannot take a number that the program computes, in the place of its own error."""
        number = next(filter(self.is_number, leaves(arguments)), None)
        if number is not None and not isinstance(error, TracedValueError):
            raise no_value(number) from error

    def call_overriding(
        self,
        tracker: Tracker,
        function: Any,
        objects: list[Any],
        args: list[Any],
        kwargs: dict[str, Any],
        frame: Frame | None,
        kinds: tuple[type, ...] | None = None,
    ) -> Any:
        """Call a function of torch's as the objects among its arguments that have a `__torch_function__` define it.

        They are told of `kinds`, the classes that override the function: those of the objects, unless torch's Python also counts tensors.
        """
        function = overridden_as(function) if type(function) in _METHOD_KINDS else function
        kinds = tuple([type(x) for x in objects]) if kinds is None else kinds
        for x in objects:
            result = tracker.call(
                tracker.load_attr(x, "__torch_function__"), [function, kinds, tuple(args), *([kwargs] if kwargs else [])], {}, frame
            )
            if result is not NotImplemented:
                return result
        raise TypeError(f"no implementation found for {name_of(function)}: all __torch_function__ handlers returned NotImplemented: {list(kinds)}")

    def _torch(self, tracker: Tracker, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Record an operation of torch; run one that has nothing to do with tensors."""
        if function is torch.autograd.Variable:
            kwargs, args = {**dict(zip(("requires_grad", "volatile"), args[1:])), **kwargs}, args[:1]
        if kwargs.get("requires_grad") is True:
            created = self._torch(tracker, function, args, {**kwargs, "requires_grad": False})
            return self.autograd.create_leaf(created)
        guard_same(tracker, function)
        if changes_global_state(function) and (torch.cuda.is_available() or not self.settings.set_cudnn(tracker, function, args)):
            raise global_state(function)  # without a GPU, cuDNN computes nothing
        if getattr(function, "__module__", None) == FUNCTORCH_MODULE:
            raise untraced_transform()
        if getattr(function, "__name__", None) == "_dispatch_keys":
            raise Unsupported(f"this call of a higher-order operator is not traced; use torch.cond, or a loop\n  called at {user_line()}")
        if isinstance(function, (BuiltinFunctionType, MethodWrapperType)) and is_tensor_class(type(function.__self__)):
            function, args = getattr(torch.Tensor, function.__name__), [function.__self__, *args]
        args, kwargs = native_arguments(tracker, function, args, kwargs)
        if (result := self.on_arrays(tracker, function, args, kwargs)) is not NULL:
            return result
        parsed = type(function) is BuiltinFunctionType and function is not GROUP_TENSORS.value  # by torch, before it calls back
        sizes = function in FACTORIES  # torch's parser takes tensors for them, but no traced ones
        unparsed = not parsed or any([type(x) in _UNPARSED or (sizes and isinstance(x, TensorProxy)) for x in leaves((args, kwargs))])
        if unparsed or depends_on_values(function, args, kwargs):
            return self._recorded(self._by_table, [function, *args], kwargs)
        if function in REFUSED:  # before torch's own parser, which knows no traced tensors
            raise not_traced(function, REFUSED[function])
        if function in SHARING:
            raise Unsupported(f"{function.__name__} makes a tensor of memory that exists already; call it outside, and pass the tensor")
        if not args and not kwargs and function not in REFUSED:
            value = function()
            if not is_tensor_class(type(value)):
                self.settings.read(tracker, function, value)
                return value
        return self._recorded(self._with_integers, [function, *args], kwargs)

    def _with_integers(self, function: Callable, /, *args: Any, **kwargs: Any) -> Any:
        return with_integers(self.environment, self.trace, partial(self._parsed, function), args, kwargs)

    def _parsed(self, function: Callable, /, *args: Any, **kwargs: Any) -> Any:
        """Call a function of torch's whose own parser looks at the arguments first: it hides what a tensor raises there."""
        self.environment.parsing = True
        try:
            with RecordingMode():
                return function(*args, **kwargs)
        finally:
            self.environment.parsing = False

    def _by_table(self, function: Callable, /, *args: Any, **kwargs: Any) -> Any:
        return self.environment.call(function, args, kwargs)

    def unknown(self, tracker: Tracker, function: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
        if self.is_known(function) or package_of(function) in KNOWN:
            return
        for value in (getattr(function, "__self__", function), *args, *kwargs.values()):
            if not tracker.is_settled(value):
                raise Unsupported(
                    f"{name_of(function)}() is C code that Dovetail does not know, called with a {type(value).__name__} from outside, which may "
                    f'change unseen; call it outside the compiled function, or set unknown_c_code = "run"\n  called at {user_line()}'
                )

    def native(self, tracker: Tracker, function: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
        """Refuse C code of an unknown package that is called with tensors, and code of torch's that reads or writes a storage."""
        if any([isinstance(x, STORAGES) for x in (getattr(function, "__self__", None), *args)]):
            raise Unsupported(f"{name_of(function)}() uses the memory of a tensor behind the program; use the tensor\n  called at {user_line()}")
        if is_foreign(function) and any([is_tensor_class(type(x)) for x in leaves(([_opened(x) for x in args], kwargs))]):
            name = getattr(function, "__qualname__", None) or type(function).__qualname__
            name = f"{where}.{name}" if (where := getattr(function, "__module__", None)) else name
            raise Unsupported(f"{name} is C code, which Dovetail cannot trace, called with a traced tensor; {WAYS_OUT}\n  called at {user_line()}")


def _opened(value: Any) -> Any:
    """Return a sequence that C code iterates as a list, and those in it."""
    return [_opened(x) for x in value] if isinstance(value, (list, tuple, deque)) else value


def _marked_opaque(tracker: Tracker, args: Sequence[Any], kwargs: dict[str, Any]) -> Callable:
    """Mark a function from outside as opaque, which the program calls as it is: not through the tracker, which has ended by then."""
    for function in args:
        if type(function) is FunctionType and tracker.source(function) is None and not is_own_code(function.__code__):
            raise Unsupported(
                f"the program creates the function {function.__qualname__} and marks it as opaque, so that no call would see what it reads there; "
                "define it outside of the compiled function, with @dovetail.opaque above it"
            )
        tracker.pin(function)
    return opaque_function(*args, **kwargs)

"""Calls of a tracked run that are not interpreted: of torch, of this package, and of C code of others."""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType, MethodType, MethodWrapperType, WrapperDescriptorType
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

from dovetail.errors import EagerCall, TracedValueError, Unsupported
from dovetail.frontend import dtensors
from dovetail.frontend.autograd.created_leaves import create_parameter
from dovetail.frontend.autograd.custom_autograd import SEEN, apply_traced
from dovetail.frontend.autograd.functional_call import functional_call
from dovetail.frontend.autograd.functional_transforms import TRANSFORMS, transformed_outside
from dovetail.frontend.autograd.traced_autograd import CALLS
from dovetail.frontend.class_lookup import NULL, lookup
from dovetail.frontend.classify_calls import (
    OVERRIDE_CHECKS,
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
from dovetail.frontend.recording import host_numbers, nn_module_tracing
from dovetail.frontend.recording.array_hooks import is_traced_array
from dovetail.frontend.recording.control_flow import CONTROL_FLOW, program_of
from dovetail.frontend.recording.data_writes import is_replaced
from dovetail.frontend.recording.generators import TRACED, generator_method, guard_same
from dovetail.frontend.recording.integer_tensors import recorded, with_integers
from dovetail.frontend.recording.metadata_writes import CHANGES, change_metadata, method_changing
from dovetail.frontend.recording.storage_offsets import storage_offset
from dovetail.frontend.recording.tracked_environment import WAYS_OUT
from dovetail.frontend.recording.value_hooks import ValueHooks
from dovetail.frontend.subclasses import is_wrapper_class, overridden_as, overriding, overriding_classes, wrappers_in
from dovetail.frontend.wrappers.dispatching import Wrappers
from dovetail.langs.torch import FACTORIES, LANGUAGE, REFUSED, TABLE, SymbolicInt, is_opaque, not_traced, opaque_function
from dovetail.langs.torch.foreach import LISTS_IN_PLACE
from dovetail.langs.torch.process_groups import names_ranks
from dovetail.prims import Symbol, recorder
from dovetail.torch_internals import (
    DETECT_IS_CAUSAL,
    DEVICES,
    FUNCTION_MODES,
    FUNCTORCH_MODULE,
    GET_STEP,
    GROUP_TENSORS,
    SETS_DATA,
    OpOverload,
    TorchDispatchMode,
    compiled_by_dynamo,
    function_applied,
    is_profiling,
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
_SIZED = frozenset(  # of these, PyTorch takes objects with `__index__` as sizes and indices; other functions refuse them
    {
        "reshape",
        "view",
        "expand",
        "broadcast_to",
        "repeat",
        "tile",
        "narrow",
        "select",
        "select_scatter",
        "topk",
        "tril",
        "triu",
        "eye",
        "pad",
        "unflatten",
    }
    | {f"{prefix}{name}" for prefix in ("", "new_") for name in ("zeros", "ones", "empty", "full", "rand", "randn", "randint", "empty_strided")}
    | {
        "randperm",
        "interpolate",
        "as_strided",
        "permute",
        "resize_",
        "view_copy",
        "expand_copy",
        "constant_pad_nd",
        "split_with_sizes",
        "sparse_coo_tensor",
    }
)
_TENSOR_CLASS = type(torch.Tensor)
_OF_DATA = frozenset({"tensor", "as_tensor", "asarray"})  # they take any sequence
_OPERATORS = {method: name for name, method in vars(TensorProxy).items() if type(method) is FunctionType and hasattr(torch.Tensor, name)}
_UNPARSED = frozenset({NumberProxy, SymbolicInt})  # what torch's parser does not take everywhere where it takes an int
_MODULES = "/torch/nn/modules/"
_FUNCTIONS = (FunctionType, MethodDescriptorType, BuiltinFunctionType)
_METHOD_KINDS = (MethodDescriptorType, WrapperDescriptorType)
_OF_INFERENCE = frozenset({torch.is_inference, torch.Tensor.is_inference, TABLE[torch.is_inference]})  # of an input, which may be such a tensor
_INFERENCE = (torch.inference_mode.__enter__, torch.inference_mode.__exit__)
_FUNCTION_PARTS = ("forward", "setup_context", "backward", "vjp")  # of a torch.autograd.Function
_MODES = (torch.autograd.graph.saved_tensors_hooks, TorchFunctionMode, TorchDispatchMode)
_INDEXING = "TransformGetItemToIndex"  # a mode in which a tensor is an index of one element, as it is in every traced vmap
_FOLLOWED = ("_set_grad_enabled", "_set_default_dtype", "_set_fwd_grad_enabled", "set_autocast_", "_set_sdp_", "_set_conj", "_set_neg")
_OF_DYNAMO = ("set_eval_frame", "set_fullgraph_", "set_guard_", "set_skip_guard_", "set_code_exec_")  # what torch.compile does around calls
_RANGES = (torch.profiler.record_function.__enter__, torch.profiler.record_function.__exit__)
_HINTS = {
    DETECT_IS_CAUSAL.value: lambda mask, is_causal=None, size=None: is_causal is True,  # ignore the caller's hint; inspect the mask
    GET_STEP.value: lambda x: x.double() if isinstance(x, TensorProxy) else x,  # Python computes with such a number in double precision
}
_LIMITS = frozenset({"finfo", "iinfo"})  # constants of dtypes, which a class of NumPy's in Python looks up and keeps
_SCRIPTS = frozenset({torch.jit.ScriptFunction, torch.ScriptMethod})
STORAGES = (torch.UntypedStorage, torch.TypedStorage)


def _untraced_transform() -> Unsupported:
    """Return the error for a part of torch.func that is not traced."""
    return Unsupported(
        "this part of torch.func is not traced; use torch.func.grad, vjp, jvp, vmap or what is made of these, or apply the transform outside "
        f"the compiled function\n  called at {user_line()}"
    )


def _unchanged(model: Any) -> Any:
    """Return a model as it is, as the decorator that torch.compile(backend=...) returns."""
    return model


def _script(tracker: Tracker, function: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
    """Trace the Python of a function that torch.jit.script compiled."""
    plain = scripted(function) if type(function) is torch.jit.ScriptFunction else None
    if plain is None:
        raise EagerCall(f"{function.name} is TorchScript without its Python, and not traced; call the Python behind it\n  called at {user_line()}")
    guard_same(tracker, function)
    return tracker.call(plain, args, kwargs, frame)


def _changes_global_state(function: Any) -> bool:
    """Return whether a function sets something of torch that no part of the program stands for."""
    name = getattr(function, "__name__", "")
    return type(function) is BuiltinFunctionType and name.startswith(("set_", "_set_")) and not name.startswith((*_FOLLOWED, *_OF_DYNAMO))


def _global_state(function: Any) -> EagerCall:
    return EagerCall(f"{function.__name__}() sets what all of torch depends on; call it outside the compiled function\n  called at {user_line()}")


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
        if (
            (kind is FunctionType or kind is MethodDescriptorType)
            and function in CALLS
            and any(map(is_tensor_class, map(type, leaves((args, kwargs)))))
        ):
            args, kwargs = list(map(tracker.plain, args)), {name: tracker.plain(x) for name, x in kwargs.items()}
            return CALLS[function](self.autograd, tracker, *args, **kwargs)
        if kind in _FUNCTIONS and function in _OF_INFERENCE and args and is_proxy(args[0]) and (real := self.real.get(args[0])) is not None:
            state = tracker.sources.call(tracker.sources.attr(tracker.source(args[0]), "is_inference"))
            tracker.guard("equal", state, real.is_inference())
            return real.is_inference()
        if function is torch.Tensor.storage_offset and is_proxy(args[0]) and (offset := storage_offset(tracker, args[0])) is not None:
            return offset
        if function is torch.Generator:
            return self.generators.create(*_native_arguments(tracker, function, args, kwargs))
        if kind is MethodDescriptorType and function in CHANGES:
            return change_metadata(self, function, *args, **kwargs)
        if kind is OpOverload and (method := method_changing(function)) is not None:
            return change_metadata(self, method, *args, **kwargs)
        if kind is FunctionType:
            return self._python(tracker, function, args, kwargs, frame)
        if (program := program_of(kind)) is not None:
            guard_same(tracker, function)
            return tracker.call_function(program, args, kwargs)
        if kind in _SCRIPTS:
            return _script(tracker, function, args, kwargs, frame)
        if (kind is MethodDescriptorType or kind is BuiltinFunctionType) and switches_torch_function(
            function, args
        ):  # plain tensors have no overrides
            return self._switched(function, args)
        if kind is type and function.__module__ == "numpy" and function.__name__ in _LIMITS and not any(map(is_proxy, leaves((args, kwargs)))):
            guard_same(tracker, function)
            return function(*args, **kwargs)
        if function is torch.profiler.record_function:  # its range is ignored, and so is its name
            return object.__new__(function)
        if function is int and len(args) == 1 and type(args[0]) is SymbolicInt:
            return args[0]
        if kind is BuiltinFunctionType and function in host_numbers.FUNCTIONS and any([type(x) is SymbolicInt for x in args]):
            return tracker.call(function, list(map(self.environment.number_of, args)), kwargs, frame) if self.environment.computes else NULL
        if function is divmod and any(map(is_traced_array, args)):
            parts = ((operator.floordiv, "floordiv"), (operator.mod, "mod"))
            return tuple([tracker.operator(op, *args, f"__{name}__", f"__r{name}__") for op, name in parts])
        if is_module_class(kind):
            compiled = CompiledModule in kind.__mro__  # on its own; here it is a part of this program
            return (
                tracker.call(tracker.load_attr(function, "_module"), args, kwargs, frame)
                if compiled
                else nn_module_tracing.call(tracker, function, args, kwargs, frame)
            )
        if is_symbol_class(kind):
            method = self._method(function, args, kwargs)
            return self._as_passed(tracker, function, args, kwargs) if method is NULL else self.call(tracker, method, args, kwargs, frame)
        if (name := generator_method(function)) is not None:
            return self.generators.call_method(tracker, function, name, args, kwargs)
        if kind is BuiltinFunctionType:
            if function.__self__ is recorder:
                return function(*args)
            if function is FUNCTION_MODES.value:  # a call under one runs in eager mode; a backward is traced under one of ours
                return False
            if function.__name__ == "_make_wrapper_subclass" and args and is_wrapper_class(args[0]):
                return self.of_wrappers().create(*args, **kwargs)
            if function.__name__ == "_make_subclass" and is_torch(function):  # what creates a parameter
                return create_parameter(self.autograd, *args, **kwargs)
            if (cls := function_applied(function)) is not None:
                return self._applied(tracker, function, cls, args, kwargs)
            if function is SETS_DATA.value and is_replaced(self, *args):
                return False
            if function in OVERRIDE_CHECKS:  # no overrides, so that functions run; in modules there are, so that they avoid paths without gradients
                for x in leaves(args):
                    tracker.outside(x)  # guards its class
                    tracker.guard_class(type(x), "__torch_function__")
                if self.wrappers is not None and self.wrappers.overriding(args):
                    return True
                return (frame is not None and _MODULES in frame.code.co_filename) or bool(overriding(args))
        if isinstance(function, type) and is_wrapper_class(function):
            return self.of_wrappers().construct(tracker, function, args, kwargs)
        if kind is _TENSOR_CLASS and any(map(is_proxy, args)) and not is_torch(function):
            raise Unsupported(
                f"{function.__qualname__}(...) makes a tensor of a subclass, which is not traced; make it outside\n  called at {user_line()}"
            )
        if is_torch(function):
            if objects := overriding((args, kwargs)):
                return self._overridden(tracker, function, objects, args, kwargs, frame)
            result = self._torch(tracker, function, args, kwargs)
            return args[0] if args and function in LISTS_IN_PLACE else result  # the list itself, which operations get a copy of
        return self.call_numpy(tracker, function, args, kwargs, frame)

    def _python(self, tracker: Tracker, function: FunctionType, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
        if function is torch.overrides.handle_torch_function and (objects := overriding(args[1])):
            public, relevant, *args = args
            return self._overridden(tracker, public, objects, args, kwargs, frame, overriding_classes(relevant))
        if is_torch(function) and overriding((args, kwargs)):
            guard_same(tracker, function)
            return tracker.call_function(function, args, kwargs)  # its own Python finds out who overrides it
        if function is torch.compiler.is_compiling:
            self.checks_compiling = True
            return self.is_compiling
        if (transform := TRANSFORMS.get(function) or transformed_outside(function)) is not None:
            return self._ours(tracker, transform, args, kwargs)
        if function is torch.func.functional_call:
            guard_same(tracker, function)
            return functional_call(tracker, *args, **kwargs)
        if function is torch.func.functionalize:  # any program is compiled without writes
            if kwargs.get("remove", "mutations") != "mutations":
                raise _untraced_transform()
            guard_same(tracker, function)
            return args[0] if args else kwargs["func"]
        if (program := CONTROL_FLOW.get(function)) is not None:
            guard_same(tracker, function)
            return tracker.call_function(program, args, kwargs)
        if function in _INFERENCE:
            self.environment.read.add("inference_mode")
            self.environment.enters_inference = True
            return self.settings.inference(args, self.trace, entered=function is _INFERENCE[0])
        if function in _RANGES:
            self._range(tracker)
            return args[0] if function is _RANGES[0] else None
        if function is torch.get_default_device:
            self.environment.read.add("default_device")
            return torch.get_default_device()
        if function is torch.set_default_device:
            raise _global_state(function)
        if args and type(args[0]).__name__ == _INDEXING and function.__name__ in ("__enter__", "__exit__"):
            return args[0] if function.__name__ == "__enter__" else None
        if function.__name__ in ("__enter__", "__exit__") and args and isinstance(args[0], DEVICES):  # what torch.device makes of itself
            context, *args = args
            return tracker.call(getattr(context.device, function.__name__), args, {}, frame)
        if function.__name__ == "__enter__" and args and isinstance(args[0], _MODES):
            raise EagerCall(
                f"a {type(args[0]).__name__} inside a compiled function is not traced: it changes what the operations do, or what they save; open it "
                f"around the call\n  called at {user_line()}"
            )
        if dtensors.makes_one_rank(function, args, kwargs):
            self.of_wrappers()
            return tracker.call_function(function, args, kwargs)
        if function is torch.nested.nested_tensor and kwargs.get("layout") is torch.jagged:
            return tracker.call_function(function, args, kwargs)
        if function is torch.compile:  # what it would compile is a part of this program
            guard_same(tracker, function)
            model = args[0] if args else kwargs.get("model")
            return _unchanged if model is None else model
        if notes_module(function):  # once Dynamo was used, it notes each module that is created
            return None
        if (traced := SEEN.get(function) or _HINTS.get(function) or TRACED.get(function)) is not None:
            guard_same(tracker, function)
            return self._ours(tracker, traced, args, kwargs)
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
        return self._ours(tracker, function, args, kwargs)

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

    def _range(self, tracker: Tracker) -> None:
        """Ignore a named range of a profile; while a profiler records, the call runs in eager mode."""
        if is_profiling():
            raise EagerCall("a profiler records the ranges of torch.profiler.record_function")
        tracker.guard("equal", tracker.sources.setting(is_profiling), False)

    def _applied(self, tracker: Tracker, function: Any, cls: type, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Trace `cls.apply(...)` of a torch.autograd.Function with an `apply` in C."""
        source = tracker.source(function)
        if source is not None and source.kind != "const":
            tracker.guard("equal", source, function)  # bound anew at each access
            tracker.reach(cls, tracker.sources.attr(source, "__self__"))
        return self._ours(tracker, apply_traced, [cls, *args], kwargs)

    def _ours(self, tracker: Tracker, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
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
            args, kwargs = _native_arguments(tracker, function, args, kwargs)
        result = self.on_arrays(tracker, function, args, kwargs)
        return self._recorded(function, args, kwargs) if result is NULL else result

    def _as_passed(self, tracker: Tracker, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Call an operation that the program names, or a function that is marked as opaque: it gets objects and functions as they are."""
        guard_same(tracker, function)
        args, kwargs = tree_map(partial(_held, tracker), tracker.plain((tuple(args), kwargs)))
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

    def _overridden(
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
        if _changes_global_state(function) and (torch.cuda.is_available() or not self.settings.set_cudnn(tracker, function, args)):
            raise _global_state(function)  # without a GPU, cuDNN computes nothing
        if getattr(function, "__module__", None) == FUNCTORCH_MODULE:
            raise _untraced_transform()
        if getattr(function, "__name__", None) == "_dispatch_keys":
            raise Unsupported(f"this call of a higher-order operator is not traced; use torch.cond, or a loop\n  called at {user_line()}")
        if isinstance(function, (BuiltinFunctionType, MethodWrapperType)) and is_tensor_class(type(function.__self__)):
            function, args = getattr(torch.Tensor, function.__name__), [function.__self__, *args]
        args, kwargs = _native_arguments(tracker, function, args, kwargs)
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


def _native_arguments(tracker: Tracker, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
    """Return the arguments of a call for code of ours or of torch's."""
    args, kwargs = tuple([native_argument(tracker, x) for x in args]), {name: native_argument(tracker, x) for name, x in kwargs.items()}
    name = function.name if isinstance(function, Symbol) else getattr(function, "__name__", "")
    if (name := name.rpartition(".")[2]) in _OF_DATA and args:
        return (tracker.listed(args[0]), *args[1:]), kwargs
    if name in _SIZED:
        return tuple(map(tracker.as_sizes, args)), {name: tracker.as_sizes(x) for name, x in kwargs.items()}
    return args, kwargs


def native_argument(tracker: Tracker, value: Any) -> Any:
    """Return an argument for code of ours or of torch's: containers become plain, calls of functions return to the tracker."""
    kind = type(value)
    if kind is FunctionType or kind is MethodType:
        return tracker.native(value)
    if is_module_class(kind) or kind is partial or (type(lookup(kind, "__call__")) is FunctionType and not is_symbol_class(kind)):
        return value if isinstance(value, type) or is_torch(value) else tracker.reentrant(value)
    return _held(tracker, tracker.plain(value))


def _held(tracker: Tracker, value: Any) -> Any:
    """Return what lines of the program hold of an argument: for a generator the one that they draw from, and a group of ranks that is the same."""
    if is_proxy(value) or type(value) in tracker.atoms:
        return value
    if type(value) is torch.Generator:
        return tracker.recorder.generators.drawn_from(tracker, value)
    if names_ranks(value):
        guard_same(tracker, value)
    return value

"""Tensors in a tracked run: they are proxies, and calls on them are recorded in the language of torch."""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType, MethodType, MethodWrapperType
from typing import TYPE_CHECKING, Any

import torch

from dovetail import dtypes, options, prims
from dovetail.errors import EagerCall, TracedValueError, Unsupported
from dovetail.frontend import host_numbers, nn_module_tracing
from dovetail.frontend.array_choices import ArrayChoices, ArrayNeeded
from dovetail.frontend.array_hooks import ArrayHooks, has_arrays, is_traced_array
from dovetail.frontend.autograd.created_leaves import create_parameter, result_builders
from dovetail.frontend.autograd.custom_autograd import SEEN, apply_traced
from dovetail.frontend.autograd.functional_call import functional_call
from dovetail.frontend.autograd.functional_transforms import TRANSFORMS, transformed_outside
from dovetail.frontend.autograd.traced_autograd import ATTRIBUTES, CALLS, TracedAutograd
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
from dovetail.frontend.compiled_module import CompiledModule
from dovetail.frontend.control_flow import CONTROL_FLOW
from dovetail.frontend.environment import SHARING, RecordingMode, lift_leaf
from dovetail.frontend.generators import TRACED, call_method, generator_method, guard_same
from dovetail.frontend.guards.symbolic_sizes import is_marked
from dovetail.frontend.guards.tensor_checks import tensor_facts
from dovetail.frontend.integer_tensors import recorded, with_integers
from dovetail.frontend.interpreter.frame import Frame
from dovetail.frontend.interpreter.tracebacks import is_own_code
from dovetail.frontend.interpreter.tracking.effects import DELETED
from dovetail.frontend.interpreter.tracking.rules import name_of
from dovetail.frontend.metadata_writes import CHANGES, CHANGING, change_metadata
from dovetail.frontend.shards import whole
from dovetail.frontend.tensor_methods import check_facts, replaced_attribute, replaced_operator
from dovetail.frontend.torch_globals import GlobalSettings
from dovetail.frontend.tracked_environment import DRAWN, WAYS_OUT, TrackedEnvironment, drawn_value
from dovetail.langs.torch import FACTORIES, LANGUAGE, REFUSED, SymbolicInt, not_traced, spec_of, symint
from dovetail.prims import Tag, recorder
from dovetail.prims.sizes import Size
from dovetail.torch_internals import (
    DETECT_IS_CAUSAL,
    FUNCTORCH_MODULE,
    GET_STEP,
    GROUP_TENSORS,
    function_applied,
    is_profiling,
    notes_module,
    undisabled,
)
from dovetail.trace import NumberProxy, Proxy, TensorProxy, Trace, is_proxy, leaves, user_line
from dovetail.trace.ir import draws
from dovetail.trace.proxies import no_value

if TYPE_CHECKING:
    from dovetail.frontend.guards.source import Source
    from dovetail.frontend.guards.symbolic_sizes import SymbolicSizes
    from dovetail.frontend.interpreter.tracking.capture import Captured
    from dovetail.frontend.interpreter.tracking.tracker import Tracker

_LARGE = 1 << 16  # bytes of an array that are compared at each call
_NUMBERS = {"bool": bool, "int": int, "float": float, "complex": complex, "str": str}
_REFLECTED = {  # the method by which a tensor takes a number on its left
    getattr(operator, name): f"__r{name.rstrip('_')}__" for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")
}
_UNPARSED = frozenset({NumberProxy, SymbolicInt})  # what torch's parser does not take everywhere where it takes an int
_PREDICATES = frozenset({math.isnan, math.isinf, math.isfinite})
_MASKS = frozenset({dtypes.bool_, dtypes.uint8})
_KNOWN = frozenset({"torch", "dovetail"})  # packages with C code that reads nothing but what it gets
_MODULES = "/torch/nn/modules/"
_INFERENCE = (torch.inference_mode.__enter__, torch.inference_mode.__exit__)
_NUMBERS_OF_FUNCTIONS = getattr(torch.autograd.function, "AUTOGRAD_FUNCTION_COUNTER", None)  # one for each torch.autograd.Function
_FUNCTION_PARTS = ("forward", "setup_context", "backward", "vjp")  # of a torch.autograd.Function
_RANGES = (torch.profiler.record_function.__enter__, torch.profiler.record_function.__exit__)
_HINTS = {
    DETECT_IS_CAUSAL.value: lambda mask, is_causal=None, size=None: is_causal is True,  # ignore the caller's hint; inspect the mask
    GET_STEP.value: lambda x: x.double() if isinstance(x, TensorProxy) else x,  # Python computes with such a number in double precision
}
_STORAGES = (torch.UntypedStorage, torch.TypedStorage)
_ATOMS = frozenset({torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size, torch.finfo, torch.iinfo})


def _print_options() -> str:
    """Return how NumPy writes out arrays."""
    return repr(sys.modules["numpy"].get_printoptions())


def _numpy_numbers() -> frozenset[type]:
    numpy = sys.modules.get("numpy")
    return frozenset() if numpy is None else frozenset({kind for kind in numpy.sctypeDict.values() if issubclass(kind, numpy.number | numpy.bool_)})


def _is_learning_rate(source: Source) -> bool:
    """Return whether a source is `optimizer.param_groups[i]["lr"]`."""
    group = source.parent
    inside = source.kind == "item" and type(source.key) is str and source.key == "lr" and group.kind == "item" and group.parent is not None
    return inside and group.parent.kind in ("field", "attr") and group.parent.key == "param_groups"


def _as_tensor(value: float) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float64)


def _untraced_transform() -> Unsupported:
    """Return the error for a part of torch.func that is not traced."""
    return Unsupported(
        "this part of torch.func is not traced; use torch.func.grad, vjp, jvp, vmap or what is made of these, or apply the transform outside "
        f"the compiled function\n  called at {user_line()}"
    )


class TorchRecorder(ArrayHooks):
    """Tensors read from outside become inputs of `trace`; `sources` has where each is read.

    `sizes` decides which of their sizes, and which ints in the arguments, are symbols; None where all are ints.
    """

    writes_text = False  # whether the program has written numbers into text

    def __init__(self, trace: Trace, environment: TrackedEnvironment, sizes: SymbolicSizes | None = None, choices: ArrayChoices | None = None):
        super().__init__(choices)
        self.sizes, self.symbolic_ints = sizes, sizes is not None and sizes.dynamic is not False
        self.trace, self.environment, self.settings = trace, environment, GlobalSettings()
        self.atoms = _ATOMS | _numpy_numbers()
        self.inputs = environment.constants  # id of a real tensor -> its proxy
        self.real: dict[Proxy, torch.Tensor] = {}
        self.sources: list[tuple[Source, Proxy]] = []
        self.results: dict[Proxy, int] = {}
        self.numbers: dict[Size, NumberProxy] = {}  # sizes that leave the program
        self.rates: dict[Source, Proxy] = {}
        self.floats: set[Proxy] = set()  # tensors that the program sees as Python floats
        self.autograd = TracedAutograd(self)

    def start(self, tracker: Tracker) -> None:
        check_facts()
        self.environment.tracker = tracker

    def forget(self) -> None:
        """Release the tensors of the run."""
        self.inputs, self.real, self.sources, self.results, self.autograd = {}, {}, [], {}, TracedAutograd(self)
        self.inside, self.choices = None, ArrayChoices()

    def finish(self, tracker: Tracker) -> None:
        if self.inside is not None:
            self.inside.check_constants()
        if self.environment.examples:
            self.environment.check_escapes([p for line in self.trace.lines for p in line.reads])
        self.autograd.finish(tracker)
        self.settings.finish(tracker, self.environment.read)

    def has_effects(self) -> bool:
        return (
            self.settings.are_changed()
            or self.autograd.used
            or any([line.mutates or draws(line) or Tag.HOST in line.symbol.tags for line in self.trace.lines])
        )

    def is_tensor(self, value: Any) -> bool:
        return is_tensor_class(type(value))

    def has_identity(self, value: Any) -> bool:
        return isinstance(value, TensorProxy) or type(value) in (torch.Tensor, torch.nn.Parameter)

    def stored_key(self, tracker: Tracker, key: Any) -> Any:
        """Return the tensor from outside that `key` stands for; the program depends on which one it is."""
        real = self.real.get(key) if is_proxy(key) else None
        if real is None:
            return key
        tracker.guard("is", tracker.source(key), real)
        return real

    def is_module(self, value: Any) -> bool:
        return is_module_class(type(value))

    def is_buffer(self, value: Any) -> bool:
        numpy = sys.modules.get("numpy")
        return numpy is not None and isinstance(value, numpy.ndarray)

    def is_known(self, value: Any) -> bool:
        numpy = sys.modules.get("numpy")
        if numpy is not None and isinstance(value, numpy.generic):  # guarded by its content, as arrays are
            return True
        if isinstance(value, _STORAGES):
            return False
        return options.UNKNOWN_C_CODE.read() == "run" or type(value).__module__.partition(".")[0] in _KNOWN

    def only_numbers(self, iterator: Any) -> bool:
        return iterator is _NUMBERS_OF_FUNCTIONS

    def handles(self, function: Any) -> bool:
        return is_torch(function) or is_module_class(type(function))

    def class_of(self, value: Any) -> type:
        """Return the class of a tensor as the program sees it."""
        if isinstance(value, NumberProxy):
            return _NUMBERS[value.spec.kind]
        if type(value) is SymbolicInt:
            return int
        if not isinstance(value, TensorProxy):
            return type(value)
        if is_traced_array(value):
            return value.__class__
        if value in self.floats:
            return float
        real = self.real.get(value)
        if real is not None:
            return type(real)
        return torch.nn.Parameter if value in self.autograd.parameters else torch.Tensor

    def is_instance(self, tensor: Any, kinds: Any) -> bool:
        if isinstance(kinds, tuple):
            return any([self.is_instance(tensor, kind) for kind in kinds])
        if type(tensor) is SymbolicInt and kinds is torch.SymInt:
            return True
        cls = self.class_of(tensor)
        if type(kinds).__name__ == "tensortype":  # torch.FloatTensor and its like
            return isinstance(tensor, TensorProxy) and kinds.dtype is tensor.dtype and kinds.is_cuda == tensor.is_cuda
        return issubclass(cls, kinds) if isinstance(kinds, type) else isinstance(cls.__new__(cls), kinds)

    def reach(self, tracker: Tracker, tensor: Any, source: Source) -> Any:
        if is_proxy(tensor):
            return tensor
        if id(tensor) in self.choices.inputs:
            return self.arrays.reach(tracker, tensor, source)
        proxy = self.inputs.get(id(tensor))
        if proxy is None:
            spec, symbols = spec_of(whole(tensor)), ()
            if self.sizes is not None and (self.symbolic_ints or is_marked(tensor)):
                spec, symbols = self.sizes.spec(spec, tensor, source)
            proxy = self.inputs[id(tensor)] = self.trace.tensor(spec)
            self.trace.inputs.append(proxy)
            self.real[proxy] = tensor
            self.sources.append((source, proxy))
            self.environment.tensors.append(tensor)
            facts = tensor_facts(tensor, proxy.spec.strides)
            if symbols:
                self.trace.relations, self.sizes.of_tensor[proxy] = self.sizes.relations, symbols
                facts |= {"shape": spec.shape, "strides": spec.strides}
            tracker.guard("tensor", source, facts)
            tracker.known[id(proxy)] = proxy, source
        elif (first := tracker.source(proxy)) is not source:
            tracker.guard("same", source, first)
        return proxy

    def boxed(self, call: Callable[[Any], Any], kind: str) -> Callable[[Any], Any]:
        dtype = DRAWN[kind]
        return lambda argument: torch.tensor(call(argument), dtype=dtype)

    def draw(self, call: Callable[[], Any], kind: str, what: str, mark: Any, generator: Any) -> Any:
        session = self.environment.session
        if session is not None and session.is_open:
            self.environment.tracker.pin(generator)  # what follows draws from this one
            return session.draw(call, kind, what, mark, generator)
        if kind == "outcome":
            raise drawn_value(what)
        return NULL

    def number(self, tracker: Tracker, source: Source, kind: str) -> Any:
        sample = torch.zeros((), dtype=DRAWN[kind])
        proxy = self.trace.tensor(spec_of(sample))
        self.trace.inputs.append(proxy)
        self.sources.append((source, proxy))
        self.environment.tensors.append(sample)
        return proxy.item()

    def rate(self, tracker: Tracker, value: float, source: Source) -> Any:
        """Return what the program sees for a learning rate of an optimizer: an input where a schedule has changed it."""
        if self.sizes is None or not _is_learning_rate(source) or not self.sizes.moves(value, source):
            return value
        if source not in self.rates:
            tracker.guard("type", source, float)
            fresh = tracker.sources.fresh(source, len(tracker.calls), _as_tensor)
            tracker.calls.append(fresh)
            sample = _as_tensor(value)
            self.rates[source] = proxy = self.trace.tensor(spec_of(sample))
            self.trace.inputs.append(proxy)
            self.sources.append((fresh, proxy))
            self.environment.tensors.append(sample)
            self.floats.add(proxy)
        return self.rates[source]

    def symbolic(self, tracker: Tracker, value: int, source: Source) -> Any:
        if (size := self.sizes.integer(value, source)) is None:
            return value
        self.trace.relations = self.sizes.relations
        atom = self.sizes.places[repr(source), None]
        if atom.proxy not in set(self.trace.inputs):
            self.trace.inputs.append(atom.proxy)
            self.sources.append((source, atom.proxy))
            self.environment.tensors.append(value)
            tracker.guard("integer", source, atom)
        return symint(size)

    def build(self, captured: Captured) -> Callable[[list, tuple], Any]:
        """Return the function that makes the result from the outputs of the computation."""
        finish, builders = captured.finish, self.result_builders()
        if not builders:
            return finish
        rows = [builders.get(p) for p in self.results]
        return lambda outputs, objects: finish([x if build is None else build(x) for build, x in zip(rows, outputs, strict=True)], objects)

    def result_builders(self) -> dict[Proxy, Callable[[Any], Any]]:
        """Return what makes arrays, parameters and other leaves of those results of the computation that are such."""
        leaves = result_builders(self.trace, self.autograd, self.results) if self.autograd.leaves or self.autograd.parameters else {}
        return leaves if self.inside is None else leaves | self.inside.builders(self.results)

    def known(self, value: Any) -> Any:
        return self.environment.known_numbers.get(value, NULL) if type(value) is NumberProxy else NULL

    def place_of(self, tensor: Any) -> int:
        if type(tensor) is SymbolicInt:
            size = tensor.size
            tensor = self.numbers[size] = self.numbers[size] if size in self.numbers else prims.integer(value=size)
        elif not is_proxy(tensor):
            tensor = self.environment._lifted(tensor)
        self.environment.check_escapes((tensor,))
        return self.results.setdefault(tensor, len(self.results))

    def load_attr(self, tracker: Tracker, owner: Any, name: str) -> Any:
        kind = type(owner)
        if is_module_class(kind):
            return nn_module_tracing.load_attr(tracker, owner, name)
        if not is_tensor_class(kind):
            return NULL
        if name == "__class__":
            return self.class_of(owner)
        if kind is SymbolicInt:
            return getattr(owner, name)
        if is_traced_array(owner):
            return self.arrays.load_attr(owner, name)
        if (now := tracker.effects.now(owner, name)) is not NULL:
            if now is DELETED:
                raise AttributeError(name)
            return now
        if name == "__deepcopy__" and self.class_of(owner) is torch.nn.Parameter:
            return MethodType(torch.nn.Parameter.__deepcopy__, owner)
        if name in CHANGING and isinstance(owner, TensorProxy):
            return MethodType(getattr(torch.Tensor, name), owner)
        if name in ATTRIBUTES and isinstance(owner, TensorProxy):
            return ATTRIBUTES[name](self.autograd, tracker, owner)
        real = self.real.get(owner) if is_proxy(owner) else None
        if real is not None and name in real.__dict__:
            return tracker.reach(real.__dict__[name], tracker.sources.field(tracker.source(owner), name))
        if real is not None and not hasattr(torch.Tensor, name):
            tracker.guard("hasnot", tracker.sources.attr(tracker.source(owner), "__dict__"), name)
        if self.is_number(owner) and hasattr(self.class_of(owner), name):
            return getattr(self.concrete(owner), name)
        replaced = replaced_attribute(tracker, owner, self.class_of(owner), name) if isinstance(owner, TensorProxy) else NULL
        return getattr(owner, name) if replaced is NULL else replaced

    def store_attr(self, tracker: Tracker, owner: Any, name: str, value: Any) -> bool:
        if name == "grad" and owner in self.real:
            self.autograd.set_grad(tracker, owner, None if value is DELETED else value)
            return True
        if hasattr(torch.Tensor, name) or owner not in self.real:
            raise Unsupported(
                f"the program sets .{name} of a traced tensor, which later operations would not see; write with copy_, or do it outside\n"
                f"  called at {user_line()}"
            )
        return False

    def operate(self, tracker: Tracker, op: Any, args: list[Any]) -> Any:
        if self.writes_text and op not in (operator.add, operator.iadd):
            args = [self.concrete(x) if self.is_text(x) else x for x in args]
        if self.returns_tensors and has_arrays(args):
            return self.arrays.operate(tracker, op, args)
        if self.returns_tensors and any([type(x).__module__ == "numpy" for x in args]):  # a number of NumPy's: the tensor computes with its value
            args = [lift_leaf(x, self.trace) for x in args]
        operands = [(x, self.class_of(x) if isinstance(x, TensorProxy) else None) for x in args]
        if (result := replaced_operator(tracker, op, operands)) is not NULL:
            return result
        session = self.environment.session
        if session is None:
            return self._operate(op, *args)
        if op == "get_item" and session.is_open and picks_by_mask(args[1]):
            return session.call_outside(torch.Tensor.__getitem__, args, {})
        if op == "set_item" and session.is_open and picks_by_mask(args[1]):
            return session.assign(self._operate, *args)
        return session.attempt(self._operate, (op, *args), {}, sizes=isinstance(args[0], TensorProxy))

    def _operate(self, op: Any, *args: Any) -> Any:
        if op == "get_item":
            return args[0][args[1]]
        if op == "set_item":
            args[0][args[1]] = args[2]
            return None
        if op == "contains":
            return args[1] in args[0]
        if op == "len":
            shape = args[0].spec.shape if isinstance(args[0], TensorProxy) else ()
            return symint(shape[0]) if shape else len(args[0])
        if op == "iter":
            return list(args[0])
        if len(args) == 2 and self.is_number(args[0]) and isinstance(args[1], TensorProxy) and op in _REFLECTED:
            return getattr(args[1], _REFLECTED[op])(args[0])
        return op(*args)

    def truth(self, tracker: Tracker, tensor: Any) -> bool:
        return bool(tensor)

    def is_symbolic(self, value: Any) -> bool:
        return type(value) is SymbolicInt or (type(value) is torch.Size and any([type(n) is SymbolicInt for n in value]))

    def words(self, tensor: Any) -> None:
        if not is_proxy(tensor):
            float(tensor)  # a symbolic size: it becomes a plain number
            return
        raise no_value(tensor)

    def with_values(self, call: Callable, function: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
        session = self.environment.session
        if session is None:
            return call(function, args, kwargs, frame)
        if function in _PREDICATES and session.is_open and len(args) == 1 and args[0].spec.kind == "float":
            return session.holds(function, args[0])
        return session.attempt(lambda *args: call(function, list(args), kwargs, frame), args, {})

    def counted(self, bounds: list[Any]) -> Any:
        session = self.environment.session
        return None if session is None else session.counted(bounds)

    def formatted(self, tensor: Any) -> Any:
        lonely = isinstance(tensor, TensorProxy) and not tensor.spec.shape and self.class_of(tensor) is torch.Tensor
        return tensor.item() if lonely else tensor

    def is_text(self, value: Any) -> bool:
        return host_numbers.is_text(value)

    def text(self, number: Any, form: str) -> Any:
        if self.environment.language is not LANGUAGE:
            return NULL
        text = host_numbers.formatted(number, form, known=self.environment.known_numbers)
        self.writes_text = self.writes_text or text is not None
        return NULL if text is None else text

    def joined(self, parts: list[Any]) -> Any:
        return host_numbers.joined(parts)

    def converted(self, value: Any, kind: type) -> Any:
        if kind not in (int, float) or not isinstance(value, Proxy) or self.environment.language is not LANGUAGE:
            return NULL
        if isinstance(value, TensorProxy):
            rounds = kind is int and value.spec.dtype.kind == "float" and not self.environment.restarts
            unlike = value in self.floats or value.spec.numel != 1 or rounds
            if unlike or self.class_of(value) is not torch.Tensor:
                return NULL
            value = value.item()
            if not isinstance(value, Proxy):
                return kind(value)
        number = host_numbers.converted(value, kind, known=self.environment.known_numbers, restarts=self.environment.restarts)
        return NULL if number is None else number

    def concrete(self, number: Any) -> Any:
        return self.environment.value(number, "value", ())

    def printed(self, tracker: Tracker) -> None:
        tracker.guard("equal", tracker.sources.setting(_print_options), _print_options())

    def is_number(self, value: Any) -> bool:
        return type(value) is NumberProxy

    def content(self, tracker: Tracker, value: Any, source: Source) -> None:
        """Guard an array or scalar of NumPy's by its content: whatever is computed from it becomes a constant."""
        numpy = sys.modules.get("numpy")
        if numpy is None or not isinstance(value, (numpy.ndarray, numpy.generic)):
            return
        if value.nbytes > _LARGE and self.choices.may_be_input(value) and self.arrays.can_be_input(value):
            raise ArrayNeeded(value)
        if value.nbytes > _LARGE or value.dtype.hasobject:
            raise Unsupported(
                f"an array of {value.nbytes} bytes is read from outside at {source}; make it a tensor: its values are read at each call"
            )
        if isinstance(value, (numpy.matrix, numpy.ma.MaskedArray, numpy.void)):
            raise Unsupported(f"{source} is a {type(value).__name__}, which is not supported in compiled functions; pass np.asarray(x) of it")
        guard, sources = tracker.guard, tracker.sources
        guard("type", source, type(value))
        guard("equal", sources.attr(source, "shape"), value.shape)
        guard("equal", sources.attr(sources.attr(source, "dtype"), "str"), value.dtype.str)
        guard("equal", sources.call(sources.attr(source, "tobytes")), value.tobytes())
        if isinstance(value, numpy.ndarray):
            before = value.copy()
            tracker.snapshot(value, source, value.tobytes, lambda _: value.__setitem__(..., before))

    def call(self, tracker: Tracker, function: Any, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
        kind = type(function)
        if (kind is FunctionType or kind is MethodDescriptorType) and function in CALLS and any(map(is_tensor_class, map(type, leaves(args)))):
            return CALLS[function](self.autograd, tracker, *args, **kwargs)
        if kind is MethodDescriptorType and function in CHANGES:
            return change_metadata(self, function, *args, **kwargs)
        if kind is FunctionType:
            return self._python(tracker, function, args, kwargs, frame)
        if function is torch.profiler.record_function:  # its range is ignored, and so is its name
            return object.__new__(function)
        if function is int and len(args) == 1 and type(args[0]) is SymbolicInt:
            return args[0]
        if is_module_class(kind):
            compiled = CompiledModule in kind.__mro__  # on its own; here it is a part of this program
            return (
                tracker.call(tracker.load_attr(function, "_module"), args, kwargs, frame)
                if compiled
                else nn_module_tracing.call(tracker, function, args, kwargs, frame)
            )
        if is_symbol_class(kind):
            return self._ours(tracker, function, args, kwargs)
        if (name := generator_method(function)) is not None:
            return call_method(tracker, function, name, args, kwargs)
        if kind is BuiltinFunctionType:
            if function.__self__ is recorder:
                return function(*args)
            if function.__name__ == "_make_subclass" and is_torch(function):  # what creates a parameter
                return create_parameter(self.autograd, *args, **kwargs)
            if (cls := function_applied(function)) is not None:
                return self._applied(tracker, function, cls, args, kwargs)
            if function in OVERRIDE_CHECKS:  # no overrides, so that functions run; in modules there are, so that they avoid paths without gradients
                return frame is not None and _MODULES in frame.code.co_filename
        if is_torch(function):
            return self._torch(tracker, function, args, kwargs)
        return self.call_numpy(tracker, function, args, kwargs, frame)

    def _python(self, tracker: Tracker, function: FunctionType, args: list[Any], kwargs: dict[str, Any], frame: Frame | None) -> Any:
        if function is torch.compiler.is_compiling:  # libraries then leave out what reads values
            return True
        if (transform := TRANSFORMS.get(function) or transformed_outside(function)) is not None:
            return self._ours(tracker, transform, args, kwargs)
        if function is torch.func.functional_call:
            guard_same(tracker, function)
            return functional_call(tracker, *args, **kwargs)
        if function is torch.func.functionalize:
            raise _untraced_transform()
        if (program := CONTROL_FLOW.get(function)) is not None:
            guard_same(tracker, function)
            return tracker.call_function(program, args, kwargs)
        if function in _INFERENCE:
            self.environment.read.add("inference_mode")
            return self.settings.inference(args, entered=function is _INFERENCE[0])
        if function in _RANGES:
            self._range(tracker)
            return args[0] if function is _RANGES[0] else None
        if function is torch.autograd.graph.saved_tensors_hooks.__enter__:
            raise EagerCall(
                "torch.autograd.graph.saved_tensors_hooks inside a compiled function is not traced: what is saved is decided when the function is "
                f"compiled; open it around the call\n  called at {user_line()}"
            )
        if notes_module(function):  # once Dynamo was used, it notes each module that is created
            return None
        if (traced := SEEN.get(function) or _HINTS.get(function) or TRACED.get(function)) is not None:
            guard_same(tracker, function)
            return self._ours(tracker, traced, args, kwargs)
        if is_torch(function):
            return self._torch(tracker, function, args, kwargs)
        if (plain := undisabled(function)) is not None:
            guard_same(tracker, function)
            return tracker.call(plain, args, kwargs, frame)
        if "_cache" in function.__dict__ and hasattr(function, "__wrapped__"):  # compiled on its own: here it is a part of this program
            guard_same(tracker, function)
            return tracker.call(function.__wrapped__, args, kwargs, frame)
        if function.__name__ == "_wrapit":  # of NumPy
            return self.call_numpy(tracker, function, args, kwargs, frame)
        code = function.__code__
        if is_own_code(code) or not is_ours(code):
            return NULL
        return self._ours(tracker, function, args, kwargs)

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
        if function is apply_traced:
            for name in _FUNCTION_PARTS:
                tracker.from_class(args[0], name)
        args, kwargs = [native_argument(tracker, x) for x in args], {name: native_argument(tracker, x) for name, x in kwargs.items()}
        result = self.on_arrays(tracker, function, args, kwargs)
        return self._recorded(function, args, kwargs) if result is NULL else result

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

    def _torch(self, tracker: Tracker, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Record an operation of torch; run one that has nothing to do with tensors."""
        if kwargs.get("requires_grad") is True:
            created = self._torch(tracker, function, args, {**kwargs, "requires_grad": False})
            return self.autograd.create_leaf(created)
        guard_same(tracker, function)
        if getattr(function, "__module__", None) == FUNCTORCH_MODULE:
            raise _untraced_transform()
        if isinstance(function, (BuiltinFunctionType, MethodWrapperType)) and is_tensor_class(type(function.__self__)):
            function, args = getattr(torch.Tensor, function.__name__), [function.__self__, *args]
        args = tuple([native_argument(tracker, x) for x in args])
        kwargs = {name: native_argument(tracker, x) for name, x in kwargs.items()}
        if (result := self.on_arrays(tracker, function, args, kwargs)) is not NULL:
            return result
        if isinstance(generator := kwargs.get("generator"), torch.Generator):
            guard_same(tracker, generator)
        parsed = type(function) is BuiltinFunctionType and function is not GROUP_TENSORS.value  # by torch, before it calls back
        sizes = function in FACTORIES  # torch's parser takes tensors for them, but no traced ones
        unparsed = not parsed or any([type(x) in _UNPARSED or (sizes and isinstance(x, TensorProxy)) for x in leaves((args, kwargs))])
        if unparsed or self.environment.is_value_dependent(function, args, kwargs):
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
        if self.is_known(function) or package_of(function) in _KNOWN:
            return
        for value in (getattr(function, "__self__", function), *args, *kwargs.values()):
            if not tracker.is_settled(value):
                raise Unsupported(
                    f"{name_of(function)}() is C code that Dovetail does not know, called with a {type(value).__name__} from outside, which may "
                    f'change unseen; call it outside the compiled function, or set unknown_c_code = "run"\n  called at {user_line()}'
                )

    def native(self, tracker: Tracker, function: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
        """Refuse C code of an unknown package that is called with tensors, and code of torch's that reads or writes a storage."""
        if any([isinstance(x, _STORAGES) for x in (getattr(function, "__self__", None), *args)]):
            raise Unsupported(f"{name_of(function)}() uses the memory of a tensor behind the program; use the tensor\n  called at {user_line()}")
        if is_foreign(function) and any([is_tensor_class(type(x)) for x in leaves((args, kwargs))]):
            name = getattr(function, "__qualname__", None) or type(function).__qualname__
            name = f"{where}.{name}" if (where := getattr(function, "__module__", None)) else name
            raise Unsupported(f"{name} is C code, which Dovetail cannot trace, called with a traced tensor; {WAYS_OUT}\n  called at {user_line()}")


def picks_by_mask(key: Any) -> bool:
    """Return whether an index has a mask in it: the shape of what it picks depends on values."""
    return any([isinstance(p, TensorProxy) and p.spec.dtype in _MASKS for p in (key if isinstance(key, tuple) else (key,))])


def native_argument(tracker: Tracker, value: Any) -> Any:
    """Return an argument for code of ours or of torch's: containers become plain, calls of functions return to the tracker."""
    kind = type(value)
    if kind is FunctionType or kind is MethodType:
        return tracker.native(value)
    if is_module_class(kind) or kind is partial or (type(lookup(kind, "__call__")) is FunctionType and not is_symbol_class(kind)):
        return value if isinstance(value, type) or is_torch(value) else tracker.reentrant(value)
    return tracker.plain(value)

"""Tensors in a tracked run: they are proxies, and calls on them are recorded in the language of torch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from types import MethodDescriptorType, MethodType
from typing import TYPE_CHECKING, Any

import torch

from dovetail import options, prims
from dovetail.errors import EagerCall, InputError, Unsupported
from dovetail.executors.trials.judge import GradientDisagreement
from dovetail.frontend.autograd.created_leaves import check_hooks_left, result_builders, untracked_builders
from dovetail.frontend.autograd.hooks import Node, RemovableHook, UntracedNode
from dovetail.frontend.autograd.traced_autograd import ATTRIBUTES, TracedAutograd
from dovetail.frontend.class_lookup import NULL, address_of
from dovetail.frontend.classify_calls import (
    is_module_class,
    is_tensor_class,
    is_torch,
)
from dovetail.frontend.guards.guard import Guard
from dovetail.frontend.guards.symbolic_sizes import is_marked
from dovetail.frontend.guards.tensor_checks import tensor_facts
from dovetail.frontend.interpreter.tracking.effects import DELETED
from dovetail.frontend.recording import nn_module_tracing
from dovetail.frontend.recording.array_choices import LARGEST_CONTENT, ArrayChoices, ArrayNeeded
from dovetail.frontend.recording.array_hooks import is_traced_array
from dovetail.frontend.recording.call_hooks import KNOWN, STORAGES, CallHooks
from dovetail.frontend.recording.changing_numbers import ChangingNumbers, number_input
from dovetail.frontend.recording.data_writes import set_data
from dovetail.frontend.recording.generators import TracedGenerators, copy_of
from dovetail.frontend.recording.metadata_writes import CHANGING
from dovetail.frontend.recording.opaque_arguments import OpaqueArguments
from dovetail.frontend.recording.tensor_methods import check_facts, replaced_attribute
from dovetail.frontend.recording.torch_globals import GlobalSettings
from dovetail.frontend.recording.tracked_environment import DRAWN, TrackedEnvironment, drawn_value, tensor_of
from dovetail.frontend.shards import whole
from dovetail.frontend.subclasses import is_wrapper
from dovetail.frontend.wrappers.jagged import untraced_size
from dovetail.langs.torch import SymbolicInt, spec_of, symint
from dovetail.prims import Tag, TensorSpec
from dovetail.prims.sizes import Atom, Size, is_symbolic
from dovetail.torch_internals import OpOverloadPacket, no_torch_function
from dovetail.trace import BoundSymbol, NumberProxy, Proxy, TensorProxy, Trace, is_proxy, leaves, prims_of, user_line
from dovetail.trace.aliases import root_of, view_bases
from dovetail.trace.ir import draws

if TYPE_CHECKING:
    from dovetail.frontend.guards.source import Source
    from dovetail.frontend.guards.symbolic_sizes import SymbolicSizes
    from dovetail.frontend.interpreter.tracking.capture import Captured
    from dovetail.frontend.interpreter.tracking.tracker import Tracker

_NUMBERS = {"bool": bool, "int": int, "float": float, "complex": complex, "str": str}
_NUMBERS_OF_FUNCTIONS = getattr(torch.autograd.function, "AUTOGRAD_FUNCTION_COUNTER", None)  # one for each torch.autograd.Function
_OPERATOR_TABLES = frozenset({type(torch.ops), type(torch.ops.aten), OpOverloadPacket})
_ATOMS = frozenset({torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size, torch.finfo, torch.iinfo})
_INT64 = 1 << 63  # what ints that are inputs are below


def _numpy_numbers() -> frozenset[type]:
    numpy = sys.modules.get("numpy")
    return frozenset() if numpy is None else frozenset({kind for kind in numpy.sctypeDict.values() if issubclass(kind, numpy.number | numpy.bool_)})


def _has_effect(line: BoundSymbol) -> bool:
    return line.mutates or draws(line) or Tag.HOST in line.symbol.tags


class TorchRecorder(CallHooks):
    """Tensors read from outside become inputs of `trace`; `sources` has where each is read.

    `sizes` decides which of their sizes, and which ints in the arguments, are symbols; None where all are ints.
    """

    marks = {torch.nn.Parameter: "_is_param", torch.nn.Buffer: "_is_buffer"}

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
        self.changing = ChangingNumbers(trace, sizes)
        self.generators, self.lending = TracedGenerators(self), OpaqueArguments()
        self.autograd = TracedAutograd(self)

    def start(self, tracker: Tracker) -> None:
        check_facts()
        self.environment.tracker = tracker

    def forget(self) -> None:
        """Release the tensors of the run."""
        self.inputs, self.real, self.sources, self.results, self.autograd = {}, {}, [], {}, TracedAutograd(self)
        self.inside, self.choices, self.wrappers, self.changing = None, ArrayChoices(), None, ChangingNumbers(self.trace, None)
        self.generators, self.lending = TracedGenerators(self), OpaqueArguments()

    def finish(self, tracker: Tracker) -> None:
        if self.inside is not None:
            self.inside.check_constants()
        if self.environment.examples:
            self.environment.check_escapes([p for line in self.trace.lines for p in line.reads])
        self.lending.finish(tracker)
        self.generators.finish(tracker)
        self.autograd.finish(tracker)
        self.settings.finish(tracker, self.environment.read)

    def has_effects(self) -> bool:
        autograd = self.autograd
        return self.settings.are_changed() or autograd.used or bool(autograd.pending()) or any([_has_effect(line) for line in self.trace.lines])

    def refuses(self, error: BaseException) -> bool:
        without_symbols = isinstance(error, InputError) and bool(self.sizes)  # the program is traced again without them
        return without_symbols or isinstance(error, GradientDisagreement)

    def recorded(self) -> int:
        return len(self.trace.lines)

    def only_computes(self, start: int) -> bool:
        lines = self.trace.lines[start:]
        own = {p for line in prims_of(lines) for p in line.writes}
        return not any([_has_effect(line) and not line.mutates for line in lines]) and own.issuperset(self._written(start, self._bases()))

    def writes_into(self, value: Any, start: int) -> bool:
        bases = self._bases()
        return not self._written(start, bases).isdisjoint([root_of(x, bases) for x in leaves(value) if isinstance(x, TensorProxy)])

    def _bases(self) -> dict[Proxy, Proxy]:
        """Map each view that is recorded to the value it is a view of."""
        return view_bases(prims_of(self.trace.lines))

    def _written(self, start: int, bases: dict[Proxy, Proxy]) -> set[Proxy]:
        """Return the tensors that own the memory into which the lines from `start` on write."""
        return {root_of(line.args[0], bases) for line in prims_of(self.trace.lines[start:]) if line.mutates}

    def state_of_generator(self) -> bytes:
        with no_torch_function():  # a backward is traced under a mode
            return torch.default_generator.get_state().numpy().tobytes()

    def is_tensor(self, value: Any) -> bool:
        return is_tensor_class(type(value))

    def has_identity(self, value: Any) -> bool:
        return isinstance(value, TensorProxy) or type(value) is torch.Tensor or isinstance(value, torch.nn.Parameter) or is_wrapper(value)

    def is_traced(self, value: Any) -> bool:
        return isinstance(value, TensorProxy)

    def stored_key(self, tracker: Tracker, key: Any) -> Any:
        """Return the tensor from outside that `key` stands for; the program depends on which one it is."""
        real = self.real.get(key) if is_proxy(key) else None
        if real is None:
            return key
        tracker.guard("is", tracker.source(key), real)
        return real

    def is_module(self, value: Any) -> bool:
        return is_module_class(type(value))

    def is_element_type(self, value: Any) -> bool:
        numpy = sys.modules.get("numpy")
        return numpy is not None and isinstance(value, numpy.dtype) and value.fields is None and value.subdtype is None and not value.hasobject

    def is_buffer(self, value: Any) -> bool:
        numpy = sys.modules.get("numpy")
        return numpy is not None and isinstance(value, numpy.ndarray)

    def copier(self, value: Any) -> Callable[[], Any] | None:
        if isinstance(value, (Node, UntracedNode, RemovableHook)):
            raise EagerCall(f"the {value.named} of a traced autograd graph leaves the program")
        return partial(copy_of, value) if isinstance(value, torch.Generator) else None

    def is_known(self, value: Any) -> bool:
        numpy = sys.modules.get("numpy")
        if numpy is not None and isinstance(value, numpy.generic):  # guarded by its content, as arrays are
            return True
        if isinstance(value, STORAGES):
            return False
        return options.UNKNOWN_C_CODE.read() == "run" or type(value).__module__.partition(".")[0] in KNOWN

    def only_numbers(self, iterator: Any) -> bool:
        return iterator is _NUMBERS_OF_FUNCTIONS

    def handles(self, function: Any) -> bool:
        return is_torch(function) or is_module_class(type(function))

    def class_of(self, value: Any) -> type:
        """Return the class of a tensor as the program sees it."""
        kind = type(value)
        if issubclass(kind, NumberProxy):  # isinstance would also ask a proxy which class it stands for
            return _NUMBERS[value.spec.kind]
        if kind is SymbolicInt:
            return int
        if kind is UntracedNode:
            return value.type()  # raises: eager mode has a class for each operation
        if not issubclass(kind, TensorProxy):
            return kind
        if is_traced_array(value):
            return value.__class__
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
        if kinds is torch.autograd.Variable:  # what every tensor is an instance of
            return issubclass(cls, torch.Tensor)
        return issubclass(cls, kinds) if isinstance(kinds, type) else isinstance(cls.__new__(cls), kinds)

    def reach(self, tracker: Tracker, tensor: Any, source: Source) -> Any:
        if is_proxy(tensor):
            return tensor
        if is_wrapper(tensor):
            return self.of_wrappers().reach(tracker, tensor, source)
        if id(tensor) in self.choices.inputs:
            return self.arrays.reach(tracker, tensor, source)
        proxy = self.inputs.get(id(tensor))
        if proxy is None:
            if torch.nn.parameter.is_lazy(tensor):
                raise EagerCall(f"{source} gets its shape in the first call of its lazy module")
            spec, symbols, strides, reads = spec_of(whole(tensor)), (), None, []
            if (
                self.sizes is not None
                and (self.symbolic_ints or is_marked(tensor))
                and not (self.wrappers is not None and self.wrappers.hold(source))
            ):
                plain = spec
                spec, symbols, strides = self.sizes.spec(spec, tensor, source)
                if self.symbolic_ints and not plain.is_dense:
                    spec, strides, reads = self._with_gaps(tracker, spec, tensor, source)
            proxy = self.inputs[id(tensor)] = self.trace.tensor(spec)
            self.trace.inputs.append(proxy)
            self.real[proxy] = tensor
            self.sources.append((source, proxy))
            self.environment.tensors.append(tensor)
            facts = tensor_facts(tensor, proxy.spec.strides)
            if symbols or is_symbolic(strides):
                self.trace.relations, self.sizes.of_tensor[proxy] = self.sizes.relations, list(symbols)
                self.sizes.of_strides[proxy] = reads
                facts |= {"shape": spec.shape, "strides": strides}
            tracker.guard("tensor", source, facts)
            if tensor.is_neg() or (spec.dtype.kind == "complex" and tensor.is_conj()):
                raise EagerCall(f"{source} is conjugated or negated lazily; call .resolve_conj().resolve_neg() of it outside the compiled function")
            if spec.dtype.kind == "complex":
                tracker.guard("equal", tracker.sources.call(tracker.sources.attr(source, "is_conj")), False)
            tracker.known[address_of(proxy)] = proxy, source
        elif (first := tracker.source(proxy)) is not source:
            tracker.guard("same", source, first)
        return proxy

    def _with_gaps(self, tracker: Tracker, spec: TensorSpec, tensor: torch.Tensor, source: Source) -> tuple[TensorSpec, tuple, list[Guard]]:
        """Return the spec of an input with gaps in its memory, with symbols for strides that have changed, the strides to check, and what reads them.

        The tensor that `x[:, :-1]` is a part of is not at hand: its width is known by the stride alone.
        """
        actual, own, guards = list(tensor.stride()), list(spec.steps), []
        at = tracker.sources.call(tracker.sources.attr(source, "stride"))
        for dim in [dim for dim, n in enumerate(tensor.shape) if n != 1]:
            item = tracker.sources.item(at, dim)
            step = self.sizes.integer(actual[dim], item)
            if step is not None:
                guards.append(Guard("integer", item, self._number_of_size(actual[dim], item)))
                own[dim] = actual[dim] = step
        return spec.like(strides=tuple(own)), tuple(actual), guards

    def _number_of_size(self, value: int, source: Source) -> Atom:
        """Return the symbol of an int that was read at a source, which is an input of the program."""
        self.trace.relations = self.sizes.relations
        atom = self.sizes.places[repr(source), None]
        if atom.proxy not in set(self.trace.inputs):
            self.trace.inputs.append(atom.proxy)
            self.sources.append((source, atom.proxy))
            self.environment.tensors.append(value)
        return atom

    def boxed(self, call: Callable[[Any], Any], kind: str) -> Callable[[Any], Any]:
        if kind == "array":
            return lambda argument: tensor_of(call(argument))
        dtype = DRAWN[kind]
        return lambda argument: torch.tensor(call(argument), dtype=dtype)

    def draw(self, call: Callable[[], Any], kind: str, what: str, mark: Any, generator: Any) -> Any:
        session = self.environment.session
        if session is not None and session.is_open:
            self.environment.tracker.pin(generator)  # what follows draws from this one
            return session.draw(call, kind, what, mark, generator)
        if kind in ("outcome", "unique"):
            raise drawn_value(what)
        return NULL

    def number(self, tracker: Tracker, source: Source, kind: str) -> Any:
        return self.add_input(source, torch.zeros((), dtype=DRAWN[kind])).item()

    def add_input(self, source: Source, sample: torch.Tensor) -> Any:
        """Return the input for a tensor like `sample` that is computed before the program at every call."""
        proxy = self.trace.tensor(spec_of(sample))
        self.trace.inputs.append(proxy)
        self.sources.append((source, proxy))
        self.environment.tensors.append(sample)
        return proxy

    def is_of_gradients(self, source: Source) -> bool:
        """Return whether what is read at a source stands for parts of the gradient of a wrapper."""
        return self.wrappers is not None and source in self.wrappers.histories.arriving

    def changing_number(self, tracker: Tracker, value: float, source: Source) -> Any:
        """Return what the program sees for a float from outside, and for an int that is no symbol: an input where it has changed."""
        numbers, sizes = self.changing.numbers, self.changing.sizes
        if sizes is None or tracker.later is not None:
            return value
        kind = type(value)
        if kind is int and ((self.environment.session is None and not sizes.plain) or not -_INT64 <= value < _INT64):
            return value
        conversion = number_input(kind) if self.returns_tensors or kind in (int, float) else None
        if conversion is None or not sizes.moves(value, source):
            return value
        if source not in numbers:
            tracker.guard("type", source, kind)
            at = tracker.sources.make("array", source, conversion)
            tracker.guard("type", at, torch.Tensor)
            tensor = self.add_input(at, conversion.convert(value))
            self.changing.add(source, tensor, value)
            sizes.floats[repr(source)] = numbers[source]
            if kind not in (int, float):
                self.changing.scalars[source] = self.arrays.scalar_of(tensor, numbers[source])
        return self.changing.scalars.get(source, numbers[source])

    def symbolic(self, tracker: Tracker, value: int, source: Source) -> Any:
        if (size := self.sizes.integer(value, source)) is None:
            return value
        tracker.guard("integer", source, self._number_of_size(value, source))
        return symint(size)

    def build(self, captured: Captured) -> Callable[[list, tuple], Any]:
        """Return the function that makes the result from the outputs of the computation."""
        finish, builders = captured.finish, self.result_builders()
        if not builders:
            return finish
        rows = [builders.get(p) for p in self.results]
        return lambda outputs, objects: finish([x if build is None else build(x) for build, x in zip(rows, outputs, strict=True)], objects)

    def result_builders(self) -> dict[Proxy, Callable[[Any], Any]]:
        """Return what makes arrays, parameters and other leaves, and inference tensors, of those results of the computation that are such."""
        if self.autograd.hooked() or self.autograd.retained:
            check_hooks_left(self.trace, self.autograd, self.results)
        leaves = result_builders(self.trace, self.autograd, self.results) if self.autograd.leaves or self.autograd.parameters else {}
        leaves |= untracked_builders(self.trace, self.results)
        leaves |= self.settings.inference_builders(self.trace, self.results)
        return leaves if self.inside is None else leaves | self.inside.builders(self.results)

    def original(self, tracker: Tracker, tensor: Any) -> Source | None:
        """Return where a wrapper, or an array, from outside lies that is a result."""
        return tracker.source(tensor) if is_wrapper(tensor) else super().original(tracker, tensor)

    def taken_apart(self, tensor: Any) -> tuple[list[Any], Callable[..., Any]] | None:
        return self.of_wrappers().taken_apart(tensor) if is_wrapper(tensor) else None

    def known(self, value: Any) -> Any:
        return self.environment.known_numbers.get(value, NULL) if type(value) is NumberProxy else NULL

    def place_of(self, tensor: Any) -> int:
        if type(tensor) is torch.SymInt:
            raise untraced_size()
        if type(tensor) is SymbolicInt:
            size = tensor.size
            tensor = self.numbers[size] = self.numbers[size] if size in self.numbers else prims.integer(value=size)
        elif not is_proxy(tensor):
            tensor = self.environment._lifted(tensor)
        self.environment.check_escapes((tensor,))
        self.environment.check_parted(tensor)
        tensor = self.autograd.now(tensor)
        return self.results.setdefault(tensor, len(self.results))

    def load_attr(self, tracker: Tracker, owner: Any, name: str) -> Any:
        kind = type(owner)
        if is_module_class(kind):
            return nn_module_tracing.load_attr(tracker, owner, name)
        if kind in _OPERATOR_TABLES:
            getattr(owner, name, None)  # PyTorch creates an operator when it is first looked up, and keeps it
        if not is_tensor_class(kind):
            return NULL
        if name == "__class__":
            return self.class_of(owner)
        if kind is SymbolicInt:
            return getattr(owner, name)
        if is_wrapper(owner):
            return self.of_wrappers().load_attr(tracker, owner, name)
        if is_traced_array(owner):
            return self.arrays.load_attr(owner, name)
        if (now := tracker.effects.now(owner, name)) is not NULL:
            if now is DELETED:
                raise AttributeError(name)
            return now
        if name == "__deepcopy__" and self.class_of(owner) is torch.nn.Parameter:
            return MethodType(torch.nn.Parameter.__deepcopy__, owner)
        if (name in CHANGING or name == "storage_offset") and isinstance(owner, TensorProxy):
            return MethodType(getattr(torch.Tensor, name), owner)
        if name in ATTRIBUTES and isinstance(owner, TensorProxy):
            return ATTRIBUTES[name](self.autograd, tracker, owner)
        real = self.real.get(owner) if is_proxy(owner) else None
        if real is not None and name in real.__dict__:
            return tracker.reach(real.__dict__[name], tracker.sources.field(tracker.source(owner), name))
        if real is not None and not hasattr(torch.Tensor, name):
            tracker.guard("hasnot", tracker.sources.attr(tracker.source(owner), "__dict__"), name)
        if self.is_number(owner) and hasattr(self.class_of(owner), name):
            method = getattr(self.class_of(owner), name)
            return MethodType(method, owner) if type(method) is MethodDescriptorType else getattr(self.concrete(owner), name)
        replaced = replaced_attribute(tracker, owner, self.class_of(owner), name) if isinstance(owner, TensorProxy) else NULL
        return getattr(owner, name) if replaced is NULL else replaced

    def store_attr(self, tracker: Tracker, owner: Any, name: str, value: Any) -> bool:
        if is_wrapper(owner):
            return self.of_wrappers().store_attr(owner, name, value)
        if name == "grad" and (owner in self.real or owner in self.autograd.leaves):
            self.autograd.set_grad(tracker, owner, None if value is DELETED else value)
            return True
        if name == "requires_grad" and type(value) is bool:
            self.autograd.set_requires_grad(owner, value)
            return True
        if name == "data" and isinstance(owner, TensorProxy) and isinstance(value, TensorProxy):
            set_data(self, tracker, owner, value)
            return True
        if hasattr(torch.Tensor, name):
            raise Unsupported(
                f"the program sets .{name} of a traced tensor, which later operations would not see; write with copy_, or do it outside\n"
                f"  called at {user_line()}"
            )
        return False

    def content(self, tracker: Tracker, value: Any, source: Source) -> None:
        """Guard an array or scalar of NumPy's by its content: whatever is computed from it becomes a constant."""
        if self.is_element_type(value):
            tracker.guard("type", source, type(value))
            tracker.guard("equal", tracker.sources.attr(source, "str"), value.str)
            return
        numpy = sys.modules.get("numpy")
        if numpy is None or not isinstance(value, (numpy.ndarray, numpy.generic)):
            return
        if value.nbytes > LARGEST_CONTENT and self.choices.may_be_input(value) and self.arrays.can_be_input(value):
            raise ArrayNeeded(value)
        if value.nbytes > LARGEST_CONTENT or value.dtype.hasobject:
            raise EagerCall(f"an array of {value.nbytes} bytes is read from outside at {source}; make it a tensor: its values are read at each call")
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

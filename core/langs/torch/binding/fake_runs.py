"""Calls of torch on fake tensors: what they return, which arguments they write to, and whether they draw random numbers."""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from dovetail.devices import Device
from dovetail.errors import (
    DovetailError,
    InputError,
    InputIndexError,
    InputNotImplementedError,
    InputRuntimeError,
    InputTypeError,
    InputValueError,
    ValueDependent,
)
from dovetail.langs.torch.binding.bridge import TO_TORCH, device_of, dtype_of, torch_device
from dovetail.langs.torch.binding.names import NAMED, name_of, not_traced
from dovetail.langs.torch.binding.shape_rules import has_sizes, meta_tensor, size_in, symbolic
from dovetail.langs.torch.binding.stand_ins import STAND_INS
from dovetail.langs.torch.binding.symbol import FACTORIES
from dovetail.prims import NumberSpec, TensorSpec
from dovetail.prims.sizes import Size, hint_of
from dovetail.prims.spec import laid_out, normal_strides
from dovetail.torch_internals import FAKE_TENSOR_LOG, TorchDispatchMode, fake_tensor_mode, no_torch_function, shape_rules, storage_key
from dovetail.trace import leaves, tree_map

_log = logging.getLogger(FAKE_TENSOR_LOG)
_RAISED = {
    TypeError: InputTypeError,
    IndexError: InputIndexError,
    ValueError: InputValueError,
    NotImplementedError: InputNotImplementedError,
    RuntimeError: InputRuntimeError,
}
_NO_RULE = ("fake impl", "data is not allocated", "Cannot access data pointer")  # of torch: the last two where a kernel got a fake tensor
_FAMILIES = ("torch.fft.", "torch.linalg.", "torch.special.")  # of functions whose results have layouts that depend on no values
_FUNCTIONS = (  # and others of that kind
    "searchsorted bucketize histc cdist pdist grid_sampler affine_grid_generator ctc_loss lstm gru rnn_tanh rnn_relu stft istft hann_window "
    "hamming_window blackman_window bartlett_window kaiser_window kthvalue mode median nanmedian quantile nanquantile renorm embedding_bag isin "
    "trapezoid cumulative_trapezoid vander logcumsumexp max_unpool1d max_unpool2d max_unpool3d slogdet logdet det inverse matrix_exp cholesky "
    "cholesky_solve cholesky_inverse pinverse svd qr lu_solve triangular_solve histogram igamma igammac scatter scatter_reduce fill_diagonal_ "
    "normal_ uniform_ random_ bernoulli_ exponential_ geometric_ cauchy_ log_normal_ poisson binomial multinomial"
)
BY_SHAPE = frozenset(_FUNCTIONS.split())
_BY_RANK = "torch.linalg.lstsq"  # of the families: its results depend on a rank
_SMALL = 1 << 18  # elements that are computed in less time than the imports of fake tensors take
_VALUES_DECIDE = ("DynamicOutputShapeException", "DataDependentOutputException")


@dataclass
class FakeRun:
    """One run of a callable on fake tensors."""

    result: Any
    arguments: dict[int, int]  # id of a fake argument -> its number
    fakes: list[torch.Tensor]  # kept alive, so that their ids stay valid
    random: bool
    written: tuple[int, ...]  # numbers of the arguments it wrote to
    aliased: bool  # a result shares storage with an argument or another result
    lazy: bool  # a result has a lazy conjugate or negative bit
    device: Device | None = None  # of the tensors for which tensors on the meta device stand

    @property
    def new(self) -> bool:
        """Whether a returned tensor is not one of the arguments."""
        return any(id(x) not in self.arguments for x in tensors_in(self.result, torch.Tensor))

    @functools.cached_property
    def specs(self) -> Any:
        """The result of the meta: tuples of specs, None for other values than tensors."""
        return _specs_of(self.result, self.device)


class _EffectObserver(TorchDispatchMode):
    """Records which arguments the aten operations write to, and whether they draw random numbers."""

    def __init__(self, arguments: list[torch.Tensor]):
        super().__init__()
        self.storages = {storage_key(x): i for i, x in enumerate(arguments)}
        self.written: set[int] = set()
        self.random = False

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        self.random = self.random or torch.Tag.nondeterministic_seeded in func.tags
        if func._schema.is_mutable:
            for i, a in enumerate(func._schema.arguments):
                if a.alias_info is not None and a.alias_info.is_write:
                    value = args[i] if i < len(args) else kwargs.get(a.name)
                    self.written.update(n for x in tensors_in(value, torch.Tensor) if (n := self.storages.get(storage_key(x))) is not None)
        return func(*args, **kwargs)


class _VersionObserver:
    """Records the same of real tensors on the CPU from their versions and the generator: a dispatch mode imports torch's compiler."""

    def __init__(self, arguments: list[torch.Tensor]):
        self.arguments, self.written, self.random = arguments, set[int](), False

    def __enter__(self) -> _VersionObserver:
        self.versions, self.state = [x._version for x in self.arguments], torch.get_rng_state()
        return self

    def __exit__(self, *error: Any) -> None:
        self.written = {i for i, (x, version) in enumerate(zip(self.arguments, self.versions)) if x._version != version}
        self.random = not torch.equal(self.state, torch.get_rng_state())


def run_on_fakes(run: Callable, func: Callable, args: tuple, kwargs: dict) -> FakeRun:
    """Call `run`, which is `func` in one of its modes, on fake tensors with the specs in its arguments.

    Raises its errors as Dovetail's, of the same type.
    """
    if _prefers_real(func, args, kwargs) and (known := _run_without_fakes(run, func, args, kwargs)) is not None:
        return known
    if not has_sizes((args, kwargs)):
        return _run_on_numbers(run, func, args, kwargs)
    known = _run_on_sizes(run, func, args, kwargs)
    if known is not None and (known := _fitted(known, run, func, args, kwargs)) is not None:
        return known
    try:
        known = _run_on_numbers(run, func, *tree_map(partial(_with_ints, hint_of), (args, kwargs)))
    except ValueDependent:
        raise  # whatever the sizes are
    except Exception:
        tree_map(partial(_with_ints, int), (args, kwargs))  # pins them: the program may handle the error
        raise
    tree_map(partial(_with_ints, int), (args, kwargs))
    return known


def run_on_hints(run: Callable, func: Callable, args: tuple, kwargs: dict) -> FakeRun:
    """Call `run` as run_on_fakes does, with the sizes of the call that is traced: it pins none."""
    args, kwargs = tree_map(partial(_with_ints, hint_of), (args, kwargs))
    if _prefers_real(func, args, kwargs) and (known := _run_without_fakes(run, func, args, kwargs)) is not None:
        return known
    return _run_on_numbers(run, func, args, kwargs)


def _run_on_numbers(run: Callable, func: Callable, args: tuple, kwargs: dict) -> FakeRun:
    """Run torch's rules on fake tensors of sizes that are plain ints."""
    quiet, _log.disabled = _log.disabled, True  # fake tensors log every error of a bad call
    try:
        with _fake_mode(func in NAMED), no_torch_function(), torch.no_grad():
            return _observe(run, func, args, kwargs)
    except DovetailError:
        raise
    except Exception as error:
        translated = _translate_error(error, func)
        if func in NAMED and func not in STAND_INS and isinstance(translated, InputError):  # it may read values, as NumPy does
            translated = type(translated)(f"{translated}; it ran on fake tensors, which have no values: pass dovetail.opaque a meta= that needs none")
        raise translated from error
    finally:
        _log.disabled = quiet


_WITHOUT_FAKES: ContextVar[bool] = ContextVar("without_fakes", default=False)


@contextmanager
def without_fakes() -> Iterator[None]:
    """Run opaque calls on real tensors while open, where that gives a result: fake tensors import torch's compiler, which takes a second.

    Which arguments are written and whether numbers are drawn is known on the CPU alone; its random state is put back.
    """
    token = _WITHOUT_FAKES.set(True)
    try:
        yield
    finally:
        _WITHOUT_FAKES.reset(token)


def _prefers_real(func: Callable, args: tuple, kwargs: dict) -> bool:
    """Return whether a run on real tensors comes first: where that is requested, and in place of the first one on fake tensors."""
    if _WITHOUT_FAKES.get():
        return True
    if not _fake_mode.cache_info().currsize:
        return _is_by_shape(func, args, kwargs)
    return name_of(func).startswith("torch.fft.") and not _fakes_lie_as_real() and _is_by_shape(func, args, kwargs, most=math.inf)


@functools.cache
def _fakes_lie_as_real() -> bool:
    """Return whether fake results of torch.fft have the strides of real ones: not in torch 2.10."""

    def strides() -> tuple[int, ...]:
        return torch.fft.rfft(torch.zeros(2, 3, 4, device="cpu"), dim=1).stride()

    with no_torch_function(), torch.no_grad():
        with _fake_mode(False):
            fakes = strides()
        return fakes == strides()


def _is_by_shape(func: Callable, args: tuple, kwargs: dict, most: float = _SMALL) -> bool:
    """Return whether a run of a function on real tensors tells as much as one on fake tensors, in little time: on `most` elements."""
    if has_sizes((args, kwargs)):
        return False
    name = name_of(func)
    if name == _BY_RANK or not (name.startswith(_FAMILIES) or (name.startswith("torch.") and name.rpartition(".")[2] in BY_SHAPE)):
        return False
    tensors = tensors_in((args, kwargs), TensorSpec)
    devices = {x.device.type for x in tensors} or {torch.device(kwargs.get("device") or torch.get_default_device()).type}
    draws = any([isinstance(x, torch.Generator) for x in leaves((args, kwargs))])  # from a generator that a run would advance
    return devices == {"cpu"} and not draws and 0 not in {x.numel for x in tensors} and sum([x.numel for x in tensors]) <= most


def _run_without_fakes(run: Callable, func: Callable, args: tuple, kwargs: dict) -> FakeRun | None:
    """Run a callable on real tensors, or in `without_fakes` on those of the meta device where values do not fit; return None where neither works."""
    devices, state = {x.device for x in tensors_in((args, kwargs), TensorSpec)}, torch.get_rng_state()
    try:
        for device in (None, *devices) if len(devices) == 1 and _WITHOUT_FAKES.get() else (None,):
            try:
                with no_torch_function(), torch.no_grad():
                    return _observe(run, func, args, kwargs, device, make=_real, observer=_VersionObserver)
            except Exception:  # the call itself may be at fault, which a run on fake tensors reports
                continue
        return None
    finally:
        torch.set_rng_state(state)


def _real(spec: TensorSpec) -> torch.Tensor:
    """Return a tensor with this spec: zeros, which are valid positions, or positive numbers of which no matrix is singular."""
    span = 1 + sum([step * (size - 1) for step, size in zip(spec.steps, spec.shape)]) if 0 not in spec.shape else 0
    values = torch.rand(span, generator=torch.Generator().manual_seed(1)) if spec.dtype.inexact else torch.zeros(span)
    return values.to(TO_TORCH[spec.dtype]).to(torch_device(spec.device)).as_strided(spec.shape, spec.steps)


def _run_on_sizes(run: Callable, func: Callable, args: tuple, kwargs: dict) -> FakeRun | None:
    """Run torch's rules on tensors of sizes that are known when the program runs; return None where a rule needs the numbers."""
    devices = {x.device for x in tensors_in((args, kwargs), TensorSpec)}
    if not devices and func in FACTORIES:
        devices, kwargs = {device_of(kwargs.get("device") or torch.get_default_device())}, {**kwargs, "device": "meta"}
    if len(devices) != 1:
        return None
    device = devices.pop()
    args, kwargs = tree_map(partial(_on_meta, torch_device(device)), (args, kwargs))
    try:
        with shape_rules(), no_torch_function(), torch.no_grad():
            return _observe(run, func, args, kwargs, device)
    except Exception:  # the call itself may be at fault, which a run on the numbers reports
        return None


def _fitted(known: FakeRun, run: Callable, func: Callable, args: tuple, kwargs: dict) -> FakeRun | None:
    """Return a run of a rule for sizes with the layouts of this call, None where it does not give its shapes: that of torch 2.10 for an LSTM.

    The rules for torch.fft, with sizes that are no numbers, take every input as row-major.
    """
    try:
        numbers = run_on_hints(run, func, args, kwargs)
    except Exception:  # what has a rule for sizes alone
        return known
    real = tensors_in(numbers.specs, TensorSpec)
    if func is torch.embedding_bag:
        known.specs = _bags(known.specs, real)
    here = [_with_ints(hint_of, spec) for spec in tensors_in(known.specs, TensorSpec)]
    if [spec.shape for spec in here] != [spec.shape for spec in real]:
        return None
    moved = [normal_strides(a.shape, a.steps) != b.strides for a, b in zip(here, real, strict=True)]
    if not all([spec.is_dense for spec, differs in zip(real, moved, strict=True) if differs]):
        return None
    layouts = iter(zip(real, moved, strict=True))

    def laid_out_as_real(spec: Any) -> Any:
        like, differs = next(layouts) if isinstance(spec, TensorSpec) else (None, False)
        return laid_out(spec, like.order) if differs else spec

    if any(moved):
        known.specs = tree_map(laid_out_as_real, known.specs)
    return known


def _bags(specs: tuple, real: list[TensorSpec]) -> tuple:
    """Return the results of embedding_bag as on the CPU, which keeps other sizes for its backward than on the meta device."""
    out, bag_of_index, sizes, largest = specs
    bags, offsets = out.shape[:1], sizes.shape  # which are one more with `include_last_offset`
    rows = [bags if spec.shape == real[0].shape[:1] else offsets for spec in real[2:]]
    largest = replace(largest, shape=rows[1]) if len(real[3].shape) == 1 else largest
    return out, real[1] if 0 in real[1].shape else bag_of_index, replace(sizes, shape=rows[0]), largest


def _with_ints(of: Callable[[Any], int], x: Any) -> Any:
    """Return an argument with what `of` returns for its sizes."""
    if isinstance(x, TensorSpec):
        return replace(x, shape=tuple(map(of, x.shape)), strides=None if x.strides is None else tuple(map(of, x.strides)))
    return of(x) if type(x) is Size else x


def _on_meta(device: torch.device, x: Any) -> Any:
    """Return an argument for tensors of the meta device, which stand for those on `device`: without a generator, which would be of another."""
    if isinstance(x, torch.Generator):
        return None
    return torch.device("meta") if isinstance(x, torch.device) and x == device else x


def _empty(spec: TensorSpec) -> torch.Tensor:
    return torch.empty_strided(spec.shape, spec.steps, dtype=TO_TORCH[spec.dtype], device=torch_device(spec.device))


def _observe(
    run: Callable,
    func: Callable,
    args: tuple,
    kwargs: dict,
    device: Device | None = None,
    make: Callable[[TensorSpec], torch.Tensor] = _empty,
    observer: Callable[[list[torch.Tensor]], Any] = _EffectObserver,
) -> FakeRun:
    """Run a callable on tensors from `make`, or on tensors of the meta device that stand for tensors on `device` where there is one."""
    fakes, of_torch = list[torch.Tensor](), name_of(func).startswith("torch.")

    def fake(x: Any) -> Any:
        if isinstance(x, NumberSpec):
            why = not_traced(func, "one of its arguments is a number that the program computes; pass a constant or the 0-d tensor")
            raise ValueDependent(str(why))
        if isinstance(x, torch.Generator) and of_torch:  # some of its rules take none
            return None
        if not isinstance(x, TensorSpec):
            return symbolic(x) if type(x) is Size else x
        fakes.append(meta_tensor(x) if device is not None else make(x))
        return fakes[-1]

    args, kwargs = tree_map(fake, (args, kwargs))
    with observer(fakes) as effects:
        result = run(*args, **kwargs)
    storages = {storage_key(x) for x in fakes}
    aliased = lazy = False
    for x in tensors_in(result, torch.Tensor):
        if x.layout is not torch.strided or x.is_quantized:
            raise not_traced(func, "it returns a tensor that is not strided; call it outside the compiled function")
        aliased, lazy = aliased or storage_key(x) in storages, lazy or x.is_conj() or x.is_neg()
        storages.add(storage_key(x))
    return FakeRun(result, {id(x): i for i, x in enumerate(fakes)}, fakes, effects.random, tuple(sorted(effects.written)), aliased, lazy, device)


@functools.cache
def _fake_mode(of_user: bool) -> Any:
    """Return a mode with fake tensors; functions of users may read tensors that are not passed to them, such as parameters of a module."""
    return fake_tensor_mode(allow_non_fake_inputs=of_user)  # the first one takes a second of imports


def _translate_error(error: Exception, func: Callable) -> Exception:
    """Return an error of a run on fake tensors as the user should see it."""
    kind = type(error).__name__
    if kind in _VALUES_DECIDE:
        return ValueDependent(str(not_traced(func, "its result depends on the values of a tensor; call it outside the compiled function")))
    if kind == "UnsupportedOperatorException" or any(part in str(error) for part in _NO_RULE):
        error = not_traced(func, "the shapes of its results are unknown; register them with torch.library.register_fake")
        schema = getattr(func, "_schema", None)
        return error if schema is None or schema.is_mutable else ValueDependent(str(error))
    if isinstance(error, AssertionError):
        return InputRuntimeError(str(error))  # some of torch's fake-tensor rules raise this where its kernels raise RuntimeError
    raised = next((base for base in _RAISED if isinstance(error, base)), None)
    return error if raised is None else _RAISED[raised](str(error).replace("FakeTensor", "Tensor"))


def _specs_of(result: Any, device: Device | None) -> Any:
    if isinstance(result, torch.Tensor):
        shape, strides = tuple(map(size_in, result.shape)), tuple(map(size_in, result.stride()))
        return TensorSpec(shape, dtype_of(result.dtype), device or device_of(result.device), normal_strides(shape, strides))
    if isinstance(result, (tuple, list)) and tensors_in(result, torch.Tensor):
        return tuple(_specs_of(x, device) for x in result)
    return None


def tensors_in(nest: Any, kind: type) -> list[Any]:
    return [x for x in leaves(nest) if isinstance(x, kind)]

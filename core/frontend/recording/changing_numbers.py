"""Numbers from outside that change between calls, as learning rates and running sums: inputs of the program, which are Python numbers to it."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch

from dovetail import dtypes, prims
from dovetail.dtypes import DType
from dovetail.frontend.guards.conditions import Answer, Computed, Condition
from dovetail.prims import recorder
from dovetail.torch_internals import CLAMP_BY_NUMBERS
from dovetail.trace import BoundSymbol, NumberProxy, Proxy, TensorProxy, Trace, leaves, tree_map

if TYPE_CHECKING:
    from dovetail.frontend.guards.source import Source
    from dovetail.frontend.guards.symbolic_sizes import SymbolicSizes
    from dovetail.frontend.interpreter.tracking.tracker import Tracker
    from dovetail.prims import Symbol

_CPU = torch.device("cpu")
_SCALING = frozenset({"add", "sub", "mul", "div", "rdiv", "addcmul", "addcdiv"})  # operations that take a tensor for the number
_CLAMPS = frozenset({"clamp", "clamp_min", "clamp_max", "clip"})
_ALIKE = frozenset({"lerp", *_CLAMPS})  # and those that take one of the dtype of the others
_LONGEST = 64  # operations in a question about changing numbers that is guarded by its answer
_COMPUTED: dict[str, Callable] = {"neg": operator.neg, "add": operator.add, "sub": operator.sub, "mul": operator.mul}


class NumberInput:
    """How the tensor for a number is created at each call; the key of its source."""

    def __init__(self, dtype: torch.dtype):
        self.dtype = dtype

    def convert(self, value: float) -> torch.Tensor:
        """Return the tensor; raise ValueError for an int that fits into none."""
        try:
            return torch.scalar_tensor(value, dtype=self.dtype, device=_CPU)  # less than half the time of torch.tensor
        except (RuntimeError, OverflowError):
            raise ValueError(f"{value} is not within 64 bits") from None


@cache
def number_input(kind: type) -> NumberInput | None:
    """Return how the tensor for a number of a type is created; None where numbers of that type are no inputs, as ints of NumPy's, which are sizes."""
    if kind in (float, int):
        return NumberInput(torch.float64 if kind is float else torch.int64)
    dtype = getattr(torch, kind.__name__, None)
    return NumberInput(dtype) if dtype in (torch.float64, torch.float32, torch.float16) else None


class ChangingNumbers:
    """Maps the changing floats of a program, and numbers computed of them, to tensors without dimensions.

    Operations that scale a tensor read these instead, which executors fuse: they take no numbers that the program computes.  Between decisions
    they do not: a number there is another one for each path that joins.
    """

    def __init__(self, trace: Trace, sizes: SymbolicSizes | None):
        self.trace, self.sizes = trace, sizes
        self.numbers: dict[Source, NumberProxy] = {}
        self.scalars: dict[Source, Proxy] = {}  # what the program sees for numbers of NumPy's
        self.read: dict[NumberProxy, tuple[Source, float]] = {}  # where each of them is read, and its value in this call
        self.tensors: dict[Proxy, TensorProxy | None] = {}  # None for a number that is computed in another way
        self.lengths: dict[Proxy, float] = {}  # how many operations compute a number of changing ones

    def add(self, source: Source, tensor: TensorProxy, value: float) -> None:
        number = self.numbers[source] = tensor.item()
        self.read[number] = source, value
        self.tensors[number] = tensor if tensor.spec.dtype is dtypes.float64 else None  # arithmetic of ints would overflow in tensors

    def computes(self, number: NumberProxy) -> bool:
        """Return whether a number is a changing one, or computed of such alone."""
        return self._length(number) < math.inf

    def _arithmetic(self, number: NumberProxy) -> BoundSymbol | None:
        """Return the line that computes a number of others; None for one that none does."""
        traces = dict.fromkeys([self.trace, recorder.get()])  # and that of a pass, as of gradients
        lines = chain.from_iterable([each for trace in traces if isinstance(trace, Trace) for each in (*trace.enclosing, trace.lines)])
        return next((line for line in lines if line.out is number and line.symbol is prims.arithmetic), None)

    def answer(self, tracker: Tracker, ask: Callable, operands: Sequence[Any], form: str) -> int | None:
        """Return what `ask` returns for numbers in this call, and guard it; `form` is the question as text.

        None where that is neither a bool nor an int, and where the numbers are computed of others than changing ones, of several, or at length.
        """
        if not self.read or not all([type(x) in (bool, int, float) or (type(x) is NumberProxy and self._length(x) <= _LONGEST) for x in operands]):
            return None
        condition = Condition(ask, tuple([self._computation(x) if type(x) is NumberProxy else x for x in operands]), form)
        if not 1 <= len(condition.sources) <= 2:
            return None
        values = dict(self.read.values())
        read = [values[source] for source in condition.sources]
        if not all([isinstance(x, (int, float)) for x in read]):
            return None  # NumPy computes with narrower floats in their own dtype
        answer = condition.answer(*read)
        if type(answer).__module__ == "numpy":  # of a np.float64
            answer = answer.item()
        if type(answer) not in (bool, int):
            return None
        tracker.guard("condition", condition.sources[0], Answer(condition, answer))
        return answer

    def _length(self, x: Any) -> float:
        """Return how many operations compute a number of changing ones; infinity where it is not computed of such alone."""
        if type(x) is not NumberProxy or x in self.read:
            return 0
        if x not in self.lengths:
            line = self._arithmetic(x)
            self.lengths[x] = math.inf if line is None else 1 + sum(map(self._length, line.args))
        return self.lengths[x]

    def _computation(self, x: Any) -> Any:
        """Return how a number is computed of what is read: the source of one that is read itself."""
        if x in self.read:
            return self.read[x][0]
        line = self._arithmetic(x)
        return Computed(line.kwargs["op"], tuple([self._computation(y) if type(y) is NumberProxy else y for y in line.args]))

    def operands(self, symbol: Symbol, tree: Any) -> Any:
        """Return the arguments of an operation with tensors for such numbers, where the result has the same dtype."""
        name = symbol.name.removesuffix("_")
        if recorder.get() is not self.trace or (name not in _SCALING and name not in _ALIKE):
            return tree
        tensors = [x for x in leaves(tree) if isinstance(x, TensorProxy)]
        if not all(map(_decides_dtype, tensors)):
            return tree
        if name in _CLAMPS and CLAMP_BY_NUMBERS.convention != "closed" and any([x.spec.requires_grad for x in tensors]):
            return tree  # at a bound that is a tensor the gradient is another
        if name in _SCALING:
            return tree_map(self._operand, tree)
        kinds = {x.spec.dtype for x in tensors}
        return tree_map(lambda x: self._like(x, *kinds), tree) if len(kinds) == 1 else tree

    def _like(self, x: Any, dtype: DType) -> Any:
        operand = self._operand(x)
        return operand if operand is x or operand.spec.dtype is dtype else prims.convert_element_type(operand, dtype=dtype)

    def _operand(self, x: Any) -> Any:
        tensor = self._tensor(x) if type(x) is NumberProxy else None
        return x if tensor is None else tensor

    def _tensor(self, number: NumberProxy) -> TensorProxy | None:
        """Return the tensor for a changing float, or for a number that is computed of such; None for others."""
        if number not in self.tensors:
            line = self._arithmetic(number)
            self.tensors[number] = None if line is None or line.kwargs["op"] not in _COMPUTED else self._computed(line.args, line.kwargs["op"])
        return self.tensors[number]

    def _computed(self, numbers: tuple, op: str) -> TensorProxy | None:
        operands = [self._operand(x) for x in numbers]
        return None if any([type(x) is NumberProxy for x in operands]) else _COMPUTED[op](*operands)


def _decides_dtype(x: TensorProxy) -> bool:
    """Return whether an operation with a float computes the same as one with a float64 tensor without dimensions.

    Narrow dtypes do not: PyTorch computes with the float in float32, and rounds the result alone.
    """
    return x.spec.dtype is dtypes.float64 or (x.spec.dtype is dtypes.float32 and bool(x.spec.shape))

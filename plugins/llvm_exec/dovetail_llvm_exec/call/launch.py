"""Kernels as Python functions of tensors.

The quick way is a builtin function (`trampoline`) that reads tensors where they lie; it is taken when a probe finds them where they are
expected.  The slow way asks torch for addresses and calls through ctypes, and is right everywhere.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch

from dovetail.dtypes import DType, uint8
from dovetail.extend.advanced import POOL, torch_internals
from dovetail.langs.torch import TO_TORCH
from dovetail_llvm_exec.call import shapes, threads
from dovetail_llvm_exec.call.builtin import compiled
from dovetail_llvm_exec.call.driver import DrivenKernel
from dovetail_llvm_exec.call.shapes import HEAD, PARTS, Place, Recipe
from dovetail_llvm_exec.call.trampoline import Launch, SizedLaunch
from dovetail_llvm_exec.ir import jit

RELEASED = 20_000.0  # nanoseconds of work for which other Python threads get to run
LARGE = 16 << 20  # bytes from which outputs are taken from the pool: what is smaller, the allocator keeps for the next call
MANY = 4  # calls with large results after which a kernel of many sizes is compiled for them
ROOM = -1  # as the workspace of a kernel: the last tensor that it is given is that


class IndexOutOfBounds(IndexError, RuntimeError):
    """A position that no element has: an IndexError in eager's losses, a RuntimeError in `gather` and `scatter`."""


MESSAGES = {
    1: (IndexError, "index out of range in self"),
    2: (RuntimeError, "ZeroDivisionError"),
    4: (IndexOutOfBounds, "index out of bounds: an index is negative, or not below the size of the dimension that it counts in"),
}
SCALAR_TYPES = {
    **{torch.uint8: 0, torch.int8: 1, torch.int16: 2, torch.int32: 3, torch.int64: 4, torch.float16: 5, torch.float32: 6, torch.float64: 7},
    **{torch.bool: 11, torch.bfloat16: 15},
}


class Output(NamedTuple):
    """A tensor that a kernel makes."""

    shape: tuple[int, ...]
    steps: tuple[int, ...]
    dtype: DType

    @property
    def bytes(self) -> int:
        """How much memory it takes."""
        total = self.dtype.bytes
        for n in self.shape:
            total *= n
        return total


class Bound(NamedTuple):
    """A compiled kernel and what a call of it needs."""

    kernel: DrivenKernel
    inputs: int
    outputs: tuple[Output, ...]
    workspace: int
    cost: float
    parallel: bool
    places: tuple[Place, ...] = ()
    recipe: Recipe | None = None  # of a kernel of many sizes
    streaming: Callable[[], Bound | None] | None = None  # compiles it for large results, if it is not


class Payload(bytes):
    """The `self` of a builtin function; `remake` gives (function, arguments) that make an object with an equal builtin, in another process."""

    remake: Callable[[], tuple] | None = None

    def __reduce__(self) -> Any:
        if self.remake is None:
            raise TypeError("a kernel is pickled with the region that it was made from, and this one is not known to any")
        return self.remake()


def failed(status: int) -> None:
    """Raise what a kernel's status says."""
    kind, words = next((MESSAGES[bit] for bit in MESSAGES if status & bit), (RuntimeError, f"kernel status {status}"))
    raise kind(words)


def function(bound: Bound) -> Callable[..., tuple]:
    """Return a function of the input tensors that gives the tuple of the outputs."""
    if bound.places:
        return _sized_builtin(bound)
    if bound.workspace >= LARGE or any(out.bytes >= LARGE for out in bound.outputs):
        return _pooled(bound)
    return _builtin(bound, bound.inputs, bound.outputs) or _slow(bound)


def _pooled(bound: Bound) -> Callable[..., tuple]:
    """Return a function that allocates the outputs, the large ones from the pool, and passes them to the kernel."""
    into, makers = filler(bound), [maker(out) for out in bound.outputs]
    if len(makers) == 1:
        (make,) = makers

        def one(*inputs: torch.Tensor) -> tuple:
            out = make()
            into(*inputs, out)
            return (out,)

        return one

    def several(*inputs: torch.Tensor) -> tuple:
        outs = [make() for make in makers]
        into(*inputs, *outs)
        return tuple(outs)

    return several


def filler(bound: Bound) -> Callable[..., tuple]:
    """Return a function of the inputs and then the outputs, which it fills; a large workspace is from the pool, too."""
    size, tensors = bound.workspace, bound.inputs + len(bound.outputs)
    if size >= LARGE and (roomy := _builtin(bound._replace(workspace=ROOM), tensors + 1, ())) is not None:
        return lambda *tensors: roomy(*tensors, POOL.empty((size,), (1,), torch.uint8, size))
    return _builtin(bound, bound.inputs + len(bound.outputs), ()) or _into(bound)


def maker(out: Output) -> Callable[[], torch.Tensor]:
    """Return what makes an output, a large one from the pool."""
    dtype = TO_TORCH[out.dtype]
    if out.bytes >= LARGE:
        return lambda: POOL.empty(out.shape, out.steps, dtype, out.bytes)
    return lambda: torch.empty_strided(out.shape, out.steps, dtype=dtype)


# --- the slow way


def runner(kernel: DrivenKernel) -> Callable[[Any, int], None]:
    """Return a kernel as a function of an array of words and of the number of threads."""
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)(kernel.address)
    return lambda args, threads: run(ctypes.addressof(args), threads, kernel.table)


def _into(bound: Bound) -> Callable[..., tuple]:
    """Return a function of inputs and outputs, through ctypes."""
    run = runner(bound.kernel)
    words = ctypes.c_int64 * (2 + bound.inputs + len(bound.outputs) + (bound.workspace == ROOM))

    def into(*tensors: torch.Tensor) -> tuple:
        room = tensors[-1] if bound.workspace == ROOM else torch.empty(bound.workspace + 63, dtype=torch.uint8) if bound.workspace else None
        place = 0 if room is None else -(-room.data_ptr() // 64) * 64
        held = [_resolved(x) if x.is_neg() or torch_internals.is_zero_tensor(x) else x for x in tensors]
        args = words(0, place, *[x.data_ptr() for x in held])
        run(args, torch.get_num_threads() if bound.parallel and not threads.ALONE.value else 1)
        if args[0]:
            failed(args[0])
        return ()

    into.kernel = bound.kernel
    return into


def _resolved(x: torch.Tensor) -> torch.Tensor:
    """Return what `x` stands for, laid out as `x` is: kernels know its strides."""
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype).copy_(x)


def _slow(bound: Bound) -> Callable[..., tuple]:
    into = _into(bound)
    layouts = [(out.shape, out.steps, TO_TORCH[out.dtype]) for out in bound.outputs]

    def slow(*inputs: torch.Tensor) -> tuple:
        outs = tuple([torch.empty_strided(shape, steps, dtype=dtype) for shape, steps, dtype in layouts])
        into(*inputs, *outs)
        return outs

    return slow


# --- the quick way


def _builtin(bound: Bound, inputs: int, outputs: Sequence[Output]) -> Callable[..., tuple] | None:
    """Return the builtin function of `inputs` tensors that makes `outputs`; None where tensors do not lie as expected."""
    launcher = compiled(Launch)
    if launcher is None:
        return None
    slow = _slow(bound) if outputs or not bound.outputs else _into(bound)
    workspace = bound.workspace + 64 * (bound.workspace > 0)
    alone = ctypes.addressof(threads.ALONE)
    words = {"kernel": bound.kernel.address, "table": bound.kernel.table, "inputs": inputs, "outputs": len(outputs), "workspace": workspace}
    words |= {"release": bound.cost >= RELEASED, "parallel": bound.parallel, "alone": alone, "tensor": id(torch.Tensor)}
    words |= {"parameter": id(torch.nn.Parameter), "slow": id(slow), "failed": id(failed), "offset": launcher.offset}
    rows = [n for out in outputs for n in (len(out.shape), SCALAR_TYPES[TO_TORCH[out.dtype]], *out.shape, *out.steps)]
    packed = [int(words[name]) for name in Launch.fields] + rows
    payload = Payload(struct.pack(f"{len(packed)}q", *packed))
    return launcher.function(payload, (bound.kernel, slow))


# --- kernels of many sizes


def _sized_builtin(bound: Bound) -> Callable[..., tuple]:
    """Return the builtin function of a kernel of many sizes; what it leaves to the slow way is right everywhere."""
    slow, launcher = _sized_slow(bound), compiled(SizedLaunch)
    if launcher is None:
        return slow
    words = {
        "kernel": bound.kernel.address,
        "table": bound.kernel.table,
        "inputs": bound.inputs,
        "outputs": len(bound.outputs),
        "workspace": 0,
        "release": int(RELEASED * PARTS),
    }
    words |= {"parallel": bound.parallel, "alone": ctypes.addressof(threads.ALONE), "tensor": id(torch.Tensor)}
    words |= {"parameter": id(torch.nn.Parameter), "slow": id(slow), "failed": id(failed), "offset": launcher.offset}
    words |= {"places": len(bound.places), "computed": bound.recipe.computed, "shapes": _shapes().address}
    words |= {"row_words": bound.recipe.rows, "large": LARGE}
    rows = [*[n for place in bound.places for n in place[1:]], *bound.recipe.words]
    packed = [int(words[name]) for name in SizedLaunch.fields] + rows
    payload = Payload(struct.pack(f"{len(packed)}q", *packed))
    return launcher.function(payload, (bound.kernel, slow)) or slow


def _sized_slow(bound: Bound) -> Callable[..., tuple]:
    """Return the function of a kernel of many sizes through ctypes; large tensors are from the pool.

    A kernel that was compiled for small results is compiled again for large ones, when there have been some of them.
    """
    run, recipe = runner(bound.kernel), bound.recipe
    compute = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, ctypes.c_int64)(_shapes().address)
    first = 2 + bound.inputs + len(bound.outputs)
    words, row_words = ctypes.c_int64 * (first + len(bound.places) + recipe.computed), ctypes.c_int64 * recipe.rows
    recipe_words = (ctypes.c_int64 * len(recipe.words))(*recipe.words)
    large_calls, streaming = 0, None

    def slow(*inputs: Any) -> tuple:
        nonlocal large_calls, streaming
        args, rows = words(), row_words()
        args[first : first + len(bound.places)] = [place.read(inputs) for place in bound.places]
        compute(ctypes.addressof(args), ctypes.addressof(recipe_words), ctypes.addressof(rows), recipe.rows)
        if bound.streaming is not None and rows[2] >= LARGE:
            large_calls += 1
            if large_calls == MANY and (larger := bound.streaming()) is not None:
                streaming = _sized_slow(larger)
            if streaming is not None:
                return streaming(*inputs)
        outs, at = [], HEAD
        for out in bound.outputs:
            rank = rows[at]
            outs.append(_empty(tuple(rows[at + 2 : at + 2 + rank]), tuple(rows[at + 2 + rank : at + 2 + 2 * rank]), out.dtype))
            at += 2 + 2 * rank
        room = _empty((rows[0],), (1,), uint8) if rows[0] else None
        held = [_resolved(x) if x.is_neg() or torch_internals.is_zero_tensor(x) else x for x in (*inputs[: bound.inputs], *outs)]
        args[:first] = [0, 0 if room is None else -(-room.data_ptr() // 64) * 64, *[x.data_ptr() for x in held]]
        run(args, torch.get_num_threads() if bound.parallel and not threads.ALONE.value else 1)
        if args[0]:
            failed(args[0])
        return tuple(outs)

    slow.kernel = bound.kernel
    return slow


@cache
def _shapes() -> jit.Kernel:
    """Return the function that computes the sizes of a call."""
    compiler = jit.compiler()
    return compiler.compile(shapes.written(compiler.target), shapes.NAME)


def _empty(shape: tuple[int, ...], steps: tuple[int, ...], dtype: DType) -> torch.Tensor:
    """Return new memory, from the pool where it is large."""
    return maker(Output(shape, steps, dtype))()

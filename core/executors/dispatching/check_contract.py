"""The run-time contract: what an executor returns is what the operation promises, and it leaves its arguments alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from dovetail.executors.discovery.plugin_errors import BY_NAME, ContractError, call, named, way_out
from dovetail.executors.dispatching.same_bytes import same_bytes
from dovetail.langs.torch import spec_of
from dovetail.prims import TensorSpec
from dovetail.prims.sizes import is_symbolic
from dovetail.torch_internals import is_zero_tensor
from dovetail.trace import BoundSymbol, Proxy, TensorProxy, Trace, leaves, proxies
from dovetail.trace.aliases import root_of, view_bases
from dovetail.trace.passes.overlap import WAITS

NUMBERS = {"bool": bool, "int": int, "float": float, "complex": complex}


def checked(trace: Trace) -> Trace:
    """Return the trace with each implementation held to its contract as it runs: DOVETAIL_CHECK=1 puts this pass last.

    An error names the executor and the line, and what differs: shape, dtype, device, strides, aliasing, an argument that was written.
    """
    new = trace.derive("check")
    new.lines = [line if line.implementation is None else _checked(line, i) for i, line in enumerate(trace.lines)]
    return new


def _checked(line: BoundSymbol, position: int) -> BoundSymbol:
    implementation = line.implementation

    def run(*args: Any, **kwargs: Any) -> Any:
        before = copies(line, args, kwargs)
        result = implementation.fn(*args, **kwargs)
        if (message := broken(line, args, kwargs, result, before)) is not None:
            raise ContractError(breached(line, message))
        return result

    return line.replace(implementation=replace(implementation, name=f"{implementation.name}_{position}", fn=run, path=None))


def breached(line: BoundSymbol, message: str) -> str:
    """Return the error for a line that broke its contract: `message` says how."""
    ex = BY_NAME.get(line.implementation.executor)
    who = line.implementation.executor if ex is None else named(ex)
    names = ", ".join(p.name for p in line.writes)
    rows = [f"{who} broke the contract of {line.symbol}: {message}", f"in {names + ' = ' if names else ''}{call(line)}"]
    rows += [f"called at {line.where}" if line.where else "", "" if ex is None else way_out(ex)]
    return "\n  ".join(row for row in rows if row)


def tensors(nest: Any) -> list[torch.Tensor]:
    """Return the tensors in nested tuples, lists and dicts."""
    return [x for x in leaves(nest) if isinstance(x, torch.Tensor)]


def copies(line: BoundSymbol, args: tuple, kwargs: dict) -> list[torch.Tensor]:
    """Copy the arguments before the call; nothing where the operation is there to write, or waits for a collective that still writes them."""
    return [] if line.mutates or line.symbol in WAITS else [x.detach().clone() for x in tensors((args, kwargs))]


def broken(line: BoundSymbol, args: tuple, kwargs: dict, result: Any, before: list[torch.Tensor]) -> str | None:
    """Describe how `result` breaks the contract of `line`, as a sentence; None where it does not."""
    arguments = tensors((args, kwargs))
    for x, was in zip(arguments, before, strict=False):
        if not same_bits(x, was):
            name = next((p.name for p, y in zip(proxies((line.args, line.kwargs)), arguments, strict=False) if y is x), "an argument")
            return f"it wrote into its argument {name}, and the operation leaves its arguments as they are"
    pairs = list(paired(line.out, result))
    for expected, got in pairs:
        if (message := _differs(expected, got)) is not None:
            return message
    return None if line.mutates else _aliases(line, pairs, (args, kwargs))


def paired(out: Any, result: Any) -> Iterator[tuple[Any, Any]]:
    """Pair each result of a line with what was returned for it."""
    if issubclass(type(out), (tuple, list)):  # isinstance would also ask a proxy which class it stands for
        if not isinstance(result, (tuple, list)) or len(result) != len(out):
            yield f"a tuple of {len(out)} result{'s' * (len(out) != 1)}", result
            return
        for a, b in zip(out, result, strict=True):
            yield from paired(a, b)
    else:
        yield out, result


def _differs(expected: Any, got: Any) -> str | None:
    """How `got` is not what was promised."""
    if isinstance(expected, TensorProxy):
        return _other_tensor(expected, got)
    if isinstance(expected, Proxy):
        kind = NUMBERS[expected.spec.kind]
        return None if type(got) is kind else f"{expected.name} is {kind.__name__} by its meta, and {type(got).__name__} was returned"
    if isinstance(expected, str):
        returned = f"a {type(got).__name__} of {len(got)}" if isinstance(got, (tuple, list)) else "nothing" if got is None else type(got).__name__
        return f"it returns {expected}, and {returned} was returned"
    return None


def _other_tensor(expected: TensorProxy, got: Any) -> str | None:
    spec, name = expected.spec, expected.name
    if not isinstance(got, torch.Tensor):
        return f'{name} is "{spec}" by its meta, and {type(got).__name__} was returned'
    returned = spec_of(got)
    if returned.dtype is not spec.dtype:
        return f"{name} has dtype {spec.dtype.name.removesuffix('_')} by its meta, and {returned.dtype.name.removesuffix('_')} was returned"
    if is_symbolic((spec.shape, spec.strides)):
        return _other_sizes(name, spec, returned)
    if returned.shape != spec.shape:
        return f"{name} has shape {list(spec.shape)} by its meta, and {list(returned.shape)} was returned"
    if returned.device is not spec.device:
        return f"{name} is on {spec.device} by its meta, and on {returned.device} it was returned"
    if returned.strides != spec.strides:
        return f"{name} has strides {list(spec.steps)} by its meta, and {list(returned.steps)} were returned"
    return None


def _other_sizes(name: str, spec: TensorSpec, returned: TensorSpec) -> str | None:
    """Compare what is known of symbolic sizes: the rank, the sizes that are ints, the device, whether the layout is row-major."""
    fits = len(returned.shape) == len(spec.shape) and all([is_symbolic(n) or n == m for n, m in zip(spec.shape, returned.shape, strict=True)])
    if not fits:
        return f"{name} has shape {list(spec.shape)} by its meta, and {list(returned.shape)} was returned"
    if returned.device is not spec.device:
        return f"{name} is on {spec.device} by its meta, and on {returned.device} it was returned"
    if spec.strides is None and returned.strides is not None:
        return f"{name} is row-major by its meta, and has strides {list(returned.steps)} as it was returned"
    return None


def _aliases(line: BoundSymbol, pairs: list[tuple[Any, Any]], arguments: tuple) -> str | None:
    """A result may share memory with what it is a view of, and with nothing else."""
    bases, inputs, owners = view_bases([line]), {}, {}
    for p, x in zip(leaves((line.args, line.kwargs)), leaves(arguments), strict=False):
        if isinstance(p, Proxy) and isinstance(x, torch.Tensor) and x.numel() and not is_zero_tensor(x):
            inputs.setdefault(_memory(x), []).append(p)
    for p, x in pairs:
        if not isinstance(p, Proxy) or not isinstance(x, torch.Tensor) or not x.numel() or is_zero_tensor(x):
            continue
        at, root = _memory(x), root_of(p, bases)
        if at in inputs:
            if root not in set(inputs[at]):
                return f"{p.name} shares memory with its argument {inputs[at][0].name}, and by its meta it is no view of that"
            continue
        name, owner = owners.setdefault(at, (p.name, root))
        if owner is not root:
            return f"{p.name} shares memory with the result {name}, and by its meta they are two"
    return None


def _memory(x: torch.Tensor) -> int:
    return x.untyped_storage().data_ptr()


def same_bits(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Return whether two tensors of one shape and dtype hold the same bits; NaN is NaN."""
    if same_bytes(x, y) or torch.equal(x, y):
        return True
    a, b = (torch.view_as_real(t.resolve_conj()) if t.is_complex() else t for t in (x.detach(), y.detach()))
    return a.is_floating_point() and bool(torch.equal(a.isnan(), b.isnan()) and torch.equal(a.nan_to_num(), b.nan_to_num()))

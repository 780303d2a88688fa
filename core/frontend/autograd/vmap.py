"""torch.func.vmap inside a traced function: the function is recorded for one example, and its program becomes that of a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from dovetail import prims
from dovetail.errors import EagerCall, Unsupported, require
from dovetail.frontend import trees
from dovetail.frontend.autograd.batching import Batching, example_spec, in_prims
from dovetail.frontend.autograd.inner_function import pure, record
from dovetail.prims import recorder
from dovetail.prims.batching import Batch, move, spread
from dovetail.trace import BoundSymbol, Proxy, TensorProxy, Trace, user_line
from dovetail.trace.ir import draws

RANDOMNESS = ("error", "different", "same")
Dims = Any  # an int, None, or a nest of them


def vmap(func: Callable, in_dims: Dims = 0, out_dims: Dims = 0, randomness: str = "error", *, chunk_size: int | None = None) -> Callable[..., Any]:
    """Return torch.func.vmap of a function."""
    require(
        randomness in RANDOMNESS, "Only allowed values for randomness are 'error', 'different', or 'same'. Got {}", randomness, error=RuntimeError
    )
    require(chunk_size is None or chunk_size > 0, "vmap: chunk_size should be None or greater than 0. (got {})", chunk_size, error=ValueError)

    def batched(*args: Any, **kwargs: Any) -> Any:
        return Vmap(func, in_dims, out_dims, randomness, chunk_size)(args, kwargs)

    return batched


class Vmap:
    """One call of a batched function."""

    def __init__(self, func: Callable, in_dims: Dims, out_dims: Dims, randomness: str, chunk_size: int | None):
        self.func, self.in_dims, self.out_dims, self.randomness, self.chunk_size = func, in_dims, out_dims, randomness, chunk_size
        self.name = getattr(func, "__name__", None) or repr(func)

    def __call__(self, args: tuple, kwargs: dict[str, Any]) -> Any:
        flat, tree, dims = self.inputs(args)
        sizes = [x.spec.shape[d] for x, d in zip(flat, dims, strict=True) if d is not None]
        message = "vmap: Expected all tensors to have the same size in the mapped dimension, got sizes {} for the mapped dimension"
        require(bool(sizes), "vmap: at least one of the arguments has to be mapped, and all in_dims are None", error=ValueError)
        require(all([n == sizes[0] for n in sizes]), message, sizes, error=ValueError)
        if self.chunk_size is not None and self.chunk_size < sizes[0]:
            return self.chunked(flat, tree, dims, int(sizes[0]), kwargs)
        outputs, tree = self.outputs(flat, tree, dims, sizes[0], kwargs)
        return tree.build(outputs)

    def inputs(self, args: tuple) -> tuple[list[Any], trees.Tree, list[int | None]]:
        """Return the leaves of the arguments, their structure, and the dimension of each leaf that counts examples, from 0; None for no such."""
        where = f"vmap({self.name}, in_dims={self.in_dims}, ...)(<inputs>): "
        is_nest = isinstance(self.in_dims, (int, tuple))
        require(is_nest, where + "expected `in_dims` to be int or a tuple of them, got: {}.", type(self.in_dims), error=ValueError)
        require(len(args) > 0, f"vmap({self.name})(<inputs>): got no inputs", error=ValueError)
        flat, tree = trees.flatten(args)
        dims = dims_of_leaves(self.in_dims, args)
        require(dims is not None, where + "in_dims is not compatible with the structure of `inputs`", error=ValueError)
        for i, (x, d) in enumerate(zip(flat, dims, strict=True)):
            require(d is None or isinstance(d, int), where + "Got in_dim={}, expected an integer dimension or None.", d, error=ValueError)
            if d is None:
                continue
            x = flat[i] = _lifted(x)
            require(isinstance(x, TensorProxy), where + "Got in_dim={} for an input of type {}, which is no Tensor", d, type(x), error=ValueError)
            rank = len(x.spec.shape)
            require(-rank <= d < rank, where + "Got in_dim={} for a Tensor of dimensionality {}", d, rank, error=ValueError)
            dims[i] = d % rank
        return flat, tree, dims

    def outputs(self, flat: list[Any], tree: trees.Tree, dims: list[int | None], size: int, kwargs: dict[str, Any]) -> tuple[list[Any], trees.Tree]:
        """Return the leaves of the result for all examples, and their structure."""
        trace: Trace = recorder.get()
        mapped = [i for i, d in enumerate(dims) if d is not None]
        with in_prims(trace):
            batches = [Batch(move(flat[i], dims[i], 0)) for i in mapped]

        def arguments(examples: list[Any]) -> tuple:
            example = dict(zip(mapped, examples, strict=True))
            return tree.build([example.get(i, x) for i, x in enumerate(flat)])

        function = record(self.func, [example_spec(x) for x in batches], arguments, kwargs)
        if self.randomness == "different" and any([dims[i] for i in mapped]) and any(map(_fills_memory, function.trace.lines)):
            raise EagerCall(
                f"vmap draws numbers in the order of memory, with in_dims that are not 0; use movedim and in_dims=0\n  called at {user_line()}"
            )
        program, writes = pure(function.trace)
        batching = Batching(size, dict(zip(program.inputs, batches, strict=True)), self.randomness)
        batching.run(program.lines)
        with in_prims(trace):
            for line in writes:
                prims.copy_(*[spread(x, size) for x in batching.value(line.args)])
        trace.environment.examples.update([p for p, x in batching.env.items() if type(x) is Batch])
        return self.results(program.outputs, function.tree, batching), function.tree

    def results(self, leaves: Sequence[Any], tree: trees.Tree, batching: Batching) -> list[Any]:
        """Return the leaves of the result with the dimension that counts examples where `out_dims` has it."""
        if isinstance(self.out_dims, tuple) and len(self.out_dims) == 1 and tree.build([0] * tree.size) == 0:
            dims = list(self.out_dims)
        else:
            dims = dims_of_leaves(self.out_dims, tree.build(list(leaves)))
        where = f"vmap({self.name}, ..., out_dims={self.out_dims})(<inputs>): "
        require(dims is not None, where + "out_dims is not compatible with the structure of `outputs`", error=ValueError)
        results = []
        for x, d in zip(leaves, dims, strict=True):
            x = _lifted(x)
            value = batching.env.get(x, x) if isinstance(x, Proxy) else x
            if d is None:
                require(type(value) is not Batch, where + "`{}` can not return a BatchedTensor when out_dim is None", self.name, error=ValueError)
                results.append(value)
                continue
            require(isinstance(d, int), where + "`out_dims` must be an int, None or a nest of these, got {}", d, error=ValueError)
            is_tensor = type(value) is Batch or isinstance(value, TensorProxy)
            require(is_tensor, f"vmap({self.name}, ...): `{self.name}` must only return Tensors, got type {{}}", type(value), error=ValueError)
            with in_prims(recorder.get()):
                value = spread(value, batching.size)
                rank = len(value.spec.shape)
                require(
                    -rank <= d < rank,
                    "Dimension out of range (expected to be in range of [{}, {}], but got {})",
                    -rank,
                    rank - 1,
                    d,
                    error=IndexError,
                )
                results.append(move(value, 0, d % rank))
        return results

    def chunked(self, flat: list[Any], tree: trees.Tree, dims: list[int | None], size: int, kwargs: dict[str, Any]) -> Any:
        """Return the result of `chunk_size` examples after the other."""
        if self.randomness == "same":
            raise Unsupported(
                'vmap with chunk_size and randomness="same" is not traced: each chunk would draw numbers of its own; use randomness="different", '
                f"or leave out chunk_size\n  called at {user_line()}"
            )
        chunks: list[list[Any]] = []
        for start in range(0, size, self.chunk_size):
            stop = min(start + self.chunk_size, size)
            parts = [x if d is None else x.narrow(d, start, stop - start) for x, d in zip(flat, dims, strict=True)]
            outputs, result_tree = self.outputs(parts, tree, dims, stop - start, kwargs)
            chunks.append(outputs)
        out_dims = dims_of_leaves(self.out_dims, result_tree.build(chunks[0]))
        joined = [parts[0] if d is None else torch.cat(parts, d) for parts, d in zip(zip(*chunks, strict=True), out_dims, strict=True)]
        return result_tree.build(joined)


def _fills_memory(line: BoundSymbol) -> bool:
    """Return whether a line draws numbers in the order in which a tensor lies in memory, which its program does not know of a batch."""
    return draws(line) and (line.mutates or line.symbol.path.endswith("gumbel_softmax"))


def _lifted(x: Any) -> Any:
    """Return the traced tensor for a real one, anything else unchanged."""
    if isinstance(x, torch.Tensor) and not isinstance(x, Proxy):
        trace = recorder.get()
        ((x,), _) = trace.environment.lift(((x,), {}), trace)
    return x


def dims_of_leaves(dims: Dims, nest: Any) -> list[Any] | None:
    """Return the entry of `dims` for each leaf of a nest, where one entry may stand for a whole branch; None where the structures differ."""
    count = trees.flatten(nest)[1].size
    if isinstance(nest, (tuple, list, dict)) and isinstance(dims, (tuple, list, dict)):
        if type(dims) is not type(nest) or len(dims) != len(nest):
            return None
        if isinstance(nest, dict) and dims.keys() != nest.keys():
            return None
        pairs = [(dims[key], nest[key]) for key in nest] if isinstance(nest, dict) else zip(dims, nest, strict=True)
        parts = [dims_of_leaves(d, part) for d, part in pairs]
        return None if None in parts else [d for part in parts for d in part]
    return None if isinstance(dims, (tuple, list, dict)) else [dims] * count

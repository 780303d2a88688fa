"""A trace is a straight-line program of bound symbols over proxies, and it is also what records them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dovetail import dtypes, prims
from dovetail.errors import DovetailError, InputError, InvalidTrace
from dovetail.prims import NumberSpec, Symbol, Tag, TensorSpec, recorder
from dovetail.prims.sizes import Atom, Real, Relations, is_symbol, symbols_in
from dovetail.trace import printing
from dovetail.trace.dispatch_record import DispatchRecord
from dovetail.trace.proxies import NumberProxy, Proxy, TensorProxy, is_proxy, no_value, proxies, tree_map
from dovetail.trace.source_location import user_line


class BoundSymbol:
    """One line: a symbol applied to arguments, with the lines it decomposes to.

    `reads` and `writes` are the proxies in its arguments and in its results that it makes, flat, so that no pass walks a nest again.
    `implementation` is what runs the line, once an executor has claimed it.  A line with `effects` is never removed or merged; those that
    are `in_order` keep their order.
    """

    __slots__ = ("args", "body", "effects", "implementation", "in_order", "kwargs", "mutates", "out", "reads", "symbol", "where", "writes")

    def __init__(
        self,
        symbol: Symbol,
        args: tuple,
        kwargs: dict,
        out: Any,
        reads: list[Proxy],
        *,
        body: tuple[BoundSymbol, ...] = (),
        where: str | None = None,
        implementation: Any = None,
    ):
        self.symbol, self.args, self.kwargs, self.out, self.reads = symbol, args, kwargs, out, reads
        self.body, self.where, self.implementation = body, where, implementation
        self.writes = [out] if isinstance(out, Proxy) else proxies(out)
        if body:
            read = set(reads)
            self.writes = list(dict.fromkeys(p for p in self.writes if p not in read))
        self.mutates = any([line.mutates for line in body]) if body else Tag.MEMORY in symbol.tags
        self.effects = any([line.effects for line in body]) if body else symbol.effects
        self.in_order = any([line.in_order for line in body]) if body else symbol.in_order

    def replace(self, **changes: Any) -> BoundSymbol:
        """Return the same line but for `changes`."""
        old = {"args": self.args, "kwargs": self.kwargs, "out": self.out, "reads": self.reads, "symbol": self.symbol}
        more = {"body": self.body, "where": self.where, "implementation": self.implementation}
        return BoundSymbol(**(old | more | changes))

    def __repr__(self) -> str:
        return f"{', '.join(p.name for p in self.writes)} = {self.symbol}({', '.join(map(brief, self.args))})"


def prims_of(lines: Iterable[BoundSymbol]) -> Iterator[BoundSymbol]:
    """Yield the lines that compute: an operation with a decomposition gives way to the lines of it."""
    for line in lines:
        if line.body:
            yield from prims_of(line.body)
        else:
            yield line


def draws(line: BoundSymbol) -> bool:
    """Return whether `line` draws random numbers."""
    return any(map(draws, line.body)) if line.body else Tag.RANDOM in line.symbol.tags


class Environment:
    """What a front end lends to the trace that it records; a pass records in this plain one."""

    proxy: type[TensorProxy] = TensorProxy

    def __init__(self) -> None:
        self.read: set[str] = set()  # the global settings that the program reads
        self.repeated: list[BoundSymbol] = []  # lines of which nothing is saved, since the backward runs them again

    def lift(self, tree: Any, trace: Trace, symbol: Symbol | None = None) -> Any:
        """Make proxies of the foreign values that the user's code brings, such as real tensors, in `tree`, the arguments of `symbol`."""
        return tree

    def run(self, function: Callable, args: tuple, kwargs: dict) -> Any:
        """Return function(*args, **kwargs), for a function of the user's that this package calls."""
        return function(*args, **kwargs)

    def deliver(self, symbol: Symbol, out: Any) -> Any:
        """Return what the caller of an operation gets for its results."""
        return out

    def resize_out(self, out: Proxy, value: Proxy) -> bool:
        """Make `out`, a tensor of another shape, the result `value` that is written into it; return whether that is done."""
        return False

    def plain(self) -> Environment:
        """Return a plain environment with the same kind of proxy, for values that the user's code gets to see."""
        environment = Environment()
        environment.proxy = self.proxy
        return environment

    def grad_enabled(self) -> bool:
        return False

    def check_write(self, p: Proxy, trace: Trace) -> None:
        """Raise where `trace` must not write into `p` with grad mode on."""

    def note_write(self, p: Proxy, trace: Trace) -> None:
        """Remember that `trace` writes into `p`, in any grad mode."""

    def give_history(self, p: Proxy, trace: Trace) -> None:
        """Let `p`, into which `trace` has written a value that requires grad, require grad from here on, and all that shares its storage."""

    def overwrites_saved(self, writes: Any) -> str | None:
        """Return the message of eager mode's error for a gradient through a line of which `writes` are LaterWrites; None where there is none."""
        return None

    def value_of(self, proxy: Proxy, trace: Trace) -> Any:
        """Return what `proxy` holds where the lines of `trace` compute it from constants alone, None where tracing does not know it."""
        return None

    def listed(self, tensor: Proxy) -> Any:
        """Return the numbers of a tensor as nested lists.  Raises TracedValueError where they are unknown."""
        raise no_value(tensor)

    def of_sizes(self, op: str, operands: tuple) -> Any:
        """Return what Python computes of sizes as a number of the program; None where it has to be known."""
        return None

    def real_of(self, number: Any) -> Any:
        """Return a number as a size, or as a Real of sizes, where the program computes it of these; as it is otherwise."""
        return number

    def rounded(self, real: Real) -> Any:
        """Return a whole number that is computed of sizes, as a size."""
        return real.pinned()

    def default_float(self) -> dtypes.DType:
        """Return the dtype of a Python float, and of a quotient of integers."""
        return dtypes.float32

    def complex_of(self, dtype: dtypes.DType) -> dtypes.DType | None:
        """Return the dtype of a floating tensor of `dtype` with a complex number; None where Dovetail lacks it."""
        return None if dtype is dtypes.float16 else dtypes.COMPLEX_OF[dtype]

    def value(self, proxy: Proxy, question: str, others: tuple) -> Any:
        """Return `proxy.question(*others)`, a method such as `__bool__` that depends on the value.  Raises TracedValueError where it is unknown."""
        raise no_value(proxy)


@dataclass(eq=False)
class Trace:
    """A program: `lines` compute `outputs` (nested tuples, lists and dicts) from `inputs` and `constants`."""

    name: str = "computation"
    inputs: list[Proxy] = field(default_factory=list)
    lines: list[BoundSymbol] = field(default_factory=list)
    outputs: Any = ()
    made_by: str = "tracing"
    took: float = 0.0  # seconds
    constants: dict[Proxy, Any] = field(default_factory=dict, repr=False)
    dispatch_record: DispatchRecord | None = field(default=None, repr=False)  # on the trace of dispatch
    names: Iterator[int] = field(default_factory=itertools.count, repr=False)
    language: dict[str, Callable] = field(default_factory=lambda: prims.OPERATORS, repr=False)
    environment: Environment = field(default_factory=Environment, repr=False)
    relations: Relations | None = field(default=None, repr=False)  # the symbols of the sizes in the program; None where all sizes are ints
    depth: int = field(default=0, repr=False)  # a line recorded at depth 0 is the user's, and knows where it was called from
    operation: str | None = field(default=None, repr=False)  # that of the user's which is recorded
    enclosing: list[list[BoundSymbol]] = field(default_factory=list, repr=False)  # the lines around those of the operation that is recorded
    views: dict[Proxy, BoundSymbol] = field(default_factory=dict, repr=False)  # each view recorded so far -> its line
    saved_writes: dict[Proxy, Any] = field(default_factory=dict, repr=False)  # a value of a pure program -> writes into what its line may save

    def __str__(self) -> str:
        return self.python()

    def python(self, *, depth: int | None = None, where: bool = False) -> str:
        """Return the program as Python that runs; `depth` levels of decomposition in comments (None: all), `where` for the user's file:line."""
        return printing.source(self, depth=depth, where=where)[0]

    def python_globals(self) -> dict[str, Any]:
        """Return what the printed program needs beyond its own imports: constants, fused regions."""
        return printing.source(self)[1]

    def save(self, path: str | Path) -> None:
        """Write the program as a file that imports and runs on its own.

        A fused region exists in this process only, so the file holds its lines one by one.
        """
        printing.save(self.unfused(), path)

    def unfused(self) -> Trace:
        """Return the program with the lines of its regions, and with the symbols of sizes that they name."""
        whole = self.derive(self.made_by, took=self.took)
        whole.lines = [inner for line in self.lines for inner in (line.body if printing.is_region(line) else (line,))]
        if self.relations is not None:
            whole.lines = [line for line in whole.lines if line.symbol is not prims.delete]  # they delete what is defined here for longer
            known, named = set(self.inputs), symbols_in([(line.args, line.kwargs) for line in whole.lines])
            whole.lines = [*[self.size_line(atom) for atom in named if atom.proxy not in known], *whole.lines]
        return whole

    def size_line(self, atom: Atom) -> BoundSymbol:
        """Return the line that reads a symbol off an input; an int where an equality was recorded that names it.

        Raises InvalidTrace where it is the size of no input.
        """
        value = self.relations.value_of(atom)
        if not is_symbol(value, atom):
            return BoundSymbol(prims.integer, (), {"value": value}, atom.proxy, [other.proxy for other in symbols_in(value)])
        for p in self.inputs:
            for dim, n in enumerate(p.spec.shape if isinstance(p, TensorProxy) else ()):
                if is_symbol(n, atom):
                    return BoundSymbol(prims.size, (p,), {"dim": dim}, atom.proxy, [p])
        if atom.real is not None:
            return BoundSymbol(prims.integer, (), {"value": atom.real}, atom.proxy, [other.proxy for other in symbols_in(atom.real)])
        raise InvalidTrace(f"the trace made by {self.made_by} is invalid: {atom.name} ({atom.origin}) is the size of no input of {self.name}")

    def derive(self, made_by: str, **changes: Any) -> Trace:
        """Return an empty trace that goes on where this one stops."""
        fresh = {
            "lines": [],
            "dispatch_record": None,
            "language": prims.OPERATORS,
            "environment": Environment(),
            "depth": 1,
            "operation": None,
            "enclosing": [],
            "views": {},
            "made_by": made_by,
            "took": 0.0,
        }
        return replace(self, **fresh | changes)

    def tensor(self, spec: TensorSpec) -> TensorProxy:
        """Make a new tensor proxy with a name of its own."""
        return self.environment.proxy(f"t{next(self.names)}", spec)

    def record(self, symbol: Symbol, args: tuple, kwargs: dict) -> Any:
        """Bind `symbol` to arguments as the next line, and give its results as proxies."""
        outermost = not self.depth
        where = None
        if outermost:
            where = user_line()
            args, kwargs = self.environment.lift((args, kwargs), self, symbol)
        if symbol is prims.copy_:
            args = self._behind_autograd(args)
        reads: list[Proxy] = []
        try:
            if symbol.is_prim:
                body, out = (), self._meta(symbol, args, kwargs, reads)
            else:
                _collect(args, reads)
                if kwargs:
                    _collect(kwargs, reads)
                body, out = self._inside(symbol, args, kwargs)
                if not body:
                    return out
        except InputError as error:
            if outermost:
                _say_where(error, symbol, args, kwargs, where)
            raise
        except Exception as error:
            if symbol.is_prim and symbol.module != "prims" and not isinstance(error, DovetailError):
                error.add_note(
                    f"raised by the meta of {symbol}, which maps the specs of its arguments to that of its result\n  called at {user_line()}"
                )
            raise
        line = BoundSymbol(symbol, args, kwargs, out, reads, body=body, where=where)
        self.lines.append(line)
        if Tag.VIEW in symbol.tags:
            self.views[out] = line
        if symbol is prims.copy_ and _gives_history(*args) and self.environment.grad_enabled():
            self.environment.give_history(args[0], self)
        return self.environment.deliver(symbol, out) if outermost else out

    def _meta(self, symbol: Symbol, args: tuple, kwargs: dict, reads: list[Proxy]) -> Any:
        if kwargs and symbol.module == "prims":
            _require_known(kwargs)
        specs = symbol.meta(*[_specs(a, reads) for a in args], **{k: _specs(v, reads) for k, v in kwargs.items()})
        needs_grad = any([p.spec.requires_grad for p in reads if isinstance(p, TensorProxy)]) and self.environment.grad_enabled()
        return self._results(symbol, specs, needs_grad and Tag.NO_GRAD not in symbol.tags)

    def _behind_autograd(self, args: tuple) -> tuple:
        """The arguments of a user's write; with grad mode off it goes through a detached view, so that x keeps the history it has."""
        if type(self.environment) is Environment or not isinstance(args[0], TensorProxy):
            return args
        self.environment.note_write(args[0], self)
        if self.environment.grad_enabled():
            self.environment.check_write(args[0], self)
            return args
        return (prims.detach(args[0]), *args[1:])

    def _inside(self, symbol: Symbol, args: tuple, kwargs: dict) -> tuple[tuple[BoundSymbol, ...], Any]:
        outer, outer_language = self.lines, self.language
        self.enclosing.append(outer)
        if not self.depth:
            self.operation = symbol.path
        self.lines, self.language, self.depth = [], symbol.language or outer_language, self.depth + 1
        try:
            out = symbol.meta(*args, **kwargs)
            return tuple(self.lines), out
        finally:
            self.lines, self.language, self.depth = outer, outer_language, self.depth - 1
            self.enclosing.pop()
            if not self.depth:
                self.operation = None

    def _results(self, symbol: Symbol, specs: Any, needs_grad: bool) -> Any:
        if type(specs) is TensorSpec:
            if specs.requires_grad != (wanted := needs_grad and specs.dtype.inexact):
                specs = specs.like(requires_grad=wanted)
            return self.environment.proxy(f"t{next(self.names)}", specs)
        if type(specs) is NumberSpec:
            return NumberProxy(f"n{next(self.names)}", specs)
        if specs is None:
            return None
        if not isinstance(specs, (tuple, list)):
            raise InvalidTrace(
                f"the meta of {symbol} returned {specs!r}; return the spec of the result, as x.fresh(shape), a tuple of specs, or None for no result"
            )
        return tuple([self._results(symbol, s, needs_grad) for s in specs])

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {
            "environment": Environment(),
            "language": prims.OPERATORS,
            "dispatch_record": None,
            "views": {},
            "saved_writes": {},
            "names": next(self.names),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state | {"names": itertools.count(state["names"])})


@contextmanager
def recording(trace: Trace) -> Iterator[Trace]:
    """Record symbols called inside into `trace`."""
    token = recorder.set(trace)
    try:
        yield trace
    finally:
        recorder.reset(token)


def _gives_history(target: Any, value: Any) -> bool:
    """Return whether a write gives a tensor a history that it did not have."""
    both = isinstance(target, TensorProxy) and isinstance(value, TensorProxy)
    return both and value.spec.requires_grad and not target.spec.requires_grad and target.spec.dtype.inexact


def copy_line(value: Proxy, p: Proxy, where: str | None = None) -> BoundSymbol:
    """Return the line by which `p` is a copy of `value` in the layout of `p`, which is dense."""
    if p.spec.strides is None:
        return BoundSymbol(prims.clone, (value,), {}, p, [value], where=where)
    return BoundSymbol(prims.stride_order, (value,), {"order": p.spec.order}, p, [value], where=where)


def substitute(tree: Any, env: Mapping[Proxy, Any]) -> Any:
    """Replace each proxy p by env[p] in a line, or in nested arguments or outputs; what `env` lacks stays.

    A line that reads nothing in `env` is returned as it is.
    """

    def new(leaf: Any) -> Any:
        return env.get(leaf, leaf) if isinstance(leaf, Proxy) else leaf

    if not isinstance(tree, BoundSymbol):
        return tree_map(new, tree)
    if not any([p in env for p in tree.reads]):
        return tree
    body = tuple([substitute(inner, env) for inner in tree.body])
    reads = [q for p in tree.reads if isinstance(q := env.get(p, p), Proxy)]
    return tree.replace(args=tree_map(new, tree.args), kwargs=tree_map(new, tree.kwargs), out=tree_map(new, tree.out), reads=reads, body=body)


def renamed(line: BoundSymbol, names: Mapping[Proxy, Proxy]) -> BoundSymbol:
    """Return a line with other names for what it reads and computes."""
    if not any([p in names for p in (*line.reads, *line.writes)]):
        return line
    args, kwargs, out, reads = substitute((line.args, line.kwargs, line.out, line.reads), names)
    return line.replace(args=args, kwargs=kwargs, out=out, reads=reads, body=tuple([renamed(inner, names) for inner in line.body]))


def _collect(tree: Any, reads: list[Proxy]) -> None:
    for value in tree.values() if isinstance(tree, dict) else tree:
        if isinstance(value, Proxy):
            reads.append(value)
        elif isinstance(value, (tuple, list, dict)):
            _collect(value, reads)


def _specs(value: Any, reads: list[Proxy]) -> Any:
    if isinstance(value, Proxy):
        reads.append(value)
        return value.spec
    if type(value) in (list, tuple):
        return type(value)([_specs(v, reads) for v in value])
    return value


def _require_known(kwargs: dict[str, Any]) -> None:
    """Raise where a size, a dimension or a count is a tensor, whose value tracing does not know: prims take tensors by position."""
    for value in kwargs.values():
        for item in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(item, TensorProxy):
                int(item)


def brief(value: Any) -> str:
    """Format an argument for an error: proxies with their types."""
    if is_proxy(value):
        return f'{value.name}: "{value.spec}"'
    if isinstance(value, list):
        return f"[{', '.join(map(brief, value))}]"
    if isinstance(value, tuple):
        return f"({', '.join(map(brief, value))}{',' * (len(value) == 1)})"
    return repr(value)


def _say_where(error: InputError, symbol: Symbol, args: tuple, kwargs: dict, where: str | None) -> None:
    """Put the operation before the message, and the call after it."""
    words = [*map(brief, args), *(f"{k}={brief(v)}" for k, v in kwargs.items())]
    name = f"torch.Tensor{symbol.path}" if symbol.path.startswith(".") else symbol.path
    error.args = (f"{name}: {error}\n  in {symbol.name}({', '.join(words)})" + (f"\n  called at {where}" if where else ""),)

"""A graph as a file that runs on its own: its segments as they were traced, and one function with a branch for each decision.

The function takes the tensors that the compiled one reads, in the order that the file says.  It checks no guards, and it knows the outcomes that
calls have had.  Its segments are operations of PyTorch, so that eager autograd differentiates them.
"""

from __future__ import annotations

import math
import operator
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from dovetail import prims
from dovetail.errors import DovetailError
from dovetail.frontend.autograd import overwrites
from dovetail.frontend.decisions import steps
from dovetail.frontend.decisions.graph import Graph
from dovetail.frontend.decisions.late_sizes import SMALLEST
from dovetail.frontend.decisions.nodes import Decision, Edge, Leaf
from dovetail.frontend.decisions.outcome import Outcome
from dovetail.frontend.decisions.outside import Slot, mapped
from dovetail.prims import Symbol, Tag
from dovetail.prims.arithmetic_table import ARITHMETIC
from dovetail.trace import BoundSymbol, Proxy, TensorProxy, Trace, requires_grad
from dovetail.trace.passes.functionalize import OVERWRITTEN, UNSEEN
from dovetail.trace.printing import ROOTS, Namespace, Root, Scope, identifier, literal, source, typed

_SPACES = (torch, torch.Tensor, torch.nn.functional, math, operator)
ROOTS["overwrites"] = Root("from dovetail.frontend.autograd import overwrites", overwrites)
_WRITES = {symbol: Symbol("overwrites", symbol.name, symbol.meta) for symbol in (UNSEEN, OVERWRITTEN)}
_BUILTINS = {bool: "bool", int: "int", float: "float", complex: "complex"}


class FilePrinter:
    """Writes the file of a graph."""

    def __init__(self, graph: Graph):
        self.graph, self.scope = graph, Scope()
        self.scope.root("torch")
        self.decisions = list(graph.decisions)
        self.number = {id(decision): i for i, decision in enumerate(self.decisions)}
        self.functions: list[str] = []  # segments and ends
        self.called: dict[int, str] = {}  # id of a segment or an end -> how it is called

    def text(self) -> str:
        """Return the file, but for what is pickled beside it."""
        name = identifier(getattr(self.graph.fn, "__name__", type(self.graph.fn).__name__))
        body = list(self.body())
        head = [f'"""The decisions of {name} as one function, saved by Dovetail."""', "", *self.scope.imports.values(), ""]
        decorator = [] if self.graph.grad else ["@torch.no_grad()"]
        return "\n".join([*head, *self.functions, *decorator, f"def {name}(*inputs):", *body]) + "\n"

    def body(self) -> Iterator[str]:
        """Yield the lines of the function."""
        inputs = dict(chain.from_iterable([each.inputs.items() for each in (*self.decisions, *self.ends())]))
        for slot in range(len(self.graph.slots)):
            if slot in inputs:
                yield f"    # inputs[{slot}] is {inputs[slot][0]}: {typed([inputs[slot][1]])}"
        count = len(self.graph.slots)
        yield f"    if len(inputs) != {count}:"
        yield f'        raise TypeError(f"expected {count} tensors, got {{len(inputs)}}")'
        if self.graph.assumptions.aliased:
            views = "".join([f", {~slot}: inputs[{slot}].view_as(inputs[{slot}])" for slot in sorted(self.graph.assumptions.aliased)])
            yield f"    inputs = {{**dict(enumerate(inputs)){views}}}  # whose gradients run no hooks"
        yield f"    values = ({''.join([f'inputs[{slot}].shape[{dim}], ' for slot, dim in self.graph.first_sizes])})"
        yield from self.lines_of(self.graph.root, " " * 4)
        if self.decisions:
            yield "    while True:"
        for i, decision in enumerate(self.decisions):
            yield f"        if at == {i}:  # {decision.what} at {decision.where}"
            yield from self.branches(decision, " " * 12)

    def ends(self) -> list[Leaf]:
        edges = chain.from_iterable([edges for decision in (self.graph.origin, *self.decisions) for edges in decision.edges.values()])
        return [edge.target for edge in edges if type(edge.target) is Leaf]

    def branches(self, decision: Decision, indent: str) -> Iterator[str]:
        """Yield the outcomes of a decision."""
        yield from self.question(decision, indent)
        for outcome, alternatives in decision.edges.items():
            condition, more = _condition(decision.ask, outcome)
            yield f"{indent}if {condition}:"
            inner = indent + "    "
            if more:
                yield f"{inner}values = (*values, {more})"
            yield from self.alternatives(
                [edge for edge in alternatives if type(edge.target) is not Decision or id(edge.target) in self.number], inner
            )
        where = f"{decision.what} at {decision.where}"
        yield f'{indent}raise RuntimeError({where!r} + f" was {{outcome!r}}, which no call had when this was saved")'

    def question(self, decision: Decision, indent: str) -> Iterator[str]:
        """Yield what computes the outcome."""
        step, values = decision.ask, [f"values[{i}]" for i in decision.reads]
        if decision.text is not None:
            yield f"{indent}outcome = {decision.text.format(*values)}"
        elif step is steps.number:
            yield f"{indent}outcome = {values[0]}"
        elif type(step) is steps.Converted or type(step) is steps.WholeNumber:
            yield f"{indent}outcome = {self.path(step.convert if type(step) is steps.Converted else int)}({values[0]})"
        elif isinstance(step, steps.OutsideStep):
            if type(step) is steps.Operation and step.grad is not self.graph.grad:
                yield f"{indent}with torch.set_grad_enabled({step.grad}):"
                yield f"{indent}    outcome = {self.call(step, values)}"
            else:
                yield f"{indent}outcome = {self.call(step, values)}"
            if type(step) is steps.Operation:
                yield f"{indent}tensors = outcome if isinstance(outcome, (tuple, list)) else (outcome,)"
        elif type(step) is steps.Arithmetic:
            if step.op.startswith("math."):
                self.scope.imports["math"] = "import math"
            yield f"{indent}try:"
            yield f"{indent}    outcome, tensors = True, ({ARITHMETIC[step.op][0].format(*self.arguments(step.template, values))},)"
            yield f"{indent}except (ArithmeticError, ValueError) as error:"
            yield f"{indent}    outcome = type(error), error.args"
        elif type(step) is steps.Gradients:
            count, leaves = step.count, values[2 * step.count :]
            groups = values[:count], [leaves[i] for i in step.order], values[count : 2 * count]
            arguments = ", ".join([f"({''.join([f'{value}, ' for value in group])})" for group in groups])
            options = f"retain_graph={step.retain}, create_graph={step.create_graph}, allow_unused=True"
            yield f"{indent}gradients = torch.autograd.grad({arguments}, {options})"
            yield f"{indent}tensors = [g.clone() for g in gradients if g is not None]"
            yield f"{indent}outcome = tuple([None if g is None else g.requires_grad for g in gradients])"
        else:
            raise DovetailError(f"{decision.what} at {decision.where} reads the world outside, which a file cannot hold; last_driver prints it")

    def call(self, step: steps.OutsideStep, values: Sequence[str]) -> str:
        """Write a call between two segments."""
        args, kwargs = step.template
        words = [*self.arguments(args, values), *[f"{name}={self.written(x, values)}" for name, x in kwargs.items()]]
        return f"{self.path(step.function)}({', '.join(words)})"

    def arguments(self, template: Sequence[Any], values: Sequence[str]) -> list[str]:
        return [self.written(x, values) for x in template]

    def written(self, template: Any, values: Sequence[str]) -> str:
        """Write an argument, with values in the places of slots."""
        return literal(mapped(lambda x: Proxy(values[x.index]) if type(x) is Slot else x, template), self.scope)

    def path(self, function: Callable) -> str:
        """Write a function by its name, where it has one that every process knows."""
        if function in _BUILTINS:
            return _BUILTINS[function]
        name = getattr(function, "__name__", "")
        for space in _SPACES:
            if getattr(space, name, None) is function:
                path = space.__name__ if isinstance(space, ModuleType) else "torch.Tensor"
                if path in ("math", "operator"):
                    self.scope.imports[path] = f"import {path}"
                return f"{path}.{name}"
        return self.scope.object(function)

    def alternatives(self, edges: Sequence[Edge], indent: str) -> Iterator[str]:
        """Yield the edges behind one outcome, which have to differ in sizes of values alone."""
        for i, edge in enumerate(edges):
            if edge.conditions:
                yield f"{indent}if {' and '.join(edge.conditions.values())}:"
                yield from self.lines_of(edge, indent + "    ")
            elif i + 1 < len(edges):
                yield f"{indent}raise RuntimeError('what follows depends on the arguments of the call, which this function does not get')"
                return
            else:
                yield from self.lines_of(edge, indent)

    def lines_of(self, edge: Edge, indent: str) -> Iterator[str]:
        """Yield what runs on an edge."""
        if edge.eager is not None:
            yield f"{indent}raise RuntimeError({f'calls run eagerly from here on, since {edge.eager}'!r})"
            return
        run = self.function(edge.segment, edge.trace, "segment") if edge.segment is not None else ""
        statements, values = edge.statements(run, tried=False)
        yield from (f"{indent}{statement}" for statement in statements)
        yield f"{indent}values = {values}"
        if id(edge.target) in self.number:
            yield f"{indent}at = {self.number[id(edge.target)]}"
            if len(indent) > 4:
                yield f"{indent}continue"
            return
        end = edge.target.end
        if end.why:
            yield f"{indent}raise RuntimeError({f'a file cannot hold what the function does at its end: {end.why}'!r})"
            return
        arguments = ", ".join([*[f"inputs[{slot}]" for slot in end.slots], "*values"])
        yield f"{indent}results = {self.function(edge.target, end.program, 'end')}({arguments})"
        yield from (f"{indent}{statement}" for statement in end.statements)
        yield f"{indent}return {end.result}"

    def function(self, owner: Any, program: Trace, word: str) -> str:
        """Return what calls a program, which is written once."""
        if id(owner) not in self.called:
            name = f"{word}_{len(self.called)}"
            constants = list(program.constants)
            bare = replace(program.unfused(), name=name, inputs=[*constants, *program.inputs], constants={})
            bare.lines = list(chain.from_iterable(map(_runnable, bare.lines)))
            text = source(bare, depth=0, imports=False, scope=self.scope)[0]
            self.functions.append(text.partition("\n")[2].strip() + "\n\n")
            if constants:
                self.scope.globals[f"{name}_constants"] = tuple(program.constants.values())
                name, bound = f"{name}_bound", name
                self.functions.append(f"def {name}(*values):\n    return {bound}(*{bound}_constants, *values)\n\n")
            self.called[id(owner)] = name
        return self.called[id(owner)]


def _runnable(line: BoundSymbol) -> Iterator[BoundSymbol]:
    """Yield a line so that it runs on tensors, with the gradients that the compiled program has."""
    if line.symbol.module == "prims" and not hasattr(prims, line.symbol.name) and line.symbol not in _WRITES:
        raise DovetailError(f"the function has {line.symbol.name} at {line.where}, which a file cannot hold; last_driver prints it")
    yield line.replace(symbol=_WRITES.get(line.symbol, line.symbol))
    if Tag.NO_GRAD not in line.symbol.tags and any(map(requires_grad, line.reads)):
        for p in line.writes:
            if isinstance(p, TensorProxy) and p.spec.dtype.inexact and not p.spec.requires_grad:
                yield BoundSymbol(prims.detach, (p,), {}, p, [p])


def _condition(step: Any, outcome: Any) -> tuple[str, str]:
    """Return the condition that an outcome is the one at hand, and what its values are besides."""
    more = "*tensors" if type(step) in (steps.Operation, steps.Arithmetic, steps.Gradients) else ""
    if type(step) is steps.Arithmetic and outcome is True:  # the others are errors
        return "outcome is True", more
    if type(outcome) is bool:
        return "outcome" if outcome else "not outcome", more
    if type(step) is steps.Gradients:
        return f"outcome == {tuple(outcome)!r}", more
    if outcome.sizes and outcome.many is None:
        return f"outcome >= {SMALLEST}", "outcome"
    if outcome.many is None:
        return (f"outcome == {outcome.value!r}" if type(outcome.value) is int else f"repr(outcome) == {repr(outcome.value)!r}"), ""
    return _shapes(outcome)


def _shapes(outcome: Outcome) -> tuple[str, str]:
    """Return the condition that tensors have the shapes of an outcome, and these tensors with the sizes that are symbols."""
    conditions, sizes = [f"len(tensors) == {len(outcome)}"], dict[str, str]()
    for i, (shape, *_) in enumerate(outcome):
        conditions.append(f"tensors[{i}].ndim == {len(shape)}")
        for d, n in enumerate(shape):
            size = f"tensors[{i}].shape[{d}]"
            if type(n) is int:
                conditions.append(f"{size} == {n}")
            else:
                conditions.append(f"{size} == {sizes[n]}" if n in sizes else f"{size} >= {SMALLEST}")
                sizes.setdefault(n, size)
    return " and ".join(conditions), ", ".join(["*tensors", *sizes.values()])


class PrintedDriver(str):
    """The decisions of a function as text: one Python function with a branch for each, and the programs that run between them."""

    graph: Graph

    def save(self, path: str | Path) -> None:
        """Write the decisions as a file that imports and runs on its own; what cannot be written as text goes into `path`.pickle beside it.

        Its function takes the tensors that the compiled function reads, parameters among them, and the outcomes are those that calls have had:
        another one raises RuntimeError.  Gradients flow through it.  Raises DovetailError where a decision reads the world outside.
        """
        printer = FilePrinter(self.graph)
        text, path = printer.text(), Path(path)
        if objects := _objects(printer.scope.globals):
            beside = path.with_suffix(path.suffix + ".pickle")
            beside.write_bytes(pickle.dumps(objects))
            head, _, rest = text.partition("\n")
            read = f'globals().update(pickle.loads(pathlib.Path(__file__).with_name("{beside.name}").read_bytes()))'
            text = "\n".join([head, "", "import pathlib", "import pickle", rest.strip("\n").replace("\n\n", f"\n\n{read}\n\n", 1)]) + "\n"
        path.write_text(text)


def _objects(names: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in names.items() if not isinstance(value, (ModuleType, Namespace)) and name not in ROOTS}

"""Writes LLVM IR as text: a `Module` of functions, a `Builder` for each, in single static assignment.

A `Value` is a name and a type; types are LLVM's own words ("float", "<16 x float>", "i64", "ptr").  `instructions.py` has the methods that
write one instruction each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from dovetail_llvm_exec.ir.instructions import Instructions
from dovetail_llvm_exec.ir.sizes import SizeWords
from dovetail_llvm_exec.ir.values import Value, literal

RARELY = '!{!"branch_weights", i32 1, i32 10000}'


class Module:
    """One unit of compilation: functions, constant tables, and declarations of what is defined elsewhere."""

    def __init__(self, target: Any):
        self.target = target
        self.builders: list[Builder] = []
        self.declarations: dict[str, str] = {}
        self.globals: dict[str, str] = {}
        self.nodes: dict[str, str] = {}
        self.sizes = SizeWords(0, ())  # the sizes among the words that a function's first parameter points to

    def function(self, name: str, returns: str, params: Sequence[tuple[str, str]], *, linkage: str = "", attributes: str = "") -> Builder:
        """Return a builder of the function `name`; `params` are (name, type), and a type may carry attributes ("ptr noalias")."""
        builder = Builder(self, name, returns, params, linkage, attributes or self.target.attributes)
        self.builders.append(builder)
        return builder

    def table(self, name: str, element: str, values: Sequence[Any]) -> Value:
        """Return the address of a constant array in the module."""
        if name not in self.globals:
            entries = ", ".join(f"{element} {literal(value, element)}" for value in values)
            self.globals[name] = f"@{name} = private unnamed_addr constant [{len(values)} x {element}] [{entries}], align 64"
        return Value(f"@{name}", "ptr")

    def declare(self, name: str, returns: str, params: Sequence[str], attributes: str = "") -> None:
        """Make an external function known; the process or the linker resolves it."""
        self.declarations[name] = f"declare {returns} @{name}({', '.join(params)}){' ' + attributes if attributes else ''}"

    def node(self, text: str) -> str:
        """Return the name of a metadata node: node('!{!"branch_weights", i32 1, i32 9}') is "!0"."""
        return self.nodes.setdefault(text, f"!{len(self.nodes)}")

    def alone(self, function: str) -> str:
        """Return a module of the text of one function, with the declarations, tables and metadata that it refers to."""
        text_by_node = {name: text for text, name in self.nodes.items()}
        used = list(dict.fromkeys(re.findall(r"!\d+\b", function)))
        function = re.sub(r"!\d+\b", lambda node: f"!{used.index(node[0])}", function)
        names = set(re.findall(r"@([\w.]+)", function))
        declared = [text for name, text in sorted((self.globals | self.declarations).items()) if name in names]
        nodes = [f"!{i} = {text_by_node[name]}" for i, name in enumerate(used)]
        return "\n".join([f'target triple = "{self.target.triple}"', *declared, function, *nodes]) + "\n"

    def text(self) -> str:
        """Return the whole module as LLVM reads it."""
        defined = {builder.name for builder in self.builders}
        declared = [text for name, text in sorted(self.declarations.items()) if name not in defined]
        triple = f'target triple = "{self.target.triple}"'
        nodes = [f"{name} = {text}" for text, name in self.nodes.items()]
        return "\n".join([triple, *self.globals.values(), *declared, *(builder.text() for builder in self.builders), *nodes]) + "\n"


class Loop:
    """A counted loop while its body is written: its `index`, what it carries, and afterwards the `results`."""

    def __init__(self, index: Value, carried: tuple[Value, ...]):
        self.index = index
        self.carried = carried
        self.next: tuple[Value, ...] = carried
        self.results: tuple[Value, ...] = ()

    def update(self, *values: Value) -> None:
        """Set what the next round gets as `carried`; the last call counts."""
        self.next = values


class Builder(Instructions):
    """Writes one function, block after block.  `module.target` describes the machine."""

    def __init__(self, module: Module, name: str, returns: str, params: Sequence[tuple[str, str]], linkage: str = "", attributes: str = "nounwind"):
        super().__init__(module)
        self.target = module.target
        self.name = name
        self.returns = returns
        self.params = [Value(f"%{param}", type.split(" ")[0] if type[0] != "<" else type) for param, type in params]
        signature = ", ".join(f"{type} %{param}" for param, type in params)
        self.attributes = attributes
        self._head = f"define {linkage}{returns} @{name}({signature}) {attributes} {{"
        self.current = "entry"  # the label of the block being written

    def text(self) -> str:
        """Return the function as LLVM reads it."""
        return "\n".join([self._head, "entry:", *self.lines(), "}"])

    def lines(self) -> list[str]:
        """Return what the function does, an instruction or a label each."""
        return [*self._room, *self._lines]

    # --- blocks and control flow

    def label(self, hint: str = "block") -> str:
        """Return a new name for a block"""
        self._count += 1
        return f"{hint}{self._count}"

    def place(self, label: str) -> None:
        """Go on in the block `label`; the one before has to end in a jump or a return."""
        self._lines.append(f"{label}:")
        self.current = label

    def jump(self, label: str) -> None:
        """End the block: go to `label`"""
        self.line(f"br label %{label}")

    def jump_if(self, condition: Value, then: str, otherwise: str, *, rarely: bool = False) -> None:
        """End the block: go to `then` where the i1 holds; `rarely` keeps that out of the way of the other"""
        weights = f", !prof {self.module.node(RARELY)}" if rarely else ""
        self.line(f"br {condition}, label %{then}, label %{otherwise}{weights}")

    def phi(self, incoming: Sequence[tuple[Value, str]]) -> Value:
        """Return the value that belongs to the block one came from; at the head of a block only"""
        type = incoming[0][0].type
        return self.emit(type, f"phi {type} {', '.join(f'[{value.name}, %{label}]' for value, label in incoming)}")

    def ret(self, value: Value | None = None) -> None:
        """End the function"""
        self.line(f"ret {value}" if value else "ret void")

    def branch(
        self,
        condition: Value,
        then: Callable[[], Sequence[Value]],
        otherwise: Callable[[], Sequence[Value]] | Sequence[Value],
        *,
        rarely: bool = False,
    ) -> tuple[Value, ...]:
        """Run `then` where the i1 holds, else `otherwise` (or take the values it is); both give equally many values, of which one set comes out.

        `rarely`: the condition seldom holds.
        """
        yes, done = self.label("then"), self.label("done")
        no = self.label("else") if callable(otherwise) else done
        start = self.current
        self.jump_if(condition, yes, no, rarely=rarely)
        self.place(yes)
        left = list(then())
        from_left = self.current
        self.jump(done)
        if callable(otherwise):
            self.place(no)
            right = list(otherwise())
            start = self.current
            self.jump(done)
        else:
            right = list(otherwise)
        self.place(done)
        return tuple(self.phi([(a, from_left), (b, start)]) for a, b in zip(left, right, strict=True))

    @contextmanager
    def loop(self, start: Any, stop: Any, step: Any = 1, carried: Sequence[Value] = ()) -> Iterator[Loop]:
        """for index in range(start, stop, step), step above 0; `carried` are values that each round may `update`."""
        start, stop, step = (self.operand(value, "i64") for value in (start, stop, step))
        head, body, done = self.label("head"), self.label("body"), self.label("done")
        before = self.current
        self.jump(head)
        self.place(head)
        mark = len(self._lines)
        index = self.emit(start.type, "")
        phis = tuple(self.emit(value.type, "") for value in carried)
        self.jump_if(self.compare("lt", index, stop), body, done)
        self.place(body)
        loop = Loop(index, phis)
        yield loop
        following = self.add(index, step)
        for offset, (phi, first, then) in enumerate(zip((index, *phis), (start, *carried), (following, *loop.next), strict=True)):
            self._lines[mark + offset] = f"  {phi.name} = phi {phi.type} [{first.name}, %{before}], [{then.name}, %{self.current}]"
        self.jump(head)
        self.place(done)
        loop.results = phis


@contextmanager
def for_range(b: Builder, start: Any, stop: Any, step: Any = 1) -> Iterator[Value]:
    """Open a loop that carries nothing; yield its index."""
    with b.loop(start, stop, step) as loop:
        yield loop.index

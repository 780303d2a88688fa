"""The lines of a prologue that read symbolic sizes and check what the program assumes of them."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail import prims
from dovetail.frontend.guards.guard import Miss
from dovetail.frontend.guards.symbolic_sizes import SymbolicSizes
from dovetail.prims.sizes import Atom, Form, symbols_in
from dovetail.trace import BoundSymbol, Proxy


class SizeGuards:
    """Conditions on symbols, each of which becomes a line as soon as its symbols are read.

    A symbol that equals a size over older ones is not read, unless the program takes it: the check of its tensor's shape, which mentions those,
    says it.  So a condition stands behind the lines that bound what it divides by, and before the shape checks that divide by it.
    """

    def __init__(self, sizes: SymbolicSizes, inputs: Sequence[Proxy]):
        self.sizes, self.relations, self.inputs = sizes, sizes.relations, frozenset(inputs)
        self.origins = {atom.number: atom.origin for atom in self.relations.symbols()}
        self.waiting: list[Form] = self.relations.guards()
        self.relations.close()
        self.read: set[Atom] = set()
        self.computed = [atom for atom in self.relations.symbols() if atom.real is not None]

    def takes_size_of(self, proxy: Proxy) -> bool:
        """Return whether the program takes a symbol of a tensor."""
        return any([atom.proxy in self.inputs for _, atom in self.sizes.of_tensor.get(proxy, ())])

    def of_tensor(self, proxy: Proxy) -> list[BoundSymbol]:
        """Return the lines that read the symbols of a tensor, and the conditions that can be checked then."""
        lines = []
        for dim, atom in self.sizes.of_tensor[proxy]:
            free = atom.number not in self.relations.equal
            if free or atom.proxy in self.inputs:
                lines.append(BoundSymbol(prims.size, (proxy,), {"dim": dim}, atom.proxy, [proxy]))
            if free:
                self.read.add(atom)
        return lines + self._ready()

    def of_int(self, atom: Atom) -> list[BoundSymbol]:
        """Return the conditions that can be checked once an int is read; where it equals a size, that too."""
        if atom.number not in self.relations.equal:
            self.read.add(atom)
            return self._ready()
        return [self._same(atom)]

    def _same(self, atom: Atom) -> BoundSymbol:
        """Return the line that checks that a symbol is the size that it equals."""
        value = self.relations.value_of(atom)
        words = value.text(self.origins) if not isinstance(value, int) else str(value)
        pin = next((pin for pin in self.relations.pins if atom in pin.symbols), None)
        miss = Miss(f"{atom.origin} is no longer {words}" + (f", on which {pin.where} depends" if pin is not None and pin.where else ""))
        return BoundSymbol(prims.check_value, (atom.proxy,), {"type": int, "value": value, "miss": miss}, None, [atom.proxy])

    def _ready(self) -> list[BoundSymbol]:
        lines: list[BoundSymbol] = []
        for atom in self.computed:  # a later one may be computed of an earlier one
            operands = symbols_in(atom.real)
            if atom not in self.read and self.read.issuperset(operands):
                self.read.add(atom)
                lines.append(BoundSymbol(prims.integer, (), {"value": atom.real}, atom.proxy, [operand.proxy for operand in operands]))
                if atom.number in self.relations.equal:
                    lines.append(self._same(atom))
        ready = [form for form in self.waiting if self.read.issuperset(symbols_in(form.size))]
        done = set(map(id, ready))
        self.waiting = [form for form in self.waiting if id(form) not in done]
        return lines + [self._line(form) for form in ready]

    def _line(self, form: Form) -> BoundSymbol:
        because = f", on which {' and '.join(form.places)} depends" if form.recorded and form.places else ""
        miss = Miss(f"{form.text(self.origins)} no longer holds{because}")
        return BoundSymbol(prims.check_sizes, (), {"condition": form, "miss": miss}, None, [])

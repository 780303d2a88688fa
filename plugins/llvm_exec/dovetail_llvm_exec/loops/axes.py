"""Loops: atoms that lie one after the other in every access are one axis."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dovetail_llvm_exec.region.forms import Atom, Form, known_equal


class Axis:
    """One loop over atoms, the outer ones first."""

    __slots__ = ("atoms", "size")

    def __init__(self, atoms: Sequence[Atom]):
        self.atoms = tuple(atoms)
        self.size = 1
        for atom in atoms:
            self.size *= atom.size

    def __repr__(self) -> str:
        return f"axis{list(self.atoms)}"

    def step(self, form: Form) -> int:
        """Return how far a form moves when the axis counts one."""
        last = self.atoms[-1]
        for atom, step in form.terms:
            if atom is last:
                return step
        return 0


def merged(atoms: Sequence[Atom], forms: Iterable[Form]) -> list[Axis]:
    """Return the atoms, in order, as few axes: neighbours are one where every form goes on from the inner one to the outer."""
    steps = [dict(form.terms) for form in forms]
    axes: list[list[Atom]] = []
    for atom in atoms:
        if axes and all(known_equal(s.get(axes[-1][-1], 0), s.get(atom, 0) * atom.size) for s in steps):
            axes[-1].append(atom)
        else:
            axes.append([atom])
    return [Axis(group) for group in axes]

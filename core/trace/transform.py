"""What changes the programs of a compiled function where one pass over one trace does not reach."""

from __future__ import annotations

from dovetail.trace.ir import Trace


class Transform:
    """A base for classes whose objects stand in `jit(fn, passes=[...])`; each method gives back what it was given, unless it is overridden.

    For each program that is compiled, and for `passes=[a, b]`: first `a.programs`, then `b.programs` on what that gave; then dead lines
    and common subexpressions go, the computation is differentiated, dispatched, and values get their last use; then `a.executed`, and
    `b.executed` on what that gave, on the computation and likewise on its backward.  An entry of `passes` that is a plain function counts
    as the `executed` of a transform.
    """

    def programs(self, prologue: Trace, computation: Trace, epilogue: Trace) -> tuple[Trace, Trace, Trace]:
        """The guards and unpacking of inputs, the pure computation, and what runs eagerly after it to write inputs and to make views.

        The prologue ends in `call_program`, whose arguments after the first are the computation's inputs, in order; the epilogue takes
        those and then the computation's outputs.
        """
        return prologue, computation, epilogue

    def executed(self, trace: Trace) -> Trace:
        """The program that runs, every line with its implementation."""
        return trace

    def __call__(self, trace: Trace) -> Trace:
        return self.executed(trace)

"""Transforms: passes that change several programs of a compiled function together."""

from __future__ import annotations

from dovetail.trace.ir import Trace


class Transform:
    """A base class for entries of `jit(fn, passes=[...])`; each method returns its arguments unless it is overridden.

    With `passes=[a, b]`, every compilation runs `a.programs` and then `b.programs` on the pure programs.  The computation is simplified,
    differentiated and dispatched.  Last, `a.executed` and then `b.executed` run on the computation, or on forward and backward.  A plain
    function in `passes` is the `executed` of a transform.  `core/compiler/pipeline.py` shows where both stand among the other passes.
    """

    def programs(self, prologue: Trace, computation: Trace, epilogue: Trace) -> tuple[Trace, Trace, Trace]:
        """Change the programs before they are differentiated and dispatched.

        Args:
            prologue: checks guards and finds inputs.  It ends in `call_program`, whose arguments after the first are the computation's
                inputs, in order.
            computation: pure; no line has an implementation.
            epilogue: writes inputs and makes views.  It takes the computation's inputs and then its outputs.
        """
        return prologue, computation, epilogue

    def executed(self, trace: Trace) -> Trace:
        """Change a program that is about to run; every line has its implementation."""
        return trace

    def __call__(self, trace: Trace) -> Trace:
        return self.executed(trace)

"""What tracing assumes of a function that needs values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Assumptions:
    """How a function is traced.

    Each field begins with what compiles best for most functions.  Where that fails, it changes for good, and the graph starts over.

    Attributes:
        widens: counters become numbers of the program; not where their values are needed.
        counts: the ends of ranges that loops go through may be numbers of the program; not where a loop does not close.
        computes: numbers that are computed of sizes are numbers of the program; not where tracing it so has failed.
        skips: replays leave out the states on their way; not where that has led to another state.
        is_compiling: what torch.compiler.is_compiling() says; not where the program raises an error of its own then.
        creates_leaves: leaves that the program creates are leaves of eager autograd, since gradients of some are needed.
        keeps_all: decisions keep all values, since code that cannot be looked into needs some.
        handles_errors: the program handles errors of operations, which leave it where they are raised between decisions.
        marks: the program lets tensors from outside require a gradient, which is done before the first segment runs.
        creates: np.zeros and its like are traced, since the program writes traced values into what they return.
        reads_positions: x[i] with a tensor i has to know i, since the program writes to it or returns it: it is a view of x.
        aliased: the inputs that segments read views of, since hooks of leaves are lines of the program.
    """

    widens: bool = True
    counts: bool = True
    computes: bool = True
    skips: bool = True
    is_compiling: bool = True
    creates_leaves: bool = False
    keeps_all: bool = False
    handles_errors: bool = False
    marks: bool = False
    creates: bool = False
    reads_positions: bool = False
    aliased: frozenset[int] = frozenset()

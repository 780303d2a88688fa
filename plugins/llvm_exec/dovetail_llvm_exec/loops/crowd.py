"""How many threads pay, by measurement: a kernel that took far longer than it should, with threads, works alone for a while.

With other processes on the cores a thread that is not running makes all others wait, for milliseconds where a small kernel takes microseconds.
So each call with threads reads the processor's clock before and after.  Where it took too long, the next LEAST calls use one thread, twice as
many after each further disturbance up to MOST, half as many after each call that went well.  Results do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Sequence

from dovetail_llvm_exec.ir.module import Builder
from dovetail_llvm_exec.ir.values import Value

LEAST, MOST = 32, 4096  # calls alone after a disturbance
CYCLES = 3.0  # of the clock in a nanosecond, about
SLACK = 150_000.0  # nanoseconds that a call may take beyond FACTOR times its estimate
FACTOR = 4.0
CLOCK = "llvm.readcyclecounter"


def limit_of(cost: float) -> int:
    """Return how many cycles a call may take that takes `cost` nanoseconds with one thread, by estimate."""
    return int((cost * FACTOR + SLACK) * CYCLES)


class Crowd:
    """Counts calls and cycles in the function that `b` writes: `limit` is how many cycles a call with threads may take.

    `counters` are two 32-bit numbers: how many calls are still to be alone, and how many were after the last disturbance.
    """

    def __init__(self, b: Builder, limit: Value, counters: Value):
        self.b, self.limit = b, limit
        self.alone, self.back = (b.address(counters, "i32", i) for i in range(2))

    def enter(self, threads: Value) -> Value:
        """Return how many threads this call uses."""
        b = self.b
        left = b.load("i32", self.alone)
        crowded = b.compare("gt", left, 0)
        b.store(b.select(crowded, b.sub(left, 1), left), self.alone)
        return b.select(crowded, b.constant(1, "i32"), threads)

    def leave(self, threads: Value, start: Value) -> None:
        """Note how long the call took since the clock read `start`, if it used several threads."""
        b = self.b

        def note() -> Sequence[Value]:
            slow = b.compare("gt", b.sub(b.call(CLOCK, "i64"), start), self.limit)
            back = b.load("i32", self.back)
            twice = b.call("llvm.smax.i32", "i32", b.add(back, back), b.constant(LEAST, "i32"))
            longer = b.call("llvm.smin.i32", "i32", twice, b.constant(MOST, "i32"))
            b.store(b.select(slow, longer, b.ashr(back, 1)), self.back)
            b.store(b.select(slow, longer, b.constant(0, "i32")), self.alone)
            return ()

        b.branch(b.compare("gt", threads, 1), note, ())

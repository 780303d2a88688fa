"""Check a finished plan: what a kernel reads, an earlier one has written whole, and no two programs of a kernel write one element.

Planning decides which kernel computes what; this module trusts none of its bookkeeping.  It derives from the stores and the expressions of
each kernel who writes a value and who reads it, and raises `Broken` where an invariant does not hold:

- one value, one memory: no two nodes share a temporary or an output, but a reduction and the one over its parts;
- one kernel writes each temporary and each output, at as many places as it has elements, all of them inside of it;
- a value depends on no loop variable that its place does not depend on: nothing is left to the last program;
- a kernel reads what earlier kernels have written, not what it writes itself: programs do not wait for one another;
- what is read without a guard lies inside of the memory that it is read from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dovetail_triton_exec.exprs import Buffer, Expr, Guard, variables
from dovetail_triton_exec.graph import Node
from dovetail_triton_exec.index import Digit, Form, Var, plus, times
from dovetail_triton_exec.lower import OPEN, CannotLower
from dovetail_triton_exec.plan import Kernel, Plan


class Broken(CannotLower):
    """A plan breaks an invariant, so its region is not launched: it would compute something else."""


def require(holds: bool, text: str, *args: object) -> None:
    """Raise Broken where an invariant does not hold."""
    if not holds:
        raise Broken(text.format(*args))


def verify(plan: Plan) -> None:
    """Check the kernels of a plan, in the order in which they run."""
    of: dict[Buffer, Node] = {}
    for node, buffer in plan.memory.items():
        same = plan.final(of.get(buffer, node)) is plan.final(node)
        require(same, "two values of the plan share {}", buffer.name)
        of[buffer] = node
    complete = {buffer for buffer in of if buffer.kind == "in"}
    for kernel in plan.kernels:
        names = [s.buffer for s in (*kernel.stores, *kernel.sweeps)]
        for buffer in names:
            require(buffer in of, "kernel {} writes {}, which is no value's", kernel.index, buffer.name)
            require(buffer not in complete and names.count(buffer) == 1, "{} is written more than once", buffer.name)
        for store in kernel.stores:
            _verify_write(kernel, of[store.buffer], store.value, store.form, guard=store.guard)
        for sweep in kernel.sweeps:
            _verify_write(kernel, of[sweep.buffer], sweep.value, sweep.form, summed=frozenset({kernel.x}))
        for load in (e for e in _walk(kernel) if e.op == "load"):
            _verify_read(kernel, load, of, complete)
        complete.update(names)
    for node in plan.stored:
        require(plan.memory.get(node) in complete, "no kernel writes {!r}", node)


def _walk(kernel: Kernel) -> Iterator[Expr]:
    """Yield every expression that a kernel computes."""
    seen: set[Expr] = set()
    stack = [*kernel.roots, *(v.value for s in kernel.stores for v in s.form.vars() if v.value is not None)]
    while stack:
        expr = stack.pop()
        if expr not in seen:
            seen.add(expr)
            stack += expr.parts
            yield expr


def _verify_write(kernel: Kernel, node: Node, value: Expr, form: Form, *, guard: Guard = OPEN, summed: frozenset[Var] = frozenset()) -> None:
    """Check that a store writes each element of its node once, with a value of that place; `summed` are loops that a program adds up over."""
    where = f"kernel {kernel.index} writes {node!r}"
    free, own = value.free - summed, _loops(form)
    require(free <= {kernel.x, kernel.r} and own <= {kernel.x, kernel.r}, "{} from loops that it does not have", where)
    require(not any(isinstance(v.value, Expr) for v in form.vars()), "{} at a place that is loaded", where)
    require({v for v in free if v.size > 1} <= own, "{} in a place that does not change with the value", where)
    parts, high = kernel.shares if summed else 1, _highest(form, guard)
    require(form.low >= 0 and parts * (high + 1) <= _extent(node), "{} at {} to {} of {} elements", where, form.low, high, _extent(node))
    plain = all(isinstance(d.base, Var) for d, _ in form.terms)
    require(not plain or _count(form, kernel, guard) * parts == node.numel, "{} not once at each element", where)


def _highest(form: Form, guard: Guard) -> int:
    """Return a bound on the last place that a form takes: of a multiple of what a guard keeps below a limit, and of the rest of the form."""
    high, factors = form.high, dict(form.terms)
    for condition in guard:
        digit, step = next(iter(condition.form.terms), (None, 1))
        factor = factors.get(digit, 0) // step
        if factor > 0:
            high = min(high, plus(form, times(condition.form, -factor)).high + factor * (condition.high - 1))
    return high


def _count(form: Form, kernel: Kernel, guard: Guard) -> int:
    """Return how many places a form takes, if it takes each once: digits that lie apart, of loops that count as far; 0 if it does not."""
    count, reach = 1, 0
    for digit, step in sorted(form.terms, key=lambda term: abs(term[1])):
        if abs(step) <= reach:
            return 0
        count, reach = count * digit.size, reach + abs(step) * (digit.size - 1)
    if any(_overlap(a, b) for i, (a, _) in enumerate(form.terms) for b, _ in form.terms[:i]):
        return 0
    partial = kernel.r in _loops(form) and kernel.guard and kernel.guard <= guard  # the last part is shorter
    return min(count, next(iter(kernel.guard)).high * kernel.rows) if partial else count


def _overlap(a: Digit, b: Digit) -> bool:
    """Return whether two digits of a variable have bits in common."""
    return a.base is b.base and a.div < b.div * b.size and b.div < a.div * a.size


def _verify_read(kernel: Kernel, load: Expr, of: Mapping[Buffer, Node], complete: set[Buffer]) -> None:
    """Check that what a load reads is written by an earlier kernel, and that it reads inside of it."""
    buffer, form, guard = load.data
    require(buffer in complete, "kernel {} reads {}, which no earlier kernel has written", kernel.index, buffer.name)
    require(variables(form) <= {kernel.x, kernel.r}, "kernel {} reads {} by loops that it does not have", kernel.index, buffer.name)
    extent, loaded = _extent(of[buffer]), any(v.value is not None for v in form.vars())
    inside = guard or loaded or (form.low >= 0 and form.high < extent)
    require(bool(inside), "kernel {} reads {} at {} to {} of {} elements", kernel.index, buffer.name, form.low, form.high, extent)


def _loops(form: Form) -> frozenset[Var]:
    return variables(form)


def _extent(node: Node) -> int:
    """Return how far the elements of a node reach in its memory."""
    return 1 + sum((n - 1) * step for n, step in zip(node.shape, node.steps, strict=True)) if node.numel else 0

"""Who was asked for each operation, and what they said."""

from __future__ import annotations

from dovetail.trace import Trace


def refusals(trace: Trace) -> str:
    """A line for each offer that dispatch made: `t5 = torch.softmax: llvm refuses: wants rows of at most 1024, got 4096`."""
    rows = []
    for line, executor, verdict in trace.notes:
        said = "runs it" if verdict is True else f"refuses: {verdict}"
        rows.append(f"{', '.join(p.name for p in line.writes) or '-'} = {line.symbol}: {executor} {said}")
    return "\n".join(rows)

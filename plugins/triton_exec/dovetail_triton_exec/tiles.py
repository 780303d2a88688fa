"""How large a piece of work one program of a kernel takes: a table, and the few neighbours that tuning may try."""

from __future__ import annotations

from typing import NamedTuple

from dovetail_triton_exec.emit import buffers, needed
from dovetail_triton_exec.plan import LONGEST_ROW, Kernel

SHORT = 1024  # elements that a program with several rows or columns takes
MOST = 2**17  # elements of a block in the interpreter, where programs are slow and blocks are not


class Tile(NamedTuple):
    """`x` elements (or rows) by `r` columns to a program of `warps`; `looped` where it walks along r in blocks."""

    x: int
    r: int
    warps: int
    looped: bool


def tile(kernel: Kernel, *, interpreted: bool = False) -> Tile:
    """Return the piece of work that the table gives."""
    if kernel.sweeps:
        return _sweeping(kernel, interpreted)
    if interpreted:
        return _large(kernel)
    if kernel.r is None:
        return _flat(kernel.x.size)
    return _rows(kernel) if along_rows(kernel) else _columns(kernel)


def along_rows(kernel: Kernel) -> bool:
    """Return whether the elements of a row lie next to one another in memory."""
    sizes, dims, _, order = kernel.shape
    loops = [d for d in order if sizes[d] > 1]
    return bool(loops) and loops[-1] in dims


def candidates(kernel: Kernel) -> list[Tile]:
    """Return what tuning tries: the table's choice first, then a half and a double of its blocks and warps where they make sense."""
    first = tile(kernel)
    tiles = [first]
    for warps in (first.warps // 2, first.warps * 2):
        if 1 <= warps <= 32:
            tiles.append(first._replace(warps=warps))
    if kernel.r is None:
        tiles += [first._replace(x=x) for x in (first.x // 2, first.x * 2) if 128 <= x <= 4096]
    elif first.looped:
        tiles += [first._replace(r=r) for r in (first.r // 2, first.r * 2) if 16 <= r <= LONGEST_ROW]
    elif first.x > 1:
        tiles += [first._replace(x=first.x // 2)]
    return tiles


def power_of_two(n: int) -> int:
    """Return the least power of two that is not less than n."""
    return 1 << max(n - 1, 0).bit_length()


def _flat(size: int) -> Tile:
    """Take elements one by one: blocks of 1024, smaller ones where there would be few."""
    block = min(max(power_of_two(size // 128), 128), 1024)
    return Tile(block, 1, max(block // 256, 1) if block < 1024 else 4, False)


def _rows(kernel: Kernel) -> Tile:
    """Hold whole rows where possible, several short ones together; long ones, or many of them at once, in blocks."""
    length, held, waiting = kernel.r.size, len(buffers(kernel)), rows_waiting(kernel)
    longest = LONGEST_ROW if held <= 4 else LONGEST_ROW // 2 if held <= 6 else LONGEST_ROW // 4
    longest = min(longest, LONGEST_ROW if waiting <= 1 else LONGEST_ROW // 2 if waiting <= 3 else LONGEST_ROW // 4)
    if any(e.op == "div" and kernel.r in e.free for e in kernel.table.known.values()):
        longest = min(longest, LONGEST_ROW // 2)  # a quotient takes registers of its own, and 32 warps have 64 for each thread
    block = power_of_two(length)
    if block > longest:
        return Tile(1, 4096 if held <= 6 else 2048, 8, True)
    rows = max(min(SHORT // block, power_of_two(kernel.x.size)), 1)
    warps = 4 if block < 2048 else 8 if block <= 8192 else 16 if block < LONGEST_ROW else 32
    return Tile(rows, block, warps, False)


def rows_waiting(kernel: Kernel) -> int:
    """Return how many values of each element are held while a reduction is waited for: 32 of each in a thread, which has 64 registers at least."""
    wide = {kernel.x, kernel.r}
    users = [e for e in needed(kernel.roots) if not e.op.startswith("reduce_")]
    used = [(part, e.level) for e in users for part in e.parts if wide <= part.free and part.level < e.level]
    last = max((level for _, level in used), default=0)
    return max((len({part for part, level in used if part.level <= done < level}) for done in range(last)), default=0)


def _sweeping(kernel: Kernel, interpreted: bool) -> Tile:
    """Hold rows whole, some at a time, and as many partial sums, so by twice as many warps; all of a program's rows at once in the interpreter."""
    block = power_of_two(kernel.r.size)
    rows = power_of_two(kernel.share) if interpreted else max(min(SHORT // block, power_of_two(kernel.share)), 1)
    return Tile(rows, block, 4 if rows * block < SHORT else 8, False)


def _columns(kernel: Kernel) -> Tile:
    """Reduce down the rows: 64 columns side by side, so that reads are of whole lines."""
    columns = min(power_of_two(kernel.x.size), 64)
    block = min(power_of_two(kernel.r.size), max(2048 // columns, 16), 512)
    return Tile(columns, block, 4, power_of_two(kernel.r.size) > block)


def _large(kernel: Kernel) -> Tile:
    """Take few, large programs for the interpreter."""
    if kernel.r is None:
        return Tile(min(power_of_two(kernel.x.size), MOST), 1, 4, False)
    block = power_of_two(kernel.r.size)
    looped = block > min(LONGEST_ROW, MOST)
    block = 4096 if looped else block
    return Tile(max(min(power_of_two(kernel.x.size), MOST // block), 1), block, 4, looped)

"""Measures accuracy: the greatest error of each function in units of the last place.

python sweep.py                 some four million float32 by their bits, and a few hundred thousand float64
python sweep.py --step 1 exp    every float32 there is, of exp alone; some minutes for each function
python sweep.py --portable      the code for x86-64 without fused multiply-adds and wide vectors
python sweep.py --markdown      rows of a table
"""

from __future__ import annotations

import argparse

from vmath_accuracy import BINARY, DTYPES, patterns, points, worst
from vmath_evaluate import Evaluator

from dovetail_llvm_exec.ir.target import host, named
from dovetail_llvm_exec.vmath import FUNCTIONS


def measured(name: str, element: str, options: argparse.Namespace) -> tuple[float, str]:
    """Return the greatest error and where it is."""
    arity = 2 if name in BINARY else 1
    target = named(host().triple, "x86-64") if options.portable else host()
    evaluator = Evaluator(FUNCTIONS[name], arity, element, target=target)
    count = options.count if element == "float" else options.count // (100 if name in ("erf", "erfc") else 10)  # mpmath takes its time
    arrays = patterns(options.step) if options.step and element == "float" and arity == 1 else points(name, element, count)
    error, where = worst(evaluator, name, arrays)
    return error, ", ".join(f"{x!r} ({x.hex()})" for x in where)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(FUNCTIONS))
    parser.add_argument("--step", type=int, help="of the bits of float32")
    parser.add_argument("--count", type=int, default=4_000_000, help="of float32; of float64 there are a tenth")
    parser.add_argument("--element", choices=("float", "double"))
    parser.add_argument("--portable", action="store_true")
    parser.add_argument("--markdown", action="store_true")
    options = parser.parse_args()
    for name in options.names:
        worst = {element: measured(name, element, options) for element in ([options.element] if options.element else DTYPES)}
        if options.markdown:
            print(f"| {name} | {' | '.join(f'{error:.2f}' for error, _ in worst.values())} |", flush=True)
            continue
        for element, (error, where) in worst.items():
            print(f"{name:12s} {element:7s} {error:9.3f} ulp at {where}", flush=True)


if __name__ == "__main__":
    main()

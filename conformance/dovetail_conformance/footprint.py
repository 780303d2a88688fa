"""How many elements a call lays out, from specs alone: its results, and what PyTorch unfolds to compute them."""

from __future__ import annotations

from math import prod

from dovetail import devices, prims
from dovetail.extend import BoundSymbol
from dovetail.extend.advanced import Proxy
from dovetail_conformance.case import Case
from dovetail_conformance.oracle import flat
from dovetail_conformance.subject import every

ELEMENTS = 1 << 23  # of a sample's results: a matrix with 70,000 numbers on its diagonal has 5 thousand million
COLUMNS = 1 << 26  # that convolutions unfold: in float64, which gives the exact results, they all do


def fits(case: Case, elements: int = ELEMENTS) -> bool:
    """Return whether the meta promises results of no more elements, and convolutions no more columns; True where it needs values or refuses."""
    try:
        trace = case.specs(devices.cpu)
    except Exception:
        return True
    promised = sum(x.spec.numel for x in flat(trace.outputs) if isinstance(x, Proxy) and isinstance(getattr(x.spec, "numel", None), int))
    return promised <= elements and max(map(_columns, every(trace.lines, whole=False)), default=0) <= COLUMNS


def _columns(line: BoundSymbol) -> int:
    """Count the elements of the windows of a convolution's images, the kernel's elements for each position of it; 0 for other operations."""
    if line.symbol is prims.convolution:
        image, weight, positions = (x.spec.shape for x in (*line.args[:2], line.out))
    elif line.symbol is prims.convolution_input_grad:
        image, (positions, weight) = line.kwargs["input_shape"], (x.spec.shape for x in line.args[:2])
    elif line.symbol is prims.convolution_weight_grad:
        weight, (positions, image) = line.kwargs["weight_shape"], (x.spec.shape for x in line.args[:2])
    else:
        return 0
    if line.kwargs["transposed"]:
        image, positions = positions, image
    return image[0] * image[1] * prod(weight[2:]) * prod(positions[2:])

"""Compiles the kernels of the programs that tests name for two devices; prints what they take as JSON.  Not run in the interpreter."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from layers import MODELS, on_gpu, trained, unreal
from test_plan import GOLDEN_REGIONS, layer_norm
from triton_helpers import planned

from dovetail_triton_exec import compiling, entropy_kernels

HELD = {
    "softmax": (lambda x: torch.softmax(x, -1), 0),
    "layer_norm": (layer_norm, 2),
    "rms_norm": (lambda x, w: F.rms_norm(x, (x.shape[-1],), w), 1),
}


def programs() -> Iterator[tuple[str, list]]:
    """Names, and the regions of each."""
    for name, (fn, args) in GOLDEN_REGIONS.items():
        yield name, planned(fn, *args)
    for name, (fn, weights) in HELD.items():
        for length in (1000, 4096, 8192, 16384, 32768):
            x, *w = (unreal(*shape, dtype=torch.bfloat16) for shape in [(256, length), *[(length,)] * weights])
            yield f"{name}_{length}", on_gpu(fn, x, *w)
            yield f"{name}_{length}_backward", on_gpu(fn, *(t.requires_grad_() for t in (x, *w)), train=True)[1:]
    for name in MODELS:
        yield name, trained(name, 1)[1]
    yield "far", on_gpu(lambda x: x * 2, unreal(8, 2**30)) + on_gpu(lambda x: torch.softmax(x, -1), unreal(2**20, 4096))
    yield "turned", on_gpu(lambda x: torch.exp(x.t()) + 1, unreal(4096, 1024))


def entropy(capability: int) -> Iterator[dict]:
    """The kernels of cross-entropy."""
    types = {"logits": "*bf16", "target": "*i64", "weight": "*bf16", "lse": "*fp32", "stride": "i32", "total": "*fp32", "rows": "*fp32", "g": "*bf16"}
    for classes, block, warps in ((1000, 1024, 4), (50257, 4096, 8), (128256, 4096, 8)):
        common = {"ignored": -100, "BF16": True, "F16": False, "BLOCK": block}
        for smoothing, weighted in ((0.0, False), (0.1, True)):
            row = {"CLASSES": classes, "smoothing": smoothing, "WEIGHTED": weighted, **common}
            for kernel, out, more in ((entropy_kernels.losses, "*fp32", {"BF16": False}), (entropy_kernels.gradient, "*bf16", {"EACH": False})):
                compiled_kernel = compiling.compiled(kernel, types | {"out": out}, row | more, capability, warps)
                used = compiling.Resources(kernel.__name__, *compiling.usage(compiled_kernel.asm["cubin"]), compiled_kernel.metadata.shared, warps)
                yield {"program": "cross_entropy", "block": block, **used._asdict(), "fits": used.fits}


def main() -> None:
    """One list of rows for each device."""
    plans = list(programs())
    report = {}
    for capability in (80, 90):
        rows = list(entropy(capability))
        for program, regions in plans:
            for region in regions:
                region.folder = sys.argv[1]
                for launch, used in zip(region.launches, compiling.resources(region, capability), strict=True):
                    rows.append({"program": program, "block": launch.tile.r, "looped": launch.tile.looped, **used._asdict(), "fits": used.fits})
        report[str(capability)] = rows
    print(json.dumps(report))


if __name__ == "__main__":
    main()

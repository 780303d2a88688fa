"""Kernels are planned, and their source is written, without triton."""

import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from layers import on_gpu, unreal
from triton_helpers import planned

GOLDENS = Path(__file__).parent / "goldens"


def empty(*shape, dtype=torch.float32):
    return torch.zeros(shape, dtype=dtype)


def layer_norm(x, w, b):
    return F.layer_norm(x, (x.shape[-1],), w, b)


def rope(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


def kernels(fn, *args, train=False):
    """For each region the names of its kernels."""
    return [[launch.name for launch in region.launches] for region in planned(fn, *args, train=train)]


def test_elementwise_operations_are_one_kernel_over_a_flat_index():
    (region,) = planned(lambda x, b: torch.tanh(x * 2 + b), empty(64, 50), empty(50))
    (launch,) = region.launches
    assert (launch.name, launch.kernel.x.size, launch.kernel.r) == ("pointwise_0", 3200, None)
    assert launch.grid * launch.tile.x >= 3200


def test_softmax_is_one_kernel():
    assert kernels(lambda x: torch.softmax(x, -1), empty(64, 50)) == [["amax_sum_0"]]


def test_layer_norm_reads_its_row_once():
    (region,) = planned(layer_norm, empty(64, 50), empty(50), empty(50))
    assert len(region.launches) == 1
    assert region.text.count("tl.load(in0") == 1
    assert region.temporaries == []


def test_few_rows_of_a_norm_go_backward_in_a_kernel_along_rows_and_one_down_columns():
    x, w, b = (t.requires_grad_() for t in (empty(16, 50), empty(50), empty(50)))
    _, backward = planned(layer_norm, x, w, b, train=True)
    along, down = (launch.kernel for launch in backward.launches)
    assert (down.shape.dims, along.shape.dims) == ({0}, {1})
    assert len(down.stores) == 2 and len(along.stores) == 1


def test_many_rows_of_a_norm_go_backward_in_one_kernel_that_sweeps():
    """Each row is read once: its own gradient is stored, and it is added to those of weight and bias, of which a small kernel adds up the parts."""
    x, w, b = (t.requires_grad_() for t in (unreal(8192, 768), unreal(768), unreal(768)))
    _, backward = on_gpu(layer_norm, x, w, b, train=True)
    first, second = (launch.kernel for launch in backward.launches)
    assert (len(first.sweeps), len(first.stores), len(second.stores)) == (2, 1, 2)
    assert first.programs(1) == second.r.size == 512
    assert [m.shape for m in backward.temporaries] == [(512, 768)] * 2


def test_rows_that_a_program_cannot_hold_are_not_swept():
    x, w, b = (t.requires_grad_() for t in (unreal(8192, 8192), unreal(8192), unreal(8192)))
    _, backward = on_gpu(layer_norm, x, w, b, train=True)
    assert not any(launch.kernel.sweeps for launch in backward.launches)


def test_a_bias_gradient_joins_the_gradient_of_the_activation():
    x, b = empty(16, 50).requires_grad_(), empty(50).requires_grad_()
    _, backward = planned(lambda x, b: F.gelu(x + b), x, b, train=True)
    assert len(backward.launches) == 1


def test_sums_down_many_rows_are_done_in_parts_without_atomics():
    (region,) = planned(lambda x: x.sum(0), empty(8192, 768))
    first, second = (launch.kernel for launch in region.launches)
    parts = first.shape.parts
    assert parts > 1 and 8192 % parts == 0
    assert region.temporaries[0].shape == (parts, 768)
    assert second.r.size == parts
    assert "atomic" not in region.text


def test_rows_are_held_up_to_a_length_and_walked_along_beyond_it():
    tiles = {n: on_gpu(lambda x: x - x.mean(-1, True), unreal(256, n))[0].launches[0].tile for n in (1000, 32768, 65536)}
    assert [(t.looped, t.r) for t in tiles.values()] == [(False, 1024), (False, 32768), (True, 4096)]
    assert tiles[32768].warps == 32


def test_rows_of_quotients_are_held_up_to_half_that_length():
    tiles = [on_gpu(lambda x: torch.softmax(x, -1), unreal(256, n))[0].launches[0].tile for n in (16384, 32768)]
    assert [(t.looped, t.r) for t in tiles] == [(False, 16384), (True, 4096)]


def test_rows_are_held_up_to_half_that_length_where_two_wait_for_a_sum():
    """32768 elements of both would take the 64 registers that each of 1024 threads has."""

    def softmax_backward(g, out):
        return (g - (g * out).sum(-1, True)) * out

    tiles = [on_gpu(softmax_backward, unreal(256, n), unreal(256, n))[0].launches[0].tile for n in (16384, 32768)]
    assert [(t.looped, t.r) for t in tiles] == [(False, 16384), (True, 4096)]


def test_short_rows_share_a_program():
    (region,) = planned(lambda x: torch.softmax(x, -1), empty(4096, 32))
    assert region.launches[0].tile.x == 32


def test_large_tensors_are_indexed_in_64_bits():
    """Their text, and what test_compiled.py compiles, need no memory."""
    small, large = (on_gpu(lambda x: x * 2, unreal(8, n))[0].text for n in (2**20, 2**30))
    assert ".to(tl.int64)" not in small
    assert "x = tl.program_id(0).to(tl.int64) * XB + tl.arange(0, XB)" in large


def test_far_rows_are_indexed_in_64_bits():
    (rows,) = on_gpu(lambda x: torch.softmax(x, -1), unreal(2**20, 4096))
    assert "x = tl.program_id(0).to(tl.int64) * XB" in rows.text and "r = tl.arange(0, RB)[None, :].to(tl.int64)" in rows.text


def test_equal_regions_share_one_function():
    import dovetail
    from dovetail_triton_exec.executor import TritonExecutor

    ex = TritonExecutor(devices=["cpu"])
    fuse, regions = ex.fuse, []
    ex.fuse = lambda region: regions.append(fuse(region)) or dovetail.extend.advanced.to_callable(region)

    def two_layers(x, a, b):
        return torch.tanh(torch.tanh(x * 2) @ a * 2) @ b

    dovetail.jit(two_layers, executors=[ex, "torch"])(empty(4, 4), empty(4, 4), empty(4, 4))
    assert len(regions) == 2 and regions[0] is regions[1]


def test_a_low_precision_sum_is_kept_in_float32_between_kernels():
    (region,) = planned(lambda x: x.sum(0), empty(8192, 768, dtype=torch.bfloat16))
    assert region.temporaries[0].dtype.name == "float32"


GOLDEN_REGIONS = {
    "bias_tanh": (lambda x, b: torch.tanh(x * 2 + b), (empty(64, 50), empty(50))),
    "softmax": (lambda x: torch.softmax(x, -1), (empty(64, 50, dtype=torch.bfloat16),)),
    "softmax_long": (lambda x: torch.softmax(x, -1), (empty(256, 65536),)),
    "layer_norm": (layer_norm, (empty(64, 50, dtype=torch.bfloat16), empty(50), empty(50))),
    "rms_norm": (lambda x, w: F.rms_norm(x, (x.shape[-1],), w), (empty(64, 50), empty(50))),
    "swiglu": (lambda x, y: F.silu(x) * y, (empty(64, 50, dtype=torch.float16), empty(64, 50, dtype=torch.float16))),
    "rope": (rope, (empty(2, 3, 5, 8), empty(5, 8), empty(5, 8))),
    "column_sums": (lambda x: ((x * 2).sum(0), x.amax(0)), (empty(8192, 96),)),
    "transposed": (lambda x: x.t() + 1, (empty(64, 50),)),
    "embedding": (lambda w, i: F.embedding(i, w) * 2, (empty(11, 6), empty(3, 4, dtype=torch.int64))),
    "cross_entropy": (lambda x, t: F.cross_entropy(x, t), (empty(20, 50), empty(20, dtype=torch.int64))),
    "argmax": (lambda x: (x.argmax(-1), x.amax(-1)), (empty(64, 50),)),
    "padded": (lambda x: F.pad(x, (1, 2), value=3.0) * 2, (empty(4, 5),)),
}


@pytest.mark.parametrize("name", GOLDEN_REGIONS)
def test_generated_source(name, request):
    """Set in `goldens/`; delete a file there and run this to have it written again."""
    fn, args = GOLDEN_REGIONS[name]
    text = "\n\n".join(region.text for region in planned(fn, *args))
    path = GOLDENS / f"{name}.txt"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        pytest.fail(f"{path.name} was missing and has been written")
    assert text == path.read_text()


def test_plans_do_not_depend_on_the_order_of_sets():
    texts = {planned(layer_norm, empty(64, 50), empty(50), empty(50))[0].text for _ in range(3)}
    assert len(texts) == 1


def test_all_of_a_tensor_is_reduced_in_parts():
    (region,) = planned(lambda x: x.sum(), empty(1000, 1000))
    first = region.launches[0].kernel
    assert first.x.size == first.shape.parts == math.gcd(first.shape.parts, 10**6)

"""What the kernels compute is what eager computes; in the interpreter where there is no GPU."""

import pytest
import torch
import torch.nn.functional as F
from triton_helpers import DEVICE, EX, SAID, Here, assert_like_eager, assert_trains_like_eager, ran

import dovetail
from dovetail import prims
from dovetail.langs.torch import FROM_TORCH, spec_of
from dovetail_triton_exec.tiles import Tile, tile

if SAID is not True:
    pytest.skip(str(SAID), allow_module_level=True)
FLOATS = (torch.float32, torch.bfloat16, torch.float16)


def points(*shape, dtype=torch.float32, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def rope(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat([-b, a], -1) * sin


def layer_norm(x, w, b):
    return F.layer_norm(x, (x.shape[-1],), w, b)


def rms_norm(x, w):
    return F.rms_norm(x, (x.shape[-1],), w)


PROGRAMS = {
    "tanh with a bias": (lambda x, b: torch.tanh(x * 2 + b), (points(20, 50), points(50, seed=1))),
    "softmax": (lambda x: torch.softmax(x, -1), (points(20, 50),)),
    "softmax over columns": (lambda x: torch.softmax(x, 0), (points(20, 50),)),
    "log_softmax": (lambda x: torch.log_softmax(x, -1), (points(20, 50),)),
    "layer_norm": (layer_norm, (points(4, 6, 50), points(50, seed=1), points(50, seed=2))),
    "rms_norm": (rms_norm, (points(4, 6, 50), points(50, seed=1))),
    "gelu": (lambda x: F.gelu(x), (points(20, 50),)),
    "swiglu": (lambda x, y: F.silu(x) * y, (points(20, 50), points(20, 50, seed=1))),
    "rope": (rope, (points(2, 3, 5, 8), points(5, 8, seed=1), points(5, 8, seed=2))),
    "sum over rows and over all": (lambda x: ((x * 2).sum(0), x.sum()), (points(20, 50),)),
    "var_mean": (lambda x: torch.var_mean(x, -1), (points(20, 50),)),
    "pad and flip": (lambda x: F.pad(x, (1, 2, -1, 3), value=2.0) + x.flip(0).sum(), (points(20, 50),)),
    "transposed": (lambda x: torch.exp(x.t()) + 1, (points(20, 50),)),
    "sliced": (lambda x: (x[::2, 3:] * 2, x.reshape(-1)[7:]), (points(20, 50),)),
    "embedding": (lambda w: F.embedding(torch.arange(12, device=w.device).reshape(3, 4) % 5, w) * 2, (points(11, 6),)),
    "group_norm": (lambda x, w: F.group_norm(x, 2, w), (points(2, 4, 3, 3), points(4, seed=1))),
    "batch_norm": (lambda x, w: F.batch_norm(x, None, None, w, None, True), (points(2, 4, 3, 3), points(4, seed=1))),
}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_forward(name, dtype):
    fn, args = PROGRAMS[name]
    assert_like_eager(fn, *(a.to(dtype) for a in args), scale=2 if dtype is torch.float32 else 1)


@pytest.mark.parametrize("name", PROGRAMS)
def test_backward(name):
    fn, args = PROGRAMS[name]
    assert_trains_like_eager(fn, *args, scale=10)


def test_float64_keeps_its_precision():
    assert_like_eager(lambda x: (torch.tanh(x) * 3.3 + 0.1, torch.softmax(x, -1)), points(5, 7).double())


ELEMENTWISE = {
    **{
        name: getattr(torch, name)
        for name in ("exp", "expm1", "sin", "cos", "tan", "sinh", "cosh", "tanh", "asinh", "atan", "erf", "erfc", "sigmoid")
    },
    **{name: getattr(torch, name) for name in ("sign", "signbit", "floor", "ceil", "trunc", "round", "isnan", "isinf", "isfinite", "neg", "abs")},
    "log": lambda x: torch.log(x.abs()),
    "log1p": lambda x: torch.log1p(x.abs()),
    "sqrt": lambda x: x.abs().sqrt(),
    "rsqrt": lambda x: (x.abs() + 0.1).rsqrt(),
    "acos": lambda x: torch.acos(x.clamp(-1, 1)),
    "erfinv": lambda x: torch.erfinv(x.clamp(-0.9, 0.9)),
    "reciprocal": torch.reciprocal,
    "fmod": lambda x: torch.fmod(x, 0.75),
    "remainder": lambda x: x % 0.75,
    "atan2": lambda x: torch.atan2(x, x + 1),
    "pow": lambda x: x.abs() ** 1.5,
    "powers": lambda x: (x**2, x**3, x.abs() ** 0.5, (x.abs() + 1) ** -1, x**0),
    "maximum": lambda x: torch.maximum(x, -x * 2),
    "where": lambda x: torch.where(x > 0, x, -1.0),
    "copysign": lambda x: torch.copysign(x.abs(), -x),
    "to integers": lambda x: (x.to(torch.int32), x.to(torch.bool)),
}


@pytest.mark.parametrize("dtype", (*FLOATS, torch.float64), ids=str)
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_elementwise(name, dtype):
    special = torch.tensor([0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 1.5, 2.0, float("inf"), -float("inf"), float("nan")])
    x = torch.cat([points(200), special]).to(dtype)
    x = x if name != "to integers" else x.nan_to_num(3.0, 5.0, -5.0)
    assert_like_eager(ELEMENTWISE[name], x, scale=2)


INTEGERS = {
    "arithmetic": lambda x, y: (x + y, x - y, x * 3, -x, x.abs(), x**3),
    "division": lambda x, y: (x // y, x % y, torch.fmod(x, y), x // 3, torch.div(x, y, rounding_mode="trunc")),
    "bits": lambda x, y: (x & y, x | y, x ^ y, ~x, x << (y.abs() % 5), x >> (y.abs() % 5)),
    "comparisons": lambda x, y: (x == y, x < y, (x > 2) & (y < 9), x.sign(), torch.maximum(x, y)),
    "reductions": lambda x, y: (x.sum(0), x.amax(1), x.amin(), x.argmax(1), x.prod(1), (x > 0).any(1), (x > -9).all(0)),
    "conversions": lambda x, y: (x.float() / 3, x.to(torch.int8), x.to(torch.bool), x.to(torch.float64)),
}


@pytest.mark.parametrize("dtype", (torch.int64, torch.int32, torch.int16, torch.int8), ids=str)
@pytest.mark.parametrize("name", INTEGERS)
def test_integers(name, dtype):
    numbers = torch.randint(-20, 20, (2, 6, 7), generator=torch.Generator().manual_seed(0))
    x, y = numbers.to(dtype)
    assert_like_eager(INTEGERS[name], x, torch.where(y == 0, torch.ones_like(y), y))


def test_booleans():
    x = points(6, 7) > 0
    assert_like_eager(
        lambda x, y: (x & y, x | y, x ^ y, ~x, x == y, x < y, x.any(0), x.all(1), x.float().sum(), x + y, x * y), x, points(6, 7, seed=1) > 0
    )


@pytest.mark.parametrize("reduction", ("amax", "amin", "argmax", "argmin", "sum"))
def test_nan_is_kept_by_reductions(reduction):
    x = points(6, 40)
    x[2, 5] = x[2, 9] = x[4, 39] = float("nan")
    assert_like_eager(lambda x: (getattr(x, reduction)(1), getattr(x, reduction)(0)), x)


def test_the_first_of_equal_elements_is_pointed_at():
    x = torch.tensor([[3.0, 7.0, 7.0, 1.0, 1.0], [-1.0, -1.0, -5.0, -5.0, -5.0]])
    assert_like_eager(lambda x: (x.argmax(1), x.argmin(1), x.argmax(), x.argmin(0), x.t().argmax()), x)


def looped(kernel):
    """Blocks of 16 elements, several rows to a program, whatever the table says."""
    return Tile(2, 16, 4, True) if kernel.r is not None else Tile(16, 1, 4, False)


@pytest.mark.parametrize("name", PROGRAMS)
def test_in_blocks_that_do_not_divide_the_sizes(name):
    fn, args = PROGRAMS[name]
    assert_like_eager(fn, *args, scale=4, executor=Here(looped))


def test_the_tiles_of_a_gpu_in_the_interpreter():
    x, w = points(37, 1500), points(1500, seed=1)
    assert_like_eager(lambda x, w: (rms_norm(x, w), x.sum(0), x.argmax(1)), x, w, scale=10, executor=Here(tile))


@pytest.mark.parametrize("op", ("argmax", "argmin", "amax", "prod"))
def test_positions_in_blocks(op):
    x = points(3, 100).round()
    x[1, 70] = float("nan")
    assert_like_eager(lambda x: getattr(x, op)(1), x, executor=Here(looped))


def test_sums_in_parts():
    ours = assert_like_eager(lambda x: (x.sum(0), (x * x).amax(0), x.sum()), points(3000, 96), scale=30)
    assert len(ran(ours)[0].launches) == 4


def test_parts_that_do_not_divide_the_sizes():
    assert_like_eager(lambda x: (x.sum(0), x.sum(), torch.softmax(x.reshape(-1), 0)), points(997, 67), scale=30)


def test_rows_that_are_too_long_for_one_program():
    assert_like_eager(lambda x: (torch.softmax(x, -1), x.var(-1), x.argmax(-1)), points(2, 50001), scale=30)


def test_gathers():
    index = torch.randint(0, 20, (20, 3), generator=torch.Generator().manual_seed(0))
    assert_like_eager(lambda x, i: (x.gather(1, i), x.index_select(0, i[0]), x[i[:, 0]], x[i, i + 1] * 2), points(25, 50), index)


def test_a_gather_out_of_bounds_is_an_error():
    if DEVICE == "cuda":
        pytest.skip("an index out of bounds stops the whole CUDA context")
    with pytest.raises(Exception, match="index 7 is out of bounds for a dimension of size 5"):
        assert_like_eager(lambda x, i: x.index_select(0, i) * 2, points(5, 3), torch.tensor([1, 7]))


def test_strided_inputs_are_read_in_place():
    x = points(8, 12, 10)
    assert_like_eager(lambda a, b: a * 2 + b, x[:, ::2].transpose(0, 2), points(10, 6, 8))


def test_a_view_of_an_input_stays_one():
    x = points(6, 7).to(DEVICE)
    ours = assert_like_eager(lambda x: (x.t(), x + 1), x)
    assert ours(x)[0].data_ptr() == x.data_ptr()


def test_sizes_of_zero_and_of_one():
    assert_like_eager(lambda x: (x + 1, x.sum(0), x.sum()), points(0, 3))
    assert_like_eager(lambda x: (torch.softmax(x, -1), x.sum(1), x.amax(1), x.argmax(1)), points(4, 1))
    assert_like_eager(lambda x: x * 2, points(1).reshape(()))


def test_cross_entropy_by_fusion():
    target = torch.randint(0, 50, (20,), generator=torch.Generator().manual_seed(0))
    target[3] = -100
    assert_trains_like_eager(lambda x, t: F.cross_entropy(x, t), points(20, 50), target, scale=4)
    assert_trains_like_eager(lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1, reduction="sum"), points(20, 50), target, scale=20)


def test_bfloat16_is_rounded_where_eager_rounds():
    """x + y and its product are two lines, each rounded; in float32 alone the product would be another."""
    x, y = points(1000, dtype=torch.bfloat16), points(1000, dtype=torch.bfloat16, seed=1)
    ours = assert_like_eager(lambda x, y: (x + y) * 3.0, x, y)
    got = ours(x.to(DEVICE), y.to(DEVICE))
    assert torch.equal(got, (x.to(DEVICE) + y.to(DEVICE)) * 3.0)


def test_zeros_keep_their_signs():
    x = torch.tensor([0.0, -0.0, 2.0])
    assert_like_eager(lambda x: (1 / -x, 1 / (x * -0.0), torch.copysign(x.abs() + 1, torch.full_like(x, -0.0))), x)


def test_numbers_that_are_no_tensors():
    assert_like_eager(lambda x: (torch.xlogy(x, 2), torch.where(torch.zeros((), device=x.device) > -1, x, 3.0)), points(5).abs())
    assert_like_eager(lambda x, s: (x * s, torch.where(s > 0, x, 3.0), (x > 0) & (s > 0)), points(5), torch.tensor(2.0))


@pytest.mark.parametrize("dtype", (*FLOATS, torch.float64), ids=str)
def test_counter_based_draws_are_those_of_the_reference(dtype):
    seed, offset = (torch.tensor(n, device=DEVICE) for n in (2**40 + 17, 2**33 + 5))
    how = {"shape": (7, 5), "dtype": FROM_TORCH[dtype], "device": spec_of(seed).device}

    def draw(seed, offset):
        return prims.uniform_philox(seed, offset, low=0.0, high=1.0, **how), prims.normal_philox(seed, offset, mean=1.0, std=2.0, **how)

    compiled = dovetail.jit(draw, executors=[Here(), "torch"])
    ours, reference = compiled(seed, offset), dovetail.jit(draw, executors=["torch"])(seed, offset)
    assert ran(compiled)
    assert torch.equal(ours[0], reference[0])
    torch.testing.assert_close(ours[1], reference[1])


def test_dropout_by_counters_is_one_kernel_with_what_is_around_it(monkeypatch):
    monkeypatch.setenv("DOVETAIL_RANDOM", "philox")

    def program(x, w):
        return F.dropout(F.gelu(x * w), 0.3).sum(-1)

    x, w = (t.to(DEVICE).requires_grad_() for t in (points(40, 64), points(64, seed=1)))
    ours, reference = (dovetail.jit(program, executors=executors) for executors in ([EX, "torch"], ["torch"]))
    results = []
    for fn in (ours, reference):
        torch.manual_seed(0)
        out = fn(x, w)
        results.append((out, *torch.autograd.grad(out.sum(), (x, w))))
    for got, want in zip(*results, strict=True):
        torch.testing.assert_close(got, want, rtol=2e-5, atol=2e-5)
    forward = ran(ours)[0]
    assert len(forward.launches) == 1 and "device.uniform(" in forward.text


def test_numbers_that_do_not_fit_go_around():
    x = torch.tensor([0, 100, 156, 255], dtype=torch.uint8)
    assert_like_eager(lambda x: (x == -100, x + 200, ~x), x)
    assert_like_eager(lambda x: ~x, x[1])


def test_the_backward_of_a_norm_sweeps_over_its_rows():
    ours = assert_trains_like_eager(layer_norm, points(1501, 96), points(96, seed=1), points(96, seed=2), scale=60)
    assert [len(launch.kernel.sweeps) for launch in ran(ours)[-1].launches] == [2, 0]


def test_low_precision_is_swept_in_float32():
    """Eager adds up 1501 rows in bfloat16 on a CPU; ours is compared with float64."""
    x, w, b, g = (points(*shape, dtype=torch.bfloat16, seed=i).to(DEVICE) for i, shape in enumerate([(1501, 96), (96,), (96,), (1501, 96)]))
    precisions = [[t.to(dtype).requires_grad_() for t in (x, w, b)] for dtype in (torch.bfloat16, torch.float64)]
    ours, exact = (
        torch.autograd.grad(fn(*args), args, g.to(args[0].dtype))
        for fn, args in zip((dovetail.jit(layer_norm, executors=[EX, "torch"]), layer_norm), precisions, strict=True)
    )
    for computed, wanted in zip(ours, exact, strict=True):
        torch.testing.assert_close(computed.double(), wanted, rtol=2**-8, atol=0.03)


def test_rows_of_several_dimensions_are_swept():
    ours = assert_trains_like_eager(rms_norm, points(31, 50, 24), points(24, seed=1), scale=60)
    assert [launch.kernel.shares for launch in ran(ours)[-1].launches if launch.kernel.sweeps] == [388]


def far_rows(width):
    """2050 rows of bytes, 2**20 bytes from one to the next: more than 32 bits can count, of memory that is never touched."""
    rows = torch.empty(2050 * 2**20, dtype=torch.int8, device=DEVICE).as_strided((2050, width), (2**20, 1))
    return rows.copy_(torch.arange(2050 * width, device=DEVICE).reshape(2050, width) % 101)


def test_far_elements_are_read_where_they_are():
    x = far_rows(3)
    ours = assert_like_eager(lambda x: (x[:, 0] * 2, x.to(torch.int32).sum(1), x.to(torch.int32).sum(0)), x)
    assert all(".to(tl.int64)" in region.text for region in ran(ours))


def test_far_rows_are_picked_by_position():
    assert_like_eager(lambda x, i: x.index_select(0, i) * 2, far_rows(3), torch.tensor([2049, 0, 2048, 7]))


def test_numbers_that_are_counted_far():
    """Eager would make all of what ours makes eight numbers of."""
    ours = dovetail.jit(lambda x: torch.arange(2**33, device=x.device)[:: 2**30] + x, executors=[EX, "torch"])
    got = ours(torch.zeros(8, dtype=torch.int64, device=DEVICE))
    assert got.tolist() == [n * 2**30 for n in range(8)] and ran(ours)


def test_numbers_with_far_steps():
    assert_like_eager(lambda x: torch.arange(-(10**10), 10**10, 3 * 10**9, device=x.device) + x, torch.zeros(7, dtype=torch.int64))
    assert_like_eager(lambda x: torch.arange(100, -100, -7, dtype=torch.int8, device=x.device) + x, torch.zeros(29, dtype=torch.int8))

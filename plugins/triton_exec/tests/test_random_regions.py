"""Random programs of elementwise operations, views, reductions and joins, compared with eager."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from triton_helpers import SAID, Here, assert_like_eager

from dovetail_triton_exec.tiles import Tile, tile

if SAID is not True:
    pytest.skip(str(SAID), allow_module_level=True)

UNARY = (torch.tanh, torch.sigmoid, torch.neg, torch.abs, torch.sin, lambda x: x * 0.5 + 0.25, lambda x: x.clamp(-1, 0.5), lambda x: 1 - x)
BINARY = (torch.add, torch.sub, torch.mul, torch.maximum, lambda a, b: torch.where(a > b, a, b * 0.5))
REDUCTIONS = (
    lambda x, d: x.mean(d, keepdim=True),
    lambda x, d: x.amax(d, keepdim=True),
    lambda x, d: torch.softmax(x, d),
    lambda x, d: x - x.mean(d, keepdim=True),
    lambda x, d: x.mean(d),
    lambda x, d: x.amin(d),
)
VIEWS = (
    lambda x, d: x.transpose(0, d),
    lambda x, d: x.flip(d),
    lambda x, d: x.narrow(d, x.shape[d] // 2, x.shape[d] - x.shape[d] // 2),
    lambda x, d: torch.cat([x, x * 2], d),
    lambda x, d: x.reshape(-1),
    lambda x, d: x.unsqueeze(d),
    lambda x, d: torch.nn.functional.pad(x, (1, 2)),
    lambda x, d: x.reshape(x.shape[d], -1),
    lambda x, d: x[..., ::2],
)


def broadcastable(a, b):
    try:
        return len(torch.broadcast_shapes(a.shape, b.shape)) <= 4 and torch.Size(torch.broadcast_shapes(a.shape, b.shape)).numel() <= 4000
    except RuntimeError:
        return False


def program(steps):
    """Applies each step (kind, function number, first operand, second operand, dim) to what was computed so far; gives the last few."""

    def run(*inputs):
        values = list(inputs)
        for kind, number, i, j, d in steps:
            x, y = values[i % len(values)], values[j % len(values)]
            if kind == "binary" and broadcastable(x, y):
                values.append(BINARY[number % len(BINARY)](x, y))
            elif kind == "unary" or x.dim() == 0 or x.numel() > 4000:
                values.append(UNARY[number % len(UNARY)](x))
            elif kind == "reduction":
                values.append(REDUCTIONS[number % len(REDUCTIONS)](x, d % x.dim()))
            else:
                values.append(VIEWS[number % len(VIEWS)](x, d % x.dim()) * 1.0)
        return tuple(values[len(inputs) :][-4:])

    return run


NUMBER = st.integers(0, 50)
STEPS = st.lists(
    st.tuples(st.sampled_from(("unary", "binary", "binary", "reduction", "view")), NUMBER, NUMBER, NUMBER, NUMBER), min_size=2, max_size=12
)
SHAPES = st.sampled_from((((6, 7), (7,)), ((3, 4, 5), (4, 1)), ((2, 16), (2, 1)), ((5, 1, 3), (3,)), ((2, 3, 2, 4), (3, 1, 4)), ((33, 9), (33, 9))))


def odd(kernel):
    return Tile(4, 8, 4, True) if kernel.r is not None else Tile(32, 1, 4, False)


TILES = {"large": None, "odd": odd, "gpu": tile}


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(steps=STEPS, shapes=SHAPES, seed=st.integers(0, 9), tiles=st.sampled_from(sorted(TILES)), transposed=st.booleans())
def test_random_programs(steps, shapes, seed, tiles, transposed):
    generator = torch.Generator().manual_seed(seed)
    inputs = [torch.randn(shape, generator=generator) for shape in shapes]
    if transposed:
        inputs[0] = inputs[0].transpose(0, -1).contiguous().transpose(0, -1)
    assert_like_eager(program(steps), *inputs, scale=20, executor=Here(TILES[tiles]))

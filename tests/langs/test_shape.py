"""Shape operations: views that alias, copies that do not, errors of eager's types; PyTorch's own samples cover the values."""

from __future__ import annotations

import harness
import pytest
import torch
from eager_versions import RELEASE
from harness import agrees

import dovetail
from dovetail.errors import Unsupported

X = torch.arange(12.0).view(4, 3)


VIEWS = {
    "view": lambda x: x.view(3, 4),
    "view(dtype)": lambda x: x.view(torch.int32),
    "view_as": lambda x: x.view_as(torch.zeros(2, 6)),
    "reshape": lambda x: x.reshape(-1, 2),
    "flatten": lambda x: x.flatten(),
    "unflatten": lambda x: x.unflatten(0, (2, -1)),
    "ravel": lambda x: x.ravel(),
    "permute": lambda x: x.permute(1, 0),
    "transpose": lambda x: x.transpose(0, -1),
    "swapaxes": lambda x: x.swapaxes(0, 1),
    "t": lambda x: x.t(),
    "T": lambda x: x.T,
    "mT": lambda x: x.mT,
    "H": lambda x: x.H,
    "adjoint": lambda x: x.adjoint(),
    "squeeze": lambda x: x[None].squeeze(),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "movedim": lambda x: torch.movedim(x, 0, 1),
    "diagonal": lambda x: x.diagonal(-1),
    "unfold": lambda x: x.unfold(0, 2, 2),
    "narrow": lambda x: x.narrow(0, -3, 2),
    "select": lambda x: x.select(1, -1),
    "split": lambda x: x.split(3)[1],
    "chunk": lambda x: x.chunk(3)[0],
    "unbind": lambda x: x.unbind(1)[2],
    "tensor_split": lambda x: x.tensor_split((1, 3))[1],
    "hsplit": lambda x: torch.hsplit(x, 3)[1],
    "atleast_3d": lambda x: torch.atleast_3d(x),
    "view_as_real": lambda x: torch.view_as_real(torch.view_as_complex(x.view(6, 2)))[1:],
    "real": lambda x: x.real,
    "detach": lambda x: x.detach(),
    "data": lambda x: x.data,
    "as_strided": lambda x: x.as_strided((3, 4), (1, 3)),
    "as_strided, every other element": lambda x: x.as_strided((1, 2, 2), (9, 2, 6)),
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_write_to_a_view_of_an_input_reaches_the_input(name):
    def write(x):
        VIEWS[name](x).fill_(7)

    agrees(write, X)


@pytest.mark.parametrize("name", VIEWS)
def test_a_view_sees_a_later_write_to_its_base(name):
    def write(x):
        view = VIEWS[name](x)
        x.mul_(2)
        return view

    agrees(write, X)


@pytest.mark.parametrize("name", VIEWS)
def test_a_returned_view_aliases_the_input(name):
    x = X.clone()
    view = dovetail.jit(VIEWS[name])(x)
    assert view.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()


COPIES = {
    "contiguous": lambda x: x.t().contiguous(),
    "reshape": lambda x: x.t().reshape(-1),
    "repeat": lambda x: x.repeat(1, 1),
    "tile": lambda x: x.tile((1,)),
    "flip": lambda x: x.flip(0),
    "roll": lambda x: x.roll(0, 0),
    "rot90": lambda x: x.rot90(4),
    "diag": lambda x: x.diag(),
    "cat": lambda x: torch.cat([x]),
    "tril": lambda x: x.tril(9),
}


@pytest.mark.parametrize("name", COPIES)
def test_a_copy_is_apart_from_its_source(name):
    def write(x):
        copy = COPIES[name](x)
        copy.add_(1)
        return copy

    agrees(write, X)


@pytest.mark.parametrize(
    "same",
    [
        lambda x: x.contiguous(),
        lambda x: x.flatten(0, 0),
        lambda x: torch.atleast_2d(x),
        lambda x: torch.real(x),
        lambda x: x.to(torch.float32),
        lambda x: x.type_as(x),
        lambda x: x.float(),
        lambda x: x.cpu(),
    ],
)
def test_what_eager_returns_as_it_is_leaves_no_line(same):
    x = X.clone()
    compiled = dovetail.jit(same)
    assert compiled(x) is x
    assert not dovetail.make_trace(same)(x).lines


def test_sizes_are_given_apart_or_together_or_by_name():
    def sizes(x):
        return x.permute(dims=(1, 0)), x.view(size=(2, 6)), x.reshape(shape=[2, 6]), x.flip(dims=(0,)), x.repeat(repeats=(1, 2)), x.expand(2, -1, -1)

    agrees(sizes, X)


def test_lists_and_separate_tensors():
    def lists(x):
        pair = torch.broadcast_tensors(x, x[0]), torch.atleast_1d([x, x[0, 0]]), torch.meshgrid(x[0], x[:, 0], indexing="xy")
        return pair, torch.block_diag(x, x[0]), torch.cartesian_prod(x[0], x[1]), torch.meshgrid([x[0]], indexing="ij")

    agrees(lists, X)


def test_cat_promotes_and_skips_empty_vectors():
    agrees(lambda x: torch.cat([x, x.long(), torch.zeros(0, dtype=torch.float64)], dim=1), X)


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last, torch.preserve_format])
def test_memory_formats(memory_format):
    images = torch.randn(2, 3, 4, 5)
    agrees(lambda x: (x.clone(memory_format=memory_format), torch.zeros_like(x, memory_format=memory_format)), images)
    agrees(lambda x: x.double().to(torch.float32, memory_format=memory_format), images.to(memory_format=torch.channels_last))
    if memory_format is not torch.preserve_format:
        agrees(lambda x: x.contiguous(memory_format=memory_format) * 2, images)


def test_bfloat16():
    agrees(
        lambda x: (torch.cat([x, x]), x.t().reshape(-1), x.tril(), x.repeat(2, 1), torch.nn.functional.pixel_shuffle(x.view(1, 4, 1, 3), 2)),
        X.bfloat16(),
    )


@pytest.mark.parametrize(
    "bad",
    [
        lambda x: x.view(5),
        lambda x: x.t().view(12),
        lambda x: x.reshape(-1, -1),
        lambda x: x.permute(0),
        lambda x: x.permute(0, 0),
        lambda x: x.expand(2, 3),
        lambda x: x.expand(3),
        lambda x: x.squeeze(5),
        lambda x: x[0].mT,
        lambda x: torch.cat([x, x[0]]),
        lambda x: torch.cat([]),
        lambda x: torch.cat([x, 1]),
        lambda x: torch.stack([x, x[0]]),
        lambda x: x.split(0),
        lambda x: x.split([1, 1]),
        lambda x: x.chunk(0),
        lambda x: x.select(0, 9),
        lambda x: x.narrow(0, 3, 3),
        lambda x: x.unfold(0, 9, 1),
        lambda x: x.repeat(2),
        lambda x: x.flip(0, 0),
        lambda x: x.roll((1, 2), 0),
        lambda x: x.diagonal(0, 1, 1),
        lambda x: torch.view_as_complex(x),
        lambda x: torch.movedim(x, (0, 1), 0),
        lambda x: torch.hsplit(x, 2),
    ],
)
def test_errors_are_of_eagers_type(bad):
    with pytest.raises(Exception) as want:
        bad(X.clone())
    with pytest.raises(want.type):
        dovetail.jit(bad)(X.clone())


@pytest.mark.parametrize(
    ("refused", "way_out"),
    [
        (lambda x: x[:, ::2].as_strided((2, 2), (1, 1)), "indexing, transpose, expand or unfold"),
        (lambda x: x[:, 0].repeat_interleave(x[:, 0].long()), "output_size"),
        (lambda x: x.unsqueeze_(0), "without the underscore"),
    ],
)
def test_what_cannot_be_traced_names_a_way_out(refused, way_out):
    with pytest.raises(Unsupported, match=way_out):
        dovetail.jit(refused, decisions="error")(torch.arange(12.0).view(4, 3))


def bytes_written(x):
    y = x.view(torch.uint8)
    y.bitwise_xor_(1)
    return x * 2, y


def halves_written(x):
    z = x * 1
    z.view(torch.int16)[:, 1::2].add_(1)
    return z


def complex_written(x):
    z = torch.complex(x, x)
    z.view(torch.float32).add_(1)
    return z


OTHER_SIZES = {
    "smaller and larger": lambda x: (x.view(torch.uint8), x.view(torch.int64), x.view(torch.uint8).view(torch.float64)),
    "parts": lambda x: (x[:, 2:6].view(torch.float64), x[1::2].view(torch.int16), x[:, :0].view(torch.uint8), x.view(2, 2, 8).view(torch.complex128)),
    "floats of other sizes": lambda x: (x.to(torch.bfloat16).view(torch.float32), x.to(torch.float8_e4m3fn).view(torch.int32)),
    "packed": lambda x: ((x * 255).to(torch.uint8).view(torch.int32) >> 3 & 0xFF).sum(),
    "unpacked": lambda x: torch.zeros(4, 32, dtype=torch.uint8).view(torch.float32).copy_(x),
    "complex": lambda x: (torch.complex(x, x).view(torch.float32) + 1, torch.complex(x, x).view(torch.float64)),
    "vmap": lambda x: torch.vmap(lambda row: row.view(torch.uint8))(x) if RELEASE > (2, 10) else x.view(torch.uint8),
    "bytes written": bytes_written,
    "halves written": halves_written,
    "complex written": complex_written,
}


@pytest.mark.parametrize("needs_grad", [False, True])
@pytest.mark.parametrize("name", OTHER_SIZES)
def test_bytes_as_a_dtype_of_another_size(name, needs_grad):
    x = torch.arange(1.0, 33.0).view(4, 8).div(7)
    ours, theirs = x.clone().requires_grad_(needs_grad), x.clone().requires_grad_(needs_grad)
    got, want = dovetail.jit(OTHER_SIZES[name])(ours), OTHER_SIZES[name](theirs)
    for actual, expected in zip(*map(torch.utils._pytree.tree_leaves, ((got, ours), (want, theirs))), strict=True):
        torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)
        assert actual.requires_grad == expected.requires_grad and actual.stride() == expected.stride()
        if needs_grad and expected.grad_fn is not None:
            gradients = [torch.autograd.grad(y.abs().sum(), z, retain_graph=True)[0] for y, z in ((actual, ours), (expected, theirs))]
            torch.testing.assert_close(*gradients)


def test_bytes_as_a_dtype_of_another_size_with_any_size():
    compiled = dovetail.jit(lambda x: (x.view(torch.uint8).sum(-1), x.view(torch.float64)), dynamic=True)
    for n in (4, 6, 2):
        x = torch.randn(3, n)
        torch.testing.assert_close(compiled(x), (x.view(torch.uint8).sum(-1), x.view(torch.float64)), rtol=0, atol=0, equal_nan=True)
    with pytest.raises(RuntimeError, match="must be divisible by 2"):
        compiled(torch.randn(3, 5))
    with pytest.raises(RuntimeError, match=r"storage_offset\(\) must be divisible by 2"):
        compiled(torch.randn(13)[1:].view(3, 4))


def test_parts_at_positions_in_a_tensor():
    known = dovetail.jit(lambda x: x.tensor_split(torch.tensor([1, 3])))
    number = dovetail.jit(lambda x, n: torch.tensor_split(x, n))
    torch.testing.assert_close(known(X), X.tensor_split([1, 3]))
    for n in (2, 3, 2):
        torch.testing.assert_close(number(X, torch.tensor(n)), X.tensor_split(n))
    for bad in (torch.tensor([1.0]), torch.tensor([[1]]), torch.tensor(0)):
        with pytest.raises(RuntimeError):
            number(X, bad)
    positions = dovetail.jit(lambda x, n: [part * 2 for part in torch.tensor_split(x, n)])
    for n in ([2, 3], [1, 3], [0, 3], [1, 2], [-1, 9], [2, 3], [1], []):  # the first alone differs at first, then the last
        torch.testing.assert_close(positions(X, torch.tensor(n, dtype=torch.int64)), [part * 2 for part in X.tensor_split(n)])


@pytest.mark.parametrize(
    "split",
    [lambda x: x.unsafe_chunk(3), lambda x: torch.unsafe_split(x, 2, dim=1), lambda x: torch.unsafe_split_with_sizes(x, [1, 3])],
)
def test_parts_without_the_checks_of_autograd(split):
    agrees(split, X)
    agrees(lambda x: [part.mul_(2) for part in split(x * 1)], X)
    harness.gradients_agree(lambda x: sum(part.sin().sum() for part in split(x)), X)


@pytest.mark.parametrize("dim", range(5))
@pytest.mark.parametrize("arrange", [lambda x: x.to(memory_format=torch.channels_last), lambda x: x.mT, lambda x: x], ids=["last", "mT", "rows"])
def test_a_stack_lies_in_memory_as_in_eager_mode(arrange, dim):
    for x in (arrange(torch.randn(2, 3, 4, 5)), arrange(torch.randn(2, 3, 4, 5))[0]):
        fn = lambda x: torch.stack([x, x + 1], min(dim, x.dim()))  # noqa: E731
        got, want = dovetail.jit(fn)(x), fn(x)
        assert torch.equal(got, want)
        assert got.stride() == want.stride()


@pytest.mark.parametrize("name", ["T", "mT", "H", "mH"])
@pytest.mark.parametrize("x", [torch.tensor(1.5), torch.tensor(1 + 2j), torch.tensor(True)], ids=["float", "complex", "bool"])
def test_a_number_has_the_properties_of_matrices(x, name):
    agrees(lambda x: getattr(x, name) * 1, x)


@pytest.mark.parametrize("view", [lambda x: x[None], lambda x: x.unsqueeze(-1), lambda x: x[None, ..., None], torch.atleast_2d])
def test_dimensions_that_a_number_gets_have_strides_of_one(view):
    x = torch.tensor(1.5)
    compiled = dovetail.jit(view)
    assert compiled(x).stride() == view(x).stride()
    agrees(lambda x: view(x).view(torch.uint8), x)


@pytest.mark.parametrize("number", [torch.tensor(3), torch.tensor(2.5), torch.tensor(True), torch.tensor(1j)])
def test_a_number_promotes_the_blocks_by_its_kind_alone(number):
    halves = [] if number.is_complex() and hasattr(torch, "bcomplex32") else [torch.ones(2, 2, dtype=torch.bfloat16)]  # which Dovetail refuses
    for x in (torch.ones(3, dtype=torch.uint8), *halves, torch.ones((), dtype=torch.int16)):
        agrees(torch.block_diag, number, x)


SEVERAL = {  # methods that take a list of ints alone: PyTorch takes its items as separate arguments, too
    "count_nonzero": (0, 2),
    "broadcast_to": (2, 1, 4, 1),
    "expand": (2, 1, 4, 1),
    "flip": (0, 1),
    "new_ones": (2, 3),
    "permute": (2, 0, 1),
    "repeat": (2, 1, 2),
    "reshape": (2, 2),
    "squeeze": (0, 2),
    "tile": (2, 1, 2),
    "view": (2, 2),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_items_of_a_list_are_separate_arguments(name: str) -> None:
    numbers = SEVERAL[name]
    agrees(lambda x: getattr(x * 2, name)(*numbers), torch.arange(4.0).view(1, 4, 1))
    agrees(lambda x: getattr(x * 2, name)(numbers), torch.arange(4.0).view(1, 4, 1))


def test_nothing_but_empty_vectors_is_joined_along_any_dimension():
    for fn in (lambda x: torch.cat([x[:0], x[:0]], 1), lambda x: torch.cat([x[:0], x.view(1, -1)], 1), lambda x: torch.cat([x[:0]], dim=-3)):
        torch.testing.assert_close(dovetail.jit(fn)(torch.ones(3)), fn(torch.ones(3)))


def test_roll_without_dims_by_name():
    x = torch.arange(6).view(2, 3)

    assert torch.equal(dovetail.jit(lambda x: torch.roll(x, 1, None))(x), torch.roll(x, 1, None))

"""What is asked of a traced tensor without computing: eager's answers, and no line."""

from __future__ import annotations

import pytest
import torch

import dovetail
from dovetail.errors import TracedValueError, Unsupported

x = torch.randn(2, 3, 4).transpose(0, 2)
QUESTIONS = {
    "size": lambda x: (x.size(), x.size(1), x.size(dim=-1), x.shape, x.shape[0], len(x)),
    "stride": lambda x: (x.stride(), x.stride(0), x.stride(dim=-1)),
    "numel": lambda x: (x.numel(), x.nelement(), torch.numel(x), x.nbytes, x.itemsize, x.element_size()),
    "dim": lambda x: (x.dim(), x.ndim, x.ndimension(), x.dim_order()),
    "dtype": lambda x: (x.dtype, x.is_floating_point(), torch.is_complex(x), x.is_signed(), torch.is_floating_point(x)),
    "device": lambda x: (x.device, x.get_device(), x.is_cpu, x.is_cuda, x.is_meta, x.layout),
    "contiguous": lambda x: (x.is_contiguous(), x.is_contiguous(memory_format=torch.contiguous_format)),
    "channels last": lambda x: x[None].is_contiguous(memory_format=torch.channels_last),
    "kinds": lambda x: (x.is_sparse, x.is_quantized, x.is_nested, x.is_conj(), x.is_neg(), x.is_inference()),
    "grad": lambda x: (x.requires_grad, x.is_leaf, x.retains_grad, x.output_nr),
    "result_type": lambda x: (torch.result_type(x, 1.5), torch.result_type(1j, x), torch.result_type(x, x.double()), torch.result_type(x.int(), 2.5)),
    "dtypes": lambda x: (torch.can_cast(x.dtype, torch.int), torch.promote_types(x.dtype, torch.float64), torch.finfo(x.dtype).max),
    "same": lambda x: (x.is_same_size(x), torch.is_same_size(x, x[0]), x.is_set_to(x)),
    "type": lambda x: (torch.is_tensor(x), isinstance(x, torch.Tensor), torch.is_storage(x)),
}


@pytest.mark.parametrize("case", QUESTIONS)
def test_answers_are_eagers(case: str) -> None:
    answers = []

    def fn(x):
        answers.append(QUESTIONS[case](x))
        return x

    dovetail.make_trace(fn)(x)
    assert answers == [QUESTIONS[case](x)]


def shared_memory(x):
    return x.share_memory_()


WHERE = {
    "shared": (lambda x: (x.is_shared(), x.is_pinned(), x * 2), lambda i: (shared_memory(torch.ones(3)) if i % 2 else torch.ones(3),)),
    "computed": (lambda x: ((x * 2).is_shared(), x.view(3).is_shared()), lambda i: (shared_memory(torch.ones(3)),)),
    "the same view": (
        lambda x, y: (x.is_set_to(y), x.is_set_to(y.long()), x * 2),
        lambda i: (z := torch.ones(3), z.view(3) if i % 2 else torch.ones(3)),
    ),
    "conjugated": (lambda x: (x.is_conj(), x.conj().is_conj(), x.conj().imag.is_neg()), lambda i: (torch.ones(3, dtype=torch.complex64),)),
    "transposed": (lambda x: (x.mH.is_conj(), torch.is_conj(x)), lambda i: (torch.ones(2, 3, dtype=torch.complex64),)),
}


@pytest.mark.filterwarnings("ignore:.*run in eager mode")
@pytest.mark.parametrize("case", WHERE)
def test_what_follows_from_memory_is_as_in_eager_mode(case: str) -> None:
    program, arguments = WHERE[case]
    compiled = dovetail.jit(program, unsupported="eager")

    for i in range(4):
        args = arguments(i)
        torch.testing.assert_close(compiled(*args), program(*args))


def test_a_question_leaves_no_line() -> None:
    assert dovetail.make_trace(lambda x: (x.size(), x.stride(), torch.result_type(x, 1), x.dim_order()))(x).lines == []


def test_a_traced_tensor_prints_as_its_name() -> None:
    words = []
    dovetail.make_trace(lambda x: words.append((repr(x), str(x), f"{x}")) or x)(x)
    assert words == [("t0", "t0", "t0")]


@pytest.mark.parametrize("ask", [bool, int, float, torch.is_nonzero, lambda x: x.tolist(), lambda x: x.is_nonzero(), lambda x: 1 if x else 2])
def test_values_are_not_known(ask) -> None:
    with pytest.raises(TracedValueError, match=r"only knows shapes and dtypes.*torch\.where"):
        dovetail.make_trace(lambda x: ask(x.sum()))(x)


REFUSED = {
    "nonzero": lambda x: torch.nonzero(x),
    "masked_select": lambda x: x.masked_select(x > 0),
    "unique": lambda x: torch.unique(x),
    "equal": lambda x: torch.equal(x, x),
    "allclose": lambda x: torch.allclose(x, x),
    "numpy": lambda x: x.numpy(),
    "data_ptr": lambda x: x.data_ptr(),
    "untyped_storage": lambda x: x.untyped_storage(),
    "storage_offset": lambda x: x.storage_offset(),
    "set_": lambda x: x.set_(x),
    "resize_": lambda x: x.resize_(3),
    "squeeze_": lambda x: x.squeeze_(),
    "backward": lambda x: x.sum().backward(),
    "retain_grad": lambda x: x.retain_grad(),
    "register_hook": lambda x: x.register_hook(print),
    "to_sparse": lambda x: x.to_sparse(),
    "quantize_per_tensor": lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.quint8),
    "apply_": lambda x: x.apply_(abs),
    "grad": lambda x: x.grad,
    "grad_fn": lambda x: x.grad_fn,
    "_version": lambda x: x._version,
    "sparse_coo_tensor": lambda x: torch.sparse_coo_tensor(x[:2], x[0], (3, 3)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_scenario_11_what_cannot_be_traced_is_refused_by_name_with_a_way_out(name: str) -> None:
    with pytest.raises(Unsupported, match=rf"^torch\.\S*{name}\S* is not traced: .*; .*\n  called at .*test_queries\.py:\d+$"):
        dovetail.make_trace(REFUSED[name])(x)


def test_an_attribute_that_torch_lacks_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="sizes"):
        dovetail.make_trace(lambda x: x.sizes)(x)
    assert dovetail.make_trace(lambda x: hasattr(x, "sizes"))(x).outputs is False

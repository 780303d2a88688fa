"""Torch functions that are not traced, each with the reason and the way out."""

from __future__ import annotations

from typing import Any

from dovetail.langs.torch.binding.symbol import resolve


def _methods(names: str) -> tuple[str, ...]:
    return tuple(f"torch.Tensor.{name}" for name in names.split())


def _functions(names: str) -> tuple[str, ...]:
    return tuple(f"torch.{name}" for name in names.split())


SENTENCES: dict[str, tuple[str, ...]] = {
    "the shape of its result depends on values; use torch.where(mask, x, 0) or a product with the mask, or call it outside": (
        *_functions("nonzero argwhere masked_select"),
        *_methods("nonzero argwhere masked_select"),
    ),
    "the shape of its result depends on values; call it outside the compiled function and pass its result as an argument": (
        *_functions("unique unique_consecutive _unique _unique2 bincount segment_reduce _pack_padded_sequence _pad_packed_sequence"),
        *("torch.functional.unique", "torch.functional.unique_consecutive"),
        *_methods("unique unique_consecutive bincount"),
    ),
    "it returns a Python bool that depends on values; use (a == b).all() or torch.isclose(a, b).all(), which are tensors": (
        *_functions("equal allclose is_distributed"),
        *_methods("equal allclose __contains__"),
    ),
    "it turns the values into Python objects; return the tensor and convert it outside the compiled function": (
        *_methods("numpy __array__ __array_wrap__ __dlpack__ __dlpack_device__ __index__ __int__ __float__ __complex__ __long__ __nonzero__"),
        *_methods("__torch_dispatch__ __cuda_array_interface__"),
    ),
    "a traced tensor has no storage; call it outside the compiled function": (
        *_methods("data_ptr storage storage_type storage_offset untyped_storage _typed_storage share_memory_ _cdata _version"),
        *_methods("const_data_ptr _reduce_ex_internal __reduce_ex__ __reduce__ __setstate__ __getstate__ _base _is_view"),
        *_functions("_debug_has_internal_overlap _sync from_file"),
    ),
    "it replaces the storage or shape of a tensor in place; use the result of reshape, narrow or torch.empty instead": (
        *_functions("resize_as_ resize_as_sparse_"),
        *_methods("set_ resize_ resize_as_ resize resize_as resize_as_sparse_"),
    ),
    "it changes the shape of the tensor itself; use the method of the same name without the underscore, and its result": (
        *_methods("squeeze_ unsqueeze_ transpose_ t_ swapaxes_ swapdims_ as_strided_ rename_"),
        *_functions("as_strided_"),
    ),
    "gradients are computed for the compiled function as a whole; call it on the result of the compiled function": (
        *_methods("backward retain_grad register_hook register_post_accumulate_grad_hook _backward_hooks _post_accumulate_grad_hooks"),
        *_methods("grad _grad grad_fn _grad_fn"),
        *("torch.autograd.backward", "torch.autograd.grad"),
    ),
    "whether a tensor requires a gradient is decided before the call; set it outside, or use x.detach() inside": (
        *_methods("detach_"),
        *_functions("detach_"),
    ),
    "tensors that are not strided are not traced; convert outside the compiled function, or pass .to_dense()": (
        *_functions("sparse_coo_tensor sparse_csr_tensor sparse_csc_tensor sparse_bsr_tensor sparse_bsc_tensor sparse_compressed_tensor"),
        *_functions("sspaddmm smm hspmm hsmm saddmm _coalesce _to_sparse_semi_structured"),
        *_functions("_nested_tensor_from_mask _nested_view_from_buffer _nested_view_from_jagged"),
        *_functions("_nested_from_padded _nested_compute_contiguous_strides_offsets mkldnn_linear_backward_weights"),
        *_functions("sparse.mm sparse.addmm sparse.sum sparse.softmax sparse.log_softmax nested.nested_tensor"),
        *_methods("to_sparse to_sparse_csr to_sparse_csc to_sparse_bsr to_sparse_bsc to_sparse_coo to_mkldnn to_padded_tensor"),
        *_methods("sparse_mask sparse_resize_ sparse_resize_and_clear_ sspaddmm smm indices values _indices _values _nnz _dimI _dimV"),
        *_methods("crow_indices col_indices ccol_indices row_indices coalesce is_coalesced _coalesced_ sparse_dim dense_dim _sparse_mask_projection"),
        *_functions("ccol_indices_copy col_indices_copy crow_indices_copy row_indices_copy indices_copy values_copy"),
        *_methods("_nested_tensor_size _nested_tensor_storage_offsets _nested_tensor_strides"),
    ),
    "quantized tensors are not traced; keep the scale and zero point as tensors of their own, or quantize outside": (
        *_functions("quantize_per_tensor quantize_per_channel quantize_per_tensor_dynamic dequantize int_repr q_scale q_zero_point"),
        *_functions("q_per_channel_scales q_per_channel_zero_points q_per_channel_axis quantized_batch_norm quantized_gru_cell"),
        *_functions("quantized_lstm_cell quantized_max_pool1d quantized_max_pool2d quantized_max_pool3d quantized_rnn_relu_cell"),
        *_functions("quantized_rnn_tanh_cell quantized_lstm quantized_gru _empty_affine_quantized"),
        *_functions("_empty_per_channel_affine_quantized empty_quantized _make_per_tensor_quantized_tensor"),
        *_functions("_make_per_channel_quantized_tensor fbgemm_linear_int8_weight fbgemm_linear_int8_weight_fp32_activation"),
        *_functions("fbgemm_linear_quantize_weight fbgemm_linear_fp16_weight fbgemm_linear_fp16_weight_fp32_activation"),
        *_functions("fbgemm_pack_gemm_matrix_fp16 fbgemm_pack_quantized_matrix choose_qparams_optimized"),
        *_functions("fused_moving_avg_obs_fake_quant"),
        *_methods("dequantize int_repr q_scale q_zero_point q_per_channel_scales q_per_channel_zero_points q_per_channel_axis qscheme"),
    ),
    "named dimensions are not traced; use dimension numbers": (
        *_methods("rename refine_names align_to align_as"),
        *_functions("align_tensors"),
    ),
    "it calls a Python function for each element; write it with tensor operations": (*_methods("apply_ map_ map2_ module_load"),),
    "parameters and other tensor subclasses cannot be created while tracing; create it outside and pass it as an argument": (
        *_methods("_make_subclass _make_wrapper_subclass as_subclass"),
    ),
    "a traced tensor is copied with clone()": (*_methods("__deepcopy__"),),
    "executors manage the memory of traced tensors; pin, move or share tensors outside the compiled function": (
        *_functions("_pin_memory is_vulkan_available"),
        *_methods("pin_memory _lazy_clone record_stream"),
    ),
    "autocast is not supported inside a traced function; enter torch.autocast around the call of the compiled function, or convert the tensors": (
        *_functions("autocast"),
        *_methods("_autocast_to_full_precision _autocast_to_reduced_precision"),
    ),
    "read and write files outside the compiled function": (*_functions("save load"),),
    "its tangents are not traced; use torch.func.jvp, or open the level around the call of the compiled function": tuple(
        f"torch.autograd.forward_ad.{name}" for name in ("enter_dual_level", "make_dual")
    ),
    "set the seed outside the compiled function, before the call": (*_functions("seed initial_seed"),),
}
_SHAPES = "the shape of its result depends on values"
_BOOLS = "it returns a Python bool that depends on values"
REFUSED: dict[Any, str] = {fn: reason for reason, names in SENTENCES.items() for name in names if (fn := resolve(name)) is not None}
VALUE_DEPENDENT = frozenset(
    fn for fn, reason in REFUSED.items() if reason.startswith((_SHAPES, _BOOLS)) and fn is not resolve("torch.is_distributed")
)

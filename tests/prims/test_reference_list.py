"""Scenario 22: every primitive of the reference system has a counterpart here, or a reason why it needs none."""

from __future__ import annotations

import pytest
from dovetail import prims
import dovetail_conformance.prims  # noqa: F401 - fills OPINFOS
from dovetail_conformance.opinfo import OPINFOS
from dovetail_torch_exec.prims import PRIMS

SAME_NAME = """
abs acos acosh asin asinh atan atanh bitwise_not ceil cos cosh digamma erf erfc erfinv exp exp2 expm1 floor frexp isfinite lgamma log log10
log1p log2 ndtri neg reciprocal round rsqrt sign signbit sin sinh sqrt tan tanh trunc real imag add atan2 bitwise_and bitwise_or bitwise_xor
div eq fmod ge gt le lt maximum minimum mul ne nextafter pow remainder sub zeta bitwise_left_shift bitwise_right_shift where amax amin prod
sum var var_mean argmax argmin topk sort scatter index_add index_copy index_put scatter_add take take_along_axis matmul convolution embedding
embedding_backward linear pad broadcast_in_dim cat flip reshape squeeze transpose unfold stride_order convert_element_type device_put full iota
tensor_from_sequence clone uniform uniform_philox randint multinomial item copy_ bitcast get_grad put_grad cumsum view_as_complex view_as_real
""".split()

RENAMED = {
    "SLICE": "strided_slice",
    "GATHER": "take_along_axis",
    "RANDN": "normal",
    "PY_ABS": "abs",
    "PY_FLOORDIV": "floordiv",
    "COPY_WITH_SETITEM": "put_slice",
    "SHALLOW_COPY": "detach",
    "VIEW": "reshape",
    "EMPTY": "full",
    "PRINT": "print_",
    "DEL": "delete",
    "CHECK_TENSOR_SHAPE_AND_METADATA": "check_tensor",
    "ASSERT_TENSOR_METADATA": "check_tensor",
    "CHECK_NONE": "check_value",
    "CHECK_LITERAL_LIKE": "check_value",
    "CHECK_NUMBER_TYPE_AND_VALUE": "check_value",
    "CHECK_BOOL_CONVERSION": "check_value",
    "CHECK_STRING_VALUE": "check_value",
    "CHECK_SLICE_VALUE": "check_value",
    "CHECK_TYPE": "check_type",
    "CHECK_INSTANCE": "check_type",
    "CHECK_LEN": "check_length",
    "CHECK_EMPTY": "check_count",
    "UNPACK_ATTR": "unpack_attr",
    "UNPACK_GETITEM": "unpack_item",
    "UNPACK_KEY": "unpack_item",
    "UNPACK_DICT_KEY": "unpack_item",
    "UNPACK_PARAMETER": "unpack_item",
    "UNPACK_BUFFER": "unpack_item",
    "UNPACK_SUBMODULE": "unpack_item",
    "UNPACK_SEQUENCE": "unpack_item",
    "UNPACK_TUPLE": "unpack_item",
    "UNPACK_LIST": "unpack_item",
    "UNPACK_CACHE_INFO": "unpack_call",
}

NOT_NEEDED = {
    "ERFCINV": "erfinv(1 - x) loses digits only where erfc is below 1e-8; PyTorch has no such operation either",
    "LERP": "three elementwise prims in the form that PyTorch uses",
    "STD": "the square root of var",
    "EXOGENOUS_LIKE": "inputs of a derived program are its inputs",
    "NUMPY_ARRAY_TO_TORCH_TENSOR": "a NumPy array is converted before the call; the NumPy language traces torch tensors",
    "GET_AND_UPDATE_RNG_STATE": "the counter-based prims take seed and offset as tensors",
    "UPDATE_ALIASES": "functionalization leaves no aliases in a computation",
    "_GROUPED_MM": "reached through the opaque route",
    "SHAPE": "shapes are known while tracing",
    "COMMENT": "decompositions print as comments",
    "RETURN": "the outputs of a trace",
    "SINK": "lines with effects are kept",
    "CONSTRUCT_TUPLE, PACK_*, DATACLASS_NEW": "results are built by the pytree of the call",
    "PYTHON_VARS, UNPACK_FUNCTION_OBJ, UNPACK_EMPTY_DICT, UNPACK_ITER, UNPACK_NEXT, UNPACK_TRIVIAL, UNPACK_DICT": "the prologue unpacks by item and attribute",
    "ASSERT_COMPARE": "metas compare sizes",
}


@pytest.mark.parametrize("name", sorted({*SAME_NAME, *RENAMED.values()}))
def test_scenario_22_the_counterpart_exists_runs_and_has_samples(name):
    symbol = getattr(prims, name)
    guard = prims.Tag.GUARD in symbol.tags
    assert symbol.doc
    assert guard or symbol in PRIMS or symbol.python_rule or name in ("get_grad", "put_grad"), f"the torch executor does not run {name}"
    sampled = {info.symbol for info in OPINFOS}
    assert guard or symbol in sampled or symbol.python_rule or name in ("get_grad", "put_grad"), f"{name} has no OpInfo"


def test_scenario_22_what_is_left_out_has_a_reason():
    assert all(NOT_NEEDED.values())

"""The prims: a small set of strict operations, independent of torch, that every program decomposes to."""

from __future__ import annotations

from dovetail.prims import collectives as collectives
from dovetail.prims.creation import full as full
from dovetail.prims.creation import iota as iota
from dovetail.prims.creation import tensor_from_sequence as tensor_from_sequence
from dovetail.prims.elementary import acos as acos
from dovetail.prims.elementary import acosh as acosh
from dovetail.prims.elementary import asin as asin
from dovetail.prims.elementary import asinh as asinh
from dovetail.prims.elementary import atan as atan
from dovetail.prims.elementary import atanh as atanh
from dovetail.prims.elementary import cos as cos
from dovetail.prims.elementary import cosh as cosh
from dovetail.prims.elementary import exp as exp
from dovetail.prims.elementary import exp2 as exp2
from dovetail.prims.elementary import expm1 as expm1
from dovetail.prims.elementary import log as log
from dovetail.prims.elementary import log1p as log1p
from dovetail.prims.elementary import log2 as log2
from dovetail.prims.elementary import log10 as log10
from dovetail.prims.elementary import rsqrt as rsqrt
from dovetail.prims.elementary import sigmoid as sigmoid
from dovetail.prims.elementary import sin as sin
from dovetail.prims.elementary import sinh as sinh
from dovetail.prims.elementary import sqrt as sqrt
from dovetail.prims.elementary import tan as tan
from dovetail.prims.elementary import tanh as tanh
from dovetail.prims.elementwise import add as add
from dovetail.prims.elementwise import atan2 as atan2
from dovetail.prims.elementwise import bitwise_and as bitwise_and
from dovetail.prims.elementwise import bitwise_left_shift as bitwise_left_shift
from dovetail.prims.elementwise import bitwise_or as bitwise_or
from dovetail.prims.elementwise import bitwise_right_shift as bitwise_right_shift
from dovetail.prims.elementwise import bitwise_xor as bitwise_xor
from dovetail.prims.elementwise import complex as complex
from dovetail.prims.elementwise import copysign as copysign
from dovetail.prims.elementwise import div as div
from dovetail.prims.elementwise import eq as eq
from dovetail.prims.elementwise import floordiv as floordiv
from dovetail.prims.elementwise import fmod as fmod
from dovetail.prims.elementwise import ge as ge
from dovetail.prims.elementwise import gt as gt
from dovetail.prims.elementwise import le as le
from dovetail.prims.elementwise import lt as lt
from dovetail.prims.elementwise import maximum as maximum
from dovetail.prims.elementwise import minimum as minimum
from dovetail.prims.elementwise import mul as mul
from dovetail.prims.elementwise import ne as ne
from dovetail.prims.elementwise import nextafter as nextafter
from dovetail.prims.elementwise import pow as pow
from dovetail.prims.elementwise import remainder as remainder
from dovetail.prims.elementwise import sub as sub
from dovetail.prims.elementwise import truncdiv as truncdiv
from dovetail.prims.elementwise import where as where
from dovetail.prims.elementwise import zeta as zeta
from dovetail.prims.guard import call_program as call_program
from dovetail.prims.guard import check_absent as check_absent
from dovetail.prims.guard import check_answer as check_answer
from dovetail.prims.guard import check_contains as check_contains
from dovetail.prims.guard import check_count as check_count
from dovetail.prims.guard import check_disjoint as check_disjoint
from dovetail.prims.guard import check_distinct as check_distinct
from dovetail.prims.guard import check_empty as check_empty
from dovetail.prims.guard import check_identity as check_identity
from dovetail.prims.guard import check_items as check_items
from dovetail.prims.guard import check_key_types as check_key_types
from dovetail.prims.guard import check_keys as check_keys
from dovetail.prims.guard import check_modes as check_modes
from dovetail.prims.guard import check_objects as check_objects
from dovetail.prims.guard import check_other as check_other
from dovetail.prims.guard import check_rank as check_rank
from dovetail.prims.guard import check_relation as check_relation
from dovetail.prims.guard import check_sizes as check_sizes
from dovetail.prims.guard import check_tensor as check_tensor
from dovetail.prims.guard import check_tensors as check_tensors
from dovetail.prims.guard import check_truth as check_truth
from dovetail.prims.guard import check_type as check_type
from dovetail.prims.guard import check_unset as check_unset
from dovetail.prims.guard import check_value as check_value
from dovetail.prims.guard import unpack_array as unpack_array
from dovetail.prims.guard import unpack_attr as unpack_attr
from dovetail.prims.guard import unpack_call as unpack_call
from dovetail.prims.guard import unpack_contents as unpack_contents
from dovetail.prims.guard import unpack_field as unpack_field
from dovetail.prims.guard import unpack_fresh as unpack_fresh
from dovetail.prims.guard import unpack_item as unpack_item
from dovetail.prims.guard import unpack_leaves as unpack_leaves
from dovetail.prims.guard import unpack_state as unpack_state
from dovetail.prims.guard import unpack_static as unpack_static
from dovetail.prims.host import arithmetic as arithmetic
from dovetail.prims.host import delete as delete
from dovetail.prims.host import evaluate as evaluate
from dovetail.prims.host import format_number as format_number
from dovetail.prims.host import format_tensor as format_tensor
from dovetail.prims.host import integer as integer
from dovetail.prims.host import item as item
from dovetail.prims.host import join_text as join_text
from dovetail.prims.host import print_ as print_
from dovetail.prims.host import size as size
from dovetail.prims.indexing import index as index
from dovetail.prims.indexing import index_add as index_add
from dovetail.prims.indexing import index_copy as index_copy
from dovetail.prims.indexing import index_put as index_put
from dovetail.prims.indexing import scatter as scatter
from dovetail.prims.indexing import scatter_add as scatter_add
from dovetail.prims.indexing import take as take
from dovetail.prims.indexing import take_along_axis as take_along_axis
from dovetail.prims.linalg import linear as linear
from dovetail.prims.linalg import matmul as matmul
from dovetail.prims.memory import clone as clone
from dovetail.prims.memory import copy_ as copy_
from dovetail.prims.memory import device_put as device_put
from dovetail.prims.memory import get_grad as get_grad
from dovetail.prims.memory import put_grad as put_grad
from dovetail.prims.memory import stride_order as stride_order
from dovetail.prims.memory import with_history as with_history
from dovetail.prims.nn import convolution as convolution
from dovetail.prims.nn import convolution_input_grad as convolution_input_grad
from dovetail.prims.nn import convolution_weight_grad as convolution_weight_grad
from dovetail.prims.nn import embedding as embedding
from dovetail.prims.nn import embedding_backward as embedding_backward
from dovetail.prims.op import SYMBOLS as SYMBOLS
from dovetail.prims.op import Symbol as Symbol
from dovetail.prims.op import Tag as Tag
from dovetail.prims.op import make_prim as make_prim
from dovetail.prims.op import no_recorder as no_recorder
from dovetail.prims.op import prim as prim
from dovetail.prims.op import recorder as recorder
from dovetail.prims.op import register as register
from dovetail.prims.op import symbol_named as symbol_named
from dovetail.prims.op import symbols_of as symbols_of
from dovetail.prims.random import bernoulli as bernoulli
from dovetail.prims.random import exponential as exponential
from dovetail.prims.random import multinomial as multinomial
from dovetail.prims.random import normal as normal
from dovetail.prims.random import normal_philox as normal_philox
from dovetail.prims.random import randint as randint
from dovetail.prims.random import randperm as randperm
from dovetail.prims.random import uniform as uniform
from dovetail.prims.random import uniform_philox as uniform_philox
from dovetail.prims.reduction import all as all
from dovetail.prims.reduction import amax as amax
from dovetail.prims.reduction import amin as amin
from dovetail.prims.reduction import any as any
from dovetail.prims.reduction import argmax as argmax
from dovetail.prims.reduction import argmin as argmin
from dovetail.prims.reduction import broadcast_in_dim as broadcast_in_dim
from dovetail.prims.reduction import prod as prod
from dovetail.prims.reduction import sum as sum
from dovetail.prims.reduction import var as var
from dovetail.prims.reduction import var_mean as var_mean
from dovetail.prims.scan import cummax as cummax
from dovetail.prims.scan import cummin as cummin
from dovetail.prims.scan import cumprod as cumprod
from dovetail.prims.scan import cumsum as cumsum
from dovetail.prims.scan import sort as sort
from dovetail.prims.scan import topk as topk
from dovetail.prims.shape import cat as cat
from dovetail.prims.shape import detach as detach
from dovetail.prims.shape import diagonal as diagonal
from dovetail.prims.shape import flip as flip
from dovetail.prims.shape import fold_add as fold_add
from dovetail.prims.shape import pad as pad
from dovetail.prims.shape import put_diagonal as put_diagonal
from dovetail.prims.shape import put_slice as put_slice
from dovetail.prims.shape import reshape as reshape
from dovetail.prims.shape import squeeze as squeeze
from dovetail.prims.shape import strided_slice as strided_slice
from dovetail.prims.shape import transpose as transpose
from dovetail.prims.shape import unfold as unfold
from dovetail.prims.shape import view_as_complex as view_as_complex
from dovetail.prims.shape import view_as_real as view_as_real
from dovetail.prims.sparse import coo_mm as coo_mm
from dovetail.prims.spec import NumberSpec as NumberSpec
from dovetail.prims.spec import TensorSpec as TensorSpec
from dovetail.prims.spec import row_major as row_major
from dovetail.prims.spec import view_strides as view_strides
from dovetail.prims.special import digamma as digamma
from dovetail.prims.special import erf as erf
from dovetail.prims.special import erfc as erfc
from dovetail.prims.special import erfinv as erfinv
from dovetail.prims.special import lgamma as lgamma
from dovetail.prims.special import ndtri as ndtri
from dovetail.prims.special import polygamma as polygamma
from dovetail.prims.unary import abs as abs
from dovetail.prims.unary import bitcast as bitcast
from dovetail.prims.unary import bitwise_not as bitwise_not
from dovetail.prims.unary import ceil as ceil
from dovetail.prims.unary import conj as conj
from dovetail.prims.unary import convert_element_type as convert_element_type
from dovetail.prims.unary import floor as floor
from dovetail.prims.unary import frexp as frexp
from dovetail.prims.unary import imag as imag
from dovetail.prims.unary import isfinite as isfinite
from dovetail.prims.unary import isinf as isinf
from dovetail.prims.unary import isnan as isnan
from dovetail.prims.unary import neg as neg
from dovetail.prims.unary import real as real
from dovetail.prims.unary import reciprocal as reciprocal
from dovetail.prims.unary import round as round
from dovetail.prims.unary import sign as sign
from dovetail.prims.unary import signbit as signbit
from dovetail.prims.unary import trunc as trunc

OPERATORS = {
    "neg": neg,
    "abs": abs,
    "invert": bitwise_not,
    "add": add,
    "sub": sub,
    "mul": mul,
    "truediv": div,
    "floordiv": floordiv,
    "mod": remainder,
    "pow": pow,
    "matmul": matmul,
    "and_": bitwise_and,
    "or_": bitwise_or,
    "xor": bitwise_xor,
    "lshift": bitwise_left_shift,
    "rshift": bitwise_right_shift,
    "eq": eq,
    "ne": ne,
    "lt": lt,
    "le": le,
    "gt": gt,
    "ge": ge,
}
"""The operators of Python on prims: what grad rules and passes use, where no other language is in force."""

__all__ = [
    "OPERATORS",
    "SYMBOLS",
    "NumberSpec",
    "Symbol",
    "Tag",
    "TensorSpec",
    "abs",
    "acos",
    "acosh",
    "add",
    "all",
    "amax",
    "amin",
    "any",
    "argmax",
    "argmin",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "bernoulli",
    "bitcast",
    "bitwise_and",
    "bitwise_left_shift",
    "bitwise_not",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "broadcast_in_dim",
    "cat",
    "ceil",
    "clone",
    "complex",
    "conj",
    "convert_element_type",
    "convolution",
    "convolution_input_grad",
    "convolution_weight_grad",
    "coo_mm",
    "copy_",
    "copysign",
    "cos",
    "cosh",
    "cummax",
    "cummin",
    "cumprod",
    "cumsum",
    "delete",
    "detach",
    "device_put",
    "diagonal",
    "digamma",
    "div",
    "embedding",
    "embedding_backward",
    "eq",
    "erf",
    "erfc",
    "erfinv",
    "exp",
    "exp2",
    "expm1",
    "exponential",
    "flip",
    "floor",
    "floordiv",
    "fmod",
    "fold_add",
    "frexp",
    "full",
    "ge",
    "get_grad",
    "gt",
    "imag",
    "index",
    "index_add",
    "index_copy",
    "index_put",
    "iota",
    "isfinite",
    "isinf",
    "isnan",
    "item",
    "le",
    "lgamma",
    "linear",
    "log",
    "log1p",
    "log2",
    "log10",
    "lt",
    "make_prim",
    "matmul",
    "maximum",
    "minimum",
    "mul",
    "multinomial",
    "ndtri",
    "ne",
    "neg",
    "nextafter",
    "no_recorder",
    "normal",
    "normal_philox",
    "pad",
    "polygamma",
    "pow",
    "prim",
    "print_",
    "prod",
    "put_diagonal",
    "put_grad",
    "put_slice",
    "randint",
    "randperm",
    "real",
    "reciprocal",
    "recorder",
    "register",
    "remainder",
    "reshape",
    "round",
    "row_major",
    "rsqrt",
    "scatter",
    "scatter_add",
    "sigmoid",
    "sign",
    "signbit",
    "sin",
    "sinh",
    "sort",
    "sqrt",
    "squeeze",
    "stride_order",
    "strided_slice",
    "sub",
    "sum",
    "symbol_named",
    "symbols_of",
    "take",
    "take_along_axis",
    "tan",
    "tanh",
    "tensor_from_sequence",
    "topk",
    "transpose",
    "trunc",
    "truncdiv",
    "unfold",
    "uniform",
    "uniform_philox",
    "var",
    "var_mean",
    "view_as_complex",
    "view_as_real",
    "view_strides",
    "where",
    "zeta",
]

"""Copies, moves, writes, and what leaves the program."""

from __future__ import annotations

from collections.abc import Iterator

from dovetail import devices, dtypes, prims
from dovetail.devices import Device
from dovetail.dtypes import DType
from dovetail_conformance.opinfo import ANY, OPINFOS, Directive, ErrorSample, Maker, OpInfo, SampleInput, by_numpy, unwritten
from dovetail_conformance.prims.shape import STORED, plain_samples, transpose_errors, transpose_samples


def copy_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    for x in make.layouts():
        if 0 not in x.stride() or x.numel() == 0:
            yield SampleInput((x, make(*x.shape)))
            yield SampleInput((make(*x.shape), x))


def history_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    for x in Maker(dtype, device).layouts():
        yield SampleInput((x, x.clone()))


def history_errors(device: Device) -> Iterator[ErrorSample]:
    yield ErrorSample((unwritten((2, 3)), unwritten((3,))), {}, RuntimeError, "expected a tensor with the shape")


def copy_errors(device: Device) -> Iterator[ErrorSample]:
    x = unwritten((2, 3))
    yield ErrorSample((x, unwritten((3,))), {}, RuntimeError, "expected a value with the shape")
    yield ErrorSample((x, unwritten((2, 3), dtypes.int64)), {}, RuntimeError, "expected a value with the shape")
    yield ErrorSample((unwritten((1,)).expand(3), unwritten((3,))), {}, RuntimeError, "share memory, so a write to it is ambiguous")


def device_put_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    for sample in plain_samples(dtype, device):
        yield SampleInput(sample.args, {"device": device})
    yield SampleInput((Maker(dtype, devices.cpu)(2, 3),), {"device": device})


def item_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    yield SampleInput((make(),))
    yield SampleInput((make(1, 1),))


def item_errors(device: Device) -> Iterator[ErrorSample]:
    yield ErrorSample((unwritten((2,)),), {}, RuntimeError, "expected a tensor of one element")
    yield ErrorSample((unwritten((0,)),), {}, RuntimeError, "expected a tensor of one element")


def print_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    yield SampleInput((Maker(dtype, device)(2),), {"message": "x is"})


def size_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    yield SampleInput((make(2, 3),), {"dim": 1})
    yield SampleInput((make(0),), {"dim": 0})


def size_errors(device: Device) -> Iterator[ErrorSample]:
    yield ErrorSample((unwritten((2,)),), {"dim": 1}, RuntimeError, "expected a dimension of")


def integer_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    yield SampleInput((), {"value": 7})


def arithmetic_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    for op in ("add", "sub", "mul", "truediv", "floordiv", "mod"):
        yield SampleInput((7, 2), {"op": op})
        yield SampleInput((0.5, True), {"op": op})
    yield SampleInput((-1.5, 2), {"op": "pow"})
    yield SampleInput((1.2345, 2), {"op": "round"})
    for op in ("neg", "pos", "abs", "int", "float"):
        yield SampleInput((True,), {"op": op})
        yield SampleInput((-3,), {"op": op})


def arithmetic_errors(device: Device) -> Iterator[ErrorSample]:
    yield ErrorSample((1, 2), {"op": "atan2"}, RuntimeError, "expected one of add, .*, got atan2")


def format_number_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    yield SampleInput((0.25,), {"form": ".3f"})
    yield SampleInput((7,), {"form": ""})


def format_tensor_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    yield SampleInput((make(2, 3),))
    yield SampleInput((make(),))


def join_text_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    yield SampleInput(("loss ", "0.250"), {})


def delete_samples(dtype: DType, device: Device) -> Iterator[SampleInput]:
    make = Maker(dtype, device)
    yield SampleInput((make(2), make(3)))


STATEMENT = "it prints as a statement of Python, which no executor runs"
OPINFOS += [
    OpInfo(prims.clone, plain_samples, reference=by_numpy(lambda x: x), dtypes=STORED, grad=True),
    OpInfo(prims.stride_order, transpose_samples, transpose_errors, by_numpy(lambda x, order: x), ANY, grad=True),
    OpInfo(prims.copy_, copy_samples, copy_errors, dtypes=STORED),
    OpInfo(prims.with_history, history_samples, history_errors, by_numpy(lambda x, other: x), STORED),
    OpInfo(prims.device_put, device_put_samples, reference=lambda x, device: x.clone().to(str(device)), dtypes=STORED, grad=True),
    OpInfo(prims.item, item_samples, item_errors, lambda x: x.tolist() if x.ndim == 0 else x.flatten().tolist()[0], dtypes=ANY),
    OpInfo(prims.print_, print_samples),
    OpInfo(prims.evaluate, format_tensor_samples, directives=(Directive("skip", STATEMENT),)),
    OpInfo(prims.size, size_samples, size_errors, lambda x, dim: x.shape[dim], directives=(Directive("skip", STATEMENT),)),
    OpInfo(prims.integer, integer_samples, reference=lambda value: value, directives=(Directive("skip", STATEMENT),)),
    OpInfo(prims.arithmetic, arithmetic_samples, arithmetic_errors, directives=(Directive("skip", STATEMENT),)),
    OpInfo(prims.format_number, format_number_samples, reference=lambda number, form: f"{number:{form}}", directives=(Directive("skip", STATEMENT),)),
    OpInfo(prims.format_tensor, format_tensor_samples, reference=str, directives=(Directive("skip", STATEMENT),)),
    OpInfo(prims.join_text, join_text_samples, reference=lambda *parts: "".join(parts), directives=(Directive("skip", STATEMENT),)),
    OpInfo(prims.delete, delete_samples, directives=(Directive("skip", "it prints as the statement `del`, which no executor runs"),)),
]

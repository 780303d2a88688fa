"""What a prologue does: take a call's arguments apart and check that a compiled program is the right one for them.

Each check is a statement that returns `miss`, an object that says which check failed, when it does.
"""

from __future__ import annotations

from typing import Any

from dovetail.prims.op import Tag, prim

GUARD = {Tag.GUARD, Tag.NO_GRAD}


@prim(tags=GUARD)
def unpack_item(x: Any, *, key: Any) -> None:
    """x[key], of a tuple, a list or a dict."""


@unpack_item.python
def unpack_item_python(target: str, x: str, *, key: str) -> str:
    return f"{target} = {x}[{key}]"


@prim(tags=GUARD)
def unpack_attr(x: Any, *, name: str) -> None:
    """The attribute `name` of x."""


@unpack_attr.python
def unpack_attr_python(target: str, x: str, *, name: str) -> str:
    return f"{target} = {x}.{name[1:-1]}"


@prim(tags=GUARD)
def unpack_call(function: Any) -> None:
    """What `function()` says now: a global switch such as the default dtype."""


@unpack_call.python
def unpack_call_python(target: str, function: str) -> str:
    return f"{target} = {function}()"


@prim(tags=GUARD)
def unpack_leaves(x: Any, *, flatten: Any, tree: Any, miss: Any) -> None:
    """The leaves of a nest of a kind that only `flatten` takes apart; it has to have the shape `tree`."""


@unpack_leaves.python
def unpack_leaves_python(target: str, x: str, *, flatten: str, tree: str, miss: str) -> str:
    return f"{target}, tree = {flatten}({x})\n    if tree != {tree}: return {miss}"


@prim(tags=GUARD)
def check_tensor(
    x: Any, *, type: Any, dtype: Any, shape: tuple[int, ...], device: Any, requires_grad: bool, strides: tuple[int, ...] | None, miss: Any
) -> None:
    """x is a tensor of this class, dtype, shape, device and layout; strides None is row-major, device None the CPU."""


@check_tensor.python
def check_tensor_python(target: str, x: str, *, type: str, dtype: str, shape: str, device: str, requires_grad: str, strides: str, miss: str) -> str:
    tests = (
        f"type({x}) is {type}",
        f"{x}.dtype is {dtype}",
        f"{x}.shape == {shape}",
        f"{x}.is_cpu" if device == "None" else f"{x}.device == {device}",
        f"{x}.requires_grad" if requires_grad == "True" else f"not {x}.requires_grad",
        f"{x}.is_contiguous()" if strides == "None" else f"{x}.stride() == {strides}",
    )
    return f"if not ({' and '.join(tests)}): return {miss}"


@prim(tags=GUARD)
def check_value(x: Any, *, type: type, value: Any, miss: Any) -> None:
    """x is of exactly this type and equals `value`."""


@check_value.python
def check_value_python(target: str, x: str, *, type: str, value: str, miss: str) -> str:
    if value in ("None", "True", "False"):
        return f"if {x} is not {value}: return {miss}"
    if type == "float" and value in ("0.0", "-0.0", 'float("nan")'):  # == does not tell the zeros apart, nor nan from nan
        return f"if type({x}) is not float or repr({x}) != repr({value}): return {miss}"
    return f"if type({x}) is not {type} or {x} != {value}: return {miss}"


@prim(tags=GUARD)
def check_type(x: Any, *, type: type, miss: Any) -> None:
    """x is of exactly this type."""


@check_type.python
def check_type_python(target: str, x: str, *, type: str, miss: str) -> str:
    return f"if type({x}) is not {type}: return {miss}"


@prim(tags=GUARD)
def check_length(x: Any, *, type: type, length: int, miss: Any) -> None:
    """x is of exactly this type and this length."""


@check_length.python
def check_length_python(target: str, x: str, *, type: str, length: str, miss: str) -> str:
    return f"if type({x}) is not {type} or len({x}) != {length}: return {miss}"


@prim(tags=GUARD)
def check_count(x: Any, *, length: int, miss: Any) -> None:
    """x has this length, whatever its type."""


@check_count.python
def check_count_python(target: str, x: str, *, length: str, miss: str) -> str:
    return f"if {x}: return {miss}" if length == "0" else f"if len({x}) != {length}: return {miss}"


@prim(tags=GUARD)
def check_keys(x: Any, *, type: type, keys: tuple, miss: Any) -> None:
    """x is a mapping of exactly this type with these keys in this order."""


@check_keys.python
def check_keys_python(target: str, x: str, *, type: str, keys: str, miss: str) -> str:
    test = f"or {x}" if keys == "()" else f"or tuple({x}) != {keys}"
    return f"if type({x}) is not {type} {test}: return {miss}"


@prim(tags=GUARD)
def check_identity(x: Any, *, value: Any, miss: Any) -> None:
    """x is this very object."""


@check_identity.python
def check_identity_python(target: str, x: str, *, value: str, miss: str) -> str:
    return f"if {x} is not {value}: return {miss}"


@prim(tags=GUARD)
def check_distinct(*tensors: Any, miss: Any) -> None:
    """No two of the tensors are the same object."""


@check_distinct.python
def check_distinct_python(target: str, *tensors: str, miss: str) -> str:
    if len(tensors) == 2:
        return f"if {tensors[0]} is {tensors[1]}: return {miss}"
    return f"if len({{{', '.join(f'id({x})' for x in tensors)}}}) != {len(tensors)}: return {miss}"


@prim(tags=GUARD)
def check_disjoint(written: tuple, others: tuple, *, overlap: Any, miss: Any) -> None:
    """None of the tensors that the program writes shares memory with another of its inputs."""


@check_disjoint.python
def check_disjoint_python(target: str, written: str, others: str, *, overlap: str, miss: str) -> str:
    return f"if {overlap}({written}, {others}): return {miss}"


@prim(tags=GUARD)
def call_program(program: Any, *inputs: Any) -> None:
    """The end of a prologue: `program` fits, and gives the result."""


@call_program.python
def call_program_python(target: str, program: str, *inputs: str) -> str:
    return f"return {program}({', '.join(inputs)})"

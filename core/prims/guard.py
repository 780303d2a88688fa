"""Prims of prologues: they read values out of a call's arguments and check that a compiled program fits them.

A check is a statement that returns `miss`, the object that names the failed check, where it does not hold.
"""

from __future__ import annotations

from typing import Any

from dovetail.prims.op import Tag, prim

GUARD = {Tag.GUARD, Tag.NO_GRAD}


_MISSING = "AttributeError, LookupError, TypeError, ValueError"


def _assignment(target: str, value: str, miss: str, errors: str = _MISSING) -> str:
    """Return an assignment as text; a value that is not there any more is a miss, unless it cannot be missing."""
    if miss == "None":
        return f"{target} = {value}"
    return f"try: {target} = {value}\n    except ({errors}): return {miss}"


@prim(tags=GUARD)
def unpack_item(x: Any, *, key: Any, miss: Any = None) -> None:
    """Return x[key], of a tuple, a list or a dict."""


@unpack_item.python
def unpack_item_python(target: str, x: str, *, key: str, miss: str = "None") -> str:
    return _assignment(target, f"{x}[{key}]", miss)


@prim(tags=GUARD)
def unpack_attr(x: Any, *, name: str, miss: Any = None) -> None:
    """Return the attribute `name` of x."""


@unpack_attr.python
def unpack_attr_python(target: str, x: str, *, name: str, miss: str = "None") -> str:
    return _assignment(target, f"{x}.{name[1:-1]}" if name[1:-1].isidentifier() else f"getattr({x}, {name})", miss)


@prim(tags=GUARD)
def unpack_field(x: Any, *, name: str, miss: Any = None) -> None:
    """Return the value under `name` in the instance dictionary of x."""


@unpack_field.python
def unpack_field_python(target: str, x: str, *, name: str, miss: str = "None") -> str:
    return _assignment(target, f"{x}.__dict__[{name}]", miss)


@prim(tags=GUARD)
def unpack_static(cls: Any, *, name: str, lookup: Any, miss: Any = None) -> None:
    """Return the attribute `name` of a class or of a base of it, unbound: lookup(cls, name)."""


@unpack_static.python
def unpack_static_python(target: str, cls: str, *, name: str, lookup: str, miss: str = "None") -> str:
    return _assignment(target, f"{lookup}({cls}, {name})", miss)


@prim(tags=GUARD)
def unpack_call(function: Any, *, miss: Any = None) -> None:
    """Return function(), as for a global setting such as the default dtype."""


@unpack_call.python
def unpack_call_python(target: str, function: str, *, miss: str = "None") -> str:
    return _assignment(target, f"{function}()", miss, f"{_MISSING}, RuntimeError")  # as x.stride() of a sparse tensor raises


@prim(tags=GUARD)
def unpack_fresh(x: Any, *, call: Any) -> None:
    """Return call(x): what a clock shows, or the next draw of the generator x, at this call."""


@unpack_fresh.python
def unpack_fresh_python(target: str, x: str, *, call: str) -> str:
    return f"{target} = {call}({x})"


@prim(tags=GUARD)
def unpack_contents(x: Any, *, base: type, contents: Any, miss: Any = None) -> None:
    """Return the contents of a container whose class derives from `base`, as a plain container: contents(x, base)."""


@unpack_contents.python
def unpack_contents_python(target: str, x: str, *, base: str, contents: str, miss: str = "None") -> str:
    return _assignment(target, f"{contents}({x}, {base})", miss)


@prim(tags=GUARD)
def unpack_array(x: Any, *, convert: Any, miss: Any = None) -> None:
    """The tensor that shares the memory of the array x, or holds the number x: convert(x)."""


@unpack_array.python
def unpack_array_python(target: str, x: str, *, convert: str, miss: str = "None") -> str:
    return _assignment(target, f"{convert}({x})", miss)


@prim(tags=GUARD)
def unpack_leaves(x: Any, *, flatten: Any, tree: Any, miss: Any) -> None:
    """Return the leaves of a nested value that `flatten` takes apart; it has to have the structure `tree`."""


@unpack_leaves.python
def unpack_leaves_python(target: str, x: str, *, flatten: str, tree: str, miss: str) -> str:
    return f"{target}, tree = {flatten}({x})\n    if tree != {tree}: return {miss}"


@prim(tags=GUARD)
def unpack_state(*, state: Any) -> None:
    """Return state(): what the decomposition reads of many modules, without running it where nothing has changed; a miss where it does not hold."""


@unpack_state.python
def unpack_state_python(target: str, *, state: str) -> str:
    return f"if type(state := {state}()) is not tuple: return state" + (f"\n    {target} = state" if target else "")


@prim(tags=GUARD)
def check_tensor(
    x: Any, *, type: Any, dtype: Any, shape: tuple[int, ...], device: Any, requires_grad: bool, strides: tuple[int, ...] | None, miss: Any
) -> None:
    """Check that x is a tensor of this class, dtype, shape, device and layout; strides None is row-major, device None the CPU."""


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
    # Tensors of other layouts, as sparse ones, raise for their strides, and nested ones for their shapes.
    return f"try:\n        if not ({' and '.join(tests)}): return {miss}\n    except RuntimeError: return {miss}"


@prim(tags=GUARD)
def check_tensors(*tensors: Any, fit: Any, missed: Any) -> None:
    """Check many tensors at once, as the decomposition does one by one: fit(*tensors), and where it is false missed(*tensors) is the miss or None."""


@check_tensors.python
def check_tensors_python(target: str, *tensors: str, fit: str, missed: str) -> str:
    names = ", ".join(tensors)
    return f"if not {fit}({names}) and (mismatch := {missed}({names})) is not None: return mismatch"


@prim(tags=GUARD)
def check_value(x: Any, *, type: type, value: Any, miss: Any) -> None:
    """Check that x is of exactly this type and equals `value`."""


@check_value.python
def check_value_python(target: str, x: str, *, type: str, value: str, miss: str) -> str:
    if value in ("None", "True", "False"):
        return f"if {x} is not {value}: return {miss}"
    if value in ("0.0", "-0.0") or "nan" in value or type == "complex":  # == does not tell the zeros apart, nor nan from nan
        return f"if type({x}) is not {type} or repr({x}) != repr({value}): return {miss}"
    return f"if type({x}) is not {type} or {x} != {value}: return {miss}"


@prim(tags=GUARD)
def check_type(x: Any, *, type: type, miss: Any) -> None:
    """Check that x is of exactly this type."""


@check_type.python
def check_type_python(target: str, x: str, *, type: str, miss: str) -> str:
    return f"if type({x}) is not {type}: return {miss}"


@prim(tags=GUARD)
def check_count(x: Any, *, length: int, miss: Any) -> None:
    """Check that x has this length."""


@check_count.python
def check_count_python(target: str, x: str, *, length: str, miss: str) -> str:
    return f"if {x}: return {miss}" if length == "0" else f"if len({x}) != {length}: return {miss}"


@prim(tags=GUARD)
def check_keys(x: Any, *, keys: tuple, miss: Any) -> None:
    """Check that x is a mapping with these keys in this order."""


@check_keys.python
def check_keys_python(target: str, x: str, *, keys: str, miss: str) -> str:
    return f"if {x}: return {miss}" if keys == "()" else f"if tuple({x}) != {keys}: return {miss}"


@prim(tags=GUARD)
def check_key_types(x: Any, *, types: tuple, miss: Any) -> None:
    """Check that the keys of x are of exactly these types: 1 is not True."""


@check_key_types.python
def check_key_types_python(target: str, x: str, *, types: str, miss: str) -> str:
    return f"if tuple(map(type, {x})) != {types}: return {miss}"


@prim(tags=GUARD)
def check_contains(x: Any, *, key: Any, present: bool, miss: Any) -> None:
    """Check that `key` is, or is not, in x."""


@check_contains.python
def check_contains_python(target: str, x: str, *, key: str, present: str, miss: str) -> str:
    return f"if {key} {'not in' if present == 'True' else 'in'} {x}: return {miss}"


@prim(tags=GUARD)
def check_unset(x: Any, *, name: str, has: Any, miss: Any) -> None:
    """Check that the slot `name` of x is empty: not has(x, name)."""


@check_unset.python
def check_unset_python(target: str, x: str, *, name: str, has: str, miss: str) -> str:
    return f"if {has}({x}, {name}): return {miss}"


@prim(tags=GUARD)
def check_relation(x: Any, *, other: Any, test: Any, holds: bool, miss: Any) -> None:
    """Check that test(x, other) is `holds`, as of isinstance."""


@check_relation.python
def check_relation_python(target: str, x: str, *, other: str, test: str, holds: str, miss: str) -> str:
    return f"if {'not ' if holds == 'True' else ''}{test}({x}, {other}): return {miss}"


@prim(tags=GUARD)
def check_answer(x: Any, *, other: Any, holds: Any, question: str, miss: Any) -> None:
    """Check what is asked of the number x, or of x and another: holds(x, other)."""


@check_answer.python
def check_answer_python(target: str, x: str, *, other: str, holds: str, question: str, miss: str) -> str:
    return f"if not {holds}({x}{'' if other == 'None' else f', {other}'}): return {miss}  # {question[1:-1]}"


@prim(tags=GUARD)
def check_truth(x: Any, *, value: bool, miss: Any) -> None:
    """Check that x is true, or that it is false."""


@check_truth.python
def check_truth_python(target: str, x: str, *, value: str, miss: str) -> str:
    return f"if {'not ' if value == 'True' else ''}{x}: return {miss}"


@prim(tags=GUARD)
def check_rank(x: Any, *, type: type, rank: int, miss: Any) -> None:
    """Check that x is a tensor of this class with `rank` dimensions, before its sizes are read."""


@check_rank.python
def check_rank_python(target: str, x: str, *, type: str, rank: str, miss: str) -> str:
    return f"if type({x}) is not {type} or {x}.ndim != {rank}: return {miss}"


@prim(tags=GUARD)
def check_sizes(*, condition: Any, miss: Any) -> None:
    """Check a condition on symbolic sizes."""


@check_sizes.python
def check_sizes_python(target: str, *, condition: str, miss: str) -> str:
    return f"if not ({condition}): return {miss}"


@prim(tags=GUARD)
def check_empty(*, containers: Any, miss: Any) -> None:
    """Check that each of many containers is empty."""


@check_empty.python
def check_empty_python(target: str, *, containers: str, miss: str) -> str:
    return f"if any({containers}): return {miss}"


@prim(tags=GUARD)
def check_absent(*, containers: Any, keys: Any, contains: Any, miss: Any) -> None:
    """Check that no container has the key at its place among `keys`."""


@check_absent.python
def check_absent_python(target: str, *, containers: str, keys: str, contains: str, miss: str) -> str:
    return f"if any(map({contains}, {containers}, {keys})): return {miss}"


@prim(tags=GUARD)
def check_objects(*, objects: tuple, classes: tuple, namespaces: tuple, same: Any, miss: Any) -> None:
    """Check that each object is of its class, and has its `__dict__`."""


@check_objects.python
def check_objects_python(target: str, *, objects: str, classes: str, namespaces: str, same: str, miss: str) -> str:
    return f"if not {same}({objects}, {classes}, {namespaces}): return {miss}"


@prim(tags=GUARD)
def check_items(*, containers: Any, keys: Any, values: Any, same: Any, miss: Any) -> None:
    """Check that each container has, under the key at its place, the very value at its place."""


@check_items.python
def check_items_python(target: str, *, containers: str, keys: str, values: str, same: str, miss: str) -> str:
    return f"if not {same}({containers}, {keys}, {values}): return {miss}"


@prim(tags=GUARD)
def check_modes(*, active: Any, miss: Any) -> None:
    """Check that the call is under no mode of torch that gives operations another meaning: active() returns its name, or None."""


@check_modes.python
def check_modes_python(target: str, *, active: str, miss: str) -> str:
    return f"if {active}() is not None: return {miss}"


@prim(tags=GUARD)
def check_identity(x: Any, *, value: Any, miss: Any) -> None:
    """Check that x is this very object."""


@check_identity.python
def check_identity_python(target: str, x: str, *, value: str, miss: str) -> str:
    return f"if {x} is not {value}: return {miss}"


@prim(tags=GUARD)
def check_other(x: Any, *, value: Any, miss: Any) -> None:
    """Check that x is another object."""


@check_other.python
def check_other_python(target: str, x: str, *, value: str, miss: str) -> str:
    return f"if {x} is {value}: return {miss}"


@prim(tags=GUARD)
def check_distinct(*tensors: Any, miss: Any) -> None:
    """Check that no two of the tensors are the same object."""


@check_distinct.python
def check_distinct_python(target: str, *tensors: str, miss: str) -> str:
    if len(tensors) == 2:
        return f"if {tensors[0]} is {tensors[1]}: return {miss}"
    return f"if len({{{', '.join(f'id({x})' for x in tensors)}}}) != {len(tensors)}: return {miss}"


@prim(tags=GUARD)
def check_disjoint(written: tuple, others: tuple, *buffers: Any, overlap: Any, miss: Any) -> None:
    """Check that no tensor which the program writes shares memory with another of its inputs, or with a buffer that it read by value."""


@check_disjoint.python
def check_disjoint_python(target: str, written: str, others: str, *buffers: str, overlap: str, miss: str) -> str:
    more = f", ({', '.join(buffers)},)" if buffers else ""
    return f"if {overlap}({written}, {others}{more}): return {miss}"


@prim(tags=GUARD)
def call_program(program: Any, *inputs: Any, objects: tuple = ()) -> None:
    """Return the result of `program`, which fits the call; `objects` are the outside objects that its result or its writes mention."""


@call_program.python
def call_program_python(target: str, program: str, *inputs: str, objects: str = "()") -> str:
    return f"return {program}({', '.join([*inputs, *([] if objects == '()' else [f'objects={objects}'])])})"

"""Operators of a tracked run."""

from __future__ import annotations

import operator
import re
import sys
from array import array
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from dovetail.errors import Unsupported
from dovetail.frontend.class_lookup import NULL, is_in_python, lookup
from dovetail.frontend.interpreter.protocols import dunder
from dovetail.frontend.interpreter.tracking.constructing import check_created
from dovetail.frontend.interpreter.tracking.container_bases import BASES, CONTAINERS, base_of
from dovetail.frontend.interpreter.tracking.holders import HOLDERS, check_held, parts_of
from dovetail.frontend.interpreter.tracking.membership import has_flag
from dovetail.frontend.interpreter.tracking.mirrors import ARRAYS, ORDER, MappingMirror, is_sequence, original
from dovetail.frontend.interpreter.tracking.t_strings import T_STRINGS, arguments_of

_LOOK_THROUGH = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge, operator.mod)  # compare or print all that is inside

_STR, _REPR = 1, 2  # of the conversions in an f-string
_BRACKETS = {list: ("[", "]"), tuple: ("(", ")"), dict: ("{", "}")}
_PLACE = re.compile(  # a conversion, or a percent sign
    r"%(?:%|(?:\((?P<name>[^()]*)\))?(?P<flags>[-+ 0]*)(?P<width>\d*)(?P<digits>\.\d+)?(?P<kind>[srdiufFeEgG]))"
)
_WHOLE = "diu"  # conversions that write an int
_JOINING = frozenset({operator.add, operator.iadd})
_COMPARING = frozenset(_LOOK_THROUGH[:-1])
_REPEATED = (str, bytes, bytearray, list, tuple, deque, array)
_SETS = (set, frozenset)
_DICT_VIEWS = (type({}.values()), type({}.items()))


def of_numpy(kind: type) -> bool:
    """Return whether a class is NumPy's own, as that of arrays and of its numbers."""
    return kind.__module__ == "numpy"


def _precedes_arrays(kind: type) -> bool:
    """Return whether an array on the left leaves an operator to the method of an object of this class on its right."""
    return lookup(kind, "__array_ufunc__") is None or lookup(kind, "__array_priority__") is not NULL


def _form(match: re.Match, kind: str) -> str | None:
    """Return how `format` writes a number as a conversion with % does; None where it does not."""
    flags, width, digits = match["flags"], match["width"], match["digits"]
    if match["kind"] in "sr":
        return None if flags or width or digits else ""
    if (match["kind"] in _WHOLE and (kind != "int" or digits)) or ("0" in flags and kind != "int"):  # infinity is not filled with zeros
        return None
    left, sign = "<" * ("-" in flags), "+" if "+" in flags else " " * (" " in flags)
    return f"{left}{sign}{'0' * ('0' in flags and not left)}{width}{digits or ''}{'d' if match['kind'] in _WHOLE else match['kind']}"


def _is_struct(kind: type) -> bool:
    """Return whether a class is that of several named results of an operation of torch, as torch.return_types.max."""
    return kind.__module__ == "torch.return_types"


def _brackets(kind: type) -> tuple[str, str] | None:
    """Return what C code writes around the items of a container of this class; None for other classes."""
    if _is_struct(kind):
        return f"{kind.__module__}.{kind.__qualname__}(\n", ")"
    base = next((base for base in _BRACKETS if issubclass(kind, base)), None)
    return _BRACKETS[base] if base is not None and lookup(kind, "__repr__") is base.__repr__ else None


def _named(value: Any) -> tuple[str, Any, str] | None:
    """Return what C code writes of a container whose text begins with the name of its class: text, a list or a dict, and text; None for others."""
    kind = type(value)
    if kind is OrderedDict:
        return "OrderedDict(", dict(value) if sys.version_info >= (3, 12) else list(value.items()), ")"
    if kind is defaultdict:
        return f"defaultdict({value.default_factory!r}, ", dict(value), ")"
    if kind is deque:
        return "deque(", list(value), ")" if value.maxlen is None else f", maxlen={value.maxlen})"
    return (f"{kind.__name__}(", list(value), ")") if kind in _DICT_VIEWS else None


def _items(container: Any) -> list[Any]:
    """Return the items of a list or a tuple, or the values of a dict, as C code reads them."""
    return list(dict.values(container) if isinstance(container, dict) else base_of(container).__iter__(container))


class Operators:
    """Operators on tensors are recorded; those on outside containers see copies; identity and truth are facts to guard."""

    def unary(self, op: Callable, x: Any) -> Any:
        if self.recorder.is_tensor(x):
            return self.recorder.operate(self, op, [x])
        return super().unary(op, x)

    def operator(self, op: Callable, x: Any, y: Any, name: str, reflected: str) -> Any:
        if self.recorder.writes_text and op not in _JOINING:
            x, y = (self.recorder.concrete(part) if self.recorder.is_text(part) else part for part in (x, y))
        if op is operator.mod and type(x) is str:
            x, y = self.by_position(x, y)
            if (text := self.filled_in(x, y)) is not NULL:
                return text
        if op is operator.mod and isinstance(x, (str, bytes)):
            y = tuple(map(self.spelled, y)) if isinstance(y, tuple) and self.source(y) is None else self.spelled(y)
            self.words(y if isinstance(y, tuple) else (y,))
        left, right = self.recorder.is_tensor(x), self.recorder.is_tensor(y)
        if not left and not right:
            return super().operator(op, x, y, name, reflected)
        method = None if left and right else self.method(y, reflected) if left else self.method(x, name)
        if left and not right and of_numpy(self.recorder.class_of(x)) and not _precedes_arrays(type(y)):
            method = None
        if method is not None:  # an object that knows what to do with a tensor
            result = self.call_function(method, [y, x] if left else [x, y], {})
            if result is not NotImplemented:
                return result
        return self.recorder.operate(self, op, [self.plain(x), self.plain(y)])

    def native_operator(self, op: Callable, x: Any, y: Any) -> Any:
        if type(x) in self.atoms and type(y) in self.atoms:
            return op(x, y)
        for value in (x, y):
            self.check_settled(value, dunder(op))
            check_created(value, dunder(op))
            if isinstance(value, Decimal):
                self.guard_decimals()
        if op in _COMPARING and (result := self.compare_containers(op, x, y)) is not NULL:
            return result
        if op in _COMPARING:
            for value in (x, y):
                self.pin_held(value)
                if not isinstance(value, BASES) and lookup(type(value), "__eq__") is not object.__eq__:
                    check_held(value, ORDER)
        if op is operator.mod and type(x) is str:
            x, y = self.by_position(x, y)
            if (text := self.filled_in(x, y)) is not NULL:
                return text
        if op is operator.mod and isinstance(x, (str, bytes)):
            if isinstance(y, dict) and self.looks_up_in_python(y):
                return op(x, MappingMirror(self, y))
            words = [self.plain(part, mirrored=True) for part in self.raw_iter(y)] if isinstance(y, tuple) else None
            return op(x, self.plain(y, mirrored=True) if words is None else tuple(words))
        if op is operator.mul:
            x, y = (self.indexed(a) if isinstance(b, _REPEATED) else a for a, b in ((x, y), (y, x)))
        if isinstance(x, _SETS) and isinstance(y, _SETS):
            x, y = self.copied(self.effects.shadow(x)), self.copied(self.effects.shadow(y))
            self.probe(x, *y)
        for operand, other in ((x, y), (y, x)):
            if of_numpy(type(operand)) and not of_numpy(type(other)):
                (read,) = self.all_read_by_c([other], into_arrays=True)
                self.recorder.native(self, getattr(type(operand), dunder(op), type(operand)), [read], {})
                return original(op(x, read) if operand is x else op(read, y))
        seen = self.plain if op in _LOOK_THROUGH else self.shallow
        x, y = seen(x), seen(y)
        if type(x) in self.recorder.atoms or type(y) in self.recorder.atoms:  # as torch.Size, which asks for the value of what is joined to it
            x, y = self.recorder.sized((x, y))
        return super().native_operator(op, x, y)

    def as_sizes(self, value: Any) -> Any:
        """Return plain arguments of C code with ints in the place of the objects that stand for them by an `__index__` in Python."""
        kind = type(value)
        if kind in (list, tuple):
            parts = list(map(self.as_sizes, value))
            return value if all([a is b for a, b in zip(parts, value, strict=True)]) else kind(parts)
        if kind is slice:
            bounds = value.start, value.stop, value.step
            return slice(*[x if self.recorder.may_be_size(x) else self.indexed(x) for x in bounds])
        if kind in self.atoms or not is_in_python(lookup(kind, "__index__")) or lookup(kind, "__torch_function__") is not NULL:
            return value
        return value if self.recorder.is_tensor(value) else self.indexed(value)

    def listed(self, value: Any) -> Any:
        """Return nested sequences as lists: ranges, deques, and objects of classes in Python that PyTorch reads item by item."""
        kind = type(value)
        if kind in (range, deque) or is_sequence(kind):
            return [self.listed(item) for item in self.spread(value)]
        if kind not in (list, tuple):
            return value
        parts = list(map(self.listed, value))
        return value if all([a is b for a, b in zip(parts, value, strict=True)]) else kind(parts)

    def array_like(self, value: Any) -> Any:
        """Return what a function of NumPy's reads instead of an object, for one of a class in Python and for a deque; other values as they are."""
        kind = type(value)
        if kind in self.atoms or self.recorder.is_tensor(value) or of_numpy(kind) or callable(value):
            return value
        if kind is deque or is_sequence(kind):
            return [self.array_like(item) for item in self.spread(value)]
        if (method := self.method(value, "__array__")) is not None:
            return self.call_function(method, [value], {})
        if self.method(value, "__index__") is not None:
            return self.indexed(value)
        if any([self.method(value, name) is not None for name in ARRAYS]):
            raise Unsupported(f"a {kind.__qualname__} takes part in NumPy's functions by itself, which is not traced beside traced arrays")
        return value

    def inplace(self, op: Callable, x: Any, y: Any) -> Any:
        if self.recorder.is_tensor(x):
            return self.recorder.operate(self, op, [x, self.plain(y)])
        self.recorder.meets(self, x, y)
        name = dunder(op)
        if not isinstance(x, BASES) or self.method(x, name) is not None or not hasattr(type(x), name):
            return super().inplace(op, x, y)
        change = self.base_method if self.source(x) is None else self.changed
        if change(x, name, [self.shallow(y)], {}) is NotImplemented:
            return self.operator(op, x, y, f"__{name[3:]}", f"__r{name[3:]}")
        return x

    def is_(self, x: Any, y: Any) -> bool:
        result = x is y
        one, other = self.source(x), self.source(y)
        if one is None or one.kind == "const":
            x, y, one, other = y, x, other, one
        if one is None or one.kind == "const" or one is other:
            return result
        if other is not None and (other.kind != "const" or (self.recorder.is_tensor(x) and self.recorder.is_tensor(y))):
            self.guard("same" if result else "notsame", one, other)
        elif (other is not None or type(y) in self.atoms) and not self.recorder.is_tensor(x):
            self.guard("is" if result else "isnot", one, y)
        return result

    def has_flag(self, value: Any, flag: int) -> bool:
        return has_flag(self, value, flag)

    def truth(self, value: Any) -> bool:
        if self.recorder.is_tensor(value):
            return self.recorder.truth(self, value)
        value = self.effects.shadow(value)
        if id(value) in self.views:
            return self.raw_len(value) > 0
        if self.method(value, "__bool__") is None and self.method(value, "__len__") is None:
            source, kind = self.outside(value), type(value)
            if source is not None and (lookup(kind, "__bool__") is not NULL or lookup(kind, "__len__") is not NULL):
                self.guard("truthy" if value else "falsy", source)
        return super().truth(value)

    def is_text(self, value: Any) -> bool:
        return self.recorder.is_text(value)

    def join_text(self, parts: list[Any]) -> Any:
        return self.recorder.joined(parts)

    def legible(self, tree: Any) -> Any:
        """Return arguments of C code with the texts in them that the program writes numbers into, as they are in this call."""
        if type(tree) in (list, tuple):
            parts = [self.legible(part) for part in tree]
            return tree if all([a is b for a, b in zip(parts, tree, strict=True)]) else type(tree)(parts)
        if type(tree) is dict:
            items = {key: self.legible(part) for key, part in tree.items()}
            return tree if all([items[key] is tree[key] for key in tree]) else items
        return self.recorder.concrete(tree) if self.recorder.is_text(tree) else tree

    def words(self, values: Any, above: tuple[int, ...] = ()) -> None:
        """Check values, with what is in them, that are about to be written out; `above` are containers around them, which may be in themselves."""
        for value in values:
            if self.recorder.is_tensor(value):
                self.recorder.words(value)
            elif (type(value) in CONTAINERS or _brackets(type(value))) and len(value) and id(value) not in above:
                parts = self.plain(value)
                self.words([*parts, *parts.values()] if isinstance(parts, dict) else parts, (*above, id(value)))
            elif type(value) in T_STRINGS:
                self.words(arguments_of(value), above)
            elif self.recorder.is_buffer(value):
                self.recorder.printed(self)
            elif isinstance(value, HOLDERS) and id(value) not in above and self.first_method(value, ("__str__", "__repr__")) is None:
                self.words(parts_of(value), (*above, id(value)))

    def spelled(self, value: Any) -> Any:
        """Return a value that is about to be written out: of numbers of the program in it what they are, where that can be known."""
        if self.recorder.is_number(value):
            return self.recorder.concrete(value)
        container = self.plain(value) if type(value) in _BRACKETS else None
        if not self._has_numbers(container, ()):
            return value
        if type(container) is dict:
            return {key: self.spelled(part) for key, part in container.items()}
        return type(container)(map(self.spelled, container))

    def by_position(self, template: str, values: Any) -> tuple[str, Any]:
        """Return a template and its values with numbers of the program for tensors that it writes as numbers, and without names of values."""
        places = [match for match in _PLACE.finditer(template) if match["kind"]]
        names = [match["name"] for match in places]
        if type(values) is dict and self.source(values) is None and None not in names and "%" not in _PLACE.sub("", template):
            template = _PLACE.sub(lambda match: match[0].replace(f"({match['name']})", "", 1), template)
            values = tuple([self.get_item(values, name) for name in names])
        items = tuple.__add__(values, ()) if isinstance(values, tuple) else (values,)
        if len(items) != len(places):
            return template, values
        numbers = tuple([self._as_written(match["kind"], item) for match, item in zip(places, items, strict=True)])
        return template, values if all([a is b for a, b in zip(numbers, items, strict=True)]) else numbers

    def _as_written(self, kind: str, value: Any) -> Any:
        """Return a value as the conversion `kind` takes it: a number of the program for a tensor, where it takes numbers."""
        if kind in "sr" or not (self.recorder.is_tensor(value) or self.recorder.is_number(value)):
            return value
        number = self.recorder.converted(value, int if kind in _WHOLE else float)
        return value if number is NULL else number

    def filled_in(self, template: str, values: Any) -> Any:
        """Return `template % values` with numbers of the program among the values, as text of the program; NULL for others."""
        values = tuple.__add__(values, ()) if isinstance(values, tuple) else (values,)
        places = [match for match in _PLACE.finditer(template) if match["kind"]]
        values = tuple([self.recorder.formatted(x) if self.recorder.is_symbolic(x) else x for x in values])
        if len(places) != len(values) or "%" in _PLACE.sub("", template) or not any(map(self._is_written, values)):
            return NULL
        forms = [self._form(match, value) for match, value in zip(places, values, strict=True)]
        if None in forms:
            return NULL
        waiting, at, pieces = iter(zip(values, forms, strict=True)), 0, list[Any]()
        for match in _PLACE.finditer(template):
            pieces.append(template[at : match.start()])
            at = match.end()
            if not match["kind"]:
                pieces.append("%")
                continue
            value, form = next(waiting)
            if self.recorder.is_number(value):
                text = self.recorder.text(value, form)
            else:
                text = self.format(value, 1 + (match["kind"] == "r"), None) if self._is_written(value) else NULL
            pieces.append(match[0] % (self.spelled(value),) if text is NULL else text)
        return self.join_text([*pieces, template[at:]])

    def _is_written(self, value: Any) -> bool:
        """Return whether the text of a value may have numbers of the program in it."""
        return self._has_numbers(value, ()) or self.first_method(value, ("__str__", "__repr__")) is not None

    def _form(self, match: re.Match, value: Any) -> str | None:
        """Return how `format` writes a value as a conversion with % does; None where it does not."""
        if self.recorder.is_number(value):
            return _form(match, value.spec.kind)
        if type(value) in (int, float, str):
            return ""
        return None if match["kind"] not in "sr" or match["flags"] or match["width"] or match["digits"] else ""

    def str(self, value: Any) -> Any:
        """Return str(value) of what `repr` takes, as text of the program; NULL for others."""
        if not isinstance(value, BaseException):
            return self.repr(value)
        method, args = lookup(type(value), "__str__"), value.args
        if method not in (BaseException.__str__, KeyError.__str__) or not any([self._has_numbers(part, ()) for part in args]):
            return NULL
        if len(args) > 1:
            return self.repr(args)
        return self.format(args[0], _STR if method is BaseException.__str__ else _REPR, None)

    def repr(self, value: Any) -> Any:
        """Return repr(value) of a tensor, or of what holds tensors or numbers of the program, as text of the program; NULL for others."""
        if self.recorder.has_text(value):
            return self.recorder.text_of(value)
        created = isinstance(value, BaseException) or (_named(value) is not None and self.source(value) is None)
        container = self.plain(value) if _brackets(type(value)) else value if created else None
        return self.join_text(self._pieces(container)) if self._has_numbers(container, ()) else NULL

    def _has_numbers(self, value: Any, above: tuple[int, ...]) -> bool:
        """Return whether a container or an exception has in it what the program may write out, and not itself."""
        if self.recorder.is_number(value) or self.recorder.has_text(value) or (above and self._writes_itself(value)):
            return True
        if isinstance(value, BaseException):
            value = value.args if lookup(type(value), "__repr__") is BaseException.__repr__ and self.source(value) is None else ()
        if (named := _named(value)) is not None and id(value) not in above:
            return self._has_numbers(named[1], (*above, id(value)))
        if not _brackets(type(value)) or id(value) in above:
            return False
        return any([self._has_numbers(part, (*above, id(value))) for part in _items(value)])

    def _writes_itself(self, value: Any) -> bool:
        """Return whether an object of the program has a method in Python that writes it out."""
        if type(value) in self.atoms or self.recorder.is_tensor(value) or self.recorder.is_text(value) or self.source(value) is not None:
            return False
        return self.first_method(value, ("__repr__",)) is not None

    def _pieces(self, value: Any) -> list[Any]:
        """Return the parts of repr(value), which are texts, and texts of the program."""
        if self._writes_itself(value):
            return [self.call(repr, [value], {}, None)]
        if not self._has_numbers(value, ()):
            return [self.format(value, _REPR, None)]
        if self.recorder.is_number(value):
            text = self.recorder.text(value, "")
            return [repr(self.spelled(value)) if text is NULL else text]
        if self.recorder.has_text(value):
            return [self.recorder.text_of(value)]
        if isinstance(value, BaseException):
            arguments = self._pieces(value.args)
            return [type(value).__name__, *arguments[:-2], *arguments[-1:]]
        if (named := _named(value)) is not None:
            return [named[0], *self._pieces(named[1]), named[2]]
        opening, closing = _brackets(type(value))
        separator, labels = (",\n", [f"{name}=" for name in value.__match_args__]) if _is_struct(type(value)) else (", ", [""] * len(value))
        labels = [f"{key!r}: " for key in dict.keys(value)] if isinstance(value, dict) else labels
        items = [piece for label, part in zip(labels, _items(value), strict=True) for piece in (separator, label, *self._pieces(part))][1:]
        return [opening, *items, "," if opening == "(" and len(value) == 1 else "", closing]

    def format(self, value: Any, conversion: int, spec: str | None) -> Any:
        value = self.recorder.formatted(value) if (not conversion or self.recorder.is_symbolic(value)) and self.recorder.is_tensor(value) else value
        spec = self.spelled(spec)
        if self.recorder.is_text(value) and conversion < _REPR and not spec:
            return value
        if self.recorder.is_number(value) and not (conversion and spec) and (text := self.recorder.text(value, spec or "")) is not NULL:
            return text
        if (conversion or not spec) and conversion <= _REPR and (text := (self.repr if conversion == _REPR else self.str)(value)) is not NULL:
            if not spec:
                return text
            value, conversion = text, 0
        value = self.spelled(self.legible(value) if self.recorder.writes_text else value)
        self.words((value,))
        return super().format(self.plain(value, mirrored=True), conversion, spec)

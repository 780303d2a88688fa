"""The operands of a comparison, computed once more in the frame that is about to branch: on which side a size or a constant stands."""

from __future__ import annotations

import ast
from collections.abc import Callable
from types import CodeType
from typing import Any

PURE = (  # methods and functions that change nothing and cost little
    *("numel", "dim", "size", "stride", "item", "storage_offset", "element_size", "nelement", "ndimension"),
    *("max", "min", "sum", "abs", "amax", "amin", "mean", "any", "all", "count_nonzero", "prod", "norm"),
)
BUILTINS = ("len", "abs", "max", "min", "int", "float", "round", "sum", "prod", "fabs", "log2", "sqrt")
COMPARED = (ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn)
LARGE = 1 << 22  # elements above which a tensor is not looked at


def operands(text: str) -> tuple[CodeType, CodeType] | None:
    """Compile both sides of a comparison; None for what is no comparison of two numbers, or has effects."""
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError:
        return None
    if not isinstance(tree, ast.Compare) or len(tree.ops) != 1 or not isinstance(tree.ops[0], COMPARED):
        return None
    sides = (tree.left, tree.comparators[0])
    if not all(map(_is_pure, sides)):
        return None
    left, right = (compile(ast.Expression(side), "<operand>", "eval") for side in sides)
    return left, right


def _is_pure(tree: ast.AST) -> bool:
    if isinstance(tree, ast.Call):
        name = tree.func.attr if isinstance(tree.func, ast.Attribute) else tree.func.id if isinstance(tree.func, ast.Name) else ""
        allowed = name in PURE or name in BUILTINS
        parts = [*tree.args, *(word.value for word in tree.keywords), *([tree.func.value] if isinstance(tree.func, ast.Attribute) else [])]
        return allowed and all(map(_is_pure, parts))
    if isinstance(tree, (ast.Constant, ast.Name)):
        return True
    if isinstance(tree, (ast.Attribute, ast.Subscript, ast.BinOp, ast.UnaryOp, ast.Compare, ast.Tuple, ast.List, ast.Set, ast.Slice)):
        return all(_is_pure(child) for child in ast.iter_child_nodes(tree) if isinstance(child, ast.expr))
    return False


def difference(sides: tuple[CodeType, CodeType], names: dict[str, Any], scope: dict[str, Any]) -> tuple[float, float] | None:
    """Return both sides of a comparison as numbers; None where they are none."""
    try:
        left, right = (_number(eval(side, names, scope)) for side in sides)  # pure expressions of the plugin's own code
    except Exception:
        return None
    if isinstance(left, float) and isinstance(right, (tuple, list, set, frozenset)):
        numbers = [n for each in right if (n := _number(each)) is not None and isinstance(n, float)]
        right = min(numbers, key=lambda n: abs(n - left), default=None)
    return (left, right) if isinstance(left, float) and isinstance(right, float) else None


def _number(value: Any) -> Any:
    """Return a number as a float, a collection as it is, None for anything else."""
    if type(value) in (int, float, bool):
        return float(value)
    if type(value) in (tuple, list, set, frozenset):
        return value
    numel: Callable[[], int] | None = getattr(value, "numel", None)
    return float(value) if numel is not None and numel() == 1 and not getattr(value, "is_complex", bool)() else None

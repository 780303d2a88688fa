"""Operations of torch without a decomposition that compute one result for each item along leading dimensions of their arguments."""

from __future__ import annotations

from typing import Any

from dovetail.langs.torch.binding.opaque import OpaqueSymbol
from dovetail.langs.torch.binding.symbol import resolve
from dovetail.prims import Symbol, TensorSpec
from dovetail.trace import leaves, proxies, tree_map

_NAMES = (
    *(
        "cholesky",
        "cholesky_inverse",
        "cholesky_solve",
        "det",
        "geqrf",
        "inverse",
        "linalg_cholesky",
        "logdet",
        "lu_solve",
        "matrix_exp",
        "matrix_power",
    ),
    *("orgqr", "ormqr", "pinverse", "qr", "slogdet", "svd", "triangular_solve"),
    *(f"linalg.{name}" for name in ("cholesky", "cholesky_ex", "cond", "det", "eig", "eigh", "eigvals", "eigvalsh", "householder_product", "inv")),
    *(f"linalg.{name}" for name in ("inv_ex", "ldl_factor", "lstsq", "lu", "lu_factor", "lu_solve", "matrix_exp", "matrix_power", "matrix_rank")),
    *(f"linalg.{name}" for name in ("pinv", "qr", "slogdet", "solve", "solve_ex", "solve_triangular", "svd", "svdvals")),
)
BATCH_FIRST = frozenset(fn for name in _NAMES for place in ("torch", "torch.Tensor") if (fn := resolve(f"{place}.{name}")) is not None)
_KINDS = ("opaque", "opaque_resolved", "opaque_vjp")


def runs_on_batches(symbol: Symbol, size: int, args: tuple, kwargs: dict[str, Any], out: Any) -> bool:
    """Return whether a call with one more leading dimension of `size` in all tensors computes what a call for each item does.

    `args` and `kwargs` are those of the batch, `out` the result for one example.
    """
    if not isinstance(symbol, OpaqueSymbol) or symbol.func not in BATCH_FIRST or symbol.kind not in _KINDS:
        return False
    positional = args[2] if symbol.kind == "opaque_vjp" else args
    if len({len(p.spec.shape) for p in proxies((positional, kwargs))}) != 1:
        return False  # a vector beside a matrix: which dimension counts items would depend on sizes
    specs = symbol.meta(*tree_map(lambda x: getattr(x, "spec", x), args), **tree_map(lambda x: getattr(x, "spec", x), kwargs))
    shapes = [spec.shape for spec in leaves(specs) if isinstance(spec, TensorSpec)]
    return shapes == [(size, *p.spec.shape) for p in proxies(out)]

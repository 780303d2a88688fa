"""Programs of NumPy for `test_numpy_jit.py`: what a compiled function of arrays may call, one entry for each function and way to call it."""

from __future__ import annotations

import numpy as np

UNARY = (
    *("absolute", "arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctanh", "ceil", "conjugate", "cos", "cosh", "deg2rad", "degrees"),
    *("exp", "exp2", "expm1", "fabs", "floor", "isfinite", "isinf", "isnan", "log", "log10", "log1p", "log2", "logical_not", "negative", "positive"),
    *("rad2deg", "radians", "reciprocal", "rint", "sign", "signbit", "sin", "sinh", "sqrt", "square", "tan", "tanh", "trunc", "invert"),
    *("real", "imag", "angle", "sinc", "fix", "nan_to_num", "isreal", "iscomplex", "isneginf", "isposinf"),
)
BINARY = (
    *(
        "add",
        "arctan2",
        "bitwise_and",
        "bitwise_or",
        "bitwise_xor",
        "copysign",
        "divide",
        "equal",
        "float_power",
        "floor_divide",
        "fmax",
        "fmin",
        "fmod",
    ),
    *("greater", "greater_equal", "heaviside", "hypot", "left_shift", "less", "less_equal", "logaddexp", "logaddexp2", "logical_and", "logical_or"),
    *("logical_xor", "maximum", "minimum", "multiply", "nextafter", "not_equal", "power", "remainder", "right_shift", "subtract", "true_divide"),
    *("divmod", "isclose"),
)
REDUCTIONS = ("sum", "prod", "mean", "std", "var", "max", "min", "any", "all", "argmax", "argmin", "ptp", "count_nonzero", "median", "average")
NAN_REDUCTIONS = ("nansum", "nanprod", "nanmean", "nanstd", "nanvar", "nanmax", "nanmin")

ONE = {  # of one array of two dimensions
    **{name: (lambda x, name=name: getattr(np, name)(x)) for name in UNARY if hasattr(np, name)},
    **{f"{name}()": (lambda x, name=name: getattr(np, name)(x)) for name in REDUCTIONS + NAN_REDUCTIONS},
    **{f"{name}(axis=0)": (lambda x, name=name: getattr(np, name)(x, axis=0)) for name in REDUCTIONS + NAN_REDUCTIONS},
    **{f"{name}(axis=-1, keepdims)": (lambda x, name=name: getattr(np, name)(x, axis=-1, keepdims=True)) for name in REDUCTIONS},
    **{f".{name}(axis=(0, 1))": (lambda x, name=name: getattr(x, name)(axis=(0, 1))) for name in ("sum", "prod", "mean", "max", "min", "any", "all")},
    "var(ddof=1)": lambda x: (np.var(x, ddof=1), x.std(axis=0, ddof=1)),
    "sum(dtype)": lambda x: (x.sum(dtype="f8"), np.sum(x, axis=(), dtype=np.float32), np.mean(x, dtype=np.float64)),
    "cumsum": lambda x: (np.cumsum(x), x.cumsum(axis=1), np.cumprod(x, axis=0)),
    "reduce": lambda x: (np.add.reduce(x), np.multiply.reduce(x, axis=1), np.maximum.reduce(x), np.logical_or.reduce(x, axis=None)),
    "sort": lambda x: (np.sort(x), np.sort(x, axis=0), np.sort(x, axis=None)),
    "argsort": lambda x: (np.argsort(x, kind="stable"), x.argsort(axis=0, kind="stable")),
    "take": lambda x: (np.take(x, [0, -1]), np.take(x, 1, axis=1), x.take([[0], [1]], axis=0)),
    "take_along_axis": lambda x: np.take_along_axis(x, np.argsort(x, axis=1, kind="stable"), axis=1),
    "isin": lambda x: (np.isin(x, x[0]), np.isin(x, [1, 2], invert=True), np.isin(x[0] == x[1], x[1] == x[2])),
    "roll": lambda x: (np.roll(x, 1), np.roll(x, 2, axis=1), np.roll(x, (1, -1), axis=(0, 1))),
    "flip": lambda x: (np.flip(x), np.flip(x, 1), np.fliplr(x), np.flipud(x), np.rot90(x)),
    "diagonal": lambda x: (np.diagonal(x), np.diag(x, 1), np.diag(x[0]), np.trace(x), x.trace(offset=1)),
    "tril": lambda x: (np.tril(x), np.triu(x, 1)),
    "shapes": lambda x: (
        x.T,
        x.reshape(-1),
        x.reshape(2, -1),
        np.transpose(x),
        x.swapaxes(0, 1),
        x[None],
        np.expand_dims(x, 1),
        x.ravel(),
        x.flatten(),
    ),
    "atleast": lambda x: (np.atleast_1d(x), np.atleast_2d(x[0]), np.atleast_3d(x), np.squeeze(x[:, :1]), x[:1].squeeze(0)),
    "moveaxis": lambda x: (np.moveaxis(x, 0, 1), np.rollaxis(x, 1), np.broadcast_to(x, (2, *x.shape))),
    "joining": lambda x: (np.concatenate([x, x], axis=1), np.concatenate((x, x), axis=None), np.stack([x, x]), np.vstack([x, x]), np.hstack([x, x])),
    "columns": lambda x: (np.column_stack([x[:, 0], x]), np.dstack([x, x]), np.append(x, x), np.append(x, x, axis=0)),
    "splitting": lambda x: (*np.split(x, 2, axis=1), *np.array_split(x, 3, axis=1), *np.hsplit(x, 2)),
    "repeat": lambda x: (np.repeat(x, 2), x.repeat(3, axis=1), np.tile(x, 2), np.tile(x, (2, 1, 2))),
    "pad": lambda x: (np.pad(x, 1), np.pad(x, ((0, 1), (2, 0)), constant_values=3)),
    "like": lambda x: (np.zeros_like(x), np.ones_like(x), np.full_like(x, 1), np.empty_like(x).shape, np.zeros_like(x, dtype="f4", shape=(2,))),
    "creation": lambda x: (np.zeros(x.shape) + x, np.ones(3, dtype=x.dtype), np.full((2, 2), 7) * x[:2, :2], np.arange(4) * x),
    "array": lambda x: (np.array(x), np.asarray(x), np.array([x[0, 0], x[1, 1], 2]), np.array([[x[0, 0], 1], [2, x[1, 0]]]), np.ascontiguousarray(x)),
    "astype": lambda x: (x.astype("f4"), x.astype(np.int64), x.astype(bool), x.astype(complex), np.astype(x, np.float64)),
    "clip": lambda x: (np.clip(x, 1, 2), x.clip(1), x.clip(max=2), np.clip(x, None, 2)),
    "round": lambda x: (np.round(x, 1), x.round(), np.around(x)),
    "where": lambda x: (np.where(x > 1, x, 0), np.where(x > 1, 1, 2), np.where(x, x, 1.5), np.where(x[0, 0] > 1, x[0, 0], x[0, 1])),
    "scalars": lambda x: (x[0, 0], x[0, 0] + 1, x[0][1], x.sum() * 2, x[0, 0].astype("f4"), x[0, 0].copy(), np.copy(x[0, 0]), x[0, 0].reshape(1)),
    "zero dimensions": lambda x: (
        x[0, 0, ...],
        x[0, 0, ...] + 1,
        x[:1, :1].reshape(()),
        x[:1, :1].squeeze(),
        np.zeros(()),
        np.where(True, x[0, 0], x[0, 1]),
    ),
    "operators": lambda x: (x + 1, 1 + x, x * 2, x - x, x / 2, 1 / (x * x + 1), x**2, 2**x, -x, +x, abs(x)),
    "integer operators": lambda x: (x // 2, x % 3, 7 // (x * x + 1), divmod(x, 2), x & 1, x | 2, x ^ 3, x << 1, x >> 1, ~x),
    "comparisons": lambda x: (x < 1, x <= x, x == 1, x != 2, x > 1.5, x >= 0, x > 1),
    "numbers of NumPy": lambda x: (x + np.float32(1.5), np.float64(2) * x, x * np.int8(3), x / np.int64(2), np.float32(1) < x),
    "python numbers": lambda x: (x + 1.5, x * True, x + 1j, x - 2),
    "slices": lambda x: (x[1:], x[:, ::2], x[::-1], x[..., 0], x[-1], x[1, ::-2], x[:, None, 1:], x[0:0]),
    "picks": lambda x: (x[[1, 0]], x[:, [0, 0, 2]], x[np.array([0, 1]), np.array([2, 1])], x[[True, False, True]], x[np.int64(1)], x[[0], 1:]),
    "mixed picks": lambda x: (x[None][0, :, [0, 1]], x[:, None][:, 0, [[0], [1]]], x[x.argmax() % 3, 0], x[np.argmin(x, axis=1) % 3]),
    "interp": lambda x: (
        np.interp(x, [-2.0, 0.5, 3.0], [1.0, -1.0, np.inf]),
        np.interp(x[0], x[1].cumsum() * 0 + np.arange(x.shape[1]), x[1], left=-7.0, right=9),
        np.interp(x, [1.0], [3.0]),
    ),
    "diff": lambda x: (np.diff(x), np.diff(x, axis=0), np.diff(x, 2)),
    "gradient": lambda x: np.gradient(x, axis=0),
    "trapezoid": lambda x: np.trapezoid(x, axis=1),
    "norm": lambda x: (np.linalg.norm(x), np.linalg.norm(x, axis=0), np.linalg.norm(x, ord=1), np.linalg.norm(x, np.inf, axis=1)),
    "polyval": lambda x: np.polyval([1, 2, 3], x),
    "meshgrid": lambda x: np.meshgrid(x[0], x[:, 0]),
    "no change": lambda x: (
        x.sum(axis=()),
        x.max(axis=()),
        np.where(True, x, x),
        np.clip(x, None, 99),
        x.round(3),
        np.conj(x),
        x.conj(),
        abs(x),
        x.view(),
    ),
    "one part": lambda x: (np.tile(x, 1), np.repeat(x, 1), np.roll(x, 0), np.pad(x, 0), np.concatenate([x]), np.stack([x]), np.column_stack([x])),
    "outer": lambda x: np.outer(x[0], x[1]),
    "products": lambda x: (
        x @ x.T,
        np.dot(x[0], x[1]),
        x.dot(x.T),
        np.matmul(x.T, x),
        np.inner(x, x),
        np.vdot(x, x),
        np.tensordot(x, x, axes=[[0], [0]]),
    ),
    "einsum": lambda x: (np.einsum("ij,kj->ik", x, x), np.einsum("ij->j", x), np.einsum("ij,ij", x, x)),
    "attributes": lambda x: (x.shape, x.ndim, x.size, x.itemsize, x.nbytes, len(x), x.dtype, isinstance(x, np.ndarray), type(x[0, 0]), x.real, x.mT),
    "containers": lambda x: {"a": x + 1, "b": [x[0], (x.sum(), 3)]},
    "iteration": lambda x: ([row + 1 for row in x], sum(x), *(a * 2 for a in x[0])),
}
TWO = {
    **{name: (lambda x, y, name=name: getattr(np, name)(x, y)) for name in BINARY if hasattr(np, name)},
    "matmul": lambda x, y: (x @ y.T, np.matmul(x, y.T), np.dot(x, y.T)),
    "where of two": lambda x, y: np.where(x < y, x, y),
    "joining two": lambda x, y: (np.concatenate([x, y]), np.stack([x, y], axis=1), np.append(x, y)),
    "clip by arrays": lambda x, y: np.clip(x, y, y + 1),
    "broadcast": lambda x, y: (x + y[0], x * y[:, :1], x[:, None] - y),
    "average": lambda x, y: np.average(x, weights=y * y + 1),
}
WRITES = {  # may change their arguments: those are compared, too
    "setitem": lambda x, y: x.__setitem__(0, y[1]),
    "setitem number": lambda x, y: x.__setitem__((slice(None), 1), 3),
    "setitem mask": lambda x, y: x.__setitem__(x > 1, 0),
    "setitem picks": lambda x, y: x.__setitem__([0, 2], y[0]),
    "setitem of an int beside picks": lambda x, y: x[None].__setitem__((0, slice(None), [0, 1]), y[:3, :2].T),
    "fill": lambda x, y: x.fill(2),
    "sort in place": lambda x, y: x.sort(),
    "copyto": lambda x, y: np.copyto(x, y),
    "out": lambda x, y: np.multiply(y, y, out=x),
}


def _in_place(x, y):
    x += y
    x *= 2
    return x


def _through_a_view(x, y):
    row = x[1]
    row -= 1
    column = x.T[0]
    column[...] = y[0, 0]
    return row, x[0]


def _scalars_are_values(x, y):
    first = x[0, 0]
    total = x.sum()
    kept = total
    total += 1
    x[0, 0] = 7
    first += 1
    return first, total, kept, x[0, 0]


def _copies_stay(x, y):
    kept = (x.copy(), x.flatten(), x.astype(x.dtype), np.array(x), x + 0, x[[0]], np.round(x), np.clip(x, None, 100), +x, np.diagonal(x).copy())
    x[...] = y
    return kept


def _views_follow(x, y):
    views = (x[1:], x.T, x.reshape(-1), x.ravel(), x[None], x.swapaxes(0, 1), x.squeeze(), np.expand_dims(x, 0), np.asarray(x), x[:, ::2])
    x[...] = y
    return views


def _filled_step_by_step(x, y):
    out = np.empty(x.shape, dtype=x.dtype)
    for i in range(x.shape[0]):
        out[i] = x[i] * i
    out[0, 0] = y[0, 0]
    return out


def _accumulated(x, y):
    total = np.zeros(x.shape[1])
    for row in x:
        total = total + row
    return total


WRITES |= {
    fn.__name__.strip("_"): fn
    for fn in (_in_place, _through_a_view, _scalars_are_values, _copies_stay, _views_follow, _filled_step_by_step, _accumulated)
}

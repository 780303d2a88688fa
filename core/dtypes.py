"""Element types, without torch.  One object per type: compare them with `is`."""

from __future__ import annotations

from math import isfinite

from dovetail.errors import require

KINDS = ("bool", "int", "float", "complex")


class DType:
    """An element type: `short` is its name in printed traces, `kind` one of KINDS, `bytes` the size of one element."""

    __slots__ = ("bytes", "inexact", "kind", "name", "short", "signed", "storage_only")

    def __init__(self, name: str, short: str, kind: str, bytes: int, *, signed: bool = True, storage_only: bool = False):
        self.name, self.short, self.kind, self.bytes = name, short, kind, bytes
        self.signed = signed
        self.storage_only = storage_only  # supports conversion, but no arithmetic
        self.inexact = kind in ("float", "complex")

    def __repr__(self) -> str:
        return f"dtypes.{self.name}"

    def __reduce__(self) -> str:
        return self.name  # pickled as the global of that name in this module


bool_ = DType("bool_", "b8", "bool", 1, signed=False)
uint8 = DType("uint8", "u8", "int", 1, signed=False)
uint16 = DType("uint16", "u16", "int", 2, signed=False)
uint32 = DType("uint32", "u32", "int", 4, signed=False)
uint64 = DType("uint64", "u64", "int", 8, signed=False)
int8 = DType("int8", "i8", "int", 1)
int16 = DType("int16", "i16", "int", 2)
int32 = DType("int32", "i32", "int", 4)
int64 = DType("int64", "i64", "int", 8)
float8_e4m3fn = DType("float8_e4m3fn", "f8_e4m3fn", "float", 1, storage_only=True)
float8_e4m3fnuz = DType("float8_e4m3fnuz", "f8_e4m3fnuz", "float", 1, storage_only=True)
float8_e5m2 = DType("float8_e5m2", "f8_e5m2", "float", 1, storage_only=True)
float8_e5m2fnuz = DType("float8_e5m2fnuz", "f8_e5m2fnuz", "float", 1, storage_only=True)
float8_e8m0fnu = DType("float8_e8m0fnu", "f8_e8m0fnu", "float", 1, storage_only=True)
bfloat16 = DType("bfloat16", "bf16", "float", 2)
float16 = DType("float16", "f16", "float", 2)
float32 = DType("float32", "f32", "float", 4)
float64 = DType("float64", "f64", "float", 8)
complex64 = DType("complex64", "c64", "complex", 8)
complex128 = DType("complex128", "c128", "complex", 16)

ALL = (
    *(bool_, uint8, uint16, uint32, uint64, int8, int16, int32, int64),
    *(float8_e4m3fn, float8_e4m3fnuz, float8_e5m2, float8_e5m2fnuz, float8_e8m0fnu),
    *(bfloat16, float16, float32, float64, complex64, complex128),
)
PYTHON = {bool: bool_, int: int64, float: float32, complex: complex64}  # the dtype of a Python number, with float32 as the default float
REAL_OF = {complex64: float32, complex128: float64}
COMPLEX_OF = {bfloat16: complex64, float16: complex64, float32: complex64, float64: complex128}

_LARGEST = {bfloat16: (2 - 2**-7) * 2.0**127, float16: (2 - 2**-10) * 2.0**15, float32: (2 - 2**-23) * 2.0**127, float64: (2 - 2**-52) * 2.0**1023}


def bounds(dtype: DType) -> tuple[float, float]:
    """Return the smallest and the largest finite number of an integer dtype, or of a floating or complex one that supports arithmetic."""
    if dtype.inexact:
        largest = _LARGEST[REAL_OF.get(dtype, dtype)]
        return -largest, largest
    bits = 8 * dtype.bytes
    return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if dtype.signed else (0, 2**bits - 1)


def overflows(number: complex, dtype: DType) -> bool:
    """Return whether eager PyTorch refuses to convert a Python number to `dtype`; a negative int wraps in an unsigned one."""
    if dtype.kind == "bool" or dtype.storage_only:
        return False
    if isinstance(number, complex):
        parts = (number.real, number.imag) if dtype.kind == "complex" else (number.real,)
        return any([overflows(part, dtype) for part in parts]) or (dtype.kind != "complex" and number.imag != 0)
    if isinstance(number, float) and not isfinite(number):
        return not dtype.inexact
    low, high = bounds(dtype)
    return not (-high if isinstance(number, int) and not dtype.signed else low) <= number <= high


def rank(kind: str) -> int:
    """Return the rank of a kind: bool < int < float < complex."""
    return KINDS.index(kind)


def real_of(dtype: DType) -> DType:
    """Return the type of the parts of a complex type; a real type itself."""
    return REAL_OF.get(dtype, dtype)


def wider(a: DType, b: DType) -> DType:
    """Return the smallest type that both convert to, as torch.promote_types does.

    The higher kind wins, then the larger size; float16 and bfloat16 meet in float32, uint8 and int8 in int16,
    float64 and complex64 in complex128.
    """
    if a is b:
        return a
    require(
        not (a.storage_only or b.storage_only), "{} and {} do not promote: float8 types are for storage; convert one of them first", a.short, b.short
    )
    unpromoted = {a, b} & {uint16, uint32, uint64}
    require(
        not unpromoted or "float" in (a.kind, b.kind),
        "{} and {} do not promote: PyTorch promotes uint16, uint32 and uint64 with floats only; convert one of them first",
        a.short,
        b.short,
    )
    low, high = sorted((a, b), key=lambda t: (rank(t.kind), t.bytes, t.signed))
    if high.kind == "complex":
        return complex128 if float64 in (low, high) or complex128 in (low, high) else complex64
    if low.kind != high.kind:
        return high
    if high.kind == "float":
        return float32 if high.bytes == 2 else high
    return int16 if low is uint8 and high is int8 else high

"""The fifteen dtypes of arrays as NumPy dtypes, what two of them meet in, and precision to compute references with."""

import ml_dtypes
import numpy as np

BOOL = "bool"
INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "bfloat16", "float32", "float64"]
COMPLEX = ["complex64", "complex128"]
REAL = INTEGERS + FLOATS
NUMBERS = REAL + COMPLEX
ALL = [BOOL] + NUMBERS
DTYPES = {name: np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name) for name in ALL}

# The float that a complex dtype's parts have; of others, themselves.
PARTS = {"complex64": "float32", "complex128": "float64"}


def name_of(dtype: np.dtype) -> str:
    return np.dtype(dtype).name


def is_bool(dtype: np.dtype) -> bool:
    return name_of(dtype) == BOOL


def is_integer(dtype: np.dtype) -> bool:
    return name_of(dtype) in INTEGERS


def is_unsigned(dtype: np.dtype) -> bool:
    return name_of(dtype).startswith("uint")


def is_float(dtype: np.dtype) -> bool:
    return name_of(dtype) in FLOATS


def is_complex(dtype: np.dtype) -> bool:
    return name_of(dtype) in COMPLEX


def is_number(dtype: np.dtype) -> bool:
    return not is_bool(dtype)


def is_real(dtype: np.dtype) -> bool:
    """Whether it is a number with an order."""
    return name_of(dtype) in REAL


def is_inexact(dtype: np.dtype) -> bool:
    return is_float(dtype) or is_complex(dtype)


def is_half(dtype: np.dtype) -> bool:
    """16-bit floats: the library computes them in float32 and rounds once, which NumPy does not do everywhere."""
    return name_of(dtype) in ("float16", "bfloat16")


def parts_dtype(dtype: np.dtype) -> np.dtype:
    return DTYPES[PARTS.get(name_of(dtype), name_of(dtype))]


def floating(dtype: np.dtype) -> np.dtype:
    """What functions of integers give: float64. Inexact dtypes stay."""
    return np.dtype(dtype) if is_inexact(dtype) else DTYPES["float64"]


def sum_dtype(dtype: np.dtype) -> np.dtype:
    """Of bool and signed integers int64, of unsigned ones uint64."""
    if is_inexact(dtype):
        return np.dtype(dtype)
    return DTYPES["uint64" if is_unsigned(dtype) else "int64"]


def finfo(dtype: np.dtype):
    return ml_dtypes.finfo(parts_dtype(dtype))


def epsilon(dtype: np.dtype) -> float:
    return float(finfo(dtype).eps) if is_inexact(dtype) else 0.0


def common(*dtypes: np.dtype) -> np.dtype:
    """What these meet in (proto/ir/include/tilewise/ir/tape_builder.h): NumPy's rules, and their like for bfloat16."""
    result = np.dtype(dtypes[0])
    for dtype in dtypes[1:]:
        result = _common(result, np.dtype(dtype))
    return result


def _common(a: np.dtype, b: np.dtype) -> np.dtype:
    bfloat16 = DTYPES["bfloat16"]
    if a == b:
        return a
    if bfloat16 not in (a, b):
        return np.promote_types(a, b)
    other = name_of(b if a == bfloat16 else a)
    if other == BOOL:
        return bfloat16
    if other in ("int8", "uint8", "int16", "uint16", "float16", "float32"):
        return DTYPES["float32"]
    return DTYPES[other] if other in COMPLEX else DTYPES["float64"]


def scalar_dtype(array: np.dtype, value: bool | int | float | complex) -> np.dtype:
    """The dtype that a number of the host language takes beside an array."""
    if isinstance(value, bool):
        return np.dtype(array)
    if isinstance(value, int):
        return DTYPES["int64"] if is_bool(array) else np.dtype(array)
    if isinstance(value, float):
        return floating(array)
    if is_complex(array):
        return np.dtype(array)
    return DTYPES["complex64" if name_of(array) in ("float16", "bfloat16", "float32") else "complex128"]


def widened(array: np.ndarray) -> np.ndarray:
    """16-bit floats as float32, in which NumPy knows all of its functions."""
    array = np.asarray(array)
    return array.astype(np.float32) if is_half(array.dtype) else array


def precise(array: np.ndarray) -> np.ndarray:
    """With more digits than its dtype has, so that the reference's own roundings do not count."""
    array = np.asarray(array)
    if is_complex(array.dtype):
        return array.astype(np.clongdouble)
    if is_float(array.dtype):
        return array.astype(np.longdouble if name_of(array.dtype) == "float64" else np.float64)
    return array


def double(array: np.ndarray) -> np.ndarray:
    """As float64 or complex128: what LAPACK computes a reference in."""
    return array.astype(complex if is_complex(array.dtype) else float)


def magnitudes(array: np.ndarray) -> np.ndarray:
    """|x| as float64."""
    return np.abs(precise(array)).astype(np.float64)


def is_moderate(array: np.ndarray, bound: float = 1e6) -> bool:
    """Whether all of it is finite and below the bound; integers are."""
    if array.size == 0 or not is_inexact(array.dtype):
        return True
    values = precise(array)
    return bool(np.isfinite(values).all() and (np.abs(values) < bound).all())

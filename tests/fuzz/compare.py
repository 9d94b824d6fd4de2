"""What counts as the same result.

A *check* looks at an Outcome and gives one mask of elements that agree (or one bool) for each result. NaN agrees with
NaN whatever its bits and sign, which NumPy and the library both leave open."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

import dtypes


class Incomparable(Exception):
    """The operands are such that the standard leaves the result open, or that no tolerance says anything about it."""


@dataclass
class Outcome:
    """What a call gave, what NumPy makes of the same operands, and these. An operand that was left out is None."""

    expected: Sequence[np.ndarray]
    actual: Sequence[np.ndarray]
    operands: Sequence[np.ndarray | None]


Check = Callable[[Outcome], list]


def same_bits(expected: np.ndarray, actual: np.ndarray, zero_signs: bool = True) -> np.ndarray:
    """Equal, signs of zeros included unless told otherwise."""
    if dtypes.is_complex(expected.dtype):
        return same_bits(expected.real, actual.real, zero_signs) & same_bits(expected.imag, actual.imag, zero_signs)
    if not dtypes.is_float(expected.dtype):
        return np.asarray(expected == actual)
    e, a = dtypes.widened(expected), dtypes.widened(actual)
    same = (e == a) | (np.isnan(e) & np.isnan(a))
    if zero_signs:
        same &= ~((e == 0) & (a == 0) & (np.signbit(e) != np.signbit(a)))
    return np.asarray(same)


def near(expected: np.ndarray, actual: np.ndarray, ulps: float, scale=0.0) -> np.ndarray:
    """Within so many units of the last place of the expected value, or of `scale` where that is larger: the size of
    what was added up, where digits may cancel. The smallest subnormals and the edge of overflow are forgiven: there a
    last place is as large as the value. Complex numbers by their distance; those with an infinite or NaN part are not
    compared."""
    dtype = expected.dtype
    if not dtypes.is_inexact(dtype):
        return np.asarray(expected == actual)
    e, a = dtypes.precise(expected), dtypes.precise(actual)
    allowed = dtypes.epsilon(dtype) * ulps * np.maximum(np.abs(e), scale)
    if dtypes.is_complex(dtype):
        return (np.abs(e - a) <= allowed + float(dtypes.finfo(dtype).smallest_normal)) | ~np.isfinite(e)
    allowed += 4 * float(dtypes.finfo(dtype).smallest_subnormal)
    agree = (e == a) | (np.isnan(e) & np.isnan(a)) | (np.isfinite(e) & np.isfinite(a) & (np.abs(e - a) <= allowed))
    edge = 0.99 * float(dtypes.finfo(dtype).max)
    return np.asarray(agree | ((np.abs(e) > edge) & (np.abs(a) > edge) & (np.sign(e) == np.sign(a))))


def bits(outcome: Outcome) -> list:
    return [same_bits(e, a) for e, a in zip(outcome.expected, outcome.actual)]


def numbers(outcome: Outcome) -> list:
    """As bits(), but a zero may have either sign."""
    return [same_bits(e, a, zero_signs=False) for e, a in zip(outcome.expected, outcome.actual)]


def ulps(count: float) -> Check:
    return lambda outcome: [near(e, a, count) for e, a in zip(outcome.expected, outcome.actual)]


def sum_agrees(expected: np.ndarray, actual: np.ndarray, sizes: np.ndarray, ulps_of_sizes: float = 100) -> np.ndarray:
    """A sum in an order of the library's own. `sizes`: the sum of |x|, to which its roundings are in proportion.
    Those of 16-bit floats are carried in float32 and rounded once."""
    if not dtypes.is_half(expected.dtype):
        return near(expected, actual, ulps_of_sizes, sizes)
    slack = np.abs(dtypes.precise(expected) - dtypes.precise(actual)) <= 1e-5 * sizes
    return near(expected, actual, 2) | slack

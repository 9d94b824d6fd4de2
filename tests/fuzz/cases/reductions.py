"""Reductions, and running sums and products."""

import warnings
from collections.abc import Callable

import numpy as np

import compare
import dtypes
from builder import Builder, Generator, Skip
from cases.elementwise import anything, number, of_these, ordered, real, truth
from compare import Incomparable, Outcome


def over(axes: list[int] | None) -> tuple[int, ...] | None:
    """Axes as NumPy takes them."""
    return None if axes is None else tuple(axes)


def result_dtype(builder: Builder, dtype: np.dtype, often: float) -> str | None:
    """`dtype=` of a sum, now and then: one that the library casts to without loss of sense."""
    if not builder.chance(often):
        return None
    out = builder.random.choice(dtypes.NUMBERS)
    narrows = (
        dtypes.is_complex(dtype) and out not in dtypes.COMPLEX or dtypes.is_inexact(dtype) and out in dtypes.INTEGERS
    )
    if narrows:
        raise Skip
    return out


def emit_sum(builder: Builder, name: str) -> None:
    """sum and prod."""
    x = builder.operand()
    a = builder.values[x]
    axes, keepdims, out = builder.some_axes(a), builder.chance(0.4), result_dtype(builder, a.dtype, 0.25)
    dtype = dtypes.DTYPES[out] if out else dtypes.sum_dtype(a.dtype)
    function = getattr(np, name)

    def reference(a: np.ndarray) -> np.ndarray:
        if dtypes.is_integer(dtype):
            return function(a, axis=over(axes), keepdims=keepdims, dtype=dtype)
        return np.asarray(function(dtypes.precise(a.astype(dtype)), axis=over(axes), keepdims=keepdims)).astype(dtype)

    def check_sum(outcome: Outcome) -> list:
        sizes = dtypes.magnitudes(outcome.operands[0].astype(dtype)).sum(axis=over(axes), keepdims=keepdims)
        most = float(dtypes.finfo(dtype).max)
        # Parts may overflow where the whole, or NumPy's wider one, does not; after that infinity and NaN depend on
        # the order.
        overflowed = (np.isfinite(sizes) & (sizes > 0.9 * most)) | (
            np.isinf(sizes) & ~np.isfinite(dtypes.precise(outcome.expected[0]))
        )
        return [compare.sum_agrees(outcome.expected[0], outcome.actual[0], sizes) | overflowed]

    check = compare.bits if dtypes.is_integer(dtype) else check_sum if name == "sum" else close_product(dtype)
    builder.call(
        name, [x], reference, check=check, exact=dtypes.is_integer(dtype), axes=axes, keepdims=keepdims, dtype=out
    )


def close_product(dtype: np.dtype, most_roundings: int = 400) -> Callable[[Outcome], list]:
    """A product in any order. Only of factors of some size: else parts of it overflow or vanish as the order has it."""

    def check(outcome: Outcome) -> list:
        factors = dtypes.magnitudes(outcome.operands[0].astype(dtype))
        if not np.isfinite(factors).all() or factors.max(initial=0) > 1e3 or factors[factors > 0].min(initial=1) < 1e-3:
            raise Incomparable
        size, info = dtypes.magnitudes(outcome.expected[0]), dtypes.finfo(dtype)
        out_of_range = (size < 1e3 * float(info.smallest_normal)) | (size > float(info.max) / 1e6) | ~np.isfinite(size)
        ulps = 4 if dtypes.is_half(dtype) else most_roundings
        return [compare.near(outcome.expected[0], outcome.actual[0], ulps) | out_of_range]

    return check


def emit_mean(builder: Builder, name: str) -> None:
    x = builder.operand(number, of_these(builder, number))
    axes, keepdims = builder.some_axes(builder.values[x]), builder.chance(0.4)

    def reference(a: np.ndarray) -> np.ndarray:
        wide = dtypes.precise(a.astype(dtypes.floating(a.dtype)))
        return np.asarray(np.mean(wide, axis=over(axes), keepdims=keepdims)).astype(dtypes.floating(a.dtype))

    def check(outcome: Outcome) -> list:
        a = outcome.operands[0]
        if not dtypes.is_moderate(a, 1e30):
            raise Incomparable
        sizes = dtypes.magnitudes(a).mean(axis=over(axes), keepdims=keepdims)
        return [compare.sum_agrees(outcome.expected[0], outcome.actual[0], sizes)]

    builder.call(name, [x], reference, check=check, exact=False, axes=axes, keepdims=keepdims)


def emit_spread(builder: Builder, name: str) -> None:
    """var and std."""
    x = builder.operand(real, of_these(builder, real))
    axes, keepdims = builder.some_axes(builder.values[x]), builder.chance(0.4)
    correction = builder.one_of(0, 0, 1, 0.5, 2)

    def reference(a: np.ndarray) -> np.ndarray:
        wide = dtypes.precise(a.astype(dtypes.floating(a.dtype)))
        made = getattr(np, name)(wide, axis=over(axes), ddof=correction, keepdims=keepdims)
        return np.asarray(made).astype(dtypes.floating(a.dtype))

    def check(outcome: Outcome) -> list:
        if not dtypes.is_moderate(outcome.operands[0].astype(dtypes.floating(outcome.operands[0].dtype)), 1e15):
            raise Incomparable
        expected, actual = outcome.expected[0], outcome.actual[0]
        # Of equal elements rounding may leave what NumPy's longer numbers do not.
        nothing = 1e-10 if expected.dtype == np.float64 else 1e-3
        small = (dtypes.magnitudes(expected) < nothing) & (dtypes.magnitudes(actual) < nothing)
        return [compare.near(expected, actual, 3 if dtypes.is_half(expected.dtype) else 400) | small]

    builder.call(
        name, [x], reference, check=check, exact=False, axes=axes, keepdims=keepdims, correction=float(correction)
    )


def not_empty_and_ordered(a: np.ndarray) -> bool:
    return ordered(a) and a.size > 0


def _fresh_ordered(builder: Builder) -> Callable[[], int]:
    return lambda: builder.input(builder.random.choice(dtypes.REAL), builder.shape(empty=False))


def emit_extreme(builder: Builder, name: str) -> None:
    """min and max. Of nothing they are an error."""
    x = builder.operand(not_empty_and_ordered, _fresh_ordered(builder))
    a = builder.values[x]
    axes, keepdims = builder.some_axes(a), builder.chance(0.4)
    function = getattr(np, name)
    builder.call(
        name,
        [x],
        lambda a: np.asarray(function(dtypes.widened(a), axis=over(axes), keepdims=keepdims)).astype(a.dtype),
        check=compare.numbers,
        exact=not dtypes.is_float(a.dtype),
        axes=axes,
        keepdims=keepdims,
    )


def emit_place(builder: Builder, name: str) -> None:
    """argmin and argmax."""
    x = builder.operand(not_empty_and_ordered, _fresh_ordered(builder))
    a = builder.values[x]
    axis, keepdims = None if a.ndim == 0 or builder.chance(0.3) else builder.axis(a), builder.chance(0.4)
    function = getattr(np, name)
    builder.call(
        name,
        [x],
        lambda a: np.asarray(function(dtypes.widened(a), axis=axis, keepdims=keepdims)).astype(np.int64),
        axes=None if axis is None else [axis],
        keepdims=keepdims,
    )


def emit_truth(builder: Builder, name: str) -> None:
    """any, all and count_nonzero."""
    x = builder.operand(anything)
    axes, keepdims = builder.some_axes(builder.values[x]), builder.chance(0.4)
    function = getattr(np, name)

    def reference(a: np.ndarray) -> np.ndarray:
        made = np.asarray(function(truth(a), axis=over(axes), keepdims=keepdims))
        return made.astype(np.int64) if name == "count_nonzero" else made

    builder.call(name, [x], reference, axes=axes, keepdims=keepdims)


def emit_running(builder: Builder, name: str) -> None:
    """cumulative_sum and cumulative_prod."""
    x = builder.operand(lambda a: a.ndim > 0, lambda: builder.input(shape=builder.shape(builder.random.randint(1, 3))))
    a = builder.values[x]
    axis = None if a.ndim == 1 and builder.chance(0.4) else builder.axis(a)
    along = axis or 0
    initial, out = builder.chance(0.3), result_dtype(builder, a.dtype, 0.2)
    dtype = dtypes.DTYPES[out] if out else dtypes.sum_dtype(a.dtype)
    function, first = (np.cumsum, 0) if name == "cumulative_sum" else (np.cumprod, 1)

    def run(wide: np.ndarray) -> np.ndarray:
        made = function(wide, axis=along, dtype=wide.dtype)
        if not initial:
            return made
        shape = list(made.shape)
        shape[along] = 1
        return np.concatenate([np.full(shape, first, made.dtype), made], axis=along)

    def reference(a: np.ndarray) -> np.ndarray:
        cast = a.astype(dtype)
        return run(cast if dtypes.is_integer(dtype) else dtypes.precise(cast)).astype(dtype)

    def check_sum(outcome: Outcome) -> list:
        sizes = dtypes.magnitudes(outcome.operands[0].astype(dtype))
        if not np.isfinite(sizes).all() or sizes.max(initial=0) > 1e3:
            raise Incomparable
        return [compare.sum_agrees(outcome.expected[0], outcome.actual[0], run(sizes))]

    check = compare.bits if dtypes.is_integer(dtype) else check_sum if first == 0 else close_product(dtype)
    builder.call(
        name, [x], reference, check=check, exact=dtypes.is_integer(dtype), axis=axis, dtype=out, include_initial=initial
    )


def emit_without_nan(builder: Builder, name: str) -> None:
    """nansum, nanprod, nanmean, nanmin and nanmax."""
    extreme = name in ("nanmin", "nanmax")
    x = builder.operand(
        lambda a: real(a) and (a.size > 0 or not extreme),
        lambda: builder.input(builder.random.choice(dtypes.REAL), builder.shape(empty=not extreme), "mixed"),
    )
    axes, keepdims = builder.some_axes(builder.values[x]), builder.chance(0.4)
    function = getattr(np, name)
    dtype = builder.values[x].dtype
    result = dtypes.floating(dtype) if name == "nanmean" else dtype if extreme else dtypes.sum_dtype(dtype)

    def reference(a: np.ndarray) -> np.ndarray:
        wide = dtypes.widened(a) if extreme else a.astype(result) if dtypes.is_integer(result) else dtypes.precise(a)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of lines that are all NaN
            return np.asarray(function(wide, axis=over(axes), keepdims=keepdims)).astype(result)

    def numbers(a: np.ndarray, instead: int) -> np.ndarray:
        wide = dtypes.precise(a).astype(float)
        return np.where(np.isnan(wide), instead, wide)

    def check(outcome: Outcome) -> list:
        a = outcome.operands[0]
        if name == "nanprod":
            return close_product(result)(Outcome(outcome.expected, outcome.actual, [numbers(a, 1)]))
        if not dtypes.is_moderate(numbers(a, 0), 1e30 if dtype != np.float16 else 100):
            raise Incomparable
        sizes = np.abs(numbers(a, 0)).sum(axis=over(axes), keepdims=keepdims)
        return [compare.sum_agrees(outcome.expected[0], outcome.actual[0], sizes)]

    exact = extreme or dtypes.is_integer(result)
    builder.call(
        name,
        [x],
        reference,
        check=compare.numbers if exact else check,
        exact=dtypes.is_integer(result),
        axes=axes,
        keepdims=keepdims,
    )


def emit_exponentials(builder: Builder, name: str) -> None:
    """logsumexp, softmax and log_softmax, as SciPy defines them."""
    x = builder.operand(ordered, lambda: builder.input(builder.random.choice([dtypes.BOOL] + dtypes.REAL)))
    axes, keepdims = builder.some_axes(builder.values[x]), builder.chance(0.4)
    dtype = dtypes.floating(builder.values[x].dtype)
    along = over(axes)

    def reference(a: np.ndarray) -> np.ndarray:
        wide = np.asarray(dtypes.precise(a.astype(dtype)))
        with np.errstate(all="ignore"):
            most = wide.max(axis=along, keepdims=True, initial=-np.inf)
            finite = np.where(np.isfinite(most), most, 0)
            if name == "softmax":
                powers = np.exp(wide - most)
                return np.asarray(powers / powers.sum(axis=along, keepdims=True)).astype(dtype)
            total = np.log(np.exp(wide - finite).sum(axis=along, keepdims=True))
            if name == "log_softmax":
                return np.asarray(wide - finite - total).astype(dtype)
            made = np.asarray(total + finite)
            return (made if keepdims else made.squeeze(along)).astype(dtype)

    def check(outcome: Outcome) -> list:
        a = dtypes.precise(outcome.operands[0].astype(dtype)).astype(float)
        finite = np.where(np.isfinite(a), a, 0)
        if not dtypes.is_moderate(finite, 1e6):
            raise Incomparable
        scale = 1.0 if name == "softmax" else 2 * np.abs(finite).max(initial=1) + 10
        return [compare.near(outcome.expected[0], outcome.actual[0], 16, scale)]

    arguments = {"keepdims": keepdims} if name == "logsumexp" else {}
    builder.call(name, [x], reference, check=check, exact=False, axes=axes, **arguments)


GENERATORS = [
    Generator(name, "reductions", weight, emit)
    for name, weight, emit in (
        ("sum", 1.2, emit_sum),
        ("prod", 0.6, emit_sum),
        ("mean", 0.6, emit_mean),
        ("var", 0.6, emit_spread),
        ("std", 0.6, emit_spread),
        ("min", 0.6, emit_extreme),
        ("max", 1.2, emit_extreme),
        ("argmin", 0.6, emit_place),
        ("argmax", 0.6, emit_place),
        ("any", 0.6, emit_truth),
        ("all", 0.6, emit_truth),
        ("count_nonzero", 0.6, emit_truth),
        ("nansum", 0.3, emit_without_nan),
        ("nanprod", 0.3, emit_without_nan),
        ("nanmean", 0.3, emit_without_nan),
        ("nanmin", 0.3, emit_without_nan),
        ("nanmax", 0.3, emit_without_nan),
        ("logsumexp", 0.5, emit_exponentials),
        ("softmax", 0.5, emit_exponentials),
        ("log_softmax", 0.5, emit_exponentials),
        ("cumulative_sum", 2, emit_running),
        ("cumulative_prod", 1, emit_running),
    )
]

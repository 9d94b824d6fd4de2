"""Sorting, searching, unique elements."""

from collections.abc import Callable

import numpy as np

import compare
import dtypes
from builder import Builder, Generator, Skip
from cases.elementwise import ordered
from compare import Incomparable, Outcome

ORDERED = [dtypes.BOOL] + dtypes.REAL


def sortable(builder: Builder) -> int:
    return builder.operand(
        lambda a: ordered(a) and a.ndim > 0,
        lambda: builder.input(builder.random.choice(ORDERED), builder.shape(builder.one_of(1, 1, 2, 3))),
    )


def order(a: np.ndarray, axis: int, descending: bool) -> np.ndarray:
    """Stable in both directions, NaN last in both."""
    keys = dtypes.widened(a)
    if descending:
        keys = -keys if dtypes.is_float(keys.dtype) else ~keys
    return np.argsort(keys, axis=axis, kind="stable").astype(np.int64)


def in_order(a: np.ndarray, axis: int, descending: bool) -> np.ndarray:
    return np.take_along_axis(a, order(a, axis, descending), axis)


def emit_sort(builder: Builder, name: str) -> list[int]:
    x = sortable(builder)
    axis, descending = builder.axis(builder.values[x]), builder.chance(0.5)
    # -0 comes before +0 here, and stays where it was in NumPy.
    return builder.call(
        name,
        [x],
        lambda a: in_order(a, axis, descending),
        check=compare.numbers,
        exact=not dtypes.is_float(builder.values[x].dtype),
        axis=axis,
        descending=descending,
    )


def emit_argsort(builder: Builder, name: str) -> None:
    x = sortable(builder)
    axis, descending = builder.axis(builder.values[x]), builder.chance(0.5)
    builder.call(name, [x], lambda a: order(a, axis, descending), axis=axis, descending=descending)


def emit_topk(builder: Builder, name: str) -> None:
    x = sortable(builder)
    a = builder.values[x]
    axis, largest = builder.axis(a), builder.chance(0.5)
    k = builder.random.randint(0, a.shape[axis])

    def reference(a: np.ndarray) -> list[np.ndarray]:
        first = np.take(order(a, axis, largest), np.arange(k), axis)
        return [np.take_along_axis(a, first, axis), first]

    builder.call(name, [x], reference, k=k, axis=axis, largest=largest)


def emit_searchsorted(builder: Builder, name: str) -> None:
    dtype = builder.random.choice(ORDERED)
    x = builder.input(dtype, builder.shape(1))
    y = (
        x
        if builder.chance(0.3)
        else builder.input(dtype if builder.chance(0.6) else builder.random.choice(ORDERED), builder.shape(most=100))
    )
    side = builder.one_of("left", "right")

    def search(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        meet = dtypes.common(a.dtype, b.dtype)
        found = np.searchsorted(dtypes.widened(a.astype(meet)), dtypes.widened(b.astype(meet)), side=side)
        return np.asarray(found).astype(np.int64)

    if builder.chance(0.3):
        (sorter,) = builder.call("argsort", [x], lambda a: order(a, 0, False), axis=0, descending=False)
        builder.call(name, [x, y, sorter], lambda a, b, s: search(a[s], b), side=side)
    else:
        (rising,) = builder.call(
            "sort",
            [x],
            lambda a: in_order(a, 0, False),
            check=compare.numbers,
            exact=not dtypes.is_float(dtypes.DTYPES[dtype]),
            axis=0,
            descending=False,
        )
        builder.call(name, [rising, y], search, side=side)


def real_lines(builder: Builder) -> int:
    """Real numbers, at least one."""
    return builder.operand(
        lambda a: dtypes.is_real(a.dtype) and a.size > 0,
        lambda: builder.input(builder.random.choice(dtypes.REAL), builder.shape(empty=False)),
    )


def emit_quantile(builder: Builder, name: str) -> None:
    """quantile and median, between the two elements that NumPy takes: numbers between them in float64 or more."""
    x = real_lines(builder)
    axes, keepdims = builder.some_axes(builder.values[x]), builder.chance(0.4)
    if axes == []:
        raise Skip
    arguments: dict = {"axes": axes, "keepdims": keepdims}
    several, method = name == "quantile" and builder.chance(0.3), "linear"
    q: float | list[float] = 0.5
    if name == "quantile":
        method = builder.one_of("linear", "linear", "lower", "higher", "nearest", "midpoint")
        choices = [0.0, 1.0, 0.5, 0.25, 0.3, 0.9, builder.random.random()]
        q = builder.random.sample(choices, 3) if several else builder.random.choice(choices)
        arguments |= {"q": ",".join(map(repr, q)) if several else q, "method": method, "several": several or None}
    takes_one = method in ("lower", "higher", "nearest")

    def quantile(a: np.ndarray, way: str) -> np.ndarray:
        over = None if axes is None else tuple(axes)
        made = np.quantile(a, q, axis=over, method=way, keepdims=keepdims)
        return np.asarray(made)

    def reference(a: np.ndarray) -> np.ndarray:
        if takes_one and dtypes.is_integer(a.dtype):
            return quantile(a, method)
        dtype = dtypes.floating(a.dtype)
        values = dtypes.widened(a).astype(float)
        with np.errstate(all="ignore"):
            made = quantile(values, method)
        return made.astype(dtype)

    def check(outcome: Outcome) -> list:
        a = dtypes.widened(outcome.operands[0]).astype(float)
        low, high = quantile(a, "lower"), quantile(a, "higher")
        # Between two infinities, and on a number beside one, NumPy has NaN, as their difference has it.
        unbounded = np.isnan(outcome.expected[0].astype(float)) & ~np.isnan(low) & np.isinf(a).any()
        if not dtypes.is_moderate(np.where(np.isfinite(a), a, 0), 1e30):
            raise Incomparable
        sizes = np.where(np.isfinite(low) & np.isfinite(high), np.maximum(np.abs(low), np.abs(high)), 0)
        return [compare.near(outcome.expected[0], outcome.actual[0], 8, sizes) | unbounded]

    exact = takes_one and dtypes.is_integer(builder.values[x].dtype)
    builder.call(name, [x], reference, check=compare.bits if exact else check, exact=exact, **arguments)


UNIQUE = {  # which of values, first indices, inverse indices and counts
    "unique_values": (0,),
    "unique_counts": (0, 3),
    "unique_inverse": (0, 2),
    "unique_all": (0, 1, 2, 3),
}


def unique(a: np.ndarray) -> list[np.ndarray]:
    if dtypes.is_complex(a.dtype) and np.isnan(a).any():
        raise Incomparable  # of which NumPy has an order of its own
    values, first, inverse, counts = np.unique(
        dtypes.widened(a).reshape(-1), return_index=True, return_inverse=True, return_counts=True, equal_nan=False
    )
    return [
        values.astype(a.dtype),
        first.astype(np.int64),
        inverse.reshape(a.shape).astype(np.int64),
        counts.astype(np.int64),
    ]


def emit_unique(builder: Builder, name: str) -> None:
    x = builder.operand()
    builder.need_exact(x)
    parts = UNIQUE[name]

    def check(outcome: Outcome) -> list:
        agree = compare.numbers(outcome)  # of -0 and +0, which are equal, either may stand for both
        a = dtypes.widened(outcome.operands[0])
        if 2 in parts and dtypes.is_float(a.dtype):  # which NaN an inverse index names is left open
            agree[parts.index(2)] |= np.isnan(a)
        return agree

    builder.call(
        name,
        [x],
        lambda a: [unique(a)[part] for part in parts],
        check=check,
        exact=not dtypes.is_inexact(builder.values[x].dtype),
    )


EMITS: dict[str, Callable[[Builder, str], object]] = {
    "sort": emit_sort,
    "argsort": emit_argsort,
    "topk": emit_topk,
    "searchsorted": emit_searchsorted,
    "quantile": emit_quantile,
    "median": emit_quantile,
    **dict.fromkeys(UNIQUE, emit_unique),
}
GENERATORS = [Generator(name, "order", 0.6, emit) for name, emit in EMITS.items()]

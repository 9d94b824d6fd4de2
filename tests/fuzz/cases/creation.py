"""New arrays. Random ones have no like in NumPy: the same stream is cut in two ways, and must have the same numbers,
in their range."""

import math
from collections.abc import Callable

import numpy as np

import compare
import dtypes
from builder import Builder, Generator, Skip
from cases.elementwise import scalar
from cases.indexing import storable
from compare import Outcome


def emit_filled(builder: Builder, name: str) -> None:
    """zeros and ones."""
    shape, dtype = builder.shape(), builder.random.choice(dtypes.ALL)
    value = 1 if name == "ones" else 0
    builder.call(
        name,
        [],
        lambda: np.full(shape, value).astype(dtypes.DTYPES[dtype]),
        shape=shape,
        dtype=dtype,
        **builder.blocks_argument(shape),
    )


def emit_full(builder: Builder, name: str) -> None:
    shape = builder.shape()
    dtype = builder.random.choice([None] + dtypes.ALL)
    value = builder.number_beside(np.zeros(1, dtypes.DTYPES[dtype or "float64"]))
    if dtype is None:
        to = np.asarray(value).dtype
    elif storable(value, dtypes.DTYPES[dtype]):
        to = dtypes.DTYPES[dtype]
    else:
        raise Skip
    builder.call(
        name,
        [],
        lambda: np.full(shape, np.asarray(value).astype(to)),
        shape=shape,
        scalar=scalar(value),
        dtype=dtype,
        **builder.blocks_argument(shape),
    )


def emit_like(builder: Builder, name: str) -> None:
    """zeros_like, ones_like and full_like."""
    x = builder.operand()
    dtype = builder.one_of(None, builder.random.choice(dtypes.ALL))
    to = dtypes.DTYPES[dtype] if dtype else builder.values[x].dtype
    if name == "full_like":
        value = builder.number_beside(np.zeros(1, to))
        if not storable(value, to):
            raise Skip
    else:
        value = 1 if name == "ones_like" else 0
    builder.call(
        name,
        [x],
        lambda a: np.full(a.shape, np.asarray(value).astype(to)),
        dtype=dtype,
        scalar=scalar(value) if name == "full_like" else None,
        **builder.blocks_argument(builder.values[x].shape),
    )


def emit_arange(builder: Builder, name: str) -> None:
    dtype = builder.random.choice([None, None] + dtypes.NUMBERS)
    if builder.chance(0.6):
        start, stop, step = (
            builder.random.randint(-9, 9),
            builder.random.randint(-20, 40),
            builder.one_of(1, 2, 3, -1, -2, 7),
        )
    else:  # steps that are sums of powers of two: NumPy's own rounding is not asked for
        start, stop, step = (
            builder.one_of(0.0, -1.5, 0.25),
            builder.one_of(3.0, 10.5, -4.0),
            builder.one_of(0.5, 0.25, -0.75, 2.0),
        )
    count = max(0, math.ceil((stop - start) / step))
    whole = isinstance(start, int)
    to = dtypes.DTYPES[dtype] if dtype else np.dtype("int64" if whole else "float64")
    if dtypes.is_integer(to) and (not whole or dtypes.is_unsigned(to) and min(start, start + count * step) < 0):
        raise Skip  # what does not fit is left open
    builder.call(
        name,
        [],
        lambda: (start + np.arange(count) * step).astype(to),
        start=scalar(start),
        stop=scalar(stop),
        step=scalar(step),
        dtype=dtype,
        **builder.blocks_argument([count]),
    )


def emit_linspace(builder: Builder, name: str) -> None:
    dtype = builder.random.choice([None] + dtypes.FLOATS + dtypes.COMPLEX)
    start, stop = builder.one_of(0.0, -1.0, 2.5), builder.one_of(1.0, 5.0, -3.0, 2.5)
    count, endpoint = builder.one_of(0, 1, 2, 5, 11), builder.chance(0.6)
    to = dtypes.DTYPES[dtype or "float64"]

    def check(outcome: Outcome) -> list:
        return [compare.near(outcome.expected[0], outcome.actual[0], 2, max(abs(start), abs(stop)))]

    builder.call(
        name,
        [],
        lambda: np.linspace(start, stop, count, endpoint).astype(to),
        check=check,
        exact=False,
        start=scalar(start),
        stop=scalar(stop),
        count=count,
        endpoint=endpoint,
        dtype=dtype,
        **builder.blocks_argument([count]),
    )


def emit_eye(builder: Builder, name: str) -> None:
    rows, k, dtype = builder.random.randint(0, 6), builder.random.randint(-7, 7), builder.random.choice(dtypes.ALL)
    columns = builder.one_of(None, builder.random.randint(0, 6))
    builder.call(
        name,
        [],
        lambda: np.eye(rows, columns, k).astype(dtypes.DTYPES[dtype]),
        rows=rows,
        columns=columns,
        k=k,
        dtype=dtype,
        **builder.blocks_argument([rows, rows if columns is None else columns]),
    )


def emit_frequencies(builder: Builder, name: str) -> None:
    n, d, dtype = builder.random.randint(1, 12), builder.one_of(1.0, 0.5, 3.0), builder.one_of("float32", "float64")
    function = getattr(np.fft, name.removeprefix("fft."))
    builder.call(
        name,
        [],
        lambda: function(n, d).astype(dtype),
        check=compare.ulps(2),
        exact=False,
        n=n,
        d=d,
        dtype=dtype,
        **builder.blocks_argument([len(function(n, d))]),
    )


def emit_random(builder: Builder, name: str) -> None:
    shape = builder.shape(1) if name == "random.permutation" else builder.shape()
    dtype = builder.one_of("float32", "float64")
    low, high = builder.one_of((0.0, 1.0), (-2.5, 7.0), (3.0, 3.0))
    arguments: dict[str, object] = {"dtype": dtype}
    in_range: Callable[[np.ndarray], np.ndarray] = np.isfinite
    if name == "random.uniform":
        arguments.update(low=low, high=high)
        in_range = lambda a: (a >= low) & ((a < high) | (low == high))  # noqa: E731
    elif name == "random.integers":
        low, high = builder.one_of((0, 10), (-5, -4), (-(2**62), 2**61))
        arguments, dtype = {"low": low, "high": high}, "int64"
        in_range = lambda a: (a >= low) & (a < high)  # noqa: E731
    elif name == "random.permutation":
        arguments, dtype = {"n": shape[0]}, "int64"
        in_range = lambda a: np.sort(a) == np.arange(len(a))  # noqa: E731
    if name != "random.permutation":
        arguments["shape"] = shape

    def check(outcome: Outcome) -> list:
        return [in_range(outcome.actual[0]), outcome.actual[0] == outcome.actual[1]]

    def cut() -> tuple[int, ...]:
        return tuple(builder.random.randint(1, max(1, n)) for n in shape)

    builder.call(
        name,
        [],
        lambda: [np.zeros(shape, dtype)] * 2,
        check=check,
        exact=False,
        seed=builder.random.randint(0, 99),
        block=cut(),
        other_block=cut(),
        **arguments,
    )


GENERATORS = [
    Generator(name, "creation", weight, emit)
    for name, weight, emit in (
        ("zeros", 0.2, emit_filled),
        ("ones", 0.2, emit_filled),
        ("full", 0.4, emit_full),
        ("zeros_like", 0.2, emit_like),
        ("ones_like", 0.2, emit_like),
        ("full_like", 0.4, emit_like),
        ("arange", 0.5, emit_arange),
        ("linspace", 0.4, emit_linspace),
        ("eye", 0.4, emit_eye),
        ("fft.fftfreq", 0.2, emit_frequencies),
        ("fft.rfftfreq", 0.2, emit_frequencies),
        ("random.uniform", 0.2, emit_random),
        ("random.normal", 0.2, emit_random),
        ("random.integers", 0.2, emit_random),
        ("random.permutation", 0.2, emit_random),
    )
]

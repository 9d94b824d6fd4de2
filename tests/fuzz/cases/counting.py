"""Additions at indices that come several times, and counts."""

import numpy as np

import compare
import dtypes
from builder import Builder, Generator, Skip
from cases.elementwise import integer, number
from cases.indexing import INDEX_DTYPES, filled, ids_of, indexable, numpy_index, put, random_terms, shown
from cases.indexing import text_of, value_shape


def wide(a: np.ndarray) -> np.ndarray:
    """16-bit floats are summed in float32 and rounded once."""
    return dtypes.widened(a).copy()


def added(a: np.ndarray, index: tuple, value: np.ndarray) -> np.ndarray:
    """np.add.at, one after the other in C order."""
    out = wide(a)
    np.add.at(out, index, dtypes.widened(value))
    return out.astype(a.dtype)


def numbers(builder: Builder, wanted=filled) -> int:
    x = wanted(builder)
    if not number(builder.values[x]):
        raise Skip
    return x


def emit_put_add(builder: Builder, name: str) -> None:
    put(builder, name, numbers(builder), 40, added)


def emit_add_at(builder: Builder, name: str) -> None:
    x = numbers(builder, indexable)
    a = builder.values[x]
    terms = random_terms(builder, a, arrays=builder.chance(0.8))
    part = shown(builder, x, terms)
    if part.size > 5000:
        raise Skip
    z = builder.input(dtypes.name_of(a.dtype), value_shape(builder, part.shape))
    # -0 where nothing is added stays; NumPy adds a broadcast value likewise.
    builder.call(
        name,
        [x, z] + ids_of(terms),
        lambda a, v, *arrays: added(a, numpy_index(terms, arrays), np.broadcast_to(v, part.shape)),
        terms=text_of(terms),
    )


def some_ids(builder: Builder, count: int, least: int, most: int) -> int:
    dtype = builder.random.choice(INDEX_DTYPES)
    least = max(least, 0) if dtype.startswith("u") else least
    return builder.input_of(np.asarray(builder.numbers.integers(least, most, count)).astype(dtype))


def emit_segment_sum(builder: Builder, name: str) -> None:
    x = builder.operand(
        lambda a: number(a) and a.ndim > 0,
        lambda: builder.input(builder.random.choice(dtypes.NUMBERS), builder.shape(builder.one_of(1, 1, 2, 3))),
    )
    a = builder.values[x]
    count = builder.one_of(0, 1, 3, 10, 50)
    y = some_ids(builder, a.shape[0], builder.one_of(0, -3), count + builder.one_of(1, 4))

    def reference(a: np.ndarray, ids: np.ndarray) -> np.ndarray:
        ids = ids.astype(np.int64)
        inside = (ids >= 0) & (ids < count)
        out = np.zeros((count,) + a.shape[1:], wide(a).dtype)
        np.add.at(out, ids[inside], wide(a)[inside])
        return out.astype(a.dtype)

    builder.call(name, [x, y], reference, num_segments=count)


def emit_bincount(builder: Builder, name: str) -> None:
    n = builder.one_of(0, 1, 7, 40, 300)
    x = some_ids(builder, n, 0, builder.one_of(1, 5, 100))
    least = builder.one_of(None, 0, 3, 150)
    operands = [x]
    if builder.chance(0.5):
        operands.append(builder.input(builder.random.choice([dtypes.BOOL] + dtypes.REAL), (n,)))

    def reference(x: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
        length = max(int(x.astype(np.int64).max(initial=-1)) + 1, least or 0)
        out = np.zeros(length, np.int64 if weights is None else np.float64)
        np.add.at(out, x.astype(np.int64), 1 if weights is None else weights.astype(np.float64))
        return out

    builder.call(name, operands, reference, minlength=least)


def emit_one_hot(builder: Builder, name: str) -> None:
    x = builder.operand(
        lambda a: integer(a) and a.ndim < 4 and a.size < 500,
        lambda: builder.input(builder.random.choice(dtypes.INTEGERS), builder.shape(None, 60), "small"),
    )
    axis, count = builder.random.randint(-builder.values[x].ndim - 1, builder.values[x].ndim), builder.one_of(0, 1, 6)
    dtype = builder.random.choice(dtypes.ALL)

    def reference(a: np.ndarray) -> np.ndarray:
        classes = np.moveaxis(a[..., None] == np.arange(count), -1, axis)
        return classes.astype(dtypes.DTYPES[dtype])

    builder.call(name, [x], reference, num_classes=count, dtype=dtype, axis=axis)


def sampled(builder: Builder) -> int:
    return builder.operand(
        lambda a: not dtypes.is_complex(a.dtype),
        lambda: builder.input(builder.random.choice([dtypes.BOOL] + dtypes.REAL)),
    )


def as_sample(a: np.ndarray) -> np.ndarray:
    return a.astype(np.uint8) if dtypes.is_bool(a.dtype) else dtypes.widened(a)


def emit_histogram(builder: Builder, name: str) -> None:
    """By what bins mean: NumPy's own computes numbers of bins from widths, and corrects them."""
    x = sampled(builder)
    a = as_sample(builder.values[x])
    builder.need_exact(x)
    operands, weighted = [x], builder.chance(0.4)
    if weighted:
        operands.append(builder.input(builder.random.choice(dtypes.INTEGERS), a.shape))
    arguments: dict = {}
    if builder.chance(0.4):
        edges = np.sort(builder.numbers.integers(-9, 10, builder.random.randint(2, 8)) / builder.one_of(1, 2))
        arguments = {"edges": ",".join(str(edge) for edge in edges)}
    else:
        bins = builder.random.randint(1, 12)
        arguments = {"bins": bins}
        if builder.chance(0.5) or not np.isfinite(a.astype(float)).all():
            first = builder.one_of(-5.0, -1.0, 0.25)
            arguments |= {"first": first, "last": first + builder.one_of(0.0, 3.0, 10.0)}
        elif a.size and (not dtypes.is_moderate(a.astype(float), 1e30) or np.ptp(a) < 1e-5 * np.abs(a).max()):
            raise Skip

    def reference(a: np.ndarray, weights: np.ndarray | None = None) -> list[np.ndarray]:
        sample = as_sample(a).reshape(-1)
        if "edges" in arguments:
            edges = np.array([float(edge) for edge in arguments["edges"].split(",")])
        else:
            told = (arguments["first"], arguments["last"]) if "first" in arguments else None
            try:
                edges = np.histogram_bin_edges(sample.astype(float), arguments["bins"], told)
            except ValueError:  # widths vanish beside the edges
                raise Skip from None
            edges = edges.astype(sample.dtype if dtypes.is_float(sample.dtype) else float)
        ones = np.ones(sample.shape, np.int64) if weights is None else weights.reshape(-1)
        counts = np.zeros(len(edges) - 1, ones.dtype)
        meet = dtypes.common(edges.dtype, sample.dtype)
        place = np.searchsorted(edges.astype(meet), sample.astype(meet), "right") - 1
        place[sample.astype(meet) == edges[-1]] = len(counts) - 1
        inside = (place >= 0) & (place < len(counts))
        np.add.at(counts, place[inside], ones[inside])
        return [counts, edges]

    def check(outcome: compare.Outcome) -> list:
        near_edges = compare.near(outcome.expected[1], outcome.actual[1], 4, np.abs(outcome.expected[1]).max())
        if not compare.same_bits(outcome.expected[1], outcome.actual[1], zero_signs=False).all():
            raise compare.Incomparable  # an edge's last bit may move an element
        return [compare.same_bits(outcome.expected[0], outcome.actual[0]), near_edges]

    builder.call(name, operands, reference, check=check, exact=False, **arguments)


def emit_digitize(builder: Builder, name: str) -> None:
    x = sampled(builder)
    dtype = builder.random.choice(dtypes.REAL)
    bins = np.sort(builder.data(dtype, (builder.random.randint(0, 9),), "small"))
    y = builder.input_of(bins)
    right = builder.chance(0.5)

    def reference(a: np.ndarray, bins: np.ndarray) -> np.ndarray:
        meet = dtypes.common(a.dtype, bins.dtype)
        a, bins = dtypes.widened(a.astype(meet)), dtypes.widened(bins.astype(meet))
        return np.asarray(np.searchsorted(bins, a, "left" if right else "right")).astype(np.int64)

    builder.call(name, [x, y], reference, right=right)


GENERATORS = [
    Generator(name, "counting", weight, emit)
    for name, weight, emit in (
        ("put_add", 1, emit_put_add),
        ("add_at", 1.5, emit_add_at),
        ("segment_sum", 1, emit_segment_sum),
        ("bincount", 0.5, emit_bincount),
        ("one_hot", 0.4, emit_one_hot),
        ("histogram", 0.7, emit_histogram),
        ("digitize", 0.4, emit_digitize),
    )
]

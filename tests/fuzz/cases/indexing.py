"""Indexing by integers, slices, arrays of indices and masks; reading and writing."""

from dataclasses import dataclass

import numpy as np

import dtypes
from builder import MOST_DIMENSIONS, Builder, Generator, Skip
from cases.elementwise import scalar

INDEX_DTYPES = ["int64", "int64", "int32", "int16", "int8", "uint8", "uint64"]


@dataclass(frozen=True)
class ByArray:
    """A term that is an array: of indices, or a mask."""

    id: int


Term = int | slice | None | type(Ellipsis) | ByArray


def text_of(terms: list[Term]) -> str:
    """As the driver reads them (Call::terms)."""

    def text(term: Term) -> str:
        if isinstance(term, ByArray):
            return "a"
        if isinstance(term, slice):
            start, stop = ("" if bound is None else bound for bound in (term.start, term.stop))
            return f"r:{start}:{stop}:{1 if term.step is None else term.step}"
        if term is None or term is Ellipsis:
            return "n" if term is None else "e"
        return f"i:{term}"

    return ";".join(map(text, terms))


def numpy_index(terms: list[Term], arrays: tuple[np.ndarray, ...]) -> tuple:
    """`arrays`: the values of the terms that are arrays, in order."""
    values = iter(arrays)

    def index(term: Term):
        if not isinstance(term, ByArray):
            return term
        value = next(values)
        return value if dtypes.is_bool(value.dtype) else value.astype(np.int64)

    return tuple(index(term) for term in terms)


def assigned(a: np.ndarray, index: tuple, value: np.ndarray) -> np.ndarray:
    """`a` with `value` at `index`; where an element is named twice the last value stays, in C order, which NumPy does
    not promise."""
    places = np.arange(a.size).reshape(a.shape)[index]
    flat = a.flatten()
    for place, element in zip(places.flat, np.broadcast_to(value, places.shape).flat):
        flat[place] = element
    return flat.reshape(a.shape)


# ---- terms ----


def random_slice(builder: Builder, n: int) -> slice:
    def bound() -> int | None:
        return builder.one_of(None, None, builder.random.randint(-n - 2, n + 2))

    return slice(bound(), bound(), builder.one_of(1, 1, 2, 3, -1, -1, -2, -3, n + 1))


def index_array(builder: Builder, n: int, shape: tuple[int, ...]) -> int:
    """Indices of an axis of n elements."""
    dtype = builder.random.choice(INDEX_DTYPES)
    least = 0 if dtype.startswith("u") else -n
    if n > 100 and dtype.endswith("int8"):
        dtype = "int32"
    if n == 0 and 0 not in shape:
        raise Skip
    return builder.input_of(np.asarray(builder.numbers.integers(min(least, 0), max(n, 1), shape)).astype(dtype))


def random_terms(builder: Builder, a: np.ndarray, arrays: bool) -> list[Term]:
    """Terms that suit the array; with `arrays` some of them may be arrays, which broadcast together."""
    rank = a.ndim
    ellipsis_at = builder.random.randint(0, rank) if builder.chance(0.4) else None
    skipped = builder.random.randint(0, rank - ellipsis_at) if ellipsis_at is not None else 0
    named = rank if ellipsis_at is not None else builder.random.randint(0, rank)
    base = builder.shape(builder.one_of(0, 1, 1, 2), 12)
    terms: list[Term] = []
    d = 0
    while d < named:
        if d == ellipsis_at:
            terms.append(Ellipsis)
            d, ellipsis_at = d + skipped, None
            continue
        if builder.chance(0.12):
            terms.append(None)
        n, way = a.shape[d], builder.random.random()
        if arrays and way < 0.3:
            shape = tuple(1 if builder.chance(0.3) else m for m in base)
            if shape and builder.chance(0.3):
                shape = shape[1:]
            terms.append(ByArray(index_array(builder, n, shape)))
        elif arrays and way < 0.4:
            most = min(3, (rank if ellipsis_at is None else max(ellipsis_at, d + 1)) - d)
            dimensions = builder.random.randint(1, most)
            mask = builder.numbers.random(a.shape[d : d + dimensions]) < builder.one_of(0.5, 0.3, 0.1)
            terms.append(ByArray(builder.input_of(mask)))
            base = (int(mask.sum()),)
            d += dimensions - 1
        elif n and way < 0.6:
            terms.append(builder.random.randrange(-n, n))
        else:
            terms.append(slice(None) if way > 0.9 else random_slice(builder, n))
        d += 1
    if ellipsis_at is not None:
        terms.append(Ellipsis)
    if builder.chance(0.12):
        terms.append(None)
    if not terms:
        raise Skip
    return terms


def indexable(builder: Builder) -> int:
    return builder.operand(
        lambda a: a.ndim > 0, lambda: builder.input(shape=builder.shape(builder.random.randint(1, 4)))
    )


def ids_of(terms: list[Term]) -> list[int]:
    return [term.id for term in terms if isinstance(term, ByArray)]


def shown(builder: Builder, x: int, terms: list[Term]) -> np.ndarray:
    """What NumPy shows of it. Arrays that do not broadcast with each other are skipped."""
    try:
        part = builder.values[x][numpy_index(terms, tuple(builder.values[id] for id in ids_of(terms)))]
    except IndexError:
        raise Skip from None
    new_axes, arrays = sum(term is None for term in terms), ids_of(terms)
    if part.ndim > MOST_DIMENSIONS or arrays and builder.values[x].ndim + new_axes > MOST_DIMENSIONS:
        raise Skip  # where there are arrays, new axes are made before anything is dropped
    return part


def emit_index(builder: Builder, name: str) -> None:
    x = indexable(builder)
    terms = random_terms(builder, builder.values[x], arrays=builder.chance(0.6))
    shown(builder, x, terms)
    builder.call(name, [x] + ids_of(terms), lambda a, *arrays: a[numpy_index(terms, arrays)], terms=text_of(terms))


def emit_set_index(builder: Builder, name: str) -> None:
    x = indexable(builder)
    a = builder.values[x]
    terms = random_terms(builder, a, arrays=builder.chance(0.7))
    part = shown(builder, x, terms)
    if part.size > 5000:
        raise Skip
    if builder.chance(0.15):
        value = builder.number_beside(a)
        if not storable(value, a.dtype):
            raise Skip
        element = np.asarray(value).astype(a.dtype)
        builder.call(
            name,
            [x] + ids_of(terms),
            lambda a, *arrays: assigned(a, numpy_index(terms, arrays), element),
            scalar=scalar(value),
            terms=text_of(terms),
        )
        return
    z = builder.input(dtypes.name_of(a.dtype), value_shape(builder, part.shape))
    builder.call(
        name,
        [x, z] + ids_of(terms),
        lambda a, v, *arrays: assigned(a, numpy_index(terms, arrays), v),
        terms=text_of(terms),
    )


def storable(value: bool | int | float | complex, dtype: np.dtype) -> bool:
    """Whether a number may be put among elements of this dtype: one of another kind is refused."""
    if dtypes.is_bool(dtype):
        return isinstance(value, bool)
    if dtypes.is_integer(dtype):
        return isinstance(value, int)
    return dtypes.is_complex(dtype) or not isinstance(value, complex)


def value_shape(builder: Builder, shape: tuple[int, ...]) -> tuple[int, ...]:
    """One that broadcasts to this."""
    shape = tuple(1 if builder.chance(0.2) else n for n in shape)
    return shape[builder.random.randint(1, len(shape)) :] if shape and builder.chance(0.3) else shape


def emit_set(builder: Builder, name: str) -> None:
    x = indexable(builder)
    a = builder.values[x]
    chosen = builder.random.sample(range(a.ndim), builder.random.randint(1, a.ndim))
    index, told = [slice(None)] * a.ndim, []
    for axis in chosen:
        part = index[axis] = random_slice(builder, a.shape[axis])
        start, stop = ("" if bound is None else bound for bound in (part.start, part.stop))
        told.append(f"{builder.maybe_negative(axis, a.ndim)}:{start}:{stop}:{part.step}")
    shape = [1 if builder.chance(0.2) else n for n in a[tuple(index)].shape]
    z = builder.input(dtypes.name_of(a.dtype), shape)
    builder.call(name, [x, z], lambda a, v: assigned(a, tuple(index), v), slices=";".join(told))


# ---- by arrays along an axis ----


def filled(builder: Builder) -> int:
    return builder.operand(
        lambda a: a.ndim > 0 and a.size > 0,
        lambda: builder.input(shape=builder.shape(builder.random.randint(1, 3), empty=False)),
    )


def emit_take(builder: Builder, name: str) -> None:
    x = filled(builder)
    axis = builder.axis(builder.values[x])
    y = index_array(builder, builder.values[x].shape[axis], builder.shape(builder.one_of(0, 1, 1, 2), 30))
    builder.call(name, [x, y], lambda a, i: np.take(a, i.astype(np.int64), axis), axis=axis)


def emit_take_along_axis(builder: Builder, name: str) -> None:
    x = filled(builder)
    a = builder.values[x]
    axis = builder.axis(a)
    shape = list(a.shape)
    shape[axis] = builder.one_of(0, 1, 2, 4, 9)
    y = index_array(builder, a.shape[axis], tuple(shape))
    builder.call(name, [x, y], lambda a, i: np.take_along_axis(a, i.astype(np.int64), axis), axis=axis)


def put(builder: Builder, name: str, x: int, most: int, combined) -> None:
    """At most so many values along an axis of `x`, as `combined` puts them at their indices."""
    a = builder.values[x]
    axis, count = builder.axis(a), builder.random.randint(0, most)
    y = index_array(builder, a.shape[axis], (count,))
    shape = list(a.shape)
    shape[axis] = count
    z = builder.input(dtypes.name_of(a.dtype), [1 if builder.chance(0.2) else n for n in shape])

    def reference(a: np.ndarray, indices: np.ndarray, values: np.ndarray) -> np.ndarray:
        return combined(a, (slice(None),) * (axis % a.ndim) + (indices.astype(np.int64),), values)

    builder.call(name, [x, y, z], reference, axis=axis)


def emit_put(builder: Builder, name: str) -> None:
    put(builder, name, filled(builder), 6, assigned)


# ---- by masks ----


def mask_of(builder: Builder, x: int) -> int:
    """A mask of the array's first dimensions, or all: a fresh one, or where the array is positive."""
    a = builder.values[x]
    if dtypes.is_real(a.dtype) and builder.chance(0.4):
        return builder.call("greater", [x], _positive, scalar="i:0")[0]
    shape = a.shape[: builder.random.randint(1, a.ndim)]
    return builder.operand(
        lambda b: dtypes.is_bool(b.dtype) and b.shape == shape, lambda: builder.input("bool", shape), reuse=0.5
    )


def _positive(a: np.ndarray) -> np.ndarray:
    return dtypes.widened(a) > 0


def emit_boolean_index(builder: Builder, name: str) -> None:
    x = indexable(builder)
    mask = mask_of(builder, x)
    builder.need_exact(mask)
    builder.call(name, [x, mask], lambda a, mask: a[mask])


def emit_nonzero(builder: Builder, name: str) -> None:
    x = indexable(builder)
    builder.need_exact(x)
    builder.call(name, [x], lambda a: [i.astype(np.int64) for i in np.nonzero(dtypes.widened(a) != 0)])


GENERATORS = [
    Generator(name, "indexing", weight, emit)
    for name, weight, emit in (
        ("index", 12, emit_index),
        ("set_index", 5, emit_set_index),
        ("set", 2, emit_set),
        ("take", 1, emit_take),
        ("take_along_axis", 1, emit_take_along_axis),
        ("put", 1, emit_put),
        ("boolean_index", 1, emit_boolean_index),
        ("nonzero", 0.7, emit_nonzero),
    )
]

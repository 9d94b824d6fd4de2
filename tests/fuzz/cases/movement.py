"""What moves elements: views, joins, repetitions, triangles. NumPy's bits, everywhere."""

import numpy as np

import compare
import dtypes
from builder import Builder, Generator, Skip
from cases.elementwise import number, scalar
from cases.reductions import over


def at_least(rank: int):
    return lambda a: a.ndim >= rank


def of_rank(builder: Builder, *ranks: int):
    """Makes an input of one of these ranks."""
    return lambda: builder.input(shape=builder.shape(builder.random.choice(ranks)))


# ---- views ----


def emit_permute(builder: Builder, name: str) -> None:
    x = builder.operand(at_least(1))
    rank = builder.values[x].ndim
    axes = builder.random.sample(range(rank), rank)
    builder.call(name, [x], lambda a: a.transpose(axes), axes=[builder.maybe_negative(axis, rank) for axis in axes])


def emit_moveaxis(builder: Builder, name: str) -> None:
    x = builder.operand()
    rank = builder.values[x].ndim
    count = builder.random.randint(0, rank)
    sources = [builder.maybe_negative(axis, rank) for axis in builder.random.sample(range(rank), count)]
    destinations = builder.random.sample(range(rank), count)
    builder.call(name, [x], lambda a: np.moveaxis(a, sources, destinations), sources=sources, destinations=destinations)


def emit_swapaxes(builder: Builder, name: str) -> None:
    x = builder.operand(at_least(1))
    one, other = builder.axis(builder.values[x]), builder.axis(builder.values[x])
    builder.call(name, [x], lambda a: np.swapaxes(a, one, other), one=one, other=other)


def emit_matrix_transpose(builder: Builder, name: str) -> None:
    builder.call(name, [builder.operand(at_least(2), of_rank(builder, 2, 3))], np.matrix_transpose)


def emit_flip(builder: Builder, name: str) -> None:
    x = builder.operand()
    axes = builder.some_axes(builder.values[x])
    builder.call(name, [x], lambda a: np.flip(a, over(axes)), axes=axes)


def emit_expand_dims(builder: Builder, name: str) -> None:
    x = builder.operand()
    rank = builder.values[x].ndim
    axis = builder.random.randint(-rank - 1, rank)
    builder.call(name, [x], lambda a: np.expand_dims(a, axis), axis=axis)


def emit_squeeze(builder: Builder, name: str) -> None:
    x = builder.operand()
    single = [axis for axis, n in enumerate(builder.values[x].shape) if n == 1]
    axes = None if builder.chance(0.2) else builder.random.sample(single, builder.random.randint(0, len(single)))
    builder.call(name, [x], lambda a: np.squeeze(a, over(axes)), axes=axes)


def emit_broadcast_to(builder: Builder, name: str) -> None:
    x = builder.operand()
    shape = [builder.one_of(1, 2, 3, 0, 5) if n == 1 else n for n in builder.values[x].shape]
    if len(shape) < 4 and builder.chance(0.5):
        shape = [builder.one_of(1, 2, 3)] + shape
    builder.call(name, [x], lambda a: np.broadcast_to(a, shape), shape=shape)


def emit_broadcast_arrays(builder: Builder, name: str) -> None:
    x = builder.operand()
    builder.call(
        name, [x, builder.broadcast_partner(builder.values[x]), x], lambda *arrays: list(np.broadcast_arrays(*arrays))
    )


def emit_unstack(builder: Builder, name: str) -> None:
    x = builder.operand(at_least(1))
    axis = builder.axis(builder.values[x])
    if not 0 < builder.values[x].shape[axis] <= 5:
        raise Skip
    builder.call(name, [x], lambda a: list(np.moveaxis(a, axis, 0)), axis=axis)


def emit_diagonal(builder: Builder, name: str) -> None:
    x = builder.operand(at_least(2), of_rank(builder, 2, 3))
    offset = builder.random.randint(-4, 4)
    builder.call(name, [x], lambda a: np.diagonal(a, offset, -2, -1), offset=offset, **_zeros_lose_signs(builder, x))


def _zeros_lose_signs(builder: Builder, x: int) -> dict:
    """A diagonal is a sum with zeros: -0 comes out as +0."""
    return {"check": compare.numbers, "exact": not dtypes.is_inexact(builder.values[x].dtype)}


def emit_meshgrid(builder: Builder, name: str) -> None:
    def short(a: np.ndarray) -> bool:
        return a.ndim == 1 and a.size < 20

    ids = [
        builder.operand(short, lambda: builder.input(shape=(builder.random.randint(0, 5),)))
        for _ in range(builder.random.randint(1, 3))
    ]
    indexing = builder.one_of("xy", "ij")
    builder.call(name, ids, lambda *vectors: list(np.meshgrid(*vectors, indexing=indexing)), indexing=indexing)


# ---- copies ----


def emit_reshape(builder: Builder, name: str) -> None:
    x = builder.operand()
    size = builder.values[x].size
    shape = _factors(builder, size)
    told = list(shape)
    if size and builder.chance(0.3):
        told[builder.random.randrange(len(told))] = -1
    builder.call(name, [x], lambda a: a.reshape(shape), shape=told)


def _factors(builder: Builder, size: int) -> list[int]:
    if size == 0:
        return builder.one_of([0], [0], [2, 0], [0, 3], [2, 0, 3])
    shape: list[int] = []
    while size > 1 and len(shape) < 3:
        shape.append(builder.random.choice([n for n in range(1, size + 1) if size % n == 0]))
        size //= shape[-1]
    shape.append(size)
    if builder.chance(0.2):
        shape.insert(builder.random.randint(0, len(shape)), 1)
    return shape


def emit_reblock(builder: Builder, name: str) -> None:
    x = builder.operand(at_least(1))
    builder.call(name, [x], lambda a: a, block=[builder.random.randint(1, max(1, n)) for n in builder.values[x].shape])


def emit_concat(builder: Builder, name: str) -> None:
    x = builder.operand()
    a = builder.values[x]
    axis = None if a.ndim == 0 or builder.chance(0.2) else builder.axis(a)

    def fits(b: np.ndarray) -> bool:
        return (
            axis is None
            or b.ndim == a.ndim
            and all(b.shape[d] == n for d, n in enumerate(a.shape) if d != axis % a.ndim)
        )

    def another() -> int:
        shape = list(a.shape)
        if axis is None:
            shape = list(builder.shape(builder.random.randint(0, 3), 60))
        else:
            shape[axis] = builder.one_of(0, 1, 2, 3)
        return builder.input(dtypes.name_of(a.dtype) if builder.chance(0.6) else None, shape)

    ids = [x] + [
        x if builder.chance(0.3) else builder.operand(fits, another, reuse=0.5)
        for _ in range(builder.random.randint(1, 4))
    ]
    builder.random.shuffle(ids)
    if builder.chance(0.03):
        ids *= 30  # joined in groups
    builder.call(name, ids, lambda *arrays: np.concatenate(_alike(arrays), axis=axis), axis=axis)


def emit_stack(builder: Builder, name: str) -> None:
    x = builder.operand()
    a = builder.values[x]
    axis = builder.random.randint(-a.ndim - 1, a.ndim)

    def another() -> int:
        return builder.input(dtypes.name_of(a.dtype) if builder.chance(0.6) else None, a.shape)

    ids = [x] + [
        x if builder.chance(0.3) else builder.operand(lambda b: b.shape == a.shape, another, reuse=0.5)
        for _ in range(builder.random.randint(1, 4))
    ]
    builder.random.shuffle(ids)
    builder.call(name, ids, lambda *arrays: np.stack(_alike(arrays), axis=axis), axis=axis)


def _alike(arrays: tuple[np.ndarray, ...]) -> list[np.ndarray]:
    dtype = dtypes.common(*(a.dtype for a in arrays))
    return [a.astype(dtype) for a in arrays]


def emit_tile(builder: Builder, name: str) -> None:
    x = builder.operand()
    counts = [
        builder.one_of(1, 2, 3, 0 if builder.chance(0.2) else 1)
        for _ in range(builder.random.randint(0, min(4, builder.values[x].ndim + 1)))
    ]
    builder.call(name, [x], lambda a: np.tile(a, counts), counts=counts)


def emit_repeat(builder: Builder, name: str) -> None:
    x = builder.operand()
    a = builder.values[x]
    axis = None if a.ndim == 0 or builder.chance(0.3) else builder.axis(a)
    n = a.size if axis is None else a.shape[axis]
    way = builder.random.random()
    if way < 0.35:
        count = builder.random.randint(0, 4)
        builder.call(name, [x], lambda a: np.repeat(a, count, axis), axis=axis, count=count)
    elif way < 0.65 and n:
        counts = [builder.one_of(0, 1, 2, 3) for _ in range(n)]
        builder.call(name, [x], lambda a: np.repeat(a, counts, axis), axis=axis, counts=counts)
    else:
        shape = (n,) if builder.chance(0.85) else builder.one_of((), (1,))
        counts_dtype = builder.one_of("int64", "int32", "uint8", "int8")
        y = builder.input_of(np.asarray(builder.numbers.integers(0, 3, shape)).astype(counts_dtype))
        builder.call(name, [x, y], lambda a, b: np.repeat(a, b.astype(np.int64), axis), axis=axis)


def emit_roll(builder: Builder, name: str) -> None:
    x = builder.operand()
    a = builder.values[x]
    shift = builder.random.randint(-50, 50)
    if a.ndim == 0 or builder.chance(0.3):
        builder.call(name, [x], lambda a: np.roll(a, shift), shift=shift)
    elif builder.chance(0.3):
        axes = builder.some_axes(a) or [0]
        builder.call(name, [x], lambda a: np.roll(a, shift, tuple(axes)), shift=shift, axes=axes)
    else:
        axes = [builder.axis(a) for _ in range(builder.random.randint(1, 3))]
        shifts = [builder.random.randint(-9, 9) for _ in axes]
        builder.call(name, [x], lambda a: np.roll(a, shifts, axes), shifts=shifts, axes=axes)


def emit_pad(builder: Builder, name: str) -> None:
    x = builder.operand()
    a = builder.values[x]
    mode = builder.one_of("constant", "edge", "reflect", "wrap")
    if mode != "constant" and 0 in a.shape:
        raise Skip  # nothing to repeat: refused
    most = 3 if a.ndim > 2 else builder.one_of(3, 3, 12, 40)
    widths = [(builder.random.randint(0, most), builder.random.randint(0, most)) for _ in a.shape]
    told = [n for pair in widths for n in pair]
    if mode != "constant":
        builder.call(name, [x], lambda a: np.pad(a, widths, mode) if a.ndim else a, widths=told, mode=mode)
        return
    value = builder.number_beside(a)
    if isinstance(value, complex) or (not dtypes.is_inexact(a.dtype) and isinstance(value, float)):
        raise Skip  # where NumPy casts with a warning
    fill = np.asarray(value).astype(a.dtype)

    def reference(a: np.ndarray) -> np.ndarray:
        return np.pad(a, widths, constant_values=fill) if a.ndim else a

    builder.call(name, [x], reference, widths=told, mode=mode, scalar=scalar(value))


def emit_diff(builder: Builder, name: str) -> None:
    x = builder.operand(
        lambda a: a.ndim > 0 and number(a), lambda: builder.input(builder.random.choice(dtypes.NUMBERS), (5,))
    )
    a = builder.values[x]
    axis, n = builder.axis(a), builder.one_of(1, 1, 2, 3, 0)
    ids: list[int | None] = [x, None, None]
    for k in (1, 2):
        if builder.chance(0.3):
            shape = list(a.shape)
            shape[axis] = builder.one_of(0, 1, 2)
            ids[k] = builder.input(dtypes.name_of(a.dtype), shape)

    def reference(a: np.ndarray, before: np.ndarray | None, behind: np.ndarray | None) -> np.ndarray:
        whole = np.moveaxis(
            np.concatenate([part for part in (before, a, behind) if part is not None], axis=axis), axis, 0
        )
        for _ in range(n):
            whole = dtypes.widened(whole[1:]) - dtypes.widened(whole[:-1])
            whole = whole.astype(a.dtype)
        return np.moveaxis(whole, 0, axis)

    exact = not dtypes.is_complex(a.dtype)
    builder.call(name, ids, reference, check=compare.bits if exact else compare.ulps(4), exact=exact, axis=axis, n=n)


def emit_triangle(builder: Builder, name: str) -> None:
    """tril and triu."""
    x = builder.operand(at_least(2), of_rank(builder, 2, 3))
    k = builder.random.randint(-4, 4)
    below = name == "tril"

    def reference(a: np.ndarray) -> np.ndarray:
        kept = np.tri(*a.shape[-2:], k=k if below else k - 1, dtype=bool) == below
        return np.where(kept, a, np.zeros((), a.dtype))

    builder.call(name, [x], reference, k=k)


def emit_diag(builder: Builder, name: str) -> None:
    x = builder.operand(lambda a: a.ndim in (1, 2) and a.size < 60, lambda: builder.input(shape=builder.shape(1, 50)))
    k = builder.random.randint(-3, 3)
    builder.call(name, [x], lambda a: np.diag(a, k), k=k, **_zeros_lose_signs(builder, x))


GENERATORS = [
    Generator(name, "movement", weight, emit)
    for name, weight, emit in (
        ("permute", 1, emit_permute),
        ("moveaxis", 1, emit_moveaxis),
        ("swapaxes", 1, emit_swapaxes),
        ("matrix_transpose", 1, emit_matrix_transpose),
        ("flip", 1, emit_flip),
        ("expand_dims", 1, emit_expand_dims),
        ("squeeze", 1, emit_squeeze),
        ("broadcast_to", 1, emit_broadcast_to),
        ("broadcast_arrays", 1, emit_broadcast_arrays),
        ("unstack", 1, emit_unstack),
        ("diagonal", 1, emit_diagonal),
        ("meshgrid", 0.5, emit_meshgrid),
        ("reshape", 1.2, emit_reshape),
        ("reblock", 0.7, emit_reblock),
        ("concat", 1.2, emit_concat),
        ("stack", 0.7, emit_stack),
        ("tile", 0.7, emit_tile),
        ("repeat", 1.2, emit_repeat),
        ("roll", 1.2, emit_roll),
        ("pad", 1.2, emit_pad),
        ("diff", 0.7, emit_diff),
        ("tril", 0.7, emit_triangle),
        ("triu", 0.7, emit_triangle),
        ("diag", 0.5, emit_diag),
    )
]

"""Products and norms: sums of products, compared in proportion to the sum of their sizes."""

from collections.abc import Callable, Sequence

import numpy as np

import compare
import dtypes
from builder import Builder, Generator, Skip
from cases.elementwise import BINARY, number
from cases.reductions import over
from compare import Incomparable, Outcome

INFINITY = float("inf")


def factor(a: np.ndarray) -> bool:
    """Numbers whose products stay in range in every dtype."""
    return number(a) and dtypes.is_moderate(a, 100)


def fresh(builder: Builder, rank: int, dtype: str | None = None) -> Callable[[], int]:
    return lambda: builder.input(dtype or builder.random.choice(dtypes.NUMBERS), builder.shape(rank), kind(builder))


def kind(builder: Builder) -> str:
    return "small" if builder.chance(0.7) else "normal"


def emit_product(builder: Builder, name: str, x: int, y: int, product: Callable, **arguments) -> None:
    """A call whose result is `product` of x and y, a sum of products in any order; exact among integers."""
    dtype = dtypes.common(builder.values[x].dtype, builder.values[y].dtype)

    def reference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        a, b = a.astype(dtype), b.astype(dtype)
        if dtypes.is_integer(dtype):
            return np.asarray(product(a, b)).astype(dtype)
        return np.asarray(product(dtypes.precise(a), dtypes.precise(b))).astype(dtype)

    def check(outcome: Outcome) -> list:
        if not all(dtypes.is_moderate(a, 1e4) for a in outcome.operands):
            raise Incomparable
        sizes = np.asarray(product(*map(dtypes.magnitudes, outcome.operands)))
        return [compare.sum_agrees(outcome.expected[0], outcome.actual[0], sizes)]

    exact = dtypes.is_integer(dtype)
    builder.call(name, [x, y], reference, check=compare.bits if exact else check, exact=exact, **arguments)


def emit_matmul(builder: Builder, name: str) -> None:
    x = builder.operand(lambda a: a.ndim > 0 and factor(a), fresh(builder, builder.one_of(1, 2, 2, 3)))
    a = builder.values[x]
    k = a.shape[-1]
    shape = builder.one_of(
        (k,), (k, builder.one_of(1, 2, 5, 9, 0)), a.shape[:-2] + (k, 3), (2,) + (1,) * (a.ndim - 2) + (k, 4), (1, k, 2)
    )
    dtype = dtypes.name_of(a.dtype) if builder.chance(0.7) else builder.random.choice(dtypes.NUMBERS)
    way = builder.random.random()
    if way < 0.35 and len(shape) >= 2:
        y = builder.input(dtype, shape[:-2] + (shape[-1], shape[-2]), kind(builder))
        (y,) = builder.call("matrix_transpose", [y], np.matrix_transpose)
    elif way < 0.45 and a.ndim == 2:
        (y,) = builder.call("matrix_transpose", [x], np.matrix_transpose)
    else:
        y = builder.input(dtype, shape, kind(builder))
        if builder.chance(0.1):
            (y,) = builder.call("flip", [y], lambda a: np.flip(a, 0), axes=[0])
    b = builder.values[y]
    try:
        np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    except ValueError:
        raise Skip from None
    k_parts = builder.one_of(0, 0, 1) if max(a.ndim, b.ndim) > 2 else builder.one_of(0, 0, 1, 2, 3)
    emit_product(builder, name, x, y, np.matmul, k_parts=k_parts)


def emit_tensordot(builder: Builder, name: str) -> None:
    x = builder.operand(lambda a: factor(a) and a.ndim <= 3 and a.size <= 200, fresh(builder, builder.one_of(1, 2)))
    a = builder.values[x]
    count = builder.random.randint(0, min(2, a.ndim))
    axes_a = builder.random.sample(range(a.ndim), count)
    extents = [a.shape[axis] for axis in axes_a] + list(builder.shape(builder.random.randint(0, 2), 20))
    order = builder.random.sample(range(len(extents)), len(extents))
    y = builder.input(dtypes.name_of(a.dtype), [extents[i] for i in order], kind(builder))
    axes_b = [order.index(i) for i in range(count)]
    emit_product(
        builder,
        name,
        x,
        y,
        lambda a, b: np.tensordot(a, b, (axes_a, axes_b)),
        axes_b=axes_b,
        axes_a=[builder.maybe_negative(axis, a.ndim) for axis in axes_a],
    )


def sum_of_products(subscripts: str, arrays: Sequence[np.ndarray]) -> np.ndarray:
    """By broadcasting: NumPy 2.4's einsum corrupts memory for some complex long doubles (README.md)."""
    inputs, _, result = subscripts.partition("->")
    terms, dots = inputs.split(","), 0
    for term, a in zip(terms, arrays):
        dots = max(dots, a.ndim - len(term.replace("...", ""))) if "..." in term else dots
    stands = "0123456789"[:dots]  # for the axes that dots are
    terms = [term.replace("...", stands[dots + len(term) - 3 - a.ndim :]) for term, a in zip(terms, arrays)]
    everything = "".join(terms)
    if "->" in subscripts:
        result = result.replace("...", stands)
    else:
        result = stands + "".join(sorted(c for c in everything if c.isalpha() and everything.count(c) == 1))
    order = result + "".join(sorted(set(everything) - set(result)))
    total: np.ndarray | None = None
    for term, a in zip(terms, arrays):
        for letter in sorted(set(term)):
            while term.count(letter) > 1:
                first = term.index(letter)
                second = term.index(letter, first + 1)
                a = np.diagonal(a, 0, first, second)
                term = "".join(c for i, c in enumerate(term) if i not in (first, second)) + letter
        a = np.transpose(a, sorted(range(len(term)), key=lambda axis, term=term: order.index(term[axis])))
        a = a.reshape([a.shape[sorted(term, key=order.index).index(c)] if c in term else 1 for c in order])
        total = a if total is None else total * a
    assert total is not None
    return total.sum(axis=tuple(range(len(result), len(order))), dtype=total.dtype)


def emit_einsum(builder: Builder, name: str) -> None:
    """Operands with random letters, some of them twice or along an extent of 1; now and then dots, and no result."""
    letters = builder.random.sample("abcdefXYZ", builder.random.randint(1, 5))
    extents = {letter: builder.one_of(1, 2, 2, 3, 4, 6) for letter in letters}
    batch = builder.shape(builder.random.randint(0, 2), 8) if builder.chance(0.3) else None
    dtype = builder.random.choice(dtypes.NUMBERS)
    terms, operands = [], []
    for _ in range(builder.one_of(1, 2, 2, 2, 3, 4)):
        term = [builder.random.choice(letters) for _ in range(builder.random.randint(0, 4))]
        if builder.chance(0.8):
            term = list(dict.fromkeys(term))
        shape = [1 if term.count(letter) == 1 and builder.chance(0.1) else extents[letter] for letter in term]
        if batch is not None and builder.chance(0.8):
            at = builder.random.randint(0, len(term))
            term.insert(at, "...")
            shape[at:at] = [1 if builder.chance(0.1) else n for n in batch[builder.random.randint(0, len(batch)) :]]
        other = builder.chance(0.2)
        operands.append(builder.input(builder.random.choice(dtypes.NUMBERS) if other else dtype, shape, "small"))
        terms.append("".join(term))
    subscripts = ",".join(terms)
    if builder.chance(0.8):
        used = sorted({letter for letter in subscripts if letter.isalpha()})
        result = builder.random.sample(used, builder.random.randint(0, len(used)))
        if "..." in subscripts:
            result.insert(builder.random.randint(0, len(result)), "...")
        subscripts += "->" + "".join(result)
    meet = dtypes.common(*(builder.values[id].dtype for id in operands))
    exact = dtypes.is_integer(meet)

    def reference(*arrays: np.ndarray) -> np.ndarray:
        wide = [a.astype(meet) if exact else dtypes.precise(a.astype(meet)) for a in arrays]
        return np.asarray(sum_of_products(subscripts, wide)).astype(meet)

    def check(outcome: Outcome) -> list:
        sizes = np.asarray(sum_of_products(subscripts, [dtypes.magnitudes(a) for a in outcome.operands]))
        if not dtypes.is_moderate(sizes, 3e4):
            raise Incomparable
        return [compare.sum_agrees(outcome.expected[0], outcome.actual[0], sizes)]

    builder.call(
        name, operands, reference, check=compare.bits if exact else check, exact=exact, subscripts=subscripts
    )


def emit_vecdot(builder: Builder, name: str) -> None:
    x = builder.operand(lambda a: factor(a) and a.ndim > 0, fresh(builder, builder.one_of(1, 2, 3)))
    a = builder.values[x]
    axis = builder.axis(a)
    shape = [1 if builder.chance(0.2) and d != axis % a.ndim else n for d, n in enumerate(a.shape)]
    dtype = dtypes.name_of(a.dtype) if builder.chance(0.7) else builder.random.choice(dtypes.NUMBERS)
    y = builder.input(dtype, shape, kind(builder))
    emit_product(builder, name, x, y, lambda a, b: np.sum(np.conj(a) * b, axis=axis), axis=axis)


def emit_outer(builder: Builder, name: str) -> None:
    def short(a: np.ndarray) -> bool:
        return a.ndim == 1 and a.size < 60 and factor(a)

    x = builder.operand(short, fresh(builder, 1))
    y = builder.operand(short, fresh(builder, 1, dtypes.name_of(builder.values[x].dtype)))
    multiply = BINARY["multiply"]
    dtype = dtypes.common(builder.values[x].dtype, builder.values[y].dtype)
    builder.call(name, [x, y], lambda a, b: multiply.reference(a[:, None], b[None, :]), **multiply.how(dtype))


def emit_cross(builder: Builder, name: str) -> None:
    dtype, shape = builder.random.choice(dtypes.NUMBERS), list(builder.shape(builder.random.randint(0, 2), 50))
    axis = builder.random.randint(0, len(shape))
    shape.insert(axis, 3)
    other = [1 if builder.chance(0.2) and d != axis else n for d, n in enumerate(shape)]
    x, y = builder.input(dtype, shape, kind(builder)), builder.input(dtype, other, kind(builder))

    def cross(join: Callable) -> Callable:
        def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
            a, b = (np.moveaxis(v, axis, 0) for v in np.broadcast_arrays(a, b))
            turns = [(1, 2), (2, 0), (0, 1)]
            return np.moveaxis(np.stack([join(a[i] * b[j], a[j] * b[i]) for i, j in turns]), 0, axis)

        return product

    meet = dtypes.DTYPES[dtype]
    exact = dtypes.is_integer(meet)

    def check(outcome: Outcome) -> list:
        sizes = cross(np.add)(*map(dtypes.magnitudes, outcome.operands))
        return [compare.near(outcome.expected[0], outcome.actual[0], 8, sizes)]

    def reference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.asarray(cross(np.subtract)(dtypes.precise(a), dtypes.precise(b))).astype(meet)

    builder.call(
        name,
        [x, y],
        reference,
        check=compare.bits if exact else check,
        exact=exact,
        axis=builder.maybe_negative(axis, len(shape)),
    )


def emit_trace(builder: Builder, name: str) -> None:
    x = builder.operand(
        lambda a: a.ndim >= 2 and dtypes.is_moderate(a, 1e4),
        lambda: builder.input(shape=builder.shape(2), kind="small"),
    )
    offset = builder.random.randint(-3, 3)
    dtype = dtypes.sum_dtype(builder.values[x].dtype)
    exact = dtypes.is_integer(dtype)

    def diagonal(a: np.ndarray) -> np.ndarray:
        return np.diagonal(a, offset, -2, -1)

    def reference(a: np.ndarray) -> np.ndarray:
        wide = diagonal(a).astype(dtype) if exact else dtypes.precise(diagonal(a))
        return np.asarray(wide.sum(-1)).astype(dtype)

    def check(outcome: Outcome) -> list:
        if not dtypes.is_moderate(outcome.operands[0], 1e6):
            raise Incomparable
        sizes = dtypes.magnitudes(diagonal(outcome.operands[0])).sum(-1)
        return [compare.sum_agrees(outcome.expected[0], outcome.actual[0], sizes)]

    builder.call(name, [x], reference, check=compare.bits if exact else check, exact=exact, offset=offset)


def emit_matrix_power(builder: Builder, name: str) -> None:
    dtype, n = builder.one_of("float16", "float32", "float64", "complex128", "int32", "int64"), builder.random.randint(
        1, 6
    )
    x = builder.input(dtype, builder.shape(builder.one_of(0, 0, 1), 4) + (n, n), "duplicates")
    exponent = builder.random.randint(0, 5)

    def power(a: np.ndarray) -> np.ndarray:
        made = np.broadcast_to(np.eye(n, dtype=a.dtype), a.shape)
        for _ in range(exponent):
            made = made @ a
        return made

    def check(outcome: Outcome) -> list:
        ulps = 16 if dtypes.is_half(outcome.expected[0].dtype) else 60
        return [
            compare.near(outcome.expected[0], outcome.actual[0], ulps, power(dtypes.magnitudes(outcome.operands[0])))
        ]

    exact = dtypes.is_integer(dtypes.DTYPES[dtype])
    builder.call(
        name,
        [x],
        lambda a: power(a if exact else dtypes.precise(a)).astype(a.dtype),
        check=compare.bits if exact else check,
        exact=exact,
        n=exponent,
    )


def emit_vector_norm(builder: Builder, name: str) -> None:
    def suits(a: np.ndarray) -> bool:
        return number(a) and a.size > 0 and dtypes.is_moderate(a, 1e4)

    x = builder.operand(
        suits,
        lambda: builder.input(builder.random.choice(dtypes.NUMBERS), builder.shape(empty=False), "normal"),
    )
    axes, keepdims = builder.some_axes(builder.values[x]), builder.chance(0.4)
    ord = builder.one_of(2.0, 2.0, 1.0, INFINITY, -INFINITY, 0.0, 3.0, 0.5, -1.0)

    def reference(a: np.ndarray) -> np.ndarray:
        dtype = dtypes.floating(a.dtype)
        sizes = np.abs(dtypes.precise(a.astype(dtype))).astype(np.longdouble)
        how = {"axis": over(axes), "keepdims": keepdims}
        if abs(ord) == INFINITY:
            made = sizes.max(**how) if ord > 0 else sizes.min(**how)
        elif ord == 0:
            made = (sizes != 0).sum(**how)
        else:
            made = (sizes**ord).sum(**how) ** (1 / np.longdouble(ord))
        return np.asarray(made).astype(dtypes.parts_dtype(dtype))

    half = dtypes.is_half(builder.values[x].dtype)
    builder.call(
        name, [x], reference, check=compare.ulps(4 if half else 60), exact=False, axes=axes, keepdims=keepdims, ord=ord
    )


def emit_matrix_norm(builder: Builder, name: str) -> None:
    shape = builder.shape(builder.one_of(0, 0, 1), 3, empty=False) + (
        builder.random.randint(1, 6),
        builder.random.randint(1, 6),
    )
    x = builder.input(builder.one_of("float32", "float64", "complex64", "complex128"), shape, "normal")
    ord, keepdims = builder.one_of("fro", "nuc", 1.0, -1.0, 2.0, -2.0, INFINITY, -INFINITY), builder.chance(0.4)

    def reference(a: np.ndarray) -> np.ndarray:
        norm = np.linalg.norm(dtypes.double(a), ord, axis=(-2, -1), keepdims=keepdims)
        return np.asarray(norm).astype(dtypes.parts_dtype(a.dtype))

    def check(outcome: Outcome) -> list:
        return [
            compare.near(
                outcome.expected[0], outcome.actual[0], 100, np.linalg.norm(dtypes.double(outcome.operands[0]))
            )
        ]

    builder.call(name, [x], reference, check=check, exact=False, ord=ord, keepdims=keepdims)


GENERATORS = [
    Generator(name, "products", weight, emit)
    for name, weight, emit in (
        ("matmul", 1.5, emit_matmul),
        ("tensordot", 0.5, emit_tensordot),
        ("einsum", 0.8, emit_einsum),
        ("vecdot", 0.5, emit_vecdot),
        ("outer", 0.5, emit_outer),
        ("cross", 0.4, emit_cross),
        ("trace", 0.5, emit_trace),
        ("matrix_power", 0.4, emit_matrix_power),
        ("vector_norm", 0.5, emit_vector_norm),
        ("matrix_norm", 0.4, emit_matrix_norm),
    )
]

"""Linear algebra: by what defines a result where it is not unique (factors), else beside LAPACK's in double precision.

Matrices are made so that their condition is small: then errors are some epsilon, and a wrong block shows.
"""

from collections.abc import Callable

import numpy as np

import dtypes
from builder import Builder, Generator, Skip
from compare import Check, Incomparable, Outcome
from dtypes import double

FACTORED = ["float32", "float64", "complex64", "complex128"]
# Integers are computed as float64, 16-bit floats in float32.
CAST = ["int8", "int32", "int64", "uint8", "uint64", "float16", "bfloat16"]
# Of the largest element; by experience with 9 x 9 (LAPACK's own bounds are larger).
TOLERANCE = {"float16": 0.02, "bfloat16": 0.2, "float32": 2.5e-3, "float64": 4.5e-12}


def conjugate(a: np.ndarray) -> np.ndarray:
    return np.conj(np.swapaxes(a, -1, -2))


def tolerance(a: np.ndarray) -> float:
    return TOLERANCE[dtypes.name_of(dtypes.parts_dtype(a.dtype))]


def near(expected: np.ndarray, actual: np.ndarray, scale: float | None = None) -> np.ndarray:
    size = np.abs(double(expected)).max(initial=0) if scale is None else scale
    return np.asarray(np.abs(double(expected) - double(actual)) <= tolerance(actual) * max(size, 1e-3))


def all_near(outcome: Outcome) -> list:
    return [near(e, a) for e, a in zip(outcome.expected, outcome.actual)]


def reproduces(a: np.ndarray, product: np.ndarray, of: np.ndarray) -> bool:
    """Whether factors, of which `of` is one, multiply to `a`."""
    return bool((np.abs(double(a) - product) <= tolerance(of) * max(1, np.abs(double(a)).max(initial=0))).all())


def orthonormal(q: np.ndarray) -> bool:
    """Whether columns are."""
    wide = double(q)
    return bool((np.abs(conjugate(wide) @ wide - np.eye(q.shape[-1])) <= tolerance(q)).all())


def lapack(function: Callable, *results: Callable[[np.dtype], np.dtype]) -> Callable:
    """In double precision; results are rounded to what each function makes of the operands' common dtype."""

    def reference(*operands: np.ndarray) -> list[np.ndarray]:
        dtype = dtypes.floating(dtypes.common(*(a.dtype for a in operands)))
        made = function(*map(double, operands))
        made = made if isinstance(made, tuple) else (made,)
        return [np.asarray(part).astype(to(dtype)) for part, to in zip(made, results)]

    return reference


def same(dtype: np.dtype) -> np.dtype:
    return dtype


# ---- operands ----


def any_dtype(builder: Builder) -> str:
    return builder.random.choice(CAST) if builder.chance(0.3) else builder.random.choice(FACTORED)


def stack_shape(builder: Builder) -> tuple[int, ...]:
    return (0,) if builder.chance(0.05) else builder.shape(builder.one_of(0, 0, 0, 1, 2), 4)


def extent(builder: Builder, dtype: str, empty: bool = True) -> int:
    if empty and builder.chance(0.05):
        return 0
    return builder.random.randint(1, 70 if builder.sizes.large_extents and dtype in FACTORED else 9)


def well_conditioned(builder: Builder, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """A stack of square matrices with a large diagonal, whole numbers where the dtype has few digits."""
    n = shape[-1]
    if dtype in CAST:
        diagonal = min(7 * n, 100)
        return (builder.numbers.integers(0, 3, shape) + diagonal * np.eye(n, dtype=int)).astype(dtypes.DTYPES[dtype])
    return (0.3 * builder.data(dtype, shape, "normal") / max(1, n) ** 0.5 + 3 * np.eye(n)).astype(dtype)


def seen_otherwise(builder: Builder, x: int) -> int:
    """The same, or a view of it that LAPACK does not take as it lies."""
    way = builder.random.random()
    if way < 0.3:
        return builder.call("matrix_transpose", [x], np.matrix_transpose)[0]
    if way < 0.5:
        return builder.call("flip", [x], lambda a: np.flip(a, (-1, -2)), axes=[-1, -2])[0]
    return x


def square(builder: Builder, empty: bool = True) -> int:
    dtype = any_dtype(builder)
    n = extent(builder, dtype, empty)
    return seen_otherwise(builder, builder.input_of(well_conditioned(builder, dtype, stack_shape(builder) + (n, n))))


def hermitian(builder: Builder) -> int:
    """Positive definite."""
    dtype = any_dtype(builder)
    n = extent(builder, dtype, empty=False)
    shape = stack_shape(builder) + (n, n)
    if dtype in CAST:
        x = builder.input_of(lower_as_hermitian(well_conditioned(builder, dtype, shape)).astype(dtypes.DTYPES[dtype]))
    else:
        half = double(builder.data(dtype, shape, "normal"))
        x = builder.input_of((half @ conjugate(half) + 3 * np.eye(n)).astype(dtype))
    return builder.call("matrix_transpose", [x], np.matrix_transpose)[0] if builder.chance(0.3) else x


def lower_as_hermitian(a: np.ndarray) -> np.ndarray:
    """The Hermitian matrix with this lower triangle, which is all that is read."""
    below = np.tril(double(a), -1)
    return below + conjugate(below) + np.real(double(a)) * np.eye(a.shape[-1])


def rectangular(builder: Builder) -> int:
    dtype = any_dtype(builder)
    n, m = extent(builder, dtype, empty=False), extent(builder, dtype, empty=False)
    if builder.chance(0.4):
        m = builder.random.randint(15, 300 if builder.sizes.large_extents else 40)  # tall: a tree of row blocks
    shape = (m, n) if builder.chance(0.7) else (n, m)
    return seen_otherwise(builder, builder.input(dtype, stack_shape(builder) + shape, kind(dtype)))


def kind(dtype: str) -> str:
    """Of the values of a matrix: whole numbers where there are few digits."""
    return "small" if dtype in CAST else "normal"


# ---- ops ----


def emit_inverse_power(builder: Builder, name: str) -> None:
    """Exponents that are not negative are in products.py."""
    x = square(builder, empty=False)
    exponent = builder.one_of(-1, -2)
    if dtypes.is_half(builder.values[x].dtype):
        raise Skip  # out of their range
    builder.call(
        name, [x], lapack(lambda a: np.linalg.matrix_power(a, exponent), same), check=all_near, exact=False, n=exponent
    )


def emit_of_square(builder: Builder, name: str) -> None:
    """det and inv."""
    x = square(builder)
    if name == "det" and dtypes.is_half(builder.values[x].dtype):
        raise Skip  # out of their range
    builder.call(name, [x], lapack(getattr(np.linalg, name), same), check=all_near, exact=False)


def emit_slogdet(builder: Builder, name: str) -> None:
    builder.call(
        name,
        [square(builder)],
        lapack(lambda a: tuple(np.linalg.slogdet(a)), same, dtypes.parts_dtype),
        check=all_near,
        exact=False,
    )


def emit_solve(builder: Builder, name: str) -> None:
    """solve and solve_triangular."""
    x = square(builder)
    a = builder.values[x]
    n, stack, dtype = a.shape[-1], a.shape[:-2], dtypes.name_of(a.dtype)
    if builder.chance(0.3):
        shape = (n,)
    else:
        shape = builder.one_of(stack, stack, (1,) * len(stack), ()) + (n, extent(builder, dtype, empty=False))
    if dtype in CAST:
        y = builder.input_of(builder.numbers.integers(0, 9, shape).astype(dtypes.DTYPES[builder.random.choice(CAST)]))
    else:
        y = builder.input(dtype, shape, "normal")
    lower = None if name == "solve" else builder.chance(0.5)
    triangle = {None: lambda a: a, True: np.tril, False: np.triu}[lower]

    def solve(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        if b.ndim == 1:
            return np.linalg.solve(triangle(a), b[:, None])[..., 0]
        return np.linalg.solve(triangle(a), b)

    builder.call(name, [x, y], lapack(solve, same), check=all_near, exact=False, lower=lower)


def emit_cholesky(builder: Builder, name: str) -> None:
    upper = builder.chance(0.4)

    def factor(a: np.ndarray) -> np.ndarray:
        lower = np.linalg.cholesky(lower_as_hermitian(a))
        return conjugate(lower) if upper else lower

    builder.call(name, [hermitian(builder)], lapack(factor, same), check=all_near, exact=False, upper=upper)


def emit_eigvalsh(builder: Builder, name: str) -> None:
    builder.call(
        name, [hermitian(builder)], lapack(np.linalg.eigvalsh, dtypes.parts_dtype), check=all_near, exact=False
    )


def emit_eigh(builder: Builder, name: str) -> None:
    def check(outcome: Outcome) -> list:
        eigenvalues, vectors = outcome.actual
        q = double(vectors)
        product = (q * double(eigenvalues)[..., None, :]) @ conjugate(q)
        return [
            near(outcome.expected[0], eigenvalues),
            orthonormal(vectors) and reproduces(lower_as_hermitian(outcome.operands[0]), product, vectors),
        ]

    builder.call(
        name,
        [hermitian(builder)],
        lapack(lambda a: tuple(np.linalg.eigh(a)), dtypes.parts_dtype, same),
        check=check,
        exact=False,
    )


def emit_qr(builder: Builder, name: str) -> None:
    complete = builder.chance(0.5)

    def check(outcome: Outcome) -> list:
        q, r = outcome.actual
        product = double(q) @ double(r)
        return [orthonormal(q) and reproduces(outcome.operands[0], product, q), np.tril(r, -1) == 0]

    builder.call(
        name,
        [rectangular(builder)],
        lapack(lambda a: tuple(np.linalg.qr(a, "complete" if complete else "reduced")), same, same),
        check=check,
        exact=False,
        complete=complete,
    )


def emit_svd(builder: Builder, name: str) -> None:
    full = builder.chance(0.5)

    def check(outcome: Outcome) -> list:
        u, s, vh = outcome.actual
        k = s.shape[-1]
        product = (double(u)[..., :, :k] * double(s)[..., None, :]) @ double(vh)[..., :k, :]
        return [
            orthonormal(u) and reproduces(outcome.operands[0], product, u),
            near(outcome.expected[1], s),
            orthonormal(conjugate(vh)),
        ]

    builder.call(
        name,
        [rectangular(builder)],
        lapack(lambda a: tuple(np.linalg.svd(a, full)), same, dtypes.parts_dtype, same),
        check=check,
        exact=False,
        full_matrices=full,
    )


def emit_svdvals(builder: Builder, name: str) -> None:
    builder.call(
        name,
        [rectangular(builder)],
        lapack(lambda a: np.linalg.svd(a, compute_uv=False), dtypes.parts_dtype),
        check=all_near,
        exact=False,
    )


def if_well_conditioned(check: Check) -> Check:
    def checked(outcome: Outcome) -> list:
        a = outcome.operands[0]
        most = 10 if dtypes.is_half(a.dtype) else 100
        if a.size and np.linalg.cond(double(a)).max(initial=0) > most:
            raise Incomparable
        return check(outcome)

    return checked


def emit_pinv(builder: Builder, name: str) -> None:
    builder.call(
        name, [rectangular(builder)], lapack(np.linalg.pinv, same), check=if_well_conditioned(all_near), exact=False
    )


def emit_matrix_rank(builder: Builder, name: str) -> None:
    builder.call(
        name,
        [rectangular(builder)],
        lapack(np.linalg.matrix_rank, lambda dtype: dtypes.DTYPES["int64"]),
        check=if_well_conditioned(all_equal),
        exact=False,
    )


def all_equal(outcome: Outcome) -> list:
    return [outcome.expected[0] == outcome.actual[0]]


def emit_lstsq(builder: Builder, name: str) -> None:
    dtype = any_dtype(builder)
    n = extent(builder, dtype, empty=False)
    m = n + extent(builder, dtype)
    x = builder.input(dtype, (m, n), kind(dtype))
    y = builder.input(dtype, (m,) if builder.chance(0.3) else (m, builder.random.randint(1, 4)), kind(dtype))

    def least(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        solution = np.linalg.lstsq(a, b, rcond=None)[0]
        squares = np.atleast_1d((np.abs(b - a @ solution) ** 2).sum(0))
        return solution, squares if m > n else squares[:0]

    def check(outcome: Outcome) -> list:
        largest = np.abs(double(outcome.operands[1])).max()
        return [
            near(outcome.expected[0], outcome.actual[0]),
            near(outcome.expected[1], outcome.actual[1], n * largest**2),
        ]

    builder.call(name, [x, y], lapack(least, same, dtypes.parts_dtype), check=if_well_conditioned(check), exact=False)


GENERATORS = [
    Generator(name, "linalg", weight, emit)
    for name, weight, emit in (
        ("det", 0.25, emit_of_square),
        ("inv", 0.25, emit_of_square),
        ("slogdet", 0.25, emit_slogdet),
        ("solve", 0.5, emit_solve),
        ("solve_triangular", 0.25, emit_solve),
        ("cholesky", 0.3, emit_cholesky),
        ("eigh", 0.25, emit_eigh),
        ("eigvalsh", 0.2, emit_eigvalsh),
        ("qr", 0.3, emit_qr),
        ("svd", 0.25, emit_svd),
        ("svdvals", 0.2, emit_svdvals),
        ("pinv", 0.2, emit_pinv),
        ("matrix_rank", 0.2, emit_matrix_rank),
        ("matrix_power", 0.2, emit_inverse_power),
        ("lstsq", 0.3, emit_lstsq),
    )
]

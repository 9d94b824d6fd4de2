"""Functions of elements, with numbers of the host language and with broadcasting."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import compare
import dtypes
from builder import Builder, Generator, Skip, Wanted
from compare import Check, Outcome

# ---- what operands an op takes ----


def anything(a: np.ndarray) -> bool:
    return True


def number(a: np.ndarray) -> bool:
    return dtypes.is_number(a.dtype)


def real(a: np.ndarray) -> bool:
    return dtypes.is_real(a.dtype)


def floating(a: np.ndarray) -> bool:
    return dtypes.is_float(a.dtype)


def ordered(a: np.ndarray) -> bool:
    return not dtypes.is_complex(a.dtype)


def integer(a: np.ndarray) -> bool:
    return dtypes.is_integer(a.dtype)


def whole(a: np.ndarray) -> bool:
    return integer(a) or dtypes.is_bool(a.dtype)


def tame(a: np.ndarray) -> bool:
    """Numbers, of which complex ones are not so large that products of their parts overflow."""
    return number(a) and (real(a) or dtypes.is_moderate(a, 1e15))


def of_these(builder: Builder, wanted: Wanted) -> Callable[[], int]:
    """Makes an input of a dtype that is wanted."""
    names = [name for name in dtypes.ALL if wanted(np.zeros(1, dtypes.DTYPES[name]))]
    return lambda: builder.input(builder.random.choice(names))


# ---- references ----


def rounded_once(function: Callable) -> Callable:
    """16-bit floats are computed in float32 and rounded at the end."""

    def reference(*operands: np.ndarray) -> np.ndarray:
        result = np.asarray(function(*map(dtypes.widened, operands)))
        half = [a.dtype for a in operands if dtypes.is_half(a.dtype)]
        return result.astype(half[0]) if half and dtypes.is_float(result.dtype) else result

    return reference


def promoted(function: Callable) -> Callable:
    """Two operands meet in their common dtype first."""

    def reference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        dtype = dtypes.common(a.dtype, b.dtype)
        return np.asarray(rounded_once(function)(a.astype(dtype), b.astype(dtype)))

    return reference


def of_floats(function: Callable) -> Callable:
    """Integers are taken as float64."""
    return lambda *operands: function(*(a.astype(dtypes.floating(a.dtype)) for a in operands))


def but_integers(function: Callable) -> Callable:
    """Integers stay as they are."""
    return lambda a: a if integer(a) else function(a)


def but_reals(function: Callable, of_reals: Callable) -> Callable:
    return lambda a: function(a) if dtypes.is_complex(a.dtype) else of_reals(a)


def in_float64(function: Callable) -> Callable:
    """Computed with more digits than the operand's, rounded at the end; float64 by NumPy's own function."""

    def reference(*operands: np.ndarray) -> np.ndarray:
        dtype = dtypes.floating(dtypes.common(*(a.dtype for a in operands)))
        wide = np.complex128 if dtypes.is_complex(dtype) else np.float64
        return np.asarray(function(*(a.astype(dtype).astype(wide) for a in operands))).astype(dtype)

    return reference


def integer_power(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Modulo 2^bits; a negative exponent, which NumPy refuses, gives the reciprocal rounded towards zero."""
    dtype = a.dtype
    bits = 8 * dtype.itemsize

    def power(base: int, exponent: int) -> int:
        if exponent < 0:
            inverse = {1: 1, -1: 1 if exponent % 2 == 0 else -1}.get(base, 0)
            return inverse % (1 << bits)
        return pow(base, exponent, 1 << bits)

    bases, exponents = np.broadcast_arrays(a, b)
    made = [power(int(base), int(exponent)) for base, exponent in zip(bases.flat, exponents.flat)]
    return np.array(made, f"uint{bits}").view(dtype).reshape(bases.shape)


def power(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    dtype = dtypes.common(a.dtype, b.dtype)
    if dtypes.is_integer(dtype):
        return integer_power(a.astype(dtype), b.astype(dtype))
    return in_float64(_float_power)(a, b)


def _float_power(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """NumPy takes a square root where the exponent is one 0.5: of -infinity, whose power C and the standard call
    infinity, that is NaN, and of -0 it is -0."""
    return np.where((b == 0.5) & ((a == -np.inf) | (a == 0)), np.abs(a), np.power(a, b))


def complex_of(re: np.ndarray, im: np.ndarray) -> np.ndarray:
    made = np.empty(np.broadcast_shapes(re.shape, im.shape), "complex64" if re.dtype == "float32" else "complex128")
    made.real, made.imag = re, im
    return made


def truth(a: np.ndarray) -> np.ndarray:
    return dtypes.widened(a) != 0


# ---- checks ----


def close_function(outcome: Outcome) -> list:
    """Of a transcendental function: 4 ulp, zeros with their signs; complex ones where NumPy's own digits hold."""
    expected, actual = outcome.expected[0], outcome.actual[0]
    if not dtypes.is_complex(expected.dtype):
        agree = compare.near(expected, actual, 4)
        return [
            agree
            & (compare.same_bits(expected, actual) | (dtypes.widened(expected) != 0) | (dtypes.widened(actual) != 0))
        ]
    size = np.abs(outcome.operands[0])
    return [compare.near(expected, actual, 64, 1.0) | ~np.isfinite(size) | (size > 50) | (size < 1e-3)]


def close_logaddexp(outcome: Outcome) -> list:
    """Its digits are those of the larger argument."""
    a, b = (dtypes.widened(a).astype(np.float64) for a in outcome.operands)
    largest = np.maximum(np.abs(a), np.abs(b))
    return [
        compare.near(outcome.expected[0], outcome.actual[0], 8, largest)
        | ~np.isfinite(dtypes.precise(outcome.expected[0]))
    ]


def division(outcome: Outcome) -> list:
    """Of // and %: bits, but for divisors of zero (of integers anything; of floats NumPy's own choices), infinities,
    and quotients whose rounding NumPy leaves to fmod of a large number."""
    a, b = (dtypes.widened(a) for a in outcome.operands)
    a, b = (np.asarray(x).astype(np.float64) if dtypes.is_inexact(outcome.expected[0].dtype) else x for x in (a, b))
    open_result = np.broadcast_to(b == 0, outcome.expected[0].shape)
    if dtypes.is_inexact(outcome.expected[0].dtype):
        open_result = open_result | ~np.isfinite(a) | ~np.isfinite(b) | (np.abs(a) > 1e15)
    return [compare.same_bits(outcome.expected[0], outcome.actual[0]) | open_result]


# ---- tables ----


@dataclass(frozen=True)
class Unary:
    reference: Callable
    wanted: Wanted
    check: Check = compare.bits
    check_complex: Check | None = None  # where complex results may differ in last places: then they are not exact

    def emit(self, builder: Builder, name: str) -> None:
        x = builder.operand(self.wanted, of_these(builder, self.wanted))
        inexact = self.check_complex is not None and dtypes.is_complex(builder.values[x].dtype)
        builder.call(
            name,
            [x],
            self.reference,
            check=self.check_complex if inexact else self.check,
            exact=self.check is compare.bits and not inexact,
        )


UNARY = {
    "abs": Unary(rounded_once(np.abs), tame, check_complex=compare.ulps(4)),
    "sign": Unary(rounded_once(np.sign), tame, check_complex=compare.ulps(4)),
    "negative": Unary(np.negative, number),
    "positive": Unary(lambda a: a, number),
    "square": Unary(rounded_once(lambda a: a * a), tame, check_complex=compare.ulps(4)),
    "sqrt": Unary(of_floats(rounded_once(np.sqrt)), tame, check_complex=close_function),
    "reciprocal": Unary(of_floats(rounded_once(lambda a: 1 / a)), tame, check_complex=compare.ulps(16)),
    "floor": Unary(but_integers(rounded_once(np.floor)), real),
    "ceil": Unary(but_integers(rounded_once(np.ceil)), real),
    "trunc": Unary(but_integers(rounded_once(np.trunc)), real),
    "round": Unary(but_integers(rounded_once(np.rint)), number),
    "signbit": Unary(rounded_once(np.signbit), floating),
    "isnan": Unary(rounded_once(np.isnan), anything),
    "isinf": Unary(rounded_once(np.isinf), anything),
    "isfinite": Unary(rounded_once(np.isfinite), anything),
    "conj": Unary(but_reals(np.conj, lambda a: a), number),
    "real": Unary(but_reals(np.real, lambda a: a), number),
    "imag": Unary(but_reals(np.imag, np.zeros_like), number),
    "logical_not": Unary(lambda a: ~truth(a), anything),
    "bitwise_invert": Unary(np.invert, whole),
}
for _name, _function in {
    "exp": np.exp,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "log2": np.log2,
    "log10": np.log10,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
}.items():
    UNARY[_name] = Unary(
        in_float64(_function),
        lambda a: number(a) and (real(a) or dtypes.is_moderate(a, 50)),
        check=close_function,
        check_complex=close_function,
    )


@dataclass(frozen=True)
class Binary:
    """`check` is for dtypes in which the op is not exact: those for which `inexact` holds (None: none)."""

    reference: Callable
    wanted: Wanted
    check: Check = compare.bits
    inexact: Callable[[np.dtype], bool] | None = None
    weight: float = 1.0

    def suits(self, a: np.ndarray, b: np.ndarray) -> bool:
        return self.wanted(a) and self.wanted(b) and self.wanted(np.zeros(1, dtypes.common(a.dtype, b.dtype)))

    def how(self, dtype: np.dtype) -> dict:
        """How results are compared where operands meet in this dtype."""
        inexact = self.inexact is not None and self.inexact(dtype)
        return {"check": self.check if inexact else compare.bits, "exact": not inexact}

    def emit(self, builder: Builder, name: str) -> None:
        fresh = of_these(builder, self.wanted)
        x = builder.operand(self.wanted, fresh)
        a = builder.values[x]
        if builder.chance(0.35):
            return self._emit_scalar(builder, name, x)
        way = builder.random.random()
        if way < 0.15:
            y = x
        elif way < 0.5:
            y = builder.operand(
                lambda b: self.suits(a, b) and broadcast(a, b),
                lambda: builder.broadcast_partner(a, dtypes.name_of(a.dtype)),
            )
        else:
            other = [n for n in dtypes.ALL if self.suits(a, np.zeros(1, dtypes.DTYPES[n]))]
            dtype = dtypes.name_of(a.dtype) if builder.chance(0.5) else builder.random.choice(other)
            y = builder.broadcast_partner(a, dtype)
        b = builder.values[y]
        if not self.suits(a, b) or not broadcast(a, b):
            raise Skip
        return builder.call(name, [x, y], self.reference, **self.how(dtypes.common(a.dtype, b.dtype)))

    def _emit_scalar(self, builder: Builder, name: str, x: int) -> None:
        a, value, reversed_ = builder.values[x], builder.number_beside(builder.values[x]), builder.chance(0.5)
        if name in COMPARISONS and integer(a) and builder.chance(0.3):
            return _emit_beyond(builder, name, x)
        if name == "pow" and integer(a) and not reversed_ and not isinstance(value, float) and value < 0:
            raise Skip  # refused, as by NumPy
        dtype = dtypes.scalar_dtype(a.dtype, value)
        if not self.suits(a, np.zeros(1, dtype)):
            raise Skip
        beside = np.asarray(value).astype(dtype)

        def pair(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return (beside, a) if reversed_ else (a, beside)

        how = self.how(dtypes.common(a.dtype, dtype))
        check = how.pop("check")
        builder.call(
            name,
            [x],
            lambda a: self.reference(*pair(a)),
            scalar=scalar(value),
            reversed=reversed_,
            **how,
            check=lambda outcome: check(Outcome(outcome.expected, outcome.actual, pair(outcome.operands[0]))),
        )


COMPARISONS = {
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
}


def _emit_beyond(builder: Builder, name: str, x: int) -> None:
    """A comparison with an integer that the array's dtype does not have."""
    limits, reversed_ = np.iinfo(builder.values[x].dtype), builder.chance(0.5)
    numbers = [int(limits.min) - 1, int(limits.max) + 1, -(2**63), 2**63 - 1, 2**64 - 1]
    beyond = [n for n in numbers if -(2**63) <= n < 2**64 and not limits.min <= n <= limits.max]
    value = builder.random.choice(beyond)
    compare_with = COMPARISONS[name]
    builder.call(
        name,
        [x],
        lambda a: compare_with(value, a) if reversed_ else compare_with(a, value),
        scalar=scalar(value),
        reversed=reversed_,
    )


def broadcast(*arrays: np.ndarray) -> bool:
    """Whether they do."""
    try:
        np.broadcast_shapes(*(a.shape for a in arrays))
        return True
    except ValueError:
        return False


def scalar(value: bool | int | float | complex) -> str:
    """As the driver reads it (Call::scalar)."""
    if isinstance(value, bool):
        return f"b:{int(value)}"
    if isinstance(value, int):
        return f"{'i' if value < 2**63 else 'u'}:{value}"
    if isinstance(value, float):
        return f"f:{value!r}"
    return f"c:{value.real!r}:{value.imag!r}"


def _logical(function: Callable) -> Callable:
    return lambda a, b: function(truth(a), truth(b))


def _divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return promoted(of_floats(np.divide))(a, b)


def _nextafter(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """In the operands' own dtype, 16-bit ones too; of equal ones (of zeros) the second."""
    dtype = dtypes.common(a.dtype, b.dtype)
    a, b = a.astype(dtype), b.astype(dtype)
    return np.where(a == b, b, np.nextafter(a, b))


# The sign of zero of a complex sum is C's business, and products of complex numbers may be fused.
COMPLEX_ROUNDS = {"check": compare.ulps(16), "inexact": dtypes.is_complex}
BINARY = {
    "add": Binary(promoted(np.add), number, check=compare.numbers, inexact=dtypes.is_complex, weight=2),
    "subtract": Binary(promoted(np.subtract), number, check=compare.numbers, inexact=dtypes.is_complex),
    "multiply": Binary(promoted(np.multiply), tame, **COMPLEX_ROUNDS),
    "divide": Binary(_divide, tame, **COMPLEX_ROUNDS),
    "floor_divide": Binary(promoted(np.floor_divide), real, check=division, inexact=lambda dtype: True),
    "remainder": Binary(promoted(np.remainder), real, check=division, inexact=lambda dtype: True),
    "equal": Binary(promoted(np.equal), anything),
    "not_equal": Binary(promoted(np.not_equal), anything),
    "less": Binary(promoted(np.less), ordered),
    "less_equal": Binary(promoted(np.less_equal), ordered),
    "greater": Binary(promoted(np.greater), ordered),
    "greater_equal": Binary(promoted(np.greater_equal), ordered),
    # Which of -0 and +0 is smaller is left open.
    "minimum": Binary(promoted(np.minimum), ordered, check=compare.numbers, inexact=dtypes.is_float),
    "maximum": Binary(promoted(np.maximum), ordered, check=compare.numbers, inexact=dtypes.is_float),
    "logical_and": Binary(_logical(np.logical_and), anything),
    "logical_or": Binary(_logical(np.logical_or), anything),
    "logical_xor": Binary(_logical(np.logical_xor), anything),
    "bitwise_and": Binary(promoted(np.bitwise_and), whole),
    "bitwise_or": Binary(promoted(np.bitwise_or), whole),
    "bitwise_xor": Binary(promoted(np.bitwise_xor), whole),
    "bitwise_left_shift": Binary(promoted(np.left_shift), integer),
    "bitwise_right_shift": Binary(promoted(np.right_shift), integer),
    "copysign": Binary(promoted(np.copysign), floating),
    "nextafter": Binary(_nextafter, floating),
    "pow": Binary(power, real, check=close_function, inexact=dtypes.is_float),
    "atan2": Binary(in_float64(np.arctan2), real, check=close_function, inexact=lambda dtype: True),
    "hypot": Binary(in_float64(np.hypot), real, check=close_function, inexact=lambda dtype: True),
    "logaddexp": Binary(in_float64(np.logaddexp), real, check=close_logaddexp, inexact=lambda dtype: True),
}


# ---- ops of their own ----


def emit_complex(builder: Builder, name: str) -> None:
    dtype = builder.one_of("float32", "float64")
    x = builder.operand(lambda a: dtypes.name_of(a.dtype) == dtype, lambda: builder.input(dtype))
    builder.call(name, [x, builder.broadcast_partner(builder.values[x], dtype)], complex_of)


def emit_where(builder: Builder, name: str) -> None:
    condition = builder.operand(lambda a: dtypes.is_bool(a.dtype), lambda: builder.input("bool"))
    mask = builder.values[condition]
    x = builder.operand(lambda a: broadcast(a, mask), lambda: builder.broadcast_partner(mask))
    a = builder.values[x]
    if builder.chance(0.4):
        value, reversed_ = builder.number_beside(a), builder.chance(0.5)
        beside = np.asarray(value).astype(dtypes.scalar_dtype(a.dtype, value))
        builder.call(
            name,
            [condition, x],
            lambda m, a: where(m, *((beside, a) if reversed_ else (a, beside))),
            scalar=scalar(value),
            reversed=reversed_,
        )
        return
    both = np.zeros(np.broadcast_shapes(mask.shape, a.shape))
    y = (
        x
        if builder.chance(0.1)
        else builder.broadcast_partner(both, dtypes.name_of(a.dtype) if builder.chance(0.5) else None)
    )
    builder.call(name, [condition, x, y], where)


def where(condition: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    dtype = dtypes.common(a.dtype, b.dtype)
    return np.where(condition, a.astype(dtype), b.astype(dtype))


def emit_astype(builder: Builder, name: str) -> None:
    x = builder.operand()
    a, to = builder.values[x], builder.random.choice(dtypes.ALL)
    if dtypes.is_complex(a.dtype) and to not in dtypes.COMPLEX + [dtypes.BOOL]:
        raise Skip  # refused: say real()
    if dtypes.is_inexact(a.dtype) and to in dtypes.INTEGERS:  # what does not fit is left open
        if not dtypes.is_moderate(a, 100) or (to.startswith("u") and (dtypes.precise(a) < 0).any()):
            raise Skip

    def cast(a: np.ndarray) -> np.ndarray:
        if to == dtypes.BOOL:
            return truth(a)
        if dtypes.is_half(dtypes.DTYPES[to]) and not dtypes.is_half(a.dtype):
            a = a.astype(np.float32)  # by way of which 16-bit floats are made
        return dtypes.widened(a).astype(dtypes.DTYPES[to])

    builder.call(name, [x], cast, dtype=to)


def emit_clip(builder: Builder, name: str) -> None:
    x = builder.operand(real, of_these(builder, real))
    a = builder.values[x]
    operands: list[int | None] = [x, None, None]
    numbers: list[int | float | None] = [None, None]
    for k in (0, 1):
        way = builder.random.random()
        if way < 0.4:
            least = 0 if dtypes.is_unsigned(a.dtype) else -5
            whole_number = integer(a) or builder.chance(0.5)
            numbers[k] = builder.random.randint(least, 6) if whole_number else builder.one_of(-1.5, 0.5, 2.5)
        elif way < 0.8:
            operands[1 + k] = builder.broadcast_partner(a, dtypes.name_of(a.dtype))
    try:
        np.broadcast_shapes(*(builder.values[id].shape for id in operands if id is not None))
    except ValueError:
        raise Skip from None

    def reference(a: np.ndarray, *bounds: np.ndarray | None) -> np.ndarray:
        low, high = (b if n is None else np.asarray(n).astype(a.dtype) for b, n in zip(bounds, numbers))
        a = a if low is None else np.maximum(a, low)
        return a if high is None else np.minimum(a, high)

    named = {key: scalar(n) for key, n in zip(("low", "high"), numbers) if n is not None}
    builder.call(name, operands, reference, check=compare.numbers, exact=integer(a), **named)


GENERATORS = (
    [Generator(name, "elementwise", 0.4, unary.emit) for name, unary in UNARY.items()]
    + [Generator(name, "elementwise", 0.7 * binary.weight, binary.emit) for name, binary in BINARY.items()]
    + [
        Generator("complex", "elementwise", 0.5, emit_complex),
        Generator("where", "elementwise", 3, emit_where),
        Generator("astype", "elementwise", 2, emit_astype),
        Generator("clip", "elementwise", 1, emit_clip),
    ]
)

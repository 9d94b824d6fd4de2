"""Fourier transforms, computed by NumPy in double precision."""

from collections.abc import Callable

import numpy as np

import dtypes
from builder import Builder, Generator, Skip
from cases.reductions import over
from compare import Outcome

OF_REALS = ("rfft", "ihfft", "rfftn")
TO_REALS = ("irfft", "hfft", "irfftn")


def operand(builder: Builder, kind: str) -> int:
    real = kind in OF_REALS

    def suits(a: np.ndarray) -> bool:
        # 16-bit floats are transformed in float32: that is what their tests are for.
        return (
            dtypes.is_number(a.dtype)
            and not dtypes.is_half(a.dtype)
            and dtypes.is_moderate(a, 1e4)
            and a.size > 0
            and a.ndim > 0
            and not (real and dtypes.is_complex(a.dtype))
        )

    dtype = builder.random.choice(["float32", "float64"] + ([] if real else dtypes.COMPLEX))
    return builder.operand(
        suits, lambda: builder.input(dtype, builder.shape(builder.one_of(1, 2, 3), empty=False), "normal")
    )


def transform(builder: Builder, kind: str, x: int, function: Callable, **arguments) -> None:
    single = dtypes.name_of(builder.values[x].dtype) in ("float32", "complex64")
    to = np.dtype(
        ("float32" if single else "float64") if kind in TO_REALS else ("complex64" if single else "complex128")
    )

    def reference(a: np.ndarray) -> np.ndarray:
        return function(a.astype(float if kind in OF_REALS else complex)).astype(to)

    def check(outcome: Outcome) -> list:
        largest = max(
            float(np.abs(a).max(initial=0)) for a in (outcome.expected[0], dtypes.double(outcome.operands[0]))
        )
        away = np.abs(outcome.expected[0].astype(complex) - outcome.actual[0])
        return [away <= 200 * dtypes.epsilon(to) * max(largest, 1e-30)]

    builder.call(f"fft.{kind}", [x], reference, check=check, exact=False, norm=arguments.pop("norm"), **arguments)


def norm_of(builder: Builder) -> str:
    return builder.one_of("backward", "ortho", "forward")


def emit_one_axis(builder: Builder, name: str) -> None:
    kind = name.removeprefix("fft.")
    x = operand(builder, kind)
    axis, n, norm = (
        builder.axis(builder.values[x]),
        builder.one_of(None, builder.random.randint(1, 12)),
        norm_of(builder),
    )
    if n is None and kind in TO_REALS and builder.values[x].shape[axis] == 1:
        raise Skip  # of length 0
    transform(builder, kind, x, lambda a: getattr(np.fft, kind)(a, n, axis, norm), n=n, axis=axis, norm=norm)


def emit_several_axes(builder: Builder, name: str) -> None:
    kind = name.removeprefix("fft.")
    x = operand(builder, kind)
    rank = builder.values[x].ndim
    axes = None if builder.chance(0.3) else builder.random.sample(range(rank), builder.random.randint(1, rank))
    over_these = list(range(rank)) if axes is None else axes
    s = None if builder.chance(0.6) else [builder.random.randint(1, 8) for _ in over_these]
    if s is None and kind in TO_REALS and builder.values[x].shape[over_these[-1]] == 1:
        raise Skip
    norm = norm_of(builder)
    transform(builder, kind, x, lambda a: getattr(np.fft, kind)(a, s, over_these, norm), s=s, axes=axes, norm=norm)


def emit_shift(builder: Builder, name: str) -> None:
    x = builder.operand(lambda a: a.ndim > 0)
    axes = builder.some_axes(builder.values[x])
    if axes == []:
        raise Skip
    function = getattr(np.fft, name.removeprefix("fft."))
    builder.call(name, [x], lambda a: function(a, over(axes)), axes=axes)


GENERATORS = (
    [
        Generator(f"fft.{kind}", "fourier", 0.18, emit_one_axis)
        for kind in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
    ]
    + [Generator(f"fft.{kind}", "fourier", 0.18, emit_several_axes) for kind in ("fftn", "ifftn", "rfftn", "irfftn")]
    + [Generator(f"fft.{kind}", "fourier", 0.15, emit_shift) for kind in ("fftshift", "ifftshift")]
)

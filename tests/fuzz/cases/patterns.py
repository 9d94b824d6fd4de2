"""Calls that belong together, as in programs: what passes join, and lineage that grows."""

from collections.abc import Callable

import numpy as np

import compare
import dtypes
from builder import Builder, Generator, Skip
from cases.elementwise import BINARY, UNARY, broadcast, where
from cases.indexing import assigned, text_of
from cases.order import in_order

Step = Callable[[Builder, int, int, int], int]


def _binary(builder: Builder, name: str, x: int, y: int) -> int:
    return builder.call(name, [x, y], BINARY[name].reference)[0]


def roll_and_add(builder: Builder, first: int, x: int, axis: int) -> int:
    (rolled,) = builder.call("roll", [x], lambda a: np.roll(a, 1, axis), shifts=[1], axes=[axis])
    return _binary(builder, "add", x, rolled)


def flip_and_subtract(builder: Builder, first: int, x: int, axis: int) -> int:
    (flipped,) = builder.call("flip", [x], lambda a: np.flip(a, axis), axes=[axis])
    return _binary(builder, "subtract", flipped, first)


def accumulate(builder: Builder, first: int, x: int, axis: int) -> int:
    (summed,) = builder.call(
        "cumulative_sum", [x], lambda a: np.cumsum(a, axis, a.dtype), axis=axis, dtype=builder.values[x].dtype
    )
    return _binary(builder, "bitwise_xor", summed, x)


def sort_and_subtract(builder: Builder, first: int, x: int, axis: int) -> int:
    (rising,) = builder.call("sort", [x], lambda a: in_order(a, axis, False), axis=axis, descending=False)
    return _binary(builder, "subtract", rising, first)


def _along(rank: int, axis: int, part: int | slice) -> list:
    index: list = [slice(None)] * rank
    index[axis % rank] = part
    return index


def stencil(builder: Builder, first: int, x: int, axis: int) -> int:
    """x[1:-1] = x[2:] + x[:-2]"""
    rank = builder.values[x].ndim
    if builder.values[x].shape[axis] < 3:
        raise Skip
    after, before, inner = (_along(rank, axis, part) for part in (slice(2, None), slice(None, -2), slice(1, -1)))
    sides = [
        builder.call("index", [x], lambda a, side=side: a[tuple(side)], terms=text_of(side))[0]
        for side in (after, before)
    ]
    return builder.call(
        "set", [x, _binary(builder, "add", *sides)], lambda a, v: assigned(a, tuple(inner), v), slices=f"{axis}:1:-1:1"
    )[0]


def set_to_sum(builder: Builder, first: int, x: int, axis: int) -> int:
    """x[i] = sum(x)"""
    a = builder.values[x]
    if a.shape[axis] == 0:
        raise Skip
    line = _along(a.ndim, axis, builder.random.randrange(a.shape[axis]))
    (total,) = builder.call("sum", [x], lambda a: np.sum(a, axis, dtypes.sum_dtype(a.dtype)), axes=[axis])
    (narrow,) = builder.call("astype", [total], lambda s: s.astype(a.dtype), dtype=a.dtype)
    return builder.call("set_index", [x, narrow], lambda a, v: assigned(a, tuple(line), v), terms=text_of(line))[0]


STEPS: list[Step] = [roll_and_add, flip_and_subtract, accumulate, sort_and_subtract, stencil, set_to_sum]


def emit_loop(builder: Builder, name: str) -> None:
    """A program that rebinds a name: long chains of views and small writes."""
    first = builder.operand(
        lambda a: dtypes.is_integer(a.dtype) and a.ndim > 0,
        lambda: builder.input(builder.random.choice(dtypes.INTEGERS), builder.shape(builder.one_of(1, 2, 3))),
    )
    axis, step, x = builder.axis(builder.values[first]), builder.random.choice(STEPS), first
    for _ in range(builder.random.randint(2, 12)):
        x = step(builder, first, x, axis)


SIMPLE = [name for name, unary in UNARY.items() if unary.check is compare.bits]
JOINED = [
    "add",
    "subtract",
    "multiply",
    "divide",
    "minimum",
    "maximum",
    "less",
    "greater_equal",
    "not_equal",
    "copysign",
]


def emit_expression(builder: Builder, name: str) -> None:
    """Elementwise arithmetic on arrays of one dtype and about one shape, and choices by comparing: one kernel's
    loops, where nobody asks for what lies between."""
    dtype = builder.random.choice(dtypes.FLOATS + ["int32", "uint8"])
    kind = builder.one_of("edges", "mixed", "small", "duplicates")
    terms = [
        builder.operand(lambda a: dtypes.name_of(a.dtype) == dtype, lambda: builder.input(dtype, kind=kind), reuse=0.3)
    ]
    terms.append(builder.broadcast_partner(builder.values[terms[0]], dtype, kind))
    for _ in range(builder.random.randint(3, 8)):
        x, y, z = (builder.random.choice(terms[-4:]) for _ in range(3))
        a, b, c = (builder.values[id] for id in (x, y, z))
        way = builder.random.random()
        if way < 0.4:
            op = builder.random.choice(SIMPLE)
            if UNARY[op].wanted(a):
                terms += builder.call(op, [x], UNARY[op].reference)
        elif way < 0.8 or not dtypes.is_bool(c.dtype):
            op = builder.random.choice(JOINED)
            if BINARY[op].suits(a, b) and broadcast(a, b):
                how = BINARY[op].how(dtypes.common(a.dtype, b.dtype))
                terms += builder.call(op, [x, y], BINARY[op].reference, **how)
        elif broadcast(a, b, c):
            terms += builder.call("where", [z, x, y], where)


GENERATORS = [Generator("loop", "patterns", 2, emit_loop), Generator("expression", "patterns", 6, emit_expression)]

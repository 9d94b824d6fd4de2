"""The ops, a file a family. A family is a list GENERATORS; ALL has them all."""

from cases import (
    counting,
    creation,
    elementwise,
    fourier,
    indexing,
    linalg,
    movement,
    order,
    patterns,
    placement,
    products,
    reductions,
)

FAMILIES = (
    elementwise,
    reductions,
    movement,
    indexing,
    counting,
    order,
    products,
    linalg,
    fourier,
    creation,
    placement,
    patterns,
)
ALL = [generator for family in FAMILIES for generator in family.GENERATORS]

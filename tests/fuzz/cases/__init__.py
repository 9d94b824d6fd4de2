"""The ops, a file a family. A family is a list GENERATORS; ALL has them all."""

from cases import (
    creation,
    elementwise,
    fourier,
    indexing,
    linalg,
    loops,
    movement,
    order,
    placement,
    products,
    reductions,
)

FAMILIES = (elementwise, reductions, movement, indexing, order, products, linalg, fourier, creation, placement, loops)
ALL = [generator for family in FAMILIES for generator in family.GENERATORS]

"""Where arrays lie, and what they are called: values stay."""

import numpy as np

from builder import Builder, Generator


def unchanged(a: np.ndarray) -> np.ndarray:
    return a


def emit_on(builder: Builder, name: str) -> None:
    count = builder.one_of(1, 1, 2, 3)
    builder.call(name, [builder.operand()], unchanged, devices=builder.random.sample(range(12), count))


def emit_on_mesh(builder: Builder, name: str) -> None:
    builder.call(
        name, [builder.operand()], unchanged, spec=builder.one_of("rows", "columns", "tiles", "joined", "replicated")
    )


def emit_named(builder: Builder, name: str) -> None:
    builder.call(name, [builder.operand()], unchanged)


GENERATORS = [
    Generator(name, "placement", weight, emit)
    for name, weight, emit in (("on", 1.5, emit_on), ("on_mesh", 1.5, emit_on_mesh), ("named", 0.3, emit_named))
]

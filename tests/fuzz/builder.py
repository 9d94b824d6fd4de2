"""Makes a random program from a seed: shapes, values, blocks, and the choice of ops."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

import compare
import dtypes
from program import Call, Input, Program, Touch

Wanted = Callable[[np.ndarray], bool]

MOST_DIMENSIONS = 8  # the library's limit


class Skip(compare.Incomparable):
    """The op does not fit what the program has so far: another one is drawn."""


@dataclass(frozen=True)
class Sizes:
    """What programs of one kind are like."""

    calls: tuple[int, int] = (3, 9)
    elements: int = 1500  # of an input
    result_elements: int = 6000
    ranks: tuple[int, ...] = (0, 1, 1, 1, 2, 2, 2, 2, 3, 3, 4)
    most_dimensions: int = 6
    large_extents: bool = False


SIZES = [  # and how often
    (14, Sizes()),
    (3, Sizes(calls=(15, 30))),
    (2, Sizes(ranks=(2, 3, 5, 6, 7, 8), most_dimensions=MOST_DIMENSIONS)),
    (1, Sizes(elements=30_000, result_elements=60_000, large_extents=True)),
]

# Around which functions have their edges: signed zeros, overflow, underflow, powers with short ways of their own.
EDGES = [
    0.0,
    -0.0,
    1,
    -1,
    0.5,
    -0.5,
    2,
    3,
    -2,
    -3,
    2.5,
    -2.5,
    np.inf,
    -np.inf,
    np.nan,
    1e300,
    -1e300,
    1e-300,
    5e-324,
    0.1,
    0.3,
    1e16,
    np.pi / 2,
    7,
    100,
    -7,
    1e-5,
    709.5,
    -745,
    88.5,
]


@dataclass(frozen=True)
class Generator:
    """Adds a call of the op `name` to a program, or raises Skip."""

    name: str
    family: str
    weight: float
    emit: Callable[["Builder", str], object]


class Builder:
    """A program under construction. `values`: NumPy's, of all arrays so far. `fused`: see Program; then only calls
    whose result is the same to the last bit may be read by others (`exact`)."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.sizes = self.random.choices([sizes for _, sizes in SIZES], [often for often, _ in SIZES])[0]
        self.fused = self.chance(1 / 3)
        self.program = Program(seed)
        self.values: dict[int, np.ndarray] = {}
        self.exact: dict[int, bool] = {}

    # ---- chance ----

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def one_of(self, *choices):
        return self.random.choice(choices)

    def axis(self, array: np.ndarray) -> int:
        if array.ndim == 0:
            raise Skip
        return self.random.randrange(-array.ndim, array.ndim)

    def some_axes(self, array: np.ndarray) -> list[int] | None:
        """Different axes, some counted from the end; None: all. An empty list now and then."""
        if self.chance(0.25):
            return None
        least = 0 if self.chance(0.07) else min(1, array.ndim)
        chosen = self.random.sample(range(array.ndim), self.random.randint(least, array.ndim))
        return [self.maybe_negative(axis, array.ndim) for axis in chosen]

    def maybe_negative(self, axis: int, rank: int) -> int:
        return axis - rank if self.chance(0.3) else axis

    # ---- arrays ----

    def shape(self, rank: int | None = None, most: int | None = None, empty: bool = True) -> tuple[int, ...]:
        if rank is None:
            rank = self.random.choice(self.sizes.ranks)
        large = self.sizes.large_extents and most is None
        most = most or self.sizes.elements
        zero = [0] if empty and (rank <= 1 or self.chance(0.25)) else []
        while True:
            if rank == 1:
                extents = [self.random.randint(1, 9000)] if large else [1, 2, 3, 5, 8, 17, 40, 100] + zero
            else:
                extents = (
                    [1, self.random.randint(1, 40), self.random.randint(1, 150)]
                    if large
                    else [1, 1, 2, 3, 4, 5, 7, 8, 13] + zero
                )
            shape = tuple(self.random.choice(extents) for _ in range(rank))
            if np.prod(shape, dtype=int) <= most:
                return shape

    def data(self, dtype: str, shape: Sequence[int], kind: str | None = None) -> np.ndarray:
        """`kind`: "small" (exact in every dtype), "normal", "duplicates", "edges" or "mixed" (edges among others)."""
        kind = kind or self.one_of("small", "small", "normal", "mixed", "edges", "duplicates")
        if dtype == dtypes.BOOL:
            return np.asarray(self.numbers.random(shape) < self.one_of(0.5, 0.1, 0.9, 0, 1))
        if dtype in dtypes.INTEGERS:
            return self._integers(dtypes.DTYPES[dtype], shape, kind)
        if dtype in dtypes.FLOATS:
            return self._floats(dtypes.DTYPES[dtype], shape, kind)
        made = np.empty(shape, dtype)
        plain = kind if kind not in ("mixed", "edges") else "normal"
        made.real, made.imag = self._reals(shape, plain), self._reals(shape, plain)
        if kind == "mixed" and made.size and self.chance(0.3):
            made.reshape(-1)[self.numbers.integers(made.size)] = complex(np.nan, 1)
        return made

    def _integers(self, dtype: np.dtype, shape: Sequence[int], kind: str) -> np.ndarray:
        limits = np.iinfo(dtype)
        if kind not in ("mixed", "edges"):
            bound = 1 if kind == "duplicates" else 9
            return np.asarray(self.numbers.integers(max(limits.min, -bound), bound, shape, endpoint=True)).astype(dtype)
        made = np.asarray(self.numbers.integers(limits.min, limits.max, shape, dtype, endpoint=True))
        self._sprinkle(made, [limits.min, limits.max, 0, 1])
        return made

    def _floats(self, dtype: np.dtype, shape: Sequence[int], kind: str) -> np.ndarray:
        if kind == "edges":
            return np.asarray(self.numbers.choice(EDGES, shape)).astype(dtype)
        made = np.asarray(self._reals(shape, kind)).astype(dtype)
        if kind == "mixed":
            info = dtypes.finfo(dtype)
            self._sprinkle(
                made, [np.nan, np.inf, -np.inf, 0.0, -0.0, float(info.max), float(info.smallest_subnormal), -0.0]
            )
        return made

    def _reals(self, shape: Sequence[int], kind: str) -> np.ndarray:
        if kind == "small":
            return self.numbers.integers(-8, 9, shape) / self.one_of(1, 1, 2, 4)
        if kind == "duplicates":
            return np.asarray(self.numbers.integers(-1, 2, shape)).astype(float)
        return self.numbers.normal(size=shape) * self.one_of(1, 1, 3, 10)

    def _sprinkle(self, array: np.ndarray, values: list) -> None:
        flat = array.reshape(-1)
        for value in values if flat.size else []:
            flat[self.numbers.integers(flat.size)] = value

    def block(self, shape: Sequence[int]) -> tuple[int, ...] | None:
        """Ragged as a rule: extents that do not divide the shape's; None now and then."""
        if not shape or self.chance(0.1):
            return None
        if self.sizes.large_extents and np.prod(shape, dtype=int) > 500:  # not a block an element: that takes minutes
            parts = self.one_of(2, 3, 5, 8, 20, 40) if len(shape) < 3 else self.one_of(2, 3, 4)
            return tuple(max(1, -(-n // self.random.randint(1, max(1, min(n, parts))))) for n in shape)
        single = self.chance(0.1)
        return tuple(1 if single else self.random.randint(1, max(1, n)) for n in shape)

    def blocks_argument(self, shape: Sequence[int]) -> dict[str, tuple[int, ...]]:
        """`block=` of a creation function, or nothing."""
        return {} if self.chance(0.3) else {"block": tuple(self.random.randint(1, max(1, n)) for n in shape)}

    def input(self, dtype: str | None = None, shape: Sequence[int] | None = None, kind: str | None = None) -> int:
        shape = self.shape() if shape is None else tuple(shape)
        return self.input_of(self.data(dtype or self.random.choice(dtypes.ALL), shape, kind))

    def input_of(self, value: np.ndarray) -> int:
        if value.ndim > MOST_DIMENSIONS:
            raise Skip
        value = np.asarray(value, order="C")
        id = self._new_id(value, exact=True)
        self.program.commands.append(Input(id, value, self.block(value.shape)))
        if self.chance(0.2):
            self.program.commands.append(Touch("persist", id))
        return id

    def operand(
        self, wanted: Wanted = lambda a: True, fresh: Callable[[], int] | None = None, reuse: float = 0.8
    ) -> int:
        """An array that there is, rather a late one, or a fresh one. Skip where that is not as wanted either."""
        known = [id for id, value in self.values.items() if wanted(value) and (not self.fused or self.exact[id])]
        if known and self.chance(reuse):
            return self.random.choice(known[-6:] if self.chance(0.7) else known)
        id = (fresh or self.input)()
        if not wanted(self.values[id]):
            raise Skip
        return id

    def need_exact(self, *ids: int) -> None:
        """Of operands that shapes depend on: there a last bit decides."""
        if not all(self.exact[id] for id in ids):
            raise Skip

    def broadcast_partner(self, array: np.ndarray, dtype: str | None = None, kind: str | None = None) -> int:
        """An input whose shape broadcasts with the array's."""
        shape = [1 if self.chance(0.25) else n for n in array.shape]
        if shape and self.chance(0.3):
            shape = shape[self.random.randint(1, len(shape)) :]
        elif len(shape) < 4 and self.chance(0.15):
            shape = [self.one_of(1, 2, 3)] + shape
        return self.input(dtype, shape, kind)

    def number_beside(self, array: np.ndarray) -> bool | int | float | complex:
        """A number of the host language for an expression with this array; one that its integers hold."""
        kinds = [int, int, float, bool] + ([complex, complex] if dtypes.is_complex(array.dtype) else [])
        kind = self.random.choice(kinds)
        if kind is bool:
            return self.chance(0.5)
        if kind is float:
            return self.one_of(0.5, -1.5, 2.0, 0.0, -0.0, 1e-3, 3.0, -1.0, float("nan"), float("inf"))
        if kind is complex:
            return complex(self.random.randint(-3, 3), self.random.randint(-3, 3))
        if not dtypes.is_integer(array.dtype):
            return self.random.randint(-7, 7)
        limits = np.iinfo(array.dtype)
        if self.chance(0.1):
            return self.one_of(int(limits.min), int(limits.max))
        return self.random.randint(max(-7, int(limits.min)), 7)

    # ---- calls ----

    def call(
        self,
        name: str,
        operands: Sequence[int | None],
        reference: Callable,
        *,
        check: compare.Check = compare.bits,
        exact: bool = True,
        **arguments,
    ) -> list[int]:
        """`exact`: the result has NumPy's bits whenever the operands do. An argument that is None is left out."""
        exact = exact and all(self.exact[id] for id in operands if id is not None)
        if self.fused and not all(self.exact[id] for id in operands if id is not None):
            raise Skip
        named = {key: value for key, value in arguments.items() if value is not None}
        call = Call(name, [], list(operands), named, reference, check)
        made = call.expect([None if id is None else self.values[id] for id in operands])
        if any(array.size > self.sizes.result_elements or array.ndim > self.sizes.most_dimensions for array in made):
            raise Skip
        call.results = [self._new_id(array, exact) for array in made]
        self.program.commands.append(call)
        self._touch(call.results)
        return call.results

    def _touch(self, ids: list[int]) -> None:
        if self.chance(0.12):
            self.program.commands += [Touch("persist", id) for id in ids]
        elif self.chance(0.01) and dtypes.name_of(self.values[ids[0]].dtype) != "bfloat16":  # which .npy does not have
            self.program.commands.append(Touch("store", ids[0], self.block(self.values[ids[0]].shape)))

    def _new_id(self, value: np.ndarray, exact: bool) -> int:
        id = len(self.values) + 1
        self.values[id], self.exact[id] = value, exact
        return id


def generate(seed: int, generators: Sequence[Generator]) -> Program:
    """The program of this seed, of these ops."""
    builder = Builder(seed)
    for _ in range(builder.one_of(1, 2)):
        builder.input()
    wanted = builder.random.randint(*builder.sizes.calls)
    weights = [generator.weight for generator in generators]
    for _ in range(20 * wanted):
        if len(builder.program.calls()) >= wanted:
            break
        generator = builder.random.choices(generators, weights)[0]
        try:
            generator.emit(builder, generator.name)
        except compare.Incomparable:
            pass
        except Exception as mistake:
            mistake.add_note(f"as {generator.name} was added to the program of seed {seed}")
            raise
    _add_fetches(builder)
    if builder.chance(0.4):
        _drop_early(builder)
    return builder.program


def _add_fetches(builder: Builder) -> None:
    program = builder.program
    ids = [id for call in program.calls() for id in call.results]
    if builder.fused:
        read = {id for call in program.calls() for id in call.operands}
        ids = [id for call in program.calls() if not read.issuperset(call.results) for id in call.results]
    builder.random.shuffle(ids)
    together = len(ids) if builder.chance(0.5) else builder.random.randint(0, len(ids))
    program.fetches = ([ids[:together]] if together else []) + [[id] for id in ids[together:]]


def _drop_early(builder: Builder) -> None:
    """Most of what is not fetched is dropped after the last call that reads it, by a program that goes on without
    it."""
    program, seen = builder.program, {id for ids in builder.program.fetches for id in ids}
    commands = []
    for command in reversed(program.commands):
        drops = []
        for id in dict.fromkeys(getattr(command, "operands", [])):
            if id is not None and id not in seen:
                seen.add(id)
                drops += [Touch("drop", id)] if builder.chance(0.8) else []
        seen.update([command.id] if isinstance(command, Touch) else [])
        commands += drops + [command]
    program.commands = commands[::-1]

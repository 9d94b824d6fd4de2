"""Programs: lists of commands that the driver runs and NumPy is asked about."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

import compare
import dtypes


@dataclass(eq=False)
class Input:
    """An array from memory. `block`: extents of its blocks; None: the library's default."""

    id: int
    value: np.ndarray
    block: tuple[int, ...] | None = None

    def line(self) -> str:
        return (
            f"input {self.id} {dtypes.name_of(self.value.dtype)} {encoded(self.value.shape)} "
            f"{'-' if self.block is None else encoded(self.block)} {self.value.tobytes().hex() or '-'}"
        )

    def text(self) -> str:
        if self.value.size <= 40:
            values = np.array2string(self.value.reshape(-1), separator=", ", floatmode="unique", max_line_width=1000)
        else:
            values = "..."
        cut = "" if self.block is None else f", in blocks of {self.block}"
        return f"x{self.id} = {dtypes.name_of(self.value.dtype)} of shape {self.value.shape}{cut}: {values}"


@dataclass(eq=False)
class Call:
    """A call of an op. `operands`: ids, None for one that is left out. `reference` takes the operands' values and
    gives the results', an array or several; `check` says whether what came is that."""

    name: str
    results: list[int]
    operands: list[int | None]
    arguments: dict[str, object]
    reference: Callable
    check: compare.Check

    def line(self) -> str:
        named = "".join(f" {key}={encoded(value)}" for key, value in self.arguments.items())
        operands = encoded([operand or 0 for operand in self.operands])
        return f"call {self.name} {encoded(self.results)} {operands}{named}"

    def text(self) -> str:
        operands = ["none" if operand is None else f"x{operand}" for operand in self.operands]
        named = [f"{key}={encoded(value)}" for key, value in self.arguments.items()]
        return f"{', '.join(f'x{id}' for id in self.results)} = {self.name}({', '.join(operands + named)})"

    def expect(self, values: Sequence[np.ndarray | None]) -> list[np.ndarray]:
        made = self.reference(*values)
        return [np.asarray(array) for array in (made if isinstance(made, (list, tuple)) else [made])]


@dataclass(eq=False)
class Touch:
    """What is done to an array and leaves its values as they are: persist, drop, or store (through a file, with other
    blocks)."""

    what: str
    id: int
    block: tuple[int, ...] | None = None

    def line(self) -> str:
        return f"{self.what} {self.id}" + (f" {encoded(self.block or ())}" if self.what == "store" else "")

    def text(self) -> str:
        return f"{self.what}(x{self.id})" + (f" and load in blocks of {self.block}" if self.block else "")


Command = Input | Call | Touch


@dataclass(eq=False)
class Program:
    """`fetches`: which results are asked for together, in this order. A program is *fused* where only its ends are
    fetched: what lies between may then be joined into one kernel, or never be made, and NumPy's values are computed
    from the inputs on. Else every result is fetched, and each call compared with what NumPy makes of the operands
    that the library really had."""

    seed: int
    commands: list[Command] = field(default_factory=list)
    fetches: list[list[int]] = field(default_factory=list)

    def calls(self) -> list[Call]:
        return [command for command in self.commands if isinstance(command, Call)]

    def script(self) -> str:
        lines = [f"program {self.seed}"] + [command.line() for command in self.commands]
        lines += ["fetch " + " ".join(map(str, ids)) for ids in self.fetches]
        return "\n".join(lines) + "\n"

    def text(self) -> str:
        lines = [command.text() for command in self.commands]
        lines += ["fetch " + ", ".join(f"x{id}" for id in ids) for ids in self.fetches]
        return "\n".join("    " + line for line in lines)

    def values(self) -> dict[int, np.ndarray]:
        """Of all arrays, as NumPy has them. Raises whatever NumPy does if a call makes no sense."""
        values: dict[int, np.ndarray] = {}
        for command in self.commands:
            if isinstance(command, Input):
                values[command.id] = command.value
            elif isinstance(command, Call):
                values.update(zip(command.results, command.expect([values.get(id) for id in command.operands])))
        return values


def encoded(value: object) -> str:
    """As the driver reads it (call.h)."""
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, (list, tuple)):
        return ",".join(str(int(part)) for part in value) or "-"
    if isinstance(value, float):
        return repr(float(value))
    if isinstance(value, np.dtype):
        return dtypes.name_of(value)
    return str(value)


@dataclass
class Difference:
    """What is wrong with a program's answers, and at which of its calls (None: not known)."""

    # "value", "dtype", "shape", "error", "missing", "crash", or "bits": others than on another form of cluster
    kind: str
    call: Call | None
    detail: str

    def same_as(self, other: "Difference") -> bool:
        """Whether it is likely the same mistake, in a program that was made smaller. A wrong value may have come from
        an earlier call; of errors the text tells, but for numbers in it."""
        if self.kind not in ("error", "crash"):
            return self.kind == other.kind
        mine, others = (re.sub(r"\d+", "", wrong.detail) for wrong in (self, other))
        return self.kind == other.kind and mine == others

    def __str__(self) -> str:
        return f"{self.kind}{f' of {self.call.name}' if self.call else ''}: {self.detail}"


@dataclass
class Answers:
    """What the driver said of one program: results by id, and errors as (id, text)."""

    results: dict[int, np.ndarray] = field(default_factory=dict)
    errors: list[tuple[int, str]] = field(default_factory=list)
    missing: list[int] = field(default_factory=list)


def difference(program: Program, answers: Answers) -> Difference | None:
    """The first call whose results are not NumPy's."""
    for id, text in answers.errors:
        return Difference("error", next((call for call in program.calls() if id in call.results), None), text)
    for id in answers.missing:
        return Difference("missing", None, f"x{id}")
    values = program.values()
    values.update(answers.results)
    for call in program.calls():
        if all(id in answers.results for id in call.results):
            operands = [values.get(id) for id in call.operands]
            if found := _wrong(call, operands, [answers.results[id] for id in call.results]):
                return found
    return None


def difference_in_bits(program: Program, answers: Answers, beside: Answers) -> Difference | None:
    """The first call with a result that has other bits there, where both have one."""
    for call in program.calls():
        for id in set(call.results) & answers.results.keys() & beside.results.keys():
            one, other = answers.results[id], beside.results[id]
            if one.tobytes() != other.tobytes():
                apart = f": {one!r} and {other!r}" if one.size <= 10 else ""
                return Difference("bits", call, f"x{id} has others on another form of cluster{apart}")
    return None


def _wrong(call: Call, operands: list, actual: list[np.ndarray]) -> Difference | None:
    try:
        expected = call.expect(operands)
        for e, a in zip(expected, actual):
            if e.dtype != a.dtype:
                return Difference("dtype", call, f"got {a.dtype}, want {e.dtype}")
            if e.shape != a.shape:
                return Difference("shape", call, f"got {a.shape}, want {e.shape}")
        masks = call.check(compare.Outcome(expected, actual, operands))
    except compare.Incomparable:
        return None
    for k, mask in enumerate(np.asarray(mask) for mask in masks):
        if not mask.all():
            detail = f"x{call.results[k]}, {np.count_nonzero(~mask)} of {mask.size} differ"
            if mask.shape == actual[k].shape:
                at = tuple(int(i) for i in np.argwhere(~mask)[0])
                detail += f", first at {at}: got {actual[k][at]!r}, want {expected[k][at]!r}"
                same_place = [o[at] for o in operands if o is not None and o.shape == mask.shape]
                if same_place:
                    detail += f" of {', '.join(map(repr, same_place))}"
            return Difference("value", call, detail)
    return None

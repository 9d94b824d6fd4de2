"""Makes a failing program smaller for as long as it fails in the same way."""

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np

from program import Call, Command, Difference, Input, Program, Touch

MOST_RUNS = 200


def shrink(
    program: Program, wrong: Difference, examine: Callable[[Program], Difference | None]
) -> tuple[Program, Difference]:
    """`examine` runs a program; what it finds must be the same mistake as `wrong`. Gives the smallest program that was
    found, and what is wrong with it."""
    runs = 0
    better = True
    while better:
        better = False
        for candidate in _smaller(program, wrong.call):
            if runs == MOST_RUNS:
                return program, wrong
            if not _makes_sense(candidate):
                continue
            runs += 1
            found = examine(candidate)
            if found is not None and found.same_as(wrong):
                program, wrong, better = candidate, found, True
                break
    return program, wrong


def _makes_sense(program: Program) -> bool:
    try:
        program.values()
        return True
    except Exception:  # whatever NumPy, or a reference, makes of operands that it was not written for
        return False


def _smaller(program: Program, failing: Call | None) -> Iterator[Program]:
    """What may be tried, what leaves out most first."""
    commands = program.commands
    if failing is not None and failing in commands:
        yield from _shorter_ends(program, failing)
    for k in reversed(range(len(commands))):
        if isinstance(commands[k], Call) and commands[k] is not failing:
            yield _as_inputs(program, k)
        if commands[k] is not failing:
            yield _with_commands(program, _without(commands, k))
    if len(program.fetches) > 1:
        yield dataclasses.replace(program, fetches=[[id for ids in program.fetches for id in ids]])
    for k, command in enumerate(commands):
        if isinstance(command, Input):
            yield from (_replaced(program, k, smaller) for smaller in _simpler_inputs(command))
    extents = {n for c in commands if isinstance(c, Input) for n in c.value.shape if n > 1}
    for old in sorted(extents, reverse=True):
        for new in (1, old // 2, old - 1):
            if new < old:
                yield _with_extent(program, old, new)


def _shorter_ends(program: Program, failing: Call) -> Iterator[Program]:
    """What the failing call needs, or one of those that it reads."""
    needed = _ancestors(program.commands, failing)
    if len(needed) < len(program.commands):
        yield _ending_with(program, failing, touches=False)
        yield _ending_with(program, failing, touches=True)
        yield _with_commands(program, needed)  # which leaves what is fetched together
    for call in program.calls():
        if set(call.results).intersection(id for id in failing.operands if id is not None):
            yield _ending_with(program, call, touches=True)


def _ending_with(program: Program, call: Call, touches: bool) -> Program:
    """What this call needs; its results are fetched last."""
    kept = [c for c in _ancestors(program.commands, call) if touches or not isinstance(c, Touch)]
    fetches = [[id for id in ids if id not in call.results] for ids in program.fetches] + [call.results]
    return _with_commands(dataclasses.replace(program, fetches=fetches), kept)


def _ancestors(commands: list[Command], failing: Call) -> list[Command]:
    needed = set(failing.results)
    kept = []
    for command in reversed(commands[: commands.index(failing) + 1]):
        made = command.results if isinstance(command, Call) else [command.id]
        if needed.intersection(made):
            kept.append(command)
            needed.update(id for id in getattr(command, "operands", []) if id is not None)
    return kept[::-1]


def _without(commands: list[Command], k: int) -> list[Command]:
    """Without the k-th, and what needs its arrays."""
    if isinstance(commands[k], Touch):
        return commands[:k] + commands[k + 1 :]
    gone = set(commands[k].results if isinstance(commands[k], Call) else [commands[k].id])
    kept = commands[:k]
    for command in commands[k + 1 :]:
        if isinstance(command, Call):
            lost = gone.intersection(id for id in command.operands if id is not None)
            gone.update(command.results if lost else [])
        else:
            lost = command.id in gone
        kept += [] if lost else [command]
    return kept


def _with_commands(program: Program, commands: list[Command]) -> Program:
    there = {id for c in commands if isinstance(c, Call) for id in c.results}
    fetches = [[id for id in ids if id in there] for ids in program.fetches]
    return dataclasses.replace(program, commands=commands, fetches=[ids for ids in fetches if ids])


def _as_inputs(program: Program, k: int) -> Program:
    """Instead of the call its results, as NumPy has them."""
    values = program.values()
    call = program.commands[k]
    read = {id for c in program.calls() for id in c.operands}
    inputs = [
        Input(id, np.ascontiguousarray(values[id]).reshape(values[id].shape)) for id in call.results if id in read
    ]
    return _with_commands(program, program.commands[:k] + inputs + program.commands[k + 1 :])


def _replaced(program: Program, k: int, command: Command) -> Program:
    return dataclasses.replace(program, commands=program.commands[:k] + [command] + program.commands[k + 1 :])


def _simpler_inputs(given: Input) -> Iterator[Input]:
    """In one block, or in fewer; shorter along one axis."""
    if given.block is not None:
        yield dataclasses.replace(given, block=None)
        for axis, (n, b) in enumerate(zip(given.value.shape, given.block)):
            if b < n:
                yield dataclasses.replace(given, block=given.block[:axis] + (n,) + given.block[axis + 1 :])
    for axis, n in enumerate(given.value.shape):
        if n > 1:
            for start, stop in dict.fromkeys([(0, n // 2), (n // 2, n), (0, n - 1), (1, n)]):
                yield _cut(given, axis, slice(start, stop))


def _with_extent(program: Program, old: int, new: int) -> Program:
    commands = list(program.commands)
    for k, command in enumerate(commands):
        if isinstance(command, Input):
            for axis in (axis for axis, n in enumerate(command.value.shape) if n == old):
                commands[k] = _cut(commands[k], axis, slice(0, new))
    return dataclasses.replace(program, commands=commands)


def _cut(given: Input, axis: int, kept: slice) -> Input:
    value = np.ascontiguousarray(given.value[(slice(None),) * axis + (kept,)])
    block = given.block and tuple(max(1, min(b, n)) for b, n in zip(given.block, value.shape))
    return Input(given.id, value, block)

"""Runs programs on a form of cluster, and says what is wrong with what comes."""

import dataclasses
from collections.abc import Sequence

from driver import Driver, Run
from program import Answers, Difference, Program, difference, difference_in_bits

# Errors that a program may end with, and in which forms (None: all). What a generator cannot know: whether a placement
# conflicts with that of an array that has not been computed yet, and whether the blocks that one task needs fit the
# memory of a device.
REFUSALS = {"placement conflict": None, "out of memory": ("spilling", "starved")}

# The order of every sum is a function of the expression and its cuts alone: so all forms must have the bits of this
# one, but for the reference kernels, which sum one element after the other.
BESIDE = "one-worker"
OTHER_ORDER = "reference"
# Which cuts arrays finer where a form has more devices.
CUTS_BY_DEVICES = "on_mesh"


def refusal(text: str, form: str) -> str | None:
    """Which of the permitted errors this is."""
    for reason, where in REFUSALS.items():
        if text.startswith(reason) and (where is None or form in where):
            return reason
    return None


class Examiner:
    """Of one form of cluster."""

    def __init__(self, path: str, form: str):
        self.form = form
        self.driver = Driver(path, form)
        self._beside = None if form in (BESIDE, OTHER_ORDER) else Driver(path, BESIDE)

    def beside(self, programs: Sequence[Program]) -> dict[int, Answers]:
        """The same programs' answers on the form that others are compared with; nothing where there is none to
        compare."""
        return self._beside.run(programs).answers if self._beside else {}

    def judge(self, program: Program, answers: Answers, beside: Answers | None) -> Difference | None:
        """What is wrong with the answers, apart from permitted errors and what is missing because of them."""
        refused = [error for error in answers.errors if refusal(error[1], self.form)]
        if refused:
            answers = dataclasses.replace(answers, errors=[e for e in answers.errors if e not in refused], missing=[])
        if wrong := difference(program, answers):
            return wrong
        if beside is None or any(call.name == CUTS_BY_DEVICES for call in program.calls()):
            return None
        return difference_in_bits(program, answers, beside)

    def examine(self, program: Program) -> Difference | None:
        """Runs one program by itself."""
        run = self.driver.run([program])
        if run.crash is not None:
            return Difference("crash", None, run.crash)
        return self.judge(program, run.answers[program.seed], self.beside([program]).get(program.seed))

    def find_crash(self, programs: Sequence[Program], run: Run) -> tuple[Program, list[Program]]:
        """Of a run that ended badly: the program that was begun last, and the fewest, in their order, after which the
        driver ends so again. That is mostly the last one alone; nothing where it does not happen again."""
        last = next((p for p in programs if run.answers and p.seed == list(run.answers)[-1]), programs[0])
        if self.driver.run([last]).crash:
            return last, [last]
        fewest = list(programs[: programs.index(last) + 1])
        if not self.driver.run(fewest).crash:
            return last, []
        size = len(fewest) // 2
        while size >= 1:  # leave out as many as possible at a time
            for start in range(0, len(fewest), size):
                fewer = fewest[:start] + fewest[start + size :]
                if fewer and self.driver.run(fewer).crash:
                    fewest = fewer
                    break
            else:
                size //= 2
        return last, fewest

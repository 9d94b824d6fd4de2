#!/usr/bin/env python3
"""Random array programs, run by Tilewise and by NumPy. Where results differ the program is made smaller and printed."""

import argparse
import collections
import concurrent.futures
import dataclasses
import itertools
import os
import pathlib
import sys
import time
import warnings
from collections.abc import Sequence

import numpy as np

import cases
import driver as drivers
from builder import Generator, generate
from examine import Examiner, refusal
from program import Answers, Program
from shrink import shrink

BATCH = 100  # programs a driver process: one cluster for them all
FULL_REPORTS = 3  # of each kind of failure; of the rest only seeds


@dataclasses.dataclass(frozen=True)
class Failure:
    seed: int
    form: str
    kind: str  # equal for what is likely the same bug
    text: str


@dataclasses.dataclass
class Batch:
    """What became of some programs."""

    programs: int = 0
    calls: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    refusals: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    failures: list[Failure] = dataclasses.field(default_factory=list)


def run_batch(examiner: Examiner, seeds: range, generators: Sequence[Generator]) -> Batch:
    prepare_numpy()
    batch = Batch()
    left = [generate(seed, generators) for seed in seeds]
    while left:
        run = examiner.driver.run(left)
        done, left = left, []
        if run.crash is not None:
            last, culprits = examiner.find_crash(done, run)
            done, left = done[: done.index(last)], done[done.index(last) + 1 :]
            seeds_of_it = " ".join(str(program.seed) for program in culprits or [last])
            again = "" if culprits else ", which did not happen again"
            text = f"{run.crash}{again}; seeds {seeds_of_it}"
            batch.failures.append(Failure(last.seed, examiner.form, "crash", text))
        beside = examiner.beside(done)
        for program in done:
            _count(batch, examiner, program, run.answers[program.seed], beside.get(program.seed))
    return batch


def _count(batch: Batch, examiner: Examiner, program: Program, answers: Answers, beside: Answers | None) -> None:
    batch.programs += 1
    batch.calls.update(call.name for call in program.calls())
    batch.refusals.update({reason for _, text in answers.errors if (reason := refusal(text, examiner.form))})
    if wrong := examiner.judge(program, answers, beside):
        kind = f"{wrong.kind} of {wrong.call.name}" if wrong.call else wrong.kind
        batch.failures.append(Failure(program.seed, examiner.form, kind, wrong.detail))


def report(failure: Failure, generators: Sequence[Generator], options: argparse.Namespace) -> str:
    """The program, made smaller where it fails again by itself, and how to run it."""
    examiner = Examiner(options.driver, failure.form)
    program = generate(failure.seed, generators)
    lines = [f"{failure.kind}, seed {failure.seed}, form {failure.form}: {failure.text}"]
    again = f"./dev fuzz --seed {failure.seed} --programs 1 --form {failure.form}" + (
        f" --ops {options.ops}" if options.ops else ""
    )
    lines.append(f"  again: {again}")
    found = examiner.examine(program)
    if found is None:
        return "\n".join(lines + ["  (not by itself; the program:)", program.text()])
    program, found = shrink(program, found, examiner.examine)
    lines += [f"  smaller: {found}", program.text()]
    if options.save:
        folder = pathlib.Path(options.save)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{failure.seed}-{failure.form}.txt"
        path.write_text(program.script())
        lines.append(f"  its script: {path} (fuzz_driver {failure.form} FOLDER <{path})")
    return "\n".join(lines)


def chosen(ops: str | None) -> list[Generator]:
    """The generators of these ops and families, names with commas between them; all without."""
    wanted = set(ops.split(",")) if ops else set()
    known = {name for generator in cases.ALL for name in (generator.name, generator.family)}
    if wanted - known:
        unknown, there = ", ".join(sorted(wanted - known)), ", ".join(sorted(known))
        sys.exit(f"fuzz: no op or family is called {unknown}; there are: {there}")
    return [g for g in cases.ALL if not wanted or g.name in wanted or g.family in wanted]


def prepare_numpy() -> None:
    np.seterr(all="ignore")
    warnings.filterwarnings("ignore")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev fuzz", description=__doc__)
    parser.add_argument("--driver", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--save", help=argparse.SUPPRESS)
    parser.add_argument(
        "--programs", type=int, default=4000, metavar="N", help="so many, over all forms together (4000)"
    )
    parser.add_argument(
        "--seed", type=int, default=1, metavar="S", help="of the first program; the next one's is one more (1)"
    )
    parser.add_argument(
        "--form",
        default="all",
        metavar="F",
        help="of the cluster: all (in turn), or one of " + "those that fuzz_driver --forms lists",
    )
    parser.add_argument("--ops", metavar="A,B", help="only these ops or families; inputs are made as always")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count(), metavar="N", help="clusters at a time (one a processor)"
    )
    return parser.parse_args()


def main() -> int:
    options = parse()
    prepare_numpy()
    forms = drivers.forms(options.driver)
    if options.form != "all":
        if options.form not in forms:
            sys.exit(f"fuzz: no form is called {options.form}; there are: all, {', '.join(forms)}")
        forms = [options.form]
    generators = chosen(options.ops)
    size = min(BATCH, -(-options.programs // len(forms)))
    end = options.seed + options.programs
    starts = range(options.seed, end, size)
    print(
        f"NumPy {np.__version__}, {options.programs} programs from seed {options.seed} on, forms: {', '.join(forms)}",
        flush=True,
    )
    total, began, told = Batch(), time.monotonic(), collections.Counter()
    with concurrent.futures.ProcessPoolExecutor(options.jobs) as pool:
        batches = [
            pool.submit(_run_numbered, options.driver, form, start, min(start + size, end), options.ops)
            for start, form in zip(starts, itertools.cycle(forms))
        ]
        for done in concurrent.futures.as_completed(batches):
            batch = done.result()
            total.programs += batch.programs
            total.calls += batch.calls
            total.refusals += batch.refusals
            total.failures += batch.failures
            for failure in batch.failures:
                told[failure.kind] += 1
                if told[failure.kind] <= FULL_REPORTS:
                    print(report(failure, generators, options), flush=True)
    refused = ", ".join(f"{count} {reason}" for reason, count in total.refusals.items()) or "none"
    took = f"{time.monotonic() - began:.0f} s"
    calls = f"{total.calls.total()} calls of {len(total.calls)} ops"
    print(f"{total.programs} programs, {calls} in {took}; refused: {refused}")
    for kind, count in told.most_common():
        where = [f"{f.seed} ({f.form})" for f in total.failures if f.kind == kind]
        print(f"{count} times {kind}: seeds {', '.join(where[:20])}")
    return 1 if total.failures else 0


def _run_numbered(path: str, form: str, start: int, end: int, ops: str | None) -> Batch:
    return run_batch(Examiner(path, form), range(start, end), chosen(ops))


if __name__ == "__main__":
    sys.exit(main())

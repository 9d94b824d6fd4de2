"""Runs scripts through fuzz_driver (driver.cc)."""

import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

import dtypes
from program import Answers, Program


@dataclass
class Run:
    """`answers`: of the programs that were begun, by seed. `crash`: how the driver ended, if not well."""

    answers: dict[int, Answers] = field(default_factory=dict)
    crash: str | None = None


@dataclass(frozen=True)
class Driver:
    path: str
    form: str
    time_limit_s: float = 300  # of a batch; sanitizers take ten times as long

    def run(self, programs: Sequence[Program]) -> Run:
        script = "".join(program.script() for program in programs).encode()
        with tempfile.TemporaryDirectory(prefix="tilewise-fuzz-") as folder:
            try:
                done = subprocess.run(
                    [self.path, self.form, folder], input=script, capture_output=True, timeout=self.time_limit_s
                )
            except subprocess.TimeoutExpired as late:
                return Run(_read(late.stdout or b""), f"no end within {self.time_limit_s:.0f} s")
        run = Run(_read(done.stdout))
        if done.returncode != 0 or not done.stdout.endswith(b"end\n"):
            said = done.stderr.decode(errors="replace").strip()[-2000:]
            how = f"signal {-done.returncode}" if done.returncode < 0 else f"exit status {done.returncode}"
            run.crash = how + (f": {said}" if said else "")
        return run


def forms(path: str) -> list[str]:
    return subprocess.run([path, "--forms"], capture_output=True, text=True, check=True).stdout.split()


def _read(output: bytes) -> dict[int, Answers]:
    answers: dict[int, Answers] = {}
    current = Answers()
    for line in output.decode().split("\n")[:-1]:  # what a crash has cut off is no line
        word, _, rest = line.partition(" ")
        if word == "program":
            current = answers[int(rest)] = Answers()
        elif word == "result":
            id, dtype, shape, values = rest.split(" ")
            extents = () if shape == "-" else tuple(map(int, shape.split(",")))
            raw = b"" if values == "-" else bytes.fromhex(values)
            current.results[int(id)] = np.frombuffer(raw, dtypes.DTYPES[dtype]).reshape(extents)
        elif word == "error":
            id, _, said = rest.partition(" ")
            current.errors.append((int(id), said))
        elif word == "missing":
            current.missing.append(int(rest))
    return answers

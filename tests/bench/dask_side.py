# The Dask side of bench_scheduling: METG(50 %) of Task Bench patterns, with two worker processes of one thread each.
#
#   dask_side.py [--rows N] [--repeats N]     prints "ready VERSION", then "PATTERN MICROSECONDS" a line
#
# A graph is a dict of rows of tasks, given to Client.get at once. A task checks that its inputs are those of the row before,
# computes A = A * A + A on 64 doubles `iterations` times and returns 16 bytes. Granularity is wall time x cores / tasks;
# efficiency is the time of the computing alone over that of the run, on as many cores, taken before and after each run.
import argparse
import multiprocessing
import statistics
import sys
import time

import distributed
import numpy

CORES, WIDTH = 2, 8


def compute(iterations):
    a = numpy.full(64, 0.1)
    for _ in range(iterations):
        a = a * a + a
        a *= 0.5
    return a[0]


def point(row, column, iterations, wanted, *inputs):
    for value, column_before in zip(inputs, wanted):
        if value != (row - 1, column_before):
            raise ValueError(f"({row}, {column}) was given {value} for ({row - 1}, {column_before})")
    compute(iterations)
    return (row, column)


def dependencies(pattern, row, column):
    if row == 0 or pattern == "trivial":
        return []
    if pattern == "stencil_1d":
        return [c for c in (column - 1, column, column + 1) if 0 <= c < WIDTH]
    return [c for c in range(column - 2, column + 3) if 0 <= c < WIDTH]  # nearest, radix 5


def graph(pattern, rows, iterations, run):
    tasks = {}
    for row in range(rows):
        for column in range(WIDTH):
            wanted = dependencies(pattern, row, column)
            inputs = [f"p-{run}-{row - 1}-{c}" for c in wanted]
            tasks[f"p-{run}-{row}-{column}"] = (point, row, column, iterations, wanted, *inputs)
    last = [f"p-{run}-{rows - 1}-{c}" for c in range(WIDTH)]
    # Dask leaves out what nobody has asked for: where the last row reads no other, all of it has to be asked for.
    return tasks, last, list(tasks) if pattern == "trivial" else last


def timed(iterations):
    start = time.perf_counter()
    compute(iterations)
    return time.perf_counter() - start


class Bench:
    def __init__(self, client, rows, repeats):
        self.client, self.rows, self.repeats, self.run = client, rows, repeats, 0
        self.pool = multiprocessing.get_context("spawn").Pool(CORES)

    def seconds_an_iteration(self):
        """On all cores at once, as the workers compute."""
        iterations = 4000
        return statistics.mean(self.pool.map(timed, [iterations] * CORES)) / iterations

    def sample(self, pattern, iterations):
        granularities, efficiencies = [], []
        for _ in range(self.repeats):
            self.run += 1
            tasks, last, wanted = graph(pattern, self.rows, iterations, self.run)
            before = self.seconds_an_iteration()
            start = time.perf_counter()
            made = dict(zip(wanted, self.client.get(tasks, wanted, sync=False)))
            distributed.wait(list(made.values()))
            out = self.client.gather([made[key] for key in last])
            wall = time.perf_counter() - start
            del made  # here, not in the midst of the next run
            if tuple(out[0]) != (self.rows - 1, 0):
                raise ValueError("wrong result")
            each = (before + self.seconds_an_iteration()) / 2
            granularities.append(wall * CORES / len(tasks) * 1e6)
            efficiencies.append(len(tasks) * iterations * each / (wall * CORES))
        return statistics.median(granularities), statistics.median(efficiencies)

    def metg_us(self, pattern):
        iterations, above = int(0.016 / self.seconds_an_iteration()), None
        while iterations >= 1:
            granularity, efficiency = self.sample(pattern, iterations)
            if efficiency < 0.5:
                if above is None:
                    return granularity
                share = (above[1] - 0.5) / (above[1] - efficiency)
                return above[0] + share * min(0.0, granularity - above[0])
            above = granularity, efficiency
            iterations //= 2
        return above[0]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    with distributed.LocalCluster(n_workers=CORES, threads_per_worker=1, processes=True, dashboard_address=None,
                                  host="127.0.0.1") as cluster, distributed.Client(cluster) as client:
        print("ready", distributed.__version__, flush=True)
        bench = Bench(client, options.rows, options.repeats)
        bench.sample("trivial", 1)  # warm
        for pattern in ("trivial", "stencil_1d", "nearest"):
            print(pattern, bench.metg_us(pattern), flush=True)
        bench.pool.terminate()


if __name__ == "__main__":
    sys.exit(main())

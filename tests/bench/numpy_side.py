# The NumPy side of bench_foundation: on each line read, times one evaluation and prints the seconds.
import sys
import time

import numpy

n = int(sys.argv[1])
rng = numpy.random.default_rng(1)
a, b, c, d = (rng.random(n) for _ in range(4))
print("ready", numpy.__version__, flush=True)
for line in sys.stdin:
    start = time.perf_counter()
    out = (a * b + c) * d - numpy.sqrt(numpy.abs(a))
    if line.strip() == "sum":
        out = out.sum()
    took = time.perf_counter() - start
    del out
    print(took, flush=True)

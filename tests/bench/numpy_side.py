# NumPy's side of benchmarks: evaluates each line read as an expression of a, b, c, d and np, and prints the seconds that took
# and the result where that is one number. "numexpr: ..." is evaluated by numexpr, with two threads, where it is installed.
import sys
import time

import numpy as np

try:
    import numexpr

    numexpr.set_num_threads(2)
except ImportError:
    numexpr = None


def logistic(x, y, steps):
    """Newton's method for logistic regression; the mean loss after `steps`."""
    w = np.zeros(x.shape[1])
    for _ in range(steps):
        p = 1 / (1 + np.exp(-(x @ w)))
        h = x.T @ (x * (p * (1 - p))[:, None]) + 1e-6 * np.eye(x.shape[1])
        w -= np.linalg.solve(h, x.T @ (p - y))
    z = x @ w
    return np.mean(np.logaddexp(0, z) - y * z)


n, dtype = int(sys.argv[1]), sys.argv[2]
rng = np.random.default_rng(1)
a, b, c, d = ((rng.random(n) + 0.001).astype(dtype) for _ in range(4))
print("ready", np.__version__, numexpr.__version__ if numexpr else "-", flush=True)
for line in sys.stdin:
    line = line.strip()
    if line.startswith("exec: "):
        exec(line[6:])
        print(0, 0, flush=True)
        continue
    start = time.perf_counter()
    if line.startswith("numexpr: "):
        out = numexpr.evaluate(line[9:])
    else:
        out = eval(line)
    took = time.perf_counter() - start
    print(took, float(out) if np.ndim(out) == 0 else 0, flush=True)
    del out

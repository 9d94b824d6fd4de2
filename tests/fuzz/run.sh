#!/usr/bin/env bash
# run.sh FUZZ_DRIVER PACKAGES [ARGS]: fuzz.py. Python's packages are in the folder PACKAGES or where $TILEWISE_PYTHON (python3) has them;
# where they are missing: says so, and is skipped (77).
set -euo pipefail
driver=$1 packages=$2
shift 2
python=${TILEWISE_PYTHON:-python3}
command -v "$python" >/dev/null || { echo "skipped: no $python here"; exit 77; }
export PYTHONPATH=$packages${PYTHONPATH:+:$PYTHONPATH} PYTHONDONTWRITEBYTECODE=1
missing=$("$python" -c 'import ml_dtypes, numpy, sys
if int(numpy.__version__.split(".")[0]) < 2: sys.exit(f"NumPy {numpy.__version__} is older than 2")
if sys.version_info < (3, 11): sys.exit("Python is older than 3.11")' 2>&1) ||
  { echo "skipped: ${missing##*$'\n'} (PyPI: numpy from version 2 on, ml_dtypes)"; exit 77; }
exec "$python" "$(dirname "${BASH_SOURCE[0]}")/fuzz.py" --driver "$driver" "$@"

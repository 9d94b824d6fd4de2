#!/usr/bin/env bash
# run.sh INTEROP_FILES OTHERS_PY PACKAGES: our files read by other libraries, and theirs by us. Python's packages are in the folder PACKAGES
# or where $TILEWISE_PYTHON (python3) has them; where they are missing: says so, and is skipped (77).
set -euo pipefail
ours=$1 others=$2 packages=$3
python=${TILEWISE_PYTHON:-python3}
command -v "$python" >/dev/null || { echo "skipped: no $python here"; exit 77; }
export PYTHONPATH=$packages${PYTHONPATH:+:$PYTHONPATH}
missing=$("$python" -c 'import h5py, numcodecs, numpy, zarr.codecs' 2>&1) ||
  { echo "skipped: ${missing##*$'\n'} (PyPI: numpy, zarr from version 3 on, h5py)"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$ours" write "$folder"
status=0
"$python" "$others" "$folder" || status=1
"$ours" read "$folder" || status=1
exit $status

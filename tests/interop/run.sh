#!/usr/bin/env bash
# run.sh INTEROP_FILES OTHERS_PY PACKAGES: our files read by other libraries, and theirs by us. Python's packages are in the folder PACKAGES
# or where $TILEWISE_PYTHON (python3) has them; where they are missing: says so, and is skipped (77).
set -euo pipefail
ours=$1 others=$2 packages=$3
python=${TILEWISE_PYTHON:-python3}
command -v "$python" >/dev/null || { echo "skipped: no $python here"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$ours" write "$folder"
status=0
PYTHONPATH=$packages${PYTHONPATH:+:$PYTHONPATH} "$python" "$others" "$folder" || status=$?
[[ $status == 77 ]] && exit 77
[[ -e $folder/theirs.txt ]] || exit 1
"$ours" read "$folder" || status=1
exit $status

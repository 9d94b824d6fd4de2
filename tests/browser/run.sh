#!/usr/bin/env bash
# run.sh SCRIPT ARGS...: a test in Chromium. Where Node or Chromium is missing: says so, and is skipped (77).
set -euo pipefail
script=$1; shift
chromium=${TILEWISE_CHROMIUM:-$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)}
command -v node >/dev/null || { echo "skipped: no node here (Debian: apt-get install nodejs)"; exit 77; }
[[ -n $chromium ]] || { echo "skipped: no Chromium here (Debian: apt-get install chromium)"; exit 77; }
exec node "$script" --chromium "$chromium" "$@"

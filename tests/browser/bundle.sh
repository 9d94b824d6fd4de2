#!/usr/bin/env bash
# bundle.sh WEB FOLDER: the bundle in WEB/dist is what its sources make, and they pass the type checker. Where npm cannot be
# had the bundle cannot be made again: says so, and is skipped (77).
set -euo pipefail
web=$1 folder=$2
command -v npm >/dev/null || { echo "skipped: no npm here (Debian: apt-get install npm)"; exit 77; }
rm -rf "$folder/dist" "$folder/src"
mkdir -p "$folder"
cp -r "$web"/{src,package.json,package-lock.json,tsconfig.json,build.mjs} "$folder"
cd "$folder"
if [[ ! -d node_modules ]] || ! cmp -s package-lock.json node_modules/.of; then
  export npm_config_fetch_retries=1 npm_config_fetch_timeout=30000
  timeout 240 npm ci --no-audit --no-fund --silent || { echo "skipped: npm cannot fetch the packages"; exit 77; }
  cp package-lock.json node_modules/.of
fi
npm run --silent check
node build.mjs dist
diff -rq "$web/dist" dist || { echo "scheduler/dashboard/web/dist is not what its sources make: ./dev web"; exit 1; }

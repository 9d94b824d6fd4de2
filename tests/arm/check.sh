#!/bin/bash
# The host's kernels for Arm (NEON): compiled by a cross compiler, and their suite run under an emulator, where these are. Nothing
# is installed. Debian 12, all of it:
#   dpkg --add-architecture arm64 && apt update && apt install g++-aarch64-linux-gnu qemu-user-static \
#     libhwy1:arm64 libopenblas0-pthread:arm64 liblapacke:arm64 libsleef3:arm64 libssl3:arm64
# Left out, for want of nothing but libraries: Fourier transforms and files.
set -euo pipefail
cd "$(dirname "$0")/../.."
compiler=aarch64-linux-gnu-g++ nm=aarch64-linux-gnu-nm out=build/arm libraries=/usr/lib/aarch64-linux-gnu
say() { printf -- '-- %s\n' "$*"; }
command -v "$compiler" >/dev/null || { say "skipped: no $compiler; kernels are not compiled for Arm"; exit 0; }

mkdir -p "$out"
blas=$(find /usr/include -name cblas.h -path '*openblas*' -printf '%h\n' -quit)
options=(-std=c++20 -O1 -Wall -Wextra -Wno-missing-field-initializers -Wno-psabi -Werror=return-type -fno-math-errno
  -ffp-contract=off -fno-trapping-math -DHWY_SHARED_DEFINE
  "-DHWY_DISABLED_TARGETS=(HWY_SVE|HWY_SVE2|HWY_SVE_256|HWY_SVE2_128)"
  -Ikernels -Itests -isystem "${blas:-/usr/include}")
for folder in kernels proto/ir proto/base object_store/device object_store/io; do options+=(-I$folder/include); done
mapfile -t sources < <(
  ls kernels/*.cc kernels/{common,map,reduce,scan,matmul,move,call,linalg,index,sort,draw}/*.cc kernels/conformance/*.cc \
    proto/ir/*.cc proto/base/*.cc object_store/device/*.cc tests/doctest_main.cc |
    grep -vE '_test\.cc$' && ls kernels/conformance/*_test.cc)

# Prints what it fails at.
compile() {
  local source=$1 object=$2
  "$compiler" "${@:3}" -c "$source" -o "$object" || { echo "$source"; return; }
  # Not -q, which would end nm by a signal.
  if grep -q foreach_target.h "$source" && ! "$nm" "$object" | grep N_NEON >/dev/null; then
    echo "$source has no loops for NEON"
  fi
}
export -f compile
export compiler nm
objects=()
for source in "${sources[@]}"; do objects+=("$out/${source//\//_}.o"); done
failed=$(for i in "${!sources[@]}"; do printf '%s\0%s\0' "${sources[i]}" "${objects[i]}"; done |
  xargs -0 -n 2 -P "${TILEWISE_JOBS:-$(nproc)}" bash -c 'compile "$0" "$1" '"$(printf '%q ' "${options[@]}")")
[[ -z $failed ]] || { say "failed: $failed"; exit 1; }
say "${#sources[@]} sources compiled for Arm"

emulator=$(command -v qemu-aarch64-static || command -v qemu-aarch64 || true)
[[ -n $emulator ]] || { say "not run: no qemu-aarch64-static"; exit 0; }
needed=(libhwy.so.1 libhwy_contrib.so.1 openblas-pthread/libopenblas.so.0 liblapacke.so.3 libsleef.so.3 libcrypto.so.3)
for library in "${needed[@]}"; do
  [[ -e $libraries/$library ]] || { say "not run: no $libraries/$library"; exit 0; }
done
"$compiler" -o "$out/kernels_conformance_test" "${objects[@]}" "${needed[@]/#/$libraries/}" -ldl -lpthread \
  "-Wl,-rpath,$libraries/openblas-pthread" -Wl,--allow-shlib-undefined
say "under $emulator, some six minutes:"
QEMU_LD_PREFIX=/ exec "$emulator" "$out/kernels_conformance_test"

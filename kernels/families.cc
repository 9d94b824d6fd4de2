#include "families.h"

#include "call/call.h"
#include "map/map.h"
#include "matmul/matmul.h"
#include "move/move.h"
#include "reduce/reduce.h"
#include "scan/scan.h"
#ifdef TILEWISE_KERNELS_IO
#include "file/file.h"
#endif

namespace tilewise::kernels {
namespace {

using ir::OpKind;

constexpr OpKind kMapOps[] = {OpKind::kMap};
constexpr OpKind kReduceOps[] = {OpKind::kReduceBlocks, OpKind::kCombine};
constexpr OpKind kScanOps[] = {OpKind::kScan};
constexpr OpKind kMatmulOps[] = {OpKind::kMatmul, OpKind::kMatmulPanels};
constexpr OpKind kMoveOps[] = {OpKind::kCopy, OpKind::kReshape};
constexpr OpKind kCallOps[] = {OpKind::kCall};
#ifdef TILEWISE_KERNELS_IO
constexpr OpKind kFileOps[] = {OpKind::kReadNpy, OpKind::kWriteNpy};
#endif

std::int64_t call_scratch(const ir::Op& op) { return op.get<ir::CallAttrs>().scratch_bytes; }

constexpr Family kFamilies[] = {
    {"map", kMapOps, map::supports, map::host, map::reference},
    {"reduce", kReduceOps, reduce::supports, reduce::host, reduce::reference},
    {"scan", kScanOps, scan::supports, scan::host, scan::reference},
    {"matmul", kMatmulOps, matmul::supports, matmul::host, matmul::reference, matmul::scratch_bytes},
    {"move", kMoveOps, move::supports, move::host, move::reference},
    {"call", kCallOps, call::supports, call::host, call::reference, call_scratch},
#ifdef TILEWISE_KERNELS_IO
    {"file", kFileOps, file::supports, file::host, file::reference},
#endif
};

}  // namespace

std::span<const Family> families() { return kFamilies; }

const Family* family_of(ir::OpKind kind) {
  for (const Family& family : kFamilies) {
    for (const OpKind op : family.ops) {
      if (op == kind) return &family;
    }
  }
  return nullptr;
}

}  // namespace tilewise::kernels

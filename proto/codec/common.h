// What encoder and decoder must agree on beyond the schema.
#pragma once
#include <tilewise/msg/msg.h>

#include <string>

namespace tilewise::codec {

// Thrown inside this folder only, like kj::Exception: both ends turn into a value at encode() and decode().
struct Refused {
  Error error;
};
[[noreturn]] inline void refuse(Errc code, std::string message) {
  throw Refused{error(code, std::move(message))};
}

constexpr std::size_t kMaxOutcomeBytes = 4'096;
constexpr std::size_t kMaxAddressBytes = limits::kMaxPathBytes;
constexpr std::size_t kNestingLevels = 16;
constexpr std::size_t kTraversalFactor = 4;  // words read at most, in messages
// Decoded bytes at most, in messages: a rank-0 operand map is 8 bytes on the wire and some 330 in memory.
constexpr std::size_t kExpansionFactor = 48;
constexpr std::size_t kSlack = 65'536;  // bytes, so that tiny messages need no exact accounting

inline std::size_t bounded(std::size_t size, std::size_t limit, const char* what) {
  if (size > limit) {
    refuse(Errc::kLimitExceeded,
           std::string(what) + ": " + std::to_string(size) + ", the limit is " + std::to_string(limit));
  }
  return size;
}

// Which attributes belong to a kind: an index of ir::OpAttrs.
constexpr std::size_t attrs_of(ir::OpKind kind) {
  switch (kind) {
    case ir::OpKind::kMap: return 0;
    case ir::OpKind::kReduce:
    case ir::OpKind::kReduceBlocks: return 1;
    case ir::OpKind::kCombine: return 2;
    case ir::OpKind::kMatmul:
    case ir::OpKind::kMatmulPanels: return 3;
    case ir::OpKind::kCopy: return 4;
    case ir::OpKind::kReshape: return 5;
    case ir::OpKind::kReadNpy:
    case ir::OpKind::kWriteNpy: return 6;
    case ir::OpKind::kCall: return 7;
    case ir::OpKind::kFetch:
    case ir::OpKind::kKeep:
    case ir::OpKind::kProvide: return 8;
    case ir::OpKind::kScan: return 9;
  }
  return std::variant_npos;
}

// One past the last enumerator of each enum on the wire.
constexpr int kOpKinds = static_cast<int>(ir::OpKind::kKeep) + 1;
constexpr int kTapeOps = static_cast<int>(ir::TapeOp::kCount);
constexpr int kReduceKinds = static_cast<int>(ir::ReduceKind::kMoments) + 1;
constexpr int kScanModes = static_cast<int>(ir::ScanMode::kTotal) + 1;
constexpr int kDimMapKinds = static_cast<int>(ir::DimMap::Kind::kBlock) + 1;
constexpr int kRoles = static_cast<int>(msg::Role::kTool) + 1;
constexpr int kErrcs = static_cast<int>(Errc::kSingular) + 1;

}  // namespace tilewise::codec

// The counted limits of the engine (D11), in one place. Each is checked where the thing enters.
#pragma once
#include <cstddef>
#include <cstdint>

namespace tilewise::limits {

constexpr int kMaxRank = 8;
constexpr std::int64_t kMaxExplicitCuts = 65'536;   // blocks per dimension of a non-uniform grid
constexpr std::int64_t kMaxBlocks = 4'000'000'000;  // blocks of one array
constexpr int kMaxOperands = 64;                    // of one op
constexpr int kMaxOutputs = 4;                      // of one op
constexpr int kMaxTapeInstructions = 256;
constexpr int kMaxTapeLoads = 16;
constexpr std::size_t kMaxOpsPerSubmit = 65'536;
constexpr std::size_t kMaxMessageBytes = 64u << 20;  // one frame
constexpr std::size_t kMaxNameBytes = 256;           // of a kernel, device, session
constexpr std::size_t kMaxPathBytes = 4'096;
constexpr std::size_t kMaxParamBytes = 65'536;        // plug-in kernel parameters
constexpr std::size_t kMaxExplicitRefs = 16'000'000;  // of one explicit index map
constexpr std::size_t kMaxInlineBytes = 4'096;        // block bytes carried inside an offer
constexpr std::size_t kMaxParked = 65'536;  // entries of the log, and peers' batches, that come early

}  // namespace tilewise::limits

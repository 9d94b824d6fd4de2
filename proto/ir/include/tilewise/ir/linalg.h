// Parameters of the built-in kernels of linear algebra (kernels/linalg/linalg.h), as clients write and kernels read them.
#pragma once
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace tilewise::ir::linalg {

// Params::flags
constexpr std::uint32_t kUpper = 1;      // trsm: A is upper triangular
constexpr std::uint32_t kConjugate = 2;  // trsm: of B; update: of A
// update: blocks strictly above the diagonal are not wanted, and zero; so is what lies above it in blocks that begin on it
constexpr std::uint32_t kLower = 4;
constexpr std::uint32_t kSingularToo = 8;  // lu_panel: a pivot of zero is no failure
constexpr std::uint32_t kAdjoint = 16;     // ormqr: Q^H instead of Q

struct Params {
  char function[24] = {};  // whom errors name: "cholesky"
  std::int64_t first =
      0;  // rows of the whole matrix before this one: leading minors are counted from its start
  std::uint32_t flags = 0;
  std::uint32_t unused = 0;

  std::string bytes() const { return {reinterpret_cast<const char*>(this), sizeof(*this)}; }
};

inline Params params(std::string_view function, std::uint32_t flags = 0, std::int64_t first = 0) {
  Params p;
  std::memcpy(p.function, function.data(),
              function.size() < sizeof(p.function) ? function.size() : sizeof(p.function) - 1);
  p.flags = flags;
  p.first = first;
  return p;
}

}  // namespace tilewise::ir::linalg

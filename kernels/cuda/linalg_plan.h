// Which kernel of linear algebra an op names, the extents of its matrices, and where each thing lies in scratch.
#pragma once
#include <optional>
#include <span>

#include "launch.h"
#include "matrix.h"

namespace tilewise::cuda {

enum class LinalgKernel : std::uint8_t {
  kNone,
  kCholesky,
  kSolve,
  kDet,
  kQr,
  kGeqrf,
  kOrmqr,
  kEigh,
  kSvd,
  kTrsm,
  kUpdate,
  kLuPanel,
  kLuUpdate
};

LinalgKernel linalg_kernel_of(const ir::Op& op);
bool by_blas(LinalgKernel kernel);  // by cuBLAS alone

// One matrix and its results: A is m x n, k is the right sides' number (update: that of the terms), q the columns of Q.
struct Extents {
  std::int64_t m = 0, n = 0, k = 0, q = 0;
  bool vectors = false, full = false;   // are wanted; whole bases of them
  bool copy_a = false, copy_b = false;  // BLAS's operands may want to be copied
};

inline std::int64_t rows(const ir::Shape& s) { return s.size() < 2 ? 0 : s[s.size() - 2]; }
inline std::int64_t columns(const ir::Shape& s) { return s.size() < 2 ? 0 : s.back(); }

// From the extents of blocks, or of the largest ones. Nothing where there are too few.
std::optional<Extents> extents_of(LinalgKernel kernel, const ir::Op& op, std::span<const ir::Shape> in,
                                  std::span<const ir::Shape> out);

// Offsets in scratch.
struct Layout {
  std::int64_t bytes = 0;
  std::int64_t a = 0, b = 0, u = 0, vh = 0, tau = 0, pivots = 0, rest = 0, info = 0, work = 0;
  std::int64_t work_bytes = 0;

  std::int64_t take(std::int64_t count, std::size_t size) {
    const std::int64_t at = bytes;
    bytes += align_scratch(count * static_cast<std::int64_t>(size));
    return at;
  }
};

Result<Layout> lay_out(LinalgKernel kernel, const Extents& e, ir::DType dtype, const Environment& env);

}  // namespace tilewise::cuda

// Random grids, views and operands for the property tests. Sizes stay small enough to enumerate everything.
#pragma once
#include <tilewise/base/prng.h>
#include <tilewise/ir/geometry.h>
#include <tilewise/ir/walk.h>

#include <algorithm>
#include <chrono>

namespace tilewise::ir::testing {

inline DimGrid random_cuts(Prng& rng, std::int64_t extent) {
  switch (rng.below(4)) {
    case 0: return DimGrid::whole(extent);
    case 1: return *DimGrid::uniform(extent, rng.between(1, std::max<std::int64_t>(1, extent)));
    case 2: {
      const std::int64_t block = rng.between(1, 6);
      return *DimGrid::uniform(extent, block, rng.between(0, block - 1));
    }
    default: {
      std::vector<std::int64_t> starts;
      for (std::int64_t at = 0; at < extent; at += rng.between(1, 5)) starts.push_back(at);
      return *DimGrid::cuts(extent, std::move(starts));
    }
  }
}

inline Shape random_shape(Prng& rng, int rank, std::int64_t most) {
  Shape s;
  for (int d = 0; d < rank; ++d) s.push_back(rng.chance(0.03) ? 0 : rng.between(1, most));
  return s;
}

struct World {
  Operand operand;
  SourceArray source;
};

// An array with a view of shape `logical`: every dimension walked with some step, or repeated; source dimensions in any
// order, with constant ones between.
inline World random_operand(Prng& rng, const Shape& logical, bool plain = false) {
  World w;
  View& v = w.operand.view;
  v.shape = logical;
  std::vector<DimGrid> dims;
  std::vector<SourceDim> source;
  for (int d = 0; d < static_cast<int>(logical.size()); ++d) {
    if (!plain && rng.chance(0.12)) continue;
    const std::int64_t n = logical[d], reach = plain || n < 2 ? 1 : rng.chance(0.6) ? 1 : rng.between(2, 4);
    const std::int64_t before = plain ? 0 : rng.below(3), after = plain ? 0 : rng.below(3);
    const std::int64_t used = n == 0 ? 0 : reach * (n - 1) + 1, extent = before + used + after;
    const bool down = !plain && n > 1 && rng.chance(0.35);
    source.push_back({static_cast<std::int8_t>(d), down ? before + used - 1 : before, down ? -reach : reach});
    dims.push_back(random_cuts(rng, extent));
  }
  if (!plain && source.size() < 4 && rng.chance(0.2)) {
    const std::int64_t extent = rng.between(1, 5);
    source.push_back({-1, rng.between(0, extent - 1), 1});
    dims.push_back(random_cuts(rng, extent));
  }
  std::vector<std::size_t> order(source.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  if (!plain)
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng.below(i)]);
  std::vector<DimGrid> placed;
  for (const std::size_t i : order) {
    v.source.push_back(source[i]);
    placed.push_back(dims[i]);
  }
  w.source = {DType::kFloat64, Grid(std::move(placed))};
  return w;
}

// Adds its operands, all float64.
inline Tape sum_of_loads(std::size_t n) {
  Tape t;
  for (std::size_t i = 0; i < n; ++i)
    t.code.push_back({TapeOp::kLoad, DType::kFloat64, 0, 0, 0, 0, static_cast<std::int64_t>(i)});
  for (std::size_t i = 1; i < n; ++i)
    t.code.push_back({TapeOp::kAdd, DType::kFloat64, static_cast<std::uint16_t>(t.code.size() - 1),
                      static_cast<std::uint16_t>(i - 1)});
  return t;
}

inline DimGrid refined(const DimGrid& a, const DimGrid& b) { return *common_refinement(a, b); }

// The coarsest grid over the logical shape whose blocks lie in one block of every operand.
inline Grid common_space(const std::vector<World>& worlds) {
  std::vector<DimGrid> dims = induced_grid(worlds[0].operand.view, worlds[0].source.grid).dims();
  for (const World& w : worlds) {
    const Grid g = induced_grid(w.operand.view, w.source.grid);
    for (std::size_t d = 0; d < dims.size(); ++d) dims[d] = refined(dims[d], g.dim(static_cast<int>(d)));
  }
  return Grid(std::move(dims));
}

// Nanoseconds of one f(i): the best of 20 rounds, so that a busy machine does not count.
template <class F> double nanoseconds(F&& f) {
  double best = 1e18;
  for (int round = 0; round < 20; ++round) {
    const auto from = std::chrono::steady_clock::now();
    for (std::int64_t i = 0; i < 5'000; ++i) f(i);
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - from;
    best = std::min(best, took.count() / 5'000);
  }
  return best;
}

template <class F> void for_each_index(const Shape& counts, F&& f) {
  const std::int64_t n = volume(counts);
  for (std::int64_t i = 0; i < n; ++i) f(unravel(i, counts));
}

// The source element that a logical index shows.
inline Index source_index(const View& v, const Index& logical) {
  Index at;
  for (const SourceDim& s : v.source) at.push_back(s.dim < 0 ? s.start : s.start + s.step * logical[s.dim]);
  return at;
}

inline std::int64_t block_of(const Grid& grid, const Index& element) {
  Index block;
  for (int d = 0; d < grid.rank(); ++d) block.push_back(grid.dim(d).find(element[d]));
  return ravel(block, grid.counts());
}

}  // namespace tilewise::ir::testing

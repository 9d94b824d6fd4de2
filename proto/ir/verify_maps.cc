// The verifier on index maps: copies, reshapes and calls.
#include "verifier.h"

#include <tilewise/ir/runs.h>

#include <algorithm>

namespace tilewise::ir {
namespace {

constexpr std::size_t kMaxExplicitReadsPerPoint = 64;

}  // namespace

Status Verifier::maps(const std::vector<OperandMap>& all) const {
  if (all.size() != op_.operands.size())
    return fail(Errc::kInvalidArgument, std::to_string(all.size()) + " index maps for " +
                                            std::to_string(op_.operands.size()) + " operands");
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].size() != logical(i).size())
      return fail(Errc::kInvalidArgument, "the index map of " + operand_name(i) + " has another rank");
    for (const DimMap& m : all[i]) {
      const bool span = m.kind == DimMap::Kind::kSpan;
      if (m.kind == DimMap::Kind::kStep && op_.kind == OpKind::kCall) continue;  // call() looks at these
      const bool known = span || m.kind == DimMap::Kind::kWhole ||
                         (m.kind == DimMap::Kind::kBlock && stage_ == Stage::kLowered);
      if (!known) return fail(Errc::kInvalidArgument, "an index map of unknown kind");
      if (m.kind != DimMap::Kind::kWhole && (m.dim < 0 || m.dim >= op_.space.rank()))
        return fail(Errc::kInvalidArgument, "an index map names dimension " + std::to_string(m.dim));
      if (!span) continue;
      const auto within = [](std::int64_t x) { return x >= -kMaxFactor && x <= kMaxFactor; };
      if (m.mul < 1 || m.div < 1 || !within(m.mul) || !within(m.div) || !within(m.before) ||
          !within(m.after) || m.before + m.after < 0)
        return fail(Errc::kInvalidArgument,
                    "an index map of " + operand_name(i) + " has a factor below 1 or a negative window");
    }
  }
  return {};
}

Status Verifier::copy() const {
  const auto& a = op_.get<CopyAttrs>();
  TW_TRY(expect(op_.operands.size(), 1));
  if (op_.operands.empty()) return fail(Errc::kInvalidArgument, "nothing to copy");
  TW_TRY(maps(a.maps));
  const OutputSpec& out = op_.outputs[0];
  bool shifts = true;  // none shows windows
  for (std::size_t i = 0; i < op_.operands.size(); ++i) {
    if (sources_[i].dtype != out.dtype)
      return mismatch(operand_name(i) + " has another dtype than the output");
    if (static_cast<int>(logical(i).size()) != op_.space.rank())
      return mismatch(operand_name(i) + " of shape " + to_string(logical(i)) +
                      " has another rank than the output");
    for (int d = 0; d < op_.space.rank(); ++d) {
      const DimMap& m = a.maps[i][d];
      if (m.kind != DimMap::Kind::kSpan || m.dim != d || m.mul != m.div)
        return fail(Errc::kInvalidArgument, "a copy's index map must shift or widen its own dimension");
      shifts &= m.before + m.after == 0;
    }
  }
  if (op_.operands.size() == 1) return copy_fills(a.maps[0], logical(0));
  if (shifts) {
    TW_TRY(tiles(OperandMap(static_cast<std::size_t>(op_.space.rank())), op_.space.shape()));
    return output_is(0, out.dtype, op_.space);
  }
  if (stage_ != Stage::kLowered)
    return fail(Errc::kInvalidArgument, "a copy of several operands must shift them");
  return copy_windows();
}

// Operands are the tiles of an array, windows of which are copied: all maps widen alike, and shift besides by where the
// operand begins.
Status Verifier::copy_windows() const {
  const auto& all = op_.get<CopyAttrs>().maps;
  OperandMap first = all[0];  // of the operand that begins at the array's low corner
  Shape shape = logical(0);
  for (int d = 0; d < op_.space.rank(); ++d) {
    for (const OperandMap& map : all) {
      if (map[d].before + map[d].after != all[0][d].before + all[0][d].after)
        return fail(Errc::kInvalidArgument, "operands of a copy are widened differently");
      if (map[d].before < first[d].before) first[d] = map[d];
    }
    for (std::size_t i = 0; i < all.size(); ++i)
      shape[d] = std::max(shape[d], all[i][d].before - first[d].before + logical(i)[d]);
  }
  TW_TRY(tiles(first, shape));
  return copy_fills(first, shape);
}

// Operands lie apart in an array of this shape and cover it. `first`: the map of one that begins at its low corner.
Status Verifier::tiles(const OperandMap& first, const Shape& shape) const {
  const auto& all = op_.get<CopyAttrs>().maps;
  std::vector<Box> boxes;
  std::int64_t covered = 0;
  for (std::size_t i = 0; i < op_.operands.size(); ++i) {
    Box box;
    for (int d = 0; d < op_.space.rank(); ++d) {
      box.lo.push_back(all[i][d].before - first[d].before);
      box.hi.push_back(box.lo[d] + logical(i)[d]);
      if (box.lo[d] < 0 || box.hi[d] > shape[d])
        return mismatch(operand_name(i) + " lies outside the output");
    }
    for (const Box& other : boxes)
      if (intersect(box, other).volume() > 0) return mismatch("operands overlap in the output");
    covered += box.volume();
    boxes.push_back(box);
  }
  TW_ASSIGN(const std::int64_t all_of_it, checked_volume(shape));
  if (covered != all_of_it) return mismatch("operands do not cover the output");
  return {};
}

Status Verifier::copy_fills(const OperandMap& map, const Shape& shape) const {
  const Grid& out = op_.outputs[0].grid;
  if (out.counts() != op_.space.counts())
    return mismatch("output and iteration space differ in block counts");
  for (int d = 0; d < op_.space.rank(); ++d) {
    const DimGrid& space = op_.space.dim(d);
    const std::int64_t n = shape[d];
    const auto fits = [&](std::int64_t i) {
      const std::int64_t lo = std::max<std::int64_t>(0, space.begin(i) - map[d].before);
      return std::min(n, space.end(i) + map[d].after) - lo == out.dim(d).size(i);
    };
    if (map[d].before == 0 && map[d].after == 0 && out.dim(d) == space && space.extent() == n) continue;
    // Away from the ends uniform blocks repeat; windows that reach past the blocks looked at are not taken.
    constexpr std::int64_t kEnds = limits::kMaxExplicitCuts / 2;
    const bool all = space.count() <= 2 * kEnds;
    bool good = all || (space.is_uniform() && out.dim(d).is_uniform() &&
                        std::max(map[d].before, map[d].after) / space.block() < kEnds - 2);
    for (std::int64_t i = 0; good && i < space.count(); ++i) {
      if (!all && i == kEnds) i = space.count() - kEnds;
      good = fits(i);
    }
    if (!good)
      return mismatch("the regions copied do not fill the output's blocks along dimension " +
                      std::to_string(d));
  }
  return {};
}

Status Verifier::reshape() const {
  TW_TRY(expect(1, 1));
  if (*checked_volume(logical(0)) != *checked_volume(op_.space.shape()))
    return mismatch(to_string(logical(0)) + " does not reshape to " + to_string(op_.space.shape()));
  if (op_.space.block_count() > 0 && !RunOrder::of(op_.space.shape(), op_.space.counts()))
    return mismatch("the result must be cut into runs of its C order");
  return output_is(0, sources_[0].dtype, op_.space);
}

Status Verifier::call() const {
  const auto& a = op_.get<CallAttrs>();
  TW_TRY(expect(op_.operands.size(), op_.outputs.size()));
  if (op_.outputs.empty()) return mismatch("a call without outputs");
  if (a.kernel.empty() || a.kernel.size() > limits::kMaxNameBytes || a.version.size() > limits::kMaxNameBytes)
    return fail(Errc::kInvalidArgument, "a kernel name of " + std::to_string(a.kernel.size()) + " bytes");
  if (a.params.size() > limits::kMaxParamBytes)
    return fail(Errc::kLimitExceeded, std::to_string(a.params.size()) + " bytes of parameters");
  if (!(a.flops_per_point >= 0) || a.flops_per_point > 1e30 || a.scratch_bytes < 0 ||
      a.scratch_bytes > kMaxFactor)
    return fail(Errc::kInvalidArgument, "cost or scratch out of range");
  for (std::size_t i = 0; i < op_.outputs.size(); ++i)
    if (op_.outputs[i].grid.counts() != op_.space.counts())
      return mismatch("output " + std::to_string(i) + " and iteration space differ in block counts");
  if (!a.explicit_maps.empty()) return explicit_maps();
  TW_TRY(maps(a.maps));
  return sweep(a.maps);
}

Status Verifier::sweep(const std::vector<OperandMap>& all) const {
  std::optional<std::int64_t> extent;
  for (std::size_t i = 0; i < all.size(); ++i) {
    int steps = 0;
    for (std::size_t d = 0; d < all[i].size(); ++d) {
      if (all[i][d].kind != DimMap::Kind::kStep) continue;
      if (++steps > 1)
        return fail(Errc::kInvalidArgument, operand_name(i) + " is swept along more than one dimension");
      if (extent && *extent != logical(i)[d])
        return mismatch("operands are swept along dimensions of extents " + std::to_string(*extent) +
                        " and " + std::to_string(logical(i)[d]));
      extent = logical(i)[d];
    }
  }
  return {};
}

Status Verifier::explicit_maps() const {
  const auto& a = op_.get<CallAttrs>();
  if (!a.maps.empty() || a.explicit_maps.size() != op_.operands.size())
    return fail(Errc::kInvalidArgument, "explicit index maps must be given for every operand, and no others");
  const std::int64_t points = op_.space.block_count();
  if (points > static_cast<std::int64_t>(limits::kMaxExplicitRefs))
    return fail(Errc::kLimitExceeded, std::to_string(points) + " points with explicit index maps");
  std::size_t refs = 0;
  for (std::size_t i = 0; i < a.explicit_maps.size(); ++i) {
    const ExplicitMap& m = a.explicit_maps[i];
    if (!op_.operands[i].view.is_identity(sources_[i].grid.shape()))
      return fail(Errc::kUnsupported, operand_name(i) + " is read through a view and an explicit index map");
    bool good = static_cast<std::int64_t>(m.offsets.size()) == points + 1 && m.offsets.front() == 0 &&
                m.offsets.back() == m.blocks.size();
    for (std::size_t p = 1; good && p < m.offsets.size(); ++p) good = m.offsets[p] >= m.offsets[p - 1];
    if (!good) return fail(Errc::kInvalidArgument, "offsets of the explicit index map of " + operand_name(i));
    const std::int64_t blocks = sources_[i].grid.block_count();
    for (const std::int64_t b : m.blocks)
      if (b < 0 || b >= blocks)
        return fail(Errc::kOutOfRange, "block " + std::to_string(b) + " of " + operand_name(i));
    refs += m.blocks.size();
  }
  if (refs > limits::kMaxExplicitRefs)
    return fail(Errc::kLimitExceeded, std::to_string(refs) + " explicit references");
  for (std::int64_t p = 0; p < points; ++p) {
    std::size_t reads = 0;
    for (const ExplicitMap& m : a.explicit_maps) reads += m.offsets[p + 1] - m.offsets[p];
    if (reads > kMaxExplicitReadsPerPoint)
      return fail(Errc::kLimitExceeded,
                  "point " + std::to_string(p) + " reads " + std::to_string(reads) + " blocks");
  }
  return {};
}

}  // namespace tilewise::ir

#include "pieces.h"

#include <algorithm>

namespace tilewise::scheduler {
namespace {

constexpr std::uint32_t kNobody = ~0u;
constexpr std::int64_t kBlockBytes = 8 << 20;

Error too_many() {
  return error(Errc::kLimitExceeded, "the pieces cut the array into more than " +
                                         std::to_string(msg::kMaxGatheredBlocks) + " blocks");
}

// How many parts of at most twice `most` a length has at least.
std::int64_t fewest_parts(std::int64_t length, std::int64_t most) {
  return length / (2 * most) + (length % (2 * most) != 0);
}

// As few equal parts of a length as keep them so, or the next number that divides it.
std::int64_t part_of(std::int64_t length, std::int64_t fewest) {
  for (std::int64_t n = fewest; n <= 2 * fewest; ++n) {
    if (length % n == 0) return length / n;
  }
  return (length + fewest - 1) / fewest;
}

// `most`: what is longer than twice that is cut further.
Result<ir::DimGrid> cuts_of(int d, std::int64_t extent, std::int64_t most,
                            const std::vector<Gathering::Part>& parts) {
  if (extent == 0) return ir::DimGrid::whole(0);
  std::vector<std::int64_t> starts{0};
  for (const Gathering::Part& part : parts) {
    for (const ir::Box& piece : part.pieces) {
      starts.push_back(piece.lo[d]);
      if (piece.hi[d] < extent) starts.push_back(piece.hi[d]);
    }
  }
  std::sort(starts.begin(), starts.end());
  starts.erase(std::unique(starts.begin(), starts.end()), starts.end());
  for (std::size_t i = 0, n = starts.size(); i < n && most < extent / 2; ++i) {
    const std::int64_t end = i + 1 < n ? starts[i + 1] : extent, length = end - starts[i];
    // Of all together, and before time or memory is spent on them.
    const std::int64_t fewest = fewest_parts(length, most);
    const std::int64_t room = msg::kMaxGatheredBlocks - static_cast<std::int64_t>(starts.size());
    if (fewest > room) return too_many();
    const std::int64_t part = part_of(length, fewest);
    if (length / part > room) return too_many();
    for (std::int64_t at = starts[i] + part; at < end; at += part) starts.push_back(at);
  }
  std::sort(starts.begin(), starts.end());
  // Uniform cuts need no list, however many they are.
  const std::int64_t block = starts.size() > 1 ? starts[1] : extent;
  bool uniform = extent - starts.back() <= block;
  for (std::size_t i = 1; uniform && i < starts.size(); ++i) uniform = starts[i] - starts[i - 1] == block;
  if (uniform) return ir::DimGrid::uniform(extent, block);
  return ir::DimGrid::cuts(extent, std::move(starts));
}

// The blocks of a piece: a box of block indices.
ir::Box blocks_of(const ir::Grid& grid, const ir::Box& piece) {
  ir::Box out;
  for (int d = 0; d < grid.rank(); ++d) {
    out.lo.push_back(grid.dim(d).find(piece.lo[d]));
    out.hi.push_back(grid.dim(d).find(piece.hi[d] - 1) + 1);
  }
  return out;
}

// Calls visit(number) for the blocks of a box, in C order, until it returns false.
template <class F> bool each_block(const ir::Box& blocks, const ir::Shape& counts, F&& visit) {
  ir::Index at = blocks.lo;
  while (true) {
    if (!visit(ir::ravel(at, counts))) return false;
    int d = blocks.rank() - 1;
    for (; d >= 0 && ++at[d] == blocks.hi[d]; --d) at[d] = blocks.lo[d];
    if (d < 0) return true;
  }
}

}  // namespace

Status check_pieces(const ir::Shape& shape, const std::vector<ir::Box>& pieces) {
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const ir::Box& piece = pieces[i];
    const std::string name = "piece " + std::to_string(i);
    if (piece.lo.size() != shape.size() || piece.hi.size() != shape.size())
      return error(Errc::kInvalidArgument, name + " has rank " + std::to_string(piece.lo.size()) +
                                               ", the array " + ir::to_string(shape) + " has " +
                                               std::to_string(shape.size()));
    for (int d = 0; d < piece.rank(); ++d) {
      if (piece.lo[d] >= 0 && piece.lo[d] < piece.hi[d] && piece.hi[d] <= shape[d]) continue;
      return error(Errc::kInvalidArgument,
                   name + " " + ir::to_string(piece) + " is empty, or not inside " + ir::to_string(shape));
    }
  }
  return {};
}

Result<Cover> cover(const ir::Shape& shape, std::size_t element_bytes,
                    const std::vector<Gathering::Part>& parts,
                    const std::function<std::string(std::size_t)>& who) {
  std::vector<ir::DimGrid> dims(shape.size());
  std::int64_t count = 1;
  auto row_bytes = static_cast<std::int64_t>(element_bytes);  // of the largest block
  for (int d = static_cast<int>(shape.size()); d-- > 0;) {
    const std::int64_t most = d == 0 ? std::max<std::int64_t>(1, kBlockBytes / row_bytes) : shape[d];
    TW_ASSIGN(dims[static_cast<std::size_t>(d)], cuts_of(d, shape[d], most, parts));
    const ir::DimGrid& dim = dims[static_cast<std::size_t>(d)];
    const std::int64_t room = dim.count() == 0 ? count : msg::kMaxGatheredBlocks / dim.count();
    if (count > room) return too_many();
    count *= dim.count();
    const std::int64_t wide = std::max<std::int64_t>(1, dim.max_size());
    row_bytes = row_bytes > kBlockBytes / wide ? kBlockBytes : row_bytes * wide;  // more says no more
  }
  Cover out{ir::Grid(std::move(dims)), {}};
  TW_TRY(out.grid.verify());
  const ir::Shape counts = out.grid.counts();
  out.owners.assign(static_cast<std::size_t>(count), kNobody);
  const auto box_of = [&](std::int64_t block) {
    return ir::to_string(out.grid.box(ir::unravel(block, counts)));
  };
  for (std::uint32_t p = 0; p < parts.size(); ++p) {
    for (const ir::Box& piece : parts[p].pieces) {
      std::int64_t twice = -1;
      each_block(blocks_of(out.grid, piece), counts, [&](std::int64_t block) {
        if (out.owners[static_cast<std::size_t>(block)] != kNobody) twice = block;
        return twice < 0;
      });
      if (twice >= 0) {
        const std::uint32_t other = out.owners[static_cast<std::size_t>(twice)];
        return error(Errc::kAlreadyExists,
                     other == p ? who(p) + " has " + box_of(twice) + " twice"
                                : "both " + who(other) + " and " + who(p) + " have " + box_of(twice));
      }
      each_block(blocks_of(out.grid, piece), counts, [&](std::int64_t block) {
        out.owners[static_cast<std::size_t>(block)] = p;
        return true;
      });
    }
  }
  const auto gap = std::find(out.owners.begin(), out.owners.end(), kNobody);
  if (gap != out.owners.end())
    return error(Errc::kNotFound,
                 "nobody has " + box_of(gap - out.owners.begin()) + " of " + ir::to_string(shape));
  return out;
}

ir::Placement placement_of(const Cover& cover, const std::vector<Gathering::Part>& parts,
                           const std::vector<DeviceId>& devices) {
  const ir::Shape counts = cover.grid.counts();
  const int rank = cover.grid.rank();
  std::size_t pieces = 0;
  for (const Gathering::Part& part : parts) pieces += part.pieces.size();
  if (pieces == 0)  // of an array without elements: nothing to be owned
    return ir::Placement::whole(counts, ir::Rule::constant(rank, devices.front()));
  if (pieces <= static_cast<std::size_t>(ir::kMaxPieces)) {
    std::vector<ir::Piece> rules;
    for (std::size_t p = 0; p < parts.size(); ++p) {
      for (const ir::Box& piece : parts[p].pieces)
        rules.push_back({blocks_of(cover.grid, piece), ir::Rule::constant(rank, devices[p])});
    }
    return ir::Placement(std::move(rules));
  }
  std::vector<ir::Run> runs;
  for (std::size_t block = 0; block < cover.owners.size(); ++block)
    ir::append(runs, static_cast<std::int64_t>(block), devices[cover.owners[block]]);
  return ir::Placement::of_runs(counts, std::move(runs));
}

}  // namespace tilewise::scheduler

// Alignment: the rule of an operand's array, carried through the op's index map.
//
// Every map is separable: the first source block that a point reads is, along each source dimension, a monotone
// function f of one coordinate of the point. It is asked of the geometry rather than derived again from the op's kind.
// A contiguous rule over source blocks stays contiguous over points (exactly where f is a scaling that divides evenly,
// nearly so elsewhere: alignment is a wish, not a promise). A cyclic rule survives where f has a constant stride.
#include <tilewise/place/place.h>

#include <algorithm>
#include <numeric>

namespace tilewise::place {
namespace {

constexpr std::int64_t kSearchedSteps = limits::kMaxOperands;

// f: which block of the operand a point reads first.
class FirstRead {
 public:
  FirstRead(const Request& request, int operand) : request_(request), operand_(operand) {
    counts_ = request.inputs[static_cast<std::size_t>(operand)].array->grid.counts();
  }
  bool at(const ir::Index& point, ir::Index& block) {
    const std::int64_t steps = std::min(request_.geometry->steps(point), kSearchedSteps);
    for (std::int64_t step = 0; step < steps; ++step) {
      request_.geometry->reads(point, step, reads_);
      for (const ir::Read& read : reads_) {
        if (read.operand != operand_) continue;
        block = ir::unravel(read.block, counts_);
        return true;
      }
    }
    return false;
  }

 private:
  const Request& request_;
  int operand_;
  ir::Shape counts_;
  std::vector<ir::Read> reads_;
};

// Coordinate of a rule's device grid that owns block b of n.
std::int64_t coordinate(std::int64_t b, std::int64_t n, std::int64_t parts, bool cyclic) {
  b = std::clamp<std::int64_t>(b, 0, n - 1);
  // Contiguous: c owns [ceil(c*n/parts), ceil((c+1)*n/parts)), so c = floor(b*parts/n).
  return cyclic ? b % parts : static_cast<std::int64_t>(static_cast<__int128>(b) * parts / n);
}

// One space dimension that walks one source dimension: the blocks read at its ends and in between.
struct Walk {
  std::int64_t points = 0;  // along the dimension
  std::int64_t first = 0, second = 0, middle = 0,
               last = 0;  // source blocks, counted from the piece's low corner
};

// The new rule's coordinates along one dimension, as coordinates of the old rule; false: no closed form.
bool carry(const Walk& walk, std::int64_t blocks, std::int64_t parts, bool cyclic,
           std::vector<std::int64_t>& out) {
  if (!cyclic) {
    const std::int64_t from = coordinate(walk.first, blocks, parts, false);
    const std::int64_t to = coordinate(walk.last, blocks, parts, false);
    const std::int64_t step = from <= to ? 1 : -1;
    for (std::int64_t c = from; c != to + step; c += step) out.push_back(c);
    return true;
  }
  const std::int64_t stride = walk.second - walk.first;
  if (walk.middle != walk.first + stride * (walk.points / 2) ||
      walk.last != walk.first + stride * (walk.points - 1)) {
    return false;
  }
  const std::int64_t period = stride == 0 ? 1 : parts / std::gcd(parts, stride < 0 ? -stride : stride);
  for (std::int64_t c = 0; c < std::min(period, walk.points); ++c) {
    out.push_back((((walk.first + stride * c) % parts) + parts) % parts);
  }
  return true;
}

// A contiguous rule with more parts than points gives most of them nothing: only those that own a point are named.
void thin(std::vector<std::int64_t>& along, std::int64_t points, bool cyclic) {
  const auto parts = static_cast<std::int64_t>(along.size());
  if (cyclic || parts <= points) return;
  for (std::int64_t i = 0; i < points; ++i)
    along[static_cast<std::size_t>(i)] = along[static_cast<std::size_t>(i * parts / points)];
  along.resize(static_cast<std::size_t>(points));
}

bool is_identity(const Request& request, int operand) {
  const auto at = static_cast<std::size_t>(operand);
  const ir::Grid& source = request.inputs[at].array->grid;
  return request.op->operands[at].view.is_identity(source.shape()) && source == request.op->space &&
         request.geometry->point_count() > 0 && request.geometry->steps(request.geometry->point(0)) == 1;
}

}  // namespace

bool align_with(const Request& request, int operand, ir::Placement& out) {
  const Input& input = request.inputs[static_cast<std::size_t>(operand)];
  const ir::Shape counts = request.op->space.counts();
  if (input.placement == nullptr || input.placement->pieces().empty()) return false;
  if (ir::volume(counts) == 0 || input.array->grid.block_count() == 0) return false;
  if (is_identity(request, operand)) {
    out = *input.placement;
    return true;
  }
  // Of several pieces only an identity keeps all; elsewhere the one in the middle speaks for the array.
  const ir::Piece& piece = input.placement->pieces()[input.placement->pieces().size() / 2];
  const ir::Rule& rule = piece.rule;
  const auto source_rank = static_cast<std::size_t>(input.array->grid.rank());

  // Where the operand is read at all (a part of the space for concat).
  std::vector<ir::Geometry::Users> users;
  request.geometry->users(operand, 0, users);
  ir::Index base(counts.size(), 0);
  if (!users.empty() && users[0].points.volume() > 0) base = users[0].points.lo;
  FirstRead first_read(request, operand);
  ir::Index base_block, block;
  if (!first_read.at(base, base_block)) {
    base.assign(counts.size(), 0);
    if (!first_read.at(base, base_block)) return false;
  }

  ir::Index from(source_rank, 0);  // coordinates in the old rule of what nobody walks
  for (std::size_t s = 0; s < source_rank; ++s) {
    from[s] = coordinate(base_block[s] - piece.box.lo[s], piece.box.hi[s] - piece.box.lo[s], rule.parts[s],
                         rule.cyclic[s] != 0);
  }
  ir::Rule carried;
  std::vector<int> walked_by(source_rank, -1);
  std::vector<std::vector<std::int64_t>> along(counts.size());
  for (std::size_t d = 0; d < counts.size(); ++d) {
    ir::Index at = base;
    auto read_at = [&](std::int64_t c) {
      at[d] = std::min(c, counts[d] - 1);
      if (!first_read.at(at, block)) block = base_block;
      return block;
    };
    const ir::Index first = read_at(0), second = read_at(1), middle = read_at(counts[d] / 2),
                    last = read_at(counts[d] - 1);
    bool cyclic = false;
    for (std::size_t s = 0; s < source_rank && along[d].empty(); ++s) {
      if (walked_by[s] >= 0 || rule.parts[s] == 1 || (first[s] == last[s] && first[s] == middle[s])) continue;
      const std::int64_t lo = piece.box.lo[s];
      const Walk walk{counts[d], first[s] - lo, second[s] - lo, middle[s] - lo, last[s] - lo};
      cyclic = rule.cyclic[s] != 0;
      if (!carry(walk, piece.box.hi[s] - lo, rule.parts[s], cyclic, along[d])) return false;
      walked_by[s] = static_cast<int>(d);
    }
    if (along[d].empty()) along[d].push_back(0);
    thin(along[d], counts[d], cyclic);
    carried.parts.push_back(static_cast<std::int32_t>(along[d].size()));
    carried.cyclic.push_back(cyclic ? 1 : 0);
  }
  const ir::Shape parts(carried.parts.begin(), carried.parts.end());
  const ir::Shape source_parts(rule.parts.begin(), rule.parts.end());
  const std::int64_t size = ir::volume(parts);
  carried.devices.reserve(static_cast<std::size_t>(size));
  for (std::int64_t i = 0; i < size; ++i) {
    const ir::Index to = ir::unravel(i, parts);
    for (std::size_t s = 0; s < source_rank; ++s) {
      if (walked_by[s] < 0) continue;
      const auto d = static_cast<std::size_t>(walked_by[s]);
      from[s] = along[d][static_cast<std::size_t>(to[d])];
    }
    carried.devices.push_back(
        rule.devices[static_cast<std::size_t>(ir::ravel(from, source_parts) * rule.copies)]);
  }
  out = ir::Placement::whole(counts, std::move(carried));
  return true;
}

}  // namespace tilewise::place

#include <tilewise/ir/cost.h>
#include <tilewise/place/levels.h>

#include "shares.h"

#include <algorithm>
#include <cmath>

namespace tilewise::place {
namespace {

constexpr std::size_t kMaxReads = 64;  // of a step: more are like these
constexpr double kMostNs = 1e18;
constexpr double kReadInPlace = 0.1;  // of a link's latency, until it is known that a block is there

const Device kElsewhere{.host = ~0u};

}  // namespace

// A client's endpoint and devices that left are elsewhere.
const Device& Levels::device(DeviceId id) const {
  const Device* found = find_device(devices_, id);
  return found != nullptr ? *found : kElsewhere;
}

double Levels::moves_s(const Input& input, std::int64_t block, DeviceId to) const {
  const ir::Index at = ir::unravel(block, input.array->grid.counts());
  if (input.placement->holds(at, to)) return 0;
  const LinkSpeed link = speeds_.link(device(input.placement->owner(at)), device(to));
  if (link.mapped) return kReadInPlace * link.latency_s;
  const double bytes = static_cast<double>(input.array->grid.box(at).volume()) *
                       static_cast<double>(ir::size_of(input.array->dtype));
  return link.latency_s + (link.bytes_per_s > 0 ? bytes / link.bytes_per_s : 0);
}

void Levels::look_at(const ir::Geometry& geometry, std::int64_t ordinal, const ir::Placement& placement,
                     std::span<const Input> inputs, const std::string& family) {
  const ir::Index point = geometry.point(ordinal);
  const DeviceId here = placement.owner(point);
  const auto steps = static_cast<double>(geometry.steps(point));
  Node& node = nodes_.back();
  const double step_s = ir::model_step_ns(geometry, point) * 1e-9 * speeds_.ratio(device(here), family);
  node.task_s = std::max(node.task_s, step_s * steps);
  const auto owned = static_cast<double>(placement.owned_count(here));
  if (owned > 0) node.devices = std::max(node.devices, static_cast<double>(geometry.point_count()) / owned);
  geometry.reads(point, 0, reads_);
  for (std::size_t i = 0; i < reads_.size(); ++i) {
    Seen& seen = seen_[reads_[i].operand];
    seen.blocks += steps;
    if (i < kMaxReads)
      seen.moves_s = std::max(seen.moves_s, moves_s(inputs[reads_[i].operand], reads_[i].block, here));
  }
}

void Levels::add(const ir::Op& op, const ir::Geometry* geometry, const ir::Placement& placement,
                 std::span<const Input> inputs) {
  const std::size_t self = nodes_.size();
  nodes_.emplace_back();
  seen_.assign(op.operands.size(), {});
  const std::int64_t points = geometry == nullptr ? 0 : geometry->point_count();
  if (points > 0) {
    const std::string family = ir::family_of(op);
    std::int64_t looked_at = 0, last = -1;
    for (const std::int64_t ordinal : {std::int64_t{0}, points / 2, points - 1}) {
      if (ordinal == last) continue;
      look_at(*geometry, ordinal, placement, inputs, family);
      last = ordinal, ++looked_at;
    }
    for (Seen& seen : seen_) seen.blocks /= static_cast<double>(looked_at);
    if (op.kind == ir::OpKind::kKeep) nodes_.back().task_s = 0;  // nothing runs
  } else if (op.kind == ir::OpKind::kFetch) {
    const std::int64_t blocks = inputs[0].array->grid.block_count();
    if (blocks > 0) seen_[0] = {1, moves_s(inputs[0], blocks / 2, op.get<ir::FetchAttrs>().to)};
  }
  for (std::size_t i = 0; i < op.operands.size(); ++i) {
    const auto maker = maker_.find(op.operands[i].array);
    if (maker == maker_.end() || seen_[i].blocks == 0) continue;
    const double each = std::ceil(seen_[i].blocks / nodes_[maker->second].devices);
    edges_.push_back({maker->second, self, std::max(1.0, each), seen_[i].moves_s});
  }
  for (const ir::OutputSpec& output : op.outputs) maker_.emplace(output.array, self);
}

std::vector<std::int64_t> Levels::nanoseconds() const {
  std::vector<double> rest_s(nodes_.size(), 0);  // after the op's own tasks
  std::vector<std::int64_t> out(nodes_.size());
  std::size_t edge = edges_.size();
  for (std::size_t op = nodes_.size(); op-- > 0;) {
    const double level_s = nodes_[op].task_s + rest_s[op];
    out[op] = static_cast<std::int64_t>(std::min(level_s * 1e9, kMostNs));
    for (; edge > 0 && edges_[edge - 1].to == op; --edge) {
      const Edge& e = edges_[edge - 1];
      const double before_s = (e.tasks - 1) * nodes_[e.from].task_s + e.moves_s + level_s;
      rest_s[e.from] = std::max(rest_s[e.from], before_s);
    }
  }
  return out;
}

}  // namespace tilewise::place

#include "readers.h"

#include "graphs.h"
#include "layers.h"

#include <algorithm>

namespace tilewise::scheduler {
namespace {

constexpr std::int64_t kMaxLooked = 4096;        // readers of one block that are looked at one by one
constexpr std::int64_t kMaxMarked = 16'777'216;  // reads that are noted where there are more, in all

}  // namespace

Readers::Readers(State& s, const Answers& answers, WorkerId leaver)
    : s_(s), answers_(answers), leaver_(leaver), marks_left_(kMaxMarked) {
  s.ops.for_each([&](OpRecord& op) {
    const bool fetch = op.op.kind == ir::OpKind::kFetch;
    if (op.finished || (fetch && s.graphs.at(op.graph).delivered)) return;
    for (std::size_t i = 0; i < op.op.operands.size(); ++i)
      users_[ArrayId{op.op.operands[i].array}].emplace_back(op.id, static_cast<int>(i));
  });
}

bool Readers::alive(DeviceId id) const {
  const Device& device = *s_.device(id);
  return device.alive && device.peer != leaver_;
}

const std::vector<std::pair<OpId, int>>& Readers::of(ArrayId array) const {
  static const std::vector<std::pair<OpId, int>> kNone;
  const auto found = users_.find(array);
  return found == users_.end() ? kNone : found->second;
}

bool Readers::await(const ArrayRecord& array, std::int64_t block) {
  if (array.fetches.empty()) return false;
  const auto [known, fresh] = fetches_.try_emplace(array.id);  // asked of each block
  if (fresh) {
    for (const OpId id : array.fetches) {
      const OpRecord& fetch = s_.ops.at(id);
      if (!s_.graphs.at(fetch.graph).delivered)
        known->second.push_back(answers_.share(id, fetch.op.get<ir::FetchAttrs>().to));
    }
  }
  return std::any_of(known->second.begin(), known->second.end(), [&](const msg::Held::Share* share) {
    return share == nullptr || contains(share->begun, block);
  });
}

bool Readers::will_read(ArrayId array, std::int64_t block) {
  const auto& users = of(array);
  return std::any_of(users.begin(), users.end(), [&](const auto& user) {
    OpRecord* op = s_.ops.find(user.first);
    return op != nullptr && !op->finished &&  // its graph may have been ended meanwhile
           will_read(*op, user.second, block);
  });
}

bool Readers::will_read(OpRecord& user, int operand, std::int64_t block) {
  const OpRecord& head = head_of(s_, user);
  std::vector<ir::Geometry::Users> readers;
  geometry_of(head).users(operand, block, readers);
  for (const ir::Geometry::Users& box : readers) {
    std::int64_t looked = 0;
    ir::Index at(box.points.lo.begin(), box.points.lo.end());
    if (box.points.volume() == 0) continue;
    while (true) {
      if (++looked > kMaxLooked) return is_marked(user, head, operand, block);
      if (is_open(user, head, at)) return true;
      int d = box.points.rank() - 1;
      for (; d >= 0 && ++at[d] == box.points.hi[d]; --d) at[d] = box.points.lo[d];
      if (d < 0) break;
    }
  }
  return false;
}

// The point is this op's, lies on a living device, and has not been begun there.
bool Readers::is_open(const OpRecord& user, const OpRecord& head, const ir::Index& point) const {
  const DeviceId device = user.placement.owner(point);
  if (!device || !alive(device) || !stands_for(s_, head, user, point)) return false;
  const msg::Held::Share* share = answers_.share(user.id, device);
  return share == nullptr || user.placement.ordinal(device, point) >= share->next;
}

bool Readers::is_marked(const OpRecord& user, const OpRecord& head, int operand, std::int64_t block) {
  const auto [found, fresh] = marked_.try_emplace(user.id);
  Marks& marks = found->second;
  if (fresh) {
    for (const ir::Operand& read : user.op.operands) {
      const ir::SourceArray& source = s_.arrays.at(ArrayId{read.array}).source;
      marks.emplace_back(static_cast<std::size_t>(source.grid.block_count()));
    }
    if (!mark(user, head, marks)) marks.clear();
  }
  return marks.empty() || marks[static_cast<std::size_t>(operand)][static_cast<std::size_t>(block)];
}

// False: there are too many.
bool Readers::mark(const OpRecord& user, const OpRecord& head, Marks& marks) {
  const ir::Geometry& geometry = geometry_of(head);
  std::vector<ir::Read> reads;
  for (const DeviceId device : user.placement.devices()) {
    if (!alive(device)) continue;
    const msg::Held::Share* share = answers_.share(user.id, device);
    const std::int64_t owned = user.placement.owned_count(device);
    for (std::int64_t i = share == nullptr ? 0 : share->next; i < owned; ++i) {
      const ir::Index at = user.placement.nth(device, i);
      if (!stands_for(s_, head, user, at)) continue;
      const std::int64_t steps = geometry.steps(at);
      for (std::int64_t step = 0; step < steps; ++step) {
        geometry.reads(at, step, reads);
        marks_left_ -= static_cast<std::int64_t>(reads.size());
        if (marks_left_ < 0) return false;
        for (const ir::Read& read : reads) marks[read.operand][static_cast<std::size_t>(read.block)] = true;
      }
    }
  }
  return true;
}

const ir::Geometry& Readers::geometry_of(const OpRecord& head) {
  const auto found = geometries_.find(head.id);
  if (found != geometries_.end()) return found->second;
  std::vector<ir::SourceArray> sources;
  for (const ir::Operand& operand : head.op.operands)
    sources.push_back(s_.arrays.at(ArrayId{operand.array}).source);
  auto geometry = ir::Geometry::make(head.op, std::move(sources));
  TW_CHECK(geometry.has_value(), "a planned op has lost its geometry");
  return geometries_.emplace(head.id, std::move(*geometry)).first->second;
}

}  // namespace tilewise::scheduler

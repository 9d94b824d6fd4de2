#include <tilewise/ir/cost.h>
#include <tilewise/ir/file_info.h>
#include <tilewise/place/place.h>

#include "shares.h"

#include <algorithm>
#include <cmath>

namespace tilewise::place {
namespace {

constexpr std::size_t kAlignedOperands = 4;           // the largest ones
constexpr std::int64_t kSmallResultBytes = 64 << 10;  // not worth a balanced choice

std::vector<DeviceId> ids_of(std::span<const Device> devices) {
  std::vector<DeviceId> out;
  out.reserve(devices.size());
  for (const Device& d : devices) out.push_back(d.id);
  return out;
}

class Aligned final : public Policy {
 public:
  std::string_view name() const override { return "aligned"; }
  void propose(const Request& request, std::vector<Candidate>& out) const override {
    std::vector<int> order;
    for (int i = 0; i < static_cast<int>(request.inputs.size()); ++i) order.push_back(i);
    auto bytes = [&](int i) { return bytes_of(*request.inputs[static_cast<std::size_t>(i)].array); };
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return bytes(a) > bytes(b); });
    if (order.size() > kAlignedOperands) order.resize(kAlignedOperands);
    for (const int operand : order) {
      ir::Placement placement;
      if (align_with(request, operand, placement)) {
        out.push_back({std::move(placement), name()});
      }
    }
  }
};

double result_bytes(const Request& request) {
  double bytes = 0;
  for (const ir::OutputSpec& output : request.op->outputs) bytes += bytes_of({output.dtype, output.grid});
  return bytes;
}

class Tiled final : public Policy {
 public:
  explicit Tiled(bool cyclic) : cyclic_(cyclic) {}
  std::string_view name() const override { return cyclic_ ? "block-cyclic" : "tiled"; }
  void propose(const Request& request, std::vector<Candidate>& out) const override {
    const ir::Shape counts = request.op->space.counts();
    std::vector<DeviceId> devices = ids_of(request.eligible);
    const bool one = ir::volume(counts) == 1;
    if (one) devices = {quietest(request)};
    const bool by_memory = one && result_bytes(request) >= static_cast<double>(kSmallResultBytes);
    out.push_back({tiled(counts, devices, cut_costs(request), cyclic_), name(), by_memory});
  }

 private:
  // One block: where there is room; spread many small independent arrays, but keep really small ones together on the first
  // device.
  static DeviceId quietest(const Request& request) {
    const double bytes = result_bytes(request);
    const std::int64_t block = request.geometry->output_bytes_bound();
    const auto before = [&](const Device& a, const Device& b) {
      const Room room_a = a.room_for(bytes, block), room_b = b.room_for(bytes, block);
      if (room_a != room_b) return room_a > room_b;
      return bytes >= static_cast<double>(kSmallResultBytes) && a.load_bytes < b.load_bytes;
    };
    return std::min_element(request.eligible.begin(), request.eligible.end(), before)->id;
  }
  bool cyclic_;
};

class Wanted final : public Policy {
 public:
  std::string_view name() const override { return "wanted by a user"; }
  void propose(const Request& request, std::vector<Candidate>& out) const override {
    for (const ir::Placement& placement : request.wanted) out.push_back({placement, name()});
  }
};

bool uses_only(const ir::Placement& placement, std::span<const Device> eligible) {
  for (const ir::Piece& piece : placement.pieces()) {
    for (const DeviceId id : piece.rule.devices) {
      if (!std::binary_search(eligible.begin(), eligible.end(), Device{id},
                              [](const Device& a, const Device& b) { return a.id < b.id; })) {
        return false;
      }
    }
  }
  return true;
}

constexpr double kSearchGain_s = 1e-3;  // what a search costs, about
constexpr double kSearchGain = 0.03;

constexpr double kTightness = 4;  // times as slow is better than little room for later steps

// Who is out of memory fails, who is slow ends later.
bool better(const Estimate& a, const Estimate& b) {
  const Room room_a = std::min(a.room, Room::kTight), room_b = std::min(b.room, Room::kTight);
  if (room_a != room_b) return room_a > room_b;
  const auto price = [](const Estimate& e) {
    return e.room == Room::kTight ? kTightness * e.seconds : e.seconds;
  };
  return price(a) < price(b);
}

// Candidates and their costs, each different one once.
class Contest {
 public:
  explicit Contest(const Request& request) : request_(request) {}

  void hear(const Policy& policy) {
    searched_ |= policy.searches();
    proposed_.clear();
    policy.propose(request_, proposed_);
    for (Candidate& candidate : proposed_) {
      if (!uses_only(candidate.placement, request_.eligible)) continue;
      if (std::none_of(candidates_.begin(), candidates_.end(),
                       [&](const Candidate& c) { return c.placement == candidate.placement; }))
        candidates_.push_back(std::move(candidate));
    }
  }

  // Against all work spread evenly over all devices, with no bytes to wait for.
  bool worth_a_search() {
    if (candidates_.empty()) return true;
    if (request_.eligible.size() < 2 || little_work()) return false;
    score();
    const auto best = std::min_element(costs_.begin(), costs_.end(), better);
    if (best->room < Room::kAmple && most_room() > best->room) return true;
    if (best->seconds < kSearchGain_s) return false;
    const std::int64_t all = request_.geometry->point_count();
    const Pace pace = pace_of(request_, all);
    const double first_s = *std::min_element(pace.busy_s.begin(), pace.busy_s.end());
    double points = static_cast<double>(all), speed = 0;
    for (std::size_t d = 0; d < pace.item_s.size(); ++d) {
      points += (pace.busy_s[d] - first_s) / pace.item_s[d];
      speed += 1 / pace.item_s[d];
    }
    const double gain_s = best->seconds - points / speed;
    return gain_s > kSearchGain_s && gain_s > kSearchGain * best->seconds;
  }

  // The cheapest of those with most room; the earlier of equals.
  Result<Decision> decide() {
    if (candidates_.empty()) {
      return error(Errc::kUnavailable,
                   "no policy could place op '" + std::string(ir::name_of(request_.op->kind)) + "'");
    }
    if (candidates_.size() == 1)
      return Decision{.placement = std::move(candidates_[0].placement),
                      .why = candidates_[0].why,
                      .by_memory = by_memory(candidates_[0])};
    score();
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < candidates_.size(); ++i) order.push_back(i);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return better(costs_[a], costs_[b]); });
    Candidate& best = candidates_[order[0]];
    const Estimate& cost = costs_[order[0]];
    Decision decision{.placement = std::move(best.placement),
                      .why = best.why,
                      .seconds = cost.seconds,
                      .moved_bytes = cost.moved_bytes,
                      .by_memory = by_memory(best)};
    for (std::size_t i = 1; i < order.size() && i <= 2; ++i) {
      Candidate& other = candidates_[order[i]];
      const Estimate& lost = costs_[order[i]];
      decision.rejected.push_back({std::move(other.placement), other.why, lost.seconds, lost.moved_bytes});
    }
    return decision;
  }

 private:
  // One candidate, and nothing to be won even if all of it would run on one device: not worth an estimate.
  bool little_work() const {
    const ir::Geometry& geometry = *request_.geometry;
    const std::int64_t points = geometry.point_count();
    if (candidates_.size() > 1 || points == 0) return points == 0;
    const double bytes = static_cast<double>(geometry.output_bytes_bound()) * static_cast<double>(points);
    for (const Device& device : request_.eligible)
      if (device.room_for(bytes, geometry.output_bytes_bound()) < Room::kAmple) return false;
    const ir::Index middle = geometry.point(points / 2);
    const double steps = static_cast<double>(points) * static_cast<double>(geometry.steps(middle));
    return ir::model_step_ns(geometry, middle) * 1e-9 * steps < kSearchGain_s;
  }
  // The device that has least, where that has won; else who has no ample room counts less, and gets less where shares are sought.
  bool by_memory(const Candidate& chosen) const {
    if (request_.eligible.size() < 2) return false;
    const ir::Geometry& geometry = *request_.geometry;
    const std::int64_t block = geometry.output_bytes_bound();
    const double bytes = static_cast<double>(block) * static_cast<double>(geometry.point_count());
    const bool one = geometry.point_count() == 1;
    if (chosen.by_memory) return true;
    const auto cramped = [&](const Device& d) {
      return !d.can_hold(block) || bytes > static_cast<double>(d.headroom_bytes(Room::kAmple));
    };
    return std::any_of(costs_.begin(), costs_.end(),
                       [](const Estimate& cost) { return cost.room < Room::kAmple || cost.over; }) ||
           ((one || searched_) && std::any_of(request_.eligible.begin(), request_.eligible.end(), cramped));
  }
  // That all devices could have together.
  Room most_room() const {
    const ir::Geometry& geometry = *request_.geometry;
    const double block = static_cast<double>(geometry.output_bytes_bound());
    for (const Room room : {Room::kAmple, Room::kTight, Room::kLater}) {
      double blocks = 0;
      for (const Device& device : request_.eligible)
        if (device.can_hold(geometry.output_bytes_bound()))
          blocks += std::floor(static_cast<double>(device.headroom_bytes(room)) / std::max(1.0, block));
      if (blocks >= static_cast<double>(geometry.point_count())) return room;
    }
    return Room::kNone;
  }
  void score() {
    for (std::size_t i = costs_.size(); i < candidates_.size(); ++i)
      costs_.push_back(estimate(request_, candidates_[i].placement));
  }

  const Request& request_;
  std::vector<Candidate> candidates_, proposed_;
  std::vector<Estimate> costs_;  // of the first so many candidates
  bool searched_ = false;
};

}  // namespace

double bytes_of(const ir::SourceArray& array) {
  double bytes = static_cast<double>(ir::size_of(array.dtype));
  for (const std::int64_t n : array.grid.shape()) bytes *= static_cast<double>(n);
  return bytes;
}

std::unique_ptr<Policy> aligned_policy() { return std::make_unique<Aligned>(); }
std::unique_ptr<Policy> tiled_policy() { return std::make_unique<Tiled>(false); }
std::unique_ptr<Policy> block_cyclic_policy() { return std::make_unique<Tiled>(true); }
std::unique_ptr<Policy> wanted_policy() { return std::make_unique<Wanted>(); }

void eligible_devices(const ir::Op& op, std::span<const Device> devices, std::vector<Device>& out) {
  const bool files = op.kind == ir::OpKind::kReadNpy || op.kind == ir::OpKind::kWriteNpy ||
                     (op.kind == ir::OpKind::kCall && ir::is_file_kernel(op.get<ir::CallAttrs>().kernel));
  const std::uint8_t preferred = files ? kHostKind : kCudaKind;
  const bool there =
      std::any_of(devices.begin(), devices.end(), [&](const Device& d) { return d.kind == preferred; });
  out.clear();
  for (const Device& d : devices) {
    if ((d.kind == preferred) == there) out.push_back(d);
  }
}

Placer::Placer() {
  // In the order in which ties are broken: results live where inputs live.
  policies_.push_back(product_policy());
  policies_.push_back(scattered_policy());
  policies_.push_back(gathered_policy());
  policies_.push_back(aligned_policy());
  policies_.push_back(wanted_policy());
  policies_.push_back(tiled_policy());
  policies_.push_back(balanced_policy());
  policies_.push_back(product_grids_policy());
  policies_.push_back(following_policy());
}
Placer::Placer(std::vector<std::unique_ptr<Policy>> policies) : policies_(std::move(policies)) {}

Result<Decision> Placer::place(const Request& request) const {
  const ir::Op& op = *request.op;
  const ir::Shape counts = op.space.counts();
  if (!op.hint.devices.empty()) {
    return Decision{.placement = hinted(op.hint, counts, cut_costs(request)),
                    .why = op.hint.devices.size() == 1 ? "explicit device"
                           : op.hint.parts.empty()     ? "explicit subset"
                                                       : "explicit mesh"};
  }
  if (request.eligible.empty()) {
    return error(Errc::kUnavailable, "no device can run op '" + std::string(ir::name_of(op.kind)) +
                                         "': no worker with a fitting device has joined");
  }
  Contest contest(request);
  for (const auto& policy : policies_)
    if (!policy->searches()) contest.hear(*policy);
  if (contest.worth_a_search())
    for (const auto& policy : policies_)
      if (policy->searches()) contest.hear(*policy);
  return contest.decide();
}

std::string describe(const ir::Placement& placement) {
  const std::size_t devices = placement.devices().size();
  if (placement.pieces().size() != 1)
    return std::to_string(placement.pieces().size()) + " boxes over " + std::to_string(devices) + " devices";
  const ir::Rule& rule = placement.pieces()[0].rule;
  if (rule.devices.size() == 1) return "device " + std::to_string(rule.devices[0].value);
  if (rule.devices.size() > devices * static_cast<std::size_t>(rule.copies))
    return std::to_string(rule.devices.size()) + " chunks over " + std::to_string(devices) + " devices";
  std::string parts;
  bool cyclic = false;
  for (std::size_t d = 0; d < rule.parts.size(); ++d) {
    parts += (d > 0 ? "x" : "") + std::to_string(rule.parts[d]);
    cyclic |= rule.cyclic[d] != 0;
  }
  std::string out = parts + (cyclic ? " cyclic" : "") + " tiles over " + std::to_string(devices) + " devices";
  if (rule.copies > 1) out += ", " + std::to_string(rule.copies) + " copies each";
  return out;
}

std::string describe(const ir::Placement& placement, double moved_bytes) {
  std::string text = describe(placement);
  if (moved_bytes >= 1)
    text += ", about " + std::to_string(static_cast<std::int64_t>(moved_bytes / 1024)) + " KiB moved";
  return text;
}

}  // namespace tilewise::place

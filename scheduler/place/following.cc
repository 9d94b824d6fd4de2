// Each point goes where most of what it reads is, while every device keeps to the share that its speed gives it.
//
// A greedy assignment in the manner of LSHS (Elibol, Benara, Yagati, Zheng, Cheung, Jordan, Stoica: "NumS: Scalable Array
// Programming for the Cloud", 2022), which places one operation at a time among the holders of its operands. Here the
// cost is time on links of different speeds, a block that has moved once is there for the next point, and loads are
// bounded by shares instead of being minimised.
#include <tilewise/place/place.h>

#include "shares.h"

#include <algorithm>
#include <boost/unordered/unordered_flat_map.hpp>
#include <boost/unordered/unordered_flat_set.hpp>

namespace tilewise::place {
namespace {

constexpr std::int64_t kMaxPoints = 4096;   // of one op
constexpr std::int64_t kMaxReads = 16'384;  // looked at, twice

class Follower {
 public:
  explicit Follower(const Request& request)
      : request_(request),
        geometry_(*request.geometry),
        points_(geometry_.point_count()),
        left_(shares_by_speed(pace_of(request, points_), points_)) {
    for (std::size_t d = 0; d < request.eligible.size(); ++d) place_of_[request.eligible[d].id.value] = d;
  }

  bool run(ir::Rule& rule) {
    rule.devices.resize(static_cast<std::size_t>(points_));
    std::vector<std::int64_t> later;
    for (std::int64_t p = 0; p < points_; ++p) {
      if (!gather(p)) return false;
      const std::size_t best = best_holder();
      if (best == kNowhere)
        later.push_back(p);  // first all that can stay where their inputs are
      else
        give(rule, p, best);
    }
    for (const std::int64_t p : later) {
      if (!gather(p)) return false;
      give(rule, p, nearest());
    }
    return true;
  }

 private:
  static constexpr std::size_t kNowhere = ~std::size_t{0};
  struct Wanted {
    std::uint8_t operand = 0;
    std::int64_t block = 0;
    DeviceId owner;
    double bytes = 0;
  };

  bool gather(std::int64_t p) {
    wanted_.clear();
    const ir::Index point = geometry_.point(p);
    for (std::int64_t s = 0; s < geometry_.steps(point); ++s) {
      geometry_.reads(point, s, reads_);
      looked_at_ += 1 + static_cast<std::int64_t>(reads_.size());
      if (looked_at_ > 2 * kMaxReads) return false;
      for (const ir::Read& read : reads_) {
        const Input& input = request_.inputs[read.operand];
        const ir::Index block = ir::unravel(read.block, input.array->grid.counts());
        wanted_.push_back({read.operand, read.block, input.placement->owner(block),
                           static_cast<double>(input.array->grid.box(block).volume()) *
                               static_cast<double>(ir::size_of(input.array->dtype))});
      }
    }
    return true;
  }
  bool here(const Wanted& w, const Device& device) const {
    return w.owner == device.id || moved_.contains({w.operand, w.block, device.id.value});
  }
  // Seconds of bytes on their way to a device.
  double in_s(const Device& device) const {
    double seconds = 0;
    for (const Wanted& w : wanted_) {
      if (here(w, device)) continue;
      const auto from = place_of_.find(w.owner.value);
      const LinkSpeed speed = link_of(
          request_, from == place_of_.end() ? Device{.host = ~0u} : request_.eligible[from->second], device);
      if (speed.bytes_per_s > 0 && !speed.mapped) seconds += w.bytes / speed.bytes_per_s;
      seconds += 0.1 * speed.latency_s;
    }
    return seconds;
  }
  std::size_t best_holder() const {
    std::size_t best = kNowhere;
    double best_s = 0;
    for (const Wanted& w : wanted_) {
      const auto it = place_of_.find(w.owner.value);
      if (it == place_of_.end() || left_[it->second] == 0) continue;
      const double seconds = in_s(request_.eligible[it->second]);
      if (best != kNowhere && (seconds > best_s || (seconds == best_s && left_[it->second] <= left_[best])))
        continue;
      best = it->second;
      best_s = seconds;
    }
    return best;
  }
  // Nobody who holds some of it has room: of the others.
  std::size_t nearest() const {
    std::size_t best = kNowhere;
    double best_s = 0;
    for (std::size_t d = 0; d < left_.size(); ++d) {
      if (left_[d] == 0) continue;
      const double seconds = in_s(request_.eligible[d]);
      if (best != kNowhere && (seconds > best_s || (seconds == best_s && left_[d] <= left_[best]))) continue;
      best = d;
      best_s = seconds;
    }
    return best;
  }
  void give(ir::Rule& rule, std::int64_t p, std::size_t device) {
    --left_[device];
    const DeviceId id = request_.eligible[device].id;
    rule.devices[static_cast<std::size_t>(p)] = id;
    for (const Wanted& w : wanted_)
      if (w.owner != id) moved_.insert({w.operand, w.block, id.value});
  }

  const Request& request_;
  const ir::Geometry& geometry_;
  std::int64_t points_, looked_at_ = 0;
  std::vector<std::int64_t> left_;                                  // of each device's share
  boost::unordered_flat_map<std::uint32_t, std::size_t> place_of_;  // by device
  boost::unordered_flat_set<std::tuple<std::uint8_t, std::int64_t, std::uint32_t>>
      moved_;  // looked up, never walked
  std::vector<Wanted> wanted_;
  std::vector<ir::Read> reads_;
};

class Following final : public Policy {
 public:
  std::string_view name() const override { return "follows its inputs"; }
  bool searches() const override { return true; }
  void propose(const Request& request, std::vector<Candidate>& out) const override {
    const ir::Shape counts = request.op->space.counts();
    const std::int64_t points = ir::volume(counts);
    if (request.eligible.size() < 2 || request.inputs.empty() || points < 2 || points > kMaxPoints) return;
    ir::Rule rule;
    rule.parts.assign(counts.begin(), counts.end());
    rule.cyclic.assign(counts.size(), 0);
    if (Follower(request).run(rule)) out.push_back({ir::Placement::whole(counts, std::move(rule)), name()});
  }
};

}  // namespace

std::unique_ptr<Policy> following_policy() { return std::make_unique<Following>(); }

}  // namespace tilewise::place

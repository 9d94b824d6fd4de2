// The inner nodes of trees: each sum of partial results is made on the host that has most of them, so that what crosses to another host
// is what the tree, which is a function of shapes (D9), does not allow to be summed before. Of hosts that have as much of it, on the
// one that has most of what its neighbours sum, whose sums meet its own next. On that host, on one of those who have some of it, in
// turn.
#include <tilewise/place/place.h>

#include <algorithm>
#include <map>
#include <tuple>

namespace tilewise::place {
namespace {

constexpr std::int64_t kMaxPoints = 4096;   // of one op
constexpr std::int64_t kMaxReads = 16'384;  // looked at

struct Held {
  double bytes = 0;
  std::int64_t first = 0;  // read of it, in order
};

class Gathering {
 public:
  explicit Gathering(const Request& request) : request_(request), geometry_(*request.geometry) {
    for (const Device& device : request.eligible) host_of_[device.id] = device.host;
  }

  bool run(ir::Rule& rule) {
    for (std::int64_t p = 0; p < geometry_.point_count(); ++p)
      if (!look_at(geometry_.point(p), points_.emplace_back())) return false;
    for (std::int64_t p = 0; p < geometry_.point_count(); ++p) {
      const DeviceId chosen = choose(points_[static_cast<std::size_t>(p)], neighbours_of(p));
      ++given_[chosen];
      rule.devices.push_back(chosen);
    }
    return true;
  }

 private:
  struct Point {
    std::map<std::uint32_t, Held> hosts;  // what they have of its operands
    std::map<DeviceId, Held> devices;
  };

  bool look_at(const ir::Index& point, Point& seen) {
    std::int64_t order = 0;
    for (std::int64_t s = 0; s < geometry_.steps(point); ++s) {
      geometry_.reads(point, s, reads_);
      looked_at_ += 1 + static_cast<std::int64_t>(reads_.size());
      if (looked_at_ > kMaxReads) return false;
      for (const ir::Read& read : reads_) {
        const Input& input = request_.inputs[read.operand];
        const ir::Index block = ir::unravel(read.block, input.array->grid.counts());
        const DeviceId owner = input.placement->owner(block);
        const auto host = host_of_.find(owner);
        if (host == host_of_.end()) continue;
        const double bytes = static_cast<double>(input.array->grid.box(block).volume()) *
                             static_cast<double>(ir::size_of(input.array->dtype));
        seen.hosts.try_emplace(host->second, Held{0, order}).first->second.bytes += bytes;
        seen.devices.try_emplace(owner, Held{0, order}).first->second.bytes += bytes;
        ++order;
      }
    }
    return !seen.devices.empty();
  }
  // What hosts have of the operands of those points whose results are summed with this one's.
  std::map<std::uint32_t, double> neighbours_of(std::int64_t p) const {
    const auto& a = request_.op->get<ir::CombineAttrs>();
    const ir::Shape counts = request_.op->space.counts();
    const auto axis = static_cast<std::size_t>(a.axis);
    ir::Index at = ir::unravel(p, counts);
    const std::int64_t own = at[axis], first = own / a.fan_in * a.fan_in;
    std::map<std::uint32_t, double> bytes;
    for (at[axis] = first; at[axis] < std::min(first + a.fan_in, counts[axis]); ++at[axis]) {
      if (at[axis] == own) continue;
      for (const auto& [host, held] : points_[static_cast<std::size_t>(ir::ravel(at, counts))].hosts)
        bytes[host] += held.bytes;
    }
    return bytes;
  }
  DeviceId choose(const Point& point, const std::map<std::uint32_t, double>& neighbours) const {
    const auto beside = [&](std::uint32_t host) {
      const auto it = neighbours.find(host);
      return it == neighbours.end() ? 0.0 : it->second;
    };
    const auto most = [&](const auto& a, const auto& b) {
      return std::tuple(a.second.bytes, beside(a.first), -a.second.first) <
             std::tuple(b.second.bytes, beside(b.first), -b.second.first);
    };
    const std::uint32_t host = std::max_element(point.hosts.begin(), point.hosts.end(), most)->first;
    const auto given = [&](DeviceId id) {
      const auto it = given_.find(id);
      return it == given_.end() ? std::int64_t{0} : it->second;
    };
    DeviceId best;
    const Held* held = nullptr;
    for (const auto& [id, mine] : point.devices) {
      if (host_of_.at(id) != host) continue;
      const bool better =
          held == nullptr || given(id) < given(best) ||
          (given(id) == given(best) &&
           (mine.bytes > held->bytes || (mine.bytes == held->bytes && mine.first < held->first)));
      if (better) best = id, held = &mine;
    }
    return best;
  }

  const Request& request_;
  const ir::Geometry& geometry_;
  std::map<DeviceId, std::uint32_t> host_of_;
  std::map<DeviceId, std::int64_t> given_;  // points
  std::vector<Point> points_;
  std::int64_t looked_at_ = 0;
  std::vector<ir::Read> reads_;
};

class Gathered final : public Policy {
 public:
  std::string_view name() const override { return "on the host that has most"; }
  void propose(const Request& request, std::vector<Candidate>& out) const override {
    const ir::Shape counts = request.op->space.counts();
    const std::int64_t points = ir::volume(counts);
    if (request.op->kind != ir::OpKind::kCombine || points == 0 || points > kMaxPoints) return;
    const std::uint32_t host = request.eligible.empty() ? 0 : request.eligible[0].host;
    if (std::all_of(request.eligible.begin(), request.eligible.end(),
                    [&](const Device& d) { return d.host == host; }))
      return;
    ir::Rule rule;
    rule.parts.assign(counts.begin(), counts.end());
    rule.cyclic.assign(counts.size(), 0);
    if (Gathering(request).run(rule)) out.push_back({ir::Placement::whole(counts, std::move(rule)), name()});
  }
};

}  // namespace

std::unique_ptr<Policy> gathered_policy() { return std::make_unique<Gathered>(); }

}  // namespace tilewise::place

// The inner nodes of trees: each sum of partial results is made on the host that has most of them, so that what crosses to another host
// is what the tree, which is a function of shapes (D9), does not allow to be summed before. On that host, on one of those who have
// some of it, in turn.
#include <tilewise/place/place.h>

#include <algorithm>
#include <map>

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
    for (std::int64_t p = 0; p < geometry_.point_count(); ++p) {
      if (!look_at(geometry_.point(p))) return false;
      const DeviceId chosen = choose();
      ++given_[chosen];
      rule.devices.push_back(chosen);
    }
    return true;
  }

 private:
  bool look_at(const ir::Index& point) {
    hosts_.clear(), devices_.clear();
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
        hosts_.try_emplace(host->second, Held{0, order}).first->second.bytes += bytes;
        devices_.try_emplace(owner, Held{0, order}).first->second.bytes += bytes;
        ++order;
      }
    }
    return !devices_.empty();
  }
  DeviceId choose() const {
    const auto most = [](const auto& a, const auto& b) {
      return a.second.bytes != b.second.bytes ? a.second.bytes < b.second.bytes
                                              : a.second.first > b.second.first;
    };
    const std::uint32_t host = std::max_element(hosts_.begin(), hosts_.end(), most)->first;
    const auto given = [&](DeviceId id) {
      const auto it = given_.find(id);
      return it == given_.end() ? std::int64_t{0} : it->second;
    };
    DeviceId best;
    const Held* held = nullptr;
    for (const auto& [id, mine] : devices_) {
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
  std::map<std::uint32_t, Held> hosts_;     // what they have of a point's operands
  std::map<DeviceId, Held> devices_;
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

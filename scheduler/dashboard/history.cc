// The last hour, coarsely: so that whoever opens the page sees what was before. One look every few seconds, bounded like any other.
#include "server.h"

#include <algorithm>

namespace tilewise::dashboard {
namespace {

constexpr TimeNs kKept = 3600 * kSecond;
constexpr std::size_t kDevices = 64, kArrays = 16;  // of a sample: the first ones, the largest ones

json::object sample_of(const scheduler::Overview& overview, const scheduler::ArrayList* arrays) {
  json::array used, busy, lanes, largest;
  for (const msg::DeviceStats& device : overview.status.devices) {
    if (used.size() == kDevices) break;
    used.push_back(json::array{device.device.value, device.bytes_used});
    busy.push_back(json::array{device.device.value, static_cast<double>(device.busy_ns) * 1e-9});
  }
  std::map<msg::Lane, std::int64_t> moved;
  for (const auto& [worker, stats] : overview.status.lanes) moved[stats.lane] += stats.bytes;
  for (const auto& [lane, bytes] : moved) lanes.push_back(json::array{msg::name_of(lane), bytes});
  std::vector<std::pair<double, const scheduler::ArrayView*>> there;  // bytes that are made
  for (std::size_t i = 0; arrays != nullptr && i < arrays->arrays.size(); ++i) {
    const scheduler::ArrayView& array = arrays->arrays[i];
    if (array.made > 0 && array.blocks > 0)
      there.emplace_back(static_cast<double>(array.bytes) * static_cast<double>(array.made) /
                             static_cast<double>(array.blocks),
                         &array);
  }
  std::stable_sort(there.begin(), there.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  if (there.size() > kArrays) there.resize(kArrays);
  for (const auto& [bytes, array] : there) {
    const std::string name = array->label.empty() ? std::string(ir::name_of(array->kind)) : array->label;
    largest.push_back(json::array{json::id_text(array->id.value), json::utf8(name), bytes});
  }
  return {{"t", static_cast<double>(overview.now) * 1e-9},
          {"tasks", overview.status.tasks_done},
          {"used", std::move(used)},
          {"busy", std::move(busy)},
          {"lanes", std::move(lanes)},
          {"arrays", std::move(largest)}};
}

}  // namespace

Task<void> Dashboard::Impl::keep_history() {
  const auto most = static_cast<std::size_t>(kKept / options.history_ns);
  while (true) {
    co_await sleep(options.history_ns);
    const std::shared_ptr<const Look> seen = co_await look();
    const scheduler::ViewRequest wanted = scheduler::ArraysRequest{};
    const SharedView arrays = co_await view(wanted);
    if (!seen) continue;
    const auto* list = arrays ? std::get_if<scheduler::ArrayList>(&*arrays) : nullptr;
    past.push_back(boost::json::serialize(sample_of(seen->overview, list)));
    if (past.size() > most) past.pop_front();
  }
}

std::string Dashboard::Impl::history() const {
  std::string out = "{\"view\":\"history\",\"samples\":[";
  for (const std::string& sample : past) (out += out.back() == '[' ? "" : ",") += sample;
  return out + "]}";
}

}  // namespace tilewise::dashboard

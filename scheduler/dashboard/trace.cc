// What workers remember, as columns for the page.
#include "views.h"

#include <tilewise/base/text.h>

#include <algorithm>
#include <map>

namespace tilewise::dashboard {
namespace {

// Numbers of names, in the order of their first use.
template <class Key> class Numbers {
 public:
  template <class Fn> std::uint32_t operator()(const Key& key, Fn&& fresh) {
    const auto [it, added] = index_.emplace(key, static_cast<std::uint32_t>(index_.size()));
    if (added) fresh();
    return it->second;
  }

 private:
  std::map<Key, std::uint32_t> index_;
};

}  // namespace

json::object to_json(const std::vector<msg::TraceReply>& replies) {
  enum Column {
    kFamily,
    kDevice,
    kStream,
    kStart,
    kTook,
    kOp,
    kPoint,
    kKind,
    kLane,
    kPeer,
    kBytes,
    kUser,
    kColumns
  };
  static constexpr const char* kTitles[] = {"family", "device", "stream", "start", "took",  "op",
                                            "point",  "kind",   "lane",   "peer",  "bytes", "user"};
  json::array names, columns[kColumns], since;
  Numbers<std::string> families;
  Numbers<std::uint64_t> ops;
  json::array op_ids, op_graphs, op_families;
  std::size_t records = 0;
  std::uint64_t lost = 0, cut = 0;
  std::int64_t origin = 0, now = 0;
  for (const msg::TraceReply& reply : replies) {
    lost += reply.lost;
    cut += reply.cut;
    now = std::max(now, reply.now_ns);
    for (const msg::TracedStep& step : reply.steps) {
      if (records++ == 0 || step.start_ns < origin) origin = step.start_ns;
    }
  }
  for (json::array& column : columns) column.reserve(records);
  for (const msg::TraceReply& reply : replies) {
    std::vector<std::uint32_t> family;
    for (const std::string& name : reply.families) {
      const std::string known = json::utf8(name);
      family.push_back(families(known, [&] { names.push_back(json::value(known)); }));
    }
    std::map<DeviceId, bool> devices;
    for (const msg::TracedStep& step : reply.steps) {
      const bool ran = step.kind == msg::TraceKind::kStep;
      const std::int64_t kind = ran && step.family < family.size() ? std::int64_t{family[step.family]} : -1;
      const auto number = [&](OpId id, std::int64_t of) {
        return ops(id.value, [&] {
          op_ids.push_back(json::value(json::id_text(id.value)));
          op_graphs.push_back(json::value(json::id_text(step.graph.value)));
          op_families.push_back(of);
        });
      };
      devices[step.device] = true;
      columns[kFamily].push_back(kind);
      columns[kDevice].push_back(step.device.value);
      columns[kStream].push_back(step.stream);
      columns[kStart].push_back(step.start_ns - origin);
      columns[kTook].push_back(step.end_ns - step.start_ns);
      columns[kOp].push_back(number(step.op, kind));
      columns[kPoint].push_back(step.point);
      columns[kKind].push_back(static_cast<int>(step.kind));
      const bool moved = step.kind == msg::TraceKind::kTransfer;
      columns[kLane].push_back(moved ? static_cast<int>(step.lane) : -1);
      columns[kPeer].push_back(step.peer.value);
      columns[kBytes].push_back(step.bytes);
      columns[kUser].push_back(moved ? number(step.user, -1) : 0);
    }
    // Before this moment these devices' records are gone.
    if (reply.lost > 0)
      for (const auto& [device, there] : devices)
        since.push_back(json::array{device.value, reply.since_ns - origin});
  }
  json::array lanes, kinds;
  for (int i = 0; i < msg::kLaneCount; ++i) lanes.push_back(json::value(msg::name_of(msg::Lane(i))));
  for (int i = 0; i < msg::kTraceKindCount; ++i)
    kinds.push_back(json::value(msg::name_of(msg::TraceKind(i))));
  json::object out{{"view", "trace"},
                   {"now", now - origin},
                   {"lost", lost},
                   {"cut", cut},
                   {"since", std::move(since)},
                   {"families", std::move(names)},
                   {"lanes", std::move(lanes)},
                   {"kinds", std::move(kinds)},
                   {"ops", std::move(op_ids)},
                   {"op_graphs", std::move(op_graphs)},
                   {"op_families", std::move(op_families)}};
  for (int i = 0; i < kColumns; ++i) out[kTitles[i]] = std::move(columns[i]);
  return out;
}

}  // namespace tilewise::dashboard

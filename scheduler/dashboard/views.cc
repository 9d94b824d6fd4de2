#include "views.h"

#include <algorithm>

namespace tilewise::dashboard {

using json::array;
using json::id_text;
using json::object;
using json::utf8;
using json::value;

namespace {

value seconds(TimeNs t) { return t < 0 ? value(nullptr) : value(static_cast<double>(t) * 1e-9); }

template <class List, class Fn> array list(const List& items, Fn&& each) {
  array out;
  out.reserve(items.size());
  for (const auto& item : items) out.push_back(each(item));
  return out;
}

value outcome(const msg::Outcome& o) {
  if (o.ok()) return nullptr;
  return object{{"code", name_of(o.code)}, {"message", utf8(o.message)}};
}

object group(const scheduler::OpGroup& g) {
  return {{"kind", ir::name_of(g.kind)}, {"label", utf8(g.label)}, {"ops", g.ops},
          {"ops_done", g.ops_done},      {"tasks", g.tasks},       {"done", g.done},
          {"failed", g.failed}};
}

object summary(const scheduler::GraphSummary& g) {
  const char* state = g.running                          ? "running"
                      : g.cause.ok()                     ? "done"
                      : g.cause.code == Errc::kCancelled ? "cancelled"
                                                         : "failed";
  return {{"id", id_text(g.id.value)},
          {"session", g.session.value},
          {"client", utf8(g.client)},
          {"request", g.request},
          {"priority", g.priority},
          {"state", state},
          {"tasks", g.tasks},
          {"done", g.done},
          {"failed", g.failed},
          {"ops", g.ops},
          {"ops_open", g.ops_open},
          {"submitted", seconds(g.submitted)},
          {"ended", seconds(g.ended)},
          {"cause", outcome(g.cause)},
          {"affected", list(g.affected, [](const std::string& op) { return value(utf8(op)); })},
          {"affected_count", g.affected_count},
          {"groups", list(g.groups, group)}};
}

array shares(const std::vector<scheduler::ShareView>& all) {
  return list(all, [](const scheduler::ShareView& s) {
    return array{s.device.value, s.owned, s.completed};  // device, tasks that are its own, tasks completed
  });
}

template <class T> array numbers(const T& all) {
  array out;
  out.reserve(all.size());
  for (const auto n : all) out.push_back(n);
  return out;
}

object op(const scheduler::OpView& o) {
  return {
      {"id", id_text(o.id.value)},
      {"position", o.position},
      {"kind", ir::name_of(o.kind)},
      {"label", utf8(o.label)},
      {"fused", o.fused},
      {"inputs", numbers(o.inputs)},
      {"reads_earlier", o.reads_earlier},
      {"tasks", o.tasks},
      {"done", o.done},
      {"failed", o.failed},
      {"bytes", o.bytes},
      {"finished", o.finished},
      {"began", seconds(o.began)},
      {"ended", seconds(o.ended)},
      {"predicted_s", o.predicted_s},
      {"why", utf8(o.why)},
      {"rejected",
       list(
           o.rejected,
           [](const scheduler::RejectedView& r) {
             return object{{"policy", utf8(r.why)}, {"placement", utf8(r.placement)}, {"seconds", r.seconds}};
           })},
      {"busy_s", o.busy_s},
      {"busiest_s", o.busiest_s},
      {"bytes_moved", o.bytes_moved},
      {"shares", shares(o.shares)}};
}

object array_object(const scheduler::ArrayView& a) {
  return {{"id", id_text(a.id.value)},
          {"session", a.session.value},
          {"client", utf8(a.client)},
          {"number", a.number},
          {"held", a.held},
          {"dtype", ir::name_of(a.dtype)},
          {"shape", numbers(a.grid.shape())},
          {"grid", ir::to_string(a.grid)},
          {"counts", numbers(a.grid.counts())},
          {"bytes", a.bytes},
          {"blocks", a.blocks},
          {"made", a.made},
          {"open_users", a.open_users},
          {"graph", id_text(a.graph.value)},
          {"op", id_text(a.producer.value)},
          {"position", a.position},
          {"kind", ir::name_of(a.kind)},
          {"label", utf8(a.label)},
          {"placement", utf8(a.placement)},
          {"copies", a.copies},
          {"lacking", a.lacking},
          {"shares", shares(a.shares)},
          {"failed", outcome(a.failed)}};
}

const char* role_of(msg::Role role) {
  return role == msg::Role::kWorker ? "worker" : role == msg::Role::kClient ? "client" : "tool";
}

array devices(const msg::StatusReply& status) {
  array out;
  std::size_t next = 0;  // stats come in the order of the workers' devices
  for (const msg::PeerInfo& peer : status.peers) {
    if (peer.role != msg::Role::kWorker) continue;
    for (std::size_t i = 0; i < peer.devices.size() && next < status.devices.size(); ++i, ++next) {
      const msg::DeviceStats& d = status.devices[next];
      const msg::DeviceDesc& about = peer.descriptions[i];
      out.push_back(object{{"id", peer.devices[i].value},
                           {"name", utf8(about.name)},
                           {"worker", peer.id.value},
                           {"kind", about.kind == 0 ? "host" : "cuda"},
                           {"model", utf8(about.model)},
                           {"class", utf8(about.numeric_class)},
                           {"gpu", utf8(about.gpu)},
                           {"streams", about.streams},
                           {"memory", about.memory_bytes},
                           {"used", d.bytes_used},
                           {"peak", d.bytes_peak},
                           {"resident", d.bytes_resident},
                           {"spilled", d.spilled_bytes},
                           {"spill_limit", about.spill_bytes},
                           {"disk_written", d.disk_written},
                           {"disk_read", d.disk_read},
                           {"pinned", d.pinned_bytes},
                           {"pinned_limit", about.pinned_bytes},
                           {"pinned_written", d.pinned_written},
                           {"pinned_read", d.pinned_read},
                           {"lodged", d.lodged_bytes},
                           {"lodged_written", d.lodged_written},
                           {"lodged_read", d.lodged_read},
                           {"guests", d.guest_bytes},
                           {"relocated", d.relocated},
                           {"disk_taken", d.disk_taken},
                           {"blocks_written", d.blocks_written},
                           {"blocks_read_back", d.blocks_read_back},
                           {"steps", d.steps_run},
                           {"busy_s", static_cast<double>(d.busy_ns) * 1e-9}});
    }
  }
  return out;
}

}  // namespace

json::object to_json(const scheduler::Overview& o, const std::vector<Warning>& found) {
  const msg::StatusReply& s = o.status;
  return {{"view", "overview"},
          {"now", seconds(o.now)},
          {"term", s.term},
          {"totals", object{{"graphs_running", o.running},
                            {"graphs_done", s.graphs_done},
                            {"graphs_failed", s.graphs_failed},
                            {"tasks_done", s.tasks_done},
                            {"arrays", s.arrays_live}}},
          {"peers", list(s.peers,
                         [](const msg::PeerInfo& p) {
                           return object{{"id", p.id.value},
                                         {"role", role_of(p.role)},
                                         {"name", utf8(p.name)},
                                         {"host", utf8(p.host_id)},
                                         {"devices", p.devices.size()}};
                         })},
          {"devices", devices(s)},
          {"lanes", list(s.lanes,
                         [](const auto& entry) {
                           return object{{"worker", entry.first.value},
                                         {"lane", msg::name_of(entry.second.lane)},
                                         {"transfers", entry.second.transfers},
                                         {"bytes", entry.second.bytes},
                                         {"failed", entry.second.failed}};
                         })},
          {"graphs", list(o.graphs, summary)},
          {"sessions", list(o.sessions,
                            [](const scheduler::SessionView& v) {
                              return object{{"id", v.id.value},
                                            {"client", utf8(v.client)},
                                            {"peer", v.peer.value},
                                            {"held_arrays", v.held_arrays},
                                            {"held_bytes", v.counted ? value(v.held_bytes) : value(nullptr)},
                                            {"running", v.running}};
                            })},
          {"stuck", list(o.stuck,
                         [](const msg::Stuck& v) {
                           return object{{"device", v.device.value},
                                         {"graph", id_text(v.graph.value)},
                                         {"needed", v.bytes_needed},
                                         {"available", v.bytes_available}};
                         })},
          {"lost", list(o.lost,
                        [](const scheduler::LostPeer& v) {
                          return object{{"id", v.id.value},     {"role", role_of(v.role)},
                                        {"name", utf8(v.name)}, {"at", seconds(v.at)},
                                        {"drained", v.drained}, {"stopped", v.stopped},
                                        {"bytes", v.bytes}};
                        })},
          {"draining", list(o.draining,
                            [](const msg::DrainReply& v) {
                              return object{{"worker", v.worker.value},     {"state", name_of(v.state)},
                                            {"why", utf8(v.why)},           {"tasks_left", v.tasks_left},
                                            {"blocks_left", v.blocks_left}, {"bytes", v.bytes}};
                            })},
          {"recovered", o.recovered},
          {"lineage", o.lineage},
          {"anchors", o.anchors},
          {"checkpoints", o.checkpoints},
          {"checkpoints_failed", o.checkpoints_failed},
          {"warnings", list(found, [](const Warning& w) {
             return object{
                 {"serious", w.serious}, {"code", w.code}, {"what", utf8(w.what)}, {"to_do", utf8(w.to_do)}};
           })}};
}

json::object to_json(const scheduler::GraphView& g) {
  return {{"view", "graph"},
          {"now", seconds(g.now)},
          {"summary", summary(g.summary)},
          {"source", list(g.source,
                          [](const scheduler::SourceOp& s) {
                            return object{{"kind", ir::name_of(s.kind)},
                                          {"label", utf8(s.label)},
                                          {"inputs", numbers(s.inputs)}};
                          })},
          {"source_count", g.source_count},
          {"passes", list(g.passes,
                          [](const scheduler::PassCount& p) {
                            return object{{"name", utf8(p.name)}, {"ops", p.ops}};
                          })},
          {"ops", list(g.ops, op)},
          {"peaks", list(g.peaks,
                         [](const scheduler::DevicePeak& p) {
                           return array{p.device.value, p.bytes, p.before};
                         })},
          {"alone", g.alone},
          {"forgotten", g.forgotten}};
}

json::object to_json(const scheduler::ArrayList& a) {
  return {{"view", "arrays"},
          {"live", a.live},
          {"looked_at", a.listed_of},
          {"arrays", list(a.arrays, array_object)}};
}

namespace {

object link_class(const scheduler::LinkClassView& c) {
  static constexpr const char* kKinds[] = {"host", "cuda"};
  return {{"state", c.state},
          {"from_host", utf8(c.from)},
          {"to_host", utf8(c.to)},
          {"from_kind", kKinds[c.from_kind & 1]},
          {"to_kind", kKinds[c.to_kind & 1]},
          {"inside", c.inside},
          {"from", c.from_device.value},
          {"to", c.to_device.value},
          {"at", seconds(c.at)},
          {"mapped", c.last.mapped},
          {"sizes", list(c.last.sizes,
                         [](const msg::ProbedSize& size) {
                           return object{{"bytes", size.bytes},
                                         {"transfers", size.transfers},
                                         {"seconds", static_cast<double>(size.took_ns) * 1e-9},
                                         {"lane", msg::name_of(size.lane)}};
                         })},
          {"why", utf8(c.last.why)},
          {"bytes_per_s", c.bytes_per_s},
          {"latency_s", c.latency_s}};
}

}  // namespace

json::object to_json(const scheduler::LinkList& all) {
  return {{"view", "links"},
          {"count", all.count},
          {"links", list(all.links,
                         [](const scheduler::LinkView& l) {
                           return object{{"from", l.stats.from.value},
                                         {"to", l.stats.to.value},
                                         {"lane", msg::name_of(l.stats.lane)},
                                         {"transfers", l.stats.transfers},
                                         {"bytes", l.stats.bytes},
                                         {"busy_s", static_cast<double>(l.stats.busy_ns) * 1e-9},
                                         {"limit_bytes_per_s", l.limit_bytes_per_s},
                                         {"latency_s", l.latency_s}};
                         })},
          {"class_count", all.class_count},
          {"classes", list(all.classes, link_class)}};
}

json::object to_json(const std::vector<msg::BlocksReply>& replies) {
  array copies;
  for (const msg::BlocksReply& reply : replies) {
    for (const msg::BlockCopy& c : reply.copies) {
      copies.push_back(object{{"block", c.block},
                              {"device", c.device.value},
                              {"state", msg::name_of(c.state)},
                              {"owned", c.owned},
                              {"bytes", c.bytes},
                              {"from", c.from.value}});
    }
  }
  return {{"view", "blocks"}, {"copies", std::move(copies)}};
}

json::object to_json(const scheduler::ArrayDetail& a, const ir::Index& at) {
  const ir::Shape counts = a.array.grid.counts();
  const int rank = a.array.grid.rank();
  ir::Index from(static_cast<std::size_t>(rank), 0);
  for (int d = 0; d < rank && d < static_cast<int>(at.size()); ++d)
    from[d] = std::clamp<std::int64_t>(at[d], 0, std::max<std::int64_t>(0, counts[d] - 1));
  const std::int64_t rows = rank >= 2 ? std::min(kWindow, counts[rank - 2] - from[rank - 2]) : 1;
  const std::int64_t columns = rank >= 1 ? std::min(kWindow, counts[rank - 1] - from[rank - 1]) : 1;
  array owners;
  const bool drawn = a.array.blocks > 0 && a.placement.verify(counts).has_value();
  for (std::int64_t r = 0; drawn && r < rows; ++r) {
    array row;
    for (std::int64_t c = 0; c < columns; ++c) {
      ir::Index block = from;
      if (rank >= 2) block[rank - 2] += r;
      if (rank >= 1) block[rank - 1] += c;
      row.push_back(a.placement.owner(block).value);
    }
    owners.push_back(std::move(row));
  }
  return {{"view", "array"},
          {"array", array_object(a.array)},
          {"from", numbers(from)},
          {"owners", std::move(owners)},
          {"producer", op(a.producer)},
          {"program", utf8(a.program)},
          {"readers", list(a.readers, op)}};
}

json::object to_json(const msg::Explanation& e) {
  if (!e.outcome.ok()) return {{"view", "explain"}, {"refused", outcome(e.outcome)}};
  return {{"view", "explain"},
          {"refused", nullptr},
          {"simulated", e.simulated},
          {"tasks", e.tasks},
          {"steps", e.steps},
          {"flops", e.flops},
          {"seconds", e.seconds},
          {"bound_s", e.bound_s},
          {"op_count", e.op_count},
          {"ops", list(e.ops,
                       [](const msg::OpAccount& o) {
                         return object{{"op", utf8(o.op)},
                                       {"tasks", o.tasks},
                                       {"steps", o.steps},
                                       {"flops", o.flops},
                                       {"bytes_written", o.bytes_written},
                                       {"bytes_moved", o.bytes_moved},
                                       {"begin_s", o.begin_s},
                                       {"end_s", o.end_s},
                                       {"busy_s", o.busy_s},
                                       {"critical_s", o.critical_s},
                                       {"choices", list(o.choices, [](const msg::ChoiceAccount& c) {
                                          return object{{"policy", utf8(c.policy)},
                                                        {"placement", utf8(c.placement)},
                                                        {"seconds", c.seconds}};
                                        })}};
                       })},
          {"devices", list(e.devices,
                           [](const msg::DeviceAccount& d) {
                             return object{{"device", d.device.value}, {"tasks", d.tasks},
                                           {"before", d.bytes_before}, {"peak", d.bytes_peak},
                                           {"after", d.bytes_after},   {"memory", d.bytes_memory},
                                           {"busy_s", d.busy_s}};
                           })},
          {"links", list(e.links,
                         [](const msg::LinkAccount& l) {
                           return object{{"from", l.from.value}, {"to", l.to.value}, {"mapped", l.mapped},
                                         {"blocks", l.blocks},   {"bytes", l.bytes}, {"busy_s", l.busy_s}};
                         })},
          {"critical", list(e.critical, [](const msg::CriticalAccount& c) {
             return object{
                 {"op", c.op}, {"device", c.device.value}, {"what", utf8(c.what)}, {"seconds", c.seconds}};
           })}};
}

json::object to_json(const std::vector<std::shared_ptr<const LogLine>>& lines) {
  static constexpr const char* kLevels[] = {"debug", "info", "warning", "error"};
  return {{"view", "log"}, {"lines", list(lines, [](const std::shared_ptr<const LogLine>& l) {
                              object fields;
                              for (const auto& [key, text] : l->fields) fields[utf8(key)] = utf8(text);
                              return object{{"number", l->number},
                                            {"wall_ms", l->wall_ms},
                                            {"level", kLevels[std::clamp(l->level, 0, 3)]},
                                            {"event", utf8(l->event)},
                                            {"fields", std::move(fields)}};
                            })}};
}

}  // namespace tilewise::dashboard

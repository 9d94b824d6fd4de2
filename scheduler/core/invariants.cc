// Every index checked against every other, and a digest of everything.
#include "draft.h"
#include "graphs.h"
#include "handlers.h"

#include <tilewise/base/digest.h>
#include <tilewise/ir/op_digest.h>
#include <tilewise/plan/plan.h>

#include <algorithm>

namespace tilewise::scheduler {
namespace {

void check_probing(const State& s) {
  using Step = LinkProbing::Step;
  std::map<Step, std::size_t> steps;
  for (const auto& [links, known] : s.probing.classes) ++steps[known.step];
  TW_CHECK(steps[Step::kDue] == s.probing.due.size(), "links to be measured are listed once each");
  TW_CHECK(steps[Step::kUnderWay] == s.probing.under_way.size(), "links are measured once each");
  const std::set<place::LinkClass> due(s.probing.due.begin(), s.probing.due.end());
  TW_CHECK(due.size() == s.probing.due.size(), "a link is to be measured twice");
  for (const place::LinkClass& links : due)
    TW_CHECK(s.probing.classes.at(links).step == Step::kDue, "a link that is not due is to be measured");
  std::set<std::uint32_t> busy;
  for (const auto& [nonce, probe] : s.probing.under_way) {
    TW_CHECK(s.probing.classes.at(probe.links).step == Step::kUnderWay && nonce < s.next_nonce,
             "a link is measured that nobody wants measured");
    TW_CHECK(s.peer(probe.sender).alive && s.peer(probe.receiver).alive, "a link to the dead is measured");
    const std::set<std::uint32_t> hosts{probe.links.from.host, probe.links.to.host};
    for (const std::uint32_t host : hosts)
      TW_CHECK(busy.insert(host).second, "two links of one host are measured at once");
  }
}

void check_peers(const State& s) {
  std::size_t alive = 0;
  std::map<std::string, std::int32_t> offered;
  for (const Peer& peer : s.peers.all()) {
    const WorkerId id = peer.info.id;
    TW_CHECK(&s.peer(id) == &peer && id.value < s.next_peer, "peers are found by their ids");
    const auto departed = std::count(s.departed.begin(), s.departed.end(), id);
    TW_CHECK(departed == (!peer.alive && peer.info.role == msg::Role::kClient ? 1 : 0),
             "clients that have left are listed once; of tools nothing is left");
    TW_CHECK(std::binary_search(s.live.begin(), s.live.end(), id) == peer.alive,
             "live lists exactly the living");
    TW_CHECK(peer.log.empty() || !peer.alive || s.lazy_at != kNever,
             "what is left of a log has a time to go");
    TW_CHECK(std::count(s.with_log.begin(), s.with_log.end(), id) == (peer.log.empty() ? 0 : 1),
             "what is left of logs is listed once");
    TW_CHECK(!peer.log_urgent, "urgent log entries are sent in the step that makes them");
    TW_CHECK(peer.log_applied < peer.log_next, "a peer cannot apply what was not sent");
    const auto link = s.links.find(peer.conn);
    const bool linked = link != s.links.end() && link->second.peer == id;
    TW_CHECK(linked == peer.alive || (peer.left && !peer.alive),
             "a peer lives as long as its link, unless it was to leave");
    TW_CHECK(!s.leaving.contains(id) || (peer.alive && s.is_worker(id)), "only a living worker may leave");
    for (const DeviceId device : peer.info.devices) {
      TW_CHECK(s.device(device) != nullptr && s.device(device)->peer == id &&
                   s.device(device)->alive == peer.alive,
               "a device lives as long as its peer");
    }
    for (const msg::PluginDesc& plugin : peer.plugins) ++offered[plugin.kernel];
    TW_CHECK(peer.alive || peer.plugins.empty(), "the dead offer nothing");
    alive += peer.alive;
  }
  TW_CHECK(alive == s.live.size() && std::is_sorted(s.live.begin(), s.live.end()),
           "live peers are counted once");
  for (const auto& [conn, link] : s.links) {
    TW_CHECK(
        !link.peer || (s.peer(link.peer).conn == conn && (s.peer(link.peer).alive || s.peer(link.peer).left)),
        "a link knows its peer");
    TW_CHECK(!s.closed.contains(conn), "a link is open or closed");
  }
  TW_CHECK(offered.size() == s.plugins.size(), "plug-ins are those of living workers");
  for (const auto& [name, plugin] : s.plugins)
    TW_CHECK(offered[name] == plugin.workers, "plug-ins are counted");
  for (const auto& [device, report] : s.stuck) {
    TW_CHECK(s.device(device) != nullptr && s.device(device)->alive && report.device == device,
             "the dead are not stuck");
  }
}

void check_sessions(const State& s) {
  for (const Session& session : s.sessions.all()) {
    TW_CHECK(&s.session(session.id) == &session && s.peer(session.peer).session == session.id,
             "a session is found by its id and knows its peer");
    TW_CHECK(session.alive == s.peer(session.peer).alive, "a session lives as long as its client");
    TW_CHECK(session.alive || (session.arrays.empty() && session.running.empty()), "the dead hold nothing");
    for (const auto& [number, id] : session.arrays) {
      const ArrayRecord* array = s.arrays.find(id);
      const Holder holder{session.id, number};
      TW_CHECK(array != nullptr && array->held &&
                   std::count(array->holders.begin(), array->holders.end(), holder) == 1,
               "a session's numbers name arrays it holds");
    }
    TW_CHECK(session.postponed.empty() != s.postponing.contains(session.id) &&
                 (session.postponed.empty() || session.alive),
             "only the living wait");
    TW_CHECK(std::is_sorted(session.running.begin(), session.running.end()), "running graphs rise");
    for (const GraphId id : session.running) {
      const GraphRecord* graph = s.graphs.find(id);
      TW_CHECK(graph != nullptr && graph->running && request_of(*graph, session.id) != 0,
               "running graphs run");
    }
    for (const KeptProgram& kept : session.programs) {
      TW_CHECK((kept.request != 0) == (kept.program.ops != nullptr),
               "a program is kept by the request that brought it");
      TW_CHECK(kept.request <= session.highest_request && (session.alive || kept.request == 0),
               "a session keeps what it has sent");
    }
    std::uint64_t last = 0;
    for (const Answer& answer : session.answers) {
      TW_CHECK(answer.request > last && answer.request <= session.highest_request, "answers rise");
      last = answer.request;
    }
  }
}

void check_graphs(const State& s) {
  std::int64_t running = 0;
  s.graphs.for_each([&](const GraphRecord& graph) {
    TW_CHECK(!graph.session || s.sessions.find(graph.session) != nullptr, "a graph's session is known");
    std::int32_t left = 0, open = 0, planned = 0, fetches = 0;
    std::int64_t done = 0;
    for (const OpId id : graph.ops) {
      const OpRecord* op = s.ops.find(id);
      if (op == nullptr) continue;
      TW_CHECK(op->graph == graph.id, "an op belongs to the graph that lists it");
      ++left;
      open += !op->finished;
      planned += !op->finished && !op->of && !graph.own && op->op.kind != ir::OpKind::kKeep;
      fetches += !op->finished && op->op.kind == ir::OpKind::kFetch;
      done += op->completed;
    }
    const bool for_copies = graph.running && !graph.copying.empty();
    TW_CHECK(left == graph.ops_left && (left > 0 || for_copies || !graph.unacknowledged.empty()),
             "a graph is kept while it has ops");
    TW_CHECK(std::count(s.owing.begin(), s.owing.end(), graph.id) == (for_copies ? 1 : 0),
             "graphs that owe copies are listed");
    TW_CHECK(graph.running || graph.copying.empty(), "only a graph that runs owes copies");
    TW_CHECK(open == graph.ops_open &&
                 (graph.running ? open > 0 || for_copies || s.recovery.pending : planned == 0),
             "a graph runs while an op is open");
    TW_CHECK(fetches == graph.fetches_open, "open fetches are counted");
    TW_CHECK(done <= graph.done && graph.done <= graph.total && graph.failed <= graph.done,
             "tasks are counted once");
    TW_CHECK(!graph.cancelled || !graph.running, "a cancelled graph has ended");
    for_each_asker(graph, [&](SessionId id, std::uint64_t) {
      const auto& list = s.session(id).running;
      TW_CHECK(std::binary_search(list.begin(), list.end(), graph.id) == graph.running,
               "its sessions know that it runs");
    });
    const auto count = [&](const std::vector<GraphId>& in) {
      return std::count(in.begin(), in.end(), graph.id);
    };
    TW_CHECK(count(s.cancelling) == (graph.unacknowledged.empty() ? 0 : 1),
             "cancellations are waited for once");
    TW_CHECK(count(s.dirty) == (graph.dirty ? 1 : 0), "progress is told once");
    for (const auto& [worker, entry] : graph.unacknowledged) {
      TW_CHECK(s.peer(worker).alive && entry > s.peer(worker).log_applied && entry < s.peer(worker).log_next,
               "only the living still have to acknowledge");
    }
    running += graph.running;
  });
  TW_CHECK(running == s.running, "running graphs are counted");
}

bool reads(const OpRecord& op, ArrayId array) {
  return std::any_of(op.op.operands.begin(), op.op.operands.end(),
                     [&](const ir::Operand& o) { return o.array == array.value; });
}

// A copy that is kept, or is on its way.
bool copy_counts(const State& s, const OpRecord& keep) {
  const ArrayRecord* array = s.arrays.find(ArrayId{keep.op.operands[0].array});
  return array != nullptr && array->held &&
         std::find(array->keeps.begin(), array->keeps.end(), keep.id) != array->keeps.end();
}

void check_ops(const State& s) {
  std::map<ArrayId, std::int32_t> open_users, readers;
  std::map<DeviceId, std::int64_t> load;
  std::size_t outputs = 0;
  s.ops.for_each([&](const OpRecord& op) {
    const GraphRecord* graph = s.graphs.find(op.graph);
    TW_CHECK(graph != nullptr, "an op has a graph");
    for (const DeviceId device : op.placement.devices())
      TW_CHECK(s.device(device) != nullptr, "an op is placed on devices that are known");
    if (const auto* endpoint = std::get_if<ir::FetchAttrs>(&op.op.attrs))
      TW_CHECK(!endpoint->to || s.device(endpoint->to) != nullptr, "an op names an endpoint that is known");
    const bool keep = op.op.kind == ir::OpKind::kKeep;
    TW_CHECK(op.finished || graph->running || op.of || keep || graph->own,
             "an open op keeps its graph running");
    if (op.of) {
      const OpRecord* head = s.ops.find(op.of);
      TW_CHECK(head != nullptr && !head->of && !head->retired,
               "a layer lies on a planned op that workers know");
      TW_CHECK(std::binary_search(head->layers.begin(), head->layers.end(), op.id), "an op knows its layers");
    }
    TW_CHECK(op.retired == s.lineage.contains(op.id), "lineage is what was retired");
    TW_CHECK(!op.retired || (op.finished && op.layers.empty() && op.forgotten), "what is retired is over");
    std::int64_t owned = 0, completed = 0, failed = 0;
    for (std::size_t i = 0; i < op.shares.size(); ++i) {
      const OpShare& share = op.shares[i];
      TW_CHECK(i == 0 || op.shares[i - 1].device < share.device, "shares are sorted");
      TW_CHECK(0 <= share.failed && share.failed <= share.completed && share.completed <= share.owned,
               "shares count");
      owned += share.owned, completed += share.completed, failed += share.failed;
      const auto bytes = static_cast<__int128>(op.load_bytes) * share.owned / op.points;
      load[share.device] += static_cast<std::int64_t>(bytes);
    }
    const std::int64_t blocks = op.op.space.block_count();
    TW_CHECK(keep || op.load_bytes <= share_bytes(output_bytes(op.op), op.points, blocks) + blocks,
             "what an op makes no more burdens nobody");
    const bool endpoint = op.op.kind == ir::OpKind::kFetch || op.op.kind == ir::OpKind::kProvide;
    TW_CHECK(endpoint ? op.shares.empty() : owned == op.points, "every point is owned once");
    TW_CHECK(completed == op.completed && failed == op.failed, "an op sums its shares");
    TW_CHECK(endpoint || op.completed < op.points || op.finished, "an op with all points done is finished");
    for (const ir::Operand& operand : op.op.operands) {
      const ArrayId id{operand.array};
      TW_CHECK(op.finished || s.arrays.find(id) != nullptr, "an open op's operands are kept");
    }
    if (!op.cut) {
      std::set<std::uint64_t> distinct;
      for (const ir::Operand& operand : op.op.operands) distinct.insert(operand.array);
      for (const std::uint64_t array : distinct) ++readers[ArrayId{array}];
    }
    if (!op.finished) {
      std::set<std::uint64_t> distinct;
      for (const ir::Operand& operand : op.op.operands) distinct.insert(operand.array);
      for (const std::uint64_t array : distinct) ++open_users[ArrayId{array}];
    }
    if (op.of) return;
    bool wanted = keep && copy_counts(s, op);
    for (std::size_t i = 0; i < op.op.outputs.size(); ++i, ++outputs) {
      const ArrayRecord* array = s.arrays.find(ArrayId{op.op.outputs[i].array});
      TW_CHECK(array != nullptr && array->producer == op.id && array->output == i, "an op's outputs name it");
      wanted = wanted || array->held || array->open_users > 0;
    }
    TW_CHECK(wanted || !group_finished(s, op) || !graph->unacknowledged.empty() || op.retired ||
                 s.recovery.pending,
             "what nobody wants is forgotten");
    TW_CHECK(!op.retired || !wanted, "what is wanted is not forgotten");
  });
  TW_CHECK(outputs == s.arrays.size(), "every array has a producer");
  s.arrays.for_each([&](const ArrayRecord& array) {
    const auto it = open_users.find(array.id);
    TW_CHECK(array.open_users == (it == open_users.end() ? 0 : it->second), "open users are counted");
    TW_CHECK(array.readers == readers[array.id], "readers are counted");
    const OpRecord& producer = s.ops.at(array.producer);
    const GraphRecord* graph = s.graphs.find(producer.graph);
    const auto read = [&](const ir::OutputSpec& output) { return readers[ArrayId{output.array}] > 0; };
    TW_CHECK(std::any_of(producer.op.outputs.begin(), producer.op.outputs.end(), read) || !producer.retired ||
                 s.recovery.pending || !graph->unacknowledged.empty(),
             "lineage that nobody needs is dropped");
    TW_CHECK(!array.unnamed || (array.held && array.anchor), "only an anchor is held for nobody");
    TW_CHECK(array.held == (array.unnamed || !array.holders.empty()), "what is held has holders");
    TW_CHECK(!array.unnamed || array.holders.empty(), "what nobody names has no holders");
    for (std::size_t i = 0; i < array.holders.size(); ++i) {
      const auto& [holder, number] = array.holders[i];
      TW_CHECK(i == 0 || array.holders[i - 1].session < holder, "holders are sorted, each once");
      const auto named = s.session(holder).arrays.find(number);
      TW_CHECK(named != s.session(holder).arrays.end() && named->second == array.id,
               "its sessions know what they hold");
      TW_CHECK(request_of(*graph, holder) != 0, "who holds an array asked for it");
    }
    TW_CHECK(!array.anchor || array.copies > 1 || array.file != 0,
             "an anchor has a second copy or a file, or is to have one");
    TW_CHECK(!array.held || array.anchor ||
                 std::none_of(producer.op.outputs.begin(), producer.op.outputs.end(),
                              [&](const ir::OutputSpec& o) { return s.arrays.at(ArrayId{o.array}).anchor; }),
             "results of one op that are held are anchors together");
    TW_CHECK(array.file == 0 || (array.anchor && !array.unnamed),
             "what is on disk is an anchor, held by none but clients");
    TW_CHECK(s.copied.contains(array.id) == (array.held && array.copies > 1),
             "arrays with copies are listed");
    for (const OpId id : array.keeps) {
      const OpRecord* op = s.ops.find(id);
      TW_CHECK(op != nullptr && reads(*op, array.id), "an array knows the ops that keep copies of it");
    }
    for (const OpId id : array.fetches) {
      const OpRecord* op = s.ops.find(id);
      TW_CHECK(op != nullptr && !op->finished && reads(*op, array.id), "fetches wait for what they read");
      TW_CHECK(!deliverable(s, *op), "fetches end with their graph");
    }
  });
  for (const Device& device : s.devices.all()) {
    const auto it = load.find(device.id);
    TW_CHECK(device.load_bytes == (it == load.end() ? 0 : it->second), "load is that of live results");
  }
}

void check_gatherings(const State& s) {
  std::map<std::pair<SessionId, std::uint64_t>, int> waiting;
  for (const auto& [name, g] : s.gatherings) {
    TW_CHECK(!name.empty() && !g.parts.empty() && g.parts.size() < g.processes,
             "a complete array waits for nobody");
    std::set<SessionId> sessions;
    for (const Gathering::Part& part : g.parts) {
      TW_CHECK(sessions.insert(part.session).second, "a session announces an array once");
      TW_CHECK(!g.failed.ok() || s.session(part.session).alive, "the dead announce nothing");
      TW_CHECK(g.failed.ok() || part.pieces.empty(), "what failed keeps no pieces");
      if (g.failed.ok()) ++waiting[{part.session, part.request}];
    }
  }
  for (const Session& session : s.sessions.all()) {
    for (const Answer& answer : session.answers) {
      const auto found = waiting.find({session.id, answer.request});
      TW_CHECK(answer.due == (found != waiting.end()), "who announced is answered once, or waits");
    }
  }
}

void mix(Digest& d, const msg::Outcome& outcome) {
  d.mix(static_cast<std::uint64_t>(outcome.code));
  d.mix(std::string_view(outcome.message));
}

void mix(Digest& d, const ir::Placement& placement) {
  if (const ir::RunMap* listed = placement.listed()) {
    for (const ir::Run& run : listed->runs())
      d.mix(static_cast<std::uint64_t>(run.first)), d.mix(static_cast<std::uint64_t>(run.count)),
          d.mix(run.device.value);
  }
  for (const ir::Piece& piece : placement.pieces()) {
    for (int i = 0; i < piece.box.rank(); ++i) {
      const auto at = static_cast<std::size_t>(i);
      d.mix(static_cast<std::uint64_t>(piece.box.lo[at]));
      d.mix(static_cast<std::uint64_t>(piece.box.hi[at]));
      d.mix(static_cast<std::uint64_t>(piece.rule.parts[at]) << 1 | piece.rule.cyclic[at]);
    }
    for (const DeviceId device : piece.rule.devices) d.mix(device.value);
    d.mix(static_cast<std::uint64_t>(piece.rule.copies));
  }
}

void mix(Digest& d, const Peer& peer) {
  d.mix(peer.black_box), d.mix(peer.last_words), d.mix(static_cast<std::uint64_t>(peer.lease_ns));
  for (const std::uint64_t x :
       {std::uint64_t{peer.info.id.value}, std::uint64_t{peer.conn.value}, std::uint64_t{peer.alive},
        std::uint64_t{peer.left}, std::uint64_t{peer.session.value}, peer.log_next + peer.log.size(),
        peer.log_applied, static_cast<std::uint64_t>(peer.info.role)}) {
    d.mix(x);
  }
  for (const std::string* text : {&peer.info.name, &peer.info.host_id, &peer.software_version}) {
    d.mix(std::string_view(*text));
  }
  for (const std::string& address : peer.info.addresses) d.mix(std::string_view(address));
  for (const msg::DeviceDesc& desc : peer.info.descriptions) d.mix(std::string_view(desc.name));
  for (const msg::PluginDesc& plugin : peer.plugins) d.mix(std::string_view(plugin.kernel));
  for (const msg::LaneStats& lane : peer.lanes) {
    d.mix(static_cast<std::uint64_t>(lane.transfers)), d.mix(static_cast<std::uint64_t>(lane.bytes));
  }
}

void mix(Digest& d, const Device& device) {
  d.mix(device.alive), d.mix(device.draining), d.mix(device.kind), d.mix(device.host);
  const msg::DeviceStats& stats = device.stats;
  for (const std::int64_t x :
       {device.memory_bytes, device.spill_bytes, device.pinned_bytes, device.load_bytes, stats.bytes_used,
        stats.bytes_peak, stats.bytes_resident, stats.steps_run, stats.busy_ns, stats.spilled_bytes,
        stats.disk_written, stats.disk_read, stats.pinned_bytes, stats.pinned_written, stats.pinned_read}) {
    d.mix(static_cast<std::uint64_t>(x));
  }
}

void mix(Digest& d, const Session& session) {
  d.mix(session.alive), d.mix(session.highest_request);
  for (const auto& [number, id] : session.arrays) d.mix(number), d.mix(id.value);
  for (const GraphId id : session.running) d.mix(id.value);
  for (const KeptProgram& kept : session.programs) {
    d.mix(kept.request);
    if (kept.request != 0) d.mix(kept.program.digest.value());
  }
  for (const Answer& answer : session.answers) {
    d.mix(answer.request), d.mix(answer.graph.value), d.mix(answer.done), d.mix(answer.due);
    mix(d, answer.reply.outcome), mix(d, answer.graph_done.outcome);
    for (const auto& [number, id] : answer.reply.arrays) d.mix(number), d.mix(id.value);
  }
}

void mix(Digest& d, const Undo& undo) {
  d.mix(std::string_view(undo.kernel)), d.mix(std::string_view(undo.params)), d.mix(undo.near.value);
}

void mix(Digest& d, const GraphRecord& graph) {
  for (const std::uint64_t x :
       {graph.id.value, std::uint64_t{graph.session.value}, graph.request,
        static_cast<std::uint64_t>(graph.priority), static_cast<std::uint64_t>(graph.ops_left),
        static_cast<std::uint64_t>(graph.ops_open), static_cast<std::uint64_t>(graph.done),
        static_cast<std::uint64_t>(graph.failed), static_cast<std::uint64_t>(graph.total),
        std::uint64_t{graph.running}, std::uint64_t{graph.delivered}, std::uint64_t{graph.cancelled},
        std::uint64_t{graph.dirty}, static_cast<std::uint64_t>(graph.told_at)}) {
    d.mix(x);
  }
  mix(d, graph.root_cause);
  for (const Asker& other : graph.others) d.mix(other.session.value), d.mix(other.request);
  for (const Undo& undo : graph.undo) mix(d, undo);
  for (const ArrayId id : graph.copying) d.mix(id.value);
  for (const OpId id : graph.ops) d.mix(id.value);
  for (const auto& [worker, entry] : graph.unacknowledged) d.mix(worker.value), d.mix(entry);
}

void mix(Digest& d, const OpRecord& op) {
  d.mix(op.id.value), d.mix(op.graph.value), d.mix(op.position), d.mix(op.finished), d.mix(op.of.value);
  d.mix(op.retired), d.mix(op.doomed), d.mix(op.moved), d.mix(op.moved_failed), d.mix(op.cut),
      d.mix(op.tried);
  d.mix(ir::digest(op.op, true));
  mix(d, op.placement);
  for (const OpShare& share : op.shares) {
    d.mix(share.device.value);
    for (const std::int64_t x : {share.owned, share.completed, share.failed})
      d.mix(static_cast<std::uint64_t>(x));
  }
}

void mix(Digest& d, const ArrayRecord& array) {
  d.mix(array.id.value), d.mix(array.producer.value), d.mix(array.session.value), d.mix(array.number),
      d.mix(array.held);
  for (const Holder& holder : array.holders) d.mix(holder.session.value), d.mix(holder.number);
  d.mix(static_cast<std::uint64_t>(array.open_users)), d.mix(array.was_read), d.mix(array.anchor),
      d.mix(array.unnamed), d.mix(array.copies), d.mix(array.lacking);
  d.mix(array.file);
  for (const OpId id : array.keeps) d.mix(id.value);
  for (const OpId id : array.fetches) d.mix(id.value);
  mix(d, array.failed);
}

void check_removals(const State& s) {
  TW_CHECK(s.removals.size() <= Removal::kMax + s.ops.size(), "more is to be removed than may be");
  for (const auto& [id, removal] : s.removals) {
    const GraphRecord* graph = s.graphs.find(id);
    TW_CHECK(graph == nullptr || !graph->running, "what a request has left is removed after its end");
    TW_CHECK(!removal.op || graph == nullptr || graph->unacknowledged.empty(),
             "nothing is removed before all workers are done with it");
    const auto& ended = s.checkpoints.ended;
    const OpRecord* op = s.ops.find(removal.op);
    TW_CHECK(!removal.op || (op != nullptr && !op->finished) ||
                 std::any_of(ended.begin(), ended.end(), [&](const auto& e) { return e.op == removal.op; }),
             "who removes something is at it");
    TW_CHECK(removal.askers.empty() || s.now < removal.tell_at,
             "nobody waits longer for a removal than he may");
    TW_CHECK(!removal.left.empty() && removal.tries < Removal::kTries, "what is removed is over");
  }
}

void check_checkpoints(const State& s) {
  const Checkpoints& c = s.checkpoints;
  TW_CHECK(c.files.size() <= Checkpoints::kMaxFiles, "more arrays are on disk than may be");
  std::size_t under_way = 0;
  for (const auto& [id, file] : c.files) {
    const ArrayRecord* array = s.arrays.find(file.array);
    TW_CHECK(array != nullptr && array->file == id, "a file and its array name each other");
    TW_CHECK(bool(file.op) == (file.step != Checkpoints::Step::kThere),
             "a file is there, or somebody is at it");
    const auto ended = [&](const Checkpoints::Ended& e) { return e.op == file.op; };
    const OpRecord* op = s.ops.find(file.op);
    TW_CHECK(
        !file.op || (op != nullptr && !op->finished) || std::any_of(c.ended.begin(), c.ended.end(), ended),
        "who writes a file is at it");
    under_way += bool(file.op);
    const OpRecord& head = s.ops.at(array->producer);
    TW_CHECK(head.cut == is_from_file(head), "what was cut for a file reads it");
    TW_CHECK(!head.cut || file.step == Checkpoints::Step::kThere, "nothing is cut before its file is there");
  }
  TW_CHECK(under_way <= Checkpoints::kMaxUnderWay, "more files are written at once than may be");
  const OpRecord* tending = s.ops.find(c.tending);
  TW_CHECK(!c.tending || (tending != nullptr && !tending->finished) || !c.ended.empty(),
           "somebody is at the folder");
  s.arrays.for_each([&](const ArrayRecord& array) {
    TW_CHECK(array.file == 0 || c.files.contains(array.file), "an array's file is known");
  });
  for (const WorkerId id : c.unseen)
    TW_CHECK(s.peer(id).alive && s.is_worker(id), "the living look at the folder");
}

}  // namespace

void check_invariants(const State& s) {
  TW_CHECK(s.plans.size() <= PlanCache::kMaxPlans && s.plans.ops() <= PlanCache::kMaxOps,
           "more plans are kept than may be");
  check_peers(s);
  check_sessions(s);
  check_graphs(s);
  check_ops(s);
  check_gatherings(s);
  check_probing(s);
  check_checkpoints(s);
  check_removals(s);
  TW_CHECK(s.recovery.pending || s.recovery.lost.empty(), "a loss was answered and is still looked for");
  TW_CHECK(s.blame.size() <= kMaxBlamed, "more points are blamed than may be");
  for (const auto& [task, deaths] : s.blame) {
    const OpRecord* op = s.ops.find(task.first);
    TW_CHECK(op != nullptr && !op->of, "a point is blamed that nobody can run again");
    TW_CHECK(!deaths.empty() && deaths.size() <= kMaxDeaths,
             "a point is blamed for no death, or for too many");
  }
}

std::uint64_t digest_of(const State& s) {
  Digest d;
  for (const std::uint64_t x :
       {s.next_array, s.next_op, s.next_graph, s.next_nonce, static_cast<std::uint64_t>(s.now),
        static_cast<std::uint64_t>(s.stuck_at), static_cast<std::uint64_t>(s.liveness_at),
        static_cast<std::uint64_t>(s.graphs_done), static_cast<std::uint64_t>(s.graphs_failed),
        static_cast<std::uint64_t>(s.tasks_done), static_cast<std::uint64_t>(s.running)}) {
    d.mix(x);
  }
  for (const auto& [conn, link] : s.links) {
    d.mix(conn.value), d.mix(link.peer.value);
    d.mix(static_cast<std::uint64_t>(link.heard)), d.mix(static_cast<std::uint64_t>(link.pinged));
    d.mix(static_cast<std::uint64_t>(link.away_until));
  }
  for (const Conn conn : s.closed) d.mix(conn.value);
  for (const Peer& peer : s.peers.all()) mix(d, peer);
  for (const Device& device : s.devices.all()) mix(d, device);
  for (const Session& session : s.sessions.all()) mix(d, session);
  for (const WorkerId id : s.departed) d.mix(id.value);
  d.mix(s.departed_credit), d.mix(s.next_peer), d.mix(s.next_device), d.mix(s.next_session);
  s.graphs.for_each([&](const GraphRecord& graph) { mix(d, graph); });
  s.ops.for_each([&](const OpRecord& op) { mix(d, op); });
  s.arrays.for_each([&](const ArrayRecord& array) { mix(d, array); });
  for (const auto& [name, plugin] : s.plugins) {
    d.mix(std::string_view(name)), d.mix(std::string_view(plugin.version)), d.mix(plugin.hash);
    d.mix(static_cast<std::uint64_t>(plugin.workers));
  }
  for (const auto& [host, number] : s.hosts) d.mix(std::string_view(host)), d.mix(number);
  s.plans.mix_into(d);
  d.mix(s.recovery.version), d.mix(s.recovery.settled), d.mix(s.recovery.pending);
  d.mix(s.recovery.leaver.value), d.mix(static_cast<std::uint64_t>(s.recovery.words_until)),
      d.mix(s.next_kept_plan);
  d.mix(s.recovery.move.head.value), d.mix(static_cast<std::uint64_t>(s.rebalance_at));
  for (const msg::Tail& tail : s.recovery.move.from)
    d.mix(tail.op.value), d.mix(tail.device.value), d.mix(static_cast<std::uint64_t>(tail.from));
  for (const auto& [id, watched] : s.watched) {
    d.mix(id.value), d.mix(static_cast<std::uint64_t>(watched.look_at)), d.mix(watched.moves);
    for (const auto& [device, seen] : watched.seen)
      d.mix(device.value), d.mix(static_cast<std::uint64_t>(seen.first_at)),
          d.mix(static_cast<std::uint64_t>(seen.done));
  }
  for (const auto& [id, leaving] : s.leaving) {
    d.mix(id.value), d.mix(static_cast<std::uint64_t>(leaving.step)), d.mix(leaving.stays);
    d.mix(leaving.round), d.mix(std::string_view(leaving.why));
    d.mix(static_cast<std::uint64_t>(leaving.news_at)), d.mix(static_cast<std::uint64_t>(leaving.again_at));
    for (const auto& [worker, left] : leaving.waiting)
      d.mix(worker.value), d.mix(static_cast<std::uint64_t>(left));
  }
  for (const WorkerId id : s.recovery.waiting) d.mix(id.value);
  for (const WorkerId id : s.recovery.clients) d.mix(id.value);
  d.mix(static_cast<std::uint64_t>(s.recovery.clients_until));
  for (const WorkerId id : s.recovery.unheard) d.mix(id.value);
  for (const WorkerId id : s.recovery.lost) d.mix(id.value);
  for (const auto& [task, deaths] : s.blame) {
    d.mix(task.first.value), d.mix(static_cast<std::uint64_t>(task.second));
    for (const Death& death : deaths) d.mix(death.worker.value), d.mix(std::string_view(death.how));
  }
  d.mix(static_cast<std::uint64_t>(s.workless_until));
  for (const SessionId id : s.postponing) d.mix(id.value), d.mix(s.session(id).postponed.size());
  for (const auto& [id, removal] : s.removals) {
    d.mix(id.value), d.mix(removal.op.value), d.mix(removal.tries), mix(d, removal.done.outcome);
    d.mix(static_cast<std::uint64_t>(removal.again_at)), d.mix(static_cast<std::uint64_t>(removal.tell_at));
    for (const Undo& undo : removal.left) mix(d, undo);
    for (const Asker& asker : removal.askers) d.mix(asker.session.value), d.mix(asker.request);
  }
  const Checkpoints& c = s.checkpoints;
  d.mix(c.next), d.mix(c.marker), d.mix(c.made), d.mix(c.due), d.mix(c.tending.value), d.mix(c.tender.value),
      d.mix(c.tends_before);
  for (const auto& [id, file] : c.files)
    d.mix(id), d.mix(file.array.value), d.mix(static_cast<std::uint64_t>(file.step)), d.mix(file.op.value);
  for (const WorkerId id : c.unseen) d.mix(id.value);
  for (const auto& [id, why] : c.without) d.mix(id.value), d.mix(std::string_view(why));
  for (const Checkpoints::Ended& ended : c.ended) d.mix(ended.op.value), d.mix(ended.ok);
  for (const auto& [name, g] : s.gatherings) {
    d.mix(std::string_view(name)), d.mix(static_cast<std::uint64_t>(g.dtype)), d.mix(g.processes);
    d.mix(std::string_view(ir::to_string(g.shape))), d.mix(static_cast<std::uint64_t>(g.until));
    mix(d, g.failed);
    for (const Gathering::Part& part : g.parts) {
      d.mix(part.session.value), d.mix(part.request), d.mix(part.array), d.mix(part.weight);
      for (const ir::Box& piece : part.pieces) d.mix(std::string_view(ir::to_string(piece)));
    }
  }
  const auto mix_links = [&](const place::LinkClass& links) {
    d.mix(links.from.host), d.mix(links.from.kind), d.mix(links.to.host), d.mix(links.to.kind),
        d.mix(links.inside);
  };
  for (const auto& [links, known] : s.probing.classes) {
    mix_links(links);
    d.mix(static_cast<std::uint64_t>(known.step)), d.mix(known.tries), d.mix(known.failures);
    d.mix(static_cast<std::uint64_t>(known.again_at)), d.mix(static_cast<std::uint64_t>(known.at));
    d.mix(known.from.value), d.mix(known.to.value), d.mix(known.last.mapped),
        d.mix(std::string_view(known.last.why));
    for (const msg::ProbedSize& size : known.last.sizes)
      d.mix(static_cast<std::uint64_t>(size.bytes)), d.mix(static_cast<std::uint64_t>(size.took_ns));
  }
  for (const place::LinkClass& links : s.probing.due) mix_links(links);
  for (const auto& [nonce, probe] : s.probing.under_way) {
    d.mix(nonce), mix_links(probe.links);
    d.mix(probe.from.value), d.mix(probe.to.value), d.mix(static_cast<std::uint64_t>(probe.until));
  }
  d.mix(static_cast<std::uint64_t>(s.probing.quiet_at));
  for (const GraphId id : s.dirty) d.mix(id.value);
  for (const GraphId id : s.cancelling) d.mix(id.value);
  for (const auto& [device, report] : s.stuck) {
    d.mix(device.value), d.mix(report.op.value), d.mix(report.graph.value);
    d.mix(static_cast<std::uint64_t>(report.bytes_needed)),
        d.mix(static_cast<std::uint64_t>(report.bytes_available));
  }
  return d.value();
}

}  // namespace tilewise::scheduler

// The whole state as bytes, and back. One function names the fields of each record and serves both ways, so they cannot
// differ. Left out: plans to be replayed (settle() forgets them) and what is remembered for people only.
#include "graphs.h"
#include "handlers.h"
#include "layers.h"

#include <bit>
#include <cstring>
#include <type_traits>

namespace tilewise::scheduler {
namespace {

constexpr std::uint32_t kFormat = 27;

// Writes to `out` or, where that is null, reads from `in`. After the first mismatch everything reads as zero.
class Archive {
 public:
  Archive(std::string* out, std::string_view in, const SnapshotCodec& codec, std::set<std::string>* texts)
      : out_(out), in_(in), codec_(codec), texts_(texts) {}

  bool writing() const { return out_ != nullptr; }
  bool at_end() const { return in_.empty(); }
  void fail(Error why) {
    if (failed_.code == Errc::kOk) failed_ = std::move(why);
    in_ = {};
  }
  const Error& failed() const { return failed_; }

  template <class... T> void operator()(T&... x) { (io(x), ...); }

  // Reading: a text that lives as long as the state.
  std::string_view keep(std::string text) { return *texts_->insert(std::move(text)).first; }

  void message(msg::Message& m) {
    std::string bytes;
    if (writing()) {
      Result<std::string> encoded = codec_.encode(m);
      if (!encoded) return fail(encoded.error());
      bytes = std::move(*encoded);
    }
    io(bytes);
    if (writing() || failed_.code != Errc::kOk) return;
    Result<msg::Message> decoded = codec_.decode(bytes);
    if (!decoded) return fail(decoded.error());
    m = std::move(*decoded);
  }

 private:
  template <class T>
  requires(std::is_integral_v<T> || std::is_enum_v<T> || std::is_floating_point_v<T>) void io(T& x) {
    raw(&x, sizeof x);
  }
  template <class Tag, class Rep> void io(Id<Tag, Rep>& x) { io(x.value); }
  void io(std::string& x) {
    std::uint64_t n = x.size();
    size(n);
    if (!writing()) x.resize(n);
    raw(x.data(), n);
  }
  template <class T> void io(std::vector<T>& x) { list(x); }
  template <class T> void io(std::deque<T>& x) { list(x); }
  template <class T> void io(ir::PerDim<T>& x) {
    std::uint64_t n = x.size();
    size(n);
    if (n > limits::kMaxRank) return fail(error(Errc::kCorruptData, "too many dimensions in a snapshot"));
    if (!writing()) x.resize(n);
    for (T& e : x) io(e);
  }
  template <class T, std::size_t N> void io(std::array<T, N>& x) {
    for (T& e : x) io(e);
  }
  template <class A, class B> void io(std::pair<A, B>& x) { io(x.first), io(x.second); }
  template <class T> void io(std::optional<T>& x) {
    bool there = x.has_value();
    io(there);
    if (!writing() && there) x.emplace();
    if (there) io(*x);
  }
  template <class T> void io(std::set<T>& x) {
    std::uint64_t n = x.size();
    size(n);
    if (writing()) {
      for (T e : x) io(e);
    }
    for (std::uint64_t i = 0; !writing() && i < n; ++i) {
      T e{};
      io(e);
      x.insert(x.end(), std::move(e));
    }
  }
  template <class K, class V, class C> void io(std::map<K, V, C>& x) {
    std::uint64_t n = x.size();
    size(n);
    if (writing()) {
      for (auto& [key, value] : x) {
        K k = key;
        io(k), io(value);
      }
    }
    for (std::uint64_t i = 0; !writing() && i < n; ++i) {
      K k{};
      io(k);
      io(x[k]);
    }
  }
  template <class T> void list(T& x) {
    std::uint64_t n = x.size();
    size(n);
    if (!writing()) x.resize(n);
    for (auto& e : x) io(e);
  }
  template <class T>
  requires requires(T& t, Archive& a) { t.archive(a); }
  void io(T& x) { x.archive(*this); }
  template <class T>
  requires requires(T& t, Archive& a) { fields(a, t); }
  void io(T& x) { fields(*this, x); }

  // Of a list: every entry takes a byte at least, so what is read stays within a multiple of what there is.
  void size(std::uint64_t& n) {
    io(n);
    if (!writing() && n > in_.size()) {
      fail(error(Errc::kCorruptData, "a list is longer than what is left of the snapshot"));
      n = 0;
    }
  }
  void raw(void* bytes, std::size_t n) {
    if (writing()) {
      out_->append(static_cast<const char*>(bytes), n);
    } else if (n > in_.size()) {
      std::memset(bytes, 0, n);
      fail(error(Errc::kCorruptData, "the snapshot ends too early"));
    } else if (n > 0) {  // of nothing there may be no address
      std::memcpy(bytes, in_.data(), n);
      in_.remove_prefix(n);
    }
  }

  std::string* out_;
  std::string_view in_;
  const SnapshotCodec& codec_;
  std::set<std::string>* texts_;
  Error failed_{Errc::kOk, {}};
};

}  // namespace
}  // namespace tilewise::scheduler

// Fields of plain structs, where argument-dependent look-up finds them.
namespace tilewise::ir {

template <class A> static void fields(A& a, Box& x) { a(x.lo, x.hi); }

}  // namespace tilewise::ir

// Fields of plain messages, where argument-dependent look-up finds them.
namespace tilewise::msg {

template <class A> static void fields(A& a, Outcome& x) { a(x.code, x.message); }
template <class A> static void fields(A& a, DeviceDesc& x) {
  a(x.name, x.kind, x.model, x.numeric_class, x.memory_bytes, x.streams, x.spill_bytes, x.pinned_bytes,
    x.gpu);
}
template <class A> static void fields(A& a, PluginDesc& x) { a(x.kernel, x.version, x.hash); }
template <class A> static void fields(A& a, PeerInfo& x) {
  a(x.id, x.role, x.name, x.host_id, x.addresses, x.devices, x.descriptions);
}
template <class A> static void fields(A& a, LaneStats& x) { a(x.lane, x.transfers, x.bytes, x.failed); }
template <class A> static void fields(A& a, Stuck& x) {
  a(x.graph, x.op, x.device, x.bytes_needed, x.bytes_available, x.disk_limit, x.disk_used, x.disk_full,
    x.pinned_limit, x.pinned_used, x.refused);
}
template <class A> static void fields(A& a, Range& x) { a(x.first, x.count); }
template <class A> static void fields(A& a, Tail& x) { a(x.op, x.device, x.from); }
template <class A> static void fields(A& a, Held::Share& x) { a(x.op, x.device, x.next, x.begun); }
template <class A> static void fields(A& a, Held::Blocks& x) { a(x.array, x.device, x.sealed, x.wanted); }
template <class A> static void fields(A& a, Held& x) { a(x.version, x.shares, x.blocks, x.cut); }
template <class A> static void fields(A& a, SubmitReply& x) {
  bool cut = x.grid.rank() > 0;
  a(x.request, x.outcome, x.graph, x.arrays, x.last_op, cut);
  if (!cut) return;
  Message m{std::in_place_type<SubmitReply>};
  std::get<SubmitReply>(m).grid = x.grid;
  a.message(m);
  if (auto* reply = std::get_if<SubmitReply>(&m)) x.grid = std::move(reply->grid);
}
template <class A> static void fields(A& a, GraphDone& x) { a(x.request, x.outcome, x.tasks); }
template <class A> static void fields(A& a, DeviceStats& x) {
  a(x.device, x.bytes_used, x.bytes_peak, x.bytes_resident, x.steps_run, x.busy_ns, x.spilled_bytes,
    x.disk_written, x.disk_read, x.blocks_written, x.blocks_read_back, x.pinned_bytes, x.pinned_written,
    x.pinned_read, x.lodged_bytes, x.lodged_written, x.lodged_read, x.guest_bytes, x.relocated, x.disk_taken);
}
template <class A> static void fields(A& a, ProbedSize& x) { a(x.bytes, x.transfers, x.took_ns, x.lane); }
template <class A> static void fields(A& a, NeedAccount& x) {
  a(x.devices, x.needed_bytes, x.memory_bytes, x.below_bytes, x.op, x.input_bytes, x.output_bytes,
    x.scratch_bytes, x.held_bytes);
}
template <class A> static void fields(A& a, LinkProbed& x) { a(x.nonce, x.end, x.mapped, x.sizes, x.why); }
template <class A> static void fields(A& a, FamilyStats& x) {
  a(x.device, x.family, x.steps, x.busy_ns, x.model_ns);
}

}  // namespace tilewise::msg

namespace tilewise::scheduler {
namespace {

template <class A> void fields(A& a, Rebalance& x) {
  a(x.every_ns, x.min_gain_ns, x.min_gain, x.again_ns, x.max_moves, x.max_points, x.max_reads, x.look_ns,
    x.by_lot);
}
template <class A> void fields(A& a, Options& x) {
  a(x.term, x.state, x.durable, x.seed, x.ping_every_ns, x.silence_ns, x.progress_every_ns, x.lazy_ns,
    x.max_peers, x.max_graphs, x.max_live_ops, x.max_lineage_ops, x.max_recompute_ns, x.max_recompute_ops,
    x.checkpoint_dir, x.max_recovered_blocks, x.max_recovered_runs, x.recovery_wait_ns, x.last_words_ns,
    x.client_answer_ns, x.software_version, x.passes_off, x.pieces_always, x.rebalance, x.link_probes);
}
template <class A> void fields(A& a, Link& x) { a(x.peer, x.heard, x.pinged, x.away_until); }
template <class A> void fields(A& a, Peer& x) {
  a(x.info, x.conn, x.alive, x.left, x.session, x.software_version, x.plugins, x.black_box, x.last_words,
    x.lease_ns, x.log_next, x.log_applied, x.lanes);
}
template <class A> void fields(A& a, Device& x) {
  a(x.id, x.peer, x.alive, x.kind, x.host, x.streams, x.memory_bytes, x.spill_bytes, x.pinned_bytes,
    x.load_bytes, x.stats, x.families, x.draining);
}
template <class A> void fields(A& a, Answer& x) {
  a(x.request, x.reply, x.graph, x.done, x.graph_done, x.due);
}
template <class A> void fields(A& a, KeptProgram& x) {
  a(x.request);
  if (x.request == 0) return;
  msg::Program program;
  msg::Message m;
  if (a.writing()) {
    program = {{}, x.program.outputs, x.program.inputs};
    m = msg::Submit{.ops = *x.program.ops};
  }
  a(program.outputs, program.inputs);
  a.message(m);
  if (a.writing()) return;
  auto* submit = std::get_if<msg::Submit>(&m);
  if (submit == nullptr)
    return a.fail(error(Errc::kCorruptData, "the snapshot has something else where a program should be"));
  program.ops = std::move(submit->ops);
  x.program = SessionProgram::of(std::move(program), {});
}
template <class A> void fields(A& a, Postponed& x) { a.message(x.message); }
template <class A> void fields(A& a, Session& x) {
  a(x.id, x.peer, x.device, x.alive, x.highest_request, x.answers, x.arrays, x.running, x.programs,
    x.postponed);
  if (a.writing()) return;
  for (KeptProgram& kept : x.programs) {        // their endpoint is the session's
    if (kept.program.ops == nullptr) continue;  // none, or the snapshot ends here
    msg::Program program{*kept.program.ops, kept.program.outputs, kept.program.inputs};
    kept.program = SessionProgram::of(std::move(program), x.device);
  }
}
template <class A> void fields(A& a, Holder& x) { a(x.session, x.number); }
template <class A> void fields(A& a, Asker& x) { a(x.session, x.request); }
template <class A> void fields(A& a, Gathering::Part& x) {
  a(x.session, x.request, x.array, x.weight, x.pieces);
}
template <class A> void fields(A& a, Gathering& x) {
  a(x.dtype, x.shape, x.processes, x.until, x.parts, x.failed);
}
// Its source is its producer's output (restore).
template <class A> void fields(A& a, ArrayRecord& x) {
  a(x.id, x.producer, x.output, x.session, x.number, x.holders, x.held, x.open_users, x.readers, x.was_read,
    x.fetches, x.failed, x.copies, x.lacking, x.keeps, x.anchor, x.unnamed, x.file);
}
template <class A> void fields(A& a, OpShare& x) {
  a(x.device, x.owned, x.completed, x.failed, x.busy_ns, x.bytes_moved);
}
template <class A> void fields(A& a, OpRecord& x) {
  std::string why(x.decision.why);
  a(x.id, x.graph, x.position, x.points, x.load_bytes, x.shares, x.completed, x.failed, x.finished, x.of,
    x.layers, x.retired, x.forgotten, x.doomed, x.moved, x.moved_failed, x.cut, x.tried, x.level_ns, x.work_s,
    why, x.decision.seconds, x.decision.moved_bytes, x.inputs, x.began, x.ended);
  msg::Message m;
  if (a.writing()) {
    msg::Plan plan{x.graph, 0, {{x.id, x.op, x.placement, false, {}}}};
    if (!x.made.empty()) plan.ops.push_back({x.id, op_to_run(x), x.placement, false, {}});
    m = msg::Log{0, 1, {std::move(plan)}};
    return a.message(m);
  }
  a.message(m);
  auto* log = std::get_if<msg::Log>(&m);
  msg::LogEntry entry = log == nullptr || log->entries.size() != 1 ? msg::LogEntry() : log->entries.take(0);
  auto* plan = std::get_if<msg::Plan>(&entry);
  if (plan == nullptr || plan->ops.empty() || plan->ops.size() > 2)
    return a.fail(error(Errc::kCorruptData, "the snapshot has something else where an op should be"));
  if (plan->ops.size() == 2) x.made = std::move(plan->ops[1].op.outputs);
  x.op = std::move(plan->ops[0].op);
  x.placement = std::move(plan->ops[0].placement);
  x.decision.why = a.keep(std::move(why));
}
template <class A> void fields(A& a, Undo& x) { a(x.kernel, x.params, x.near); }
template <class A> void fields(A& a, Removal& x) {
  a(x.left, x.tries, x.again_at, x.op, x.askers, x.tell_at, x.done, x.done.needs);
}
template <class A> void fields(A& a, GraphRecord& x) {
  a(x.id, x.session, x.request, x.others, x.priority, x.weight, x.ops, x.ops_left, x.ops_open, x.fetches_open,
    x.total, x.done, x.failed, x.running, x.own, x.delivered, x.undo, x.copying, x.root_cause, x.failed_op,
    x.needs, x.cancelled, x.unacknowledged, x.dirty, x.told, x.told_at);
}
template <class A> void fields(A& a, Plugin& x) { a(x.version, x.hash, x.workers); }
template <class A> void fields(A& a, Trace& x) { a(x.blocks, x.to, x.nonce, x.of, x.waiting); }
template <class A> void fields(A& a, Death& x) { a(x.worker, x.how); }
template <class A> void fields(A& a, Move& x) { a(x.head, x.from, x.to); }
template <class A> void fields(A& a, Seen& x) { a(x.first_at, x.last_at, x.done); }
template <class A> void fields(A& a, ToAndFro& x) { a(x.turns, x.takers); }
template <class A> void fields(A& a, Watched& x) { a(x.since, x.look_at, x.moves, x.to_and_fro, x.seen); }
template <class A> void fields(A& a, Recovery& x) {
  a(x.version, x.settled, x.pending, x.give_up_at, x.lost, x.leaver, x.move, x.asked, x.waiting, x.clients,
    x.clients_until, x.unheard, x.words_until, x.answers, x.recovered, x.kept, x.unrecoverable, x.moved);
}

template <class A> void fields(A& a, Leaving& x) {
  a(x.step, x.stays, x.round, x.waiting, x.news_at, x.again_at, x.why);
}

template <class A> void fields(A& a, Checkpoints::File& x) { a(x.array, x.step, x.op, x.folder); }
template <class A> void fields(A& a, Checkpoints::Ended& x) { a(x.op, x.ok, x.why); }
template <class A> void fields(A& a, Checkpoints& x) {
  a(x.next, x.files, x.marker, x.made, x.unseen, x.without, x.due, x.tending, x.tender, x.tends_before,
    x.ended, x.failing, x.trouble, x.written, x.failed);
}

template <class A> void fields(A& a, LinkProbing::Known& x) {
  a(x.step, x.tries, x.failures, x.again_at, x.from, x.to, x.at, x.last);
}
template <class A> void fields(A& a, LinkProbing::UnderWay& x) {
  a(x.links, x.sender, x.receiver, x.from, x.to, x.until);
}
template <class A> void fields(A& a, LinkProbing& x) { a(x.classes, x.due, x.under_way, x.quiet_at); }

template <class A> void all(A& a, State& s) {
  std::uint32_t format = kFormat;
  a(format);
  if (format != kFormat) return a.fail(error(Errc::kVersionMismatch, "a snapshot of another format"));
  a(s.options, s.started, s.start, s.now, s.speeds, s.links, s.closed, s.peers, s.live, s.devices, s.sessions,
    s.departed, s.departed_credit, s.next_peer, s.next_device, s.next_session);
  const auto id_of = [](const auto& record) { return record.id; };
  s.ops.archive(a, id_of);
  s.arrays.archive(a, id_of);
  s.graphs.archive(a, id_of);
  a(s.plugins, s.hosts, s.next_array, s.next_op, s.next_graph, s.next_nonce, s.next_kept_plan, s.recovery,
    s.leaving, s.watched, s.rebalance_at, s.blame, s.lineage, s.copied, s.copies_due, s.checkpoints, s.owing,
    s.removals, s.traces, s.gatherings, s.postponing, s.workless_until, s.dirty, s.cancelling, s.stuck,
    s.stuck_at, s.lazy_at, s.liveness_at, s.probing, s.graphs_done, s.graphs_failed, s.tasks_done, s.running,
    s.retire_candidates, s.retired, s.let_go);
}

}  // namespace

Result<std::string> snapshot(const State& s, const SnapshotCodec& codec) {
  TW_CHECK(s.with_log.empty() && s.plans.size() == 0, "a snapshot of a state that was not settled");
  std::string out;
  Archive archive(&out, {}, codec, nullptr);
  all(archive, const_cast<State&>(s));  // writing changes nothing
  if (archive.failed().code != Errc::kOk) return archive.failed();
  return out;
}

Status restore(State& s, std::string_view bytes, const SnapshotCodec& codec) {
  const Options now = s.options;
  Archive archive(nullptr, bytes, codec, &s.texts);
  all(archive, s);
  if (archive.failed().code != Errc::kOk) return archive.failed();
  if (!archive.at_end()) return error(Errc::kCorruptData, "the snapshot goes on after its end");
  s.options.history_graphs = now.history_graphs;
  s.options.check_replays = now.check_replays;
  Status sound;
  s.arrays.for_each([&](ArrayRecord& array) {
    const OpRecord* producer = s.ops.find(array.producer);
    if (producer == nullptr || array.output >= producer->op.outputs.size()) {
      sound = error(Errc::kCorruptData, "an array in the snapshot has no producer");
      return;
    }
    const ir::OutputSpec& output = producer->op.outputs[array.output];
    array.source = {output.dtype, output.grid};
  });
  if (!sound) return sound;
  s.graphs.for_each([&](const GraphRecord& graph) {
    if (graph.running) remember_graph(s, graph, {});
  });
  return {};
}

}  // namespace tilewise::scheduler

#include <tilewise/base/check.h>
#include <tilewise/codec/codec.h>

#include <capnp/message.h>
#include <capnp/serialize.h>

#include <algorithm>
#include <boost/container/static_vector.hpp>
#include <cstring>

#include "writers.h"

namespace tilewise::codec {
namespace {

using codec::write;  // arrays, ops, placements; what workers tell

constexpr std::size_t kFirstWords = 512;            // a batch of some 80 records
constexpr std::size_t kKeepWords = (1u << 20) / 8;  // scratch kept from message to message

// Builds into the caller's words first, so that the usual message is never copied.
class WordsBuilder final : public capnp::MessageBuilder {
 public:
  explicit WordsBuilder(std::span<std::uint64_t> first) : first_(first) {}

  kj::ArrayPtr<capnp::word> allocateSegment(unsigned minimum) override {
    std::span<std::uint64_t> words = first_;
    if (total_ > 0 || words.size() < minimum) {
      bounded(total_ * 8, limits::kMaxMessageBytes, "bytes of a message");
      extra_.emplace_back(std::max<std::size_t>({minimum, total_, kFirstWords}));
      words = extra_.back();
    }
    total_ += words.size();
    return {reinterpret_cast<capnp::word*>(words.data()), words.size()};
  }

 private:
  std::span<std::uint64_t> first_;
  std::vector<std::vector<std::uint64_t>> extra_;
  std::size_t total_ = 0;
};

// ---- messages ------------------------------------------------------------------------------------------------------

template <class List> void write_addresses(List list, const std::vector<std::string>& addresses) {
  unsigned i = 0;
  for (const auto& a : addresses) list.set(i++, text(a, kMaxAddressBytes, "bytes of an address"));
}

void write(wire::DeviceDesc::Builder b, const msg::DeviceDesc& d) {
  b.setName(name(d.name));
  b.setKind(d.kind);
  b.setModel(name(d.model));
  b.setNumericClass(name(d.numeric_class));
  b.setMemoryBytes(d.memory_bytes);
  b.setStreams(d.streams);
  b.setSpillBytes(d.spill_bytes);
  b.setPinnedBytes(d.pinned_bytes);
  b.setGpu(name(d.gpu));
}

void write(wire::PeerInfo::Builder b, const msg::PeerInfo& p) {
  b.setId(p.id.value);
  b.setRole(wire::Role{wire_enum(p.role)});
  b.setName(name(p.name));
  b.setHostId(name(p.host_id));
  write_addresses(b.initAddresses(any_count(p.addresses.size())), p.addresses);
  ids(b.initDevices(any_count(p.devices.size())), p.devices);
  each(b.initDescriptions(any_count(p.descriptions.size())), p.descriptions,
       [](wire::DeviceDesc::Builder d, const msg::DeviceDesc& desc) { write(d, desc); });
}

void write(wire::DeviceStats::Builder b, const msg::DeviceStats& s) {
  b.setDevice(s.device.value);
  b.setBytesUsed(s.bytes_used);
  b.setBytesPeak(s.bytes_peak);
  b.setBytesResident(s.bytes_resident);
  b.setStepsRun(s.steps_run);
  b.setBusyNs(s.busy_ns);
  b.setSpilledBytes(s.spilled_bytes);
  b.setDiskWritten(s.disk_written);
  b.setDiskRead(s.disk_read);
  b.setBlocksWritten(s.blocks_written);
  b.setBlocksReadBack(s.blocks_read_back);
  b.setBytesHigh(s.bytes_high);
  b.setPinnedBytes(s.pinned_bytes);
  b.setPinnedWritten(s.pinned_written), b.setPinnedRead(s.pinned_read);
  b.setLodgedBytes(s.lodged_bytes);
  b.setLodgedWritten(s.lodged_written), b.setLodgedRead(s.lodged_read);
  b.setGuestBytes(s.guest_bytes);
  b.setRelocated(s.relocated);
  b.setDiskTaken(s.disk_taken);
}

void write(wire::LaneStats::Builder b, const msg::LaneStats& s) {
  b.setLane(wire::Lane{wire_enum(s.lane)});
  b.setTransfers(s.transfers);
  b.setBytes(s.bytes);
  b.setFailed(s.failed);
}

void write(wire::FamilyStats::Builder b, const msg::FamilyStats& s) {
  b.setDevice(s.device.value);
  b.setFamily(line(s.family));
  b.setSteps(s.steps);
  b.setBusyNs(s.busy_ns);
  b.setModelNs(s.model_ns);
}

void write(wire::Submit::Builder b, const msg::Submit& m) {
  b.setRequest(m.request);
  b.setPriority(m.priority);
  each(b.initOps(count(m.ops.size(), limits::kMaxOpsPerSubmit, "ops of a submission")), m.ops,
       [](wire::Op::Builder o, const ir::Op& op) { write(o, op); });
  numbers(b.initHolds(any_count(m.holds.size())), m.holds);
  b.setWeight(m.weight);
  each(b.initKeeps(any_count(m.keeps.size())), m.keeps, [](wire::Keep::Builder k, const msg::Keep& keep) {
    k.setArray(keep.array);
    k.setCopies(keep.copies);
  });
  b.setKeepAs(m.keep_as);
  b.setProgram(m.program);
  b.setFirstOutput(m.first_output);
  if (!m.inputs.empty()) numbers(b.initInputs(any_count(m.inputs.size())), m.inputs);
  b.setAccount(m.account);
  if (!m.constants.empty()) write(b.initConstants(constant_count(m.constants)), m.constants);
}

void write(wire::Announce::Builder b, const msg::Announce& m) {
  b.setRequest(m.request);
  b.setName(name(m.name));
  b.setDtype(wire::DType{wire_enum(m.dtype)});
  numbers(b.initShape(any_count(m.shape.size())), m.shape);
  b.setProcesses(m.processes);
  b.setTimeoutNs(m.timeout_ns);
  b.setArray(m.array);
  b.setWeight(m.weight);
  each(b.initPieces(count(m.pieces.size(), msg::kMaxAnnouncedPieces, "pieces of an announcement")), m.pieces,
       [](wire::Box::Builder box, const ir::Box& piece) {
         numbers(box.initLo(any_count(piece.lo.size())), piece.lo);
         numbers(box.initHi(any_count(piece.hi.size())), piece.hi);
       });
  write_outcome(m.failed, [&] { return b.initFailed(); });
}

// Ops of a plan are placed alike as a rule: each different one of the last few is written once.
class Placements {
 public:
  // The number of an earlier op that is placed so, from 1; 0: there is none, and the next one that is may say so of this one.
  std::uint32_t find(const ir::Placement& placement, std::uint32_t number) {
    if (placement.pieces().empty()) return 0;
    const auto seen = std::ranges::find_if(seen_, [&](const Seen& s) { return *s.placement == placement; });
    if (seen != seen_.end()) {
      std::rotate(seen, seen + 1, seen_.end());
      return seen_.back().number;
    }
    if (seen_.size() == kMost) seen_.erase(seen_.begin());
    seen_.push_back({&placement, number});
    return 0;
  }

 private:
  static constexpr std::size_t kMost = 8;
  struct Seen {
    const ir::Placement* placement;
    std::uint32_t number;
  };
  boost::container::static_vector<Seen, kMost> seen_;  // the latest last
};

void write(wire::PlannedOp::Builder o, const msg::PlannedOp& op, std::uint32_t placed_as) {
  o.setId(op.id.value);
  write(o.initOp(), op.op);
  if (placed_as == 0)
    write(o.initPlacement(count(op.placement.pieces().size(), ir::kMaxPieces, "pieces of a placement")),
          op.placement);
  o.setPlacedAs(placed_as);
  o.setDone(op.done);
  o.setOf(op.of.value);
  o.setAlone(op.alone);
  o.setLevelNs(op.level_ns);
  write_outcome(op.doomed, [&] { return o.initDoomed(); });
  if (const ir::RunMap* listed = op.placement.listed()) {
    o.setListed(true);
    each(o.initRuns(count(listed->runs().size(), ir::kMaxRuns, "runs of a placement")), listed->runs(),
         [](auto r, const ir::Run& x) {
           r.setFirst(x.first), r.setCount(x.count), r.setDevice(x.device.value);
         });
  }
}

void write(wire::Plan::Builder p, const msg::Plan& plan) {
  p.setGraph(plan.graph.value);
  p.setPriority(plan.priority);
  Placements placements;
  std::uint32_t number = 0;
  each(p.initOps(any_count(plan.ops.size())), plan.ops,
       [&](wire::PlannedOp::Builder o, const msg::PlannedOp& op) {
         ++number;
         write(o, op, placements.find(op.placement, number));
       });
  ids(p.initHolds(any_count(plan.holds.size())), plan.holds);
  p.setSession(plan.session.value);
  p.setWeight(plan.weight);
  p.setKeepAs(plan.keep_as);
}

struct WriteEntry {
  wire::LogEntry::Builder b;

  void operator()(const msg::Plan& plan) { write(b.initPlan(), plan); }
  void operator()(const msg::Release& r) { ids(b.initRelease(any_count(r.arrays.size())), r.arrays); }
  void operator()(const msg::CancelGraph& c) {
    auto g = b.initCancelGraph();
    g.setGraph(c.graph.value);
    write_outcome(c.why, [&] { return g.initWhy(); });
  }
  void operator()(const msg::Retire& r) { ids(b.initRetire(any_count(r.ops.size())), r.ops); }
  void operator()(const msg::PeerJoined& p) { write(b.initPeerJoined(), p.peer); }
  void operator()(const msg::PeerLost& p) {
    auto l = b.initPeerLost();
    l.setPeer(p.peer.value);
    l.setVersion(p.version);
    ids(l.initOps(any_count(p.ops.size())), p.ops);
    write(l.initHolds(any_count(p.holds.size())), p.holds);
  }
  void operator()(const msg::Recover& m) {
    auto r = b.initRecover();
    r.setVersion(m.version);
    each(r.initPlans(any_count(m.plans.size())), m.plans, [](auto p, const msg::Plan& x) { write(p, x); });
    write(r.initMoved(any_count(m.moved.size())), m.moved);
  }
  void operator()(const msg::Replay& m) {
    auto r = b.initReplay();
    r.setPlan(m.plan);
    r.setGraph(m.graph.value);
    r.setPriority(m.priority);
    r.setFirstOp(m.first_op.value);
    r.setFirstArray(m.first_array.value);
    ids(r.initInputs(any_count(m.inputs.size())), m.inputs);
    r.setSession(m.session.value);
    r.setWeight(m.weight);
    if (!m.constants.empty()) write(r.initConstants(constant_count(m.constants)), m.constants);
  }
  void operator()(const msg::ForgetPlans& m) {
    numbers(b.initForgetPlans(any_count(m.plans.size())), m.plans);
  }
  void operator()(const msg::Drain& m) {
    auto d = b.initDrain();
    d.setPeer(m.peer.value);
    d.setOrder(static_cast<std::uint8_t>(m.order));
    d.setRound(m.round);
    each(d.initKeeps(any_count(m.keeps.size())), m.keeps, [](auto k, const msg::Drain::Keep& x) {
      k.setArray(x.array.value), k.setFrom(x.from.value), k.setTo(x.to.value);
      write(k.initBlocks(any_count(x.blocks.size())), x.blocks);
    });
  }
};

struct WriteMessage {
  wire::Message::Builder b;

  void operator()(const msg::Join& m) {
    auto j = b.initJoin();
    j.setRole(wire::Role{wire_enum(m.role)});
    j.setName(name(m.name));
    j.setSoftwareVersion(name(m.software_version));
    j.setHostId(name(m.host_id));
    write_addresses(j.initAddresses(any_count(m.addresses.size())), m.addresses);
    each(j.initDevices(any_count(m.devices.size())), m.devices,
         [](wire::DeviceDesc::Builder d, const msg::DeviceDesc& desc) { write(d, desc); });
    each(j.initPlugins(any_count(m.plugins.size())), m.plugins,
         [](wire::PluginDesc::Builder p, const msg::PluginDesc& plugin) {
           p.setKernel(name(plugin.kernel));
           p.setVersion(name(plugin.version));
           p.setHash(plugin.hash);
         });
    j.setBlackBox(m.black_box);
    j.setLeaseNs(m.lease_ns);
  }
  void operator()(const msg::Welcome& m) {
    auto w = b.initWelcome();
    w.setTerm(m.term);
    w.setYou(m.you.value);
    w.setSession(m.session.value);
    ids(w.initDevices(any_count(m.devices.size())), m.devices);
    write_outcome(m.refused, [&] { return w.initRefused(); });
    w.setState(m.state);
    w.setDurable(m.durable);
    w.setIntroduced(m.introduced);
  }
  void operator()(const msg::Resume& m) {
    auto r = b.initResume();
    r.setState(m.state), r.setMe(m.me.value), r.setReceived(m.received), r.setTerm(m.term);
  }
  void operator()(const msg::Resumed& m) {
    auto r = b.initResumed();
    r.setTerm(m.term), r.setReceived(m.received);
    write_outcome(m.refused, [&] { return r.initRefused(); });
  }
  void operator()(const msg::Ack& m) { b.setAck(m.received); }
  void operator()(const msg::Log& m) {
    auto l = b.initLog();
    l.setTerm(m.term);
    l.setFirst(m.first);
    each(l.initEntries(any_count(m.entries.size())), m.entries,
         [](wire::LogEntry::Builder e, const msg::LogEntry& entry) { std::visit(WriteEntry{e}, entry); });
  }
  void operator()(const msg::Progress& m) {
    auto p = b.initProgress();
    p.setLogApplied(m.log_applied);
    each(p.initOps(any_count(m.ops.size())), m.ops,
         [](wire::OpProgress::Builder o, const msg::OpProgress& op) {
           o.setOp(op.op.value);
           o.setDevice(op.device.value);
           o.setCompleted(op.completed);
           o.setFailed(op.failed);
         });
    each(p.initDevices(any_count(m.devices.size())), m.devices,
         [](wire::DeviceStats::Builder d, const msg::DeviceStats& stats) { write(d, stats); });
    each(p.initLanes(any_count(m.lanes.size())), m.lanes,
         [](wire::LaneStats::Builder s, const msg::LaneStats& stats) { write(s, stats); });
    each(p.initFamilies(any_count(m.families.size())), m.families,
         [](wire::FamilyStats::Builder s, const msg::FamilyStats& stats) { write(s, stats); });
    each(p.initLinks(any_count(m.links.size())), m.links,
         [](wire::LinkStats::Builder s, const msg::LinkStats& stats) {
           s.setFrom(stats.from.value);
           s.setSizeClass(stats.size_class);
           s.setTransfers(stats.transfers);
           s.setBytes(stats.bytes);
           s.setBusyNs(stats.busy_ns);
         });
    each(p.initPairs(any_count(m.pairs.size())), m.pairs,
         [](wire::PairStats::Builder s, const msg::PairStats& stats) {
           s.setFrom(stats.from.value);
           s.setTo(stats.to.value);
           s.setLane(wire::Lane{wire_enum(stats.lane)});
           s.setTransfers(stats.transfers);
           s.setBytes(stats.bytes);
           s.setBusyNs(stats.busy_ns);
         });
    each(p.initMeasured(any_count(m.measured.size())), m.measured,
         [](wire::OpMeasured::Builder o, const msg::OpMeasured& op) {
           o.setOp(op.op.value);
           o.setDevice(op.device.value);
           o.setBusyNs(op.busy_ns);
           o.setBytesMoved(op.bytes_moved);
         });
  }
  void operator()(const msg::TaskFailed& m) {
    auto t = b.initTaskFailed();
    t.setOp(m.op.value);
    t.setDevice(m.device.value);
    t.setPoint(m.point);
    write_outcome(m.why, [&] { return t.initWhy(); });
  }
  void operator()(const msg::Stuck& m) {
    auto s = b.initStuck();
    s.setGraph(m.graph.value);
    s.setOp(m.op.value);
    s.setDevice(m.device.value);
    s.setBytesNeeded(m.bytes_needed);
    s.setBytesAvailable(m.bytes_available);
    s.setDiskLimit(m.disk_limit);
    s.setDiskUsed(m.disk_used);
    s.setDiskFull(m.disk_full);
    s.setPinnedLimit(m.pinned_limit), s.setPinnedUsed(m.pinned_used);
    write_outcome(m.refused, [&] { return s.initRefused(); });
  }
  void operator()(const msg::Submit& m) { write(b.initSubmit(), m); }
  void operator()(const msg::Explain& m) {
    auto e = b.initExplain();
    write(e.initSubmit(), m.submit);
    numbers(e.initArrays(any_count(m.arrays.size())), m.arrays);
    e.setGraph(m.graph.value);
    e.setAccount(m.account);
  }
  void operator()(const msg::Explanation& m) { write(b.initExplanation(), m); }
  void operator()(const msg::TraceRequest& m) {
    auto t = b.initTraceRequest();
    t.setNonce(m.nonce);
    t.setGraph(m.graph.value);
    t.setMaxSteps(m.max_steps);
    t.setFromAgeNs(m.from_age_ns);
    t.setUntilAgeNs(m.until_age_ns);
  }
  void operator()(const msg::TraceReply& m) { write(b.initTraceReply(), m); }
  void operator()(const msg::BlocksRequest& m) {
    auto q = b.initBlocksRequest();
    q.setNonce(m.nonce);
    q.setArray(m.array.value);
    q.setFirst(m.first);
    q.setCount(m.count);
  }
  void operator()(const msg::BlocksReply& m) { write(b.initBlocksReply(), m); }
  void operator()(const msg::Leave&) { b.setLeave(); }
  void operator()(const msg::LinkProbe& m) {
    auto p = b.initLinkProbe();
    p.setNonce(m.nonce), p.setFrom(m.from.value), p.setTo(m.to.value);
  }
  void operator()(const msg::LinkProbed& m) { write(b.initLinkProbed(), m); }
  void operator()(const msg::LastWords& m) {
    auto w = b.initLastWords();
    w.setWorker(m.worker.value);
    w.setBlackBox(m.black_box);
    w.setHow(name(m.how));
    each(w.initRunning(any_count(m.running.size())), m.running, [](auto r, const msg::LastWords::Running& x) {
      r.setOp(x.op.value), r.setDevice(x.device.value), r.setPoint(x.point);
    });
  }
  void operator()(const msg::SubmitReply& m) {
    auto s = b.initSubmitReply();
    s.setRequest(m.request);
    write_outcome(m.outcome, [&] { return s.initOutcome(); });
    s.setGraph(m.graph.value);
    each(s.initArrays(any_count(m.arrays.size())), m.arrays,
         [](wire::NamedArray::Builder n, const auto& array) {
           n.setNumber(array.first);
           n.setArray(array.second.value);
         });
    if (m.grid.rank() > 0) write(s.initGrid(), m.grid);
    if (!m.needs.empty()) write(s.initNeeds(count(m.needs.size(), msg::kMaxNeeds, "needs")), m.needs);
    s.setLastOp(m.last_op.value);
  }
  void operator()(const msg::Announce& m) { write(b.initAnnounce(), m); }
  void operator()(const msg::GraphProgress& m) {
    auto g = b.initGraphProgress();
    g.setRequest(m.request);
    g.setDone(m.done);
    g.setTotal(m.total);
  }
  void operator()(const msg::GraphDone& m) {
    auto g = b.initGraphDone();
    g.setRequest(m.request);
    write_outcome(m.outcome, [&] { return g.initOutcome(); });
    g.setTasks(m.tasks);
    if (!m.needs.empty()) write(g.initNeeds(count(m.needs.size(), msg::kMaxNeeds, "needs")), m.needs);
  }
  void operator()(const msg::ReleaseArrays& m) {
    auto r = b.initReleaseArrays();
    if (!m.arrays.empty()) numbers(r.initArrays(any_count(m.arrays.size())), m.arrays);
    if (!m.delivered.empty()) numbers(r.initDelivered(any_count(m.delivered.size())), m.delivered);
  }
  void operator()(const msg::CancelRequest& m) { b.setCancelRequest(m.request); }
  void operator()(const msg::StatusRequest&) { b.setStatusRequest(); }
  void operator()(const msg::StatusReply& m) {
    auto s = b.initStatusReply();
    s.setTerm(m.term);
    s.setUptimeNs(m.uptime_ns);
    each(s.initPeers(any_count(m.peers.size())), m.peers,
         [](wire::PeerInfo::Builder p, const msg::PeerInfo& peer) { write(p, peer); });
    each(s.initDevices(any_count(m.devices.size())), m.devices,
         [](wire::DeviceStats::Builder d, const msg::DeviceStats& stats) { write(d, stats); });
    each(s.initLanes(any_count(m.lanes.size())), m.lanes, [](wire::WorkerLane::Builder w, const auto& lane) {
      w.setWorker(lane.first.value);
      write(w.initStats(), lane.second);
    });
    each(s.initGraphs(any_count(m.graphs.size())), m.graphs,
         [](wire::GraphStatus::Builder g, const msg::GraphStatus& graph) {
           g.setGraph(graph.graph.value);
           g.setSession(graph.session.value);
           g.setDone(graph.done);
           g.setTotal(graph.total);
           g.setOps(graph.ops);
           g.setFailed(graph.failed);
         });
    s.setGraphsDone(m.graphs_done);
    s.setGraphsFailed(m.graphs_failed);
    s.setTasksDone(m.tasks_done);
    s.setArraysLive(m.arrays_live);
    each(s.initFamilies(any_count(m.families.size())), m.families,
         [](wire::FamilyStats::Builder f, const msg::FamilyStats& stats) { write(f, stats); });
  }
  void operator()(const msg::Shutdown&) { b.setShutdown(); }
  void operator()(const msg::Ping& m) { b.setPing(m.nonce); }
  void operator()(const msg::Pong& m) { b.setPong(m.nonce); }
  void operator()(const msg::Refusal& m) {
    write_outcome(m.why, [&] { return b.initRefusal(); });
    if (m.why == msg::Outcome{}) b.initRefusal();
  }
  void operator()(const msg::PeerHello& m) {
    auto h = b.initPeerHello();
    h.setFrom(m.from.value);
    h.setTo(m.to.value);
    h.setHostId(name(m.host_id));
    h.setSlabFds(m.slab_fds);
  }
  void operator()(const msg::ArenaMap& m) {
    auto a = b.initArenaMap();
    each(a.initSlabs(any_count(m.slabs.size())), m.slabs,
         [](wire::SlabDesc::Builder s, const msg::SlabDesc& slab) {
           s.setDevice(slab.device.value);
           s.setSlab(slab.slab);
           s.setBytes(slab.bytes);
           s.setIpcHandle(data(slab.ipc_handle, limits::kMaxNameBytes, "bytes of an IPC handle"));
         });
    a.setUcxAddress(data(m.ucx_address, limits::kMaxParamBytes, "bytes of a UCX address"));
  }
  void operator()(const msg::Held& m) {
    auto h = b.initHeld();
    h.setVersion(m.version);
    each(h.initShares(any_count(m.shares.size())), m.shares, [](auto s, const msg::Held::Share& x) {
      s.setOp(x.op.value), s.setDevice(x.device.value), s.setNext(x.next);
      write(s.initBegun(any_count(x.begun.size())), x.begun);
    });
    each(h.initBlocks(any_count(m.blocks.size())), m.blocks, [](auto s, const msg::Held::Blocks& x) {
      s.setArray(x.array.value), s.setDevice(x.device.value);
      write(s.initSealed(any_count(x.sealed.size())), x.sealed);
      write(s.initWanted(any_count(x.wanted.size())), x.wanted);
    });
    h.setCut(m.cut);
    each(h.initFetches(any_count(m.fetches.size())), m.fetches, [](auto s, const msg::Held::Fetch& x) {
      s.setRequest(x.request), s.setArray(x.array.value);
      write(s.initMissing(any_count(x.missing.size())), x.missing);
    });
  }
  void operator()(const msg::Drained& m) {
    auto d = b.initDrained();
    d.setPeer(m.peer.value);
    d.setRound(m.round);
    d.setLeft(m.left);
  }
  void operator()(const msg::DrainRequest& m) {
    auto d = b.initDrainRequest();
    d.setWorker(name(m.worker));
    d.setWish(static_cast<std::uint8_t>(m.wish));
  }
  void operator()(const msg::DrainReply& m) {
    auto d = b.initDrainReply();
    write_outcome(m.outcome, [&] { return d.initOutcome(); });
    d.setWorker(m.worker.value);
    d.setName(name(m.name));
    d.setState(static_cast<std::uint8_t>(m.state));
    d.setWhy(line(m.why));
    d.setTasksLeft(m.tasks_left);
    d.setBlocksLeft(m.blocks_left);
    d.setBytes(m.bytes);
  }
  // All five start with the block and name two devices.
  template <class B, class T> static void head(B b, const T& x) {
    b.setArray(x.block.array.value);
    b.setBlock(x.block.block);
    b.setFrom(x.from.value);
    b.setTo(x.to.value);
  }
  void operator()(const msg::PeerBatch& m) {
    auto p = b.initPeerBatch();
    p.setRecovery(m.recovery);
    if (!m.subscribes.empty()) {
      each(p.initSubscribes(any_count(m.subscribes.size())), m.subscribes,
           [](auto s, const msg::Subscribe& x) {
             head(s, x);
             s.setOp(x.op.value);
             s.setVia(x.via.value);
           });
    }
    if (!m.offers.empty()) {
      each(p.initOffers(any_count(m.offers.size())), m.offers, [](auto o, const msg::Offer& x) {
        head(o, x);
        o.setOp(x.op.value);
        o.setSlab(x.slab);
        o.setOffset(x.offset);
        o.setBytes(x.bytes);
        write_outcome(x.failed, [&] { return o.initFailed(); });
        o.setInlined(x.inlined);
        if (!x.data.empty()) o.setData(data(x.data, limits::kMaxInlineBytes, "inlined bytes of an offer"));
        o.setVia(x.via.value);
        o.setRelays(x.relays);
      });
    }
    if (!m.grants.empty()) {
      each(p.initGrants(any_count(m.grants.size())), m.grants, [](auto g, const msg::Grant& x) {
        head(g, x);
        g.setTransfer(x.transfer);
        g.setVia(x.via.value);
        g.setInParts(x.in_parts);
      });
    }
    if (!m.relays.empty()) {
      each(p.initRelays(any_count(m.relays.size())), m.relays, [](auto r, const msg::Relay& x) {
        head(r, x);
        r.setWord(static_cast<std::uint8_t>(x.word));
        r.setTransfer(x.transfer);
      });
    }
    if (!m.dones.empty()) {
      each(p.initDones(any_count(m.dones.size())), m.dones, [](auto d, const msg::Done& x) {
        head(d, x);
        d.setOp(x.op.value);
        d.setAlso(x.also.value);
      });
    }
    if (!m.gones.empty()) {
      each(p.initGones(any_count(m.gones.size())), m.gones, [](auto g, const msg::Gone& x) { head(g, x); });
    }
    if (!m.probes.empty()) {
      each(p.initProbes(any_count(m.probes.size())), m.probes, [](auto q, const msg::Probe& x) {
        q.setFrom(x.from.value), q.setTo(x.to.value), q.setTransfer(x.transfer), q.setBytes(x.bytes);
      });
    }
  }
};

}  // namespace

std::span<const std::byte> Buffer::bytes() const {
  return {reinterpret_cast<const std::byte*>(words_.data()), used_ * 8};
}

void Buffer::shrink() {
  if (words_.size() > kKeepWords) words_ = {}, used_ = 0;
}

Status encode(const msg::Message& message, Buffer& buffer) {
  auto& words = buffer.words_;
  buffer.shrink();
  if (words.empty()) words.resize(kFirstWords);
  std::fill_n(words.begin(), std::exchange(buffer.used_, 0), 0);
  const auto failed = [&](Error e) {
    std::fill(words.begin(), words.end(), 0);  // how far the builder came is not known
    return e;
  };
  try {
    // Word 0 is the segment table of a message of one segment.
    WordsBuilder builder{std::span(words).subspan(1)};
    std::visit(WriteMessage{builder.initRoot<wire::Message>()}, message);
    const auto segments = builder.getSegmentsForOutput();
    const std::size_t size = capnp::computeSerializedSizeInWords(segments);
    bounded(size * 8, limits::kMaxMessageBytes, "bytes of a message");
    if (segments.size() == 1 &&
        reinterpret_cast<const std::uint64_t*>(segments[0].begin()) == words.data() + 1) {
      words[0] = std::uint64_t{segments[0].size()} << 32;
    } else {
      const auto flat = capnp::messageToFlatArray(segments);
      // Twice the size, so that the next message like this one is built in place.
      std::vector<std::uint64_t> grown(std::min(2 * size, std::max(size, kKeepWords)));
      std::memcpy(grown.data(), flat.begin(), size * 8);
      words = std::move(grown);
    }
    buffer.used_ = size;
    return {};
  } catch (const Refused& refused) {
    return failed(refused.error);
  } catch (const kj::Exception& e) {
    return failed(error(Errc::kLimitExceeded, std::string("cannot encode: ") + e.getDescription().cStr()));
  }
}

void LogBuffer::renumber(std::uint64_t first) {
  TW_CHECK(buffer_.used_ > 0, "there is a message");
  // Their number less one, and the size of each, in half words; then the segments.
  std::uint32_t last = 0;
  std::memcpy(&last, buffer_.words_.data(), sizeof last);
  std::vector<std::uint32_t> table(last + 2);
  std::memcpy(table.data(), buffer_.words_.data(), table.size() * sizeof last);
  std::vector<capnp::MessageBuilder::SegmentInit> segments(last + 1);
  auto* at = reinterpret_cast<capnp::word*>(buffer_.words_.data()) + segments.size() / 2 + 1;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    segments[i] = {{at, table[i + 1]}, table[i + 1]};
    at += table[i + 1];
  }
  class Again final : public capnp::MessageBuilder {
   public:
    explicit Again(std::span<SegmentInit> segments)
        : MessageBuilder(kj::ArrayPtr<SegmentInit>(segments.data(), segments.size())) {}
    kj::ArrayPtr<capnp::word> allocateSegment(unsigned) override { KJ_FAIL_REQUIRE("nothing is added"); }
  } again(segments);
  auto message = again.getRoot<wire::Message>();
  TW_CHECK(message.isLog(), "only a log has a first entry");
  message.getLog().setFirst(first);
}

Status LogBuffer::encode(const msg::Log& log) {
  if (!log.entries.empty() && log.entries.are(held_.entries) && log.term == held_.term) {
    renumber(log.first);
    return {};
  }
  held_ = {};
  msg::Message message = log;
  if (Status ok = codec::encode(message, buffer_); !ok) return ok;
  held_ = std::get<msg::Log>(std::move(message));
  return {};
}

void LogBuffer::forget() {
  held_ = {};
  buffer_.shrink();
}

}  // namespace tilewise::codec

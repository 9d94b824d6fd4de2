#include <tilewise/codec/codec.h>

#include <capnp/message.h>
#include <capnp/serialize.h>

#include <algorithm>
#include <cstring>

#include "common.h"
#include "msg.capnp.h"

namespace tilewise::codec {
namespace {

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

template <class E> auto wire_enum(E value) { return static_cast<std::uint16_t>(value); }

unsigned count(std::size_t size, std::size_t limit, const char* what) {
  return static_cast<unsigned>(bounded(size, limit, what));
}
unsigned any_count(std::size_t size) {
  return count(size, limits::kMaxMessageBytes / 8, "entries of a list");
}

capnp::Text::Reader text(const std::string& s, std::size_t limit, const char* what) {
  return {s.c_str(), bounded(s.size(), limit, what)};
}
capnp::Text::Reader name(const std::string& s) { return text(s, limits::kMaxNameBytes, "bytes of a name"); }
capnp::Text::Reader line(const std::string& s) { return text(s, limits::kMaxPathBytes, "bytes of a line"); }
capnp::Data::Reader data(const std::string& s, std::size_t limit, const char* what) {
  return {reinterpret_cast<const kj::byte*>(s.data()), bounded(s.size(), limit, what)};
}

// fill(element builder, element) for every element.
template <class List, class Range, class Fill> void each(List list, const Range& range, Fill fill) {
  unsigned i = 0;
  for (const auto& x : range) fill(list[i++], x);
}
template <class List, class Range> void numbers(List list, const Range& range) {
  unsigned i = 0;
  for (const auto& x : range) list.set(i++, x);
}
template <class List, class Range> void ids(List list, const Range& range) {
  unsigned i = 0;
  for (const auto& x : range) list.set(i++, x.value);
}

// ---- ir ------------------------------------------------------------------------------------------------------------

void write(wire::Grid::Builder b, const ir::Grid& grid) {
  each(b.initDims(count(grid.dims().size(), limits::kMaxRank, "dimensions of a grid")), grid.dims(),
       [](wire::DimGrid::Builder d, const ir::DimGrid& dim) {
         d.setExtent(dim.extent());
         if (dim.is_uniform()) {
           d.setBlock(dim.block());
           d.setPhase(dim.phase());
         } else {
           numbers(d.initStarts(count(dim.starts().size(), limits::kMaxExplicitCuts, "cuts of a dimension")),
                   dim.starts());
         }
       });
}

void write(wire::View::Builder b, const ir::View& view) {
  numbers(b.initShape(any_count(view.shape.size())), view.shape);
  each(b.initSource(any_count(view.source.size())), view.source,
       [](wire::SourceDim::Builder s, const ir::SourceDim& source) {
         s.setDim(source.dim);
         s.setStart(source.start);
         s.setStep(source.step);
       });
}

unsigned tape_length(const ir::Tape& tape) {
  return count(tape.code.size(), limits::kMaxTapeInstructions, "instructions of a tape");
}

void write(capnp::List<wire::TapeInstr>::Builder b, const ir::Tape& tape) {
  each(b, tape.code, [](wire::TapeInstr::Builder i, const ir::TapeInstr& instr) {
    i.setOp(wire::TapeOp{wire_enum(instr.op)});
    i.setDtype(wire::DType{wire_enum(instr.dtype)});
    i.setA(instr.a);
    i.setB(instr.b);
    i.setC(instr.c);
    i.setImmF(instr.imm_f);
    i.setImmI(instr.imm_i);
  });
}

unsigned map_count(const std::vector<ir::OperandMap>& maps) {
  return count(maps.size(), limits::kMaxOperands, "maps of an op");
}

void write(capnp::List<wire::OperandMap>::Builder b, const std::vector<ir::OperandMap>& maps) {
  each(b, maps, [](wire::OperandMap::Builder m, const ir::OperandMap& map) {
    each(m.initDims(any_count(map.size())), map, [](wire::DimMap::Builder d, const ir::DimMap& dim) {
      d.setKind(wire::DimMapKind{wire_enum(dim.kind)});
      d.setDim(dim.dim);
      d.setMul(dim.mul);
      d.setDiv(dim.div);
      d.setBefore(dim.before);
      d.setAfter(dim.after);
    });
  });
}

using AttrsBuilder = wire::Op::Attrs::Builder;

void write(AttrsBuilder b, const ir::MapAttrs& a) { write(b.initMap(tape_length(a.tape)), a.tape); }
void write(AttrsBuilder b, const ir::ReduceAttrs& a) {
  auto r = b.initReduce();
  write(r.initTape(tape_length(a.tape)), a.tape);
  r.setKind(wire::ReduceKind{wire_enum(a.kind)});
  r.setAxes(a.axes);
}
void write(AttrsBuilder b, const ir::CombineAttrs& a) {
  auto c = b.initCombine();
  c.setKind(wire::ReduceKind{wire_enum(a.kind)});
  c.setAxis(a.axis);
  c.setFanIn(a.fan_in);
}
void write(AttrsBuilder b, const ir::MatmulAttrs&) { b.setMatmul(); }
void write(AttrsBuilder b, const ir::CopyAttrs& a) { write(b.initCopy(map_count(a.maps)), a.maps); }
void write(AttrsBuilder b, const ir::ReshapeAttrs&) { b.setReshape(); }
void write(AttrsBuilder b, const ir::NpyAttrs& a) {
  auto n = b.initNpy();
  n.setPath(text(a.path, limits::kMaxPathBytes, "bytes of a path"));
  n.setDataOffset(a.data_offset);
  n.setFortranOrder(a.fortran_order);
  n.setToken(a.token);
}
void write(AttrsBuilder b, const ir::CallAttrs& a) {
  auto c = b.initCall();
  c.setKernel(name(a.kernel));
  c.setVersion(name(a.version));
  c.setParams(data(a.params, limits::kMaxParamBytes, "bytes of a kernel's parameters"));
  write(c.initMaps(map_count(a.maps)), a.maps);
  each(c.initExplicitMaps(count(a.explicit_maps.size(), limits::kMaxOperands, "maps of an op")),
       a.explicit_maps, [](wire::ExplicitMap::Builder e, const ir::ExplicitMap& map) {
         numbers(e.initOffsets(
                     count(map.offsets.size(), limits::kMaxExplicitRefs + 1, "points of an explicit map")),
                 map.offsets);
         numbers(
             e.initBlocks(count(map.blocks.size(), limits::kMaxExplicitRefs, "blocks of an explicit map")),
             map.blocks);
       });
  c.setFlopsPerPoint(a.flops_per_point);
  c.setScratchBytes(a.scratch_bytes);
}
void write(AttrsBuilder b, const ir::FetchAttrs& a) { b.setFetch(a.to.value); }

void write(wire::Op::Builder b, const ir::Op& op) {
  if (op.attrs.index() != attrs_of(op.kind)) {
    refuse(Errc::kInvalidArgument, "an op of kind " + std::to_string(static_cast<int>(op.kind)) +
                                       " carries the attributes of another kind");
  }
  b.setKind(wire::OpKind{wire_enum(op.kind)});
  each(b.initOperands(count(op.operands.size(), limits::kMaxOperands, "operands of an op")), op.operands,
       [](wire::Operand::Builder o, const ir::Operand& operand) {
         o.setArray(operand.array);
         write(o.initView(), operand.view);
       });
  each(b.initOutputs(count(op.outputs.size(), limits::kMaxOutputs, "outputs of an op")), op.outputs,
       [](wire::OutputSpec::Builder o, const ir::OutputSpec& output) {
         o.setArray(output.array);
         o.setDtype(wire::DType{wire_enum(output.dtype)});
         write(o.initGrid(), output.grid);
       });
  write(b.initSpace(), op.space);
  ids(b.initHint(any_count(op.hint.devices.size())), op.hint.devices);
  numbers(b.initHintParts(any_count(op.hint.parts.size())), op.hint.parts);
  b.setHintCopies(op.hint.copies);
  b.setLabel(name(op.label));
  std::visit([&](const auto& attrs) { write(b.getAttrs(), attrs); }, op.attrs);
}

void write(capnp::List<wire::Piece>::Builder b, const ir::Placement& placement) {
  each(b, placement.pieces(), [](wire::Piece::Builder p, const ir::Piece& piece) {
    numbers(p.initLo(any_count(piece.box.lo.size())), piece.box.lo);
    numbers(p.initHi(any_count(piece.box.hi.size())), piece.box.hi);
    auto r = p.initRule();
    numbers(r.initParts(any_count(piece.rule.parts.size())), piece.rule.parts);
    numbers(r.initCyclic(any_count(piece.rule.cyclic.size())), piece.rule.cyclic);
    ids(r.initDevices(count(piece.rule.devices.size(), ir::kMaxRuleDevices, "devices of a placement")),
        piece.rule.devices);
    r.setCopies(piece.rule.copies);
  });
}

// ---- messages ------------------------------------------------------------------------------------------------------

// init() makes the Outcome; not called for "no error", which costs nothing on the wire.
template <class Init> void write_outcome(const msg::Outcome& outcome, Init init) {
  if (outcome == msg::Outcome{}) return;
  wire::Outcome::Builder b = init();
  b.setCode(wire_enum(outcome.code));
  if (outcome.message.size() <= kMaxOutcomeBytes) {
    b.setMessage(text(outcome.message, kMaxOutcomeBytes, "bytes"));
  } else {
    b.setMessage(outcome.message.substr(0, kMaxOutcomeBytes).c_str());
  }
}

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
}

void write(wire::LaneStats::Builder b, const msg::LaneStats& s) {
  b.setLane(wire::Lane{wire_enum(s.lane)});
  b.setTransfers(s.transfers);
  b.setBytes(s.bytes);
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
}

void write(wire::OpAccount::Builder b, const msg::OpAccount& op) {
  b.setOp(line(op.op));
  b.setTasks(op.tasks);
  b.setSteps(op.steps);
  b.setFlops(op.flops);
  b.setBytesWritten(op.bytes_written);
  b.setBytesMoved(op.bytes_moved);
  b.setBeginS(op.begin_s);
  b.setEndS(op.end_s);
  b.setBusyS(op.busy_s);
  b.setCriticalS(op.critical_s);
  each(b.initChoices(any_count(op.choices.size())), op.choices,
       [](wire::ChoiceAccount::Builder c, const msg::ChoiceAccount& choice) {
         c.setPolicy(line(choice.policy));
         c.setPlacement(line(choice.placement));
         c.setSeconds(choice.seconds);
       });
}

void write(wire::Explanation::Builder b, const msg::Explanation& m) {
  b.setRequest(m.request);
  write_outcome(m.outcome, [&] { return b.initOutcome(); });
  b.setSimulated(m.simulated);
  b.setTasks(m.tasks);
  b.setSteps(m.steps);
  b.setFlops(m.flops);
  b.setSeconds(m.seconds);
  b.setBoundS(m.bound_s);
  b.setOpCount(m.op_count);
  each(b.initPasses(any_count(m.passes.size())), m.passes,
       [](wire::PassAccount::Builder p, const msg::PassAccount& pass) {
         p.setName(line(pass.name));
         p.setOps(pass.ops);
         p.setDump(text(pass.dump, limits::kMaxMessageBytes, "bytes of a dump"));
       });
  each(b.initOps(any_count(m.ops.size())), m.ops,
       [](wire::OpAccount::Builder o, const msg::OpAccount& op) { write(o, op); });
  each(b.initDevices(any_count(m.devices.size())), m.devices,
       [](wire::DeviceAccount::Builder d, const msg::DeviceAccount& device) {
         d.setDevice(device.device.value);
         d.setTasks(device.tasks);
         d.setBytesBefore(device.bytes_before);
         d.setBytesPeak(device.bytes_peak);
         d.setBytesAfter(device.bytes_after);
         d.setBytesMemory(device.bytes_memory);
         d.setBusyS(device.busy_s);
       });
  each(b.initLinks(any_count(m.links.size())), m.links,
       [](wire::LinkAccount::Builder l, const msg::LinkAccount& link) {
         l.setFrom(link.from.value);
         l.setTo(link.to.value);
         l.setMapped(link.mapped);
         l.setBlocks(link.blocks);
         l.setBytes(link.bytes);
         l.setBusyS(link.busy_s);
         l.setBytesPerS(link.bytes_per_s);
         l.setMeasured(link.measured);
       });
  each(b.initCritical(any_count(m.critical.size())), m.critical,
       [](wire::CriticalAccount::Builder c, const msg::CriticalAccount& step) {
         c.setOp(step.op);
         c.setDevice(step.device.value);
         c.setWhat(line(step.what));
         c.setSeconds(step.seconds);
       });
  each(b.initArrays(any_count(m.arrays.size())), m.arrays,
       [](wire::ArrayAccount::Builder a, const msg::ArrayAccount& array) {
         a.setArray(array.array);
         a.setDtype(wire::DType{wire_enum(array.dtype)});
         write(a.initGrid(), array.grid);
         write(
             a.initPlacement(count(array.placement.pieces().size(), ir::kMaxPieces, "pieces of a placement")),
             array.placement);
         a.setPlanned(array.planned);
       });
}

void write(wire::Plan::Builder p, const msg::Plan& plan) {
  p.setGraph(plan.graph.value);
  p.setPriority(plan.priority);
  each(p.initOps(any_count(plan.ops.size())), plan.ops,
       [](wire::PlannedOp::Builder o, const msg::PlannedOp& op) {
         o.setId(op.id.value);
         write(o.initOp(), op.op);
         write(o.initPlacement(count(op.placement.pieces().size(), ir::kMaxPieces, "pieces of a placement")),
               op.placement);
         o.setDone(op.done);
         o.setOf(op.of.value);
         if (const ir::RunMap* listed = op.placement.listed()) {
           o.setListed(true);
           each(o.initRuns(count(listed->runs().size(), ir::kMaxRuns, "runs of a placement")), listed->runs(),
                [](auto r, const ir::Run& x) {
                  r.setFirst(x.first), r.setCount(x.count), r.setDevice(x.device.value);
                });
         }
       });
  ids(p.initHolds(any_count(plan.holds.size())), plan.holds);
  p.setSession(plan.session.value);
  p.setWeight(plan.weight);
}

void write(capnp::List<wire::Range>::Builder b, const std::vector<msg::Range>& ranges) {
  each(b, ranges, [](auto r, const msg::Range& x) { r.setFirst(x.first), r.setCount(x.count); });
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
  }
  void operator()(const msg::Recover& m) {
    auto r = b.initRecover();
    r.setVersion(m.version);
    each(r.initPlans(any_count(m.plans.size())), m.plans, [](auto p, const msg::Plan& x) { write(p, x); });
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
  }
  void operator()(const msg::Welcome& m) {
    auto w = b.initWelcome();
    w.setTerm(m.term);
    w.setYou(m.you.value);
    w.setSession(m.session.value);
    ids(w.initDevices(any_count(m.devices.size())), m.devices);
    write_outcome(m.refused, [&] { return w.initRefused(); });
  }
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
  }
  void operator()(const msg::Submit& m) { write(b.initSubmit(), m); }
  void operator()(const msg::Explain& m) {
    auto e = b.initExplain();
    write(e.initSubmit(), m.submit);
    numbers(e.initArrays(any_count(m.arrays.size())), m.arrays);
    e.setGraph(m.graph.value);
  }
  void operator()(const msg::Explanation& m) { write(b.initExplanation(), m); }
  void operator()(const msg::TraceRequest& m) {
    auto t = b.initTraceRequest();
    t.setNonce(m.nonce);
    t.setGraph(m.graph.value);
    t.setMaxSteps(m.max_steps);
  }
  void operator()(const msg::TraceReply& m) {
    auto t = b.initTraceReply();
    t.setNonce(m.nonce);
    t.setWorker(m.worker.value);
    t.setOf(m.of);
    t.setLost(m.lost);
    auto families = t.initFamilies(any_count(m.families.size()));
    unsigned i = 0;
    for (const std::string& family : m.families) families.set(i++, line(family));
    each(t.initSteps(any_count(m.steps.size())), m.steps,
         [](wire::TracedStep::Builder s, const msg::TracedStep& step) {
           s.setOp(step.op.value);
           s.setGraph(step.graph.value);
           s.setPoint(step.point);
           s.setFamily(step.family);
           s.setDevice(step.device.value);
           s.setStream(step.stream);
           s.setStartNs(step.start_ns);
           s.setEndNs(step.end_ns);
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
  }
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
  }
  void operator()(const msg::ReleaseArrays& m) {
    numbers(b.initReleaseArrays(any_count(m.arrays.size())), m.arrays);
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
      });
    }
    if (!m.grants.empty()) {
      each(p.initGrants(any_count(m.grants.size())), m.grants, [](auto g, const msg::Grant& x) {
        head(g, x);
        g.setTransfer(x.transfer);
      });
    }
    if (!m.dones.empty()) {
      each(p.initDones(any_count(m.dones.size())), m.dones, [](auto d, const msg::Done& x) {
        head(d, x);
        d.setOp(x.op.value);
      });
    }
    if (!m.gones.empty()) {
      each(p.initGones(any_count(m.gones.size())), m.gones, [](auto g, const msg::Gone& x) { head(g, x); });
    }
  }
};

}  // namespace

std::span<const std::byte> Buffer::bytes() const {
  return {reinterpret_cast<const std::byte*>(words_.data()), used_ * 8};
}

Status encode(const msg::Message& message, Buffer& buffer) {
  auto& words = buffer.words_;
  if (words.size() > kKeepWords) words = {};
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

}  // namespace tilewise::codec

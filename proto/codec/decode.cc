#include <tilewise/codec/codec.h>

#include <capnp/message.h>
#include <capnp/serialize.h>

#include <cstring>

#include "common.h"
#include "msg.capnp.h"

namespace tilewise::codec {
namespace {

template <class E, class W> E enumerated(W wire, int count, const char* what) {
  const auto value = static_cast<std::uint16_t>(wire);
  if (value >= count)
    refuse(Errc::kInvalidArgument, std::string("unknown ") + what + ' ' + std::to_string(value));
  return static_cast<E>(value);
}

template <class T> T checked(Result<T> result) {
  if (!result) throw Refused{std::move(result).error()};
  return std::move(*result);
}

std::string text(capnp::Text::Reader t, std::size_t limit, const char* what) {
  bounded(t.size(), limit, what);
  return {t.begin(), t.size()};
}
std::string name(capnp::Text::Reader t) { return text(t, limits::kMaxNameBytes, "bytes of a name"); }
std::string line(capnp::Text::Reader t) { return text(t, limits::kMaxPathBytes, "bytes of a line"); }
std::string data(capnp::Data::Reader d, std::size_t limit, const char* what) {
  bounded(d.size(), limit, what);
  return {reinterpret_cast<const char*>(d.begin()), d.size()};
}

// Reads one message. Every list passes through list(), numbers() or per_dim(), which count before they allocate.
class Reader {
 public:
  explicit Reader(std::size_t message_bytes)
      : max_entries_(message_bytes / 8), budget_(kExpansionFactor * message_bytes + kSlack) {}

  msg::Message message(wire::Message::Reader r);

 private:
  void charge(std::size_t entries, std::size_t entry_bytes) {
    // Entries are words at least, so that more of them than the message has words is a lie.
    bounded(entries, max_entries_, "entries of a list");
    if (entries * entry_bytes > budget_)
      refuse(Errc::kLimitExceeded, "the message unfolds to too many bytes");
    budget_ -= entries * entry_bytes;
  }
  template <class T, class List, class Fn>
  std::vector<T> list(const List& from, std::size_t limit, const char* what, Fn fn) {
    charge(bounded(from.size(), limit, what), sizeof(T));
    std::vector<T> out;
    out.reserve(from.size());
    for (const auto x : from) out.push_back(fn(x));
    return out;
  }
  template <class T, class List, class Fn>
  std::vector<T> list(const List& from, Fn fn) {  // as many as the message has room for
    return list<T>(from, max_entries_, "entries of a list", fn);
  }
  // Plain numbers take as much memory as they did on the wire.
  template <class T, class List>
  std::vector<T> numbers(const List& from, std::size_t limit, const char* what) {
    bounded(from.size(), limit, what);
    std::vector<T> out;
    out.reserve(from.size());
    for (const auto x : from) out.push_back(T(x));
    return out;
  }
  template <class T, class List> std::vector<T> ids(const List& from) {
    return numbers<T>(from, limits::kMaxMessageBytes / sizeof(T), "entries of a list");
  }
  template <class T, class List, class Fn> ir::PerDim<T> per_dim(const List& from, Fn fn) {
    bounded(from.size(), limits::kMaxRank, "dimensions");
    ir::PerDim<T> out;
    for (const auto x : from) out.push_back(fn(x));
    return out;
  }
  template <class T, class List> ir::PerDim<T> per_dim(const List& from) {
    return per_dim<T>(from, [](auto x) { return static_cast<T>(x); });
  }

  // ir
  ir::DType dtype(wire::DType t) { return enumerated<ir::DType>(t, ir::kDTypeCount, "dtype"); }
  ir::Grid grid(wire::Grid::Reader r);
  ir::View view(wire::View::Reader r);
  ir::Tape tape(capnp::List<wire::TapeInstr>::Reader r);
  std::vector<ir::OperandMap> maps(capnp::List<wire::OperandMap>::Reader r);
  ir::OpAttrs attrs(wire::Op::Attrs::Reader r);
  ir::CallAttrs call(wire::Op::Attrs::Call::Reader r);
  ir::Op op(wire::Op::Reader r);
  ir::Placement placement(capnp::List<wire::Piece>::Reader r);

  // messages
  msg::Outcome outcome(wire::Outcome::Reader r);
  msg::DeviceDesc device(wire::DeviceDesc::Reader r);
  msg::PeerInfo peer(wire::PeerInfo::Reader r);
  msg::DeviceStats stats(wire::DeviceStats::Reader r);
  msg::LaneStats stats(wire::LaneStats::Reader r);
  msg::FamilyStats stats(wire::FamilyStats::Reader r);
  msg::Submit submit(wire::Submit::Reader r);
  msg::OpAccount account(wire::OpAccount::Reader r);
  msg::ArrayAccount account(wire::ArrayAccount::Reader r);
  msg::Explanation explanation(wire::Explanation::Reader r);
  msg::Plan plan(wire::Plan::Reader r);
  msg::LogEntry entry(wire::LogEntry::Reader r);
  msg::Join join(wire::Join::Reader r);
  msg::Progress progress(wire::Progress::Reader r);
  msg::StatusReply status(wire::StatusReply::Reader r);
  msg::PeerBatch batch(wire::PeerBatch::Reader r);
  std::vector<msg::Range> ranges(capnp::List<wire::Range>::Reader r);
  msg::Held held(wire::Held::Reader r);
  std::vector<std::string> addresses(capnp::List<capnp::Text>::Reader r);

  std::size_t max_entries_, budget_;
};

// ---- ir ------------------------------------------------------------------------------------------------------------

ir::Grid Reader::grid(wire::Grid::Reader r) {
  const auto dim = [this](wire::DimGrid::Reader d) {
    auto starts = numbers<std::int64_t>(d.getStarts(), limits::kMaxExplicitCuts, "cuts of a dimension");
    return checked(starts.empty() ? ir::DimGrid::uniform(d.getExtent(), d.getBlock(), d.getPhase())
                                  : ir::DimGrid::cuts(d.getExtent(), std::move(starts)));
  };
  ir::Grid grid(list<ir::DimGrid>(r.getDims(), limits::kMaxRank, "dimensions of a grid", dim));
  if (auto status = grid.verify(); !status) throw Refused{std::move(status).error()};
  return grid;
}

ir::View Reader::view(wire::View::Reader r) {
  ir::View view;
  view.shape = per_dim<std::int64_t>(r.getShape());
  view.source = per_dim<ir::SourceDim>(r.getSource(), [&](wire::SourceDim::Reader s) {
    if (s.getDim() < -1 || s.getDim() >= view.rank()) {
      refuse(Errc::kInvalidArgument, "a view names its dimension " + std::to_string(s.getDim()) + " of " +
                                         std::to_string(view.rank()));
    }
    if (s.getStep() == 0) refuse(Errc::kInvalidArgument, "a view with step 0");
    return ir::SourceDim{s.getDim(), s.getStart(), s.getStep()};
  });
  checked(ir::checked_volume(view.shape));
  return view;
}

ir::Tape Reader::tape(capnp::List<wire::TapeInstr>::Reader r) {
  return {list<ir::TapeInstr>(
      r, limits::kMaxTapeInstructions, "instructions of a tape", [&](wire::TapeInstr::Reader i) {
        return ir::TapeInstr{enumerated<ir::TapeOp>(i.getOp(), kTapeOps, "tape operation"),
                             dtype(i.getDtype()),
                             i.getA(),
                             i.getB(),
                             i.getC(),
                             i.getImmF(),
                             i.getImmI()};
      })};
}

std::vector<ir::OperandMap> Reader::maps(capnp::List<wire::OperandMap>::Reader r) {
  return list<ir::OperandMap>(r, limits::kMaxOperands, "maps of an op", [&](wire::OperandMap::Reader m) {
    return per_dim<ir::DimMap>(m.getDims(), [](wire::DimMap::Reader d) {
      if (d.getDiv() == 0) refuse(Errc::kInvalidArgument, "an index map divides by 0");
      return ir::DimMap{enumerated<ir::DimMap::Kind>(d.getKind(), kDimMapKinds, "index map"),
                        d.getDim(),
                        d.getMul(),
                        d.getDiv(),
                        d.getBefore(),
                        d.getAfter()};
    });
  });
}

ir::CallAttrs Reader::call(wire::Op::Attrs::Call::Reader r) {
  ir::CallAttrs a;
  a.kernel = name(r.getKernel());
  a.version = name(r.getVersion());
  a.params = data(r.getParams(), limits::kMaxParamBytes, "bytes of a kernel's parameters");
  a.maps = maps(r.getMaps());
  a.explicit_maps = list<ir::ExplicitMap>(
      r.getExplicitMaps(), limits::kMaxOperands, "maps of an op", [&](wire::ExplicitMap::Reader e) {
        return ir::ExplicitMap{
            numbers<std::uint32_t>(e.getOffsets(), limits::kMaxExplicitRefs + 1, "points of an explicit map"),
            numbers<std::int64_t>(e.getBlocks(), limits::kMaxExplicitRefs, "blocks of an explicit map")};
      });
  a.flops_per_point = r.getFlopsPerPoint();
  a.scratch_bytes = r.getScratchBytes();
  return a;
}

ir::OpAttrs Reader::attrs(wire::Op::Attrs::Reader r) {
  const auto reduction = [](wire::ReduceKind k) {
    return enumerated<ir::ReduceKind>(k, kReduceKinds, "reduction");
  };
  switch (r.which()) {
    case wire::Op::Attrs::MAP: return ir::MapAttrs{tape(r.getMap())};
    case wire::Op::Attrs::REDUCE: {
      const auto a = r.getReduce();
      return ir::ReduceAttrs{tape(a.getTape()), reduction(a.getKind()), a.getAxes()};
    }
    case wire::Op::Attrs::COMBINE: {
      const auto a = r.getCombine();
      return ir::CombineAttrs{reduction(a.getKind()), a.getAxis(), a.getFanIn()};
    }
    case wire::Op::Attrs::MATMUL: return ir::MatmulAttrs{};
    case wire::Op::Attrs::COPY: return ir::CopyAttrs{maps(r.getCopy())};
    case wire::Op::Attrs::RESHAPE: return ir::ReshapeAttrs{};
    case wire::Op::Attrs::NPY: {
      const auto a = r.getNpy();
      return ir::NpyAttrs{text(a.getPath(), limits::kMaxPathBytes, "bytes of a path"), a.getDataOffset(),
                          a.getFortranOrder(), a.getToken()};
    }
    case wire::Op::Attrs::CALL: return call(r.getCall());
    case wire::Op::Attrs::FETCH: return ir::FetchAttrs{DeviceId(r.getFetch())};
    case wire::Op::Attrs::SCAN: {
      const auto a = r.getScan();
      return ir::ScanAttrs{reduction(a.getKind()), a.getAxis(),
                           enumerated<ir::ScanMode>(a.getMode(), kScanModes, "scan mode")};
    }
  }
  refuse(Errc::kInvalidArgument, "unknown op attributes " + std::to_string(static_cast<int>(r.which())));
}

ir::Op Reader::op(wire::Op::Reader r) {
  ir::Op op;
  op.kind = enumerated<ir::OpKind>(r.getKind(), kOpKinds, "op kind");
  op.operands = list<ir::Operand>(r.getOperands(), limits::kMaxOperands, "operands of an op",
                                  [&](wire::Operand::Reader o) {
                                    return ir::Operand{o.getArray(), view(o.getView())};
                                  });
  op.outputs = list<ir::OutputSpec>(
      r.getOutputs(), limits::kMaxOutputs, "outputs of an op", [&](wire::OutputSpec::Reader o) {
        return ir::OutputSpec{o.getArray(), dtype(o.getDtype()), grid(o.getGrid())};
      });
  op.space = grid(r.getSpace());
  op.attrs = attrs(r.getAttrs());
  op.hint.devices = ids<DeviceId>(r.getHint());
  op.hint.parts = per_dim<std::int32_t>(r.getHintParts());
  op.hint.copies = r.getHintCopies();
  op.label = name(r.getLabel());
  if (op.attrs.index() != attrs_of(op.kind)) {
    refuse(Errc::kInvalidArgument,
           std::string("a ") + std::string(name_of(op.kind)) + " op carries the attributes of another kind");
  }
  return op;
}

ir::Placement Reader::placement(capnp::List<wire::Piece>::Reader r) {
  return ir::Placement(
      list<ir::Piece>(r, ir::kMaxPieces, "pieces of a placement", [&](wire::Piece::Reader p) {
        const auto rule = p.getRule();
        ir::Piece piece{{per_dim<std::int64_t>(p.getLo()), per_dim<std::int64_t>(p.getHi())},
                        {per_dim<std::int32_t>(rule.getParts()), per_dim<std::uint8_t>(rule.getCyclic()),
                         numbers<DeviceId>(rule.getDevices(), ir::kMaxRuleDevices, "devices of a placement"),
                         rule.getCopies()}};
        if (piece.box.lo.size() != piece.box.hi.size() || piece.rule.parts.size() != piece.box.lo.size() ||
            piece.rule.cyclic.size() != piece.box.lo.size()) {
          refuse(Errc::kInvalidArgument, "a placement whose box and rule differ in rank");
        }
        return piece;
      }));
}

// ---- parts of messages ---------------------------------------------------------------------------------------------

msg::Outcome Reader::outcome(wire::Outcome::Reader r) {
  return {enumerated<Errc>(r.getCode(), kErrcs, "error code"),
          text(r.getMessage(), kMaxOutcomeBytes, "bytes of an error message")};
}

std::vector<std::string> Reader::addresses(capnp::List<capnp::Text>::Reader r) {
  return list<std::string>(r, [](auto a) { return text(a, kMaxAddressBytes, "bytes of an address"); });
}

msg::DeviceDesc Reader::device(wire::DeviceDesc::Reader r) {
  return {name(r.getName()),  r.getKind(),    name(r.getModel()), name(r.getNumericClass()),
          r.getMemoryBytes(), r.getStreams(), r.getSpillBytes()};
}

msg::PeerInfo Reader::peer(wire::PeerInfo::Reader r) {
  msg::PeerInfo p;
  p.id = WorkerId(r.getId());
  p.role = enumerated<msg::Role>(r.getRole(), kRoles, "role");
  p.name = name(r.getName());
  p.host_id = name(r.getHostId());
  p.addresses = addresses(r.getAddresses());
  p.devices = ids<DeviceId>(r.getDevices());
  p.descriptions = list<msg::DeviceDesc>(r.getDescriptions(), [&](auto d) { return device(d); });
  return p;
}

msg::DeviceStats Reader::stats(wire::DeviceStats::Reader r) {
  return {DeviceId(r.getDevice()), r.getBytesUsed(),     r.getBytesPeak(),      r.getBytesResident(),
          r.getStepsRun(),         r.getBusyNs(),        r.getSpilledBytes(),   r.getDiskWritten(),
          r.getDiskRead(),         r.getBlocksWritten(), r.getBlocksReadBack(), r.getBytesHigh()};
}

msg::LaneStats Reader::stats(wire::LaneStats::Reader r) {
  return {enumerated<msg::Lane>(r.getLane(), msg::kLaneCount, "lane"), r.getTransfers(), r.getBytes(),
          r.getFailed()};
}

msg::Plan Reader::plan(wire::Plan::Reader r) {
  msg::Plan p;
  p.graph = GraphId(r.getGraph());
  p.priority = r.getPriority();
  p.ops = list<msg::PlannedOp>(r.getOps(), [&](wire::PlannedOp::Reader o) {
    msg::PlannedOp planned{OpId(o.getId()), op(o.getOp()), placement(o.getPlacement()), o.getDone(),
                           OpId(o.getOf()), o.getAlone(),  outcome(o.getDoomed())};
    if (o.getListed()) {
      planned.placement = ir::Placement::of_runs(
          planned.op.space.counts(),
          list<ir::Run>(o.getRuns(), ir::kMaxRuns, "runs of a placement", [](wire::Run::Reader run) {
            return ir::Run{run.getFirst(), run.getCount(), DeviceId(run.getDevice())};
          }));
    }
    return planned;
  });
  p.holds = ids<ArrayId>(r.getHolds());
  p.session = SessionId(r.getSession());
  p.weight = r.getWeight();
  p.keep_as = r.getKeepAs();
  return p;
}

msg::LogEntry Reader::entry(wire::LogEntry::Reader r) {
  switch (r.which()) {
    case wire::LogEntry::PLAN: return plan(r.getPlan());
    case wire::LogEntry::RELEASE: return msg::Release{ids<ArrayId>(r.getRelease())};
    case wire::LogEntry::CANCEL_GRAPH: {
      const auto c = r.getCancelGraph();
      return msg::CancelGraph{GraphId(c.getGraph()), outcome(c.getWhy())};
    }
    case wire::LogEntry::RETIRE: return msg::Retire{ids<OpId>(r.getRetire())};
    case wire::LogEntry::PEER_JOINED: return msg::PeerJoined{peer(r.getPeerJoined())};
    case wire::LogEntry::PEER_LOST: {
      const auto l = r.getPeerLost();
      return msg::PeerLost{WorkerId(l.getPeer()), l.getVersion(), ids<OpId>(l.getOps())};
    }
    case wire::LogEntry::RECOVER: {
      const auto l = r.getRecover();
      return msg::Recover{l.getVersion(), list<msg::Plan>(l.getPlans(), [&](auto p) { return plan(p); })};
    }
    case wire::LogEntry::REPLAY: {
      const auto p = r.getReplay();
      const OpId op(p.getFirstOp());
      const ArrayId array(p.getFirstArray());
      return msg::Replay{p.getPlan(), GraphId(p.getGraph()),       p.getPriority(),           op,
                         array,       ids<ArrayId>(p.getInputs()), SessionId(p.getSession()), p.getWeight()};
    }
    case wire::LogEntry::FORGET_PLANS: return msg::ForgetPlans{ids<std::uint64_t>(r.getForgetPlans())};
    case wire::LogEntry::DRAIN: {
      const auto l = r.getDrain();
      if (l.getOrder() >= msg::kDrainOrderCount) refuse(Errc::kCorruptData, "unknown order of a drain");
      return msg::Drain{WorkerId(l.getPeer()), msg::DrainOrder{l.getOrder()}, l.getRound(),
                        list<msg::Drain::Keep>(l.getKeeps(), [&](wire::Drain::Keep::Reader k) {
                          return msg::Drain::Keep{ArrayId(k.getArray()), DeviceId(k.getFrom()),
                                                  DeviceId(k.getTo()), ranges(k.getBlocks())};
                        })};
    }
  }
  refuse(Errc::kInvalidArgument, "unknown log entry " + std::to_string(static_cast<int>(r.which())));
}

// ---- messages ------------------------------------------------------------------------------------------------------

msg::Join Reader::join(wire::Join::Reader r) {
  msg::Join j;
  j.role = enumerated<msg::Role>(r.getRole(), kRoles, "role");
  j.name = name(r.getName());
  j.software_version = name(r.getSoftwareVersion());
  j.host_id = name(r.getHostId());
  j.addresses = addresses(r.getAddresses());
  j.devices = list<msg::DeviceDesc>(r.getDevices(), [&](auto d) { return device(d); });
  j.plugins = list<msg::PluginDesc>(r.getPlugins(), [&](wire::PluginDesc::Reader p) {
    return msg::PluginDesc{name(p.getKernel()), name(p.getVersion()), p.getHash()};
  });
  j.black_box = r.getBlackBox();
  j.lease_ns = r.getLeaseNs();
  return j;
}

msg::Progress Reader::progress(wire::Progress::Reader r) {
  msg::Progress p;
  p.log_applied = r.getLogApplied();
  p.ops = list<msg::OpProgress>(r.getOps(), [](wire::OpProgress::Reader o) {
    return msg::OpProgress{OpId(o.getOp()), DeviceId(o.getDevice()), o.getCompleted(), o.getFailed()};
  });
  p.devices = list<msg::DeviceStats>(r.getDevices(), [&](auto d) { return stats(d); });
  p.lanes = list<msg::LaneStats>(r.getLanes(), [&](auto l) { return stats(l); });
  p.families = list<msg::FamilyStats>(r.getFamilies(), [&](auto f) { return stats(f); });
  p.links = list<msg::LinkStats>(r.getLinks(), [](wire::LinkStats::Reader l) {
    return msg::LinkStats{WorkerId(l.getFrom()), l.getSizeClass(), l.getTransfers(), l.getBytes(),
                          l.getBusyNs()};
  });
  p.pairs = list<msg::PairStats>(r.getPairs(), [&](wire::PairStats::Reader l) {
    return msg::PairStats{DeviceId(l.getFrom()),
                          DeviceId(l.getTo()),
                          enumerated<msg::Lane>(l.getLane(), msg::kLaneCount, "lane"),
                          l.getTransfers(),
                          l.getBytes(),
                          l.getBusyNs()};
  });
  p.measured = list<msg::OpMeasured>(r.getMeasured(), [](wire::OpMeasured::Reader o) {
    return msg::OpMeasured{OpId(o.getOp()), DeviceId(o.getDevice()), o.getBusyNs(), o.getBytesMoved()};
  });
  return p;
}

msg::FamilyStats Reader::stats(wire::FamilyStats::Reader r) {
  return {DeviceId(r.getDevice()), line(r.getFamily()), r.getSteps(), r.getBusyNs(), r.getModelNs()};
}

msg::Submit Reader::submit(wire::Submit::Reader r) {
  msg::Submit m;
  m.request = r.getRequest(), m.priority = r.getPriority(), m.weight = r.getWeight();
  m.ops = list<ir::Op>(r.getOps(), limits::kMaxOpsPerSubmit, "ops of a submission",
                       [&](auto o) { return op(o); });
  m.holds = ids<std::uint64_t>(r.getHolds());
  m.replicas = list<std::pair<std::uint64_t, std::uint32_t>>(
      r.getReplicas(), [](auto x) { return std::pair(x.getNumber(), x.getWorkers()); });
  return m;
}

msg::OpAccount Reader::account(wire::OpAccount::Reader r) {
  msg::OpAccount op{line(r.getOp()),   r.getTasks(),  r.getSteps(), r.getFlops(), r.getBytesWritten(),
                    r.getBytesMoved(), r.getBeginS(), r.getEndS(),  r.getBusyS(), r.getCriticalS()};
  op.choices = list<msg::ChoiceAccount>(r.getChoices(), [](wire::ChoiceAccount::Reader c) {
    return msg::ChoiceAccount{line(c.getPolicy()), line(c.getPlacement()), c.getSeconds()};
  });
  return op;
}

msg::ArrayAccount Reader::account(wire::ArrayAccount::Reader r) {
  return {r.getArray(), dtype(r.getDtype()), grid(r.getGrid()), placement(r.getPlacement()), r.getPlanned()};
}

msg::Explanation Reader::explanation(wire::Explanation::Reader r) {
  msg::Explanation e;
  e.request = r.getRequest();
  e.outcome = outcome(r.getOutcome());
  e.simulated = r.getSimulated();
  e.tasks = r.getTasks(), e.steps = r.getSteps();
  e.flops = r.getFlops(), e.seconds = r.getSeconds(), e.bound_s = r.getBoundS();
  e.op_count = r.getOpCount();
  e.passes = list<msg::PassAccount>(r.getPasses(), [](wire::PassAccount::Reader p) {
    return msg::PassAccount{line(p.getName()), p.getOps(),
                            text(p.getDump(), limits::kMaxMessageBytes, "bytes of a dump")};
  });
  e.ops = list<msg::OpAccount>(r.getOps(), [&](auto o) { return account(o); });
  e.devices = list<msg::DeviceAccount>(r.getDevices(), [](wire::DeviceAccount::Reader d) {
    return msg::DeviceAccount{
        DeviceId(d.getDevice()), d.getTasks(),       d.getBytesBefore(), d.getBytesPeak(),
        d.getBytesAfter(),       d.getBytesMemory(), d.getBusyS()};
  });
  e.links = list<msg::LinkAccount>(r.getLinks(), [](wire::LinkAccount::Reader l) {
    return msg::LinkAccount{DeviceId(l.getFrom()), DeviceId(l.getTo()), l.getMapped(),    l.getBlocks(),
                            l.getBytes(),          l.getBusyS(),        l.getBytesPerS(), l.getMeasured()};
  });
  e.critical = list<msg::CriticalAccount>(r.getCritical(), [](wire::CriticalAccount::Reader c) {
    return msg::CriticalAccount{c.getOp(), DeviceId(c.getDevice()), line(c.getWhat()), c.getSeconds()};
  });
  e.arrays = list<msg::ArrayAccount>(r.getArrays(), [&](auto a) { return account(a); });
  return e;
}

msg::StatusReply Reader::status(wire::StatusReply::Reader r) {
  msg::StatusReply s;
  s.term = r.getTerm();
  s.uptime_ns = r.getUptimeNs();
  s.peers = list<msg::PeerInfo>(r.getPeers(), [&](auto p) { return peer(p); });
  s.devices = list<msg::DeviceStats>(r.getDevices(), [&](auto d) { return stats(d); });
  s.lanes = list<std::pair<WorkerId, msg::LaneStats>>(r.getLanes(), [&](wire::WorkerLane::Reader l) {
    return std::pair(WorkerId(l.getWorker()), stats(l.getStats()));
  });
  s.graphs = list<msg::GraphStatus>(r.getGraphs(), [](wire::GraphStatus::Reader g) {
    return msg::GraphStatus{
        GraphId(g.getGraph()), SessionId(g.getSession()), g.getDone(), g.getTotal(), g.getOps(),
        g.getFailed()};
  });
  s.graphs_done = r.getGraphsDone(), s.graphs_failed = r.getGraphsFailed();
  s.tasks_done = r.getTasksDone(), s.arrays_live = r.getArraysLive();
  s.families = list<msg::FamilyStats>(r.getFamilies(), [&](auto f) { return stats(f); });
  return s;
}

template <class R> msg::BlockRef block(const R& r) { return {ArrayId(r.getArray()), r.getBlock()}; }

msg::PeerBatch Reader::batch(wire::PeerBatch::Reader r) {
  msg::PeerBatch b;
  b.recovery = r.getRecovery();
  b.subscribes = list<msg::Subscribe>(r.getSubscribes(), [](wire::Subscribe::Reader s) {
    return msg::Subscribe{block(s), OpId(s.getOp()), DeviceId(s.getFrom()), DeviceId(s.getTo())};
  });
  b.offers = list<msg::Offer>(r.getOffers(), [&](wire::Offer::Reader o) {
    msg::Offer offer{block(o),    OpId(o.getOp()), DeviceId(o.getFrom()), DeviceId(o.getTo()),
                     o.getSlab(), o.getOffset(),   o.getBytes()};
    if (o.hasFailed()) offer.failed = outcome(o.getFailed());
    offer.inlined = o.getInlined();
    offer.data = data(o.getData(), limits::kMaxInlineBytes, "inlined bytes of an offer");
    return offer;
  });
  b.grants = list<msg::Grant>(r.getGrants(), [](wire::Grant::Reader g) {
    return msg::Grant{block(g), DeviceId(g.getFrom()), DeviceId(g.getTo()), g.getTransfer()};
  });
  b.dones = list<msg::Done>(r.getDones(), [](wire::Done::Reader d) {
    return msg::Done{block(d), OpId(d.getOp()), DeviceId(d.getFrom()), DeviceId(d.getTo())};
  });
  b.gones = list<msg::Gone>(r.getGones(), [](wire::Gone::Reader g) {
    return msg::Gone{block(g), DeviceId(g.getFrom()), DeviceId(g.getTo())};
  });
  return b;
}

std::vector<msg::Range> Reader::ranges(capnp::List<wire::Range>::Reader r) {
  return list<msg::Range>(r, [](wire::Range::Reader x) { return msg::Range{x.getFirst(), x.getCount()}; });
}

msg::Held Reader::held(wire::Held::Reader r) {
  msg::Held h{r.getVersion()};
  h.shares = list<msg::Held::Share>(r.getShares(), [&](wire::Held::Share::Reader s) {
    return msg::Held::Share{OpId(s.getOp()), DeviceId(s.getDevice()), s.getNext(), ranges(s.getBegun())};
  });
  h.blocks = list<msg::Held::Blocks>(r.getBlocks(), [&](wire::Held::Blocks::Reader b) {
    return msg::Held::Blocks{ArrayId(b.getArray()), DeviceId(b.getDevice()), ranges(b.getSealed()),
                             ranges(b.getWanted())};
  });
  h.cut = r.getCut();
  return h;
}

msg::Message Reader::message(wire::Message::Reader r) {
  switch (r.which()) {
    case wire::Message::JOIN: return join(r.getJoin());
    case wire::Message::WELCOME: {
      const auto w = r.getWelcome();
      return msg::Welcome{w.getTerm(),
                          WorkerId(w.getYou()),
                          SessionId(w.getSession()),
                          ids<DeviceId>(w.getDevices()),
                          outcome(w.getRefused()),
                          w.getState(),
                          w.getDurable()};
    }
    case wire::Message::RESUME: {
      const auto s = r.getResume();
      return msg::Resume{s.getState(), WorkerId(s.getMe()), s.getReceived()};
    }
    case wire::Message::RESUMED: {
      const auto s = r.getResumed();
      return msg::Resumed{s.getTerm(), s.getReceived(), outcome(s.getRefused())};
    }
    case wire::Message::ACK: return msg::Ack{r.getAck()};
    case wire::Message::LOG: {
      const auto l = r.getLog();
      return msg::Log{l.getTerm(), l.getFirst(),
                      list<msg::LogEntry>(l.getEntries(), [&](auto e) { return entry(e); })};
    }
    case wire::Message::PROGRESS: return progress(r.getProgress());
    case wire::Message::TASK_FAILED: {
      const auto t = r.getTaskFailed();
      return msg::TaskFailed{OpId(t.getOp()), DeviceId(t.getDevice()), t.getPoint(), outcome(t.getWhy())};
    }
    case wire::Message::STUCK: {
      const auto s = r.getStuck();
      return msg::Stuck{GraphId(s.getGraph()), OpId(s.getOp()),  DeviceId(s.getDevice()), s.getBytesNeeded(),
                        s.getBytesAvailable(), s.getDiskLimit(), s.getDiskUsed(),         s.getDiskFull()};
    }
    case wire::Message::SUBMIT: return submit(r.getSubmit());
    case wire::Message::SUBMIT_REPLY: {
      const auto s = r.getSubmitReply();
      return msg::SubmitReply{
          s.getRequest(), outcome(s.getOutcome()), GraphId(s.getGraph()),
          list<std::pair<std::uint64_t, ArrayId>>(s.getArrays(), [](wire::NamedArray::Reader n) {
            return std::pair(n.getNumber(), ArrayId(n.getArray()));
          })};
    }
    case wire::Message::GRAPH_PROGRESS: {
      const auto g = r.getGraphProgress();
      return msg::GraphProgress{g.getRequest(), g.getDone(), g.getTotal()};
    }
    case wire::Message::GRAPH_DONE: {
      const auto g = r.getGraphDone();
      return msg::GraphDone{g.getRequest(), outcome(g.getOutcome()), g.getTasks()};
    }
    case wire::Message::RELEASE_ARRAYS: return msg::ReleaseArrays{ids<std::uint64_t>(r.getReleaseArrays())};
    case wire::Message::CANCEL_REQUEST: return msg::CancelRequest{r.getCancelRequest()};
    case wire::Message::STATUS_REQUEST: return msg::StatusRequest{};
    case wire::Message::STATUS_REPLY: return status(r.getStatusReply());
    case wire::Message::SHUTDOWN: return msg::Shutdown{};
    case wire::Message::PING: return msg::Ping{r.getPing()};
    case wire::Message::PONG: return msg::Pong{r.getPong()};
    case wire::Message::REFUSAL: return msg::Refusal{outcome(r.getRefusal())};
    case wire::Message::PEER_HELLO: {
      const auto h = r.getPeerHello();
      return msg::PeerHello{WorkerId(h.getFrom()), WorkerId(h.getTo()), name(h.getHostId()), h.getSlabFds()};
    }
    case wire::Message::ARENA_MAP: {
      const auto a = r.getArenaMap();
      return msg::ArenaMap{
          list<msg::SlabDesc>(a.getSlabs(),
                              [](wire::SlabDesc::Reader s) {
                                return msg::SlabDesc{
                                    DeviceId(s.getDevice()), s.getSlab(), s.getBytes(),
                                    data(s.getIpcHandle(), limits::kMaxNameBytes, "bytes of an IPC handle")};
                              }),
          data(a.getUcxAddress(), limits::kMaxParamBytes, "bytes of a UCX address")};
    }
    case wire::Message::PEER_BATCH: return batch(r.getPeerBatch());
    case wire::Message::EXPLAIN: {
      const auto e = r.getExplain();
      return msg::Explain{submit(e.getSubmit()), ids<std::uint64_t>(e.getArrays()), GraphId(e.getGraph())};
    }
    case wire::Message::EXPLANATION: return explanation(r.getExplanation());
    case wire::Message::TRACE_REQUEST: {
      const auto t = r.getTraceRequest();
      return msg::TraceRequest{t.getNonce(), GraphId(t.getGraph()), t.getMaxSteps(), t.getFromAgeNs(),
                               t.getUntilAgeNs()};
    }
    case wire::Message::HELD: return held(r.getHeld());
    case wire::Message::TRACE_REPLY: {
      const auto t = r.getTraceReply();
      return msg::TraceReply{
          t.getNonce(),
          WorkerId(t.getWorker()),
          t.getOf(),
          t.getLost(),
          list<std::string>(t.getFamilies(), [](capnp::Text::Reader f) { return line(f); }),
          list<msg::TracedStep>(t.getSteps(),
                                [&](wire::TracedStep::Reader s) {
                                  if (s.getKind() >= msg::kTraceKindCount)
                                    refuse(Errc::kCorruptData, "unknown kind of trace record");
                                  return msg::TracedStep{
                                      OpId(s.getOp()),
                                      GraphId(s.getGraph()),
                                      s.getPoint(),
                                      s.getFamily(),
                                      DeviceId(s.getDevice()),
                                      s.getStream(),
                                      s.getStartNs(),
                                      s.getEndNs(),
                                      msg::TraceKind{s.getKind()},
                                      enumerated<msg::Lane>(s.getLane(), msg::kLaneCount, "lane"),
                                      DeviceId(s.getPeer()),
                                      s.getBytes(),
                                      OpId(s.getUser())};
                                }),
          outcome(t.getRefused()),
          t.getNowNs(),
          t.getSinceNs(),
          t.getCut()};
    }
    case wire::Message::BLOCKS_REQUEST: {
      const auto q = r.getBlocksRequest();
      return msg::BlocksRequest{q.getNonce(), ArrayId(q.getArray()), q.getFirst(), q.getCount()};
    }
    case wire::Message::DRAINED: {
      const auto l = r.getDrained();
      return msg::Drained{WorkerId(l.getPeer()), l.getRound(), l.getLeft()};
    }
    case wire::Message::DRAIN_REQUEST: {
      const auto q = r.getDrainRequest();
      if (q.getWish() >= msg::kDrainWishCount) refuse(Errc::kCorruptData, "unknown wish about a drain");
      return msg::DrainRequest{name(q.getWorker()), msg::DrainWish{q.getWish()}};
    }
    case wire::Message::DRAIN_REPLY: {
      const auto q = r.getDrainReply();
      if (q.getState() >= msg::kDrainStateCount) refuse(Errc::kCorruptData, "unknown state of a drain");
      return msg::DrainReply{
          outcome(q.getOutcome()), WorkerId(q.getWorker()), name(q.getName()), msg::DrainState{q.getState()},
          line(q.getWhy()),        q.getTasksLeft(),        q.getBlocksLeft(), q.getBytes()};
    }
    case wire::Message::BLOCKS_REPLY: {
      const auto q = r.getBlocksReply();
      return msg::BlocksReply{
          q.getNonce(), WorkerId(q.getWorker()), q.getOf(), outcome(q.getRefused()),
          list<msg::BlockCopy>(q.getCopies(), [&](wire::BlocksReply::Copy::Reader c) {
            if (c.getState() >= msg::kBlockStateCount) refuse(Errc::kCorruptData, "unknown state of a block");
            return msg::BlockCopy{
                c.getBlock(), DeviceId(c.getDevice()), msg::BlockState{c.getState()}, c.getOwned(),
                c.getBytes(), DeviceId(c.getFrom())};
          })};
    }
    case wire::Message::LEAVE: return msg::Leave{};
    case wire::Message::LAST_WORDS: {
      const auto w = r.getLastWords();
      const auto running = [](wire::LastWords::Running::Reader x) {
        return msg::LastWords::Running{OpId(x.getOp()), DeviceId(x.getDevice()), x.getPoint()};
      };
      return msg::LastWords{WorkerId(w.getWorker()), w.getBlackBox(), name(w.getHow()),
                            list<msg::LastWords::Running>(w.getRunning(), running)};
    }
  }
  refuse(Errc::kInvalidArgument, "unknown message type " + std::to_string(static_cast<int>(r.which())));
}

}  // namespace

Result<msg::Message> decode(std::span<const std::byte> bytes) {
  if (bytes.size() > limits::kMaxMessageBytes) {
    return error(Errc::kLimitExceeded, "a message of " + std::to_string(bytes.size()) + " bytes");
  }
  if (bytes.empty() || bytes.size() % 8 != 0) {
    return error(Errc::kCorruptData,
                 "a message of " + std::to_string(bytes.size()) + " bytes: not whole words");
  }
  std::vector<std::uint64_t> copy;
  if (reinterpret_cast<std::uintptr_t>(bytes.data()) % 8 != 0) {
    copy.resize(bytes.size() / 8);
    std::memcpy(copy.data(), bytes.data(), bytes.size());
    bytes = std::as_bytes(std::span(copy));
  }
  const std::size_t words = bytes.size() / 8;
  capnp::ReaderOptions options;
  options.traversalLimitInWords = kTraversalFactor * words;
  options.nestingLimit = kNestingLevels;
  try {
    capnp::FlatArrayMessageReader reader({reinterpret_cast<const capnp::word*>(bytes.data()), words},
                                         options);
    if (reinterpret_cast<const std::byte*>(reader.getEnd()) != bytes.data() + bytes.size()) {
      return error(Errc::kCorruptData, "a message with something behind its end");
    }
    return Reader(bytes.size()).message(reader.getRoot<wire::Message>());
  } catch (Refused& refused) {
    return std::move(refused.error);
  } catch (const kj::Exception& e) {
    // getDescription, not the whole exception: printing that one starts a symboliser.
    return error(Errc::kCorruptData, std::string("not a message: ") + e.getDescription().cStr());
  }
}

}  // namespace tilewise::codec

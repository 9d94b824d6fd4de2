#include "reader.h"

namespace tilewise::codec {

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

ir::Constants Reader::constants(capnp::List<wire::Constant>::Reader r) {
  return list<ir::Constant>(r, ir::kMaxConstants, "constants of a program", [](wire::Constant::Reader c) {
    return ir::Constant{c.getF(), c.getI()};
  });
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
    case wire::Op::Attrs::MAP: {
      ir::MapAttrs a{tape(r.getMap().getTape())};
      const auto outputs =
          numbers<std::uint16_t>(r.getMap().getOutputs(), limits::kMaxOutputs, "outputs of a tape");
      a.tape.outputs.assign(outputs.begin(), outputs.end());
      return a;
    }
    case wire::Op::Attrs::REDUCE: {
      const auto a = r.getReduce();
      return ir::ReduceAttrs{tape(a.getTape()), reduction(a.getKind()), a.getAxes()};
    }
    case wire::Op::Attrs::COMBINE: {
      const auto a = r.getCombine();
      return ir::CombineAttrs{reduction(a.getKind()), a.getAxis(), a.getFanIn()};
    }
    case wire::Op::Attrs::MATMUL: return ir::MatmulAttrs{r.getMatmul().getParts(), r.getMatmul().getTf32()};
    case wire::Op::Attrs::COPY: return ir::CopyAttrs{maps(r.getCopy())};
    case wire::Op::Attrs::RESHAPE: return ir::ReshapeAttrs{};
    case wire::Op::Attrs::NPY: {
      const auto a = r.getNpy();
      return ir::NpyAttrs{text(a.getPath(), limits::kMaxPathBytes, "bytes of a path"),
                          a.getDataOffset(),
                          a.getFortranOrder(),
                          a.getToken(),
                          {a.getFileBytes(), a.getFileChangedNs()}};
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
  return {name(r.getName()),         r.getKind(),        name(r.getModel()),
          name(r.getNumericClass()), r.getMemoryBytes(), r.getStreams(),
          r.getSpillBytes(),         r.getPinnedBytes(), name(r.getGpu())};
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
          r.getDiskRead(),         r.getBlocksWritten(), r.getBlocksReadBack(), r.getBytesHigh(),
          r.getPinnedBytes(),      r.getPinnedWritten(), r.getPinnedRead(),     r.getLodgedBytes(),
          r.getLodgedWritten(),    r.getLodgedRead(),    r.getGuestBytes(),     r.getRelocated(),
          r.getDiskTaken()};
}

msg::LaneStats Reader::stats(wire::LaneStats::Reader r) {
  return {enumerated<msg::Lane>(r.getLane(), msg::kLaneCount, "lane"), r.getTransfers(), r.getBytes(),
          r.getFailed()};
}

msg::Plan Reader::plan(wire::Plan::Reader r) {
  msg::Plan p;
  p.graph = GraphId(r.getGraph());
  p.priority = r.getPriority();
  std::vector<ir::Placement> placements;  // of the ops so far; copies share what they hold
  p.ops = list<msg::PlannedOp>(r.getOps(), [&](wire::PlannedOp::Reader o) {
    msg::PlannedOp planned{OpId(o.getId()), op(o.getOp()), placement(o.getPlacement()), o.getDone(),
                           OpId(o.getOf()), o.getAlone(),  outcome(o.getDoomed()),      o.getLevelNs()};
    const std::uint32_t like = o.getPlacedAs();
    if (like > 0 && (o.getListed() || o.getPlacement().size() > 0))
      refuse(Errc::kInvalidArgument, "an op that is placed as another one, and otherwise too");
    if (o.getListed()) {
      planned.placement = ir::Placement::of_runs(
          planned.op.space.counts(),
          list<ir::Run>(o.getRuns(), ir::kMaxRuns, "runs of a placement", [](wire::Run::Reader run) {
            return ir::Run{run.getFirst(), run.getCount(), DeviceId(run.getDevice())};
          }));
    } else if (like > 0) {
      if (like > placements.size() || placements[like - 1].listed())
        refuse(Errc::kInvalidArgument,
               "an op that is placed as one that does not come before it, or is listed");
      planned.placement = placements[like - 1];
    }
    placements.push_back(planned.placement);
    return planned;
  });
  p.holds = ids<ArrayId>(r.getHolds());
  p.session = SessionId(r.getSession());
  p.weight = r.getWeight();
  p.keep_as = r.getKeepAs();
  return p;
}

std::vector<msg::Tail> Reader::tails(capnp::List<wire::Tail>::Reader r) {
  return list<msg::Tail>(r, [](wire::Tail::Reader t) {
    return msg::Tail{OpId(t.getOp()), DeviceId(t.getDevice()), t.getFrom()};
  });
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
      return msg::PeerLost{WorkerId(l.getPeer()), l.getVersion(), ids<OpId>(l.getOps()), tails(l.getHolds())};
    }
    case wire::LogEntry::RECOVER: {
      const auto l = r.getRecover();
      return msg::Recover{l.getVersion(), list<msg::Plan>(l.getPlans(), [&](auto p) { return plan(p); }),
                          tails(l.getMoved())};
    }
    case wire::LogEntry::REPLAY: {
      const auto p = r.getReplay();
      const OpId op(p.getFirstOp());
      const ArrayId array(p.getFirstArray());
      return msg::Replay{p.getPlan(),
                         GraphId(p.getGraph()),
                         p.getPriority(),
                         op,
                         array,
                         ids<ArrayId>(p.getInputs()),
                         SessionId(p.getSession()),
                         p.getWeight(),
                         constants(p.getConstants())};
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

}  // namespace tilewise::codec

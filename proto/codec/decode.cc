#include <capnp/message.h>
#include <capnp/serialize.h>

#include <cstring>

#include "reader.h"

namespace tilewise::codec {

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
  m.keeps = list<msg::Keep>(r.getKeeps(), [](wire::Keep::Reader k) {
    return msg::Keep{k.getArray(), k.getCopies()};
  });
  m.keep_as = r.getKeepAs(), m.program = r.getProgram(), m.first_output = r.getFirstOutput();
  m.inputs = ids<std::uint64_t>(r.getInputs());
  m.account = r.getAccount();
  m.constants = constants(r.getConstants());
  return m;
}

msg::Announce Reader::announce(wire::Announce::Reader r) {
  msg::Announce a;
  a.request = r.getRequest();
  a.name = name(r.getName());
  a.dtype = dtype(r.getDtype());
  a.shape = per_dim<std::int64_t>(r.getShape());
  a.processes = r.getProcesses();
  a.timeout_ns = r.getTimeoutNs();
  a.array = r.getArray();
  a.weight = r.getWeight();
  a.pieces = list<ir::Box>(
      r.getPieces(), msg::kMaxAnnouncedPieces, "pieces of an announcement", [&](wire::Box::Reader b) {
        return ir::Box{per_dim<std::int64_t>(b.getLo()), per_dim<std::int64_t>(b.getHi())};
      });
  a.failed = outcome(r.getFailed());
  return a;
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

template <class R> static msg::BlockRef block(const R& r) { return {ArrayId(r.getArray()), r.getBlock()}; }

msg::PeerBatch Reader::batch(wire::PeerBatch::Reader r) {
  msg::PeerBatch b;
  b.recovery = r.getRecovery();
  b.subscribes = list<msg::Subscribe>(r.getSubscribes(), [](wire::Subscribe::Reader s) {
    return msg::Subscribe{block(s), OpId(s.getOp()), DeviceId(s.getFrom()), DeviceId(s.getTo()),
                          DeviceId(s.getVia())};
  });
  b.offers = list<msg::Offer>(r.getOffers(), [&](wire::Offer::Reader o) {
    msg::Offer offer{block(o),    OpId(o.getOp()), DeviceId(o.getFrom()), DeviceId(o.getTo()),
                     o.getSlab(), o.getOffset(),   o.getBytes()};
    if (o.hasFailed()) offer.failed = outcome(o.getFailed());
    offer.inlined = o.getInlined();
    offer.data = data(o.getData(), limits::kMaxInlineBytes, "inlined bytes of an offer");
    offer.via = DeviceId(o.getVia());
    offer.relays = o.getRelays();
    return offer;
  });
  b.grants = list<msg::Grant>(r.getGrants(), [](wire::Grant::Reader g) {
    return msg::Grant{block(g),        DeviceId(g.getFrom()), DeviceId(g.getTo()),
                      g.getTransfer(), DeviceId(g.getVia()),  g.getInParts()};
  });
  b.relays = list<msg::Relay>(r.getRelays(), [&](wire::Relay::Reader x) {
    if (x.getWord() >= msg::kRelayWordCount) refuse(Errc::kCorruptData, "unknown word about a relay");
    return msg::Relay{block(x), DeviceId(x.getFrom()), DeviceId(x.getTo()), msg::RelayWord(x.getWord()),
                      x.getTransfer()};
  });
  b.dones = list<msg::Done>(r.getDones(), [](wire::Done::Reader d) {
    return msg::Done{block(d), OpId(d.getOp()), DeviceId(d.getFrom()), DeviceId(d.getTo()),
                     OpId(d.getAlso())};
  });
  b.gones = list<msg::Gone>(r.getGones(), [](wire::Gone::Reader g) {
    return msg::Gone{block(g), DeviceId(g.getFrom()), DeviceId(g.getTo())};
  });
  b.probes = list<msg::Probe>(r.getProbes(), [](wire::Probe::Reader p) {
    return msg::Probe{DeviceId(p.getFrom()), DeviceId(p.getTo()), p.getTransfer(), p.getBytes()};
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
  h.fetches = list<msg::Held::Fetch>(r.getFetches(), [&](wire::Held::Fetch::Reader f) {
    return msg::Held::Fetch{f.getRequest(), ArrayId(f.getArray()), ranges(f.getMissing())};
  });
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
                          w.getDurable(),
                          w.getIntroduced()};
    }
    case wire::Message::RESUME: {
      const auto s = r.getResume();
      return msg::Resume{s.getState(), WorkerId(s.getMe()), s.getReceived(), s.getTerm()};
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
      return msg::Stuck{GraphId(s.getGraph()), OpId(s.getOp()),   DeviceId(s.getDevice()), s.getBytesNeeded(),
                        s.getBytesAvailable(), s.getDiskLimit(),  s.getDiskUsed(),         s.getDiskFull(),
                        s.getPinnedLimit(),    s.getPinnedUsed(), outcome(s.getRefused())};
    }
    case wire::Message::SUBMIT: return submit(r.getSubmit());
    case wire::Message::SUBMIT_REPLY: {
      const auto s = r.getSubmitReply();
      return msg::SubmitReply{
          s.getRequest(),
          outcome(s.getOutcome()),
          GraphId(s.getGraph()),
          list<std::pair<std::uint64_t, ArrayId>>(
              s.getArrays(),
              [](wire::NamedArray::Reader n) { return std::pair(n.getNumber(), ArrayId(n.getArray())); }),
          grid(s.getGrid()),
          needs(s.getNeeds()),
          OpId(s.getLastOp())};
    }
    case wire::Message::GRAPH_PROGRESS: {
      const auto g = r.getGraphProgress();
      return msg::GraphProgress{g.getRequest(), g.getDone(), g.getTotal()};
    }
    case wire::Message::GRAPH_DONE: {
      const auto g = r.getGraphDone();
      return msg::GraphDone{g.getRequest(), outcome(g.getOutcome()), g.getTasks(), needs(g.getNeeds())};
    }
    case wire::Message::RELEASE_ARRAYS: {
      const auto a = r.getReleaseArrays();
      return msg::ReleaseArrays{ids<std::uint64_t>(a.getArrays()), ids<std::uint64_t>(a.getDelivered())};
    }
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
      return msg::Explain{submit(e.getSubmit()), ids<std::uint64_t>(e.getArrays()), GraphId(e.getGraph()),
                          e.getAccount()};
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
    case wire::Message::LINK_PROBE: {
      const auto p = r.getLinkProbe();
      return msg::LinkProbe{p.getNonce(), DeviceId(p.getFrom()), DeviceId(p.getTo())};
    }
    case wire::Message::LINK_PROBED: {
      const auto p = r.getLinkProbed();
      if (p.getEnd() >= msg::kProbeEndCount) refuse(Errc::kCorruptData, "unknown end of a link probe");
      const auto size = [](wire::LinkProbed::Size::Reader s) {
        return msg::ProbedSize{s.getBytes(), s.getTransfers(), s.getTookNs(),
                               enumerated<msg::Lane>(s.getLane(), msg::kLaneCount, "lane")};
      };
      return msg::LinkProbed{p.getNonce(), msg::ProbeEnd{p.getEnd()}, p.getMapped(),
                             list<msg::ProbedSize>(p.getSizes(), size), line(p.getWhy())};
    }
    case wire::Message::LEAVE: return msg::Leave{};
    case wire::Message::ANNOUNCE: return announce(r.getAnnounce());
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

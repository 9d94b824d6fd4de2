#include "random_message.h"

#include <stdexcept>

namespace tilewise::codec {
namespace {

struct Gen {
  Prng& prng;

  std::uint64_t u64() { return prng.chance(0.3) ? prng.below(4) : prng.next(); }
  std::uint32_t u32() { return static_cast<std::uint32_t>(u64()); }
  std::int64_t i64() { return static_cast<std::int64_t>(u64()); }
  std::int32_t i32() { return static_cast<std::int32_t>(u64()); }
  bool flag() { return prng.chance(0.5); }
  template <class E> E pick(int count) {
    return static_cast<E>(prng.below(static_cast<std::uint64_t>(count)));
  }
  template <class I> I id() { return I(static_cast<typename I::rep>(u64())); }
  std::string text(std::size_t limit = 40) {
    std::string s(prng.below(limit + 1), ' ');
    for (char& c : s) c = static_cast<char>(prng.below(256));
    return s;
  }
  template <class Fn> auto list(std::size_t limit, Fn fn) {
    std::vector<decltype(fn())> out;
    for (std::size_t n = prng.below(limit + 1); n > 0; --n) out.push_back(fn());
    return out;
  }
  template <class T, class Fn> ir::PerDim<T> per_dim(int rank, Fn fn) {
    ir::PerDim<T> out;
    for (int d = 0; d < rank; ++d) out.push_back(static_cast<T>(fn()));
    return out;
  }
  int rank() { return static_cast<int>(prng.below(limits::kMaxRank + 1)); }

  ir::DimGrid dim_grid() {
    const std::int64_t extent = prng.between(0, 30);
    if (extent > 2 && flag()) {
      std::vector<std::int64_t> starts{0};
      for (std::int64_t at = prng.between(1, 5); at < extent; at += prng.between(1, 5)) starts.push_back(at);
      return ir::DimGrid::cuts(extent, starts).value();
    }
    const std::int64_t block = prng.between(1, 9);
    return ir::DimGrid::uniform(extent, block, prng.between(0, block - 1)).value();
  }
  ir::Grid grid() {
    return ir::Grid(list(4, [&] { return dim_grid(); }));
  }
  ir::View view() {
    ir::View v;
    v.shape = per_dim<std::int64_t>(rank(), [&] { return prng.between(0, 9); });
    for (int n = rank(); n > 0; --n) {
      v.source.push_back({static_cast<std::int8_t>(prng.between(-1, v.rank() - 1)), i64(), flag() ? 1 : -7});
    }
    return v;
  }
  ir::Tape tape() {
    return {list(6, [&] {
      return ir::TapeInstr{pick<ir::TapeOp>(static_cast<int>(ir::TapeOp::kCount)),
                           pick<ir::DType>(ir::kDTypeCount),
                           static_cast<std::uint16_t>(u64()),
                           static_cast<std::uint16_t>(u64()),
                           static_cast<std::uint16_t>(u64()),
                           prng.uniform(),
                           i64()};
    })};
  }
  ir::Constants constants() {
    return list(4, [&] { return ir::Constant{prng.uniform(), i64()}; });
  }
  ir::ReduceKind reduction() { return pick<ir::ReduceKind>(9); }
  std::vector<ir::OperandMap> maps() {
    return list(3, [&] {
      ir::OperandMap map;
      for (int n = rank(); n > 0; --n) {
        map.push_back({pick<ir::DimMap::Kind>(4), static_cast<std::int8_t>(u64()), i64(), prng.between(1, 5),
                       i64(), i64()});
      }
      return map;
    });
  }
  ir::OpAttrs attrs(ir::OpKind kind) {
    switch (kind) {
      case ir::OpKind::kMap: {
        ir::MapAttrs a{tape()};
        for (std::uint64_t n = prng.below(limits::kMaxOutputs + 1); n > 0; --n)
          a.tape.outputs.push_back(static_cast<std::uint16_t>(u64()));
        return a;
      }
      case ir::OpKind::kReduce:
      case ir::OpKind::kReduceBlocks: return ir::ReduceAttrs{tape(), reduction(), u32()};
      case ir::OpKind::kCombine: return ir::CombineAttrs{reduction(), static_cast<std::int8_t>(u64()), i64()};
      case ir::OpKind::kMatmul:
      case ir::OpKind::kMatmulPanels: return ir::MatmulAttrs{i64(), flag()};
      case ir::OpKind::kCopy: return ir::CopyAttrs{maps()};
      case ir::OpKind::kReshape: return ir::ReshapeAttrs{};
      case ir::OpKind::kReadNpy:
      case ir::OpKind::kWriteNpy: return ir::NpyAttrs{text(), i64(), flag(), u64(), {i64(), i64()}};
      case ir::OpKind::kCall: {
        const auto explicit_map = [&] {
          return ir::ExplicitMap{list(5, [&] { return u32(); }), list(9, [&] { return i64(); })};
        };
        return ir::CallAttrs{text(), text(), text(), maps(), list(2, explicit_map), prng.uniform(), i64()};
      }
      case ir::OpKind::kFetch:
      case ir::OpKind::kKeep:
      case ir::OpKind::kProvide: return ir::FetchAttrs{id<DeviceId>()};
      case ir::OpKind::kScan:
        return ir::ScanAttrs{reduction(), static_cast<std::int8_t>(u64()), pick<ir::ScanMode>(3)};
    }
    throw std::logic_error("kind");
  }
  ir::Op op(ir::OpKind kind) {
    ir::Op o;
    o.kind = kind;
    o.operands = list(3, [&] { return ir::Operand{u64(), view()}; });
    o.outputs = list(2, [&] { return ir::OutputSpec{u64(), pick<ir::DType>(ir::kDTypeCount), grid()}; });
    o.space = grid();
    o.attrs = attrs(kind);
    o.hint.devices = list(3, [&] { return id<DeviceId>(); });
    if (flag()) o.hint.parts = {1, 2}, o.hint.copies = 3;
    o.label = text();
    return o;
  }
  ir::Op op() { return op(pick<ir::OpKind>(static_cast<int>(ir::OpKind::kKeep) + 1)); }

  ir::Placement placement() {
    return ir::Placement(list(3, [&] {
      const int r = rank();
      ir::Piece p;
      p.box.lo = per_dim<std::int64_t>(r, [&] { return prng.between(0, 3); });
      p.box.hi = per_dim<std::int64_t>(r, [&] { return prng.between(0, 9); });
      p.rule.parts = per_dim<std::int32_t>(r, [&] { return prng.between(1, 2); });
      p.rule.cyclic = per_dim<std::uint8_t>(r, [&] { return prng.below(2); });
      std::size_t places = 1;
      for (const auto parts : p.rule.parts) places *= static_cast<std::size_t>(parts);
      for (std::size_t i = 0; i < places; ++i) p.rule.devices.push_back(DeviceId(1 + u32() % 9));
      return p;
    }));
  }

  msg::Outcome outcome() {
    if (flag()) return {};
    return {pick<Errc>(static_cast<int>(Errc::kSingular) + 1), text()};
  }
  msg::DeviceDesc device() {
    return {text(), static_cast<std::uint8_t>(u64()), text(), text(), i64(), i32(), i64(), i64(), text()};
  }
  msg::PeerInfo peer() {
    return {id<WorkerId>(),
            pick<msg::Role>(3),
            text(),
            text(),
            list(3, [&] { return text(300); }),
            list(3, [&] { return id<DeviceId>(); }),
            list(3, [&] { return device(); })};
  }
  msg::DeviceStats device_stats() {
    return {id<DeviceId>(), i64(), i64(), i64(), i64(), i64(), i64(), i64(), i64(), i64(), i64(),
            i64(),          i64(), i64(), i64(), i64(), i64(), i64(), i64(), i64(), i64()};
  }
  msg::LaneStats lane_stats() { return {pick<msg::Lane>(msg::kLaneCount), i64(), i64(), i64()}; }
  msg::FamilyStats family_stats() { return {id<DeviceId>(), text(), i64(), i64(), i64()}; }
  double real() { return static_cast<double>(i64()) / 1024; }
  msg::PlannedOp planned() {
    msg::PlannedOp p{id<OpId>(), op(), placement(), flag(), id<OpId>(), flag(), outcome(), i64()};
    if (flag()) {
      p.placement = ir::Placement::of_runs(p.op.space.counts(), list(5, [&] {
                                             return ir::Run{i64(), i64(), id<DeviceId>()};
                                           }));
    }
    return p;
  }
  std::vector<msg::PlannedOp> planned_ops() {  // some placed as others are
    std::vector<msg::PlannedOp> ops = list(12, [&] { return planned(); });
    for (std::size_t i = 1; i < ops.size(); ++i) {
      const ir::Placement& other = ops[prng.below(i)].placement;
      if (flag() && !other.listed()) ops[i].placement = other;  // runs are of their op's own space
    }
    return ops;
  }
  msg::Plan plan() {
    return {id<GraphId>(),   i32(), planned_ops(), list(3, [&] { return id<ArrayId>(); }),
            id<SessionId>(), u32(), u64()};
  }
  std::vector<msg::Range> ranges() {
    return list(4, [&] { return msg::Range{i64(), i64()}; });
  }
  std::vector<msg::Tail> tails() {
    return list(3, [&] { return msg::Tail{id<OpId>(), id<DeviceId>(), i64()}; });
  }
  msg::LogEntry entry() {
    switch (prng.below(std::variant_size_v<msg::LogEntry::variant>)) {
      case 0: return plan();
      case 1: return msg::Release{list(9, [&] { return id<ArrayId>(); })};
      case 2: return msg::CancelGraph{id<GraphId>(), outcome()};
      case 3: return msg::Retire{list(9, [&] { return id<OpId>(); })};
      case 4: return msg::PeerJoined{peer()};
      case 5: return msg::PeerLost{id<WorkerId>(), u64(), list(9, [&] { return id<OpId>(); }), tails()};
      case 6: return msg::Recover{u64(), list(2, [&] { return plan(); }), tails()};
      case 7:
        return msg::Replay{u64(),           id<GraphId>(), i32(),
                           id<OpId>(),      id<ArrayId>(), list(9, [&] { return id<ArrayId>(); }),
                           id<SessionId>(), u32(),         constants()};
      case 8: return msg::ForgetPlans{list(9, [&] { return u64(); })};
      default:
        return msg::Drain{id<WorkerId>(), pick<msg::DrainOrder>(msg::kDrainOrderCount), u64(), list(3, [&] {
                            return msg::Drain::Keep{id<ArrayId>(), id<DeviceId>(), id<DeviceId>(), ranges()};
                          })};
    }
  }
  msg::BlockRef block() { return {id<ArrayId>(), i64()}; }

  void fill(msg::Join& m) {
    m = {pick<msg::Role>(3),
         text(),
         text(),
         text(),
         list(3, [&] { return text(300); }),
         list(3, [&] { return device(); }),
         list(3,
              [&] {
                return msg::PluginDesc{text(), text(), u64()};
              }),
         u64(),
         i64()};
  }
  void fill(msg::Welcome& m) {
    m = {u32(),     id<WorkerId>(), id<SessionId>(), list(4, [&] { return id<DeviceId>(); }),
         outcome(), u64(),          flag(),          u32()};
  }
  void fill(msg::Resume& m) { m = {u64(), id<WorkerId>(), u64(), u32()}; }
  void fill(msg::Resumed& m) { m = {u32(), u64(), outcome()}; }
  void fill(msg::Ack& m) { m = {u64()}; }
  void fill(msg::Log& m) {
    m = {u32(), u64(), list(5, [&] { return entry(); })};
  }
  void fill(msg::Progress& m) {
    m = {u64(),
         list(20,
              [&] {
                return msg::OpProgress{id<OpId>(), id<DeviceId>(), i64(), i64()};
              }),
         list(4, [&] { return device_stats(); }),
         list(4, [&] { return lane_stats(); }),
         list(4, [&] { return family_stats(); }),
         list(4,
              [&] {
                return msg::LinkStats{id<WorkerId>(), static_cast<std::uint8_t>(prng.below(256)), i64(),
                                      i64(), i64()};
              }),
         list(4,
              [&] {
                return msg::PairStats{id<DeviceId>(), id<DeviceId>(), pick<msg::Lane>(msg::kLaneCount),
                                      i64(),          i64(),          i64()};
              }),
         list(4, [&] {
           return msg::OpMeasured{id<OpId>(), id<DeviceId>(), i64(), i64()};
         })};
  }
  void fill(msg::TaskFailed& m) { m = {id<OpId>(), id<DeviceId>(), i64(), outcome()}; }
  void fill(msg::Stuck& m) {
    m = {id<GraphId>(), id<OpId>(), id<DeviceId>(), i64(), i64(),    i64(),
         i64(),         flag(),     i64(),          i64(), outcome()};
  }
  void fill(msg::Submit& m) {
    m = {u64(),
         i32(),
         list(9, [&] { return op(); }),
         list(9, [&] { return u64(); }),
         u32(),
         list(4,
              [&] {
                return msg::Keep{u64(), u32()};
              }),
         u32(),
         u64(),
         u64(),
         list(9, [&] { return u64(); }),
         constants(),
         flag()};
  }
  void fill(msg::SubmitReply& m) {
    m = {u64(),  outcome(), id<GraphId>(), list(5, [&] { return std::pair(u64(), id<ArrayId>()); }),
         grid(), needs(),   id<OpId>()};
  }
  void fill(msg::Announce& m) {
    const auto place = [&] { return per_dim<std::int64_t>(rank(), [&] { return i64(); }); };
    m = {u64(),    text(), pick<ir::DType>(ir::kDTypeCount),
         place(),  u32(),  i64(),
         u64(),    u32(),  list(9, [&] { return ir::Box{place(), place()}; }),
         outcome()};
  }
  void fill(msg::GraphProgress& m) { m = {u64(), i64(), i64()}; }
  void fill(msg::GraphDone& m) { m = {u64(), outcome(), i64(), needs()}; }
  void fill(msg::ReleaseArrays& m) {
    m = {list(9, [&] { return u64(); }), list(3, [&] { return u64(); })};
  }
  void fill(msg::CancelRequest& m) { m = {u64()}; }
  void fill(msg::StatusRequest&) {}
  void fill(msg::StatusReply& m) {
    m = {u32(),
         i64(),
         list(3, [&] { return peer(); }),
         list(3, [&] { return device_stats(); }),
         list(3, [&] { return std::pair(id<WorkerId>(), lane_stats()); }),
         list(3,
              [&] { return msg::GraphStatus{id<GraphId>(), id<SessionId>(), i64(), i64(), i32(), flag()}; }),
         i64(),
         i64(),
         i64(),
         i64(),
         list(3, [&] { return family_stats(); })};
  }
  void fill(msg::Shutdown&) {}
  void fill(msg::Ping& m) { m = {u64()}; }
  void fill(msg::Pong& m) { m = {u64()}; }
  void fill(msg::Refusal& m) { m = {outcome()}; }
  void fill(msg::PeerHello& m) { m = {id<WorkerId>(), id<WorkerId>(), text(), i32()}; }
  void fill(msg::ArenaMap& m) {
    m = {list(3, [&] { return msg::SlabDesc{id<DeviceId>(), u32(), i64(), text(64)}; }), text(300)};
  }
  void fill(msg::Held& m) {
    m.version = u64();
    m.shares = list(3, [&] { return msg::Held::Share{id<OpId>(), id<DeviceId>(), i64(), ranges()}; });
    m.blocks = list(3, [&] { return msg::Held::Blocks{id<ArrayId>(), id<DeviceId>(), ranges(), ranges()}; });
    m.cut = flag();
    m.fetches = list(3, [&] { return msg::Held::Fetch{u64(), id<ArrayId>(), ranges()}; });
  }
  void fill(msg::PeerBatch& m) {
    m.recovery = u64();
    m.subscribes = list(9, [&] {
      return msg::Subscribe{block(), id<OpId>(), id<DeviceId>(), id<DeviceId>(), id<DeviceId>()};
    });
    m.offers = list(9, [&] {
      return msg::Offer{block(), id<OpId>(), id<DeviceId>(), id<DeviceId>(), u32(),          i64(),
                        i64(),   outcome(),  flag(),         text(300),      id<DeviceId>(), flag()};
    });
    m.grants = list(9, [&] {
      return msg::Grant{block(), id<DeviceId>(), id<DeviceId>(), u64(), id<DeviceId>(), flag()};
    });
    m.relays = list(9, [&] {
      return msg::Relay{block(), id<DeviceId>(), id<DeviceId>(), pick<msg::RelayWord>(msg::kRelayWordCount),
                        u64()};
    });
    m.dones = list(9, [&] {
      return msg::Done{block(), id<OpId>(), id<DeviceId>(), id<DeviceId>(), id<OpId>()};
    });
    m.gones = list(9, [&] { return msg::Gone{block(), id<DeviceId>(), id<DeviceId>()}; });
    m.probes = list(3, [&] { return msg::Probe{id<DeviceId>(), id<DeviceId>(), u64(), i64()}; });
  }

  void fill(msg::Explain& m) {
    fill(m.submit);
    m.arrays = list(9, [&] { return u64(); });
    m.graph = id<GraphId>();
    m.account = flag();
  }
  std::vector<msg::NeedAccount> needs() {
    return list(3, [&] {
      return msg::NeedAccount{
          list(3, [&] { return id<DeviceId>(); }), i64(), i64(), i64(), text(), i64(), i64(), i64(), i64()};
    });
  }
  msg::Measured measured() {
    msg::Measured m{true, flag(), flag(), outcome(), real(), real(), i64(), i64(), u32(), {}, {}, {}};
    m.ops = list(3, [&] {
      return msg::MeasuredOp{id<OpId>(), u32(), i64(), i64(), i64(), real(), real(), real(), real()};
    });
    m.devices = list(
        3, [&] { return msg::MeasuredDevice{id<DeviceId>(), i64(), i64(), i64(), i64(), i64(), real()}; });
    m.links = list(3, [&] {
      return msg::MeasuredLink{id<DeviceId>(), id<DeviceId>(), pick<msg::Lane>(msg::kLaneCount),
                               i64(),          i64(),          real()};
    });
    return m;
  }
  void fill(msg::Explanation& m) {
    m = {u64(), outcome(), flag(), i64(), i64(), real(), real(), real(), {}, u32(), {}, {}, {}, {}, {}};
    m.passes = list(3, [&] { return msg::PassAccount{text(), u32(), text(300)}; });
    m.ops = list(3, [&] {
      return msg::OpAccount{
          text(), i64(), i64(), real(), i64(), i64(), real(), real(), real(), real(), list(3, [&] {
            return msg::ChoiceAccount{text(), text(), real()};
          })};
    });
    m.devices = list(3, [&] {
      return msg::DeviceAccount{id<DeviceId>(), i64(), i64(), i64(), i64(), i64(),
                                real(),         i64(), i64(), i64(), real()};
    });
    m.links = list(3, [&] {
      return msg::LinkAccount{id<DeviceId>(), id<DeviceId>(), flag(), i64(), i64(), real(), real(), flag()};
    });
    m.critical = list(3, [&] { return msg::CriticalAccount{u32(), id<DeviceId>(), text(), real()}; });
    m.arrays = list(3, [&] {
      return msg::ArrayAccount{u64(), pick<ir::DType>(ir::kDTypeCount), grid(), placement(), flag()};
    });
    m.fits = flag();
    m.needs = needs();
    m.unpredicted = text();
    if (flag()) m.measured = measured();
  }

  void fill(msg::TraceRequest& m) { m = {u64(), id<GraphId>(), u32(), i64(), i64()}; }
  void fill(msg::TraceReply& m) {
    m = {u64(),
         id<WorkerId>(),
         u32(),
         u64(),
         list(3, [&] { return text(); }),
         list(9,
              [&] {
                return msg::TracedStep{id<OpId>(),
                                       id<GraphId>(),
                                       i64(),
                                       u32(),
                                       id<DeviceId>(),
                                       static_cast<std::uint8_t>(prng.below(4)),
                                       i64(),
                                       i64(),
                                       pick<msg::TraceKind>(msg::kTraceKindCount),
                                       pick<msg::Lane>(msg::kLaneCount),
                                       id<DeviceId>(),
                                       i64(),
                                       id<OpId>()};
              }),
         outcome(),
         i64(),
         i64(),
         u64()};
  }
  void fill(msg::BlocksRequest& m) { m = {u64(), id<ArrayId>(), i64(), i64()}; }
  void fill(msg::BlocksReply& m) {
    m = {u64(), id<WorkerId>(), u32(), outcome(), list(9, [&] {
           return msg::BlockCopy{i64(),  id<DeviceId>(), pick<msg::BlockState>(msg::kBlockStateCount),
                                 flag(), i64(),          id<DeviceId>()};
         })};
  }

  void fill(msg::Drained& m) { m = {id<WorkerId>(), u64(), i64()}; }
  void fill(msg::DrainRequest& m) { m = {text(), pick<msg::DrainWish>(msg::kDrainWishCount)}; }
  void fill(msg::DrainReply& m) {
    m = {outcome(), id<WorkerId>(), text(), pick<msg::DrainState>(msg::kDrainStateCount),
         text(),    i64(),          i64(),  i64()};
  }
  void fill(msg::Leave&) {}
  void fill(msg::LinkProbe& m) { m = {u64(), id<DeviceId>(), id<DeviceId>()}; }
  void fill(msg::LinkProbed& m) {
    m = {u64(), pick<msg::ProbeEnd>(msg::kProbeEndCount), flag(),
         list(4,
              [&] {
                return msg::ProbedSize{i64(), u32(), i64(), pick<msg::Lane>(msg::kLaneCount)};
              }),
         text()};
  }
  void fill(msg::LastWords& m) {
    m = {id<WorkerId>(), u64(), text(), list(9, [&] {
           return msg::LastWords::Running{id<OpId>(), id<DeviceId>(), i64()};
         })};
  }

  // A new alternative without a fill() does not compile.
  template <std::size_t I = 0> msg::Message message(std::size_t index) {
    if constexpr (I < std::variant_size_v<msg::Message::variant>) {
      if (index != I) return message<I + 1>(index);
      std::variant_alternative_t<I, msg::Message::variant> m;
      fill(m);
      return m;
    }
    throw std::logic_error("no such message");
  }
};

}  // namespace

msg::Message random_message(std::size_t index, Prng& prng) { return Gen{prng}.message(index); }
ir::Op random_op(ir::OpKind kind, Prng& prng) { return Gen{prng}.op(kind); }

}  // namespace tilewise::codec

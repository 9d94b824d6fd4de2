// Where the owner's way to a block fails, as lists: who is asked next, and what senders say.
#include "lists.h"

using namespace tilewise;
using namespace tilewise::worker;
using namespace tilewise::worker::test;

namespace {

constexpr DeviceId kBeside{5}, kOfB{11}, kOfC{21};  // kBeside: ours
constexpr WorkerId kOnB{11}, kOnC{21};
constexpr msg::BlockRef kTheirs{ArrayId{20}, 0}, kMine{ArrayId{10}, 0};

Options two_devices() {
  Options options = Lists::options_of({kHere, 0, 1 << 20, 1 << 20, 1});
  options.devices.push_back({kBeside, 0, 1 << 20, 1 << 20, 1});
  return options;
}

// Of an array of one block of the peer's, which is not mapped; read by op 3 here, and kept on a second device if there is one.
struct Reader : Lists {
  explicit Reader(bool second = false)
      : Lists(second ? two_devices() : options_of({kHere, 0, 1 << 20, 1 << 20, 1})) {
    step({PeerReady{kOther, false}});
    const ir::Op made = source(20, 1);
    std::vector<msg::PlannedOp> ops{on(kPeer, 2, made), on(kHere, 3, map_of(20, 30, made.space))};
    if (second) ops.push_back(on(kBeside, 4, keep_of(20, made.space)));
    log({plan_of(std::move(ops), {ArrayId{20}})});
  }
  const Actions& offer(DeviceId to = kHere, std::uint64_t op = 3, DeviceId via = {}) {
    msg::PeerBatch batch;
    batch.offers.push_back({kTheirs, OpId{op}, kPeer, to, msg::kNoSlab, 0, 64});
    batch.offers[0].via = via;
    return from_peer(batch);
  }
  const Actions& ends(std::uint64_t transfer, Errc how) {
    return step({TransferDone{transfer, {how, how == Errc::kOk ? "" : "x"}, msg::Lane::kTcp}});
  }
  std::uint64_t granted() const {
    REQUIRE(actions.receives.size() == 1);
    return actions.receives[0].transfer;
  }
  msg::PeerBatch said(WorkerId to = kOther) const {
    for (const auto& [peer, batch] : actions.batches)
      if (peer == to) return batch;
    return {};
  }
};

}  // namespace

TEST_CASE("after a failure of its way the owner is told so, at most twice") {
  Reader w;
  for (int i = 0; i < 2; ++i) {
    w.offer();
    w.ends(w.granted(), i == 0 ? Errc::kNotFound : Errc::kTimeout);
    REQUIRE(w.said().subscribes.size() == 1);
    CHECK(w.said().subscribes[0].via == kPeer);
  }
  w.offer();
  w.ends(w.granted(), Errc::kIo);
  CHECK(w.said().subscribes.empty());
  CHECK(w.core->counters().tasks_failed == 1);
}

TEST_CASE("a link that broke says nothing of the owner's way") {
  Reader w;
  w.offer();
  w.ends(w.granted(), Errc::kUnavailable);
  REQUIRE(w.said().subscribes.size() == 1);
  CHECK_FALSE(w.said().subscribes[0].via);
}

TEST_CASE("another device of the worker that has the block gives it, and else the owner is asked again") {
  Reader w(true);
  w.offer(kBeside, 4);
  w.ends(w.granted(), Errc::kOk);
  w.offer();
  const std::uint64_t first = w.granted();
  w.ends(first, Errc::kIo);
  CHECK(w.said().subscribes.empty());
  REQUIRE(w.actions.transmits.size() == 1);
  CHECK(w.actions.transmits[0].to == kSelf);
  CHECK(w.actions.receives.at(0).from == kSelf);
  CHECK(w.core->counters().detours == 1);
  const std::uint64_t second = w.granted();
  SUBCASE("it comes") {
    w.ends(second, Errc::kOk);
    CHECK(w.said().dones.size() == 1);  // to the owner
    CHECK(w.core->counters().tasks_failed == 0);
    CHECK(w.actions.launches.size() == 1);
  }
  SUBCASE("it fails too") {
    w.ends(second, Errc::kDeviceError);
    REQUIRE(w.said().subscribes.size() == 1);
    CHECK(w.said().subscribes[0].via == kBeside);
  }
}

TEST_CASE("who cannot send what was granted says so, to whoever waits for it") {
  Lists w;
  const ir::Op made = source(10, 1);
  w.log({plan_of({on(kHere, 1, made), on(kPeer, 2, map_of(10, 20, made.space))})});
  w.completed(1);
  const auto grant = [&](std::uint64_t transfer) {
    msg::PeerBatch batch;
    batch.grants.push_back({kMine, kHere, kPeer, transfer});
    return w.from_peer(batch).transmits;
  };
  const std::vector<Transmit> sends = grant(7);
  REQUIRE(sends.size() == 1);
  const NotSent failed{sends[0].block, sends[0].sender, sends[0].reader, sends[0].transfer};
  for (int i = 0; i < 2; ++i) {
    w.step({failed});
    REQUIRE(w.actions.batches.size() == 1);
    REQUIRE(w.actions.batches[0].second.relays.size() == 1);
    CHECK(w.actions.batches[0].second.relays[0] ==
          msg::Relay{kMine, kHere, kPeer, msg::RelayWord::kMissing, 7});
  }
  CHECK(w.core->holds(kMine));
  CHECK(grant(8).size() == 1);
  w.log({msg::PeerLost{kOther}});
  CHECK(w.step({failed}).batches.empty());
}

// ---- the owner -----------------------------------------------------------------------------------------------------

namespace {

// Of a block that devices of two other hosts read.
struct ReadByTwo : Lists {
  explicit ReadByTwo(bool kept, std::int32_t copies = 1) {
    const auto worker = [](WorkerId id, const char* host, DeviceId device) {
      return msg::PeerJoined{{id, msg::Role::kWorker, host, host, {}, {device}, {}}};
    };
    log({worker(kOnB, "b", kOfB), worker(kOnC, "c", kOfC)});
    const ir::Op made = source(10, 1);
    msg::PlannedOp first = on(kHere, 1, made);
    if (copies > 1) {
      ir::Rule rule = ir::Rule::constant(1, kHere);
      rule.devices = {kHere, kOfB};
      rule.copies = copies;
      first.placement = ir::Placement::whole(made.space.counts(), rule);
    }
    std::vector<msg::PlannedOp> ops{std::move(first), on(kOfC, 2, map_of(10, 20, made.space))};
    if (kept) ops.push_back(on(kOfB, 3, keep_of(10, made.space)));
    log({plan_of(std::move(ops), {ArrayId{10}})});
    completed(1);
  }
  msg::Offer subscribes(DeviceId via) {
    msg::PeerBatch batch;
    batch.subscribes.push_back({kMine, OpId{2}, kHere, kOfC, via});
    for (const auto& [peer, answer] : from_peer(batch, kOnC).batches)
      if (peer == kOnC && answer.offers.size() == 1) return answer.offers[0];
    FAIL("no offer");
    return {};
  }
};

}  // namespace

TEST_CASE("an owner whose way failed names others that may have the block, in turn with itself") {
  const auto check = [](ReadByTwo w) {
    CHECK_FALSE(w.subscribes({}).via);
    CHECK(w.subscribes(kHere).via == kOfB);
    CHECK_FALSE(w.subscribes(kOfB).via);  // which has not
    CHECK(w.core->counters().detours == 1);
    msg::PeerBatch done;
    done.dones.push_back({kMine, OpId{2}, kHere, kOfC});
    w.from_peer(done, kOnC);
    msg::PeerBatch late;
    late.subscribes.push_back({kMine, OpId{2}, kHere, kOfC, kHere});
    CHECK(w.from_peer(late, kOnC).batches.empty());
  };
  SUBCASE("one that was asked to keep it") { check(ReadByTwo(true)); }
  SUBCASE("one that the placement names") { check(ReadByTwo(false, 2)); }
  SUBCASE("not one that is lost") {
    ReadByTwo w(true);
    w.log({msg::PeerLost{kOnB}});
    CHECK_FALSE(w.subscribes(kHere).via);
  }
  SUBCASE("nobody") { CHECK_FALSE(ReadByTwo(false).subscribes(kHere).via); }
}

// Blocks that are passed on from host to host, as lists: what an owner sends to whom, what a leader keeps, where a reader turns.
#include "lists.h"

using namespace tilewise;
using namespace tilewise::worker;
using namespace tilewise::worker::test;

namespace {

constexpr std::int64_t kBytes = 1024;  // of a block
constexpr DeviceId kB1{11}, kB2{12}, kB3{13}, kC1{21}, kD1{31};
constexpr WorkerId kB{11}, kOtherB{12}, kC{21}, kD{31};

// This worker is on host a; b has a worker of two devices and one of one, c and d have one each.
struct Hosts : Lists {
  explicit Hosts(std::int64_t memory = 1 << 20, std::int64_t slab = 0, bool parts = false,
                 bool chains = false) {
    Options options;
    options.self = kSelf;
    options.host = "a";
    options.tree_bytes = kBytes - 1;
    if (parts) options.parts_bytes = kBytes;
    if (chains) options.chain_bytes = kBytes;
    options.devices.push_back({kHere, 0, memory, slab > 0 ? slab : memory, 1});
    core = std::make_unique<Core>(options);
    next = 1;
    const auto worker = [](WorkerId id, const char* host, std::vector<DeviceId> devices) {
      return msg::PeerJoined{{id, msg::Role::kWorker, host, host, {}, std::move(devices), {}}};
    };
    log({worker(kB, "b", {kB1, kB2}), worker(kOtherB, "b", {kB3}), worker(kC, "c", {kC1}),
         worker(kD, "d", {kD1})});
  }
  // Array 10, of one block, made by `owner`; ops 2, 3, ... read it, one on each device.
  const Actions& plan(DeviceId owner, const std::vector<DeviceId>& readers, bool held = false) {
    const ir::Op made = source(10, 1, kBytes / 8);
    std::vector<msg::PlannedOp> ops{on(owner, 1, made)};
    std::uint64_t id = 2;
    for (const DeviceId reader : readers) {
      ops.push_back(on(reader, id, map_of(10, 100 + id, made.space)));
      ++id;
    }
    return log({plan_of(std::move(ops), held ? std::vector<ArrayId>{ArrayId{10}} : std::vector<ArrayId>{})});
  }
  msg::PeerBatch batch;  // the next one from a peer
  const Actions& from(WorkerId peer) { return from_peer(std::exchange(batch, {}), peer); }
  const Actions& subscribes(WorkerId peer, DeviceId device, std::uint64_t op, DeviceId via = {}) {
    batch.subscribes.push_back({kBlock, OpId{op}, kHere, device, via});
    return from(peer);
  }
  const Actions& says(WorkerId peer, DeviceId device, msg::RelayWord word, std::uint64_t transfer = 0) {
    batch.relays.push_back({kBlock, device, kHere, word, transfer});
    return from(peer);
  }
  const Actions& done(WorkerId peer, DeviceId device, std::uint64_t op) {
    batch.dones.push_back({kBlock, OpId{op}, kHere, device});
    return from(peer);
  }
  // What went to that peer in the last step.
  msg::PeerBatch to(WorkerId peer) const {
    for (const auto& [who, sent] : actions.batches)
      if (who == peer) return sent;
    return {};
  }
  msg::Offer offered(WorkerId peer) const {
    const msg::PeerBatch sent = to(peer);
    REQUIRE(sent.offers.size() == 1);
    return sent.offers[0];
  }
  msg::RelayWord said(WorkerId peer) const {
    const msg::PeerBatch sent = to(peer);
    REQUIRE(sent.relays.size() == 1);
    return sent.relays[0].word;
  }
  static constexpr msg::BlockRef kBlock{ArrayId{10}, 0};
};

// The owner of a block that three devices of host b read.
struct Owner : Hosts {
  Owner() {
    plan(kHere, {kB1, kB2, kB3});
    batch.subscribes.push_back({kBlock, OpId{2}, kHere, kB1});
    batch.subscribes.push_back({kBlock, OpId{3}, kHere, kB2});
    from(kB);
    subscribes(kOtherB, kB3, 4);
    completed(1);
  }
};

}  // namespace

TEST_CASE("one device of a host is offered the block, and the others get it from there") {
  Owner w;
  CHECK(w.offered(kB).to == kB1);
  CHECK(w.offered(kB).relays);
  CHECK_FALSE(w.offered(kB).via);
  CHECK(w.to(kOtherB).offers.empty());
  w.says(kB, kB1, msg::RelayWord::kHas);
  CHECK(w.offered(kB).to == kB2);
  CHECK(w.offered(kB).via == kB1);
  CHECK(w.offered(kB).slab == msg::kNoSlab);
  CHECK(w.offered(kOtherB).via == kB1);
  CHECK(w.done(kB, kB1, 2).batches.empty());
  CHECK(w.done(kB, kB2, 3).batches.empty());
  CHECK(w.core->holds(Hosts::kBlock));
  w.done(kOtherB, kB3, 4);  // the last: the leader's copy may go, and so does the block
  CHECK(w.said(kB) == msg::RelayWord::kOver);
  CHECK(w.core->counters().copies_live == 0);
}

TEST_CASE("where the leader declines, the next one is asked; where it answers twice, nothing happens") {
  Owner w;
  w.says(kB, kB1, msg::RelayWord::kDeclined);
  CHECK(w.offered(kB).to == kB2);
  CHECK_FALSE(w.offered(kB).via);
  CHECK(w.offered(kB).relays);
  CHECK(w.says(kB, kB1, msg::RelayWord::kDeclined).batches.empty());
  w.says(kB, kB1, msg::RelayWord::kHas);  // of an earlier copy: nobody is sent there
  CHECK(w.said(kB) == msg::RelayWord::kOver);
  w.says(kB, kB2, msg::RelayWord::kHas);
  CHECK(w.offered(kOtherB).via == kB2);
  CHECK(w.says(kB, kB2, msg::RelayWord::kHas).batches.empty());
}

TEST_CASE("a reader that the leader cannot serve is sent the block, and is the leader from then on") {
  Owner w;
  w.says(kB, kB1, msg::RelayWord::kHas);
  w.subscribes(kB, kB2, 3, kB1);
  CHECK(w.offered(kB).to == kB2);
  CHECK_FALSE(w.offered(kB).via);
  CHECK(w.offered(kB).relays);
  CHECK(w.said(kB) == msg::RelayWord::kOver);  // to the first one, should it be there after all
  w.subscribes(kOtherB, kB3, 4);               // a repeat: it was offered the block before, and does not wait
  CHECK_FALSE(w.offered(kOtherB).via);
}

TEST_CASE("a device that had the block for an earlier request, and let it go, waits like any other") {
  Hosts w;
  w.plan(kHere, {kB1, kB2}, true);
  w.subscribes(kB, kB1, 2);
  w.completed(1);
  w.log({plan_of({on(kB1, 4, map_of(10, 104, source(10, 1, kBytes / 8).space)),
                  on(kB3, 5, map_of(10, 105, source(10, 1, kBytes / 8).space))})});
  w.says(kB, kB1, msg::RelayWord::kHas);
  w.done(kB, kB1, 2);
  w.subscribes(kB, kB2, 3);
  w.done(kB, kB2, 3);
  w.says(kB, kB1, msg::RelayWord::kDeclined);
  w.subscribes(kOtherB, kB3, 5);
  CHECK(w.offered(kOtherB).relays);
  CHECK(w.subscribes(kB, kB1, 4).batches.empty());
  w.says(kOtherB, kB3, msg::RelayWord::kHas);
  CHECK(w.offered(kB).via == kB3);
}

TEST_CASE("with the leader's process goes the wait for it") {
  Owner w;
  SUBCASE("before it has the block") {}
  SUBCASE("when it has it") { w.says(kB, kB1, msg::RelayWord::kHas); }
  w.log({msg::PeerLost{kB}});
  w.subscribes(kOtherB, kB3, 4, kB1);  // in the second case it hears of the loss by itself
  CHECK_FALSE(w.offered(kOtherB).via);
  CHECK_FALSE(w.offered(kOtherB).relays);  // nobody is left who would get it there
  w.done(kOtherB, kB3, 4);
  CHECK(w.core->counters().copies_live == 0);
}

TEST_CASE("a leader whose op is cancelled says so, and nobody waits for it") {
  Owner w;
  w.batch.dones.push_back({Hosts::kBlock, OpId{2}, kHere, kB1});
  w.says(kB, kB1, msg::RelayWord::kDeclined);
  CHECK(w.offered(kB).to == kB2);
}

TEST_CASE("beyond two other hosts leaders get the block from each other") {
  Hosts w;
  w.plan(kHere, {kB1, kC1, kD1, kB2});
  w.subscribes(kB, kB1, 2);
  w.subscribes(kC, kC1, 3);
  w.subscribes(kD, kD1, 4);
  w.completed(1);
  CHECK(w.offered(kB).relays);
  CHECK_FALSE(w.offered(kC).relays);  // no host hangs below it
  CHECK(w.to(kD).offers.empty());
  w.says(kB, kB1, msg::RelayWord::kHas);
  CHECK(w.offered(kD).via == kB1);
  w.done(kB, kB1, 2);
  w.done(kC, kC1, 3);
  CHECK(w.done(kD, kD1, 4).batches.empty());
  w.subscribes(kB, kB2, 5);
  CHECK(w.offered(kB).via == kB1);
  w.done(kB, kB2, 5);
  CHECK(w.said(kB) == msg::RelayWord::kOver);
  CHECK(w.core->counters().copies_live == 0);
}

TEST_CASE("what takes long goes from host to host in one chain") {
  Hosts w(1 << 20, 0, true, true);
  w.plan(kHere, {kB1, kC1, kD1});
  w.subscribes(kD, kD1, 4);
  w.subscribes(kC, kC1, 3);
  w.subscribes(kB, kB1, 2);
  w.completed(1);
  // In the order of their claims: b, c, d.
  CHECK(w.offered(kB).relays);
  CHECK(w.to(kC).offers.empty());
  CHECK(w.to(kD).offers.empty());
  SUBCASE("each when the one before it has some of it") {
    w.says(kB, kB1, msg::RelayWord::kHas);
    CHECK(w.offered(kC).via == kB1);
    CHECK(w.offered(kC).relays);
    CHECK(w.to(kD).offers.empty());
    w.says(kC, kC1, msg::RelayWord::kHas);
    CHECK(w.offered(kD).via == kC1);
    CHECK_FALSE(w.offered(kD).relays);
    CHECK(w.said(kB) == msg::RelayWord::kOver);
    w.done(kB, kB1, 2);
    w.done(kC, kC1, 3);
    w.done(kD, kD1, 4);
    CHECK(w.core->counters().copies_live == 0);
  }
  SUBCASE("one that declines is left out") {
    w.says(kB, kB1, msg::RelayWord::kDeclined);
    CHECK_FALSE(w.offered(kC).via);
    CHECK(w.offered(kC).relays);
    w.says(kC, kC1, msg::RelayWord::kHas);
    CHECK(w.offered(kD).via == kC1);
  }
}

TEST_CASE("a leader that waits for another is sent the block when that one declines or needs it no more") {
  Hosts w;
  w.plan(kHere, {kB1, kC1, kD1});
  w.subscribes(kB, kB1, 2);
  w.subscribes(kC, kC1, 3);
  w.subscribes(kD, kD1, 4);
  w.completed(1);
  SUBCASE("declines") { w.says(kB, kB1, msg::RelayWord::kDeclined); }
  SUBCASE("is lost") { w.log({msg::PeerLost{kB}}); }
  CHECK(w.offered(kD).to == kD1);
  CHECK_FALSE(w.offered(kD).via);
}

TEST_CASE("one reader a host, two hosts: every one gets the block from its owner and keeps nothing") {
  Hosts w;
  w.plan(kHere, {kB1, kC1});
  w.subscribes(kB, kB1, 2);
  w.subscribes(kC, kC1, 3);
  w.completed(1);
  CHECK_FALSE(w.offered(kB).relays);
  CHECK_FALSE(w.offered(kC).relays);
}

// ---- who passes it on ----------------------------------------------------------------------------------------------

namespace {

// This device and kB2 read a block of kC1's; kB2's is behind this one.
struct Passing : Hosts {
  explicit Passing(bool parts = false) : Hosts(1 << 20, 0, parts) { plan(kC1, {kHere, kB2}, true); }
  const Actions& offer(bool relays = true, DeviceId via = {}) {
    msg::Offer offer{kBlock, OpId{2}, kC1, kHere, msg::kNoSlab, 0, kBytes};
    offer.relays = relays;
    offer.via = via;
    batch.offers.push_back(offer);
    return from(kC);
  }
  const Actions& arrived(std::uint64_t transfer) {
    return step({TransferDone{transfer, {Errc::kOk, {}}, msg::Lane::kTcp}});
  }
  const Actions& granted(std::uint64_t transfer) {
    batch.grants.push_back({kBlock, kC1, kB2, transfer, kHere, true});
    return from(kB);
  }
};

}  // namespace

TEST_CASE(
    "a leader says when it has the block, keeps it beyond its own use and sends it until that is over") {
  Passing w;
  w.offer();
  REQUIRE(w.actions.receives.size() == 1);
  CHECK(w.to(kC).relays.empty());
  const std::uint64_t transfer = w.actions.receives[0].transfer;
  CHECK(w.offer().batches.empty());  // a repeat: the answer will come
  w.arrived(transfer);
  CHECK(w.said(kC) == msg::RelayWord::kHas);
  CHECK(w.to(kC).dones.size() == 1);
  w.completed(1);
  CHECK(w.core->counters().relays == 1);
  w.granted(7);
  REQUIRE(w.actions.transmits.size() == 1);
  CHECK(w.actions.transmits[0].to == kB);
  CHECK(w.actions.transmits[0].transfer == 7);
  CHECK(w.actions.transmits[0].tell);
  CHECK(w.granted(7).transmits.empty());  // under way already
  w.batch.relays.push_back({Hosts::kBlock, kC1, kHere, msg::RelayWord::kOver, 0});
  w.from(kC);
  CHECK(w.core->counters().relays == 0);
  const std::int64_t copies = w.core->counters().copies_live;
  w.step({Sent{kB, 7}});  // only now the memory may go
  CHECK(w.core->counters().copies_live == copies - 1);
  w.granted(8);
  CHECK(w.said(kB) == msg::RelayWord::kMissing);
}

TEST_CASE("a block in parts is passed on while it comes") {
  Passing w(true);
  w.offer();
  REQUIRE(w.actions.receives.size() == 1);
  CHECK(w.actions.receives[0].in_parts);
  REQUIRE(w.to(kC).grants.size() == 1);
  CHECK(w.to(kC).grants[0].in_parts);
  const std::uint64_t transfer = w.actions.receives[0].transfer;
  w.granted(6);  // nothing has come
  CHECK(w.said(kB) == msg::RelayWord::kMissing);
  w.step({PartArrived{transfer}});
  CHECK(w.said(kC) == msg::RelayWord::kHas);
  CHECK(w.step({PartArrived{transfer}}).batches.empty());
  w.offer();  // it is told again what it may have missed
  CHECK(w.said(kC) == msg::RelayWord::kHas);
  w.granted(7);
  REQUIRE(w.actions.transmits.size() == 1);
  CHECK(w.actions.transmits[0].in_parts);
  CHECK(w.actions.transmits[0].follows == transfer);
  const std::int64_t in_use = w.core->device_stats()[0].bytes_used;
  SUBCASE("to its end") {
    w.arrived(transfer);
    CHECK(w.to(kC).relays.empty());  // it has been said
    CHECK(w.actions.launches.size() == 1);
    w.granted(8);
    REQUIRE(w.actions.transmits.size() == 1);
    CHECK(w.actions.transmits[0].follows == 0);
    w.step({Sent{kB, 7}, Sent{kB, 8}});
    CHECK(w.core->counters().relayed == 2);
  }
  SUBCASE("and is wanted there no more") {
    w.batch.relays.push_back({Hosts::kBlock, kC1, kHere, msg::RelayWord::kOver, 0});
    w.from(kC);
    CHECK(w.core->counters().relays == 0);
    w.arrived(transfer);
    CHECK(w.to(kC).relays.empty());
  }
  SUBCASE("until it fails: who follows has ended before") {
    w.step({NotSent{Hosts::kBlock, kHere, kB2, 7}, Sent{kB, 7},
            TransferDone{transfer, {Errc::kUnavailable, "broken"}, msg::Lane::kTcp}});
    CHECK(w.said(kB) == msg::RelayWord::kMissing);
    CHECK(w.said(kC) == msg::RelayWord::kDeclined);
    CHECK(w.to(kC).subscribes.size() == 1);
    w.offer();
    REQUIRE(w.actions.receives.size() == 1);  // anew: nothing of it is here
    w.granted(9);
    CHECK(w.said(kB) == msg::RelayWord::kMissing);
  }
  SUBCASE("though its owner is lost, and it comes all the same: memory stays while others are sent it") {
    w.log({msg::PeerLost{kC, 1, {OpId{1}, OpId{2}, OpId{3}}}});
    w.arrived(transfer);
    CHECK(w.core->device_stats()[0].bytes_used == in_use);
    w.step({Sent{kB, 7}});
    CHECK(w.core->device_stats()[0].bytes_used < in_use);
  }
  SUBCASE("though its owner is lost: memory stays until the transport lets go") {
    w.log({msg::PeerLost{kC, 1, {OpId{1}, OpId{2}, OpId{3}}}});
    CHECK(w.core->device_stats()[0].bytes_used == in_use);
    w.step({NotSent{Hosts::kBlock, kHere, kB2, 7}, Sent{kB, 7},
            TransferDone{transfer, {Errc::kUnavailable, "lost"}, msg::Lane::kTcp}});
    CHECK(w.core->device_stats()[0].bytes_used < in_use);
  }
}

TEST_CASE("what is not passed on, and comes from its owner, comes at once") {
  Passing w(true);
  w.offer(false);
  REQUIRE(w.actions.receives.size() == 1);
  CHECK_FALSE(w.actions.receives[0].in_parts);
  CHECK_FALSE(w.to(kC).grants.at(0).in_parts);
}

TEST_CASE("a failed transfer, the owner's end and the end of the op end what was kept for others") {
  Passing w;
  w.offer();
  const std::uint64_t transfer = w.actions.receives.at(0).transfer;
  SUBCASE("a failed transfer") {
    w.step({TransferDone{transfer, {Errc::kTimeout, "silent"}, msg::Lane::kTcp}});
    CHECK(w.said(kC) == msg::RelayWord::kDeclined);
    CHECK(w.to(kC).subscribes.size() == 1);
  }
  SUBCASE("a cancelled op") {
    w.log({msg::CancelGraph{GraphId{1}, {Errc::kCancelled, "x"}}});
    w.arrived(transfer);
  }
  SUBCASE("the owner's end") {
    w.arrived(transfer);
    w.completed(1);
    w.log({msg::PeerLost{kC}});
    w.step({});
  }
  SUBCASE("the end of the op") {
    w.arrived(transfer);
    w.completed(1);
    w.log({msg::Release{{ArrayId{10}}}, msg::Retire{{OpId{1}, OpId{2}, OpId{3}}}});
  }
  // In the second case the block is here, and whoever reads it elsewhere may still come.
  CHECK(w.core->counters().relays <= 1);
  w.log({msg::Release{{ArrayId{10}}}, msg::Retire{{OpId{1}, OpId{2}, OpId{3}}}});
  CHECK(w.core->counters().relays == 0);
}

TEST_CASE(
    "a block that another one passes on is on its way, though its owner is lost, until the transport lets "
    "go") {
  Passing w;
  w.offer(true, kB1);
  const std::uint64_t transfer = w.actions.receives.at(0).transfer;
  CHECK(w.core->counters().in_flight_bytes == kBytes);
  SUBCASE("its owner is lost") {
    w.log({msg::PeerLost{kC, 1, {OpId{1}, OpId{2}, OpId{3}}}});
    CHECK(w.core->counters().in_flight_bytes == kBytes);
    w.arrived(transfer);
  }
  SUBCASE("both are") {
    w.log({msg::PeerLost{kB, 1, {}}, msg::PeerLost{kC, 2, {OpId{1}, OpId{2}, OpId{3}}}});
    CHECK(w.core->counters().in_flight_bytes == 0);
    w.arrived(transfer);
  }
  CHECK(w.core->counters().in_flight_bytes == 0);
}

// ---- who gets it there ---------------------------------------------------------------------------------------------

TEST_CASE("an offer that names another device is granted there") {
  Passing w;
  w.offer(false, kB1);
  REQUIRE(w.actions.receives.size() == 1);
  CHECK(w.actions.receives[0].from == kB);
  const std::uint64_t transfer = w.actions.receives[0].transfer;
  REQUIRE(w.to(kB).grants.size() == 1);
  CHECK(w.to(kB).grants[0].via == kB1);
  CHECK(w.to(kB).grants[0].from == kC1);
  SUBCASE("and comes from there") {
    w.arrived(transfer);
    CHECK(w.to(kC).dones.size() == 1);  // to the owner
    CHECK(w.to(kB).empty());
    CHECK(w.actions.launches.size() == 1);
  }
  SUBCASE("which has it no more: the receive ends, and the owner is asked") {
    w.batch.relays.push_back({Hosts::kBlock, kB1, kHere, msg::RelayWord::kMissing, transfer});
    w.from(kB);
    REQUIRE(w.actions.disarms.size() == 1);
    CHECK(w.actions.disarms[0].from == kB);
    for (int i = 0; i < 4; ++i) {  // that costs no attempt, however often
      w.step(
          {TransferDone{transfer + static_cast<std::uint64_t>(i), {Errc::kNotFound, "x"}, msg::Lane::kTcp}});
      REQUIRE(w.to(kC).subscribes.size() == 1);
      CHECK(w.to(kC).subscribes[0].via == kB1);
      w.offer(false, kB1);
    }
    CHECK(w.core->counters().tasks_failed == 0);
  }
}

TEST_CASE("who is to send an offered block was never met: the owner is asked") {
  Passing w;
  w.offer(false, DeviceId{99});
  CHECK(w.actions.receives.empty());
  REQUIRE(w.to(kC).subscribes.size() == 1);
  CHECK(w.to(kC).subscribes[0].via == DeviceId{99});
}

// The order in which peers' offers are granted where little may be on its way, as lists.
#include "lists.h"

using namespace tilewise;
using namespace tilewise::worker;
using namespace tilewise::worker::test;

namespace {

constexpr DeviceId kThird{4};
constexpr WorkerId kThirdWorker{4};
constexpr std::int64_t kOffered = 64;  // of a block

Options with_window(std::int64_t total, std::int64_t each) {
  Options options = Lists::options_of({kHere, 0, 1 << 20, 1 << 20, 1});
  options.in_flight_bytes = total;
  options.in_flight_peer_bytes = each;
  return options;
}

// Two peers whose memory is not mapped; op 3 here reads array 20, of the first one, block by block.
struct Offered : Lists {
  explicit Offered(std::int64_t total = 1, std::int64_t each = 1) : Lists(with_window(total, each)) {
    log({msg::PeerJoined{
        {kThirdWorker, msg::Role::kWorker, "third", "host", {}, {kThird}, {{.name = "host:0"}}}}});
    step({PeerReady{kOther, false}, PeerReady{kThirdWorker, false}});
    const ir::Op made = source(20, 6);
    log({plan_of({on(kPeer, 2, made), on(kHere, 3, map_of(20, 30, made.space))},
                 {ArrayId{20}, ArrayId{30}})});
  }
  static msg::Offer offer_of(std::int64_t block, std::uint64_t array = 20, std::uint64_t op = 3,
                             DeviceId from = kPeer) {
    return {{ArrayId{array}, block}, OpId{op}, from, kHere, msg::kNoSlab, 0, kOffered};
  }
  const Actions& offers(const std::vector<msg::Offer>& all, WorkerId peer = kOther) {
    msg::PeerBatch batch;
    batch.offers = all;
    return note(from_peer(batch, peer));
  }
  // Of the transfer that was granted first of those that have not ended.
  const Actions& arrives(Error failed = {Errc::kOk, {}}) {
    REQUIRE(!on_their_way.empty());
    const std::uint64_t transfer = on_their_way.front();
    on_their_way.pop_front();
    return note(step({TransferDone{transfer, std::move(failed), msg::Lane::kTcp}}));
  }
  const Actions& note(const Actions& a) {
    for (const auto& [peer, batch] : a.batches)
      for (const msg::Grant& grant : batch.grants) granted.push_back(grant.block.block);
    for (const Receive& receive : a.receives) on_their_way.push_back(receive.transfer);
    return a;
  }
  std::vector<std::int64_t> granted;  // blocks, in order
  std::deque<std::uint64_t> on_their_way;
};

using Blocks = std::vector<std::int64_t>;

}  // namespace

TEST_CASE("what may not be on its way yet is granted as tasks need it, not as it was offered") {
  Offered w;
  for (const std::int64_t block : {4, 5, 2, 0, 3, 1}) w.offers({Offered::offer_of(block)});
  CHECK(w.granted == Blocks{4});  // nothing else was known of
  CHECK(w.core->counters().wait_their_turn == 5);
  CHECK(w.core->counters().in_flight_bytes == kOffered);
  for (int i = 0; i < 6; ++i) w.arrives();
  CHECK(w.granted == Blocks{4, 0, 1, 2, 3, 5});
  CHECK(w.core->counters().in_flight_bytes == 0);
  CHECK(w.core->counters().in_flight_high == kOffered);
  CHECK(w.core->counters().held_up == 5);
}

TEST_CASE("offers that come together are granted in the order of their use from the first one on") {
  Offered w(2 * kOffered, 2 * kOffered);
  std::vector<msg::Offer> all;
  for (const std::int64_t block : {5, 4, 3, 2, 1, 0}) all.push_back(Offered::offer_of(block));
  w.offers(all);
  CHECK(w.granted == Blocks{0, 1});
  w.arrives();
  CHECK(w.granted == Blocks{0, 1, 2});
  w.offers(all);  // repeats change nothing
  CHECK(w.granted == Blocks{0, 1, 2});
}

TEST_CASE("a graph of higher priority comes first") {
  Offered w;
  w.offers({Offered::offer_of(0), Offered::offer_of(1), Offered::offer_of(2)});
  const ir::Op made = source(40, 6);
  msg::Plan urgent =
      plan_of({on(kPeer, 5, made), on(kHere, 6, map_of(40, 50, made.space))}, {ArrayId{50}}, 2);
  urgent.priority = 1;
  w.log({urgent});
  w.offers({Offered::offer_of(3, 40, 6)});
  w.arrives();
  CHECK(w.granted == Blocks{0, 3});
  w.arrives();
  CHECK(w.granted == Blocks{0, 3, 1});
}

TEST_CASE("one slow peer does not get all of what may be on its way") {
  Offered w(3 * kOffered, 2 * kOffered);
  const ir::Op made = source(40, 6);
  w.log({plan_of({on(kThird, 5, made), on(kHere, 6, map_of(40, 50, made.space))}, {ArrayId{50}}, 2)});
  std::vector<msg::Offer> slow;
  for (std::int64_t block = 0; block < 6; ++block) slow.push_back(Offered::offer_of(block));
  w.offers(slow);
  CHECK(w.granted == Blocks{0, 1});
  w.on_their_way.clear();  // nothing of it ever comes
  w.granted.clear();
  w.offers({Offered::offer_of(0, 40, 6, kThird), Offered::offer_of(1, 40, 6, kThird),
            Offered::offer_of(2, 40, 6, kThird)},
           kThirdWorker);
  for (int i = 0; i < 3; ++i) w.arrives();
  CHECK(w.granted == Blocks{0, 1, 2});
  CHECK(w.core->counters().wait_their_turn == 4);
}

TEST_CASE("what fails, is cancelled or loses its peer makes room for others") {
  Offered w;
  w.offers({Offered::offer_of(0), Offered::offer_of(1)});
  REQUIRE(w.granted == Blocks{0});
  SUBCASE("a failure") {
    w.arrives({Errc::kIo, "x"});
    CHECK(w.granted == Blocks{0, 1});
  }
  SUBCASE("a cancelled graph, which waits for what is on its way") {
    w.log({msg::CancelGraph{GraphId{1}, {Errc::kCancelled, "x"}}});
    CHECK(w.core->counters().wait_their_turn == 0);
    w.arrives();
    CHECK(w.granted == Blocks{0});
  }
  SUBCASE("a lost peer, though its memory is not free") {
    w.log({msg::PeerLost{kOther, 1, {OpId{2}, OpId{3}}}});
    CHECK(w.core->counters().in_flight_bytes == 0);
    CHECK(w.core->counters().wait_their_turn == 0);
    w.log({made_again(1, 7, 2, source(20, 6), kThird)});
    w.offers({Offered::offer_of(1, 20, 3, kThird)}, kThirdWorker);
    CHECK(w.granted == Blocks{0});  // of a batch from before the recovery
    msg::PeerBatch batch;
    batch.recovery = 1;
    batch.offers = {Offered::offer_of(1, 20, 3, kThird)};
    w.note(w.from_peer(batch, kThirdWorker));
    CHECK(w.granted == Blocks{0, 1});
  }
}

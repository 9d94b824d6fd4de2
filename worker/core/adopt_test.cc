// Blocks in the memory of clients of this process: read where they lie, kept there, and given back once.
#include "lists.h"

using namespace tilewise;
using namespace tilewise::worker;
using namespace tilewise::worker::test;

namespace {

constexpr std::uint32_t kLent = kForeignSlab | kAdoptableSlab | 4;

ir::Op provided(std::uint64_t array, std::int64_t blocks) {
  ir::Op op = source(array, blocks);
  op.kind = ir::OpKind::kProvide;
  op.attrs = ir::FetchAttrs{kClient};
  return op;
}

ir::Op copy_of(std::uint64_t from, std::uint64_t array, const ir::Grid& grid) {
  ir::Op op = map_of(from, array, grid);
  op.kind = ir::OpKind::kCopy;
  op.attrs = ir::CopyAttrs{{{{ir::DimMap::Kind::kSpan, 0}}}};
  return op;
}

Options options_that(bool adopt) {
  Options options = Lists::options_of({kHere, 0, 1 << 20, 1 << 20, 1});
  options.adopts = adopt;
  return options;
}

// A client of this process provides array 7 of two blocks; 8 is a copy of it here, held.
struct Adopting : Lists {
  explicit Adopting(bool adopts = true) : Lists(options_that(adopts)) {
    step({PeerReady{kClientProcess, true}});
    const ir::Op made = provided(7, 2);
    log({plan_of({on(kClient, 10, made), on(kHere, 11, copy_of(7, 8, made.outputs[0].grid))}, {ArrayId{8}})});
    REQUIRE(actions.batches.size() == 1);
    REQUIRE(actions.batches[0].second.subscribes.size() == 2);
  }
  const Actions& offered(std::int64_t block, std::uint32_t slab = kLent) {
    msg::PeerBatch batch;
    msg::Offer offer;
    offer.block = {ArrayId{7}, block}, offer.op = OpId{11};
    offer.from = kClient, offer.to = kHere;
    offer.slab = slab, offer.offset = block * 64, offer.bytes = 64;
    batch.offers.push_back(offer);
    return from_peer(std::move(batch), kClientProcess);
  }
  std::int64_t in_use() const { return core->device_stats()[0].bytes_used; }
};

msg::Done done_of(std::int64_t block) { return {{ArrayId{7}, block}, OpId{11}, kClient, kHere, {}}; }

}  // namespace

TEST_CASE(
    "a copy of a client's block is that block: nothing runs, nothing is taken, and it is given back in the "
    "end") {
  Adopting w;
  w.offered(0);
  CHECK(w.actions.launches.empty());
  CHECK(w.actions.given_back.empty());
  CHECK(w.core->counters().adopted == 1);
  CHECK(w.core->holds({ArrayId{8}, 0}));
  CHECK(w.in_use() == 0);
  w.offered(1);
  CHECK(w.core->counters().tasks_done == 2);
  // Whoever reads it reads it there.
  const ir::Grid grid = source(7, 2).space;
  w.log({plan_of({on(kHere, 20, map_of(8, 9, grid))}, {}, 2)});
  REQUIRE(w.actions.launches.size() == 2);
  CHECK(w.actions.launches[0].inputs[0] == MemoryRef{kClient, kLent, 0});
  CHECK(w.actions.launches[1].inputs[0] == MemoryRef{kClient, kLent, 64});
  CHECK(w.core->counters().donated == 0);  // a client's memory is not written
  w.log({msg::Release{{ArrayId{8}}}});
  CHECK(w.actions.given_back.empty());  // kernels read it
  w.completed(1);
  CHECK(w.actions.given_back.empty());  // its reader is over, but that of the one which went before is not
  w.completed(2);
  REQUIRE(w.actions.given_back.size() == 2);
  CHECK(w.actions.given_back[0] == done_of(1));
  CHECK(w.actions.given_back[1] == done_of(0));
  CHECK(!w.core->holds({ArrayId{8}, 0}));
}

TEST_CASE("a lender who does not allow it, or a worker that does not adopt, has its blocks copied") {
  SUBCASE("the lender") {
    Adopting w;
    w.offered(0, kForeignSlab | 4);
    REQUIRE(w.actions.launches.size() == 1);
    CHECK(w.actions.launches[0].inputs[0] == MemoryRef{kClient, kForeignSlab | 4, 0});
    CHECK(w.core->counters().adopted == 0);
    w.completed(1);
    REQUIRE(w.actions.given_back.size() == 1);
    CHECK(w.actions.given_back[0] == done_of(0));
  }
  SUBCASE("the worker: such a number means nothing to it") {
    Adopting w(false);
    w.offered(0);
    CHECK(w.actions.launches.empty());
    CHECK(w.actions.receives.size() == 1);
    CHECK(w.actions.given_back.empty());
  }
}

TEST_CASE("the lender's death, a cancellation and an offer that comes too late each give back, once") {
  Adopting w;
  SUBCASE("the death") {
    w.offered(0);
    w.log({msg::PeerLost{kClientProcess}});
    CHECK(w.core->holds({ArrayId{8}, 0}));  // others may hold the array too
    w.log({msg::Release{{ArrayId{8}}}});
    REQUIRE(w.actions.given_back.size() == 1);
    CHECK(w.actions.given_back[0] == done_of(0));
  }
  SUBCASE("a cancellation") {
    w.offered(0);
    w.log({msg::CancelGraph{GraphId{1}, {Errc::kCancelled, "cancelled"}}, msg::Release{{ArrayId{8}}}});
    CHECK(w.actions.given_back.size() ==
          2);      // of the one that has not been offered too: nobody waits for that
    w.offered(1);  // was on its way
    REQUIRE(w.actions.given_back.size() == 1);
    CHECK(w.actions.given_back[0] == done_of(1));
  }
}

TEST_CASE("an adopted block is lent to peers who share this process's memory by the same number") {
  Adopting w;
  w.offered(0), w.offered(1);
  const ir::Grid grid = source(7, 2).space;
  w.log({plan_of({on(kPeer, 20, map_of(8, 9, grid))}, {}, 2)});
  msg::PeerBatch batch;
  batch.subscribes.push_back({{ArrayId{8}, 1}, OpId{20}, kHere, kPeer});
  w.from_peer(std::move(batch));
  REQUIRE(w.actions.batches.size() == 1);
  REQUIRE(w.actions.batches[0].second.offers.size() == 1);
  const msg::Offer& offer = w.actions.batches[0].second.offers[0];
  CHECK(offer.slab == kLent);
  CHECK(offer.offset == 64);
  w.log({msg::Release{{ArrayId{8}}}});
  CHECK(w.actions.given_back.size() == 0);  // both are to be read there
  msg::PeerBatch dones;
  dones.dones.push_back({{ArrayId{8}, 0}, OpId{20}, kHere, kPeer, {}});
  dones.dones.push_back({{ArrayId{8}, 1}, OpId{20}, kHere, kPeer, {}});
  w.from_peer(std::move(dones));
  CHECK(w.actions.given_back.size() == 2);
}

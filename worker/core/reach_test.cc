// GPUs of two processes of one host: who reads the other's memory in place, who copies, and what becomes of what is lent.
#include "lists.h"

using namespace tilewise;
using namespace tilewise::worker;
using namespace tilewise::worker::test;

namespace {

constexpr std::uint8_t kCuda = 1;
constexpr std::int64_t kBlockBytes = 64;  // of a block

msg::DeviceDesc gpu_of(const std::string& name) { return {.name = "cuda:0", .kind = kCuda, .gpu = name}; }

// Here is a GPU called "one"; the peer's is told by its name.
struct Gpus : Lists {
  explicit Gpus(const std::string& peers_gpu)
      : Lists(options_of({kHere, kCuda, 1 << 20, 1 << 20, 1, false, false, {}, "one"}), gpu_of(peers_gpu)) {}
  // The peer makes array 7, which a step here reads: asked for.
  void read_remote() {
    const ir::Op made = source(7, 1);
    log({plan_of({on(kPeer, 10, made), on(kHere, 11, map_of(7, 8, made.outputs[0].grid))}, {ArrayId{8}})});
    REQUIRE(actions.batches.size() == 1);
    REQUIRE(actions.batches[0].second.subscribes.size() == 1);
  }
  const Actions& offered(std::uint32_t slab, std::int64_t offset) {
    msg::PeerBatch batch;
    msg::Offer offer;
    offer.block = {ArrayId{7}, 0}, offer.op = OpId{11};
    offer.from = kPeer, offer.to = kHere;
    offer.slab = slab, offer.offset = offset, offer.bytes = kBlockBytes;
    batch.offers.push_back(offer);
    return from_peer(std::move(batch));
  }
  std::size_t grants() const { return count(&msg::PeerBatch::grants); }
  std::size_t dones() const { return count(&msg::PeerBatch::dones); }
  template <class List> std::size_t count(List msg::PeerBatch::*list) const {
    std::size_t n = 0;
    for (const auto& [peer, batch] : actions.batches) n += (batch.*list).size();
    return n;
  }
};

}  // namespace

TEST_CASE("of the same GPU a peer's block is read in place; its Done comes after the kernels") {
  Gpus w("one");
  w.step({SlabReached{kOther, kPeer, 3, 0}});
  w.read_remote();
  w.offered(3, 4096);
  REQUIRE(w.actions.launches.size() == 1);
  CHECK(w.actions.launches[0].inputs[0] == MemoryRef{kPeer, 3, 4096});
  CHECK(w.actions.pulls.empty());
  CHECK(w.grants() + w.dones() == 0);
  w.completed(1);
  CHECK(w.dones() == 1);
}

TEST_CASE("another GPU's block is copied by its reader, without a grant") {
  Gpus w("two");
  w.step({SlabReached{kOther, kPeer, 3, 0}});
  w.read_remote();
  w.offered(3, 4096);
  CHECK(w.actions.launches.empty());
  REQUIRE(w.actions.pulls.size() == 1);
  const Pull pull = w.actions.pulls[0];
  CHECK(pull.peer == kOther);
  CHECK(pull.from == MemoryRef{kPeer, 3, 4096});
  CHECK(pull.to.device == kHere);
  CHECK(pull.bytes == kBlockBytes);
  CHECK(w.actions.receives.empty());
  CHECK(w.grants() == 0);
  SUBCASE("it arrives") {
    w.step({TransferDone{pull.transfer, {Errc::kOk, {}}, msg::Lane::kCudaIpc}});
    CHECK(w.dones() == 1);  // the peer may let go at once
    REQUIRE(w.actions.launches.size() == 1);
    CHECK(w.actions.launches[0].inputs[0] == pull.to);
    CHECK(w.core->counters().pulled == 1);
  }
  SUBCASE("it fails: the next time it is sent") {
    w.step({TransferDone{pull.transfer, {Errc::kDeviceError, "no"}, msg::Lane::kCudaIpc}});
    CHECK(w.count(&msg::PeerBatch::subscribes) == 1);
    w.offered(3, 4096);
    CHECK(w.actions.pulls.empty());
    CHECK(w.actions.receives.size() == 1);
    CHECK(w.grants() == 1);
  }
  SUBCASE("the peer dies meanwhile: the memory is given back when the copy has ended") {
    w.log({msg::PeerLost{kOther, 0, {}}});
    CHECK(w.core->counters().tasks_failed == 0);
    w.step({TransferDone{pull.transfer, {Errc::kOk, {}}, msg::Lane::kCudaIpc}});
    CHECK(w.actions.launches.size() == 1);  // what came in time is used
  }
  SUBCASE("it fails since the peer died: nobody is asked before a recovery has said whom") {
    w.log({msg::PeerLost{kOther, 0, {}}});
    w.step({TransferDone{pull.transfer, {Errc::kDeviceError, "gone"}, msg::Lane::kCudaIpc}});
    CHECK(w.actions.launches.empty());
    CHECK(w.count(&msg::PeerBatch::subscribes) == 0);
    CHECK(w.core->counters().tasks_failed == 1);  // there is none here
  }
}

TEST_CASE(
    "a block that waits for memory to be copied into is sent by who makes it again, though its lender "
    "lives") {
  constexpr DeviceId kThird{5};
  constexpr WorkerId kThirdProcess{4};
  Gpus w("two");
  w.log({msg::PeerJoined{
      {kThirdProcess, msg::Role::kWorker, "third", "host", {}, {kThird}, {gpu_of("three")}}}});
  w.step({PeerReady{kThirdProcess, true}});
  w.step({SlabReached{kOther, kPeer, 3, 0}});
  // All memory is taken until its step has ended.
  w.log({plan_of({on(kHere, 1, source(50, 1, (1 << 20) / 8))}, {}, 5)});
  REQUIRE(w.actions.launches.size() == 1);
  const ir::Op made = source(7, 1);
  w.log({plan_of({on(kPeer, 10, made), on(kHere, 11, map_of(7, 8, made.outputs[0].grid))}, {ArrayId{8}})});
  w.offered(3, 4096);
  REQUIRE(w.actions.pulls.empty());
  w.log({msg::PeerLost{{}, 7, {OpId{10}, OpId{11}}}});
  w.log({made_again(7, 12, 10, made, kThird)});
  const Actions& after = w.completed(1);
  CHECK(after.pulls.empty());
  REQUIRE(after.receives.size() == 1);
  CHECK(after.receives[0].from == kThirdProcess);
}

TEST_CASE("a slab that is not open, or a host's, is copied as ever") {
  Gpus w("two");
  SUBCASE("of another slab only") { w.step({SlabReached{kOther, kPeer, 2, 0}}); }
  SUBCASE("told by somebody unknown") { w.step({SlabReached{WorkerId{77}, kPeer, 3, 0}}); }
  SUBCASE("told of a device that is not the peer's") { w.step({SlabReached{kOther, kClient, 3, 0}}); }
  w.read_remote();
  w.offered(3, 0);
  CHECK(w.actions.pulls.empty());
  CHECK(w.actions.receives.size() == 1);
  CHECK(w.grants() == 1);
}

TEST_CASE(
    "a GPU's block is offered with its place to a GPU of the host, if the slab is lent, and to nobody else") {
  Gpus w("two");
  w.lends = true;
  const ir::Op made = source(7, 1);
  const ir::Grid grid = made.outputs[0].grid;
  std::uint32_t expected = msg::kNoSlab;
  SUBCASE("to a GPU") { expected = 0; }
  SUBCASE("to a GPU, of a slab that cannot be opened") { w.lends = false; }
  SUBCASE("to a GPU whose link maps nothing") { w.step({PeerReady{kOther, false}}); }
  w.log({plan_of(
      {on(kHere, 10, made), on(kPeer, 11, map_of(7, 8, grid)), on(kClient, 12, fetch_of(7, grid))})});
  w.completed(1);
  msg::PeerBatch batch;
  batch.subscribes.push_back({{ArrayId{7}, 0}, OpId{11}, kHere, kPeer, {}});
  w.from_peer(batch);
  std::map<std::uint32_t, std::uint32_t> slabs;
  for (const auto& [peer, said] : w.actions.batches)
    for (const msg::Offer& offer : said.offers) slabs[offer.to.value] = offer.slab;
  REQUIRE(slabs.contains(kPeer.value));
  CHECK(slabs[kPeer.value] == expected);
  if (slabs.contains(kClient.value)) CHECK(slabs[kClient.value] == msg::kNoSlab);
}

TEST_CASE("a link between GPUs is measured by the copies that blocks will be") {
  Gpus w("two");
  w.step({SlabReached{kOther, kPeer, msg::kProbeSlab, 0}});
  msg::LinkProbe probe;
  probe.nonce = 1, probe.from = kPeer, probe.to = kHere;
  w.step({probe});
  REQUIRE(w.actions.probe_receives.size() == 1);
  CHECK(w.actions.probe_receives[0].pulled == kPeer);
  CHECK(w.actions.batches.empty());  // the other end has nothing to do
  w.step({TransferDone{w.actions.probe_receives[0].transfer, {Errc::kOk, {}}, msg::Lane::kCudaIpc}});
  CHECK(w.actions.probe_receives.size() == 1);
}

TEST_CASE("a loan that is read for a later op, too, outlives the word that the first one is over") {
  const ir::Op made = source(7, 1);
  const ir::Grid grid = made.outputs[0].grid;
  SUBCASE("the reader names the later op") {
    Lists w;
    w.log({plan_of({on(kPeer, 10, made), on(kHere, 11, map_of(7, 8, grid))}, {ArrayId{7}, ArrayId{8}})});
    // Two more read it; the peer has heard of neither yet.
    w.log({plan_of({on(kHere, 12, map_of(7, 9, grid)), on(kHere, 13, map_of(7, 10, grid))},
                   {ArrayId{9}, ArrayId{10}}, 2)});
    msg::PeerBatch batch;
    msg::Offer offer;
    offer.block = {ArrayId{7}, 0}, offer.op = OpId{11}, offer.from = kPeer, offer.to = kHere;
    offer.slab = 0, offer.bytes = kBlockBytes;
    batch.offers.push_back(offer);
    w.from_peer(batch);
    REQUIRE(w.actions.launches.size() == 3);
    w.completed(3);
    std::map<std::uint64_t, std::uint64_t> also;
    for (const auto& [peer, said] : w.actions.batches)
      for (const msg::Done& done : said.dones) also[done.op.value] = done.also.value;
    REQUIRE(also.size() == 3);
    CHECK(also[11] == 13);
    CHECK(also[13] == 0);
  }
  SUBCASE("the owner keeps it until it knows that op, and then for it") {
    Lists w;
    w.log({plan_of({on(kHere, 10, made), on(kPeer, 11, map_of(7, 8, grid))})});
    w.completed(1);
    msg::PeerBatch batch;
    batch.subscribes.push_back({{ArrayId{7}, 0}, OpId{11}, kHere, kPeer, {}});
    w.from_peer(batch);
    REQUIRE(w.core->counters().copies_live == 1);
    msg::PeerBatch over;
    over.dones.push_back({{ArrayId{7}, 0}, OpId{11}, kHere, kPeer, OpId{12}});
    w.from_peer(over);
    CHECK(w.core->counters().copies_live == 1);
    CHECK(w.core->counters().parked == 1);
    w.log({plan_of({on(kPeer, 12, map_of(7, 9, grid))}, {}, 2)});
    CHECK(w.core->counters().parked == 0);
    CHECK(w.core->counters().copies_live == 1);
    over.dones[0] = {{ArrayId{7}, 0}, OpId{12}, kHere, kPeer, {}};
    w.from_peer(over);
    CHECK(w.core->counters().copies_live == 0);
  }
}

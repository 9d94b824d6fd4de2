// Results on their way in, and the client's own blocks on their way out.
#include <numeric>

#include "fake_endpoint.h"
#include "strided.h"

namespace tilewise::client {
namespace {

using ir::OpKind;

// Block `block` of an array with values 0, 1, 2 ... in C order.
std::vector<double> counting_block(const ir::Grid& grid, std::int64_t block) {
  std::vector<double> whole(static_cast<std::size_t>(ir::volume(grid.shape())));
  std::iota(whole.begin(), whole.end(), 0.0);
  const ir::Box box = grid.box(ir::unravel(block, grid.counts()));
  std::vector<double> packed(static_cast<std::size_t>(box.volume()));
  gather(reinterpret_cast<std::byte*>(whole.data()), grid.shape(), box,
         reinterpret_cast<std::byte*>(packed.data()), 8);
  return packed;
}

struct Fetching {
  World world;
  Array array;
  Future future;
  msg::Submit submit;
  std::uint64_t number = 0;
  ir::Grid grid;

  explicit Fetching(const Shape& shape, const Shape& block, bool answered = true) {
    array = world.session.zeros(shape, {.block = block});
    grid = array.grid();
    future = world.session.compute({array});
    submit = world.fake.last();
    number = FakeEndpoint::fetched(submit);
    if (answered) world.fake.reply(submit);
  }
  msg::Offer offer(std::int64_t block, bool inlined = true) {
    const auto values = counting_block(grid, block);
    return world.fake.offer(number, block, values.data(), values.size() * 8, inlined);
  }
  void check_counting() {
    REQUIRE(future.ready());
    const std::vector<double> got = future.get<double>();
    for (std::size_t i = 0; i < got.size(); ++i) REQUIRE(got[i] == static_cast<double>(i));
  }
};

TEST_CASE("blocks land where they belong, whatever the cut and the lane") {
  for (const bool inlined : {true, false}) {
    for (const bool mapped : {true, false}) {
      for (const Shape& block :
           {Shape{2, 3, 2}, Shape{5, 7, 4}, Shape{1, 7, 4}, Shape{2, 7, 4}, Shape{5, 7, 1}}) {
        CAPTURE(ir::to_string(block));
        Fetching f({5, 7, 4}, block);
        FakeEndpoint& fake = f.world.fake;
        fake.can_map = mapped;
        for (std::int64_t b = f.grid.block_count() - 1; b >= 0; --b) {
          CHECK(!f.future.ready());
          f.world.fake.deliver({f.offer(b, inlined)});
          if (inlined || mapped) continue;
          const msg::PeerBatch granted = fake.take_batches();
          REQUIRE(granted.grants.size() == 1);
          CHECK(granted.dones.empty());  // the bytes are still needed
          FakeEndpoint::Receive& receive = fake.receives.at(granted.grants[0].transfer);
          const auto values = counting_block(f.grid, b);
          REQUIRE(receive.bytes == static_cast<std::int64_t>(values.size() * 8));
          std::memcpy(receive.to, values.data(), values.size() * 8);
          receive.done({});
          REQUIRE(fake.take_batches().dones.size() == 1);
        }
        f.check_counting();
      }
    }
  }
}

TEST_CASE("every offer is owed one Done, that names its op") {
  Fetching f({4}, {2});
  f.world.fake.deliver({f.offer(0)});
  msg::PeerBatch out = f.world.fake.take_batches();
  REQUIRE(out.dones.size() == 1);
  CHECK(out.dones[0] == msg::Done{{FakeEndpoint::id_of(f.number), 0}, OpId(55), kDevice, kSelf});
  f.world.fake.deliver({f.offer(0), f.offer(0)});  // repeats are answered, and count once
  CHECK(f.world.fake.take_batches().dones.size() == 2);
  CHECK(!f.future.ready());
  f.world.fake.deliver({f.offer(1)});
  f.check_counting();
  f.world.fake.take_batches();
  f.world.fake.deliver({f.offer(1)});  // after the end, too
  CHECK(f.world.fake.take_batches().dones.size() == 1);
}

TEST_CASE("offers may come before the reply that names their array") {
  Fetching f({4}, {2}, false);
  f.world.fake.deliver({f.offer(0), f.offer(1)});
  CHECK(f.world.fake.take_batches().empty());
  CHECK(!f.future.ready());
  f.world.fake.reply(f.submit);
  CHECK(f.world.fake.take_batches().dones.size() == 2);
  f.check_counting();
}

TEST_CASE("an offer of an array nobody waits for is let go") {
  World world;
  world.fake.deliver({world.fake.offer(99, 0, "12345678", 8)});
  CHECK(world.fake.take_batches().dones.size() == 1);
}

TEST_CASE("a failed block fails the future with the root cause") {
  Fetching f({4}, {2});
  msg::Offer failed = f.offer(1);
  failed.failed = {Errc::kOutOfMemory, "matmul on w3/host:0 needs 8 bytes, 4 are there"};
  f.world.fake.deliver({failed});
  CHECK(f.world.fake.take_batches().dones.size() == 1);
  const ArrayError e = thrown([&] { f.future.get<double>(); });
  CHECK(e.code() == Errc::kOutOfMemory);
  CHECK(says(e, "matmul on w3/host:0"));
  CHECK(f.world.fake.all<msg::CancelRequest>().empty());  // the scheduler's own story stays
  f.world.fake.deliver({f.offer(0)});                     // the end stays the end
  CHECK(thrown([&] { f.future.wait(); }).code() == Errc::kOutOfMemory);
}

TEST_CASE("blocks of the wrong size are corrupt, not copied") {
  for (const int wrong : {0, 1, 2}) {
    Fetching f({4}, {2});
    msg::Offer offer = f.offer(1);
    if (wrong == 0) offer.bytes = 24;
    if (wrong == 1) offer.data.pop_back();
    if (wrong == 2) offer.block.block = 2;
    f.world.fake.deliver({offer});
    CHECK(f.world.fake.take_batches().dones.size() == 1);
    CHECK(thrown([&] { f.future.wait(); }).code() == Errc::kCorruptData);
  }
}

TEST_CASE("a failed transfer is granted again, three times in all") {
  Fetching f({4}, {2});
  FakeEndpoint& fake = f.world.fake;
  fake.can_map = false;
  fake.deliver({f.offer(0, false)});
  std::set<std::uint64_t> nonces;
  for (int attempt = 0; attempt < 3; ++attempt) {
    CHECK(!f.future.ready());
    const msg::PeerBatch out = fake.take_batches();
    REQUIRE(out.grants.size() == 1);
    CHECK(nonces.insert(out.grants[0].transfer).second);
    fake.receives.at(out.grants[0].transfer).done(error(Errc::kTimeout, "the lane is silent"));
  }
  CHECK(fake.take_batches().dones.size() == 1);
  CHECK(thrown([&] { f.future.wait(); }).code() == Errc::kTimeout);
  CHECK(fake.all<msg::CancelRequest>().size() == 1);  // nobody else knows
}

TEST_CASE("what a worker was granted and cannot send is not waited for") {
  Fetching f({4}, {2});
  FakeEndpoint& fake = f.world.fake;
  fake.can_map = false;
  fake.deliver({f.offer(0, false)});
  const std::uint64_t transfer = fake.take_batches().grants.at(0).transfer;
  msg::PeerBatch batch;
  batch.relays = {{f.offer(0).block, kDevice, kSelf, msg::RelayWord::kOver, transfer}};
  fake.up.on_peer(kWorker, batch);
  CHECK(fake.disarmed.empty());
  batch.relays[0].word = msg::RelayWord::kMissing;
  fake.up.on_peer(kWorker, batch);
  CHECK(fake.disarmed == std::vector{std::pair(kWorker, transfer)});
}

TEST_CASE("a transfer that a broken link ended is granted again, and does not count") {
  Fetching f({2}, {2});
  FakeEndpoint& fake = f.world.fake;
  fake.can_map = false;
  fake.deliver({f.offer(0, false)});
  std::set<std::uint64_t> nonces;
  for (int attempt = 0; attempt < 20; ++attempt) {
    const msg::PeerBatch out = fake.take_batches();
    REQUIRE(out.grants.size() == 1);
    CHECK(nonces.insert(out.grants[0].transfer).second);
    fake.receives.at(out.grants[0].transfer).done(error(Errc::kUnavailable, "the link broke"));
  }
  const msg::PeerBatch out = fake.take_batches();
  REQUIRE(out.grants.size() == 1);
  const double values[] = {1, 2};
  std::memcpy(fake.receives.at(out.grants[0].transfer).to, values, 16);
  fake.receives.at(out.grants[0].transfer).done({});
  CHECK(fake.take_batches().dones.size() == 1);
  CHECK(f.future.ready());
}

TEST_CASE("a repeat while bytes are coming is not granted again, but gets its Done") {
  Fetching f({2}, {2});
  FakeEndpoint& fake = f.world.fake;
  fake.can_map = false;
  fake.deliver({f.offer(0, false)});
  fake.deliver({f.offer(0, false)});
  const msg::PeerBatch out = fake.take_batches();
  REQUIRE(out.grants.size() == 1);
  CHECK(out.dones.empty());
  auto& receive = fake.receives.at(out.grants[0].transfer);
  const double values[] = {0, 1};
  std::memcpy(receive.to, values, 16);
  receive.done({});
  CHECK(fake.take_batches().dones.size() == 2);
  f.check_counting();
}

TEST_CASE("a lost worker's block is taken from elsewhere") {
  Fetching f({2}, {2});
  FakeEndpoint& fake = f.world.fake;
  fake.can_map = false;
  fake.deliver({f.offer(0, false)});
  const std::uint64_t nonce = fake.take_batches().grants.at(0).transfer;
  fake.up.on_message(msg::Log{1, 1, {msg::PeerLost{kWorker}}});
  fake.receives.at(nonce).done(error(Errc::kWorkerLost, "gone"));
  CHECK(!f.future.ready());
  CHECK(fake.take_batches().grants.empty());
  fake.deliver({f.offer(0)}, WorkerId(4));
  f.check_counting();
}

TEST_CASE("an offer from elsewhere waits until a lost transfer has let go") {
  Fetching f({2}, {2});
  FakeEndpoint& fake = f.world.fake;
  fake.can_map = false;
  fake.deliver({f.offer(0, false)});
  const std::uint64_t nonce = fake.take_batches().grants.at(0).transfer;
  fake.up.on_message(msg::Log{1, 1, {msg::PeerLost{kWorker}}});
  fake.deliver({f.offer(0, false)}, WorkerId(4));
  CHECK(fake.take_batches().empty());
  fake.receives.at(nonce).done(error(Errc::kWorkerLost, "gone"));
  const msg::PeerBatch out = fake.take_batches();
  REQUIRE(out.grants.size() == 1);
  const double values[] = {0, 1};
  std::memcpy(fake.receives.at(out.grants[0].transfer).to, values, 16);
  fake.receives.at(out.grants[0].transfer).done({});
  f.check_counting();
}

TEST_CASE("an offer from elsewhere that comes before the news of the loss is taken when the transfer fails") {
  Fetching f({2}, {2});
  FakeEndpoint& fake = f.world.fake;
  fake.can_map = false;
  fake.deliver({f.offer(0, false)});
  const std::uint64_t nonce = fake.take_batches().grants.at(0).transfer;
  fake.deliver({f.offer(0, false)}, WorkerId(4));
  fake.up.on_message(msg::Log{1, 1, {msg::PeerLost{kWorker}}});
  CHECK(fake.take_batches().empty());
  fake.receives.at(nonce).done(error(Errc::kWorkerLost, "gone"));
  const msg::PeerBatch out = fake.take_batches();
  REQUIRE(out.grants.size() == 1);
  const double values[] = {0, 1};
  std::memcpy(fake.receives.at(out.grants[0].transfer).to, values, 16);
  fake.receives.at(out.grants[0].transfer).done({});
  f.check_counting();
}

TEST_CASE("no more is granted at a time than the client means to have in flight") {
  constexpr std::int64_t kBlock = 8 << 20;  // 64 MiB
  World world;
  FakeEndpoint& fake = world.fake;
  fake.can_map = false;
  Future f = world.session.compute({world.session.zeros({6 * kBlock}, {.block = {kBlock}})});
  fake.reply(fake.last());
  for (std::int64_t b = 0; b < 6; ++b) {
    msg::Offer offer{{FakeEndpoint::id_of(FakeEndpoint::fetched(fake.last())), b}, OpId(1), kDevice, kSelf};
    offer.bytes = kBlock * 8;
    fake.deliver({offer});
  }
  std::vector<msg::Grant> grants = fake.take_batches().grants;
  CHECK(grants.size() == 4);
  for (std::size_t i = 0; i < grants.size(); ++i) {
    fake.receives.at(grants[i].transfer).done({});
    const std::vector<msg::Grant> more = fake.take_batches().grants;
    grants.insert(grants.end(), more.begin(), more.end());
  }
  CHECK(grants.size() == 6);
  CHECK(f.ready());
}

TEST_CASE("two futures of one held array are both served by one transfer") {
  World world;
  FakeEndpoint& fake = world.fake;
  fake.can_map = false;
  Array x = world.session.zeros({2}, {.block = {2}});
  x.persist();
  fake.done(fake.last());
  Future first = world.session.compute({x});
  fake.reply(fake.last());
  const double values[] = {0, 1};
  fake.deliver({fake.offer(1, 0, values, 16, false)});
  Future second = world.session.compute({x});
  fake.reply(fake.last());
  fake.deliver({fake.offer(1, 0, values, 16, false)});  // of the second fetch
  const msg::PeerBatch out = fake.take_batches();
  REQUIRE(out.grants.size() == 1);
  auto& receive = fake.receives.at(out.grants[0].transfer);
  std::memcpy(receive.to, values, 16);
  receive.done({});
  CHECK(first.get<double>() == std::vector<double>{0, 1});
  CHECK(second.get<double>() == std::vector<double>{0, 1});
  CHECK(fake.take_batches().dones.size() == 2);
}

TEST_CASE("an offer to a request that is not answered yet is its own, though others wait for the array") {
  World world;
  FakeEndpoint& fake = world.fake;
  Array x = world.session.zeros({4}, {.block = {2}});
  x.persist();
  fake.reply(fake.last());
  fake.done(fake.last());
  Future first = world.session.compute({x});
  fake.reply(fake.last());
  const double values[] = {0, 1, 2, 3};
  fake.deliver({fake.offer(1, 0, values, 16)});
  CHECK(fake.take_batches().dones.size() == 1);
  Future second = world.session.compute({x});
  fake.op = OpId(66);
  fake.deliver({fake.offer(1, 0, values, 16), fake.offer(1, 1, values + 2, 16)});
  CHECK(fake.take_batches().dones.empty());
  CHECK(!first.ready());
  fake.reply(fake.last());
  CHECK(fake.take_batches().dones.size() == 2);
  CHECK(first.get<double>() == std::vector<double>{0, 1, 2, 3});
  CHECK(second.get<double>() == std::vector<double>{0, 1, 2, 3});
}

TEST_CASE("arrays without elements, and of every dtype") {
  World world;
  Future none = world.session.compute({world.session.zeros({0, 3})});
  CHECK(!none.ready());
  world.fake.reply(world.fake.last());
  CHECK(none.get<double>().empty());

  Future flags = world.session.compute({world.session.zeros({3}, {.dtype = DType::kBool})});
  world.fake.reply(world.fake.last());
  const char bytes[] = {1, 0, 1};
  world.fake.deliver({world.fake.offer(FakeEndpoint::fetched(world.fake.last()), 0, bytes, 3)});
  CHECK(flags.get<bool>() == std::vector<bool>{true, false, true});
}

// ---- out -------------------------------------------------------------------------------------------------------------

struct Providing {
  World world;
  std::vector<double> values = std::vector<double>(40 * 40);
  Array array;
  Future future;
  msg::Submit submit;
  std::uint64_t number = 0;

  explicit Providing(const Shape& block, bool answered = true, std::shared_ptr<const void> owner = {}) {
    std::iota(values.begin(), values.end(), 0.0);
    array = world.session.from_memory(values, {40, 40}, {.block = block, .owner = std::move(owner)});
    future = array.persist();
    submit = world.fake.last();
    REQUIRE(submit.ops.size() == 2);
    REQUIRE(submit.ops[0].kind == OpKind::kProvide);
    REQUIRE(submit.ops[1].kind == OpKind::kCopy);
    number = submit.ops[0].outputs[0].array;
    if (answered) world.fake.reply(submit);
  }
  msg::PeerBatch subscribe(std::int64_t block) {
    msg::PeerBatch batch;
    batch.subscribes.push_back({{FakeEndpoint::id_of(number), block}, OpId(5), kSelf, kDevice});
    world.fake.up.on_peer(kWorker, batch);
    return world.fake.take_batches();
  }
  void grant(std::int64_t block, std::uint64_t transfer) {
    msg::PeerBatch batch;
    batch.grants.push_back({{FakeEndpoint::id_of(number), block}, kSelf, kDevice, transfer});
    world.fake.up.on_peer(kWorker, batch);
  }
  std::vector<double> expected(std::int64_t block) {
    return counting_block(submit.ops[0].outputs[0].grid, block);
  }
};

TEST_CASE("small blocks are offered with their bytes") {
  Providing p({10, 20});
  const msg::PeerBatch out = p.subscribe(3);
  REQUIRE(out.offers.size() == 1);
  const msg::Offer& offer = out.offers[0];
  CHECK(offer.inlined);
  CHECK(offer.op == OpId(5));
  CHECK(offer.from == kSelf);
  CHECK(offer.to == kDevice);
  CHECK(offer.bytes == 1600);
  REQUIRE(offer.data.size() == 1600);
  CHECK(std::memcmp(offer.data.data(), p.expected(3).data(), 1600) == 0);
}

TEST_CASE("larger blocks must be granted, and are sent packed") {
  for (const Shape& block : {Shape{20, 40}, Shape{40, 20}}) {  // one run of the user's memory, or not
    Providing p(block);
    const msg::PeerBatch out = p.subscribe(1);
    REQUIRE(out.offers.size() == 1);
    CHECK(!out.offers[0].inlined);
    CHECK(out.offers[0].slab == kNoSlab);
    CHECK(out.offers[0].bytes == 6400);
    p.grant(1, 77);
    REQUIRE(p.world.fake.transmits.size() == 1);
    const auto& sent = p.world.fake.transmits[0];
    CHECK(sent.to == kDevice);
    CHECK(sent.transfer == 77);
    REQUIRE(sent.bytes.size() == 6400);
    CHECK(std::memcmp(sent.bytes.data(), p.expected(1).data(), 6400) == 0);
    sent.done(error(Errc::kIo, "x"));  // it does not go: whoever waits for it is told
    const auto& [told, batch] = p.world.fake.batches.back();
    REQUIRE(batch.relays.size() == 1);
    CHECK(batch.relays[0].word == msg::RelayWord::kMissing);
    CHECK(batch.relays[0].to == kDevice);
    CHECK(batch.relays[0].transfer == 77);
    const std::size_t batches = p.world.fake.batches.size();
    p.grant(1, 78);  // a retry of the receiver
    REQUIRE(p.world.fake.transmits.size() == 2);
    p.world.fake.transmits[1].done({});
    CHECK(p.world.fake.batches.size() == batches);
  }
}

TEST_CASE("a subscription before the reply waits for it; one after the end is told gone") {
  Providing p({20, 40}, false);
  CHECK(p.subscribe(0).empty());
  p.world.fake.reply(p.submit);
  CHECK(p.world.fake.take_batches().offers.size() == 1);
  CHECK(p.subscribe(2).gones.size() == 1);  // there are two blocks
  p.world.fake.done(p.submit);
  CHECK(p.future.ready());
  const msg::PeerBatch out = p.subscribe(0);
  CHECK(out.offers.empty());
  REQUIRE(out.gones.size() == 1);
  CHECK(out.gones[0] == msg::Gone{{FakeEndpoint::id_of(p.number), 0}, kSelf, kDevice});
}

TEST_CASE("memory is copied at the call, or borrowed until nothing needs it") {
  {
    Providing p({10, 20});
    p.values.assign(p.values.size(), -1);
    const msg::PeerBatch out = p.subscribe(0);
    double first = 0;
    std::memcpy(&first, out.offers.at(0).data.data() + 8, 8);
    CHECK(first == 1);
  }
  auto owner = std::make_shared<int>(0);
  const std::weak_ptr<int> alive = owner;
  Providing p({20, 40}, true, std::move(owner));
  p.values[0] = 42;  // borrowed: seen
  p.grant(0, 1);
  double first = 0;
  std::memcpy(&first, p.world.fake.transmits.at(0).bytes.data(), 8);
  CHECK(first == 42);
  p.world.fake.done(p.submit);
  CHECK(!alive.expired());  // the transport has not finished
  p.world.fake.transmits.clear();
  CHECK(alive.expired());  // and the array is the cluster's now
}

TEST_CASE("what workers can read where it lies is offered there: runs that are aligned") {
  World world;
  world.fake.can_lend = true;
  alignas(64) std::array<double, 33> values{};
  const auto owner = std::make_shared<int>(0);
  const std::span<const double> odd(values.data() + 1, 32);
  const auto offers_of = [&](std::span<const double> from, const Shape& block, bool adopt) {
    Array x = world.session.from_memory(from, {8, 4}, {.block = block, .owner = owner, .adopt = adopt});
    Future future = x.persist();
    const msg::Submit submit = world.fake.last();
    world.fake.reply(submit);
    msg::PeerBatch batch;
    const ArrayId array = FakeEndpoint::id_of(submit.ops[0].outputs[0].array);
    for (std::int64_t b = 0; b < 4; ++b) batch.subscribes.push_back({{array, b}, OpId(5), kSelf, kDevice});
    world.fake.up.on_peer(kWorker, batch);
    REQUIRE(world.fake.lent.size() == 1);
    CHECK(world.fake.lent.begin()->second.second == adopt);
    CHECK(world.fake.lent.begin()->first == world.fake.next_lent);
    world.fake.done(submit);
    CHECK(world.fake.lent.empty());  // withdrawn
    return world.fake.take_batches().offers;
  };
  std::vector<msg::Offer> offers = offers_of(std::span<const double>(values).first(32), {2, 4}, true);
  REQUIRE(offers.size() == 4);
  for (std::int64_t b = 0; b < 4; ++b) {
    CHECK(offers[b].slab == world.fake.next_lent);
    CHECK(offers[b].offset == b * 64);
    CHECK(!offers[b].inlined);
  }
  CHECK(world.session.uploads().in_place == 256);
  CHECK(world.session.uploads().sent == 0);
  offers = offers_of(std::span<const double>(values).first(32), {4, 2}, false);  // columns: not one run
  for (const msg::Offer& offer : offers) CHECK(offer.slab == kNoSlab);
  CHECK(world.session.uploads().in_place == 256);
  CHECK(world.session.uploads().sent == 256);
  offers = offers_of(odd, {2, 4}, true);  // 8 bytes behind a multiple of 16
  for (const msg::Offer& offer : offers) CHECK(offer.inlined);
}

TEST_CASE("a device that has the bytes sent after all has not read them in place") {
  World world;
  world.fake.can_lend = true;
  const HostBuffer<double> buffer = world.session.allocate<double>({1000});
  CHECK(reinterpret_cast<std::uintptr_t>(buffer.values.data()) % 64 == 0);
  CHECK(buffer.values[999] == 0);
  buffer.view()(999) = 4;
  Array x = world.session.from_buffer(buffer);
  Future future = x.persist();
  const msg::Submit submit = world.fake.last();
  world.fake.reply(submit);
  const msg::BlockRef block{FakeEndpoint::id_of(submit.ops[0].outputs[0].array), 0};
  msg::PeerBatch batch;
  batch.subscribes.push_back({block, OpId(5), kSelf, kDevice});
  batch.subscribes.push_back({block, OpId(5), kSelf, kDevice});  // a repeat
  world.fake.up.on_peer(kWorker, batch);
  CHECK(world.session.uploads().in_place == 8000);
  msg::PeerBatch grant;
  grant.grants.push_back({block, kSelf, kDevice, 9});
  world.fake.up.on_peer(kWorker, grant);
  CHECK(world.session.uploads().in_place == 0);
  CHECK(world.session.uploads().sent == 8000);
  double last = 0;
  std::memcpy(&last, world.fake.transmits.at(0).bytes.data() + 7992, 8);
  CHECK(last == 4);
}

TEST_CASE("a single value is a constant, not a transfer") {
  World world;
  world.session.compute({world.session.from_memory(std::vector<float>{2.5f}, {1, 1})});
  const msg::Submit s = world.fake.last();
  REQUIRE(s.ops.size() == 2);
  REQUIRE(s.ops[0].kind == OpKind::kMap);
  CHECK(s.ops[0].get<ir::MapAttrs>().tape.code.back().imm_f == 2.5);
  CHECK(s.ops[0].outputs[0].dtype == DType::kFloat32);
}

TEST_CASE("values in braces have their elements' dtype") {
  World world;
  const Session& s = world.session;
  CHECK(s.from_memory({1.0, 2.0}, {2}).dtype() == DType::kFloat64);
  CHECK(s.from_memory({1.0f, 2.0f}, {2}).dtype() == DType::kFloat32);
  CHECK(s.from_memory({1, 2, 3, 4}, {2, 2}).dtype() == DType::kInt32);
  CHECK(s.from_memory({std::int64_t{1}, std::int64_t{2}}, {2}).dtype() == DType::kInt64);
  CHECK(s.from_memory({true, false}, {2}).dtype() == DType::kBool);
  CHECK(s.from_memory({1.0, 2.0, 3.0}, {3}, {.block = {2}}).grid().counts() == Shape{2});
  CHECK(s.from_memory<float>({1, 2}, {2}).dtype() == DType::kFloat32);
  CHECK(s.from_memory(std::vector<bool>{true}, {1}).dtype() == DType::kBool);
  CHECK(thrown([&] { s.from_memory({1.0, 2.0}, {3}); }).code() == Errc::kShapeMismatch);
}

TEST_CASE("shapes that do not fit their values are refused") {
  World world;
  const ArrayError e = thrown([&] { world.session.from_memory(std::vector<double>(5), {2, 3}); });
  CHECK(e.code() == Errc::kShapeMismatch);
  CHECK(says(e, "5 values"));
  CHECK(says(e, "(2, 3)"));
}

}  // namespace
}  // namespace tilewise::client

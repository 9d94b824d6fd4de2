// Pieces of an array that several sessions announce, and blocks that are read where they lie, against a scheduler and workers made
// of paper.
#include <numeric>
#include <thread>

#include "fake_endpoint.h"
#include "session_state.h"

namespace tilewise::client {
namespace {

std::vector<double> counting(std::int64_t n, double from = 0) {
  std::vector<double> out(static_cast<std::size_t>(n));
  std::iota(out.begin(), out.end(), from);
  return out;
}

// What a thread of its own gets, or is told.
struct Announcing {
  World& world;
  Array array;
  ArrayError error{Errc::kOk, ""};
  std::thread thread;

  Announcing(World& w, const Shape& shape, std::vector<LocalBlock<double>> pieces,
             LocalBlocksOptions options = {.processes = 2})
      : world(w), thread([this, shape, pieces = std::move(pieces), options] {
          error = thrown([&] { array = world.session.from_local_blocks("x", shape, pieces, options); });
        }) {}
  void join() { thread.join(); }
};

msg::PeerBatch subscribed(World& w, std::uint64_t number, std::int64_t block) {
  msg::PeerBatch batch;
  batch.subscribes.push_back({{FakeEndpoint::id_of(number), block}, OpId(5), kSelf, kDevice});
  w.fake.up.on_peer(kWorker, std::move(batch));
  return w.fake.take_batches();
}

TEST_CASE("an announcement waits for as long as it says, as its session does, or 5 minutes") {
  using std::chrono::seconds;
  struct Case {
    int session_s, own_s, told_s;
  };
  for (const Case& c : {Case{3, 7, 7}, Case{3, 0, 3}, Case{0, 0, 300}}) {
    World w({.timeout = seconds(c.session_s)});
    auto owner = std::make_shared<std::vector<double>>(counting(12));
    Announcing a(w, {3, 4}, {{{0, 0}, {3, 4}, *owner, owner}}, {.timeout = seconds(c.own_s)});
    const msg::Announce m = w.fake.announcement();
    CHECK(m.timeout_ns == c.told_s * kSecond);
    w.fake.up.on_message(msg::SubmitReply{m.request, {Errc::kTimeout, "nobody came"}, {}, {}, {}});
    a.join();
  }
}

TEST_CASE("an announcement says what there is, waits, and gives the array with the cuts of all") {
  World w;
  auto owner = std::make_shared<std::vector<double>>(counting(12));
  Announcing a(w, {8, 4}, {{{0, 0}, {3, 4}, *owner, owner}},
               {.processes = 3, .timeout = std::chrono::seconds(7)});
  const msg::Announce m = w.fake.announcement();
  CHECK(m.name == "x");
  CHECK(m.dtype == DType::kFloat64);
  CHECK(m.shape == Shape{8, 4});
  CHECK(m.processes == 3);
  CHECK(m.timeout_ns == 7 * kSecond);
  CHECK(m.weight == 100);
  CHECK(m.pieces == std::vector<ir::Box>{{{0, 0}, {3, 4}}});
  CHECK(m.failed.ok());
  const ir::Grid grid({*ir::DimGrid::cuts(8, {0, 1, 3}), *ir::DimGrid::uniform(4, 2)});
  w.fake.reply(m, grid);
  a.join();
  REQUIRE(a.error.code() == Errc::kOk);
  CHECK(a.array.grid() == grid);

  SUBCASE(
      "its blocks are offered as they are asked for, others' are not here, and the memory is let go at the "
      "end") {
    w.fake.up.on_message(msg::SubmitReply{m.request, {}, GraphId(1), {}, grid});  // a repeat is no news
    const auto first = subscribed(w, m.array, 1);                                 // [0:1, 2:4]
    REQUIRE(first.offers.size() == 1);
    const double* values = reinterpret_cast<const double*>(first.offers[0].data.data());
    CHECK(std::vector(values, values + 2) == std::vector{2.0, 3.0});
    const auto second = subscribed(w, m.array, 3);  // [1:3, 2:4]
    REQUIRE(second.offers.size() == 1);
    values = reinterpret_cast<const double*>(second.offers[0].data.data());
    CHECK(std::vector(values, values + 4) == std::vector{6.0, 7.0, 10.0, 11.0});
    CHECK(subscribed(w, m.array, 4).gones.size() == 1);
    CHECK(subscribed(w, m.array, 6).gones.size() == 1);
    CHECK(owner.use_count() > 1);
    w.fake.up.on_message(msg::GraphDone{m.request, {}, 6});
    CHECK(owner.use_count() == 1);
  }
  SUBCASE("it is named by later submissions, and released once") {
    const Future sum_of = w.session.compute({a.array + 1.0});
    CHECK(w.fake.last().ops[0].operands[0].array == m.array);
    w.fake.up.on_message(msg::GraphDone{m.request, {}, 6});
    a.array = {};
    w.fake.up.on_message(msg::Ping{1});
    const auto releases = w.fake.all<msg::ReleaseArrays>();
    REQUIRE(releases.size() == 1);
    CHECK(releases[0].arrays == std::vector{m.array});
  }
  SUBCASE("persist() waits for its bytes") {
    const Future there = a.array.persist();
    CHECK(!there.ready());
    w.fake.up.on_message(msg::GraphDone{m.request, {}, 6});
    CHECK(there.ready());
  }
  SUBCASE("where it fails later, whoever uses it is told why, and nothing is sent") {
    w.fake.up.on_message(msg::GraphDone{m.request, {Errc::kWorkerLost, "client 'b' has left"}, 6});
    const std::size_t sent = w.fake.all<msg::Submit>().size();
    for (const auto& e :
         {thrown([&] { (void)(a.array + 1.0).get<double>(); }), thrown([&] { a.array.persist().wait(); })}) {
      CHECK(e.code() == Errc::kWorkerLost);
      CHECK(says(e, "client 'b' has left"));
    }
    CHECK(w.fake.all<msg::Submit>().size() == sent);
    a.array = {};
    w.fake.up.on_message(msg::Ping{1});
    CHECK(w.fake.held.empty());
  }
}

TEST_CASE("large blocks go straight from where they lie, if they are one run there") {
  World w;
  auto owner = std::make_shared<std::vector<double>>(counting(4 * 1000));
  Announcing a(w, {4, 2000}, {{{0, 1000}, {4, 1000}, *owner, owner}});
  const msg::Announce m = w.fake.announcement();
  w.fake.reply(m, ir::Grid({*ir::DimGrid::uniform(4, 2), *ir::DimGrid::uniform(2000, 1000)}));
  a.join();
  const auto offered = subscribed(w, m.array, 3);  // rows 2 and 3 of the second half
  REQUIRE(offered.offers.size() == 1);
  CHECK(!offered.offers[0].inlined);
  msg::PeerBatch batch;
  batch.grants.push_back({offered.offers[0].block, kSelf, kDevice, 9});
  w.fake.up.on_peer(kWorker, std::move(batch));
  REQUIRE(w.fake.transmits.size() == 1);
  CHECK(std::memcmp(w.fake.transmits[0].bytes.data(), owner->data() + 2000, 16'000) == 0);
  w.fake.up.on_message(msg::GraphDone{m.request, {}, 1});
  CHECK(owner.use_count() > 1);  // the transport has it
  w.fake.transmits.clear();
  CHECK(owner.use_count() == 1);
}

TEST_CASE("without an owner values are copied at the call; subscriptions may come before the answer") {
  World w;
  std::vector<double> values = counting(4);
  Announcing a(w, {8}, {{{0}, {4}, values}});
  const msg::Announce m = w.fake.announcement();
  values.assign(4, -1);
  CHECK(subscribed(w, m.array, 0).empty());
  w.fake.reply(m, *ir::Grid::uniform({8}, {4}));
  a.join();
  const auto batch = w.fake.take_batches();
  REQUIRE(batch.offers.size() == 1);
  CHECK(*reinterpret_cast<const double*>(batch.offers[0].data.data() + 8) == 1.0);
}

TEST_CASE("offers of other requests are answered while an announcement waits") {
  World w;
  Announcing a(w, {8}, {});
  const msg::Announce m = w.fake.announcement();
  const double value = 1;
  w.fake.deliver({w.fake.offer(999, 0, &value, 8)});  // of one that was cancelled, say
  CHECK(w.fake.take_batches().dones.size() == 1);
  w.fake.up.on_lost({Errc::kUnavailable, "gone"});
  a.join();
  CHECK(a.error.code() == Errc::kUnavailable);
}

TEST_CASE("memory that was lent is let go when the scheduler is lost, asked for or not") {
  for (const bool answered : {false, true}) {
    World w;
    auto owner = std::make_shared<std::vector<double>>(counting(8));
    Announcing a(w, {8}, {{{0}, {8}, *owner, owner}});
    const msg::Announce m = w.fake.announcement();
    if (answered) w.fake.reply(m, *ir::Grid::uniform({8}, {4}));
    w.fake.up.on_lost({Errc::kUnavailable, "gone"});
    a.join();
    CHECK(owner.use_count() == 1);
  }
}

TEST_CASE("an answer with cuts that the pieces do not have is refused: nothing beyond a piece is sent") {
  const ir::Grid good({*ir::DimGrid::cuts(8, {0, 3}), ir::DimGrid::whole(4)});
  const ir::Grid wrong[] = {*ir::Grid::uniform({8, 4}, {4, 4}), *ir::Grid::uniform({8, 4}, {8, 4}),
                            *ir::Grid::uniform({4, 8}, {1, 1}), *ir::Grid::uniform({32}, {1}), ir::Grid()};
  for (std::size_t i = 0; i <= std::size(wrong) + 1; ++i) {
    World w;
    auto owner = std::make_shared<std::vector<double>>(counting(20));
    Announcing a(w, {8, 4}, {{{3, 0}, {5, 4}, *owner, owner}});
    const msg::Announce m = w.fake.announcement();
    msg::SubmitReply reply{m.request, {}, GraphId(1), {{m.array, FakeEndpoint::id_of(m.array)}}, good};
    if (i < std::size(wrong)) reply.grid = wrong[i];
    if (i == std::size(wrong)) reply.arrays[0].first = m.array + 1;
    if (i == std::size(wrong) + 1) reply.arrays.clear();
    w.fake.up.on_message(reply);
    a.join();
    CHECK(a.error.code() == Errc::kInternal);
    CHECK(owner.use_count() == 1);
    CHECK(subscribed(w, m.array, 0).gones.size() == 1);
  }
}

TEST_CASE("what the scheduler says became of it is thrown") {
  World w;
  auto owner = std::make_shared<std::vector<double>>(counting(4));
  Announcing a(w, {8}, {{{0}, {4}, *owner, owner}});
  const msg::Announce m = w.fake.announcement();
  w.fake.up.on_message(msg::SubmitReply{m.request, {Errc::kTimeout, "only 1 of 2"}, {}, {}, {}});
  a.join();
  CHECK(a.error.code() == Errc::kTimeout);
  CHECK(says(a.error, "only 1 of 2"));
  CHECK(owner.use_count() == 1);
  CHECK(w.session.state()->graph_size() == 0);
}

TEST_CASE("an answer that nobody waits for any more is given back") {
  World w;
  Announcing a(w, {8}, {});
  const msg::Announce m = w.fake.announcement();
  w.fake.up.on_message(msg::Refusal{{Errc::kInvalidArgument, "of something"}});
  a.join();
  CHECK(a.error.code() == Errc::kInvalidArgument);
  w.fake.reply(m, *ir::Grid::uniform({8}, {4}));
  CHECK(w.fake.held.empty());
  w.fake.up.on_message(msg::GraphDone{m.request, {}, 1});
  CHECK(w.session.state()->graph_size() == 0);
}

TEST_CASE("a piece that cannot be right is refused here, and the others are told") {
  World w;
  const std::vector<double> values = counting(12);
  struct Case {
    LocalBlock<double> piece;
    Errc code;
    const char* text;
  };
  const Case cases[] = {
      {{{0, 0}, {2, 4}, values},
       Errc::kShapeMismatch,
       "piece 0 of shape (2, 4) has 96 bytes, not 8 of float64"},
      {{{0}, {12}, values}, Errc::kInvalidArgument, "their ranks differ"},
      {{{6, 0}, {3, 4}, values},
       Errc::kInvalidArgument,
       "piece 0 at (6, 0) of shape (3, 4) is empty, or not inside (8, 4)"},
      {{{-1, 0}, {3, 4}, values}, Errc::kInvalidArgument, "not inside"},
      {{{0, 0}, {0, 4}, {}}, Errc::kInvalidArgument, "is empty"},
      {{{0, 0}, {2, -4}, values}, Errc::kInvalidArgument, "is empty"},
      {{{INT64_MAX, 0}, {2, 4}, values}, Errc::kInvalidArgument, "not inside"},
      {{{std::int64_t{1} << 62, 0}, {std::int64_t{1} << 62, 4}, values},
       Errc::kInvalidArgument,
       "not inside"},
  };
  std::size_t count = 0;
  for (const Case& c : cases) {
    const ArrayError e = thrown([&] { (void)w.session.from_local_blocks<double>("x", {8, 4}, {c.piece}); });
    CHECK(e.code() == c.code);
    CHECK_MESSAGE(says(e, c.text), e.what());
    const msg::Announce told = w.fake.announcement(++count);
    CHECK(told.failed.code == c.code);
    CHECK(told.pieces.empty());
    w.fake.up.on_message(msg::SubmitReply{told.request, told.failed, {}, {}, {}});
  }
  const ArrayError huge = thrown([&] {
    (void)w.session.from_local_blocks<double>("x", {INT64_MAX, INT64_MAX}, {});
  });
  CHECK(huge.code() != Errc::kOk);
  CHECK(w.fake.announcement(++count).failed.code == huge.code());
  for (const std::string& name : {std::string(), std::string(257, 'x')})
    CHECK(thrown([&] { (void)w.session.from_local_blocks<double>(name, {8}, {}); }).code() ==
          Errc::kInvalidArgument);
  CHECK(w.fake.all<msg::Announce>().size() == count);
}

// ---- blocks read where they lie ------------------------------------------------------------------------------------

struct Lending {
  World w;
  Array array = w.session.zeros({8}, {.block = {2}});
  AddressableBlocks blocks;
  ArrayError error{Errc::kOk, ""};
  std::thread thread;
  msg::Submit submit;
  std::uint64_t number = 0;

  Lending()
      : thread([this] {
          error = thrown(
              [&] { blocks = w.session.addressable_blocks(array, {.timeout = std::chrono::seconds(20)}); });
        }) {
    while (w.fake.all<msg::Submit>().empty()) std::this_thread::yield();
    submit = w.fake.last();
    number = FakeEndpoint::fetched(submit);
    w.fake.slab.reserve(4096);  // nothing moves
    w.fake.reply(submit);
  }
  ~Lending() {
    if (thread.joinable()) thread.join();
  }
  msg::Offer offer(std::int64_t block, bool mapped = true) {
    const std::vector<double> values = counting(2, static_cast<double>(2 * block));
    return w.fake.offer(number, block, values.data(), 16, !mapped);
  }
};

TEST_CASE("blocks that can be mapped are lent: their Dones are sent when the last copy goes") {
  Lending l;
  l.w.fake.deliver({l.offer(3), l.offer(0)});
  msg::Offer away = l.offer(1);
  away.slab = msg::kNoSlab;  // on disk, say
  l.w.fake.deliver({away, l.offer(2, false)});
  CHECK(l.w.fake.take_batches().dones.size() == 2);  // those that are not lent
  l.thread.join();
  REQUIRE(l.error.code() == Errc::kOk);
  REQUIRE(l.blocks.size() == 2);
  CHECK(l.blocks.elsewhere() == 2);
  CHECK(l.blocks.blocks()[0].block == 0);
  CHECK(l.blocks.blocks()[1].box == ir::Box{{6}, {8}});
  CHECK(l.blocks.blocks()[1].device.id == kDevice);
  CHECK(l.blocks.blocks()[1].values<double>()[1] == 7.0);
  CHECK(thrown([&] { (void)l.blocks.blocks()[1].values<float>(); }).code() == Errc::kInvalidArgument);
  CHECK(l.w.fake.pinned.use_count() > 1);
  l.w.fake.up.on_message(msg::GraphDone{l.submit.request, {}, 1});

  msg::Offer repeat = l.offer(3);
  l.w.fake.deliver({repeat});
  CHECK(l.w.fake.take_batches().empty());  // a Done would end the loan
  AddressableBlocks copy = l.blocks;
  l.blocks = {};
  CHECK(l.w.fake.take_batches().empty());
  copy = {};
  CHECK(l.w.fake.take_batches().dones.size() == 2);
  CHECK(l.w.fake.pinned.use_count() == 1);
  l.w.fake.deliver({repeat});
  CHECK(l.w.fake.take_batches().dones.size() == 1);  // an old one, of nobody's
}

TEST_CASE("a block that comes when nobody waits any more is answered, and what had come is given back") {
  World w;
  const Array array = w.session.zeros({8}, {.block = {2}});
  w.fake.slab.reserve(4096);
  const auto offer = [&](std::uint64_t number, std::int64_t block) {
    const std::vector<double> values = counting(2, static_cast<double>(2 * block));
    return w.fake.offer(number, block, values.data(), 16, false);
  };
  ArrayError error{Errc::kOk, ""};
  std::thread waits([&] {
    error = thrown(
        [&] { (void)w.session.addressable_blocks(array, {.timeout = std::chrono::milliseconds(60)}); });
  });
  while (w.fake.all<msg::Submit>().empty()) std::this_thread::yield();
  const msg::Submit submit = w.fake.last();
  w.fake.reply(submit);
  w.fake.deliver({offer(FakeEndpoint::fetched(submit), 0)});
  waits.join();
  CHECK(error.code() == Errc::kTimeout);
  CHECK(w.fake.all<msg::CancelRequest>().size() == 1);
  CHECK(w.fake.take_batches().dones.size() == 1);
  w.fake.deliver({offer(FakeEndpoint::fetched(submit), 1)});
  CHECK(w.fake.take_batches().dones.size() == 1);
  CHECK(w.fake.pinned.use_count() == 1);
}

TEST_CASE("a block at an address that its elements cannot have is not read in place") {
  Lending l;
  l.w.fake.slab.resize(4);
  for (std::int64_t b = 0; b < 4; ++b) l.w.fake.deliver({l.offer(b)});
  l.thread.join();
  CHECK(l.blocks.size() == 0);
  CHECK(l.blocks.elsewhere() == 4);
  CHECK(l.w.fake.take_batches().dones.size() == 4);
}

TEST_CASE("a request that gets values takes them from the same offers") {
  Lending l;
  const Future values = l.w.session.compute({l.array});
  const msg::Submit other = l.w.fake.last();
  msg::SubmitReply reply{
      other.request, {}, GraphId(2), {{FakeEndpoint::fetched(other), FakeEndpoint::id_of(l.number)}}, {}};
  l.w.fake.up.on_message(reply);
  for (std::int64_t b = 0; b < 4; ++b) l.w.fake.deliver({l.offer(b)});
  l.thread.join();
  CHECK(l.blocks.size() == 4);
  CHECK(l.w.fake.take_batches().dones.empty());
  CHECK(values.get<double>() == counting(8));
  for (std::int64_t b = 0; b < 4; ++b) {  // the other request's own
    msg::Offer own = l.offer(b);
    own.op = OpId(56);
    l.w.fake.deliver({own});
  }
  CHECK(l.w.fake.take_batches().dones.size() == 4);
}

TEST_CASE("what fails before all is there is thrown, and what was lent is given back") {
  Lending l;
  l.w.fake.deliver({l.offer(0)});
  msg::Offer failed = l.offer(1);
  failed.failed = {Errc::kTaskFailed, "a kernel"};
  l.w.fake.deliver({failed});
  l.thread.join();
  CHECK(l.error.code() == Errc::kTaskFailed);
  l.w.fake.up.on_message(msg::GraphDone{l.submit.request, {Errc::kTaskFailed, "a kernel"}, 1});
  CHECK(l.w.fake.take_batches().dones.size() == 2);
}

TEST_CASE(
    "loans of a worker that is lost stay readable; at a session's end there is nobody to give back to") {
  AddressableBlocks kept;
  {
    Lending l;
    for (std::int64_t b = 0; b < 4; ++b) l.w.fake.deliver({l.offer(b)});
    l.thread.join();
    l.w.fake.up.on_message(msg::GraphDone{l.submit.request, {}, 1});
    l.w.fake.up.on_message(msg::Log{1, 1, {msg::PeerLost{kWorker, 0, {}}}});
    kept = l.blocks;
    l.blocks = {};
    CHECK(kept.blocks()[2].values<double>()[0] == 4.0);
  }
  CHECK(kept.size() == 4);  // it has kept the session
}

TEST_CASE("views have no blocks, and other sessions' arrays are none of ours") {
  World w, other;
  const Array a = w.session.zeros({8}, {.block = {2}});
  CHECK(thrown([&] { (void)w.session.addressable_blocks(a.slice(0, 1, 3)); }).code() == Errc::kUnsupported);
  CHECK(thrown([&] { (void)other.session.addressable_blocks(a); }).code() == Errc::kInvalidArgument);
  CHECK(thrown([&] { (void)w.session.addressable_blocks({}); }).code() == Errc::kInvalidArgument);
}

}  // namespace
}  // namespace tilewise::client

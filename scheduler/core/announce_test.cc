// Arrays from pieces that several clients announce: who is told what, who holds them, and what ends them.
#include "core_world.h"

namespace tilewise::scheduler::test {
namespace {

constexpr std::uint32_t kA = 10, kB = 11, kC = 12;
constexpr std::uint64_t kNumber = 77;  // what each client calls the array

// Rows [lo, hi) of (8, 4).
ir::Box rows(std::int64_t lo, std::int64_t hi) { return {{lo, 0}, {hi, 4}}; }

struct Gatherers : World {
  explicit Gatherers(Options options = {}) : World(options) {
    add_worker(1, 1, "one");
    add_worker(2, 1, "two");
    for (const auto& [conn, name] : {std::pair(kA, "a"), std::pair(kB, "b"), std::pair(kC, "c")}) {
      msg::Join join = client();
      join.name = name;
      welcomes[conn] = this->join(conn, std::move(join));
    }
  }
  msg::Announce of(std::vector<ir::Box> pieces, std::uint32_t processes = 2, std::string name = "x") const {
    msg::Announce m;
    m.request = 1;
    m.name = std::move(name);
    m.shape = {8, 4};
    m.processes = processes;
    m.array = kNumber;
    m.pieces = std::move(pieces);
    return m;
  }
  void announce(std::uint32_t conn, msg::Announce m) {
    m.request = ++requests[conn];
    receive(conn, std::move(m));
  }
  // Both halves, complete.
  msg::Plan both() {
    announce(kA, of({rows(0, 4)}));
    announce(kB, of({rows(4, 8)}));
    return log<msg::Plan>(1).back();
  }
  msg::SubmitReply reply(std::uint32_t conn) const {
    const auto* m = last<msg::SubmitReply>(conn);
    return m == nullptr ? msg::SubmitReply{} : *m;
  }
  // What all of them were told.
  msg::Outcome told(std::vector<std::uint32_t> conns) const {
    msg::Outcome outcome = reply(conns.front()).outcome;
    for (const std::uint32_t conn : conns) {
      REQUIRE(count<msg::SubmitReply>(conn) > 0);
      CHECK(reply(conn).outcome == outcome);
    }
    return outcome;
  }
  std::int64_t live() {
    apply_logs();
    step({});
    return std::get<ArrayList>(core.view(ArraysRequest{}, now)).live;
  }
  std::map<std::uint32_t, msg::Welcome> welcomes;
  std::map<std::uint32_t, std::uint64_t> requests;
};

bool says(const msg::Outcome& outcome, std::string_view text) {
  return outcome.message.find(text) != std::string::npos;
}

TEST_CASE("with the last announcement the array exists for all who announced") {
  Gatherers w;
  w.announce(kA, w.of({rows(0, 3)}));
  CHECK(w.quiet());
  w.announce(kB, w.of({rows(3, 8)}));
  for (const std::uint32_t conn : {kA, kB}) {
    const msg::SubmitReply reply = w.reply(conn);
    CHECK(reply.outcome.ok());
    CHECK(reply.grid.shape() == ir::Shape{8, 4});
    CHECK(reply.grid.dim(0) == *ir::DimGrid::cuts(8, {0, 3}));
    REQUIRE(reply.arrays.size() == 1);
    CHECK(reply.arrays[0] == std::pair(kNumber, w.reply(kA).arrays[0].second));
  }
  const msg::Plan plan = w.log<msg::Plan>(1).back();
  REQUIRE(plan.ops.size() == 2);
  CHECK(plan.ops[0].op.kind == ir::OpKind::kProvide);
  CHECK(plan.ops[0].op.outputs[0].array == w.reply(kA).arrays[0].second.value);
  CHECK(plan.ops[0].placement.owner({0, 0}) == w.welcomes[kA].devices[0]);
  CHECK(plan.ops[0].placement.owner({1, 0}) == w.welcomes[kB].devices[0]);
  CHECK(plan.ops[1].op.kind == ir::OpKind::kCopy);
  CHECK(plan.ops[1].op.label == "x");
  CHECK(plan.holds == std::vector{ArrayId{plan.ops[1].op.outputs[0].array}});
  CHECK(w.count<msg::GraphDone>(kA) == 0);
  w.complete(plan);
  for (const std::uint32_t conn : {kA, kB}) {
    CHECK(w.count<msg::GraphDone>(conn) == 1);
    CHECK(*w.last<msg::GraphDone>(conn) == msg::GraphDone{1, {}, 2});
  }
  CHECK(w.count<msg::SubmitReply>(kC) == 0);

  const ir::Grid cut = w.reply(kA).grid;

  SUBCASE("each reads it by its own number, and it stays until the last has let it go") {
    CHECK(w.submit(kA, 2, {map(1, cut, {kNumber})}, {1}).outcome.ok());
    CHECK(w.submit(kB, 2, {map(1, cut, {kNumber})}, {1}).outcome.ok());
    CHECK(w.submit(kC, 1, {map(1, cut, {kNumber})}, {1}).outcome.code == Errc::kNotFound);
    w.receive(kA, msg::ReleaseArrays{{kNumber}});
    w.receive(kA, msg::ReleaseArrays{{kNumber}});
    CHECK(w.log<msg::Release>(1).empty());
    CHECK(w.submit(kA, 3, {map(2, cut, {kNumber})}, {2}).outcome.code == Errc::kNotFound);
    CHECK(w.submit(kB, 3, {map(2, cut, {kNumber})}, {2}).outcome.ok());
    w.receive(kB, msg::ReleaseArrays{{kNumber}});
    CHECK(w.log<msg::Release>(1) == std::vector{msg::Release{plan.holds}});
  }
  SUBCASE("whose session ends has let it go, too") {
    w.drop(kA);
    CHECK(w.log<msg::Release>(1).empty());
    CHECK(w.submit(kB, 2, {map(1, cut, {kNumber}), fetch(1, cut)}).outcome.ok());
    w.complete(w.log<msg::Plan>(1).back());
    CHECK(w.live() == 1);
    w.drop(kB);
    CHECK(w.log<msg::Release>(1) == std::vector{msg::Release{plan.holds}});
    CHECK(w.live() == 0);
  }
  SUBCASE("an operator takes it from all") {
    w.step({OperatorRelease{plan.holds[0]}});
    CHECK(w.log<msg::Release>(1) == std::vector{msg::Release{plan.holds}});
    CHECK(w.submit(kB, 2, {map(1, cut, {kNumber})}, {1}).outcome.code == Errc::kNotFound);
    CHECK(w.live() == 0);
  }
  SUBCASE("the dashboard names all who hold it, shows it to each, and shares its bytes out") {
    for (const std::uint32_t conn : {kA, kB}) {
      const auto list =
          std::get<ArrayList>(w.core.view(ArraysRequest{w.welcomes[conn].session}, w.now)).arrays;
      REQUIRE(list.size() == 1);
      CHECK(list[0].client == "a, b");
      CHECK(list[0].label == "x");
    }
    const auto overview = std::get<Overview>(w.core.view(OverviewRequest{}, w.now));
    CHECK(overview.sessions[0].held_bytes == 8 * 4 * 8 / 2);
    CHECK(overview.sessions[1].held_bytes == 8 * 4 * 8 / 2);
    CHECK(overview.sessions[2].held_bytes == 0);
  }
}

TEST_CASE("a process without pieces wants the array too, and one may have them all") {
  Gatherers w;
  w.announce(kA, w.of({}, 3));
  w.announce(kB, w.of({rows(4, 8), rows(0, 4)}, 3));
  CHECK(w.log<msg::Plan>(1).empty());
  w.announce(kC, w.of({}, 3));
  CHECK(w.told({kA, kB, kC}).ok());
  w.complete(w.log<msg::Plan>(1).back());
  CHECK(w.count<msg::GraphDone>(kC) == 1);
}

TEST_CASE("pieces need not lie in a grid: their cuts make one") {
  Gatherers w;
  w.announce(kA, w.of({{{0, 0}, {8, 1}}}));
  w.announce(kB, w.of({{{0, 1}, {5, 4}}, {{5, 1}, {8, 4}}}));
  REQUIRE(w.told({kA, kB}).ok());
  CHECK(w.reply(kA).grid.counts() == ir::Shape{2, 2});
  const msg::Plan plan = w.log<msg::Plan>(1).back();
  CHECK(plan.ops[0].placement.owned_count(w.welcomes[kA].devices[0]) == 2);
}

TEST_CASE("arrays without elements, and of one") {
  Gatherers w;
  msg::Announce none = w.of({});
  none.shape = {0, 4};
  w.announce(kA, none);
  w.announce(kB, none);
  CHECK(w.told({kA, kB}).ok());
  CHECK(w.last<msg::GraphDone>(kB)->outcome.ok());
  msg::Announce one = w.of({ir::Box{}}, 1, "one");
  one.shape = {};
  one.array = 5;
  w.announce(kA, one);
  CHECK(w.reply(kA).outcome.ok());
  w.complete(w.log<msg::Plan>(1).back());
  CHECK(w.last<msg::GraphDone>(kA)->request == 2);
}

TEST_CASE("who is wrong is named, and all are told") {
  Gatherers w;
  msg::Announce second = w.of({rows(4, 8)});
  Errc code = Errc::kInvalidArgument;
  std::string text;
  SUBCASE("an overlap") {
    second.pieces = {rows(3, 8)};
    code = Errc::kAlreadyExists, text = "both client 'a' and client 'b' have [3:4, 0:4]";
  }
  SUBCASE("a gap") {
    second.pieces = {rows(5, 8)};
    code = Errc::kNotFound, text = "nobody has [4:5, 0:4] of (8, 4)";
  }
  SUBCASE("one has something twice") {
    second.pieces = {rows(4, 8), {{7, 3}, {8, 4}}};
    code = Errc::kAlreadyExists, text = "client 'b' has [7:8, 3:4] twice";
  }
  SUBCASE("another shape") {
    second.shape = {8, 5};
    text = "client 'a' announces float64 (8, 4) of 2 processes, client 'b' float64 (8, 5) of 2 processes";
  }
  SUBCASE("another dtype") {
    second.dtype = ir::DType::kFloat32;
    text = "client 'b' float32 (8, 4)";
  }
  SUBCASE("another number of processes") {
    second.processes = 1;
    text = "client 'b' float64 (8, 4) of 1 processes";
  }
  SUBCASE("a piece outside") {
    second.pieces = {rows(4, 9)};
    text = "client 'b': piece 0 [4:9, 0:4] is empty, or not inside (8, 4)";
  }
  SUBCASE("an empty piece") {
    second.pieces = {rows(4, 8), rows(8, 8)};
    text = "client 'b': piece 1 [8:8, 0:4] is empty";
  }
  SUBCASE("a piece of another rank") {
    second.pieces = {{{4}, {8}}};
    text = "client 'b': piece 0 has rank 1";
  }
  SUBCASE("a negative extent") {
    second.shape = {-8, 4};
    text = "client 'b'";
  }
  SUBCASE("no processes") {
    second.processes = 0;
    text = "client 'b': 0 processes";
  }
  SUBCASE("an impossible weight") {
    second.weight = 0;
    text = "client 'b': a session's weight";
  }
  SUBCASE("a negative timeout") {
    second.timeout_ns = -1;
    text = "client 'b': a negative timeout";
  }
  SUBCASE("its own refusal") {
    second.failed = {Errc::kShapeMismatch, "17 bytes for piece 3"};
    code = Errc::kShapeMismatch, text = "client 'b': 17 bytes for piece 3";
  }
  w.announce(kA, w.of({rows(0, 4)}));
  w.announce(kB, second);
  const msg::Outcome told = w.told({kA, kB});
  CHECK(told.code == code);
  INFO(told.message);
  CHECK(says(told, "'x': "));
  CHECK(says(told, text));
  CHECK(w.log<msg::Plan>(1).empty());
  // Nothing is left of it: the same works, done right.
  w.both();
  CHECK(w.told({kA, kB}).ok());
}

TEST_CASE("an array number that is in use is refused") {
  Gatherers w;
  w.submit(kA, ++w.requests[kA], {random(kNumber, grid({8}, {4}))}, {kNumber});
  w.announce(kB, w.of({rows(4, 8)}));
  w.announce(kA, w.of({rows(0, 4)}));
  CHECK(w.told({kA, kB}).code == Errc::kAlreadyExists);
}

TEST_CASE("who comes after somebody was wrong is told at once; who tries again is not held to it") {
  Gatherers w;
  w.announce(kA, w.of({rows(0, 4)}, 3));
  w.announce(kB, w.of({rows(4, 99)}, 3));
  const msg::Outcome why = w.told({kA, kB});
  CHECK_FALSE(why.ok());
  SUBCASE("the third") {
    w.announce(kC, w.of({}, 3));
    CHECK(w.told({kA, kB, kC}) == why);
    w.announce(kC, w.of({}, 3));  // now all know: this one is new
    CHECK(w.quiet());
  }
  SUBCASE("one of the others") {
    w.announce(kA, w.of({rows(0, 4)}, 3));
    CHECK(w.quiet());
    w.announce(kC, w.of({}, 3));
    w.announce(kB, w.of({rows(4, 8)}, 3));
    CHECK(w.told({kA, kB, kC}).ok());
  }
  SUBCASE("the third, too late to be meant") {
    w.now += 61 * kSecond;
    for (const std::uint32_t conn : {kA, kB, kC}) w.receive(conn, msg::Pong{0});
    w.announce(kC, w.of({}, 3));
    CHECK(w.quiet());
  }
}

TEST_CASE("a session announces a name once at a time, and its mistake with that is its own") {
  Gatherers w;
  w.announce(kA, w.of({rows(0, 4)}));
  w.announce(kA, w.of({rows(4, 8)}));
  CHECK(w.reply(kA).request == 2);
  CHECK(w.reply(kA).outcome.code == Errc::kAlreadyExists);
  CHECK(w.count<msg::SubmitReply>(kB) == 0);
  msg::Announce nameless = w.of({rows(4, 8)});
  nameless.name.clear();
  w.announce(kB, nameless);
  CHECK(w.reply(kB).outcome.code == Errc::kInvalidArgument);
  w.announce(kB, w.of({rows(4, 8)}));
  CHECK(w.told({kA, kB}).ok());
}

TEST_CASE("names wait apart, and are free again at once") {
  Gatherers w;
  w.announce(kA, w.of({rows(0, 4)}));
  w.announce(kB, w.of({rows(4, 8)}, 2, "y"));
  CHECK(w.quiet());
  msg::Announce mine = w.of({rows(0, 4)}, 2, "y");
  mine.array = kNumber + 1;
  w.announce(kA, mine);
  CHECK(w.reply(kA).request == 2);
  mine.name = "x", mine.pieces = {rows(4, 8)};
  w.announce(kB, mine);
  CHECK(w.reply(kA).request == 1);
  CHECK(w.told({kA, kB}).ok());
  mine.name = "y", mine.array = kNumber + 2;
  w.announce(kA, mine);  // while the first y is still on its way
  CHECK(w.quiet());
}

TEST_CASE("in time or not at all: who had come is told") {
  Gatherers w;
  msg::Announce m = w.of({rows(0, 4)}, 3);
  m.timeout_ns = 30 * kSecond;
  w.announce(kA, m);
  w.announce(kB, w.of({}, 3));  // for ever, as far as it goes
  const TimeNs until = w.now + 30 * kSecond;
  while (w.now < until - kSecond) {
    w.now += kSecond;
    for (const std::uint32_t conn : {1u, 2u, kA, kB, kC}) w.receive(conn, msg::Pong{0});
  }
  CHECK(w.core.next_deadline() <= until);
  CHECK(w.count<msg::SubmitReply>(kA) == 0);
  w.wait(kSecond);
  const msg::Outcome told = w.told({kA, kB});
  CHECK(told.code == Errc::kTimeout);
  CHECK(says(told, "'x': only 2 of 3 had announced in time: client 'a', client 'b'"));
  w.announce(kC, m);  // might be early for the next try
  CHECK(w.quiet());
  m.timeout_ns = std::numeric_limits<std::int64_t>::max();
  w.announce(kA, m);
  CHECK(w.quiet());
}

TEST_CASE("a client that leaves before all have announced") {
  Gatherers w;
  w.announce(kA, w.of({rows(0, 4)}, 3));
  w.announce(kB, w.of({rows(4, 8)}, 3));
  w.drop(kA);
  CHECK(w.told({kB}).code == Errc::kWorkerLost);
  CHECK(says(w.told({kB}), "'x': client 'a' has left before all had announced"));
  CHECK(w.count<msg::SubmitReply>(kA) == 0);
  w.announce(kC, w.of({}, 1));  // the name is free
  CHECK_FALSE(w.reply(kC).outcome.ok());
}

TEST_CASE("a client that leaves before its pieces were taken over ends the array, and all that reads it") {
  Gatherers w;
  const msg::Plan plan = w.both();
  CHECK(w.submit(kB, ++w.requests[kB], {map(1, w.reply(kB).grid, {kNumber})}, {1}).outcome.ok());
  SUBCASE("the first") { w.drop(kA); }
  SUBCASE("a later one") { w.drop(kB); }
  const std::uint32_t left = w.closed(kA) ? kB : w.last<msg::GraphDone>(kA) != nullptr ? kA : kB;
  CHECK(w.log<msg::CancelGraph>(1).size() == 2);
  const auto* done = w.last<msg::GraphDone>(left);
  REQUIRE(done != nullptr);
  CHECK(done->outcome.code == Errc::kWorkerLost);
  CHECK(says(done->outcome, "has left before its pieces were taken over"));
  CHECK(w.count<msg::GraphDone>(left) == (left == kB ? 2 : 1));
  const auto refused = w.submit(left, 9, {map(2, w.reply(left).grid, {kNumber})}, {2});
  CHECK(refused.outcome.code == Errc::kWorkerLost);
  w.receive(left, msg::ReleaseArrays{{kNumber, 1}});
  CHECK(w.live() == 0);
}

TEST_CASE("taking it back is for all, before and after it is complete") {
  Gatherers w;
  SUBCASE("before") {
    w.announce(kA, w.of({rows(0, 4)}, 3));
    w.announce(kB, w.of({rows(4, 8)}, 3));
    w.receive(kB, msg::CancelRequest{1});
    CHECK(w.told({kA, kB}).code == Errc::kCancelled);
    CHECK(says(w.told({kA, kB}), "'x' was cancelled by client 'b'"));
  }
  SUBCASE("after") {
    w.both();
    w.receive(kB, msg::CancelRequest{1});
    for (const std::uint32_t conn : {kA, kB}) {
      REQUIRE(w.last<msg::GraphDone>(conn) != nullptr);
      CHECK(w.last<msg::GraphDone>(conn)->outcome.code == Errc::kCancelled);
      CHECK(says(w.last<msg::GraphDone>(conn)->outcome, "was cancelled by its client 'b'"));
    }
  }
  SUBCASE("something else") {
    w.announce(kA, w.of({rows(0, 4)}));
    w.receive(kA, msg::CancelRequest{2});
    w.receive(kB, msg::CancelRequest{1});
    CHECK(w.quiet());
  }
}

TEST_CASE("a repeat is answered again, not counted again") {
  Gatherers w;
  msg::Announce first = w.of({rows(0, 4)});
  w.receive(kA, first);
  w.receive(kA, first);
  CHECK(w.quiet());  // it is still waited for
  w.announce(kB, w.of({rows(4, 8)}));
  const msg::SubmitReply told = w.reply(kA);
  w.receive(kA, first);
  CHECK(w.count<msg::SubmitReply>(kA) == 2);
  CHECK(w.reply(kA) == told);
  w.complete(w.log<msg::Plan>(1).back());
  w.receive(kA, first);
  CHECK(w.count<msg::GraphDone>(kA) == 2);
  CHECK(w.log<msg::Plan>(1).size() == 1);
}

TEST_CASE("what waits outlives the scheduler, and so does what was answered") {
  std::vector<msg::Message> shelf;
  const SnapshotCodec codec{[&](const msg::Message& m) -> Result<std::string> {
                              shelf.push_back(m);
                              return std::to_string(shelf.size() - 1);
                            },
                            [&](std::string_view bytes) -> Result<msg::Message> {
                              return shelf[static_cast<std::size_t>(std::stoi(std::string(bytes)))];
                            }};
  Gatherers w;
  msg::Announce before = w.of({rows(0, 2), rows(2, 8)}, 1, "before");
  before.array = 5;
  w.announce(kA, before);
  w.announce(kA, w.of({rows(0, 4)}));
  w.announce(kB, w.of({rows(0, 99)}, 3, "failed"));
  w.core.settle(w.now, w.actions);
  const auto bytes = w.core.snapshot(codec);
  REQUIRE(bytes.has_value());
  Gatherers other;
  REQUIRE(other.core.restore(*bytes, codec).has_value());
  other.core.check_invariants();
  CHECK(other.core.digest() == w.core.digest());
  other.requests = w.requests;
  for (Gatherers* world : {&w, &other}) {
    world->receive(kA, before);
    world->announce(kC, world->of({}, 3, "failed"));
    world->announce(kB, world->of({rows(4, 8)}));
  }
  CHECK(other.core.digest() == w.core.digest());
  CHECK(other.told({kA, kB}).ok());
  CHECK_FALSE(other.told({kC}).ok());
}

TEST_CASE("what an announcement may ask for is limited") {
  Gatherers w({.max_graphs = 1});
  SUBCASE("blocks") {
    msg::Announce m = w.of({}, 2);
    m.shape = {1 << 20, 1 << 20};
    for (std::int64_t i = 0; i < 2000; ++i) m.pieces.push_back({{i, i}, {i + 1, i + 1}});
    w.announce(kA, m);
    m.pieces.clear();
    w.announce(kB, m);
    CHECK(w.told({kA, kB}).code == Errc::kLimitExceeded);
  }
  SUBCASE("graphs under way") {
    w.submit(kC, 1, {random(1, grid({8}, {4}))}, {1});
    w.both();
  }
  SUBCASE("names") {
    for (int i = 0; i < 1024; ++i) w.announce(kA, w.of({}, 2, "n" + std::to_string(i)));
    CHECK(w.count<msg::SubmitReply>(kA) == 0);
    w.announce(kA, w.of({}, 2, "one more"));
    CHECK(w.reply(kA).outcome.code == Errc::kLimitExceeded);
  }
}

}  // namespace
}  // namespace tilewise::scheduler::test

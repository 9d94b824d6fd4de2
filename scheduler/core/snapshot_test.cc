#include "core_world.h"

namespace tilewise::scheduler::test {
namespace {

// Messages stay where they are; their bytes are their place.
struct Shelf {
  std::vector<msg::Message> kept;
  SnapshotCodec codec{[this](const msg::Message& m) -> Result<std::string> {
                        kept.push_back(m);
                        return std::to_string(kept.size() - 1);
                      },
                      [this](std::string_view bytes) -> Result<msg::Message> {
                        std::size_t at = 0;
                        for (const char c : bytes) {
                          if (c < '0' || c > '9' || at > kept.size())
                            return error(Errc::kCorruptData, "no such message");
                          at = 10 * at + static_cast<std::size_t>(c - '0');
                        }
                        if (bytes.empty() || at >= kept.size())
                          return error(Errc::kCorruptData, "no such message");
                        return kept[at];
                      }};
};

// A graph that is done and held, one half way, one cancelled, a session that has left, a worker lost.
struct UnderWay : World {
  Shelf shelf;
  UnderWay() {
    add_worker(1, 2, "a");
    add_worker(2, 1, "b");
    add_worker(3, 1, "c");
    join(10, client());
    join(11, client());
    submit(10, 1, {fill(1, kFourByFour), map(2, kFourByFour, {1})}, {2});
    complete(log<msg::Plan>(1).back());
    submit(10, 2, {map(3, kFourByFour, {2}), fetch(3, kFourByFour)}, {3});
    msg::Submit kept{3, 0, {fill(4, kFourByFour), fetch(4, kFourByFour)}, {}};
    kept.keep_as = 4;
    receive(10, kept);
    receive(10, msg::CancelRequest{3});
    submit(11, 1, {random(1, kFourByFour)}, {1});
    drop(11);
    drop(3);
  }
  std::string snapshot() {
    core.settle(now, actions);
    const auto bytes = core.snapshot(shelf.codec);
    REQUIRE(bytes.has_value());
    return *bytes;
  }
};

TEST_CASE("a core read from a snapshot is the one that was written, and goes on like it") {
  UnderWay w;
  const std::string bytes = w.snapshot();
  World other;
  REQUIRE(other.core.restore(bytes, w.shelf.codec).has_value());
  other.core.check_invariants();
  CHECK(other.core.digest() == w.core.digest());
  CHECK(other.core.now() == w.core.now());
  other.now = w.now;
  for (World* world : {static_cast<World*>(&w), &other}) {
    world->receive(10, msg::Submit{4, 0, {map(5, kFourByFour, {2}), fetch(5, kFourByFour)}, {5}});
    msg::Submit by_name{5, 0, {}, {7}};  // of request 3, before the snapshot
    by_name.program = 3, by_name.first_output = 7, by_name.constants = {{2.5}};
    world->receive(10, by_name);
    CHECK(world->last<msg::SubmitReply>(10)->outcome.ok());
    world->receive(1, msg::Held{1, {}, {}, false});
    world->receive(10, msg::ReleaseArrays{{2}});
    world->drop(2);
    world->wait(20 * kSecond);
  }
  CHECK(other.core.digest() == w.core.digest());
  CHECK(other.inbox.size() > 0);
}

TEST_CASE("the next life has a higher term, hears everybody anew, and knows what was answered") {
  UnderWay w;
  const std::string bytes = w.snapshot();
  World other;
  REQUIRE(other.core.restore(bytes, w.shelf.codec).has_value());
  Options options;
  options.term = 2;
  other.now = w.now + 3600 * kSecond;
  other.core.begin_life(options, other.now, other.actions);
  CHECK(other.core.term() == 2);
  other.wait(kSecond);
  CHECK(other.quiet());  // nobody is taken for silent
  other.receive(10, msg::Submit{1, 0, {fill(1, kFourByFour)}, {}});
  REQUIRE(other.last<msg::SubmitReply>(10) != nullptr);
  CHECK(other.last<msg::SubmitReply>(10)->outcome.ok());
  CHECK(other.count<msg::GraphDone>(10) == 1);  // as it was answered then
  other.receive(10, msg::Submit{9, 0, {fill(9, kFourByFour)}, {9}});
  CHECK((other.last<msg::SubmitReply>(10)->graph.value >> 40) == 2);
  CHECK(other.last<msg::Log>(1)->term == 2);
}

TEST_CASE("what waits for a worker is known in the next life, which waits anew") {
  UnderWay w;
  w.drop(1);
  w.drop(2);
  w.receive(10, msg::Submit{4, 0, {fill(5, kFourByFour)}, {5}});
  w.receive(10, msg::ReleaseArrays{{5}});
  const std::string bytes = w.snapshot();
  World other;
  REQUIRE(other.core.restore(bytes, w.shelf.codec).has_value());
  CHECK(other.core.digest() == w.core.digest());
  Options options;
  options.term = 2;
  other.now = w.now + 3600 * kSecond;
  other.core.begin_life(options, other.now, other.actions);
  other.wait(kSecond);
  CHECK(other.count<msg::SubmitReply>(10) == 0);
  other.add_worker(4, 1, "d");
  REQUIRE(other.count<msg::SubmitReply>(10) == 1);
  CHECK(other.last<msg::SubmitReply>(10)->outcome.ok());
}

TEST_CASE("a layer of some results of a task is written with all that the task makes") {
  World w;
  std::vector<msg::Welcome> workers;
  for (std::uint32_t conn = 1; conn <= 3; ++conn) {
    msg::Join about = w.worker(1, "w" + std::to_string(conn));
    about.plugins = {kPair};
    workers.push_back(w.join(conn, about));
    w.workers.emplace_back(conn, workers.back());
  }
  w.join(10, w.client());
  ir::Op source = fill(1, kFourByFour), pair = pair_call(2, 3, kFourByFour, 1);
  source.hint.devices = pair.hint.devices = workers[0].devices;
  REQUIRE(w.submit(10, 1, {source, pair}, {2, 3}).outcome.ok());
  const msg::Plan plan = w.log<msg::Plan>(1).at(0);
  w.complete(plan);
  w.workers.erase(w.workers.begin());
  w.drop(1);
  w.receive(2, msg::Held{1, {}, {}, false});
  const ArrayId first{plan.ops[1].op.outputs[0].array};
  w.receive(3, msg::Held{1, {}, {{first, workers[2].devices[0], {{0, 16}}, {}}}, false});
  const msg::PlannedOp layer = w.log<msg::Recover>(2).at(0).plans.back().ops.back();
  REQUIRE(layer.op.outputs.size() == 2);
  CHECK(layer.op.outputs[0].array != first.value);

  Shelf shelf;
  w.core.settle(w.now, w.actions);
  const auto bytes = w.core.snapshot(shelf.codec);
  REQUIRE(bytes.has_value());
  World other;
  REQUIRE(other.core.restore(*bytes, shelf.codec).has_value());
  CHECK(other.core.digest() == w.core.digest());
  Shelf again;
  REQUIRE(other.core.snapshot(again.codec).has_value());
  bool written = false;
  for (const msg::Message& kept : again.kept) {
    const auto* log = std::get_if<msg::Log>(&kept);
    const auto* known = log == nullptr ? nullptr : std::get_if<msg::Plan>(&log->entries.at(0));
    if (known == nullptr || known->ops.at(0).id != layer.id) continue;
    written = known->ops.size() == 2 && known->ops[1].op.outputs == layer.op.outputs &&
              known->ops[0].op.outputs == std::vector{plan.ops[1].op.outputs[1]};
  }
  CHECK(written);
}

TEST_CASE("what is no snapshot is refused, whatever it is") {
  UnderWay w;
  const std::string bytes = w.snapshot();
  for (std::size_t size = 0; size < bytes.size(); size += 1 + size / 50) {
    World other;
    CHECK_FALSE(other.core.restore(std::string_view(bytes).substr(0, size), w.shelf.codec).has_value());
  }
  World other;
  CHECK(other.core.restore(bytes + "x", w.shelf.codec).error().code == Errc::kCorruptData);
}

}  // namespace
}  // namespace tilewise::scheduler::test

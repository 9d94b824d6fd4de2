// Held arrays on several workers.
#include <doctest/doctest.h>

#include "core_world.h"

#include <set>

namespace tilewise::scheduler::test {
namespace {

struct Copying : World {
  // One device a worker, each on its own host unless they have one name.
  explicit Copying(std::vector<std::string> names, Options options = {}) : World(std::move(options)) {
    for (std::size_t i = 0; i < names.size(); ++i)
      joined.push_back(add_worker(static_cast<std::uint32_t>(i + 1), 1, names[i]));
    join(10, client());
  }
  DeviceId device(std::size_t worker) const { return joined[worker - 1].devices[0]; }
  ir::Op on(ir::Op op, std::size_t worker) const {
    op.hint.devices = {device(worker)};
    return op;
  }
  msg::SubmitReply keep(std::uint64_t request, std::vector<ir::Op> ops, std::vector<std::uint64_t> holds,
                        std::vector<msg::Keep> keeps) {
    receive(10, msg::Submit{request, 0, std::move(ops), std::move(holds), 100, std::move(keeps)});
    return *last<msg::SubmitReply>(10);
  }
  // An upload, as a client sends it, onto the first worker.
  std::vector<ir::Op> upload() const { return {provide(1, kFourBlocks), on(map(2, kFourBlocks, {1}), 1)}; }
  void lose(std::size_t worker) {
    std::erase_if(workers, [&](const auto& w) { return w.first == worker; });
    drop(static_cast<std::uint32_t>(worker));
  }
  // The living say what they have: of array `id` all of it, where `has`.
  void answer(ArrayId id, const std::vector<std::size_t>& has) {
    for (const auto& [conn, welcome] : workers) {
      msg::Held held;
      held.version = log<msg::PeerLost>(conn).back().version;
      for (const std::size_t worker : has)
        if (worker == conn) held.blocks = {{id, welcome.devices[0], {{0, 4}}, {}}};
      receive(conn, held);
    }
  }
  void finish(std::uint32_t conn) {
    for (const msg::Plan& plan : log<msg::Plan>(conn)) complete(plan);
  }
  // Devices of the ops that keep copies, of all plans so far, in their order.
  std::vector<std::vector<DeviceId>> keeps(std::uint32_t conn) const {
    std::vector<std::vector<DeviceId>> out;
    for (const msg::Plan& plan : log<msg::Plan>(conn)) {
      for (const msg::PlannedOp& op : plan.ops) {
        if (op.op.kind == ir::OpKind::kKeep) out.push_back(op.placement.devices());
      }
    }
    return out;
  }
  ArrayId array(std::uint32_t conn) const {
    for (const msg::Plan& plan : log<msg::Plan>(conn))
      if (!plan.holds.empty()) return plan.holds[0];
    return {};
  }
  ArrayView seen(ArrayId id) const { return std::get<ArrayDetail>(core.view(ArrayRequest{id}, now)).array; }
  std::vector<msg::Welcome> joined;
};

TEST_CASE("a request that asks for copies ends when they are there, on other hosts first") {
  Copying w({"one", "one", "two", "three"});
  REQUIRE(w.keep(1, w.upload(), {2}, {{2, 3}}).outcome.ok());
  const msg::Plan plan = w.log<msg::Plan>(1)[0];
  CHECK(w.keeps(4) == std::vector<std::vector<DeviceId>>{{w.device(3)}, {w.device(4)}});
  msg::Plan made = plan;
  std::erase_if(made.ops, [](const msg::PlannedOp& op) { return op.op.kind == ir::OpKind::kKeep; });
  w.complete(made);
  CHECK(w.count<msg::GraphDone>(10) == 0);
  w.complete(plan);
  REQUIRE(w.count<msg::GraphDone>(10) == 1);
  CHECK(w.last<msg::GraphDone>(10)->outcome.ok());
  CHECK(w.seen(w.array(1)).copies == 3);
  CHECK(w.seen(w.array(1)).lacking == 0);
  // They count as load of who keeps them, and go with the array.
  w.receive(10, msg::ReleaseArrays{{2}});
  w.apply_logs();
  w.receive(10, msg::StatusRequest{});
  CHECK(w.last<msg::StatusReply>(10)->arrays_live == 0);
}

TEST_CASE("copies are in what is explained, before and while they are made") {
  Copying w({"one", "two", "three"});
  const std::int64_t all = 40 * 8;
  const auto told = [&](const msg::Explain& explain) {
    w.receive(10, explain);
    const msg::Explanation out = *w.last<msg::Explanation>(10);
    REQUIRE(out.outcome.ok());
    REQUIRE(out.simulated);
    return out;
  };
  const auto sent = [](const msg::Explanation& out, DeviceId from, DeviceId to) {
    std::int64_t bytes = 0;
    for (const auto& link : out.links) bytes += link.from == from && link.to == to ? link.bytes : 0;
    return bytes;
  };
  const auto check = [&](const msg::Explanation& out) {
    for (const std::size_t worker : {2u, 3u}) {
      CHECK(sent(out, w.device(1), w.device(worker)) == all);
      CHECK(out.devices[worker - 1].bytes_after == 4 * 256);  // a block takes 256 bytes at least
    }
    CHECK(out.devices[0].bytes_after >= 4 * 256);
    for (const auto& link : out.links) CHECK(link.to.value != 0);
    CHECK(out.ops.back().choices[0].policy == "copies");
  };
  msg::Explain planned;
  planned.submit = {7, 0, {w.on(fill(2, kFourBlocks), 1)}, {2}, 100, {{2, 3}}};
  const msg::Explanation before = told(planned);
  check(before);
  REQUIRE(w.keep(1, planned.submit.ops, {2}, {{2, 3}}).outcome.ok());
  const msg::Plan plan = w.log<msg::Plan>(1)[0];
  REQUIRE(plan.ops.size() == before.ops.size());
  msg::Explain running;
  running.graph = plan.graph;
  check(told(running));
  // Also of an array that is there, from which nothing is made.
  w.complete(plan);
  planned.submit = {8, 0, {}, {}, 100, {{2, 3}}};
  planned.submit.ops = {w.on(map(3, kFourBlocks, {2}), 1)};
  planned.submit.holds = {3};
  CHECK(told(planned).ops.size() == 1);  // it has three
  planned.submit.keeps = {{3, 2}};
  CHECK(told(planned).ops.size() == 2);
  // Of several arrays, each one's copies go where the others leave room.
  planned.submit.ops = {w.on(fill(4, kFourBlocks), 1), w.on(fill(5, kFourBlocks), 1)};
  planned.submit.holds = {4, 5};
  planned.submit.keeps = {{4, 2}, {5, 2}};
  const msg::Explanation two = told(planned);
  REQUIRE(w.keep(9, planned.submit.ops, {4, 5}, {{4, 2}, {5, 2}}).outcome.ok());
  for (const std::size_t worker : {2u, 3u}) CHECK(sent(two, w.device(1), w.device(worker)) == all);
  std::size_t keeps = 0;
  const msg::Plan submitted = w.log<msg::Plan>(1).back();
  for (const msg::PlannedOp& op : submitted.ops) {
    if (op.op.kind != ir::OpKind::kKeep) continue;
    const std::vector<DeviceId> on = op.placement.devices();
    CHECK(on == std::vector<DeviceId>{w.device(2 + keeps++)});
  }
  CHECK(keeps == 2);
}

TEST_CASE("many blocks take no more words than few") {
  Copying w({"one", "two"});
  const ir::Grid many = grid({1'000'000}, {10});
  REQUIRE(w.keep(1, {fill(1, many)}, {1}, {{1, 2}}).outcome.ok());
  const msg::Plan plan = w.log<msg::Plan>(1)[0];
  REQUIRE(plan.ops.size() == 2);
  REQUIRE(plan.ops[1].placement.listed() == nullptr);
  for (std::int64_t i = 0; i < 100'000; i += 777) {
    const ir::Index at{i};
    CHECK(plan.ops[0].placement.owner(at) != plan.ops[1].placement.owner(at));
  }
}

TEST_CASE("an upload of two copies outlives its worker, and has two again") {
  Copying w({"one", "two", "three"});
  w.keep(1, w.upload(), {2}, {{2, 2}});
  w.finish(1);
  REQUIRE(w.count<msg::GraphDone>(10) == 1);
  REQUIRE(w.keeps(3) == std::vector<std::vector<DeviceId>>{{w.device(2)}});
  const ArrayId id = w.array(3);
  std::size_t lost = 0;
  SUBCASE("its owner") { lost = 1; }
  SUBCASE("who keeps the other copy") { lost = 2; }
  w.lose(lost);
  CHECK(w.keeps(3).size() == lost);  // what only lacks a copy need not be asked about
  w.answer(id, {lost == 1 ? 2u : 1u});
  const msg::Recover recover = w.log<msg::Recover>(3).at(0);
  if (lost == 1) {
    REQUIRE(recover.plans.size() == 1);
    CHECK(recover.plans[0].ops[0].done);
    CHECK(recover.plans[0].ops[0].placement.devices() == std::vector{w.device(2)});
  } else {
    CHECK(recover.plans.empty());
  }
  REQUIRE(w.keeps(3).size() == 2);
  CHECK(w.keeps(3)[1] == std::vector{w.device(3)});
  CHECK(w.count<msg::GraphDone>(10) == 1);  // nobody waits for that
  w.finish(3);
  CHECK(w.seen(id).lacking == 0);
  // The same once more, until nobody is left who could have another.
  const std::size_t other = lost == 1 ? 2 : 1;
  w.lose(other);
  w.answer(id, {3});
  CHECK(w.seen(id).failed.ok());
  CHECK(w.seen(id).lacking == 1);
  CHECK(w.submit(10, 2, {map(3, kFourBlocks, {2})}, {3}).outcome.ok());
}

// A kernel with two results, made on the first worker; workers of one device with so much memory.
struct OnHosts : Copying {
  explicit OnHosts(std::vector<std::string> hosts, std::int64_t memory = 1 << 30) : Copying({}) {
    for (const std::string& host : hosts) add(host, memory);
  }
  void add(const std::string& name, std::int64_t memory) {
    const auto conn = static_cast<std::uint32_t>(joined.size() + 1);
    msg::Join with = worker(1, name, memory);
    with.plugins = {kPair};
    workers.emplace_back(conn, join(conn, with));
    joined.push_back(workers.back().second);
  }
  ir::Op pair() const { return on(pair_call(2, 3, kFourBlocks, 1), 1); }
};

TEST_CASE(
    "copies of two results of a task go together, of places for both to the other host, as long as there is "
    "room") {
  // One result has copies with two workers, then the other one is to have one.
  OnHosts w({"one", "one", "two"}, 1000);  // arrays of 320 bytes
  REQUIRE(w.keep(1, {provide(1, kFourBlocks), w.pair()}, {2, 3}, {{2, 3}}).outcome.ok());
  w.finish(1);
  REQUIRE(w.keeps(1).size() == 2);
  const auto third = [&](std::int64_t used) {
    msg::Progress progress;
    progress.devices.push_back({.device = w.device(3), .bytes_used = used});
    w.receive(3, progress);
    REQUIRE(w.keep(2, {map(4, kFourBlocks, {3})}, {4}, {{3, 2}}).outcome.ok());
    return w.keeps(1).back();
  };
  SUBCASE("room") { CHECK(third(320) == std::vector{w.device(3)}); }
  SUBCASE("none there") { CHECK(third(700) == std::vector{w.device(2)}); }
}

TEST_CASE("copies of two results that are lost are made again where there is room for both") {
  OnHosts w({"w1", "w2", "w3", "w4"}, 1000);
  REQUIRE(w.keep(1, {provide(1, kFourBlocks), w.pair()}, {2, 3}, {{2, 2}, {3, 2}}).outcome.ok());
  const std::vector<ArrayId> arrays = w.log<msg::Plan>(4)[0].holds;
  w.finish(1);
  REQUIRE(w.count<msg::GraphDone>(10) == 1);
  REQUIRE(w.keeps(4).size() == 2);
  REQUIRE(w.keeps(4)[0] == std::vector{w.device(2)});
  REQUIRE(w.keeps(4)[1] == std::vector{w.device(2)});
  const auto uses = [&](std::uint32_t conn, std::int64_t bytes) {  // 320 would fit beside it, or 640
    msg::Progress progress;
    progress.devices.push_back({.device = w.device(conn), .bytes_used = bytes});
    w.receive(conn, progress);
  };
  uses(3, 400), uses(4, 200);
  w.lose(2);
  for (const auto& [conn, welcome] : std::vector(w.workers)) {
    msg::Held held;
    held.version = w.log<msg::PeerLost>(conn).back().version;
    if (conn == 1)
      for (const ArrayId id : arrays) held.blocks.push_back({id, welcome.devices[0], {{0, 4}}, {}});
    w.receive(conn, held);
  }
  REQUIRE(w.keeps(4).size() == 4);
  CHECK(w.keeps(4)[2] == std::vector{w.device(4)});
  CHECK(w.keeps(4)[3] == std::vector{w.device(4)});
}

TEST_CASE("copies of two results of a task stay together, also when one of them has more") {
  OnHosts w({"w1", "w2", "w3", "w4", "w5"});
  REQUIRE(w.keep(1, {provide(1, kFourBlocks), w.pair()}, {2, 3}, {{2, 2}, {3, 3}}).outcome.ok());
  const std::vector<ArrayId> arrays = w.log<msg::Plan>(5)[0].holds;
  REQUIRE(arrays.size() == 2);
  w.finish(1);
  REQUIRE(w.count<msg::GraphDone>(10) == 1);
  const auto before = w.keeps(5);
  REQUIRE(before.size() == 3);
  CHECK(std::set{before[0][0], before[1][0], before[2][0]}.size() == 2);
  // Who has a copy of both is lost: the one of the first result goes to who has one of the second.
  std::size_t both = 0;
  DeviceId other;
  for (std::size_t i = 1; i <= 5; ++i) {
    const auto kept = std::count_if(before.begin(), before.end(),
                                    [&](const auto& devices) { return devices[0] == w.device(i); });
    if (kept == 2) both = i;
    if (kept == 1) other = w.device(i);
  }
  REQUIRE(both != 0);
  w.lose(both);
  for (const auto& [conn, welcome] : std::vector(w.workers)) {
    msg::Held held;
    held.version = w.log<msg::PeerLost>(conn).back().version;
    for (const ArrayId id : arrays)
      if (conn == 1 || (welcome.devices[0] == other && id == arrays[1]))
        held.blocks.push_back({id, welcome.devices[0], {{0, 4}}, {}});
    w.receive(conn, held);
  }
  const std::uint32_t living = both == 5 ? 4 : 5;
  REQUIRE(w.keeps(living).size() == 5);
  CHECK(w.keeps(living)[3] == std::vector{other});
}

TEST_CASE("what has lost all its copies is a typed error naming the array") {
  Copying w({"one", "two", "three"});
  w.keep(1, w.upload(), {2}, {{2, 2}});
  w.finish(1);
  const ArrayId id = w.array(3);
  w.lose(1);
  w.lose(2);
  w.answer(id, {});
  const msg::Outcome lost = w.submit(10, 2, {map(3, kFourBlocks, {2})}, {3}).outcome;
  CHECK(lost.code == Errc::kWorkerLost);
  CHECK(mentions(lost.message, "array 2"));
  CHECK(mentions(lost.message, "uploaded"));
}

TEST_CASE("with fewer workers than copies all have one, and who joins gets one") {
  Copying w({"one"});
  w.keep(1, w.upload(), {2}, {{2, 3}});
  CHECK(w.keeps(1).empty());
  w.finish(1);
  REQUIRE(w.count<msg::GraphDone>(10) == 1);
  CHECK(w.seen(w.array(1)).lacking == 2);
  w.joined.push_back(w.add_worker(2, 1, "two"));
  CHECK(w.keeps(1) == std::vector<std::vector<DeviceId>>{{w.device(2)}});
  CHECK(w.seen(w.array(1)).lacking == 1);
  w.joined.push_back(w.add_worker(3, 1, "three"));
  CHECK(w.keeps(1) == std::vector<std::vector<DeviceId>>{{w.device(2)}, {w.device(3)}});
  CHECK(w.seen(w.array(1)).lacking == 0);
  w.finish(1);
  CHECK(w.count<msg::GraphDone>(10) == 1);
}

TEST_CASE("who joins is not told of ops that are over and made nothing: no worker could take them") {
  Copying w({"one", "two"});
  REQUIRE(w.keep(1, w.upload(), {2}, {{2, 2}}).outcome.ok());
  REQUIRE(w.keeps(2).size() == 1);
  w.finish(1);
  REQUIRE(w.count<msg::GraphDone>(10) == 1);
  w.add_worker(3, 1, "three");
  int told = 0;
  for (const msg::Plan& plan : w.log<msg::Plan>(3)) {
    for (const msg::PlannedOp& op : plan.ops) {
      CHECK(op.done);
      CHECK(op.op.outputs.size() == 1);
      ++told;
    }
  }
  CHECK(told > 0);
}

TEST_CASE("an array that is held already gets copies when that is asked") {
  Copying w({"one", "two"});
  w.submit(10, 1, {w.on(fill(1, kFourBlocks), 1)}, {1});
  w.finish(1);
  REQUIRE(w.keep(2, {}, {}, {{1, 2}}).outcome.ok());
  CHECK(w.keeps(2) == std::vector<std::vector<DeviceId>>{{w.device(2)}});
  CHECK(w.count<msg::GraphDone>(10) == 1);
  w.finish(1);
  CHECK(w.count<msg::GraphDone>(10) == 2);
  REQUIRE(w.keep(3, {}, {}, {{1, 2}}).outcome.ok());  // there are
  CHECK(w.count<msg::GraphDone>(10) == 3);
  CHECK(w.keeps(2).size() == 1);
}

TEST_CASE("who asks for copies that are being made waits for them") {
  Copying w({"one", "two", "three"});
  w.keep(1, w.upload(), {2}, {{2, 2}});
  w.finish(1);
  w.lose(2);
  w.answer(w.array(3), {1});
  REQUIRE(w.keeps(3).size() == 2);
  REQUIRE(w.keep(2, {}, {}, {{2, 2}}).outcome.ok());
  REQUIRE(w.keeps(3).size() == 3);
  CHECK(w.keeps(3)[2] == w.keeps(3)[1]);
  CHECK(w.count<msg::GraphDone>(10) == 1);
  w.finish(3);
  CHECK(w.count<msg::GraphDone>(10) == 2);
  CHECK(w.seen(w.array(3)).lacking == 0);
}

TEST_CASE("many who wait for one copy wait with one op each") {
  Copying w({"one", "two"});
  w.submit(10, 1, {w.on(fill(1, kFourBlocks), 1)}, {1});
  w.finish(1);
  for (std::uint64_t request = 2; request < 32; ++request) {
    REQUIRE(w.keep(request, {}, {}, {{1, 2}}).outcome.ok());
    CHECK(w.keeps(2).size() == request - 1);
  }
  w.finish(1);
  CHECK(w.count<msg::GraphDone>(10) == 31);
}

TEST_CASE("a keeper lost while the request runs is replaced before the request ends") {
  Copying w({"one", "two", "three"});
  w.keep(1, w.upload(), {2}, {{2, 2}});
  msg::Plan made = w.log<msg::Plan>(1)[0];
  std::erase_if(made.ops, [](const msg::PlannedOp& op) { return op.op.kind == ir::OpKind::kKeep; });
  w.complete(made);
  w.lose(2);
  w.answer(w.array(3), {1});
  CHECK(w.count<msg::GraphDone>(10) == 0);
  REQUIRE(w.keeps(3).size() == 2);
  CHECK(w.keeps(3)[1] == std::vector{w.device(3)});
  w.finish(3);
  CHECK(w.count<msg::GraphDone>(10) == 1);
}

TEST_CASE("whoever asked for copies has them at the end, also if they are lost again meanwhile") {
  Copying w({"one", "two", "three"});
  w.keep(1, w.upload(), {2}, {{2, 2}});
  w.finish(1);
  REQUIRE(w.count<msg::GraphDone>(10) == 1);
  const ArrayId id = w.array(3);
  SUBCASE("asked for before a loss is answered") {
    w.lose(1);
    REQUIRE(w.keep(2, {}, {}, {{2, 2}}).outcome.ok());
    w.answer(id, {2});
  }
  SUBCASE("asked for by two, and the keeper they wait for is lost") {
    w.lose(2);
    REQUIRE(w.keep(2, {}, {}, {{2, 2}}).outcome.ok());
    REQUIRE(w.keep(3, {}, {}, {{2, 2}}).outcome.ok());
    CHECK(w.keeps(1).back() == std::vector{w.device(3)});
    w.joined.push_back(w.add_worker(4, 1, "four"));
    w.lose(3);
    w.answer(id, {1});
    CHECK(w.keeps(1).back() == std::vector{w.device(4)});
  }
  CHECK(w.count<msg::GraphDone>(10) == 1);
  w.finish(w.workers.front().first);
  CHECK(w.seen(id).lacking == 0);
  CHECK(w.count<msg::GraphDone>(10) == w.count<msg::SubmitReply>(10));
  CHECK(w.last<msg::GraphDone>(10)->outcome.ok());
}

TEST_CASE(
    "who asks for copies of an array that is being computed waits for it, also where nobody can take one") {
  Copying w({"one"});
  w.submit(10, 1, {w.on(fill(1, kFourBlocks), 1)}, {1});
  REQUIRE(w.keep(2, {}, {}, {{1, 2}}).outcome.ok());
  CHECK(w.count<msg::GraphDone>(10) == 0);
  const msg::Plan plan = w.log<msg::Plan>(1)[0];
  SUBCASE("it is made") {
    w.complete(plan);
    CHECK(w.count<msg::GraphDone>(10) == 2);
    CHECK(w.last<msg::GraphDone>(10)->outcome.ok());
  }
  SUBCASE("it cannot be made") {
    w.complete(plan, 1);
    CHECK(w.count<msg::GraphDone>(10) == 2);
    CHECK(w.last<msg::GraphDone>(10)->request == 2);
    CHECK(w.last<msg::GraphDone>(10)->outcome.code == Errc::kTaskFailed);
  }
  SUBCASE("it is given up") {
    w.receive(10, msg::ReleaseArrays{{1}});
    CHECK(w.count<msg::GraphDone>(10) == 1);
    w.complete(plan);
    CHECK(w.count<msg::GraphDone>(10) == 2);
  }
}

TEST_CASE("a copy that cannot be made again ends nothing, and is tried again when there is cause") {
  Copying w({"one", "two", "three"});
  w.keep(1, w.upload(), {2}, {{2, 2}});
  w.finish(1);
  const ArrayId id = w.array(3);
  w.lose(2);
  w.answer(id, {1});
  REQUIRE(w.keeps(3).size() == 2);
  const msg::Plan plan = w.log<msg::Plan>(3).back();
  w.receive(3, msg::Stuck{plan.graph, plan.ops[0].id, w.device(3), 80, 0});
  w.wait(kSecond);
  REQUIRE(w.log<msg::CancelGraph>(3).size() == 1);
  w.apply_logs();
  CHECK(w.seen(id).lacking == 1);
  CHECK(w.seen(id).failed.ok());
  CHECK(w.count<msg::GraphDone>(10) == 1);
  w.joined.push_back(w.add_worker(4, 1, "four"));
  REQUIRE(w.keeps(3).size() == 3);
  w.finish(3);
  CHECK(w.seen(id).lacking == 0);
}

TEST_CASE("copies that cannot be asked for are refused by name") {
  Copying w({"one", "two"});
  for (const std::uint32_t copies : {0u, msg::kMaxCopies + 1}) {
    const msg::Outcome refused = w.keep(copies + 1, w.upload(), {2}, {{2, copies}}).outcome;
    CHECK(refused.code == Errc::kInvalidArgument);
    CHECK(mentions(refused.message, "array 2"));
  }
  CHECK(w.keep(90, w.upload(), {2}, {{1, 2}}).outcome.code == Errc::kNotFound);
  CHECK(w.keep(91, {}, {}, {{77, 2}}).outcome.code == Errc::kNotFound);
}

}  // namespace
}  // namespace tilewise::scheduler::test

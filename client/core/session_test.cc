#include <tilewise/client/endpoint_decorator.h>

#include <future>
#include <thread>

#include "access.h"
#include "fake_endpoint.h"
#include "session_state.h"

namespace tilewise::client {
namespace {

using ir::OpKind;
using namespace std::chrono_literals;

std::size_t submits(FakeEndpoint& fake) { return fake.all<msg::Submit>().size(); }

TEST_CASE("nothing is sent until somebody asks, then one message") {
  World world;
  const Array x = world.session.random.normal({200'000, 28}, {.seed = 7, .block = {25'000, 28}});
  const Array w = world.session.zeros({28});
  const Array p = 1.0 / (1.0 + exp(-matmul(x, w)));
  const Array g = matmul(x.T(), p - 0.5) / 200'000;
  CHECK(world.fake.sent.empty());
  Future future = world.session.compute({g});
  CHECK(world.fake.sent.size() == 1);
  CHECK(world.fake.last().ops.back().kind == OpKind::kFetch);
  CHECK(world.fake.last().holds.empty());
  CHECK(future.shape() == Shape{28});
}

TEST_CASE("get waits for what another thread delivers") {
  World world;
  const Array x = world.session.ones({2, 2}) * 3;
  std::thread cluster([&] {
    while (submits(world.fake) == 0) std::this_thread::sleep_for(1ms);
    world.fake.reply(world.fake.last());
    const double values[] = {1, 2, 3, 4};
    world.fake.deliver({world.fake.offer(FakeEndpoint::fetched(world.fake.last()), 0, values, 32)});
  });
  CHECK(x.get<double>() == std::vector<double>{1, 2, 3, 4});
  cluster.join();
}

TEST_CASE(
    "what was read of a worker that had given this client up for lost is not believed, whichever way it "
    "came") {
  World world;
  const std::vector<double> values{1, 2, 3, 4};
  Future future = world.session.compute({world.session.ones({4})});
  const msg::Submit s = world.fake.last();
  world.fake.reply(s);
  world.fake.fence = kWorker;
  SUBCASE("mapped") {
    world.fake.deliver({world.fake.offer(FakeEndpoint::fetched(s), 0, values.data(), 32, false)});
  }
  SUBCASE("received") {
    world.fake.can_map = false;
    world.fake.deliver({world.fake.offer(FakeEndpoint::fetched(s), 0, values.data(), 32, false)});
    REQUIRE(world.fake.receives.size() == 1);
    world.fake.receives.begin()->second.done({});
  }
  REQUIRE(future.ready());
  CHECK(thrown([&] { future.get<double>(); }).code() == Errc::kUnavailable);
}

TEST_CASE("a view is fetched through a copy of what it shows") {
  World world;
  const Array x = world.session.zeros({10, 4}, {.block = {5, 4}});
  world.session.compute({x.slice(0, 2, 4).T()});
  const msg::Submit s = world.fake.last();
  REQUIRE(s.ops.size() == 3);
  CHECK(s.ops[1].kind == OpKind::kCopy);
  CHECK(s.ops[1].outputs[0].grid.shape() == Shape{4, 2});
}

TEST_CASE("results are typed, indexed, and taken once") {
  World world;
  const Array x = world.session.ones({1}), y = world.session.zeros({1}, {.dtype = DType::kInt32});
  CHECK(says(thrown([&] { x.get<float>(); }), "float64, not float32"));
  CHECK(submits(world.fake) == 0);
  Future f = world.session.compute({x, y, x});
  CHECK(f.size() == 3);
  const msg::Submit s = world.fake.last();
  world.fake.reply(s);
  CHECK(!f.wait_for(0ns));
  const double one = 1;
  const std::int32_t two = 2;
  for (const ir::Op& op : s.ops) {
    if (op.kind != OpKind::kFetch) continue;
    const bool integer = op.operands[0].array == s.ops[1].outputs[0].array;
    world.fake.deliver({world.fake.offer(op.operands[0].array, 0,
                                         integer ? static_cast<const void*>(&two) : &one, integer ? 4 : 8)});
  }
  REQUIRE(f.ready());
  CHECK(thrown([&] { f.get<double>(1); }).code() == Errc::kInvalidArgument);
  CHECK(thrown([&] { f.get<double>(3); }).code() == Errc::kOutOfRange);
  CHECK(f.get<std::int32_t>(1) == std::vector{2});
  CHECK(f.get<double>(0) == std::vector{1.0});
  CHECK(f.get<double>(2) == std::vector{1.0});  // the same array, asked for twice
  CHECK(thrown([&] { f.get<double>(2); }).code() == Errc::kNotFound);
}

TEST_CASE("what is persisted is sent once, and named afterwards") {
  World world;
  Array x = world.session.ones({8}) + 1;
  Future kept = x.persist();
  const msg::Submit first = world.fake.last();
  REQUIRE(first.holds.size() == 1);
  world.fake.reply(first);
  CHECK(!kept.ready());  // holding needs the graph's end, not only the reply
  world.fake.done(first);
  CHECK(kept.ready());
  CHECK(world.session.state()->graph_size() == 1);  // its lineage is the scheduler's
  world.session.compute({x * 2});
  const msg::Submit second = world.fake.last();
  REQUIRE(second.ops.size() == 2);
  CHECK(second.ops[0].operands[0].array == first.holds[0]);
}

TEST_CASE("persisting what is being persisted ends with it") {
  World world;
  Array x = world.session.ones({8});
  Future first = x.persist(), second = x.persist();
  REQUIRE(submits(world.fake) == 1);
  CHECK(!second.ready());
  world.fake.reply(world.fake.last());
  world.fake.done(world.fake.last());
  CHECK(first.ready());
  CHECK(second.ready());
}

TEST_CASE("copies are asked for with the hold, or afterwards") {
  World world;
  Array x = world.session.ones({4}), y = world.session.zeros({4});
  world.session.persist({x, y}, {.copies = 2});
  const msg::Submit first = world.fake.last();
  REQUIRE(first.holds.size() == 2);
  CHECK(first.keeps == std::vector<msg::Keep>{{first.holds[0], 2}, {first.holds[1], 2}});
  world.fake.reply(first);
  y.persist({.copies = 3});  // of what is held, or is being persisted
  const msg::Submit second = world.fake.last();
  CHECK(second.ops.empty());
  CHECK(second.holds.empty());
  CHECK(second.keeps == std::vector<msg::Keep>{{first.holds[1], 3}});
}

TEST_CASE("the last handle of a persisted array releases it") {
  World world;
  Array x = world.session.ones({8});
  x.persist();
  world.fake.done(world.fake.last());
  Array copy = x, view = x.slice(0, 2, 4);
  x = Array();
  copy = Array();
  CHECK(world.fake.held.size() == 1);
  view = Array();
  CHECK(world.fake.held.empty());
  CHECK(world.fake.all<msg::ReleaseArrays>().size() == 1);
}

TEST_CASE("many releases share messages, and none is left behind") {
  World world;
  {
    std::vector<Array> arrays;
    for (int i = 0; i < 1000; ++i) arrays.push_back(world.session.ones({8}));
    world.session.persist(arrays);
    world.fake.done(world.fake.last());
    CHECK(world.fake.held.size() == 1000);
  }
  world.fake.up.on_message(msg::Ping{1});
  CHECK(world.fake.held.empty());
  CHECK(world.fake.all<msg::ReleaseArrays>().size() < 200);
}

TEST_CASE("releases follow the submission that names the array") {
  World world;
  Array x = world.session.ones({8});
  x.persist();
  const Array y = x + 1;
  x = Array();
  CHECK(world.fake.held.size() == 1);
  Future f = world.session.compute({y});  // the fake checks that x is still held
  CHECK(world.fake.last().ops.size() == 2);
}

// One turn of a loop: reads `from`, and nothing of it differs from the turns before.
Array turn(const Array& from) { return exp(from * 2.0) + from; }

TEST_CASE("a loop's program is sent twice, and named from then on") {
  World world;
  Array x = world.session.ones({8}, {.block = {4}});
  std::vector<std::vector<ir::Op>> programs;
  const auto step = [&](Array next) {
    Future future = world.session.persist({next});
    const msg::Submit s = world.fake.last();  // with its ops, whatever way they came
    world.fake.reply(s);
    world.fake.done(s);
    programs.push_back(msg::program_of(s.ops).value().ops);
    x = std::move(next);
  };
  step(turn(x)), x.persist();
  CHECK(world.fake.named == 0);
  for (int i = 0; i < 6; ++i) step(turn(x));
  CHECK(world.fake.named == 4);  // once, once to be kept
  for (std::size_t i = 2; i < programs.size(); ++i) CHECK(programs[i] == programs[1]);
  SUBCASE("another one in between is sent, and the first is still known") {
    step(turn(turn(x)));
    CHECK(world.fake.named == 4);
    step(turn(x));
    CHECK(world.fake.named == 5);
  }
  SUBCASE("another constant is the same program, unless it is one of two that were equal") {
    step(exp(x * 3.0) + x);
    CHECK(world.fake.named == 5);
    const auto two = [&](double a, double b) { step(exp(x * a) + b); };
    two(2, 2), two(3, 3), two(4, 4);
    CHECK(world.fake.named == 6);
    two(5, 6), two(7, 8);
    CHECK(world.fake.named == 6);
    two(9, 10);
    CHECK(world.fake.named == 7);
    CHECK(programs.back() != programs[programs.size() - 4]);
  }
  SUBCASE("a label, or a second input makes another program") {
    step(turn(x).named("here"));
    Array y = world.session.zeros({8}, {.block = {4}});
    step(y);
    const Array before = x;
    step(turn(before));
    const int named = world.fake.named;
    step(exp(before * 2.0) + x);
    CHECK(world.fake.named == named);
  }
  SUBCASE("what was refused is sent again") {
    const Array next = turn(x);
    Future future = world.session.persist({next});
    const int named = world.fake.named;
    world.fake.refuse(world.fake.last(), {Errc::kNotFound, "program 3 is not kept"});
    CHECK(thrown([&] { future.wait(); }).code() == Errc::kNotFound);
    world.session.persist({next});
    CHECK(world.fake.named == named);
  }
}

TEST_CASE("of more programs in turn than can be kept, some are named all the time") {
  World world;
  const auto once = [&](double factor) {
    const Array x = world.session.full({4}, factor);
    world.session.compute({x});
    world.fake.reply(world.fake.last());
  };
  const int turns = 30, kinds = 6;
  for (int i = 0; i < turns * kinds; ++i) once(i % kinds);
  CHECK(world.fake.named > 100);
}

TEST_CASE("a refusal fails the future, and the array can be tried again") {
  World world;
  Array x = world.session.ones({8});
  Future f = x.persist();
  const msg::Submit s = world.fake.last();
  world.fake.up.on_message(msg::SubmitReply{s.request, {Errc::kLimitExceeded, "65536 unfinished requests"}});
  const ArrayError e = thrown([&] { f.wait(); });
  CHECK(e.code() == Errc::kLimitExceeded);
  CHECK(says(e, "65536 unfinished requests"));
  x.persist();
  CHECK(world.fake.last().ops.size() == 1);
  CHECK(world.fake.last().holds.size() == 1);
}

TEST_CASE("whoever builds on a refused array before the refusal is known is told its cause") {
  World world;
  Array x = world.session.ones({4});
  Future persisted = x.persist();
  const msg::Submit first = world.fake.last();
  Future built = world.session.compute({x + 1.0});  // names x, as it is being made
  const msg::Submit second = world.fake.last();
  world.fake.refuse(first, {Errc::kOutOfMemory, "no device has room for 32 bytes"});
  world.fake.refuse(second, {Errc::kNotFound, "array 1 is unknown"});
  CHECK(says(thrown([&] { persisted.wait(); }), "no device has room"));
  CHECK(says(thrown([&] { built.get<double>(); }), "no device has room"));
  // Other causes stay.
  Future third = world.session.compute({x + 2.0});
  world.fake.refuse(world.fake.last(), {Errc::kNotFound, "plug-in kernel 'f' is unknown"});
  CHECK(says(thrown([&] { third.get<double>(); }), "'f' is unknown"));
}

TEST_CASE("a failed graph fails the future with its root cause") {
  World world;
  Future f = world.session.compute({world.session.ones({8})});
  world.fake.reply(world.fake.last());
  world.fake.done(world.fake.last(), {Errc::kTaskFailed, "kernel 'mine' on w1/host:0"});
  CHECK(thrown([&] { f.get<double>(); }).code() == Errc::kTaskFailed);
}

TEST_CASE("the end of the graph may come before the last block") {
  World world;
  Future f = world.session.compute({world.session.ones({1})});
  const msg::Submit s = world.fake.last();
  world.fake.reply(s);
  world.fake.done(s);
  CHECK(!f.ready());
  const double one = 1;
  world.fake.deliver({world.fake.offer(FakeEndpoint::fetched(s), 0, &one, 8)});
  CHECK(f.get<double>() == std::vector{1.0});
}

TEST_CASE("cancelling ends the future at once, and only once") {
  World world;
  Array x = world.session.ones({8});
  Future f = x.persist();
  const msg::Submit s = world.fake.last();
  world.fake.reply(s);
  f.cancel();
  f.cancel();
  CHECK(f.ready());
  CHECK(thrown([&] { f.wait(); }).code() == Errc::kCancelled);
  REQUIRE(world.fake.all<msg::CancelRequest>().size() == 1);
  CHECK(world.fake.all<msg::CancelRequest>()[0].request == s.request);
  world.fake.done(s, {Errc::kCancelled, "by its client"});
  CHECK(thrown([&] { f.wait(); }).code() == Errc::kCancelled);
  x.persist();  // not held any more: sent again
  CHECK(world.fake.last().ops.size() == 1);
}

TEST_CASE("waits have deadlines; a get that times out cancels") {
  World world({.timeout = 20ms});
  Future f = world.session.compute({world.session.ones({8})});
  CHECK(!f.wait_for(1ms));
  CHECK(thrown([&] { f.wait(); }).code() == Errc::kTimeout);
  CHECK(!f.ready());
  CHECK(world.fake.all<msg::CancelRequest>().empty());
  CHECK(thrown([&] { world.session.ones({3}).get<double>({.timeout = 1ms}); }).code() == Errc::kTimeout);
  CHECK(world.fake.all<msg::CancelRequest>().size() == 1);
}

TEST_CASE("who is far ahead of the cluster waits, but not for what is less urgent") {
  World world({.timeout = 20ms, .look_ahead = 3 * 18});  // of one op and a fetch
  std::vector<Future> futures;
  for (int i = 0; i < 3; ++i) futures.push_back(world.session.compute({world.session.ones({8})}));
  const ArrayError late = thrown([&] { (void)world.session.compute({world.session.ones({8})}); });
  CHECK(late.code() == Errc::kTimeout);
  CHECK(says(late, "3 requests are outstanding"));
  CHECK(submits(world.fake) == 3);
  SUBCASE("its own are less urgent") {
    futures.push_back(world.session.compute({world.session.ones({8})}, {.priority = 1}));
    CHECK(submits(world.fake) == 4);
  }
  SUBCASE("one ends while it waits") {
    std::thread other([&] { futures[1].cancel(); });
    try {
      (void)world.session.compute({world.session.ones({8})}), other.join();
    } catch (...) {
      other.join();
      throw;
    }
    CHECK(submits(world.fake) == 4);
    CHECK(thrown([&] { (void)world.session.compute({world.session.ones({8})}); }).code() == Errc::kTimeout);
  }
  SUBCASE("the scheduler is gone") {
    world.fake.up.on_lost({Errc::kIo, "connection reset"});
    CHECK(thrown([&] { (void)world.session.compute({world.session.ones({8})}); }).code() ==
          Errc::kUnavailable);
  }
}

TEST_CASE("a request larger than the look-ahead is sent where nothing else is outstanding, or none was set") {
  World world({.timeout = 20ms, .look_ahead = 1});
  const auto ask = [](const Session& session) { return session.compute({session.ones({8})}); };
  (void)ask(world.session);
  CHECK(thrown([&] { (void)ask(world.session); }).code() == Errc::kTimeout);
  World unbounded({.timeout = 20ms, .look_ahead = 0});
  for (int i = 0; i < 100; ++i) (void)ask(unbounded.session);
  CHECK(submits(unbounded.fake) == 100);
}

TEST_CASE("losing the scheduler fails everything, waiting or to come") {
  World world;
  Array x = world.session.ones({8});
  Future waiting = world.session.compute({x}), kept = x.persist();
  Future filled = world.session.compute({x});
  world.fake.reply(world.fake.last());
  world.fake.done(world.fake.last());  // at the scheduler all is done; the data was still to come
  std::thread loser([&] {
    std::this_thread::sleep_for(10ms);
    world.fake.up.on_lost({Errc::kIo, "connection reset"});
  });
  const ArrayError e = thrown([&] { waiting.wait(); });
  loser.join();
  CHECK(e.code() == Errc::kUnavailable);
  CHECK(says(e, "connection reset"));
  CHECK(thrown([&] { kept.wait(); }).code() == Errc::kUnavailable);
  CHECK(thrown([&] { filled.wait(); }).code() == Errc::kUnavailable);
  CHECK(thrown([&] { x.get<double>(); }).code() == Errc::kUnavailable);
}

TEST_CASE("a message the scheduler could not read fails what waits for a reply") {
  World world;
  Future answered = world.session.compute({world.session.ones({8})});
  world.fake.reply(world.fake.last());
  Future open = world.session.compute({world.session.ones({8})});
  world.fake.up.on_message(msg::Refusal{{Errc::kCorruptData, "not a message"}});
  CHECK(!answered.ready());
  CHECK(thrown([&] { open.wait(); }).code() == Errc::kCorruptData);
}

TEST_CASE("repeated answers change nothing") {
  World world;
  Array x = world.session.ones({8});
  Future f = x.persist();
  const msg::Submit s = world.fake.last();
  for (int i = 0; i < 3; ++i) world.fake.reply(s);
  for (int i = 0; i < 3; ++i) world.fake.done(s);
  world.fake.done(s, {Errc::kInternal, "too late"});
  f.wait();
  CHECK(world.fake.held.size() == 1);
  Future later = world.session.compute({x});
  world.fake.op = OpId(66);
  world.fake.deliver({world.fake.offer(1, 0, "", 0)});  // parked: exactly one reply is due
  CHECK(world.fake.take_batches().empty());
}

TEST_CASE("progress is told to whoever waits, on their thread") {
  World world;
  Future f = world.session.compute({world.session.ones({1})});
  const msg::Submit s = world.fake.last();
  std::vector<Progress> seen;
  std::thread::id where;
  std::thread cluster([&] {
    world.fake.reply(s);
    for (const std::int64_t done : {1, 2}) {
      world.fake.up.on_message(msg::GraphProgress{s.request, done, 4});
      std::this_thread::sleep_for(20ms);
    }
    const double one = 1;
    world.fake.deliver({world.fake.offer(FakeEndpoint::fetched(s), 0, &one, 8)});
  });
  f.wait({.on_progress = [&](Progress p) {
    seen.push_back(p);
    where = std::this_thread::get_id();
  }});
  cluster.join();
  REQUIRE(seen.size() >= 2);
  CHECK(where == std::this_thread::get_id());
  CHECK(seen.back() == Progress{4, 4});
  CHECK(f.progress() == Progress{2, 4});
}

TEST_CASE("a progress bar's text") {
  CHECK(ProgressBar::text("fit", {12, 24}, 10) == "fit [#####.....]  50 % 12/24");
  CHECK(ProgressBar::text("", {0, 0}, 4) == "[....]   0 % 0/0");
  CHECK(ProgressBar::text("x", {9, 8}, 4) == "x [####] 100 % 9/8");
}

msg::Log workers() {
  msg::PeerInfo peer{WorkerId(3), msg::Role::kWorker, "host-a/12", "h", {}, {DeviceId(31), DeviceId(32)}, {}};
  peer.descriptions = {{"w3/host:0"}, {"w3/host:1"}};
  return {1, 1, {msg::PeerJoined{peer}}};
}

TEST_CASE("devices come and go by the log") {
  World world;
  CHECK(!world.session.wait_for_devices(1, 1ms));
  world.fake.up.on_message(workers());
  CHECK(world.session.wait_for_devices(2, 0ns));
  CHECK(world.session.device("w3/host:1").id == DeviceId(32));
  CHECK(world.session.device("w3/host:1").worker == "host-a/12");
  const ArrayError e = thrown([&] { world.session.device("w3/host:2"); });
  CHECK(e.code() == Errc::kNotFound);
  CHECK(says(e, "w3/host:0, w3/host:1"));
  world.fake.up.on_message(msg::Log{1, 2, {msg::PeerLost{WorkerId(3)}}});
  CHECK(world.session.devices().empty());
}

TEST_CASE("explicit placement") {
  World world;
  world.fake.up.on_message(workers());
  const Array x = (world.session.ones({8}) + 1).on(world.session.device("w3/host:1"));
  const ArrayError e = thrown([&] { x.on(DeviceId(31)); });
  CHECK(e.code() == Errc::kPlacementConflict);
  CHECK(says(e, "w3/host:1"));
  CHECK(says(e, "w3/host:0"));
  world.session.compute({x});
  CHECK(world.fake.last().ops[1].hint.devices == std::vector{DeviceId(32)});
  CHECK(world.fake.last().ops[0].hint.devices.empty());
  // Too late, or a view: a copy is placed instead.
  const Array late = world.session.zeros({8}), there = late;
  world.session.compute({late});
  world.session.compute({there.on(DeviceId(31)), late.slice(0, 0, 4).on(DeviceId(32))});
  int placed = 0;
  for (const ir::Op& op : world.fake.last().ops)
    placed += op.kind == OpKind::kCopy && op.hint.devices.size() == 1;
  CHECK(placed == 2);
}

TEST_CASE("arrays of another session are refused, whatever is asked of them") {
  World one, other;
  const Array x = one.session.zeros({3}), same_number = other.session.ones({5});
  const std::function<void()> asks[] = {
      [&] { other.session.compute({x}); }, [&] { other.session.persist({x}); },
      [&] { other.session.explain(x); }, [&] { other.session.visualize(x); },
      [&] {
        other.session.compute({same_number, x});
      }};
  for (const auto& ask : asks) {
    const ArrayError e = thrown(ask);
    CHECK(e.code() == Errc::kInvalidArgument);
    CHECK(says(e, "another session"));
  }
  CHECK(other.fake.sent.empty());
}

TEST_CASE("persist of a view that shows each element once keeps what it is a view of") {
  World world;
  const Array x = world.session.ones({4, 6});
  for (const Array& view : {x.T(), x.slice(0, {}, {}, -1), x.expand_dims(1), sum(x), sum(x, 1)}) {
    Future future = world.session.persist({view});
    REQUIRE(world.fake.last().holds.size() == 1);
    CHECK(std::ranges::none_of(world.fake.last().ops,
                               [](const ir::Op& op) { return op.kind == OpKind::kCopy; }));
  }
  for (const Array& view : {x.slice(0, 0, 3), x.at(1, 2), x.expand_dims(0).broadcast_to({2, 4, 6})}) {
    const ArrayError e = thrown([&] { world.session.persist({view}); });
    CHECK(e.code() == Errc::kUnsupported);
    CHECK(says(e, "call its own persist()"));
  }
}

// What would compile, and mean something else than it says.
static_assert(!std::is_constructible_v<bool, Array>);  // if (loss > 1.0)
static_assert(std::is_convertible_v<int, Axes> && !std::is_convertible_v<double, Axes> &&
              !std::is_convertible_v<bool, Axes>);  // max(x, 0.0); sum(x, true)
template <class Correction>
concept Corrects = requires(const Array& a, Correction c) {
  var(a, -1, c), stddev(a, -1, c);
};
static_assert(Corrects<double> && Corrects<int> && !Corrects<bool>);

TEST_CASE("the scheduler is told when all results of a request are there, or will not be taken") {
  World world;
  FakeEndpoint& fake = world.fake;
  const auto told = [&] {
    std::vector<std::uint64_t> requests;
    for (const auto& release : fake.all<msg::ReleaseArrays>())
      requests.insert(requests.end(), release.delivered.begin(), release.delivered.end());
    return requests;
  };
  const double values[] = {0, 0};
  const Array x = world.session.zeros({4}, {.block = {2}});
  Future future = world.session.compute({x});
  const msg::Submit submit = fake.last();
  fake.reply(submit);
  fake.deliver({fake.offer(FakeEndpoint::fetched(submit), 1, values, sizeof(values))});
  CHECK(told().empty());
  fake.up.on_message(msg::Log{1, 9, {msg::PeerLost{kWorker}}});  // the other block comes from elsewhere
  CHECK(!future.ready());
  SUBCASE("all there") {
    fake.deliver({fake.offer(FakeEndpoint::fetched(submit), 0, values, sizeof(values))}, WorkerId(4));
    CHECK(future.ready());
    CHECK(told() == std::vector{submit.request});
    fake.done(submit);
  }
  SUBCASE("one of the wrong size") {
    fake.deliver({fake.offer(FakeEndpoint::fetched(submit), 0, values, 8)}, WorkerId(4));
    CHECK(thrown([&] { future.wait(); }).code() == Errc::kCorruptData);
    (void)world.session.compute({x});  // nothing hurries it
    CHECK(told() == std::vector{submit.request});
  }
}

TEST_CASE("a client that is asked after a loss says which blocks it has not got of what it fetches") {
  World world;
  FakeEndpoint& fake = world.fake;
  const double values[] = {0, 0};
  const auto answer = [&](std::uint64_t version) {
    fake.up.on_message(msg::Log{1, version, {msg::PeerLost{{}, version, {}}}});
    const msg::Held held = fake.all<msg::Held>().back();
    CHECK(held.version == version);
    CHECK(held.shares.empty());
    CHECK(held.blocks.empty());
    return held.fetches;
  };
  const Array x = world.session.zeros({10}, {.block = {2}});
  Future first = world.session.compute({x});
  const msg::Submit one = fake.last();
  CHECK(answer(1).empty());  // what it is called is not known yet
  fake.reply(one);
  const std::uint64_t number = FakeEndpoint::fetched(one);
  const ArrayId array = FakeEndpoint::id_of(number);
  using Fetch = msg::Held::Fetch;
  CHECK(answer(2) == std::vector<Fetch>{{one.request, array, {{0, 5}}}});
  for (const std::int64_t block : {1, 3, 4})
    fake.deliver({fake.offer(number, block, values, sizeof(values))});
  CHECK(answer(3) == std::vector<Fetch>{{one.request, array, {{0, 1}, {2, 1}}}});
  for (const std::int64_t block : {0, 2}) fake.deliver({fake.offer(number, block, values, sizeof(values))});
  CHECK(first.ready());
  CHECK(answer(4) ==
        std::vector<Fetch>{{one.request, array, {}}});  // until the scheduler says that it is over
  fake.done(one);
  CHECK(answer(5).empty());
  Future second = world.session.compute({world.session.zeros({4}, {.block = {2}})});
  const msg::Submit two = fake.last();
  fake.reply(two);
  second.cancel();
  CHECK(answer(6) ==
        std::vector<Fetch>{
            {two.request, FakeEndpoint::id_of(FakeEndpoint::fetched(two)), {}}});  // none is wanted any more
}

TEST_CASE("a request that also holds something hears at once that its results are all that was missing") {
  World world;
  FakeEndpoint& fake = world.fake;
  const Array x = world.session.zeros({2}), empty = world.session.zeros({0});
  for (int i = 0; i < 3; ++i) {
    const Array held = world.session.full({2}, double(i));
    Future future = Access::state(x).submit(
        {.fetch = {Access::key(x), Access::key(empty)}, .hold = {Access::key(held)}}, {});
    const msg::Submit submit = fake.last();
    fake.reply(submit);
    const double values[] = {0, 0};
    fake.deliver({fake.offer(FakeEndpoint::fetched(submit), 0, values, sizeof(values))});
    REQUIRE(!fake.all<msg::ReleaseArrays>().empty());
    CHECK(fake.all<msg::ReleaseArrays>().back().delivered == std::vector{submit.request});
    CHECK(!future.ready());
    fake.done(submit);
    CHECK(future.ready());
  }
}

TEST_CASE(
    "the endpoint goes with the last handle of any kind, and is stopped before any part of it is destroyed") {
  struct Decorator final : EndpointDecorator {
    Decorator(std::unique_ptr<Endpoint> real, bool& whole)
        : EndpointDecorator(std::move(real)), whole(whole) {}
    ~Decorator() override { whole = false; }
    bool& whole;
  };
  bool gone = false, stopped_whole = false, whole = true;
  auto fake = std::make_unique<FakeEndpoint>();
  fake->on_stop = [&] { stopped_whole = whole; };
  fake->on_destroy = [&] { gone = true; };
  Future future;
  {
    Array array;
    {
      const Session session = make_session(std::make_unique<Decorator>(std::move(fake), whole));
      array = session.ones({3});
    }
    CHECK(!gone);
    future = array.persist();
  }
  CHECK(!gone);
  future = Future();
  CHECK(gone);
  CHECK(stopped_whole);
}

TEST_CASE("a refused client learns why") {
  auto endpoint = std::make_unique<FakeEndpoint>();
  endpoint->welcome_.refused = {Errc::kVersionMismatch, "scheduler 2, client 1"};
  const ArrayError e = thrown([&] { make_session(std::move(endpoint)); });
  CHECK(e.code() == Errc::kVersionMismatch);
  CHECK(says(e, "scheduler 2"));
}

}  // namespace
}  // namespace tilewise::client

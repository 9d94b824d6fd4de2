// Requests that come while there is no worker.
#include "core_world.h"

namespace tilewise::scheduler::test {
namespace {

TEST_CASE(
    "what is asked for while the last worker is gone waits for another one, in its order, and not for ever") {
  Options options;
  options.recovery_wait_ns = kSecond;
  World w(options);
  w.add_worker(1, 1, "one");
  w.join(10, w.client());
  w.workers.clear();
  w.drop(1);
  const std::size_t before = w.inbox.size();
  w.receive(10, msg::Submit{1, 0, {fill(1, kFourByFour)}, {1}});
  w.receive(10, msg::Submit{2, 0, {map(2, kFourByFour, {1})}, {2}});
  w.receive(10, msg::ReleaseArrays{{1}, {}});
  w.receive(10, msg::Submit{3, 0, {map(3, kFourByFour, {2})}, {3}});
  w.receive(10, msg::CancelRequest{3});
  CHECK(w.inbox.size() == before);
  CHECK(w.core.counters().postponed == 5);
  CHECK(w.core.next_deadline() <= w.now + kSecond);
  SUBCASE("one comes") {
    const auto w3 = w.add_worker(3, 1, "three");
    CHECK(w.count<msg::SubmitReply>(10) == 3);
    const std::vector<msg::Plan> plans = w.log<msg::Plan>(3);
    REQUIRE(plans.size() == 3);
    CHECK(plans[1].ops.at(0).placement.devices() == w3.devices);
    w.apply_logs();
    CHECK(w.last<msg::GraphDone>(10)->request == 3);
    CHECK(w.last<msg::GraphDone>(10)->outcome.code == Errc::kCancelled);
    w.complete(plans[0]);
    w.complete(plans[1]);
    CHECK(w.last<msg::GraphDone>(10)->request == 2);
    CHECK(w.last<msg::GraphDone>(10)->outcome.ok());
    CHECK(w.submit(10, 4, {map(4, kFourByFour, {1})}, {4}).outcome.code == Errc::kNotFound);
  }
  SUBCASE("none comes") {
    w.wait(kSecond);
    CHECK(w.count<msg::SubmitReply>(10) == 3);
    CHECK(w.last<msg::SubmitReply>(10)->request == 3);
    CHECK(!w.last<msg::SubmitReply>(10)->outcome.ok());
    CHECK(w.submit(10, 4, {fill(4, kFourByFour)}, {4}).outcome.code == Errc::kUnavailable);
  }
  SUBCASE("its client leaves") {
    w.drop(10);
    w.add_worker(3, 1, "three");
    CHECK(w.log<msg::Plan>(3).empty());
  }
  SUBCASE("they may be asked again") {
    w.receive(10, msg::Submit{1, 0, {fill(1, kFourByFour)}, {1}});
    w.add_worker(3, 1, "three");
    CHECK(w.log<msg::Plan>(3).size() == 3);
    CHECK(w.count<msg::SubmitReply>(10) == 4);
  }
}

// A client and a worker that has gone.
struct Workless : World {
  explicit Workless(Options options = {}) : World(std::move(options)) {
    add_worker(1, 1, "one");
    for (const std::uint32_t conn : {10, 11}) {
      msg::Join with = client();
      with.name = "client " + std::to_string(conn);
      join(conn, with);
    }
  }
  void lose(std::uint32_t conn) {
    std::erase_if(workers, [&](const auto& w) { return w.first == conn; });
    drop(conn);
  }
  void ask(std::uint32_t conn, std::uint64_t request) {
    receive(conn, msg::Submit{request, 0, {fill(request, kFourByFour)}, {request}});
  }
};

TEST_CASE("a worker that is to leave takes no work: what is asked for waits for another one") {
  Workless w;
  w.add_worker(2, 1, "two");
  w.step({OperatorDrain{WorkerId{1}}});
  w.lose(2);
  w.ask(10, 1);
  CHECK(w.last<msg::SubmitReply>(10) == nullptr);
  SUBCASE("one comes") { w.add_worker(3, 1, "three"); }
  SUBCASE("it is to stay after all") { w.step({OperatorDrain{WorkerId{1}, false}}); }
  w.step({});
  REQUIRE(w.last<msg::SubmitReply>(10) != nullptr);
  CHECK(w.last<msg::SubmitReply>(10)->outcome.ok());
}

TEST_CASE("while an announcement waits for a worker, the time of those who announced before stands still") {
  Workless w;
  const auto announce = [&](std::uint32_t conn) {
    msg::Announce m;
    m.request = 1;
    m.name = "x";
    m.shape = {8, 8};
    m.processes = 2;
    m.array = 7;
    m.timeout_ns = 2 * kSecond;
    const std::int64_t first = conn == 10 ? 0 : 4;
    m.pieces = {{{first, 0}, {first + 4, 8}}};
    w.receive(conn, std::move(m));
  };
  announce(10);
  w.lose(1);
  w.wait(kSecond);
  SUBCASE("it came in time") {
    announce(11);
    w.wait(5 * kSecond);
    CHECK(w.core.next_deadline() > w.now);
    CHECK(w.last<msg::SubmitReply>(10) == nullptr);
    w.add_worker(2, 1, "two");
    for (const std::uint32_t conn : {10, 11}) {
      REQUIRE(w.last<msg::SubmitReply>(conn) != nullptr);
      CHECK(w.last<msg::SubmitReply>(conn)->outcome.ok());
    }
  }
  SUBCASE("none came") {
    w.wait(kSecond);
    REQUIRE(w.last<msg::SubmitReply>(10) != nullptr);
    CHECK(w.last<msg::SubmitReply>(10)->outcome.code == Errc::kTimeout);
  }
}

TEST_CASE("what waited is answered a part a step, each session's in its order, whoever else asks meanwhile") {
  Workless w;
  w.lose(1);
  for (std::uint64_t i = 1; i <= 150; ++i) {
    w.ask(10, i);
    if (i <= 20) w.ask(11, i);
  }
  w.add_worker(2, 1, "two");
  CHECK(w.count<msg::SubmitReply>(11) == 20);  // not behind all of the other's
  CHECK(w.count<msg::SubmitReply>(10) + w.count<msg::SubmitReply>(11) == 64);
  w.ask(10, 151);  // behind
  for (int replies = w.count<msg::SubmitReply>(10); replies < 151;) {
    CHECK(w.core.next_deadline() <= w.now);
    w.step({});
    const int more = w.count<msg::SubmitReply>(10) - replies;
    CHECK(more > 0);
    CHECK(more <= 64);
    replies += more;
  }
  CHECK(w.core.next_deadline() > w.now);
  std::uint64_t next = 1;
  for (const Send& sent : w.inbox) {
    const auto* reply = std::get_if<msg::SubmitReply>(&sent.message);
    if (reply == nullptr || sent.to != Conn{10}) continue;
    CHECK(reply->outcome.ok());
    CHECK(reply->request == next++);
  }
}

TEST_CASE("no more than so many wait: the oldest of the session that asks is answered") {
  Workless w;
  w.lose(1);
  for (std::uint64_t i = 1; i <= 4096; ++i) w.receive(10, msg::Submit{i, 0, {}, {}});
  CHECK(w.last<msg::SubmitReply>(10) == nullptr);
  w.ask(11, 1);  // has none that waits
  CHECK(w.last<msg::SubmitReply>(11)->outcome.code == Errc::kUnavailable);
  w.ask(10, 4097);
  CHECK(w.count<msg::SubmitReply>(10) == 1);
  CHECK(w.last<msg::SubmitReply>(10)->request == 1);
}

}  // namespace
}  // namespace tilewise::scheduler::test

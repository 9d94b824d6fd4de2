#include <doctest/doctest.h>

#include "core_world.h"

namespace tilewise::scheduler::test {
namespace {

// A client with a lease that holds one array and waits for another.
struct Leased : World {
  explicit Leased(TimeNs lease_ns = 20 * kSecond) : World(options()) {
    add_worker(1, 1);
    msg::Join join = client();
    join.lease_ns = lease_ns;
    welcome = this->join(10, std::move(join));
    submit(10, 1, {fill(1, kFourBlocks)}, {1});
    complete(log<msg::Plan>(1).back());
    submit(10, 2, {map(2, kFourBlocks, {1})}, {2});
  }
  static Options options() {
    Options o;
    o.state = 77;
    return o;
  }
  std::int64_t live() {
    apply_logs();
    receive(20, [] {
      msg::Join join;
      join.role = msg::Role::kTool;
      join.software_version = "1";
      return join;
    }());
    receive(20, msg::StatusRequest{});
    return last<msg::StatusReply>(20)->arrays_live;
  }
  // The worker goes on talking meanwhile.
  void pass(TimeNs ns) {
    for (TimeNs left = ns; left > 0; left -= kSecond) {
      now += std::min(left, kSecond);
      receive(1, msg::Pong{0});
    }
  }
  msg::Welcome welcome;
};

TEST_CASE("a client whose link broke finds everything when it comes back in time") {
  Leased w;
  CHECK(w.welcome.state == 77);
  CHECK_FALSE(w.welcome.durable);
  w.step({Broken{Conn{10}}});
  const std::size_t said = w.inbox.size();
  w.pass(19 * kSecond);
  w.complete(w.log<msg::Plan>(1).back());
  CHECK(w.count<msg::GraphDone>(10) == 2);  // kept for it by the shell
  CHECK(w.log<msg::CancelGraph>(1).empty());
  for (std::size_t i = said; i < w.inbox.size(); ++i)
    CHECK_FALSE((w.inbox[i].to == Conn{10} && std::holds_alternative<msg::Ping>(w.inbox[i].message)));
  w.step({Returned{Conn{10}}});
  w.pass(5 * kSecond);
  CHECK(w.submit(10, 3, {map(3, kFourBlocks, {2})}, {3}).outcome.ok());
  CHECK(w.live() == 3);
}

TEST_CASE("after its lease a client's graphs are cancelled and its arrays released") {
  Leased w;
  w.step({Broken{Conn{10}}});
  w.pass(19 * kSecond);
  CHECK(w.log<msg::CancelGraph>(1).empty());
  w.pass(kSecond);
  CHECK(w.log<msg::CancelGraph>(1).size() == 1);
  CHECK(w.log<msg::Release>(1).size() == 1);
  CHECK(w.live() == 0);
  w.step({Returned{Conn{10}}});  // too late: it is nobody
  CHECK(w.quiet());
}

TEST_CASE("who says that it leaves is not waited for") {
  Leased w;
  w.receive(10, msg::Leave{});
  CHECK(w.closed(10));
  CHECK(w.log<msg::CancelGraph>(1).size() == 1);
  CHECK(w.live() == 0);
}

TEST_CASE("silence counts against the lease, where that is longer") {
  for (const TimeNs lease : {2 * kSecond, 20 * kSecond}) {
    CAPTURE(lease);
    Leased w(lease);
    const TimeNs limit = std::max(lease, 10 * kSecond);
    w.pass(limit - kSecond);
    CHECK(w.log<msg::CancelGraph>(1).empty());
    w.pass(kSecond);
    CHECK(w.log<msg::CancelGraph>(1).size() == 1);
  }
}

TEST_CASE("a worker's lease: nothing is made again while it may come back") {
  World w(Leased::options());
  w.add_worker(1, 1, "stays");
  msg::Join join = w.worker(1, "away");
  join.lease_ns = 5 * kSecond;
  w.workers.emplace_back(2, w.join(2, std::move(join)));
  w.join(10, w.client());
  w.submit(10, 1, {fill(1, kFourBlocks)}, {1});
  w.step({Broken{Conn{2}}});
  for (int i = 0; i < 4; ++i) w.wait(kSecond);  // at once would be a scheduler that did not listen itself
  CHECK(w.log<msg::PeerLost>(1).empty());
  SUBCASE("it comes back") {
    w.step({Returned{Conn{2}}});
    w.complete(w.log<msg::Plan>(1).back());
    CHECK(w.count<msg::GraphDone>(10) == 1);
    CHECK(w.log<msg::PeerLost>(1).empty());
  }
  SUBCASE("it does not") {
    w.wait(kSecond);
    CHECK(w.log<msg::PeerLost>(1).size() == 1);
  }
}

TEST_CASE("an impossible lease is refused; who has none keeps no link") {
  World w(Leased::options());
  for (const std::int64_t lease : {std::int64_t{-1}, 8 * 24 * 3600 * kSecond}) {
    msg::Join join = w.client();
    join.lease_ns = lease;
    CHECK(w.join(5, std::move(join)).refused.code == Errc::kInvalidArgument);
    w.drop(5);
  }
  CHECK(w.join(6, w.client()).state == 0);
}

TEST_CASE("who was away when the scheduler died has its lease anew") {
  Leased w;
  w.step({Broken{Conn{10}}});
  w.pass(19 * kSecond);
  Options next = Leased::options();
  next.term = 2;
  w.core.begin_life(next, w.now, w.actions);
  w.pass(19 * kSecond);
  CHECK(w.log<msg::CancelGraph>(1).empty());
  w.pass(kSecond);
  CHECK(w.log<msg::CancelGraph>(1).size() == 1);
}

}  // namespace
}  // namespace tilewise::scheduler::test

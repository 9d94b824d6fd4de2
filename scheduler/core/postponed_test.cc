// Requests that come while there is no worker.
#include "core_world.h"

namespace tilewise::scheduler::test {
namespace {

const ir::Grid kGrid = grid({8, 8}, {2, 2});

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
  w.receive(10, msg::Submit{1, 0, {fill(1, kGrid)}, {1}});
  w.receive(10, msg::Submit{2, 0, {map(2, kGrid, {1})}, {2}});
  w.receive(10, msg::ReleaseArrays{{1}, {}});
  w.receive(10, msg::Submit{3, 0, {map(3, kGrid, {2})}, {3}});
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
    CHECK(w.submit(10, 4, {map(4, kGrid, {1})}, {4}).outcome.code == Errc::kNotFound);
  }
  SUBCASE("none comes") {
    w.wait(kSecond);
    CHECK(w.count<msg::SubmitReply>(10) == 3);
    CHECK(w.last<msg::SubmitReply>(10)->request == 3);
    CHECK(!w.last<msg::SubmitReply>(10)->outcome.ok());
    CHECK(w.submit(10, 4, {fill(4, kGrid)}, {4}).outcome.code == Errc::kUnavailable);
  }
  SUBCASE("its client leaves") {
    w.drop(10);
    w.add_worker(3, 1, "three");
    CHECK(w.log<msg::Plan>(3).empty());
  }
  SUBCASE("they may be asked again") {
    w.receive(10, msg::Submit{1, 0, {fill(1, kGrid)}, {1}});
    w.add_worker(3, 1, "three");
    CHECK(w.log<msg::Plan>(3).size() == 3);
    CHECK(w.count<msg::SubmitReply>(10) == 4);
  }
}

}  // namespace
}  // namespace tilewise::scheduler::test

// Tools and clients come and go for as long as a scheduler lives: what is left of them has a bound, and their ids are not used again.
#include "core_world.h"

#include <set>

namespace tilewise::scheduler::test {
namespace {

SnapshotCodec sized() {  // for the bytes alone
  return {[](const msg::Message&) -> Result<std::string> { return std::string(64, 'm'); },
          [](std::string_view) -> Result<msg::Message> { return error(Errc::kUnsupported, "written only"); }};
}

struct Crowd : World {
  std::set<std::uint32_t> peers, devices, sessions;  // ids that were given
  std::uint32_t conn = 100;

  msg::Welcome joins(msg::Join as) {
    const msg::Welcome welcome = join(++conn, std::move(as));
    REQUIRE(welcome.refused.ok());
    CHECK(peers.insert(welcome.you.value).second);
    for (const DeviceId device : welcome.devices) CHECK(devices.insert(device.value).second);
    if (welcome.session) CHECK(sessions.insert(welcome.session.value).second);
    return welcome;
  }
  void tool() {
    msg::Join as = client();
    as.role = msg::Role::kTool;
    as.devices.clear();
    joins(as);
    drop(conn);
  }
  // It makes an array, has it, lets it go, and leaves.
  void client_with_array() {
    joins(client());
    submit(conn, 1, {fill(1, kFourByFour), fetch(1, kFourByFour)}, {1});
    complete(log<msg::Plan>(1).back());
    receive(conn, msg::ReleaseArrays{{1}, {1}});
    drop(conn);
    inbox.clear(), logs.clear(), kept.clear();
  }
  std::size_t bytes() {
    core.settle(now, actions);
    actions.clear();
    const auto snapshot = core.snapshot(sized());
    REQUIRE(snapshot.has_value());
    return snapshot->size();
  }
  Records records() const { return core.records(); }
};

TEST_CASE("ten thousand tools and clients, one after another, leave what the first hundred left") {
  Crowd w;
  w.add_worker(1, 2, "a");
  const auto some = [&](int count) {
    for (int i = 0; i < count; ++i) i % 2 == 0 ? w.tool() : w.client_with_array();
  };
  some(100);
  const Records before = w.records();
  const std::size_t bytes = w.bytes();
  CHECK(before.peers <= 2);
  CHECK(before.sessions <= 1);
  CHECK(before.devices <= 3);
  some(10'000);
  CHECK(w.records() == before);
  CHECK(w.bytes() == bytes);
  CHECK(w.peers.size() == 10'100);
}

TEST_CASE("a client that is gone stays known while something of it is named, and goes after that") {
  Crowd w;
  w.add_worker(1, 1, "a");
  w.joins(w.client());
  const std::uint32_t first = w.conn;
  w.submit(first, 1, {fill(1, kFourByFour)}, {1});  // it runs, and its worker has not heard of the end
  w.drop(first);
  for (int i = 0; i < 3; ++i) w.tool();
  CHECK(w.records().sessions == 1);
  w.apply_logs();  // the cancellation
  w.wait(1);
  CHECK(w.records() == Records{1, 1, 0});
}

TEST_CASE("with many records, those who leave are looked for now and then") {
  Crowd w;
  w.add_worker(1, 1, "a");
  w.joins(w.client());
  const std::uint32_t stays = w.conn;
  std::vector<ir::Op> ops;
  std::vector<std::uint64_t> held;
  for (std::uint64_t i = 1; i <= 3'000; ++i)
    ops.push_back(fill(i, grid({2}, {2}), static_cast<double>(i))), held.push_back(i);
  w.submit(stays, 1, std::move(ops), held);
  w.complete(w.log<msg::Plan>(1).back());
  for (int i = 0; i < 50; ++i) {
    w.joins(w.client());
    w.drop(w.conn);
    CHECK(w.records().sessions <= 4);
  }
  for (int i = 0; i < 200; ++i) w.wait(1);
  CHECK(w.records() == Records{2, 2, 1});
}

}  // namespace
}  // namespace tilewise::scheduler::test

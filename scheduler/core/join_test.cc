#include "core_world.h"

namespace tilewise::scheduler::test {
namespace {

TEST_CASE("joining: ids, names and who hears of whom") {
  World w;
  const auto w1 = w.join(1, w.worker(2, "a"));
  CHECK(w1.refused.ok());
  CHECK(w1.term == 1);
  CHECK(w1.you == WorkerId{1});
  CHECK_FALSE(w1.session);
  CHECK(w1.devices == std::vector<DeviceId>{DeviceId{1}, DeviceId{2}});
  const auto me = w.join(10, w.client());
  CHECK(me.session == SessionId{1});
  CHECK(me.devices.size() == 1);
  const auto w2 = w.join(2, w.worker(1, "b"));
  CHECK(w2.devices == std::vector<DeviceId>{DeviceId{4}});
  msg::Join tool;
  tool.role = msg::Role::kTool;
  tool.software_version = "1";
  CHECK(w.join(20, tool).refused.ok());

  const auto names = [&](std::uint32_t conn) {
    std::vector<std::string> out;
    for (const auto& joined : w.log<msg::PeerJoined>(conn)) out.push_back(joined.peer.name);
    return out;
  };
  CHECK(names(1) == std::vector<std::string>{"client", "b"});
  CHECK(names(2) == std::vector<std::string>{"a", "client"});
  CHECK(names(10) == std::vector<std::string>{"a", "b"});
  CHECK(names(20).empty());
  CHECK(w.log<msg::PeerJoined>(10)[0].peer.descriptions[1].name == "w1/host:1");
  CHECK(w.log<msg::PeerJoined>(10)[0].peer.addresses.size() == 1);
}

TEST_CASE("log numbers follow each other, one log a link") {
  World w;
  w.join(1, w.worker(1));
  w.join(10, w.client());
  w.join(2, w.worker(1));
  w.submit(10, 1, {fill(1, kFourByFour)}, {1});
  w.submit(10, 2, {fill(2, kFourByFour)}, {2});
  std::map<std::uint32_t, std::uint64_t> next;
  for (const Send& sent : w.inbox) {
    const auto* log = std::get_if<msg::Log>(&sent.message);
    if (log == nullptr) continue;
    CHECK(log->first == next[sent.to.value] + 1);
    next[sent.to.value] += log->entries.size();
  }
  CHECK(next[1] == 4);   // client, worker, two plans
  CHECK(next[10] == 2);  // two workers
}

TEST_CASE("who may not join") {
  World w;
  w.join(1, w.worker(1, "old"));
  SUBCASE("another software version, both named") {
    auto join = w.worker(1, "new");
    join.software_version = "2";
    const auto refused = w.join(2, join).refused;
    CHECK(refused.code == Errc::kVersionMismatch);
    CHECK(refused.message.find("'1'") != std::string::npos);
    CHECK(refused.message.find("'2'") != std::string::npos);
    CHECK(w.closed(2));
    w.drop(1);  // with nobody left, any version may begin
    CHECK(w.join(3, join).refused.ok());
  }
  SUBCASE("two devices of one name") {
    auto join = w.worker(2);
    join.devices[1].name = join.devices[0].name;
    CHECK(w.join(2, join).refused.code == Errc::kAlreadyExists);
  }
  SUBCASE("names that a terminal or JSON cannot show") {
    CHECK(w.join(2, w.worker(1,
                             "gr\xC3\xBC\xC3\x9F"
                             "e"))
              .refused.ok());
    std::uint32_t link = 3;
    for (const char* name : {"\x1B[2J", "\xFF", "a\nb"}) {
      CHECK(w.join(link++, w.worker(1, name)).refused.code == Errc::kInvalidArgument);
      auto join = w.worker(1);
      join.devices[0].name = name;
      CHECK(w.join(link++, join).refused.code == Errc::kInvalidArgument);
    }
  }
  SUBCASE("impossible devices") {
    auto join = w.worker(1);
    join.devices[0].memory_bytes = -1;
    CHECK(w.join(2, join).refused.code == Errc::kInvalidArgument);
    join = w.worker(1);
    join.devices[0].kind = 9;
    CHECK(w.join(3, join).refused.code == Errc::kInvalidArgument);
    join = w.worker(5000);
    CHECK(w.join(4, join).refused.code == Errc::kLimitExceeded);
    join = w.client();
    join.devices.push_back({"host:1"});
    CHECK(w.join(5, join).refused.code == Errc::kInvalidArgument);
    join = w.worker(1);
    join.role = static_cast<msg::Role>(7);
    CHECK(w.join(6, join).refused.code == Errc::kInvalidArgument);
  }
  SUBCASE("a plug-in of another version or build, until nobody has the old one") {
    auto join = w.worker(1);
    join.plugins = {{"blur", "1.0", 42}};
    CHECK(w.join(2, join).refused.ok());
    CHECK(w.join(3, join).refused.ok());
    join.plugins[0].hash = 43;
    CHECK(w.join(4, join).refused.code == Errc::kVersionMismatch);
    join.plugins[0].version = "1.1";
    CHECK(w.join(5, join).refused.message.find("'1.1'") != std::string::npos);
    w.drop(2);
    CHECK_FALSE(w.join(6, join).refused.ok());
    w.drop(3);
    CHECK(w.join(7, join).refused.ok());
  }
  SUBCASE("too many") {
    World small(Options{.max_peers = 1});
    small.join(1, small.worker(1));
    CHECK(small.join(2, small.worker(1)).refused.code == Errc::kLimitExceeded);
  }
}

TEST_CASE("the first message must be Join, and there is one") {
  World w;
  w.receive(1, msg::Progress{});
  CHECK(w.last<msg::Refusal>(1)->why.code == Errc::kUnauthenticated);
  CHECK(w.closed(1));
  w.receive(1, w.worker(1));  // too late on this link
  CHECK(w.quiet());
  w.join(2, w.worker(1));
  w.receive(2, w.worker(1));
  CHECK(w.last<msg::Refusal>(2)->why.code == Errc::kAlreadyExists);
  CHECK(w.count<msg::Welcome>(2) == 1);
}

TEST_CASE("a welcome says how many are told of next") {
  World w;
  CHECK(w.join(1, w.worker(1)).introduced == 0);
  CHECK(w.join(2, w.worker(1)).introduced == 1);
  CHECK(w.join(3, w.client()).introduced == 2);
  CHECK(w.join(4, w.client()).introduced == 2);  // clients do not hear of each other
  CHECK(w.join(5, w.worker(1)).introduced == 4);
  w.drop(1);
  CHECK(w.join(6, w.client()).introduced == 2);
}

TEST_CASE("messages of the wrong role, from the dead and from nowhere change nothing") {
  World w;
  w.add_worker(1, 1);
  w.join(10, w.client());
  const auto before = w.core.digest();
  w.receive(1, msg::Submit{});
  CHECK(w.last<msg::Refusal>(1)->why.message.find("Submit") != std::string::npos);
  w.receive(10, msg::Progress{});
  w.receive(10, msg::Stuck{});
  w.receive(1, msg::ReleaseArrays{});
  w.receive(1, msg::Shutdown{});
  w.receive(10, msg::Welcome{});
  CHECK(w.core.digest() == before);
  const int refusals = w.count<msg::Refusal>(10);
  w.receive(10, msg::Refusal{});  // never answered
  CHECK(w.count<msg::Refusal>(10) == refusals);
  w.drop(10);
  w.receive(10, msg::Submit{1, 0, {fill(1, kFourByFour)}, {1}});
  w.receive(10, msg::ReleaseArrays{{1}});
  CHECK(w.quiet());
  w.drop(10);
  w.drop(55);
  CHECK(w.quiet());
}

TEST_CASE("silence is noticed, and pings keep a link") {
  World w;
  w.join(1, w.worker(1));
  w.join(2, w.worker(1));
  w.receive(1, msg::Ping{5});
  CHECK(w.last<msg::Pong>(1)->nonce == 5);
  CHECK(w.core.next_deadline() <= w.now + 2 * kSecond);
  for (int i = 0; i < 11; ++i) {
    w.wait(kSecond);
    w.receive(1, msg::Pong{});
  }
  CHECK(w.count<msg::Ping>(2) >= 3);
  CHECK(w.log<msg::PeerLost>(1).size() == 1);
  CHECK(w.log<msg::PeerLost>(1)[0].peer == WorkerId{2});
  w.receive(2, msg::Pong{});
  CHECK(w.quiet());
}

TEST_CASE("a scheduler that did not listen for long blames nobody for having been silent") {
  World w;
  w.join(1, w.worker(1));
  w.join(2, w.worker(1));
  w.wait(kSecond);
  w.now += 60 * kSecond;  // no step was made in all this time
  w.step({});
  CHECK(w.log<msg::PeerLost>(1).empty());
  CHECK(w.log<msg::PeerLost>(2).empty());
  // Who says nothing from now on is lost all the same.
  for (int i = 0; i < 11; ++i) {
    w.wait(kSecond);
    w.receive(1, msg::Pong{});
  }
  REQUIRE(w.log<msg::PeerLost>(1).size() == 1);
  CHECK(w.log<msg::PeerLost>(1)[0].peer == WorkerId{2});
}

TEST_CASE("status and shutdown") {
  World w;
  w.add_worker(1, 2);
  w.join(10, w.client());
  w.receive(10, msg::StatusRequest{});
  const auto* status = w.last<msg::StatusReply>(10);
  CHECK(status->peers.size() == 2);
  CHECK(status->devices.size() == 2);
  w.receive(10, msg::Shutdown{});
  CHECK(w.count<msg::Shutdown>(1) == 1);
  CHECK(std::holds_alternative<EndProcess>(w.actions.back()));
}

TEST_CASE("a late worker learns what exists") {
  World w;
  w.add_worker(1, 2);
  w.join(10, w.client());
  w.submit(10, 1, {random(1, kFourByFour), map(2, kFourByFour, {1})}, {2});
  w.submit(10, 2, {map(3, kFourByFour, {2})}, {3});
  w.complete(w.log<msg::Plan>(1)[0]);
  w.receive(10, msg::ReleaseArrays{{2}});
  w.add_worker(2, 1);
  CHECK(w.log<msg::PeerJoined>(2).size() == 2);
  const auto plans = w.log<msg::Plan>(2);
  REQUIRE(plans.size() == 2);
  REQUIRE(plans[0].ops.size() == 1);  // array 2 is released, but still read
  REQUIRE(plans[1].ops.size() == 1);  // under way: it may have to take part in it
  const msg::PlannedOp& op = plans[0].ops[0];
  CHECK(op.done);
  CHECK(op.op.operands.empty());
  const auto made = w.log<msg::Plan>(1)[0];
  CHECK(op.id == made.ops[0].id);
  CHECK(op.placement == made.ops[0].placement);
  CHECK(op.op.outputs == made.ops[0].op.outputs);
  CHECK(plans[0].holds.empty());
  CHECK(ir::Geometry::make(op.op, {}).has_value());
  CHECK(plans[1] == w.log<msg::Plan>(1)[1]);
  CHECK(w.log<msg::Recover>(2).empty());
}

}  // namespace
}  // namespace tilewise::scheduler::test

// Blocks in parts over ways that do what the test says.
#include <tilewise/exchange/parts.h>

#include <algorithm>
#include <cstring>
#include <optional>

#include "exchange_test_util.h"

using namespace tilewise;
using namespace tilewise::exchange;
using namespace tilewise::exchange::test;

namespace {

constexpr WorkerId kAbove{1}, kBelow{2}, kOther{3};
constexpr std::int64_t kPartBytes = 512 << 10, kBlockBytes = 5 * kPartBytes + 1000;  // six parts
constexpr std::size_t kParts = 6;

struct Desk {
  struct Sent {
    WorkerId to;
    std::uint64_t number = 0;
    const std::byte* from = nullptr;
    std::int64_t bytes = 0;
    Exchange::Done done;
  };
  struct Awaited {
    WorkerId from;
    std::uint64_t number = 0;
    std::byte* to = nullptr;
    std::int64_t bytes = 0;
    Exchange::Done done;
    transfer::OnHeld held;
    bool over = false;
  };
  std::vector<Sent> sent;
  std::vector<Awaited> awaited;
  std::vector<std::uint64_t> disarmed, extended;
  std::vector<std::byte> memory = std::vector<std::byte>(kBlockBytes);
  // What came of the block that is received, and of those that are sent, in order.
  int firsts = 0;
  std::vector<std::string> ends;
  Parts parts{{.transmit =
                   [this](WorkerId to, std::uint64_t number, const std::byte* from, std::int64_t bytes,
                          device::Kind, Exchange::Done done) {
                     sent.push_back({to, number, from, bytes, std::move(done)});
                   },
               .receive =
                   [this](WorkerId from, std::uint64_t number, std::byte* to, std::int64_t bytes,
                          device::Kind, Exchange::Done done, transfer::OnHeld held) {
                     awaited.push_back({from, number, to, bytes, std::move(done), std::move(held)});
                   },
               .disarm = [this](WorkerId, std::uint64_t number) { disarmed.push_back(number); },
               .extend = [this](WorkerId, std::uint64_t number, bool) { extended.push_back(number); }},
              0};

  Exchange::Done ending(std::string who) {
    return [this, who](const Status& status, msg::Lane) {
      ends.push_back(who + ": " + (status ? "ok" : status.error().message));
    };
  }
  void receive(std::uint64_t transfer = 7) {
    parts.receive(
        kAbove, transfer, memory.data(), kBlockBytes, kHost, [this] { ++firsts; }, ending("here"),
        [this](const Error& why) { ends.push_back("held: " + why.message); });
  }
  void transmit(WorkerId to, std::uint64_t follows, std::uint64_t transfer = 9) {
    parts.transmit(to, transfer, memory.data(), kBlockBytes, kHost, follows,
                   ending(to == kBelow ? "below" : "other"));
  }
  void come(std::size_t part, const Status& how = {}) {
    awaited.at(part).over = true;
    awaited.at(part).done(how, msg::Lane::kTcp);
  }
  void come_all() {
    for (std::size_t i = 0; i < awaited.size(); ++i)
      if (!awaited[i].over) come(i);
  }
  void sends_end(const Status& how = {}) {
    for (const Sent& s : std::exchange(sent, {})) s.done(how, msg::Lane::kTcp);
  }
  std::vector<std::int64_t> offsets() const {
    std::vector<std::int64_t> out;
    for (const Sent& s : sent) out.push_back(s.from - memory.data());
    return out;
  }
};

using Said = std::vector<std::string>;
using Places = std::vector<std::int64_t>;

}  // namespace

TEST_CASE("both ends cut a block alike, into numbers that are nobody else's") {
  Desk here;
  here.receive();
  here.transmit(kBelow, 0, 7);
  REQUIRE(here.awaited.size() == kParts);
  REQUIRE(here.sent.size() == kParts);
  std::int64_t at = 0;
  for (std::size_t i = 0; i < kParts; ++i) {
    CHECK(here.sent[i].number == here.awaited[i].number);
    CHECK(here.sent[i].number != 7);
    CHECK(here.sent[i].from == here.memory.data() + at);
    CHECK(here.awaited[i].to == here.memory.data() + at);
    CHECK(here.sent[i].bytes == here.awaited[i].bytes);
    for (std::size_t j = 0; j < i; ++j) CHECK(here.sent[i].number != here.sent[j].number);
    at += here.sent[i].bytes;
  }
  CHECK(at == kBlockBytes);
  for (const std::int64_t bytes :
       {std::int64_t{1}, kPartBytes, kPartBytes + 1, 256 * kPartBytes + 1, std::int64_t{1} << 34}) {
    const std::int64_t each = part_bytes_of(bytes);
    CHECK(each >= kPartBytes);
    CHECK(each % (64 << 10) == 0);
    CHECK((bytes + each - 1) / each <= 256);
  }
}

TEST_CASE("the first part is told of once, and the block when all are here, in whatever order") {
  Desk here;
  here.receive();
  here.receive();  // a repeat
  CHECK(here.awaited.size() == kParts);
  here.come(3);
  CHECK(here.firsts == 1);
  here.come(0);
  CHECK(here.firsts == 1);
  CHECK(here.ends.empty());
  here.come_all();
  CHECK(here.ends == Said{"here: ok"});
  here.receive(8);  // another block
  CHECK(here.awaited.size() == 2 * kParts);
}

TEST_CASE("who follows is sent what is here at once, and each other part when it comes") {
  Desk here;
  here.receive();
  here.come(1);
  here.transmit(kBelow, 7);
  here.transmit(kBelow, 7);  // a repeat
  CHECK(here.offsets() == Places{kPartBytes});
  here.come(0);
  here.come(5);
  CHECK(here.offsets() == Places{kPartBytes, 0, 5 * kPartBytes});
  here.transmit(kOther, 7);
  CHECK(here.sent.size() == 6);
  here.sends_end();
  CHECK(here.ends.empty());
  here.come_all();
  CHECK(here.ends == Said{"here: ok"});
  CHECK(here.sent.size() == 6);
  here.sends_end();
  CHECK(here.ends == Said{"here: ok", "below: ok", "other: ok"});
  here.transmit(kBelow, 7, 10);  // that is over: all is here
  CHECK(here.sent.size() == kParts);
}

TEST_CASE("where a part fails the others are not awaited or passed on, and who follows ends first") {
  Desk here;
  here.receive();
  here.come(0);
  here.transmit(kBelow, 7);
  here.transmit(kOther, 7);
  REQUIRE(here.sent.size() == 2);
  here.sent[1].done({}, msg::Lane::kTcp);  // the other one's; the first is still being sent
  here.sent.pop_back();
  here.come(2, error(Errc::kUnavailable, "broken"));
  CHECK(here.disarmed.size() == 4);
  CHECK(here.ends == Said{"other: broken"});
  here.come(3);  // it was coming all the same
  CHECK(here.sent.size() == 1);
  for (const std::size_t i : {1, 4, 5}) here.come(i, error(Errc::kNotFound, "disarmed"));
  CHECK(here.ends == Said{"other: broken"});  // memory is being read
  here.sends_end();
  CHECK(here.ends == Said{"other: broken", "below: broken", "here: broken"});
}

TEST_CASE("who comes to follow what has failed already is sent nothing") {
  Desk here;
  here.receive();
  here.come(0);
  here.come(1, error(Errc::kUnavailable, "broken"));
  here.transmit(kBelow, 7);
  CHECK(here.sent.empty());
  CHECK(here.ends == Said{"below: broken"});
  here.come_all();
  CHECK(here.ends == Said{"below: broken", "here: broken"});
  here.transmit(kOther, 7);  // granted before it was told
  CHECK(here.sent.empty());
  CHECK(here.ends.back() == "other: broken");
}

TEST_CASE("who is not reached any more is sent nothing more") {
  Desk here;
  here.receive();
  here.come(0);
  here.transmit(kBelow, 7);
  here.transmit(kOther, 7);
  here.sent[1].done({}, msg::Lane::kTcp);  // the other one's, who waits for the next
  here.sent.pop_back();
  here.parts.peer_broke(kOther, {Errc::kUnavailable, "cut"});
  CHECK(here.ends == Said{"other: cut"});
  here.parts.peer_broke(kBelow, {Errc::kUnavailable, "cut"});
  here.come(1);
  CHECK(here.sent.size() == 1);
  here.sends_end();
  CHECK(here.ends == Said{"other: cut", "below: cut"});
  here.come_all();
  CHECK(here.ends.back() == "here: ok");
}

TEST_CASE("a send that fails ends alone") {
  Desk here;
  here.receive();
  here.come(0);
  here.transmit(kBelow, 7);
  here.transmit(kOther, 7);
  here.sent[0].done(error(Errc::kIo, "no way"), msg::Lane::kTcp);
  here.sent.erase(here.sent.begin());
  CHECK(here.ends == Said{"below: no way"});
  here.come_all();
  CHECK(here.sent.size() == kParts);  // the other one's
  here.sends_end();
  CHECK(here.ends == Said{"below: no way", "here: ok", "other: ok"});
}

TEST_CASE("a sender that has no such block ends what it was to send; another one does not") {
  Desk here;
  here.receive();
  CHECK_FALSE(here.parts.disarm(kBelow, 7));
  CHECK_FALSE(here.parts.disarm(kAbove, 8));
  CHECK(here.disarmed.empty());
  here.come(0);
  CHECK(here.parts.disarm(kAbove, 7));
  CHECK(here.disarmed.size() == kParts - 1);
  for (std::size_t i = 1; i < kParts; ++i) here.come(i, error(Errc::kNotFound, "not sent"));
  CHECK(here.ends == Said{"here: not sent"});
  CHECK_FALSE(here.parts.disarm(kAbove, 7));
}

TEST_CASE("memory that the transport does not let go of is told of once, and the end when it has") {
  Desk here;
  here.receive();
  here.awaited[1].held({Errc::kTimeout, "stuck"});
  here.awaited[2].held({Errc::kTimeout, "stuck too"});
  CHECK(here.ends == Said{"held: stuck"});
  CHECK(here.disarmed.size() == kParts);
  here.come_all();
  CHECK(here.ends == Said{"held: stuck", "here: stuck"});
}

TEST_CASE("when a part has ended those behind it are given more time") {
  Desk here;
  here.receive();
  CHECK(here.extended.empty());
  here.come(0);
  REQUIRE(here.extended.size() == kParts - 1);
  for (std::size_t i = 1; i < kParts; ++i) CHECK(here.extended[i - 1] == here.awaited[i].number);
  here.extended.clear();
  here.transmit(kBelow, 7);
  here.come(1);
  here.extended.clear();
  REQUIRE(here.sent.size() == 2);
  here.sent[0].done({}, msg::Lane::kTcp);
  CHECK(here.extended == std::vector<std::uint64_t>{here.sent[1].number});
}

TEST_CASE("a number that has no room for its parts is refused") {
  Desk here;
  here.parts.transmit(kBelow, std::uint64_t{1} << 50, here.memory.data(), kBlockBytes, kHost, 0,
                      here.ending("below"));
  REQUIRE(here.ends.size() == 1);
  CHECK(here.ends[0].find("in parts") != std::string::npos);
  CHECK(here.sent.empty());
}

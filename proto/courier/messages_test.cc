// Every message that a scheduler can send to a peer's courier: twice, before the welcome, late, from a scheduler of an earlier life, over a
// link on which it has not said how far it is, and lost with the link. What is above is told each once, in order, or nothing at all. One entry
// a tag of msg::Message; a new message does not compile until it has one (-Werror=switch).
#include <algorithm>

#include "message_tags.h"
#include "test_scene.h"

namespace tilewise::courier {
namespace {

using test::Scene;
using testing::empty_message;
using testing::Tag;

constexpr std::uint64_t kState = 77;

enum class Does {
  kPassed,  // to what is above
  kEnds,    // that too, and there is no coming back
  kKept,    // it is the courier's own
  kBreaks   // the same, and out of turn where the link is up
};
struct Case {
  msg::Message message;
  Does does = Does::kPassed;

  bool passed() const { return does == Does::kPassed || does == Does::kEnds; }
};

Case sample(Tag tag) {
  switch (tag) {
    case Tag::kWelcome: {  // of another life
      msg::Welcome another;
      another.term = 9, another.you = WorkerId{78}, another.state = kState + 1, another.durable = true;
      return {another};
    }
    case Tag::kShutdown: return {msg::Shutdown{}, Does::kEnds};
    case Tag::kAck: return {msg::Ack{0}, Does::kKept};
    case Tag::kResumed: return {msg::Resumed{5, 0, {}}, Does::kBreaks};
    case Tag::kJoin:
    case Tag::kLog:
    case Tag::kProgress:
    case Tag::kTaskFailed:
    case Tag::kStuck:
    case Tag::kSubmit:
    case Tag::kSubmitReply:
    case Tag::kGraphProgress:
    case Tag::kGraphDone:
    case Tag::kReleaseArrays:
    case Tag::kCancelRequest:
    case Tag::kStatusRequest:
    case Tag::kStatusReply:
    case Tag::kPing:
    case Tag::kPong:
    case Tag::kRefusal:
    case Tag::kPeerHello:
    case Tag::kArenaMap:
    case Tag::kPeerBatch:
    case Tag::kExplain:
    case Tag::kExplanation:
    case Tag::kTraceRequest:
    case Tag::kTraceReply:
    case Tag::kHeld:
    case Tag::kResume:
    case Tag::kBlocksRequest:
    case Tag::kBlocksReply:
    case Tag::kDrained:
    case Tag::kDrainRequest:
    case Tag::kDrainReply:
    case Tag::kLastWords:
    case Tag::kLeave:
    case Tag::kAnnounce:
    case Tag::kLinkProbe:
    case Tag::kLinkProbed: return {empty_message(tag)};
  }
  return {empty_message(tag)};
}

template <class Fn> void for_each_tag(Fn&& fn) {
  testing::each_tag([&](Tag tag) {
    const Case c = sample(tag);
    REQUIRE(testing::tag_of(c.message) == tag);
    Scene scene;
    fn(scene, c);
  });
}

std::ptrdiff_t told(const Scene& s, const msg::Message& m) {
  return std::count(s.got.begin(), s.got.end(), m);
}

// All that was said before has been read, if anybody reads.
void settle(Scene& s) {
  const msg::Message last = msg::Ping{4'711};
  s.say(last);
  s.until([&] { return s.lost || told(s, last) > 0; });
}

void check_ended(const Scene& s, Errc why) {
  REQUIRE(s.lost.has_value());
  CHECK(s.lost->code == why);
  CHECK(s.losses == 1);
}

}  // namespace

TEST_CASE("courier: every message twice: it is told as often, and who it is for the scheduler stays") {
  for_each_tag([](Scene& s, const Case& c) {
    s.welcome(kState);
    s.say(c.message);
    s.say(c.message);
    settle(s);
    CHECK(told(s, c.message) == (c.passed() ? 2 : 0));
    if (c.does == Does::kBreaks) return check_ended(s, Errc::kCorruptData);
    REQUIRE(!s.lost);
    if (c.does == Does::kEnds) {
      s.link.reset();
      s.until([&] { return s.lost.has_value(); });
      CHECK(s.down == 0);
      return check_ended(s, Errc::kUnavailable);
    }
    CHECK(s.broken() == msg::Resume{kState, WorkerId{3}, s.got.size(), 4});
    s.say(msg::Resumed{4, 0, {}});  // of this life still, whatever was said
    s.until([&] { return s.back == 1; });
    CHECK(!s.lost);
  });
}

TEST_CASE("courier: every message before the welcome: nobody is known yet who could come back") {
  for_each_tag([](Scene& s, const Case& c) {
    s.say(c.message);
    settle(s);
    CHECK(told(s, c.message) == (c.passed() ? 1 : 0));
    if (c.does == Does::kBreaks) return check_ended(s, Errc::kCorruptData);
    REQUIRE(!s.lost);
    if (std::holds_alternative<msg::Welcome>(c.message)) {  // the first one counts
      CHECK(s.broken() == msg::Resume{kState + 1, WorkerId{78}, s.got.size(), 9});
      return;
    }
    s.link.reset();
    s.until([&] { return s.lost.has_value(); });
    CHECK(s.down == 0);
    check_ended(s, Errc::kUnavailable);
  });
}

TEST_CASE("courier: every message late: when it is all over nobody is told") {
  for_each_tag([](Scene& s, const Case& c) {
    s.welcome(kState);
    s.say(msg::Ack{9});  // of what was never sent: it is not to be trusted any more
    s.say(c.message);
    s.until([&] { return s.lost.has_value(); });
    s.say(c.message);
    (void)s.loop->run_until([&] { return s.got.size() > 1 || s.losses > 1 || !s.heard.empty(); },
                            5 * kMillisecond);
    check_ended(s, Errc::kCorruptData);
    CHECK(s.got.size() == 1);
    CHECK(s.heard.empty());
    CHECK(s.back + s.down == 0);
  });
}

TEST_CASE(
    "courier: every message of a scheduler of an earlier life: nobody is told, and its own is looked for") {
  for_each_tag([](Scene& s, const Case& c) {
    s.welcome(kState);
    const msg::Resume first = s.broken();
    s.heard.clear();
    s.say(msg::Resumed{3, 0, {Errc::kWorkerLost, "an earlier life's"}});
    s.say(c.message);
    CHECK(s.next_resume() == first);
    CHECK(s.got.size() == 1);
    CHECK(s.back == 0);
    CHECK(s.down == 1);  // it is the same break
    s.say(msg::Resumed{5, 0, {}});
    s.until([&] { return s.back == 1; });
    settle(s);
    CHECK(s.got.size() == 2);
    CHECK(!s.lost);
  });
}

TEST_CASE(
    "courier: every message of who has not said how far it is: it cannot be told what is missing before") {
  for_each_tag([](Scene& s, const Case& c) {
    s.welcome(kState);
    (void)s.broken();
    s.say(c.message);
    if (c.does == Does::kBreaks) {  // now it is in turn
      s.until([&] { return s.back == 1; });
      CHECK(!s.lost);
      return;
    }
    s.until([&] { return s.lost.has_value(); });
    check_ended(s, Errc::kCorruptData);
    CHECK(s.got.size() == 1);
    CHECK(s.back == 0);
  });
}

TEST_CASE("courier: every message lost with the link, or the word that it has arrived: it is told once") {
  for (const bool arrives : {false, true}) {
    CAPTURE(arrives);
    for_each_tag([&](Scene& s, const Case& c) {
      s.welcome(kState);
      if (c.does == Does::kBreaks) (void)s.broken();
      if (arrives) s.say(c.message);
      if (arrives) s.until([&] { return told(s, c.message) == (c.passed() ? 1 : 0); });
      if (arrives && c.does == Does::kEnds) {  // nobody says it again
        s.link.reset();
        s.until([&] { return s.lost.has_value(); });
        return check_ended(s, Errc::kUnavailable);
      }
      const std::uint64_t received = s.broken().received;
      CHECK(received == s.got.size());
      CHECK(s.back == (arrives && c.does == Does::kBreaks ? 1 : 0));
      s.say(msg::Resumed{5, 0, {}});
      if (received == 1 && c.does != Does::kBreaks) s.say(c.message);
      settle(s);
      CHECK(told(s, c.message) == (c.passed() ? 1 : 0));
      CHECK(!s.lost);
    });
  }
}

}  // namespace tilewise::courier

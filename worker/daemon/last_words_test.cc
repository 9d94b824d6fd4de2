// Every message that a supervisor can hear while it tells the scheduler of its worker's end: before it is welcomed, twice before the words are
// taken, late, from a scheduler of an earlier life, and as the last one before the link is lost. What counts is the welcome, a refusal, and
// the sign that the words were taken, in their places. One entry a tag of msg::Message; a new message does not compile until it has one (-Werror=switch).
#include "last_words.h"

#include <doctest/doctest.h>

#include <atomic>

#include "message_tags.h"
#include "print_result.h"
#include "threaded_scheduler.h"

using namespace tilewise;
using namespace tilewise::worker;
using testing::empty_message;
using testing::Tag;
using testing::ThreadedScheduler;

namespace {

constexpr TimeNs kPatience = 20 * kSecond;

enum class Use { kWelcome, kTaken, kRefusal, kNone };
Use use_of(Tag tag) {
  switch (tag) {
    case Tag::kWelcome: return Use::kWelcome;
    case Tag::kPong: return Use::kTaken;
    case Tag::kRefusal: return Use::kRefusal;
    case Tag::kPing:
    case Tag::kLog:
    case Tag::kJoin:
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
    case Tag::kShutdown:
    case Tag::kPeerHello:
    case Tag::kArenaMap:
    case Tag::kPeerBatch:
    case Tag::kExplain:
    case Tag::kExplanation:
    case Tag::kTraceRequest:
    case Tag::kTraceReply:
    case Tag::kHeld:
    case Tag::kResume:
    case Tag::kResumed:
    case Tag::kAck:
    case Tag::kBlocksRequest:
    case Tag::kBlocksReply:
    case Tag::kDrained:
    case Tag::kDrainRequest:
    case Tag::kDrainReply:
    case Tag::kLastWords:
    case Tag::kLeave:
    case Tag::kAnnounce:
    case Tag::kLinkProbe:
    case Tag::kLinkProbed: return Use::kNone;
  }
  return Use::kNone;
}

msg::Message sample(Tag tag) {
  switch (use_of(tag)) {
    case Use::kRefusal: return msg::Refusal{{Errc::kPermissionDenied, "not from here"}};
    case Use::kWelcome:
    case Use::kTaken:
    case Use::kNone: return empty_message(tag);
  }
  return empty_message(tag);
}

const msg::LastWords kWords{WorkerId{3}, 77, "killed by signal 6 (Aborted)", {{OpId{8}, DeviceId{9}, 10}}};

struct Scene {
  std::vector<msg::Message> before_welcome, before_taken, after;
  bool hangs_up = false;  // after these
  msg::Message verdict = msg::Pong{};
  std::atomic<int> heard{0};
  ThreadedScheduler scheduler{[this](const msg::Message& m, ThreadedScheduler& me) {
    if (std::holds_alternative<msg::Join>(m)) {
      for (const msg::Message& first : before_welcome) me.say(first);
      me.say(msg::Welcome{1, WorkerId{5}});
    } else if (m == msg::Message(kWords)) {
      ++heard;
      for (const msg::Message& next : before_taken) me.say(next);
    } else if (std::holds_alternative<msg::Ping>(m)) {
      // All has been read, so nothing that was said is lost with the link.
      if (hangs_up) return me.hang_up();
      me.say(verdict);
      for (const msg::Message& late : after) me.say(late);
    }
  }};
  Status tell() { return tell_last_words(scheduler.address(), scheduler.token(), kWords, kPatience); }
};

Errc code_of(const Status& status) { return status ? Errc::kOk : status.error().code; }

template <class Fn> void for_each_tag(Fn&& fn) {
  testing::each_tag([&](Tag tag) {
    const msg::Message message = sample(tag);
    REQUIRE(testing::tag_of(message) == tag);
    Scene s;
    fn(s, message, use_of(tag));
  });
}

}  // namespace

TEST_CASE(
    "last words: every message before the welcome: a refusal is the end, nothing else is a sign that they "
    "were taken") {
  for_each_tag([](Scene& s, const msg::Message& message, Use use) {
    s.before_welcome = {message};
    CHECK(code_of(s.tell()) == (use == Use::kRefusal ? Errc::kPermissionDenied : Errc::kOk));
    CHECK(s.heard == (use == Use::kRefusal ? 0 : 1));
  });
}

TEST_CASE("last words: every message twice before they are taken: they are told once") {
  for_each_tag([](Scene& s, const msg::Message& message, Use use) {
    s.before_taken = {message, message};
    CHECK(code_of(s.tell()) == (use == Use::kRefusal ? Errc::kPermissionDenied : Errc::kOk));
    CHECK(s.heard == 1);
  });
}

TEST_CASE("last words: every message late: the first verdict counts") {
  const std::pair<msg::Message, Errc> verdicts[] = {
      {msg::Pong{}, Errc::kOk},
      {msg::Refusal{{Errc::kInvalidArgument, "of nobody"}}, Errc::kInvalidArgument}};
  for (const auto& [verdict, code] : verdicts) {
    for_each_tag([&](Scene& s, const msg::Message& message, Use) {
      s.verdict = verdict;
      s.after = {message};
      CHECK(code_of(s.tell()) == code);
      CHECK(s.heard == 1);
    });
  }
}

TEST_CASE(
    "last words: every message of a scheduler of an earlier life: nothing that it said counts for the next") {
  testing::each_tag([](Tag tag) {
    const msg::Message message = sample(tag);
    std::atomic<int> lives{0}, heard{0};
    ThreadedScheduler scheduler([&](const msg::Message& m, ThreadedScheduler& me) {
      if (std::holds_alternative<msg::Join>(m)) {
        if (++lives == 2) me.say(message);  // about what the first one was told
        me.say(msg::Welcome{1, WorkerId{5}});
      } else if (m == msg::Message(kWords)) {
        ++heard;
        if (lives == 1) me.hang_up();
      } else if (std::holds_alternative<msg::Ping>(m)) {
        me.say(msg::Pong{});
      }
    });
    const Errc code =
        code_of(offer_last_words(scheduler.address(), scheduler.token(), kWords, kPatience, kPatience));
    const bool refused = use_of(tag) == Use::kRefusal;
    CHECK(code == (refused ? Errc::kPermissionDenied : Errc::kOk));
    CHECK(lives == 2);
    CHECK(heard == (refused ? 1 : 2));
  });
}

TEST_CASE(
    "last words: every message as the last one before the link is lost: that they were not taken is told at "
    "once") {
  for_each_tag([](Scene& s, const msg::Message& message, Use use) {
    s.before_taken = {message};
    s.hangs_up = true;
    const TimeNs began = monotonic_now();
    const Errc code = code_of(s.tell());
    switch (use) {
      case Use::kTaken: CHECK(code == Errc::kOk); break;
      case Use::kRefusal: CHECK(code == Errc::kPermissionDenied); break;
      case Use::kWelcome:
      case Use::kNone: CHECK(code == Errc::kUnavailable); break;
    }
    CHECK(monotonic_now() - began < kPatience);
  });
}

TEST_CASE("last words: a welcome that refuses, and a scheduler that says nothing") {
  ThreadedScheduler refuses([](const msg::Message& m, ThreadedScheduler& me) {
    if (!std::holds_alternative<msg::Join>(m)) return;
    msg::Welcome welcome;
    welcome.refused = {Errc::kVersionMismatch, "another version"};
    me.say(welcome);
  });
  CHECK(code_of(tell_last_words(refuses.address(), refuses.token(), kWords, kPatience)) ==
        Errc::kVersionMismatch);
  ThreadedScheduler silent([](const msg::Message&, ThreadedScheduler&) {});
  CHECK(code_of(tell_last_words(silent.address(), silent.token(), kWords, kSecond / 2)) == Errc::kTimeout);
}

TEST_CASE("last words: offered to a scheduler that dies again and again, until one has taken them") {
  std::atomic<int> joins{0}, heard{0};
  ThreadedScheduler dies([&](const msg::Message& m, ThreadedScheduler& me) {
    if (std::holds_alternative<msg::Join>(m)) {
      if (++joins == 1) return me.hang_up();
      me.say(msg::Welcome{1, WorkerId{5}});
    } else if (m == msg::Message(kWords)) {
      if (++heard == 1) me.hang_up();  // nobody knows whether it has kept them
    } else if (std::holds_alternative<msg::Ping>(m)) {
      me.say(msg::Pong{});
    }
  });
  CHECK(code_of(offer_last_words(dies.address(), dies.token(), kWords, kPatience, kPatience)) == Errc::kOk);
  CHECK(joins == 3);
  CHECK(heard == 2);
}

TEST_CASE("last words: not offered again to who refuses them, nor for ever") {
  std::atomic<int> joins{0};
  ThreadedScheduler refuses([&](const msg::Message& m, ThreadedScheduler& me) {
    if (!std::holds_alternative<msg::Join>(m)) return;
    ++joins;
    msg::Welcome welcome;
    welcome.refused = {Errc::kVersionMismatch, "another version"};
    me.say(welcome);
  });
  CHECK(code_of(offer_last_words(refuses.address(), refuses.token(), kWords, kPatience, kPatience)) ==
        Errc::kVersionMismatch);
  CHECK(joins == 1);
  joins = 0;
  ThreadedScheduler away([&](const msg::Message& m, ThreadedScheduler& me) {
    joins += std::holds_alternative<msg::Join>(m);
    me.hang_up();
  });
  CHECK(code_of(offer_last_words(away.address(), away.token(), kWords, kPatience, kSecond)) ==
        Errc::kUnavailable);
  CHECK(joins > 1);
}

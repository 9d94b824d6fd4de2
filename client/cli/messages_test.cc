// Every message that can come over the tool's link to the scheduler: before its welcome, before an answer and twice, after it, and as the last
// one before the link is lost. One entry a tag of msg::Message; a new message does not compile until it has one
// (-Werror=switch).
#include "control.h"

#include <doctest/doctest.h>

#include <atomic>

#include "message_tags.h"
#include "print_result.h"
#include "threaded_scheduler.h"

using namespace tilewise;
using namespace tilewise::cli;
using testing::Tag;

namespace {

constexpr TimeNs kPatience = 20 * kSecond;

msg::Message sample(Tag tag) {
  switch (tag) {
    case Tag::kPing: return msg::Ping{5};
    case Tag::kWelcome: {
      msg::Welcome another;
      another.term = 9, another.you = WorkerId{77};
      return another;
    }
    case Tag::kStatusReply: return msg::StatusReply{};
    case Tag::kTraceReply: return msg::TraceReply{};
    case Tag::kExplanation: return msg::Explanation{};
    case Tag::kDrainReply: return msg::DrainReply{};
    case Tag::kRefusal: return msg::Refusal{{Errc::kInternal, "of something"}};
    case Tag::kLog: return msg::Log{1, 1, {msg::Retire{{OpId{3}}}}};
    case Tag::kJoin: return msg::Join{};
    case Tag::kProgress: return msg::Progress{};
    case Tag::kTaskFailed: return msg::TaskFailed{};
    case Tag::kStuck: return msg::Stuck{};
    case Tag::kSubmit: return msg::Submit{};
    case Tag::kSubmitReply: return msg::SubmitReply{};
    case Tag::kGraphProgress: return msg::GraphProgress{};
    case Tag::kGraphDone: return msg::GraphDone{};
    case Tag::kReleaseArrays: return msg::ReleaseArrays{};
    case Tag::kCancelRequest: return msg::CancelRequest{};
    case Tag::kStatusRequest: return msg::StatusRequest{};
    case Tag::kShutdown: return msg::Shutdown{};
    case Tag::kPong: return msg::Pong{5};
    case Tag::kPeerHello: return msg::PeerHello{};
    case Tag::kArenaMap: return msg::ArenaMap{};
    case Tag::kPeerBatch: return msg::PeerBatch{};
    case Tag::kExplain: return msg::Explain{};
    case Tag::kTraceRequest: return msg::TraceRequest{};
    case Tag::kHeld: return msg::Held{};
    case Tag::kResume: return msg::Resume{};
    case Tag::kResumed: return msg::Resumed{};
    case Tag::kAck: return msg::Ack{};
    case Tag::kBlocksRequest: return msg::BlocksRequest{};
    case Tag::kBlocksReply: return msg::BlocksReply{};
    case Tag::kDrained: return msg::Drained{};
    case Tag::kDrainRequest: return msg::DrainRequest{};
    case Tag::kLastWords: return msg::LastWords{};
    case Tag::kLeave: return msg::Leave{};
    case Tag::kAnnounce: return msg::Announce{};
    case Tag::kLinkProbe: return msg::LinkProbe{};
    case Tag::kLinkProbed: return msg::LinkProbed{};
  }
  return msg::Pong{};
}

// What the tool can ask, and what it makes of the answer: none, or how it failed.
enum class Question { kStatus, kExplain, kTrace, kDrain };
constexpr Question kQuestions[] = {Question::kStatus, Question::kExplain, Question::kTrace, Question::kDrain};

// Of a worker that nobody has, so that it can be told from samples.
constexpr std::uint32_t kMark = 4'711;

msg::Message answer_to(const msg::Message& question) {
  if (std::holds_alternative<msg::StatusRequest>(question)) {
    msg::StatusReply reply;
    reply.term = kMark;
    return reply;
  }
  if (std::holds_alternative<msg::Explain>(question)) {
    msg::Explanation reply;
    reply.request = kMark;
    return reply;
  }
  if (const auto* trace = std::get_if<msg::TraceRequest>(&question)) {
    msg::TraceReply reply;
    reply.nonce = trace->nonce, reply.of = 1, reply.worker = WorkerId{kMark};
    return reply;
  }
  msg::DrainReply reply;
  reply.worker = WorkerId{kMark};
  return reply;
}
bool is_answer(Question question, const msg::Message& m) {
  switch (question) {
    case Question::kStatus: return std::holds_alternative<msg::StatusReply>(m);
    case Question::kExplain: return std::holds_alternative<msg::Explanation>(m);
    case Question::kTrace: return false;  // answers bear the question's number
    case Question::kDrain: return std::holds_alternative<msg::DrainReply>(m);
  }
  return false;
}
// kOk: the marked answer; kNotFound: another one.
Errc ask(Control& control, Question question) {
  const auto judge = [](const auto& reply, const auto& marked) {
    if (!reply) return reply.error().code;
    return marked(*reply) ? Errc::kOk : Errc::kNotFound;
  };
  switch (question) {
    case Question::kStatus: return judge(control.status(), [](const auto& r) { return r.term == kMark; });
    case Question::kExplain:
      return judge(control.explain(GraphId{1}), [](const auto& r) { return r.request == kMark; });
    case Question::kTrace:
      return judge(control.trace({}),
                   [](const auto& r) { return r.size() == 1 && r[0].worker == WorkerId{kMark}; });
    case Question::kDrain:
      return judge(control.drain("w", msg::DrainWish::kAsk),
                   [](const auto& r) { return r.worker == WorkerId{kMark}; });
  }
  return Errc::kInternal;
}

// Welcomes the tool after `first`, and answers each of its questions but for what `instead` does, which says so.
struct Scene {
  using Instead = std::function<bool(int question, const msg::Message&, testing::ThreadedScheduler&)>;

  std::vector<msg::Message> first;
  Instead instead;
  std::atomic<int> questions{0}, pongs{0};
  testing::ThreadedScheduler scheduler{[this](const msg::Message& m, testing::ThreadedScheduler& me) {
    if (std::holds_alternative<msg::Pong>(m)) return void(++pongs);
    if (std::holds_alternative<msg::Join>(m)) {
      for (const msg::Message& before : first) me.say(before);
      msg::Welcome welcome;
      welcome.term = 1, welcome.you = WorkerId{5};
      return me.say(welcome);
    }
    if (!instead || !instead(++questions, m, me)) me.say(answer_to(m));
  }};
  std::unique_ptr<Control> control;

  explicit Scene(std::vector<msg::Message> before, Instead then = {}, TimeNs patience = kPatience)
      : first(std::move(before)), instead(std::move(then)) {
    control = connected(patience);
  }
  std::unique_ptr<Control> connected(TimeNs patience) {
    auto made = Control::connect(scheduler.address().to_string(), scheduler.token_file(), patience);
    REQUIRE(made);
    return std::move(*made);
  }
};

template <class Fn> void for_each_tag(Fn&& fn) {
  testing::each_tag([&](Tag tag) {
    const msg::Message message = sample(tag);
    REQUIRE(testing::tag_of(message) == tag);
    fn(message);
  });
}

}  // namespace

TEST_CASE(
    "tool: a refusal instead of a welcome, or of an answer, is told at once, with its reason; the next "
    "question has its answer") {
  const auto refuse = [](testing::ThreadedScheduler& me) { me.say(sample(Tag::kRefusal)); };
  testing::ThreadedScheduler closed([&](const msg::Message&, testing::ThreadedScheduler& me) { refuse(me); });
  const auto never = Control::connect(closed.address().to_string(), closed.token_file(), kPatience);
  REQUIRE(!never);
  CHECK(never.error().code == Errc::kInternal);
  CHECK(never.error().message.find("of something") != std::string::npos);
  for (const Question question : kQuestions) {
    Scene s({}, [&](int number, const msg::Message&, testing::ThreadedScheduler& me) {
      if (number == 1) refuse(me);
      return number == 1;
    });
    CHECK(ask(*s.control, question) == Errc::kInternal);
    CHECK(ask(*s.control, question) == Errc::kOk);
  }
}

TEST_CASE("tool: every message before the welcome: the first welcome counts, all else is for nobody") {
  for_each_tag([](const msg::Message& message) {
    if (std::holds_alternative<msg::Refusal>(message)) return;
    Scene s({message});
    const bool welcome = std::holds_alternative<msg::Welcome>(message);
    CHECK(s.control->welcome().you == (welcome ? WorkerId{77} : WorkerId{5}));
    for (const Question question : kQuestions) CHECK(ask(*s.control, question) == Errc::kOk);
    CHECK(s.pongs == (std::holds_alternative<msg::Ping>(message) ? 1 : 0));
  });
}

TEST_CASE(
    "tool: every message twice before each answer: one of another kind is for nobody, and what is over is "
    "not taken for the next") {
  for_each_tag([](const msg::Message& message) {
    if (std::holds_alternative<msg::Refusal>(message)) return;
    for (const Question question : kQuestions) {
      CAPTURE(static_cast<int>(question));
      Scene s({}, [&](int number, const msg::Message&, testing::ThreadedScheduler& me) {
        if (number == 1) me.say(message), me.say(message);
        return false;  // and then the answer
      });
      // Somebody else's answer of the same kind cannot be told from ours, but where it bears a number.
      CHECK(ask(*s.control, question) == (is_answer(question, message) ? Errc::kNotFound : Errc::kOk));
      for (const Question next : kQuestions) CHECK(ask(*s.control, next) == Errc::kOk);
      CHECK(s.pongs == (std::holds_alternative<msg::Ping>(message) ? 2 : 0));
      CHECK(s.control->welcome().you == WorkerId{5});
    }
  });
}

TEST_CASE("tool: every message after the answer: the next question has its own") {
  for_each_tag([](const msg::Message& message) {
    Scene s({}, [&](int, const msg::Message& question, testing::ThreadedScheduler& me) {
      me.say(answer_to(question));
      me.say(message);
      return true;
    });
    for (const Question question : kQuestions)
      for (int i = 0; i < 2; ++i) CHECK(ask(*s.control, question) == Errc::kOk);
  });
}

TEST_CASE(
    "tool: every message as the last one: who waits is told that the link is lost, at once and ever after") {
  for_each_tag([](const msg::Message& message) {
    for (const Question question : kQuestions) {
      CAPTURE(static_cast<int>(question));
      Scene s({}, [&](int, const msg::Message&, testing::ThreadedScheduler& me) {
        me.say(message);
        me.hang_up();
        return true;
      });
      const TimeNs began = monotonic_now();
      const bool refused = std::holds_alternative<msg::Refusal>(message);
      CHECK(ask(*s.control, question) == (is_answer(question, message) ? Errc::kNotFound
                                          : refused                    ? Errc::kInternal
                                                                       : Errc::kUnavailable));
      CHECK(ask(*s.control, question) == Errc::kUnavailable);
      CHECK(monotonic_now() - began < kPatience);
    }
  });
}

// Nor can anything come from an earlier life of the scheduler: that was another link, and the tool makes none again by itself.
TEST_CASE(
    "tool: every message, and answers, when a question has been given up: no later one takes them for its "
    "own") {
  constexpr TimeNs kShort = kSecond;
  for (const Question question : kQuestions) {
    CAPTURE(static_cast<int>(question));
    std::atomic<bool> stale = true;
    Scene s(
        {},
        [&](int number, const msg::Message&, testing::ThreadedScheduler& me) {
          if (number > 1 && stale) for_each_tag([&](const msg::Message& late) { me.say(late); });
          return number == 1;
        },
        kShort);
    CHECK(ask(*s.control, question) == Errc::kTimeout);
    for (const Question next : kQuestions) CHECK(ask(*s.control, next) == Errc::kUnavailable);
    CHECK(s.control->shutdown().error().code == Errc::kUnavailable);
    CHECK(s.questions == 1);
    stale = false;
    const std::unique_ptr<Control> again = s.connected(kPatience);
    for (const Question next : kQuestions) CHECK(ask(*again, next) == Errc::kOk);
  }
}

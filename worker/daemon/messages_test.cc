// Every message that the scheduler, or somebody in its place, can send to a worker's daemon: before it has been welcomed, twice, late, from a
// scheduler of an earlier life, and lost with the link. One entry a tag of msg::Message; a new message does not compile until it has one (-Werror=switch).
// What the log and peers say is the core's (worker/core/messages_test.cc).
#include "daemon.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "../core/lists.h"
#include "message_tags.h"
#include "print_result.h"

using namespace tilewise;
using namespace tilewise::worker;
using testing::kTags, testing::Tag;

namespace {

constexpr TimeNs kPatience = 20 * kSecond;
constexpr WorkerId kSelf{5};
constexpr DeviceId kHere{9};

struct Case {
  msg::Message message;
  std::size_t answer = kNoAnswer;  // the tag of what each of them is answered with
  std::optional<Errc> ends;        // the daemon, so
  bool once = false;               // answered the first time only, and by nobody before the welcome

  static constexpr std::size_t kNoAnswer = kTags;
};

template <class Answer> Case answered(msg::Message question) {
  return {std::move(question), msg::Message(Answer{}).index()};
}

Case sample(Tag tag) {
  switch (tag) {
    case Tag::kWelcome: {  // of another life
      msg::Welcome another;
      another.term = 3, another.you = WorkerId{77}, another.devices = {DeviceId{78}};
      return {another};
    }
    case Tag::kLog: return {msg::Log{2, 1, {msg::Retire{{OpId{3}}}}}};
    case Tag::kShutdown: return {msg::Shutdown{}, Case::kNoAnswer, Errc::kOk};
    case Tag::kPing: return answered<msg::Pong>(msg::Ping{5});
    case Tag::kPong: return {msg::Pong{5}};
    case Tag::kRefusal: return {msg::Refusal{{Errc::kInternal, "of something"}}};
    case Tag::kTraceRequest: return answered<msg::TraceReply>(msg::TraceRequest{6, {}});
    case Tag::kBlocksRequest: return answered<msg::BlocksReply>(msg::BlocksRequest{7, ArrayId{1}, 0, 4});
    case Tag::kLinkProbe:
      return {msg::LinkProbe{8, DeviceId{1234}, kHere},  // from nobody that was announced
              msg::Message(msg::LinkProbed{}).index(),
              {},
              true};
    // The link's own, out of turn.
    case Tag::kResume: return {msg::Resume{}};
    case Tag::kResumed: return {msg::Resumed{}, Case::kNoAnswer, Errc::kCorruptData};
    case Tag::kAck: return {msg::Ack{}};
    // For others.
    case Tag::kJoin: return {msg::Join{}};
    case Tag::kProgress: return {msg::Progress{}};
    case Tag::kTaskFailed: return {msg::TaskFailed{}};
    case Tag::kStuck: return {msg::Stuck{}};
    case Tag::kSubmit: return {msg::Submit{}};
    case Tag::kSubmitReply: return {msg::SubmitReply{}};
    case Tag::kGraphProgress: return {msg::GraphProgress{}};
    case Tag::kGraphDone: return {msg::GraphDone{}};
    case Tag::kReleaseArrays: return {msg::ReleaseArrays{}};
    case Tag::kCancelRequest: return {msg::CancelRequest{}};
    case Tag::kStatusRequest: return {msg::StatusRequest{}};
    case Tag::kStatusReply: return {msg::StatusReply{}};
    case Tag::kPeerHello: return {msg::PeerHello{}};
    case Tag::kArenaMap: return {msg::ArenaMap{}};
    case Tag::kPeerBatch: return {msg::PeerBatch{}};
    case Tag::kExplain: return {msg::Explain{}};
    case Tag::kExplanation: return {msg::Explanation{}};
    case Tag::kTraceReply: return {msg::TraceReply{}};
    case Tag::kHeld: return {msg::Held{}};
    case Tag::kBlocksReply: return {msg::BlocksReply{}};
    case Tag::kDrained: return {msg::Drained{}};
    case Tag::kDrainRequest: return {msg::DrainRequest{}};
    case Tag::kDrainReply: return {msg::DrainReply{}};
    case Tag::kLastWords: return {msg::LastWords{}};
    case Tag::kLeave: return {msg::Leave{}};
    case Tag::kAnnounce: return {msg::Announce{}};
    case Tag::kLinkProbed: return {msg::LinkProbed{}};
  }
  return {msg::Pong{}};
}

// A scheduler that says what the test says, and a daemon with one host device.
struct Scene {
  Scene() {
    auto opened = net::Listener::open(
        *loop, *net::Address::parse("tcp://127.0.0.1:0"), {.handshake = {.token = token}},
        [this](std::unique_ptr<net::Link> made) {
          link = std::move(made);
          link->start({[this](net::Frame& frame) { heard.push_back(*codec::decode(frame.payload)); },
                       [](const Error&) {},
                       {}});
        });
    REQUIRE(opened);
    listener = std::move(*opened);
    DaemonOptions options{.scheduler = listener->address(), .token = token};
    options.reconnect_timeout_ns = kPatience;
    options.name = "alone";
    options.listen = {"tcp://127.0.0.1:0"};
    options.map_peers = false;
    std::vector<std::unique_ptr<device::Device>> devices;
    devices.push_back(device::make_host_device({.memory_bytes = 1 << 22}));
    auto started = Daemon::start(
        *loop, std::move(options), std::move(devices), plugins,
        [this](const std::vector<std::string>&) { ++ready; },
        [this](Status why) { ended = std::move(why), ++ends; });
    REQUIRE(started);
    daemon = std::move(*started);
    until([&] { return count(msg::Message(msg::Join{}).index()) == 1; });
  }
  void welcome(std::uint64_t state = 0) {
    msg::Welcome w;
    w.term = kTerm, w.you = kSelf, w.devices = {kHere};
    w.state = state, w.durable = state != 0;
    say(w);
    until([&] { return ready == 1; });
  }
  void until(const std::function<bool()>& done) { REQUIRE(loop->run_until(done, kPatience)); }
  void say(const msg::Message& m) {
    codec::Buffer buffer;
    REQUIRE(codec::encode(m, buffer));
    REQUIRE(link->send(codec::frame_type(m), buffer.bytes()));
  }
  Errc how() const { return *ended ? Errc::kOk : ended->error().code; }
  // All that was said before has been read, and what came of it at the end of that turn is here.
  void settle() {
    pong();
    pong();
  }
  void pong() {
    if (ended) return;
    say(msg::Ping{++nonce});
    until([&] {
      return ended || std::any_of(heard.begin(), heard.end(), [&](const msg::Message& m) {
               const auto* pong = std::get_if<msg::Pong>(&m);
               return pong != nullptr && pong->nonce == nonce;
             });
    });
  }
  std::ptrdiff_t count(std::size_t tag) const {
    return std::count_if(heard.begin(), heard.end(), [&](const msg::Message& m) {
      const auto* pong = std::get_if<msg::Pong>(&m);
      return m.index() == tag && (pong == nullptr || pong->nonce < kSettling);
    });
  }

  // Not counting what links say for themselves.
  std::uint64_t received() const {
    return static_cast<std::uint64_t>(std::count_if(heard.begin(), heard.end(), [](const msg::Message& m) {
      return !std::holds_alternative<msg::Ack>(m) && !std::holds_alternative<msg::Resume>(m);
    }));
  }
  // What was said since, but for what links say for themselves, what a worker tells now and then, and the test's own Pongs.
  std::vector<std::size_t> said_since(std::size_t before) const {
    std::vector<std::size_t> tags;
    for (std::size_t i = before; i < heard.size(); ++i) {
      const auto* pong = std::get_if<msg::Pong>(&heard[i]);
      const bool unasked =
          std::holds_alternative<msg::Ack>(heard[i]) || std::holds_alternative<msg::Progress>(heard[i]);
      if (!unasked && (pong == nullptr || pong->nonce < kSettling)) tags.push_back(heard[i].index());
    }
    return tags;
  }
  std::ptrdiff_t resumes() const { return count(msg::Message(msg::Resume{}).index()); }

  static constexpr std::uint64_t kSettling = 1'000;
  static constexpr std::uint32_t kTerm = 2;
  std::uint64_t nonce = kSettling;
  net::Token token = *net::Token::generate();
  kernels::PluginTable plugins;
  std::unique_ptr<net::EventLoop> loop = std::move(*net::EventLoop::create());
  std::unique_ptr<net::Listener> listener;
  std::unique_ptr<net::Link> link;
  std::vector<msg::Message> heard;  // by the scheduler
  int ready = 0, ends = 0;
  std::optional<Status> ended;
  std::unique_ptr<Daemon> daemon;
};

std::vector<std::size_t> answers(const Case& c, std::size_t times) {
  return std::vector<std::size_t>(c.answer == Case::kNoAnswer ? 0 : c.once ? 1 : times, c.answer);
}

template <class Fn> void for_each_tag(Fn&& fn) {
  testing::each_tag([&](Tag tag) {
    Scene scene;
    const Case c = sample(tag);
    REQUIRE(testing::tag_of(c.message) == tag);
    fn(scene, c);
  });
}

}  // namespace

TEST_CASE("daemon: every message twice: questions are answered each time, and it goes on") {
  for_each_tag([](Scene& scene, const Case& c) {
    scene.welcome();
    const std::size_t before = scene.heard.size();
    scene.say(c.message);
    scene.settle();
    REQUIRE(scene.ended.has_value() == c.ends.has_value());
    if (c.ends) {
      CHECK(scene.how() == *c.ends);
      CHECK(scene.said_since(before).empty());
      return;
    }
    scene.say(c.message);
    scene.settle();
    REQUIRE(!scene.ended);
    CHECK(scene.ready == 1);
    CHECK(scene.said_since(before) == answers(c, 2));
    scene.say(msg::BlocksRequest{70, ArrayId{1}, 0, 4});  // and still does what it is for
    scene.until([&] {
      return std::any_of(scene.heard.begin(), scene.heard.end(), [](const msg::Message& m) {
        const auto* reply = std::get_if<msg::BlocksReply>(&m);
        return reply != nullptr && reply->nonce == 70;
      });
    });
  });
}

TEST_CASE("daemon: every message before it was welcomed: it waits for that") {
  for_each_tag([](Scene& scene, const Case& c) {
    if (std::holds_alternative<msg::Welcome>(c.message)) return;  // would be that
    const std::size_t before = scene.heard.size();
    scene.say(c.message);
    scene.settle();
    REQUIRE(scene.ended.has_value() == c.ends.has_value());
    CHECK(scene.ready == 0);
    CHECK(scene.said_since(before) == (c.once ? std::vector<std::size_t>{} : answers(c, 1)));
    if (!c.ends) {
      scene.welcome();
      scene.settle();
      CHECK(scene.said_since(before) == answers(c, 1));
      return;
    }
    CHECK(scene.how() == *c.ends);
  });
}

TEST_CASE("daemon: every message late: after the peer that it may be about, and after its own end") {
  for_each_tag([](Scene& scene, const Case& c) {
    scene.welcome();
    const msg::PeerInfo gone{WorkerId{9}, msg::Role::kWorker, "gone", "host", {}, {DeviceId{1234}}, {}};
    scene.say(msg::Log{Scene::kTerm, 1, {msg::PeerJoined{gone}, msg::PeerLost{gone.id, 1, {}}}});
    scene.settle();
    const std::size_t before = scene.heard.size();
    scene.say(c.message);
    scene.settle();
    REQUIRE(scene.ended.has_value() == c.ends.has_value());
    CHECK(scene.said_since(before) == answers(c, 1));
    if (!c.ends) {
      scene.say(msg::Shutdown{});
      scene.settle();
      REQUIRE(scene.ended.has_value());
      CHECK(scene.how() == Errc::kOk);
    }
    const std::size_t said = scene.heard.size();
    scene.ended = Status();  // another end would be told as well
    scene.say(c.message);
    scene.say(msg::Shutdown{});
    (void)scene.loop->run_until([&] { return scene.heard.size() > said || !*scene.ended; }, 5 * kMillisecond);
    CHECK(scene.heard.size() == said);
    CHECK(scene.how() == Errc::kOk);
    CHECK(scene.ends == 1);
  });
}

TEST_CASE(
    "daemon: every message of a scheduler of an earlier life: nobody obeys, and its own is looked for") {
  for_each_tag([](Scene& scene, const Case& c) {
    scene.welcome(77);
    scene.link.reset();
    scene.until([&] { return scene.resumes() == 1; });
    const std::uint64_t received = scene.received();
    const std::size_t said = scene.heard.size();
    scene.say(msg::Resumed{Scene::kTerm - 1, received});
    scene.say(c.message);
    scene.until([&] { return scene.ended || scene.resumes() == 2; });
    REQUIRE(!scene.ended);
    scene.say(msg::Resumed{Scene::kTerm, received});
    scene.settle();
    REQUIRE(!scene.ended);
    CHECK(scene.ready == 1);
    CHECK(scene.said_since(said) == std::vector<std::size_t>{msg::Message(msg::Resume{}).index()});
    scene.say(msg::BlocksRequest{70, ArrayId{1}, 0, 4});  // and it is who it was
    scene.until([&] { return scene.count(msg::Message(msg::BlocksReply{}).index()) == 1; });
  });
}

TEST_CASE("daemon: every message lost with the scheduler: it ends, and says why") {
  for_each_tag([](Scene& scene, const Case& c) {
    scene.welcome();
    scene.say(c.message);
    scene.link.reset();  // perhaps it has left
    scene.until([&] { return scene.ended.has_value(); });
    CHECK((scene.how() == Errc::kUnavailable || scene.how() == c.ends));
    if (*scene.ended) return;
    CHECK(scene.ended->error().message.find(scene.listener->address().to_string()) != std::string::npos);
  });
}

TEST_CASE("daemon: a long log is applied piece by piece, and questions are answered in between") {
  Scene scene;
  scene.welcome();
  const auto blocks_known = [&](std::uint64_t nonce) {
    scene.say(msg::BlocksRequest{nonce, ArrayId{10}, 0, 1});
    const msg::BlocksReply* reply = nullptr;
    scene.until([&] {
      for (const msg::Message& m : scene.heard)
        if (const auto* r = std::get_if<msg::BlocksReply>(&m); r != nullptr && r->nonce == nonce) reply = r;
      return reply != nullptr;
    });
    return !reply->copies.empty();
  };
  std::vector<msg::LogEntry> entries(50'000, msg::ForgetPlans{});
  entries.push_back(test::plan_of({test::on(kHere, 1, test::source(10, 1))}, {ArrayId{10}}));
  scene.say(msg::Log{Scene::kTerm, 1, std::move(entries)});
  // Comes behind it, and is a log of its own.
  scene.say(msg::Log{
      Scene::kTerm, 50'002, {test::plan_of({test::on(kHere, 2, test::source(11, 1))}, {ArrayId{11}})}});
  std::uint64_t asked = 0;
  while (!blocks_known(++asked)) REQUIRE(asked < 1'000);
  CHECK(asked > 5);
  scene.until([&] {
    return std::any_of(scene.heard.begin(), scene.heard.end(), [](const msg::Message& m) {
      const auto* progress = std::get_if<msg::Progress>(&m);
      return progress != nullptr && std::any_of(progress->ops.begin(), progress->ops.end(),
                                                [](const auto& op) { return op.op == OpId{2}; });
    });
  });
}

TEST_CASE("daemon: who is not welcome ends, typed") {
  Scene scene;
  msg::Welcome refused;
  refused.refused = {Errc::kVersionMismatch, "another version"};
  scene.say(refused);
  scene.until([&] { return scene.ended.has_value(); });
  REQUIRE(!*scene.ended);
  CHECK(scene.ended->error().code == Errc::kVersionMismatch);
}

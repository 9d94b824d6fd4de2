// Every message that can come over a client's link to the scheduler: twice, before the session listens, late, from a scheduler of an earlier
// life, and lost with the link. What the session makes of them is its own (client/core/messages_test.cc). One entry a tag; a new message does not compile until it has one.
#include <tilewise/codec/codec.h>
#include <tilewise/net/endpoint.h>
#include <tilewise/remote/connect.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

#include "message_tags.h"
#include "print_result.h"

using namespace tilewise;
using testing::Tag;

namespace {

constexpr auto kPatience = std::chrono::seconds(20);

// Who takes a message that the endpoint has read.
enum class Taker { kSession, kBoth, kEndpoint, kNobody };
struct Case {
  msg::Message message;
  Taker taker = Taker::kSession;
};

Case sample(Tag tag) {
  switch (tag) {
    case Tag::kPing: return {msg::Ping{5}, Taker::kBoth};  // answered here
    case Tag::kWelcome: {                                  // of another life
      msg::Welcome another;
      another.term = 2, another.you = WorkerId{77};
      return {another, Taker::kEndpoint};
    }
    case Tag::kAck: return {msg::Ack{}, Taker::kEndpoint};
    case Tag::kResumed:
      return {msg::Resumed{}, Taker::kNobody};  // out of turn: the link cannot be trusted any more
    case Tag::kLog: {
      msg::PeerInfo peer{WorkerId{9}, msg::Role::kWorker, "gone", "host", {}, {DeviceId{90}}, {}};
      return {msg::Log{1, 1, {msg::PeerJoined{peer}, msg::PeerLost{peer.id, 0, {}}}}};
    }
    case Tag::kSubmitReply: return {msg::SubmitReply{}};
    case Tag::kGraphProgress: return {msg::GraphProgress{}};
    case Tag::kGraphDone: return {msg::GraphDone{}};
    case Tag::kRefusal: return {msg::Refusal{{Errc::kInternal, "x"}}};
    case Tag::kExplanation: return {msg::Explanation{}};
    case Tag::kTraceReply: return {msg::TraceReply{}};
    case Tag::kPong: return {msg::Pong{}};
    case Tag::kShutdown: return {msg::Shutdown{}};
    // For others; the session looks at none of them.
    case Tag::kJoin: return {msg::Join{}};
    case Tag::kProgress: return {msg::Progress{}};
    case Tag::kTaskFailed: return {msg::TaskFailed{}};
    case Tag::kStuck: return {msg::Stuck{}};
    case Tag::kSubmit: return {msg::Submit{}};
    case Tag::kReleaseArrays: return {msg::ReleaseArrays{}};
    case Tag::kCancelRequest: return {msg::CancelRequest{}};
    case Tag::kStatusRequest: return {msg::StatusRequest{}};
    case Tag::kStatusReply: return {msg::StatusReply{}};
    case Tag::kPeerHello: return {msg::PeerHello{}};
    case Tag::kArenaMap: return {msg::ArenaMap{}};
    case Tag::kPeerBatch: return {msg::PeerBatch{}};
    case Tag::kExplain: return {msg::Explain{}};
    case Tag::kTraceRequest: return {msg::TraceRequest{}};
    case Tag::kHeld: return {msg::Held{}};
    case Tag::kResume: return {msg::Resume{}};
    case Tag::kBlocksRequest: return {msg::BlocksRequest{}};
    case Tag::kBlocksReply: return {msg::BlocksReply{}};
    case Tag::kDrained: return {msg::Drained{}};
    case Tag::kDrainRequest: return {msg::DrainRequest{}};
    case Tag::kDrainReply: return {msg::DrainReply{}};
    case Tag::kLastWords: return {msg::LastWords{}};
    case Tag::kLeave: return {msg::Leave{}};
    case Tag::kAnnounce: return {msg::Announce{}};
    case Tag::kLinkProbe: return {msg::LinkProbe{}};
    case Tag::kLinkProbed: return {msg::LinkProbed{}};
  }
  return {msg::Pong{}};
}

// A scheduler on a thread of its own that welcomes and then says what the test says; a client's endpoint; and who listens to it.
struct Scene {
  // `state`: it keeps what it knows, and its clients come back.
  explicit Scene(std::uint64_t keeps = 0) : state(keeps) {
    auto opened =
        net::Listener::open(*loop, *net::Address::parse("tcp://127.0.0.1:0"), {.handshake = {.token = token}},
                            [this](std::unique_ptr<net::Link> made) {
                              link = std::move(made);
                              link->start({[this](net::Frame& frame) { hear(*codec::decode(frame.payload)); },
                                           [this](const Error&) {
                                             const std::scoped_lock lock(mutex);
                                             closed = true;
                                           },
                                           {}});
                            });
    REQUIRE(opened);
    listener = std::move(*opened);
    thread = std::thread([this] { loop->run(); });
    remote::Options options{.scheduler = listener->address(), .token = token};
    options.lease_ns = 0;
    auto connected = remote::connect(options);
    REQUIRE(connected);
    endpoint = std::move(*connected);
  }
  ~Scene() {
    endpoint.reset();
    loop->post([this] { link.reset(), listener.reset(), loop->stop(); });
    thread.join();
  }
  void listen() {
    endpoint->start({[this](msg::Message m) {
                       const std::scoped_lock lock(mutex);
                       told.push_back(std::move(m));
                     },
                     [](WorkerId, msg::PeerBatch) {},
                     [this](Error why) {
                       const std::scoped_lock lock(mutex);
                       CHECK(!lost);  // once
                       lost = std::move(why);
                     }});
  }
  void hear(msg::Message m) {
    if (std::holds_alternative<msg::Join>(m)) {
      msg::Welcome w;
      w.term = kTerm, w.you = WorkerId{5}, w.session = SessionId{6}, w.devices = {DeviceId{7}};
      w.state = state, w.durable = state != 0;
      send(w);
    }
    if (std::holds_alternative<msg::Resume>(m) && on_resume) on_resume();
    const std::scoped_lock lock(mutex);
    heard.push_back(std::move(m));
  }
  void send(const msg::Message& m) {
    codec::Buffer buffer;
    if (link && codec::encode(m, buffer)) (void)link->send(codec::frame_type(m), buffer.bytes());
  }
  void say(const msg::Message& m) {
    loop->post([this, m] { send(m); });
  }
  template <class Done> void until(const Done& done) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    for (;;) {
      {
        const std::scoped_lock lock(mutex);
        if (done()) return;
      }
      REQUIRE(std::chrono::steady_clock::now() < end);
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }
  // All that was said before has been read.
  void settle() {
    say(msg::Ping{++nonce});
    until([&] {
      return lost || std::any_of(heard.begin(), heard.end(), [&](const msg::Message& m) {
               const auto* pong = std::get_if<msg::Pong>(&m);
               return pong != nullptr && pong->nonce == nonce;
             });
    });
  }
  // Not counting what links say for themselves.
  std::uint64_t received() {
    const std::scoped_lock lock(mutex);
    return static_cast<std::uint64_t>(std::count_if(heard.begin(), heard.end(), [](const msg::Message& m) {
      return !std::holds_alternative<msg::Ack>(m) && !std::holds_alternative<msg::Resume>(m);
    }));
  }
  // Messages that the session was told, and that the scheduler heard.
  std::pair<std::size_t, std::size_t> counts() {
    const std::scoped_lock lock(mutex);
    return {told.size(), heard.size()};
  }
  std::ptrdiff_t session_was_told(const msg::Message& m) {
    const std::scoped_lock lock(mutex);
    return std::count(told.begin(), told.end(), m);
  }
  std::ptrdiff_t answered(const msg::Message& m) {
    const std::scoped_lock lock(mutex);
    return std::count(heard.begin(), heard.end(), m);
  }

  static constexpr std::uint32_t kTerm = 2;
  const std::uint64_t state;
  std::function<void()> on_resume;  // on the scheduler's thread
  std::uint64_t nonce = 1'000;
  net::Token token = *net::Token::generate();
  std::unique_ptr<net::EventLoop> loop = std::move(*net::EventLoop::create());
  std::unique_ptr<net::Listener> listener;
  std::unique_ptr<net::Link> link;
  std::thread thread;
  std::mutex mutex;
  std::vector<msg::Message> heard, told;  // by the scheduler; the session
  bool closed = false;                    // by the endpoint
  std::optional<Error> lost;
  std::unique_ptr<client::Endpoint> endpoint;
};

template <class Fn> void for_each_tag(Fn&& fn, std::uint64_t state = 0) {
  testing::each_tag([&](Tag tag) {
    Scene scene(state);
    const Case c = sample(tag);
    REQUIRE(testing::tag_of(c.message) == tag);
    fn(scene, c);
  });
}

void check_told(Scene& scene, const Case& c, int times) {
  CHECK(scene.lost.has_value() == (c.taker == Taker::kNobody));
  if (scene.lost) {
    CHECK(scene.lost->code == Errc::kCorruptData);
    return;
  }
  const bool session = c.taker == Taker::kSession || c.taker == Taker::kBoth;
  CHECK(scene.session_was_told(c.message) == (session ? times : 0));
  if (c.taker == Taker::kBoth) CHECK(scene.answered(msg::Pong{5}) == times);
  CHECK(scene.endpoint->welcome().you == WorkerId{5});
}

}  // namespace

TEST_CASE("remote: every message twice: the session is told as often, and the link goes on") {
  for_each_tag([](Scene& scene, const Case& c) {
    scene.listen();
    scene.say(c.message);
    scene.say(c.message);
    scene.settle();
    check_told(scene, c, 2);
  });
}

TEST_CASE("remote: every message before the session listens: it is kept until then") {
  for_each_tag([](Scene& scene, const Case& c) {
    scene.say(c.message);
    if (c.taker != Taker::kNobody) scene.settle();
    scene.listen();
    scene.settle();
    check_told(scene, c, 1);
  });
}

TEST_CASE("remote: every message late: a session that has stopped is told nothing, and says nothing") {
  for_each_tag([](Scene& scene, const Case& c) {
    scene.listen();
    scene.settle();
    const auto [told, heard] = scene.counts();
    scene.endpoint->stop();
    scene.say(c.message);
    scene.until([&] { return scene.closed; });
    const std::scoped_lock lock(scene.mutex);
    CHECK(scene.told.size() == told);
    CHECK(scene.heard.size() == heard);
    CHECK(!scene.lost);
  });
}

TEST_CASE(
    "remote: every message behind the one that ends the link: the session is told of that end, no more") {
  for_each_tag([](Scene& scene, const Case& c) {
    scene.listen();
    scene.settle();
    const auto [told, heard] = scene.counts();
    scene.loop->post([&scene, m = c.message] {  // read in one turn
      scene.send(msg::Resumed{});
      scene.send(m);
      scene.send(m);
    });
    scene.until([&] { return scene.lost.has_value(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    const std::scoped_lock lock(scene.mutex);
    CHECK(scene.lost->code == Errc::kCorruptData);
    CHECK(scene.lost->message.find("resumes what was not broken") != std::string::npos);
    CHECK(scene.told.size() == told);
    CHECK(scene.heard.size() == heard);
    CHECK(scene.endpoint->welcome().you == WorkerId{5});
  });
}

TEST_CASE(
    "remote: every message of a scheduler of an earlier life: the session is told nothing, and comes back to "
    "its own") {
  for_each_tag(
      [](Scene& scene, const Case& c) {
        scene.listen();
        scene.settle();
        std::atomic<int> resumes = 0;
        scene.on_resume = [&] {  // set before there is one
          const bool older = ++resumes == 1;
          scene.send(msg::Resumed{older ? Scene::kTerm - 1 : Scene::kTerm, scene.received()});
          if (older) scene.send(c.message);
        };
        scene.loop->post([&scene] { scene.link.reset(); });
        scene.until([&] { return scene.lost || resumes == 2; });
        scene.settle();
        CHECK(!scene.lost);
        if (!std::holds_alternative<msg::Ping>(c.message)) CHECK(scene.session_was_told(c.message) == 0);
        CHECK(scene.answered(msg::Pong{5}) == 0);
        CHECK(scene.endpoint->welcome().you == WorkerId{5});
      },
      77);
}

TEST_CASE(
    "remote: every message lost with the link: the session is told of the loss, once, and what it sends then "
    "goes nowhere") {
  for_each_tag([](Scene& scene, const Case& c) {
    scene.listen();
    scene.loop->post([&scene, m = c.message] {
      scene.send(m);
      scene.link.reset();  // perhaps it has left
    });
    scene.until([&] { return scene.lost.has_value(); });
    CHECK((scene.lost->code == Errc::kUnavailable || c.taker == Taker::kNobody));
    CHECK(scene.lost->message.find(scene.listener->address().to_string()) != std::string::npos);
    scene.endpoint->send(msg::CancelRequest{1});
    scene.endpoint->send(WorkerId{9}, {});
  });
}

// A worker that is out of reach while the scheduler is away too: what is fetched from it waits for either.
#include <tilewise/codec/codec.h>
#include <tilewise/net/endpoint.h>
#include <tilewise/remote/connect.h>

#include <doctest/doctest.h>

#include <atomic>
#include <optional>
#include <thread>

#include "print_result.h"

using namespace tilewise;

namespace {

constexpr WorkerId kWorker{9}, kClient{5};
constexpr DeviceId kDevice{90};

// Who is connected to, says what the test says, and may go away and come back.
struct Side {
  net::EventLoop& loop;
  const net::Token& token;
  std::function<void(const msg::Message&)> on_message;
  net::Address address = *net::Address::parse("tcp://127.0.0.1:0");
  std::unique_ptr<net::Listener> listener;
  std::unique_ptr<net::Link> link;

  void come() {
    auto opened = net::Listener::open(
        loop, address, {.handshake = {.token = token}}, [this](std::unique_ptr<net::Link> made) {
          link = std::move(made);
          link->start({[this](net::Frame& frame) { on_message(*codec::decode(frame.payload)); },
                       [](const Error&) {},
                       {}});
        });
    REQUIRE(opened);
    listener = std::move(*opened);
    address = listener->address();
  }
  void leave() { listener.reset(), link.reset(); }
  void send(const msg::Message& m) {
    codec::Buffer buffer;
    REQUIRE(codec::encode(m, buffer));
    (void)link->send(codec::frame_type(m), buffer.bytes());
  }
};

struct CutOff {
  CutOff() {
    scheduler.on_message = [this](const msg::Message& m) {
      if (!std::holds_alternative<msg::Join>(m)) return;
      msg::Welcome welcome;
      welcome.term = welcome.state = 1, welcome.you = kClient, welcome.session = SessionId{6},
      welcome.devices = {DeviceId{7}};
      scheduler.send(welcome);
      msg::PeerInfo info{kWorker, msg::Role::kWorker,           "worker",
                         "far",   {worker.address.to_string()}, {kDevice}};
      scheduler.send(msg::Log{1, 1, {msg::PeerJoined{info}}});
    };
    worker.on_message = [this](const msg::Message& m) {
      if (std::holds_alternative<msg::ArenaMap>(m)) had = 1;
      const auto* resume = std::get_if<msg::Resume>(&m);
      if (resume == nullptr) return;
      worker.send(msg::PeerHello{.from = kWorker, .to = kClient, .host_id = "far"});
      worker.send(msg::Resume{resume->state, kWorker, had});
      if (met++ == 0) worker.send(msg::ArenaMap{});
    };
    worker.come();
    scheduler.come();
    thread = std::thread([this] { loop->run(); });
    remote::Options options{.scheduler = scheduler.address, .token = token};
    options.lease_ns = 60 * kSecond;
    options.link_ns = kSecond;
    auto connected = remote::connect(options);
    REQUIRE(connected);
    endpoint = std::move(*connected);
    endpoint->start(
        {[](const msg::Message&) {}, [](WorkerId, const msg::PeerBatch&) {}, [](const Error&) {}});
  }
  ~CutOff() {
    endpoint.reset();
    loop->post([this] { worker.leave(), scheduler.leave(), loop->stop(); });
    thread.join();
  }
  // As a session does it: what failed because a link broke is asked for again.
  void fetch() {
    ++tries;
    endpoint->receive(kDevice, static_cast<std::uint64_t>(tries), &byte, 1, [this](const Status& status) {
      if (status.error().code == Errc::kUnavailable) return fetch();
      ended = status.error().code;
    });
  }
  static void sleep(int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }
  template <class Done> static void until(const Done& done) {
    for (int i = 0; i < 20'000 && !done(); ++i) sleep(1);
    REQUIRE(done());
  }

  net::Token token = *net::Token::generate();
  std::unique_ptr<net::EventLoop> loop = std::move(*net::EventLoop::create());
  Side scheduler{*loop, token, {}}, worker{*loop, token, {}};
  std::uint64_t had = 0;  // of the client's messages
  std::atomic<int> met{0}, tries{0};
  std::atomic<std::optional<Errc>> ended{};
  std::byte byte{};
  std::thread thread;
  std::unique_ptr<client::Endpoint> endpoint;
};

}  // namespace

TEST_CASE("remote: what is fetched from a worker out of reach waits while the scheduler is away too") {
  CutOff scene;
  scene.until([&] { return scene.met == 1; });
  scene.sleep(200);  // the worker's ArenaMap arrives
  scene.loop->post([&] { scene.scheduler.leave(), scene.worker.leave(); });
  scene.sleep(2'000);  // longer than the link may be broken
  scene.fetch();
  scene.sleep(300);
  CHECK(scene.tries.load() == 1);
  CHECK(!scene.ended.load());
  scene.loop->post([&] { scene.worker.come(); });
  scene.until([&] { return scene.ended.load().has_value(); });
  CHECK(scene.tries.load() == 2);
  CHECK(scene.ended.load() == Errc::kUnsupported);  // this worker has nothing to send it with
}

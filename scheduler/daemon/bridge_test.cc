// What the dashboard asks reaches the scheduler's core, and each answer the one who asked: with a real server, and workers
// that are links over TCP.
#include "bridge.h"

#include <tilewise/config/version.h>

#include <doctest/doctest.h>

#include <algorithm>
#include <optional>

#include "test_site.h"

namespace tilewise::scheduler {
namespace {

using testing::kPatience;

net::Token test_token() { return *net::Token::from_hex(std::string(64, '7')); }

// A worker, as far as the scheduler can see.
struct FakeWorker {
  std::unique_ptr<net::ConnectAttempt> attempt;
  std::unique_ptr<net::Link> link;
  std::vector<msg::Message> inbox;
  codec::Buffer buffer;

  void send(const msg::Message& message) {
    REQUIRE(codec::encode(message, buffer).has_value());
    REQUIRE(link->send(codec::frame_type(message), buffer.bytes()).has_value());
  }
  template <class T> std::vector<T> all() const {
    std::vector<T> out;
    for (const msg::Message& message : inbox)
      if (const T* found = std::get_if<T>(&message)) out.push_back(*found);
    return out;
  }
};

struct BridgeSite {
  std::unique_ptr<net::EventLoop> loop = *net::EventLoop::create();
  std::unique_ptr<Server> server;
  std::unique_ptr<Bridge> bridge;
  std::vector<std::unique_ptr<FakeWorker>> workers;

  explicit BridgeSite(Options core = {}) {
    core.history_graphs = 4;
    ServerOptions options{
        .listen = *net::Address::parse("tcp://127.0.0.1:0"), .token = test_token(), .core = core};
    auto opened = Server::open(*loop, std::move(options), [] {});
    REQUIRE(opened.has_value());
    server = std::move(*opened);
    bridge = std::make_unique<Bridge>(*loop, *server);
  }

  bool until(const std::function<bool()>& done) { return loop->run_until(done, kPatience); }

  FakeWorker& add_worker(const std::string& name) {
    FakeWorker& w = *workers.emplace_back(std::make_unique<FakeWorker>());
    w.attempt = net::connect(*loop, server->address(), {.token = test_token()},
                             [&w](Result<std::unique_ptr<net::Link>> link) {
                               REQUIRE(link.has_value());
                               w.link = std::move(*link);
                             });
    REQUIRE(until([&] { return w.link != nullptr; }));
    w.link->start({[&w](net::Frame& frame) {
                     w.inbox.push_back(*codec::decode(frame.payload));
                     if (const auto* ping = std::get_if<msg::Ping>(&w.inbox.back()))
                       w.send(msg::Pong{ping->nonce});
                   },
                   [](const Error&) {},
                   {}});
    msg::Join join;
    join.name = join.host_id = name;
    join.software_version = config::software_version();
    join.addresses = {"tcp://127.0.0.1:1"};
    join.devices.push_back({"host:0", 0, "cpu", "x", std::int64_t{1} << 30, 1});
    w.send(join);
    REQUIRE(until([&] { return !w.all<msg::Welcome>().empty(); }));
    REQUIRE(w.all<msg::Welcome>()[0].refused.ok());
    return w;
  }

  Overview overview() {
    std::optional<View> seen;
    bridge->view(OverviewRequest{}, [&](View view, TimeNs took) {
      CHECK(took >= 0);
      seen = std::move(view);
    });
    REQUIRE(until([&] { return seen.has_value(); }));
    REQUIRE(std::holds_alternative<Overview>(*seen));
    return std::get<Overview>(*seen);
  }
};

using Traces = std::optional<Result<std::vector<msg::TraceReply>>>;

// One that a worker is asked for, as it answers: its nonce is the scheduler's.
msg::TraceReply reply_to(const msg::TraceRequest& request, std::uint64_t lost) {
  msg::TraceReply reply;
  reply.nonce = request.nonce;
  reply.lost = lost;
  return reply;
}

TEST_CASE("a view is answered, and what it says is now") {
  BridgeSite site;
  CHECK(site.overview().status.peers.empty());
  site.add_worker("one");
  REQUIRE(site.overview().status.peers.size() == 1);
  CHECK(site.overview().status.peers[0].name == "one");
}

TEST_CASE("a trace is whole when every worker has answered, whoever comes first") {
  BridgeSite site;
  FakeWorker &a = site.add_worker("a"), &b = site.add_worker("b");
  Traces first, second;
  site.bridge->trace({}, [&](auto told) { first.emplace(std::move(told)); });
  site.bridge->trace({.from_age_ns = 5}, [&](auto told) { second.emplace(std::move(told)); });
  REQUIRE(site.until(
      [&] { return a.all<msg::TraceRequest>().size() == 2 && b.all<msg::TraceRequest>().size() == 2; }));
  const auto asked_a = a.all<msg::TraceRequest>(), asked_b = b.all<msg::TraceRequest>();
  CHECK(asked_a[1].from_age_ns == 5);
  b.send(reply_to(asked_b[1], 21));  // the later question first
  b.send(reply_to(asked_b[1], 99));  // twice
  a.send(reply_to(asked_a[0], 10));
  a.send(reply_to(asked_a[1], 20));
  REQUIRE(site.until([&] { return second.has_value(); }));
  CHECK(!first.has_value());
  REQUIRE(second->has_value());
  std::vector<std::uint64_t> lost;
  for (const msg::TraceReply& reply : **second) lost.push_back(reply.lost);
  std::sort(lost.begin(), lost.end());
  CHECK(lost == std::vector<std::uint64_t>{20, 21});
  b.send(reply_to(asked_b[0], 11));
  REQUIRE(site.until([&] { return first.has_value(); }));
  CHECK((*first)->size() == 2);
}

TEST_CASE("a worker that leaves does not keep an answer waiting; without any there is nothing to wait for") {
  BridgeSite site;
  Traces alone, told;
  site.bridge->trace({}, [&](auto t) { alone.emplace(std::move(t)); });
  REQUIRE(site.until([&] { return alone.has_value(); }));
  REQUIRE(alone->has_value());
  CHECK((*alone)->empty());
  FakeWorker &a = site.add_worker("a"), &b = site.add_worker("b");
  site.bridge->trace({}, [&](auto t) { told.emplace(std::move(t)); });
  REQUIRE(
      site.until([&] { return !a.all<msg::TraceRequest>().empty() && !b.all<msg::TraceRequest>().empty(); }));
  a.send(reply_to(a.all<msg::TraceRequest>()[0], 1));
  b.link.reset();
  REQUIRE(site.until([&] { return told.has_value(); }));
  REQUIRE(told->has_value());
  CHECK((*told)->size() == 2);
}

TEST_CASE("more questions than can be asked at once are each told so, none is forgotten") {
  BridgeSite site;
  FakeWorker& silent = site.add_worker("silent");
  int told = 0, refused = 0;
  for (int i = 0; i < 20; ++i) {
    site.bridge->trace({}, [&](auto t) {
      ++told;
      if (t) return;
      CHECK(t.error().code == Errc::kUnavailable);
      ++refused;
    });
  }
  const auto answered = [&] {
    return silent.all<msg::TraceRequest>().size() + static_cast<std::size_t>(told);
  };
  REQUIRE(site.until([&] { return answered() >= 20; }));
  CHECK(refused == told);
  const auto asked = silent.all<msg::TraceRequest>();
  CHECK(asked.size() >= 1);
  CHECK(asked.size() <= 8);
  for (const msg::TraceRequest& request : asked) silent.send(reply_to(request, 0));
  REQUIRE(site.until([&] { return told == 20; }));
  CHECK(refused == 20 - static_cast<int>(asked.size()));
  // And they make room for the next.
  Traces after;
  site.bridge->trace({}, [&](auto t) { after.emplace(std::move(t)); });
  REQUIRE(site.until([&] { return silent.all<msg::TraceRequest>().size() > asked.size(); }));
  silent.send(reply_to(silent.all<msg::TraceRequest>().back(), 7));
  REQUIRE(site.until([&] { return after.has_value(); }));
  REQUIRE(after->has_value());
  REQUIRE((*after)->size() == 1);
  CHECK((**after)[0].lost == 7);
}

TEST_CASE("blocks are asked of every worker, and refused where they are too many") {
  BridgeSite site;
  FakeWorker& worker = site.add_worker("one");
  std::optional<Result<std::vector<msg::BlocksReply>>> told, refused;
  site.bridge->blocks({.array = ArrayId{5}, .first = 0, .count = msg::kMaxBlocksAsked + 1},
                      [&](auto t) { refused.emplace(std::move(t)); });
  site.bridge->blocks({.array = ArrayId{5}, .first = 0, .count = 4},
                      [&](auto t) { told.emplace(std::move(t)); });
  REQUIRE(site.until([&] { return refused && !worker.all<msg::BlocksRequest>().empty(); }));
  CHECK(refused->error().code == Errc::kInvalidArgument);
  msg::BlocksReply reply;
  reply.nonce = worker.all<msg::BlocksRequest>()[0].nonce;
  reply.copies = {{3, DeviceId{1}, msg::BlockState::kHere, true, 512, {}}};
  worker.send(reply);
  REQUIRE(site.until([&] { return told.has_value(); }));
  REQUIRE(told->has_value());
  REQUIRE((*told)->size() == 1);
  CHECK((**told)[0].copies == reply.copies);
}

TEST_CASE("an explanation comes to the one who asked, also of what is not there") {
  BridgeSite site;
  std::vector<std::pair<int, Errc>> told;
  for (int i = 0; i < 3; ++i) {
    site.bridge->explain(GraphId{static_cast<std::uint64_t>(i + 1)}, [&told, i](const msg::Explanation& e) {
      told.emplace_back(i, e.outcome.code);
      CHECK(e.outcome.message.find(std::to_string(i + 1)) != std::string::npos);
    });
  }
  REQUIRE(site.until([&] { return told.size() == 3; }));
  for (const auto& [i, code] : told) CHECK(code == Errc::kNotFound);
}

TEST_CASE("what operators wish reaches the core") {
  BridgeSite site;
  FakeWorker& worker = site.add_worker("leaver");
  const WorkerId id = worker.all<msg::Welcome>()[0].you;
  site.bridge->cancel(GraphId{77});  // nobody's: nothing comes of it
  site.bridge->release(ArrayId{77});
  site.bridge->drain(WorkerId{77}, true);
  CHECK(site.overview().draining.empty());
  site.bridge->drain(id, true);
  std::vector<msg::DrainReply> leaving;
  for (int looks = 0; looks < 100 && leaving.empty(); ++looks) leaving = site.overview().draining;
  REQUIRE(leaving.size() == 1);
  CHECK(leaving[0].worker == id);
  site.bridge->drain(id, false);
  for (int looks = 0; looks < 100 && !leaving.empty(); ++looks) leaving = site.overview().draining;
  CHECK(leaving.empty());
}

TEST_CASE("the dashboard's own place at the scheduler answers pings, as any peer has to") {
  Options core;
  core.silence_ns = 300 * kMillisecond;
  core.ping_every_ns = 50 * kMillisecond;
  BridgeSite site(core);
  std::optional<msg::Explanation> told;
  const auto explain = [&] {
    told.reset();
    site.bridge->explain(GraphId{1}, [&](msg::Explanation e) { told = std::move(e); });
    REQUIRE(site.until([&] { return told.has_value(); }));
  };
  explain();
  const auto mine = [&] {
    for (const msg::PeerInfo& peer : site.overview().status.peers)
      if (peer.name == "dashboard") return peer.id;
    return WorkerId{};
  };
  const WorkerId id = mine();
  REQUIRE(id.value != 0);
  const TimeNs end = monotonic_now() + kSecond;
  site.until([&] { return monotonic_now() > end; });
  CHECK(mine() == id);
  explain();
}

}  // namespace
}  // namespace tilewise::scheduler

// Links that go through a third process, because there is no way between the two; and what is made of it when there is none at all.
#include "relays.h"
#include "by_hand.h"
#include "way.h"

using namespace tilewise;
using namespace tilewise::exchange;
using namespace tilewise::exchange::test;

namespace {

Options host(const char* name) {
  Options options = tcp_options(name);
  options.use_ucx = true;
  options.ucx.transports = "tcp";
  options.direct_ns = 3600 * kSecond;
  return options;
}

// `a` reaches `b` over a way that can be cut, and both reach `x`, which knows b's own address.
struct Three {
  std::unique_ptr<net::EventLoop> loop = make_loop();
  Node a, b, x;
  Way way{b.addresses[0]};

  explicit Three(Options of_a = host("a's"), msg::Role role = msg::Role::kWorker)
      : a(*loop, 1, std::move(of_a)), b(*loop, 2, host("b's")), x(*loop, 3, host("x's")) {
    msg::PeerInfo info = b.info();
    info.addresses = {way.address()};
    a.exchange->peer_joined(info);
    b.exchange->peer_joined(a.info());
    a.exchange->peer_joined(x.info(role)), b.exchange->peer_joined(x.info(role));
    x.exchange->peer_joined(a.info()), x.exchange->peer_joined(b.info());
    until([&] { return a.ready.size() == 2 && b.ready.size() == 2 && x.ready.size() == 2; });
  }
  void until(const std::function<bool()>& done) { REQUIRE(loop->run_until(done, kPatience)); }
  void until_detour(std::int64_t count = 1) {
    until([&] { return a.exchange->counters().detours == count && a.exchange->counters().links == 2; });
  }
  // Messages both ways, each once and in order, whatever happened between them.
  void speak(std::uint64_t& number) {
    for (int i = 0; i < 20; ++i) {
      ++number;
      REQUIRE(a.exchange->send(b.id, grant_of(number)));
      REQUIRE(b.exchange->send(a.id, grant_of(number)));
    }
  }
  void check_heard(std::uint64_t number) {
    until([&] { return numbers(b, a.id).size() >= number && numbers(a, b.id).size() >= number; });
    std::vector<std::uint64_t> all(number);
    for (std::uint64_t i = 0; i < number; ++i) all[i] = i + 1;
    CHECK(numbers(a, b.id) == all);
    CHECK(numbers(b, a.id) == all);
  }
  static std::vector<std::uint64_t> numbers(const Node& node, WorkerId from) {
    std::vector<std::uint64_t> out;
    for (const auto& [peer, batch] : node.batches)
      for (const msg::Grant& grant : batch.grants)
        if (peer == from) out.push_back(grant.transfer);
    return out;
  }
  // A block each way, of more than what waits in a relay; asked for again where a break took it along.
  void move_blocks() {
    constexpr std::int64_t kBytes = 5'000'000;
    for (const bool there : {false, true}) {
      Node &from = there ? a : b, &to = there ? b : a;
      std::vector<std::byte> out(kBytes), in(kBytes);
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<std::byte>(i * 2654435761u >> 13);
      for (int tries = 0;; ++tries) {
        REQUIRE(tries < 20);
        End got, sent;
        const std::uint64_t transfer = ++transfers;
        to.exchange->receive(from.id, transfer, in.data(), kBytes, kHost, into(got));
        do {  // a receive waits for a link, and so would its grant
          sent = {};
          from.exchange->transmit(to.id, transfer, out.data(), kBytes, kHost, into(sent));
          until([&] { return sent.times > 0; });
          if (!sent.status) loop->run_until([] { return false; }, 100 * kMillisecond);
        } while (!sent.status && got.times == 0);
        until([&] { return got.times > 0; });
        if (got.code() == Errc::kOk) break;
        CHECK(got.code() == Errc::kUnavailable);
        loop->run_until([] { return false; }, 100 * kMillisecond);
      }
      CHECK(in == out);
    }
  }
  std::uint64_t transfers = 0;
};

}  // namespace

TEST_CASE(
    "no way to a peer: the link goes through a worker that reaches it, and so do blocks; nothing is lost or "
    "said twice") {
  Three w;
  std::uint64_t number = 0;
  w.speak(number);
  w.move_blocks();
  CHECK(w.x.exchange->counters().relayed == 0);
  w.speak(number);
  w.way.set_up(false);
  w.speak(number);  // kept until there is a link
  w.until_detour();
  w.speak(number);
  w.check_heard(number);
  w.move_blocks();
  CHECK(w.x.exchange->counters().relayed >= 2);  // the link, and its data connection
  CHECK(w.a.unreachable.empty());
  CHECK(w.b.unreachable.empty());
  CHECK(w.a.back[w.b.id] == 1);

  SUBCASE("the relay is lost: there is nobody else, then the way is there again") {
    w.a.exchange->peer_lost(w.x.id);
    w.b.exchange->peer_lost(w.x.id);
    w.speak(number);
    w.way.set_up(true);
    w.until([&] { return w.a.back[w.b.id] == 2; });
    CHECK(w.a.exchange->counters().detours == 1);
    w.check_heard(number);
    w.move_blocks();
  }
  SUBCASE("one of the two is lost to the relay: it passes on no more of its bytes") {
    w.x.exchange->peer_lost(w.b.id);
    w.speak(number);
    w.until([&] { return w.a.exchange->counters().links == 1; });
    w.loop->run_until([] { return false; }, 3 * kSecond);
    CHECK(w.a.exchange->counters().links == 1);
    CHECK(w.a.exchange->counters().detours == 1);
    CHECK(w.a.back[w.b.id] == 1);
  }
}

TEST_CASE("once there is a direct way again it is taken, by blocks too") {
  Options options = host("a's");
  options.direct_ns = 500 * kMillisecond;
  Three w(std::move(options));
  std::uint64_t number = 0;
  w.way.set_up(false);
  w.until_detour();
  w.move_blocks();
  w.speak(number);
  w.way.set_up(true);
  w.until([&] { return w.a.back[w.b.id] == 2; });
  w.speak(number);
  w.check_heard(number);
  w.move_blocks();
  const auto relayed = w.x.exchange->counters().relayed;
  w.x.exchange.reset();  // nothing goes through there
  w.speak(number);
  w.check_heard(number);
  w.move_blocks();
  CHECK(relayed >= 1);
  CHECK(w.a.exchange->counters().detours == 1);
}

TEST_CASE("a direct way that loses large packets is not taken in place of a relay") {
  Options options = host("a's");
  options.direct_ns = 200 * kMillisecond;
  Three w(std::move(options));
  w.way.set_up(false);
  w.until_detour();
  const auto breaks = w.a.exchange->counters().breaks;
  w.way.lose_large(true);
  w.way.set_up(true);
  w.loop->run_until([] { return false; }, 4 * kSecond);  // longer than an attempt
  w.move_blocks();
  CHECK(w.a.exchange->counters().breaks == breaks);
  w.way.lose_large(false);
  w.until([&] { return w.a.back[w.b.id] == 2; });
  w.move_blocks();
  CHECK(w.a.exchange->counters().detours == 1);
}

// The patience is about one silence, as workers have it.
TEST_CASE("a way that begins to lose large packets is left for a relay in time, whoever notices") {
  Options options = host("a's");
  options.silence_ns = 2 * kSecond;
  options.resume_ns = 3 * kSecond;
  Three w(std::move(options));
  std::uint64_t number = 0;
  w.speak(number);
  w.check_heard(number);
  SUBCASE("blocks are lost, words are not") {
    const auto streams = [](const Node& node) { return node.exchange->ucx_counters().streams; };
    w.until([&] { return streams(w.a) == 2 && streams(w.b) == 2; });
    w.way.lose_large(true);
    w.move_blocks();
  }
  SUBCASE("messages are lost") {
    w.way.lose_large(true);
    msg::PeerBatch batch;
    msg::Offer offer = w.a.offer(0, 0, 4'096, w.b);
    offer.inlined = true;
    offer.data.assign(4'096, 'x');
    batch.offers.assign(100, offer);
    for (int i = 0; i < 40; ++i) REQUIRE(w.a.exchange->send(w.b.id, batch));
    w.until([&] { return w.b.batches.size() >= number + 40; });
    w.b.batches.clear(), w.a.batches.clear(), number = 0;
    w.move_blocks();
  }
  w.until_detour();
  w.speak(number);
  CHECK(w.a.unreachable.empty());
  CHECK(w.b.unreachable.empty());
}

TEST_CASE("who is no worker passes nothing on, nor does anybody who is not asked to") {
  Options options = host("a's");
  options.resume_ns = 3 * kSecond;
  msg::Role role = msg::Role::kWorker;
  SUBCASE("a client") { role = msg::Role::kClient; }
  SUBCASE("switched off") { options.relays = false; }
  Three w(std::move(options), role);
  w.way.set_up(false);
  w.until([&] { return w.a.unreachable.contains(w.b.id); });
  CHECK(w.a.why(w.b.id) == Errc::kTimeout);
  CHECK(w.x.exchange->counters().relayed == 0);
}

TEST_CASE("who does not give up is told when the patience is over, and goes on trying") {
  auto loop = make_loop();
  Options options = host("a's");
  options.resume_ns = 1'500 * kMillisecond;
  options.gives_up = false;
  Node a(*loop, 1, std::move(options)), b(*loop, 2, host("b's"));
  Way way(b.addresses[0]);
  msg::PeerInfo client = a.info(msg::Role::kClient), info = b.info();
  info.addresses = {way.address()};
  a.exchange->peer_joined(info);
  b.exchange->peer_joined(client);
  const auto until = [&](const std::function<bool()>& done) { REQUIRE(loop->run_until(done, kPatience)); };
  until([&] { return a.ready.contains(b.id) && b.ready.contains(a.id); });
  std::vector<std::byte> in(100'000);
  for (int round = 1; round <= 2; ++round) {
    CAPTURE(round);
    way.set_up(false);
    until([&] { return a.exchange->counters().links == 0; });
    End held, late;
    a.exchange->receive(b.id, static_cast<std::uint64_t>(10 * round), in.data(), 100'000, kHost, into(held));
    REQUIRE(a.exchange->send(b.id, grant_of(static_cast<std::uint64_t>(round))));
    until([&] { return a.cut_off[b.id] == round; });
    until([&] { return held.times > 0; });
    CHECK(held.code() == Errc::kUnavailable);
    a.exchange->receive(b.id, static_cast<std::uint64_t>(10 * round + 1), in.data(), 100'000, kHost,
                        into(late));
    until([&] { return late.times > 0; });
    CHECK(late.code() == Errc::kUnavailable);
    CHECK(a.unreachable.empty());
    way.set_up(true);
    until([&] { return a.back[b.id] == round; });
    until([&] { return b.batches.size() == static_cast<std::size_t>(round); });
  }
  CHECK(b.unreachable.empty());
}

// ---- who asks badly ---------------------------------------------------------------------------------------------------

namespace {

// One that proves the token, and then asks; `heard`: the outcome, if there was one.
struct Asker {
  net::EventLoop& loop;
  std::unique_ptr<net::ConnectAttempt> attempt;
  std::unique_ptr<net::Link> link;
  std::optional<std::uint32_t> heard;
  bool closed = false;

  Asker(net::EventLoop& l, const Node& relay) : loop(l) {
    attempt = net::connect(loop, net::Address::parse(relay.addresses[0]).value(), {.token = token()},
                           [this](auto made) {
                             REQUIRE(made);
                             link = std::move(*made);
                             link->start({.on_frame =
                                              [this](net::Frame& frame) {
                                                if (frame.type != kRelayFrame) return;
                                                REQUIRE(frame.payload.size() == sizeof(RelayAnswer));
                                                RelayAnswer answer;
                                                std::memcpy(&answer, frame.payload.data(), sizeof answer);
                                                heard = answer.outcome;
                                              },
                                          .on_close = [this](const Error&) { closed = true; }});
                           });
    REQUIRE(loop.run_until([&] { return link != nullptr; }, kPatience));
  }
  Asker(const Asker&) = delete;
  void ask(std::uint32_t from, std::uint32_t to) {
    const RelayQuestion question{from, to};
    REQUIRE(link->send(kRelayFrame, std::as_bytes(std::span(&question, 1))));
  }
};

}  // namespace

TEST_CASE("a relay connects to workers it knows, for peers it knows, and to nobody else") {
  Three w;
  Asker asker(*w.loop, w.x);
  const auto outcome = [&] {
    w.until([&] { return asker.heard.has_value() || asker.closed; });
    return asker.heard;
  };
  SUBCASE("whom it does not know") {
    asker.ask(1, 77);
    CHECK(outcome() == static_cast<std::uint32_t>(Errc::kNotFound));
  }
  SUBCASE("the asker itself") {
    asker.ask(1, 1);
    CHECK(outcome() == static_cast<std::uint32_t>(Errc::kNotFound));
  }
  SUBCASE("by a stranger") {
    asker.ask(77, 2);
    CHECK_FALSE(outcome());
  }
  SUBCASE("half a question") {
    const std::uint32_t half = 1;
    REQUIRE(asker.link->send(kRelayFrame, std::as_bytes(std::span(&half, 1))));
    CHECK_FALSE(outcome());
  }
  SUBCASE("asked twice") {
    asker.ask(1, 2);
    asker.ask(1, 2);
    w.until([&] { return asker.closed; });
  }
  SUBCASE("to somebody who does not answer") {
    msg::PeerInfo gone = w.b.info();
    gone.id = WorkerId{9};
    gone.addresses = {"tcp://127.0.0.1:1"};
    w.x.exchange->peer_joined(gone);
    asker.ask(1, 9);
    CHECK(outcome() == static_cast<std::uint32_t>(Errc::kUnavailable));
  }
  CHECK(w.x.exchange->counters().relayed == 0);
  std::uint64_t number = 0;
  w.speak(number);
  w.check_heard(number);
}

TEST_CASE("no asker takes so many ways through a relay that none are left for others") {
  Three w;
  // Connects, and says nothing: the kernel does that.
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof where;
  REQUIRE(::bind(listener, reinterpret_cast<sockaddr*>(&where), sizeof where) == 0);
  REQUIRE(::listen(listener, 512) == 0);
  REQUIRE(::getsockname(listener, reinterpret_cast<sockaddr*>(&where), &size) == 0);
  msg::PeerInfo mute = w.b.info();
  mute.id = WorkerId{9};
  mute.addresses = {"tcp://127.0.0.1:" + std::to_string(ntohs(where.sin_port))};
  w.x.exchange->peer_joined(mute);
  std::list<Asker> askers;
  const auto outcome = [&](std::uint32_t from) {
    askers.emplace_back(*w.loop, w.x).ask(from, 9);
    w.until([&] { return askers.back().heard.has_value() || askers.back().closed; });
    return static_cast<Errc>(askers.back().heard.value_or(~0u));
  };
  int had = 0;
  while (outcome(1) == Errc::kOk) ++had;
  CHECK(askers.back().heard == static_cast<std::uint32_t>(Errc::kLimitExceeded));
  CHECK(had == 128);  // of 256
  CHECK(outcome(2) == Errc::kOk);
  CHECK(outcome(1) == Errc::kLimitExceeded);
  askers.pop_front();
  askers.pop_front();  // two of the first one's
  w.until([&] { return outcome(1) == Errc::kOk; });
  ::close(listener);
}

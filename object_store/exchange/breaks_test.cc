// Links over TCP that break: what comes over the next one.
#include <tilewise/base/prng.h>
#include <tilewise/courier/outstanding.h>

#include "sanitizers.h"
#include "script.h"

using namespace tilewise;
using namespace tilewise::exchange;
using namespace tilewise::exchange::test;

namespace {

std::vector<std::uint64_t> grants_of(const Node& node) {
  std::vector<std::uint64_t> out;
  for (const auto& [from, batch] : node.batches)
    for (const msg::Grant& grant : batch.grants) out.push_back(grant.transfer);
  return out;
}

using Numbers = std::vector<std::uint64_t>;

}  // namespace

TEST_CASE("after a break each side is sent what it has not had, once and in order") {
  Met m;
  REQUIRE(m.node.exchange->send(m.script.id, grant_of(102)));
  m.script.until_heard(5);
  m.script.link.reset();
  m.script.until([&] { return m.node.exchange->counters().breaks == 1; });
  CHECK(m.node.exchange->counters().links == 0);
  REQUIRE(m.node.exchange->send(m.script.id, grant_of(103)));  // waits
  m.script.dial();
  m.script.greet(2, 2);  // its ArenaMap and the first batch
  m.script.send(grant_of(2));
  m.script.until_heard(4);
  CHECK(std::get<msg::PeerHello>(m.script.heard[0]).to == m.script.id);
  CHECK(std::get<msg::Resume>(m.script.heard[1]) == msg::Resume{2, m.node.id, 2});
  CHECK(m.script.grants() == Numbers{102, 103});
  m.script.until([&] { return m.node.batches.size() == 2; });
  CHECK(grants_of(m.node) == Numbers{1, 2});
  CHECK(m.node.ready.size() == 1);  // once, as Node checks
  const Counters counters = m.node.exchange->counters();
  CHECK(counters.links == 1);
  CHECK(counters.resumed == 1);
  CHECK(counters.repeated == 1);
  CHECK(m.node.unreachable.empty());
  // Another break, with nothing to be repeated.
  m.script.link.reset();
  m.script.until([&] { return m.node.exchange->counters().breaks == 2; });
  m.script.dial();
  m.script.greet(3, 4);
  REQUIRE(m.node.exchange->send(m.script.id, grant_of(104)));
  m.script.until_heard(3);
  CHECK(m.script.grants() == Numbers{104});
}

TEST_CASE("a link that looks well is given up for a later attempt of its connector, not for an earlier one") {
  Met m;
  std::unique_ptr<net::Link> half_open = std::move(m.script.link);
  m.script.dial();
  m.script.greet(3, 2);
  m.script.until_heard(2);
  REQUIRE(m.node.exchange->send(m.script.id, grant_of(102)));
  m.script.until_heard(3);
  CHECK(m.script.grants() == Numbers{102});
  CHECK(m.node.exchange->counters().resumed == 1);
  // One that was on its way for too long.
  std::unique_ptr<net::Link> latest = std::move(m.script.link);
  m.script.dial();
  m.script.greet(2, 0);
  m.script.until([&] { return m.script.closed; });
  CHECK(m.script.heard.empty());
  // One that means another incarnation.
  m.script.dial();
  m.script.send(msg::PeerHello{.from = m.script.id, .to = WorkerId{77}});
  m.script.send(msg::Resume{9, m.script.id, 0});
  m.script.until([&] { return m.script.closed; });
  CHECK(m.node.exchange->counters().strangers_closed == 2);
  CHECK(m.node.exchange->counters().links == 1);
  CHECK(m.node.exchange->counters().breaks == 1);
  CHECK(m.node.unreachable.empty());
}

TEST_CASE("a peer that counts wrong, or speaks before it has counted, breaks the protocol") {
  Met m;
  SUBCASE("it has had what was never sent") {
    m.script.dial();
    m.script.greet(2, 3);
  }
  SUBCASE("it acknowledges what was never sent") { m.script.send(msg::Ack{3}); }
  SUBCASE("it forgets what it has acknowledged") {
    m.script.send(msg::Ack{2});
    m.script.send(grant_of(2));
    m.script.until([&] { return m.node.batches.size() == 2; });
    m.script.dial();
    m.script.greet(2, 1);
  }
  SUBCASE("it resumes again") { m.script.send(msg::Resume{2, m.script.id, 2}); }
  m.script.until([&] { return m.node.unreachable.contains(m.script.id); });
  CHECK(m.node.why(m.script.id) == Errc::kCorruptData);
  CHECK(m.node.exchange->counters().protocol_errors == 1);
}

TEST_CASE("it says how far it is, so that others need not keep more") {
  Met m;
  for (std::uint64_t i = 2; i < courier::kAckMessages; ++i) m.script.send(grant_of(i));
  m.script.until_heard(5);
  CHECK(std::get<msg::Ack>(m.script.heard[4]).received == courier::kAckMessages);
}

TEST_CASE("what is kept is bounded: more waits for an Ack, and too much ends the peer") {
  Options small = tcp_options("node's");
  small.max_kept_bytes = 2'000;
  small.max_queued_bytes = 20'000;
  Met m(std::move(small));
  int sent = 0;
  while (m.node.exchange->send(m.script.id, grant_of(200)) && sent < 30) ++sent;
  REQUIRE(sent == 30);
  m.loop->run_until([] { return false; }, 100 * kMillisecond);
  const std::size_t first = m.script.grants().size();
  CHECK(first > 3);
  CHECK(first < 25);
  m.script.send(msg::Ack{1 + first});  // the map too
  m.script.until([&] { return m.script.grants().size() > first; });
  Status status;
  while ((status = m.node.exchange->send(m.script.id, grant_of(201))) && sent < 1'000) ++sent;
  CHECK(status.error().code == Errc::kLimitExceeded);
  m.script.until([&] { return m.node.unreachable.contains(m.script.id); });
  CHECK(m.node.why(m.script.id) == Errc::kLimitExceeded);
}

TEST_CASE("the connector comes back, also where the first greeting was cut off; and gives up in time") {
  auto loop = make_loop();
  Options options = tcp_options("node's");
  options.resume_ns = kSecond;
  Node node(*loop, 2, std::move(options));
  Script script(*loop, node, 7);
  script.listen();
  node.exchange->peer_joined(script.info());
  script.until_heard(2);
  CHECK(std::get<msg::Resume>(script.heard[1]) == msg::Resume{1, node.id, 0});
  script.link.reset();  // before it has answered
  script.until([&] { return script.link != nullptr && script.heard.size() == 2; });
  CHECK(std::get<msg::Resume>(script.heard[1]) == msg::Resume{2, node.id, 0});
  script.greet(2, 0);
  script.send(msg::ArenaMap{});
  script.send(grant_of(1));
  REQUIRE(node.exchange->send(script.id, grant_of(101)));
  script.until_heard(4);
  script.until([&] { return node.batches.size() == 1; });
  CHECK(node.exchange->counters().breaks == 0);  // none of a link that had been made

  script.link.reset();
  script.until([&] { return script.link != nullptr && script.heard.size() == 2; });
  CHECK(std::get<msg::Resume>(script.heard[1]) == msg::Resume{3, node.id, 2});
  script.greet(3, 1);
  script.until_heard(3);
  CHECK(script.grants() == Numbers{101});
  CHECK(node.exchange->counters().resumed == 1);
  script.send(msg::Ack{2});
  loop->run_until([] { return false; }, 50 * kMillisecond);

  SUBCASE("nobody listens there any more") {
    script.listener.reset();
    script.link.reset();
    const TimeNs broke = monotonic_now();
    script.until([&] { return node.unreachable.contains(script.id); });
    CHECK(monotonic_now() - broke > 900 * kMillisecond);
    CHECK(node.why(script.id) == Errc::kTimeout);
    const std::string& message = node.unreachable.at(script.id).message;
    CHECK_MESSAGE(message.find("worker 7 (script)") != std::string::npos, message);
    CHECK_MESSAGE(message.find("again within 1 s") != std::string::npos, message);
    CHECK(node.exchange->send(script.id, grant_of(1)).error().code == Errc::kUnavailable);
  }
  SUBCASE("it answers an attempt that was not made") {
    script.link.reset();
    script.until([&] { return script.link != nullptr && script.heard.size() == 2; });
    script.greet(3, 1);
    script.until([&] { return node.unreachable.contains(script.id); });
    CHECK(node.why(script.id) == Errc::kCorruptData);
  }
}

TEST_CASE("a link that can be made again, but over which no message gets through, is given up in time") {
  auto loop = make_loop();
  Options options = tcp_options("node's");
  options.resume_ns = 2 * kSecond;
  Node node(*loop, 2, std::move(options));
  Script script(*loop, node, 7);
  script.listen();
  node.exchange->peer_joined(script.info());
  script.until_heard(2);
  script.greet(1, 0);
  script.send(msg::ArenaMap{});
  script.until_heard(3);
  REQUIRE(node.exchange->send(script.id, grant_of(101)));
  script.until_heard(4);
  const TimeNs broke = monotonic_now();
  std::uint64_t number = 1;
  while (!node.unreachable.contains(script.id) && monotonic_now() - broke < 8 * kSecond) {
    script.link.reset();
    script.until(
        [&] { return node.unreachable.contains(script.id) || (script.link && script.heard.size() == 2); });
    if (node.unreachable.contains(script.id)) break;
    script.greet(++number, 0);
    script.until_heard(3);
  }
  CHECK(node.why(script.id) == Errc::kTimeout);
  CHECK(monotonic_now() - broke > 1'900 * kMillisecond);
  CHECK(monotonic_now() - broke < 6 * kSecond);
}

TEST_CASE("a peer that gets a message over each link, and is never in time to say so, is not given up") {
  auto loop = make_loop();
  Options options = tcp_options("node's");
  options.resume_ns = kSecond;
  Node node(*loop, 2, std::move(options));
  Script script(*loop, node, 7);
  script.listen();
  node.exchange->peer_joined(script.info());
  script.until_heard(2);
  script.greet(1, 0);
  script.send(msg::ArenaMap{});
  script.until_heard(3);
  std::uint64_t number = 1;
  for (const TimeNs began = monotonic_now(); monotonic_now() - began < 3 * kSecond; ++number) {
    for (std::uint64_t i : {2 * number, 2 * number + 1}) REQUIRE(node.exchange->send(script.id, grant_of(i)));
    script.until([&] { return !script.grants().empty(); });
    script.link.reset();
    script.until([&] { return script.link != nullptr && script.heard.size() == 2; });
    script.greet(number + 1, number + 1);  // its ArenaMap and one batch of each link, of two
    script.until([&] { return node.exchange->counters().resumed == static_cast<std::int64_t>(number); });
  }
  CHECK(node.unreachable.empty());
}

TEST_CASE("the first message over a link that was made again is acknowledged at once, and ends the hurry") {
  Met m;
  m.script.link.reset();
  m.script.until([&] { return m.node.exchange->counters().breaks == 1; });
  m.script.dial();
  m.script.greet(2, 2);
  m.script.send(grant_of(2));
  m.script.send(grant_of(3));
  m.script.until([&] { return m.node.batches.size() == 3; });
  m.script.until_heard(3);
  CHECK(std::get<msg::Ack>(m.script.heard[2]) == msg::Ack{3});
}

TEST_CASE("the largest message fits beside what is not acknowledged yet") {
  CHECK(Options{.token = token()}.max_kept_bytes >= limits::kMaxMessageBytes + 2 * courier::kAckBytes);
}

TEST_CASE(
    "who is connected to waits a little longer than connectors try, and for clients until they are lost") {
  auto loop = make_loop();
  Options options = tcp_options("node's");
  options.resume_ns = options.link_deadline_ns = 100 * kMillisecond;
  Node node(*loop, 9, std::move(options));
  Script worker(*loop, node, 1), client(*loop, node, 3);
  node.exchange->peer_joined(client.info(msg::Role::kClient));
  loop->run_until([] { return false; }, 200 * kMillisecond);  // beyond the deadline
  for (Script* script : {&worker, &client}) {
    if (script == &worker) node.exchange->peer_joined(worker.info());
    script->dial();
    script->greet(1, 0);
    script->send(msg::ArenaMap{});
    script->until_heard(3);
  }
  worker.until([&] { return node.exchange->counters().links == 2; });
  worker.link.reset();
  client.link.reset();
  worker.until([&] { return node.unreachable.contains(worker.id); });
  CHECK(node.why(worker.id) == Errc::kTimeout);
  loop->run_until([] { return false; }, 300 * kMillisecond);
  CHECK_FALSE(node.unreachable.contains(client.id));
  client.dial();
  client.greet(2, 1);
  client.until_heard(2);
  REQUIRE(node.exchange->send(client.id, grant_of(5)));
  client.until_heard(3);
  CHECK(client.grants() == Numbers{5});
  worker.dial();  // too late
  worker.greet(2, 1);
  worker.until([&] { return worker.closed; });
}

// ---- two of them, and a way between that is cut ------------------------------------------------------------

TEST_CASE("a way that is cut anywhere, again and again: each batch comes once and in order, both ways") {
  auto loop = make_loop();
  Options first = tcp_options("a's"), second = tcp_options("b's");
  first.resume_ns = second.resume_ns =
      kPatience;  // sanitizers on a busy machine need more than the usual 10 s for so many cuts
  Node a(*loop, 1, std::move(first)), b(*loop, 2, std::move(second));
  Way way(b.addresses[0]);
  // The largest batches of both sides are a third of it: something has to get through in time. A reset takes with it what the receiver
  // has not read, and with sanitizers that is most of what was sent.
  constexpr bool kSlow = tilewise::testing::kOfSanitizers > 0;
  way.cut_after(kSlow ? 6'000'000 : 1'500'000);
  introduce_over(way, a, b);
  constexpr std::uint64_t kMany = 3'000;
  Prng prng(11);
  std::uint64_t sent = 0;
  const auto batch = [&](const Node& from, const Node& to, std::uint64_t number) {
    msg::PeerBatch out = grant_of(number);
    if (number % 3 == 0) {  // some are large
      msg::Offer offer = from.offer(0, static_cast<std::int64_t>(number), 4'096, to);
      offer.inlined = true;
      offer.data.assign(4'096, static_cast<char>(number));
      out.offers.assign(1 + prng.below(number % 300 == 0 ? 60 : 2), offer);
    }
    return out;
  };
  const auto arrived = [](const Node& node) { return node.batches.size(); };
  while (arrived(a) < kMany || arrived(b) < kMany) {
    for (int i = 0; i < 40 && sent < kMany; ++i) {
      ++sent;
      REQUIRE(a.exchange->send(b.id, batch(a, b, sent)));
      REQUIRE(b.exchange->send(a.id, batch(b, a, sent)));
    }
    const std::size_t before = arrived(a) + arrived(b);
    const bool gets_on = loop->run_until(
        [&] { return arrived(a) + arrived(b) > before || !a.unreachable.empty() || !b.unreachable.empty(); },
        kPatience);
    for (const Node* node : {&a, &b}) {
      for (const auto& [peer, why] : node->unreachable) FAIL(peer.value << " was given up: " << why.message);
    }
    const Counters now = a.exchange->counters();
    REQUIRE_MESSAGE(gets_on, "nothing arrives: " << sent << " sent, " << arrived(a) << " and " << arrived(b)
                                                 << " arrived, " << now.links << " links, " << now.breaks
                                                 << " breaks, " << now.resumed << " times made again");
  }
  Numbers all(kMany);
  for (std::uint64_t i = 0; i < kMany; ++i) all[i] = i + 1;
  CHECK(grants_of(a) == all);
  CHECK(grants_of(b) == all);
  for (const Node* node : {&a, &b}) {
    for (const auto& [from, got] : node->batches) {
      for (const msg::Offer& offer : got.offers)
        CHECK(offer.data == std::string(4'096, static_cast<char>(got.grants[0].transfer)));
    }
  }
  const Counters counters = a.exchange->counters();
  MESSAGE(counters.breaks << " breaks, " << counters.repeated << " messages repeated");
  CHECK(counters.breaks > (kSlow ? 2 : 10));
  CHECK(counters.repeated > 0);
}

TEST_CASE("transfers end with the link and begin anew with the next one, also those asked for in between") {
  auto loop = make_loop();
  Options first = tcp_options("a's"), second = tcp_options("b's");
  first.use_ucx = second.use_ucx = true;
  first.ucx.transports = second.ucx.transports = "tcp";
  Node a(*loop, 1, std::move(first)), b(*loop, 2, std::move(second));
  Way way(b.addresses[0]);
  introduce_over(way, a, b);
  REQUIRE(loop->run_until([&] { return a.ready.contains(b.id) && b.ready.contains(a.id); }, kPatience));
  constexpr std::int64_t kBytes = 50'000'000;
  std::vector<std::byte> out(kBytes, std::byte{0x5A});
  std::uint64_t transfer = 0;
  for (int turn = 0; turn < 6; ++turn) {
    CAPTURE(turn);
    Node &from = turn % 2 == 0 ? a : b, &to = turn % 2 == 0 ? b : a;
    std::vector<std::byte> in(kBytes), in_between(kBytes), later(kBytes);
    End never, cut, sent, waited, again;
    to.exchange->receive(from.id, ++transfer, in.data(), 1'000, kHost, into(never));  // nobody sends it
    to.exchange->receive(from.id, ++transfer, in.data(), kBytes, kHost, into(cut));
    from.exchange->transmit(to.id, transfer, out.data(), kBytes, kHost, into(sent));
    if (turn > 1) loop->run_until([] { return false; }, 2 * kMillisecond);
    way.set_up(false);
    REQUIRE(loop->run_until([&] { return never.times > 0 && cut.times > 0; }, kPatience));
    CHECK(never.code() == Errc::kUnavailable);
    CHECK((cut.code() == Errc::kUnavailable || in == out));  // it may have been quick
    REQUIRE(loop->run_until(
        [&] { return a.exchange->counters().links == 0 && b.exchange->counters().links == 0; }, kPatience));
    // What cannot leave now: a receive waits with its grant; nobody waits for what is sent.
    const std::uint64_t held = ++transfer, disarmed = ++transfer;
    to.exchange->receive(from.id, held, in_between.data(), kBytes, kHost, into(waited));
    to.exchange->receive(from.id, held, in_between.data(), kBytes, kHost, into(again));  // a repeat
    End gone, refused;
    to.exchange->receive(from.id, disarmed, later.data(), 10, kHost, into(gone));
    to.exchange->disarm(from.id, disarmed);
    from.exchange->transmit(to.id, 999, out.data(), 10, kHost, into(refused));
    REQUIRE(to.exchange->send(from.id, grant_of(held)));
    REQUIRE(loop->run_until([&] { return gone.times > 0 && refused.times > 0; }, kPatience));
    CHECK(gone.code() == Errc::kNotFound);
    CHECK(refused.code() == Errc::kUnavailable);
    const std::size_t before = from.batches.size();
    way.set_up(true);
    REQUIRE(loop->run_until([&] { return from.batches.size() > before; }, kPatience));
    REQUIRE(loop->run_until([&] { return sent.times > 0; }, kPatience));  // however: its memory is ours again
    End second_sent;
    from.exchange->transmit(to.id, held, out.data(), kBytes, kHost, into(second_sent));
    REQUIRE(loop->run_until([&] { return waited.times > 0 && second_sent.times > 0; }, kPatience));
    // The first connection after a break may meet the end of the old one: then it is tried again, as cores do.
    for (int i = 0; i < 5 && waited.code() == Errc::kUnavailable; ++i) {
      MESSAGE("turn " << turn << ", again: " << waited.status.error().message);
      waited = second_sent = End{};
      to.exchange->receive(from.id, ++transfer, in_between.data(), kBytes, kHost, into(waited));
      from.exchange->transmit(to.id, transfer, out.data(), kBytes, kHost, into(second_sent));
      REQUIRE(loop->run_until([&] { return waited.times > 0 && second_sent.times > 0; }, kPatience));
    }
    CHECK(waited.code() == Errc::kOk);
    CHECK(in_between == out);
    CHECK(again.times == 0);
  }
  CHECK(a.exchange->ucx_counters().quarantined == 0);
  CHECK(b.exchange->ucx_counters().quarantined == 0);
  CHECK(a.exchange->counters().resumed == 6);
}

TEST_CASE("a peer lost while its link is broken: what waited ends") {
  auto loop = make_loop();
  Options first = tcp_options("a's"), second = tcp_options("b's");
  first.use_ucx = second.use_ucx = true;
  first.ucx.transports = second.ucx.transports = "tcp";
  Node a(*loop, 1, std::move(first)), b(*loop, 2, std::move(second));
  Way way(b.addresses[0]);
  introduce_over(way, a, b);
  REQUIRE(loop->run_until([&] { return a.ready.contains(b.id) && b.ready.contains(a.id); }, kPatience));
  way.set_up(false);
  REQUIRE(loop->run_until([&] { return b.exchange->counters().links == 0; }, kPatience));
  std::byte byte{};
  End end;
  b.exchange->receive(a.id, 1, &byte, 1, kHost, into(end));
  b.exchange->peer_lost(a.id);
  REQUIRE(loop->run_until([&] { return end.times > 0; }, kPatience));
  CHECK(end.code() == Errc::kWorkerLost);
  way.set_up(true);
  REQUIRE(loop->run_until([&] { return b.exchange->counters().strangers_closed > 0; }, kPatience));
  CHECK(b.unreachable.empty());
}

TEST_CASE("who holds the token, but is not the other end of the link, gets no data connection") {
  auto loop = make_loop();
  Options first = tcp_options("a's"), second = tcp_options("b's");
  first.use_ucx = second.use_ucx = true;
  Node a(*loop, 1, std::move(first)), b(*loop, 2, std::move(second));
  REQUIRE(meet(*loop, a, b));
  REQUIRE(loop->run_until([&] { return b.exchange->ucx_counters().streams == 1; }, kPatience));
  Script forger(*loop, b, 1);
  std::array<std::byte, 40> word{};
  word[0] = std::byte{1}, word[4] = std::byte{2};  // from worker 1 to worker 2
  for (const std::size_t bytes : {word.size(), std::size_t{8}, std::size_t{0}}) {
    CAPTURE(bytes);
    const std::int64_t closed = b.exchange->counters().strangers_closed;
    forger.dial();
    REQUIRE(forger.link->send(0x7D00, std::span(word).first(bytes)));
    forger.until([&] { return forger.closed; });
    CHECK(b.exchange->counters().strangers_closed == closed + 1);
  }
  CHECK(b.exchange->ucx_counters().streams == 1);
  CHECK(b.unreachable.empty());
  std::vector<std::byte> out(100'000, std::byte{0x33}), in(out.size());
  End good;
  b.exchange->receive(a.id, 1, in.data(), 100'000, kHost, into(good));
  a.exchange->transmit(b.id, 1, out.data(), 100'000, kHost, {});
  REQUIRE(loop->run_until([&] { return good.times > 0; }, kPatience));
  CHECK(good.code() == Errc::kOk);
  CHECK(in == out);
}

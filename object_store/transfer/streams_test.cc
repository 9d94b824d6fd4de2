// Deadlines of what comes over a stream: an engine, and a test that writes the other end byte by byte.
#include <tilewise/net/event_loop.h>

#include <unistd.h>

#include "stream_lane.h"
#include "transfer_test_util.h"

using namespace tilewise;
using namespace tilewise::transfer;
using namespace tilewise::transfer::test;

namespace {

constexpr TimeNs kDeadline = 200 * kMillisecond;

struct Receiver {
  std::unique_ptr<net::EventLoop> loop = std::move(net::EventLoop::create().value());
  std::unique_ptr<UcxEngine> engine =
      std::move(UcxEngine::create({.transports = "tcp", .deadline_ns = kDeadline}).value());
  std::unique_ptr<net::ByteStream> peer;
  std::vector<std::byte> memory = std::vector<std::byte>(1000);
  End end;

  Receiver() {
    auto streams = net::make_memory_pair(*loop, *loop);
    peer = std::move(streams.second);
    REQUIRE(engine->add_peer(cookie_of(1), ""));
    engine->use_stream(cookie_of(1));
    REQUIRE(engine->attach_stream(cookie_of(1), std::move(streams.first), true));
    const LaneWord first;
    write(std::as_bytes(std::span(&first, 1)));
    REQUIRE(engine->expect(cookie_of(1), 1, memory.data(), 1000, device::Kind::kHost, into(end)));
  }
  void write(std::span<const std::byte> bytes) {
    const net::ByteStream::Piece piece = bytes;
    REQUIRE(peer->try_write({&piece, 1}, {}).value() == bytes.size());
  }
  void announce(std::uint64_t transfer, std::uint64_t bytes) {
    const LaneWord word{.kind = LaneWord::Kind::kBlock, .block = {cookie_of(1), transfer, bytes}};
    write(std::as_bytes(std::span(&word, 1)));
  }
  // So long, or until it has ended.
  TimeNs pass(TimeNs time) {
    const TimeNs from = monotonic_now();
    while (end.times == 0 && monotonic_now() - from < time) {
      loop->run_until([] { return false; }, 5 * kMillisecond);
      engine->progress();
    }
    return monotonic_now() - from;
  }
};

}  // namespace

TEST_CASE("a receive over a stream has a deadline, from when anything of it or of what is before it came") {
  Receiver r;
  std::vector<std::byte> sent(1000);
  fill(sent, 3);
  SUBCASE("a silent sender") {
    const TimeNs took = r.pass(kPatience);
    REQUIRE(r.end.times == 1);
    CHECK(r.end.status.error().code == Errc::kTimeout);
    CHECK(took >= kDeadline - 20 * kMillisecond);
    CHECK(r.engine->idle());  // nothing is in quarantine: nobody else writes that memory
  }
  SUBCASE("a slow one, which takes longer than that") {
    r.announce(1, 1000);
    for (std::size_t i = 0; i < 10; ++i) {
      r.pass(kDeadline / 3);
      REQUIRE(r.end.times == 0);
      r.write(std::span(sent).subspan(i * 100, 100));
    }
    r.pass(kPatience);
    REQUIRE(r.end.status);
    CHECK(r.memory == sent);
  }
  SUBCASE("one that stops in the middle") {
    r.announce(1, 1000);
    r.write(std::span(sent).first(100));
    r.pass(kPatience);
    REQUIRE(r.end.times == 1);
    CHECK(r.end.status.error().code == Errc::kTimeout);
  }
  SUBCASE("one that sends others for a while, and then this one") {
    for (std::uint64_t i = 0; i < 6; ++i) {
      r.announce(100 + i, 100);
      r.write(std::span(sent).first(100));
      r.pass(kDeadline / 2);
      REQUIRE(r.end.times == 0);
    }
    r.announce(1, 1000);
    r.write(sent);
    r.pass(kPatience);
    CHECK(r.end.status);
  }
  SUBCASE("one that sends others for ever") {
    const TimeNs from = monotonic_now();
    for (std::uint64_t i = 0; r.end.times == 0 && monotonic_now() - from < kPatience; ++i) {
      r.announce(100 + i, 100);
      r.write(std::span(sent).first(100));
      r.pass(kDeadline / 4);
    }
    REQUIRE(r.end.times == 1);
    CHECK(r.end.status.error().code == Errc::kTimeout);
    CHECK(monotonic_now() - from >= 9 * kDeadline);
  }
  SUBCASE("one that sends others for long, of which this is one of many") {
    const TimeNs from = monotonic_now();
    for (std::uint64_t i = 0; monotonic_now() - from < 12 * kDeadline; ++i) {
      r.announce(100 + i, 100);
      r.write(std::span(sent).first(100));
      r.engine->extend(cookie_of(1), 1, false);
      r.engine->extend(cookie_of(1), 2, false);  // there is none
      r.pass(kDeadline / 4);
      REQUIRE(r.end.times == 0);
    }
    r.announce(1, 1000);
    r.write(sent);
    r.pass(kPatience);
    CHECK(r.end.status);
  }
}

namespace {

// Has room for so much, and then none.
struct Narrow final : Sink {
  explicit Narrow(std::size_t room) : memory(room) {}
  std::optional<std::span<std::byte>> room() override { return std::span(memory).subspan(full); }
  void came(std::size_t bytes) override { full += bytes; }
  std::vector<std::byte> memory;
  std::size_t full = 0;
};

// Two engines of this process, whose blocks are read in place.
struct Two {
  std::unique_ptr<net::EventLoop> loop = std::move(net::EventLoop::create().value());
  std::unique_ptr<UcxEngine> engines[2];

  Two() {
    auto streams = net::make_ring_pair(*loop, *loop).value();
    for (auto& engine : engines) {
      engine = std::move(
          UcxEngine::create({.transports = "tcp", .deadline_ns = kDeadline, .grace_ns = kDeadline / 2})
              .value());
      REQUIRE(engine->add_peer(cookie_of(1), ""));
      engine->use_stream(cookie_of(1));
    }
    REQUIRE(engines[0]->attach_stream(cookie_of(1), std::move(streams.first), true));
    REQUIRE(engines[1]->attach_stream(cookie_of(1), std::move(streams.second), false));
  }
  void turn() {
    loop->run_until([] { return false; }, kMillisecond);
    for (auto& engine : engines) engine->progress();
  }
};

}  // namespace

TEST_CASE("a block in place that stands still ends at its deadline, at both ends, though others are read") {
  Two t;
  std::vector<std::byte> out(1'000'000), in(out.size());
  fill(out, 3);
  const auto bytes = static_cast<std::int64_t>(out.size());
  TimeNs least = 0;
  std::size_t room = 0;
  SUBCASE("when some of it was read") { room = 400'000, least = kDeadline / 2; }
  SUBCASE("when none was: those before it may take as long as ten of it") { least = 9 * kDeadline; }
  Narrow sink(room);
  End stuck, lent;
  REQUIRE(t.engines[1]->expect(cookie_of(1), 1, sink, bytes, into(stuck)));
  REQUIRE(t.engines[0]->transmit(cookie_of(1), 1, out.data(), bytes, device::Kind::kHost, into(lent)));
  const TimeNs from = monotonic_now();
  int passed = 0;
  for (std::uint64_t number = 2; lent.times == 0 && monotonic_now() - from < kPatience; ++number) {
    End received, sent;
    REQUIRE(
        t.engines[1]->expect(cookie_of(1), number, in.data(), bytes, device::Kind::kHost, into(received)));
    REQUIRE(t.engines[0]->transmit(cookie_of(1), number, out.data(), bytes, device::Kind::kHost, into(sent)));
    while (received.times == 0 || sent.times == 0) t.turn();
    REQUIRE(received.status);
    CHECK(received.via == Via::kSharedMemory);
    ++passed;
  }
  CHECK(passed > 1);
  REQUIRE(stuck.times == 1);
  CHECK(stuck.status.error().code == Errc::kTimeout);
  CHECK(monotonic_now() - from >= least);
  CHECK(lent.status);  // the peer does not want it any more, which is the receiver's to tell
  CHECK(in == out);
}

TEST_CASE("memory that is lent to a peer that does not read it is free again soon after the deadline") {
  Two t;
  std::vector<std::byte> out(1'000'000), in(out.size());
  const auto bytes = static_cast<std::int64_t>(out.size());
  End first, lent, received;
  REQUIRE(t.engines[1]->expect(cookie_of(1), 1, in.data(), bytes, device::Kind::kHost, into(received)));
  REQUIRE(t.engines[0]->transmit(cookie_of(1), 1, out.data(), bytes, device::Kind::kHost, into(first)));
  while (first.times == 0) t.turn();
  // The receiver stands still from here on: only the sender's half goes.
  REQUIRE(t.engines[0]->transmit(cookie_of(1), 2, out.data(), bytes, device::Kind::kHost, into(lent)));
  std::optional<Error> lost;
  t.engines[0]->set_stream_hooks({.on_lost = [&](const Cookie&, const Error& why) { lost = why; }});
  const TimeNs from = monotonic_now();
  while (lent.times == 0 && monotonic_now() - from < kPatience) {
    t.engines[0]->progress();
    ::usleep(1'000);
  }
  REQUIRE(lent.times == 1);
  CHECK(lent.status.error().code == Errc::kTimeout);
  REQUIRE(lost);
  CHECK(lost->code == Errc::kTimeout);
  CHECK(t.engines[0]->counters().quarantined == 0);
}

// Deadlines of what comes over a stream: an engine, and a test that writes the other end byte by byte.
#include <tilewise/net/event_loop.h>

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
}

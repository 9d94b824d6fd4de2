#include "net_test_util.h"

#include <tilewise/base/prng.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <thread>

using namespace tilewise;
using namespace tilewise::net;
using namespace tilewise::net::test;

namespace {

enum class Over : std::uint8_t { kMemory, kSocket, kRing };
constexpr Over kEvery[] = {Over::kMemory, Over::kSocket, Over::kRing};

StreamPair streams(EventLoop& loop, Over over) {
  if (over == Over::kMemory) return make_memory_pair(loop, loop, 4096);
  auto pair = over == Over::kSocket ? make_socket_pair(loop, loop) : make_ring_pair(loop, loop, 4096);
  REQUIRE(pair);
  return std::move(*pair);
}

// Runs the test case once over each stream that passes descriptors.
Over between_processes() {
  Over over = Over::kSocket;
  SUBCASE("over a socket") {}
  SUBCASE("over rings") { over = Over::kRing; }
  return over;
}

UniqueFd memfd(std::string_view text) {
  UniqueFd fd(::memfd_create("test", MFD_CLOEXEC));
  CHECK(::write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  return fd;
}

std::string content(const UniqueFd& fd) {
  char text[64];
  ssize_t n = ::pread(fd.get(), text, sizeof(text), 0);
  return n < 0 ? "unreadable" : std::string(text, static_cast<std::size_t>(n));
}

}  // namespace

TEST_CASE("frames arrive in order and unchanged, both ways, over memory and sockets") {
  for (Over over : kEvery) {
    CAPTURE(static_cast<int>(over));
    auto loop = make_loop();
    LinkPair pair;
    start_pair(*loop, streams(*loop, over), pair);
    Prng prng(11);
    std::vector<std::pair<std::uint16_t, std::string>> there, back;
    for (int i = 0; i < 300; ++i) {
      std::string payload = pattern(prng.below(i % 50 == 0 ? 300'000 : 200), prng.next());
      auto& list = i % 3 == 0 ? back : there;
      list.emplace_back(static_cast<std::uint16_t>(i), payload);
      Link& from = i % 3 == 0 ? *pair.b.link : *pair.a.link;
      REQUIRE(from.send(static_cast<std::uint16_t>(i), bytes_of(payload)));
    }
    CHECK(pair.b.frames.empty());  // nothing happens inside send
    CHECK(loop->run_until(
        [&] { return pair.b.frames.size() == there.size() && pair.a.frames.size() == back.size(); },
        kPatience));
    CHECK((pair.b.frames == there));
    CHECK((pair.a.frames == back));
    CHECK(pair.a.link->counters().frames_out == there.size());
    CHECK(pair.b.link->counters().bytes_in == pair.a.link->counters().bytes_out);
    CHECK(pair.a.link->outgoing_bytes() == 0);
  }
}

TEST_CASE("a batch of small frames is one write") {
  const Over over = between_processes();
  auto loop = make_loop();
  LinkPair pair;
  start_pair(*loop, streams(*loop, over), pair);
  std::string_view first = "fi", second = "rst";
  std::span<const std::byte> pieces[] = {bytes_of(first), bytes_of(second)};
  REQUIRE(pair.a.link->send(1, std::span(pieces)));
  for (int i = 0; i < 999; ++i) REQUIRE(pair.a.link->send(2, bytes_of("small")));
  CHECK(loop->run_until([&] { return pair.b.frames.size() == 1000; }, kPatience));
  CHECK(pair.b.frames[0].second == "first");
  CHECK(pair.a.link->counters().writes == (over == Over::kRing ? 24'000 / 4096 + 1 : 1));
}

TEST_CASE("flush writes at once, and the receive time moves") {
  const Over over = between_processes();
  auto loop = make_loop();
  LinkPair pair;
  start_pair(*loop, streams(*loop, over), pair);
  TimeNs before = pair.b.link->last_receive_ns();
  REQUIRE(pair.a.link->send(1, bytes_of("now")));
  CHECK(pair.a.link->outgoing_bytes() > 0);
  pair.a.link->flush();
  CHECK(pair.a.link->outgoing_bytes() == 0);
  CHECK(loop->run_until([&] { return pair.b.frames.size() == 1; }, kPatience));
  CHECK(pair.b.link->last_receive_ns() > before);
}

TEST_CASE("backpressure: a full queue refuses, and tells when it has drained") {
  for (Over over : kEvery) {
    auto loop = make_loop();
    auto ends = streams(*loop, over);
    Recorder a;
    a.start(Link::adopt(*loop, std::move(ends.first), Cookie{}, {.max_outgoing_bytes = 4 << 20}));
    const std::string payload = pattern(50'000);
    int accepted = 0;
    Status status;
    while ((status = a.link->send(3, bytes_of(payload)))) REQUIRE(++accepted < 1000);
    CHECK(status.error().code == Errc::kLimitExceeded);
    CHECK(accepted == (4 << 20) / (50'000 + 16));
    CHECK(a.link->outgoing_bytes() <= 4 << 20);
    settle(*loop, 2 * kMillisecond);
    CHECK(a.drained == 0);  // nobody reads yet
    CHECK(a.link->is_open());
    Recorder b;
    b.start(Link::adopt(*loop, std::move(ends.second), Cookie{}));
    CHECK(loop->run_until([&] { return a.drained == 1; }, kPatience));
    CHECK(a.link->send(3, bytes_of(payload)));
    CHECK(loop->run_until([&] { return b.frames.size() == static_cast<std::size_t>(accepted) + 1; },
                          kPatience));
    CHECK(a.drained == 1);
    for (auto& frame : b.frames) CHECK((frame.second == payload));
  }
}

TEST_CASE("a frame above the limit is refused by the sender, and by the receiver") {
  auto loop = make_loop();
  auto ends = streams(*loop, Over::kMemory);
  Recorder a, b;
  a.start(Link::adopt(*loop, std::move(ends.first), Cookie{}));
  b.start(Link::adopt(*loop, std::move(ends.second), Cookie{}, {.max_frame_bytes = 100}));
  std::string payload(101, 'x');
  CHECK(b.link->send(1, bytes_of(payload)).error().code == Errc::kLimitExceeded);
  CHECK(b.link->send(1, bytes_of(payload).first(100)));
  CHECK(a.link->send(1, bytes_of(payload)));
  CHECK(loop->run_until([&] { return b.closed && a.closed; }, kPatience));
  CHECK(b.why() == Errc::kLimitExceeded);
  CHECK(a.why() == Errc::kUnavailable);
  CHECK(a.frames.size() == 1);
  CHECK(b.frames.empty());
  CHECK(a.link->send(1, bytes_of("x")).error().code == Errc::kUnavailable);
}

TEST_CASE("close: frames before it are delivered, then one on_close with the reason") {
  for (Over over : kEvery) {
    CAPTURE(static_cast<int>(over));
    auto loop = make_loop();
    LinkPair pair;
    start_pair(*loop, streams(*loop, over), pair);
    REQUIRE(pair.a.link->send(1, bytes_of("last words")));
    pair.a.link.reset();  // tries once what was queued
    REQUIRE(pair.b.link->send(1, bytes_of("into the void")));
    pair.b.link->flush();  // fails before anything was read
    CHECK(loop->run_until([&] { return pair.b.closed.has_value(); }, kPatience));
    CHECK(pair.b.why() == Errc::kUnavailable);
    REQUIRE(pair.b.frames.size() == 1);  // although writing failed first
    CHECK(pair.b.frames[0].second == "last words");
    CHECK(!pair.a.closed);
    CHECK(!pair.b.link->is_open());
  }
}

TEST_CASE("a failing write does not cost what the peer had said before it left") {
  auto loop = make_loop();
  LinkPair pair;
  start_pair(*loop, make_memory_pair(*loop, *loop, 4 << 20), pair);
  for (int i = 0; i < 20; ++i)
    REQUIRE(pair.a.link->send(1, bytes_of(pattern(100'000))));  // many reads' worth
  REQUIRE(pair.a.link->send(2, bytes_of("last words")));
  pair.a.link.reset();
  REQUIRE(pair.b.link->send(1, bytes_of("into the void")));
  pair.b.link->flush();
  CHECK(pair.b.link->send(1, bytes_of("more")).error().code == Errc::kUnavailable);
  CHECK(loop->run_until([&] { return pair.b.closed.has_value(); }, kPatience));
  REQUIRE(pair.b.frames.size() == 21);
  CHECK(pair.b.frames.back().second == "last words");
}

TEST_CASE("an end in the middle of a frame says so") {
  const Over over = between_processes();
  auto loop = make_loop();
  auto ends = streams(*loop, over);
  RawPeer peer{*loop, std::move(ends.first)};
  Recorder b;
  b.start(Link::adopt(*loop, std::move(ends.second), Cookie{}));
  std::string wire = frame_text(1, pattern(100));
  peer.write(wire + wire.substr(0, wire.size() - 1));
  peer.stream.reset();
  CHECK(loop->run_until([&] { return b.closed.has_value(); }, kPatience));
  CHECK(b.why() == Errc::kUnavailable);
  CHECK(b.closed->message.find("in the middle of a frame") != std::string::npos);
  CHECK(b.frames.size() == 1);
}

TEST_CASE("garbage after good frames closes the link with a typed error") {
  const Over over = between_processes();
  auto loop = make_loop();
  auto ends = streams(*loop, over);
  RawPeer peer{*loop, std::move(ends.first)};
  Recorder b;
  b.start(Link::adopt(*loop, std::move(ends.second), Cookie{}));
  peer.write(frame_text(1, "good") + "GET / HTTP/1.1\r\n" + frame_text(2, "never seen"));
  CHECK(loop->run_until([&] { return b.closed.has_value(); }, kPatience));
  CHECK(b.why() == Errc::kCorruptData);
  CHECK(b.frames.size() == 1);
  CHECK(peer.read(1).empty());  // and the peer sees the end
}

TEST_CASE("retire writes what is queued, drops what comes, and needs nobody") {
  for (Over over : kEvery) {
    auto loop = make_loop();
    LinkPair pair;
    start_pair(*loop, streams(*loop, over), pair);
    const std::string payload = pattern(3'000'000);
    REQUIRE(pair.b.link->send(1, bytes_of(payload)));  // in flight towards the one that retires
    REQUIRE(pair.a.link->send(1, bytes_of(payload)));
    REQUIRE(pair.a.link->send(2, bytes_of("rejected, because")));
    Link::retire(std::move(pair.a.link), 100 * kPatience);
    CHECK(loop->run_until([&] { return pair.b.closed.has_value(); }, kPatience));
    REQUIRE(pair.b.frames.size() == 2);
    CHECK((pair.b.frames[0].second == payload));
    CHECK(pair.b.frames[1].second == "rejected, because");
    CHECK(pair.a.frames.empty());
    CHECK(!pair.a.closed);
  }
}

TEST_CASE("retire gives up after its time when the peer does not close") {
  const Over over = between_processes();
  auto loop = make_loop();
  auto ends = streams(*loop, over);
  RawPeer peer{*loop, std::move(ends.second)};
  Recorder a;
  a.start(Link::adopt(*loop, std::move(ends.first), Cookie{}));
  REQUIRE(a.link->send(1, bytes_of("bye")));
  Link::retire(std::move(a.link), 5 * kMillisecond);
  CHECK(peer.read(1000).size() == kFrameHeaderBytes + 8);
  bool refused = false;
  loop->run_until(
      [&] {
        ByteStream::Piece piece = bytes_of("x");
        refused = !peer.stream->try_write({&piece, 1}, {});
        if (!refused) loop->after(kMillisecond, [] {});
        return refused;
      },
      kPatience);
  CHECK(refused);
}

TEST_CASE("a link may be destroyed in each of its callbacks") {
  for (Over over : kEvery) {
    CAPTURE(static_cast<int>(over));
    auto loop = make_loop();
    {  // on_frame, with more frames in the same read; what the handler captured stays alive until it returns
      auto ends = streams(*loop, over);
      Recorder b;
      b.start(Link::adopt(*loop, std::move(ends.second), Cookie{}));
      auto a = Link::adopt(*loop, std::move(ends.first), Cookie{});
      int seen = 0;
      auto witness = std::make_shared<int>(42);
      std::weak_ptr<int> alive = witness;
      a->start({.on_frame =
                    [&seen, &a, witness](Frame& frame) {
                      ++seen;
                      std::string copy = text_of(frame.payload);
                      a.reset();
                      CHECK(copy == text_of(frame.payload));
                      CHECK(*witness == 42);
                    },
                .on_close = [](const Error&) { CHECK(false); }});
      witness.reset();
      for (int i = 0; i < 3; ++i) REQUIRE(b.link->send(1, bytes_of("frame")));
      CHECK(loop->run_until([&] { return b.closed.has_value(); }, kPatience));
      CHECK(seen == 1);
      while (loop->poll()) {
      }
      CHECK(alive.expired());
    }
    {  // on_close
      LinkPair pair;
      auto ends = streams(*loop, over);
      auto a = Link::adopt(*loop, std::move(ends.first), Cookie{});
      bool closed = false;
      a->start({.on_frame = [](Frame&) {},
                .on_close =
                    [&](const Error& why) {
                      a.reset();
                      closed = !why.message.empty();
                    }});
      ends.second.reset();
      CHECK(loop->run_until([&] { return closed; }, kPatience));
    }
    {  // on_drained
      auto ends = streams(*loop, over);
      auto a = Link::adopt(*loop, std::move(ends.first), Cookie{}, {.max_outgoing_bytes = 1000});
      a->start({.on_frame = [](Frame&) {},
                .on_close = [](const Error&) { CHECK(false); },
                .on_drained = [&] { a.reset(); }});
      REQUIRE(a->send(1, bytes_of(std::string(600, 'x'))));
      REQUIRE(!a->send(1, bytes_of(std::string(600, 'x'))));
      CHECK(loop->run_until([&] { return !a; }, kPatience));
    }
    {  // and before anything was started, with frames queued and errors pending
      auto ends = streams(*loop, over);
      auto a = Link::adopt(*loop, std::move(ends.first), Cookie{});
      ends.second.reset();
      REQUIRE(a->send(1, bytes_of("x")));
      a->flush();
      a.reset();
      settle(*loop, kMillisecond);
    }
  }
}

TEST_CASE("a transport that fails before start is reported after it") {
  const Over over = between_processes();
  auto loop = make_loop();
  auto ends = streams(*loop, over);
  auto link = Link::adopt(*loop, std::move(ends.first), Cookie{});
  ends.second.reset();
  REQUIRE(link->send(1, bytes_of("x")));
  settle(*loop, 2 * kMillisecond);
  Recorder a;
  a.start(std::move(link));
  CHECK(!a.closed);
  CHECK(loop->run_until([&] { return a.closed.has_value(); }, kPatience));
  CHECK(a.why() == Errc::kUnavailable);
}

TEST_CASE("descriptors arrive with their frame, among many others") {
  const Over over = between_processes();
  auto loop = make_loop();
  LinkPair pair;
  start_pair(*loop, streams(*loop, over), pair);
  CHECK(pair.a.link->can_pass_fds());
  std::vector<std::string> sent;
  for (int i = 0; i < 200; ++i) {
    std::vector<UniqueFd> fds;
    for (int k = 0; k < (i % 40 == 0 ? 16 : i % 7 == 0 ? 1 : 0); ++k) {
      sent.push_back(std::to_string(i) + "/" + std::to_string(k));
      fds.push_back(memfd(sent.back()));
    }
    std::string payload = pattern(i % 50 == 0 ? 300'000 : 100);
    REQUIRE(pair.a.link->send(static_cast<std::uint16_t>(i), bytes_of(payload), std::move(fds)));
    if (i % 10 == 0) loop->poll();
  }
  CHECK(loop->run_until([&] { return pair.b.frames.size() == 200; }, kPatience));
  REQUIRE(pair.b.fds.size() == sent.size());
  for (std::size_t i = 0; i < sent.size(); ++i) CHECK(content(pair.b.fds[i]) == sent[i]);
  CHECK((::fcntl(pair.b.fds[0].get(), F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_CASE("descriptors that are not taken are closed; too many, or over memory, are refused") {
  const Over over = between_processes();
  auto loop = make_loop();
  auto ends = streams(*loop, over);
  Recorder a;
  a.start(Link::adopt(*loop, std::move(ends.first), Cookie{}));
  auto b = Link::adopt(*loop, std::move(ends.second), Cookie{});
  int seen = -1;
  b->start(
      {.on_frame = [&](Frame& frame) { seen = frame.fds.at(0).get(); }, .on_close = [](const Error&) {}});
  std::vector<UniqueFd> one;
  one.push_back(memfd("x"));
  REQUIRE(a.link->send(1, bytes_of("with"), std::move(one)));
  CHECK(loop->run_until([&] { return seen >= 0; }, kPatience));
  CHECK(::fcntl(seen, F_GETFD) == -1);
  std::vector<UniqueFd> many;
  for (int i = 0; i < 17; ++i) many.push_back(memfd("x"));
  CHECK(a.link->send(1, bytes_of("with"), std::move(many)).error().code == Errc::kLimitExceeded);
  LinkPair memory;
  start_pair(*loop, streams(*loop, Over::kMemory), memory);
  CHECK(!memory.a.link->can_pass_fds());
  one.clear();
  one.push_back(memfd("x"));
  CHECK(memory.a.link->send(1, bytes_of("x"), std::move(one)).error().code == Errc::kUnsupported);
}

TEST_CASE("descriptors that no frame announced, or announced ones that are missing, end the link") {
  const Over over = between_processes();
  auto loop = make_loop();
  for (int announced : {0, 2}) {
    CAPTURE(announced);
    auto ends = streams(*loop, over);
    Recorder b;
    b.start(Link::adopt(*loop, std::move(ends.second), Cookie{}));
    std::string wire = frame_text({.type = 1, .fds = static_cast<std::uint8_t>(announced)}, "");
    ByteStream::Piece piece = bytes_of(wire);
    std::vector<UniqueFd> one;
    one.push_back(memfd("x"));
    REQUIRE(ends.first->try_write({&piece, 1}, one));
    CHECK(loop->run_until([&] { return b.closed.has_value(); }, kPatience));
    CHECK(b.why() == Errc::kCorruptData);
    CHECK(b.fds.empty());
  }
}

TEST_CASE("injected faults: short reads and delays do no harm, flips and ends are noticed") {
  auto loop = make_loop();
  auto run = [&](Faults faults, LinkPair& pair, int frames) {
    auto ends = make_memory_pair(*loop, *loop);
    ends.second = inject_faults(*loop, std::move(ends.second), std::make_shared<Faults>(faults));
    start_pair(*loop, std::move(ends), pair);
    for (int i = 0; i < frames; ++i) {
      REQUIRE(pair.a.link->send(7, bytes_of(pattern(100, static_cast<std::uint64_t>(i)))));
      REQUIRE(pair.b.link->send(7, bytes_of(pattern(100, static_cast<std::uint64_t>(i)))));
    }
  };
  {
    LinkPair pair;
    run({.max_read_bytes = 7, .max_write_bytes = 5}, pair, 50);
    CHECK(
        loop->run_until([&] { return pair.a.frames.size() == 50 && pair.b.frames.size() == 50; }, kPatience));
    for (std::size_t i = 0; i < 50; ++i) CHECK((pair.b.frames[i].second == pattern(100, i)));
    CHECK(pair.b.link->counters().reads > 500);
  }
  {
    LinkPair pair;
    TimeNs begin = monotonic_now();
    run({.delay_ns = 5 * kMillisecond}, pair, 1);
    CHECK(loop->run_until([&] { return pair.b.frames.size() == 1; }, kPatience));
    CHECK(monotonic_now() - begin >= 5 * kMillisecond);
  }
  {
    LinkPair pair;
    run({.flip_at = 120 * 3 + 1}, pair, 10);  // the magic of the fourth frame
    CHECK(loop->run_until([&] { return pair.b.closed && pair.a.closed; }, kPatience));
    CHECK(pair.b.why() == Errc::kCorruptData);
    CHECK(pair.b.frames.size() == 3);
  }
  {
    LinkPair pair;
    run({.end_at = 120 * 3 + 50}, pair, 10);
    CHECK(loop->run_until([&] { return pair.b.closed.has_value(); }, kPatience));
    CHECK(pair.b.why() == Errc::kUnavailable);
    CHECK(pair.b.frames.size() == 3);
  }
  {
    LinkPair pair;
    auto ends = make_memory_pair(*loop, *loop);
    auto faults = std::make_shared<Faults>(Faults{.stall_at = 120});
    ends.second = inject_faults(*loop, std::move(ends.second), faults);
    start_pair(*loop, std::move(ends), pair);
    for (int i = 0; i < 3; ++i) REQUIRE(pair.a.link->send(7, bytes_of(pattern(100))));
    CHECK(loop->run_until([&] { return pair.b.frames.size() == 1; }, kPatience));
    settle(*loop, 5 * kMillisecond);
    CHECK(pair.b.frames.size() == 1);
    CHECK(!pair.b.closed);
    faults->stall_at = kNeverAt;
    CHECK(loop->run_until([&] { return pair.b.frames.size() == 3; }, kPatience));
  }
}

TEST_CASE("two loops in two threads over memory, until one side goes") {
  auto first = make_loop();
  auto second = make_loop();
  auto ends = make_memory_pair(*first, *second, 1000);
  constexpr int kFrames = 3000;
  std::thread other([&] {
    Recorder b;
    b.start(Link::adopt(*second, std::move(ends.second), Cookie{}));
    for (int i = 0; i < kFrames; ++i)
      CHECK(b.link->send(1, bytes_of(pattern(50, static_cast<std::uint64_t>(i)))));
    CHECK(second->run_until([&] { return b.closed.has_value(); }, kPatience));
    CHECK(b.frames.size() == kFrames);
  });
  Recorder a;
  a.start(Link::adopt(*first, std::move(ends.first), Cookie{}));
  for (int i = 0; i < kFrames; ++i)
    CHECK(a.link->send(1, bytes_of(pattern(50, static_cast<std::uint64_t>(i)))));
  CHECK(first->run_until([&] { return a.frames.size() == kFrames && a.link->outgoing_bytes() == 0; },
                         kPatience));
  for (std::size_t i = 0; i < a.frames.size(); ++i) CHECK((a.frames[i].second == pattern(50, i)));
  a.link.reset();
  other.join();
}

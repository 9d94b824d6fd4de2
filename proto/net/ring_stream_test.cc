// What rings in shared memory have to stand beyond what every stream promises (byte_stream_test, link_test):
// their ends, sleepers, broken and dying peers.
#include "ring_stream.h"

#include <tilewise/base/prng.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <deque>
#include <thread>

#include "net_test_util.h"

using namespace tilewise;
using namespace tilewise::net;
using namespace tilewise::net::test;

namespace {

constexpr std::size_t kCapacity = SharedRings::kMinCapacity;

// A good end, and the other one's memory and socket laid bare.
struct Hostile {
  EventLoop& loop;
  std::optional<SharedRings> rings;
  std::unique_ptr<ByteStream> socket;
  Recorder good;

  explicit Hostile(EventLoop& l) : loop(l) {
    auto sockets = make_socket_pair(loop, loop);
    REQUIRE(sockets);
    auto ours = SharedRings::create(kCapacity);
    REQUIRE(ours);
    auto memfd = duplicate(ours->memfd());
    auto theirs = SharedRings::import(std::move(*memfd), kCapacity);
    REQUIRE(theirs);
    rings.emplace(std::move(*theirs));
    socket = std::move(sockets->second);
    good.start(Link::adopt(loop, make_ring_stream(loop, std::move(sockets->first), std::move(*ours), true),
                           Cookie{}));
  }
  RingHeader& to_good() { return rings->ring(1).header(); }
  RingHeader& from_good() { return rings->ring(0).header(); }
  void word(std::uint64_t word, std::span<const UniqueFd> fds = {}) {
    const auto bytes = std::bit_cast<std::array<std::byte, 8>>(word);
    ByteStream::Piece piece(bytes);
    REQUIRE(socket->try_write({&piece, 1}, fds).value() == 8);
  }
  Errc ends() {
    loop.run_until([&] { return good.closed.has_value(); }, kPatience);
    return good.why();
  }
};

std::vector<UniqueFd> descriptors(int count) {
  std::vector<UniqueFd> fds;
  for (int i = 0; i < count; ++i) fds.emplace_back(::memfd_create("test", MFD_CLOEXEC));
  return fds;
}

}  // namespace

TEST_CASE("ring: what is written comes out, around the end again and again") {
  auto memory = SharedRings::create(kCapacity);
  REQUIRE(memory);
  RingEnd producer = memory->ring(0), consumer = memory->ring(0);
  Prng prng(3);
  std::deque<std::byte> model;
  for (int i = 0; i < 20'000; ++i) {
    const std::size_t space = producer.space().value();
    CHECK(space == kCapacity - model.size());
    std::vector<std::byte> bytes(prng.below(space + 1));
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(prng.next());
    producer.write(bytes);
    CHECK(consumer.available().value() == model.size());  // not told yet
    producer.publish();
    model.insert(model.end(), bytes.begin(), bytes.end());
    const std::size_t there = consumer.available().value();
    REQUIRE(there == model.size());
    std::vector<std::byte> out(prng.below(there + 1));
    consumer.read(out);
    REQUIRE(std::equal(out.begin(), out.end(), model.begin()));
    model.erase(model.begin(), model.begin() + static_cast<std::ptrdiff_t>(out.size()));
  }
  CHECK(producer.position() > 10 * kCapacity);
}

TEST_CASE("ring: memory that is not what it is said to be is refused") {
  const auto code = [](UniqueFd memfd, std::uint64_t capacity) {
    auto rings = SharedRings::import(std::move(memfd), capacity);
    return rings ? Errc::kOk : rings.error().code;
  };
  const auto good = SharedRings::create(kCapacity);
  REQUIRE(good);
  const auto copy = [&] { return std::move(*duplicate(good->memfd())); };
  CHECK(code(copy(), kCapacity) == Errc::kOk);
  CHECK(code(copy(), 2 * kCapacity) == Errc::kCorruptData);  // another size
  for (std::uint64_t capacity : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{5000}, ~std::uint64_t{0}})
    CHECK(code(copy(), capacity) == Errc::kCorruptData);
  UniqueFd unsealed(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  struct stat info {};
  REQUIRE(::fstat(good->memfd(), &info) == 0);
  REQUIRE(::ftruncate(unsealed.get(), info.st_size) == 0);
  CHECK(code(std::move(*duplicate(unsealed.get())), kCapacity) == Errc::kCorruptData);  // could shrink
  REQUIRE(::fcntl(unsealed.get(), F_ADD_SEALS, F_SEAL_SHRINK) == 0);
  CHECK(code(std::move(unsealed), kCapacity) == Errc::kOk);
  CHECK(code(UniqueFd(::open("/dev/null", O_RDWR | O_CLOEXEC)), kCapacity) == Errc::kCorruptData);
  CHECK(SharedRings::create(5000).error().code == Errc::kInvalidArgument);
  CHECK(::ftruncate(good->memfd(), 0) != 0);  // ours cannot shrink under the peer
}

TEST_CASE("ring: positions that cannot be end the link with a typed error") {
  auto loop = make_loop();
  SUBCASE("more bytes than the ring holds") {
    Hostile peer(*loop);
    peer.to_good().tail = kCapacity + 1;
    CHECK(peer.ends() == Errc::kCorruptData);
  }
  SUBCASE("a producer that goes back") {
    Hostile peer(*loop);
    peer.to_good().tail = 8;  // half a header
    settle(*loop);
    CHECK(!peer.good.closed);
    peer.to_good().tail = 7;
    CHECK(peer.ends() == Errc::kCorruptData);
  }
  SUBCASE("bytes read that were never written") {
    Hostile peer(*loop);
    peer.from_good().head = 1;
    REQUIRE(peer.good.link->send(1, bytes_of("x")));
    CHECK(peer.ends() == Errc::kCorruptData);
  }
  SUBCASE("a consumer that goes back") {
    Hostile peer(*loop);
    REQUIRE(peer.good.link->send(1, bytes_of("x")));
    settle(*loop);
    peer.from_good().head = 24;
    REQUIRE(peer.good.link->send(1, bytes_of("x")));
    settle(*loop);
    CHECK(!peer.good.closed);
    peer.from_good().head = 23;
    REQUIRE(peer.good.link->send(1, bytes_of("x")));
    CHECK(peer.ends() == Errc::kCorruptData);
  }
  SUBCASE("frames that are none") {
    Hostile peer(*loop);
    RingEnd ring = peer.rings->ring(1);
    ring.write(bytes_of(pattern(100)));
    ring.publish();
    CHECK(peer.ends() == Errc::kCorruptData);
  }
}

TEST_CASE("ring: what goes wrong on the socket beside it ends the link with a typed error") {
  auto loop = make_loop();
  Hostile peer(*loop);
  SUBCASE("descriptors announced that did not come") {
    peer.word(2);
    CHECK(peer.ends() == Errc::kCorruptData);
  }
  SUBCASE("for a byte that cannot have been written") {
    peer.word((kCapacity + 1) << 8 | 1, descriptors(1));
    CHECK(peer.ends() == Errc::kCorruptData);
  }
  SUBCASE("for an earlier byte than those before") {
    peer.word(24 << 8 | 1, descriptors(1));
    peer.word(16 << 8 | 1, descriptors(1));
    CHECK(peer.ends() == Errc::kCorruptData);
  }
  SUBCASE("without end, and never a byte") {
    for (int i = 0; i < 257 && !peer.good.closed; ++i) {
      peer.word(1, descriptors(1));
      loop->poll();
    }
    CHECK(peer.ends() == Errc::kLimitExceeded);
  }
  SUBCASE("wake-ups without end do no harm") {
    for (int i = 0; i < 5'000; ++i) {
      peer.word(0);
      loop->poll();
    }
    CHECK(!peer.good.closed);
  }
}

TEST_CASE("ring: flags of a broken peer cost words on the socket, and never block") {
  auto loop = make_loop();
  Hostile peer(*loop);
  RingEnd ring = peer.rings->ring(0);
  for (int i = 0; i < 20'000; ++i) {  // more words than the socket takes; nobody reads them
    ring.header().consumer_sleeps = 1;
    REQUIRE(peer.good.link->send(1, bytes_of("x")));
    peer.good.link->flush();
    std::array<std::byte, 24> frame;
    REQUIRE(ring.available().value() >= frame.size());
    ring.read(frame);
  }
  CHECK(!peer.good.closed);
}

TEST_CASE(
    "ring: a process that is killed in the middle of a frame is noticed, and what it said before is heard") {
  auto loop = make_loop();
  int sockets[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) == 0);
  auto rings = SharedRings::create(kCapacity);
  REQUIRE(rings);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {  // the mapping is shared across the fork
    const std::string wire = frame_text(1, "last words") + frame_text(2, pattern(500)).substr(0, 200);
    RingEnd ring = rings->ring(1);
    ring.write(bytes_of(wire));
    ring.publish();
    ::kill(::getpid(), SIGKILL);
  }
  ::close(sockets[1]);
  Recorder survivor;
  auto stream = adopt_socket(*loop, UniqueFd(sockets[0]));
  REQUIRE(stream);
  survivor.start(
      Link::adopt(*loop, make_ring_stream(*loop, std::move(*stream), std::move(*rings), true), Cookie{}));
  CHECK(loop->run_until([&] { return survivor.closed.has_value(); }, kPatience));
  ::waitpid(child, nullptr, 0);
  CHECK(survivor.why() == Errc::kUnavailable);
  CHECK(survivor.closed->message.find("in the middle of a frame") != std::string::npos);
  REQUIRE(survivor.frames.size() == 1);
  CHECK(survivor.frames[0].second == "last words");
}

namespace {

// Sends and answers on a loop of its own thread, parking or polling at its own pace.
struct Player {
  std::unique_ptr<EventLoop> loop = make_loop();
  std::unique_ptr<Link> link;
  Prng prng;
  std::atomic<int> received{0};
  std::string wrong;  // doctest's macros stay on the main thread

  explicit Player(std::uint64_t seed) : prng(seed) {}
  void send(int n) {
    const std::string text = pattern(prng.below(16) == 0 ? 9'000 : 40, static_cast<std::uint64_t>(n));
    if (!link->send(static_cast<std::uint16_t>(n & 0x7fff), bytes_of(text))) wrong = "refused";
  }
  // Now and then the loop's way of waiting changes, so that every meeting of writing, looking and falling
  // asleep happens some time.
  void pace() { loop->set_spin(prng.below(3) == 0 ? static_cast<TimeNs>(prng.below(20)) * kMicrosecond : 0); }
};

}  // namespace

TEST_CASE("ring: two threads that poll and park as they like lose no wake-up and no byte") {
  constexpr int kRounds = 20'000;
  Player a(1), b(2);
  auto streams = make_ring_pair(*a.loop, *b.loop, kCapacity);
  REQUIRE(streams);
  a.link = Link::adopt(*a.loop, std::move(streams->first), Cookie{});
  b.link = Link::adopt(*b.loop, std::move(streams->second), Cookie{});
  const auto play = [](Player& me) {
    me.link->start({.on_frame =
                        [&me](Frame& frame) {
                          const int n = me.received++;
                          if (frame.type != (n & 0x7fff) ||
                              text_of(frame.payload) !=
                                  pattern(frame.payload.size(), static_cast<std::uint64_t>(n)))
                            me.wrong = "another frame";
                          me.pace();
                          if (n + 1 < kRounds) me.send(n + 1);
                        },
                    .on_close = [&me](const Error& why) { me.wrong = why.message; }});
    me.send(0);
    me.loop->run_until([&me] { return me.received == kRounds || !me.wrong.empty(); }, 5 * kPatience);
    me.loop->run_until([] { return false; }, 20 * kMillisecond);  // what is queued for the other one
  };
  std::thread other([&] { play(b); });
  play(a);
  other.join();
  CHECK(a.wrong == "");
  CHECK(b.wrong == "");
  CHECK(a.received == kRounds);
  CHECK(b.received == kRounds);
}

TEST_CASE("ring: a slow reader's bytes wait in the sender, who sleeps meanwhile") {
  Player writer(1), reader(2);
  auto streams = make_ring_pair(*writer.loop, *reader.loop, kCapacity);
  REQUIRE(streams);
  writer.link = Link::adopt(*writer.loop, std::move(streams->first), Cookie{});
  reader.link = Link::adopt(*reader.loop, std::move(streams->second), Cookie{});
  constexpr int kFrames = 300;
  std::thread other([&] {
    reader.link->start({.on_frame =
                            [&](Frame& frame) {
                              if (text_of(frame.payload) != pattern(20'000, frame.type))
                                reader.wrong = "another frame";
                              if (++reader.received % 50 == 0)
                                std::this_thread::sleep_for(std::chrono::milliseconds(2));
                            },
                        .on_close = [&](const Error& why) { reader.wrong = why.message; }});
    reader.loop->run_until([&] { return reader.received == kFrames; }, kPatience);
  });
  writer.link->start({.on_frame = [](Frame&) {}, .on_close = [](const Error&) {}});
  for (int i = 0; i < kFrames; ++i)
    REQUIRE(writer.link->send(static_cast<std::uint16_t>(i),
                              bytes_of(pattern(20'000, static_cast<std::uint64_t>(i)))));
  CHECK(writer.loop->run_until([&] { return writer.link->outgoing_bytes() == 0; }, kPatience));
  other.join();
  CHECK(reader.received == kFrames);
  CHECK(reader.wrong == "");
}

// Blocks over a stream: between two lanes, and between a lane and whoever writes bytes of its own.
#include "stream_lane.h"

#include <tilewise/base/prng.h>

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "transfer_test_util.h"

using namespace tilewise;
using namespace tilewise::transfer;
using namespace tilewise::transfer::test;

namespace {

std::vector<std::byte> block(std::size_t bytes, std::uint64_t seed) {
  std::vector<std::byte> out(bytes);
  fill(out, seed);
  return out;
}

BlockHeader header_of(std::uint64_t transfer, std::size_t bytes) { return {cookie_of(1), transfer, bytes}; }

// Gives out what it has of a block when it is told to.
struct Trickle final : Source {
  explicit Trickle(std::span<const std::byte> block) : rest(block) {}
  Result<std::span<const std::byte>> next() override {
    if (!fine) return fine.error();
    return rest.first(there);
  }
  void sent(std::size_t bytes) override { rest = rest.subspan(bytes), there -= bytes; }
  std::span<const std::byte> rest;
  std::size_t there = 0;
  Status fine;
};

// Has room for so much, until it is told of more, or wants no more.
struct Cup final : Sink {
  std::optional<std::span<std::byte>> room() override {
    if (!wanted) return std::nullopt;
    cup.resize(size - full);
    return cup;
  }
  void came(std::size_t bytes) override {
    got.insert(got.end(), cup.begin(), cup.begin() + static_cast<std::ptrdiff_t>(bytes));
    full += bytes;
  }
  std::size_t size = 0, full = 0;
  bool wanted = true;
  std::vector<std::byte> cup, got;
};

// A lane, and what it said. Takes every block that `places` or `sinks` have memory for.
struct Side {
  std::map<std::uint64_t, std::vector<std::byte>> places;
  std::map<std::uint64_t, Sink*> sinks;
  std::vector<std::uint64_t> received, sent, announced, refused, put_back;
  std::map<std::uint64_t, Via> ways;
  int asked = 0;  // to pull
  std::vector<Error> broken;
  std::unique_ptr<StreamLane> lane;

  void begin(std::unique_ptr<net::ByteStream> stream, bool dialled, bool in_place = false) {
    lane = std::make_unique<StreamLane>(
        std::move(stream), dialled,
        StreamLane::Handlers{
            .on_header = [this](const BlockHeader& header) -> std::optional<Place> {
              announced.push_back(header.transfer);
              if (const auto sink = sinks.find(header.transfer); sink != sinks.end())
                return Place{nullptr, sink->second};
              const auto at = places.find(header.transfer);
              if (at == places.end() || at->second.size() != header.bytes) return {};
              return Place{at->second.data()};
            },
            .on_received = [this](const BlockHeader& h,
                                  Via via) { received.push_back(h.transfer), ways[h.transfer] = via; },
            .on_sent = [this](const BlockHeader& h, Via) { sent.push_back(h.transfer); },
            .on_refused = [this](const BlockHeader& h, const Error&) { refused.push_back(h.transfer); },
            .on_put_back = [this](const BlockHeader& h) { put_back.push_back(h.transfer); },
            .on_pull = [this] { ++asked; },
            .on_broken = [this](const Error& why) { broken.push_back(why); }},
        in_place);
  }
};

struct TwoLanes {
  std::unique_ptr<net::EventLoop> loop = std::move(net::EventLoop::create().value());
  net::StreamPair streams;
  Side one, other;

  explicit TwoLanes(bool sockets = true, bool both = true) {
    streams = sockets ? net::make_socket_pair(*loop, *loop).value() : net::make_memory_pair(*loop, *loop);
    one.begin(std::move(streams.first), true);
    if (both) other.begin(std::move(streams.second), false);
  }
  // Between them blocks are read in place: both are this process.
  enum InPlace : std::uint8_t { kSockets, kRings };
  explicit TwoLanes(InPlace over) {
    streams = over == kRings ? net::make_ring_pair(*loop, *loop).value()
                             : net::make_socket_pair(*loop, *loop).value();
    one.begin(std::move(streams.first), true, true);
    other.begin(std::move(streams.second), false, true);
  }
  void until(const std::function<bool()>& done) { REQUIRE(loop->run_until(done, kPatience)); }
  void settle() {
    loop->run_until([] { return false; }, 20 * kMillisecond);
  }
};

using Kind = LaneWord::Kind;

std::vector<std::byte> bytes_of(const LaneWord& word) {
  const auto bytes = std::as_bytes(std::span(&word, 1));
  return {bytes.begin(), bytes.end()};
}
std::vector<std::byte> bytes_of(const BlockHeader& block) {
  return bytes_of(LaneWord{.kind = Kind::kBlock, .block = block});
}

}  // namespace

TEST_CASE("blocks of any size go both ways over a stream at once, in order") {
  for (const bool sockets : {true, false}) {
    CAPTURE(sockets);
    TwoLanes l(sockets);
    std::vector<std::size_t> sizes = {
        0, 1, 31, 32, 33, 4096, 65535, 65536, 65537, 1 << 20, (3 << 20) + 5, 20 << 20};
    for (int i = 0; i < 200; ++i) sizes.push_back(static_cast<std::size_t>(i * 7));
    std::vector<std::vector<std::byte>> there, back;
    std::vector<std::uint64_t> numbers;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      there.push_back(block(sizes[i], i)), back.push_back(block(sizes[i], 1000 + i));
      numbers.push_back(i + 1);
      l.one.places[i + 1].resize(sizes[i]), l.other.places[i + 1].resize(sizes[i]);
    }
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      l.one.lane->send(header_of(i + 1, sizes[i]), there[i].data());
      l.other.lane->send(header_of(i + 1, sizes[i]), back[i].data());
    }
    l.until([&] { return l.one.received.size() == sizes.size() && l.other.received.size() == sizes.size(); });
    l.until([&] { return l.one.sent.size() == sizes.size() && l.other.sent.size() == sizes.size(); });
    CHECK(l.one.received == numbers);
    CHECK(l.other.received == numbers);
    CHECK(l.one.sent == numbers);
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      CAPTURE(sizes[i]);
      CHECK(l.other.places[i + 1] == there[i]);
      CHECK(l.one.places[i + 1] == back[i]);
    }
    CHECK(l.one.broken.empty());
  }
}

TEST_CASE("a block comes from a source and goes into a sink as these have bytes and room") {
  for (const bool sockets : {true, false}) {
    CAPTURE(sockets);
    TwoLanes l(sockets);
    const auto large = block(3'000'000, 1), small = block(1'000, 2);
    Trickle source(large);
    Cup sink;
    l.other.sinks[1] = &sink;
    l.other.places[2].resize(small.size()), l.other.places[3].resize(small.size());
    l.one.lane->send(header_of(1, large.size()), source);
    l.one.lane->send(header_of(2, small.size()), small.data());
    l.until([&] { return l.other.received.size() == 1; });
    CHECK(l.other.received[0] == 2);  // it did not wait for bytes that were not there
    CHECK(l.other.announced.size() == 1);
    Prng rng(7);
    bool asked = false;
    while (l.other.received.size() < 2) {
      source.there = std::min(source.rest.size(), source.there + rng.below(200'000));
      sink.full = 0, sink.size = rng.below(200'000);
      l.one.lane->resume();
      l.other.lane->resume();
      if (!std::exchange(asked, true)) l.one.lane->send(header_of(3, small.size()), small.data());
      l.settle();
      CHECK(sink.full <= sink.size);
    }
    CHECK(sink.got == large);
    l.until([&] { return l.other.received.size() == 3; });  // the stream goes on behind it
    CHECK(l.other.received == std::vector<std::uint64_t>{2, 1, 3});
    CHECK(l.other.places[2] == small);
    CHECK(l.other.places[3] == small);
    l.until([&] { return l.one.sent.size() == 3; });
    CHECK(l.one.broken.empty());
  }
}

TEST_CASE("a sink without room holds its stream up, until it has some or is not wanted any more") {
  TwoLanes l;
  const auto large = block(1'000'000, 1), small = block(1'000, 2);
  Cup sink;
  l.other.sinks[1] = &sink;
  l.other.places[2].resize(small.size());
  l.one.lane->send(header_of(1, large.size()), large.data());
  l.one.lane->send(header_of(2, small.size()), small.data());
  sink.size = 500'000;
  l.until([&] { return sink.full == sink.size; });
  l.settle();
  CHECK(l.other.received.empty());
  l.other.lane->resume();  // it has none all the same
  l.settle();
  CHECK(l.other.received.empty());
  SUBCASE("given up") {
    l.other.lane->drop(header_of(1, large.size()));
    l.until([&] { return l.other.received.size() == 1; });
    CHECK(l.other.received[0] == 2);
  }
  SUBCASE("by the sink itself, which is told of its end") {
    sink.wanted = false;
    l.other.lane->resume();
    l.until([&] { return l.other.received.size() == 2; });
    CHECK(l.other.received == std::vector<std::uint64_t>{1, 2});
  }
  CHECK(l.other.places[2] == small);
  CHECK(sink.full == sink.size);
}

TEST_CASE("a source that fails before anything of it is sent is left out, later it breaks the lane") {
  TwoLanes l;
  const auto small = block(1'000, 2);
  l.other.places[8].resize(small.size());
  Trickle never(small);
  l.one.lane->send(header_of(7, small.size()), never);
  never.fine = error(Errc::kDeviceError, "gone");
  l.one.lane->send(header_of(8, small.size()), small.data());
  l.until([&] { return l.other.received.size() == 1; });
  CHECK(l.other.received[0] == 8);
  CHECK(l.one.refused == std::vector<std::uint64_t>{7});
  CHECK(l.one.broken.empty());
  const auto large = block(1'000'000, 1);
  Trickle source(large);
  Cup sink;
  sink.size = large.size();
  l.other.sinks[1] = &sink;
  source.there = 1'000;
  l.one.lane->send(header_of(1, large.size()), source);
  l.until([&] { return sink.full == 1'000; });
  source.fine = error(Errc::kDeviceError, "gone");
  l.one.lane->resume();
  l.until([&] { return !l.one.broken.empty() && !l.other.broken.empty(); });
  CHECK(l.one.broken.size() == 1);
  CHECK(l.one.broken[0].code == Errc::kDeviceError);
  CHECK(l.one.sent == std::vector<std::uint64_t>{8});
  CHECK(l.other.received.size() == 1);
}

TEST_CASE("a block that nobody wants is read and forgotten") {
  TwoLanes l;
  const auto large = block(16 << 20, 1), small = block(1000, 2);
  l.other.places[2].resize(small.size());
  l.one.lane->send(header_of(1, large.size()), large.data());
  l.one.lane->send(header_of(2, small.size()), small.data());
  l.until([&] { return l.other.received.size() == 1; });
  CHECK(l.other.places[2] == small);
}

TEST_CASE("the rest of a block that is given up in the middle goes nowhere") {
  TwoLanes l;
  const auto large = block(150'000, 1), small = block(1000, 2);
  const LaneWord first;
  // By hand, so that it is known how much has come.
  auto pair = net::make_socket_pair(*l.loop, *l.loop).value();
  Side side;
  side.begin(std::move(pair.second), false);
  side.places[3].resize(large.size()), side.places[4].resize(small.size());
  const auto write = [&](std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const auto some = pair.first->try_write({&bytes, 1}, {});
      REQUIRE(some);
      bytes = bytes.subspan(*some);
      l.settle();
    }
  };
  for (const std::size_t before : {std::size_t{0}, std::size_t{10}, std::size_t{100'000}}) {
    CAPTURE(before);
    if (before == 0) write(bytes_of(first));
    const std::size_t announced = side.announced.size(), received = side.received.size();
    write(bytes_of(header_of(3, large.size())));
    write(std::span(large).first(before));
    l.settle();
    REQUIRE(side.announced.size() == announced + 1);
    side.lane->drop(header_of(3, large.size()));
    std::fill(side.places[3].begin(), side.places[3].end(), std::byte{0x77});
    write(std::span(large).subspan(before));
    write(bytes_of(header_of(4, small.size())));
    write(small);
    l.until([&] { return side.received.size() == received + 1; });
    CHECK(side.received.back() == 4);
    CHECK(side.places[4] == small);
    CHECK(std::all_of(side.places[3].begin(), side.places[3].end(),
                      [](std::byte b) { return b == std::byte{0x77}; }));
  }
}

TEST_CASE("what was not begun can be taken back, what was cannot") {
  TwoLanes l;
  const auto large = block(32 << 20, 1), small = block(100, 2);
  l.other.places[1].resize(large.size()), l.other.places[2].resize(small.size()),
      l.other.places[3].resize(small.size());
  l.one.lane->send(header_of(1, large.size()), large.data());
  l.one.lane->send(header_of(2, small.size()), small.data());
  l.one.lane->send(header_of(3, small.size()), small.data());
  REQUIRE(l.one.sent.empty());  // more than the socket takes
  CHECK(!l.one.lane->withdraw(header_of(1, large.size())));
  CHECK(l.one.lane->withdraw(header_of(2, small.size())));
  l.until([&] { return l.other.received.size() == 2; });
  CHECK(l.other.announced == std::vector<std::uint64_t>{1, 3});
  CHECK(l.other.places[1] == large);
  CHECK(l.one.sent == std::vector<std::uint64_t>{1, 3});
}

TEST_CASE("a stream that ends in the middle breaks the lane, once, on both sides") {
  TwoLanes l;
  const auto large = block(32 << 20, 1);
  l.other.places[1].resize(large.size());
  l.one.lane->send(header_of(1, large.size()), large.data());
  l.until([&] { return !l.other.announced.empty(); });
  l.one.lane.reset();
  l.until([&] { return !l.other.broken.empty(); });
  CHECK(l.other.broken[0].code == Errc::kUnavailable);
  CHECK(l.other.broken[0].message.find("in the middle of a block") != std::string::npos);
  l.other.lane->send(header_of(2, large.size()), large.data());  // goes nowhere
  l.settle();
  CHECK(l.other.broken.size() == 1);
  CHECK(l.other.received.empty());
  CHECK(l.other.sent.empty());
}

TEST_CASE(
    "who was dialled is silent until the other has begun, and nonsense breaks the lane before memory is "
    "touched") {
  TwoLanes quiet(true, false);
  std::vector<net::UniqueFd> fds;
  std::byte got[sizeof(LaneWord)];
  CHECK(quiet.streams.second->try_read(got, fds).value() == sizeof got);  // the dialler's first word
  Side dialled;
  auto pair = net::make_socket_pair(*quiet.loop, *quiet.loop).value();
  dialled.begin(std::move(pair.second), false);
  const auto small = block(8, 3);
  dialled.lane->send(header_of(9, small.size()), small.data());
  quiet.settle();
  CHECK(pair.first->try_read(got, fds).value() == 0);
  SUBCASE("then it speaks") {
    const auto write = [&pair](const std::vector<std::byte>& bytes) {
      const net::ByteStream::Piece piece = bytes;
      REQUIRE(pair.first->try_write({&piece, 1}, {}).value() == bytes.size());
    };
    write(bytes_of(LaneWord{}));
    quiet.until([&] { return dialled.sent.size() == 1; });
    CHECK(pair.first->try_read(got, fds).value() == sizeof got);  // its own first word
    CHECK(pair.first->try_read(got, fds).value() == sizeof got);
    CHECK(std::memcmp(got, bytes_of(header_of(9, 8)).data(), sizeof got) == 0);
    write(bytes_of(header_of(1, std::size_t{1} << 50)));
    quiet.until([&] { return dialled.broken.size() == 1; });
    CHECK(dialled.broken[0].code == Errc::kCorruptData);
    CHECK(dialled.announced.empty());
  }
  SUBCASE("a block is no beginning") {
    const std::vector<std::byte> early = bytes_of(header_of(1, 0));
    const net::ByteStream::Piece piece = early;
    REQUIRE(pair.first->try_write({&piece, 1}, {}).value() == early.size());
    quiet.until([&] { return dialled.broken.size() == 1; });
    CHECK(dialled.broken[0].code == Errc::kCorruptData);
    CHECK(dialled.sent.empty());
  }
}

// ---- read in place ----------------------------------------------------------------------------------------

namespace {

constexpr std::size_t kLeast = StreamLane::kLeastInPlace;

bool pull_all(Side& side) {
  bool any = false;
  while (side.lane->pull()) any = true;
  return any;
}

}  // namespace

TEST_CASE("large blocks are read where they lie, small ones pass them") {
  for (const TwoLanes::InPlace over : {TwoLanes::kSockets, TwoLanes::kRings}) {
    CAPTURE(over);
    TwoLanes l(over);
    const auto large = block((3 << 20) + 5, 1), small = block(kLeast - 1, 2), least = block(kLeast, 3);
    l.other.places[1].resize(large.size()), l.other.places[2].resize(small.size());
    l.other.places[3].resize(least.size());
    l.one.lane->send(header_of(1, large.size()), large.data());
    l.one.lane->send(header_of(2, small.size()), small.data());
    l.one.lane->send(header_of(3, least.size()), least.data());
    l.until([&] { return l.other.announced.size() == 3; });
    CHECK(l.other.received == std::vector<std::uint64_t>{2});
    CHECK(l.other.asked > 0);  // the first piece of the large one is there, no more
    CHECK(!l.one.lane->withdraw(header_of(1, large.size())));
    CHECK(pull_all(l.other));
    CHECK(l.other.received == std::vector<std::uint64_t>{2, 1, 3});
    l.until([&] { return l.one.sent.size() == 3; });
    CHECK(l.other.places[1] == large);
    CHECK(l.other.places[2] == small);
    CHECK(l.other.places[3] == least);
    CHECK(l.other.ways[1] == Via::kSharedMemory);
    CHECK(l.other.ways[3] == Via::kSharedMemory);
    CHECK(l.other.ways[2] == (over == TwoLanes::kRings ? Via::kSharedMemory : Via::kTcp));
    CHECK(!l.other.lane->pull());
    CHECK(l.one.lane->withdraw(header_of(1, large.size())));  // it knows nothing of it any more
  }
}

TEST_CASE("a block in place that is not wanted, or not any more, is the sender's again") {
  TwoLanes l(TwoLanes::kSockets);
  const auto large = block(4 << 20, 1);
  l.other.places[2].resize(large.size()), l.other.places[3].resize(large.size());
  for (std::uint64_t i = 1; i <= 3; ++i) l.one.lane->send(header_of(i, large.size()), large.data());
  l.until([&] { return l.other.announced.size() == 3; });
  l.other.lane->drop(header_of(2, large.size()));  // some of it was read
  std::fill(l.other.places[2].begin(), l.other.places[2].end(), std::byte{0x77});
  pull_all(l.other);
  CHECK(l.other.received == std::vector<std::uint64_t>{3});
  l.until([&] { return l.one.sent.size() == 3; });
  CHECK(l.other.places[3] == large);
  CHECK(std::all_of(l.other.places[2].begin(), l.other.places[2].end(),
                    [](std::byte b) { return b == std::byte{0x77}; }));
}

TEST_CASE("a sink takes a block in place as it has room, and others pass it meanwhile") {
  TwoLanes l(TwoLanes::kRings);
  const auto large = block(1'000'000, 1), other = block(1'000'000, 2);
  Cup sink;
  l.other.sinks[1] = &sink;
  l.other.places[2].resize(other.size());
  l.one.lane->send(header_of(1, large.size()), large.data());
  l.one.lane->send(header_of(2, other.size()), other.data());
  l.until([&] { return l.other.announced.size() == 2; });
  pull_all(l.other);
  CHECK(l.other.received == std::vector<std::uint64_t>{2});
  CHECK(l.other.places[2] == other);
  Prng rng(7);
  while (l.other.received.size() < 2) {
    const int asked = l.other.asked;
    sink.full = 0, sink.size = rng.below(200'000);
    l.other.lane->resume();
    CHECK(l.other.asked == asked + 1);
    pull_all(l.other);
  }
  CHECK(sink.got == large);
  l.until([&] { return l.one.sent.size() == 2; });
  SUBCASE("and may want no more") {
    Cup again;
    again.size = 100'000;
    l.other.sinks[3] = &again;
    l.one.lane->send(header_of(3, large.size()), large.data());
    l.until([&] { return l.other.announced.size() == 3; });
    pull_all(l.other);
    CHECK(again.full == again.size);
    again.wanted = false;
    CHECK(pull_all(l.other));
    CHECK(l.other.received.back() == 3);
    l.until([&] { return l.one.sent.size() == 3; });
  }
}

TEST_CASE("of several blocks in place the one that is not wanted ends, and no other") {
  TwoLanes l(TwoLanes::kSockets);
  const auto large = block(1'000'000, 1);
  Cup full, unwanted;
  unwanted.size = 200'000;
  l.other.sinks[1] = &full, l.other.sinks[2] = &unwanted;
  l.other.places[3].resize(large.size()), l.other.places[4].resize(large.size());
  for (std::uint64_t i = 1; i <= 4; ++i) l.one.lane->send(header_of(i, large.size()), large.data());
  l.until([&] { return l.other.announced.size() == 4; });
  REQUIRE(l.other.received.empty());
  unwanted.wanted = false;
  CHECK(pull_all(l.other));
  CHECK(l.other.received == std::vector<std::uint64_t>{2, 3, 4});
  CHECK(l.other.places[3] == large);
  CHECK(l.other.places[4] == large);
  l.until([&] { return l.one.sent.size() == 3; });
  CHECK(l.one.lane->lent_at(header_of(1, large.size())));
  CHECK(!l.one.lane->lent_at(header_of(2, large.size())));
  CHECK(l.other.lane->received_at(header_of(1, large.size())) == 0);
  full.size = large.size();
  pull_all(l.other);
  l.until([&] { return l.one.sent.size() == 4; });
  CHECK(full.got == large);
}

TEST_CASE("a reader that takes its time says so") {
  TwoLanes l(TwoLanes::kSockets);
  const auto large = block(1'000'000, 1);
  const BlockHeader one = header_of(1, large.size());
  Cup sink;
  sink.size = 1'000;
  l.other.sinks[1] = &sink;
  l.one.lane->send(one, large.data());
  l.until([&] { return l.other.announced.size() == 1; });
  l.settle();
  CHECK(l.one.lane->lent_at(one) == TimeNs{0});
  const TimeNs from = monotonic_now();
  while (l.one.lane->lent_at(one) == TimeNs{0} && monotonic_now() - from < kPatience) {
    sink.full = 0;
    l.other.lane->pull();
    l.settle();
  }
  CHECK(l.one.lane->lent_at(one).value_or(0) > from);
  CHECK(l.other.lane->received_at(one) > from);
  CHECK(l.other.received.empty());
}

TEST_CASE("what a peer says of its memory is not believed") {
  TwoLanes l;
  const auto large = block(1 << 20, 1);
  // By hand, so that it can be wrong.
  auto pair = net::make_socket_pair(*l.loop, *l.loop).value();
  Side side;
  side.begin(std::move(pair.second), false, true);
  side.places[7].resize(large.size());
  LaneWord first{.block = {.cookie = cookie_of(77)}};
  first.place = std::bit_cast<std::uintptr_t>(first.block.cookie.data());
  const auto write = [&](std::vector<std::byte> bytes) {
    for (std::span<const std::byte> rest = bytes; !rest.empty();) {
      const auto some = pair.first->try_write({&rest, 1}, {});
      REQUIRE(some);
      rest = rest.subspan(*some);
      l.settle();
    }
  };
  const auto hear = [&] {
    LaneWord word;
    std::vector<net::UniqueFd> fds;
    l.settle();
    REQUIRE(pair.first->try_read(std::as_writable_bytes(std::span(&word, 1)), fds).value() == sizeof word);
    return word;
  };
  write(bytes_of(first));
  CHECK(hear().kind == Kind::kBegin);
  CHECK(hear().kind == Kind::kReads);
  const BlockHeader seven = header_of(7, large.size());
  SUBCASE("nowhere") {
    write(bytes_of(LaneWord{.kind = Kind::kInPlace, .place = 4096, .block = seven}));
    const LaneWord answer = hear();
    CHECK(answer.kind == Kind::kSendIt);
    CHECK(answer.block == seven);
    CHECK(side.put_back == std::vector<std::uint64_t>{7});
    write(bytes_of(seven));
    write(large);
    l.until([&] { return side.received.size() == 1; });
    CHECK(side.places[7] == large);
    CHECK(side.broken.empty());
  }
  SUBCASE("in the middle") {
    // Two pages, of which the second is not there.
    const std::size_t page = 4096, readable = 256 * page;
    void* const at =
        ::mmap(nullptr, 2 * readable, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(at != MAP_FAILED);
    REQUIRE(::munmap(static_cast<std::byte*>(at) + readable, readable) == 0);
    side.places[7].resize(2 * readable);
    const BlockHeader longer = header_of(7, 2 * readable);
    write(bytes_of(
        LaneWord{.kind = Kind::kInPlace, .place = std::bit_cast<std::uintptr_t>(at), .block = longer}));
    pull_all(side);
    CHECK(hear().kind == Kind::kSendIt);
    CHECK(side.put_back == std::vector<std::uint64_t>{7});
    CHECK(side.broken.empty());
    ::munmap(at, readable);
  }
  SUBCASE("a sender that closes while it is read has not given what it said") {
    write(bytes_of(LaneWord{
        .kind = Kind::kInPlace, .place = std::bit_cast<std::uintptr_t>(large.data()), .block = seven}));
    REQUIRE(side.announced.size() == 1);
    pair.first->close();
    while (side.lane->pull()) {
    }
    CHECK(side.received.empty());
    CHECK(side.broken.size() == 1);
    CHECK(side.broken[0].code == Errc::kUnavailable);
  }
  SUBCASE("words of blocks that were not sent break the lane") {
    write(bytes_of(LaneWord{.kind = Kind::kTaken, .block = seven}));
    CHECK(side.broken.size() == 1);
    CHECK(side.broken[0].code == Errc::kCorruptData);
  }
  SUBCASE("and so does one of no kind") {
    write(bytes_of(LaneWord{.kind = static_cast<Kind>(99)}));
    CHECK(side.broken.size() == 1);
    CHECK(side.broken[0].code == Errc::kCorruptData);
  }
}

TEST_CASE("who cannot find the other's memory has blocks sent, and is told of no place") {
  TwoLanes l(TwoLanes::kSockets);
  auto pair = net::make_socket_pair(*l.loop, *l.loop).value();
  Side side;
  side.begin(std::move(pair.second), false, true);
  const auto large = block(150'000, 1);
  const auto write = [&](const std::vector<std::byte>& bytes) {
    const net::ByteStream::Piece piece = bytes;
    REQUIRE(pair.first->try_write({&piece, 1}, {}).value() == bytes.size());
    l.settle();
  };
  const auto hear = [&] {
    LaneWord word;
    std::vector<net::UniqueFd> fds;
    REQUIRE(pair.first->try_read(std::as_writable_bytes(std::span(&word, 1)), fds).value() == sizeof word);
    return word;
  };
  side.lane->send(header_of(1, large.size()), large.data());
  SUBCASE("another process's, by what lies there") {
    Cookie elsewhere = cookie_of(1);
    LaneWord first{.place = std::bit_cast<std::uintptr_t>(elsewhere.data()),
                   .block = {.cookie = cookie_of(2)}};
    write(bytes_of(first));
    CHECK(hear().kind == Kind::kBegin);
    CHECK(hear().kind == Kind::kCopies);
    SUBCASE("a place all the same is against the rules") {
      write(bytes_of(LaneWord{.kind = Kind::kInPlace,
                              .place = std::bit_cast<std::uintptr_t>(large.data()),
                              .block = header_of(2, large.size())}));
      REQUIRE(side.broken.size() == 1);
      CHECK(side.broken[0].code == Errc::kCorruptData);
      CHECK(side.announced.empty());
    }
  }
  SUBCASE("it has none to be read") {
    write(bytes_of(LaneWord{}));
    CHECK(hear().kind == Kind::kBegin);
  }
  SUBCASE("asked for one that could not be read it sends that, and the next ones") {
    write(bytes_of(LaneWord{}));
    CHECK(hear().kind == Kind::kBegin);
    write(bytes_of(LaneWord{.kind = Kind::kReads}));
    const LaneWord place = hear();
    CHECK(place.kind == Kind::kInPlace);
    CHECK(place.block == header_of(1, large.size()));
    CHECK(place.place == std::bit_cast<std::uintptr_t>(large.data()));
    CHECK(side.sent.empty());
    write(bytes_of(LaneWord{.kind = Kind::kSendIt, .block = place.block}));
    CHECK(hear().kind == Kind::kBlock);
    CHECK(side.sent == std::vector<std::uint64_t>{1});
    std::vector<std::byte> got(large.size());
    std::vector<net::UniqueFd> fds;
    CHECK(pair.first->try_read(got, fds).value() == got.size());
    CHECK(got == large);
    side.lane->send(header_of(2, large.size()), large.data());
    CHECK(hear().kind == Kind::kBlock);
  }
  CHECK(side.received.empty());
}

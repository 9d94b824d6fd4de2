#include "net_test_util.h"
#include "out_queue.h"

#include <tilewise/base/prng.h>

#include <fcntl.h>
#include <unistd.h>

using namespace tilewise;
using namespace tilewise::net;
using namespace tilewise::net::test;

namespace {

// Feeds `wire` in chunks of at most max_chunk bytes; the frames, and the error that ended it.
struct Parsed {
  std::vector<std::pair<std::uint16_t, std::string>> frames;
  std::optional<Error> failed;
  bool mid_frame = false;
};

Parsed parse(std::string_view wire, std::size_t max_chunk, Prng& prng, std::size_t max_payload = 16 << 20) {
  FrameReader reader(kProtocolVersion, max_payload);
  Parsed parsed;
  while (!wire.empty() && !parsed.failed) {
    auto space = reader.space();
    REQUIRE(!space.empty());
    std::size_t n =
        std::min({space.size(), wire.size(), static_cast<std::size_t>(1 + prng.below(max_chunk))});
    std::memcpy(space.data(), wire.data(), n);
    wire.remove_prefix(n);
    reader.commit(n);
    for (;;) {
      auto view = reader.next();
      if (!view) {
        parsed.failed = view.error();
        break;
      }
      if (!*view) break;
      CHECK(reinterpret_cast<std::uintptr_t>((*view)->payload.data()) % 8 == 0);
      parsed.frames.emplace_back((*view)->header.type, text_of((*view)->payload));
    }
  }
  parsed.mid_frame = reader.mid_frame();
  return parsed;
}

}  // namespace

TEST_CASE("frames survive any cutting of the stream") {
  Prng prng(7);
  const std::size_t sizes[] = {0, 1, 7, 8, 9, 100, 4096, 65519, 65520, 65521, 65536, 70000, 200'001, 3 << 20};
  for (std::size_t max_chunk :
       {std::size_t{1}, std::size_t{3}, std::size_t{17}, std::size_t{5000}, std::size_t{1} << 20}) {
    CAPTURE(max_chunk);
    std::string wire;
    std::vector<std::pair<std::uint16_t, std::string>> sent;
    for (int i = 0; i < 60; ++i) {
      std::size_t size = sizes[prng.below(max_chunk < 10 ? 9 : std::size(sizes))];
      sent.emplace_back(static_cast<std::uint16_t>(i), pattern(size, static_cast<std::uint64_t>(i)));
      wire += frame_text(sent.back().first, sent.back().second);
    }
    Parsed parsed = parse(wire, max_chunk, prng);
    CHECK(!parsed.failed);
    CHECK(!parsed.mid_frame);
    CHECK((parsed.frames == sent));
    // A truncated stream gives all frames but the last, and knows that one is missing.
    Parsed cut = parse(std::string_view(wire).substr(0, wire.size() - 1), max_chunk, prng);
    CHECK(cut.mid_frame);
    CHECK(cut.frames.size() == sent.size() - 1);
  }
}

TEST_CASE("hostile headers are refused before anything is allocated for them") {
  Prng prng(1);
  struct Case {
    const char* name;
    FrameHeader header;
    Errc code;
  };
  const Case cases[] = {
      {"magic", {.magic = 0x20544547}, Errc::kCorruptData},
      {"version", {.version = 99}, Errc::kVersionMismatch},
      {"length", {.payload_bytes = 0xFFFFFFFF}, Errc::kLimitExceeded},
      {"one byte too long", {.payload_bytes = 1025}, Errc::kLimitExceeded},
      {"flags", {.flags = 1}, Errc::kCorruptData},
      {"reserved", {.zero = 1}, Errc::kCorruptData},
      {"descriptors", {.fds = 17}, Errc::kLimitExceeded},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    Parsed parsed = parse(frame_text(5, "good") + frame_text(c.header, ""), 1 << 20, prng, 1024);
    REQUIRE(parsed.failed);
    CHECK(parsed.failed->code == c.code);
    CHECK(parsed.frames.size() == 1);
  }
  CHECK(parse(frame_text({.version = 99}, ""), 100, prng).failed->message ==
        "the peer speaks protocol version 99, this side version 1");
  CHECK(!parse(frame_text(1, std::string(1024, 'x')), 100, prng, 1024).failed);
}

TEST_CASE("random bytes never do more than fail") {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    Prng prng(seed);
    std::string wire = frame_text(1, pattern(100)) + frame_text(2, pattern(300));
    for (int i = 0; i < 3; ++i) wire[prng.below(wire.size())] ^= static_cast<char>(1 + prng.below(255));
    Parsed parsed = parse(wire, 64, prng, 4096);
    CHECK(parsed.frames.size() <= 30);
  }
}

TEST_CASE("the outgoing queue gives back what was put in, whatever is consumed at a time") {
  Prng prng(3);
  OutQueue queue;
  std::string expected, got;
  for (int round = 0; round < 400; ++round) {
    std::string payload =
        pattern(prng.below(prng.chance(0.05) ? 200'000 : 500), static_cast<std::uint64_t>(round));
    std::size_t half = payload.size() / 2;
    std::string_view view = payload;
    ByteStream::Piece pieces[] = {bytes_of(view.substr(0, half)), {}, bytes_of(view.substr(half))};
    queue.append({.type = 9, .payload_bytes = static_cast<std::uint32_t>(payload.size())}, pieces, {});
    expected += frame_text(9, payload);
    if (round < 399 && prng.chance(0.5)) continue;
    do {
      auto batch = queue.batch();
      std::size_t n = round == 399 ? batch.bytes : prng.below(batch.bytes + 1);
      std::size_t left = n;
      for (std::size_t i = 0; i < batch.count; ++i) {
        std::size_t part = std::min(left, batch.pieces[i].size());
        got += text_of(batch.pieces[i].first(part));
        left -= part;
      }
      queue.consume(n);
    } while (round == 399 && queue.bytes() > 0);
    CHECK(queue.bytes() == expected.size() - got.size());
  }
  CHECK((got == expected));
}

TEST_CASE("descriptors begin a write and go with it once") {
  OutQueue queue;
  auto append = [&](int descriptors) {
    std::vector<UniqueFd> fds;
    for (int i = 0; i < descriptors; ++i) fds.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    queue.append({.fds = static_cast<std::uint8_t>(descriptors)}, {}, std::move(fds));
  };
  append(0);
  append(0);
  append(2);
  append(0);
  append(1);
  CHECK(queue.batch().bytes == 32);  // the two plain ones
  CHECK(queue.batch().fds.empty());
  queue.consume(32);
  CHECK(queue.batch().bytes == 32);  // the one with two, and the plain one behind it
  CHECK(queue.batch().fds.size() == 2);
  int fd = queue.batch().fds[0].get();
  queue.consume(1);
  CHECK(queue.batch().fds.empty());
  CHECK(::fcntl(fd, F_GETFD) == -1);
  CHECK(queue.batch().bytes == 31);
  queue.consume(31);
  CHECK(queue.batch().fds.size() == 1);
}

// Private to the tests of this folder.
#pragma once
#include <tilewise/net/endpoint.h>
#include <tilewise/net/fault_stream.h>

#include <doctest/doctest.h>

#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "print_result.h"

namespace tilewise::net::test {

constexpr TimeNs kPatience = 20 * kSecond;  // on a busy machine; nothing waits so long when all is well

constexpr std::size_t kHelloBytes = 56, kProofBytes = 48;  // of a handshake

inline Token token(char digit) { return Token::from_hex(std::string(64, digit)).value(); }

inline std::unique_ptr<EventLoop> make_loop(EventLoopOptions options = {}) {
  auto loop = EventLoop::create(options);
  REQUIRE(loop);
  return std::move(*loop);
}

// Until nothing more happens: some time for what the kernel brings, then whatever is ready. On a
// busy machine the time may be over before the first turn, so the second half matters.
inline void settle(EventLoop& loop, TimeNs time_ns = 2 * kMillisecond) {
  loop.run_until([] { return false; }, time_ns);
  while (loop.poll()) {
  }
}

inline std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

inline std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

inline std::string pattern(std::size_t size, std::uint64_t seed = 1) {
  std::string text(size, '\0');
  std::uint64_t x = seed * 0x9E3779B97F4A7C15ull;
  for (char& c : text) {
    x = x * 6364136223846793005ull + 1442695040888963407ull;
    c = static_cast<char>(x >> 56);
  }
  return text;
}

// A link and what came out of it.
struct Recorder {
  std::unique_ptr<Link> link;
  std::vector<std::pair<std::uint16_t, std::string>> frames;
  std::vector<UniqueFd> fds;
  std::optional<Error> closed;
  int drained = 0;

  void start(std::unique_ptr<Link> l) {
    link = std::move(l);
    link->start({.on_frame =
                     [this](Frame& frame) {
                       CHECK(reinterpret_cast<std::uintptr_t>(frame.payload.data()) % 8 == 0);
                       CHECK(!closed);
                       frames.emplace_back(frame.type, text_of(frame.payload));
                       for (UniqueFd& fd : frame.fds) fds.push_back(std::move(fd));
                     },
                 .on_close =
                     [this](const Error& why) {
                       CHECK(!closed);
                       closed = why;
                     },
                 .on_drained = [this] { ++drained; }});
  }
  Errc why() const { return closed ? closed->code : Errc::kOk; }
};

struct LinkPair {
  Recorder a, b;
};

inline void start_pair(EventLoop& loop, StreamPair streams, LinkPair& pair, LinkOptions options = {}) {
  pair.a.start(Link::adopt(loop, std::move(streams.first), Cookie{}, options));
  pair.b.start(Link::adopt(loop, std::move(streams.second), Cookie{}, options));
}

// A peer without manners: writes and reads raw bytes on a stream.
struct RawPeer {
  EventLoop& loop;
  std::unique_ptr<ByteStream> stream;

  bool write(std::string_view text) {
    while (!text.empty()) {
      ByteStream::Piece piece = bytes_of(text);
      auto n = stream->try_write({&piece, 1}, {});
      if (!n) return false;
      text.remove_prefix(*n);
      if (*n == 0) loop.poll();
    }
    return true;
  }
  // Until so many bytes came or the stream ended.
  std::string read(std::size_t size) {
    std::string text(size, '\0');
    std::size_t have = 0;
    bool ended = false;
    std::vector<UniqueFd> fds;
    loop.run_until(
        [&] {
          auto n = stream->try_read(std::as_writable_bytes(std::span(text)).subspan(have), fds);
          if (n) have += *n;
          ended = !n;
          if (n && *n == 0) loop.post([] {});  // look again
          return ended || have == size;
        },
        kPatience);
    return text.substr(0, have);
  }
};

inline std::string frame_text(FrameHeader header, std::string_view payload) {
  auto encoded = header.encode();
  std::string text = text_of(encoded) + std::string(payload);
  text.resize(kFrameHeaderBytes + padded(payload.size()));
  return text;
}

inline std::string frame_text(std::uint16_t type, std::string_view payload) {
  return frame_text({.type = type, .payload_bytes = static_cast<std::uint32_t>(payload.size())}, payload);
}

}  // namespace tilewise::net::test

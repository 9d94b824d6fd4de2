// Private. A way to a peer that cannot be reached goes through a third process that reaches both (relays.cc): what the two ends of it
// are made of. Both belong to the loop's thread.
#pragma once
#include <tilewise/base/id.h>
#include <tilewise/net/endpoint.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace tilewise::exchange {

// Who asks: one attempt to reach `to` through the process at `relay`. That one proves itself, then `to` does, over the bytes that are passed
// on, so the link is as good as a direct one. `done` is called once, from the loop, unless the attempt is destroyed before, which
// is allowed inside it. Errors as net::connect's; kNotFound, kLimitExceeded: the relay does not know that peer, or has enough to do.
class Passage {
 public:
  Passage(net::EventLoop& loop, const net::Address& relay, net::HandshakeOptions how, WorkerId self,
          WorkerId to, net::Handshake::Done done);
  ~Passage();
  Passage(const Passage&) = delete;
  Passage& operator=(const Passage&) = delete;

 private:
  void asked(Result<std::unique_ptr<net::Link>> link, WorkerId self, WorkerId to);
  void answered(const net::Frame& frame);
  void end(Result<std::unique_ptr<net::Link>> result);

  net::EventLoop& loop_;
  const net::HandshakeOptions how_;
  net::Handshake::Done done_;
  net::TimerId deadline_ = 0;
  std::unique_ptr<net::ConnectAttempt> attempt_;
  std::unique_ptr<net::Link> link_;
  std::unique_ptr<net::Handshake> handshake_;
  std::shared_ptr<char> alive_ = std::make_shared<char>();
};

// Who is asked: bytes between two streams, unread, each way by itself. What has been read and does not fit the other stream waits, at most
// kRelayBuffer bytes each way, and nothing more is read: so a slow end slows the other one down. When one ends, both do.
class Splice {
 public:
  // Nothing is said to the asker before it has said something itself: until then it still reads frames.
  Splice(std::unique_ptr<net::ByteStream> asker, std::unique_ptr<net::ByteStream> target,
         std::function<void()> ended);
  ~Splice() = default;
  Splice(const Splice&) = delete;
  Splice& operator=(const Splice&) = delete;

 private:
  struct Half {
    net::ByteStream *from, *to;
    std::vector<std::byte> buffer;
    std::size_t begin = 0, end = 0;  // of what waits in it
  };
  void pump(std::size_t half);
  bool step(Half& half, std::size_t& moved);  // false: it ended

  std::unique_ptr<net::ByteStream> asker_, target_;
  std::function<void()> ended_;
  std::array<Half, 2> halves_;
  bool answers_ = false;  // the second half has begun
};

// Frames of such a way before it is one; no message has this type.
constexpr std::uint16_t kRelayFrame = 0x7D01;

// From who asks; and back, `outcome` an Errc: kOk, after which nothing more comes from the relay itself.
struct RelayQuestion {
  std::uint32_t from = 0, to = 0;
};
struct RelayAnswer {
  std::uint32_t outcome = 0, zero = 0;
};

}  // namespace tilewise::exchange

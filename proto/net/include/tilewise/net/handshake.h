// Who is there? Both sides prove that they hold the cluster's token before anything else is parsed (D12).
//
//   both at once   hello  { 32 random bytes, role }
//   connector      proof  = HMAC(token, "connector", both hellos with their headers)
//   acceptor       proof  = HMAC(token, "acceptor", the same), only after the other one was right
//   cookie                = HMAC(token, "cookie", the same), 16 bytes, never sent
//
// The hellos hold nonces, roles and protocol versions, so all of them are covered; labels and roles make a
// reflected message useless. Messages have fixed sizes and are read exactly, nothing is allocated for them until both have proven themselves,
// and the whole exchange has one deadline.
//
// Where both sides said in their hellos that they would, and not before both have proven themselves, a third step
// follows over a Unix socket: the connector hands over memory for two rings (capacity, one memfd) or says that it
// has none, the acceptor answers with the capacity or with 0. From then on the link's bytes go through that memory,
// or through the socket as before.
//
// Over TCP, on the same terms, the third step is a path probe: the connector sends a frame that is larger than any packet, the acceptor
// answers with another one. So a path that loses large packets (an MTU black hole) fails here, where it is not yet relied on.
//
// A failure is told to the peer by closing only. What follows is
// not encrypted: an attacker who can alter packets in flight is TLS's business.
#pragma once
#include <tilewise/net/link.h>
#include <tilewise/net/token.h>

namespace tilewise::net {

constexpr std::size_t kMaxUnauthenticatedBytes = 4096;  // of one message before the peer has proven itself

enum class Role : std::uint8_t { kConnector = 1, kAcceptor = 2 };

// Large enough for bursts of messages, small enough to stay in a core's cache.
constexpr std::size_t kUsualRingBytes = 256 << 10;

constexpr std::size_t kPathProbeBytes = 64 << 10;  // no IP packet is larger

struct HandshakeOptions {
  Token token;
  TimeNs deadline_ns = 5 * kSecond;
  // TCP: a host that acknowledges nothing for so long is taken for gone, and the link ends with kTimeout, whether anything is
  // being sent or not. In whole seconds, at least 2. Other sockets need none of this: processes of one host do not vanish unnoticed.
  TimeNs silence_ns = 10 * kSecond;
  LinkOptions link = {};
  // 0: bytes go through the socket. Else, over Unix sockets and if the peer wants it too, through rings in shared
  // memory of so many bytes in each direction (a power of two, 4 KiB to 64 MiB; the connector's choice), where
  // the operating system allows.
  std::size_t ring_bytes = 0;
  bool probes_path = false;  // over TCP and if the peer wants it too
};

class Handshake {
 public:
  // Once, from the loop, with the stream closed if it is an error: kUnauthenticated (no or a wrong proof,
  // or not our protocol at all), kVersionMismatch (naming both), kTimeout, or what the transport said.
  using Done = std::function<void(Result<std::unique_ptr<Link>>)>;

  static std::unique_ptr<Handshake> start(EventLoop& loop, std::unique_ptr<ByteStream> stream, Role role,
                                          const HandshakeOptions& options, Done done);
  ~Handshake();  // gives up without calling done; allowed inside done

 private:
  class Core;
  explicit Handshake(std::shared_ptr<Core> core);
  std::shared_ptr<Core> core_;
};

}  // namespace tilewise::net

// The handshake's third step: memory for a link, between two that have proven themselves.
#include <sys/mman.h>

#include <array>

#include "net_test_util.h"

using namespace tilewise;
using namespace tilewise::net;
using namespace tilewise::net::test;

namespace {

constexpr std::size_t kRingsBytes = 24;
constexpr std::uint16_t kRingsType = 0xFF02;

struct Ends {
  std::unique_ptr<Handshake> handshake;
  std::optional<Result<std::unique_ptr<Link>>> result;

  void start(EventLoop& loop, std::unique_ptr<ByteStream> stream, Role role, std::size_t ring_bytes) {
    handshake =
        Handshake::start(loop, std::move(stream), role, {.token = token('a'), .ring_bytes = ring_bytes},
                         [this](Result<std::unique_ptr<Link>> r) { result = std::move(r); });
  }
  Errc code() const { return !result || *result ? Errc::kOk : result->error().code; }
};

struct RingMeeting {
  std::unique_ptr<EventLoop> loop = make_loop();
  Ends connector, acceptor;

  bool run(StreamPair streams, std::size_t connecting, std::size_t accepting) {
    connector.start(*loop, std::move(streams.first), Role::kConnector, connecting);
    acceptor.start(*loop, std::move(streams.second), Role::kAcceptor, accepting);
    return loop->run_until([&] { return connector.result && acceptor.result; }, kPatience);
  }
  // Both got a link; frames and descriptors go both ways.
  void converse() {
    REQUIRE(*connector.result);
    REQUIRE(*acceptor.result);
    CHECK((**connector.result)->cookie() == (**acceptor.result)->cookie());
    Recorder a, b;
    a.start(std::move(**connector.result));
    b.start(std::move(**acceptor.result));
    REQUIRE(a.link->send(4, bytes_of("hello")));
    REQUIRE(b.link->send(5, bytes_of(pattern(100'000))));
    CHECK(loop->run_until([&] { return a.frames.size() == 1 && b.frames.size() == 1; }, kPatience));
    CHECK(b.frames[0].second == "hello");
    CHECK((a.frames[0].second == pattern(100'000)));
  }
};

}  // namespace

TEST_CASE("rings: used where both sides want them and a Unix socket joins them, else the socket") {
  struct Case {
    const char* name;
    bool socket;
    std::size_t connecting, accepting;
    bool rings;
  };
  for (const Case& c : {Case{"both", true, 8192, kUsualRingBytes, true},
                        {"the connector only", true, 8192, 0, false},
                        {"the acceptor only", true, 0, 8192, false},
                        {"no such memory to be had", true, 5000, 8192, false},
                        {"no descriptors can be passed", false, 8192, 8192, false}}) {
    CAPTURE(c.name);
    RingMeeting m;
    auto streams =
        c.socket ? std::move(*make_socket_pair(*m.loop, *m.loop)) : make_memory_pair(*m.loop, *m.loop);
    REQUIRE(m.run(std::move(streams), c.connecting, c.accepting));
    CHECK((**m.connector.result)->is_shared_memory() == c.rings);
    CHECK((**m.acceptor.result)->is_shared_memory() == c.rings);
    m.converse();
  }
}

TEST_CASE("rings: the step works in single bytes") {
  RingMeeting m;
  auto streams = make_socket_pair(*m.loop, *m.loop);
  REQUIRE(streams);
  auto slow = std::make_shared<Faults>(Faults{.max_read_bytes = 1, .max_write_bytes = 1});
  streams->first = inject_faults(*m.loop, std::move(streams->first), slow);
  streams->second = inject_faults(*m.loop, std::move(streams->second), slow);
  REQUIRE(m.run(std::move(*streams), 8192, 8192));
  *slow = Faults{};
  m.converse();
}

namespace {

// A connector in good standing that then hands over something odd; how the acceptor ends. A man in the middle
// passes the proofs on, since only they need the token.
Errc offered(std::uint64_t capacity, std::vector<UniqueFd> fds, std::uint16_t type = kRingsType,
             bool announce = true) {
  auto loop = make_loop();
  auto left = make_socket_pair(*loop, *loop), right = make_socket_pair(*loop, *loop);
  REQUIRE(left);
  REQUIRE(right);
  Ends connector, acceptor;
  connector.start(*loop, std::move(left->first), Role::kConnector, 8192);
  acceptor.start(*loop, std::move(right->second), Role::kAcceptor, 8192);
  RawPeer to_connector{*loop, std::move(left->second)}, to_acceptor{*loop, std::move(right->first)};
  to_acceptor.write(to_connector.read(kHelloBytes));
  to_connector.write(to_acceptor.read(kHelloBytes));
  to_acceptor.write(to_connector.read(kProofBytes));
  const std::string proof = to_acceptor.read(kProofBytes);
  REQUIRE(proof.size() == kProofBytes);
  const std::string body(reinterpret_cast<const char*>(&capacity), sizeof capacity);
  const std::string wire = frame_text({.type = type,
                                       .payload_bytes = sizeof capacity,
                                       .fds = static_cast<std::uint8_t>(announce ? fds.size() : 0)},
                                      body);
  ByteStream::Piece piece = bytes_of(wire);
  REQUIRE(to_acceptor.stream->try_write({&piece, 1}, fds).value() == kRingsBytes);
  CHECK(loop->run_until([&] { return acceptor.result.has_value(); }, kPatience));
  const Errc code = acceptor.code();
  if (code == Errc::kOk) CHECK(!(**acceptor.result)->is_shared_memory());
  return code;
}

std::vector<UniqueFd> files(int count) {
  std::vector<UniqueFd> fds;
  for (int i = 0; i < count; ++i) fds.emplace_back(::memfd_create("test", MFD_CLOEXEC));
  return fds;
}

}  // namespace

TEST_CASE("rings: a hand-over that does not fit ends the handshake with a typed error") {
  CHECK(offered(0, {}) == Errc::kOk);  // none to be had: the socket
  CHECK(offered(8192, {}) == Errc::kCorruptData);
  CHECK(offered(8192, files(1)) == Errc::kCorruptData);  // empty and unsealed
  CHECK(offered(0, files(1)) == Errc::kCorruptData);
  CHECK(offered(8192, files(2)) == Errc::kUnauthenticated);
  CHECK(offered(8192, files(1), kRingsType, false) == Errc::kUnauthenticated);
  CHECK(offered(0, {}, 7) == Errc::kUnauthenticated);  // a message of a link in its place
}

TEST_CASE("rings: an acceptor that takes what it was not given is refused") {
  for (std::uint64_t capacity : {std::uint64_t{4096}, ~std::uint64_t{0}}) {
    auto loop = make_loop();
    auto left = make_socket_pair(*loop, *loop), right = make_socket_pair(*loop, *loop);
    REQUIRE(left);
    REQUIRE(right);
    Ends connector, acceptor;
    connector.start(*loop, std::move(left->first), Role::kConnector, 8192);
    acceptor.start(*loop, std::move(right->second), Role::kAcceptor, 8192);
    RawPeer to_connector{*loop, std::move(left->second)}, to_acceptor{*loop, std::move(right->first)};
    to_acceptor.write(to_connector.read(kHelloBytes));
    to_connector.write(to_acceptor.read(kHelloBytes));
    to_acceptor.write(to_connector.read(kProofBytes));
    to_connector.write(to_acceptor.read(kProofBytes));
    CHECK(to_connector.read(kRingsBytes).size() == kRingsBytes);
    const std::string body(reinterpret_cast<const char*>(&capacity), sizeof capacity);
    to_connector.write(frame_text(kRingsType, body));
    CHECK(loop->run_until([&] { return connector.result.has_value(); }, kPatience));
    CHECK(connector.code() == Errc::kCorruptData);
  }
}

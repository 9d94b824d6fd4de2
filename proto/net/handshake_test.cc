#include "net_test_util.h"

using namespace tilewise;
using namespace tilewise::net;
using namespace tilewise::net::test;

namespace {

constexpr std::size_t kRoleAt = 48;

// One side of a handshake and how it ended.
struct Side {
  std::unique_ptr<Handshake> handshake;
  std::unique_ptr<Link> link;
  std::optional<Error> failed;
  int calls = 0;

  void start(EventLoop& loop, std::unique_ptr<ByteStream> stream, Role role,
             const HandshakeOptions& options) {
    handshake = Handshake::start(loop, std::move(stream), role, options,
                                 [this](Result<std::unique_ptr<Link>> result) {
                                   ++calls;
                                   if (result)
                                     link = std::move(*result);
                                   else
                                     failed = result.error();
                                   handshake.reset();  // in its own callback
                                 });
    CHECK(calls == 0);
  }
  bool ended() const { return calls > 0; }
  Errc code() const { return failed ? failed->code : Errc::kOk; }
};

struct Meeting {
  std::unique_ptr<EventLoop> loop = make_loop();
  Side connector, acceptor;

  void run(const HandshakeOptions& connecting, const HandshakeOptions& accepting) {
    auto ends = make_memory_pair(*loop, *loop);
    connector.start(*loop, std::move(ends.first), Role::kConnector, connecting);
    acceptor.start(*loop, std::move(ends.second), Role::kAcceptor, accepting);
    CHECK(loop->run_until([&] { return connector.ended() && acceptor.ended(); }, kPatience));
  }
};

}  // namespace

TEST_CASE("with one token both sides get a link and the same cookie") {
  Cookie last{};
  for (int round = 0; round < 2; ++round) {
    Meeting m;
    m.run({.token = token('a')}, {.token = token('a')});
    REQUIRE(m.connector.link);
    REQUIRE(m.acceptor.link);
    CHECK(m.connector.link->cookie() == m.acceptor.link->cookie());
    CHECK(m.connector.link->cookie() != Cookie{});
    CHECK(m.connector.link->cookie() != last);  // another one each time
    last = m.connector.link->cookie();
    Recorder a, b;
    a.start(std::move(m.connector.link));
    b.start(std::move(m.acceptor.link));
    REQUIRE(a.link->send(4, bytes_of("hello")));
    CHECK(m.loop->run_until([&] { return b.frames.size() == 1; }, kPatience));
  }
}

TEST_CASE("another token is unauthenticated on both sides") {
  Meeting m;
  m.run({.token = token('a')}, {.token = token('b')});
  CHECK(m.connector.code() == Errc::kUnauthenticated);
  CHECK(m.acceptor.code() == Errc::kUnauthenticated);
}

TEST_CASE("another version is a typed error that names both, on both sides") {
  Meeting m;
  m.run({.token = token('a'), .link = {.version = 1}}, {.token = token('a'), .link = {.version = 7}});
  REQUIRE(m.connector.code() == Errc::kVersionMismatch);
  REQUIRE(m.acceptor.code() == Errc::kVersionMismatch);
  CHECK(m.connector.failed->message == "the peer speaks protocol version 7, this side version 1");
  CHECK(m.acceptor.failed->message == "the peer speaks protocol version 1, this side version 7");
}

TEST_CASE("the exchange works in single bytes, and fails if any byte is changed") {
  auto loop = make_loop();
  auto meet = [&](Faults to_connector, Faults to_acceptor) {
    auto ends = make_memory_pair(*loop, *loop);
    Side connector, acceptor;
    HandshakeOptions options{.token = token('a'), .deadline_ns = kPatience};
    connector.start(*loop,
                    inject_faults(*loop, std::move(ends.first), std::make_shared<Faults>(to_connector)),
                    Role::kConnector, options);
    acceptor.start(*loop, inject_faults(*loop, std::move(ends.second), std::make_shared<Faults>(to_acceptor)),
                   Role::kAcceptor, options);
    CHECK(loop->run_until([&] { return connector.ended() && acceptor.ended(); }, kPatience));
    // Whoever has a link believes the peer; the other may still fail if the last message was the changed one.
    return std::pair(connector.link != nullptr, acceptor.link != nullptr);
  };
  CHECK(meet({.max_read_bytes = 1, .max_write_bytes = 1}, {.max_read_bytes = 1, .max_write_bytes = 1}) ==
        std::pair(true, true));
  for (std::uint64_t at = 0; at < kHelloBytes + kProofBytes; ++at) {
    CAPTURE(at);
    CHECK(!meet({.flip_at = at}, {}).first);   // the connector never trusts it
    CHECK(!meet({}, {.flip_at = at}).second);  // nor the acceptor
  }
  for (std::uint64_t at = 0; at < kHelloBytes + kProofBytes; at += 13) {
    CAPTURE(at);
    CHECK(meet({}, {.end_at = at}) == std::pair(false, false));
    CHECK(!meet({.end_at = at}, {}).first);
  }
}

TEST_CASE("a reflected connector is not fooled, whatever role the mirror claims") {
  for (bool change_role : {false, true}) {
    CAPTURE(change_role);
    auto loop = make_loop();
    auto ends = make_memory_pair(*loop, *loop);
    RawPeer mirror{*loop, std::move(ends.second)};
    Side side;
    side.start(*loop, std::move(ends.first), Role::kConnector, {.token = token('a')});
    std::string hello = mirror.read(kHelloBytes);
    if (change_role) hello[kRoleAt] = 2;
    mirror.write(hello);
    if (change_role) mirror.write(std::string(kProofBytes, 'x'));
    CHECK(loop->run_until([&] { return side.ended(); }, kPatience));
    CHECK(side.code() == Errc::kUnauthenticated);
  }
}

TEST_CASE("a connector's proof, sent back to it, does not pass as the acceptor's") {
  auto loop = make_loop();
  auto ends = make_memory_pair(*loop, *loop);
  RawPeer mirror{*loop, std::move(ends.second)};
  Side side;
  side.start(*loop, std::move(ends.first), Role::kConnector, {.token = token('a')});
  std::string hello = mirror.read(kHelloBytes);
  hello[kRoleAt] = 2;
  hello[20] ^= 1;  // not its own nonce, so that the proof is what decides
  mirror.write(hello);
  std::string proof = mirror.read(kProofBytes);
  REQUIRE(proof.size() == kProofBytes);
  mirror.write(proof);
  CHECK(loop->run_until([&] { return side.ended(); }, kPatience));
  CHECK(side.code() == Errc::kUnauthenticated);
  CHECK(side.failed->message.find("token") != std::string::npos);
}

TEST_CASE("an acceptor proves nothing to a connector that has not") {
  auto loop = make_loop();
  auto ends = make_memory_pair(*loop, *loop);
  RawPeer attacker{*loop, std::move(ends.first)};
  Side side;
  side.start(*loop, std::move(ends.second), Role::kAcceptor, {.token = token('a')});
  std::string hello = attacker.read(kHelloBytes);
  hello[kRoleAt] = 1;
  hello[20] ^= 1;
  attacker.write(hello);
  attacker.write(frame_text(0xFF01, pattern(32)));  // a guess
  CHECK(attacker.read(1).empty());                  // only the end of the stream comes back
  CHECK(side.code() == Errc::kUnauthenticated);
}

TEST_CASE("what is no handshake is refused after its header") {
  const std::string cases[] = {
      "GET / HTTP/1.1\r\nHost: tilewise\r\n\r\n",
      frame_text({.type = 0xFF00, .payload_bytes = 0xFFFFFFFF}, ""),  // huge
      frame_text({.type = 0xFF00, .payload_bytes = 4096}, ""),
      frame_text(0xFF00, ""),           // empty
      frame_text(1, pattern(40)),       // a message before authentication
      frame_text(0xFF01, pattern(40)),  // a proof before a hello
  };
  for (Role role : {Role::kConnector, Role::kAcceptor}) {
    for (const std::string& text : cases) {
      CAPTURE(text);
      auto loop = make_loop();
      auto ends = make_memory_pair(*loop, *loop);
      RawPeer peer{*loop, std::move(ends.first)};
      Side side;
      side.start(*loop, std::move(ends.second), role, {.token = token('a')});
      peer.write(text.substr(0, kFrameHeaderBytes));
      CHECK(loop->run_until([&] { return side.ended(); }, kPatience));
      CHECK(side.code() == Errc::kUnauthenticated);
    }
  }
}

TEST_CASE("a peer that dribbles or says nothing runs into the deadline") {
  for (bool dribble : {false, true}) {
    auto loop = make_loop();
    auto ends = make_memory_pair(*loop, *loop);
    RawPeer peer{*loop, std::move(ends.first)};
    Side side;
    TimeNs begin = monotonic_now();
    side.start(*loop, std::move(ends.second), Role::kAcceptor,
               {.token = token('a'), .deadline_ns = 100 * kMillisecond});
    loop->poll();  // its hello is out before the time is, also on a busy machine
    std::string hello = frame_text(0xFF00, pattern(40));
    std::function<void(std::size_t)> write = [&](std::size_t at) {
      if (!dribble || at == hello.size() || side.ended()) return;
      peer.write(hello.substr(at, 1));
      loop->after(2 * kMillisecond, [&, at] { write(at + 1); });
    };
    write(0);
    CHECK(loop->run_until([&] { return side.ended(); }, kPatience));
    CHECK(side.code() == Errc::kTimeout);
    CHECK(monotonic_now() - begin >= 100 * kMillisecond);
    CHECK(peer.read(kHelloBytes + 1).size() == kHelloBytes);  // and the connection is closed
  }
}

TEST_CASE("garbage after a good handshake is the link's to refuse") {
  auto loop = make_loop();
  auto ends = make_socket_pair(*loop, *loop);
  REQUIRE(ends);
  // A man in the middle who passes on the handshake and then adds bytes of his own.
  Side acceptor;
  acceptor.start(*loop, std::move(ends->second), Role::kAcceptor, {.token = token('a')});
  auto relay = make_memory_pair(*loop, *loop);
  Side connector;
  connector.start(*loop, std::move(relay.first), Role::kConnector, {.token = token('a')});
  RawPeer to_acceptor{*loop, std::move(ends->first)}, to_connector{*loop, std::move(relay.second)};
  to_acceptor.write(to_connector.read(kHelloBytes));
  to_connector.write(to_acceptor.read(kHelloBytes));
  to_acceptor.write(to_connector.read(kProofBytes) + "garbage garbage garbage");
  CHECK(loop->run_until([&] { return acceptor.ended(); }, kPatience));
  REQUIRE(acceptor.link);
  Recorder b;
  b.start(std::move(acceptor.link));
  CHECK(loop->run_until([&] { return b.closed.has_value(); }, kPatience));
  CHECK(b.why() == Errc::kCorruptData);
}

TEST_CASE("a handshake given up closes its stream and says nothing") {
  auto loop = make_loop();
  auto ends = make_memory_pair(*loop, *loop);
  RawPeer peer{*loop, std::move(ends.first)};
  Side side;
  side.start(*loop, std::move(ends.second), Role::kAcceptor,
             {.token = token('a'), .deadline_ns = kMillisecond});
  side.handshake.reset();
  CHECK(peer.read(100).empty());
  settle(*loop, 3 * kMillisecond);
  CHECK(!side.ended());
}

TEST_CASE("a path that loses what is large gives no link to its connector, whichever direction that is") {
  // Whatever fits into one packet after the proof arrives, and nothing behind it: the largest that IP knows, so that no network's
  // packets are larger than the probe.
  constexpr std::uint64_t kSmall = kHelloBytes + kProofBytes + 65'535;
  const auto meet = [&](bool connecting, bool accepting, Faults to_connector, Faults to_acceptor,
                        TimeNs deadline_ns) {
    auto loop = make_loop();
    auto ends = make_memory_pair(*loop, *loop);
    Side connector, acceptor;
    HandshakeOptions options{.token = token('a'), .deadline_ns = deadline_ns};
    options.probes_path = connecting;
    connector.start(*loop,
                    inject_faults(*loop, std::move(ends.first), std::make_shared<Faults>(to_connector)),
                    Role::kConnector, options);
    options.probes_path = accepting;
    acceptor.start(*loop, inject_faults(*loop, std::move(ends.second), std::make_shared<Faults>(to_acceptor)),
                   Role::kAcceptor, options);
    REQUIRE(loop->run_until([&] { return connector.ended() && acceptor.ended(); }, kPatience));
    return connector.code();
  };
  const Faults lost{.stall_at = kSmall};
  constexpr TimeNs kSoon = 300 * kMillisecond;
  CHECK(meet(true, true, {}, {}, kPatience) == Errc::kOk);
  CHECK(meet(true, true, lost, {}, kSoon) == Errc::kTimeout);
  CHECK(meet(true, true, {}, lost, kSoon) == Errc::kTimeout);
  CHECK(meet(true, false, lost, lost, kPatience) == Errc::kOk);  // nobody tries
  CHECK(meet(false, true, lost, lost, kPatience) == Errc::kOk);
}

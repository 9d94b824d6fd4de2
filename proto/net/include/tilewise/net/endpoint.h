// Listening and connecting: both give Links whose peer has proven itself.
#pragma once
#include <tilewise/net/address.h>
#include <tilewise/net/handshake.h>

namespace tilewise::net {

struct ListenerOptions {
  HandshakeOptions handshake;
  // Connections that have not proven themselves yet. One more pushes out the oldest, which has had the most
  // time.
  std::size_t max_unauthenticated = 64;
};

class Listener {
 public:
  using OnLink = std::function<void(std::unique_ptr<Link>)>;
  using OnReject = std::function<void(const Error&, const std::string& peer)>;

  // A socket file left by a dead process is replaced; one in use is kAlreadyExists, as is a TCP port in use.
  // on_reject, for logs, may be empty.
  static Result<std::unique_ptr<Listener>> open(EventLoop& loop, const Address& address,
                                                ListenerOptions options, OnLink on_link,
                                                OnReject on_reject = {});
  ~Listener();  // closes, removes its socket file, drops the unauthenticated; allowed inside its callbacks

  const Address& address() const;  // with the actual port

 private:
  class Core;
  explicit Listener(std::shared_ptr<Core> core);
  std::shared_ptr<Core> core_;
};

// One attempt, to all addresses of a name in turn, then the handshake; done is called once, from the loop,
// unless the attempt is destroyed before. The deadline in `options` covers everything; above what Handshake
// says: kUnavailable (nobody listens there), kNotFound (unknown host).
class ConnectAttempt {
 public:
  ~ConnectAttempt();  // cancels; allowed inside done

 private:
  friend std::unique_ptr<ConnectAttempt> connect(EventLoop&, const Address&, const HandshakeOptions&,
                                                 Handshake::Done);
  friend std::unique_ptr<ConnectAttempt> connect_stream(
      EventLoop&, const Address&, const HandshakeOptions&,
      std::function<void(Result<std::unique_ptr<ByteStream>>)>);
  class Core;
  explicit ConnectAttempt(std::shared_ptr<Core> core);
  std::shared_ptr<Core> core_;
};

[[nodiscard]] std::unique_ptr<ConnectAttempt> connect(EventLoop& loop, const Address& address,
                                                      const HandshakeOptions& options, Handshake::Done done);
// The same without the handshake: for who passes on what others say. Nobody has proven anything.
[[nodiscard]] std::unique_ptr<ConnectAttempt> connect_stream(
    EventLoop& loop, const Address& address, const HandshakeOptions& options,
    std::function<void(Result<std::unique_ptr<ByteStream>>)> done);

}  // namespace tilewise::net

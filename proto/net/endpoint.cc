#include <tilewise/net/endpoint.h>
#include <tilewise/net/lookup.h>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <map>
#include <vector>

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include "event_loop_impl.h"
#include "os_error.h"
#include "socket_stream.h"

namespace tilewise::net {

namespace asio = boost::asio;
using boost::system::error_code;
using Protocol = asio::generic::stream_protocol;
using Acceptor = asio::basic_socket_acceptor<Protocol>;
using tcp = asio::ip::tcp;

namespace {

constexpr TimeNs kAcceptRetryNs = 100 * kMillisecond;  // after running out of descriptors

Protocol::endpoint unix_endpoint(const Address& address) {
  bool abstract = address.kind == Address::Kind::kUnixAbstract;
  return asio::local::stream_protocol::endpoint(abstract ? std::string(1, '\0') + address.path
                                                         : address.path);
}

Protocol::endpoint tcp_endpoint(const Address& numeric) {
  return tcp::endpoint(asio::ip::make_address(numeric.host), numeric.port);
}

// Somebody may have died without removing it. Only a socket that refuses connections is taken for left over.
void remove_stale_socket(const Address& address) {
  struct stat info {};
  if (::lstat(address.path.c_str(), &info) != 0 || !S_ISSOCK(info.st_mode)) return;
  // Not by Asio, which waits where the queue of whoever listens is full: a process that is stopped never takes from it.
  const UniqueFd probe(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const Protocol::endpoint where = unix_endpoint(address);
  if (probe.get() >= 0 && ::connect(probe.get(), where.data(), static_cast<socklen_t>(where.size())) != 0 &&
      errno == ECONNREFUSED)
    ::unlink(address.path.c_str());
}

}  // namespace

// ---- listening ----

class Listener::Core : public std::enable_shared_from_this<Listener::Core> {
 public:
  Core(EventLoop& loop, const Address& address, ListenerOptions options, OnLink on_link, OnReject on_reject)
      : loop_(loop),
        address_(address),
        options_(std::move(options)),
        on_link_(std::move(on_link)),
        on_reject_(std::move(on_reject)),
        acceptor_(loop.impl().io) {}

  Status open();
  void accept();
  void close();
  const Address& address() const { return address_; }

 private:
  // By reference: a generic endpoint is constructible from anything, Error included, which confuses Result.
  Status find_endpoint(Protocol::endpoint& where) const;
  void admit(Socket socket);
  void reject(const Error& why, const std::string& peer) {
    if (on_reject_) on_reject_(why, peer);
  }

  EventLoop& loop_;
  Address address_;
  ListenerOptions options_;
  OnLink on_link_;
  OnReject on_reject_;
  Acceptor acceptor_;
  std::map<std::uint64_t, std::unique_ptr<Handshake>> unauthenticated_;  // oldest first
  std::uint64_t last_number_ = 0;
  TimerId retry_ = 0;
  bool closed_ = false;
  bool owns_file_ = false;
};

Status Listener::Core::find_endpoint(Protocol::endpoint& where) const {
  if (address_.kind != Address::Kind::kTcp) {
    where = unix_endpoint(address_);
    return {};
  }
  TW_ASSIGN(const std::vector<Address> found, look_up(address_, kListenLookupNs));
  where = tcp_endpoint(found.front());
  return {};
}

Status Listener::Core::open() {
  const std::string what = "listen on " + address_.to_string();
  Protocol::endpoint where;
  TW_TRY(find_endpoint(where));
  bool file = address_.kind == Address::Kind::kUnix;
  if (file) remove_stale_socket(address_);
  error_code ec;
  acceptor_.open(where.protocol(), ec);
  if (!ec) ::fcntl(acceptor_.native_handle(), F_SETFD, FD_CLOEXEC);
  if (!ec && !file) acceptor_.set_option(Acceptor::reuse_address(true), ec);
  if (!ec) acceptor_.bind(where, ec);
  if (ec) return os_error(what, ec);
  owns_file_ = file;
  // Before listen(), so that nobody else's connect() ever succeeds.
  if (file && ::chmod(address_.path.c_str(), 0600) != 0) return os_error(what, errno);
  acceptor_.listen(asio::socket_base::max_listen_connections, ec);
  if (ec) return os_error(what, ec);
  if (address_.kind == Address::Kind::kTcp) {
    auto text = describe(acceptor_.local_endpoint(ec));
    TW_ASSIGN(Address actual, Address::parse(text));
    address_.port = actual.port;
  }
  accept();
  return {};
}

void Listener::Core::accept() {
  acceptor_.async_accept([self = shared_from_this()](error_code ec, Socket socket) {
    if (self->closed_) return;
    if (!ec) {
      self->admit(std::move(socket));
      if (!self->closed_) self->accept();
      return;
    }
    // Out of descriptors or memory: the connection stays in the kernel's queue, and asking again at once
    // would spin.
    self->retry_ = self->loop_.after(kAcceptRetryNs, [core = self.get()] { core->accept(); });
    self->reject(os_error("accept", ec), "");
  });
}

void Listener::Core::admit(Socket socket) {
  auto stream = make_socket_stream(std::move(socket), options_.handshake.silence_ns);
  std::string peer = stream->peer();
  std::uint64_t number = ++last_number_;
  // Erased from the table before the user is told, who may destroy the Listener.
  auto done = [this, number, peer](Result<std::unique_ptr<Link>> link) {
    auto self = shared_from_this();
    auto finished = unauthenticated_.extract(number);
    if (link) {
      on_link_(std::move(*link));
    } else {
      reject(link.error(), peer);
    }
  };
  if (unauthenticated_.size() >= options_.max_unauthenticated) {
    unauthenticated_.erase(unauthenticated_.begin());
    reject(error(Errc::kLimitExceeded, "too many unauthenticated connections: dropped the oldest"), "");
    if (closed_) return;
  }
  unauthenticated_[number] =
      Handshake::start(loop_, std::move(stream), Role::kAcceptor, options_.handshake, std::move(done));
}

void Listener::Core::close() {
  closed_ = true;
  loop_.cancel(retry_);
  error_code ignored;
  acceptor_.close(ignored);
  if (owns_file_) ::unlink(address_.path.c_str());
  unauthenticated_.clear();
}

Listener::Listener(std::shared_ptr<Core> core) : core_(std::move(core)) {}
Listener::~Listener() { core_->close(); }
const Address& Listener::address() const { return core_->address(); }

Result<std::unique_ptr<Listener>> Listener::open(EventLoop& loop, const Address& address,
                                                 ListenerOptions options, OnLink on_link,
                                                 OnReject on_reject) {
  auto core =
      std::make_shared<Core>(loop, address, std::move(options), std::move(on_link), std::move(on_reject));
  std::unique_ptr<Listener> listener(new Listener(core));
  TW_TRY(core->open());
  return listener;
}

// ---- connecting ----

class ConnectAttempt::Core : public std::enable_shared_from_this<ConnectAttempt::Core> {
 public:
  using Bare = std::function<void(Result<std::unique_ptr<ByteStream>>)>;

  // One of `done` and `bare`.
  Core(EventLoop& loop, const Address& address, const HandshakeOptions& options, Handshake::Done done,
       Bare bare)
      : loop_(loop),
        address_(address),
        options_(options),
        done_(std::move(done)),
        bare_(std::move(bare)),
        socket_(loop.impl().io),
        deadline_at_(monotonic_now() + options.deadline_ns) {}

  void begin();
  void cancel();

 private:
  void try_next(Error last);
  void shake_hands();
  void end(Result<std::unique_ptr<Link>> result);
  void end_bare();

  EventLoop& loop_;
  Address address_;
  HandshakeOptions options_;
  Handshake::Done done_;
  Bare bare_;
  std::unique_ptr<Lookup> lookup_;
  Socket socket_;
  std::vector<Protocol::endpoint> endpoints_;
  std::size_t next_ = 0;
  std::unique_ptr<Handshake> handshake_;
  TimeNs deadline_at_;
  TimerId deadline_ = 0;
  bool ended_ = false;
};

void ConnectAttempt::Core::begin() {
  deadline_ = loop_.after(options_.deadline_ns, [this] {
    auto self = shared_from_this();
    end(error(Errc::kTimeout, "connect to " + address_.to_string() + ": no answer in time"));
  });
  if (address_.kind != Address::Kind::kTcp) {
    endpoints_.push_back(unix_endpoint(address_));
    loop_.defer([self = shared_from_this()] { self->try_next({}); });
    return;
  }
  lookup_ = std::make_unique<Lookup>(loop_, address_,
                                     [self = shared_from_this()](Result<std::vector<Address>> found) {
                                       if (!found) return self->end(found.error());
                                       for (const Address& each : *found)
                                         self->endpoints_.push_back(tcp_endpoint(each));
                                       self->try_next({});
                                     });
}

void ConnectAttempt::Core::try_next(Error last) {
  if (ended_) return;
  if (next_ == endpoints_.size()) return end(std::move(last));
  const Protocol::endpoint& where = endpoints_[next_++];
  error_code ec;
  socket_.close(ec);
  socket_.open(where.protocol(), ec);
  auto connected = [self = shared_from_this()](error_code failed) {
    if (self->ended_) return;
    // A Unix socket whose queue is full says "try again" and is writable at once, which Asio takes for a connection.
    if (!failed && self->address_.kind != Address::Kind::kTcp) self->socket_.remote_endpoint(failed);
    if (failed == asio::error::not_connected)
      return self->try_next(error(Errc::kUnavailable, "connect to " + self->address_.to_string() +
                                                          ": it takes no connections, others wait"));
    if (failed) return self->try_next(os_error("connect to " + self->address_.to_string(), failed));
    self->bare_ ? self->end_bare() : self->shake_hands();
  };
  if (ec) return connected(ec);
  socket_.async_connect(where, std::move(connected));
}

void ConnectAttempt::Core::shake_hands() {
  options_.deadline_ns = std::max<TimeNs>(deadline_at_ - monotonic_now(), 0);
  loop_.cancel(std::exchange(deadline_, 0));
  handshake_ = Handshake::start(
      loop_, make_socket_stream(std::move(socket_), options_.silence_ns), Role::kConnector, options_,
      [this](Result<std::unique_ptr<Link>> link) {
        auto self = shared_from_this();
        if (link) return end(std::move(link));
        end(error(link.error().code, "connect to " + address_.to_string() + ": " + link.error().message));
      });
}

void ConnectAttempt::Core::end(Result<std::unique_ptr<Link>> result) {
  if (ended_) return;
  cancel();
  if (bare_) return std::exchange(bare_, {})(result.error());
  Handshake::Done done = std::move(done_);
  done(std::move(result));
}

void ConnectAttempt::Core::end_bare() {
  std::unique_ptr<ByteStream> stream = make_socket_stream(std::move(socket_), options_.silence_ns);
  cancel();
  std::exchange(bare_, {})(std::move(stream));
}

void ConnectAttempt::Core::cancel() {
  ended_ = true;
  loop_.cancel(std::exchange(deadline_, 0));
  lookup_.reset();
  error_code ignored;
  socket_.close(ignored);
  handshake_.reset();
}

ConnectAttempt::ConnectAttempt(std::shared_ptr<Core> core) : core_(std::move(core)) {}
ConnectAttempt::~ConnectAttempt() { core_->cancel(); }

std::unique_ptr<ConnectAttempt> connect(EventLoop& loop, const Address& address,
                                        const HandshakeOptions& options, Handshake::Done done) {
  auto core = std::make_shared<ConnectAttempt::Core>(loop, address, options, std::move(done), nullptr);
  core->begin();
  return std::unique_ptr<ConnectAttempt>(new ConnectAttempt(std::move(core)));
}

std::unique_ptr<ConnectAttempt> connect_stream(
    EventLoop& loop, const Address& address, const HandshakeOptions& options,
    std::function<void(Result<std::unique_ptr<ByteStream>>)> done) {
  auto core = std::make_shared<ConnectAttempt::Core>(loop, address, options, nullptr, std::move(done));
  core->begin();
  return std::unique_ptr<ConnectAttempt>(new ConnectAttempt(std::move(core)));
}

}  // namespace tilewise::net

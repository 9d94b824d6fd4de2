#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include <boost/asio/ip/address.hpp>
#include "event_loop_impl.h"
#include "os_error.h"
#include "socket_stream.h"

namespace tilewise::net {

namespace asio = boost::asio;
using boost::system::error_code;

std::string describe(const asio::generic::stream_protocol::endpoint& endpoint) {
  const sockaddr* address = endpoint.data();
  if (address->sa_family == AF_INET) {
    auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
    return asio::ip::address_v4(ntohl(v4->sin_addr.s_addr)).to_string() + ":" +
           std::to_string(ntohs(v4->sin_port));
  }
  if (address->sa_family == AF_INET6) {
    auto* v6 = reinterpret_cast<const sockaddr_in6*>(address);
    asio::ip::address_v6::bytes_type bytes;
    std::memcpy(bytes.data(), &v6->sin6_addr, bytes.size());
    std::string text = "[";
    return text.append(asio::ip::address_v6(bytes).to_string()).append("]:") +
           std::to_string(ntohs(v6->sin6_port));
  }
  return "unix";
}

namespace {

constexpr std::size_t kMaxPieces = 64;
constexpr std::size_t kFdSpace = CMSG_SPACE(sizeof(int) * kMaxFdsPerFrame);

// Keepalive finds a host that vanished while nothing is sent to it, the user timeout (RFC 5482) while something is. Probes begin
// after three tenths of the time and follow each other quickly: a link that was idle must bear a silence of half the time, whenever
// that begins, and the time counts from what was heard last.
void set_tcp_options(int fd, TimeNs silence_ns) {
  const auto set = [fd](int level, int option, std::int64_t value) {
    const int number = static_cast<int>(value);
    ::setsockopt(fd, level, option, &number, sizeof number);
  };
  const std::int64_t ms = std::clamp<std::int64_t>(silence_ns / kMillisecond, 2'000, 86'400'000),
                     s = ms / 1'000;
  const std::int64_t idle = std::max<std::int64_t>(1, s * 3 / 10),
                     interval = std::max<std::int64_t>(1, s / 10);
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, idle);
  set(IPPROTO_TCP, TCP_KEEPINTVL, interval);
  set(IPPROTO_TCP, TCP_KEEPCNT, std::max<std::int64_t>(1, (s - idle) / interval));
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, ms);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
}

bool try_later(int err) { return err == EAGAIN || err == EWOULDBLOCK || err == EINTR; }

// Asio keeps what a handler captured until the operation has ended, which may be after the stream is gone:
// so the socket and the callbacks live in a block that handlers share. Asio waits, the calls here move the
// bytes: descriptors travel in ancillary data, which Asio does not know.
struct SocketState {
  explicit SocketState(Socket s) : socket(std::move(s)) {}

  Socket socket;
  EventLoop::Fn on_readable, on_writable;
  bool waits_to_read = false,
       waits_to_write = false;  // for the kernel: whoever asks again takes over the wait
  bool closed = false;
};

class SocketStream : public ByteStream {
 public:
  SocketStream(Socket socket, TimeNs silence_ns) : state_(std::make_shared<SocketState>(std::move(socket))) {
    error_code ignored;
    Socket& s = state_->socket;
    s.native_non_blocking(true, ignored);
    auto endpoint = s.remote_endpoint(ignored);
    unix_ = endpoint.data()->sa_family != AF_INET && endpoint.data()->sa_family != AF_INET6;
    peer_ = describe(endpoint);
    ::fcntl(s.native_handle(), F_SETFD, FD_CLOEXEC);  // Asio leaves it out; daemons start children
    if (!unix_) set_tcp_options(s.native_handle(), silence_ns);
  }
  ~SocketStream() override { close(); }

  Result<std::size_t> try_read(std::span<std::byte> into, std::vector<UniqueFd>& fds) override;
  Result<std::size_t> try_write(std::span<const Piece> pieces, std::span<const UniqueFd> fds) override;

  void wait_readable(EventLoop::Fn fn) override {
    wait(Socket::wait_read, &SocketState::on_readable, &SocketState::waits_to_read, std::move(fn));
  }
  void wait_writable(EventLoop::Fn fn) override {
    wait(Socket::wait_write, &SocketState::on_writable, &SocketState::waits_to_write, std::move(fn));
  }

  void shutdown_write() override {
    error_code ignored;
    state_->socket.shutdown(Socket::shutdown_send, ignored);
  }
  void close() override {
    if (std::exchange(state_->closed, true)) return;
    error_code ignored;
    // A child that was forked at this moment has the socket too: the peer is to see its end all the same.
    if (unix_) state_->socket.shutdown(Socket::shutdown_both, ignored);
    state_->socket.close(ignored);
    std::atomic_thread_fence(std::memory_order_seq_cst);  // before whatever becomes of this process's memory
    auto dropped = std::pair(std::move(state_->on_readable), std::move(state_->on_writable));
  }
  bool can_pass_fds() const override { return unix_; }
  std::optional<pid_t> peer_process() const override {
    ucred who{};
    socklen_t bytes = sizeof who;
    const bool known =
        unix_ && !state_->closed &&
        ::getsockopt(state_->socket.native_handle(), SOL_SOCKET, SO_PEERCRED, &who, &bytes) == 0;
    return known && who.pid > 0 ? std::optional(who.pid) : std::nullopt;
  }
  bool peer_closed() const override {
    if (state_->closed) return true;
    std::atomic_thread_fence(std::memory_order_seq_cst);  // after whatever was read of the peer's memory
    pollfd look{.fd = state_->socket.native_handle(), .events = POLLRDHUP, .revents = 0};
    return ::poll(&look, 1, 0) > 0;  // errors and the end of both directions are told unasked
  }
  std::string peer() const override { return peer_; }

 private:
  void wait(Socket::wait_type type, EventLoop::Fn SocketState::*slot, bool SocketState::*waits,
            EventLoop::Fn fn) {
    if (state_->closed) return;
    (*state_).*slot = std::move(fn);
    if (std::exchange((*state_).*waits, true)) return;
    state_->socket.async_wait(type, [state = state_, slot, waits](error_code) {
      (*state).*waits = false;
      if (state->closed) return;
      EventLoop::Fn call = std::exchange((*state).*slot, nullptr);  // may ask for the next one, or close
      if (call) call();
    });
  }

  std::shared_ptr<SocketState> state_;
  std::string peer_;
  bool unix_ = false;
};

// All descriptors are taken from the message before anything can fail, so that none leaks.
Status collect_fds(msghdr& message, std::vector<UniqueFd>& fds) {
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    std::size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(fd));
      fds.emplace_back(fd);
    }
  }
  if ((message.msg_flags & MSG_CTRUNC) != 0) {
    return error(Errc::kLimitExceeded,
                 "the peer sent too many descriptors at once, or this process has too many open");
  }
  return {};
}

Result<std::size_t> SocketStream::try_read(std::span<std::byte> into, std::vector<UniqueFd>& fds) {
  if (state_->closed) return error(Errc::kCancelled, "the stream was closed by this side");
  int handle = state_->socket.native_handle();
  ssize_t n;
  if (unix_) {
    alignas(cmsghdr) char control[kFdSpace];
    iovec piece{into.data(), into.size()};
    msghdr message{
        .msg_iov = &piece, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
    n = ::recvmsg(handle, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (n > 0) TW_TRY(collect_fds(message, fds));
  } else {
    n = ::recv(handle, into.data(), into.size(), MSG_DONTWAIT);
  }
  if (n > 0) return static_cast<std::size_t>(n);
  if (n == 0) return error(Errc::kUnavailable, kEndOfStream);
  if (try_later(errno)) return std::size_t{0};
  return os_error("read from " + peer_, errno);
}

Result<std::size_t> SocketStream::try_write(std::span<const Piece> pieces, std::span<const UniqueFd> fds) {
  if (state_->closed) return error(Errc::kCancelled, "the stream was closed by this side");
  std::array<iovec, kMaxPieces> io;
  std::size_t count = std::min(pieces.size(), io.size());
  for (std::size_t i = 0; i < count; ++i)
    io[i] = {const_cast<std::byte*>(pieces[i].data()), pieces[i].size()};
  msghdr message{.msg_iov = io.data(), .msg_iovlen = count};
  alignas(cmsghdr) char control[kFdSpace] = {};
  if (!fds.empty()) {
    if (!unix_ || fds.size() > kMaxFdsPerFrame)
      return error(Errc::kUnsupported, "cannot pass these descriptors");
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(sizeof(int) * fds.size());
    cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
    for (std::size_t i = 0; i < fds.size(); ++i) {
      int fd = fds[i].get();
      std::memcpy(CMSG_DATA(c) + i * sizeof(int), &fd, sizeof(fd));
    }
  }
  ssize_t n = ::sendmsg(state_->socket.native_handle(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (n >= 0) return static_cast<std::size_t>(n);
  if (try_later(errno)) return std::size_t{0};
  return os_error("write to " + peer_, errno);
}

}  // namespace

std::unique_ptr<ByteStream> make_socket_stream(Socket socket, TimeNs silence_ns) {
  return std::make_unique<SocketStream>(std::move(socket), silence_ns);
}

Result<StreamPair> make_socket_pair(EventLoop& first, EventLoop& second) {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0)
    return os_error("make a socket pair", errno);
  UniqueFd ends[2] = {UniqueFd(fds[0]), UniqueFd(fds[1])};
  TW_ASSIGN(auto one, adopt_socket(first, std::move(ends[0])));
  TW_ASSIGN(auto other, adopt_socket(second, std::move(ends[1])));
  return StreamPair{std::move(one), std::move(other)};
}

Result<std::unique_ptr<ByteStream>> adopt_socket(EventLoop& loop, UniqueFd connected) {
  Socket socket(loop.impl().io);
  error_code ec;
  socket.assign(asio::generic::stream_protocol(AF_UNIX, 0), connected.get(), ec);
  if (ec) return os_error("watch a socket", ec.value());
  connected.release();
  return make_socket_stream(std::move(socket), 0);  // not TCP
}

}  // namespace tilewise::net

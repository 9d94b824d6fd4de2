// What peer links over TCP are tested with: two nodes, and a way between them that can be cut.
#pragma once
#include "exchange_test_util.h"

#include <tilewise/base/prng.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <list>
#include <thread>

namespace tilewise::exchange::test {

// Over TCP alone, as between hosts.
inline Options tcp_options(const char* host) {
  Options options = options_of();
  options.host_id = host;
  options.listen = {"tcp://127.0.0.1:0"};
  options.use_ucx = false;
  return options;
}

// A thread that passes bytes on from a port to another one, so many of each connection, and then resets it.
class Way {
 public:
  explicit Way(const std::string& to) : to_(net::Address::parse(to).value().port) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in where = local(0);
    socklen_t size = sizeof where;
    REQUIRE(::bind(listener_, reinterpret_cast<sockaddr*>(&where), sizeof where) == 0);
    REQUIRE(::listen(listener_, 16) == 0);
    REQUIRE(::getsockname(listener_, reinterpret_cast<sockaddr*>(&where), &size) == 0);
    port_ = ntohs(where.sin_port);
    thread_ = std::jthread([this] { serve(); });
  }
  ~Way() {
    ended_ = true;
    thread_.join();
    ::close(listener_);
  }
  std::string address() const { return "tcp://127.0.0.1:" + std::to_string(port_); }
  // Of connections made from now on: up to so many bytes, chosen by chance; 0: all.
  void cut_after(std::int64_t most) { most_ = most; }
  // Those there are end now.
  void cut() { cut_ = true; }
  void set_up(bool up) { up_ = up; }
  // What is larger than a packet may be gets lost, and what its connection carries behind it waits for it in vain.
  void lose_large(bool lose) { lose_large_ = lose; }
  // The latest of those there are ends, the others do not notice.
  void cut_latest() { cut_latest_ = true; }
  // Likewise, but who was connected to does not notice either.
  void cut_latest_for_connector() { half_latest_ = true; }

 private:
  struct Pair {
    int ends[2];
    std::int64_t left;
    bool stuck[2] = {};  // what comes from that end waits for what was lost
  };
  static sockaddr_in local(std::uint16_t port) {
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_port = htons(port);
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return where;
  }
  static void reset(Pair& pair) {
    for (const int end : pair.ends) {
      if (end < 0) continue;
      const linger now{1, 0};
      ::setsockopt(end, SOL_SOCKET, SO_LINGER, &now, sizeof now);
      ::close(end);
    }
  }
  bool forward(Pair& pair, std::size_t end) {
    const int from = pair.ends[end], to = pair.ends[1 - end];
    std::int64_t& left = pair.left;
    char bytes[65536];
    ssize_t got = ::recv(from, bytes, sizeof bytes, 0);
    if (got <= 0) return false;
    if (lose_large_ && got > kPacketBytes) return pair.stuck[end] = true;
    const bool last = got >= left;
    got = static_cast<ssize_t>(std::min<std::int64_t>(got, left));
    left -= got;
    for (ssize_t sent = 0; sent < got;) {
      const ssize_t n = ::send(to, bytes + sent, static_cast<std::size_t>(got - sent), MSG_NOSIGNAL);
      if (n <= 0) return false;
      sent += n;
    }
    return !last;
  }
  void serve() {
    std::list<Pair> pairs;
    std::vector<int> silent;  // nobody reads what comes there
    Prng prng(7);
    while (!ended_) {
      if (cut_.exchange(false) || !up_) {
        for (Pair& pair : pairs) reset(pair);
        pairs.clear();
      }
      if (half_latest_.exchange(false) && !pairs.empty()) {
        silent.push_back(std::exchange(pairs.back().ends[1], -1));
        reset(pairs.back());
        pairs.pop_back();
      }
      if (cut_latest_.exchange(false) && !pairs.empty()) {
        reset(pairs.back());
        pairs.pop_back();
      }
      std::vector<pollfd> waiting{{listener_, POLLIN, 0}};
      for (const Pair& pair : pairs) {
        for (std::size_t i = 0; i < 2; ++i)
          waiting.push_back({pair.ends[i], static_cast<short>(pair.stuck[i] ? POLLRDHUP : POLLIN), 0});
      }
      if (::poll(waiting.data(), waiting.size(), 2) <= 0) continue;
      std::size_t at = 1;
      for (auto pair = pairs.begin(); pair != pairs.end(); at += 2) {
        bool open = true;
        for (std::size_t i = 0; i < 2 && open; ++i) {
          const short what = waiting[at + i].revents;
          if (what != 0) open = !pair->stuck[i] && forward(*pair, i);
        }
        if (!open) reset(*pair);
        pair = open ? std::next(pair) : pairs.erase(pair);
      }
      if (waiting[0].revents == 0) continue;
      Pair pair{{::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC), -1}, INT64_MAX};
      if (const std::int64_t most = most_; most > 0) pair.left = prng.between(1, most);
      pair.ends[1] = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      const sockaddr_in where = local(to_);
      if (up_ && ::connect(pair.ends[1], reinterpret_cast<const sockaddr*>(&where), sizeof where) == 0)
        pairs.push_back(pair);
      else
        reset(pair);
    }
    for (const int end : silent) ::close(end);
  }

  static constexpr ssize_t kPacketBytes = 1'500;

  std::uint16_t to_ = 0, port_ = 0;
  int listener_ = -1;
  std::atomic<std::int64_t> most_{0};
  std::atomic<bool> cut_{false}, cut_latest_{false}, half_latest_{false}, up_{true}, lose_large_{false},
      ended_{false};
  std::jthread thread_;
};

// `a` reaches `b` over the way.
inline void introduce_over(Way& way, Node& a, Node& b) {
  msg::PeerInfo info = b.info();
  info.addresses = {way.address()};
  a.exchange->peer_joined(info);
  b.exchange->peer_joined(a.info());
}

}  // namespace tilewise::exchange::test

#include "proxy.h"

#include <tilewise/net/address.h>

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <limits>
#include <list>
#include <stdexcept>
#include <utility>
#include <vector>

namespace tilewise::testing {
namespace {

using Clock = std::chrono::steady_clock;

sockaddr_in local(std::uint16_t port) {
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_port = htons(port);
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return where;
}

// What is there, at most `most` bytes, to the other end. Its count, or a negative number: it is over.
ssize_t forward(int from, int to, std::size_t most) {
  char bytes[65536];
  const ssize_t got = recv(from, bytes, std::min(most, sizeof bytes), 0);
  for (ssize_t sent = 0; sent < got;) {
    const ssize_t n = send(to, bytes + sent, static_cast<std::size_t>(got - sent), MSG_NOSIGNAL);
    if (n <= 0) return -1;
    sent += n;
  }
  return got > 0 ? got : -1;
}

// What may go one way by now.
class Budget {
 public:
  std::size_t left(std::int64_t rate) {
    const auto now = Clock::now();
    const std::chrono::duration<double> since = now - std::exchange(at_, now);
    if (rate == 0) return std::numeric_limits<std::size_t>::max();
    // Pieces of a tenth of a second.
    bytes_ = std::min(bytes_ + since.count() * static_cast<double>(rate), 0.1 * static_cast<double>(rate));
    return static_cast<std::size_t>(std::max(bytes_, 0.0));
  }
  void took(ssize_t bytes) { bytes_ -= static_cast<double>(bytes); }

 private:
  Clock::time_point at_ = Clock::now();
  double bytes_ = 0;
};

}  // namespace

struct Proxy::Pair {
  int ends[2] = {-1, -1};  // who connected, and to whom

  ~Pair() {
    for (const int end : ends) {
      if (end >= 0) close(end);
    }
  }
  void reset() {
    const linger at_once{1, 0};
    for (const int end : ends) setsockopt(end, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  }
};

Proxy::Proxy(const std::string& to) : to_(net::Address::parse(to)->port) {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in where = local(0);
  socklen_t size = sizeof where;
  if (bind(listener_, reinterpret_cast<sockaddr*>(&where), sizeof where) != 0 || listen(listener_, 16) != 0 ||
      getsockname(listener_, reinterpret_cast<sockaddr*>(&where), &size) != 0)
    throw std::runtime_error("no port for a proxy");
  port_ = ntohs(where.sin_port);
  thread_ = std::thread([this] { serve(); });
}

void Proxy::lead_to(const std::string& to) {
  to_ = net::Address::parse(to)->port;
  reset();
}

Proxy::~Proxy() {
  ended_ = true;
  thread_.join();
  close(listener_);
}

void Proxy::accept_one(Pair& pair) {
  pair.ends[0] = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
  pair.ends[1] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_in where = local(to_);
  if (up_ && pair.ends[0] >= 0 &&
      connect(pair.ends[1], reinterpret_cast<const sockaddr*>(&where), sizeof where) == 0) {
    ++links_;
    return;
  }
  close(std::exchange(pair.ends[1], -1));
}

void Proxy::serve() {
  std::list<Pair> pairs;
  Budget budgets[2];
  int resets = 0;
  while (!ended_) {
    if (std::exchange(resets, resets_.load()) != resets_) {
      for (Pair& pair : pairs) pair.reset();
      pairs.clear();
    }
    if (!up_) pairs.clear();
    const std::size_t left[] = {hold_there_ ? 0 : budgets[0].left(rate_),
                                hold_back_ ? 0 : budgets[1].left(rate_)};
    std::vector<pollfd> waiting{{listener_, POLLIN, 0}};
    for (const Pair& pair : pairs) {
      // -1: poll overlooks it, ends included.
      for (int i = 0; i < 2; ++i) waiting.push_back({left[i] > 0 ? pair.ends[i] : -1, POLLIN, 0});
    }
    if (poll(waiting.data(), waiting.size(), 5) <= 0) continue;
    std::size_t at = 1;
    for (auto pair = pairs.begin(); pair != pairs.end(); at += 2) {
      bool open = true;
      for (int i = 0; i < 2 && open; ++i) {
        if (waiting[at + static_cast<std::size_t>(i)].revents == 0) continue;
        const ssize_t count = forward(pair->ends[i], pair->ends[1 - i], left[i]);
        open = count > 0;
        if (open) budgets[i].took(count);
      }
      pair = open ? std::next(pair) : pairs.erase(pair);
    }
    if (waiting[0].revents == 0) continue;
    accept_one(pairs.emplace_back());
    if (pairs.back().ends[1] < 0) pairs.pop_back();
  }
}

}  // namespace tilewise::testing

#include "proxy.h"

#include <tilewise/net/address.h>

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <algorithm>
#include <list>
#include <stdexcept>
#include <vector>

namespace tilewise::testing {
namespace {

sockaddr_in local(std::uint16_t port) {
  sockaddr_in where{};
  where.sin_family = AF_INET;
  where.sin_port = htons(port);
  where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return where;
}

struct Pair {
  int ends[2] = {-1, -1};
  ~Pair() {
    for (const int end : ends) {
      if (end >= 0) close(end);
    }
  }
};

// All that is there, to the other end. False: it is over.
bool forward(int from, int to) {
  char bytes[65536];
  const ssize_t got = recv(from, bytes, sizeof bytes, 0);
  for (ssize_t sent = 0; sent < got;) {
    const ssize_t n = send(to, bytes + sent, static_cast<std::size_t>(got - sent), MSG_NOSIGNAL);
    if (n <= 0) return false;
    sent += n;
  }
  return got > 0;
}

}  // namespace

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

Proxy::~Proxy() {
  ended_ = true;
  thread_.join();
  close(listener_);
}

void Proxy::serve() {
  std::list<Pair> pairs;
  while (!ended_) {
    if (!up_) pairs.clear();
    std::vector<pollfd> waiting{{listener_, POLLIN, 0}};
    for (const Pair& pair : pairs) {
      for (const int end : pair.ends) waiting.push_back({end, POLLIN, 0});
    }
    if (poll(waiting.data(), waiting.size(), 5) <= 0) continue;
    std::size_t at = 1;
    for (auto pair = pairs.begin(); pair != pairs.end(); at += 2) {
      bool open = true;
      for (int i = 0; i < 2 && open; ++i) {
        if (waiting[at + static_cast<std::size_t>(i)].revents != 0)
          open = forward(pair->ends[i], pair->ends[1 - i]);
      }
      pair = open ? std::next(pair) : pairs.erase(pair);
    }
    if (waiting[0].revents == 0) continue;
    const int made = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    Pair& pair = pairs.emplace_back();
    pair.ends[0] = made;
    pair.ends[1] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in where = local(to_);
    if (!up_ || made < 0 ||
        connect(pair.ends[1], reinterpret_cast<const sockaddr*>(&where), sizeof where) != 0)
      pairs.pop_back();
    else
      ++links_;
  }
}

}  // namespace tilewise::testing

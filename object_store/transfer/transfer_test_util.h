// Private to the tests of this folder: a second process with an engine, told what to do over a socket.
#pragma once
#include <tilewise/transfer/ucx_engine.h>

#include <doctest/doctest.h>

#include <csignal>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <sys/types.h>

#include "print_result.h"
#include "sanitizers.h"

namespace tilewise::transfer::test {

constexpr TimeNs kPatience = 30 * testing::kTimesSlower * kSecond;
constexpr int kAddressRoom = 2048;

inline Cookie cookie_of(int n) {
  Cookie cookie{};
  std::memcpy(cookie.data(), &n, sizeof n);
  cookie[15] = std::byte{0x5A};
  return cookie;
}

inline void fill(std::vector<std::byte>& bytes, std::uint64_t seed) {
  std::uint64_t x = seed * 0x9E3779B97F4A7C15ull + 1;
  for (std::byte& b : bytes) {
    x = x * 6364136223846793005ull + 1442695040888963407ull;
    b = static_cast<std::byte>(x >> 56);
  }
}
inline bool filled(const std::vector<std::byte>& bytes, std::uint64_t seed) {
  std::vector<std::byte> wanted(bytes.size());
  fill(wanted, seed);
  return wanted == bytes;
}

// What parent and child say to each other, one packet each.
struct Order {
  enum class What : std::int32_t { kHello, kTransmit, kExpect, kArmed, kDone } what = What::kHello;
  std::int32_t cookie = 0;
  std::uint64_t transfer = 0;
  std::int64_t bytes = 0;
  std::uint64_t seed = 0;
  std::int32_t errc = 0, via = 0, good = 0;
  std::int32_t address_bytes = 0;
  char address[kAddressRoom] = {};
};

// How one transfer ended.
struct End {
  Status status;
  Via via = Via::kNone;
  int times = 0;
};

inline Done into(End& end) {
  return [&end](Status status, Via via) {
    end.status = std::move(status);
    end.via = via;
    ++end.times;
  };
}

// This test program again, running only `test_case` (a skipped one), with a socket to its parent.
class Child {
 public:
  Child(const std::string& test_case, const std::string& transports);
  ~Child();  // kills
  void send(const Order& order);
  std::optional<Order> poll();  // a packet, if there is one
  void kill(int signal);        // SIGKILL: it is gone when this returns

 private:
  pid_t pid_ = -1;
  int socket_ = -1;
  std::deque<Order> unread_;  // came while sending
};

// The child's side of that socket, and the transports it was told to use.
int parent_socket();
std::string child_transports();

// An engine with a child process that has one too; both know each other under cookie_of(0).
struct Pair {
  std::unique_ptr<UcxEngine> engine;
  Child child;
  std::optional<Order> hello;                 // what the child said of itself
  std::map<std::uint64_t, Order> child_done;  // by transfer
  std::set<std::uint64_t> child_armed;        // transfers that the child expects by now

  explicit Pair(UcxOptions options, const std::string& child_test = "child: engine");
  // Progress until `done`; false after `patience_ns`.
  template <class Fn> bool run_until(Fn done, TimeNs patience_ns = kPatience) {
    const TimeNs end = monotonic_now() + patience_ns;
    while (!done()) {
      if (monotonic_now() > end) return false;
      turn();
    }
    return true;
  }
  void turn();
  void child_transmits(std::uint64_t transfer, std::int64_t bytes, std::uint64_t seed, int cookie = 0);
  void child_expects(std::uint64_t transfer, std::int64_t bytes, std::uint64_t seed);  // until it does
};

}  // namespace tilewise::transfer::test

// A way between two processes that a test can break, for where hosts of their own (network.h) are not to be had: bytes go through, go
// through slowly, wait, or meet a link that ends.
#pragma once
#include <atomic>
#include <cstdint>
#include <string>
#include <thread>

namespace tilewise::testing {

class Proxy {
 public:
  explicit Proxy(const std::string& to);  // "tcp://127.0.0.1:7420"
  ~Proxy();
  Proxy(const Proxy&) = delete;
  Proxy& operator=(const Proxy&) = delete;

  std::string address() const { return "tcp://127.0.0.1:" + std::to_string(port_); }
  // While it is not up, links end at once, and so do those that there are.
  void set_up(bool up) { up_ = up; }
  // What is said waits and nobody is told, as where packets are lost: by whoever connects, by whoever it connects to.
  void hold(bool there, bool back) { hold_there_ = there, hold_back_ = back; }
  // At most so many bytes a second each way, all links together; 0: as fast as can be.
  void slow_down(std::int64_t bytes_per_s) { rate_ = bytes_per_s; }
  void reset() { ++resets_; }           // all links there are, without a farewell (RST)
  void lead_to(const std::string& to);  // somebody else; the links that there are end
  int links() const { return links_; }  // made so far

 private:
  struct Pair;
  void serve();
  void accept_one(Pair& pair);

  std::uint16_t port_ = 0;
  std::atomic<std::uint16_t> to_{0};
  int listener_ = -1;
  std::atomic<bool> up_{true}, ended_{false}, hold_there_{false}, hold_back_{false};
  std::atomic<std::int64_t> rate_{0};
  std::atomic<int> links_{0}, resets_{0};
  std::thread thread_;
};

}  // namespace tilewise::testing

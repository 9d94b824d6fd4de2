// A way between two processes that a test can break: bytes go through while it is up; while it is not, links end at once.
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
  void set_up(bool up) { up_ = up; }
  int links() const { return links_; }  // made so far

 private:
  void serve();

  std::uint16_t to_ = 0, port_ = 0;
  int listener_ = -1;
  std::atomic<bool> up_{true}, ended_{false};
  std::atomic<int> links_{0};
  std::thread thread_;
};

}  // namespace tilewise::testing

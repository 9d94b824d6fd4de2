// Order-sensitive 64-bit digest, to compare two runs of one seed and to key caches.
#pragma once
#include <cstdint>
#include <cstring>
#include <string_view>

namespace tilewise {

class Digest {
 public:
  void mix(std::uint64_t x) {
    h_ ^= x + 0x9E3779B97F4A7C15ull + (h_ << 6) + (h_ >> 2);
    h_ = (h_ ^ (h_ >> 29)) * 0xBF58476D1CE4E5B9ull;
  }
  void mix(std::string_view s) {
    mix(s.size());
    while (s.size() >= 8) {
      std::uint64_t w;
      std::memcpy(&w, s.data(), 8);
      mix(w);
      s.remove_prefix(8);
    }
    std::uint64_t w = 0;
    if (!s.empty()) std::memcpy(&w, s.data(), s.size());  // else there may be no data
    mix(w);
  }
  std::uint64_t value() const { return h_; }

 private:
  std::uint64_t h_ = 0x243F6A8885A308D3ull;
};

}  // namespace tilewise

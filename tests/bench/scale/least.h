// The place of the smallest of many numbers that change one at a time; of equal ones the first. A tournament: a change costs
// the logarithm of their count.
#pragma once
#include <bit>
#include <cstdint>
#include <vector>

namespace tilewise::scale {

class Least {
 public:
  explicit Least(std::size_t count)
      : leaves_(std::bit_ceil(count)), values_(count), winners_(2 * leaves_, -1) {
    for (std::size_t i = 0; i < count; ++i) winners_[leaves_ + i] = static_cast<std::int32_t>(i);
    for (std::size_t node = leaves_; node-- > 1;) play(node);
  }
  double operator[](std::size_t i) const { return values_[i]; }
  const std::vector<double>& values() const { return values_; }
  void add(std::size_t i, double more) {
    values_[i] += more;
    for (std::size_t node = (leaves_ + i) / 2; node >= 1; node /= 2) play(node);
  }
  std::int32_t place() const { return winners_[1]; }

 private:
  void play(std::size_t node) {
    const std::int32_t a = winners_[2 * node], b = winners_[2 * node + 1];
    const bool right =
        a < 0 || (b >= 0 && values_[static_cast<std::size_t>(b)] < values_[static_cast<std::size_t>(a)]);
    winners_[node] = right ? b : a;
  }

  std::size_t leaves_;
  std::vector<double> values_;
  std::vector<std::int32_t> winners_;  // a heap of nodes from 1, leaves last; -1: nobody
};

}  // namespace tilewise::scale

#include "programs.h"

#include "harness.h"

#include <cmath>
#include <cstring>

namespace tilewise::testing {

Array products(const Session& session, std::int64_t n, std::int64_t block, int rounds) {
  Array x = session.random.uniform({n, n}, {.seed = 3, .block = {block, block}});
  for (int i = 0; i < rounds; ++i) x = matmul(x, x) * (2.0 / static_cast<double>(n));
  return x;
}

Array regression(const Session& session, std::int64_t n, std::int64_t block, int steps) {
  const std::int64_t d = 16;
  const Array x = session.random.normal({n, d}, {.seed = 7, .block = {block, d}});
  const Array y = where(sum(x, 1) > 0.0, 1.0, 0.0);
  Array w = session.zeros({d});
  for (int i = 0; i < steps; ++i) {
    const Array p = 1.0 / (1.0 + exp(-matmul(x, w)));
    w = w - matmul(x.T(), p - y) * (0.5 / static_cast<double>(n));
  }
  return w;
}

Array reductions(const Session& session, std::int64_t n, std::int64_t block, int rounds) {
  Array x = session.random.normal({n, n}, {.seed = 11, .block = {block, block}});
  Array total = session.zeros({n});
  for (int i = 0; i < rounds; ++i) {
    x = x * 0.99 + x.T() * 0.01;
    total = total + sum(x, 0) * max(x, 1);
  }
  return total;
}

std::vector<Array> decay(const Session& session, int steps, const std::function<void(int)>& after) {
  Array x = session.random.normal({2'000}, {.seed = 5, .block = {100}});
  std::vector<Array> made;
  for (int i = 1; i <= steps; ++i) {
    x = x * (1 - std::pow(0.9, i)) + sum(x) * (0.001 / i);
    session.persist({x});
    made.push_back(x);
    after(i);
  }
  return made;
}

Loop::Loop(const Session& session)
    : session_(session),
      x_(session.random.uniform({kElements}, {.seed = 5, .block = {kElements / 4}})),
      expected_(x_.get<double>({.timeout = kPatience})) {
  x_.persist().wait({.timeout = kPatience});
}

void Loop::run(int steps) {
  for (int i = 0; i < steps; ++i) {
    ++turns_;
    Array next = x_ * 0.5 + static_cast<double>(turns_);
    const Future future = next.persist();
    if (i % 20 == 19 || i + 1 == steps) future.wait({.timeout = kPatience});
    x_ = next;
    for (double& e : expected_) e = e * 0.5 + static_cast<double>(turns_);
  }
}

bool Loop::right() const { return same_bits(x_.get<double>({.timeout = kPatience}), expected_); }

std::vector<double> values(const Future& future) { return future.get<double>(0, {.timeout = kPatience}); }

bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0;
}

}  // namespace tilewise::testing

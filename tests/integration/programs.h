// Programs with known answers: the same bits however often they run, whoever dies meanwhile. With these sizes each takes about
// a second on a worker or two.
#pragma once
#include <tilewise/tilewise.h>

#include <functional>

namespace tilewise::testing {

// A power of a random matrix, n by n in blocks of `block`: some 1,700 tasks.
Array products(const Session& session, std::int64_t n = 768, std::int64_t block = 128, int rounds = 24);
// Weights of a logistic regression on n rows, in blocks of `block` rows, after so many steps.
Array regression(const Session& session, std::int64_t n = 60'000, std::int64_t block = 2'000, int steps = 40);
// Sums and maxima over both axes of an array that changes, with its transpose, each round.
Array reductions(const Session& session, std::int64_t n = 1'200, std::int64_t block = 100, int rounds = 40);
// Each of the steps of a loop whose constants change, held; `after` is told each step's number once it has been submitted.
std::vector<Array> decay(const Session& session, int steps, const std::function<void(int)>& after);

// x = x / 2 + i, step by step, each held for as long as the next one takes; the same in plain numbers beside it.
class Loop {
 public:
  static constexpr std::int64_t kElements = 65'536;  // in four blocks

  explicit Loop(const Session& session);
  void run(int steps);
  bool right() const;
  const Array& x() const { return x_; }

 private:
  Session session_;
  Array x_;
  std::vector<double> expected_;
  int turns_ = 0;
};

// The first result, waited for.
std::vector<double> values(const Future& future);
bool same_bits(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace tilewise::testing

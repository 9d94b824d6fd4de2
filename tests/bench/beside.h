// What figures of kernels are compared with: two threads with loops or BLAS, and NumPy in a process of its own.
#pragma once
#include <tilewise/tilewise.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <thread>

#include "report.h"

namespace tilewise::bench {

// Time to compute `expression` into the cluster's memory. The result is let go outside of it.
double persist_seconds(Array expression);

// body(begin, end, thread) on the two halves of [0, n).
template <class Body> void two_threads(std::int64_t n, const Body& body) {
  std::thread second([&] { body(n / 2, n, 1); });
  body(0, n / 2, 0);
  second.join();
}

// Memory in huge pages where the system gives them, as the engine's own; numbers in (0, 1).
template <class T> class Numbers {
 public:
  explicit Numbers(std::int64_t n);
  ~Numbers();
  Numbers(const Numbers&) = delete;
  Numbers& operator=(const Numbers&) = delete;
  T* data() const { return at_; }

 private:
  std::size_t bytes_;
  T* at_ = nullptr;
};
using Buffer = Numbers<double>;

// The product of two n x n matrices, half of the rows a thread. Seconds.
double raw_matmul(std::int64_t n, const double* a, const double* b, double* c);
double raw_matmul(std::int64_t n, const float* a, const float* b, float* c);

// A process that evaluates Python expressions of a, b, c, d (n numbers each) and np, and answers with the seconds.
class NumPy {
 public:
  explicit NumPy(std::int64_t n, const char* dtype = "float64");
  ~NumPy();
  NumPy(const NumPy&) = delete;
  NumPy& operator=(const NumPy&) = delete;
  const std::string& version() const { return version_; }  // empty: there is no NumPy here
  const std::string& numexpr() const { return numexpr_; }  // empty: nor numexpr
  // "numexpr: ..." is evaluated by that, with two threads. Throws where the process went away.
  double seconds(const std::string& expression) { return ask(expression).first; }
  // And what the expression came to, where that is a number.
  std::pair<double, double> ask(const std::string& expression);

 private:
  int pid_ = -1;
  std::FILE *in_ = nullptr, *out_ = nullptr;
  std::string version_, numexpr_;
};

}  // namespace tilewise::bench

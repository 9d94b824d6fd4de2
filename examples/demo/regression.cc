#include "regression.h"

#include <chrono>
#include <cmath>

namespace demo {
namespace {

using tilewise::Array;
using Clock = std::chrono::steady_clock;

constexpr int kFeatures = 9;
constexpr int kIterations = 8;
constexpr double kPi = 3.14159265358979323846;
constexpr double kLate = 15;        // minutes
constexpr double kDistance = 1000;  // miles: keeps powers near one

// Gaussian elimination with partial pivoting; the systems have kFeatures unknowns.
std::vector<double> solve(std::vector<double> a, std::vector<double> b) {
  const std::size_t n = b.size();
  for (std::size_t c = 0; c < n; ++c) {
    std::size_t pivot = c;
    for (std::size_t r = c; r < n; ++r) {
      if (std::abs(a[r * n + c]) > std::abs(a[pivot * n + c])) pivot = r;
    }
    for (std::size_t q = 0; q < n; ++q) std::swap(a[c * n + q], a[pivot * n + q]);
    std::swap(b[c], b[pivot]);
    for (std::size_t r = c + 1; r < n; ++r) {
      const double factor = a[r * n + c] / a[c * n + c];
      for (std::size_t q = c; q < n; ++q) a[r * n + q] -= factor * a[c * n + q];
      b[r] -= factor * b[c];
    }
  }
  for (std::size_t c = n; c-- > 0;) {
    for (std::size_t q = c + 1; q < n; ++q) b[c] -= a[c * n + q] * b[q];
    b[c] /= a[c * n + c];
  }
  return b;
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

Fit fit_on_cluster(tilewise::Session& session, const std::string& npy) {
  const Clock::time_point start = Clock::now();
  const Array table = session.load_npy(npy, {.block = {16'384, 3}});
  const Array distance = table.at(1, 1) / kDistance, time = table.at(1, 2) * (2 * kPi / 24);
  const Array one = distance * 0.0 + 1.0;
  const std::vector<Array> columns{one,
                                   distance,
                                   distance * distance,
                                   distance * distance * distance,
                                   sin(time),
                                   cos(time),
                                   sin(time * 2.0),
                                   cos(time * 2.0),
                                   distance * sin(time)};
  Array x = tilewise::stack(columns, 1).reblock({16'384, kFeatures});
  Array y = (table.at(1, 0) > kLate).astype(tilewise::DType::kFloat64);
  session.persist({x, y}).wait();

  Fit fit;
  fit.coefficients.assign(kFeatures, 0.0);
  for (; fit.iterations < kIterations; ++fit.iterations) {
    const Array w = session.from_memory(fit.coefficients, {kFeatures});
    const Array z = tilewise::matmul(x, w);
    const Array p = 1.0 / (1.0 + tilewise::exp(-z));
    const Array gradient = tilewise::matmul(x.T(), p - y);
    const Array hessian = tilewise::matmul(x.T(), x * (p * (1.0 - p)).expand_dims(1));
    const Array loss =
        tilewise::mean(tilewise::log1p(tilewise::exp(-tilewise::abs(z))) + tilewise::maximum(z, 0.0) - y * z);
    tilewise::Future step = session.compute({gradient, hessian, loss});
    fit.loss = step.get<double>(2)[0];
    const std::vector<double> delta = solve(step.get<double>(1), step.get<double>(0));
    for (int j = 0; j < kFeatures; ++j)
      fit.coefficients[static_cast<std::size_t>(j)] -= delta[static_cast<std::size_t>(j)];
  }
  fit.seconds = seconds_since(start);
  return fit;
}

Fit fit_plainly(const Flights& flights) {
  const Clock::time_point start = Clock::now();
  Fit fit;
  fit.coefficients.assign(kFeatures, 0.0);
  std::vector<double> f(kFeatures);
  for (; fit.iterations < kIterations; ++fit.iterations) {
    std::vector<double> gradient(kFeatures, 0.0), hessian(kFeatures * kFeatures, 0.0);
    double loss = 0;
    for (std::int64_t i = 0; i < flights.rows; ++i) {
      const double* row = flights.table.data() + 3 * i;
      const double d = row[1] / kDistance, t = row[2] * (2 * kPi / 24), y = row[0] > kLate ? 1 : 0;
      f = {1,
           d,
           d * d,
           d * d * d,
           std::sin(t),
           std::cos(t),
           std::sin(2 * t),
           std::cos(2 * t),
           d * std::sin(t)};
      double z = 0;
      for (std::size_t j = 0; j < kFeatures; ++j) z += f[j] * fit.coefficients[j];
      const double p = 1 / (1 + std::exp(-z));
      loss += std::log1p(std::exp(-std::abs(z))) + std::max(z, 0.0) - y * z;
      for (std::size_t j = 0; j < kFeatures; ++j) {
        gradient[j] += f[j] * (p - y);
        for (std::size_t q = 0; q < kFeatures; ++q) hessian[j * kFeatures + q] += f[j] * f[q] * p * (1 - p);
      }
    }
    fit.loss = loss / static_cast<double>(flights.rows);
    const std::vector<double> delta = solve(hessian, gradient);
    for (std::size_t j = 0; j < kFeatures; ++j) fit.coefficients[j] -= delta[j];
  }
  fit.seconds = seconds_since(start);
  return fit;
}

}  // namespace demo

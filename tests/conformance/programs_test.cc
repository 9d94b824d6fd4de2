// Whole programs: the shapes that users bring.
#include "clusters.h"

#include <doctest/doctest.h>

#include <unistd.h>
#include <cmath>
#include <filesystem>
#include <map>

using namespace tilewise;

TEST_CASE("logistic regression by Newton's method finds the plain solution") {
  const std::int64_t n = 2000, d = 5;
  // Data by a small generator, so that the plain solution below sees the same numbers.
  std::vector<double> x(n * d), y(n);
  std::uint64_t h = 12345;
  const auto uniform = [&] {
    h = h * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<double>(h >> 11) * 0x1.0p-53;
  };
  for (std::int64_t i = 0; i < n; ++i) {
    double z = 0.3;
    for (std::int64_t j = 0; j < d; ++j) {
      x[i * d + j] = j == 0 ? 1.0 : 2 * uniform() - 1;
      z += x[i * d + j] * (static_cast<double>(j) - 1.5);
    }
    y[i] = uniform() < 1 / (1 + std::exp(-z)) ? 1 : 0;
  }
  const auto solve = [&](std::vector<double> a, std::vector<double> b) {  // Gauss with pivots, d x d
    for (std::int64_t c = 0; c < d; ++c) {
      std::int64_t p = c;
      for (std::int64_t r = c; r < d; ++r) {
        if (std::abs(a[r * d + c]) > std::abs(a[p * d + c])) p = r;
      }
      for (std::int64_t q = 0; q < d; ++q) std::swap(a[c * d + q], a[p * d + q]);
      std::swap(b[c], b[p]);
      for (std::int64_t r = c + 1; r < d; ++r) {
        const double f = a[r * d + c] / a[c * d + c];
        for (std::int64_t q = c; q < d; ++q) a[r * d + q] -= f * a[c * d + q];
        b[r] -= f * b[c];
      }
    }
    for (std::int64_t c = d - 1; c >= 0; --c) {
      for (std::int64_t q = c + 1; q < d; ++q) b[c] -= a[c * d + q] * b[q];
      b[c] /= a[c * d + c];
    }
    return b;
  };
  std::vector<double> plain(d, 0.0);
  for (int round = 0; round < 8; ++round) {
    std::vector<double> g(d, 0.0), hess(d * d, 0.0);
    for (std::int64_t i = 0; i < n; ++i) {
      double z = 0;
      for (std::int64_t j = 0; j < d; ++j) z += x[i * d + j] * plain[j];
      const double p = 1 / (1 + std::exp(-z));
      for (std::int64_t j = 0; j < d; ++j) {
        g[j] += x[i * d + j] * (p - y[i]);
        for (std::int64_t q = 0; q < d; ++q) hess[j * d + q] += x[i * d + j] * x[i * d + q] * p * (1 - p);
      }
    }
    const std::vector<double> step = solve(hess, g);
    for (std::int64_t j = 0; j < d; ++j) plain[j] -= step[j];
  }

  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    Session& s = cluster.session;
    Array features = s.from_memory(x, {n, d}, {.block = {150, d}});
    Array labels = s.from_memory(y, {n}, {.block = {150}});
    s.persist({features, labels}).wait();
    std::vector<double> w(d, 0.0);
    for (int round = 0; round < 8; ++round) {
      const Array p = 1.0 / (1.0 + exp(-matmul(features, s.from_memory(w, {d}))));
      const Array gradient = matmul(features.T(), p - labels);
      const Array weighted = features * (p * (1.0 - p)).expand_dims(1);
      const Array hessian = matmul(features.T(), weighted);
      Future both = s.compute({gradient, hessian});
      const std::vector<double> step = solve(both.get<double>(1), both.get<double>(0));
      for (std::int64_t j = 0; j < d; ++j) w[j] -= step[j];
    }
    for (std::int64_t j = 0; j < d; ++j) CHECK(w[j] == doctest::Approx(plain[j]).epsilon(1e-8));
  }
}

TEST_CASE("structure: concat, stack, reshape, reblock and friends") {
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    Session& s = cluster.session;
    const Array a = s.arange(0, 60).reshape({6, 10}).reblock({4, 3});
    std::vector<std::int64_t> got = concat({a, a.slice(0, 1, 3)}, 0).get<std::int64_t>();
    REQUIRE(got.size() == 80);
    CHECK(got[0] == 0);
    CHECK(got[60] == 10);
    CHECK(got[79] == 29);
    got = stack({a, a + 100}, 0).get<std::int64_t>();
    CHECK(got[60] == 100);
    CHECK(a.reshape({3, 20}).T().get<std::int64_t>()[1] == 20);
    CHECK(a.slice(1, {}, {}, -1).get<std::int64_t>()[0] == 9);
    CHECK(sum(s.zeros({0, 5})).item<double>() == 0);
    CHECK((s.full({}, 2.5) * 2.0).item<double>() == 5.0);
    CHECK(s.eye(4).get<double>()[5] == 1.0);
    CHECK(s.linspace(0, 1, 5).get<double>()[4] == 1.0);
  }
}

TEST_CASE("two clients at once do not disturb each other") {
  TestCluster cluster(kForms[1]);
  Session other = make_session(cluster.cluster->connect("other"), {.timeout = std::chrono::seconds(60)});
  Future long_one =
      cluster.session.compute({sum(cluster.session.random.normal({2000, 500}, {.block = {20, 500}}))});
  CHECK(sum(other.ones({100, 100})).item<double>() == 10'000);
  CHECK_THROWS_AS(matmul(other.ones({2, 3}), other.ones({2, 3})), ArrayError);
  long_one.wait();
}

// Read from the timeline: of the time in which both had work, who had how much of the device. Not at once: what was queued
// before the second one came still runs, and counts.
TEST_CASE("sessions get their shares of a device's time") {
  TestCluster cluster(kForms[0]);
  Session heavy =
      make_session(cluster.cluster->connect("heavy"), {.weight = 300, .timeout = std::chrono::seconds(60)});
  Session light = make_session(cluster.cluster->connect("light"), {.timeout = std::chrono::seconds(60)});
  const auto work = [](Session& session) {
    Array x = session.random.uniform({12000 * 64, 100}, {.seed = 1, .block = {64, 100}});
    return session.compute({sum(exp(sin(x)))});
  };
  Future one = work(heavy), two = work(light);
  one.wait();
  two.wait();
  std::map<std::uint64_t, std::vector<TraceStep>> graphs;
  for (const TraceStep& step : cluster.session.trace().steps)
    if (step.kind == msg::TraceKind::kStep) graphs[step.graph].push_back(step);
  REQUIRE(graphs.size() == 2);
  const auto& a = graphs.begin()->second;
  const auto& b = graphs.rbegin()->second;
  const std::int64_t to = std::min(a.back().end_ns, b.back().end_ns);
  const std::int64_t from = (std::max(a.front().start_ns, b.front().start_ns) + to) / 2;
  const auto busy = [&](const std::vector<TraceStep>& steps) {
    double ns = 0;
    for (const TraceStep& step : steps)
      if (step.start_ns >= from && step.end_ns <= to) ns += static_cast<double>(step.end_ns - step.start_ns);
    return ns;
  };
  REQUIRE(busy(b) > 0);
  const double ratio = busy(a) / busy(b);
  CHECK(ratio > 2);
  CHECK(ratio < 4.5);
  CHECK_THROWS_AS(sum(make_session(cluster.cluster->connect("none"), {.weight = 0}).ones({4})).item<double>(),
                  ArrayError);
}

namespace {

// Adam on the sum of squares of x - 1, from x = 0: three constants of a step are others in each.
struct Adam {
  static constexpr double kBeta1 = 0.9, kBeta2 = 0.999;
  Array x, m, v;

  explicit Adam(const Session& s) : x(s.zeros({1000}, {.block = {300}})), m(x), v(x) {}
  // `label`: of an op of it. With one of its own for each step none is replayed.
  void step(const Session& s, int t, const std::string& label) {
    const Array gradient = (x - 1.0) * 2.0;
    Array next_m = (m * kBeta1 + gradient * (1 - kBeta1)).named(label);
    Array next_v = v * kBeta2 + square(gradient) * (1 - kBeta2);
    Array next_x = x - (0.1 / t) * (next_m / (1 - std::pow(kBeta1, t))) /
                           (sqrt(next_v / (1 - std::pow(kBeta2, t))) + 1e-8);
    const Array all[] = {next_x, next_m, next_v};
    replayed = s.explain(all).account().passes.at(0).name == "replayed";
    s.persist({next_x, next_m, next_v});
    x = next_x, m = next_m, v = next_v;
  }
  bool replayed = false;
};

}  // namespace

TEST_CASE("a loop whose constants change is replayed, and has the bits of one that is planned each time") {
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    const Session& s = cluster.session;
    Adam again(s), anew(s);
    double x = 0, m = 0, v = 0;
    int replays = 0;
    for (int t = 1; t <= 12; ++t) {
      again.step(s, t, "moment");
      anew.step(s, t, "moment of step " + std::to_string(t));
      replays += again.replayed;
      CHECK_FALSE(anew.replayed);
      const double gradient = (x - 1) * 2;
      m = m * Adam::kBeta1 + gradient * (1 - Adam::kBeta1);
      v = v * Adam::kBeta2 + gradient * gradient * (1 - Adam::kBeta2);
      x = x - (0.1 / t) * (m / (1 - std::pow(Adam::kBeta1, t))) /
                  (std::sqrt(v / (1 - std::pow(Adam::kBeta2, t))) + 1e-8);
      for (const Adam* loop : {&again, &anew}) CHECK(loop->x.get<double>() == std::vector<double>(1000, x));
    }
    CHECK(replays >= 7);
  }
}

TEST_CASE("several clusters live in one process, each with its own arrays, and end in any order") {
  auto first = std::make_unique<TestCluster>(kForms[1]);
  TestCluster second(kForms[2]);
  Array here = first->session.arange(0.0, 1000.0, 1.0, {.block = {70}});
  Array there = second.session.arange(0.0, 1000.0, 1.0, {.block = {300}});
  here.persist().wait();
  std::vector<Future> futures;
  for (int i = 0; i < 20; ++i) {
    futures.push_back(first->session.compute({sum(here * static_cast<double>(i))}));
    futures.push_back(second.session.compute({sum(there * static_cast<double>(i))}));
  }
  for (int i = 0; i < 40; ++i) {
    CHECK(futures[static_cast<std::size_t>(i)].get<double>()[0] == 499'500.0 * (i / 2));
  }
  CHECK_THROWS_AS(here + there, ArrayError);  // arrays of two sessions
  futures.clear();
  here = Array();
  first.reset();
  CHECK(sum(there).item<double>() == 499'500.0);
}

TEST_CASE("a saved file comes back, whole or not at all") {
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    Session& s = cluster.session;
    const std::filesystem::path folder =
        std::filesystem::temp_directory_path() / ("tilewise-save-" + std::to_string(getpid()));
    std::filesystem::create_directories(folder);
    const Array x = s.random.uniform({90, 70}, {.seed = 4, .block = {32, 50}});
    const std::string path = folder / "x.npy";
    x.save_npy(path).wait();
    REQUIRE(std::filesystem::exists(path));
    CHECK(std::distance(std::filesystem::directory_iterator(folder), {}) == 1);  // no temporary is left
    CHECK(s.load_npy(path, {.block = {20, 70}}).get<double>() == x.get<double>());
    s.zeros({0, 4}).save_npy(folder / "empty.npy").wait();
    CHECK(s.load_npy(folder / "empty.npy").get<double>().empty());
    CHECK_THROWS_AS(x.save_npy(folder / "missing" / "x.npy").wait(), ArrayError);
    CHECK_THROWS_AS(s.load_npy(folder / "nothing.npy"), ArrayError);
    std::filesystem::remove_all(folder);
  }
}

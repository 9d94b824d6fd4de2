// Array programs on embedded clusters of every form against values computed here in plain loops.
#include "clusters.h"
#include "plain.h"

#include <doctest/doctest.h>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <map>
#include <numeric>
#include <thread>

using namespace tilewise;

TEST_CASE("an elementwise expression gives the plain loop's values on every form of cluster") {
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    Session& s = cluster.session;
    const std::int64_t n = 1000;
    std::vector<double> a(n), b(n);
    for (std::int64_t i = 0; i < n; ++i)
      a[i] = 0.5 * static_cast<double>(i) - 100, b[i] = std::sin(static_cast<double>(i));
    const Array x = s.from_memory(a, {n}, {.block = {130}});
    const Array y = s.from_memory(b, {n}, {.block = {77}});  // other cuts: one side is gathered
    const std::vector<double> got = ((x * y + 1.0) - sqrt(abs(x))).get<double>();
    REQUIRE(got.size() == a.size());
    for (std::int64_t i = 0; i < n; ++i) {
      const double product = a[i] * b[i];
      CHECK(got[i] == (product + 1.0) - std::sqrt(std::abs(a[i])));
    }
  }
}

TEST_CASE("matmul of ragged blocks, transposed and sliced, is exact on integers in float64") {
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    Session& s = cluster.session;
    const std::int64_t m = 37, k = 53, n = 29;
    std::vector<double> a(m * k), b(n * k);
    for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<double>(i % 11) - 5;
    for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<double>(i % 7) - 3;
    const Array x = s.from_memory(a, {m, k}, {.block = {10, 16}});
    const Array y = s.from_memory(b, {n, k}, {.block = {8, 20}});
    const std::vector<double> got = matmul(x, y.T()).get<double>();
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (std::int64_t q = 0; q < k; ++q) sum += a[i * k + q] * b[j * k + q];
        CHECK(got[i * n + j] == sum);
      }
    }
    // Every second row and a shifted window of k.
    const Array part = matmul(x.slice(0, 0, m, 2).slice(1, 3, 50), y.slice(1, 3, 50).T());
    const std::vector<double> sliced = part.get<double>();
    for (std::int64_t i = 0; i < (m + 1) / 2; ++i) {
      for (std::int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (std::int64_t q = 3; q < 50; ++q) sum += a[2 * i * k + q] * b[j * k + q];
        CHECK(sliced[i * n + j] == sum);
      }
    }
  }
}

TEST_CASE(
    "k in parts: exact on integers, and otherwise the bits are those of the number of parts, wherever they "
    "are made") {
  const std::int64_t m = 37, k = 210, n = 29;
  std::vector<double> a(m * k), b(k * n);
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<double>(i % 11) - 5;
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = static_cast<double>(i % 7) - 3;
  std::map<std::int64_t, std::vector<double>> first;  // by parts
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    Session& s = cluster.session;
    const Array x = s.from_memory(a, {m, k}, {.block = {10, 16}});
    const Array y =
        s.from_memory(b, {k, n}, {.block = {24, 8}});  // other cuts of k: parts end where either's do
    const std::vector<double> plain = matmul(x, y).get<double>();
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t j = 0; j < n; ++j) {
        double sum = 0;
        for (std::int64_t q = 0; q < k; ++q) sum += a[i * k + q] * b[q * n + j];
        REQUIRE(plain[static_cast<std::size_t>(i * n + j)] == sum);
      }
    }
    for (const std::int64_t parts : {1, 2, 3, 8, 1000})
      CHECK(matmul(x, y, {.k_parts = parts}).get<double>() == plain);
    const Array u = sin(x + 0.1), v = cos(y * 0.7);
    const std::vector<double> whole = matmul(u, v, {.k_parts = 1}).get<double>();
    for (const std::int64_t parts : {2, 3, 8}) {
      const std::vector<double> got = matmul(u, v, {.k_parts = parts}).get<double>();
      double most = 0;
      for (std::size_t i = 0; i < got.size(); ++i) most = std::max(most, std::abs(got[i] - whole[i]));
      CHECK(most < 1e-12);
      CHECK(most > 0);  // so the order shows
      CHECK(matmul(u, v, {.k_parts = parts}).on(s.devices().back()).get<double>() == got);
      if (form.options.reference_kernels) continue;  // another numeric class
      CHECK(first.try_emplace(parts, got).first->second == got);
    }
  }
}

TEST_CASE("reductions over any axes") {
  for (const Form& form : kForms) {
    INFO(form.name);
    TestCluster cluster(form);
    Session& s = cluster.session;
    const std::int64_t m = 23, n = 41;
    std::vector<std::int64_t> a(m * n);
    for (std::size_t i = 0; i < a.size(); ++i) a[i] = static_cast<std::int64_t>((i * 7919) % 1009) - 500;
    const Array x = s.from_memory(a, {m, n}, {.block = {5, 9}});
    CHECK(sum(x).item<std::int64_t>() == std::accumulate(a.begin(), a.end(), std::int64_t{0}));
    CHECK(max(x).item<std::int64_t>() == *std::max_element(a.begin(), a.end()));
    CHECK(argmin(x).item<std::int64_t>() == std::min_element(a.begin(), a.end()) - a.begin());
    const std::vector<std::int64_t> rows = sum(x, 1).get<std::int64_t>();
    const std::vector<std::int64_t> best = argmax(x, 0).get<std::int64_t>();
    for (std::int64_t i = 0; i < m; ++i) {
      CHECK(rows[i] == std::accumulate(a.begin() + i * n, a.begin() + (i + 1) * n, std::int64_t{0}));
    }
    for (std::int64_t j = 0; j < n; ++j) {
      std::int64_t at = 0;
      for (std::int64_t i = 1; i < m; ++i) {
        if (a[i * n + j] > a[at * n + j]) at = i;
      }
      CHECK(best[j] == at);
    }
    CHECK(mean(x).item<double>() ==
          doctest::Approx(static_cast<double>(sum(x).item<std::int64_t>()) / (m * n)));
    CHECK(any(x > 400).item<bool>() == true);
    CHECK(all(x > -600).item<bool>() == true);
  }
}

TEST_CASE("the same bits whatever the cluster") {
  std::vector<double> first;
  for (const Form& form : kForms) {
    INFO(form.name);
    if (form.options.reference_kernels) continue;  // another numeric class
    TestCluster cluster(form);
    Session& s = cluster.session;
    const Array x = s.random.normal({500, 40}, {.seed = 11, .block = {64, 40}});
    const Array g = matmul(x.T(), exp(-square(x.slice(1, 0, 3))));
    std::vector<double> got = g.get<double>();
    const std::vector<double> total = sum(x * 1.25 + 0.1).get<double>();
    got.insert(got.end(), total.begin(), total.end());
    if (first.empty()) first = got;
    CHECK(got == first);
  }
}

TEST_CASE("results outlive their expressions, and go with the last handle") {
  TestCluster cluster(kForms[1]);
  Session& s = cluster.session;
  Array x = s.random.uniform({300, 300}, {.seed = 3, .block = {100, 100}});
  x.persist().wait();
  const double a = sum(x).item<double>(), b = sum(x).item<double>();
  CHECK(a == b);
  Array y = x + 1.0;
  x = Array{};
  CHECK(sum(y).item<double>() == doctest::Approx(a + 90'000));
}

TEST_CASE("sessions, arrays and futures may outlive their cluster, and say so") {
  std::unique_ptr<embedded::Cluster> cluster = TestCluster::start(kForms[1].options);
  Session s = make_session(cluster->connect("outlives"));
  std::unique_ptr<client::Endpoint> unused = cluster->connect("begins afterwards");
  Array x = s.arange(5), never;
  x.persist().wait();
  const Future ended = s.compute({x});
  ended.wait();
  const Future under_way = s.compute({matmul(s.ones({600, 600}), s.ones({600, 600}))});
  const std::vector<std::int64_t> mine{1, 2, 3};
  const Array lent = s.from_memory(mine, {3});
  cluster.reset();
  CHECK(code_of([&] { (void)x.get<std::int64_t>(); }) == Errc::kUnavailable);
  CHECK(code_of([&] { (void)s.zeros({2}).get<double>(); }) == Errc::kUnavailable);
  CHECK(code_of([&] { (void)(lent + 1).get<std::int64_t>(); }) == Errc::kUnavailable);
  const Session late = make_session(std::move(unused));
  CHECK(code_of([&] { (void)late.zeros({2}).get<double>(); }) == Errc::kUnavailable);
  const Errc so_far = code_of([&] { under_way.wait(); });  // it may have been over
  CHECK((so_far == Errc::kOk || so_far == Errc::kUnavailable));
  x = Array();
}

TEST_CASE("sessions end while their cluster does, on other threads") {
  for (int turn = 0; turn < 40; ++turn) {
    std::unique_ptr<embedded::Cluster> cluster = TestCluster::start(kForms[0].options);
    std::vector<std::thread> threads;
    std::atomic<int> ready = 0;
    for (int i = 0; i < 3; ++i) {
      threads.emplace_back([&, i] {
        Session s = make_session(cluster->connect("ends"));
        Array x = s.arange(100 + i) * 2;
        const Future future = s.compute({x});
        ++ready;
        while (ready < 4) std::this_thread::yield();
        if (i == 0) return;
        try {
          if (i == 1) (void)x.get<std::int64_t>();
          future.wait();
        } catch (const ArrayError& e) {
          CHECK(e.code() == Errc::kUnavailable);
        }
      });
    }
    while (ready < 3) std::this_thread::yield();
    ++ready;
    cluster.reset();
    for (std::thread& thread : threads) thread.join();
  }
}

TEST_CASE("mistakes are reported where they are made, with the shapes") {
  TestCluster cluster(kForms[0]);
  Session& s = cluster.session;
  const Array x = s.zeros({3, 4}), y = s.zeros({5, 6});
  const auto text_of = [](auto&& f) {
    try {
      f();
    } catch (const ArrayError& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  CHECK(text_of([&] { (void)(x + y); }).find("(3, 4)") != std::string::npos);
  CHECK(text_of([&] { (void)matmul(x, y); }).find("(5, 6)") != std::string::npos);
  CHECK(text_of([&] { (void)s.zeros({-1}); }) != "no error");
  const std::string nine = "limit exceeded: 9 dimensions; the limit is 8";
  CHECK(text_of([&] { (void)s.zeros({1, 1, 1, 1, 1, 1, 1, 1, 1}); }) == nine);
  const Array five = s.zeros({1, 1, 1, 1, 1});
  CHECK(text_of([&] { (void)tensordot(five, five, 0); }) == nine);
  CHECK(text_of([&] {
          (void)take(s.zeros({3}), s.full({1}, 7)).get<double>();
        }).find("take, block 0: index 7") != std::string::npos);
  CHECK(text_of([&] { (void)s.zeros({std::int64_t{1} << 40, std::int64_t{1} << 40}); }) != "no error");
  CHECK(sum(x).item<double>() == 0);  // the session goes on
}

TEST_CASE("workers that are told of several hosts copy between them, a large block once a host") {
  const Form form{
      "two hosts",
      {.workers = 4, .host_devices = 1, .use_cuda = false, .memory_bytes = 16 << 20, .workers_a_host = 2}};
  TestCluster cluster(form);
  Session& s = cluster.session;
  std::vector<DeviceId> all;
  std::map<DeviceId, std::size_t> host_of;  // in the order of joining
  std::map<std::string, std::size_t> host_of_name;
  for (const Device& device : s.devices()) {
    host_of[device.id] = host_of_name[device.name] = all.size() / 2;
    all.push_back(device.id);
  }
  REQUIRE(all.size() == 4);
  constexpr std::int64_t kSide = 128, kBytes = kSide * kSide * 8;  // of a block
  const std::vector<double> x(kSide * kSide, 0.25);
  Array a = s.from_memory(x, {kSide, kSide}, {.block = {kSide, kSide}}).on(all[0]);
  Array rows = s.ones({4 * kSide, kSide}, {.block = {kSide, kSide}}).on(all);
  s.persist({a, rows}).wait();
  Array product = matmul(rows, a).on(all);
  std::int64_t foretold = 0;
  const Explanation told = s.explain(product);
  for (const msg::LinkAccount& link : told.account().links)
    if (host_of.contains(link.from) && host_of.contains(link.to) &&
        host_of.at(link.from) != host_of.at(link.to))
      foretold += link.bytes;
  CHECK(foretold == kBytes);
  CHECK(product.get<double>() == std::vector<double>(4 * kSide * kSide, 0.25 * kSide));
  std::int64_t crossed = 0, passed_on = 0;
  for (const TraceStep& step : s.trace().steps) {
    if (step.kind != msg::TraceKind::kTransfer || step.bytes != kBytes) continue;
    if (!host_of_name.contains(step.peer) || !host_of_name.contains(step.device)) continue;  // a client's
    const std::size_t from = host_of_name.at(step.peer), to = host_of_name.at(step.device);
    if (from != to) crossed += step.bytes;
    passed_on += from == 1 && to == 1 ? 1 : 0;
  }
  CHECK(crossed == foretold);
  CHECK(passed_on == 1);
}

TEST_CASE("host devices share the executor threads that a cluster is given") {
  const auto threads = [](int workers, int devices, int cores) {
    TestCluster cluster({"counted",
                         {.workers = workers,
                          .host_devices = devices,
                          .use_cuda = false,
                          .cores = cores,
                          .memory_bytes = 16 << 20}});
    CHECK(sum(cluster.session.ones({1000}, {.block = {10}})).item<double>() == 1000);
    const std::filesystem::directory_iterator tasks("/proc/self/task"), end;
    return std::distance(tasks, end);
  };
  const auto one_each = threads(2, 2, 4);
  CHECK(threads(2, 2, 0) == one_each);  // none given
  CHECK(threads(2, 2, 1) == one_each);  // fewer than devices
  CHECK(threads(2, 2, 8) == one_each + 4);
  CHECK(threads(2, 2, 11) == one_each + 7);  // three on some, two on one
  CHECK(threads(1, 1, 6) == threads(1, 1, 1) + 5);
  CHECK(threads(2, 0, 5) == threads(2, 2, 5));  // as many devices as cores
}

TEST_CASE("a cluster ends well while one worker's kernel reads another worker's memory") {
  const Form form{"two workers of one device",
                  {.workers = 2, .host_devices = 1, .use_cuda = false, .memory_bytes = 256 << 20}};
  for (int round = 0; round < 3; ++round) {
    TestCluster cluster(form);
    Session& s = cluster.session;
    const std::vector<Device> devices = s.devices();
    const std::int64_t n = 2048;
    Array x = s.ones({n, n}, {.block = {n, n}}).on(devices[0]);
    x.persist().wait();
    Array product = matmul(x, x).on(devices[1]);  // takes longer than the end of the first worker
    const Future going = product.persist();
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
  }
}

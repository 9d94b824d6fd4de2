// The figures of the foundation, each beside what the machine itself can do, in the same run and in turns.
//
//   bench_foundation --json FILE [--quick] [--only PART]     parts: matmul fused start get noop
//
// Clusters are real processes: a scheduler and two workers with one core and one host device each. Operands are
// persisted before the clock starts, results are persisted, not fetched. --quick shrinks the sizes: for trying, not for
// figures.
#include <tilewise/client/endpoint_decorator.h>
#include <tilewise/codec/codec.h>
#include <tilewise/embedded/cluster.h>
#include <tilewise/tilewise.h>

#include <arpa/inet.h>
#include <cblas.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "beside.h"
#include "calls.h"
#include "cluster.h"
#include "loop.h"
#include "report.h"

namespace tilewise::bench {
namespace {

// ---- (a) matmul -----------------------------------------------------------------------------------------------------

void bench_matmul(const Settings& settings, Report& report) {
  std::printf("OpenBLAS kernel: %s\n", openblas_get_corename());
  const std::vector<std::int64_t> sizes =
      settings.quick ? std::vector<std::int64_t>{2048} : std::vector<std::int64_t>{4096, 8192};
  for (const std::int64_t n : sizes) {
    const char* wanted = std::getenv("BENCH_MATMUL_BLOCK");  // to try others
    const std::int64_t block = wanted != nullptr ? std::atoll(wanted) : std::min<std::int64_t>(2048, n / 2);
    const Cluster cluster("2GiB");
    const Session session = cluster.session();
    Array a = session.random.uniform({n, n}, {.seed = 1, .block = {block, block}});
    Array b = session.random.uniform({n, n}, {.seed = 2, .block = {block, block}});
    session.persist({a, b}).wait();
    const Buffer x(n * n), y(n * n), z(n * n);
    {  // both sides once untimed; and is ours right?
      Array c = matmul(a, b);
      c.persist().wait();
      const double got = sum(c).item<double>(), want = matmul(sum(a, 0), sum(b, 1)).item<double>();
      if (std::abs(got - want) > 1e-9 * std::abs(want)) throw std::runtime_error("matmul is wrong");
      raw_matmul(n, x.data(), y.data(), z.data());
    }
    const double flops =
        2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n) * 1e-9;
    std::vector<double> ours, raw;
    for (int i = 0; i < settings.repeats; ++i) {
      ours.push_back(flops / persist_seconds(matmul(a, b)));
      raw.push_back(flops / raw_matmul(n, x.data(), y.data(), z.data()));
    }
    report.at_least({.metric = "matmul " + std::to_string(n),
                     .value = median(ours),
                     .unit = "GFLOP/s",
                     .reference = "OpenBLAS dgemm, 2 threads",
                     .reference_value = median(raw)},
                    0.93);
  }
}

// ---- (b) fused elementwise ------------------------------------------------------------------------------------------

void bench_fused(const Settings& settings, Report& report) {
  const std::int64_t n = settings.quick ? 10'000'000 : 100'000'000;
  const Cluster cluster(settings.quick ? "512MiB" : "3GiB");
  const Session session = cluster.session();
  const char* wanted = std::getenv("BENCH_FUSED_BLOCK");
  const RandomOptions look{.block = {wanted != nullptr ? std::atoll(wanted) : 1'000'000}};
  Array a = session.random.uniform({n}, look), b = session.random.uniform({n}, look),
        c = session.random.uniform({n}, look), d = session.random.uniform({n}, look);
  session.persist({a, b, c, d}).wait();
  const Buffer x(n), y(n), z(n), w(n), out(n);
  const std::int64_t n_numpy =
      n / 4;  // its temporaries would not fit beside the rest; far beyond caches all the same
  NumPy numpy(n_numpy);
  const auto ours = [&](bool summed) {
    const Array e = (a * b + c) * d - sqrt(abs(a));
    return persist_seconds(summed ? sum(e) : e);
  };
  const auto raw = [&](bool summed) {
    return seconds_of([&] {
      double totals[2] = {};
      two_threads(n, [&](std::int64_t begin, std::int64_t end, int i) {
        if (summed)
          totals[i] = fused_sum(x.data(), y.data(), z.data(), w.data(), begin, end);
        else
          fused_store(x.data(), y.data(), z.data(), w.data(), out.data(), begin, end);
      });
      volatile double used = totals[0] + totals[1];
      (void)used;
    });
  };
  for (const bool summed : {false, true}) {
    const std::string name = summed ? "fused, summed" : "fused, stored";
    std::vector<double> t_ours, t_raw, t_numpy;
    for (int i = -1; i < settings.repeats; ++i) {  // the first is not counted
      const double one = ours(summed), two = raw(summed),
                   three = numpy.version().empty()
                               ? 0
                               : numpy.seconds(summed ? "((a * b + c) * d - np.sqrt(np.abs(a))).sum()"
                                                      : "(a * b + c) * d - np.sqrt(np.abs(a))");
      if (i < 0) continue;
      t_ours.push_back(one * 1e3);
      t_raw.push_back(two * 1e3);
      t_numpy.push_back(three * 1e3);
    }
    report.at_most({.metric = name + ", " + std::to_string(n),
                    .value = median(t_ours),
                    .unit = "ms",
                    .reference = "loop, 2 threads, -O3 -march=native",
                    .reference_value = median(t_raw)},
                   1.2);
    if (numpy.version().empty()) {
      report.note("no python3 with NumPy here: no row for it");
      continue;
    }
    // As rates, so that more is better on both sides.
    report.at_least({.metric = name + ", beside NumPy",
                     .value = 1e-3 * static_cast<double>(n) / median(t_ours),
                     .unit = "M elem/s",
                     .reference = "NumPy " + numpy.version(),
                     .reference_value = 1e-3 * static_cast<double>(n_numpy) / median(t_numpy)},
                    2.0);
  }
}

// ---- (c) from the call to the first task ----------------------------------------------------------------------------

// Counts what a session sends.
class Counting final : public client::EndpointDecorator {
 public:
  Counting(std::unique_ptr<client::Endpoint> real, std::size_t& submit_bytes)
      : EndpointDecorator(std::move(real)), submit_bytes_(submit_bytes) {}
  using EndpointDecorator::send;
  void send(msg::Message message) override {
    if (std::holds_alternative<msg::Submit>(message)) {
      codec::Buffer buffer;
      if (codec::encode(message, buffer)) submit_bytes_ = buffer.bytes().size();
    }
    EndpointDecorator::send(std::move(message));
  }

 private:
  std::size_t& submit_bytes_;
};

void bench_start(const Settings& settings, Report& report) {
  const std::int64_t many = settings.quick ? 100'000 : 1'000'000;
  const Cluster cluster("1GiB", {"--plugin", BENCH_STAMP_PLUGIN});
  std::size_t submit_bytes = 0;
  const Session session = Cluster::session(std::make_unique<Counting>(cluster.endpoint(), submit_bytes));
  FirstTask first_task(session);
  std::vector<double> few_ms, many_ms;
  std::size_t few_bytes = 0, many_bytes = 0;
  for (int i = -1; i < settings.repeats; ++i) {
    const double one = first_task.after_ms(10, true);
    few_bytes = submit_bytes;
    const double two = first_task.after_ms(many, true);
    many_bytes = submit_bytes;
    if (i < 0) continue;
    few_ms.push_back(one);
    many_ms.push_back(two);
  }
  report.at_most({.metric = "call to first task, " + std::to_string(many) + " tasks",
                  .value = median(many_ms),
                  .unit = "ms"},
                 50);
  report.note("the same with 10 tasks, sent while the workers still let go of " + std::to_string(many) +
              " blocks: " + std::to_string(median(few_ms)) + " ms");
  report.at_most({.metric = "Submit of " + std::to_string(many) + " tasks",
                  .value = static_cast<double>(many_bytes),
                  .unit = "bytes",
                  .reference = "Submit of 10 tasks",
                  .reference_value = static_cast<double>(few_bytes)},
                 1);
}

// ---- (d) one tiny get -----------------------------------------------------------------------------------------------

class Loopback {  // a TCP connection to a thread that sends back what it reads, both blocking
 public:
  explicit Loopback(int core = -1) {  // where the other end runs; -1: anywhere
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(at);
    client_ = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, reinterpret_cast<sockaddr*>(&at), size) != 0 || listen(listener, 1) != 0 ||
        getsockname(listener, reinterpret_cast<sockaddr*>(&at), &size) != 0 ||
        connect(client_, reinterpret_cast<sockaddr*>(&at), size) != 0) {
      throw std::runtime_error("no loopback connection");
    }
    server_ = accept(listener, nullptr, nullptr);
    close(listener);
    const int one = 1;
    setsockopt(client_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    setsockopt(server_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    echo_ = std::thread([this, core] {
      if (core >= 0) pin(core);
      char bytes[8];
      while (read(server_, bytes, 8) == 8 && write(server_, bytes, 8) == 8) {
      }
    });
  }
  ~Loopback() {
    close(client_);
    echo_.join();
    close(server_);
  }
  void round_trip() const {
    char bytes[8] = {};
    if (write(client_, bytes, 8) != 8 || read(client_, bytes, 8) != 8)
      throw std::runtime_error("loopback broke");
  }

 private:
  int client_ = -1, server_ = -1;
  std::thread echo_;
};

void bench_get(const Settings& settings, Report& report) {
  const int each = settings.quick ? 50 : 300;
  const Loopback loopback(1);                 // its other end on the second core
  double late = 0;                            // the 99th percentile of the last batch
  const auto batch = [&](const auto& body) {  // median of one call, microseconds
    std::vector<double> times;
    for (int i = 0; i < each; ++i) times.push_back(seconds_of(body) * 1e6);
    std::sort(times.begin(), times.end());
    late = times[times.size() - 1 - times.size() / 100];
    return median(times);
  };
  const Cluster cluster("256MiB");
  const Session session = cluster.session();
  auto inside = embedded::Cluster::start(
      {.workers = 1, .host_devices = 1, .use_cuda = false, .memory_bytes = 256 << 20});
  if (!inside) throw ArrayError(inside.error());
  const Session own = make_session((*inside)->connect("bench"));
  Array far = session.ones({1}), near = own.ones({1});
  far.persist().wait();
  near.persist().wait();
  // A new expression each time: submitted, planned, run as one task, and its result brought back.
  const auto remote_get = [&] { (void)(far + 1.0).get<double>(); };
  const auto own_get = [&] { (void)(near + 1.0).get<double>(); };
  const auto trip = [&] { loopback.round_trip(); };
  cpu_set_t all;
  sched_getaffinity(0, sizeof all, &all);
  const auto remote_held = [&] { (void)far.get<double>(); };
  std::vector<double> t_remote, t_late, t_held, t_trip, t_own;
  for (int i = -1; i < settings.repeats; ++i) {
    const double one = batch(remote_get), one_late = late;
    const double three = batch(own_get), four = batch(remote_held);
    pin(0);
    const double two = batch(trip);
    sched_setaffinity(0, sizeof all, &all);
    if (i < 0) continue;
    t_remote.push_back(one);
    t_late.push_back(one_late);
    t_trip.push_back(two);
    t_own.push_back(three);
    t_held.push_back(four);
  }
  report.at_most({.metric = "tiny get, processes",
                  .value = median(t_remote),
                  .unit = "us",
                  .reference = "blocking TCP round trip between two cores",
                  .reference_value = median(t_trip)},
                 2.5);
  report.at_most({.metric = "tiny get, processes: 99th percentile",
                  .value = median(t_late),
                  .unit = "us",
                  .reference = "its median",
                  .reference_value = median(t_remote)},
                 3);
  report.note("of an array that is there already, without a task: " + std::to_string(median(t_held)) + " us");
  double together = 0;
  std::thread([&] {
    pin(0);
    const Loopback other(0);
    together = batch([&] { other.round_trip(); });
  }).join();
  report.note(
      "a TCP round trip with both ends on one core, which processes that work at once cannot share: " +
      std::to_string(together) + " us; the ratio to it: " + std::to_string(median(t_remote) / together));
  report.at_most({.metric = "tiny get, embedded", .value = median(t_own), .unit = "us"}, 60);
}

// ---- (e) tasks that do nothing ----------------------------------------------------------------------------------------

void bench_noop(const Settings& settings, Report& report) {
  const std::int64_t tasks = settings.quick ? 100'000 : 1'000'000;
  const Cluster cluster("1GiB");
  const Session session = cluster.session();
  Array small = session.ones({1});
  small.persist().wait();
  std::vector<double> rates;
  for (int i = -1; i < settings.repeats; ++i) {
    const double took = persist_seconds(calls(small, {.name = "tilewise.noop", .version = "1"}, tasks));
    if (i >= 0) rates.push_back(static_cast<double>(tasks) / took);
  }
  report.at_least(
      {.metric = "no-op tasks, " + std::to_string(tasks), .value = median(rates), .unit = "tasks/s"},
      400'000);
}

const std::vector<Part> kParts = {{"matmul", bench_matmul},
                                  {"fused", bench_fused},
                                  {"start", bench_start},
                                  {"get", bench_get},
                                  {"noop", bench_noop}};

}  // namespace
}  // namespace tilewise::bench

int main(int argc, char** argv) {
  // OpenBLAS reads its variables when it is loaded, before main: start again without them.
  std::vector<std::string> names;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (std::strncmp(*entry, "OPENBLAS_", 9) == 0) names.emplace_back(*entry, std::strchr(*entry, '='));
  }
  for (const std::string& name : names) unsetenv(name.c_str());
  if (!names.empty()) {
    execv("/proc/self/exe", argv);
    std::perror("execv");
    return 1;
  }
  openblas_set_num_threads(
      1);  // who compares brings threads of its own, and idle ones of OpenBLAS would poll
  return tilewise::bench::run_parts(argc, argv, tilewise::bench::kParts);
}

// Arithmetic beside the machine's own limits: OpenBLAS, loops written by hand for two threads, NumPy, numexpr.
//
//   bench_kernels --json FILE [--quick] [--only PART]     parts: matmul fused reduce functions sort picking fft logistic block
//
// Clusters are a scheduler and two workers with one core and one host device each; "one process" is an embedded cluster of
// two devices. Operands are persisted before the clock starts, results are persisted, not fetched.
#include <tilewise/embedded/cluster.h>

#include <cblas.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>

#include "bench_block.h"
#include "bench_order.h"
#include "bench_picking.h"
#include "beside.h"
#include "cluster.h"
#include "loop.h"

namespace tilewise::bench {
namespace {

std::int64_t memory_available() {
  std::ifstream file("/proc/meminfo");
  std::string word;
  std::int64_t kib = 0;
  while (file >> word)
    if (word == "MemAvailable:" && file >> kib) return kib * 1024;
  return 0;
}

// A cluster inside this process.
struct Inside {
  explicit Inside(std::int64_t bytes) {
    auto started =
        embedded::Cluster::start({.workers = 1, .host_devices = 2, .use_cuda = false, .memory_bytes = bytes});
    if (!started) throw std::runtime_error(started.error().message);
    cluster = std::move(*started);
  }
  Session session() const { return make_session(cluster->connect("bench"), {}); }
  std::unique_ptr<embedded::Cluster> cluster;
};

template <class T> constexpr DType kDType = std::is_same_v<T, float> ? DType::kFloat32 : DType::kFloat64;

template <class T>
void products(const Session& session, const std::string& where, std::int64_t n, double bound,
              const Settings& settings, Report& report) {
  const std::int64_t block = std::min<std::int64_t>(2048, n / 2);
  const auto matrix = [&](std::uint64_t seed) {
    return session.random.uniform({n, n}, {.seed = seed, .block = {block, block}, .dtype = kDType<T>});
  };
  Array a = matrix(1), b = matrix(2);
  session.persist({a, b}).wait();
  const Numbers<T> x(n * n), y(n * n), z(n * n);
  const double flops = 2e-9 * std::pow(static_cast<double>(n), 3);
  std::vector<double> ours, raw;
  for (int i = -1; i < settings.repeats; ++i) {  // the first is not counted
    const double one = persist_seconds(matmul(a, b)), two = raw_matmul(n, x.data(), y.data(), z.data());
    if (i < 0) continue;
    ours.push_back(flops / one);
    raw.push_back(flops / two);
  }
  report.at_least(
      {.metric = "matmul " + std::string(ir::name_of(kDType<T>)) + " " + std::to_string(n) + ", " + where,
       .value = median(ours),
       .unit = "GFLOP/s",
       .reference = "OpenBLAS, 2 threads",
       .reference_value = median(raw)},
      bound);
}

void bench_matmul(const Settings& settings, Report& report) {
  openblas_set_num_threads(1);
  const std::vector<std::int64_t> sizes =
      settings.quick ? std::vector<std::int64_t>{1024} : std::vector<std::int64_t>{2048, 4096};
  for (const std::int64_t n : sizes) {
    const bool small = n < 4096;
    {
      const Inside inside(std::int64_t{1} << 30);
      const Session session = inside.session();
      products<double>(session, "one process", n, small ? 0.93 : 0.98, settings, report);
      products<float>(session, "one process", n, small ? 0.93 : 0.98, settings, report);
    }
    const Cluster cluster("1GiB");
    const Session session = cluster.session();
    products<double>(session, "two", n, small ? 0.93 : 0.95, settings, report);
    products<float>(session, "two", n, small ? 0.93 : 0.95, settings, report);
  }
}

void bench_fused(const Settings& settings, Report& report) {
  const std::int64_t n =
      settings.quick ? 4'000'000 : 40'000'000;  // 320 MB: ten times a last-level cache of 32 MB
  const Cluster cluster("1GiB");
  const Session session = cluster.session();
  Array a = session.random.uniform({n}, {.seed = 1, .block = {1'000'000}}),
        b = session.random.uniform({n}, {.seed = 2, .block = {1'000'000}});
  session.persist({a, b}).wait();
  const Buffer x(n), y(n), out(n);
  NumPy numpy(n);
  const auto link = [&](const Array& v) { return ((v + b) * v - b) * 0.5 + v; };
  const std::string five = "((a + b) * a - b) * 0.5 + a";
  std::string ten = "((({0}) + b) * ({0}) - b) * 0.5 + ({0})";
  for (std::size_t at; (at = ten.find("{0}")) != std::string::npos;) ten.replace(at, 3, five);
  const struct {
    const char* metric;
    std::function<Array()> ours;
    void (*by_hand)(const double* a, const double* b, double* out, std::int64_t begin, std::int64_t end);
    std::string numpy, numexpr;
    double numpy_bound;
  } expressions[] = {
      {"fused chain of 5", [&] { return link(a); }, chain5, five, five, 4},
      // NumPy as one writes it: the first chain's value has a name, which costs nothing.
      {"fused chain of 10", [&] { return link(link(a)); }, chain10,
       "(lambda v: ((v + b) * v - b) * 0.5 + v)(" + five + ")", ten, 8},
      {"where(a > b, a * 2 + 1, b / 2)", [&] { return tilewise::where(a > b, a * 2.0 + 1.0, b * 0.5); },
       choice, "np.where(a > b, a * 2 + 1, b * 0.5)", "where(a > b, a * 2 + 1, b * 0.5)", 4}};
  for (const auto& expression : expressions) {
    std::vector<double> ours, raw, theirs, vm;
    for (int i = -1; i < settings.repeats; ++i) {
      const double one = persist_seconds(expression.ours());
      const double two = seconds_of([&] {
        two_threads(n, [&](std::int64_t begin, std::int64_t end, int) {
          expression.by_hand(x.data(), y.data(), out.data(), begin, end);
        });
      });
      const double three = numpy.version().empty() ? 0 : numpy.seconds(expression.numpy);
      const double four = numpy.numexpr().empty() ? 0 : numpy.seconds("numexpr: " + expression.numexpr);
      if (i < 0) continue;
      const double m = 1e-6 * static_cast<double>(n);
      ours.push_back(m / one), raw.push_back(m / two), theirs.push_back(m / three), vm.push_back(m / four);
    }
    const auto row = [&](const std::string& reference, const std::vector<double>& times, double bound) {
      report.at_least({.metric = expression.metric,
                       .value = median(ours),
                       .unit = "M/s",
                       .reference = reference,
                       .reference_value = median(times)},
                      bound);
    };
    row("loop, 2 threads, -O3 -march=native", raw, 0.95);
    if (!numpy.version().empty()) row("NumPy " + numpy.version(), theirs, expression.numpy_bound);
    if (!numpy.numexpr().empty()) row("numexpr " + numpy.numexpr() + ", 2 threads", vm, 1.5);
  }
  if (numpy.version().empty()) report.note("no python3 with NumPy here: no rows for it");
  if (numpy.numexpr().empty()) report.note("no numexpr beside python3's NumPy: no rows for it");
}

void bench_reduce(const Settings& settings, Report& report) {
  std::int64_t n = settings.quick ? 10'000'000 : 250'000'000;  // 2 GB
  while (n * 8 * 4 > memory_available()) n /= 2;               // ours, the loop's, NumPy's half, and room
  report.note("reductions of " + std::to_string(n * 8 >> 20) + " MiB");
  const Cluster cluster(std::to_string((n * 8 >> 20) / 2 + 512) + "MiB");
  const Session session = cluster.session();
  Array a = session.random.uniform({n}, {.seed = 1, .block = {1'000'000}});
  a.persist().wait();
  const Buffer x(n);
  const std::int64_t n_numpy = n / 8;  // it holds four of them
  NumPy numpy(n_numpy);
  struct Row {
    const char* name;
    std::function<void()> ours;
    const char* numpy;
  };
  const Row rows[] = {
      {"sum", [&] { sum(a).persist().wait(); }, "a.sum()"},
      {"mean and var",
       [&] {
         Array m = mean(a), v = var(a);
         session.persist({m, v}).wait();
       },
       "(a.mean(), a.var())[1]"},
      {"argmax", [&] { argmax(a).persist().wait(); }, "a.argmax()"},
  };
  for (const Row& row : rows) {
    std::vector<double> ours, raw, theirs;
    for (int i = -1; i < settings.repeats; ++i) {
      const double one = seconds_of(row.ours);
      const double two = seconds_of([&] {
        std::uint64_t all[2] = {};
        two_threads(n, [&](std::int64_t begin, std::int64_t end, int t) {
          all[t] = read_only(x.data(), begin, end);
        });
        volatile std::uint64_t used = all[0] ^ all[1];
        (void)used;
      });
      const double three = numpy.version().empty() ? 0 : numpy.seconds(row.numpy);
      if (i < 0) continue;
      const double gb = 8e-9 * static_cast<double>(n);
      ours.push_back(gb / one), raw.push_back(gb / two),
          theirs.push_back(8e-9 * static_cast<double>(n_numpy) / three);
    }
    report.at_least({.metric = row.name,
                     .value = median(ours),
                     .unit = "GB/s",
                     .reference = "read-only loop, 2 threads",
                     .reference_value = median(raw)},
                    0.97);
    if (!numpy.version().empty())
      report.at_least({.metric = row.name,
                       .value = median(ours),
                       .unit = "GB/s",
                       .reference = "NumPy " + numpy.version(),
                       .reference_value = median(theirs)},
                      2);
  }
}

// On large arrays, beside copying them: memory is the limit where arithmetic keeps up.
void bench_functions(const Settings& settings, Report& report) {
  block_functions(settings, report);
  const std::int64_t n = settings.quick ? 4'000'000 : 64'000'000;
  const Cluster cluster("1536MiB");
  const Session session = cluster.session();
  const Buffer from(n), to(n);
  for (const DType t : {DType::kFloat64, DType::kFloat32}) {
    Array a = session.random.uniform({n}, {.seed = 1, .block = {1'000'000}, .dtype = t});
    a.persist().wait();
    struct Row {
      const char* name;
      Array (*f)(const Array&);
    };
    const auto bytes = static_cast<std::int64_t>(ir::size_of(t)) * n;
    for (const Row& row : {Row{"exp", exp}, Row{"log", log}, Row{"sin", sin}, Row{"tanh", tanh}}) {
      std::vector<double> ours, raw;
      for (int i = -1; i < settings.repeats; ++i) {
        const double one = persist_seconds(row.f(a));
        const double two = seconds_of([&] {
          two_threads(bytes, [&](std::int64_t begin, std::int64_t end, int) {
            std::memcpy(reinterpret_cast<char*>(to.data()) + begin,
                        reinterpret_cast<const char*>(from.data()) + begin,
                        static_cast<std::size_t>(end - begin));
          });
        });
        if (i < 0) continue;
        ours.push_back(2e-9 * static_cast<double>(bytes) / one),
            raw.push_back(2e-9 * static_cast<double>(bytes) / two);
      }
      report.at_least({.metric = std::string(row.name) + " " + std::string(ir::name_of(t)) + ", large",
                       .value = median(ours),
                       .unit = "GB/s",
                       .reference = "memcpy, 2 threads",
                       .reference_value = median(raw)},
                      0.9);
    }
  }
}

// Newton's method on a dense table, a fixed number of steps from zero; both sides end with the same loss.
void bench_logistic(const Settings& settings, Report& report) {
  const std::int64_t d = 28;
  std::int64_t n = settings.quick ? 100'000 : 11'000'000;
  while (n * d * 8 * 4 > memory_available()) n /= 2;  // NumPy's table and its temporaries, and ours
  constexpr int kSteps = 5;
  if (n < 11'000'000) report.note("logistic regression scaled to " + std::to_string(n) + " rows: memory");
  const Cluster cluster(std::to_string((n * d * 8 >> 20) / 2 * 2 + 1024) + "MiB");
  const Session session = cluster.session();
  const std::int64_t block = std::min<std::int64_t>(n, 32'768);
  Array x = session.random.normal({n, d}, {.seed = 7, .block = {block, d}});
  const Array truth = session.linspace(-1, 1, d);
  Array y = (matmul(x, truth) + 2.0 * session.random.normal({n}, {.seed = 8, .block = {block}}) > 0.0)
                .astype(DType::kFloat64);
  session.persist({x, y}).wait();
  double loss = 0;
  const auto ours = [&] {
    Array w = session.zeros({d});
    const Array ridge = session.eye(d) * 1e-6;
    for (int i = 0; i < kSteps; ++i) {
      const Array p = 1.0 / (1.0 + exp(-matmul(x, w)));
      const Array h = matmul(x.T(), x * (p * (1.0 - p)).expand_dims(1)) + ridge;
      w = w - solve(h, matmul(x.T(), p - y));
      w.persist();
    }
    const Array z = matmul(x, w);
    loss = mean(logaddexp(z, 0.0) - y * z).item<double>();
  };
  NumPy numpy(1);
  if (numpy.version().empty()) return report.note("no python3 with NumPy here: no logistic regression");
  const std::string rows = std::to_string(n);
  numpy.ask("exec: x = rng.standard_normal((" + rows +
            ", 28)); y = (x @ np.linspace(-1, 1, 28) + 2 * rng.standard_normal(" + rows +
            ") > 0).astype(float)");
  std::vector<double> t_ours, t_numpy;
  double their_loss = 0;
  for (int i = -1; i < std::min(settings.repeats, 3); ++i) {
    const double one = seconds_of(ours);
    const auto [two, their] = numpy.ask("logistic(x, y, " + std::to_string(kSteps) + ")");
    their_loss = their;
    if (i >= 0) t_ours.push_back(1 / one), t_numpy.push_back(1 / two);
  }
  if (std::abs(loss - their_loss) > 0.01)
    throw std::runtime_error("losses differ: " + std::to_string(loss) + ", " + std::to_string(their_loss));
  report.note("losses " + std::to_string(loss) + " and NumPy's " + std::to_string(their_loss) +
              ", on other random numbers");
  report.at_least({.metric = "logistic regression " + rows + " x 28",
                   .value = median(t_ours),
                   .unit = "1/s",
                   .reference = "NumPy " + numpy.version() + ", 2 BLAS threads",
                   .reference_value = median(t_numpy)},
                  2.5);
}

}  // namespace
}  // namespace tilewise::bench

int main(int argc, char** argv) {
  using namespace tilewise::bench;
  return run_parts(argc, argv,
                   {{"matmul", bench_matmul},
                    {"fused", bench_fused},
                    {"reduce", bench_reduce},
                    {"functions", bench_functions},
                    {"sort", bench_sort},
                    {"picking", bench_picking},
                    {"fft", bench_fft},
                    {"logistic", bench_logistic},
                    {"block", bench_block}});
}

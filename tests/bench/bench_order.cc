#include "bench_order.h"

#include <tilewise/fft.h>
#include <tilewise/tilewise.h>

#ifdef BENCH_HAS_FFTW
#include <fftw3.h>
#endif

#include "beside.h"
#include "cluster.h"

namespace tilewise::bench {

namespace {

// Ours and NumPy's version of it, on `n` random numbers; NumPy 2 sorts with AVX-512 where the processor has it.
void beside_numpy(const Settings& settings, Report& report, const Cluster& cluster, NumPy& numpy,
                  const std::string& what, std::int64_t n, Array (*ours)(const Array&), double wanted) {
  const std::string count = std::to_string(n);
  numpy.ask("exec: a = rng.random(" + count + ")");
  const Session session = cluster.session();
  Array x = session.random.uniform({n}, {.seed = 1});
  x.persist().wait();
  std::vector<double> mine, theirs;
  for (int i = -1; i < settings.repeats; ++i) {
    const double one = persist_seconds(ours(x));
    const double two = numpy.seconds("np." + what + "(a)");
    if (i < 0) continue;
    mine.push_back(1e-6 * static_cast<double>(n) / one);
    theirs.push_back(1e-6 * static_cast<double>(n) / two);
  }
  report.at_least({.metric = what + " " + count + " float64",
                   .value = median(mine),
                   .unit = "M/s",
                   .reference = "NumPy " + numpy.version(),
                   .reference_value = median(theirs)},
                  wanted);
}

// What a sort of `n` numbers takes that are kept besides, on two workers with so much memory each.
double sort_seconds(const Settings& settings, const std::string& memory, std::int64_t n) {
  const Cluster cluster(memory);
  const Session session = cluster.session();
  Array x = session.random.uniform({n}, {.seed = 1});
  x.persist().wait();
  std::vector<double> took;
  for (int i = -1; i < settings.repeats; ++i) {
    const double seconds = persist_seconds(sort(x));
    if (i >= 0) took.push_back(seconds);
  }
  return median(took);
}

}  // namespace

void bench_sort(const Settings& settings, Report& report) {
  const std::int64_t n = settings.quick ? 4'000'000 : 100'000'000;
  NumPy numpy(1);
  if (numpy.version().empty()) return report.note("no python3 with NumPy here: no sorting");
  const bool first = numpy.version().starts_with("1.");
  const Cluster cluster("2560MiB");
  beside_numpy(
      settings, report, cluster, numpy, "sort", n, [](const Array& x) { return sort(x); }, first ? 6 : 1.3);
  beside_numpy(
      settings, report, cluster, numpy, "argsort", n / 5, [](const Array& x) { return argsort(x); }, 2);
  // Of each worker: what it has of the operand and of the result, and six blocks.
  const std::int64_t twice = (2 * n / 2 * 8 + 6 * n / 16 * 8) >> 20;
  const double enough = sort_seconds(settings, "2560MiB", n),
               tight = sort_seconds(settings, std::to_string(twice) + "MiB", n);
  report.note("sort in memory of twice its share and six blocks, operand kept: " +
              std::to_string(tight / enough) + " of the time with enough");
}

void bench_fft([[maybe_unused]] const Settings& settings, Report& report) {
#ifdef BENCH_HAS_FFTW
  const std::int64_t n = settings.quick ? 1 << 20 : 1 << 26;
  const Cluster cluster("4GiB");
  const Session session = cluster.session();
  Array x = session.random.normal({n}, {.seed = 1}).astype(DType::kComplex128);
  x.persist().wait();
  fftw_complex* from = fftw_alloc_complex(static_cast<std::size_t>(n));
  fftw_complex* to = fftw_alloc_complex(static_cast<std::size_t>(n));
  // Estimated as ours are: measuring a plan of this length takes minutes.
  const fftw_plan plan = fftw_plan_dft_1d(static_cast<int>(n), from, to, FFTW_FORWARD, FFTW_ESTIMATE);
  for (std::int64_t i = 0; i < n; ++i) from[i][0] = 1.0 / static_cast<double>(i + 1), from[i][1] = 0;
  std::vector<double> ours, raw;
  for (int i = -1; i < settings.repeats; ++i) {
    const double one = persist_seconds(fft::fft(x));
    const double two = seconds_of([&] { fftw_execute(plan); });
    if (i < 0) continue;
    ours.push_back(1e-6 * static_cast<double>(n) / one);
    raw.push_back(1e-6 * static_cast<double>(n) / two);
  }
  fftw_destroy_plan(plan);
  fftw_free(from);
  fftw_free(to);
  report.at_least({.metric = "FFT of " + std::to_string(n) + " complex128",
                   .value = median(ours),
                   .unit = "M/s",
                   .reference = "FFTW, one thread",
                   .reference_value = median(raw)},
                  1.5);
#else
  report.note("built without FFTW: no transforms");
#endif
}

}  // namespace tilewise::bench

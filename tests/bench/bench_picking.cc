#include "bench_picking.h"

#include <tilewise/tilewise.h>

#include <functional>

#include "beside.h"
#include "cluster.h"

namespace tilewise::bench {
namespace {

struct Operands {
  Array x, mask, places;   // of n: float64, bool of which half are true, int64 that are valid
  Array rows, row_places;  // (n / 100, 100), and n / 100 numbers of rows
  Array along;             // an order of each row
};

struct Case {
  std::string what, numpy;
  std::function<Array(const Operands&)> ours;
};

}  // namespace

void bench_picking(const Settings& settings, Report& report) {
  const std::int64_t n = settings.quick ? 1'000'000 : 20'000'000, rows = n / 100;
  NumPy numpy(1);
  if (numpy.version().empty()) return report.note("no python3 with NumPy here: no picking");
  const Cluster cluster("2560MiB");
  const Session session = cluster.session();
  Operands of;
  of.x = session.random.uniform({n}, {.seed = 1});
  of.mask = session.random.uniform({n}, {.seed = 2}) < 0.5;
  of.places = session.random.integers(0, n, {n}, {.seed = 3});
  of.rows = session.random.uniform({rows, 100}, {.seed = 4});
  of.row_places = session.random.integers(0, rows, {rows}, {.seed = 5});
  of.along = argsort(of.rows, 1);
  for (Array* a : {&of.x, &of.mask, &of.places, &of.rows, &of.row_places, &of.along}) a->persist().wait();
  const std::string count = std::to_string(n), high = std::to_string(rows);
  for (const std::string& made :
       {"x = rng.random(" + count + ")", "mask = rng.random(" + count + ") < 0.5",
        "places = rng.integers(0, " + count + ", " + count + ")", "rows = rng.random((" + high + ", 100))",
        "row_places = rng.integers(0, " + high + ", " + high + ")",
        std::string("along = np.argsort(rows, axis=1)")})
    numpy.ask("exec: " + made);
  const std::vector<Case> cases{
      {"take of all places", "x[places]", [](const Operands& o) { return take(o.x, o.places, 0); }},
      {"take of rows of 100", "rows[row_places]",
       [](const Operands& o) { return take(o.rows, o.row_places, 0); }},
      {"take_along_axis of rows of 100", "np.take_along_axis(rows, along, 1)",
       [](const Operands& o) { return take_along_axis(o.rows, o.along, 1); }},
      {"mask, half true", "x[mask]", [](const Operands& o) { return boolean_index(o.x, o.mask); }},
      {"nonzero, half true", "mask.nonzero()[0]", [](const Operands& o) { return nonzero(o.mask)[0]; }},
      {"the largest 100", "np.sort(np.partition(x, x.size - 100)[-100:])",
       [](const Operands& o) { return topk(o.x, 100).values; }},
  };
  for (const Case& each : cases) {
    std::vector<double> mine, theirs;
    for (int i = -1; i < settings.repeats; ++i) {
      const double one = seconds_of([&] { each.ours(of).persist().wait(); });
      const double two = numpy.seconds(each.numpy);
      if (i < 0) continue;
      mine.push_back(1e-6 * static_cast<double>(n) / one);
      theirs.push_back(1e-6 * static_cast<double>(n) / two);
    }
    report.at_least({.metric = each.what + ", " + count,
                     .value = median(mine),
                     .unit = "M/s",
                     .reference = "NumPy " + numpy.version(),
                     .reference_value = median(theirs)},
                    1.0);
  }
}

}  // namespace tilewise::bench

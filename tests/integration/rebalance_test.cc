// Points of running ops that go to other workers before they are begun: one that is slow gives, one that comes late takes, and
// either may be killed in the middle. What comes out is what there would be without.
#include <doctest/doctest.h>
#include <csignal>
#include <cstdlib>

#include "harness.h"
#include "programs.h"

using namespace tilewise;
using namespace tilewise::testing;

namespace {

constexpr std::int64_t kBlocks = 160, kBlock = 16;
constexpr std::int64_t kPointNs = 15'000'000;

// Workers of one device each, which count the points that they make.
struct Counted {
  explicit Counted(std::vector<std::string> scheduler_args = {})
      : cluster({.workers = 0, .devices = 1, .scheduler_args = std::move(scheduler_args)}) {}

  void add(int factor) {
    setenv("SLOW_FACTOR", std::to_string(factor).c_str(), 1);  // inherited by the worker
    setenv("SLOW_LOG", log(workers).c_str(), 1);
    cluster.add_worker({"--plugin", TILEWISE_SLOW_PLUGIN});
    unsetenv("SLOW_FACTOR");
    unsetenv("SLOW_LOG");
    ++workers;
  }
  std::string log(int worker) const { return folder / ("points" + std::to_string(worker)); }
  std::int64_t points(int worker) const {
    std::error_code none;
    const auto bytes = std::filesystem::file_size(log(worker), none);
    return none ? 0 : static_cast<std::int64_t>(bytes);
  }
  std::int64_t all_points() const {
    std::int64_t all = 0;
    for (int i = 0; i < workers; ++i) all += points(i);
    return all;
  }

  TempFolder folder;
  Cluster cluster;
  int workers = 0;
};

// `rounds` slow rows, each of which reads the one before, and a reduction of the last.
struct Program {
  Array rows, total;
};
Program slow_rows(const Session& session, int rounds) {
  Array x = session.random.normal({kBlocks * kBlock}, {.seed = 9, .block = {kBlock}});
  const Kernel kernel{.name = "slow.third",
                      .version = "1.0",
                      .params = {reinterpret_cast<const char*>(&kPointNs), sizeof kPointNs},
                      .flops_per_point = 1e9};
  for (int i = 0; i < rounds; ++i)
    x = map_blocks(kernel, std::vector{x}, {}, {{DType::kFloat64, x.grid()}})[0];
  return {x, sum(x)};
}
struct Values {
  std::vector<double> rows, total;
};
// The same by elementwise ops on the same cluster: no plug-in, nothing that takes long.
Values expected(const Session& session, int rounds) {
  Array x = session.random.normal({kBlocks * kBlock}, {.seed = 9, .block = {kBlock}});
  for (int i = 0; i < rounds; ++i) x = x / 3.0 + 1.0;
  return {x.get<double>({.timeout = kPatience}), sum(x).get<double>({.timeout = kPatience})};
}
void check_values(const Future& future, const Values& want) {
  future.wait({.timeout = kPatience});
  CHECK(same_bits(future.get<double>(0), want.rows));
  CHECK(same_bits(future.get<double>(1), want.total));
}

}  // namespace

TEST_CASE("a slow worker gives what it has not begun, and nothing is made twice") {
  for (const bool moves : {true, false}) {
    CAPTURE(moves);
    Counted w(moves ? std::vector<std::string>{} : std::vector<std::string>{"--no-rebalance"});
    w.add(5), w.add(1);
    INFO(w.cluster.words());
    const Session session = w.cluster.session();
    REQUIRE(session.wait_for_devices(2, kPatience));
    const Values want = expected(session, 1);
    const Program program = slow_rows(session, 1);
    check_values(session.compute({program.rows, program.total}), want);
    MESSAGE("the slow one made " << w.points(0) << " of " << kBlocks);
    CHECK(w.all_points() == kBlocks);
    if (moves)
      CHECK(w.points(0) < kBlocks * 2 / 5);
    else
      CHECK(w.points(0) == kBlocks / 2);
    CHECK(nothing_left(w.cluster));
  }
}

TEST_CASE("a worker that joins while a graph runs takes part in it") {
  Counted w;
  w.add(1);
  INFO(w.cluster.words());
  const Session session = w.cluster.session();
  REQUIRE(session.wait_for_devices(1, kPatience));
  const Values want = expected(session, 2);
  const Program program = slow_rows(session, 2);
  const Future future = session.compute({program.rows, program.total});
  REQUIRE(eventually([&] { return w.points(0) >= 20; }));
  w.add(1);
  check_values(future, want);
  MESSAGE("the newcomer made " << w.points(1) << " of " << 2 * kBlocks);
  CHECK(w.points(1) > kBlocks / 4);
  CHECK(w.all_points() == 2 * kBlocks);
  CHECK(nothing_left(w.cluster));
}

TEST_CASE("who gives or takes is killed in the middle: the same bits") {
  struct Case {
    int victim;       // 0: the slow one, which gives
    std::int64_t at;  // points that the slow one has made by then
  };
  for (const Case& c : {Case{0, 3}, Case{1, 4}, Case{0, 6}, Case{1, 9}}) {
    CAPTURE(c.victim);
    CAPTURE(c.at);
    Counted w;
    w.add(5), w.add(1), w.add(1);
    INFO(w.cluster.words());
    const Session session = w.cluster.session();
    REQUIRE(session.wait_for_devices(3, kPatience));
    const Values want = expected(session, 2);
    const Program program = slow_rows(session, 2);
    const Future future = session.compute({program.rows, program.total});
    REQUIRE(eventually([&] { return w.points(0) >= c.at; }));
    w.cluster.worker(c.victim).signal(SIGKILL);
    check_values(future, want);
    CHECK(w.all_points() >= 2 * kBlocks);
    CHECK(nothing_left(w.cluster));
  }
}

// Parts of blocks travel, not whole blocks, between processes that cannot map each other: bytes are counted from traces, and what has
// to move is worked out here by hand.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>

#include "harness.h"
#include "network.h"
#include "programs.h"
#include "skipped.h"
#include "watched.h"

using namespace tilewise;
using namespace tilewise::testing;

namespace {

constexpr std::int64_t kN = 2048;

// Two workers that copy, of which the scheduler knows it, with pieces or without.
struct Pair {
  explicit Pair(bool pieces, const Network* network = nullptr)
      : watched(options(pieces, network)), session(watched.cluster.session()) {
    watched.measured(network == nullptr ? 1 : 2);
    REQUIRE(session.wait_for_devices(2, kPatience));
    devices = session.devices();
    for (const Device& device : devices) ids.push_back(device.id);
  }
  static ClusterOptions options(bool pieces, const Network* network) {
    ClusterOptions options{
        .workers = 2, .devices = 1, .worker_args = {"--no-map", "--plugin", TILEWISE_HEAT_PLUGIN}};
    if (!pieces) options.scheduler_args = {"--passes-off", "pieces"};
    options.network = network;
    return options;
  }
  // Bytes of blocks that have gone from worker to worker so far.
  std::int64_t moved() const {
    std::int64_t bytes = 0;
    for (const TraceStep& step : session.trace().steps) {
      if (step.kind != msg::TraceKind::kTransfer) continue;
      const auto is_worker = [&](const std::string& name) {
        return std::any_of(devices.begin(), devices.end(), [&](const Device& d) { return d.name == name; });
      };
      if (is_worker(step.device) && is_worker(step.peer)) bytes += step.bytes;
    }
    return bytes;
  }
  std::int64_t foretold(const Array& array) const {
    std::int64_t bytes = 0;
    const msg::Explanation told = session.explain(array).account();
    for (const msg::LinkAccount& link : told.links) {
      const auto is_ours = [&](DeviceId id) { return std::find(ids.begin(), ids.end(), id) != ids.end(); };
      if (is_ours(link.from) && is_ours(link.to)) bytes += link.bytes;
    }
    return bytes;
  }

  Watched watched;
  Session session;
  std::vector<Device> devices;
  std::vector<DeviceId> ids;
};

struct Case {
  const char* name;
  Array (*make)(Pair&);  // persisted, and where it is
  Array (*use)(Pair&, const Array&);
  std::int64_t has_to_move;  // bytes
};

Array in_rows(Pair& p) {
  return p.session.random.normal({kN, kN}, {.seed = 3, .block = {kN / 8, kN}}).on(p.ids);
}
Array in_one_block(Pair& p) {
  return p.session.random.normal({kN, kN}, {.seed = 4, .block = {kN, kN}}).on(p.ids[0]);
}

const Case kCases[] = {
    {"rows to columns: of each device's half, half", in_rows,
     [](Pair& p, const Array& x) {
       return x.reblock({kN, kN / 8}).on(p.ids);
     },
     kN* kN * 8 / 2},
    {"from rows of a mesh to columns of it", in_rows,
     [](Pair& p, const Array& x) {
       return x.on(Mesh(p.devices, {{"x", 2}}), PartitionSpec{{}, "x"});
     },
     kN* kN * 8 / 2},
    {"ten rows of a large block", in_one_block,
     [](Pair& p, const Array& x) { return x.slice(0, 10, 20).on(p.ids[1]); }, 10 * kN * 8},
    {"neighbouring rows added: the first row of the other's", in_rows,
     // One op, so that all of it is where it is told to be: what is placed by speeds may go elsewhere on a busy machine.
     [](Pair& p, const Array& x) { return (x.slice(0, 0, kN - 1) + x.slice(0, 1, kN)).on(p.ids); }, kN * 8},
};

std::vector<double> run(Pair& p, const Case& c, std::int64_t& moved, std::int64_t& foretold) {
  Array x = c.make(p);
  x.persist().wait({.timeout = kPatience});
  const std::int64_t before = p.moved();
  Array y = c.use(p, x);
  foretold = p.foretold(y);
  y.persist().wait({.timeout = kPatience});
  moved = p.moved() - before;
  return y.get<double>({.timeout = kPatience});
}

std::vector<double> cooled(Pair& p, int steps, std::int64_t& moved) {
  const double rate = 0.25;
  std::string params(sizeof(rate), '\0');
  std::memcpy(params.data(), &rate, sizeof(rate));
  const Kernel kernel{.name = "heat.windowed", .version = "1.0", .params = params, .flops_per_point = 1e6};
  ir::DimMap window;
  window.before = window.after = 1;
  Array u = p.session.random.uniform({1 << 22}, {.seed = 9, .block = {1 << 19}}).on(p.ids);
  u.persist().wait({.timeout = kPatience});
  const std::int64_t before = p.moved();
  for (int s = 0; s < steps; ++s)
    u = map_blocks(kernel, std::vector{u}, {{window}}, {{DType::kFloat64, u.grid()}}).front().on(p.ids);
  u.persist().wait({.timeout = kPatience});
  moved = p.moved() - before;
  return u.get<double>({.timeout = kPatience});
}

}  // namespace

TEST_CASE("what has to move moves, once, as foretold, with the same bits as whole blocks") {
  Pair pieces(true), whole(false);
  INFO(pieces.watched.cluster.words());
  for (const Case& c : kCases) {
    CAPTURE(std::string(c.name));
    std::int64_t moved = 0, foretold = 0, whole_moved = 0, whole_foretold = 0;
    const std::vector<double> got = run(pieces, c, moved, foretold);
    CHECK(same_bits(got, run(whole, c, whole_moved, whole_foretold)));
    CHECK(moved == foretold);
    CHECK(moved == c.has_to_move);
    CHECK(whole_moved > c.has_to_move);
  }
}

TEST_CASE("halo windows of a kernel of one's own: one element of each neighbour a step") {
  Pair pieces(true), whole(false);
  INFO(pieces.watched.cluster.words());
  std::int64_t moved = 0, whole_moved = 0;
  const int steps = 4;
  CHECK(same_bits(cooled(pieces, steps, moved), cooled(whole, steps, whole_moved)));
  CHECK(moved <= steps * 2 * 8);
  CHECK(whole_moved >= steps * 2 * (std::int64_t{8} << 19));
}

TEST_CASE("between hosts") {
  setenv("UCX_TLS", "tcp", 1);  // inherited by the workers
  std::string why;
  const auto network = Network::make(2, why);
  if (!network) {
    skipped("no hosts of their own: " + why);
    return;
  }
  Pair pieces(true, network.get());
  INFO(pieces.watched.cluster.words());
  std::int64_t moved = 0, foretold = 0;
  (void)run(pieces, kCases[0], moved, foretold);
  CHECK(moved == kCases[0].has_to_move);
  CHECK(foretold == moved);
}

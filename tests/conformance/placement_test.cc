// Explicit placement, on every form of cluster: values stay the same wherever arrays are put, and they are where the user
// wanted them; what the scheduler says beforehand agrees with what it does.
#include "clusters.h"

#include <doctest/doctest.h>

#include <algorithm>

using namespace tilewise;

namespace {

std::vector<double> plain(std::int64_t n, double scale) {
  std::vector<double> out;
  for (std::int64_t i = 0; i < n; ++i) out.push_back(scale * static_cast<double>(i));
  return out;
}

}  // namespace

TEST_CASE("arrays on meshes: right values, right devices") {
  for (const Form& form : kForms) {
    CAPTURE(form.name);
    TestCluster cluster(form);
    Session& session = cluster.session;
    const std::vector<Device> devices = session.devices();
    const auto n = static_cast<int>(devices.size());
    const Mesh mesh(devices, {{"x", n}});
    const std::int64_t size = 1200;
    for (const PartitionSpec& spec : {PartitionSpec{"x"}, PartitionSpec{}}) {
      CAPTURE(spec.to_string());
      Array a = session.arange(size).astype(DType::kFloat64).on(mesh, spec);
      a.persist().wait();
      const msg::Explanation told = session.explain(a).account();
      REQUIRE(told.arrays.size() == 1);
      CHECK(!told.arrays[0].planned);
      const ir::Placement& placement = told.arrays[0].placement;
      if (!spec.dims().empty()) {
        CHECK(told.arrays[0].grid.block_count() == n);
        for (int i = 0; i < n; ++i) {
          CHECK(placement.owner({i}) == devices[static_cast<std::size_t>(i)].id);
          CHECK(session.visualize(a).find(devices[static_cast<std::size_t>(i)].name) != std::string::npos);
        }
      } else {
        for (const Device& d : devices) CHECK(placement.holds({0}, d.id));
      }
      CHECK(a.get<double>() == plain(size, 1));
      // Read on every device, twice: the second time from the copies that stayed there.
      for (int round = 0; round < 2; ++round) {
        Array b = session.arange(size).astype(DType::kFloat64).on(mesh, {"x"});
        CHECK((a * 2.0 + b).get<double>() == plain(size, 3));
      }
    }
    Array scalar = session.full({}, 2.5).on(mesh, {});
    scalar.persist().wait();
    for (const Device& d : devices)
      CHECK(session.explain(scalar).account().arrays[0].placement.holds({}, d.id));
    CHECK(scalar.item<double>() == 2.5);
    // Moved from the first device to the others.
    Array c = (session.ones({size}) * 5.0).on(devices.front());
    c.persist().wait();
    Array d = c.on(mesh, {"x"});
    d.persist().wait();
    CHECK(sum(d).item<double>() == 5.0 * size);
    CHECK(session.explain(d).account().arrays[0].placement.owner({n - 1}) == devices.back().id);
  }
}

TEST_CASE("copies that stay make room for what is needed") {
  const Form& form = kForms[2];  // three devices of 64 MiB that copy
  TestCluster cluster(form);
  Session& session = cluster.session;
  const Mesh mesh(session.devices(), {{"x", 3}});
  const std::int64_t rows = 1 << 19;  // 4 MiB a block
  Array w = session.full({4 * rows}, 2.0, {.block = {rows}}).on(mesh, {});
  w.persist().wait();
  Array shards = session.ones({3 * rows}, {.block = {rows}}).on(mesh, {"x"});
  shards.persist().wait();
  for (int part = 0; part < 4; ++part) {  // every device reads all of w: 16 MiB stay on each
    const Array piece = w.slice(0, part * rows, (part + 1) * rows);
    CHECK(sum(shards * concat({piece, piece, piece})).item<double>() == 6.0 * static_cast<double>(rows));
  }
  // More than what is left beside those copies, on the devices that do not own w.
  const std::vector<Device> devices = session.devices();
  const Mesh others({devices[1], devices[2]}, {{"x", 2}});
  CHECK_THROWS_WITH_AS(Mesh({devices[1], devices[1]}, {{"x", 2}}), doctest::Contains("is in the mesh twice"),
                       ArrayError);
  Array large = (session.ones({24 * rows}, {.block = {rows}}) * 3.0).on(others, {"x"});
  large.persist().wait();
  CHECK(sum(large).item<double>() == 72.0 * static_cast<double>(rows));
}

TEST_CASE("what is explained is what is done") {
  for (const Form& form : kForms) {
    CAPTURE(form.name);
    TestCluster cluster(form);
    Session& session = cluster.session;
    Array x = session.random.uniform({600, 400}, {.seed = 1, .block = {100, 100}});
    Array y = session.random.uniform({400, 300}, {.seed = 2, .block = {100, 100}});
    session.persist({x, y}).wait();
    const Array z = matmul(x, y) + 1.0;
    const Explanation told = session.explain(z);
    const msg::Explanation& account = told.account();
    REQUIRE_MESSAGE(!told.refused(), account.outcome.message);
    CHECK(account.simulated);
    CHECK(account.flops >= 2.0 * 600 * 400 * 300);
    CHECK(account.seconds >= account.bound_s);
    CHECK(account.bound_s > 0);
    CHECK(account.passes.size() >= 4);
    REQUIRE(!account.ops.empty());
    std::int64_t tasks = 0;
    double critical = 0;
    for (const msg::OpAccount& op : account.ops) {
      tasks += op.tasks;
      REQUIRE(!op.choices.empty());
      CHECK(!op.choices[0].policy.empty());
      for (std::size_t c = 1; c < op.choices.size(); ++c)
        CHECK(op.choices[c].seconds >= op.choices[0].seconds);
    }
    CHECK(tasks == account.tasks);
    for (const msg::CriticalAccount& c : account.critical) critical += c.seconds;
    CHECK(critical == doctest::Approx(account.seconds).epsilon(0.02));
    CHECK(told.text(true).find("critical path") != std::string::npos);
    CHECK(told.json().front() == '{');
    // It changed nothing, and asking again says the same plan.
    CHECK(session.explain(z).account().tasks == account.tasks);
    Array kept = z;
    Future done = kept.persist();
    done.wait();
    CHECK(done.progress().total == account.tasks);
    CHECK(session.explain(kept).account().ops.empty());  // nothing left to do
    // On two workers, where there are two: what is to be copied, and to where.
    const msg::Explanation twice = session.explain(kept, {.copies = 2}).account();
    REQUIRE_MESSAGE(twice.outcome.ok(), twice.outcome.message);
    REQUIRE(twice.ops.size() == (form.options.workers > 1 ? 1 : 0));
    std::int64_t copied = 0;
    for (const msg::LinkAccount& link : twice.links) copied += link.mapped ? 0 : link.bytes;
    CHECK(copied == (form.options.workers > 1 ? 600 * 300 * 8 : 0));
    CHECK(session.explain(kept).account().arrays[0].placement == account.arrays[0].placement);
  }
}

TEST_CASE("what would be refused is explained, not thrown") {
  TestCluster cluster(kForms[0]);
  const Array huge = cluster.session.ones({1 << 28}, {.block = {1 << 28}}) * 2.0;
  const Explanation told = cluster.session.explain(huge);
  CHECK(told.refused());
  CHECK(told.account().outcome.code == Errc::kOutOfMemory);
  CHECK(told.text().find("would be refused") == 0);
  CHECK(cluster.session.ones({4}).get<double>().size() == 4);
}

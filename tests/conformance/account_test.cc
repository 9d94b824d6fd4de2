// Accounts of what ran: predicted beside measured, on clusters in this process. And what does not fit, with figures.
#include "clusters.h"
#include "temp_folder.h"

#include <doctest/doctest.h>
#include <algorithm>

using namespace tilewise;
using testing::TempFolder;

namespace {

const msg::MeasuredDevice* measured_of(const Account& account, DeviceId device) {
  for (const msg::MeasuredDevice& d : account.measured().devices)
    if (d.device == device) return &d;
  return nullptr;
}

double seconds_of(const std::vector<msg::CriticalAccount>& path, const std::string& what) {
  double seconds = 0;
  for (const msg::CriticalAccount& c : path)
    if (c.what == what) seconds += c.seconds;
  return seconds;
}

}  // namespace

TEST_CASE("what was asked for has an account: of ops, devices, links and the chain that ended last") {
  for (const Form& form : {kForms[0], kForms[1], kForms[2]}) {
    CAPTURE(form.name);
    TestCluster cluster(form);
    Session& session = cluster.session;
    Array x = session.random.uniform({600, 400}, {.seed = 1, .block = {100, 100}});
    Array y = session.random.uniform({400, 300}, {.seed = 2, .block = {100, 100}});
    session.persist({x, y}).wait();
    Array z = matmul(x, y) + 1.0;
    const Explanation before = session.explain(z);
    const Future done = session.persist({z}, {.account = true});
    done.wait();
    const Account account = done.account();
    REQUIRE(account.ended());
    CHECK(account.predicted());
    CHECK(account.measured().alone);
    CHECK(account.measured().outcome.ok());
    CHECK(account.measured().tasks_done == account.told().tasks);
    // What was predicted then; explain, asked before, says the same of figures that do not depend on measured speeds.
    CHECK(account.told().tasks == before.account().tasks);
    CHECK(account.told().flops == before.account().flops);
    REQUIRE(account.measured().ops.size() == account.told().ops.size());
    double busy = 0;
    for (const msg::MeasuredOp& op : account.measured().ops) {
      CHECK(op.tasks == account.told().ops[op.op].tasks);
      busy += op.busy_s;
    }
    CHECK(busy > 0);
    // Peaks are predicted to the byte but for the order of steps.
    std::int64_t tasks = 0;
    for (const msg::DeviceAccount& d : account.told().devices) {
      const msg::MeasuredDevice* was = measured_of(account, d.device);
      REQUIRE(was != nullptr);
      CHECK(was->tasks == d.tasks);
      CHECK(static_cast<double>(was->bytes_peak) >= 0.9 * static_cast<double>(d.bytes_after));
      CHECK(static_cast<double>(was->bytes_peak) <= 1.1 * static_cast<double>(d.bytes_peak));
      tasks += was->tasks;
    }
    CHECK(tasks == account.told().tasks);
    std::int64_t predicted_bytes = 0, measured_bytes = 0;
    for (const msg::LinkAccount& link : account.told().links) predicted_bytes += link.bytes;
    for (const msg::MeasuredLink& link : account.links()) measured_bytes += link.bytes;
    CHECK(account.own_links());
    CHECK(measured_bytes == predicted_bytes);
    // The measured chain ends with the last step, and is no longer than the whole.
    CHECK(!account.overwritten());
    REQUIRE(!account.critical().empty());
    CHECK(seconds_of(account.critical(), "runs") > 0);
    CHECK(account.critical_s() <= account.measured().seconds);
    CHECK(account.text().find("critical path, measured") != std::string::npos);
    const std::string json = account.json();
    CHECK(json.find("\"measured\":{\"running\":false") != std::string::npos);
    CHECK(json.back() == '}');
  }
}

TEST_CASE("a result that was fetched has an account, too; without having asked there is none") {
  TestCluster cluster(kForms[1]);
  Session& session = cluster.session;
  const Array x = session.random.uniform({256, 64}, {.seed = 1, .block = {32, 64}});
  const Future asked = session.compute({x * 2.0}, {.account = true});
  CHECK(asked.get<double>().size() == 256 * 64);
  const Account account = asked.account();
  CHECK(account.ended());
  CHECK(account.predicted());
  const Future plain = session.compute({x * 3.0});
  plain.wait();
  try {
    plain.account();
    FAIL("there is an account that nobody asked for");
  } catch (const ArrayError& error) {
    CHECK(error.code() == Errc::kNotFound);
  }
}

TEST_CASE(
    "what a small arena will spill is predicted within a quarter of its size and a fifth of the bytes, and "
    "some of what returns") {
  constexpr std::int64_t kMemory = 4 << 20;
  const TempFolder folder;
  TestCluster cluster({"spilling",
                       {.workers = 1,
                        .host_devices = 1,
                        .use_cuda = false,
                        .memory_bytes = kMemory,
                        .spill_directory = folder.path(),
                        .spill_bytes = 1 << 30}});
  Session& session = cluster.session;
  const auto check = [&](const Future& done) {
    done.wait();
    const Account account = done.account();
    REQUIRE(account.ended());
    REQUIRE(account.predicted());
    CHECK(account.told().fits);
    const msg::DeviceAccount& said = account.told().devices.at(0);
    const msg::MeasuredDevice& was = account.measured().devices.at(0);
    CAPTURE(account.text());
    CAPTURE(said.bytes_returned);
    CAPTURE(was.bytes_returned);
    const auto near = [](std::int64_t predicted, std::int64_t measured) {
      const auto p = static_cast<double>(predicted), m = static_cast<double>(measured);
      return std::abs(p - m) <= 0.25 * kMemory + 0.2 * std::max(p, m);
    };
    CHECK(near(said.bytes_spilled, was.bytes_spilled));
    // Workers read ahead, and what came too early may leave and come again.
    CHECK(static_cast<double>(was.bytes_returned) >=
          0.8 * static_cast<double>(said.bytes_returned) - 0.25 * kMemory);
    CHECK(static_cast<double>(was.bytes_returned) <=
          2.5 * static_cast<double>(said.bytes_returned) + 0.25 * kMemory);
    CHECK(said.bytes_peak <= kMemory);
    CHECK(was.bytes_peak <= kMemory);
    return account;
  };
  // 12 MiB that stay.
  Array x = session.random.normal({24'576, 64}, {.seed = 11, .block = {512, 64}});
  const Account made = check(session.persist({x}, {.account = true}));
  CHECK(made.told().devices[0].bytes_spilled >= 8 << 20);
  // All of it is read again, and as much made.
  Array y = x * 2.0 + 1.0;
  const Account read = check(session.persist({y}, {.account = true}));
  CHECK(read.told().devices[0].bytes_returned >= 8 << 20);
  CHECK(read.told().devices[0].spill_s > 0);
}

TEST_CASE("what can never fit is refused before it runs, with what it needs and what there is") {
  constexpr std::int64_t kMemory = 1 << 20;
  TestCluster cluster(
      {"small", {.workers = 1, .host_devices = 2, .use_cuda = false, .memory_bytes = kMemory}});
  Session& session = cluster.session;
  const Device first = session.devices()[0];
  const auto needs_of = [&](Array a) {
    const Explanation told = session.explain(a);
    CHECK(told.refused());
    CHECK(told.text().find(" at once") != std::string::npos);
    CHECK(told.json().find("\"needed_bytes\"") != std::string::npos);
    try {
      a.persist().wait();
    } catch (const OutOfMemoryError& error) {
      CHECK(error.code() == Errc::kOutOfMemory);
      CHECK(std::string(error.what()).find(first.name) != std::string::npos);
      REQUIRE(!error.needs().empty());
      CHECK(told.account().needs == error.needs());
      return error.needs()[0];
    }
    FAIL("it was not refused");
    return msg::NeedAccount{};
  };
  SUBCASE("a step's inputs") {
    // Two blocks of 512 KiB to read and one to write.
    Array a = session.random.uniform({256, 256}, {.seed = 1, .block = {256, 256}}).on(first);
    Array b = session.random.uniform({256, 256}, {.seed = 2, .block = {256, 256}}).on(first);
    Array c = matmul(a, b).on(first);
    const msg::NeedAccount need = needs_of(c);
    CHECK(need.needed_bytes == 3 * 256 * 256 * 8);
    CHECK(need.input_bytes == 2 * 256 * 256 * 8);
    CHECK(need.memory_bytes == kMemory);
    CHECK(need.devices == std::vector<DeviceId>{first.id});
  }
  SUBCASE("results on one device, though two have room") {
    Array a = session.random.uniform({192, 1024}, {.seed = 1, .block = {64, 64}}).on(first);
    const msg::NeedAccount need = needs_of(a);
    CHECK(need.held_bytes == 192 * 1024 * 8);
    CHECK(need.memory_bytes == kMemory);
    // Where it may lie anywhere it fits.
    Array b = session.random.uniform({192, 1024}, {.seed = 1, .block = {64, 64}});
    b.persist().wait();
  }
}

// Links that are measured at join, by real processes over real transports.
#include <doctest/doctest.h>
#include <csignal>
#include <cstdlib>

#include <tilewise/json/json.h>

#include "harness.h"
#include "network.h"
#include "skipped.h"
#include "watched.h"

using namespace tilewise;
using namespace tilewise::testing;

namespace {

// Nothing that a user sees has changed.
void check_unseen(const Watched& w) {
  const json::object page = w.ask("top");
  CHECK(page.at("graphs").as_array().empty());
  CHECK(page.at("totals").at("tasks_done").to_number<std::int64_t>() == 0);
  CHECK(page.at("totals").at("arrays").to_number<std::int64_t>() == 0);
  CHECK(page.at("lanes").as_array().empty());
  for (const json::value& device : page.at("devices").as_array()) {
    CHECK(device.at("used").to_number<std::int64_t>() == 0);
    CHECK(device.at("peak").to_number<std::int64_t>() == 0);
    CHECK(device.at("resident").to_number<std::int64_t>() == 0);
  }
  CHECK(w.ask("links").at("links").as_array().empty());
}

double number(const json::value& v, const char* key) { return v.at(key).to_number<double>(); }

// Sizes rise, each with its time and lane.
void check_figures(const json::value& c) {
  const json::array& sizes = c.at("sizes").as_array();
  REQUIRE(sizes.size() >= 1);
  CHECK(number(sizes[0], "bytes") == 4096);
  double before = 0;
  for (const json::value& size : sizes) {
    CHECK(number(size, "bytes") > before);
    before = number(size, "bytes");
    CHECK(number(size, "seconds") > 0);
    CHECK(number(size, "transfers") >= 1);
    CHECK(!size.at("lane").as_string().empty());
  }
  CHECK(c.at("at").is_number());
  CHECK(number(c, "bytes_per_s") > 1e5);
  CHECK(number(c, "latency_s") > 0);
}

}  // namespace

TEST_CASE(
    "workers of one host: the way of blocks that are not read in place is measured, and nobody sees it") {
  const Watched w({.workers = 3, .devices = 2});
  INFO(w.cluster.words());
  const json::array classes = w.measured(1);
  REQUIRE(classes.size() == 1);
  const json::value& c = classes[0];
  check_figures(c);
  CHECK(c.at("from_host").as_string() == c.at("to_host").as_string());
  CHECK(c.at("mapped").as_bool());
  CHECK(!c.at("inside").as_bool());
  const std::size_t sizes = c.at("sizes").as_array().size();
  CHECK(sizes >= 1);
  CHECK(sizes <= 4);  // as many as there was time for: all, where nobody else is on the machine
  check_unseen(w);
  const Ran told = w.tool({"links"});
  CHECK(told.output.find("host to host on a host") != std::string::npos);
  CHECK((told.output.find("8.0 MiB") != std::string::npos) == (sizes == 4));
  CHECK(told.output.find("read in place") != std::string::npos);
}

TEST_CASE("workers that do not map are known to copy, and placement reckons with the measured rate") {
  const Watched w({.workers = 2, .devices = 1, .worker_args = {"--no-map"}});
  INFO(w.cluster.words());
  const json::array classes = w.measured(1);
  REQUIRE(classes.size() == 1);
  check_figures(classes[0]);
  CHECK(!classes[0].at("mapped").as_bool());
  check_unseen(w);
  const Session session = w.cluster.session();
  REQUIRE(session.wait_for_devices(2, kPatience));
  const auto devices = session.devices();
  Array x = session.ones({512, 512}, {.block = {256, 256}}).on(devices[0]);
  const msg::Explanation told = session.explain((x + 1.0).on(devices[1])).account();
  REQUIRE(told.links.size() == 1);
  CHECK(told.links[0].measured);
  CHECK(!told.links[0].mapped);
  CHECK(told.links[0].bytes_per_s == doctest::Approx(number(classes[0], "bytes_per_s")).epsilon(0.001));
  CHECK((x + 1.0).on(devices[1]).get<double>({.timeout = kPatience}) == std::vector<double>(512 * 512, 2.0));
}

TEST_CASE("switched off, nothing is measured") {
  const Watched w({.workers = 2, .devices = 1, .scheduler_args = {"--no-link-probes"}});
  INFO(w.cluster.words());
  const Session session = w.cluster.session();
  CHECK(session.ones({64}, {.block = {8}}).get<double>({.timeout = kPatience}) ==
        std::vector<double>(64, 1.0));
  CHECK(w.ask("links").at("classes").as_array().empty());
  CHECK(w.tool({"links"}).output.find("--no-link-probes") != std::string::npos);
}

TEST_CASE("a worker that dies while links are measured is not waited for, and who joins is measured") {
  Watched w({.workers = 2, .devices = 1});
  INFO(w.cluster.words());
  w.cluster.worker(1).signal(SIGKILL);  // whenever that is: right after its join
  REQUIRE(w.cluster.worker(1).wait().has_value());
  w.cluster.add_worker({});
  CHECK(eventually([&] {
    const json::array all = w.ask("links").at("classes").as_array();
    return all.size() == 1 && all[0].at("state").as_string() == "measured";
  }));
  check_unseen(w);
}

TEST_CASE(
    "hosts: each direction is measured over the network, a slow one by small sizes; what is given up for "
    "work is measured later") {
  setenv("UCX_TLS", "tcp", 1);  // inherited by the workers
  std::string why;
  const auto network = Network::make(2, why);
  if (!network) {
    skipped("no hosts of their own: " + why);
    return;
  }
  const bool slow = network->slow_down(1, 20'000'000);
  {
    const Watched w({.workers = 2, .devices = 1, .network = network.get()});
    INFO(w.cluster.words());
    const json::array classes = w.measured(2);
    REQUIRE(classes.size() == 2);
    for (const json::value& c : classes) {
      check_figures(c);
      CHECK(!c.at("mapped").as_bool());
      CHECK(c.at("from_host").as_string() != c.at("to_host").as_string());
      CHECK(c.at("sizes").as_array()[0].at("lane").as_string() == "tcp");
      if (slow) CHECK(c.at("sizes").as_array().size() < 4);
      if (slow) CHECK(number(c, "bytes_per_s") < 10e6);
    }
    check_unseen(w);
  }
  network->slow_down(1, 0);
  const Watched w({.workers = 2, .devices = 1, .network = network.get()});
  const Session session = w.cluster.session();
  REQUIRE(session.wait_for_devices(2, kPatience));
  // Whatever was measured is given up for this, or over.
  CHECK(session.ones({512, 512}, {.block = {64, 64}}).get<double>({.timeout = kPatience}) ==
        std::vector<double>(512 * 512, 1.0));
  for (const json::value& c : w.measured(2)) check_figures(c);
}

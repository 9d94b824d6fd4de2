// The link to the scheduler breaks while both sides live: who comes back within its lease has missed nothing.
#include <doctest/doctest.h>
#include <thread>

#include <tilewise/remote/connect.h>

#include "harness.h"
#include "programs.h"
#include "proxy.h"

using namespace tilewise;
using namespace tilewise::testing;

namespace {

Session through(const Proxy& proxy, const Cluster& cluster, TimeNs lease_ns,
                TimeNs silence_ns = 10 * kSecond) {
  remote::Options options{.scheduler = *net::Address::parse(proxy.address()), .token = cluster.token()};
  options.name = "away";
  options.lease_ns = lease_ns;
  options.silence_ns = silence_ns;
  auto endpoint = remote::connect(options);
  REQUIRE(endpoint.has_value());
  return make_session(std::move(*endpoint), {.timeout = kPatience});
}

}  // namespace

TEST_CASE("a client that comes back in time finds its futures and arrays, and loses nothing that was said") {
  Cluster cluster({.workers = 2, .devices = 1});
  INFO(cluster.words());
  Proxy proxy(cluster.address());
  {
    const Session session = through(proxy, cluster, 20 * kSecond);
    REQUIRE(session.wait_for_devices(2, kPatience));
    Array held = session.random.normal({300, 200}, {.seed = 5, .block = {60, 70}});
    held.persist().wait();
    const std::vector<double> whole = held.get<double>();
    const std::vector<double> expected = session.compute({products(session)}).get<double>();
    const Future under_way = session.compute({products(session)});
    for (int i = 0; i < 3; ++i) {
      proxy.set_up(false);
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      const Future asked = session.compute({sum(held)});  // while nobody can hear it
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      CHECK(cluster.status().find("away") != std::string::npos);
      proxy.set_up(true);
      CHECK(asked.get<double>().size() == 1);
    }
    CHECK(proxy.links() >= 4);
    CHECK(same_bits(under_way.get<double>(), expected));
    CHECK(same_bits(held.get<double>(), whole));
  }
  // It said that it leaves: nobody waits for its lease.
  CHECK(eventually([&] { return cluster.status().find("away") == std::string::npos; },
                   std::chrono::seconds(10)));
  CHECK(nothing_left(cluster));
}

TEST_CASE(
    "packets between a client and the scheduler are lost, one way or both, for longer than silence is "
    "borne") {
  Cluster cluster({.workers = 1, .devices = 1, .scheduler_args = {"--silence-timeout", "2"}});
  INFO(cluster.words());
  for (const auto& [there, back] : {std::pair(true, false), {false, true}, {true, true}}) {
    CAPTURE(there);
    CAPTURE(back);
    Proxy proxy(cluster.address());
    const Session session = through(proxy, cluster, 20 * kSecond, kSecond);
    REQUIRE(session.wait_for_devices(1, kPatience));
    Array held = session.random.normal({300, 200}, {.seed = 5, .block = {60, 70}});
    held.persist().wait();
    const std::vector<double> whole = held.get<double>();
    const int links = proxy.links();
    proxy.hold(there, back);
    const Future asked = session.compute({held});
    std::this_thread::sleep_for(std::chrono::milliseconds(3500));
    proxy.hold(false, false);
    CHECK(same_bits(asked.get<double>(), whole));
    if (back) CHECK(proxy.links() > links);  // who hears nothing comes anew; who is not heard has its lease
    CHECK(same_bits(held.get<double>(), whole));
  }
  CHECK(nothing_left(cluster));
}

TEST_CASE("a client that comes back too late is told so, and what it held is gone") {
  Cluster cluster({.workers = 1, .devices = 1});
  INFO(cluster.words());
  Proxy proxy(cluster.address());
  const Session session = through(proxy, cluster, 2 * kSecond);
  REQUIRE(session.wait_for_devices(1, kPatience));
  Array held = session.ones({100, 100}, {.block = {10, 10}});
  held.persist().wait();
  proxy.set_up(false);
  CHECK(nothing_left(cluster));
  proxy.set_up(true);
  std::string text;
  try {
    (void)held.get<double>();
  } catch (const ArrayError& e) {
    text = e.what();
  }
  CHECK_MESSAGE((text.find("too long") != std::string::npos || text.find("within 2 s") != std::string::npos),
                text);
}

TEST_CASE("a worker with a lease keeps its blocks and its work over a broken link") {
  Cluster cluster({.workers = 1, .devices = 1});
  INFO(cluster.words());
  Proxy proxy(cluster.address());
  cluster.add_worker({"--lease", "10"}, proxy.address());
  const Session session = cluster.session();
  REQUIRE(session.wait_for_devices(2, kPatience));
  const std::vector<double> expected =
      session.compute({products(session)}).get<double>(0, {.timeout = kPatience});
  const Future future = session.compute({products(session)});
  REQUIRE(eventually([&] { return future.progress().done > 0; }));
  proxy.set_up(false);
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  CHECK(session.devices().size() == 2);
  proxy.set_up(true);
  CHECK(same_bits(future.get<double>(0, {.timeout = kPatience}), expected));
  CHECK(session.devices().size() == 2);
}

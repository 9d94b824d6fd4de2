// Large blocks that several hosts read, on their way from one to the next (docs/design/trees.md).
#include <doctest/doctest.h>

#include <csignal>
#include <cstdlib>
#include <map>
#include <optional>

#include "harness.h"
#include "network.h"
#include "skipped.h"

using namespace tilewise;
using namespace tilewise::testing;

namespace {

constexpr std::int64_t kInner = 640, kWide = 8192;  // the block that all read: 40 MiB
constexpr std::int64_t kBlockBytes = kInner * kWide * 8;

// A worker with one device on each of some hosts, whose ways carry so many bits a second.
struct Chain {
  std::unique_ptr<Network> network;
  std::unique_ptr<Cluster> cluster;
  std::optional<Session> session;
  std::vector<DeviceId> all;
  DeviceId first;

  Chain(int hosts, std::int64_t bits_per_s, const std::vector<std::string>& worker_args = {}) {
    setenv("UCX_TLS", "tcp", 1);  // inherited by the workers
    std::string why;
    network = Network::make(hosts, why);
    if (!network) {
      skipped("no hosts of their own: " + why);
      return;
    }
    cluster = std::make_unique<Cluster>(
        ClusterOptions{.workers = hosts, .devices = 1, .worker_args = worker_args, .network = network.get()});
    session.emplace(cluster->session());
    REQUIRE(session->wait_for_devices(static_cast<std::size_t>(hosts), kPatience));
    for (const Device& device : session->devices()) {
      all.push_back(device.id);
      if (device.worker == "worker-0") first = device.id;
    }
    for (int host = 0; host < hosts; ++host) {
      if (!network->slow_down(host, bits_per_s)) {
        skipped("no slow ways on this kernel");
        cluster.reset();
        return;
      }
    }
  }
  // Sums of rows of a product to which each device contributes one block of rows.
  Array product() {
    Array a = session->full({kInner, kWide}, 0.25, {.block = {kInner, kWide}}).on(first);
    Array rows = session->ones({64 * std::ssize(all), kInner}, {.block = {64, kInner}}).on(all);
    session->persist({a, rows}).wait({.timeout = kPatience});
    return sum(matmul(rows, a).on(all), 1);
  }
  // By its host, so far.
  std::int64_t received(int host) const {
    std::vector<std::string> command = network->prefix(host);
    command.insert(command.end(), {"cat", "/proc/net/dev"});
    const std::string said = testing::run(command).output;
    const std::size_t at = said.find("eth0:");
    REQUIRE(at != std::string::npos);
    return std::stoll(said.substr(at + 5));
  }
  std::vector<double> right() const { return std::vector<double>(64 * all.size(), 0.25 * kInner * kWide); }
};

}  // namespace

TEST_CASE("a large block goes through one host after the other, and each passes it on while it comes") {
  Chain w(4, 400'000'000);
  if (!w.cluster) return;
  INFO(w.cluster->words());
  CHECK(w.product().get<double>({.timeout = kPatience}) == w.right());
  std::map<std::string, TraceStep> from;  // by sender
  for (const TraceStep& step : w.session->trace().steps) {
    if (step.kind != msg::TraceKind::kTransfer || step.bytes != kBlockBytes) continue;
    CHECK_MESSAGE(from.emplace(step.peer, step).second, step.peer << " sent it twice");
  }
  REQUIRE(from.size() == 3);
  // From the owner along the chain; monotonic clocks of namespaces of one machine agree.
  std::string sender;
  for (const Device& device : w.session->devices())
    if (device.id == w.first) sender = device.name;
  std::int64_t before_ns = 0;
  for (int hop = 0; hop < 3; ++hop) {
    CAPTURE(hop);
    REQUIRE(from.contains(sender));
    const TraceStep& step = from.at(sender);
    if (hop > 0) CHECK(step.start_ns < before_ns);
    before_ns = step.end_ns;
    sender = step.device;
  }
}

TEST_CASE("kill -9 in the middle of a chain: the others get the block all the same") {
  for (int victim = 1; victim < 4; ++victim) {
    CAPTURE(victim);
    Chain w(4, 200'000'000, {"--respawn"});
    if (!w.cluster) return;
    INFO(w.cluster->words());
    Array product = w.product();
    const Future future = w.session->compute({product});
    const std::int64_t before = w.received(victim);
    const auto come = [&] { return w.received(victim) - before; };
    REQUIRE(eventually([&] { return come() > 4 << 20; }));
    CHECK(come() < kBlockBytes);
    kill(working(w.cluster->worker(victim).pid()), SIGKILL);
    CHECK(future.get<double>(0, {.timeout = kPatience}) == w.right());
    product = {};
    CHECK(nothing_left(*w.cluster));
  }
}

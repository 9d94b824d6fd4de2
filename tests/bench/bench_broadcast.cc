#include "bench_broadcast.h"

#include <chrono>
#include <cstdlib>
#include <map>
#include <vector>

#include "../integration/harness.h"
#include "../integration/network.h"

namespace tilewise::bench {

namespace {

constexpr int kHosts = 6;  // one worker with one device each
constexpr std::int64_t kBitsPerSecond =
    800'000'000;  // of each host's way: slow enough that this machine's cores do not count
constexpr auto kPatience = std::chrono::seconds(60);

// Seconds from the call to the end of steps on the first `readers` of these devices, each of which reads the block that `owner` has.
double read_by(const Session& session, DeviceId owner, const std::vector<DeviceId>& others,
               std::size_t readers, std::int64_t bytes) {
  const std::int64_t n = bytes / 8;
  Array block = session.full({n}, 0.5, {.block = {n}}).on(owner);
  block.persist().wait({.timeout = kPatience});
  std::vector<Array> results;
  for (std::size_t i = 0; i < readers; ++i)
    results.push_back((block * static_cast<double>(i + 1)).on(others[i]));
  const auto began = std::chrono::steady_clock::now();
  session.persist(results).wait({.timeout = kPatience});
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

}  // namespace

void bench_broadcast(const Settings& settings, Report& report) {
  ::setenv("UCX_TLS", "tcp", 1);  // inherited by the workers: they are to think that their hosts are apart
  std::string why;
  const auto network = testing::Network::make(kHosts, why);
  if (!network) return report.note("broadcast: no hosts of their own: " + why);
  const testing::Cluster cluster(
      {.workers = kHosts, .devices = 1, .memory = "512MiB", .network = network.get()});
  const Session session = cluster.session();
  if (!session.wait_for_devices(kHosts, kPatience)) throw std::runtime_error("workers that do not come");
  DeviceId owner;
  std::vector<DeviceId> others;
  for (const Device& device : session.devices()) {
    if (device.worker == "worker-0")
      owner = device.id;
    else
      others.push_back(device.id);
  }
  for (int host = 0; host < kHosts; ++host)
    if (!network->slow_down(host, kBitsPerSecond))
      return report.note("broadcast: this kernel slows nothing down");
  for (const std::int64_t mib : {8, 64}) {
    std::map<std::size_t, std::vector<double>> seconds;  // by readers
    for (int i = -1; i < settings.repeats; ++i) {
      for (const std::size_t readers : {std::size_t{1}, others.size()}) {
        const double one = read_by(session, owner, others, readers, mib << 20);
        if (i >= 0) seconds[readers].push_back(one);
      }
    }
    report.at_most({.metric = std::to_string(mib) + " MiB to " + std::to_string(others.size()) +
                              " other hosts, 800 Mbit/s each",
                    .value = median(seconds[others.size()]) * 1e3,
                    .unit = "ms",
                    .reference = "to one of them",
                    .reference_value = median(seconds[1]) * 1e3},
                   mib > 32 ? 1.25 : 1.6);
  }
}

}  // namespace tilewise::bench

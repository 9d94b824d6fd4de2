// For tests: an overview of a made-up cluster.
#pragma once
#include <tilewise/scheduler/view.h>

namespace tilewise::dashboard::test {

inline const std::string kHostile = "<script>alert(1)</script>\"\n\xFF";

inline scheduler::Overview cluster(int workers = 2, const std::string& name = "host/1") {
  scheduler::Overview o;
  o.now = 100 * kSecond;
  for (int i = 1; i <= workers; ++i) {
    const auto id = static_cast<std::uint32_t>(i);
    msg::PeerInfo peer{WorkerId{id}, msg::Role::kWorker, name, "one", {}, {DeviceId{id}}, {}};
    peer.descriptions.push_back({"w" + std::to_string(i) + "/host:0", 0, "cpu", "x", 1000, 1});
    o.status.peers.push_back(std::move(peer));
    o.status.devices.push_back({DeviceId{id}, 100, 200, 300, 4, 0});
  }
  return o;
}

}  // namespace tilewise::dashboard::test

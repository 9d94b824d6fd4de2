// The first messages on every link to the scheduler, and who a peer is.
#pragma once
#include <tilewise/base/id.h>
#include <tilewise/msg/outcome.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tilewise::msg {

enum class Role : std::uint8_t {
  kWorker = 0,
  kClient = 1,
  kTool = 2 /* status and control only, no devices */
};

struct DeviceDesc {
  std::string name;       // local: "host:0"
  std::uint8_t kind = 0;  // device::Kind
  std::string model;
  std::string numeric_class;
  std::int64_t memory_bytes = 0;
  std::int32_t streams = 1;
  std::int64_t spill_bytes = 0;   // its share of what its worker may have on disk
  std::int64_t pinned_bytes = 0;  // likewise in pinned host memory
  std::string gpu;                // cuda: which one it is, "GPU-..."; the same in every process
  friend bool operator==(const DeviceDesc&, const DeviceDesc&) = default;
};
struct PluginDesc {
  std::string kernel, version;
  std::uint64_t hash = 0;
  friend bool operator==(const PluginDesc&, const PluginDesc&) = default;
};
struct Join {
  Role role = Role::kWorker;
  std::string name;  // for people: "host-a/1234"
  std::string software_version;
  std::string host_id;  // equal on two processes that may share memory
  std::vector<std::string>
      addresses;  // where peers connect, best first: "unix-abstract:...", "tcp://10.0.0.7:41233"
  std::vector<DeviceDesc> devices;  // client: its one endpoint
  std::vector<PluginDesc> plugins;
  std::uint64_t black_box = 0;  // workers: by this number a supervisor tells how it died; 0: there is none
  // How long one whose link broke may stay away, unless it said Leave. 0: not at all.
  std::int64_t lease_ns = 0;
  friend bool operator==(const Join&, const Join&) = default;
};
struct Welcome {
  std::uint32_t term = 0;
  WorkerId you;
  SessionId session;              // clients only
  std::vector<DeviceId> devices;  // in the order of Join
  Outcome refused;                // ok: accepted; else the link closes after this
  std::uint64_t state = 0;        // names what this scheduler knows of its peers; 0: a broken link is the end
  bool durable = false;           // it keeps that on disk, and outlives its process
  std::uint32_t introduced = 0;   // so many peers are told of next, who are there already
  friend bool operator==(const Welcome&, const Welcome&) = default;
};

// A peer with a lease, and any peer of a scheduler that keeps its state on disk, outlives its link. Both sides count the
// messages of a peer, but for these three, from its Join and Welcome on; what is not known to have arrived is kept and sent
// again on the next link.
struct Resume {  // first on such a link, instead of Join
  std::uint64_t state = 0;
  WorkerId me;
  std::uint64_t received = 0;  // messages from the scheduler so far
  // The last that it named, 0 between peers: who says an earlier one has nothing from this life of it, and all else that it has is known here.
  std::uint32_t term = 0;
  friend bool operator==(const Resume&, const Resume&) = default;
};
struct Resumed {
  std::uint32_t term = 0;
  std::uint64_t received = 0;  // messages from the peer so far, none of which the scheduler will forget
  Outcome refused;             // not ok: this incarnation is over; the link closes after this
  friend bool operator==(const Resumed&, const Resumed&) = default;
};
struct Ack {  // either way
  std::uint64_t received = 0;
  friend bool operator==(const Ack&, const Ack&) = default;
};

struct Leave {  // from a peer with a lease: the end of this link is meant
  friend bool operator==(const Leave&, const Leave&) = default;
};

struct PeerInfo {
  WorkerId id;
  Role role = Role::kWorker;
  std::string name, host_id;
  std::vector<std::string> addresses;
  std::vector<DeviceId> devices;
  std::vector<DeviceDesc> descriptions;  // parallel to devices
  friend bool operator==(const PeerInfo&, const PeerInfo&) = default;
};

}  // namespace tilewise::msg

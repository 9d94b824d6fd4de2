// A whole cluster inside this process: scheduler, workers and devices on one thread, kernels on the devices' threads.
// The same cores as the daemons', connected by function calls. Several may coexist.
#pragma once
#include <tilewise/client/endpoint.h>
#include <tilewise/device/device.h>
#include <tilewise/kernels/plugin.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tilewise::embedded {

struct ClusterOptions {
  int workers = 1;       // fault domains, in name only: they die together
  int host_devices = 0;  // of each worker; 0: one a core, or none where GPUs are used
  bool use_cuda = true;  // the GPUs found go to the first worker
  // Executor threads of all host devices together; each has one at least. 0: one a device, and as many devices, where
  // `host_devices` is 0, as the process may use cores.
  int cores = 0;
  std::int64_t memory_bytes =
      0;  // of each host device; 0: a share of 60 % of what the host and its cgroups have free
  std::int64_t cuda_memory_bytes = 0;  // of each GPU; 0: 85 % of what is free there
  // Where blocks of GPUs go when their memory is short, before any disk: so much pinned host memory, taken at the start. Of no
  // effect where no GPU is used.
  std::int64_t pinned_bytes = 0;
  // Where blocks go when memory is short: a directory on a local disk, and at most how many bytes all workers together may
  // have there (0: half of what is free, each). Nothing is left there at the end. Empty: results that do not fit fail.
  std::string spill_directory;
  std::int64_t spill_bytes = 0;
  std::vector<std::string> plugins;  // shared objects with kernels
  bool reference_kernels = false;
  bool map_peers = true;  // false: workers copy blocks instead of reading each other's memory
  // For tests: so many workers are told that they share a host, and that the others are elsewhere: blocks are copied between
  // such hosts. 0: all share one.
  int workers_a_host = 0;
  // How long the cluster's thread polls before it parks. Default: 50 us from four CPUs on, else nothing, as who polls keeps
  // the thread it waits for from running.
  std::optional<TimeNs> spin_ns;
  // How long memory may be wanted while nothing moves, until what wants it fails with kOutOfMemory.
  TimeNs stuck_ns = 5 * kSecond;
};

class Cluster {
 public:
  // kInvalidArgument, kNotFound (plug-in), kOutOfMemory, kDeviceError.
  static Result<std::unique_ptr<Cluster>> start(const ClusterOptions& options);
  // Ends all sessions: what they wait for fails with kUnavailable. Then waits for the steps under way, without end for one that has none: it
  // uses memory, kernels and plug-ins that go with this process's objects, and no thread can be ended from outside. Who must leave all
  // the same calls std::quick_exit(); who runs kernels that may hang has workers in processes of their own (--step-timeout).
  virtual ~Cluster() = default;

  // The data and control endpoint of a new client. Thread-safe. Where it outlives the cluster, with its sessions and arrays, what they
  // ask for fails with kUnavailable; but memory of the cluster that a client has been shown is gone.
  virtual std::unique_ptr<client::Endpoint> connect(std::string name) = 0;
};

}  // namespace tilewise::embedded

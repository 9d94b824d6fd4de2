// Prometheus' text format, version 0.0.4. docs/dashboard.md lists every name.
#pragma once
#include "warnings.h"

#include <string>

namespace tilewise::dashboard {

struct ServerCounts {
  std::size_t connections = 0, sockets = 0;
  std::uint64_t requests = 0, refused = 0;
};

// Label values are names of devices, workers, lanes and warnings that exist now: their number is that of the cluster.
std::string metrics_text(const scheduler::Overview& overview, const std::vector<Warning>& warnings,
                         const ServerCounts& counts, const std::string& version);

}  // namespace tilewise::dashboard

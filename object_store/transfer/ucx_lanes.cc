#include "ucx_lanes.h"

#include <algorithm>

namespace tilewise::transfer {

std::string_view name_of(Via via) {
  switch (via) {
    case Via::kNone: return "none";
    case Via::kSharedMemory: return "shared memory";
    case Via::kRdma: return "rdma";
    case Via::kTcp: return "tcp";
    case Via::kCudaIpc: return "cuda_ipc";
    case Via::kStaged: return "staged";
  }
  return "?";
}

namespace {

struct Transport {
  std::string_view prefix;
  Via via;
};
// UCX's names of transports ("rc_mlx5", "sysv" ...), by how they begin.
constexpr Transport kTransports[] = {
    {"tcp", Via::kTcp},
    {"sysv", Via::kSharedMemory},
    {"posix", Via::kSharedMemory},
    {"cma", Via::kSharedMemory},
    {"xpmem", Via::kSharedMemory},
    {"knem", Via::kSharedMemory},
    {"self", Via::kSharedMemory},
    {"rc", Via::kRdma},
    {"dc", Via::kRdma},
    {"ud", Via::kRdma},
    {"srd", Via::kRdma},
    {"cuda_ipc", Via::kCudaIpc},
    {"cuda_copy", Via::kStaged},
    {"gdr_copy", Via::kStaged},
};

Via via_of(std::string_view transport) {
  for (const Transport& known : kTransports) {
    if (transport.starts_with(known.prefix)) return known.via;
  }
  return Via::kNone;
}

bool used_for(std::string_view line, std::string_view use) {
  for (std::size_t at = line.find(use); at != line.npos; at = line.find(use, at + 1)) {
    const std::size_t end = at + use.size();
    const bool whole = end == line.size() || line[end] == ' ' || line[end] == '#';
    if (line[at - 1] == ' ' && whole) return true;
  }
  return false;
}

}  // namespace

bool lists_fast_network(std::string_view context) {
  for (std::size_t at = context.find("-- "); at != context.npos; at = context.find("-- ", at)) {
    at += 3;
    if (via_of(context.substr(at, context.find('/', at) - at)) == Via::kRdma) return true;
  }
  return false;
}

//   #    lane[1]:  4:cma/memory.0 md[4]      -> md[4]/cma/sysdev[255] rma_bw#0
Lanes read_lanes(std::string_view description) {
  Via am = Via::kNone, am_bulk = Via::kNone, rma = Via::kNone;
  bool cuda_ipc = false;
  while (!description.empty()) {
    const std::size_t end = std::min(description.find('\n'), description.size());
    const std::string_view line = description.substr(0, end);
    description.remove_prefix(std::min(end + 1, description.size()));
    const std::size_t lane = line.find("lane[");
    const std::size_t colon = lane == line.npos ? line.npos : line.find("]:", lane);
    const std::size_t second = colon == line.npos ? line.npos : line.find(':', colon + 2);
    const std::size_t arrow = line.find("->");
    if (second == line.npos || arrow == line.npos || second > arrow) continue;
    const Via via = via_of(line.substr(second + 1, line.find('/', second) - second - 1));
    const std::string_view uses = line.substr(arrow);
    if (am == Via::kNone && used_for(uses, "am")) am = via;
    if (am_bulk == Via::kNone && used_for(uses, "am_bw")) am_bulk = via;
    if (used_for(uses, "rma_bw")) {
      cuda_ipc |= via == Via::kCudaIpc;
      // Host memory cannot go by a lane for device memory.
      if (rma == Via::kNone && via != Via::kCudaIpc && via != Via::kStaged) rma = via;
    }
  }
  Lanes lanes;
  lanes.eager = am;
  lanes.bulk = rma != Via::kNone ? rma : am_bulk != Via::kNone ? am_bulk : am;
  // Without a lane of its own, device memory goes through the host, unless the network reads it directly.
  lanes.bulk_cuda = cuda_ipc ? Via::kCudaIpc : lanes.bulk == Via::kRdma ? Via::kRdma : Via::kStaged;
  if (lanes.bulk == Via::kNone) lanes.bulk_cuda = Via::kNone;
  return lanes;
}

}  // namespace tilewise::transfer

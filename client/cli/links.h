// How fast blocks really go between the workers of a running cluster.
#pragma once
#include <tilewise/session.h>

#include <map>
#include <string>
#include <vector>

namespace tilewise::cli {

struct LinkSpeed {
  std::string from, to;  // devices: "w1/host:0"
  std::string lane;      // as the transport said: "mapped", "tcp"
  bool one_host = false;
  double bytes_per_second = 0;
  double hop_us =
      0;  // from a task on one to the task on the other that reads its eight bytes, and launching both
};

// Moves at most 64 MiB four times over each link, and a scalar back and forth. Every worker to every other where there are at
// most six, else each to the next: `all` says which. `hosts`: the host id of each worker. Throws ArrayError.
std::vector<LinkSpeed> measure_links(const Session& session, const std::map<WorkerId, std::string>& hosts,
                                     bool& all);

// What the hardware has: bytes a second that one core of this machine copies in memory; that its fastest network
// interface is said to carry, 0 where none says.
double copy_rate();
double network_rate();

}  // namespace tilewise::cli

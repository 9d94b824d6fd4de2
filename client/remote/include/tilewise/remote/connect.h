// A client's endpoint on a cluster of other processes: a link to the scheduler and an exchange with the workers, on a
// thread of its own.
#pragma once
#include <tilewise/base/time.h>
#include <tilewise/client/endpoint.h>
#include <tilewise/net/address.h>
#include <tilewise/net/token.h>

#include <memory>
#include <string>

namespace tilewise::remote {

struct Options {
  net::Address scheduler;
  net::Token token;
  std::string name;       // for people; empty: host/pid
  bool map_peers = true;  // false: blocks are copied even from workers of this host
  bool strict_lanes = false;
  TimeNs timeout_ns = 10 * kSecond;    // for connecting and being welcomed, retries included
  TimeNs reconnect_ns = 60 * kSecond;  // how long a scheduler that keeps its state may be away
  // How long the link may be broken, or this process be out of reach, before all that it asked for is given up and what it
  // holds is released. 0: not at all. At most seven days.
  TimeNs lease_ns = 10 * kSecond;
  // How long there may be no way to a worker that the scheduler sees, neither a link over TCP of our own nor through another worker,
  // before requests that wait for it fail (kUnavailable); it is sought meanwhile, and afterwards. 0: broken links are not made again.
  TimeNs link_ns = 30 * kSecond;
  // A scheduler or a worker whose host answers nothing for so long is taken for gone; as the cluster's --silence-timeout. 2 to 20 s.
  TimeNs silence_ns = 10 * kSecond;
};

// kUnavailable (nobody listens), kUnauthenticated (another token), kVersionMismatch, kTimeout, or the scheduler's refusal.
Result<std::unique_ptr<client::Endpoint>> connect(const Options& options);

// With the token found as every program finds it, and with $TILEWISE_TOKEN_FILE, $TILEWISE_NO_MAP, and in seconds
// $TILEWISE_LEASE, $TILEWISE_LINK_TIMEOUT and $TILEWISE_SILENCE_TIMEOUT.
Result<std::unique_ptr<client::Endpoint>> connect_from_environment(const std::string& scheduler,
                                                                   const std::string& name);

}  // namespace tilewise::remote

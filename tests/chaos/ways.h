// What links of a cluster can be done to: hosts of their own with packets that are lost (network.h) where this machine permits it,
// and proxies between everybody and the scheduler (proxy.h) where it does not.
#pragma once
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "../integration/network.h"

namespace tilewise::testing {

struct WayCounts {
  int cuts = 0, long_cuts = 0, resets = 0, client_resets = 0, flaps = 0, slow = 0, lossy = 0, half_open = 0;
  int all() const { return cuts + resets + client_resets + flaps + slow + lossy + half_open; }
};

// Workers are numbered as the cluster numbers them. What is broken stays so until mend(), and one thing at a time is.
class Ways {
 public:
  virtual ~Ways() = default;
  // For the cluster's options; none with proxies.
  virtual const Network* network() const { return nullptr; }
  // By which to reach the scheduler at this address; as `worker`, or as a client (-1). Empty: directly.
  virtual std::string to_scheduler(const std::string& address, int worker) = 0;

  // Two ends that lose what goes from one to the other, in silence; `both`: either way. False: there are no two.
  virtual bool cut(int one, int two, bool both) = 0;
  virtual void isolate(int worker) = 0;  // with its host: it hears nothing and is not heard
  virtual bool reset(int worker,
                     int other) = 0;  // connections end at once, with an error; false: they cannot
  virtual bool slow_down(int worker, std::int64_t bits_per_s) = 0;  // false: it cannot
  virtual bool lose_some(int worker, double share) = 0;             // of its host's packets; false: it cannot
  virtual void mend() = 0;
  // These are on the same host, and so are isolated together.
  virtual bool together(int one, int two) const = 0;
};

// `ways`: "hosts" or "proxies", or empty for the first that there is. None, and `why` says why, where the machine has not got them.
std::unique_ptr<Ways> make_ways(const std::string& ways, int workers, std::string& why);

}  // namespace tilewise::testing

// Who makes again what lost devices had: chosen so that the living come to an end together, and so that blocks of several
// arrays that belong together stay together.
#pragma once
#include "state.h"

#include <map>
#include <vector>

namespace tilewise::scheduler {

// What a point of the op takes a device, in seconds: as measured where some have been done, else by the model.
double point_seconds(const State& s, const OpRecord& head);

// First it is told of all that there is to do, then it deals out. Not thread-safe.
class Dealing {
 public:
  explicit Dealing(const State& s) : s_(s) {}

  void has_to_do(DeviceId device, double seconds) { busy_[device] += seconds; }
  void is_made_again(const ir::Op& op, double seconds);

  // The i-th of `all` points of an op that one device had, 0 <= i < all; `open`: who may make it, not empty, and the same list for
  // all of them. Pieces are contiguous, and as large for one op as for another. Where there are fewer points than devices: who
  // has made `near`, one of the arrays that the op reads, if that is no later than others; else who has least to do.
  DeviceId taker(const ir::Op& op, const std::vector<DeviceId>& open, std::size_t i, std::size_t all,
                 double seconds);

 private:
  const std::vector<std::int64_t>& parts(const std::vector<DeviceId>& open);
  DeviceId taker_of_one(const ir::Op& op, const std::vector<DeviceId>& open, double seconds);

  const State& s_;
  std::map<DeviceId, double> busy_;
  double again_s_ = 0, most_s_ = 0;
  std::string family_;  // of the op that takes longest: devices differ by it
  std::map<std::vector<DeviceId>, std::vector<std::int64_t>> parts_;
  std::map<std::uint64_t, DeviceId> made_by_;  // array -> who was given one of its few points
};

}  // namespace tilewise::scheduler

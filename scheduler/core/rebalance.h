// Who gives points of a running op to whom, so that all come to an end together. Pure: what has been seen goes in, a proposal comes
// out.
#pragma once
#include <tilewise/base/id.h>
#include <tilewise/scheduler/core.h>

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

namespace tilewise::scheduler {

// A device, seen from one op.
struct Runner {
  DeviceId device;
  std::int64_t left = 0;  // points of the op that it has not finished
  double point_s = 0;     // what one takes it, as seen; 0: it has not been seen
  double bring_s = 0;     // what it takes to bring what one reads, if it is another's
  std::int64_t room = 0;  // points whose results it has memory for, besides its own
  bool gives = false;     // it may lose points
  bool takes = false;     // it may get some
  double at_least_s = 0;  // so long it has finished none, if it has not been seen
  double sure = 1;        // how far point_s is believed; the rest is what one takes the others
};
struct Shift {
  std::vector<std::pair<DeviceId, std::int64_t>> from, to;  // points; as many on both sides
  double before_s = 0, after_s = 0;                         // until the op is done
};

// What a move itself takes. While it lasts, others wait for it and nothing is let go of.
struct Effort {
  std::int64_t most = INT64_MAX;  // points that can go at once
  double point_s = 0;             // for each of them: to be asked about, given up and taken
};

// Of the moves of one op. Points that go to and fro follow what is chance; and as those that read them do not go with them, they stay
// in memory: each time that who gives has just been given some, the next move is waited for four times as long.
struct ToAndFro {
  static constexpr std::int32_t kMaxTurns = 8;
  std::int32_t turns = 0;
  std::set<DeviceId> takers;  // of the last move
  void note(const Shift& shift);
  TimeNs wait_ns(TimeNs again_ns) const;
};

class Balance {
 public:
  virtual ~Balance() = default;
  // None: it is not worth it. `runners` are rising, of one kind and numeric class.
  virtual std::optional<Shift> propose(std::span<const Runner> runners, const Effort& effort = {}) const = 0;
};

// By speed: each goes on with its own points, and those of the devices that end last are dealt out so that the last ends as early as
// can be; whoever takes one has its inputs to bring as well. What few points have told is believed in part. A device that has not been
// seen counts as fast as the others on average, unless it has been silent for far longer than that. Nothing is moved for less than
// `limits` say, which what can go at once has to win beyond the effort: of millions of points of a microsecond each it does not.
class BalanceBySpeed final : public Balance {
 public:
  explicit BalanceBySpeed(const Rebalance& limits) : limits_(limits) {}
  std::optional<Shift> propose(std::span<const Runner> runners, const Effort& effort = {}) const override;

 private:
  Rebalance limits_;
};

}  // namespace tilewise::scheduler

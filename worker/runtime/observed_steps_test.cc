#include "observed_steps.h"

#include <doctest/doctest.h>

namespace tilewise::worker {
namespace {

TEST_CASE("steps that nobody times lie between their enqueuing and the moment they are found complete") {
  OpEntry short_op{}, long_op{};
  short_op.model_ns = 100;
  long_op.model_ns = 300;
  ObservedSteps steps;
  std::vector<std::array<std::int64_t, 3>> seen;  // point, start, end
  const auto note = [&](const ObservedSteps::Step& s, TimeNs start, TimeNs end) {
    seen.push_back({s.point, start, end});
  };
  steps.completed(5, 10, note);
  CHECK(seen.empty());
  steps.enqueued({&short_op, 1, 1, 1000});
  steps.enqueued({&long_op, 2, 2, 1010});
  steps.enqueued({&short_op, 3, 3, 1020});
  steps.completed(2, 1400, note);  // two at once: 400 ns shared 1 to 3
  steps.completed(2, 1500, note);
  steps.completed(3, 1600, note);  // began when the one before it ended
  CHECK(seen == std::vector<std::array<std::int64_t, 3>>{{1, 1000, 1100}, {2, 1100, 1400}, {3, 1400, 1600}});
  steps.enqueued({&short_op, 4, 4, 5000});
  steps.completed(4, 4000, note);  // a clock that was read too early makes no negative step
  CHECK(seen.back() == std::array<std::int64_t, 3>{4, 4000, 4000});
}

}  // namespace
}  // namespace tilewise::worker

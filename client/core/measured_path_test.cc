#include "measured_path.h"

#include <doctest/doctest.h>

namespace tilewise::client {
namespace {

const DeviceId kA{1}, kB{2};

msg::TracedStep ran(std::uint64_t op, DeviceId device, std::int64_t point, std::int64_t start,
                    std::int64_t end) {
  msg::TracedStep step;
  step.op = OpId{op};
  step.device = device;
  step.point = point;
  step.start_ns = start, step.end_ns = end;
  return step;
}
msg::TracedStep moved(std::uint64_t op, DeviceId from, DeviceId to, std::uint64_t user, std::int64_t start,
                      std::int64_t end) {
  msg::TracedStep step = ran(op, to, 0, start, end);
  step.kind = msg::TraceKind::kTransfer;
  step.peer = from;
  step.user = OpId{user};
  return step;
}
std::vector<msg::MeasuredOp> three_ops() {
  std::vector<msg::MeasuredOp> ops(3);
  for (std::uint32_t i = 0; i < 3; ++i) ops[i].id = OpId{i + 1}, ops[i].op = i;
  return ops;
}
double total(const std::vector<msg::CriticalAccount>& path) {
  double seconds = 0;
  for (const msg::CriticalAccount& c : path) seconds += c.seconds;
  return seconds * 1e9;
}

TEST_CASE("the chain that ended last goes through transfers to who made what was moved") {
  std::vector<msg::TraceReply> traces(2);
  traces[0].steps = {ran(1, kA, 0, 0, 10), ran(1, kA, 1, 10, 30)};
  traces[1].steps = {ran(3, kB, 0, 0, 5), moved(1, kA, kB, 2, 12, 20), ran(2, kB, 0, 25, 40)};
  const auto path = measured_path(traces, three_ops(), 100);
  REQUIRE(path.size() == 5);
  CHECK(path[0] == msg::CriticalAccount{0, kA, "runs", 10e-9});
  CHECK(path[1].what == "waits");
  CHECK(path[2].op == 1);
  CHECK(path[2].device == kB);
  CHECK(path[2].what == "moves");
  CHECK(path[2].seconds == doctest::Approx(8e-9));
  CHECK(path[3].what == "waits");
  CHECK(path[4].op == 1);
  CHECK(path[4].device == kB);
  CHECK(path[4].what == "runs");
  CHECK(path[4].seconds == doctest::Approx(15e-9));
  CHECK(total(path) == doctest::Approx(40));
}

TEST_CASE("steps behind each other on a device are one stretch, and only so many are told") {
  std::vector<msg::TraceReply> traces(1);
  for (std::int64_t i = 0; i < 1000; ++i)
    traces[0].steps.push_back(ran(1 + i % 2, kA, i, i * 10, i * 10 + 10));
  traces[0].steps.push_back(ran(2, kA, 1000, 10'000, 10'010));
  std::vector<msg::CriticalAccount> path = measured_path(traces, three_ops(), 3);
  REQUIRE(path.size() == 3);
  CHECK(path.back().op == 1);
  CHECK(path.back().seconds == doctest::Approx(20e-9));
  path = measured_path(traces, three_ops(), 10'000);
  CHECK(path.size() == 1000);
  CHECK(total(path) == doctest::Approx(10'010));
}

TEST_CASE("hosts whose clocks disagree, ops that are not known, and no records at all") {
  std::vector<msg::TraceReply> traces(1);
  // The block is here before it was made; the step begins before it came.
  traces[0].steps = {ran(9, kA, 0, 100, 130), moved(9, kA, kB, 2, 50, 60), ran(2, kB, 0, 55, 70)};
  const auto path = measured_path(traces, three_ops(), 100);
  for (const msg::CriticalAccount& c : path) CHECK(c.seconds > 0);
  CHECK(path.back().op == UINT32_MAX);
  CHECK(measured_path({}, three_ops(), 100).empty());
  traces[0].steps = {moved(1, kA, kB, 2, 50, 60)};
  CHECK(measured_path(traces, three_ops(), 100).empty());
}

}  // namespace
}  // namespace tilewise::client

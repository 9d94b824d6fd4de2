#include <tilewise/worker/step_log.h>

#include <doctest/doctest.h>

#include <thread>

namespace tilewise::worker {
namespace {

StepRecord record(std::uint64_t n) {
  return {OpId{n + 1},
          GraphId{n * 3 + 1},
          static_cast<std::int64_t>(n * 5),
          static_cast<std::uint32_t>(n % 1000),
          DeviceId{static_cast<std::uint32_t>(n % 60'000)},
          static_cast<std::uint8_t>(n % 4),
          static_cast<std::int64_t>(n * 7),
          static_cast<std::int64_t>(n * 7 + 1),
          static_cast<msg::TraceKind>(n % msg::kTraceKindCount),
          static_cast<msg::Lane>(n % msg::kLaneCount),
          DeviceId{static_cast<std::uint32_t>(n % 50'000)},
          static_cast<std::int64_t>(n * 11),
          OpId{n * 13}};
}
bool same(const StepRecord& r) { return r == record(r.op.value - 1); }

TEST_CASE("the last records stay, the others are counted") {
  StepLog log;
  std::uint64_t lost = 1;
  CHECK(log.read(lost).empty());
  CHECK(lost == 0);
  const std::uint64_t many = StepLog::kCapacity + 1000;
  for (std::uint64_t n = 0; n < many; ++n) log.add(record(n));
  const auto records = log.read(lost);
  CHECK(lost == 1000);
  REQUIRE(records.size() == StepLog::kCapacity);
  for (std::size_t i = 0; i < records.size(); ++i) {
    REQUIRE(records[i].op.value == 1001 + i);
    REQUIRE(same(records[i]));
  }
}

TEST_CASE("a reader never sees half a record while two threads write") {
  StepLog log;
  std::atomic<bool> stop{false};
  const auto write = [&](std::uint64_t first) {
    for (std::uint64_t n = first; !stop.load(std::memory_order_relaxed); n += 2) log.add(record(n));
  };
  std::thread a([&] { write(0); }), b([&] { write(1); });
  std::uint64_t lost = 0;
  for (int i = 0; i < 20; ++i) {
    for (const StepRecord& r : log.read(lost)) REQUIRE(same(r));
  }
  stop = true;
  a.join();
  b.join();
}

}  // namespace
}  // namespace tilewise::worker

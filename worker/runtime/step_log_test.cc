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
  CHECK(log.read({}).records.empty());
  CHECK(log.read({}).lost == 0);
  const std::uint64_t many = StepLog::kUsual + 1000;
  for (std::uint64_t n = 0; n < many; ++n) log.add(record(n));
  const auto [records, cut, lost, since] = log.read({});
  CHECK(lost == 1000);
  CHECK(since == 7001);
  CHECK(cut == 0);
  REQUIRE(records.size() == StepLog::kUsual);
  for (std::size_t i = 0; i < records.size(); ++i) {
    REQUIRE(records[i].op.value == 1001 + i);
    REQUIRE(same(records[i]));
  }
}

TEST_CASE("a range of the records, the newest of them, and what is gone of it") {
  StepLog log(1000);  // 1,024
  REQUIRE(log.capacity() == 1024);
  for (std::uint64_t n = 0; n < 2000; ++n) log.add(record(n));
  // The n-th lasts from 7 n to 7 n + 1.
  auto range = log.read({.from = 7 * 1500, .until = 7 * 1599});
  REQUIRE(range.records.size() == 100);
  CHECK(range.records.front() == record(1500));
  CHECK(range.records.back() == record(1599));
  CHECK(range.lost == 0);  // what is gone was before it
  CHECK(range.cut == 0);
  range = log.read({.from = 7 * 1500, .until = 7 * 1599, .most = 30});
  REQUIRE(range.records.size() == 30);
  CHECK(range.records.front() == record(1570));
  CHECK(range.cut == 70);
  range = log.read({.from = 7 * 500, .until = 7 * 1000});
  CHECK(range.lost == 2000 - 1024);
  CHECK(range.since == 7 * 976 + 1);
  CHECK(range.records.size() == 25);
  const auto one = log.read({.graph = record(1999).graph});
  REQUIRE(one.records.size() == 1);
  CHECK(one.records[0] == record(1999));
  CHECK(log.read({.from = 7 * 1998, .until = 7 * 1990}).records.empty());
  // Of long ago little is looked at; those few that were added late are found all the same.
  StepLog late;
  const auto at = [](TimeNs end) {
    StepRecord r = record(1);
    r.start_ns = r.end_ns = end;
    return r;
  };
  for (const TimeNs end : {10 * kSecond, 12 * kSecond, 11'500 * kMillisecond, 13 * kSecond})
    late.add(at(end));
  CHECK(late.read({.from = 11'800 * kMillisecond}).records.size() == 2);
  CHECK(late.read({.from = 11'400 * kMillisecond}).records.size() == 3);
}

TEST_CASE("a reader never sees half a record while two threads write") {
  StepLog log;
  std::atomic<bool> stop{false};
  const auto write = [&](std::uint64_t first) {
    for (std::uint64_t n = first; !stop.load(std::memory_order_relaxed); n += 2) log.add(record(n));
  };
  std::thread a([&] { write(0); }), b([&] { write(1); });
  for (int i = 0; i < 20; ++i) {
    for (const StepRecord& r : log.read({}).records) REQUIRE(same(r));
  }
  stop = true;
  a.join();
  b.join();
}

}  // namespace
}  // namespace tilewise::worker

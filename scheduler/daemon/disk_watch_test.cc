#include "disk_watch.h"

#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <vector>

namespace tilewise::scheduler {
namespace {

struct Heard {
  std::mutex mutex;
  std::vector<std::string> words;
  std::vector<std::string> so_far() {
    const std::lock_guard lock(mutex);
    return words;
  }
  DiskWatch::Late noting(const std::string& what) {
    return [this, what](const char* doing, TimeNs waited_ns) {
      const std::lock_guard lock(mutex);
      words.push_back(what + ": " + doing + (waited_ns >= 20 * kMillisecond ? "" : ", too early"));
    };
  }
  bool eventually(std::size_t count) {
    const TimeNs until = monotonic_now() + 20 * kSecond;
    while (so_far().size() < count && monotonic_now() < until)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return so_far().size() >= count;
  }
};
void a_while() { std::this_thread::sleep_for(std::chrono::milliseconds(60)); }

TEST_CASE("each wait that lasts is told of while it lasts, once when it is late and once at its limit") {
  Heard heard;
  DiskWatch watch({.warn_ns = 20 * kMillisecond, .limit_ns = 40 * kMillisecond}, heard.noting("late"),
                  heard.noting("over"));
  a_while();  // nothing is waited for
  CHECK(heard.so_far().empty());
  {
    const auto wait = watch.wait("read");
    REQUIRE(heard.eventually(2));
    a_while();
  }
  a_while();
  CHECK(heard.so_far() == std::vector<std::string>{"late: read", "over: read"});
  const auto wait = watch.wait("write");
  REQUIRE(heard.eventually(4));
  CHECK(heard.so_far().at(3) == "over: write");
}

TEST_CASE("waits that end are nothing, however many, and without a limit none is over") {
  Heard heard;
  {
    DiskWatch patient({.warn_ns = 3600 * kSecond, .limit_ns = 3600 * kSecond}, heard.noting("late"),
                      heard.noting("over"));
    for (int i = 0; i < 100'000; ++i) const auto wait = patient.wait("write");
    a_while();
  }
  CHECK(heard.so_far().empty());
  DiskWatch unbounded({.warn_ns = 20 * kMillisecond}, heard.noting("late"), heard.noting("over"));
  const auto wait = unbounded.wait("write");
  REQUIRE(heard.eventually(1));
  a_while();
  CHECK(heard.so_far() == std::vector<std::string>{"late: write"});
}

}  // namespace
}  // namespace tilewise::scheduler

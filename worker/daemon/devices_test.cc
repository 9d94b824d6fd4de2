#include "devices.h"

#include <doctest/doctest.h>

using namespace tilewise;
using worker::DeviceName;
using worker::parse_devices;

TEST_CASE("device lists") {
  const auto four = parse_devices("host:0-2,host:7", 0);
  REQUIRE(four.has_value());
  CHECK(four->size() == 4);
  CHECK(four->back() == DeviceName{device::Kind::kHost, 7});
  const auto gpus = parse_devices("cuda:all,host:0", 2);
  REQUIRE(gpus.has_value());
  CHECK(gpus->size() == 3);
  CHECK((*gpus)[1] == DeviceName{device::Kind::kCuda, 1});
}

TEST_CASE("host devices share 60 % of what can be had, and want to have a least") {
  const auto names = parse_devices("host:0-3", 0);
  REQUIRE(names.has_value());
  const auto devices =
      worker::make_devices(*names, {.cores = 1, .room = {std::int64_t{100} << 20, "the host"}});
  REQUIRE(devices.has_value());
  REQUIRE(devices->size() == 4);
  CHECK((*devices)[3]->info().memory_bytes == (std::int64_t{100} << 20) / 10 * 6 / 4);
  CHECK(worker::host_bytes(*devices) <= std::int64_t{60} << 20);
  const auto none =
      worker::make_devices(*names, {.cores = 1, .room = {std::int64_t{4} << 20, "/a/memory.max"}});
  REQUIRE(!none.has_value());
  CHECK(none.error().code == Errc::kOutOfMemory);
  CHECK(none.error().message.find("/a/memory.max") != std::string::npos);
  const auto given = worker::make_devices(
      *names, {.cores = 1, .memory_bytes = 2 << 20, .room = {std::int64_t{4} << 20, "/a/memory.max"}});
  REQUIRE(given.has_value());
  CHECK((*given)[0]->info().memory_bytes == 2 << 20);
}

TEST_CASE("mistakes in device lists are named") {
  for (const char* bad : {"", "host", "host:", "host:x", "host:3-1", "host:0-", "host:-1", "tpu:0",
                          "host:0,,host:1", "host:99999999999", "host:0-5000"}) {
    CAPTURE(bad);
    const auto result = parse_devices(bad, 0);
    CHECK(!result.has_value());
    if (!result) CHECK(result.error().code == Errc::kInvalidArgument);
  }
  CHECK(parse_devices("host:0,host:0-1", 0).error().code == Errc::kAlreadyExists);
  CHECK(parse_devices("cuda:1", 1).error().code == Errc::kNotFound);
  CHECK(parse_devices("cuda:all", 0).error().code == Errc::kNotFound);
}

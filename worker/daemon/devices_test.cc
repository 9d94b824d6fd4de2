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

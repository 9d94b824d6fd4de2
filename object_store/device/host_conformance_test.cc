#include "device_conformance.h"

using namespace tilewise;
using namespace tilewise::device;

TEST_CASE("host device") {
  device_conformance({.make =
                          [](std::int64_t memory_bytes) {
                            return make_host_device({.threads = 2, .memory_bytes = memory_bytes});
                          },
                      .runs_host_work = true});
}

TEST_CASE("host device that never polls") {
  device_conformance({.make =
                          [](std::int64_t memory_bytes) {
                            return make_host_device(
                                {.threads = 2, .memory_bytes = memory_bytes, .spin_ns = 0});
                          },
                      .runs_host_work = true});
}

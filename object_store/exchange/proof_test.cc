// What UCX says of memory is tried out at the start, and what it cannot do is told.
#include "exchange_test_util.h"

using namespace tilewise;
using namespace tilewise::exchange;
using namespace tilewise::exchange::test;

namespace {

// Reading another process' memory is no way to tell it of that, so no connection can be made: UCX says that it moves host memory,
// and does not.
Options that_cannot(bool strict) {
  Options options = options_of();
  options.ucx.transports = "cma";
  options.prove_ucx = true;
  options.strict_lanes = strict;
  return options;
}

}  // namespace

TEST_CASE("a UCX that does not reach its own process is told of and not used, or refused by who is strict") {
  auto loop = make_loop();
  std::optional<std::pair<Error, bool>> fault;
  Callbacks callbacks;
  callbacks.on_ucx_fault = [&](const Error& why, bool refused) { fault.emplace(why, refused); };
  auto made = Exchange::create(*loop, that_cannot(false), callbacks);
  REQUIRE(made);
  CHECK(!(*made)->takes(device::Kind::kHost));
  REQUIRE(loop->run_until([&] { return fault.has_value(); }, kPatience));
  CHECK(fault->first.code == Errc::kUnavailable);
  CHECK(fault->first.message.find("memory of kind host") != std::string::npos);
  CHECK(fault->second);

  auto refused = Exchange::create(*loop, that_cannot(true), {});
  REQUIRE(!refused);
  CHECK(refused.error().code == Errc::kLaneDenied);
}

TEST_CASE("a UCX that does is told of to nobody") {
  auto loop = make_loop();
  Options options = options_of();
  options.prove_ucx = true;
  options.strict_lanes = true;
  int faults = 0;
  Callbacks callbacks;
  callbacks.on_ucx_fault = [&](const Error&, bool) { ++faults; };
  auto made = Exchange::create(*loop, options, callbacks);
  REQUIRE(made);
  CHECK((*made)->takes(device::Kind::kHost));
  CHECK((*made)->ucx_counters().received == 2);  // there and back
  auto device = device::make_host_device({.memory_bytes = 1 << 20});
  (*made)->slab_added(DeviceId{100}, 0, device->add_slab(1 << 20).value());
  CHECK((*made)->ucx_counters().received == 2);  // once
  CHECK(!loop->run_until([&] { return faults > 0; }, 50 * kMillisecond));
}

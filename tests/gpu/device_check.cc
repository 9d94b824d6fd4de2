// The device conformance suite on CUDA, and what only CUDA devices have.
#include "device_conformance.h"

#include <tilewise/device/cuda.h>
#include <tilewise/device/cuda_pinned.h>

using namespace tilewise;
using namespace tilewise::device;

namespace {
std::unique_ptr<Device> make(std::int64_t memory_bytes) {
  auto made = make_cuda_device({.compute_streams = 2, .memory_bytes = memory_bytes});
  REQUIRE(made);
  return std::move(*made);
}
}  // namespace

TEST_CASE("CUDA device") { device_conformance({.make = make, .runs_host_work = false}); }

TEST_CASE("a device that is not there") {
  const auto made = make_cuda_device({.ordinal = 4711});
  REQUIRE_FALSE(made);
  CHECK(made.error().code == Errc::kNotFound);
}

TEST_CASE("copies between pinned, pageable and device memory, longer than the staging buffer") {
  const auto device = make(std::int64_t{64} << 20);
  constexpr std::size_t kCount = 5'000'003;  // int32; not a multiple of anything
  auto slab = device->add_slab(kCount * 4);
  auto pinned = PinnedBuffer::make(*device, kCount * 4);
  REQUIRE(slab);
  REQUIRE(pinned);
  const auto in = conformance::numbers(kCount, 11);
  std::vector<std::int32_t> out(kCount), host(kCount);
  Stream& stream = device->copy_stream();
  REQUIRE(stream.copy(slab->data, in.data(), kCount * 4));           // pageable -> device
  REQUIRE(stream.copy((*pinned)->data(), slab->data, kCount * 4));   // device -> pinned
  REQUIRE(stream.copy(host.data(), (*pinned)->data(), kCount * 4));  // pinned -> pageable
  REQUIRE(stream.copy(slab->data, (*pinned)->data(), kCount * 4));   // pinned -> device
  REQUIRE(stream.copy(out.data(), slab->data, kCount * 4));          // device -> pageable
  stream.record();
  device->synchronize();
  CHECK(host == in);
  CHECK(out == in);
  REQUIRE(pin_host_memory(*device, out.data(), kCount * 4));
  REQUIRE(stream.copy(out.data() + 1, slab->data, 4));
  stream.record();
  device->synchronize();
  CHECK(out[1] == in[0]);
  CHECK(unpin_host_memory(*device, out.data()));
}

TEST_CASE("more steps than the ring of events holds") {
  const auto device = make(std::int64_t{64} << 20);
  Stream& stream = device->compute_stream(0);
  std::uint64_t last = 0;
  for (int i = 0; i < 20'000; ++i) last = stream.record();
  CHECK(last == 20'000);
  CHECK(conformance::eventually([&] { return stream.completed() == last; }));
}

TEST_CASE("a wait for a step that is not recorded is refused") {
  const auto device = make(std::int64_t{64} << 20);
  const Status refused = device->compute_stream(0).wait(device->copy_stream(), 1);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == Errc::kInvalidArgument);
}

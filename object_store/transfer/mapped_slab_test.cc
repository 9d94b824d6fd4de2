#include "transfer_test_util.h"

#include <tilewise/transfer/mapped_slab.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

using namespace tilewise;
using transfer::MappedSlab;

namespace {
Errc import_code(int fd, std::int64_t bytes) {
  auto slab = MappedSlab::import(fd, bytes);
  return slab ? Errc::kOk : slab.error().code;
}
}  // namespace

TEST_CASE("a slab is read in place, and survives its owner") {
  MappedSlab mapped;
  {
    auto device = device::make_host_device({.memory_bytes = 1 << 20});
    auto slab = device->add_slab(100'000);
    REQUIRE(slab);
    auto import = MappedSlab::import(slab->memfd, slab->bytes);
    REQUIRE(import);
    mapped = std::move(*import);
    REQUIRE(mapped.bytes().size() == 100'000);
    CHECK(mapped.bytes()[99'999] == std::byte{0});
    std::memcpy(slab->data + 99'000, "now", 3);
    CHECK(std::memcmp(mapped.bytes().data() + 99'000, "now", 3) == 0);
    CHECK(mapped.bytes().data() != slab->data);
  }
  CHECK(std::memcmp(mapped.bytes().data() + 99'000, "now", 3) == 0);
}

TEST_CASE("announcements that do not fit what came are refused") {
  auto device = device::make_host_device({.memory_bytes = 1 << 20});
  auto slab = device->add_slab(8'192);
  REQUIRE(slab);
  CHECK(import_code(slab->memfd, 8'192) == Errc::kOk);
  CHECK(import_code(slab->memfd, 8'193) == Errc::kCorruptData);
  CHECK(import_code(slab->memfd, 4'096) == Errc::kCorruptData);
  for (std::int64_t bytes : {std::int64_t{0}, std::int64_t{-1}, INT64_MIN, INT64_MAX}) {
    CHECK(import_code(slab->memfd, bytes) == Errc::kOutOfRange);
  }
  CHECK(import_code(-1, 8'192) == Errc::kCorruptData);
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  CHECK(import_code(ends[0], 8'192) == Errc::kCorruptData);
  // Right size, but the owner could shrink it under our readers.
  const int loose = ::memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  REQUIRE(::ftruncate(loose, 8'192) == 0);
  CHECK(import_code(loose, 8'192) == Errc::kCorruptData);
  for (int fd : {ends[0], ends[1], loose}) ::close(fd);
}

// Two processes on one GPU: the child maps the parent's slab by its IPC handle, reads it, and writes its answer into it.
#include "device_conformance.h"  // prints errors

#include <spawn.h>
#include <sys/wait.h>
#include <tilewise/device/cuda_ipc.h>

#include <cstdio>
#include <numeric>

#include "gpu.h"

extern char** environ;

namespace tilewise::gpu {
namespace {

std::string program_path;

std::string to_hex(const std::string& bytes) {
  std::string text;
  char digits[3];
  for (const char c : bytes) {
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(c));
    text += digits;
  }
  return text;
}
std::string from_hex(const std::string& text) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2)
    bytes.push_back(static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16)));
  return bytes;
}

int spawn_child(const std::string& handle, std::int64_t bytes) {
  const std::string hex = to_hex(handle), size = std::to_string(bytes);
  const char* const arguments[] = {program_path.c_str(), "--ipc-child", hex.c_str(), size.c_str(), nullptr};
  pid_t child = 0;
  if (::posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, const_cast<char* const*>(arguments),
                    environ) != 0)
    return -1;
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

void set_program(const std::string& path) { program_path = path; }

// Every int64 x of the slab becomes x * 3 + 1. Exit code 0, or the number of the failed action.
int ipc_child(const std::string& handle, std::int64_t bytes) {
  auto device = device::make_cuda_device({.memory_bytes = 1 << 20});
  if (!device) return 2;
  device::CudaPeers peers(**device);
  const auto mapped = peers.open(7, from_hex(handle), bytes);
  if (!mapped) {
    std::fprintf(stderr, "ipc child: %s\n", mapped.error().message.c_str());
    return 3;
  }
  const auto again = peers.open(7, from_hex(handle), bytes);
  if (!again || *again != *mapped) return 4;
  std::vector<std::int64_t> values(static_cast<std::size_t>(bytes / 8));
  device::Stream& stream = (*device)->copy_stream();
  if (!stream.copy(values.data(), *mapped, static_cast<std::size_t>(bytes))) return 5;
  stream.record();
  (*device)->synchronize();
  for (std::int64_t& x : values) x = x * 3 + 1;
  if (!stream.copy(*mapped, values.data(), static_cast<std::size_t>(bytes))) return 6;
  stream.record();
  (*device)->synchronize();
  if (!(*device)->health()) return 7;
  return peers.close(7) ? 0 : 8;
}

TEST_CASE("cuda_ipc between two processes") {
  constexpr std::int64_t kCount = 1 << 20;
  auto device = device::make_cuda_device({.memory_bytes = kCount * 8});
  REQUIRE(device);
  auto slab = (*device)->add_slab(kCount * 8);
  REQUIRE(slab);
  REQUIRE_FALSE(slab->ipc_handle.empty());
  std::vector<std::int64_t> in(kCount), out(kCount);
  std::iota(in.begin(), in.end(), -5);
  device::Stream& stream = (*device)->copy_stream();
  REQUIRE(stream.copy(slab->data, in.data(), kCount * 8));
  stream.record();
  (*device)->synchronize();
  CHECK(spawn_child(slab->ipc_handle, kCount * 8) == 0);
  REQUIRE(stream.copy(out.data(), slab->data, kCount * 8));
  stream.record();
  (*device)->synchronize();
  bool good = true;
  for (std::size_t i = 0; i < kCount; ++i) good &= out[i] == in[i] * 3 + 1;
  CHECK(good);
  SUBCASE("a handle cannot be opened where it was made, nor one of the wrong size") {
    device::CudaPeers peers(**device);
    const auto own = peers.open(1, slab->ipc_handle, slab->bytes);
    REQUIRE_FALSE(own);
    CHECK(own.error().code == Errc::kDeviceError);
    CHECK(peers.open(1, "short", 8).error().code == Errc::kInvalidArgument);
    CHECK((*device)->health());
  }
}

}  // namespace tilewise::gpu

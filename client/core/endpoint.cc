#include <tilewise/client/endpoint.h>

#include <cstdlib>
#include <cstring>

namespace tilewise::client {

Result<std::shared_ptr<std::byte>> allocate_plain(std::int64_t bytes) {
  constexpr std::size_t kAlignment = 64;
  const std::size_t rounded = (static_cast<std::size_t>(bytes) + kAlignment) / kAlignment * kAlignment;
  auto* memory = static_cast<std::byte*>(bytes < 0 ? nullptr : std::aligned_alloc(kAlignment, rounded));
  if (memory == nullptr)
    return error(Errc::kOutOfMemory, "no memory for a buffer of " + std::to_string(bytes) + " bytes");
  std::memset(memory, 0, rounded);
  return std::shared_ptr<std::byte>(memory, [](std::byte* p) { std::free(p); });
}

Result<std::shared_ptr<std::byte>> Endpoint::allocate(std::int64_t bytes) { return allocate_plain(bytes); }

}  // namespace tilewise::client

#include <tilewise/courier/outstanding.h>

namespace tilewise::courier {

bool Outstanding::push(std::uint16_t type, std::span<const std::byte> bytes) {
  if (messages_.size() >= kMaxMessages || bytes.size() > kMaxBytes - bytes_) return false;
  messages_.push_back({type, std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())});
  bytes_ += bytes.size();
  return true;
}

bool Outstanding::acknowledge(std::uint64_t received) {
  if (received > sent()) return false;
  while (first_ < received) {
    bytes_ -= messages_.front().bytes.size();
    messages_.pop_front();
    ++first_;
  }
  return true;
}

}  // namespace tilewise::courier

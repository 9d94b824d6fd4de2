#include <tilewise/dashboard/log_ring.h>

#include <algorithm>

namespace tilewise::dashboard {

void LogRing::add(LogLine line) {
  if (line.fields.size() > kFields) line.fields.resize(kFields);
  if (line.event.size() > kFieldBytes) line.event.resize(kFieldBytes);
  for (auto& [key, value] : line.fields) {
    if (value.size() > kFieldBytes) value.resize(kFieldBytes);
  }
  auto shared = std::make_shared<LogLine>(std::move(line));
  std::shared_ptr<const LogLine> dropped;  // freed when nobody waits any more
  const std::lock_guard lock(mutex_);
  shared->number = ++last_;
  lines_.push_back(std::move(shared));
  if (lines_.size() > kLines) dropped = std::move(lines_.front()), lines_.pop_front();
}

std::vector<std::shared_ptr<const LogLine>> LogRing::after(std::uint64_t number) const {
  const std::lock_guard lock(mutex_);
  const auto from = std::upper_bound(lines_.begin(), lines_.end(), number,
                                     [](std::uint64_t n, const auto& line) { return n < line->number; });
  return {from, lines_.end()};
}

}  // namespace tilewise::dashboard

#include <tilewise/dashboard/log_ring.h>

#include <algorithm>

namespace tilewise::dashboard {

void LogRing::add(LogLine line) {
  if (line.fields.size() > kFields) line.fields.resize(kFields);
  if (line.event.size() > kFieldBytes) line.event.resize(kFieldBytes);
  for (auto& [key, value] : line.fields) {
    if (value.size() > kFieldBytes) value.resize(kFieldBytes);
  }
  const std::lock_guard lock(mutex_);
  line.number = ++last_;
  lines_.push_back(std::move(line));
  if (lines_.size() > kLines) lines_.pop_front();
}

std::vector<LogLine> LogRing::after(std::uint64_t number) const {
  const std::lock_guard lock(mutex_);
  const auto from = std::upper_bound(lines_.begin(), lines_.end(), number,
                                     [](std::uint64_t n, const LogLine& line) { return n < line.number; });
  return {from, lines_.end()};
}

}  // namespace tilewise::dashboard

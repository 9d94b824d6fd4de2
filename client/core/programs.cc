#include "programs.h"

#include <algorithm>

namespace tilewise::client {

std::uint32_t Programs::sent(std::uint64_t digest, std::uint64_t request, const std::vector<ir::Op>& ops) {
  if (std::find(once_.begin(), once_.end(), digest) == once_.end()) {
    once_.push_back(digest);
    if (once_.size() > kRemembered) once_.pop_front();
    return 0;
  }
  const auto oldest = std::min_element(places_.begin(), places_.end(),
                                       [](const Place& a, const Place& b) { return a.used < b.used; });
  // Of more programs in turn than there are places, some stay: replacing each before it comes again would help none.
  if (oldest->request != 0 && clock_ - oldest->used < kInUse) return 0;
  Result<msg::Program> program = msg::program_of(ops);
  if (!program) return 0;
  *oldest = {request, clock_, std::move(*program)};
  return static_cast<std::uint32_t>(oldest - places_.begin()) + 1;
}

void Programs::forget(std::uint64_t request) {
  for (Place& place : places_)
    if (place.request == request) place = {};
}

}  // namespace tilewise::client

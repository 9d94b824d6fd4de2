// What this machine cannot show.
#pragma once
#include <string>

namespace tilewise::testing {

// The case that runs, or the rest of it, is left out, and why. A program all of whose cases are is shown by ctest as skipped, not as
// passed. On the thread of the case.
void skipped(const std::string& why);

}  // namespace tilewise::testing

// What may not be left when all is over.
#pragma once
#include <vector>

#include "../integration/harness.h"
#include "settings.h"

namespace tilewise::testing {

// Counts as failures: live arrays, bytes in use in memory or on disk, mapped slabs of the dead, memory of its own beyond all measure, a
// cluster that does not end, processes. Ends the cluster.
void check_rest(Cluster& cluster, const std::vector<int>& members, Counts& counts);

}  // namespace tilewise::testing

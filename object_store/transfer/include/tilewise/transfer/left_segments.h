#pragma once

// Shared-memory segments of UCX that nobody holds any more.

#include <string>

namespace tilewise::transfer {

// UCX makes each of its segments as a file `ucx_shm_posix_*`, writes it full, and only then takes its name away: a process that is
// killed in that millisecond leaves the file, and its memory, for ever. Removes those of this user that no process has open or mapped,
// and says how many. A segment that another process is just making is open, so it stays; nothing is done where UCX was told to keep
// the names (`UCX_POSIX_USE_PROC_LINK`), for who has such a file open may be in another container. Never fails: what cannot be read or
// removed is left. Looks at all processes, but only where there is such a file. Thread safe.
int remove_left_segments(const std::string& folder = "/dev/shm");

}  // namespace tilewise::transfer

// A parent that starts the worker again when it dies.
#pragma once
#include <string>

namespace tilewise::worker {

// Runs this very program with the same arguments but `without`, as a child that cannot outlive us, until it ends with 0 (the
// cluster was shut down, or somebody asked it to end) or 2 (bad options). After any other end, a crash or a loss that it
// was told of, it is started again: at once, after repeated ends later and later, up to 5 s. SIGTERM and SIGINT are passed on,
// and then its end is ours. Returns the exit code. To be called before anything starts a thread.
int supervise(int argc, char** argv, const std::string& without);

}  // namespace tilewise::worker

// A parent that starts the worker again when it dies, and tells what it was doing.
#pragma once
#include <tilewise/msg/msg.h>

#include <functional>
#include <string>

namespace tilewise::worker {

// Runs this very program with the same arguments but `without`, as a child that cannot outlive us, until it ends with 0 (the
// cluster was shut down, or somebody asked it to end) or 2 (bad options). After any other end, a crash or a loss that it
// was told of, `tell` is called with what it was executing, if it had joined, and it is started again: at once, after
// repeated ends later and later, up to 5 s. SIGTERM and SIGINT are passed on, and then its end is ours. The child finds its
// black box (black_box.h) through `--black-box`. Returns the exit code. To be called before anything starts a thread.
int supervise(int argc, char** argv, const std::string& without,
              const std::function<void(const msg::LastWords&)>& tell);

}  // namespace tilewise::worker

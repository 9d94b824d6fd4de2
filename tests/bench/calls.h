// Ops of many tiny tasks, and when the first of them was called.
#pragma once
#include <tilewise/kernel.h>
#include <tilewise/tilewise.h>

#include <string>

#include "../temp_folder.h"

namespace tilewise::bench {

// `tasks` calls of a kernel, all reading one small array, one element out each.
Array calls(const Array& small, const Kernel& kernel, std::int64_t tasks);

// By the clock that all processes of a machine share: the kernel itself notes when it was first called (stamp_plugin.cc).
class FirstTask {
 public:
  explicit FirstTask(const Session& session);
  // Milliseconds from the client's call to the first of so many tasks. All are waited for, or what is left is cancelled.
  double after_ms(std::int64_t tasks, bool wait_for_all);

 private:
  const testing::TempFolder folder_;
  Array small_;
  int count_ = 0;
};

}  // namespace tilewise::bench

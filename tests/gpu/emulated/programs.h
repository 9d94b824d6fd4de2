// CUDA source to functions that the host can call: many programs in one C++ file, the system's compiler, dlopen.
#pragma once
#include <atomic>
#include <string>

#include "entry.h"

namespace tilewise::emulated {

// One source, whoever loads it. Lives as long as the process.
struct Program {
  std::string source;
  bool has_barriers = false;
  std::atomic<const EmulatedEntry*> entries{nullptr};  // ends with a null name; null: not compiled yet
};

// The program of a source; compiled when the first kernel of it is launched, together with all that are still waiting.
Program& program_of(const std::string& source);

// Is there a kernel of that name? Looked up in the text.
bool has_kernel(const Program& program, const std::string& name);

// Stops the process with the compiler's words if the source is not C++.
const EmulatedEntry& compiled(Program& program, const std::string& name);

}  // namespace tilewise::emulated

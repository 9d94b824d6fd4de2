// What processor this is, and which of its properties the last bits of a result depend on.
#pragma once
#include <string>

namespace tilewise::device {

std::string cpu_model();      // "AMD EPYC 9B45", or the architecture's name
std::string cpu_isa_level();  // "x86-64-v4", "aarch64"

}  // namespace tilewise::device

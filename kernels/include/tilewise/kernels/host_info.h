// What the last bits of host results depend on, for numeric classes and benchmark reports.
#pragma once
#include <string>

namespace tilewise::kernels {

// "avx3, openblas SkylakeX": the instruction set of the tape and reduction loops, and the core OpenBLAS computes for. The
// latter is chosen when the library is loaded; OPENBLAS_CORETYPE overrides it, so benchmarks clear that first.
std::string host_numeric_class();

// What an operator should change about the libraries that were loaded; empty if nothing.
std::string host_warning();

}  // namespace tilewise::kernels

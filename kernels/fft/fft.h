// Built-in kernel tilewise.fft (tilewise/ir/builtin.h), by FFTW. FFTW is under the GPL: where it is not found the kernel is not
// there, and a graph that wants it is refused with kNotFound.
#pragma once
#include <tilewise/kernels/plugin_abi.h>

namespace tilewise::kernels::fft {

int transform(const tilewise_call_v1* call);

namespace reference {  // the plain version: n additions a number
int transform(const tilewise_call_v1* call);
}  // namespace reference

}  // namespace tilewise::kernels::fft

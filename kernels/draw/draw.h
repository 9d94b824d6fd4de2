// Built-in kernels that draw random numbers which no fixed number of operations gives: tilewise/ir/builtin.h.
#pragma once
#include <tilewise/kernels/plugin_abi.h>

namespace tilewise::kernels::draw {

int gamma(const tilewise_call_v1* call);

namespace reference {  // the plain version
int gamma(const tilewise_call_v1* call);
}  // namespace reference

}  // namespace tilewise::kernels::draw

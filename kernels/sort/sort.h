// Built-in kernels that order lines: tilewise/ir/builtin.h says what each computes. In a block Highway's vectorised
// quicksort works on keys (sort/keys.h); across blocks sorted lines are merged in pairs.
#pragma once
#include <tilewise/kernels/plugin_abi.h>

namespace tilewise::kernels::sort {

int sort_block(const tilewise_call_v1* call);
int merge_split(const tilewise_call_v1* call);

namespace reference {  // the plain versions
int sort_block(const tilewise_call_v1* call);
int merge_split(const tilewise_call_v1* call);
}  // namespace reference

}  // namespace tilewise::kernels::sort

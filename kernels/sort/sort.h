// Built-in kernels that order lines: tilewise/ir/builtin.h says what each computes. In a block Highway's vectorised
// quicksort works on keys (sort/keys.h); across blocks sorted lines are dealt, split by rank, and
// the runs that come together are merged.
#pragma once
#include <tilewise/kernels/plugin_abi.h>

namespace tilewise::kernels::sort {

int sort_block(const tilewise_call_v1* call);
int deal_sorted(const tilewise_call_v1* call);
int split_runs(const tilewise_call_v1* call);
int merge_runs(const tilewise_call_v1* call);

namespace reference {  // the plain versions
int sort_block(const tilewise_call_v1* call);
int deal_sorted(const tilewise_call_v1* call);
int split_runs(const tilewise_call_v1* call);
int merge_runs(const tilewise_call_v1* call);
}  // namespace reference

}  // namespace tilewise::kernels::sort

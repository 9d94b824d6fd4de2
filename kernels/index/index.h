// Built-in kernels whose reads or results depend on data: tilewise/ir/builtin.h says what each computes.
#pragma once
#include <tilewise/kernels/plugin_abi.h>

namespace tilewise::kernels::index {

int take(const tilewise_call_v1* call);
int take_along_axis(const tilewise_call_v1* call);
int wrap_index(const tilewise_call_v1* call);
int put(const tilewise_call_v1* call);
int searchsorted(const tilewise_call_v1* call);
int count_true(const tilewise_call_v1* call);
int compress(const tilewise_call_v1* call);

// The same, element by element: what the others are compared with.
namespace reference {
int take(const tilewise_call_v1* call);
int take_along_axis(const tilewise_call_v1* call);
int wrap_index(const tilewise_call_v1* call);
int put(const tilewise_call_v1* call);
int searchsorted(const tilewise_call_v1* call);
int count_true(const tilewise_call_v1* call);
int compress(const tilewise_call_v1* call);
}  // namespace reference

}  // namespace tilewise::kernels::index

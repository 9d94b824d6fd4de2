#pragma once
#include <tilewise/kernels/kernels.h>

namespace tilewise::kernels::reduce {

Status reference_moments(const KernelCall& call);
Status reference_join(const KernelCall& call);

}  // namespace tilewise::kernels::reduce

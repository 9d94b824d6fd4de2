// How long a step takes by a plain model of one core, and which measured figure corrects it.
//
// The model has two constants, far from any machine's on purpose: only proportions matter. Whoever runs steps measures
// their time, divides by the model's, and keeps one ratio per device and *family*; whoever predicts multiplies by it.
#pragma once
#include <tilewise/ir/geometry.h>

#include <string>

namespace tilewise::ir {

// Ops whose steps take about the same time per operation and byte: the op's kind, for kCall its kernel too.
// "matmul", "call heat.windowed".
std::string family_of(const Op& op);

// Nanoseconds of one step of a task at this point: 300, and 1 per 20 flops, and 1 per 10 bytes read or written.
double model_step_ns(const Geometry& geometry, const Index& point);

}  // namespace tilewise::ir

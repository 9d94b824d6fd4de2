// Steps of built-in kernels, for suites that compare kernel sets.
#pragma once
#include <tilewise/ir/builtin.h>

#include "conformance/harness.h"

namespace tilewise::kernels::conformance {

inline ir::Grid whole_grid(const ir::Shape& shape) {
  std::vector<ir::DimGrid> dims;
  for (const std::int64_t n : shape) dims.push_back(ir::DimGrid::whole(n));
  return ir::Grid(std::move(dims));
}

// A call of a built-in kernel. What its operands are views of is left open, so that any layout may come.
inline Step kernel_step(std::string_view kernel, std::string params, const ir::Shape& space,
                        std::vector<Array> inputs, std::vector<Array> outputs) {
  Step step;
  step.op.kind = ir::OpKind::kCall;
  ir::CallAttrs attrs;
  attrs.kernel = kernel;
  attrs.params = std::move(params);
  step.op.attrs = std::move(attrs);
  step.op.space = whole_grid(space);
  for (const Array& a : inputs) step.op.operands.emplace_back().view.shape = a.shape;
  step.box = ir::box_of(space);
  step.space = space;
  for (const Array& a : inputs) step.input_boxes.push_back(ir::box_of(a.shape));
  for (const Array& a : outputs) step.op.outputs.push_back({.dtype = a.dtype, .grid = whole_grid(a.shape)});
  step.inputs = std::move(inputs);
  step.outputs = std::move(outputs);
  return step;
}

template <class P>
Step call_step(const P& params, const ir::Shape& space, std::vector<Array> inputs,
               std::vector<Array> outputs) {
  std::string bytes;
  if constexpr (!std::is_empty_v<P>) bytes = ir::builtin::bytes_of(params);
  return kernel_step(P::kName, std::move(bytes), space, std::move(inputs), std::move(outputs));
}

ir::DType any_dtype(Prng& prng);
ir::DType ordered_dtype(Prng& prng);  // neither 16-bit floats nor complex
// Any layout; `edges` as in fill_random.
Array filled(Prng& prng, ir::DType t, const ir::Shape& shape, bool edges = true);
// Few different values, so that many are equal.
Array with_ties(Prng& prng, ir::DType t, const ir::Shape& shape);
Array indices(Prng& prng, const ir::Shape& shape, std::int64_t extent);
// An output, of bytes that no kernel writes by chance.
Array result(ir::DType t, const ir::Shape& shape);
// Up to four dimensions, none of them empty.
ir::Shape some_shape(Prng& prng, std::int64_t most);
std::string text(const std::string& what, ir::DType t, const ir::Shape& shape, std::size_t axis);
// Runs the step with the subject and the reference; outputs must agree bit for bit.
void compare(const Subject& subject, Step& step, const std::string& what);

}  // namespace tilewise::kernels::conformance

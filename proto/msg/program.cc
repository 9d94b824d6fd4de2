#include <tilewise/msg/program.h>

#include <unordered_map>

namespace tilewise::msg {

SharedOps share(std::vector<ir::Op> ops) {
  return std::make_shared<const std::vector<ir::Op>>(std::move(ops));
}

std::size_t kept_bytes(const ir::Op& op) {
  std::size_t bytes = 1024 + op.operands.size() * 256 + op.outputs.size() * 512 + op.label.size() +
                      op.hint.devices.size() * sizeof(DeviceId);
  if (const ir::Tape* tape = ir::tape_of(op)) bytes += tape->code.size() * 64 + tape->outputs.size() * 2;
  if (const auto* copy = std::get_if<ir::CopyAttrs>(&op.attrs)) bytes += copy->maps.size() * 512;
  if (const auto* npy = std::get_if<ir::NpyAttrs>(&op.attrs)) bytes += npy->path.size();
  if (const auto* call = std::get_if<ir::CallAttrs>(&op.attrs)) {
    bytes += call->kernel.size() + call->version.size() + call->params.size() + call->maps.size() * 512;
    for (const ir::ExplicitMap& map : call->explicit_maps)
      bytes += 64 + map.blocks.size() * sizeof(std::int64_t) + map.offsets.size() * sizeof(std::uint32_t);
  }
  const auto cuts = [&](const ir::Grid& grid) {
    for (const ir::DimGrid& dim : grid.dims())
      if (!dim.is_uniform()) bytes += static_cast<std::size_t>(dim.count()) * sizeof(std::int64_t);
  };
  cuts(op.space);
  for (const ir::OutputSpec& output : op.outputs) cuts(output.grid);
  return bytes;
}

Result<Program> program_of(std::vector<ir::Op> ops) {
  if (ops.size() > kMaxKeptOps)
    return error(Errc::kLimitExceeded, "a program of " + std::to_string(ops.size()) +
                                           " ops is to be kept, the limit is " + std::to_string(kMaxKeptOps));
  Program program;
  std::size_t bytes = 0;
  std::uint64_t first = 0;
  std::unordered_map<std::uint64_t, std::uint64_t> inputs;  // looked up, never walked
  for (ir::Op& op : ops) {
    bytes += kept_bytes(op);
    for (ir::Operand& operand : op.operands) {
      std::uint64_t& name = operand.array;
      if (name >= kInputPlace) return error(Errc::kInvalidArgument, "a number of an array is 2^63 or more");
      if (program.outputs > 0 && name - first < program.outputs)
        name -= first;
      else
        name = kInputPlace + inputs.emplace(name, inputs.size()).first->second;
    }
    for (ir::OutputSpec& output : op.outputs) {
      if (program.outputs == 0) first = output.array;
      if (output.array >= kInputPlace || output.array - first != program.outputs)
        return error(Errc::kInvalidArgument, "output " + std::to_string(program.outputs) +
                                                 " of a program to be kept has the number " +
                                                 std::to_string(output.array) + ", not the next one from " +
                                                 std::to_string(first));
      output.array = program.outputs++;
    }
  }
  if (bytes > kMaxKeptBytes)
    return error(Errc::kLimitExceeded, "a program of " + std::to_string(bytes) +
                                           " bytes is to be kept, the limit is " +
                                           std::to_string(kMaxKeptBytes));
  program.inputs = inputs.size();
  program.ops = std::move(ops);
  ir::take_constants(program.ops);
  return program;
}

std::vector<ir::Op> ops_of(const Program& program, std::uint64_t first_output,
                           const std::vector<std::uint64_t>& inputs, const ir::Constants& constants) {
  std::vector<ir::Op> ops = program.ops;
  ir::put_constants(ops, constants);
  for (ir::Op& op : ops) {
    for (ir::Operand& operand : op.operands) {
      const std::uint64_t place = operand.array;
      operand.array = place < kInputPlace ? first_output + place : inputs[place - kInputPlace];
    }
    for (ir::OutputSpec& output : op.outputs) output.array += first_output;
  }
  return ops;
}

}  // namespace tilewise::msg

#include "map/straight.h"

#include "map/evaluator_memory.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace tilewise::kernels::map {
namespace {

using Kind = ProgramInstr::Kind;

}  // namespace

bool StraightTape::build(const Program& program, const Operand* operands, std::byte* blocks, std::byte* tiles,
                         std::int64_t tile_bytes) {
  struct Value {
    const void* data = nullptr;
    bool splat = false;
    std::int64_t moving = 0;  // element size of an operand that moves; 0: stays
  };
  boost::container::small_vector<Value, 64> values;
  boost::container::small_vector<std::uint16_t, 64> lane_of(program.code.size());
  for (const ProgramInstr& in : program.code) {
    std::byte* block = blocks + static_cast<std::int64_t>(values.size()) * kLaneBlock * program.width;
    const auto size = static_cast<std::int64_t>(ir::size_of(in.dtype));
    if (in.kind == Kind::kConst) {
      fill_constant(block, in.dtype, in.imm_f, in.imm_i, kLaneBlock);
      values.push_back({block, true});
    } else if (in.kind == Kind::kLoad && operands[in.source].repeated) {
      fill_same(block, operands[in.source].data, size, kLaneBlock);
      values.push_back({block, true});
    } else if (in.kind == Kind::kLoad) {
      values.push_back({operands[in.source].data, false, size});
    } else if (in.kind == Kind::kLane) {
      Lane lane;
      lane.fn = in.lane;
      lane.args.steps = program.steps_of(in);
      bool splat = true;
      for (int k = 0; k < in.arity; ++k) {
        const Value& value = values[in.args[k]];
        lane.args.in[k] = value.data;
        lane.args.splat[k] = value.splat;
        splat = splat && value.splat;
        if (value.moving > 0) {
          moving_.push_back({static_cast<std::uint16_t>(lanes_.size()), static_cast<std::uint8_t>(k),
                             static_cast<const std::byte*>(value.data), value.moving});
        }
      }
      lane_of[values.size()] = static_cast<std::uint16_t>(lanes_.size());
      lane.args.out = splat ? block : tiles + in.slot * tile_bytes;
      values.push_back({lane.args.out, splat});
      if (splat) {
        lane.args.n = kLaneBlock;
        lane.fn(lane.args);
      } else {
        lanes_.push_back(lane);
      }
    } else {
      return false;
    }
  }
  for (std::size_t r = 0; r < program.results.size(); ++r) {
    const std::uint16_t at = program.results[r];
    if (program.code[at].kind != Kind::kLane || values[at].splat) return false;
    results_.push_back(
        {lane_of[at], static_cast<std::int64_t>(ir::size_of(program.result(r))), values[at].data});
    for (std::size_t i = at + 1u; i < program.code.size(); ++i)
      for (int k = 0; k < program.code[i].arity; ++k)
        if (program.code[i].args[k] == at)
          readers_.push_back({lane_of[i], static_cast<std::uint8_t>(k), static_cast<std::uint8_t>(r)});
  }
  return true;
}

bool StraightTape::store_past_caches(std::size_t result) {
  const auto reads = [&](const Reader& reader) { return reader.result == result; };
  if (std::any_of(readers_.begin(), readers_.end(), reads)) return false;
  LaneArgs& args = lanes_[results_[result].lane].args;
  args.past_caches = !args.steps.empty() && results_[result].size > 1;  // chains of floats do that themselves
  results_[result].past_caches = results_[result].staged = !args.past_caches;
  return true;
}

void StraightTape::sweep(std::int64_t begin, std::int64_t n, std::int64_t tile,
                         std::span<std::byte* const> outs) {
  for (const Moving& moving : moving_) {
    lanes_[moving.lane].args.in[moving.arg] = moving.data + begin * moving.size;
  }
  std::array<std::byte*, limits::kMaxOutputs> at{};
  std::copy(outs.begin(), outs.end(), at.begin());
  const bool staged = std::any_of(results_.begin(), results_.end(), [](const Result& r) { return r.staged; });
  if (lanes_.size() == 1 && !staged) tile = n;  // nothing lies between loops
  while (n > 0) {
    const std::int64_t count = std::min(tile, n);
    for (std::size_t r = 0; r < results_.size(); ++r)
      if (!results_[r].staged) lanes_[results_[r].lane].args.out = at[r];
    for (const Reader& reader : readers_)
      if (!results_[reader.result].staged) lanes_[reader.lane].args.in[reader.arg] = at[reader.result];
    for (Lane& lane : lanes_) {
      lane.args.n = count;
      lane.fn(lane.args);
    }
    for (const Moving& moving : moving_) {
      const void*& in = lanes_[moving.lane].args.in[moving.arg];
      in = static_cast<const std::byte*>(in) + count * moving.size;
    }
    for (std::size_t r = 0; r < results_.size(); ++r) {
      const std::int64_t bytes = count * results_[r].size;
      if (results_[r].past_caches)
        stream_copy(at[r], results_[r].slot, static_cast<std::size_t>(bytes));
      else if (results_[r].staged)
        std::memcpy(at[r], results_[r].slot, static_cast<std::size_t>(bytes));
      at[r] += bytes;
    }
    n -= count;
  }
}

}  // namespace tilewise::kernels::map

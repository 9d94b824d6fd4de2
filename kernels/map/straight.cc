#include "map/straight.h"

#include "map/evaluator_memory.h"

namespace tilewise::kernels::map {
namespace {

using Kind = ProgramInstr::Kind;
constexpr std::int64_t kSplatBytes = kLaneBlock * 8;

}  // namespace

bool StraightTape::build(const Program& program, const Operand* operands, std::byte* blocks, std::byte* tiles,
                         std::int64_t tile_bytes) {
  struct Value {
    const void* data = nullptr;
    bool splat = false;
    std::int8_t stream = -1;
  };
  boost::container::static_vector<Value, Program::kMaxCode> values;
  for (const ProgramInstr& in : program.code) {
    std::byte* block = blocks + static_cast<std::int64_t>(values.size()) * kSplatBytes;
    const auto size = static_cast<std::int64_t>(ir::size_of(in.dtype));
    if (in.kind == Kind::kConst) {
      fill_constant(block, in.dtype, in.imm_f, in.imm_i, kLaneBlock);
      values.push_back({block, true});
    } else if (in.kind == Kind::kLoad && operands[in.source].repeated) {
      fill_same(block, operands[in.source].data, size, kLaneBlock);
      values.push_back({block, true});
    } else if (in.kind == Kind::kLoad && streams_.size() < streams_.capacity()) {
      streams_.push_back({operands[in.source].data, size});
      values.push_back({nullptr, false, static_cast<std::int8_t>(streams_.size() - 1)});
    } else if (in.kind == Kind::kLane) {
      Lane lane;
      lane.fn = in.lane;
      bool splat = true;
      for (int k = 0; k < in.arity; ++k) {
        const Value& value = values[in.args[k]];
        lane.args.in[k] = value.data;
        lane.args.splat[k] = value.splat;
        lane.moving[k] = value.stream;
        splat = splat && value.splat;
      }
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
  if (program.code.back().kind != Kind::kLane || values.back().splat) return false;
  slot_ = lanes_.back().args.out;
  return true;
}

const void* StraightTape::eval(std::int64_t begin, std::int64_t n, void* out) {
  void* to = out != nullptr ? out : slot_;
  lanes_.back().args.out = to;
  for (Lane& lane : lanes_) {
    for (int k = 0; k < 3; ++k) {
      if (lane.moving[k] < 0) continue;
      const Stream& stream = streams_[static_cast<std::size_t>(lane.moving[k])];
      lane.args.in[k] = stream.data + begin * stream.size;
    }
    lane.args.n = n;
    lane.fn(lane.args);
  }
  return to;
}

}  // namespace tilewise::kernels::map

#include "map/evaluator.h"

#include "common/caches.h"
#include "move/transpose.h"

#include <algorithm>
#include <cstring>

namespace tilewise::kernels::map {
namespace {

using Kind = ProgramInstr::Kind;
constexpr std::int64_t kMinRow = 256;  // shorter rows are gathered into full tiles
constexpr std::int64_t kMaxStripRun = 8192,
                       kMaxStripBytes = 256 << 10;  // strips stay within the second-level cache

// Short, so that a processor computes one tile while it still waits for the memory of another (measured on Zen 4 with five
// loops of int64: 512 elements take up to 1.7 times the time of 128 where memory is slow, 64 up to 1.3 times in cache). A tape
// of one instruction gains by long ones.
constexpr std::int64_t kTile = 128, kLongTile = 1024;

}  // namespace

Result<TileEvaluator> TileEvaluator::make(const Program& program, std::span<const TensorView> inputs,
                                          const ir::Box& box, const ir::Shape& space_shape) {
  TileEvaluator out(program);
  TW_TRY(out.bind(inputs, box, space_shape));
  out.allocate();
  return out;
}

Status TileEvaluator::bind(std::span<const TensorView> inputs, const ir::Box& box,
                           const ir::Shape& space_shape) {
  const ir::Shape shape = box.shape();
  const ir::Strides counters = ir::c_order_strides(space_shape);
  for (const ProgramInstr& in : program_->code) {
    Source source;
    if (in.kind == Kind::kLoad) {
      if (in.imm_i < 0 || in.imm_i >= static_cast<std::int64_t>(inputs.size())) {
        return error(Errc::kInvalidArgument, "a tape loads operand " + std::to_string(in.imm_i));
      }
      const TensorView& view = inputs[static_cast<std::size_t>(in.imm_i)];
      if (view.shape != shape || view.dtype != in.dtype) {
        return error(Errc::kShapeMismatch,
                     "operand " + std::to_string(in.imm_i) + " is " + std::string(ir::name_of(view.dtype)) +
                         ir::to_string(view.shape) + ", its task " + ir::to_string(box));
      }
      if (view.data == nullptr && box.volume() > 0)
        return error(Errc::kInternal, "an operand of a map has no memory");
      source.where = collapse(view.shape, view.strides);
      source.data = static_cast<const std::byte*>(view.data);
      source.size = static_cast<std::int64_t>(ir::size_of(in.dtype));
    } else if (in.kind == Kind::kIota) {
      ir::Strides along;
      along.resize(shape.size(), 0);
      along[static_cast<std::size_t>(in.imm_i)] = 1;
      source.where = collapse(shape, along);
      source.first = box.lo[static_cast<std::size_t>(in.imm_i)];
    } else if (in.kind == Kind::kRandom || in.kind == Kind::kRandomBelow) {
      source.where = collapse(shape, counters);
      source.first = ir::ravel(box.lo, space_shape);
    } else {
      continue;
    }
    sources_.push_back(source);
  }
  return {};
}

void TileEvaluator::allocate() {
  const Program& program = *program_;
  std::size_t loops = 0;
  for (const ProgramInstr& in : program.code)
    if (in.kind == Kind::kLane) loops += in.step_count > 0 ? in.step_count : 1;
  tile_ = loops > 1 ? kTile : kLongTile;
  row_ = 0;
  for (const Source& source : sources_) {
    if (source.where.is_flat() || source.where.run() < kMinRow) continue;
    row_ = row_ == 0 ? source.where.run() : std::min(row_, source.where.run());
  }
  in_place_ = program.is_one_load() && sources_[0].in_order();
  const auto constants = static_cast<std::int64_t>(program.code.size());
  const std::int64_t splats = constants * kLaneBlock * program.width;
  std::int64_t bytes = splats + program.slots * tile_ * program.width;
  for (Source& source : sources_) {
    plan_strips(source);
    bytes += source.strip_bytes();
  }
  memory_ = TileMemory(static_cast<std::size_t>(bytes));
  values_.resize(program.code.size());
  tiles_ = memory_.get() + splats;
  std::byte* strip = tiles_ + program.slots * tile_ * program.width;
  for (Source& source : sources_) {
    source.strip = strip;
    strip += source.strip_bytes();
  }
  if (build_straight()) return;
  for (const ProgramInstr& in : program.code) {
    if (in.kind != Kind::kConst) continue;
    fill_constant(block(in), in.dtype, in.imm_f, in.imm_i, kLaneBlock);
    values_[static_cast<std::size_t>(&in - program.code.data())] = {block(in), true};
  }
}

bool TileEvaluator::build_straight() {
  boost::container::static_vector<StraightTape::Operand, limits::kMaxTapeInstructions> operands;
  for (const Source& source : sources_) {
    const bool repeated = source.where.is_flat() && source.where.stride() == 0;
    if (source.data == nullptr || !(repeated || source.in_order())) return false;
    operands.push_back({source.data, repeated});
  }
  is_straight_ = straight_.build(*program_, operands.data(), memory_.get(), tiles_, tile_ * program_->width);
  return is_straight_;
}

std::int64_t TileEvaluator::tile_at(std::int64_t begin, std::int64_t end) const {
  std::int64_t n = std::min(tile_, end - begin);
  if (row_ == 0) return n;
  const std::int64_t left = row_ - begin % row_;  // of this row
  if (left <= tile_) return std::min(n, left);
  // Even pieces of a row rather than a full tile and a crumb.
  const std::int64_t pieces = (row_ + tile_ - 1) / tile_;
  const std::int64_t piece = ((row_ + pieces - 1) / pieces + kLaneBlock - 1) / kLaneBlock * kLaneBlock;
  return std::min({n, left, piece});
}

// Whether neighbours along the next outer dimension lie closer together than those along a row: then as many rows as
// share a cache line, or some lines, are worth reading at once.
void TileEvaluator::plan_strips(Source& source) {
  const Collapsed& where = source.where;
  if (source.data == nullptr || where.is_flat()) return;
  const std::int64_t across = std::abs(where.strides[where.strides.size() - 2]);
  const bool crosswise = std::abs(where.stride()) > 1 && across != 0 && across < std::abs(where.stride());
  if (!crosswise || where.run() < kLaneBlock || where.run() > kMaxStripRun) return;
  const std::int64_t line = 64 / source.size;
  const std::int64_t lines =
      std::clamp<std::int64_t>(kMaxStripBytes / (line * source.pitch() * source.size), 1, 64 / line);
  source.strip_rows = std::min(lines * line, where.shape[where.shape.size() - 2]);
}

const std::byte* TileEvaluator::strip_row(Source& source, std::int64_t row) {
  const std::size_t outer = source.where.shape.size() - 2;
  const std::int64_t extent = source.where.shape[outer], within = row % extent % source.strip_rows;
  const std::int64_t first = row - within;
  if (first != source.strip_at) {
    source.strip_at = first;
    const std::int64_t rows = std::min(source.strip_rows, extent - first % extent);
    for_runs(source.where, first * source.where.run(), 1, [&](std::int64_t offset, std::int64_t) {
      const std::byte* from = source.data + offset * source.size;
      const std::int64_t across = source.where.strides[outer], along = source.where.stride();
      if (across == 1)
        return move::find_transpose(static_cast<std::size_t>(source.size))(source.strip, source.pitch(), from,
                                                                           along, rows, source.where.run());
      for (std::int64_t r = 0; r < rows; ++r)
        gather(source.strip + r * source.pitch() * source.size, from + r * across * source.size, source.size,
               along, source.where.run());
    });
  }
  return source.strip + within * source.pitch() * source.size;
}

TileEvaluator::Value TileEvaluator::load_strips(const ProgramInstr& in, std::int64_t begin, std::int64_t n) {
  Source& source = sources_[in.source];
  const std::int64_t run = source.where.run();
  for (std::int64_t done = 0; done < n;) {
    const std::int64_t at = begin + done, count = std::min(n - done, run - at % run);
    const std::byte* from = strip_row(source, at / run) + at % run * source.size;
    if (count == n) return {from, false};
    std::memcpy(slot(in) + done * source.size, from, static_cast<std::size_t>(count * source.size));
    done += count;
  }
  return {slot(in), false};
}

TileEvaluator::Value TileEvaluator::load(const ProgramInstr& in, std::int64_t begin, std::int64_t n) {
  const Source& source = sources_[in.source];
  if (source.strip_rows > 0) return load_strips(in, begin, n);
  const auto size = static_cast<std::int64_t>(ir::size_of(in.dtype));
  if (source.in_order()) return {source.data + begin * size, false};
  std::byte* out = slot(in);
  const std::int64_t stride = source.where.stride();
  Value value{out, false};
  std::int64_t done = 0;
  for_runs(source.where, begin, n, [&](std::int64_t offset, std::int64_t count) {
    const std::byte* from = source.data + offset * size;
    if (count == n && stride == 1) {
      value.data = from;
    } else if (count == n && stride == 0) {
      fill_same(block(in), from, size, kLaneBlock);
      value = {block(in), true};
    } else {
      gather(out + done * size, from, size, stride, count);
    }
    done += count;
  });
  return value;
}

TileEvaluator::Value TileEvaluator::iota(const ProgramInstr& in, std::int64_t begin, std::int64_t n) const {
  const Source& source = sources_[in.source];
  const std::int64_t stride = source.where.stride();
  Value value{slot(in), false};
  std::int64_t done = 0;
  for_runs(source.where, begin, n, [&](std::int64_t offset, std::int64_t count) {
    if (count == n && stride == 0) value = {block(in), true};
    auto* out = reinterpret_cast<std::int64_t*>(value.splat ? block(in) : slot(in)) + done;
    const std::int64_t first = source.first + offset, length = value.splat ? kLaneBlock : count;
    for (std::int64_t j = 0; j < length; ++j) out[j] = first + j * stride;
    done += count;
  });
  return value;
}

TileEvaluator::Value TileEvaluator::random(const ProgramInstr& in, std::int64_t begin, std::int64_t n) const {
  const Source& source = sources_[in.source];
  std::byte* out = slot(in);
  const auto size = static_cast<std::int64_t>(ir::size_of(in.dtype));
  const auto key = static_cast<std::uint64_t>(in.imm_i);
  const std::int64_t stride = source.where.stride();
  for_runs(source.where, begin, n, [&](std::int64_t offset, std::int64_t count) {
    const auto first = static_cast<std::uint64_t>(source.first + offset);
    if (stride == 1 || count == 1) {
      in.random(key, first, count, out);
    } else {
      for (std::int64_t j = 0; j < count; ++j) {
        in.random(key, first + static_cast<std::uint64_t>(j * stride), 1, out + j * size);
      }
    }
    out += count * size;
  });
  return {slot(in), false};
}

TileEvaluator::Value TileEvaluator::random_below(const ProgramInstr& in, Value bound, std::int64_t begin,
                                                 std::int64_t n) const {
  // The bound may share the slot that the draws are about to fill.
  alignas(64) std::int64_t limits[1024];
  const auto* a = static_cast<const std::int64_t*>(bound.data);
  for (std::int64_t j = 0; j < n; ++j) limits[j] = a[bound.splat ? 0 : j];
  const Value draws = random(in, begin, n);
  auto* out = reinterpret_cast<std::int64_t*>(slot(in));
  for (std::int64_t j = 0; j < n; ++j) {
    const auto draw = static_cast<unsigned __int128>(static_cast<std::uint64_t>(out[j]));
    const std::int64_t limit = limits[j] > 0 ? limits[j] : 0;
    out[j] = static_cast<std::int64_t>((draw * static_cast<std::uint64_t>(limit)) >> 64);
  }
  return draws;
}

TileEvaluator::Value TileEvaluator::lane(const ProgramInstr& in, std::int64_t n, void* out) const {
  LaneArgs args;
  bool splat = true;
  for (int k = 0; k < in.arity; ++k) {
    const Value& value = values_[in.args[k]];
    args.in[k] = value.data;
    args.splat[k] = value.splat;
    splat = splat && value.splat;
  }
  // Splats have blocks of their own: in a slot that the result takes over they would not survive its first elements.
  args.out = splat ? block(in) : (out != nullptr ? out : slot(in));
  args.n = splat ? kLaneBlock : n;
  args.steps = program_->steps_of(in);
  in.lane(args);
  return {args.out, splat};
}

void TileEvaluator::eval_tile(std::int64_t begin, std::int64_t n, const Outs& outs) {
  const auto& results = program_->results;
  const auto target = [&](std::size_t i) -> std::byte* {
    for (std::size_t r = 0; r < results.size(); ++r)
      if (results[r] == i) return staged_[r] ? nullptr : outs[r];
    return nullptr;
  };
  for (std::size_t i = 0; i < program_->code.size(); ++i) {
    const ProgramInstr& in = program_->code[i];
    switch (in.kind) {
      case Kind::kLoad: values_[i] = load(in, begin, n); break;
      case Kind::kConst: break;
      case Kind::kIota: values_[i] = iota(in, begin, n); break;
      case Kind::kRandom: values_[i] = random(in, begin, n); break;
      case Kind::kRandomBelow: values_[i] = random_below(in, values_[in.args[0]], begin, n); break;
      case Kind::kLane: values_[i] = lane(in, n, target(i)); break;
    }
  }
  for (std::size_t r = 0; r < results.size(); ++r) {
    const Value& result = values_[results[r]];
    const auto size = static_cast<std::int64_t>(ir::size_of(program_->result(r)));
    if (result.splat)
      fill_same(outs[r], result.data, size, n);
    else if (result.data != outs[r])
      std::memcpy(outs[r], result.data, static_cast<std::size_t>(n * size));
  }
}

void TileEvaluator::sweep(std::int64_t begin, std::int64_t n, Outs outs) {
  if (is_straight_) {
    straight_.sweep(begin, n, tile_, {outs.data(), program_->results.size()});
    return;
  }
  for (const std::int64_t end = begin + n; begin < end;) {
    const std::int64_t tile = tile_at(begin, end);
    eval_tile(begin, tile, outs);
    begin += tile;
    for (std::size_t r = 0; r < program_->results.size(); ++r)
      outs[r] += tile * static_cast<std::int64_t>(ir::size_of(program_->result(r)));
  }
}

bool TileEvaluator::overtakes(std::size_t result, std::int64_t total, const std::byte* out) const {
  const std::byte* const end = out + total * static_cast<std::int64_t>(ir::size_of(program_->result(result)));
  const auto loads_it = [&](const ProgramInstr& in) {
    return in.kind == Kind::kLoad && sources_[in.source].data >= out && sources_[in.source].data < end;
  };
  for (std::size_t i = program_->results[result] + 1u; i < program_->code.size(); ++i) {
    const ProgramInstr& in = program_->code[i];
    for (int k = 0; k < in.arity; ++k)
      if (loads_it(program_->code[in.args[k]])) return true;
  }
  return false;
}

int TileEvaluator::eval_all(std::int64_t total, std::span<std::byte* const> outs, bool past_caches) {
  Outs at{};
  for (std::size_t r = 0; r < outs.size(); ++r) {
    at[r] = outs[r];
    staged_[r] = overtakes(r, total, outs[r]);
    if (staged_[r] && is_straight_) straight_.stage(r);
  }
  const int past = past_caches && is_straight_ && can_stream() ? store_past_caches(outs) : 0;
  sweep(0, total, at);
  if (past > 0) stream_end();
  return past;
}

// What a task reads passes through the caches too: with more than this, the first of its results are gone before the last
// are there, and memory is better written without being read first.
bool TileEvaluator::outgrows_caches(std::int64_t total) const {
  std::int64_t bytes = 0;  // an element
  for (const Source& source : sources_)
    if (source.in_order()) bytes += source.size;
  for (std::size_t r = 0; r < program_->results.size(); ++r)
    bytes += static_cast<std::int64_t>(ir::size_of(program_->result(r)));
  return bytes * total > last_cache_bytes() / 2;
}

int TileEvaluator::store_past_caches(std::span<std::byte* const> outs) {
  int count = 0;
  for (std::size_t r = 0; r < outs.size(); ++r) {
    const auto is_operand = [&](const Source& source) {
      return source.data == outs[r];
    };  // its lines are at hand
    if (staged_[r] || reinterpret_cast<std::uintptr_t>(outs[r]) % kStreamed != 0 ||
        std::any_of(sources_.begin(), sources_.end(), is_operand))
      continue;
    if (straight_.store_past_caches(r)) ++count;
  }
  return count;
}

const void* TileEvaluator::eval(std::int64_t begin, std::int64_t n, void* buffer) {
  const auto size = static_cast<std::int64_t>(ir::size_of(program_->result()));
  if (in_place_) return sources_[0].data + begin * size;
  sweep(begin, n, {static_cast<std::byte*>(buffer)});
  return buffer;
}

}  // namespace tilewise::kernels::map

// Sorting, merging and searching lines. As kernels/sort and kernels/index/search.cc, which say more.
#include <tilewise/ir/builtin.h>

#include <algorithm>
#include <optional>

#include "call.h"

namespace tilewise::cuda {
namespace {

constexpr std::int64_t kSortTile = 8 * kThreads;  // elements that a thread block sorts or merges

// As device/order.cuh.
struct SearchParams {
  Walk walk;
  Place place[2];
  std::int64_t sorted = 0, stride = 0, length = 0;
  std::int32_t right = 0, add = 0;
};
struct Lines {
  Place value, number;
  std::int64_t value_stride = 0, number_stride = 0, first = 0;
};
struct SortParams {
  Walk lines;
  Lines in, out;
  std::int64_t length = 0, run = 0, from = 0, kept = 0, tiles = 0, pairs = 1;
  std::int32_t descending = 0, unused = 0;
};
struct DealParams {
  Walk lines;
  Lines in, out;
  std::int64_t length = 0, all = 0, columns = 0, card = 0, tiles = 0;
  std::int32_t descending = 0, unused = 0;
};
struct SplitParams {
  Walk lines;
  Lines in, out;
  std::int64_t runs = 0, length = 0, lo = 0, width = 0, places = 0, tiles = 0;
  std::int32_t descending = 0, unused = 0;
};

std::int64_t tiles_of(std::int64_t count) { return (count + kSortTile - 1) / kSortTile; }
std::int64_t align(std::int64_t bytes) { return (bytes + 255) / 256 * 256; }
// One array of `count` elements, with numbers or without.
std::int64_t buffer_bytes(std::int64_t count, ir::DType dtype, bool numbered) {
  return align(count * static_cast<std::int64_t>(ir::size_of(dtype))) + (numbered ? align(count * 8) : 0);
}

// Arrays of lines along one axis, of which all walks are merged together.
class LineSet {
 public:
  LineSet(ir::Shape shape, std::size_t axis) : shape_(std::move(shape)), axis_(axis) { shape_[axis] = 1; }

  // `number`: may be null.
  std::size_t add(const Strided& value, const Strided* number, std::int64_t first = 0) {
    strided_.push_back(value);
    strided_.push_back(number != nullptr ? *number : Strided{0, ir::Strides(shape_.size(), 0)});
    firsts_.push_back(first);
    return firsts_.size() - 1;
  }
  Walk merge_walks() { return merge(shape_, strided_, places_); }
  Lines operator[](std::size_t i) const {
    return {places_[2 * i], places_[2 * i + 1], strided_[2 * i].strides[axis_],
            strided_[2 * i + 1].strides[axis_], firsts_[i]};
  }

 private:
  static constexpr std::size_t kMost = 4;
  ir::Shape shape_;
  std::size_t axis_;
  boost::container::static_vector<Strided, 2 * kMost> strided_;
  boost::container::static_vector<std::int64_t, kMost> firsts_;
  Place places_[2 * kMost];
};

Strided own(const TensorView& view) { return {address(view.data), view.strides}; }

// Lines of `length` one behind the other.
Strided lines_at(const std::byte* data, ir::Shape shape, std::size_t axis) {
  const std::int64_t length = shape[axis];
  shape[axis] = 1;
  Strided lines = contiguous(data, shape);
  for (std::int64_t& stride : lines.strides) stride *= length;
  lines.strides[axis] = 1;
  return lines;
}

// Scratch memory as lines of values, and of their numbers.
struct Buffer {
  Strided values, numbers;

  Buffer(const std::byte* at, const ir::Shape& shape, std::size_t axis, ir::DType dtype)
      : values(lines_at(at, shape, axis)),
        numbers(lines_at(at + align(ir::volume(shape) * static_cast<std::int64_t>(ir::size_of(dtype))), shape,
                         axis)) {}
};

// Sorts or merges lines in passes, each from one place to another.
class Passes {
 public:
  Passes(const Environment& env, const Program& program, LineSet& set, std::int64_t length, bool descending,
         CUstream stream)
      : env_(env), program_(program), set_(set), stream_(stream) {
    params_.lines = set.merge_walks();
    params_.length = params_.kept = length;
    params_.descending = descending;
  }

  // How many merges make one run of a line that consists of runs of `run`; none where it is one already.
  static int merges(std::int64_t length, std::int64_t run) {
    int count = 0;
    for (; run < length; run *= 2) ++count;
    return count;
  }
  Status sort_tiles(std::size_t from, std::size_t to, std::int64_t kept) {
    params_.kept = kept;
    params_.tiles = tiles_of(kept);
    return launch(1, from, to, params_.lines.count * params_.tiles);
  }
  // Of one pair only the ranks [skip, skip + kept).
  Status merge(std::size_t from, std::size_t to, std::int64_t run, std::int64_t skip, std::int64_t kept) {
    params_.run = run;
    params_.from = skip;
    params_.kept = kept;
    params_.pairs = (params_.length + 2 * run - 1) / (2 * run);
    params_.tiles = tiles_of(params_.pairs == 1 ? kept : 2 * run);
    return launch(2, from, to, params_.lines.count * params_.pairs * params_.tiles);
  }

 private:
  Status launch(int entry, std::size_t from, std::size_t to, std::int64_t blocks) {
    params_.in = set_[from];
    params_.out = set_[to];
    return launch_kernel(env_, program_.entry[entry], blocks, 1, &params_, stream_);
  }

  const Environment& env_;
  const Program& program_;
  const LineSet& set_;
  CUstream stream_;
  SortParams params_;
};

Status numbers_fit(const KernelCall& call) {
  const ir::Shape &x = call.inputs[0].shape, &out = call.outputs[0].shape;
  const bool good =
      (call.inputs.size() < 2 || (call.inputs[1].dtype == ir::DType::kInt64 && call.inputs[1].shape == x)) &&
      (call.outputs.size() < 2 ||
       (call.outputs[1].dtype == ir::DType::kInt64 && call.outputs[1].shape == out));
  return good ? Status{} : refuse(call, "numbers are int64, one an element");
}

// x's lines along `axis`, with listed numbers or their positions where there are any.
std::size_t add_operand(LineSet& set, const KernelCall& call, std::size_t axis) {
  const Strided in = own(call.inputs[0]), listed = call.inputs.size() > 1 ? own(call.inputs[1]) : Strided{};
  return set.add(in, call.outputs.size() > 1 && call.inputs.size() > 1 ? &listed : nullptr,
                 call.input_boxes[0].lo[axis]);
}
std::size_t add_buffer(LineSet& set, const Buffer& buffer, bool numbered) {
  return set.add(buffer.values, numbered ? &buffer.numbers : nullptr);
}

// Lines of n elements, sorted: ranks [skip, skip + kept) in `result`. In between through one of two places, the other, and so on, so
// that nothing is read and written at once.
Status sort_lines(Passes& passes, std::int64_t n, std::int64_t skip, std::int64_t kept, std::size_t from,
                  const std::size_t (&between)[2], std::size_t result) {
  const int merges = std::max(skip > 0 ? 1 : 0, Passes::merges(n, kSortTile));
  const auto target = [&](int pass) {
    return pass == merges ? result : between[(merges - pass) % 2 == 1 ? 1 : 0];
  };
  TW_TRY(passes.sort_tiles(from, target(0), merges == 0 ? kept : n));
  for (int pass = 1; pass <= merges; ++pass)
    TW_TRY(passes.merge(target(pass - 1), target(pass), kSortTile << (pass - 1), pass == merges ? skip : 0,
                        pass == merges ? kept : n));
  return {};
}

}  // namespace

bool has_order(ir::DType dtype) { return !ir::is_half(dtype) && !ir::is_complex(dtype); }

Status launch_search(const Environment& env, const KernelCall& call, CUstream stream) {
  ir::builtin::SearchSorted p;
  TW_TRY(read_params(call, p));
  const TensorView &v = call.inputs[0], &sorted = call.inputs[1], &out = call.outputs[0];
  if (v.data == nullptr || sorted.data == nullptr) return call.step == 0 ? clear(env, out, stream) : Status{};
  if (out.dtype != ir::DType::kInt64 || sorted.shape.size() != 1 || sorted.dtype != v.dtype ||
      v.shape != out.shape)
    return refuse(call, "wants a sorted vector and values of one dtype");
  if (!has_order(v.dtype)) return refuse(call, std::string(name_of(v.dtype)) + " has no order here");
  const Strided places[2] = {contiguous(out.data, out.shape), strided(v, out.shape)};
  SearchParams params;
  params.walk = merge(out.shape, places, params.place);
  if (params.walk.count == 0) return {};
  params.sorted = address(sorted.data);
  params.stride = sorted.strides[0];
  params.length = sorted.shape[0];
  params.right = p.right != 0;
  params.add = call.step > 0;
  TW_ASSIGN(const Program program, env.programs.order(v.dtype, false));
  TW_TRY(env.context.make_current());
  return launch_kernel(env, program.entry[0], blocks_for(params.walk.count), 1, &params, stream);
}

// Every other pass of a sort writes beside the output, or beside what is shorter than the lines twice.
std::int64_t sort_scratch_bytes(const ir::Op& op) {
  ir::builtin::SortBlock p;
  const std::string& params = op.get<ir::CallAttrs>().params;
  const ir::Shape largest = op.space.max_block_shape();
  if (!ir::builtin::read(p, params.data(), params.size()) || p.axis < 0 ||
      static_cast<std::size_t>(p.axis) >= largest.size() ||
      largest[static_cast<std::size_t>(p.axis)] <= kSortTile)
    return 0;
  const std::int64_t bytes = buffer_bytes(ir::volume(largest), op.outputs.at(0).dtype, op.outputs.size() > 1);
  return op.outputs[0].grid == op.space ? bytes : 2 * bytes;
}

Status launch_sort(const Environment& env, const KernelCall& call, CUstream stream) {
  ir::builtin::SortBlock p;
  TW_TRY(read_params(call, p));
  TW_TRY(null_operand(call, 0));
  const TensorView &x = call.inputs[0], &out = call.outputs[0];
  const auto axis = static_cast<std::size_t>(p.axis);
  if (p.axis < 0 || axis >= x.shape.size() || !same_lines(x, out, axis) || x.dtype != out.dtype ||
      out.shape[axis] > x.shape[axis])
    return refuse(call, "the array and the result differ in dtype or extents");
  if (!has_order(x.dtype)) return refuse(call, std::string(name_of(x.dtype)) + " has no order here");
  TW_TRY(numbers_fit(call));
  const bool numbered = call.outputs.size() > 1;
  const std::int64_t n = x.shape[axis], kept = out.shape[axis];
  if (ir::volume(x.shape) == 0 || kept == 0) return {};
  LineSet set(x.shape, axis);
  const std::size_t from = add_operand(set, call, axis);
  const Strided to = contiguous(out.data, out.shape),
                to_numbers = contiguous(numbered ? call.outputs[1].data : nullptr, out.shape);
  const std::size_t result = set.add(to, numbered ? &to_numbers : nullptr);
  std::size_t between[2] = {result, result};
  if (n > kSortTile) {
    if (call.scratch == nullptr) return error(Errc::kInternal, "a sort without scratch memory");
    const std::int64_t bytes = buffer_bytes(ir::volume(x.shape), x.dtype, numbered);
    between[1] = add_buffer(set, Buffer(call.scratch, x.shape, axis, x.dtype), numbered);
    if (kept < n)  // the output is too short to hold what is between
      between[0] = add_buffer(set, Buffer(call.scratch + bytes, x.shape, axis, x.dtype), numbered);
  }
  TW_ASSIGN(const Program program, env.programs.order(x.dtype, numbered));
  TW_TRY(env.context.make_current());
  Passes passes(env, program, set, n, p.descending != 0, stream);
  return sort_lines(passes, n, 0, kept, from, between, result);
}

// Lines are sorted beside the output, in two buffers.
std::int64_t deal_scratch_bytes(const ir::Op& op) {
  return 2 * buffer_bytes(ir::volume(op.outputs.at(0).grid.max_block_shape()), op.outputs[0].dtype,
                          op.outputs.size() > 1);
}

Status launch_deal(const Environment& env, const KernelCall& call, CUstream stream) {
  ir::builtin::DealSorted p;
  TW_TRY(read_params(call, p));
  const TensorView &first = call.inputs[0], &out = call.outputs[0];
  const std::size_t rank = first.shape.size();
  const auto axis = static_cast<std::size_t>(p.axis);
  const bool numbered = call.outputs.size() > 1;
  const std::size_t blocks = numbered ? 1 : call.inputs.size();
  bool good = p.axis >= 0 && axis < rank && p.columns >= 1 && p.card >= 1 && out.shape.size() == rank + 1 &&
              out.shape[rank - 1] == 1;
  std::int64_t n = 0;
  for (std::size_t b = 0; good && b < blocks; ++b) {
    const TensorView& x = call.inputs[b];
    good = x.data != nullptr && x.dtype == out.dtype && x.shape.size() == rank;
    for (std::size_t d = 0; good && d + 1 < rank; ++d) good = out.shape[d] == x.shape[d < axis ? d : d + 1];
    if (good) n += x.shape[axis];
  }
  if (good) {
    const std::int64_t all = out.shape[rank];
    good = p.columns <= all / p.card && all % (p.columns * p.card) == 0 && n <= all;
  }
  if (!good) return refuse(call, "lines are not dealt to columns of such a length");
  if (!has_order(out.dtype)) return refuse(call, std::string(name_of(out.dtype)) + " has no order here");
  if (numbered) TW_TRY(numbers_fit(call));
  if (ir::volume(out.shape) == 0) return {};
  if (call.scratch == nullptr) return error(Errc::kInternal, "a sort without scratch memory");
  ir::Shape lines = first.shape;
  lines[axis] = n;
  // The output's lines, along its last dimension, with their other dimensions as x has them.
  const auto dealt = [&](const void* data) {
    Strided lines = contiguous(data, out.shape);
    lines.strides.resize(rank - 1);
    lines.strides.insert(lines.strides.begin() + static_cast<std::ptrdiff_t>(axis), 1);
    return lines;
  };
  const std::int64_t all = out.shape[rank], bytes = buffer_bytes(ir::volume(lines), out.dtype, numbered);
  const Buffer buffers[2] = {Buffer(call.scratch, lines, axis, out.dtype),
                             Buffer(call.scratch + bytes, lines, axis, out.dtype)};
  LineSet set(lines, axis);
  const std::size_t between[2] = {add_buffer(set, buffers[0], numbered),
                                  add_buffer(set, buffers[1], numbered)};
  std::size_t from = between[0];
  if (blocks == 1) {
    from = add_operand(set, call, axis);
  } else {
    Strided part = buffers[0].values;
    for (const TensorView& x : call.inputs) {
      if (ir::volume(x.shape) > 0) TW_TRY(copy_region(env, x, part, stream));
      part.base += x.shape[axis] * static_cast<std::int64_t>(ir::size_of(x.dtype));
    }
  }
  const Strided to = dealt(out.data), to_numbers = dealt(numbered ? call.outputs[1].data : nullptr);
  const std::size_t result = set.add(to, numbered ? &to_numbers : nullptr);
  TW_ASSIGN(const Program program, env.programs.order(out.dtype, numbered));
  TW_TRY(env.context.make_current());
  Passes passes(env, program, set, n, p.descending != 0, stream);
  if (n > 0) TW_TRY(sort_lines(passes, n, 0, n, from, between, between[0]));
  DealParams deal;
  deal.lines = set.merge_walks();
  deal.in = set[between[0]];
  deal.out = set[result];
  deal.length = n;
  deal.all = all;
  deal.columns = p.columns;
  deal.card = p.card;
  deal.tiles = tiles_of(all);
  deal.descending = p.descending != 0;
  return launch_kernel(env, program.entry[3], deal.lines.count * deal.tiles, 1, &deal, stream);
}

namespace {

// Blocks of pieces, as kernels/sort/arguments.h has them, and what their lines are put together to: one behind the other.
struct Pieces {
  const KernelCall& call;
  std::size_t axis = 0, count = 0;  // of the result, without a dimension that says which column it is; blocks
  ir::Shape result;                 // its extents
  std::int64_t length = 0, all = 0;  // of each piece's lines; together
  bool equal = true;                 // are they of one length?

  // Refused with `message` where they do not fit.
  static Result<Pieces> of(const KernelCall& call, std::size_t axis, ir::Shape result, const char* message) {
    Pieces p{call, axis, call.outputs.empty() ? 0 : call.inputs.size() / call.outputs.size(),
             std::move(result)};
    const std::size_t arrays = call.outputs.size(), others = p.result.size() - 1;
    bool good = (arrays == 1 || arrays == 2) && p.count > 0 && call.inputs.size() == arrays * p.count &&
                (arrays == 1 || (call.outputs[1].dtype == ir::DType::kInt64 &&
                                 call.outputs[1].shape == call.outputs[0].shape));
    for (std::size_t i = 0; good && i < call.inputs.size(); ++i) {
      const TensorView& in = call.inputs[i];
      good = in.data != nullptr && in.dtype == call.outputs[i / p.count].dtype &&
             in.shape.size() == others + 2 && (i < p.count || in.shape == call.inputs[i - p.count].shape);
      for (std::size_t d = 0; good && d < others; ++d) good = in.shape[d] == p.result[d < axis ? d : d + 1];
      if (!good || i >= p.count) continue;
      const std::int64_t length = in.shape[others + 1];
      p.equal &= i == 0 || length == p.length;
      p.length = length;
      p.all += in.shape[others] * length;
    }
    if (!good) return refuse(call, message);
    if (!has_order(call.outputs[0].dtype))
      return refuse(call, std::string(name_of(call.outputs[0].dtype)) + " has no order here");
    return p;
  }
  bool numbered() const { return call.outputs.size() == 2; }
  ir::Shape lines() const {
    ir::Shape shape = result;
    shape[axis] = all;
    return shape;
  }
  std::int64_t bytes() const { return buffer_bytes(ir::volume(lines()), call.outputs[0].dtype, numbered()); }
  Buffer at(const std::byte* where) const { return Buffer(where, lines(), axis, call.outputs[0].dtype); }
  Status gather(const Environment& env, const Buffer& to, CUstream stream) const {
    std::int64_t done = 0;
    for (std::size_t b = 0; b < count; ++b) {
      const std::int64_t rows = call.inputs[b].shape[axis_of_rows()], each = call.inputs[b].shape.back();
      for (std::size_t a = 0; a < call.outputs.size(); ++a) {
        const TensorView& in = call.inputs[a * count + b];
        Strided part = a == 0 ? to.values : to.numbers;
        part.base += done * static_cast<std::int64_t>(ir::size_of(in.dtype));
        part.strides.erase(part.strides.begin() + static_cast<std::ptrdiff_t>(axis));
        part.strides.push_back(each);
        part.strides.push_back(1);
        if (ir::volume(in.shape) > 0) TW_TRY(copy_region(env, in, part, stream));
      }
      done += rows * each;
    }
    return {};
  }
  // The result's lines; numbers: null where it has none.
  std::size_t add_result(LineSet& set) const {
    const Strided values = contiguous(call.outputs[0].data, result),
                  numbers = contiguous(call.outputs.back().data, result);
    return set.add(values, numbered() ? &numbers : nullptr);
  }

 private:
  std::size_t axis_of_rows() const { return result.size() - 1; }
};

template <class P> std::optional<P> params_of(const ir::Op& op) {
  P p;
  const std::string& params = op.get<ir::CallAttrs>().params;
  if (!ir::builtin::read(p, params.data(), params.size())) return std::nullopt;
  return p;
}
// Lines of an op's results, without dimension `axis`.
std::int64_t lines_of(const ir::Op& op, std::size_t axis) {
  ir::Shape out = op.outputs.at(0).grid.max_block_shape();
  if (axis >= out.size()) return 0;
  out[axis] = 1;
  return ir::volume(out);
}
// a * b * c, or 0 where that is no size or none is sensible.
std::int64_t product(std::int64_t a, std::int64_t b, std::int64_t c) {
  std::int64_t all = 0;
  const bool good = a >= 0 && b >= 0 && c >= 0 && !__builtin_mul_overflow(a, b, &all) &&
                    !__builtin_mul_overflow(all, c, &all) && all < (std::int64_t{1} << 48);
  return good ? all : 0;
}
Error too_little_said(const KernelCall& call) {
  return refuse(call, "says less of its runs than there are: a GPU has no memory for them");
}
// Of each end of each line's window four numbers a run.
std::int64_t places_bytes(std::int64_t lines, std::int64_t runs) { return align(product(lines, runs, 64)); }

}  // namespace

// The column's runs one behind the other, and what comes of the search for the window's ends.
std::int64_t split_scratch_bytes(const ir::Op& op) {
  const auto p = params_of<ir::builtin::SplitRuns>(op);
  if (!p || op.outputs.at(0).grid.rank() < 2) return 0;
  const std::int64_t lines = lines_of(op, static_cast<std::size_t>(op.outputs[0].grid.rank() - 1));
  return buffer_bytes(product(lines, p->windows.columns, p->windows.length), op.outputs[0].dtype,
                      op.outputs.size() > 1) +
         places_bytes(lines, p->windows.columns);
}

Status launch_split(const Environment& env, const KernelCall& call, CUstream stream) {
  ir::builtin::SplitRuns p;
  TW_TRY(read_params(call, p));
  const char* wrong = "wants blocks of sorted runs, and of their numbers";
  const TensorView& out = call.outputs[0];
  const std::size_t rank = out.shape.size();
  if (rank < 2 || out.shape[rank - 2] != 1) return refuse(call, wrong);
  // The dimension of one before the last says which column it is.
  ir::Shape result = out.shape;
  result.erase(result.end() - 2);
  TW_ASSIGN(const Pieces pieces, Pieces::of(call, rank - 2, std::move(result), wrong));
  const std::int64_t width = out.shape[rank - 1], first = call.output_boxes[0].lo[rank - 1],
                     lo = width != p.windows.width || width == 0 ? -1 : p.windows.lo(first / width);
  if (!pieces.equal) return refuse(call, wrong);
  if (lo < 0 || lo > pieces.all - width) return refuse(call, "the runs do not have the ranks of the window");
  if (ir::volume(out.shape) == 0) return {};
  const std::int64_t runs = pieces.all / pieces.length;
  if (call.scratch == nullptr ||
      pieces.bytes() + places_bytes(ir::volume(out.shape) / width, runs) > split_scratch_bytes(*call.op))
    return too_little_said(call);
  const Buffer column = pieces.at(call.scratch);
  TW_TRY(pieces.gather(env, column, stream));
  LineSet set(pieces.lines(), pieces.axis);
  const std::size_t from = add_buffer(set, column, pieces.numbered()), to = pieces.add_result(set);
  SplitParams params;
  params.lines = set.merge_walks();
  params.in = set[from];
  params.out = set[to];
  params.runs = runs;
  params.length = pieces.length;
  params.lo = lo;
  params.width = width;
  params.places = address(call.scratch + pieces.bytes());
  params.tiles = tiles_of(width);
  params.descending = p.descending != 0;
  TW_ASSIGN(const Program program, env.programs.order(out.dtype, pieces.numbered()));
  TW_TRY(env.context.make_current());
  TW_TRY(launch_kernel(env, program.entry[4], 2 * params.lines.count, 1, &params, stream));
  return launch_kernel(env, program.entry[5], params.lines.count * params.tiles, 1, &params, stream);
}

// All pieces of a line one behind the other, and a place to sort them to.
std::int64_t merge_scratch_bytes(const ir::Op& op) {
  const auto p = params_of<ir::builtin::MergeRuns>(op);
  if (!p || p->axis < 0) return 0;
  const std::int64_t of_windows =
      product(lines_of(op, static_cast<std::size_t>(p->axis)), p->windows.columns, p->windows.width);
  return 2 * buffer_bytes(std::max(of_windows, ir::volume(op.outputs.at(0).grid.max_block_shape())),
                          op.outputs[0].dtype, op.outputs.size() > 1);
}

// Sorts anew, as a block is sorted: runs are not looked for.
Status launch_merge(const Environment& env, const KernelCall& call, CUstream stream) {
  ir::builtin::MergeRuns p;
  TW_TRY(read_params(call, p));
  const char* wrong = "wants blocks of sorted runs, and of their numbers";
  const TensorView& out = call.outputs[0];
  const auto axis = static_cast<std::size_t>(p.axis);
  if (p.axis < 0 || axis >= out.shape.size()) return refuse(call, wrong);
  TW_ASSIGN(const Pieces pieces, Pieces::of(call, axis, out.shape, wrong));
  const std::int64_t kept = out.shape[axis], skip = p.skipped(call.output_boxes[0].lo[axis]);
  if (skip < 0 || skip > pieces.all - kept)
    return refuse(call, "the runs do not have the ranks that the result is made of");
  if (ir::volume(out.shape) == 0) return {};
  if (call.scratch == nullptr || 2 * pieces.bytes() > merge_scratch_bytes(*call.op))
    return too_little_said(call);
  const Buffer buffers[2] = {pieces.at(call.scratch), pieces.at(call.scratch + pieces.bytes())};
  TW_TRY(pieces.gather(env, buffers[0], stream));
  LineSet set(pieces.lines(), axis);
  const std::size_t places[2] = {add_buffer(set, buffers[0], pieces.numbered()),
                                 add_buffer(set, buffers[1], pieces.numbered())};
  const std::size_t result = pieces.add_result(set);
  TW_ASSIGN(const Program program, env.programs.order(out.dtype, pieces.numbered()));
  TW_TRY(env.context.make_current());
  Passes passes(env, program, set, pieces.all, p.descending != 0, stream);
  return sort_lines(passes, pieces.all, skip, kept, places[0], places, result);
}

}  // namespace tilewise::cuda

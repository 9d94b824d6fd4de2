// tilewise.fft by cuFFT, as kernels/fft. FftCall that lie one behind the other are transformed where they are; others are copied to
// scratch and back, as many at once as the GPU's L2 cache holds.
#include <algorithm>
#include <bit>

#include "call.h"
#include "matrix.h"

namespace tilewise::cuda {
namespace {

using ir::DType;
using ir::builtin::Fft;

constexpr std::int64_t kRoomBytes = std::int64_t{32} << 20;  // of lines that are transformed at once

// What the parameters and the result's dtype say.
struct FftCall {
  FftLines one;  // count is set by who asks
  DType in = DType::kComplex128, out = DType::kComplex128;
  std::int64_t in_length = 0, out_length = 0;
  double scale = 1;
  std::size_t axis = 0;

  std::int64_t in_bytes() const { return in_length * static_cast<std::int64_t>(ir::size_of(in)); }
  std::int64_t out_bytes() const { return out_length * static_cast<std::int64_t>(ir::size_of(out)); }
  std::int64_t together(std::int64_t lines) const {
    return std::clamp<std::int64_t>(kRoomBytes / std::max(in_bytes(), out_bytes()), 1,
                                    std::max<std::int64_t>(1, lines));
  }
  FftLines of(std::int64_t count) const {
    FftLines many = one;
    many.count = count;
    return many;
  }
};

// False: refused at launch.
bool read(const std::string& params, DType out, std::size_t rank, FftCall& lines) {
  Fft p;
  if (!ir::builtin::read(p, params.data(), params.size())) return false;
  if (p.axis < 0 || static_cast<std::size_t>(p.axis) >= rank || p.n < 1 || p.n > INT32_MAX ||
      p.kind < Fft::kForward || p.kind > Fft::kRealInverse)
    return false;
  const bool narrow = ir::real_dtype(out) == DType::kFloat32;
  const DType real = narrow ? DType::kFloat32 : DType::kFloat64,
              complex = narrow ? DType::kComplex64 : DType::kComplex128;
  const bool from_real = p.kind == Fft::kRealForward, to_real = p.kind == Fft::kRealInverse;
  lines.one = {static_cast<FftLines::Kind>(p.kind), narrow, p.n, 0};
  lines.in = from_real ? real : complex;
  lines.out = to_real ? real : complex;
  lines.in_length = to_real ? p.n / 2 + 1 : p.n;
  lines.out_length = from_real ? p.n / 2 + 1 : p.n;
  lines.scale = std::bit_cast<double>(p.scale_bits);
  if (narrow) lines.scale = static_cast<float>(lines.scale);
  lines.axis = static_cast<std::size_t>(p.axis);
  return out == lines.out;
}
static_assert(static_cast<int>(FftLines::Kind::kForward) == Fft::kForward &&
              static_cast<int>(FftLines::Kind::kInverse) == Fft::kInverse &&
              static_cast<int>(FftLines::Kind::kRealForward) == Fft::kRealForward &&
              static_cast<int>(FftLines::Kind::kRealInverse) == Fft::kRealInverse);

std::int64_t lines_of(const ir::Shape& shape, std::size_t axis) {
  std::int64_t count = 1;
  for (std::size_t d = 0; d < shape.size(); ++d)
    if (d != axis) count *= shape[d];
  return count;
}

// Parts scaled one by one: no product of infinity and zero.
ir::Tape scale_tape(DType dtype, double scale) {
  ir::Tape tape = copy_tape(dtype);
  if (scale == 1) return tape;
  const DType real = ir::real_dtype(dtype);
  if (!ir::is_complex(dtype)) {
    tape.code.push_back({.op = ir::TapeOp::kConst, .dtype = dtype, .imm_f = scale});
    tape.code.push_back({.op = ir::TapeOp::kMul, .dtype = dtype, .a = 0, .b = 1});
    return tape;
  }
  tape.code.push_back({.op = ir::TapeOp::kReal, .dtype = real, .a = 0});
  tape.code.push_back({.op = ir::TapeOp::kImag, .dtype = real, .a = 0});
  tape.code.push_back({.op = ir::TapeOp::kConst, .dtype = real, .imm_f = scale});
  tape.code.push_back({.op = ir::TapeOp::kMul, .dtype = real, .a = 1, .b = 3});
  tape.code.push_back({.op = ir::TapeOp::kMul, .dtype = real, .a = 2, .b = 3});
  tape.code.push_back({.op = ir::TapeOp::kComplex, .dtype = dtype, .a = 4, .b = 5});
  return tape;
}
ir::Tape real_tape(DType dtype) {  // z becomes its real part
  ir::Tape tape = copy_tape(dtype);
  tape.code.push_back({.op = ir::TapeOp::kReal, .dtype = ir::real_dtype(dtype), .a = 0});
  tape.code.push_back({.op = ir::TapeOp::kCast, .dtype = dtype, .a = 1});
  return tape;
}

// `axis` behind all others.
TensorView lines_last(TensorView view, std::size_t axis) {
  const auto last = [&](auto& dims) {
    std::rotate(dims.begin() + static_cast<std::ptrdiff_t>(axis),
                dims.begin() + static_cast<std::ptrdiff_t>(axis) + 1, dims.end());
  };
  last(view.shape), last(view.strides);
  return view;
}
bool dense(const TensorView& view) {
  const ir::Strides want = ir::c_order_strides(view.shape);
  for (std::size_t d = 0; d < view.shape.size(); ++d)
    if (view.shape[d] != 1 && view.strides[d] != want[d]) return false;
  return true;
}

class Transform {
 public:
  Transform(const Environment& env, const FftCall& lines, const TensorView& x, const TensorView& out,
            std::byte* scratch, CUstream stream)
      : env_(env),
        lines_(lines),
        x_(lines_last(x, lines.axis)),
        out_(lines_last(out, lines.axis)),
        stream_(stream) {
    // A transform to real numbers may write to what it reads.
    in_place_ = dense(x_) && lines.one.kind != FftLines::Kind::kRealInverse;
    out_place_ = dense(out_);
    scratch_ = scratch;
  }

  Status run(std::int64_t total, std::int64_t together, std::int64_t work_bytes) {
    from_ = scratch_;
    to_ = from_ + align_scratch(together * lines_.in_bytes());
    work_ = to_ + align_scratch(together * lines_.out_bytes());
    for (std::int64_t at = 0; at < total;) {
      std::int64_t count = std::min(together, total - at);
      for (;; count /= 2) {  // fewer lines may want more of a work area, though none is known to
        TW_ASSIGN(const std::int64_t wanted, env_.cufft->work_bytes(lines_.of(count)));
        if (wanted <= work_bytes) break;
        if (count == 1)
          return error(Errc::kOutOfMemory, "a transform of length " + std::to_string(lines_.one.n) +
                                               " wants " + std::to_string(wanted) + " bytes of scratch");
      }
      TW_TRY(some(at, count));
      at += count;
    }
    return {};
  }

 private:
  // FftCall [at, at + count) to scratch, one behind the other, and (scaled) from there.
  Status gather(std::int64_t at, std::int64_t count) {
    Strided to = contiguous(from_, x_.shape);
    to.base -= at * lines_.in_bytes();  // may lie before the scratch; only `count` lines are written
    Elementwise work{copy_tape(lines_.in), x_.shape, to, {&x_, 1}};
    work.first = at * lines_.in_length;
    work.count = count * lines_.in_length;
    return elementwise(env_, work, stream_);
  }
  Status scatter(std::int64_t at, std::int64_t count) {
    TensorView from{to_ - at * lines_.out_bytes(), lines_.out, out_.shape, ir::c_order_strides(out_.shape)};
    Elementwise work{
        scale_tape(lines_.out, lines_.scale), out_.shape, {address(out_.data), out_.strides}, {&from, 1}};
    work.first = at * lines_.out_length;
    work.count = count * lines_.out_length;
    return elementwise(env_, work, stream_);
  }
  // The first number of half a line, and of an even length the last, have no imaginary part: FFTW does not read it, cuFFT may.
  Status drop_imaginary(std::int64_t count) {
    const auto drop = [&](std::int64_t i) {
      const TensorView part{from_ + i * static_cast<std::int64_t>(ir::size_of(lines_.in)),
                            lines_.in,
                            {count},
                            {lines_.in_length}};
      return elementwise(
          env_, {real_tape(lines_.in), part.shape, {address(part.data), part.strides}, {&part, 1}}, stream_);
    };
    TW_TRY(drop(0));
    return lines_.one.n % 2 == 0 ? drop(lines_.one.n / 2) : Status{};
  }
  bool aligned(const std::byte* at) const {  // to complex numbers, as the library wants
    return address(at) % (lines_.one.narrow ? 8 : 16) == 0;
  }
  Status some(std::int64_t at, std::int64_t count) {
    std::byte* from = static_cast<std::byte*>(x_.data) + at * lines_.in_bytes();
    std::byte* to = static_cast<std::byte*>(out_.data) + at * lines_.out_bytes();
    if (!in_place_ || !aligned(from)) {
      TW_TRY(gather(at, count));
      from = from_;
    }
    const bool there = out_place_ && aligned(to);
    if (!there) to = to_;
    if (lines_.one.kind == FftLines::Kind::kRealInverse) TW_TRY(drop_imaginary(count));
    TW_TRY(env_.cufft->run(lines_.of(count), from, to, work_, stream_));
    if (!there) return scatter(at, count);
    if (lines_.scale == 1) return {};
    const TensorView done{to, lines_.out, {count * lines_.out_length}, {1}};
    return elementwise(
        env_, {scale_tape(lines_.out, lines_.scale), done.shape, {address(to), done.strides}, {&done, 1}},
        stream_);
  }

  const Environment& env_;
  const FftCall& lines_;
  TensorView x_, out_;
  CUstream stream_;
  bool in_place_ = false, out_place_ = false;
  std::byte *scratch_ = nullptr, *from_ = nullptr, *to_ = nullptr, *work_ = nullptr;
};

// Of the largest block: how many lines at once, and their work area.
struct Room {
  std::int64_t together = 0, work_bytes = 0;
};
Result<Room> room_of(const Environment& env, const ir::Op& op, const FftCall& lines) {
  Room room;
  room.together = lines.together(lines_of(op.outputs[0].grid.max_block_shape(), lines.axis));
  TW_ASSIGN(room.work_bytes, env.cufft->work_bytes(lines.of(room.together)));
  return room;
}

}  // namespace

Status fft_supports(const Environment& env, const ir::Op&) {
  if (env.cufft != nullptr) return {};
  return error(Errc::kUnsupported,
               "Fourier transforms on CUDA need cuFFT, which was not found (TILEWISE_CUFFT_PATH)");
}

std::int64_t fft_scratch_bytes(const Environment& env, const ir::Op& op) {
  FftCall lines;
  const ir::OutputSpec& out = op.outputs[0];
  if (env.cufft == nullptr ||
      !read(op.get<ir::CallAttrs>().params, out.dtype, static_cast<std::size_t>(out.grid.rank()), lines))
    return 0;  // refused at launch
  const auto room = room_of(env, op, lines);
  if (!room) return 0;  // launching says why
  return align_scratch(room->together * lines.in_bytes()) +
         align_scratch(room->together * lines.out_bytes()) + align_scratch(room->work_bytes);
}

Status prepare_fft(const Environment& env, const ir::Op& op, std::span<const CUstream> streams) {
  TW_TRY(fft_supports(env, op));
  FftCall lines;
  const ir::OutputSpec& out = op.outputs[0];
  if (!read(op.get<ir::CallAttrs>().params, out.dtype, static_cast<std::size_t>(out.grid.rank()), lines))
    return {};
  TW_TRY(env.programs.map(copy_tape(lines.in)));
  TW_TRY(env.programs.map(scale_tape(lines.out, lines.scale)));
  if (lines.one.kind == FftLines::Kind::kRealInverse) TW_TRY(env.programs.map(real_tape(lines.in)));
  TW_ASSIGN(const Room room, room_of(env, op, lines));
  for (const CUstream stream : streams) TW_TRY(env.cufft->prepare(lines.of(room.together), stream));
  return {};
}

Status launch_fft(const Environment& env, const KernelCall& call, CUstream stream) {
  TW_TRY(fft_supports(env, *call.op));
  const TensorView &x = call.inputs[0], &out = call.outputs[0];
  FftCall lines;
  if (!read(call.op->get<ir::CallAttrs>().params, out.dtype, out.shape.size(), lines) ||
      !same_lines(x, out, lines.axis) || x.dtype != lines.in || x.shape[lines.axis] != lines.in_length ||
      out.shape[lines.axis] != lines.out_length)
    return refuse(call, "the array and the result do not fit the transform");
  const std::int64_t total = lines_of(out.shape, lines.axis);
  if (total == 0) return {};
  TW_TRY(null_operand(call, 0));
  TW_ASSIGN(const Room room, room_of(env, *call.op, lines));
  if (call.scratch == nullptr) return error(Errc::kInternal, "tilewise.fft without scratch memory");
  return Transform(env, lines, x, out, call.scratch, stream)
      .run(total, std::min(room.together, total), room.work_bytes);
}

}  // namespace tilewise::cuda

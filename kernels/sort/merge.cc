// merge_split: of two sorted lines the first, or the last, elements of their merge.
#include <algorithm>
#include <array>

#include "call/builtin.h"
#include "move/strided_copy.h"
#include "sort/keys.h"
#include "sort/sort.h"

namespace tilewise::kernels::sort {
namespace {

using namespace builtin;

// A sorted line with its elements' numbers (null: none).
template <class T> struct Line {
  const T* at;
  const std::int64_t* numbers;
  std::int64_t count, stride, numbers_stride;
};

// Ranks [from, to) of the merge of two lines. Cut into kChains pieces by co-ranks (merge path: Green, McColl, Bader,
// ICS'12) that are merged in turns, an element of each at a time and without branches: so neither a misprediction an
// element nor the latency of one comparison after the other is paid.
template <class T, bool kDescending, bool kNumbers, bool kDense> class Merge {
  using Order = sort::Order<T, kDescending>;
  static constexpr int kChains = 4;

 public:
  Merge(const Line<T>& a, const Line<T>& b, T* to, std::int64_t stride, std::int64_t* numbers,
        std::int64_t numbers_stride)
      : a_(a), b_(b), to_(to), numbers_(numbers), stride_(stride), numbers_stride_(numbers_stride) {}

  void ranks(std::int64_t from, std::int64_t to) {
    from_ = from;
    std::array<std::int64_t, kChains> i, j, i_end, j_end;
    std::int64_t rank = from, of_a = co_rank(from);
    for (int c = 0; c < kChains; ++c) {
      i[c] = of_a, j[c] = rank - of_a;
      // Lines that are not sorted have no co-ranks; they stay inside both lines, too.
      const std::int64_t next = from + (to - from) * (c + 1) / kChains;
      of_a = std::clamp(co_rank(next), of_a, of_a + (next - rank));
      rank = next;
      i_end[c] = of_a, j_end[c] = rank - of_a;
    }
    while (true) {
      // So many steps use up no line of any chain.
      std::int64_t sure = INT64_MAX;
      for (int c = 0; c < kChains; ++c) sure = std::min({sure, i_end[c] - i[c], j_end[c] - j[c]});
      if (sure == 0) break;
      for (std::int64_t s = 0; s < sure; ++s)
#pragma GCC unroll 4
        for (int c = 0; c < kChains; ++c) step(i[c], j[c]);
    }
    for (int c = 0; c < kChains; ++c) {
      while (i[c] < i_end[c] && j[c] < j_end[c]) step(i[c], j[c]);
      for (; i[c] < i_end[c]; ++i[c]) write(i[c] + j[c], a_, i[c]);
      for (; j[c] < j_end[c]; ++j[c]) write(i[c] + j[c], b_, j[c]);
    }
  }

 private:
  static auto key(const Line<T>& line, std::int64_t i) {
    const T x = line.at[kDense ? i : i * line.stride];
    if constexpr (kNumbers)
      return Order::equal_key(x);
    else
      return Order::sorted_key(x);
  }
  static std::int64_t number(const Line<T>& line, std::int64_t i) {
    return line.numbers[kDense ? i : i * line.numbers_stride];
  }
  // Does b's element j come before a's element i?
  bool second(std::int64_t i, std::int64_t j) const {
    const auto x = key(a_, i), y = key(b_, j);
    if constexpr (kNumbers) return (y < x) | ((y == x) & (number(b_, j) < number(a_, i)));
    return y < x;
  }
  // How many of the first `rank` elements of the merge are a's.
  std::int64_t co_rank(std::int64_t rank) const {
    std::int64_t lo = std::max<std::int64_t>(0, rank - b_.count), hi = std::min(rank, a_.count);
    while (lo < hi) {
      const std::int64_t i = lo + (hi - lo) / 2;
      if (second(i, rank - i - 1))
        hi = i;  // b's element of that rank comes before a's i: fewer of a
      else
        lo = i + 1;
    }
    return lo;
  }
  void write(std::int64_t rank, const Line<T>& from, std::int64_t i) {
    const std::int64_t k = rank - from_;
    to_[kDense ? k : k * stride_] = from.at[kDense ? i : i * from.stride];
    if constexpr (kNumbers) numbers_[kDense ? k : k * numbers_stride_] = number(from, i);
  }
  // Writes the one of a's element i and b's element j that comes first, and passes it.
  void step(std::int64_t& i, std::int64_t& j) {
    const std::int64_t k = i + j - from_;
    std::int64_t b = -static_cast<std::int64_t>(second(i, j));  // a mask
    asm("" : "+r"(b));  // or compilers see the choice that it is, and make a branch of it
    using Bits = typename Order::Key;
    const Bits x = std::bit_cast<Bits>(a_.at[kDense ? i : i * a_.stride]);
    const Bits y = std::bit_cast<Bits>(b_.at[kDense ? j : j * b_.stride]);
    to_[kDense ? k : k * stride_] = std::bit_cast<T>(static_cast<Bits>(x ^ ((x ^ y) & static_cast<Bits>(b))));
    if constexpr (kNumbers) {
      const std::int64_t xn = number(a_, i), yn = number(b_, j);
      numbers_[kDense ? k : k * numbers_stride_] = xn ^ ((xn ^ yn) & b);
    }
    j -= b;
    i += 1 + b;
  }

  Line<T> a_, b_;
  T* to_;
  std::int64_t* numbers_;
  std::int64_t stride_, numbers_stride_, from_ = 0;
};

// `low`: the first `kept` elements of the merge, else the last ones. kept <= a.count + b.count.
template <class T, bool kDescending, bool kNumbers>
void merge(const Line<T>& a, const Line<T>& b, bool low, std::int64_t kept, T* to, std::int64_t stride,
           std::int64_t* numbers, std::int64_t numbers_stride) {
  const std::int64_t from = low ? 0 : a.count + b.count - kept;
  const bool dense = a.stride == 1 && b.stride == 1 && stride == 1 &&
                     (!kNumbers || (a.numbers_stride == 1 && b.numbers_stride == 1 && numbers_stride == 1));
  if (dense)
    Merge<T, kDescending, kNumbers, true>(a, b, to, 1, numbers, 1).ranks(from, from + kept);
  else
    Merge<T, kDescending, kNumbers, false>(a, b, to, stride, numbers, numbers_stride)
        .ranks(from, from + kept);
}

template <class T, bool kDescending> void merge_lines(const tilewise_call_v1* call, int axis, bool numbered) {
  const tilewise_view_v1 &x = call->inputs[0], &y = call->inputs[1], &out = call->outputs[0];
  const tilewise_view_v1& xn = call->inputs[numbered ? 2 : 0];
  const tilewise_view_v1& yn = call->inputs[numbered ? 3 : 1];
  const tilewise_view_v1& outn = call->outputs[numbered ? 1 : 0];
  const bool low = call->box_lo[axis] == x.lo[axis];
  for_lines<6>({&x, &y, &out, &xn, &yn, &outn}, axis, [&](const auto& at) {
    Line<T> a{static_cast<const T*>(x.data) + at[0], nullptr, x.shape[axis], x.strides[axis],
              xn.strides[axis]};
    Line<T> b{static_cast<const T*>(y.data) + at[1], nullptr, y.shape[axis], y.strides[axis],
              yn.strides[axis]};
    T* to = static_cast<T*>(out.data) + at[2];
    if (!numbered)
      return merge<T, kDescending, false>(a, b, low, out.shape[axis], to, out.strides[axis], nullptr, 0);
    a.numbers = static_cast<const std::int64_t*>(xn.data) + at[3];
    b.numbers = static_cast<const std::int64_t*>(yn.data) + at[4];
    merge<T, kDescending, true>(a, b, low, out.shape[axis], to, out.strides[axis],
                                static_cast<std::int64_t*>(outn.data) + at[5], outn.strides[axis]);
  });
}

}  // namespace

int merge_split(const tilewise_call_v1* call) {
  ir::builtin::MergeSplit p;
  if (!read_params(call, p)) return kFailed;
  const int arrays = call->output_count, blocks = arrays == 0 ? 0 : call->input_count / arrays;
  const int axis = static_cast<int>(p.axis);
  bool good = (arrays == 1 || arrays == 2) && (blocks == 1 || blocks == 2) &&
              call->input_count == arrays * blocks && p.axis >= 0 && p.axis < call->outputs[0].rank;
  for (int i = 0; good && i < call->input_count; ++i) {
    const tilewise_view_v1 &in = call->inputs[i], &out = call->outputs[i / blocks];
    good = in.dtype == out.dtype && same_lines({&in, &out}, axis) &&
           (i < blocks || in.shape[axis] == call->inputs[i - blocks].shape[axis]);
  }
  if (good && arrays == 2)
    good = call->outputs[1].dtype == TILEWISE_INT64 && same_lines({&call->outputs[0], &call->outputs[1]}, -1);
  if (good && blocks == 2)
    good = call->outputs[0].shape[axis] <= call->inputs[0].shape[axis] + call->inputs[1].shape[axis];
  if (!good) return refuse(call, kFailed, "wants one or two blocks of an array, and of its numbers");
  if (blocks == 1) {
    for (int i = 0; i < arrays; ++i) {
      const tilewise_view_v1 &in = call->inputs[i], &out = call->outputs[i];
      if (!same_lines({&in, &out}, -1))
        return refuse(call, kFailed, "a block alone is as long as its result");
      move::strided_copy(static_cast<std::byte*>(out.data), strides_of(out),
                         static_cast<const std::byte*>(in.data), strides_of(in), shape_of(out),
                         element_bytes(out));
    }
    return 0;
  }
  const bool known = with_ordered(call->outputs[0].dtype, [&]<class T>(T) {
    p.descending ? merge_lines<T, true>(call, axis, arrays == 2)
                 : merge_lines<T, false>(call, axis, arrays == 2);
  });
  return known ? 0 : refuse(call, kFailed, "dtype %d has no order", call->outputs[0].dtype);
}

}  // namespace tilewise::kernels::sort

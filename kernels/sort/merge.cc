// merge_split: of two sorted lines the first, or the last, elements of their merge.
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

// `low`: the first `kept` elements of the merge, else the last ones. kept <= a.count + b.count.
template <class T, bool kDescending, bool kNumbers>
void merge(const Line<T>& a, const Line<T>& b, bool low, std::int64_t kept, T* to, std::int64_t stride,
           std::int64_t* numbers, std::int64_t numbers_stride) {
  using Order = sort::Order<T, kDescending>;
  const auto key = [](const Line<T>& line, std::int64_t i) {
    return kNumbers ? Order::equal_key(line.at[i * line.stride]) : Order::key(line.at[i * line.stride]);
  };
  // Does b's element j come before a's element i?
  const auto second = [&](std::int64_t i, std::int64_t j) {
    const auto x = key(a, i), y = key(b, j);
    if constexpr (kNumbers) {
      if (x == y) return b.numbers[j * b.numbers_stride] < a.numbers[i * a.numbers_stride];
    }
    return y < x;
  };
  const auto write = [&](std::int64_t k, const Line<T>& from, std::int64_t i) {
    to[k * stride] = from.at[i * from.stride];
    if constexpr (kNumbers) numbers[k * numbers_stride] = from.numbers[i * from.numbers_stride];
  };
  if (low) {
    for (std::int64_t k = 0, i = 0, j = 0; k < kept; ++k)
      j < b.count && (i >= a.count || second(i, j)) ? write(k, b, j++) : write(k, a, i++);
  } else {
    for (std::int64_t k = kept, i = a.count, j = b.count; k-- > 0;)
      i > 0 && (j <= 0 || second(i - 1, j - 1)) ? write(k, a, --i) : write(k, b, --j);
  }
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

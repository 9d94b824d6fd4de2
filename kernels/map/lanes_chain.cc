// Steps of chains, once per Highway target: a chain's value stays in registers and goes from function to function as
// arguments, each step calling the next where it ends. Compilers make that a jump; where one does not, it is as many frames
// as the chain has steps. Each operation is rounded by itself, so the bits are those of one loop an instruction.
// The technique: direct threading with the machine state in argument registers, as in Haberman's "Parsing Protobuf at 2+GB/s"
// (2021).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "map/lanes_chain.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <boost/container/static_vector.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "map/chain.h"
#include "map/lane_loops-inl.h"
#include "map/lanes_targets.h"

HWY_BEFORE_NAMESPACE();
namespace tilewise::kernels::map {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using ir::DType;
using ir::TapeOp;
using Value = ChainStep::Value;
using What = ChainStep::What;

// Of one vector each: the same meaning as in scalar_ops-inl.h.
#define TILEWISE_STEP(Name, ...) \
  struct Name { \
    template <class D, class V> static HWY_INLINE V apply(D d, V a, V b) { \
      (void)d, (void)b; \
      return __VA_ARGS__; \
    } \
  };
TILEWISE_STEP(StepAdd, hn::Add(a, b))
TILEWISE_STEP(StepSub, hn::Sub(a, b))
TILEWISE_STEP(StepMul, hn::Mul(a, b))
TILEWISE_STEP(StepDiv, hn::Div(a, b))
TILEWISE_STEP(StepNeg, hn::Neg(a))
TILEWISE_STEP(StepAbs, hn::Abs(a))
TILEWISE_STEP(StepSqrt, hn::Sqrt(a))
TILEWISE_STEP(StepFloor, hn::Floor(a))
TILEWISE_STEP(StepCeil, hn::Ceil(a))
TILEWISE_STEP(StepTrunc, hn::Trunc(a))
TILEWISE_STEP(StepRound, hn::Round(a))
TILEWISE_STEP(StepCopysign, hn::CopySign(a, b))
// Masks, of numbers and of masks. Not what is equal, since Highway's Ne is false for NaN on x86.
TILEWISE_STEP(StepEq, hn::VecFromMask(d, hn::Eq(a, b)))
TILEWISE_STEP(StepNe, hn::VecFromMask(d, hn::Not(hn::Eq(a, b))))
TILEWISE_STEP(StepLt, hn::VecFromMask(d, hn::Lt(a, b)))
TILEWISE_STEP(StepLe, hn::VecFromMask(d, hn::Le(a, b)))
TILEWISE_STEP(StepGt, hn::VecFromMask(d, hn::Gt(a, b)))
TILEWISE_STEP(StepGe, hn::VecFromMask(d, hn::Ge(a, b)))
TILEWISE_STEP(StepIsNan, hn::VecFromMask(d, hn::IsNaN(a)))
TILEWISE_STEP(StepIsInf, hn::VecFromMask(d, hn::Eq(hn::Abs(a), hn::Inf(d))))
TILEWISE_STEP(StepIsFinite, hn::VecFromMask(d, hn::Lt(hn::Abs(a), hn::Inf(d))))
TILEWISE_STEP(StepSignbit, hn::BitCast(d, hn::BroadcastSignBit(hn::BitCast(hn::RebindToSigned<D>(), a))))
TILEWISE_STEP(StepAnd, hn::And(a, b))
TILEWISE_STEP(StepOr, hn::Or(a, b))
TILEWISE_STEP(StepXor, hn::Xor(a, b))
TILEWISE_STEP(StepNot, hn::Not(a))
TILEWISE_STEP(StepToMask, hn::VecFromMask(d, hn::Not(hn::Eq(a, hn::Zero(d)))))
TILEWISE_STEP(StepFromMask, hn::And(a, hn::Set(d, hn::TFromD<D>(1))))
#undef TILEWISE_STEP

template <bool kMin> struct StepExtremum {
  template <class D, class V> static HWY_INLINE V apply(D d, V a, V b) {
    const V tie = kMin ? hn::Or(a, b) : hn::And(a, b);
    const V pick = hn::IfThenElse(kMin ? hn::Lt(a, b) : hn::Gt(a, b), a, b);
    const V number = hn::IfThenElse(hn::Eq(a, b), tie, pick);
    (void)d;
    return hn::IfThenElse(hn::Or(hn::IsNaN(a), hn::IsNaN(b)), hn::Add(a, b), number);
  }
};

// As many vectors at once as fit argument registers, of which calling conventions have eight.
template <class T> using StepTag = hn::CappedTag<T, kLaneBlock>;
template <class T> constexpr std::size_t step_vectors() {
  return std::min<std::size_t>(8, kLaneBlock / hn::MaxLanes(StepTag<T>()));
}
template <class V, std::size_t> using Same = V;

template <class T, class Indices = std::make_index_sequence<step_vectors<T>()>> struct Steps;
template <class T, std::size_t... I> struct Steps<T, std::index_sequence<I...>> {
  using D = StepTag<T>;
  using V = hn::Vec<D>;
  struct Node;
  using Fn = void (*)(const Node* node, std::ptrdiff_t at, Same<V, I>... value);
  struct Node {
    Fn fn;
    std::byte* operand;
    union {
      std::ptrdiff_t moving;  // -1: the operand moves with the block; 0: it stays
      LaneFn lane;            // of a call, whose operand is its LaneArgs
    };
    HWY_INLINE T* from(std::ptrdiff_t at) const { return reinterpret_cast<T*>(operand + (at & moving)); }
    HWY_INLINE std::uint8_t* bytes_from(std::ptrdiff_t at) const {
      return reinterpret_cast<std::uint8_t*>(operand +
                                             (at / static_cast<std::ptrdiff_t>(sizeof(T)) & moving));
    }
  };
  static constexpr std::int64_t kLanes = static_cast<std::int64_t>(hn::MaxLanes(D()));
  static constexpr std::int64_t kBlock = kLanes * static_cast<std::int64_t>(sizeof...(I));

  static void load(const Node* node, std::ptrdiff_t at, Same<V, I>...) {
    const T* x = node->from(at);
    return node[1].fn(node + 1, at, hn::LoadU(D(), x + I * kLanes)...);
  }
  using Bytes = hn::Rebind<std::uint8_t, D>;
  using Words = hn::RebindToUnsigned<D>;
  static HWY_INLINE V mask_from(const std::uint8_t* x) {
    const auto bytes = hn::LoadU(Bytes(), x);
    const hn::Rebind<std::uint32_t, D> half;
    const auto any = [](auto d, auto v) { return hn::VecFromMask(d, hn::Not(hn::Eq(v, hn::Zero(d)))); };
    if constexpr (sizeof(T) == 4)
      return hn::BitCast(D(), any(half, hn::PromoteTo(half, bytes)));
    else
      return hn::BitCast(D(), any(Words(), hn::PromoteTo(Words(), hn::PromoteTo(half, bytes))));
  }
  static HWY_INLINE void mask_to(std::uint8_t* x, V mask) {
    const auto bytes = hn::TruncateTo(Bytes(), hn::BitCast(Words(), mask));
    hn::StoreU(hn::And(bytes, hn::Set(Bytes(), 1)), Bytes(), x);
  }
  static void load_bytes(const Node* node, std::ptrdiff_t at, Same<V, I>...) {
    const std::uint8_t* x = node->bytes_from(at);
    return node[1].fn(node + 1, at, mask_from(x + I * kLanes)...);
  }
  static void end_bytes(const Node* node, std::ptrdiff_t at, Same<V, I>... value) {
    std::uint8_t* x = node->bytes_from(at);
    (mask_to(x + I * kLanes, value), ...);
  }
  static void save(const Node* node, std::ptrdiff_t at, Same<V, I>... value) {
    T* x = node->from(at);
    (hn::StoreU(value, D(), x + I * kLanes), ...);
    return node[1].fn(node + 1, at, value...);
  }
  static void call(const Node* node, std::ptrdiff_t at, Same<V, I>... value) {
    const LaneArgs& args = *reinterpret_cast<const LaneArgs*>(node->operand);
    T* x = static_cast<T*>(args.out);
    (hn::StoreU(value, D(), x + I * kLanes), ...);
    node->lane(args);
    return node[1].fn(node + 1, at, hn::LoadU(D(), x + I * kLanes)...);
  }
  template <bool kStreams> static void end(const Node* node, std::ptrdiff_t at, Same<V, I>... value) {
    T* x = node->from(at);
    if constexpr (kStreams)
      (hn::Stream(value, D(), x + I * kLanes), ...);
    else
      (hn::StoreU(value, D(), x + I * kLanes), ...);
  }
  template <class Op, Value kValue> static void op(const Node* node, std::ptrdiff_t at, Same<V, I>... value) {
    if constexpr (kValue == Value::kAll) {
      return node[1].fn(node + 1, at, Op::apply(D(), value, value)...);
    } else {
      const T* x = node->from(at);
      if constexpr (kValue == Value::kFirst)
        return node[1].fn(node + 1, at, Op::apply(D(), value, hn::LoadU(D(), x + I * kLanes))...);
      else
        return node[1].fn(node + 1, at, Op::apply(D(), hn::LoadU(D(), x + I * kLanes), value)...);
    }
  }

  template <Value kValue> static void where(const Node* node, std::ptrdiff_t at, Same<V, I>... value) {
    const T *x = node[0].from(at), *y = node[1].from(at);
    if constexpr (kValue == Value::kFirst)
      return node[2].fn(
          node + 2, at,
          hn::IfVecThenElse(value, hn::LoadU(D(), x + I * kLanes), hn::LoadU(D(), y + I * kLanes))...);
    else if constexpr (kValue == Value::kSecond)
      return node[2].fn(
          node + 2, at,
          hn::IfVecThenElse(hn::LoadU(D(), x + I * kLanes), value, hn::LoadU(D(), y + I * kLanes))...);
    else
      return node[2].fn(
          node + 2, at,
          hn::IfVecThenElse(hn::LoadU(D(), x + I * kLanes), hn::LoadU(D(), y + I * kLanes), value)...);
  }

  template <class Op> static constexpr Fn unary = op<Op, Value::kAll>;
  template <class Op> static Fn binary(Value value) {
    if (value == Value::kAll) return op<Op, Value::kAll>;
    return value == Value::kFirst ? op<Op, Value::kFirst> : op<Op, Value::kSecond>;
  }
  static Fn find(const ChainStep& step) {
    switch (step.what) {
      case What::kLoad: return load;
      case What::kLoadBytes: return load_bytes;
      case What::kOp: return find(step.op, step.value);
      case What::kOther: return load;  // not called
      case What::kToMask: return unary<StepToMask>;
      case What::kFromMask: return unary<StepFromMask>;
      case What::kCall: return kBlock == kLaneBlock ? call : nullptr;  // whole blocks are fast
      case What::kSave: return save;
      case What::kEndBytes: return end_bytes;
    }
    return nullptr;
  }
  static Fn find(TapeOp op, Value value) {
    switch (op) {
      case TapeOp::kAdd: return binary<StepAdd>(value);
      case TapeOp::kSub: return binary<StepSub>(value);
      case TapeOp::kMul: return binary<StepMul>(value);
      case TapeOp::kDiv: return binary<StepDiv>(value);
      case TapeOp::kMinimum: return binary<StepExtremum<true>>(value);
      case TapeOp::kMaximum: return binary<StepExtremum<false>>(value);
      case TapeOp::kCopysign: return binary<StepCopysign>(value);
      case TapeOp::kNeg: return unary<StepNeg>;
      case TapeOp::kAbs: return unary<StepAbs>;
      case TapeOp::kSqrt: return unary<StepSqrt>;
      case TapeOp::kFloor: return unary<StepFloor>;
      case TapeOp::kCeil: return unary<StepCeil>;
      case TapeOp::kTrunc: return unary<StepTrunc>;
      case TapeOp::kRound: return unary<StepRound>;
      case TapeOp::kEq: return binary<StepEq>(value);
      case TapeOp::kNe: return binary<StepNe>(value);
      case TapeOp::kLt: return binary<StepLt>(value);
      case TapeOp::kLe: return binary<StepLe>(value);
      case TapeOp::kGt: return binary<StepGt>(value);
      case TapeOp::kGe: return binary<StepGe>(value);
      case TapeOp::kIsNan: return unary<StepIsNan>;
      case TapeOp::kIsInf: return unary<StepIsInf>;
      case TapeOp::kIsFinite: return unary<StepIsFinite>;
      case TapeOp::kSignbit: return unary<StepSignbit>;
      case TapeOp::kAnd: return binary<StepAnd>(value);
      case TapeOp::kOr: return binary<StepOr>(value);
      case TapeOp::kXor: return binary<StepXor>(value);
      case TapeOp::kNot:
      case TapeOp::kInvert: return unary<StepNot>;  // of booleans
      case TapeOp::kWhere:
        if (value == Value::kFirst) return where<Value::kFirst>;
        return value == Value::kSecond ? where<Value::kSecond> : where<Value::kThird>;
      default: return nullptr;
    }
  }

  using Operands = boost::container::static_vector<const T*, kMaxLaneArgs>;
  // What a chain reads that computes for long, since it calls functions.
  static Operands to_ask_for(const LaneArgs& args) {
    Operands out;
    const auto calls = [](const ChainStep& step) { return step.what == What::kCall; };
    if (std::none_of(args.steps.begin(), args.steps.end(), calls)) return out;
    for (const ChainStep& step : args.steps) {
      if (step.operand >= kMaxLaneArgs || step.what == What::kLoadBytes || args.splat[step.operand]) continue;
      const T* const x = static_cast<const T*>(args.in[step.operand]);
      if (std::find(out.begin(), out.end(), x) == out.end()) out.push_back(x);
    }
    return out;
  }
  static void run(const Node* nodes, std::int64_t elements, const Operands& ahead) {
    for (std::int64_t i = 0; i < elements; i += kBlock) {
      for (const T* const x : ahead) ask_ahead(x + i);
      nodes->fn(nodes, i * static_cast<std::ptrdiff_t>(sizeof(T)), (static_cast<void>(I), hn::Zero(D()))...);
    }
  }

  static void lane(const LaneArgs& args) {
    using Block = std::array<T, kBlock>;
    alignas(64) std::array<Block, kMaxChainKept> kept;  // those in use are written before they are read
    std::array<Node, kMaxChainSteps + 1> nodes;         // not initialised beyond those that are laid out
    const auto at = [](const void* p) { return static_cast<std::byte*>(const_cast<void*>(p)); };
    alignas(64) Block called;
    LaneArgs call_args;
    call_args.in[0] = call_args.out = called.data(), call_args.n = kBlock;
    const std::size_t n = args.steps.size();
    for (std::size_t i = 0; i < n; ++i) {
      const ChainStep& step = args.steps[i];
      nodes[i] = {reinterpret_cast<Fn>(step.fn), nullptr, {0}};
      const std::size_t k = step.operand;
      if (step.what == What::kCall)
        nodes[i].operand = at(&call_args), nodes[i].lane = step.lane;
      else if (step.what == What::kEndBytes)
        nodes[i].operand = at(args.out), nodes[i].moving = -1;
      else if (k < kMaxLaneArgs)
        nodes[i].operand = at(args.in[k]), nodes[i].moving = args.splat[k] ? 0 : -1;
      else if (k != ChainStep::kNone)
        nodes[i].operand = at(&kept[k - kMaxLaneArgs]);
    }
    nodes[n] = {args.past_caches ? end<true> : end<false>, at(args.out), {-1}};
    const std::int64_t whole = args.n / kBlock * kBlock;
    run(nodes.data(), whole, to_ask_for(args));
    if (whole < args.n) rest(args, nodes.data(), whole);
  }
  // The ragged end, through blocks padded with what it begins with: functions are then asked for nothing that they were not.
  static HWY_NOINLINE void rest(const LaneArgs& args, Node* nodes, std::int64_t whole) {
    alignas(64) std::array<std::array<T, kBlock>, kMaxLaneArgs + 1> padded;
    const std::size_t count = static_cast<std::size_t>(args.n - whole), n = args.steps.size();
    for (std::size_t i = 0; i < n; ++i) {
      const What what = args.steps[i].what;
      const std::size_t k = args.steps[i].operand;
      if (what == What::kCall || what == What::kEndBytes || nodes[i].moving == 0) continue;
      if (what == What::kLoadBytes) {
        pad(reinterpret_cast<std::uint8_t*>(padded[k].data()),
            static_cast<const std::uint8_t*>(args.in[k]) + whole, count);
      } else {
        pad(padded[k].data(), static_cast<const T*>(args.in[k]) + whole, count);
      }
      nodes[i].operand = reinterpret_cast<std::byte*>(padded[k].data()), nodes[i].moving = 0;
    }
    auto* const out = reinterpret_cast<std::byte*>(padded[kMaxLaneArgs].data());
    const bool ends_in_bytes = args.steps[n - 1].what == What::kEndBytes;
    if (ends_in_bytes)
      nodes[n - 1].operand = out, nodes[n - 1].moving = 0;
    else
      nodes[n] = {end<false>, out, {0}};
    run(nodes, 1, {});
    const std::size_t size = ends_in_bytes ? 1 : sizeof(T);
    std::memcpy(static_cast<std::byte*>(args.out) + static_cast<std::size_t>(whole) * size, out,
                count * size);
  }
  template <class E> static HWY_INLINE void pad(E* to, const E* from, std::size_t count) {
    std::fill_n(to, kBlock, *from);
    std::copy_n(from, count, to);
  }
};

template <class T> void chain_lane_of(const LaneArgs& args) { Steps<T>::lane(args); }

// Without vectors there are no chains: compilers make more of a loop for each instruction.
constexpr bool kChains = HWY_TARGET != HWY_SCALAR;
LaneFn chain_lane(DType t) {
  if constexpr (!kChains) return nullptr;
  if (t == DType::kFloat32) return chain_lane_of<float>;
  return t == DType::kFloat64 ? chain_lane_of<double> : nullptr;
}
ChainFn chain_step(const ChainStep& step, DType t) {
  if constexpr (!kChains) return nullptr;
  if (t == DType::kFloat32) return reinterpret_cast<ChainFn>(Steps<float>::find(step));
  return t == DType::kFloat64 ? reinterpret_cast<ChainFn>(Steps<double>::find(step)) : nullptr;
}

}  // namespace HWY_NAMESPACE
}  // namespace tilewise::kernels::map
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tilewise::kernels::map {
HWY_EXPORT(chain_lane);
HWY_EXPORT(chain_step);
LaneFn find_chain_lane(ir::DType t) { return HWY_DYNAMIC_DISPATCH(chain_lane)(t); }
ChainFn find_chain_step(const ChainStep& step, ir::DType t) {
  return HWY_DYNAMIC_DISPATCH(chain_step)(step, t);
}
}  // namespace tilewise::kernels::map
#endif

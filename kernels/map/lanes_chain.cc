// Steps of chains, once per Highway target: a chain's value stays in registers and goes from function to function as
// arguments, each step calling the next where it ends. Compilers make that a jump; where one does not, it is as many frames
// as the chain has steps. Each operation is rounded by itself, so the bits are those of one loop an instruction.
// The technique: direct threading with the machine state in argument registers, as in Haberman's "Parsing Protobuf at 2+GB/s"
// (2021).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "map/lanes_chain.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "map/chain.h"
#include "map/lanes_targets.h"

HWY_BEFORE_NAMESPACE();
namespace tilewise::kernels::map {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using ir::DType;
using ir::TapeOp;
using Side = ChainStep::Side;

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
  };
  static constexpr std::int64_t kLanes = static_cast<std::int64_t>(hn::MaxLanes(D()));
  static constexpr std::int64_t kBlock = kLanes * static_cast<std::int64_t>(sizeof...(I));

  static void load(const Node* node, std::ptrdiff_t at, Same<V, I>...) {
    const T* x = node->from(at);
    return node[1].fn(node + 1, at, hn::LoadU(D(), x + I * kLanes)...);
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
  template <class Op, Side kSide> static void op(const Node* node, std::ptrdiff_t at, Same<V, I>... value) {
    if constexpr (kSide == Side::kNone) {
      return node[1].fn(node + 1, at, Op::apply(D(), value, value)...);
    } else {
      const T* x = node->from(at);
      if constexpr (kSide == Side::kRight)
        return node[1].fn(node + 1, at, Op::apply(D(), value, hn::LoadU(D(), x + I * kLanes))...);
      else
        return node[1].fn(node + 1, at, Op::apply(D(), hn::LoadU(D(), x + I * kLanes), value)...);
    }
  }

  template <class Op> static Fn binary(Side side) {
    if (side == Side::kNone) return op<Op, Side::kNone>;
    return side == Side::kRight ? op<Op, Side::kRight> : op<Op, Side::kLeft>;
  }
  static Fn find(const ChainStep& step) {
    if (step.what == ChainStep::What::kLoad) return load;
    if (step.what == ChainStep::What::kSave) return save;
    if (step.what == ChainStep::What::kCall)
      return kBlock == kLaneBlock ? call : nullptr;  // whole blocks are fast
    switch (step.op) {
      case TapeOp::kAdd: return binary<StepAdd>(step.side);
      case TapeOp::kSub: return binary<StepSub>(step.side);
      case TapeOp::kMul: return binary<StepMul>(step.side);
      case TapeOp::kDiv: return binary<StepDiv>(step.side);
      case TapeOp::kMinimum: return binary<StepExtremum<true>>(step.side);
      case TapeOp::kMaximum: return binary<StepExtremum<false>>(step.side);
      case TapeOp::kNeg: return op<StepNeg, Side::kNone>;
      case TapeOp::kAbs: return op<StepAbs, Side::kNone>;
      case TapeOp::kSqrt: return op<StepSqrt, Side::kNone>;
      case TapeOp::kFloor: return op<StepFloor, Side::kNone>;
      case TapeOp::kCeil: return op<StepCeil, Side::kNone>;
      case TapeOp::kTrunc: return op<StepTrunc, Side::kNone>;
      case TapeOp::kRound: return op<StepRound, Side::kNone>;
      default: return nullptr;
    }
  }

  static void run(const Node* nodes, std::ptrdiff_t begin, std::ptrdiff_t end) {
    for (std::ptrdiff_t at = begin; at < end; at += kBlock * static_cast<std::ptrdiff_t>(sizeof(T)))
      nodes->fn(nodes, at, (static_cast<void>(I), hn::Zero(D()))...);
  }

  static void lane(const LaneArgs& args) {
    using Block = std::array<T, kBlock>;
    alignas(64) std::array<Block, kMaxChainMembers> kept;  // those in use are written before they are read
    std::array<Node, kMaxChainSteps + 1> nodes;            // not initialised beyond those that are laid out
    const auto at = [](const void* p) { return static_cast<std::byte*>(const_cast<void*>(p)); };
    alignas(64) Block called;
    LaneArgs call_args;
    call_args.in[0] = call_args.out = called.data(), call_args.n = kBlock;
    const std::size_t n = args.steps.size();
    for (std::size_t i = 0; i < n; ++i) {
      const ChainStep& step = args.steps[i];
      nodes[i].fn = reinterpret_cast<Fn>(step.fn);
      const std::size_t k = step.operand;
      if (step.what == ChainStep::What::kCall)
        nodes[i].operand = at(&call_args), nodes[i].lane = step.lane;
      else if (k < kMaxLaneArgs)
        nodes[i].operand = at(args.in[k]), nodes[i].moving = args.splat[k] ? 0 : -1;
      else
        nodes[i].operand = at(&kept[k - kMaxLaneArgs]), nodes[i].moving = 0;
    }
    nodes[n] = {args.past_caches ? end<true> : end<false>, at(args.out), -1};
    const std::int64_t whole = args.n / kBlock * kBlock;
    run(nodes.data(), 0, whole * static_cast<std::int64_t>(sizeof(T)));
    if (whole < args.n) rest(args, nodes.data(), whole);
  }
  // The ragged end, through blocks padded with what it begins with: functions are then asked for nothing that they were not.
  static HWY_NOINLINE void rest(const LaneArgs& args, Node* nodes, std::int64_t whole) {
    alignas(64) std::array<std::array<T, kBlock>, kMaxLaneArgs + 1> padded;
    const std::size_t bytes = static_cast<std::size_t>(args.n - whole) * sizeof(T), n = args.steps.size();
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t k = args.steps[i].operand;
      if (args.steps[i].what == ChainStep::What::kCall || nodes[i].moving == 0) continue;
      const T* x = static_cast<const T*>(args.in[k]) + whole;
      padded[k].fill(*x);
      std::memcpy(padded[k].data(), x, bytes);
      nodes[i].operand = reinterpret_cast<std::byte*>(padded[k].data()), nodes[i].moving = 0;
    }
    T* out = padded[kMaxLaneArgs].data();
    nodes[n] = {end<false>, reinterpret_cast<std::byte*>(out), 0};
    run(nodes, 0, 1);
    std::memcpy(static_cast<T*>(args.out) + whole, out, bytes);
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

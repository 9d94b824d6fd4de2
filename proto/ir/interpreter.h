// Runs lowered ops the plain way, in double, following Geometry step by step: what lowering means, for its tests.
#pragma once
#include "random_world.h"

#include <doctest/doctest.h>
#include <tilewise/ir/lower.h>

#include <array>
#include <cmath>
#include <functional>
#include <map>

namespace tilewise::ir::testing {

struct Stored {
  SourceArray source;
  std::vector<double> data;  // the whole array, C order
};
using Store = std::map<std::uint64_t, Stored>;

inline double at(const Stored& s, const View& v, const Index& logical) {
  return s.data[static_cast<std::size_t>(ravel(source_index(v, logical), s.source.grid.shape()))];
}

// The outputs of one element of a tape; only what the tests use.
inline std::vector<double> run_tape(const Tape& tape, const Index& global,
                                    const std::function<double(int)>& load) {
  std::vector<double> v;
  for (const TapeInstr& in : tape.code) switch (in.op) {
      case TapeOp::kLoad: v.push_back(load(static_cast<int>(in.imm_i))); break;
      case TapeOp::kConst:
        v.push_back(is_floating(in.dtype) ? in.imm_f : static_cast<double>(in.imm_i));
        break;
      case TapeOp::kCast:
        v.push_back(in.dtype == DType::kBool ? v[in.a] != 0
                    : is_integer(in.dtype)   ? std::trunc(v[in.a])
                                             : v[in.a]);
        break;
      case TapeOp::kIota: v.push_back(static_cast<double>(global[static_cast<std::size_t>(in.imm_i)])); break;
      case TapeOp::kAdd: v.push_back(v[in.a] + v[in.b]); break;
      case TapeOp::kSub: v.push_back(v[in.a] - v[in.b]); break;
      case TapeOp::kMul: v.push_back(v[in.a] * v[in.b]); break;
      default: FAIL("the tests' interpreter has no such instruction");
    }
  std::vector<double> outputs;
  for (std::size_t i = 0; i < tape.output_count(); ++i) outputs.push_back(v[tape.output(i)]);
  return outputs;
}

// Folds values in C order; argmin and argmax keep a position.
struct Fold {
  ReduceKind kind;
  bool any = false;
  double value = 0;
  std::int64_t position = 0;
  void add(double x, std::int64_t p) {
    const bool least = kind == ReduceKind::kMin || kind == ReduceKind::kArgMin;
    const bool first = !any;
    any = true;
    switch (kind) {
      case ReduceKind::kSum: value = first ? x : value + x; return;
      case ReduceKind::kProd: value = first ? x : value * x; return;
      case ReduceKind::kAny: value = value != 0 || x != 0; return;
      case ReduceKind::kAll: value = (first || value != 0) && x != 0; return;
      default: break;
    }
    const bool nan = std::isnan(x), was = std::isnan(value);
    const bool better = nan || was ? nan && !was : least ? x < value : x > value;
    const bool tie = nan || was ? nan && was : x == value;
    if (first || better || (tie && p < position)) value = x, position = p;
  }
};

// Moments of what has been added, joined as kernels do.
using Moments = std::array<double, kMomentParts>;
inline void join(Moments& a, const Moments& b) {
  if (b[kMomentCount] == 0) return;
  if (a[kMomentCount] == 0) {
    a = b;
    return;
  }
  const auto mean = [](const Moments& m) { return m[kMomentSum] / m[kMomentCount] + m[kMomentShift]; };
  const double n = a[kMomentCount] + b[kMomentCount], off = mean(b) - mean(a),
               at = mean(a) + off * (b[kMomentCount] / n);
  a[kMomentSquares] += b[kMomentSquares] + off * off * a[kMomentCount] * (b[kMomentCount] / n);
  a[kMomentSum] += b[kMomentSum];
  a[kMomentCount] = n;
  a[kMomentShift] = at - a[kMomentSum] / n;
}

inline std::int64_t reduced_position(const Index& global, const Shape& space, std::uint32_t axes) {
  std::int64_t p = 0;
  for (std::size_t d = 0; d < space.size(); ++d)
    if (axes >> d & 1) p = p * space[d] + global[d];
  return p;
}

inline void run_op(const Op& op, Store& store) {
  std::vector<SourceArray> sources;
  for (const Operand& o : op.operands) {
    REQUIRE(store.count(o.array) == 1);
    sources.push_back(store.at(o.array).source);
  }
  const Result<Geometry> made = Geometry::make(op, sources);
  INFO(name_of(op.kind), ": ", made ? "" : made.error().message);
  REQUIRE(made.has_value());
  for (const OutputSpec& out : op.outputs) {
    REQUIRE(store.count(out.array) == 0);
    store[out.array] = {{out.dtype, out.grid},
                        std::vector<double>(static_cast<std::size_t>(volume(out.grid.shape())), -777)};
  }
  std::vector<Read> reads;
  const Shape space = op.space.shape();
  for (std::int64_t p = 0; p < made->point_count(); ++p) {
    const Index point = made->point(p);
    const Box span = op.space.box(point), box = op.outputs[0].grid.box(point);
    const auto put = [&](std::size_t o, const Index& i) -> double& {
      Stored& s = store[op.outputs[o].array];
      return s.data[static_cast<std::size_t>(ravel(i, s.source.grid.shape()))];
    };
    std::map<Index, Fold> folds;  // by output index
    std::map<Index, Moments> moments;
    if (op.kind == OpKind::kMatmul || op.kind == OpKind::kMatmulPanels)
      for_each_index(box.shape(), [&](Index i) {
        for (std::size_t d = 0; d < i.size(); ++d) i[d] += box.lo[d];
        put(0, i) = 0;
      });
    for (std::int64_t step = 0; step < made->steps(point); ++step) {
      made->reads(point, step, reads);
      const auto load = [&](const Read& r, const Index& i) {
        return at(store[op.operands[r.operand].array], op.operands[r.operand].view, i);
      };
      const auto each = [&](const Box& b, auto&& f) {
        for_each_index(b.shape(), [&](Index i) {
          for (std::size_t d = 0; d < i.size(); ++d) i[d] += b.lo[d];
          f(i);
        });
      };
      switch (op.kind) {
        case OpKind::kMap:
        case OpKind::kReduceBlocks: {
          const Tape& tape = op.kind == OpKind::kMap ? op.get<MapAttrs>().tape : op.get<ReduceAttrs>().tape;
          each(span, [&](const Index& i) {
            const std::vector<double> values =
                run_tape(tape, i, [&](int o) { return load(Read{static_cast<std::uint8_t>(o)}, i); });
            if (op.kind == OpKind::kMap) {
              for (std::size_t o = 0; o < values.size(); ++o) put(o, i) = values[o];
              return;
            }
            const double x = values[0];
            const auto& a = op.get<ReduceAttrs>();
            Index to = i;
            for (int d = 0; d < span.rank(); ++d)
              if (a.axes >> d & 1) to[d] = point[d];
            if (a.kind == ReduceKind::kMoments)
              join(moments.try_emplace(to).first->second, {1, x, 0, 0});
            else
              folds.try_emplace(to, Fold{a.kind}).first->second.add(x, reduced_position(i, space, a.axes));
          });
          break;
        }
        case OpKind::kCombine: {
          const auto& a = op.get<CombineAttrs>();
          each(reads.at(0).region, [&](const Index& i) {
            Index to = i;
            to[a.axis] = point[a.axis];
            if (a.kind == ReduceKind::kMoments) {
              join(moments.try_emplace(to).first->second,
                   {load(reads[0], i), load(reads[1], i), load(reads[2], i), load(reads[3], i)});
              return;
            }
            const std::int64_t position = reads.size() > 1 ? static_cast<std::int64_t>(load(reads[1], i)) : 0;
            folds.try_emplace(to, Fold{a.kind}).first->second.add(load(reads[0], i), position);
          });
          break;
        }
        case OpKind::kMatmul:
        case OpKind::kMatmulPanels: {
          if (reads.empty()) break;
          const int f = op.kind == OpKind::kMatmulPanels;
          const Box &x = reads.at(0).region, &y = reads.at(1).region;
          REQUIRE(x.extent(x.rank() - 1) == y.extent(y.rank() - 2));
          const int m = x.rank() - 2, n = m + 1;
          each(x, [&](const Index& i) {  // the stack's index, row, k
            Index right = i, to = i;
            right[m] = i[n];
            if (f) to.insert(to.begin(), point[0]);
            for (std::int64_t j = y.lo[n]; j < y.hi[n]; ++j) {
              right[n] = to.back() = j;
              put(0, to) += load(reads[0], i) * load(reads[1], right);
            }
          });
          break;
        }
        case OpKind::kScan: {
          const auto& a = op.get<ScanAttrs>();
          const auto join = [&](double p, double q) { return a.kind == ReduceKind::kSum ? p + q : p * q; };
          std::map<Index, double> run;  // by line
          each(span, [&](const Index& i) {
            Index line = i, to = i;
            line[a.axis] = point[a.axis];
            const double start = reads.size() > 1 ? load(reads[1], line) : a.kind == ReduceKind::kSum ? 0 : 1;
            double& now = run.try_emplace(line, start).first->second;
            if (a.mode == ScanMode::kTotal) to = line;
            if (a.mode == ScanMode::kExclusive) put(0, to) = now;
            now = join(now, load(reads[0], i));
            if (a.mode != ScanMode::kExclusive) put(0, to) = now;
          });
          break;
        }
        case OpKind::kCopy:
          for (const Read& r : reads) {
            const Box to = copy_destination(op, span, r.operand, r.region);
            each(r.region, [&](const Index& i) {
              Index j = i;
              for (std::size_t d = 0; d < j.size(); ++d) j[d] += box.lo[d] + to.lo[d] - r.region.lo[d];
              REQUIRE(box.contains(j));
              put(0, j) = load(r, i);
            });
          }
          break;
        case OpKind::kReshape:
          for (const Read& r : reads)
            each(r.region, [&](const Index& i) {
              const Index j = unravel(ravel(i, op.operands[0].view.shape), space);
              if (box.contains(j)) put(0, j) = load(r, i);
            });
          break;
        default: FAIL("the tests' interpreter has no such kind");
      }
    }
    for (const auto& [i, parts] : moments)
      for (std::size_t o = 0; o < parts.size(); ++o) put(o, i) = parts[o];
    for (const auto& [i, fold] : folds) {
      put(0, i) = fold.value;
      if (op.outputs.size() > 1) put(1, i) = static_cast<double>(fold.position);
    }
  }
}

// Lowers and runs; the op's outputs are in the store afterwards, cut as promised.
inline void run_lowered(const Op& op, Store& store) {
  std::vector<SourceArray> sources;
  for (const Operand& o : op.operands) sources.push_back(store.at(o.array).source);
  std::uint64_t next = std::max<std::uint64_t>(1'000'000, store.empty() ? 0 : store.rbegin()->first + 1);
  const Result<std::vector<Op>> ops = lower(op, sources, [&] { return next++; });
  INFO("error: ", ops ? "" : ops.error().message);
  REQUIRE(ops.has_value());
  for (const Op& part : *ops) {
    REQUIRE(part.hint == op.hint);
    run_op(part, store);
  }
  for (const OutputSpec& out : op.outputs) {
    REQUIRE(store.count(out.array) == 1);
    REQUIRE(store.at(out.array).source.grid == out.grid);
    REQUIRE(store.at(out.array).source.dtype == out.dtype);
  }
}

}  // namespace tilewise::ir::testing

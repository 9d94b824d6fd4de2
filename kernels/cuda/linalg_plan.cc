#include "linalg_plan.h"

#include <tilewise/ir/linalg.h>

#include <algorithm>

namespace tilewise::cuda {

using ir::DType;
using Kernel = LinalgKernel;
using Routine = Cusolver::Routine;

Kernel linalg_kernel_of(const ir::Op& op) {
  struct Named {
    std::string_view name;
    Kernel kernel;
  };
  static constexpr Named kNames[] = {
      {"tilewise.cholesky", Kernel::kCholesky}, {"tilewise.solve", Kernel::kSolve},
      {"tilewise.det", Kernel::kDet},           {"tilewise.qr", Kernel::kQr},
      {"tilewise.geqrf", Kernel::kGeqrf},       {"tilewise.ormqr", Kernel::kOrmqr},
      {"tilewise.eigh", Kernel::kEigh},         {"tilewise.svd", Kernel::kSvd},
      {"tilewise.trsm", Kernel::kTrsm},         {"tilewise.update", Kernel::kUpdate},
      {"tilewise.lu_panel", Kernel::kLuPanel},  {"tilewise.lu_update", Kernel::kLuUpdate}};
  for (const Named& named : kNames)
    if (named.name == op.get<ir::CallAttrs>().kernel) return named.kernel;
  return Kernel::kNone;
}
bool by_blas(Kernel kernel) {
  return kernel == Kernel::kTrsm || kernel == Kernel::kUpdate || kernel == Kernel::kLuUpdate;
}

std::optional<Extents> extents_of(Kernel kernel, const ir::Op& op, std::span<const ir::Shape> in,
                                  std::span<const ir::Shape> out) {
  if (in.empty() || out.empty() || op.operands.empty()) return {};
  Extents e;
  e.m = e.n = rows(in[0]);
  switch (kernel) {
    case Kernel::kNone: return {};
    case Kernel::kDet: break;
    case Kernel::kCholesky: e.m = e.n = rows(out[0]); break;
    case Kernel::kSolve:
    case Kernel::kTrsm:
      e.m = e.n = rows(out[0]);
      e.k = columns(out[0]);
      e.copy_a = may_need_copy(op.operands[0].view);
      break;
    case Kernel::kQr:
      if (out.size() != 2) return {};
      e.m = rows(out[0]), e.n = columns(out[1]);
      e.q = columns(out[0]);
      break;
    case Kernel::kGeqrf: e.m = rows(out[0]), e.n = columns(out[0]); break;
    case Kernel::kOrmqr:
      if (in.size() != 3) return {};
      e.n = columns(in[0]), e.k = columns(out[0]);
      break;
    case Kernel::kEigh: e.vectors = out.size() > 1; break;
    case Kernel::kSvd:
      e.n = columns(in[0]);
      e.vectors = out.size() == 3;
      if (!e.vectors) break;
      e.m = rows(out[1]), e.n = columns(out[2]);
      e.full = columns(out[1]) > std::min(e.m, e.n) || rows(out[2]) > std::min(e.m, e.n);
      break;
    case Kernel::kUpdate:
      if (in.size() < 2 || op.operands.size() < 2) return {};
      e.m = rows(out[0]), e.n = columns(out[0]);
      e.k = columns(in[in.size() - 2]);
      e.copy_a =
          ir::is_complex(op.outputs[0].dtype) || may_need_copy(op.operands[op.operands.size() - 2].view);
      e.copy_b = may_need_copy(op.operands.back().view);
      break;
    case Kernel::kLuPanel: e.m = rows(out[0]), e.n = columns(out[0]); break;
    case Kernel::kLuUpdate:
      e.k = rows(out[0]), e.n = columns(out[0]);
      e.m = e.k + (out.size() > 1 ? rows(out[1]) : 0);
      e.copy_a = may_need_copy(op.operands[0].view);
      break;
  }
  return e;
}

Result<Layout> lay_out(Kernel kernel, const Extents& e, DType dtype, const Environment& env) {
  Layout l;
  const std::size_t size = ir::size_of(dtype), real = ir::size_of(ir::real_dtype(dtype));
  const auto ask = [&](Routine routine, std::int64_t m, std::int64_t n, std::int64_t k = 0,
                       bool vectors = false) -> Status {
    TW_ASSIGN(const std::int64_t bytes, env.cusolver->work_bytes(routine, dtype, m, n, k, vectors));
    l.work_bytes = std::max(l.work_bytes, bytes);
    return {};
  };
  const std::int64_t k = std::min(e.m, e.n);
  switch (kernel) {
    case Kernel::kCholesky: TW_TRY(ask(Routine::kPotrf, e.n, e.n)); break;
    case Kernel::kSolve:
    case Kernel::kDet:
      l.a = l.take(e.n * e.n, size);
      l.b = l.take(e.n * e.k, size);
      l.pivots = l.take(e.n, 4);
      TW_TRY(ask(Routine::kGetrf, e.n, e.n));
      break;
    case Kernel::kLuPanel:
      l.a = l.take(e.m * e.n, size);
      l.pivots = l.take(k, 4);
      TW_TRY(ask(Routine::kGetrf, e.m, e.n));
      break;
    case Kernel::kLuUpdate:
      if (e.copy_a) l.a = l.take(e.m * e.k, size);
      break;
    case Kernel::kQr:
      l.a = l.take(e.m * std::max(e.n, std::min(e.q, e.m)), size);
      l.tau = l.take(k, size);
      TW_TRY(ask(Routine::kGeqrf, e.m, e.n));
      TW_TRY(ask(Routine::kOrgqr, e.m, std::min(e.q, e.m), k));
      break;
    case Kernel::kGeqrf:
      l.a = l.take(e.m * e.n, size);
      l.tau = l.take(k, size);
      TW_TRY(ask(Routine::kGeqrf, e.m, e.n));
      break;
    case Kernel::kOrmqr:
      l.a = l.take(e.m * k, size);
      l.tau = l.take(k, size);
      l.b = l.take(e.m * e.k, size);
      TW_TRY(ask(Routine::kOrmqr, e.m, e.k, k));
      break;
    case Kernel::kEigh:
      l.a = l.take(e.n * e.n, size);
      TW_TRY(ask(Routine::kSyevd, e.n, e.n, 0, e.vectors));
      break;
    case Kernel::kSvd:
      l.a = l.take(e.m * e.n, size);
      l.rest = l.take(k, real);
      if (e.vectors && e.m > e.n) {  // comes out by columns
        l.u = l.take(e.m * (e.full ? e.m : k), size);
        l.vh = l.take(e.n * e.n, size);
      }
      TW_TRY(ask(Routine::kGesvd, std::max(e.m, e.n), k));
      break;
    case Kernel::kTrsm:
      if (e.copy_a) l.a = l.take(e.n * e.n, size);
      break;
    case Kernel::kUpdate:
      if (e.copy_a) l.a = l.take(e.m * e.k, size);
      if (e.copy_b) l.b = l.take(e.k * e.n, size);
      break;
    case Kernel::kNone: break;
  }
  l.info = l.take(1, 4);
  l.work = l.take(l.work_bytes, 1);
  return l;
}

}  // namespace tilewise::cuda

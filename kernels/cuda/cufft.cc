#include "cufft.h"

#include <tilewise/cuda/libraries.h>

#include <string>

namespace tilewise::cuda {
namespace {

// From the cuFFT documentation: names and values of its interface, stable since CUDA 7. Declared here because slim toolkits
// have no cufft.h.
using Code = int;
using Size = long long;
constexpr Code kSuccess = 0, kAllocFailed = 2, kInvalidSize = 8;
constexpr int kForward = -1, kInverse = 1;
enum Type : int { kR2C = 0x2a, kC2R = 0x2c, kC2C = 0x29, kD2Z = 0x6a, kZ2D = 0x6c, kZ2Z = 0x69 };

Status done(Code code, const char* doing) {
  if (code == kSuccess) return {};
  return error(code == kAllocFailed   ? Errc::kOutOfMemory
               : code == kInvalidSize ? Errc::kUnsupported
                                      : Errc::kDeviceError,
               std::string(doing) + ": cuFFT result " + std::to_string(code));
}

Type type_of(const FftLines& lines) {
  switch (lines.kind) {
    case FftLines::Kind::kRealForward: return lines.narrow ? kR2C : kD2Z;
    case FftLines::Kind::kRealInverse: return lines.narrow ? kC2R : kZ2D;
    default: return lines.narrow ? kC2C : kZ2Z;
  }
}

}  // namespace

struct Cufft::Functions {
  Code (*create)(int* plan);
  Code (*destroy)(int plan);
  Code (*set_auto_allocation)(int plan, int on);
  Code (*make_many)(int plan, int rank, Size* n, Size* in_embed, Size in_stride, Size in_distance,
                    Size* out_embed, Size out_stride, Size out_distance, Type type, Size count,
                    std::size_t* work);
  Code (*set_stream)(int plan, CUstream stream);
  Code (*set_work_area)(int plan, void* work);
  // Pointers to real or complex numbers, by type.
  Code (*c2c)(int plan, void* in, void* out, int direction);
  Code (*z2z)(int plan, void* in, void* out, int direction);
  Code (*r2c)(int plan, void* in, void* out);
  Code (*d2z)(int plan, void* in, void* out);
  Code (*c2r)(int plan, void* in, void* out);
  Code (*z2d)(int plan, void* in, void* out);
};

Result<std::unique_ptr<Cufft>> Cufft::open(const Context& context) {
  TW_ASSIGN(const Library library, open_library(cufft_library(context.driver->version / 1000)));
  auto f = std::make_shared<Functions>();
  Symbols symbols(library);
  symbols.get(f->create, "cufftCreate");
  symbols.get(f->destroy, "cufftDestroy");
  symbols.get(f->set_auto_allocation, "cufftSetAutoAllocation");
  symbols.get(f->make_many, "cufftMakePlanMany64");
  symbols.get(f->set_stream, "cufftSetStream");
  symbols.get(f->set_work_area, "cufftSetWorkArea");
  symbols.get(f->c2c, "cufftExecC2C");
  symbols.get(f->z2z, "cufftExecZ2Z");
  symbols.get(f->r2c, "cufftExecR2C");
  symbols.get(f->d2z, "cufftExecD2Z");
  symbols.get(f->c2r, "cufftExecC2R");
  symbols.get(f->z2d, "cufftExecZ2D");
  TW_TRY(symbols.all_found());
  std::unique_ptr<Cufft> cufft(new Cufft(context));
  cufft->functions_ = std::move(f);
  return cufft;
}

Cufft::~Cufft() {
  if (!context_.make_current()) return;
  for (const Plan& plan : plans_) functions_->destroy(plan.handle);
}

// A plan without a work area or stream.
Result<int> Cufft::make(const FftLines& lines, std::int64_t& work_bytes) const {
  int handle = 0;
  TW_TRY(done(functions_->create(&handle), "cufftCreate"));
  Size n = lines.n, in = lines.n, out = lines.n;
  if (lines.kind == FftLines::Kind::kRealForward) out = lines.n / 2 + 1;
  if (lines.kind == FftLines::Kind::kRealInverse) in = lines.n / 2 + 1;
  std::size_t work = 0;
  Status made = done(functions_->set_auto_allocation(handle, 0), "cufftSetAutoAllocation");
  if (made)
    made = done(
        functions_->make_many(handle, 1, &n, &in, 1, in, &out, 1, out, type_of(lines), lines.count, &work),
        "cufftMakePlanMany64");
  if (!made) {
    functions_->destroy(handle);
    return made.error();
  }
  work_bytes = static_cast<std::int64_t>(work);
  return handle;
}

Result<std::int64_t> Cufft::work_bytes(const FftLines& lines) {
  TW_TRY(context_.make_current());
  const std::lock_guard lock(mutex_);
  if (const auto it = sizes_.find(lines); it != sizes_.end()) return it->second;
  std::int64_t bytes = 0;
  TW_ASSIGN(const int handle, make(lines, bytes));
  functions_->destroy(handle);
  if (sizes_.size() >= kMostSizes) sizes_.clear();
  sizes_.emplace(lines, bytes);
  return bytes;
}

Result<const Cufft::Plan*> Cufft::plan_for(const FftLines& lines, CUstream stream) {
  const Key key{stream, lines};
  if (const auto it = by_key_.find(key); it != by_key_.end()) {
    plans_.splice(plans_.begin(), plans_, it->second);
    return &plans_.front();
  }
  if (plans_.size() >= kMostPlans) {
    const Plan& oldest = plans_.back();
    TW_CUDA_TRY(*context_.driver, cuStreamSynchronize, "cuStreamSynchronize before a plan goes",
                std::get<CUstream>(oldest.key));
    functions_->destroy(oldest.handle);
    by_key_.erase(oldest.key);
    plans_.pop_back();
  }
  Plan plan{.key = key};
  TW_ASSIGN(plan.handle, make(lines, plan.work_bytes));
  if (const Status set = done(functions_->set_stream(plan.handle, stream), "cufftSetStream"); !set) {
    functions_->destroy(plan.handle);
    return set.error();
  }
  plans_.push_front(plan);
  by_key_.emplace(key, plans_.begin());
  return &plans_.front();
}

Status Cufft::prepare(const FftLines& lines, CUstream stream) {
  TW_TRY(context_.make_current());
  const std::lock_guard lock(mutex_);
  TW_TRY(plan_for(lines, stream));
  return {};
}

Status Cufft::run(const FftLines& lines, void* in, void* out, void* work, CUstream stream) {
  TW_TRY(context_.make_current());
  const std::lock_guard lock(mutex_);
  TW_ASSIGN(const Plan* const plan, plan_for(lines, stream));
  TW_TRY(
      done(functions_->set_work_area(plan->handle, work), "cufftSetWorkArea"));  // though it wants no bytes
  const Functions& f = *functions_;
  const int direction = lines.kind == FftLines::Kind::kForward ? kForward : kInverse;
  switch (type_of(lines)) {
    case kC2C: return done(f.c2c(plan->handle, in, out, direction), "cufftExecC2C");
    case kZ2Z: return done(f.z2z(plan->handle, in, out, direction), "cufftExecZ2Z");
    case kR2C: return done(f.r2c(plan->handle, in, out), "cufftExecR2C");
    case kD2Z: return done(f.d2z(plan->handle, in, out), "cufftExecD2Z");
    case kC2R: return done(f.c2r(plan->handle, in, out), "cufftExecC2R");
    case kZ2D: return done(f.z2d(plan->handle, in, out), "cufftExecZ2D");
  }
  return {};
}

}  // namespace tilewise::cuda

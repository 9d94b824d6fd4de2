// libcufft for tests: FFTW, in the order of the plan's stream. Of what the real one leaves open it takes the worse way: the work
// area is written to, a transform to real numbers loses what it reads, and imaginary parts where there are none give NaN.
#include <fftw3.h>

#include <cmath>
#include <cstring>
#include <map>
#include <mutex>
#include <type_traits>

#include "library.h"

namespace {

using Size = long long;
enum Type : int { kR2C = 0x2a, kC2R = 0x2c, kC2C = 0x29, kD2Z = 0x6a, kZ2D = 0x6c, kZ2Z = 0x69 };
constexpr int kSuccess = 0, kInvalidPlan = 1, kInvalidValue = 4, kExecFailed = 6, kUnaligned = 9,
              kNoWorkspace = 13;

struct Plan {
  int n = 0, count = 0;
  Type type = kC2C;
  CUstream stream = nullptr;
  void* work = nullptr;
  bool made = false;
  std::size_t work_bytes() const { return 4096 + 16 * static_cast<std::size_t>(count); }
};
struct Plans {
  std::mutex mutex;  // FFTW's planner, too
  std::map<int, Plan> by_handle;
  int next = 1;
};
Plans& plans() {
  static Plans* const one = new Plans;
  return *one;
}

#define TW_FFTW(R, p) \
  void transform(const Plan& plan, R(*in)[2], R(*out)[2], int direction) { \
    p##_plan one; \
    { \
      const std::lock_guard lock(plans().mutex); \
      one = p##_plan_many_dft(1, &plan.n, plan.count, in, nullptr, 1, plan.n, out, nullptr, 1, plan.n, \
                              direction, FFTW_ESTIMATE); \
    } \
    p##_execute(one); \
    const std::lock_guard lock(plans().mutex); \
    p##_destroy_plan(one); \
  } \
  void transform(const Plan& plan, R* in, R(*out)[2], int) { \
    p##_plan one; \
    { \
      const std::lock_guard lock(plans().mutex); \
      one = p##_plan_many_dft_r2c(1, &plan.n, plan.count, in, nullptr, 1, plan.n, out, nullptr, 1, \
                                  plan.n / 2 + 1, FFTW_ESTIMATE); \
    } \
    p##_execute(one); \
    const std::lock_guard lock(plans().mutex); \
    p##_destroy_plan(one); \
  } \
  void transform(const Plan& plan, R(*in)[2], R* out, int) { \
    const int half = plan.n / 2 + 1; \
    for (int line = 0; line < plan.count; ++line) \
      for (const int i : {0, plan.n % 2 == 0 ? plan.n / 2 : 0}) \
        if (in[static_cast<std::ptrdiff_t>(line) * half + i][1] != 0) \
          in[static_cast<std::ptrdiff_t>(line) * half + i][0] = NAN; \
    p##_plan one; \
    { \
      const std::lock_guard lock(plans().mutex); \
      one = p##_plan_many_dft_c2r(1, &plan.n, plan.count, in, nullptr, 1, half, out, nullptr, 1, plan.n, \
                                  FFTW_ESTIMATE | FFTW_DESTROY_INPUT); \
    } \
    p##_execute(one); \
    std::memset(static_cast<void*>(in), 0xFF, \
                sizeof(R) * 2 * static_cast<std::size_t>(half) * static_cast<std::size_t>(plan.count)); \
    const std::lock_guard lock(plans().mutex); \
    p##_destroy_plan(one); \
  }
TW_FFTW(float, fftwf)
TW_FFTW(double, fftw)

template <class In, class Out> int enqueue(int handle, Type type, In* in, Out* out, int direction = 0) {
  constexpr std::size_t kAlign =
      2 * sizeof(std::remove_all_extents_t<std::conditional_t<std::is_array_v<In>, In, Out>>);
  Plan plan;
  {
    const std::lock_guard lock(plans().mutex);
    const auto it = plans().by_handle.find(handle);
    if (it == plans().by_handle.end() || !it->second.made || it->second.type != type) return kInvalidPlan;
    plan = it->second;
  }
  if (plan.work == nullptr) return kNoWorkspace;
  if (static_cast<void*>(in) == static_cast<void*>(out)) return kInvalidValue;
  for (const auto at : {reinterpret_cast<std::uintptr_t>(in), reinterpret_cast<std::uintptr_t>(out)})
    if (at % kAlign != 0) return kUnaligned;
  const bool done = enqueue_emulated(plan.stream, [=] {
    std::memset(plan.work, 0xFF, plan.work_bytes());
    transform(plan, in, out, direction);
  });
  return done ? kSuccess : kExecFailed;
}

}  // namespace

extern "C" {

int cufftCreate(int* handle) {
  const std::lock_guard lock(plans().mutex);
  *handle = plans().next++;
  plans().by_handle[*handle];
  return kSuccess;
}
int cufftDestroy(int handle) {
  const std::lock_guard lock(plans().mutex);
  return plans().by_handle.erase(handle) == 1 ? kSuccess : kInvalidPlan;
}
int cufftSetAutoAllocation(int, int on) { return on == 0 ? kSuccess : kInvalidValue; }
int cufftMakePlanMany64(int handle, int rank, Size* n, Size* in_embed, Size in_stride, Size in_distance,
                        Size* out_embed, Size out_stride, Size out_distance, Type type, Size count,
                        std::size_t* work) {
  const Size half = n[0] / 2 + 1;
  const Size in = type == kC2R || type == kZ2D ? half : n[0],
             out = type == kR2C || type == kD2Z ? half : n[0];
  if (rank != 1 || n[0] < 1 || count < 1 || in_stride != 1 || out_stride != 1 || in_distance != in ||
      out_distance != out || in_embed == nullptr || out_embed == nullptr)
    return kInvalidValue;
  const std::lock_guard lock(plans().mutex);
  const auto it = plans().by_handle.find(handle);
  if (it == plans().by_handle.end() || it->second.made) return kInvalidPlan;
  Plan& plan = it->second;
  plan.n = static_cast<int>(n[0]);
  plan.count = static_cast<int>(count);
  plan.type = type;
  plan.made = true;
  *work = plan.work_bytes();
  return kSuccess;
}
int cufftSetStream(int handle, CUstream stream) {
  const std::lock_guard lock(plans().mutex);
  plans().by_handle.at(handle).stream = stream;
  return kSuccess;
}
int cufftSetWorkArea(int handle, void* work) {
  const std::lock_guard lock(plans().mutex);
  plans().by_handle.at(handle).work = work;
  return kSuccess;
}
int cufftGetProperty(int, int* value) {
  *value = 0;
  return kSuccess;
}
int cufftExecC2C(int plan, fftwf_complex* in, fftwf_complex* out, int direction) {
  return enqueue(plan, kC2C, in, out, direction);
}
int cufftExecZ2Z(int plan, fftw_complex* in, fftw_complex* out, int direction) {
  return enqueue(plan, kZ2Z, in, out, direction);
}
int cufftExecR2C(int plan, float* in, fftwf_complex* out) { return enqueue(plan, kR2C, in, out); }
int cufftExecD2Z(int plan, double* in, fftw_complex* out) { return enqueue(plan, kD2Z, in, out); }
int cufftExecC2R(int plan, fftwf_complex* in, float* out) { return enqueue(plan, kC2R, in, out); }
int cufftExecZ2D(int plan, fftw_complex* in, double* out) { return enqueue(plan, kZ2D, in, out); }

}  // extern "C"

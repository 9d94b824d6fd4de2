#include <tilewise/ir/cost.h>

#include <algorithm>

namespace tilewise::ir {
namespace {

constexpr double kLaunchNs = 300;
constexpr double kFlopsPerNs = 20;  // unblocked kernels of one core
constexpr double kBytesPerNs = 10;
constexpr double kMostNs = 1e15;  // twelve days

}  // namespace

std::string family_of(const Op& op) {
  std::string name(name_of(op.kind));
  if (op.kind == OpKind::kCall) name += " " + op.get<CallAttrs>().kernel;
  return name;
}

double model_step_ns(const Geometry& geometry, const Index& point) {
  const double bytes =
      static_cast<double>(geometry.bytes_read(point)) + static_cast<double>(geometry.output_bytes_bound());
  const double steps = static_cast<double>(std::max<std::int64_t>(1, geometry.steps(point)));
  // Users say how many flops their kernels have: anything.
  return std::min(kMostNs, kLaunchNs + (geometry.flops(point) / kFlopsPerNs + bytes / kBytesPerNs) / steps);
}

}  // namespace tilewise::ir

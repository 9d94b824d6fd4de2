// Where an op runs: a rule in closed form, chosen among candidates by estimated cost. Nothing here depends on the
// number of blocks: candidates are built from counts and rules, and scored on a bounded, fixed set of sample points.
#pragma once
#include <tilewise/ir/geometry.h>
#include <tilewise/ir/placement.h>

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tilewise::place {

// Mirrors device::Kind on the wire; the scheduler never sees the device library.
constexpr std::uint8_t kHostKind = 0;
constexpr std::uint8_t kCudaKind = 1;

struct Device {
  DeviceId id;
  std::uint8_t kind = kHostKind;
  std::uint32_t host = 0;       // equal: memory may be shared, moving bytes is cheap
  std::int64_t load_bytes = 0;  // of live results placed there
};

// An operand's array: what it is and who owns its blocks. Borrowed.
struct Input {
  const ir::SourceArray* array = nullptr;
  const ir::Placement* placement = nullptr;
};

struct Request {
  const ir::Op* op = nullptr;              // lowered
  const ir::Geometry* geometry = nullptr;  // of `op` and the inputs' arrays
  std::span<const Input> inputs;           // one per operand
  std::span<const Device> devices;         // all that exist, sorted by id
  std::span<const Device> eligible;        // those that automatic placement may use for this op, sorted by id
  std::span<const ir::Placement> wanted;   // of later users with explicit devices and the same block counts
};

struct Candidate {
  ir::Placement placement;
  std::string_view why;  // names the policy; for people
};

// Proposes placements of an op. Policies are stateless and deterministic.
class Policy {
 public:
  virtual ~Policy() = default;
  virtual std::string_view name() const = 0;
  virtual void propose(const Request& request, std::vector<Candidate>& out) const = 0;
};

std::unique_ptr<Policy> aligned_policy();       // with each of the largest operands
std::unique_ptr<Policy> tiled_policy();         // contiguous tiles over a near-square device grid
std::unique_ptr<Policy> block_cyclic_policy();  // the same grid, dealt out in turn; not among the defaults
std::unique_ptr<Policy> wanted_policy();        // as later users with explicit devices want it

struct Decision {
  ir::Placement placement;
  std::string_view why;
  double cost = 0;  // bytes, see cost.cc
};

class Placer {
 public:
  Placer();  // the foundation's policies
  explicit Placer(std::vector<std::unique_ptr<Policy>> policies);
  // The op's explicit devices, if any, decide; else the cheapest candidate, the earlier of equals.
  // kUnavailable where no device may run the op.
  Result<Decision> place(const Request& request) const;

 private:
  std::vector<std::unique_ptr<Policy>> policies_;
};

// The devices that automatic placement may use for an op of this kind: one kind of device, CUDA where there is any,
// except for ops that only the host can run (files, for now). Keeps the order.
void eligible_devices(const ir::Op& op, std::span<const Device> devices, std::vector<Device>& out);

// ---- building blocks, exposed for tests ------------------------------------------------------------------------------

// How many devices along each dimension. Uses no more than there are blocks; the most loaded device has as few points
// as possible; then the sum of `cut_cost[d] * (parts[d] - 1)` is smallest.
ir::PerDim<std::int32_t> device_grid(const ir::Shape& counts, std::int64_t devices,
                                     std::span<const double> cut_cost);
// What a cut across each dimension of the op's space costs, in bytes: the operands that every device along it reads.
ir::PerDim<double> cut_costs(const Request& request);

// What the user asked for: one device, a subset, or parts of a mesh where their rank is the op's.
ir::Placement hinted(const ir::DeviceHint& hint, const ir::Shape& counts, std::span<const double> cut_cost);

ir::Placement tiled(const ir::Shape& counts, std::span<const DeviceId> devices,
                    std::span<const double> cut_cost, bool cyclic);

// The rule of an operand's array carried through the op's index map: points run where the first block they read is.
// False where the operand has no blocks or its rule does not survive the map.
bool align_with(const Request& request, int operand, ir::Placement& out);

// Estimated bytes moved between devices, from at most kSampledReads reads; bytes on the same host weigh less.
constexpr std::int64_t kSampledReads = 256;
double moved_bytes(const Request& request, const ir::Placement& placement);
// The same for the way from here to the users in `request.wanted`.
double wanted_bytes(const Request& request, const ir::Placement& placement);
// Extra work of the busiest device over a perfect spread, in bytes.
double imbalance_bytes(const Request& request, const ir::Placement& placement);

}  // namespace tilewise::place

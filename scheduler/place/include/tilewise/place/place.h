// Where an op runs: a rule in closed form, chosen among candidates by estimated cost. Nothing here depends on the
// number of blocks: candidates are built from counts and rules, and scored on a bounded, fixed set of sample points.
#pragma once
#include <tilewise/ir/geometry.h>
#include <tilewise/ir/placement.h>
#include <tilewise/place/speeds.h>

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tilewise::place {

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
  const Speeds* speeds = nullptr;          // null: as if nothing had been measured
  // When each of `devices` would be done with what earlier ops of the same plan have given it, in seconds; empty: none have.
  std::span<const double> busy_s = {};
  // When devices could have made their first blocks of what the op reads, in seconds, on average. Who has nothing to do before then
  // cannot use that time for it.
  double ready_s = 0;
  // Of blocks that come from afar, the op gets what it reads if that is less: it may be cut for (pieces.h).
  bool cuts = false;
};

struct Candidate {
  ir::Placement placement;
  std::string_view why;    // names the policy; for people
  bool by_memory = false;  // the device is the one that has least now
};

// Proposes placements of an op. Policies are stateless and deterministic.
class Policy {
 public:
  virtual ~Policy() = default;
  virtual std::string_view name() const = 0;
  // It looks at every point, under a budget: asked only where enough could be won to pay for that.
  virtual bool searches() const { return false; }
  virtual void propose(const Request& request, std::vector<Candidate>& out) const = 0;
};

std::unique_ptr<Policy> aligned_policy();       // with each of the largest operands
std::unique_ptr<Policy> tiled_policy();         // contiguous tiles over a near-square device grid
std::unique_ptr<Policy> block_cyclic_policy();  // the same grid, dealt out in turn; not among the defaults
std::unique_ptr<Policy> wanted_policy();        // as later users with explicit devices want it
std::unique_ptr<Policy> balanced_policy();      // shares by speed, where equal tiles cannot be even
std::unique_ptr<Policy> product_policy();       // of a matrix product, A, B or C stays where it is
std::unique_ptr<Policy>
product_grids_policy();  // searches: grids of devices for a product, in layers along k too
std::unique_ptr<Policy>
scattered_policy();                         // partial results are summed by those who have them, a share each
std::unique_ptr<Policy> gathered_policy();  // partial results are summed on the host that has most of them
std::unique_ptr<Policy> following_policy();  // searches: each point to its inputs, within shares by speed

struct Rejected {
  ir::Placement placement;
  std::string_view why;
  double seconds = 0, moved_bytes = 0;
};
struct Decision {
  ir::Placement placement;
  std::string_view why;
  double seconds = 0, moved_bytes = 0;  // estimated; 0 where there was no choice
  double work_s = 0;                    // of the device with most of it; the caller's to know
  // What devices have in memory already decided, or could have: with more or less there it might have been another placement.
  bool by_memory = false;
  std::vector<Rejected> rejected;  // the best two of the others, better first
};

class Placer {
 public:
  Placer();  // the foundation's policies
  explicit Placer(std::vector<std::unique_ptr<Policy>> policies);
  // The op's explicit devices, if any, decide; else the cheapest of the candidates (Estimate), the earlier of equals.
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
// What a cut across each dimension of the op's space costs, in bytes: the operands that every device along it reads, and
// partial results that are summed along it later.
ir::PerDim<double> cut_costs(const Request& request);

// What the user asked for: one device, a subset, or parts of a mesh where their rank is the op's.
ir::Placement hinted(const ir::DeviceHint& hint, const ir::Shape& counts, std::span<const double> cut_cost);

ir::Placement tiled(const ir::Shape& counts, std::span<const DeviceId> devices,
                    std::span<const double> cut_cost, bool cyclic);

// The rule of an operand's array carried through the op's index map: points run where the first block they read is.
// False where the operand has no blocks or its rule does not survive the map.
bool align_with(const Request& request, int operand, ir::Placement& out);

// Where a product, on the device grid that moves the fewest bytes, would like the blocks of an operand that has not been
// placed: each with one of those that read it. False where its view or its cuts do not allow that.
bool wanted_by_product(const Request& product, int operand, ir::Placement& out);

struct Estimate {
  // Until the busiest device is done, computing and waiting for bytes, and a little for all traffic (of more than 64 devices, for that of
  // 64 on average); counted from when the first device could begin: free, and with something to read (Request::ready_s).
  double seconds = 0;
  // Between devices, to where `request.wanted` wants the results and for the sum of partial products included.
  double moved_bytes = 0;
  // Beside what stays there, where there is least of it. Candidates that fit go before those that do not; one that leaves little
  // room for later ops is taken where it is several times as fast as all that leave some.
  Room room = Room::kAmple;
  bool over = false;  // some of it goes below memory
};
constexpr std::int64_t kSampledReads = 256;  // at most so many are looked at
Estimate estimate(const Request& request, const ir::Placement& placement);

// A grid of chunks over the points: one a point, or coarser, so that there are at most `most` (and ir::kMaxRuleDevices).
ir::Shape chunks_of(const ir::Shape& counts, std::int64_t most);

double bytes_of(const ir::SourceArray& array);  // all of it

// "4x2 tiles over 8 devices", "one device": for people.
std::string describe(const ir::Placement& placement);
// "..., about 12 KiB moved"
std::string describe(const ir::Placement& placement, double moved_bytes);

}  // namespace tilewise::place

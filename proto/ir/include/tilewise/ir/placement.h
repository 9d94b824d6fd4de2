// Placement rules: who owns each point of an iteration space, in closed form. Everyone evaluates them alike.
#pragma once
#include <tilewise/base/id.h>
#include <tilewise/ir/run_map.h>

#include <memory>
#include <optional>
#include <vector>

namespace tilewise::ir {

constexpr int kMaxPieces = 1024;         // of one placement
constexpr int kMaxRuleDevices = 65'536;  // of one rule

// Points of a box tiled over a device grid. Along dimension d, coordinate c of `parts[d]` owns, counted from the box's
// low corner: contiguous: [ceil(c*n/parts), ceil((c+1)*n/parts)); cyclic: every parts[d]-th, starting at c.
// devices[ravel(coordinates, parts) * copies] is the owner, which runs the task. The copies - 1 devices after it are
// holders: while the array is held they keep the block, once they have read a copy of it, as long as there is room.
struct Rule {
  PerDim<std::int32_t> parts;
  PerDim<std::uint8_t> cyclic;  // 0 or 1 per dimension
  std::vector<DeviceId> devices;
  std::int32_t copies = 1;
  static Rule constant(int rank, DeviceId device);
  friend bool operator==(const Rule&, const Rule&) = default;
};

// A bounded list of disjoint boxes that cover the space.
struct Piece {
  Box box;
  Rule rule;
  friend bool operator==(const Piece&, const Piece&) = default;
};

// A value. Copies share what they hold, which never changes: a plan for 10,000 workers names each rule once in memory.
class Placement {
 public:
  Placement() = default;
  static Placement whole(const Shape& counts, Rule rule);
  // Takes anything, so that what came from outside can be given to verify(); only then ask the rest.
  explicit Placement(std::vector<Piece> pieces);

  // Some points only, listed: after a loss. Nobody owns the others.
  static Placement of_runs(Shape counts, std::vector<Run> runs);

  const std::vector<Piece>& pieces() const { return body().pieces; }  // none if it is listed
  const RunMap* listed() const { return body().listed ? &*body().listed : nullptr; }
  // Pieces disjoint, covering `counts`; parts match devices; bounded. Or as RunMap::verify.
  Status verify(const Shape& counts) const;

  DeviceId owner(const Index& point) const;  // none (0) for a point in no piece
  // Owner or holder.
  bool holds(const Index& point, DeviceId device) const;
  bool replicated() const;  // some rule has holders

  // The points a device owns, piece by piece; within a piece in C order: a product of progressions, enumerated
  // without a list. (A rule that names a device several times gives it several such products, one after the other.)
  // O(log slots), where a slot is one mention of a device in one piece.
  std::int64_t owned_count(DeviceId device) const;
  std::int64_t owned_count(DeviceId device,
                           const Box& box) const;  // of those inside `box`; O(slots of the device)
  Index nth(DeviceId device, std::int64_t ordinal) const;
  // Ordinal of an owned point: inverse of nth.
  std::int64_t ordinal(DeviceId device, const Index& point) const;

  struct Share {
    DeviceId device;
    std::int64_t points;
  };
  // Devices owning points inside `box`, with how many each; in order of first appearance by coordinates, each once.
  void shares(const Box& box, std::vector<Share>& out) const;  // clears `out` first

  // The point with the lowest ordinal that `device` owns inside `box`.
  std::optional<Index> first_owned(DeviceId device, const Box& box) const;

  std::vector<DeviceId> devices() const;  // every device named, sorted, each once

  friend bool operator==(const Placement& a, const Placement& b) {
    return a.body_ == b.body_ || (a.pieces() == b.pieces() && a.body().listed == b.body().listed);
  }

 private:
  // One mention of an owner: coordinates `place` (C-order number in the rule's device grid) of a piece. Sorted by
  // device, then piece and place; `before` counts the device's points in earlier slots.
  struct Slot {
    DeviceId device;
    std::int32_t piece = 0, place = 0;
    std::int64_t before = 0, points = 0;
  };
  struct Body {
    std::vector<Piece> pieces;
    std::vector<Slot> slots;
    bool repeats = false;  // some device has several slots
    std::optional<RunMap> listed;
  };
  static const Body kNoBody;
  const Body& body() const { return body_ ? *body_ : kNoBody; }
  std::span<const Slot> slots_of(DeviceId device) const;

  std::shared_ptr<const Body> body_;
};

}  // namespace tilewise::ir

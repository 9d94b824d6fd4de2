// Placement rules: who owns each point of an iteration space, in closed form. Everyone evaluates them alike.
#pragma once
#include <tilewise/base/id.h>
#include <tilewise/ir/shape.h>

#include <optional>
#include <vector>

namespace tilewise::ir {

// Points of a box tiled over a device grid. Along dimension d, coordinate c of `parts[d]` owns, counted from the box's
// low corner: contiguous: [ceil(c*n/parts), ceil((c+1)*n/parts)); cyclic: every parts[d]-th, starting at c.
// devices[ravel(coordinates, parts)] is the owner.
struct Rule {
  PerDim<std::int32_t> parts;
  PerDim<std::uint8_t> cyclic;  // 0 or 1 per dimension
  std::vector<DeviceId> devices;
  static Rule constant(int rank, DeviceId device);
  friend bool operator==(const Rule&, const Rule&) = default;
};

// A bounded list of disjoint boxes that cover the space.
struct Piece {
  Box box;
  Rule rule;
  friend bool operator==(const Piece&, const Piece&) = default;
};

class Placement {
 public:
  Placement() = default;
  static Placement whole(const Shape& counts, Rule rule);
  explicit Placement(std::vector<Piece> pieces) : pieces_(std::move(pieces)) {}

  const std::vector<Piece>& pieces() const { return pieces_; }
  // Pieces disjoint, covering `counts`; parts match devices; bounded.
  Status verify(const Shape& counts) const;

  DeviceId owner(const Index& point) const;

  // The points a device owns, in C order per piece: a product of progressions, enumerated without a list.
  std::int64_t owned_count(DeviceId device) const;
  // Calls visit(index) for owned points number [from, to); returns when done. O(to - from).
  // `nth` is the random-access form.
  Index nth(DeviceId device, std::int64_t ordinal) const;
  // Ordinal of an owned point: inverse of nth.
  std::int64_t ordinal(DeviceId device, const Index& point) const;

  struct Share { DeviceId device; std::int64_t points; };
  // Devices owning points inside `box`, with how many each; in order of first appearance by coordinates, each once.
  void shares(const Box& box, std::vector<Share>& out) const;  // clears `out` first

  // The first point (C order within the first piece that has one) that `device` owns inside `box`.
  std::optional<Index> first_owned(DeviceId device, const Box& box) const;

  std::vector<DeviceId> devices() const;  // every device named, sorted, each once

  friend bool operator==(const Placement&, const Placement&) = default;

 private:
  std::vector<Piece> pieces_;
};

}  // namespace tilewise::ir

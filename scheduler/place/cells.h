// What an operand shows, in cells: along each dimension there is a cut where the owner of its blocks changes, and where what some
// device reads of it begins or ends. So a cell has one owner, and each device reads all of it or nothing.
#pragma once
#include <tilewise/ir/walk.h>
#include <tilewise/place/place.h>

#include <optional>
#include <vector>

namespace tilewise::place {

struct Cell {
  DeviceId owner;
  std::vector<DeviceId> readers;  // the owner too, if it is one
  double elements = 0;            // without those that repeat
  double block_elements = 0;      // of all blocks that it lies in
  ir::Box parts;                  // along each dimension of the array, which parts of the walk: one a block
};

class Cells {
 public:
  // Of an operand of a copy or an elementwise op that is placed so. Borrows.
  Cells(const ir::Op& op, int operand, const Input& input, const ir::Placement& reader, std::int64_t most);

  bool good() const { return good_; }  // false: there are none, or more than `most`; only then ask the rest
  const ir::Shape& counts() const { return counts_; }  // along each dimension of what the operand shows
  std::int64_t count() const { return ir::volume(counts_); }
  Cell at(std::int64_t cell) const;  // in C order
  // The block in which one of its parts lies.
  ir::Index block(const ir::Index& part) const;

  // Of a box of cells: what it holds of the operand,
  ir::Box box(const ir::Box& cells) const;
  // its pieces, each in one block and one cell, without dimensions that repeat; none: more than `most`,
  std::optional<ir::Grid> pieces(const ir::Box& cells, std::int64_t most) const;
  // and which of them lie in a box of cells, counted from the low corner of the other.
  ir::Box pieces_inside(const ir::Box& cells, const ir::Box& inside, const ir::Grid& pieces) const;

 private:
  struct Dim {
    int source = -1;                     // dimension of the array; -1: it repeats
    std::int64_t before = 0, after = 0;  // by which the op widens its points' spans
    std::vector<std::int64_t> bounds;    // cuts, both ends among them
    ir::Walk walk;
  };
  bool set_dims(std::int64_t most);
  bool owner_bounds(Dim& dim, int d) const;
  bool reader_bounds(Dim& dim, int d) const;
  // Points of the op that read some of [lo, hi) along a dimension.
  std::pair<std::int64_t, std::int64_t> points(int d, std::int64_t lo, std::int64_t hi) const;

  const ir::Op& op_;
  const ir::View& view_;
  const ir::Grid& grid_;
  const ir::Placement &owners_, &readers_;
  std::vector<Dim> dims_;
  ir::Shape counts_;
  bool good_ = false;
};

// Cells that have the same label in boxes, each cell in one: few, not the fewest.
std::vector<ir::Box> boxes_of_like(const ir::Shape& counts, const std::vector<std::uint64_t>& labels);

}  // namespace tilewise::place
